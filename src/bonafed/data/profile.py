"""What tables look like, column by column: counts of cells by form, the smallest and largest
number, the ways in which all cells of a kind can be read, and up to `KEPT` values with counts.

Beside a target, `link` counts values by class, and sums products where the target is a number: that
tells columns that are the target once more.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.data.reading import KINDS, NUMBER
from bonafed.data.tables import COMMA, EXACT, is_number, names_something, parsed, ungrouped, written
from bonafed.data.validation import EXTREME

KEPT = 1000  # values of a column that are counted one by one
ODD = 20  # different odd cells of a column that are named
ROWS = 5  # for each value, from which on a column may tell the target

# texts that stand for a missing cell beside those that every table may use for it, also where other
# cells are text; among them what a spreadsheet writes where a formula failed
SURE = frozenset({"-", "--", "---", ".", "..", "#n/a", "#na", "#nv", "#null!", "<na>", "n.a."})
SURE |= {"n/a", "na", "nan", "null", "k.a.", "k. a."}
SURE |= {"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#wert!", "#bezug!", "#zahl!"}
# the same, where nothing else is text
TOKENS = SURE | {"none", "nil", "missing", "unknown", "not available", "keine angabe", "unbekannt"}
TOKENS |= {"n/d", "nd", "not done", "not measured", "unk", "nask", "asku"}
TOKENS |= {"n/k", "nk", "not known", "not yet known", "don't know", "pending", "tbd", "refused"}
TOKENS |= {"declined", "no answer", "lost to follow-up", "lost to follow up", "unklar"}
TOKENS |= {"weiß nicht", "verweigert", "inconnu", "inconnue", "en attente", "perdu de vue"}
TOKENS |= {"desconocido", "pendiente", "desconhecido", "sconosciuto", "onbekend", "nieznany"}
TOKENS |= {"неизвестно", "ausstehend"}
NOTHING = frozenset({"none", "nil"})  # of them, those that may as well be an outcome
TOKENS |= {f".{letter}" for letter in "_abcdefghijklmnopqrstuvwxyz"}  # as SAS writes them
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
POINTED = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")  # 1.234 may be a thousand and more
UNITS = (
    r"%|‰|°?[CF]|[€$£]|eur|usd|chf|gbp|mmhg|bpm|[kmµu]?g|[mdµ]?l|[kcm]?m|[a-zµ]+/[a-zµ0-9]+"
    r"|y|yrs?|years?|j|jahre?|mo|mths?|months?|monate?|w|weeks?|wochen?|d|days?|tage?"
    r"|h|hrs?|hours?|std|min|s|sec"
)
AMOUNT = re.compile(  # 51 y, 97 %, 1,234.50, 1.234,50, 1 234,50, and a minus sign that is no hyphen
    r"[€$£]?\s*[+−-]?"
    r"(\d+([.,]\d+)?|\d{1,3}(,\d{3})+(\.\d+)?|\d{1,3}(\.\d{3})+(,\d+)?"
    r"|\d{1,3}([\s'’]\d{3})+([.,]\d+)?)"
    rf"\s*({UNITS})?\.?",
    re.IGNORECASE,
)
# yes and no, as people write them
YES = ("yes", "y", "ja", "j", "true", "t", "oui", "o", "si", "sí", "sim", "wahr", "vrai", "1")
NO = ("no", "n", "nein", "false", "f", "non", "não", "nao", "falsch", "faux", "0")
POSITIVE, NEGATIVE = ("positive", "positiv", "pos", "pos."), ("negative", "negativ", "neg", "neg.")
ANSWERS = ((YES, NO), (POSITIVE, NEGATIVE))
Merge: TypeAlias = dict[str, str]
DISEASE = re.compile(r"[A-TV-Z]\d[0-9A-Z](\.?[0-9A-Z]{1,4})?")  # a code of ICD-10
# P0001, 012-345-678, 1/22/333, 9f86d081884c, but no month of a year
KEY = re.compile(
    r"(?!(19|20)\d\d[-_]\d\d?$)(?=(.*\d){3})([A-Za-z]{0,5}[-_]?\d+([-_]\d+)*[-_]?[A-Za-z]?"
    r"|\d+(/\d+){2,}|[0-9A-Fa-f-]{12,})"
)


@dataclass(frozen=True)
class Summary:
    """What is known of the cells of a column.

    Attributes
    ----------
    rows, missing : cells, and those that every reader takes as missing
    tokens : texts that stand for a missing cell here, as it seems, with their counts
    numbers, commas : cells that are numbers, with a point or without; with a decimal comma
    comma_limits : limits with a decimal comma
    thousands : those of ``commas`` that may be whole numbers with a sign after the thousands
    points : numbers that are written with a decimal point
    pointed : those of ``points`` that may be whole numbers with a point after the thousands
    amounts : cells that are numbers but for a unit or signs after thousands, and of no kind
    whole, padded : numbers without a fraction; those with needless zeros in front, as codes have
    diseases, keys : codes of diseases; texts of digits and signs, as identities are
    digits : whole numbers of more digits than float64 has
    odd : texts beside numbers and kinds, with their counts, if there are few
    spread : the variance of how often the values stand there, over its mean
    together : the rows of every value stand together, and not in the order of the values
    kinds : cells by the key of a kind in `KINDS`
    fits : by the same, the ways in which all cells of this kind may be read
    ends : the two smallest and the two largest of the numbers
    rising : every number is larger than the one before
    lengths : of the shortest and of the longest text
    distinct : how many values there are
    counts : of every value, None where there are more than `KEPT`
    """

    rows: int = 0
    missing: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)
    numbers: int = 0
    commas: int = 0
    comma_limits: int = 0
    thousands: int = 0
    points: int = 0
    pointed: int = 0
    amounts: int = 0
    whole: int = 0
    padded: int = 0
    diseases: int = 0
    keys: int = 0
    digits: int = 0
    odd: Mapping[str, int] = field(default_factory=dict)
    spread: float = np.inf
    together: bool = False
    kinds: Mapping[str, int] = field(default_factory=dict)
    fits: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ends: tuple[float, ...] = ()
    rising: bool = True
    lengths: tuple[int, int] = (2**31, 0)
    distinct: int = 0
    counts: Mapping[str, int] | None = field(default_factory=dict)

    @property
    def absent(self) -> int:
        """Cells without a value."""
        return self.missing + sum(self.tokens.values())

    @property
    def low(self) -> float:
        """The smallest of the numbers, inf where there is none."""
        return min(self.ends, default=np.inf)

    @property
    def high(self) -> float:
        """The largest of the numbers, -inf where there is none."""
        return max(self.ends, default=-np.inf)

    @property
    def present(self) -> int:
        """Cells with a value."""
        return self.rows - self.absent

    @property
    def text(self) -> int:
        """Cells that are neither numbers nor of a kind."""
        return self.present - self.numbers - self.commas - sum(self.kinds.values())

    @property
    def beside_numbers(self) -> int:
        """Cells that stand among numbers, such as limits."""
        return sum(n for key, n in self.kinds.items() if KINDS[key].beside_numbers)

    @property
    def middle(self) -> float:
        """Half way between the smallest and the largest number."""
        return (self.low + self.high) / 2

    def without_odd(self) -> "Summary":
        """The summary where the odd texts stand for a missing cell."""
        counts = None
        if self.counts is not None:
            counts = {text: n for text, n in self.counts.items() if text not in self.odd}
        tokens, distinct = {**self.tokens, **self.odd}, self.distinct - len(self.odd)
        return replace(self, tokens=tokens, counts=counts, distinct=distinct, odd={})

    def with_tokens(self, accepted: Collection[str]) -> "Summary":
        """The summary where only the accepted texts stand for a missing cell; the other tokens are
        values as well.
        """
        values = {text: n for text, n in self.tokens.items() if text not in accepted}
        if not values:
            return self
        counts = None if self.counts is None else Counter(self.counts) + Counter(values)
        sizes = [*map(len, values), *self.lengths]
        return replace(
            self,
            tokens={text: n for text, n in self.tokens.items() if text in accepted},
            counts=counts if counts is None or len(counts) <= KEPT else None,
            distinct=self.distinct + len(values),
            lengths=(min(sizes), max(sizes)),
        )


def summarise(column: NDArray[Any]) -> Summary:
    """The summary of cells: text with None where missing, or numbers."""
    if column.dtype.kind != "O":
        numbers = column.astype(np.float64)
        if (abs(numbers[numbers == numbers]) <= EXTREME).all():
            return _of_numbers(numbers)
        column = np.array([None if v != v else written(v) for v in numbers.tolist()], object)
    cells = [cell if isinstance(cell, str) else str(cell) for cell in column if cell is not None]
    values = parsed(cells) if cells else np.zeros(0)
    size = {"rows": len(column), "missing": len(column) - len(cells)}
    if values.dtype.kind == "O" or not (abs(values) <= EXTREME).all():
        return replace(_of_texts(cells), **size)
    whole = "\n".join(cells)  # of which the compiled searches are of all cells at once
    return replace(
        _of_numbers(values.astype(np.float64), cells),
        points=whole.count("."),
        pointed=len(re.findall(rf"^{POINTED.pattern}$", whole, re.M)) if "." in whole else 0,
        padded=len(re.findall(r"^0\d", whole, re.M)),
        lengths=_ends_of({*map(len, cells)}),
        **size,
    )


def _ends_of(lengths: Collection[int]) -> tuple[int, int]:
    return min(lengths, default=0), max(lengths, default=0)


def _is_padded(cell: str) -> bool:
    return cell[:1] == "0" and cell[1:2].isdigit()


def digest(parts: Iterable[NDArray[Any]]) -> bytes:
    """A digest of the cells of a column, of which each client has a part."""
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        cells = ["\x1e" if c is None or c != c else str(c) for c in part.tolist()]
        whole.update("\x1f".join(cells).encode("utf-8", "surrogatepass") + b"\x1d")
    return whole.digest()


def _of_numbers(column: Array, cells: Sequence[str] | None = None) -> Summary:
    """The summary of numbers, written as ``cells`` if they were text."""
    values = column[column == column]
    unique, often = np.unique(values, return_counts=True)
    texts = cells if cells is not None else (written(v) for v in values.tolist())
    finite, steps = unique[np.isfinite(unique)], np.diff(values)
    return Summary(
        rows=len(column),
        missing=len(column) - len(values),
        numbers=len(values),
        whole=int((values == np.rint(values)).sum()),
        ends=_ends([*finite[:2].tolist(), *finite[-2:].tolist()]),
        rising=bool((steps > 0).all()),
        counts=Counter(texts) if len(unique) <= KEPT else None,
        distinct=len(unique),
        spread=float(often.var() / often.mean()) if len(often) else np.inf,
        together=_together(steps[steps != 0] > 0, len(unique), len(values)),
    )


def _together(rises: Sequence[bool] | NDArray[np.bool_], distinct: int, n: int) -> bool:
    """Whether the rows of each value stand together, and the values in no order; ``rises``: whether
    a value of the n is larger than the one before, where they differ.
    """
    return len(rises) + 1 == distinct < n and any(rises) and not all(rises)


def _ends(values: Iterable[float]) -> tuple[float, ...]:
    """The two smallest and the two largest of different numbers, all of up to four."""
    order = sorted({*values})
    return tuple(order if len(order) < 5 else [*order[:2], *order[-2:]])


def _of_texts(cells: Sequence[str]) -> Summary:
    """The summary of cells of which some are not plain numbers; every value is looked at once."""
    counts, tally, tokens, kinds = Counter(cells), Counter[str](), Counter[str](), Counter[str]()
    fits, numbers = dict[str, frozenset[str]](), dict[str, float]()
    odd = Counter[str]()
    for text, n in counts.items():
        if text.casefold() in TOKENS:
            tokens[text] = n
            continue
        if (number := number_of(text)) is not None:
            numbers[text] = number
            bare = ungrouped(text)
            tally["commas" if "," in bare else "numbers"] += n
            tally["points"] += n * ("." in bare)
            tally["pointed"] += n * bool(POINTED.fullmatch(text))
            tally["whole"] += n * ("," not in bare and float(number).is_integer())
            tally["padded"] += n * _is_padded(text)
            tally["thousands"] += n * bool(THOUSANDS.fullmatch(text))
        elif names_something(text):
            tally["digits"] += n
        elif found := [(key, w) for key, kind in KINDS.items() if (w := kind.fits(text))]:
            key, ways = found[0]
            kinds[key] += n
            fits[key] = fits.get(key, ways) & ways
            if KINDS[key].beside_numbers:
                inside = re.search(NUMBER, text)
                numbers[text] = (inside and number_of(inside[0])) or 0.0
                tally["points"] += n * ("." in text)
                tally["comma_limits"] += n * ("," in text)
        else:
            tally["diseases"] += n * bool(DISEASE.fullmatch(text))
            tally["amounts"] += n * (amount := bool(AMOUNT.fullmatch(text)))
            tally["keys"] += n * bool(not amount and KEY.fullmatch(text))
            odd[text] = n
    read = [numbers[c] for c in cells if c in numbers]
    kept = {text: n for text, n in counts.items() if text not in tokens}
    return Summary(
        **dict[str, Any](tally),
        tokens=tokens,
        kinds=kinds,
        fits=fits,
        ends=_ends(v for v in numbers.values() if np.isfinite(v)),
        rising=bool(read) and all(a < b for a, b in pairwise(read)),
        odd=odd if len(odd) <= ODD else {},
        spread=float(np.var([*kept.values()]) / np.mean([*kept.values()])) if kept else np.inf,
        together=_together([a < b for a, b in pairwise(cells) if a != b], len(kept), len(cells)),
        lengths=_ends_of({len(text) for text in counts}),
        counts=kept if len(kept) <= KEPT else None,
        distinct=len(kept),
    )


def number_of(text: str) -> float | None:
    """The number that a cell is, with a decimal point or a decimal comma; None if it is none, too
    large for its square, or has too many digits.
    """
    if COMMA.fullmatch(text := ungrouped(text)):
        text = text.replace(",", ".")
    if not is_number(text) or not abs(float(text)) <= EXTREME or names_something(text):
        return None
    return float(text)


# -------------------------------------------------------------------------- columns and the target


@dataclass(frozen=True)
class Link:
    """A column beside the target.

    ``counts`` of a value (None: missing) with a class, None where there are too many values;
    ``ranges`` of the numbers in each class; ``sums`` of 1, x, y, x^2, y^2, x y, where both are
    numbers.
    """

    counts: Mapping[tuple[str | None, str], int] | None = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sums: tuple[float, ...] = (0.0,) * 6

    def told(self) -> float:
        """The share of the rows of the worst told class whose class the column tells; 0 where it
        has too many values, or where the table is too small to say.
        """
        if not self.counts:
            return 0.0
        best: dict[str | None, tuple[int, str]] = {}
        rows: Counter[str] = Counter()
        for (value, name), n in self.counts.items():
            rows[name] += n
            best[value] = max(best.get(value, (0, "")), (n, name))
        right = Counter[str]()
        for n, name in best.values():
            right[name] += n
        few = min(rows.values()) < 5 or sum(rows.values()) < max(30, ROWS * len(best))
        return 0.0 if few or len(rows) < 2 else min(right[name] / n for name, n in rows.items())

    def apart(self) -> bool:
        """Whether the numbers of no class reach into those of another."""
        ends = sorted(self.ranges.values())
        return len(ends) > 1 and all(a[1] < b[0] for a, b in pairwise(ends))

    def correlation(self) -> float:
        """Of the numbers with the target, 0 where it cannot be said."""
        n, x, y, xx, yy, xy = self.sums
        spread = (xx - x * x / n) * (yy - y * y / n) if n > 10 else 0.0
        return 0.0 if spread <= 0 else (xy - x * y / n) / float(np.sqrt(spread))


def link(
    column: NDArray[Any], target: Sequence[str | None], middles: tuple[float, float] | None = None
) -> Link:
    """A column beside the target, as classes, or as numbers if the middles of the column's and the
    target's numbers are given, so that few digits cancel.
    """
    cells = column.tolist()
    if column.dtype.kind == "f":
        cells = [None if c != c else c for c in cells]
    rows = [row for row in zip(cells, target, strict=True) if row[1] is not None]
    if middles is not None:
        x, y = (numbers_of([row[k] for row in rows]) - middles[k] for k in (0, 1))
        both = np.isfinite(x) & np.isfinite(y)
        x, y = x[both], y[both]
        return Link(None, {}, (float(len(x)), *map(float, (x.sum(), y.sum(), x @ x, y @ y, x @ y))))
    distinct = len({c for c, _ in rows})
    many = distinct > 20 and ROWS * distinct > len(rows)  # too many values to tell a class
    counts = Counter[tuple[Any, str]]() if many else Counter(rows)
    ranges: dict[str, tuple[float, float]] = {}
    if many or len(counts) > 20:
        values = numbers_of([c for c, _ in rows])
        names = np.array([t for _, t in rows], dtype=object)
        for name in sorted({*names.tolist()}):
            own = values[(names == name) & np.isfinite(values)]
            if len(own):
                ranges[name] = (float(own.min()), float(own.max()))
    if many or len(counts) > KEPT:
        return Link(None, ranges)
    known = {(None if c is None else str(c), str(t)): n for (c, t), n in counts.items()}
    return Link(known, ranges)


def numbers_of(cells: Sequence[object]) -> Array:
    """Cells as numbers, NaN where they are none."""
    with suppress(TypeError, ValueError):  # text, and dates of Parquet
        return np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    read = [number_of(c) if isinstance(c, str) else c for c in cells]
    return np.array([c if isinstance(c, int | float) else np.nan for c in read], dtype=np.float64)


# ----------------------------------------------------------------------------------------- values


def fold(value: str) -> str:
    """A value in small letters, with single spaces."""
    return " ".join(value.lower().split())  # ß and ss may be two words


def variants(counts: Mapping[str, int], folded: Callable[[str], str] = fold) -> Merge:
    """``{variant: value}`` of values that differ by case and spaces only from a frequent one, or
    that ``folded`` makes the same.
    """
    alike: dict[str, list[str]] = {}
    for value in counts:
        alike.setdefault(folded(value), []).append(value)
    found = {}
    for values in alike.values():
        kept = max(values, key=lambda v: (not is_number(v), counts[v], v))
        found.update({value: kept for value in values if value != kept})
    return found


def spellings(counts: Mapping[str, int]) -> Merge:
    """`variants`, and where all values are answers, also those of one meaning: ``ja`` and ``J`` of
    ``yes``, ``F`` of ``no`` or ``false``. Texts for a missing cell may stand beside them.
    """
    values = {fold(value) for value in counts} - TOKENS
    for answers in ANSWERS:
        of = {text: k for k, texts in enumerate(answers) for text in texts}
        if values <= {*of} and {of[v] for v in values} == {0, 1} and not values <= {"0", "1"}:
            meaning = {value: str(of.get(fold(value), value)) for value in counts}
            return variants(counts, meaning.__getitem__)
    return variants(counts)


def merged(counts: Mapping[str, int], merge: Mapping[str, str]) -> Counter[str]:
    """The counts where some values are taken for others."""
    joined = Counter[str]()
    for value, n in counts.items():
        joined[merge.get(value, value)] += n
    return joined


# What a column is, judged by its name and by the summary of its cells (`bonafed.data.profile`).
#
# The rules, the first that holds:
#
#     empty        no cell has a value
#     copy         the same cells as a column before, at every client
#     constant     one value
#     index        1, 2, 3, ... under no name, or under one that software gives to row numbers
#     person       named as a person or an identifier, or written as identities are (`_identity`),
#                  and its values repeat
#     identifier   the same, and nearly unique; or whole numbers that rise from row to row
#     date, ...    every cell is of a kind of `bonafed.data.reading`, and can be read in one way
#     asked        the same, and two ways fit, or none: two orders of day, month and year
#     code         named as a postcode or a code, written with zeros in front, or a code of ICD-10
#     comma        every cell is a number, and one has a decimal comma; or may be that of thousands
#     number       every cell is a number
#     mixed        most cells are numbers or dates, and some are not; or numbers with units
#     identifier   nearly unique text
#     category     text of few values
#     text         text of many

MOST = 100  # categories that a column may have
RARE = 10  # rows below which a category is pooled with others
LARGE = 200  # rows from which that holds
ENOUGH = 30  # rows below which nothing is said to be unique
UNIQUE = 0.95  # share of values among the cells from which they are nearly unique
AMOUNTS = 10  # different numbers with units up to which they are categories, as doses are
MAINLY = 0.8  # share of cells that make a column of numbers or dates in spite of the others

PEOPLE = frozenset({"patient", "person", "subject", "participant", "proband", "customer"})
PEOPLE |= {"member", "user", "employee", "student", "client", "resident", "mrn", "pid", "kunde"}
PEOPLE |= {"household", "pat", "subj", "usubj", "patienten", "kunden", "versicherten", "nhs"}
MARKS = frozenset({"id", "ids", "uuid", "guid", "nr", "no", "num", "number", "key", "identifier"})
ALONE = frozenset({"mrn", "ssn", "uuid", "guid", "pid", "iban", "identifier", "email", "phone"})
CODES = frozenset({"zip", "zipcode", "postcode", "postal", "plz", "postleitzahl", "icd", "icd10"})
CODES |= {"icd9", "code", "codes", "atc", "ops", "cpt", "drg", "sic", "naics"}
OUTCOMES = frozenset({"target", "label", "outcome", "response", "death", "died", "dead", "relapse"})
OUTCOMES |= {"mortality", "survived", "survival", "deceased", "readmitted", "readmission"}
DATED = frozenset({"date", "datum", "day", "year", "admitted", "born", "birth"})
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
    if len(own) == 1 and re.sub("(id|nr|nummer)$", "", own[0]) in PEOPLE:
        return True
    rest = [word for word in own if word not in MARKS]
    return len(rest) == 1 and rest[0] in PEOPLE


def names_an_identifier(name: str) -> bool:
    """Whether the name says that the column tells rows or people apart."""
    own, marks = words(name), (MARKS - {"number", "num"}) | ALONE
    return bool(own) and (own[-1] in marks or own[-1].endswith("nummer"))


def kind_of(name: str, column: Summary, same: str | None = None, order: str | None = None) -> Kind:
    """The kind of a column that is neither the target nor the client.

    ``same`` is a column before it with the same cells, ``order`` the way to read its cells that the
    user names.
    """
    return next(chain(_by_name(name, column, same), _by_cells(name, column, order)))


def _by_name(name: str, column: Summary, same: str | None) -> Iterator[Kind]:
    """The kinds that fit by the name, or that no feature is made of; the first is right."""
    if not column.present:
        yield Kind("empty", "no cell has a value")
    if same is not None:
        yield Kind("copy", f"the same cells as {same!r}")
    if column.distinct == 1:
        yield Kind("constant", "one value in all rows")
    values, person = _values(column), names_a_person(name)
    rising = column.whole == column.present and column.rising
    if rising and INDICES.fullmatch(name.strip()):
        yield Kind("index", "row numbers" + " under no name" * (not name.strip()))
    if column.digits and column.digits + column.whole + column.keys == column.present:
        rule = "whole numbers with more digits than amounts have, as identities are written"
        yield Kind("identifier" if _unique(column) else "person", rule, values)
    if person or names_an_identifier(name):
        if _unique(column) and (column.present >= ENOUGH or person):
            yield Kind("identifier", "so named, and nearly unique", values)
        many = min(MOST, max(20, 0.05 * column.present))
        if (person and column.distinct > 5) or column.distinct > many:
            yield Kind("person", "so named, and its values repeat", values)
        yield Kind("code", "named as a code, of few values", values)
    if rising and column.present >= ENOUGH:
        yield Kind("identifier", "whole numbers that rise from row to row", values)


def _by_cells(name: str, column: Summary, way: str | None) -> Iterator[Kind]:
    """The kinds that fit by the cells; the first is right."""
    numbers, present, values = column.numbers + column.commas, column.present, _values(column)
    for key, n in column.kinds.items():
        kind, ways = KINDS[key], column.fits[key]
        if n + numbers * kind.beside_numbers < present:
            continue
        if len(ways) == 1 or way in ways:
            yield Kind(kind.name, kind.why, f"{n:,} {kind.shown}" * kind.beside_numbers, key)
        several = " or ".join(sorted(ways))
        rule = f"{key} that may be {several}" if several else f"{key} of which no one way fits"
        yield Kind("asked", rule, key=key)
    if column.diseases == present and column.distinct > 1:
        yield Kind("code", "codes as of ICD-10: categories", values)
    named = [word for word in words(name) if word in CODES]
    if named and column.commas == 0:
        yield Kind("code", f"named as a code ({named[0]}): categories, no numbers", values)
    if rule := _identity(name, column):
        yield Kind("identifier" if _unique(column) else "person", rule, values)
    one_length = column.lengths[0] == column.lengths[1]
    if column.numbers == present and column.padded > (0 if one_length else 1):
        yield Kind("code", "zeros in front, as codes have: categories", values)
    if numbers == present:
        yield Kind("comma", "a decimal comma") if column.commas else Kind("number")
    among = numbers + column.beside_numbers
    others = [(key, n) for key, n in column.kinds.items() if not KINDS[key].beside_numbers]
    for what, n in (("numbers", among), *others):
        if n >= MAINLY * present and column.distinct > 20:
            rule = f"mostly {what}, and some cells are not"
            yield Kind("mixed", rule, f"{present - n:,} of {present:,}")
    mainly = among + column.amounts >= MAINLY * present
    if column.amounts and mainly and column.distinct > AMOUNTS:
        rule = "numbers with units, percent signs or signs after the thousands, which are text here"
        yield Kind("mixed", rule, f"{column.amounts:,} of {present:,}")
    yield _of_text(column)


def _identity(name: str, column: Summary) -> str:
    """Why a column of whole numbers, or of digits and signs, tells people or rows apart; empty
    where it does not seem to.
    """
    n, each = column.present, column.present / max(column.distinct, 1)
    whole, low, high = column.whole == n, column.low, column.high
    dates = (low >= 1900 and high <= 2100) or (low >= 19000101 and high <= 21001231)
    written = column.keys + column.whole == n > column.whole
    if column.distinct <= 20 or each >= RARE or n < ENOUGH or not (whole or written):
        return ""
    if written:
        return "digits and signs, as identities are written"
    if dates or DATED & {*words(name)}:
        return ""
    rounded = EXACT < low <= high < 10 * low  # as float64 keeps 19 digits
    if column.padded or rounded or column.lengths[0] == column.lengths[1] >= 8:
        return "many digits or zeros in front, as identities are written"
    # of n amounts about n^2 / (2 range) are equal to one before
    if (equal := n * n / (2 * (high - low + 1))) > 10 and n - column.distinct < equal / 4:
        return "whole numbers that repeat less often than amounts would"
    even = each >= 2 and column.spread < 1 / 8
    if even or (each > 1.2 and column.together):
        return "whole numbers whose rows are equally many or stand together, as those of persons do"
    return ""


def _of_text(column: Summary) -> Kind:
    values, categories = _values(column), frequent(column)
    if _unique(column) and column.present >= ENOUGH:
        return Kind("identifier", "nearly unique text", values)
    if not column.counts or categories is None or len(categories) > MOST:
        return Kind("text", f"text of more than {MOST} values", values)
    largest = max(merged(column.counts, spellings(column.counts)).values())
    few = column.distinct > 20 and column.present < 5 * column.distinct
    if (column.present >= LARGE or few) and largest < RARE:
        return Kind("text", f"text of which no value stands in {RARE} rows", values)
    return Kind("category", "", f"{column.distinct:,} values")


def _values(column: Summary) -> str:
    return f"{column.distinct:,} values in {column.present:,} cells"


def _unique(column: Summary) -> bool:
    return column.distinct >= UNIQUE * column.present


def frequent(column: Summary) -> list[str] | None:
    """The categories of a column of text that stay when those of fewer than `RARE` rows are pooled,
    if there are too many otherwise; None where even then it is better left out.
    """
    if column.counts is None:
        return None
    counts = merged(column.counts, spellings(column.counts))
    often = counts if len(counts) <= MOST else {v: n for v, n in counts.items() if n >= RARE}
    enough = often is counts or sum(often.values()) >= 0.5 * column.present
    return [*often] if enough else None
