"""Lower bounds on the optimum, proved by affine minorants and by where an optimal model can lie.

Weak duality. For q in Q and convex combinations of cuts, for every w and all transport
multipliers l_s >= max(Lip ||w||_*, floor),

    F(w) + h(w) >= constant + <g, w> + sum_s k_s l_s + h(w),   k_s = q_s radius_s + gradient_level_s

and the right side is minimised in closed form: Lip K ||w||_* = max { <v, w> : ||v|| <= Lip K } with
K = sum_s k_s, so for *any* such v (and any s in the domain of h*) it is at least ``constant - h*(s)
+ <g + v + s, w>``; what is left of g + v + s meets a bound on w that every model as good as a known
one obeys. No solver has to be believed.
"""

import math
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import DUAL, Array, Block, norm
from bonafed.client_names import ClientName
from bonafed.codec import Form
from bonafed.problem.conic_form import member, multiplier_floor, sample_radii
from bonafed.problem.constraints.group_means import OfLoss, OnRows, Shared
from bonafed.problem.losses import Quadratic, has_log_link
from bonafed.problem.problem import Problem, check_convex
from bonafed.problem.rank_levels import WithThresholds, highest
from bonafed.problem.regularisers import L1, L2, Ball, Bounds, ElasticNet, GroupL2, Zero
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Each, Max, Sum, record
from bonafed.solvers.conic.builder import P_OF, Model
from bonafed.solvers.sets.projections import project_lp_unit_ball

NEARBY = 1000  # times the length of a model, up to which a proof holds where nothing bounds optima
NOTHING = 1e-18  # an objective that no relative gap of 1e-6 resolves from 0, which no loss is below


@record
class Survey:
    """Ask for sizes: of the rows, to bound an intercept, and of each feature; ``prior`` (N,) weighs
    the clients.
    """

    prior: Annotated[Each, Form("N")]


@record
class Surveyed:
    """What a client discloses: only sums and maxima over all clients reach the server."""

    # prior-weighted share of rows with y = +1; where y is any number, mean of max(y, 0), up to 1
    plus: Annotated[Sum, Form("")]
    minus: Annotated[Sum, Form("")]  # and with y = -1; of max(-y, 0), up to 1
    # largest ||x||_2 and largest |y|, rounded up to powers of two: each is one row's
    reach: Annotated[Max, Form("")]
    target: Annotated[Max, Form("")]
    # (n, d) prior-weighted mean square of every feature: its size, and the number of features
    square: Annotated[Sum, Form("features")]

    def and_of(self, others: "Surveyed") -> "Surveyed":
        """The sums and maxima over these clients and others."""
        far = np.maximum(self.reach, others.reach), np.maximum(self.target, others.target)
        plus, minus = self.plus + others.plus, self.minus + others.minus
        return Surveyed(plus, minus, *far, self.square + others.square)


