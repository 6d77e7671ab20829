"""Checkpoints that an earlier bonafed wrote: they are read, and their runs go on as if nothing had
happened since.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_runs import RUNS
from wrapped import arrays

from bonafed.engines import CheckpointError
from bonafed.engines.checkpoint import Checkpoint
from bonafed.engines.client_part import PartedFile, ServerCheckpoint
from bonafed.rounds import decode, encode

STORED = Path(__file__).parent / "checkpoints"


def without_bytes(history: Any) -> list[dict[str, Any]]:
    """Rows of a history but for the machine's time and the bytes, since names on the wire are
    longer today.
    """
    dropped = ("seconds", "bytes_up", "bytes_down")
    return [{key: value for key, value in row.items() if key not in dropped} for row in history]


def inner(path: Path) -> Checkpoint:
    """The part of a checkpoint that all engines have."""
    value = decode(path.read_bytes())
    if isinstance(value, ServerCheckpoint):
        return PartedFile(path).joined(value.run, value.mark)
    return value if isinstance(value, Checkpoint) else value.run


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_from_an_old_checkpoint(name, tmp_path):
    run, old, new = RUNS[name], tmp_path / f"{name}.bft", tmp_path / "new.bft"
    for part in STORED.glob(f"{old.name}*"):
        shutil.copy(part, tmp_path)
    run.solve(new, stop=True)
    kept, today = inner(old), inner(new)
    assert (kept.round, type(kept.state)) == (run.after, type(today.state))
    whole, resumed = run.solve(None), run.solve(old, resume=True)
    assert resumed.rounds == whole.rounds > run.after
    assert resumed.outcome.stop is whole.outcome.stop
    # on another processor than that which wrote the file BLAS may round the first rounds otherwise
    past, present = without_bytes(resumed.history), without_bytes(whole.history)
    for row, other in zip(past[: run.after], present[: run.after], strict=True):
        assert row.keys() == other.keys()
        for key, value in row.items():
            assert value == other[key] or np.isclose(value, other[key], rtol=1e-7, equal_nan=True)
    if encode((kept.state, kept.memories)) == encode((today.state, today.memories)):
        assert encode((resumed.w, resumed.state)) == encode((whole.w, whole.state))
        assert repr(past[run.after :]) == repr(present[run.after :])
    else:
        for one, other in zip(arrays(kept.state), arrays(today.state), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(resumed.w, whole.w, rtol=1e-6, atol=1e-8)


def test_a_private_run_that_was_begun_with_noise_in_doubles_is_refused(tmp_path):
    """Its first answers do not keep what the ledger of the whole run would say."""
    path = tmp_path / "run.bft"
    shutil.copy(STORED / "private_admm_in_doubles.bft", path)
    with pytest.raises(
        CheckpointError, match=r"(?s)the checkpoint .* cannot be read: .*PrivateMemory"
    ):
        RUNS["private_admm"].solve(path, resume=True)


def test_an_old_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.bft"
    shutil.copy(STORED / "bundle.bft", path)
    with pytest.raises(CheckpointError, match=r"of .*Bundle.* got .*ProximalAL"):
        RUNS["proximal_al"].solve(path, resume=True)
