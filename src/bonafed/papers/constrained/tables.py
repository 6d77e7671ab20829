"""The columns that the tables of the paper share, and one trial of Tables 1 and 2."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import BFGS, NonlinearConstraint, minimize, nnls

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array

Row = dict[str, object]


class Printed(NamedTuple):
    """A row of Table 1 or 2: means (and a standard deviation) over the paper's 10 trials."""

    objective: float
    sd: float
    central: float  # objective of cProx-AL
    difference: float  # relative, between the two
    mean: float  # constraint value over the clients
    most: float


@dataclass(frozen=True)
class Trial:
    """One run on one draw of the clients' rows, and an optimum found by other means."""

    fed: bf.Federation
    reference: Reference
    trace: Trace
    end: Evaluation

    @property
    def gap(self) -> float:
        """The relative gap of the objective; it is negative where the model is infeasible."""
        return self.end.objective / self.reference.value - 1


def row(trials: Sequence[Trial], constraint: Callable[[Trial], Array], printed: Printed) -> Row:
    """A row of Table 1 or 2; ``constraint`` gives the clients' values of it, NaN where none."""
    columns = shared_columns([trial.trace for trial in trials], [trial.end for trial in trials])
    columns["reference"] = float(np.mean([trial.reference.value for trial in trials]))
    columns["relative_difference"] = max(abs(trial.gap) for trial in trials)
    values = [constraint(trial) for trial in trials]
    for name, pick in (("mean", np.nanmean), ("most", np.nanmax)):
        columns[name], columns[f"{name}_sd"] = mean_and_sd(float(pick(v)) for v in values)
    paper = printed._asdict().items()
    return columns | {f"paper_{key}": number for key, number in paper if key != "central"}


def shared_columns(runs: Sequence[Trace], ends: Sequence[Evaluation]) -> Row:
    """The columns of all tables: objectives, violations and costs of the trials' runs."""
    objective, sd = mean_and_sd(end.objective for end in ends)
    outer = [run.outer for run in runs if run.outer is not None]
    columns: Row = {"trials": len(runs), "objective": objective, "objective_sd": sd}
    columns["violation"] = max(end.violation for end in ends)
    columns["rounds"] = float(np.mean([run.rounds for run in runs]))
    columns["outer"] = float(np.mean(outer)) if outer else None
    columns["floats"] = float(np.mean([run.floats for run in runs]))
    return columns | {"stops": sorted({run.stop for run in runs}), "comparable": "trend only"}


def mean_and_sd(values: Iterable[float]) -> tuple[float, float]:
    """The mean and standard deviation over trials; one trial has deviation 0."""
    trials = np.array(list(values), float)
    return float(trials.mean()), float(trials.std(ddof=1)) if len(trials) > 1 else 0.0


# What an experiment measures: models by round, local losses and constraints, rounds to a gap.
#
# A run reaches a gap of g where |objective - f*| <= g f*, no constraint is violated by more than g
# times its limit, and both stay so until the run ends: a run that only passes the optimum's value
# on its way has not reached it.


@dataclass(frozen=True)
class Evaluation:
    """The objective, the clients' losses and their constraints at one model.

    Constraints are NaN where a client has none.
    """

    objective: float
    violation: float
    risks: Array  # (N,)
    measured: Array  # (N, p)
    server: Array  # (p_0,)


@dataclass(frozen=True)
class Trace:
    """A run's models and its costs."""

    models: Array  # (rounds, D)
    stop: str  # why it ended, as the certificate confirms it
    rounds: int
    outer: int | None  # outer iterations, where the method has them
    # numbers of 8 bytes that all clients sent and received, headers included, certificate excluded
    floats: int
    up: int  # of these, sent by clients
    seconds: float  # CPU, certificate included
    w: Array


