"""Asynchronous engines: checkpoints, logs and their replay, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import AsyncToy, Toy, ToyMemory, federation

import bonafed
from bonafed.engines import CheckpointError, InProcess, Replay, VirtualClock
from bonafed.engines.checkpoint import Checkpoint, load
from bonafed.engines.delays import First, LogNormal
from bonafed.engines.run_record import Log
from bonafed.rounds import Stop, encode

SLOW = {"site c2": 10.0}


def whole(run: Any) -> bytes:
    return encode(
        (run.state, run.outcome, tuple(run.history), tuple(run.messages), run.memories, run.log)
    )


# ---- checkpoints and logs


def test_a_checkpoint_belongs_to_its_rule_and_engine(tmp_path):
    path = tmp_path / "run"
    VirtualClock(checkpoint=path).run(AsyncToy(), federation(), max_rounds=3)
    for other in (
        VirtualClock(wait=First(2), checkpoint=path),
        VirtualClock(LogNormal(0.2), checkpoint=path),
    ):
        with pytest.raises(CheckpointError, match=r"the checkpoint is of .* got .*"):
            other.run(AsyncToy(), federation(), resume=True)
    with pytest.raises(CheckpointError, match="of seed 0, got seed 1"):
        VirtualClock(checkpoint=path).run(AsyncToy(), federation(), seed=1, resume=True)
    with pytest.raises(CheckpointError, match=r"the checkpoint is of .* got .*"):
        InProcess(checkpoint=path).run(AsyncToy(), federation(), resume=True)
    InProcess(checkpoint=path).run(AsyncToy(), federation(), max_rounds=3)
    with pytest.raises(CheckpointError, match=r"the checkpoint is of .* got .*"):
        VirtualClock(checkpoint=path).run(AsyncToy(), federation(), resume=True)
    with pytest.raises(
        ValueError, match=r"resume=True needs a checkpoint: VirtualClock\(checkpoint=PATH\)"
    ):
        VirtualClock().run(AsyncToy(), federation(), resume=True)
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere for the checkpoint"):
        VirtualClock(checkpoint=tmp_path / "nowhere" / "run").run(Toy(), federation())


def test_a_log_is_refused_where_it_does_not_fit(tmp_path):
    log = VirtualClock(stragglers=SLOW).run(AsyncToy(), federation()).log
    with pytest.raises(ValueError, match="of other clients; not in both: site d3, site e4"):
        Replay(log).run(AsyncToy(), federation((4, 9, 1)))
    with pytest.raises(ValueError, match="of seed 0, got seed 1"):
        Replay(log).run(AsyncToy(), federation(), seed=1)
    with pytest.raises(
        ValueError,
        match=r"the log does not fit: in round 2 it has 1 answers, .* waits for 5 of the 5",
    ):
        Replay(log).run(Toy(), federation())
    twice = replace(
        log,
        answered=log.answered[[0, 1, 2, 3, 4, 0, 0]],
        times=log.times[:7],
        ends=np.array([5, 6, 7]),
    )
    run = Replay(twice).run(AsyncToy(), federation())
    assert (run.rounds, run.outcome.stop) == (3, Stop.INTERRUPTED)
    assert "the log ends here" in run.outcome.text
    for third, fourth in ((0, 0), (-1, 1), (99, 1)):  # twice in a round, no client
        answered, times = np.array([0, 1, 2, 3, 4, third, fourth]), log.times[:7]
        odd = replace(
            log, answered=answered.astype(log.answered.dtype), times=times, ends=np.array([5, 7])
        )
        with pytest.raises(
            ValueError, match=r"the log does not fit: in round 2 it has 2 answers, of \["
        ):
            Replay(odd).run(AsyncToy(), federation())
    with pytest.raises(TypeError, match="Replay needs a Log"):
        Replay("log")  # pyright: ignore
    path = tmp_path / "log"
    path.write_bytes(encode(ToyMemory(np.zeros(1), np.zeros(1))))
    with pytest.raises(ValueError, match="holds a ToyMemory, no log"):
        Log.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read"):
        Log.load(path)


def test_a_log_repeats_how_the_engine_ended_the_run():
    for options, cap, stop in (
        ({"max_time": 5.0}, None, Stop.MAX_ROUNDS),
        ({"crashes": dict.fromkeys(federation().clients, 4.0)}, None, Stop.STALLED),
        ({}, 4, Stop.MAX_ROUNDS),
    ):
        run = VirtualClock(**options).run(AsyncToy(max_rounds=500), federation(), max_rounds=cap)
        again = Replay(run.log).run(AsyncToy(max_rounds=500), federation())
        assert run.outcome.stop is stop
        assert whole(again) == whole(run)


# ---- Ctrl-C

SCRIPT = """
    import sys, time
    from toy import AsyncToy, federation
    from bonafed.engines import VirtualClock

    class Slow(AsyncToy):
        def descend(self, state, ids, got):
            state.gradients[:] += 1.0  # half of an update
            print(state.steps, flush=True)
            time.sleep(0.01)
            state.gradients[:] -= 1.0
            return super().descend(state, ids, got)

    run = VirtualClock(checkpoint=sys.argv[1]).run(Slow(max_rounds=10**6), federation())
    print(run.outcome.stop.name, run.rounds, run.outcome.text, sep="|")
