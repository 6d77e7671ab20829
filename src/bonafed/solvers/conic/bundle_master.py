"""The master problem of bundle methods: one small conic program at the server.

    minimise over w, l, t, z:   max_{q in Q} <q, z> + h(w)  [+ ||w - centre||_H^2 / 2]
    subject to  z_s >= sum_p t_sp,   l_s >= Lipschitz * ||w||_*,   l_s >= floor
                and for every cut k of part p of the risk of client s
                t_sp >= base_k + <gradient_k, w - point_k> + gradient_level_k (l_s - level_k)
                        [+ radius_s l_s where p is the first]

with the transport multipliers l of the clients' Wasserstein balls and a set Q of weightings
(``solvers/conic/weight_sets.py``). The multiplier of cut k is its share of the worst weighting q.
z_s is as small as its parts allow, so t_s1 = z_s - sum of the other t_sp is not a variable.

Owners of cuts behind the clients are constraints c <= 0. They have no l, and cost penalty_c max(c,
0): from some penalty on, the minimiser meets them all, and below it their multipliers are those of
the problem with constraints.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.conic import weight_sets as sets
from bonafed.solvers.conic.builder import P_OF, Index, Model, Status

MOST_MEMBERS = 200  # programs solved at most, each with one weighting more
EXPONENTIAL = 500  # clients up to which programs have a cone for each, if they have any
POLISHED = 20  # programs solved at most to polish a solution
ROUGHEST = 1e-9  # accuracy of a solution that is polished: rougher ones take more such programs
# changes of weights: so small, or so small and no longer falling; so small at least
AT_REST, STILL, NEAR = 1e-12, 1e-8, 1e-6
FINER = 1e-10  # to which the programs of a polish are solved, where changes do not fall
PULL = 0.01  # of the accuracy: what a transport multiplier costs, since nothing else may bound it


@dataclass(frozen=True)
class Pieces:
    """K affine pieces ``offset + <gradient, w> + gradient_level * lambda_``, each of one part of
    one client's risk, or of a constraint.

    All arrays have length K; lambda_ is the client's transport multiplier, 0 of a constraint.
    """

    owner: Index
    part: Index
    offset: Array
    gradient: Array  # (K, D)
    gradient_level: Array  # the client's radius not included
    parts: int  # of every client; each has a piece

    @property
    def order(self) -> Index:
        """As rows of the program: those of first parts last."""
        return np.argsort(self.part == 0, kind="stable")


@dataclass(frozen=True)
class Shape:
    """The public part of the problem, which the server knows without any client."""

    n_clients: int
    radius: Array  # (N,) of the samples' Wasserstein balls, 0 where there is none
    # transport multipliers are at least lipschitz * ||w||_* (0 on a bounded support) and ``floor``
    lipschitz: float
    floor: float
    dual: str  # the norm ||.||_*
    # False: one transport multiplier serves all clients, since their pieces do not depend on it
    own_multipliers: bool
    weighting: sets.Weighting | sets.NearEntropy  # Q
    l1: float
    l2: float
    lower: Array | float
    upper: Array | float
    intercept: int  # how many last entries of w no norm and no regulariser sees
    penalties: Array = field(default_factory=lambda: np.zeros(0))  # (C,) of the constraints
    members: sets.Members | None = None  # Q by its maximiser, for programs that fail on its cone
    # h has sum_g weight_g ||w_g||_2 as well, by the group of every coefficient and (G,) weights
    groups: tuple[Index, Array] | None = None
    ball: tuple[float, Array] | None = None  # w is at most so far from this centre (d,)


@dataclass(frozen=True)
class Master:
    """The minimiser, the model's value there without the proximal term, and the multipliers.

    ``point`` begins with w; the program's other variables follow, in its units, and the multipliers
    of its rows, those of the pieces last.
    """

    point: Array
    w: Array
    value: float
    multipliers: Array
    solved: bool


def minimise(
    shape: Shape,
    pieces: Pieces,
    *,
    centre: Array | None = None,
    near: Array | None = None,
    metric: Array | float = 0.0,
    level: float | None = None,
    size: float = math.inf,
    offset: float = math.inf,
    unit: float = 1.0,
    accuracy: float = 1e-11,
) -> Master:
    """Solve the master problem.

    Parameters
    ----------
    centre, metric : the proximal term ``||w - centre||_metric^2 / 2`` (a number or a (D, D)
        matrix); none by default
    near : a model that may be near the minimiser, which the solver starts from, or the ``point`` of
        a program like this one, from which it takes a third to half fewer iterations
    level : project the centre on {model <= level} instead of minimising the model
    size, offset : bounds on ``||w||_*`` and on the intercept that hold an optimal model
    unit : typical size of the objective; the program is solved in this unit
    accuracy : of the conic solver, relative; a bound is proved from the multipliers whatever it is

    Where Q is known by its maximiser, or is an ``Entropy`` of very many clients, the program is
    solved again with every worst weighting that it finds; where it is an ``Entropy`` of few, near
    the weights that it finds, so that the rounding of cuts moves the minimiser no further than over
    other sets. One piece of every client, all of given weights, makes a system of equations.
    """
    H = np.asarray(metric, float)
    if centre is not None and level is None and math.isinf(size):
        by_newton = _of_newton(shape, pieces, centre, H, offset)
        if by_newton is not None:
            return by_newton
    # Units: the objective in ``unit``, every coordinate and the transport multipliers such that
    # their gradients, or their curvatures, have size one.
    scale = unit / steepness(pieces.gradient)
    if H.ndim == 2:
        scale = np.sqrt(unit / np.diag(H))
    fee = float(shape.radius.max(initial=0.0) + np.abs(pieces.gradient_level).max(initial=0.0))
    lambda_unit = unit / fee if fee > 0 else unit
    weights = slice(0, len(scale) - shape.intercept)  # w without the intercept
    scaled = np.outer(scale, scale) if H.ndim == 2 else scale**2
    scaled *= H  # a matrix may be as large as the data
    H = np.divide(scaled, unit, out=scaled)
    floors = {"lipschitz": shape.lipschitz / lambda_unit, "floor": shape.floor / lambda_unit}
    costs = {"l1": shape.l1 / unit, "l2": shape.l2 / unit}
    groups = shape.groups and (shape.groups[0], shape.groups[1] / unit)
    fees = {"radius": shape.radius * lambda_unit / unit, "groups": groups}
    sides = {"lower": shape.lower / scale[weights], "upper": shape.upper / scale[weights]}
    heights = {"offset": pieces.offset / unit, "gradient": pieces.gradient * (scale / unit)}
    heights |= {"gradient_level": pieces.gradient_level * (lambda_unit / unit)}
    problem, cuts = replace(shape, **floors, **costs, **fees, **sides), replace(pieces, **heights)
    near, level = _start(shape, centre, near, len(scale)), None if level is None else level / unit
    if problem.members is not None and shape.n_clients > EXPONENTIAL:
        problem = replace(problem, weighting=problem.members, members=None)
    if isinstance(problem.weighting, sets.Entropy):
        accuracy = min(accuracy, ROUGHEST)
    program = _Program(problem, cuts, scale, centre, near, H, level, size, offset)
    for _ in range(MOST_MEMBERS):
        master, z, status, nearer = program.solved(accuracy)
        weighting, members = program.shape.weighting, program.shape.members
        if status is Status.FAILED and members is not None:
            failed = replace(program.shape, weighting=members, members=None)
            program = replace(program, shape=failed)
            continue
        if not isinstance(weighting, sets.Members) or not master.solved:
            break
        grown = weighting.grown(z * unit, max(accuracy, 1e-10) * unit)
        if grown is None:
            break
        program = replace(program, shape=replace(program.shape, weighting=grown))
    if nearer is not None and master.solved:
        master = program.polished(master, nearer, accuracy)
    w = master.w * scale
    # the bounds hold exactly, not to the solver's accuracy
    w[weights] = np.clip(w[weights], shape.lower, shape.upper)
    if shape.ball is not None:
        radius, centre = shape.ball
        away = w[weights] - centre
        w[weights] = centre + away * min(1.0, radius / max(float(np.linalg.norm(away)), 1e-300))
    point = np.append(w, master.point[len(w) :])
    return replace(master, point=point, w=w, value=master.value * unit)


def _of_newton(shape: Shape, pieces: Pieces, centre: Array, H: Array, most: float) -> Master | None:
    """The minimiser where the model is one quadratic function, a piece of every client with fixed
    weights; None where it is not, or where the offset would exceed its bound.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    Q, n = shape.weighting, shape.n_clients
    if not (isinstance(Q, sets.Ball) and Q.radius == 0 and H.ndim == 2 and pieces.parts == 1):
        return None
    robust = shape.radius.any() or pieces.gradient_level.any()
    other = shape.l1 or shape.groups or shape.ball or len(shape.penalties)
    bounded = np.isfinite(shape.lower).any() or np.isfinite(shape.upper).any()
    if robust or other or bounded or not np.array_equal(pieces.owner, np.arange(n)):
        return None
    ridge = np.full(len(centre), shape.l2)
    ridge[len(centre) - shape.intercept :] = 0.0
    try:
        factor = cho_factor(H + np.diag(ridge), lower=True, check_finite=False)
    except LinAlgError:
        return None
    slope = Q.prior @ pieces.gradient + ridge * centre
    w = centre - cho_solve(factor, slope, check_finite=False)
    if not np.isfinite(w).all() or (np.abs(w[len(w) - shape.intercept :]) > most).any():
        return None
    value = float(Q.prior @ (pieces.offset + pieces.gradient @ w)) + float(ridge @ w**2) / 2
    return Master(w, w, value, Q.prior, True)


