"""The worst loss over a Wasserstein ball round one client's rows.

    R_s(w) = sup { E_P loss(<w, x>, y) : W(P, rows of client s) <= radius_s }

with transport cost ||x - x'|| + label_cost * |y - y'| (regression) or + label_cost * 1{y != y'}
(classification), on all of R^n or on a support. By duality (Bai, Wong, Qiao, Ho, *Distributionally
robust federated learning*, Proposition 4.2)

    R_s(w) = min over l >= floor(w) of  radius_s * l + f_s(w, l),   f_s(w, l) = mean_i alpha_i(w, l)

where l = lambda_ (their lambda_s) is the transport multiplier, alpha_i the worst loss of row i at
it, and f_s is jointly convex. A client answers with f_s and its gradients at the best l: a cut that
holds for every model and every lambda_.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bonafed.arrays import DUAL, Array, Block, Index, by_row, dense, is_number, norm, norm_gradient
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation
from bonafed.parameters import Checked
from bonafed.problem.losses import Loss, others
from bonafed.problem.predictors.affine import Softmax
from bonafed.problem.risks.risk import PerClient
from bonafed.rounds import Each, record

Mask = NDArray[np.bool_]
ROUNDING = 1e-9  # relative: rows this close to a support are inside up to rounding


@record
class Cut:
    """f_s(v, l) >= base + <gradient, v - w> + gradient_level (l - level), and R_s(w) = radius_s
    level + base.
    """

    base: Each  # (n,)
    level: Each  # (n,) the best lambda_ at w
    gradient: Each  # (n, d)
    gradient_level: Each  # (n,) minus the transport cost that is spent at it; >= -radius
    # (n,) proven to be no less than R_s(w), where a solver found the worst case; None: it is exact
    worst: Each | None = None

    def risks(self, radius: Array) -> Array:
        """(n,) R_s(w), or what it is at most."""
        return radius * self.level + self.base if self.worst is None else self.worst


class Near(NamedTuple):
    """What is to be worst near a block of rows: the loss of a model, (D,) or (n, D), within radii
    (n,) of the ball's kind.
    """

    w: Array
    block: Block
    loss: Loss
    predictor: Any  # Linear, or Softmax of several classes
    ball: WassersteinBall
    radius: Array


class RowTerms(NamedTuple):
    """The worst loss alpha_i of every row on all of R^n at (w, lambda_): its own loss and what a
    flip of its label adds, each with its gradient in the prediction.
    """

    floor: Array  # (n,) from which on no move pays
    level: Array  # (n,) the best lambda_ at w
    loss: Array  # (n, m)
    gradient: Array  # (n, m)
    flip: Array  # (n, m) max(loss of the other label - loss - label_cost lambda_, 0)
    flip_gradient: Array  # (n, m)
    theta: Array  # (n, m) the probability of a flip

    def spent(self, share: Array, label_cost: float) -> Array:
        """The transport cost (n, m) that each row spends on its label, by its share."""
        return share * label_cost * self.theta if self.theta.any() else np.zeros_like(share)


def free_space_terms(at: Near) -> RowTerms:
    """The terms of every row, at the model w, (d,) or (n, d).

    Regression: moving x or y gains at most Lipschitz * max(||w||_*, 1/label_cost) per unit of cost,
    whatever the row. Classification: a row is left, or its label is flipped, or (far away) its x is
    moved at ||w||_* per unit of cost.
    """
    w, block, loss, predictor, ball, radius = at
    label_cost = ball.label_cost
    prediction = predictor.forward(w, block)
    here, gradient = loss.value(prediction, block.y), loss.gradient(prediction, block.y)
    floor, zero = np.zeros_like(radius, float), np.zeros_like(here)
    if radius.any():  # else the loss may have no Lipschitz constant
        size = np.broadcast_to(ball.dual_norm(predictor.split(w)[0]), radius.shape)
        least = 0.0 if loss.targets == "sign" else 1 / label_cost
        floor = np.where(radius > 0, loss.lipschitz * np.maximum(size, least), 0.0)
    if loss.targets == "real" or math.isinf(label_cost) or not radius.any():
        return RowTerms(floor, floor, here, gradient, zero, np.zeros_like(gradient), zero)
    flipped = loss.value(prediction, -block.y)
    level, theta = flip_multiplier(here, flipped, block.share, floor, radius, label_cost)
    gain = np.maximum(flipped - here - label_cost * level[:, None], 0.0)
    gain = np.where(theta > 0, gain, 0.0)
    turned = theta * (loss.gradient(prediction, -block.y) - gradient)
    return RowTerms(floor, level, here, gradient, gain, turned, theta)


def free_space(at: Near) -> Cut:
    """The cut on all of R^n in closed form, at the model w, (d,) or (n, d)."""
    w, block, _, predictor, ball, _ = at
    terms = free_space_terms(at)
    slopes = block.share * (terms.gradient + terms.flip_gradient)
    spent = -terms.spent(block.share, ball.label_cost).sum(1)
    gradient = predictor.backward(w, slopes, block)
    return Cut(block.mean(terms.loss + terms.flip), terms.level, gradient, spent)


def flip_multiplier(
    here: Array, flipped: Array, share: Array, floor: Array, radius: Array, label_cost: float
) -> tuple[Array, Array]:
    """The best lambda_ and the flip probabilities theta (n, m) of the worst case on all of R^n.

    l is the smallest number >= floor at which rows that gain more than l per unit of cost weigh at
    most radius/label_cost together. They flip; above the floor, rows that gain just l share what is
    left of the mass.
    """
    gain = np.where(share > 0, (flipped - here) / label_cost, -np.inf)  # D_i
    mass, level = radius / label_cost, floor.astype(float)
    above = gain > floor[:, None]
    full = (radius > 0) & ((share * above).sum(1) > mass * (1 + 1e-12))
    if full.any():  # more would flip at the floor than the radius pays for
        those, weights, each = -gain[full], share[full], np.arange(np.count_nonzero(full))[:, None]
        count, paid = above[full].sum(1), mass[full] * (1 + 1e-12)
        # of a client's rows, those with the largest gains, and one more than it can pay for
        light = weights.min(1, where=weights > 0, initial=math.inf)
        most = int(min(count.max(), (paid / light).max() + 2))
        rows = np.argpartition(those, most - 1, 1)[:, :most]
        rows = rows[each, np.argsort(those[each, rows], 1)]
        fits = (np.cumsum(weights[each, rows], 1) <= paid[:, None]).sum(1)
        # of the first row that no longer fits entirely
        level[full] = -those[each[:, 0], rows[each[:, 0], np.minimum(fits, count - 1)]]
    above, tied = gain > level[:, None], (gain == level[:, None]) & full[:, None]
    left, weight = mass - (above * share).sum(1), (tied * share).sum(1)
    part = np.divide(left, weight, out=np.zeros_like(left), where=weight > 0)
    return level, (above + tied * np.clip(part, 0.0, 1.0)[:, None]) * (radius > 0)[:, None]


class Support(Checked, ABC):
    """A set of rows in which the worst distribution has to stay."""

    @abstractmethod
    def outside(self, X: Array | csr_array, y: Array, rounding: float = ROUNDING) -> Mask:
        """Which rows lie outside by more than ``rounding`` relative to their size, (m,) bool."""

    @abstractmethod
    def project(self, X: Array | csr_array, y: Array) -> tuple[Array, Array]:
        """The nearest rows (x, y) inside."""

    @abstractmethod
    def cut(self, at: Near) -> Cut:
        """The cut in (model, lambda_) of every client's worst case at w, (D,) or (n, D).

        Where the radius (n,) is 0 it is the cut of the mean.

        Raises
        ------
        ValueError
            for a loss that has no worst case on the set
        """

    @abstractmethod
    def spread(self, at: Near) -> tuple[Array, list[Atom], Array]:
        """The worst distribution itself: the transport multipliers, where each row's mass goes to,
        and the cost (n,) left for mass that goes arbitrarily far.
        """

    def check(self, loss: Loss) -> None:
        """Raise ``ValueError`` for a loss that has no worst case on the set."""
        if loss.pieces is None:
            raise ValueError(
                f"{type(loss).__name__} on a support would maximise a curved convex function over"
                " it, which has no finite reformulation. Use support=None"
                f"{others(loss, lambda other: other.pieces)}."
            )

    def admit(self, fed: Federation, loss: Loss, clip: bool = False) -> Federation:
        """The federation with every row inside.

        Rows outside by no more than rounding are moved onto the set, others only with ``clip``.

        Raises
        ------
        ValueError
            naming the client and its rows outside, unless ``clip``: the worst case is not defined
            for them
        """
        self.check(loss)
        parts, moved = [], False
        for i, client in enumerate(fed.clients):
            X, y = fed.rows(i)
            rows = np.flatnonzero(self.outside(X, y))
            if len(rows) and not clip:
                raise ValueError(
                    f"client {client!r}: {len(rows)} of {len(y)} rows lie outside the support"
                    f" {self!r} (rows"
                    f" {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}); a worst"
                    " case over the support needs all rows in it. Scale the features, widen the"
                    " support, or use clip=True."
                )
            beyond = bool(self.outside(X, y, 0.0).any())
            parts.append(self.project(X, y) if beyond else (X, y))
            moved |= beyond
        if not moved:
            return fed
        return fed.with_features([X for X, _ in parts]).with_targets([y for _, y in parts])


@dataclass(frozen=True)
class WassersteinBall(Checked):
    """A Wasserstein ball round the rows of every client, as a risk over samples.

    Parameters
    ----------
    radius : number >= 0, array with one entry per client, or mapping from client name; in units of
        the transport cost. "auto": `bonafed.solve` reads one off the rows (`default_radius`)
    label_cost : cost of moving y by one unit (regression) or of flipping a label (classification);
        in (0, inf]
    norm : "l1", "l2" or "linf", the norm on the features in the transport cost
    support : None (all of R^n), ``BoxSupport(lower, upper)`` or ``PolytopeSupport(C, d,
        c_label=None)``
    clip : move data that lie outside the support to its nearest point instead of refusing them

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> ball = bf.WassersteinBall(radius=0.1)
    >>> problem = bf.Problem(bf.Hinge(), over_samples=ball, regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed)
    >>> all(row["worst_loss"] > row["loss"] for row in solution.clients)
    True
    """

    radius: PerClient | Literal["auto"]
    label_cost: float = math.inf
    norm: Literal["l1", "l2", "linf"] = "l1"
    support: Support | None = None
    clip: bool = False

    def __post_init__(self) -> None:
        stated = [] if self.is_auto else self.radii()
        if not all(is_number(radius) and 0 <= radius < math.inf for radius in stated):
            raise ValueError(
                f"radius must be >= 0 and finite, got {self.radius!r}: give a number, one per"
                " client, a mapping by client name, or 'auto'; 0 means the empirical distribution."
            )
        if not is_number(self.label_cost) or not self.label_cost > 0:
            raise ValueError(
                f"label_cost must be in (0, inf], got {self.label_cost!r}: at 0 every label could"
                " be flipped for free. For labels that never move use label_cost=float('inf')."
            )

    @property
    def is_auto(self) -> bool:
        """Whether the radius is still to be read off the rows."""
        return isinstance(self.radius, str) and self.radius == "auto"

    def radii(self) -> list[float]:
        """The radii of the clients as they are stated, each once in an array, or that of all."""
        if isinstance(self.radius, np.ndarray) and self.radius.ndim == 1:
            return np.unique(self.radius).tolist()
        radius: Any = self.radius.values() if isinstance(self.radius, Mapping) else self.radius
        return [*radius] if np.iterable(radius) else [radius]

    def dual_norm(self, coefficients: Array) -> Array:
        """``||w||_*``, dual to the transport norm, along the last axis."""
        return norm(coefficients, DUAL[self.norm])


# The worst loss of several classes over a Wasserstein ball round one client's rows, on R^n.
#
#     R_s(W) = sup { E_P [log sum_c exp <w_c, x> - <w_y, x>] : W(P, rows of client s) <= radius_s }
#
# with transport cost ||x - x'|| + label_cost * 1{y != y'}. The loss is convex in x, and far out
# along v it rises by max_c <w_c - w_y, v>: mass of class y gains max_c ||w_c - w_y||_* per unit of
# cost, never more. So the transport multiplier lambda_ is at least
#
#     floor_s(W) = max over y, c of ||w_c - w_y||_*
#
# y being a class that mass of the client can have: a class of its rows if labels never move, else
# any. From there on no move of x pays, and with f_s jointly convex
#
#     R_s(W) = min over l >= floor_s(W) of  radius_s l + f_s(W, l)
#     f_s(W, l) = mean_i max over y of  loss(W; x_i, y) - label_cost * 1{y != y_i} * l
#
# *Proof.* The dual form has the sup over x, y of l_y(x) - l ||x - x_i|| - label_cost l 1{y != y_i},
# only y = y_i at an infinite label cost. The gradient of l_y is sum_c p_c (w_c - w_y), a convex
# combination, so that l_y has the Lipschitz constant L_y = max_c ||w_c - w_y||_*. From l = L_y on x
# = x_i is best. Below, let c attain L_y and v be of norm 1 with <w_c - w_y, v> = L_y: since l_y(x)
# >= <w_c - w_y, x>, along x_i + t v the sup exceeds t (L_y - l) + constant, and is infinite. So l
# must be at least L_y for every y that occurs in the sup. What is left of the sup is the maximum
# over y at x = x_i. As sums and maxima of convex functions the terms are jointly convex in (W, l).
#
# The floor is not a multiple of a norm of W, and differs by client: so ``cut`` holds radius and
# multiplier, and the server has a convex function of W.


class Steepest(NamedTuple):
    """The steepest way to lose of every client, far out: rows of class ``own`` go along ``along``,
    where ``other`` has the largest score.
    """

    floor: Array  # (n,) ||w_other - w_own||_*, what a unit of cost buys
    own: Index  # (n,)
    other: Index  # (n,)
    along: Array  # (n, d) of transport norm 1; 0 at floor 0


def steepest(w: Array, block: Block, predictor: Softmax, ball: WassersteinBall) -> Steepest:
    """Of every client of the block, at the model w, (D,) or (n, D)."""
    clients, d = np.arange(len(block.index)), block.n_features
    moved = np.arange(d) < d - predictor.ones
    matrix = predictor.matrix(np.atleast_2d(w), d)[:, :d] * moved[:, None]
    by_class = matrix.transpose(0, 2, 1)  # (1 or n, C, d)
    classes = range(by_class.shape[1])
    apart = np.stack([ball.dual_norm(by_class - by_class[:, y, None]) for y in classes], 1)
    reached = np.full((len(clients), len(classes)), math.isfinite(ball.label_cost))
    client, row = np.nonzero(block.share > 0)
    reached[client, block.y[client, row].astype(np.intp)] = True
    own = np.where(reached, apart.max(-1), -1.0).argmax(-1)
    apart = np.broadcast_to(apart, (len(clients), *apart.shape[1:]))[clients, own]
    other = apart.argmax(-1)
    by_class = np.broadcast_to(by_class, (len(clients), *by_class.shape[1:]))
    along = norm_gradient(by_class[clients, other] - by_class[clients, own], DUAL[ball.norm])
    return Steepest(apart.max(-1), own, other, along)


def best_flips(
    prediction: Array, block: Block, loss: Loss, ball: WassersteinBall, radius: Array, floor: Array
) -> tuple[Array, Array, Array]:
    """The best lambda_ (n,), the flip probabilities (n, m), and the class (n, m) that a row has
    after its flip: the one of the smallest score but its own.
    """
    floor = np.where(radius > 0, floor, 0.0)
    if math.isinf(ball.label_cost):
        return floor, np.zeros_like(block.y), block.y
    rest = prediction.copy()
    np.put_along_axis(rest, block.y.astype(np.intp)[..., None], np.inf, -1)
    to = rest.argmin(-1).astype(float)
    here, there = loss.value(prediction, block.y), loss.value(prediction, to)
    return *flip_multiplier(here, there, block.share, floor, radius, ball.label_cost), to


def joint_cut(at: Near, floor: Array) -> Cut:
    """The cut of f_s in (W, lambda_) at w and the best lambda_, which holds from the floor on."""
    w, block, loss, predictor, ball, radius = at
    prediction = predictor.forward(w, block)
    level, theta, to = best_flips(prediction, block, loss, ball, radius, floor)
    worst, gradient = loss.value(prediction, block.y), loss.gradient(prediction, block.y)
    spent = np.zeros(len(radius))
    if theta.any():
        fee = ball.label_cost * level[:, None]
        gain = np.maximum(loss.value(prediction, to) - worst - fee, 0.0)
        worst = worst + np.where(theta > 0, gain, 0.0)
        gradient = gradient + by_row(theta, loss.gradient(prediction, to) - gradient)
        spent = ball.label_cost * block.mean(theta)
    back = predictor.backward(w, by_row(block.share, gradient), block)
    return Cut(block.mean(worst), level, back, -spent)


def class_cut(at: Near) -> Cut:
    """R_s and a subgradient in W, at the model w, (D,) or (n, D): what flips leave of the radius is
    spent at the floor. The multiplier of the cut is 0.
    """
    w, block, _, predictor, ball, radius = at
    floor, own, other, along = steepest(w, block, predictor, ball)
    joint, zero, n = joint_cut(at, floor), np.zeros(len(radius)), np.arange(len(radius))
    left = np.maximum(radius + joint.gradient_level, 0.0)
    # of the floor, by the matrices of coefficients (d or d + 1, C)
    slope = np.zeros((len(n), *predictor.matrix(w, block.n_features).shape[-2:]))
    slope[n, : along.shape[1], other] += along
    slope[n, : along.shape[1], own] -= along
    gradient = joint.gradient + left[:, None] * slope.reshape(len(n), -1)
    return Cut(radius * joint.level + joint.base, zero, gradient, zero)


# The worst distribution near each client's rows: what the adversary does with every row.
#
#     P_s attains R_s(w) = sup { E_P loss : W(P, rows of client s) <= radius_s }
#
# Row i is split into atoms (x', y') with weights that sum to one; an atom costs ||x' - x|| +
# label_cost |y' - y| (or label_cost when its label is flipped). On all of R^n part of the radius
# may be left for mass that moves arbitrarily far: the supremum is then approached, not attained.
# Everything here is about single rows, so it stays with their owner.


class Atom(NamedTuple):
    """One place each row's mass goes to."""

    weight: Array  # (n, m) part of the row's mass
    X: Array | csr_array  # (n, m, d), or the block's own rows where none is moved
    y: Array  # (n, m)
    feature_cost: Array  # (n, m) ||x' - x||
    label_cost: Array  # (n, m) label_cost |y' - y|, or label_cost if flipped


