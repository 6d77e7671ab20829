"""A look at the user's tables before anything is configured: who the clients are, what the target
is, and of which kind every column is.
"""

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from bonafed.config.config import ConfigError
from bonafed.data import differences, profile
from bonafed.data.differences import Found
from bonafed.data.files import LINES, MARKED, delimiter_and_header, encoding_of, opened
from bonafed.data.profile import Kind, Summary, fold, summarise
from bonafed.data.readers import paths, read, stem
from bonafed.data.reading import ENCODINGS, KINDS, ORDERS, Reading
from bonafed.data.tables import Table, has_column, joined, same_columns, stacked
from bonafed.text import listed, plain

CLIENTS = ("client", "site", "hospital", "clinic", "center", "centre", "bank", "branch", "region")
CLIENTS += ("group", "source")
TARGETS = ("target", "label", "outcome", "diagnosis", "class", "y", "sick", "disease", "default")
TARGETS += ("response",)
MOST = 50  # classes of a target of text
GRADES = 10  # whole numbers that may be classes
TOLD = 0.98  # share of a class from which a column is a near-copy of the target
BELOW = 5  # lines at the end of a file that may be no rows
TOTALS = re.compile(
    r"\W*((grand |sub)?-?totals?|sum|summe|gesamt|insgesamt|average|mean|mittelwert|durchschnitt"
    r"|median|min(imum)?|max(imum)?|count|anzahl|somme|moyenne|promedio|suma|sd|std)\W*",
    re.I,
)
# such a word beside the name of a client
SUMMED = re.compile(r"\b(sub)?-?(totals?|sum(me)?|gesamt|average|mean|mittelwert|moyenne)\b", re.I)
NAMING = ("number", "code", "category", "text", "apart")  # kinds that may name a person
ODD = 0.05  # share of a column's cells that are odd ones
UNUSED = ("person", "identifier", "text", "mixed")  # kinds of no feature, beside the target or not


@dataclass(frozen=True)
class Asked:
    """What the user said; nothing of it is guessed."""

    client: str | None = None
    target: str | None = None
    exclude: Sequence[str] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    decimal: str | None = None
    encoding: str | None = None
    classes: bool | None = None  # whether a target of few whole numbers is one of classes
    alone: bool = False  # one client has all rows
    missing: Sequence[str] = ()  # texts and numbers that mean a missing cell

    def __post_init__(self) -> None:
        for key in ("client", "target"):
            object.__setattr__(self, key, (value := getattr(self, key)) and plain(value))
        object.__setattr__(self, "exclude", tuple(map(plain, self.exclude)))
        if self.alone and self.client is not None:
            raise ConfigError("--client and --one-client exclude each other")
        for option, allowed in (("decimal", (".", ",")), ("encoding", ENCODINGS)):
            if (value := getattr(self, option)) is not None and value not in allowed:
                raise ConfigError(f"--{option} must be one of {', '.join(allowed)}, got {value!r}")


def orders(dates: Iterable[str]) -> dict[str, str]:
    """The order of every column of dates, of texts such as "admitted=dmy"."""
    found = {}
    for text in dates:
        name, _, order = text.rpartition("=")
        if order not in ORDERS or not name:
            raise ConfigError(
                f"--dates must be COLUMN=ORDER with the order ymd, dmy or mdy, got {text!r}"
            )
        found[name] = order
    return found


@dataclass(frozen=True)
class Shape:
    """How the files are written, and why that is known."""

    encoding: str = "utf-8"
    delimiter: str | None = None  # None: each file has its own
    reason: str = ""  # of the encoding
    header: tuple[str, ...] = ()
    header_lines: int = 1
    others: Mapping[str, int] = field(default_factory=dict)  # lines that begin no row
    forms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # as of `Table`


@dataclass(frozen=True)
class Roles:
    """The columns of the target and of the client, and why they are taken for it."""

    target: str
    client: str | None
    guesses: Mapping[str, str]  # why, by key, of those that the user did not name

    def why(self, key: str) -> str:
        """Why a column has its role, "as asked" where the user named it."""
        return self.guesses.get(key, "as asked")


