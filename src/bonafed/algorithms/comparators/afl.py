"""Agnostic federated learning: gradient descent on the model, gradient ascent on client weights.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F = (F_1, ..., F_N)

    w <- prox_{eta h}( w - eta sum_i p_i F_i'(w) ),          p <- Proj_Q( p + gamma F(w) )

Mohri, Sivek, Suresh, *Agnostic federated learning*, with full gradients, h by its prox and any Q
with a projection. With ``optimistic`` both steps take 2 F(w_t) - F(w_{t-1}), and the gradients
likewise, in place of the last ones (Popov's method): plain steps can circle the optimum at a
distance that falls with gamma, while these steps converge. With ``average`` the answer is the
running average of the models, as in the paper's analysis, not the last one.

Without ``step_size`` eta = 1 / sum_i p_i L_i (half of it for ``optimistic``), L_i being the largest
curvature that client i has measured between two models; where gradients jump, eta = 1 / (L
sqrt(t + 1)) in round t, with 1/L the step that would bring the first risk to 0 along its gradient.
Without
``weight_step`` gamma = 0.25 / (eta G^2) with G the longest gradient of a client: this is near the
fastest choice and far from the limit of stability (about 1).

A client receives w and its weight. The server learns every client's risk, and the weighted sum of
the gradients.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms.federated.linearisation import (
    bound_at,
    duals_at,
    is_smooth,
    risk_gradients,
    take_part,
)
from bonafed.algorithms.method import Ids, Next
from bonafed.algorithms.requirements import PROJECTION, Requirements
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Extended, Form
from bonafed.problem.claims import Claim, Number
from bonafed.problem.conic_form import member
from bonafed.problem.lower_bounds import Survey, Surveyed
from bonafed.problem.plausible import Claims, of_weighted, surveys
from bonafed.problem.problem import Problem
from bonafed.rounds import Done, Each, Max, Round, Stop, Sum, record

COUPLING = 0.25  # eta gamma G^2
NUDGE = 1e-3  # share of its risk by which a client's first, probing step would lower it


@record
class Mix:
    """Ask every client for its risk at ``w`` and for its weight times its gradient."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")]  # p


@record
class Mixed:
    """The answers: F_i(w), sum_i p_i F_i'(w), sum_i p_i L_i and max_i ||F_i'(w)||^2."""

    risk: Each  # (n,)
    gradient: Sum  # (1, D) per block
    curvature: Sum  # (n,)
    steep: Max  # (n,)


@record
class MixedMemory:
    """A client's last model and gradient, and the largest curvature that it has measured."""

    w: Annotated[Array, Form("n, D")]
    gradient: Annotated[Array, Form("n, D")]
    curvature: Annotated[Array, Form("n")]


@record
class AFLState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # the last model that was evaluated
    trial: Annotated[Array, Form("D")]  # the one that is
    weights: Annotated[Array, Form("N")]  # p, sent with it
    mean: Annotated[Array, Form("D")]  # average of the models so far
    risks: Annotated[Array, Form("N")]  # at w
    gradient: Annotated[Array, Form("D|0")]  # at w
    steep: float  # largest ||F_i'||^2 so far
    value: Extended  # objective at w
    bound: Extended  # best proven lower bound, -inf without one
    point: Annotated[Array, Form("D")]  # whose gradients prove it
    proof: Annotated[Array, Form("N")]  # the client weights of that proof
    rounds: Annotated[int, Form(rounds=-1)]
    seen: Surveyed | None


