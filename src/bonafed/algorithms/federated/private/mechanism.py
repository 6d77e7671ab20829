"""The noise of a private method's answers: its kind and scale, and the integer grid it is drawn on.

A row's gradient, shortened to norm ``clip``, is rounded to an integer matrix of norm <= ``steps``,
so that one grid step is clip / steps. Sums of integers are exact, and so is noise over the
integers: nothing of an answer depends on the rows below the grid (docs/private-proofs.md, "Computer
arithmetic").
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms import requirements as needs
from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import Release
from bonafed.problem.conic_form import is_norm_penalty
from bonafed.problem.losses import Multinomial
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.predictors.torch_module import TorchPredictor
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.solvers.kernels.exponential import exp64

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

Whole = NDArray[np.int64]  # what answers are made of


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

    def held(self, total: Whole) -> Whole:
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

    def grid(self, client: int) -> Grid:
        """The grid of the client at this place in the federation."""
        return self._grids[client]

    @cached_property
    def _grids(self) -> list[Grid]:
        most = None if self.missing is None else TOTAL // len(self.weight)
        each = zip(self._each, self.unit.tolist(), strict=True)
        return [Grid(self.norm, steps, unit, self.noise, most) for steps, unit in each]

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

    def at(self, clip: float) -> "Mechanism":
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
            scale = self.multiplier * np.asarray(self.sensitivity)  # of all parts alike
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


# The public numbers of problem and data that plan the noise of a private method, and checks.

UNMIXED_ROWS = needs.Need(
    "mean, ball without label moves",
    "needs over_samples = Mean(), or WassersteinBall(radius) with a declared radius, no support and"
    " label_cost=inf beside the regulariser Zero() or L2() (its worst case is then a norm of the"
    " model; other risks mix rows, so that one row has no bounded share)",
    lambda problem, setting: needs.MEAN_OF_ROWS.holds(problem, setting) or is_norm_penalty(problem),
)
UNCONSTRAINED = replace(
    needs.NO_CONSTRAINTS,
    words=f"{needs.NO_CONSTRAINTS.words} (their values and multipliers follow from rows; a limit on"
    " the model by itself is a regulariser, Bounds() or Ball())",
)
ROW_BY_ROW = needs.Need(
    "affine, torch module",
    "needs the predictor Linear, Softmax or TorchPredictor",
    lambda problem, setting: (
        is_affine(problem.predictor) or isinstance(problem.predictor, TorchPredictor)
    ),
)
FIXED_WEIGHTS = needs.Need(
    "mean",
    "needs over_clients = Mean (weights that follow the clients' losses would tell about them)",
    lambda problem, setting: isinstance(problem.over_clients, Mean),
)
PUBLIC_WEIGHTS = needs.Need(
    "equal", "takes no sample weights (a weight is private, too)", needs.EQUAL_ROWS.holds
)
SYNCHRONOUS = needs.Need(
    "synchronous, if private",
    "needs an engine that waits for all clients in every private round",
    lambda problem, setting: problem.privacy is None or not setting.asynchronous,
)


def check_columns(fed: Federation | Metadata) -> None:
    """Raise where scales and categories of the features come from private rows."""
    if fed.fitted:
        raise ValueError(
            "the features were made by a schema fitted on rows: its scale and categories tell about"
            " them and are not charged. Declare the columns instead"
            " (bonafed.data.schema.declared_schema); where the rows it was fitted on are"
            " public, say so: dataclasses.replace(fed, schema=fed.schema.public())."
        )


# what states the clients' names and sizes and the number of features: a federation, what is told of
# one elsewhere, or only these public numbers
ClientSizes = Any


def everybody(problem: Problem, fed: ClientSizes) -> Any:
    """The federation of all clients whose sizes are declared by name, in that order; of rows that
    are elsewhere those that take part.

    Some of them may have no rows: otherwise a client whose only row comes or goes would take part
    or not. The answers of a client without rows are noise, as those of all others are.
    """
    declared = None if problem.privacy is None else problem.privacy.sizes
    if not isinstance(declared, Mapping) or isinstance(fed, Metadata):
        return fed
    names = tuple(map(str, declared))
    if names == fed.names or set(fed.names) - set(names):
        return fed
    if isinstance(getattr(problem.over_clients, "prior", None), str | Mapping):
        # The federation of these clients; one without rows has a row of zeros of weight zero
        clients, position = tuple(declared), {name: i for i, name in enumerate(fed.names)}
        empty = [name not in position for name in names]
        ends = (slice(1 if without else None) for without in empty)
        whole = fed._pick([*zip((position.get(name, 0) for name in names), ends, strict=True)])
        X, weights = list(whole.X), list(whole.sample_weight or [np.ones(len(t)) for t in whole.y])
        for k in np.flatnonzero(empty):
            X[k], weights[k] = abs(X[k]) * 0, np.zeros(1)
        return whole._with(clients=clients, X=tuple(X), sample_weight=tuple(weights))

    if len(names) == fed.n_clients:  # the prior is in the order of these clients
        return fed
    odd = next(name for name in names if name not in fed.names)
    raise ValueError(
        f"client {odd!r} is declared in sizes and has no rows: give the prior by name, for all."
    )


def sizes(problem: Problem, fed: ClientSizes) -> tuple[int, ...]:
    """The public number of rows of every client."""
    if problem.privacy is None:
        return tuple(map(int, fed.sizes))
    return problem.privacy.sizes_of(fed.clients, fed.sizes)


def row_weights(problem: Problem, fed: ClientSizes) -> Array:
    """a_p of every client: the weight of a row in the objective, from public sizes only."""
    size = np.asarray(sizes(problem, fed), float)
    return problem.over_clients.project(np.zeros(len(size))) / size


def steepest(problem: Problem, mechanism: str, bound: float) -> float:
    """The largest norm of a row's gradient where rows have at most norm ``bound``.

    The norm is l1 for Laplace noise, else l2.
    """
    if math.isinf(bound) or math.isinf(problem.loss.lipschitz) or not is_affine(problem.predictor):
        return math.inf
    one = float(problem.predictor.intercept)
    row = bound + one if mechanism == "laplace" else math.hypot(bound, one)
    several = isinstance(problem.loss, Multinomial)
    return row * (2.0 if several and mechanism == "laplace" else problem.loss.lipschitz)


def default_clip(features: int) -> float:
    """The default clipping norm, for features of order one with many zeros if they are many."""
    return max(1.0, math.sqrt(features) / 7)


LONGEST = 2.0  # length of a step where all gradients have norm clip and agree
# standard deviation that noise may give a row's prediction in the end, for features of order one
WANDER = 2.5


def default_rho(plan: Mechanism) -> float:
    """A default penalty from public numbers only.

    Its steps 1 / (P rho) are as long as the noise of all rounds and LONGEST allow.

    Once most rows are clipped, the length of a step changes the model's length but hardly its
    direction.
    """
    P, d, laplace = len(plan.weight), plan.features, plan.kind == "laplace"
    # the l2 sensitivity of a row
    reach = float(plan.sensitivity.max() / plan.weight.max()) / (math.sqrt(d) if laplace else 1.0)
    return max(reach / LONGEST, plan.deviation * math.sqrt(d * plan.rounds) / WANDER) / P


# A client's sum of clipped gradients of a softmax model, compiled, in floating point.
#
# The kernels pass over the rows once, in tiles that stay in the cache: two products, softmax and
# clipping. Arrays are copied entry by entry, since assignments to slices take seconds to compile.

L1, L2 = 1, 2

# libraries of linear algebra do products of fewer multiplications without copying
SMALL = 1_000_000
LEAST_ROWS, MOST_ROWS = 64, 1024  # rows of a tile
WIDE = 16  # columns that a library likes in multiples

# Sums may go in any order, products and sums in one instruction, without signed zeros; infinities
# and NaN stay what they are.
FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(inline="always")
def _exp32(x):
    """exp of a float32 <= 0 to 2 ulp, in arithmetic only so that loops vectorise.

    Below -87 it is exp(-87).
    """
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    # adding 1.5 * 2^23 puts the nearest integer into the last bits
    shifted = x * np.float32(1.44269504) + np.float32(12582912.0)
    k = shifted - np.float32(12582912.0)
    r = (x - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
    p = np.float32(1 / 720) * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(1 / 2)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)).view(
        np.float32
    )


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exponentials(v):
    """exp of every entry, in place; sums stay as written, which the rounding above relies on."""
    if v.itemsize == 4:
        for j in range(len(v)):
            v[j] = _exp32(v[j])
    else:
        for j in range(len(v)):
            v[j] = exp64(-708.0 if v[j] < -708.0 else v[j])  # NaN stays


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _residuals(S, K, y, factor, length, clip, norm):
    """Replace the first K columns of S, scores, by the clipped h - e_y times the factor.

    Returns the largest norm before clipping.
    """
    m, wide = S.shape
    for r in range(m):
        top = S[r, 0]
        for k in range(1, K):
            top = S[r, k] if S[r, k] > top else top
        for k in range(K, wide):
            S[r, k] = top
        for k in range(wide):
            S[r, k] = factor[r] * (S[r, k] - top)
    exponentials(S.reshape(m * wide))
    largest = 0.0
    for r in range(m):
        total = S[r, 0]
        for k in range(1, K):
            total += S[r, k]
        share = 1 / total
        for k in range(K):
            S[r, k] *= share
        S[r, y[r]] -= 1
        size = S.dtype.type(0)
        for k in range(K):
            size += abs(S[r, k]) if norm == L1 else S[r, k] * S[r, k]
        long = length[r] * (size if norm == L1 else math.sqrt(size))
        # a row with a norm that is not finite counts as nothing: otherwise it would reveal itself
        if not long < np.inf:
            for k in range(wide):
                S[r, k] = 0
            continue
        largest = max(largest, long)
        shrink = S.dtype.type(factor[r] * (clip / long if long > clip else 1.0))
        for k in range(K):
            S[r, k] *= shrink
    return largest


@njit(cache=True)
def softmax_gradient(X, y, Z, factor, length, clip, norm, G):
    """Set G (d, K) to the sum of the rows' gradients x (h - e_y)', each clipped to ``clip``.

    Row i is ``factor[i]`` x_i, of norm ``length[i]``. Returns the largest norm of a gradient before
    clipping.
    """
    d, K = Z.shape
    # rows of a tile, and columns of its scores
    few, wide = SMALL // (d * K), -(-K // WIDE) * WIDE
    T = few if few >= LEAST_ROWS else MOST_ROWS
    wide = K if few >= LEAST_ROWS or 8 * wide > 9 * K else wide
    wider, turned = np.zeros((d, wide), Z.dtype), np.empty((wide, d), Z.dtype)
    scores = np.empty((min(T, len(y)), wide), Z.dtype)
    for j in range(d):
        for k in range(K):
            wider[j, k], G[j, k] = Z[j, k], 0
    largest = 0.0
    for start in range(0, len(y), T):
        here = slice(start, min(start + T, len(y)))
        S = scores[: here.stop - start]
        np.dot(X[here], wider, S)
        largest = max(largest, _residuals(S, K, y[here], factor[here], length[here], clip, norm))
        np.dot(S.T, X[here], turned)
        for j in range(d):
            for k in range(K):
                G[j, k] += turned[k, j]
    return largest