@record
class Duals:
    """What proves a bound: models, and each client's multipliers of the cuts at these models.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> duals = bf.solve(problem, fed).duals
    >>> round(float(duals.weights.sum()), 6)
    1.0
    """

    weights: Annotated[Array, Form("N")]  # the adversary's client weights, in Q
    points: Annotated[Array, Form("J, D")]
    # (J, N), columns summing to weights; or (J, N, P) of the P parts of every client's risk
    multipliers: Annotated[Array, Form("J, N, ...")]
    # (n,) of one client: multipliers of its rows in rank coordinates, instead of points
    rows: Annotated[Array, Form("rows")] | None = None
    # (n,) where no bound exists, the rank coordinates z at which they are stationary
    split: Annotated[Array, Form("rows")] | None = None
    # (3,) how risks are parted (``problem.parts.Parts``) where multipliers are of their parts
    parts: Annotated[Array, Form("3")] | None = None
    # models between which the slopes of rows are moved to first order, instead of multipliers of
    # the first part (``problem.parts.shifted_minorants``)
    pair: Annotated[Array, Form("2, D")] | None = None
    # (1,) the barrier that makes a loss with linear pieces smooth, beside a pair of a model and a
    # step from it, which may be too short for a sum of both
    barrier: Annotated[Array, Form("1")] | None = None
    # what rows weigh after steps of a method of multipliers, from the first to the last: its
    # models, their thresholds and its penalties (``problem.rank_levels.followed``)
    path: Annotated[Array, Form("T, D")] | None = None
    thresholds: Annotated[Array, Form("T, L")] | None = None
    penalties: Annotated[Array, Form("T")] | None = None
    # (J, N) where cuts at a point are those of balls of other radii than the problem's: these
    radii: Annotated[Array, Form("J, N")] | None = None
    # (J, C, P) of the cuts of constraints, by owner (`equalities`)
    limits: Annotated[Array, Form("J, C, P")] | None = None
    # (d + 1,) of the features and the target: the points are models of rows less this
    # (`bonafed.problem.centring`); None: of the rows as they are
    centre: Annotated[Array, Form("M")] | None = None

    @property
    def by_rows(self) -> bool:
        """Whether slopes of rows prove the mean losses, for the clients' ``weights``."""
        return self.pair is not None or self.path is not None

    def steps(self, numbers: int, levels: int | None) -> tuple[Array, Array, Array]:
        """The path, its thresholds and penalties, of models of so many numbers with so many
        thresholds; None: of a problem that has no such proof.

        Raises
        ------
        ValueError
            unless they are these
        """
        parts = (self.path, self.thresholds, self.penalties)
        path, thresholds, penalties = (np.zeros(0) if a is None else np.asarray(a) for a in parts)
        shapes, J = [part.shape for part in (path, thresholds, penalties)], len(path)
        whole = J > 0 and shapes == [(J, numbers), (J, levels), (J,)] and (penalties > 0).all()
        if not (whole and all(np.isfinite(part).all() for part in (path, thresholds, penalties))):
            needed = f"models of {numbers} numbers, {levels} thresholds for each and penalties > 0"
            raise ValueError(
                "duals.path, thresholds and penalties are for means of a loss with linear pieces,"
                f" and for rows ranked at few levels, and need as many finite {needed}, got shapes"
                f" {shapes}."
            )
        return path, thresholds, penalties

    def used(self) -> "Duals":
        """Without the points that have no multiplier."""
        keep = self.multipliers.any(axis=tuple(range(1, self.multipliers.ndim)))
        if self.limits is not None:
            keep |= self.limits.any(axis=(1, 2))
        radii, limits = (None if part is None else part[keep] for part in (self.radii, self.limits))
        points, multipliers = self.points[keep], self.multipliers[keep]
        return replace(self, points=points, multipliers=multipliers, radii=radii, limits=limits)

    def shapes(self, n_clients: int, dimension: int) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays need for so many clients and models of so many numbers, where
        that does not depend on the rows.
        """
        points, steps = len(self.points), 0 if self.path is None else len(self.path)
        parts = () if self.parts is None else self.multipliers.shape[2:3]
        one = parts or (1,)
        return {
            "weights": (n_clients,),
            "points": (points, dimension),
            "multipliers": (points, n_clients, *parts),
            "parts": (3,),
            "pair": (2, dimension),
            "barrier": (1,),
            "path": (steps, dimension),
            "thresholds": (steps, 0 if self.thresholds is None else self.thresholds.shape[-1]),
            "penalties": (steps,),
            "radii": (points, n_clients),
            "limits": (points, *(() if self.limits is None else self.limits.shape[1:2]), *one),
        }


def feasible_duals(problem: Problem, duals: Duals) -> Duals:
    """With multipliers >= 0 rescaled so that those of every client, or of every part of its risk,
    sum to its weight in Q exactly.

    Raises
    ------
    ValueError
        where the samples' risk is not convex: cuts of it prove nothing; and where a weight needs a
        multiplier and there is no point
    """
    check_convex(problem)
    multipliers = np.maximum(duals.multipliers, 0.0)
    total = multipliers.sum(0)
    by_client = total if total.ndim == 1 else total.mean(1)
    weights = problem.over_clients.project(duals.weights if duals.by_rows else by_client)
    wanted = np.array(np.broadcast_to(weights.reshape(-1, *[1] * (total.ndim - 1)), total.shape))
    if duals.by_rows:
        wanted.reshape(len(wanted), -1)[:, 0] = 0.0
    multipliers, limits = _adding_up(multipliers, wanted), duals.limits
    if limits is not None:
        limits = np.maximum(limits, 0.0)
        wanted = np.repeat(limits.sum(0).mean(1, keepdims=True), limits.shape[2], 1)
        limits = _adding_up(limits, wanted)
    return replace(duals, weights=weights, multipliers=multipliers, limits=limits)


def _adding_up(multipliers: Array, wanted: Array) -> Array:
    """Multipliers (J, ...) rescaled so that they add up to what is wanted (...)."""
    total = multipliers.sum(0)
    scale = np.divide(wanted, total, out=np.zeros_like(total), where=total > 0)
    multipliers, missing = multipliers * scale, (total <= 0) & (wanted > 0)
    if missing.any():
        if not len(multipliers):
            raise ValueError("duals must have a point for every part of a risk, got none.")
        fullest = np.argmax(multipliers.sum(tuple(range(1, multipliers.ndim))))
        multipliers[fullest, missing] = wanted[missing]
    return multipliers


def without_dual(problem: Problem) -> str:
    """Why no multipliers prove a bound: what a custom part of the problem lacks; "" for none."""
    needs = {"conjugate": problem.regulariser, "project": problem.over_clients}
    lacks = [(type(part).__name__, verb) for verb, part in needs.items() if not hasattr(part, verb)]
    return " and ".join(f"{name} has no method `{verb}`" for name, verb in lacks)


def row_duals(rows: Array, split: Array, dimension: int) -> Duals:
    """Duals of one client's rows: multipliers and rank coordinates (n,), no points."""
    return Duals(np.ones(1), np.zeros((0, dimension)), np.zeros((0, 1)), rows, split)


