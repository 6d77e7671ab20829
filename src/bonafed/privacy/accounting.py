"""Privacy accounting: from noise multipliers to a total epsilon, and back.

A release adds noise of scale ``noise`` times the sensitivity to a query: Gaussian, standard
deviation over l2 sensitivity; Laplace, scale over l1 sensitivity, so that one release is (1 /
noise)-DP. The query may depend on the answers before it; how much noise it gets may not.

Gaussian noise: k releases equal one with noise sigma / sqrt(k), also where queries are chosen on
the way (Dong, Roth, Su 2022); epsilon and delta of that one have a closed form (Balle, Wang 2018,
Theorem 8). Laplace noise: the accounting uses only that the release of a vector is pure; the worst
pure mechanism is randomised response, whose composition (Kairouz, Oh, Viswanath 2015) bounds that
of any other. For both together their dominating pairs compose (Zhu, Dong, Wang 2022).

The best of a random number of runs is a separate kind of release (`best_of`): each of its runs is
private as one Gaussian release with this noise. It is accounted for by Renyi divergences, and so is
all that is released beside it.

Where every record takes part in a release with probability q only, by a separate secret coin
(Poisson sampling), the Gaussian release has the two dominating pairs ((1 - q) N(0, s^2) + q N(1,
s^2), N(0, s^2)) and the same exchanged, one for a record less and one for a record more (Zhu, Dong,
Wang 2022, Theorem 11). Both are composed, and the larger total counts.

The total that counts is that of these privacy loss distributions (Koskela, Jalko, Honkela 2020) by
dp-accounting, rounded up on a grid; the arithmetic is that of doubles. Renyi accounting (Mironov
2017) is shown beside it.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, log_ndtr

from bonafed.arrays import Array
from bonafed.privacy.bounds import check_number, renyi_of_best, root
from bonafed.privacy.budget import ADJACENCY, Budget, BudgetSpentError

MECHANISMS = ("gaussian", "laplace")
# the orders of the Renyi divergences
ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), 128, 256, 512, 1024)
# the orders where divergences have a formula, as those of a search do
FINE_ORDERS = 1 + np.geomspace(0.02, 2e4, 400)
WHOLE = (*range(2, 64), 128, 256, 512, 1024)  # with sampling: of others the series may not end
GRID = 2000  # steps of the grid of privacy losses in one standard deviation
WEAKEST = 20.0  # log of the noise beyond which a search tells nothing
LEFT = 1e-3  # a smaller share of a budget is the slack of rounding, not worth the noise
# a privacy loss beyond is nearly certain, as its opposite has a probability of e^-50: such losses
# are added without a grid, which would lose more than that
CERTAIN = 50.0
WIDE = 100.0  # no grid where the losses deviate by more, which is an epsilon of thousands
LEAST_DELTA = 1e-12  # rounding would matter below
# the most rounds of one run: far more than anybody waits for, and the accounting time stays bounded
MOST_ROUNDS = 10**6
# how far the number of lies may deviate, over sqrt(k); beyond has probability exp(-2 SPREAD^2)
SPREAD = 6.0
VALUES = 500  # of the sum of two privacy losses, at most
# steps of the grid in one standard deviation of the loss of one release with sampling
FINE = 8
POINTS = 50_000  # of the grid of the losses of one release, at most, nearly
KINDS = 32  # of releases with sampling that are composed one by one
STRICT = {"rtol": np.float64(1e-13), "maxiter": 500}  # of the search for a root
FAR = 10.0  # standard deviations of the noise beyond which losses are no part of the grid


@dataclass(frozen=True)
class Release:
    """``count`` answers of one mechanism; infinite noise releases nothing.

    Of a search, whose mechanism is the law of the number of its candidates, the noise is that of
    the one Gaussian release which is as private as a candidate.

    With ``sampling`` below 1 a record takes part in an answer with that probability only, by a
    secret coin. Such totals hold for one record more or less, not for one in another's place.
    """

    mechanism: str
    noise: float  # standard deviation or Laplace scale, over the sensitivity
    count: int = 1
    sampling: float = 1.0
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
        if not 0 < self.sampling <= 1:
            raise ValueError(
                f"sampling must be > 0 and at most 1, got {self.sampling!r}: it is the probability"
                " with which a row takes part in an answer."
            )
        if self.sampling < 1 and self.mechanism != "gaussian":
            raise ValueError(
                f"sampling = {self.sampling:g} must be 1 for {self.mechanism} noise: what sampling"
                " saves is accounted for Gaussian noise only. Take mechanism='gaussian'."
            )
        # plain numbers can be written into a ledger file
        object.__setattr__(self, "count", int(self.count))
        for name in ("noise", "candidates", "sampling"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @classmethod
    def of_entry(cls, mechanism: str, noise: float, count: int, *more: float) -> "Release":
        """The release of an ``entry``.

        Raises
        ------
        TypeError
            where its numbers are none
        """
        if type(count) is not int or not {*map(type, (noise, *more))} <= {int, float}:
            numbers = f"noise {noise!r}, count {count!r}, sampling and candidates {more!r}"
            raise TypeError(f"a release of {numbers}")
        return cls(mechanism, noise, count, *more)

    @property
    def entry(self) -> list[Any]:
        """As files hold it: mechanism, noise, count; with sampling its probability, and of a search
        1 in that place and the mean number of candidates.
        """
        more = [*[self.sampling] * (self.sampling < 1 or self.candidates > 0)]
        more += [self.candidates] * (self.candidates > 0)
        return [self.mechanism, self.noise, self.count, *more]

    def replacing(self, times: float = 1.0) -> "Release":
        """An upper bound on the same release with ``times`` the noise, where a record takes
        another's place: what sampling saves is left out.
        """
        return replace(self, noise=times * self.noise, sampling=1.0)


Releases = tuple[Release, ...]
Spent = Iterable[Release]


def under(releases: Iterable[Release], stated: str, adjacency: str) -> Releases:
    """Releases that are stated for one adjacency, as they count under another one."""
    times = ADJACENCY[stated] / ADJACENCY[adjacency]
    if adjacency == "add-remove":
        return tuple(replace(r, noise=times * r.noise) for r in releases)
    return tuple(r.replacing(times) for r in releases)


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
def _composed(releases: Releases, delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if searches := tuple(r for r in releases if r.candidates):
        # by Renyi divergences, or, where these leave out what sampling saves and it is less, the
        # sum of the totals of both at half of delta
        total = _by_divergences(releases, delta)
        if all(r.sampling == 1 for r in releases):
            return total
        others = tuple(r for r in releases if not r.candidates)
        return min(total, _by_divergences(searches, delta / 2) + _composed(others, delta / 2))
    mu, all_pure, sampled = _split(_gathered(releases))
    pure = [(one, count) for one, count in all_pure if one <= CERTAIN]
    certain = math.fsum(one * count for one, count in all_pure if one > CERTAIN)
    each = [*pure, *((_spread(r), r.count) for r in sampled)]
    spread = math.hypot(mu, *(math.sqrt(count) * one for one, count in each))
    if spread == 0:
        return certain
    if spread > WIDE:
        return _plain_sum(releases, delta)
    # Losses of randomised response are multiples of one loss: where they fit on the grid nothing is
    # rounded.
    most, grid = max((one for one, _ in pure), default=0.0), _grid(spread, mu, sampled)
    grid = most / math.ceil(most / grid) * (1 + 1e-9) if most > grid else grid
    parts = []
    if mu > 0:
        parts.append(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid))
    for one, count in pure:
        losses, shares = _randomised_response(one, count)
        # the probability beyond counts as an infinite loss
        upper = dict(enumerate(shares.tolist())) | {-1: -2 * SPREAD**2}
        lower = dict(enumerate((shares - losses).tolist()))
        parts += [pld.from_two_probability_mass_functions(lower, upper, True, grid, symmetric=True)]
    parts += [_sampled_losses(r, grid) for r in sampled]
    # beyond epsilon = 709 probabilities under delta are too small to divide by
    with np.errstate(over="ignore"):
        whole = functools.reduce(lambda a, b: a.compose(b), parts)
        epsilon = float(whole.get_epsilon_for_delta(delta))
    return epsilon + certain if math.isfinite(epsilon) else _plain_sum(releases, delta)


def _grid(spread: float, mu: float, sampled: Sequence[Release]) -> float:
    """The grid of the privacy losses.

    On a grid of step h the loss of each release has a variance that is too large by about h^2 / 10.
    The grid is so fine that this is a thousandth of the variance of the total, but where it would
    have too many points. With sampling it is a power of two, so that losses are computed once.
    """
    if not sampled:
        return spread / GRID
    grid = min(spread / math.sqrt(sum(r.count for r in sampled)) / FINE, spread / 100)
    widest = max(mu * mu / 2 + FAR * mu, *map(_farthest, sampled))
    return 2.0 ** math.floor(math.log2(max(grid, widest / POINTS)))


def _spread(r: Release) -> float:
    """The standard deviation of the loss of one answer with sampling, nearly, or more."""
    most, square = 1 / r.noise, min(1 / r.noise**2, 700.0)
    # the second is that of the density ratio of the mixture and the noise alone
    return min(most, r.sampling * math.sqrt(math.expm1(square)))


def _farthest(r: Release) -> float:
    """A loss of an answer with sampling that is hardly ever exceeded."""
    loss = 1 / (2 * r.noise**2) + FAR / r.noise
    return float(np.logaddexp(math.log1p(-r.sampling), math.log(r.sampling) + loss))


@functools.lru_cache(maxsize=2 * KINDS)
def _sampled_losses(r: Release, grid: float) -> Any:
    """The losses of all answers of a release with sampling, in both directions."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(r.noise, 1.0, True, grid, sampling_prob=r.sampling)
    return one.self_compose(r.count) if r.count > 1 else one


