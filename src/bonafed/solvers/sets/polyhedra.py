"""Worst cases and projections over {q : D q <= c, q >= 0, sum q = 1}: by vertices that were met
before, by linear programs, and the nearest point.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import Model, Status
from bonafed.solvers.sets.projections import EPS, Worst, nearest_point, project_simplex, scaled

# Vertices of {q : D q <= c, q >= 0, sum q = 1} that are proved optimal without a linear program.
#
# A vertex is a set F of positive weights and a set T of rows that hold with equality, one fewer,
# and with K = [D_TF; 1'] these are
#
#     K q_F = (c_T, 1),    K'(y_T, g) = z_F,    left = z - D_T'y_T - g
#
# It is the only maximiser of z'q where y_T > 0 and left < 0 outside F, and no other (F, T)
# describes it where q_F and the slack of the other rows are positive. Where all of these hold with
# room to spare (``ROOM``), at most one pair (F, T) satisfies them, wherever the search began. The
# result is computed from that pair, D, c and z only, so it does not depend on earlier calls. A
# degenerate vertex, where more rows meet than it needs, has several pairs; the one that counts
# belongs to the best vertex of the slightly wider set D q <= c + SHIFT u, u fixed. Losses with
# several maximisers are never answered from here: they go to HiGHS, as if there had been no earlier
# calls.
#
# ``Met`` keeps the latest vertices. From the one that is best for new losses, steps of the primal
# simplex method lead to the next: none or a few while losses change slowly.


# the least clearly positive weight, slack, y or reduced cost; losses have a spread of one, and rows
# a largest entry of one
ROOM = 1e-5
NEAR = 1e-6  # an entry of HiGHS's answer below this counts as 0
SHIFT = 1e-4
WIDER = SHIFT / 100  # the room of weights and slacks in the wider set
NOTHING = 1e-12  # weights and slacks below this are 0 up to rounding
# vertices are refused where a row of K^-1 has a larger sum, so that rounding stays far below ROOM
STEEP = 1e3
LARGE = 150  # and where they have more rows, since a factor of K is dense
STEPS = 40
KEPT = 8

Mask = NDArray[np.bool_]


class Vertex(NamedTuple):
    """One pair (F, T) with K^-1, and its weights and slacks in the set and in the wider one."""

    free: NDArray[np.intp]  # F, ascending
    met: NDArray[np.intp]  # T, ascending
    inverse: Array
    rows: Array  # D_T
    q: Array  # (2, |F|)
    slack: Array  # (2, m), inf for T


class Best(NamedTuple):
    """Weights q, the multipliers of the rows that are met (or all), and the bound they prove."""

    q: Array
    y: Array
    bound: float
    size: float  # of the numbers that the bound is the sum of


class Met:
    """The latest vertices of one D and c, the newest first, and (F, T) of the last projection."""

    def __init__(self) -> None:
        self.vertices: tuple[Vertex, ...] = ()
        self.sides: tuple[Mask, Mask] | None = None

    def best(self, z: Array, D: Array, c: Array) -> Best | None:
        """The unique maximiser of z'q, None where these vertices do not lead to it."""
        if not self.vertices:
            return None
        start = self.vertices[int(np.argmax([z[v.free] @ v.q[0] for v in self.vertices]))]
        return self._kept(z, _climbed(z, start, D, c, 0) or _climbed(z, start, D, c, 1), c)

    def near(self, z: Array, q: Array, D: Array, c: Array, wider: bool = False) -> Best | None:
        """The unique maximiser of z'q near q, an answer of HiGHS; None where there is none."""
        least = WIDER / 10 if wider else NEAR
        slack = (widened(c) if wider else c) - D @ q
        start = _vertex(np.flatnonzero(q > least), np.flatnonzero(slack <= least), D, c)
        return None if start is None else self._kept(z, _climbed(z, start, D, c, int(wider)), c)

    def _kept(self, z: Array, at: Vertex | None, c: Array) -> Best | None:
        best = None if at is None else _proved(z, at, c)
        if at is not None and best is not None:
            self.vertices = (at, *(v for v in self.vertices if v is not at))[:KEPT]
        return best


