"""The master's half of ASPIRE-EASE: one iteration, and the measurement of its progress.

    z      <- P(z - eta_z (sum_j phi_j + kappa sum_j (z - w_j)))                                (13)
    h      <- P(h - eta_h (1 - sum_l lambda_l))                                                 (14)
    lambda <- P(lambda + rho_1 (p_l'f - h - c_1 lambda_l))                                      (15)
    phi_j  <- P(phi_j + rho_2 (z - w_j - c_2 phi_j)),    j in Q                                 (16)
    A  <- A and p = argmax_P p'f where p'f > max_l p_l'f, without those whose lambda is 0  (18)-(21)

A plane is stored as its vertex p_l = pbar + a_l: pbar cancels everywhere. The master stores every
worker's w_j and phi_j, so that an answer changes two rows and two sums, whatever N; about every N
answers the sums are computed anew and the stationarity gap is measured. The arrays of the state are
overwritten.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Form, record
from bonafed.papers.aspire.client import Approached, ascended
from bonafed.papers.aspire.step_sizes import Now, Steps

Index = NDArray[np.intp]


@record
class Measured:
    """The distance of the iterates from a stationary point, as measured last."""

    stationarity: ext.Extended  # ||grad G||^2, (32); the workers' parts as of their last trips
    gradient: ext.Extended  # its parts for w and z, relative to the first gradients
    balance: ext.Extended  # its part for h, |1 - sum lambda|
    short: ext.Extended  # max_P p'f - p*'f, p* = sum lambda_l p_l normalised, relative to the value
    oracle: ext.Extended  # max_P p'f - max_l p_l'f
    consensus: ext.Extended  # root mean square of ||z - w_j||
    # max_P p'f + the regulariser at z: the objective with every loss at the worker's copy
    value: ext.Extended
    residual: ext.Extended  # the largest of the relative parts
    answers: int  # received by then


@record
class ASPIREState:
    """The state of the master."""

    z: Annotated[Array, Form("D")]
    h: float
    weights: Annotated[Array, Form("K")]  # lambda
    before: Annotated[Array, Form("K")]  # lambda one iteration ago
    planes: Annotated[Array, Form("K, N")]  # p_l, each in P
    omega: Annotated[Array, Form("N")]  # sum_l lambda_l p_l
    copies: Annotated[Array, Form("N, D")]  # w_j
    dual: Annotated[Array, Form("N, D")]  # phi_j
    total: Annotated[Array, Form("D")]  # sum_j w_j
    pull: Annotated[Array, Form("D")]  # sum_j phi_j
    loss: Annotated[Array, Form("N")]  # f_j(w_j)
    gap: Annotated[Array, Form("N")]  # each worker's part of (32)
    # the number of answers of all workers at each worker's last one
    last: Annotated[Array, Form("N")]
    age: Annotated[Array, Form("N")]  # the same between its last two
    steps: Steps | None
    rounds: Annotated[int, Form(rounds=-1)]  # t
    answers: int
    checked: int  # answers when the planes were checked last
    added: ext.Counter
    dropped: ext.Counter
    bits: int  # by Theorem 2
    measured: Measured


NOTHING = Measured(*[math.inf] * 8, answers=0)


def received(state: ASPIREState, ids: Index, up: Approached) -> ASPIREState:
    """The state with these answers in their workers' rows."""
    copies, loss, gap, total = (
        ext.writable(state.copies),
        ext.writable(state.loss),
        ext.writable(state.gap),
        ext.writable(state.total),
    )
    last, age, answers = ext.writable(state.last), ext.writable(state.age), state.answers + len(ids)
    total += (up.w - copies[ids]).sum(0)
    copies[ids], loss[ids], gap[ids] = up.w, up.loss, up.gap
    age[ids], last[ids] = answers - last[ids], answers
    return replace(
        state, copies=copies, loss=loss, gap=gap, total=total, last=last, age=age, answers=answers
    )


def moved(
    problem: bf.Problem, state: ASPIREState, ids: Index, now: Now, steps: Steps
) -> ASPIREState:
    """The state after (13) to (16), each with the result of the one before."""
    _, _, cap, pull = steps.bounds
    z, h = _model_and_level(problem, state, now, steps)
    rise = state.planes @ state.loss - h - now.c1 * state.weights
    weights = np.clip(state.weights + now.rho1 * rise, 0.0, cap)  # (15)
    dual, sums = ext.writable(state.dual), ext.writable(state.pull)
    old = dual[ids]
    new = ascended(old, z, state.copies[ids], now.rho2, now.c2, pull)  # (16)
    dual[ids] = new
    sums += (new - old).sum(0)
    return replace(state, z=z, h=h, weights=weights, before=state.weights, dual=dual, pull=sums)


def _model_and_level(
    problem: bf.Problem, state: ASPIREState, now: Now, steps: Steps
) -> tuple[Array, float]:
    """z and h after their steps (13) and (14)."""
    reach, top, _, _ = steps.bounds
    z = state.z - now.eta_z * gradient_z(state, steps)
    z = np.clip(problem.prox(z, now.eta_z), -reach, reach)  # (13)
    h = state.h - now.eta_h * (1 - float(state.weights.sum()))  # (14)
    return z, min(max(h, steps.floor), top)


