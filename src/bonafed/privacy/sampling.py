"""Poisson sampling: each row is taken independently, with one probability, by a secret coin.

Whether a row is taken must not be known, and must not depend on which other rows there are: then
a row that takes part seldom is protected by less noise (docs/private.md, "Sampling").
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bonafed.privacy import keystream


def taken(key: bytes, rows: int, probability: float) -> NDArray[np.intp]:
    """The positions of the rows that are taken, in their order.

    Row i is taken where the i-th word of the key stream, of 64 bits, is below probability 2^64, cut
    to a whole number. So its probability is exactly a multiple of 2^-64, and no more than the one
    that is accounted for.

    Examples
    --------
    >>> from bonafed.privacy.sampling import taken
    >>> len(taken(bytes(32), 10_000, 0.1))
    974
    """
    if probability >= 1:
        return np.arange(rows)
    below = math.floor(Fraction(probability) * 2**64)
    return np.flatnonzero(keystream.words(key, 0, rows) < np.uint64(below))
