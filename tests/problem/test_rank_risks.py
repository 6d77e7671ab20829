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

import bonafed as bf
from bonafed.problem.lower_bounds import feasible_duals
from bonafed.runs.baselines import BASELINES, afl, wafl
from bonafed.solution.warnings import notes

MONOTONE = [
    bf.Superquantile(0.3),
    bf.Superquantile(0.55),
    bf.Extremile(2.5),
    bf.ExponentialSpectral(2.0),
    bf.TopK(3),
    bf.Maximum(),
]
NONCONVEX = [
    bf.RankedRange(9, 2),
    bf.RankedRange(9, 2, "descending"),
    bf.Median(),
    bf.ValueAtRisk(0.8),
    bf.HumanAligned(0.4, 0.3),
    bf.ProspectTheory(reference=0.7),
]
rng = np.random.default_rng(0)
each = pytest.mark.parametrize("risk", MONOTONE, ids=repr)
each_nonconvex = pytest.mark.parametrize("risk", NONCONVEX, ids=repr)


@pytest.mark.parametrize(
    ("risk", "n", "sigma"),
    [
        (bf.Superquantile(0.5), 4, [0, 0, 1 / 2, 1 / 2]),
        (bf.Superquantile(0.4), 4, [0, 0, 0.6 / 1.6, 1 / 1.6]),  # 1.6 losses
        (bf.Superquantile(0.1), 4, [0, 0, 0, 1]),  # less than one loss
        # 0.3 * 10 is not 3 in floating point everywhere
        (bf.Superquantile(0.3), 10, [0] * 7 + [1 / 3] * 3),
        (bf.Extremile(2), 3, [1 / 9, 3 / 9, 5 / 9]),
        (bf.Extremile(1.5), 4, np.diff(np.array([0, 1, 2, 3, 4]) ** 1.5) / 8),
        (bf.ExponentialSpectral(math.log(4)), 2, [1 / 3, 2 / 3]),  # (4^t - 1) / 3 at 0, 1/2, 1
        (bf.Maximum(), 3, [0, 0, 1]),
        (bf.TopK(2), 3, [0, 1 / 2, 1 / 2]),
        (bf.Spectral([0.2, 0.8]), 2, [0.2, 0.8]),
        (bf.RankedRange(3, 1), 5, [0, 1 / 2, 1 / 2, 0, 0]),
        (bf.RankedRange(3, 1, "descending"), 5, [0, 0, 1 / 2, 1 / 2, 0]),
        (bf.Median(), 5, [0, 0, 1, 0, 0]),
        (bf.Median(), 4, [0, 1 / 2, 1 / 2, 0]),
        (bf.Median(), 1, [1]),
        (bf.ValueAtRisk(0.5), 4, [0, 1, 0, 0]),  # F(z_[2]) = 1/2
        (bf.ValueAtRisk(0.51), 4, [0, 0, 1, 0]),
        (bf.ValueAtRisk(0.7), 10, [0] * 6 + [1] + [0] * 3),
        (bf.ValueAtRisk(1), 3, [0, 0, 1]),
        (bf.HumanAligned(0.5, 0.0), 2, [1 / 2, 1 / 2]),  # S(1/2) = 1/2 by symmetry
        # S(t) = 4 t (t - 1) (t - 1/2) + t at 1/4, 1/2, 3/4: 7/16, 1/2, 9/16
        (bf.HumanAligned(0.5, 0.0), 4, [7 / 16, 1 / 16, 1 / 16, 7 / 16]),
        (bf.HumanAligned(0.3, 1.0), 3, [1 / 3, 1 / 3, 1 / 3]),
    ],
    ids=repr,
)
def test_weights_by_hand(risk, n, sigma):
    assert_allclose(risk.rank_weights(n), sigma, rtol=0, atol=1e-15)


