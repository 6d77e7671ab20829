"""AsyncDRO: asynchronous descent on the worst case over client weights, with one stored gradient
for each client.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F = (F_1, ..., F_N)

The server stores for every client j its last linearisation, the line F_j(w) ~ b_j + <g_j, w>.
Whenever clients answer, it replaces their lines and takes one step:

    e_j = L_j ||w - w_j||^2 / 2   the shortfall: line j, made at w_j, is about so far below F_j(w)
    s_j = e_j / (e_j + tau mu / r_j)  the share of the shortfall that is counted,
            r_j = p_j L_j (1 + a_j) eta >= 0.003
    f = b + G w + s e           the risks at w to first order; without s e stale risks diverge
    p = Proj_Q(c + f / mu)                  their worst client weights near a centre c
    c <- c + (p - c) / (1 + p'a)            a_j: the age of line j, in steps
    w <- prox_{eta h}(w - eta (g + sum_j p_j s_j L_j (w - w_j)))  g = G'p,
            1 / eta = sum_j p_j L_j (1 + a_j)

    mu = eta (max_j d_j + sum_{p_j > 0} d_j),
            d_j = ||g_j - g||^2 with the g and p of the step in which line j was replaced

Then it sends w to the clients who answered. L_j is the curvature of F_j between the last two models
at which client j answered. Coefficients, gradients and models count in units of the root mean
squares of what they multiply, unless the regulariser's prox couples coefficients, so that the units
of the columns change nothing. The centre removes the bias of mu. So the user has no step size to
choose: the ages keep the delayed iteration stable, and f changes p by so little that eta times the
curvature which this adds, at most sum_{p_j > 0} d_j / mu, is below one. Where Q has no projection
(a custom set with a maximiser only) c moves towards the worst client weights of f, and p = c.

A line lies below its convex risk, so a model far from w_j looks better to client j than it is. If
that client is the slowest one and has a large weight, the client weights move away from it and back
with every answer, without end. Counting e_j holds w near w_j: with s_j = 1 a step minimises a
majorant. That is slow where lines are accurate. Therefore tau = 3: a shortfall hardly counts if it
would move p little, or if its client has a small share r_j of the step. Once the clients of large
weight have answered 40 times, tau is halved with every third further answer.

No convergence proof is claimed, but the stopping test is a proof: where everything is convex the
lines bound every F_j from below however old they are, so that the minimum of p'(b + G v) + h(v) is
a lower bound. Once it is near, w stands still until every client has answered at it.

The server learns every client's risk and gradient at the models that it was sent, and its curvature
at the first one. It stores N D numbers, the models at which lines were made or that are on their
way, and both once more in single precision. Clients store nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms.federated import linearisation
from bonafed.algorithms.federated.linearisation import risk_gradients, step_units
from bonafed.algorithms.method import Ids, Next
from bonafed.algorithms.requirements import MEAN_OF_ROWS, SMOOTH, Requirements
from bonafed.arrays import Array, Block, writable
from bonafed.codec import Extended, Form, changed
from bonafed.problem.claims import Claim, Features, Number
from bonafed.problem.conic_form import member
from bonafed.problem.lower_bounds import Surveyed, survey
from bonafed.problem.plausible import Claims, of_risk, of_sizes
from bonafed.problem.problem import Problem
from bonafed.rounds import Done, Each, Max, Round, Stop, Sum, Version, record

# The stored gradients of an asynchronous server: the last line of each client, and the models at
# which these were made.
#
#     F_j(v) ~ b_j + <g_j, v>,  below the risk by about  e_j(v) = L_j ||v - w_j||^2 / 2
#             at other models than w_j
#
# Clients whose lines were made at one model, or who were sent one model, share one copy of it. A
# row of ``places`` that no client needs any more is overwritten, so that the number of clients
# bounds that of the rows. Each step reads all of them, for which single precision is enough
# (``models``): an error of 1e-7 in the place of a line is one of 1e-14 in e_j. These and the
# single-precision gradients are scaled by powers of two near the first gradients, and near the
# first loss over these, whatever units features and targets have.
#
# L_j is the curvature between the last two models at which client j answered, w_j and w_j', in
# units of the coefficients:
#
#     L_j = ||g_j - g_j'|| / ||w_j - w_j'||
#
# The values of the lines at the present model, b + G w, are updated by G (w' - w) when it moves to
# w', with gradients in single precision, since reading them is most of the server's work; the error
# vanishes with the steps. The value of a client who answers is computed anew, and those of all
# clients once in N answers.

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


def first_lines(up: "Met", w: Array, mean: Array) -> Lines:
    """The lines of the first answers, of all N clients at the model w before step 0."""
    n, steepest = len(up.risk), float(np.abs(up.gradient).max(initial=0.0))
    far = max(float(np.abs(up.risk).max()) / max(steepest, TINY), float(np.abs(w).max(initial=0.0)))
    steepness, length = _unit(steepest), _unit(far)
    wide, turn, users = -(-len(w) // WIDE) * WIDE, np.full(FEW, -1), np.zeros(FEW, np.int64)
    models, rough = np.zeros((FEW, wide), np.float32), np.zeros((n, wide), np.float32)
    places = np.zeros((FEW, len(w)))
    places[0], models[0, : len(w)], users[0] = w, w / length, 2 * n
    np.divide(up.gradient, steepness, out=rough[:, : len(w)], casting="same_kind")
    none = np.zeros((3, n), np.int64)
    level, apart = up.risk - up.gradient @ w, ((up.gradient - mean) ** 2).sum(1)
    values = up.gradient.copy(), rough, up.risk.copy(), np.zeros(len(w)), up.curvature.copy()
    ages = np.zeros(n), none[0], apart, none[1], none[2]
    return Lines(level, *values, *ages, places, models, turn, users, steepness, length)


def _unit(size: float) -> float:
    """A power of two near a size, whose square is finite; 1 near 0 and infinity."""
    return 2.0 ** min(max(math.frexp(size)[1], -500), 500) if TINY < size < math.inf else 1.0


def no_answers(n: int) -> Answers:
    """The answers of no clients, with n coefficients."""
    return np.zeros(0, np.intp), np.zeros(0), np.zeros((0, n))


def _written(lines: Lines) -> tuple[Any, ...]:
    """What `_renew` writes, and the steepness."""
    values = lines.level, lines.gradients, lines.rough, lines.losses, lines.step
    ages = lines.curvature, lines.apart, lines.gap, lines.last
    return *values, *ages, lines.made, lines.sent, lines.places, lines.users, lines.steepness


def with_sent(lines: Lines, to: NDArray[np.intp], w: Array, turn: int) -> Lines:
    """The lines after these clients were sent w after step ``turn``; with twice the room for models
    where it is full.
    """
    where = lines.sent, lines.turn, lines.users, lines.length
    if _ask(to, w, turn, *where, lines.places, lines.models) < len(lines.users):
        return lines
    rooms = {"places": lines.places, "models": lines.models, "users": lines.users}
    more = {name: np.concatenate([room, np.zeros_like(room)]) for name, room in rooms.items()}
    unused = np.concatenate([lines.turn, np.full_like(lines.turn, -1)])
    return with_sent(replace(lines, **more, turn=unused), to, w, turn)


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _follow(rough, step, steepness, losses):
    """Add the model's step to the losses, and set it to zero."""
    size = 0.0
    for k in range(len(step)):
        size = max(size, abs(step[k]))
    if not size > 0:
        return
    along, whole = np.zeros(rough.shape[1], np.float32), len(losses) // 4 * 4
    unit = steepness * size
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
    """Store the answers of step ``turn``, with losses at w and distances from ``mean``."""
    ids, risks, steep = answered
    level, gradients, rough, losses, step, curvature, apart = written[:7]
    gap, last, made, sent, places, users, steepness = written[7:]
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
def _predict(ids, risks, steep, units, w, mean, p, c, turn, length, models, *rest):
    """Store the answers; then f = b + G w + s e with s_j = e_j / (e_j + trust mu / r_j), s_j L_j
    and c + f / mu, (N,) each; sum_j p_j L_j (1 + a_j), p'a, eta, mu and p'f.

    The rest are the factor of eta, the least such sum, the largest eta, tau, and ``_written``.
    """
    factor, least, most, trust = rest[:4]
    _renew((ids, risks, steep), units, w, mean, turn, rest[4:])
    _, _, _, losses, _, curvature, apart, gap, last, made, _, _, _, _ = rest[4:]
    f, force, shifted = np.empty(len(p)), np.empty(len(p)), np.empty(len(p))
    square, here = np.zeros(len(models), np.float32), np.zeros(models.shape[1], np.float32)
    for v in range(len(models)):
        square[v] = -1.0
    for j in range(len(made)):
        square[made[j]] = 0.0
    for k in range(len(w)):
        here[k] = w[k] / length
    curve, age, spread = _sums(p, curvature, apart, gap, last, turn, force)
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
        shifted[j] = c[j] + f[j] / mu if mu > 0 else c[j]
        total += p[j] * f[j]
    return f, force, shifted, curve, age, eta, mu, total


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _mean(gradients, weights):
    """G'p."""
    some, mean = np.empty(len(weights), np.int64), np.zeros(gradients.shape[1])
    for i in range(_positions(weights, some)):
        j = some[i]
        for k in range(len(mean)):
            mean[k] += weights[j] * gradients[j, k]
    return mean


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
def _descend(units, w, p, gradients, length, models, made, force, eta, c, pace):
    """c + pace (p - c) and G'p; w - eta (G'p + sum_j p_j force_j (w - w_j)), and eta, for each
    coefficient in the data's units.
    """
    centre, mean, etas = np.empty(len(p)), _mean(gradients, p), np.empty(len(w))
    for j in range(len(p)):
        centre[j] = c[j] + pace * (p[j] - c[j])
    each, some = np.zeros(len(models)), np.empty(max(len(p), len(models)), np.int64)
    for i in range(_positions(p, some)):
        j = some[i]
        each[made[j]] += p[j] * force[j]
    to = mean.copy()
    for i in range(_positions(each, some)):
        v = some[i]
        for k in range(len(w)):
            to[k] += each[v] * (w[k] - length * models[v, k])
    for k in range(len(w)):
        to[k], etas[k] = (w[k] - eta * to[k]) / units[k], eta / units[k] ** 2
    return centre, mean, to, etas


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


