"""The event loop of the engines whose clients answer at different times.

In one round the server's message goes to the clients that it asks. The source of events (`Source`:
a simulated clock, or the log of an earlier run) says whose answers are due. These are computed from
the messages that were sent, and handed to the server, whose next message begins the next round. A
round that fails is undone, so that the stored state is always that of the last finished round.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.engines import checkpoint as files
from bonafed.engines.clients import Answers, Clients
from bonafed.engines.consistency import check_rows, check_run, traffic
from bonafed.engines.engine import (
    Run,
    Watch,
    asked,
    check_answer,
    concludes,
    end_of,
    going_on,
    handler,
    reported,
)
from bonafed.engines.event_log import Answered, Recorder, check_answers
from bonafed.engines.event_source import Source
from bonafed.engines.federated_data import Known
from bonafed.engines.inprocess import InProcess
from bonafed.engines.interrupts import Interrupts
from bonafed.engines.possible import Fields, refusing
from bonafed.engines.run_record import Counts, RunRecord, traffic_table
from bonafed.privacy.secure_sum.option import SecureSum, option_of
from bonafed.rounds import (
    Done,
    Outcome,
    Round,
    Stop,
    record,
    settled,
)


@record
class EventCheckpoint:
    """A run between two rounds, with its messages in flight."""

    run: files.Checkpoint
    source: Any
    # those in flight: message for who is to answer, its round, bytes
    messages: tuple[tuple[Any, int, int], ...]
    # the number of each client's message in flight, or -1
    asked: Annotated[NDArray[np.int64], Form("N", least=-1)]
    exchanged: Annotated[NDArray[np.int64], Form("2, N")]  # bytes from and to each client
    late: tuple[int, int, int, int]  # the Counts since the last row of the history
    answered: Annotated[NDArray[np.int32], Form("answers", below="N")]
    times: Annotated[Array, Form("answers")]
    ends: Annotated[NDArray[np.int64], Form("rounds")]


@dataclass(frozen=True)
class Server:
    """The server's side of a run after a finished round."""

    state: Any
    ask: Round | Done  # its next request
    round: int  # finished rounds


class EventEngine:
    """The base of the engines whose clients answer at different times, and whose server need not
    wait for all of them.

    Attributes
    ----------
    block_size : clients that step together at most
    keep_rows : rounds for each row of the history
    checkpoint : file to keep the run in, or None
    every : rounds between two writes of the checkpoint
    secure_sum : whether the server learns sums alone
    synced : whether a checkpoint outlives the machine's power as well as the process
    """

    synced: ClassVar[bool] = True
    block_size: int
    keep_rows: int
    checkpoint: str | os.PathLike[str] | None
    every: int
    secure_sum: SecureSum | bool | None

    @property
    def asynchronous(self) -> bool:
        """Whether the server may go on without some of the clients; a secure sum waits for all that
        an algorithm needs.
        """
        return option_of(self.secure_sum) is None

    def check_settings(self, block_size: int) -> None:
        """Raise ``ValueError`` on settings that are no numbers of clients and rounds."""
        option_of(self.secure_sum)
        numbers = {"block_size": block_size, "keep_rows": self.keep_rows, "every": self.every}
        for name, value in numbers.items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}.")

    def aside(self) -> InProcess:
        """A plain engine, for runs beside the main one, such as a certificate's."""
        return InProcess(secure_sum=self.secure_sum)


