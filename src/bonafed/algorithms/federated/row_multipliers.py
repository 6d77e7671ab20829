"""The method of multipliers on the rows' weights: kinks and superquantiles of many coefficients.

    minimise over w, eta:  sum_k a_k eta_k + sum_ik c_i cap_k max(x_ik, 0) + a_0 mean(l(w)) + h(w)
    x_ik = l_i(w) - eta_k,  cap_k max(x, 0) = max { q x : 0 <= q <= cap_k }

i runs over the rows of all clients, k over few thresholds (``problem/rank_levels.py``); for the
mean of a loss with linear pieces the thresholds are its knots, fixed, and l_i is minus the margin,
or the residual. Outer iteration j keeps centres a_ik of the weights, and the inner problem has

    max { q x - mu / (2 cap_k) (q - a_ik)^2 : 0 <= q <= cap_k }

in the place of cap_k max(x, 0): it is smooth, and L-BFGS at the server minimises it over w and eta,
with one round of all clients for each evaluation. Its q are the next centres. These are proximal
point steps on the dual (Rockafellar, *Augmented Lagrangians and applications of the proximal point
algorithm in convex programming*), as in ``multiplier_method`` with rows for clients.

Centres stay with the clients. What travels are sums over their rows, D numbers and a few more: a
round costs a product with the rows and one with their transpose. Models, thresholds and penalties
of the outer iterations say what every row weighs, and prove the bound (``Duals.path``).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated import linearisation as lines
from bonafed.algorithms.federated.kinks import of_coordinates, of_pieces
from bonafed.algorithms.federated.rank_rows import BeginRanks, BegunRanks, Place, begin
from bonafed.algorithms.method import Ids, Next, known
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.claims import AllRows, Claim, Number
from bonafed.problem.client_means import row_shares
from bonafed.problem.conic_form import member
from bonafed.problem.losses import value_and_gradient
from bonafed.problem.lower_bounds import (
    NOTHING,
    Duals,
    Minorant,
    Survey,
    Surveyed,
    lower_bound,
    region,
)
from bonafed.problem.plausible import Claims, of_curvature, of_losses, of_sum, surveys
from bonafed.problem.predictors.affine import pullback
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import (
    Levels,
    coordinate,
    kinks_of,
    levels,
    multiplied,
    ridge_of,
    turned,
)
from bonafed.rounds import Done, Each, Round, Sum, record
from bonafed.solvers.smooth import stepwise
from bonafed.solvers.smooth.stepwise import QuasiNewton

FIRST = 0.1  # penalty, in units of the mean loss, or of the mean distance from a knot
INNER = 0.1  # an inner problem is solved to this share of what new centres may bring
LEAST = 1e-100  # penalty, whose inverse is a number
SLOW, SHRINK = 0.5, 0.3  # the penalty falls to SHRINK where that falls to no less than SLOW
MARGIN = 0.9  # of the tolerance at which a run ends: certificates are charged for rounding
MOVES = 6  # of intercept and thresholds in a row, for a proof
# rounds before second derivatives, at least; from one to the next they grow by a quarter of all, so
# that a bad metric stands for some of them only
PATIENT, LATER = 16, 1.25
EVEN = 0.01  # of second derivatives goes to all columns alike: other rows come near their knots
TRIES = 4  # searches that end without a step while nothing improves


@record
class Multiply:
    """Ask for the sums at a place, with weights by the centres."""

    at: Place
    first: Annotated[Array, Form("K")]  # the first centre of every row
    penalty: float
    renewed: bool  # whether the weights of the last answer are the centres from now on
    longest: int  # rows of the largest client
    weights: Annotated[Each, Form("N")] | None = None  # of the clients, where they are averaged
    bend: bool = False  # whether second derivatives are wanted


@record
class Multiplied:
    """Sums over all rows at a place."""

    loss: Sum  # (1,) l_i
    above: Sum  # (1, K) max(x_ik, 0)
    weight: Sum  # (1, K) q_ik
    weighted: Sum  # (1, K) q_ik l_i
    away: Sum  # (1,) (q_ik - a_ik)^2 / cap_k
    # (1, 1, D) of all weights; where rows are ranked (1, K + 1, D) q_ik l_i', then l_i'
    gradients: Sum
    # second derivatives in the intercept (1,), the thresholds (1, K), and between them
    bend: Sum
    rate: Sum
    cross: Sum
    curvature: Sum | None = None  # (1, Q, Q) second derivatives in model and thresholds


@record
class Centres:
    """A client's memory, with zeros for rows that it does not have."""

    centre: Annotated[Array, Form("n, rows, K")]
    weight: Annotated[Array, Form("n, rows, K")]


