"""The engine that runs every client in this process, in one of three ways that give the same
numbers.

- "blocks": clients in size-sorted padded blocks, one NumPy call for a block; the fastest. A
  private run is computed as "each": the last digits of a sum over a block would follow the order
  of the true sizes.
- "each": one client after the other, in order.
- "bytes": as "each", with every message and upload through the codec, as over a wire; bitwise equal
  to "each".
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.engines.batching import Blocks
from bonafed.engines.clients import LocalClients
from bonafed.engines.federated_data import Known, rows_here
from bonafed.engines.loop import Batch, EventEngine, Interrupts, Loop
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.rounds import Algorithm

MODES = ("blocks", "each", "bytes")


@dataclass(frozen=True)
class InProcess(EventEngine):
    """All clients in this process.

    Parameters
    ----------
    mode : "blocks", "each" or "bytes", see the module
    block_size : clients in a block at most
    checkpoint : file to keep the run in (overwritten by a run that does not resume), or None; of a
        private run the clients' memories and keys are in a second file, PATH.clients, and the keys
        are overwritten once it is finished
    every : rounds between two writes of the checkpoint; the end, an interruption and a failure
        write it too
    secure_sum : ``SecureSum()``, or True, to have the server learn the sums of the clients' numbers
        and no single client's; None, the default, adds them up as they are

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> as_bytes = bf.InProcess(mode="bytes")  # every message as on a wire
    >>> bf.solve(problem, fed, engine=as_bytes).outcome.stop.value
    'optimal'
    """

    at_once: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = False
    keep_rows: ClassVar[int] = 1
    mode: str = "blocks"
    block_size: int = 64
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        self.check_settings(self.block_size)

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> Loop:
        """The loop of one run."""
        together = self.mode == "blocks" and not algorithm.private
        blocks = Blocks(rows_here(federation), self.block_size if together else 1)
        wire = self.mode == "bytes"
        clients = LocalClients(algorithm, blocks, federation.clients, seed, wire)
        return Loop(self, clients, AtOnce(), None, federation, seed)

    def beside_run(self) -> InProcess:
        """An engine without files, for runs beside the main one, such as a certificate's."""
        return replace(self, checkpoint=None)


class AtOnce:
    """The source of a run in which all who are asked answer at once; ``time`` is the seconds that
    the last round took.
    """

    interrupts: Interrupts

    def __init__(self) -> None:
        self.time = self.began = 0.0

    def send(self, ids: NDArray[np.int64], gradients: float) -> None:
        """Note when the round begins."""
        self.began = time.perf_counter()

    def take(
        self, round_: int, wait_for: int | None, in_flight: int, since: NDArray[np.int64]
    ) -> Batch:
        """The answers of all who are asked."""
        return Batch(np.flatnonzero(since >= 0), NO_TIMES)

    def settle(self) -> None:
        """Note how long the round took."""
        self.time = time.perf_counter() - self.began

    def undo(self) -> None:
        """Do nothing: a round leaves nothing behind."""

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """Nobody."""
        return ()

    def stored(self) -> None:
        """Nothing, for a checkpoint."""

    def restore(self, state: None, in_flight: NDArray[np.int64], turns: NDArray[np.int64]) -> None:
        """Go on; nobody is still to answer."""
        if state is not None or in_flight.size:
            raise ValueError(f"its source is {state!r:.40}, and all who are asked answer at once")


NO_TIMES: Array = np.empty(0)
