"""What sums over the clients can be, where the answers that were added up are masked: the claims of
a sum, of which some client sent a wrong part, and nobody can say which one.

With weights q >= 0 that add up to T, and F_s the mean losses of the clients' rows,

    F_q = sum_s q_s F_s    is convex,    0 <= F_q(w) <= T max L,    F_q(0) = T L(0),
    ||F_q'(w)|| <= T max |L'| r,    0 <= F_q'',    trace F_q'' <= T max L'' r^2,

where r^2 is the sum of the squares of the longest rows. Where the clients tell F_s(w) in the clear,
the sum is sum_s q_s F_s(w), and no tangent of any F_q lies above such sums elsewhere.

Sums travel as multiples of a step. ``slack`` is what its rounding adds at most: numbers that are
not far larger are held to their signs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.claims import RELATIVE, Claim, Features, Number, Tangent, Told
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.lower_bounds import Surveyed
from bonafed.problem.plausible import (
    ROUNDING,
    Bent,
    Reached,
    differs,
    is_convex,
    zero_loss,
)
from bonafed.problem.problem import Problem
from bonafed.problem.secure_sums import SurveyedSums, SurveySums, least_multiplier

FINE = 1e10  # times what rounding adds: numbers as large are held to all of the above
WEIGHTINGS = 12  # of which values and slopes are remembered
SUM = "weighted mean loss of all clients"


@dataclass(frozen=True)
class SizesOfAll:
    """The largest lengths of rows, each as the root of a sum of squares."""

    seen: Surveyed

    def held(self, told: Told) -> tuple[Told, str]:
        words = "" if told.seen is None else differs(told.seen, self.seen)
        return replace(told, seen=self.seen), words


@dataclass(frozen=True)
class EachLoss:
    """The mean losses (N,) of the clients at a model."""

    at: Array  # (D,)
    value: Array  # (N,)
    rounding: float

    def held(self, told: Told) -> tuple[Told, str]:
        key = ("each", len(self.at))
        told, words = Tangent(key, "mean loss", self.at, self.value, None, self.rounding).held(told)
        for of in [of for of, _ in told.touched if of[:2] == ("sum", len(self.at))]:
            mean = np.array([np.array(of[2:]) @ self.value])
            told, odd = Tangent(of, SUM, self.at, mean, None, self.rounding).held(told)
            words = words or odd
        return told, words


@dataclass(frozen=True)
class WeightedLoss:
    """The weighted mean loss of all clients and its slope at a model."""

    weights: Array  # (N,)
    at: Array  # (D,)
    value: float
    slope: Array  # (D,)

    def held(self, told: Told) -> tuple[Told, str]:
        key = ("sum", len(self.at), *self.weights.tolist())
        each = told.known(("each", len(self.at)))
        older = [of for of, _ in told.touched if of[0] == "sum" and of != key][: 1 - WEIGHTINGS]
        told = replace(told, touched=tuple(pair for pair in told.touched if pair[0] not in older))
        if each is not None and told.known(key) is None:
            for at, value, rounding in zip(each.at, each.value, each.rounding, strict=True):
                mean = np.array([self.weights @ value])
                told, _ = Tangent(key, SUM, at, mean, None, float(rounding)).held(told)
        return Tangent(key, SUM, self.at, np.array([self.value]), self.slope[None]).held(told)


def of_survey_sums(
    problem: Problem, ask: SurveySums, up: SurveyedSums, slack: float
) -> Iterator[Claim]:
    """Those of the sizes of all clients' rows."""
    total, room = float(np.sum(ask.prior)), slack / RELATIVE
    shares = np.array([up.plus, up.minus])
    yield Number("a share of all rows", shares, 0.0, total, room)
    signs = problem.loss.targets == "sign"
    yield Number("shares of all rows", shares.sum(), total * signs, total, 2 * room)
    yield Number("a sum of squared lengths", np.array([up.reach, up.target]), 0.0, scale=room)
    yield Features(np.array([up.square.shape[-1]]))
    yield Number("a mean square", up.square, 0.0, scale=room)
    most, terms = total * float(up.reach), up.square.size + total
    yield Number("a sum of mean squares", up.square.sum(), 0.0, most, terms * room)
    plus, minus, square = up.plus / total, up.minus / total, up.square / total
    yield SizesOfAll(Surveyed(plus, minus, np.sqrt(up.reach), np.sqrt(up.target), square))


def own_losses(problem: Problem, w: Array, risks: Array) -> tuple[Array, float]:
    """The clients' mean losses (N,) by their risks, which their Wasserstein balls add to, and what
    rounding leaves of them, relative.
    """
    losses = risks - sample_radii(problem, len(risks)) * least_multiplier(problem, w)
    size = float(np.abs(risks).max()) / max(float(np.abs(losses).max()), 1e-300)
    return losses, 100 * ROUNDING * size


def of_each_risk(problem: Problem, w: Array, risks: Array) -> Iterator[Claim]:
    """Those of the clients' risks (N,), which they tell in the clear."""
    losses, rounding = own_losses(problem, w, risks)
    yield Number("a mean loss", losses, 0.0, scale=np.abs(risks))
    yield EachLoss(w, losses, rounding)


def of_weighted_sum(
    problem: Problem,
    w: Array,
    weights: Array,
    value: Array,
    slope: Array,
    curvature: Array | None,
    slack: float,
) -> Iterator[Claim]:
    """Those of sum_s weights_s F_s at a model, its slope (D,) and its second derivative (D, D)."""
    total = float(weights.sum())
    mean, room = float(value) / total, slack / total / RELATIVE
    yield Number(f"a {SUM}", mean, 0.0, scale=room)
    if not w.any() and (zero := zero_loss(problem)) is not None:
        yield Number(f"a {SUM} at the model 0", mean, zero, zero, room)
    least = min(mean * total, float(np.abs(slope).max(initial=0.0)))
    if least <= FINE * slack * (1 + float(np.abs(w).sum())):
        return
    yield Reached(problem, w, mean, slope[None] / total)
    if is_convex(problem):
        yield WeightedLoss(weights / total, w, mean, slope / total)
        if curvature is not None:
            yield Bent(problem, w, curvature / total, np.inf)


def of_combined_sums(
    problem: Problem, w: Array, weights: Array, risks: Array, up: Any, slack: float
) -> Iterator[Claim]:
    """Those of a minorant of sum_s weights_s F_s, from cuts that were combined, where the clients
    have these risks.
    """
    losses, rounding = own_losses(problem, w, risks)
    most, there = float(weights @ losses), float(up.constant + up.gradient @ w)
    size = abs(float(up.constant)) + float(np.abs(up.gradient) @ np.abs(w)) + abs(most)
    room = slack * (1 + float(np.abs(w).sum())) / RELATIVE + size * (1 + rounding / RELATIVE)
    yield Number("a number 'spread'", up.spread, 0.0, scale=slack / RELATIVE)
    yield Number("a number 'size'", up.size, 0.0, scale=slack / RELATIVE)
    yield Number("a bound on all mean losses", there, -np.inf, most, room)