def widened(c: Array) -> Array:
    """c + SHIFT u, with u in [1, 2] in no simple relation."""
    return c + SHIFT * (1 + np.sqrt(2 + np.arange(len(c))) % 1)


def _vertex(free: NDArray[np.intp], met: NDArray[np.intp], D: Array, c: Array) -> Vertex | None:
    if len(free) != len(met) + 1 or len(met) > LARGE:
        return None
    rows, both = D[met], np.array([c, widened(c)])
    K = np.vstack([rows[:, free], np.ones(len(free))])
    b = np.append(both[:, met], np.ones((2, 1)), 1).T
    try:
        inverse = np.asarray(np.linalg.inv(K), float)
    except np.linalg.LinAlgError:
        return None
    if not np.abs(inverse).sum(1).max() <= STEEP:
        return None
    q = inverse @ b
    q += inverse @ (b - K @ q)
    slack = both - (D[:, free] @ q).T
    slack[:, met] = np.inf
    return Vertex(free, met, inverse, rows, q.T, slack)


def _multipliers(z: Array, at: Vertex) -> tuple[Array, Array, float]:
    """The multipliers y of T, z - D_T'y, and the level g."""
    multiplier = z[at.free] @ at.inverse
    multiplier += (z[at.free] - multiplier[:-1] @ at.rows[:, at.free] - multiplier[-1]) @ at.inverse
    return multiplier[:-1], z - multiplier[:-1] @ at.rows, float(multiplier[-1])


def _climbed(z: Array, at: Vertex | None, D: Array, c: Array, side: int) -> Vertex | None:
    """The vertex that is clearly the best, along the steepest edges of a set.

    ``side`` 0 is the set itself, 1 the wider one. None where no vertex is clearly the best.
    """
    for _ in range(STEPS):
        if at is None:
            return None
        if min(at.q[side].min(), at.slack[side].min(initial=np.inf)) < (ROOM, WIDER)[side]:
            return None
        y, left, g = _multipliers(z, at)
        gain = left - g
        gain[at.free] = -np.inf
        if max(gain.max(), -y.min(initial=np.inf)) <= -ROOM:
            here = np.append(at.q[0], at.slack[0])
            return at if ((here >= ROOM) | (np.abs(here) <= NOTHING)).all() else None
        at = _neighbour(at, gain, y, D, c, side)
    return None


def _proved(z: Array, at: Vertex, c: Array) -> Best | None:
    y, left, _ = _multipliers(z, at)
    q, c = np.zeros(len(z)), c[at.met]
    q[at.free] = np.where(at.q[0] >= ROOM, at.q[0], 0.0)
    bound, size = float(c @ y) + float(left.max()), 1.0 + float(np.abs(c) @ y + y.sum())
    return Best(q, y, bound, size) if bound - float(z @ q) <= 64 * EPS * size else None


def _neighbour(at: Vertex, gain: Array, y: Array, D: Array, c: Array, side: int) -> Vertex | None:
    """The other end of the steepest edge; None where no edge rises."""
    j, i = int(gain.argmax()), int(y.argmin()) if len(y) else -1
    enters = i < 0 or gain[j] >= -y[i]
    if (gain[j] if enters else -y[i]) <= NOTHING:
        return None
    change = -at.inverse @ np.append(at.rows[:, j], 1.0) if enters else -at.inverse[:, i]
    drop = D[:, at.free] @ change + (D[:, j] if enters else 0.0)
    steps = np.full(len(change) + len(drop), np.inf)
    falls, room = np.append(-change, drop), np.append(at.q[side], at.slack[side])
    np.divide(room, falls, out=steps, where=falls > 1e-9)
    first = int(steps.argmin())
    free, met = (np.append(at.free, j), at.met) if enters else (at.free, np.delete(at.met, i))
    if first < len(change):
        free = np.delete(free, first)
    else:
        met = np.append(met, first - len(change))
    return _vertex(np.sort(free), np.sort(met), D, c)


