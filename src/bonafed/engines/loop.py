"""The loop of every engine.

In one round the server's message goes to the clients that it asks. The source of events (`Source`:
all at once, a simulated clock, the sites themselves, or the log of an earlier run) says whose
answers are due. These are computed from the messages that were sent, and handed to the server,
whose next message begins the next round. A round that fails is undone, so that the stored state is
always that of the last finished round.
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.engines import checkpoint as files
from bonafed.engines.batching import Known
from bonafed.engines.checkpoint import Checkpoint
from bonafed.engines.checkpoint_schema import Fields
from bonafed.engines.clients import Answers, Clients, Ids, Marks
from bonafed.engines.endings import advice, ended
from bonafed.engines.engine import Run, Watch, check_algorithm, check_answer, handler, reported
from bonafed.engines.run_record import Counts, Events, Log, RunRecord, recording
from bonafed.engines.secure_run import secure_run
from bonafed.parameters import Checked
from bonafed.privacy.secure_sum.messages import SecureSum, option_of
from bonafed.rounds import Algorithm, Conclude, Done, Outcome, Round, Stop, copied, encode, settled
from bonafed.signals import ENDING, came, interrupts
from bonafed.storage import write_in_turns


class Interrupts:
    """While it is open and ``holding``, a first Ctrl-C is kept for ``check``; a second one
    interrupts at once. So are other signals that interrupt as Ctrl-C does.

    Only where nobody else handles them and in the main thread; elsewhere it changes nothing.
    ``always``: it holds until it is closed, whatever is released.
    """

    def __init__(self, always: bool) -> None:
        self.always, self.holding = always, True
        self.pending = self.forced = False
        self.kept: dict[int, Any] = {}  # the handlers before, by signal

    def __enter__(self) -> "Interrupts":
        try:
            for number in filter(interrupts, ENDING):
                self.kept[number] = signal.signal(number, self._keep)
        except ValueError:  # not the main thread, which alone may set handlers
            pass
        return self

    def _keep(self, number: int, frame: FrameType | None) -> None:
        came(number)
        again, self.pending = self.pending, True
        self.forced |= again and self.holding  # may strike halfway through anything
        if again or not self.holding:
            raise KeyboardInterrupt

    def hold(self) -> None:
        """What follows must not be halfway done."""
        self.holding = True

    def release(self) -> None:
        """What follows can be undone."""
        self.holding = self.always

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was kept."""
        if self.pending:
            self.pending = False
            raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, before in self.kept.items():
            signal.signal(number, before)
        if kind is None:
            self.check()


class Batch(NamedTuple):
    """The answers of one round in the order of arrival."""

    ids: Ids
    times: Array


class Source:
    """The base of sources of events: which clients answer when.

    Everything since the last ``settle`` can be undone. ``time`` is that of the last answer or,
    where all answer at once, the seconds of the last round.
    """

    time: float = 0.0
    latest: float = 0.0  # the time of the last answer, before the round is finished
    interrupts: Interrupts  # of the run

    def send(self, ids: Ids, gradients: float) -> None:
        """Note that messages go to these clients."""

    def take(self, t: int, wait_for: int | None, in_flight: int, since: Marks) -> Batch | Outcome:
        """The answers of the next round, or the outcome of the run where there are none.

        ``t`` are the finished rounds, ``in_flight`` is the number of clients in flight; ``since``
        (N,) holds the finished rounds when they were asked, and -1 for other clients.
        """
        raise NotImplementedError

    def settle(self) -> None:
        """Note that the round is finished."""
        self.time = self.latest

    def undo(self) -> None:
        """Go back to the last finished round."""
        self.latest = self.time

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """The clients that never answer again, and the times since when."""
        return ()

    def stored(self) -> Any:
        """The state of the source for a checkpoint."""

    def restore(self, state: Any, in_flight: Ids, turns: Ids) -> None:
        """Set the source to the state in a checkpoint; ``ValueError`` for one that no source has.

        ``in_flight`` are the clients still to answer, ``turns`` (N,) how often each has answered.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Server:
    """The server's side of a run after a finished round."""

    state: Any
    ask: Round | Done  # its next request
    round: int  # finished rounds


