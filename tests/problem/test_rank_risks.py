"""Weights by rank against hand values, and their risks against linear and quadratic programs; what
is refused.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN, federation
from scipy.optimize import linprog

import quorate as qr
from quorate.problem.lower_bounds import feasible_duals
from quorate.runs.baselines import BASELINES, afl, wafl
from quorate.solution.warnings import notes

MONOTONE = [
    qr.Superquantile(0.3),
    qr.Superquantile(0.55),
    qr.Extremile(2.5),
    qr.ExponentialSpectral(2.0),
    qr.TopK(3),
    qr.Maximum(),
]
NONCONVEX = [
    qr.RankedRange(9, 2),
    qr.RankedRange(9, 2, "descending"),
    qr.Median(),
    qr.ValueAtRisk(0.8),
    qr.HumanAligned(0.4, 0.3),
    qr.ProspectTheory(reference=0.7),
]
rng = np.random.default_rng(0)
each = pytest.mark.parametrize("risk", MONOTONE, ids=repr)
each_nonconvex = pytest.mark.parametrize("risk", NONCONVEX, ids=repr)


@pytest.mark.parametrize(
    ("risk", "n", "sigma"),
    [
        (qr.Superquantile(0.5), 4, [0, 0, 1 / 2, 1 / 2]),
        (qr.Superquantile(0.4), 4, [0, 0, 0.6 / 1.6, 1 / 1.6]),  # 1.6 losses
        (qr.Superquantile(0.1), 4, [0, 0, 0, 1]),  # less than one loss
        # 0.3 * 10 is not 3 in floating point everywhere
        (qr.Superquantile(0.3), 10, [0] * 7 + [1 / 3] * 3),
        (qr.Extremile(2), 3, [1 / 9, 3 / 9, 5 / 9]),
        (qr.Extremile(1.5), 4, np.diff(np.array([0, 1, 2, 3, 4]) ** 1.5) / 8),
        (qr.ExponentialSpectral(math.log(4)), 2, [1 / 3, 2 / 3]),  # (4^t - 1) / 3 at 0, 1/2, 1
        (qr.Maximum(), 3, [0, 0, 1]),
        (qr.TopK(2), 3, [0, 1 / 2, 1 / 2]),
        (qr.Spectral([0.2, 0.8]), 2, [0.2, 0.8]),
        (qr.RankedRange(3, 1), 5, [0, 1 / 2, 1 / 2, 0, 0]),
        (qr.RankedRange(3, 1, "descending"), 5, [0, 0, 1 / 2, 1 / 2, 0]),
        (qr.Median(), 5, [0, 0, 1, 0, 0]),
        (qr.Median(), 4, [0, 1 / 2, 1 / 2, 0]),
        (qr.Median(), 1, [1]),
        (qr.ValueAtRisk(0.5), 4, [0, 1, 0, 0]),  # F(z_[2]) = 1/2
        (qr.ValueAtRisk(0.51), 4, [0, 0, 1, 0]),
        (qr.ValueAtRisk(0.7), 10, [0] * 6 + [1] + [0] * 3),
        (qr.ValueAtRisk(1), 3, [0, 0, 1]),
        (qr.HumanAligned(0.5, 0.0), 2, [1 / 2, 1 / 2]),  # S(1/2) = 1/2 by symmetry
        # S(t) = 4 t (t - 1) (t - 1/2) + t at 1/4, 1/2, 3/4: 7/16, 1/2, 9/16
        (qr.HumanAligned(0.5, 0.0), 4, [7 / 16, 1 / 16, 1 / 16, 7 / 16]),
        (qr.HumanAligned(0.3, 1.0), 3, [1 / 3, 1 / 3, 1 / 3]),
    ],
    ids=repr,
)
def test_weights_by_hand(risk, n, sigma):
    assert_allclose(risk.rank_weights(n), sigma, rtol=0, atol=1e-15)


def test_weights_are_exact_for_many_losses():
    """Differences of a cumulative spectrum would lose ten digits at a million losses."""
    n, i = 10**6, 3.0
    assert qr.Extremile(3).rank_weights(n)[2] == pytest.approx(
        (i**3 - (i - 1) ** 3) / n**3, rel=1e-14, abs=0
    )
    small = qr.ExponentialSpectral(1e-3).rank_weights(n)
    assert small[0] * n == pytest.approx(1e-3 / math.expm1(1e-3) * (1 + 0.5e-9), rel=1e-14)
    for risk in (*MONOTONE, *NONCONVEX[:-1]):
        sigma = risk.rank_weights(n)
        assert sigma.sum() == pytest.approx(1.0, abs=1e-12)
        assert sigma.min() >= 0
        assert not risk.convex or (np.diff(sigma) >= 0).all()


def test_both_limits():
    z = rng.standard_normal(7)
    mean, largest = z.mean(), z.max()
    for risk in (
        qr.Superquantile(1.0),
        qr.Extremile(1.0),
        qr.ExponentialSpectral(1e-12),
        qr.TopK(7),
    ):
        assert risk.value(z) == pytest.approx(mean, rel=1e-11)
    for risk in (
        qr.Superquantile(1e-9),
        qr.Extremile(1e4),
        qr.ExponentialSpectral(1e5),
        qr.TopK(1),
        qr.Maximum(),
    ):
        assert risk.value(z) == pytest.approx(largest, rel=1e-12)
    assert qr.ProspectTheory(1, 1, 0.0).value(z) == pytest.approx(mean, rel=1e-12)
    assert qr.RankedRange(7, 0).value(z) == pytest.approx(mean, rel=1e-12)
    assert qr.RankedRange(1, 0).value(z) == z.min()
    assert qr.ValueAtRisk(0.5).value(z) == qr.Median().value(z) == np.median(z)
    growing = [qr.Superquantile(tail).value(z) for tail in (1.0, 0.7, 0.5, 0.3, 0.1)]
    assert (np.diff(growing) >= 0).all()


@pytest.mark.parametrize("tail", [0.05, 0.31, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_superquantile_is_the_minimum_of_rockafellar_and_uryasev(tail, weighted):
    """The minimum over t is attained at a loss, so that it is known to rounding."""
    z, prior = rng.standard_normal(9), rng.dirichlet(np.ones(9)) if weighted else np.full(9, 1 / 9)
    risk = qr.Superquantile(tail, prior) if weighted else qr.Superquantile(tail)
    least = min(t + prior @ np.maximum(z - t, 0) / tail for t in z)
    assert risk.value(z) == pytest.approx(least, rel=1e-14)
    program = linprog(  # and by a solver, over t and the excesses
        np.append(1.0, prior / tail),
        A_ub=np.c_[-np.ones(9), -np.eye(9)],
        b_ub=-z,
        bounds=[(None, None), *[(0, None)] * 9],
    )
    assert risk.value(z) == pytest.approx(program.fun, abs=1e-9)
    if not weighted:
        assert np.sort(z) @ risk.rank_weights(9) == pytest.approx(least, rel=1e-14)


@each
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_projection_is_that_of_a_quadratic_program(risk, scale):
    n = 5
    v, sigma = (
        scale * np.random.default_rng(int(10 * scale)).standard_normal(n),
        risk.rank_weights(n),
    )
    order = cp.Variable((n, n), nonneg=True)
    rows = [cp.sum(order, axis=0) == 1, cp.sum(order, axis=1) == 1]
    cp.Problem(cp.Minimize(cp.sum_squares(order @ sigma - v)), rows).solve(
        solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13
    )
    assert_allclose(risk.project(v), order.value @ sigma, rtol=0, atol=1e-6)


def test_prospect_weights_by_hand():
    risk, n = qr.ProspectTheory(0.61, 0.69, 1.0), 3

    def omega(p, c):
        return p**c / (p**c + (1 - p) ** c) ** (1 / c)

    below = [omega(1 / 3, 0.69), omega(2 / 3, 0.69) - omega(1 / 3, 0.69), 1 - omega(2 / 3, 0.69)]
    above = [1 - omega(2 / 3, 0.61), omega(2 / 3, 0.61) - omega(1 / 3, 0.61), omega(1 / 3, 0.61)]
    assert_allclose(risk.rank_weights_below(n), below, rtol=1e-14)
    assert_allclose(risk.rank_weights_above(n), above, rtol=1e-14)
    assert risk.value([3.0, 0.2, 2.0]) == pytest.approx(
        0.2 * below[0] + 2.0 * above[1] + 3.0 * above[2], rel=1e-14
    )
    assert_allclose(risk.weights([3.0, 0.2, 2.0]), [above[2], below[0], above[1]], rtol=1e-14)
    # at the reference: the least of what losses just below and just above it give
    at = np.array([0.2, 1.0, 1.0])
    moved = [risk.value(at + 1e-9 * np.array([0, a, b])) for a in (-1, 1) for b in (-1, 1)]
    assert risk.value(at) == pytest.approx(min(moved), abs=1e-8)
    assert max(moved) - min(moved) > 1e-3


def test_a_decreasing_loss_ranks_its_margins_the_other_way_round():
    margin, risk = rng.standard_normal(8), qr.Extremile(2)
    losses = np.exp(-margin)
    assert risk.value(losses) == pytest.approx(
        np.exp(-np.sort(margin)) @ risk.rank_weights(8)[::-1], rel=1e-14
    )


def test_projection_of_large_and_close_numbers():
    """v of 1e9 whose neighbours differ by less than the weights do."""
    sigma = np.array([0.1, 0.2, 0.7])
    near = 1e9 + np.array([0.0, 0.25, 0.5])
    assert_allclose(
        qr.Spectral(sigma).project(near), qr.Spectral(sigma).project(near - 1e9), rtol=0, atol=1e-15
    )
    assert_allclose(
        qr.Spectral(sigma).project(np.array([-1e9, 0.3, 1e9])), sigma, rtol=0, atol=1e-15
    )


def test_prox_at_the_reference_beside_outliers():
    """Costs of a billion must not drown what the split at the reference decides."""
    risk = qr.ProspectTheory(reference=0.3)
    v = np.array([0.35, 0.4, 0.1])
    far = risk.prox(np.append(v, 1e9), 0.5)
    below, above = risk.rank_weights_below(4), risk.rank_weights_above(4)
    best = math.inf
    for j in range(4):  # 1e9 stays above; three numbers apart enough to keep their order
        z = np.sort(v) - 0.5 * np.append(below[:j], above[j:3])
        z = np.append(np.minimum(z[:j], 0.3), np.maximum(z[j:], 0.3))
        assert (np.diff(z) >= 0).all()
        cost = 0.5 * np.append(below[:j], above[j:3]) @ z + ((z - np.sort(v)) ** 2).sum() / 2
        if cost < best:
            best, least = cost, z
    assert_allclose(np.sort(far[:3]), least, rtol=0, atol=1e-12)


# -- over the samples of clients
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("risk", [*MONOTONE, *NONCONVEX], ids=repr)
def test_each_clients_own_losses_are_ranked(risk):
    fed = federation(3, 4, 5, 20)
    problem = qr.Problem(qr.Logistic(), qr.Linear(intercept=True), risk)
    concrete, coded = problem.at(fed)
    w = rng.standard_normal(6)
    by_hand = []
    for i in range(4):
        X, y = coded.rows(i)
        by_hand.append(risk.value(np.log1p(np.exp(-y * (X @ w[:-1] + w[-1])))))
    (block,) = coded.blocks(8)  # padded to the longest client
    assert (block.share == 0).any()
    padded = concrete.client_risks(w, block)
    assert_allclose(padded, np.array(by_hand)[block.index], rtol=1e-12)
    assert problem.objective(w, fed) == pytest.approx(np.mean(by_hand), rel=1e-12)
    # its gradient, by differences: no two losses are equal here
    cut, step = concrete.cut(w, block), 1e-6
    for j in range(6):
        up, down = (
            concrete.client_risks(w + sign * step * np.eye(6)[j], block) for sign in (1, -1)
        )
        assert_allclose(cut.gradient[:, j], (up - down) / (2 * step), rtol=0, atol=1e-6)


@each
@pytest.mark.parametrize("loss", [qr.Hinge(), qr.Quantile(0.3)], ids=repr)
def test_cuts_of_a_convex_risk_lie_below_it(risk, loss):
    concrete, fed = qr.Problem(loss, PLAIN, over_samples=risk).at(
        federation(5, 3, 4, 15, loss.targets)
    )
    (block,) = fed.blocks(8)
    for _ in range(30):
        w, v = rng.standard_normal((2, 4)) * rng.choice([0.1, 1.0, 10.0])
        cut = concrete.cut(w, block)
        assert (concrete.client_risks(v, block) >= cut.base + cut.gradient @ (v - w) - 1e-12).all()


def test_row_weights_are_zero_on_padding_and_sum_to_one():
    concrete, fed = qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.Superquantile(0.2)).at(
        federation(3, 4, 5, 20)
    )
    (block,) = fed.blocks(8)
    losses = rng.random(block.y.shape) + 9 * (block.share == 0)  # the padding would be worst
    weights = concrete.row_weights(losses, block)
    assert (weights[block.share == 0] == 0).all()
    assert_allclose(weights.sum(1), 1.0, rtol=1e-12)


def test_inputs_are_not_changed():
    fed = federation(3)
    before = [fed.rows(i)[0].copy() for i in range(3)]
    weights = np.array([0.1, 0.2, 0.7])
    risk = qr.Spectral(weights)
    risk.rank_weights(3)[0] = 9.0
    weights[0] = 5.0
    assert_array_equal(risk.rank_weights(3), [0.1, 0.2, 0.7])
    qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.TopK(3), over_clients=risk).objective(
        np.ones(8), fed
    )
    for i in range(3):
        assert_array_equal(fed.rows(i)[0], before[i])


# -- what is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "needle"),
    [
        (lambda: qr.Superquantile(0), r"tail must be in \(0, 1\], got 0"),
        (lambda: qr.Superquantile(1.1), "tail must be"),
        (lambda: qr.Superquantile(math.nan), "tail must be"),
        (lambda: qr.Superquantile(0.2, [0.5, 0.4]).value([1.0, 2.0]), "sum to one, got 0.9"),
        (lambda: qr.Superquantile(0.2, [0.3, 0.7]).rank_weights(2), "repeat rows"),
        (lambda: qr.Spectral([0.5, 0.6]), "sum to one, got 1.1: divide"),
        (lambda: qr.Spectral([1.5, -0.5]), "weights must be >= 0, got -0.5"),
        (lambda: qr.Spectral([[0.5, 0.5]]), "weights must be a vector"),
        (lambda: qr.Spectral([0.5, 0.5]).value([1.0, 2.0, 3.0]), "weights for 2 losses, got 3"),
        (lambda: qr.Spectral([0.8, 0.2]).worst([1.0, 2.0]), "fall from rank 1 to the next"),
        (lambda: qr.Extremile(0.5), "r must be a number >= 1, got 0.5"),
        (lambda: qr.ExponentialSpectral(0.0), "rho must be a number > 0"),
        (lambda: qr.TopK(0), "k must be an integer >= 1, got 0"),
        (lambda: qr.TopK(1.5), "k must be an integer"),
        (lambda: qr.TopK(3).value([1.0, 2.0]), "needs 3 losses or more, got 2: count fewer"),
        (lambda: qr.RankedRange(2, 2), "0 <= m < k, got k = 2, m = 2"),
        (lambda: qr.RankedRange(2, 1, "down"), "'ascending' .* or 'descending', got 'down'"),
        (lambda: qr.RankedRange(5, 1).value([1.0, 2.0]), "needs 5 losses or more, got 2"),
        (lambda: qr.ValueAtRisk(0.0), r"level must be in \(0, 1\]"),
        (lambda: qr.HumanAligned(0.5, -0.1), "use b from 0 to 1.5; b = 1 is the mean"),
        (lambda: qr.HumanAligned(0.5, 1.6), "use b from 0 to 1.5"),
        (lambda: qr.HumanAligned(math.nan, 0.3), "a and b must be finite"),
        (lambda: qr.ProspectTheory(gamma=0.2), r"gamma must be in \[0.28, 1\], got 0.2"),
        (lambda: qr.ProspectTheory(delta=1.5), "delta must be"),
        (lambda: qr.ProspectTheory(reference=math.inf), "reference must be a finite loss"),
        (lambda: qr.Median().value([1.0, math.nan]), "losses must be finite"),
        (lambda: qr.Median().prox([1.0, 2.0], -1.0), "step must be a number >= 0"),
        (lambda: qr.ProspectTheory().prox([1.0, 2.0], -1.0), "step must be a number >= 0"),
        (
            lambda: qr.Problem(qr.Hinge(), PLAIN, over_clients=qr.Median()),
            "over_clients must be a convex risk, got Median",
        ),
        (
            lambda: qr.Problem(qr.Hinge(), PLAIN, over_clients=qr.Spectral([0.8, 0.2])),
            "over_clients must be a convex risk",
        ),
        (
            lambda: qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.Superquantile(0.1, "size")),
            "belongs in over_clients",
        ),
    ],
)
def test_wrong_parameters_are_refused_with_a_remedy(build, needle):
    with pytest.raises(ValueError, match=needle):
        build()


def test_human_aligned_weights_are_least_at_b():
    for a, b in ((0.4, 0.3), (0.0, 0.0), (1.0, 0.2), (0.5, 1.5), (2.5, 1.1), (-1.5, 0.9)):
        least = qr.HumanAligned(a, b).rank_weights(20000).min() * 20000
        assert least >= -1e-9
        if -1 <= a <= 2 and b <= 1:
            assert least == pytest.approx(b, abs=1e-3)


@pytest.mark.parametrize("risk", [qr.LpBall(0.1), qr.Simplex(), "superquantile"], ids=repr)
def test_only_risks_by_rank_go_over_samples(risk):
    with pytest.raises(TypeError, match="over_samples must be Mean"):
        qr.Problem(qr.Hinge(), PLAIN, over_samples=risk)
    with pytest.raises(TypeError, match=r"got the class TopK: write TopK\(\.\.\.\)"):
        qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.TopK)


def test_a_client_with_too_few_rows_is_named():
    fed = federation(3)  # fewer than 60 rows each
    for risk in (qr.TopK(60), qr.RankedRange(60, 2), qr.Spectral(np.full(60, 1 / 60))):
        with pytest.raises(ValueError, match=r"client 'c0': .*60"):
            qr.Problem(qr.Hinge(), PLAIN, over_samples=risk).at(fed)
    assert qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.TopK(60)).at(fed.pooled())


def test_weighted_rows_are_refused_and_equal_weights_are_not():
    fed = federation(3)
    rows = [fed.rows(i) for i in range(3)]
    problem = qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.Superquantile(0.2))

    def weighted(weights):
        return qr.Federation(
            fed.clients, [X for X, _ in rows], [y for _, y in rows], sample_weight=weights
        )

    ones = [np.full(len(y), 3.0) for _, y in rows]
    assert problem.objective(np.ones(8), weighted(ones)) == pytest.approx(
        problem.objective(np.ones(8), fed)
    )
    ones[1] = np.arange(1.0, len(ones[1]) + 1)
    with pytest.raises(ValueError, match=r"client 'c1' has rows of different weights.*repeat rows"):
        problem.at(weighted(ones))
    with pytest.raises(ValueError, match=r"pooled\(\) rather than pooled\(prior\)"):
        problem.at(fed.pooled("uniform"))


@each_nonconvex
def test_no_bound_is_claimed_for_a_nonconvex_risk(risk):
    fed = federation(3)
    problem = qr.Problem(qr.Hinge(), PLAIN, over_samples=risk, regulariser=qr.L2(0.1))
    with pytest.raises(ValueError, match=r"convex risk .*or RankADMM\(\) on fed\.pooled\(\)"):
        qr.solve(problem, fed, algorithm=qr.Bundle())
    w = 0.1 * np.ones(8)
    certificate = qr.certify(problem, fed, w, None)
    assert certificate.value == pytest.approx(problem.objective(w, fed), rel=1e-12)
    assert certificate.bound is None
    duals = qr.Duals(np.full(3, 1 / 3), w[None], np.full((1, 3), 1 / 3))
    with pytest.raises(ValueError, match="not convex"):
        qr.certify(problem, fed, w, duals)
    with pytest.raises(ValueError, match="not convex"):
        feasible_duals(problem.at(fed)[0], duals)


@pytest.mark.parametrize(
    "algorithm", [qr.ADLPMM(), qr.EpigraphADMM(), qr.DoubleLoop()], ids=lambda a: type(a).__name__
)
def test_methods_for_the_mean_refuse_ranks(algorithm):
    fed, name = federation(3), type(algorithm).__name__
    ranked = qr.Problem(
        qr.Hinge(), PLAIN, over_samples=qr.Superquantile(0.2), regulariser=qr.L2(0.1)
    )
    with pytest.raises(
        ValueError, match=f"{name} needs over_samples = Mean.*WassersteinBall, got Superquantile"
    ):
        qr.solve(ranked, fed, algorithm=algorithm)
    if name != "EpigraphADMM":  # which takes every set of weights with a projection
        tail = qr.Problem(
            qr.Hinge(), PLAIN, over_clients=qr.Superquantile(0.5), regulariser=qr.L2(0.1)
        )
        with pytest.raises(
            ValueError, match="over_clients = Mean, Simplex, LpBall or TotalVariationBall"
        ):
            qr.solve(tail, fed, algorithm=algorithm)


def test_the_central_program_refuses_ranks_over_samples():
    with pytest.raises(ValueError, match="CentralConic needs over_samples = Mean"):
        qr.CentralConic().solve(
            qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.TopK(3)), federation(3)
        )


def test_the_rest_of_a_solution_knows_ranks():
    """Notes, exposed rows and baselines do not assume a mean or a ball."""
    fed, w = federation(3), 0.1 * np.ones(8)
    tail = qr.Problem(
        qr.Hinge(),
        PLAIN,
        over_samples=qr.Superquantile(0.2),
        over_clients=qr.Superquantile(0.5, "size"),
    )
    solution = qr.solve(tail, fed)
    # nothing bounds where an optimum lies
    assert "No lower bound is stated" in " ".join(solution.notes)
    assert solution.certificate.client_risks.min() >= solution.certificate.client_losses.min()
    assert qr.exposed_rows(tail, fed, w, "c0") == []
    median = qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.Median(), regulariser=qr.L2(0.1))
    concrete, data = median.at(fed)
    told = notes(concrete, fed, data, w, qr.certify(median, fed, w, None))
    assert told == ("No lower bound is stated: Median over samples is not convex.",)
    for problem in (tail, median):
        for name, baseline in BASELINES.items():
            other, rows = baseline(problem, fed)
            assert other.objective(w, rows) > 0, name
    assert afl(tail, fed)[0].over_clients == tail.over_clients
    pooled, rows = wafl(tail, fed)
    assert rows.n_clients == 1
    assert pooled.over_samples == tail.over_samples
