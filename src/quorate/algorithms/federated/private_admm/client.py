"""The client half of the private ADMM: its messages, its memory, and one round.

    z_p^{t+1} = argmin_{z in W}  <f_p'(z_p^t) + xi_p - lambda_p, z> + rho ||w - z||^2 / 2 + near(z,
    z_p^t)  (8), (9)
    lambda_p^{t+1} = lambda_p^t + rho (w - z_p^{t+1})                                           (4c)

Ryu and Kim, *Differentially private federated learning via inexact ADMM with multiple local
updates*, first version; equation numbers are theirs. f_p(z) = a_p sum_i l(z; x_pi, y_pi) with
public a_p. A sum over all clients of functions of z_p^{t+1} is all that leaves a client, and
z_p^{t+1} depends on the data through one clipped gradient with noise.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.private_admm import kernels
from quorate.arrays import Array, Block, Streams, unwritable, writable
from quorate.codec import Extended, Form
from quorate.privacy.budget import BudgetSpentError
from quorate.privacy.mechanisms import KINDS, MEAN_SIZE, fill, secure
from quorate.problem.constraints.constraint import once
from quorate.problem.losses import Multinomial
from quorate.problem.problem import Problem
from quorate.problem.regularisers import Bounds
from quorate.rounds import Sum, record
from quorate.solvers.smooth.newton import lbfgs


@record
class Perturb:
    """The server's w^{t+1}: answer with z_p^{t+1} and lambda_p^{t+1}."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=1)]  # t, from 1
    rho: float
    next_rho: float  # of the next round
    reach: Extended  # 1 / eta^t or delta^t
    scale: float  # of the noise, relative to the plan: 1 except as published


@record
class Perturbed:
    """The client's answer: functions of the noisy z_p^{t+1} alone."""

    shifted: Sum  # (1, D) sum of z_p - lambda_p / rho
    gap: Sum  # (n,) ||w - z_p||_1
    # (n,) E |xi|, which is public; the mean of |xi| itself would reveal xi beside z_p
    noise: Sum


@record
class PrivateMemory:
    """The memory of a client."""

    z: Annotated[Array, Form("n, D")]
    dual: Annotated[Array, Form("n, D")]  # lambda_p
    answered: Annotated[Array, Form("n")]  # rounds
    # the key of its noise; (n, 0) in simulations
    secret: Annotated[NDArray[np.uint8], Form("n, 32|0")]


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
    output : noise is added to z_p
    features : d
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
    place: int = 0
    engine: str = ""

    @property
    def norm(self) -> int:
        return kernels.L1 if self.kind == "laplace" else kernels.L2


def start(problem: Problem, mechanism: Mechanism, w: Array, data: Block) -> PrivateMemory:
    """The first memory: z_p^1 = w^1, lambda_p^1 = 0, and a key of the noise from the system."""
    n = len(data.names)
    z = np.tile(w, (n, 1)).astype(_dtype(data))
    length = 32 if mechanism.source == "secure" and mechanism.kind else 0
    secret = np.frombuffer(os.urandom(length * n), np.uint8).reshape(n, length)
    return PrivateMemory(z, np.zeros_like(z), np.zeros(n), secret)


def _dtype(data: Block) -> np.dtype:
    kind = data.X.dtype
    return kind if kind == np.float32 else np.dtype(float)


def _check_ask(mechanism: Mechanism, memory: PrivateMemory, ask: Perturb) -> None:
    """Refuse a question that the budget does not pay for, before anything is released."""
    if (memory.answered >= mechanism.rounds).any():
        raise BudgetSpentError(
            f"the budget pays for {mechanism.rounds} answers, and all are released: another one"
            " would overspend. Nothing was released."
        )
    if not mechanism.caveat and ask.scale != 1:
        raise ValueError(
            f"the server asks for {ask.scale} times the noise that was planned: nothing was"
            " released."
        )
    if not (np.isfinite(ask.w).all() and 0 < ask.rho < np.inf and ask.reach > 0):
        raise ValueError(
            "the server's question is not of finite numbers > 0: nothing was released."
        )


