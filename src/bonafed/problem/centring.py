"""Columns far from 0 are centred for a run and its proof, which changes the intercept only.

    <w, x> + b - y  =  <w, x - m> + b' - (y - t),    b' = b + <m, w> - t

Where no norm, regulariser or constraint reads b, the problem is the same over the rows x - m; and
for losses of the residual, without constraints, over the targets y - t. Methods measure columns by
their root mean squares. Of a column far from 0, such as a year, that is its mean: what its
coefficient and the intercept do then nearly cancels, in every sum over rows. So the rows
themselves are centred, not the sums, where they are in this process. m is the mean of the clients'
means, and 0 for the columns that are near 0. Models as users state and see them are those of the
rows as they are.
"""

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.arrays import Array, Slices, each_changed
from bonafed.data.federation import Federation
from bonafed.problem.constraints.constraint import Stack
from bonafed.problem.constraints.group_means import Global, OnRows, Shared
from bonafed.problem.constraints.linear import OnModel
from bonafed.problem.losses import has_log_link
from bonafed.problem.metadata import Data
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.problem.wasserstein.ball import WassersteinBall

FAR = 10.0  # standard deviations between 0 and the mean of a column that is centred
STILL = 1e-12  # of the mean: a spread that may be rounding
SAMPLED = 100, 200  # clients and rows, at most (two of each): what is looked at first


@dataclass(frozen=True, eq=False)
class Centred:
    """Rows as a run sees them.

    Attributes
    ----------
    fed : the federation as given, less m and t
    mean : m, and t as the last number
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
        mean = -self.mean if back else self.mean
        # exactly, so that a value and its proof are those of the model as it is given
        m, v = _halves(mean[:d]), _halves(columns[:, :d])
        free = columns[:, d:], np.full((len(columns), 1), -mean[-1])
        terms = np.hstack([*free, *(a * b for a in m for b in v)]).tolist()
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
    less `far_means`. None where that is as they are.

    Raises
    ------
    ValueError
        for a ``mean`` that the problem or the rows do not have
    """
    if problem.privacy is not None or not isinstance(fed, Federation):
        return None
    if isinstance(problem.constraint, Global) and problem.constraint.held.size:
        return None  # concrete already, and reads the server's rows as they are
    given, mean = mean is not None, far_means(fed)[0] if mean is None else mean.copy()
    if not given and not mean.any():
        return None
    concrete, data = problem.at(fed)
    free, count = not as_they_are(concrete)[0], fed.n_features + 1
    if given and not (free and mean.shape == (count,) and np.isfinite(mean).all()):
        raise ValueError(
            f"a proof about rows less a centre needs {count} finite numbers and a free intercept,"
            f" got shape {mean.shape} with {int(np.isfinite(mean).sum())} finite, and an intercept"
            f" that is {'free' if free else 'not free'}: give the proof of this problem."
        )
    loss, constrained = problem.loss, concrete.constrained
    if loss.targets != "real" or has_log_link(loss) or constrained:
        mean[-1] = 0.0
    if not free or not mean.any():
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
        models = {name: getattr(duals, name, None) for name in ("points", "pair", "path")}
        models = {name: seen.turned(each) for name, each in models.items() if each is not None}
        duals = replace(duals, centre=seen.mean, **models)
    return seen, seen.fed, seen.turned(w), duals


def _less(fed: Federation, mean: Array) -> Federation:
    """The rows x - m of the clients and of the server, and the targets y - t."""
    far = np.flatnonzero(mean[:-1])

    def moved(x: Array) -> Array:
        x = x.copy()
        x[:, far] -= mean[far].astype(x.dtype)
        return x

    X, y = each_changed(moved, fed.X) if len(far) else fed.X, fed.y
    y = each_changed(lambda y: y.astype(float) - mean[-1], y) if mean[-1] else y
    server = None if fed.server is None else _less(fed.server, mean)
    return fed._with(X=X, y=y, server=server)


def as_they_are(problem: Problem) -> tuple[str, str]:
    """In words what to do about columns far from 0, and why a run of a concrete problem does not
    centre them; both "" where it does.
    """
    predictor, ball = problem.predictor, problem.over_samples
    do = "subtract the columns' means"
    if type(predictor) not in (Linear, Softmax):
        return do, f"{type(predictor).__name__} takes it as it is"
    if not (predictor.intercept or getattr(predictor, "ones", False)):
        return f"give the model an intercept, or {do}", "the model has none"
    if type(predictor) is Softmax and not isinstance(problem.regulariser, Zero):
        return do, "the regulariser holds the intercepts too"
    if isinstance(ball, WassersteinBall) and ball.support is not None:
        return do, "the support is stated for the columns as they are"
    stacks: Any = problem.local_constraint, problem.constraint.held, problem.constraint.coupled
    parts = (part for stack in stacks if isinstance(stack, Stack) for part in stack.parts)
    return ("", "") if all(map(_reads_none, parts)) else (do, "a constraint reads the intercept")


def _reads_none(part: Any) -> bool:
    """Whether a concrete constraint is about predictions, or about coefficients only."""
    part = part.one if isinstance(part, Shared) else part
    if isinstance(part, OnModel):
        return part.C is None or not part.C[:, -1].any()
    return isinstance(part, OnRows)


def far_means(fed: Federation) -> tuple[Array, Array]:
    """(d + 1,) the mean of every column that is far from 0, and 0 of the others; and how many
    standard deviations away it is, 0 of a constant. The last column are the targets; sparse
    features are near 0.
    """
    mean, times = np.zeros((2, fed.n_features + 1))
    columns: Any = []
    if isinstance(fed.X, Slices) or all(isinstance(x, np.ndarray) for x in fed.X):
        columns.append((slice(0, -1), fed.X))
    if fed.y[0].dtype.kind in "fiu":
        columns.append((slice(-1, None), each_changed(lambda y: y[:, None], fed.y)))
    for at, parts in columns:
        mean[at], times[at] = _far(fed, parts)
    return mean, times


def _far(fed: Federation, parts: Sequence[Array]) -> tuple[Array, Array]:
    """The same of columns (m, k) of every client."""
    mean, times = np.zeros((2, parts[0].shape[1]))
    clients, rows = SAMPLED
    some = parts[:: -(-len(parts) // clients)]
    rows = max(2, rows // len(some))
    sample = np.concatenate([x[:: max(1, len(x) // rows)][:rows] for x in some])
    seen = np.flatnonzero(np.abs(sample.mean(0)) > FAR / 4 * sample.std(0))
    if not len(seen):
        return mean, times
    pairs = [(fed.share(i), x[:, seen].astype(float)) for i, x in enumerate(parts)]
    first = pairs[0][1][0]
    constant = np.all([(x == first).all(0) for _, x in pairs], 0)
    means = np.array([share @ x for share, x in pairs]).mean(0)
    spread = np.sqrt(np.mean([share @ (x - means) ** 2 for share, x in pairs], 0))
    # a constant is an intercept in another unit
    size, spread = np.abs(means), np.where(constant, 1.0, spread)
    far = (size > FAR * spread) & (spread > STILL * size)
    unit = 2.0 ** np.floor(np.log2(spread[far]) - 3)  # so that the last bits of sums do not matter
    near = np.round(means[far] / unit) * unit
    mean[seen[far]] = np.where(constant[far], first[far], near)
    times[seen[far]] = np.where(constant[far], 0.0, size[far] / spread[far])
    return mean, times


def near(problem: Problem, fed: Federation) -> Federation:
    """The rows as a run sees them, for what no change of the intercept changes."""
    return fed if (seen := centred(problem, fed)) is None else seen.fed