@dataclass(frozen=True)
class Look:
    """What is known of tables.

    Attributes
    ----------
    clients : the rows of every client, by column
    rest : the rows without a client
    partial : columns that some files lack, which are left out
    odd : columns of numbers or dates with few other cells, and these
    accepted : texts that stand for a missing cell
    problems : what has to be asked, in words, with the options that answer it
    """

    shape: Shape
    roles: Roles
    clients: Mapping[str, Table]
    asked: Asked
    rest: Table | None = None
    partial: Mapping[str, Kind] = field(default_factory=dict)
    client_merge: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The columns that are neither the target nor the client."""
        return [name for name in next(iter(self.clients.values())) if name != self.roles.target]

    @property
    def unnamed(self) -> int:
        """The rows without a client."""
        return 0 if self.rest is None else len(next(iter(self.rest.values())))

    @property
    def rows(self) -> int:
        """All rows, with those without a client."""
        return self.target.rows + self.unnamed

    @property
    def unread(self) -> list[str]:
        """The columns of the files that are never read, since they have no name."""
        first = next(iter(self.clients.values()))
        known = {self.roles.client, *first, *self.partial}
        return [name for name in first.header if name not in known]

    @cached_property
    def odd(self) -> dict[str, Mapping[str, int]]:
        """By column the few texts in it where all other cells are numbers or dates, with their
        counts, unless such a text is a value of another column.
        """
        found, values = dict[str, Mapping[str, int]](), {*self.clients}
        for name, column in self._summed.items():
            n, others = sum(column.odd.values()), column.distinct - len(column.odd)
            few = 0 < n <= max(3, ODD * column.present) and others > 20 and n == column.text
            if few and name != self.roles.target:
                found[name] = column.odd
            else:
                values.update(column.counts or ())
        return {name: odd for name, odd in found.items() if not values & {*odd}}

    def places(self, name: str, texts: Collection[str], most: int = 6) -> str:
        """The first cells of a column that are one of these texts, and where each is."""
        found = [
            f"{str(cell)!r} in {table.place([r])}"
            for table in self.clients.values()
            for r, cell in enumerate(table[name].tolist())
            if cell is not None and str(cell) in texts
        ]
        return ", ".join(found[:most]) + f" and {len(found) - most} more" * (len(found) > most)

    @cached_property
    def _whole(self) -> dict[str, Summary]:
        """The columns over all clients, where odd cells stand for missing ones."""
        columns = self._summed.items()
        return {name: c.without_odd() if name in self.odd else c for name, c in columns}

    @cached_property
    def _summed(self) -> dict[str, Summary]:
        """The columns over all clients; rows without one are read with the others, and dropped."""
        found = {}
        for name in (*self.names, self.roles.target):
            own = [table[name] for table in self.clients.values()]
            dropped = [] if self.rest is None or name == self.roles.target else [self.rest[name]]
            column = summarise(stacked([*own, *dropped]))
            if column.whole == column.numbers:  # else nobody asks
                rising, together = True, column.distinct > 1
                for part in map(summarise, own):
                    rising &= part.rising
                    together &= part.together or part.distinct <= 1
                    if not (rising or together):
                        break
                column = replace(column, rising=rising, together=together)
            found[name] = column
        return found

    @cached_property
    def accepted(self) -> tuple[str, ...]:
        """The texts that stand for a missing cell beside the usual ones."""
        found = {*self.asked.missing}
        for name, column in self._whole.items():
            sure = profile.SURE
            if name == self.roles.target and len(profile.spellings(column.counts or {})) + 2 <= (
                column.distinct
            ):  # a word for an outcome that nobody knows stands beside two others
                sure = profile.TOKENS - profile.NOTHING
            found |= {t for t in column.tokens if not column.text or t.casefold() in sure}
        return tuple(sorted(found))

    def parts(self, name: str) -> dict[str, Summary]:
        """The summaries of a column by client."""
        tables = self.clients.items()
        return {c: summarise(table[name]).with_tokens(self.accepted) for c, table in tables}

    @cached_property
    def columns(self) -> dict[str, Summary]:
        """The summaries over all clients."""
        return {name: column.with_tokens(self.accepted) for name, column in self._whole.items()}

    @property
    def target(self) -> Summary:
        """The summary of the target."""
        return self.columns[self.roles.target]

    @cached_property
    def target_merge(self) -> dict[str, str]:
        """The target's variants by case and spaces, or of yes and no."""
        counts = self.target.counts
        return profile.spellings(counts) if counts and self.target.text else {}

    @cached_property
    def target_names(self) -> dict[str, str]:
        """What texts of the target are read as: ``1`` where ``1.0`` stands among numbers."""
        if not _all_numbers(self.target):
            return self.target_merge
        return {text: str(_value(text)) for text in self.target.counts or ()}

    @cached_property
    def classes(self) -> dict[str, int]:
        """The rows of every class; none of a target of numbers."""
        column = self.target
        if column.counts is None:
            return {}
        counts = profile.merged(column.counts, self.target_names)
        if _all_numbers(column) and len(counts) > 2 and not self.asked.classes:
            return {}
        return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))

    @property
    def values_of_classes(self) -> list[object]:
        """The classes as the configuration names them: numbers, or text."""
        numbers = _all_numbers(self.target)
        return [_value(name) if numbers else name for name in self.classes]

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kind of every column."""
        tables, every = self.clients.values(), (self.roles.target, *self.names)
        digests = {name: profile.digest(table[name] for table in tables) for name in every}
        found, first = dict[str, Kind](), {digests[self.roles.target]: self.roles.target}
        for name in self.names:
            same = first.setdefault(digests[name], name)
            found[name] = self._kind(name, None if same == name else same)
        people = [name for name, kind in found.items() if kind.name == "person"]
        people.sort(key=lambda name: not profile.names_a_person(name))
        for name in people[1:]:
            found[name] = Kind("identifier", f"of people, as {people[0]!r} is")
        for name, column in self.columns.items() if people else ():
            alike = column.distinct == self.columns[people[0]].distinct
            names_rows = alike and column.whole + column.text == column.present
            if name in found and names_rows and found[name].name in NAMING:
                both = (zip(table[name], table[people[0]], strict=True) for table in tables)
                if len({*chain.from_iterable(both)}) == column.distinct:
                    found[name] = Kind("identifier", f"every {people[0]!r} has a separate one")
        return found

    def _kind(self, name: str, same: str | None) -> Kind:
        first = re.sub(r" \(\d+\)$", "", name)
        if first != name and first in (self.roles.target, self.roles.client, *self.names):
            return Kind("copy", f"another column {first!r}")
        if same == self.roles.target:
            return Kind("near-copy", "it has the target's cells")
        kind = profile.kind_of(name, self.columns[name], same, self.asked.dates.get(name))
        if kind.name in (*("empty", "copy", "constant", "index"), *UNUSED):
            return kind
        if profile.OUTCOMES & {*profile.words(name)}:
            return Kind("outcome", "named as an outcome, which is known when the target is")
        return self._links(name) or kind

    def _links(self, name: str) -> Kind | None:
        """Whether the column is the target once more."""
        cells = stacked([table[name] for table in self.clients.values()])
        if not self.classes:
            middles = (self.columns[name].middle, self.target.middle)
            if not np.isfinite(middles).all():
                return None
            far = abs(r := profile.link(cells, self._targets, middles).correlation()) <= 0.9995
            why = "it has the target's numbers"
            return None if far else Kind("near-copy", why, f"correlation {r:.4f}")
        beside = profile.link(cells, self._targets)
        if (told := beside.told()) >= TOLD:
            return Kind("near-copy", "it tells the target", f"{100 * told:.1f} % of each class")
        apart = Kind("apart", "its numbers do not overlap between the classes")
        return apart if beside.apart() and _is_of_numbers(self.columns[name]) else None

    @cached_property
    def _targets(self) -> list[str | None]:
        """The target of every row."""
        cells = stacked([table[self.roles.target] for table in self.clients.values()]).tolist()
        missing = (cell is None or cell != cell or str(cell) in self.accepted for cell in cells)
        names = ((str(cell), absent) for cell, absent in zip(cells, missing, strict=True))
        return [None if absent else self.target_names.get(name, name) for name, absent in names]

    @cached_property
    def decimal(self) -> str:
        """The sign in front of decimals."""
        return self.asked.decimal or ("," if self._sure_commas else ".")

    @cached_property
    def _sure_commas(self) -> list[str]:
        """The columns that have a decimal comma for sure: no thousands are written so."""
        columns = [(name, self.columns[name]) for name in self.commas]
        sure = [name for name, c in columns if c.commas > c.thousands or c.comma_limits]
        return sure or (self.commas if self.shape.delimiter == ";" else [])

    @cached_property
    def commas(self) -> list[str]:
        """The columns of numbers with commas in them."""
        columns = ((n, c) for n, c in self.columns.items() if n not in self.asked.exclude)
        return [n for n, c in columns if (c.commas or c.comma_limits) and _is_of_numbers(c)]

    # ----------------------------------------------------------------- what has to be asked

    def problems(self, private: bool = False) -> list[str]:
        """Everything that cannot be guessed safely, with the options to give: columns and clients
        are named, and no cell. A private run uses no dates.
        """
        target = self.roles.target
        of_target = [f"the target {target!r} {text}" for text in self._of_target(private)]
        of_kinds = [] if private else self._of_kinds()
        return [*self._of_clients(), *of_target, *self._of_decimals(), *of_kinds]

    def _of_clients(self) -> Iterator[str]:
        if 2 * self.unnamed > self.rows:
            yield (
                f"the client {self.roles.client!r} is empty in {self.unnamed:,} of {self.rows:,}"
                " rows, as where cells of a spreadsheet were merged: write the client into every"
                " row, or give another --client"
            )

    def _of_target(self, private: bool) -> Iterator[str]:
        column, other = self.target, "give another --target"
        counts, numbers = len(self.classes) or column.distinct, _all_numbers(column)
        among = column.numbers + column.commas
        unsaid = numbers and self.asked.classes is None
        found: list[Found] = []
        if column.distinct <= GRADES:
            parts = self.parts(self.roles.target).items()
            found = differences.of_codes("", {c: part.counts or {} for c, part in parts})
        elif unsaid:
            cells = {c: table[self.roles.target].tolist() for c, table in self.clients.items()}
            found = differences.of_numbers("", {c: profile.numbers_of(v) for c, v in cells.items()})
        odd = sorted({text for one in found for text in one.instead if one.kind == "sentinel"})
        what, coded = ", ".join(odd), [one for one in found if one.kind == "codes"]
        asks = "".join(f". {one.client} has {one.why}" for one in coded)
        asks += " Then write them alike in the tables" * bool(coded)
        if private:  # no value is said
            what, asks, odd = "a number", "", ["X"] * bool(odd)
        if not column.present:
            yield f"has no value in any row: {other}"
        elif counts == 1:
            yield f"has one value in all rows: {other}"
        elif column.beside_numbers and not column.text:
            yield f"has limits such as <1 for numbers: {other}"
        elif not numbers and among > 0.5 * column.present and len(self.classes) != 2:
            named = column.odd and not private
            cells = f" ({self.places(self.roles.target, column.odd)})" if named else ""
            yield (
                f"is numbers in {among:,} rows and text in {column.text:,}{cells}: correct these"
                f" cells, give --missing for each such text, or {other}{asks}"
            )
        elif not numbers and counts > MOST:
            yield f"holds text of {counts:,} kinds: {other}"
        elif unsaid and 2 < counts <= GRADES and column.whole == column.present:
            sure = len(odd) == 1 and not private
            one = f"--missing {odd[0]} if that" if sure else "--missing X if one, X,"
            yield (
                f"holds {counts} different whole numbers: give --classes if they are classes,"
                f" --numbers if they are amounts, and {one} stands for a missing cell{asks}"
            )
        elif unsaid and not self.classes and odd:
            yield (
                f"has {what}, which looks like a missing cell: give --missing {odd[0]}"
                " if so, or --numbers if it is an amount"
            )

    def _of_decimals(self) -> Iterator[str]:
        columns = [name for name, c in self.columns.items() if c.points and _is_of_numbers(c)]
        points = [name for name in columns if name not in self.asked.exclude]
        # where commas do not part the cells, points may stand after thousands
        sure = any(self.columns[name].points > self.columns[name].pointed for name in points)
        named = ", ".join(map(repr, points))
        if self.asked.decimal:
            if points and self.asked.decimal == ",":
                yield (
                    f"points stand in {named}, where --decimal is a comma: write its numbers"
                    f" without points in the tables, or {_options('exclude', points)}"
                )
        elif not self.commas:
            if points and not sure and self.shape.delimiter not in (",", None):
                yield (
                    f"the points in {named} may be decimal or stand after thousands: give --decimal"
                    f" . if they are decimal, else {_options('exclude', points)}"
                )
        elif not self._sure_commas:
            yield (
                f"the commas in {', '.join(map(repr, self.commas))} may be decimal or stand after"
                " thousands: give --decimal , or --decimal . (then they are text, and left out)"
            )
        elif points:
            commas, fewer = self._sure_commas, min(self._sure_commas, points, key=len)
            yield (
                f"decimal commas in {', '.join(self._where(name, 'commas') for name in commas)} and"
                f" {'decimal ' * sure}points in"
                f" {', '.join(self._where(name, 'points') for name in points)}: write one of them"
                f" in the tables, or {_options('exclude', fewer)}"
            )

    def _where(self, name: str, sign: str) -> str:
        """The column; of one with both signs also the clients that write this one."""
        parts, column = self.parts(name).items(), self.columns[name]
        at = [client for client, part in parts if getattr(part, sign)]
        return repr(name) + f" at {listed(at, len(at), 6)}" * bool(column.commas and column.points)

    def _of_kinds(self) -> Iterator[str]:
        for name, of in self.kinds.items():
            if of.name != "asked" or name in self.asked.exclude:
                continue
            key, ways = of.key, sorted(self.columns[name].fits[of.key])
            if ways:
                choices = " or ".join(f"--{key} {quote(f'{name}={way}')}" for way in ways)
                yield (
                    f"the {key} in {name!r} may be {' or '.join(ways)} ({KINDS[key].unclear}):"
                    f" give {choices}"
                )
                continue
            at = [
                f"{'/'.join(sorted(part.fits[key])) or 'no one order'} at {client}"
                for client, part in self.parts(name).items()
                if key in part.fits
            ]
            yield (
                f"the {key} in {name!r} have no one order: {listed(at, len(at), 6)}: write them in"
                f" one order, or {_options('exclude', [name])}"
            )

    # --------------------------------------------------------------------------- clients

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The rows of every client that have a target."""
        return {client: part.present for client, part in self.parts(self.roles.target).items()}