def survey(block: Block, prior: Array) -> Surveyed:
    """The answer to ``Survey`` of every client of the block."""
    plus, minus = (prior * block.mean(np.clip(block.y * sign, 0.0, 1.0)) for sign in (1, -1))
    reach, target = rounded_up(block.longest()), rounded_up(np.abs(block.y).max(1))
    return Surveyed(plus, minus, reach, target, block.square_sum(prior))


def answer_survey(problem: Problem, ask: Survey, data: Block) -> Surveyed:
    """The answer of every client to the question itself."""
    return survey(data, ask.prior)


def rounded_up(numbers: Array) -> Array:
    """Numbers >= 0 rounded up to powers of two, 0 as it is."""
    powers = np.exp2(np.ceil(np.log2(np.where(numbers > 0, numbers, 1.0))))
    return np.where(numbers > 0, np.maximum(powers, numbers), 0.0)


class Region(NamedTuple):
    """Bounds that every model with objective <= ``value`` obeys; inf where nothing is known."""

    size: float  # ||coefficients||_*
    length: float  # ||coefficients||_2
    offset: float  # |intercept|
    value: float


def region(problem: Problem, value: float, n_features: int, seen: Surveyed | None) -> Region:
    """Bounds on every model whose objective is at most ``value``.

    On all of R^n with nonnegative losses F(w) >= max_q <q, radius> Lip ||w||_*; a coercive
    regulariser gives h(w) <= value. The intercept: sum_s prior_s F_s(w) <= value and the loss grows
    at least linearly.
    """
    if isinstance(problem.loss, Quadratic):  # which may be negative
        return Region(math.inf, math.inf, math.inf, value)
    ball, (lipschitz, _) = problem.over_samples, multiplier_floor(problem)
    size = math.inf
    if lipschitz and any(ball.radii()):
        size = value / (lipschitz * float(problem.over_clients.value(np.asarray(ball.radius))))
    length = float(problem.regulariser.domain_radius(value, n_features))
    kind, root = DUAL[_kind(problem)], math.sqrt(n_features)
    to_length, to_size = root if kind == "linf" else 1.0, root if kind == "l1" else 1.0
    size, length = min(size, to_size * length), min(length, to_length * size)
    offset = math.inf
    code = getattr(ball, "code", None)  # of the one class in the objective
    if seen is not None and math.isfinite(length):
        a, b = problem.loss.floor
        least, target = min(float(seen.plus), float(seen.minus)), 0.0
        if problem.loss.targets == "real":
            least, target = 1.0, float(seen.target)
        if has_log_link(problem.loss):  # where all counts are 0 no intercept is best
            least, target = float(seen.plus), 1.0 + math.log(max(target, 1.0))
        if code is not None:  # whose rows bound the intercept on one side, and a limit on the other
            least, value = 1.0, max(value, _level_of_class(problem, -code))
        if least > 0 and a > 0:
            # |<w, x>| over the rows of a class: at most its largest, and its root mean square
            reach = length * min(float(seen.reach), math.sqrt(float(seen.square.sum()) / least))
            if kind == "linf":  # and at most ||w||_inf ||x||_1
                reach = min(reach, size * float(np.sqrt(seen.square / least).sum()))
            offset = reach + target + (value + b) / (a * least)
    if isinstance(problem.predictor, WithThresholds):
        offset = max(offset if problem.predictor.model.intercept else 0.0, highest(problem, value))
    return Region(size, length, offset, value)


