"""Local gradient steps from a common model: the client of FedAvg, FedProx and DRFA.

    u_0 = w,  u_{k+1} = prox_{eta h}( u_k - eta ( F_i'(u_k; rows) + strength (u_k - w) ) ),
            k = 0, ..., K - 1

A step uses all rows, or ``batch`` rows: slices of a random order of the client's rows, which is
drawn anew when it is used up. With K = 1 the server takes the prox after the sum, which makes this
proximal gradient descent. A client uploads its weighted change u_K - w, so that the server may see
the sum only.

Before the first step the server asks for curvatures and gradients of the risks (``Scout``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.comparators.afl import first_curvature, secant
from bonafed.algorithms.federated.linearisation import is_smooth, risk_gradients
from bonafed.algorithms.method import Method, or_default
from bonafed.algorithms.settings import check_count, check_finite, check_positive, check_share
from bonafed.arrays import Array, Block, Streams, stream
from bonafed.codec import Form
from bonafed.data.federation import Federation
from bonafed.problem.claims import Claim, Either, Features, Number
from bonafed.problem.plausible import Claims, of_risk, zero_loss
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import NotFiniteError
from bonafed.rounds import Each, Max, Sum, record

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
    """

    steps: int
    batch: int | None
    epochs: bool = False
    strength: float = 0.0

    @property
    def single(self) -> bool:
        """Whether it is one step, whose prox the server takes."""
        return self.steps == 1 and not (self.epochs and self.batch is not None)


class LocalStepsMethod(Method):
    """The base of FedAvg and DRFA: the client's local steps, and the checks of their settings."""

    stateless: ClassVar[bool] = True
    local_steps: int
    step_size: float | None
    batch: int | None
    participation: float | None
    strength: float

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        check_count("local_steps", self.local_steps)
        check_count("batch", 1 if self.batch is None else self.batch)
        check_positive(self, "step_size", remedy="Leave it out for a measured one.")
        check_finite(self, "strength")
        check_share(self, "participation", "Leave it out for all clients.")

    def check_problem(self, problem: Problem, fed: Federation | None) -> None:
        """Raise ``ValueError`` where batches of rows would be ranked."""
        if self.batch is not None and by_rank(problem.over_samples):
            raise ValueError(
                f"ranks within a batch are not ranks among all rows, got batch={self.batch} with"
                f" {problem.over_samples!r}: use batch=None, or over_samples=Mean()."
            )

    def _walked(self, who: int, ask: Descend, up: Descended) -> Iterator[Claim]:
        """What local steps claim: the first of them is along the slope at the model."""
        weight, problem = float(ask.weights[0]), self._problem
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

    def _count(self, n_clients: int) -> int:
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

    def said(who: int, ask: Scout, up: Scouted) -> Iterator[Claim]:
        yield Features(up.features)
        yield Number("a curvature", up.curvature)
        yield Number("a square of a slope", up.steep)

    return {Scouted: said}


def scout(
    problem: Problem, memory: None, ask: Scout, data: Block, rng: Streams
) -> tuple[None, Scouted]:
    """Curvature and gradient of every client of the block at w."""
    w = or_default(ask.w, problem, data.n_features)
    risk, gradient, _ = risk_gradients(problem, w, data)
    curvature = first_curvature(problem, np.tile(w, (len(risk), 1)), risk, gradient, data)
    features = np.full(len(risk), float(data.n_features))
    return memory, Scouted(features, curvature, (gradient * gradient).sum(1))


def descend(
    problem: Problem,
    walk: Walk,
    single: bool,
    memory: None,
    ask: Descend,
    data: Block,
    rng: Streams,
) -> tuple[None, Descended]:
    """The local steps of every client of the block.

    With ``single`` each client's change is uploaded, not their sum.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # the server judges what is not finite
        return None, _walked(problem, walk, single, ask, data, rng)


def _walked(
    problem: Problem, walk: Walk, single: bool, ask: Descend, data: Block, rng: Streams
) -> Descended:
    n = len(data.index)
    w = np.tile(ask.w, (n, 1))
    u, snapshot, risk, curvature = w, w, np.zeros(n), np.zeros(n)
    last: tuple[Array, Array] | None = None
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
    together = None if single else (weights @ change)[None]
    taken = (weights @ (snapshot - w))[None] if ask.snapshot else None
    each = change if single else None
    return Descended(together, each, taken, weights * risk, curvature)


def _batches(data: Block, rng: Streams, walk: Walk) -> Iterator[tuple[Block, Array]]:
    """The rows of every step, and (n,) with 1 for clients that have steps left."""
    n = len(data.index)
    if walk.batch is None:
        for _ in range(walk.steps):
            yield data, np.ones(n)
        return
    kept = [np.flatnonzero(share) for share in data.share]
    sizes = [min(walk.batch, len(rows)) for rows in kept]
    steps = [
        walk.steps * (math.ceil(len(rows) / walk.batch) if walk.epochs else 1) for rows in kept
    ]
    orders = [_orders(rng(i), kept[i], sizes[i], steps[i]) for i in range(n)]
    for k in range(max(steps)):
        yield _rows(data, orders, sizes, k), np.array([float(k < count) for count in steps])


def _orders(generator: np.random.Generator, rows: Index, size: int, steps: int) -> Index:
    """(steps, size) rows: successive slices of random orders, each filled up from the next."""
    passes = math.ceil(steps * size / len(rows))
    return np.concatenate([generator.permutation(rows) for _ in range(passes)])[
        : steps * size
    ].reshape(steps, size)


def _rows(data: Block, orders: list[Index], sizes: list[int], k: int) -> Block:
    """The k-th slice of every client's rows, padded; clients without steps left take the first."""
    if not isinstance(data.X, np.ndarray):
        rows = orders[0][k]
        weight = data.share[:, rows]
        return Block(data.X[rows], data.y[:, rows], weight / weight.sum(), data.index, data.names)
    index, mask = np.zeros((len(sizes), max(sizes)), np.intp), np.zeros((len(sizes), max(sizes)))
    for i, (order, size) in enumerate(zip(orders, sizes, strict=True)):
        index[i, :size], mask[i, :size] = order[k if k < len(order) else 0], 1.0
    at = np.arange(len(sizes))[:, None]
    weight = data.share[at, index] * mask
    return Block(
        data.X[at, index],
        data.y[at, index],
        weight / weight.sum(1, keepdims=True),
        data.index,
        data.names,
    )


def first_rows(data: Block, rng: Streams, batch: int) -> Block:
    """``batch`` rows of every client, drawn without replacement."""
    return next(iter(_batches(data, rng, Walk(1, batch))))[0]
