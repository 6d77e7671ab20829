"""What one client writes otherwise than the others: units, codes, numbers for missing cells, ids of
persons, and names of clients.

The clients that are like one of them, and have the most rows, are the reference; each of the others
is held against it. Numbers are compared by median and median absolute deviation (MAD) of their
logarithms, in which a unit is a shift and a tail does not matter:

    m_i, s_i = median, 1.4826 MAD of ln x at client i,    m, s of the reference,    f a known factor
    another unit:    |m_i - m| > FAR max(s_i, s)    and    |m_i - m - ln f| <= s

Clients that honestly differ have means up to about one standard deviation apart, which is below
`FAR`. What is found is a question to a person, who knows more.
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.data.profile import fold
from bonafed.text import short

FAR = 2.0  # robust standard deviations between clients from which a unit is asked about
NEAR = 1.1  # a ratio of medians below which the medians say more
STRANGE = 5.0  # and from which also where no known unit explains it
MIXED, MANY = 0.05, 5  # share, and values, of a client's rows that may be in another unit
FEW = 8  # rows of a client below which nothing is said of it
CODES = 10  # values of a column of codes
OFTEN, SOME = 0.05, 0.02  # shares of the rows that have a code which the others lack
TIMES = 3  # how often a number stands that is there by no chance
LARGEST = 20  # clients that may be the centre of the reference
NAME = 24  # characters of a name in a sentence
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# numbers that stand for a missing cell, as people write them; the small ones are codes as well
NINES = re.compile(r"-?(9{1,6}|8{3,6}|7{3,6})(\.9)?|-1|0")
SMALL = ("0", "-1")
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
        column = f"{short(self.column, NAME)} at " * bool(self.column)
        return f"{column}{short(self.client, NAME)} ({self.why})"


@cache
def _known() -> dict[str, Any]:
    """Units, and words of one meaning."""
    return tomllib.loads((files("bonafed.data") / "units.toml").read_text("utf-8"))


def is_absence(value: str) -> bool:
    """Whether one of two outcomes says that what the other one is about is absent: ``no``, ``No
    (0)``, ``not sick``, ``healthy``.
    """
    known, text = _known(), re.sub(r"(?<=.)\s*\(.*\)$", "", fold(value))
    return text in known["absent"] or text.startswith(tuple(known["absent_begins"]))


def _reference(rows: Sequence[int], alike: Callable[[int, int], bool]) -> NDArray[np.bool_]:
    """Which clients are like one of the largest, that which has the most rows beside it."""
    centres = np.argsort([-n for n in rows], kind="stable")[:LARGEST]
    groups = np.array([[a == b or alike(a, b) for b in range(len(rows))] for a in centres])
    return groups[np.argmax(groups @ np.array(rows))]


# ------------------------------------------------------------------------------ columns of numbers


def of_numbers(name: str, parts: Mapping[str, Array]) -> list[Found]:
    """What differs in a column of numbers by client; NaN is missing."""
    kept = {client: values[np.isfinite(values)] for client, values in parts.items()}
    kept = {client: values for client, values in kept.items() if len(values)}
    counts = {}
    for client, values in kept.items():
        unique, times = np.unique(values, return_counts=True)
        counts[client] = {f"{v:.9g}": n for v, n in zip(unique, times.tolist(), strict=True)}
        if len(unique) > CODES:
            break
    else:
        return of_codes(name, counts)
    odd = [*_sentinels(name, kept, few=False)]
    for one in odd:
        kept[one.client] = kept[one.client][kept[one.client] != float(*one.instead)]
    same = {c: v for c, v in kept.items() if len(v) >= FEW and v.min() == v.max()}
    for client, values in same.items() if 2 * len(same) < len(kept) else ():
        of = f"{values[0]:.9g} in all of its {len(values):,} rows: does it mean missing?"
        odd.append(Found("sentinel", name, client, of))
        del kept[client]
    return [*odd, *_units(name, {c: values for c, values in kept.items() if len(values) >= FEW})]


def _sentinels(name: str, parts: Mapping[str, Array], few: bool) -> Iterator[Found]:
    """Numbers beyond all others that look as if they stood for a missing cell; ``few``: the column
    has few values.
    """
    ends = {f"{end:.9g}" for values in parts.values() for end in (values.min(), values.max())}
    for text in sorted(filter(NINES.fullmatch, ends)):
        number = float(text)
        times = [int((values == number).sum()) for values in parts.values()]
        rest = np.concatenate([values[values != number] for values in parts.values()])
        if len(rest) < FEW or rest.min() < number < rest.max() or (few and text in SMALL):
            continue
        if text == "0":  # a number as well: it stands for nothing where the others have none
            lack = sum(n == 0 and len(v) >= FEW for n, v in zip(times, parts.values(), strict=True))
            apart = np.abs(rest).min() > _spread(rest) and 2 * lack >= max(2, len(parts) - 1)
            apart = apart and max(times) >= TIMES
        else:
            apart = _far(number, sum(times), rest) or any(
                _piled(number, n, values[values != number], rest)
                for n, values in zip(times, parts.values(), strict=True)
            )
        for client, n in zip(parts, times, strict=True):
            if apart and n:
                of = f"{text} in {n:,} of {len(parts[client]):,} rows: does it mean missing?"
                yield Found("sentinel", name, client, of, {text: ""})


def _far(number: float, times: int, rest: Array) -> bool:
    """Whether a number is farther from the rest than a tail reaches."""
    gap, width = float(np.abs(rest - number).min()), float(np.ptp(rest))
    below = number < -1 and rest.min() >= 0
    if abs(number) < 100 and times < TIMES and not below:
        return False
    return gap > max(3 * _spread(rest), width / 2) or (below and gap > width / 5)


def _piled(number: float, times: int, own: Array, rest: Array) -> bool:
    """Whether a number stands ``times`` at a client, where none near it stands nearly as often, or
    none of any client is near.
    """
    spread, gap = _spread(rest), float(np.abs(rest - number).min())
    reach = gap + spread / 2
    near, counts = np.unique(rest[np.abs(rest - number) <= reach], return_counts=True)
    here = np.unique(own[np.abs(own - number) <= reach], return_counts=True)[1].max(initial=1)
    usual = max(here, counts.max() * (len(own) + times) / len(rest))
    step = float(np.median(np.diff(near))) if len(near) > 1 else spread / 4
    if times < TIMES or (0 < number < 10 and gap < 3):  # 9 may be the top of a scale
        return False
    return gap > max(spread / 4, 3 * step) or times >= 4 * usual


def _spread(values: Array) -> float:
    """The standard deviation, by the median absolute deviation unless most values are one."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values)))) or float(values.std())


