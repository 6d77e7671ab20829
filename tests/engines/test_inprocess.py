"""The in-process engine: traffic, requests to some clients, randomness, refusals, memory, a real
Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from toy import Toy, ToyAsk, ToyMemory, federation

import bonafed
from bonafed.arrays import Array, stream
from bonafed.engines import InProcess, VirtualClock, checkpoint, clients, inprocess, loop
from bonafed.rounds import Algorithm, Done, Each, Round, Stop, Sum, Version, encode, join, record

MODES = pytest.mark.parametrize("mode", ["blocks", "each", "bytes"])


@MODES
def test_bytes_and_counts_are_those_of_the_codec(mode, monkeypatch):
    sizes: list[int] = []
    monkeypatch.setattr(
        clients, "encode", lambda value: sizes.append(len(encode(value))) or encode(value)
    )
    InProcess("bytes").run(Toy(), federation())
    run = InProcess(mode).run(Toy(), federation())
    asked = 5 + 5 + 3 + 5 + 3 + 5  # Toy asks every second round only clients 0, 2, 4
    assert [(m["message"], m["direction"], m["count"]) for m in run.messages] == [
        ("ToyAsk", "down", asked),
        ("ToyAnswer", "up", asked),
    ]
    if mode != "bytes":  # the run above has encoded each message and each upload once
        assert sum(m["bytes"] for m in run.messages) == sum(sizes)
        assert sum(row["bytes_up"] + row["bytes_down"] for row in run.history) == sum(sizes)
    assert len(sizes) == 2 * asked * (1 + (mode == "bytes"))


@MODES
def test_history_and_watch(mode):
    seen = []
    run = InProcess(mode).run(
        Toy(), federation(), watch=[lambda row, state: seen.append((row, state.round))]
    )
    assert [row["round"] for row in run.history] == [1, 2, 3, 4, 5, 6]
    assert seen == list(zip(run.history, range(1, 7), strict=True))
    assert list(run.history[0]) == ["round", "seconds", "bytes_up", "bytes_down", "loss", "largest"]
    assert {type(value) for value in run.history[0].values()} == {int, float}
    assert run.history[-1]["loss"] == run.state.loss.mean()


@MODES
def test_only_those_asked_answer_and_remember(mode):
    run = InProcess(mode, block_size=2).run(Toy(), federation())
    assert run.active == [(0, 1, 2, 3, 4)] * 2 + [
        (0, 2, 4),
        (0, 1, 2, 3, 4),
        (0, 2, 4),
        (0, 1, 2, 3, 4),
    ]
    assert join(run.memories).seen.tolist() == [6, 4, 6, 4, 6]


@MODES
def test_a_client_that_is_asked_late_starts_then(mode):
    @dataclass(frozen=True)
    class Late(Toy):
        def server_start(self, n_clients: int) -> Any:
            state, ask = super().server_start(n_clients)
            return state, replace(ask, to=(1, 3))

    run = InProcess(mode).run(Late(max_rounds=1), federation())
    assert [memory is None for memory in run.memories] == [True, False, True, False, True]
    run = InProcess(mode).run(Late(max_rounds=3), federation())
    assert join(run.memories).seen.tolist() == [2, 2, 2, 2, 2]


def test_streams_depend_on_seed_client_and_turn_alone():
    drawn: dict[tuple[str, int], float] = {}

    @dataclass(frozen=True)
    class Noted(Toy):
        def descend(self, memory: ToyMemory, ask: ToyAsk, data: Any, rng: Any) -> Any:
            for p, name in enumerate(data.names):
                drawn[name, int(memory.seen[p])] = rng(p).standard_normal()
            return super().descend(memory, ask, data, rng)

    for fed in (federation(), federation((4, 9))):
        drawn.clear()
        InProcess().run(Noted(), fed, seed=7)
        assert drawn == {
            (name, turn): stream(7, name, turn).standard_normal() for name, turn in drawn
        }
    assert len(drawn) == 6 + 4


def test_a_different_seed_is_a_different_run():
    a, b = (InProcess().run(Toy(), federation(), seed=seed).state.w for seed in (0, 1))
    assert not np.array_equal(a, b)


@MODES
def test_the_engines_own_cap_says_so(mode):
    run = InProcess(mode).run(Toy(), federation(), max_rounds=2)
    assert (run.rounds, run.outcome.stop) == (2, Stop.MAX_ROUNDS)
    assert run.outcome.text.startswith("stopped at the engine's max_rounds = 2; nothing was saved")
    assert InProcess(mode).run(Toy(), federation(), max_rounds=0).rounds == 0


@MODES
def test_what_is_kept_has_one_layout(mode):
    """Else BLAS could round differently after a resume, which brings everything back in C order."""

    @dataclass(frozen=True)
    class Strided(Toy):
        def descend(self, memory: ToyMemory, ask: ToyAsk, data: Any, rng: Any) -> Any:
            assert memory.momentum.flags.c_contiguous
            assert ask.w.flags.c_contiguous
            new, answer = super().descend(memory, ask, data, rng)
            return replace(new, momentum=np.repeat(new.momentum, 2, 1)[:, ::2]), answer

        def average(self, state: Any, ids: Any, got: Any) -> Any:
            assert state.w.flags.c_contiguous
            new, ask = super().average(state, ids, got)
            strided = np.repeat(new.w, 2)[::2]
            ask = (
                replace(ask, message=replace(ask.message, w=strided))
                if isinstance(ask, Round)
                else ask
            )
            return replace(new, w=strided), ask

    run = InProcess(mode, block_size=2).run(Strided(), federation())
    assert np.array_equal(
        run.state.w, InProcess(mode, block_size=2).run(Toy(), federation()).state.w
    )


# ---- refusals


@dataclass(frozen=True)
class Asks(Toy):
    """Asks what it is told to ask."""

    ask: Round = field(default_factory=lambda: Round(None))

    def server_start(self, n_clients: int) -> Any:
        return super().server_start(n_clients)[0], self.ask


ASK = ToyAsk(np.zeros(3), np.ones(5))


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        (Round(ASK, to=()), ValueError, r"Round\.to needs different clients in 0\.\.4, got \(\)"),
        (Round(ASK, to=(1, 1)), ValueError, r"got \(1, 1\)"),
        (Round(ASK, to=(5,)), ValueError, r"got \(5,\)"),
        (Round(ASK, to=(-1,)), ValueError, r"got \(-1,\)"),
        (Round(ASK, wait_for=6), ValueError, r"Round\.wait_for must be in 1\.\.5, got 6"),
        (Round(ASK, wait_for=0), ValueError, "got 0"),
        (
            Round(ToyAsk(np.zeros(3), np.ones(2)), to=(0, 1)),
            ValueError,
            r"ToyAsk\.weight needs one row for each of the 5",
        ),
        (
            Round(ToyMemory(np.zeros(3), np.zeros(3))),
            TypeError,
            "Asks has no function for ToyMemory; it has ToyAsk",
        ),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused(ask, error, text):
    with pytest.raises(error, match=text):
        InProcess().run(Asks(ask=ask), federation())


@MODES
def test_waiting_for_some_is_allowed_and_all_answer(mode):
    assert InProcess(mode).run(
        Asks(ask=Round(ASK, wait_for=2)), federation(), max_rounds=1
    ).active == [(0, 1, 2, 3, 4)]


def test_settings_are_checked(tmp_path):
    for wrong in ({"mode": "quick"}, {"block_size": 0}, {"every": 0}):
        with pytest.raises(ValueError, match="must be"):
            InProcess(**wrong)
    with pytest.raises(
        ValueError, match=r"resume=True needs a checkpoint: InProcess\(checkpoint=PATH\)"
    ):
        InProcess().run(Toy(), federation(), resume=True)
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere for the checkpoint"):
        InProcess(checkpoint=tmp_path / "nowhere" / "run").run(Toy(), federation())


# ---- memory of the machine


@record
class WideAsk:
    w: Array


@record
class WideAnswer:
    total: Sum  # (n, d)


@dataclass(frozen=True)
class Wide(Algorithm):
    """Many numbers from each of many clients, of which the server needs only the sum."""

    d: int

    @property
    def on_client(self) -> Any:
        return {
            WideAsk: lambda memory, ask, data, rng: (
                None,
                WideAnswer(np.ones((len(data.names), self.d))),
            )
        }

    @property
    def on_server(self) -> Any:
        return {WideAnswer: self.done}

    def done(self, state: Any, ids: Sequence[int], got: WideAnswer) -> Any:
        return got, Done(Stop.OPTIMAL)

    def client_start(self, data: Any) -> None:
        return None

    def server_start(self, n_clients: int) -> Any:
        return None, Round(WideAsk(np.zeros(1)))

    def report(self, state: Any) -> dict[str, float]:
        return {}


@MODES
def test_the_server_never_holds_a_row_of_a_sum_for_each_client(mode):
    n, d = 100, 20_000
    fed = federation((1,) * n)
    tracemalloc.start()
    try:
        run = InProcess(mode, block_size=4).run(Wide(d), fed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (run.state.total == n).all()
    # two blocks of four, the sum so far and a new one: far below the n * 8 * d of all rows
    assert peak < 16 * 8 * d


# ---- Ctrl-C

SCRIPT = """
    import sys, time
    from toy import Toy, federation
    from bonafed.engines import InProcess

    def watch(row, state):
        print(row["round"], flush=True)
        time.sleep(0.002)

    engine = InProcess("{mode}", checkpoint=sys.argv[1])
    run = engine.run(Toy(max_rounds=10**6), federation(), watch=[watch])
    print(run.outcome.stop.name, run.rounds, run.outcome.text, sep="|")
