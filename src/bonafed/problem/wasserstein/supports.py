"""Wasserstein worst cases of piecewise linear losses when rows must stay on a box or a polytope."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bonafed.arrays import DUAL, Array, Block, dense, norm
from bonafed.problem.losses import Loss
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.wasserstein.ball import (
    ROUNDING,
    Atom,
    Cut,
    Mask,
    Near,
    Support,
    WassersteinBall,
)
from bonafed.solvers.conic.builder import Model

Reached = tuple[Array, Array]  # by the best moves: values and lengths

# Wasserstein worst cases of piecewise linear losses when rows must stay on a box.
#
#    f_s(w, l) = mean_i max_k { b_k(i) - o_k l + sup { <a_k w, delta> - l ||delta|| : x_i + delta in
#     the support } }
#
# with one piece k per linear piece of the loss (Bai, Wong, Qiao, Ho, *Distributionally robust
# federated learning*, (B.2) to (B.4)), plus its copy with the label flipped at o_k = label_cost for
# margin losses. R_s(w) = min over l >= floor of radius l + f_s(w, l); floor = 0, or
# Lipschitz/label_cost for residual losses, whose y is free.
#
# On a box the inner supremum is closed form (l1 below; l2 and linf in
# ``solvers/kernels/box_kernels.py``), so the 4 d N multipliers of the paper are not needed. The
# best lambda_ is computed by intersecting the tangents at both ends of a bracket, and the cut is
# the convex combination of the two ends' cuts that spends exactly the radius: it holds for every
# (model, lambda_), ties included.


class Pieces(NamedTuple):
    """``const`` + pull * (change of the prediction): the K linear pieces of the loss, for every row
    of a block.
    """

    const: Array  # (K, n, m)
    pull: Array  # (K, n, m) derivative in the prediction
    scale: Array  # (K,) |pull|
    fee: Array  # (K,) label_cost for a flipped label, else 0


def linear_pieces(prediction: Array, block: Block, loss: Loss, label_cost: float) -> Pieces:
    """The loss's pieces at the block's rows, those that need no move first; margin losses: also
    with labels flipped.
    """
    pieces: Any = loss.pieces  # which are there, as ``Support.check`` asks
    slopes, heights = np.array(sorted(pieces, key=lambda piece: abs(piece[0]))).T
    real, flipped = loss.targets == "real", slopes != 0
    t, sign = prediction - block.y, np.ones_like(prediction)
    if not real:
        t, sign = block.y * prediction, block.y
    a, b, fee = slopes[:, None, None], heights[:, None, None], np.zeros(len(slopes))
    const, pull = a * t + b, a * sign
    if not real and label_cost < math.inf:
        const = np.concatenate([const, (b - a * t)[flipped]])
        pull = np.concatenate([pull, -pull[flipped]])
        fee = np.append(fee, flipped[flipped] * label_cost)
        slopes = np.append(slopes, slopes[flipped])
    return Pieces(const, pull, np.abs(slopes), fee)


class Plan(NamedTuple):
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
        done = done | (best - bound <= 1e-14 * np.abs(best))
        done |= width <= 4 * np.finfo(float).eps * high.lambda_
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
    pairs = zip(a, b, strict=True)
    return Plan(*(np.where(choose if v.ndim == 1 else choose[:, None], v, o) for v, o in pairs))


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
        if not all(np.isfinite(bound).all() and bound.ndim <= 1 for bound in (lower, upper)):
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
        coefficients, means = self._coefficients(w, block, predictor), []
        for plan in (low, high):  # of pull * (x + delta), with the intercept's part last
            mass = block.share * plan.pull
            means.append(predictor.backward(w, mass, block))
            push = self._push(coefficients, mass, plan, block, ball.norm)
            means[-1][:, : block.n_features] += push
        mixed = weight[:, None] * means[0] + (1 - weight)[:, None] * means[1]
        base, spent = bound - radius * cross, weight * low.gradient + (1 - weight) * high.gradient
        on = radius > 0
        if on.all():
            return Cut(base, cross, mixed, spent)
        prediction = predictor.forward(w, block)
        plain = predictor.backward(w, block.share * loss.gradient(prediction, block.y), block)
        base = np.where(on, base, block.mean(loss.value(prediction, block.y)))
        level, spent = np.where(on, cross, 0.0), np.where(on, spent, 0.0)
        return Cut(base, level, np.where(on[:, None], mixed, plain), spent)

    def spread(self, at: Near) -> tuple[Array, list[Atom], Array]:
        """Both plans of the bracket of lambda_; only the free target of a residual loss can go
        far.
        """
        w, block, loss, predictor, ball, radius = at
        cut, (low, high, weight) = self.cut(at), self.plans(at)
        coefficients, atoms = self._coefficients(w, block, predictor), list[Atom]()
        for plan, part in ((low, weight), (high, 1 - weight)):
            moved = _rows(block) + self.moves(coefficients, plan, block, ball.norm)
            y = np.where(plan.flip, -block.y, block.y)
            fee = np.where(plan.flip, ball.label_cost, 0.0)
            mass = np.where(radius > 0, part, 0.0)[:, None] + np.zeros_like(y)
            atoms.append(Atom(mass, moved, y, plan.spent, fee))
        free_y = loss.targets == "real" and ball.label_cost < math.inf
        return cut.level, atoms, radius + cut.gradient_level if free_y else np.zeros(len(radius))

    def plans(self, at: Near) -> tuple[Plan, Plan, Array]:
        """The adversary's plans at both ends of the bracket of lambda_ and the weight of the first:
        together the worst.
        """
        w, block, loss, predictor, ball, radius = at
        plan, pieces = self.planner(w, block, loss, predictor, ball)
        least = 0.0 if loss.targets == "sign" else loss.lipschitz / ball.label_cost
        # no move pays at this lambda_
        still = pieces.scale.max() * ball.dual_norm(self._coefficients(w, block, predictor))
        # and without moves no flip above the largest gain of one
        turned = pieces.fee > 0
        gains = (pieces.const[turned] - pieces.const[~turned].max(0)) / ball.label_cost
        gain = np.where(block.share > 0, gains, 0.0).max((0, 2), initial=0.0)
        top = np.maximum(still, gain) * (1 + 1e-12)
        return bracket(plan, np.full(len(radius), least), top, radius)

    def planner(
        self, w: Array, block: Block, loss: Loss, predictor: Linear, ball: WassersteinBall
    ) -> tuple[Callable[[Array], Plan], Pieces]:
        """``lambda_ (n,) -> Plan``, f(w, lambda_) and the moves that attain it, and the pieces it
        chooses from.
        """
        self.check(loss)
        pieces = linear_pieces(predictor.forward(w, block), block, loss, ball.label_cost)
        coefficients = self._coefficients(w, block, predictor)
        reach = {}
        for scale in np.unique(pieces.scale[pieces.scale > 0]):
            pull = pieces.pull[pieces.scale == scale]
            wanted = np.array([(pull < 0).any(0), (pull > 0).any(0)]) & (block.share > 0)
            reach[scale] = self._reach(coefficients, block, ball.norm, wanted)

        def at(lambda_: Array) -> Plan:
            moved = {s: best(lambda_ / s) for s, best in reach.items()}
            return _plan(lambda_, pieces, moved, block)

        return at, pieces

    def _coefficients(self, w: Array, block: Block, predictor: Linear) -> Array:
        shape = len(block.index), block.n_features
        return np.ascontiguousarray(np.broadcast_to(predictor.split(w)[0], shape))

    def _reach(
        self, coefficients: Array, block: Block, kind: str, wanted: Mask
    ) -> Callable[[Array], Reached]:
        """lambda_ -> values and lengths of the best moves along -w [0] and w [1], (2, n, m) each,
        where wanted.
        """
        lower, upper = self.bounds(block.n_features)
        if kind == "l1":
            return lambda lambda_: _reach_l1(coefficients, lambda_, block, lower, upper)
        from bonafed.solvers.kernels import box_kernels

        X, code = _rows(block), box_kernels.KINDS[kind]
        # lengths at other lambda_: they fall as it rises
        known: list[Reached] = []

        def reach(lambda_: Array) -> Reached:
            inner, outer = np.zeros(wanted.shape), np.full(wanted.shape, np.inf)
            for other, length in known:
                above = (other >= lambda_)[None, :, None]
                inner = np.where(above, np.maximum(inner, length), inner)
                outer = np.where(above, outer, np.minimum(outer, length))
            box = code, X, coefficients, lower, upper
            best = box_kernels.reach(*box, lambda_, wanted, inner, outer)
            if kind == "linf":
                known.append((lambda_, best[1]))
            return best

        return reach

    def moves(self, coefficients: Array, plan: Plan, block: Block, kind: str) -> Array:
        """The plan's displacements, (n, m, d)."""
        if kind != "l1":
            kernels, moved = self._moved(coefficients, plan, block, kind)
            return kernels.moves(*moved)
        lower, upper = self.bounds(block.n_features)
        ahead = (np.sign(plan.pull) * (plan.spent > 0))[..., None] * coefficients[:, None, :]
        far = np.where(ahead > 0, upper, lower) - _rows(block)
        return np.where(np.abs(ahead) > _per_pull(plan)[..., None], far, 0.0)

    def _moved(self, coefficients: Array, plan: Plan, block: Block, kind: str) -> tuple[Any, tuple]:
        """The kernels for l2 and linf, and what they read of the plan's moves."""
        from bonafed.solvers.kernels import box_kernels

        side, code = np.sign(plan.pull) * (plan.spent > 0), box_kernels.KINDS[kind]
        box = _rows(block), coefficients, *self.bounds(block.n_features)
        return box_kernels, (code, *box, _per_pull(plan), side, plan.spent)

    def _push(self, coefficients: Array, mass: Array, plan: Plan, block: Block, kind: str) -> Array:
        """Sum over rows of mass * delta, (n, d)."""
        if kind != "l1":
            kernels, moved = self._moved(coefficients, plan, block, kind)
            return kernels.push(*moved, mass)
        lower, upper = self.bounds(block.n_features)
        total = np.zeros_like(coefficients)
        for scale in np.unique(plan.scale[plan.scale > 0]):
            for sign in (-1.0, 1.0):
                along = (plan.scale == scale) & (np.sign(plan.pull) == sign)
                part = mass * (along & (plan.spent > 0))
                far = np.where(sign * coefficients > 0, upper, lower) * part.sum(1, keepdims=True)
                moved = np.abs(coefficients) > (plan.lambda_ / scale)[:, None]
                total += moved * (far - block.backward(part))
        return total


