"""The checkpoint of a private run, in two files: the server's part and the clients'.

    PATH            what the server knows: its state, its next question, the history
    PATH.clients    the memories of the clients, with the keys of their noise

Anyone who has the keys can subtract the noise, so they never stand in the server's file. Nobody but
the owner may read the clients' file, and what it held before is overwritten. It is written before
the server's file, and holds two generations of memories: after the round that the server's file is
about to have, and after the one that it still has. So a process may die between the two: either way
the memories of the server's round are there. A mark tells that both files are of one run.

Once all answers are given nobody needs the keys: zeros are written over them, and the memories
stay, so that a run that is finished can be read again.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bonafed.engines import checkpoint as files
from bonafed.engines.checkpoint import Checkpoint, CheckpointError, Stored
from bonafed.rounds import record

ENDING = ".clients"
BEGIN = "or begin a new run (resume=False)"


@record
class Generation:
    """The memories of all clients after a round."""

    round: int
    memories: Stored


@record
class ClientsCheckpoint:
    """The clients' part of a private run's checkpoint."""

    mark: str
    generations: tuple[Generation, ...]  # the newest first


class PartedFile:
    """Writes and reads both files of a private run's checkpoint.

    Attributes
    ----------
    server, clients : the two files
    mark : of the run
    last : the generation that the server's file belongs to, once it is written
    """

    def __init__(self, path: Path) -> None:
        self.server, self.clients = path, path.with_name(path.name + ENDING)
        self.mark = secrets.token_hex(16)
        self.last: Generation | None = None

    def save(self, kept: Checkpoint) -> None:
        """Write a checkpoint: first the clients' part, then the server's."""
        now = Generation(kept.round, kept.memories)
        before = () if self.last is None or self.last.round == now.round else (self.last,)
        files.save(self.clients, ClientsCheckpoint(self.mark, (now, *before)), secret=True)
        files.save(self.server, replace(kept, memories=(), mark=self.mark), secret=True)
        self.last = now

    def destroy_keys(self) -> None:
        """Overwrite the keys of a run whose answers are all given."""
        if self.last is None:
            return
        memories = tuple((index, without_key(memory)) for index, memory in self.last.memories)
        self.last = replace(self.last, memories=memories)
        files.save(self.clients, ClientsCheckpoint(self.mark, (self.last,)), secret=True)

    def joined(self, kept: Checkpoint) -> Checkpoint:
        """The checkpoint whose server's part is ``kept``, with the memories of that round.

        Raises
        ------
        CheckpointError : no clients' file, or one that does not belong to the server's
        """
        if not self.clients.is_file():
            raise CheckpointError(
                f"{self.clients.name} is missing beside the checkpoint: it has the memories of the"
                f" clients and the keys of their noise. Restore it, {BEGIN}"
            )
        part = files.load(self.clients, ClientsCheckpoint)
        fitting = [each for each in part.generations if each.round == kept.round]
        if part.mark != kept.mark or not fitting:
            other = "another run" if part.mark != kept.mark else "other rounds"
            raise CheckpointError(
                f"{self.clients.name} is of {other} than {self.server.name}: restore both files"
                f" from one copy, {BEGIN}"
            )
        self.mark, self.last = kept.mark, fitting[0]
        return replace(kept, memories=fitting[0].memories)


def without_key(memory: Any) -> Any:
    """A client's memory with zeros in the place of the keys of its noise and of its masks, where it
    has some.
    """
    if hasattr(memory, "own"):
        memory = replace(memory, own=without_key(memory.own))
    if not hasattr(memory, "secret"):
        return memory
    return replace(memory, secret=np.zeros_like(memory.secret))