def _gathered(releases: Releases) -> Releases:
    """The releases, those with sampling of few kinds: more are counted as if they had the noise and
    the sampling of a coarser grid, the noise rounded down and the sampling up.

    Less noise and more sampling are never less of a loss: noise can be added, and the divergences
    of a mixture are convex in q and least at q = 0. Coarser grids are parts of finer ones, so that
    fewer releases never cost more.
    """
    sampled = [r for r in releases if r.sampling < 1]
    others = [r for r in releases if r.sampling == 1]
    few, step = sampled, 2.0**-10
    while len(few) > KINDS and step <= 1:
        few = [*_counted(_rounded(r, step) for r in sampled)]
        step *= 2
    if len(few) > KINDS:
        few = [r.replacing() for r in sampled]
    return _counted((*others, *few))


def _rounded(r: Release, step: float) -> Release:
    """The release with noise and sampling that are powers of 2^step."""
    noise = 2.0 ** (math.floor(math.log2(r.noise) / step) * step)
    sampling = 2.0 ** (math.ceil(math.log2(r.sampling) / step) * step)
    return Release(r.mechanism, min(noise, r.noise), r.count, min(max(sampling, r.sampling), 1.0))


def _split(releases: Releases) -> tuple[float, list[tuple[float, int]], list[Release]]:
    """1 / noise of the one Gaussian release equal to all without sampling, (epsilon, count) of the
    pure ones, and those with sampling.
    """
    whole = [r for r in releases if r.mechanism == "gaussian" and r.sampling == 1]
    mu = math.hypot(*(math.sqrt(r.count) / r.noise for r in whole))
    pure = [(1 / r.noise, r.count) for r in releases if r.mechanism == "laplace"]
    return mu, pure, [r for r in releases if r.sampling < 1]