def nearby(problem: Problem, w: Array, value: float) -> Region:
    """The models up to `NEARBY` times as long as w."""
    length, n = NEARBY * float(np.linalg.norm(w)), len(problem.predictor.split(w)[0])
    size = length * (math.sqrt(n) if DUAL[_kind(problem)] == "l1" else 1.0)
    return Region(size, length, length, value)


def _level_of_class(problem: Problem, code: float) -> float:
    """What some row of a class loses at most where all constraints are met; inf: nothing is known.

    A mean over rows is at least the smallest of them.
    """
    level = math.inf
    for part in (*problem.local_constraint.parts, *problem.constraint.coupled.parts):
        rows = part.one if isinstance(part, Shared) else part
        if isinstance(rows, OnRows) and rows.measure == OfLoss(problem.loss):
            share = np.array([group.label == code for group in rows.groups]) * rows.coefficients
            alone = (rows.coefficients >= 0).all(1) & (share.sum(1) > 0)
            most = rows.level[:, alone].max(0) / share.sum(1)[alone]
            level = min(level, float(most.min(initial=math.inf)))
    return level


class Minorant(NamedTuple):
    """constant + <gradient, w> + sum_s (weights_s radius_s + gradient_level_s) l_s <= objective -
    h, everywhere.
    """

    constant: float
    gradient: Array  # (D,)
    gradient_level: Array  # (N,)
    weights: Array  # (N,) in Q
    # what rounding may have added to the constant, and to the gradient (D,) at most
    rounding: float = 0.0
    rounding_gradient: Array | float = 0.0


