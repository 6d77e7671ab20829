"""Methods on pooled rows as federated algorithms with one client, which does all the work.

The server asks the client to go on (``Advance``) and receives its standing (``Advanced``). It stops
at a proven gap, at a cap, or when the client reports that no further progress is possible. So every
pooled method has the engines' checkpoints, progress, interruption and history.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np

from bonafed.algorithms.method import TINY, Answer, Concluded, Ids, Method, Next, Progress
from bonafed.arrays import Array, Block
from bonafed.codec import Extended, Form
from bonafed.problem.claims import Claim, Number, Whole
from bonafed.problem.lower_bounds import NOTHING, Minorant, Surveyed, lower_bound, region, survey
from bonafed.problem.plausible import Claims
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import is_provable, row_minorant
from bonafed.rounds import Done, Each, Round, Stop, combine, record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Memory = TypeVar("Memory", bound="DataclassInstance")

EXHAUSTED, STATIONARY, CAPPED = 1.0, 2.0, 3.0  # why the client has finished


@record
class Advance:
    """Ask the client to go on; ``turn`` counts from 0."""

    turn: Annotated[int, Form(rounds=0)]


@record
class Advanced:
    """The client's best model and its quality; arrays have a leading axis for the one client."""

    w: Each  # (1, D) best model so far
    value: Each  # (1,) its objective
    # (1,) best proven lower bound, -inf without one
    bound: Annotated[Each, Form(infinite=True)]
    residual: Each  # (1,) the method's residual, 0 where it has none
    steps: Each  # (1,) iterations so far
    # (1,) EXHAUSTED: no further progress is possible; STATIONARY: within tolerance, unproven;
    # CAPPED: at the method's max_iterations; or 0
    finished: Each


@record
class OwnerState:
    """The server's state."""

    w: Annotated[Array, Form("D")]
    value: Extended
    bound: Extended
    residual: Extended
    steps: int
    rounds: Annotated[int, Form(rounds=0)]


class PooledMethod(Method):
    """The base of a method on pooled rows: it has one client, which does all the work.

    A subclass defines ``client_start`` and ``advance``, and has the fields ``tol``, ``atol`` and
    ``max_rounds``, which decide when it ends.
    """

    tol: float
    atol: float
    max_rounds: int
    advance: Callable[..., tuple[Any, Advanced]]  # (memory, ask, data, rng): the client's step

    @property
    def on_client(self) -> dict:
        return {Advance: self.advance}

    @property
    def on_server(self) -> dict:
        return {Advanced: self.judge}

    @property
    def claims(self) -> Claims:
        return {Advanced: self._said}

    def _said(self, who: int, ask: Advance, up: Advanced) -> Iterator[Claim]:
        """What a standing claims."""
        yield Number("an objective", up.value)
        yield Number("a bound", up.bound, -math.inf, up.value)
        yield Number("a residual", up.residual)
        yield Whole("a number of iterations", up.steps)

    def doubts(self, told: Any, who: int, message: Any, upload: Any) -> tuple[Any, str]:
        """As of any method but that ``grid`` may be a setting here."""
        return self._weighed({}, self.claims, told, who, message, upload)

    def server_start(self, n_clients: int) -> tuple[OwnerState, Round]:
        """The first request; ``ValueError`` for more than one client."""
        if n_clients != 1:
            raise ValueError(
                f"this method needs all rows in one place, got {n_clients} clients: use"
                " fed.pooled(), or Bundle() with a convex risk inside every client."
            )
        return OwnerState(np.zeros(0), math.inf, -math.inf, 0.0, 0, 0), Round(Advance(0))

    def judge(self, state: OwnerState, ids: Ids, up: Advanced) -> Next[OwnerState]:
        """Stop, or ask for the next round."""
        numbers = float(up.value[0]), float(up.bound[0]), float(up.residual[0]), int(up.steps[0])
        state = OwnerState(up.w[0], *numbers, state.rounds + 1)
        stop = _stop(self, state, float(up.finished[0]))
        return state, Round(Advance(state.rounds)) if stop is None else Done(stop)

    def report(self, state: OwnerState) -> dict[str, float]:
        """Objective, bound, gap and residual, as numbers to plot."""
        value, bound = state.value, state.bound
        numbers = {"objective": value, "bound": bound, "gap": value - bound}
        return numbers | {"residual": state.residual, "iterations": state.steps}

    def answer(self, state: OwnerState, concluded: Concluded | None = None) -> Answer:
        """The best model."""
        return Answer(state.w)


def _stop(method: PooledMethod, state: OwnerState, finished: float) -> Stop | None:
    numbers = state.value, state.bound, method.tol, method.atol
    stop = Progress(*numbers, state.rounds, method.max_rounds, least=TINY).stop
    if stop is Stop.OPTIMAL or not finished:
        return stop
    if not method.concrete.convex and math.isinf(state.residual) and finished != STATIONARY:
        return Stop.STALLED  # the best model did not settle: it need not be stationary
    return {STATIONARY: Stop.UNPROVEN, CAPPED: Stop.MAX_ROUNDS}.get(finished, Stop.STALLED)


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
    model, one = problem.predictor, np.ones(1)
    seen = combine(Surveyed, [((0,), survey(data, one))]) if model.intercept else None
    where = region(problem, value, len(model.split(gradient)[0]), seen)
    return lower_bound(problem, Minorant(constant, gradient, np.zeros(1), one), where)[0]


def advanced(
    w: Array, value: float, bound: float, steps: int, residual: float = 0.0, finished: float = 0.0
) -> Advanced:
    """The upload of the one client."""
    one = np.ones(1)
    return Advanced(w[None], value * one, bound * one, residual * one, steps * one, finished * one)


def opened(memory: Memory) -> Memory:
    """The one client's memory without its leading axis."""
    return replace(memory, **{f.name: getattr(memory, f.name)[0] for f in fields(memory)})


def closed(memory: Memory) -> Memory:
    """The memory with its leading axis again."""
    values = {f.name: getattr(memory, f.name) for f in fields(memory)}
    return replace(memory, **{name: np.asarray(v, float)[None] for name, v in values.items()})
