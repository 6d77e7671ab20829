"""The base of SGD and LSVRG: exactly evaluated epochs of steps, and a choice of learning rate.

    w <- prox_{rate h}(w - rate g),
            g an estimate of a subgradient of Omega(w) = sum_i sigma_i loss_[i](w)

An epoch ends with a pass over all rows: the objective there (the best model is stored), the rank
weights and a subgradient. A convex Omega lies above Omega(w') + <gradient(w'), w - w'> at every w'
at which it was evaluated, and so above convex combinations of these minorants, which
``single_client.implied`` turns into a bound on the optimum.

With ``learning_rate=None`` the first round tries every rate of a grid for ``trial_epochs`` epochs,
on the same random numbers, and goes on from the best. A model that stops being finite counts as an
infinite objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.method import settings_of, with_start
from bonafed.algorithms.pooled.single_client import (
    Advance,
    Advanced,
    PooledMethod,
    advanced,
    implied,
)
from bonafed.algorithms.requirements import MEAN_OR_RANK, ONE_CLIENT, Requirements
from bonafed.algorithms.settings import check_least
from bonafed.arrays import Array, Block, Streams, by_row, stream
from bonafed.codec import Form
from bonafed.problem.problem import Problem
from bonafed.problem.rank_coordinates import is_provable
from bonafed.problem.risks.prospect import ProspectTheory
from bonafed.problem.risks.ranks import ByRank, by_rank, two_sided, weights_by_rank
from bonafed.rounds import record

if TYPE_CHECKING:
    from bonafed.data.federation import Federation


LARGE = 1e100  # squares of numbers beyond it may overflow


Tuned = TypeVar("Tuned", bound=PooledMethod)


class DivergedError(ArithmeticError):
    """The error where model or losses are no longer finite, or beyond ``LARGE``."""


@record
class RankedPoint:
    """The risk over the rows at a model w; arrays have a leading axis for the one client."""

    risk: Annotated[Array, Form("n")]
    weights: Annotated[Array, Form("n, rows")]  # of the rows, by rank
    # (1, n), or (1, n, C): of the loss in the prediction
    gradients: Annotated[Array, Form("n, rows, ...")]
    gradient: Annotated[Array, Form("n, D")]  # of the risk


@record
class Descent:
    """The client's memory, with a leading axis for the one client."""

    w: Annotated[Array, Form("n, D")]  # where the next epoch starts
    best: Annotated[Array, Form("n, D")]  # of all ends of epochs
    value: Annotated[Array, Form("n", infinite=True)]  # its objective
    bound: Annotated[Array, Form("n", infinite=True)]
    constant: Annotated[Array, Form("n", infinite=True)]  # of the combined minorant
    gradient: Annotated[Array, Form("n, D")]
    # the learning rate; NaN while it is not chosen
    rate: Annotated[Array, Form("n", infinite=True, nan=True)]
    steps: Annotated[Array, Form("n")]  # in all, those of abandoned learning rates included
    point: RankedPoint | None  # at w; None before the first round


# ---- steps


def take(data: Block, rows: NDArray[np.intp]) -> Block:
    """Some rows of a block of one client."""
    X = data.X[:, rows] if isinstance(data.X, np.ndarray) else data.X[rows]
    return Block(X, data.y[:, rows], data.share[:, rows], data.index, data.names)


def descend(problem: Problem, w: Array, gradient: Array, rate: float) -> Array:
    """prox_{rate h}(w - rate gradient); an intercept takes the gradient step only."""
    return problem.prox(w - rate * gradient, rate)


def batch_weights(risk: ByRank | ProspectTheory, n: int, size: int) -> Callable[[Array], Array]:
    """The weights of ``size`` rows drawn from n, ranked among themselves.

    The result maps losses (size,) to weights (size,).

    The spectrum is that of the risk, and not its counts: sigma_i = S(i / size) - S((i - 1) / size)
    with S the cumulative sum of the rank weights of all n losses, linear between two of them.
    """
    if not isinstance(risk, ProspectTheory):
        sigma = _spread(risk.rank_weights(n), size)
        return lambda losses: weights_by_rank(sigma, losses)
    below = _spread(risk.rank_weights_below(n), size)
    above = _spread(risk.rank_weights_above(n), size)
    return lambda losses: weights_by_rank(two_sided(below, above, risk.reference, losses), losses)


def _spread(sigma: Array, size: int) -> Array:
    total = np.concatenate([[0.0], np.cumsum(sigma)])
    return np.diff(
        np.interp(np.arange(size + 1) / size, np.arange(len(sigma) + 1) / len(sigma), total)
    )


