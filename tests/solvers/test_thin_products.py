"""Products of few columns: against sums of exact products."""

from __future__ import annotations

import numpy as np
import pytest

from bonafed.solvers.kernels.thin_products import BYTES, multiply


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


@pytest.mark.parametrize("shape", [(0, 3, 1), (1, 1, 1), (7, 4, 2), (9, 5, 3), (20, 48, 2)])
@pytest.mark.parametrize("largest", [9, 2**15 - 1])
def test_integers_are_pairs_of_sixteen_bits(shape, largest):
    """Sums are those of NumPy's 64 bits; beyond 2^31 they are the same but for multiples of 2^32,
    on every processor.
    """
    rng = np.random.default_rng(6)
    m, count, vectors = shape
    wide = 16 * vectors
    A = rng.integers(-largest, largest + 1, (m, count, 2)).astype(np.int16)
    B = rng.integers(-largest, largest + 1, (count, wide, 2)).astype(np.int16)
    if m > 1:
        A[0], A[1], B[:, 0] = largest, -largest, -largest  # the ends
    before = rng.integers(-(2**31), 2**31, (m, wide)).astype(np.int32)
    products = np.einsum("mcp,cwp->mw", A.astype(np.int64), B.astype(np.int64))
    a, b = A.reshape(-1).view(np.int32), B.reshape(count, 2 * wide).view(np.int32)
    for new in (True, False):
        C = before.copy()
        multiply(a, 0, count, 1, b, C, (m, count, wide), new)
        expected = products if new else products + before
        np.testing.assert_array_equal(C, expected.astype(np.int32))
    if largest == 9:
        assert np.abs(products).max(initial=0) < 2**31
