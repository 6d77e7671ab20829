"""Standard output and standard error of the command line, and the files that people name.

What is shown never ends a command: letters that the terminal's encoding lacks are replaced, and a
stream that cannot be written to (its reader has gone, the disk is full, it was closed) is given up
with one line on the other. Every line is made printable here, no matter who wrote it.

A document (predictions, a report, a table) is what its command is for: where it cannot be written
that is an error. A file appears when it is whole; until then the old one stands.
"""

import codecs
import errno
import io
import os
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import TextIO

from bonafed.report.tables import lines, printable, sentence
from bonafed.storage import write_whole
from bonafed.text import system

PACKAGE = str(Path(__file__).parent.parent)
# what stands for the signs of our own texts where an encoding lacks them
PLAIN = {"–": "-", "−": "-", "…": "...", "±": "+-", "≤": "<=", "→": "->", "←": "<-"}
STDOUT = "standard output"


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return PLAIN.get(error.object[error.start], "?"), error.start + 1


codecs.register_error("bonafed.plain", _plain)


class Output:
    """A stream of lines that are made printable; writing never raises.

    Parameters
    ----------
    stream : None where the process was started without it
    name : what people call it
    other : where it is said that this stream is lost

    Attributes
    ----------
    error : why nothing more is written, or None
    patient : whether the command goes on for long when nobody reads, which is then said
    quiet : whether what is lost is an error, which says it
    """

    def __init__(self, stream: TextIO | None, name: str, other: "Output | None" = None) -> None:
        self.stream, self.name, self.other = stream, name, other
        self.patient = self.quiet = False
        closed = OSError(errno.EBADF, "closed")
        self.error: Exception | None = closed if stream is None else None

    @property
    def encoding(self) -> str:
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self.error is None and self.stream is not None and self.stream.isatty()

    def fileno(self) -> int:
        if self.stream is None:
            raise io.UnsupportedOperation(f"{self.name} is closed")
        return self.stream.fileno()

    def write(self, text: str, /) -> int:
        return self.put(lines(text))

    def put(self, text: str, /, errors: str = "bonafed.plain") -> int:
        """Write text that is printable as it is; ``errors`` says what becomes of letters that the
        encoding lacks.
        """
        code = self.encoding
        self._try(lambda stream: stream.write(text.encode(code, errors).decode(code)))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def close(self) -> None:
        """Keep the stream open, which is not ours."""
        self.flush()

    def _try(self, act: Callable[[TextIO], object]) -> None:
        """Write, or give the stream up. What is still in its buffer goes nowhere then, or Python
        would fail at it when it ends.
        """
        if self.stream is None or self.error is not None:
            return
        try:
            act(self.stream)
        except (OSError, ValueError) as error:
            self.error = error
            with suppress(OSError, ValueError):  # no stream of the system
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.fileno())
                os.close(nowhere)
            unread = isinstance(error, BrokenPipeError) and not self.patient
            if self.other is not None and not (self.quiet or unread):
                more = ", and the run goes on" * self.patient
                self.other.write(f"bonafed: {self._lost()}: nothing more is shown{more}\n")
                self.other.flush()

    def _lost(self) -> str:
        return f"{self.name} is lost ({getattr(self.error, 'strerror', None) or self.error})"

    def check(self) -> None:
        """Raise the error that the stream was lost to."""
        self.flush()
        if self.error is not None:
            gone = BrokenPipeError if isinstance(self.error, BrokenPipeError) else OSError
            raise gone(self._lost())


class Screen:
    """The stream as a terminal library writes to it, which makes lines printable itself and adds
    terminal codes.
    """

    def __init__(self, output: Output) -> None:
        self.write, self.flush, self.isatty = output.put, output.flush, output.isatty
        self.fileno, self.encoding = output.fileno, output.encoding


@contextmanager
def guarded() -> Iterator[None]:
    """While it is open, output never fails, and warnings are lines like all others; those of other
    libraries are left out unless Python is asked for warnings.
    """
    import logging

    for number in range(3):  # or the next file that is opened would be taken for a standard stream
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    kept = sys.stdout, sys.stderr, logging.lastResort
    sys.stderr = Output(sys.stderr, "standard error")
    sys.stdout = Output(sys.stdout, STDOUT, sys.stderr)
    logging.lastResort = logging.NullHandler()
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.showwarning = _warn
            yield
    except Exception:
        sys.excepthook = _traceback
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr, logging.lastResort = kept


def _warn(
    message: Warning | str, category: type[Warning], filename: str, *place: object, **more: object
) -> None:
    ours = category is UserWarning and filename.startswith(PACKAGE)
    if ours or category.__module__.startswith("bonafed."):
        note(f"warning: {message}")


def _traceback(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Print a traceback whose lines are printable, whatever is in the text of the error."""
    import traceback

    for part in traceback.format_exception(kind, error, at):
        Output(sys.stderr, "standard error").write(part)


def note(text: str, *, whole: bool = False) -> None:
    """Say something on standard error, on one line; ``whole`` where it has a path to be copied, of
    whatever length.
    """
    print(f"bonafed: {printable(text) if whole else sentence(text)}", file=sys.stderr)


@contextmanager
def going_on(what: str, every: float = 2.0) -> Iterator[None]:
    """While it is open, say each time that so many seconds have passed what goes on, on standard
    error.
    """
    began, ended = time.monotonic(), threading.Event()

    def say() -> None:
        while not ended.wait(every):
            note(f"{what}: {time.monotonic() - began:.0f} s so far")

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        ended.set()
        speaker.join()


# -------------------------------------------------------------------------------------- documents


def check_out(out: Path | None, force: bool) -> None:
    """Before a command begins: whether the file ``out`` can be written, and is not there yet."""
    if out is None:
        return
    if not (folder := out.absolute().parent).is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}: make it, or give another --out")
    if out.is_dir():
        raise ValueError(f"{out} is a folder: --out needs the name of a file")
    if out.is_file() and not force:
        raise ValueError(f"{out} exists: give another --out, or --force to overwrite it")


def deliver(text: str, out: Path | None = None, errors: str = "bonafed.plain") -> None:
    """Write a document to standard output, or in UTF-8 to the file ``out``: there the old file
    stands until the new one, which has its modes, is whole, and a symbolic link is followed.

    ``errors`` says what becomes of letters that the encoding of standard output lacks. What a
    terminal shows is made printable; elsewhere the document is exact.

    Raises
    ------
    BrokenPipeError : the reader of standard output has gone
    OSError : the document could not be written, with the name of its file
    """
    if out is None:
        stream = sys.stdout if isinstance(sys.stdout, Output) else Output(sys.stdout, STDOUT)
        stream.quiet = True
        stream.put(lines(text) if stream.isatty() else text, errors)
        stream.check()
        return
    target, data = out.resolve(), text.encode("utf-8", "backslashreplace")
    kept = "; the old file stands as it was" if target.is_file() else ""
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):  # a pipe or a device
            target.write_bytes(data)
            return
        modes = 0o666 if mode is None else stat.S_IMODE(mode)
        # in a folder of the user's no name but one that nobody has may be written to
        write_whole(target, data, modes, beside=target.with_name(f".bonafed-{token_hex(8)}.tmp"))
        if mode is not None:
            target.chmod(modes)
    except OSError as error:
        raise OSError(f"{str(out)!r} could not be written: {system(error)}{kept}") from error


def printed() -> None:
    """Raise where standard output was lost, for commands of which it is all that is left."""
    if isinstance(sys.stdout, Output):
        sys.stdout.check()
