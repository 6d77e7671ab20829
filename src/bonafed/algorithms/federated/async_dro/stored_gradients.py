"""The stored gradients of an asynchronous server: the last line of each client, and the models at
which these were made.

    F_j(v) ~ b_j + <g_j, v>,  below the risk by about  e_j(v) = L_j ||v - w_j||^2 / 2
            at other models than w_j

Clients whose lines were made at one model, or who were sent one model, share one copy of it. A row
of ``places`` that no client needs any more is overwritten, so that the number of clients bounds
that of the rows. Each step reads all of them, for which single precision is enough (``models``): an
error of 1e-7 in the place of a line is one of 1e-14 in e_j. These and the single-precision
gradients are scaled by powers of two near the first gradients, and near the first loss over these,
whatever units features and targets have.

L_j is the curvature between the last two models at which client j answered, w_j and w_j', in units
of the coefficients:

    L_j = ||g_j - g_j'|| / ||w_j - w_j'||

The values of the lines at the present model, b + G w, are updated by G (w' - w) when it moves to
w', with gradients in single precision, since reading them is most of the server's work; the error
vanishes with the steps. The value of a client who answers is computed anew, and those of all
clients once in N answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms.federated.linearisation import Linearised, risk_gradients, units_of
from bonafed.arrays import Array, Block, Streams, writable
from bonafed.codec import Form
from bonafed.problem.lower_bounds import survey
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import separable
from bonafed.rounds import Each, Max, Sum, Version, record

FEW = 8  # rows of models at first
WIDE = 32  # rows in single precision are padded to a multiple of it: whole processor vectors
LEAST = 3e-3  # the least r
TINY = np.finfo(float).tiny


Answers = tuple[NDArray[np.intp], Array, Array]  # clients, their F_j and, in the data's units, g_j


@record
class Lines:
    """The lines of all clients; all arrays are overwritten in place."""

    level: Annotated[Array, Form("N")]  # b
    gradients: Annotated[Array, Form("N, D")]  # G
    rough: Annotated[NDArray[np.float32], Form("N, width")]  # G, and zeros
    losses: Annotated[Array, Form("N")]  # b + G (w - step) at the present model w
    step: Annotated[Array, Form("D")]  # the step of w that losses do not contain yet
    curvature: Annotated[Array, Form("N")]  # L
    gap: Annotated[Array, Form("N")]  # steps between a client's last two answers
    last: Annotated[NDArray[np.int64], Form("N")]  # the step of its last answer
    apart: Annotated[Array, Form("N")]  # d
    # the row of models at which its line was made
    made: Annotated[NDArray[np.int64], Form("N", below="V")]
    sent: Annotated[NDArray[np.int64], Form("N", below="V")]  # the row it was sent last
    places: Annotated[Array, Form("V, D")]  # the models at which lines were made, or will be
    models: Annotated[NDArray[np.float32], Form("V, width")]  # the same, and zeros
    turn: Annotated[NDArray[np.int64], Form("V", least=-1)]  # the step after which a model was sent
    # how often it stands in made and sent; 0: the row is free
    users: Annotated[NDArray[np.int64], Form("V")]
    steepness: float  # what ``rough`` is counted in
    length: float  # what ``models`` are counted in


def first_lines(up: Met, w: Array, mean: Array) -> Lines:
    """The lines of the first answers, of all N clients at the model w before step 0."""
    n, steepest = len(up.risk), float(np.abs(up.gradient).max(initial=0.0))
    steepness = _unit(steepest)
    length = _unit(
        max(float(np.abs(up.risk).max()) / max(steepest, TINY), float(np.abs(w).max(initial=0.0)))
    )
    wide, turn, users = -(-len(w) // WIDE) * WIDE, np.full(FEW, -1), np.zeros(FEW, np.int64)
    models, rough = np.zeros((FEW, wide), np.float32), np.zeros((n, wide), np.float32)
    places = np.zeros((FEW, len(w)))
    places[0], models[0, : len(w)], users[0] = w, w / length, 2 * n
    np.divide(up.gradient, steepness, out=rough[:, : len(w)], casting="same_kind")
    none = np.zeros((3, n), np.int64)
    return Lines(
        level=up.risk - up.gradient @ w,
        gradients=up.gradient.copy(),
        rough=rough,
        losses=up.risk.copy(),
        step=np.zeros(len(w)),
        curvature=up.curvature.copy(),
        gap=np.zeros(n),
        last=none[0],
        apart=((up.gradient - mean) ** 2).sum(1),
        made=none[1],
        sent=none[2],
        places=places,
        models=models,
        turn=turn,
        users=users,
        steepness=steepness,
        length=length,
    )


def _unit(size: float) -> float:
    """A power of two near a size, whose square is finite; 1 near 0 and infinity."""
    return 2.0 ** min(max(math.frexp(size)[1], -500), 500) if TINY < size < math.inf else 1.0


def answers(ids: Sequence[int], up: Linearised) -> Answers:
    """The answers of these clients as arrays."""
    return np.array(ids, np.intp), writable(up.risk), writable(up.gradient)


def no_answers(n: int) -> Answers:
    """The answers of no clients, with n coefficients."""
    return np.zeros(0, np.intp), np.zeros(0), np.zeros((0, n))


def renew(lines: Lines, new: Answers, units: Array, w: Array, mean: Array, turn: int) -> None:
    """Store the answers of step ``turn``, with losses at w and distances from ``mean``."""
    _renew(new, units, w, mean, turn, _written(lines))


def _written(lines: Lines) -> tuple[Any, ...]:
    what = (
        lines.level,
        lines.gradients,
        lines.rough,
        lines.losses,
        lines.step,
        lines.curvature,
        lines.apart,
    )
    return (
        *what,
        lines.gap,
        lines.last,
        lines.made,
        lines.sent,
        lines.places,
        lines.users,
        lines.steepness,
    )


def exact(lines: Lines, w: Array) -> Array:
    """b + G w computed anew; ``lines`` store it, too."""
    np.matmul(lines.gradients, w, out=lines.losses)
    lines.losses[:] += lines.level
    lines.step[:] = 0.0
    return lines.losses.copy()


def with_sent(lines: Lines, to: NDArray[np.intp], w: Array, turn: int) -> Lines:
    """The lines after these clients were sent w after step ``turn``; with twice the room for models
    where it is full.
    """
    where = lines.sent, lines.turn, lines.users, lines.length
    row = _ask(to, w, turn, *where, lines.places, lines.models)
    if row == len(lines.users):
        more = len(lines.users)
        lines = replace(
            lines,
            places=np.concatenate([lines.places, np.zeros_like(lines.places)]),
            models=np.concatenate([lines.models, np.zeros_like(lines.models)]),
            turn=np.concatenate([lines.turn, np.full(more, -1)]),
            users=np.concatenate([lines.users, np.zeros(more, np.int64)]),
        )
        where = lines.sent, lines.turn, lines.users, lines.length
        _ask(to, w, turn, *where, lines.places, lines.models)
    return lines


def old_lines(lines: Lines, turn: int) -> NDArray[np.intp]:
    """The clients whose lines were made at models sent before step ``turn``."""
    return np.flatnonzero(lines.turn[lines.made] < turn)


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _follow(rough, step, steepness, losses):
    """Add the model's step to the losses, and set it to zero."""
    size = 0.0
    for k in range(len(step)):
        size = max(size, abs(step[k]))
    if not size > 0:
        return
    along, whole, unit = (
        np.zeros(rough.shape[1], np.float32),
        len(losses) // 4 * 4,
        steepness * size,
    )
    for k in range(len(step)):
        along[k], step[k] = step[k] / size, 0.0
    for j in range(0, whole, 4):  # four rows at once: a step is read once for them
        a = b = c = d = np.float32(0.0)
        for k in range(len(along)):
            a += rough[j, k] * along[k]
            b += rough[j + 1, k] * along[k]
            c += rough[j + 2, k] * along[k]
            d += rough[j + 3, k] * along[k]
        losses[j] += unit * a
        losses[j + 1] += unit * b
        losses[j + 2] += unit * c
        losses[j + 3] += unit * d
    for j in range(whole, len(losses)):
        a = np.float32(0.0)
        for k in range(len(along)):
            a += rough[j, k] * along[k]
        losses[j] += unit * a


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _renew(answered, units, w, mean, turn, written):
    ids, risks, steep = answered
    (
        level,
        gradients,
        rough,
        losses,
        step,
        curvature,
        apart,
        gap,
        last,
        made,
        sent,
        places,
        users,
        steepness,
    ) = written
    _follow(rough, step, steepness, losses)
    for p in range(len(ids)):
        j, at, before = ids[p], sent[ids[p]], made[ids[p]]
        there = here = square = change = moved = 0.0
        for k in range(len(w)):
            gradient, place = steep[p, k] / units[k], places[at, k]
            there += gradient * place
            here += gradient * w[k]
            square += (gradient - mean[k]) ** 2
            change += (gradient - gradients[j, k]) ** 2
            moved += (place - places[before, k]) ** 2
            gradients[j, k], rough[j, k] = gradient, gradient / steepness
        level[j], losses[j], apart[j] = risks[p] - there, risks[p] - there + here, square
        if moved > 0:
            curvature[j] = np.sqrt(change / moved)
        gap[j], last[j] = turn - last[j] - 1, turn
        users[made[j]] -= 1
        users[sent[j]] += 1
        made[j] = sent[j]


