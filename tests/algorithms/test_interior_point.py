"""InteriorPoint against other solvers, primal and multipliers; what it says where there is no
optimum; its limits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from constrained_programs import clients, neyman_pearson, one_hot, quadratic, stated
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN

import bonafed as bf
from bonafed.engines.inprocess import InProcess
from bonafed.solution.plan import default_algorithm


def solve(problem, fed, **options):
    """By the interior point method."""
    return bf.solve(problem, fed, algorithm=bf.InteriorPoint(), **options)


# ---- optima of others


SCALES = 10.0 ** np.array([-4, -1, 1, 4])
CASES = {
    "no regulariser": (clients(), {}),
    "L1": (clients(), {"h": bf.L1(0.02), "level": 0.5}),
    "L2": (clients(), {"h": bf.L2(0.02), "level": 0.4}),
    "elastic net": (clients(), {"h": bf.ElasticNet(0.01, 0.02)}),
    "box": (clients(), {"h": bf.Bounds(-0.6, 0.6), "level": 0.5}),
    "intercept": (clients(), {"intercept": True, "level": 0.35}),
    "intercept, L1": (clients(), {"intercept": True, "level": 0.35, "h": bf.L1(0.02)}),
    "text labels, weights": (clients(1, (20, 60, 35), text=True, weights=True), {}),
    "one client": (clients(2, (80,)), {"level": 0.25}),
    "20 clients": (clients(3, tuple(range(12, 32))), {"level": 0.7}),
    "unequal sizes": (clients(4, (5, 100, 20, 40, 9)), {"level": 0.55}),
    "rank deficient, L1": (one_hot(), {"level": 0.6, "h": bf.L1(0.005)}),
    "rank deficient, L2": (one_hot(), {"level": 0.6, "h": bf.L2(0.01)}),
    "rank deficient": (one_hot(), {"level": 0.6}),
    "scales 1e-4 to 1e4": (clients(5, (60, 50, 40), scales=SCALES), {}),
    "smooth hinge": (clients(), {"loss": bf.SmoothHinge(), "level": 0.3}),
    "exponential": (clients(), {"loss": bf.Exponential(), "level": 0.65}),
    "level by client": (clients(), {"level": [0.5, 0.45, 0.9]}),
    "inactive": (clients(), {"level": 2.0}),
}
SEVERAL = ("rank deficient, L1", "rank deficient")  # optimal models


@pytest.mark.parametrize("name", CASES)
def test_equals_clarabel_in_value_model_and_prices(name):
    fed, options = CASES[name]
    loss, level = options.get("loss", bf.Logistic()), options.get("level", 0.45)
    known = neyman_pearson(fed, loss, level, options.get("h"), options.get("intercept", False))
    solution = solve(stated(fed, **options), fed)
    proof = solution.certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.rounds <= 25
    assert proof.value == pytest.approx(known.value, rel=1e-6 if name in SEVERAL else 1e-7)
    assert proof.feasibility <= 1e-8
    assert proof.gap >= -1e-8 * known.value  # below 0 by what is left of a violation
    assert proof.relative_gap <= 1e-8
    if name not in SEVERAL:
        assert_allclose(solution.w, known.w, rtol=0, atol=1e-5 * np.abs(known.w).max())
    assert_allclose(solution.duals.local[:, 0], known.prices, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [bf.Squared(), bf.Huber(0.4)])
@pytest.mark.parametrize("h", [bf.Zero(), bf.L1(0.05)])
def test_regression_with_linear_constraints(loss, h):
    fed = clients(6, (30, 20), real=True)
    C, d = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, -1.0, 1.0, -1.0]]), np.array([-0.3, 0.2])
    known = neyman_pearson(fed, loss, 0.0, h, objective_of=None, bound_on=None, linear=(C, d))
    solution = solve(
        bf.Problem(loss, PLAIN, regulariser=h, constraint=bf.LinearInequality(C, d)), fed
    )
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(known.value, rel=1e-7)
    assert_allclose(solution.w, known.w, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": 3},
        {"redundant": True},
        {"rank": 3, "redundant": True},
        {"size": 1e6},
        {"size": 1e-6},
        {"n": 1},
    ],
    ids=str,
)
def test_quadratic_programs_equal_a_dense_solve(options):
    problem, fed, (A, b, C, d) = quadratic(**options)
    solution = solve(problem, fed)
    k = len(d)
    system, right = np.block([[A, C.T], [C, np.zeros((k, k))]]), np.append(-b, -d)
    unique = not options.get("redundant")
    dense = (
        np.linalg.solve(system, right) if unique else np.linalg.lstsq(system, right, rcond=1e-12)[0]
    )
    w, lam = dense[:20], dense[20:]
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    value = w @ A @ w / 2 + b @ w
    assert solution.certificate.value == pytest.approx(value, rel=1e-9)
    assert solution.certificate.bound == pytest.approx(value, rel=1e-8)
    assert_allclose(solution.w, w, atol=1e-7 * np.abs(w).max())
    found = np.append(solution.duals.server, solution.duals.local)
    if unique:
        assert_allclose(found, lam, atol=1e-6 * np.abs(lam).max())
    assert np.abs(A @ solution.w + b + C.T @ found).max() <= 1e-8 * np.abs(b).max()
    assert solution.certificate.stationarity == pytest.approx(
        np.abs(A @ solution.w + b + C.T @ found).max(), abs=1e-9 * np.abs(b).max()
    )


# ---- the run


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_cap_is_never_success(rounds):
    fed = clients()
    solution = solve(stated(fed), fed, max_rounds=rounds)
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert solution.rounds == rounds
    assert "raise max_rounds" in solution.outcome.text


def test_starts():
    fed = clients()
    problem = stated(fed)
    plain = solve(problem, fed)
    rng = np.random.default_rng(0)
    for start in (plain.w, np.full(4, 3.0), 2 * rng.standard_normal(4), np.full(4, -2.0)):
        again = solve(problem, fed, start=start)
        assert again.outcome.stop is bf.Stop.OPTIMAL
        assert again.certificate.value == pytest.approx(plain.certificate.value, rel=1e-8)
    inactive = stated(fed, level=2.0)
    best = solve(inactive, fed)
    # its gradient is rounding
    assert solve(inactive, fed, start=best.w).outcome.stop is bf.Stop.OPTIMAL
    boxed = stated(fed, level=0.5, h=bf.Bounds(-0.6, 0.6))
    assert solve(boxed, fed, start=np.full(4, 9.0)).outcome.stop is bf.Stop.OPTIMAL


def test_a_stationary_first_model():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    fed = bf.Federation.from_arrays(np.vstack([X, X]), np.repeat([0, 1], 20), np.arange(40) % 2)
    solution = solve(
        bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.NeymanPearson(1, 0.9)), fed
    )
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(np.log(2), rel=1e-9)


def test_tolerances():
    fed = clients()
    problem = stated(fed)
    tight = solve(problem, fed, tol=1e-11)
    loose = solve(problem, fed, tol=1e-4)
    absolute = solve(problem, fed, tol=1e-7, atol=1e-2)
    assert loose.rounds < tight.rounds
    for solution, gap in ((tight, 2e-9), (loose, 1.1e-4)):
        assert solution.outcome.stop is bf.Stop.OPTIMAL
        assert solution.certificate.relative_gap <= gap
    assert absolute.rounds <= tight.rounds
    assert absolute.certificate.gap <= 1e-2
    none = solve(problem, fed, tol=0.0)
    assert none.outcome.stop in (bf.Stop.STALLED, bf.Stop.UNPROVEN, bf.Stop.OPTIMAL)
    assert none.certificate.relative_gap <= 1e-9


@pytest.mark.parametrize("tol", [0.1, 1e-2, 1e-3, 1e-6])
@pytest.mark.parametrize("name", ["rank deficient", "text labels, weights", "scales 1e-4 to 1e4"])
def test_a_loose_tolerance_is_of_the_objective_not_of_the_limits(name, tol):
    fed, options = CASES[name]
    solution = solve(stated(fed, **options), fed, tol=tol)
    assert solution.certificate.feasibility <= 1e-6
    assert solution.outcome.stop in (bf.Stop.OPTIMAL, bf.Stop.UNPROVEN)
    if tol <= 1e-3:
        assert solution.outcome.stop is bf.Stop.OPTIMAL
        assert solution.certificate.relative_gap <= tol + 1e-8


def test_permuting_clients_permutes_results():
    fed = clients(weights=True)
    problem = stated(fed, level=[0.5, 0.45, 0.9])
    order = [2, 0, 1]
    shuffled = bf.Federation(
        [fed.clients[i] for i in order],
        [fed.X[i] for i in order],
        [fed.y[i] for i in order],
        sample_weight=[fed.sample_weight[i] for i in order],
    )
    one = solve(problem, fed)
    other = solve(stated(fed, level=[0.9, 0.5, 0.45]), shuffled)
    assert_allclose(other.w, one.w, rtol=1e-7)
    assert_allclose(other.duals.local, one.duals.local[order], rtol=1e-6, atol=1e-9)
    assert [row["client"] for row in other.clients] == [fed.clients[i] for i in order]
    measured = {row["owner"]: row["measured"] for row in one.constraints}
    for row in other.constraints:
        assert row["measured"] == pytest.approx(measured[row["owner"]], rel=1e-7)


def test_engine_modes_agree():
    fed = clients(sizes=(9, 30, 12, 25))
    problem = stated(fed, level=0.6, h=bf.L1(0.01))
    runs = [
        bf.solve(problem, fed, algorithm=bf.InteriorPoint(), engine=InProcess(mode=mode))
        for mode in ("blocks", "each", "bytes")
    ]
    for run in runs[1:]:
        assert run.rounds == runs[0].rounds
        assert_allclose(run.w, runs[0].w, atol=1e-8)
    assert_array_equal(runs[1].w, runs[2].w)


def test_a_resumed_run_is_the_same(tmp_path):
    fed = clients()
    problem = stated(fed)
    whole = solve(problem, fed)
    engine = InProcess(checkpoint=tmp_path / "run", every=1)
    part = bf.solve(problem, fed, algorithm=bf.InteriorPoint(), engine=engine, max_rounds=4)
    assert part.outcome.stop is bf.Stop.MAX_ROUNDS
    seen = []

    def interrupt(row, state):
        seen.append(row["round"])
        if len(seen) == 5:
            raise KeyboardInterrupt

    engine = InProcess(checkpoint=tmp_path / "other", every=1)
    stopped = bf.solve(problem, fed, algorithm=bf.InteriorPoint(), engine=engine, watch=[interrupt])
    assert stopped.outcome.stop is bf.Stop.INTERRUPTED
    resumed = bf.solve(problem, fed, algorithm=bf.InteriorPoint(), engine=engine, resume=True)
    assert_array_equal(resumed.w, whole.w)
    assert_array_equal(resumed.duals.local, whole.duals.local)
    assert resumed.rounds == whole.rounds


def test_arguments_are_not_changed():
    fed = clients()
    level, start = np.array([0.5, 0.45, 0.9]), np.full(4, 0.3)
    digests = fed.digests()
    solve(stated(fed, level=level), fed, start=start)
    assert_array_equal(level, [0.5, 0.45, 0.9])
    assert_array_equal(start, 0.3)
    assert fed.digests() == digests


def test_a_client_without_positive_rows():
    fed = clients(sizes=(40, 30, 12))
    fed = bf.Federation(fed.clients, fed.X, (fed.y[0], fed.y[1], np.zeros(12, int)))
    solution = solve(stated(fed, level=0.6), fed)
    known = neyman_pearson(fed, bf.Logistic(), 0.6)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(known.value, rel=1e-7)
    assert solution.duals.local[2, 0] == 0.0
    assert np.isnan(solution.certificate.constraint_values[2, 0])
    assert any(
        "No rows for the constraint on mean loss of class 1 at clinic 2" in note
        for note in solution.notes
    )
    assert not [row for row in solution.constraints if row["owner"] == "clinic 2"]
    assert solution.clients[2]["limit"] is None
    flipped = bf.Federation(fed.clients, fed.X, (fed.y[0], fed.y[1], np.ones(12, int)))
    solution = solve(stated(flipped, level=0.6), flipped)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert any("No rows of class 0 at clinic 2" in note for note in solution.notes)


# ---- what it does not take


def ball(w, X, y):
    return np.array([w @ w - 1]), 2 * w[None]


def test_unsuitable_problems_are_refused_in_words():
    fed = clients()
    own = bf.Constraint(ball, convex=True)
    with pytest.raises(ValueError, match=r"needs a smooth loss .* got Hinge\(\)"):
        solve(stated(fed, bf.Hinge()), fed)
    with pytest.raises(ValueError, match=r"needs a convex regulariser made of .* got MCP"):
        solve(stated(fed, h=bf.MCP(0.1)), fed)
    for held in ({"local_constraint": own}, {"constraint": bf.Coupled(own, "uniform")}):
        problem = bf.Problem(bf.Logistic(), **held)
        with pytest.raises(ValueError, match=r"second derivatives .*hessian"):
            solve(problem, fed)
        assert type(default_algorithm(*problem.at(fed))).__name__ == "Bundle"
    with pytest.raises(ValueError, match=r"over_samples = Mean\(\).* use .*Bundle"):
        solve(replace(stated(fed), over_samples=bf.WassersteinBall(0.1, 1.0)), fed)
    for algorithm in (bf.ADLPMM(), bf.EpigraphADMM()):
        with pytest.raises(ValueError, match="takes no constraints"):
            bf.solve(stated(fed), fed, algorithm=algorithm)
    for bad in ({"tol": -1.0}, {"max_rounds": 0}, {"atol": np.nan}):
        with pytest.raises(ValueError, match="must be >="):
            bf.InteriorPoint(**bad)
    with pytest.raises(ValueError, match="start must be 4 finite numbers"):
        solve(stated(fed), fed, start=np.full(3, 1.0))
    assert isinstance(default_algorithm(*stated(fed).at(fed)), bf.InteriorPoint)


def test_a_first_model_beyond_the_numbers():
    fed = clients()
    with pytest.raises(ArithmeticError, match="not finite"):
        solve(stated(fed, bf.Exponential(), level=2.0), fed, start=np.full(4, 1e4))
