"""SGD and LSVRG: stochastic gradients of spectral (rank-based) risks, two baselines.

    SGD     w <- prox_{rate h}( w - rate sum_{i in B} q_i gradient loss_i(w) ),
                    q the rank weights within the minibatch B
    LSVRG   checkpoint w', q = its rank weights, g = sum_i q_i gradient loss_i(w')
            w <- prox_{rate h}( w - rate (q_i / p_i (gradient loss_i(w) - gradient loss_i(w'))
                    + g) ),  i drawn with p_i

An epoch of SGD runs through minibatches of a random permutation of the rows, its remainder left
out. Ranks within a minibatch are not ranks among all rows, so that the steps are biased and w
settles near an optimum, not at it. LSVRG has p_i = 1 / n ("uniform") or p_i = q_i / sum q ("not
uniform"); its checkpoint moves to w at the end of an epoch of ``epoch_length`` steps. In
expectation a step is a gradient step of sum_i q_i loss_i + h: q follows the ranks only at
checkpoints. Mehta, Roulet, Pillutla, Liu and Harchaoui, *Stochastic optimization for spectral risk
measures*, with the prox step in place of the gradient of h. Deviation from the code of Xiao and
others: weights of a minibatch integrate the spectrum at its own size, and margin losses keep labels
-1 and +1.

An epoch ends with a pass over all rows: the objective there (the best model is stored), the rank
weights and a subgradient. A convex Omega lies above Omega(w') + <gradient(w'), w - w'> at every w'
at which it was evaluated, and so above convex combinations of these minorants, which
``single_client.implied`` turns into a bound on the optimum.

With ``learning_rate=None`` the first round tries every rate of a grid for ``trial_epochs`` epochs,
on the same random numbers, and goes on from the best. A model that stops being finite counts as an
infinite objective.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Form, Streams, gradient_at, record

CHUNK = 1024  # rows gathered at a time
LARGE = 1e100  # squares of numbers beyond it may overflow


Tuned = TypeVar("Tuned", bound=ext.PooledMethod)


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


def descend(problem: bf.Problem, w: Array, gradient: Array, rate: float) -> Array:
    """prox_{rate h}(w - rate gradient); an intercept takes the gradient step only."""
    return problem.prox(w - rate * gradient, rate)


def batch_weights(
    risk: ext.ByRank | bf.ProspectTheory, n: int, size: int
) -> Callable[[Array], Array]:
    """The weights of ``size`` rows drawn from n, ranked among themselves.

    The result maps losses (size,) to weights (size,).

    The spectrum is that of the risk, and not its counts: sigma_i = S(i / size) - S((i - 1) / size)
    with S the cumulative sum of the rank weights of all n losses, linear between two of them.
    """
    if not isinstance(risk, bf.ProspectTheory):
        sigma = _spread(risk.rank_weights(n), size)
        return lambda losses: ext.weights_by_rank(sigma, losses)
    sides = (risk.rank_weights_below(n), risk.rank_weights_above(n))
    two = partial(ext.two_sided, *(_spread(sigma, size) for sigma in sides), risk.reference)
    return lambda losses: ext.weights_by_rank(two(losses), losses)


def _spread(sigma: Array, size: int) -> Array:
    total = np.concatenate([[0.0], np.cumsum(sigma)])
    at, known = np.arange(size + 1) / size, np.arange(len(sigma) + 1) / len(sigma)
    return np.diff(np.interp(at, known, total))


def finite(numbers: Array) -> Array:
    """The numbers; raises ``DivergedError`` where they are out of range."""
    if not np.abs(numbers).max(initial=0.0) < LARGE:
        raise DivergedError("model or losses are no longer finite")
    return numbers


def evaluate(problem: bf.Problem, w: Array, data: Block) -> RankedPoint:
    """The risk at w, its rank weights and a subgradient.

    It raises ``DivergedError`` where numbers are out of range.
    """
    finite(w)
    prediction = problem.predictor.forward(w, data)
    losses = finite(problem.loss.value(prediction, data.y))
    weights = problem.row_weights(losses, data)
    gradients = problem.loss.gradient(prediction, data.y)
    gradient = problem.predictor.backward(w, ext.by_row(weights, gradients), data)
    return RankedPoint((weights * losses).sum(1), weights, gradients, gradient)


# ---- a round


class EpochMethod(ext.PooledMethod):
    """The base of a method of epochs: SGD and LSVRG."""

    requirements: ClassVar = ext.Requirements(clients=ext.ONE_CLIENT, over_samples=ext.MEAN_OR_RANK)
    advised: ClassVar[int] = 2
    learning_rate: float | None
    grid: Sequence[float] | None
    trial_epochs: int
    start: Array | None
    # (data, walk, draw): the model after one epoch, and the steps it took
    epoch: Callable[..., tuple[Array, int]]

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        rates = [self.learning_rate, *(() if self.grid is None else self.grid)]
        if not all(rate is None or 0 < rate < math.inf for rate in rates):
            do = "For the paper's grid give None."
            raise ValueError(f"learning_rate and grid must be positive, got {rates}. {do}")
        ext.check_least(self, "trial_epochs", "max_rounds")

    def client_start(self, data: Block) -> Descent:
        first = ext.with_start(self.concrete, self.start, data.n_features)
        return started(first, self.learning_rate)

    def advance(
        self, memory: Descent, ask: ext.Advance, data: Block, rng: Streams
    ) -> tuple[Descent, ext.Advanced]:
        """Take one epoch, or in the beginning choose the learning rate.

        Raises
        ------
        DivergedError
            where the model is no longer finite, at all rates of the grid or at the user's rate
        """
        if not math.isnan(memory.rate[0]):
            memory = self._walked(memory, ask.turn, data, rng(0))
            return memory, standing(memory)
        # the walk of the best rate after its trial epochs
        grid = tuple(() if self.grid is None else self.grid) or paper_grid(
            data.y.shape[1], data.n_features
        )
        tries: list[Descent] = []
        for rate in grid:
            walk, generator = replace(memory, rate=np.array([float(rate)])), rng(0)
            try:
                for turn in range(self.trial_epochs):
                    walk = self._walked(walk, turn, data, generator)
            except DivergedError:
                continue
            tries.append(walk)
        if not tries:
            raise DivergedError(_all_diverge(self, grid))
        best = min(tries, key=lambda walk: float(walk.value[0]))
        best = replace(best, steps=np.sum([walk.steps for walk in tries], 0))
        best = replace(best, bound=np.max([walk.bound for walk in tries], 0))
        return best, standing(best)

    def _walked(self, walk: Descent, turn: int, data: Block, draw: np.random.Generator) -> Descent:
        """The walk after one epoch, evaluated at its end."""
        problem = self.concrete
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                if walk.point is None:
                    walk = judged(problem, walk, walk.w[0], data)
                w, steps = self.epoch(data, walk, draw)
                walk = judged(problem, walk, w, data)
        except DivergedError as error:
            text = f"{error}: {type(self).__name__} diverges at learning rate {walk.rate[0]:g}"
            do = "Give a smaller one, bring the features to unit size, or leave it out to try"
            raise DivergedError(f"{text}. {do} the paper's grid.") from None
        walk = replace(walk, steps=walk.steps + steps)
        return proof(problem, walk, turn, data) if ext.is_provable(problem) else walk


def started(start: Array, rate: float | None) -> Descent:
    """The memory before the first round, at a first model."""
    w, none, flat = start[None], np.full(1, -math.inf), np.zeros_like(start)[None]
    rates = np.array([math.nan if rate is None else rate])
    return Descent(w, w, np.full(1, math.inf), none, np.zeros(1), flat, rates, np.zeros(1), None)


def standing(walk: Descent, finished: float = 0.0) -> ext.Advanced:
    """The upload that describes a walk."""
    value, bound = float(walk.value[0]), float(walk.bound[0])
    return ext.advanced(walk.best[0], value, bound, int(walk.steps[0]), finished=finished)


def judged(problem: bf.Problem, walk: Descent, w: Array, data: Block) -> Descent:
    """The walk at w, with w as the best model if it is that."""
    point = evaluate(problem, w, data)
    walk = replace(walk, w=w[None], point=point)
    value = float(point.risk[0]) + problem.penalty(w)
    return replace(walk, best=w[None], value=np.array([value])) if value < walk.value[0] else walk


def proof(problem: bf.Problem, walk: Descent, turn: int, data: Block) -> Descent:
    """The walk with the minorant at w averaged in, or in place of the average if it proves more."""
    point = walk.point
    assert point is not None
    new = float(point.risk[0] - point.gradient[0] @ walk.w[0]), point.gradient[0]
    old, part = (float(walk.constant[0]), walk.gradient[0]), 2 / (turn + 2)
    mean = (1 - part) * old[0] + part * new[0], (1 - part) * old[1] + part * new[1]
    value = float(walk.value[0])
    proofs = [(ext.implied(problem, data, *each, value), each) for each in (mean, new)]
    best, (constant, gradient) = max(proofs, key=lambda proof: proof[0])
    bound = np.maximum(walk.bound, best)
    return replace(walk, bound=bound, constant=np.array([constant]), gradient=gradient[None])


def paper_grid(n: int, d: int) -> tuple[float, ...]:
    """The learning rates that Xiao and others try for n rows of d features."""
    return 1e-2, 1e-3, 1e-4, 1 / n, 1 / (n * d)


def _all_diverge(method: object, grid: Sequence[float]) -> str:
    tried = f"at every learning rate tried ({', '.join(f'{rate:g}' for rate in grid)})"
    do = "bring the features to unit size, or give smaller rates in grid=."
    return f"{type(method).__name__} diverges {tried}: {do}"


def tuned(
    algorithm: Tuned,
    problem: bf.Problem,
    fed: bf.Federation,
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
    block, table = data.block(0), []
    stated: Any = algorithm
    rates = tuple(grid or paper_grid(block.y.shape[1], block.n_features))
    for rate in map(float, rates):
        method = replace(stated, learning_rate=rate, problem=concrete)
        method.server_start(data.n_clients)  # refuses more than one client
        memory, value = method.client_start(block), math.inf
        try:
            for turn in range(rounds):
                ask, rng = ext.Advance(turn), ext.stream(seed, block.names[0], turn)
                memory, up = method.advance(memory, ask, block, lambda _, rng=rng: rng)
                value = float(up.value[0])
        except DivergedError:
            value = math.inf
        table.append({"learning_rate": rate, "objective": value})
    best = min(table, key=lambda row: row["objective"])
    if math.isinf(best["objective"]):
        raise DivergedError(_all_diverge(algorithm, rates))
    return replace(stated, learning_rate=best["learning_rate"]), table


# ---- the two methods


@dataclass(frozen=True)
class SGD(EpochMethod):
    """Minibatch subgradient steps on pooled rows; one round is one epoch.

    Parameters
    ----------
    learning_rate : of every step; None: the rates of ``grid`` are tried in the first round and the
        best one kept
    batch : rows of a minibatch; all of them where there are fewer
    grid : learning rates; None is the grid of Xiao and others, {1e-2, 1e-3, 1e-4, 1 / n, 1 / (n d)}
    trial_epochs : epochs of every rate of the grid. The published figures rest on full runs of
        every rate: that is ``tuned(algorithm, problem, fed, rounds=2000)`` of
        ``bonafed.papers.rank.stochastic``
    tol, atol : stop when a gap of max(atol, tol max(|value|, |bound|)) is proven (convex problems)
    max_rounds : a cap on epochs
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for a Wasserstein ball over samples, more than one client, or settings out of range
    DivergedError
        where the model stops being finite

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.SGD(max_rounds=20))
    >>> bool(solution.certificate.relative_gap < 0.1)
    True
    """

    learning_rate: float | None = None
    batch: int = 64
    grid: Sequence[float] | None = None
    trial_epochs: int = 20
    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 2000
    start: Array | None = None
    problem: bf.Problem | None = None

    def __post_init__(self) -> None:
        ext.check_least(self, "batch", meaning=": it is the number of rows of a minibatch")
        self.check_settings()

    def epoch(self, data: Block, walk: Descent, draw: np.random.Generator) -> tuple[Array, int]:
        """The model after one step for each minibatch, and their number."""
        problem, n, w, rate = self.concrete, data.y.shape[1], walk.w[0], float(walk.rate[0])
        size, order, law = min(self.batch, n), draw.permutation(n), None
        if ext.by_rank(problem.over_samples):
            law = batch_weights(problem.over_samples, n, size)
        for rows in order[: n // size * size].reshape(-1, size):
            batch = take(data, rows)
            prediction = problem.predictor.forward(w, batch)
            losses = finite(problem.loss.value(prediction, batch.y))
            weights = data.share[0, rows] * (n / size) if law is None else law(losses[0])
            gradients = ext.by_row(weights[None], problem.loss.gradient(prediction, batch.y))
            w = descend(problem, w, problem.predictor.backward(w, gradients, batch)[0], rate)
        return w, n // size


@dataclass(frozen=True)
class LSVRG(EpochMethod):
    """Variance-reduced gradient steps on pooled rows; one round is one epoch.

    Parameters
    ----------
    learning_rate : of every step; None: the rates of ``grid`` are tried in the first round and the
        best one kept
    uniform : rows are drawn alike; False: in proportion to their rank weights
    epoch_length : steps between two checkpoints
    grid : learning rates; None is the grid of Xiao and others, {1e-2, 1e-3, 1e-4, 1 / n, 1 / (n d)}
    trial_epochs : epochs of every rate of the grid. The published figures rest on full runs of
        every rate: that is ``tuned(algorithm, problem, fed, rounds=2000)`` of
        ``bonafed.papers.rank.stochastic``
    tol, atol : stop when a gap of max(atol, tol max(|value|, |bound|)) is proven (convex problems)
    max_rounds : a cap on epochs
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for a Wasserstein ball over samples, more than one client, or settings out of range
    DivergedError
        where the model stops being finite

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.LSVRG(max_rounds=5))
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    learning_rate: float | None = None
    uniform: bool = True
    epoch_length: int = 100
    grid: Sequence[float] | None = None
    trial_epochs: int = 20
    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 2000
    start: Array | None = None
    problem: bf.Problem | None = None

    def __post_init__(self) -> None:
        ext.check_least(self, "epoch_length", meaning=": it is a number of steps")
        self.check_settings()

    def epoch(self, data: Block, walk: Descent, draw: np.random.Generator) -> tuple[Array, int]:
        """The model after ``epoch_length`` steps from the checkpoint w, and their number."""
        problem, w, rate = self.concrete, walk.w[0], float(walk.rate[0])
        point, steps = walk.point, self.epoch_length
        assert point is not None
        weights = point.weights[0]
        n, total = len(weights), float(weights.sum())
        # the rows of the steps, and their weights over their probabilities
        if self.uniform:
            drawn = draw.integers(n, size=steps)
            gain = n * weights[drawn]
        else:
            drawn, gain = draw.choice(n, size=steps, p=weights / total), np.full(steps, total)
        fast = scalar_form(problem, data.n_features)
        for at in range(0, steps, CHUNK):
            rows, part = drawn[at : at + CHUNK], gain[at : at + CHUNK]
            if fast is None:
                w = slow_steps(problem, data, w, rows, part, point, rate)
                continue
            X = data.X[0][rows] if isinstance(data.X, np.ndarray) else data.X[rows].toarray()
            y, w = data.y[0][rows], w.copy()
            margin = problem.loss.targets == "sign"
            sign, shift = (-y, np.zeros_like(y)) if margin else (np.ones_like(y), y)
            old, mean = point.gradients[0][rows], point.gradient[0].copy()
            _steps(w, X, sign, shift, part, old, mean, rate, *fast)
        return w, steps


