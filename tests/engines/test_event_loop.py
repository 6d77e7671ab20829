"""The loop of asynchronous engines: traffic, history, messages in flight, blocks, memories."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from problems import PLAIN
from scipy.sparse import csr_array
from toy import AsyncToy, Looked, Lookup, Table, ToyMemory, federation

import bonafed as bf
from bonafed.arrays import Array, stream
from bonafed.engines import CheckpointError, VirtualClock
from bonafed.engines.batching import Memories, Rows
from bonafed.engines.delays import Constant, First
from bonafed.rounds import Algorithm, Done, Each, Round, Stop, Version, encode, join, record, rows

SLOW = {"site c2": 10.0}


def whole(run: Any) -> bytes:
    return encode(
        (run.state, run.outcome, tuple(run.history), tuple(run.messages), run.memories, run.log)
    )


# ---- what is counted


@dataclass(frozen=True)
class Counted(AsyncToy):
    """Counts what is sent and received through the codec itself."""

    sent: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)

    def look(self, memory: Any, ask: Lookup, data: Any, rng: Any) -> Any:
        new, answer = super().look(memory, ask, data, rng)
        i = int(data.index[0])
        self.given[i] = self.given.get(i, 0) + len(encode(answer))
        return new, answer

    def server_start(self, n_clients: int) -> Any:
        state, ask = super().server_start(n_clients)
        return state, self.noted(ask, range(n_clients))

    def descend(self, state: Table, ids: Sequence[int], got: Looked) -> Any:
        state, ask = super().descend(state, ids, got)
        return state, self.noted(ask, ids) if isinstance(ask, Round) else ask

    def noted(self, ask: Round, to: Sequence[int]) -> Round:
        for i in to:
            self.sent[i] = self.sent.get(i, 0) + len(encode(rows(ask.message, [i])))
        return ask


def test_bytes_are_those_of_the_codec_for_every_client():
    algorithm = Counted()
    run = VirtualClock(block_size=1, stragglers=SLOW).run(algorithm, federation())
    assert run.exchanged is not None
    assert run.exchanged.tolist() == [
        [algorithm.given[i] for i in range(5)],
        [algorithm.sent[i] for i in range(5)],
    ]
    table = {row["direction"]: (row["message"], row["count"], row["bytes"]) for row in run.messages}
    assert table["up"] == ("Looked", len(run.log.answered), sum(algorithm.given.values()))
    assert table["down"][2] == sum(algorithm.sent.values())
    assert table["down"][1] > table["up"][1]  # the slow one still has a message
    assert sum(row["bytes_up"] for row in run.history) == table["up"][2]
    assert sum(row["bytes_down"] for row in run.history) == table["down"][2]


def test_history_and_watch():
    seen = []
    run = VirtualClock(stragglers=SLOW).run(
        AsyncToy(), federation(), watch=[lambda row, state: seen.append((row, state.steps))]
    )
    assert seen == list(zip(run.history, range(1, 13), strict=True))
    assert list(run.history[0]) == [
        "round",
        "time",
        "answered",
        "staleness",
        "bytes_up",
        "bytes_down",
        "total",
    ]
    assert {type(value) for value in run.history[0].values()} == {int, float}
    times = [row["time"] for row in run.history]
    assert times == sorted(times)


def test_some_rows_hold_what_happened_since_the_row_before(tmp_path):
    every = VirtualClock(stragglers=SLOW).run(AsyncToy(), federation())
    seen = []
    few = VirtualClock(stragglers=SLOW, keep_rows=5).run(
        AsyncToy(), federation(), watch=[lambda row, state: seen.append(row)]
    )
    assert seen == every.history  # watchers see every round
    assert [row["round"] for row in few.history] == [5, 10, 12]  # and the last one
    for row, start in zip(few.history, (0, 5, 10), strict=True):
        part = every.history[start : row["round"]]
        for key in ("answered", "bytes_up", "bytes_down"):
            assert row[key] == sum(one[key] for one in part)
        assert row["staleness"] == max(one["staleness"] for one in part)
        assert (row["time"], row["total"]) == (part[-1]["time"], part[-1]["total"])
    assert list(few.active) == list(every.active)
    engine = VirtualClock(stragglers=SLOW, keep_rows=5, checkpoint=tmp_path / "run")
    for stop in range(1, 12):
        engine.run(AsyncToy(), federation(), max_rounds=stop)
        assert whole(engine.run(AsyncToy(), federation(), resume=True)) == whole(few)


def test_a_report_costs_nothing_where_no_row_is_kept():
    asked = []

    class Reports(AsyncToy):
        def report(self, state: Any) -> Any:
            asked.append(state.steps)
            return super().report(state)

    VirtualClock(keep_rows=5).run(Reports(), federation())
    assert asked == [5, 10, 12]


def test_active_is_a_sequence():
    active = VirtualClock(stragglers=SLOW).run(AsyncToy(), federation()).active
    assert active[0] == (0, 1, 2, 3, 4)
    assert active[-1] == active[11]
    assert active[1:3] == [active[1], active[2]]
    assert len(active) == 12
    with pytest.raises(IndexError):
        active[12]


# ---- messages in flight


def test_a_message_lives_as_long_as_somebody_is_to_answer_it():
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    class Watched(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            nonlocal most
            state, ask = super().descend(state, ids, got)
            if isinstance(ask, Round):
                alive.add(ask.message)
            return state, ask

        def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            nonlocal most
            most = max(most, len(alive))
            return super().look(memory, ask, data, rng)

    VirtualClock(Constant(1.0), wait=First(1), stragglers=SLOW).run(
        Watched(max_rounds=500), federation()
    )
    assert most <= 5 + 1  # one for each in flight at most


def test_what_is_in_flight_is_what_was_sent_though_the_server_overwrites_it():
    sent: list[Array] = []
    got: list[tuple[int, Array]] = []

    class Watched(AsyncToy):
        def descend(self, state: Any, ids: Any, gradient: Any) -> Any:
            state, ask = super().descend(state, ids, gradient)
            sent.append(state.w.copy())
            return state, ask

        def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            got.extend(zip(data.index.tolist(), ask.w.copy(), strict=True))
            return super().look(memory, ask, data, rng)

    run = VirtualClock(stragglers=SLOW).run(Watched(), federation())
    version, k = dict.fromkeys(range(5), -1), 0
    for round_, ids in enumerate(run.active):
        for i, w in sorted(got[k : k + len(ids)], key=lambda pair: pair[0]):
            assert np.array_equal(w, np.zeros(3) if version[i] < 0 else sent[version[i]])
            version[i] = round_
        k += len(ids)
    assert k == len(got)
    assert len({w.tobytes() for _, w in got}) > 5


@record
class PlainAsk:
    w: Array  # (d,) one model for the whole block
    weight: Each


@record
class PlainGot:
    w: Each  # (n, d) what the client was sent
    weight: Each
    together: Each  # (n,) clients in its block


@record
class PlainState:
    w: Array
    steps: int
    received: tuple[tuple[int, float, float, int], ...]


@dataclass(frozen=True)
class Plain(Algorithm):
    """An asynchronous algorithm whose messages have no versions: clients with different messages
    step apart.
    """

    @property
    def on_client(self) -> Any:
        return {PlainAsk: self.step}

    @property
    def on_server(self) -> Any:
        return {PlainGot: self.note}

    def client_start(self, data: Any) -> Any:
        return None

    def server_start(self, n_clients: int) -> Any:
        return PlainState(np.zeros(2), 0, ()), Round(
            PlainAsk(np.zeros(2), np.arange(float(n_clients)))
        )

    def step(self, memory: Any, ask: PlainAsk, data: Any, rng: Any) -> Any:
        n = len(data.names)
        return None, PlainGot(np.tile(ask.w, (n, 1)), ask.weight, np.full(n, n))

    def note(self, state: PlainState, ids: Sequence[int], got: PlainGot) -> Any:
        new = tuple(
            (i, float(got.w[k, 0]), float(got.weight[k]), int(got.together[k]))
            for k, i in enumerate(ids)
        )
        state = PlainState(state.w + 1.0, state.steps + 1, (*state.received, *new))
        if state.steps == 8:
            return state, Done(Stop.MAX_ROUNDS)
        return state, Round(PlainAsk(state.w, state.steps + np.arange(5.0) / 10), tuple(ids), 1)

    def report(self, state: Any) -> Any:
        return {}


def test_clients_with_different_messages_step_apart():
    run = VirtualClock(Constant(1.0), wait=First(3), stragglers=SLOW).run(Plain(), federation())
    mixed = 0
    asked = dict.fromkeys(range(5), 0)
    received = iter(run.state.received)
    for round_, ids in enumerate(run.active):
        for i in ids:
            who, w, weight, together = next(received)
            assert (who, w) == (i, float(asked[i]))
            assert weight == (i if not asked[i] else asked[i] + i / 10)
            same = [j for j in ids if asked[j] == asked[i]]
            assert together == len(same)
            mixed += len(same) < len(ids)
        asked.update(dict.fromkeys(ids, round_ + 1))
    assert mixed


def test_nobody_is_asked_before_it_has_answered():
    class Eager(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            state, ask = super().descend(state, ids, got)
            return state, replace(ask, to=None)

    with pytest.raises(
        ValueError,
        match=r"client site [a-e]\d is asked in round 3 and has not answered .* of round 2",
    ):
        VirtualClock(stragglers=SLOW).run(Eager(), federation())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"to": ()}, ValueError, r"Round\.to needs different clients in 0\.\.4, got \(\)"),
        ({"to": (0, 0)}, ValueError, r"got \(0, 0\)"),
        ({"to": (7,)}, ValueError, r"got \(7,\)"),
        ({"to": (0.5, 1)}, TypeError, r"whole numbers in 0\.\.4, got \(0\.5, 1\)"),
        ({"to": (True,)}, TypeError, r"whole numbers in 0\.\.4, got \(True,\)"),
        ({"wait_for": 0}, ValueError, r"Round\.wait_for must be in 1\.\.5, got 0"),
        ({"wait_for": 6}, ValueError, "got 6"),
        (
            {"message": Lookup(np.zeros(3), np.ones(2), 1.0)},
            ValueError,
            "weight needs one row for each of the 5",
        ),
        (
            {"message": ToyMemory(np.zeros(3), np.zeros(3))},
            TypeError,
            "has no function for ToyMemory; it has Lookup",
        ),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused(change, error, text, tmp_path):
    class Asks(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            state, ask = super().descend(state, ids, got)
            return state, replace(ask, **change) if state.steps == 3 else ask

    engine = VirtualClock(wait=First(5), checkpoint=tmp_path / "run")
    with pytest.raises(error, match=text):
        engine.run(Asks(), federation())
    with pytest.raises(CheckpointError, match=r"is of Asks\("):  # the finished rounds are kept
        engine.run(AsyncToy(), federation(), resume=True)


def test_whoever_waits_for_more_than_the_rule_gets_them():
    class Three(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            state, ask = super().descend(state, ids, got)
            return state, replace(ask, wait_for=3) if isinstance(ask, Round) else ask

    assert {len(ids) for ids in VirtualClock().run(Three(), federation()).active[1:]} == {3}
    assert {
        len(ids) for ids in VirtualClock(wait=First(4)).run(Three(), federation()).active[1:]
    } == {4}
    assert {
        len(ids) for ids in VirtualClock(wait=First(9)).run(Three(), federation()).active[1:]
    } == {5}


def test_the_server_must_answer_with_a_round():
    class Wrong(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            return state, None

    with pytest.raises(
        TypeError, match=r"on_server must return \(state, Round or Done\), got a NoneType"
    ):
        VirtualClock().run(Wrong(), federation())


# ---- rows and memories


def uneven(sparse: bool = False) -> Any:
    sizes = (3, 100, 1, 4, 90, 2, 17)
    fed = federation(sizes)
    X = [csr_array(x) if sparse and i in (1, 3) else x for i, x in enumerate(fed.X)]
    return bf.Federation(fed.clients, X, fed.y, classes=(-1.0, 1.0))


@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_hold_the_rows_of_their_clients(sparse, monkeypatch):
    fed = uneven(sparse)
    for small in (0, 10**9):
        monkeypatch.setattr("bonafed.engines.batching.SMALL", small)
        kept = Rows(fed, 3)
        for ids in ([0, 3], [1, 4], [2], [6], [0]):
            if sparse and len(ids) > 1 and {1, 3} & set(ids):
                assert len({kept.sort[i] for i in ids}) == 2
                continue
            of = np.array(ids)
            for block in (kept.block(of), *(kept.block(of, whole=True) for _ in range(3))):
                assert block.index.tolist() == ids
                assert block.names == tuple(fed.clients[i] for i in ids)
                for k, i in enumerate(ids):
                    m = len(fed.y[i])
                    x = block.X[k] if isinstance(block.X, np.ndarray) else block.X.toarray()
                    assert np.array_equal(
                        x[:m], fed.block(i).X[0] if isinstance(fed.X[i], np.ndarray) else x
                    )
                    assert np.array_equal(block.y[k, :m], fed.y[i])
                    assert np.isclose(block.share[k, :m].sum(), 1.0)
                    assert not block.share[k, m:].any()
                    assert not x[m:].any()
                    assert (block.y[k, m:] == block.y[k, 0]).all()
        padded = kept.sort
        assert all(
            len(fed.y[i]) <= 2 * len(fed.y[j])
            for i in range(7)
            for j in range(7)
            if padded[i] == padded[j]
        )


@pytest.mark.parametrize("sparse", [False, True])
def test_uneven_and_sparse_clients_step_in_blocks_of_their_like(sparse):
    fed = uneven(sparse)
    runs = [VirtualClock(wait=First(4), block_size=size).run(AsyncToy(), fed) for size in (1, 64)]
    np.testing.assert_allclose(runs[1].state.gradients, runs[0].state.gradients, rtol=0, atol=1e-13)
    assert encode(runs[0].log.times) == encode(runs[1].log.times)


@record
class Odd:
    array: Array
    parts: Any


def test_memories_follow_their_clients_whatever_their_form():
    rng, n = np.random.default_rng(0), 7
    kept, truth = Memories(n), {}
    for step in range(60):
        ids = np.sort(rng.permutation(n)[: rng.integers(1, n + 1)])
        shape = int(rng.integers(1, 4))
        extra = {"k": (rng.standard_normal((len(ids), 2)), None)} if step % 3 else step % 2
        memory = Odd(rng.standard_normal((len(ids), shape)), extra)
        kept.put(ids, memory)
        for k, i in enumerate(ids.tolist()):
            truth[i] = Odd(
                memory.array[k : k + 1],
                {"k": (extra["k"][0][k : k + 1], None)} if step % 3 else extra,
            )  # pyright: ignore
        if step % 7 == 0:
            again = Memories(n)
            for part in kept.stored():
                again.put(*part)
            kept = again
        for i, expected in truth.items():
            assert encode(kept.of(np.array([i]))) == encode(expected)
        assert len(kept.stacks) <= n
        by_form = {
            place: [i for i in truth if kept.place[i] == place] for place in set(kept.place) - {-1}
        }
        for members in by_form.values():
            assert encode(kept.of(np.array(members))) == encode(join([truth[i] for i in members]))
    assert sum(kept.count.values()) == len(truth) == n


def test_clients_own_streams_count_their_own_turns():
    drawn: dict[tuple[str, int], float] = {}

    class Noted(AsyncToy):
        def look(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            for p, name in enumerate(data.names):
                drawn[name, int(memory.seen[p])] = rng(p).standard_normal()
            return super().look(memory, ask, data, rng)

    run = VirtualClock(stragglers=SLOW).run(Noted(), federation(), seed=7)
    assert drawn == {(name, turn): stream(7, name, turn).standard_normal() for name, turn in drawn}
    assert len(drawn) == len(run.log.answered)
    assert join(run.memories).seen.tolist() == np.bincount(run.log.answered, minlength=5).tolist()


# ---- solve


def test_a_solution_on_simulated_time():
    fed, problem = (
        federation((20, 12, 30)),
        bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1)),
    )
    one, other = (
        bf.solve(problem, fed, algorithm=bf.Bundle(), engine=each)
        for each in (VirtualClock(), bf.InProcess("each"))
    )
    assert one.outcome.stop is Stop.OPTIMAL
    np.testing.assert_allclose(one.w, other.w, rtol=0, atol=1e-3)
    assert one.history[-1]["time"] > one.rounds * 0.5
    for way, part in (("bytes_up", "up"), ("bytes_down", "down")):
        total = sum(row["bytes"] for row in one.messages if row["direction"] == part)
        assert sum(row[way] for row in one.clients) == total


def test_a_certificate_is_made_outside_the_clock():
    fed = federation((20, 12, 30))
    engine = VirtualClock(Constant(1.0), crashes={fed.clients[0]: 1.5})
    problem = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1))
    solution = bf.solve(problem, fed, algorithm=bf.Bundle(), engine=engine)
    assert (solution.outcome.stop, solution.rounds) == (Stop.STALLED, 1)
    assert np.isfinite(solution.certificate.value)  # which takes two rounds of all clients


def test_a_version_is_handed_over_row_by_row():
    @record
    class ShapesAsk:
        w: Version
        none: Version | None
        table: Version  # (2, 2)

    seen = []

    class Shapes(Plain):
        @property
        def on_client(self) -> Any:
            return {ShapesAsk: self.shape}

        def server_start(self, n_clients: int) -> Any:
            return PlainState(np.zeros(2), 0, ()), Round(
                ShapesAsk(np.zeros(2), None, np.zeros((2, 2)))
            )

        def shape(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            n = len(data.names)
            seen.append((n, ask.w.shape, ask.none, ask.table.shape, float(ask.w[-1, 0])))
            return None, PlainGot(ask.w, np.zeros(n), np.zeros(n, np.int64))

        def note(self, state: PlainState, ids: Sequence[int], got: PlainGot) -> Any:
            state, ask = super().note(state, ids, got)
            return state, (
                ask
                if isinstance(ask, Done)
                else Round(ShapesAsk(state.w, None, np.ones((2, 2))), tuple(ids), 1)
            )

    run = VirtualClock(Constant(1.0), wait=First(3), stragglers=SLOW).run(Shapes(), federation())
    assert len(seen) == run.rounds  # different versions, one step
    assert all((w, none, table) == ((n, 2), None, (n, 2, 2)) for n, w, none, table, _ in seen)
