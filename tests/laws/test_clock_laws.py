"""What the engine of simulated time owes every algorithm in ``examples.ALGORITHMS``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from toy import AsyncToy, Toy, federation
from wrapped import Disturbed, Guarded, Watched, everything

from examples import ALGORITHMS
from quorate.engines import ClientError, InProcess, Replay, VirtualClock
from quorate.engines.activation import Adaptive, First, Stale
from quorate.engines.delays import Constant, LogNormal, Trips
from quorate.engines.log import Log
from quorate.rounds import Stop, encode, independent

EXAMPLE = pytest.mark.parametrize("example", ALGORITHMS.values(), ids=ALGORITHMS.keys())
TOY = pytest.mark.parametrize(
    "example", [ALGORITHMS[name] for name in ("toy", "asynchronous toy", "toy of separate clients")]
)
RULES = [First(1), First(2), Stale(1, 3), Adaptive(2)]


def clock(example: Any, **options: Any) -> VirtualClock:
    """Two at a time, blocks of three, and the first client ten times slower."""
    settings: dict[str, Any] = {"wait": First(2), "block_size": 3, "stragglers": {example.federation.clients[0]: 10.0}}
    return VirtualClock(**settings | options)


@functools.cache
def undisturbed(name: str) -> Any:
    """The run of an example with seed 1, which every law compares with."""
    example = ALGORITHMS[name]
    return clock(example).run(example.algorithm, example.federation, seed=1)


def run_of(example: Any) -> Any:
    return undisturbed(next(name for name, known in ALGORITHMS.items() if known is example))


def outside(run: Any) -> bytes:
    """What no clock may change: all but the times."""
    own = ("time", "seconds", "answered", "staleness")
    history = [{key: value for key, value in row.items() if key not in own} for row in run.history]
    return encode(
        (run.state, run.outcome, tuple(history), tuple(run.messages), run.rounds, tuple(run.active), run.memories)
    )


def whole(run: Any) -> bytes:
    """All of a run, bit for bit."""
    return everything(run) + encode((tuple(run.history), run.exchanged, run.log))


@EXAMPLE
def test_no_delay_changes_a_synchronous_algorithm(example):
    watched = Watched(example.algorithm)
    each = InProcess("each").run(watched, example.federation, seed=1)
    if any(getattr(ask, "wait_for", None) is not None for ask in watched.asked):
        return  # whom it hears depends on the delays
    alone = clock(example, block_size=1, wait=First(1)).run(example.algorithm, example.federation, seed=1)
    assert outside(alone) == outside(each)
    assert {row["staleness"] for row in alone.history} == {0}
    together = clock(example, delays=Constant(0.0)).run(example.algorithm, example.federation, seed=1)
    assert together.outcome.stop is each.outcome.stop
    expected = example.answer(each.state)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(example.answer(together.state), expected, rtol=0, atol=example.tolerance * scale)


@EXAMPLE
def test_where_all_answer_at_once_an_asynchronous_algorithm_is_synchronous(example):
    each = InProcess("each").run(example.algorithm, example.federation, seed=1, max_rounds=6)
    everybody = First(example.federation.n_clients)
    run = clock(example, block_size=1, wait=everybody).run(example.algorithm, example.federation, seed=1, max_rounds=6)
    assert encode((run.state, run.memories, tuple(run.active))) == encode(
        (each.state, each.memories, tuple(each.active))
    )


@EXAMPLE
def test_a_rerun_and_the_replay_of_a_log_are_the_same_bit_for_bit(example, tmp_path):
    first, again = run_of(example), clock(example).run(example.algorithm, example.federation, seed=1)
    assert whole(again) == whole(first)
    first.log.save(tmp_path / "log")
    replayed = Replay(Log.load(tmp_path / "log")).run(example.algorithm, example.federation)
    assert whole(replayed) == whole(first)


@EXAMPLE
def test_resume_equals_no_interruption_bit_for_bit(example, tmp_path):
    run, engine = run_of(example), clock(example, checkpoint=tmp_path / "run")
    stop = max(run.rounds // 2, 1)
    part = engine.run(example.algorithm, example.federation, seed=1, max_rounds=stop)
    assert (part.rounds, part.outcome.stop) == (stop, Stop.MAX_ROUNDS)
    assert whole(engine.run(example.algorithm, example.federation, seed=1, resume=True)) == whole(run)
    assert whole(engine.run(example.algorithm, example.federation, seed=1, resume=True)) == whole(run)  # finished


@TOY
def test_a_replay_can_be_resumed(example, tmp_path):
    run = run_of(example)
    replay = Replay(run.log, checkpoint=tmp_path / "run")
    for stop in range(1, run.rounds):
        assert replay.run(example.algorithm, example.federation, max_rounds=stop).rounds == stop
        assert whole(replay.run(example.algorithm, example.federation, resume=True)) == whole(run)


@TOY
@pytest.mark.parametrize("where", ["client", "server", "report", "watch"])
def test_ctrl_c_keeps_the_last_finished_round(example, where, tmp_path):
    engine, algorithm = clock(example, checkpoint=tmp_path / "run", every=100), Disturbed(example.algorithm, where)
    if algorithm.donates and where in ("server", "report"):  # a state that may be half overwritten is not kept
        with pytest.raises(KeyboardInterrupt):
            engine.run(algorithm, example.federation, seed=1, watch=[algorithm.watch])
        assert not (tmp_path / "run").exists()
        return
    part = engine.run(algorithm, example.federation, seed=1, watch=[algorithm.watch])
    assert (part.outcome.stop, part.rounds, len(part.history), len(part.active)) == (Stop.INTERRUPTED, 1, 1, 1)
    assert "interrupted after round 1; the last finished round is in" in part.outcome.text
    algorithm.healthy = True
    assert whole(engine.run(algorithm, example.federation, seed=1, resume=True)) == whole(run_of(example))


@EXAMPLE
def test_a_failing_client_is_named_and_the_run_can_go_on(example, tmp_path):
    run = run_of(example)
    engine, algorithm = clock(example, checkpoint=tmp_path / "run"), Disturbed(example.algorithm)
    algorithm.error = ZeroDivisionError("no rows with label 1")
    algorithm.name = example.federation.clients[run.active[1][-1]]
    with pytest.raises(ClientError, match="failed in round 2: ZeroDivisionError: no rows with label 1") as caught:
        engine.run(algorithm, example.federation, seed=1, watch=[algorithm.watch])
    assert (caught.value.clients, caught.value.round) == ((algorithm.name,), 2)
    assert f"client {algorithm.name} " in str(caught.value)
    algorithm.healthy = True
    assert whole(engine.run(algorithm, example.federation, seed=1, resume=True)) == whole(run)


@EXAMPLE
def test_inputs_are_never_mutated(example):
    data = example.federation.digests()
    guarded = clock(example).run(Guarded(example.algorithm), example.federation, seed=1)
    assert whole(guarded) == whole(run_of(example))
    assert example.federation.digests() == data


@EXAMPLE
def test_clients_said_to_be_independent_are_so_bit_for_bit(example):
    blocks = [example.federation.block(i) for i in range(example.federation.n_clients)]
    if not independent(example.algorithm, blocks):
        return
    for size in (2, 3, 64):
        run = clock(example, block_size=size).run(example.algorithm, example.federation, seed=1)
        silent = clock(example, block_size=size).run(Guarded(example.algorithm), example.federation, seed=1)
        assert whole(silent) == whole(run)  # without saying so each one steps with those who are due


# ---- rules of waiting and delays


@pytest.mark.parametrize("wait", RULES)
@pytest.mark.parametrize("size", [1, 2, 64])
def test_every_rule_is_repeatable_and_can_be_resumed(wait, size, tmp_path):
    def engine(**options: Any) -> VirtualClock:
        return VirtualClock(wait=wait, block_size=size, stragglers={"site c2": 20.0}, **options)

    run = engine().run(AsyncToy(), federation())
    assert whole(Replay(run.log).run(AsyncToy(), federation())) == whole(run)
    for stop in range(1, run.rounds):
        part = engine(checkpoint=tmp_path / "run")
        part.run(AsyncToy(), federation(), max_rounds=stop)
        assert whole(part.run(AsyncToy(), federation(), resume=True)) == whole(run)


@pytest.mark.parametrize("wait", RULES)
def test_who_steps_together_changes_rounding_alone(wait):
    runs = [
        VirtualClock(wait=wait, block_size=size).run(AsyncToy(max_rounds=30), federation((4, 9, 1, 40, 3, 8)))
        for size in (1, 2, 64)
    ]
    for run in runs[1:]:
        assert encode((run.log.answered, run.log.times)) == encode((runs[0].log.answered, runs[0].log.times))
        np.testing.assert_allclose(run.state.gradients, runs[0].state.gradients, rtol=0, atol=1e-12)


@dataclass
class Delays:
    """The delays that clients had, by name."""

    seen: dict[str, list[float]]

    def of(self, monkeypatch: Any, engine: VirtualClock, algorithm: Any, fed: Any, seed: int = 0) -> dict[str, Any]:
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
        note.of(monkeypatch, VirtualClock(delays, wait=wait, stragglers={"site b1": 3.0}), algorithm, fed)
        for wait in RULES
        for algorithm, fed in ((Toy(100), federation()), (AsyncToy(max_rounds=150), federation()), (AsyncToy(), few))
    ]
    longest = {name: max((seen[name] for seen in kinds if name in seen), key=len) for name in federation().clients}
    assert max(map(len, longest.values())) > 64  # more than what is drawn at once
    for seen in kinds:
        for name, trips in seen.items():
            assert trips == longest[name][: len(trips)]
    other = note.of(monkeypatch, VirtualClock(delays), Toy(), federation(), seed=1)
    assert all(trips[0] != longest[name][0] for name, trips in other.items())
    assert len({trips[0] for trips in other.values()}) == len(other)
