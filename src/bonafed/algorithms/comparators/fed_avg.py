"""Federated averaging: local steps at every client, then the average of their models.

    minimise over w:  sum_i q_i F_i(w) + h(w)

    u_i = K local proximal gradient steps of client i from w        (``local_steps``)
    w <- w + sum_i q_i (u_i - w)                                     with K = 1: its prox

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, *Communication-efficient learning of deep networks
from decentralized data*. With K = 1 and all rows this is proximal gradient descent; with K > 1 the
clients' steps drift towards their local optima, and w settles near the optimum, not at it.
``FedProx`` pulls them back to w by strength/2 ||u - w||^2: Li, Sahu, Zaheer, Sanjabi, Talwalkar,
Smith, *Federated optimization in heterogeneous networks*. Averages of models within bounds are
within them; those of sparse models are less sparse.

A server that averages sees only the weighted sum of the changes; a rule against false uploads
(``aggregation``) has to see every client's change. It also learns the weighted mean of the risks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms.comparators.afl import first_curvature, measured_step, secant
from bonafed.algorithms.federated.linearisation import duals_at, is_smooth, risk_gradients
from bonafed.algorithms.method import Ids, Next
from bonafed.algorithms.requirements import AVERAGE, Requirements
from bonafed.arrays import Array, Block, Streams, is_number, stream
from bonafed.codec import Extended, Form
from bonafed.data.federation import Federation
from bonafed.parameters import Checked, checking
from bonafed.problem.claims import Claim, Either, Features, Number
from bonafed.problem.plausible import Claims, of_risk, zero_loss
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import NotFiniteError
from bonafed.rounds import Done, Each, Max, Round, Stop, Sum, record

# Aggregation of the clients' models at a server: the mean, and rules robust to false uploads.
#
#     average            sum_i q_i w_i / sum_i q_i
#     coordinate median  in every coordinate the weighted median; equal weights: the median
#     trimmed mean  in every coordinate the mean without the lowest and the highest ``share`` of
#                        the weight
#     Krum               the w_i with the least sum of squared distances to its N - f - 2 nearest
#     Bulyan             N - 2f rounds of Krum choose models; in every coordinate the mean of the
#                        N - 4f chosen entries nearest to their median
#
# f = ``byzantine`` is the number of uploads that may be false. Yin, Chen, Ramchandran, Bartlett,
# *Byzantine-robust distributed learning*; Blanchard, El Mhamdi, Guerraoui, Stainer, *Machine
# learning with adversaries*; El Mhamdi, Guerraoui, Rouault, *The hidden vulnerability of
# distributed learning in Byzantium*. Entries that are NaN count as infinitely large. Every rule is
# equivariant under translations: applied to models or to their changes it gives the same.

TIE = 1e-12  # of weights added up in another order


class Aggregation(Protocol):
    """A rule that makes one model of the clients' models."""

    single: ClassVar[bool]  # whether the server must see every client's model, not only their sum

    def of(self, models: Array, weights: Array) -> Array:
        """The model (D,) for models (n, D) and client weights (n,) >= 0."""
        ...

    def check(self, n: int) -> None:
        """Raise ``ValueError`` where n models are too few."""


def average(models: Array, weights: Array) -> Array:
    """sum_i weights_i models_i / sum_i weights_i.

    Raises
    ------
    ValueError
        for a model that is not finite, and here as below for shapes that do not fit and weights
        that are negative or all zero
    """
    return Average().of(models, weights)


def coordinate_median(models: Array, weights: Array) -> Array:
    """The weighted median of every coordinate; the midpoint where the weight splits evenly."""
    return CoordinateMedian().of(models, weights)


def trimmed_mean(models: Array, weights: Array, share: float) -> Array:
    """The mean of every coordinate without the lowest and highest ``share`` of the weight.

    share is in [0, 1/2).

    Where the share ends within an entry, that entry counts with what is left of it.
    """
    return TrimmedMean(share).of(models, weights)


