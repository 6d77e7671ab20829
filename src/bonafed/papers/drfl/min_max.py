"""The plain min-max method: projected ascent on client weights around minimisation over models.

    maximise over q in Q:  g(q),    g(q) = minimise over w:  sum_s q_s R_s(w) + h(w)

By Danskin's theorem the risks at a minimiser w(q) are a supergradient of g. The inner problem is
solved roughly, by proximal subgradient steps from the last model; both loops take steps ~ 1 /
sqrt(sum of squared gradients), which needs no knowledge of the problem. Bai, Wong, Qiao, Ho,
*Distributionally robust federated learning*, name this alternative and reject it; it serves as an
ablation and takes hundreds of rounds to three digits.

The server sees every client's risk R_s(w), and only the weighted sum of the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Each, Form, Streams, record
from bonafed.papers.drfl.epigraph_projection import (
    Begin,
    Begun,
    begin,
)


@record
class Probe:
    """Ask for the risks at ``w`` and the gradient of their sum with these ``weights``."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")]
    tells: ClassVar = ext.at_model()


@record
class Probed:
    """A client's risk, and its part of sum_s weights_s R_s's gradient."""

    risk: Each  # (n,)
    gradient: ext.Sum  # (n, D)


@record
class LoopState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # best model so far
    value: ext.Extended  # its objective, exact
    risks: Annotated[Array, Form("N")]  # its clients' risks
    point: Annotated[Array, Form("D")]  # the inner iterate
    total: Annotated[Array, Form("D")]  # sum of the inner iterates of this outer step
    weights: Annotated[Array, Form("N")]  # q
    steepness: float  # sum of squared gradients
    spread: float  # sum of squared supergradients
    rounds: Annotated[int, Form(rounds=-1)]
    since: ext.Counter  # rounds since the best model improved by tol


@dataclass(frozen=True)
class DoubleLoop(ext.Method):
    """Projected ascent on the client weights, ``inner`` proximal subgradient steps for each.

    Parameters
    ----------
    inner : model steps for each step of the weights
    step : size of the model's first step, in units of the model
    ascent : size of the first step of the weights; they live in the simplex
    tol : stop as stalled when the best objective has not improved by tol (relative) in 50 ascent
        steps
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Notes
    -----
    The model returned is the best one seen, with its exact objective; nothing is proved about it
    here.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.DoubleLoop())
    >>> bool(solution.certificate.relative_gap < 1e-3)
    True
    """

    inner: int = 10
    step: float = 1.0
    ascent: float = 0.2
    tol: float = 1e-6
    max_rounds: int = 5000
    start: Array | None = None
    problem: bf.Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[ext.Requirements] = ext.EPIGRAPH_REQUIREMENTS

    def __post_init__(self) -> None:
        ext.check_least(self, "inner", meaning=": it is the number of model steps per ascent step")
        ext.check_positive(self, "step", "ascent")
        ext.check_end(self, "tol")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Begin: self._at_client(begin), Probe: self.probe}

    def probe(self, memory: None, ask: Probe, data: Block, rng: Streams) -> tuple[None, Probed]:
        risk, gradient, _ = ext.risk_gradients(self._problem, ask.w, data)
        return None, Probed(risk, ask.weights[:, None] * gradient)

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Begun: self.begin, Probed: self.improve}

    @property
    def claims(self) -> ext.Claims:
        return {Begun: self._begun, Probed: self._said}

    def _begun(self, who: int, ask: Begin, up: Begun) -> Iterable[ext.Claim]:
        return ext.of_risk(self._problem, up.w[0], up.pi)

    def _said(self, who: int, ask: Probe, up: Probed) -> Iterable[ext.Claim]:
        return ext.of_weighted(self._problem, ask.w, up.risk, up.gradient, float(ask.weights[0]))

    def server_start(self, n_clients: int) -> tuple[LoopState, ext.Round]:
        first = ext.start_or_empty(self.start)
        q, nowhere = ext.client_ball(self._problem, n_clients)[0], np.zeros(n_clients)
        return LoopState(first, math.inf, nowhere, first, first, q, 0.0, 0.0, 0, 0), ext.Round(
            Begin(first)
        )

    def begin(self, state: LoopState, ids: Sequence[int], up: Begun) -> tuple[LoopState, ext.Round]:
        w = up.w[0]
        state = replace(
            state,
            w=w,
            value=self._value(w, up.pi),
            risks=up.pi,
            point=w,
            total=np.zeros_like(w),
        )
        return state, ext.Round(Probe(w, state.weights))

    def improve(
        self, state: LoopState, ids: Sequence[int], up: Probed
    ) -> tuple[LoopState, ext.Round | ext.Done]:
        state = self._judged(state, up.risk)
        stop = self._stop(state)
        if stop is not None:
            return state, ext.Done(stop)
        # the point was the mean of the inner iterates: w(q), roughly
        if state.rounds % (self.inner + 1) == 0:
            state = self._ascend(state, up.risk)
        else:
            state = self._descend(state, up.gradient)
        if state.rounds % (self.inner + 1) == self.inner:
            state = replace(state, point=state.total / self.inner)
        return state, ext.Round(Probe(state.point, state.weights))

    def _judged(self, state: LoopState, risks: Array) -> LoopState:
        value, rounds = self._value(state.point, risks), state.rounds + 1
        better = value < state.value
        since = 0 if value < state.value - self.tol * abs(state.value) else state.since + 1
        state = replace(state, rounds=rounds, since=since)
        return replace(state, w=state.point, value=value, risks=risks) if better else state

    def _descend(self, state: LoopState, gradient: Array) -> LoopState:
        """One proximal subgradient step of the model."""
        steepness = state.steepness + float(gradient @ gradient)
        step = self.step / math.sqrt(steepness) if steepness > 0 else 0.0
        w = self._problem.prox(state.point - step * gradient, step) if step > 0 else state.point
        return replace(state, point=w, total=state.total + w, steepness=steepness)

    def _ascend(self, state: LoopState, risks: Array) -> LoopState:
        """One projected step of the weights along the risks at the inner solution."""
        pull = risks - risks.mean()
        spread = state.spread + float(pull @ pull)
        q = state.weights + (self.ascent / math.sqrt(spread) * pull if spread > 0 else 0.0)
        return replace(
            state,
            weights=self._problem.over_clients.project(q),
            spread=spread,
            total=np.zeros_like(state.total),
        )

    def _stop(self, state: LoopState) -> bf.Stop | None:
        if state.rounds >= self.max_rounds:
            return bf.Stop.MAX_ROUNDS
        return bf.Stop.STALLED if state.since > 50 * (self.inner + 1) else None

    def report(self, state: LoopState) -> dict:
        """``objective`` is exact, at the best model so far."""
        return {"objective": state.value, **ext.worst_client(state.risks)}

    def answer(self, state: LoopState, concluded: ext.Concluded | None = None) -> ext.Answer:
        """The best model of the run."""
        return ext.Answer(state.w)
