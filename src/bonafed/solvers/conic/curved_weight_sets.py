"""The worst client weights over curved sets around a prior c, as part of a conic program.

``weight_sets`` explains the idea.

    Entropy    Q = {q in the simplex: sum q log(q / c) <= r}
               phi(z) = min over s >= 0, g  g + (r - 1) s + sum_i c_i s exp((z_i - g) / s),
                       c_i = 0 left out
    Elliptic   Q = {q in the simplex: (q - c)' (F F')^-1 (q - c) <= r^2},   F a diagonal or a matrix
               phi(z) = min over eta >= 0, g   c'(z + eta) + r ||F'(z + eta - g)||_2

    NearEntropy  ``Entropy`` to second order near weights p, where r has the multiplier k:
               phi(z) = max over q in the simplex   <q, z> - k sum (q - p)^2 / 2 p
                                                   with   <q, log(p / c)> <= r
                      = min over t >= 0, g, u   g + r t + <sqrt(k p), u> + ||u||^2 / 2
                                        with   z <= g + t log(p / c) + sqrt(k / p) u

``Elliptic`` is what ``Ball`` has for F = 1 and p = 2. Programs over ``NearEntropy``, each near the
solution of the last one, are Newton's method for the program over ``Entropy``, also where r binds
nothing and k is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import ConicSolution, Index, Model
from bonafed.solvers.conic.weight_sets import Reader

LEAST = 1e-15  # a weight near which there is a second order


@dataclass(frozen=True)
class Entropy:
    """The weights q whose Kullback-Leibler divergence from ``prior`` is at most ``radius`` > 0."""

    prior: Array  # (N,)
    radius: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is minus the duals of the exponents."""
        return self._add(model, z)[0]

    def add_nearing(self, model: Model, z: Index) -> Nearing:
        """The same; a solution tells near which weights the program is to be solved again."""
        read, s = self._add(model, z)
        return lambda solution: NearEntropy(self, read(solution), float(solution.x[s[0]]))

    def _add(self, model: Model, z: Index) -> tuple[Reader, Index]:
        """Add phi(z); the reader, and the place of s, the multiplier of the radius."""
        inside = np.flatnonzero(self.prior > 0)
        g, s, part = model.variable(), model.variable(), model.variable(len(inside))
        model.linear(g, 1.0)
        model.linear(s, self.radius - 1)
        model.linear(part, self.prior[inside])
        handle = model.exponential(
            [(z[inside], 1.0), (g, -np.ones(len(inside)))], [(s, 1.0)], [(part, 1.0)]
        )

        def read(solution: ConicSolution) -> Array:
            q = np.zeros(len(z))
            q[inside] = -solution.z[handle][::3]
            return q

        return read, s


@dataclass(frozen=True)
class NearEntropy:
    """The weights of ``Entropy`` to second order near some of them."""

    of: Entropy
    weights: Array  # (N,) p, of any sum
    multiplier: float  # k >= 0 of the radius

    def add_nearing(self, model: Model, z: Index) -> Nearing:
        """Add phi(z) to the objective, for z that nothing bounds from above; a solution tells near
        which weights to solve again.
        """
        inside = np.flatnonzero(self.of.prior > 0)
        p, k = np.maximum(self.weights[inside], LEAST), max(self.multiplier, 0.0)
        p, most, size = p / p.sum(), max(k, 1.0), math.sqrt(self.of.radius)
        n, g, u, half = len(p), model.variable(), model.variable(len(p)), model.variable()
        t = model.positive(size)  # in the unit of k where the ball is small, as u and half are
        model.linear(g, 1.0)
        model.linear(u, np.sqrt(k / most * p))
        model.linear(half, 1 / most)
        tilt = np.log(p / self.of.prior[inside]) / size
        rows = [(g, np.ones(n)), (t, tilt), (u, np.sqrt(k / most / p))]
        handle = model.nonneg([*rows, (z[inside], -1.0)])
        # ||u||^2 / 2 <= half
        model.soc([(half, 1.0), 0.5], [(np.append(u, half), 1.0), np.append(np.zeros(n), -0.5)])

        def near(solution: ConicSolution) -> NearEntropy:
            q = np.zeros(len(z))
            q[inside] = solution.z[handle]
            return NearEntropy(self.of, q, float(solution.x[t[0]]) / size)

        return near

    def apart(self, other: NearEntropy) -> float:
        """The largest difference of weights or multipliers."""
        most = max(1.0, self.multiplier, other.multiplier)
        change = abs(self.multiplier - other.multiplier) / most
        return max(change, float(np.abs(self.weights - other.weights).max()))


Nearing = Callable[[ConicSolution], NearEntropy]


@dataclass(frozen=True)
class Elliptic:
    """The weights q with (q - prior)' (factor factor')^-1 (q - prior) <= size^2, size > 0."""

    prior: Array  # (N,)
    factor: Array  # (N,) the diagonal, 0 where q is the prior; or (N, N)
    size: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of eta >= 0."""
        free = self._free
        eta = model.variable(len(free))
        model.linear(eta, self.prior[free])
        handle = model.nonneg([(eta, 1.0)])
        self._add(model, z, eta)

        def read(solution: ConicSolution) -> Array:
            q = self.prior.copy()
            q[free] = solution.z[handle]
            return q

        return read

    def add_larger(self, model: Model, z: Index) -> None:
        """As of ``Ball``: where nothing bounds z from above, z + eta is such numbers z itself."""
        self._add(model, z, None)

    @property
    def _free(self) -> Index:
        """Whose weights are not the prior's."""
        return np.flatnonzero(self.factor if self.factor.ndim == 1 else np.ones(len(self.prior)))

    def _add(self, model: Model, z: Index, eta: Index | None) -> None:
        diagonal, free = self.factor.ndim == 1, self._free
        unit = float(np.abs(self.factor).max())
        weight = (self.factor[free] if diagonal else self.factor.T) / unit
        g, norm = model.variable(), model.variable()
        model.linear(z, self.prior)
        model.linear(norm, self.size * unit)
        ones = weight if diagonal else weight.sum(1)
        level = (g, -ones) if diagonal else (g, -ones[:, None])
        more = [] if eta is None else [(eta, weight)]
        model.soc([(norm, 1.0)], [(z[free], weight), *more, level])