def _reach_l1(w: Array, lambda_: Array, block: Block, lower: Array, upper: Array) -> Reached:
    """sum_j (|w_j| - lambda_)_+ room_j and the room used, along -w and w, in one product with X for
    both.
    """
    sign = np.sign(w) * (np.abs(w) > lambda_[:, None])
    excess = sign * (np.abs(w) - lambda_[:, None])
    gain, length = [], []
    for t, out in ((excess, gain), (sign, length)):
        up, down = np.maximum(t, 0.0), np.maximum(-t, 0.0)
        along = block.forward(t)
        out.append((down @ upper - up @ lower)[:, None] + along)
        out.append((up @ upper - down @ lower)[:, None] - along)
    return np.maximum(gain, 0.0), np.maximum(length, 0.0)


def _plan(lambda_: Array, pieces: Pieces, moved: dict[float, Reached], block: Block) -> Plan:
    gain, length = np.zeros_like(pieces.const), np.zeros_like(pieces.const)
    for k in np.flatnonzero(pieces.scale):
        best, ahead = moved[pieces.scale[k]], pieces.pull[k] > 0
        gain[k], length[k] = (np.where(ahead, along, against) for against, along in best)
    scale, fee = pieces.scale[:, None, None], pieces.fee[:, None, None]
    values = pieces.const + scale * gain - fee * lambda_[:, None]
    at = np.argmax(values, 0)[None]
    value, pull, spent = (np.take_along_axis(v, at, 0)[0] for v in (values, pieces.pull, length))
    fee = pieces.fee[at[0]]
    gradient = -block.mean(spent + fee)
    return Plan(lambda_, block.mean(value), gradient, pull, pieces.scale[at[0]], fee > 0, spent)


