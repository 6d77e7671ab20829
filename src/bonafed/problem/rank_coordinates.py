"""Rank coordinates of one client's rows, for rank-based methods and their certificate.

    minimise over w:  Omega(t(w)) + h(w),     Omega(t) = sum_i sigma_i l(t_[i]),     t(w) = D w - b

l increases in t. Margin losses: D = -diag(y) X, b = 0 (Xiao, Ge, Jiang, Yan, (9)). Losses of
|prediction - y|: D = X, b = y, and l is even: its size orders the rows. An intercept is a last
column of D.

Convex Omega (sigma nondecreasing): for every multiplier alpha of t = Dw - b, weak duality gives

    Omega(t(w)) >= alpha't(w) - Omega*(alpha) = <D'alpha, w> - alpha'b - Omega*(alpha)

an affine minorant of Omega over all models; ``bonafed.problem.lower_bounds`` turns it into a bound
on the optimum.

Conjugates of the losses in the prediction:  l*(s) = sup_p  s p - l(p, y),  for gradients s in
their domain.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import xlogy

from bonafed.arrays import Array, Block, dense, shape_of
from bonafed.names import NAMED, load
from bonafed.problem.losses import Loss, has_log_link
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.solvers.rank import proxes

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def kernel_of(loss: Loss) -> proxes.Kernel:
    """The loss as a function of its rank coordinate.

    Raises
    ------
    TypeError
        for losses without a ``rank_kernel``: ``Quantile`` and ``Poisson`` (their two sides differ,
        so |residual| does not order the losses) and ``Multinomial`` (several predictions a row)
    """
    kernel = getattr(loss, "rank_kernel", None)
    if kernel is None:
        classes = [load("loss", name) for name in NAMED["loss"]]
        known = [cls.__name__ for cls in classes if hasattr(cls, "rank_kernel")]
        raise TypeError(
            f"{type(loss).__name__} is not an increasing function of one rank coordinate (the"
            f" margin, or |residual|): rank methods take {', '.join(known[:-1])} or {known[-1]}."
        )
    return kernel


def has_rank_coordinate(loss: Loss) -> bool:
    """Whether ``kernel_of`` knows the loss."""
    return getattr(loss, "rank_kernel", None) is not None


def knot_of(kernel: proxes.Kernel, level: float) -> float:
    """The largest rank coordinate whose loss is at most ``level``; -inf where every loss is
    larger.
    """
    if level < 0:
        return -np.inf
    if kernel.kind == proxes.LOGISTIC:
        return float(np.log(np.expm1(level))) if level > 0 else -np.inf
    if kernel.kind == proxes.EXPONENTIAL:
        return float(np.log(level)) if level > 0 else -np.inf
    if kernel.kind == proxes.PLUS:
        return kernel.knot + level
    bend = kernel.width**2 / 2
    straight = kernel.width + (level - bend) / kernel.width
    return kernel.knot + (np.sqrt(2 * level) if level <= bend else straight)


@dataclass(frozen=True, eq=False)
class RankRows:
    """t(w) = sign * prediction(w) - shift for the n rows of one client, and its transpose."""

    X: "Array | csr_array"  # (n, d)
    sign: Array  # (n,)
    shift: Array  # (n,)
    intercept: bool

    @property
    def dimension(self) -> int:
        """D, of the model."""
        return shape_of(self.X)[1] + self.intercept

    def forward(self, w: Array) -> Array:
        """D w - b, (n,)."""
        return self.gradient(w) - self.shift

    def gradient(self, w: Array) -> Array:
        """D w, (n,)."""
        prediction = self.X @ w[:-1] + w[-1] if self.intercept else self.X @ w
        return self.sign * prediction

    def backward(self, alpha: Array) -> Array:
        """D'alpha, (D,)."""
        signed = self.sign * alpha
        gradient = self.X.T @ signed
        return np.append(gradient, signed.sum()) if self.intercept else gradient

    def matrix(self) -> Array:
        """D itself, dense (n, D)."""
        D = self.sign[:, None] * dense(self.X)
        return np.hstack([D, self.sign[:, None]]) if self.intercept else D


def rank_rows(problem: Problem, block: Block) -> RankRows:
    """The rows of a block of one client."""
    if len(block.names) != 1:
        raise ValueError(
            f"rank methods need all rows in one place, got {len(block.names)} clients: use"
            " fed.pooled()."
        )
    if not isinstance(problem.predictor, Linear):
        raise TypeError(
            f"rank methods need the predictor Linear, got {type(problem.predictor).__name__}."
        )
    X = block.X[0] if isinstance(block.X, np.ndarray) else block.X
    y = block.y[0]
    if np.ptp(block.share[0]) > 1e-12 * block.share[0].max():
        raise ValueError(
            "rank methods rank rows one by one and take no sample weights: repeat rows instead."
        )
    margin = problem.loss.targets == "sign"
    sign, shift = (-y, np.zeros_like(y)) if margin else (np.ones_like(y), y)
    return RankRows(X, sign, shift, problem.predictor.intercept)


