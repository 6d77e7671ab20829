"""What RankADMM takes and refuses, inputs that break methods, interrupted runs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, SOFTMAX
from rank_programs import central, check, data, objective, pooled, rows_of, solved
from scipy.sparse import csr_array

import quorate as qr
from quorate.rounds import encode
from quorate.solution.configure import configure
from quorate.solution.default import default_algorithm

# ---- what it takes


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"r": -1.0}, "r must be >= 0, got -1.0"),
        ({"relaxation": 0.9}, r"relaxation must be in \[1, 1.9\], got 0.9"),
        ({"relaxation": 2.0}, r"relaxation must be in \[1, 1.9\], got 2.0"),
        ({"check": 0}, "check must be >= 1, got 0"),
        ({"max_iterations": 0}, "max_iterations must be >= 1, got 0"),
        ({"starts": ()}, "starts must be"),
        ({"r": float("nan")}, "r must be >= 0, got nan"),
    ],
    ids=str,
)
def test_options_out_of_range(options, named):
    with pytest.raises(ValueError, match=named):
        qr.RankADMM(**options)


def test_one_owner_only():
    X, y = data(30, 3)
    fed = qr.Federation(["a", "b"], [X[:15], X[15:]], [y[:15], y[15:]])
    problem = qr.Problem(
        qr.Hinge(), PLAIN, over_samples=qr.Superquantile(0.3), regulariser=qr.L2(0.1)
    )
    with pytest.raises(
        ValueError, match=r"all rows in one place, got 2 clients: use fed.pooled\(\)"
    ):
        qr.solve(problem, fed, algorithm=qr.RankADMM())
    assert qr.solve(problem, fed.pooled(), algorithm=qr.RankADMM()).outcome.stop is qr.Stop.OPTIMAL


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        (
            qr.Problem(qr.Quantile(0.3), PLAIN, over_samples=qr.Superquantile(0.3)),
            r"increases with one rank coordinate .* got Quantile.*use Bundle\(\)",
        ),
        (
            qr.Problem(qr.Multinomial(), SOFTMAX),
            r"predictor Linear, got Softmax.*use Bundle\(\)",
        ),
    ],
    ids=["Quantile", "Multinomial"],
)
def test_losses_without_a_rank_coordinate(problem, named):
    X, y = data(30, 3)
    with pytest.raises(ValueError, match=named):
        qr.solve(problem, pooled(X, y), algorithm=qr.RankADMM())


def test_rows_of_different_weights():
    X, y = data(30, 3)
    fed = qr.Federation(["a"], [X], [y], sample_weight=[np.arange(1.0, 31.0)])
    with pytest.raises(ValueError, match="weights"):
        qr.solve(
            qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.Superquantile(0.3)),
            fed,
            algorithm=qr.RankADMM(),
        )
    with pytest.raises(ValueError, match=r"no sample weights, got rows .*: use Bundle\(\)"):
        qr.solve(
            qr.Problem(qr.Hinge(), PLAIN, regulariser=qr.L2(0.1)), fed, algorithm=qr.RankADMM()
        )


def test_what_solve_picks():
    X, y = data(30, 3)
    one, two = pooled(X, y), qr.Federation(["a", "b"], [X[:15], X[15:]], [y[:15], y[15:]])
    weighted = qr.Federation(["a"], [X], [y], sample_weight=[np.arange(1.0, 31.0)])
    tail, g = qr.Superquantile(0.3), qr.L2(0.1)
    for expected, problem, fed in (
        (qr.RankADMM, qr.Problem(qr.Hinge(), PLAIN, regulariser=g), one),
        (qr.RankADMM, qr.Problem(qr.Hinge(), PLAIN, over_samples=tail, regulariser=g), one),
        (qr.RankADMM, qr.Problem(qr.Squared(), PLAIN, over_samples=qr.Median()), one),
        (
            qr.RankADMM,
            qr.Problem(
                qr.Hinge(), PLAIN, over_samples=tail, over_clients=qr.Simplex(), regulariser=g
            ),
            one,
        ),
        (qr.Bundle, qr.Problem(qr.Hinge(), PLAIN, over_samples=tail, regulariser=g), two),
        (qr.Bundle, qr.Problem(qr.Hinge(), PLAIN, regulariser=g), weighted),
        (qr.Bundle, qr.Problem(qr.Quantile(0.3), PLAIN, over_samples=tail, regulariser=g), one),
        (qr.Bundle, qr.Problem(qr.Multinomial(), SOFTMAX, regulariser=g), one),
        (qr.Bundle, qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.WassersteinBall(0.1)), one),
    ):
        assert type(default_algorithm(*problem.at(fed))) is expected
    problem = qr.Problem(qr.Quantile(0.3), PLAIN, over_samples=tail, regulariser=g)
    assert qr.solve(problem, one).outcome.stop is qr.Stop.OPTIMAL


# ---- inputs that break methods


LOSSES = [qr.Logistic(), qr.Hinge(), qr.Absolute()]
LOSS = pytest.mark.parametrize("loss", LOSSES, ids=repr)
GENTLE = pytest.mark.parametrize("g", [qr.L2(0.1), qr.L1(0.05), qr.Bounds(-1.0, 1.0)], ids=repr)


@pytest.mark.parametrize("loss", [qr.Logistic(), qr.Hinge()], ids=repr)
@GENTLE
@pytest.mark.parametrize("intercept", [False, True])
def test_rows_of_zeros(loss, g, intercept):
    """All losses move together."""
    problem = qr.Problem(loss, qr.Linear(intercept), qr.Superquantile(0.43), regulariser=g)
    _, y = rows_of(problem, 12, 3)
    X = np.zeros((12, 3))
    solution = solved(problem, X, y, 1e-7)
    assert solution.outcome.stop is qr.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(
        objective(problem, X, y, central(problem, X, y)), rel=1e-6
    )


@LOSS
@GENTLE
def test_one_sample(loss, g):
    problem = qr.Problem(loss, PLAIN, over_samples=qr.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 1, 3)
    classes = (-1.0, 1.0) if loss.targets == "sign" else None
    # a sample that is met exactly has a loss of 0 up to rounding, which a relative gap cannot meet
    solution = solved(problem, X, y, 1e-7, classes=classes, atol=1e-15)
    assert solution.outcome.stop is qr.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(
        objective(problem, X, y, central(problem, X, y)), rel=1e-6
    )


@pytest.mark.parametrize("loss", [qr.Logistic(), qr.Hinge()], ids=repr)
@GENTLE
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_all_rows_of_one_class(loss, g, label):
    problem = qr.Problem(loss, PLAIN, over_samples=qr.Extremile(2.0), regulariser=g)
    X, y = data(12, 3)[0], np.full(12, label)
    solution = solved(problem, X, y, 1e-7, classes=(-1.0, 1.0))
    assert solution.outcome.stop is qr.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(
        objective(problem, X, y, central(problem, X, y)), rel=1e-6
    )


@pytest.mark.parametrize(
    "problem",
    [
        qr.Problem(qr.Logistic(), qr.Linear(True), regulariser=qr.L2(0.1)),
        qr.Problem(
            qr.Exponential(), qr.Linear(True), qr.Superquantile(0.43), regulariser=qr.L1(0.1)
        ),
        qr.Problem(qr.Logistic(), PLAIN),
    ],
    ids=["one class", "one class, exponential", "separable"],
)
def test_optima_that_are_not_attained(problem):
    """The objective falls towards 0 along a ray: an honest end, soon, and nothing overflows."""
    X = data(12, 3)[0]
    y = np.ones(12) if problem.predictor.intercept else np.where(X[:, 0] > 0, 1.0, -1.0)
    solution = solved(problem, X, y, 1e-6, classes=(-1.0, 1.0))
    assert solution.certificate.value <= 1e-6
    assert np.isfinite(solution.w).all()
    assert solution.rounds <= 200


def test_an_optimum_at_zero_without_a_regulariser():
    """No model is better than none for the tail of noise; relative residuals are those of nothing
    there.
    """
    problem = qr.Problem(qr.Logistic(), qr.Linear(True), qr.Superquantile(0.43))
    X, y = data(30, 3, 3, noise=2.0)
    solution = solved(problem, X, y, 1e-6)
    assert solution.certificate.value == pytest.approx(np.log(2), rel=1e-9)
    assert solution.outcome.stop in (qr.Stop.UNPROVEN, qr.Stop.OPTIMAL)


@LOSS
@pytest.mark.parametrize("g", [qr.L2(0.1), qr.L1(0.05)], ids=repr)
@pytest.mark.parametrize("risk", [qr.Superquantile(0.43), qr.Extremile(2.5)], ids=repr)
def test_duplicated_rows_constant_features_and_features_of_zeros(loss, g, risk):
    problem = qr.Problem(loss, qr.Linear(True), risk, regulariser=g)
    X, y = rows_of(problem, 12, 3)
    X, y = np.vstack([X, X, X[:6]]), np.concatenate([y, y, y[:6]])
    check(
        problem, np.hstack([X, np.full((30, 1), 3.0), np.zeros((30, 1)), X[:, :1]]), y, 1e-7, 1e-6
    )


@LOSS
@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("intercept", [False, True])
def test_units_of_the_features(loss, scale, intercept):
    """Features times s, the regulariser in the same units: the same problem."""
    X, y = data(30, 5, 3, loss.targets, noise=0.4)
    for plain, scaled, tol in (
        (qr.L2(0.05), qr.L2(0.05 * scale**2), 1e-8),
        (qr.L1(0.02), qr.L1(0.02 * scale), 1e-6),
    ):
        one, other = (
            solved(
                qr.Problem(loss, qr.Linear(intercept), qr.Superquantile(0.43), regulariser=g),
                S,
                y,
                tol,
            )
            for g, S in ((plain, X), (scaled, X * scale))
        )
        assert other.outcome.stop is qr.Stop.OPTIMAL, other.outcome.text
        assert other.certificate.value == pytest.approx(one.certificate.value, rel=2 * tol)


@pytest.mark.parametrize("loss", [qr.Logistic(), qr.Hinge(), qr.Squared()], ids=repr)
@pytest.mark.parametrize("g", [qr.L2(1e-3), qr.L1(1e-2)], ids=repr)
def test_raw_features_of_different_units_beside_an_intercept(loss, g):
    problem = qr.Problem(loss, qr.Linear(True), qr.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 30, 5)
    X = X * np.array([1.0, 1e3, 1e-2, 1e2, 10.0]) + np.array([0.0, 5e3, 0.0, 0.0, 100.0])
    solution = solved(problem, X, y, 1e-6)
    assert solution.outcome.stop is qr.Stop.OPTIMAL, solution.outcome.text


def test_targets_far_from_zero():
    X, y = data(30, 5, 3, "real")
    problem = qr.Problem(
        qr.Absolute(), qr.Linear(True), qr.Superquantile(0.43), regulariser=qr.L2(0.05)
    )
    near, far = (solved(problem, X, target, 1e-8) for target in (y, y + 1e4))
    assert far.outcome.stop is qr.Stop.OPTIMAL
    assert far.certificate.value == pytest.approx(near.certificate.value, rel=1e-6)
    assert far.w[-1] == pytest.approx(near.w[-1] + 1e4, rel=1e-4)


@pytest.mark.parametrize("loss", [qr.Logistic(), qr.Absolute()], ids=repr)
@pytest.mark.parametrize("intercept", [False, True])
def test_sparse_rows_are_the_same_rows(loss, intercept):
    problem = qr.Problem(
        loss, qr.Linear(intercept), qr.Superquantile(0.43), regulariser=qr.L1(0.02)
    )
    X, y = rows_of(problem, 30, 5)
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    dense, sparse = (solved(problem, kind, y, 1e-7) for kind in (X, csr_array(X)))
    assert_allclose(sparse.w, dense.w, rtol=1e-9, atol=1e-12)
    assert sparse.certificate.bound == pytest.approx(dense.certificate.bound, rel=1e-9)


# ---- runs


RUNS = {
    "iterations": (
        qr.Problem(qr.Logistic(), qr.Linear(True), qr.Superquantile(0.43), regulariser=qr.L2(0.05)),
        1e-13,
    ),
    "Newton steps": (
        qr.Problem(qr.Hinge(), PLAIN, over_samples=qr.Extremile(2.0), regulariser=qr.L1(0.02)),
        1e-12,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_interrupted_runs_go_on_bit_for_bit(name, tmp_path):
    problem, tol = RUNS[name]
    X, y = rows_of(problem, 30, 5)
    fed = pooled(X, y)
    whole = qr.solve(problem, fed, algorithm=qr.RankADMM(), tol=tol)
    assert whole.rounds >= 3
    configured = configure(qr.RankADMM(), *problem.at(fed), tol, None, None, None)
    for stop in (1, whole.rounds - 1):
        engine = qr.InProcess(checkpoint=tmp_path / f"{stop}.run")
        part = engine.run(configured, problem.at(fed)[1], max_rounds=stop)
        assert part.rounds == stop
        resumed = qr.solve(
            problem, fed, algorithm=qr.RankADMM(), tol=tol, engine=engine, resume=True
        )
        assert encode((resumed.state, resumed.outcome, resumed.duals)) == encode(
            (whole.state, whole.outcome, whole.duals)
        )
        assert resumed.certificate.numbers() == whole.certificate.numbers()


@pytest.mark.parametrize("name", RUNS)
def test_modes_are_equal_and_inputs_stay(name):
    problem, tol = RUNS[name]
    X, y = rows_of(problem, 30, 5)
    fed = pooled(X, y)
    for i in range(fed.n_clients):
        for array in fed.rows(i):
            array.flags.writeable = False
    before = fed.digests()
    modes = ("each", "bytes")
    each, through = (
        qr.solve(problem, fed, algorithm=qr.RankADMM(), tol=tol, engine=qr.InProcess(mode))
        for mode in modes
    )
    assert encode((each.state, each.outcome, each.duals)) == encode(
        (through.state, through.outcome, through.duals)
    )
    assert fed.digests() == before


def test_bounds_only_rise_and_values_only_fall():
    problem, tol = RUNS["Newton steps"]
    X, y = rows_of(problem, 30, 5)
    solution = solved(problem, X, y, tol)
    values, bounds = (
        np.array([row[name] for row in solution.history]) for name in ("objective", "bound")
    )
    optimum = objective(problem, X, y, central(problem, X, y))
    assert (np.diff(values) <= 0).all()
    assert (np.diff(bounds) >= 0).all()
    assert bounds.max() <= optimum * (1 + 1e-12)
    assert values.min() >= optimum * (1 - 1e-8)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start": np.ones(2)}, "start must be 3 finite numbers"),
        ({"start": np.full(3, np.nan)}, "start must be 3 finite numbers"),
        ({"check": 2.5}, "check must be a whole number"),
        ({"penalty": "x"}, "penalty must be a schedule"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_before_anything_runs(options, named):
    X, y = data(20, 3)
    problem = qr.Problem(
        qr.Logistic(), PLAIN, over_samples=qr.Superquantile(0.3), regulariser=qr.L2(0.1)
    )
    with pytest.raises(ValueError, match=named):
        qr.solve(problem, pooled(X, y), algorithm=qr.RankADMM(**options))
