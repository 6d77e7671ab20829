"""What one client writes otherwise than the others: units, codes, numbers for missing cells, ids of
persons, and names of clients.

Of every column the clients are compared pair by pair. Those that agree with one of them and have
the most rows are the reference; each of the others is held against it. Medians and median absolute
deviations are compared, of logarithms where a unit is a factor, so that tails do not matter:

    m_i, s_i = median, 1.4826 MAD of ln x at client i,    m, s of the reference, f a known factor
    another unit:    |m_i - m| > FAR s    and    |m_i - m - ln f| <= NEAR s

Clients that differ honestly have means up to about one standard deviation apart; `FAR` is above
that, and what stands here is a question to a person, who knows more.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.data.profile import NEGATIVE, NO, POSITIVE, YES, fold
from bonafed.text import short

FAR = 2.0  # robust standard deviations between clients from which a unit is asked about
STRANGE = 5.0  # and from which also where no known unit explains it
NEAR = 1.0  # how far from the reference a column may stay after the conversion
MIXED, MANY = 0.05, 5  # share and number of a client's rows that may be in another unit
FEW = 8  # rows of a client below which its median says nothing
CODES = 10  # values of a column of codes
OFTEN, SOME = 0.1, 0.03  # shares of the rows that have a code which the others lack
NAME = 24  # characters of a name in a sentence
TIMES = 3  # how often a number stands that is there by no chance
# units of one thing, the larger numbers first: factor, offset, names
UNITS = (
    (1.609, 0.0, "km", "miles"),
    (1.611, 0.0, "g/dl", "mmol/l of haemoglobin"),
    (2.205, 0.0, "pounds", "kg"),
    (2.54, 0.0, "cm", "inches"),
    (2.8, 0.0, "mg/dl", "mmol/l of urea nitrogen"),
    (4.0, 0.0, "mg/dl", "mmol/l of calcium"),
    (4.184, 0.0, "kJ", "kcal"),
    (7.501, 0.0, "mmHg", "kPa"),
    (10.0, 0.0, "mm", "cm, or g/l and g/dl"),
    (12.0, 0.0, "months", "years"),
    (17.1, 0.0, "µmol/l", "mg/dl of bilirubin"),
    (18.02, 0.0, "mg/dl", "mmol/l of glucose"),
    (30.48, 0.0, "cm", "feet"),
    (38.67, 0.0, "mg/dl", "mmol/l of cholesterol"),
    (60.0, 0.0, "minutes", "hours"),
    (88.4, 0.0, "µmol/l", "mg/dl of creatinine"),
    (100.0, 0.0, "cm", "m, or percent and shares"),
    (365.25, 0.0, "days", "years"),
    (1000.0, 0.0, "g", "kg, or other thousandths"),
    (1.8, 32.0, "°F", "°C"),
    (1.0, 273.15, "K", "°C"),
)
SEXES = (
    ("female", "f", "w", "woman", "women", "frau", "weiblich", "femme", "mujer"),
    ("male", "m", "man", "men", "mann", "männlich", "homme", "hombre"),
)
# words of one meaning, side by side: the first of two and the second
WORDS = ((*YES, *POSITIVE), (*NO, *NEGATIVE)), SEXES
# numbers that stand for a missing cell, as people write them
NUMBER = re.compile(r"-?\d+(\.\d+)?")
NINES = re.compile(r"-1|-9{1,6}|-?(9{2,6}|8{3,6}|7{3,6})(\.9)?")


OF_COLUMNS = ("units", "codes", "sentinel")
KINDS = ("labels", *OF_COLUMNS, "persons", "names")


class Found(NamedTuple):
    """What differs at a client: of which kind, in which column, why that is thought, and by value
    what to write instead.
    """

    kind: str
    column: str
    client: str
    why: str
    instead: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{short(self.column, NAME)} at {short(self.client, NAME)} ({self.why})"


# ------------------------------------------------------------------------------ columns of numbers


def of_numbers(name: str, parts: Mapping[str, Array]) -> list[Found]:
    """What differs in a column of numbers by client; NaN is missing."""
    kept = {client: values[np.isfinite(values)] for client, values in parts.items()}
    kept = {client: values for client, values in kept.items() if len(values)}
    if all(len(np.unique(values)) <= CODES for values in kept.values()):
        counts = {c: Counter(f"{v:.9g}" for v in values.tolist()) for c, values in kept.items()}
        return of_codes(name, counts)
    odd = [*_sentinels(name, kept)]
    for one in odd:
        kept[one.client] = kept[one.client][kept[one.client] != float(next(iter(one.instead)))]
    return [*odd, *_units(name, {c: values for c, values in kept.items() if len(values) >= FEW})]


def _sentinels(name: str, parts: Mapping[str, Array]) -> Iterator[Found]:
    """Numbers beyond all others that look as if they stood for a missing cell."""
    ends = {f"{end:.9g}" for values in parts.values() for end in (values.min(), values.max())}
    for text in sorted(end for end in ends if NINES.fullmatch(end) or end == "0"):
        number = float(text)
        times = {c: int((values == number).sum()) for c, values in parts.items()}
        rest = np.concatenate([values[values != number] for values in parts.values()])
        if len(rest) < FEW or rest.min() < number < rest.max():
            continue
        if text == "0":  # it is a number, too: it stands for nothing where others have none
            without = sum(n == 0 and len(parts[c]) >= FEW for c, n in times.items())
            apart = np.abs(rest).min() > _spread(rest) and 2 * without >= max(2, len(times) - 1)
            apart = apart and max(times.values()) >= TIMES
        else:
            apart = _far(number, sum(times.values()), rest) or any(
                _piled(number, times[c], values[values != number], rest)
                for c, values in parts.items()
            )
        for client, n in times.items():
            if apart and n:
                of = f"{text} in {n:,} of {len(parts[client]):,} rows: does it mean missing?"
                yield Found("sentinel", name, client, of, {text: ""})


def _far(number: float, times: int, rest: Array) -> bool:
    """Whether a number is farther from the rest than a tail reaches."""
    gap, width = float(np.abs(rest - number).min()), float(np.ptp(rest))
    if abs(number) < 100 and times < TIMES and not number < -1 < 0 <= rest.min():
        return False
    return gap > max(3 * _spread(rest), width / 2) or (
        number < -1 and rest.min() >= 0 < gap > width / 5
    )


def _piled(number: float, times: int, own: Array, rest: Array) -> bool:
    """Whether a number stands ``times`` at a client, where none near it stands nearly as often, or
    none of any client is near.
    """
    spread, gap = _spread(rest), float(np.abs(rest - number).min())
    near = np.unique(rest[np.abs(rest - number) <= gap + spread / 2])
    step = float(np.median(np.diff(near))) if len(near) > 1 else spread / 4
    counts = np.unique(own[np.abs(own - number) <= gap + spread / 2], return_counts=True)[1]
    alone = gap > max(spread / 4, 3 * step)
    return times >= TIMES and (alone or times >= 4 * counts.max(initial=1))


def _spread(values: Array) -> float:
    """The standard deviation, from the median absolute deviation or, where most values are one,
    from the quartiles of the others.
    """
    return 1.4826 * float(np.median(np.abs(values - np.median(values)))) or float(values.std())


class _Scale(NamedTuple):
    """Where the numbers of a client lie, in logarithms: median and robust standard deviation."""

    middle: float
    spread: float

    def far(self, other: "_Scale", most: float = FAR) -> bool:
        """Whether another client is farther away than clients that measure alike."""
        return abs(self.middle - other.middle) > most * max(self.spread, other.spread)


def _units(name: str, parts: Mapping[str, Array]) -> Iterator[Found]:
    """The clients, or some of their rows, whose numbers are those of the others in another unit;
    columns of positive numbers only.
    """
    if len(parts) < 2 or any((values > 0).mean() < 0.9 for values in parts.values()):
        return
    logs = {client: np.log(values[values > 0]) for client, values in parts.items()}
    scales = {c: _Scale(float(np.median(v)), _spread(v)) for c, v in logs.items()}
    rows = {client: len(values) for client, values in logs.items()}
    alike = _reference(rows, lambda a, b: not scales[a].far(scales[b]))
    m, s = (float(np.median([scales[c][k] for c in alike])) for k in (0, 1))
    for client, values in logs.items():
        odd = np.ones(len(values), bool)
        if client in alike:  # some of its rows may be in another unit
            odd = np.abs(values - m) > STRANGE * s
            gap = (
                np.abs(values[odd][:, None] - values[~odd]).min(initial=np.inf) if odd.any() else 0
            )
            if odd.sum() < max(MANY, MIXED * len(odd)) or gap < FAR * s or not s:
                continue
        unit = _unit(name, np.exp(values[odd]), m, s)
        times = np.exp(np.median(values[odd]) - m)
        of = f"{times:.3g} times the others'" + f" in {odd.sum():,} rows" * (client in alike)
        if unit:
            yield Found("units", name, client, f"{of}: {unit}?")
        elif client not in alike and scales[client].far(_Scale(m, s), STRANGE):
            yield Found("units", name, client, f"{of}: another unit, or another thing?")


def _unit(name: str, values: Array, m: float, s: float) -> str:
    """The unit that explains why values are not like the reference; empty without one. One of what
    the column is named after comes first, one of another thing last.
    """
    found = {}
    for factor, offset, large, small in UNITS:
        for back, said in (
            (values * factor + offset, f"{small} for {large}"),
            ((values - offset) / factor, f"{large} for {small}"),
        ):
            if (back > 0).all():
                logs = np.log(back)
                away, spread = abs(float(np.median(logs)) - m), _spread(logs)
                if away <= NEAR * s and spread < 2.5 * s:
                    named = said.partition(" of ")[2][:5]
                    found[named not in name.casefold(), not named, away] = said
    return found[min(found)] if found else ""


def _reference(rows: Mapping[str, int], alike: Callable[[str, str], bool]) -> list[str]:
    """The clients that are like one of them, which has the most rows beside it."""
    groups = [[other for other in rows if other == one or alike(one, other)] for one in rows]
    return max(groups, key=lambda group: sum(rows[client] for client in group))


# -------------------------------------------------------------------------------- columns of codes


def of_codes(name: str, parts: Mapping[str, Mapping[str, int]]) -> list[Found]:
    """What differs in a column of few values, by client counted as text."""
    parts = {client: dict(counts) for client, counts in parts.items() if counts}
    found = [*_odd_codes(name, parts)]
    for one in found:
        parts[one.client].pop(next(iter(one.instead)))
    parts = {client: counts for client, counts in parts.items() if sum(counts.values()) >= FEW}
    rows = {client: sum(counts.values()) for client, counts in parts.items()}
    if len(parts) < 2 or all(len(counts) == 1 for counts in parts.values()):
        return found  # it stands for the client
    alike = _reference(rows, lambda a, b: not _recoded(parts[a], parts[b]))
    if len(alike) < min(2, len(parts) - 1) or 3 * sum(rows[c] for c in alike) < sum(rows.values()):
        return found  # every client has its own, as of wards
    usual = Counter[str]()
    for client in alike:
        usual.update(parts[client])
    for client in (c for c in parts if c not in alike):
        if _recoded(parts[client], usual) and _is_code(parts[client], usual):
            why = f"{_listed(parts[client])} where the others have {_listed(usual)}: the same?"
            merge = {} if {*parts[client]} & {*usual} else _meaning(parts[client], usual)
            found.append(Found("codes", name, client, why, merge))
    return found


def _odd_codes(name: str, parts: Mapping[str, Mapping[str, int]]) -> Iterator[Found]:
    """Codes such as 9 beside 1 and 2."""
    every = {value for counts in parts.values() for value in counts}
    if not all(map(NUMBER.fullmatch, every)):
        return
    for value in sorted(v for v in every if re.fullmatch(r"-?9+|-?8{2,}|-?7{2,}", v)):
        rest = [float(other) for other in every if other != value]
        if len(rest) > 1 and min(rest) >= 0 and max(rest) <= 6 and abs(float(value)) > 7:
            for client in (client for client in parts if value in parts[client]):
                n, of = parts[client][value], sum(parts[client].values())
                if n < TIMES:
                    continue
                why = f"{value} in {n:,} of {of:,} rows: does it mean missing?"
                yield Found("sentinel", name, client, why, {value: ""})


def _recoded(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether each of two clients has values that the other one lacks, and one often has them."""
    shares = [
        sum(n for v, n in a.items() if v not in b) / sum(a.values())
        for a, b in ((one, other), (other, one))
    ]
    return min(shares) >= SOME and max(shares) >= OFTEN