def _units(name: str, parts: Mapping[str, Array]) -> Iterator[Found]:
    """The clients, or some of their rows, whose numbers are those of the others in another unit;
    columns of positive numbers only.
    """
    if len(parts) < 2 or any((values > 0).mean() < 0.9 for values in parts.values()):
        return
    logs = [np.log(values[values > 0]) for values in parts.values()]
    middle = np.array([np.median(values) for values in logs])
    spread = np.array([_spread(values) for values in logs])

    def near(a: int, b: int) -> bool:
        return bool(abs(middle[a] - middle[b]) <= FAR * max(spread[a], spread[b]))

    alike = _reference([*map(len, logs)], near)
    m, s = np.median(middle[alike]), np.median(spread[alike])
    for i, (client, values) in enumerate(zip(parts, logs, strict=True)):
        odd, away = np.ones(len(values), bool), (values - m) * np.sign(values.mean() - m)
        if alike[i]:  # some of its rows may be in another unit, with none between
            odd = away > STRANGE * s
            several = len(np.unique(values[odd])) >= MANY  # few values are steps of a scale
            if not several or odd.sum() < MIXED * len(odd) or not s or odd.all():
                continue
            if away[odd].min() - away[~odd].max() < FAR * s:
                continue
        own, usual = np.exp([np.median(values[odd]), m])
        of = f"{own / usual:.3g} times the others'"
        if max(own, usual) < NEAR * min(own, usual):  # "1 times" says nothing
            of = f"median {own:.9g} where the others have {usual:.9g}"
        of += f" in {odd.sum():,} rows" * bool(alike[i])
        if unit := _unit(name, np.exp(values[odd]), m, s):
            yield Found("units", name, client, f"{of}: {unit}?")
        elif not alike[i] and abs(middle[i] - m) > STRANGE * max(s, spread[i]):
            yield Found("units", name, client, f"{of}: another unit, or another thing?")


def _unit(name: str, values: Array, m: float, s: float) -> str:
    """The unit that explains why values are not like the reference; empty without one. One of what
    the column is named after comes first, one of another thing last.
    """
    if values.min() >= 1900 and values.max() <= 2100 and np.exp(m) < 120:
        return "years of birth for ages"
    found = {}
    for factor, offset, large, small, *spelt in _known()["units"]:
        named = any(stem in name.casefold() for stem in spelt)
        ways = {f"{small} for {large}": values * factor + offset}
        ways[f"{large} for {small}"] = (values - offset) / factor
        for said, back in ways.items():
            logs = np.log(back[back > 0])
            if len(logs) == len(back) and _spread(logs) < 2.5 * s:
                away, other = abs(float(np.median(logs)) - m), bool(spelt) and not named
                found |= {(other, not spelt, away): said} if away <= s else {}
    return found[min(found)] if found else ""


