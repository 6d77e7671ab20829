"""Wasserstein worst cases of piecewise linear losses when rows must stay on a polytope {C x +
c_label y <= d}.

At a fixed model the adversary of one client solves one conic program, the dual of (B.2) to (B.4) in
Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*: with p_ik the part of row i on
piece k and D_ik = p_ik * displacement,

    maximise   sum_ik share_i { p_ik b_k(i) + pull_ik (<w, D_ik> - E_ik) }
    subject to sum_k p_ik = 1,  p_ik (d - C x_i - c_label y_i) >= C D_ik + c_label E_ik,
               sum_ik share_i { ||D_ik|| + label_cost |E_ik| + p_ik fee_k } <= radius,

E_ik moving the target of a residual loss and fee_k = label_cost on flipped pieces of a margin loss.
The best lambda_ is the multiplier of the last line. p = 0 < ||D|| is mass that leaves along a
recession direction of the polytope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import DUAL, Array, dense, norm
from bonafed.problem.losses import Loss
from bonafed.problem.wasserstein.ball import ROUNDING, Cut, Mask, Near, Support
from bonafed.problem.wasserstein.box_support import linear_pieces

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from bonafed.solvers.conic.builder import Model

TOL = 1e-10  # of the conic programs
WANTED, ACCEPTED = 1e-8, 1e-6  # relative gaps between a worst case and its dual bound


@dataclass(frozen=True)
class Adversary:
    """One client's worst case at a model: what every row does, by piece of the loss."""

    level: float  # the best lambda_
    part: Array  # (K, m) p
    drift: Array  # (K, m, d) p * displacement
    shift: Array  # (K, m) p * change of the target
    pull: Array  # (K, m)
    flip: Mask  # (K,) which pieces have the label flipped
    value: float  # the mean loss of this plan
    cost: float  # transport cost spent, <= radius
    bound: float  # no distribution in the ball has a larger mean loss: by duality


