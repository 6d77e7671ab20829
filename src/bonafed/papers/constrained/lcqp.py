"""Quadratic programs with linear equality constraints: random instances and exact solutions.

    minimise  sum_{i=1..n} ( w'A_i w / 2 + b_i'w )  subject to  C_i w + d_i = 0,  0 <= i <= n   (86)

This is section E.2 of He, Peng, Sun, *Federated learning with convex global and local constraints*;
row 0 is the server's. The problem is ``LCQP`` below.
"""

from __future__ import annotations

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array

ROWS = bf.LinearEquality()
LCQP = bf.Problem(bf.Quadratic(), over_clients=bf.Sum(), constraint=ROWS, local_constraint=ROWS)


def lcqp(d: int, n: int, m: int, seed: int) -> bf.Federation:
    """A random instance of (86), for the problem ``LCQP``: a model of size d, n clients, m rows of
    every C_i.

    A_i = U_i D_i U_i' with U_i uniform among orthogonal matrices and D_i uniform on [0.5, 1];
    entries of C_i normal with variance 1/d; b_i and d_i uniform on the unit sphere. Every client
    has a separate random stream, so a further client does not change the others' numbers.

    Raises
    ------
    ValueError
        for more rows than coefficients, which have no solution
    """
    if min(d, n, m) < 1 or (n + 1) * m > d:
        text = f"lcqp needs d, n, m >= 1 with (n + 1) m <= d, got d={d}, n={n}, m={m}"
        raise ValueError(f"{text}: more rows than coefficients are inconsistent.")
    A, b, C, offsets = [], [], [], []
    for i in range(n + 1):
        rng = ext.stream(seed, f"owner {i}", 0)
        C.append(rng.standard_normal((m, d)) / np.sqrt(d))
        offsets.append(on_sphere(m, rng))
        if i:
            b.append(on_sphere(d, rng))
            U = _orthogonal(d, rng)
            square = (U * rng.uniform(0.5, 1.0, d)) @ U.T
            A.append((square + square.T) / 2)
    return bf.Federation.from_quadratics(A, b, C, offsets)


def rows_of(fed: bf.Federation) -> tuple[Array, Array]:
    """All rows C and offsets d, the server's first."""
    of_server = () if fed.server is None else fed.server.linear or ()
    parts = [*of_server, *(fed.linear or ())]
    return np.concatenate([C for C, _ in parts]), np.concatenate([d for _, d in parts])


def value(fed: bf.Federation, w: Array) -> float:
    """The objective of (86)."""
    return float(w @ (np.sum(fed.X, 0) @ w / 2 + np.sum(fed.y, 0, dtype=float)))


def exact(fed: bf.Federation) -> tuple[Array, Array]:
    """(w, mu) of the conditions A w + b + C'mu = 0 and C w + d = 0, with two steps of refinement;
    of least norm where they are singular.
    """
    (C, d), A, b = rows_of(fed), np.sum(fed.X, 0), np.sum(fed.y, 0, dtype=float)
    matrix, right = np.block([[A, C.T], [C, np.zeros((len(d), len(d)))]]), -np.concatenate([b, d])
    scale = 1 / np.sqrt(np.maximum(np.abs(matrix).max(1), 1e-300))
    inverse = np.linalg.pinv(matrix * scale[:, None] * scale, rcond=1e-13)
    x = np.zeros(len(right))
    for _ in range(3):
        x = x + scale * (inverse @ (scale * (right - matrix @ x)))
    return x[: len(b)], x[len(b) :]


def with_multipliers(fed: bf.Federation, mu: bf.Multipliers) -> bf.Federation:
    """The instance with b_i + C_i'mu_i, and C_0'mu_0 at the first client.

    Its augmented Lagrangian at multipliers 0 is that of ``fed`` at mu.
    """
    (C, offsets), n = rows_of(fed), fed.n_clients + 1
    rows, each = C.reshape(n, -1, C.shape[1]), np.vstack([mu.server, mu.local])
    pull = np.einsum("imd,im->id", rows, each)
    pull[1] += pull[0]
    b = [own + more for own, more in zip(fed.y, pull[1:], strict=True)]
    return bf.Federation.from_quadratics(fed.X, b, list(rows), list(offsets.reshape(n, -1)))


def on_sphere(d: int, rng: np.random.Generator) -> Array:
    """A uniform point of the unit sphere, as the paper starts from."""
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)


def _orthogonal(d: int, rng: np.random.Generator) -> Array:
    """A uniform (Haar) orthogonal matrix: the signs of R's diagonal make the factor unique."""
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    return Q * np.sign(np.diag(R))
