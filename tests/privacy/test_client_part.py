"""The two files of a private run's checkpoint: where the keys are, and what a crash leaves."""

from __future__ import annotations

import os
import shutil
import stat
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charged import Killed, T, at

from bonafed.algorithms.federated import private_admm as private_client
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.engines import checkpoint
from bonafed.engines.checkpoint import (
    Checkpoint,
    CheckpointError,
    ClientsCheckpoint,
    PartedFile,
    load,
    save,
)
from bonafed.engines.engine import ClientError
from bonafed.engines.inprocess import InProcess


def seen_by(place):
    """All bytes of the server's file after every round, and all keys and memories."""
    written, kept = [], []

    def watch(row, state):
        if row["round"] > 1:
            written.append((place.folder / "run").read_bytes())
            kept.extend(load(place.folder / "run.clients", ClientsCheckpoint).generations)

    return watch, written, kept


def test_no_key_and_no_memory_of_a_client_is_in_the_servers_file(place):
    watch, written, kept = seen_by(place)
    place.solve(noise="secure", watch=watch)
    assert len(written) == T - 1
    memories = [memory for each in kept for _, memory in each.memories]
    parts = [row.tobytes() for m in memories for row in (*m.secret, *m.z, *m.dual) if row.any()]
    assert {len(m.secret[0]) for m in memories} == {32}
    assert len(parts) > 3 * T
    assert not [part for part in parts for data in written if part in data]


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_nobody_else_may_read_either_file(place, mask):
    place.folder.chmod(0o755)  # a file is at most as open as its folder
    before = os.umask(mask)
    try:
        place.solve(noise="secure", watch=at(2))
    finally:
        os.umask(before)
    for name in ("run", "run.clients"):
        assert stat.S_IMODE((place.folder / name).stat().st_mode) == 0o600


def test_the_keys_that_the_clients_file_held_before_are_overwritten(place):
    place.solve(noise="secure", watch=at(2))
    memory = load(place.folder / "run.clients", ClientsCheckpoint).generations[0].memories[0][1]
    os.link(place.folder / "run.clients", place.folder / "witness")
    place.solve(noise="secure", resume=True, watch=at(3))
    assert memory.secret[0].tobytes() in (place.folder / "run.clients").read_bytes()
    assert not any((place.folder / "witness").read_bytes())


def drawn_keys(monkeypatch):
    """Every key that is drawn from now on."""
    keys, real = [], noisy_gradient.os.urandom

    def urandom(n):
        keys.append(real(n))
        return keys[-1]

    monkeypatch.setattr(noisy_gradient.os, "urandom", urandom)
    return keys


