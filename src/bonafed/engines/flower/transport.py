"""Messages of a run over Flower: the server's side pushes bytes to sites and collects answers.

Flower knows a site by a node id, which changes when the site's SuperNode is started again. Here a
site is known by the name that its owner gave the SuperNode (``--node-config 'client-id="north"'``):
a short message, ``hello``, asks every node for it. A message whose node was lost waits until a node
of that name is there again, and is pushed there. Whether a site has seen it before is not a concern
here: a site answers a repeated message with the answer that it kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bonafed.client_names import repeated
from bonafed.engines.flower.envelope import (
    Envelope,
    MalformedError,
    RefusedError,
    answer_in,
    name_in,
    sealed,
)
from bonafed.text import listed, printable, short, shown

log = logging.getLogger(__name__)

CLIENT_ID = "client-id"  # the key of a SuperNode's configuration that holds the site's name
HELLO, STEP = "query.hello", "query.step"  # Flower's types of the two messages
UNNOTICED = 120.0  # seconds in which Flower notices that a node is dead
LOST = {  # Flower's codes after which the same message is pushed again
    3: "the message is no longer on the SuperLink",
    4: "the answer is no longer on the SuperLink",
    5: "its SuperNode is not connected",
}
FAILED = {
    0: "Flower reports an error of no kind",
    1: "the app could not be loaded; is the same bonafed installed there?",
    2: "the app raised an error",
    6: "a Flower mod refused the message",
    7: "the SuperNode refused the app bundle",
    8: "the app's process ended without an answer",
}


class FlowerError(RuntimeError):
    """Something in a Flower federation has to be put right by a person."""


class SiteError(FlowerError):
    """One site did not answer one message.

    Attributes
    ----------
    site : the name of the site
    code : Flower's number for the kind of error, None where the error is not Flower's
    reason : what Flower or the site wrote about it
    """

    def __init__(self, site: str, code: int | None, reason: str) -> None:
        text = reason if code is None else faulty(code, reason)
        super().__init__(f"site {printable(site)}: {short(printable(text), 2000)}")
        self.site, self.code, self.reason = site, code, reason


def faulty(code: int, reason: str) -> str:
    """What an error of Flower's means, and what Flower wrote about it."""
    text = {**LOST, **FAILED}.get(code, f"Flower's error {code}")
    return f"{text} ({reason})" if reason else text


class Header(Protocol):
    """What Flower writes on a message, as far as it is read here."""

    @property
    def reply_to_message_id(self) -> str: ...


class Fault(Protocol):
    """What Flower sends in place of an answer."""

    @property
    def code(self) -> int: ...
    @property
    def reason(self) -> str | None: ...


class Reply(Protocol):
    """A message of Flower's that answers another one."""

    @property
    def metadata(self) -> Header: ...
    @property
    def content(self) -> Mapping[str, Any]: ...
    @property
    def error(self) -> Fault: ...
    def has_error(self) -> bool: ...


class Grid(Protocol):
    """The part of Flower's ``Grid`` that carries messages."""

    def get_node_ids(self) -> Iterable[int]: ...
    def push_messages(self, messages: list[Any], /) -> Iterable[str | None]: ...
    def pull_messages(self, message_ids: list[str], /) -> Iterable[Reply]: ...


MakeMessage = Callable[[Envelope, int, str, str, float], object]


def flower_message(content: Envelope, node: int, kind: str, group: str, ttl: float) -> object:
    """Make a message of Flower's to a node; ``group`` is shown in the SuperNode's log."""
    from flwr.app import (  # pyright: ignore[reportMissingImports]
        ConfigRecord,
        Message,
        RecordDict,
    )

    records = {name: ConfigRecord(dict(values)) for name, values in content.items()}
    return Message(RecordDict(records), node, kind, ttl=ttl, group_id=group)


@dataclass(frozen=True)
class Limits:
    """How long the server waits, in seconds, and how often it pushes one message.

    Parameters
    ----------
    gather : for all sites to be connected at the start
    lost : for a site to come back; Flower itself notices a loss after a minute
    answer : for one answer of a site that is connected
    look : between two looks at which nodes are connected
    pause : between two questions for answers
    pushes : of one message, each after the first because its node or the message was lost
    """

    gather: float = 600.0
    lost: float = 600.0
    answer: float = 12 * 3600.0
    look: float = 1.0
    pause: float = 0.2
    pushes: int = 6


