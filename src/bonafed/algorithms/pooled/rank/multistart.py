"""Nonconvex problems in ``RankADMM``: starts one after the other, their polish, and the end.

Every start runs Algorithm 1 while rho grows, until z and D w - b are one; the polish of
``rank_starts`` takes over where it applies. The best model of all starts ends with plain steps of
the polish, or, where there is none, with iterations at a constant rho, so that the multipliers
handed to the certificate are its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from bonafed.algorithms.pooled.rank.continuation import ACCURATE, MOST, Start, polish, starts_of
from bonafed.algorithms.pooled.rank.iteration import (
    ADMM,
    CLOSING,
    POLISH,
    RankMemory,
    continued,
    first,
    iterate,
    iterate_of,
    kept,
    number,
    size,
)
from bonafed.algorithms.pooled.rank.penalties import Balanced, Growing, Penalty
from bonafed.algorithms.pooled.rank.subproblems import RankTask
from bonafed.algorithms.pooled.single_client import EXHAUSTED, STATIONARY
from bonafed.arrays import Array, Streams

CLOSING_STEPS = 20
SETTLING = (3.0, 10.0, 30.0)  # constant rho, times n
SPLIT = 1e-5  # relative ||z - t|| at which a start goes over to its polish
SLACK = 1e-6  # relative, of an objective whose multipliers have settled
HOPE = 20  # steps like the last one


@dataclass(frozen=True)
class Exploration:
    """A round of ``RankADMM`` on a problem that is not convex, which tries several starts.

    ``method`` is the ``RankADMM``; starts without spread begin at ``first_model``.
    """

    method: Any
    task: RankTask
    first_model: Array
    rng: Streams

    def step(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take iterations of one start, or a step of its polish; the best model is stored."""
        if now.stage == POLISH:
            return self._polish(now)
        if now.stage == CLOSING:
            return self._close(now)
        if self.starts[int(now.start)].penalty is None and self._polishable:
            value = self.task.objective(now.w)
            plain = kept(now, now.w, value, self.task.subgradient(now.t), now.t)
            return replace(plain, stage=number(POLISH)), 0.0
        penalty, it = self._penalty(int(now.start)), iterate_of(now)
        for _ in range(5):
            for _ in range(self.method.check):
                it, _ = iterate(self.task, penalty, it, self.method.r, 1.0)
            now = kept(
                continued(now, it, self.method.check),
                it.w,
                self.task.objective(it.w, it.t),
                -it.dual,
                it.z,
            )
        polishable = self._polishable
        met = (
            it.primal <= SPLIT
            if polishable
            else max(it.primal, it.change) <= self.method.tol_residual
        )
        if not met and it.k < self.method.max_iterations:
            return now, 0.0
        return (
            (replace(now, stage=number(POLISH), w=now.own), 0.0) if polishable else self._next(now)
        )

    def _polish(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take a difference-of-convex step; the start ends when it gains nothing more."""
        model, before = polish(self.task, now.w), float(now.found)
        if model is None:
            return self._next(now)
        now = replace(now, steps=now.steps + model.steps, polished=now.polished + 1)
        if model.value < before:
            now = kept(replace(now, w=model.w), model.w, model.value, model.rows, model.split)
        gain = before - model.value
        # another start is further ahead than this one can come
        hopeless = model.value - float(now.value) > HOPE * gain
        done = gain <= ACCURATE * abs(before) or hopeless or now.polished >= MOST
        return self._next(now) if done else (now, 0.0)

    def _close(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take a plain step of the polish from the best model, or ``_settle``.

        So the multipliers and z belong to that model.
        """
        if not self._polishable:
            return self._settle(now)
        model, before = polish(self.task, now.best, further=False), float(now.value)
        now = replace(now, polished=now.polished + 1)
        if model is None or model.value > before + 1e-12 * abs(before):
            return now, STATIONARY
        off = size(model.split - self.task.rank_coordinates(model.w)) / max(
            size(model.split), 1e-300
        )
        moved = size(model.w - now.best) / max(size(model.w), 1e-300)
        now = replace(
            now, best=model.w, value=number(model.value), rows=model.rows, split=model.split
        )
        now = replace(now, primal=number(off), change=number(moved))
        done = before - model.value <= 1e-12 * abs(before) or now.polished >= CLOSING_STEPS
        return now, STATIONARY if done else 0.0

    def _settle(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take iterations at a constant rho, during which the multipliers settle."""
        w, n = now.best, len(now.t)
        penalty = Growing(SETTLING[int(now.polished)] / n, 1.0)
        it = first(self.task, penalty, w)
        start = self.task.subgradient(it.t)
        if now.polished == 0:  # until something better is found
            now = replace(now, rows=start, split=it.t, primal=number(0.0), change=number(math.inf))
        it = it._replace(dual=-start)
        for _ in range(50 * self.method.check):
            it, _ = iterate(self.task, penalty, it, self.method.r, 1.0)
        value, residual = self.task.objective(it.w, it.t), max(it.primal, it.change)
        better = residual < max(float(now.primal), float(now.change))
        if value <= now.value + SLACK * abs(now.value) and better:
            now = replace(now, best=it.w, value=number(value), rows=-it.dual, split=it.z)
            now = replace(now, primal=number(it.primal), change=number(it.change))
        now = replace(now, polished=now.polished + 1, steps=now.steps + 50 * self.method.check)
        if now.polished < len(SETTLING):
            return now, 0.0
        return now, STATIONARY if math.isfinite(float(now.change)) else EXHAUSTED

    @property
    def _polishable(self) -> bool:
        return (
            self.method.polish and self.task.sigma is not None and self.task.separable is not None
        )

    def _next(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Write this start's line of the table and begin the next start."""
        at, table = int(now.start), now.table.copy()
        table[at] = float(now.k), float(now.found), float(now.polished)
        now = replace(
            now, table=table, start=number(at + 1), found=number(math.inf), polished=number(0)
        )
        if at + 1 >= len(self.starts):
            return replace(now, stage=number(CLOSING)), 0.0
        w = self.first_model
        if self.starts[at + 1].spread:
            w = w + self.starts[at + 1].spread * self.rng(0).standard_normal(len(w))
        return (
            continued(
                replace(now, stage=number(ADMM)), first(self.task, self._penalty(at + 1), w), 0
            ),
            0.0,
        )

    def _penalty(self, at: int) -> Penalty:
        return self.method.penalty or self.starts[at].penalty or Balanced()

    @property
    def starts(self) -> tuple[Start, ...]:
        """The method's, or the built-in ones for this kind of problem."""
        return starts_of(self.method.starts, self.task)
