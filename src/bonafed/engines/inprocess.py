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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Block, Streams, stream
from bonafed.engines import checkpoint as files
from bonafed.engines.checkpoint import Memories, Progress, RunFile, Traffic
from bonafed.engines.client_part import PartedFile, ServerCheckpoint
from bonafed.engines.consistency import check_rows, check_run
from bonafed.engines.engine import (
    ClientError,
    Run,
    Watch,
    asked,
    check_algorithm,
    check_answer,
    check_request,
    concludes,
    end_of,
    going_on,
    handler,
    reported,
)
from bonafed.engines.federated_data import Known, rows_here
from bonafed.engines.possible import Fields, refusing
from bonafed.engines.run_record import traffic_table
from bonafed.engines.secure_run import carries_sums
from bonafed.privacy.secure_sum.option import SecureSum, option_of
from bonafed.rounds import (
    Algorithm,
    Combiner,
    Conclude,
    Done,
    Outcome,
    Round,
    Stop,
    copied,
    decode,
    encode,
    encoded_size,
    members,
    rows,
    settled,
)

MODES = ("blocks", "each", "bytes")


@dataclass(frozen=True)
class InProcess:
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

    mode: str = "blocks"
    block_size: int = 64
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        option_of(self.secure_sum)
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.block_size < 1 or self.every < 1:
            raise ValueError(
                f"block_size and every must be >= 1, got {self.block_size} and {self.every}"
            )

    @carries_sums
    def run(
        self,
        algorithm: Algorithm,
        federation: Known,
        *,
        seed: int = 0,
        watch: Sequence[Watch] = (),
        resume: bool = False,
        max_rounds: int | None = None,
    ) -> Run:
        """Run until the algorithm is done.

        Parameters
        ----------
        watch : each is called with (history row, server state) after every round
        resume : go on from ``checkpoint``; the result is bit for bit that of a run without
            interruption (in the same mode and block size; in another one to rounding)
        max_rounds : stop here whatever the algorithm says (in all, resumed rounds included)

        Raises
        ------
        ClientError : a client's step raised; names it. The checkpoint holds the last finished
            round.
        CheckpointError : no checkpoint, a damaged one, or one of other data, another algorithm or
            seed.

        Ctrl-C ends the run after the last finished round with ``Stop.INTERRUPTED``.
        """
        if resume and self.checkpoint is None:
            raise ValueError("resume=True needs a checkpoint: InProcess(checkpoint=PATH)")
        job = _Job(self, algorithm, federation, seed)
        now, history, active = job.restored() if resume else job.started()
        saved, stop, begun = now.round if resume else -1, None, now.round
        try:
            while going_on(now.ask, now.round, max_rounds):
                began, begun = time.perf_counter(), now.round + 1
                new, ids = job.step(now)
                history.append(job.row(new, time.perf_counter() - began))
                # one tuple for many rounds
                active.append(active[-1] if active and active[-1] == ids else ids)
                now = new  # in one assignment: from here on the round is finished
                for see in watch:
                    see(history[-1], now.state)
                if now.round % self.every == 0:
                    job.save(now, history, active)
                    saved = now.round
        except KeyboardInterrupt:
            stop = Outcome(Stop.INTERRUPTED, f"interrupted after round {now.round}; {job.advice()}")
        finally:  # also when a client or a watcher raised
            del history[now.round :], active[now.round :]
            if saved != now.round:
                job.save(now, history, active)
        job.destroy_keys(now)
        outcome = end_of(now.ask, stop, max_rounds, job.advice())
        return job.run_of(now, history, active, outcome, begun > now.round)

    def aside(self) -> InProcess:
        """An engine without files, for runs beside the main one, such as a certificate's."""
        return replace(self, checkpoint=None)


