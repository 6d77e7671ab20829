"""The conic builder against CVXPY and closed forms, its duals, and what it says when a solve
fails.
"""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bonafed.solvers.conic.builder import Model, Status

TOL = 1e-7  # both solvers stop at 1e-8 or less, on numbers of order one


@given(st.sampled_from([1.0, 1.3, 2.0, 4.0, math.inf]), st.integers(1, 6), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_norm_at_most_is_the_norm(p, n, seed):
    v = np.random.default_rng(seed).standard_normal(n)
    model = Model()
    t, x = model.variable(), model.variable(n)
    model.zero([(x, 1.0), -v])
    model.norm_at_most([(x, 2.0)], [(t, 1.0)], p)  # ||2 v|| <= t
    model.linear(t, 1.0)
    assert_allclose(model.solve().value, 2 * np.linalg.norm(v, p), rtol=1e-6)


def test_terms_select_repeat_and_multiply():
    """Minimise ||w||^2 / 2 + sum of r_k >= max over its rows of g'w + c: a two-piece maximum for
    each k.
    """
    rng = np.random.default_rng(2)
    gradients, offsets, k = (
        rng.standard_normal((8, 3)),
        rng.standard_normal(8),
        np.array([0, 1, 0, 0, 1, 1, 0, 1]),
    )
    model = Model()
    w, r = model.variable(3), model.variable(2)
    P = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]])
    model.quadratic(w, P)
    model.linear(r, 1.0)
    model.offset = 5.0
    handle = model.nonneg([(r[k], 1.0), (w, -gradients), -offsets])
    solution = model.solve()
    v = cp.Variable(3)
    pieces = [cp.max(gradients[k == j] @ v + offsets[k == j]) for j in (0, 1)]
    expected = cp.Problem(cp.Minimize(cp.quad_form(v, P) / 2 + pieces[0] + pieces[1])).solve(
        solver="CLARABEL"
    )
    assert_allclose(solution.value, expected + 5.0, rtol=TOL)
    multipliers = solution.z[handle]
    assert_allclose([multipliers[k == 0].sum(), multipliers[k == 1].sum()], 1.0, atol=TOL)
    assert_allclose(P @ solution.x[w] + gradients.T @ multipliers, 0.0, atol=1e-6)  # stationarity


def test_parabolas_and_exponentials_hold_row_by_row():
    """Minimise sum a_i with x_i^2 / 2 <= a_i and sum b_i with exp(x_i) <= b_i at fixed x."""
    x = np.array([-1.5, 0.0, 2.0])
    model = Model()
    a, b, y = model.variable(3), model.variable(3), model.variable(3)
    model.zero([(y, 1.0), -x])
    model.parabola([(y, 1.0)], [(a, 1.0)])
    model.exponential([(y, 1.0)], [1.0], [(b, 1.0)])
    model.linear(a, 1.0)
    model.linear(b, 1.0)
    solution = model.solve()
    assert_allclose(solution.x[a], x**2 / 2, atol=1e-6)
    assert_allclose(solution.x[b], np.exp(x), atol=1e-6)


def test_failures_are_named():
    infeasible = Model()
    x = infeasible.variable()
    infeasible.nonneg([(x, 1.0), -1.0])
    infeasible.nonneg([(x, -1.0)])
    assert infeasible.solve().status is Status.INFEASIBLE
    unbounded = Model()
    x = unbounded.variable()
    unbounded.linear(x, 1.0)
    unbounded.nonneg([(x, -1.0)])
    assert unbounded.solve().status is Status.UNBOUNDED
    with pytest.raises(
        ArithmeticError, match="the demand: the conic solver ended with 'DualInfeasible'"
    ):
        unbounded.solve().checked("the demand")
    short = Model()
    x = short.variable(3)
    short.soc([1.0], [(x, 1.0)])
    short.linear(x, np.array([1.0, 2.0, 3.0]))
    assert short.solve(max_iterations=1).status is Status.FAILED
    assert_allclose(short.solve().value, -math.sqrt(14), rtol=TOL)


def test_bad_numbers_are_refused():
    model = Model()
    x = model.variable(2)
    model.nonneg([(x, np.array([1.0, np.nan]))])
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.solve()
    with pytest.raises(ValueError, match="matrix has shape"):
        Model().nonneg([(x, np.ones((3, 4)))])


@pytest.mark.parametrize("wide", [True, False])
def test_a_coarse_solution_is_computed_again_where_that_is_not_too_much_work(monkeypatch, wide):
    """A program over many variables, of which Clarabel is said to have found a rough solution: the
    dense method makes it finer, unless Clarabel's work is next to none.
    """
    model, fine = Model(), []
    x = model.variable(250)
    model.linear(x, 1.0)
    model.nonneg([(x, 1.0), -1.0])
    model.nonneg([(x[1:], 1.0), (x[:-1], -1.0), 1.0])  # else they are those of many clients
    if wide:  # one row has all variables
        model.nonneg([(x, np.ones((1, 250)))])
    solve, dense = Model.solve, Model.solve_dense
    coarse = {"status": Status.ALMOST_SOLVED, "error": 1e-5}
    monkeypatch.setattr(Model, "solve", lambda *a: replace(solve(*a), **coarse))
    monkeypatch.setattr(Model, "solve_dense", lambda *a: fine.append(dense(*a)) or fine[0])
    solution = model.solve_fast(1e-9)
    assert_allclose(solution.value, 250, rtol=1e-8)
    assert len(fine) == wide
    assert (solution.status is Status.SOLVED) == wide