def krum(models: Array, weights: Array, byzantine: int, multi: int = 1) -> Array:
    """The weighted average of the ``multi`` models of the least scores; the first of equal ones."""
    return Krum(byzantine, multi).of(models, weights)


def bulyan(models: Array, weights: Array, byzantine: int) -> Array:
    """The mean, by coordinate, of the N - 4f entries nearest to the median among Krum's choice.

    Krum chooses N - 2f models.
    """
    return Bulyan(byzantine).of(models, weights)


# ---- the rules as values


@dataclass(frozen=True)
class Average(Aggregation):
    """The weighted mean: one false upload can carry it anywhere.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [100.0]])  # the last is false
    >>> bf.Average().of(models, np.full(4, 0.25)).tolist()
    [26.5]
    """

    single: ClassVar[bool] = False

    def of(self, models: Array, weights: Array) -> Array:
        models, weights = _checked(models, weights)
        if not np.isfinite(models).all():
            raise ValueError(
                "a model is not finite, and so is every average with it: lower the step size, or"
                " use CoordinateMedian(), TrimmedMean(share) or Krum(byzantine) where uploads may"
                " be false."
            )
        return weights @ models / weights.sum()


@dataclass(frozen=True)
class CoordinateMedian(Aggregation):
    """The weighted median of every coordinate.

    It withstands false uploads of less than half of the weight.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [100.0]])  # the last is false
    >>> bf.CoordinateMedian().of(models, np.full(4, 0.25)).tolist()
    [2.5]
    """

    single: ClassVar[bool] = True

    def of(self, models: Array, weights: Array) -> Array:
        entries, below, total = _sorted(models, weights)
        half = total / 2
        lower = np.take_along_axis(entries, (below < half * (1 - TIE)).sum(0)[None], 0)[0]
        upper = np.take_along_axis(entries, (below <= half * (1 + TIE)).sum(0)[None], 0)[0]
        return _finite(lower / 2 + upper / 2, "half")


@dataclass(frozen=True)
class TrimmedMean(Checked, Aggregation):
    """The mean of every coordinate without the lowest and the highest ``share`` of the weight.

    ``share`` is in [0, 1/2).

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [100.0]])  # the last is false
    >>> bf.TrimmedMean(share=0.25).of(models, np.full(4, 0.25)).tolist()
    [2.5]
    """

    share: float = 0.1
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 <= self.share < 0.5:
            raise ValueError(
                f"share must be in [0, 0.5), got {self.share!r}: it is cut off on either side. For"
                " the median use CoordinateMedian()."
            )

    def of(self, models: Array, weights: Array) -> Array:
        (entries, below, total), share = _sorted(models, weights), self.share
        above = np.concatenate([np.zeros((1, entries.shape[1])), below[:-1]])
        kept = np.minimum(below, (1 - share) * total) - np.maximum(above, share * total)
        kept[kept <= TIE * total] = 0.0
        entries = np.where(kept > 0, entries, 0.0)
        return _finite((kept * entries).sum(0) / kept.sum(0), f"share {share:g}")


@dataclass(frozen=True)
class Krum(Checked, Aggregation):
    """The mean of the ``multi`` models with the nearest neighbours.

    ``byzantine`` uploads may be false; N >= 2 byzantine + 3.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [2.5], [100.0]])  # the last is false
    >>> bf.Krum(byzantine=1).of(models, np.full(5, 0.2)).tolist()
    [2.5]
    """

    byzantine: int
    multi: int = 1
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        base.check_count("byzantine", self.byzantine, 0)
        base.check_count("multi", self.multi, 1)

    def of(self, models: Array, weights: Array) -> Array:
        models, weights = _checked(models, weights)
        self.check(len(models))
        scores = _scores(_distances(models), self.byzantine)
        chosen = np.argsort(scores, kind="stable")[: self.multi]
        picked, weights = _finite(models[chosen], "byzantine"), weights[chosen]
        return average(picked, weights if weights.any() else np.ones_like(weights))

    def check(self, n: int) -> None:
        needed = max(2 * self.byzantine + 3, self.multi)
        if n < needed:
            raise ValueError(
                f"Krum(byzantine={self.byzantine}, multi={self.multi}) needs {needed} models or"
                f" more, got {n}: expect fewer false ones, or use CoordinateMedian()."
            )


