"""Checkpoints: refused when damaged or of another run, written in one step, the same run in another
mode.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from toy import Toy, ToyAsk, federation

from bonafed.engines import CheckpointError, InProcess, checkpoint
from bonafed.rounds import encode


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run"
    InProcess(checkpoint=path, block_size=2).run(Toy(), federation(), max_rounds=3)
    return path


def resume(
    path: Any, algorithm: Any = None, fed: Any = None, seed: int = 0, mode: str = "blocks"
) -> Any:
    engine = InProcess(mode, checkpoint=path, block_size=2)
    return engine.run(algorithm or Toy(), fed or federation(), seed=seed, resume=True)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_checkpoint_is_refused(saved, keep):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(
        CheckpointError,
        match=r"cannot be read: .*Restore it from a copy, or begin a new run \(resume=False\)",
    ):
        resume(saved)


def test_a_damaged_checkpoint_is_refused(saved):
    data = bytearray(saved.read_bytes())
    data[len(data) // 2] ^= 1
    saved.write_bytes(data)
    with pytest.raises(CheckpointError, match="digest does not match"):
        resume(saved)


def test_other_files_are_refused(tmp_path, saved):
    saved.write_bytes(encode(ToyAsk(np.zeros(1), np.zeros(1))))
    with pytest.raises(CheckpointError, match="holds a ToyAsk, no checkpoint"):
        resume(saved)
    saved.write_text("[a]\nb = 1\n" * 9)
    with pytest.raises(CheckpointError, match="are not a record"):
        resume(saved)
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*: nothing to resume"):
        resume(tmp_path / "none")


def test_another_run_is_refused(saved):
    fed = federation()
    with pytest.raises(CheckpointError, match=r"of seed 0, got seed 1\. Resume with what"):
        resume(saved, seed=1)
    with pytest.raises(CheckpointError, match=r"of .*step=0\.1, .* got .*step=0\.2"):
        resume(saved, Toy(step=0.2))
    with pytest.raises(CheckpointError, match="other clients; not in both: site e4"):
        resume(saved, fed=fed.restrict(fed.clients[:4]))
    with pytest.raises(CheckpointError, match="same names, other order"):
        resume(
            saved, fed=type(fed)(fed.clients[::-1], fed.X[::-1], fed.y[::-1], classes=fed.classes)
        )
    X = [x.copy() for x in fed.X]
    X[1][0, 0] += 1e-12
    with pytest.raises(CheckpointError, match="the data of site b1 differ"):
        resume(saved, fed=fed.with_features(X))


@pytest.mark.parametrize("mode", ["each", "bytes"])
def test_another_mode_or_blocking_may_go_on(saved, mode):
    whole = InProcess(mode).run(Toy(), federation())
    resumed = resume(saved, mode=mode)
    np.testing.assert_allclose(resumed.state.w, whole.state.w, rtol=0, atol=1e-13)
    assert [row["bytes_up"] for row in resumed.history] == [
        row["bytes_up"] for row in whole.history
    ]


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_last_checkpoint(saved, monkeypatch, at):
    before = saved.read_bytes()

    def crash(*paths: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(os, at, crash)
        with pytest.raises(OSError, match="no space left"):
            resume(saved)
    assert saved.read_bytes() == before
    assert resume(saved).rounds == 6


@pytest.mark.parametrize(("every", "kept"), [(1, [1, 2, 3, 4, 5, 6]), (4, [4, 6]), (100, [6])])
def test_every_says_how_often(tmp_path, monkeypatch, every, kept):
    rounds = []
    monkeypatch.setattr(checkpoint, "save", lambda path, found: rounds.append(found.round))
    InProcess(checkpoint=tmp_path / "run", every=every).run(Toy(), federation())
    assert rounds == kept


def test_a_finished_run_is_read_not_written(saved, monkeypatch):
    assert resume(saved).rounds == 6
    monkeypatch.setattr(checkpoint, "save", None)
    assert resume(saved).rounds == 6


class Kind(enum.Enum):
    A = 1


@dataclass(frozen=True)
class Described:
    value: Any


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3), np.array([0.0, 0.0, -0.0])),
        (np.zeros(3), np.zeros(3, np.float32)),
        (1, 1.0),
        ((1, 2), (2, 1)),
        ({"a": 1}, {"a": 2}),
        (Toy(), Toy(step=1.0)),
        (Kind.A, None),
        (np.sum, np.max),
        ("1", 1),
    ],
)
def test_descriptions_tell_values_apart_and_hold_no_addresses(one, other):
    assert checkpoint.describe(Described(one)) == checkpoint.describe(Described(one))
    assert checkpoint.describe(Described(one)) != checkpoint.describe(Described(other))
    assert " at 0x" not in checkpoint.describe(Described((one, other, object(), Kind)))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"round": 1, "gap": 0.1, "ok": True}, {"round": 2, "gap": float("nan"), "ok": False}],
        [{"round": 1, "gap": None}, {"round": 2, "gap": 3.0}],
        [{"round": 1}, {"round": 2, "gap": 3.0}],
    ],
)
def test_history_survives_packing(rows):
    back = checkpoint.unpacked(checkpoint.packed(rows))
    assert repr(back) == repr(rows)
