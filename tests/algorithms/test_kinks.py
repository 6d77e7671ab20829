"""KinkInteriorPoint and RowMultiplierMethod: means of losses with linear pieces, against linear
programs and Bundle; the second also where rows are ranked.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from scipy.sparse import random_array

import bonafed as bf
from bonafed.algorithms.federated import row_multipliers
from bonafed.algorithms.method import known
from bonafed.certificates.duality import certify_concrete
from bonafed.problem.lower_bounds import Duals, feasible_duals
from bonafed.problem.rank_levels import kinks_of, loss_conjugate
from bonafed.rounds import Stop
from bonafed.solution.plan import default_algorithm

METHOD = bf.KinkInteriorPoint()
METHODS = METHOD, bf.RowMultiplierMethod()
by_both = pytest.mark.parametrize("method", METHODS, ids=lambda each: type(each).__name__)
LOSSES = (bf.Hinge(), bf.Quantile(0.9), bf.Absolute(), bf.EpsilonInsensitive(0.3))


@dataclass
class Rows:
    """Rows of several clients, with weights."""

    X: Any
    y: Any
    groups: Any
    weights: Any = None

    def federation(self) -> bf.Federation:
        more = {} if self.weights is None else {"sample_weight": self.weights}
        return bf.Federation.from_arrays(self.X, self.y, self.groups, **more)


def drawn(seed: int, sign: bool) -> Rows:
    """Rows of a shape, with units, ties and a column of zeros that the seed draws."""
    rng = np.random.default_rng(seed)
    n, d, N = int(rng.integers(8, 300)), int(rng.integers(1, 9)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-2, 3, d) ** (seed % 2)
    if seed % 3 == 0:
        X = np.round(X)
    if seed % 4 == 0:
        X[:, 0] = 0.0
    if seed % 5 == 0:
        X[n // 2 :] = X[: n - n // 2]  # rows that are equal
    score = X @ rng.normal(size=d) / np.abs(X).max(initial=1.0) + 0.5 * rng.normal(size=n)
    y = np.where(score > np.median(score), 1.0, -1.0) if sign else np.round(5 * score, 1)
    groups = np.arange(n) % N
    weights = rng.uniform(0.2, 3.0, n) if seed % 7 in (1, 2) else None
    return Rows(X, y, groups, weights)


def least(problem: bf.Problem, fed: bf.Federation) -> float:
    """The optimum by Clarabel."""
    return problem.objective(bf.CentralConic().solve(problem, fed).w, fed)


@by_both
@pytest.mark.parametrize("seed", range(24))
def test_it_meets_the_optimum_and_proves_it(seed: int, method: Any) -> None:
    loss = LOSSES[seed % 4]
    fed = drawn(seed, loss.targets == "sign").federation()
    rng = np.random.default_rng(seed)
    problem = bf.Problem(
        loss,
        bf.Linear(bool(seed % 2)),
        over_clients=(bf.Mean(), bf.Mean("size"))[seed % 2],
        regulariser=bf.L2(float(10.0 ** rng.integers(-4, 1))),
    )
    solution = bf.solve(problem, fed, algorithm=method)
    assert solution.outcome.stop is Stop.OPTIMAL, solution.outcome
    certificate = solution.certificate
    best = least(problem, fed)
    assert certificate.value == pytest.approx(best, rel=2e-6)
    assert certificate.bound is not None
    assert certificate.bound <= best * (1 + 1e-9)
    assert solution.rounds <= (60 if method is METHOD else 4_000)


@by_both
@pytest.mark.parametrize("loss", LOSSES)
def test_clients_apart_are_as_clients_together(loss: Any, method: Any) -> None:
    rows = drawn(11, loss.targets == "sign")
    problem = bf.Problem(loss, over_clients=bf.Mean("size"), regulariser=bf.L2(1e-2))
    apart = bf.solve(problem, rows.federation(), algorithm=method)
    pooled = bf.solve(problem, rows.federation().pooled(), algorithm=method)
    if method is METHOD:
        assert apart.rounds == pooled.rounds
        np.testing.assert_allclose(apart.w, pooled.w, rtol=1e-6, atol=1e-9)
    assert apart.certificate.value == pytest.approx(pooled.certificate.value, rel=2e-6)


@by_both
def test_a_sum_over_clients_is_taken(method: Any) -> None:
    fed = drawn(5, True).federation()
    mean = bf.Problem(bf.Hinge(), regulariser=bf.L2(1e-2))
    summed = bf.Problem(bf.Hinge(), over_clients=bf.Sum(), regulariser=bf.L2(1e-2 * fed.n_clients))
    one, other = (bf.solve(p, fed, algorithm=method) for p in (mean, summed))
    assert other.outcome.stop is Stop.OPTIMAL
    assert other.certificate.value == pytest.approx(fed.n_clients * one.certificate.value, rel=2e-6)


def test_quantile_regression_without_a_regulariser_is_the_linear_program() -> None:
    rng = np.random.default_rng(0)
    X, tau = rng.normal(size=(120, 3)), 0.8
    y = X @ [1.0, -2.0, 0.5] + rng.standard_t(3, 120)
    fed = bf.Federation.from_arrays(X, y, np.arange(120) % 3)
    A = np.hstack([X, np.ones((120, 1))])
    costs = np.concatenate([np.zeros(4), np.full(120, tau / 120), np.full(120, (1 - tau) / 120)])
    found = linprog(
        costs,
        A_eq=np.hstack([A, np.eye(120), -np.eye(120)]),
        b_eq=y,
        bounds=[(None, None)] * 4 + [(0, None)] * 240,
    )
    problem = bf.Problem(bf.Quantile(tau), bf.Linear(True))
    solution = bf.solve(problem, fed, algorithm=METHOD)
    assert solution.certificate.value == pytest.approx(found.fun, rel=2e-6)
    # nothing bounds where an optimum lies, but no model near by is better
    assert solution.certificate.bound is None
    assert solution.certificate.nearby == pytest.approx(found.fun, rel=2e-6)


@by_both
def test_rows_without_any_loss_end_at_once(method: Any) -> None:
    fed = bf.Federation.from_arrays(np.ones((4, 2)), np.zeros(4), np.arange(4) % 2)
    solution = bf.solve(bf.Problem(bf.Absolute(), regulariser=bf.L2(0.1)), fed, algorithm=method)
    assert solution.outcome.stop is Stop.OPTIMAL
    assert solution.certificate.value == 0.0


@by_both
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_the_target_change_nothing(unit: float, method: Any) -> None:
    rows = drawn(3, False)
    problem = bf.Problem(bf.Absolute(), regulariser=bf.L2(1e-2))
    small = replace(problem, regulariser=bf.L2(1e-2 / unit))
    one = bf.solve(problem, rows.federation(), algorithm=method)
    rows.y = rows.y * unit
    other = bf.solve(small, rows.federation(), algorithm=method)
    assert other.outcome.stop is Stop.OPTIMAL
    assert other.certificate.value == pytest.approx(unit * one.certificate.value, rel=2e-6)


@pytest.mark.parametrize("seed", range(6))
def test_no_pair_and_no_barrier_prove_too_much(seed: int) -> None:
    """A wrong dual can only weaken the bound."""
    loss, rng = LOSSES[seed % 4], np.random.default_rng(seed)
    fed = drawn(seed, loss.targets == "sign").federation()
    problem = bf.Problem(loss, bf.Linear(False), regulariser=bf.L2(1e-2))
    concrete, coded = problem.at(fed)
    best = least(problem, fed)
    w = bf.solve(problem, fed, algorithm=METHOD).w
    for scale in (0.0, 1e-3, 1.0):
        pair = np.stack([w, 0 * w]) + scale * rng.normal(size=(2, len(w)))
        for nu in (1e-9, 1e-3, 10.0):
            none = np.zeros((0, len(w))), np.zeros((0, fed.n_clients))
            weights = np.full(fed.n_clients, 1 / fed.n_clients)
            duals = Duals(weights, *none, pair=pair, barrier=np.array([nu]))
            assert feasible_duals(concrete, duals).weights == pytest.approx(weights)
            bound = certify_concrete(concrete, coded, w, duals)[0].bound
            assert bound is not None
            assert bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"barrier": np.array([1.0])}, "beside a pair"),
        ({"barrier": np.array([0.0]), "pair": np.zeros((2, 2))}, "number > 0"),
        ({"barrier": np.ones(2), "pair": np.zeros((2, 2))}, "one number"),
    ],
)
def test_a_barrier_stands_beside_a_pair(given: dict, match: str) -> None:
    fed = bf.Federation.from_arrays(np.eye(2), np.array([1.0, -1.0]), np.zeros(2))
    problem = bf.Problem(bf.Hinge(), bf.Linear(False), regulariser=bf.L2(1.0)).at(fed)[0]
    duals = Duals(np.ones(1), np.zeros((0, 2)), np.zeros((0, 1)), **given)
    with pytest.raises(ValueError, match=match):
        certify_concrete(problem, fed, np.zeros(2), duals)


@pytest.mark.parametrize("loss", LOSSES)
def test_pieces_and_conjugates_are_those_of_the_loss(loss: Any) -> None:
    of, rng = kinks_of(loss), np.random.default_rng(0)
    y = np.where(rng.random(50) > 0.5, 1.0, -1.0) if loss.targets == "sign" else rng.normal(size=50)
    p = 3 * rng.normal(size=50)
    t = -y * p if loss.targets == "sign" else p - y
    value = of.heights[0] + of.slopes[0] * t
    value += (of.jumps * np.maximum(t[:, None] - of.knots, 0.0)).sum(1)
    np.testing.assert_allclose(value, loss.value(p, y), atol=1e-14)
    grid = np.linspace(-30.0, 30.0, 60001)
    for share in (0.0, 0.3, 0.5, 1.0):
        slope = of.slopes[0] + share * (of.slopes[-1] - of.slopes[0])
        slope = (-y if loss.targets == "sign" else np.ones(50)) * slope
        most = (slope[:, None] * grid - loss.value(grid, y[:, None])).max(1)
        np.testing.assert_allclose(loss_conjugate(loss, slope, y), most, atol=1e-3)


def test_pieces_that_are_nowhere_the_largest_are_left_out() -> None:
    @dataclass(frozen=True)
    class Tent(bf.Absolute):
        pieces = ((1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (1.0, -2.0))

    of = kinks_of(Tent())
    assert of.slopes.tolist() == [-1.0, 1.0]
    assert of.knots.tolist() == [0.0]


@by_both
def test_a_cap_is_no_optimum(method: Any) -> None:
    fed = drawn(6, True).federation()
    problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(1e-3))
    with pytest.warns(bf.UnprovenWarning):
        solution = bf.solve(problem, fed, algorithm=method, max_rounds=4)
    assert solution.outcome.stop is Stop.MAX_ROUNDS


@pytest.mark.parametrize(
    ("part", "match"),
    [
        ({"loss": bf.Logistic()}, "linear pieces"),
        ({"regulariser": bf.L1(0.1)}, "Zero or L2"),
        ({"over_clients": bf.Simplex()}, "Mean or Sum"),
        ({"over_samples": bf.WassersteinBall(0.1)}, "Mean"),
    ],
)
def test_other_problems_are_refused(part: dict, match: str) -> None:
    fed = drawn(1, True).federation()
    problem = replace(bf.Problem(bf.Hinge(), regulariser=bf.L2(1.0)), **part)
    with pytest.raises(ValueError, match=match):
        bf.solve(problem, fed, algorithm=METHOD)


@pytest.mark.parametrize("seed", range(12))
def test_ranked_rows_meet_the_optimum_and_prove_it(seed: int) -> None:
    rows, rng = drawn(seed, bool(seed % 2)), np.random.default_rng(seed)
    rows.weights = None
    n = len(rows.y)
    sigma = np.sort(rng.integers(0, 3, n) + 1.0)
    risk = (
        bf.Superquantile(float(rng.uniform(0.02, 1.0))),
        bf.TopK(int(rng.integers(1, n))),
        bf.Maximum(),
        bf.Spectral(sigma / sigma.sum()),
    )[seed // 2 % 4]
    loss = bf.Logistic() if seed % 2 else (bf.Squared(), bf.Huber())[seed // 2 % 2]
    strength = bf.L2(float(10.0 ** rng.integers(-3, 1)))
    problem = bf.Problem(loss, bf.Linear(seed % 3 > 0), over_rows=risk, regulariser=strength)
    solution = bf.solve(problem, rows.federation(), algorithm=METHODS[1])
    assert solution.outcome.stop is Stop.OPTIMAL, solution.outcome
    best = bf.solve(problem, rows.federation(), algorithm=bf.Bundle(max_rounds=2000, tol=1e-8))
    assert best.certificate.bound is not None
    assert solution.certificate.bound is not None
    assert solution.certificate.bound <= best.certificate.value * (1 + 1e-9)
    assert solution.certificate.value >= best.certificate.bound * (1 - 1e-9)


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_no_path_proves_too_much(seed: int, ranked: bool) -> None:
    """A wrong dual can only weaken the bound."""
    loss, rng = LOSSES[seed % 4], np.random.default_rng(seed)
    rows = drawn(seed, ranked or loss.targets == "sign")
    if ranked:
        loss, rows.weights = bf.Logistic(), None
    fed = rows.federation()
    tail = {"over_rows": bf.Superquantile(0.3)} if ranked else {}
    problem = bf.Problem(loss, bf.Linear(bool(seed % 2)), regulariser=bf.L2(1e-2), **tail)
    solution = bf.solve(problem, fed, algorithm=METHODS[1])
    best, duals = solution.certificate.value, solution.duals
    assert duals is not None
    path, penalties, eta = (known(a) for a in (duals.path, duals.penalties, duals.thresholds))
    for scale in (1e-6, 1e-3, 1.0):
        for mutated in (
            replace(duals, path=path + scale * rng.normal(size=path.shape)),
            replace(duals, penalties=penalties * (1 + scale)),
            replace(duals, thresholds=eta + scale),
            replace(duals, path=path[:1], penalties=penalties[:1] * scale, thresholds=eta[:1]),
        ):
            bound = bf.certify(problem, fed, solution.w, mutated).bound
            assert bound is None or bound <= best * (1 + 1e-12)


@pytest.mark.parametrize(
    "given",
    [
        {"path": np.zeros((1, 2))},
        {"path": np.zeros((1, 2)), "penalties": np.zeros(1), "thresholds": np.zeros((1, 0))},
        {"path": np.zeros((1, 3)), "penalties": np.ones(1), "thresholds": np.zeros((1, 0))},
        {"path": np.zeros((1, 2)), "penalties": np.ones(2), "thresholds": np.zeros((1, 0))},
        {"path": np.full((1, 2), np.nan), "penalties": np.ones(1), "thresholds": np.zeros((1, 0))},
        {"path": np.zeros((1, 2)), "penalties": np.ones(1), "thresholds": np.zeros((1, 1))},
    ],
)
def test_a_path_fits_the_problem(given: dict) -> None:
    fed = bf.Federation.from_arrays(np.eye(2), np.array([1.0, -1.0]), np.zeros(2))
    problem = bf.Problem(bf.Hinge(), bf.Linear(False), regulariser=bf.L2(1.0)).at(fed)[0]
    duals = Duals(np.ones(1), np.zeros((0, 2)), np.zeros((0, 1)), **given)
    with pytest.raises(ValueError, match="path"):
        certify_concrete(problem, fed, np.zeros(2), duals)


@pytest.mark.parametrize(
    ("part", "match"),
    [
        ({"loss": bf.Logistic()}, "linear pieces"),
        ({"over_rows": bf.Superquantile(0.5)}, "smooth"),
        ({"regulariser": bf.Zero()}, "regulariser L2"),
        ({"over_clients": bf.Simplex()}, "Mean or Sum"),
    ],
)
def test_multipliers_of_rows_refuse_other_problems(part: dict, match: str) -> None:
    fed = drawn(3, True).federation()
    problem = replace(bf.Problem(bf.Hinge(), regulariser=bf.L2(1.0)), **part)
    with pytest.raises(ValueError, match=match):
        bf.solve(problem, fed, algorithm=METHODS[1])


@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Quantile(0.7)])
def test_sparse_rows_of_many_columns_are_proved(loss: Any) -> None:
    rng = np.random.default_rng(0)
    X = random_array((300, 2_000), density=0.01, format="csr", rng=rng)
    score = X @ rng.normal(size=2_000) + 0.1 * rng.normal(size=300)
    y = np.where(score > 0, 1.0, -1.0) if loss.targets == "sign" else score
    fed = bf.Federation.from_arrays(X, y, np.arange(300) % 3)
    problem = bf.Problem(loss, regulariser=bf.L2(1e-2))
    assert isinstance(default_algorithm(*problem.at(fed)), bf.RowMultiplierMethod)
    solution = bf.solve(problem, fed)
    assert solution.outcome.stop is Stop.OPTIMAL
    assert solution.rounds <= 400


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("field", ["bend", "rate", "cross"])
@pytest.mark.parametrize("lie", [np.nan, np.inf])
def test_second_derivatives_that_are_no_numbers_stop_no_server(
    monkeypatch: pytest.MonkeyPatch, field: str, lie: float
) -> None:
    def lying(*given: Any) -> Any:
        memory, up = honest(*given)
        return memory, replace(up, **{field: lie * np.ones_like(getattr(up, field))})

    honest = row_multipliers.multiply
    monkeypatch.setattr(row_multipliers, "multiply", lying)
    problem = bf.Problem(bf.Logistic(), over_rows=bf.Superquantile(0.3), regulariser=bf.L2(0.1))
    rows = drawn(11, True)
    rows.weights = None
    solution = bf.solve(problem, rows.federation(), algorithm=METHODS[1], max_rounds=30)
    bound = solution.certificate.bound
    assert bound is None or bound <= solution.certificate.value


@pytest.mark.parametrize(
    "problem",
    [
        bf.Problem(bf.Hinge(), regulariser=bf.L2(1e-3)),
        bf.Problem(bf.Quantile(0.9), regulariser=bf.L2(1e-3)),
        bf.Problem(bf.Squared(), over_rows=bf.Superquantile(0.3), regulariser=bf.L2(1e-3)),
    ],
    ids=repr,
)
def test_columns_that_are_alike_take_fewer_rounds_in_the_metric_of_second_derivatives(problem):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6000, 10)) + 10.0 * rng.normal(size=(6000, 3)) @ rng.normal(size=(3, 10))
    score = X @ rng.normal(size=10) / 3 + rng.normal(size=6000)
    y = score if problem.loss.targets == "real" else np.where(score > 0, 1.0, -1.0)
    fed = bf.Federation.from_arrays(X, y, np.arange(6000) % 5)
    units, hessian = (
        bf.solve(problem, fed, algorithm=bf.RowMultiplierMethod(metric=metric))
        for metric in ("units", "hessian")
    )
    assert units.outcome.stop is hessian.outcome.stop is bf.Stop.OPTIMAL
    assert 1.5 * hessian.rounds < units.rounds
    assert_allclose(units.certificate.value, hessian.certificate.value, rtol=2e-6)