@njit(cache=True)
def _ask(ids, w, turn, sent, turns, users, length, places, models):
    """Store w in a free row that these clients share from now on, and return its number.

    Where no row is free, nothing changes and the result is the number of rows. A model beyond the
    range of single precision is infinite there.
    """
    row = 0
    while row < len(users) and users[row] > 0:
        row += 1
    if row < len(users):
        turns[row], users[row] = turn, len(ids)
        for j in ids:
            users[sent[j]] -= 1
            sent[j] = row
        for k in range(len(w)):
            places[row, k], models[row, k] = w[k], w[k] / length
    return row


def predict(
    lines: Lines,
    new: Answers,
    units: Array,
    w: Array,
    mean: Array,
    weights: Array,
    centre: Array,
    turn: int,
    sizes: tuple[float, ...],
) -> tuple[Array, Array, Array, tuple[float, ...]]:
    """Store the answers, then compute f, s_j L_j and c + f / mu, and the numbers that follow from
    curvatures, ages and distances.

    Parameters
    ----------
    sizes : factor of eta, the least sum_j p_j L_j (1 + a_j), the largest eta, tau

    Returns
    -------
    f, force, shifted : (N,)
    numbers : sum_j p_j L_j (1 + a_j), p'a, eta, mu, p'f
    """
    n = len(weights)
    f, force, shifted = np.empty(n), np.empty(n), np.empty(n)
    # one by one, since the compiler's dispatch takes microseconds for a tuple of arrays
    here = units, w, mean, weights, centre, turn
    room = lines.length, lines.models, *sizes, f, force, shifted
    parts: Any = (*new, *here, *room, *_written(lines))
    return f, force, shifted, _predict(*parts)


