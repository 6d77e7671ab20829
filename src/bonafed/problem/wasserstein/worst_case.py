"""The worst distribution near each client's rows: what the adversary does with every row.

    P_s attains R_s(w) = sup { E_P loss : W(P, rows of client s) <= radius_s }

Row i is split into atoms (x', y') with weights that sum to one; an atom costs ||x' - x|| +
label_cost |y' - y| (or label_cost when its label is flipped). On all of R^n part of the radius may
be left for mass that moves arbitrarily far: the supremum is then approached, not attained.
Everything here is about single rows, so it stays with their owner.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import DUAL, Array, dense, norm, norm_gradient
from bonafed.client_names import ClientName
from bonafed.problem.predictors.affine import Softmax
from bonafed.problem.wasserstein.ball import Near, best_flips, flip_multiplier, free_space, steepest
from bonafed.problem.wasserstein.supports import BoxSupport

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Mask = NDArray[np.bool_]
FAR = 1e-6  # weight of an atom that stands for mass moving arbitrarily far on a polytope


@dataclass(frozen=True, eq=False)
class Atom:
    """One place each row's mass goes to."""

    weight: Array  # (n, m) part of the row's mass
    X: "Array | csr_array"  # (n, m, d), or the block's own rows where none is moved
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
    far_class: NDArray[np.intp] | None = None
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

    def exposed(self, client: int, top: int = 10) -> NDArray[np.intp]:
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
        mean = (self.share * self.plain).sum(1)
        return [
            {
                "client": name,
                "mean_loss": float(mean[i]),
                "worst_loss": float(self.value[i]),
                "radius": float(self.radius[i]),
                "spent": float(spent[i]),
                "label_part": float(part[i]),
                "feature_part": float(1 - part[i]) if spent[i] > 0 else 0.0,
                "active": _active(part[i]) if spent[i] > 0 else "none",
            }
            for i, name in enumerate(self.names)
        ]

    def distribution(
        self, client: int, far: float = 1e-6
    ) -> tuple[Array, Array, Array, NDArray[np.intp]]:
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
            goes, label, fee = self._goers(client, y)
            step = self.far[client] / (far * p[goes].sum()) - fee
            along = y[goes, None] * self.far_x[client] if self.labels else self.far_x[client]
            x = np.concatenate([x, x[goes] + step * along])
            y = np.concatenate([y, label + step * self.far_y[client]])
            p = np.concatenate([np.where(goes, p * (1 - far), p), p[goes] * far])
            row = np.concatenate([row, row[goes]])
        return x, y, p, row

    def _goers(self, client: int, y: Array) -> tuple[Mask, Array, float]:
        """Which atoms of labels y mass goes far from, the labels that it has there, and what these
        cost.
        """
        every = np.ones(len(y), bool)
        if self.far_class is None:
            return every, y, 0.0
        own = self.far_class[client]
        if (y == own).any():
            return y == own, y[y == own], 0.0
        return every, np.full(len(y), float(own)), self.flip_cost


def _active(label_part: float) -> str:
    return "labels" if label_part > 1 - 1e-6 else "features" if label_part < 1e-6 else "both"


def worst_case(at: Near) -> Transport:
    """The worst distribution of every client of the block at w, (D,) or (n, D); ``radius`` (n,).

    Raises
    ------
    ValueError
        for a loss without a worst case on this support
    """
    w, block, loss, predictor, ball, radius = at
    n, m = block.y.shape
    if isinstance(predictor, Softmax):
        steep = steepest(w, block, predictor, ball)
        prediction = predictor.forward(w, block)
        level, theta, to = best_flips(prediction, block, loss, ball, radius, steep.floor)
        atoms, far = _flipped(at, level, steep.floor, theta, to)
        far_x, far_y, far_class = steep.along, np.zeros(n), steep.own
    else:
        bounded = _on_box if isinstance(ball.support, BoxSupport) else _on_polytope
        near = _on_space if ball.support is None else bounded
        level, atoms, far = near(at)
        size = np.broadcast_to(ball.dual_norm(predictor.split(w)[0]), (n,))
        (far_x, far_y), far_class = _outward(at, size), None
    nothing = np.zeros((n, m))
    atoms = (Atom((radius == 0)[:, None] + nothing, block.X, block.y, nothing, nothing), *atoms)
    atoms = tuple(a for a in atoms if (block.share * a.weight).any())
    moved = [predictor.forward(w, replace(block, X=a.X)) for a in atoms]
    each = zip(atoms, moved, strict=True)
    worst = sum((a.weight * loss.value(p, a.y) for a, p in each), start=nothing)
    flips = nothing
    if loss.targets != "real":
        flips = sum((a.weight * (a.y != block.y) for a in atoms), start=nothing)
    far = np.where(far > 1e-12 * radius, far, 0.0)
    risks, plain = block.mean(worst) + level * far, loss.value(predictor.forward(w, block), block.y)
    rows, away = (plain, worst, flips, atoms), (far, far_x, far_y, block.share)
    labels = loss.targets == "sign", far_class, ball.label_cost
    return Transport(block.names, risks, level, radius, *rows, *away, *labels)