@dataclass(frozen=True, eq=False)
class Transport:
    """The worst distribution of every client of a block, by row. It holds rows: it must not leave
    their owner.

    Attributes
    ----------
    names : the clients
    value : (n,) worst-case risk R_s(w) = mean of ``loss`` + level * far
    level : (n,) transport multiplier, lambda_
    radius : (n,)
    plain, loss : (n, m) loss of each row as it is, and in the worst case (mass sent far not
        counted)
    flips : (n, m) share of each row's mass whose label is changed (zero for real targets)
    atoms : where each row's mass goes
    far : (n,) transport cost left for mass that moves arbitrarily far
    far_x, far_y : (n, d), (n,) where it goes per unit of cost: x moves along far_x (for two labels:
        along y * far_x), real targets along far_y
    share : (n, m) weight of each row in its client, 0 on padding
    """

    names: tuple[ClientName, ...]
    value: Array
    level: Array
    radius: Array
    plain: Array
    loss: Array
    flips: Array
    atoms: tuple[Atom, ...]
    far: Array
    far_x: Array
    far_y: Array
    share: Array
    labels: bool  # labels in {-1, 1}, not real targets
    # (n,) of several classes: the class of the rows that go far; where none has it, rows are
    # flipped to it first, at ``flip_cost``
    far_class: Index | None = None
    flip_cost: float = math.inf

    @property
    def label_cost(self) -> Array:
        """(n,) transport cost spent on labels or targets."""
        near = sum((self.share * a.weight * a.label_cost).sum(1) for a in self.atoms)
        return near + self.far * (self.far_y != 0)

    @property
    def feature_cost(self) -> Array:
        """(n,) transport cost spent on features."""
        near = sum((self.share * a.weight * a.feature_cost).sum(1) for a in self.atoms)
        return near + self.far * (self.far_y == 0)

    @property
    def added(self) -> Array:
        """(n, m) what each row adds to its client's worst-case risk beyond its plain loss."""
        return self.share * (self.loss - self.plain)

    def exposed(self, client: int, top: int = 10) -> Index:
        """The rows of a client (by its position in the block) that add most, in falling order;
        padding never.
        """
        rows = np.flatnonzero(self.share[client] > 0)
        return rows[np.argsort(-self.added[client, rows], kind="stable")][:top]

    def summary(self) -> list[dict[str, Any]]:
        """Per client: the worst-case risk, the mean loss, and what the radius is spent on: numbers
        only, no rows.

        ``active`` is "labels", "features", "both" or "none"; below 1e-6 of the cost spent a part
        counts as none.
        """
        labels, features = self.label_cost, self.feature_cost
        spent = labels + features
        part = np.divide(labels, spent, out=np.zeros_like(spent), where=spent > 0)
        mean, feature_part = (self.share * self.plain).sum(1), np.where(spent > 0, 1 - part, 0.0)
        numbers = {"mean_loss": mean, "worst_loss": self.value, "radius": self.radius}
        numbers |= {"spent": spent, "label_part": part, "feature_part": feature_part}
        active = np.where(part < 1e-6, "features", np.where(part > 1 - 1e-6, "labels", "both"))
        active = np.where(spent > 0, active, "none").tolist()
        rows = zip(*(each.tolist() for each in numbers.values()), strict=True)
        return [
            {"client": name, **dict(zip(numbers, row, strict=True)), "active": word}
            for name, row, word in zip(self.names, rows, active, strict=True)
        ]

    def distribution(self, client: int, far: float = 1e-6) -> tuple[Array, Array, Array, Index]:
        """Atoms x (k, d), y (k,), probabilities (k,) of one client, within its ball, and the row
        (k,) each comes from.

        Their expected loss is R_s(w), except that mass moving arbitrarily far is cut to a share
        ``far`` of every row: then it falls short by at most ``far`` times a few losses, and tends
        to R_s(w) with far -> 0.
        """
        rows = np.flatnonzero(self.share[client] > 0)
        parts = []
        for a in self.atoms:
            kept = rows[a.weight[client, rows] > 0]
            mass = self.share[client, kept] * a.weight[client, kept]
            X = dense(a.X).reshape(*a.y.shape, -1)[client, kept]
            parts.append((X, a.y[client, kept], mass, kept))
        x, y, p, row = (np.concatenate(part) for part in zip(*parts, strict=True))
        if self.far[client] > 0:
            # which atoms mass goes far from, the labels that it has there, and what these cost
            goes, label, fee = np.ones(len(y), bool), y, 0.0
            if self.far_class is not None and (y == self.far_class[client]).any():
                goes = y == self.far_class[client]
                label = y[goes]
            elif self.far_class is not None:
                label, fee = np.full(len(y), float(self.far_class[client])), self.flip_cost
            step = self.far[client] / (far * p[goes].sum()) - fee
            along = y[goes, None] * self.far_x[client] if self.labels else self.far_x[client]
            x = np.concatenate([x, x[goes] + step * along])
            y = np.concatenate([y, label + step * self.far_y[client]])
            p = np.concatenate([np.where(goes, p * (1 - far), p), p[goes] * far])
            row = np.concatenate([row, row[goes]])
        return x, y, p, row