class EventEngine(Checked):
    """The base of all engines: the settings that they share, and ``run``.

    Attributes
    ----------
    block_size : clients that step together at most
    keep_rows : rounds for each row of the history
    checkpoint : file to keep the run in, or None
    every : rounds between two writes of the checkpoint
    secure_sum : whether the server learns sums only
    synced : whether a checkpoint outlives the machine's power as well as the process
    at_once : whether all who are asked answer at once, in the time that it takes here; else answers
        have times, and the run a log
    """

    synced: ClassVar[bool] = True
    at_once: ClassVar[bool] = False
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

    def run(
        self,
        algorithm: Algorithm,
        federation: Known,
        *,
        seed: int | None = None,
        watch: Sequence[Watch] = (),
        resume: bool = False,
        max_rounds: int | None = None,
    ) -> Run:
        """Run until the algorithm is done.

        A round is one call of ``on_server``. Its row of the history has the traffic and what the
        algorithm reports; the seconds that it took where all answer at once, and else the time of
        its last answer, the number of answers and the most rounds by which one of their messages
        was old. Where only some rows are kept, each counts all rounds since the row before.
        Watchers see the server's state itself: anyone who keeps it has to copy it.

        Parameters
        ----------
        seed : of all random numbers, 0 by default; of a replay that of its log
        watch : each is called with (history row, server state) after every round
        resume : go on from ``checkpoint``; the result is bit for bit that of a run without
            interruption (of ``InProcess`` in another mode or block size: to rounding)
        max_rounds : stop here whatever the algorithm says (in all, resumed rounds included)

        Raises
        ------
        ClientError : a client's step raised; names it. The checkpoint holds the last finished
            round.
        CheckpointError : no checkpoint, a damaged one, or one of other data, another algorithm or
            seed.

        Notes
        -----
        ``Stop.STALLED``: an answer that is waited for will never come. Ctrl-C ends the run with
        ``Stop.INTERRUPTED`` after the last finished round or, where the algorithm overwrites its
        state and not all answer at once, after the round that is being computed; a second one at
        once, without saving anything.
        """
        seed = self.seed_of(seed)
        check_algorithm(algorithm)
        if (option := option_of(self.secure_sum)) is not None:
            how: Any = {"seed": seed, "watch": watch, "resume": resume, "max_rounds": max_rounds}
            return secure_run(self, option, algorithm, federation, how)
        return self.carry(self.loop(algorithm, federation, seed), watch, resume, max_rounds)

    def seed_of(self, seed: int | None) -> int:
        """The seed of a run."""
        return seed or 0

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> "Loop":
        """The loop of one run."""
        raise NotImplementedError

    def carry(self, loop: "Loop", watch: Sequence[Watch], resume: bool, most: int | None) -> Run:
        """The run of the loop."""
        return loop.run(watch, resume, most)

    def check_settings(self, block_size: int) -> None:
        """Raise ``ValueError`` on settings that are not numbers of clients and rounds."""
        option_of(self.secure_sum)
        numbers = {"block_size": block_size, "keep_rows": self.keep_rows, "every": self.every}
        for name, value in numbers.items():
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}.")


