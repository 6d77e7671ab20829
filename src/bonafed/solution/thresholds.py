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
           T = min max_i n u_i,  u >= 0 on the other class, sum u_i = 1, sum u_i x_i = its mean:
           tail* = p + 1/T if 1/T >= p, else 1/T of all rows, sum u_i y_i = 0, sum u_i y_i x_i = 0
    F      finite label cost, one client: share of the larger class - largest sum_i u_i / n with
           0 <= u_i <= 1 on its rows and sum u_i (x_i - mean x) = 0: the share of labels that the
           adversary needs to make the features useless. It has it where radius / label_cost >= F
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import DUAL, Array, Block, dense, norm
from bonafed.data.federation import Federation
from bonafed.problem.client_means import row_shares
from bonafed.problem.conic_form import sample_radii, weighting
from bonafed.problem.losses import Hinge
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero, has_parts, regulariser_parts
from bonafed.problem.risks.stated_sets import Ellipsoid
from bonafed.problem.risks.weight_sets import ChiSquareBall, KLBall, LpBall, Mean, Superquantile
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.constant_model import Constant, best_constant, has_constant
from bonafed.solvers.conic.builder import P_OF, Index, Model, Status
from bonafed.solvers.conic.weight_sets import Members, Weighting

MOST_NUMBERS = 4_000_000  # entries of a program's largest matrix
KINK = 1e-7  # on either side of an intercept the gradients of a loss are compared


@dataclass(frozen=True)
class Threshold:
    """The value of a parameter from which on, or below which, a constant is optimal.

    ``exact`` is False for a bound on it: an upper bound of a radius, strength or share, since a
    constant is optimal there. ``how`` it was computed, in words.
    """

    value: float
    exact: bool
    how: str


def largest_radius(problem: Problem, fed: Federation) -> float:
    """r*: from this Wasserstein radius on a constant model is optimal.

    Parameters
    ----------
    problem : with a linear model and, over the samples, the mean or a ``WassersteinBall``, whose
        norm and label cost count (the mean: norm "l1"). Radii that differ keep their proportions,
        and r* is the largest of them
    fed : the clients' rows

    Returns
    -------
    float
        exact, or an upper bound (see `radius_threshold`); inf where there is none

    Raises
    ------
    ValueError
        for other problems
    """
    return radius_threshold(problem, fed).value


def largest_tail(problem: Problem, fed: Federation) -> float:
    """tail*: up to this tail of ``Superquantile`` over the rows of one client a constant is
    optimal; 0 where the classes can be separated, and 1 where it is optimal for the mean too.

    Raises ``ValueError`` for several clients, or another loss than one of the margin.
    """
    return tail_threshold(problem, fed).value


def label_flip_limit(problem: Problem, fed: Federation) -> float:
    """F: a constant is optimal where radius / label_cost >= F. At 1/2 it always is.

    Several clients count by their weights in ``over_clients`` at the best constant, with radii in
    the proportions of the problem's. Raises ``ValueError`` unless the loss is one of the margin.
    """
    return flip_threshold(problem, fed).value


def radius_threshold(problem: Problem, fed: Federation) -> Threshold:
    """`largest_radius`, and whether it is exact."""
    concrete, data = _stated(problem, fed)
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
    clean = replace(concrete, over_samples=_without_ball(concrete))
    rho = sample_radii(concrete, data.n_clients)
    rho = rho / rho.max() if rho.max() > 0 else np.ones_like(rho)
    return _Stationary(clean, data).least(ball.norm, concrete.loss.lipschitz * rho)


def strength_threshold(problem: Problem, fed: Federation) -> Threshold:
    """The strength of `L1` from which on all coefficients are zero, without a ball over samples."""
    concrete, data = _stated(problem, fed)
    if sample_radii(concrete, data.n_clients).any():
        raise ValueError("the largest strength is known without a Wasserstein radius only.")
    clean = replace(concrete, over_samples=_without_ball(concrete), regulariser=Zero())
    return _Stationary(clean, data).least("linf", np.ones(data.n_clients))