def holding(folder, keys):
    """The files that hold one of the keys."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [p.name for p in paths if any(k in p.read_bytes() for k in keys if len(k) == 32)]


@pytest.mark.parametrize("end", [T + 1, 2], ids=["finished", "interrupted"])
def test_keys_are_in_the_clients_file_until_the_last_answer(place, monkeypatch, end):
    keys, found = drawn_keys(monkeypatch), []

    def watch(row, state):
        found.append(holding(place.folder, keys))
        at(end)(row, state)

    finished = place.solve(noise="secure", watch=watch).rounds == T
    assert [each for each in found if each != ["run.clients"]] == []
    assert holding(place.folder, keys) == ([] if finished else ["run.clients"])
    again = place.solve(noise="secure", resume=True)
    assert again.rounds == T
    assert holding(place.folder, keys) == []
    # what is kept of a finished run is enough to read it again
    assert place.solve(noise="secure", resume=True).w.tobytes() == again.w.tobytes()


def test_the_end_overwrites_the_keys_in_their_place(place, monkeypatch):
    keys = drawn_keys(monkeypatch)
    place.solve(noise="secure", watch=at(2))
    os.link(place.folder / "run.clients", place.folder / "witness")
    place.solve(noise="secure", resume=True)
    assert holding(place.folder, keys) == []
    assert not any((place.folder / "witness").read_bytes())


def test_a_process_that_dies_at_the_end_leaves_keys_that_the_next_destroys(place, monkeypatch):
    keys = drawn_keys(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(PartedFile, "destroy_keys", _dies)
        with pytest.raises(Killed):
            place.solve(noise="secure")
    assert holding(place.folder, keys) == ["run.clients"]
    place.solve(noise="secure", resume=True)
    assert holding(place.folder, keys) == []


def _dies(*_):
    raise Killed


def test_files_of_keys_are_private_also_while_they_are_written(place, monkeypatch):
    place.folder.chmod(0o755)
    keys, modes, real = drawn_keys(monkeypatch), [], os.replace
    left = place.folder / "run.clients.tmp"  # of a process that died
    left.write_bytes(b"a key of before")
    os.link(left, place.folder / "witness")

    def moved(source, target):
        if any(key in Path(source).read_bytes() for key in keys if len(key) == 32):
            modes.append(stat.S_IMODE(Path(source).stat().st_mode))
        real(source, target)

    monkeypatch.setattr(os, "replace", moved)
    before = os.umask(0)
    try:
        place.solve(noise="secure")
    finally:
        os.umask(before)
    assert len(modes) > T
    assert {*modes} == {0o600}
    assert not any((place.folder / "witness").read_bytes())
    assert not left.exists()


def test_no_key_is_in_an_error_or_a_log(place, monkeypatch, caplog):
    keys, real = drawn_keys(monkeypatch), private_client.perturb
    asked = []

    def perturb(*given):
        asked.append(given)
        if len(asked) > 4:
            raise ArithmeticError("no such gradient")
        return real(*given)

    monkeypatch.setattr(private_client, "perturb", perturb)
    with caplog.at_level(0), pytest.raises(ClientError) as raised:
        place.solve(noise="secure")
    text = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert "no such gradient" in text
    for key in (key for key in keys if len(key) == 32):
        numbers = str(list(key))[1:-1]
        assert not [form for form in (key.hex(), repr(key)[2:-1], numbers) if form in text]


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("k", range(1, T + 2))
@pytest.mark.parametrize("book", ["book.json", None])
def test_a_crash_between_both_files_changes_no_bit_of_the_run(place, monkeypatch, k, every, book):
    place.book = book
    monkeypatch.setattr(os, "urandom", lambda n: bytes(n * [7]))
    options = {"noise": "secure", "engine": InProcess(every=every)}
    whole = place.solve(checkpoint="whole", **options)
    for name in ("book.json", "book.json.lock"):
        (place.folder / name).unlink(missing_ok=True)
    real, count = checkpoint.save, [0]

    def dying(path, value, **more):
        if isinstance(value, Checkpoint):
            count[0] += 1
            if count[0] == k:
                raise Killed
        real(path, value, **more)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", dying)
        if k <= 1 + -(-T // every):
            with pytest.raises(Killed):
                place.solve(**options)
        else:
            place.solve(**options)
    begun = (place.folder / "run").is_file() or book is not None
    assert begun == (k > 1 or book is not None)
    again = place.solve(resume=begun, **options)
    assert again.w.tobytes() == whole.w.tobytes()
    assert np.asarray(again.copies).tobytes() == np.asarray(whole.copies).tobytes()


def test_a_crash_right_after_a_run_has_gone_on_changes_no_bit(place, monkeypatch):
    """The first checkpoint that the new process writes is of the run of the old one."""
    monkeypatch.setattr(os, "urandom", lambda n: bytes(n * [7]))
    place.book = None
    whole = place.solve(checkpoint="whole", noise="secure")
    place.solve(noise="secure", watch=at(2))
    real = checkpoint.save

    def dying(path, value, **more):
        if isinstance(value, Checkpoint):
            raise Killed
        real(path, value, **more)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", dying)
        with pytest.raises(Killed):
            place.solve(noise="secure", resume=True)
    assert place.solve(noise="secure", resume=True).w.tobytes() == whole.w.tobytes()


def test_files_of_two_runs_or_of_rounds_far_apart_do_not_go_together(place, untouched):
    place.book = None
    for name, end in (("run", 1), ("other", 1)):
        place.solve(checkpoint=name, noise="secure", watch=at(end))
        place.solve(checkpoint=name, noise="secure", watch=at(end + 1), resume=True)
    untouched()
    mine = place.folder / "run.clients"
    part = load(mine, ClientsCheckpoint)
    shutil.copy(place.folder / "other.clients", mine)
    with pytest.raises(CheckpointError, match=r"run\.clients is of another run than run: restore"):
        place.solve(resume=True, noise="secure")
    save(mine, replace(part, generations=part.generations[1:]))
    with pytest.raises(CheckpointError, match=r"run\.clients is of other rounds than run"):
        place.solve(resume=True, noise="secure")
    mine.write_bytes(mine.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"run\.clients cannot be read"):
        place.solve(resume=True, noise="secure")