# -------------------------------------------------------------------------------- columns of codes


def of_codes(name: str, parts: Mapping[str, Mapping[str, int]]) -> list[Found]:
    """What differs in a column of few values, by client counted as text."""
    parts, found = {client: dict(counts) for client, counts in parts.items() if counts}, []
    if parts and all(NUMBER.fullmatch(value) for counts in parts.values() for value in counts):
        numbers = {c: np.repeat([*map(float, n)], [*n.values()]) for c, n in parts.items()}
        found = [*_sentinels(name, numbers, few=True)]
    for one in found:
        parts[one.client].pop(*one.instead)
    parts = {client: counts for client, counts in parts.items() if sum(counts.values()) >= FEW}
    each, rows = [*parts.values()], [sum(counts.values()) for counts in parts.values()]
    if len(each) < 2 or all(len(counts) == 1 for counts in each):
        return found  # it stands for the client
    alike = _reference(rows, lambda a, b: not _recoded(each[a], each[b]))
    if alike.sum() < min(2, len(each) - 1) or 3 * alike @ rows < sum(rows):
        return found  # every client has its own, as of wards
    usual = Counter[str]()
    for k in np.flatnonzero(alike):
        usual.update(each[k])
    for k, client in enumerate(parts):
        own = each[k]
        if not alike[k] and _recoded(own, usual) and _is_code(own, usual):
            guess, instead = _meaning(own, usual), dict[str, str]()
            if not any(v in usual for v in guess):  # what is written instead holds at every client
                instead, guess = guess, {}
            ways = " and ".join(f"{v} for {other}" for v, other in [*guess.items()][:2])
            why = f"{_listed(own)} where the others have {_listed(usual)}: another code"
            found.append(Found("codes", name, client, f"{why}{ways and f', {ways}'}?", instead))
    return found


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
        moved = len(b) <= 5 and any({v + by for v in a} <= {*b} for by in (-1.0, 1.0))
        alike = len(a) == len(b) and (len(b) == 2 or not own & usual)
        return len(b) > 1 and (alike or (moved and len(a) >= len(b) - 1))
    two = len(own) == len(usual) == 2 and not own & usual
    return any(numbers) != all(numbers) or two or bool(_of_words(own, usual))


def _of_words(own: Collection[str], usual: Collection[str]) -> dict[str, str]:
    """The usual value of own ones, by words of one meaning."""
    for words in _known()["words"]:
        of = {word: k for k, known in enumerate(words) for word in known}
        by = {of[fold(v)]: v for v in usual if fold(v) in of}
        found = {v: v if v in usual else by[of[fold(v)]] for v in own if of.get(fold(v)) in by}
        if len({*found.values()}) > 1:
            return {value: other for value, other in found.items() if value != other}
    return {}


def _meaning(own: Mapping[str, int], usual: Mapping[str, int]) -> dict[str, str]:
    """The usual value of each own one, where words say so; of numbers for numbers in order, a guess
    that is asked. Which word a number stands for, only its client knows.
    """
    k, guess = min(len(own), len(usual)), dict[str, str]()
    if all(map(NUMBER.fullmatch, (*own, *usual))) and abs(len(own) - len(usual)) <= 1 < k:
        often = (sorted(sorted(of, key=of.__getitem__)[-k:], key=float) for of in (own, usual))
        guess = {v: other for v, other in zip(*often, strict=True) if v != other}
    return _of_words(own, usual) or guess


def _listed(values: Collection[str]) -> str:
    """The first values, in order."""
    return ", ".join(sorted(values)[:3]) + ", ..." * (len(values) > 3)


# ------------------------------------------------------------------------- persons, and the clients