def _per_pull(plan: Plan) -> Array:
    """lambda_ over |pull|, (n, m): what a move along the unit pull must pay; 0 where nothing
    pulls.
    """
    lambda_ = np.broadcast_to(plan.lambda_[:, None], plan.scale.shape)
    return np.divide(lambda_, plan.scale, out=np.zeros_like(plan.scale), where=plan.scale > 0)


def _rows(block: Block) -> Array:
    """X as (n, m, d); a sparse block is made dense, since its moved rows are."""
    return np.ascontiguousarray(dense(block.X).reshape(*block.y.shape, block.n_features))


# Wasserstein worst cases of piecewise linear losses when rows must stay on a polytope {C x +
# c_label y <= d}.
#
# At a fixed model the adversary of one client solves one conic program, the dual of (B.2) to (B.4)
# in Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*: with p_ik the part of row i
# on piece k and D_ik = p_ik * displacement,
#
#     maximise   sum_ik share_i { p_ik b_k(i) + pull_ik (<w, D_ik> - E_ik) }
#     subject to sum_k p_ik = 1,  p_ik (d - C x_i - c_label y_i) >= C D_ik + c_label E_ik,
#                sum_ik share_i { ||D_ik|| + label_cost |E_ik| + p_ik fee_k } <= radius,
#
# E_ik moving the target of a residual loss and fee_k = label_cost on flipped pieces of a margin
# loss. The best lambda_ is the multiplier of the last line. p = 0 < ||D|| is mass that leaves along
# a recession direction of the polytope.

