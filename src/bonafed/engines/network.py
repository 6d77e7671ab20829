"""The engine whose clients are separate sites, at the end of a transport.

The server's side is the loop of all engines: a message goes to the sites that are asked, and a
round ends once as many answers are there as the algorithm and the rule of waiting want. The sites
compute, keep their memories and count their turns themselves (`bonafed.engines.wire`). So the run
depends on nothing but who answered in which round, which its log has: `Replay` repeats it bit for
bit where all rows are in one place.
"""

import math
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.client_names import texts
from bonafed.codec import decode, encode, encoded_size, mapped, record
from bonafed.engines import wire
from bonafed.engines.batching import Known
from bonafed.engines.clients import Answers, Clients, Ids, Kind, Marks
from bonafed.engines.delays import View, Waiting
from bonafed.engines.endings import ImpossibleAnswerError, ended, ended_by, gone_on
from bonafed.engines.engine import ClientError, Run, Watch
from bonafed.engines.loop import Batch, EventEngine, Loop, Source
from bonafed.engines.secure_summed import asked_in
from bonafed.privacy.secure_sum.messages import SecureSum, option_of
from bonafed.rounds import Algorithm, Conclude, Outcome, Round, Stop, arrays_of, combine, settled

BREATH = 0.5  # seconds at most until a Ctrl-C is noticed
# what reading an answer of another form than it was asked for raises
UNREADABLE = AttributeError, IndexError, TypeError, ValueError, np.linalg.LinAlgError
RETELLINGS = 3  # how often a site is told of a run again before one answer


class RefusedError(RuntimeError):
    """A site does not do what it is asked; ``site``, and ``rule`` of its policy."""

    def __init__(self, site: str, rule: str, text: str) -> None:
        self.site, self.rule, why = site, rule, text.removeprefix(f"{rule}: ")
        super().__init__(f"the site {site} refuses by its rule {rule!r}: {why}")


class StateLostError(RuntimeError):
    """A site has lost what it keeps between two messages, so that the run cannot go on as it was;
    ``site``, and the server's ``state``.
    """

    def __init__(self, site: str, had: int, needed: int) -> None:
        self.site = site
        self.state: Any = None  # the server's, when it noticed
        super().__init__(
            f"the site {site} has lost what it keeps of the run: it has answered {had} messages of"
            f" it, and the server has {needed} answers. It can begin again at its model."
        )


class ForgetfulError(RuntimeError):
    """A site still does not know a run of which it was told again; names the ``site``."""

    def __init__(self, site: str, times: int) -> None:
        self.site = site
        super().__init__(
            f"the site {site} was told of the run again {times} time{'s' * (times > 1)} in a row,"
            " and answers that it does not know it. Look into the site's log, and make sure that"
            " only one process answers for it and that it can write its state."
        )


