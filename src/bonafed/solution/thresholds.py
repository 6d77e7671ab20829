"""Up to where a model is better than a constant: the largest radius, tail, share of flipped labels
and L1 strength at which not all coefficients are zero.

Zero coefficients with the best intercept b are optimal where some worst client weights q of b have

    || sum_s q_s g_s ||  <=  Lip sum_s q_s radius_s        and       sum_s q_s F_s'(b) = 0

g_s is client s's mean gradient of the loss at b with respect to the coefficients: d numbers each,
one round. So, in the transport norm and with rho_s = radius_s / (largest radius),

    r*   =  min over these q of  || sum_s q_s g_s ||  /  (Lip sum_s q_s rho_s)

It is a closed form where q is unique, else the minimum of a conic program over q. Losses with kinks
have several gradients at a kink (the hinge, in all rows of the larger class): the program then
has these rows.

    tail*  Superquantile(tail) over the rows of one client; p = share of the rarer class,
           h = the least mean hinge loss: tail* = h if h < 2p or there is no intercept, else
           tail* = p + (1 - p) h' with h' the same without an intercept, of the other class's rows,
           each less the mean of the rarer one, and all labels -1
    F      finite label cost, one client: share of the larger class - largest sum_i u_i / n with
           0 <= u_i <= 1 on its rows and sum u_i (x_i - mean x) = 0: the share of labels that the
           adversary needs to make the features useless. It has it where radius / label_cost >= F

The default Wasserstein radius is as large as the noise in the gradients, far below r*. The gradient
of the mean loss at a model is a mean over finitely many rows, and so has noise. The penalty radius
||w||_* of a Wasserstein ball stops the model from following that noise once the radius reaches the
noise's transport norm, as the strength of a lasso is chosen. The radius is a fixed part of that,
between two parts of r*, from which on a constant model is optimal: so it is never trivial, and
never 0 where the rows can be separated.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from bonafed.arrays import (
    DUAL,
    Array,
    Block,
    dense,
    each_changed,
    joined,
    norm,
    norm_gradient,
    stream,
)
from bonafed.data.federation import Federation
from bonafed.parameters import checking
from bonafed.problem import client_means
from bonafed.problem.centring import near
from bonafed.problem.conic_form import sample_radii, weighting
from bonafed.problem.losses import Hinge, Logistic, Loss, Squared
from bonafed.problem.metadata import Metadata, masses
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero, has_parts, regulariser_parts
from bonafed.problem.risks.weight_sets import (
    ChiSquareBall,
    Ellipsoid,
    KLBall,
    LpBall,
    Mean,
    Superquantile,
)
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.trivial import Constant, best_constant, has_constant
from bonafed.solvers.conic.builder import P_OF, Index, Model, Status
from bonafed.solvers.conic.weight_sets import Members, Weighting
from bonafed.solvers.smooth.least_hinge import NEAR, least_hinge
from bonafed.solvers.smooth.newton import lbfgs

MOST_NUMBERS = 4_000_000  # entries of a program's largest matrix
# of the gradient, where a logistic regression need not be exact; and times its coefficients
ROUGH, STRETCHES = 1e-2, 2.0 ** np.arange(-1, 4, 0.5)
KINK = 1e-7  # on either side of an intercept the gradients of a loss are compared


@dataclass(frozen=True)
class Threshold:
    """The value of a parameter from which on, or below which, a constant is optimal.

    ``exact`` is False for a bound on it: an upper bound of a radius, strength or share, since a
    constant is optimal there; of a tail the function says which. ``how`` it was computed, in words.
    """

    value: float
    exact: bool
    how: str


def radius_threshold(
    problem: Problem, fed: Federation, within: tuple[float, float] | None = None
) -> Threshold:
    """r*: from this Wasserstein radius on a constant model is optimal.

    Parameters
    ----------
    problem : with a linear model and, over the samples, the mean or a ``WassersteinBall``, whose
        norm and label cost count (the mean: norm "l1"). Radii that differ keep their proportions,
        and r* is the largest of them
    fed : the clients' rows
    within : where bounds that need no program prove that r* is between these numbers, the upper
        bound will do

    Returns
    -------
    Threshold
        exact, or an upper bound; inf where there is none

    Raises
    ------
    ValueError
        for other problems
    """
    concrete, clean, data = _stated(problem, fed)
    if math.isinf(concrete.loss.lipschitz):
        raise ValueError(
            "a Wasserstein radius needs a loss with a bounded gradient, got"
            f" {concrete.loss!r}, whose gradient is unbounded: use Logistic() or Absolute()."
        )
    ball = _ball(concrete)
    if concrete.loss.targets == "sign" and math.isfinite(ball.label_cost):
        limit = flip_threshold(concrete, data)
        return replace(limit, value=limit.value * ball.label_cost)
    if math.isfinite(ball.label_cost):  # it pays for moving targets first, whatever the model
        return Threshold(math.inf, True, "a closed form")
    rho = sample_radii(concrete, data.n_clients)
    rho = rho / rho.max() if rho.max() > 0 else np.ones_like(rho)
    at, price = _Stationary(clean, data), concrete.loss.lipschitz * rho
    if within is not None:
        low, high = at.between(ball.norm, price)
        if within[0] <= low and high <= within[1]:
            return Threshold(high, False, "an upper bound")
    return at.least(ball.norm, price)


def strength_threshold(problem: Problem, fed: Federation) -> Threshold:
    """The strength of `L1` from which on all coefficients are zero, without a ball over samples."""
    concrete, clean, data = _stated(problem, fed)
    if sample_radii(concrete, data.n_clients).any():
        raise ValueError("the largest strength is known without a Wasserstein radius only.")
    free = replace(clean, regulariser=Zero())
    return _Stationary(free, data).least("linf", np.ones(data.n_clients))


def tail_threshold(problem: Problem, fed: Federation, enough: float = 0.0) -> Threshold:
    """tail*: up to this tail of ``Superquantile`` over the rows of one client a constant is
    optimal; 0 where the classes can be separated, and 1 where it is optimal for the mean too.

    ``enough``: where a logistic regression proves that tail* is below it, an upper bound that is
    below it as well will do. Raises ``ValueError`` for several clients, or another loss than one of
    the margin.
    """
    concrete, _, data = _stated(problem, fed, ranks=True)
    X, y = data.rows(0)
    if data.n_clients > 1 or concrete.loss.targets != "sign":
        raise ValueError("tail* is known for the rows of one client and a loss of the margin.")
    y, free = np.asarray(y, float), concrete.predictor.intercept
    if (p := _rarer(y)) == 0:
        raise ValueError("tail* is known for rows of two classes, got rows of one.")
    if enough > 0:
        w, b = _Rows(concrete, data).model(ROUGH)
        margin = y * (data.block(0).forward(w) + b * free)
        bound = min(float(np.maximum(1 - t * margin, 0.0).mean()) for t in STRETCHES)
        if bound < (min(enough, 2 * p) if free else enough):
            return Threshold(bound, False, "the mean hinge loss of a logistic regression")
    exact, how = X.shape[0] * X.shape[1] <= MOST_NUMBERS, "a linear program"
    if not exact:
        chosen = np.linspace(0, len(y) - 1, MOST_NUMBERS // X.shape[1]).astype(int)
        X, y, how = X[chosen], y[chosen], "a linear program over some of the rows"
        p = _rarer(y)
    X = dense(X)
    rows = np.column_stack([X - X.mean(0), np.ones(len(y))]) if free else X
    upper, lower = least_hinge(y[:, None] * rows)
    if free and upper >= 2 * p > 0:
        few = (y > 0) == ((y > 0).mean() <= 0.5)
        most, least = least_hinge(X[few].mean(0) - X[~few])
        if (1 - p) * most >= p:
            upper, lower = (p + (1 - p) * t for t in (most, least))
            if isinstance(concrete.loss, Hinge):
                upper, lower = 1.0, 1.0
    return Threshold(lower, exact and upper - lower <= 10 * NEAR, how)


def _rarer(y: Array) -> float:
    """The share of the rarer class."""
    return min(float((y > 0).mean()), float((y <= 0).mean()))


def flip_threshold(problem: Problem, fed: Federation) -> Threshold:
    """F: a constant is optimal where radius / label_cost >= F. At 1/2 it always is.

    Several clients count by their weights in ``over_clients`` at the best constant, with radii in
    the proportions of the problem's. Raises ``ValueError`` unless the loss is one of the margin.
    """
    concrete, clean, data = _stated(problem, fed)
    if concrete.loss.targets != "sign":
        raise ValueError(f"labels flip under a loss of the margin, got {concrete.loss!r}.")
    always = Threshold(0.5, False, "flipping half of all labels")
    if not concrete.predictor.intercept or data.sizes.sum() * data.n_features > MOST_NUMBERS:
        return always
    q, radius = best_constant(clean, data).weights, sample_radii(concrete, data.n_clients)
    ratio = radius / radius.max() if radius.any() else np.ones(data.n_clients)
    flips = _Flips(data, q, ratio)
    limit = flips.uneven(kink=isinstance(concrete.loss, Hinge))
    if limit is None or flips.majority - limit * float(q @ ratio) < 0.5:
        limit = flips.even(concrete)
    if limit is None:
        return always
    sets = concrete.over_clients  # a ball of radius 0 has one member, as the mean
    fixed = data.n_clients == 1 or isinstance(sets, Mean) or getattr(sets, "radius", None) == 0
    return Threshold(min(limit, 0.5), fixed, "a conic program")


class _Flips:
    """The rows of all clients, of which every client s flips the share t ratio_s at most."""

    def __init__(self, fed: Federation, q: Array, ratio: Array) -> None:
        share = fed.shares()
        owner, rows = np.repeat(np.arange(fed.n_clients), fed.sizes), each_changed(dense, fed.X)
        self.q, self.weight, self.y = q, share * q[owner], joined(fed.y)
        self.X = joined(rows)
        self.X = self.X - self.weight @ self.X  # less the mean of all rows
        plus = float(self.weight @ (self.y > 0))
        self.larger = self.y == (1.0 if plus >= 0.5 else -1.0)
        self.majority = max(plus, 1 - plus)  # the share of the larger class
        # (clients, rows) shares within the clients that have a weight, and what these may flip
        self.own = (owner == np.flatnonzero(q > 0)[:, None]) * share
        self.most = ratio[q > 0]

    def _model(self, flipped: int, others: int) -> tuple[Model, Index, Index, Index]:
        """The least t; t, the parts of rows that flip and other variables, all of these >= 0."""
        model = Model()
        t, flip, more = model.variable(), model.variable(flipped), model.variable(others)
        model.linear(t, 1.0)
        for index in (flip, more):
            model.nonneg([(index, 1.0)])
        return model, np.repeat(t, len(self.most)), flip, more

    def uneven(self, kink: bool) -> float | None:
        """The least t where flips within the larger class make both means equal, and leave it the
        larger one. With a ``kink`` its rows need not count in full.
        """
        chosen = self.larger
        X = self.X / np.maximum(np.abs(self.X).max(0), 1e-300)
        X, c = np.column_stack([X, np.ones(len(X))]), self.weight
        model, t, flip, count = self._model(chosen.sum(), chosen.sum())
        rest = [np.ones(chosen.sum()), (flip, -1.0), (count, -1.0)]
        moved = (X * c[:, None])[chosen].T
        if kink:  # flipped and rarer rows balance what counts of the others
            model.nonneg(rest)
            model.zero([c[~chosen] @ X[~chosen], (flip, moved), (count, -moved)])
        else:
            model.zero(rest)
            model.zero([(count, moved[:-1])])
        model.zero([(flip, self.own[:, chosen]), (t, -self.most)])
        return _least(model)

    def even(self, problem: Problem) -> float | None:
        """The least t where flips make both classes equal in size, so that 0 is the best constant,
        and what they leave of the radius pays for the mean gradient at 0.
        """
        ball, loss, held = _ball(problem), problem.loss, self.q > 0
        if math.isinf(ball.label_cost):
            return None
        steep = abs(float(loss.gradient(np.zeros(1), np.ones(1))[0])) / loss.lipschitz
        push = self.y * self.weight
        # left of each client's radius, in units of label_cost
        model, t, flip, left = self._model(len(push), len(held))
        model.nonneg([np.ones(len(flip)), (flip, -1.0)])
        model.zero([push.sum(), (flip, -2 * push[None])])
        model.zero([(flip, self.own), (left[held], 1.0), (t, -self.most)])
        rows, cost = push[:, None] * self.X * steep, ball.label_cost * self.q[None]
        model.norm_at_most([rows.sum(0), (flip, -2 * rows.T)], [(left, cost)], P_OF[ball.norm])
        return _least(model)


def _least(model: Model) -> float | None:
    solved = model.solve()
    return max(solved.value, 0.0) if solved.status is Status.SOLVED else None


class _Stationary:
    """What decides whether the best constant of a concrete problem is optimal: gradients at it.

    ``gradient`` (K, d + 1) are those of K atoms, the last entry by the intercept; atom k belongs to
    client ``owner``, and counts between ``least`` and 1 times. A client's smooth rows are one atom,
    a row at a kink a separate one.
    """

    def __init__(self, problem: Problem, fed: Federation) -> None:
        self.problem, self.n = problem, fed.n_clients
        self.constant: Constant = best_constant(problem, fed)
        parts = [_atoms(problem, fed.block(i), self.constant.intercept) for i in range(self.n)]
        self.owner = np.repeat(np.arange(self.n), [len(part[0]) for part in parts])
        self.gradient, self.low = (np.concatenate(each) for each in zip(*parts, strict=True))
        if not problem.predictor.intercept:
            self.gradient[:, -1] = 0.0

    def least(self, kind: str, rho: Array) -> Threshold:
        """The least t for which 0 is stationary with the term t <q, rho> ||w||_* added."""
        if not rho.any():
            return Threshold(math.inf, True, "there is no radius")
        q, smooth = self.constant.weights, bool((self.low == 1).all())
        # of a custom regulariser nothing is known
        known = has_parts(self.problem.regulariser)
        l1 = regulariser_parts(self.problem.regulariser)[0] if known else 0.0
        total = q[self.owner] @ self.gradient[:, :-1]
        near = norm(np.sign(total) * np.maximum(np.abs(total) - l1, 0.0), kind)
        price = float(q @ rho)
        ratio = float(near) / price if price > 0 and smooth else math.inf
        bound = Threshold(ratio, False, "an upper bound")
        if smooth and self._unique():
            return replace(bound, exact=known, how="a closed form")
        if (found := self._program(kind, rho, l1)) is None:
            return replace(bound, how="a closed form")
        return Threshold(min(found, bound.value), known, "a conic program")

    def between(self, kind: str, rho: Array) -> tuple[float, float]:
        """A lower and an upper bound of ``least``, by the worst client weights of the constant.

        With v of dual norm 1,  || sum_s q_s g_s || >= sum_s q_s <g_s, v>,  of which the least over
        all client weights is a worst case.
        """
        q, risk = self.constant.weights, self.problem.over_clients
        regulariser = self.problem.regulariser
        total, price = q[self.owner] @ self.gradient[:, :-1], float(q @ rho)
        plain = has_parts(regulariser) and regulariser_parts(regulariser)[0] == 0
        if not (plain and (self.low == 1).all() and price > 0):
            return 0.0, math.inf
        v = norm_gradient(total, kind)
        slopes = np.bincount(self.owner, self.gradient[:, :-1] @ v, self.n)
        least = -float(risk.value(-slopes)) - 1e-9 * float(np.abs(slopes).max())  # for rounding
        return max(least, 0.0) / float(rho.max()), float(norm(total, kind)) / price

    def _unique(self) -> bool:
        """Whether no other client weights are worst ones at the constant.

        In a strictly convex set two of them had one between them inside the set, which would be
        best among all weights: then all of it is at the clients of the largest loss.
        """
        over, losses = self.problem.over_clients, self.constant.losses
        if self.n == 1 or isinstance(over, Mean):
            return True
        curved = isinstance(over, KLBall | ChiSquareBall | Ellipsoid)
        curved |= isinstance(over, LpBall) and 1 < over.p < math.inf
        below = float(losses.max() - self.constant.weights @ losses)
        return curved and below > 1e-6 * float(np.abs(losses).max())

    def _program(self, kind: str, rho: Array, l1: float) -> float | None:
        """The minimum over all worst client weights and all gradients at kinks; None where it
        cannot be computed. With rho that differ the ratio is minimised by Dinkelbach's steps.
        """
        try:
            sets = weighting(self.problem, self.n)
        except ValueError:
            return None
        if isinstance(sets, Members) or self.gradient.size > MOST_NUMBERS:
            return None
        t, even = 0.0, np.ptp(rho) == 0
        for _ in range(20):
            if (answer := self._solved(kind, t * rho, l1, sets)) is None:
                return None
            left, price = answer[0], float(rho[0] if even else answer[1] @ rho)
            if price <= 1e-12:
                return math.inf if left > 1e-9 else t
            last, t = t, t + left / price
            if even or abs(t - last) <= 1e-8 * abs(t):
                break
        return max(t, 0.0)

    def _solved(
        self, kind: str, shift: Array, l1: float, sets: Weighting
    ) -> tuple[float, Array] | None:
        """min over q of  || sum_s q_s g_s || - <q, shift>,  and q; by its dual

        minimise over ||v||_* <= 1, b, m >= 0:  max_q <q, z> + l1 ||v||_1,
            z_s = shift_s + sum of its atoms' largest <g, (v, b)> + m (losses_s - value)
        """
        from scipy.sparse import csr_array

        unit = float(np.abs(self.gradient).max()) or 1.0
        losses = self.constant.losses
        lack = losses - float(self.constant.weights @ losses)
        d = self.gradient.shape[1] - 1
        model = Model()
        v, z, atom = model.variable(d + 1), model.variable(self.n), model.variable(len(self.owner))
        rows = self.gradient / unit
        model.nonneg([(atom, 1.0), (v, -rows)])
        if (self.low < 1).any():
            model.nonneg([(atom, 1.0), (v, -rows * self.low[:, None])])
        cells = -np.ones(len(atom)), (self.owner, np.arange(len(atom)))
        terms = [(z, 1.0), (atom, csr_array(cells, (self.n, len(atom)))), -shift / unit]
        if np.ptp(lack) > 1e-9 * max(1.0, float(np.abs(losses).max())):
            slack = model.variable()
            model.nonneg([(slack, 1.0)])
            terms.append((slack, -lack[:, None] / np.abs(lack).max()))
        model.nonneg(terms)
        if d:
            model.norm_at_most([(v[:d], 1.0)], [np.ones(1)], P_OF[DUAL[kind]])
        if l1 > 0:
            size = model.positive(np.full(d, l1 / unit))
            for sign in (1.0, -1.0):
                model.nonneg([(size, 1.0), (v[:d], sign)])
        if not self.problem.predictor.intercept:
            model.zero([(v[d:], 1.0)])
        read = sets.add(model, z)
        solved = model.solve_fast()
        if solved.status is Status.FAILED:  # by the last digits that were asked for
            solved = model.solve(1e-8)
        if solved.status not in (Status.SOLVED, Status.ALMOST_SOLVED):
            return None
        return -solved.value * unit, read(solved)


def _atoms(problem: Problem, block: Block, b: float) -> tuple[Array, Array]:
    """Of one client: gradients (k, d + 1) of its atoms at the constant b, and how often each counts
    at least.
    """
    at, step = np.full(block.y.shape, b), KINK * max(1.0, abs(b))
    share, loss = client_means.row_shares(problem, block), problem.loss
    low, high = (loss.gradient(at + sign * step, block.y) for sign in (-1, 1))
    kinks = (np.abs(high - low) > 1e-3) & (share > 0) & (not loss.smooth)
    plain = share * np.where(kinks, 0.0, loss.gradient(at, block.y))
    gradient = np.append(block.backward(plain)[0], plain.sum())[None]
    rows = np.flatnonzero(kinks[0])
    if not len(rows):
        return gradient, np.ones(1)
    X = block.X[0, rows] if isinstance(block.X, np.ndarray) else dense(block.X[rows])
    ends = np.stack([low, high])[:, 0, rows]
    ends = np.where(np.abs(ends[1]) > np.abs(ends[0]), ends[::-1], ends)
    size, other = ends  # the larger end, and the other one
    here = (share[0, rows] * size)[:, None] * np.column_stack([X, np.ones(len(rows))])
    return np.vstack([gradient, here]), np.append(1.0, other / size)


def _stated(
    problem: Problem, fed: Federation, ranks: bool = False
) -> tuple[Problem, Problem, Federation]:
    """The concrete problem, the same without a ball over the samples, and the data; raises
    ``ValueError`` for problems without thresholds.
    """
    concrete, data = problem.at(near(problem, fed))
    over = concrete.over_samples
    other = Superquantile if ranks else WassersteinBall
    suits = isinstance(over, Mean | other) and concrete.over_rows is None
    bounded = getattr(over, "support", None) is not None
    if not has_constant(concrete) or concrete.constrained or not suits or bounded:
        raise ValueError(
            "thresholds are known for Linear(), without constraints, supports and over_rows, with"
            f" {'Superquantile(tail)' if ranks else 'Mean() or WassersteinBall()'} over samples,"
            f" got {problem.predictor!r} and {problem.over_samples!r}."
        )
    if not isinstance(over, WassersteinBall):
        return concrete, concrete, data
    return concrete, replace(concrete, over_samples=Mean()), data


def _ball(problem: Problem) -> WassersteinBall:
    ball = problem.over_samples
    return ball if isinstance(ball, WassersteinBall) else WassersteinBall(0.0)


LEVEL = 0.9  # of the quantile of the noise
SHARE = {"linf": 0.25, "l2": 0.3, "l1": 0.3}  # of it; the closed form of linf is 1.2 times larger
LEAST, MOST = 0.01, 0.3  # parts of r*
FLIPS = 0.005  # with a finite label cost at most this share of labels can flip
DRAWS = 200  # of random signs
HALVINGS = 40  # of the interval in which a median lies


@checking
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
    fed = near(one, fed)
    noise = _Rows(*one.at(fed)).noise(ball.norm)
    scale = 1.0 if loss.targets == "sign" else loss.lipschitz
    wanted = SHARE[ball.norm] * noise / scale
    largest = radius_threshold(one, fed, (wanted / MOST, wanted / LEAST)).value
    radius = min(max(wanted, LEAST * largest), MOST * largest)
    return min(radius, FLIPS * ball.label_cost) if loss.targets == "sign" else radius


def residual_scale(fed: Federation) -> float:
    """The spread of the residuals of a ridge regression, 1.4826 times the median of their sizes.

    That is the standard deviation of normal residuals. The median comes from counts: halving an
    interval, clients say how many of their residuals are smaller.
    """
    plain = Problem(Squared(), Linear(True))
    rows = _Rows(*plain.at(near(plain, fed)))
    w, b = rows.model()
    sizes = [np.abs(block.y[0] - block.forward(w)[0] - b) * (v > 0) for block, v in rows]
    low, high = 0.0, (top := max(float(part.max()) for part in sizes))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        each = zip(sizes, rows.shares, strict=True)
        half = sum(float(v[part <= middle].sum()) for part, v in each) >= 0.5 - 1e-12
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
    return replace(problem, over_samples=replace(ball, radius=default_radius(problem, fed)))


class _Rows:
    """The clients' rows, each with its share in the mean of all, and a pilot model.

    Every method adds up what clients would send.
    """

    def __init__(self, problem: Problem, fed: Federation) -> None:
        prior, mass = getattr(problem.over_clients, "prior", None), masses(fed)
        q = mass / mass.sum() if prior is None else np.asarray(prior, float)
        self.loss, self.fed = problem.loss, fed
        self.pilot: Loss = Logistic() if self.loss.targets == "sign" else Squared()
        # the rows of several clients as one block; their shares, which sum to one, and the share
        # that each row would have at weight 1
        self.blocks, self.shares, self.units = list[Block](), list[Array](), list[Array]()
        for block in fed.batches():
            self.shares.append((q[block.index, None] * block.share).ravel())
            self.units.append(np.repeat((q / mass)[block.index], block.y.shape[1]))
            X = block.X  # sparse rows are under one another already
            X = X.reshape(1, -1, fed.n_features) if isinstance(X, np.ndarray) else X
            self.blocks.append(replace(block, X=X, y=block.y.reshape(1, -1)))
        # means of the features and of their squares
        self.mean = self.square = np.zeros(fed.n_features)
        for block, v in self:
            self.mean = self.mean + block.backward(v[None])[0]
            self.square = self.square + _squares(block, v)

    def __iter__(self) -> Iterator[tuple[Block, Array]]:
        return zip(self.blocks, self.shares, strict=True)

    def model(self, tol: float = 1e-6) -> tuple[Array, float]:
        """Coefficients and intercept of the pilot model; ``tol`` of its first gradient."""
        mean, square = self.mean, self.square
        # 1 / n where all rows count alike
        strength = sum(float(v @ u) for v, u in zip(self.shares, self.units, strict=True))
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
        first = float(np.abs(value(start)[1]).max())
        u = lbfgs(value, start, tol * max(first, 1e-300), cap=200).v[0]
        w = u[:-1] / scale
        return w, float(u[-1] - w @ mean)

    def noise(self, kind: str) -> float:
        """b, of features about their means: an intercept takes the noise that they share."""
        w, b = self.model()
        loss = self.pilot if self.loss.targets == "sign" else self.loss
        slopes = [loss.gradient(block.forward(w) + b, block.y)[0] for block in self.blocks]
        parts, centre = [*zip(self.blocks, self.shares, slopes, self.units, strict=True)], self.mean

        def weighed(block: Block, rows: Array) -> Array:
            """sum_i rows_i (x_i - centre)."""
            return block.backward(rows[None])[0] - rows.sum() * centre

        mean = sum(weighed(block, v * s) for block, v, s, _ in parts)
        if kind == "linf":
            spread = np.zeros(len(w))
            for block, v, s, unit in parts:  # sums of v (z - mean)^2
                v = v * unit
                a = v * s * s
                both = weighed(block, a) + block.backward(a[None])[0]
                squares = _squares(block, a) - centre * both
                spread += squares + mean * (mean * v.sum() - 2 * weighed(block, v * s))
            deviation = math.sqrt(max(float(spread.max(initial=0.0)), 0.0))
            return float(ndtri(1 - (1 - LEVEL) / (2 * max(len(w), 1)))) * deviation
        total = np.zeros((DRAWS, len(w)))
        for block, v, s, unit in parts:
            X = block.X[0] if isinstance(block.X, np.ndarray) else block.X
            starts = np.arange(len(block.names)) * (len(v) // len(block.names))
            size = np.sqrt(unit * v)
            for start, i in zip(starts.tolist(), block.index.tolist(), strict=True):
                at = slice(start, start + int(self.fed.sizes[i]))
                rng = stream(0, self.fed.clients[i], 1)
                e = rng.choice([-1.0, 1.0], (DRAWS, at.stop - start)) * size[at]
                drawn = np.asarray(X[at].T @ (e * s[at]).T).T
                total += drawn - (e @ s[at])[:, None] * centre - e.sum(1, keepdims=True) * mean
        return float(np.quantile(norm(total, kind), LEVEL))


def _squares(block: Block, weight: Array) -> Array:
    """sum_i weight_i x_ij^2, (d,)."""
    X = block.X
    return weight @ X[0] ** 2 if isinstance(X, np.ndarray) else np.asarray(X.multiply(X).T @ weight)