@record
class RowMultiplierState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # best model so far
    inner: QuasiNewton  # over model and thresholds, in units
    units: Annotated[Array, Form("Q")]  # of the steps
    weights: Annotated[Array, Form("N")]  # of the clients
    # of the outer iterations, before which there is none: models, thresholds, penalties
    path: Annotated[Array, Form("S, D")] | None = None
    thresholds: Annotated[Array, Form("S, L")] | None = None
    penalties: Annotated[Array, Form("S")] | None = None
    proof: Duals | None = None  # of the best bound
    value: Extended = math.inf
    bound: Extended = -math.inf
    penalty: Extended = math.inf  # mu
    held: Annotated[Array, Form("Q")] | None = None  # asked about next in place of a trial
    renewed: bool = False  # the centres, for the answer that comes next
    alike: bool = True  # whether its inner problem is like the last one
    lag: Extended = math.inf  # what new centres could bring, at the end of the last inner problem
    rows: Annotated[float, Form()] = 0.0  # of all clients, or the sum of their weights
    longest: Annotated[int, Form()] = 0
    moves: Counter = 0  # of intercept and thresholds, in a row
    failures: Counter = 0
    mark: Extended = math.inf  # the gap when a search last failed
    rounds: Annotated[int, Form(rounds=-1)] = 0
    seen: Surveyed | None = None
    # L, where second derivatives L L' stand for the units; and the round that brought them
    root: Annotated[Array, Form("Q, Q")] | None = None
    bent: Counter = 0


State = RowMultiplierState


