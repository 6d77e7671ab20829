"""What every reader owes every file: it takes it, or says in our words what is wrong with it."""

from __future__ import annotations

import contextlib
import io
import linecache
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import bonafed
from bonafed.cli import EXPECTED

SOURCE = str(Path(bonafed.__file__).parent)
LIMIT = 10  # seconds of the processor, not of the clock, that a case may take


class Hang(BaseException):
    """A case that took too long; no handler of errors takes it for one."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: "accepted", "refused", or the law that it broke."""

    name: str
    text: str = ""
    seconds: float = 0.0

    @property
    def broken(self) -> bool:
        return self.name not in ("accepted", "refused")


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """``Hang`` after so many seconds of this process; a busy machine makes no hang."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judged(call: Callable[[], Any]) -> Verdict:
    """How a reader ends: quietly, with a refusal in words, or otherwise."""
    began, out = time.process_time(), io.StringIO()

    def verdict(name: str, text: str = "") -> Verdict:
        return Verdict(name, text, time.process_time() - began)

    try:
        with (
            limited(LIMIT),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            warnings.simplefilter("ignore")
            wrong = call()
    except Hang as error:
        return verdict("hang", _last(error))
    except MemoryError as error:
        return verdict("memory", _last(error))
    except Exception as error:
        return verdict(*_of_error(error))
    if isinstance(wrong, str):  # a law of the reader's own
        return verdict("changed number", wrong)
    return verdict("refused" if wrong else "accepted", out.getvalue())


def _of_error(error: Exception) -> tuple[str, str]:
    if hasattr(error, "exit_code"):  # of the command line: usage, or a status
        return "refused", str(error)
    if not isinstance(error, EXPECTED):
        return "traceback", _last(error)
    if isinstance(error, OSError) and error.filename is not None:
        return "refused", str(error)
    if not str(error).strip() or not _ours(error):
        return "not in our words", _last(error)
    return "refused", str(error)


def _ours(error: BaseException) -> bool:
    """Whether a line of bonafed raised the error, and no library or operation of Python."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not frames[-1].filename.startswith(SOURCE):
        return False
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
    return line.startswith("raise")


def _last(error: BaseException) -> str:
    """The error and the lines that led to it."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    way = " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)
    return f"{type(error).__name__}: {str(error)[:300]} [{way}]"
