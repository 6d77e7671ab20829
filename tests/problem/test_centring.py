"""Columns far from 0: a run and its proof see them centred, and all else stays as it is."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from toy import federation

import bonafed as bf
from bonafed.data.federation import Federation
from bonafed.problem.centring import centred, far_means
from bonafed.solution.plan import plan
from examples import ALGORITHMS

NEAR = federation((20, 35, 12, 28, 9), 4)


def with_intercept(stated: tuple[bf.Problem, Any]) -> tuple[bf.Problem, Any] | None:
    """An example's problem with an intercept; None where it is not convex, or a method that is
    private or advised last.
    """
    problem, method = stated
    if isinstance(problem.predictor, bf.Linear):
        problem = replace(problem, predictor=bf.Linear())
    elif isinstance(problem.predictor, bf.Softmax):
        problem = replace(problem, predictor=bf.Softmax(), regulariser=bf.Zero())
    usual = problem.privacy is None and not method.requirements.private and not method.advised
    return (problem, method) if usual and problem.convex else None


EXAMPLES = {
    name: found
    for name, each in ALGORITHMS.items()
    if each.stated is not None and (found := with_intercept(each.stated)) is not None
}


def moved(fed: Federation, offset: Any) -> Federation:
    """The rows with an offset in each column."""
    return replace(fed, X=tuple(x + offset for x in fed.X))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_offset_changes_no_value_no_coefficient_no_proof_and_few_rounds(name: str) -> None:
    problem, method = EXAMPLES[name]
    pooled = ALGORITHMS[name].federation.n_clients == 1
    near = NEAR.pooled() if pooled else NEAR
    offset = np.array([1e5, -1e5, 3e5, 0.0])
    far = moved(near, offset)
    if centred(problem, far) is None:
        assert "all together" in name  # a limit of the intercept, which an offset moves
        return
    near = moved(near, -far_means(far)[0][:-1] + offset)  # as the run sees the rows
    solved = [bf.solve(problem, fed, algorithm=method) for fed in (near, far)]
    (one, other), (proof, again) = solved, [each.certificate for each in solved]
    assert one.outcome.stop is other.outcome.stop
    assert again.value == pytest.approx(proof.value, rel=1e-4 if "DRO" in name else 1e-6)
    assert (again.bound is None) == (proof.bound is None)
    if again.bound is not None and one.outcome.stop.value == "optimal":
        assert again.relative_gap <= max(method.tol, 1e-6)
        np.testing.assert_allclose(other.w[:4], one.w[:4], atol=20 * max(method.tol, 1e-6) ** 0.5)
    assert other.rounds <= 1.2 * one.rounds + 2


def test_models_are_turned_and_turned_back_exactly() -> None:
    rng = np.random.default_rng(3)
    fed = moved(NEAR, 1e6 * rng.standard_normal(4))
    seen = centred(bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)), fed)
    assert seen is not None
    w = rng.standard_normal((7, 5)) * 10.0 ** rng.integers(-3, 4, (7, 5))
    turned, back = seen.turned(w), seen.turned(w, back=True)
    for before, after, other in zip(w, turned, back, strict=True):
        terms = [Fraction(m) * Fraction(v) for m, v in zip(seen.mean, before, strict=False)]
        whole = Fraction(before[-1])
        assert float(whole + sum(terms)) == pytest.approx(after[-1], rel=1e-15, abs=1e-18)
        assert float(whole - sum(terms)) == pytest.approx(other[-1], rel=1e-15, abs=1e-18)
        np.testing.assert_array_equal(before[:-1], after[:-1])


def test_only_columns_that_vary_far_from_0_are_centred() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((500, 5))
    X[:, 1] += 1e3  # a year
    X[:, 2] = 7.0  # a constant
    X[:, 3] = rng.random(500) < 0.5  # an indicator
    X[:, 4] = 0.1 + 1e-17 * X[:, 0]
    fed = Federation.from_arrays(X, np.sign(X[:, 0]), np.arange(500) % 5)
    mean, times = far_means(fed)
    assert np.flatnonzero(mean).tolist() == [1]
    assert abs(mean[1] - 1e3) < 0.2
    assert times[1] == pytest.approx(1e3, rel=0.1)
    from scipy.sparse import csr_array

    sparse = Federation.from_arrays(csr_array(X), np.sign(X[:, 0]), np.arange(500) % 5)
    assert not far_means(sparse)[0].any()


FREE = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
READS = {
    "no intercept": replace(FREE, predictor=bf.Linear(fit_intercept=False)),
    "penalised intercepts": bf.Problem(bf.Multinomial(), regulariser=bf.L2(0.1)),
    "a box": bf.Problem(
        bf.Hinge(), over_samples=bf.WassersteinBall(0.1, support=bf.BoxSupport(-1e7, 1e7))
    ),
    "a limit of the intercept": replace(
        FREE, constraint=bf.LinearInequality(np.ones((1, 5)), [0.0])
    ),
}


@pytest.mark.parametrize("name", READS)
def test_where_the_intercept_is_read_elsewhere_rows_stay(name: str) -> None:
    assert centred(READS[name], moved(NEAR, 1e6)) is None


def test_paper_methods_and_comparators_run_as_they_are() -> None:
    fed = moved(NEAR, 1e3)
    problem = replace(FREE, over_clients=bf.Simplex())
    assert plan(problem, fed, algorithm=bf.AFL()).centre is None
    assert plan(problem, fed).centre is not None


def test_a_proof_says_of_which_rows_its_models_are() -> None:
    fed = moved(NEAR, 1e6)
    solution = bf.solve(FREE, fed, tol=1e-8)
    duals: Any = solution.duals
    np.testing.assert_array_equal(duals.centre, far_means(fed)[0])
    proof = bf.certify(FREE, fed, solution.w, duals)
    assert proof.bound == solution.certificate.bound
    assert proof.gap is not None
    assert proof.gap < 1e-6
    # any other centre proves as much where the models go with it
    by = duals.centre + np.array([0.5, 0.0, -2.0, 1.0, 0.0])
    points = duals.points.copy()
    points[:, -1] += points[:, :-1] @ (by - duals.centre)[:-1]
    pair = duals.pair
    if pair is not None:
        pair = pair.copy()
        pair[:, -1] += pair[:, :-1] @ (by - duals.centre)[:-1]
    other = bf.certify(FREE, fed, solution.w, replace(duals, points=points, pair=pair, centre=by))
    assert other.bound == pytest.approx(proof.bound, rel=1e-7)
    with pytest.raises(ValueError, match="a centre needs 5 finite numbers"):
        bf.certify(FREE, fed, solution.w, replace(duals, centre=np.ones(4)))
    # a model's own value is that of its predictions
    scores = np.concatenate([x @ solution.w[:-1] + solution.w[-1] for x in fed.X])
    losses = np.logaddexp(0.0, -scores * np.concatenate(fed.y))
    means = [part.mean() for part in np.split(losses, np.cumsum(fed.sizes)[:-1])]
    value = np.mean(means) + 0.05 * float(solution.w[:-1] @ solution.w[:-1])
    assert proof.value == pytest.approx(value, rel=1e-8)


def test_a_start_is_a_model_of_the_rows_as_they_are() -> None:
    fed = moved(NEAR, 1e4)
    first = bf.solve(FREE, fed, tol=1e-9)
    again = bf.solve(FREE, fed, tol=1e-6, start=first.w)
    assert again.rounds <= 3
    assert again.outcome.stop.value == "optimal"


TARGETS = {
    "squared": bf.Squared(),
    "Huber's": bf.Huber(1.0),
    "absolute": bf.Absolute(),
    "quantile": bf.Quantile(0.9),
    "tolerant": bf.EpsilonInsensitive(0.1),
}


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_targets_far_from_0_are_centred_for_losses_of_the_residual(name: str, pooled: bool) -> None:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((120, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.standard_normal(120)
    over = bf.Mean() if pooled else bf.LpBall(0.1)
    problem = bf.Problem(TARGETS[name], over_clients=over, regulariser=bf.L2(1e-2))
    feds = [
        Federation.from_arrays(X + far, y + 2 * far, np.arange(120) % (1 if pooled else 4))
        for far in (0.0, 1e6)
    ]
    one, other = (bf.solve(problem, fed) for fed in feds)
    assert other.outcome.stop.value == "optimal", other.outcome.text
    assert other.certificate.value == pytest.approx(one.certificate.value, rel=1e-5)
    assert other.rounds <= 1.3 * one.rounds + 3
    seen = centred(problem, feds[1])
    assert seen is not None
    assert seen.mean[-1] == pytest.approx(2e6, rel=1e-5)


def test_counts_and_labels_are_not_centred() -> None:
    counts = Federation.from_arrays(np.ones((40, 1)), np.arange(40) + 10**6, np.arange(40) % 2)
    assert centred(bf.Problem(bf.Poisson(), regulariser=bf.L2(1.0)), counts) is None
    labels = Federation.from_arrays(np.eye(40), np.arange(40) % 2 + 1000, np.arange(40) % 2)
    assert centred(bf.Problem(bf.Logistic(), regulariser=bf.L2(1.0)), labels) is None
    # a limit of the loss may be stated for the targets as they are
    limit = bf.BoundedGroupLoss("side", 1.0)
    columns = {"side": (np.arange(40) // 2 % 2).astype(str)}
    real = Federation.from_arrays(
        np.ones((40, 1)), np.arange(40) + 1e6, np.arange(40) % 2, columns=columns
    )
    assert centred(bf.Problem(bf.Absolute(), local_constraint=limit), real) is None


WHY = {
    "no intercept": ("give the model an intercept", "the model has none"),
    "penalised intercepts": ("subtract the columns' means", "regulariser holds the intercepts too"),
    "a box": ("subtract the columns' means", "the support is stated for the columns"),
    "a limit of the intercept": ("subtract the columns' means", "constraint reads the intercept"),
}


@pytest.mark.parametrize("name", READS)
def test_a_run_that_could_not_centre_says_why_and_what_to_do(name: str) -> None:
    far = moved(NEAR, 1e6)
    problem = READS[name]
    with pytest.warns(bf.UnprovenWarning) as caught:
        solution = bf.solve(problem, far, algorithm=bf.Bundle(), max_rounds=3)
    do, why = WHY[name]
    text = str(caught[0].message)
    assert do in text, text
    assert why in text
    assert "raise max_rounds" not in text
    offset = solution.certificate.offset
    assert offset == pytest.approx(1e6, rel=0.3)
    near = bf.solve(FREE, NEAR)
    assert near.certificate.offset is None


def test_a_comparator_takes_columns_as_they_are_and_says_so() -> None:
    problem = replace(FREE, over_clients=bf.Simplex())
    with pytest.warns(bf.UnprovenWarning, match="AFL takes it as it is"):
        bf.solve(problem, moved(NEAR, 1e6), algorithm=bf.AFL(), max_rounds=3)
