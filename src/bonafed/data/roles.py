"""What a column is, judged by its name and by the summary of its cells (`bonafed.data.profile`).

The rules, the first that holds:

    empty        no cell has a value
    copy         the same cells as a column before, at every client
    constant     one value
    index        1, 2, 3, ... under no name, or under one that software gives to row numbers
    person       named as a person or as an identifier, and its values repeat
    identifier   so named and nearly unique; or whole numbers that rise from row to row
    date, ...    every cell is of a kind of `bonafed.data.reading`, and can be read in one way
    asked        the same, and two ways fit, or none: two orders of day, month and year
    code         named as a postcode or a code, written with zeros in front, or a code of ICD-10
    comma        every cell is a number, and one has a decimal comma; or may be that of thousands
    number       every cell is a number
    mixed        most cells are numbers or dates, and some are not; or numbers with units
    identifier   nearly unique text
    category     text of few values
    text         text of many
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bonafed.data.profile import Summary, merged, spellings
from bonafed.data.reading import KINDS

MOST = 100  # categories that a column may have
RARE = 10  # rows below which a category is pooled with others
LARGE = 200  # rows from which that holds
ENOUGH = 30  # rows below which nothing is said to be unique
UNIQUE = 0.95  # share of values among the cells from which they are nearly unique
AMOUNTS = 10  # different numbers with units up to which they are categories, as doses are
MAINLY = 0.8  # share of cells that make a column of numbers or dates in spite of the others

PEOPLE = frozenset(
    {"patient", "person", "subject", "participant", "proband", "customer", "member", "user"}
    | {"employee", "student", "client", "resident", "mrn", "pid", "kunde", "household"}
)
MARKS = frozenset({"id", "ids", "uuid", "guid", "nr", "no", "num", "number", "key", "identifier"})
ALONE = frozenset({"mrn", "ssn", "uuid", "guid", "pid", "iban", "identifier", "email", "phone"})
CODES = frozenset(
    {"zip", "zipcode", "postcode", "postal", "plz", "postleitzahl", "icd", "icd10", "icd9", "code"}
    | {"codes", "atc", "ops", "cpt", "drg", "sic", "naics"}
)
OUTCOMES = frozenset(
    {"target", "label", "outcome", "response", "death", "died", "dead", "mortality", "survived"}
    | {"survival", "deceased", "readmitted", "readmission", "relapse"}
)
INDICES = re.compile(r"(unnamed:? ?\d*|\.\.\.\d+|index|row_?(names?|id)|_c0)?", re.I)


@dataclass(frozen=True)
class Kind:
    """What a column is: ``rule``, why, in words without a value or a figure of the table;
    ``figures``, the same with figures.
    """

    name: str
    rule: str = ""
    figures: str = ""
    key: str = ""  # of `KINDS`

    @property
    def why(self) -> str:
        """The reason, with its figures."""
        return ": ".join(filter(None, (self.rule, self.figures)))


def words(name: str) -> list[str]:
    """The words of a column's name in small letters: of ``PatientID`` patient and id."""
    parts = re.findall(r"[^\W\d_]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name))
    return [part.lower() for part in parts]


def names_a_person(name: str) -> bool:
    """Whether the name is that of a person's identifier: ``patient``, ``patient_id``, ``mrn``."""
    own = words(name)
    glued = [w.removesuffix("id").removesuffix("nr") for w in own]
    rest = [w for w in own if w not in MARKS]
    return bool(own) and (
        rest in ([person] for person in PEOPLE) or (len(own) == 1 and glued[0] in PEOPLE)
    )


def names_an_identifier(name: str) -> bool:
    """Whether the name says that the column tells rows or people apart."""
    own = words(name)
    marks = (MARKS - {"number", "num"}) | ALONE
    return bool(own) and (own[-1] in marks or own[-1].endswith("nummer"))


def kind_of(name: str, column: Summary, same: str | None = None, order: str | None = None) -> Kind:
    """The kind of a column that is neither the target nor the client.

    ``same`` is a column before it with the same cells, ``order`` the way to read its cells that the
    user names.
    """
    values = f"{column.distinct:,} values in {column.present:,} cells"
    if not column.present:
        return Kind("empty", "no cell has a value")
    if same is not None:
        return Kind("copy", f"the same cells as {same!r}")
    if column.distinct == 1:
        return Kind("constant", "one value in all rows")
    return (
        _of_identifiers(name, column, values)
        or _of_kinds(column, order)
        or _of_codes(name, column, values)
        or _of_numbers(column)
        or _of_text(column, values)
    )


def _of_identifiers(name: str, column: Summary, values: str) -> Kind | None:
    whole = column.whole == column.present
    unique = column.distinct >= UNIQUE * column.present
    counts = whole and column.rising and column.present >= ENOUGH
    if whole and column.rising and INDICES.fullmatch(name.strip()):
        return Kind("index", "row numbers" + " under no name" * (not name.strip()))
    person = names_a_person(name)
    if person or names_an_identifier(name):
        if unique and (column.present >= ENOUGH or person):
            return Kind("identifier", "so named, and nearly unique", values)
        many = column.distinct > max(20, 0.05 * column.present)
        if (person and column.distinct > 5) or many:
            return Kind("person", "so named, and its values repeat", values)
        return Kind("code", "named as a code, of few values", values)
    if counts:
        return Kind("identifier", "whole numbers that rise from row to row", values)
    return None


def _of_kinds(column: Summary, way: str | None) -> Kind | None:
    for key, n in column.kinds.items():
        kind = KINDS[key]
        numbers = column.numbers + column.commas if kind.beside_numbers else 0
        if n + numbers < column.present:
            continue
        ways = column.fits[key]
        if len(ways) == 1 or way in ways:
            figures = f"{n:,} {kind.shown}" if kind.beside_numbers else ""
            return Kind(kind.name, kind.why, figures, key)
        several = " or ".join(sorted(ways))
        rule = f"{key} that may be {several}" if several else f"{key} of which no one way fits"
        return Kind("asked", rule, key=key)
    return None


def _of_codes(name: str, column: Summary, values: str) -> Kind | None:
    named = [word for word in words(name) if word in CODES]
    one_length = column.lengths[0] == column.lengths[1]
    padded = column.padded and column.numbers == column.present
    if column.diseases == column.present and column.distinct > 1:
        return Kind("code", "codes as of ICD-10: categories", values)
    if named and column.commas == 0:
        return Kind("code", f"named as a code ({named[0]}): categories, no numbers", values)
    if padded and (one_length or column.padded > 1):
        return Kind("code", "zeros in front, as codes have: categories", values)
    return None


def _of_numbers(column: Summary) -> Kind | None:
    numbers = column.numbers + column.commas
    if numbers == column.present:
        return Kind("comma", "a decimal comma") if column.commas else Kind("number")
    others = [(key, n) for key, n in column.kinds.items() if not KINDS[key].beside_numbers]
    for what, n in (("numbers", numbers + column.beside_numbers), *others):
        if n >= MAINLY * column.present and column.distinct > 20:
            return Kind(
                "mixed",
                f"mostly {what}, and some cells are not",
                f"{column.present - n:,} of {column.present:,}",
            )
    amounts = numbers + column.beside_numbers + column.amounts
    if column.amounts and amounts >= MAINLY * column.present and column.distinct > AMOUNTS:
        rule = "numbers with units, percent signs or signs after the thousands, which are text here"
        return Kind("mixed", rule, f"{column.amounts:,} of {column.present:,}")
    return None


def _of_text(column: Summary, values: str) -> Kind:
    if column.distinct >= UNIQUE * column.present and column.present >= ENOUGH:
        return Kind("identifier", "nearly unique text", values)
    categories = frequent(column)
    if column.counts and categories is not None and len(categories) <= MOST:
        largest = max(merged(column.counts, spellings(column.counts)).values())
        if column.present >= LARGE and largest < RARE:
            return Kind("text", f"text of which no value stands in {RARE} rows", values)
        return Kind("category", "", f"{column.distinct:,} values")
    return Kind("text", f"text of more than {MOST} values", values)


def frequent(column: Summary) -> list[str] | None:
    """The categories of a column of text that stay when those of fewer than `RARE` rows are pooled,
    if there are too many otherwise; None where even then it is better left out.
    """
    if column.counts is None:
        return None
    counts: Mapping[str, int] = merged(column.counts, spellings(column.counts))
    if len(counts) <= MOST:
        return [*counts]
    often = [value for value, n in counts.items() if n >= RARE]
    covered = sum(counts[value] for value in often)
    return often if covered >= 0.5 * column.present else None


def sentinel(column: Summary) -> str | None:
    """A number far from all others that looks as if it stood for a missing cell, such as -999."""
    if column.numbers + column.commas < column.present or len(column.ends) < 4:
        return None
    low, second, last, high = column.ends
    first, spread = f"{low:g}", last - second
    near_zero = second >= 0 and low < -0.2 * spread
    if re.fullmatch(r"-9{1,5}|-1", first) and (near_zero or low < min(second - 3 * spread, -98)):
        return first
    return (
        f"{high:g}"
        if re.fullmatch(r"9{3,6}", f"{high:g}") and high >= 2 * max(last, spread)
        else None
    )


def odd_class(values: Iterable[str]) -> str | None:
    """The value of few whole numbers that looks as if it stood for a missing cell."""
    odd = [v for v in values if re.fullmatch(r"-9{1,5}|-1|9{2,6}", v)]
    return odd[0] if len(odd) == 1 else None
