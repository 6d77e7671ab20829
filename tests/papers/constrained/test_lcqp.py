"""Quadratic programs with equality constraints: their law, and the one-shot solution against
Clarabel and KKT.
"""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import bonafed as bf
from bonafed.papers.constrained.lcqp import LCQP, aggregate, lcqp


def rows_of(fed):
    """All C and d, the server's first."""
    parts = [*fed.server.linear, *fed.linear]
    return np.concatenate([C for C, _ in parts]), np.concatenate([d for _, d in parts])


def flat(mu):
    return np.concatenate([mu.server, mu.local.ravel()])


def clarabel(fed):
    """(w, multipliers, value) by CVXPY; its Lagrangian has + nu'(C w + d) too."""
    w = cp.Variable(fed.n_features)
    C, d = rows_of(fed)
    equations = C @ w + d == 0
    A = sum(fed.X)
    value = cp.Problem(
        cp.Minimize(cp.quad_form(w, cp.psd_wrap((A + A.T) / 2)) / 2 + sum(fed.y) @ w), [equations]
    ).solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return w.value, equations.dual_value, value


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((40, 1, 1), {}),
        ((40, 5, 2), {}),
        ((30, 9, 3), {}),  # as many rows as coefficients: w is determined by them
        ((40, 5, 2), {"condition": 1e4}),
        ((40, 5, 2), {"singular": 2}),
    ],
)
def test_one_shot_solution_is_that_of_clarabel(sizes, options):
    fed = lcqp(*sizes, 7, **options)
    w, mu, value = aggregate(fed)
    expected = clarabel(fed)
    assert_allclose(w, expected[0], rtol=1e-6, atol=1e-7 * np.abs(expected[0]).max())
    assert_allclose(flat(mu), expected[1], rtol=1e-6, atol=1e-6 * np.abs(flat(mu)).max())
    assert_allclose(value, expected[2], rtol=1e-8)
    assert mu.server.shape == (sizes[2],)
    assert mu.local.shape == sizes[1:]
    assert mu.shared.shape == (0,)


@pytest.mark.parametrize("options", [{}, {"condition": 1e8}, {"singular": 3}, {"redundant": True}])
@pytest.mark.parametrize("sizes", [(60, 1, 3), (60, 10, 3)])
def test_residuals_of_the_kkt_system_are_rounding(sizes, options):
    fed = lcqp(*sizes, 3, **options)
    w, mu, value = aggregate(fed)
    C, d = rows_of(fed)
    A, b, m = sum(fed.X), sum(fed.y), flat(mu)
    scale = max(1.0, np.abs(A).max() * np.abs(w).max(), np.abs(m).max())
    assert np.abs(A @ w + b + C.T @ m).max() <= 1e-12 * scale
    assert np.abs(C @ w + d).max() <= 1e-13 * max(1.0, np.abs(w).max())
    assert_allclose(LCQP.objective(w, fed), value, rtol=1e-12, atol=1e-13)
    assert LCQP.violation(w, fed) <= 1e-13 * max(1.0, np.abs(w).max())


def test_multipliers_of_redundant_rows_are_those_of_least_norm():
    fed = lcqp(40, 3, 2, 5, redundant=True)
    w, mu, _ = aggregate(fed)
    C, _ = rows_of(fed)
    pull = sum(fed.X) @ w + sum(fed.y)
    assert np.linalg.matrix_rank(C) == 6
    assert_allclose(flat(mu), np.linalg.pinv(C.T) @ -pull, rtol=1e-10)


def test_contradictions_name_their_rows_and_clients():
    fed = lcqp(40, 3, 2, 5, infeasible=True)
    with pytest.raises(
        ValueError, match=r"no w meets all rows of C w \+ d = 0: row \d of .* contradict"
    ):
        aggregate(fed)
    first, *rest = fed.linear
    # client 3 asks what contradicts client 2, and nobody else
    rest[1] = (rest[0][0].copy(), rest[0][1] + 1)
    lone = bf.Federation.from_quadratics(
        fed.X,
        fed.y,
        [fed.server.linear[0][0], first[0], *[C for C, _ in rest]],
        [fed.server.linear[0][1], first[1], *[d for _, d in rest]],
    )
    with pytest.raises(ValueError, match="contradict one another") as caught:
        aggregate(lone)
    text = str(caught.value)
    assert "'client 2'" in text
    assert "'client 3'" in text
    assert "'client 1'" not in text
    assert "'server'" not in text


def test_objectives_without_a_lower_bound_are_refused():
    fed = bf.Federation.from_quadratics([np.diag([1.0, 0.0])], [np.ones(2)])
    with pytest.raises(ValueError, match="falls without bound on the rows"):
        aggregate(fed)
    bounded = bf.Federation.from_quadratics([np.diag([1.0, 0.0])], [np.array([1.0, 0.0])])
    assert_allclose(aggregate(bounded)[0], [-1.0, 0.0], atol=1e-15)  # many optima: the shortest
    with pytest.raises(ValueError, match="and clients with symmetric A"):
        aggregate(bf.Federation(["a"], [np.ones((3, 2))], [np.ones(3)]))


def test_owners_without_rows():
    fed = bf.Federation.from_quadratics(
        [np.eye(3)] * 2,
        [np.ones(3)] * 2,
        [np.zeros((0, 3)), [[1.0, 1, 0], [0, 0, 1]], [[1.0, 0, 0]]],
        [[], [-1.0, 2.0], [0.0]],
    )
    w, mu, value = aggregate(fed)
    assert_allclose(w, [0.0, 1.0, -2.0], atol=1e-15)
    assert_allclose(value, 5.0 - 2.0)
    # A w + b + C'mu = (2, 4, -2) + (mu_1 + mu_3, mu_1, mu_2) = 0
    assert_allclose(mu.local, [[-4.0, 2.0], [2.0, 0.0]], atol=1e-14)
    assert mu.server.shape == (0,)


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


def test_variants():
    for A in lcqp(30, 2, 2, 0, condition=1e6).X:
        values = np.linalg.eigvalsh(A)
        assert_allclose(values[[0, -1]], [1e-6, 1.0], rtol=1e-8)
    assert np.linalg.matrix_rank(sum(lcqp(30, 2, 2, 0, singular=2).X), tol=1e-10) == 28
    C, d = rows_of(lcqp(30, 2, 2, 0, redundant=True))
    assert np.linalg.matrix_rank(C) == 4
    assert np.linalg.matrix_rank(np.column_stack([C, d])) == 4
    C, d = rows_of(lcqp(30, 2, 2, 0, infeasible=True))
    assert np.linalg.matrix_rank(np.column_stack([C, d])) == 5


@pytest.mark.parametrize(
    ("sizes", "options", "words"),
    [
        ((10, 5, 2), {}, "got d=10, n=5, m=2"),
        ((10, 0, 2), {}, "n=0"),
        ((10, 2, 2), {"singular": 3}, "singular=3"),
        ((10, 2, 2), {"condition": 0.5}, "condition must be a finite number >= 1, got 0.5"),
    ],
)
def test_sizes_without_a_solution_are_refused(sizes, options, words):
    with pytest.raises(ValueError, match=words):
        lcqp(*sizes, 0, **options)
