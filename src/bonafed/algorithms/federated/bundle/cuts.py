"""The cuts that the server of a bundle method keeps, and the proof that their multipliers make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.lower_bounds import Duals, Minorant, Pull, feasible_duals
from bonafed.problem.parts import Parted, PartedCut, Parts, parts_of, stored
from bonafed.problem.problem import Problem
from bonafed.rounds import Each, Sum, record
from bonafed.solvers.conic.bundle_master import Index, Pieces

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

    def extended(self, w: Array, radii: Array, up: Evaluated, limits: tuple[Array, Array]) -> Cuts:
        """With the clients' new cuts at w, for balls of these radii (N,), and those of constraints:
        values (C, P) and gradients (C, P, D).
        """
        (n, parts), more = up.base.shape, len(limits[0])
        size = (n + more) * parts
        new = {
            "owner": np.repeat(np.arange(n + more), parts),
            "part": np.tile(np.arange(parts), n + more),
            "point": np.full(size, len(self.points)),
            "base": np.concatenate([up.base, limits[0]]).ravel(),
            "level": np.repeat(np.append(up.level, np.zeros(more)), parts),
            "gradient": np.concatenate([up.gradient, limits[1]]).reshape(size, -1),
            "gradient_level": np.append(up.gradient_level, np.zeros(more * parts)),
            "idle": np.zeros(size, np.intp),
            "points": w[None],
            "radii": radii[None],
        }
        return self._with(new)

    def answered(self, who: Index, models: Array, radii: Array, up: PartedCut) -> Cuts:
        """With the new cuts of these clients (n,), each at its own model (n, D)."""
        n, parts = up.base.shape
        new = {
            "owner": np.repeat(who, parts),
            "part": np.tile(np.arange(parts), n),
            "point": np.repeat(len(self.points) + np.arange(n), parts),
            "base": up.base.ravel(),
            "level": np.repeat(up.level, parts),
            "gradient": up.gradient.reshape(n * parts, -1),
            "gradient_level": up.gradient_level.ravel(),
            "idle": np.zeros(n * parts, np.intp),
            "points": models,
            "radii": np.tile(radii, (n, 1)),
        }
        return self._with(new)

    def _with(self, new: dict[str, Array]) -> Cuts:
        return replace(
            self, **{k: np.concatenate([getattr(self, k), part]) for k, part in new.items()}
        )

    def newest(self, n_clients: int) -> Index:
        """The numbers of the last cuts of every client and part (N, P), -1 where there are none."""
        last = np.full((n_clients, self.part.max(initial=0) + 1), -1)
        np.maximum.at(last, (self.owner, self.part), np.arange(len(self.owner)))
        return last

    def kept(self, keep: NDArray[np.bool_]) -> Cuts:
        """These cuts only."""
        if keep.all():
            return self
        rows = {
            name: getattr(self, name)[keep]
            for name in ("owner", "part", "base", "level", "gradient", "gradient_level", "idle")
        }
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

    def pruned(self, limited: bool) -> Cuts:
        """Without the cuts that no multiplier has needed for long; ``limited``: by constraints."""
        return self.kept(self.idle <= (KEEP_LIMITED if limited else KEEP))

    def used(self, multipliers: Array) -> Cuts:
        """Cuts that carry a multiplier are not idle."""
        needed = multipliers > NEEDED * multipliers.max(initial=0.0)
        return replace(self, idle=np.where(needed, 0, self.idle))

    @property
    def offset(self) -> Array:
        """(K,) the values at the model 0 and the transport multiplier 0."""
        at = np.einsum("kd,kd->k", self.gradient, self.points[self.point])
        return self.base - at - self.gradient_level * self.level

    def pieces(self, count: int) -> Pieces:
        """For the server's program, with so many parts a client."""
        return Pieces(self.owner, self.part, self.offset, self.gradient, self.gradient_level, count)

    def proof(
        self,
        problem: Problem,
        multipliers: Array,
        n_clients: int,
        sizes: Array,
        means: MeanLosses | None = None,
    ) -> tuple[Duals, Minorant, Array] | None:
        """What proves the minorant that these multipliers (K,) make once they are rescaled to add
        up, the minorant, and the rescaled multipliers; None where all are 0.

        ``sizes`` (C,) are those of the constraints, and ``means`` stands in for the cuts of the
        mean losses.
        """
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
        duals = feasible_duals(
            problem,
            Duals(
                np.zeros(n_clients) if means is None else means.weights,
                self.points,
                risks,
                parts=self.parts,
                pair=None if means is None else means.pair,
                radii=None if own else self.radii,
                limits=limits if len(sizes) else None,
            ),
        )
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
        owner, mu = self.owner[live], multipliers[live]
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
        y = solved[0]
        change = mu * (cuts @ y)
        changed = multipliers.copy()
        changed[live] += change / max(1.0, float((-2 * change / mu).max()))
        return changed


@dataclass(frozen=True)
class MeanLosses:
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
