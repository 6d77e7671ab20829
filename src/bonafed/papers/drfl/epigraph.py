"""Projection onto the epigraph of one client's worst-case risk.

    minimise over (v, pi):  ||v - b||^2 / 2 + tau (pi - a)^2 / 2    subject to  pi >= R(v)
    R(v) = min over lambda of  radius lambda + sum_i share_i alpha_i,
           alpha_i >= psi_k(t_i) + fee_k lambda,   lambda >= Lip ||v||_*,   lambda >= floor

with t = <v, x_i> times the label (margin losses) or minus the target (residual losses), and psi_k
the loss, its flipped copy, or their linear pieces. It is the client operator C_s of Bai, Wong,
Qiao, Ho, *Distributionally robust federated learning*, Algorithm 1, as a projection, on all of R^n.

Primal-dual interior point with Mehrotra's corrector. alpha_i (and, for the l1 norm, e_j >= |v_j|)
is eliminated row by row: a step costs one Gram matrix X'DX and one Cholesky factorisation of the
size of v. With the multipliers z_ik and nu of the branches and of pi = radius lambda + mean alpha,
z_ik / nu is the worst case's mass on branch k of row i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.drfl import newton_system as newton

ITERATIONS = 80
LOOSE = 1e3  # times the tolerances: still solved
PATIENCE = 10  # iterations without a better iterate


def lines(a: Array, b: Array) -> newton.Curve:
    """The branches a_k t + b_k."""
    a, b = a[:, None], b[:, None]
    return lambda t: (a * t + b, a, None)


@dataclass(frozen=True, eq=False)
class Epigraph:
    """One client's rows and the shape of its worst-case risk.

    X (m, d); scale (m,) the labels, or None; shift (m,) the targets, or None; share (m,) > 0 with
    sum 1. ``curve`` gives psi, psi', psi'' (or None: zero) of all K branches, (K, m), and ``fee``
    (K,) what they add per unit of the transport multiplier lambda. ``dual`` is the kind of ||.||_*;
    with ``intercept``, v has one more entry, outside the norm.
    """

    X: Array
    scale: Array | None
    shift: Array | None
    share: Array
    curve: newton.Curve
    fee: Array
    radius: float
    lipschitz: float
    dual: str
    floor: float = 0.0
    intercept: bool = False

    @property
    def d(self) -> int:
        """Entries of v within the norm."""
        return self.X.shape[1]

    def forward(self, v: Array) -> Array:
        """T v, the linear part of t."""
        t = self.X @ v[: self.d]
        t = t + v[self.d] if self.intercept else t
        return t if self.scale is None else t * self.scale

    def backward(self, r: Array) -> Array:
        """T' r."""
        r = r if self.scale is None else r * self.scale
        gradient = self.X.T @ r
        return np.concatenate([gradient, [r.sum()]]) if self.intercept else gradient

    def gram(self, weight: Array, out: Array) -> None:
        """Add T' diag(weight) T to the leading square of ``out``; labels are +-1."""
        d, root = self.d, self.X * np.sqrt(weight)[:, None]
        out[:d, :d] += root.T @ root
        if self.intercept:
            edge = self.X.T @ weight
            out[:d, d] += edge
            out[d, :d] += edge
            out[d, d] += weight.sum()

    def risk(self, v: Array, level: float = 0.0) -> tuple[float, float]:
        """An upper bound of R(v) at the smallest allowed lambda >= ``level``, and that lambda."""
        if self.radius > 0:
            level = max(level, self.lipschitz * float(ext.norm(v[: self.d], self.dual)), self.floor)
        t = self.forward(v) - (0.0 if self.shift is None else self.shift)
        worst = (self.curve(t)[0] + self.fee[:, None] * level).max(0)
        return self.radius * level + float(self.share @ worst), level


@dataclass(frozen=True, eq=False)
class Projection:
    """The projection (v, pi), its transport multiplier ``level``, and the worst case's masses.

    ``mass`` (K, m) is that of every branch and row; ``solved`` says whether the tolerance was met.
    """

    v: Array
    pi: float
    level: float
    mass: Array
    iterations: int
    solved: bool


