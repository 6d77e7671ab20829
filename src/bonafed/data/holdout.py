"""Rows held out: a share of every client's, or person by person, so that nobody is on both sides
of a split.

A person who has rows at one client only is held out there, as a row would be: a share of the
persons, class by class. Whether one who has rows at several clients is held out follows from the
name and the seed only, at all of them alike.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import ONE_STREAM, Slices, stream, stream_key
from bonafed.client_names import ClientName
from bonafed.data.validation import Rows


def held_out(
    clients: Sequence[ClientName],
    targets: Sequence[NDArray],
    test: float,
    seed: int,
    by_class: bool,
    persons: Sequence[NDArray] | None = None,
) -> Sequence[NDArray[np.bool_]]:
    """For every client (m_i,) True on the rows that are held out."""
    if not 0 < test < 1:
        raise ValueError(
            f"test must lie in (0, 1), got {test}: it is the share of every client's rows to hold"
            " out."
        )
    if persons is None and isinstance(targets, Slices):
        return _of_slices(clients, targets, test, seed, by_class)
    if persons is None:
        rows = zip(clients, targets, strict=True)
        return [_of_client(name, y, test, seed, by_class) for name, y in rows]
    at_several, held = shared(persons), []
    for client, y, who in zip(clients, targets, persons, strict=True):
        names, code = np.unique(who, return_inverse=True)
        # the largest class of a person counts, so that a rare one is on both sides
        values, classes = np.unique(y, return_inverse=True)
        largest = np.zeros(len(names), dtype=np.intp)
        np.maximum.at(largest, code, classes)
        own = np.array([name not in at_several for name in names.tolist()])
        out = np.array([is_held(name, test, seed) for name in names.tolist()])
        if own.any():
            out[own] = _of_client(client, values[largest[own]], test, seed, by_class)
        held.append(out[code])
    return held


def shared(persons: Iterable[NDArray]) -> set[str]:
    """The persons that several clients have rows of."""
    homes = Counter(name for part in persons for name in {*part.tolist()})
    return {name for name, count in homes.items() if count > 1}


def is_held(person: str, share: float, seed: int) -> bool:
    """Whether a person is held out, by name and seed only."""
    return draw(person, seed) < share


def draw(person: str, seed: int) -> float:
    """A number from 0 to below 1 that follows from a person's name and the seed only."""
    key = f"set aside {seed}".encode()
    drawn = hashlib.blake2b(str(person).encode(), digest_size=8, key=key).digest()
    return (int.from_bytes(drawn, "little") >> 11) / 2**53


def _of_client(
    client: ClientName, y: NDArray[Any], test: float, seed: int, stratify: bool
) -> NDArray[np.bool_]:
    """(m,) True on the rows of one client that are held out: every (m / k)-th of them, shuffled and
    sorted by class.
    """
    n = len(y)
    k, rng = min(max(round(test * n), 1), n - 1), stream(seed, client, 0)
    order = rng.permutation(n)
    if stratify:
        order = order[np.argsort(y[order], kind="stable")]
    steps = (np.arange(n + 1) * k + rng.integers(n)) // n  # integers, so exactly k of them rise
    held = np.zeros(n, dtype=bool)
    held[order[np.diff(steps) > 0]] = True
    return held


def _of_slices(
    clients: Sequence[ClientName], y: Slices, test: float, seed: int, stratify: bool
) -> Slices:
    """The same of all clients at once."""
    n = y.sizes
    order, begin = np.zeros(len(y.whole), np.intp), np.zeros(len(n), np.intp)
    for i, (name, start, m) in enumerate(zip(clients, y.cuts.tolist(), n.tolist(), strict=False)):
        if m > 1:  # else nothing is held out
            rng = ONE_STREAM.at(stream_key(seed, name), 0)
            order[start : start + m], begin[i] = rng.permutation(m), rng.integers(m)
    k = np.minimum(np.maximum(np.rint(test * n), 1), n - 1).astype(np.intp)
    start, begin, k, m = (np.repeat(each, n) for each in (y.cuts[:-1], begin, k, n))
    at = np.arange(len(order)) - start
    order += start
    if stratify:
        classes = np.unique(y.whole, return_inverse=True)[1]
        order = order[np.lexsort((classes[order], start))]
    held = np.zeros(len(order), dtype=bool)
    held[order] = ((at + 1) * k + begin) // m > (at * k + begin) // m
    return y.of(held)


def drawn(X: Rows, y: NDArray[Any], seed: int) -> list[int]:
    """For each of m rows a number from 0 to below 2^64 that follows from its own values and the
    seed only: equal rows have equal numbers, and no row changes that of another.
    """
    dense = np.ascontiguousarray(X if isinstance(X, np.ndarray) else X.toarray(), dtype=np.float64)
    key = f"set aside {seed}".encode()
    each = zip(dense, y.tolist(), strict=True)
    texts = (row.tobytes() + repr(target).encode() for row, target in each)
    digests = (hashlib.blake2b(text, digest_size=8, key=key).digest() for text in texts)
    return [int.from_bytes(digest, "little") for digest in digests]