@dataclass(frozen=True)
class Bulyan(Checked, Aggregation):
    """A trimmed mean of the models that Krum chooses.

    ``byzantine`` uploads may be false; N >= 4 byzantine + 3.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array(
    ...     [[1.0], [2.0], [3.0], [2.5], [1.5], [2.2], [100.0]]
    ... )  # the last is false
    >>> bf.Bulyan(byzantine=1).of(models, np.full(7, 1 / 7)).round(2).tolist()
    [2.23]
    """

    byzantine: int
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        base.check_count("byzantine", self.byzantine, 0)

    def of(self, models: Array, weights: Array) -> Array:
        models, weights = _checked(models, weights)
        self.check(len(models))
        distances, left, chosen = _distances(models), np.arange(len(models)), []
        for _ in range(len(models) - 2 * self.byzantine):
            scores = _scores(distances[np.ix_(left, left)], self.byzantine)
            chosen.append(int(left[np.argmin(scores)]))
            left = left[left != chosen[-1]]
        chosen = np.sort(chosen)
        picked, weights = models[chosen], np.where(weights[chosen].any(), weights[chosen], 1.0)
        off, nearest = np.abs(picked - np.median(picked, 0)), len(models) - 4 * self.byzantine
        near = np.argsort(np.where(np.isfinite(off), off, np.inf), axis=0, kind="stable")[:nearest]
        entries, share = np.take_along_axis(picked, near, 0), weights[near]
        share = np.where(share.any(0), share, 1.0)
        return _finite((share * entries).sum(0) / share.sum(0), "byzantine")

    def check(self, n: int) -> None:
        if n < 4 * self.byzantine + 3:
            raise ValueError(
                f"Bulyan(byzantine={self.byzantine}) needs {4 * self.byzantine + 3} models or more,"
                f" got {n}: expect fewer false ones, or use Krum or CoordinateMedian()."
            )


# ---- what they share


