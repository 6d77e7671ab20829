"""Products of few columns: against sums of exact products."""

from __future__ import annotations

import numpy as np
import pytest

from quorate.solvers.kernels.thin_products import columns, multiply, multiply_narrow

SHAPES = [(0, 3, 1), (1, 1, 1), (5, 4, 2), (6, 0, 1), (7, 9, 1), (13, 30, 2), (25, 61, 3)]


def numbers(rng: np.random.Generator, kind: type, *shape: int) -> np.ndarray:
    """Small whole numbers, of which sums and products are exact in either precision."""
    return rng.integers(-9, 10, shape).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("turned", [False, True])
def test_products_and_sums_of_products(kind, shape, turned):
    rng = np.random.default_rng(1)
    m, count, blocks = shape
    wide = blocks * columns(np.dtype(kind).itemsize)
    A = numbers(rng, kind, count, m).T if turned else numbers(rng, kind, m, count)
    B, before = numbers(rng, kind, count, wide), numbers(rng, kind, m, wide)
    room = np.vstack([np.full((1, wide), 99, kind), before, np.full((1, wide), 99, kind)])
    for new in (False, True):
        room[1:-1] = before if not new else np.nan  # whatever stood there
        multiply(A, B, room[1:-1], new)
        expected = A.astype(int) @ B.astype(int) + (0 if new else before.astype(int))
        np.testing.assert_array_equal(room[1:-1], expected)
        assert (room[[0, -1]] == 99).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_parts_of_arrays_and_rows_of_fewer_columns(kind):
    rng = np.random.default_rng(2)
    wide = columns(np.dtype(kind).itemsize)
    A, B = numbers(rng, kind, 20, 11), numbers(rng, kind, 12, wide - 3)
    C = np.empty((9, wide), kind)
    multiply(A[3:12, :-1], B[:10], C, True)
    np.testing.assert_array_equal(C[:, :-3], A[3:12, :-1].astype(int) @ B[:10].astype(int))


def test_sums_are_as_exact_as_a_library():
    rng = np.random.default_rng(3)
    A, B = (
        rng.random((40, 784)).astype(np.float32),
        rng.standard_normal((784, 64)).astype(np.float32),
    )
    C = np.empty((40, 64), np.float32)
    multiply(A, B, C, True)
    exact = A.astype(float) @ B.astype(float)
    assert abs(C - exact).max() <= 4 * abs(A @ B - exact).max()


@pytest.mark.parametrize(
    "shape", [(0, 3, 8), (1, 1, 8), (7, 4, 16), (8, 0, 8), (9, 5, 24), (20, 21, 16)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_narrow_products_and_sums_of_products(shape, turned):
    rng = np.random.default_rng(4)
    m, count, wide = shape
    room = numbers(rng, np.float64, 2, max(1, m * count))
    A = room[1, : m * count].reshape((count, m) if turned else (m, count))
    B, before = numbers(rng, np.float64, count, wide), numbers(rng, np.float64, m, wide)
    A = A.T if turned else A
    across, along = (1, m) if turned else (count, 1)
    for new in (False, True):
        C = np.vstack(
            [before if not new else np.full_like(before, np.nan), np.full((1, wide), 99.0)]
        )
        multiply_narrow(room, room.shape[1], across, along, B, C, (m, count, wide), new)
        expected = A.astype(int) @ B.astype(int) + (0 if new else before.astype(int))
        np.testing.assert_array_equal(C[:-1], expected)
        assert (C[-1] == 99).all()


def test_narrow_products_of_a_row_do_not_depend_on_the_others():
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((19, 40)), rng.standard_normal((40, 16))
    C = np.empty((19, 16))
    multiply_narrow(A, 0, 40, 1, B, C, (19, 40, 16), True)
    for m in range(1, 19):
        part = np.empty((m, 16))
        multiply_narrow(A, 0, 40, 1, B, part, (m, 40, 16), True)
        np.testing.assert_array_equal(part, C[:m])