def _start(shape: Shape, centre: Array | None, near: Array | None, size: int) -> Array | None:
    """Where a program begins. Beside penalties and sums of lengths that is the centre: there steps
    from elsewhere leave coefficients that are not quite zero, and took twice the rounds.
    """
    plain = not (len(shape.penalties) or shape.l1 or shape.groups)
    if near is None or (centre is not None and not plain):
        return centre
    return near if plain else near[:size]


@dataclass(frozen=True, eq=False)
class _Program:
    """The master problem in its units, but for the centre and the bounds on w and the intercept.

    ``scale`` (D,) holds the unit of every coordinate of w.
    """

    shape: Shape
    pieces: Pieces
    scale: Array
    centre: Array | None
    near: Array | None
    metric: Array
    level: float | None
    size: float
    offset: float

    def polished(self, master: Master, nearer: sets.NearEntropy, accuracy: float) -> Master:
        """The solution of which ``master`` is one to the accuracy of exponential cones, which one
        unit in the last place of the data moves by some 1e-7: by Newton's method until rounding
        stops it. Where it does not come near, it is ``master``.
        """
        newer, change, best = master, math.inf, (math.inf, master)
        for _ in range(POLISHED):
            shape, near = replace(self.shape, weighting=nearer), newer.w * self.scale
            newer, _, _, after = replace(self, shape=shape, near=near).solved(accuracy)
            if not newer.solved or after is None:
                break
            nearer, before, change = after, change, nearer.apart(after)
            falls, best = change <= before / 2, min(best, (change, newer), key=lambda it: it[0])
            if change <= AT_REST or (not falls and change <= STILL):
                break
            if not falls:  # else a program's end just within its accuracy can turn in a cycle
                accuracy = max(accuracy / 100, FINER)
        return best[1] if best[0] <= NEAR else master

    def solved(self, accuracy: float) -> tuple[Master, Array, Status, sets.NearEntropy | None]:
        """The solution; the clients' risks z (N,) by their pieces there; how it ended; and near
        which weights it is to be polished.
        """
        shape, pieces, scale = self.shape, self.pieces, self.scale
        weights = slice(0, len(scale) - shape.intercept)
        model = Model()
        w, Q, n = model.variable(len(scale)), shape.weighting, shape.n_clients
        # over the whole simplex all z can be the largest
        z = np.repeat(model.variable(), n) if _is_simplex(Q) else model.variable(n)
        excess = model.variable(len(shape.penalties))
        coefficients, owners = w[weights], np.append(z, excess)
        prices = self._risks(model, coefficients, scale[weights], owners, w)
        nearing = _add_worst(model, Q, z)
        if len(excess):
            model.linear(excess, shape.penalties)
            model.nonneg([(excess, 1.0)])
        _regulariser(model, shape, coefficients, scale[weights], as_cost=self.level is None)
        if shape.intercept and math.isfinite(self.offset):
            free = slice(len(scale) - shape.intercept, None)
            for sign in (1.0, -1.0):
                model.nonneg([(w[free], sign), self.offset / scale[free]])
        costs = list(model.costs)
        self._proximal(model, w)
        if prices is not None:  # else they would drift from program to program
            model.linear(np.unique(prices), PULL * accuracy)
        solution = model.solve_fast(tol=accuracy)
        value = sum(float(cost @ solution.x[index]) for index, cost in costs)
        if self.level is None:
            value += shape.l2 / 2 * float(((scale[weights] * solution.x[coefficients]) ** 2).sum())
        price = np.zeros(shape.n_clients) if prices is None else solution.x[prices]
        clients = pieces.owner < shape.n_clients
        fees = np.where(clients, pieces.gradient_level, 0.0) * price[pieces.owner * clients]
        largest = np.full((len(owners), pieces.parts), -math.inf)
        heights = pieces.offset + pieces.gradient @ solution.x[w] + fees
        np.maximum.at(largest, (pieces.owner, pieces.part), heights)
        risks = shape.radius * price + largest[: shape.n_clients].sum(1)
        multipliers = np.empty_like(pieces.offset)
        multipliers[pieces.order] = np.maximum(solution.z[: len(pieces.offset)], 0.0)
        fine = solution.status in (Status.SOLVED, Status.ALMOST_SOLVED, Status.FAILED)
        solved = fine and bool(np.isfinite(solution.x).all())
        point = np.concatenate([solution.x, np.roll(solution.z, -len(pieces.offset))])
        master = Master(point, solution.x[w], value, multipliers, solved)
        return master, risks, solution.status, None if nearing is None else nearing(solution)

    def _risks(self, model: Model, slopes: Index, scale: Array, z: Index, w: Index) -> Index | None:
        """Add the clients' risks z and the bounds of their transport multipliers.

        The pieces are the first rows of the program, in their ``order``.

        Returns every client's transport multiplier, None where there are none.
        """
        shape, pieces, size = self.shape, self.pieces, self.size
        lambda_ = prices = None
        # at radius 0 too: cuts of runs at another radius hold only with their transport multiplier
        fees = bool(pieces.gradient_level.any())
        robust, separate = fees or bool(shape.radius.any()), fees or shape.own_multipliers
        if robust:
            lambda_ = model.variable(shape.n_clients if separate else 1)
            prices = lambda_ if separate else np.repeat(lambda_, shape.n_clients)
        others = model.variable(len(z) * (pieces.parts - 1)).reshape(len(z), -1)
        radius = np.append(shape.radius, np.zeros(len(shape.penalties)))
        if prices is not None:  # those of constraints are 0, whatever is multiplied by it
            price = np.append(prices, np.repeat(prices[:1], len(shape.penalties)))
        first = pieces.part == 0
        for mine in (~first, first):
            owner, part = pieces.owner[mine], pieces.part[mine]
            rows: list = [(w, -pieces.gradient[mine]), -pieces.offset[mine]]
            if part.any():
                rows.append((others[owner, part - 1], 1.0))
            else:  # the first part is what the others leave of z
                rows.append((z[owner], 1.0))
                rows += [(others[owner, p], -1.0) for p in range(others.shape[1])]
            if prices is not None:
                # what it costs stands beside what the first part gains by it, maybe all of that
                fee = radius[owner] * (part == 0)
                rows.append((price[owner], -(fee + pieces.gradient_level[mine])))
            if len(owner):
                model.nonneg(rows)
        if lambda_ is not None:
            model.nonneg([(lambda_, 1.0), -shape.floor])
        if (lambda_ is not None and shape.lipschitz) or math.isfinite(size):
            norm, middle = model.variable(), float(np.median(scale))
            model.norm_at_most([(slopes, scale / middle)], [(norm, 1.0)], P_OF[shape.dual])
            if lambda_ is not None and shape.lipschitz:
                bound = np.repeat(norm, len(lambda_)), -shape.lipschitz * middle
                model.nonneg([(lambda_, 1.0), bound])
            if math.isfinite(size):
                model.nonneg([size / middle, (norm, -1.0)])
        return prices

    def _proximal(self, model: Model, w: Index) -> None:
        """Add the proximal term, or replace the objective by the distance to the centre."""
        H = self.metric
        if self.level is not None:
            costs = [(index, -cost[None, :]) for index, cost in model.costs]
            model.costs.clear()
            model.nonneg([self.level, *costs])
            H = np.ones(len(w))  # a projection: its size does not matter
        if self.near is not None:
            rows = model.height - len(self.pieces.offset)  # without those of the pieces
            whole = len(self.near) >= model.size + rows
            known = self.near[: model.size if whole else len(w)].copy()
            known[: len(w)] /= self.scale
            model.near(np.arange(len(known)), known)
            if whole and H.ndim == 2:  # programs of cuts change too much
                likely = self.near[model.size :]
                unknown = np.full(model.height - rows, math.nan)
                pieces = likely[rows:] if len(likely) == model.height else unknown
                model.likely = np.append(pieces, likely[:rows])
        if self.centre is not None:
            model.quadratic(w, H)
            centre, scale = self.centre, self.scale
            model.linear(w, -(H @ (centre / scale) if H.ndim == 2 else H * centre / scale))


