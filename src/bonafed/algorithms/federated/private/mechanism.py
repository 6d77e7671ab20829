"""The noise of a private method's answers: its kind and scale, and the integer grid it is drawn on.

A row's gradient, shortened to norm ``clip``, is rounded to an integer matrix of norm <= ``steps``,
so that one grid step is clip / steps. Sums of integers are exact, and so is noise over the
integers: nothing of an answer depends on the rows below the grid (docs/private-proofs.md, "Computer
arithmetic").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.federated.private.kernels import L1, L2
from bonafed.arrays import Array
from bonafed.privacy.accounting import Release

MEAN_SIZE = {"gaussian": math.sqrt(2 / math.pi), "laplace": 1.0}  # E |xi| of noise of scale 1

FINE, SINGLE = 2**28, 2**17  # steps; of sums that doubles, and integers of 32 bits, hold exactly
FEWEST = 2**10
WIDEST = 2**38  # of the noise in grid steps, so that sums of thousands of clients fit 64 bits
# In the view "sum" answers are multiples of one step and their sums must be exact in doubles: the
# rows' part of a sum is held to 2^51 steps, and noise beyond 2^52 has probability exp(-2^26)
COMMON, TOTAL = 2**24, 2**51
LEAST = 25  # variance of one client's noise there, so that sums have the law of one noise
# Where an answer also counts short gradients, both together are one Gaussian release of multiplier
# m: 1 / m^2 = 1 / (GRADIENT m)^2 + 1 / (COUNT m)^2
GRADIENT, COUNT = Fraction(41, 40), Fraction(41, 9)
COUNTED = 2**10  # grid steps by which a row moves the count
# N_Z(s^2) is, but for a factor 1 + 1e-33, a function of a Gaussian number of variance s^2 - 4
SMOOTHING = 4


@dataclass(frozen=True)
class Grid:
    """The whole numbers that one client answers in.

    Attributes
    ----------
    norm : L1 or L2
    steps : the norm to which an integer gradient of one row is shortened
    unit : what one grid step of the client's sum counts for in its gradient
    noise : the variance (Gaussian) or scale (Laplace) of the discrete noise, in grid steps; 0 where
        there is none
    most : entries of the sum are held to it before there is noise, which moves no two sums further
        apart; None does not
    """

    norm: int
    steps: int
    unit: float
    noise: int
    most: int | None = None

    @property
    def direction(self) -> int:
        """The norm to which a row's own direction is rounded; about the root of the steps."""
        half = (max(self.steps, 1).bit_length() - 1) // 2
        return 2 ** (half + (2 if self.norm == L1 else 1))

    def held(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """A client's sum, in place, with its entries held to ``most``."""
        return total if self.most is None else np.clip(total, -self.most, self.most, out=total)


@dataclass(frozen=True, eq=False)
class Mechanism:
    """The noise mechanism of the clients' answers; all of it is public.

    Attributes
    ----------
    kind : "gaussian" or "laplace"; None adds no noise
    multiplier : scale of the noise over the sensitivity
    clip : largest norm of one row's gradient, l1 for Laplace, else l2; inf does not clip
    bound : rows are shortened to this norm; inf shortens none
    sensitivity : (N,) of each client's gradient; zeros without noise
    weight : (N,) a_p
    rounds : answers that the budget pays for
    source : "simulation" or "secure"
    output : the noise that is reported is that of z_p
    features : d
    spread : 1 where neighbours differ by one row more, 2 where a row takes another's place
    single : predictions are of single precision, and rows' gradients added in 32 bits
    sampling : the probability with which a row takes part in a round; None: all do
    counts : answers also count the rows whose gradients are not longer than the clip
    place : of the run in the ledger file, so that no two runs have the same noise
    engine : the engine, in which repeated answers are equal to the bit
    missing : of how many clients the noise may be missing in the view "sum", where all clients
        answer in one public step, a power of two; None in the view "answers"
    """

    kind: str | None
    multiplier: float
    clip: float
    bound: float
    sensitivity: Array
    weight: Array
    rounds: int
    source: str
    output: bool
    features: int
    spread: float = 1.0
    single: bool = False
    place: int = 0
    engine: str = ""
    missing: int | None = None
    # None where they change nothing, as in checkpoints that do not have them
    sampling: float | None = None
    counts: bool | None = None

    @property
    def norm(self) -> int:
        return L1 if self.kind == "laplace" else L2

    @property
    def rate(self) -> float:
        """The probability with which a row takes part in a round."""
        return 1.0 if self.sampling is None else self.sampling

    @property
    def steps(self) -> int:
        """The largest norm to which an integer gradient of one row is shortened, a power of two."""
        steps, noise = SINGLE if self.single else FINE, self.own * self.spread
        if self.missing is not None:  # all clients' noise is more than that of those who stay
            many = len(self.weight)
            steps, noise = min(steps, COMMON), noise * math.sqrt(many / (many - self.missing))
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
        """The norm to which a row's own direction is rounded where it has the largest norm."""
        return self.grid(int(np.argmax(self.weight))).direction

    def grid(self, client: int) -> Grid:
        """The grid of the client at this place in the federation."""
        return self._grids[client]

    @cached_property
    def _grids(self) -> list[Grid]:
        noise, most = self.noise, None
        if self.missing is not None:
            most = TOTAL // len(self.weight)
        each = zip(self._each, self.unit.tolist(), strict=True)
        return [Grid(self.norm, steps, unit, noise, most) for steps, unit in each]

    @property
    def share(self) -> Array:
        """(N,) what a row counts for in the rounds in which it takes part."""
        return self.weight / self.rate

    @property
    def common(self) -> float | None:
        """The one step in which all clients answer in the view "sum", a power of two."""
        if self.missing is None:
            return None
        part, power = math.frexp(float(self.share.max()) * (self.clip / self.steps))
        return math.ldexp(1.0, power - (part == 0.5))

    @cached_property
    def _each(self) -> list[int]:
        """Of every client the norm to which an integer gradient of one row is shortened."""
        if self.common is None:
            return [self.steps] * len(self.weight)
        over = Fraction(self.clip) / Fraction(self.common)
        return [math.floor(Fraction(float(a)) * over) for a in self.share]

    @property
    def unit(self) -> Array:
        """(N,) what one grid step of a client's sum counts for in its gradient."""
        if self.common is not None:
            return np.full(len(self.weight), self.common)
        return self.share * (self.clip / self.steps)

    @property
    def scale(self) -> Array:
        """(N,) the scale of the noise of each client's gradient."""
        if self.common is not None:
            return self.unit * math.sqrt(self.noise)
        return self.own * np.asarray(self.sensitivity)

    @property
    def mean_size(self) -> Array:
        """(N,) E |xi| of each client's noise."""
        return self.scale * MEAN_SIZE[self.kind or "gaussian"]

    @property
    def count_unit(self) -> Array:
        """(N,) what one grid step of a client's count is, where that of all rows is a_p each."""
        return self.share / COUNTED

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
        if self.common is not None:
            return self.common * math.sqrt(len(self.weight) * self.noise)
        one = self.own * math.sqrt(float((self.sensitivity**2).sum()))
        return one * (math.sqrt(2.0) if self.norm == L1 else 1.0)

    @cached_property
    def noise(self) -> int:
        """The variance (Gaussian) or scale (Laplace) of the discrete noise of one client, in grid
        steps; 0 where the multiplier is.

        In the view "sum" the variances of all clients but the missing ones add up to what the
        largest sensitivity needs.
        """
        steps = self.steps if self.missing is None else max(self._each)
        return self._noise(Fraction(steps) * (GRADIENT if self.counts else 1))

    @property
    def count_noise(self) -> int:
        """The same of the count."""
        return self._noise(COUNTED * COUNT)

    def _noise(self, sensitivity: Fraction) -> int:
        """The noise of whole numbers that one row more or less moves by so many steps."""
        scale = Fraction(self.multiplier) * Fraction(self.spread) * sensitivity
        if not scale:
            return 0
        if self.norm == L1:
            return math.ceil(scale)
        variance = math.ceil(scale**2) + SMOOTHING
        if self.missing is None:
            return variance
        return max(-(-variance // (len(self.weight) - self.missing)), LEAST)

    # -- what it costs -----------------------------------------------------------------------------

    def release(self, view: str, client: int, rounds: int, missing: int = 0) -> Release | None:
        """What a record of a client is charged for so many answers, where anyone who is to learn
        nothing sees all answers or, ``view="sum"``, their sums, and knows the noise of ``missing``
        other clients.

        None where that is not known: sums of Laplace noise, and of answers on several grids but in
        exact arithmetic.
        """
        assert self.kind is not None, "there is noise"
        if view == "answers" and self.missing is None:
            return Release(self.kind, self.multiplier, rounds, self.rate)
        if self.norm == L1:
            return None
        if self.missing is None:
            scale = self.multiplier * np.asarray(
                self.sensitivity
            )  # of all parts of an answer alike
            others = np.sort(np.delete(scale, client))[: max(len(scale) - 1 - missing, 0)]
            total = math.sqrt(float(scale[client] ** 2 + (others**2).sum()))
            far = float(self.sensitivity[client])
            return Release(self.kind, total / far if far else math.inf, rounds, self.rate)
        steps = max(self._each[client], 1)
        if view == "sum":  # at least what was planned, of which the ledger file has the number
            noise = self.multiplier * (max(self._each) / steps)
        else:
            noise = math.sqrt(self.noise - SMOOTHING) / (self.spread * steps)
        return Release(self.kind, noise, rounds, self.rate)
