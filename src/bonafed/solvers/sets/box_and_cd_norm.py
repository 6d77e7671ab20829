"""Worst cases and projections of client weights in a box, or near a prior c in the CD-norm.

    box        l <= q <= u
    CD-norm  |d_i| <= t_i  and  sum_i |d_i| / t_i <= budget,  d = q - c
            (Jiao, Yang and Song, *Federated distributionally robust optimization with non-convex
            objectives*)

Worst case: max z'q. A box is filled from its lower ends, the largest z first; with the marginal z
as the level g,

    z'q <= g + l'(z - g) + (u - l)'max(z - g, 0)                  for every g and every q in the box

The budget of the CD-norm has a multiplier mu >= 0. For a fixed mu, a unit that a client takes
counts z - mu / t and a unit that it gives costs z + mu / t, so the best d fills 2N items greedily.
With a and b the most that clients can give and take,

    z'd <= mu budget + sum_i b_i max(z_i - g - mu / t_i, 0) + a_i max(g - z_i - mu / t_i, 0)
            for every g, mu >= 0

The right side at its best g is convex and piecewise linear in mu. ``at_budget`` finds its minimum:
lines through two points, one over and one under the budget, meet at the next mu, until nothing lies
above them; then the two points are mixed. Where all t are equal, one sort is enough. No function
here changes its arguments.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.sets import projections
from bonafed.solvers.sets.projections import EPS, Worst, decreasing_root, fill, fraction


class Point(NamedTuple):
    """The choice that maximises gain - multiplier * usage, with its gain and its usage."""

    gain: float
    usage: float
    choice: Any


class Budgeted(NamedTuple):
    """The best choice within the budget, (1 - share) lean + share rich, and its proof."""

    multiplier: float
    lean: Any
    rich: Any
    share: float


# -- box -------------------------------------------------------------------------------------------


def largest_in_box(losses: Array, lower: Array, upper: Array) -> Worst:
    """A maximiser of losses'q over {lower <= q <= upper, sum q = 1} and an upper bound.

    Clients with equal losses share in proportion to their room.
    """
    scale = projections.scaled(losses)
    room, amount = upper - lower, 1.0 - float(lower.sum())
    q, level = fill(scale.z, room, amount)
    y = scale.z - level
    fixed, over = float(lower @ y), float(room @ np.maximum(y, 0.0))
    size = abs(level) + float(lower @ np.abs(y)) + over
    return lower + q, scale.bound(level + fixed + over, size)


# -- CD-norm ---------------------------------------------------------------------------------------


def at_budget(point: Callable[[float], Point], nothing: Point, budget: float) -> Budgeted:
    """The choice of usage <= budget with the largest gain.

    ``point(multiplier)`` maximises gain - multiplier * usage.

    ``nothing`` is a choice of usage 0; it is the best one once the multiplier is large enough.
    Every step halves the distance of the gains or of the usages of the two points kept, and the
    iteration ends on a vertex of a piecewise linear function.
    """
    rich, lean, multiplier = point(0.0), nothing, 0.0
    if rich.usage <= budget:
        return Budgeted(0.0, rich.choice, rich.choice, 0.0)
    multipliers = [0.0, math.inf]  # of rich and lean
    for turn in range(1000):
        slope = (rich.gain - lean.gain) / (rich.usage - lean.usage)
        # usages that differ by rounding only say nothing of where the lines meet
        meet = min(max(slope, multipliers[0]), multipliers[1])
        width, over = multipliers[1] - multipliers[0], rich.usage - budget
        toward = multipliers[0] + width * over / (rich.usage - lean.usage)
        multiplier = toward if turn % 2 and multipliers[0] < toward < multipliers[1] else meet
        new = point(multiplier)
        line, size = rich.gain - multiplier * rich.usage, abs(rich.gain) + multiplier * rich.usage
        last = multiplier == meet and new.gain - multiplier * new.usage <= line + 2 * EPS * size
        if last or (multiplier == meet and not lean.usage < new.usage < rich.usage):
            break
        if new.usage > budget:
            rich, multipliers[0] = new, multiplier
        else:
            lean, multipliers[1] = new, multiplier
    share = fraction(budget - lean.usage, rich.usage - lean.usage)
    return Budgeted(multiplier, lean.choice, rich.choice, share)


class _Moves(NamedTuple):
    """How much weight each client with a positive bound can give and take."""

    live: NDArray[np.bool_]  # (N,)
    give: Array  # (n,)
    take: Array  # (n,)
    rate: Array  # (n,) 1 / t


def _moves(prior: Array, bounds: Array) -> _Moves:
    live = bounds > 1e-300
    t, c = bounds[live], prior[live]
    return _Moves(live, np.minimum(t, c), np.minimum(t, 1 - c), 1 / t)


def largest_in_cd_norm(losses: Array, prior: Array, bounds: Array, budget: float) -> Worst:
    """A maximiser of losses'q over the CD-norm set around ``prior``, and an upper bound.

    ``prior`` is a point of the simplex.
    """
    scale, moves = projections.scaled(losses), _moves(prior, bounds)
    base = float(prior @ scale.z)
    if scale.spread == 0 or budget == 0 or not moves.live.any():
        return prior.copy(), scale.bound(base, abs(base))
    z = scale.z[moves.live]
    d, level, multiplier = _one_sort(z, moves, budget) or _by_multiplier(z, moves, budget)
    with np.errstate(over="ignore"):
        cost = multiplier * moves.rate
        taken = moves.take @ np.maximum(z - level - cost, 0.0)
        gain = float(taken + moves.give @ np.maximum(level - z - cost, 0.0))
    q = prior.copy()
    q[moves.live] = np.maximum(prior[moves.live] + d, 0.0)
    paid = multiplier * budget
    return q, scale.bound(base + paid + gain, abs(base) + paid + gain + abs(level))


def _one_sort(z: Array, moves: _Moves, budget: float) -> tuple[Array, float, float] | None:
    """The solution for equal bounds t, by one sort; None where t differ or a smaller move is best.

    It moves budget t / 2 from the smallest losses to the largest.
    """
    rate, give, take = moves.rate[0], moves.give, moves.take
    mass = budget / rate / 2
    if (moves.rate != rate).any() or mass >= min(give.sum(), take.sum()):
        return None
    (taken, high), (given, low) = fill(z, take, mass), fill(-z, give, mass)
    return (taken - given, (high - low) / 2, (high + low) / 2 / rate) if high + low > 0 else None


def _by_multiplier(z: Array, moves: _Moves, budget: float) -> tuple[Array, float, float]:
    """The solution for any bounds: d, and the level and multiplier of the dual."""
    score, room = np.empty(2 * len(z)), np.concatenate([moves.give, moves.take])
    amount, level = float(moves.give.sum()), 0.0

    def point(multiplier: float) -> Point:
        nonlocal level
        with np.errstate(over="ignore"):
            cost = multiplier * moves.rate
        np.add(z, cost, out=score[: len(z)])
        np.subtract(z, cost, out=score[len(z) :])
        level = projections.marginal(score, room, amount)
        # the move d at a level, starting from all clients giving what they can; at the level itself
        # weight that is kept comes first and weight that is taken second, and ties share by room
        above, tied = score > level, score == level
        n, (give, take) = len(moves.give), (moves.give, moves.take)
        back, more = give * above[:n], take * above[n:]
        left = amount - float(back.sum()) - float(more.sum())
        ties = float(give[tied[:n]].sum())
        back += give * tied[:n] * fraction(left, ties)
        more += take * tied[n:] * fraction(left - ties, float(take[tied[n:]].sum()))
        d = (back - give) + more
        return Point(float(z @ d), float(np.abs(d) @ moves.rate), d)

    best = at_budget(point, Point(0.0, 0.0, np.zeros_like(z)), budget)
    return (1 - best.share) * best.lean + best.share * best.rich, level, best.multiplier


def cd_norm_usage(d: Array, bounds: Array) -> float:
    """sum_i |d_i| / bounds_i, inf where a client without freedom moves."""
    live = bounds > 1e-300
    return math.inf if d[~live].any() else float(np.abs(d[live]) @ (1 / bounds[live]))


def project_cd_norm(v: Array, prior: Array, bounds: Array, budget: float) -> Array:
    """The nearest point of the CD-norm set.

    It is d_i = clip(soft(v_i - c_i - g, k / t_i), -a_i, b_i) with two scalar roots, g and k.
    """
    moves = _moves(prior, bounds)
    if budget == 0 or not moves.live.any():
        return prior.copy()
    x = (v - prior)[moves.live]
    x, q = x - x.max(), prior.copy()
    q[moves.live] = np.maximum(prior[moves.live] + _nearest_move(x, moves, budget), 0.0)
    return q


def _nearest_move(x: Array, moves: _Moves, budget: float) -> Array:
    """The move d of the projection, by two nested scalar roots.

    The outer root is the multiplier k of the budget (0 if the budget is not used up), the inner one
    the level g; d is interpolated between the last two values of each.
    """
    flat, start = 2 * EPS * float(moves.give.sum()), float(x.mean())

    def usage(d: Array) -> float:
        return float(np.abs(d) @ moves.rate)

    def response(g: float, k: float) -> tuple[Array, NDArray[np.bool_]]:
        y = x - g
        free = np.copysign(np.maximum(np.abs(y) - k * moves.rate, 0.0), y)
        inside = (free != 0) & (-moves.give < free) & (free < moves.take)
        return np.clip(free, -moves.give, moves.take), inside

    def shifted(k: float) -> tuple[Array, NDArray[np.bool_]]:
        nonlocal start

        def excess(g: float) -> tuple[float, float]:
            d, active = response(g, k)
            return float(d.sum()), -float(active.sum())

        ends = decreasing_root(excess, float(x.min()), float(x.max()), start, flat)
        (above, active), (below, _) = (response(g, k) for g in ends)
        start = ends[0]
        return projections.balanced(above, below), active

    seen: dict[float, Array] = {}

    def overspent(k: float) -> tuple[float, float]:
        seen[k], active = shifted(k)
        rate = moves.rate[active]
        mean = float((np.sign(seen[k][active]) @ rate) / max(len(rate), 1))
        return usage(seen[k]) - budget, -max(float(rate @ rate) - len(rate) * mean**2, 0.0)

    free = shifted(0.0)[0]
    if usage(free) <= budget:
        return free
    most = float(np.ptp(x) / moves.rate.min())
    ends = decreasing_root(overspent, 0.0, most, flat=2 * EPS * budget)
    rich, lean = (seen[k] if k in seen else shifted(k)[0] for k in ends)
    share = fraction(budget - usage(lean), usage(rich) - usage(lean))
    d = lean + share * (rich - lean)
    return d * min(1.0, budget / max(usage(d), budget))