def _is_code(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether other values may be another code of the same: numbers for numbers or for words, and
    two words for two others, or known ones. Other words may be other things.
    """
    own, usual = ({v for v, n in a.items() if n >= SOME * sum(a.values())} for a in (one, other))
    if max(len(own), len(usual)) > CODES:
        return False
    numbers = [{v for v in values if NUMBER.fullmatch(v)} for values in (own, usual)]
    if numbers == [own, usual]:
        a, b = (sorted(map(float, values)) for values in numbers)
        moved = len(b) <= 6 and any({v + by for v in a} <= {*b} for by in (-1.0, 1.0))
        alike = len(a) == len(b) and (len(b) == 2 or not own & usual)
        return len(b) > 1 and (alike or (moved and len(a) >= len(b) - 1))
    two = len(own) == len(usual) == 2 and not own & usual
    return any(numbers) != all(numbers) or two or len(_known(own, usual)) > 1


def _known(own: Collection[str], usual: Collection[str]) -> dict[str, str]:
    """The usual value of own ones, by words of one meaning."""
    for words in WORDS:
        of = {word: k for k, known in enumerate(words) for word in known}
        by = {of[fold(v)]: v for v in usual if fold(v) in of}
        found = {v: by[of[fold(v)]] for v in own if of.get(fold(v)) in by and v not in usual}
        if len({*found.values()}) > 1:
            return found
    return {}


def _meaning(own: Mapping[str, int], usual: Mapping[str, int]) -> dict[str, str]:
    """The usual value of each own one, where words say so; else in order, a guess that is asked."""
    often = sorted(sorted(usual, key=usual.__getitem__)[-len(own) :])
    guess = dict(zip(sorted(own), often, strict=True)) if len(often) == len(own) else {}
    return _known(own, usual) or guess


def _listed(values: Collection[str]) -> str:
    """The first values, in order."""
    return ", ".join(sorted(values)[:3]) + ", ..." * (len(values) > 3)


# ------------------------------------------------------------------------- persons, and the clients


def of_persons(name: str, parts: Mapping[str, Collection[str]]) -> list[Found]:
    """Persons whose id stands at several clients, unless each client counts its own."""
    ids = {client: {*values} for client, values in parts.items()}
    at = Counter(one for own in ids.values() for one in own)
    shared = {one for one, n in at.items() if n > 1}
    numbers = [int(one) for one in at if one.isdecimal()]
    if len(numbers) == len(at):  # how many would be alike by chance
        width, sizes = max(numbers) - min(numbers) + 1, [*map(len, ids.values())]
        chance = (sum(sizes) ** 2 - sum(n * n for n in sizes)) / 2 / width
        if len(shared) <= 3 * chance + 3 * bool(chance > 0.05):
            return []
    if 2 * len(shared) > min(map(len, ids.values()), default=0):
        return []
    found = {client: len(own & shared) for client, own in ids.items()}
    why = "{:,} of its {:,} persons are at another client, too"
    return [Found("persons", name, c, why.format(n, len(ids[c]))) for c, n in found.items() if n]


def of_names(name: str, clients: Collection[str]) -> list[Found]:
    """Clients whose names differ by signs, accents, capitals or doubled letters only."""
    alike: dict[str, list[str]] = {}
    for client in clients:
        alike.setdefault(_plain(client), []).append(client)
    return [
        Found("names", name, client, f"the same as {first}?", {client: first})
        for first, *others in alike.values()
        for client in others
    ]


def _plain(name: str) -> str:
    """A name by its letters and digits, as somebody hears it."""
    text = unicodedata.normalize("NFKD", name.replace("ß", "ss").casefold())
    text = "".join(c for c in text if not unicodedata.category(c).startswith(("M", "C")))
    text = re.sub(r"\b(saint|sankt|st)\b", "st", text)
    text = re.sub(r"([aou])e", r"\1", text)
    text = re.sub(r"(?<=[^\W\d])[\s._,'’`´\"-]+(?=\w)|(?<=\d)[\s._-]+(?=[^\W\d])", "", text)
    text = re.sub(r"(?<!\d)0+(?=\d)", "", text.strip(" .\"'"))
    return re.sub(r"(?<=[^\W\d]{2})([^\W\d])\1(?=[^\W\d])", r"\1", text)