def _all_numbers(column: Summary) -> bool:
    """Whether all cells are numbers, some of them perhaps with a comma."""
    return column.numbers + column.commas == column.present


def _is_of_numbers(column: Summary) -> bool:
    """Whether all cells are numbers, or stand among them."""
    return column.text == 0 and sum(column.kinds.values()) == column.beside_numbers


def _value(text: str) -> int | float:
    value = profile.number_of(text) or 0.0
    return int(value) if value.is_integer() else value


def _options(option: str, names: Collection[str]) -> str:
    return "give " + " ".join(f"--{option} {quote(name)}" for name in names)


# ------------------------------------------------------------------------------- reading the tables


def look(given: Sequence[str], asked: Asked) -> Look:
    """A look at the tables.

    Raises
    ------
    ConfigError : columns that do not exist, or a client that cannot be guessed
    ValueError, OSError : a file that cannot be read
    """
    files, missing = paths(given), tuple(asked.missing)
    shape = _shape(files, asked)
    reading = Reading(shape.encoding, shape.delimiter, missing=missing, drop_repeated_header=True)
    whole = {str(file): read(file, shape.header, reading) for file in files}
    whole, shape = _below_header(whole, shape)
    if below := [line for file, table in whole.items() for line in _below(Path(file).name, table)]:
        raise ConfigError("\n".join(below))
    every = {name: None for table in whole.values() for name in table}
    options = {"client": [asked.client], "target": [asked.target]}
    for option, names in {**options, "exclude": asked.exclude, "dates": asked.dates}.items():
        for name in names:
            if name is not None:
                has_column(every, name, f"--{option}")
    whole, partial = _shared(whole, asked)
    roles = _roles(whole, asked)
    if roles.client is None:
        clients = {stem(Path(file)): table for file, table in whole.items()}
        return Look(shape, roles, clients, asked, partial=partial)
    return _by_column(Look(shape, roles, whole, asked, partial=partial), roles.client)


