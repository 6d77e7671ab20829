"""The server's half of a bundle method, synchronous or not: the program for a bound and what
its multipliers prove, and the second-order model of the mean losses.

    bound     minimise the cuts where an optimum provably lies; balance the multipliers
    model     mean losses as F(c) + F'(c)(w - c) + (w - c)'H(w - c) / 2 near c, and cuts of flips
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.lower_bounds import (
    Duals,
    Minorant,
    Pull,
    Region,
    feasible_duals,
    lower_bound,
    unbalanced,
)
from bonafed.problem.parts import Parted, PartedCut, Parts, has_smooth_part, parts_of, stored
from bonafed.problem.problem import Problem
from bonafed.rounds import Each, Sum, record
from bonafed.solvers.conic.bundle_master import Index, Master, Pieces, Shape, minimise

SECOND_ORDER = 500  # numbers of a model up to which sites send D x D sums
BALANCES = 3  # times that multipliers are balanced


@record
class Tangents:
    """The mean losses of all clients near a point: values and gradients there."""

    w: Annotated[Array, Form("D")]
    value: Annotated[Array, Form("N")]
    gradient: Annotated[Array, Form("N, D")]


def with_pieces(pieces: Pieces, keep: NDArray[np.bool_] | slice, *more: Any) -> Pieces:
    """Some pieces, and more, by owner, part, offset and gradient in the model only."""
    old = pieces.owner, pieces.part, pieces.offset, pieces.gradient, pieces.gradient_level
    every = zip(old, (*more, np.zeros(len(more[0]))), strict=True)
    columns: Any = [np.concatenate([part[keep], new]) for part, new in every]
    return Pieces(*columns, parts=pieces.parts)


def with_tangents(pieces: Pieces, cut: NDArray[np.bool_], tangents: Tangents) -> Pieces:
    """The pieces of flips, and the mean losses as they are near the centre, the last ones."""
    n, offset = len(tangents.value), tangents.value - tangents.gradient @ tangents.w
    return with_pieces(pieces, cut, np.arange(n), np.zeros(n, np.intp), offset, tangents.gradient)


def parts_for(problem: Problem, n_clients: int, cuts: int, least_rows: int) -> Parts:
    """How risks are parted, so that all clients send about so many cuts: where models have few
    numbers by second derivatives, if the loss has them.
    """
    return Parts(max(1, round(cuts / n_clients)), least_rows, int(has_smooth_part(problem)))


def undoing(value: float, square: float, times: float = 1.0) -> float:
    """So many times the step along a gradient of this squared length that would undo the value;
    where it is flat any length will do.
    """
    return times * value / square if min(value, square) > 1e-100 else 1.0


def mean_bend(H: Array, units: Array) -> float:
    """The mean curvature in units of the features."""
    return float(np.mean(np.diag(H) / units**2))


def shifted(H: Array, units: Array, more: float) -> Array:
    """The curvature with its eigenvalues shifted from 0 in units of the features: a loss may have
    none for a while, such as Huber's far from its targets.
    """
    H = H.copy()
    H.ravel()[:: len(H) + 1] += max(more, 1e-100) * units**2
    return H


def least(
    shape: Shape, pieces: Pieces, where: Region, near: Array, unit: float, accuracy: float
) -> Master:
    """The minimiser of the cuts where an optimum must lie."""
    given: dict[str, Any] = {"near": near, "unit": unit, "accuracy": accuracy}
    return minimise(shape, pieces, size=where.size, offset=where.offset, **given)


def proofs(
    problem: Problem, cuts: Cuts, multipliers: Array, limits: Array, where: Region, units: Array
) -> Iterator[tuple[float, Duals]]:
    """The bounds that multipliers (K,) of the cuts prove, as they are balanced better and better;
    ``limits`` (C,) are the units of the constraints.
    """
    for _ in range(BALANCES):
        proof = cuts.proof(problem, multipliers, limits)
        if proof is None:
            return
        duals, minorant, scaled = proof
        yield lower_bound(problem, minorant, where)[0], duals
        multipliers = cuts.balanced(scaled, *unbalanced(problem, minorant, where, units), units)


# The cuts that the server of a bundle method keeps, and the proof that their multipliers make.

# rounds a cut may stay without a multiplier before it is dropped: the master's cost is that of its
# cuts
KEEP = 4
KEEP_LIMITED = 10  # beside constraints, whose cuts come back, and where repeats cost nothing
MOST_BALANCED = 500  # equations between multipliers: a least-squares solution takes 0.02 s
NEEDED = 1e-5  # of the largest multiplier: a cut with more is needed


@record
class Evaluated:
    """A client's worst-case risk at w as a cut of every part: radius level + sum_p base_p, and the
    gradients in the model and in the transport multiplier ``level``.
    """

    base: Each  # (n, P)
    level: Each  # (n,)
    gradient: Each  # (n, P, D)
    gradient_level: Each  # (n, P)
    # (1, D, D) per block: sum_s weights_s Hess F_s(w) of the mean losses F_s
    curvature: Sum | None = None
    # a minorant of weights_s F_s, where a pair was sent: constant (n,) and gradient (n, D)
    mean_constant: Sum | None = None
    mean_gradient: Sum | None = None
    # cuts of constraints, those of the client and its part of the sums over all clients: values
    # (n, p, P) and gradients (n, p, P, D)
    local: Each | None = None
    local_jacobian: Each | None = None
    shared: Sum | None = None
    shared_jacobian: Sum | None = None


@record
class Cuts:
    """The cuts that the server stores; arrays have length K, points are referred to by number.

    Owners behind the N clients are constraints (``problem.constraints.cuts``), in units of the
    ``sizes`` of their gradients.
    """

    owner: Annotated[Index, Form("K", below="E")]  # client or constraint
    part: Annotated[Index, Form("K")]  # of its risk
    point: Annotated[Index, Form("K", below="T")]  # row of points
    base: Annotated[Array, Form("K")]
    level: Annotated[Array, Form("K")]
    gradient: Annotated[Array, Form("K, D")]
    gradient_level: Annotated[Array, Form("K")]
    idle: Annotated[Index, Form("K")]  # rounds without a multiplier
    points: Annotated[Array, Form("T, D")]
    radii: Annotated[Array, Form("T, N")]  # of the balls when a point was tried
    parts: Parted  # how the risks are parted

    def extended(self, owners: Index, models: Array, radii: Array, cut: PartedCut) -> Cuts:
        """With new cuts of these owners (E,), at models (E, D) or one (1, D) for all, for balls of
        these radii (N,).
        """
        (E, P), at = cut.base.shape, len(self.points) + np.arange(len(models))
        new = {
            "owner": np.repeat(owners, P),
            "part": np.tile(np.arange(P), E),
            "point": np.repeat(np.broadcast_to(at, E), P),
            "base": cut.base.ravel(),
            "level": np.repeat(cut.level, P),
            "gradient": cut.gradient.reshape(E * P, -1),
            "gradient_level": cut.gradient_level.ravel(),
            "idle": np.zeros(E * P, np.intp),
            "points": models,
            "radii": np.tile(radii, (len(models), 1)),
        }
        every = {name: np.concatenate([getattr(self, name), part]) for name, part in new.items()}
        return replace(self, **every)

    @property
    def newest(self) -> Index:
        """The numbers of the last cuts of every client and part (N, P), -1 where there are none."""
        last = np.full((self.radii.shape[1], self.part.max(initial=0) + 1), -1)
        np.maximum.at(last, (self.owner, self.part), np.arange(len(self.owner)))
        return last

    def kept(self, keep: NDArray[np.bool_]) -> Cuts:
        """These cuts only."""
        if keep.all():
            return self
        names = "owner", "part", "base", "level", "gradient", "gradient_level", "idle"
        rows = {name: getattr(self, name)[keep] for name in names}
        used, point = np.unique(self.point[keep], return_inverse=True)
        return replace(self, **rows, point=point, points=self.points[used], radii=self.radii[used])

    def without_repeats(self) -> Cuts:
        """Without the older of two equal cuts of a part: two gradients of a convex function are
        equal only where it is affine between their points.

        Linear constraints would else have a cut more every round, and what their multipliers add up
        to would come ever nearer to their penalty.
        """
        owner, part = self.owner.astype(float), self.part.astype(float)
        rows = np.column_stack([owner, part, self.gradient_level, self.gradient])[::-1]
        last = np.unique(rows, axis=0, return_index=True)[1]
        keep = np.zeros(len(rows), bool)
        keep[len(rows) - 1 - last] = True
        return self.kept(keep)

    def used(self, multipliers: Array) -> Cuts:
        """Cuts that carry a multiplier are not idle."""
        needed = multipliers > NEEDED * multipliers.max(initial=0.0)
        return replace(self, idle=np.where(needed, 0, self.idle))

    @property
    def offset(self) -> Array:
        """(K,) the values at the model 0 and the transport multiplier 0."""
        at = np.einsum("kd,kd->k", self.gradient, self.points[self.point])
        return self.base - at - self.gradient_level * self.level

    def pieces(self, problem: Problem) -> Pieces:
        """For the server's program."""
        count = parts_of(self.parts).count(problem)
        return Pieces(self.owner, self.part, self.offset, self.gradient, self.gradient_level, count)

    def proof(
        self, problem: Problem, multipliers: Array, sizes: Array, means: MeanLosses | None = None
    ) -> tuple[Duals, Minorant, Array] | None:
        """What proves the minorant that these multipliers (K,) make once they are rescaled to add
        up, the minorant, and the rescaled multipliers; None where all are 0.

        ``sizes`` (C,) are those of the constraints, and ``means`` stands in for the cuts of the
        mean losses.
        """
        n_clients = self.radii.shape[1]
        count, radii = parts_of(self.parts).count(problem), sample_radii(problem, n_clients)
        own = (self.radii == radii).all()
        # at radius 0 a transport multiplier costs nothing: cuts that spend on it prove nothing
        free = np.append(radii == 0, np.zeros(len(sizes), bool))[self.owner]
        multipliers = np.where(free & (self.gradient_level < 0), 0.0, multipliers)
        dense = self.by_point(multipliers, n_clients + len(sizes), count)
        risks, limits = dense[:, :n_clients], dense[:, n_clients:] / sizes[:, None]
        if means is not None:
            risks[:, :, 0] = 0.0
        elif not risks.sum() > 0:
            return None
        weights = np.zeros(n_clients) if means is None else means.weights
        pair = None if means is None else means.pair
        duals = Duals(weights, self.points, risks, parts=self.parts, pair=pair)
        duals = replace(duals, radii=None if own else self.radii)
        duals = feasible_duals(problem, replace(duals, limits=limits if len(sizes) else None))
        every = duals.multipliers
        if duals.limits is not None:
            every = np.concatenate([every, duals.limits * sizes[:, None]], 1)
        mu = every[self.point, self.owner, self.part]
        constant, gradient = float(mu @ self.offset), mu @ self.gradient
        if means is not None:
            constant, gradient = constant + means.constant, gradient + means.gradient
        fees = np.bincount(self.owner, mu * self.gradient_level, n_clients + len(sizes))
        minorant = Minorant(constant, gradient, fees[:n_clients].astype(float), duals.weights)
        return duals, minorant, mu

    def by_point(self, multipliers: Array, owners: int, parts: int) -> Array:
        """The multipliers (K,) by point, owner and part (P, E, parts)."""
        dense = np.zeros((len(self.points), owners, parts))
        np.add.at(dense, (self.point, self.owner, self.part), multipliers)
        return dense

    def balanced(self, multipliers: Array, left: Array, pull: Pull, sizes: Array) -> Array:
        """Multipliers (K,) changed a little, so that with ``pull`` the gradient changes by -left
        (D,), and no sum over a part or of a transport multiplier does.

        Programs leave some 1e-10 of the gradient in units of the features' ``sizes``, and models
        that are worth having can be large.
        """
        live = np.flatnonzero(multipliers > NEEDED * multipliers.max(initial=0.0))
        size = len(left) + len({*zip(self.owner[live], self.part[live], strict=True)})
        if not len(live) or not left.any() or size > MOST_BALANCED:
            return multipliers
        owner, mu = np.unique(self.owner[live], return_inverse=True)[1], multipliers[live]
        _, part = np.unique(np.stack([owner, self.part[live]]), axis=1, return_inverse=True)
        sums = np.eye(part.max() + 1)[part.ravel()]
        fees = np.eye(owner.max() + 1)[owner] * self.gradient_level[live, None]
        cuts = np.hstack([self.gradient[live] / sizes, sums, fees, np.zeros((len(live), 1))])
        pulls = np.zeros((len(pull.room), cuts.shape[1]))
        pulls[:, : len(pull.room)] = np.diag(1 / sizes[: len(pull.room)])
        pulls[:, -1] = pull.normal
        rows, room = np.vstack([cuts, pulls]), np.append(mu, pull.room)
        target = np.zeros(rows.shape[1])
        target[: len(left)] = -left / sizes
        from scipy.linalg import lstsq

        # of all changes that which is least beside what each number can change by
        normal = (rows * room[:, None]).T @ rows
        solved: Any = lstsq(normal, target, cond=1e-13, lapack_driver="gelsy", check_finite=False)
        change = mu * (cuts @ solved[0])
        changed = multipliers.copy()
        changed[live] += change / max(1.0, float((-2 * change / mu).max()))
        return changed


