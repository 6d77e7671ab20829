"""Polyhedral sets of client weights against HiGHS and Clarabel: worst cases, proved bounds,
projections, limits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import clarabel as _clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.sparse import block_array, csc_array, csr_array, eye_array, kron

import bonafed as bf

clarabel: Any = _clarabel  # its compiled classes carry no types
EXACT = {
    "presolve": False,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


class Rows(NamedTuple):
    """{x >= 0: A x <= b, E x = f} with the weights as the first entries of x, all costs divided by
    the largest.
    """

    A: Any
    b: Any
    E: Any
    f: Any


def box(risk, n):
    unit, one = np.eye(n), np.ones((1, n))
    lower, upper = np.broadcast_to(risk.lower, n), np.broadcast_to(risk.upper, n)
    return Rows(np.r_[unit, -unit], np.r_[upper, -lower], one, [1.0])


def moved(prior, limits, rate, budget):
    """q - prior = up - down, up + down <= limits, rate'(up + down) <= budget."""
    n = len(prior)
    unit, zero, most = np.eye(n), np.zeros((n, n)), rate.max() or 1.0
    A = np.block([[zero, unit, unit], [np.zeros((1, n)), rate[None] / most, rate[None] / most]])
    E = np.block([[unit, -unit, unit], [np.ones((1, n)), np.zeros((1, 2 * n))]])
    return Rows(A, np.r_[limits, budget / most], E, np.r_[prior, 1.0])


def cd_norm(risk, n):
    rate = np.divide(1.0, risk.bounds, out=np.zeros(n), where=risk.bounds > 0)
    return moved(risk.prior, risk.bounds, rate, risk.budget)


def total_variation(risk, n):
    return moved(risk.prior, np.full(n, 2.0), np.ones(n), 2 * risk.radius)


def wasserstein(risk, n):
    cost = np.abs(risk.cost[:, None] - risk.cost) if risk.cost.ndim == 1 else risk.cost
    most, one = cost.max() or 1.0, np.ones((1, n))
    A = csr_array(np.r_[np.zeros(n), cost.ravel() / most][None])
    E = block_array(
        [[None, kron(eye_array(n), one)], [-eye_array(n), kron(one, eye_array(n))]], format="csr"
    )
    return Rows(A, [risk.radius / most], E, np.r_[risk.prior, np.zeros(n)])


def polyhedron(risk, n):
    scale = np.abs(risk.D).max(1)
    return Rows(risk.D / scale[:, None], risk.c / scale, np.ones((1, n)), [1.0])


ROWS = {
    bf.Box: box,
    bf.CDNorm: cd_norm,
    bf.TotalVariationBall: total_variation,
    bf.WassersteinOverClients: wasserstein,
    bf.Polyhedron: polyhedron,
}


def losses_of(rng, n):
    """Normal losses, or a few equal levels, of any scale."""
    z = rng.standard_normal(n)
    return (np.round(z) if rng.random() < 0.4 else z) * 10.0 ** rng.integers(-9, 10)


def prior_of(rng, n):
    prior = rng.dirichlet(np.ones(n))
    if rng.random() < 0.3:
        prior[1:][rng.random(n - 1) < 0.4] = 0.0
    return prior / prior.sum()


def a_box(rng, n):
    inside, width = prior_of(rng, n), rng.choice([0.0, 0.1, 1.0], n)
    return bf.Box(inside * (1 - width * rng.random(n)), inside + width * rng.random(n))


def a_cd_norm(rng, n):
    kind = rng.integers(4)
    bounds = [rng.random(n) / n, 10.0 ** rng.uniform(-9, 0, n), np.full(n, 0.5 / n), rng.random(n)][
        kind
    ]
    if rng.random() < 0.3:
        bounds[1:][rng.random(n - 1) < 0.3] = 0.0
    return bf.CDNorm(float(rng.choice([0.1, 1.0, 2.5, n / 3])), bounds, prior_of(rng, n))


