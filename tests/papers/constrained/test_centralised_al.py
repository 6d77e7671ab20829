"""Algorithm 3 against models written independently in CVXPY and SLSQP, primal and dual; a step by
hand; its stop.
"""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from constrained_oracles import FEATURES, NAMES, federation, logistic, raw_rows
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN
from scipy.optimize import minimize

import bonafed as bf
from bonafed.papers.constrained.centralised import CentralisedAL
from bonafed.papers.constrained.lcqp import LCQP, exact, lcqp, rows_of, value
from bonafed.problem.lower_bounds import Multipliers
from bonafed.rounds import Stop

FED, RAW = federation(), raw_rows(federation())
EXACT = CentralisedAL(tol=1e-9)
PRIOR = np.array([0.3, 0.1, 0.2, 0.25, 0.15])
TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8}


def mean(w, b, rows, inside):
    """The mean logistic loss in CVXPY."""
    return cp.sum(cp.logistic(cp.multiply(-rows.y[inside], rows.X[inside] @ w + b))) / inside.sum()


def every(rows):
    return np.ones(len(rows.y), bool)


def of(rows, label):
    return rows.y == label


def close(result, w, value, multipliers, tol=1e-4):
    assert result.stop is Stop.OPTIMAL
    assert_allclose(result.value, value, rtol=1e-7)
    assert_allclose(result.w, w, atol=tol * max(1, np.abs(w).max()))
    found = np.concatenate(
        [result.multipliers.server, result.multipliers.shared, result.multipliers.local.ravel()]
    )
    assert_allclose(found, multipliers, atol=tol * max(1, np.abs(multipliers).max(initial=0)))
    assert (
        max(
            result.residuals.stationarity,
            result.residuals.feasibility,
            result.residuals.complementarity,
        )
        <= 1e-8
    )


@pytest.mark.parametrize(
    ("h", "penalty"),
    [
        (bf.L2(0.02), lambda w: 0.01 * cp.sum_squares(w)),
        (bf.L1(0.02), lambda w: 0.02 * cp.norm1(w)),
        (bf.ElasticNet(0.01, 0.02), lambda w: 0.01 * cp.norm1(w) + 0.01 * cp.sum_squares(w)),
    ],
)
@pytest.mark.parametrize("intercept", [False, True])
def test_neyman_pearson(h, penalty, intercept):
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(intercept),
        bf.Mean(label="no"),
        bf.Mean(PRIOR),
        h,
        None,
        bf.NeymanPearson("yes", 0.65),
    )
    w, b = cp.Variable(4), cp.Variable() if intercept else 0.0
    f = sum(q * mean(w, b, rows, of(rows, -1.0)) for q, rows in zip(PRIOR, RAW, strict=True))
    own = {
        i: mean(w, b, rows, of(rows, 1.0)) <= 0.65
        for i, rows in enumerate(RAW)
        if of(rows, 1.0).any()
    }
    value = cp.Problem(cp.Minimize(f + penalty(w)), list(own.values())).solve(**TIGHT)
    mu = np.array([own[i].dual_value if i in own else 0.0 for i in range(5)])
    assert (mu > 1e-3).any()
    close(
        EXACT.solve(problem, FED), np.append(w.value, b.value) if intercept else w.value, value, mu
    )


