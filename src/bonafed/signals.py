"""The signals that ask a process to end: Ctrl-C (SIGINT), SIGTERM, and SIGHUP, which a terminal
sends when it is closed. All raise ``KeyboardInterrupt``; a shell is told which it was by an exit
status of 128 and the signal's number.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SOON = 0.02  # seconds
NAMES = "SIGINT", "SIGTERM", "SIGHUP"
ENDING = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))


class Last:
    """The last of these signals that came, how many came, and whether it is being answered, so that
    further ones are ignored.
    """

    number: int = signal.SIGINT
    count: int = 0
    answered: bool = False


def came(number: int) -> None:
    """Note a signal, for those that ask later."""
    Last.number, Last.count = number, Last.count + 1


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal as Python handles Ctrl-C."""
    if not Last.answered:
        came(number)
        raise KeyboardInterrupt


def status() -> int:
    """The exit status of a process that the last signal ended."""
    return 128 + Last.number


def interrupts(number: int) -> bool:
    """Whether a signal raises ``KeyboardInterrupt`` at present."""
    return signal.getsignal(number) in (signal.default_int_handler, interrupt)


def _again(event: "UnraisableHookArgs") -> None:
    """Send a signal once more that came where Python can raise nothing, as in the callback of a
    weak reference, which would lose it.
    """
    if event.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(event)
    elif not Last.answered:
        threading.Timer(SOON, os.kill, (os.getpid(), Last.number)).start()


@contextmanager
def listening() -> Iterator[None]:
    """While it is open, each of the signals interrupts as Ctrl-C does, but for those that the
    process was started to ignore (``nohup``) and those that somebody handles.
    """
    Last.number, Last.answered, kept = signal.SIGINT, False, {}
    try:
        for number in ENDING:
            if interrupts(number) or signal.getsignal(number) is signal.SIG_DFL:
                kept[number] = signal.signal(number, interrupt)
    except ValueError:  # not the main thread, which alone may set handlers
        pass
    hook, sys.unraisablehook = sys.unraisablehook, _again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in kept.items():
            signal.signal(number, handler)