def follow(
    algorithm: ext.Method, problem: bf.Problem, fed: bf.Federation, start: Array | None = None
) -> Trace:
    """Solve a problem and keep the model after every round."""
    own: Any = algorithm
    method = replace(own, problem=problem.at(fed)[0])
    models: list[Array] = []
    began = time.process_time()
    watch = [lambda row, state: models.append(method.answer(state)[0])]
    solution = ext.fit(problem, fed, algorithm=algorithm, start=start, watch=watch)
    seconds = time.process_time() - began
    sent = [m for m in solution.messages if not m["message"].startswith("Weigh")]
    sizes = {way: [m["bytes"] for m in sent if m["direction"] == way] for way in ("up", "down")}
    up, down = (sum(each) // 8 for each in sizes.values())
    outer = solution.history[-1].get("outer") if solution.history else None
    ended = solution.outcome.stop.value, solution.rounds, outer
    return Trace(np.array(models), *ended, up + down, up, seconds, solution.w)


def evaluate(problem: bf.Problem, fed: bf.Federation, models: Iterable[Array]) -> list[Evaluation]:
    """The exact objective, losses and constraints at every model."""
    concrete, data = problem.at(fed)
    block, evaluations = data.blocks(data.n_clients)[0], []
    order = np.argsort(block.index)
    local, server = concrete.local_constraint, concrete.constraint
    limits = local.limits(block)
    for w in models:
        point = ext.Point(concrete, w, block)
        risks, values = ext.client_values(point)[order], local.values(point)
        at_server = server.held.values(server.point(concrete, w))[0]
        excess = [*np.where(local.equality, np.abs(values), values).ravel()]
        excess += [*np.where(server.held.equality, np.abs(at_server), at_server)]
        if server.held.size:
            at_server = at_server + server.held.limits(server.block)[0]
        value = concrete.over_clients.value(risks) + concrete.penalty(w)
        worst, measured = float(max([0.0, *excess])), (values + limits)[order]
        evaluations.append(Evaluation(value, worst, risks, measured, at_server))
    return evaluations


def rounds_to(
    evaluations: Sequence[Evaluation], optimum: float, limit: float, gaps: Sequence[float]
) -> list[int | None]:
    """The first round from which on each gap holds; None where it does not at the end."""
    off = np.array([max(abs(e.objective / optimum - 1), e.violation / limit) for e in evaluations])
    first = [1 + int(np.flatnonzero(np.append(True, ~(off <= gap)))[-1]) for gap in gaps]
    return [None if k > len(off) else k for k in first]


def bands(evaluations: Sequence[Evaluation], equal_is_gap: bool = False) -> list[dict[str, float]]:
    """Mean, least and largest local loss and constraint over the clients, by round.

    These are the bands of Figures 1 and 2.

    ``equal_is_gap``: a client's constraint is its largest measured value, as of the two sides of a
    difference.
    """
    rows = []
    for k, e in enumerate(evaluations):
        local = e.measured.max(1) if equal_is_gap else e.measured[:, 0]
        row = {"round": k + 1.0}
        for name, values in (("loss", e.risks), ("constraint", local)):
            numbers = np.nanmean(values), np.nanmin(values), np.nanmax(values)
            row |= zip((name, f"{name}_least", f"{name}_most"), map(float, numbers), strict=True)
        row["server"] = float(e.server.max()) if len(e.server) else np.nan
        rows.append(row)
    return rows


def on_sphere(d: int, rng: np.random.Generator) -> Array:
    """A uniform point of the unit sphere, as the paper starts from."""
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)


# Reference optima from pooled rows: SciPy's SLSQP or trust-constr, then active-set Newton steps.
#
#     minimise a'l(w)  subject to  B l(w) <= level,  l_j(w) = log(1 + exp(-y_j x_j'w)),
#             y_j = -1 or +1
#
# covers (30) and (32): a and B hold the rows' shares in the means. This file uses none of bonafed's
# problems, algorithms or certificates.

ACTIVE = 1e-5  # slack below which a constraint may be active
STEPS = 30  # Newton steps at most


@dataclass(frozen=True, eq=False)
class WeightedLosses:
    """The program of the module's docstring."""

    X: Array  # (m, d)
    y: Array  # (m,) -1, +1
    a: Array  # (m,)
    B: Array  # (M, m)
    level: Array  # (M,)

    def value(self, w: Array) -> float:
        return float(self.a @ _losses(self, w.tobytes())[0])

    def gradient(self, w: Array) -> Array:
        return self.X.T @ (-self.a * self.y * _losses(self, w.tobytes())[1])

    def slack(self, w: Array) -> Array:
        """(M,) level - B l(w)."""
        return self.level - self.B @ _losses(self, w.tobytes())[0]

    def slack_jacobian(self, w: Array) -> Array:
        return (self.B * (self.y * _losses(self, w.tobytes())[1])) @ self.X

    def hessian(self, w: Array, mu: Array) -> Array:
        """The Hessian of the Lagrangian."""
        p = _losses(self, w.tobytes())[1]
        return (self.X.T * ((self.a + mu @ self.B) * p * (1 - p))) @ self.X

    def residual(self, w: Array, mu: Array) -> float:
        """The largest of stationarity, violation, complementarity and wrong signs."""
        slack = self.slack(w)
        stationarity = np.abs(self.gradient(w) - mu @ self.slack_jacobian(w)).max()
        return float(max(stationarity, -slack.min(), np.abs(mu * slack).max(), -mu.min()))


@lru_cache(maxsize=1)  # since SciPy asks for values and gradients at a point in turn
def _losses(program: WeightedLosses, point: bytes) -> tuple[Array, Array]:
    """The losses l(w), (m,), and the probabilities of the other class, (m,)."""
    t = program.y * (program.X @ np.frombuffer(point))
    return np.logaddexp(0.0, -t), 1 / (1 + np.exp(np.minimum(t, 700)))