def lower_bound(problem: Problem, minorant: Minorant, where: Region) -> tuple[float, float]:
    """A proven lower bound on the optimal value, and the size of the gradient that nothing balances
    (0: perfect).
    """
    n, radius = len(minorant.weights), sample_radii(problem, len(minorant.weights))
    coefficient = minorant.weights * radius + minorant.gradient_level
    # rounding can leave k_s slightly below 0; then l_s <= value / (q_s radius_s) at every model
    # worth having, for any q in Q: that of a member, and where it is 0 the largest
    loss = 0.0
    for s in np.flatnonzero(coefficient < 0):
        reach = float(member(problem, n)[s] or problem.over_clients.value(np.eye(n)[s])) * radius[s]
        loss += coefficient[s] * where.value / reach if reach > 0 else -math.inf
    total = float(np.maximum(coefficient, 0.0).sum())
    lipschitz, floor = multiplier_floor(problem)
    g, intercept = problem.predictor.split(minorant.gradient)
    kind = _kind(problem)

    def split(share: float) -> tuple[float, float]:  # l >= share Lip ||w||_* + (1 - share) floor
        value, left = _balanced(problem, g, kind, share * lipschitz * total, where)
        return value + (1 - share) * total * floor, float(norm(left, "l2"))

    shares = [float(floor == 0)]
    if lipschitz * total != 0 and floor != 0:  # the proven value is concave in the split
        from scipy.optimize import minimize_scalar

        settings: Any = {"bounds": (0, 1), "method": "bounded", "options": {"xatol": 1e-13}}
        inner: Any = minimize_scalar(lambda share: -split(share)[0], **settings)
        shares = [0.0, 1.0, float(inner.x)]
    best, rest = max(split(share) for share in shares)
    offset = float(np.abs(intercept).sum())
    best += minorant.constant + loss - (offset * where.offset if offset else 0.0)
    # the most that the rounding of the gradient changes at a model worth having
    error = np.broadcast_to(minorant.rounding_gradient, minorant.gradient.shape)
    coefficients, free = problem.predictor.split(error)
    loose = float(np.sum(free))
    rounding = _farthest(coefficients, kind, where) + (loose * where.offset if loose else 0.0)
    best -= minorant.rounding + rounding
    if (best > -math.inf or where.value == 0) and not isinstance(problem.loss, Quadratic):
        best = max(best, 0.0)  # losses, and so the objective, are nonnegative
    return best, max(rest, offset)


def _kind(problem: Problem) -> str:
    """The norm of the transport cost."""
    ball = problem.over_samples
    return ball.norm if isinstance(ball, WassersteinBall) else "l2"


def _farthest(g: Array, kind: str, where: Region) -> float:
    """The most that |<g, w>| can be at a model worth having."""
    if not g.any():
        return 0.0
    ways = ((norm(g, "l2"), where.length), (norm(g, kind), where.size))
    return min(float(size) * far if math.isfinite(far) else math.inf for size, far in ways)


class Pull(NamedTuple):
    """What balances a gradient beside the regulariser: a vector of the ball of the transport
    multipliers. ``room`` (d,) says how much each entry can change, where the sum of the changes
    times ``normal`` (d,) has to be 0.
    """

    room: Array
    normal: Array


def unbalanced(problem: Problem, cut: Minorant, where: Region, sizes: Array) -> tuple[Array, Pull]:
    """What nothing balances of the gradient of a minorant (D,), where its bound on the transport
    multipliers by the norm of the model is used in full; as little as possible in units of
    ``sizes`` (D,), those of the features.
    """
    radius = sample_radii(problem, len(cut.weights))
    fees = float(np.maximum(cut.weights * radius + cut.gradient_level, 0.0).sum())
    g, intercept = problem.predictor.split(cut.gradient)
    kind, reach = _kind(problem), multiplier_floor(problem)[0] * fees
    pull = Pull(np.zeros_like(g), np.zeros_like(g))
    if isinstance(problem.regulariser, Zero) and reach > 0:
        u = _nearest(g, kind, reach, problem.predictor.split(sizes)[0])
        left, size = g - u, np.abs(u)
        pull = {
            "l1": Pull(size, np.sign(u)),
            "l2": Pull(size, u / max(float(norm(u, "l2")), 1e-300)),
            "linf": Pull(reach - size, np.zeros_like(u)),
        }[kind]
    else:
        _, left = _balanced(problem, g, kind, reach, where)
    left = left if left.shape == cut.gradient.shape else np.append(left, intercept)
    return left, pull


