"""Bounds on what private runs tell: as a search, as a model, and as right guesses.

**The best of a random number of private runs** is accounted for as one release. A search runs a
private procedure Q as often as a random number K says, each time independently, and releases the
best output only: no other output, and not K. Let f be the probability generating function of K. For
neighbouring inputs with outputs Q and Q', and every order alpha > 1, the Renyi divergence of the
whole is at most

    D_alpha(Q || Q') + log sup_q f'(q)^alpha f'(q')^(1 - alpha) / (alpha - 1),

where q and q' are the probabilities of one event, or the expectations of one function with values
in [0, 1], under Q and Q' (Papernot, Steinke 2022, Lemma 7). Their theorems bound the supremum:

- "poisson", of mean m, where a 0 is drawn again: f'(q) = m exp(m (q - 1)) / (1 - exp(-m)), and for
  exp(e) = alpha / (alpha - 1) the supremum's part is at most m delta_Q(e) + log(m / (1 - exp(-m)))
  / (alpha - 1) (Theorem 6; drawing again changes f' by a constant factor only);
- "geometric" and "logarithmic" are the truncated negative binomial law with eta = 1 and 0, whose
  part is at most, for every order beta >= 1,
  (1 + eta) ((1 - 1/beta) D_beta(Q || Q') + log(1/gamma) / beta) + log(E K) / (alpha - 1)
  (Theorem 2).

The numbers are drawn exactly, by whole numbers only; they have no largest value, so that nothing
is cut off from what is proved.

**The best accuracy that private answers allow** is bounded for every method from public numbers.
Let rows point in all of k directions alike, and let the class be the side of a plane through the
middle, whose normal theta is drawn at random. Client p's answer is a sum of n_p vectors of norm at
most C, each along its row, with noise of scale m s C. It tells of theta no more than

    I(theta; answers) <= sum_p T (n_p h_p)^2 / (2 m^2 s^2),
    h_p = min(1, (1 + sqrt(k / n_p)) / sqrt(k)),

because a sum of multiples a_i x_i, |a_i| <= C, of n unit rows x_i is no longer than n C times the
root of the largest eigenvalue of their second moments, and h_p is the size of that root. Questions
may follow from answers: each is one more such term. A plane at the angle phi to the true one is
wrong for the share phi / pi of the rows. The least mean of phi / pi that so much information allows
is the rate-distortion function of the sphere, which is attained by densities proportional to

    sin(phi)^(k - 2) exp(-s phi / pi).

Real rows do not point in all directions alike: those that lie near fewer directions k are learnt as
easily as the bound for that k says, or less.

**Right guesses about many records of one run** say something about its privacy. Every canary j = 1
.. m takes part in the run or not (or is one record or another) as a fair coin S_j falls. From all
answers of the run somebody guesses the coins of the r canaries of which they are most certain, and
W of these guesses are right. Steinke, Nasr and Jagielski bound W for every (epsilon, delta)-private
run M (*Privacy auditing with one (1) training run*, 2023, Theorem 5.2). The bound here has a
smaller term of delta. With q = e^epsilon / (1 + e^epsilon), B ~ Binomial(r, q), b(i) = P(B = i),
beta = P(B >= v) and v >= 1,

    P(W >= v) <= beta + m delta (1 - beta) beta / (v b(v)).

*Proof.* Let phi map {1, ..., r} to [0, 1]. Fix S and j, and let S' be S with coin j turned. As y ->
1[T_j(y) = S_j] phi(W(S, y)) has values in [0, 1],

    E 1[T_j = S_j] phi(W(S, Y)) under Y = M(S)  <=  e^epsilon E of the same under Y = M(S') + delta.

On the right a guess that is right for S_j is wrong for S'_j, and W(S, Y) = W(S', Y) + 1. S' is as
uniform as S, so the mean over S and the sum over j give

    E W phi(W) <= e^epsilon E (r - W) phi(W + 1) + m delta.                                    (*)

Choose phi so that i phi(i) - e^epsilon (r - i) phi(i + 1) = kappa (1[i >= v] - beta) for i = 0,
..., r. With F(i) = i phi(i) b(i) and (i + 1) b(i + 1) = e^epsilon (r - i) b(i), this reads F(i) -
F(i + 1) = kappa b(i) (1[i >= v] - beta), whose solution with F(0) = 0 is

    F(i) = kappa beta P(B < i)  for i <= v,      F(i) = kappa (1 - beta) P(B >= i)  for i >= v,

so that F(r + 1) = 0 and phi >= 0. phi(i) is largest at i = v: the binomial law is log-concave, so
P(B >= i) / b(i) falls, and P(B < i) / (i b(i)) = P(B <= i - 1) / (b(i - 1) (r - i + 1) e^epsilon)
rises. kappa = v b(v) / (beta (1 - beta)) therefore keeps phi <= 1, and (*) reads kappa (P(W >= v) -
beta) <= m delta. ∎
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any, cast

import numpy as np
from scipy.special import betainc, betaincinv, ndtr, ndtri

from bonafed.arrays import Array

NUMBERS = ("poisson", "geometric", "logarithmic")  # laws of the number of runs
MOST = 1000.0  # runs on average

Below = Callable[[int], int]  # a uniform whole number from 0 to below n


def root(over: Callable[[float], float], low: float, high: float, **settings: Any) -> float:
    """Where a function changes its sign between two numbers; ``settings`` are those of SciPy."""
    from scipy.optimize import brentq  # every process would import it

    return float(cast(float, brentq(over, low, high, **settings)))


def check_number(law: str, mean: float) -> None:
    """Raise ``ValueError`` for a law of the number of runs, or a mean, that there is not."""
    if law not in NUMBERS:
        raise ValueError(
            f"the number of runs is drawn from one of {', '.join(NUMBERS)}, got {law!r}."
        )
    if not 1 < mean <= MOST:
        raise ValueError(
            f"the mean number of runs must be above 1 and at most {MOST:g}, got {mean!r}."
        )


def renyi_of_best(
    law: str, mean: float, orders: Array, one: Array, failure: Callable[[Array], Array]
) -> Array:
    """Bounds on the Renyi divergences of the best of so many runs, at each of ``orders``.

    Parameters
    ----------
    law, mean : of the number of runs
    orders : (k,) > 1
    one : (k,) the Renyi divergences of one run
    failure : for epsilons (k,) the deltas with which one run is (epsilon, delta)-private
    """
    if law == "poisson":
        close = -np.log1p(-1 / orders)  # exp(close) = orders / (orders - 1)
        more = math.log(mean / -math.expm1(-mean)) / (orders - 1)
        return one + mean * failure(close) + more
    eta, gamma = (1, 1 / mean) if law == "geometric" else (0, _stopping(mean))
    expected = mean if law == "geometric" else (1 / gamma - 1) / -math.log(gamma)
    # the order 1 leaves nothing of the divergence
    half = np.append((1 - 1 / orders) * one - math.log(gamma) / orders, -math.log(gamma))
    return one + (1 + eta) * half.min() + math.log(expected) / (orders - 1)


def drawn_number(law: str, mean: float, below: Below) -> int:
    """How many runs there are, exactly as the law says if ``below`` is uniform."""
    if law == "geometric":
        return _failures(1 - 1 / Fraction(mean), below) + 1
    if law == "logarithmic":  # (1 - gamma)^k / k
        while True:
            number = _failures(1 - Fraction(_stopping(mean)), below) + 1
            if below(number) == 0:
                return number
    whole, rest = divmod(Fraction(mean), 1)
    while True:
        if number := sum(_poisson(part, below) for part in (*[1] * whole, rest)):
            return number


def _failures(on: Fraction, below: Below) -> int:
    """k >= 0 with probability (1 - on) on^k."""
    return next(k for k in count() if below(on.denominator) >= on.numerator)


def _poisson(mean: Fraction | int, below: Below) -> int:
    """A number of the Poisson law of a mean below 1: mean^k, accepted with 1 / k!; of the mean 1:
    2^(-k - 1), accepted with 2^k / (2 k!).
    """
    on, base = (Fraction(1, 2), 2) if mean == 1 else (Fraction(mean), 1)
    while True:
        k = _failures(on, below)
        if below(base * math.factorial(k)) < base**k:
            return k


@cache
def _stopping(mean: float) -> float:
    """gamma of the logarithmic law, whose mean is (1 / gamma - 1) / log(1 / gamma)."""

    def over(log_gamma: float) -> float:
        return math.expm1(-log_gamma) / -log_gamma - mean

    return math.exp(root(over, -2 * math.log(mean) - 10, -1e-12))


GRID = 20_001  # angles


def information(
    sizes: Iterable[int], noise: float, spread: float, rounds: int, directions: int
) -> float:
    """The most that all answers tell about the plane, in nats.

    Parameters
    ----------
    sizes : rows of every client
    noise, spread : m and s: the noise's scale is m times what one record moves, which is s times
        the clip
    rounds : T
    directions : k
    """
    rows = np.array([n for n in sizes if n > 0], float)
    if noise <= 0:
        return math.inf
    share = np.minimum(1.0, (1 + np.sqrt(directions / rows)) / math.sqrt(directions))
    return rounds * float(((rows * share) ** 2).sum()) / (2 * (noise * spread) ** 2)


def best_accuracy(nats: float, directions: int) -> float:
    """The largest mean share of rows on the right side of a plane about which so much is known."""
    if not nats > 0:
        return 0.5
    if directions == 1:  # theta is 1 or -1
        if nats >= math.log(2):
            return 1.0
        left = math.log(2) - nats  # the entropy of an error e
        return 1 - root(lambda e: left + e * math.log(e) + (1 - e) * math.log1p(-e), 1e-12, 0.5)
    angles = np.linspace(0, math.pi, GRID + 2)[1:-1]
    prior = (directions - 2) * np.log(np.sin(angles))
    prior -= _log_sum(prior)

    def at(s: float) -> tuple[float, float]:
        """The mean share of errors, and the information it takes."""
        tilted = prior - s * angles / math.pi
        total = _log_sum(tilted)
        error = float(np.exp(tilted - total) @ angles) / math.pi
        return error, -s * error - total

    low, high = 0.0, 1.0
    while at(high)[1] < nats:
        low, high = high, 2 * high
        if at(high)[0] < 1 / GRID:  # below what the angles tell apart
            return 1.0
    return 1 - at(root(lambda s: at(s)[1] - nats, low, high))[0]


def _log_sum(values: Array) -> float:
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))


CUTS = np.linspace(0.0, 4.0, 41)  # sizes of scores, in standard deviations, from which on to guess


def chance(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """An upper bound of P(W >= right) in any (epsilon, delta)-private run.

    With B ~ Binomial(r, e^epsilon / (1 + e^epsilon)), b(v) = P(B = v) and beta = P(B >= v),

        P(W >= v) <= beta + m delta (1 - beta) beta / (v b(v)),      v >= 1.

    Parameters
    ----------
    right : v
    guesses : r; how many there are does not depend on the coins
    canaries : m >= r
    """
    if right <= 0:
        return 1.0
    beta = float(betainc(right, guesses - right + 1, 1 / (1 + math.exp(-epsilon))))
    if not delta:
        return beta
    # (1 - beta) beta / b(v), by ratios of neighbouring terms on the side where they fall, so that
    # it never is 0 / 0
    odds = math.exp(epsilon)
    if (guesses - right) * odds <= right:
        above = np.arange(right, guesses)
        rest = (1 - beta) * (1 + np.cumprod((guesses - above) / (above + 1) * odds).sum())
    else:
        below = np.arange(right, 0, -1)
        rest = beta * np.cumprod(below / ((guesses - below + 1) * odds)).sum()
    return min(1.0, beta + canaries * delta * float(rest) / right)


def least_epsilon(
    right: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """A lower bound of epsilon at ``delta`` that holds with probability ``confidence``; >= 0."""
    wrong, share = 1 - confidence, least_share(right, guesses, confidence)
    if share <= 0.5:
        return 0.0
    most = math.log(share) - math.log1p(-share)  # where beta alone is as large as may be
    if not delta:
        return most

    def over(epsilon: float) -> float:
        return chance(right, guesses, canaries, epsilon, delta) - wrong

    if over(0.0) > 0:
        return 0.0
    # a step down, because whatever is returned must be refuted itself
    return max(0.0, root(over, 0.0, most, xtol=1e-9) - 1e-8)


def least_mu(right: int, guesses: int, confidence: float) -> float:
    """A lower bound of mu >= 0 for anyone who takes for granted that guesses are right or wrong
    independently of each other, and that what is seen of each canary tells its coin no better than
    one Gaussian number of standard deviation 1 that the canary moves by mu.

    A guess at every canary is then right with probability at most Phi(mu / 2), so that the number
    of right ones is at most a binomial number, whose bound is that of Clopper and Pearson.
    """
    return max(0.0, 2 * float(ndtri(least_share(right, guesses, confidence))))


def least_share(right: int, guesses: int, confidence: float) -> float:
    """The lower bound of Clopper and Pearson for the probability of a right guess."""
    return float(betaincinv(right, guesses - right + 1, 1 - confidence)) if right else 0.0


def how_many(canaries: int, mu: float, delta: float, confidence: float) -> int:
    """How many guesses to make so that their bound is as large as can be expected of Gaussian noise
    that every canary moves by ``mu`` standard deviations. It looks at no answer.
    """
    right, wrong = ndtr(mu / 2 - CUTS), ndtr(-mu / 2 - CUTS)
    best = (-1.0, canaries)
    for hit, miss in zip(right, wrong, strict=True):
        guesses = max(1, round(canaries * float(hit + miss)))
        expected = round(guesses * float(hit / (hit + miss)))
        best = max(best, (least_epsilon(expected, guesses, canaries, delta, confidence), guesses))
    return best[1]