class Loop:
    """One run of an algorithm, round by round.

    Attributes
    ----------
    server, clients, source : the three parties: the server's state, the clients' rows and memories,
        and the source of the times at which they answer
    record : the counts and the log of the finished rounds
    file : the file of the checkpoints
    parted : both files of a private run whose clients are here
    begun : how many rounds were begun; that of a round that was undone is one more than finished
    halfway : whether a round is half written, so that the state is not that of a finished round
    """

    def __init__(
        self,
        engine: EventEngine,
        clients: Clients,
        source: Source,
        rule: tuple[Any, ...] | None,
        federation: Known,
        seed: int,
    ) -> None:
        self.engine, self.clients, self.source = engine, clients, source
        algorithm = self.algorithm = clients.algorithm
        run = (algorithm,) if rule is None else (algorithm, rule)
        self.file = files.RunFile.of(engine.checkpoint, run, federation, seed)
        kept = self.file.path is not None and algorithm.private and clients.example is not None
        self.parted = files.PartedFile(Path(self.file.path)) if kept and self.file.path else None
        self.record = RunRecord(recording(engine.at_once))
        # a round can be dropped at any moment where the server's state is copied before it
        self.donated = algorithm.mutates_state and not engine.at_once
        source.interrupts = self.interrupts = Interrupts(always=not engine.at_once)
        self.server = Server(None, Round(None), 0)
        self.halfway, self.begun, self.saved = False, 0, 0

    def run(self, watch: Sequence[Watch], resume: bool, max_rounds: int | None) -> Run:
        """Run until the algorithm is done, or the engine cannot or may not go on."""
        if resume and self.file.path is None:
            keeping = f"{type(self.engine).__name__}(checkpoint=PATH)"
            raise ValueError(f"resume=True needs a checkpoint: {keeping}")
        if resume:
            self._restore()
        else:
            state, first = self.algorithm.server_start(len(self.clients.names))
            self.server = Server(settled(state), settled(first), 0)
            self.clients.begin()
        written, stop, interrupts = self.server.round if resume else -1, None, self.interrupts
        try:
            with interrupts:
                while stop is None and isinstance(ask := self.server.ask, Round):
                    if self.server.round == max_rounds:
                        stop = ended(Stop.MAX_ROUNDS, "max_rounds", max_rounds, advice(self.engine))
                        break
                    stop = self._round(ask, watch)
                    if stop is None and self.server.round % self.engine.every == 0:
                        self._save()
                        written = self.server.round
                    interrupts.check()
                interrupts.hold()
        except KeyboardInterrupt:
            self.halfway |= interrupts.forced
            if self.halfway:
                raise
            stop = ended(Stop.INTERRUPTED, "interrupt", self.server.round, advice(self.engine))
        finally:  # also when a client or a watcher raised
            if written != self.server.round and not self.halfway:
                self._save()
        if self.parted is not None and isinstance(self.server.ask, Done):
            self.parted.destroy_keys()
        return self.result(None if isinstance(self.server.ask, Done) else stop)

    # ---- one round

    def _round(self, ask: Round, watch: Sequence[Watch]) -> Outcome | None:
        """Carry out one round; the outcome of the run where there can be none."""
        clients, source, now = self.clients, self.source, self.server.round
        self.begun = now + 1
        self.interrupts.hold()
        try:
            to, kind = clients.send(ask, now)
            source.send(to, self.algorithm.gradients(ask.message))
            batch = source.take(now, ask.wait_for, clients.flight.count, clients.flight.since)
            if isinstance(batch, Outcome):
                self._undo()
                return batch
            self.interrupts.release()
            if self.engine.at_once:
                self.interrupts.check()
            answers = clients.answers(batch.ids, now, advice(self.engine))
            server = self._served(answers)
            row_is_due = server.round % self.engine.keep_rows == 0 or isinstance(server.ask, Done)
            report = reported(self.algorithm, server.state) if watch or row_is_due else {}
            self.interrupts.hold()
        except BaseException:
            self.interrupts.hold()
            self._undo()
            raise
        self.halfway = True
        counts = Counts(answers.size, len(to) * kind.size, len(batch.ids), answers.staleness)
        self.record.count(type(ask.message), "down", len(to), counts.bytes_down)
        self.record.count(type(answers.combined), "up", counts.answered, counts.bytes_up)
        self.record.tell(answers.combined, counts.answered)
        self.record.events.add(*batch)
        clients.finish(batch.ids, answers)
        source.settle()
        self.server = server
        # Add the counts to the history, or to those of its next row
        total = self.record.since_row.joined(counts)
        if row_is_due:
            self.record.history.append(self._row(total, report))
            total = Counts()
        self.record.since_row = total

        self.halfway = False  # the round is finished
        self.interrupts.release()
        if watch:  # who see every round
            every = self.engine.keep_rows == 1
            row = self.record.history[-1] if every else self._row(counts, report)
            for see in watch:
                see(row, self.server.state)
        return None

    def _undo(self) -> None:
        """Go back to the last finished round."""
        self.source.undo()
        self.clients.undo()

    def _served(self, answers: Answers) -> Server:
        """The server's side after these answers."""
        step = handler(self.algorithm.on_server, type(answers.combined), self.algorithm)
        self.halfway, state = self.donated, self.server.state  # it may be half overwritten
        if self.algorithm.mutates_state and not self.donated:
            state = copied(state)
        state, ask = step(state, answers.ids, answers.combined)
        # what is overwritten in place stays as it is laid out
        state = state if self.donated else settled(state)
        return Server(state, check_answer(ask), self.server.round + 1)

    def _row(self, counts: Counts, report: dict[str, Any]) -> dict[str, Any]:
        return counts.row(self.server.round, self.source.time, self.engine.at_once, report)

    # ---- the result

    def result(self, stop: Outcome | None) -> Run:
        """The result of the run; ``stop`` is its outcome where the algorithm is not done.

        The clients are asked for what they keep that belongs to the answer where the algorithm asks
        for it, all of them have taken part, and the run was neither interrupted nor ended by an
        impossible answer.
        """
        ask = self.server.ask
        outcome = ask.outcome if isinstance(ask, Done) else stop
        assert outcome is not None
        events, concluded, log = self.record.events.stored(), None, None
        if isinstance(events, Events):
            columns = events.answered, events.times, events.ends
            end = self.source.crashed(), stop
            log = Log(self.file.clients, self.file.seed, self.engine.block_size, *columns, *end)
        flight, conclude = self.clients.flight, Conclude in self.algorithm.on_client
        asked = flight.turns
        if flight.count:
            asked = asked + (flight.since >= 0)
        if isinstance(ask, Round) and self.begun > self.server.round:
            asked = asked.copy()
            asked[slice(None) if ask.to is None else [*ask.to]] += 1
        over = outcome.stop not in (Stop.INTERRUPTED, Stop.IMPOSSIBLE)
        if over and conclude and flight.turns.all():
            concluded = self.clients.conclusions(self.record)
        told = (outcome, self.record.history, self.record.messages(), self.server.round, events)
        counts = flight.turns, asked, flight.exchanged
        return Run(self.server.state, *told, self.clients.each(), *counts, concluded, log)

    # ---- the checkpoint

    def _save(self) -> None:
        if self.file.path is None:
            return
        messages, asked = self.clients.flight.stored()
        record, source = self.record, self.source.stored()
        server = self.server.round, self.server.state, self.server.ask
        traffic = tuple((*key, n, size) for key, (n, size) in record.traffic.items())
        answered = tuple((*key, n) for key, n in record.answered.items())
        counted = self.clients.flight.turns, traffic, answered, files.packed(record.history)
        flying = source, messages, asked, self.clients.flight.exchanged, tuple(record.since_row)
        told = *server, self.clients.stored(), "", *counted, *flying, record.events.stored()
        kept = Checkpoint(*self.file.run, *told)
        if self.parted is not None:
            self.parted.save(kept)
        elif self.engine.synced or self.algorithm.private:
            files.save(self.file.path, kept)
        else:
            # every round counts in microseconds: it outlives the process, not the machine's power
            anew = self.saved == 0
            write_in_turns(self.file.path, self.saved, encode(kept), anew=anew, sync=False)
            self.saved += 1

    def _restore(self) -> None:
        kept = self.file.load()
        with files.refusing(self.file.path):
            self.file.check(kept)
            if self.parted is not None:
                kept = self.parted.joined(kept)
            self._check(kept)
            # Take the state of a checkpoint over
            notes, flight, events = self.record, self.clients.flight, kept.events
            self.server = Server(kept.state, kept.ask, kept.round)
            notes.history, notes.since_row = files.unpacked(kept.history), Counts(*kept.late)
            notes.traffic = {(name, way): [count, size] for name, way, count, size in kept.traffic}
            notes.answered = {(a, b, c): n for a, b, c, n in kept.answered}
            notes.events = recording(self.engine.at_once, events)
            self.clients.restore(kept.memories)
            flight.turns, flight.exchanged = kept.turns, kept.exchanged
            flight.restore(kept.messages, kept.asked)
            self.source.restore(kept.source, np.flatnonzero(flight.since >= 0), flight.turns)

            times = getattr(kept.events, "times", np.zeros(0))
            last = float(times[-1]) if times.size else self.source.time
            if (now := self.source.time) != last:
                raise ValueError(f"its time is {now}, and the last answer came at {last}")

    def _check(self, kept: Checkpoint) -> None:
        """Raise where a checkpoint cannot be one of this run."""
        n, algorithm, here = len(self.clients.names), self.algorithm, self.clients.example
        fields = Fields(n, kept.round, self.clients.n_features)
        files.check_fields(kept, fields)
        files.check_run(kept, algorithm, here, n)
        history, late = files.unpacked(kept.history), Counts(*kept.late)
        files.check_rows(history, kept, algorithm, (late.bytes_up, late.bytes_down))
        if self.engine.keep_rows == 1 and len(history) != kept.round:
            raise ValueError(f"the history has {len(history)} rows after {kept.round} rounds")
        events = kept.events
        if type(events) is not type(self.record.events.stored()):
            raise ValueError(f"its events are {events!r:.40}, which another engine has")
        if len(events.ends) != kept.round or not np.array_equal(events.turns(n), kept.turns):
            raise ValueError("the answers of every round are not those of turns")
        if isinstance(events, Events):
            # Raise where the rows of the history are not those of the events
            answered = sum(row["answered"] for row in history) + late.answered
            if late.staleness > kept.round or answered != events.answered.size:
                raise ValueError(f"since the last row of the history it counted {late}")
            ends = events.ends[[row["round"] - 1 for row in history]] - 1
            if [row["time"] for row in history] != events.times[ends].tolist():
                raise ValueError("the history has other times than the answers")

        both = [files.traffic(kept, way)[1] for way in ("up", "down")]
        if kept.exchanged.sum(1).tolist() != both:
            raise ValueError("the clients' bytes are not those of traffic")
        # Raise where the messages in flight are none of this run
        for number, (message, round_, size) in enumerate(kept.messages):
            to = np.flatnonzero(kept.asked == number)
            handler(self.algorithm.on_client, type(message), self.algorithm)
            fields.axes["N"] = len(to)  # it has a row for each client who is to answer it
            fields.check(message, Any, f"messages[{number}]")
            if not (len(to) and 0 <= round_ < max(kept.round, 1) and size > 0):
                raise ValueError(f"messages[{number}] of round {round_} is not under way")
        if kept.asked.max(initial=-1) >= len(kept.messages):
            raise ValueError(f"asked names message {kept.asked.max()} of {len(kept.messages)}")
