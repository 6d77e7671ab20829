"""Products of few columns: against sums of exact products."""

from __future__ import annotations

import numpy as np
import pytest

from quorate.solvers.kernels.thin_products import BYTES, multiply


def numbers(rng: np.random.Generator, kind: type, *shape: int) -> np.ndarray:
    """Small whole numbers, of which sums and products are exact in either precision."""
    return rng.integers(-9, 10, shape).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(0, 3, 1), (1, 1, 1), (7, 4, 2), (8, 0, 1), (9, 5, 3), (20, 21, 2)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_products_and_sums_of_products(shape, turned, kind):
    rng = np.random.default_rng(4)
    m, count, vectors = shape
    wide = vectors * BYTES // np.dtype(kind).itemsize
    room = numbers(rng, kind, 2, max(1, m * count))
    A = room[1, : m * count].reshape((count, m) if turned else (m, count))
    B, before = numbers(rng, kind, count, wide), numbers(rng, kind, m, wide)
    A = A.T if turned else A
    across, along = (1, m) if turned else (count, 1)
    for new in (False, True):
        C = np.vstack(
            [before if not new else np.full_like(before, np.nan), np.full((1, wide), 99, kind)]
        )
        multiply(room, room.shape[1], across, along, B, C, (m, count, wide), new)
        expected = A.astype(int) @ B.astype(int) + (0 if new else before.astype(int))
        np.testing.assert_array_equal(C[:-1], expected)
        assert (C[-1] == 99).all()


def test_products_of_a_row_do_not_depend_on_the_others():
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((19, 40)), rng.standard_normal((40, 16))
    C = np.empty((19, 16))
    multiply(A, 0, 40, 1, B, C, (19, 40, 16), True)
    for m in range(1, 19):
        part = np.empty((m, 16))
        multiply(A, 0, 40, 1, B, part, (m, 40, 16), True)
        np.testing.assert_array_equal(part, C[:m])
