"""300 drawn problems of the shapes that a default once could not do: more coefficients than rows,
sparse rows, clients of a row or two, columns far from zero and in unlike units, kinked losses, rows
that are equal or weigh nothing. The bound of each is held against an optimum that owes nothing to
bonafed: a linear program by HiGHS where there is one, else a conic one by Clarabel, both in columns
that are centred and in units; and the objective is computed in extended precision.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from rank_programs import TIGHT, penalty, row_losses
from scipy.optimize import linprog
from scipy.sparse import csr_array

import bonafed as bf

CASES, TOL, NEAR = 300, 1e-6, 1e-6
KINDS = ("wide", "sparse", "many clients", "offsets", "degenerate", "tall")
SIGN = (bf.Logistic(), bf.Hinge(), bf.SmoothHinge())
REAL = (bf.Squared(), bf.Quantile(0.9), bf.Absolute(), bf.Huber(0.5), bf.EpsilonInsensitive(0.2))
LINEAR = (bf.Hinge, bf.Quantile, bf.Absolute, bf.EpsilonInsensitive)  # pieces are affine
SLOPE = {bf.Logistic: 1.0, bf.Hinge: 1.0, bf.Absolute: 1.0, bf.Quantile: 0.9}  # the steepest


@dataclass(frozen=True)
class Case:
    """A problem with the rows of each client, dense, and their weights."""

    kind: str
    problem: bf.Problem
    X: list[Any]
    y: list[Any]
    weight: list[Any] | None

    @property
    def fed(self) -> bf.Federation:
        X = [csr_array(x) for x in self.X] if self.kind == "sparse" else self.X
        names = [f"c{k}" for k in range(len(X))]
        return bf.Federation(names, X, self.y, sample_weight=self.weight)


def case(seed: int, number: int) -> Case:
    """Kinds and losses in turn; all else is drawn."""
    rng = np.random.default_rng([seed, number])
    kind, loss = KINDS[number % 6], (SIGN + REAL)[number // 6 % 8]
    X, clients = rows(kind, rng)
    n, d = X.shape
    scale = X.std(0) + (X.std(0) == 0)
    score = (X - X.mean(0)) / scale @ rng.normal(size=d) + rng.normal(size=n) * rng.choice([0.1, 2])
    y = score if loss.targets == "real" else np.where(score > np.median(score), 1.0, -1.0)
    parts = np.array_split(rng.permutation(n), clients)
    problem = bf.Problem(
        loss,
        bf.Linear(kind == "offsets" or (n > 3 and bool(rng.random() < 0.5))),
        regulariser=regulariser(rng),
        **risk(rng, loss, clients),
    )
    weight = None
    if kind == "degenerate" and problem.over_rows is None and rng.random() < 0.5:
        weight = [rng.integers(1, 4, len(part)).astype(float) for part in parts]
    return Case(kind, problem, [X[part] for part in parts], [y[part] for part in parts], weight)


def rows(kind: str, rng: Any) -> tuple[Any, int]:
    """X (n, d), and the number of clients."""
    match kind:
        case "wide":
            n, d, clients = rng.integers(4, 16), rng.integers(20, 51), rng.integers(1, 5)
        case "sparse":
            n, d, clients = rng.integers(15, 41), rng.integers(40, 81), rng.integers(1, 6)
        case "many clients":
            clients, d = rng.integers(20, 81), rng.integers(2, 7)
            n = clients * rng.integers(1, 4)
        case "tall":
            n, d, clients = rng.integers(100, 301), rng.integers(2, 6), 1
        case _:
            n, d, clients = rng.integers(6, 81), rng.integers(2, 7), rng.integers(1, 5)
    X = rng.normal(size=(n, d))
    if kind == "sparse":
        X *= rng.random((n, d)) < 0.05
    if kind == "offsets":
        unit = 10 ** rng.uniform(-3, 3, d)
        X = unit * (X + 10 ** rng.uniform(1, 5, d) * rng.choice([-1, 1], d))
    if kind == "degenerate":
        X[:, 0] = rng.choice([0.0, 1.0])  # a column that says nothing
        X[n // 2 :] = X[: n - n // 2]  # and each row twice
        if rng.random() < 0.2:
            X, clients = X[:2], 1
    return X, int(clients)


def regulariser(rng: Any) -> Any:
    strength = float(10 ** rng.uniform(-4, -0.5))
    kinds = bf.L2(strength), bf.L2(strength), bf.L1(strength), bf.ElasticNet(strength, strength)
    return kinds[rng.integers(4)]


def risk(rng: Any, loss: Any, clients: int) -> dict[str, Any]:
    """The slots of a risk, most often none."""
    kinds: list[dict[str, Any]] = [{}, {}, {"over_rows": bf.Superquantile(0.3)}]
    if clients > 1:
        kinds += [{"over_clients": bf.Simplex()}, {"over_clients": bf.Superquantile(0.4)}]
    if type(loss) in SLOPE:
        kinds += [{"over_samples": bf.WassersteinBall(0.02, math.inf, "l2")}]
    return kinds[rng.integers(len(kinds))]


# ---------------------------------------------------------------------------------------- optimum


def objective(case: Case, w: Any, at: Any = 0.0) -> float:
    """The stated objective of coefficients of X - ``at``, in extended precision."""
    problem, exact = case.problem, np.longdouble
    w = np.asarray(w, exact)
    d = case.X[0].shape[1]
    losses = [
        problem.loss.value((X.astype(exact) - at) @ w[:d] + (w[d] if len(w) > d else 0), y)
        for X, y in zip(case.X, case.y, strict=True)
    ]
    g = problem.regulariser
    value = getattr(g, "l1", 0) * np.abs(w[:d]).sum() + getattr(g, "l2", 0) / 2 * (w[:d] ** 2).sum()
    if isinstance(g, bf.L1):
        value = g.strength * np.abs(w[:d]).sum()
    if isinstance(g, bf.L2):
        value = g.strength / 2 * (w[:d] ** 2).sum()
    if isinstance(ball := problem.over_samples, bf.WassersteinBall):
        value += ball.radius * SLOPE[type(problem.loss)] * np.sqrt((w[:d] ** 2).sum())
    if problem.over_rows is not None:
        return value + largest(np.concatenate(losses), problem.over_rows.tail)
    of_clients = np.array(list(map(np.average, losses, [None] * len(losses), shares(case))))
    match problem.over_clients:
        case bf.Simplex():
            return value + of_clients.max()
        case bf.Superquantile(tail):
            return value + largest(of_clients, tail)
    return value + of_clients.mean()


def shares(case: Case) -> list[Any]:
    return [np.ones(len(y)) for y in case.y] if case.weight is None else case.weight


def largest(losses: Any, tail: float) -> Any:
    """The mean of the largest losses, ``tail`` of all."""
    losses, mass = np.sort(losses)[::-1], tail * len(losses)
    weights = np.clip(mass - np.arange(len(losses)), 0, 1)
    return losses @ weights / mass


def reference(case: Case) -> Any:
    """The objective of the best model of other solvers, in columns centred and in units."""
    problem, X = case.problem, np.concatenate(case.X)
    d, at = X.shape[1], X.mean(0) * case.problem.predictor.intercept
    scale = np.abs(X - at).max(0)
    scale += scale == 0
    units = (X - at) / scale
    if problem.predictor.intercept:
        units = np.column_stack([units, np.ones(len(X))])
    penalised = isinstance(problem.over_samples, bf.WassersteinBall)
    linear = isinstance(problem.loss, LINEAR) and isinstance(problem.regulariser, bf.L1)
    found = []
    for model in (by_highs if linear and not penalised else by_clarabel)(case, units, scale):
        w = np.asarray(model, np.longdouble)
        w[:d] /= scale
        found.append(objective(case, w, at))
    return min(found)


def ranked(case: Case) -> tuple[Any, float | None]:
    """What a risk ranks, as a matrix over the losses of all rows, and the tail of which it takes
    the mean: None for all, 0 for the largest alone.
    """
    problem, sizes = case.problem, np.cumsum([0, *map(len, case.y)])
    if problem.over_rows is not None:
        return np.eye(sizes[-1]), problem.over_rows.tail
    average = np.zeros((len(case.y), sizes[-1]))
    for row, share, first, end in zip(average, shares(case), sizes, sizes[1:], strict=False):
        row[first:end] = share / share.sum()
    match problem.over_clients:
        case bf.Simplex():
            return average, 0.0
        case bf.Superquantile(tail):
            return average, tail
    return average, None


def by_clarabel(case: Case, X: Any, scale: Any) -> Iterator[Any]:
    """Models of a conic program, to the last digits and, where that fails, in shorter steps."""
    problem, d = case.problem, len(scale)
    v = cp.Variable(X.shape[1])
    losses = row_losses(problem.loss, X @ v, np.concatenate(case.y))
    h, _ = penalty(problem.regulariser, v[:d] / scale)
    if isinstance(ball := problem.over_samples, bf.WassersteinBall):
        h += ball.radius * SLOPE[type(problem.loss)] * cp.norm2(v[:d] / scale)
    matrix, tail = ranked(case)
    if tail is None:
        value = matrix.mean(0) @ losses
    elif tail == 0:
        value = cp.max(matrix @ losses)
    else:
        t = cp.Variable()
        value = t + cp.sum(cp.pos(matrix @ losses - t)) / (tail * len(matrix))
    program = cp.Problem(cp.Minimize(value + h))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # asked for more than it can know of
        for how in (TIGHT, {"max_step_fraction": 0.9}):
            program.solve(solver="CLARABEL", accept_unknown=True, **how)
            yield v.value
            if program.status == "optimal":
                return


def by_highs(case: Case, X: Any, scale: Any) -> Iterator[Any]:
    """That of a linear program over the model v, sizes u >= |v|, losses z, excesses, a level."""
    problem, y, d = case.problem, np.concatenate(case.y), len(scale)
    (matrix, tail), (n, D) = ranked(case), X.shape
    m = 0 if tail is None else len(matrix)
    match problem.loss:  # slopes and values at 0 of the pieces
        case bf.Hinge():
            pieces = [(-y, np.ones(n)), (0 * y, 0 * y)]
        case bf.Quantile(level):
            pieces = [(-level + 0 * y, level * y), (1 - level + 0 * y, (level - 1) * y)]
        case _:
            inside = getattr(problem.loss, "tolerance", 0.0)
            pieces = [(-1 + 0 * y, y - inside), (1 + 0 * y, -y - inside), (0 * y, 0 * y)]

    def blank(k: int) -> list[Any]:
        return [np.zeros((k, width)) for width in (D, d, n, m, 1)]

    left, right = [], []
    for slope, value in pieces:
        rows = blank(n)
        rows[0], rows[2] = slope[:, None] * X, -np.eye(n)
        left, right = [*left, np.hstack(rows)], [*right, -value]
    for sign in (1, -1):
        rows = blank(d)
        rows[0][:, :d], rows[1] = sign * np.eye(d), -np.eye(d)
        left, right = [*left, np.hstack(rows)], [*right, np.zeros(d)]
    if m:
        rows = blank(m)
        rows[2], rows[3], rows[4] = matrix, -np.eye(m) * (tail > 0), -np.ones((m, 1))
        left, right = [*left, np.hstack(rows)], [*right, np.zeros(m)]
    cost = [np.zeros(D), problem.regulariser.strength / scale, np.zeros(n)]
    if m:
        cost += [np.full(m, 1 / (tail * m) if tail else 0.0), np.ones(1)]
    else:
        cost[2] = matrix.mean(0)
        cost += [np.zeros(1)]
    bounds = [(None, None)] * D + [(0, None)] * d + [(None, None)] * n + [(0, None)] * m
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    program = (np.concatenate(cost), np.vstack(left), np.concatenate(right))
    found = linprog(*program, bounds=[*bounds, (None, None)], method="highs", options=exact)
    yield found.x[:D]


# ------------------------------------------------------------------------------------------- tests


@cache
def solved(seed: int, number: int) -> tuple[Case, bf.Solution]:
    drawn = case(seed, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.TrivialModelWarning)
        warnings.simplefilter("ignore", bf.UnprovenWarning)
        return drawn, bf.solve(drawn.problem, drawn.fed)


@pytest.mark.parametrize("number", range(CASES))
def test_no_bound_is_above_an_independent_optimum(number: int, drawn_seed: int) -> None:
    drawn, solution = solved(drawn_seed, number)
    proof, best, own = solution.certificate, reference(drawn), objective(drawn, solution.w)
    assert proof.value == pytest.approx(float(own), rel=1e-9, abs=1e-12)
    assert proof.bound is not None
    assert proof.bound <= min(best, own)  # exactly: rounding is charged
    if solution.outcome.stop is bf.Stop.OPTIMAL:
        assert proof.relative_gap <= TOL * (1 + 1e-9)
        assert best - NEAR * (best + 1e-2) <= proof.value <= best + TOL * best + 1e-12


def test_most_are_proved(drawn_seed: int) -> None:
    ends = [solved(drawn_seed, number)[1].outcome for number in range(CASES)]
    open_ = [f"{k}: {end.text}" for k, end in enumerate(ends) if end.stop is not bf.Stop.OPTIMAL]
    assert len(open_) <= 0.03 * CASES, "\n".join(open_)
