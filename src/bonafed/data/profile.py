"""What tables look like, column by column, told from summaries that clients send.

A client summarises each of its columns: counts of cells by form, the smallest and largest number,
the orders of day, month and year that all dates fit, up to `KEPT` values with their counts, and
the `SKETCH` smallest hashes of the values. Summaries add up, over clients and over parts of a
table; no row is needed beside those of another client.

    distinct values = m                        where the sketch holds m < k hashes
                    = (k - 1) / (largest of the k hashes, as a share of 2^64)     otherwise

which is off by 3 % for k = 1024 (k minimum values, Bar-Yossef et al. 2002). In a second message,
once the target is chosen, a client counts values by class, and sums products where the target is a
number: that tells columns that are the target once more.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import reduce
from itertools import pairwise
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.data.reading import ORDERS
from bonafed.data.refine import CENSORED, COMMA, DATES
from bonafed.data.tables import is_number, parsed

KEPT = 1000  # values of a column that are counted one by one
SKETCH = 1024  # hashes

# texts that stand for a missing cell beside those that every table may use for it
TOKENS = frozenset(
    {"-", "--", "---", ".", "..", "#n/a", "#na", "#nv", "#value!", "#null!", "<na>", "none", "nil"}
    | {"na", "n.a.", "n/a", "nan", "null", "missing", "unknown", "k.a.", "k. a.", "not available"}
    | {"keine angabe", "unbekannt", "n/d", "nd", "not done", "not measured"}
)
SURE = frozenset({"-", "--", "---", ".", "..", "#n/a", "#na", "#nv", "#null!", "<na>", "n.a."})
SURE |= {"n/a", "na", "nan", "null", "k.a.", "k. a."}  # also where other cells are text
# what a spreadsheet writes where a formula failed
SURE |= {"#div/0!", "#value!", "#ref!", "#name?", "#num!", "#wert!", "#bezug!", "#zahl!"}
TOKENS |= SURE
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
ANSWERS = (
    (
        ("yes", "y", "ja", "j", "true", "t", "oui", "o", "si", "sí", "sim", "wahr", "vrai", "1"),
        ("no", "n", "nein", "false", "f", "non", "não", "nao", "falsch", "faux", "0"),
    ),
    (("positive", "positiv", "pos", "pos."), ("negative", "negativ", "neg", "neg.")),
)
Merge: TypeAlias = dict[str, str]
DISEASE = re.compile(r"[A-TV-Z]\d[0-9A-Z](\.?[0-9A-Z]{1,4})?")  # a code of ICD-10


@dataclass(frozen=True)
class Summary:
    """What is known of the cells of a column, of one client or of several.

    Attributes
    ----------
    rows, missing : cells, and those that every reader takes as missing
    tokens : texts that stand for a missing cell here, as it seems, with their counts
    numbers, commas : cells that are numbers, with a point or without; with a decimal comma
    thousands : those of ``commas`` that may be whole numbers with a sign after the thousands
    points : numbers that are written with a decimal point
    pointed : those of ``points`` that may be whole numbers with a point after the thousands
    amounts : cells that are not a number and no date, but one with a unit or after thousands
    whole, padded : numbers without a fraction; those with needless zeros in front, as codes have
    censored, dates, diseases : cells such as ``<0,5``; dates; codes of diseases
    orders : of day, month and year, those that every date fits
    ends : the two smallest and the two largest of the numbers
    rising : every number is larger than the one before, at every client
    lengths : of the shortest and of the longest text
    counts : of every value, None where there are more than `KEPT`
    hashes : the smallest of the values' hashes
    digest : of the cells in their order, one for each client
    """

    rows: int = 0
    missing: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)
    numbers: int = 0
    commas: int = 0
    thousands: int = 0
    points: int = 0
    pointed: int = 0
    amounts: int = 0
    whole: int = 0
    padded: int = 0
    censored: int = 0
    dates: int = 0
    diseases: int = 0
    orders: frozenset[str] = frozenset(ORDERS)
    ends: tuple[float, ...] = ()
    rising: bool = True
    lengths: tuple[int, int] = (2**31, 0)
    counts: Mapping[str, int] | None = field(default_factory=dict)
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    digest: tuple[bytes, ...] = ()

    def __add__(self, other: Summary) -> Summary:
        both: dict[str, Any] = {
            name: getattr(self, name) + getattr(other, name)
            for name in (
                *("rows", "missing", "numbers", "commas", "thousands", "points", "whole"),
                *("pointed", "amounts", "padded", "censored", "dates", "diseases", "digest"),
            )
        }
        shortest, longest = zip(self.lengths, other.lengths, strict=True)
        return Summary(
            **both,
            tokens=Counter(self.tokens) + Counter(other.tokens),
            orders=self.orders & other.orders,
            ends=_ends([*self.ends, *other.ends]),
            rising=self.rising and other.rising,
            lengths=(min(shortest), max(longest)),
            counts=_added(self.counts, other.counts),
            hashes=np.union1d(self.hashes, other.hashes)[:SKETCH],
        )

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
    def distinct(self) -> int:
        """How many values there are, about; exactly where they are few."""
        if len(self.hashes) < SKETCH:
            return len(self.hashes)
        return min(self.present, round((SKETCH - 1) / (float(self.hashes[-1]) / 2.0**64)))

    @property
    def text(self) -> int:
        """Cells that are neither numbers nor dates."""
        return self.present - self.numbers - self.commas - self.censored - self.dates

    @property
    def middle(self) -> float:
        """Half way between the smallest and the largest number."""
        return (self.low + self.high) / 2

    def with_tokens(self, accepted: Collection[str]) -> Summary:
        """The summary where only the accepted texts stand for a missing cell; the other tokens are
        values as well.
        """
        values = {text: n for text, n in self.tokens.items() if text not in accepted}
        if not values:
            return self
        hashes = np.array([_hash(text) for text in values], np.uint64)
        sizes = [*map(len, values), *self.lengths]
        return replace(
            self,
            tokens={text: n for text, n in self.tokens.items() if text in accepted},
            counts=_added(self.counts, values),
            hashes=np.union1d(self.hashes, hashes)[:SKETCH],
            lengths=(min(sizes), max(sizes)),
        )


def total(summaries: Iterable[Summary]) -> Summary:
    """The summary of several clients."""
    return reduce(Summary.__add__, summaries, Summary())


def _added(a: Mapping[str, int] | None, b: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if a is None or b is None:
        return None
    both = Counter(a)
    both.update(b)
    return both if len(both) <= KEPT else None


# ------------------------------------------------------------------------- what a client computes


def summarise(column: NDArray[Any]) -> Summary:
    """The summary of one client's cells: text with None where missing, or numbers."""
    digest = (_digest(column),)
    if column.dtype.kind != "O":
        return replace(_of_numbers(column.astype(np.float64)), digest=digest)
    cells = [cell if isinstance(cell, str) else str(cell) for cell in column if cell is not None]
    values = parsed(cells) if cells else np.zeros(0)
    if values.dtype.kind != "O" and np.isfinite(values).all():
        return replace(
            _of_numbers(values.astype(np.float64), cells),
            rows=len(column),
            missing=len(column) - len(cells),
            points=sum("." in cell for cell in cells),
            pointed=sum(POINTED.fullmatch(cell) is not None for cell in cells),
            padded=sum(cell[:1] == "0" and cell[1:2].isdigit() for cell in cells),
            digest=digest,
        )
    return replace(_of_texts(cells), rows=len(column), missing=len(column) - len(cells)) + Summary(
        digest=digest
    )


