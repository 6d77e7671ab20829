"""What right guesses about many records of one run say about its privacy.

Every canary j = 1 .. m takes part in the run or not (or is one record or another) as a fair coin
S_j falls. From all answers of the run somebody guesses the coins of the r canaries of which they
are most certain, and W of these guesses are right. Steinke, Nasr and Jagielski bound W for every
(epsilon, delta)-private run M (*Privacy auditing with one (1) training run*, 2023, Theorem 5.2).
The bound here has a smaller term of delta. With q = e^epsilon / (1 + e^epsilon),
B ~ Binomial(r, q), b(i) = P(B = i), beta = P(B >= v) and v >= 1,

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

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import binom

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
    beta = float(binom.sf(right - 1, guesses, 1 / (1 + math.exp(-epsilon))))
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
    wrong = 1 - confidence
    share = least_share(right, guesses, confidence)
    if share <= 0.5:
        return 0.0
    most = math.log(share) - math.log1p(-share)  # where beta alone is as large as may be
    if not delta:
        return most

    def over(epsilon: float) -> float:
        return chance(right, guesses, canaries, epsilon, delta) - wrong

    if over(0.0) > 0:
        return 0.0
    found = float(brentq(over, 0.0, most, xtol=1e-9, full_output=False))  # pyright: ignore
    # a step down, because whatever is returned must be refuted itself
    return max(0.0, found - 1e-8)


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
