"""Whether the classes are separated, so that no model is the best one.

    A v >= 0,  A v != 0        a row of A: x_j and 1, times the sign of its class (of several
                               classes: the score of its own less that of another)

Along such a direction v no loss of a row rises, and some fall for ever: without a regulariser, or a
limit that ends it, the objective falls as coefficients grow, whatever model a method returns. The
model itself is such a direction where all rows are on the side of their class, which follows from
the clients' mean losses as well: a sum of losses below the one of score 0 has no such loss in it.

Else weights p > 0 with A'p = 0 exclude all directions (Stiemke). At a stationary model the slopes
of the losses are such weights but for what is left of their sum, which is moved to them by least
squares. Where that does not succeed, a linear program finds the direction.
"""

import math

import numpy as np

from bonafed.arrays import Array, dense
from bonafed.data.federation import Federation
from bonafed.problem.losses import Exponential, Logistic, Multinomial
from bonafed.problem.lower_bounds import region
from bonafed.problem.metadata import Data
from bonafed.problem.predictors.affine import Linear, Softmax, with_ones
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean

LARGEST = 4_000_000  # entries of A up to which a program is solved
ALONG = 1e3  # how many times as long as the model the direction is followed
STEPS, FAR = 12, 1e4  # until a program is solved, and how large scaled coefficients may grow
NONE = 1e-9  # relative to the sizes of its terms: a margin up to this is 0


def separated(
    problem: Problem, fed: Data, w: Array, value: float, losses: Array, weights: Array
) -> float | None:
    """The share of the rows on the side of their class along a direction that has no row on the
    other one, 1 where all are; None where there is no such direction, or none was found.

    ``problem`` and ``fed`` are concrete; ``losses`` and ``weights`` are those of the clients at w.
    """
    if not _may_fall(problem, fed, w, value):
        return None
    zero = 1.0 if isinstance(problem.loss, Exponential) else math.log(2.0)  # the loss of score 0
    v = w if fed.alike and (fed.sizes * losses < (1 - NONE) * zero).all() else None
    share = 1.0
    if v is None and isinstance(fed, Federation):
        v, share = _along(problem, fed, w, weights)
    return share if v is not None and _falls(problem, fed, w, v, value) else None


def _may_fall(problem: Problem, fed: Data, w: Array, value: float) -> bool:
    """Whether the losses fall for ever along a direction that separates, and nothing else bounds
    the models that are worth having.
    """
    falls = isinstance(problem.loss, Logistic | Exponential | Multinomial)
    falls &= isinstance(problem.predictor, Linear | Softmax)
    falls &= getattr(problem.over_samples, "code", None) is None  # which is of one class only
    falls &= problem.privacy is None and bool(np.isfinite(w).all())
    return falls and math.isinf(region(problem, value, fed.n_features, None).length)


def _along(
    problem: Problem, fed: Federation, w: Array, weights: Array
) -> tuple[Array | None, float]:
    """A direction that separates rows which count, and their share; None where none was found."""
    model = problem.predictor
    pairs = (model.classes or 2) - 1 if isinstance(model, Softmax) else 1
    if fed.sizes.sum() * pairs * len(w) > LARGEST:
        return None, 0.0
    A, share = _rows(model, fed)
    if (v := _direction(A, w, share)) is None:
        return None, 0.0
    ahead = A @ v > NONE * (np.abs(A) @ np.abs(v))
    # what the worst clients weigh; ranks may leave out all rows that are ahead
    plain = isinstance(problem.over_samples, Mean) and problem.over_rows is None
    counts = plain and ahead @ (share * np.repeat(weights, fed.sizes * pairs)) > 0
    part = float(ahead.reshape(-1, pairs).any(1).mean())
    return (v if counts or ahead.all() else None), part


def _rows(model: Linear | Softmax, fed: Federation) -> tuple[Array, Array]:
    """A, and the weight of every row of it in its client's mean."""
    parts, shares = list[Array](), list[Array]()
    for i in range(fed.n_clients):
        (X, y), share = fed.rows(i), fed.share(i)
        X = dense(with_ones(X) if model.fit_intercept else X)
        if isinstance(model, Softmax):
            own, code = np.eye(model.classes or 2), y.astype(int)
            apart = (own[code][:, None] - own)[np.arange(len(own)) != code[:, None]]
            share = np.repeat(share, len(own) - 1)
            A = (np.repeat(X, len(own) - 1, 0)[:, :, None] * apart[:, None]).reshape(len(share), -1)
        else:
            A = X * y[:, None]
        parts.append(A)
        shares.append(share)
    return np.concatenate(parts), np.concatenate(shares)


def _direction(A: Array, w: Array, share: Array) -> Array | None:
    """A direction v with A v >= 0 and not 0, or None."""
    kept = share > 0
    A, share = A[kept], share[kept]
    sizes = np.sqrt((A * A).mean(0))
    A = A / np.where(sizes > 0, sizes, 1.0)
    u, gram, whole = w * sizes, A.T @ A, np.abs(A)
    for _ in range(STEPS):  # of Newton's method for the logistic loss
        margin = A @ u
        if (margin > NONE * (whole @ np.abs(u))).all():
            return np.where(sizes > 0, u / np.where(sizes > 0, sizes, 1.0), 0.0)
        p, right = share * np.exp(-np.logaddexp(0.0, margin)), np.exp(-np.logaddexp(0.0, -margin))
        slope = A.T @ p
        if (np.abs(A @ np.linalg.lstsq(gram, slope, rcond=None)[0]) < 0.5 * p).all():
            return None
        u = u + np.linalg.lstsq((A * (p * right)[:, None]).T @ A, slope, rcond=None)[0]
        if not float(np.abs(u).max()) < FAR:
            break
    from scipy.optimize import linprog

    scale = np.maximum(np.abs(A).max(1, keepdims=True), 1e-300)
    found = linprog(-(A / scale).mean(0), -A / scale, np.zeros(len(A)), bounds=(-1, 1))
    if found.x is None or not -found.fun > 1e-7:
        return None
    v = np.where(sizes > 0, found.x / np.where(sizes > 0, sizes, 1.0), 0.0)
    along = A @ found.x
    return v if (along >= -NONE * (whole @ np.abs(found.x))).all() else None


def _falls(problem: Problem, fed: Data, w: Array, v: Array, value: float) -> bool:
    """Whether the objective does not rise along v, and no limit ends the way."""
    far = w + v * (ALONG * max(float(np.linalg.norm(w)), 1.0) / float(np.linalg.norm(v)))
    if not isinstance(fed, Federation):
        return not problem.constrained and problem.penalty(far) <= problem.penalty(w)
    if problem.constrained and problem.violation(far, fed) > problem.violation(w, fed) + NONE:
        return False
    return problem.objective(far, fed) <= value * (1 + NONE)
