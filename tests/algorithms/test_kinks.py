"""KinkInteriorPoint: means of losses with linear pieces, against linear programs and Bundle."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import bonafed as bf
from bonafed.certificates.duality import certify_concrete
from bonafed.problem.lower_bounds import Duals, feasible_duals
from bonafed.problem.rank_levels import kinks_of, loss_conjugate
from bonafed.rounds import Stop

METHOD = bf.KinkInteriorPoint()
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


@pytest.mark.parametrize("seed", range(24))
def test_it_meets_the_optimum_and_proves_it(seed: int) -> None:
    loss = LOSSES[seed % 4]
    fed = drawn(seed, loss.targets == "sign").federation()
    rng = np.random.default_rng(seed)
    problem = bf.Problem(
        loss,
        bf.Linear(bool(seed % 2)),
        over_clients=(bf.Mean(), bf.Mean("size"))[seed % 2],
        regulariser=bf.L2(float(10.0 ** rng.integers(-4, 1))),
    )
    solution = bf.solve(problem, fed, algorithm=METHOD)
    assert solution.outcome.stop is Stop.OPTIMAL, solution.outcome
    certificate = solution.certificate
    best = least(problem, fed)
    assert certificate.value == pytest.approx(best, rel=2e-6)
    assert certificate.bound is not None
    assert certificate.bound <= best * (1 + 1e-9)
    assert solution.rounds <= 60


@pytest.mark.parametrize("loss", LOSSES)
def test_clients_apart_are_as_clients_together(loss: Any) -> None:
    rows = drawn(11, loss.targets == "sign")
    problem = bf.Problem(loss, over_clients=bf.Mean("size"), regulariser=bf.L2(1e-2))
    apart = bf.solve(problem, rows.federation(), algorithm=METHOD)
    pooled = bf.solve(problem, rows.federation().pooled(), algorithm=METHOD)
    assert apart.rounds == pooled.rounds
    np.testing.assert_allclose(apart.w, pooled.w, rtol=1e-6, atol=1e-9)


def test_a_sum_over_clients_is_taken() -> None:
    fed = drawn(5, True).federation()
    mean = bf.Problem(bf.Hinge(), regulariser=bf.L2(1e-2))
    summed = bf.Problem(bf.Hinge(), over_clients=bf.Sum(), regulariser=bf.L2(1e-2 * fed.n_clients))
    one, other = (bf.solve(p, fed, algorithm=METHOD) for p in (mean, summed))
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


def test_rows_without_any_loss_end_at_once() -> None:
    fed = bf.Federation.from_arrays(np.ones((4, 2)), np.zeros(4), np.arange(4) % 2)
    solution = bf.solve(bf.Problem(bf.Absolute(), regulariser=bf.L2(0.1)), fed, algorithm=METHOD)
    assert solution.outcome.stop is Stop.OPTIMAL
    assert solution.certificate.value == 0.0


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_the_target_change_nothing(unit: float) -> None:
    rows = drawn(3, False)
    problem = bf.Problem(bf.Absolute(), regulariser=bf.L2(1e-2))
    small = replace(problem, regulariser=bf.L2(1e-2 / unit))
    one = bf.solve(problem, rows.federation(), algorithm=METHOD)
    rows.y = rows.y * unit
    other = bf.solve(small, rows.federation(), algorithm=METHOD)
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


def test_a_cap_is_no_optimum() -> None:
    fed = drawn(6, True).federation()
    problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(1e-3))
    with pytest.warns(bf.UnprovenWarning):
        solution = bf.solve(problem, fed, algorithm=METHOD, max_rounds=4)
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
