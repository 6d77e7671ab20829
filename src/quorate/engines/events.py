"""The loop of engines in which clients answer at different times, whatever tells the times.

A source of events says who answers next (`Source`): a simulated clock, or the log of an earlier run. The loop keeps
what is in flight, computes the answers of a round in one step of all who answer, hands them to the server and sends its
next message. A round that fails is undone, so that what is kept is always the last finished round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Block, stream
from quorate.engines import checkpoint as files
from quorate.engines.arrivals import tally
from quorate.engines.batches import Memories, Rows, Sent, chunks, form, gathered, sent
from quorate.engines.inprocess import ClientError, Run, handler, plain, refused
from quorate.engines.interrupts import Interrupts
from quorate.engines.log import Answered, Recorder
from quorate.engines.source import Batch, Source
from quorate.rounds import (
    Algorithm,
    Combiner,
    Done,
    Outcome,
    Round,
    Stop,
    copied,
    donates,
    encoded_size,
    gradients,
    members,
    record,
    rows,
    settled,
)


@record
class EventCheckpoint:
    """A run between two rounds, its messages in flight included."""

    run: files.Checkpoint
    source: Any
    messages: tuple[tuple[Any, int, int], ...]  # those in flight: message, its round, bytes
    flight: NDArray[np.int64]  # (2, N): the number of each client's message in flight or -1, its row in that
    exchanged: NDArray[np.int64]  # (2, N) bytes from and to each client
    late: tuple[int, int, int, int]  # since the last row of the history: bytes up, bytes down, answers, staleness
    answered: NDArray[np.int32]
    times: NDArray[np.float64]
    ends: NDArray[np.int64]


class _New(NamedTuple):
    """A round that is computed but not yet taken over."""

    state: Any
    ask: Round | Done
    memories: list[tuple[NDArray[np.intp], Any]]
    sizes: list[int]  # bytes from each client, by the parts of memories
    name: str  # of the upload
    staleness: int  # rounds since the oldest message was sent


class Loop:
    """One run."""

    def __init__(
        self, engine: Any, source: Source, rule: Any, algorithm: Algorithm, federation: Any, seed: int
    ) -> None:
        self.engine, self.source, self.algorithm, self.seed = engine, source, algorithm, seed
        self.on_client, self.on_server = algorithm.on_client, algorithm.on_server
        self.clients = tuple(map(str, federation.clients))
        self.n = n = len(self.clients)
        self.path = None if engine.checkpoint is None else Path(engine.checkpoint)
        if self.path and not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"no folder {self.path.parent} for the checkpoint {self.path.name}: create it first"
            )
        self.data = federation.digests() if self.path else ()
        self.what = f"{files.describe(algorithm)} on {files.describe(rule)}"
        self.rows, self.memories = Rows(federation, engine.block_size), Memories(n)
        self.turns, self.given, self.received = np.zeros((3, n), np.int64)  # messages answered, bytes from and to each
        self.messages: list[Sent | None] = [None] * n  # in flight
        self.since = np.full(n, -1, np.int64)  # the finished rounds when they were asked, -1: not in flight
        self.position, self.flying = [0] * n, 0  # each client's row in its message; how many are in flight
        self.round, self.traffic = 0, dict[tuple[str, str], tuple[int, int]]()
        self.history: list[dict[str, Any]] = []
        self.events = Recorder()
        self.late: tuple[int, int, int, int] = (0, 0, 0, 0)  # since the last row: bytes up, down, answers, staleness
        self.state: Any = None
        self.ask: Round | Done = Round(None)
        self.donated, self.lost = donates(algorithm), False  # lost: what is held is no finished round
        self.sizes: dict[Any, int] = {}
        self.latest = Sent(None, 0, None)

    # ---- the run

    def run(self, watch: Sequence[Callable[[dict[str, Any], Any], None]], resume: bool, max_rounds: int | None) -> Run:
        """Until the algorithm is done, or the engine can or may not go on."""
        if resume and self.path is None:
            raise ValueError(f"resume=True needs a checkpoint: {type(self.engine).__name__}(..., checkpoint=PATH)")
        self._restore() if resume else self._start()
        written, stop, interrupts = self.round if resume else -1, None, Interrupts()
        try:
            with interrupts:
                while stop is None and isinstance(self.ask, Round) and (max_rounds is None or self.round < max_rounds):
                    stop = self._round(watch)
                    if stop is None and self.round % self.engine.every == 0:
                        self._save()
                        written = self.round
                    interrupts.check()
        except KeyboardInterrupt:
            self.lost |= interrupts.forced
            if self.lost:
                raise
            stop = Outcome(Stop.INTERRUPTED, f"interrupted after round {self.round}; {self._advice()}")
        finally:  # also when a client or a watcher raised
            if written != self.round and not self.lost:
                self._save()
        if isinstance(self.ask, Done):
            return self._run(self.ask.outcome, None)
        stop = stop or Outcome(Stop.MAX_ROUNDS, f"stopped at the engine's max_rounds = {max_rounds}; {self._advice()}")
        return self._run(stop, stop)

    def _start(self) -> None:
        state, ask = self.algorithm.server_start(self.n)
        self.state, self.ask = settled(state), ask

    def _round(self, watch: Sequence[Callable[[dict[str, Any], Any], None]]) -> Outcome | None:
        """One round, or why there is none."""
        ask, told = self.ask, len(watch)
        assert isinstance(ask, Round)
        to = self._checked(ask)
        message = self._sent(ask, to)
        asked = np.array(to, np.int64)
        self._fly(to, asked, message)
        try:
            self.source.send(asked, gradients(self.algorithm, ask.message))
            batch = self.source.take(self.round, ask.wait_for, self.flying, self.since)
            if isinstance(batch, Outcome):
                self._undo(to)
                return batch
            new = self._answered(batch)
            due = told or (self.round + 1) % self.engine.keep_rows == 0 or isinstance(new.ask, Done)
            report = self.algorithm.report(new.state) if due else {}
        except BaseException:
            self._undo(to)
            raise
        up = self._take_over(new, batch, asked, message)
        self._tell(report, (up, len(to) * message.size, len(batch.ids), new.staleness), watch)
        return None

    def _checked(self, ask: Round) -> Sequence[int]:
        """The clients asked; refuses a request that cannot be carried out."""
        refused(self.algorithm, ask, self.n, self.flying)
        to = range(self.n) if ask.to is None else ask.to
        for i in to:
            if (last := self.messages[i]) is not None:
                raise ValueError(
                    f"client {self.clients[i]} is asked in round {self.round + 1} and has not answered the message of "
                    f"round {last.round + 1}: ask those who answered, to=tuple(ids), or wait for all (wait_for=None)"
                )
        if ask.wait_for is not None and not 1 <= ask.wait_for <= self.flying + len(to):
            raise ValueError(f"Round.wait_for must be in 1..{self.flying + len(to)}, got {ask.wait_for}")
        return to

    def _sent(self, ask: Round, to: Sequence[int]) -> Sent:
        message = copied(ask.message) if self.donated else settled(ask.message)
        kept = sent(message, None if ask.to is None else list(to), self.round)
        if (size := self.sizes.get(kept.alike)) is None:
            size = self._noted(kept.alike, encoded_size(rows(ask.message, to[:1] or [0])))
        kept.size = size
        if kept.alike == self.latest.alike:
            kept.alike = self.latest.alike  # the same object: quick to compare
        self.latest = kept
        return kept

    def _fly(self, to: Sequence[int], asked: NDArray[np.int64], message: Sent) -> None:
        self.since[asked] = self.round
        for position, i in enumerate(to):
            self.messages[i], self.position[i] = message, position
        self.flying += len(to)

    def _undo(self, to: Sequence[int]) -> None:
        """As after the last finished round."""
        self.source.undo()
        for i in to:
            self.messages[i], self.since[i] = None, -1
        self.flying -= len(to)

    # ---- the answers

    def _answered(self, batch: Batch) -> _New:
        ids = sorted(batch.ids)
        groups = chunks(ids, self.messages, self.memories.place, self.rows)
        parts = [self._client(group, len(ids)) for group in groups]
        fold = Combiner(kind := type(parts[0][2]))
        for index, _, upload in parts:
            fold.add(index, upload)
        order, combined = fold.result()
        self.lost = self.donated  # until the server has answered, its state may be half overwritten
        state, ask = handler(self.on_server, kind, self.algorithm)(self.state, order, combined)
        if not isinstance(ask, Round | Done):
            raise TypeError(f"on_server must return (state, Round or Done), got a {type(ask).__name__}")
        memories, sizes = [(index, memory) for index, memory, _ in parts], [self._size(part[2]) for part in parts]
        oldest = min([self.messages[i].round for i in ids])  # pyright: ignore[reportOptionalMemberAccess]
        state = state if self.donated else settled(state)  # arrays overwritten in place stay as they are laid out
        return _New(state, ask, memories, sizes, kind.__name__, self.round - oldest)

    def _client(self, chunk: list[int], answering: int) -> tuple[NDArray[np.intp], Any, Any]:
        """(clients, memory, upload) after the step of a chunk; names the clients whose step raises."""
        try:
            return self._step(chunk, self.rows.kept(chunk) if answering == self.n else self.rows.block(chunk))
        except Exception as error:
            failing = [i for i in chunk if self._raises(i)] or chunk
            names = tuple(self.clients[i] for i in failing)
            kind = type(self.messages[chunk[0]].message).__name__  # pyright: ignore[reportOptionalMemberAccess]
            raise ClientError(
                f"the step of client{'s' * (len(names) > 1)} {', '.join(names)} on {kind} failed in round "
                f"{self.round + 1}: {type(error).__name__}: {error}. Mend or leave out; {self._advice()}",
                names,
                self.round + 1,
            ) from error

    def _raises(self, i: int) -> bool:
        try:
            self._step([i], self.rows.block([i]))
        except Exception:
            return True
        return False

    def _step(self, chunk: list[int], block: Block) -> tuple[NDArray[np.intp], Any, Any]:
        ids, position = block.index, self.position
        message = gathered([m for i in chunk if (m := self.messages[i]) is not None], [position[i] for i in chunk])
        old = self.memories.place[chunk[0]] >= 0
        memory = self.memories.of(ids) if old else settled(self.algorithm.client_start(block))
        memory, upload = self.on_client[type(message)](
            memory, message, block, lambda p: stream(self.seed, block.names[p], int(self.turns[ids[p]]))
        )
        return ids, settled(memory), upload

    def _size(self, upload: Any) -> int:
        """The bytes of one client's part of an upload."""
        shape = form(upload)
        found = self.sizes.get(shape)
        return self._noted(shape, encoded_size(members(upload, slice(0, 1)))) if found is None else found

    def _noted(self, shape: Any, size: int) -> int:
        if len(self.sizes) > 100:
            self.sizes.clear()
        self.sizes[shape] = size
        return size

    # ---- a finished round

    def _take_over(self, new: _New, batch: Batch, to: NDArray[np.int64], message: Sent) -> int:
        """What was computed becomes what is; the bytes of the answers."""
        self.lost = True  # until all of it is done
        up, messages = 0, self.messages
        for (index, memory), size in zip(new.memories, new.sizes, strict=True):
            self.memories.put(index, memory)
            tally(index, size, self.given, self.turns, self.since)
            up += size * len(index)
        for i in batch.ids:
            messages[i] = None
        self.received[to] += message.size
        self.flying -= len(batch.ids)
        self._count((type(message.message).__name__, "down"), len(to), len(to) * message.size)
        self._count((new.name, "up"), len(batch.ids), up)
        self.events.add(*batch)
        self.source.settle()
        self.state, self.ask, self.round, self.lost = new.state, new.ask, self.round + 1, False
        return up

    def _count(self, key: tuple[str, str], count: int, size: int) -> None:
        before = self.traffic.get(key, (0, 0))
        self.traffic[key] = before[0] + count, before[1] + size

    def _tell(self, report: dict[str, Any], now: tuple[int, int, int, int], watch: Sequence[Any]) -> None:
        """The history's row, if it is time for one, and the watchers'."""
        self.late = self.late[0] + now[0], self.late[1] + now[1], self.late[2] + now[2], max(self.late[3], now[3])
        told = {key: plain(value) for key, value in report.items()}
        if self.round % self.engine.keep_rows == 0 or isinstance(self.ask, Done):
            self.history.append(self._row(self.late, told))
            self.late = (0, 0, 0, 0)
        if watch:
            row = self.history[-1] if self.engine.keep_rows == 1 else self._row(now, told)
            for see in watch:
                see(row, self.state)

    def _row(self, numbers: tuple[int, int, int, int], told: dict[str, Any]) -> dict[str, Any]:
        up, down, answered, staleness = numbers
        own = {"round": self.round, "time": self.source.time, "answered": answered, "staleness": staleness}
        return own | {"bytes_up": up, "bytes_down": down} | told

    def _advice(self) -> str:
        if self.path is None:
            return f"nothing was saved: to resume a run give {type(self.engine).__name__}(..., checkpoint=PATH)"
        return f"the last finished round is in {self.path}: go on from it with resume=True"

    def _run(self, outcome: Outcome, ended: Outcome | None) -> Run:
        """What the run leaves; ``ended``: the outcome where it is the engine's and not the algorithm's."""
        log = self.events.log(self.clients, self.seed, self.engine.block_size, self.source.crashed(), ended)
        table = [
            {"message": message, "direction": way, "count": count, "bytes": size}
            for (message, way), (count, size) in self.traffic.items()
        ]
        has = [place >= 0 for place in self.memories.place]
        memories = tuple(self.memories.of(np.array([i])) if known else None for i, known in enumerate(has))
        exchanged = np.stack([self.given, self.received])
        return Run(self.state, outcome, self.history, table, self.round, Answered(log), memories, exchanged, log)

    # ---- the checkpoint

    def _save(self) -> None:
        if self.path is None:
            return
        flying = {id(m): m for m in self.messages if m is not None}
        numbers = {key: number for number, key in enumerate(flying)}
        log = self.events.log(self.clients, self.seed, self.engine.block_size)
        run = files.Checkpoint(
            algorithm=self.what,
            clients=self.clients,
            digests=tuple(self.data),
            seed=self.seed,
            round=self.round,
            state=self.state,
            ask=self.ask,
            memories=self.memories.stored(),
            turns=self.turns,
            traffic=tuple((*key, *value) for key, value in self.traffic.items()),
            history=files.packed(self.history),
            active=(),
        )
        at = [-1 if m is None else numbers[id(m)] for m in self.messages]
        kept = EventCheckpoint(
            run=run,
            source=self.source.stored(),
            messages=tuple((m.message, m.round, m.size) for m in flying.values()),
            flight=np.array([at, self.position], np.int64),
            exchanged=np.stack([self.given, self.received]),
            late=self.late,
            answered=log.answered,
            times=log.times,
            ends=log.ends,
        )
        files.save(self.path, kept)

    def _restore(self) -> None:
        assert self.path is not None
        found = files.load(self.path, EventCheckpoint)
        run = found.run
        files.check(run, self.what, self.clients, self.data, self.seed)
        self.state, self.ask, self.round = run.state, run.ask, run.round
        self.history, self.turns = files.unpacked(run.history), run.turns
        self.given, self.received = found.exchanged
        self.traffic = {(message, way): (count, size) for message, way, count, size in run.traffic}
        for ids, memory in run.memories:
            self.memories.put(ids, memory)
        messages = [sent(message, None, round_, size) for message, round_, size in found.messages]
        at, self.position = found.flight.tolist()
        self.messages = [None if k < 0 else messages[k] for k in at]
        self.since = np.array([-1 if m is None else m.round for m in self.messages], np.int64)
        self.flying, self.late = self.n - at.count(-1), found.late
        self.events = Recorder(found)
        self.source.restore(found.source)
