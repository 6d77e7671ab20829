"""Quadratic programs with linear equality constraints: random instances and exact solutions.

    minimise  sum_{i=1..n} ( w'A_i w / 2 + b_i'w )  subject to  C_i w + d_i = 0,  0 <= i <= n   (86)

This is section E.2 of He, Peng, Sun, *Federated learning with convex global and local constraints*;
row 0 is the server's. The problem is ``LCQP`` below. ``aggregate`` solves it exactly from one round
of sums, for which every client must reveal A_i, b_i, C_i and d_i; iterative methods are compared
with it.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.constrained.tables import Row, evaluate, follow, on_sphere, shared_columns

ROWS = bf.LinearEquality()
LCQP = bf.Problem(bf.Quadratic(), over_clients=bf.Sum(), constraint=ROWS, local_constraint=ROWS)


def lcqp(
    d: int,
    n: int,
    m: int,
    seed: int,
    *,
    condition: float | None = None,
    singular: int = 0,
    redundant: bool = False,
    infeasible: bool = False,
) -> bf.Federation:
    """A random instance of (86), for the problem ``LCQP``.

    A_i = U_i D_i U_i' with U_i uniform among orthogonal matrices and D_i uniform on [0.5, 1];
    entries of C_i normal with variance 1/d; b_i and d_i uniform on the unit sphere. Every client
    has a separate random stream, so a further client does not change the others' numbers.

    Parameters
    ----------
    d : size of the model
    n : clients
    m : rows of every C_i, the server's included; (n + 1) m <= d, since otherwise no w meets them
        all
    seed : of the random streams
    condition : condition number of every A_i instead: D_i log-uniform on [1/condition, 1], both
        ends included
    singular : dimension s <= m of a space on which every A_i is 0: the constraints by themselves
        determine w there
    redundant : the last client's C and d are the sum of all the others'
    infeasible : as redundant, but with 1 added to the last client's d: no w meets all

    Raises
    ------
    ValueError
        for sizes without a solution
    """
    if min(d, n, m) < 1 or (n + 1) * m > d or not 0 <= singular <= m:
        raise ValueError(
            f"lcqp needs d, n, m >= 1 with (n + 1) m <= d and 0 <= singular <= m, got d={d}, n={n},"
            f" m={m}, singular={singular}: more rows than coefficients are inconsistent."
        )
    if condition is not None and not 1 <= condition < np.inf:
        raise ValueError(f"condition must be a finite number >= 1, got {condition}.")
    basis = _orthogonal(d, ext.stream(seed, "space", 0))[:, :singular]
    away = np.eye(d) - basis @ basis.T
    A, b, C, offsets = [], [], [], []
    for i in range(n + 1):
        rng = ext.stream(seed, f"owner {i}", 0)
        C.append(rng.standard_normal((m, d)) / np.sqrt(d))
        offsets.append(on_sphere(m, rng))
        if i:
            b.append(on_sphere(d, rng))
            U = _orthogonal(d, rng)
            if condition is None:
                spectrum = rng.uniform(0.5, 1.0, d)
            else:
                spread = np.append(rng.uniform(0, 1, max(d - 2, 0)), [0.0, 1.0])[-d:]
                spectrum = condition**-spread
            square = away @ (U * spectrum) @ U.T @ away
            A.append((square + square.T) / 2)
    if redundant or infeasible:
        C[-1], offsets[-1] = np.sum(C[:-1], 0), np.sum(offsets[:-1], 0) + float(infeasible)
    return bf.Federation.from_quadratics(A, b, C, offsets)


def _orthogonal(d: int, rng: np.random.Generator) -> Array:
    """A uniform (Haar) orthogonal matrix: the signs of R's diagonal make the factor unique."""
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    return Q * np.sign(np.diag(R))


# -- the exact solution from one round of sums ---------------------------------------------------


def aggregate(fed: bf.Federation, tol: float = 1e-10) -> tuple[Array, bf.Multipliers, float]:
    """The exact solution (w, multipliers, value) of (86), by a null-space method.

    It needs the sums of A_i and b_i, and the rows C_i.

    Parameters
    ----------
    fed : ``Federation.from_quadratics(A, b, C, d)``
    tol : relative size under which a singular value of C, or of the Hessian on the null space of C,
        counts as 0

    Returns
    -------
    w : (D,); the one of least norm on the null space of C where several are optimal
    multipliers : of w'Aw/2 + b'w + mu'(Cw + d), in the scale of the sum; of least norm where rows
        are redundant
    value : of the objective

    Raises
    ------
    ValueError
        where no w meets all rows, naming the rows and clients that contradict one another; where
        the objective has no lower bound on the rows
    """
    ext.check_quadratic(fed, LCQP.predictor)
    A, b = np.sum(fed.X, 0), np.sum(fed.y, 0, dtype=float)
    D = len(b)
    of_server = None if fed.server is None else fed.server.linear
    parts = [*(of_server or [(np.zeros((0, D)), np.zeros(0))]), *(fed.linear or ())]
    C, d = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    sizes = [len(offsets) for _, offsets in parts]
    # C = left diag(scale) right', and Z is orthonormal with C Z = 0
    left, scale, right = np.linalg.svd(C, full_matrices=True)
    rank = int((scale > tol * scale.max(initial=0.0)).sum())
    left, scale, right, Z = left[:, :rank], scale[:rank], right[:rank].T, right[rank:].T
    # no w meets all rows where the part y of d outside the range of C is not 0: y'C = 0 and
    # y'd > 0, so y'(Cw + d) > 0 for all w
    outside = d - left @ (left.T @ d)
    if np.linalg.norm(outside) > tol * max(np.linalg.norm(d), np.finfo(float).tiny):
        owned = zip(("server", *fed.names), sizes, strict=False)
        _refuse(outside, [f"row {k + 1} of {who!r}" for who, size in owned for k in range(size)])
    values, vectors = np.linalg.eigh(Z.T @ A @ Z)
    keep = values > tol * max(float(np.abs(A).max()), np.finfo(float).tiny)
    w, mu = np.zeros(D), np.zeros(len(d))
    for _ in range(3):  # the solve, and two steps of refinement with the same factors
        # A dw + C'dmu = -gradient and C dw = -residual, which is in the range of C
        gradient, residual = A @ w + b + C.T @ mu, C @ w + d
        dw = -right @ ((left.T @ residual) / scale)
        reduced = gradient + A @ dw
        force = vectors.T @ (Z.T @ reduced)
        size = max(np.linalg.norm(reduced), np.linalg.norm(gradient))
        if np.abs(force[~keep]).max(initial=0.0) > 1e3 * tol * size:
            raise ValueError(
                "the objective falls without bound on the rows: along some direction every A_i and"
                " C_i is 0 and b is not. Add a regulariser, or a constraint on that direction."
            )
        dw = dw - Z @ (vectors[:, keep] @ (force[keep] / values[keep]))
        w, mu = w + dw, mu - left @ ((right.T @ (gradient + A @ dw)) / scale)
    first, *own = np.split(mu, np.cumsum(sizes)[:-1])
    local = np.zeros((fed.n_clients, max(sizes[1:], default=0)))
    for i, part in enumerate(own):
        local[i, : len(part)] = part
    return w, bf.Multipliers(first, np.zeros(0), local), float(w @ (A @ w / 2 + b))


