"""The client's memory in the ADMMs for risks by rank, and its updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quorate.algorithms.pooled.rank.iteration import Iterate
from quorate.arrays import Array
from quorate.rounds import record

ADMM, NEWTON, POLISH, CLOSING = 0.0, 1.0, 2.0, 3.0  # stages


@record
class IterateMemory:
    """The client's memory in both ADMMs; every array has a leading axis for the one client."""

    w: Array  # the iterate: see ``Iterate``
    t: Array
    z: Array
    dual: Array
    rho: Array
    patience: Array
    k: Array  # iterations of this start
    primal: Array
    change: Array
    best: Array  # (D,) the model of least objective
    value: Array
    bound: Array
    rows: Array  # (n,) multipliers: of the best bound, or beside the best model where there is none
    split: Array  # (n,) z beside them


@record
class RankMemory(IterateMemory):
    """The client's memory in ``RankADMM``."""

    stage: Array
    step: Array  # length of the next proximal step
    gaps: Array  # (4,) relative gaps of the last rounds
    idle: Array  # rounds without progress
    outer: Array  # Newton's outer steps so far
    wait: Array  # iterations before which Newton steps are not tried again
    steps: Array  # iterations in all
    start: Array  # number of the start
    own: Array  # (D,) the best model of this start
    found: Array  # its objective
    polished: Array  # steps of the polish of this start
    table: Array  # (S, 3) of every start: iterations, objective, steps of the polish


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