class Nodes:
    """Which node is which site, by the nodes' answers to ``hello``.

    Where a second node gives a name, both are asked again: a node that was killed does not answer,
    and two that do are two sites of one name.
    """

    def __init__(self, sites: tuple[str, ...]) -> None:
        self.sites = sites
        self.names: dict[int, str] = {}  # node -> the site that it said it is
        self.foreign: dict[int, str] = {}  # node -> why it is no site of this run
        self.asked: dict[str, int] = {}  # message id -> node that has not answered it
        self.twice: dict[str, set[int]] = {}  # site -> the nodes that gave its name

    def of(self, site: str) -> int | None:
        """The node of a site; None where there is none yet, or two."""
        if site in self.twice:
            return None
        return next((node for node, name in self.names.items() if name == site), None)

    def doubled(self, site: str) -> str:
        """What is wrong where two nodes are one site; nothing otherwise."""
        nodes = self.twice.get(site, set())
        if not nodes or any(node not in self.names for node in nodes):
            return ""
        return (
            f"the nodes {listed(sorted(nodes), len(nodes))} all call themselves"
            f" {shown(site)}; every site needs a separate name: end all but one, or start them"
            f" with other names (--node-config '{CLIENT_ID}=\"NAME\"')"
        )

    def unknown(self, connected: Iterable[int]) -> list[int]:
        """Forget the nodes that are not connected, and list those that are still to be asked."""
        connected = [*connected]
        for node in {*self.names, *self.foreign, *self.asked.values()}.difference(connected):
            self.forget(node)
        known = {*self.names, *self.foreign, *self.asked.values()}
        return [node for node in connected if node not in known]

    def forget(self, node: int) -> None:
        """Take back all that is known about a node; where it is connected, it is asked again."""
        self.names.pop(node, None)
        self.foreign.pop(node, None)
        self.asked = {message: other for message, other in self.asked.items() if other != node}
        for nodes in self.twice.values():
            nodes.discard(node)
        self.twice = {site: nodes for site, nodes in self.twice.items() if len(nodes) > 1}

    def named(self, node: int, name: str) -> None:
        """Note the name that a node gave."""
        if name not in self.sites:
            self.foreign[node] = (
                f"node {node} calls itself {shown(name)}; the sites of this run are"
                f" {listed(self.sites, len(self.sites), 8)}. End that SuperNode, or start it with"
                f" --node-config '{CLIENT_ID}=\"NAME\"'"
            )
        elif name in self.twice:
            self.names[node] = name
            self.twice[name].add(node)
        elif (other := self.of(name)) is None or other == node:
            self.names[node] = name
        else:
            del self.names[other]
            self.twice[name] = {other, node}


@dataclass
class Pending:
    """A message without an answer; ``message_id`` is None while it waits for a node."""

    site: str
    seq: int
    data: bytes
    since: float  # when it was pushed, or when it began to wait
    node: int | None = None
    message_id: str | None = None
    pushes: int = 0
    lost: tuple[int | None, str] = field(default=(None, ""))  # why it waits