@dataclass(frozen=True)
class PolytopeSupport(Support):
    """Rows stay where C x <= d; with ``c_label`` (residual losses) where C x + c_label y <= d.

    Cuts, multipliers and worst cases hold to the accuracy of the conic solver, about 1e-8 relative,
    and cost one conic program per client: for a box use ``BoxSupport``. Unbounded polytopes are
    allowed.

    Parameters
    ----------
    C : (q, n_features) matrix
    d : (q,) right-hand sides
    c_label : (q,) coefficients of the target, or None: targets are free

    Examples
    --------
    >>> import bonafed as bf
    >>> support = bf.PolytopeSupport(C=[[1.0, 1.0]], d=[1.0])  # x_1 + x_2 <= 1
    >>> bf.WassersteinBall(radius=0.1, support=support).support == support
    True
    """

    named: ClassVar[str] = "a polytope C x <= d"

    C: Sequence[Sequence[float]] | Array
    d: Sequence[float] | Array
    c_label: Sequence[float] | Array | None = None

    def __post_init__(self) -> None:
        C, d = np.asarray(self.C, float), np.asarray(self.d, float)
        c = np.zeros_like(d) if self.c_label is None else np.asarray(self.c_label, float)
        if C.ndim != 2 or d.shape != C.shape[:1] or c.shape != d.shape:
            raise ValueError(
                f"C must be (q, n_features), d (and c_label) of length q, got shapes {C.shape},"
                f" {d.shape}, {c.shape}."
            )
        if not (np.isfinite(C).all() and np.isfinite(d).all() and np.isfinite(c).all()):
            raise ValueError("C, d and c_label must be finite; leave out rows without a bound.")
        if not (np.abs(C).sum(1) + np.abs(c) > 0).all():
            raise ValueError(
                "a row of C (and c_label) is all zero: it bounds nothing. Leave it out."
            )
        object.__setattr__(self, "C", tuple(map(tuple, C.tolist())))
        object.__setattr__(self, "d", tuple(d.tolist()))
        object.__setattr__(self, "c_label", None if self.c_label is None else tuple(c.tolist()))

    def rows(self, n_features: int) -> tuple[Array, Array, Array]:
        """C, d, c_label as arrays, every row scaled to unit length."""
        C, d = np.asarray(self.C), np.asarray(self.d)
        c = np.zeros_like(d) if self.c_label is None else np.asarray(self.c_label)
        if C.shape[1] != n_features:
            raise ValueError(
                f"C has {C.shape[1]} columns, the data {n_features} features: give one column each."
            )
        length = np.sqrt((C * C).sum(1) + c * c)
        return C / length[:, None], d / length, c / length

    # -- data
    # ----------------------------------------------------------------------------------------------

    def outside(self, X: Array | csr_array, y: Array, rounding: float = ROUNDING) -> Mask:
        """As of every support; ``rounding`` is never finer than the conic solver's."""
        x, rounding = dense(X), max(rounding, ROUNDING)
        C, d, c = self.rows(x.shape[-1])
        size = np.abs(d) + np.abs(x) @ np.abs(C).T + np.abs(y[:, None] * c)
        return np.asarray((x @ C.T + y[:, None] * c > d + rounding * size).any(-1))

    def project(self, X: Array | csr_array, y: Array) -> tuple[Array, Array]:
        """The nearest points (x, y) of the support, in the Euclidean norm; y stays unless
        ``c_label`` is given.
        """
        from bonafed.solvers.conic.builder import Model

        x, y, out = np.array(dense(X)), np.array(y, float), np.flatnonzero(self.outside(X, y))
        if not len(out):
            return x, y
        C, d, c = self.rows(x.shape[-1])
        Z = np.column_stack([x[out], y[out]])
        unit = max(float(np.abs(Z).max()), float(np.abs(d).max()))
        model = Model()
        z = [model.variable(len(out)) for _ in range(Z.shape[1])]
        for column, at in zip(Z.T / unit, z, strict=True):
            model.quadratic(at, 1.0)
            model.linear(at, -column)
        for row, right in zip(np.column_stack([C, c]), d / unit, strict=True):
            model.nonneg(
                [np.full(len(out), right), *((at, -a) for at, a in zip(z, row, strict=True) if a)]
            )
        solution = model.solve(TOL).checked("projecting the rows onto the polytope", almost=False)
        moved = unit * np.column_stack([solution.x[at] for at in z])
        x[out] = moved[:, :-1]
        if self.c_label is not None:
            y[out] = moved[:, -1]
        return x, y

    def check(self, loss: Loss) -> None:
        super().check(loss)
        if loss.targets == "sign" and self.c_label is not None:
            raise ValueError(
                f"{type(loss).__name__} has labels, which c_label cannot bound. Use c_label=None"
                " and label_cost."
            )

    # -- worst case
    # ----------------------------------------------------------------------------------------------

    def cut(self, at: Near) -> Cut:
        """The cut of the worst distribution; ``ArithmeticError`` when the conic solver fails.

        For every model v and every lambda_, moving the rows like this earns sum share { p (b + pull
        <v - w, x>) + pull <v, D> - pull E } - lambda_ * cost, and f_s(v, lambda_) is at least that.
        """
        w, block, loss, predictor, _, radius = at
        prediction = predictor.forward(w, block)
        mean = block.mean(loss.value(prediction, block.y))
        gradient = predictor.backward(w, block.share * loss.gradient(prediction, block.y), block)
        level, spent = np.zeros((2, len(radius)))
        worst = mean.copy()
        for i, a in enumerate(self.worst(at)):
            if a is not None:
                mass = np.zeros_like(block.y)
                mass[i] = block.share[i] * (a.part * a.pull).sum(0)
                gradient[i] = predictor.backward(w, mass, block)[i]
                gradient[i, : block.n_features] += np.einsum(
                    "r,kr,krj->j", block.share[i], a.pull, a.drift
                )
                level[i], spent[i], mean[i] = a.level, -a.cost, a.value - a.level * a.cost
                # a plan that the solver rounds off is in the ball up to its tolerance
                worst[i] = a.bound
        return Cut(mean, level, gradient, spent, worst)

    def worst(self, at: Near) -> list[Adversary | None]:
        """Every client's worst case; None where the radius is 0."""
        w, block, loss, predictor, ball, radius = at
        self.check(loss)
        pieces = linear_pieces(predictor.forward(w, block), block, loss, ball.label_cost)
        # (n, K, m)
        const, pull = np.stack([p.const for p in pieces], 1), np.stack([p.pull for p in pieces], 1)
        w = np.broadcast_to(predictor.split(w)[0], (len(radius), block.n_features))
        X, (C, d, c) = dense(block.X).reshape(*block.y.shape, -1), self.rows(block.n_features)
        slack = np.maximum(d - X @ C.T - block.y[..., None] * c, 0.0)
        label_cost = ball.label_cost if loss.targets == "real" else math.inf  # of moving a target
        return [
            (
                _adversary(
                    Client(
                        const[i], pull[i], [p.fee for p in pieces], slack[i], block.share[i], w[i]
                    ),
                    C,
                    c,
                    ball.norm,
                    label_cost,
                    radius[i],
                )
                if radius[i] > 0
                else None
            )
            for i in range(len(radius))
        ]