def _parts(epi: Epigraph, v: Array, level: float, nu: float) -> tuple[list[newton.Part], float]:
    """The rows of the problem with first slacks and multipliers, and the first lambda."""
    d, D, force = epi.d, len(v), nu * epi.radius  # of the equation of lambda
    fee = epi.fee[:, None]
    w, parts = v[:d], []
    if epi.radius > 0:
        gap = 0.1 * max(
            level, 1e-3 * epi.lipschitz, float(ext.norm(w, epi.dual)) * epi.lipschitz / 10
        )
        level = max(level, epi.lipschitz * float(ext.norm(w, epi.dual)), epi.floor) + gap
        if epi.dual == "linf":
            at, size = np.tile(np.arange(d), 2), np.repeat([epi.lipschitz, -epi.lipschitz], d)
            s, z = level - size * w[at], np.full(2 * d, force / (2 * d))
            parts.append(newton.Edges(at, size, np.zeros(2 * d), s, z))
        elif epi.dual == "l1":
            e = np.abs(w) + gap / (2 * d * epi.lipschitz)
            slack, z = np.stack([e - w, e + w]), np.full((2, d), epi.lipschitz * force / 2)
            parts.append(_absolute(epi, D, e, slack, z))
            parts.append(
                newton.Total(np.array([level - epi.lipschitz * e.sum()]), np.array([force]))
            )
        else:
            s, z = np.concatenate([[level], epi.lipschitz * w]), np.zeros(d + 1)
            z[0] = force
            parts.append(newton.Cone(d, epi.lipschitz, s, z))
        if epi.floor > 0:
            numbers = (0.0, epi.floor, level - epi.floor, force / 2)
            parts.append(newton.Edges(np.zeros(1, np.intp), *(np.array([x]) for x in numbers)))
    shift = 0.0 if epi.shift is None else epi.shift
    t = epi.forward(v) - shift
    psi = epi.curve(t)[0] + fee * level
    hidden = psi.max(0) + 0.1 * max(float(np.abs(psi.max(0)).mean()), 1e-3)
    z = np.tile(nu * epi.share / len(fee), (len(fee), 1))
    data = newton.Fold(
        epi.curve,
        fee,
        epi.share,
        0,
        epi.forward,
        epi.backward,
        epi.gram,
        shift,
        hidden,
        hidden - psi,
        z,
    )
    return [data, *parts], level


def _absolute(epi: Epigraph, D: int, e: Array, s: Array, z: Array) -> newton.Fold:
    """|v_j| <= e_j for the entries within the norm."""
    d = epi.d

    def gram(weight: Array, out: Array) -> None:
        out[np.arange(d), np.arange(d)] += weight

    def backward(r: Array) -> Array:
        return np.concatenate([r, np.zeros(D - d)])

    h, fee = np.full(d, epi.lipschitz), np.zeros((2, 1))
    return newton.Fold(
        lines(np.array([1.0, -1.0]), np.zeros(2)),
        fee,
        h,
        1,
        lambda v: v[:d],
        backward,
        gram,
        0.0,
        e,
        s,
        z,
    )


def project(
    epi: Epigraph, b: Array, a: float, tau: float, value: float, gradient: Array, level: float
) -> Projection:
    """The projection of a point (b, a) outside the epigraph.

    ``value`` = R(b) > a, and ``gradient`` and the transport multiplier ``level`` there are known.

    Accuracy: a duality gap of 1e-13 and residuals of 1e-10, relative to the distance moved.
    ``solved`` is False when rounding or the iteration cap stopped it at 1000 times these tolerances
    or more; use a general conic solver then.

    Raises
    ------
    ValueError
        when (b, a) is not finite or not outside, or tau is not positive
    """
    if not (
        np.isfinite(b).all()
        and math.isfinite(a)
        and math.isfinite(value)
        and 0 < tau < math.inf
        and value > a
    ):
        raise ValueError(
            f"needed a finite point outside the epigraph and tau > 0, got a={a}, R(b)={value},"
            f" tau={tau}."
        )
    # the multiplier nu lies between these two
    least, most = (value - a) / (float(gradient @ gradient) + 1 / tau), (value - a) * tau
    with np.errstate(all="ignore"):
        for nu in (least, math.sqrt(least * most), most):
            best = _run(_State.start(epi, b, a, tau, level, nu, value - a))
            if best[0] <= LOOSE:
                break
    merit, x, beta, mass, iterations = best
    pi, level = epi.risk(x[:-1], x[-1])
    return Projection(x[:-1], pi, level, mass / beta[0], iterations, bool(merit <= LOOSE))