def _randomised_response(one: float, count: int) -> tuple[Array, Array]:
    """The privacy losses of ``count`` randomised responses, and the logarithms of their shares.

    Each answer is true with probability 1 / (1 + exp(-one)). Losses SPREAD sqrt(count) away from
    the mean are left out.
    """
    lie = math.exp(-one) / (1 + math.exp(-one))
    reach = math.ceil(SPREAD * math.sqrt(count))
    low, high = math.floor(count * lie) - reach, math.ceil(count * lie) + reach
    lies = np.arange(max(low, 0), min(high, count) + 1)
    ways = gammaln(count + 1) - gammaln(lies + 1) - gammaln(count - lies + 1)
    shares = np.asarray(ways - lies * one - count * math.log1p(math.exp(-one)), float)
    return np.asarray((count - 2 * lies) * one, float), shares


def _plain_sum(releases: Releases, delta: float) -> float:
    """The sum of the epsilons of the Gaussian and of each pure release, also an upper bound.

    What sampling saves is left out.
    """
    mu, pure, _ = _split(tuple(r.replacing() for r in releases))
    return _gaussian_epsilon(mu, delta) + sum(count * one for one, count in pure)


def _by_divergences(releases: Releases, delta: float) -> float:
    """The total by the Renyi divergences of each release, and the conversion of Canonne, Kamath,
    Steinke 2020, Proposition 12.
    """
    alpha = FINE_ORDERS
    total = sum((r.count * _divergences(r) for r in releases), np.zeros(len(alpha)))
    epsilon = total + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    return max(float(epsilon.min()), 0.0)


