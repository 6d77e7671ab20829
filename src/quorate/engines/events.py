"""The loop of engines in which clients answer at different times, whatever tells the times.

A source of events says who answers next (`Source`): a simulated clock, or the log of an earlier run. The loop keeps
what is in flight, computes the answers of a round in one step of all who answer (and of some who will answer next,
where that changes no bit: ``ahead.py``), hands them to the server and sends its next message. A round that fails is
undone, so that what is kept is always the last finished round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Block, stream
from quorate.engines import checkpoint as files
from quorate.engines.ahead import Ahead
from quorate.engines.batches import Memories, Rows
from quorate.engines.flight import Flight, Kind
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
    donates,
    encoded_size,
    gradients,
    independent,
    members,
    record,
    settled,
)


@record
class EventCheckpoint:
    """A run between two rounds, its messages in flight included."""

    run: files.Checkpoint
    source: Any
    messages: tuple[tuple[Any, int, int], ...]  # those in flight: message for who is to answer, its round, bytes
    asked: NDArray[np.int64]  # (N,) the number of each client's message in flight, or -1
    exchanged: NDArray[np.int64]  # (2, N) bytes from and to each client
    late: tuple[int, int, int, int]  # since the last row of the history: bytes up, bytes down, answers, staleness
    answered: NDArray[np.int32]
    times: NDArray[np.float64]
    ends: NDArray[np.int64]


class _Answers(NamedTuple):
    """The answers of a round that is not yet taken over."""

    ids: tuple[int, ...]  # ascending
    combined: Any
    size: int  # bytes from each client
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
        self.donated, self.lost = donates(algorithm), False  # lost: what is held is no finished round
        self.flight = Flight(n, self.donated)
        free = engine.block_size > 1 and self.rows.light and independent(algorithm, self.rows.alone)
        self.ahead = Ahead(self.flight, self.memories, self.rows, self._step) if free else None
        self.round, self.traffic = 0, dict[tuple[str, str], list[int]]()  # messages, bytes
        self.history: list[dict[str, Any]] = []
        self.events = Recorder()
        self.late: tuple[int, int, int, int] = (0, 0, 0, 0)  # since the last row: bytes up, down, answers, staleness
        self.state: Any = None
        self.ask: Round | Done = Round(None)
        self.replaced: list[tuple[NDArray[np.int64], Any]] = []  # memories before this round, None: none
        self.latest: tuple[Any, NDArray[np.int64]] = (None, np.empty(0, np.int64))  # who answered, twice
        self.sizes: dict[Any, int] = {}  # bytes of one client's part of the uploads of a whole round, by their form

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
        try:
            to, kind = self._sent(ask)
            self.source.send(to, gradients(self.algorithm, ask.message))
            batch = self.source.take(self.round, ask.wait_for, self.flight.count, self.flight.since)
            if isinstance(batch, Outcome):
                self._undo()
                return batch
            answers = self._answers(batch)
            state, after = self._served(answers)
            due = told or (self.round + 1) % self.engine.keep_rows == 0 or isinstance(after, Done)
            report = {key: plain(value) for key, value in self.algorithm.report(state).items()} if due else {}
        except BaseException:
            self._undo()
            raise
        down, up = (len(to), len(to) * kind.size), (len(batch.ids), len(batch.ids) * answers.size)
        self.lost = True  # until all of it is done
        self._count((type(ask.message).__name__, "down"), *down)
        self._count((type(answers.combined).__name__, "up"), *up)
        self.flight.answered(batch.ids, answers.size)
        self.events.add(*batch)
        self.source.settle()
        if self.ahead is not None:
            self.ahead.settle()
        self.replaced = []
        self.state, self.ask, self.round = state, after, self.round + 1
        self._tell(report, (up[1], down[1], up[0], answers.staleness), watch)
        return None

    def _count(self, key: tuple[str, str], count: int, size: int) -> None:
        counted = self.traffic.get(key) or self.traffic.setdefault(key, [0, 0])
        counted[0] += count
        counted[1] += size

    def _sent(self, ask: Round) -> tuple[NDArray[np.int64], Kind]:
        """Puts the message on its way; refuses a request that cannot be carried out."""
        flight, message = self.flight, ask.message
        to = flight.everybody if ask.to is None else self.latest[1] if ask.to is self.latest[0] else np.array(ask.to)
        known = None if (key := flight.key(message)) is None else flight.alike.get(key)
        if known is None:
            refused(self.algorithm, ask, self.n, flight.count)
            known = flight.new(key, message)
        least, most = ask.wait_for, flight.count + len(to)
        if to.dtype != np.int64:  # nobody's, or no whole numbers: NumPy would round them
            to = to.astype(np.int64) if to.dtype.kind == "i" or not len(to) else np.full(1, -1)
        if not most or (least is not None and not 1 <= least <= most):
            self._refuse(ask)
        if not flight.send(known, message, to, self.round):
            self._refuse(ask)
        return to, known

    def _refuse(self, ask: Round) -> NoReturn:
        """Says why a request cannot be carried out."""
        refused(self.algorithm, ask, self.n, self.flight.count)
        to = range(self.n) if ask.to is None else ask.to
        if not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in to):
            raise TypeError(f"Round.to needs the clients' positions, whole numbers in 0..{self.n - 1}, got {ask.to}")
        for i in to:
            if (last := self.flight.since[i]) >= 0:
                raise ValueError(
                    f"client {self.clients[i]} is asked in round {self.round + 1} and has not answered the message of "
                    f"round {last + 1}: ask those who answered, to=tuple(ids), or wait for all (wait_for=None)"
                )
        raise ValueError(f"Round.wait_for must be in 1..{self.flight.count + len(to)}, got {ask.wait_for}")

    def _undo(self) -> None:
        """As after the last finished round."""
        self.source.undo()
        self.flight.undo()
        if self.ahead is not None:
            self.ahead.undo()
        for ids, memory in self.replaced:
            self.memories.drop(ids) if memory is None else self.memories.put(ids, memory)
        self.replaced = []

    # ---- the answers

    def _answers(self, batch: Batch) -> _Answers:
        """Of all clients that answer; their memories are then those of this round."""
        ids, oldest, alike = self.flight.together(batch.ids, self.memories.place, self.rows.sort)
        if self.ahead is not None:
            few = alike and len(ids) < self.rows.together
            if few and (known := self.ahead.answers(ids, self.source.coming())) is not None:
                self.latest = order, _ = tuple(ids.tolist()), ids
                return _Answers(order, known, self.ahead.size, self.round - oldest)
            self.ahead.drop()
        groups = [ids] if alike and len(ids) <= self.rows.together else self._groups(ids)
        olds, memories, uploads = zip(*[self._client(group, len(ids)) for group in groups], strict=True)
        order, combined, size = self._combined(groups, uploads)
        self.lost = True  # until all memories are written
        self.replaced = list(zip(groups, olds, strict=True))
        for group, memory in zip(groups, memories, strict=True):
            self.memories.put(group, memory)
        self.lost, self.latest = False, (order, ids)
        return _Answers(order, combined, size, self.round - oldest)

    def _served(self, answers: _Answers) -> tuple[Any, Round | Done]:
        """The server's state and request after these answers."""
        step = handler(self.on_server, type(answers.combined), self.algorithm)
        self.lost = self.donated  # until the server has answered, its state may be half overwritten
        state, ask = step(self.state, answers.ids, answers.combined)
        if not isinstance(ask, Round | Done):
            raise TypeError(f"on_server must return (state, Round or Done), got a {type(ask).__name__}")
        return state if self.donated else settled(state), ask  # what is overwritten in place stays as it is laid out

    def _groups(self, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Who steps together: clients of one kind of message, of memory and of rows, each group in ascending order."""
        flight, parted, size = self.flight, dict[Any, list[int]](), self.rows.together
        marks = zip(flight.kind[flight.slots[ids]], self.memories.place[ids], self.rows.sort[ids], strict=True)
        for i, mark in zip(ids.tolist(), marks, strict=True):
            parted.setdefault(mark, []).append(i)
        return [np.array(group[k : k + size]) for group in parted.values() for k in range(0, len(group), size)]

    def _client(self, ids: NDArray[np.int64], answering: int) -> tuple[Any, Any, Any]:
        """(memory before or None, memory, upload) of a group's step; names the clients whose step raises."""
        try:
            return self._step(ids, self.rows.kept(ids) if answering == self.n else None)
        except Exception as error:
            failing = [i for i in ids if self._raises(i)] or ids
            names = tuple(self.clients[i] for i in failing)
            kind = self.flight.kind_of(ids[0]).message.__name__
            raise ClientError(
                f"the step of client{'s' * (len(names) > 1)} {', '.join(names)} on {kind} failed in round "
                f"{self.round + 1}: {type(error).__name__}: {error}. Mend or leave out; {self._advice()}",
                names,
                self.round + 1,
            ) from error

    def _raises(self, i: int) -> bool:
        try:
            self._step(np.array([i]))
        except Exception:
            return True
        return False

    def _step(self, ids: NDArray[np.int64], block: Block | None = None) -> tuple[Any, Any, Any]:
        block = self.rows.block(ids) if block is None else block
        message, turns = self.flight.message(ids), self.flight.turns
        old = self.memories.of(ids) if self.memories.place[ids[0]] >= 0 else None
        memory, upload = self.on_client[type(message)](
            settled(self.algorithm.client_start(block)) if old is None else old,
            message,
            block,
            lambda p: stream(self.seed, block.names[p], int(turns[ids[p]])),
        )
        return old, memory, upload

    def _combined(self, groups: list[NDArray[np.int64]], uploads: Sequence[Any]) -> tuple[tuple[int, ...], Any, int]:
        """(clients, what the server receives, bytes from each client)."""
        first, ids = uploads[0], groups[0]
        if len(groups) == 1 and (size := self.sizes.get(known := (len(ids), *_laid(first)))):
            return tuple(ids.tolist()), first, size
        fold = Combiner(type(first))
        for group, upload in zip(groups, uploads, strict=True):
            fold.add(group, upload)
        order, combined = fold.result()
        if (size := self.sizes.get(form := (fold.upload_class, *fold.forms))) is None:
            self.sizes = {} if len(self.sizes) > 1000 else self.sizes
            size = self.sizes[form] = encoded_size(members(first, slice(0, 1)))
        if len(groups) == 1 and all(getattr(combined, name) is getattr(first, name) for name, _ in fold.fields):
            self.sizes[known] = size  # what is laid out like this is in order, and combined as it is
        return order, combined, size

    # ---- a finished round

    def _tell(self, report: dict[str, Any], now: tuple[int, int, int, int], watch: Sequence[Any]) -> None:
        """The history's row, if it is time for one, which ends the round, and the watchers'."""
        self.late = self.late[0] + now[0], self.late[1] + now[1], self.late[2] + now[2], max(self.late[3], now[3])
        due = self.round % self.engine.keep_rows == 0 or isinstance(self.ask, Done)
        if due:
            self.history.append(self._row(self.late, report))
            self.late = (0, 0, 0, 0)
        self.lost = False
        if watch:
            row = self.history[-1] if self.engine.keep_rows == 1 else self._row(now, report)
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
        if self.ahead is not None:
            self.ahead.drop()
        memories, exchanged = self.memories.each(), np.stack([self.flight.given, self.flight.received])
        return Run(self.state, outcome, self.history, table, self.round, Answered(log), memories, exchanged, log)

    # ---- the checkpoint

    def _save(self) -> None:
        if self.path is None:
            return
        log = self.events.log(self.clients, self.seed, self.engine.block_size)
        run = files.Checkpoint(
            algorithm=self.what,
            clients=self.clients,
            digests=tuple(self.data),
            seed=self.seed,
            round=self.round,
            state=self.state,
            ask=self.ask,
            memories=self.memories.stored() if self.ahead is None else self.ahead.stored(),
            turns=self.flight.turns,
            traffic=tuple((*key, count, size) for key, (count, size) in self.traffic.items()),
            history=files.packed(self.history),
            active=(),
        )
        messages, asked = self.flight.stored()
        kept = EventCheckpoint(
            run=run,
            source=self.source.stored(),
            messages=messages,
            asked=asked,
            exchanged=np.stack([self.flight.given, self.flight.received]),
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
        self.history, self.late = files.unpacked(run.history), found.late
        self.traffic = {(message, way): [count, size] for message, way, count, size in run.traffic}
        for ids, memory in run.memories:
            self.memories.put(ids, memory)
        self.flight.turns, (self.flight.given, self.flight.received) = run.turns, found.exchanged
        self.flight.restore(found.messages, found.asked)
        self.events = Recorder(found)
        self.source.restore(found.source)


def _laid(upload: Any) -> list[Any]:
    """All that ``Combiner`` looks at but for the numbers."""
    parts = [
        (value.dtype, value.shape, value.flags.c_contiguous) if type(value) is np.ndarray else type(value)
        for value in vars(upload).values()
    ]
    return [type(upload), *parts]
