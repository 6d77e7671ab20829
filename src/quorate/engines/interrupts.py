"""Ctrl-C between two rounds: a server that is overwriting its state is let finish."""

from __future__ import annotations

import signal
from types import FrameType


class Interrupts:
    """While it is open, a first Ctrl-C is kept for ``check``; a second one interrupts at once.

    Only where Python's own handler stands and in the main thread; elsewhere it changes nothing.
    """

    def __init__(self) -> None:
        self.pending = self.forced = self.open = False

    def __enter__(self) -> Interrupts:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, self._keep)
                self.open = True
            except ValueError:  # not the main thread, which alone may set handlers
                pass
        return self

    def _keep(self, number: int, frame: FrameType | None) -> None:
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
        if self.open:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None:
            self.check()