FAR = 1e-6  # weight of an atom that stands for mass moving arbitrarily far on a polytope
TOL = 1e-10  # of the conic programs
WANTED, ACCEPTED = 1e-8, 1e-6  # relative gaps between a worst case and its dual bound


class Adversary(NamedTuple):
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
            moves = ((at, -a) for at, a in zip(z, row, strict=True) if a)
            model.nonneg([np.full(len(out), right), *moves])
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
        (level, spent), worst = np.zeros((2, len(radius))), mean.copy()
        for i, a in enumerate(self.worst(at)):
            if a is None:
                continue
            mass = np.zeros_like(block.y)
            mass[i] = block.share[i] * (a.part * a.pull).sum(0)
            gradient[i] = predictor.backward(w, mass, block)[i]
            drift = np.einsum("r,kr,krj->j", block.share[i], a.pull, a.drift)
            gradient[i, : block.n_features] += drift
            level[i], spent[i], mean[i] = a.level, -a.cost, a.value - a.level * a.cost
            worst[i] = a.bound  # a plan that the solver rounds off is in the ball up to tolerance
        return Cut(mean, level, gradient, spent, worst)

    def worst(self, at: Near) -> list[Adversary | None]:
        """Every client's worst case; None where the radius is 0."""
        w, block, loss, predictor, ball, radius = at
        self.check(loss)
        pieces = linear_pieces(predictor.forward(w, block), block, loss, ball.label_cost)
        # (n, K, m)
        const, pull = (np.ascontiguousarray(each.swapaxes(0, 1)) for each in pieces[:2])
        w = np.broadcast_to(predictor.split(w)[0], (len(radius), block.n_features))
        X, (C, d, c) = dense(block.X).reshape(*block.y.shape, -1), self.rows(block.n_features)
        slack = np.maximum(d - X @ C.T - block.y[..., None] * c, 0.0)
        label_cost = ball.label_cost if loss.targets == "real" else math.inf  # of moving a target
        worst, fees = list[Adversary | None](), pieces.fee.tolist()
        for i, r in enumerate(radius):
            client = Client(const[i], pull[i], fees, slack[i], block.share[i], w[i])
            walls = Walls(C, c, ball.norm, label_cost, r)
            worst.append(_adversary(client, walls) if r > 0 else None)
        return worst

    def spread(self, at: Near) -> tuple[Array, list[Atom], Array]:
        """One atom per piece of the loss; mass that leaves along a recession direction becomes an
        atom of weight FAR.
        """
        _, block, loss, _, ball, radius = at
        worst = self.worst(at)
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
        paid = np.divide(radius, cost, out=np.ones_like(cost), where=cost > 0)
        paid = np.minimum(1.0, paid)[:, None]
        # rounding over the radius
        rest = np.where(radius > 0, 1.0, 0.0)[:, None] * (1 - paid) + np.zeros_like(block.y)
        atoms = [Atom(paid * weight[k], moved[k], y[k], way[k], fee[k]) for k in range(pieces)]
        atoms.append(Atom(rest, block.X, block.y, 0 * rest, 0 * rest))
        return level, atoms, np.zeros(len(radius))


