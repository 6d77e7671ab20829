"""A small federated algorithm that uses every kind of field, client memory, randomness and requests
to some clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import bonafed.data.federation as data
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.rounds import Algorithm, Done, Each, Max, Round, Stop, Sum, Version, record


@record
class ToyAsk:
    w: Annotated[Array, Form("d")]
    weight: Annotated[Each, Form("N")]  # this client's weight in the sum


@record
class ToyAnswer:
    gradient: Sum  # (n, d)
    largest: Max  # (n,) largest residual
    loss: Each  # (n,)
    noise: Each  # (n,) what the client's own stream gave


@record
class ToyMemory:
    momentum: Annotated[Array, Form("n, d")]
    seen: Annotated[NDArray[np.int64], Form("n")]  # messages received


@record
class ToyState:
    w: Annotated[Array, Form("d")]
    round: Annotated[int, Form(rounds=0)]
    loss: Annotated[Array, Form("N")]
    largest: float


@dataclass(frozen=True)
class Toy(Algorithm):
    """Federated gradient descent on least squares, with momentum at the clients and a little of
    their own noise.
    """

    step: float = 0.1
    n_features: int = 3
    max_rounds: int = 6

    @property
    def on_client(self) -> Any:
        return {ToyAsk: self.descend}

    @property
    def on_server(self) -> Any:
        return {ToyAnswer: self.average}

    def client_start(self, data: Block) -> ToyMemory:
        n = len(data.names)
        return ToyMemory(np.zeros((n, self.n_features)), np.zeros(n, dtype=np.int64))

    def server_start(self, n_clients: int) -> tuple[ToyState, Round]:
        w = np.zeros(self.n_features)
        return ToyState(w, 0, np.zeros(n_clients), 0.0), Round(
            ToyAsk(w, np.full(n_clients, 1 / n_clients))
        )

    def descend(
        self, memory: ToyMemory, ask: ToyAsk, data: Block, rng: Streams
    ) -> tuple[ToyMemory, ToyAnswer]:
        noise = np.array([rng(position).standard_normal() for position in range(len(data.names))])
        residual = data.forward(ask.w) - data.y
        gradient = data.backward(data.share * residual) + 1e-3 * noise[:, None]
        momentum = 0.5 * memory.momentum + ask.weight[:, None] * gradient
        largest = np.where(data.share > 0, np.abs(residual), 0.0).max(1)
        answer = ToyAnswer(momentum, largest, data.mean(residual**2) / 2, noise)
        return ToyMemory(momentum, memory.seen + 1), answer

    def average(
        self, state: ToyState, ids: Sequence[int], got: ToyAnswer
    ) -> tuple[ToyState, Round | Done]:
        w, loss = state.w - self.step * got.gradient, state.loss.copy()
        loss[list(ids)] = got.loss
        state = ToyState(w, state.round + 1, loss, float(got.largest))
        if state.round == self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        n = len(loss)
        # every second round asks half of the clients
        to = None if state.round % 2 else tuple(range(0, n, 2))
        return state, Round(ToyAsk(w, (1.0 + np.arange(n)) / n**2), to)

    def report(self, state: ToyState) -> dict[str, float]:
        return {"loss": state.loss.mean(), "largest": state.largest}


def federation(
    sizes: Sequence[int] = (4, 9, 1, 6, 3), n_features: int = 3, seed: int = 0
) -> data.Federation:
    """Clients of these sizes with targets of -1 and +1."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((m, n_features)) for m in sizes]
    y = [
        np.where(x @ np.ones(n_features) + 0.3 * rng.standard_normal(len(x)) > 0, 1.0, -1.0)
        for x in X
    ]
    return data.Federation(
        [f"site {chr(97 + i % 26)}{i}" for i in range(len(sizes))], X, y, classes=(-1.0, 1.0)
    )


@record
class Lookup:
    w: Annotated[Version, Form("d")]
    weight: Annotated[Each, Form("N")]
    scale: float


@record
class Looked:
    gradient: Each  # (n, d)
    total: Sum  # (n,)


@record
class Table:
    w: Annotated[Array, Form("d")]
    gradients: Annotated[Array, Form("N, d")]  # last one of every client
    steps: Annotated[int, Form(rounds=0)]
    total: float


