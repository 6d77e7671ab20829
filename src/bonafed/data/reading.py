"""How tables are read that are not as a program would write them: what a person declares once.

Nothing of it is read off the rows, so that every row is read by itself, at every client and in
every later table alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

ENCODINGS = ("utf-8", "latin-1", "cp1252", "utf-16")
ORDERS = ("ymd", "dmy", "mdy")
PARTS = ("year", "month", "weekday", "days")


@dataclass(frozen=True)
class Dates:
    """A column of dates: the ``order`` in which day, month and year stand, and the numbers that
    are made of a date, each a separate column such as "admitted year".

    ``parts``: the year, the month from 1 to 12, the weekday from 1 (Monday) to 7, and the days
    since the first of January 2000.
    """

    order: str
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {ORDERS}, got {self.order!r}.")
        if not self.parts or not {*self.parts} <= {*PARTS}:
            raise ValueError(f"parts must be some of {PARTS}, got {self.parts!r}.")

    def columns(self, name: str) -> dict[str, str]:
        """The columns that a column of dates becomes, by part."""
        return {part: f"{name} {part}" for part in PARTS if part in self.parts}


def is_censored(name: str) -> str:
    """The column that says which cells of a censored column are limits."""
    return f"{name} is censored"


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
    dates : columns of dates, ``{column: Dates(order, parts)}``
    censored : columns of numbers in which "<0.5" is half of the limit and ">100" the limit; a
        feature "... is censored" says in which rows
    merge : ``{column: {text as it stands: text}}``, such as ``{"sex": {"M": "male"}}``
    drop_missing_target, drop_missing_client : leave out rows without target, or without client

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
    dates: Mapping[str, Dates] = field(default_factory=dict)
    censored: tuple[str, ...] = ()
    merge: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drop_missing_target: bool = False
    drop_missing_client: bool = False

    def __post_init__(self) -> None:
        for key in ("missing", "exclude", "censored"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        if self.encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {ENCODINGS}, got {self.encoding!r}.")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}.")
        if self.delimiter is not None and not is_delimiter(self.delimiter):
            raise ValueError(f"delimiter must be one character, got {self.delimiter!r}.")

    @property
    def text(self) -> tuple[str, ...]:
        """The columns whose cells have to be read as they are written."""
        return (*self.dates, *self.censored, *self.merge)

    def made(self, names: Iterable[str]) -> list[str]:
        """Columns of a file as the columns that are made of them."""
        made = {name: [name, is_censored(name)] for name in self.censored}
        made |= {name: [*how.columns(name).values()] for name, how in self.dates.items()}
        return [column for name in names for column in made.get(name, [name])]

    def sources(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a file from which columns of the table are made."""
        of = {made: name for name in (*self.censored, *self.dates) for made in self.made([name])}
        return tuple(dict.fromkeys(of.get(name, name) for name in names))

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, for JSON."""
        plain, whole = Reading(), asdict(self)
        kept = {f.name: whole[f.name] for f in fields(self)}
        kept["dates"] = {n: {"order": d.order, "parts": [*d.parts]} for n, d in self.dates.items()}
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in kept.items()
            if getattr(self, key) != getattr(plain, key)
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reading:
        """The inverse of `to_dict`."""
        dates = {n: Dates(d["order"], tuple(d["parts"])) for n, d in data.get("dates", {}).items()}
        return cls(**{**data, "dates": dates})


def is_delimiter(text: str) -> bool:
    """Whether a text can stand between cells."""
    return len(text) == 1 and text not in "\"'\r\n\0" and not text.isalnum()


PLAIN = Reading()  # tables as a program writes them
