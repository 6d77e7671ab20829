"""Quadratic programs with equality constraints: their law, and exact solutions against Clarabel."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import bonafed as bf
from bonafed.papers.constrained.lcqp import LCQP, exact, lcqp, rows_of, value, with_multipliers


@pytest.mark.parametrize(
    "sizes",
    [(40, 1, 1), (40, 5, 2), (30, 9, 3)],  # the last: w is determined by its rows
)
def test_exact_solutions_are_those_of_clarabel(sizes):
    fed = lcqp(*sizes, 7)
    (w, mu), v, (C, d), A = exact(fed), cp.Variable(sizes[0]), rows_of(fed), sum(fed.X)
    equations = C @ v + d == 0
    objective = cp.quad_form(v, cp.psd_wrap(A)) / 2 + sum(fed.y) @ v
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    least = cp.Problem(cp.Minimize(objective), [equations]).solve(solver="CLARABEL", **tight)
    assert_allclose(w, v.value, rtol=1e-6, atol=1e-7 * np.abs(w).max())
    assert_allclose(mu, equations.dual_value, rtol=1e-6, atol=1e-6 * np.abs(mu).max())
    assert_allclose(value(fed, w), least, rtol=1e-8)
    assert_allclose(value(fed, w), LCQP.objective(w, fed), rtol=1e-12)


@pytest.mark.parametrize("sizes", [(60, 1, 3), (60, 10, 3)])
def test_residuals_of_the_kkt_system_are_rounding(sizes):
    fed = lcqp(*sizes, 3)
    (w, mu), (C, d) = exact(fed), rows_of(fed)
    scale = max(1.0, np.abs(w).max(), np.abs(mu).max())
    assert np.abs(sum(fed.X) @ w + sum(fed.y) + C.T @ mu).max() <= 1e-12 * scale
    assert np.abs(C @ w + d).max() <= 1e-13 * scale
    assert LCQP.violation(w, fed) <= 1e-13 * scale


def test_instances_are_as_section_e2_says():
    fed = lcqp(50, 4, 3, 11)
    C, d = rows_of(fed)
    assert C.shape == (15, 50)
    assert fed.clients == tuple(f"client {i}" for i in range(1, 5))
    for A, b in zip(fed.X, fed.y, strict=True):
        values = np.linalg.eigvalsh(A)
        assert values[0] >= 0.5 - 1e-12
        assert values[-1] <= 1 + 1e-12
        assert values[-1] - values[0] > 0.4
        assert_allclose(np.linalg.norm(b), 1)
    assert_allclose(np.linalg.norm(d.reshape(5, 3), axis=1), 1)
    assert_allclose(C.var(), 1 / 50, rtol=0.2)  # 750 draws: standard deviation 5 %
    assert abs(C.mean()) < 0.02


def test_streams_belong_to_their_owners():
    fed, more, other = lcqp(20, 2, 1, 1), lcqp(20, 3, 1, 1), lcqp(20, 2, 1, 2)
    for i in range(2):
        assert_array_equal(fed.X[i], more.X[i])
        assert_array_equal(fed.linear[i][0], more.linear[i][0])
    assert np.abs(fed.X[0] - other.X[0]).max() > 0.01
    assert_array_equal(lcqp(20, 2, 1, 1).X[0], fed.X[0])


@pytest.mark.parametrize(
    ("sizes", "words"), [((10, 5, 2), "got d=10, n=5, m=2"), ((9, 0, 2), "=0")]
)
def test_sizes_without_a_solution_are_refused(sizes, words):
    with pytest.raises(ValueError, match=words):
        lcqp(*sizes, 0)


def test_a_start_at_multipliers_is_an_instance_at_zero():
    fed, rng = lcqp(40, 3, 2, 5), np.random.default_rng(0)
    mu = bf.Multipliers(rng.normal(size=2), np.zeros(0), rng.normal(size=(3, 2)))
    (w, found), (moved, left) = exact(fed), exact(with_multipliers(fed, mu))
    assert_allclose(moved, w, atol=1e-12)  # its rows still hold
    assert_allclose(left, found - np.concatenate([mu.server, mu.local.ravel()]), atol=1e-11)