@dataclass(frozen=True)
class AFL(base.Method):
    """Gradient descent ascent, synchronous: a baseline for any problem, convex or not.

    Parameters
    ----------
    step_size : eta; None: from the curvature that the clients measure
    weight_step : gamma; None: from eta and the longest gradient
    average : answer with the average of all models instead of the last one. Then tol does not stop
        the run
    optimistic : extrapolate risks and gradients
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)), where a bound can
        be proved
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for step sizes that are not positive, and sets without a projection

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.AFL(), max_rounds=300)
    >>> bool(solution.certificate.relative_gap < 1e-1)
    True
    """

    step_size: float | None = None
    weight_step: float | None = None
    average: bool = False
    optimistic: bool = False
    tol: float = 1e-3
    atol: float = 0.0
    max_rounds: int = 2000
    start: Array | None = None
    problem: Problem | None = None
    requirements: ClassVar[Requirements] = Requirements(over_clients=PROJECTION)
    advised: ClassVar[int] = 1

    def __post_init__(self) -> None:
        remedy = "Leave it out for a measured one."
        base.check_positive(self, "step_size", "weight_step", remedy=remedy)

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Survey: take_part, Mix: self.client_step(weigh)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Surveyed: self.begin, Mixed: self.improve}

    @property
    def claims(self) -> Claims:
        return {**surveys(self.concrete), Mixed: self._said}

    def _said(self, who: int, ask: Mix, up: Mixed) -> Iterator[Claim]:
        """What an answer claims."""
        weight, length = float(ask.weights[0]), float(np.linalg.norm(up.gradient))
        yield from of_weighted(self.concrete, ask.w, up.risk, up.gradient, weight)
        yield Number("a curvature", up.curvature)
        least = (length / weight) ** 2 if weight > 0 else 0.0
        yield Number("a square of a slope", up.steep, least)

    def server_start(self, n_clients: int) -> tuple[AFLState, Round]:
        prior, none = member(self.concrete, n_clients), np.zeros(0)
        first = none, none, prior, none, np.zeros(n_clients), none, 0.0
        return AFLState(*first, math.inf, -math.inf, none, prior, 0, None), Round(Survey(prior))

    def begin(self, state: AFLState, ids: Ids, seen: Surveyed) -> tuple[AFLState, Round]:
        w = base.with_start(self.concrete, self.start, len(seen.square))
        state = replace(state, w=w, trial=w, mean=np.zeros_like(w), point=w, seen=seen)
        return state, Round(Mix(w, state.weights))

    def improve(self, state: AFLState, ids: Ids, up: Mixed) -> Next[AFLState]:
        t, w, p = state.rounds, state.trial, state.weights
        if not (np.isfinite(up.risk).all() and np.isfinite(up.gradient).all()):
            return replace(state, rounds=t + 1), Done(Stop.STALLED)
        value = float(self.concrete.over_clients.worst(up.risk).value) + self.concrete.penalty(w)
        bound = bound_at(self.concrete, w, value, float(p @ up.risk), up.gradient, p, state.seen)
        if bound > state.bound:
            state = replace(state, bound=bound, point=w, proof=p)
        risks, gradient = up.risk, up.gradient
        if self.optimistic and t:
            risks, gradient = 2 * risks - state.risks, 2 * gradient - state.gradient
        steep = max(state.steep, float(up.steep))
        eta, gamma = self._steps(float(up.curvature), steep, t)
        new = {"trial": self.concrete.prox(w - eta * gradient, eta)}
        new["weights"] = self.concrete.over_clients.project(p + gamma * (risks - risks.max()))
        new["mean"] = state.mean + (w - state.mean) / (t + 1)
        state = replace(state, w=w, value=value, risks=up.risk, gradient=up.gradient, steep=steep)
        state = replace(state, rounds=t + 1, **new)
        numbers = value, state.bound, self.tol, self.atol, state.rounds, self.max_rounds
        # no bound is compared with an average
        stop = base.Progress(*numbers, met=not self.average, least=base.TINY).stop
        return state, Round(Mix(state.trial, state.weights)) if stop is None else Done(stop)

    def report(self, state: AFLState) -> dict:
        """``objective`` is that of the last model, also where the answer is the average."""
        numbers = base.gap_report(state.value, state.bound, state.risks)
        return numbers if state.rounds else numbers | {"worst_client": -1}

    def answer(self, state: AFLState, concluded: base.Concluded | None = None) -> base.Answer:
        """The last model or the average, and the weighted gradients that prove the best bound."""
        w = state.mean if self.average and state.rounds else state.w
        return base.Answer(w, duals_at(self.concrete, state.point, state.proof))

    def _steps(self, curvature: float, steep: float, turn: int) -> tuple[float, float]:
        """The step sizes (eta, gamma) of a round."""
        longer = 2 if self.optimistic else 1  # extrapolated gradients overshoot from 2/3 of 1/L on
        eta = self.step_size or measured_step(self.concrete, longer * curvature, turn)
        fall = 1 if is_smooth(self.concrete) else turn + 1  # then gamma falls as eta does
        return eta, self.weight_step or COUPLING / (eta * max(steep, 1e-300) * fall)


def weigh(
    problem: Problem, memory: MixedMemory | None, ask: Mix, data: Block, rng: Streams
) -> tuple[MixedMemory, Mixed]:
    """The answer of every client of the block: its risk, and its weight times its gradient."""
    risk, gradient, _ = risk_gradients(problem, ask.w, data)
    w, square = np.tile(ask.w, (len(risk), 1)), (gradient * gradient).sum(1)
    if memory is None:
        curvature = first_curvature(problem, w, risk, gradient, data)
    else:
        curvature = memory.curvature
        if is_smooth(problem):
            curvature = np.maximum(curvature, secant(w - memory.w, gradient - memory.gradient))
    up = Mixed(risk, (ask.weights @ gradient)[None], ask.weights * curvature, square)
    return MixedMemory(w, gradient, curvature), up


def secant(move: Array, change: Array) -> Array:
    """||change|| / ||move|| of every client, (n,); 0 where nothing moved."""
    size, turned = (np.sqrt((part * part).sum(1)) for part in (move, change))
    return np.divide(turned, size, out=np.zeros_like(size), where=size > 0)


def first_curvature(problem: Problem, w: Array, risk: Array, gradient: Array, data: Block) -> Array:
    """The curvature of every client's risk along its gradient at w, (n,), from gradients (n, D).

    Where gradients jump it is ||gradient||^2 / risk.
    """
    square = (gradient * gradient).sum(1)
    step = np.minimum(NUDGE * np.abs(risk) / np.maximum(square, 1e-300), 1e150)
    near = w - step[:, None] * gradient
    there = risk_gradients(problem, near, data)[1]
    if is_smooth(problem):
        return secant(near - w, there - gradient)
    # at w itself equal losses may hide how steep it is
    longest = np.maximum(square, (there * there).sum(1))
    return np.divide(longest, np.abs(risk), out=np.zeros_like(square), where=risk != 0)


def measured_step(problem: Problem, curvature: float, turn: int) -> float:
    """The step size 1 / curvature; where gradients jump it falls with the number of steps."""
    return 1 / max(curvature, 1e-12) / (1.0 if is_smooth(problem) else math.sqrt(turn + 1))
