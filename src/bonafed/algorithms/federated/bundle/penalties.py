"""Constraints as penalties beside the clients' risks: an objective that bundle methods minimise.

    R(F_1(w), ..., F_N(w)) + sum_c rho_c max(c(w), 0)

has the minimisers of the problem with constraints as soon as every rho_c is larger than a
multiplier of constraint c. So rho_c grows where the multiplier of a program reaches it. Every
constraint counts in units of the size of its gradient where the run begins (or of its value, where
that gradient is zero), so that a limit in other units changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed.arrays import Array

FIRST, GROWS, MOST = 1.0, 10.0, 1e9  # a penalty where runs begin, by how much it grows, at most
SUSPECTED = 1e3  # a penalty from which on the run looks for a proof that no model meets all limits
EVERY = 5  # rounds from one such search to the next
FLAT = 1e-9  # of a value: the size of a gradient that counts as zero
REACHED = 0.9  # of a penalty: a multiplier beyond says that it may be too small
MET = 1e-7  # a violation that counts as none, as stated, or in these units where they are larger


@dataclass(frozen=True)
class Penalised:
    """The risk over N clients and penalties of what is behind them, of numbers z (N + C,)."""

    risk: Any
    penalties: Array  # (C,)

    def value(self, z: Array) -> float:
        """R(z_1, ..., z_N) + sum_c rho_c max(z_c, 0)."""
        n = len(z) - len(self.penalties)
        return float(self.risk.worst(z[:n]).value) + float(self.penalties @ np.maximum(z[n:], 0.0))


def first_sizes(values: Array, gradients: Array, value: float, gradient: Array) -> Array:
    """(C,) the sizes of the constraints' gradients (C, D) in units of the objective's (D,).

    Where a gradient is zero, as that of a squared length at the model 0, it is the size of the
    constraint's value (C,) in units of the objective's.
    """
    by_value = np.abs(values) / (value if value > 0 else 1.0)
    whole = float(np.linalg.norm(gradient))
    sizes = np.linalg.norm(gradients, axis=1) / (whole if whole > 0 else 1.0)
    sizes = np.where(sizes > FLAT * by_value, sizes, by_value)
    return np.where(sizes > 0, sizes, 1.0)
