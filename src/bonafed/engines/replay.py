"""The engine that repeats a recorded run: the same clients answer in the same rounds, at the
recorded times.

A run whose order of events came from outside, from a simulated clock or from a network, is repeated
bit for bit, because it depends on nothing but that order, the seed, the data and the algorithm.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bonafed.engines.checkpoint import other_clients
from bonafed.engines.clients import LocalClients
from bonafed.engines.event_log import Log
from bonafed.engines.federated_data import Known
from bonafed.engines.inprocess import InProcess
from bonafed.engines.loop import Batch, EventEngine, Interrupts, Loop
from bonafed.engines.virtual_clock import rows_of
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.rounds import Algorithm, Outcome, Stop


@dataclass(frozen=True)
class Replay(EventEngine):
    """Repeat the run of a log (``Run.log``, or ``Log.load(path)``) on the same data with the same
    algorithm.

    Parameters
    ----------
    log : the events to repeat
    keep_rows, checkpoint, every, secure_sum : as of ``VirtualClock``; a run with secure sums is
        repeated with secure sums

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> first = bf.solve(problem, fed, engine=bf.VirtualClock(max_time=20.0))
    >>> again = bf.solve(problem, fed, engine=bf.Replay(first.log))
    >>> bool((again.w == first.w).all())
    True
    """

    log: Log
    keep_rows: int = 1
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1000
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.log, Log):
            raise TypeError(
                "Replay needs a Log, such as Run.log or Log.load(path), got a"
                f" {type(self.log).__name__}."
            )
        self.check_settings(self.block_size)

    @property
    def block_size(self) -> int:
        """The block size of the recorded run, on which the last bits depend."""
        return self.log.block_size

    def seed_of(self, seed: int | None) -> int:
        """The seed of the recorded run; raises for another one."""
        if seed is not None and seed != self.log.seed:
            raise ValueError(
                f"the log is of seed {self.log.seed}, got seed {seed}: leave the seed out, and the"
                " run is repeated with that of the log."
            )
        return self.log.seed

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> Loop:
        """The loop of the run, to the end of the recorded one.

        Raises
        ------
        ValueError : a log of other clients
        """
        if (names := tuple(map(str, federation.clients))) != self.log.clients:
            raise ValueError(f"the log is of {other_clients(names, self.log.clients)}.")
        clients = LocalClients(algorithm, rows_of(self, federation), federation.clients, seed)
        return Loop(self, clients, _Recorded(self.log), (self.log,), federation, seed)

    def beside_run(self) -> InProcess:
        """A plain engine, for runs beside the main one, such as a certificate's."""
        return InProcess(secure_sum=self.secure_sum)


class _Recorded:
    """The answers of a log, round by round."""

    interrupts: Interrupts

    def __init__(self, log: Log) -> None:
        self.log, self.time = log, 0.0
        self.latest = 0.0

    def send(self, ids: NDArray[np.int64], gradients: float) -> None:
        """Do nothing, as the times of the answers are known."""

    def take(
        self, round_: int, wait_for: int | None, in_flight: int, since: NDArray[np.int64]
    ) -> Batch | Outcome:
        """The recorded answers of this round, or the outcome at the end of the log."""
        if round_ == len(self.log.ends):
            end = Outcome(
                Stop.INTERRUPTED,
                "the log ends here, though neither engine nor algorithm had ended the run",
            )
            return self.log.outcome or end
        start, end = int(self.log.ends[round_ - 1]) if round_ else 0, int(self.log.ends[round_])
        ids, times = self.log.answered[start:end].astype(np.int64), self.log.times[start:end]
        least = in_flight if wait_for is None else wait_for
        known = (ids >= 0) & (ids < len(since))
        if (
            len(np.unique(ids)) < max(least, len(ids), 1)
            or not known.all()
            or (since[ids] < 0).any()
        ):
            asked = np.flatnonzero(since >= 0).tolist()
            raise ValueError(
                f"the log does not fit: in round {round_ + 1} it has {len(ids)} answers, of"
                f" {ids[:5].tolist()}, and the algorithm waits for {least} of the {in_flight}"
                f" asked, {asked[:5]}. Replay needs the run's algorithm."
            )
        self.latest = float(times[-1])
        return Batch(ids, times)

    def settle(self) -> None:
        """Note that the round is finished."""
        self.time = self.latest

    def undo(self) -> None:
        """Go back to the last finished round."""
        self.latest = self.time

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """The recorded crashes."""
        return self.log.crashed

    def stored(self) -> float:
        """The time, for a checkpoint."""
        return self.time

    def restore(self, state: float, in_flight: NDArray[np.int64], turns: NDArray[np.int64]) -> None:
        """Set the time to that in a checkpoint."""
        if type(state) is not float:
            raise ValueError(f"its source is {state!r:.40}, and must be the time of a replay")
        self.time = self.latest = state