@dataclass(frozen=True)
class Reference:
    """A point that meets the optimality conditions up to ``residual``: the optimum if convex."""

    w: Array
    mu: Array
    value: float
    violation: float
    residual: float
    seconds: float  # CPU time without the Newton steps


def neyman_pearson(fed: bf.Federation, level: float, priority: object = 1) -> WeightedLosses:
    """(30): class ``priority`` in the constraints, the other in the objective."""
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    first, shares = np.asarray(y == priority), _shares(fed.sizes)
    objective, bounded = shares * ~first, shares * first
    a = objective / objective.sum(1, keepdims=True) / fed.n_clients
    bounded = bounded[bounded.any(1)]
    B, y = bounded / bounded.sum(1, keepdims=True), np.where(first, 1.0, -1.0)
    return WeightedLosses(X, y, a.sum(0), B, np.full(len(B), level))


def loss_gaps(fed: bf.Federation, level: float, positive: object = 1) -> WeightedLosses:
    """(32): the groups' mean losses differ by at most the level, at clients and at the server."""
    feds = [fed] if fed.server is None else [fed, fed.server]
    X = np.concatenate([rows for each in feds for rows in each.X])
    y = np.concatenate([targets for each in feds for targets in each.y])
    group = np.concatenate([values for each in feds for values in (each.columns or {})["group"]])
    shares = _shares(np.concatenate([each.sizes for each in feds]))
    a = (shares / shares.sum(1, keepdims=True))[: fed.n_clients].sum(0) / fed.n_clients
    first, second = (shares * (group == g) for g in np.unique(group))
    gap = first / first.sum(1, keepdims=True) - second / second.sum(1, keepdims=True)
    B = np.concatenate([gap, -gap])
    return WeightedLosses(X, np.where(y == positive, 1.0, -1.0), a, B, np.full(len(B), level))


def solve(
    program: WeightedLosses, start: Array | None = None, method: str = "SLSQP", polish: bool = True
) -> Reference:
    """The optimum from one start, zeros by default; ``method`` is "SLSQP" or "trust-constr"."""
    x0 = np.zeros(program.X.shape[1]) if start is None else np.asarray(start, float)
    began = time.process_time()
    if method == "SLSQP":
        bound: Any = {"type": "ineq", "fun": program.slack, "jac": program.slack_jacobian}
        options = {"maxiter": 2000, "ftol": 1e-15}
    else:
        jac: Any = program.slack_jacobian
        bound = NonlinearConstraint(program.slack, 0.0, np.inf, jac=jac, hess=BFGS())
        options = {"maxiter": 3000, "gtol": 1e-9, "xtol": 1e-12, "barrier_tol": 1e-10}
    law = {"jac": program.gradient, "constraints": [bound], "method": method}
    end = minimize(program.value, x0, options=options, **law)
    seconds = time.process_time() - began
    w, mu = end.x, multipliers(program, end.x)
    if polish:
        w, mu = polished(program, w, mu)
    violation = -float(program.slack(w).min(initial=0.0))
    return Reference(w, mu, program.value(w), violation, program.residual(w, mu), seconds)


def best(program: WeightedLosses, starts: Sequence[Array | None]) -> Reference:
    """The end of least objective among those of several starts that are feasible to 1e-9."""
    ends = [solve(program, start) for start in starts]
    feasible = [one for one in ends if one.violation <= 1e-9]
    return min(feasible or ends, key=lambda one: one.value)


def multipliers(program: WeightedLosses, w: Array) -> Array:
    """Multipliers by nonnegative least squares of stationarity over nearly active constraints."""
    slack = program.slack(w)
    active = np.flatnonzero(slack <= max(ACTIVE, 10 * -float(slack.min())))
    mu = np.zeros(len(slack))
    if len(active):
        mu[active] = nnls(program.slack_jacobian(w)[active].T, program.gradient(w))[0]
    return mu


def polished(program: WeightedLosses, w: Array, mu: Array) -> tuple[Array, Array]:
    """The best point of Newton's method on stationarity and the active constraints as equations."""
    best, least = (w, mu), program.residual(w, mu)
    active = mu > 1e-9 * mu.max(initial=0.0)
    for _ in range(STEPS):
        if least < 1e-14:
            break
        J, k = program.slack_jacobian(w)[active], int(active.sum())
        matrix = np.block([[program.hessian(w, mu), -J.T], [J, np.zeros((k, k))]])
        right = np.concatenate([-program.gradient(w), -program.slack(w)[active]])
        step = np.linalg.lstsq(matrix, right, rcond=1e-13)[0]
        w, mu = w + step[: len(w)], mu.copy()
        mu[active] = step[len(w) :]
        if (residual := program.residual(w, mu)) < least:
            best, least = (w, mu), residual
    return best


def _shares(sizes: NDArray[np.intp]) -> Array:
    """(N, m) 1 where the row is the owner's, else 0."""
    return np.repeat(np.eye(len(sizes)), sizes, axis=1)
