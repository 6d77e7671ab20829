"""Products with packed symmetric matrices."""

import numpy as np
import pytest

from bonafed.solvers.kernels.packed_matrices import packed, times


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("D", [1, 2, 3, 8, 33])
def test_products(D, dtype):
    rng = np.random.default_rng(D)
    square, x = rng.normal(size=(D, D)), rng.normal(size=D).astype(dtype)
    A = (square + square.T).astype(dtype)
    y = np.full(D, np.nan, dtype)
    times(packed(A), x, y)
    np.testing.assert_allclose(
        y, A.astype(float) @ x.astype(float), rtol=0, atol=40 * D * np.finfo(dtype).eps
    )


def test_what_is_not_finite_stays_so():
    y = np.zeros(3)
    times(packed(np.eye(3)), np.array([1.0, np.nan, 2.0]), y)
    assert np.isnan(y).any()