def perturb(
    problem: Problem,
    mechanism: Mechanism,
    near: int,
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    rng: Streams,
) -> tuple[PrivateMemory, Perturbed]:
    """Carry out a round at the clients of a block: step (8) or (9), and (4c)."""
    if mechanism.kind:
        _check_ask(mechanism, memory, ask)
    n, w = len(data.names), ask.w.astype(memory.z.dtype)
    rows = Rows.of(problem, mechanism, data)
    scale = ask.scale * mechanism.multiplier * mechanism.sensitivity[data.index]
    weight = mechanism.weight[data.index]
    kind = KINDS[mechanism.kind or "gaussian"]
    region = near, ask.reach, *_box(problem, w)
    z, old = writable(memory.z), writable(memory.dual)
    new, dual = np.empty_like(z), np.empty_like(old)
    if rows.codes is not None and not memory.secret.shape[1] and not mechanism.unsafe:
        keys = _keys(mechanism, ask, n, rng) if scale.any() else np.zeros(n, np.uint64)
        client_rows = (
            rows.count,
            w,
            z,
            old,
            rows.factor,
            rows.length,
            mechanism.clip,
            mechanism.norm,
            weight,
        )
        noise = keys, kind, scale, mechanism.output
        penalties = ask.rho, ask.next_rho
        gap, shifted = kernels.softmax_round(
            unwritable(np.asarray(data.X)),
            rows.codes,
            *client_rows,
            *noise,
            *penalties,
            *region,
            new,
            dual,
        )
    else:
        gap, shifted = np.empty(n), np.zeros((1, len(w)))
        for i in range(n):
            g, largest = rows.gradient(problem, mechanism, z[i], data, i)
            if mechanism.unsafe:
                scale[i] = mechanism.multiplier * weight[i] * largest  # (20)
            xi = (
                scale[i] * _noise(mechanism, kind, memory, ask, rng, i)
                if scale[i] > 0
                else np.zeros(len(w))
            )
            # noise comes before anything large is added, which would round the gradient and reveal
            # it
            new[i] = weight[i] * g + (0.0 if mechanism.output else xi)
            kernels.towards(w, z[i], old[i], ask.rho, *region, new[i])
            if mechanism.output:
                new[i] += (xi / (ask.rho + ask.reach)).astype(new.dtype)
            gap[i] = kernels.update_multipliers(
                w, new[i], old[i], ask.rho, ask.next_rho, dual[i], shifted[0]
            )
    upload = Perturbed(shifted, gap, mean_noise(mechanism, ask, scale))
    return replace(memory, z=new, dual=dual, answered=memory.answered + 1), upload


def mean_noise(mechanism: Mechanism, ask: Perturb, scale: Array) -> Array:
    """The mean size E |xi| of noise of this scale, of z_p or of the objective."""
    size = scale * MEAN_SIZE[KINDS[mechanism.kind or "gaussian"]]
    return size / (ask.rho + ask.reach if mechanism.output else 1.0)


def _summed(z: Array, dual: Array, rho: float) -> Array:
    """The sum of z_p - lambda_p / rho, (1, D), in double precision."""
    total = np.zeros((1, z.shape[1]))
    with np.errstate(all="ignore"):  # the server reports what is not finite
        for local, multiplier in zip(z, dual, strict=True):
            total += local - multiplier / rho
    return total


def _box(problem: Problem, w: Array) -> tuple[Array, Array]:
    """The set W as bounds (D,), none for an intercept; without entries where W is the space."""
    if not isinstance(problem.regulariser, Bounds):
        return w[:0], w[:0]
    lower, upper = np.full_like(w, -np.inf), np.full_like(w, np.inf)
    problem.predictor.split(lower)[0][:] = problem.regulariser.lower
    problem.predictor.split(upper)[0][:] = problem.regulariser.upper
    return lower, upper


def exact(
    problem: Problem,
    mechanism: Mechanism,
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    tol: float,
) -> tuple[PrivateMemory, Perturbed]:
    """One round with (4b) to a tolerance instead of (8), which is possible only without privacy."""
    rows = Rows.of(problem, mechanism, data)
    weight = mechanism.weight[data.index]

    def phi(v: Array) -> tuple[Array, Array]:
        pairs = [rows.value_and_gradient(problem, v[i], data, i) for i in range(len(v))]
        away = v - ask.w
        value = weight * np.array([value for value, _ in pairs]) - (memory.dual * v).sum(1)
        gradient = (
            weight[:, None] * np.stack([gradient for _, gradient in pairs])
            - memory.dual
            + ask.rho * away
        )
        return value + ask.rho / 2 * (away**2).sum(1), gradient

    new = lbfgs(phi, memory.z, tol).v
    dual = memory.dual + ask.rho * (ask.w - new)  # (4c)
    gap = np.abs(ask.w - new).sum(1)
    upload = Perturbed(_summed(new, dual, ask.next_rho), gap, np.zeros(len(gap)))
    return replace(memory, z=new, dual=dual, answered=memory.answered + 1), upload


