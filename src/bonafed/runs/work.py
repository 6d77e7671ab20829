"""The working folder of a run: who works in it, what it keeps, and what becomes of it.

    NAME.partial/  config.toml    what is run; relative paths start here
                   lock           held by the process that works here; says which one it is
                   place          where this folder was when its relative paths were last found
                   *.checkpoint   each model so far
                   *.clients      beside it, in private runs, the clients' keys of noise
                   *.account      which run of the ledger file it is
                   *.points       the models of sections that are finished
                   finished/      the run's own folder while it is written
                   claimed        the seal of that folder, once it is complete

Nobody but its owner may enter the folder. One process at a time works in it. A process may die at
any moment: another one goes on with what is here, or says that nothing was kept. When the run is
finished its folder is renamed to its place, the keys of noise are overwritten, and this folder is
removed.
"""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from bonafed.config.config import Config, ConfigError, read_config
from bonafed.runs.files import CLAIMED, FINISHED, RunError, numbered, parsed, write
from bonafed.storage import OWN, OWN_FOLDER, Lock, destroy, named_errors, sync_folder, write_whole

CONFIG, LOCK, PLACE = "config.toml", "lock", "place"
PARTIAL = ".partial"
KEYS = "*.checkpoint*"  # files that may have keys of noise
CARRIER = "carrier.json"  # how a run over sites reaches them
KEPT = ("*.checkpoint", "*.account", "*.points", CARRIER)  # files that a resumed run goes on with
PROBE = "probe"  # a file, and then a folder, by which outputs are tried
ROOM = 1 << 20  # bytes that a run should find room for


