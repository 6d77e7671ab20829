"""A client's noisy gradient: what all private methods answer with, and the keys of its noise.

A client's rows reach an answer through one clipped gradient with noise, a_p sum_i clip(l'(z_p)) +
xi_p, and through nothing else. Who uses it, and where it is taken, is the method's business.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms.federated.private.float_gradient import Rows
from bonafed.algorithms.federated.private.integer_gradient import IntegerRows
from bonafed.algorithms.federated.private.mechanism import COUNTED, Mechanism
from bonafed.algorithms.federated.private.row_gradients import real_sum, whole_sum
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.privacy.budget import BudgetSpentError
from bonafed.privacy.discrete_noise import Kind, add_noise
from bonafed.privacy.keystream import taken
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
    def of(cls, given: Array, precision: Any) -> Told:
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
        cls,
        mechanism: Mechanism,
        memory: NoiseKeys,
        models: Array,
        told: Told,
        numbers: tuple[float, ...],
    ) -> Question:
        """The question with the model that the clients were ``told`` and public numbers."""
        words = _about(mechanism, (*numbers, 1.0))
        if memory.secret.size:
            words += told.digest
        latest = hashlib.blake2b(words, digest_size=32).digest()
        each = [hashlib.blake2b(past.tobytes() + latest, digest_size=32) for past in memory.asked]
        asked = [np.frombuffer(digest.digest(), np.uint8) for digest in each]
        return cls(models, np.array(asked))


def _about(mechanism: Mechanism, numbers: tuple[float, ...]) -> bytes:
    """The settings that the noise depends on, so that other runs of a ledger have other noise.

    In a simulation, runs on other rows or with another loss under the same settings and seed have
    the same noise, which can be subtracted.
    """
    it = mechanism
    plan = it.multiplier, it.clip, it.bound, it.output, it.rounds, it.place
    plan = plan if it.missing is None else (*plan, it.missing)
    numbers += (it.rate, bool(it.counts)) if it.rate < 1 or it.counts else ()
    return (
        str(it.kind).encode() + np.array([*plan, *numbers], float).tobytes() + it.weight.tobytes()
    )


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


def each_of(serve: Callable[[int], None], groups: int, work: int) -> None:
    """Serve every group, in threads where the work of so many multiplications is worth them."""
    from numba import config

    threads = min(groups, config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]
    if threads == 1 or work < ALONE:
        for group in range(groups):
            serve(group)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(serve, range(groups)))


def noisy_gradients(
    problem: Problem,
    mechanism: Mechanism,
    memory: NoiseKeys,
    question: Question,
    data: Block,
    rng: Streams,
) -> Callable[[int], tuple[Array, float]]:
    """The function that gives, for a client's position in the block, its gradient with noise,
    f_p' + xi_p, and E |xi_p|. Where the mechanism counts, the noisy share of the rows that are not
    shortened, less that of those that are, is appended.
    """
    if mechanism.kind is None:
        exact = exact_gradients(problem, mechanism, question.models, data)
        return lambda i: (exact(i)[0], 0.0)
    size = mechanism.mean_size[data.index]

    def on_grid(i: int) -> tuple[Array, float]:
        v, grid = question.models[i], mechanism.grid(int(data.index[i]))
        at, more = None, 0  # all rows
        if mechanism.rate < 1:
            key = _key(memory, question, rng, i, b"bonafed rows")
            at = taken(key, int((data.share[i] > 0).sum()), mechanism.rate)
        if is_affine(problem.predictor):
            rows = IntegerRows.of(problem, mechanism, data, i)
            rows = rows if at is None else rows.of_rows(at)
            total, more = rows.counted(problem, mechanism, v)
        else:
            total = whole_sum(problem, mechanism.clip, grid, v, data, i, at)
        with_noise(mechanism, memory, question, rng, i, total)
        noisy = _scaled(total, grid.unit)
        if not mechanism.counts:
            return noisy, size[i]
        count = np.array([more * COUNTED])
        key = _key(memory, question, rng, i, b"bonafed count")
        add_noise("gaussian", mechanism.count_noise, key, count)
        return np.append(noisy, mechanism.count_unit[data.index[i]] * count), size[i]

    return on_grid


def exact_gradients(
    problem: Problem, mechanism: Mechanism, models: Array, data: Block
) -> Callable[[int], tuple[Array, float]]:
    """The function that gives, for a client's position in the block, f_p' at its model in floating
    point and the largest part of a row in it before clipping (0 for a module).
    """
    weight = mechanism.weight[data.index]
    if not is_affine(problem.predictor):
        return lambda i: (weight[i] * real_sum(problem, mechanism, models[i], data, i), 0.0)
    rows = Rows.of(problem, mechanism, data)

    def at(i: int) -> tuple[Array, float]:
        g, largest = rows.gradient(problem, mechanism, models[i], data, i)
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
    mechanism: Mechanism,
    memory: NoiseKeys,
    question: Question,
    rng: Streams,
    i: int,
    total: NDArray[np.int64],
) -> NDArray[np.int64]:
    """A sum in grid steps of client i of a block, to which its noise is added in place."""
    if noise := mechanism.noise:
        key = _key(memory, question, rng, i)
        add_noise(cast(Kind, mechanism.kind), noise, key, total)
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