def _divergences(r: Release) -> Array:
    """The Renyi divergences of one answer, at most, at each of ``FINE_ORDERS``, without what
    sampling saves.
    """
    alpha = FINE_ORDERS
    if r.mechanism == "laplace":  # of randomised response
        truth, lie = -np.logaddexp(0, -1 / r.noise), -np.logaddexp(0, 1 / r.noise)
        straight, crossed = alpha * truth + (1 - alpha) * lie, alpha * lie + (1 - alpha) * truth
        return np.logaddexp(straight, crossed) / (alpha - 1)
    one = alpha / (2 * r.noise**2)
    if not r.candidates:
        return one
    failure = functools.partial(gaussian_delta, 1 / r.noise)
    return renyi_of_best(r.mechanism, r.candidates, alpha, one, failure)


def gaussian_epsilon(releases: Iterable[Release], delta: float) -> float | None:
    """The exact total epsilon of Gaussian releases only; None where there are others.

    Those with sampling are others, and so are searches.
    """
    counted = _counted(releases)
    mu = _split(counted)[0]
    alone = all(r.mechanism == "gaussian" and r.sampling == 1 for r in counted)
    return _gaussian_epsilon(mu, delta) if alone else None


def _gaussian_epsilon(mu: float, delta: float) -> float:
    if mu == 0 or gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if mu > 1e6:
        return math.inf
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return root(lambda e: float(gaussian_delta(mu, e)) - delta, 0.0, high, xtol=1e-15, **STRICT)


def gaussian_delta(mu: float, epsilon: float | Array) -> Array:
    """delta(epsilon) of one Gaussian release with noise multiplier 1 / mu; mu = 0 is not a release.

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
    less than 1e-14 more a release (docs/private-proofs.md, "Computer arithmetic").
    """
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    releases = _counted(releases)
    if any(r.candidates for r in releases):
        return _by_divergences(releases, delta)
    accountant = RdpAccountant([*(WHOLE if any(r.sampling < 1 for r in releases) else ORDERS)])
    for r in releases:
        kind = dp_event.GaussianDpEvent if r.mechanism == "gaussian" else dp_event.LaplaceDpEvent
        event: Any = kind(r.noise)
        if r.sampling < 1:
            event = dp_event.PoissonSampledDpEvent(r.sampling, event)
        accountant.compose(event, r.count)
    return float(accountant.get_epsilon(delta))


def _counted(releases: Iterable[Release]) -> Releases:
    """The releases with equal ones added up, in a fixed order."""
    kind = operator.attrgetter("mechanism", "noise", "sampling", "candidates")
    some = sorted((r for r in releases if r.count and not math.isinf(r.noise)), key=kind)
    alike = [[*each] for _, each in itertools.groupby(some, kind)]
    return tuple(replace(each[0], count=sum(r.count for r in each)) for each in alike)


def noise_for(
    budget: Budget, rounds: int, mechanism: str = "gaussian", spent: Spent = (), sampling: float = 1
) -> float:
    """The least noise, nearly, with which ``rounds`` releases after ``spent`` keep the budget.

    Raises
    ------
    BudgetSpentError
        where a thousandth of epsilon or less is left
    ValueError
        for more than a million rounds, and for sampling where a record takes another's place
    """
    plan = Release(mechanism, 1.0, rounds, sampling)  # checks what is asked for
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ValueError(f"rounds must be >= 1 and at most {MOST_ROUNDS:,}, got {rounds!r}.")
    if sampling < 1 and budget.adjacency != "add-remove":
        raise ValueError(
            f"sampling = {sampling:g} needs adjacency='add-remove', got {budget.adjacency!r}: what"
            " sampling saves is accounted for one record more or less only. State that adjacency,"
            " or sampling=1."
        )
    spent = _counted(spent)
    before = total_epsilon(spent, budget.delta)
    left = before < budget.epsilon * (1 - LEFT)
    noise = _enough(budget.epsilon, budget.delta, plan, spent) if left else None
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

    def over(log_noise: float) -> float:
        search = Release(law, math.exp(log_noise), candidates=mean)
        return total_epsilon((*spent, search), budget.delta) - budget.epsilon

    # beside a search, though it tells nothing, what was spent may count for a little more
    if (most := over(WEAKEST)) > -LEFT * budget.epsilon:
        raise _all_spent(budget, budget.epsilon + most)
    noise = root(over, -10.0, WEAKEST, xtol=1e-7, **STRICT)
    while over(noise) > 0:
        noise += 1e-7
    return math.exp(noise)


