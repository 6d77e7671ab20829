"""What holds for a model under constraints, recomputed from (problem, data, w, multipliers) alone.

Always: the exact objective, every constraint's value, and the residuals of (8) of He, Peng, Sun, *Federated learning
with convex global and local constraints*: stationarity in the Chebyshev norm, violation, complementarity. Where
objective and constraints are convex also a lower bound. For mu >= 0, a_j the weight of row j's loss in f + <mu, c>,
any slopes s_j

    f(w) + h(w) + <mu, c(w)>  >=  constant - sum_j a_j l*(s_j) + <b + sum_j a_j s_j x_j, w> + h(w)      for every w

by Fenchel's inequality; the right side is minimised in closed form and finite where its slope lies in minus the
domain of h*. The slopes of the loss at w leave a remainder r; with the Hessian of the Lagrangian, v = -H^+ r, the
slopes s_j = l'_j + l''_j x_j'v balance it to second order, and a few such rounds balance it to rounding. So no bound
on an optimal model is needed, nor that one exists. What rounding leaves, at most 1e-12 of the size of the terms that
cancel, is charged for all models w with sum_j size_j |w_j| up to ``REACH`` times what it is at this one, or what the
constants add up to; and the constants' own rounding with it. Multipliers that cancel each other only weaken the bound.

With weight 0 on the objective the same minimum, if positive, proves that no model meets all constraints: none that is
up to ``FAR`` times as large, since there whatever is left unbalanced is charged so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, Block, Streams
from quorate.certificates.duality import Certificate, outside
from quorate.certificates.kkt import off_regulariser
from quorate.certificates.minorants import in_domain, locked, minorant, pseudosolve, ridge
from quorate.problem.bounds import region
from quorate.problem.clients import client_slopes, client_values, hessians
from quorate.problem.constraints.constraint import Point, excess
from quorate.problem.losses import Quadratic
from quorate.problem.multipliers import Multipliers, no_multipliers, signed, weighting
from quorate.problem.problem import Problem
from quorate.problem.ranked import has_rank_coordinate
from quorate.problem.regularisers import L1, Bounds, ElasticNet, Zero
from quorate.rounds import Done, Each, Outcome, Round, Stop, Sum, record

ROUNDING = 1e-12  # of the terms that cancel
NEGLIGIBLE = (1e-9, 1e-5, 1e-2)  # multipliers left out of a proof of infeasibility, relative to the largest
FLOOR = 1e-15  # of them: below this nothing is gained by balancing further
BALANCING = 8  # rounds at most
REACH, FAR = 1e2, 1e6  # what is left is charged up to here: for a bound, and for a proof of infeasibility


@record
class Weigh:
    """Ask for values and slopes at ``w`` and a minorant of weight * f + <multipliers, c> with slopes shifted by v."""

    w: Array  # (D,)
    shift: Array  # (D,) v
    prior: Each  # (N,) q_i, or 0
    local: Each  # (N, p)
    shared: Array  # (p_c,)
    first: bool  # also what does not depend on v


@record
class Weighed:
    """A client's part."""

    constant: Sum  # (n,) of the minorant
    balance: Sum  # (n, D) its slope
    size: Sum  # (n, D) the sum of the sizes of what adds up to it
    spread: Sum  # (n,) and to the constant
    locked: Sum  # (1, D, D) the Hessian of rows whose slopes cannot move any further
    risk: Each | None  # (n,) f_i(w)
    loss: Each | None  # (n,) mean loss over all rows
    local: Each | None  # (n, p) c_i(w); -1 where it has none
    has: Each | None  # (n, p)
    shared: Sum | None  # (n, p_c)
    slope: Sum | None  # (n, D) of the Lagrangian without h and the server's part
    start: Sum | None  # (n, D) of f at w = 0
    hessian: Sum | None  # (1, D, D) of the Lagrangian


@record
class WeighingState:
    """The server's memory."""

    first: Weighed | None
    shift: Array
    left: float  # what the slopes should balance still, over what cancels
    bound: float
    rounds: int


