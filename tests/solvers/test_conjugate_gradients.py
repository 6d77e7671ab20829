"""Conjugate gradients against the pseudoinverse."""

import numpy as np
import pytest

from bonafed.solvers.smooth.stepwise import started, stepped


def solved(A, b, most=200):
    state = started(b, np.diag(A))
    for _ in range(most):
        if state.ended:
            break
        state = stepped(state, A @ state.direction)
    return state


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_a_regular_system_of_columns_of_all_sizes(scale):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((40, 12)) * np.logspace(-5, 5, 12)
    A, x = scale * F.T @ F, rng.standard_normal(12) / np.logspace(-5, 5, 12)
    state = solved(A, A @ x)
    assert state.ended
    assert state.x == pytest.approx(x, rel=1e-5)


def test_a_singular_system_with_a_solution():
    rng = np.random.default_rng(1)
    F = rng.standard_normal((5, 9))
    F[:, 3] = 0.0
    A, b = F.T @ F, F.T @ rng.standard_normal(5)
    state = solved(A, b)
    assert state.ended
    assert pytest.approx(b, abs=1e-6) == A @ state.x
    assert state.x[3] == 0.0


@pytest.mark.parametrize("b", [0.0, np.inf, np.nan])
def test_nothing_to_solve(b):
    state = started(np.array([b, 0.0]), np.ones(2))
    assert state.ended
    assert not state.x.any()


def test_without_curvature_along_it_nothing_moves():
    A = np.array([[1.0, -1.0], [-1.0, 1.0]])
    state = solved(A, np.ones(2))
    assert state.ended
    assert not state.x.any()