def a_ball(rng, n):
    return bf.TotalVariationBall(float(rng.choice([1e-6, 0.1, 0.5, 0.9])), prior_of(rng, n))


def on_a_line(rng, n):
    places = rng.standard_normal(n) * 10.0 ** rng.integers(-6, 7)
    if rng.random() < 0.4:  # several clients at one place
        places = np.round(places / np.ptp(places) * 4)
    radius = np.ptp(places) * float(rng.choice([0.0, 1e-3, 0.1, 0.5]))
    return bf.WassersteinOverClients(radius, places, prior_of(rng, n))


def by_matrix(rng, n):
    cost = rng.random((n, n)) * 10.0 ** rng.integers(-6, 7)
    if rng.random() < 0.4:
        cost = np.round(cost / cost.max() * 3)
    np.fill_diagonal(cost, 0.0)
    return bf.WassersteinOverClients(
        cost.max() * float(rng.choice([0.0, 1e-3, 0.1, 0.5])), cost, prior_of(rng, n)
    )


def a_polyhedron(rng, n):
    m = int(rng.integers(1, n + 3))
    D = rng.standard_normal((m, n))
    if rng.random() < 0.4:
        D = np.round(D) + 0.0
    D[:, 0] += 1.0  # no row of zeros
    scale = 10.0 ** rng.integers(-9, 10, m)
    c = D @ prior_of(rng, n) + np.abs(D).max(1) * rng.choice([0.0, 0.01, 0.3], m)
    return bf.Polyhedron(D * scale[:, None], c * scale)


CASES = {  # set, most clients, instances
    "box": (a_box, 80, 100),
    "CD-norm": (a_cd_norm, 80, 120),
    "total variation": (a_ball, 80, 100),
    "on a line": (on_a_line, 40, 100),
    "by matrix": (by_matrix, 30, 100),
    "polyhedron": (a_polyhedron, 80, 100),
}
each = pytest.mark.parametrize("name", CASES)


def instances(name, share=1.0, most=80):
    """(risk, losses) of that many random instances, fewer where only a share is asked for."""
    make, n_most, count = CASES[name]
    rng = np.random.default_rng([3, *name.encode()])
    for _ in range(int(count * share)):
        n = int(rng.integers(2, min(n_most, most) + 1))
        yield make(rng, n), losses_of(rng, n)


@each
def test_worst_cases_equal_linear_programs(name):
    for risk, z in instances(name):
        worst, top, spread = risk.worst(z), z.max(), np.ptp(z) or abs(z[0]) or 1.0
        rows = ROWS[type(risk)](risk, len(z))
        cost = np.r_[(top - z) / spread, np.zeros(rows.E.shape[1] - len(z))]
        lp = linprog(cost, rows.A, rows.b, rows.E, rows.f, options=EXACT)
        assert lp.status == 0
        assert_allclose((worst.value - top) / spread, -lp.fun, rtol=0, atol=2e-9)
        assert_allclose((worst.bound - top) / spread, -lp.fun, rtol=0, atol=2e-9)
        assert 0 <= worst.bound - worst.value <= 3e-13 * np.abs(z).max()
        assert worst.value == pytest.approx(worst.weights @ z, abs=1e-14 * np.abs(z).max())
        assert risk.contains(worst.weights, 1e-12)
        assert worst.weights.min() >= 0
        assert worst.weights.sum() == pytest.approx(1.0, abs=1e-14)