def descend(
    lines: Lines,
    units: Array,
    w: Array,
    weights: Array,
    force: Array,
    eta: float,
    centre: Array,
    pace: float,
) -> tuple[Array, Array, Array, Array]:
    """c + pace (p - c) and G'p for weights p; w - eta (G'p + sum_j p_j force_j (w - w_j)), and eta,
    for each coefficient in the data's units.
    """
    moved_centre, mean = np.empty(len(weights)), np.empty(len(w))
    to, eta_each = np.empty(len(w)), np.empty(len(w))
    where = lines.gradients, lines.length, lines.models, lines.made
    _descend(units, w, weights, *where, force, eta, centre, pace, moved_centre, mean, to, eta_each)
    return moved_centre, mean, to, eta_each


def mean_gradient(lines: Lines, weights: Array) -> Array:
    """G'p."""
    mean = np.empty(lines.gradients.shape[1])
    _mean(lines.gradients, weights, mean)
    return mean


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _sums(weights, curvature, apart, gap, last, turn, curves):
    """Write p_j L_j (1 + a_j) to curves; their sum, p'a and max_j d_j + sum_{p_j > 0} d_j."""
    curve = age = furthest = spread = 0.0
    for j in range(len(weights)):
        old = max(gap[j], float(turn - last[j]))
        furthest = max(furthest, apart[j])
        curves[j] = weights[j] * curvature[j] * (1.0 + old)
        curve += curves[j]
        age += weights[j] * old
        spread += apart[j] if weights[j] > 0 else 0.0
    return curve, age, furthest + spread


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _predict(
    ids,
    risks,
    steep,
    units,
    w,
    mean,
    weights,
    centre,
    turn,
    length,
    models,
    factor,
    least,
    most,
    trust,
    f,
    force,
    shifted,
    *written,
):
    """Write f = b + G w + s e with s_j = e_j / (e_j + trust mu / r_j) to f, s_j L_j to force, and
    c + f / mu to shifted.
    """
    _renew((ids, risks, steep), units, w, mean, turn, written)
    _, _, _, losses, _, curvature, apart, gap, last, made, _, _, _, _ = written
    square, here = np.zeros(len(models), np.float32), np.zeros(models.shape[1], np.float32)
    for v in range(len(models)):
        square[v] = -1.0
    for j in range(len(made)):
        square[made[j]] = 0.0
    for k in range(len(w)):
        here[k] = w[k] / length
    curve, age, spread = _sums(weights, curvature, apart, gap, last, turn, force)
    eta = min(factor / max(curve, least), most)
    mu = eta * spread
    for v in range(len(models)):
        if square[v] == 0.0:  # a line was made there
            far = np.float32(0.0)
            for k in range(len(here)):
                far += (here[k] - models[v, k]) ** 2
            square[v] = far
    total = 0.0
    for j in range(len(f)):
        short = 0.5 * (curvature[j] * length) * (square[made[j]] * length)
        share = short / (short + max(trust * mu, TINY) / max(force[j] * eta, LEAST))
        f[j], force[j] = losses[j] + share * short, share * curvature[j]
        shifted[j] = centre[j] + f[j] / mu if mu > 0 else centre[j]
        total += weights[j] * f[j]
    return curve, age, eta, mu, total


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _mean(gradients, weights, mean):
    some = np.empty(len(weights), np.int64)
    for k in range(len(mean)):  # mean[:] = 0 takes long to compile
        mean[k] = 0.0
    for i in range(_positions(weights, some)):
        j = some[i]
        for k in range(len(mean)):
            mean[k] += weights[j] * gradients[j, k]