def gradient_z(state: ASPIREState, steps: Steps) -> Array:
    """The derivative of L_p in z."""
    return state.pull + steps.kappa * (len(state.copies) * state.z - state.total)


def longest(state: ASPIREState) -> float:
    """The longest time between two answers of one worker, or since its last one, counted in answers
    of all workers over N.
    """
    return float(np.maximum(state.age, state.answers - state.last).max()) / len(state.age)


def checked(
    problem: bf.Problem, state: ASPIREState, drop: bool, add: bool, most: int | None, cut: float
) -> ASPIREState:
    """The planes after (18) to (21): the worst vertex is added where no plane is as high, planes
    without weight are dropped.
    """
    worst = np.asarray(problem.over_clients.weights(state.loss), float)  # (18)
    heights = state.planes @ state.loss
    planes, weights, before = state.planes, state.weights, state.before
    added = add and float(worst @ state.loss) > heights.max() + cut * abs(heights.max())  # (19)
    keep = np.ones(len(weights), bool)
    if drop:
        keep = (weights > 0) | (before > 0)  # (21)
        if not added and not keep.any():  # never the last one
            keep[heights.argmax()] = True
    left = 0.0
    # Setting 1: the plane of least weight makes room, and its weight goes to the new one
    if added and most is not None and keep.sum() >= most:
        least = np.flatnonzero(keep)[weights[keep].argmin()]
        keep[least], left = False, float(weights[least])
    planes, weights, before = planes[keep], weights[keep], before[keep]
    if added:
        planes = np.concatenate([planes, worst[None]])  # (20)
        weights, before = np.append(weights, left), np.append(before, left)
    return replace(
        state,
        planes=planes,
        weights=weights,
        before=before,
        checked=state.answers,
        added=state.added + bool(added),
        dropped=state.dropped + int((~keep).sum()),
    )


def refreshed(problem: bf.Problem, state: ASPIREState, now: Now, steps: Steps) -> ASPIREState:
    """The state with its sums computed anew and the gap (32) measured: that of L_p itself, without
    c_1 and c_2.
    """
    state = replace(state, total=state.copies.sum(0), pull=state.dual.sum(0))
    _, _, cap, pull = steps.bounds
    risk = float(problem.over_clients.value(state.loss))
    heights, apart = state.planes @ state.loss, state.z - state.copies
    z, h = _model_and_level(problem, state, now, steps)
    weights = np.clip(state.weights + now.rho1 * (heights - state.h), 0.0, cap)
    dual = np.clip(state.dual + now.rho2 * apart, -pull, pull)
    of_w, of_z = float(state.gap.sum()), float((((state.z - z) / now.eta_z) ** 2).sum())
    of_h = abs(state.h - h) / now.eta_h
    of_weights = (weights - state.weights) / now.rho1
    of_dual = float((((dual - state.dual) / now.rho2) ** 2).sum())
    value, consensus = (
        risk + problem.penalty(state.z),
        math.sqrt(float((apart**2).sum()) / len(apart)),
    )
    scale, size = max(abs(value), 1e-12), max(float(np.linalg.norm(state.z)), steps.length)
    gradient = math.sqrt(of_w + of_z) / max(steps.gradient, 1e-300)
    oracle = max(risk - float(heights.max()), 0.0)
    short = max(risk - float(mixture(problem, state) @ state.loss), oracle) / scale
    measured = Measured(
        stationarity=of_w + of_z + of_h**2 + float(of_weights @ of_weights) + of_dual,  # (32)
        gradient=gradient,
        balance=of_h,
        short=short,
        oracle=oracle,
        consensus=consensus,
        value=value,
        residual=max(gradient, of_h, short, consensus / size),
        answers=state.answers,
    )
    return replace(state, measured=measured)


def bounds_reached(state: ASPIREState, steps: Steps) -> list[str]:
    """Which of alpha_1 to alpha_4 and the floor of h hold iterates back."""
    reach, top, cap, pull = (np.asarray(steps.bounds) * (1 - 1e-9)).tolist()
    active = {
        "alpha_1": (max(np.abs(state.z).max(), np.abs(state.copies).max()) >= reach),
        "alpha_2": state.h >= top,
        "alpha_3": bool((state.weights >= cap).any()),
        "alpha_4": bool((np.abs(state.dual) >= pull).any()),
        "floor": (state.h <= steps.floor and float(state.weights.sum()) < 0.99),
    }
    return [name for name, holds in active.items() if holds]


def mixture(problem: bf.Problem, state: ASPIREState) -> Array:
    """p* = sum_l lambda_l p_l, normalised: it lies in P, as every p_l does."""
    total = float(state.weights.sum())
    if total > 0:
        return (state.weights / total) @ state.planes
    return np.asarray(problem.over_clients.weights(state.loss), float)