@dataclass(frozen=True)
class Weighing:
    """Rounds with every client that evaluate a model and its multipliers, and prove a lower bound."""

    w: Array
    mu: Multipliers
    objective: bool = True  # False: of the constraints alone
    problem: Problem | None = None

    @property
    def on_client(self) -> dict:
        return {Weigh: self.weigh}

    @property
    def on_server(self) -> dict:
        return {Weighed: self.balance}

    def client_start(self, data: Block) -> None:
        return None

    def server_start(self, n_clients: int) -> tuple[WeighingState, Round]:
        state = WeighingState(None, np.zeros_like(self.w), math.inf, -math.inf, 0)
        return state, self._ask(state, n_clients)

    def _ask(self, state: WeighingState, n_clients: int) -> Round:
        prior = weighting(self._problem, self.mu, n_clients) * self.objective
        return Round(Weigh(self.w, state.shift, prior, self.mu.local, self.mu.shared, state.first is None))

    # -- clients --------------------------------------------------------------------------------------------------

    def weigh(self, memory: None, ask: Weigh, data: Block, rng: Streams) -> tuple[None, Weighed]:
        problem, at = self._problem, Point(self._problem, ask.w, data)
        shared = np.tile(ask.shared, (len(data.names), 1))
        terms = [(problem.local_constraint, ask.local), (problem.constraint.coupled, shared)]
        constant, balance, size, spread = minorant(at, ask.prior, terms, ask.shift)
        ended = locked(at, ask.prior, terms, ask.shift)
        if not ask.first:
            return memory, Weighed(constant, balance, size, spread, ended, *[None] * 8)
        zero = Point(problem, np.zeros_like(ask.w), data)
        pushed = [np.einsum("np,npd->nd", mu, stack.jacobian(at)) for stack, mu in terms]
        return memory, Weighed(
            constant,
            balance,
            size,
            spread,
            ended,
            risk=client_values(at),
            loss=self._mean_loss(at),
            local=problem.local_constraint.values(at),
            has=~np.isnan(problem.local_constraint.limits(data)),
            shared=problem.constraint.coupled.values(at),
            slope=ask.prior[:, None] * client_slopes(at) + sum(pushed),
            start=ask.prior[:, None] * client_slopes(zero),
            hessian=hessians(at, ask.prior, terms, together=True) if self.provable else None,
        )

    def _mean_loss(self, at: Point) -> Array:
        if isinstance(at.problem.loss, Quadratic):
            return client_values(at)
        return at.block.mean(at.problem.loss.value(at.prediction, at.block.y))

    # -- server ---------------------------------------------------------------------------------------------------

    @property
    def provable(self) -> bool:
        """Whether a lower bound can be proved: all convex, with conjugates."""
        problem, loss = self._problem, self._problem.loss
        known = isinstance(loss, Quadratic) or (loss.smooth and has_rank_coordinate(loss))
        glob, local = problem.constraint, problem.local_constraint
        parts = [part for stack in (local, glob.held, glob.coupled) for part in stack.parts]
        curved = all(getattr(part, "hessian", part) is not None for part in parts)
        convex = local.convex and glob.convex and curved
        return known and convex and hasattr(problem.regulariser, "conjugate")

    def balance(self, state: WeighingState, ids: Sequence[int], up: Weighed) -> tuple[WeighingState, Round | Done]:
        first = state.first or up
        state = replace(state, first=first, rounds=state.rounds + 1)
        done = Done(Outcome(Stop.OPTIMAL, "certified."))
        if not self.provable:
            return state, done
        held = self._problem.constraint.held
        here = self._problem.constraint.at(self._problem, self.w)
        constant, slope, size, spread = minorant(here, None, [(held, self.mu.server[None])], state.shift)
        g, scale = up.balance + slope[0], up.size + size[0]
        value, unbalanced, length = self._least(g, first)
        left = float((np.abs(unbalanced) / np.maximum(scale, 1e-300)).max(initial=0.0))
        constant = float(up.constant) + float(constant[0]) + value
        spread = float(up.spread) + float(spread[0]) + abs(value)
        if left <= ROUNDING or not self.objective:
            size = np.maximum(np.abs(self.w), np.abs(self.w + state.shift))
            far = max(float(scale @ size), spread) * (REACH if self.objective else FAR)
            bound = constant - left * far - FLOOR * spread
        else:
            bound = min(constant - float(np.linalg.norm(unbalanced)) * length, self._value(first))
        aim, free = self._aim(g, unbalanced)
        rest = float((np.abs(aim) / np.maximum(scale, 1e-300)).max(initial=0.0))
        stuck = rest > state.left / 2 if state.left <= ROUNDING else False
        state = replace(state, bound=max(state.bound, bound, self._known()), left=min(rest, state.left))
        if rest <= FLOOR or stuck or state.rounds >= BALANCING:
            return state, done
        assert first.hessian is not None
        curved = hessians(here, None, [(held, self.mu.server[None])], together=True)[0] + first.hessian - up.locked
        own = np.arange(len(self._problem.predictor.split(self.w)[0]))
        curved[own, own] += self.objective * ridge(self._problem.regulariser)  # it takes up what moves its coefficients
        shift = state.shift.copy()
        shift[free] -= pseudosolve(curved[np.ix_(free, free)], aim[free])
        state = replace(state, shift=shift)
        return state, self._ask(state, len(ids))

    def _aim(self, g: Array, unbalanced: Array) -> tuple[Array, NDArray[np.intp]]:
        """What the slopes should balance still, and the coefficients that can move for it.

        Beside what is unbalanced what h takes up at a price of first order: where w is at no kink and no bound.
        """
        h, own = self._problem.regulariser, self._problem.predictor.split(self.w)[0]
        free = np.ones(len(g), bool)
        if isinstance(h, Bounds):
            free[: len(own)] = (own > h.lower) & (own < h.upper)
        elif self.objective and isinstance(h, L1 | ElasticNet):
            free[: len(own)] = own != 0
        else:
            return unbalanced, np.arange(len(g))
        off = -off_regulariser(self._problem, self.w, -g)
        aim = np.where(unbalanced != 0, unbalanced, np.where(free, off, 0.0))
        return aim, np.flatnonzero(free | (aim != 0))

    def _least(self, g: Array, first: Weighed) -> tuple[float, Array, float]:
        """min of <g, w> + h(w): its value, the part of g that h does not balance, and a bound on the model's length."""
        problem, h = self._problem, self._problem.regulariser
        if not self.objective and not isinstance(h, Bounds):
            h = Zero()
        own, free = problem.predictor.split(g)
        s = in_domain(h, -own)
        unbalanced = np.append(own + s, free) if problem.predictor.intercept else own + s
        length = math.inf
        if self.objective and not isinstance(problem.loss, Quadratic) and not problem.predictor.intercept:
            length = region(problem, self._value(first), len(own), None).length
        return -float(h.conjugate(s)), unbalanced, length

    def _value(self, first: Weighed) -> float:
        """The objective at w. A bound on models of at most this value says nothing of the others: they are above."""
        return float(self._problem.over_clients.value(first.risk)) + self._problem.penalty(self.w)

    def _known(self) -> float:
        """Losses, and so the objective, are nonnegative."""
        return 0.0 if self.objective and not isinstance(self._problem.loss, Quadratic) else -math.inf

    def report(self, state: WeighingState) -> dict:
        return {}

    @property
    def _problem(self) -> Problem:
        if self.problem is None:
            raise ValueError("Weighing needs problem=; use certify(problem, federation, w, multipliers).")
        return self.problem