def _refuse(outside: Array, rows: list[str]) -> None:
    """Raise, and name the rows that contradict one another."""
    share, size = np.abs(outside) / np.abs(outside).max(), np.linalg.norm(outside)
    worst = [k for k in np.argsort(-share, kind="stable") if share[k] > 1e-6]
    more = f" and {len(worst) - 8} more" if len(worst) > 8 else ""
    raise ValueError(
        f"no w meets all rows of C w + d = 0: {', '.join(rows[k] for k in worst[:8])}{more}"
        f" contradict one another (a weighted sum of them reads 0 w = {size:.3g}). Remove or"
        " correct one of them."
    )


# Table 4: quadratic programs with equality constraints, (86), beside their exact solutions.
#
# This is section E.2 of He, Peng, Sun, *Federated learning with convex global and local
# constraints*. The instances follow the same recipe with other random numbers, so objectives
# compare in trend only; the exact solution is that of ``lcqp.aggregate``.

SHAPES = ((100, 1), (300, 3), (500, 5))  # (d, m)
CLIENTS = (1, 5, 10)


class Printed(NamedTuple):
    """A row of Table 4."""

    objective: float
    sd: float
    central: float
    difference: float
    violation: float
    central_violation: float


PRINTED = {
    (1, 100): Printed(-0.23, 4.65e-6, -0.23, 1.63e-3, 3.33e-4, 5.68e-4),
    (1, 300): Printed(-0.37, 2.74e-6, -0.37, 1.01e-3, 3.52e-4, 4.45e-4),
    (1, 500): Printed(-0.30, 1.36e-5, -0.30, 1.34e-3, 4.38e-4, 3.85e-4),
    (5, 100): Printed(9.81, 7.18e-5, 9.80, 1.09e-3, 1.34e-4, 8.03e-4),
    (5, 300): Printed(8.47, 8.12e-5, 8.45, 1.36e-3, 1.09e-4, 8.28e-4),
    (5, 500): Printed(9.92, 4.43e-5, 9.91, 8.26e-4, 1.33e-4, 3.73e-4),
    (10, 100): Printed(49.40, 9.02e-5, 49.37, 5.59e-4, 7.31e-5, 5.88e-4),
    (10, 300): Printed(41.49, 7.04e-5, 41.44, 1.14e-3, 8.56e-5, 8.73e-4),
    (10, 500): Printed(41.45, 2.25e-5, 41.41, 9.39e-4, 9.29e-4, 7.66e-4),
}


def table_4(
    shapes: Sequence[tuple[int, int]] = SHAPES,
    clients: Sequence[int] = CLIENTS,
    trials: int = 10,
    algorithm: Callable[[], ext.Method] = bf.InteriorPoint,
) -> list[Row]:
    """One row for each size: one instance, as in the paper, and trials from random starts."""
    return [_row(d, n, m, trials, algorithm) for n in clients for d, m in shapes]


def _row(d: int, n: int, m: int, trials: int, algorithm: Callable[[], ext.Method]) -> Row:
    fed = lcqp(d, n, m, seed=0)
    began = time.process_time()
    w, _, value = aggregate(fed)
    seconds = time.process_time() - began
    starts = [on_sphere(d, ext.stream(seed, "start", 0)) for seed in range(trials)]
    runs = [follow(algorithm(), LCQP, fed, start) for start in starts]
    ends = [evaluate(LCQP, fed, [run.w])[0] for run in runs]
    errors = [np.linalg.norm(run.w - w) / np.linalg.norm(w) for run in runs]
    row: Row = {"clients": n, "d": d, "m": m, "exact": value}
    row["relative_difference"] = max(abs(end.objective / value - 1) for end in ends)
    row |= {"model_error": float(max(errors)), "seconds": float(np.mean([r.seconds for r in runs]))}
    row |= {"exact_seconds": seconds, **shared_columns(runs, ends)}
    printed = PRINTED.get((n, d))  # None for sizes that are not in the paper
    for name in ("objective", "difference", "violation"):
        row[f"paper_{name}"] = printed and getattr(printed, name)
    return row