def rank_weights(problem: Problem, n: int) -> Array:
    """sigma (n,), ascending, of the risk over samples."""
    risk = problem.over_samples
    return np.full(n, 1 / n) if isinstance(risk, Mean) else risk.rank_weights(n)


def plus_minus(sigma: Array) -> tuple[Array, Array]:
    """(plus, minus), both (n,), nonnegative and nondecreasing, with plus - minus = sigma (n,).

    The cumulative rises and falls of sigma, so that a sum by rank is a difference of two convex
    ones, as small as can be: sum_i sigma_i z_[i] = sum_i plus_i z_[i] - sum_i minus_i z_[i].
    Nondecreasing sigma: minus = 0.
    """
    step = np.diff(sigma, prepend=0.0)
    minus = np.cumsum(np.maximum(-step, 0.0))
    return sigma + minus, minus


def is_provable(problem: Problem) -> bool:
    """Whether multipliers of the rows can prove a bound: a convex problem whose regulariser has a
    conjugate.
    """
    return problem.convex and hasattr(problem.regulariser, "conjugate")


def row_minorant(problem: Problem, alpha: Array, block: Block) -> tuple[float, Array]:
    """(constant, gradient) of an affine minorant of Omega(t(w)), whatever alpha (n,) is; constant
    -inf if none.
    """
    rows, kernel = rank_rows(problem, block), kernel_of(problem.loss)
    alpha = alpha if kernel.even else np.maximum(alpha, 0.0)
    theta, conjugate = proxes.rank_conjugate(alpha, rank_weights(problem, len(alpha)), kernel)
    alpha = theta * alpha
    if rows.intercept:
        alpha, conjugate = _balanced(problem, rows, alpha, conjugate)
    constant = -conjugate - float(alpha @ rows.shift)
    size = abs(conjugate) + float(np.abs(alpha) @ np.abs(rows.shift))
    rounding = 16 * np.finfo(float).eps * size
    return constant - rounding, rows.backward(alpha)


def _balanced(
    problem: Problem, rows: RankRows, alpha: Array, conjugate: float
) -> tuple[Array, float]:
    """Multipliers whose gradient in the free intercept is 0: those of the heavier sign are reduced
    by one factor.

    Any gradient left there would cost the bound that gradient times the largest intercept an
    optimum may have. Smaller multipliers stay in the domain of Omega*.
    """
    pull = rows.sign * alpha
    up, down = float(pull[pull > 0].sum()), -float(pull[pull < 0].sum())
    if up == down or min(up, down) <= 0:
        return alpha, conjugate
    heavier = pull > 0 if up > down else pull < 0
    balanced = np.where(heavier, alpha * (min(up, down) / max(up, down)), alpha)
    for _ in range(3):  # what rounding leaves
        left = float((rows.sign * balanced).sum())
        k = int(np.argmax(np.abs(balanced)))
        balanced[k] -= rows.sign[k] * left
    sigma = rank_weights(problem, len(balanced))
    theta, value = proxes.rank_conjugate(balanced, sigma, kernel_of(problem.loss))
    return theta * balanced, value


def rank_value(problem: Problem, t: Array) -> float:
    """Omega(t), t (n,) the rank coordinates of the rows."""
    losses = proxes.losses_of(t, kernel_of(problem.loss))
    risk = problem.over_samples
    if isinstance(risk, Mean):
        return float(losses.mean())
    if hasattr(risk, "rank_weights"):
        return float(np.sort(losses) @ risk.rank_weights(len(t)))
    return risk.value(losses)


def has_conjugate(loss: Loss) -> bool:
    """Whether ``loss_conjugate`` knows the loss."""
    return has_log_link(loss) or has_rank_coordinate(loss)


def clipped_gradients(loss: Loss, gradient: Array, y: Array) -> Array:
    """The nearest gradients at which the conjugate is finite."""
    top = loss.lipschitz
    if has_log_link(loss):
        return np.maximum(gradient, -y)
    if loss.targets == "sign":
        return -y * np.clip(-y * gradient, 0.0, top)
    return np.clip(gradient, -top, top)


def loss_conjugate(loss: Loss, gradient: Array, y: Array) -> Array:
    """l*(gradient), elementwise; inf outside the domain. Of losses that ``has_conjugate`` knows."""
    if has_log_link(loss):  # exp(p) - y p - (y - y log y)
        rate = gradient + y
        value = xlogy(rate, np.maximum(rate, 1e-300)) - rate + y - xlogy(y, y)
        return np.where(rate >= 0, value, np.inf)
    kernel = kernel_of(loss)
    if kernel.even:  # l(|p - y|)
        return proxes.conjugates_of(np.abs(gradient), kernel) + gradient * y
    return proxes.conjugates_of(-y * gradient, kernel)  # l(-y p), y = -1 or 1