def worst_case(at: Near) -> Transport:
    """The worst distribution of every client of the block at w, (D,) or (n, D); ``radius`` (n,).

    Raises
    ------
    ValueError
        for a loss without a worst case on this support
    """
    w, block, loss, predictor, ball, radius = at
    nothing, far_class = np.zeros_like(block.y), None
    if isinstance(predictor, Softmax):
        steep, prediction = steepest(w, block, predictor, ball), predictor.forward(w, block)
        level, theta, to = best_flips(prediction, block, loss, ball, radius, steep.floor)
        level, atoms, far = _on_space(at, steep.floor, level, theta, to)
        far_x, far_y, far_class = steep.along, np.zeros(len(radius)), steep.own
    else:
        far_x, far_y = _outward(at)
        if ball.support is not None:
            level, atoms, far = ball.support.spread(at)
        else:
            terms = free_space_terms(at)
            level, atoms, far = _on_space(at, terms.floor, terms.level, terms.theta, -block.y)
    stay = Atom((radius == 0)[:, None] + nothing, block.X, block.y, nothing, nothing)
    atoms = tuple(a for a in (stay, *atoms) if (block.share * a.weight).any())
    each = zip(atoms, [predictor.forward(w, replace(block, X=a.X)) for a in atoms], strict=True)
    worst = sum((a.weight * loss.value(p, a.y) for a, p in each), start=nothing)
    flips = nothing
    if loss.targets != "real":
        flips = sum((a.weight * (a.y != block.y) for a in atoms), start=nothing)
    far = np.where(far > 1e-12 * radius, far, 0.0)
    risks, plain = block.mean(worst) + level * far, loss.value(predictor.forward(w, block), block.y)
    rows, away = (plain, worst, flips, atoms), (far, far_x, far_y, block.share)
    labels = loss.targets == "sign", far_class, ball.label_cost
    return Transport(block.names, risks, level, radius, *rows, *away, *labels)


