"""Algorithms that are watched or disturbed, and a run as bytes: for the laws of engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bonafed.engines import Run
from bonafed.rounds import Algorithm, Conclude, Outcome, Round, encode


@dataclass
class Wrapped(Algorithm):
    """An algorithm whose functions can be watched or disturbed."""

    inner: Any

    @property
    def on_client(self) -> Any:
        steps = self.inner.on_client.items()  # the conclusion is no round
        return {
            kind: step if kind is Conclude else self.around_client(step) for kind, step in steps
        }

    @property
    def on_server(self) -> Any:
        return {kind: self.around_server(step) for kind, step in self.inner.on_server.items()}

    def around_client(self, step: Any) -> Any:
        return step

    def around_server(self, step: Any) -> Any:
        return step

    @property
    def mutates_state(self) -> bool:
        return self.inner.mutates_state

    @property
    def private(self) -> bool:
        return self.inner.private

    def gradients(self, message: Any) -> float:
        return self.inner.gradients(message)

    def client_start(self, data: Any) -> Any:
        return self.inner.client_start(data)

    def server_start(self, n_clients: int) -> Any:
        return self.inner.server_start(n_clients)

    def report(self, state: Any) -> Any:
        return self.inner.report(state)


def everything(run: Run) -> bytes:
    """All of a run but its wall times and the advice on where it is kept, bit for bit."""
    history = [
        {key: value for key, value in row.items() if key != "seconds"} for row in run.history
    ]
    log = run.log
    if log is not None and log.outcome is not None:
        log = dataclasses.replace(log, outcome=_without_advice(log.outcome))
    parts = (
        run.state,
        _without_advice(run.outcome),
        tuple(history),
        tuple(run.messages),
        run.rounds,
        tuple(run.active),
        run.memories,
        run.concluded,
        run.exchanged,
        log,
    )
    return encode(parts)


def _without_advice(outcome: Outcome) -> Outcome:
    text = outcome.text.split("; the last")[0].split("; nothing was")[0]
    return Outcome(outcome.stop, text)


def arrays(value: Any) -> Iterator[np.ndarray]:
    """Every array in a value."""
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            yield from arrays(getattr(value, f.name))
    elif isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays(part)


@dataclass
class Watched(Wrapped):
    """Keeps what the clients got and gave in each round."""

    asked: list[Round] = field(default_factory=list)
    # round -> client -> (memory, new memory, upload, rng)
    steps: list[dict[int, Any]] = field(default_factory=list)

    def server_start(self, n_clients: int) -> Any:
        state, ask = self.inner.server_start(n_clients)
        self.asked, self.steps = [ask], [{}]
        return state, ask

    def around_client(self, step: Any) -> Any:
        def watched(memory: Any, message: Any, data: Any, rng: Any) -> Any:
            new, upload = step(memory, message, data, rng)
            self.steps[-1][int(data.index[0])] = memory, new, upload, rng
            return new, upload

        return watched

    def around_server(self, step: Any) -> Any:
        def watched(state: Any, ids: Any, combined: Any) -> Any:
            state, ask = step(state, ids, combined)
            self.asked.append(ask)
            self.steps.append({})
            return state, ask

        return watched


@dataclass
class Disturbed(Wrapped):
    """Raises once, somewhere in the second round: a person's Ctrl-C, or a client's failure."""

    where: str = "client"
    error: BaseException = field(default_factory=KeyboardInterrupt, init=False)
    name: str | None = field(default=None, init=False)  # only in blocks of this client
    finished: int = field(default=0, init=False)
    healthy: bool = field(default=False, init=False)

    def strike(self, where: str, finished: int = 1) -> None:
        if not self.healthy and where == self.where and self.finished == finished:
            raise self.error

    def around_client(self, step: Any) -> Any:
        def disturbed(memory: Any, message: Any, data: Any, rng: Any) -> Any:
            if self.name is None or self.name in data.names:
                self.strike("client")
            return step(memory, message, data, rng)

        return disturbed

    def around_server(self, step: Any) -> Any:
        def disturbed(state: Any, ids: Any, combined: Any) -> Any:
            self.strike("server")
            return step(state, ids, combined)

        return disturbed

    def report(self, state: Any) -> Any:
        self.strike("report")
        return self.inner.report(state)

    def watch(self, row: Any, state: Any) -> None:
        self.finished = row["round"]
        self.strike("watch")


@dataclass
class Guarded(Wrapped):
    """Hands out arrays that cannot be written to."""

    def around_client(self, step: Any) -> Any:
        return self.guarded(step)

    def around_server(self, step: Any) -> Any:
        return self.guarded(step, int(self.mutates_state))

    def guarded(self, step: Any, free: int = 0) -> Any:
        def call(*given: Any) -> Any:
            for array in arrays(given[free:]):
                array.flags.writeable = False
            return step(*given)

        return call