class FlowerTransport:
    """Carries bytes between the server and the sites over a grid of Flower's.

    Parameters
    ----------
    grid : what Flower hands to a ServerApp
    sites : the names of all sites, in the order of `ids`
    limits : how long the server waits
    message : makes a message of Flower's; for tests without Flower
    clock, sleep : the time in seconds and how to wait; for tests
    """

    def __init__(
        self,
        grid: Grid,
        sites: Sequence[str],
        limits: Limits | None = None,
        *,
        message: MakeMessage = flower_message,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        twice = repeated(sites)
        if twice or not sites:
            given = f"{listed(twice, len(twice))} given twice" if twice else "none given"
            raise FlowerError(f"the sites of a run: {given}; needed: at least one, no name twice")
        self._grid, self._sites, self._limits = grid, tuple(sites), limits or Limits()
        self._message, self._clock, self._sleep = message, clock, sleep
        self._nodes = Nodes(self._sites)
        self._pending: list[Pending] = []
        self._ready: list[tuple[str, int, bytes | Exception]] = []
        self._looked = -float("inf")
        self._warned: set[int] = set()

    def ids(self) -> tuple[str, ...]:
        return self._sites

    def gather(self) -> None:
        """Wait until every site is connected; raises ``FlowerError`` for a node that is none."""
        end = self._clock() + self._limits.gather
        alone = self._clock()  # when no two nodes were last one site
        while True:
            missing = [site for site in self._sites if self._nodes.of(site) is None]
            doubled = [text for site in self._sites if (text := self._nodes.doubled(site))]
            alone = alone if doubled else self._clock()
            lasting = doubled if self._clock() - alone >= UNNOTICED else []
            if wrong := [*lasting, *self._nodes.foreign.values()]:
                raise FlowerError("; ".join(wrong))
            if not missing:
                return
            if self._clock() >= end:
                raise FlowerError(
                    f"of {len(self._sites)} sites {listed(missing, len(missing), 8)} did not"
                    f" connect within {self._limits.gather:.0f} s; each has to start its"
                    f" SuperNode with --node-config '{CLIENT_ID}=\"NAME\"'"
                )
            self._look()
            self._collect()
            self._sleep(self._limits.pause)

    def push(self, client: str, seq: int, message: bytes) -> None:
        if client not in self._sites:
            sites = listed(self._sites, len(self._sites), 8)
            raise ValueError(f"there is no site {client!r}; the sites are {sites}")
        pending = Pending(client, seq, message, self._clock())
        self._pending.append(pending)
        self._send(pending)

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        end = None if timeout is None else self._clock() + timeout
        while True:
            self._turn()
            if self._ready or not self._pending:
                ready, self._ready = self._ready, []
                return ready
            left = self._limits.pause if end is None else end - self._clock()
            if left <= 0:
                return []
            self._sleep(min(left, self._limits.pause))

    def close(self) -> None:
        """Wait for nothing any more; answers that are on their way are dropped."""
        self._pending.clear()
        self._ready.clear()

    # ------------------------------------------------------------------------------- one turn

    def _turn(self) -> None:
        """Look for lost sites, push what waits for them, collect answers, give up what is late."""
        if any(pending.message_id is None for pending in self._pending):
            self._look()
        self._collect()
        for pending in [each for each in self._pending if each.message_id is None]:
            self._send(pending)
        now = self._clock()
        for pending in [*self._pending]:
            self._judge(pending, now)

    def _look(self) -> None:
        """Ask every node for its name that is connected and has not been asked."""
        if self._clock() - self._looked < self._limits.look:
            return
        self._looked = self._clock()
        for node in self._nodes.unknown(self._grid.get_node_ids()):
            ids = self._push(sealed("hello", 1), node, HELLO, "hello", self._limits.lost)
            if ids:
                self._nodes.asked[ids] = node

    def _collect(self) -> None:
        """Pull the answers that are there, of both kinds, and give each to who waits for it."""
        waiting = {each.message_id: each for each in self._pending if each.message_id is not None}
        if not waiting and not self._nodes.asked:
            return
        for reply in self._grid.pull_messages([*waiting, *self._nodes.asked]):
            message_id = reply.metadata.reply_to_message_id
            if message_id in self._nodes.asked:
                self._greeted(self._nodes.asked.pop(message_id), reply)
            elif (pending := waiting.pop(message_id, None)) is not None:
                self._answered(pending, reply)

    def _greeted(self, node: int, reply: Reply) -> None:
        """Note a node's answer to ``hello``."""
        if reply.has_error() and reply.error.code in LOST:
            self._nodes.forget(node)
            return
        try:
            if reply.has_error():
                raise RefusedError(faulty(reply.error.code, reply.error.reason or ""))
            self._nodes.named(node, name_in(reply.content))
        except (MalformedError, RefusedError) as error:
            text = f"node {node} does not say which site it is: {error}"
            self._nodes.foreign[node] = short(printable(text), 2000)
        if node in self._nodes.foreign and node not in self._warned:
            self._warned.add(node)
            log.warning("%s", self._nodes.foreign[node])

    def _answered(self, pending: Pending, reply: Reply) -> None:
        """Note a site's answer to a step, or that its node or the message was lost."""
        if reply.has_error():
            code, reason = reply.error.code, reply.error.reason or ""
            if code in LOST and pending.pushes < self._limits.pushes:
                self._lost(pending, code, reason)
            else:
                self._done(pending, SiteError(pending.site, code, reason))
            return
        try:
            self._done(pending, answer_in(reply.content))
        except (MalformedError, RefusedError) as error:
            self._done(pending, SiteError(pending.site, None, str(error)))

    def _send(self, pending: Pending) -> None:
        """Push a message to its site's node, where there is one."""
        node = self._nodes.of(pending.site)
        if node is None:
            return
        kept = self._limits.answer
        message_id = self._push(sealed("data", pending.data), node, STEP, str(pending.seq), kept)
        pending.pushes += 1
        if message_id:
            pending.node, pending.message_id, pending.since = node, message_id, self._clock()
        elif message_id is None and pending.pushes < self._limits.pushes:
            pending.node = node
            self._lost(pending, 5, "the SuperLink took no message for it")
        else:
            size = f"a message of {len(pending.data):,} bytes"
            self._done(pending, SiteError(pending.site, None, f"the SuperLink refused {size}"))

    def _push(self, content: Envelope, node: int, kind: str, group: str, ttl: float) -> str | None:
        """Push one message; its id, None where the node is gone, "" where it is too large."""
        message = self._message(content, node, kind, group, ttl)
        ids = [*self._grid.push_messages([message])]
        return ids[0] if ids else ""

    def _lost(self, pending: Pending, code: int, reason: str) -> None:
        """Let a message wait for a node of its site's name."""
        log.warning("site %s: %s; its message waits", pending.site, LOST[code])
        if pending.node is not None:
            self._nodes.forget(pending.node)
        pending.node = pending.message_id = None
        pending.since, pending.lost = self._clock(), (code, reason)

    def _judge(self, pending: Pending, now: float) -> None:
        """Give up a message that has waited too long, or whose site is two nodes."""
        waits = pending.message_id is None
        limit = self._limits.lost if waits else self._limits.answer
        seen = self._looked > pending.since  # one of two may have ended since the last look
        if waits and seen and (text := self._nodes.doubled(pending.site)):
            self._done(pending, SiteError(pending.site, None, text))
        elif now - pending.since > limit:
            code, reason = pending.lost if waits else (None, "")
            what = "did not connect" if waits else "did not answer"
            text = f"{what} within {limit:.0f} s" + (f" ({reason})" if reason else "")
            self._done(pending, SiteError(pending.site, code, text))

    def _done(self, pending: Pending, result: bytes | Exception) -> None:
        """Report a message, once."""
        self._pending = [other for other in self._pending if other is not pending]
        self._ready.append((pending.site, pending.seq, result))
