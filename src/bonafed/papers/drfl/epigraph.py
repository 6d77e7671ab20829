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

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import scipy.linalg.lapack as _lapack
from numpy.typing import NDArray

import bonafed.extending as ext
from bonafed.extending import Array

# Newton's equations of a structured primal-dual interior point method, part by part.
#
#     minimise  ||v - b||^2 / 2 + tau (pi - a)^2 / 2  subject to
#             pi = radius lambda + <share, alpha>  and every part
#
# in x = (v, lambda). A part holds rows f(x, hidden) + s = 0 with slacks s and multipliers z in a
# self-dual cone; it removes s, z and its hidden variables from Newton's equations, which leaves
#
#     [ I + H   B ] [ dx    ]       border 0 is the equation of pi, with multiplier nu;
#     [ B'     -C ] [ dbeta ]       border 1 that of the l1 norm: Lip sum e <= lambda.
#
# In every iteration the methods of a part are called in this order: ``look`` (computes residuals),
# ``add`` (to H, B, C), then twice, as predictor and corrector (Mehrotra), ``aim`` at a
# complementarity, ``load`` (right-hand sides), ``step`` (to ds, dz).

lapack: Any = _lapack  # the generated module has no types
total, least = np.add.reduce, np.minimum.reduce  # what the methods of arrays call by way of Python

# t (m,) -> psi (K, m), psi' (K, m) or (K, 1), psi'' (K, m) or None for zero
Curve = Callable[[Array], tuple[Array, Array, Any]]


class System:
    """Matrices and right-hand sides under construction, for D + 1 unknowns and some borders."""

    def __init__(self, size: int, borders: int) -> None:
        self.H, self.B = np.zeros((size, size)), np.zeros((size, borders))
        self.C = np.zeros(borders)

    def factor(self) -> bool:
        """Factorise v's square and the border's Schur complement; False where they are singular.

        Where rounding spoilt the square its diagonal is increased until Cholesky's method works.

        lambda belongs to the border: its diagonal may be zero.
        """
        square = self.H[:-1, :-1]
        diagonal = np.einsum("ii->i", square)  # a view
        scale = diagonal.copy()
        self.edge = np.concatenate([self.H[:-1, -1:], self.B[:-1]], 1)
        corner = np.diag(np.concatenate([self.H[-1, -1:], -self.C]))
        corner[0, 1:] = corner[1:, 0] = self.B[-1]
        for lift in (0.0, 1e-13, 1e-10, 1e-7):
            diagonal[:] = scale * (1 + lift)
            self.L, info = lapack.dpotrf(square, lower=1, clean=0)
            if info == 0:
                self.inner = lapack.dpotrs(self.L, self.edge, lower=1)[0]
                self.schur = corner - self.edge.T @ self.inner
                return bool(np.isfinite(self.schur).all() and np.linalg.det(self.schur) != 0)
        return False

    def solve(self, gx: Array, gbeta: Array) -> tuple[Array, Array]:
        """(dx, dbeta) with (I + H) dx + B dbeta = -gx and B'dx - C dbeta = -gbeta."""
        free = lapack.dpotrs(self.L, -gx[:-1], lower=1)[0]
        ends = np.concatenate([gx[-1:], gbeta])
        border = np.linalg.solve(self.schur, -ends - self.edge.T @ free)
        return np.concatenate([free - self.inner @ border, border[:1]]), border[1:]


@dataclass
class Rows:
    """Rows whose slacks s and multipliers z are in a self-dual cone, here the orthant."""

    s: Array
    z: Array

    ds: Array = field(init=False)
    dz: Array = field(init=False)

    def aim(self, target: float, corrected: bool) -> None:
        """Set the complementarity: s dz + z ds = target - s z (- ds dz of the predictor)."""
        self.rc = target - self.s * self.z - (self.ds * self.dz if corrected else 0.0)

    def longest(self) -> float:
        """The longest step that keeps s, z >= 0."""
        shrink = float(min(least(self.ds / self.s, None), least(self.dz / self.z, None)))
        return -1 / shrink if shrink < 0 else math.inf

    def advance(self, length: float) -> None:
        """Take a step of this length."""
        self.s, self.z = self.s + length * self.ds, self.z + length * self.dz


