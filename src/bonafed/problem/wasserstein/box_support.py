"""Wasserstein worst cases of piecewise linear losses when rows must stay on a box.

    f_s(w, l) = mean_i max_k { b_k(i) - o_k l + sup { <a_k w, delta> - l ||delta|| : x_i + delta in
    the support } }

with one piece k per linear piece of the loss (Bai, Wong, Qiao, Ho, *Distributionally robust
federated learning*, (B.2) to (B.4)), plus its copy with the label flipped at o_k = label_cost for
margin losses. R_s(w) = min over l >= floor of radius l + f_s(w, l); floor = 0, or
Lipschitz/label_cost for residual losses, whose y is free.

On a box the inner supremum is closed form (l1 below; l2 and linf in
``solvers/kernels/box_kernels.py``), so the 4 d N multipliers of the paper are not needed. The best
lambda_ is computed by intersecting the tangents at both ends of a bracket, and the cut is the
convex combination of the two ends' cuts that spends exactly the radius: it holds for every (model,
lambda_), ties included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bonafed.arrays import Array, Block, dense
from bonafed.problem.losses import Loss
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.wasserstein.ball import ROUNDING, Cut, Mask, Near, Support, WassersteinBall

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class Piece:
    """``const`` + pull * (change of the prediction): one linear piece of the loss, for every row of
    a block.
    """

    const: Array  # (n, m)
    pull: Array  # (n, m) derivative in the prediction
    scale: float  # |pull|
    fee: float  # label_cost for a flipped label, else 0


def linear_pieces(prediction: Array, block: Block, loss: Loss, label_cost: float) -> list[Piece]:
    """The loss's pieces at the block's rows, those that need no move first; margin losses: also
    with labels flipped.
    """
    assert loss.pieces is not None  # as ``Support.check`` asks
    if loss.targets == "real":
        t, ones = prediction - block.y, np.ones_like(prediction)
        return [
            Piece(a * t + b, a * ones, abs(a), 0.0)
            for a, b in sorted(loss.pieces, key=lambda p: abs(p[0]))
        ]
    margin, pieces = block.y * prediction, sorted(loss.pieces, key=lambda p: abs(p[0]))
    stay = [Piece(a * margin + b, a * block.y, abs(a), 0.0) for a, b in pieces]
    flip = [
        Piece(b - a * margin, -a * block.y, abs(a), label_cost)
        for a, b in pieces
        if a and label_cost < math.inf
    ]
    return stay + flip


@dataclass(frozen=True)
class Plan:
    """What the adversary does with every row at one lambda_: a supporting plane of f there."""

    lambda_: Array  # (n,)
    value: Array  # (n,) f
    gradient: Array  # (n,) minus the transport cost spent
    pull: Array  # (n, m) derivative of the loss in the prediction after the move
    scale: Array  # (n, m) |pull|
    flip: Mask  # (n, m)
    spent: Array  # (n, m) ||delta||


def bracket(
    at: Callable[[Array], Plan], floor: Array, top: Array, radius: Array
) -> tuple[Plan, Plan, Array]:
    """Plans at both ends of a bracket of the best lambda_, and the weight of the lower end.

    ``radius l + f(l)`` is convex; its tangents at the ends meet at a lower bound of the minimum.
    Stops when the bound meets the value to 1e-14 relative, or no number lies between the ends. At
    ``floor`` when it increases from there.
    """
    low, high = at(floor), at(np.maximum(top, floor))
    done = low.gradient + radius >= 0
    high = _where(done, low, high)
    for turn in range(300):
        cross, bound = _crossing(low, high, radius)
        best = np.minimum(low.value + radius * low.lambda_, high.value + radius * high.lambda_)
        width = high.lambda_ - low.lambda_
        done = (
            done
            | (best - bound <= 1e-14 * np.abs(best))
            | (width <= 4 * np.finfo(float).eps * high.lambda_)
        )
        if done.all():
            break
        middle = at(np.where(done, low.lambda_, cross if turn % 3 < 2 else low.lambda_ + width / 2))
        rising = middle.gradient + radius >= 0
        low, high = _where(~done & ~rising, middle, low), _where(~done & rising, middle, high)
    drop = high.gradient - low.gradient
    weight = np.divide(high.gradient + radius, drop, out=np.ones_like(drop), where=drop > 0)
    return low, high, np.clip(weight, 0.0, 1.0)


def _crossing(low: Plan, high: Plan, radius: Array) -> tuple[Array, Array]:
    """Where the two tangents meet, as a lambda_ inside the bracket, and the height of radius *
    lambda_ + tangents there.
    """
    drop, width = high.gradient - low.gradient, high.lambda_ - low.lambda_
    ahead = low.value - high.value + high.gradient * width
    step = np.clip(np.divide(ahead, drop, out=np.zeros_like(drop), where=drop > 0), 0.0, width)
    return low.lambda_ + step, low.value + low.gradient * step + radius * (low.lambda_ + step)


def _where(choose: Mask, a: Plan, b: Plan) -> Plan:
    pick = {
        k: np.where(choose if np.ndim(v) == 1 else choose[:, None], v, getattr(b, k))
        for k, v in vars(a).items()
    }
    return Plan(**pick)


@dataclass(frozen=True)
class BoxSupport(Support):
    """Rows stay in the box lower <= x <= upper; targets of residual losses are free.

    Parameters
    ----------
    lower, upper : numbers, or arrays with one entry per feature; finite, lower < upper

    Examples
    --------
    >>> import bonafed as bf
    >>> support = bf.BoxSupport(lower=0.0, upper=1.0)
    >>> bf.WassersteinBall(radius=0.1, support=support).support == support
    True
    """

    named: ClassVar[str] = "a box"

    lower: float | Sequence[float] | Array
    upper: float | Sequence[float] | Array

    def __post_init__(self) -> None:
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        if not (
            np.isfinite(lower).all()
            and np.isfinite(upper).all()
            and lower.ndim <= 1
            and upper.ndim <= 1
        ):
            raise ValueError(
                f"lower and upper must be finite numbers, or one per feature, got {self.lower!r},"
                f" {self.upper!r}. For no bounds use support=None, for half-lines PolytopeSupport."
            )
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise ValueError(
                f"lower has {lower.size} entries and upper {upper.size}: give one per feature in"
                " both."
            )
        if (lower >= upper).any():
            raise ValueError(
                f"lower must be < upper in every feature, got lower={self.lower!r},"
                f" upper={self.upper!r}."
            )
        for name, value in (("lower", lower), ("upper", upper)):
            object.__setattr__(self, name, tuple(value.tolist()) if value.ndim else float(value))

    def bounds(self, d: int) -> tuple[Array, Array]:
        """Lower and upper as (d,) arrays."""
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        if any(a.ndim and a.shape != (d,) for a in (lower, upper)):
            raise ValueError(
                f"the box has {max(lower.size, upper.size)} bounds, the data {d} features: give one"
                " each."
            )
        return np.broadcast_to(lower, (d,)).copy(), np.broadcast_to(upper, (d,)).copy()

    # -- data
    # ----------------------------------------------------------------------------------------------

    def outside(self, X: Array | csr_array, y: Array, rounding: float = ROUNDING) -> Mask:
        rows = dense(X)
        lower, upper = self.bounds(rows.shape[-1])
        slack = rounding * np.maximum(np.abs(lower), np.abs(upper))
        return np.asarray(((rows < lower - slack) | (rows > upper + slack)).any(-1))

    def project(self, X: Array | csr_array, y: Array) -> tuple[Array, Array]:
        rows = dense(X)
        return np.clip(rows, *self.bounds(rows.shape[-1])), y

    # -- worst case
    # ----------------------------------------------------------------------------------------------

    def cut(self, at: Near) -> Cut:
        w, block, loss, predictor, ball, radius = at
        low, high, weight = self.plans(at)
        cross, bound = _crossing(low, high, radius)
        gradients = [self._gradient(w, plan, block, predictor, ball) for plan in (low, high)]
        mixed = weight[:, None] * gradients[0] + (1 - weight)[:, None] * gradients[1]
        spent = weight * low.gradient + (1 - weight) * high.gradient
        if (radius > 0).all():
            return Cut(bound - radius * cross, cross, mixed, spent)
        prediction = predictor.forward(w, block)
        plain = predictor.backward(w, block.share * loss.gradient(prediction, block.y), block)
        mean = block.mean(loss.value(prediction, block.y))
        on = radius > 0
        base = np.where(on, bound - radius * cross, mean)
        return Cut(
            base,
            np.where(on, cross, 0.0),
            np.where(on[:, None], mixed, plain),
            np.where(on, spent, 0.0),
        )

    def plans(self, at: Near) -> tuple[Plan, Plan, Array]:
        """The adversary's plans at both ends of the bracket of lambda_ and the weight of the first:
        together the worst.
        """
        w, block, loss, predictor, ball, radius = at
        plan, pieces = self.planner(w, block, loss, predictor, ball)
        floor = np.full(
            len(radius), 0.0 if loss.targets == "sign" else loss.lipschitz / ball.label_cost
        )
        steepest = max(p.scale for p in pieces)
        # no move pays at this lambda_
        still = steepest * ball.dual_norm(self._coefficients(w, block, predictor))
        return bracket(
            plan, floor, np.maximum(still, _flip_top(pieces, block)) * (1 + 1e-12), radius
        )

    def planner(
        self, w: Array, block: Block, loss: Loss, predictor: Linear, ball: WassersteinBall
    ) -> tuple[Callable[[Array], Plan], list[Piece]]:
        """``lambda_ (n,) -> Plan``, f(w, lambda_) and the moves that attain it, and the pieces it
        chooses from.
        """
        self.check(loss)
        pieces = linear_pieces(predictor.forward(w, block), block, loss, ball.label_cost)
        coefficients = self._coefficients(w, block, predictor)
        wanted: dict[float, Mask] = {}
        for p in pieces:
            if p.scale:
                sides = np.array([p.pull < 0, p.pull > 0]) & (block.share > 0)
                wanted[p.scale] = sides | wanted.get(p.scale, sides)

        reach = {
            s: self._reach(coefficients, block, ball.norm, sides) for s, sides in wanted.items()
        }

        def at(lambda_: Array) -> Plan:
            return _plan(
                lambda_, pieces, {s: best(lambda_ / s) for s, best in reach.items()}, block
            )

        return at, pieces

    def _coefficients(self, w: Array, block: Block, predictor: Linear) -> Array:
        coefficients = predictor.split(w)[0]
        return np.ascontiguousarray(
            np.broadcast_to(coefficients, (len(block.index), block.n_features))
        )

    def _reach(
        self, coefficients: Array, block: Block, kind: str, wanted: Mask
    ) -> Callable[[Array], tuple[Array, Array]]:
        """lambda_ -> values and lengths of the best moves along -w [0] and w [1], (2, n, m) each,
        where wanted.
        """
        lower, upper = self.bounds(block.n_features)
        if kind == "l1":
            return lambda lambda_: _reach_l1(coefficients, lambda_, block, lower, upper)
        from bonafed.solvers.kernels import box_kernels

        X, code = _rows(block), box_kernels.KINDS[kind]
        # lengths at other lambda_: they fall as it rises
        known: list[tuple[Array, Array]] = []

        def reach(lambda_: Array) -> tuple[Array, Array]:
            inner, outer = np.zeros(wanted.shape), np.full(wanted.shape, np.inf)
            for other, length in known:
                above = (other >= lambda_)[None, :, None]
                inner = np.where(above, np.maximum(inner, length), inner)
                outer = np.where(above, outer, np.minimum(outer, length))
            best = box_kernels.reach(
                code, X, coefficients, lower, upper, lambda_, wanted, inner, outer
            )
            if kind == "linf":
                known.append((lambda_, best[1]))
            return best

        return reach

    def moves(self, coefficients: Array, plan: Plan, block: Block, kind: str) -> Array:
        """The plan's displacements, (n, m, d)."""
        lower, upper = self.bounds(block.n_features)
        side = np.sign(plan.pull) * (plan.spent > 0)
        X = _rows(block)
        if kind == "l1":
            ahead = side[..., None] * coefficients[:, None, :]
            far = np.where(ahead > 0, upper, lower) - X
            return np.where(np.abs(ahead) > _per_pull(plan)[..., None], far, 0.0)
        from bonafed.solvers.kernels import box_kernels

        return box_kernels.moves(
            box_kernels.KINDS[kind],
            X,
            coefficients,
            lower,
            upper,
            _per_pull(plan),
            side,
            plan.spent,
        )

    def _gradient(
        self, w: Array, plan: Plan, block: Block, predictor: Linear, ball: WassersteinBall
    ) -> Array:
        """Mean of pull * (x + delta), with the intercept's part last."""
        mass = block.share * plan.pull
        gradient = predictor.backward(w, mass, block)
        coefficients = self._coefficients(w, block, predictor)
        gradient[:, : block.n_features] += self._push(coefficients, mass, plan, block, ball.norm)
        return gradient

    def _push(self, coefficients: Array, mass: Array, plan: Plan, block: Block, kind: str) -> Array:
        """Sum over rows of mass * delta, (n, d)."""
        lower, upper = self.bounds(block.n_features)
        if kind != "l1":
            from bonafed.solvers.kernels import box_kernels

            side = np.sign(plan.pull) * (plan.spent > 0)
            code = box_kernels.KINDS[kind]
            return box_kernels.push(
                code,
                _rows(block),
                coefficients,
                lower,
                upper,
                _per_pull(plan),
                side,
                plan.spent,
                mass,
            )
        total = np.zeros_like(coefficients)
        for scale in np.unique(plan.scale[plan.scale > 0]):
            for sign in (-1.0, 1.0):
                part = mass * (
                    (plan.scale == scale) & (np.sign(plan.pull) == sign) & (plan.spent > 0)
                )
                far = np.where(sign * coefficients > 0, upper, lower) * part.sum(1, keepdims=True)
                moved = np.abs(coefficients) > (plan.lambda_ / scale)[:, None]
                total += moved * (far - block.backward(part))
        return total


