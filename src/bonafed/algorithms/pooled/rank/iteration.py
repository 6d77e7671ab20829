"""Algorithm 1 of Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*, the
client's memory in it, and the base of the methods that use it.

    L_rho(w, z; lambda) = Omega(z) + <lambda, z - t> + rho / 2 ||z - t||^2 + g(w),    t = D w - b

Line numbers are theirs. Beyond the box: over-relaxation, and rho may change with every iteration.
With gamma > 0 the w-step has the Moreau envelope of g in place of g: their section 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from bonafed.algorithms.method import Answer, Concluded, with_start
from bonafed.algorithms.pooled.rank.penalties import Penalty, Progress
from bonafed.algorithms.pooled.rank.subproblems import RANK_REQUIREMENTS, RankTask
from bonafed.algorithms.pooled.single_client import (
    OwnerState,
    PooledMethod,
)
from bonafed.algorithms.requirements import Requirements
from bonafed.algorithms.settings import check_least
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.rounds import Conclude, record


class Iterate(NamedTuple):
    """The iterate of the algorithm, from which the next iteration starts."""

    w: Array  # (D,)
    t: Array  # (n,) D w - b
    z: Array  # (n,)
    dual: Array  # (n,) lambda
    rho: float
    patience: float  # the schedule's memory
    k: int
    primal: float  # ||z - t||, relative to z and t
    change: float  # rho ||D (w - w_before)||, relative to lambda


def first(task: RankTask, penalty: Penalty, w: Array) -> Iterate:
    """The start at a model: z = D w - b and no multipliers."""
    t = task.rank_coordinates(w)
    return Iterate(w, t, t, np.zeros_like(t), penalty.first(len(t)), 0.0, 0, 1.0, 1.0)


def iterate(
    task: RankTask, penalty: Penalty, at: Iterate, r: float, relaxation: float, gamma: float = 0.0
) -> tuple[Iterate, Array]:
    """The next iterate, and the multipliers rho (m - z) of its z-step, a subgradient of Omega."""
    m = at.t - at.dual / at.rho
    z = task.z_step(m, at.rho)  # line 2
    ahead = relaxation * z + (1 - relaxation) * at.t  # z itself with relaxation = 1
    target = ahead + task.design.rows.shift + at.dual / at.rho
    w = task.w_step(target, at.rho, at.w, r, _accuracy(at), gamma)  # line 3
    t = task.rank_coordinates(w)
    dual = at.dual + at.rho * (ahead - t)  # line 4
    gap = float(np.linalg.norm(z - t))
    primal = gap / max(float(np.linalg.norm(z)), float(np.linalg.norm(t)), 1e-300)
    change = at.rho * float(np.linalg.norm(t - at.t)) / max(float(np.linalg.norm(dual)), 1e-300)
    rho, patience = penalty.after(Progress(at.k + 1, at.rho, primal, change, gap, at.patience))
    return Iterate(w, t, z, dual, rho, patience, at.k + 1, primal, change), at.rho * (m - z)


def _accuracy(at: Iterate) -> float:
    """The accuracy of an iterative w-step, in units of its gradient: well below the residuals."""
    return max(
        1e-3 * min(at.primal, at.change, 1.0) * float(np.abs(at.dual).max(initial=0.0)), 1e-14
    )


ADMM, NEWTON, POLISH, CLOSING = 0.0, 1.0, 2.0, 3.0  # stages


@record
class IterateMemory:
    """The client's memory in both ADMMs; every array has a leading axis for the one client."""

    w: Annotated[Array, Form("n, D")]  # the iterate: see ``Iterate``
    t: Annotated[Array, Form("n, rows")]
    z: Annotated[Array, Form("n, rows")]
    dual: Annotated[Array, Form("n, rows")]
    rho: Annotated[Array, Form("n")]
    patience: Annotated[Array, Form("n")]
    k: Annotated[Array, Form("n")]  # iterations of this start
    primal: Annotated[Array, Form("n", infinite=True, nan=True)]
    change: Annotated[Array, Form("n", infinite=True, nan=True)]
    best: Annotated[Array, Form("n, D")]  # the model of least objective
    value: Annotated[Array, Form("n", infinite=True)]
    bound: Annotated[Array, Form("n", infinite=True)]
    # multipliers: of the best bound, or beside the best model where there is none
    rows: Annotated[Array, Form("n, rows")]
    split: Annotated[Array, Form("n, rows")]  # z beside them


