"""Files that are whole or not there, files that nobody else may read, and locks between processes.

A file is written beside itself and takes its place in one step, so that a process may die at any
moment. It is at most as open as its folder: in a folder that only its owner may enter it has mode
0600 from its creation, elsewhere the user's umask decides. An error of the disk names the file.
"""

import contextlib
import hashlib
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

OWN, OWN_FOLDER = 0o600, 0o700  # modes of what nobody else may read
HERE = getattr(os, "O_NOFOLLOW", 0)  # a link may lead to a file of somebody else's


def write_whole(
    path: Path,
    data: bytes,
    mode: int | None = None,
    *,
    beside: Path | None = None,
    destroy_old: bool = False,
    sync: bool = True,
) -> None:
    """Write a file in one step: after a crash there is either the old file or the new one; without
    ``sync`` after the end of the process, and not of the machine's power.

    ``mode`` is at most that of the folder by default; the file is called ``beside`` until it is
    whole, with the ending .tmp by default, and replaces what has that name. ``destroy_old``
    overwrites what the old file held, on file systems that write in place.
    """
    there = destroy_old and path.is_file() and not path.is_symlink()
    old = os.open(path, os.O_WRONLY | HERE) if there else None
    beside = beside or path.with_name(path.name + ".tmp")
    try:
        with named_errors(path):
            if destroy_old:  # what a process that died has left there
                destroy(beside)
            # a new file, which no link and no mode of an older one can lead astray
            beside.unlink(missing_ok=True)
            mode = beside.parent.stat().st_mode & 0o666 if mode is None else mode
            with _opened(beside, os.O_CREAT | os.O_EXCL, mode) as file:
                _write_all(file, data, sync)
            os.replace(beside, path)
            if sync:
                sync_folder(path.parent)
            if old is not None:
                _overwrite(old)
    except BaseException:
        with contextlib.suppress(OSError):
            destroy(beside) if destroy_old else beside.unlink(missing_ok=True)
        raise
    finally:
        if old is not None:
            os.close(old)


def _write_all(file: int, data: bytes, sync: bool = False) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    if sync:
        os.fsync(file)


def write_in_turns(
    path: Path,
    number: int,
    data: bytes,
    *,
    destroy_old: bool = False,
    anew: bool = False,
    sync: bool = True,
) -> None:
    """Write a file that is replaced many times a second: two records, written in turns.

    After a crash `read_in_turns` gives this record or that of the number before. The file keeps
    its place and its size, whose way to the disk takes longer than that of the record. ``anew``:
    nothing of what it held stays in it. ``destroy_old``: a file that goes, since it is too small or
    is written anew, is overwritten. Without ``sync`` a record outlives the process, and may be lost
    with the machine's power.
    """
    first = _RECORD.pack(number, len(data))
    record = [first, _digest(first, data), data]
    length, half = _BEFORE + len(data), path.stat().st_size // 2 if path.exists() else 0
    if anew or length > half:
        half = length + length // 4
        parts = [b"".join(record).ljust(half, b"\0"), bytes(half)]
        whole = parts[number % 2] + parts[1 - number % 2]
        write_whole(path, whole, OWN, destroy_old=destroy_old, sync=sync)
        return
    with named_errors(path), _opened(path) as file:
        os.lseek(file, half * (number % 2), os.SEEK_SET)
        for part in record:
            _write_all(file, part)
        if sync:
            _sync_content(file)


def read_in_turns(path: Path) -> bytes | None:
    """The last whole record of `write_in_turns`; None where there is none."""
    content = path.read_bytes() if path.exists() else b""
    half, last, whole = len(content) // 2, -1, None
    for record in (content[:half], content[half:]):
        if len(record) > _BEFORE:
            first = record[: _RECORD.size]
            number, size = _RECORD.unpack(first)
            data = record[_BEFORE : _BEFORE + size]
            if number > last and record[_RECORD.size : _BEFORE] == _digest(first, data):
                last, whole = number, data
    return whole


def _digest(first: bytes, data: bytes) -> bytes:
    """What says that a record was written to its end."""
    return hashlib.sha256(first + data).digest()


_RECORD = struct.Struct(">QQ")  # the number of a record and its size, before its digest
_BEFORE = _RECORD.size + hashlib.sha256().digest_size  # bytes before the data
_sync_content = getattr(os, "fdatasync", os.fsync)  # which leaves the file's date behind


def append(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write to the end of a file that is there, and let it reach the disk unless ``sync`` is False.

    After a crash the file may end with a part of ``data``.
    """
    with named_errors(path), _opened(path, os.O_APPEND) as file:
        _write_all(file, data, sync)


def cut(path: Path, size: int) -> None:
    """Leave the first bytes of a file only."""
    with named_errors(path), _opened(path) as file:
        os.ftruncate(file, size)
        os.fsync(file)


def destroy(path: Path) -> None:
    """Overwrite a file, on file systems that write in place, and remove it."""
    with contextlib.suppress(OSError), _opened(path) as file:  # it is removed in any case
        _overwrite(file)
    path.unlink(missing_ok=True)


def _overwrite(file: int) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    _write_all(file, bytes(os.fstat(file).st_size), sync=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, none of them more open than the one that it is made in."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=folder.parent.stat().st_mode & 0o777, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be synchronised
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _opened(path: Path, flags: int = 0, mode: int = OWN) -> Iterator[int]:
    """An open file to write to, which no link leads elsewhere."""
    file = os.open(path, os.O_WRONLY | HERE | getattr(os, "O_BINARY", 0) | flags, mode)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Errors of the operating system that name no file, such as a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


# ------------------------------------------------------------------------------------------- locks


if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        os.lseek(file, 1 << 20, os.SEEK_SET)  # a position beyond the content
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """A lock that one process at a time holds; the system frees it when the process dies.

    Its file may hold a text, such as who has the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock; False where another process has it, or removed its file meanwhile."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | HERE, OWN)
        try:
            _take(file)
            # whether the file is still the one at the path
            taken = os.path.samestat(os.fstat(file), self.path.stat())
        except (BlockingIOError, PermissionError, FileNotFoundError):
            taken = False
        except BaseException:
            os.close(file)
            raise
        if taken:
            self._file = file
        else:
            os.close(file)
        return taken

    def free(self) -> None:
        """Let another process, or another thread, have it."""
        file, self._file = self._file, None  # once it is closed, another thread can set it
        if file is not None:
            os.close(file)

    @contextlib.contextmanager
    def alone(self, busy: str, patience: float = 30.0) -> Iterator[None]:
        """Wait until no other process has the lock, and keep the others waiting meanwhile.

        Raises
        ------
        TimeoutError : another process had it for ``patience`` seconds; ``busy`` says what it does
        """
        end = time.monotonic() + patience
        while not self.take():
            if time.monotonic() > end:
                lock = f"its lock is {self.path.name}"
                raise TimeoutError(f"{busy} for {patience:g} s ({lock}): wait for it, or end it.")
            time.sleep(0.01)
        try:
            yield
        finally:
            self.free()

    def text(self) -> str:
        """What the file holds; nothing where there is none."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def write(self, text: str, *, sync: bool = True) -> None:
        """Replace what the file holds, without a moment at which it holds nothing, and let it reach
        the disk unless ``sync`` is False.
        """
        data = text.encode()
        with named_errors(self.path), _opened(self.path, os.O_CREAT) as file:
            _write_all(file, data)
            os.ftruncate(file, len(data))
            if sync:
                os.fsync(file)