@dataclass(frozen=True)
class Session:
    """An experiment that the sites have agreed to.

    Attributes
    ----------
    link : to the sites
    opening : of a site, by its number, the bodies that tell it about the experiment again
    method : the statement of an algorithm as bytes
    told : by site, what its answers in all runs of the experiment say of its rows
    """

    link: wire.Link
    opening: Callable[[int], Sequence[Any]]
    method: Callable[[Algorithm], bytes]
    told: dict[int, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Network(EventEngine):
    """The clients are sites at the end of a transport.

    Parameters
    ----------
    session : what the sites have agreed to
    wait : as of ``VirtualClock``: for whose answers an asynchronous algorithm waits; None: for
        those of all, and the default algorithms are synchronous ones
    stalls : a site that is silent for too long ends the run with the model so far; False: by
        ``SilentError``, whereupon it can be resumed
    keeps : an impossible answer ends the run with the model so far; False: by the error that names
        the site, as where there is no model yet
    keep_rows, checkpoint, every, secure_sum : as of ``VirtualClock``; the checkpoint has the
        server's part of the run only, since every site keeps its own
    """

    synced: ClassVar[bool] = False  # it would take longer than a round
    session: Session
    wait: Waiting | None = None
    stalls: bool = True
    keeps: bool = True
    keep_rows: int = 1
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        self.check_settings(1)

    @property
    def asynchronous(self) -> bool:
        """Whether the server may go on without some of the sites."""
        return self.wait is not None and option_of(self.secure_sum) is None

    @property
    def block_size(self) -> int:
        """Every site steps by itself."""
        return 1

    def beside_run(self) -> "Network":
        """The same sites, for runs beside the main one, such as a certificate's."""
        return replace(self, checkpoint=None, keeps=False)

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> Loop:
        """The loop of one run; its times are seconds since it began."""
        clients = Sites(self.session, algorithm, federation, seed)
        source = _Arrivals(self.wait, clients, self.stalls)
        return Loop(self, clients, source, (self.wait,), federation, seed)

    def carry(self, loop: Loop, watch: Sequence[Watch], resume: bool, most: int | None) -> Run:
        """The run of the loop.

        Raises
        ------
        RefusedError : a site refuses a message
        StateLostError : a site has lost what it keeps of the run
        ForgetfulError : a site does not know the run, however often it is told of it
        ClientError : a site's step raised an error; names it
        ImpossibleAnswerError : a site answers what no rows answer, before the first round is
            finished; names it
        """
        source: Any = loop.source
        try:
            run, lies = loop.run(watch, resume, most), source.lies()
        except StateLostError as lost:
            lost.state = loop.server.state
            raise
        except ImpossibleAnswerError as lie:
            if not self.keeps or not loop.server.round or loop.halfway:
                raise
            if not (lies := source.lies()):
                lie.after, lies = loop.server.round, [lie]
            return replace(loop.result(ended_by(lies, loop.server.round)), lie=lie)
        if not lies:
            return run
        if not self.keeps:
            raise lies[0]
        return replace(run, outcome=gone_on(lies, run.outcome), concluded=None, lie=lies[0])


class Sites(Clients):
    """The sites of a run.

    Attributes
    ----------
    run : the name of the run, by which the sites know it
    uploads : the answers that have arrived and are not yet taken, by site
    """

    def __init__(self, session: Session, algorithm: Algorithm, fed: Known, seed: int) -> None:
        names = texts(fed.clients)
        super().__init__(algorithm, names, fed.n_features)
        self.session, self.link, self.seed = session, session.link, seed
        self.run, self.method = uuid.uuid4().hex, session.method(algorithm)
        self.uploads: dict[int, Any] = {}
        self.begun = np.zeros(len(names), bool)
        self.retold = np.zeros(len(names), np.int64)  # since each site's last answer
        self.asked: Ids = np.empty(0, np.int64)

    def send(self, ask: Round, round_: int) -> tuple[Ids, Kind]:
        """Send a message on its way."""
        to, kind = super().send(ask, round_)
        self.asked = to
        for i in to.tolist():
            self.push(i)
        return to, kind

    def push(self, i: int) -> None:
        """Send a site the message that it is to answer, after what it has to know of the run."""
        begin = [] if self.begun[i] else [self._begin(i)]
        self.link.send(i, [*begin, self._step(i)])
        self.begun[i] = True

    def _begin(self, i: int) -> wire.StartRun:
        method = np.frombuffer(self.method, np.uint8)
        return wire.StartRun(self.run, method, self.seed, int(self.flight.turns[i]))

    def _step(self, i: int) -> wire.Step:
        message = settled(self.flight.message(np.array([i])))
        return wire.Step(self.run, int(self.flight.turns[i]), message)

    def _retold(self, i: int, step: wire.Step) -> list[Any]:
        """The bodies for a site that has forgotten the run, which is told about it once more."""
        return [*self.session.opening(i), self._begin(i), step]

    def receive(self, i: int, body: object) -> None:
        """Keep what a site has answered; raises where it is not an answer to its message."""
        turn = int(self.flight.turns[i])
        if isinstance(body, wire.Stepped) and (body.run, body.turn) == (self.run, turn):
            self.hold(i, self._step(i).message, body.upload)
            self.uploads[i], self.retold[i] = body.upload, 0
        elif isinstance(body, wire.Unknown) and self.retold[i] < RETELLINGS:
            self.retold[i] += 1
            self.link.send(i, self._retold(i, self._step(i)))
        else:
            raise self._error(i, body, self.flight.kind_of(i).message, int(self.flight.since[i]))

    def hold(self, i: int, message: Any, upload: Any) -> None:
        """Raise where a site has answered what no rows answer."""
        told, kind, known = self.session.told, type(upload), None
        fits = kind in self.algorithm.on_server or type(message) is Conclude
        if not fits or any(len(part) != 1 for part in arrays_of(upload)):
            words = f"a {kind.__name__} that is not an answer to it"
        else:
            try:
                known, words = self.algorithm.doubts(told.get(i), i, message, upload)
            except UNREADABLE as error:
                words = f"numbers that do not belong together ({str(error).splitlines()[0]:.100})"
        if words:
            raise ImpossibleAnswerError(self.names[i], type(asked_in(message)), words)
        told[i] = known

    def _error(self, i: int, body: object, kind: type, round_: int) -> Exception:
        """The error for an answer that is none."""
        name = self.names[i]
        if isinstance(body, wire.Refused):
            return RefusedError(name, body.rule, body.text)
        if isinstance(body, wire.Lost):
            return StateLostError(name, body.turn, int(self.flight.turns[i]))
        if isinstance(body, wire.Unknown):
            return ForgetfulError(name, int(self.retold[i]))
        if isinstance(body, wire.Failed):
            error = RuntimeError(body.text)
            return ClientError.of((name,), kind, round_ + 1, error, "the site has the details.")
        return TypeError(f"the site {name} answered with a {type(body).__name__}")

    def answers(self, due: Ids, round_: int, advice: str) -> Answers:
        """What the sites that are due have uploaded, combined."""
        ids = np.sort(due)
        parts = [([i], self.uploads[i]) for i in ids.tolist()]
        try:
            combined = combine(type(parts[0][1]), parts)
        except (TypeError, ValueError) as error:
            # those of whose form are fewest have answered otherwise
            forms = {i: str(mapped(self.uploads[i], lambda a: a.shape)) for i in ids.tolist()}
            least = min(forms.values(), key=[*forms.values()].count)
            few = " or ".join(self.names[i] for i, form in forms.items() if form == least)
            message, what = self.flight.kind_of(int(ids[0])).message, "arrays of another form than"
            raise ImpossibleAnswerError(few, message, f"{what} the others have") from error
        size = encoded_size(parts[0][1])
        oldest = int(self.flight.since[ids].min())
        return Answers(tuple(ids.tolist()), combined, size, round_ - oldest, [])

    def finish(self, due: Ids, answers: Answers) -> None:
        """Finish the round: what these sites have uploaded is used."""
        for i in due.tolist():
            del self.uploads[i]
        super().finish(due, answers)

    def undo(self) -> None:
        """Go back to the last finished round; the sites answer the same message again alike."""
        for i in self.asked.tolist():
            self.uploads.pop(i, None)
        super().undo()

    def _conclusions(self) -> list[tuple[list[int], Any]]:
        turns = self.flight.turns.tolist()
        steps = {i: wire.Step(self.run, turn, Conclude()) for i, turn in enumerate(turns)}
        replies = self.link.ask({i: [self._begin(i), step] for i, step in steps.items()})
        forgot = [i for i, body in replies.items() if isinstance(body, wire.Unknown)]
        self.retold[forgot] = 1
        replies |= self.link.ask({i: self._retold(i, steps[i]) for i in forgot})
        for i, body in replies.items():
            if not isinstance(body, wire.Stepped):
                raise self._error(i, body, Conclude, 0)
            self.hold(i, Conclude(), body.upload)
        return [([i], replies[i].upload) for i in sorted(replies)]


@record
class ArrivalState:
    """The source of a run across sites between two rounds."""

    run: str
    time: float
    told: NDArray[np.uint8]  # the bytes of what the sites' answers say of their rows, by site


class _Arrivals(Source):
    """The source of answers that come when they come."""

    def __init__(self, wait: Waiting | None, sites: Sites, stalls: bool = True) -> None:
        n = len(sites.names)
        self.wait, self.sites, self.stalls = wait, sites, stalls
        self.began = time.monotonic()
        self.asked, self.trip = np.zeros(n), np.full(n, np.nan)
        self.arrived: dict[int, float] = {}  # when each answer that is not yet taken came
        # those that answer no more, and those whose answers are used no more
        self.silent: dict[int, wire.SilentError | ImpossibleAnswerError] = {}

    def _now(self) -> float:
        return time.monotonic() - self.began

    def send(self, ids: Ids, gradients: float) -> None:
        """Note that messages go to these sites."""
        self.asked[ids] = self._now()

    def take(self, t: int, wait_for: int | None, in_flight: int, since: Marks) -> Batch | Outcome:
        """The answers of the next round, waited for."""
        count, must = in_flight, np.empty(0, np.intp)
        if wait_for is not None and self.wait is not None:
            wanted, must = self.wait.need(View(t, self.time, since, self.trip))
            count = max(wait_for, min(wanted, in_flight))
        while len(self.arrived) < count or not self.arrived.keys() >= {*must.tolist()}:
            self.interrupts.check()
            for i, body in self.sites.link.take(BREATH):
                if isinstance(body, wire.SilentError):
                    self.silent[i] = body
                    continue
                if isinstance(body, wire.Refused) and body.rule in wire.ENDING and t:
                    return ended(Stop.REFUSED, "rule", self.sites.names[i], body.text)
                try:
                    self.sites.receive(i, body)
                except ImpossibleAnswerError as lie:
                    lie.after, self.silent[i] = t, lie
                if i in self.sites.uploads:
                    self.arrived[i] = self._now()
                    self.trip[i] = self.arrived[i] - self.asked[i]
            few = in_flight - len(self.silent) < count
            if self.silent and (few or self.silent.keys() & {*must.tolist()}):
                # sites that are waited for do not answer
                first = [*self.lies(), *self.silent.values()][0]
                if not self.stalls or isinstance(first, ImpossibleAnswerError):
                    raise first
                return ended(Stop.STALLED, "silence", first)
        order = sorted(self.arrived, key=lambda i: self.arrived[i])
        times = np.array([self.arrived[i] for i in order])
        self.latest = float(times[-1])
        return Batch(np.array(order, np.int64), np.maximum(times, self.time))

    def lies(self) -> list[ImpossibleAnswerError]:
        """Of the sites without which the run goes on, as their answers were impossible."""
        return [lie for lie in self.silent.values() if isinstance(lie, ImpossibleAnswerError)]

    def settle(self) -> None:
        """Note that the round is finished."""
        self.time = max(self.latest, self.time)
        self.arrived.clear()

    def undo(self) -> None:
        """Go back to the last finished round."""
        asked = {*self.sites.asked.tolist()}
        self.arrived = {i: when for i, when in self.arrived.items() if i not in asked}

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """The sites that have not answered, and the time until now."""
        return tuple((self.sites.names[i], self.time) for i in sorted(self.silent))

    def stored(self) -> ArrivalState:
        """The name of the run, the time, and what the sites' answers say of their rows."""
        told = encode(tuple(self.sites.session.told.items()))
        return ArrivalState(self.sites.run, self.time, np.frombuffer(told, np.uint8))

    def restore(self, state: ArrivalState, in_flight: Ids, turns: Ids) -> None:
        """Go on with the run of a checkpoint; the messages on their way are sent once more."""
        if not isinstance(state, ArrivalState) or not math.isfinite(state.time):
            raise ValueError(f"its source is {state!r:.40}, and must be that of a run across sites")
        self.time = self.latest = state.time
        self.began = time.monotonic() - state.time
        self.sites.run = state.run
        # the answers before the checkpoint, that what comes now may contradict
        self.sites.session.told.update(dict(decode(state.told.tobytes())))
        for i in in_flight.tolist():
            self.sites.push(i)