def test_box_and_constraints_on_all_clients_server_and_model():
    rng = np.random.default_rng(2)
    X0, y0 = rng.standard_normal((9, 4)), np.where(rng.random(9) < 0.5, "no", "yes")
    fed = bf.Federation(
        FED.clients,
        FED.X,
        FED.y,
        feature_names=FEATURES,
        columns=FED.columns,
        server=(X0, y0),
        linear=FED.linear,
    )
    w = cp.Variable(4)
    y0 = np.where(y0 == "yes", 1.0, -1.0)
    held = [
        cp.sum(cp.logistic(cp.multiply(-y0[y0 > 0], X0[y0 > 0] @ w))) / (y0 > 0).sum() <= 0.66,
        w[0] - w[3] <= 0,
    ]
    sums = {sex: sum((rows.column("sex") == sex).sum() for rows in RAW) for sex in "fm"}
    shared = []
    for sex in "fm":
        parts = [(rows, rows.column("sex") == sex) for rows in RAW]
        total = sum(mean(w, 0, rows, own) * own.sum() for rows, own in parts if own.any())
        shared.append(total / sums[sex] <= 0.675)
    f = sum(mean(w, 0, rows, every(rows)) for rows in RAW) / 5
    value = cp.Problem(cp.Minimize(f + 0.05 * cp.norm1(w)), [*held, *shared]).solve(**TIGHT)
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        regulariser=bf.L1(0.05),
        constraint=[
            bf.NeymanPearson("yes", 0.66),
            bf.Coupled(bf.BoundedGroupLoss("sex", 0.675)),
            bf.LinearInequality([1.0, 0, 0, -1], 0.0),
        ],
    )
    result = EXACT.solve(problem, fed)
    close(result, w.value, value, np.array([float(c.dual_value) for c in [*held, *shared]]))
    assert (
        np.concatenate([result.multipliers.server, result.multipliers.shared]) > 1e-4
    ).sum() >= 2
    w = cp.Variable(4)
    inside = [w >= -0.3, w <= 0.4, mean(w, 0, RAW[0], of(RAW[0], 1.0)) <= 0.7]
    value = cp.Problem(
        cp.Minimize(sum(mean(w, 0, rows, every(rows)) for rows in RAW) / 5), inside
    ).solve(**TIGHT)
    box = bf.Problem(
        bf.Logistic(),
        PLAIN,
        regulariser=bf.Bounds(-0.3, 0.4),
        local_constraint=bf.NeymanPearson("yes", [0.7, 9, 9, 9, 9]),
    )
    close(EXACT.solve(box, FED), w.value, value, np.append(inside[2].dual_value, np.zeros(4)))


def test_parity_of_scores():
    w = cp.Variable(4)
    parity, where = [], []
    for i, rows in enumerate(RAW):
        f, m = (rows.column("sex") == sex for sex in "fm")
        if m.any():
            gap = (rows.X[f].mean(0) - rows.X[m].mean(0)) @ w
            parity, where = [*parity, gap <= 0.05, -gap <= 0.05], [*where, i]
    value = cp.Problem(
        cp.Minimize(sum(mean(w, 0, rows, every(rows)) for rows in RAW) / 5), parity
    ).solve(**TIGHT)
    mu = np.zeros((5, 2))
    mu[where] = np.reshape([c.dual_value for c in parity], (-1, 2))
    problem = bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.DemographicParity("sex", 0.05))
    close(EXACT.solve(problem, FED), w.value, value, mu.ravel())


def changed(spectrum=None, redundant=False):
    """An instance with another spectrum of every A_i, or whose last rows are the others' sum."""
    fed = lcqp(30, 4, 2, 1)
    A, (C, d) = list(fed.X), [part.reshape(5, 2, -1) for part in rows_of(fed)]
    d = d[..., 0]
    if spectrum is not None:
        A = [U * spectrum @ U.T for U in (np.linalg.eigh(square)[1] for square in A)]
    if redundant:
        C[-1], d[-1] = C[:-1].sum(0), d[:-1].sum(0)
    return bf.Federation.from_quadratics(A, fed.y, list(C), list(d))


SPECTRA = {"wide": np.geomspace(1e-3, 1, 30), "singular": np.append(0.0, np.linspace(0.5, 1, 29))}


@pytest.mark.parametrize(
    "fed",
    [changed(), *(changed(spectrum) for spectrum in SPECTRA.values()), changed(redundant=True)],
    ids=["plain", *SPECTRA, "redundant"],
)
@pytest.mark.parametrize("beta", [10.0, 300.0])
def test_quadratic_programs_with_equalities(fed, beta):
    w, mu = exact(fed)
    result = CentralisedAL(beta, tol=1e-9).solve(LCQP, fed)
    assert result.stop is Stop.OPTIMAL
    assert_allclose(result.value, value(fed, w), rtol=1e-6)
    assert_allclose(result.w, w, atol=1e-6 * np.abs(w).max())
    C, _ = rows_of(fed)  # multipliers of redundant rows are many, and pull alike
    found = np.concatenate([result.multipliers.server, result.multipliers.local.ravel()])
    assert_allclose(C.T @ found, C.T @ mu, atol=1e-6 * np.abs(C.T @ mu).max())


