"""The kinds of columns whose cells have to be declared to be read, one record for each.

A record says how a cell is recognised, what is declared of a column, which columns it becomes and
how these are read and spoken of. `Reading`, [data] of a configuration and of a site.toml, `bonafed
init`, a stored model and its predictions go by `KINDS`: a new kind is one more record here. Columns
of numbers and of text need no declaration (`bonafed.data.schema`); what a kind is read into is one
of these.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.text import plain

NUMBER = r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?"
LIMIT = re.compile(rf"(<=?|>=?|≤|≥)?\s*({NUMBER})")
YMD = r"(?P<y>\d{4})(?P<s>[-./ ]?)(?P<m>\d\d?)(?P=s)(?P<d>\d\d?)"
DMY = r"(?P<d>\d\d?)(?P<s>[-./ ])(?P<m>\d\d?)(?P=s)(?P<y>\d{4})"
MDY = r"(?P<m>\d\d?)(?P<s>[-./ ])(?P<d>\d\d?)(?P=s)(?P<y>\d{4})"
TIME = r"(?:[T :]\d\d?:\d\d.*)?"  # the time of day, which is not read
Read = tuple[list[NDArray[Any]], list[int]]  # the columns, and the rows that are not so
ORDERS = ("ymd", "dmy", "mdy")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
SPOKEN = re.compile(rf"(\d\d?)([-./ ]?)({'|'.join(MONTHS)})\2(\d{{4}})", re.I)  # 01JAN2020
DATES = {order: re.compile(of + TIME) for order, of in zip(ORDERS, (YMD, DMY, MDY), strict=True)}
PARTS: dict[str, Callable[[date], int]] = {
    "year": lambda day: day.year,
    "month": lambda day: day.month,
    "weekday": lambda day: day.isoweekday(),
    "days": lambda day: day.toordinal() - date(2000, 1, 1).toordinal(),
}


@dataclass(frozen=True)
class ColumnKind:
    """A kind of column.

    Attributes
    ----------
    key, name, shown : of [data] and `Reading.kinds`; of one column; in the table of `bonafed init`
    fits : the ways in which a cell of text may be read, by name; none of a cell of another kind
    columns : the columns that a column becomes, by its name and what is declared of it
    read : (their cells, the rows that are not of this kind) from the cells of a column, None where
        missing, what is declared of it, and the decimal sign
    wrong : what such rows have, with ``{how}`` for what is declared and ``{decimal}``
    looks, why : what to do about cells that look like it; why `bonafed init` proposes it
    settings : what is declared of each column, made by ``stated`` of one of the ways; None where
        columns are only named
    beside_numbers : whether plain numbers may stand among the cells
    unclear : why several ways may fit
    note : more to say of a column whose longest cell has so many letters
    private : how a private run declares the columns; None: it does not use them
    """

    key: str
    name: str
    shown: str
    fits: Callable[[str], frozenset[str]]
    columns: Callable[[str, Any], Sequence[str]]
    read: Callable[[list[Any], Any, str], Read]
    wrong: str
    looks: str
    why: str
    settings: Callable[..., Any] | None = None
    stated: Callable[[str], Mapping[str, Any]] = lambda way: {}
    beside_numbers: bool = False
    unclear: str = ""
    note: Callable[[int], str] = lambda longest: ""
    private: Callable[[str], Mapping[str, str]] | None = None

    def declared(self, value: object) -> dict[str, Any]:
        """What a file declares of columns of this kind, by column; ``ValueError`` for what is not a
        list of names, or no table of settings.
        """
        if self.settings is None:
            if isinstance(value, Mapping):
                value = [*value]
            if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
                raise ValueError("allowed: a list of columns")
            return dict.fromkeys(value)
        if not isinstance(value, Mapping):
            raise ValueError("allowed: a table with one entry for each column")
        made = {**value}
        for name, how in value.items():
            if isinstance(how, Mapping):
                try:
                    given = {str(k): tuple(v) if isinstance(v, list) else v for k, v in how.items()}
                    made[name] = self.settings(**given)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{name!r}: {error}") from None
            elif not is_dataclass(how):
                raise ValueError(f"allowed: a table of what is declared of {name!r}")
        return made

    def stored(self, columns: Mapping[str, Any]) -> Any:
        """What is declared, for JSON: the inverse of ``declared``."""
        if self.settings is None:
            return [*columns]
        plain = {name: asdict(how) for name, how in columns.items()}
        return {
            name: {k: [*v] if isinstance(v, tuple) else v for k, v in how.items()}
            for name, how in plain.items()
        }


# --------------------------------------------------------------------------------------- limits


def is_censored(name: str) -> str:
    """The column that says which cells of a censored column are limits."""
    return f"{name} is censored"


def _read_limits(cells: list[Any], how: object, decimal: str) -> Read:
    """Half of the limit where a cell is below one, the limit where it is above, and where."""
    other = "," if decimal == "." else "."
    values, limits, wrong = np.full(len(cells), np.nan), np.zeros(len(cells)), list[int]()
    for r, cell in enumerate(cells):
        if isinstance(cell, int | float) or cell is None:
            values[r] = np.nan if cell is None else cell
            continue
        match = LIMIT.fullmatch(cell) if isinstance(cell, str) and other not in cell else None
        number = np.inf if match is None else float(match[2].replace(",", "."))
        if match is None or np.isinf(number):
            wrong.append(r)
            continue
        limits[r] = bool(match[1])
        values[r] = number * (0.5 if match[1] and match[1][0] in "<≤" else 1.0)
    return [values, limits], wrong


def _is_limit(cell: str) -> frozenset[str]:
    """One way to read it where a cell is a limit: a plain number is none, however large."""
    match = LIMIT.fullmatch(cell)
    finite = match and match[1] and np.isfinite(float(match[2].replace(",", ".")))
    return frozenset({""} if finite else ())


# ---------------------------------------------------------------------------------------- dates


@dataclass(frozen=True)
class Dates:
    """A column of dates: the ``order`` in which day, month and year stand, and the numbers that
    are made of a date, each a separate column such as "admitted year".

    ``parts``: the year, the month from 1 to 12, the weekday from 1 (Monday) to 7, and the days
    since the first of January 2000.
    """

    order: str
    parts: tuple[str, ...] = tuple(PARTS)

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {ORDERS}, got {self.order!r}.")
        if not self.parts or not {*self.parts} <= {*PARTS}:
            raise ValueError(f"parts must be some of {tuple(PARTS)}, got {self.parts!r}.")

    def columns(self, name: str) -> dict[str, str]:
        """The columns that a column of dates becomes, by part."""
        return {part: f"{name} {part}" for part in PARTS if part in self.parts}


def orders_of(text: str) -> frozenset[str]:
    """The orders of day, month and year that a date may be written in; none of another text.

    Dates with points never have the month first.
    """
    fits, text = set(), _with_numbers(text)
    for order, pattern in DATES.items():
        found = pattern.fullmatch(text)
        if found and not (order == "mdy" and found["s"] == "."):
            with suppress(ValueError):
                date(int(found["y"]), int(found["m"]), int(found["d"]))
                fits.add(order)
    return frozenset(fits)


def _read_dates(cells: list[Any], how: Dates, decimal: str) -> Read:
    """The numbers that are made of dates; few dates are of one day only."""
    days = {cell: _day(cell, DATES[how.order]) for cell in {*cells} if cell is not None}
    wrong = [r for r, cell in enumerate(cells) if cell is not None and days[cell] is None]
    made = list[NDArray[Any]]()
    for part in how.columns(""):
        of = {cell: np.nan if day is None else PARTS[part](day) for cell, day in days.items()}
        made.append(np.array([np.nan if c is None else of[c] for c in cells], dtype=np.float64))
    return made, wrong


def _with_numbers(text: str) -> str:
    """A date with its month as a number, where that is written as 01JAN2020 or 1-Jan-2020."""
    if spoken := SPOKEN.match(text):
        day, _, month, year = spoken.groups()
        return f"{day}.{MONTHS.index(month.lower()) + 1}.{year}{text[spoken.end() :]}"
    return text


def _day(cell: object, pattern: re.Pattern[str]) -> date | None:
    """The day of a cell; None where it is not a date."""
    if isinstance(cell, date):  # also with a time of day
        return date(cell.year, cell.month, cell.day)
    if isinstance(cell, str) and (match := pattern.fullmatch(_with_numbers(cell))):
        with suppress(ValueError):
            return date(int(match["y"]), int(match["m"]), int(match["d"]))
    return None


# ------------------------------------------------------------------------------------- the table

KINDS: dict[str, ColumnKind] = {
    kind.key: kind
    for kind in (
        ColumnKind(
            key="censored",
            name="censored",
            shown="limits",
            fits=_is_limit,
            columns=lambda name, how: (name, is_censored(name)),
            read=_read_limits,
            wrong="are not a number (`decimal` = {decimal!r}) and no limit such as <5 or >100",
            looks="They look like limits of a measurement: declare the column in `censored`.",
            why="numbers and limits such as <1",
            beside_numbers=True,
            private=lambda name: {
                name: '{ min = "?", max = "?" }',
                is_censored(name): "{ min = 0, max = 1 }",
            },
        ),
        ColumnKind(
            key="dates",
            name="date",
            shown="date",
            fits=orders_of,
            columns=lambda name, how: (*how.columns(name).values(),),
            read=_read_dates,
            wrong="are not a date in the order {how.order!r} with a year of four digits",
            looks="They look like dates: declare their order in `dates`, or leave it out by"
            " `exclude`.",
            why="every cell is a date",
            settings=Dates,
            stated=lambda order: {"order": order},
            unclear="day and month are both at most 12",
            note=lambda longest: "; the time of day is not read" * (longest > len("2026-11-23")),
        ),
    )
}


def kind_named(name: str) -> ColumnKind | None:
    """The kind with a name, None of numbers, text and all else."""
    return next((kind for kind in KINDS.values() if kind.name == name), None)


# How tables are read that are not as a program would write them: what a person declares once.
#
# Nothing of it is read off the rows, so that every row is read by itself, at every client and in
# every later table alike.

ENCODINGS = ("utf-8", "latin-1", "cp1252", "utf-16")


@dataclass(frozen=True)
class Reading:
    """How tables are read: by `Federation.from_files` and `from_frame`, and by every later
    prediction.

    Parameters
    ----------
    encoding : "utf-8", "latin-1", "cp1252" or "utf-16"; a byte-order mark at the start of a file
        counts for more
    delimiter : one character between the cells; None: comma, semicolon, tab or bar, as the first
        line has it
    decimal : "." or ","; with a comma a column is numbers where every cell is one with a comma, or
        a whole number
    missing : further texts and numbers that mean a missing cell, in every column
    exclude : columns that are left out
    kinds : columns of the kinds in `KINDS`, by kind: "dates", columns of dates,
        ``{column: Dates(order, parts)}``; "censored", a list of columns of numbers in which "<0.5"
        is half of the limit and ">100" the limit; a feature "... is censored" says in which rows
    merge : ``{column: {text as it stands: text}}``, such as ``{"sex": {"M": "male"}}``; as ``""``
        stands a missing cell
    drop_missing_target, drop_missing_client : leave out rows without target, or without client
    drop_repeated_header : leave out lines below the first that name the columns again
    header_lines : lines that the header takes: the first names the columns, others are labels or
        units

    Examples
    --------
    >>> from bonafed.data.reading import Reading
    >>> Reading(decimal=",", exclude=("patient",)).to_dict()
    {'decimal': ',', 'exclude': ['patient']}
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    kinds: Mapping[str, Mapping[str, Any] | Sequence[str]] = field(default_factory=dict)
    merge: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drop_missing_target: bool = False
    drop_missing_client: bool = False
    drop_repeated_header: bool = False
    header_lines: int = 1

    def __post_init__(self) -> None:
        for key in ("missing", "exclude"):
            object.__setattr__(self, key, tuple(map(plain, getattr(self, key))))
        merge = self.merge.items()
        merge = {plain(name): {plain(a): b for a, b in of.items()} for name, of in merge}
        object.__setattr__(self, "merge", merge)
        if odd := {*self.kinds} - {*KINDS}:
            raise ValueError(f"kinds must be some of {', '.join(KINDS)}, got {', '.join(odd)}.")
        kinds = {key: KINDS[key].declared(columns) for key, columns in self.kinds.items()}
        object.__setattr__(self, "kinds", {key: of for key, of in kinds.items() if of})
        if self.encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {ENCODINGS}, got {self.encoding!r}.")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        if self.delimiter is not None and not is_delimiter(self.delimiter):
            raise ValueError(f"delimiter must be one character, got {self.delimiter!r}.")

    def of(self, key: str) -> dict[str, Any]:
        """What is declared of the columns of a kind, by column."""
        return dict(self.kinds.get(key, {}))  # type: ignore[arg-type]

    @property
    def text(self) -> tuple[str, ...]:
        """The columns whose cells have to be read as they are written."""
        return (*(name for key in self.kinds for name in self.of(key)), *self.merge)

    def made(self, names: Iterable[str]) -> list[str]:
        """Columns of a file as the columns that are made of them."""
        kinds = [(KINDS[key], self.of(key).items()) for key in self.kinds]
        of = {name: kind.columns(name, how) for kind, columns in kinds for name, how in columns}
        return [column for name in names for column in of.get(name, [name])]

    def sources(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a file from which columns of the table are made."""
        read = (name for key in self.kinds for name in self.of(key))
        of = {made: name for name in read for made in self.made([name])}
        return tuple(dict.fromkeys(of.get(name, name) for name in names))

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, for JSON."""
        plain = Reading()
        kept = {k: v for k, v in asdict(self).items() if k != "kinds" and v != getattr(plain, k)}
        kept |= {key: KINDS[key].stored(self.of(key)) for key in self.kinds}
        return {key: [*v] if isinstance(v, tuple) else v for key, v in kept.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Reading":
        """The inverse of `to_dict`."""
        plain = {key: value for key, value in data.items() if key not in KINDS}
        return cls(**plain, kinds={key: data[key] for key in KINDS if key in data})


def is_delimiter(text: str) -> bool:
    """Whether a text can stand between cells."""
    return len(text) == 1 and text not in "\"'\r\n\0" and not text.isalnum()


PLAIN = Reading()  # tables as a program writes them