def _reach_l1(
    w: Array, lambda_: Array, block: Block, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """sum_j (|w_j| - lambda_)_+ room_j and the room used, along -w and w, in one product with X for
    both.
    """
    moved = np.abs(w) > lambda_[:, None]
    sign = np.sign(w) * moved
    excess = sign * (np.abs(w) - lambda_[:, None])
    gain, length = [], []
    for t, out in ((excess, gain), (sign, length)):
        up, down = np.maximum(t, 0.0), np.maximum(-t, 0.0)
        along = block.forward(t)
        out += [
            (down @ upper - up @ lower)[:, None] + along,
            (up @ upper - down @ lower)[:, None] - along,
        ]
    return np.maximum(gain, 0.0), np.maximum(length, 0.0)


def _plan(
    lambda_: Array, pieces: list[Piece], moved: dict[float, tuple[Array, Array]], block: Block
) -> Plan:
    values, lengths = [], []
    for p in pieces:
        if not p.scale:
            values.append(p.const - p.fee * lambda_[:, None])
            lengths.append(np.zeros_like(p.const))
            continue
        gain, length = moved[p.scale]
        values.append(
            p.const + p.scale * np.where(p.pull > 0, gain[1], gain[0]) - p.fee * lambda_[:, None]
        )
        lengths.append(np.where(p.pull > 0, length[1], length[0]))
    chosen = np.argmax(values, 0)[None]

    def pick(parts: list[Array]) -> Array:
        return np.take_along_axis(np.stack(parts), chosen, 0)[0]

    spent = pick(lengths)
    fee = np.array([p.fee for p in pieces])[chosen[0]]
    scale = np.array([p.scale for p in pieces])[chosen[0]]
    pull = pick([p.pull for p in pieces])
    return Plan(
        lambda_, block.mean(pick(values)), -block.mean(spent + fee), pull, scale, fee > 0, spent
    )


def _per_pull(plan: Plan) -> Array:
    """lambda_ over |pull|, (n, m): what a move along the unit pull must pay; 0 where nothing
    pulls.
    """
    lambda_ = np.broadcast_to(plan.lambda_[:, None], plan.scale.shape)
    return np.divide(lambda_, plan.scale, out=np.zeros_like(plan.scale), where=plan.scale > 0)


def _flip_top(pieces: list[Piece], block: Block) -> Array:
    """The lambda_ above which no flip pays, without moves."""
    stay = np.max([p.const for p in pieces if p.fee == 0], 0)
    gains = [
        np.where(block.share > 0, (p.const - stay) / p.fee, 0.0).max(1) for p in pieces if p.fee > 0
    ]
    return np.max([np.zeros(len(stay)), *gains], 0)


def _rows(block: Block) -> Array:
    """X as (n, m, d); a sparse block is made dense, since its moved rows are."""
    return np.ascontiguousarray(dense(block.X).reshape(*block.y.shape, block.n_features))
