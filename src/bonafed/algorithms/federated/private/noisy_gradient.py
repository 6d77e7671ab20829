"""A client's noisy gradient: what all private methods answer with, and the keys of its noise.

A client's rows reach an answer through one clipped gradient with noise, a_p sum_i clip(l'(z_p)) +
xi_p, and through nothing else. Who uses it, and where it is taken, is the method's business.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms.federated.private.integer_gradient import IntegerRows, shortened
from bonafed.algorithms.federated.private.mechanism import (
    COUNTED,
    L1,
    Grid,
    Mechanism,
    Whole,
    softmax_gradient,
)
from bonafed.arrays import Array, Block, Streams, unwritable, writable
from bonafed.codec import Form
from bonafed.privacy.budget import BudgetSpentError
from bonafed.privacy.discrete_noise import Kind, add_noise
from bonafed.privacy.keystream import taken
from bonafed.problem.constraints.constraint import once
from bonafed.problem.losses import Multinomial
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.rounds import record

# clients are summed in so many groups; the number is fixed, so that threads do not change the sums
GROUPS = 8
ALONE = 10_000_000  # fewer multiplications are done before several threads have started


@record
class NoiseKeys:
    """What a client keeps so that no noise is used twice, and no answer is one too many."""

    answered: Annotated[Array, Form("n")]  # rounds
    # the key of its noise, and a digest of all it was asked; (n, 0) in simulations
    secret: Annotated[NDArray[np.uint8], Form("n, 32|0")]
    asked: Annotated[NDArray[np.uint8], Form("n, 32|0")]


Memory = TypeVar("Memory", bound=NoiseKeys)


@dataclass(frozen=True, eq=False)
class Told:
    """A model (D,) as the server told it, and what clients need to know of it: it in their
    precision, whether its numbers are finite, and the SHA-256 of what they use.
    """

    given: Array
    model: Array
    finite: bool
    digest: bytes

    @classmethod
    def of(cls, given: Array, precision: Any) -> "Told":
        """Clients of one process are told the same model one after another: the last one is kept,
        and an equal one is found sooner than all this is computed.
        """
        last = _LAST[0] if _LAST else None
        if last is None or last.model.dtype != precision or not np.array_equal(last.given, given):
            model = given.astype(precision)
            digest = hashlib.sha256(model.tobytes()).digest()
            last = cls(given.copy(), model, bool(np.isfinite(given).all()), digest)
            _LAST[:] = [last]
        return last


_LAST: list[Told] = []


@dataclass(frozen=True, eq=False)
class Question:
    """What the clients of a block are asked, as far as their gradients and noise depend on it.

    Attributes
    ----------
    models : (n, D) where every client takes its gradient
    asked : (n, 32) a digest of all that each client was asked so far, this question the last; in a
        simulation, of this question's settings only
    """

    models: Array
    asked: NDArray[np.uint8]

    @classmethod
    def of(
        cls, plan: Mechanism, memory: NoiseKeys, models: Array, told: Told, numbers: tuple
    ) -> "Question":
        """The question with the model that the clients were ``told`` and public numbers."""
        words = _about(plan, (*numbers, 1.0))
        if memory.secret.size:
            words += told.digest
        latest = hashlib.blake2b(words, digest_size=32).digest()
        each = [hashlib.blake2b(past.tobytes() + latest, digest_size=32) for past in memory.asked]
        return cls(models, np.array([np.frombuffer(digest.digest(), np.uint8) for digest in each]))


def _about(mechanism: Mechanism, numbers: tuple[float, ...]) -> bytes:
    """The settings that the noise depends on, so that other runs of a ledger have other noise.

    In a simulation, runs on other rows or with another loss under the same settings and seed have
    the same noise, which can be subtracted.
    """
    it = mechanism
    plan = it.multiplier, it.clip, it.bound, it.output, it.rounds, it.place
    plan = plan if it.missing is None else (*plan, it.missing)
    numbers += (it.rate, bool(it.counts)) if it.rate < 1 or it.counts else ()
    told = np.array([*plan, *numbers], float).tobytes()
    return str(it.kind).encode() + told + it.weight.tobytes()


def new_keys(mechanism: Mechanism, n: int) -> tuple[Array, NDArray[np.uint8], NDArray[np.uint8]]:
    """The first ``NoiseKeys`` of n clients, with a key of the noise from the system."""
    length = 32 if mechanism.source == "secure" and mechanism.kind else 0
    secret = np.frombuffer(os.urandom(length * n), np.uint8).reshape(n, length)
    return np.zeros(n), secret, np.zeros_like(secret)


def answered(memory: Memory, question: Question, **changes: Array) -> Memory:
    """The memory of clients once they have answered the question, with what else has changed."""
    asked = question.asked if memory.secret.size else memory.asked
    return replace(memory, answered=memory.answered + 1, asked=asked, **changes)


def check_question(mechanism: Mechanism, memory: NoiseKeys, well_formed: bool) -> None:
    """Refuse a question that the budget does not pay for, before anything is released."""
    if not mechanism.kind:
        return
    if (memory.answered >= mechanism.rounds).any():
        raise BudgetSpentError(
            f"the budget pays for {mechanism.rounds} answers, and all are released: another one"
            " would overspend. Nothing was released."
        )
    if not well_formed:
        raise ValueError(
            "the server's question is not of finite numbers > 0: nothing was released."
        )


def in_groups(
    n: int, work: int, sizes: Sequence[int], add: Callable[[int, list[Array]], None]
) -> list[Array]:
    """The sums (1, size) over n clients: ``add`` adds what client i has to the sums (size,) of its
    group, in threads where the work of so many multiplications is worth them.
    """
    from numba import config

    groups = min(n, GROUPS)
    parts = [np.zeros((groups, size)) for size in sizes]

    def serve(group: int) -> None:
        for i in range(group, n, GROUPS):
            add(i, [part[group] for part in parts])

    threads = min(groups, config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]
    if threads == 1 or work < ALONE:
        list(map(serve, range(groups)))
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(serve, range(groups)))
    with np.errstate(all="ignore"):  # the server reports what is not finite
        return [part.sum(0, keepdims=True) for part in parts]


Gradients = Callable[[int], tuple[Array, float]]  # of a client's position in the block


def noisy_gradients(
    problem: Problem, plan: Mechanism, memory: NoiseKeys, asked: Question, data: Block, rng: Streams
) -> Gradients:
    """The function that gives, for a client's position in the block, its gradient with noise,
    f_p' + xi_p, and E |xi_p|. Where the mechanism counts, the noisy share of the rows that are not
    shortened, less that of those that are, is appended.
    """
    if plan.kind is None:
        exact = exact_gradients(problem, plan, asked.models, data)
        return lambda i: (exact(i)[0], 0.0)
    size = plan.mean_size[data.index]

    def on_grid(i: int) -> tuple[Array, float]:
        v, grid = asked.models[i], plan.grid(int(data.index[i]))
        at, more = None, 0  # all rows
        if plan.rate < 1:
            key = _key(memory, asked, rng, i, b"bonafed rows")
            at = taken(key, int((data.share[i] > 0).sum()), plan.rate)
        if is_affine(problem.predictor):
            rows = IntegerRows.of(problem, plan, data, i)
            rows = rows if at is None else rows.of_rows(at)
            total, more = rows.counted(problem, plan, v)
        else:
            total = whole_sum(problem, plan.clip, grid, v, data, i, at)
        noisy = _scaled(with_noise(plan, memory, asked, rng, i, total), grid.unit)
        if not plan.counts:
            return noisy, size[i]
        count = np.array([more * COUNTED])
        key = _key(memory, asked, rng, i, b"bonafed count")
        add_noise("gaussian", plan.count_noise, key, count)
        return np.append(noisy, plan.count_unit[data.index[i]] * count), size[i]

    return on_grid


def exact_gradients(problem: Problem, plan: Mechanism, models: Array, data: Block) -> Gradients:
    """The function that gives, for a client's position in the block, f_p' at its model in floating
    point and the largest part of a row in it before clipping (0 for a module).
    """
    weight = plan.weight[data.index]
    if not is_affine(problem.predictor):
        return lambda i: (weight[i] * real_sum(problem, plan, models[i], data, i), 0.0)
    rows = Rows.of(problem, plan, data)

    def at(i: int) -> tuple[Array, float]:
        g, largest = rows.gradient(problem, plan, models[i], data, i)
        return weight[i] * g, weight[i] * largest

    return at


@njit(cache=True, nogil=True)
def _scaled(total, unit):
    """unit * total, in the memory of the total."""
    scaled = total.view(np.float64)
    for j in range(len(total)):
        scaled[j] = unit * total[j]
    return scaled


def with_noise(
    plan: Mechanism, memory: NoiseKeys, asked: Question, rng: Streams, i: int, total: Whole
) -> Whole:
    """A sum in grid steps of client i of a block, to which its noise is added in place."""
    if noise := plan.noise:
        add_noise(cast(Kind, plan.kind), noise, _key(memory, asked, rng, i), total)
    return total


def _key(
    memory: NoiseKeys, question: Question, rng: Streams, i: int, use: bytes = b"bonafed noise"
) -> bytes:
    """The key of client i's noise for what it was asked, and for nothing else; or that of its
    sample of rows.

    The same questions get the same answer, so that a round may be repeated; others never meet the
    same noise, which could be subtracted.
    """
    secret, asked = memory.secret[i].tobytes() or rng(i).bytes(32), question.asked[i].tobytes()
    return hashlib.blake2b(asked, key=secret, digest_size=32, person=use).digest()


# A client's sum of clipped gradients in floating point, for runs that guarantee nothing.
#
# These are runs without privacy, and those with the paper's own mechanisms. Answers that keep a
# budget take their gradient from ``integer_gradient``.


def precision(data: Block) -> np.dtype:
    """The type of a client's model: single precision where its rows are."""
    kind = data.X.dtype
    return kind if kind == np.float32 else np.dtype(float)