def tail_threshold(problem: Problem, fed: Federation) -> Threshold:
    """`largest_tail`, and whether it is exact."""
    concrete, data = _stated(problem, fed, ranks=True)
    X, y = data.rows(0)
    if data.n_clients > 1 or concrete.loss.targets != "sign":
        raise ValueError("tail* is known for the rows of one client and a loss of the margin.")
    X, y, free = dense(X), np.asarray(y, float), concrete.predictor.intercept
    exact, how = X.size <= MOST_NUMBERS, "a linear program"
    if not exact:
        chosen = np.linspace(0, len(y) - 1, MOST_NUMBERS // X.shape[1]).astype(int)
        X, y, how = X[chosen], y[chosen], "a linear program over some of the rows"
    rarer = 1.0 if (y > 0).mean() <= 0.5 else -1.0
    p, few = float((y == rarer).mean()), y == rarer
    if p == 0:
        raise ValueError("tail* is known for rows of two classes, got rows of one.")
    if free:
        rows = np.column_stack([X[~few], np.ones((~few).sum())])
        most = _least_peak(rows, np.append(X[few].mean(0), 1.0), len(y))
        if 1 / most >= p:
            return Threshold(1.0 if isinstance(concrete.loss, Hinge) else p + 1 / most, exact, how)
    rows = y[:, None] * np.column_stack([X, np.ones((len(y), int(free)))])
    rows = np.column_stack([rows, np.ones(len(y))])
    most = _least_peak(rows, np.append(np.zeros(rows.shape[1] - 1), 1.0), len(y))
    return Threshold(min(1 / most, 1.0), exact, how)


def _least_peak(rows: Array, aim: Array, n: int) -> float:
    """T = min max_i n u_i over u >= 0 with sum_i u_i rows_i = aim; inf where there is no such u.

    By duality the largest <aim, v> with mean_i max(<rows_i, v>, 0) <= 1 (n times the mean over n).
    """
    size = np.maximum(np.abs(rows).max(0), 1e-300)
    model = Model()
    v, over = model.variable(rows.shape[1]), model.variable(len(rows))
    model.linear(v, -aim / size)
    model.nonneg([(over, 1.0)])
    model.nonneg([(over, 1.0), (v, -rows / size)])
    model.nonneg([np.ones(1), (over, -np.full((1, len(rows)), 1 / n))])
    solved = model.solve()
    return math.inf if solved.status is Status.UNBOUNDED else -solved.checked("tail*").value


def flip_threshold(problem: Problem, fed: Federation) -> Threshold:
    """`label_flip_limit`, and whether it is exact."""
    concrete, data = _stated(problem, fed)
    if concrete.loss.targets != "sign":
        raise ValueError(f"labels flip under a loss of the margin, got {concrete.loss!r}.")
    always = Threshold(0.5, False, "flipping half of all labels")
    if not concrete.predictor.intercept or data.sizes.sum() * data.n_features > MOST_NUMBERS:
        return always
    q = best_constant(replace(concrete, over_samples=_without_ball(concrete)), data).weights
    radius = sample_radii(concrete, data.n_clients)
    ratio = radius / radius.max() if radius.any() else np.ones(data.n_clients)
    flips = _Flips.of(data, q, ratio)
    limit = flips.uneven(kink=isinstance(concrete.loss, Hinge))
    if limit is None or flips.majority - limit * float(q @ ratio) < 0.5:
        limit = flips.even(concrete)
    if limit is None:
        return always
    sets = concrete.over_clients  # a ball of radius 0 has one member, as the mean
    fixed = data.n_clients == 1 or isinstance(sets, Mean) or getattr(sets, "radius", None) == 0
    return Threshold(min(limit, 0.5), fixed, "a conic program")


@dataclass(frozen=True)
class _Flips:
    """The rows of all clients, of which every client s flips the share t ratio_s at most."""

    X: Array  # (n, d) less the mean of all rows
    y: Array
    share: Array  # (n,) of a row within its client
    owner: Index
    q: Array  # (N,) client weights
    ratio: Array

    @classmethod
    def of(cls, fed: Federation, q: Array, ratio: Array) -> _Flips:
        share = np.concatenate([fed.share(i) for i in range(fed.n_clients)])
        owner, X = np.repeat(np.arange(fed.n_clients), fed.sizes), [dense(x) for x in fed.X]
        rows = np.concatenate(X)
        return cls(rows - (share * q[owner]) @ rows, np.concatenate(fed.y), share, owner, q, ratio)

    @property
    def weight(self) -> Array:
        """(n,) of a row among all."""
        return self.share * self.q[self.owner]

    @property
    def majority(self) -> float:
        """The share of the larger class."""
        plus = float(self.weight @ (self.y > 0))
        return max(plus, 1 - plus)

    def uneven(self, kink: bool) -> float | None:
        """The least t where flips within the larger class make both means equal, and leave it the
        larger one. With a ``kink`` its rows need not count in full.
        """
        larger = 1.0 if self.weight @ (self.y > 0) >= 0.5 else -1.0
        chosen = self.y == larger
        X = self.X / np.maximum(np.abs(self.X).max(0), 1e-300)
        X, c = np.column_stack([X, np.ones(len(X))]), self.weight
        model = Model()
        t, flip, count = model.variable(), *(model.variable(chosen.sum()) for _ in range(2))
        model.linear(t, 1.0)
        for index in (flip, count):
            model.nonneg([(index, 1.0)])
        rest = [np.ones(chosen.sum()), (flip, -1.0), (count, -1.0)]
        moved = (X * c[:, None])[chosen].T
        if kink:  # flipped and rarer rows balance what counts of the others
            model.nonneg(rest)
            model.zero([c[~chosen] @ X[~chosen], (flip, moved), (count, -moved)])
        else:
            model.zero(rest)
            model.zero([(count, moved[:-1])])
        model.zero([(flip, self._of_client(chosen)), *self._allowed(t)])
        return _least(model)

    def even(self, problem: Problem) -> float | None:
        """The least t where flips make both classes equal in size, so that 0 is the best constant,
        and what they leave of the radius pays for the mean gradient at 0.
        """
        ball, loss = _ball(problem), problem.loss
        if math.isinf(ball.label_cost):
            return None
        steep = abs(float(loss.gradient(np.zeros(1), np.ones(1))[0])) / loss.lipschitz
        push = self.y * self.weight
        model = Model()
        t, flip = model.variable(), model.variable(len(self.y))
        left = model.variable(len(self.q))  # of each client's radius, in units of label_cost
        model.linear(t, 1.0)
        for index in (flip, left):
            model.nonneg([(index, 1.0)])
        model.nonneg([np.ones(len(flip)), (flip, -1.0)])
        model.zero([push.sum(), (flip, -2 * push[None])])
        everyone, held = np.ones(len(self.y), bool), self.q > 0
        model.zero([(flip, self._of_client(everyone)), (left[held], 1.0), *self._allowed(t)])
        rows = push[:, None] * self.X * steep
        model.norm_at_most(
            [rows.sum(0), (flip, -2 * rows.T)],
            [(left, ball.label_cost * self.q[None])],
            P_OF[ball.norm],
        )
        return _least(model)

    def _of_client(self, chosen: NDArray[np.bool_]) -> Array:
        """(clients, rows) shares, of clients that have a weight."""
        same = self.owner[chosen] == np.flatnonzero(self.q > 0)[:, None]
        return same * self.share[chosen]

    def _allowed(self, t: Index) -> list[tuple[Index, Array]]:
        held = self.q > 0
        return [(np.repeat(t, held.sum()), -self.ratio[held])]


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
        b = self.constant.intercept
        step = KINK * max(1.0, abs(b))
        parts = [_atoms(problem, fed.block(i), b, step) for i in range(self.n)]
        self.owner = np.repeat(np.arange(self.n), [len(part[0]) for part in parts])
        self.gradient, self.low = (np.concatenate(each) for each in zip(*parts, strict=True))
        if not problem.predictor.intercept:
            self.gradient[:, -1] = 0.0

    def least(self, kind: str, rho: Array) -> Threshold:
        """The least t for which 0 is stationary with the term t <q, rho> ||w||_* added."""
        if not rho.any():
            return Threshold(math.inf, True, "there is no radius")
        q, smooth = self.constant.weights, bool((self.low == 1).all())
        l1 = _l1(self.problem)
        total = q[self.owner] @ self.gradient[:, :-1]
        near = norm(np.sign(total) * np.maximum(np.abs(total) - l1, 0.0), kind)
        price = float(q @ rho)
        ratio = float(near) / price if price > 0 and smooth else math.inf
        bound = Threshold(ratio, False, "an upper bound")
        known = has_parts(self.problem.regulariser)
        if smooth and (self.n == 1 or isinstance(self.problem.over_clients, Mean)):
            return replace(bound, exact=known, how="a closed form")
        found = self._program(kind, rho, l1)
        if found is None:  # of a curved set the worst weights are unique
            return replace(bound, exact=known and smooth and self._unique, how="a closed form")
        return Threshold(min(found, bound.value), known, "a conic program")

    @property
    def _unique(self) -> bool:
        """Whether clients of different losses have unique worst weights: of a curved set."""
        over = self.problem.over_clients
        curved = isinstance(over, KLBall | ChiSquareBall | Ellipsoid)
        curved |= isinstance(over, LpBall) and 1 < over.p < math.inf
        return curved and np.ptp(self.constant.losses) > 1e-6 * np.abs(self.constant.losses).max()

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
        t = 0.0 if np.ptp(rho) == 0 else None
        if t is not None:
            answer = self._solved(kind, t * rho, l1, sets)
            return None if answer is None else max(answer[0], 0.0) / float(rho[0])
        t = 0.0
        for _ in range(20):
            answer = self._solved(kind, t * rho, l1, sets)
            if answer is None:
                return None
            left, q = answer
            price = float(q @ rho)
            if price <= 1e-12:
                return math.inf if left > 1e-9 else t
            last, t = t, t + left / price
            if abs(t - last) <= 1e-8 * abs(t):
                break
        return max(t, 0.0)

    def _solved(
        self, kind: str, shift: Array, l1: float, sets: Weighting
    ) -> tuple[float, Array] | None:
        """min over q of  || sum_s q_s g_s || - <q, shift>,  and q; by its dual

        minimise over ||v||_* <= 1, b, m >= 0:  max_q <q, z> + l1 ||v||_1,
            z_s = shift_s + sum of its atoms' largest <g, (v, b)> + m (losses_s - value)
        """
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
        total = (self.owner == np.arange(self.n)[:, None]).astype(float)
        terms = [(z, 1.0), (atom, -total), -shift / unit]
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
        solved = model.solve()
        if solved.status not in (Status.SOLVED, Status.ALMOST_SOLVED):
            return None
        return -solved.value * unit, read(solved)


def _atoms(problem: Problem, block: Block, b: float, step: float) -> tuple[Array, Array]:
    """Of one client: gradients (k, d + 1) of its atoms at the constant b, and how often each counts
    at least.
    """
    at = np.full(block.y.shape, b)
    share, loss = row_shares(problem, block), problem.loss
    low, high = (loss.gradient(at + sign * step, block.y) for sign in (-1, 1))
    kinks = (np.abs(high - low) > 1e-3) & (share > 0) & (not loss.smooth)
    plain = share * np.where(kinks, 0.0, loss.gradient(at, block.y))
    gradient = np.append(block.backward(plain)[0], plain.sum())[None]
    rows = np.flatnonzero(kinks[0])
    if not len(rows):
        return gradient, np.ones(1)
    X = block.X[0, rows] if isinstance(block.X, np.ndarray) else dense(block.X[rows])
    size = np.where(np.abs(high) > np.abs(low), high, low)[0, rows]  # the larger end
    other = np.where(np.abs(high) > np.abs(low), low, high)[0, rows]
    here = (share[0, rows] * size)[:, None] * np.column_stack([X, np.ones(len(rows))])
    return np.vstack([gradient, here]), np.append(1.0, other / size)


def _stated(problem: Problem, fed: Federation, ranks: bool = False) -> tuple[Problem, Federation]:
    """The concrete problem and data; raises ``ValueError`` for problems without thresholds."""
    concrete, data = problem.at(fed)
    over = concrete.over_samples
    suits = (
        isinstance(over, Superquantile | Mean)
        if ranks
        else isinstance(over, Mean | WassersteinBall)
    )
    suits = suits and concrete.over_rows is None
    bounded = getattr(over, "support", None) is not None
    if not has_constant(concrete) or concrete.constrained or not suits or bounded:
        raise ValueError(
            "thresholds are known for Linear(), without constraints, supports and over_rows, with"
            f" {'Superquantile(tail)' if ranks else 'Mean() or WassersteinBall()'} over samples,"
            f" got {problem.predictor!r} and {problem.over_samples!r}."
        )
    return concrete, data


def _ball(problem: Problem) -> WassersteinBall:
    ball = problem.over_samples
    return ball if isinstance(ball, WassersteinBall) else WassersteinBall(0.0)


def _without_ball(problem: Problem) -> Mean:
    ball = problem.over_samples
    return Mean() if isinstance(ball, WassersteinBall) else ball


def _l1(problem: Problem) -> float:
    """The strength of an L1 norm in the regulariser; of a custom one nothing is known."""
    return regulariser_parts(problem.regulariser)[0] if has_parts(problem.regulariser) else 0.0
