"""What RankADMM takes and refuses, inputs that break methods, interrupted runs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, SOFTMAX
from rank_programs import central, check, data, objective, pooled, rows_of, solved
from scipy.sparse import csr_array

import bonafed as bf
from bonafed.rounds import encode
from bonafed.solution.plan import configure, default_algorithm

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
        bf.RankADMM(**options)


def test_one_owner_only():
    X, y = data(30, 3)
    fed = bf.Federation(["a", "b"], [X[:15], X[15:]], [y[:15], y[15:]])
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.3), regulariser=bf.L2(0.1)
    )
    with pytest.raises(
        ValueError, match=r"all rows in one place, got 2 clients: use fed.pooled\(\)"
    ):
        bf.solve(problem, fed, algorithm=bf.RankADMM())
    assert bf.solve(problem, fed.pooled(), algorithm=bf.RankADMM()).outcome.stop is bf.Stop.OPTIMAL


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        (
            bf.Problem(bf.Quantile(0.3), PLAIN, over_samples=bf.Superquantile(0.3)),
            r"increases with one rank coordinate .* got Quantile.*use Bundle\(\)",
        ),
        (bf.Problem(bf.Multinomial(), SOFTMAX), r"predictor Linear, got Softmax.*use Bundle\(\)"),
    ],
    ids=["Quantile", "Multinomial"],
)
def test_losses_without_a_rank_coordinate(problem, named):
    X, y = data(30, 3)
    with pytest.raises(ValueError, match=named):
        bf.solve(problem, pooled(X, y), algorithm=bf.RankADMM())


def test_rows_of_different_weights():
    X, y = data(30, 3)
    fed = bf.Federation(["a"], [X], [y], sample_weight=[np.arange(1.0, 31.0)])
    with pytest.raises(ValueError, match="weights"):
        bf.solve(
            bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.3)),
            fed,
            algorithm=bf.RankADMM(),
        )
    with pytest.raises(ValueError, match=r"no sample weights, got rows .*: use Bundle\(\)"):
        bf.solve(
            bf.Problem(bf.Hinge(), PLAIN, regulariser=bf.L2(0.1)), fed, algorithm=bf.RankADMM()
        )


def test_what_solve_picks():
    X, y = data(30, 3)
    one, two = pooled(X, y), bf.Federation(["a", "b"], [X[:15], X[15:]], [y[:15], y[15:]])
    weighted = bf.Federation(["a"], [X], [y], sample_weight=[np.arange(1.0, 31.0)])
    tail, g = bf.Superquantile(0.3), bf.L2(0.1)
    for expected, problem, fed in (
        (bf.KinkInteriorPoint, bf.Problem(bf.Hinge(), PLAIN, regulariser=g), one),
        (bf.RankADMM, bf.Problem(bf.Hinge(), PLAIN, regulariser=bf.L1(0.1)), one),
        (bf.RankADMM, bf.Problem(bf.Hinge(), PLAIN, over_samples=tail, regulariser=g), one),
        (bf.RankADMM, bf.Problem(bf.Squared(), PLAIN, over_samples=bf.Median()), one),
        (
            bf.RankADMM,
            bf.Problem(
                bf.Hinge(), PLAIN, over_samples=tail, over_clients=bf.Simplex(), regulariser=g
            ),
            one,
        ),
        (bf.Bundle, bf.Problem(bf.Hinge(), PLAIN, over_samples=tail, regulariser=g), two),
        (bf.KinkInteriorPoint, bf.Problem(bf.Hinge(), PLAIN, regulariser=g), weighted),
        (bf.Bundle, bf.Problem(bf.Hinge(), PLAIN, regulariser=bf.L1(0.1)), weighted),
        (bf.Bundle, bf.Problem(bf.Quantile(0.3), PLAIN, over_samples=tail, regulariser=g), one),
        (bf.Bundle, bf.Problem(bf.Multinomial(), SOFTMAX, regulariser=g), one),
        (bf.Bundle, bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.1)), one),
    ):
        assert type(default_algorithm(*problem.at(fed))) is expected
    problem = bf.Problem(bf.Quantile(0.3), PLAIN, over_samples=tail, regulariser=g)
    assert bf.solve(problem, one).outcome.stop is bf.Stop.OPTIMAL


# ---- inputs that break methods


LOSSES = [bf.Logistic(), bf.Hinge(), bf.Absolute()]
LOSS = pytest.mark.parametrize("loss", LOSSES, ids=repr)
GENTLE = pytest.mark.parametrize("g", [bf.L2(0.1), bf.L1(0.05), bf.Bounds(-1.0, 1.0)], ids=repr)


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=repr)
@GENTLE
@pytest.mark.parametrize("intercept", [False, True])
def test_rows_of_zeros(loss, g, intercept):
    """All losses move together."""
    problem = bf.Problem(loss, bf.Linear(intercept), bf.Superquantile(0.43), regulariser=g)
    _, y = rows_of(problem, 12, 3)
    X = np.zeros((12, 3))
    solution = solved(problem, X, y, 1e-7)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(
        objective(problem, X, y, central(problem, X, y)), rel=1e-6
    )


@LOSS
@GENTLE
def test_one_sample(loss, g):
    problem = bf.Problem(loss, PLAIN, over_samples=bf.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 1, 3)
    classes = (-1.0, 1.0) if loss.targets == "sign" else None
    # a sample that is met exactly has a loss of 0 up to rounding, which a relative gap cannot meet
    solution = solved(problem, X, y, 1e-7, classes=classes, atol=1e-15)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(
        objective(problem, X, y, central(problem, X, y)), rel=1e-6
    )


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=repr)
@GENTLE
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_all_rows_of_one_class(loss, g, label):
    problem = bf.Problem(loss, PLAIN, over_samples=bf.Extremile(2.0), regulariser=g)
    X, y = data(12, 3)[0], np.full(12, label)
    solution = solved(problem, X, y, 1e-7, classes=(-1.0, 1.0))
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(
        objective(problem, X, y, central(problem, X, y)), rel=1e-6
    )


@pytest.mark.parametrize(
    "problem",
    [
        bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=bf.L2(0.1)),
        bf.Problem(
            bf.Exponential(), bf.Linear(True), bf.Superquantile(0.43), regulariser=bf.L1(0.1)
        ),
        bf.Problem(bf.Logistic(), PLAIN),
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
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), bf.Superquantile(0.43))
    X, y = data(30, 3, 3, noise=2.0)
    solution = solved(problem, X, y, 1e-6)
    assert solution.certificate.value == pytest.approx(np.log(2), rel=1e-9)
    assert solution.outcome.stop in (bf.Stop.UNPROVEN, bf.Stop.OPTIMAL)


@LOSS
@pytest.mark.parametrize("g", [bf.L2(0.1), bf.L1(0.05)], ids=repr)
@pytest.mark.parametrize("risk", [bf.Superquantile(0.43), bf.Extremile(2.5)], ids=repr)
def test_duplicated_rows_constant_features_and_features_of_zeros(loss, g, risk):
    problem = bf.Problem(loss, bf.Linear(True), risk, regulariser=g)
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
        (bf.L2(0.05), bf.L2(0.05 * scale**2), 1e-8),
        (bf.L1(0.02), bf.L1(0.02 * scale), 1e-6),
    ):
        one, other = (
            solved(
                bf.Problem(loss, bf.Linear(intercept), bf.Superquantile(0.43), regulariser=g),
                S,
                y,
                tol,
            )
            for g, S in ((plain, X), (scaled, X * scale))
        )
        assert other.outcome.stop is bf.Stop.OPTIMAL, other.outcome.text
        assert other.certificate.value == pytest.approx(one.certificate.value, rel=2 * tol)


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge(), bf.Squared()], ids=repr)
@pytest.mark.parametrize("g", [bf.L2(1e-3), bf.L1(1e-2)], ids=repr)
def test_raw_features_of_different_units_beside_an_intercept(loss, g):
    problem = bf.Problem(loss, bf.Linear(True), bf.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 30, 5)
    X = X * np.array([1.0, 1e3, 1e-2, 1e2, 10.0]) + np.array([0.0, 5e3, 0.0, 0.0, 100.0])
    solution = solved(problem, X, y, 1e-6)
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text


def test_targets_far_from_zero():
    X, y = data(30, 5, 3, "real")
    problem = bf.Problem(
        bf.Absolute(), bf.Linear(True), bf.Superquantile(0.43), regulariser=bf.L2(0.05)
    )
    near, far = (solved(problem, X, target, 1e-8) for target in (y, y + 1e4))
    assert far.outcome.stop is bf.Stop.OPTIMAL
    assert far.certificate.value == pytest.approx(near.certificate.value, rel=1e-6)
    assert far.w[-1] == pytest.approx(near.w[-1] + 1e4, rel=1e-4)


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Absolute()], ids=repr)
@pytest.mark.parametrize("intercept", [False, True])
def test_sparse_rows_are_the_same_rows(loss, intercept):
    problem = bf.Problem(
        loss, bf.Linear(intercept), bf.Superquantile(0.43), regulariser=bf.L1(0.02)
    )
    X, y = rows_of(problem, 30, 5)
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    dense, sparse = (solved(problem, kind, y, 1e-7) for kind in (X, csr_array(X)))
    assert_allclose(sparse.w, dense.w, rtol=1e-9, atol=1e-12)
    assert sparse.certificate.bound == pytest.approx(dense.certificate.bound, rel=1e-9)


# ---- runs


RUNS = {
    "iterations": (
        bf.Problem(bf.Logistic(), bf.Linear(True), bf.Superquantile(0.43), regulariser=bf.L2(0.05)),
        1e-13,
    ),
    "Newton steps": (
        bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.Extremile(2.0), regulariser=bf.L1(0.02)),
        1e-12,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_interrupted_runs_go_on_bit_for_bit(name, tmp_path):
    problem, tol = RUNS[name]
    X, y = rows_of(problem, 30, 5)
    fed = pooled(X, y)
    whole = bf.solve(problem, fed, algorithm=bf.RankADMM(), tol=tol)
    assert whole.rounds >= 3
    configured = configure(bf.RankADMM(), *problem.at(fed), tol, None, None, None)
    for stop in (1, whole.rounds - 1):
        engine = bf.InProcess(checkpoint=tmp_path / f"{stop}.run")
        part = engine.run(configured, problem.at(fed)[1], max_rounds=stop)
        assert part.rounds == stop
        resumed = bf.solve(
            problem, fed, algorithm=bf.RankADMM(), tol=tol, engine=engine, resume=True
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
        bf.solve(problem, fed, algorithm=bf.RankADMM(), tol=tol, engine=bf.InProcess(mode))
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
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.3), regulariser=bf.L2(0.1)
    )
    with pytest.raises(ValueError, match=named):
        bf.solve(problem, pooled(X, y), algorithm=bf.RankADMM(**options))
