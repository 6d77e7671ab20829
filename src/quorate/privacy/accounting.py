"""Privacy accounting: from noise multipliers to a total epsilon, and back.

A release adds noise of scale ``noise`` times the sensitivity to a query: Gaussian, standard
deviation over l2 sensitivity; Laplace, scale over l1 sensitivity, so that one release is (1 /
noise)-DP. The query may depend on the answers before it; how much noise it gets may not.

Gaussian noise: k releases equal one with noise sigma / sqrt(k), also where queries are chosen on
the way (Dong, Roth, Su 2022); epsilon and delta of that one have a closed form (Balle, Wang 2018,
Theorem 8). Laplace noise: the accounting uses only that the release of a vector is pure; the worst
pure mechanism is randomised response, whose composition (Kairouz, Oh, Viswanath 2015) bounds that
of any other. For both together their dominating pairs compose (Zhu, Dong, Wang 2022).

The best of a random number of runs is a release of its own kind (`best_of`): each of its runs is
private as one Gaussian release with this noise. It is accounted for by Renyi divergences, and so is
all that is released beside it.

The total that counts is that of these privacy loss distributions (Koskela, Jalko, Honkela 2020) by
dp-accounting, rounded up on a grid; the arithmetic is that of doubles. Renyi accounting (Mironov
2017) is shown beside it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr

from quorate.arrays import Array
from quorate.privacy.best_of import check_number, renyi_of_best
from quorate.privacy.budget import Budget, BudgetSpentError

MECHANISMS = ("gaussian", "laplace")
# the orders of the Renyi divergences
ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), 128, 256, 512, 1024)
# the orders where divergences have a formula, as those of a search do
FINE_ORDERS = 1 + np.geomspace(0.02, 2e4, 400)
GRID = 2000  # steps of the grid of privacy losses in one standard deviation
WEAKEST = 20.0  # log of the noise beyond which a search tells nothing
LEFT = 1e-3  # a smaller share of a budget is the slack of rounding, not worth the noise
WIDE = 100.0  # no grid where the losses deviate by more, which is an epsilon of thousands
LEAST_DELTA = 1e-12  # rounding would matter below
# the most rounds of one run: far more than anybody waits for, and the accounting time stays bounded
MOST_ROUNDS = 10**6
# how far the number of lies may deviate, over sqrt(k); beyond has probability exp(-2 SPREAD^2)
SPREAD = 6.0
VALUES = 500  # of the sum of two privacy losses, at most


@dataclass(frozen=True)
class Release:
    """``count`` answers of one mechanism; infinite noise releases nothing.

    Of a search, whose mechanism is the law of the number of its candidates, the noise is that of
    the one Gaussian release which is as private as a candidate.
    """

    mechanism: str
    noise: float  # standard deviation or Laplace scale, over the sensitivity
    count: int = 1
    candidates: float = 0.0  # of a search: their mean number

    def __post_init__(self) -> None:
        if self.candidates:
            check_number(self.mechanism, self.candidates)
        elif self.mechanism not in MECHANISMS:
            raise ValueError(
                f"mechanism must be one of {', '.join(MECHANISMS)}, got {self.mechanism!r}."
            )
        if not self.noise > 0:
            raise ValueError(
                f"noise must be > 0, got {self.noise!r}: without noise there is no privacy."
            )
        if isinstance(self.count, bool) or self.count != int(self.count) or self.count < 0:
            raise ValueError(f"count must be a whole number >= 0, got {self.count!r}.")
        # plain numbers can be written into a ledger file
        object.__setattr__(self, "noise", float(self.noise))
        object.__setattr__(self, "count", int(self.count))
        object.__setattr__(self, "candidates", float(self.candidates))

    @classmethod
    def of_entry(cls, mechanism: str, noise: float, count: int, more: float = 0.0) -> Release:
        """The release of an ``entry``.

        Raises
        ------
        TypeError
            where its numbers are none
        """
        if type(count) is not int or not {type(noise), type(more)} <= {int, float}:
            raise TypeError(f"a release of noise {noise!r}, count {count!r}, and {more!r}")
        return cls(mechanism, noise, count, candidates=more)

    @property
    def entry(self) -> list[Any]:
        """As files hold it: mechanism, noise, count, and of a search its mean candidates."""
        return [self.mechanism, self.noise, self.count, *[self.candidates] * bool(self.candidates)]


def total_epsilon(releases: Iterable[Release], delta: float) -> float:
    """An upper bound on the total epsilon at ``delta`` of all releases on the same records.

    It is 0 without releases.

    Raises
    ------
    ValueError
        for a delta below 1e-12, where the rounding of the accountant would count
    """
    if not LEAST_DELTA <= delta < 1:
        raise ValueError(
            f"delta must be in [{LEAST_DELTA:g}, 1), got {delta!r}: smaller ones cannot be"
            " accounted for."
        )
    return _composed(_counted(releases), delta)


@functools.lru_cache(maxsize=1024)
def _composed(releases: tuple[Release, ...], delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if any(r.candidates for r in releases):
        return _by_divergences(releases, delta)
    mu, pure = _split(releases)
    spread = math.hypot(mu, *(math.sqrt(count) * one for one, count in pure))
    if spread == 0:
        return 0.0
    if spread > WIDE:
        return _plain_sum(mu, pure, delta)
    # Losses of randomised response are multiples of one loss: where they fit on the grid nothing is
    # rounded.
    most, grid = max((one for one, _ in pure), default=0.0), spread / GRID
    grid = most / math.ceil(most / grid) * (1 + 1e-9) if most > grid else grid
    parts = (
        [pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid)] if mu > 0 else []
    )
    for one, count in pure:
        losses, shares = _randomised_response(one, count)
        # the probability beyond counts as an infinite loss
        upper = dict(enumerate(shares.tolist())) | {-1: -2 * SPREAD**2}
        lower = dict(enumerate((shares - losses).tolist()))
        parts.append(
            pld.from_two_probability_mass_functions(lower, upper, True, grid, symmetric=True)
        )
    # beyond epsilon = 709 probabilities under delta are too small to divide by
    with np.errstate(over="ignore"):
        epsilon = float(
            functools.reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta)
        )
    return epsilon if math.isfinite(epsilon) else _plain_sum(mu, pure, delta)


def _split(releases: tuple[Release, ...]) -> tuple[float, list[tuple[float, int]]]:
    """1 / noise of the one Gaussian release equal to all, and (epsilon, count) of the pure ones."""
    mu = math.hypot(*(math.sqrt(r.count) / r.noise for r in releases if r.mechanism == "gaussian"))
    return mu, [(1 / r.noise, r.count) for r in releases if r.mechanism == "laplace"]


def _randomised_response(one: float, count: int) -> tuple[Array, Array]:
    """The privacy losses of ``count`` randomised responses, and the logarithms of their shares.

    Each answer is true with probability 1 / (1 + exp(-one)). Losses SPREAD sqrt(count) away from
    the mean are left out.
    """
    lie = math.exp(-one) / (1 + math.exp(-one))
    reach = math.ceil(SPREAD * math.sqrt(count))
    lies = np.arange(
        max(math.floor(count * lie) - reach, 0), min(math.ceil(count * lie) + reach, count) + 1
    )
    ways = gammaln(count + 1) - gammaln(lies + 1) - gammaln(count - lies + 1)
    shares = np.asarray(ways - lies * one - count * math.log1p(math.exp(-one)), float)
    return np.asarray((count - 2 * lies) * one, float), shares


def _plain_sum(mu: float, pure: list[tuple[float, int]], delta: float) -> float:
    """The sum of the epsilons of the Gaussian and of each pure release, also an upper bound."""
    return _gaussian_epsilon(mu, delta) + sum(count * one for one, count in pure)


def _by_divergences(releases: tuple[Release, ...], delta: float) -> float:
    """The total by the Renyi divergences of each release, and the conversion of Canonne, Kamath,
    Steinke 2020, Proposition 12.
    """
    alpha = FINE_ORDERS
    total = sum((r.count * _divergences(r) for r in releases), np.zeros(len(alpha)))
    epsilon = total + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    return max(float(epsilon.min()), 0.0)


def _divergences(r: Release) -> Array:
    """The Renyi divergences of one answer, at most, at each of ``FINE_ORDERS``."""
    alpha = FINE_ORDERS
    if r.mechanism == "laplace":  # of randomised response
        truth, lie = -np.logaddexp(0, -1 / r.noise), -np.logaddexp(0, 1 / r.noise)
        straight, crossed = alpha * truth + (1 - alpha) * lie, alpha * lie + (1 - alpha) * truth
        return np.logaddexp(straight, crossed) / (alpha - 1)
    one = alpha / (2 * r.noise**2)
    if not r.candidates:
        return one
    return renyi_of_best(
        r.mechanism, r.candidates, alpha, one, functools.partial(gaussian_delta, 1 / r.noise)
    )


def gaussian_epsilon(releases: Iterable[Release], delta: float) -> float | None:
    """The exact total epsilon of Gaussian releases alone; None where there are others."""
    counted = _counted(releases)
    mu, _ = _split(counted)
    alone = all(r.mechanism == "gaussian" for r in counted)
    return _gaussian_epsilon(mu, delta) if alone else None


def _gaussian_epsilon(mu: float, delta: float) -> float:
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if mu > 1e6:
        return math.inf
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return _root(lambda epsilon: float(gaussian_delta(mu, epsilon)) - delta, 0.0, high)


def gaussian_delta(mu: float, epsilon: float | Array) -> Array:
    """delta(epsilon) of one Gaussian release with noise multiplier 1 / mu; mu = 0 is no release.

    This is Theorem 8 of Balle, Wang 2018, at one epsilon or many, of either sign.
    """
    if mu == 0:
        return -np.expm1(np.minimum(epsilon, 0.0))
    near, far = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.exp(near) * -np.expm1(np.minimum(far - near, 0.0))


def renyi_epsilon(releases: Iterable[Release], delta: float) -> float:
    """The total epsilon by Renyi divergences, a second upper bound.

    It uses more than the purity of Laplace noise, so it may lie below the total that counts: the
    divergence of one entry is convex in its shift and 0 at 0, so of all shifts of one l1 norm a
    shift of a single entry is the worst. It is that of the continuous Laplace; the discrete one has
    less than 1e-14 more a release (docs/private.md, "Computer arithmetic").
    """
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    releases = _counted(releases)
    if any(r.candidates for r in releases):
        return _by_divergences(releases, delta)
    accountant = RdpAccountant(list(ORDERS))
    for r in releases:
        kind = dp_event.GaussianDpEvent if r.mechanism == "gaussian" else dp_event.LaplaceDpEvent
        accountant.compose(kind(r.noise), r.count)
    return float(accountant.get_epsilon(delta))


def _counted(releases: Iterable[Release]) -> tuple[Release, ...]:
    """The releases with equal ones added up, in a fixed order."""
    counts: dict[tuple[str, float, float], int] = {}
    for r in releases:
        if r.count and not math.isinf(r.noise):
            key = r.mechanism, r.noise, r.candidates
            counts[key] = counts.get(key, 0) + r.count
    return tuple(Release(m, noise, k, mean) for (m, noise, mean), k in sorted(counts.items()))


def noise_for(
    budget: Budget, rounds: int, mechanism: str = "gaussian", spent: Iterable[Release] = ()
) -> float:
    """The least noise, nearly, with which ``rounds`` releases after ``spent`` keep the budget.

    Raises
    ------
    BudgetSpentError
        where a thousandth of epsilon or less is left
    ValueError
        for more than a million rounds
    """
    Release(mechanism, 1.0, rounds)  # checks the mechanism and the rounds
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ValueError(f"rounds must be >= 1 and at most {MOST_ROUNDS:,}, got {rounds!r}.")
    spent = _counted(spent)
    before = total_epsilon(spent, budget.delta)
    noise = None
    if before < budget.epsilon * (1 - LEFT):
        noise = _enough(budget.epsilon, budget.delta, int(rounds), mechanism, spent)
    if noise is None:
        raise _all_spent(budget, before)
    return noise


def noise_of_search(budget: Budget, law: str, mean: float, spent: Iterable[Release] = ()) -> float:
    """The least noise, nearly, of each candidate with which a search after ``spent`` keeps the
    budget: a candidate may be as private as one Gaussian release with this noise.

    Raises
    ------
    BudgetSpentError
        where a thousandth of epsilon or less is left
    """
    check_number(law, mean)
    spent = _counted(spent)
    before = total_epsilon(spent, budget.delta)
    if spent:  # beside a search it counts by Renyi divergences, which may be a little more
        before = max(before, _by_divergences(spent, budget.delta))
    if before >= budget.epsilon * (1 - LEFT):
        raise _all_spent(budget, before)

    def over(log_noise: float) -> float:
        search = Release(law, math.exp(log_noise), 1, mean)
        return total_epsilon((*spent, search), budget.delta) - budget.epsilon

    if over(WEAKEST) > 0:
        raise _all_spent(budget, before)
    noise = _root(over, -10.0, WEAKEST, 1e-7)
    while over(noise) > 0:
        noise += 1e-7
    return math.exp(noise)


def _all_spent(budget: Budget, before: float) -> BudgetSpentError:
    return BudgetSpentError(
        f"the budget of epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is spent:"
        f" {before:.4g} has been released. Nothing was touched. A larger budget, or other"
        " records, is a decision of whoever owns the data."
    )


@functools.lru_cache(maxsize=1024)
def _enough(
    epsilon: float, delta: float, rounds: int, mechanism: str, spent: tuple[Release, ...]
) -> float | None:
    """The noise by formula, increased until the total epsilon fits; None if none fits."""
    noise = _by_formula(epsilon, delta, rounds, mechanism, spent)
    if noise is None:
        return None
    few = 0.0  # the largest noise known not to be enough

    def enough(noise: float) -> bool:
        return total_epsilon((*spent, Release(mechanism, noise, rounds)), delta) <= epsilon

    for k in range(15):
        if enough(noise):
            break
        few, noise = noise, noise * (1 + 1e-6 * 4**k)
    else:
        return None
    while few and noise > few * (1 + 1e-3):
        middle = (few + noise) / 2
        few, noise = (few, middle) if enough(middle) else (middle, noise)
    return noise


def _by_formula(
    epsilon: float, delta: float, rounds: int, mechanism: str, spent: tuple[Release, ...]
) -> float | None:
    """The noise with which E delta(epsilon - L) equals delta; None if no noise suffices.

    delta(.) is that of all Gaussian releases, L the privacy loss of the pure ones.

    It is exact, to rounding, unless there are pure releases of several sizes.
    """
    used, pure = _split(spent)
    nothing = np.zeros(1), np.ones(1)
    before = functools.reduce(_added, (_lossy(*one) for one in pure), nothing)

    def over(log_noise: float) -> float:
        one, mu = math.exp(-log_noise), used
        losses, shares = before
        if mechanism == "gaussian":
            mu = math.hypot(used, math.sqrt(rounds) * one)
        else:
            losses, shares = _added(before, _lossy(one, rounds))
        expected = float((shares * gaussian_delta(mu, epsilon - losses)).sum())
        return math.log(max(expected, 1e-300) / delta)

    return math.exp(_root(over, -40.0, 60.0, 1e-7)) if over(60.0) < 0 else None


def _lossy(one: float, count: int) -> tuple[Array, Array]:
    """The distribution of the privacy loss of ``count`` randomised responses: values, shares."""
    losses, shares = _randomised_response(one, count)
    return losses, np.exp(shares)


def _added(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """The distribution of the sum of two independent losses.

    It is on a grid where both have several values.
    """
    if len(a[0]) == 1 or len(b[0]) == 1:
        return (a[0] + b[0], a[1] * b[1])
    (x, p), (y, q) = _coarser(*a), _coarser(*b)
    return _coarser((x[:, None] + y).ravel(), (p[:, None] * q).ravel())


def _coarser(x: Array, p: Array) -> tuple[Array, Array]:
    """The distribution on at most ``VALUES`` values, with the same mean."""
    if len(x) <= VALUES:
        return x, p
    low, step = x.min(), np.ptp(x) / (VALUES - 1)
    below = np.minimum(((x - low) / step).astype(int), VALUES - 2)
    part = (x - low) / step - below
    shares = np.bincount(below, p * (1 - part), VALUES) + np.bincount(below + 1, p * part, VALUES)
    return low + step * np.arange(VALUES), np.asarray(shares, float)


def _root(over: Callable[[float], float], low: float, high: float, tol: float = 1e-15) -> float:
    return float(
        cast(float, brentq(over, low, high, xtol=tol, rtol=np.float64(1e-13), maxiter=500))
    )


def accounts(releases: Iterable[Release], delta: float) -> dict[str, float | None]:
    """The total epsilon by several accountants, of which ``pld`` is the one that counts."""
    releases = _counted(releases)
    pure = [r.count / r.noise for r in releases if r.mechanism == "laplace"]
    basic = float(np.sum(pure)) if len(pure) == len(releases) else None
    return {
        "pld": total_epsilon(releases, delta),
        "gaussian": gaussian_epsilon(releases, delta),
        "rdp": renyi_epsilon(releases, delta) if releases else 0.0,
        "basic": basic,
    }