def meet(problem: Problem, ask: Meet, data: Block) -> Met:
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
    return Met(risk, gradient, curvature, features, *more)


SOON = 0.5  # of the tolerance: the predicted gap at which w stands still to be judged
LATER = 0.25  # factor of that after a judgement that failed
TRUST = 3.0  # tau: a shortfall of this times mu / r_j is counted by half
# answers of the clients of large weight after which tau falls, and after which it is halved
PATIENCE, HALVED = 40, 3
# of the largest curvature so far, below which the measured curvature does not set the step
FLAT = 1e-6


@record
class AsyncState:
    """The server's state; its arrays are overwritten in place."""

    w: Annotated[Array, Form("D")]
    place: Annotated[Array, Form("D")]  # w in units of its coefficients
    units: Annotated[Array, Form("D")]  # these units
    lines: Lines | None  # in these units
    weights: Annotated[Array, Form("N")]  # p
    centre: Annotated[Array, Form("N")]  # c
    mean: Annotated[Array, Form("D")]  # g, in these units
    predicted: Annotated[Array, Form("N")]  # f
    turn: Annotated[int, Form(rounds=-1)] = 0
    answers: int = 0  # since the gap was predicted last
    cycles: float = 0.0  # answers so far of the clients, averaged by their weights
    eta: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    steepest: float = 0.0  # largest curvature so far
    value: Extended = math.inf  # exact objective of the first model, or of the last one judged
    bound: Extended = -math.inf  # largest lower bound so far
    # length of the first step over eta
    first: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    soon: float = SOON  # predicted gap, over the tolerance, at which w stands still
    still: Annotated[int, Form(least=-1)] = -1  # the step since which w stands still, -1: it moves
    seen: Surveyed | None = None