def _below_header(whole: Mapping[str, Table], shape: Shape) -> tuple[dict[str, Table], Shape]:
    """The tables without lines of labels or units below the names of the columns."""
    tables, more = {**whole}, 0
    while found := [file for file, table in tables.items() if _is_label(table)]:
        if len(found) < len(tables):
            lines = ", ".join(tables[file].place([0]) for file in found)
            raise ConfigError(
                f"{lines} looks like labels or units below the names, and not all files have such"
                " a line: delete it"
            )
        tables, more = {file: t.pick(slice(1, None)) for file, t in tables.items()}, more + 1
    others = Counter({"with labels or units": more * len(tables)} if more else {})
    forms: dict[str, Counter[str]] = {}
    for table in tables.values():
        others.update(table.others)
        for name, of in table.forms.items():
            forms.setdefault(name, Counter()).update(of)
    return tables, replace(shape, header_lines=1 + more, others=others, forms=forms)


def _is_label(table: Table) -> bool:
    """Whether the first row has text in two columns or more that have numbers or dates below it,
    and no number or date.
    """
    texts = 0
    for cells in table.values() if table.lines is not None else ():
        below = summarise(cells[1:50])
        if below.present >= 5 and below.text <= ODD * below.present:
            first = summarise(cells[:1])
            if first.text != first.present:
                return False
            texts += first.text
    return texts > 1