def of_persons(
    name: str, parts: Mapping[str, Sequence[str]], rows: Mapping[str, NDArray[Any]] | None = None
) -> list[Found]:
    """Persons whose id stands at several clients, unless each client counts its own; ``rows`` has
    the other cells of each row, which are alike where the persons are.
    """
    ids = {client: {*values} for client, values in parts.items()}
    at = Counter(one for own in ids.values() for one in own)
    shared = {one for one, n in at.items() if n > 1}
    digits = [int(number) for one in at if (number := re.sub(r"\D", "", one)[:4000])]
    sizes, chance = [*map(len, ids.values())], 0.0
    if digits:  # how many would be alike if each client drew its numbers
        chance = (sum(sizes) ** 2 - sum(n * n for n in sizes)) / 2 / (max(digits) - min(digits) + 1)
    register = chance > 20 and 4 * len(shared) < chance  # which gives each number once
    drawn = len(shared) <= chance + 3 * chance**0.5 + (chance > 0.01)
    likely = digits and drawn and not register
    counted = likely or 2 * len(shared) > min(sizes, default=0)
    known = rows is not None and len(shared) > 2 and _are_alike(parts, shared, rows)
    if counted and not known:
        return []
    why, found = "{:,} of its {:,} persons are at another client, too", Counter[str]()
    for client, own in ids.items():
        found[client] = len(own & shared)
    return [Found("persons", name, c, why.format(n, len(ids[c]))) for c, n in found.items() if n]


def _are_alike(
    parts: Mapping[str, Sequence[str]], shared: Collection[str], rows: Mapping[str, NDArray[Any]]
) -> bool:
    """Whether the rows of one id at two clients have more cells in common than those of neighbours,
    which may be alike where tables are sorted or ids are given in turn.
    """
    pairs: dict[str, list[NDArray[Any]]] = {}
    for client, own in parts.items():
        first = {one: r for r, one in reversed([*enumerate(own)]) if one in shared}
        for one in reversed(first):
            pairs.setdefault(one, []).append(rows[client][first[one]])
    here, there = (np.array([pair[k] for pair in pairs.values()], object) for k in (0, 1))
    same, most = (here == there).sum(1), min(len(pairs) - 1, 5)
    more = [same - (here == np.roll(there, by, 0)).sum(1) for by in range(1, most + 1)]
    return all(m.mean() > 3 * m.std() / len(pairs) ** 0.5 for m in more)


def of_names(clients: Collection[str]) -> list[Found]:
    """Clients whose names differ only by what people write in several ways."""
    alike: dict[str, list[str]] = {}
    for client in clients:
        alike.setdefault([*_simpler(client)][-1], []).append(client)
    found = []
    for first, *others in alike.values():
        for client in others:
            why = f"the same as {short(first, NAME)}, but for {_differs(first, client)}?"
            found.append(Found("names", "", client, why, {client: first}))
    return found


def _differs(one: str, other: str) -> str:
    """The ways of spelling that bring two names nearer to each other."""
    ways: dict[str, None] = {}
    for (way, *_), a, b in zip(SPELT, _simpler(one), _simpler(other), strict=True):
        if SequenceMatcher(None, a, b).ratio() > SequenceMatcher(None, one, other).ratio():
            ways[way] = None
        one, other = a, b
    return " and ".join(ways)


def _simpler(name: str) -> Iterator[str]:
    """The name after each way of `SPELT` is taken away."""
    for _, pattern, by in SPELT:
        name = by(name) if callable(by) else re.sub(pattern, by, name)
        yield name


def _without_marks(name: str) -> str:
    text = unicodedata.normalize("NFKD", name)
    return "".join(c for c in text if not unicodedata.category(c).startswith(("M", "C")))


# letters of Cyrillic and Greek that look like Latin ones, as small or as capital letters
LOOKS = str.maketrans("авеѕіјкмнорстухαβεζηικμνορτυχ", "abesijkmhopctyxabezhikmnoptyx")
SIGNS = r"[\s._,'’`´\"()\[\]-]"
# how one name may be spelt, in the order in which that is taken away: pattern, and instead
SPELT: tuple[tuple[str, str, str | Callable[[str], str]], ...] = (
    ("capitals", "", str.lower),
    ("letters of two alphabets that look alike", "", lambda name: name.translate(LOOKS)),
    ("ß and ss", "ß", "ss"),
    ("accents or dots", "", _without_marks),
    ("an abbreviation", r"\bsa(in|nk)t\b", "st"),
    ("an abbreviation", r"\bmount\b", "mt"),
    ("an abbreviation", r"\bhospital\b", "hosp"),
    ("an e for two dots", "([aou])e", r"\1"),
    ("the form of a number", r"^(\d+)\.0+$", r"\1"),
    ("signs or spaces", rf"(?<=[^\W\d]){SIGNS}+(?=\w)|(?<=\d)[\s._()-]+(?=[^\W\d])", ""),
    ("signs or spaces", r"^[ .\"'()\[\]]+|[ .\"'()\[\]]+$", ""),
    ("zeros in front", r"(?<!\d)0+(?=\d)", ""),
    ("a doubled letter", r"(?<=[^\W\d]{2})([^\W\d])\1(?=[^\W\d])", r"\1"),
)
