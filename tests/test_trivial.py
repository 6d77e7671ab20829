"""A model that is no better than a constant comes with a warning that names what is to blame."""

import warnings

import numpy as np
import pytest

import quorate as qr

AFFINE = qr.Linear(intercept=True)
ROWS, FEATURES = 300, 5


def rows(seed=0, rarer=0.4, n=ROWS, d=FEATURES, signal=1.0):
    """Features, labels of two classes and clients."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = signal * X @ rng.normal(size=d) + rng.logistic(size=n)
    return X, np.where(score > np.quantile(score, 1 - rarer), "yes", "no"), rng.integers(0, 5, n)


def table(seed=0, **options):
    return qr.Federation.from_arrays(*rows(seed, **options))


def logistic(**parts):
    return qr.Problem(**({"loss": qr.Logistic(), "predictor": AFFINE} | parts))


def solved(problem, fed):
    """The solution of a problem, and what it warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        solution = qr.solve(problem, fed)
    return solution, [w for w in said if w.category is qr.TrivialModelWarning]


def trivial(problem, fed):
    """The record of a trivial model, which was warned of once."""
    solution, said = solved(problem, fed)
    assert [str(w.message) for w in said] == [solution.trivial.text]
    return solution.trivial


@pytest.mark.parametrize("seed", range(10))
def test_ordinary_tables_get_no_warning(seed):
    rng = np.random.default_rng(100 + seed)
    rarer, n, d = rng.uniform(0.2, 0.5), int(rng.integers(150, 400)), int(rng.integers(2, 8))
    fed = table(seed, rarer=rarer, n=n, d=d, signal=rng.uniform(0.5, 2))
    ball = qr.WassersteinBall(0.01, norm="linf")
    problems = [
        logistic(),
        logistic(over_samples=ball, over_clients=qr.ChiSquareBall(0.05, "size")),
        logistic(over_clients=qr.Simplex(), regulariser=qr.L2(1e-3)),
    ]
    for problem in problems[seed % 2 :]:
        solution, said = solved(problem, fed)
        assert not said
        assert solution.trivial is None