def _below(file: str, table: Table) -> list[str]:
    """Lines below the rows that are none: totals, and notes in the one cell that is filled."""
    found: list[str] = []
    if table.lines is None or len(table) < 3:
        return found
    for r in reversed(range(max(1, len(table.lines) - BELOW), len(table.lines))):
        filled = [name for name, cells in table.items() if cells[r] is not None]
        first = str(table[filled[0]][r]) if filled else ""
        alone = len(filled) == 1 and profile.number_of(first) is None
        total_of = len(filled) < len(table) and TOTALS.fullmatch(first)
        if not (alone or total_of) or table[filled[0]].tolist().count(first) > 1:
            break
        what = "a note" if alone else "a total"
        found.append(
            f"{file}, line {table.lines[r]}: it looks like {what} below the rows. Delete it, or"
            " fill its cells if it is a row"
        )
    return found[::-1]


def _shared(whole: Mapping[str, Table], asked: Asked) -> tuple[dict[str, Table], dict[str, Kind]]:
    """The columns that all files have, and those of which some files lack few.

    Raises
    ------
    RowError : files with other columns, or with other names for them
    """
    has = Counter(name for table in whole.values() for name in table)
    some = [name for name, n in has.items() if n < len(whole)]
    folded = Counter(fold(name) for name in has)
    renamed = [name for name in some if folded[fold(name)] > 1 and name not in asked.exclude]
    roles = [name for name in (asked.client, asked.target) if name in some]
    if renamed or roles or any(2 * len(table) < len(has) for table in whole.values()):
        same_columns({file: table.without(*asked.exclude) for file, table in whole.items()})
    partial = {}
    for name in some:
        first, *others = [Path(file).name for file, table in whole.items() if name not in table]
        more = f" and {len(others)} more" * bool(others)
        partial[name] = Kind("partial", f"not in {first}{more}")
    return {file: table.without(*some) for file, table in whole.items()}, partial


