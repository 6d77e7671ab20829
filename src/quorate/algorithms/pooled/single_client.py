"""What methods on pooled rows share: a federated algorithm with one client that does all work.

The server asks the client to go on (``Advance``) and receives its standing (``Advanced``). It stops
at a proven gap, at a cap, or when the client reports that no further progress is possible. So every
pooled method has the engines' checkpoints, progress, interruption and history. A method is a frozen
dataclass with

    client_start(data) -> memory               advance(memory, ask, data, rng) -> (memory, Advanced)

and the four server functions below. ``standing`` fills ``Advanced`` for a model: its exact value,
and for convex problems the bound that multipliers of its rows prove.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from quorate.arrays import Array, Block
from quorate.problem.lower_bounds import NOTHING, Minorant, Surveyed, lower_bound, region, survey
from quorate.problem.problem import Problem
from quorate.problem.rank_coordinates import is_convex, is_provable, row_minorant
from quorate.rounds import Done, Each, Outcome, Round, Stop, combine, record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Memory = TypeVar("Memory", bound="DataclassInstance")

EXHAUSTED, STATIONARY = 1.0, 2.0  # why the client has finished


@record
class Advance:
    """Go on; ``turn`` counts from 0."""

    turn: int


@record
class Advanced:
    """The client's standing; arrays have a leading axis for the one client."""

    w: Each  # (1, D) best model so far
    value: Each  # (1,) its objective
    bound: Each  # (1,) best proven lower bound, -inf without one
    residual: Each  # (1,) the method's residual, 0 where it has none
    steps: Each  # (1,) iterations so far
    # (1,) EXHAUSTED: no further progress is possible; STATIONARY: within tolerance, unproven; or 0
    finished: Each


@record
class OwnerState:
    """The server's memory."""

    w: Array
    value: float
    bound: float
    residual: float
    steps: int
    rounds: int


class Judged(Protocol):
    """A method on pooled rows, with the settings that decide when it ends."""

    @property
    def problem(self) -> Any: ...

    @property
    def tol(self) -> float: ...

    @property
    def atol(self) -> float: ...

    @property
    def max_rounds(self) -> int: ...


class Advancing(Judged, Protocol):
    """A method on pooled rows whose client answers ``Advance``."""

    @property
    def advance(self) -> Callable[..., tuple[Any, Advanced]]: ...


def begin(n_clients: int) -> tuple[OwnerState, Round]:
    """The first request.

    Raises
    ------
    ValueError
        for more than one client
    """
    if n_clients != 1:
        raise ValueError(
            f"this method needs all rows in one place, got {n_clients} clients: use fed.pooled(),"
            " or Bundle() with a convex risk inside every client."
        )
    return OwnerState(np.zeros(0), math.inf, -math.inf, 0.0, 0, 0), Round(Advance(0))


def judge(method: Judged, state: OwnerState, up: Advanced) -> tuple[OwnerState, Round | Done]:
    """Stop, or ask for the next round."""
    state = OwnerState(
        up.w[0],
        float(up.value[0]),
        float(up.bound[0]),
        float(up.residual[0]),
        int(up.steps[0]),
        state.rounds + 1,
    )
    outcome = _outcome(method, state, float(up.finished[0]))
    return state, Round(Advance(state.rounds)) if outcome is None else Done(outcome)