def test_loss_gap_that_is_not_convex_against_slsqp():
    problem = bf.Problem(
        bf.Logistic(), PLAIN, regulariser=bf.L2(0.01), local_constraint=bf.LossGap("sex", 0.05)
    )

    def losses(w, rows):
        return logistic(rows.X @ w, rows.y)

    def gap(w, rows):
        found = losses(w, rows)
        f, m = (rows.column("sex") == sex for sex in "fm")
        return found[f].mean() - found[m].mean() if m.any() else 0.0

    found = minimize(
        lambda w: np.mean([losses(w, rows).mean() for rows in RAW]) + 0.005 * w @ w,
        np.zeros(4),
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda w: [0.05 - s * gap(w, rows) for rows in RAW for s in (1, -1)],
        },
        options={"ftol": 1e-13, "maxiter": 500},
    )
    result = EXACT.solve(problem, FED)
    assert result.stop is Stop.UNPROVEN  # stationary is all that is known
    assert_allclose(result.value, found.fun, rtol=1e-6)
    assert problem.violation(result.w, FED) <= 1e-8
    assert (result.multipliers.local > 1e-3).any()


def own_ball(w, X, y):
    return w @ w - 0.04, 2 * w


@pytest.mark.parametrize("hessian", [None, lambda w, X, y, mu: 2 * mu[0] * np.eye(len(w))])
def test_functions_of_ones_own_with_and_without_curvature(hessian):
    w = cp.Variable(4)
    f = sum(mean(w, 0, rows, every(rows)) for rows in RAW) / 5
    value = cp.Problem(cp.Minimize(f), [cp.sum_squares(w) <= 0.04]).solve(**TIGHT)
    constraint = bf.Constraint(own_ball, convex=True, hessian=hessian)
    result = CentralisedAL(tol=1e-8).solve(
        bf.Problem(bf.Logistic(), PLAIN, local_constraint=constraint), FED
    )
    assert result.stop is Stop.OPTIMAL
    assert_allclose(result.value, value, rtol=1e-7)
    assert_allclose(result.w, w.value, atol=1e-4)


def test_an_outer_iteration_is_the_equation():
    problem = bf.Problem(
        bf.Logistic(), PLAIN, regulariser=bf.L2(0.1), local_constraint=bf.NeymanPearson("yes", 0.6)
    )
    beta, start = 5.0, np.array([0.3, -0.2, 0.1, 0.4])
    mu = np.array([0.3, 0.0, 0.2, 0.1, 0.0])

    def c(w):
        return np.array(
            [
                rows.mean(logistic, w, rows.y > 0) - 0.6 if (rows.y > 0).any() else -1.0
                for rows in RAW
            ]
        )

    def merit(w):
        f = np.mean([rows.mean(logistic, w, every(rows)) for rows in RAW]) + 0.05 * w @ w
        up = np.maximum(mu + beta * c(w), 0)
        return f + (up @ up - mu @ mu) / (2 * beta) + (w - start) @ (w - start) / (2 * beta)

    expected = minimize(merit, start, method="BFGS", options={"gtol": 1e-9}, tol=1e-12)
    algorithm = CentralisedAL(
        beta,
        1e-10,
        1e-9,
        max_outer=1,
        start=start,
        multipliers=Multipliers(np.zeros(0), np.zeros(0), mu[:, None]),
    )
    result = algorithm.solve(problem, FED)
    assert result.stop is Stop.MAX_ROUNDS
    assert_allclose(result.w, expected.x, atol=2e-6)
    assert_allclose(
        result.multipliers.local[:, 0], np.maximum(mu + beta * c(result.w), 0), atol=1e-12
    )


def test_multipliers_are_prices():
    def solve(level):
        problem = bf.Problem(
            bf.Logistic(),
            PLAIN,
            bf.Mean(label="no"),
            bf.Mean("size"),
            bf.L2(0.02),
            local_constraint=bf.NeymanPearson("yes", level),
        )
        return EXACT.solve(problem, FED)

    base, step = np.full(5, 0.65), 1e-4
    price = solve(base).multipliers.local[:, 0]
    for i in range(5):
        more, less = (solve(base + s * step * (np.arange(5) == i)).value for s in (1, -1))
        assert_allclose((less - more) / (2 * step), price[i], atol=2e-5)