def _by_column(known: Look, client: str) -> Look:
    """The rows by the values of the column of clients, variants of a name taken together."""
    column = stacked([table[client] for table in known.clients.values()])
    counts = summarise(column).counts or {}
    merge = profile.variants(counts)
    clients: dict[str, list[Table]] = {}
    dropped = []
    # a total or an average below the rows of each client, or below all
    sums = [c for c in counts if TOTALS.fullmatch(c) or SUMMED.search(c)]
    few = len(counts) - len(sums)
    if sums := [c for c in sums if counts[c] <= few]:
        at = Look.places(known, client, sums)
        raise ConfigError(
            f"{client!r} is {at}: this looks like a total or an average, and not like a client."
            " Delete such lines, or give the client another name if it is one"
        )
    for table in known.clients.values():
        labels = np.array([None if c is None else str(c) for c in table[client].tolist()], object)
        absent = np.array([c is None for c in labels])
        names = np.array([merge.get(c, c) for c in labels], dtype=object)
        rest = table.without(client)
        dropped += [rest.pick(absent)] if absent.any() else []
        for name in dict.fromkeys(names[~absent].tolist()):
            clients.setdefault(name, []).append(rest.pick(names == name))
    own = {name: joined(parts) for name, parts in clients.items()}
    without = joined(dropped) if dropped else None
    return replace(known, clients=own, rest=without, client_merge=merge)