@njit(cache=True)
def _positions(weights, some):
    """Write the positions of weights other than 0 to the front of ``some``, and count them.

    A processor cannot predict them, so that counting is quicker than branching.
    """
    count = 0
    for j in range(len(weights)):
        some[count] = j
        count += weights[j] != 0
    return count


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _descend(
    units,
    w,
    weights,
    gradients,
    length,
    models,
    made,
    force,
    eta,
    centre,
    pace,
    moved_centre,
    mean,
    to,
    eta_each,
):
    for j in range(len(weights)):
        moved_centre[j] = centre[j] + pace * (weights[j] - centre[j])
    each, some = np.zeros(len(models)), np.empty(max(len(weights), len(models)), np.int64)
    for i in range(_positions(weights, some)):
        j = some[i]
        each[made[j]] += weights[j] * force[j]
    _mean(gradients, weights, mean)
    for k in range(len(mean)):  # to[:] = mean takes seconds to compile
        to[k] = mean[k]
    for i in range(_positions(each, some)):
        v = some[i]
        for k in range(len(w)):
            to[k] += each[v] * (w[k] - length * models[v, k])
    for k in range(len(w)):
        to[k], eta_each[k] = (w[k] - eta * to[k]) / units[k], eta / units[k] ** 2


# The client's half of AsyncDRO: its risk and its gradient at a model, and a first curvature.
#
#     L_j = ||(g - g') / u|| / ||u (w - w')||
#
# at the first model w and a probe w' a short way down the gradient. The units u of the coefficients
# are the root mean squares of what they multiply, here in the client's own rows.

NUDGE = 1e-3  # share of its loss by which a client's first, probing step would lower it


@record
class Meet:
    """The first message: ask for risk, gradient and curvature at ``w``, or at the default start."""

    prior: Annotated[Each, Form("N")]
    w: Annotated[Version, Form("D")] | None


@record
class Met:
    """The client's first line and curvature, and its part of the survey that bounds where an
    optimum lies.
    """

    risk: Each  # (n,) F_j(w)
    gradient: Each  # (n, D) g_j
    curvature: Each  # (n,) L_j
    features: Max  # (n,) their number
    plus: Sum  # these five as in ``Surveyed``
    minus: Sum
    reach: Max
    target: Max
    square: Sum


@record
class Visit:
    """Ask for the client's risk and gradient at ``w``, which are `Linearised`."""

    w: Annotated[Version, Form("D")]


def step_units(problem: Problem, square: Array) -> Array:
    """The units (..., D) in which steps are measured: `units_of`, and 1 where the regulariser's
    prox takes no step for each coefficient.
    """
    units = units_of(problem, square)
    return units if separable(problem.regulariser) else np.ones_like(units)


def meet(problem: Problem, memory: None, ask: Meet, data: Block, rng: Streams) -> tuple[None, Met]:
    """The first line, with L_j along the gradient, which takes a second gradient."""
    shape = len(data.index), problem.predictor.dimension(data.n_features)
    w = np.broadcast_to(problem.model_start(data.n_features) if ask.w is None else ask.w, shape)
    risk, gradient, _ = risk_gradients(problem, w, data)
    units = step_units(problem, data.squares())
    square = ((gradient / units) ** 2).sum(1)
    length = np.divide(NUDGE * risk, square, out=np.zeros_like(risk), where=square > 0)[:, None]
    nudged = w - length * gradient / units**2
    moved = np.linalg.norm(units * (nudged - w), axis=1)
    change = np.linalg.norm((risk_gradients(problem, nudged, data)[1] - gradient) / units, axis=1)
    curvature = np.divide(change, moved, out=np.zeros_like(risk), where=moved > 0)
    seen, features = survey(data, ask.prior), np.full(len(risk), float(data.n_features))
    more = seen.plus, seen.minus, seen.reach, seen.target, seen.square
    return memory, Met(risk, gradient, curvature, features, *more)
