"""The working folder of a run: modes, the lock, litter, disks that are full, folders that move."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import small_run
from killed_runs import process, same

from bonafed import storage
from bonafed.engines.checkpoint import ClientsCheckpoint, load
from bonafed.privacy.ledger import Book
from bonafed.runs.folder import read_run
from bonafed.runs.work import unfinished

Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]
PLAIN = small_run.CONFIG.replace('["afl", "erm"]', '["erm"]\nhtml = false')
DRAWN = PLAIN.replace("html = false", "html = true")
PRIVATE = small_run.PRIVATE.replace("[privacy]", '[privacy]\nbook = "book.json"').replace(
    "[report]", "[report]\nhtml = false"
)


@contextmanager
def broken(name: str, k: int, error: int = errno.ENOSPC) -> Iterator[list[int]]:
    """While it is open, writing fails from the k-th time on that a file of this name is written."""
    real_open, real_write, seen, bad = os.open, os.write, [0], set[int]()

    def opened(path: object, flags: int, *more: object, **options: object) -> int:
        file = real_open(path, flags, *more, **options)  # type: ignore[arg-type]
        bad.discard(file)
        if flags & os.O_CREAT and Path(str(path)).name in (name, f"{name}.tmp"):
            seen[0] += 1
            bad.update([file] * (seen[0] >= k))
        return file

    def write(file: int, data: bytes) -> int:
        if file in bad:
            raise OSError(error, os.strerror(error))
        return real_write(file, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.os, "open", opened)
        patch.setattr(storage.os, "write", write)
        yield seen


def only(folder: Path, pattern: str = "*") -> Path:
    """The one file or folder of this pattern."""
    (found,) = folder.glob(pattern)
    return found


def modes(folder: Path) -> dict[str, int]:
    """The mode of everything below a folder, and its own."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}


# ------------------------------------------------------------------------------------------- modes


@pytest.mark.parametrize("mask", [0o022, 0o077])
@pytest.mark.parametrize("text", [DRAWN, PRIVATE], ids=["ordinary", "private"])
def test_the_umask_decides_about_finished_folders_and_nobody_else_reads_unfinished_ones(
    bonafed: Call, tmp_path: Path, mask: int, text: str
) -> None:
    small_run.write_config(tmp_path, text)
    before = os.umask(mask)
    try:
        with broken("erm.checkpoint", 2):
            assert bonafed("run", "clinics.toml") == 2
        work = only(tmp_path / "runs", "*.partial")
        private = text is PRIVATE
        main = "private.checkpoint" if private else "drfl.checkpoint"
        found = modes(work)
        assert {"config.toml", "lock", main, "erm.checkpoint"} <= set(found)
        assert not private or {f"{main}.account", f"{main}.clients"} <= set(found)
        assert found.pop(".") == 0o700
        assert set(found.values()) == {0o600}
        assert bonafed("run", "--resume", work) == 0
    finally:
        os.umask(before)
    file, folder = 0o666 & ~mask, 0o777 & ~mask
    run = only(tmp_path / "runs")
    for name, mode in modes(run).items():
        is_folder = (run / name).is_dir()
        own = name.split("/")[0] == "owner"
        assert mode == ((0o700 if is_folder else 0o600) if own else folder if is_folder else file)
    assert (run / "owner").is_dir() is private
    assert (run / "figures").is_dir() is not private
    assert modes(tmp_path / "runs")["."] == folder
    if private:
        assert stat.S_IMODE((tmp_path / "book.json").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "book.json.lock").stat().st_mode) == 0o600