def _checked(models: Array, weights: Array) -> tuple[Array, Array]:
    models, weights = np.asarray(models, float), np.asarray(weights, float)
    if models.ndim != 2 or not len(models) or weights.shape != models.shape[:1]:
        raise ValueError(
            f"models must be (n, D) and weights (n,), got {models.shape} and {weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError(f"weights must be finite, >= 0 and not all zero, got {weights[:6]}.")
    return models, weights


def _sorted(models: Array, weights: Array) -> tuple[Array, Array, float]:
    """Every coordinate in ascending order, the weight up to each entry, and the whole weight.

    NaN is the largest.
    """
    models, weights = _checked(models, weights)
    total = weights.sum()
    models, weights = models[weights > 0], weights[weights > 0]
    order = np.argsort(np.where(np.isnan(models), np.inf, models), axis=0, kind="stable")
    return np.take_along_axis(models, order, 0), np.cumsum(weights[order], 0), float(total)


def _distances(models: Array) -> Array:
    """Squared distances (n, n), inf to models that are not finite."""
    fine = np.isfinite(models).all(1)
    squares = np.full((len(models), len(models)), np.inf)
    scale = max(float(np.abs(models[fine]).max(initial=0.0)), 1e-300)
    scaled = models[fine] / scale  # so that squares stay in range
    if fine.any():
        squares[np.ix_(fine, fine)] = [((scaled - w) ** 2).sum(1) for w in scaled]
    return squares


def _scores(distances: Array, byzantine: int) -> Array:
    """The sum over the n - byzantine - 2 nearest others (one at least)."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    nearest = min(max(len(distances) - byzantine - 2, 1), len(distances) - 1)
    return np.sort(others, 1)[:, :nearest].sum(1) if nearest else np.zeros(1)


def _finite(result: Array, bound: str) -> Array:
    if not np.isfinite(result).all():
        raise ValueError(
            f"more uploads are not finite than {bound} allows for: lower the step size, or leave"
            " them out."
        )
    return result


# Local gradient steps from a common model: the client of FedAvg, FedProx and DRFA.
#
#     u_0 = w,  u_{k+1} = prox_{eta h}( u_k - eta ( F_i'(u_k; rows) + strength (u_k - w) ) ),
#             k = 0, ..., K - 1
#
# A step uses all rows, or ``batch`` rows: slices of a random order of the client's rows, which is
# drawn anew when it is used up. With K = 1 the server takes the prox after the sum, which makes
# this proximal gradient descent. A client uploads its weighted change u_K - w, so that the server
# may see the sum only.
#
# Before the first step the server asks for curvatures and gradients of the risks (``Scout``).

Index = NDArray[np.intp]


@record
class Scout:
    """Ask for what a step size depends on, at the model ``w`` (empty: the problem's default)."""

    w: Annotated[Array, Form("D")]


@record
class Scouted:
    """The number of features, and F_i's curvature along its gradient and squared gradient at w."""

    features: Max  # (n,)
    curvature: Max  # (n,)
    steep: Max  # (n,)


@record
class Descend:
    """Ask for local steps from ``w``.

    After the step ``snapshot`` a second model is taken; 0 takes none.
    """

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")]  # of the clients in the server's sum
    step: float  # eta
    share: float  # of h in a client's objective
    snapshot: int


@record
class Descended:
    """How far a client's local steps changed the model; the sums are weighted."""

    change: Sum | None  # (1, D) per block: u_K - w
    single: Each | None  # (n, D) the same of every client, for rules that compare them
    snapshot: Sum | None  # (1, D) per block
    risk: Sum  # (n,) F_i(w), on the rows of the first step
    # (n,) largest met between two steps on all rows; 0 for steps on some, and where gradients jump
    curvature: Max


@dataclass(frozen=True)
class Walk:
    """The local steps of a client in a round.

    Parameters
    ----------
    steps : K, or with ``epochs`` passes over the rows
    batch : rows of a step; None: all
    epochs : whether steps counts passes over the client's rows
    strength : of the pull towards w
    apart : whether each client's change is uploaded, not their sum
    """

    steps: int
    batch: int | None
    epochs: bool = False
    strength: float = 0.0
    apart: bool = False

    @property
    def single(self) -> bool:
        """Whether it is one step, whose prox the server takes."""
        return self.steps == 1 and not (self.epochs and self.batch is not None)


class LocalStepsMethod(base.Method):
    """The base of FedAvg and DRFA: the client's local steps, and the checks of their settings."""

    stateless: ClassVar[bool] = True
    local_steps: int
    step_size: float | None
    batch: int | None
    participation: float | None
    strength: float

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        base.check_count("local_steps", self.local_steps)
        base.check_count("batch", 1 if self.batch is None else self.batch)
        base.check_positive(self, "step_size", remedy="Leave it out for a measured one.")
        base.check_finite(self, "strength")
        base.check_share(self, "participation", "Leave it out for all clients.")

    def check_problem(self, problem: Problem, fed: Federation | None) -> None:
        """Raise ``ValueError`` where batches of rows would be ranked."""
        if self.batch is not None and by_rank(problem.over_samples):
            raise ValueError(
                f"ranks within a batch are not ranks among all rows, got batch={self.batch} with"
                f" {problem.over_samples!r}: use batch=None, or over_samples=Mean()."
            )

    def walk_claims(self, who: int, ask: Descend, up: Descended) -> Iterator[Claim]:
        """What local steps claim: the first of them is along the slope at the model."""
        weight, problem = float(ask.weights[0]), self.concrete
        yield Number("a curvature", up.curvature)
        if self.batch is not None or not weight > 0:
            yield Number("a mean loss", up.risk)
            if not ask.w.any() and (zero := zero_loss(problem)) is not None:
                yield Either("a mean loss at the model 0", float(up.risk[0]), (0.0, weight * zero))
            return
        change = up.single if up.change is None else np.asarray(up.change) / weight
        whole = self.local_steps == 1 and change is not None and ask.step > 0
        slope = -np.asarray(change) / ask.step if whole else None
        yield from of_risk(problem, ask.w, up.risk / weight, slope)

    def n_asked(self, n_clients: int) -> int:
        """How many clients a round asks."""
        return max(1, round((self.participation or 1.0) * n_clients))

    def gradients(self, message: object) -> float:
        """The gradients that a client computes to answer, as if every step took all rows."""
        if isinstance(message, Descend):
            return float(self.local_steps)
        return 2.0 if isinstance(message, Scout) else 1.0


def drawn(seed: int, turn: int, n_clients: int, count: int) -> tuple[int, ...] | None:
    """The clients of a round, drawn without replacement; None: all."""
    if count == n_clients:
        return None
    chosen = stream(seed, "server", turn).choice(n_clients, count, replace=False)
    return tuple(np.sort(chosen).tolist())


def scouted() -> Claims:
    """What the sizes at a first model claim."""
    return {Scouted: _scouted}


def _scouted(who: int, ask: Scout, up: Scouted) -> Iterator[Claim]:
    yield Features(up.features)
    yield Number("a curvature", up.curvature)
    yield Number("a square of a slope", up.steep)


def scout(
    problem: Problem, memory: None, ask: Scout, data: Block, rng: Streams
) -> tuple[None, Scouted]:
    """Curvature and gradient of every client of the block at w."""
    w = base.or_default(ask.w, problem, data.n_features)
    risk, gradient, _ = risk_gradients(problem, w, data)
    curvature = first_curvature(problem, np.tile(w, (len(risk), 1)), risk, gradient, data)
    features = np.full(len(risk), float(data.n_features))
    return memory, Scouted(features, curvature, (gradient * gradient).sum(1))


def descend(
    problem: Problem, walk: Walk, memory: None, ask: Descend, data: Block, rng: Streams
) -> tuple[None, Descended]:
    """The local steps of every client of the block."""
    n = len(data.index)
    w = np.tile(ask.w, (n, 1))
    u, snapshot, risk, curvature = w, w, np.zeros(n), np.zeros(n)
    last: tuple[Array, Array] | None = None
    with np.errstate(over="ignore", invalid="ignore"):  # the server judges what is not finite
        for k, (rows, going) in enumerate(_batches(data, rng, walk)):
            try:
                value, gradient, _ = risk_gradients(problem, u, rows)
            except NotFiniteError:  # losses that overflow have no ranks
                u = np.full_like(u, np.nan)
                break
            if k == 0:
                risk = value
            if walk.batch is None and last is not None and is_smooth(problem):
                curvature = np.maximum(curvature, secant(u - last[0], gradient - last[1]))
            last = u, gradient
            v = u - ask.step * (gradient + walk.strength * (u - w))
            if not walk.single and not isinstance(problem.regulariser, Zero):
                v = np.array([problem.prox(model, ask.step * ask.share) for model in v])
            u = np.where(going[:, None] > 0, v, u)
            if k + 1 == ask.snapshot:
                snapshot = u
        weights, change = ask.weights, u - w
        together, each = (None, change) if walk.apart else ((weights @ change)[None], None)
        taken = (weights @ (snapshot - w))[None] if ask.snapshot else None
        return None, Descended(together, each, taken, weights * risk, curvature)


def _batches(data: Block, rng: Streams, walk: Walk) -> Iterator[tuple[Block, Array]]:
    """The rows of every step, and (n,) with 1 for clients that have steps left."""
    n = len(data.index)
    if walk.batch is None:
        for _ in range(walk.steps):
            yield data, np.ones(n)
        return
    kept = [np.flatnonzero(share) for share in data.share]
    sizes = [min(walk.batch, len(rows)) for rows in kept]
    passes = [math.ceil(len(rows) / walk.batch) if walk.epochs else 1 for rows in kept]
    steps = [walk.steps * count for count in passes]
    orders = [_orders(rng(i), kept[i], sizes[i], steps[i]) for i in range(n)]
    for k in range(max(steps)):
        yield _rows(data, orders, sizes, k), np.array([float(k < count) for count in steps])


def _orders(generator: np.random.Generator, rows: Index, size: int, steps: int) -> Index:
    """(steps, size) rows: successive slices of random orders, each filled up from the next."""
    passes = math.ceil(steps * size / len(rows))
    whole = np.concatenate([generator.permutation(rows) for _ in range(passes)])
    return whole[: steps * size].reshape(steps, size)


def _rows(data: Block, orders: list[Index], sizes: list[int], k: int) -> Block:
    """The k-th slice of every client's rows, padded; clients without steps left take the first."""
    index, mask = np.zeros((len(sizes), max(sizes)), np.intp), np.zeros((len(sizes), max(sizes)))
    for i, (order, size) in enumerate(zip(orders, sizes, strict=True)):
        index[i, :size], mask[i, :size] = order[k if k < len(order) else 0], 1.0
    at = np.arange(len(sizes))[:, None]
    weight = data.share[at, index] * mask
    share = weight / weight.sum(1, keepdims=True)
    if isinstance(data.X, np.ndarray):
        X = data.X[at, index]
    else:
        X = data.X[(at * data.y.shape[1] + index).ravel()]
    return Block(X, data.y[at, index], share, data.index, data.names)


def first_rows(data: Block, rng: Streams, batch: int) -> Block:
    """``batch`` rows of every client, drawn without replacement."""
    return next(iter(_batches(data, rng, Walk(1, batch))))[0]


@record
class AveragingState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Array, Form("N")]  # q
    curvature: float  # largest of a client so far
    # objective of the model before the last step, as far as the clients asked tell it
    value: Extended
    moved: Extended  # ||change of w|| / ||w|| of the last round
    rounds: Annotated[int, Form(rounds=-1)]


@dataclass(frozen=True)
class FedAvg(LocalStepsMethod):
    """Local steps and their average: a baseline for the mean over clients.

    Parameters
    ----------
    local_steps : K; passes over the client's rows where ``epochs`` is True and there is a ``batch``
    step_size : eta; None: 1 / the largest curvature that a client has measured so far
    batch : rows of a local step, drawn anew; None: all rows
    epochs : whether local_steps counts passes over the rows
    participation : share of the clients asked in a round, drawn by the server at random; 1: all
    aggregate : ``Average()``, or against false uploads ``CoordinateMedian()``,
        ``TrimmedMean(share)``, ``Krum(byzantine, multi)`` or ``Bulyan(byzantine)``
    strength : of the pull towards the server's model, see ``FedProx``
    seed : of the server's draws
    tol : stop when a round of all clients and all rows changes the model by less than tol times its
        size
    max_rounds : a cap
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for settings out of range; risks over clients other than Mean and Sum

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.FedAvg())
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    local_steps: int = 5
    step_size: float | None = None
    batch: int | None = None
    epochs: bool = False
    participation: float = 1.0
    aggregate: Aggregation = Average()  # frozen, without fields
    strength: float = 0.0
    seed: int = 0
    tol: float = 1e-6
    max_rounds: int = 500
    start: Array | None = None
    problem: Problem | None = None
    requirements: ClassVar[Requirements] = Requirements(over_clients=AVERAGE)
    advised: ClassVar[int] = 1

    @property
    def called(self) -> str:
        return "FedProx" if self.strength else "FedAvg"

    def __post_init__(self) -> None:
        self.check_settings()
        if not hasattr(self.aggregate, "of") or isinstance(self.aggregate, type):
            raise TypeError(
                f"aggregate must be a rule such as Average() or Krum(1), got {self.aggregate!r}."
            )

    def check_problem(self, problem: Problem, fed: Federation | None) -> None:
        """Raise ``ValueError`` for ranked batches, or too few clients for the aggregation."""
        super().check_problem(problem, fed)
        if fed is not None:
            self.aggregate.check(self.n_asked(fed.n_clients))

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Scout: self.client_step(scout), Descend: self.client_step(descend, self._walk)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Scouted: self.begin, Descended: self.average}

    @property
    def claims(self) -> Claims:
        return {**scouted(), Descended: self.walk_claims}

    def server_start(self, n_clients: int) -> tuple[AveragingState, Round]:
        w = base.start_or_empty(self.start)
        q = np.asarray(self.concrete.over_clients.weights(np.zeros(n_clients)), float)
        return AveragingState(w, q, 0.0, math.inf, math.inf, 0), Round(Scout(w))

    def begin(self, state: AveragingState, ids: Ids, up: Scouted) -> tuple[AveragingState, Round]:
        w = base.or_default(state.w, self.concrete, int(up.features))
        state = replace(state, w=w, curvature=float(up.curvature))
        return state, self._ask(state)

    def average(self, state: AveragingState, ids: Ids, up: Descended) -> Next[AveragingState]:
        q, total, each = state.weights[list(ids)], float(state.weights.sum()), up.single
        mass = float(q.sum()) or 1.0  # where it is 0, so is the weighted sum
        change = np.asarray(up.change) / mass if each is None else self.aggregate.of(each, q)
        w = state.w + change
        if self._walk.single and np.isfinite(w).all():
            w = self.concrete.prox(w, self._step(state) / total)
        value = float(up.risk) * total / mass + self.concrete.penalty(state.w)
        moved = float(np.linalg.norm(w - state.w)) / max(float(np.linalg.norm(w)), 1e-300)
        curvature, rounds = max(state.curvature, float(up.curvature)), state.rounds + 1
        state = AveragingState(w, state.weights, curvature, value, moved, rounds)
        if not (np.isfinite(w).all() and math.isfinite(value)):
            return state, Done(Stop.STALLED)
        # where local steps or a rule let it rest need not be near the optimum
        if self.participation == 1 and self.batch is None and moved <= self.tol:
            return state, Done(Stop.UNPROVEN)
        return base.unless_capped(state, self._ask(state), rounds, self.max_rounds)

    def report(self, state: AveragingState) -> dict:
        """``objective`` is that of the model before the round, from the clients asked."""
        return {"objective": state.value, "moved": state.moved}

    def answer(self, state: AveragingState, concluded: base.Concluded | None = None) -> base.Answer:
        """The model, and its gradients, which prove a bound."""
        return base.Answer(state.w, duals_at(self.concrete, state.w, state.weights))

    @property
    def _walk(self) -> Walk:
        return Walk(self.local_steps, self.batch, self.epochs, self.strength, self.aggregate.single)

    def _step(self, state: AveragingState) -> float:
        curvature = state.curvature + self.strength
        return self.step_size or measured_step(self.concrete, curvature, state.rounds)

    def _ask(self, state: AveragingState) -> Round:
        n, share = len(state.weights), 1 / float(state.weights.sum())
        to = drawn(self.seed, state.rounds, n, self.n_asked(n))
        return Round(Descend(state.w, state.weights, self._step(state), share, 0), to)


@checking
def FedProx(strength: float = 0.1, **settings: Any) -> FedAvg:
    """``FedAvg`` with local steps that also minimise strength/2 ||u - w||^2.

    ``settings`` are those of ``FedAvg``.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.FedProx(strength=0.1))
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """
    return FedAvg(strength=strength, **settings)
