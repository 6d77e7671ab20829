"""The server's half of a bundle method, synchronous or not: the program for a bound and what
its multipliers prove, and the second-order model of the mean losses.

    bound     minimise the cuts where an optimum provably lies; balance the multipliers
    model     mean losses as F(c) + F'(c)(w - c) + (w - c)'H(w - c) / 2 near c, and cuts of flips
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.federated.bundle.cuts import Cuts
from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.problem.lower_bounds import Duals, Region, lower_bound, unbalanced
from bonafed.problem.parts import Parts, has_smooth_part
from bonafed.problem.problem import Problem
from bonafed.rounds import record
from bonafed.solvers.conic.bundle_master import Master, Pieces, Shape, minimise

SECOND_ORDER = 500  # numbers of a model up to which clients send D x D sums by default
BALANCES = 3  # times that multipliers are balanced


@record
class Tangents:
    """The mean losses of all clients near a point: values and gradients there."""

    w: Annotated[Array, Form("D")]
    value: Annotated[Array, Form("N")]
    gradient: Annotated[Array, Form("N, D")]


def with_tangents(pieces: Pieces, cut: NDArray[np.bool_], tangents: Tangents) -> Pieces:
    """The pieces of flips, and the mean losses as they are near the centre, the last ones."""
    n = len(tangents.value)
    offset = tangents.value - tangents.gradient @ tangents.w
    return Pieces(
        np.append(pieces.owner[cut], np.arange(n)),
        np.append(pieces.part[cut], np.zeros(n, np.intp)),
        np.append(pieces.offset[cut], offset),
        np.vstack([pieces.gradient[cut], tangents.gradient]),
        np.append(pieces.gradient_level[cut], np.zeros(n)),
        pieces.parts,
    )


def parts_for(problem: Problem, n_clients: int, cuts: int, least_rows: int) -> Parts:
    """How risks are parted, so that all clients send about so many cuts: where models have few
    numbers by second derivatives, if the loss has them.
    """
    groups = max(1, round(cuts / n_clients))
    return Parts(groups, least_rows, int(has_smooth_part(problem)))


def undoing(value: float, square: float, times: float = 1.0) -> float:
    """So many times the step along a gradient of this squared length that would undo the value;
    where it is flat any length will do.
    """
    return times * value / square if min(value, square) > 1e-100 else 1.0


def mean_bend(H: Array, units: Array) -> float:
    """The mean curvature in units of the features."""
    return float(np.mean(np.diag(H) / units**2))


def shifted(H: Array, units: Array, more: float) -> Array:
    """The curvature with its eigenvalues shifted from 0 in units of the features: a loss may have
    none for a while, such as Huber's far from its targets.
    """
    return H + np.diag(max(more, 1e-100) * units**2)


def least(
    shape: Shape, pieces: Pieces, where: Region, near: Array, unit: float, accuracy: float
) -> Master:
    """The minimiser of the cuts where an optimum must lie."""
    return minimise(
        shape,
        pieces,
        near=near,
        size=where.size,
        offset=where.offset,
        unit=unit,
        accuracy=accuracy,
    )


def proofs(
    problem: Problem, cuts: Cuts, multipliers: Array, limits: Array, where: Region, units: Array
) -> Iterator[tuple[float, Duals]]:
    """The bounds that multipliers (K,) of the cuts prove, as they are balanced better and better;
    ``limits`` (C,) are the units of the constraints.
    """
    n = cuts.radii.shape[1]
    for _ in range(BALANCES):
        proof = cuts.proof(problem, multipliers, n, limits)
        if proof is None:
            return
        duals, minorant, scaled = proof
        yield lower_bound(problem, minorant, where)[0], duals
        left = unbalanced(problem, minorant, where, units)
        multipliers = cuts.balanced(scaled, *left, units)
