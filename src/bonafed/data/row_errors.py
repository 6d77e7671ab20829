"""Errors about rows: which client, which column, which lines of which file, what is wrong, what to
do; and none of their values where a run is private, or where nobody knows yet whether it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

Place = Callable[[Sequence[int]], str]
_shown = ContextVar("_shown", default=False)  # whether this is in a run that is not private


class RowError(ValueError):
    """An error about rows of a client or of a table.

    ``shown`` is the one part of the text that may have values of rows, or what was read off them,
    and the only one that a private run leaves out (`withheld`). ``rows`` are positions in the
    client's table, which `placed` translates into lines of its file.
    """

    def __init__(
        self,
        where: str,
        what: str,
        *,
        shown: str = "",
        rows: Sequence[int] = (),
        do: str,
        place: Place | None = None,
    ) -> None:
        self.where, self.what, self.shown, self.do = where, what, shown, do
        self.rows, self.place = [int(row) for row in rows], place or in_table
        at = f" in {self.place(self.rows)}" if self.rows else ""
        said = f"{where}{': ' if where else ''}{what}{shown}{at}"
        super().__init__(f"{said}{'' if said.endswith('?') else '.'} {do}")

    def withheld(self) -> RowError:
        """The error without what it shows of the rows."""
        return self._with(shown="")

    def placed(self, place: Place) -> RowError:
        """The error with the rows where ``place`` says that they are."""
        return self._with(place=place)

    def located(self, tables: Mapping[str, Located]) -> RowError:
        """The error with the rows where the table that it is about says that they are."""
        return self.placed(tables[self.where].place) if self.where in tables else self

    def reworded(self, words: Callable[[str], str]) -> RowError:
        """The error with what is wrong and what to do in other words."""
        return self._with(what=words(self.what), do=words(self.do))

    def _with(self, **changes: Any) -> RowError:
        keys = ("where", "what", "shown", "rows", "do", "place")
        return RowError(**{key: getattr(self, key) for key in keys} | changes)


class RowErrors(RowError):  # noqa: N818
    """Several errors about one table or federation, a line each."""

    def __init__(self, errors: Sequence[RowError]) -> None:
        self.errors = tuple(errors)
        super().__init__("", "", do="")
        self.args = ("\n".join(map(str, self.errors)),)

    def _with(self, **changes: Any) -> RowErrors:
        return RowErrors([error._with(**changes) for error in self.errors])

    def located(self, tables: Mapping[str, Located]) -> RowErrors:
        return RowErrors([error.located(tables) for error in self.errors])

    def reworded(self, words: Callable[[str], str]) -> RowErrors:
        return RowErrors([error.reworded(words) for error in self.errors])


class Faults:
    """Gathers the errors of several columns, the first of each, and raises them together where the
    ``with`` statement ends.
    """

    def __init__(self) -> None:
        self.errors: dict[str, RowError] = {}

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        errors = [*self.errors.values()]
        if errors and isinstance(error, RowError):
            raise RowErrors([*errors, error]) from None
        if errors and error is None:
            raise errors[0] if len(errors) == 1 else RowErrors(errors)

    @contextmanager
    def of(self, column: str) -> Iterator[None]:
        """Gather an error about a column."""
        try:
            yield
        except RowErrors as several:
            for k, error in enumerate(several.errors):
                self.errors.setdefault(f"{column} {k}", error)
        except RowError as error:
            self.errors.setdefault(column, error)


class Located(Protocol):
    """A table that knows where its rows are from."""

    def place(self, rows: Sequence[int]) -> str: ...


def in_table(rows: Sequence[int]) -> str:
    """Rows of an array, counted as Python does."""
    return f"{listed(rows, 'row')} (from 0)"


@contextmanager
def located(tables: Mapping[Any, Located], kind: str = "client") -> Iterator[None]:
    """Errors about a client of ``tables`` name the lines of its file."""
    try:
        yield
    except RowError as error:
        known = {f"{kind} {name!r}": table for name, table in tables.items()}
        raise error.located(known) from None


@contextmanager
def without_values(private: bool) -> Iterator[None]:
    """In a private run errors leave without values of rows: in no text, cause or context."""
    before = _shown.set(not private)
    try:
        yield
    except RowError as error:
        if not private:
            raise
        kept = error.withheld()
    else:
        return
    finally:
        _shown.reset(before)
    try:
        raise kept
    finally:
        kept.__context__ = None  # the `with` statement handles the error with the values still


@contextmanager
def before_a_problem() -> Iterator[None]:
    """Where a federation is made, which may be for a private run: errors say where a row is, and
    show its values only in a run that is known not to be private.
    """
    with without_values(not _shown.get()):
        yield


def listed(items: Iterable[object], what: str) -> str:
    """The first few items in words: rows 1, 5, 9, 10, 11, ... (12 in all)."""
    words = list(map(str, items))
    more = f", ... ({len(words)} in all)" if len(words) > 5 else ""
    return f"{what}{'s' if len(words) > 1 else ''} {', '.join(words[:5])}{more}"