def _nearest(g: Array, kind: str, reach: float, sizes: Array) -> Array:
    """The u with ||u||_kind <= reach that is nearest to g in units of ``sizes``, for l2 to rounding
    of its multiplier.
    """
    if kind == "linf":
        return np.clip(g, -reach, reach)
    if float(norm(g, kind)) <= reach:
        return g
    if reach <= 1e-14 * float(norm(g, kind)):
        return np.zeros_like(g)
    if kind == "l1":  # u_j = sign(g_j) max(|g_j| - theta sizes_j^2, 0)
        order = np.argsort(-np.abs(g) / sizes**2)
        size, square = np.abs(g)[order], sizes[order] ** 2
        theta = (np.cumsum(size) - reach) / np.cumsum(square)
        last = int(np.flatnonzero(size > theta * square)[-1])
        return np.sign(g) * np.maximum(np.abs(g) - theta[last] * sizes**2, 0.0)
    from scipy.optimize import brentq

    def over(log_theta: float) -> float:  # u_j = g_j / (1 + theta sizes_j^2)
        return float(norm(g / (1 + math.exp(log_theta) * sizes**2), "l2")) - reach

    most = math.log(float(norm(g, "l2")) / reach / float(sizes.min()) ** 2)
    root: Any = brentq(over, -700.0, max(most, -699.0), xtol=1e-12)
    return g / (1 + math.exp(root) * sizes**2)


def _balanced(
    problem: Problem, g: Array, kind: str, ball: float, where: Region
) -> tuple[float, Array]:
    """max over v in the ball of ``-h*(s) - |g + v + s| * (bound on w)``, and g + v + s there: by
    projection, or alternating projections.
    """
    h = problem.regulariser
    if isinstance(h, L2) and ball == 0:  # which balances all
        return -float(h.conjugate(g)), np.zeros_like(g)
    v = -_project(g, kind, ball)
    s = np.zeros_like(g)
    if isinstance(h, L1 | ElasticNet | GroupL2):
        kink = L1(h.l1) if isinstance(h, ElasticNet) else h
        strength = kink.strength
        most = strength if isinstance(kink, L1) else math.inf
        # two convex sets, the balls of v and s: the nearest pair to -g. The s of the first step
        # leaves every entry, or every group, as small as any s can, so one step is enough for l2,
        # and wherever v takes all the rest.
        v = np.zeros_like(g)
        for _ in range(500):
            push = -(g + v)
            s_new = np.clip(push - kink.prox(push, 1.0), -most, most)  # a length, within rounding
            v = -_project(g + s_new, kind, ball)
            if np.abs(s_new - s).max(initial=0.0) <= 1e-15 * (1 + strength):
                break
            s = s_new
    if ball > 0 and (isinstance(h, Bounds) or (isinstance(h, Ball) and np.any(h.centre))):
        v = _dual_of(g, kind, ball, h)
    if not isinstance(h, Zero | L1):
        s = -(g + v)
    if isinstance(h, Bounds):  # h* is infinite for a push against a bound that is not there
        s = h.pushes(s)
    if isinstance(h, GroupL2):  # and for a group that pushes harder than its weight
        group, weight, length = h.sizes(s)
        s = s * np.minimum((1 - 1e-15) * weight / np.maximum(length, 1e-300), 1.0)[group]
    left = g + v + s
    return -float(h.conjugate(s)) - _farthest(left, kind, where), left


