"""Answers that are computed before they are due: no run is another one for it, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from toy import Looked, Lookup, Seen, SeparateToy, ToyMemory, federation
from wrapped import Guarded, everything

from quorate.arrays import Array
from quorate.engines import ClientError, Replay, VirtualClock, ahead, batches
from quorate.engines.activation import Adaptive, First, Stale
from quorate.engines.ahead import Ahead
from quorate.engines.batches import Memories
from quorate.rounds import Each, Round, Stop, Version, copied, encode, record

MANY = federation((4, 9, 1, 6, 3, 5, 2, 8, 4, 4, 7, 3))
SLOW = {"site c2": 20.0, "site f5": 3.0}
RULES = pytest.mark.parametrize("wait", [First(1), First(3), First(7), Stale(1, 3), Adaptive(2)], ids=str)


def clock(**options: Any) -> VirtualClock:
    return VirtualClock(**{"stragglers": SLOW, "block_size": 8} | options)


def toy(**options: Any) -> SeparateToy:
    return SeparateToy(max_rounds=40, **options)


def whole(run: Any) -> bytes:
    """All but the size of blocks."""
    log = replace(run.log, block_size=1)
    return everything(run) + encode((tuple(run.history), run.exchanged, log))


@RULES
def test_a_run_is_the_same_whoever_steps_with_whom(wait):
    alone = whole(clock(wait=wait, block_size=1).run(toy(), MANY))
    for size in (2, 5, 8, 64):
        assert whole(clock(wait=wait, block_size=size).run(toy(), MANY)) == alone
        assert whole(clock(wait=wait, block_size=size).run(Guarded(toy()), MANY)) == alone  # nothing ahead


@dataclass(frozen=True)
class Counted(SeparateToy):
    """Notes who steps together."""

    steps: ClassVar[list[tuple[str, ...]]] = []

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        self.steps.append(data.names)
        return super().look(memory, ask, data, rng)


def test_fewer_steps_of_more_clients(monkeypatch):
    monkeypatch.setattr(Counted, "steps", [])
    run = clock(wait=First(1), block_size=64).run(Counted(max_rounds=40), MANY)
    answers, computed = len(run.log.answered), sum(map(len, Counted.steps))
    assert answers == 12 + 39  # all in the first round, then one by one
    assert len(Counted.steps) <= 25
    assert answers <= computed <= answers + 12  # once each, and of those whose turn does not come


@RULES
def test_every_round_can_be_resumed_and_replayed(wait, tmp_path):
    run = clock(wait=wait).run(toy(), MANY)
    assert whole(Replay(run.log).run(toy(), MANY)) == whole(run)
    for stop in range(1, run.rounds, 3):
        engine = clock(wait=wait, checkpoint=tmp_path / "run", every=2)
        part = engine.run(toy(), MANY, max_rounds=stop)
        assert encode(part.memories) == encode(
            clock(wait=wait, block_size=1).run(toy(), MANY, max_rounds=stop).memories
        )
        assert whole(engine.run(toy(), MANY, resume=True)) == whole(run)
        replay = Replay(run.log, checkpoint=tmp_path / "replay")
        replay.run(toy(), MANY, max_rounds=stop)
        assert whole(replay.run(toy(), MANY, resume=True)) == whole(run)


@dataclass(frozen=True)
class Ill(SeparateToy):
    """A client fails at its second answer, or the server in one round."""

    client: ClassVar[str] = ""
    round: ClassVar[int] = -1
    donates: ClassVar[bool] = False

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        if self.client in data.names and memory.seen[data.names.index(self.client)] == 1:
            raise ZeroDivisionError("no rows")
        return super().look(memory, ask, data, rng)

    def descend(self, state: Any, ids: Any, got: Any) -> Any:
        if state.steps == self.round:
            raise OverflowError("too far")
        return super().descend(copied(state), ids, got)


@pytest.mark.parametrize("client", ["site a0", "site f5", "site l11"])
def test_who_fails_ahead_is_named_when_it_is_due(client, tmp_path, monkeypatch):
    ill, engine = Ill(max_rounds=40), clock(wait=First(1), checkpoint=tmp_path / "run")
    well = clock(wait=First(1)).run(ill, MANY)
    due = [r for r, ids in enumerate(well.active, 1) if MANY.clients.index(client) in ids][1]
    monkeypatch.setattr(Ill, "client", client)
    with pytest.raises(ClientError, match=f"client {client} on Lookup failed in round {due}: ZeroDivisionError"):
        engine.run(ill, MANY)
    monkeypatch.setattr(Ill, "client", "")
    assert whole(engine.run(ill, MANY, resume=True)) == whole(well)


@pytest.mark.parametrize("round_", [1, 3, 17, 38])
def test_a_failed_server_loses_no_answer(round_, tmp_path, monkeypatch):
    ill, engine = Ill(max_rounds=40), clock(wait=First(2), checkpoint=tmp_path / "run")
    well = clock(wait=First(2)).run(ill, MANY)
    monkeypatch.setattr(Ill, "round", round_)
    with pytest.raises(OverflowError):
        engine.run(ill, MANY)
    monkeypatch.setattr(Ill, "round", -1)
    assert whole(engine.run(ill, MANY, resume=True)) == whole(well)


@dataclass(frozen=True)
class Summed(SeparateToy):
    """Its uploads are partly sums: nothing for rows."""

    @property
    def on_server(self) -> Any:
        return {Looked: lambda state, ids, got: SeparateToy.descend(self, state, ids, Seen(got.gradient, got.total))}

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        memory, up = super().look(memory, ask, data, rng)
        return memory, Looked(up.gradient, np.abs(up.noise))


@dataclass(frozen=True)
class Growing(SeparateToy):
    """Memories change their form with the second answer."""

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        new, up = super().look(memory, ask, data, rng)
        twice = memory.seen[0] > 0
        return (ToyMemory(np.float32(new.momentum).astype(float), new.seen.astype(float)) if twice else new), up


@pytest.mark.parametrize("kind", [Summed, Growing])
def test_what_cannot_be_kept_in_rows_is_computed_when_it_is_due(kind):
    runs = [clock(wait=First(2), block_size=size).run(kind(max_rounds=25), MANY) for size in (1, 8)]
    assert runs[0].outcome.stop is Stop.MAX_ROUNDS
    np.testing.assert_allclose(runs[1].state.gradients, runs[0].state.gradients, rtol=0, atol=1e-12)
    assert encode(runs[1].memories) == encode(runs[0].memories)


def test_no_more_is_kept_than_some_blocks(monkeypatch):
    seen: list[int] = []
    real = Ahead.answers

    def noted(self: Ahead, *given: Any) -> Any:
        found = real(self, *given)
        seen.append(int((self.row >= 0).sum()))
        assert len(self.free) - self.left == seen[-1]
        assert not (self.row == -2).any()
        return found

    monkeypatch.setattr(Ahead, "answers", noted)
    monkeypatch.setattr(ahead, "TOGETHER", 2)
    monkeypatch.setattr(ahead, "KEPT", 4)
    clock(wait=First(1), block_size=2).run(toy(), MANY)
    assert 4 < max(seen) <= 8


# ---- what a hostile reader found


@record
class Reset:
    w: Version  # (d,)
    weight: Each  # (N,)
    scale: float


@record
class OtherMemory:
    momentum: Array  # (n, d)
    seen: Array  # (n,)


@dataclass(frozen=True)
class Forgetful(SeparateToy):
    """All are asked once to keep their memory as another class."""

    donates: ClassVar[bool] = False

    @property
    def on_client(self) -> Any:
        return {Lookup: self.look, Reset: self.reset}

    def reset(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        new, up = super().look(memory, ask, data, rng)
        return OtherMemory(new.momentum, new.seen), up

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        new, up = super().look(memory, ask, data, rng)
        return type(memory)(new.momentum, new.seen), up

    def descend(self, state: Any, ids: Any, got: Any) -> Any:
        state, ask = super().descend(copied(state), ids, got)
        if state.steps == 5:
            message = ask.message
            ask = Round(Reset(message.w, message.weight, message.scale), ask.to, wait_for=None)
        return state, ask


@pytest.mark.parametrize("seed", range(6))
def test_memories_that_change_their_form_between_ends_the_computing_ahead(seed):
    run = clock(wait=First(1)).run(Forgetful(max_rounds=25), MANY, seed=seed)
    assert whole(run) == whole(clock(wait=First(1)).run(Guarded(Forgetful(max_rounds=25)), MANY, seed=seed))


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("after", [False, True])
def test_memories_that_cannot_be_written_leave_what_can_be_resumed(error, after, tmp_path, monkeypatch):
    well, engine = clock(wait=First(1)).run(toy(), MANY), clock(wait=First(1), checkpoint=tmp_path / "run")
    real, calls = Memories.put, []

    def put(self: Memories, ids: Any, memory: Any) -> None:
        calls.append(len(ids))
        if len(calls) == 5 and not after:
            raise error
        real(self, ids, memory)
        if len(calls) == 5:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(Memories, "put", put)
        if error is MemoryError:
            with pytest.raises(MemoryError):
                engine.run(toy(), MANY)
        else:
            assert engine.run(toy(), MANY).outcome.stop is Stop.INTERRUPTED
    assert len(calls) > 5  # what was computed ahead was taken back for the file
    assert whole(engine.run(toy(), MANY, resume=True)) == whole(well)


def test_who_fails_is_not_tried_again_and_again(monkeypatch):
    monkeypatch.setattr(Counted, "steps", [])

    @dataclass(frozen=True)
    class Sick(Counted):
        def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            if "site c2" in data.names and memory.seen[data.names.index("site c2")] == 1:
                raise ZeroDivisionError
            return super().look(memory, ask, data, rng)

    with pytest.raises(ClientError, match="client site c2 on Lookup failed in round"):
        clock(wait=First(1)).run(Sick(max_rounds=4000), MANY)
    assert max(map(len, Counted.steps[6:])) == 1


def test_clients_of_many_rows_step_alone(monkeypatch):
    monkeypatch.setattr(batches, "LIGHT", 8 * 3 * 8)  # of the largest client, but not of nine rows
    monkeypatch.setattr(Counted, "steps", [])
    clock(wait=First(1), stragglers={}).run(Counted(max_rounds=40), federation((4, 8, 5, 6)))
    assert max(map(len, Counted.steps[2:])) > 1
    monkeypatch.setattr(Counted, "steps", [])
    clock(wait=First(1), stragglers={}).run(Counted(max_rounds=40), federation((4, 9, 5, 6)))
    assert max(map(len, Counted.steps[2:])) == 1
