"""The worst client weights within a transport cost of a prior.

    R(z) = max { q'z : T >= 0,  T1 = prior,  T'1 = q,  sum_ij T_ij cost_ij <= radius }

The Wasserstein-1 ball over clients; Jiao, Yang and Song, *Asynchronous distributed distributionally
robust optimization* (ASPIRE-EASE), use |i - j|. With the index of a client as its position the set
has a meaning only where their order has one: give positions (an age, a latitude, a time) or the
costs themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.risk import (
    Matrix,
    Names,
    PerClient,
    Prior,
    Sizes,
    by_name,
    entries,
    number,
    numbers,
    prior_for,
    resolve_prior,
)
from bonafed.problem.risks.weight_set import WeightSet, on_simplex


@dataclass(frozen=True, eq=False)
class WassersteinOverClients(WeightSet):
    """Client weights within a transport cost of a prior.

    Parameters
    ----------
    radius : number >= 0, in units of the cost; 0 is the mean, the largest cost or more the maximum
        over clients
    cost : "index" (|i - j| in the clients' order), positions on a line (N,) or a mapping from
        client name to one, or a matrix (N, N) of the cost of moving all weight of client i to
        client j, >= 0 with zeros on its diagonal
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite; costs that are negative, or not 0 from a client to itself; a prior
        that is not a probability vector (by ``at`` or at the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.WassersteinOverClients(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.333, 0.233, 0.433]
    """

    phrase: ClassVar[str] = (
        "weights within a transport cost of {radius} from the {prior:given} prior"
    )
    radius: float
    cost: Literal["index"] | PerClient | Matrix = "index"
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(
            self.radius,
            "radius",
            "It is a cost: for the mean use 0, for all client weights Simplex().",
        )
        _costs(entries(self.cost), None, None)

    def at(self, sizes: Sizes, names: Names = None) -> WassersteinOverClients:
        cost = _costs(self.cost, len(sizes), names)
        return replace(self, cost=cost, prior=resolve_prior(self.prior, sizes, names))

    def _largest(self, losses: Array) -> tuple[Array, float]:
        from bonafed.solvers.sets.transport_ball import largest_by_transport

        return largest_by_transport(losses, *self._set(len(losses)))

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.transport_ball import project_by_transport, project_on_line

        prior, radius, cost = self._set(len(v))
        return (project_on_line if cost.ndim == 1 else project_by_transport)(v, prior, radius, cost)

    def _holds(self, weights: Array, tol: float) -> bool:
        """Costs count in units of the largest."""
        from bonafed.solvers.sets.transport_ball import line_cost, matrix_cost

        prior, radius, cost = self._set(len(weights))
        if not on_simplex(weights, tol):
            return False
        paid = (
            line_cost(weights, prior, cost)
            if cost.ndim == 1
            else matrix_cost(weights, prior, cost, tol)
        )
        return bool(paid <= radius + tol * float(np.ptp(cost)))

    def _set(self, n: int) -> tuple[Array, float, Array]:
        return prior_for(self.prior, n), float(self.radius), _costs(self.cost, n, None)


def _costs(stated: object, n: int | None, names: Names) -> Array:
    """Positions (n,) or a matrix (n, n)."""
    if isinstance(stated, str):
        if stated != "index":
            raise ValueError(f"cost must be 'index', positions or a matrix, got {stated!r}.")
        return np.arange(n or 1, dtype=float)
    cost = numbers(by_name(stated, names, "cost"), "cost")
    wanted = (len(cost) if cost.ndim else 0) if n is None else n
    if cost.shape not in ((wanted,), (wanted, wanted)) or wanted == 0:
        raise ValueError(
            f"cost must be 'index', {n or 'N'} positions or a matrix ({n or 'N'}, {n or 'N'}), got"
            f" shape {cost.shape}."
        )
    if cost.ndim == 2:
        if (cost < 0).any() or np.diag(cost).any():
            raise ValueError(
                f"cost must be >= 0 with zeros on the diagonal, got a least entry of {cost.min():g}"
                f" and {np.abs(np.diag(cost)).max():g} on the diagonal: no move is paid for,"
                " staying costs nothing."
            )
    elif not math.isfinite(float(cost.max()) - float(cost.min())):
        raise ValueError(
            "positions must differ by less than the largest floating-point number. Rescale them."
        )
    return cost