def _outward(at: Near, size: Array) -> tuple[Array, Array]:
    """The steepest way to lose per unit of cost, far out: (x, y) directions."""
    w, block, loss, predictor, ball, _ = at
    coefficients = np.broadcast_to(predictor.split(w)[0], (len(size), block.n_features))
    # transport norm 1, <w, outward> = ||w||_*
    outward = norm_gradient(coefficients, DUAL[ball.norm])
    if loss.targets == "sign":
        return -outward, np.zeros(len(size))
    slopes = [1.0] if loss.pieces is None else [a for a, _ in loss.pieces]
    sign = math.copysign(1.0, max(slopes, key=abs))
    by_y = (ball.support is not None) | (1 / ball.label_cost >= size)
    along_y = np.where(by_y, -sign / ball.label_cost, 0.0)
    return np.where(by_y[:, None], 0.0, sign * outward), along_y


def _flipped(
    at: Near, level: Array, floor: Array, theta: Array, to: Array
) -> tuple[list[Atom], Array]:
    """Rows that stay and rows with their new labels, and the cost left for going far."""
    block, ball, radius = at.block, at.ball, at.radius
    on, nothing = (radius > 0)[:, None], np.zeros_like(block.y)
    fee = nothing if math.isinf(ball.label_cost) else nothing + ball.label_cost
    left = np.where((level <= floor) & (level > 0), radius - block.mean(theta * fee), 0.0)
    stay = Atom(on * (1 - theta), block.X, block.y, nothing, nothing)
    return [stay, Atom(theta, block.X, to, nothing, fee)], left


def _on_space(at: Near) -> tuple[Array, list[Atom], Array]:
    """Transport multipliers, atoms (flips) and the cost left over."""
    w, block, loss, predictor, ball, radius = at
    cut = free_space(at)
    on, nothing = (radius > 0)[:, None], np.zeros_like(block.y)
    if loss.targets == "real" or math.isinf(ball.label_cost):
        far = np.where(cut.level > 0, radius, 0.0)
        return cut.level, [Atom(on + nothing, block.X, block.y, nothing, nothing)], far
    prediction = predictor.forward(w, block)
    here, flipped = loss.value(prediction, block.y), loss.value(prediction, -block.y)
    floor = np.where(radius > 0, loss.lipschitz * ball.dual_norm(predictor.split(w)[0]), 0.0)
    level, theta = flip_multiplier(here, flipped, block.share, floor, radius, ball.label_cost)
    return level, *_flipped(at, level, floor, theta, -block.y)


def _on_box(at: Near) -> tuple[Array, list[Atom], Array]:
    """Both plans of the bracket of lambda_; on a box only the free target of a residual loss can go
    far.
    """
    w, block, loss, predictor, ball, radius = at
    box: Any = ball.support
    cut = box.cut(at)
    low, high, weight = box.plans(at)
    shape = len(radius), block.n_features
    coefficients = np.ascontiguousarray(np.broadcast_to(predictor.split(w)[0], shape))
    X, atoms = dense(block.X).reshape(*block.y.shape, -1), []
    for plan, part in ((low, weight), (high, 1 - weight)):
        moved = X + box.moves(coefficients, plan, block, ball.norm)
        y = np.where(plan.flip, -block.y, block.y)
        fee = np.where(plan.flip, ball.label_cost, 0.0)
        mass = np.where(radius > 0, part, 0.0)[:, None] + np.zeros_like(y)
        atoms.append(Atom(mass, moved, y, plan.spent, fee))
    free_y = loss.targets == "real" and ball.label_cost < math.inf
    return cut.level, atoms, radius + cut.gradient_level if free_y else np.zeros(len(radius))


def _on_polytope(at: Near) -> tuple[Array, list[Atom], Array]:
    """One atom per piece of the loss; mass that leaves along a recession direction becomes an atom
    of weight FAR.
    """
    _, block, loss, _, ball, radius = at
    support: Any = ball.support
    worst = support.worst(at)
    X = dense(block.X).reshape(*block.y.shape, -1)
    pieces = max((len(a.part) for a in worst if a is not None), default=0)
    weight, shift = np.zeros((2, pieces, *block.y.shape))
    moved, y = np.repeat(X[None], pieces, 0), np.repeat(block.y[None], pieces, 0)
    price = 0.0 if math.isinf(ball.label_cost) else ball.label_cost
    for i, a in enumerate(worst):
        if a is None:
            continue
        cost = norm(a.drift, ball.norm) + price * np.abs(a.shift)
        part = np.where(a.part >= FAR, a.part, np.where(cost > FAR * radius[i], FAR, 0.0))
        part[part.argmax(0), np.arange(part.shape[1])] += 1.0 - part.sum(0)
        inverse = np.divide(1.0, part, out=np.zeros_like(part), where=part > 0)
        weight[:, i], shift[:, i] = part, inverse * a.shift
        moved[:, i] += inverse[..., None] * a.drift
        y[:, i] = np.where(a.flip[:, None], -y[:, i], y[:, i] + shift[:, i])
    level = np.array([0.0 if a is None else a.level for a in worst])
    if loss.targets == "sign":
        fee = np.where(y != block.y, ball.label_cost, 0.0)
    else:
        fee = price * np.abs(shift)
    way = norm(moved - X, ball.norm)
    cost = (block.share * weight * (way + fee)).sum((0, 2))
    paid = np.minimum(1.0, np.divide(radius, cost, out=np.ones_like(cost), where=cost > 0))[:, None]
    # rounding over the radius
    rest = np.where(radius > 0, 1.0, 0.0)[:, None] * (1 - paid) + np.zeros_like(block.y)
    atoms = [Atom(paid * weight[k], moved[k], y[k], way[k], fee[k]) for k in range(pieces)]
    return level, [*atoms, Atom(rest, block.X, block.y, 0 * rest, 0 * rest)], np.zeros(len(radius))
