"""Ctrl-C between two rounds: a server that is overwriting its state is let finish."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from bonafed.signals import ENDING, Last, interrupts


class Interrupts:
    """While it is open, a first Ctrl-C is kept for ``check``; a second one interrupts at once. So
    are other signals that interrupt as Ctrl-C does.

    Only where nobody else handles them and in the main thread; elsewhere it changes nothing.
    """

    def __init__(self) -> None:
        self.pending = self.forced = False
        self.kept: dict[int, Any] = {}  # the handlers before, by signal

    def __enter__(self) -> Interrupts:
        try:
            for number in filter(interrupts, ENDING):
                self.kept[number] = signal.signal(number, self._keep)
        except ValueError:  # not the main thread, which alone may set handlers
            pass
        return self

    def _keep(self, number: int, frame: FrameType | None) -> None:
        Last.number = number
        self.forced = self.pending  # may strike halfway through anything
        self.pending = True
        if self.forced:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was kept."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self.kept.items():
            signal.signal(number, handler)
        if kind is None:
            self.check()
