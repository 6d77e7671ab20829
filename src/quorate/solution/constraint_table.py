"""The table of constraints: limit, measured value, slack and multiplier of each, owner by owner,
and who is in conflict.

The column ``price`` is the multiplier, a shadow price: where everything is convex, raising the
limit by t lowers the optimal objective by at most price * t, and by that to first order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.client_names import ClientName
from quorate.data.federation import Federation
from quorate.problem.constraints.constraint import Stack
from quorate.problem.multipliers import Multipliers, owners
from quorate.problem.problem import Problem

TIGHTEST = ("limit", "measured", "slack", "price")  # of a row, beside its client

SERVER, TOGETHER = "server", "all clients"


def constraint_table(
    problem: Problem, fed: Federation, certificate: Certificate, mu: Multipliers, tol: float = 1e-6
) -> list[dict[str, Any]]:
    """One row for every constraint and owner: owner, constraint, limit, measured, slack, price,
    met.

    ``problem`` and ``fed`` are concrete. ``slack`` is limit - measured, for equalities - |measured
    - limit|; a constraint is ``met`` where its slack is at least - tol. Constraints that a client
    does not have are left out.
    """
    shared, local = problem.constraint, problem.local_constraint
    assert certificate.constraint_values is not None
    assert certificate.server_values is not None
    assert certificate.shared_values is not None
    table: list[dict[str, Any]] = []
    held, coupled = shared.held, shared.coupled
    if held.size:
        limits = held.limits(shared.block)[0]
        table += constraint_rows(SERVER, held, limits, certificate.server_values, mu.server, tol)
    blocks = [fed.block(i) for i in range(fed.n_clients)] if local.size or coupled.size else []
    if coupled.size:
        limits = np.asarray(sum(coupled.limits(block)[0] for block in blocks))
        table += constraint_rows(
            TOGETHER, coupled, limits, certificate.shared_values, mu.shared, tol
        )
    for i, block in enumerate(blocks if local.size else []):
        values, limits = certificate.constraint_values[i], local.limits(block)[0]
        table += constraint_rows(fed.clients[i], local, limits, values, mu.local[i], tol)
    return table


def constraint_rows(
    owner: ClientName, stack: Stack, limits: Array, values: Array, multipliers: Array, tol: float
) -> list[dict[str, Any]]:
    """The rows of one owner, for the constraints that it has; all arrays are (p,)."""
    return [
        {
            "owner": owner,
            "constraint": word,
            "limit": float(limit),
            "measured": float(limit + value),
            "slack": -abs(float(value)) if equal else -float(value),
            "price": float(multiplier),
            "met": bool((abs(value) if equal else value) <= tol),
        }
        for word, equal, limit, value, multiplier in zip(
            stack.words, stack.equality, limits, values, multipliers, strict=True
        )
        if np.isfinite(limit) and np.isfinite(value)
    ]


def tightest(table: list[dict[str, Any]]) -> dict[ClientName, dict[str, Any]]:
    """By owner limit, measured value, slack and multiplier of its constraint with the smallest
    slack.
    """
    least: dict[ClientName, dict[str, Any]] = {}
    for row in table:
        if row["owner"] not in least or row["slack"] < least[row["owner"]]["slack"]:
            least[row["owner"]] = row
    return {owner: {key: row.get(key) for key in TIGHTEST} for owner, row in least.items()}


def broken(table: list[dict[str, Any]], most: int = 5) -> str:
    """The constraints that are not met, the worst first, in words."""
    worst = sorted((row for row in table if not row["met"]), key=lambda row: row["slack"])
    return _listed(
        [
            f"{row['owner']} ({row['constraint']}: {row['measured']:.4g}, limit {row['limit']:.4g})"
            for row in worst
        ],
        most,
    )


def gains(
    table: list[dict[str, Any]], change: float = 0.01, most: int = 5, convex: bool = True
) -> list[str]:
    """What relaxing the limits with the largest multipliers would gain, in words; without
    convexity to first order only.
    """
    gain = "by at most" if convex else "by about"
    rows = sorted(table, key=lambda row: -abs(row["price"]))
    return [
        f"Relaxing the limit of {row['owner']} on {row['constraint']} by {change:g} lowers the"
        f" objective {gain} {abs(row['price']) * change:.3g}."
        for row in rows[:most]
        if abs(row["price"]) * change > 1e-12
    ]


def in_conflict(
    problem: Problem, mu: Multipliers, clients: tuple[ClientName, ...], most: int = 8
) -> str:
    """The owners whose constraints the proof of infeasibility combines."""
    return _listed(list(map(str, owners(problem, mu, clients))), most)


def _listed(texts: list[str], most: int) -> str:
    """The first of several texts, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
