"""A race on one virtual clock: when each method's model first is near the optimum, at what cost.

    gap(w) = R(F(w)) + h(w) - F*,     F* the certified lower bound of the optimum

Evaluations stand outside the clock: they use the model that the server holds after a round, at most
once in ``every`` virtual seconds, and take no time. All methods meet the same delays: a client's
k-th trip takes as long in every run with one delay seed. A first round in which a method only
learns the number of features counts like every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.aspire.drfa import DRFA
from bonafed.papers.aspire.setups import SetUp

LEVELS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
COSTED = 1e-2  # the level whose messages and bytes are shown


@dataclass(frozen=True)
class Optimum:
    """A certified optimum: bound <= F* <= value."""

    value: float
    bound: float
    w: Array  # (D,)


@dataclass(frozen=True)
class Entrant:
    """A method, and its server's rule of waiting."""

    algorithm: ext.Method
    wait: ext.Waiting = field(default_factory=bf.First)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation during a race."""

    time: float  # virtual seconds
    gap: float
    answers: int  # of clients so far; the server has sent as many messages and those in flight
    bytes: int  # both ways


@dataclass(frozen=True)
class Run:
    """The evaluations of one method's race."""

    points: tuple[Evaluation, ...]
    rounds: int
    state: Any

    def reaches(self, level: float) -> Evaluation | None:
        """The first evaluation within ``level`` of the optimum, or None."""
        return next((point for point in self.points if point.gap <= level), None)

    def time(self, level: float) -> float:
        """The time of that evaluation; infinite where there is none."""
        point = self.reaches(level)
        return np.inf if point is None else point.time

    @property
    def best(self) -> float:
        """The least gap of all evaluations."""
        return min((point.gap for point in self.points), default=np.inf)


class _Over(Exception):  # noqa: N818  no error
    """The last level is reached."""


def optimum(setup: SetUp, tol: float = 1e-9) -> Optimum:
    """The certified optimum, by the synchronous reference."""
    solution = ext.fit(setup.problem, setup.fed, algorithm=bf.MultiplierMethod(), tol=tol)
    proof = solution.certificate
    if proof.bound is None:
        raise ArithmeticError(
            f"no bound on the optimum of set-up {setup.name} is proved: {solution.outcome.text}"
        )
    return Optimum(proof.value, proof.bound, solution.w)


def objective(problem: bf.Problem, fed: bf.Federation, w: Array) -> float:
    """R(F(w)) + h(w) of a concrete problem."""
    risks = np.concatenate([problem.client_risks(w, block) for block in fed.blocks()])
    order = np.concatenate([block.index for block in fed.blocks()])
    return float(problem.over_clients.value(risks[np.argsort(order)])) + problem.penalty(w)


def current(algorithm: ext.Method, state: object) -> Array:
    """The model that the server would send next, or its answer where that differs on purpose."""
    answer, trial = algorithm.answer, getattr(state, "trial", None)
    averaged = isinstance(algorithm, bf.AFL | DRFA) and algorithm.average
    return answer(state).w if averaged or trial is None else trial


def configured(entrant: Entrant, problem: bf.Problem, data: bf.Federation) -> Any:
    """An entrant's method for a concrete problem; ``FedAvg`` gets equal weights."""
    if isinstance(entrant.algorithm, bf.FedAvg):
        problem = replace(problem, over_clients=bf.Mean().at(np.ones(data.n_clients)))
    method: Any = entrant.algorithm
    return replace(method, problem=problem)


def follow(
    setup: SetUp,
    entrant: Entrant,
    best: Optimum,
    max_time: float,
    delays: int = 0,
    levels: Sequence[float] = LEVELS,
    every: float = 1.0,
) -> Run:
    """One entrant's race, until its model is within the last level, or out of time.

    ``FedAvg`` is evaluated by the worst weights as well.
    """
    problem, data = setup.problem.at(setup.fed)
    algorithm = configured(entrant, problem, data)
    points: list[Evaluation] = []
    answers, sent, last, rounds, final = 0, 0, -np.inf, 0, None

    def watch(row: dict[str, Any], state: object) -> None:
        nonlocal answers, sent, last, rounds, final
        answers, sent = answers + row["answered"], sent + row["bytes_up"] + row["bytes_down"]
        rounds, final = row["round"], state
        if row["time"] < last + every or not len(w := current(algorithm, state)):
            return
        last = row["time"]
        gap = objective(problem, data, w) - best.bound
        points.append(Evaluation(last, gap, int(answers), int(sent)))
        if gap <= min(levels):
            raise _Over

    with suppress(_Over):
        engine = setup.clock(entrant.wait, max_time=max_time)
        engine.run(algorithm, data, seed=delays, watch=[watch])
    return Run(tuple(points), rounds, final)


def row(name: str, run: Run) -> tuple[Any, ...]:
    """A row of a table: times to the levels, messages and KiB to one of them, the least gap."""
    points = [run.reaches(level) for level in LEVELS]
    times = [point and round(point.time, 1) for point in points]
    point = run.reaches(COSTED)
    costs = (None, None) if point is None else (2 * point.answers, round(point.bytes / 1024))
    return name, *times, *costs, float(f"{max(run.best, 0.0):.1e}")


def columns() -> tuple[str, ...]:
    """The heads of ``row``."""
    return (
        "method",
        *(f"{level:g}" for level in LEVELS),
        f"messages to {COSTED:g}",
        f"KiB to {COSTED:g}",
        "least gap",
    )