def _outcome(method: Judged, state: OwnerState, finished: float) -> Outcome | None:
    gap, scale = state.value - state.bound, max(abs(state.value), abs(state.bound), 1e-12)
    proven = math.isfinite(gap)
    if proven and gap <= max(method.atol, method.tol * scale):
        text = f"gap {gap:.2e} proven after {state.steps} iterations (tol {method.tol:g})."
        return Outcome(Stop.OPTIMAL, text)
    left = (
        f"proven gap {gap:.2e}, relative {gap / scale:.2e}"
        if proven
        else f"residual {state.residual:.2e}, no bound"
    )
    if finished == STATIONARY and is_convex(method.problem):
        return Outcome(
            Stop.UNPROVEN,
            f"stationary within tolerance after {state.steps} iterations (residual"
            f" {state.residual:.2e}); no bound is provable without a coercive regulariser of known"
            " conjugate, such as L2(1e-3).",
        )
    if finished == STATIONARY:
        return Outcome(
            Stop.UNPROVEN,
            f"came to rest after {state.steps} iterations; the problem is not convex, so no bound"
            " says how far the optimum may be: try more starts.",
        )
    if finished and not is_convex(method.problem) and math.isinf(state.residual):
        return Outcome(
            Stop.STALLED,
            f"the problem is not convex, and the best model after {state.steps} iterations did not"
            " settle: it need not be stationary. Try more or other starts, or another"
            " regulariser.",
        )
    if finished:
        return Outcome(
            Stop.STALLED,
            f"no further progress within rounding after {state.steps} iterations; {left}.",
        )
    if state.rounds >= method.max_rounds:
        return Outcome(
            Stop.MAX_ROUNDS,
            f"stopped at max_rounds = {method.max_rounds} ({state.steps} iterations); {left}: raise"
            " max_rounds or tol.",
        )
    return None


def report(state: OwnerState) -> dict[str, float]:
    """Numbers a person would plot."""
    bounded = math.isfinite(state.bound)
    return {
        "objective": state.value,
        "bound": state.bound,
        "gap": state.value - state.bound if bounded else math.inf,
        "residual": state.residual,
        "iterations": state.steps,
    }


def proven(problem: Problem, data: Block, alpha: Array, value: float) -> float:
    """The lower bound that multipliers alpha (n,) of the rows prove for the optimum; or -inf.

    It needs the value of one model.
    """
    if value <= NOTHING:
        return 0.0  # no loss is negative
    if not is_provable(problem) or not math.isfinite(value):
        return -math.inf
    return implied(problem, data, *row_minorant(problem, alpha, data), value)


def implied(problem: Problem, data: Block, constant: float, gradient: Array, value: float) -> float:
    """The lower bound that  risk(w) >= constant + <gradient, w>  proves for the optimum; or -inf.

    It needs the value of one model.
    """
    if not math.isfinite(constant):
        return -math.inf
    n_features = len(problem.predictor.split(gradient)[0])
    seen = (
        combine(Surveyed, [((0,), survey(data, np.ones(1)))])
        if problem.predictor.intercept
        else None
    )
    where = region(problem, value, n_features, seen)
    return lower_bound(problem, Minorant(constant, gradient, np.zeros(1), np.ones(1)), where)[0]


def advanced(
    w: Array,
    value: float,
    bound: float,
    steps: int,
    *,
    residual: float = 0.0,
    finished: float = 0.0,
) -> Advanced:
    """The upload of the one client."""
    one = np.ones(1)
    return Advanced(w[None], value * one, bound * one, residual * one, steps * one, finished * one)


def with_start(problem: Problem, start: Array | None, n_features: int) -> Array:
    """The first model: ``start``, or the problem's default."""
    return problem.model_start(n_features) if start is None else np.array(start, float)


def opened(memory: Memory) -> Memory:
    """The one client's memory without its leading axis."""
    return replace(memory, **{f.name: getattr(memory, f.name)[0] for f in fields(memory)})


def closed(memory: Memory) -> Memory:
    """The memory with its leading axis again."""
    return replace(
        memory, **{f.name: np.asarray(getattr(memory, f.name), float)[None] for f in fields(memory)}
    )


def handlers(method: Advancing) -> tuple[dict, dict]:
    """The ``on_client`` and ``on_server`` of a method."""
    return {Advance: method.advance}, {Advanced: lambda state, ids, up: judge(method, state, up)}


__all__ = [
    "Advance",
    "Advanced",
    "OwnerState",
    "advanced",
    "begin",
    "handlers",
    "implied",
    "judge",
    "proven",
    "report",
    "with_start",
]
