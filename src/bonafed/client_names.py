"""Client names: text as people read it (`plain`) or whole numbers, compared as text.

Everything that a user gives by client name (radii, priors, bounds, levels, stragglers, ...) is
resolved by `by_position`, so that every setting takes the same names and refuses the same mistakes.
"""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeVar

from bonafed.text import plain

ClientName = str | int
Value = TypeVar("Value")
ByClient = Mapping[str, Value] | Mapping[int, Value] | Mapping[ClientName, Value]


def client_name(name: object) -> ClientName:
    """The name as it is kept: a whole number stays one, everything else becomes text."""
    if isinstance(name, Integral) and not isinstance(name, bool):
        return int(name)
    return plain(str(name))


def texts(names: Iterable[object]) -> tuple[str, ...]:
    """The names as text; a tuple of texts as it is, which very many clients have several times."""
    text = tuple(map(str, names))
    return names if names == text else text  # type: ignore[return-value]


def repeated(names: Iterable[object]) -> list[str]:
    """The names that occur more than once when they are compared as text, sorted."""
    return sorted(text for text, count in Counter(map(str, names)).items() if count > 1)


def position(name: object, clients: Sequence[ClientName]) -> int:
    """The position of one client; raises ``ValueError`` with the nearest name if there is none."""
    return positions([name], clients)[0]


def positions(names: Iterable[object], clients: Sequence[ClientName]) -> list[int]:
    """The positions of several clients, as `position` gives them."""
    places, found = _places(clients), []
    for name in names:
        if (text := plain(str(name))) not in places:
            raise ValueError(f"there is no client {name!r}{closest(name, clients)}")
        found.append(places[text])
    return found


def by_position(
    values: Mapping[Any, Value],
    clients: Sequence[ClientName],
    what: str,
    *,
    all_clients: bool = True,
    others: bool = False,
) -> dict[int, Value]:
    """A mapping by client name as a mapping by the clients' positions, in ascending order.

    Parameters
    ----------
    what : the name of the setting, for errors
    all_clients : every client needs an entry
    others : entries of clients that are not among ``clients`` are left out instead of refused
    """
    places, by_place = _places(clients), {}
    for name, value in values.items():
        at = places.get(plain(str(name)))
        if at is None and not others:
            raise ValueError(f"{what} names {name!r}, who is not a client{closest(name, clients)}")
        if at in by_place:
            text = f"{what} names client {name!r} twice, as text and as a number"
            do = "names are compared as text. Leave one of the entries out."
            raise ValueError(f"{text}: {do}")
        if at is not None:
            by_place[at] = value
    missing = [name for at, name in enumerate(clients) if at not in by_place]
    if missing and all_clients:
        shown = ", ".join(map(repr, missing[:5])) + ", ..." * (len(missing) > 5)
        need = "it needs exactly one entry for each client."
        raise ValueError(f"{what} by client name has no entry for {shown}: {need}")
    return dict(sorted(by_place.items()))


def closest(name: object, known: Iterable[object]) -> str:
    """The end of an error about an unknown name: "; there are ... Did you mean ...?"."""
    names = list(known)
    texts = {str(name).lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(str(name).lower(), texts, n=1, cutoff=0.6)
    shown = ", ".join(map(repr, names[:12]))
    shown += f", ... ({len(names)} in all)" * (len(names) > 12)
    hint = f" Did you mean {texts[near[0]]!r}?" if near else ""
    return f"; there are {shown or 'none'}.{hint}"


def entry(table: Mapping[str, Value], name: str, what: str) -> Value:
    """The entry of a table by name; ``ValueError`` where it has none."""
    if name not in table:
        raise ValueError(f"there is no {what} {name!r}{closest(name, table)}")
    return table[name]


def _places(clients: Sequence[ClientName]) -> dict[str, int]:
    return {str(name): at for at, name in enumerate(clients)}