class MeanLosses(NamedTuple):
    """A minorant of sum_s weights_s F_s of the mean losses F_s, ``shifted_minorants`` of a pair."""

    pair: Array  # (2, D)
    weights: Array  # (N,) in Q
    constant: float
    gradient: Array  # (D,)


def no_cuts(dimension: int, n_clients: int, parts: Parts) -> Cuts:
    """The empty bundle."""
    none, empty, flat = np.zeros(0, np.intp), np.zeros(0), np.zeros((0, dimension))
    radii = np.zeros((0, n_clients))
    return Cuts(none, none, none, empty, empty, flat, empty, none, flat, radii, stored(parts))


# Constraints as penalties beside the clients' risks: an objective that bundle methods minimise.
#
#     R(F_1(w), ..., F_N(w)) + sum_c rho_c max(c(w), 0)
#
# has the minimisers of the problem with constraints as soon as every rho_c is larger than a
# multiplier of constraint c. So rho_c grows where the multiplier of a program reaches it. Every
# constraint counts in units of the size of its gradient where the run begins (or of its value,
# where that gradient is zero), so that a limit in other units changes nothing.

FIRST, GROWS, MOST = 1.0, 10.0, 1e9  # a penalty where runs begin, by how much it grows, at most
SUSPECTED = 1e3  # a penalty from which on the run looks for a proof that no model meets all limits
EVERY = 5  # rounds from one such search to the next
FLAT = 1e-9  # of a value: the size of a gradient that counts as zero
REACHED = 0.9  # of a penalty: a multiplier beyond says that it may be too small
MET = 1e-7  # a violation that counts as none, as stated, or in these units where they are larger


