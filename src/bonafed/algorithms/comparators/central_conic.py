"""The whole problem as one conic program on pooled rows: the reference solution.

    minimise  phi_Q(z_1, ..., z_S) + h(w)    subject to  z_s >= radius_s lambda_s + mean_i alpha_i,
                                                         (w, lambda_s, alpha) in Omega_s

(4) of Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*, with Omega_s from their
appendix B; equation numbers are theirs. phi_Q(z) = max_{q in Q} <q, z>. With u = <w, x> - y, m = y
<w, x>, and label cost kappa:

    R^n, regression    alpha_i >= L(u_i),   lambda >= Lip ||w||_*,   lambda >= Lip / kappa     (B.1)
    R^n, classification  alpha_i >= L(m_i),  alpha_i >= L(-m_i) - kappa lambda,
            lambda >= Lip ||w||_*  (B.5, B.6)
    {Cx + cy <= d}, for every linear piece a t + b of L, with multipliers phi_i >= 0
      regression         a u_i + b + <phi_i, d - C x_i - c y_i> <= alpha_i,
                         ||C'phi_i - a w||_* <= lambda,   |c'phi_i + a| <= kappa lambda   (B.2, B.3)
      classification  a m_i + b + <phi_i, d - C x_i> <= alpha_i,  ||C'phi_i - a y_i w||_* <= lambda,
                         and the same with -y_i for y_i and alpha_i + kappa lambda for alpha_i
                                 (B.4)

The dual norm of the joint cost ||x|| + kappa |y| is max(||w||_*, 1/kappa), which is how the paper's
||(w, -1)||_* is read here. Special cases: radius 0 and one weighting give empirical risk, radius 0
gives AFL and (with the whole simplex) DRFA, and a federation pooled with a prior gives one ball
around the mixture (WAFL).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bonafed.algorithms.alternatives import check_requirements, instead
from bonafed.algorithms.requirements import AFFINE, MEAN_OR_BALL, ONE_CURVE, Requirements, Setting
from bonafed.arrays import DUAL, Array, Block
from bonafed.data.federation import Federation
from bonafed.parameters import Checked
from bonafed.problem.conic_form import weighting
from bonafed.problem.losses import Exponential, Huber, Logistic, Loss, SmoothHinge, Squared
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Regulariser, has_parts, regulariser_parts
from bonafed.problem.risks.weight_sets import Sum
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solvers.conic.builder import P_OF, Index, Model, Rows, Status, height_of, scaled
from bonafed.solvers.conic.weight_sets import Ball, Members, Weighting


@dataclass(frozen=True, eq=False)
class Central:
    """The central solution: model, client weights q*, value, dual bound and multipliers lambda_s.

    The transport multipliers are NaN at radius 0.
    """

    w: Array
    weights: Array
    value: float
    bound: float
    levels: Array
    status: Status


@dataclass(frozen=True)
class CentralConic(Checked):
    """One conic program over the pooled rows of all clients: a reference, not a federated method.

    Parameters
    ----------
    tol : relative gap and residuals of the conic solver; an "almost solved" status is passed on,
        never hidden

    Notes
    -----
    Size grows with the number of rows (times the number of faces on a support): meant for up to
    some thousand rows.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed)
    >>> reference = bf.CentralConic().solve(problem, fed)
    >>> bool(abs(problem.objective(reference.w, fed) - solution.certificate.value) < 1e-5)
    True
    """

    tol: float = 1e-9
    requirements: ClassVar = Requirements(
        predictor=AFFINE, over_samples=MEAN_OR_BALL, loss=ONE_CURVE
    )

    def solve(self, problem: Problem, fed: Federation) -> Central:
        """Solve the central problem by one conic program.

        It raises ``ArithmeticError`` when the conic solver fails, ``TypeError`` where there is no
        conic form.
        """
        check_requirements(self, problem, Setting(fed.n_clients))
        problem, fed = problem.at(fed)
        model = Model()
        w = model.variable(problem.predictor.dimension(fed.n_features))
        free = coefficients_of(problem, w)
        z, levels, size = model.variable(fed.n_clients), [], []
        for s in range(fed.n_clients):
            levels.append(client_rows(model, problem, fed.block(s), w, z[s : s + 1], size))
        form: Weighting | Members = Ball(np.ones(fed.n_clients), 0.0, 2.0)
        if not isinstance(problem.over_clients, Sum):
            form = weighting(problem, fed.n_clients)
        if isinstance(form, Members):
            other = instead(problem, fed.n_clients, "bundle")
            do = "state the set as a Polyhedron, or another of bonafed's"
            raise TypeError(
                "CentralConic is one program and needs a set of weights in conic form, got"
                f" {problem.over_clients!r}: {f'use {other}' if other else do}."
            )
        weights = form.add(model, z)
        _penalty(model, problem.regulariser, free)
        solution = model.solve(self.tol).checked("central conic program")
        lambdas = np.array([math.nan if one is None else solution.x[one[0]] for one in levels])
        proof = solution.value, solution.dual_value, lambdas, solution.status
        return Central(solution.x[w], weights(solution), *proof)


def coefficients_of(problem: Problem, w: Index) -> Index:
    """The coefficients of w, without its intercept."""
    return w[:-1] if problem.predictor.intercept else w


def _penalty(model: Model, h: Regulariser, w: Index) -> None:
    """Add the regulariser h(w) to the objective."""
    if not has_parts(h):
        raise TypeError(
            "CentralConic needs the regulariser Zero, L1, L2, ElasticNet or Bounds, got"
            f" {type(h).__name__}."
        )
    l1, l2, *edges = regulariser_parts(h)
    for sign, edge in zip((1.0, -1.0), edges, strict=True):
        edge = np.broadcast_to(np.asarray(edge, float), w.shape)
        if (finite := np.isfinite(edge)).any():
            model.nonneg([(w[finite], sign), -sign * edge[finite]])
    if l1 or l2:
        model.quadratic(w, l2)
    if l1:
        total = model.variable()
        model.norm_at_most([(w, 1.0)], [(total, 1.0)], 1.0)
        model.linear(total, l1)


def client_rows(
    model: Model, problem: Problem, data: Block, w: Index, z: Index, size: list[Index] | None = None
) -> Index | None:
    """Add z >= radius lambda + mean alpha with (w, lambda, alpha) in Omega_s; returns lambda.

    This is for a block of one client; ``size`` holds the variable that clients share, once there
    is one.
    """
    X = data.X[0] if isinstance(data.X, np.ndarray) else data.X.toarray()
    y, share, radius = data.y[0], data.share[0], float(problem.radii(data)[0])
    keep = share > 0
    X, y, share = X[keep], y[keep], share[keep]
    rows = np.hstack([X, np.ones((len(y), 1))]) if problem.predictor.intercept else X
    sign = problem.loss.targets == "sign"
    t: Rows = [(w, rows * y[:, None])] if sign else [(w, rows), -y]  # the margin, or the residual
    size = [] if size is None else size
    ball: WassersteinBall = problem.over_samples
    # one variable >= Lip ||w||_* for all clients; for regression also >= Lip / kappa
    if radius > 0 and not size and ball.support is None:
        size.append(model.variable())
        slopes = [(coefficients_of(problem, w), problem.loss.lipschitz)]
        model.norm_at_most(slopes, [(size[0], 1.0)], P_OF[DUAL[ball.norm]])
        if problem.loss.targets == "real":
            model.nonneg([(size[0], 1.0), -problem.loss.lipschitz / ball.label_cost])
    alpha = model.variable(len(y))
    if radius == 0:
        model.nonneg([(z, 1.0), (alpha, -share[None])])
        _above(model, problem.loss, t, [(alpha, 1.0)])
        return None
    level = model.variable()
    model.nonneg([(z, 1.0), (level, -radius), (alpha, -share[None])])
    if ball.support is not None:
        model.nonneg([(level, 1.0)])
        _on_support(model, problem, X, y, w, t, (alpha, level))
        return level
    model.nonneg([(level, 1.0), (size[0], -1.0)])
    _above(model, problem.loss, t, [(alpha, 1.0)])
    if sign and math.isfinite(ball.label_cost):
        _above(model, problem.loss, scaled(t, -1.0), [(alpha, 1.0), (level, ball.label_cost)])
    return level


def _above(model: Model, loss: Loss, t: Rows, alpha: Rows) -> None:
    """Add ``L(t_i) <= alpha_i`` for every row, where t is the margin or the residual."""
    if loss.pieces is not None:
        for a, b in loss.pieces:
            model.nonneg([*alpha, *scaled(t, -a), -b])
        return
    m = height_of(t)
    if isinstance(loss, Squared):
        model.parabola(t, alpha)
    elif isinstance(loss, Huber):  # min over mu of mu^2 / 2 + threshold |u - mu|
        mu, tail = model.variable(m), model.variable(m)
        for by in (loss.threshold, -loss.threshold):
            model.nonneg([(tail, 1.0), *scaled(t, -by), (mu, by)])
        model.parabola([(mu, 1.0)], [*alpha, (tail, -1.0)])
    elif isinstance(loss, SmoothHinge):  # min over mu of mu^2 / 2 + max(0, 1 - m - mu)
        mu, tail = model.variable(m), model.variable(m)
        model.nonneg([(tail, 1.0)])
        model.nonneg([(tail, 1.0), *t, (mu, 1.0), -1.0])
        model.parabola([(mu, 1.0)], [*alpha, (tail, -1.0)])
    elif isinstance(loss, Logistic):  # exp(-m - alpha) + exp(-alpha) <= 1
        first, second = model.variable(m), model.variable(m)
        model.nonneg([(first, -1.0), (second, -1.0), 1.0])
        model.exponential([*scaled(t, -1.0), *scaled(alpha, -1.0)], [1.0], [(first, 1.0)])
        model.exponential(scaled(alpha, -1.0), [1.0], [(second, 1.0)])
    elif isinstance(loss, Exponential):
        model.exponential(scaled(t, -1.0), [1.0], alpha)
    else:
        raise TypeError(f"CentralConic has no conic form of the loss {type(loss).__name__}.")


def _edges(box: Any, n: int) -> tuple[Array, Array]:
    """The lower and upper edges of a box, (n,) each."""
    lower, upper = (np.broadcast_to(np.asarray(e, float), (n,)) for e in (box.lower, box.upper))
    return lower, upper


def _on_support(
    model: Model, problem: Problem, X: Array, y: Array, w: Index, t: Rows, up: tuple[Index, Index]
) -> None:
    """Add the constraints (B.2)-(B.4) on {Cx + cy <= d}, with a multiplier per row, piece and face.

    For a box with the l1 norm use ``_on_box``. ``up`` is (alpha, lambda).
    """
    ball: WassersteinBall = problem.over_samples
    box, n, sign = hasattr(ball.support, "lower"), X.shape[1], problem.loss.targets == "sign"
    if box and ball.norm == "l1":
        _on_box(model, problem, X, y, w, t, up)
        return
    support: Any = ball.support
    if box:  # its 2n faces
        lower, upper = _edges(support, n)
        C, d, c = np.vstack([np.eye(n), -np.eye(n)]), np.concatenate([upper, -lower]), None
    else:
        C, d, c = np.asarray(support.C, float), np.asarray(support.d, float), support.c_label
    c = np.zeros(len(d)) if c is None else np.asarray(c, float)
    (alpha, level), free, p = up, coefficients_of(problem, w), P_OF[DUAL[ball.norm]]
    room = d - X @ C.T - (0.0 if sign else np.outer(y, c))
    for i in range(len(y)):
        row = [(s[0], s[1][i : i + 1]) if isinstance(s, tuple) else s[i : i + 1] for s in t]
        for a, b, fee in _pieces(problem.loss, ball.label_cost):
            phi = model.variable(len(d))
            model.nonneg([(phi, 1.0)])
            above = (alpha[i : i + 1], 1.0), (level, fee), *scaled(row, -a), -b
            model.nonneg([*above, (phi, -room[i : i + 1])])
            moved = [(phi, C.T), (free, -a * (y[i] if sign else 1.0))]
            model.norm_at_most(moved, [(level, 1.0)], p)
            if not sign and math.isfinite(ball.label_cost):
                for s in (1.0, -1.0):
                    model.nonneg([(level, ball.label_cost), (phi, -s * c[None]), -s * a])


def _pieces(loss: Loss, label_cost: float) -> list[tuple[float, float, float]]:
    """(a, b, fee): the loss's pieces, and for margin losses those with the label flipped.

    A flip costs ``fee``.
    """
    stay = [(a, b, 0.0) for a, b in loss.pieces or ()]
    flips = loss.targets == "sign" and math.isfinite(label_cost)
    return stay + [(-a, b, label_cost) for a, b in loss.pieces or () if a and flips]


def _on_box(
    model: Model, problem: Problem, X: Array, y: Array, w: Index, t: Rows, up: tuple[Index, Index]
) -> None:
    """Add the constraints of the l1 norm on lower <= x <= upper.

    Moving along g costs sum_j (|g_j| - lambda)_+ room_j, so per |gradient| there is one pair

    up >= |gradient| w - lambda, down >= -|gradient| w - lambda, both >= 0, serves every row.
    """
    n, free, sign = X.shape[1], coefficients_of(problem, w), problem.loss.targets == "sign"
    ball: WassersteinBall = problem.over_samples
    (alpha, level), (lower, upper) = up, _edges(ball.support, n)
    pieces, pairs = _pieces(problem.loss, ball.label_cost), {}
    for size in {abs(a) for a, _, _ in pieces if a}:
        pairs[size] = model.variable(n), model.variable(n)
        for part, direction in zip(pairs[size], (size, -size), strict=True):
            model.nonneg([(part, 1.0)])
            model.nonneg([(part, 1.0), (free, -direction), (level, 1.0)])
        if not sign and math.isfinite(ball.label_cost):
            model.nonneg([(level, ball.label_cost), -size])
    for a, b, fee in pieces:
        rows = [(alpha, 1.0), (level, fee), *scaled(t, -a), -b]
        if a:
            ahead = (np.sign(a) * (y if sign else np.ones(len(y))) > 0)[:, None]
            (rise, fall), above, below = pairs[abs(a)], upper - X, X - lower
            rows += [(rise, -np.where(ahead, above, below)), (fall, -np.where(ahead, below, above))]
        model.nonneg(rows)