"""


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process")
@pytest.mark.parametrize("after", [1, 7])
def test_a_real_ctrl_c_waits_for_the_server_and_can_be_resumed(after, tmp_path):
    here = Path(__file__).parents[1]
    # bonafed is the one of this process, whose compiled functions are kept beside it
    places = [
        Path(bonafed.__file__).parents[1],
        here,
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    path = os.pathsep.join(map(str, places))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "run")],
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
    found = load(tmp_path / "run", Checkpoint)
    same = VirtualClock().run(AsyncToy(max_rounds=10**6), federation(), max_rounds=int(rounds))
    state: Any = same.state
    assert found.round == int(rounds)
    np.testing.assert_allclose(found.state.gradients, state.gradients, rtol=0, atol=1e-12)


def struck(times: int) -> Any:
    """An algorithm that is interrupted so many times while the server works in round 3."""

    class Struck(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            for _ in range(times if state.steps == 2 else 0):
                signal.raise_signal(signal.SIGINT)
            return super().descend(state, ids, got)

    return Struck()


def test_one_ctrl_c_ends_after_the_round_and_a_second_at_once(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    engine = VirtualClock(checkpoint=tmp_path / "run")
    run = engine.run(struck(1), federation())
    assert (run.outcome.stop, run.rounds) == (Stop.INTERRUPTED, 3)
    (tmp_path / "run").unlink()
    with pytest.raises(KeyboardInterrupt):
        engine.run(struck(2), federation())
    assert not (tmp_path / "run").exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_done_about_signals():
    runs: list[Any] = []
    thread = threading.Thread(
        target=lambda: runs.append(VirtualClock().run(AsyncToy(), federation()))
    )
    thread.start()
    thread.join()
    assert whole(runs[0]) == whole(VirtualClock().run(AsyncToy(), federation()))


def test_a_failed_server_of_a_donated_state_leaves_the_last_checkpoint(tmp_path):
    class Fails(AsyncToy):
        def descend(self, state: Any, ids: Any, got: Any) -> Any:
            state.gradients[:] = np.nan
            if state.steps == 5:
                raise ZeroDivisionError
            state.gradients[:] = 0.0
            return super().descend(state, ids, got)

    engine = VirtualClock(checkpoint=tmp_path / "run", every=2)
    with pytest.raises(ZeroDivisionError):
        engine.run(Fails(), federation())
    found = load(tmp_path / "run", Checkpoint)
    assert found.round == 4
    assert np.isfinite(found.state.gradients).all()