def finite(numbers: Array) -> Array:
    """The numbers; raises ``DivergedError`` where they are out of range."""
    if not np.abs(numbers).max(initial=0.0) < LARGE:
        raise DivergedError("model or losses are no longer finite")
    return numbers


def evaluate(problem: Problem, w: Array, data: Block) -> RankedPoint:
    """The risk at w, its rank weights and a subgradient.

    It raises ``DivergedError`` where numbers are out of range.
    """
    finite(w)
    prediction = problem.predictor.forward(w, data)
    losses = finite(problem.loss.value(prediction, data.y))
    weights, gradients = (
        problem.row_weights(losses, data),
        problem.loss.gradient(prediction, data.y),
    )
    gradient = problem.predictor.backward(w, by_row(weights, gradients), data)
    return RankedPoint((weights * losses).sum(1), weights, gradients, gradient)


# ---- a round


class EpochMethod(PooledMethod):
    """The base of a method of epochs: SGD and LSVRG."""

    requirements: ClassVar[Requirements] = Requirements(
        clients=ONE_CLIENT, over_samples=MEAN_OR_RANK
    )
    learning_rate: float | None
    grid: Sequence[float] | None
    trial_epochs: int
    start: Array | None
    # (data, walk, generator): the model after one epoch, and the steps it took
    epoch: Callable[..., tuple[Array, int]]

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        rates = [*(self.grid or (1.0,))] if self.learning_rate is None else [self.learning_rate]
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError(
                f"learning rates must be positive numbers, got {rates}. For the paper's grid give"
                " None."
            )
        check_least(self, "trial_epochs", "max_rounds")

    def client_start(self, data: Block) -> Descent:
        return started(with_start(self._problem, self.start, data.n_features), self.learning_rate)

    def advance(
        self, memory: Descent, ask: Advance, data: Block, rng: Streams
    ) -> tuple[Descent, Advanced]:
        """Take one epoch, or in the beginning choose the learning rate.

        Raises
        ------
        DivergedError
            where the model is no longer finite, at all rates of the grid or at the user's rate
        """
        if math.isnan(memory.rate[0]):
            memory = _chosen(self, memory, data, rng)
        else:
            memory = _epoch(self, memory, ask.turn, data, rng(0))
        return memory, standing(memory)


def started(start: Array, rate: float | None) -> Descent:
    """The memory before the first round, at a first model."""
    w, none, flat = start[None], np.full(1, -math.inf), np.zeros_like(start)[None]
    rates = np.array([math.nan if rate is None else rate])
    return Descent(w, w, np.full(1, math.inf), none, np.zeros(1), flat, rates, np.zeros(1), None)


def standing(walk: Descent, finished: float = 0.0) -> Advanced:
    """The upload that describes a walk."""
    value, bound = float(walk.value[0]), float(walk.bound[0])
    return advanced(walk.best[0], value, bound, int(walk.steps[0]), finished=finished)


def _epoch(
    method: EpochMethod, walk: Descent, turn: int, data: Block, generator: np.random.Generator
) -> Descent:
    """The walk after one epoch, evaluated at its end."""
    problem = method._problem
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            if walk.point is None:
                walk = judged(problem, walk, walk.w[0], data)
            w, steps = method.epoch(data, walk, generator)
            walk = judged(problem, walk, w, data)
    except DivergedError as error:
        raise DivergedError(
            f"{error}: {type(method).__name__} diverges at learning rate {float(walk.rate[0]):g}."
            " Give a smaller one, bring the features to unit size, or leave it out to try the"
            " paper's grid."
        ) from None
    walk = replace(walk, steps=walk.steps + steps)
    return proof(problem, walk, turn, data) if is_provable(problem) else walk


def judged(problem: Problem, walk: Descent, w: Array, data: Block) -> Descent:
    """The walk at w, with w as the best model if it is that."""
    point = evaluate(problem, w, data)
    walk = replace(walk, w=w[None], point=point)
    value = float(point.risk[0]) + problem.penalty(w)
    return replace(walk, best=w[None], value=np.array([value])) if value < walk.value[0] else walk


def proof(problem: Problem, walk: Descent, turn: int, data: Block) -> Descent:
    """The walk with the minorant at w averaged in, or in place of the average if it proves more."""
    point = walk.point
    assert point is not None
    new = float(point.risk[0] - point.gradient[0] @ walk.w[0]), point.gradient[0]
    part = 2 / (turn + 2)
    mean = (
        (1 - part) * float(walk.constant[0]) + part * new[0],
        (1 - part) * walk.gradient[0] + part * new[1],
    )
    proofs = [
        (implied(problem, data, *minorant, float(walk.value[0])), minorant)
        for minorant in (mean, new)
    ]
    best, (constant, gradient) = max(proofs, key=lambda proof: proof[0])
    bound = np.maximum(walk.bound, best)
    return replace(walk, bound=bound, constant=np.array([constant]), gradient=gradient[None])