@dataclass
class Fold(Rows):
    """Rows psi_k(t_i) + fee_k lambda - alpha_i + s_ik = 0 with t = T v - shift.

    alpha is the hidden variable; its border is <h, alpha>.
    """

    _: KW_ONLY
    curve: Curve
    fee: Array  # (K, 1)
    h: Array  # (m,)
    border: int
    forward: Callable[[Array], Array]  # T
    backward: Callable[[Array], Array]  # T'
    gram: Callable[[Array, Array], None]  # add T' diag(.) T
    shift: Array | float
    hidden: Array

    def look(self, x: Array, beta: Array) -> None:
        """Compute values, gradients and residuals, and means over k weighted by omega = z / s."""
        psi, self.dpsi, bend = self.curve(self.forward(x[:-1]) - self.shift)
        room = self.hidden - psi - self.fee * x[-1]
        # in curved rows the slack takes up what Newton's step missed
        self.s = np.where(room > 0.8 * self.s, room, self.s)
        self.r = self.s - room
        self.r_hidden = beta[self.border] * self.h - total(self.z)
        self.omega = self.z / self.s
        self.total = total(self.omega)
        self.p, self.o = (total(self.omega * part) / self.total for part in (self.dpsi, self.fee))
        self.bend = 0.0 if bend is None else total(self.z * bend)

    def gradient(self, gx: Array, gbeta: Array) -> None:
        """Add the terms of z and hidden to the equations of x and of the border."""
        in_t, in_level = total(self.dpsi * self.z), float(total(self.fee * self.z, None))
        self._onto(in_t, in_level, float(self.h @ self.hidden), gx, gbeta)

    def _onto(self, in_t: Array, level: float, border: float, gx: Array, gbeta: Array) -> None:
        gx[:-1] += self.backward(in_t)
        gx[-1] += level
        gbeta[self.border] += border

    def add(self, system: System) -> None:
        off, extra = self.dpsi - self.p, self.fee - self.o  # variances over k: no cancellation
        self.gram(self.bend + total(self.omega * off * off), system.H)
        edge = self.backward(total(self.omega * off * extra))
        system.H[:-1, -1] += edge
        system.H[-1, :-1] += edge
        system.H[-1, -1] += total(self.omega * extra * extra, None)
        system.B[:-1, self.border] += self.backward(self.p * self.h)
        system.B[-1, self.border] += self.o @ self.h
        system.C[self.border] += (self.h * self.h / self.total).sum()

    def load(self, gx: Array, gbeta: Array) -> None:
        push = self.rc / self.s + self.omega * self.r
        self.q = total(push) - self.r_hidden
        in_t = total(self.dpsi * push) - self.p * self.q
        in_level = float(total(self.fee * push, None) - self.o @ self.q)
        self._onto(in_t, in_level, float(self.h @ (self.q / self.total)), gx, gbeta)

    def step(self, dx: Array, dbeta: Array) -> None:
        dt = self.forward(dx[:-1])
        rest = (self.q - self.h * dbeta[self.border]) / self.total
        self.dhidden = self.p * dt + self.o * dx[-1] + rest
        self.ds = -self.r - self.dpsi * dt - self.fee * dx[-1] + self.dhidden
        self.dz = (self.rc - self.z * self.ds) / self.s

    def advance(self, length: float) -> None:
        super().advance(length)
        self.hidden = self.hidden + length * self.dhidden


@dataclass
class Edges(Rows):
    """Rows size_j v_j + constant_j - lambda + s_j = 0, j over entries ``at`` of v."""

    _: KW_ONLY
    at: NDArray[np.intp]
    size: Array
    constant: Array

    def look(self, x: Array, beta: Array) -> None:
        self.r = self.size * x[self.at] + self.constant - x[-1] + self.s
        self.omega = self.z / self.s

    def gradient(self, gx: Array, gbeta: Array) -> None:
        self._onto(self.z, gx)

    def _onto(self, z: Array, gx: Array) -> None:
        np.add.at(gx, self.at, self.size * z)
        gx[-1] -= z.sum()

    def add(self, system: System) -> None:
        pull = self.omega * self.size
        np.add.at(system.H, (self.at, self.at), pull * self.size)
        np.add.at(system.H[:, -1], self.at, -pull)
        np.add.at(system.H[-1], self.at, -pull)
        system.H[-1, -1] += self.omega.sum()

    def load(self, gx: Array, gbeta: Array) -> None:
        self._onto(self.rc / self.s + self.omega * self.r, gx)

    def step(self, dx: Array, dbeta: Array) -> None:
        self.ds = -self.r - self.size * dx[self.at] + dx[-1]
        self.dz = (self.rc - self.z * self.ds) / self.s