@record
class RankMemory(IterateMemory):
    """The client's memory in ``RankADMM``."""

    stage: Annotated[Array, Form("n")]
    step: Annotated[Array, Form("n", infinite=True)]  # length of the next proximal step
    gaps: Annotated[Array, Form("n, 4", infinite=True)]  # relative gaps of the last rounds
    idle: Annotated[Array, Form("n")]  # rounds without progress
    outer: Annotated[Array, Form("n")]  # Newton's outer steps so far
    # iterations before which Newton steps are not tried again
    wait: Annotated[Array, Form("n", infinite=True)]
    steps: Annotated[Array, Form("n")]  # iterations in all
    start: Annotated[Array, Form("n")]  # number of the start
    own: Annotated[Array, Form("n, D")]  # the best model of this start
    found: Annotated[Array, Form("n", infinite=True)]  # its objective
    polished: Annotated[Array, Form("n")]  # steps of the polish of this start
    # of every start: iterations, objective, steps of the polish
    table: Annotated[Array, Form("n, S, 3", infinite=True, nan=True)]


def number(value: float | Array) -> Array:
    """A number in the form in which a memory keeps it."""
    return np.asarray(float(value))


def size(v: Array) -> float:
    """The norm ||v||_2."""
    return float(np.linalg.norm(v))


def relative_gap(now: RankMemory) -> float:
    """The proven relative gap; inf where none is proved."""
    return float(now.value - now.bound) / max(abs(float(now.value)), abs(float(now.bound)), 1e-12)


def iterate_of(now: IterateMemory) -> Iterate:
    """The iterate of Algorithm 1 in a memory."""
    numbers = (
        float(now.rho),
        float(now.patience),
        int(now.k),
        float(now.primal),
        float(now.change),
    )
    return Iterate(now.w, now.t, now.z, now.dual, *numbers)


def continued(now: RankMemory, it: Iterate, steps: int) -> RankMemory:
    """The memory after these iterations."""
    return replace(
        now,
        **{name: np.asarray(value, float) for name, value in it._asdict().items()},
        steps=now.steps + steps,
    )


def kept(now: RankMemory, w: Array, value: float, rows: Array, split: Array) -> RankMemory:
    """The memory with the best models of this start and of all starts."""
    if value < now.found:
        now = replace(now, own=w, found=number(value))
    return (
        replace(now, best=w, value=number(value), rows=rows, split=split)
        if value <= now.value
        else now
    )


class RankMethod(PooledMethod):
    """The base of ``RankADMM`` and ``SmoothedRankADMM``."""

    requirements: ClassVar[Requirements] = RANK_REQUIREMENTS
    penalty: Penalty | None
    r: float
    relaxation: float
    check: int
    start: Array | None

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        check_least(self, "r", least=0)
        if not 1 <= self.relaxation <= 1.9:
            raise ValueError(f"relaxation must be in [1, 1.9], got {self.relaxation!r}.")
        check_least(self, "check")
        if self.check != int(self.check):
            raise ValueError(f"check must be a whole number, got {self.check!r}.")
        if self.penalty is not None and not hasattr(self.penalty, "after"):
            raise ValueError(
                f"penalty must be a schedule such as Growing(1e-5, 1.2), got {self.penalty!r}."
            )

    @property
    def on_client(self) -> dict:
        return super().on_client | {Conclude: self.conclude}

    def conclude(
        self, memory: Any, ask: Conclude, data: Block, rng: Streams
    ) -> tuple[Any, Concluded]:
        """Send the multipliers of the rows and z, of which the certificate is made, and of a
        nonconvex problem the starts.
        """
        starts = getattr(memory, "table", None)
        return memory, Concluded(rows=memory.rows, split=memory.split, starts=starts)

    def answer(self, state: OwnerState, concluded: Concluded | None = None) -> Answer:
        """The model, and once the client has concluded the multipliers of its rows with z beside
        them.
        """
        if concluded is None or concluded.rows is None or concluded.split is None:
            return Answer(state.w)
        return Answer(state.w, row_duals=(concluded.rows[0], concluded.split[0]))

    def _first_model(self, task: RankTask, data: Block) -> Array:
        return task.design.inward(with_start(self._problem, self.start, data.n_features))
