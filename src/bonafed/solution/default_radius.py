"""A Wasserstein radius from the data: as large as the noise in the gradients, far below triviality.

The gradient of the mean loss at a model is a mean over finitely many rows, and so has noise. The
penalty radius ||w||_* of a Wasserstein ball stops the model from following that noise once the
radius reaches the noise's transport norm, as the strength of a lasso is chosen. The radius is a
fixed part of that, between two parts of r*, from which on a constant model is optimal: so it is
never trivial, and never 0 where the rows can be separated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from bonafed.arrays import Array, Block, stream
from bonafed.arrays import norm as norm_of
from bonafed.data.federation import Federation
from bonafed.problem.losses import Logistic, Loss, Squared
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.targets import masses
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.thresholds import largest_radius
from bonafed.solvers.smooth.newton import lbfgs

LEVEL = 0.9  # of the quantile of the noise
SHARE = {"linf": 0.25, "l2": 0.3, "l1": 0.3}  # of it; the closed form of linf is 1.2 times larger
LEAST, MOST = 0.01, 0.3  # parts of r*
FLIPS = 0.005  # with a finite label cost at most this share of labels can flip
DRAWS = 200  # of random signs
HALVINGS = 40  # of the interval in which a median lies


def default_radius(problem: Problem, fed: Federation) -> float:
    """A Wasserstein radius for all clients, from the noise in the gradients at a pilot model.

        radius = min(max(c b, r* / 100), 0.3 r*)
        b = the 90 % quantile of || sum_i v_i e_i (z_i - mean z) ||,  z_i = loss'(i) (x_i - mean x)

    v_i is the share of row i in the mean of all clients (by their prior; a row of weight 2 is two
    rows), e_i = -1 or 1 at random, and loss'(i) the slope of the loss at row i of a pilot model:
    logistic or ridge regression, with a penalty of strength 1 / n on standardised features. In the
    norm "linf" a closed form stands for the quantile, b = ndtri(1 - 0.1 / (2 d))
    max_j sqrt(sum_i v_i^2 (z_ij - mean z_j)^2), and c = 0.25; else c = 0.3. For losses of residuals
    it is divided by their Lipschitz constant. r* is the radius from which on a constant model is
    optimal. With a finite label cost at most 0.5 % of the labels can flip.

    Clients send sums only: d numbers a step of the pilot model, twice d for the noise ("l1" and
    "l2": 200 times d), and d for r*. ``benchmarks/defaults.py`` measures what the radius
    costs on clean rows and what it gains on others.

    Parameters
    ----------
    problem : with `Linear`, and over the samples a `WassersteinBall`, whose norm and label cost
        count; its radius plays no part
    fed : the clients' rows

    Returns
    -------
    float : the radius; multiply it for more robustness, up to r* / 2 at most

    Raises
    ------
    ValueError : a problem without a ball, or whose loss is not Lipschitz

    Examples
    --------
    >>> import numpy as np, bonafed as bf
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), np.repeat(["a", "b"], 100))
    >>> ball = bf.WassersteinBall(radius=0.0, norm="linf")
    >>> problem = bf.Problem(bf.Logistic(), bf.Linear(True), over_samples=ball)
    >>> 0 < bf.default_radius(problem, fed) < 0.1
    True
    """
    ball, loss = problem.over_samples, problem.loss
    if not isinstance(ball, WassersteinBall):
        raise ValueError(f"default_radius needs over_samples=WassersteinBall(...), got {ball!r}.")
    if loss.targets == "class":
        raise ValueError(
            "the noise in the gradients of several classes has no closed form in their worst case:"
            " radius='auto' and default_radius are for losses of one number a row. State a radius,"
            " or choose one by radius_path(problem, fed, radii)."
        )
    # at any radius > 0 a loss without a worst case is refused
    one = replace(problem, over_samples=replace(ball, radius=1.0, support=None))
    concrete, data = one.at(fed)
    noise = _Rows.of(concrete, data).noise(ball.norm)
    largest = largest_radius(one, fed)
    scale = 1.0 if loss.targets == "sign" else loss.lipschitz
    radius = min(max(SHARE[ball.norm] * noise / scale, LEAST * largest), MOST * largest)
    return min(radius, FLIPS * ball.label_cost) if loss.targets == "sign" else radius


def residual_scale(fed: Federation) -> float:
    """The spread of the residuals of a ridge regression, 1.4826 times the median of their sizes.

    That is the standard deviation of normal residuals. The median comes from counts: halving an
    interval, clients say how many of their residuals are smaller.
    """
    problem = Problem(Squared(), Linear(True))
    rows = _Rows.of(*problem.at(fed))
    w, b = rows.model()
    sizes = [np.abs(block.y[0] - block.forward(w)[0] - b) for block in rows.blocks]
    high = max(float(part.max()) for part in sizes)
    low, top = 0.0, high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        each = zip(sizes, rows.shares, strict=True)
        half = sum(float(v[part <= middle].sum()) for part, v in each) >= 0.5
        low, high = (low, middle) if half else (middle, high)
    # residuals of 0 for most rows: then of the others
    return 1.4826 * high if high > 1e-6 * top else (top or 1.0)


def settled(problem: Problem, fed: Federation | Metadata) -> Problem:
    """The problem with the radius "auto" as a number."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall) or not ball.is_auto:
        return problem
    if isinstance(fed, Metadata):
        raise ValueError(
            "radius='auto' is read off the rows, which are at their owners: state a number."
        )
    if problem.privacy is not None:
        raise ValueError(
            "radius='auto' is read off the rows, and would tell about them without being charged:"
            " state a number."
        )
    radius = default_radius(problem, fed)
    return replace(problem, over_samples=replace(ball, radius=radius))


