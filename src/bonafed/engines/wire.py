"""The messages between the server and a site, beside those of the algorithms; what carries them;
the server's end of them.

Each is the body of an `Envelope`, by which the two ends know what a reply belongs to. A run of an
algorithm at a site begins with ``StartRun``. Then every ``Step`` has the number of its turn, so
that one that is sent twice is carried out once: a site answers the last turn again with the same
bytes, carries out the next one, and answers ``Lost`` where its own count is another.
"""

import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import Form
from bonafed.rounds import CodecError, decode, encode, record
from bonafed.text import printable, short

UNREAD = 0  # the number of an answer to a question that the site did not read
# rules by which a site ends a run that it took part in: what is proved so far stands
ENDING = ("minimum_people", "maximum_model_length", "maximum_models")
DAMAGED = "message"  # the rule that refuses bytes which are no question, and may be sent again


@record
class Envelope:
    """A body with what it belongs to, from the server to a site or back.

    An answer that its site signs also has ``asked``, the digest of what it is the answer to, and
    the signature over the bytes of the envelope without a signature (`bonafed.sites.signatures`).
    """

    experiment: str
    site: str
    number: int  # of the question; an answer has that of its question
    body: Any
    asked: str = ""
    signature: NDArray[np.uint8] | None = None


@record
class StartRun:
    """Begin a run of an algorithm, or say how far it is where the site knows it already.

    ``turn`` is where the server stands, which a site without memory can go on from.
    """

    run: str
    method: Annotated[NDArray[np.uint8], Form("bytes")]  # the statement of the algorithm
    seed: Annotated[int, Form(least=-(2**63))]
    turn: int


@record
class RunStarted:
    """How many messages of the run the site has answered."""

    run: str
    turn: int


@record
class Step:
    """A message of an algorithm, the site's own rows of it."""

    run: str
    turn: int  # from 0
    message: Any


@record
class Stepped:
    """The upload of a site, and its turn."""

    run: str
    turn: int
    upload: Any


@record
class Unknown:
    """The site does not know the experiment or the run, because its disk is another one."""

    what: str


@record
class Lost:
    """The site has answered ``turn`` messages of the run, and not as many as the server says."""

    run: str
    turn: int


@record
class Refused:
    """The site does not do what it is asked, by the named rule of its policy."""

    rule: str
    text: str


@record
class Failed:
    """The site's step raised an error."""

    text: str


# What carries bytes between the server and the sites.
#
# A transport is an existing engine's, such as NVIDIA FLARE's or Flower's. It knows no algorithm and
# keeps nothing. That a message is answered exactly once is seen to by the two ends, `Link` at the
# server and the site that it talks to.


class Transport(Protocol):
    """Carries bytes between the server and the sites."""

    def ids(self) -> tuple[str, ...]:
        """The stable names of the sites, in a fixed order."""
        ...

    def push(self, client: str, seq: int, message: bytes) -> None:
        """Send a message on its way, and return at once."""
        ...

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        """Wait until an answer or a failure is there, and return all that are; an empty list once
        ``timeout`` seconds are over.

        Every push yields one entry, in any order. What comes after a failure was reported is
        dropped.
        """
        ...

    def close(self) -> None:
        """Release what the transport holds."""
        ...


class LocalTransport:
    """Sites in this process, each a function from bytes to bytes, for tests and trials.

    Every site answers in a separate thread, one message after the other.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.sites = dict(sites)
        self.workers = {name: ThreadPoolExecutor(1) for name in self.sites}
        self.arrived: queue.SimpleQueue[tuple[str, int, bytes | Exception]] = queue.SimpleQueue()

    def ids(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(self.sites)

    def push(self, client: str, seq: int, message: bytes) -> None:
        """Hand a message to a site's thread."""
        self.workers[client].submit(self._carry, client, seq, message)

    def _carry(self, client: str, seq: int, message: bytes) -> None:
        try:
            answer: bytes | Exception = self.sites[client](message)
        except Exception as error:
            answer = error
        self.arrived.put((client, seq, answer))

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        """The answers that are there, after the first has come."""
        entries = []
        try:
            entries.append(self.arrived.get(timeout=timeout))
            while True:
                entries.append(self.arrived.get_nowait())
        except queue.Empty:
            return entries

    def close(self) -> None:
        """Let the threads end."""
        for worker in self.workers.values():
            worker.shutdown(wait=False, cancel_futures=True)


# The server's end of the messages to the sites: one at a time to each, sent again where nothing
# came back.
#
# A site may be sent several bodies in a row (`Link.send`): the next one goes out when the one
# before is answered, and only the last answer is handed on. So a site that has forgotten a run is
# told about it again before it is asked.

SHORTEST, LONGEST = 0.2, 10.0  # seconds until a message is sent again
NAME, WORDS = 80, 1_000  # characters of a rule and of a reason that a site states
STOPPING = Refused, Failed, Unknown, Lost  # answers after which a site is sent nothing more