# Linear programs over weights by HiGHS: max z'q with D q <= c, q >= 0 and sum q = 1, proved.
#
#     z'q <= c'y + max_i (z - D'y)_i      for every y >= 0 and every such q
#
# The bound is computed anew from the multipliers y, so it holds whatever HiGHS returns. HiGHS meets
# its conditions to 1e-10 in units of the losses' spread. Where value and bound differ by more than
# rounding, the program is solved again with the reduced costs (z - D'y for q and -y for the slack c
# - D q), which are about a millionth as large.
#
# Where the maximiser is clearly unique, the answer is computed from its vertex (``vertices``).
# Where vertices of earlier calls are kept they are tried before HiGHS; the answer is the same
# either way.

NEARLY = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
OPTIONS = {"presolve": False, **NEARLY}
CLOSE = 1e-14  # of bound - value, relative to the numbers added up
FINER = 3  # further programs at most
UNIT = 1e-6  # of their costs


def _program(*given: Any, **equalities: Any) -> Any:
    from scipy.optimize import linprog

    return linprog(*given, **equalities, options=OPTIONS)


def _solve(z: Array, D: Array, c: Array) -> Any:
    return _program(-z, D, c, np.ones((1, len(z))), np.ones(1))


def excess(D: Array, c: Array) -> float:
    """The least s >= 0 with D q <= c + s for some weights q."""
    cost = np.append(np.zeros(D.shape[1]), 1.0)
    rows, sums = np.column_stack([D, -np.ones(len(c))]), np.append(np.ones(D.shape[1]), 0.0)[None]
    return float(_program(cost, rows, c, sums, np.ones(1)).fun)


def largest_in_polyhedron(z: Array, D: Array, c: Array, met: Met | None = None) -> Worst | None:
    """A maximiser of z'q over the polyhedron, and an upper bound; None where it is empty.

    D is (m, N) and c (m,); every row of D has a largest entry of one, or is zero.

    ``met`` holds vertices of this D and c from earlier calls; they save programs and change no
    answer.

    Raises
    ------
    ArithmeticError
        where HiGHS ends without an answer
    """
    scale, met = scaled(z), met or Met()
    proof = met.best(scale.z, D, c)
    if proof is None:
        found = _solve(scale.z, D, c)
        if found.status == 2:
            return None
        if found.status != 0:
            raise ArithmeticError(
                f"HiGHS gave no worst case of the polyhedron: {found.message} Scale the rows of D."
            )
        proof = _only(scale.z, found.x, D, c, met)
    if proof is None:
        y = np.maximum(-found.ineqlin.marginals, 0.0)
        first = _with_bound(scale.z, _inside(found.x, D, c), y, D, c)
        best = _refined(scale.z, first, D, c)
        proof = (_only(scale.z, best.q, D, c, met) if best is not first else None) or best
    return proof.q, scale.bound(proof.bound, proof.size)


def _only(z: Array, q: Array, D: Array, c: Array, met: Met) -> Best | None:
    """The proved answer where q is near a unique maximiser, else None."""
    if int((q > NEAR).sum()) > int((c - D @ q <= NEAR).sum()):
        return met.near(z, q, D, c)
    # degenerate: more rows meet there than a vertex needs
    program = _solve(z, D, widened(c))
    return met.near(z, program.x, D, c, wider=True) if program.status == 0 else None


