"""Losses of the raw prediction, elementwise; they know nothing of the model.

Margin losses take y in {-1, +1} and are functions of the margin m = y * prediction;
residual losses take real y and are functions of u = prediction - y. ``Multinomial`` takes C
predictions a row, and ``Poisson`` counts whose logarithm is predicted.

Each says what the proofs need: its Lipschitz constant in the prediction, its linear pieces where it
is a maximum of finitely many, and a ``floor``: (a, b) with L >= -a m - b (margin) or L >= a |u| - b
(residual), which bounds where an optimal intercept can lie.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from bonafed.arrays import Array
from bonafed.names import NAMED, load
from bonafed.parameters import Parameters
from bonafed.solvers.rank.proxes import EXPONENTIAL, LOGISTIC, PLUS, RAMP, Kernel


@runtime_checkable
class Loss(Protocol):
    """What a loss must offer; everything is elementwise in arrays of equal shape.

    A loss that increases in one number of a row, minus the margin or the size of the residual, has
    a ``rank_kernel`` too: that function, as methods for risks by rank (such as RankADMM) take it.

    With targets "class" a prediction has one axis more than y, of C numbers a row; gradients have
    it too. A loss of targets "real" that is not a function of the residual has ``log_link = True``:
    targets are then >= 0, and the prediction is the logarithm of the expected one (``Poisson``).
    """

    # "sign": y in {-1, +1}; "real": any number; "class": y in {0, ..., C - 1}
    targets: ClassVar[str]
    smooth: ClassVar[bool]  # continuously differentiable in the prediction

    # L.
    def value(self, prediction: Array, y: Array) -> Array: ...

    # A derivative (subgradient) of L in the prediction.
    def gradient(self, prediction: Array, y: Array) -> Array: ...

    # The second derivative of L in the prediction; at a kink of the gradient one of its two
    # sides.
    def curvature(self, prediction: Array, y: Array) -> Array: ...

    # Lipschitz constant in the prediction; ``inf`` if there is none.
    @property
    def lipschitz(self) -> float: ...

    # (a, b) with L = max_k a_k t + b_k, t the margin or the residual; None when not piecewise
    # linear.
    @property
    def pieces(self) -> tuple[tuple[float, float], ...] | None: ...

    # (a, b): L >= -a m - b for margin losses, L >= a |u| - b for residual losses, and for those
    # of counts L >= a min(y, 1) (|p| - 1 - max(log y, 0)) - b.
    @property
    def floor(self) -> tuple[float, float]: ...


class Smooth(Parameters):
    """A loss with a continuous derivative."""

    smooth: ClassVar[bool] = True
    # of a function of the margin m: whether L(-m) - L(m) is linear in m
    flips_linearly: ClassVar[bool] = False
    pieces: tuple[tuple[float, float], ...] | None = None
    steepest_curvature: ClassVar[float] = 1.0  # the largest second derivative
    bends_evenly: ClassVar[bool] = True  # whether the second derivative has no jumps


class MarginLoss(Smooth):
    """A function of the margin m = y * prediction."""

    targets: ClassVar[str] = "sign"


class ResidualLoss(Smooth):
    """A function of the residual u = prediction - y."""

    targets: ClassVar[str] = "real"


class PiecewiseLinear(Parameters):
    """A maximum of finitely many linear pieces, with kinks between them."""

    smooth: ClassVar[bool] = False

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.zeros_like(prediction)


@dataclass(frozen=True)
class Hinge(PiecewiseLinear, MarginLoss):
    """max(0, 1 - m).

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([2.0, 0.5, -1.0]), np.array([1.0, 1.0, 1.0])
    >>> bf.Hinge().value(prediction, y).tolist()
    [0.0, 0.5, 2.0]
    """

    lipschitz = 1.0
    pieces = ((0.0, 0.0), (-1.0, 1.0))
    floor = (1.0, 0.0)
    rank_kernel = Kernel(PLUS, -1.0)

    def value(self, prediction: Array, y: Array) -> Array:
        return np.maximum(0.0, 1.0 - y * prediction)

    def gradient(self, prediction: Array, y: Array) -> Array:
        return np.where(y * prediction < 1.0, -y, 0.0)


@dataclass(frozen=True)
class SmoothHinge(MarginLoss):
    """1/2 - m for m <= 0, (1 - m)^2 / 2 for 0 < m < 1, 0 for m >= 1.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([2.0, 0.5, -1.0]), np.array([1.0, 1.0, 1.0])
    >>> bf.SmoothHinge().value(prediction, y).tolist()
    [0.0, 0.125, 1.5]
    """

    lipschitz = 1.0
    bends_evenly = False
    floor = (1.0, 0.0)
    rank_kernel = Kernel(RAMP, -1.0, 1.0)

    def value(self, prediction: Array, y: Array) -> Array:
        short = np.maximum(0.0, 1.0 - y * prediction)
        return np.where(short < 1.0, short * short / 2, short - 0.5)

    def gradient(self, prediction: Array, y: Array) -> Array:
        return -y * np.clip(1.0 - y * prediction, 0.0, 1.0)

    def curvature(self, prediction: Array, y: Array) -> Array:
        m = y * prediction
        # at a kink the larger one, for Newton steps
        return np.where((m >= 0.0) & (m <= 1.0), 1.0, 0.0)


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """log(1 + exp(-m)).

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([2.0, 0.5, -1.0]), np.array([1.0, 1.0, 1.0])
    >>> bf.Logistic().value(prediction, y).round(4).tolist()
    [0.1269, 0.4741, 1.3133]
    """

    lipschitz = 1.0
    flips_linearly = True
    steepest_curvature = 0.25
    floor = (1.0, 0.0)
    rank_kernel = Kernel(LOGISTIC)

    def value(self, prediction: Array, y: Array) -> Array:
        m = y * prediction
        return np.maximum(-m, 0.0) + np.log1p(np.exp(-np.abs(m)))

    def gradient(self, prediction: Array, y: Array) -> Array:
        m = y * prediction
        tail = np.exp(-np.abs(m))
        return -y * np.where(m > 0.0, tail, 1.0) / (1.0 + tail)

    def curvature(self, prediction: Array, y: Array) -> Array:
        tail = np.exp(-np.abs(prediction))
        return tail / (1.0 + tail) ** 2


@dataclass(frozen=True)
class Exponential(MarginLoss):
    """exp(-m); not Lipschitz, so it has no Wasserstein worst case.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([2.0, 0.5, -1.0]), np.array([1.0, 1.0, 1.0])
    >>> bf.Exponential().value(prediction, y).round(4).tolist()
    [0.1353, 0.6065, 2.7183]
    """

    lipschitz = math.inf
    steepest_curvature = math.inf
    floor = (1.0, 0.0)
    rank_kernel = Kernel(EXPONENTIAL)

    def value(self, prediction: Array, y: Array) -> Array:
        return np.exp(-y * prediction)

    curvature = value

    def gradient(self, prediction: Array, y: Array) -> Array:
        return -y * np.exp(-y * prediction)


@dataclass(frozen=True)
class Squared(ResidualLoss):
    """u^2 / 2; not Lipschitz: with a Wasserstein radius > 0 its worst case is infinite.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([0.0, 1.0, 5.0]), np.zeros(3)
    >>> bf.Squared().value(prediction, y).tolist()
    [0.0, 0.5, 12.5]
    """

    lipschitz = math.inf
    floor = (1.0, 0.5)
    rank_kernel = Kernel(RAMP, 0.0, math.inf, even=True)

    def value(self, prediction: Array, y: Array) -> Array:
        return (prediction - y) ** 2 / 2

    def gradient(self, prediction: Array, y: Array) -> Array:
        return prediction - y

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.ones_like(prediction)


@dataclass(frozen=True)
class Poisson(Smooth):
    """exp(p) - y p - (y - y log y) of counts y >= 0: half the deviance of Poisson regression, where
    exp(p) is the expected count.

    0 at p = log y, and above 0 everywhere for y = 0. Not Lipschitz, so it has no Wasserstein worst
    case; no function of the residual, so that methods with conic programs and by rank refuse it.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.log([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 2.0])
    >>> bf.Poisson().value(prediction, y).round(4).tolist()
    [1.0, 0.0, 0.6137]
    """

    targets: ClassVar[str] = "real"
    log_link: ClassVar[bool] = True
    lipschitz = math.inf
    steepest_curvature = math.inf
    # y (exp(t) - 1 - t) >= y (|t| - 1) with t = p - log y, and y |log y| <= 1/e for y <= 1
    floor = (1.0, math.exp(-1.0))

    def value(self, prediction: Array, y: Array) -> Array:
        more = np.maximum(y, 1.0)
        with np.errstate(over="ignore"):
            t = prediction - np.log(more)
            below = np.exp(prediction) - y * prediction - y + xlogy(y, y)
            return np.maximum(np.where(y < 1.0, below, more * (np.expm1(t) - t)), 0.0)

    def gradient(self, prediction: Array, y: Array) -> Array:
        return self.curvature(prediction, y) - y

    def curvature(self, prediction: Array, y: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(prediction)


@dataclass(frozen=True)
class Quadratic(Smooth):
    """w'A w / 2 + b'w of a client whose rows are A (D, D) and whose targets are b,
    ``Federation.from_quadratics``.

    Row r adds w_r (p_r / 2 + b_r), p = A w: not a function of its prediction only, so only methods
    for constraints take it. It can be negative; ``value`` and ``gradient`` are of no use by
    themselves.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> A, b = np.array([[[2.0]], [[4.0]]]), np.array([[-2.0], [-2.0]])  # of two clients
    >>> fed = bf.Federation.from_quadratics(A, b)
    >>> problem = bf.Problem(
    ...     bf.Quadratic(), bf.Linear(fit_intercept=False), over_clients=bf.Sum()
    ... )
    >>> bf.solve(problem, fed).w.round(4).tolist()  # 6 w = 4
    [0.6667]
    """

    targets: ClassVar[str] = "quadratic"
    lipschitz = math.inf
    floor = (0.0, math.inf)

    def value(self, prediction: Array, y: Array) -> Array:
        raise TypeError("Quadratic has no value of one row: use problem.objective(w, federation).")

    def gradient(self, prediction: Array, y: Array) -> Array:
        raise TypeError("Quadratic has no gradient of one row: see bonafed.problem.client_means.")

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.ones_like(prediction)


@dataclass(frozen=True)
class Absolute(PiecewiseLinear, ResidualLoss):
    """|u|.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([0.0, 1.0, 5.0]), np.zeros(3)
    >>> bf.Absolute().value(prediction, y).tolist()
    [0.0, 1.0, 5.0]
    """

    lipschitz = 1.0
    pieces = ((1.0, 0.0), (-1.0, 0.0))
    floor = (1.0, 0.0)
    rank_kernel = Kernel(PLUS, 0.0, even=True)

    def value(self, prediction: Array, y: Array) -> Array:
        return np.abs(prediction - y)

    def gradient(self, prediction: Array, y: Array) -> Array:
        return np.sign(prediction - y)


@dataclass(frozen=True)
class Huber(ResidualLoss):
    """u^2 / 2 for |u| <= threshold, threshold (|u| - threshold / 2) beyond; threshold > 0, in units
    of y.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([0.0, 1.0, 5.0]), np.zeros(3)
    >>> bf.Huber(threshold=2.0).value(prediction, y).tolist()
    [0.0, 0.5, 8.0]
    """

    bends_evenly: ClassVar[bool] = False
    threshold: float = 1.35

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise ValueError(
                f"threshold must be positive and finite, got {self.threshold}: at 0 the loss is 0"
                " everywhere, and without an end it is u^2/2. For |u| use Absolute(), for u^2/2"
                " Squared()."
            )

    @property
    def lipschitz(self) -> float:
        return self.threshold

    @property
    def rank_kernel(self) -> Kernel:
        return Kernel(RAMP, 0.0, self.threshold, even=True)

    @property
    def floor(self) -> tuple[float, float]:
        return self.threshold, self.threshold**2 / 2

    def value(self, prediction: Array, y: Array) -> Array:
        u = np.abs(prediction - y)
        return np.where(u <= self.threshold, u * u / 2, self.threshold * (u - self.threshold / 2))

    def gradient(self, prediction: Array, y: Array) -> Array:
        return np.clip(prediction - y, -self.threshold, self.threshold)

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.where(np.abs(prediction - y) <= self.threshold, 1.0, 0.0)


@dataclass(frozen=True)
class EpsilonInsensitive(PiecewiseLinear, ResidualLoss):
    """max(0, |u| - tolerance), the loss of support vector regression; tolerance >= 0, in units of
    y.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([0.0, 1.0, 5.0]), np.zeros(3)
    >>> bf.EpsilonInsensitive(tolerance=0.5).value(prediction, y).tolist()
    [0.0, 0.5, 4.5]
    """

    tolerance: float = 0.1
    lipschitz = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < math.inf:
            raise ValueError(
                f"tolerance must be a number >= 0, got {self.tolerance}. For |u| use tolerance=0."
            )

    @property
    def pieces(self) -> tuple[tuple[float, float], ...]:
        return (0.0, 0.0), (1.0, -self.tolerance), (-1.0, -self.tolerance)

    @property
    def rank_kernel(self) -> Kernel:
        return Kernel(PLUS, self.tolerance, even=True)

    @property
    def floor(self) -> tuple[float, float]:
        return 1.0, self.tolerance

    def value(self, prediction: Array, y: Array) -> Array:
        return np.maximum(0.0, np.abs(prediction - y) - self.tolerance)

    def gradient(self, prediction: Array, y: Array) -> Array:
        u = prediction - y
        return np.where(np.abs(u) > self.tolerance, np.sign(u), 0.0)


@dataclass(frozen=True)
class Quantile(PiecewiseLinear, ResidualLoss):
    """max(-level u, (1 - level) u), the pinball loss; level in (0, 1) is the quantile that is
    fitted.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([0.0, 1.0, 5.0]), np.zeros(3)
    >>> bf.Quantile(level=0.1).value(prediction, y).tolist()  # too high is dear
    [0.0, 0.9, 4.5]
    >>> bf.Quantile(level=0.9).value(prediction, y).round(1).tolist()
    [0.0, 0.1, 0.5]
    """

    level: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(
                f"level must lie in (0, 1), got {self.level}: it is the quantile to fit, 0.5 the"
                " median."
            )

    @property
    def lipschitz(self) -> float:
        return max(self.level, 1 - self.level)

    @property
    def pieces(self) -> tuple[tuple[float, float], ...]:
        return (-self.level, 0.0), (1 - self.level, 0.0)

    @property
    def floor(self) -> tuple[float, float]:
        return min(self.level, 1 - self.level), 0.0

    def value(self, prediction: Array, y: Array) -> Array:
        u = prediction - y
        return np.maximum(-self.level * u, (1 - self.level) * u)

    def gradient(self, prediction: Array, y: Array) -> Array:
        return np.where(prediction > y, 1 - self.level, -self.level)


@dataclass(frozen=True)
class Multinomial(Smooth):
    """log sum_c exp(p_c) - p_y for C >= 2 predictions p of a row and its class y; with the
    predictor ``Softmax``.

    The negative log-likelihood of multinomial logistic regression. Adding a number to all of p
    changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> prediction, y = np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.array([0, 2])
    >>> bf.Multinomial().value(prediction, y).round(4).tolist()
    [0.2395, 1.0986]
    """

    targets: ClassVar[str] = "class"
    lipschitz = math.sqrt(2.0)  # in the Euclidean norm of p
    floor = (0.0, 0.0)  # no intercept to bound

    def value(self, prediction: Array, y: Array) -> Array:
        """(...,) of predictions (..., C) and classes (...,)."""
        top = prediction.max(-1)
        spread = np.log(np.exp(prediction - top[..., None]).sum(-1))
        return spread + (top - np.take_along_axis(prediction, _at(y), -1)[..., 0])

    def gradient(self, prediction: Array, y: Array) -> Array:
        """(..., C): the probabilities of the classes, less one at y."""
        gradient = _probabilities(prediction)
        at = _at(y)
        np.put_along_axis(gradient, at, np.take_along_axis(gradient, at, -1) - 1.0, -1)
        return gradient

    def value_and_gradient(self, prediction: Array, y: Array) -> tuple[Array, Array]:
        """Both in one pass."""
        from bonafed.solvers.kernels.softmax import losses_and_gradients

        check_numbers_of_classes(y, prediction.shape[-1])
        rows = prediction.reshape(-1, prediction.shape[-1])
        value, gradient = losses_and_gradients(rows, y.ravel())
        return value.reshape(y.shape), gradient.reshape(prediction.shape)

    def curvature(self, prediction: Array, y: Array) -> Array:
        """(..., C): the diagonal of the second derivative."""
        share = _probabilities(prediction)
        return share * (1.0 - share)


def check_numbers_of_classes(y: Array, classes: int) -> None:
    """Refuse rows of classes that a model has no prediction for: compiled loops would read beyond
    its numbers.
    """
    if y.size and not (y.min() >= 0 and y.max() < classes):
        odd = np.unique(y[~((y >= 0) & (y < classes))])[:5].tolist()
        raise ValueError(
            f"targets must be numbers of classes 0..{classes - 1}, got {odd}: the model has"
            f" {classes} classes. Were these rows coded for another problem? Use the federation"
            " that problem.at(fed) returns."
        )


def has_log_link(loss: Loss | type[Loss]) -> bool:
    """Whether a prediction is the logarithm of the expected target."""
    return getattr(loss, "log_link", False)


def growth(loss: Loss, prediction: Array, y: Array) -> Array:
    """What the first number of ``Loss.floor`` multiplies."""
    if has_log_link(loss):
        return np.minimum(y, 1.0) * (np.abs(prediction) - 1.0 - np.log(np.maximum(y, 1.0)))
    return -y * prediction if loss.targets == "sign" else np.abs(prediction - y)


def expected(loss: Loss | type[Loss], prediction: Array) -> Array:
    """The targets that predictions of numbers stand for: counts of their logarithms."""
    if not has_log_link(loss):
        return prediction
    with np.errstate(over="ignore"):
        return np.exp(prediction)


def others(loss: Loss, fits: Callable[[Loss], object]) -> str:
    """The end of an advice: the losses of the same targets that fit with their defaults."""
    known = [load("loss", name)() for name in NAMED["loss"]]
    same = [other for other in known if other.targets == loss.targets and fits(other)]
    return "".join(f" or {type(other).__name__}()" for other in same)


def value_and_gradient(loss: Loss, prediction: Array, y: Array) -> tuple[Array, Array]:
    """Both of every row; in one pass where the loss knows how."""
    both = getattr(loss, "value_and_gradient", None)
    if both is not None:
        return both(prediction, y)
    return loss.value(prediction, y), loss.gradient(prediction, y)


def _at(y: Array) -> NDArray[np.intp]:
    return y.astype(np.intp)[..., None]


def _probabilities(prediction: Array) -> Array:
    odds = np.exp(prediction - prediction.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)