def test_a_file_is_private_from_its_creation_and_no_mode_is_changed_later(
    bonafed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run.write_config(tmp_path, PRIVATE)
    real, made = os.open, list[tuple[str, int]]()

    def opened(path: object, flags: int, *more: object, **options: object) -> int:
        file = real(path, flags, *more, **options)  # type: ignore[arg-type]
        if flags & os.O_CREAT:
            made.append((Path(str(path)).name, stat.S_IMODE(os.fstat(file).st_mode)))
        return file

    monkeypatch.setattr(storage.os, "open", opened)
    for name in ("chmod", "fchmod"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("a mode is changed"))
    before = os.umask(0)
    try:
        assert bonafed("run", "clinics.toml") == 0
    finally:
        os.umask(before)
    secret = ("checkpoint", "account", "book.json", "lock", "probe", "points")
    kept = [(name, mode) for name, mode in made if any(part in name for part in secret)]
    assert {mode for _, mode in kept} == {0o600}
    assert {name.split(".")[0] for name, _ in kept} >= {"private", "erm", "book", "lock", "probe"}


def test_an_older_file_beside_a_checkpoint_neither_opens_nor_misleads_it(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "a.tmp").symlink_to(elsewhere)
    (tmp_path / "b.tmp").write_text("old")
    (tmp_path / "b.tmp").chmod(0o666)
    for name in "ab":
        storage.write_whole(tmp_path / name, b"new", storage.OWN)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert elsewhere.read_text() == "mine"
    assert not list(tmp_path.glob("*.tmp"))


def test_a_ledger_file_that_its_owner_shares_stays_shared(tmp_path: Path, bonafed: Call) -> None:
    small_run.write_config(tmp_path, PRIVATE.replace("epsilon = 3.0", "epsilon = 1.0"))
    assert bonafed("run", "clinics.toml") == 0
    (tmp_path / "book.json").chmod(0o640)
    small_run.write_config(tmp_path, PRIVATE)
    assert bonafed("run", "clinics.toml") == 0
    assert stat.S_IMODE((tmp_path / "book.json").stat().st_mode) == 0o640


# ---------------------------------------------------------------------------------- keys of noise


def test_keys_of_noise_are_overwritten_and_are_in_no_finished_folder(
    bonafed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run.write_config(tmp_path, PRIVATE)
    with broken("private.checkpoint", 2):
        assert bonafed("run", "clinics.toml") == 2
    work = only(tmp_path / "runs", "*.partial")
    file = work / "private.checkpoint.clients"
    kept = load(file, ClientsCheckpoint).generations[0]
    secrets = np.concatenate([memory.secret for _, memory in kept.memories])
    assert secrets.shape == (2, 32)
    keys = [secret.tobytes() for secret in secrets]
    assert all(key in file.read_bytes() for key in keys)
    # a second name of the file shows what is left of it on the disk
    os.link(file, tmp_path / "witness")
    assert bonafed("run", "--resume", work) == 0
    assert not work.exists()
    rest = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "witness" in rest
    assert not [path for path in rest if any(key in path.read_bytes() for key in keys)]


# ---------------------------------------------------------------------------------------- the lock


def test_of_two_that_go_on_with_a_run_one_works_and_the_other_is_told_who(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    small_run.write_config(tmp_path, PLAIN)
    with broken("erm.checkpoint", 2):
        assert bonafed("run", "clinics.toml") == 2
    work = only(tmp_path / "runs", "*.partial")
    command = [sys.executable, "-m", "bonafed.cli", "run", "--resume", str(work)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    (work / "lock").write_text("process 1 on elsewhere (dead, and holds nothing)")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        while f"process {other.pid} " not in (work / "lock").read_text():
            assert other.poll() is None
        other.send_signal(signal.SIGSTOP)  # it has the lock for as long as this takes
        capsys.readouterr()
        assert bonafed("run", "--resume", work) == 2
        told = capsys.readouterr().err
        assert f"process {other.pid} on {socket.gethostname()} (since 2" in told
        assert "works in" in told
        assert len(told.splitlines()) == 1
        assert list(unfinished(tmp_path / "runs")) == []  # it is being worked on
        other.send_signal(signal.SIGCONT)
        assert other.wait() == 0
    assert only(tmp_path / "runs").name.endswith("-clinics")
    assert bonafed("run", "--resume", work) == 2
    assert "no interrupted run" in capsys.readouterr().err


def test_a_lock_whose_file_was_removed_meanwhile_is_not_taken(tmp_path: Path) -> None:
    one, other = storage.Lock(tmp_path / "lock"), storage.Lock(tmp_path / "lock")
    assert one.take()
    assert not other.take()
    (tmp_path / "lock").unlink()
    one.free()
    assert other.take()
    other.free()


# ------------------------------------------------------------------------------------------ litter


@pytest.mark.skipif(os.name != "posix", reason="links need no rights there")
def test_what_a_link_in_an_unfinished_folder_leads_to_is_not_overwritten(tmp_path: Path) -> None:
    mine, link = tmp_path / "mine", tmp_path / "erm.checkpoint"
    mine.write_bytes(b"mine")
    link.symlink_to(mine)
    with pytest.raises(OSError, match="symbolic links"):
        storage.Lock(link).take()
    with pytest.raises(OSError, match="symbolic links"):
        storage.Lock(link).write("process 1")
    storage.write_whole(link, b"new", destroy_old=True)
    assert not link.is_symlink()
    link.unlink()
    link.symlink_to(mine)
    storage.destroy(link)
    assert not link.is_symlink()
    assert mine.read_bytes() == b"mine"


def test_what_killed_runs_have_left_is_named_and_removed(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    small_run.write_config(tmp_path, PLAIN)
    with broken("erm.checkpoint", 2):
        assert bonafed("run", "clinics.toml") == 2
    capsys.readouterr()
    out = tmp_path / "runs"
    work = only(out, "*.partial")
    litter = [work / f"{name}.tmp" for name in ("erm.checkpoint", "finished/config.toml", "probe")]
    for name in ("finished", "probe"):  # of a process that died before it removed the folder
        (work / name).mkdir()
    for path in litter:
        path.write_text("half")
    (out / ".writing-x").mkdir()
    (out / "notes.partial").mkdir()
    (out / "notes.partial" / "mine.txt").write_text("somebody's")
    assert bonafed("run", "clinics.toml") == 0
    told = capsys.readouterr().err
    assert "unfinished: runs/clinics.partial; go on with: bonafed run --resume" in told
    assert "left by runs that were killed: runs/.writing-x" in told
    assert "notes" not in told
    assert bonafed("run", "--resume", work) == 0
    assert not work.exists()
    assert (out / "notes.partial" / "mine.txt").exists()
    capsys.readouterr()
    assert bonafed("run", "--resume", out / "notes.partial") == 2
    assert "no interrupted run" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="folders have no such modes there")
def test_an_unfinished_run_of_another_user_stops_nobody(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / f"{name}.partial").mkdir()
        (tmp_path / f"{name}.partial" / "config.toml").touch()
    (tmp_path / "other.partial").chmod(0)
    # root may enter all folders, unless it gives that up
    code = "import sys; from pathlib import Path; from bonafed.runs.work import unfinished;"
    code += "print(*unfinished(Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
        if shutil.which("setpriv") is None:
            pytest.skip("root enters all folders")
    told = subprocess.run(command, capture_output=True, text=True)
    (tmp_path / "other.partial").chmod(0o700)
    assert told.returncode == 0, told.stderr
    assert "mine.partial" in told.stdout
    assert "other.partial" not in told.stdout


def test_a_folder_in_which_nothing_was_kept_says_so_and_goes(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    work = tmp_path / "runs" / "a.partial"
    work.mkdir(parents=True)
    (work / "lock").touch()
    (work / "config.toml.tmp").write_text("titl")
    assert bonafed("run", "--resume", work) == 2
    assert "nothing was kept in" in capsys.readouterr().err
    assert not work.exists()


def test_ctrl_c_before_anything_is_kept_says_that_nothing_was(tmp_path: Path) -> None:
    small_run.write_config(tmp_path, PLAIN)
    for moment in ("#-1", "read clinics.csv#-1"):  # before there is a folder, while reading
        ended = process(tmp_path, tmp_path, ["run", "clinics.toml"], moment)
        assert ended.status == 130
        assert ended.said.splitlines()[-1] == "bonafed: interrupted; nothing was kept"
        assert not list((tmp_path / "runs").glob("*.partial"))
        assert "Traceback" not in ended.said


# ----------------------------------------------------------------------------------- disks, folders


@pytest.mark.parametrize("text", [PLAIN, PRIVATE], ids=["ordinary", "private"])
def test_a_full_disk_names_the_file_and_the_run_goes_on_later(
    bonafed: Call, tmp_path: Path, capsys: Capture, text: str
) -> None:
    small_run.write_config(tmp_path, text)
    main = "private" if text is PRIVATE else "drfl"
    places = [(f"{main}.checkpoint", 2), ("erm.checkpoint", 1), ("model.safetensors", 1)]
    places += [("result.json", 1), ("claimed", 1)]
    places += [(f"{main}.checkpoint.account", 3), ("book.json", 2)] * (text is PRIVATE)
    places += [(f"{main}.checkpoint.clients", 3)] * (text is PRIVATE)
    assert bonafed("run", "clinics.toml", "--out", "whole") == 0
    (tmp_path / "book.json").unlink(missing_ok=True)
    (tmp_path / "book.json.lock").unlink(missing_ok=True)
    for name, k in places:
        with broken(name, k) as seen:
            assert bonafed("run", "clinics.toml", "--out", "runs") == 2
        assert seen[0] >= k
        told = capsys.readouterr().err
        assert "the disk is full" in told
        assert f"{name}'" in told
        work = only(tmp_path / "runs", "*.partial")
        assert f"go on with: bonafed run --resume {work.relative_to(tmp_path)}" in told
        assert bonafed("run", "--resume", work) == 0
        run = only(tmp_path / "runs")
        if text is PLAIN:
            assert not same(only(tmp_path / "whole"), run)
        else:
            (entry,) = Book(tmp_path / "book.json").runs()
            assert (entry["state"], entry["releases"]) == ("ended", entry["planned"])
            assert read_run(run).result["privacy"]["ledger"][0]["answers"] == 8
            (tmp_path / "book.json").unlink()
            (tmp_path / "book.json.lock").unlink()
        shutil.rmtree(run)


@pytest.mark.parametrize("name", ["probe", "config.toml", "lock"])
def test_nothing_is_charged_where_outputs_cannot_be_written(
    bonafed: Call, tmp_path: Path, capsys: Capture, name: str
) -> None:
    small_run.write_config(tmp_path, PRIVATE)
    with broken(name, 1):
        assert bonafed("run", "clinics.toml") == 2
    assert f"{name}'" in capsys.readouterr().err
    assert not (tmp_path / "book.json").exists()
    assert not list((tmp_path / "runs").iterdir())


def test_nothing_is_charged_where_names_cannot_be_written(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "sites").mkdir()
    for clinic in ("North", "East"):
        name = clinic.encode() + b"\xff" * (clinic == "East")
        rows = small_run.table(clinics=(clinic,)).replace("clinic,", "")
        path = tmp_path / "sites" / f"{os.fsdecode(name)}.csv"
        path.write_text(rows.replace(f'"{clinic}",', ""))
    config = PRIVATE.replace('"clinics.csv"\nclient = "clinic"', '"sites/*.csv"')
    config = config.replace("sizes = { East = 15, North = 14 }", "")
    config = config.replace('shifted = ["South"]', "")
    (tmp_path / "clinics.toml").write_text(config)
    assert bonafed("run", "clinics.toml") == 2
    assert "is not text that can be written: rename it" in capsys.readouterr().err
    assert not (tmp_path / "book.json").exists()


@pytest.mark.parametrize("how", ["together", "alone", "linked"])
def test_a_private_run_goes_on_where_its_folder_was_moved_to(
    bonafed: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    old = tmp_path / "old"
    (old / "books").mkdir(parents=True)
    small_run.write_config(old, PRIVATE.replace('"book.json"', '"books/book.json"'))
    if how == "linked":  # the folder of runs is a link to a deeper one
        (tmp_path / "a" / "b").mkdir(parents=True)
        (old / "runs").symlink_to(tmp_path / "a" / "b")
    with broken("private.checkpoint", 4):
        assert bonafed("run", old / "clinics.toml", "--out", "old/runs") == 2
    monkeypatch.chdir("/")
    if how == "together":
        old.rename(tmp_path / "new")
        old = tmp_path / "new"
    work = only(old / "runs")
    if how == "alone":
        (tmp_path / "x" / "y").mkdir(parents=True)
        work = Path(shutil.move(work, tmp_path / "x" / "y"))
    monkeypatch.chdir(work.parent)
    assert bonafed("run", "--resume", work.name) == 0
    (entry,) = Book(old / "books" / "book.json").runs()
    assert (entry["state"], entry["releases"]) == ("ended", entry["planned"])
    run = read_run(only(work.parent))
    assert run.config.data.path is not None
    assert all((run.path / path).is_file() for path in run.config.data.path)
