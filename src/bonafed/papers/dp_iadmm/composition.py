"""The total epsilon of the published numbers of rounds, if every iteration were pure epsilon-DP.

Noise by (20) of the paper does not make an iteration pure. The columns are totals at delta = 1e-6
of T iterations of epsilon each: their sum; the composition of Kairouz, Oh, Viswanath in closed
form; Renyi accounting of Laplace noise in one dimension; and the total of the worst pure mechanism,
which is the one that counts (where it is too large to mean anything it is the sum again).
"""

from __future__ import annotations

import math

import bonafed.extending as ext

SETTINGS = (
    (0.01, 20_000),
    (0.05, 100),
    (0.05, 2_000),
    (0.05, 20_000),
    (0.1, 20_000),
    (1.0, 20_000),
)
# totals of earlier measurements by dp-accounting, for comparison
STATED = (7.3, 2.2, 12.6, 58.0, 166.0, 9836.0)
DELTA = 1e-6


def closed_form(epsilon: float, rounds: int, delta: float = DELTA) -> float:
    """The least of the three bounds of Theorem 3.4 of Kairouz, Oh, Viswanath 2015."""
    mean = rounds * epsilon * math.tanh(epsilon / 2)
    spread = epsilon * math.sqrt(2 * rounds)
    second = mean + spread * math.sqrt(math.log(math.e + epsilon * math.sqrt(rounds) / delta))
    return min(rounds * epsilon, second, mean + spread * math.sqrt(math.log(1 / delta)))


def composition(
    settings: tuple[tuple[float, int], ...] = SETTINGS, delta: float = DELTA
) -> list[dict[str, float]]:
    """One row for each (epsilon, T)."""
    rows = []
    for epsilon, rounds in settings:
        releases = (ext.Release("laplace", 1 / epsilon, rounds),)
        rows.append(
            {
                "epsilon": epsilon,
                "rounds": rounds,
                "basic": epsilon * rounds,
                "closed_form": closed_form(epsilon, rounds, delta),
                "renyi": ext.renyi_epsilon(releases, delta),
                "total": ext.total_epsilon(releases, delta),
            }
        )
    return rows