def _normed(mu: Multipliers, least: float) -> Multipliers:
    """Multipliers whose sizes sum to one: then their combination of constraints is at most the largest violation.

    Those below ``least`` of the largest are left out: where the large ones have no curvature nothing balances them.
    """
    largest = max(float(np.abs(part).max(initial=0.0)) for part in (mu.server, mu.shared, mu.local))
    parts = [np.where(np.abs(part) > least * largest, part, 0.0) for part in (mu.server, mu.shared, mu.local)]
    total = sum(float(np.abs(part).sum()) for part in parts)
    return mu if total == 0 else Multipliers(*(part / total for part in parts))


def _check(problem: Problem, fed: Any, w: Array, mu: Multipliers, like: Multipliers) -> None:
    D = problem.predictor.dimension(fed.n_features)
    if w.shape != (D,) or not np.isfinite(w).all():
        raise ValueError(f"w must be {D} finite numbers for this problem and these data, got shape {w.shape}.")
    for name in ("server", "shared", "local"):
        given, needed = getattr(mu, name), getattr(like, name)
        if given.shape != needed.shape or not np.isfinite(given).all():
            raise ValueError(f"multipliers.{name} must be finite with shape {needed.shape}, got {given.shape}.")
    if mu.weights is not None and (mu.weights.shape != (fed.n_clients,) or not np.isfinite(mu.weights).all()):
        raise ValueError(f"multipliers.weights must be {fed.n_clients} finite numbers, got shape {mu.weights.shape}.")


