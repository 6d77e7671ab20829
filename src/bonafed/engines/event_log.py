"""The log of who answered when, from which a run is repeated whose order of events came from
outside the algorithm.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.engines.checkpoint_schema import Fields
from bonafed.engines.run_record import check_answers
from bonafed.rounds import CodecError, Outcome, decode, encode, record
from bonafed.storage import write_whole


@record
class Log:
    """The events of a run; ``Replay(log)`` repeats it.

    The answers of round k (from 1) are those from ``ends[k - 2]`` (0 for the first) to ``ends[k -
    1]``.

    Attributes
    ----------
    clients : the clients' names
    seed : the seed of the run
    block_size : clients that stepped together at most; 1: one by one, as on a network
    answered : (answers,) clients' positions in the order of arrival
    times : (answers,) seconds at which they arrived
    ends : (rounds,) answers by the end of each round
    crashed : (name, seconds) of those who never answer again
    outcome : why the run ended, where the engine ended it

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> log = bf.solve(problem, fed, engine=bf.VirtualClock(max_time=20.0)).log
    >>> log.clients == tuple(fed.clients)
    True
    """

    clients: tuple[str, ...]
    seed: Annotated[int, Form(least=-(2**63))]
    block_size: Annotated[int, Form(least=1)]
    answered: Annotated[NDArray[np.int32], Form("answers", below="N")]
    times: Annotated[Array, Form("answers")]
    ends: Annotated[NDArray[np.int64], Form("rounds")]
    crashed: tuple[tuple[str, float], ...] = ()
    outcome: Outcome | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log to a file, in one step."""
        write_whole(Path(path), encode(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Log:
        """The log in a file.

        Raises
        ------
        ValueError : a damaged file, or one that holds something else
        """
        try:
            log = decode(Path(path).read_bytes())
        except CodecError as error:
            raise ValueError(f"the log {path} cannot be read: {error}") from error
        if type(log) is not Log:
            raise ValueError(
                f"{path} holds a {type(log).__name__}, no log: give a file that Log.save wrote."
            )
        try:
            Fields(len(log.clients), len(log.ends)).check(log, Log, "the log")
            check_answers(log.answered, log.times, log.ends, len(log.clients))
        except (ValueError, TypeError) as error:
            raise ValueError(f"the log {path} holds what no run can have: {error}") from error
        return log


class Answered(Sequence[tuple[int, ...]]):
    """The clients that answered in each round, ascending; they are read off the log on demand."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __len__(self) -> int:
        return len(self.log.ends)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        start = int(self.log.ends[k - 1]) if k else 0
        return tuple(sorted(self.log.answered[start : self.log.ends[k]].tolist()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]