def scalar_form(problem: bf.Problem, n_features: int) -> tuple[Any, Any] | None:
    """Loss (its kernel) and regulariser (l1 and l2 strengths, bounds (d,), whether a last entry is
    free) as the compiled steps take them; None where they have no such form.
    """
    try:
        kernel = ext.kernel_of(problem.loss)
        l1, l2, lower, upper = ext.regulariser_parts(problem.regulariser)
    except (TypeError, ValueError):
        return None
    if not isinstance(problem.predictor, bf.Linear):
        return None
    edges = (np.broadcast_to(np.asarray(e, float), n_features).copy() for e in (lower, upper))
    return tuple(kernel), (float(l1), float(l2), *edges, bool(problem.predictor.intercept))


def slow_steps(
    problem: bf.Problem,
    data: Block,
    w: Array,
    rows: NDArray[np.intp],
    gain: Array,
    point: RankedPoint,
    rate: float,
) -> Array:
    """The steps of an epoch for any loss, predictor and regulariser with a prox."""
    for j, weight in zip(rows, gain, strict=True):
        row = take(data, np.array([j]))
        gradient = problem.loss.gradient(problem.predictor.forward(w, row), row.y)
        change = weight * (gradient - point.gradients[:, j : j + 1])
        pull = problem.predictor.backward(w, change, row)[0]
        w = descend(problem, w, pull + point.gradient[0], rate)
    return w