def _refined(z: Array, best: Best, D: Array, c: Array) -> Best:
    """The solution solved again with its reduced costs, until value and bound meet."""
    for _ in range(FINER):
        if best.bound - float(z @ best.q) <= CLOSE * best.size:
            break
        # the same program, written with its slack and the reduced costs that y leaves
        m, n = D.shape
        left = z - D.T @ best.y
        cost = np.append(left.max() - left, best.y) / UNIT
        rows = np.vstack([np.hstack([D, np.eye(m)]), np.append(np.ones(n), np.zeros(m))])
        program = _program(cost, A_eq=rows, b_eq=np.append(c, 1.0))
        if program.status != 0:
            break
        y = np.maximum(best.y - UNIT * program.eqlin.marginals[:-1], 0.0)
        two = _with_bound(z, _inside(program.x[: len(z)], D, c), y, D, c)
        # the larger value and the smaller bound of two solutions
        q = best.q if z @ best.q >= z @ two.q else two.q
        best = (best if best.bound <= two.bound else two)._replace(q=q)
    return best


def _with_bound(z: Array, q: Array, y: Array, D: Array, c: Array) -> Best:
    over, paid = z - D.T @ y, float(c @ y)
    size = 1.0 + float(np.abs(c) @ y) + float(np.abs(D).max(1) @ y)
    return Best(q, y, paid + float(over.max()), size)


def _inside(q: Array, D: Array, c: Array) -> Array:
    """q made nonnegative with sum one, and moved onto the rows that it misses."""
    q = np.maximum(q, 0.0)
    q = q / q.sum()
    slack = c - D @ q
    if slack.size == 0 or slack.min() >= -CLOSE:
        return q
    on, held = np.abs(slack) <= 1e-8, q > 0
    rows = np.vstack([D[on][:, held], np.ones(int(held.sum()))])
    moved = q.copy()
    moved[held] += np.linalg.lstsq(rows, np.append(slack[on], 0.0), rcond=1e-12)[0]
    better = moved.min() >= 0 and float((c - D @ moved).min()) > float(slack.min())
    return moved if better else q


# The projection onto weights under linear inequalities: {D q <= c, q >= 0, sum q = 1}.
#
#     argmin { ||q - v|| : D q <= c, q >= 0, sum q = 1 }
#
# Once it is known which inequalities hold with equality, q and the multipliers (y of the rows, g of
# the sum) solve equations,
#
#     q_F = (v - D'y - g)_F,   D_T q = c_T,   sum q = 1;    F: q > 0,  T: rows that are met
#
# and prove themselves: all slacks, y, and (D'y + g - v) outside F are >= 0. Indices that fail
# change sides, a few times. The first guess of F and T comes from the nearest point of the simplex,
# the second from an interior point method (Clarabel). Where neither settles, or v is so far away
# that its differences lose digits, ``nearest_point`` solves the problem by linear programs.
#
# The nearest point is unique, and where all of q_F, slacks, y and differences are clearly positive
# so are F and T. Then the answer does not depend on where they came from, and those of the last
# projection are tried first.

FAR = 1e3  # a spread of v from which single vertices matter
CHANGES = 20
ROUNDING = 1e-14
CLEARLY = 1e-9  # q, slacks, y and differences above this are clearly positive
# F and T are not sure where the equations' matrix has a larger condition number
UNSURE = 1e6


class _Settled(NamedTuple):
    """The nearest point with its sides (F, T), and whether these are beyond doubt."""

    q: Array
    sides: tuple[Mask, Mask]
    sure: bool


def project_polyhedron(v: Array, D: Array, c: Array, met: Met | None = None) -> Array | None:
    """The nearest point of the set, None where it is empty.

    Every row of D has a largest entry of one, or is zero. ``met`` is of this D and c from earlier
    calls; it saves work and changes no answer.
    """
    v, met = v - v.max(), met or Met()
    far, settled = bool(v.min() < -FAR), None
    # (F, rows that are exceeded) at the nearest point of the simplex
    simple = lambda q: (q > 0, c - D @ q < 0)  # noqa: E731
    starts = lambda: met.sides, lambda: simple(project_simplex(v)), lambda: _guess(v, D, c)
    for start in () if far else starts:
        settled = _settled(v, D, c, start())
        if settled is not None and settled.sure:
            met.sides = settled.sides
            break
    # exact to rounding, where a guess of the sides settles
    q = None if settled is None else settled.q
    if q is not None or largest_in_polyhedron(np.zeros_like(v), D, c) is None:
        return q
    q = nearest_point(v, lambda z: _farthest(z, D, c, met))
    settled = None if far else _settled(v, D, c, (q > CLEARLY, c - D @ q <= CLEARLY))
    return settled.q if settled is not None and settled.sure else q


