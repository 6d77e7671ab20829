"""What releases cost together: from noise multipliers to a total epsilon, and back.

A release adds noise of scale ``noise`` times the sensitivity to a query: Gaussian, standard deviation over l2
sensitivity; Laplace, scale over l1 sensitivity, so that one release is (1 / noise)-DP.

The total is that of privacy loss distributions (Koskela, Jalko, Honkela 2020; Doroshenko et al. 2022) by dp-accounting,
rounded up. Of a Laplace release only that it is pure is used: the worst pure mechanism is randomised response, whose
composition (Kairouz, Oh, Viswanath 2015) bounds that of any other. Gaussian releases have a closed form (Balle, Wang
2018, Theorem 8), an independent check. Renyi accounting (Mironov 2017) is shown beside them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from quorate.privacy.budget import Budget, BudgetSpentError

MECHANISMS = ("gaussian", "laplace")
GRID = 1e-4  # of privacy losses
ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), 128, 256, 512, 1024)  # of Renyi divergences


@dataclass(frozen=True)
class Release:
    """``count`` answers of one mechanism."""

    mechanism: str
    noise: float  # standard deviation or Laplace scale, over the sensitivity
    count: int = 1


def total_epsilon(releases: Iterable[Release], delta: float) -> float:
    """The total epsilon at ``delta`` of all releases on the same records, an upper bound; 0 of none."""
    return _composed(_counted(releases), delta)


@functools.lru_cache(maxsize=256)
def _composed(releases: tuple[Release, ...], delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    mu = math.sqrt(sum(r.count / r.noise**2 for r in releases if r.mechanism == "gaussian"))
    pure = [r for r in releases if r.mechanism == "laplace"]
    sizes = [1 / r.noise for r in pure] + [mu] * (mu > 0)
    if not sizes:
        return 0.0
    grid = GRID * min(1.0, max(min(sizes) / 0.05, 1e-3)) * max(1.0, mu / 3)  # one for all: small losses keep digits
    parts = [pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid)] if mu > 0 else []
    for r in pure:
        lie = 2 / (1 + math.exp(1 / r.noise))  # of two answers, one drawn at random with this probability
        one = pld.from_randomized_response(lie, 2, value_discretization_interval=grid)
        parts.append(one.self_compose(r.count))
    return float(functools.reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta))


def gaussian_epsilon(releases: Iterable[Release], delta: float) -> float | None:
    """The same of Gaussian releases alone, exactly; None where there are others."""
    releases = _counted(releases)
    if any(r.mechanism != "gaussian" for r in releases):
        return None
    mu = math.sqrt(sum(r.count / r.noise**2 for r in releases))
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return float(brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, high, xtol=1e-12))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of one Gaussian release with noise multiplier 1 / mu (Balle, Wang 2018, Theorem 8)."""
    near, far = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return math.exp(near) * -math.expm1(min(far - near, 0.0))


def renyi_epsilon(releases: Iterable[Release], delta: float) -> float:
    """The same by Renyi divergences: of use as a second opinion, never below the truth."""
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(ORDERS))
    for r in _counted(releases):
        kind = dp_event.GaussianDpEvent if r.mechanism == "gaussian" else dp_event.LaplaceDpEvent
        accountant.compose(kind(r.noise), r.count)
    return float(accountant.get_epsilon(delta))


def _counted(releases: Iterable[Release]) -> tuple[Release, ...]:
    """Equal ones added up, in a fixed order."""
    counts: dict[tuple[str, float], int] = {}
    for r in releases:
        if r.count and math.isfinite(r.noise):
            counts[r.mechanism, r.noise] = counts.get((r.mechanism, r.noise), 0) + r.count
    return tuple(Release(*key, count) for key, count in sorted(counts.items()))


def noise_for(budget: Budget, rounds: int, mechanism: str = "gaussian", spent: Iterable[Release] = ()) -> float:
    """The least noise with which ``rounds`` releases, after those ``spent``, stay within the budget.

    Raises
    ------
    BudgetSpentError
        where nothing is left
    """
    spent = _counted(spent)
    before = total_epsilon(spent, budget.delta)
    if before >= budget.epsilon * (1 - 1e-6):
        raise BudgetSpentError(
            f"the budget of epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is spent: {before:.4g} has been "
            "released. Nothing was touched. A larger budget, or other records, is a decision of the data's owner."
        )
    return _least(budget.epsilon, budget.delta, rounds, mechanism, spent)


@functools.lru_cache(maxsize=256)
def _least(epsilon: float, delta: float, rounds: int, mechanism: str, spent: tuple[Release, ...]) -> float:
    def over(log_noise: float) -> float:
        return _total(log_noise) - epsilon

    def _total(log_noise: float) -> float:
        return total_epsilon((*spent, Release(mechanism, math.exp(log_noise), rounds)), delta)

    low = math.log(_first_guess(epsilon, delta, rounds, mechanism, spent))
    high = low + 1e-3
    while over(low) <= 0:
        low -= 0.05
    while over(high) > 0:
        low, high = high, high + 0.02
    found = brentq(over, low, high, xtol=1e-5, rtol=1e-12, maxiter=60)
    while over(found) > 0:  # the root is approached from both sides
        found += 1e-5
    return math.exp(found)


def _first_guess(epsilon: float, delta: float, rounds: int, mechanism: str, spent: tuple[Release, ...]) -> float:
    """The noise if all releases were Gaussian ones with the same spread of their privacy loss."""
    used = sum(r.count / r.noise**2 for r in spent)

    def over(log_mu: float) -> float:
        return gaussian_delta(math.sqrt(used + rounds * math.exp(2 * log_mu)), epsilon) - delta

    return math.exp(-brentq(over, -20.0, 10.0)) if over(-20.0) < 0 else 1e8


def accounts(releases: Iterable[Release], delta: float) -> dict[str, float | None]:
    """The total epsilon by several accountants: ``pld`` is the one that counts."""
    releases = _counted(releases)
    pure = [r.count / r.noise for r in releases if r.mechanism == "laplace"]
    basic = float(np.sum(pure)) if len(pure) == len(releases) else None
    found: dict[str, Any] = {"pld": total_epsilon(releases, delta), "gaussian": gaussian_epsilon(releases, delta)}
    return found | {"rdp": renyi_epsilon(releases, delta) if releases else 0.0, "basic": basic}
