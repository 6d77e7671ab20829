"""Cuts of convex constraints: affine functions that lie below them.

A method of cutting planes has them beside the cuts of the clients' risks. Constraints then are
owners of cuts behind the N clients, in this order: those of client 1, of client 2, ..., the sums
over the clients, those of the server, and for every equality c = 0 among them -c <= 0 as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array

if TYPE_CHECKING:
    from bonafed.problem.problem import Problem


def equalities(problem: Problem, n_clients: int) -> NDArray[np.bool_]:
    """(L,) which of the constraints of a concrete problem are equalities."""
    local, glob = problem.local_constraint, problem.constraint
    mine = np.tile(local.equality, n_clients)
    return np.concatenate([mine, glob.coupled.equality, glob.held.equality])


def count(problem: Problem, n_clients: int) -> int:
    """C, the number of owners behind the clients."""
    equal = equalities(problem, n_clients)
    return len(equal) + int(equal.sum())


def joined(problem: Problem, local: Array, shared: Array, held: Array) -> Array:
    """(C, ...) in the order of owners, of what the clients' constraints (N, p, ...), the sums over
    the clients (p_c, ...) and the server's constraints (p_0, ...) have.
    """
    mine = local.reshape(-1, *local.shape[2:])
    every = np.concatenate([mine, shared, held])
    return np.concatenate([every, -every[equalities(problem, len(local))]])


def separated(problem: Problem, n_clients: int, owned: Array) -> tuple[Array, Array, Array]:
    """The multipliers (N, p, ...), (p_c, ...) and (p_0, ...) that those of the owners (C, ...)
    make.
    """
    equal = equalities(problem, n_clients)
    every = np.array(owned[: len(equal)])
    every[equal] -= owned[len(equal) :]
    p, shared = problem.local_constraint.size, problem.constraint.coupled.size
    mine, together, held = np.split(every, [n_clients * p, n_clients * p + shared])
    return mine.reshape(n_clients, p, *owned.shape[1:]), together, held