def _run(state: _State) -> tuple[float, Array, Array, Array, int]:
    """Iterate; returns the best merit, with its x, border, masses and iteration."""
    state.look()
    best = state.snapshot(math.inf, 0)
    for iteration in range(ITERATIONS):
        if state.merit < best[0]:
            best = state.snapshot(state.merit, iteration)
        patience = 1 if best[0] <= LOOSE else PATIENCE  # at the tolerance, what is left is rounding
        if (
            state.merit <= 1.0
            or state.merit == math.inf
            or iteration - best[4] > patience
            or not state.advance()
        ):
            break
        state.look()
    return best


@dataclass
class _State:
    """The iterate: x = (v, lambda), border multipliers, and the parts with their slacks."""

    epi: Epigraph
    b: Array
    a: float
    tau: float
    outside: float  # R(b) - a
    x: Array
    beta: Array
    parts: list[newton.Part]

    @classmethod
    def start(
        cls, epi: Epigraph, b: Array, a: float, tau: float, level: float, nu: float, outside: float
    ) -> _State:
        parts, level = _parts(epi, b, level, nu)
        borders = [nu, *(part.z[0] for part in parts if isinstance(part, newton.Total))]
        return cls(epi, b, a, tau, outside, np.append(b, level), np.array(borders), parts)

    def snapshot(self, merit: float, iteration: int) -> tuple[float, Array, Array, Array, int]:
        return merit, self.x, self.beta, self.parts[0].z, iteration

    def look(self) -> None:
        """Evaluate the residuals; ``merit`` is the worst relative to its tolerance.

        It is inf where a residual is not finite.
        """
        moved, nu = self.x[:-1] - self.b, self.beta[0]
        self.gx, self.gbeta = np.append(moved, nu * self.epi.radius), np.zeros(len(self.beta))
        self.gbeta[0] = self.epi.radius * self.x[-1] - self.a - nu / self.tau
        for part in self.parts:
            part.look(self.x, self.beta)
            part.gradient(self.gx, self.gbeta)
        product = sum(float(np.vdot(part.s, part.z)) for part in self.parts)
        self.count = sum(part.degree for part in self.parts)
        self.mu = product / self.count
        rows = max(
            float(np.abs(part.r).max()) for part in self.parts if not isinstance(part, newton.Total)
        )
        unit = self.outside + 1e-4 * abs(self.a)
        gap = 1e-13 * nu * unit + min(
            1e-19 * (1 + float(self.b @ self.b)), 1e-11 * nu * (1 + abs(self.a))
        )
        self.merit = max(
            product / gap,
            float(np.abs(self.gx[:-1]).max()) / (1e-10 * np.linalg.norm(moved) + 1e-15),
            max(float(np.abs(self.gbeta).max()), rows) / (1e-10 * unit),
        )
        self.merit = self.merit if math.isfinite(self.merit) and nu > 0 else math.inf

    def advance(self) -> bool:
        """One predictor-corrector step; False when the equations are singular."""
        D = len(self.b)
        system = newton.System(D + 1, len(self.beta))
        system.H.flat[: D * (D + 1) : D + 2] = 1.0  # the diagonal
        system.H[-1, -1] = 0.0 if self.epi.radius > 0 else 1.0
        system.B[-1, 0], system.C[0] = self.epi.radius, 1 / self.tau
        for part in self.parts:
            part.add(system)
        if not system.factor():
            return False
        length, *_ = self._direction(system, 0.0)
        after = sum(float(np.vdot(p.s + length * p.ds, p.z + length * p.dz)) for p in self.parts)
        share = min(1.0, max(after / self.count, 0.0) / self.mu)
        length, dx, dbeta = self._direction(system, self.mu * share**3)
        length = length * 0.995 if length < 1 else 1.0
        self.x, self.beta = self.x + length * dx, self.beta + length * dbeta
        for part in self.parts:
            part.advance(length)
        return True

    def _direction(self, system: newton.System, target: float) -> tuple[float, Array, Array]:
        """Newton's direction towards complementarity ``target``, and its longest step <= 1.

        Target 0 is the predictor.
        """
        gx, gbeta = self.gx.copy(), self.gbeta.copy()
        for part in self.parts:
            part.aim(target, target > 0)
            part.load(gx, gbeta)
        dx, dbeta = system.solve(gx, gbeta)
        for part in self.parts:
            part.step(dx, dbeta)
        return min(1.0, *(part.longest() for part in self.parts)), dx, dbeta
