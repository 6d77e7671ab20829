"""How tables are read that are not as a program would write them: what a person declares once.

Nothing of it is read off the rows, so that every row is read by itself, at every client and in
every later table alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bonafed.data.column_kinds import KINDS

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
    kinds : columns of the kinds in `bonafed.data.column_kinds`, by kind: "dates", columns of dates,
        ``{column: Dates(order, parts)}``; "censored", a list of columns of numbers in which "<0.5"
        is half of the limit and ">100" the limit; a feature "... is censored" says in which rows
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
    kinds: Mapping[str, Mapping[str, Any] | Sequence[str]] = field(default_factory=dict)
    merge: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drop_missing_target: bool = False
    drop_missing_client: bool = False

    def __post_init__(self) -> None:
        for key in ("missing", "exclude"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
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
        of = {
            name: KINDS[key].columns(name, how)
            for key in self.kinds
            for name, how in self.of(key).items()
        }
        return [column for name in names for column in of.get(name, [name])]

    def sources(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a file from which columns of the table are made."""
        read = (name for key in self.kinds for name in self.of(key))
        of = {made: name for name in read for made in self.made([name])}
        return tuple(dict.fromkeys(of.get(name, name) for name in names))

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, for JSON."""
        plain = Reading()
        kept = {key: v for key, v in asdict(self).items() if v != getattr(plain, key)}
        kept.pop("kinds", None)
        kept |= {key: KINDS[key].stored(self.of(key)) for key in self.kinds}
        return {key: [*v] if isinstance(v, tuple) else v for key, v in kept.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reading:
        """The inverse of `to_dict`."""
        plain = {key: value for key, value in data.items() if key not in KINDS}
        return cls(**plain, kinds={key: data[key] for key in KINDS if key in data})


def is_delimiter(text: str) -> bool:
    """Whether a text can stand between cells."""
    return len(text) == 1 and text not in "\"'\r\n\0" and not text.isalnum()


PLAIN = Reading()  # tables as a program writes them