@dataclass
class Total(Rows):
    """The row size sum_j e_j - lambda + s = 0 of border 1, whose multiplier is z = beta_1."""

    def look(self, x: Array, beta: Array) -> None:
        self.r = -x[-1:] + self.s  # the fold of |v_j| <= e_j adds its part

    def gradient(self, gx: Array, gbeta: Array) -> None:
        gx[-1] -= self.z[0]
        gbeta[1] += self.r[0]

    def add(self, system: System) -> None:
        system.B[-1, 1] -= 1.0
        system.C[1] += self.s[0] / self.z[0]

    def load(self, gx: Array, gbeta: Array) -> None:
        gbeta[1] += self.rc[0] / self.z[0]

    def step(self, dx: Array, dbeta: Array) -> None:
        self.dz = dbeta[1:2]
        self.ds = (self.rc - self.s * self.dz) / self.z


@dataclass
class Cone(Rows):
    """The row (lambda, size v) = s in the second-order cone {s_0 >= ||s_1||}.

    It is scaled by Nesterov-Todd's W with W z = W^-1 s.
    """

    _: KW_ONLY
    n: int
    size: float

    def _image(self, x: Array) -> Array:
        return np.concatenate([x[-1:], self.size * x[: self.n]])

    def _onto(self, z: Array, gx: Array) -> None:
        gx[-1] -= z[0]
        gx[: self.n] -= self.size * z[1:]

    def look(self, x: Array, beta: Array) -> None:
        self.r = self.s - self._image(x)
        lengths = ((u[0], np.sqrt(u[1:] @ u[1:])) for u in (self.s, self.z))
        js, jz = (np.sqrt((first - rest) * (first + rest)) for first, rest in lengths)
        mixed = self.s / js + _reflected(self.z) / jz
        self.point = mixed / np.sqrt(2 * (1 + self.s @ self.z / (js * jz)))
        self.root = np.sqrt(js / jz)
        self.scaled = self._scale(self.z)

    def _scale(self, x: Array) -> Array:
        """W x."""
        return self.root * _boost(self.point, x)

    def _unscale(self, x: Array) -> Array:
        """W^-1 x."""
        return _boost(_reflected(self.point), x) / self.root

    def gradient(self, gx: Array, gbeta: Array) -> None:
        self._onto(self.z, gx)

    def add(self, system: System) -> None:
        """Add W^-2 = (2 (J p)(J p)' - J) / root^2 in (lambda, size v) to the system."""
        direction, diagonal = np.zeros((2, len(system.H)))
        self._onto(-_reflected(self.point), direction)
        diagonal[: self.n], diagonal[-1] = self.size**2, -1.0
        system.H += (2 * np.outer(direction, direction) + np.diag(diagonal)) / self.root**2

    def aim(self, target: float, corrected: bool) -> None:
        """Set W dz + W^-1 ds to the u with scaled o u = target e - scaled o scaled.

        The corrector also subtracts (W^-1 ds) o (W dz).
        """
        rc = -_jordan(self.scaled, self.scaled)
        rc[0] += target
        if corrected:
            rc -= _jordan(self._unscale(self.ds), self._scale(self.dz))
        # d with scaled o d = rc
        x, rest = self.scaled, self.scaled[1:]
        first = (x[0] * rc[0] - rest @ rc[1:]) / (x[0] ** 2 - rest @ rest)
        self.rc = self._unscale(np.append(first, (rc[1:] - first * rest) / x[0]))

    def load(self, gx: Array, gbeta: Array) -> None:
        self._onto(self.rc + self._unscale(self._unscale(self.r)), gx)

    def step(self, dx: Array, dbeta: Array) -> None:
        self.ds = self._image(dx) - self.r
        self.dz = self.rc - self._unscale(self._unscale(self.ds))

    def longest(self) -> float:
        return min(_cone_step(self.s, self.ds), _cone_step(self.z, self.dz))


def _reflected(x: Array) -> Array:
    """J x = (x_0, -x_1)."""
    return np.concatenate([x[:1], -x[1:]])