@dataclass(frozen=True)
class RowMultiplierMethod(base.Method):
    """A first-order method with a proof for losses with linear pieces (hinge, quantile, absolute),
    and for superquantiles of all rows, of models with many coefficients.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol |value|) is proven
    max_rounds : a cap; a run that meets it is never called optimal
    metric : of the steps, "units": those of the columns; "hessian": where a run takes longer,
        second derivatives are asked for too, a D x D sum now and then, so that columns that are
        alike slow no step down
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for regularisers other than L2; for means of losses without linear pieces; with rows ranked,
        for losses that are not smooth, and risks other than Superquantile, TopK, Maximum and a
        Spectral of at most 24 steps

    Notes
    -----
    For many coefficients, or sparse rows: a round takes about as many operations as there are
    numbers in the rows, and D numbers from every client, sums over its rows. Some 100 to 1,500
    rounds prove a relative gap of 1e-6.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.RowMultiplierMethod())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 10_000
    metric: Literal["units", "hessian"] = "units"
    start: Array | None = None
    problem: Problem | None = None
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        over_rows=needs.NO_OR_FEW_LEVELS,
        predictor=needs.LINEAR,
        over_samples=needs.MEAN_OF_ROWS,
        over_clients=needs.AVERAGE,
        loss=needs.KINKS_OR_RANKED,
        regulariser=needs.RIDGE,
        rows=needs.EQUAL_IF_RANKED,
    )

    def __post_init__(self) -> None:
        base.check_end(self, "tol", "atol")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        mine = {BeginRanks: self._answering(begin), Multiply: self.client_step(multiply)}
        return {Survey: lines.take_part, **mine}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Surveyed: self.begin, BegunRanks: self.open, Multiplied: self.improve}

    @property
    def _ranked(self) -> bool:
        return self.concrete.over_rows is not None

    @property
    def claims(self) -> Claims:
        mine = {BegunRanks: self._begun, Multiplied: self._said}
        return {**surveys(self.concrete), **mine}

    def _begun(self, who: int, ask: BeginRanks, up: BegunRanks) -> Iterator[Claim]:
        rows = float(up.rows[0])
        yield AllRows(rows)
        yield Number("its number of rows", up.longest, rows, rows)
        if ask.weights is None:
            yield from of_losses(self.concrete, ask.w, rows, up.loss, up.largest)
            return
        yield from of_coordinates(known(ask.weights), up)

    def _said(self, who: int, ask: Multiply, up: Multiplied) -> Iterator[Claim]:
        for value in (up.above, up.weight, up.away):
            yield Number("a sum of weights", value)
        at, most = ask.at, math.inf if ask.bend else 0.0
        if ask.bend and ask.weights is not None:
            most = float(np.sum(ask.weights) * at.caps.sum() / ask.penalty)
        here = np.append(at.w, at.thresholds if ask.weights is None else [])
        yield from of_curvature(self.concrete, here, up.curvature, most, 1.0)
        if ask.weights is None:  # losses, where margins and residuals have any sign
            yield Number("a weighted sum of losses", up.weighted)
            yield from of_sum(self.concrete, at.w, up.loss, up.gradients[0, -1])
            return
        total = float(np.sum(ask.weights))
        yield from of_pieces(self.concrete, at.w, at, total, up, up.gradients[0, 0])

    def server_start(self, n_clients: int) -> tuple[State, Round]:
        none, weights = np.zeros(0), member(self.concrete, n_clients)
        state = State(base.start_or_empty(self.start), stepwise.begin(none), none, weights)
        return state, Round(Survey(weights))

    def begin(self, state: State, ids: Ids, seen: Surveyed) -> Next[State]:
        w = base.with_start(self.concrete, self.start, len(seen.square))
        return replace(state, w=w, seen=seen), Round(BeginRanks(w, self._each(state)))

    def open(self, state: State, ids: Ids, up: BegunRanks) -> Next[State]:
        """Thresholds at the mean loss, and a penalty of its size."""
        rows = float(up.rows) if self._ranked else float(state.weights.sum())
        mean = float(up.loss) / rows
        eta, size = np.zeros(0), mean
        if self._ranked:
            eta = np.full(len(self._levels(rows).shares), mean)
        else:
            size += float(np.abs(kinks_of(self.concrete.loss).knots).mean())
        units = lines.units_of(self.concrete, known(state.seen).square)
        penalty = max(FIRST * size, LEAST)
        # of steps: what a row bends by the first penalty, and the regulariser
        bends = self.concrete.regulariser.strong_convexity * penalty
        inside = len(self.concrete.predictor.split(state.w)[0])
        units[:inside] = np.sqrt(units[:inside] ** 2 + bends)
        units = np.append(units, np.ones(len(eta)))
        none = np.zeros((0, len(state.w))), np.zeros((0, len(eta))), np.zeros(0)
        state = replace(state, rows=rows, longest=int(up.longest), units=units, rounds=1)
        state = replace(state, path=none[0], thresholds=none[1], penalties=none[2])
        state = replace(state, penalty=penalty)
        inner = stepwise.begin(self._steps(state, np.append(state.w, eta)))
        return self._ask(replace(state, inner=inner))

    def _steps(self, state: State, point: Array) -> Array:
        """Model and thresholds in the coordinates of the steps."""
        return point * state.units if state.root is None else point @ state.root

    def _point(self, state: State, steps: Array, slope: bool = False) -> Array:
        """Model and thresholds, from the coordinates of the steps; or a gradient, in these."""
        if state.root is None:
            return steps / state.units
        return lines.over_root(state.root, steps, turned=not slope)

    def _bends(self, state: State) -> bool:
        """Whether second derivatives are due: those of the rows between their knots change with the
        model and the penalty.
        """
        due = LATER * state.bent + max(PATIENT, len(state.units) // 12)
        return self.metric == "hessian" and state.rounds >= due

    def _turned(self, state: State, H: Array) -> State:
        """The state with steps in the metric of second derivatives, in place of the pairs'."""
        state, inner = replace(state, bent=state.rounds), state.inner
        size = np.size(self.concrete.predictor.split(state.w)[0])
        spread = state.units**2
        H = H + np.diag(EVEN * float(np.trace(H)) / spread.sum() * spread)
        root = lines.root_of(H, self.concrete.regulariser.strong_convexity, size)
        if root is None or inner.failed or not math.isfinite(inner.value):
            return state
        gradient = inner.gradient
        gradient = gradient * state.units if state.root is None else state.root @ gradient
        inner = lines.in_metric(inner, root, self._point(state, inner.w), gradient)
        return replace(state, root=root, inner=inner)

    def improve(self, state: State, ids: Ids, up: Multiplied) -> Next[State]:
        """One evaluation of the inner problem."""
        asked, at = self._bends(state), self._at(state)
        state = replace(state, rounds=state.rounds + 1)
        value, gradient = self._smoothed(state, at, up)
        gradient = self._point(state, gradient, slope=True)
        inner, held = state.inner, state.held
        if held is None:
            inner = stepwise.observe(inner, value, gradient)
        elif state.renewed:
            start = replace(inner, w=held)
            inner = stepwise.restart(start, value, gradient, keep=state.alike)
        # a search that rounding ended: its best point is asked about, and has new centres
        rests = inner.failed or (held is not None and not state.renewed and not state.moves)
        state = replace(state, inner=inner, renewed=False, held=None)
        if asked and up.curvature is not None:
            state = self._turned(state, up.curvature)
        if inner.failed:
            gap = state.value - state.bound
            failures = 1 if gap < state.mark * (1 - 1e-12) else state.failures + 1
            state = replace(state, failures=failures, mark=gap)
        if inner.accepted or held is not None:
            state = self._judged(state, at, up, rests)
        elif inner.failed:
            state = replace(state, held=inner.w)
        if (stop := self._progress(state).stop) is not None:
            return state, Done(stop)
        return self._ask(state)

    def _judged(self, state: State, at: Place, up: Multiplied, rests: bool) -> State:
        """The state with a value and a bound and, at the end of an inner problem, new centres."""
        value, minorant = self._proved(state, at, up)
        if value < state.value:
            state = replace(state, w=at.w, value=value)
        size = np.size(self.concrete.predictor.split(at.w)[0])
        where = region(self.concrete, state.value, size, state.seen)
        bound = lower_bound(self.concrete, minorant, where)[0]
        thresholds = at.thresholds if self._ranked else at.thresholds[:0]
        before = known(state.path), known(state.thresholds), known(state.penalties)[:, None]
        here = at.w, thresholds, [state.penalty]
        path = [np.vstack(both) for both in zip(before, here, strict=True)]
        path[2] = path[2][:, 0]
        if bound > state.bound:
            none = np.zeros((0, len(at.w))), np.zeros((0, len(state.weights)))
            steps = dict(zip(("path", "thresholds", "penalties"), path, strict=True))
            state = replace(state, bound=bound, proof=Duals(state.weights, *none, **steps))
        free, lag, left = self._left(state, at, up)
        allowed = self._progress(state).allowed(MARGIN)
        point = np.append(at.w, at.thresholds[: len(state.units) - len(at.w)])
        # what the weights leave in an intercept or a threshold costs the bound the most, and is
        # taken away for a proof
        if state.moves < MOVES and lag + left <= allowed < state.value - bound:
            point[size:] += free
            return replace(state, held=self._steps(state, point), moves=state.moves + 1)
        state = replace(state, moves=0)
        if left > max(INNER * lag, allowed / 4) and not rests:
            return state
        alike = not lag > SLOW * state.lag
        penalty = max(state.penalty * (1.0 if alike else SHRINK), LEAST)
        state = replace(state, path=path[0], thresholds=path[1], penalties=path[2], lag=lag)
        # what is evaluated next is the same point with other centres
        held = self._steps(state, point)
        return replace(state, held=held, penalty=penalty, renewed=True, alike=alike)

    def _smoothed(self, state: State, at: Place, up: Multiplied) -> tuple[float, Array]:
        """The inner problem's objective and its gradient."""
        ridge = ridge_of(self.concrete, at.w)
        value = at.plain * float(up.loss) + float(up.weighted.sum() - at.thresholds @ up.weight)
        value += self.concrete.penalty(at.w) - state.penalty / 2 * float(up.away)
        gradient = ridge * at.w + self._sloping(at, up, np.ones(len(at.caps)))
        if self._ranked:
            shares = self._levels(state.rows).shares
            value += float(shares @ at.thresholds)
            gradient = np.append(gradient, shares - up.weight)
        else:
            value += state.rows * float(kinks_of(self.concrete.loss).heights[0])
        return value, gradient

    def _sloping(self, at: Place, up: Multiplied, scale: Array) -> Array:
        """The gradient of the rows by their weights, those of every level times ``scale``."""
        if not self._ranked:
            return up.gradients[0]
        return np.append(scale, at.plain) @ up.gradients

    def _left(self, state: State, at: Place, up: Multiplied) -> tuple[Array, float, float]:
        """Newton's step in intercept and thresholds; what further centres may bring at a place; and
        about how far the inner problem is from its minimum.
        """
        _, gradient = self._smoothed(state, at, up)
        size = np.size(self.concrete.predictor.split(at.w)[0])
        ridge, K = ridge_of(self.concrete, at.w)[:size], len(at.caps) * self._ranked
        lag = float(at.caps @ up.above - up.weighted.sum() + at.thresholds @ up.weight)
        bend = np.diag(np.append(np.full(len(at.w) - size, float(up.bend)), up.rate[:K]))
        if K and len(at.w) > size:
            bend[0, 1:] = bend[1:, 0] = -up.cross
        step = np.zeros(len(bend))
        if not (np.isfinite(bend).all() and np.isfinite(gradient).all()):  # overflows, or a lie
            return step, lag, math.inf
        bends = np.diag(bend) > 0
        inside = np.ix_(bends, bends)
        step[bends] = -np.linalg.lstsq(bend[inside], gradient[size:][bends], rcond=1e-12)[0]
        left = float((gradient[:size] ** 2 / (2 * ridge)).sum() - step @ gradient[size:] / 2)
        straight = gradient[size:][~bends].any()  # where no step is known
        return step, lag, math.inf if straight else left

    def _proved(self, state: State, at: Place, up: Multiplied) -> tuple[float, Minorant]:
        """The value at a place, and the minorant of the weights."""
        n, plain = state.rows, at.plain * float(up.loss)
        if self._ranked:
            of = self._levels(n)
            value = float(of.shares @ at.thresholds + at.caps @ up.above) + plain
            # weights that sum to no more than the share of every level: no loss is negative
            less = np.minimum(of.shares / np.maximum(up.weight, 1e-300), 1.0)
            gradient = self._sloping(at, up, less)
            height = float(less @ up.weighted) + plain
        else:
            plain += n * float(kinks_of(self.concrete.loss).heights[0])
            value = plain + float(at.caps @ up.above)
            gradient = up.gradients[0]
            height = plain + float(up.weighted.sum() - at.thresholds @ up.weight)
        none, weights = np.zeros(len(state.weights)), state.weights
        minorant = Minorant(height - float(gradient @ at.w), gradient, none, weights)
        return value + self.concrete.penalty(at.w), minorant

    def _at(self, state: State) -> Place:
        """Where the clients are asked: the inner problem's trial, or its best point."""
        point = self._point(state, state.inner.trial if state.held is None else state.held)
        if self._ranked:
            of, D = self._levels(state.rows), len(state.w)
            return Place(point[:D], point[D:], of.caps(int(state.rows)), of.mean / state.rows)
        of = kinks_of(self.concrete.loss)
        return Place(point, of.knots, of.jumps, float(of.slopes[0]))

    def _ask(self, state: State) -> Next[State]:
        at = self._at(state)
        first = at.caps / 2
        if self._ranked:
            first = at.caps * self._levels(state.rows).tails
        about = state.penalty, state.renewed, state.longest, self._each(state)
        ask = Round(Multiply(at, first, *about, self._bends(state)))
        return base.unless_capped(state, ask, state.rounds, self.max_rounds)

    def _each(self, state: State) -> Array | None:
        return None if self._ranked else state.weights

    def _levels(self, n: float) -> Levels:
        return levels(self.concrete.over_rows, int(n))

    def _progress(self, state: State) -> base.Progress:
        proven = state.value if state.value <= NOTHING else state.bound
        ends = state.failures, TRIES
        numbers = state.value, proven, self.tol, self.atol
        return base.Progress(*numbers, 0, math.inf, *ends, MARGIN)

    def report(self, state: State) -> dict:
        """``value``, ``bound`` and ``gap`` of the run, and how many outer iterations there were."""
        gap = {"value": state.value, "bound": state.bound, "gap": state.value - state.bound}
        return gap | {"outer": 0 if state.penalties is None else len(state.penalties)}

    def answer(self, state: State, concluded: base.Concluded | None = None) -> base.Answer:
        """The best model, and the path that proves the bound."""
        return base.Answer(state.w, state.proof)