def penalised(risk: Any, penalties: Array, z: Array) -> float:
    """R(z_1, ..., z_N) + sum_c rho_c max(z_c, 0) of numbers z (N + C,), for penalties (C,)."""
    n = len(z) - len(penalties)
    return float(risk.worst(z[:n]).value) + float(penalties @ np.maximum(z[n:], 0.0))


def first_sizes(values: Array, gradients: Array, value: float, gradient: Array) -> Array:
    """(C,) the sizes of the constraints' gradients (C, D) in units of the objective's (D,).

    Where a gradient is zero, as that of a squared length at the model 0, it is the size of the
    constraint's value (C,) in units of the objective's.
    """
    by_value = np.abs(values) / (value if value > 0 else 1.0)
    whole = float(np.linalg.norm(gradient))
    sizes = np.linalg.norm(gradients, axis=1) / (whole if whole > 0 else 1.0)
    sizes = np.where(sizes > FLAT * by_value, sizes, by_value)
    return np.where(sizes > 0, sizes, 1.0)


# Second derivatives from how gradients change, by updates of BFGS.
#
#     H' = H + y y' / (s'y) - H s (H s)' / (s'H s),  y the change of the gradient over the step s
#
# keeps H positive definite where s'y > 0, and H' s = y (Nocedal, Wright, section 6.1).

NEAR = 10.0  # times as far as the nearest step: those that are taken over


def secants(H: Array, moved: Array, changed: Array) -> Array:
    """The curvature (D, D) updated, after BFGS, so that it changes gradients by ``changed`` (T, D)
    over the steps ``moved`` (T, D), the shortest ones last and exactly.
    """
    far = np.sqrt(np.maximum(np.einsum("td,de,te->t", moved, H, moved), 0.0))
    least = far.min(where=far > 0, initial=math.inf)
    for t in np.argsort(-far, kind="stable"):
        step, change = moved[t], changed[t]
        bent, gain = H @ step, float(step @ change)
        if 0 < far[t] <= NEAR * least and gain > 0.2 * float(step @ bent):
            H = H + np.outer(change, change) / gain - np.outer(bent, bent) / float(step @ bent)
    return H