def _farthest(z: Array, D: Array, c: Array, met: Met) -> Array:
    best = largest_in_polyhedron(z, D, c, met)
    if best is None:
        raise ArithmeticError(
            "HiGHS returned weights with D q <= c once and none the next time: the set is nearly"
            " empty. Raise c."
        )
    return best[0]


def _settled(v: Array, D: Array, c: Array, start: tuple[Mask, Mask] | None) -> _Settled | None:
    """The nearest point that these sides lead to; None where they do not settle."""
    if start is None:
        return None
    free, met = start
    for _ in range(CHANGES):
        q, y, left, steep = _on(v, D, c, free, met)
        short, size = c - D @ q, max(1.0, float(np.abs(y).max(initial=0.0)))
        wrong_free, wrong_out = free & (q < -ROUNDING), ~free & (left > ROUNDING * size)
        wrong_met, wrong_slack = met & (y < -ROUNDING * size), ~met & (short < -ROUNDING)
        if not (wrong_free.any() or wrong_out.any() or wrong_met.any() or wrong_slack.any()):
            numbers = np.concatenate([q[free], -left[~free], y[met], short[~met]])
            q = np.maximum(q, 0.0)
            q = q / q.sum()
            sure = steep <= UNSURE and float(numbers.min()) >= CLEARLY * size
            kept = float((D @ q - c).max(initial=0.0)) <= 10 * ROUNDING
            return _Settled(q, (free, met), sure) if kept else None
        free, met = free ^ (wrong_free | wrong_out), met ^ (wrong_met | wrong_slack)
    return None


def _guess(v: Array, D: Array, c: Array) -> tuple[Mask, Mask] | None:
    """The sides (positive entries, rows that are met) at a solution of the interior point method.

    An entry is on the side whose slack or multiplier is the larger of the two.
    """
    model = Model()
    q = model.variable(len(v))
    model.quadratic(q, 1.0)
    model.linear(q, -v)
    model.zero([(q, np.ones((1, len(v)))), -1.0])
    positive = model.nonneg([(q, 1.0)])
    rows = model.nonneg([(q, -D), c]) if len(c) else slice(0, 0)
    solution = model.solve(1e-10)
    if solution.status not in (Status.SOLVED, Status.ALMOST_SOLVED):
        return None
    near = solution.x[q]
    return near > solution.z[positive], c - D @ near < solution.z[rows]


def _on(v: Array, D: Array, c: Array, free: Mask, met: Mask) -> tuple[Array, Array, Array, float]:
    """The point nearest to v under equalities.

    It is q, y of all rows, v - D'y - g, and the condition number of the equalities.
    """
    A = np.vstack([D[met], np.ones(len(v))])
    of_free, b = A[:, free], np.append(c[met], 1.0)
    right = of_free @ v[free] - b
    multiplier, _, _, values = np.linalg.lstsq(of_free @ of_free.T, right, rcond=None)
    left = v - A.T @ multiplier
    q = np.where(free, left, 0.0)
    # correct the equalities for rounding
    q[free] += np.linalg.lstsq(of_free, b - of_free @ q[free], rcond=None)[0]
    y = np.zeros(len(c))
    y[met] = multiplier[:-1]
    return q, y, left, float(values[0] / values[-1]) if values[-1] > 0 else np.inf