# larger gradients, also infinite ones, count as this large; by the bytes of a number
STEEP = {4: 1e30, 8: 1e100}


@dataclass(frozen=True, eq=False)
class Rows:
    """The numbers of a block's rows that the mechanism needs, computed once."""

    count: NDArray[np.int64]  # (n,) rows
    codes: NDArray[np.int32] | None  # (n, m) classes, where the compiled pass applies
    factor: Array  # (n, m) shortens a row to the bound
    length: Array  # (n, m) the norm of the shortened row, an intercept's 1 included

    @classmethod
    def of(cls, problem: Problem, mechanism: Mechanism, data: Block) -> "Rows":
        key = "rows of private ADMM", mechanism.norm, mechanism.bound, problem.predictor.intercept
        return once(data, key, lambda: cls._computed(problem, mechanism, data))

    @classmethod
    def _computed(cls, problem: Problem, mechanism: Mechanism, data: Block) -> "Rows":
        X, one = data.X, float(problem.predictor.intercept)
        if not isinstance(X, np.ndarray):
            length = abs(X).sum(-1) if mechanism.norm == L1 else np.sqrt(X.multiply(X).sum(-1))
        elif mechanism.norm == L1:
            length = np.stack([np.abs(rows).sum(-1, dtype=float) for rows in X])
        else:
            length = np.sqrt(np.einsum("nmd,nmd->nm", X, X, dtype=float))
        length = np.asarray(length, float).reshape(data.y.shape)
        with np.errstate(divide="ignore"):
            factor = np.minimum(1.0, mechanism.bound / length)
        if np.isfinite(mechanism.bound):
            length = factor * np.where(length > 0, length, 0.0)
        length = length + one if mechanism.norm == L1 else np.hypot(length, one)
        fused = isinstance(problem.loss, Multinomial) and isinstance(X, np.ndarray)
        codes = data.y.astype(np.int32) if fused else None
        numbers = factor.astype(precision(data)), length.astype(precision(data))
        return cls((data.share > 0).sum(1), codes, *numbers)

    def value_and_gradient(
        self, problem: Problem, v: Array, data: Block, i: int
    ) -> tuple[float, Array]:
        """A client's sum of losses and its gradient, with rows shortened and nothing clipped."""
        block, m = data.part(np.array([i])), self.count[i]
        prediction = self._predicted(problem, v, block, i)
        alive = np.arange(block.y.shape[1]) < m
        gradient = problem.loss.gradient(prediction, block.y)
        gradient = np.where(_wide(alive, gradient), gradient, 0.0)
        value = float(np.where(alive, problem.loss.value(prediction, block.y), 0.0).sum())
        return value, self._back(problem, v, gradient, block, i)

    def gradient(
        self, problem: Problem, mechanism: Mechanism, v: Array, data: Block, i: int
    ) -> tuple[Array, float]:
        """The sum of client i's clipped gradients (D,), and the largest norm before clipping."""
        block, m = data.part(np.array([i])), self.count[i]
        if self.codes is not None:
            Z = writable(v).reshape(block.n_features, -1)
            G = np.empty_like(Z)
            X = unwritable(np.asarray(block.X))[0, :m]
            client_rows = X, self.codes[i, :m], Z, self.factor[i, :m], self.length[i, :m]
            largest = softmax_gradient(*client_rows, mechanism.clip, mechanism.norm, G)
            return G.reshape(-1), largest
        # whatever the rows and the model are, no row counts for more than clip
        with np.errstate(all="ignore"):
            gradient = problem.loss.gradient(self._predicted(problem, v, block, i), block.y)
            alive = _wide(np.arange(block.y.shape[1]) < m, gradient)
            gradient = np.where(alive, np.asarray(gradient, float), 0.0)
            if mechanism.clip < np.inf:
                most = STEEP[self.length.itemsize]
                gradient = np.clip(np.nan_to_num(gradient, posinf=most, neginf=-most), -most, most)
            flat = gradient.reshape(block.y.shape[1], -1)
            size = np.abs(flat).sum(1) if mechanism.norm == L1 else np.sqrt((flat**2).sum(1))
            size = size * self.length[i]
            shrink = np.where(size > mechanism.clip, mechanism.clip / size, 1.0)
            gradient = (gradient * _wide(shrink, gradient)).astype(self.length.dtype)
            return self._back(problem, v, gradient, block, i), float(size.max(initial=0.0))

    def _predicted(self, problem: Problem, v: Array, block: Block, i: int) -> Array:
        prediction = problem.predictor.forward(v[None], block)
        if not (self.factor[i] < 1).any():
            return prediction
        b = np.asarray(problem.predictor.split(v)[1])
        return b + _wide(self.factor[i], prediction) * (prediction - b)

    def _back(self, problem: Problem, v: Array, gradient: Array, block: Block, i: int) -> Array:
        """The gradients times the shortened rows, summed; an intercept's 1 is not shortened."""
        slopes = gradient * _wide(self.factor[i], gradient)
        total = problem.predictor.backward(v[None], slopes, block)[0]
        if problem.predictor.intercept:
            total[-1] = gradient.sum()
        return total