class Walls(NamedTuple):
    """The rows (q, d) and (q,) of the polytope, the norm, what a target costs, and the radius."""

    C: Array
    c: Array
    kind: str
    label_cost: float
    radius: float


class Client(NamedTuple):
    """One client's pieces (K, m), their fees, its rows' slack (m, q) and share (m,), and the model
    (d,).
    """

    const: Array
    pull: Array
    fee: list[float]
    slack: Array
    share: Array
    w: Array


def _adversary(client: Client, walls: Walls) -> Adversary:
    """The worst case, proved: solved in up to three units of length until its dual bound meets its
    value.
    """
    radius = walls.radius
    room, step = float(client.slack.max()), radius / client.share.max()
    best: Any = math.inf, None
    for unit in (min(room, step) or radius, math.sqrt(room * step) or radius, room or radius):
        plan = _solve(client, walls, unit)
        size = max(abs(plan.bound), np.abs(client.const).max(), np.finfo(float).tiny)
        gap = abs(plan.bound - plan.value) / size
        if not gap >= best[0]:
            best = gap, plan
        if gap <= WANTED:
            return plan
    if best[0] <= ACCEPTED:
        return best[1]
    raise ArithmeticError(
        f"the conic solver left a relative gap of {best[0]:.1e} in the worst case on a polytope; at"
        f" most {ACCEPTED} is accepted: the support is much wider than the radius, or features"
        " differ much in size. Scale the features, drop bounds that rows cannot reach, or use"
        " BoxSupport or support=None."
    )


def _solve(client: Client, walls: Walls, unit: float) -> Adversary:
    """The conic program of the module's text over the rows with weight.

    Lengths are in ``unit``, losses in ``size``. Atoms are (piece, row) pairs; those whose piece has
    a gradient (``go``) have a drift and, with free targets, a shift.
    """
    C, c, kind, label_cost, radius = walls
    on = np.flatnonzero(client.share > 0)
    const, pull = client.const[:, on].ravel(), client.pull[:, on].ravel()
    row, piece = np.tile(on, len(client.fee)), np.repeat(np.arange(len(client.fee)), len(on))
    weight, go, fee = client.share[row], np.flatnonzero(pull), np.asarray(client.fee)[piece]
    steep = float(np.abs(client.w).max()) * unit
    size = max(float(np.abs(const).max()), steep, np.finfo(float).tiny)
    limit, earned = radius / unit, weight[go] * pull[go] * unit / size

    model = Model()
    part = model.variable(len(row))
    drift = model.variable(len(client.w) * len(go)).reshape(len(client.w), -1)
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
    handles = []
    for normal, by_y, room in zip(C, c, client.slack[row[go]].T / unit, strict=True):
        moves = [(at, -a) for at, a in zip(drift, normal, strict=True) if a]
        moves += [(shift[0], -by_y / label_cost)] if shift.size and by_y else []
        handles.append(model.nonneg([(part[go], room), *moves]))
    budget = model.nonneg([1.0, *((at, -spent[None, :] / limit) for at, spent in cost)])

    solution = model.solve(TOL)
    level = float(np.maximum(solution.z[budget], 0.0)[0]) * size / unit / limit
    phi = np.maximum([solution.z[wall] for wall in handles], 0.0).T
    phi = phi * (size / unit / weight[go])[:, None]
    bound = _dual_bound(client, walls, phi, level, (piece[go], row[go]))
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


def _dual_bound(client: Client, walls: Walls, phi: Array, level: float, at: Any) -> float:
    """radius l + mean alpha at the feasible point of (B.2) to (B.4) with these phi (G, q): an upper
    bound on R.
    """
    C, c, kind, label_cost, radius = walls
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
    count = vectors.size if kind == "l1" else vectors.shape[1]
    lengths = model.variable(count).reshape(-1, vectors.shape[1])
    if kind == "l2":
        model.lengths([(lengths[0], 1.0)], *([(at, 1.0)] for at in vectors))
        return lengths
    for k, at in enumerate(vectors):
        for sign in (1.0, -1.0):
            model.nonneg([(lengths[k % len(lengths)], 1.0), (at, sign)])
    return lengths
