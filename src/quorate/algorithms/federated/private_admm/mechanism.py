"""The noise of a private method's answers: its kind and scale, and the integer grid it is drawn on.

A row's gradient, shortened to norm ``clip``, is rounded to an integer matrix of norm <= ``steps``,
so that one grid step is clip / steps. Sums of integers are exact, and so is noise over the
integers: nothing of an answer depends on the rows below the grid (docs/private.md, "Computer
arithmetic").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from quorate.algorithms.federated.private_admm.kernels import L1, L2
from quorate.arrays import Array

MEAN_SIZE = {"gaussian": math.sqrt(2 / math.pi), "laplace": 1.0}  # E |xi| of noise of scale 1

FINE, SINGLE = 2**28, 2**17  # steps; of sums of 96 rows that single precision holds exactly
FEWEST = 2**10
WIDEST = 2**38  # of the noise in grid steps, so that sums of thousands of clients fit 64 bits
# Where an answer also counts short gradients, both together are one Gaussian release of multiplier
# m: 1 / m^2 = 1 / (GRADIENT m)^2 + 1 / (COUNT m)^2
GRADIENT, COUNT = Fraction(41, 40), Fraction(41, 9)
COUNTED = 2**10  # grid steps by which a row moves the count
# N_Z(s^2) is, but for a factor 1 + 1e-33, a function of a Gaussian number of variance s^2 - 4
SMOOTHING = 4


@dataclass(frozen=True, eq=False)
class Mechanism:
    """The noise mechanism of the clients' answers; all of it is public.

    Attributes
    ----------
    kind : "gaussian" or "laplace"; None adds no noise
    multiplier : scale of the noise over the sensitivity
    clip : largest norm of one row's gradient, l1 for Laplace, else l2; inf does not clip
    bound : rows are shortened to this norm; inf leaves them alone
    sensitivity : (N,) of each client's gradient; zeros without noise
    weight : (N,) a_p
    rounds : answers that the budget pays for
    source : "simulation" or "secure"
    unsafe : noise scaled by the data at hand, (20), which gives no guarantee
    caveat : why there is no guarantee; empty where there is one
    output : the published noise is that of z_p
    features : d
    spread : 1 where neighbours differ by one row more, 2 where a row takes another's place
    single : the rows' gradients are added in single precision
    sampling : the probability with which a row takes part in a round; None: all do
    counts : answers also count the rows whose gradients are not longer than the clip
    place : of the run in the ledger file, so that no two runs have the same noise
    engine : the engine, in which repeated answers are equal to the bit
    """

    kind: str | None
    multiplier: float
    clip: float
    bound: float
    sensitivity: Array
    weight: Array
    rounds: int
    source: str
    unsafe: bool
    caveat: str
    output: bool
    features: int
    spread: float = 1.0
    single: bool = False
    place: int = 0
    engine: str = ""
    # None where they change nothing, as in checkpoints that do not have them
    sampling: float | None = None
    counts: bool | None = None

    @property
    def norm(self) -> int:
        return L1 if self.kind == "laplace" else L2

    @property
    def exact(self) -> bool:
        """Whether gradients and noise are integers, as every guarantee needs."""
        return self.kind is not None and not self.caveat

    @property
    def rate(self) -> float:
        """The probability with which a row takes part in a round."""
        return 1.0 if self.sampling is None else self.sampling

    @property
    def steps(self) -> int:
        """The norm to which an integer gradient of one row is shortened, a power of two."""
        steps, noise = SINGLE if self.single else FINE, self.own * self.spread
        while noise * steps > WIDEST and steps > FEWEST:
            steps //= 2
        if not noise * steps <= WIDEST:
            raise ValueError(
                f"the budget needs noise of {noise:.3g} times what one row may count for, and more"
                f" than {WIDEST / FEWEST:.3g} drowns every answer: state a larger epsilon, or fewer"
                " rounds."
            )
        return steps

    @property
    def direction(self) -> int:
        """The norm to which a row's own direction is rounded; about the root of the steps."""
        half = (self.steps.bit_length() - 1) // 2
        return 2 ** (half + (2 if self.norm == L1 else 1))

    @property
    def unit(self) -> Array:
        """(N,) what one grid step of a client's sum counts for in its gradient."""
        return self.weight * (self.clip / self.steps) / self.rate

    @property
    def count_unit(self) -> Array:
        """(N,) what one grid step of a client's count is, where that of all rows is a_p each."""
        return self.weight / (self.rate * COUNTED)

    @property
    def own(self) -> float:
        """The multiplier of the noise of the gradient, of which a count beside it takes a part."""
        return float(GRADIENT) * self.multiplier if self.counts else self.multiplier

    def at(self, clip: float) -> Mechanism:
        """The same with another clip, and noise in proportion."""
        if clip == self.clip:
            return self
        return replace(self, clip=clip, sensitivity=self.sensitivity * (clip / self.clip))

    @property
    def deviation(self) -> float:
        """The standard deviation of a coordinate of the noise of all clients' answers together."""
        one = self.own * math.sqrt(float((self.sensitivity**2).sum()))
        return one * (math.sqrt(2.0) if self.norm == L1 else 1.0)

    @property
    def noise(self) -> int:
        """The variance (Gaussian) or scale (Laplace) of the discrete noise, in grid steps; 0 where
        the multiplier is.
        """
        return self._noise(Fraction(self.steps) * (GRADIENT if self.counts else 1))

    @property
    def count_noise(self) -> int:
        """The same of the count."""
        return self._noise(COUNTED * COUNT)

    def _noise(self, sensitivity: Fraction) -> int:
        """The noise of whole numbers that one row more or less moves by so many steps."""
        scale = Fraction(self.multiplier) * Fraction(self.spread) * sensitivity
        if not scale:
            return 0
        return math.ceil(scale) if self.norm == L1 else math.ceil(scale**2) + SMOOTHING
