"""The client's memory in the ADMMs for risks by rank, and its updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.algorithms.pooled.rank.iteration import Iterate
from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.rounds import record

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