def test_weights_are_exact_for_many_losses():
    """Differences of a cumulative spectrum would lose ten digits at a million losses."""
    n, i = 10**6, 3.0
    assert bf.Extremile(3).rank_weights(n)[2] == pytest.approx(
        (i**3 - (i - 1) ** 3) / n**3, rel=1e-14, abs=0
    )
    small = bf.ExponentialSpectral(1e-3).rank_weights(n)
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
        bf.Superquantile(1.0),
        bf.Extremile(1.0),
        bf.ExponentialSpectral(1e-12),
        bf.TopK(7),
    ):
        assert risk.value(z) == pytest.approx(mean, rel=1e-11)
    for risk in (
        bf.Superquantile(1e-9),
        bf.Extremile(1e4),
        bf.ExponentialSpectral(1e5),
        bf.TopK(1),
        bf.Maximum(),
    ):
        assert risk.value(z) == pytest.approx(largest, rel=1e-12)
    assert bf.ProspectTheory(1, 1, 0.0).value(z) == pytest.approx(mean, rel=1e-12)
    assert bf.RankedRange(7, 0).value(z) == pytest.approx(mean, rel=1e-12)
    assert bf.RankedRange(1, 0).value(z) == z.min()
    assert bf.ValueAtRisk(0.5).value(z) == bf.Median().value(z) == np.median(z)
    growing = [bf.Superquantile(tail).value(z) for tail in (1.0, 0.7, 0.5, 0.3, 0.1)]
    assert (np.diff(growing) >= 0).all()


@pytest.mark.parametrize("tail", [0.05, 0.31, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_superquantile_is_the_minimum_of_rockafellar_and_uryasev(tail, weighted):
    """The minimum over t is attained at a loss, so that it is known to rounding."""
    z, prior = rng.standard_normal(9), rng.dirichlet(np.ones(9)) if weighted else np.full(9, 1 / 9)
    risk = bf.Superquantile(tail, prior) if weighted else bf.Superquantile(tail)
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
    risk, n = bf.ProspectTheory(0.61, 0.69, 1.0), 3

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
    margin, risk = rng.standard_normal(8), bf.Extremile(2)
    losses = np.exp(-margin)
    assert risk.value(losses) == pytest.approx(
        np.exp(-np.sort(margin)) @ risk.rank_weights(8)[::-1], rel=1e-14
    )


def test_projection_of_large_and_close_numbers():
    """v of 1e9 whose neighbours differ by less than the weights do."""
    sigma = np.array([0.1, 0.2, 0.7])
    near = 1e9 + np.array([0.0, 0.25, 0.5])
    assert_allclose(
        bf.Spectral(sigma).project(near), bf.Spectral(sigma).project(near - 1e9), rtol=0, atol=1e-15
    )
    assert_allclose(
        bf.Spectral(sigma).project(np.array([-1e9, 0.3, 1e9])), sigma, rtol=0, atol=1e-15
    )


def test_prox_at_the_reference_beside_outliers():
    """Costs of a billion must not drown what the split at the reference decides."""
    risk = bf.ProspectTheory(reference=0.3)
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
    problem = bf.Problem(bf.Logistic(), bf.Linear(fit_intercept=True), risk)
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
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Quantile(0.3)], ids=repr)
def test_cuts_of_a_convex_risk_lie_below_it(risk, loss):
    concrete, fed = bf.Problem(loss, PLAIN, over_samples=risk).at(
        federation(5, 3, 4, 15, loss.targets)
    )
    (block,) = fed.blocks(8)
    for _ in range(30):
        w, v = rng.standard_normal((2, 4)) * rng.choice([0.1, 1.0, 10.0])
        cut = concrete.cut(w, block)
        assert (concrete.client_risks(v, block) >= cut.base + cut.gradient @ (v - w) - 1e-12).all()


def test_row_weights_are_zero_on_padding_and_sum_to_one():
    concrete, fed = bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.2)).at(
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
    risk = bf.Spectral(weights)
    risk.rank_weights(3)[0] = 9.0
    weights[0] = 5.0
    assert_array_equal(risk.rank_weights(3), [0.1, 0.2, 0.7])
    bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.TopK(3), over_clients=risk).objective(
        np.ones(8), fed
    )
    for i in range(3):
        assert_array_equal(fed.rows(i)[0], before[i])