@dataclass(frozen=True)
class Client:
    """One client's pieces (K, m), their fees, its rows' slack (m, q) and share (m,), and the model
    (d,).
    """

    const: Array
    pull: Array
    fee: list[float]
    slack: Array
    share: Array
    w: Array


def _adversary(
    client: Client, C: Array, c: Array, kind: str, label_cost: float, radius: float
) -> Adversary:
    """The worst case, proved: solved in up to three units of length until its dual bound meets its
    value.
    """
    room, step = float(client.slack.max()), radius / client.share.max()
    best: tuple[float, Adversary] | None = None
    for unit in (min(room, step) or radius, math.sqrt(room * step) or radius, room or radius):
        plan = _solve(client, C, c, kind, label_cost, radius, unit)
        gap = abs(plan.bound - plan.value) / max(
            abs(plan.bound), np.abs(client.const).max(), np.finfo(float).tiny
        )
        if best is None or not gap >= best[0]:
            best = gap, plan
        if gap <= WANTED:
            return plan
    assert best is not None
    if best[0] <= ACCEPTED:
        return best[1]
    raise ArithmeticError(
        f"the conic solver left a relative gap of {best[0]:.1e} in the worst case on a polytope; at"
        f" most {ACCEPTED} is accepted: the support is much wider than the radius, or features"
        " differ much in size. Scale the features, drop bounds that rows cannot reach, or use"
        " BoxSupport or support=None."
    )