def _on_space(
    at: Near, floor: Array, level: Array, theta: Array, to: Array
) -> tuple[Array, list[Atom], Array]:
    """As `Support.spread`: rows that stay and rows with their new labels."""
    block, ball, radius = at.block, at.ball, at.radius
    on, nothing = (radius > 0)[:, None], np.zeros_like(block.y)
    fee = nothing if math.isinf(ball.label_cost) else nothing + ball.label_cost
    left = np.where((level <= floor) & (level > 0), radius - block.mean(theta * fee), 0.0)
    stay = Atom(on * (1 - theta), block.X, block.y, nothing, nothing)
    return level, [stay, Atom(theta, block.X, to, nothing, fee)], left


def _outward(at: Near) -> tuple[Array, Array]:
    """The steepest way to lose per unit of cost, far out: (x, y) directions."""
    w, block, loss, predictor, ball, _ = at
    coefficients = np.broadcast_to(predictor.split(w)[0], (len(block.y), block.n_features))
    # transport norm 1, <w, outward> = ||w||_*
    outward = norm_gradient(coefficients, DUAL[ball.norm])
    if loss.targets == "sign":
        return -outward, np.zeros(len(block.y))
    slopes = [1.0] if loss.pieces is None else [a for a, _ in loss.pieces]
    sign = math.copysign(1.0, max(slopes, key=abs))
    by_y = (ball.support is not None) | (1 / ball.label_cost >= ball.dual_norm(coefficients))
    along_y = np.where(by_y, -sign / ball.label_cost, 0.0)
    return np.where(by_y[:, None], 0.0, sign * outward), along_y