def _shape(files: Sequence[Path], asked: Asked) -> Shape:
    """How the files are written: all in one encoding."""
    found = {file: encoding_of(file) for file in files if file.suffix != ".parquet"}
    texts = [*found]
    if len({e for e, _ in found.values()} - {"ascii"}) > 1:  # a mark tells every reader
        found = {file: one for file, one in found.items() if one[1] != MARKED}
    known = {e: (file, why) for file, (e, why) in found.items() if e != "ascii"}
    if asked.encoding is not None:
        encoding, reason = asked.encoding, "as asked"
    elif {*known} == {"latin-1", "cp1252"}:
        encoding, reason = "cp1252", known["cp1252"][1]
    elif len(known) > 1:
        names = {e: [file.name for file, (its, _) in found.items() if its == e] for e in known}
        every = "; ".join(f"{listed(of, len(of), 6)}: {e}" for e, of in names.items())
        raise ConfigError(
            f"the files are in different encodings ({every}): save them in one, such as UTF-8"
        )
    else:
        encoding, (_, reason) = next(iter(known.items()), ("utf-8", (None, "")))
    header, signs = {}, set()
    for file in texts:
        with opened(file, encoding) as text:
            lines = [line for line, _ in zip(text, range(LINES), strict=False)]
        sign, names = delimiter_and_header(lines)  # between the cells, and in the first line
        if len(names) > 2 and sum(map(bool, names)) == 1:
            raise ConfigError(
                f"{file.name}: its first line names one of {len(names)} columns. It has to name all"
                " of them: delete the lines above the names"
            )
        if not all(names) and _names_all(lines[1:3], sign, len(names)):
            raise ConfigError(
                f"{file.name}: its first line names {sum(map(bool, names))} of {len(names)}"
                " columns, and the line below it seems to name all of them: delete the first line"
            )
        signs.add(sign)
        header |= dict.fromkeys(names)
    return Shape(encoding, signs.pop() if len(signs) == 1 else None, reason, tuple(header))