@dataclass(frozen=True)
class AsyncToy(Algorithm):
    """Toy's clients with a table of their last gradients at the server, which goes on as soon as
    somebody answers.

    State and message share w, which the server overwrites; every third message asks for twice the
    work.
    """

    mutates_state: ClassVar[bool] = True
    step: float = 0.3
    n_features: int = 3
    max_rounds: int = 12

    @property
    def on_client(self) -> Any:
        return {Lookup: self.look}

    @property
    def on_server(self) -> Any:
        return {Looked: self.descend}

    def gradients(self, ask: Lookup) -> float:
        return ask.scale

    def client_start(self, data: Block) -> ToyMemory:
        n = len(data.names)
        return ToyMemory(np.zeros((n, self.n_features)), np.zeros(n, dtype=np.int64))

    def server_start(self, n_clients: int) -> tuple[Table, Round]:
        w = np.zeros(self.n_features)
        state = Table(w, np.zeros((n_clients, self.n_features)), 0, 0.0)
        return state, Round(Lookup(w, np.full(n_clients, 1.0), 1.0))

    def look(
        self, memory: ToyMemory, ask: Lookup, data: Block, rng: Streams
    ) -> tuple[ToyMemory, Looked]:
        noise = np.array([rng(position).standard_normal() for position in range(len(data.names))])
        gradient = (
            data.backward(data.share * (data.forward(ask.w) - data.y)) + 1e-3 * noise[:, None]
        )
        gradient = 0.5 * memory.momentum + (ask.scale * ask.weight)[:, None] * gradient / 2
        return ToyMemory(gradient, memory.seen + 1), Looked(gradient, np.abs(noise))

    def descend(self, state: Table, ids: Sequence[int], got: Looked) -> tuple[Table, Round | Done]:
        state.gradients[list(ids)] = got.gradient
        np.subtract(state.w, self.step * state.gradients.mean(0), out=state.w)
        state = Table(state.w, state.gradients, state.steps + 1, state.total + float(got.total))
        if state.steps == self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        weight = np.linspace(1.0, 1.0 / state.steps, len(state.gradients))
        return state, Round(
            Lookup(state.w, weight, 1.0 + (state.steps % 3 == 0)), tuple(ids), wait_for=1
        )

    def report(self, state: Table) -> dict[str, float]:
        return {"total": state.total}


@record
class Seen:
    gradient: Each  # (n, d)
    noise: Each  # (n,)


@dataclass(frozen=True)
class SeparateToy(AsyncToy):
    """AsyncToy with a loop over the clients, so that no client's bits depend on the others."""

    @property
    def on_server(self) -> Any:
        return {Seen: self.descend}

    def look(
        self, memory: ToyMemory, ask: Lookup, data: Block, rng: Streams
    ) -> tuple[ToyMemory, Any]:
        gradient = np.empty_like(memory.momentum)
        noise = np.array([rng(position).standard_normal() for position in range(len(data.names))])
        for i, share in enumerate(data.share):
            rows, targets = np.asarray(data.X)[i, share > 0], data.y[i, share > 0]
            gradient[i] = (share[share > 0] * (rows @ ask.w[i] - targets)) @ rows + 1e-3 * noise[i]
        gradient = 0.5 * memory.momentum + (ask.scale * ask.weight)[:, None] * gradient / 2
        return ToyMemory(gradient, memory.seen + 1), Seen(gradient, noise)

    def descend(self, state: Table, ids: Sequence[int], got: Any) -> tuple[Table, Round | Done]:
        return super().descend(state, ids, Looked(got.gradient, np.abs(got.noise).sum()))


@dataclass(frozen=True)
class SummedToy(SeparateToy):
    """SeparateToy whose server sees the noise as a sum."""

    @property
    def on_server(self) -> Any:
        return {Looked: self.descend}

    def look(
        self, memory: ToyMemory, ask: Lookup, data: Block, rng: Streams
    ) -> tuple[ToyMemory, Looked]:
        memory, seen = super().look(memory, ask, data, rng)
        return memory, Looked(seen.gradient, np.abs(seen.noise))

    def descend(self, state: Table, ids: Sequence[int], got: Looked) -> tuple[Table, Round | Done]:
        return AsyncToy.descend(self, state, ids, got)
