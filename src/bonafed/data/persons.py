"""Rows held out person by person, so that nobody is on both sides of a split.

A person who has rows at one client only is held out there, as a row would be: a share of the
persons, class by class. Whether one who has rows at several clients is held out follows from the
name and the seed only, at all of them alike.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bonafed.client_names import ClientName
from bonafed.data import validation as check


def held_out(
    clients: Sequence[ClientName],
    targets: Sequence[NDArray],
    test: float,
    seed: int,
    by_class: bool,
    persons: Sequence[NDArray] | None = None,
) -> list[NDArray[np.bool_]]:
    """For every client (m_i,) True on the rows that are held out."""
    if persons is None:
        rows = zip(clients, targets, strict=True)
        return [check.held_out(name, y, test, seed, by_class) for name, y in rows]
    at_several = shared(persons)
    return [
        _by_person(*of, test, seed, by_class, at_several)
        for of in zip(clients, targets, persons, strict=True)
    ]


def shared(persons: Iterable[NDArray]) -> set[str]:
    """The persons that several clients have rows of."""
    homes = Counter(name for part in persons for name in {*part.tolist()})
    return {name for name, count in homes.items() if count > 1}


def _by_person(
    client: ClientName,
    y: NDArray,
    persons: NDArray,
    test: float,
    seed: int,
    by_class: bool,
    at_several: set[str],
) -> NDArray[np.bool_]:
    names, code = np.unique(persons, return_inverse=True)
    # the largest class of a person counts, so that a rare one is on both sides
    values, classes = np.unique(y, return_inverse=True)
    largest = np.zeros(len(names), dtype=np.intp)
    np.maximum.at(largest, code, classes)
    own = np.array([name not in at_several for name in names.tolist()])
    held = np.array([is_held(name, test, seed) for name in names.tolist()])
    if own.any():
        held[own] = check.held_out(client, values[largest[own]], test, seed, by_class)
    return held[code]


def is_held(person: str, share: float, seed: int) -> bool:
    """Whether a person is held out, by name and seed only."""
    return draw(person, seed) < share


def draw(person: str, seed: int) -> float:
    """A number from 0 to below 1 that follows from a person's name and the seed only."""
    key = f"set aside {seed}".encode()
    drawn = hashlib.blake2b(str(person).encode(), digest_size=8, key=key).digest()
    return (int.from_bytes(drawn, "little") >> 11) / 2**53
