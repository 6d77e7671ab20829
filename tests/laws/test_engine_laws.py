"""What every engine mode owes every algorithm in ``examples.ALGORITHMS``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from examples import ALGORITHMS
from quorate.engines import ClientError, InProcess
from quorate.engines.inprocess import MODES, Run
from quorate.rounds import Round, Stop, combine, encode, join, rows

MODE = pytest.mark.parametrize("mode", MODES)
EXAMPLE = pytest.mark.parametrize("example", ALGORITHMS.values(), ids=ALGORITHMS.keys())


@dataclass
class Wrapped:
    """An algorithm whose functions can be watched or disturbed."""

    inner: Any

    @property
    def on_client(self) -> Any:
        return {kind: self.around_client(step) for kind, step in self.inner.on_client.items()}

    @property
    def on_server(self) -> Any:
        return {kind: self.around_server(step) for kind, step in self.inner.on_server.items()}

    def around_client(self, step: Any) -> Any:
        return step

    def around_server(self, step: Any) -> Any:
        return step

    def client_start(self, data: Any) -> Any:
        return self.inner.client_start(data)

    def server_start(self, n_clients: int) -> Any:
        return self.inner.server_start(n_clients)

    def report(self, state: Any) -> Any:
        return self.inner.report(state)


def blocked(mode: str, **options: Any) -> InProcess:
    """Blocks of two, so that there are several and their clients are not in order."""
    return InProcess(mode, block_size=2, **options)


def everything(run: Run) -> bytes:
    """All of a run but its wall times, bit for bit."""
    history = [{key: value for key, value in row.items() if key != "seconds"} for row in run.history]
    parts = (run.state, run.outcome, tuple(history), tuple(run.messages), run.rounds, tuple(run.active), run.memories)
    return encode(parts)


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


# ---- the same numbers in every mode


@dataclass
class Watched(Wrapped):
    """Keeps what the clients got and gave in each round."""

    asked: list[Round] = field(default_factory=list)
    steps: list[dict[int, Any]] = field(default_factory=list)  # round -> client -> (memory, new memory, upload, rng)

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


def close(one: Any, other: Any) -> None:
    """Every array agrees to 1e-12 of its largest entry; padding of rows in the other does not count."""
    for a, b in zip(arrays(one), arrays(other), strict=True):
        b = b[tuple(map(slice, a.shape))]
        scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12 * scale)


@EXAMPLE
def test_one_client_step_on_the_same_message_agrees_in_blocks(example):
    watched = Watched(example.algorithm)
    InProcess("each").run(watched, example.federation, max_rounds=4)
    compared = 0
    for ask, steps in zip(watched.asked, watched.steps, strict=True):
        for block in example.federation.blocks(3):
            chosen = [p for p, i in enumerate(block.index.tolist()) if i in steps]
            if not chosen:
                continue
            part = block.part(np.array(chosen))
            alone = [steps[i] for i in part.index.tolist()]
            memory = join([before for before, *_ in alone])
            step = example.algorithm.on_client[type(ask.message)]
            streams = [rng for *_, rng in alone]
            new, upload = step(memory, rows(ask.message, part.index), part, lambda p, streams=streams: streams[p](0))
            close(join([after for _, after, *_ in alone]), new)
            parts = [([i], steps[i][2]) for i in part.index.tolist()]
            close(combine(type(upload), parts), combine(type(upload), [(part.index, upload)]))
            compared += len(chosen)
    assert compared >= example.federation.n_clients


@EXAMPLE
def test_one_by_one_and_through_bytes_are_bitwise_equal(example):
    runs = [InProcess(mode).run(example.algorithm, example.federation, seed=3) for mode in ("each", "bytes")]
    assert everything(runs[0]) == everything(runs[1])


@EXAMPLE
@pytest.mark.parametrize("size", [2, 64])
def test_a_blocked_run_ends_where_one_by_one_ends(example, size):
    each = InProcess("each").run(example.algorithm, example.federation, seed=3)
    blocks = InProcess("blocks", block_size=size).run(example.algorithm, example.federation, seed=3)
    assert each.outcome.stop is blocks.outcome.stop
    expected = example.answer(each.state)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(example.answer(blocks.state), expected, rtol=0, atol=example.tolerance * scale)


@EXAMPLE
@MODE
def test_a_rerun_is_the_same_bit_for_bit(example, mode):
    runs = [blocked(mode).run(example.algorithm, example.federation, seed=5) for _ in range(2)]
    assert everything(runs[0]) == everything(runs[1])


# ---- resume


@EXAMPLE
@MODE
def test_resume_equals_no_interruption_bit_for_bit(example, mode, tmp_path):
    whole = blocked(mode).run(example.algorithm, example.federation, seed=1)
    for stop in {1, 2, whole.rounds - 1}:
        engine = blocked(mode, checkpoint=tmp_path / f"{stop}.run")
        part = engine.run(example.algorithm, example.federation, seed=1, max_rounds=stop)
        assert (part.rounds, part.outcome.stop) == (stop, Stop.MAX_ROUNDS)
        resumed = engine.run(example.algorithm, example.federation, seed=1, resume=True)
        assert everything(resumed) == everything(whole)
        again = engine.run(example.algorithm, example.federation, seed=1, resume=True)  # of a finished run
        assert everything(again) == everything(whole)


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


@EXAMPLE
@MODE
@pytest.mark.parametrize("where", ["client", "server", "report", "watch"])
def test_ctrl_c_keeps_the_last_finished_round(example, mode, where, tmp_path):
    whole = blocked(mode).run(example.algorithm, example.federation)
    engine, algorithm = blocked(mode, checkpoint=tmp_path / "run", every=100), Disturbed(example.algorithm, where)
    run = engine.run(algorithm, example.federation, watch=[algorithm.watch])
    assert (run.outcome.stop, run.rounds, len(run.history), len(run.active)) == (Stop.INTERRUPTED, 1, 1, 1)
    assert "interrupted after round 1; the last finished round is in" in run.outcome.text
    assert run.outcome.text.endswith("resume=True")
    algorithm.healthy = True
    assert everything(engine.run(algorithm, example.federation, resume=True)) == everything(whole)


# ---- failures


@EXAMPLE
@MODE
def test_a_failing_client_is_named_and_the_run_can_go_on(example, mode, tmp_path):
    whole = blocked(mode).run(example.algorithm, example.federation)
    engine, algorithm = blocked(mode, checkpoint=tmp_path / "run"), Disturbed(example.algorithm)
    algorithm.error = ZeroDivisionError("no rows with label 1")
    algorithm.name = example.federation.clients[whole.active[1][-1]]
    with pytest.raises(ClientError, match="failed in round 2: ZeroDivisionError: no rows with label 1") as caught:
        engine.run(algorithm, example.federation, watch=[algorithm.watch])
    assert (caught.value.clients, caught.value.round) == ((algorithm.name,), 2)
    assert f"client {algorithm.name} " in str(caught.value)
    algorithm.healthy = True
    assert everything(engine.run(algorithm, example.federation, resume=True)) == everything(whole)


# ---- purity


@dataclass
class Guarded(Wrapped):
    """Hands out arrays that cannot be written to."""

    def around_client(self, step: Any) -> Any:
        return self.guarded(step)

    def around_server(self, step: Any) -> Any:
        return self.guarded(step)

    def guarded(self, step: Any) -> Any:
        def call(*given: Any) -> Any:
            for array in arrays(given):
                array.flags.writeable = False
            return step(*given)

        return call


@EXAMPLE
@MODE
def test_inputs_are_never_mutated(example, mode):
    data = example.federation.digests()
    plain = blocked(mode).run(example.algorithm, example.federation)
    assert everything(blocked(mode).run(Guarded(example.algorithm), example.federation)) == everything(plain)
    assert example.federation.digests() == data
