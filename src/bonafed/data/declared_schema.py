"""Features made from declarations only, and rows held out one by one, so that nothing depends on
other rows.

A fitted scale, a shuffled split or a split by class moves many rows where one record changes. For
private runs every row's features and its side are functions of that row and of public numbers, so
that one record moves one row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.data.federation import Federation
from bonafed.data.persons import is_held
from bonafed.data.reading import PLAIN, Reading
from bonafed.data.schema import Categorical, Numeric, Schema
from bonafed.data.validation import Rows


def declared_schema(
    features: Sequence[str],
    declared: Mapping[str, Mapping[str, Any]],
    target: str | None,
    classes: ArrayLike | None = None,
    reading: Reading = PLAIN,
    unit: bool = False,
) -> Schema:
    """The schema of ``features``, each made as ``declared`` says; one without a declaration is
    taken as it is.

    ``declared`` has for a column ``{"min", "max"}`` (made 0 to 1), ``{"mean", "scale"}``,
    ``{"categories"}`` or ``{}``; ``missing`` is the number that stands for none (by default that
    which becomes 0, of a range its middle), and ``indicator`` asks for a separate feature.
    ``unit``: ranges are made -1 to 1, and every row is then divided by its length, so that all rows
    count alike where gradients are clipped: `PrivateSGD(bound=1)` is made for such rows.
    """
    columns = tuple(_column(name, declared.get(name, {}), unit) for name in features)
    known = None if classes is None else tuple(np.asarray(classes).tolist())
    return Schema(columns, target, known, reading=reading, unit=unit)


def _column(name: str, how: Mapping[str, Any], centred: bool) -> Numeric | Categorical:
    if "categories" in how:
        return Categorical(name, tuple(how["categories"]))
    if "min" in how:
        centre, scale = float(how["min"]), float(how["max"]) - float(how["min"])
        middle = centre + scale / 2
        centre, scale = (middle, scale / 2) if centred else (centre, scale)
    else:
        centre, scale = float(how.get("mean", 0.0)), float(how.get("scale", 1.0))
        middle = centre
    return Numeric(
        name, float(how.get("missing", middle)), centre, scale, bool(how.get("indicator", False))
    )


def apart(fed: Federation, share: float, seed: int) -> tuple[Federation, Federation | None]:
    """(train, test): every row by itself is held out with probability ``share``, decided by its own
    values, or by its person's name where persons are known.

    Equal rows are on the same side, and so are those of a person. A client all of whose rows are
    held out is not in train.
    """
    if fed.persons is None:
        held = [_held(fed.X[i], fed.y[i], share, seed) for i in range(fed.n_clients)]
    else:
        held = [np.array([is_held(p, share, seed) for p in who]) for who in fed.persons]
    if all(part.all() for part in held):
        raise ValueError(
            "no client has a row left to train on: give a smaller data.test, or more rows."
        )
    train = fed._where([~part for part in held])
    return train, fed._where(held) if any(part.any() for part in held) else None


def _held(X: Rows, y: NDArray[Any], share: float, seed: int) -> NDArray[np.bool_]:
    """(m,) True on the rows held out."""
    return np.array([number < share * 2**64 for number in drawn(X, y, seed)], dtype=bool)


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