class _Job:
    """One run: the engine's settings, the algorithm, and the data as blocks."""

    def __init__(
        self, engine: InProcess, algorithm: Algorithm, federation: Known, seed: int
    ) -> None:
        check_algorithm(algorithm)
        self.engine, self.algorithm, self.seed = engine, algorithm, seed
        self.clients = tuple(map(str, federation.clients))
        self.n = len(self.clients)
        together = engine.mode == "blocks" and not algorithm.private
        here = rows_here(federation)
        self.blocks = (
            here.blocks(engine.block_size) if together else [here.block(i) for i in range(self.n)]
        )
        self.file = RunFile.of(engine.checkpoint, (algorithm,), federation, seed)
        self.parted = None if self.file.path is None else PartedFile(self.file.path)

    # ---- one round

    def started(self) -> tuple[Progress, list[dict[str, Any]], list[tuple[int, ...]]]:
        state, ask = self.algorithm.server_start(self.n)
        memories = Memories.none(self.n)
        # keys of noise are drawn, and can be kept, before any answer
        if self.algorithm.private:
            memories = memories.updated(
                [
                    (block.index, settled(self.algorithm.client_start(block)))
                    for block in self.blocks
                ]
            )
        start = Progress(0, settled(state), settled(ask), memories, np.zeros(self.n, np.int64), {})
        return start, [], []

    def step(self, now: Progress) -> tuple[Progress, tuple[int, ...]]:
        """One round; ``now`` stays as it was."""
        ask = now.ask
        assert isinstance(ask, Round)
        check_request(self.algorithm, ask, self.n)
        most = self.n if ask.to is None else len(ask.to)
        if ask.wait_for is not None and not 1 <= ask.wait_for <= most:
            raise ValueError(f"Round.wait_for must be in 1..{most}, got {ask.wait_for}")
        ids, combined, memories, up = self._answers(now, ask.message, ask.to)
        # a failed round must leave it as it was
        state = copied(now.state) if self.algorithm.donates else now.state
        state, after = handler(self.algorithm.on_server, type(combined), self.algorithm)(
            state, ids, combined
        )
        after = check_answer(after)
        turns = now.turns.copy()
        turns[list(ids)] += 1
        down = len(ids) * encoded_size(rows(ask.message, ids[:1]))
        traffic = added(now.traffic, (type(ask.message).__name__, "down"), len(ids), down)
        traffic = added(traffic, (type(combined).__name__, "up"), len(ids), up)
        memories = now.memories.updated(memories)
        kept = settled(state), settled(after), memories, turns, traffic
        return Progress(now.round + 1, *kept, up, down), ids

    def _answers(
        self, now: Progress, message: object, to: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...], Any, list[tuple[NDArray[np.intp], Any]], int]:
        """Who answers, what the server receives, the new memories, and the bytes in all."""
        fold, memories, up = None, [], 0
        for block in self._asked(to):
            memory, upload = self._client(now, message, block)
            fold = fold or Combiner(type(upload))
            fold.add(block.index, upload)
            memories.append((block.index, memory))
            # one client's part, for each of them
            up += len(block.index) * encoded_size(members(upload, slice(0, 1)))
        assert fold is not None
        return *fold.result(), memories, up

    def conclude(self, now: Progress, outcome: Outcome) -> tuple[Progress, Any]:
        """What the clients keep that belongs to the answer, and its traffic beside that of the
        rounds.
        """
        if not concludes(self.algorithm, now.turns, outcome):
            return replace(now, up=0, down=0), None
        _, concluded, _, up = self._answers(now, Conclude(), None)
        down = self.n * encoded_size(Conclude())
        traffic = added(now.traffic, (Conclude.__name__, "down"), self.n, down)
        traffic = added(traffic, (type(concluded).__name__, "up"), self.n, up)
        return replace(now, traffic=traffic, up=up, down=down), concluded

    def _asked(self, to: tuple[int, ...] | None) -> Iterator[Block]:
        """The rows of these clients, block by block."""
        wanted = None if to is None else np.isin(np.arange(self.n), to)
        for block in self.blocks:
            if wanted is None or wanted[block.index].all():
                yield block
            elif (positions := np.flatnonzero(wanted[block.index])).size:
                yield block.part(positions)

    def _client(self, now: Progress, message: object, block: Block) -> tuple[Any, Any]:
        """(memory, upload) after a block's step; names the clients whose step raises."""
        try:
            return self._answer(now, message, block)
        except Exception as error:
            failing = [
                name for p, name in enumerate(block.names) if self._raises(now, message, block, p)
            ]
            names = tuple(map(str, failing or block.names))
            raise ClientError.of(
                names, type(message), now.round + 1, error, self.advice()
            ) from error

    def _raises(self, now: Progress, message: object, block: Block, position: int) -> bool:
        try:
            self._answer(now, message, block.part(np.array([position])))
        except Exception:
            return True
        return False

    def _answer(self, now: Progress, message: object, block: Block) -> tuple[Any, Any]:
        wire = self.engine.mode == "bytes"
        asked = rows(message, block.index)
        asked = decode(encode(asked)) if wire else asked
        step = self.algorithm.on_client[type(message)]
        memory, upload = step(
            self._memory(now.memories, block), asked, block, self._streams(block, now.turns)
        )
        return settled(memory), decode(encode(upload)) if wire else upload

    def _memory(self, memories: Memories, block: Block) -> Any:
        """The clients' memory; those who have none yet start."""
        new = np.flatnonzero([not memories.has(i) for i in block.index.tolist()])
        if not new.size:
            return memories.of(block.index)
        start = settled(self.algorithm.client_start(block.part(new)))
        return (
            start
            if new.size == len(block.names)
            else memories.updated([(block.index[new], start)]).of(block.index)
        )

    def _streams(self, block: Block, turns: NDArray[np.int64]) -> Streams:
        return lambda position: stream(
            self.seed, block.names[position], int(turns[block.index[position]])
        )

    def row(self, now: Progress, seconds: float) -> dict[str, Any]:
        """The last round as a row of the history."""
        numbers = {"round": now.round, "seconds": seconds}
        numbers |= {"bytes_up": now.up, "bytes_down": now.down}
        return numbers | reported(self.algorithm, now.state)

    def advice(self) -> str:
        return self.file.advice("InProcess(checkpoint=PATH)")

    # ---- the checkpoint

    def save(
        self, now: Progress, history: Sequence[dict[str, Any]], active: Sequence[tuple[int, ...]]
    ) -> None:
        if self.file.path is None or self.parted is None:
            return
        sets = {ids: number for number, ids in enumerate(dict.fromkeys(active))}
        kept = files.Checkpoint(
            **self.file.run,
            round=now.round,
            state=now.state,
            ask=now.ask,
            memories=now.memories.stored(),
            turns=now.turns,
            traffic=tuple((*key, *value) for key, value in now.traffic.items()),
            history=files.packed(history),
            active=(
                tuple(np.array(ids) for ids in sets),
                np.array([sets[ids] for ids in active], dtype=np.int64),
            ),
        )
        if self.algorithm.private:
            self.parted.save(kept)
        else:
            files.save(self.file.path, kept)

    def destroy_keys(self, now: Progress) -> None:
        """Leave no key of noise in the checkpoint of a private run that is finished."""
        if self.parted is not None and self.algorithm.private and isinstance(now.ask, Done):
            self.parted.destroy_keys()

    def restored(self) -> tuple[Progress, list[dict[str, Any]], list[tuple[int, ...]]]:
        assert self.parted is not None
        part = self.file.load(files.Checkpoint, ServerCheckpoint)
        kept = part.run if isinstance(part, ServerCheckpoint) else part
        with refusing(self.file.path):
            self.file.check(kept)
            if isinstance(part, ServerCheckpoint):
                kept = self.parted.joined(kept, part.mark)
            first = self.blocks[0]
            Fields(self.n, kept.round, first.n_features).checkpoint(kept)
            check_run(kept, self.algorithm, first, self.n, self.algorithm.private, 0)
            history, active = files.unpacked(kept.history), self._active(kept)
            if len(history) != kept.round:
                raise ValueError(f"the history has {len(history)} rows after {kept.round} rounds")
            check_rows(history, kept, self.algorithm)
        memories = Memories.none(self.n).updated(kept.memories)
        traffic = {(message, way): (count, size) for message, way, count, size in kept.traffic}
        now = Progress(kept.round, kept.state, kept.ask, memories, kept.turns, traffic)
        return now, history, active

    def _active(self, kept: files.Checkpoint) -> list[tuple[int, ...]]:
        """The clients that answered in every round of a checkpoint."""
        sets, which = kept.active
        if any(ids.dtype != np.int64 for ids in (*sets, which)):
            raise ValueError("the clients that answered are no whole numbers")
        known = [tuple(ids.tolist()) for ids in sets]
        active = [known[k] for k in which.tolist()]
        turns = np.bincount([i for ids in active for i in ids], minlength=self.n)
        ordered = all(sorted(set(ids)) == list(ids) and ids for ids in known)
        if len(active) != kept.round or not ordered or not np.array_equal(turns, kept.turns):
            raise ValueError("the clients that answered in each round are not those of turns")
        return active

    def run_of(
        self,
        now: Progress,
        history: list[Any],
        active: list[tuple[int, ...]],
        outcome: Outcome,
        begun: bool,
    ) -> Run:
        """The result of the run; ``begun``: it ended within a round."""
        memories = tuple(
            now.memories.of(np.array([i])) if now.memories.has(i) else None for i in range(self.n)
        )
        exchanged = np.zeros((2, self.n), np.int64)
        for row, ids in zip(history, active, strict=True):  # all that answer exchange equal sizes
            both = np.array([[row["bytes_up"]], [row["bytes_down"]]])
            exchanged[:, list(ids)] += both // len(ids)
        last, concluded = self.conclude(now, outcome)
        exchanged += np.array([[last.up], [last.down]]) // self.n
        table = traffic_table(last.traffic)
        kept = memories, now.turns, asked(now.turns, now.ask, begun), exchanged, concluded
        return Run(now.state, outcome, history, table, now.round, active, *kept)


def added(traffic: Traffic, key: tuple[str, str], count: int, size: int) -> Traffic:
    """The table of traffic with some more messages of one kind."""
    before = traffic.get(key, (0, 0))
    return dict(traffic) | {key: (before[0] + count, before[1] + size)}