def _digest(column: NDArray[Any]) -> bytes:
    cells = column.tolist()
    whole = "\x1f".join(["\x1e" if c is None or c != c else str(c) for c in cells])
    return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _of_numbers(column: Array, cells: Sequence[str] | None = None) -> Summary:
    """The summary of numbers, written as ``cells`` if they were text."""
    values = column[column == column]
    unique = np.unique(values)
    few = len(unique) <= KEPT
    written = cells if cells is not None else (_written(v) for v in values.tolist())
    finite = unique[np.isfinite(unique)]
    return Summary(
        rows=len(column),
        missing=len(column) - len(values),
        numbers=len(values),
        whole=int((values == np.rint(values)).sum()),
        ends=_ends([*finite[:2].tolist(), *finite[-2:].tolist()]),
        rising=bool((np.diff(values) > 0).all()),
        counts=Counter(written) if few else None,
        hashes=np.sort(_mixed(unique))[:SKETCH],
    )


def _ends(values: Iterable[float]) -> tuple[float, ...]:
    """The two smallest and the two largest of different numbers, all of up to four."""
    order = sorted({*values})
    return tuple(order if len(order) < 5 else [*order[:2], *order[-2:]])


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _mixed(values: Array) -> NDArray[np.uint64]:
    """Hashes of numbers: the finaliser of splitmix64 on their bits."""
    z = (values + 0.0).view(np.uint64)  # one zero
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


def _of_texts(cells: Sequence[str]) -> Summary:
    """The summary of cells of which some are not plain numbers; every value is looked at once."""
    counts = Counter(cells)
    tally: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    orders, numbers = set(ORDERS), {}
    lengths = {len(text) for text in counts} or {0}
    for text, n in counts.items():
        if text.casefold() in TOKENS:
            tokens[text] = n
            continue
        number = number_of(text)
        if number is not None:
            numbers[text] = number
            tally["commas" if "," in text else "numbers"] += n
            tally["points"] += n * ("." in text)
            tally["pointed"] += n * bool(POINTED.fullmatch(text))
            tally["whole"] += n * ("," not in text and float(number).is_integer())
            tally["padded"] += n * (text[:1] == "0" and text[1:2].isdigit())
            tally["thousands"] += n * bool(THOUSANDS.fullmatch(text))
        elif limit := CENSORED.fullmatch(text):
            tally["censored"] += n
            numbers[text] = number_of(limit[2]) or 0.0
        elif fits := orders_of(text):
            tally["dates"] += n
            orders &= fits
        else:
            tally["diseases"] += n * bool(DISEASE.fullmatch(text))
            tally["amounts"] += n * bool(AMOUNT.fullmatch(text))
    finite = [v for v in numbers.values() if np.isfinite(v)]
    read = [numbers[c] for c in cells if c in numbers]
    values = [text for text in counts if text not in tokens]
    kept = {text: counts[text] for text in values}
    known = Summary(
        tokens=tokens,
        orders=frozenset(orders),
        ends=_ends(finite),
        rising=bool(read) and all(a < b for a, b in pairwise(read)),
        lengths=(min(lengths), max(lengths)),
        counts=kept if len(kept) <= KEPT else None,
        hashes=np.sort(np.array([_hash(v) for v in values], np.uint64))[:SKETCH],
    )
    found: dict[str, Any] = dict(tally)
    return replace(known, **found)


