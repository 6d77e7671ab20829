"""What every engine owes every algorithm in ``examples.ALGORITHMS``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from toy import AsyncToy, Looked, Lookup, Seen, SeparateToy, Toy, ToyMemory, federation
from wrapped import Disturbed, Guarded, Watched, arrays, everything

from bonafed.arrays import Array
from bonafed.engines import ClientError, InProcess, Replay, Run, VirtualClock
from bonafed.engines.batching import Memories
from bonafed.engines.delays import Adaptive, Constant, First, LogNormal, Stale, Trips
from bonafed.engines.run_record import Log
from bonafed.rounds import Each, Round, Stop, Version, combine, copied, encode, join, record, rows
from examples import ALGORITHMS, Example

MODES = ("blocks", "each", "bytes")
KINDS = (*MODES, "clock", "replay")
KIND = pytest.mark.parametrize("kind", KINDS)
SOON = 4  # rounds, where what follows an interruption shows as well as in hundreds
EXAMPLE = pytest.mark.parametrize("example", ALGORITHMS.values(), ids=ALGORITHMS.keys())
# a server that overwrites its state or not, clients with a memory of their own or without
EVERYWHERE = ("toy", "asynchronous toy", "AsyncDRO", "AFL", "ASPIRE", "proximal AL, as printed")
RULES = [First(1), First(2), Stale(1, 3), Adaptive(2)]


def in_turn(name: str, kind: str) -> int:
    """0, 1, ..., another one for each engine of an example and for each example of an engine."""
    return (list(ALGORITHMS).index(name) + KINDS.index(kind)) % len(KINDS)


# What engines owe to interruptions and failures is seen with a few examples on every engine, and
# what examples owe to them with every example on one engine.
SHARED = pytest.mark.parametrize(
    ("example", "kind"),
    [
        pytest.param(example, kind, id=f"{kind}-{name}")
        for kind in KINDS
        for name, example in ALGORITHMS.items()
        if name in EVERYWHERE or in_turn(name, kind) == 0
    ],
)


def clock(example: Any, **options: Any) -> VirtualClock:
    """Two at a time, blocks of three, and the first client ten times slower."""
    settings: dict[str, Any] = {
        "wait": First(2),
        "block_size": 3,
        "stragglers": {example.federation.clients[0]: 10.0},
    }
    return VirtualClock(**settings | options)


def engine_of(kind: str, example: Example, **options: Any) -> Any:
    """An engine; in this process with blocks of two, so that there are several and their clients
    are not in order.
    """
    if kind == "clock":
        return clock(example, **options)
    if kind == "replay":
        log = whole_run(example, "clock").log
        assert log is not None
        return Replay(log, **options)
    return InProcess(kind, block_size=2, **options)


@cache
def whole_run(example: Example, kind: str, max_rounds: int | None = None) -> Run:
    """The run that nothing interrupts; several laws compare with it."""
    engine = engine_of(kind, example)
    return engine.run(example.algorithm, example.federation, seed=1, max_rounds=max_rounds)


# ---- the same numbers on every engine


def close(one: Any, other: Any) -> None:
    """Every array agrees to 1e-12 of its largest entry; padding of rows in the other does not
    count.
    """
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
            new, upload = step(
                memory,
                rows(ask.message, part.index),
                part,
                lambda p, streams=streams: streams[p](0),
            )
            close(join([after for _, after, *_ in alone]), new)
            parts = [([i], steps[i][2]) for i in part.index.tolist()]
            close(combine(type(upload), parts), combine(type(upload), [(part.index, upload)]))
            compared += len(chosen)
    assert compared >= example.federation.n_clients


@EXAMPLE
def test_one_by_one_and_through_bytes_are_bitwise_equal(example):
    assert everything(whole_run(example, "each")) == everything(whole_run(example, "bytes"))


@EXAMPLE
def test_a_blocked_run_ends_where_one_by_one_ends(example):
    each = whole_run(example, "each")
    expected = example.answer(each.state)
    scale = np.abs(expected).max()
    together = InProcess("blocks").run(example.algorithm, example.federation, seed=1)
    for blocks in (whole_run(example, "blocks"), together):  # of two clients, and one of all
        assert each.outcome.stop is blocks.outcome.stop
        np.testing.assert_allclose(
            example.answer(blocks.state), expected, rtol=0, atol=example.tolerance * scale
        )


def outside(run: Any) -> bytes:
    """What no clock may change: all but the times."""
    own = ("time", "seconds", "answered", "staleness")
    history = [{key: value for key, value in row.items() if key not in own} for row in run.history]
    return encode(
        (
            run.state,
            run.outcome,
            tuple(history),
            tuple(run.messages),
            run.rounds,
            tuple(run.active),
            run.memories,
        )
    )


@EXAMPLE
def test_no_delay_changes_a_synchronous_algorithm(example):
    watched = Watched(example.algorithm)
    each = InProcess("each").run(watched, example.federation, seed=1)
    if any(getattr(ask, "wait_for", None) is not None for ask in watched.asked):
        return  # whom it hears depends on the delays
    alone = clock(example, block_size=1, wait=First(1)).run(
        example.algorithm, example.federation, seed=1
    )
    assert outside(alone) == outside(each)
    assert {row["staleness"] for row in alone.history} == {0}
    together = clock(example, delays=Constant(0.0)).run(
        example.algorithm, example.federation, seed=1
    )
    assert together.outcome.stop is each.outcome.stop
    expected = example.answer(each.state)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        example.answer(together.state), expected, rtol=0, atol=example.tolerance * scale
    )


@EXAMPLE
def test_where_all_answer_at_once_an_asynchronous_algorithm_is_synchronous(example):
    each = InProcess("each").run(example.algorithm, example.federation, seed=1, max_rounds=4)
    everybody = First(example.federation.n_clients)
    run = clock(example, block_size=1, wait=everybody).run(
        example.algorithm, example.federation, seed=1, max_rounds=4
    )
    assert encode((run.state, run.memories, tuple(run.active))) == encode(
        (each.state, each.memories, tuple(each.active))
    )


@EXAMPLE
def test_the_replay_of_a_log_is_the_same_bit_for_bit(example, tmp_path):
    first = whole_run(example, "clock")
    assert first.log is not None
    first.log.save(tmp_path / "log")
    replayed = Replay(Log.load(tmp_path / "log")).run(example.algorithm, example.federation)
    assert everything(replayed) == everything(first)


# ---- resume


@pytest.mark.parametrize("name", ALGORITHMS)
@KIND
def test_resume_equals_no_interruption_bit_for_bit(name, kind, tmp_path):
    example = ALGORITHMS[name]
    whole = whole_run(example, kind)
    # early or late, either on every engine and with every example; after the first round: the tests
    # below
    stop = whole.rounds - 1 if in_turn(name, kind) == 0 else 2
    engine = engine_of(kind, example, checkpoint=tmp_path / f"{stop}.run")
    part = engine.run(example.algorithm, example.federation, seed=1, max_rounds=stop)
    assert (part.rounds, part.outcome.stop) == (stop, Stop.MAX_ROUNDS)
    resumed = engine.run(example.algorithm, example.federation, seed=1, resume=True)
    assert everything(resumed) == everything(whole)
    # of a finished run
    again = engine.run(example.algorithm, example.federation, seed=1, resume=True)
    assert everything(again) == everything(whole)


@pytest.mark.parametrize(
    ("example", "where", "kind"),
    [
        # in "report" clients and server have made their steps of a round that is then dropped
        pytest.param(example, where, kind, id=f"{kind}-{where}-{name}")
        for kind in KINDS
        for name, example in ALGORITHMS.items()
        for where in ("client", "server", "report", "watch")
        if name in EVERYWHERE or (where == "report" and in_turn(name, kind) == 0)
    ],
)
def test_ctrl_c_keeps_the_last_finished_round(example, kind, where, tmp_path):
    path, algorithm = tmp_path / "run", Disturbed(example.algorithm, where)
    engine = engine_of(kind, example, checkpoint=path, every=100)
    how: dict[str, Any] = {"seed": 1, "watch": [algorithm.watch]}
    # a state that may be half overwritten is not kept
    if algorithm.mutates_state and kind not in MODES and where in ("server", "report"):
        with pytest.raises(KeyboardInterrupt):
            engine.run(algorithm, example.federation, **how)
        assert not path.exists()
        return
    run = engine.run(algorithm, example.federation, **how)
    assert (run.outcome.stop, run.rounds) == (Stop.INTERRUPTED, 1)
    assert len(run.history) == len(run.active) == 1
    assert "interrupted after round 1; the last finished round is in" in run.outcome.text
    assert run.outcome.text.endswith("resume=True")
    algorithm.healthy = True
    resumed = engine.run(algorithm, example.federation, seed=1, max_rounds=SOON, resume=True)
    assert everything(resumed) == everything(whole_run(example, kind, max_rounds=SOON))


# ---- failures


@SHARED
def test_a_failing_client_is_named_and_the_run_can_go_on(example, kind, tmp_path):
    whole = whole_run(example, kind, max_rounds=SOON)
    engine = engine_of(kind, example, checkpoint=tmp_path / "run")
    algorithm = Disturbed(example.algorithm)
    algorithm.error = ZeroDivisionError("no rows with label 1.")
    algorithm.name = example.federation.clients[whole.active[1][-1]]
    with pytest.raises(
        ClientError, match=r"failed in round 2: ZeroDivisionError: no rows with label 1\. Mend or"
    ) as caught:
        engine.run(algorithm, example.federation, seed=1, watch=[algorithm.watch])
    assert (caught.value.clients, caught.value.round) == ((algorithm.name,), 2)
    assert f"client {algorithm.name} " in str(caught.value)
    algorithm.healthy = True
    resumed = engine.run(algorithm, example.federation, seed=1, max_rounds=SOON, resume=True)
    assert everything(resumed) == everything(whole)


# ---- purity


@SHARED
def test_a_rerun_mutates_no_input_and_is_the_same_bit_for_bit(example, kind):
    data = example.federation.digests()
    guarded = engine_of(kind, example).run(Guarded(example.algorithm), example.federation, seed=1)
    assert everything(guarded) == everything(whole_run(example, kind))
    assert example.federation.digests() == data


# ---- who steps with whom: clients whose bits do not depend on who shares their block

MANY = federation((4, 9, 1, 6, 3, 5, 2, 8, 4, 4, 7, 3))
SEVERAL_RULES = pytest.mark.parametrize(
    "wait", [First(1), First(3), First(7), Stale(1, 3), Adaptive(2)], ids=str
)
SEPARATE = SeparateToy(max_rounds=40)


def uneven(**options: Any) -> VirtualClock:
    """One client twenty times slower, another three times, blocks of eight."""
    slow = {"site c2": 20.0, "site f5": 3.0}
    return VirtualClock(**{"stragglers": slow, "block_size": 8} | options)


def but_for_blocks(run: Any) -> bytes:
    """All of a run but the size of its blocks."""
    return everything(replace(run, log=replace(run.log, block_size=1)))


@SEVERAL_RULES
def test_a_run_is_the_same_whoever_steps_with_whom(wait):
    alone = but_for_blocks(uneven(wait=wait, block_size=1).run(SEPARATE, MANY))
    for size in (2, 5, 8, 64):
        engine = uneven(wait=wait, block_size=size)
        assert but_for_blocks(engine.run(SEPARATE, MANY)) == alone
        assert but_for_blocks(engine.run(Guarded(SEPARATE), MANY)) == alone


@SEVERAL_RULES
def test_a_run_can_be_resumed_and_replayed_from_any_round(wait, tmp_path):
    run = uneven(wait=wait).run(SEPARATE, MANY)
    assert everything(Replay(run.log).run(SEPARATE, MANY)) == everything(run)
    for stop in (1, 2, 3, 8, 21, run.rounds - 1):
        engine = uneven(wait=wait, checkpoint=tmp_path / "run", every=2)
        engine.run(SEPARATE, MANY, max_rounds=stop)
        assert everything(engine.run(SEPARATE, MANY, resume=True)) == everything(run)
        replay = Replay(run.log, checkpoint=tmp_path / "replay")
        replay.run(SEPARATE, MANY, max_rounds=stop)
        assert everything(replay.run(SEPARATE, MANY, resume=True)) == everything(run)


@dataclass(frozen=True)
class Ill(SeparateToy):
    """A client fails at its second answer, or the server in one round."""

    client: ClassVar[str] = ""
    round: ClassVar[int] = -1
    mutates_state: ClassVar[bool] = False

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        if self.client in data.names and memory.seen[data.names.index(self.client)] == 1:
            raise ZeroDivisionError("no rows")
        return super().look(memory, ask, data, rng)

    def descend(self, state: Any, ids: Any, got: Any) -> Any:
        if state.steps == self.round:
            raise OverflowError("too far")
        return super().descend(copied(state), ids, got)


@pytest.mark.parametrize("client", ["site a0", "site f5", "site l11"])
def test_who_fails_is_named_in_the_round_in_which_it_is_due(client, tmp_path, monkeypatch):
    ill, engine = Ill(max_rounds=40), uneven(wait=First(1), checkpoint=tmp_path / "run")
    well = uneven(wait=First(1)).run(ill, MANY)
    due = [r for r, ids in enumerate(well.active, 1) if MANY.clients.index(client) in ids][1]
    monkeypatch.setattr(Ill, "client", client)
    with pytest.raises(
        ClientError, match=f"client {client} on Lookup failed in round {due}: ZeroDivisionError"
    ):
        engine.run(ill, MANY)
    monkeypatch.setattr(Ill, "client", "")
    assert everything(engine.run(ill, MANY, resume=True)) == everything(well)


@pytest.mark.parametrize("round_", [1, 3, 17, 38])
def test_a_failed_server_loses_no_answer(round_, tmp_path, monkeypatch):
    ill, engine = Ill(max_rounds=40), uneven(wait=First(2), checkpoint=tmp_path / "run")
    well = uneven(wait=First(2)).run(ill, MANY)
    monkeypatch.setattr(Ill, "round", round_)
    with pytest.raises(OverflowError):
        engine.run(ill, MANY)
    monkeypatch.setattr(Ill, "round", -1)
    assert everything(engine.run(ill, MANY, resume=True)) == everything(well)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("written", [False, True])
def test_memories_that_cannot_be_written_leave_the_last_checkpoint(
    error, written, tmp_path, monkeypatch
):
    engine = uneven(wait=First(1), checkpoint=tmp_path / "run", every=1)
    well, real, calls = uneven(wait=First(1)).run(SEPARATE, MANY), Memories.put, []

    def put(self: Memories, ids: Any, memory: Any) -> None:
        calls.append(len(ids))
        if len(calls) == 5 and not written:
            raise error
        real(self, ids, memory)
        if len(calls) == 5:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(Memories, "put", put)
        with pytest.raises(error):
            engine.run(SEPARATE, MANY)  # what may be half written is not kept
    assert everything(engine.run(SEPARATE, MANY, resume=True)) == everything(well)


@dataclass(frozen=True)
class Summed(SeparateToy):
    """Its uploads are partly sums."""

    @property
    def on_server(self) -> Any:
        return {
            Looked: lambda state, ids, got: SeparateToy.descend(
                self, state, ids, Seen(got.gradient, got.total)
            )
        }

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        memory, up = super().look(memory, ask, data, rng)
        return memory, Looked(up.gradient, np.abs(up.noise))


@dataclass(frozen=True)
class Growing(SeparateToy):
    """Memories change the type of their numbers with the second answer."""

    def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        new, up = super().look(memory, ask, data, rng)
        if memory.seen[0] == 0:
            return new, up
        momentum = np.float32(new.momentum).astype(float)
        return ToyMemory(momentum, new.seen.astype(float)), up


@pytest.mark.parametrize("kind", [Summed, Growing])
def test_sums_and_memories_that_change_do_not_depend_on_who_steps_together(kind):
    one, other = (
        uneven(wait=First(2), block_size=size).run(kind(max_rounds=25), MANY) for size in (1, 8)
    )
    assert one.outcome.stop is Stop.MAX_ROUNDS
    np.testing.assert_allclose(other.state.gradients, one.state.gradients, rtol=0, atol=1e-12)
    assert encode(other.memories) == encode(one.memories)


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

    mutates_state: ClassVar[bool] = False

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
def test_memories_that_change_their_class_follow_their_clients(seed):
    runs = [
        uneven(wait=First(1), block_size=size).run(Forgetful(max_rounds=25), MANY, seed=seed)
        for size in (1, 8)
    ]
    assert OtherMemory in {type(memory) for memory in runs[0].memories}
    assert but_for_blocks(runs[1]) == but_for_blocks(runs[0])


# ---- rules of waiting and delays


@pytest.mark.parametrize("wait", RULES)
@pytest.mark.parametrize("size", [1, 2, 64])
def test_every_rule_is_repeatable_and_can_be_resumed(wait, size, tmp_path):
    def engine(**options: Any) -> VirtualClock:
        return VirtualClock(wait=wait, block_size=size, stragglers={"site c2": 20.0}, **options)

    run = engine().run(AsyncToy(), federation())
    assert everything(Replay(run.log).run(AsyncToy(), federation())) == everything(run)
    for stop in range(1, run.rounds):
        part = engine(checkpoint=tmp_path / "run")
        part.run(AsyncToy(), federation(), max_rounds=stop)
        assert everything(part.run(AsyncToy(), federation(), resume=True)) == everything(run)


@pytest.mark.parametrize("wait", RULES)
def test_who_steps_together_changes_rounding_alone(wait):
    runs = [
        VirtualClock(wait=wait, block_size=size).run(
            AsyncToy(max_rounds=30), federation((4, 9, 1, 40, 3, 8))
        )
        for size in (1, 2, 64)
    ]
    for run in runs[1:]:
        assert encode((run.log.answered, run.log.times)) == encode(
            (runs[0].log.answered, runs[0].log.times)
        )
        np.testing.assert_allclose(run.state.gradients, runs[0].state.gradients, rtol=0, atol=1e-12)


@dataclass
class Delays:
    """The delays that clients had, by name."""

    seen: dict[str, list[float]]

    def of(
        self, monkeypatch: Any, engine: VirtualClock, algorithm: Any, fed: Any, seed: int = 0
    ) -> dict[str, Any]:
        self.seen = {}
        real = Trips.next

        def noted(trips: Trips, ids: Any, gradients: float) -> Any:
            delays = real(trips, ids, gradients)
            for i, delay in zip(ids.tolist(), delays.tolist(), strict=True):
                self.seen.setdefault(trips.clients[i], []).append(delay)
            return delays

        with monkeypatch.context() as patch:
            patch.setattr(Trips, "next", noted)
            engine.run(algorithm, fed, seed=seed)
        return self.seen


def test_neither_rule_nor_method_nor_other_clients_change_a_delay(monkeypatch):
    delays = LogNormal(per_gradient=0.0)  # the two methods ask for different numbers of gradients
    note, few = Delays({}), federation((4, 9, 1))
    kinds = [
        note.of(
            monkeypatch,
            VirtualClock(delays, wait=wait, stragglers={"site b1": 3.0}),
            algorithm,
            fed,
        )
        for wait in RULES
        for algorithm, fed in (
            (Toy(100), federation()),
            (AsyncToy(max_rounds=150), federation()),
            (AsyncToy(), few),
        )
    ]
    longest = {
        name: max((seen[name] for seen in kinds if name in seen), key=len)
        for name in federation().clients
    }
    assert max(map(len, longest.values())) > 64  # more than what is drawn at once
    for seen in kinds:
        for name, trips in seen.items():
            assert trips == longest[name][: len(trips)]
    other = note.of(monkeypatch, VirtualClock(delays), Toy(), federation(), seed=1)
    assert all(trips[0] != longest[name][0] for name, trips in other.items())
    assert len({trips[0] for trips in other.values()}) == len(other)
