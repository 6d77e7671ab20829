"""Multipliers of the constraints, and the Lagrangian.

    L(w) = <q, (f_1(w), ..., f_N(w))> + h(w) + <mu_0, c_0(w)> + <mu_c, sum_i c~_i(w)> + sum_i <mu_i,
    c_i(w)>

in the scale of the objective as stated, mu >= 0 for inequalities: mu is minus the change of the
optimal value for a change of the limit, the shadow price. q are client weights that the risk over
clients allows, the prior of a mean.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.client_names import ClientName
from bonafed.codec import Form
from bonafed.problem.lower_bounds import Duals, feasible_duals
from bonafed.problem.problem import Problem
from bonafed.rounds import record

if TYPE_CHECKING:
    from bonafed.problem.problem import Problem


@record
class Multipliers:
    """One number for every constraint.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> limit = bf.NeymanPearson("malignant", level=0.2)
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     over_samples=bf.Mean(label="benign"),
    ...     local_constraint=limit,
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> multipliers = bf.solve(problem, fed).duals
    >>> multipliers.local.shape, bool((multipliers.local >= 0).all())
    ((6, 1), True)
    """

    server: Annotated[Array, Form("p_0")]  # of c_0
    shared: Annotated[Array, Form("p_c")]  # of the sums over the clients
    local: Annotated[Array, Form("N, p")]  # 0 where a client does not have the constraint
    # (N,) worst weights of the clients, where the risk over them is no mean
    weights: Annotated[Array, Form("N")] | None = None
    # what proves a bound by cuts, see ``Duals``: models, and the multipliers of the cuts of risks
    # and of constraints there; the numbers above are then their sums
    points: Annotated[Array, Form("J, D")] | None = None
    risk_cuts: Annotated[Array, Form("J, N, P")] | None = None
    limit_cuts: Annotated[Array, Form("J, C, P")] | None = None
    parts: Annotated[Array, Form("3")] | None = None
    radii: Annotated[Array, Form("J, N")] | None = None


def of_duals(problem: Problem, duals: Duals) -> Multipliers:
    """The multipliers of constraints whose cuts ``duals`` have, which are feasible."""
    limits = duals.limits
    if limits is None:  # without constraints
        limits = np.zeros((len(duals.points), 0, duals.multipliers.shape[-1]))
    local, shared, server = separated(problem, len(duals.weights), limits.sum(0).mean(1))
    cuts = duals.points, duals.multipliers, limits, duals.parts, duals.radii
    return Multipliers(server, shared, local, duals.weights, *cuts)


def as_duals(mu: Multipliers) -> Duals | None:
    """The cuts of the multipliers; None where they have none."""
    if mu.points is None or mu.risk_cuts is None or mu.weights is None:
        return None
    of = {"parts": mu.parts, "radii": mu.radii, "limits": mu.limit_cuts}
    return Duals(mu.weights, mu.points, mu.risk_cuts, **of)


def no_multipliers(problem: Problem, n_clients: int) -> Multipliers:
    """Zeros of the right shapes, for a concrete problem."""
    glob, local = problem.constraint, np.zeros((n_clients, problem.local_constraint.size))
    return Multipliers(np.zeros(glob.held.size), np.zeros(glob.coupled.size), local)


def signed(problem: Problem, mu: Multipliers) -> Multipliers:
    """The multipliers with negative ones of inequalities set to 0; of cuts they are the sums."""
    if (cuts := as_duals(mu)) is not None:
        mu = of_duals(problem, feasible_duals(problem, cuts))
    glob = problem.constraint
    return replace(
        mu,
        server=np.where(glob.held.equality, mu.server, np.maximum(mu.server, 0.0)),
        shared=np.where(glob.coupled.equality, mu.shared, np.maximum(mu.shared, 0.0)),
        local=np.where(problem.local_constraint.equality, mu.local, np.maximum(mu.local, 0.0)),
    )


def weighting(problem: Problem, mu: Multipliers, n_clients: int) -> Array:
    """(N,) q: the client weights, projected onto the set of the risk over clients."""
    return problem.over_clients.project(np.zeros(n_clients) if mu.weights is None else mu.weights)


def owners(problem: Problem, mu: Multipliers, names: tuple[ClientName, ...]) -> list[ClientName]:
    """Who has a constraint with a multiplier that counts (over 1e-6 of the largest), the largest
    first.
    """
    size: dict[ClientName, float] = {
        name: float(np.abs(row).max(initial=0.0)) for name, row in zip(names, mu.local, strict=True)
    }
    size["all clients together"] = float(np.abs(mu.shared).max(initial=0.0))
    size["the server"] = float(np.abs(mu.server).max(initial=0.0))
    least = 1e-6 * max(size.values())
    return [name for name, v in sorted(size.items(), key=lambda item: -item[1]) if v > least]


# Cuts of convex constraints: affine functions that lie below them.
#
# A method of cutting planes has them beside the cuts of the clients' risks. Constraints then are
# owners of cuts behind the N clients, in this order: those of client 1, of client 2, ..., the sums
# over the clients, those of the server, and for every equality c = 0 among them -c <= 0 as well.


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