"""


# A file opened just before the interruption is closed by the collector, which warns.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("kind", [InProcess, VirtualClock])
def test_an_interruption_at_any_line_leaves_a_run_that_can_go_on(kind, tmp_path, monkeypatch):
    """Ctrl-C as a person times it: before every single line of the engine, one run for each."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # quick
    algorithm, fed = Toy(max_rounds=2), federation((2, 1))
    whole = kind().run(algorithm, fed)
    engine, path = kind(checkpoint=tmp_path / "run", every=1), tmp_path / "run"
    outcomes, line, struck = set(), 0, True
    while struck:
        line += 1
        path.unlink(missing_ok=True)
        run, struck = interrupted(lambda: engine.run(algorithm, fed), line)
        if run is not None:
            outcomes.add((run.outcome.stop, run.rounds))
            assert run.rounds == len(run.history) == len(run.active)
        if path.exists():  # else it struck before there was a run to keep
            resumed = engine.run(algorithm, fed, resume=True)
            kept = (resumed.state, resumed.memories, tuple(resumed.active), tuple(resumed.messages))
            assert encode(kept) == encode(
                (whole.state, whole.memories, tuple(whole.active), tuple(whole.messages))
            )
    assert line > 300
    assert outcomes >= {(Stop.INTERRUPTED, 1), (Stop.MAX_ROUNDS, 2)}