def paper_grid(n: int, d: int) -> tuple[float, ...]:
    """The learning rates that Xiao and others try for n rows of d features."""
    return 1e-2, 1e-3, 1e-4, 1 / n, 1 / (n * d)


def _chosen(method: EpochMethod, start: Descent, data: Block, rng: Streams) -> Descent:
    """The walk of the best rate after its trial epochs."""
    grid = tuple(method.grid or paper_grid(data.y.shape[1], data.n_features))
    tries: list[Descent] = []
    for rate in grid:
        walk, generator = replace(start, rate=np.array([float(rate)])), rng(0)
        try:
            for turn in range(method.trial_epochs):
                walk = _epoch(method, walk, turn, data, generator)
        except DivergedError:
            continue
        tries.append(walk)
    if not tries:
        raise DivergedError(_all_diverge(method, grid))
    best = min(tries, key=lambda walk: float(walk.value[0]))
    return replace(
        best,
        steps=np.sum([walk.steps for walk in tries], 0),
        bound=np.max([w.bound for w in tries], 0),
    )


def _all_diverge(method: object, grid: Sequence[float]) -> str:
    return (
        f"{type(method).__name__} diverges at every learning rate tried"
        f" ({', '.join(f'{rate:g}' for rate in grid)}): bring the features to unit size, or give"
        " smaller rates in grid=."
    )


def tuned(
    algorithm: Tuned,
    problem: Problem,
    fed: Federation,
    grid: Sequence[float] | None = None,
    rounds: int = 20,
    seed: int = 0,
) -> tuple[Tuned, list[dict[str, float]]]:
    """The algorithm with the best learning rate of a grid, and the table of all tries.

    Parameters
    ----------
    algorithm : ``SGD()``, ``LSVRG()`` or ``DCA()``
    problem, fed : as stated; the federation has one client, ``fed.pooled()``
    grid : learning rates; None is the grid of Xiao and others, {1e-2, 1e-3, 1e-4, 1 / n, 1 / (n d)}
    rounds : of every try, each from the algorithm's start and on the same random numbers
    seed : of the random streams

    Returns
    -------
    algorithm with ``learning_rate`` set, and for every rate a row ``{"learning_rate",
    "objective"}``: the lowest objective met, inf where the model stopped being finite

    Raises
    ------
    DivergedError
        where no rate keeps the model finite
    """
    concrete, data = problem.at(fed)
    block = data.block(0)
    grid = tuple(grid or paper_grid(block.y.shape[1], block.n_features))
    table = []
    for rate in grid:
        method = _at_rate(algorithm, float(rate), problem=concrete)
        method.server_start(data.n_clients)  # refuses more than one client
        table.append(
            {"learning_rate": float(rate), "objective": _tried(method, block, rounds, seed)}
        )
    best = min(table, key=lambda row: row["objective"])
    if math.isinf(best["objective"]):
        raise DivergedError(_all_diverge(algorithm, grid))
    return _at_rate(algorithm, best["learning_rate"]), table


def _at_rate(algorithm: Tuned, rate: float, **more: Problem) -> Tuned:
    return type(algorithm)(**settings_of(algorithm) | {"learning_rate": rate} | more)


def _tried(method: PooledMethod, block: Block, rounds: int, seed: int) -> float:
    """The lowest objective of some rounds, or inf."""
    memory, value = method.client_start(block), math.inf
    for turn in range(rounds):
        try:
            memory, up = method.advance(memory, Advance(turn), block, _streams(block, seed, turn))
        except DivergedError:
            return math.inf
        value = float(up.value[0])
    return value


def _streams(block: Block, seed: int, turn: int) -> Streams:
    return lambda position: stream(seed, block.names[position], turn)


def sampled_weights(
    problem: Problem, data: Block, size: int
) -> Callable[[Array, NDArray[np.intp]], Array]:
    """A function of (losses, rows) of a minibatch that returns its weights (size,).

    They are weights by rank, or the rows' shares without ranks.
    """
    n = data.y.shape[1]
    if not by_rank(problem.over_samples):
        return lambda losses, rows: data.share[0, rows] * (n / size)
    law = batch_weights(problem.over_samples, n, size)
    return lambda losses, rows: law(losses)