def _boost(p: Array, x: Array) -> Array:
    """The hyperbolic rotation that takes (1, 0) to p, applied to x."""
    along = float(p[1:] @ x[1:])
    return np.append(p[0] * x[0] + along, x[1:] + p[1:] * (x[0] + along / (1 + p[0])))


def _jordan(x: Array, y: Array) -> Array:
    return np.append(x @ y, x[0] * y[1:] + y[0] * x[1:])


def _cone_step(u: Array, du: Array) -> float:
    """The largest t with u + t du in the cone.

    It is the first root of (u_0 + t du_0)^2 = ||u_1 + t du_1||^2.
    """
    a = du[0] ** 2 - du[1:] @ du[1:]
    b = u[0] * du[0] - u[1:] @ du[1:]
    c = max(u[0] ** 2 - u[1:] @ u[1:], 0.0)
    root = math.sqrt(max(b * b - a * c, 0.0))
    roots = [c / below for below in (-b + root, -b - root) if below != 0] if b * b >= a * c else []
    return min((t for t in roots if t > 0), default=math.inf)


Part = Fold | Edges | Total | Cone


ITERATIONS = 80
LOOSE = 1e3  # times the tolerances: still solved
PATIENCE = 10  # iterations without a better iterate


def lines(a: Array, b: Array) -> Curve:
    """The branches a_k t + b_k."""
    a, b = a[:, None], b[:, None]
    return lambda t: (a * t + b, a, None)


@dataclass(frozen=True, eq=False)
class Epigraph:
    """One client's rows and the shape of its worst-case risk.

    X (m, d); scale (m,) the labels, or 1; shift (m,) the targets, or 0; share (m,) > 0 with sum 1.
    ``curve`` gives psi, psi', psi'' (or None: zero) of all K branches, (K, m), and ``fee`` (K,)
    what they add per unit of the transport multiplier lambda. ``dual`` is the kind of ||.||_*; with
    ``intercept``, v has one more entry, outside the norm.
    """

    X: Array
    scale: Array | float
    shift: Array | float
    share: Array
    curve: Curve
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
        return (t + v[self.d] if self.intercept else t) * self.scale

    def backward(self, r: Array) -> Array:
        """T' r."""
        r = r * self.scale
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

    def risk(self, v: Array, level: float) -> float:
        """An upper bound of R(v) at the smallest allowed lambda >= ``level``."""
        if self.radius > 0:
            level = max(level, self.lipschitz * float(ext.norm(v[: self.d], self.dual)), self.floor)
        worst = (self.curve(self.forward(v) - self.shift)[0] + self.fee[:, None] * level).max(0)
        return self.radius * level + float(self.share @ worst)


@dataclass(frozen=True, eq=False)
class Projection:
    """The projection (v, pi), and the worst case's masses.

    ``mass`` (K, m) is that of every branch and row; ``solved`` says whether the tolerance was met.
    """

    v: Array
    pi: float
    mass: Array
    solved: bool


def _parts(epi: Epigraph, v: Array, level: float, nu: float) -> tuple[list[Part], float]:
    """The rows of the problem with first slacks and multipliers, and the first lambda."""
    d, force, lip = epi.d, nu * epi.radius, epi.lipschitz  # of the equation of lambda
    w, length, parts = v[:d], float(ext.norm(v[:d], epi.dual)), []
    if epi.radius > 0:
        gap = 0.1 * max(level, 1e-3 * lip, length * lip / 10)
        level = max(level, lip * length, epi.floor) + gap
        if epi.dual == "linf":
            at, size = np.tile(np.arange(d), 2), np.repeat([lip, -lip], d)
            s, z = level - size * w[at], np.full(2 * d, force / (2 * d))
            parts.append(Edges(s, z, at=at, size=size, constant=np.zeros(2 * d)))
        elif epi.dual == "l1":
            e = np.abs(w) + gap / (2 * d * lip)
            parts.append(_absolute(epi, w, e, np.full((2, d), lip * force / 2), len(v) - d))
            parts.append(Total(np.array([level - lip * e.sum()]), np.array([force])))
        else:
            s, z = np.append(level, lip * w), np.append(force, np.zeros(d))
            parts.append(Cone(s, z, n=d, size=lip))
        if epi.floor > 0:
            s, z, floor = (np.array([x]) for x in (level - epi.floor, force / 2, epi.floor))
            parts.append(Edges(s, z, at=np.zeros(1, np.intp), size=np.zeros(1), constant=floor))
    fee, K = epi.fee[:, None], len(epi.fee)
    psi = epi.curve(epi.forward(v) - epi.shift)[0] + fee * level
    hidden = psi.max(0) + 0.1 * max(float(np.abs(psi.max(0)).mean()), 1e-3)
    z = np.tile(nu * epi.share / K, (K, 1))
    law: dict[str, Any] = {"curve": epi.curve, "fee": fee, "h": epi.share, "shift": epi.shift}
    law |= {"forward": epi.forward, "backward": epi.backward, "gram": epi.gram}
    return [Fold(hidden - psi, z, border=0, hidden=hidden, **law), *parts], level