class Loop:
    """One run of an algorithm, round by round.

    Attributes
    ----------
    server, clients, source : the three parties: the server's state, the clients' rows and memories,
        and the source of the times at which they answer
    record : the counts and the log of the finished rounds
    file : the file of the checkpoints
    begun : how many rounds were begun; that of a round that was undone is one more than finished
    halfway : whether a round is half written, so that the state is not that of a finished round
    """

    def __init__(
        self,
        engine: EventEngine,
        clients: Clients,
        source: Source,
        rule: object,
        federation: Known,
        seed: int,
    ) -> None:
        self.engine, self.clients, self.algorithm = engine, clients, clients.algorithm
        self.on_server, self.block_size = self.algorithm.on_server, engine.block_size
        self.donated = self.algorithm.donates
        self.file = files.RunFile.of(engine.checkpoint, (self.algorithm, rule), federation, seed)
        self.source, self.record = source, RunRecord()
        self.server = Server(None, Round(None), 0)
        self.halfway, self.interrupts, self.saved = False, Interrupts(), 0
        self.begun = 0

    def run(self, watch: Sequence[Watch], resume: bool, max_rounds: int | None) -> Run:
        """Run until the algorithm is done, or the engine cannot or may not go on."""
        if resume and self.file.path is None:
            raise ValueError(f"resume=True needs a checkpoint: {self._keeping}")
        self._restore() if resume else self._start()
        written, stop, interrupts = self.server.round if resume else -1, None, self.interrupts
        try:
            with interrupts:
                while stop is None and going_on(
                    ask := self.server.ask, self.server.round, max_rounds
                ):
                    stop = self._round(ask, watch)
                    if stop is None and self.server.round % self.engine.every == 0:
                        self._save()
                        written = self.server.round
                    interrupts.check()
        except KeyboardInterrupt:
            self.halfway |= interrupts.forced
            if self.halfway:
                raise
            text = f"interrupted after round {self.server.round}; {self._advice()}"
            stop = Outcome(Stop.INTERRUPTED, text)
        finally:  # also when a client or a watcher raised
            if written != self.server.round and not self.halfway:
                self._save()
        outcome = end_of(self.server.ask, stop, max_rounds, self._advice())
        return self.result(outcome, None if isinstance(self.server.ask, Done) else outcome)

    # ---- one round

    def _start(self) -> None:
        state, ask = self.algorithm.server_start(len(self.clients.names))
        self.server = Server(settled(state), ask, 0)

    def _round(self, ask: Round, watch: Sequence[Watch]) -> Outcome | None:
        """Carry out one round; the outcome of the run where there can be none."""
        clients, source, now = self.clients, self.source, self.server.round
        self.begun = now + 1
        try:
            to, kind = clients.send(ask, now)
            source.send(to, self.algorithm.gradients(ask.message))
            batch = source.take(now, ask.wait_for, clients.flight.count, clients.flight.since)
            if isinstance(batch, Outcome):
                self._undo()
                return batch
            answers = clients.answers(batch.ids, now, self._advice())
            server = self._served(answers)
            row_is_due = self._row_is_due(server)
            report = reported(self.algorithm, server.state) if watch or row_is_due else {}
        except BaseException:
            self._undo()
            raise
        self.halfway = True
        counts = Counts(
            len(batch.ids) * answers.size, len(to) * kind.size, len(batch.ids), answers.staleness
        )
        self.record.count(type(ask.message), "down", len(to), counts.bytes_down)
        self.record.count(type(answers.combined), "up", counts.answered, counts.bytes_up)
        self.record.events.add(*batch)
        clients.finish(batch.ids, answers)
        source.settle()
        self.server = server
        self._note(counts, report, row_is_due)
        self.halfway = False  # the round is finished
        self._show(counts, report, watch)
        return None

    def _undo(self) -> None:
        """Go back to the last finished round."""
        self.source.undo()
        self.clients.undo()

    def _served(self, answers: Answers) -> Server:
        """The server's side after these answers."""
        step = handler(self.on_server, type(answers.combined), self.algorithm)
        self.halfway = self.donated  # its state may be half overwritten
        state, ask = step(self.server.state, answers.ids, answers.combined)
        # what is overwritten in place stays as it is laid out
        state = state if self.donated else settled(state)
        return Server(state, check_answer(ask), self.server.round + 1)

    # ---- history and watchers

    def _row_is_due(self, server: Server) -> bool:
        return server.round % self.engine.keep_rows == 0 or isinstance(server.ask, Done)

    def _note(self, counts: Counts, report: dict[str, Any], row_is_due: bool) -> None:
        """Add the counts to the history, or to those of its next row."""
        total = self.record.since_row.joined(counts)
        if row_is_due:
            self.record.history.append(total.row(self.server.round, self.source.time, report))
            total = Counts()
        self.record.since_row = total

    def _show(self, counts: Counts, report: dict[str, Any], watch: Sequence[Watch]) -> None:
        """Show this round to the watchers, who see every round."""
        if not watch:
            return
        if self.engine.keep_rows == 1:
            row = self.record.history[-1]
        else:
            row = counts.row(self.server.round, self.source.time, report)
        for see in watch:
            see(row, self.server.state)

    # ---- the result

    @property
    def _keeping(self) -> str:
        return f"{type(self.engine).__name__}(..., checkpoint=PATH)"

    def _advice(self) -> str:
        return self.file.advice(self._keeping)

    def _exchanged(self) -> NDArray[np.int64]:
        return np.stack([self.clients.flight.answer_bytes, self.clients.flight.message_bytes])

    def result(self, outcome: Outcome, ended: Outcome | None) -> Run:
        """The result of the run; ``ended`` is the outcome where it is the engine's and not the
        algorithm's.
        """
        log = self.record.events.log(
            self.file.clients, self.file.seed, self.block_size, self.source.crashed(), ended
        )
        concluded, flight = None, self.clients.flight
        begun = flight.turns + (flight.since >= 0)
        if concludes(self.algorithm, flight.turns, outcome):
            concluded = self.clients.conclusions(self.record)
        return Run(
            self.server.state,
            outcome,
            self.record.history,
            traffic_table(self.record.traffic),
            self.server.round,
            Answered(log),
            self.clients.each(),
            flight.turns,
            asked(begun, self.server.ask, self.begun > self.server.round),
            self._exchanged(),
            concluded,
            log,
        )

    # ---- the checkpoint

    def _save(self) -> None:
        if self.file.path is None:
            return
        server, notes, flight = self.server, self.record, self.clients.flight
        log = notes.events.log(self.file.clients, self.file.seed, self.block_size)
        run = files.Checkpoint(
            **self.file.run,
            round=server.round,
            state=server.state,
            ask=server.ask,
            memories=self.clients.stored(),
            turns=flight.turns,
            traffic=tuple((*key, count, size) for key, (count, size) in notes.traffic.items()),
            history=files.packed(notes.history),
            active=(),
        )
        messages, asked = flight.stored()
        up, down, answered, staleness = notes.since_row
        kept = EventCheckpoint(
            run=run,
            source=self.source.stored(),
            messages=messages,
            asked=asked,
            exchanged=self._exchanged(),
            late=(up, down, answered, staleness),
            answered=log.answered,
            times=log.times,
            ends=log.ends,
        )
        if self.engine.synced or self.algorithm.private:
            files.save(self.file.path, kept)
        else:
            files.save_in_turns(self.file.path, kept, self.saved)
            self.saved += 1

    def _restore(self) -> None:
        kept = self.file.load(EventCheckpoint)
        with refusing(self.file.path):
            self._check(kept)
            self._put(kept)
            last = float(kept.times[-1]) if kept.times.size else 0.0
            if self.source.time != last:
                raise ValueError(
                    f"its time is {self.source.time}, and the last answer came at {last}"
                )

    def _check(self, kept: EventCheckpoint) -> None:
        """Raise where a checkpoint cannot be one of this run."""
        run, n = kept.run, len(self.clients.names)
        self.file.check(run)
        fields = Fields(n, run.round, self.clients.n_features)
        fields.checkpoint(run)
        for name, hint in get_type_hints(EventCheckpoint, include_extras=True).items():
            if name not in ("run", "messages"):
                fields.check(getattr(kept, name), hint, name)
        in_flight = int((kept.asked >= 0).sum())
        check_run(run, self.algorithm, self.clients.example, n, False, in_flight)
        history, late = files.unpacked(run.history), Counts(*kept.late)
        check_rows(history, run, self.algorithm, (late.bytes_up, late.bytes_down))
        turns = check_answers(kept.answered, kept.times, kept.ends, n)
        exchanged = [traffic(run, way)[1] for way in ("up", "down")]
        answered = sum(row["answered"] for row in history) + late.answered
        if late.staleness > run.round or answered != kept.answered.size:
            raise ValueError(f"since the last row of the history it counted {late}")
        if any(row["time"] != kept.times[kept.ends[row["round"] - 1] - 1] for row in history):
            raise ValueError("the history has other times than the answers")
        if len(kept.ends) != run.round or not np.array_equal(turns, run.turns):
            raise ValueError("the answers of every round are not those of turns")
        if kept.exchanged.sum(1).tolist() != exchanged:
            raise ValueError("the clients' bytes are not those of traffic")
        self._check_messages(kept, fields)

    def _check_messages(self, kept: EventCheckpoint, fields: Fields) -> None:
        """Raise where the messages in flight are none of this run."""
        for number, (message, round_, size) in enumerate(kept.messages):
            to = np.flatnonzero(kept.asked == number)
            handler(self.algorithm.on_client, type(message), self.algorithm)
            fields.axes["N"] = len(to)  # it has a row for each client who is to answer it
            fields.check(message, Any, f"messages[{number}]")
            if not (len(to) and 0 <= round_ < max(kept.run.round, 1) and size > 0):
                raise ValueError(f"messages[{number}] of round {round_} is in nobody's flight")
        if kept.asked.max(initial=-1) >= len(kept.messages):
            raise ValueError(f"asked names message {kept.asked.max()} of {len(kept.messages)}")

    def _put(self, kept: EventCheckpoint) -> None:
        """Take the state of a checkpoint over."""
        run, notes, flight = kept.run, self.record, self.clients.flight
        self.server = Server(run.state, run.ask, run.round)
        notes.history, notes.since_row = files.unpacked(run.history), Counts(*kept.late)
        notes.traffic = {(name, way): [count, size] for name, way, count, size in run.traffic}
        notes.events = Recorder(kept.answered, kept.times, kept.ends)
        self.clients.restore(run.memories)
        flight.turns, (flight.answer_bytes, flight.message_bytes) = run.turns, kept.exchanged
        flight.restore(kept.messages, kept.asked)
        self.source.restore(kept.source, np.flatnonzero(flight.since >= 0), flight.turns)