def _about(mechanism: Mechanism, ask: Perturb) -> bytes:
    """The settings that the noise depends on, so that other runs of a ledger have other noise.

    In a simulation, runs on other rows or with another loss under the same settings and seed have
    the same noise, which can be subtracted.
    """
    it = mechanism
    plan = [
        KINDS[it.kind or "gaussian"],
        it.multiplier,
        it.clip,
        it.bound,
        it.output,
        it.rounds,
        it.place,
    ]
    settings = np.array([*plan, ask.round, ask.rho, ask.reach, ask.scale], float)
    return settings.tobytes() + it.weight.tobytes()


def _keys(mechanism: Mechanism, ask: Perturb, n: int, rng: Streams) -> NDArray[np.uint64]:
    """The keys of the simulated noise of n clients."""
    about = np.frombuffer(
        hashlib.blake2b(_about(mechanism, ask), digest_size=8).digest(), np.uint64
    )
    return (
        np.array([rng(i).integers(0, 2**64, dtype=np.uint64) for i in range(n)], np.uint64) ^ about
    )


def _noise(
    mechanism: Mechanism, kind: int, memory: PrivateMemory, ask: Perturb, rng: Streams, i: int
) -> Array:
    size = memory.z.shape[1]
    if memory.secret.shape[1]:
        # The noise depends on the question: the same one gets the same answer, so that a round may
        # be repeated; another one never meets the same noise, which could be subtracted.
        about = b"".join(
            np.ascontiguousarray(part).tobytes() for part in (ask.w, memory.z[i], memory.dual[i])
        )
        return secure(memory.secret[i].tobytes(), about + _about(mechanism, ask), kind, size)
    xi = np.empty(size)
    fill(_keys(mechanism, ask, 1, lambda _: rng(i))[0], kind, xi)
    return xi


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
    def of(cls, problem: Problem, mechanism: Mechanism, data: Block) -> Rows:
        key = "rows of private ADMM", mechanism.norm, mechanism.bound, problem.predictor.intercept
        return once(data, key, lambda: cls._computed(problem, mechanism, data))

    @classmethod
    def _computed(cls, problem: Problem, mechanism: Mechanism, data: Block) -> Rows:
        X, one = data.X, float(problem.predictor.intercept)
        if not isinstance(X, np.ndarray):
            length = (
                abs(X).sum(-1) if mechanism.norm == kernels.L1 else np.sqrt(X.multiply(X).sum(-1))
            )
        elif mechanism.norm == kernels.L1:
            length = np.stack([np.abs(rows).sum(-1, dtype=float) for rows in X])
        else:
            length = np.sqrt(np.einsum("nmd,nmd->nm", X, X, dtype=float))
        length = np.asarray(length, float)
        length = length.reshape(data.y.shape)
        with np.errstate(divide="ignore"):
            factor = np.minimum(1.0, mechanism.bound / length)
        length = (
            factor * np.where(length > 0, length, 0.0) if np.isfinite(mechanism.bound) else length
        )
        length = length + one if mechanism.norm == kernels.L1 else np.hypot(length, one)
        fused = isinstance(problem.loss, Multinomial) and isinstance(X, np.ndarray)
        codes = data.y.astype(np.int32) if fused else None
        dtype = _dtype(data)
        return cls((data.share > 0).sum(1), codes, factor.astype(dtype), length.astype(dtype))

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
            client_rows = (
                unwritable(np.asarray(block.X))[0, :m],
                self.codes[i, :m],
                Z,
                self.factor[i, :m],
                self.length[i, :m],
            )
            largest = kernels.softmax_gradient(*client_rows, mechanism.clip, mechanism.norm, G)
            return G.reshape(-1), largest
        # whatever the rows and the model are, no row counts for more than clip
        with np.errstate(all="ignore"):
            gradient = problem.loss.gradient(self._predicted(problem, v, block, i), block.y)
            gradient = np.where(
                _wide(np.arange(block.y.shape[1]) < m, gradient), np.asarray(gradient, float), 0.0
            )
            if mechanism.clip < np.inf:
                most = STEEP[self.length.itemsize]
                gradient = np.clip(np.nan_to_num(gradient, posinf=most, neginf=-most), -most, most)
            flat = gradient.reshape(block.y.shape[1], -1)
            size = (
                np.abs(flat).sum(1) if mechanism.norm == kernels.L1 else np.sqrt((flat**2).sum(1))
            )
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
        total = problem.predictor.backward(
            v[None], gradient * _wide(self.factor[i], gradient), block
        )[0]
        if problem.predictor.intercept:
            total[-1] = gradient.sum()
        return total


def _wide(rows: Array, values: Array) -> Array:
    """(m,) as (1, m), or as (1, m, 1) for several numbers a row."""
    return rows.reshape(1, -1, *(1,) * (values.ndim - 2))