def interrupted(call: Any, line: int) -> tuple[Any, bool]:
    """The call's result, with a signal of Ctrl-C before the given line counted in the engine; and
    if it came.
    """
    files, left = {module.__file__ for module in (inprocess, checkpoint, clients, loop)}, line

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        left -= event == "line"
        if left == 0 and event == "line":
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call(), left <= 0
    except KeyboardInterrupt:
        return None, True
    finally:
        sys.settrace(before)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process")
@pytest.mark.parametrize("after", [1, 7])
@MODES
def test_a_real_ctrl_c_ends_cleanly_and_can_be_resumed(mode, after, tmp_path):
    here = Path(__file__).parents[1]
    # bonafed is the one of this process, whose compiled functions are kept beside it
    places = [
        Path(bonafed.__file__).parents[1],
        here,
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    path = os.pathsep.join(map(str, places))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.format(mode=mode)), str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=900)
    assert (process.returncode, err) == (0, "")
    stop, rounds, text = out.splitlines()[-1].split("|")
    assert (stop, f"interrupted after round {rounds}; " in text) == ("INTERRUPTED", True)
    last = int(rounds) + 5
    algorithm, engine = Toy(max_rounds=10**6), InProcess(mode, checkpoint=tmp_path / "run")
    resumed = engine.run(algorithm, federation(), resume=True, max_rounds=last)
    whole = InProcess(mode).run(algorithm, federation(), max_rounds=last)
    assert encode((resumed.state, resumed.memories)) == encode((whole.state, whole.memories))


# ---- versions and donated states


@record
class VersionAsk:
    w: Version
    weight: Each