def _wide(rows: Array, values: Array) -> Array:
    """(m,) as (1, m), or as (1, m, 1) for several numbers a row."""
    return rows.reshape(1, -1, *(1,) * (values.ndim - 2))


# A client's sum of clipped gradients of a torch module, whose rows are passed one by one.
#
# The gradient g_i of a row is rounded to whole numbers,
#
#     k_i = round(min(1, C / ||g_i||) g_i steps / C),
#
# and ||k_i|| <= steps is checked in integers, so that rounding is inside the sensitivity, as in
# ``integer_gradient``. The sum of the k_i is exact in any order.
#
# Libraries choose their instructions by the shape of a product: in a batch, the last bits of a
# row's gradient change with the number of rows beside it, so that one record more would move the
# others' k_i. Every row therefore has a separate pass, always of the same shape, and k_i is a
# function of the row, the model, the machine and its libraries only.


Some = NDArray[np.intp] | None  # positions of rows; None: all


def whole_sum(
    problem: Problem, clip: float, grid: Grid, v: Array, data: Block, i: int, at: Some = None
) -> Whole:
    """The integer sum (D,) of the gradients of client i's rows, or of those ``at`` some positions,
    at the model v, in grid steps.
    """
    total = np.zeros(len(v), np.int64)
    for g in _gradients(problem, v, data, i, at):
        total += rounded(g, clip, grid)
    return grid.held(total)