def _solve(
    client: Client, C: Array, c: Array, kind: str, label_cost: float, radius: float, unit: float
) -> Adversary:
    """The conic program of the module's text over the rows with weight.

    Lengths are in ``unit``, losses in ``size``. Atoms are (piece, row) pairs; those whose piece has
    a gradient (``go``) have a drift and, with free targets, a shift.
    """
    from bonafed.solvers.conic.builder import Model

    on = np.flatnonzero(client.share > 0)
    const, pull = client.const[:, on].ravel(), client.pull[:, on].ravel()
    row, piece = np.tile(on, len(client.fee)), np.repeat(np.arange(len(client.fee)), len(on))
    weight, go, fee = client.share[row], np.flatnonzero(pull), np.asarray(client.fee)[piece]
    size = max(
        float(np.abs(const).max()), float(np.abs(client.w).max()) * unit, np.finfo(float).tiny
    )
    limit, earned = radius / unit, weight[go] * pull[go] * unit / size

    model = Model()
    part, drift = (
        model.variable(len(row)),
        model.variable(len(client.w) * len(go)).reshape(len(client.w), -1),
    )
    model.nonneg([(part, 1.0)])
    model.zero([-1.0, *((part[k : k + len(on)], 1.0) for k in range(0, len(row), len(on)))])
    model.linear(part, -weight * const / size)
    for at, gradient in zip(drift, client.w, strict=True):
        model.linear(at, -earned * gradient)
    cost = [(part, weight * fee / unit), *((at, weight[go]) for at in _lengths(model, drift, kind))]
    # in units of unit / label_cost
    shift = model.variable(len(go) if label_cost < math.inf else 0)[None]
    if shift.size:
        model.linear(shift[0], earned / label_cost)
        cost += [(_lengths(model, shift, "l1")[0], weight[go])]
    walls = []
    for normal, by_y, room in zip(C, c, client.slack[row[go]].T / unit, strict=True):
        moves = [(at, -a) for at, a in zip(drift, normal, strict=True) if a]
        moves += [(shift[0], -by_y / label_cost)] if shift.size and by_y else []
        walls.append(model.nonneg([(part[go], room), *moves]))
    budget = model.nonneg([1.0, *((at, -spent[None, :] / limit) for at, spent in cost)])

    solution = model.solve(TOL)
    level = float(np.maximum(solution.z[budget], 0.0)[0]) * size / unit / limit
    phi = (
        np.maximum([solution.z[wall] for wall in walls], 0.0).T
        * (size / unit / weight[go])[:, None]
    )
    bound = _dual_bound(client, phi, C, c, kind, label_cost, radius, level, (piece[go], row[go]))
    x, parts = solution.x, np.zeros_like(client.const)
    drifts, shifts = np.zeros((*parts.shape, len(client.w))), np.zeros_like(parts)
    parts[piece, row] = np.maximum(x[part], 0.0)
    drifts[piece[go], row[go]] = unit * x[drift].T
    if shift.size:
        shifts[piece[go], row[go]] = unit / label_cost * x[shift[0]]
    spent = unit * sum(float(each @ x[at]) for at, each in cost)
    flip = np.asarray(client.fee) > 0
    value = -solution.value * size
    return Adversary(level, parts, drifts, shifts, client.pull, flip, value, spent, bound)


def _dual_bound(
    client: Client,
    phi: Array,
    C: Array,
    c: Array,
    kind: str,
    label_cost: float,
    radius: float,
    level: float,
    at: tuple[NDArray[np.intp], NDArray[np.intp]],
) -> float:
    """radius l + mean alpha at the feasible point of (B.2) to (B.4) with these phi (G, q): an upper
    bound on R.
    """
    pull = client.pull[at]
    level = max(level, float(norm(pull[:, None] * client.w - phi @ C, DUAL[kind]).max(initial=0.0)))
    if label_cost < math.inf:
        level = max(level, float(np.abs(pull + phi @ c).max(initial=0.0)) / label_cost)
    alpha = client.const - np.asarray(client.fee)[:, None] * level
    alpha[at] += (phi * client.slack[at[1]]).sum(1)
    return radius * level + float(client.share @ alpha.max(0))


def _lengths(model: Model, vectors: NDArray[np.intp], kind: str) -> NDArray[np.intp]:
    """Variables whose sum over the first axis bounds the norm of each column of ``vectors`` (d,
    G).
    """
    lengths = model.variable(vectors.size if kind == "l1" else vectors.shape[1]).reshape(
        -1, vectors.shape[1]
    )
    if kind == "l2":
        model.lengths([(lengths[0], 1.0)], *([(at, 1.0)] for at in vectors))
        return lengths
    for k, at in enumerate(vectors):
        for sign in (1.0, -1.0):
            model.nonneg([(lengths[k % len(lengths)], 1.0), (at, sign)])
    return lengths