# -- what is refused
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "needle"),
    [
        (lambda: bf.Superquantile(0), r"tail must be in \(0, 1\], got 0"),
        (lambda: bf.Superquantile(1.1), "tail must be"),
        (lambda: bf.Superquantile(math.nan), "tail must be"),
        (lambda: bf.Superquantile(0.2, [0.5, 0.4]).value([1.0, 2.0]), "sum to one, got 0.9"),
        (lambda: bf.Superquantile(0.2, [0.3, 0.7]).rank_weights(2), "repeat rows"),
        (lambda: bf.Spectral([0.5, 0.6]), "sum to one, got 1.1: divide"),
        (lambda: bf.Spectral([1.5, -0.5]), "weights must be >= 0, got -0.5"),
        (lambda: bf.Spectral([[0.5, 0.5]]), "weights must be a vector"),
        (lambda: bf.Spectral([0.5, 0.5]).value([1.0, 2.0, 3.0]), "weights for 2 losses, got 3"),
        (lambda: bf.Spectral([0.8, 0.2]).worst([1.0, 2.0]), "fall from rank 1 to the next"),
        (lambda: bf.Extremile(0.5), "r must be a number >= 1, got 0.5"),
        (lambda: bf.ExponentialSpectral(0.0), "rho must be a number > 0"),
        (lambda: bf.TopK(0), "k must be an integer >= 1, got 0"),
        (lambda: bf.TopK(1.5), "k must be an integer"),
        (lambda: bf.TopK(3).value([1.0, 2.0]), "needs 3 losses or more, got 2: count fewer"),
        (lambda: bf.RankedRange(2, 2), "0 <= m < k, got k = 2, m = 2"),
        (lambda: bf.RankedRange(2, 1, "down"), "'ascending' or 'descending', got 'down'"),
        (lambda: bf.RankedRange(5, 1).value([1.0, 2.0]), "needs 5 losses or more, got 2"),
        (lambda: bf.ValueAtRisk(0.0), r"level must be in \(0, 1\]"),
        (lambda: bf.HumanAligned(0.5, -0.1), "use b from 0 to 1.5; b = 1 is the mean"),
        (lambda: bf.HumanAligned(0.5, 1.6), "use b from 0 to 1.5"),
        (lambda: bf.HumanAligned(math.nan, 0.3), "a and b must be finite"),
        (lambda: bf.ProspectTheory(gamma=0.2), r"gamma must be in \[0.28, 1\], got 0.2"),
        (lambda: bf.ProspectTheory(delta=1.5), "delta must be"),
        (lambda: bf.ProspectTheory(reference=math.inf), "reference must be a finite loss"),
        (lambda: bf.Median().value([1.0, math.nan]), "losses must be finite"),
        (lambda: bf.Median().prox([1.0, 2.0], -1.0), "step must be a number >= 0"),
        (lambda: bf.ProspectTheory().prox([1.0, 2.0], -1.0), "step must be a number >= 0"),
        (
            lambda: bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.Median()),
            "over_clients must be a convex risk, got Median",
        ),
        (
            lambda: bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.Spectral([0.8, 0.2])),
            "over_clients must be a convex risk",
        ),
        (
            lambda: bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.1, "size")),
            "belongs in over_clients",
        ),
    ],
)
def test_wrong_parameters_are_refused_with_a_remedy(build, needle):
    with pytest.raises(ValueError, match=needle):
        build()


def test_human_aligned_weights_are_least_at_b():
    for a, b in ((0.4, 0.3), (0.0, 0.0), (1.0, 0.2), (0.5, 1.5), (2.5, 1.1), (-1.5, 0.9)):
        least = bf.HumanAligned(a, b).rank_weights(20000).min() * 20000
        assert least >= -1e-9
        if -1 <= a <= 2 and b <= 1:
            assert least == pytest.approx(b, abs=1e-3)


@pytest.mark.parametrize("risk", [bf.LpBall(0.1), bf.Simplex(), "superquantile"], ids=repr)
def test_only_risks_by_rank_go_over_samples(risk):
    with pytest.raises(TypeError, match="over_samples must be Mean"):
        bf.Problem(bf.Hinge(), PLAIN, over_samples=risk)
    with pytest.raises(TypeError, match=r"got the class TopK: write TopK\(\.\.\.\)"):
        bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.TopK)