def certify_constrained(
    problem: Problem, fed: Any, w: Array, mu: Multipliers | None, engine: Any = None, infeasible: bool = False
) -> tuple[Certificate, list[Any]]:
    """The certificate of a model under constraints, and the engine's runs.

    Parameters
    ----------
    problem, fed : as stated by the user
    w : (D,) the model
    mu : multipliers, or None: zeros
    infeasible : also try to prove by mu that no model meets all constraints

    Raises
    ------
    ValueError
        w or multipliers that are not finite or do not fit the problem
    """
    concrete, data = problem.at(fed)
    w = np.asarray(w, float)
    none = no_multipliers(concrete, fed.n_clients)
    mu = none if mu is None else mu
    _check(concrete, data, w, mu, none)
    mu = signed(concrete, mu)
    if engine is None:
        from quorate.engines.inprocess import InProcess

        engine = InProcess()
    runs = [engine.run(Weighing(w, none if infeasible else mu, True, concrete), data)]
    proof = None
    if infeasible:
        for least in NEGLIGIBLE:
            runs.append(engine.run(Weighing(w, _normed(mu, least), False, concrete), data))
            proof = max(proof or -math.inf, runs[-1].state.bound)
            if proof > 0:
                break
    if any(run.outcome.stop is Stop.INTERRUPTED for run in runs):  # half a proof is none
        raise KeyboardInterrupt
    return conclude_constrained(concrete, w, none if infeasible else mu, runs[0].state, proof), runs


def conclude_constrained(
    problem: Problem, w: Array, mu: Multipliers, state: WeighingState, proof: float | None
) -> Certificate:
    """The certificate from what the clients answered; pure arithmetic."""
    up, glob = state.first, problem.constraint
    assert up is not None
    assert up.risk is not None
    assert up.loss is not None
    assert up.local is not None
    assert up.shared is not None
    assert up.has is not None
    assert up.start is not None
    weights = weighting(problem, mu, len(up.risk))
    value = problem.over_clients.value(up.risk) + problem.penalty(w)
    here = glob.at(problem, w)
    held = glob.held.values(here)[0]
    slope = up.slope + mu.server @ glob.held.jacobian(here)[0]
    bound = state.bound if math.isfinite(state.bound) and proof is None else None
    gap = None if bound is None else value - bound
    nothing = np.zeros(len(weights))
    local = np.where(up.has, up.local, np.nan)
    short = np.atleast_1d(problem.over_clients.value(up.risk) - weights @ up.risk)  # of the worst weighting
    products = [short, mu.local * np.nan_to_num(local), mu.shared * up.shared, mu.server * held]
    values = ((problem.local_constraint, up.local), (glob.coupled, up.shared), (glob.held, held))
    return Certificate(
        value=value,
        bound=bound,
        gap=gap,
        relative_gap=None if gap is None or bound is None else gap / max(abs(value), abs(bound), 1e-12),
        weights=weights,
        client_risks=up.risk,
        client_losses=up.loss,
        client_levels=nothing,
        client_labels=nothing,
        client_features=nothing,
        feasibility=max(excess(stack, value) for stack, value in values)
        + outside(problem, problem.predictor.split(w)[0]),
        stationarity=float(np.abs(off_regulariser(problem, w, -slope)).max(initial=0.0)),
        complementarity=max(float(np.abs(part).max(initial=0.0)) for part in products),
        constraint_values=local,
        server_values=held,
        shared_values=up.shared,
        gradient_scale=float(np.abs(up.start).max(initial=0.0)),
        infeasible=proof if proof is not None and proof > 0 else None,
    )
