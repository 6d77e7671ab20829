"""The server's side of a run over NVIDIA FLARE: messages to the sites and their answers, as bytes.

FLARE's Collab API calls a method of the object that lives at a site, and the call waits for the
answer. So that several sites work at once and the server takes answers in the order in which they
come, every site has a separate thread here, which makes one call after the other. The threads
live as long as the run: their number does not grow with the rounds.

Nothing of ``nvflare`` is imported: a proxy is anything that is called as FLARE's are.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from bonafed.text import printable, short

Entry = tuple[str, int, bytes | Exception]  # site, number of the message, what came of it
LOOK = 1.0  # seconds between two looks at whether the job was aborted
LONGEST = 1000  # characters of what a site reports about a failure
WAIT = 2.0  # seconds for which closing waits for threads that are between two calls


class Call(Protocol):
    """What FLARE's proxy returns when it is given a time limit; it has the site's methods."""

    def answer(self, data: bytes) -> bytes: ...

    def facts(self) -> str: ...


class Proxy(Protocol):
    """A site as the server sees it, such as FLARE's ``Proxy``."""

    @property
    def name(self) -> str: ...

    def __call__(self, *, timeout: float) -> Call: ...


class SiteError(Exception):
    """A call to a site failed: it did not answer in time, or raised an error.

    Attributes
    ----------
    site
        The name of the site.
    cause
        The type of the error at the site; ``TimeoutError`` where no answer came in time.
    text
        What FLARE reports, shortened.
    """

    def __init__(self, site: str, cause: str, text: str) -> None:
        super().__init__(site, cause, text)
        self.site, self.cause, self.text = site, cause, text

    def __str__(self) -> str:
        return f"site {self.site} did not answer ({self.cause}): {self.text}"


class JobAbortedError(Exception):
    """FLARE ends the job, so that no site can be asked any more."""


class Answers:
    """What the sites answer, in the order in which it comes, for a thread that waits for it.

    Parameters
    ----------
    names
        The names of the sites.
    aborted
        Whether FLARE ends the job. ``push`` and ``poll`` then raise `JobAbortedError`.
    """

    def __init__(self, names: Iterable[str], aborted: Callable[[], bool]) -> None:
        self._names = tuple(sorted(names))
        if len(set(self._names)) < len(self._names):
            raise ValueError("two sites have the same name: give every site a separate name")
        self._aborted = aborted
        self._waiting = 0  # messages that were neither answered nor reported as failed
        self._answers: queue.SimpleQueue[Entry] = queue.SimpleQueue()

    def ids(self) -> tuple[str, ...]:
        """The names of the sites in alphabetical order."""
        return self._names

    def push(self, client: str, seq: int, message: bytes) -> None:
        """Send a message; returns at once."""
        self._check()
        self._send(client, seq, message)
        self._waiting += 1

    def poll(self, timeout: float | None = None) -> list[Entry]:
        """Wait for an answer or a failure, and return all that are there.

        An empty list says that the time is over, or that nothing is awaited.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self._waiting:
            self._check()
            left = LOOK if end is None else min(LOOK, end - time.monotonic())
            try:
                there = [self._answers.get(timeout=max(left, 0.0))]
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    break
                continue
            while not self._answers.empty():
                there.append(self._answers.get())
            self._waiting -= len(there)
            if any(isinstance(answer, Exception) for _, _, answer in there):
                self._check()  # a job that is aborted fails every call
            return there
        return []

    def close(self) -> None:
        """Let go of what sends the messages."""

    def _send(self, client: str, seq: int, message: bytes) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        if self._aborted():
            raise JobAbortedError("FLARE ends the job: submit it again to go on")


class FlareTransport(Answers):
    """Carries bytes between the server and the sites over FLARE's Collab API.

    Parameters
    ----------
    proxies
        One for each site, such as ``collab.clients``. They are read once, in this thread.
    timeout
        Seconds that a site has for an answer.
    aborted
        Whether FLARE ends the job, such as ``collab.context.is_aborted``. ``push`` and ``poll``
        then raise `JobAbortedError`.

    Notes
    -----
    A second message to a site is sent when the first was answered or has failed. FLARE lets a call
    that ran out of time go on at the site, where a lock keeps the next one waiting, and drops the
    late answer.
    """

    def __init__(
        self,
        proxies: Iterable[Proxy],
        *,
        timeout: float = 60.0,
        aborted: Callable[[], bool] = lambda: False,
    ) -> None:
        sites = list(proxies)
        super().__init__((site.name for site in sites), aborted)
        self._timeout = timeout
        self._asked: dict[str, queue.SimpleQueue[tuple[int, bytes] | None]] = {
            site.name: queue.SimpleQueue() for site in sites
        }
        self._threads = [
            threading.Thread(target=self._serve, args=(site,), name=f"to {site.name}", daemon=True)
            for site in sites
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads; one whose call is under way ends when the call does."""
        for asked in self._asked.values():
            asked.put(None)
        end = time.monotonic() + WAIT
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def _send(self, client: str, seq: int, message: bytes) -> None:
        self._asked[client].put((seq, message))

    def _serve(self, site: Proxy) -> None:
        """Make one call after the other to a site, in a separate thread."""
        asked = self._asked[site.name]
        while (item := asked.get()) is not None:
            seq, message = item
            self._answers.put((site.name, seq, self._call(site, message)))

    def _call(self, site: Proxy, message: bytes) -> bytes | Exception:
        try:
            answer = site(timeout=self._timeout).answer(message)
        except Exception as error:
            return failure(site.name, error)
        if not isinstance(answer, bytes):
            return SiteError(site.name, "TypeError", f"the answer is not bytes: {type(answer)}")
        return answer


def failure(site: str, error: Exception) -> SiteError:
    """The failure of a call: FLARE's errors name the type of the error at the site."""
    cause = str(getattr(error, "cause_type", type(error).__name__))
    return SiteError(site, short(printable(cause), 80), short(printable(str(error)), LONGEST))