def test_the_stop_is_the_printed_one():
    fed = lcqp(30, 4, 2, 1)
    for tol in (1e-2, 1e-4):
        result = CentralisedAL(10.0, 0.1, tol).solve(LCQP, fed)
        before = CentralisedAL(10.0, 0.1, tol, max_outer=result.outer - 1).solve(LCQP, fed)
        assert result.stop is Stop.OPTIMAL
        assert before.stop is Stop.MAX_ROUNDS
        changed = [
            np.abs(getattr(result.multipliers, part) - getattr(before.multipliers, part)).max()
            for part in ("server", "local")
        ]
        moved = np.abs(result.w - before.w).max()
        assert max(changed) <= 10 * tol
        assert moved <= 10 * tol
        assert result.residuals.stationarity <= tol
        assert result.residuals.feasibility <= tol
        assert result.evaluations > before.evaluations
    wide = CentralisedAL(10.0, 0.1, (1e-2, 1e-6)).solve(LCQP, fed)
    assert wide.residuals.feasibility <= 1e-6


def test_an_inner_cap_is_no_success():
    problem = bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.NeymanPearson("yes", 0.65))
    result = CentralisedAL(s_bar=1e-9, max_inner=1).solve(problem, FED)
    assert result.stop is Stop.STALLED
    assert "an inner solve ended at" in result.text


def test_contradictions_are_no_success():
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        local_constraint=[bf.NeymanPearson(label, 0.3) for label in ("yes", "no")],
    )
    result = CentralisedAL(max_outer=30).solve(problem, FED)
    assert result.stop is Stop.MAX_ROUNDS
    assert result.residuals.feasibility > 0.1
    assert "no model may meet the constraints" in result.text


def test_without_constraints_it_is_a_proximal_point_method():
    w = cp.Variable(4)
    f = sum(mean(w, 0, rows, every(rows)) for rows in RAW) / 5 + 0.05 * cp.norm1(w)
    value = cp.Problem(cp.Minimize(f)).solve(**TIGHT)
    close(
        EXACT.solve(bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L1(0.05)), FED),
        w.value,
        value,
        np.zeros(0),
    )


def test_order_of_clients_and_arguments():
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        bf.Mean(label="no"),
        regulariser=bf.L1(0.02),
        local_constraint=bf.NeymanPearson("yes", 0.65),
    )
    start, mu = np.full(4, 0.1), Multipliers(np.zeros(0), np.zeros(0), np.full((5, 1), 0.1))
    start.flags.writeable = mu.local.flags.writeable = False
    result = replace(EXACT, start=start, multipliers=mu).solve(problem, FED)
    assert_array_equal(start, 0.1)
    assert_array_equal(mu.local, 0.1)
    order = [4, 2, 0, 3, 1]
    moved = bf.Federation(
        [NAMES[i] for i in order],
        [FED.X[i] for i in order],
        [FED.y[i] for i in order],
        feature_names=FEATURES,
    )
    other = EXACT.solve(problem, moved)
    assert_allclose(other.w, result.w, atol=1e-7)
    assert_allclose(other.multipliers.local, result.multipliers.local[order], atol=1e-7)
    assert_allclose(problem.objective(result.w, FED), result.value, rtol=1e-13)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta": 0.0}, "beta must be a positive number, got 0.0"),
        ({"s_bar": -1.0}, "s_bar must be a positive number"),
        ({"tol": (1e-3, 0.0)}, "tol must be a number > 0"),
        ({"max_outer": 0}, "must be >= 1, got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        CentralisedAL(**options)


def test_unsuitable_problems_are_refused():
    with pytest.raises(ValueError, match=r"needs a smooth loss .* got Hinge\(\): use Bundle"):
        EXACT.solve(bf.Problem(bf.Hinge(), PLAIN), FED)
    with pytest.raises(ValueError, match=r"needs a convex regulariser .* got MCP.*AsyncDRO"):
        EXACT.solve(bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.MCP(0.1)), FED)
    with pytest.raises(ValueError, match=r"over_clients = Mean or Sum.* Bundle"):
        EXACT.solve(bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex()), FED)
    with pytest.raises(ValueError, match="start must be 4 finite numbers"):
        replace(EXACT, start=np.zeros(3)).solve(bf.Problem(bf.Logistic(), PLAIN), FED)
    wrong = Multipliers(np.zeros(0), np.zeros(0), np.full((5, 1), -1.0))
    with pytest.raises(ValueError, match="multipliers must be 5 finite numbers, >= 0"):
        replace(EXACT, multipliers=wrong).solve(
            bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.NeymanPearson("yes", 0.6)), FED
        )