class SilentError(TimeoutError):
    """A site has not answered for as long as the server is willing to wait."""

    def __init__(self, site: str, seconds: float, reason: str) -> None:
        self.site, self.seconds, self.reason = site, seconds, reason
        super().__init__(
            f"the site {site} has not answered for {seconds:.0f} seconds"
            f"{f' ({reason})' if reason else ''}. Start it again, and go on with resume=True; the"
            " server waits for as long as `patience` says."
        )


@dataclass
class _Waiting:
    """What a site is to be asked, the first of it being on its way."""

    bodies: list[Any]
    question: Envelope
    message: bytes  # the question as bytes
    since: float  # when the first try was made
    pause: float = SHORTEST
    again: float = math.inf  # when it is sent once more
    reason: str = ""


@dataclass
class Link:
    """The messages to the sites of one experiment.

    Parameters
    ----------
    transport : carries the bytes
    experiment : the name by which all sides know it
    sites : the names of the sites, whose order numbers them
    patience : seconds without an answer after which a site counts as silent
    keep : is handed every question that a site does not refuse, and the bytes of the answer
    """

    transport: Transport
    experiment: str
    sites: tuple[str, ...]
    patience: float = 600.0
    keep: Callable[[Envelope, bytes], None] | None = None
    waiting: dict[int, _Waiting] = field(default_factory=dict, init=False)
    sent: int = field(default=0, init=False)

    def send(self, site: int, bodies: Sequence[Any]) -> None:
        """Ask a site; what it was asked before, and has not answered, is forgotten."""
        # a number is used once, so that a late answer to another question is known as one
        self.sent += 1
        question = Envelope(self.experiment, self.sites[site], self.sent, bodies[0])
        known = _Waiting(list(bodies), question, encode(question), time.monotonic())
        self.waiting[site] = known
        self.transport.push(self.sites[site], self.sent, known.message)

    def take(self, timeout: float) -> list[tuple[int, Any]]:
        """The answers that have come, and a `SilentError` for every site that has not answered for
        too long; empty where there are none within ``timeout`` seconds.
        """
        now = time.monotonic()
        due = [min(w.again, w.since + self.patience) for w in self.waiting.values()]
        end = min([now + timeout, *due])
        taken, arrived = [], self.transport.poll(max(end - now, 0.0))
        if not arrived:  # some transports return at once where nothing is on its way
            time.sleep(max(end - time.monotonic(), 0.0))
        for name, number, result in arrived:
            site = self.sites.index(name) if name in self.sites else -1
            known = self.waiting.get(site)
            if known is not None and known.question.number == number:
                taken += [(site, body) for body in self._answered(site, known, result)]
        now = time.monotonic()
        for site, known in [*self.waiting.items()]:
            if known.again <= now:  # it failed a while ago
                known.again = math.inf
                self.transport.push(self.sites[site], known.question.number, known.message)
            if now >= known.since + self.patience:  # it is asked no more
                del self.waiting[site]
                taken.append((site, SilentError(self.sites[site], now - known.since, known.reason)))
        return taken

    def _answered(self, site: int, known: _Waiting, result: bytes | Exception) -> list[Any]:
        """The answer to hand on, where there is one."""
        body = self._body(known.question, result)
        if isinstance(body, Exception):
            first = (str(body).splitlines() or [type(body).__name__])[0]
            known.reason, known.again = _line(first, WORDS), time.monotonic() + known.pause
            known.pause = min(2 * known.pause, LONGEST)
            return []
        stops = isinstance(body, STOPPING)
        if self.keep is not None and isinstance(result, bytes) and not stops:
            self.keep(known.question, result)
        if len(known.bodies) > 1 and not stops:
            self.send(site, known.bodies[1:])
            return []
        del self.waiting[site]
        return [body]

    def _body(self, question: Envelope, result: bytes | Exception) -> Any:
        """The body of an answer, or the error for which the question is sent again; a site's words
        on one line of limited length: they may hold anything, and end in terminals and reports.
        """
        if isinstance(result, Exception):
            return result
        try:
            reply = decode(result)
        except CodecError as error:
            return error
        if not isinstance(reply, Envelope):
            return CodecError(f"a {type(reply).__name__} is not an answer")
        body, place = reply.body, (reply.experiment, reply.site, reply.number)
        if isinstance(body, Refused):
            body = Refused(_line(body.rule, NAME), _line(body.text, WORDS))
        elif isinstance(body, Failed):
            body = Failed(_line(body.text, WORDS))
        if place == (question.experiment, question.site, question.number):
            return body
        if place != ("", question.site, UNREAD):
            return CodecError("the answer belongs to another question")
        if isinstance(body, Refused) and body.rule != DAMAGED:
            return body  # without reading what it was asked
        return CodecError(getattr(body, "text", "the site could not read the question"))

    def ask(self, bodies: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """The answers of several sites, each to the last of its bodies, once all are there.

        Raises
        ------
        SilentError : a site does not answer
        """
        for site, each in bodies.items():
            self.send(site, each)
        answers: dict[int, Any] = {}
        while len(answers) < len(bodies):
            answers.update(self.take(1.0))
            for answer in answers.values():
                if isinstance(answer, SilentError):
                    raise answer
        return answers


def _line(text: object, most: int) -> str:
    return short(printable(str(text)), most)
