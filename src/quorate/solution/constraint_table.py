"""Constraints as a person reads them: limit, measured, slack and price of each, owner by owner; who
is in conflict.

The price is the multiplier: where everything is convex, raising the limit by t lowers the optimal
objective by at most price * t, and by that to first order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.client_names import ClientName
from quorate.data.federation import Federation
from quorate.problem.multipliers import Multipliers, owners
from quorate.problem.problem import Problem

SERVER, TOGETHER = "server", "all clients"


def constraint_table(
    problem: Problem, fed: Federation, certificate: Certificate, mu: Multipliers, tol: float = 1e-6
) -> list[dict[str, Any]]:
    """One row for every constraint and owner: owner, constraint, limit, measured, slack, price,
    met.

    ``problem``, ``fed`` are concrete. ``slack`` = limit - measured, for equalities - |measured -
    limit|; ``met`` where it is at least - tol. Constraints that a client does not have are left
    out.
    """
    glob, local = problem.constraint, problem.local_constraint
    assert certificate.constraint_values is not None
    assert certificate.server_values is not None
    assert certificate.shared_values is not None
    table: list[dict[str, Any]] = []
    if glob.held.size:
        limits = glob.held.limits(glob.block)[0]
        table += _rows(SERVER, glob.held, limits, certificate.server_values, mu.server, tol)
    blocks = [fed.block(i) for i in range(fed.n_clients)] if local.size or glob.coupled.size else []
    if glob.coupled.size:
        limits = sum(glob.coupled.limits(block)[0] for block in blocks)
        table += _rows(
            TOGETHER, glob.coupled, np.asarray(limits), certificate.shared_values, mu.shared, tol
        )
    for i, block in enumerate(blocks if local.size else []):
        own = certificate.constraint_values[i], mu.local[i]
        table += _rows(fed.clients[i], local, local.limits(block)[0], *own, tol)
    return table


def _rows(
    owner: ClientName, stack: Any, limits: Array, values: Array, prices: Array, tol: float
) -> list[dict[str, Any]]:
    return [
        {
            "owner": owner,
            "constraint": word,
            "limit": float(limit),
            "measured": float(limit + value),
            "slack": -abs(float(value)) if equal else -float(value),
            "price": float(price),
            "met": bool((abs(value) if equal else value) <= tol),
        }
        for word, equal, limit, value, price in zip(
            stack.words, stack.equality, limits, values, prices, strict=True
        )
        if np.isfinite(limit) and np.isfinite(value)
    ]


def tightest(table: list[dict[str, Any]], owner: ClientName) -> dict[str, Any]:
    """limit, measured, slack and price of the owner's constraint with the smallest slack; None
    where it has none.
    """
    own = [row for row in table if row["owner"] == owner]
    if not own:
        return dict.fromkeys(("limit", "measured", "slack", "price"))
    row = min(own, key=lambda row: row["slack"])
    return {key: row[key] for key in ("limit", "measured", "slack", "price")}


def broken(table: list[dict[str, Any]], most: int = 5) -> str:
    """The constraints that are not met, the worst first, in words."""
    worst = sorted((row for row in table if not row["met"]), key=lambda row: row["slack"])
    said = [
        f"{row['owner']} ({row['constraint']}: {row['measured']:.4g}, limit {row['limit']:.4g})"
        for row in worst[:most]
    ]
    return ", ".join(said) + (f" and {len(worst) - most} more" if len(worst) > most else "")


def prices(
    table: list[dict[str, Any]], change: float = 0.01, most: int = 5, convex: bool = True
) -> list[str]:
    """What relaxing the dearest limits would gain, in words; without convexity to first order
    only.
    """
    gain = "by at most" if convex else "by about"
    dear = sorted(
        (row for row in table if abs(row["price"]) * change > 1e-12),
        key=lambda row: -abs(row["price"]),
    )
    return [
        f"Relaxing the limit of {row['owner']} on {row['constraint']} by {change:g} lowers the"
        f" objective {gain} {abs(row['price']) * change:.3g}."
        for row in dear[:most]
    ]


def in_conflict(
    problem: Problem, mu: Multipliers, clients: tuple[ClientName, ...], most: int = 8
) -> str:
    """The owners whose constraints the proof of infeasibility combines."""
    found = owners(problem, mu, clients)
    return ", ".join(map(str, found[:most])) + (
        f" and {len(found) - most} more" if len(found) > most else ""
    )