@record
class VersionTable:
    table: Array  # (N, d) last gradient of every client
    w: Array  # (d,)
    round: int


@dataclass(frozen=True)
class Donating(Toy):
    """Toy's rows by one model per client, kept in a table that the server overwrites; w travels
    without a copy.
    """

    mutates_state: ClassVar[bool] = True

    @property
    def on_client(self) -> Any:
        return {VersionAsk: self.descend}

    def server_start(self, n_clients: int) -> Any:
        state = VersionTable(np.zeros((n_clients, self.n_features)), np.zeros(self.n_features), 0)
        return state, Round(VersionAsk(state.w, np.full(n_clients, 1 / n_clients)))

    def descend(self, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        assert ask.w.shape == (len(data.names), self.n_features)
        memory, _ = super().descend(memory, ask, data, rng)
        return memory, DonatedAnswer(memory.momentum)

    def average(self, state: Any, ids: Any, got: Any) -> Any:
        state.table[list(ids)] = got.gradient
        np.subtract(state.w, self.step * state.table.mean(0), out=state.w)
        state = replace(state, round=state.round + 1)
        if state.round == self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        n = len(state.table)
        return state, Round(VersionAsk(state.w, np.full(n, 1 / n)), tuple(ids), wait_for=1)

    @property
    def on_server(self) -> Any:
        return {DonatedAnswer: self.average}

    def report(self, state: Any) -> Any:
        return {"size": float(np.abs(state.w).max())}


@record
class DonatedAnswer:
    gradient: Each


@MODES
def test_a_donated_state_is_overwritten_only_by_a_finished_round(mode, tmp_path):
    whole = InProcess(mode, block_size=2).run(Donating(), federation())

    class OutageError(Exception):
        pass

    @dataclass(frozen=True)
    class Failing(Donating):
        def average(self, state: Any, ids: Any, got: Any) -> Any:
            result = super().average(state, ids, got)
            if result[0].round == 3 and not again:
                raise OutageError
            return result

    engine, again = InProcess(mode, block_size=2, checkpoint=tmp_path / "run"), False
    with pytest.raises(OutageError):
        engine.run(Failing(), federation())
    again = True
    resumed = engine.run(Failing(), federation(), resume=True)
    assert encode((resumed.state, resumed.memories)) == encode((whole.state, whole.memories))
    assert np.abs(whole.state.w).max() > 1e-3


@MODES
def test_a_version_must_be_an_array(mode):
    @dataclass(frozen=True)
    class Scalar(Donating):
        def server_start(self, n_clients: int) -> Any:
            return super().server_start(n_clients)[0], Round(VersionAsk(1.0, np.ones(5)))  # pyright: ignore

    with pytest.raises(TypeError, match=r"VersionAsk\.w needs an array, got a float"):
        InProcess(mode).run(Scalar(), federation())


class Unlike:
    """A class of somebody who has not read what an engine asks."""

    on_client: ClassVar[dict[type, Any]] = {}
    on_server: ClassVar[dict[type, Any]] = {}

    def server_start(self, n_clients):
        raise AssertionError


class Alike(Algorithm):
    """A class of somebody who follows the error, but has not written all steps."""

    on_client: ClassVar[dict[type, Any]] = {}


@pytest.mark.parametrize("engine", [InProcess(), VirtualClock()], ids=["process", "clock"])
def test_an_algorithm_of_the_steps_alone_runs_and_reports_nothing(engine):
    @dataclass(frozen=True)
    class Steps(Donating):
        report = Algorithm.report

    fed: Any = federation()
    row = engine.run(Steps(), fed).history[0]
    assert row["round"] == 1
    assert "size" not in row


@pytest.mark.parametrize("engine", [InProcess(), VirtualClock()], ids=["process", "clock"])
def test_what_is_no_algorithm_is_refused_in_words(engine):
    fed: Any = federation()
    with pytest.raises(TypeError, match=r"Unlike, which lacks mutates_state, .*: derive"):
        engine.run(Unlike(), fed)
    with pytest.raises(
        TypeError, match=r"got Alike, which lacks on_server, server_start: .* define"
    ):
        engine.run(Alike(), fed)
    with pytest.raises(TypeError, match=r"got the class Unlike: give Unlike\(\)"):
        engine.run(Unlike, fed)