def _names_all(lines: Sequence[str], sign: str, width: int) -> bool:
    """Whether the first of two lines has different texts in all cells, and numbers are below."""
    cells: list[list[str]] = []
    with suppress(csv.Error):
        cells = [[*map(plain, one)] for one in csv.reader(lines, delimiter=sign)]
    if len(cells) < 2 or not len(cells[0]) == width == len({*map(fold, cells[0])} - {""}):
        return False
    texts = [[profile.number_of(cell) for cell in one].count(None) for one in cells]
    return texts[0] == width > texts[1]


# ----------------------------------------------------------------------------- target and client


def _roles(whole: Mapping[str, Table], asked: Asked) -> Roles:
    """The target and the client: as asked, else guessed where that is safe."""
    first = next(iter(whole.values()))
    target, client, guesses = asked.target, asked.client, dict[str, str]()
    taken, unclear = {*asked.exclude, client, *asked.dates}, list[str]()
    if target is None:
        target, guesses["target"] = _target(whole, [name for name in first if name not in taken])
        unclear += [] if target else [guesses["target"]]
    if client is None and len(whole) > 1 and not asked.alone:
        client = _across(whole, [name for name in first if name not in (*taken, target)])
        guesses["client"] = "guessed: so named, and the same values are in several files"
    elif client is None and not asked.alone:
        others = [name for name in first if name not in (*taken, target)]
        client, guesses["client"] = _client(first, others)
        unclear += [] if client else [guesses["client"]]
    if unclear or target is None:
        raise ConfigError("\n".join([*unclear, f"Columns: {', '.join(first)}"]))
    return Roles(target, client, guesses)


def _across(whole: Mapping[str, Table], names: Sequence[str]) -> str | None:
    """A column that is named as the owner of a row, and has the same values in several files."""
    name = _named(names, CLIENTS[: CLIENTS.index("region")])
    if name is None or not all(name in table for table in whole.values()):
        return None
    values = [{*table[name].tolist()} - {None} for table in whole.values()]
    return name if sum(map(len, values)) > len(set().union(*values)) else None


def _target(whole: Mapping[str, Table], names: Sequence[str]) -> tuple[str | None, str]:
    """The target and why, or None and what to do."""
    if found := _named(names, TARGETS):
        return found, "guessed: so named"
    known = {name: summarise(stacked([table[name] for table in whole.values()])) for name in names}
    two = [name for name, column in known.items() if column.distinct == 2]
    if names and two[-1:] == [names[-1]]:
        return names[-1], "guessed: the last column, of two values"
    if names and known[names[-1]].numbers == known[names[-1]].present and not two:
        return names[-1], "guessed: the last column, of numbers"
    likely = f" Columns of two values: {', '.join(map(repr, two))}." if two else ""
    return None, f"no column looks like the target: give --target.{likely}"


def _client(table: Mapping[str, Any], names: Sequence[str]) -> tuple[str | None, str]:
    """The column of clients and why, or None and what to do."""
    if found := _named(names, CLIENTS):
        return found, "guessed: so named"
    known = ((name, summarise(table[name])) for name in names)
    texts = [(name, column) for name, column in known if column.text == column.present > 0]
    # as names of clients do
    repeats = [name for name, c in texts if 2 <= c.distinct <= max(2, c.present // 5)]
    if len(repeats) == 1:
        return repeats[0], "guessed: the only text that repeats"
    may = f" It may be one of {', '.join(map(repr, repeats))}." if repeats else ""
    return None, (
        "no column looks like the client of each row: give --client, or --one-client if one owner"
        f" has all rows.{may}"
    )


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The column with one of the known names, alone or as a part of its name."""
    parts = {name: name.lower().replace("-", "_").replace(" ", "_").split("_") for name in names}
    alone = [name for word in known for name in names if name.lower() == word]
    inside = [name for word in known for name in names if word in parts[name]]
    return next(iter([*alone, *inside]), None)