def _hash(text: str) -> int:
    whole = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(whole, digest_size=8).digest(), "little")


def number_of(text: str) -> float | None:
    """The number that a cell is, with a decimal point or a decimal comma; None if it is none, or
    infinite.
    """
    if COMMA.fullmatch(text):
        text = text.replace(",", ".")
    return float(text) if is_number(text) and isfinite(float(text)) else None


def orders_of(text: str) -> frozenset[str]:
    """The orders of day, month and year that a date may be written in; none of another text.

    Dates with points never have the month first.
    """
    fits = set()
    for order, pattern in DATES.items():
        found = pattern.fullmatch(text)
        if found and not (order == "mdy" and found["s"] == "."):
            with suppress(ValueError):
                date(int(found["y"]), int(found["m"]), int(found["d"]))
                fits.add(order)
    return frozenset(fits)


# -------------------------------------------------------------------------- columns and the target


@dataclass(frozen=True)
class Link:
    """A column beside the target, of one client or of several.

    ``counts`` of a value (None: missing) with a class, None where there are more than `KEPT`;
    ``ranges`` of the numbers in each class; ``sums`` of 1, x, y, x^2, y^2, x y, where both are
    numbers.
    """

    counts: Mapping[tuple[str | None, str], int] | None = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sums: tuple[float, ...] = (0.0,) * 6

    def __add__(self, other: Link) -> Link:
        counts = None
        if self.counts is not None and other.counts is not None:
            joined = Counter(self.counts)
            joined.update(other.counts)
            counts = joined if len(joined) <= KEPT else None
        ranges = {**self.ranges}
        for name, (low, high) in other.ranges.items():
            was = ranges.get(name, (low, high))
            ranges[name] = (min(low, was[0]), max(high, was[1]))
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        return Link(counts, ranges, sums)

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
        few = min(rows.values()) < 5 or sum(rows.values()) < max(30, 5 * len(best))
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
    column: NDArray[Any],
    target: Sequence[str | None],
    middles: tuple[float, float] | None = None,
) -> Link:
    """A client's column beside its target, as classes, or as numbers if the middles of the column's
    and the target's numbers over all clients are given, so that few digits cancel.
    """
    cells = column.tolist()
    if column.dtype.kind == "f":
        cells = [None if c != c else c for c in cells]
    rows = [row for row in zip(cells, target, strict=True) if row[1] is not None]
    if middles is not None:
        x, y = (_numbers([row[k] for row in rows]) - middles[k] for k in (0, 1))
        both = np.isfinite(x) & np.isfinite(y)
        x, y = x[both], y[both]
        return Link(None, {}, (float(len(x)), *map(float, (x.sum(), y.sum(), x @ x, y @ y, x @ y))))
    counts = Counter(rows)
    ranges: dict[str, tuple[float, float]] = {}
    if len(counts) > 20:
        values = _numbers([c for c, _ in rows])
        names = np.array([t for _, t in rows], dtype=object)
        for name in sorted({*names.tolist()}):
            own = values[(names == name) & np.isfinite(values)]
            if len(own):
                ranges[name] = (float(own.min()), float(own.max()))
    known = {(None if c is None else str(c), str(t)): n for (c, t), n in counts.items()}
    return Link(known if len(known) <= KEPT else None, ranges)


def _numbers(cells: Sequence[object]) -> Array:
    """Cells as numbers, NaN where they are none."""
    plain = [np.nan if cell is None else cell for cell in cells]
    try:
        return np.array(plain, dtype=np.float64)
    except (TypeError, ValueError):  # text, and dates of Parquet
        read = [number_of(c) if isinstance(c, str) else c for c in plain]
        read = [c if isinstance(c, int | float) else None for c in read]
        return np.array([np.nan if cell is None else cell for cell in read], dtype=np.float64)


# ----------------------------------------------------------------------------------------- values


def fold(value: str) -> str:
    """A value in small letters, with single spaces."""
    return " ".join(value.casefold().split())


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
    joined: Counter[str] = Counter()
    for value, n in counts.items():
        joined[merge.get(value, value)] += n
    return joined