def _absolute(epi: Epigraph, w: Array, e: Array, z: Array, free: int) -> Fold:
    """|v_j| <= e_j for the entries within the norm; ``free`` ones follow."""
    d, sides = epi.d, lines(np.array([1.0, -1.0]), np.zeros(2))

    def gram(weight: Array, out: Array) -> None:
        out[np.arange(d), np.arange(d)] += weight

    law: dict[str, Any] = {"curve": sides, "fee": np.zeros((2, 1)), "h": np.full(d, epi.lipschitz)}
    law |= {"forward": lambda v: v[:d], "gram": gram, "shift": 0.0}
    law["backward"] = lambda r: np.concatenate([r, np.zeros(free)])
    return Fold(np.stack([e - w, e + w]), z, border=1, hidden=e, **law)


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
    if not (np.isfinite([*b, a, value]).all() and 0 < tau < math.inf and value > a):
        got = f"a={a}, R(b)={value}, tau={tau}"
        raise ValueError(f"needed a finite point outside the epigraph and tau > 0, got {got}.")
    # the multiplier nu lies between these two
    least, most = (value - a) / (float(gradient @ gradient) + 1 / tau), (value - a) * tau
    with np.errstate(all="ignore"):
        for nu in (least, math.sqrt(least * most), most):
            parts, first = _parts(epi, b, level, nu)
            beta = np.array([nu, *(part.z[0] for part in parts if isinstance(part, Total))])
            best = _run(_State(epi, b, a, tau, value - a, np.append(b, first), beta, parts))
            if best[0] <= LOOSE:
                break
    merit, x, beta, mass, _ = best
    return Projection(x[:-1], epi.risk(x[:-1], x[-1]), mass / beta[0], bool(merit <= LOOSE))


def _run(state: "_State") -> tuple[float, Array, Array, Array, int]:
    """Iterate; returns the best merit, with its x, border, masses and iteration."""
    state.look()
    best = state.snapshot(math.inf, 0)
    for iteration in range(ITERATIONS):
        if state.merit < best[0]:
            best = state.snapshot(state.merit, iteration)
        patience = 1 if best[0] <= LOOSE else PATIENCE  # at the tolerance, what is left is rounding
        rests = state.merit <= 1.0 or iteration - best[4] > patience
        if rests or state.merit == math.inf or not state.advance():
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
    parts: list[Part]

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
        # how many products s z there are
        self.count = sum(1 if isinstance(part, Cone) else part.s.size for part in self.parts)
        self.mu = product / self.count
        rest = [float(np.abs(part.r).max()) for part in self.parts if not isinstance(part, Total)]
        unit, size = self.outside + 1e-4 * abs(self.a), 1 + float(self.b @ self.b)
        gap = 1e-13 * nu * unit + min(1e-19 * size, 1e-11 * nu * (1 + abs(self.a)))
        self.merit = max(
            product / gap,
            float(np.abs(self.gx[:-1]).max()) / (1e-10 * np.linalg.norm(moved) + 1e-15),
            max(float(np.abs(self.gbeta).max()), *rest) / (1e-10 * unit),
        )
        self.merit = self.merit if math.isfinite(self.merit) and nu > 0 else math.inf

    def advance(self) -> bool:
        """One predictor-corrector step; False when the equations are singular."""
        D = len(self.b)
        system = System(D + 1, len(self.beta))
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

    def _direction(self, system: System, target: float) -> tuple[float, Array, Array]:
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