@dataclass
class Work:
    """A folder that this process works in until the ``with`` statement ends.

    ``done`` is the folder of the finished run where a process died when it had only to tidy up.
    """

    folder: Path
    config: Config
    resume: bool
    lock: Lock
    done: Path | None = None

    @classmethod
    def begin(cls, config: Config, out: Path, name: str) -> "Work":
        """A fresh folder below ``out``, in which the outputs of a run were tried."""
        with named_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        for folder in numbered(out, name, PARTIAL):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=OWN_FOLDER)
                break
        else:
            raise ConfigError(f"{out} is full of interrupted runs called {name}: remove them")
        lock = Lock(folder / LOCK)
        try:
            _take(lock)
            there = config.moved_to(folder.absolute())
            _try_outputs(folder)
            write(folder / PLACE, os.fsencode(os.path.realpath(folder)))
            write(folder / CONFIG, there.text().encode())
        except BaseException:
            _remove(folder)
            lock.free()
            raise
        return cls(folder, config, False, lock)

    @classmethod
    def go_on(cls, folder: Path) -> "Work":
        """The folder of an interrupted run.

        Raises
        ------
        ConfigError : there is none, nothing was kept in it, or another process works in it
        """
        none = f"there is no interrupted run {str(folder)!r} (a folder *{PARTIAL})"
        if not folder.is_dir() or not _is_ours(folder):
            raise ConfigError(none)
        lock = Lock(folder / LOCK)
        _take(lock)
        try:
            done = _finished(folder)
            if done is None and not (folder / CONFIG).is_file():
                _remove(folder)
                raise ConfigError(
                    f"nothing was kept in {str(folder)!r}, which is removed: its run was killed"
                    f" before it had begun, or when all was done. Unless it is in {folder.parent},"
                    " start it again"
                )
            for path in (*folder.glob("*.tmp"), folder / PROBE):
                if path.is_file():  # half written by a process that died
                    destroy(path)
            for name in (FINISHED, PROBE):
                shutil.rmtree(folder / name, ignore_errors=True)
            if done is None:
                _try_outputs(folder)
            config = _found(folder) if done is None else read_config(done / CONFIG)
        except BaseException:
            lock.free()
            raise
        return cls(folder, config, True, lock, done)

    @property
    def out(self) -> Path:
        """Where the finished run goes."""
        return self.folder.parent

    @property
    def advice(self) -> str:
        """How to go on after an interruption, or that there is nothing to go on with."""
        if self.folder.is_dir():
            return f"what is finished is kept; {_go_on(str(self.folder))}"
        return "nothing was kept"

    def __enter__(self) -> "Work":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the folder of a run that is finished, or that has kept nothing."""
        try:
            if kind is None or not (self.resume or any(_kept(self.folder))):
                _remove(self.folder)
        finally:
            self.lock.free()


def unfinished(out: Path) -> Iterator[str]:
    """What earlier runs have left below ``out``, in lines: names, and how to go on or remove it."""
    left = []
    for folder in sorted(out.glob(f"*{PARTIAL}")):
        with contextlib.suppress(PermissionError):  # of another user, who alone may enter it
            left += [folder] if _is_ours(folder) else []
    idle = [str(folder) for folder in left if not _holder(folder / LOCK)]
    if idle:
        yield f"unfinished: {_some(idle)}; {_go_on(idle[0])} (or remove the folder)"
    odd = [str(folder) for folder in sorted(out.glob(".writing-*")) if folder.is_dir()]
    if odd:
        yield f"left by runs that were killed: {_some(odd)}; nothing in there is needed: remove it"


def _go_on(folder: str) -> str:
    return f"go on with: bonafed run --resume {quote(folder)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ------------------------------------------------------------------------------------- the folder


def _is_ours(folder: Path) -> bool:
    """Whether a folder is that of a run that is not finished, by what is in it."""
    if not folder.is_dir() or (folder / "result.json").exists():
        return False
    names = {path.name for path in folder.iterdir()}
    early = {LOCK, PROBE, PLACE, CONFIG}  # what is there before the first model
    fresh = folder.name.endswith(PARTIAL) and {name.removesuffix(".tmp") for name in names} <= early
    return fresh or CONFIG in names or CLAIMED in names


def _kept(folder: Path) -> Iterator[Path]:
    """The files that a resumed run goes on with."""
    for pattern in KEPT:
        yield from folder.glob(pattern)


def _finished(folder: Path) -> Path | None:
    """The finished run that this folder was for, which carries the seal in ``claimed``."""
    marker = folder / CLAIMED
    if not marker.is_file():
        return None
    seal = marker.read_text("utf-8", errors="replace").strip()
    for result in sorted(folder.parent.glob("*/result.json")):
        with contextlib.suppress(RunError, OSError, UnicodeDecodeError):
            if parsed(result, result.read_text("utf-8")).get("seal") == seal:
                return result.parent
    return None


def _remove(folder: Path) -> None:
    """Remove a working folder, its keys overwritten; what says that it is done goes last."""
    for path in folder.glob(KEYS):
        destroy(path)
    with contextlib.suppress(OSError):
        _probe_beside(folder).rmdir()
    last = (CONFIG, LOCK, CLAIMED)
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in last:
            path.unlink(missing_ok=True)
    for name in last:
        with contextlib.suppress(PermissionError):  # Windows keeps a file that is open
            (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _try_outputs(folder: Path) -> None:
    """Raise where there is no room, or where the finished folder could not take its place."""
    probe = folder / PROBE
    write_whole(probe, bytes(ROOM), OWN)
    probe.unlink()
    place = _probe_beside(folder)
    with contextlib.suppress(FileNotFoundError):
        place.rmdir()  # of a process that died here
    probe.mkdir()
    try:
        probe.rename(place)
    except OSError as error:
        probe.rmdir()
        raise OSError(
            error.errno, f"a finished run could not be moved to {folder.parent}: {error.strerror}"
        ) from error
    place.rmdir()
    sync_folder(folder.parent)


def _probe_beside(folder: Path) -> Path:
    """Where a folder is moved to, to see whether the finished one can be."""
    return folder.with_name(f".{folder.name}.probe")


def _found(folder: Path) -> Config:
    """The configuration, with relative paths that start where the folder is now, or, where nothing
    is there, where it was before it was moved.
    """
    config = read_config(folder / CONFIG)
    before = (folder / PLACE).read_bytes() if (folder / PLACE).is_file() else b""
    if not before or (old := os.fsdecode(before)) == os.path.realpath(folder):
        return config
    found = config.found_from(Path(old))
    if found is config:
        write(folder / PLACE, os.fsencode(os.path.realpath(folder)))
    return found


# -------------------------------------------------------------------------------------- the lock


def _take(lock: Lock) -> None:
    """Take the lock for this process, or raise who has it."""
    tries = 5  # others have it for a moment, when they look whether somebody works here
    while not (taken := lock.take()) and (tries := tries - 1):
        time.sleep(0.05)
    if not taken:
        holder = lock.text().strip() or "another process"
        raise ConfigError(
            f"{holder} works in {lock.path.parent}: wait for it, or end it, since one process at a"
            " time may go on with a run"
        )
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    lock.write(f"process {os.getpid()} on {socket.gethostname()} (since {since})")


def _holder(path: Path) -> bool:
    """Whether a process holds the lock in a file."""
    if not path.is_file():
        return False
    lock = Lock(path)
    taken = lock.take()
    lock.free()
    return not taken
