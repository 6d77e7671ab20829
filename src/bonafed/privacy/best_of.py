"""The best of a random number of private runs, accounted for as one release.

A search runs a private procedure Q as often as a random number K says, each time independently, and
releases the best output only: no other output, and not K. Let f be the probability generating
function of K. For neighbouring inputs with outputs Q and Q', and every order alpha > 1, the Renyi
divergence of the whole is at most

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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import count
from typing import cast

import numpy as np

from bonafed.arrays import Array

NUMBERS = ("poisson", "geometric", "logarithmic")  # laws of the number of runs
MOST = 1000.0  # runs on average

Below = Callable[[int], int]  # a uniform whole number from 0 to below n


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
    law: str,
    mean: float,
    orders: Array,
    one: Array,
    failure: Callable[[Array], Array],
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
        number = sum(_poisson_of_one(below) for _ in range(whole)) + _poisson_of_less(rest, below)
        if number:
            return number


def _failures(on: Fraction, below: Below) -> int:
    """k >= 0 with probability (1 - on) on^k."""
    return next(k for k in count() if below(on.denominator) >= on.numerator)


def _poisson_of_one(below: Below) -> int:
    """A number of the Poisson law of mean 1: 2^(-k - 1), accepted with 2^k / (2 k!)."""
    while True:
        k = _failures(Fraction(1, 2), below)
        if below(2 * math.factorial(k)) < 2**k:
            return k


def _poisson_of_less(mean: Fraction, below: Below) -> int:
    """A number of the Poisson law of a mean below 1: mean^k, accepted with 1 / k!."""
    while True:
        k = _failures(mean, below)
        if below(math.factorial(k)) == 0:
            return k


@cache
def _stopping(mean: float) -> float:
    """gamma of the logarithmic law, whose mean is (1 / gamma - 1) / log(1 / gamma)."""
    from scipy.optimize import brentq

    def over(log_gamma: float) -> float:
        return math.expm1(-log_gamma) / -log_gamma - mean

    root = cast(float, brentq(over, -2 * math.log(mean) - 10, -1e-12))
    return math.exp(root)