def steepness(gradients: Array) -> Array:
    """The largest gradient in every coordinate, (D,): the size of its feature; never 0."""
    largest = np.abs(gradients).max(0, initial=0.0)
    top = largest.max(initial=0.0)
    return np.maximum(largest, 1e-9 * top) if top > 0 else np.ones_like(largest)


def _is_simplex(Q: sets.Weighting | sets.NearEntropy) -> bool:
    return isinstance(Q, sets.Ball) and math.isinf(Q.radius)


def _add_worst(model: Model, Q: sets.Weighting | sets.NearEntropy, z: Index) -> sets.Nearing | None:
    """Add phi(z) to the objective, for z that cuts bound from below only."""
    if isinstance(Q, sets.Entropy | sets.NearEntropy):
        return Q.add_nearing(model, z)
    if _is_simplex(Q):
        model.linear(z[:1], 1.0)
    elif isinstance(Q, sets.Ball | sets.Elliptic):
        Q.add(model, z, larger=True)
    else:
        Q.add(model, z)
    return None


def _regulariser(model: Model, shape: Shape, slopes: Index, scale: Array, as_cost: bool) -> None:
    """h(w) = l1 ||w||_1 + l2 ||w||_2^2 / 2 + the indicator of lower <= w <= upper, and lengths of
    groups, or a ball.
    """
    middle = float(np.median(scale)) if len(scale) else 1.0
    if shape.l1:
        total = model.variable()
        model.norm_at_most([(slopes, scale / middle)], [(total, 1.0)], 1)
        model.linear(total, shape.l1 * middle)
    if shape.l2 and as_cost:
        model.quadratic(slopes, shape.l2 * scale**2)
    elif shape.l2:  # s >= ||w||^2 / 2 as ||(w, (s - 1) / sqrt 2)|| <= (s + 1) / sqrt 2
        s = model.variable()
        model.linear(s, shape.l2 * middle**2)
        root = 1 / math.sqrt(2)
        w_and_s = np.concatenate([slopes, s]), np.append(scale / middle, root)
        model.soc([(s, root), root], [w_and_s, np.append(np.zeros(len(slopes)), -root)])
    if shape.groups is not None:
        group, weights = shape.groups
        for g, weight in enumerate(weights):
            inside, length = np.flatnonzero(group == g), model.variable()
            model.soc([(length, 1.0)], [(slopes[inside], scale[inside] / middle)])
            model.linear(length, weight * middle)
    if shape.ball is not None:
        radius, centre = shape.ball
        body: list = [(slopes, scale / middle), -centre / middle]
        model.soc([np.array([radius / middle])], body)
    for bound, sign in ((shape.lower, 1.0), (shape.upper, -1.0)):
        bounds = np.broadcast_to(bound, slopes.shape)
        finite = np.isfinite(bounds)
        if finite.any():
            model.nonneg([(slopes[finite], sign), -sign * bounds[finite]])