def nearest(rows, v):
    """The nearest weights by an interior point method."""
    n, size = len(v), rows.E.shape[1]
    P = csc_array((np.ones(n), (np.arange(n), np.arange(n))), shape=(size, size))
    A = block_array([[csr_array(rows.E)], [csr_array(rows.A)], [-eye_array(size)]], format="csc")
    b = np.r_[rows.f, rows.b, np.zeros(size)]
    cones = [clarabel.ZeroConeT(len(rows.f)), clarabel.NonnegativeConeT(len(rows.b) + size)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.tol_gap_abs, settings.tol_feas = False, 1e-12, 1e-11
    solution = clarabel.DefaultSolver(
        P, np.r_[-v, np.zeros(size - n)], A, b, cones, settings
    ).solve()
    return np.array(solution.x)[:n], str(solution.status)


@each
def test_projections_equal_quadratic_programs(name):
    solved = 0
    for risk, z in instances(name, 0.7, 30):
        v = z / np.abs(z).max() * np.array([0.01, 0.3, 3.0])[solved % 3] if z.any() else z
        q = risk.project(v)
        reference, status = nearest(ROWS[type(risk)](risk, len(z)), v)
        assert risk.contains(q, 1e-12)
        assert_allclose(risk.project(q), q, rtol=0, atol=1e-11)
        if status == "Solved":  # a set without interior is hard for it
            solved += 1
            assert_allclose(q, reference, rtol=0, atol=1e-4)
            assert np.linalg.norm(q - v) <= np.linalg.norm(reference - v) + 1e-6
    assert solved >= 40


@each
@pytest.mark.parametrize("far", [1.0, 1e4, 1e9])
def test_no_member_is_on_the_side_of_the_point_that_was_projected(name, far):
    for risk, z in instances(name, 0.4, 30):
        v = z / np.abs(z).max() * far if z.any() else z
        q = risk.project(v)
        g = (v - v.max()) - q
        assert risk.contains(q, 1e-12)
        assert risk.worst(g).bound - g @ q <= 2e-11 * max(1.0, np.abs(g).max())


def matched_in_order(risk, z):
    """One sort of bounds times losses, as the paper has it: the most bound x loss up, the least
    down, within budget.
    """
    q, order = risk.prior.copy(), np.argsort(-risk.bounds * z)
    left, up, down = risk.budget, 0, len(z) - 1
    give, take = np.minimum(risk.bounds, q), np.minimum(risk.bounds, 1 - q)
    while up < down and left > 1e-15:
        i, j = order[up], order[down]
        mass = min(take[i], give[j], left / (1 / risk.bounds[i] + 1 / risk.bounds[j]))
        q[i], q[j], take[i], give[j] = q[i] + mass, q[j] - mass, take[i] - mass, give[j] - mass
        left -= mass * (1 / risk.bounds[i] + 1 / risk.bounds[j])
        up, down = up + (take[i] <= 1e-15), down - (give[j] <= 1e-15)
    return q


def test_one_sort_does_not_solve_the_cd_norm_with_unequal_bounds():
    rng, short = np.random.default_rng(8), []
    for _ in range(60):
        n = int(rng.integers(4, 12))
        risk = bf.CDNorm(2.0, rng.uniform(0.02, 0.3, n), rng.dirichlet(np.full(n, 5.0)))
        z = rng.random(n)
        greedy = matched_in_order(risk, z)
        assert risk.contains(greedy)
        gain = risk.value(z) - risk.prior @ z
        short.append((risk.value(z) - greedy @ z) / gain)
    assert min(short) >= -1e-12
    assert np.mean(np.array(short) > 0.01) > 0.5


def test_an_unequal_cd_norm_by_hand():
    # losses 0, 1, 2; bounds .1, .2, .4: a unit of weight from 0 to 2 uses 10 + 2.5 and gains 2 (.16
    # a unit of budget), from 1 to 2 it uses 5 + 2.5 and gains 1 (.133): the budget of 1 takes .08
    # from client 0, bounds bind nowhere
    risk = bf.CDNorm(1.0, [0.1, 0.2, 0.4], [0.3, 0.3, 0.4])
    worst = risk.worst(np.array([0.0, 1.0, 2.0]))
    assert_allclose(worst.weights, [0.22, 0.3, 0.48], rtol=1e-14)
    assert worst.value == pytest.approx(1.26, abs=1e-15)
    # 2: first .1 from client 0 (1.25), then .1 from client 1 (0.75)
    assert_allclose(
        bf.CDNorm(2.0, [0.1, 0.2, 0.4], [0.3, 0.3, 0.4]).weights([0.0, 1.0, 2.0]), [0.2, 0.2, 0.6]
    )


def test_a_bound_of_zero_keeps_the_prior():
    prior = np.array([0.98, 0.01, 0.01])
    q = bf.CDNorm(5.0, [0.5, 0.0, 0.5], prior).weights(np.array([0.0, 100.0, 1.0]))
    assert_allclose(q, [0.48, 0.01, 0.51], rtol=1e-14)
    assert_allclose(bf.CDNorm(5.0, 0.0, prior).project(np.array([1.0, 2.0, 3.0])), prior)
    assert bf.CDNorm(5.0, 0.0, prior).value(np.ones(3)) == 1.0


def test_sets_that_are_the_same():
    rng, prior = np.random.default_rng(2), np.array([0.3, 0.05, 0.2, 0.0, 0.25, 0.2])
    unlike = 1.0 - np.eye(6)
    for _ in range(20):
        z = np.round(rng.standard_normal(6), 1)
        for one, two in (
            (bf.Box(0.0, prior / 0.25), bf.Superquantile(0.25, prior)),
            (bf.Box(0.0, 1.0), bf.Simplex()),
            (bf.Box(prior, prior), bf.Mean(prior)),
            (bf.TotalVariationBall(0.2, prior), bf.LpBall(0.4, 1, prior)),
            (bf.TotalVariationBall(0.2, prior), bf.WassersteinOverClients(0.2, unlike, prior)),
            (bf.TotalVariationBall(0.2, prior), bf.CDNorm(0.4 / 5.0, 5.0, prior)),
            (bf.CDNorm(6.0, 0.1, prior), bf.LpBall(0.1, np.inf, prior)),
            (bf.CDNorm(0.0, 0.1, prior), bf.Mean(prior)),
            (bf.WassersteinOverClients(0.0, "index", prior), bf.Mean(prior)),
            (bf.WassersteinOverClients(5.0, "index", prior), bf.Simplex()),
            (
                bf.WassersteinOverClients(0.3, np.arange(6.0)[::-1], prior),
                bf.WassersteinOverClients(0.3, "index", prior),
            ),
            (
                bf.WassersteinOverClients(0.3, np.abs(np.subtract.outer(z, z)), prior),
                bf.WassersteinOverClients(0.3, z, prior),
            ),
            (bf.Polyhedron(np.eye(6), prior / 0.25), bf.Superquantile(0.25, prior)),
            (bf.Polyhedron(np.zeros((0, 6)), np.zeros(0)), bf.Simplex()),
            (bf.OwnSet(bf.Superquantile(0.25, prior).weights), bf.Superquantile(0.25, prior)),
            (bf.OwnSet(bf.LpBall(0.1, 2, prior).weights), bf.LpBall(0.1, 2, prior)),
        ):
            assert one.value(z) == pytest.approx(two.value(z), abs=1e-13)
            assert_allclose(
                one.project(z),
                two.project(z),
                rtol=0,
                atol=1e-6 if isinstance(two, bf.LpBall) else 1e-11,
            )


def test_large_federations_are_filled_exactly():
    rng, n = np.random.default_rng(4), 5000
    for z in (
        rng.random(n),
        np.round(rng.random(n), 1),
        np.sort(rng.random(n)),
        np.r_[np.zeros(n - 1), 1.0],
    ):
        prior = rng.dirichlet(np.ones(n))
        q = bf.Box(0.0, prior * 4).weights(z)
        assert q @ z == pytest.approx(bf.Superquantile(0.25, prior).value(z), abs=1e-14)
        for risk in (bf.CDNorm(n / 10, rng.random(n) / n, prior), bf.CDNorm(n / 10, 1 / n, prior)):
            worst = risk.worst(z)
            assert worst.bound - worst.value <= 1e-13
            assert risk.contains(worst.weights, 1e-12)


def test_one_client_and_equal_losses():
    for risk in (
        bf.Box(0.0, 1.0),
        bf.CDNorm(1.0, 0.5),
        bf.TotalVariationBall(0.5),
        bf.WassersteinOverClients(1.0),
        bf.WassersteinOverClients(1.0, [3.0]),
        bf.WassersteinOverClients(1.0, [[0.0]]),
        bf.Polyhedron([[2.0]], [2.0]),
    ):
        assert risk.value(np.array([-3.5])) == -3.5
        assert_allclose(risk.project(np.array([7.0])), [1.0], rtol=1e-15)
    same = np.full(6, 1e9)
    for risk in (bf.CDNorm(1.0, 0.1), bf.TotalVariationBall(0.5), bf.WassersteinOverClients(1.0)):
        assert_allclose(risk.weights(same), np.full(6, 1 / 6), rtol=1e-14)


def test_a_concrete_set_is_its_arrays_in_the_order_of_the_clients():
    names, sizes = ("b", "a", "c"), np.array([1, 1, 2])
    by_name = {"a": 0.2, "b": 0.1, "c": 0.7}
    box_at = bf.Box(0, by_name).at(sizes, names)
    assert_array_equal(box_at.upper, [0.1, 0.2, 0.7])
    assert_array_equal(box_at.lower, np.zeros(3))
    near = bf.CDNorm(2, by_name, "size").at(sizes, names)
    assert_array_equal(near.bounds, [0.1, 0.2, 0.7])
    assert_array_equal(near.prior, [0.25, 0.25, 0.5])
    places = bf.WassersteinOverClients(0.1, by_name, by_name).at(sizes, names)
    assert_array_equal(places.cost, [0.1, 0.2, 0.7])
    assert_allclose(places.prior, [0.1, 0.2, 0.7])
    assert_array_equal(bf.WassersteinOverClients(0.1).at(sizes, names).cost, [0.0, 1.0, 2.0])
    half = bf.Polyhedron({"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [2.0, 0.0]}, [1.5, 0.5]).at(
        sizes, names
    )
    assert_array_equal(half.D, [[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]])
    assert_array_equal(half.at(sizes, names).D, half.D)


def test_bounds_hold_whatever_the_losses_look_like():
    # a program that HiGHS calls optimal at 1e-10 although client 4 is better by 5e-11: found by a
    # second program
    risk = bf.Polyhedron(np.diag(1e6 + np.arange(6.0)), np.full(6, 3e5))
    z = np.array([0.0, 0.0, -1.0, 0.0, -1.0 + 5e-11, -1.0])
    worst = risk.worst(z)
    assert worst.bound - worst.value <= 1e-13
    assert worst.weights[4] == pytest.approx(0.1000012, abs=1e-9)


def test_an_own_set_takes_every_function():
    inner = bf.Superquantile(0.4)
    calls = []

    def maximiser(losses):
        calls.append(len(losses))
        losses_before = losses.copy()
        losses[:] = np.nan  # it was given a copy
        return inner.weights(losses_before), inner.worst(losses_before).bound

    risk = bf.OwnSet(
        maximiser, inner.project, lambda weights, tol: inner.contains(weights, tol)
    ).at([1, 1, 1, 1])
    assert calls == [4]
    z = np.array([0.0, 1.0, 3.0, 2.0])
    assert risk.worst(z).bound == inner.worst(z).bound
    assert_array_equal(risk.project(z), inner.project(z))
    assert risk.contains(inner.weights(z))
    assert not risk.contains(np.array([1.0, 0.0, 0.0, 0.0]))
    assert not bf.OwnSet(inner.weights).contains(np.array([1.0, 0.0, 0.0, 0.0]))
    assert_array_equal(z, [0.0, 1.0, 3.0, 2.0])