# -- steps of the clients --------------------------------------------------------------------------


def multiply(
    problem: Problem, memory: Centres | None, ask: Multiply, data: Block, rng: Streams
) -> tuple[Centres, Multiplied]:
    """The row weights at a place, and their sums; arrays are (n, m, K) with padding of share 0."""
    at, ranked, y = ask.at, ask.weights is None, data.y
    prediction, back = pullback(problem.predictor, at.w, data.joined)
    prediction = prediction.reshape(y.shape)
    if ask.weights is None:
        share = (data.share > 0).astype(float)
        height, slope = value_and_gradient(problem.loss, prediction, y)
    else:
        share = ask.weights[:, None] * row_shares(problem, data)
        height, slope = coordinate(problem.loss, prediction, y), turned(problem.loss, y)
    x, m = height[..., None] - at.thresholds, y.shape[1]
    if memory is None:
        centre = np.broadcast_to(ask.first, x.shape)
    else:
        centre = (memory.weight if ask.renewed else memory.centre)[:, :m]
    weight = multiplied(centre, x, at.caps, ask.penalty)
    counted, total = share[..., None] * weight, share * (at.plain + weight.sum(-1))
    if ranked:
        each = [counted[..., k] for k in range(len(at.caps))]
        each.append(share)
    else:
        each = [total]
    inside = (weight > 0) & (weight < at.caps)
    rate = np.where(inside, share[..., None] * at.caps / ask.penalty, 0.0)
    cross, bend = rate * slope[..., None], (rate.sum(-1) * slope**2).sum()
    if ranked:  # else rows are straight
        bend += (total * problem.loss.curvature(prediction, y)).sum()
    curvature = None
    if ask.bend:
        bends = rate.sum(-1) * slope**2
        if ranked:
            bends += total * problem.loss.curvature(prediction, y)
        curvature = problem.predictor.gram(bends, data)
        if ranked:  # with the thresholds
            mixed = np.concatenate([back(a.reshape(1, -1)) for a in np.moveaxis(-cross, -1, 0)])
            corner = np.diag(rate.sum((0, 1)))
            curvature = np.block([[curvature, mixed.T], [mixed, corner]])
        curvature = curvature[None]
    kept = (_padded(a, data, ask.longest) for a in (centre, weight))
    return Centres(*kept), Multiplied(
        loss=(share * height).sum()[None],
        above=np.einsum("nm,nmk->k", share, np.maximum(x, 0.0))[None],
        weight=counted.sum((0, 1))[None],
        weighted=np.einsum("nm,nmk->k", height, counted)[None],
        away=(share[..., None] * (weight - centre) ** 2 / at.caps).sum()[None],
        gradients=np.concatenate([back((a * slope).reshape(1, -1)) for a in each])[None],
        bend=bend[None],
        rate=rate.sum((0, 1))[None],
        cross=cross.sum((0, 1))[None],
        curvature=curvature,
    )


def _padded(values: Array, data: Block, longest: int) -> Array:
    """With zeros for rows that a client does not have."""
    n, m, K = values.shape
    out = np.zeros((n, longest, K))
    np.copyto(out[:, :m], values, where=(data.share > 0)[..., None])
    return out
