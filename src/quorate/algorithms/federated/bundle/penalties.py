"""Constraints as penalties beside the clients' risks: an objective that bundle methods minimise.

    R(F_1(w), ..., F_N(w)) + sum_c rho_c max(c(w), 0)

has the minimisers of the problem with constraints as soon as every rho_c is larger than a
multiplier of constraint c. So rho_c grows where the multiplier of a program reaches it. Every
constraint counts in units of the size of its gradient where the run begins, so that a limit in
other units changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.arrays import Array

FIRST, GROWS, MOST = 10.0, 10.0, 1e9  # a penalty where runs begin, by how much it grows, at most
SUSPECTED = 1e3  # a penalty from which on the run looks for a proof that no model meets all limits
EVERY = 5  # rounds
REACHED = 0.9  # of a penalty: a multiplier beyond says that it may be too small
MET = 1e-7  # a violation, in units of the gradient's size times the model's, that counts as none


@dataclass(frozen=True)
class Penalised:
    """The risk over N clients and penalties of what is behind them, of numbers z (N + C,)."""

    risk: Any
    penalties: Array  # (C,)

    def value(self, z: Array) -> float:
        """R(z_1, ..., z_N) + sum_c rho_c max(z_c, 0)."""
        n = len(z) - len(self.penalties)
        return float(self.risk.worst(z[:n]).value) + float(self.penalties @ np.maximum(z[n:], 0.0))

    def weights(self, z: Array) -> Array:
        """A subgradient of it (N + C,)."""
        n = len(z) - len(self.penalties)
        return np.append(self.risk.weights(z[:n]), np.where(z[n:] > 0, self.penalties, 0.0))


def first_sizes(gradients: Array, objective: Array) -> Array:
    """(C,) the sizes of the gradients (C, D) in units of that of the objective (D,)."""
    sizes = np.linalg.norm(gradients, axis=1)
    whole = float(np.linalg.norm(objective))
    sizes = sizes / whole if whole > 0 else sizes
    return np.where(sizes > 0, sizes, 1.0)