# Steps of variance-reduced stochastic gradients on scalar losses, one row a step, O(d) each.
#
#     w <- prox_{rate h}( w - rate (gain_j (s_j(w) - s_j) x_j + mean) ),  s_j(w) = sign_j l'(t_j),
#     t_j = sign_j <x_j, w> - shift_j
#
# s_j and ``mean`` belong to a checkpoint; h = l1 ||w||_1 + l2 ||w||^2 / 2 on lower <= w <= upper, a
# last intercept free.

# numba's cache checks this file only: touch it after a change in the module below


@njit(cache=True)
def _steps(w, rows, sign, shift, gain, old, mean, rate, kernel, h):
    (kind, knot, width, even), (l1, l2, lower, upper, intercept) = kernel, h
    d, soft, shrink = rows.shape[1], rate * l1, 1.0 / (1.0 + rate * l2)
    for j in range(len(rows)):
        prediction = w[d] if intercept else 0.0
        for k in range(d):
            prediction += rows[j, k] * w[k]
        t = sign[j] * prediction - shift[j]
        if even:
            gradient = 0.0 if t == 0.0 else np.sign(t) * gradient_at(kind, knot, width, abs(t))
        else:
            gradient = gradient_at(kind, knot, width, t)
        pull = gain[j] * (sign[j] * gradient - old[j])
        for k in range(d):
            v = w[k] - rate * (pull * rows[j, k] + mean[k])
            v = shrink * (max(v - soft, 0.0) + min(v + soft, 0.0))
            w[k] = min(max(v, lower[k]), upper[k])
        if intercept:
            w[d] -= rate * (pull + mean[d])
