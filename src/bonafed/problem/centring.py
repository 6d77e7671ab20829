"""Columns far from 0 are centred for a run and its proof, which changes the intercept only.

    <w, x> + b  =  <w, x - m> + b',    b' = b + <m, w>

Where no norm, regulariser or constraint reads b, the problem is the same over the rows x - m.
Methods measure columns by their root mean squares. Of a column far from 0, such as a year, that is
its mean: what its coefficient and the intercept do then nearly cancels, in every sum over rows. So
the rows themselves are centred, not the sums. m is the mean of the clients' means, and 0 for the
columns that are near 0. Models as users state and see them are those of the rows as they are.
"""

import math
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.problem.constraints.constraint import Stack
from bonafed.problem.constraints.group_means import Global, OnRows, Shared
from bonafed.problem.constraints.linear import OnModel
from bonafed.problem.metadata import Data
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.problem.wasserstein.ball import WassersteinBall

FAR = 10.0  # standard deviations between 0 and the mean of a column that is centred
STILL = 1e-12  # of the mean: a spread that may be rounding, of a column that is constant
SAMPLED = 200, 50, 1_000_000  # clients, rows of each, numbers at most: what is looked at first


@dataclass(frozen=True, eq=False)
class Centred:
    """Rows as a run sees them.

    Attributes
    ----------
    fed : the federation as given, less m
    mean : m, one number a feature
    shape : (d, C) of coefficients, which C intercepts follow in a model
    """

    fed: Federation
    mean: Array
    shape: tuple[int, int]

    def turned(self, w: Array, back: bool = False) -> Array:
        """Models (..., D) of the rows as they are, as models of the centred ones; or ``back``."""
        w, (d, C) = np.array(w, float), self.shape
        if w.shape[-1] < (d + 1) * C or not np.isfinite(w).all():
            return w  # which is refused elsewhere
        columns = w[..., : (d + 1) * C].reshape(-1, d + 1, C).swapaxes(1, 2).reshape(-1, d + 1)
        # exactly, so that a value and its proof are those of the model as it is given
        m, v = _halves(self.mean[:d] * (-1.0 if back else 1.0)), _halves(columns[:, :d])
        terms = np.hstack([columns[:, d:], *(a * b for a in m for b in v)]).tolist()
        w[..., d * C : (d + 1) * C] = np.reshape([*map(math.fsum, terms)], (*w.shape[:-1], C))
        return w


def _halves(v: Array) -> tuple[Array, Array]:
    """v as a sum of two numbers each, whose products with another's have no rounding (Veltkamp)."""
    far = v * (2.0**27 + 1)
    high = far - (far - v)
    return high, v - high


_SEEN: weakref.WeakKeyDictionary[Federation, Any] = weakref.WeakKeyDictionary()


def centred(problem: Problem, fed: Data, mean: Array | None = None) -> Centred | None:
    """The rows of a problem as stated, as a run sees them: less ``mean`` or, where that is None,
    the means of columns far from 0. None where that is as they are.

    Raises
    ------
    ValueError
        for a ``mean`` that the problem or the rows do not have
    """
    if problem.privacy is not None or not isinstance(fed, Federation):
        return None
    if isinstance(problem.constraint, Global) and problem.constraint.held.size:
        return None  # concrete already, and reads the server's rows as they are
    given, mean = mean is not None, far_means(fed)[0] if mean is None else mean
    if not given and not mean.any():
        return None
    concrete, data = problem.at(fed)
    free = has_free_intercept(concrete)
    if given and not (free and mean.shape == (fed.n_features,) and np.isfinite(mean).all()):
        raise ValueError(
            f"a proof about rows less a centre needs {fed.n_features} finite numbers and a free"
            f" intercept, got shape {mean.shape}: give the proof of this problem."
        )
    if not free:
        return None
    classes = getattr(concrete.predictor, "classes", 1)
    shape = concrete.predictor.dimension(data.n_features) // classes - 1, classes
    known = _SEEN.get(fed, lambda: None)()  # as long as anyone has it
    if known is None or known.shape != shape or not np.array_equal(known.mean, mean):
        known = Centred(_less(fed, mean), mean, shape)
        _SEEN[fed] = weakref.ref(known)
    return known


def centred_proof(
    problem: Problem, fed: Data, w: Array, duals: Any
) -> tuple[Centred | None, Data, Array, Any]:
    """How rows are centred for a proof, and rows, model and ``Duals`` (or ``Multipliers``) so."""
    seen = centred(problem, fed, getattr(duals, "centre", None))
    if seen is None:
        return None, fed, w, duals
    if duals is not None and duals.centre is None:
        models = {name: getattr(duals, name, None) for name in ("points", "pair")}
        models = {name: seen.turned(each) for name, each in models.items() if each is not None}
        duals = replace(duals, centre=seen.mean, **models)
    return seen, seen.fed, seen.turned(w), duals


def _less(fed: Federation, mean: Array) -> Federation:
    """The rows x - m, of the clients and of the server."""
    far = np.flatnonzero(mean)

    def moved(x: Array) -> Array:
        x = x.copy()
        x[:, far] -= mean[far].astype(x.dtype)
        return x

    server = None if fed.server is None else _less(fed.server, mean)
    return fed._with(X=tuple(map(moved, fed.X)), server=server)


def has_free_intercept(problem: Problem) -> bool:
    """Whether a concrete problem reads the intercepts in predictions only."""
    predictor, ball = problem.predictor, problem.over_samples
    free = type(predictor) is Linear and predictor.intercept
    if type(predictor) is Softmax:  # whose intercepts are coefficients as others are
        free = predictor.ones and isinstance(problem.regulariser, Zero)
    if isinstance(ball, WassersteinBall):
        free &= ball.support is None
    stacks: Any = problem.local_constraint, problem.constraint.held, problem.constraint.coupled
    parts = (part for stack in stacks if isinstance(stack, Stack) for part in stack.parts)
    return free and all(map(_reads_none, parts))


def _reads_none(part: Any) -> bool:
    """Whether a concrete constraint is about predictions, or about coefficients only."""
    part = part.one if isinstance(part, Shared) else part
    if isinstance(part, OnModel):
        return part.C is None or not part.C[:, -1].any()
    return isinstance(part, OnRows)


def far_means(fed: Federation) -> tuple[Array, Array]:
    """(d,) the mean of every column that is far from 0, and 0 of the others; and how many standard
    deviations away it is.
    """
    mean, times = np.zeros((2, fed.n_features))
    if not all(isinstance(x, np.ndarray) for x in fed.X):
        return mean, times
    clients, rows, numbers = SAMPLED
    some = fed.X[:: max(1, fed.n_clients // clients)]
    rows = max(2, min(rows, numbers // (len(some) * max(1, fed.n_features))))
    sample = np.concatenate([x[:: max(1, len(x) // rows)][:rows] for x in some])
    seen = np.flatnonzero(np.abs(sample.mean(0)) > FAR / 4 * sample.std(0))
    if not len(seen):
        return mean, times
    parts = [(fed.share(i), fed.X[i][:, seen].astype(float)) for i in range(fed.n_clients)]
    means = np.array([share @ x for share, x in parts]).mean(0)
    spread = np.sqrt(np.mean([share @ (x - means) ** 2 for share, x in parts], 0))
    size = np.abs(means)
    far = (size > FAR * spread) & (spread > STILL * size)
    means, spread, seen = means[far], spread[far], seen[far]
    unit = 2.0 ** np.floor(np.log2(spread) - 3)  # so that the last bits of sums do not matter
    mean[seen], times[seen] = np.round(means / unit) * unit, size[far] / spread
    return mean, times