def _dual_of(g: Array, kind: str, ball: float, h: Bounds | Ball) -> Array:
    """The v of the ball of the transport multipliers that minimises h*(-(g + v)): for bounds sum_j
    max(-lower_j (g + v)_j, -upper_j (g + v)_j), for a ball radius ||g + v|| - <centre, g + v>.
    """
    model = Model()
    v = model.variable(len(g))
    if isinstance(h, Ball):
        length = model.variable()
        model.linear(v, -np.broadcast_to(np.asarray(h.centre, float), g.shape))
        model.linear(length, float(h.radius))
        model.soc([(length, 1.0)], [(v, 1.0), g])
    else:
        t = model.variable(len(g))
        model.linear(t, 1.0)
        for bound in (np.broadcast_to(h.lower, g.shape), np.broadcast_to(h.upper, g.shape)):
            finite = np.isfinite(bound)
            if finite.any():
                model.nonneg([(t[finite], 1.0), (v[finite], bound[finite]), (bound * g)[finite]])
            if not finite.all():
                sign = np.sign(bound[~finite])
                model.nonneg([(v[~finite], sign), sign * g[~finite]])
    model.norm_at_most([(v, 1.0)], [np.array([ball])], P_OF[kind])
    v = model.solve().x[v]
    size = float(norm(v, kind))
    # feasible exactly, whatever the solver's accuracy
    return v * min(1.0, ball / size) if size > 0 else v


def _project(v: Array, kind: str, radius: float) -> Array:
    """Euclidean projection onto {||v||_kind <= radius}."""
    return radius * project_lp_unit_ball(v / radius, P_OF[kind]) if radius > 0 else np.zeros_like(v)


# Multipliers of the constraints, and the Lagrangian.
#
#     L(w) = <q, (f_1(w), ..., f_N(w))> + h(w)
#            + <mu_0, c_0(w)> + <mu_c, sum_i c~_i(w)> + sum_i <mu_i, c_i(w)>
#
# in the scale of the objective as stated, mu >= 0 for inequalities: mu is minus the change of the
# optimal value for a change of the limit, the shadow price. q are client weights that the risk over
# clients allows, the prior of a mean.


@record
class Multipliers:
    """One number for every constraint.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> limit = bf.NeymanPearson("malignant", level=0.2)
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     over_samples=bf.Mean(label="benign"),
    ...     local_constraint=limit,
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> multipliers = bf.solve(problem, fed).duals
    >>> multipliers.local.shape, bool((multipliers.local >= 0).all())
    ((6, 1), True)
    """

    server: Annotated[Array, Form("p_0")]  # of c_0
    shared: Annotated[Array, Form("p_c")]  # of the sums over the clients
    local: Annotated[Array, Form("N, p")]  # 0 where a client does not have the constraint
    # (N,) worst weights of the clients, where the risk over them is no mean
    weights: Annotated[Array, Form("N")] | None = None
    # what proves a bound by cuts, see ``Duals``: models, and the multipliers of the cuts of risks
    # and of constraints there; the numbers above are then their sums
    points: Annotated[Array, Form("J, D")] | None = None
    risk_cuts: Annotated[Array, Form("J, N, P")] | None = None
    limit_cuts: Annotated[Array, Form("J, C, P")] | None = None
    parts: Annotated[Array, Form("3")] | None = None
    radii: Annotated[Array, Form("J, N")] | None = None
    centre: Annotated[Array, Form("M")] | None = None


def of_duals(problem: Problem, duals: Duals) -> Multipliers:
    """The multipliers of constraints whose cuts ``duals`` have, which are feasible."""
    limits = duals.limits
    if limits is None:  # without constraints
        limits = np.zeros((len(duals.points), 0, duals.multipliers.shape[-1]))
    local, shared, server = separated(problem, len(duals.weights), limits.sum(0).mean(1))
    cuts = duals.points, duals.multipliers, limits, duals.parts, duals.radii, duals.centre
    return Multipliers(server, shared, local, duals.weights, *cuts)


def as_duals(mu: Multipliers) -> Duals | None:
    """The cuts of the multipliers; None where they have none."""
    if mu.points is None or mu.risk_cuts is None or mu.weights is None:
        return None
    of = {"parts": mu.parts, "radii": mu.radii, "limits": mu.limit_cuts, "centre": mu.centre}
    return Duals(mu.weights, mu.points, mu.risk_cuts, **of)