@dataclass(frozen=True)
class _Rows:
    """The clients' rows, each with its share in the mean of all, and a pilot model.

    Every method adds up what clients would send.
    """

    loss: Loss
    blocks: list[Block]
    shares: list[Array]  # (m_i,) each; they sum to one over all clients
    units: list[float]  # of every client: the share of a row of weight 1
    pilot: Loss

    @classmethod
    def of(cls, problem: Problem, fed: Federation) -> _Rows:
        prior, mass = getattr(problem.over_clients, "prior", None), masses(fed)
        q = mass / mass.sum() if prior is None else np.asarray(prior, float)
        shares = [q[i] * fed.share(i) for i in range(fed.n_clients)]
        units = (q / mass).tolist()
        pilot = Logistic() if problem.loss.targets == "sign" else Squared()
        blocks = [fed.block(i) for i in range(fed.n_clients)]
        return cls(problem.loss, blocks, shares, units, pilot)

    def __iter__(self) -> Iterator[tuple[Block, Array]]:
        return zip(self.blocks, self.shares, strict=True)

    def moments(self) -> tuple[Array, Array]:
        """Means of the features and of their squares."""
        mean = square = np.zeros(self.blocks[0].n_features)
        for block, v in self:
            mean = mean + block.backward(v[None])[0]
            square = square + _squares(block, v)
        return mean, square

    def model(self) -> tuple[Array, float]:
        """Coefficients and intercept of the pilot model."""
        mean, square = self.moments()
        # 1 / n where all rows count alike
        strength = sum(float(v.sum()) * u for v, u in zip(self.shares, self.units, strict=True))
        scale = np.sqrt(np.maximum(square - mean * mean, 0.0))
        scale = np.where(scale > 1e-9 * np.sqrt(square), scale, np.inf)

        def value(u: Array) -> tuple[Array, Array]:
            w = u[0, :-1] / scale
            b = float(u[0, -1] - w @ mean)
            total, gradient, slope = strength / 2 * float(u[0, :-1] @ u[0, :-1]), 0.0 * mean, 0.0
            for block, v in self:
                score = block.forward(w) + b
                total += float(v @ self.pilot.value(score, block.y)[0])
                rows = v * self.pilot.gradient(score, block.y)[0]
                gradient += block.backward(rows[None])[0]
                slope += float(rows.sum())
            gradient = (gradient - slope * mean) / scale + strength * u[0, :-1]
            return np.array([total]), np.append(gradient, slope)[None]

        start = np.zeros((1, len(mean) + 1))
        if self.loss.targets == "real":
            start[0, -1] = sum(float(v @ block.y[0]) for block, v in self)
        first = np.abs(value(start)[1]).max()
        u = lbfgs(value, start, 1e-6 * max(float(first), 1e-300), cap=200).v[0]
        w = u[:-1] / scale
        return w, float(u[-1] - w @ mean)

    def noise(self, norm: str) -> float:
        """b, of features about their means: an intercept takes the noise that they share."""
        w, b = self.model()
        loss = self.pilot if self.loss.targets == "sign" else self.loss
        slopes = [loss.gradient(block.forward(w) + b, block.y)[0] for block in self.blocks]
        parts = [*zip(self.blocks, self.shares, slopes, self.units, strict=True)]
        centre = self.moments()[0]

        def weighed(block: Block, rows: Array) -> Array:
            """sum_i rows_i (x_i - centre)."""
            return block.backward(rows[None])[0] - rows.sum() * centre

        mean = sum(weighed(block, v * s) for block, v, s, _ in parts)
        if norm == "linf":
            spread = np.zeros(len(w))
            for block, v, s, unit in parts:  # sums of unit v (z - mean)^2
                a = v * s * s
                squares = _squares(block, a) - centre * (
                    weighed(block, a) + block.backward(a[None])[0]
                )
                spread += unit * (squares + mean * (mean * v.sum() - 2 * weighed(block, v * s)))
            deviation = math.sqrt(max(float(spread.max(initial=0.0)), 0.0))
            return float(ndtri(1 - (1 - LEVEL) / (2 * max(len(w), 1)))) * deviation
        total = np.zeros((DRAWS, len(w)))
        for block, v, s, unit in parts:
            rng = stream(0, block.names[0], 1)
            e = rng.choice([-1.0, 1.0], (DRAWS, len(v))) * np.sqrt(unit * v)
            X = block.X[0] if isinstance(block.X, np.ndarray) else block.X
            drawn = np.asarray(X.T @ (e * s).T).T
            total += drawn - (e @ s)[:, None] * centre - e.sum(1, keepdims=True) * mean
        return float(np.quantile(norm_of(total, norm), LEVEL))


def _squares(block: Block, weight: Array) -> Array:
    """sum_i weight_i x_ij^2, (d,)."""
    if isinstance(block.X, np.ndarray):
        return weight @ block.X[0] ** 2
    return np.asarray(block.X.multiply(block.X).T @ weight)
