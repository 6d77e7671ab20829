"""The signals that ask a process to end: Ctrl-C (SIGINT), SIGTERM, and SIGHUP, which a terminal
sends when it is closed. All raise ``KeyboardInterrupt``; a shell is told which it was by an exit
status of 128 and the signal's number.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Last:
    """The last of these signals that came."""

    number: int = signal.SIGINT


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Python handles Ctrl-C."""
    Last.number = number
    raise KeyboardInterrupt


def status() -> int:
    """The exit status of a process that the last signal ended."""
    return 128 + Last.number


def interrupts(number: int) -> bool:
    """Whether a signal raises ``KeyboardInterrupt`` at present."""
    return signal.getsignal(number) in (signal.default_int_handler, interrupt)


@contextmanager
def listening() -> Iterator[None]:
    """While it is open, each of the signals interrupts as Ctrl-C does, but for those that the
    process was started to ignore (``nohup``) and those that somebody handles.
    """
    Last.number, kept = signal.SIGINT, {}
    try:
        for number in ENDING:
            if interrupts(number) or signal.getsignal(number) is signal.SIG_DFL:
                kept[number] = signal.signal(number, interrupt)
    except ValueError:  # not the main thread, which alone may set handlers
        pass
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