@dataclass(frozen=True)
class AsyncDRO(base.Method):
    """The default asynchronous algorithm, for any smooth model, with nothing to tune and without
    rounds that wait for stragglers.

    On an engine in which all clients answer at once (``InProcess``) it is synchronous gradient
    descent on the model and proximal ascent on the client weights.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)); where nothing
        proves a bound, when the step has become so much shorter than the first one
        (``Stop.UNPROVEN``)
    max_rounds : a cap on the server's steps; a run that meets it is never called optimal
    step : factor of the step size; 1 is stable as long as ages and curvatures are right
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for losses that are not smooth, settings out of range

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.AsyncDRO(), max_rounds=500)
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    tol: float = 1e-3
    atol: float = 0.0
    max_rounds: int = 1_000_000
    step: float = 1.0
    start: Array | None = None
    problem: Problem | None = None
    unaware: ClassVar[bool] = True
    requirements: ClassVar[Requirements] = Requirements(over_samples=MEAN_OF_ROWS, loss=SMOOTH)
    mutates_state: ClassVar[bool] = True
    stateless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        base.check_positive(self, "step", remedy="The default is 1.")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Meet: self._answering(meet), Visit: self._answering(linearisation.linearise)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Met: self.begin, linearisation.Linearised: self.renew}

    @property
    def claims(self) -> Claims:
        return {Met: self._met, **linearisation.linear(self.concrete)}

    def _met(self, who: int, ask: Meet, up: Met) -> Iterator[Claim]:
        """What a first answer claims."""
        problem, d = self.concrete, up.square.shape[1]
        w = problem.model_start(d) if ask.w is None else ask.w
        yield of_sizes(problem, float(ask.prior[0]), up)
        yield from of_risk(problem, w, up.risk, up.gradient)
        yield Number("a curvature", up.curvature)
        yield Features(np.append(up.features, d))

    def server_start(self, n_clients: int) -> tuple[AsyncState, Round]:
        none, prior = np.zeros(0), member(self.concrete, n_clients)
        state = AsyncState(none, none, none, None, prior, prior, none, none)
        start = None if self.start is None else np.asarray(self.start, float)
        return state, Round(Meet(prior, start))

    def begin(self, state: AsyncState, ids: Ids, up: Met) -> Next[AsyncState]:
        """Store the first lines, of all clients, and take a step."""
        problem = self.concrete
        w = base.with_start(problem, self.start, int(up.features))
        value, units = self.value_at(w, up.risk), step_units(problem, up.square)
        up = replace(up, gradient=up.gradient / units)
        mean = state.weights @ up.gradient
        seen = Surveyed(up.plus, up.minus, up.reach, up.target, up.square)
        place = units * w
        state = replace(state, w=w, place=place, units=units, lines=first_lines(up, place, mean))
        state = replace(state, mean=mean, value=value, seen=seen)
        state = self._stepped(state, 0, 0, no_answers(len(w)), len(ids))
        return self._ask(state, ids)

    def renew(self, state: AsyncState, ids: Ids, up: linearisation.Linearised) -> Next[AsyncState]:
        """Replace the lines of the clients who answered, and take a step."""
        turn, count = state.turn + 1, state.answers + len(ids)
        new = np.array(ids, np.intp), writable(up.risk), writable(up.gradient)
        if state.still >= 0 or turn >= self.max_rounds:
            written = _written(base.known(state.lines))
            _renew(new, state.units, state.place, state.mean, turn, written)
            state = replace(state, turn=turn, answers=count)
            return self._judged(state, ids) if state.still >= 0 else (state, Done(Stop.MAX_ROUNDS))
        return self._ask(self._near(self._stepped(state, turn, count, new, len(ids))), ids, new[0])

    def _stepped(
        self, state: AsyncState, turn: int, answered: int, new: Answers, fresh: int
    ) -> AsyncState:
        """The state after a step with these answers; ``fresh`` lines are new."""
        risk, lines, here = self.concrete.over_clients, base.known(state.lines), state.place
        # where losses saturate, curvatures vanish, and no line is accurate so far away
        longer = 2.0 ** (fresh / len(state.weights))
        most = state.eta * longer if turn else self._longest(state)
        # the factor tau after so many answers of the clients of large weight
        tau = TRUST * 2.0 ** (-max(0.0, state.cycles - PATIENCE) / HALVED)
        sizes = float(self.step), max(FLAT * state.steepest, TINY), most, tau
        # one by one, since the compiler's dispatch takes microseconds for a tuple of arrays
        before = state.units, here, state.mean, state.weights, state.centre, turn
        given: Any = (*new, *before, lines.length, lines.models, *sizes, *_written(lines))
        f, force, shifted, curve, age, eta, mu, loss = _predict(*given)
        if not math.isfinite(curve + loss):
            raise ArithmeticError(
                "a client's answer is not finite: rescale the features, or give AsyncDRO(step=0.1)."
            )
        pace, projected = 1.0 / (1.0 + age), hasattr(risk, "project")
        if projected:
            p = risk.project(shifted) if mu > 0 else state.weights
        else:
            p = state.centre + pace * (risk.weights(f) - state.centre)
        where = lines.gradients, lines.length, lines.models, lines.made
        moves = (state.centre, pace) if projected else (p, 0.0)
        centre, mean, *to = _descend(state.units, here, p, *where, force, eta, *moves)
        w = self.concrete.prox(*to)
        place = state.units * w
        np.subtract(place, here, out=lines.step)
        first = state.first if state.turn else float(np.linalg.norm(lines.step)) / eta
        state = changed(state, w=w, place=place, weights=p, centre=centre, mean=mean, predicted=f)
        state = changed(state, turn=turn, answers=answered, cycles=state.cycles + pace, eta=eta)
        return changed(state, steepest=max(state.steepest, curve), first=first)

    def _longest(self, state: AsyncState) -> float:
        """The longest first step, where a loss may be measured as linear, such as Huber's far from
        its targets: ||g||^2 <= 2 L F wherever F >= 0, so that no right curvature L is less.
        """
        value = float(state.weights @ base.known(state.lines).losses)
        square = float(state.mean @ state.mean)
        return 2.0 * self.step * value / square if min(value, square) > 1e-100 else 1.0

    def _near(self, state: AsyncState) -> AsyncState:
        """Once in N answers, let w stand still if the lines predict that the end is near."""
        if state.answers < len(state.weights):
            return state
        state = replace(state, answers=0, bound=max(state.bound, self._bound(state, state.value)))
        if self._ended(state, self._lines(state), state.soon):
            return replace(state, still=state.turn)
        return state

    def _judged(self, state: AsyncState, ids: Ids) -> Next[AsyncState]:
        """Let w stand still until every line was made at it, since then the risks are exact; a
        client whose line was waits for the others.
        """
        lines = base.known(state.lines)
        if len(old := np.flatnonzero(lines.turn[lines.made] < state.still)):
            if state.turn >= self.max_rounds:
                return state, Done(Stop.MAX_ROUNDS)
            return self._ask(state, sorted(set(old.tolist()).intersection(ids)))
        state = replace(state, mean=_mean(lines.gradients, state.weights))
        risks = self._lines(state)
        value = self.value_at(state.w, risks)
        bound = self._bound(state, value)  # from lines at one model, as a certificate can repeat it
        if self._ended(replace(state, bound=bound), risks, 1.0):
            state = replace(state, value=value, bound=bound, predicted=risks)
            return state, Done(Stop.OPTIMAL if math.isfinite(value - bound) else Stop.UNPROVEN)
        state = replace(state, value=value, bound=max(state.bound, bound), predicted=risks)
        if state.turn >= self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        state = replace(state, still=-1, soon=LATER * state.soon)
        state = self._stepped(state, state.turn, 0, no_answers(len(state.w)), len(ids))
        return self._ask(state, range(len(risks)))

    def _lines(self, state: AsyncState) -> Array:
        """b + G w computed anew, which the lines store, too."""
        lines = base.known(state.lines)
        np.matmul(lines.gradients, state.place, out=lines.losses)
        lines.losses[:] += lines.level
        lines.step[:] = 0.0
        return lines.losses.copy()

    def _bound(self, state: AsyncState, value: float) -> float:
        """The lower bound that the lines prove: they are below the risks, however old they are."""
        risk, gradient = float(state.weights @ self._lines(state)), state.units * state.mean
        proof = risk, gradient, state.weights, state.seen
        return linearisation.bound_at(self.concrete, state.w, value, *proof)

    def _ended(self, state: AsyncState, risks: Array, share: float) -> bool:
        """Whether w is optimal to ``share`` of the tolerance if its risks are these."""
        value = self.value_at(state.w, risks)
        # old lines may predict less than any model can have, which is not the end
        if math.isfinite(state.bound):
            return abs(value - state.bound) <= share * self._allowed(value, state.bound)
        lag = value - self.concrete.penalty(state.w) - float(state.weights @ risks)
        near = lag <= share * self._allowed(value, value)
        return near and self._length(state) <= share * self.tol * state.first

    def _allowed(self, value: float, bound: float) -> float:
        return base.Progress(value, bound, self.tol, self.atol).allowed()

    def _length(self, state: AsyncState) -> float:
        """The length of the next step over eta, which is 0 at a stationary point."""
        to, units = state.place - state.eta * state.mean, state.units
        moved = self.concrete.prox(to / units, state.eta / units**2) - state.w
        return float(np.linalg.norm(units * moved)) / state.eta

    def _ask(
        self, state: AsyncState, ids: Ids, to: NDArray[np.intp] | None = None
    ) -> tuple[AsyncState, Round]:
        """Send w to these clients; ``to`` is the same as an array, where there is one."""
        to = np.array(ids, np.intp) if to is None else to
        lines = with_sent(base.known(state.lines), to, state.place, state.turn)
        state = state if lines is state.lines else replace(state, lines=lines)
        return state, Round(Visit(state.w), tuple(ids), 1)

    def report(self, state: AsyncState) -> dict:
        """``predicted`` is the weighted sum of the risks that the lines predict, with h; it is not
        the objective.
        """
        return {
            "predicted": float(state.weights @ state.predicted) + self.concrete.penalty(state.w),
            **base.worst_client(state.predicted),
            "bound": state.bound,
            "step_size": state.eta,
        }

    def answer(self, state: AsyncState, concluded: base.Concluded | None = None) -> base.Answer:
        return base.Answer(state.w, linearisation.duals_at(self.concrete, state.w, state.weights))
