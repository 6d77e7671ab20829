"""What a private search costs: the noise of a candidate over that of one fit, and how near the
exact law of the best of several noisy scores comes to the stated total.

    python benchmarks/private_search.py
"""

from __future__ import annotations

import math

import measure
import numpy as np
from scipy import stats
from scipy.optimize import brentq

from bonafed import Budget
from bonafed.privacy.accounting import Release, noise_for, noise_of_search, total_epsilon
from bonafed.privacy.bounds import NUMBERS

DELTA = 1e-6


def one_number(law: str) -> str:
    """How often there is a single candidate, for a mean of ten."""
    gamma = brentq(lambda g: (1 / g - 1) / math.log(1 / g) - 10, 1e-9, 1 - 1e-9)
    shares = {
        "poisson": 10 / math.expm1(10),
        "geometric": 0.1,
        "logarithmic": (1 - gamma) / math.log(1 / gamma),
    }
    return f"{shares[law]:.1%}"


def exact(mean: float, noise: float) -> float:
    """The epsilon of the best of a Poisson number of Gaussian scores that one record moves by 1."""
    edges = np.linspace(-12 * noise, 12 * noise, 20_001)
    laws = []
    for shift in (0.0, 1.0):
        below = np.append(0, np.diff(stats.norm.cdf(edges, shift, noise)).cumsum())
        laws.append(np.diff(np.expm1(mean * below) / math.expm1(mean)))

    def over(epsilon: float) -> float:
        a, b = laws
        most = [np.maximum(x - math.exp(epsilon) * y, 0).sum() for x, y in ((a, b), (b, a))]
        return float(max(most)) - DELTA

    return float(brentq(over, 0, 50))


rows = []
for epsilon in (0.5, 1.0, 4.0):
    budget = Budget(epsilon, DELTA)
    once = noise_for(budget, 1)
    for mean in (3.0, 10.0, 30.0, 100.0):
        times = [f"{noise_of_search(budget, law, mean) / once:.2f}" for law in NUMBERS]
        rows.append((f"({epsilon:g}, {DELTA:g})", mean, *times))
measure.show("noise", ("total", "mean number", *NUMBERS), rows)
print("\nsingle candidate at mean 10:", {law: one_number(law) for law in NUMBERS})
for epsilon in (0.5, 1.0, 4.0):
    noise = noise_of_search(Budget(epsilon, DELTA), "poisson", 10.0)
    stated = total_epsilon([Release("poisson", noise, candidates=10.0)], DELTA)
    print(f"stated {stated:.4f}, exact law of a noisy score {exact(10.0, noise):.4f}")