def test_a_client_with_too_few_rows_is_named():
    fed = federation(3)  # fewer than 60 rows each
    for risk in (bf.TopK(60), bf.RankedRange(60, 2), bf.Spectral(np.full(60, 1 / 60))):
        with pytest.raises(ValueError, match=r"client 'c0': .*60"):
            bf.Problem(bf.Hinge(), PLAIN, over_samples=risk).at(fed)
    assert bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.TopK(60)).at(fed.pooled())


def test_weighted_rows_are_refused_and_equal_weights_are_not():
    fed = federation(3)
    rows = [fed.rows(i) for i in range(3)]
    problem = bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.2))

    def weighted(weights):
        return bf.Federation(
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
    problem = bf.Problem(bf.Hinge(), PLAIN, over_samples=risk, regulariser=bf.L2(0.1))
    with pytest.raises(ValueError, match=r"convex risk .*or RankADMM\(\) on fed\.pooled\(\)"):
        bf.solve(problem, fed, algorithm=bf.Bundle())
    w = 0.1 * np.ones(8)
    certificate = bf.certify(problem, fed, w, None)
    assert certificate.value == pytest.approx(problem.objective(w, fed), rel=1e-12)
    assert certificate.bound is None
    duals = bf.Duals(np.full(3, 1 / 3), w[None], np.full((1, 3), 1 / 3))
    with pytest.raises(ValueError, match="not convex"):
        bf.certify(problem, fed, w, duals)
    with pytest.raises(ValueError, match="not convex"):
        feasible_duals(problem.at(fed)[0], duals)


@pytest.mark.parametrize(
    "algorithm", [bf.ADLPMM(), bf.EpigraphADMM(), bf.DoubleLoop()], ids=lambda a: type(a).__name__
)
def test_methods_for_the_mean_refuse_ranks(algorithm):
    fed, name = federation(3), type(algorithm).__name__
    ranked = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.2), regulariser=bf.L2(0.1)
    )
    with pytest.raises(
        ValueError, match=f"{name} needs over_samples = Mean.*WassersteinBall, got Superquantile"
    ):
        bf.solve(ranked, fed, algorithm=algorithm)
    if name != "EpigraphADMM":  # which takes every set of weights with a projection
        tail = bf.Problem(
            bf.Hinge(), PLAIN, over_clients=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
        )
        with pytest.raises(
            ValueError, match="over_clients = Mean, Simplex, LpBall or TotalVariationBall"
        ):
            bf.solve(tail, fed, algorithm=algorithm)


def test_the_central_program_refuses_ranks_over_samples():
    with pytest.raises(ValueError, match="CentralConic needs over_samples = Mean"):
        bf.CentralConic().solve(
            bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.TopK(3)), federation(3)
        )


def test_the_rest_of_a_solution_knows_ranks():
    """Notes, exposed rows and baselines do not assume a mean or a ball."""
    fed, w = federation(3), 0.1 * np.ones(8)
    tail = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.Superquantile(0.2),
        over_clients=bf.Superquantile(0.5, "size"),
    )
    solution = bf.solve(tail, fed)
    # nothing bounds where an optimum lies
    assert "No lower bound is stated" in " ".join(solution.notes)
    assert solution.certificate.client_risks.min() >= solution.certificate.client_losses.min()
    assert bf.exposed_rows(tail, fed, w, "c0") == []
    median = bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.Median(), regulariser=bf.L2(0.1))
    concrete, data = median.at(fed)
    told = notes(concrete, fed, data, w, bf.certify(median, fed, w, None))
    assert told == ("No lower bound is stated: Median over samples is not convex.",)
    for problem in (tail, median):
        for name, baseline in BASELINES.items():
            other, rows = baseline(problem, fed)
            assert other.objective(w, rows) > 0, name
    assert afl(tail, fed)[0].over_clients == tail.over_clients
    pooled, rows = wafl(tail, fed)
    assert rows.n_clients == 1
    assert pooled.over_samples == tail.over_samples
