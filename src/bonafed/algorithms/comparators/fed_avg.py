"""Federated averaging: local steps at every client, then the average of their models.

    minimise over w:  sum_i q_i F_i(w) + h(w)

    u_i = K local proximal gradient steps of client i from w        (``local_steps``)
    w <- w + sum_i q_i (u_i - w)                                     with K = 1: its prox

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, *Communication-efficient learning of deep networks
from decentralized data*. With K = 1 and all rows this is proximal gradient descent; with K > 1 the
clients' steps drift towards their local optima, and w settles near the optimum, not at it.
``FedProx`` pulls them back to w by strength/2 ||u - w||^2: Li, Sahu, Zaheer, Sanjabi, Talwalkar,
Smith, *Federated optimization in heterogeneous networks*. Averages of models within bounds are
within them; those of sparse models are less sparse.

A server that averages sees only the weighted sum of the changes; a rule against false uploads
(``aggregation``) has to see every client's change. It also learns the weighted mean of the risks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from bonafed.algorithms.comparators.afl import measured_step
from bonafed.algorithms.comparators.aggregation import Aggregation, Average
from bonafed.algorithms.comparators.local_steps import (
    Descend,
    Descended,
    LocalStepsMethod,
    Scout,
    Scouted,
    Walk,
    descend,
    drawn,
    scout,
    scouted,
)
from bonafed.algorithms.federated.linearisation import duals_at
from bonafed.algorithms.method import Answer, Concluded, or_default, start_or_empty
from bonafed.algorithms.requirements import AVERAGE, Requirements
from bonafed.arrays import Array
from bonafed.codec import Extended, Form
from bonafed.data.federation import Federation
from bonafed.problem.plausible import Claims
from bonafed.problem.problem import Problem
from bonafed.rounds import Done, Round, Stop, record


@record
class AveragingState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Array, Form("N")]  # q
    curvature: float  # largest of a client so far
    # objective of the model before the last step, as far as the clients asked tell it
    value: Extended
    moved: Extended  # ||change of w|| / ||w|| of the last round
    rounds: Annotated[int, Form(rounds=-1)]


@dataclass(frozen=True)
class FedAvg(LocalStepsMethod):
    """Local steps and their average: a baseline for the mean over clients.

    Parameters
    ----------
    local_steps : K; passes over the client's rows where ``epochs`` is True and there is a ``batch``
    step_size : eta; None: 1 / the largest curvature that a client has measured so far
    batch : rows of a local step, drawn anew; None: all rows
    epochs : whether local_steps counts passes over the rows
    participation : share of the clients asked in a round, drawn by the server at random; 1: all
    aggregate : ``Average()``, or against false uploads ``CoordinateMedian()``,
        ``TrimmedMean(share)``, ``Krum(byzantine, multi)`` or ``Bulyan(byzantine)``
    strength : of the pull towards the server's model, see ``FedProx``
    seed : of the server's draws
    tol : stop when a round of all clients and all rows changes the model by less than tol times its
        size
    max_rounds : a cap
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for settings out of range; risks over clients other than Mean and Sum

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.FedAvg())
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    local_steps: int = 5
    step_size: float | None = None
    batch: int | None = None
    epochs: bool = False
    participation: float = 1.0
    aggregate: Aggregation = Average()  # noqa: RUF009  frozen, without fields
    strength: float = 0.0
    seed: int = 0
    tol: float = 1e-6
    max_rounds: int = 500
    start: Array | None = None
    problem: Problem | None = None
    requirements: ClassVar[Requirements] = Requirements(over_clients=AVERAGE)

    def __post_init__(self) -> None:
        self.check_settings()
        if not hasattr(self.aggregate, "of") or isinstance(self.aggregate, type):
            raise TypeError(
                f"aggregate must be a rule such as Average() or Krum(1), got {self.aggregate!r}."
            )

    def check_problem(self, problem: Problem, fed: Federation | None) -> None:
        """Raise ``ValueError`` for ranked batches, or too few clients for the aggregation."""
        super().check_problem(problem, fed)
        if fed is not None:
            self.aggregate.check(self._count(fed.n_clients))

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        steps = self._at_client(descend, self._walk, self.aggregate.single)
        return {Scout: self._at_client(scout), Descend: steps}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Scouted: self.begin, Descended: self.average}

    @property
    def claims(self) -> Claims:
        return {**scouted(), Descended: self._walked}

    def server_start(self, n_clients: int) -> tuple[AveragingState, Round]:
        w = start_or_empty(self.start)
        q = np.asarray(self._problem.over_clients.weights(np.zeros(n_clients)), float)
        return AveragingState(w, q, 0.0, math.inf, math.inf, 0), Round(Scout(w))

    def begin(
        self, state: AveragingState, ids: Sequence[int], up: Scouted
    ) -> tuple[AveragingState, Round]:
        w = or_default(state.w, self._problem, int(up.features))
        state = replace(state, w=w, curvature=float(up.curvature))
        return state, self._ask(state)

    def average(
        self, state: AveragingState, ids: Sequence[int], up: Descended
    ) -> tuple[AveragingState, Round | Done]:
        q, total = state.weights[list(ids)], float(state.weights.sum())
        change = (
            np.asarray(up.change) / _mass(q)
            if up.single is None
            else self.aggregate.of(up.single, q)
        )
        w = state.w + change
        if self._walk.single and np.isfinite(w).all():
            w = self._problem.prox(w, self._step(state) / total)
        value = float(up.risk) * total / _mass(q) + self._problem.penalty(state.w)
        moved = float(np.linalg.norm(w - state.w)) / max(float(np.linalg.norm(w)), 1e-300)
        curvature = max(state.curvature, float(up.curvature))
        state = replace(
            state, w=w, value=value, moved=moved, curvature=curvature, rounds=state.rounds + 1
        )
        stop = self._stop(state)
        return state, self._ask(state) if stop is None else Done(stop)

    def report(self, state: AveragingState) -> dict:
        """``objective`` is that of the model before the round, from the clients asked."""
        return {"objective": state.value, "moved": state.moved}

    def answer(self, state: AveragingState, concluded: Concluded | None = None) -> Answer:
        """The model, and its gradients, which prove a bound."""
        return Answer(state.w, duals_at(self._problem, state.w, state.weights))

    @property
    def _walk(self) -> Walk:
        return Walk(self.local_steps, self.batch, self.epochs, self.strength)

    def _step(self, state: AveragingState) -> float:
        return self.step_size or measured_step(
            self._problem, state.curvature + self.strength, state.rounds
        )

    def _ask(self, state: AveragingState) -> Round:
        n = len(state.weights)
        to = drawn(self.seed, state.rounds, n, self._count(n))
        return Round(
            Descend(state.w, state.weights, self._step(state), 1 / float(state.weights.sum()), 0),
            to,
        )

    def _stop(self, state: AveragingState) -> Stop | None:
        if not (np.isfinite(state.w).all() and math.isfinite(state.value)):
            return Stop.STALLED
        # where local steps or a rule let it rest need not be near the optimum
        if self.participation == 1 and self.batch is None and state.moved <= self.tol:
            return Stop.UNPROVEN
        return None if state.rounds < self.max_rounds else Stop.MAX_ROUNDS


def FedProx(strength: float = 0.1, **settings: object) -> FedAvg:
    """``FedAvg`` with local steps that also minimise strength/2 ||u - w||^2.

    ``settings`` are those of ``FedAvg``.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.FedProx(strength=0.1))
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """
    more: dict[str, Any] = dict(settings)
    return FedAvg(strength=strength, **more)


def _mass(weights: Array) -> float:
    """The total weight of the clients who answered; where it is 0, so is their weighted sum."""
    return float(weights.sum()) or 1.0