def real_sum(problem: Problem, mechanism: Mechanism, v: Array, data: Block, i: int) -> Array:
    """The sum in doubles, for runs that guarantee nothing."""
    total = np.zeros(len(v))
    for g in _gradients(problem, v, data, i):
        long = float(np.linalg.norm(g, mechanism.norm))
        total += g * (mechanism.clip / long) if long > mechanism.clip else g
    return total


def rounded(g: Array, clip: float, grid: Grid) -> Whole:
    """A row's gradient (D,) on the grid, of norm at most ``steps``.

    One with numbers that are not finite counts for nothing.
    """
    top = float(np.abs(g).max(initial=0.0))
    if not 0 < top < np.inf:
        return np.zeros(len(g), np.int64)
    g = g / top  # so that no square overflows
    long, steps = float(np.linalg.norm(g, grid.norm)), grid.steps
    with np.errstate(over="ignore"):
        factor = min(np.float64(top) / clip * steps, steps / long)
    return shortened(np.rint(g * factor)[None], np.ones(1, np.int64), grid)[0].astype(np.int64)


def _gradients(problem: Problem, v: Array, data: Block, i: int, at: Some = None) -> Iterator[Array]:
    """The gradients (D,) of client i's rows at the model v, one by one."""
    module: Any = problem.predictor
    m = int((data.share[i] > 0).sum())
    X = data.X[i, :m] if isinstance(data.X, np.ndarray) else data.X[:m].toarray()
    y = data.y[i, :m]
    X, y = (X, y) if at is None else (X[at], y[at])

    def slope(prediction: Array, row: int) -> Array:
        """The loss's gradient in the predictions (1, K) of a row."""
        given = prediction if problem.loss.targets == "class" else prediction[:, 0]
        with np.errstate(all="ignore"):
            return problem.loss.gradient(given, y[row : row + 1])

    return module.row_gradients(v, X, slope)