def _all_spent(budget: Budget, before: float) -> BudgetSpentError:
    return BudgetSpentError(
        f"the budget of epsilon = {budget.epsilon:g} at delta = {budget.delta:g} is spent:"
        f" {before:.4g} has been released. Nothing was touched. A larger budget, or other"
        " records, is a decision of the owner of the data."
    )


@functools.lru_cache(maxsize=1024)
def _enough(epsilon: float, delta: float, plan: Release, spent: Releases) -> float | None:
    """The planned release's noise by formula, increased until epsilon fits; None if none fits.

    With sampling the formula is a guess: T sampled answers are together nearly one Gaussian answer
    of noise 1 / mu, mu^2 = T q^2 (exp(1 / noise^2) - 1), if T is large (Bu, Dong, Long, Su 2020).
    """

    def enough(noise: float) -> bool:
        return total_epsilon((*spent, replace(plan, noise=noise)), delta) <= epsilon

    if any(r.sampling < 1 for r in (plan, *spent)):
        alike = tuple(
            replace(r, noise=1 / _spread(r), sampling=1.0) if r.sampling < 1 else r for r in spent
        )
        guess = _by_formula(epsilon, delta, plan, alike)
        if guess is None:  # it has it that nothing is left
            guess = 8 * (_by_formula(epsilon, delta, plan, ()) or 1.0)
        if plan.sampling < 1:
            guess = 1 / math.sqrt(math.log1p(1 / (plan.sampling * guess) ** 2))
        return _enough_near(enough, guess)
    noise = _by_formula(epsilon, delta, plan, spent)
    if noise is None:
        return None
    few = 0.0  # the largest noise known not to be enough
    for k in range(15):
        if enough(noise):
            break
        few, noise = noise, noise * (1 + 1e-6 * 4**k)
    else:
        return None
    return _least(enough, few, noise) if few else noise


def _least(enough: Callable[[float], bool], few: float, noise: float) -> float:
    """The least noise that is enough, to a thousandth, between one that is not and one that is."""
    while noise > few * (1 + 1e-3):
        middle = math.sqrt(few * noise)
        few, noise = (few, middle) if enough(middle) else (middle, noise)
    return noise


def _enough_near(enough: Callable[[float], bool], noise: float) -> float | None:
    """The least noise that is enough, searched for around a guess; None if none is found."""
    factor = 1.01
    if enough(noise):
        while enough(noise / factor):
            noise, factor = noise / factor, factor**2
        return _least(enough, noise / factor, noise)
    for _ in range(12):  # 1.01^4096 is beyond any noise that helps
        few, noise, factor = noise, noise * factor, factor**2
        if enough(noise):
            return _least(enough, few, noise)
    return None


def _by_formula(epsilon: float, delta: float, plan: Release, spent: Releases) -> float | None:
    """The noise with which E delta(epsilon - L) equals delta; None if no noise suffices.

    delta(.) is that of all Gaussian releases, L the privacy loss of the pure ones.

    It is exact, to rounding, unless there are pure releases of several sizes.
    """
    used, pure, _ = _split(spent)
    before = functools.reduce(_added, (_lossy(*one) for one in pure), (np.zeros(1), np.ones(1)))

    def over(log_noise: float) -> float:
        one, mu, (losses, shares) = math.exp(-log_noise), used, before
        if plan.mechanism == "gaussian":
            mu = math.hypot(used, math.sqrt(plan.count) * one)
        else:
            losses, shares = _added(before, _lossy(one, plan.count))
        expected = float((shares * gaussian_delta(mu, epsilon - losses)).sum())
        return math.log(max(expected, 1e-300) / delta)

    return math.exp(root(over, -40.0, 60.0, xtol=1e-7, **STRICT)) if over(60.0) < 0 else None


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


def accounts(releases: Iterable[Release], delta: float) -> dict[str, float | None]:
    """The total epsilon by several accountants, of which ``pld`` is the one that counts."""
    releases = _counted(releases)
    pure = [r.count / r.noise for r in releases if r.mechanism == "laplace"]
    basic = float(np.sum(pure)) if len(pure) == len(releases) else None
    total, rdp = total_epsilon(releases, delta), renyi_epsilon(releases, delta) if releases else 0.0
    return {"pld": total, "gaussian": gaussian_epsilon(releases, delta), "rdp": rdp, "basic": basic}