def no_multipliers(problem: Problem, n_clients: int) -> Multipliers:
    """Zeros of the right shapes, for a concrete problem."""
    glob, local = problem.constraint, np.zeros((n_clients, problem.local_constraint.size))
    return Multipliers(np.zeros(glob.held.size), np.zeros(glob.coupled.size), local)


def signed(problem: Problem, mu: Multipliers) -> Multipliers:
    """The multipliers with negative ones of inequalities set to 0; of cuts they are the sums."""
    if (cuts := as_duals(mu)) is not None:
        mu = of_duals(problem, feasible_duals(problem, cuts))
    glob = problem.constraint
    return replace(
        mu,
        server=np.where(glob.held.equality, mu.server, np.maximum(mu.server, 0.0)),
        shared=np.where(glob.coupled.equality, mu.shared, np.maximum(mu.shared, 0.0)),
        local=np.where(problem.local_constraint.equality, mu.local, np.maximum(mu.local, 0.0)),
    )


def weighting(problem: Problem, mu: Multipliers, n_clients: int) -> Array:
    """(N,) q: the client weights, projected onto the set of the risk over clients."""
    return problem.over_clients.project(np.zeros(n_clients) if mu.weights is None else mu.weights)


def owners(problem: Problem, mu: Multipliers, names: tuple[ClientName, ...]) -> list[ClientName]:
    """Who has a constraint with a multiplier that counts (over 1e-6 of the largest), the largest
    first.
    """
    sizes = np.abs(mu.local).max(1, initial=0.0).tolist()
    size: dict[ClientName, float] = dict(zip(names, sizes, strict=True))
    size["all clients together"] = float(np.abs(mu.shared).max(initial=0.0))
    size["the server"] = float(np.abs(mu.server).max(initial=0.0))
    least = 1e-6 * max(size.values())
    return [name for name, v in sorted(size.items(), key=lambda item: -item[1]) if v > least]


# Cuts of convex constraints: affine functions that lie below them.
#
# A method of cutting planes has them beside the cuts of the clients' risks. Constraints then are
# owners of cuts behind the N clients, in this order: those of client 1, of client 2, ..., the sums
# over the clients, those of the server, and for every equality c = 0 among them -c <= 0 as well.


def equalities(problem: Problem, n_clients: int) -> NDArray[np.bool_]:
    """(L,) which of the constraints of a concrete problem are equalities."""
    local, glob = problem.local_constraint, problem.constraint
    mine = np.tile(local.equality, n_clients)
    return np.concatenate([mine, glob.coupled.equality, glob.held.equality])


def count(problem: Problem, n_clients: int) -> int:
    """C, the number of owners behind the clients."""
    equal = equalities(problem, n_clients)
    return len(equal) + int(equal.sum())


def joined(problem: Problem, local: Array, shared: Array, held: Array) -> Array:
    """(C, ...) in the order of owners, of what the clients' constraints (N, p, ...), the sums over
    the clients (p_c, ...) and the server's constraints (p_0, ...) have.
    """
    every = np.concatenate([local.reshape(-1, *local.shape[2:]), shared, held])
    return np.concatenate([every, -every[equalities(problem, len(local))]])


def separated(problem: Problem, n_clients: int, owned: Array) -> tuple[Array, Array, Array]:
    """The multipliers (N, p, ...), (p_c, ...) and (p_0, ...) that those of the owners (C, ...)
    make.
    """
    equal = equalities(problem, n_clients)
    every = np.array(owned[: len(equal)])
    every[equal] -= owned[len(equal) :]
    p, shared = problem.local_constraint.size, problem.constraint.coupled.size
    mine, together, held = np.split(every, [n_clients * p, n_clients * p + shared])
    return mine.reshape(n_clients, p, *owned.shape[1:]), together, held
