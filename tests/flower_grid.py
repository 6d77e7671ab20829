"""A grid of Flower's in memory, whose nodes come, go, fail and answer late, in its own time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flower_stand_in import open_party

from bonafed.engines.flower import CLIENT_ID, HELLO, Envelope, FlowerTransport, Limits, sealed
from bonafed.sites.flower_app import OpenParty, greet, take_step

UNAVAILABLE = 5  # Flower's code for a node that is not connected


@dataclass(frozen=True)
class Metadata:
    reply_to_message_id: str


@dataclass(frozen=True)
class Error:
    code: int
    reason: str | None


@dataclass(frozen=True)
class Reply:
    metadata: Metadata
    content: Any = None
    error: Any = None

    def has_error(self) -> bool:
        return self.error is not None


@dataclass(frozen=True)
class Sent:
    content: Envelope
    node: int
    kind: str
    group: str
    ttl: float


Answer = Envelope | Error | None  # None: no answer ever comes
Node = Callable[[Sent], Answer]


@dataclass
class Grid:
    """Nodes by number; an answer is there ``delay`` seconds after its message, in random order."""

    nodes: dict[int, Node] = field(default_factory=dict)
    delay: Callable[[Sent], float] = lambda sent: 1.0
    seed: int = 0
    twice: bool = False  # every answer comes twice
    now: float = 0.0
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.waiting: dict[str, tuple[float, Sent]] = {}
        self.listed: set[int] = set()  # nodes that died and are still thought to be connected
        self.at: list[tuple[float, Callable[[], None]]] = []  # what happens at which time

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for event in [event for event in self.at if event[0] <= self.now]:
            self.at.remove(event)
            event[1]()

    def get_node_ids(self) -> Iterable[int]:
        return [*self.nodes, *self.listed]

    def push_messages(self, messages: list[Sent], /) -> list[str | None]:
        (message,) = messages
        self.sent.append(message)
        if message.node not in self.nodes and message.node not in self.listed:
            return [None]
        name = f"message-{len(self.sent)}"
        self.waiting[name] = self.now + self.delay(message), message
        return [name]

    def pull_messages(self, message_ids: list[str], /) -> list[Reply]:
        replies = []
        for name in message_ids:
            due, message = self.waiting.get(name, (float("inf"), None))
            if message is None or due > self.now:
                continue
            answer = self._answer(message)
            if answer is None:
                continue
            del self.waiting[name]
            known = Metadata(name)
            error = answer if isinstance(answer, Error) else None
            replies += [Reply(known, None if error else answer, error)] * (2 if self.twice else 1)
        self.random.shuffle(replies)
        return replies

    def die(self, node: int, noticed: float = 60.0) -> None:
        """A node ends; that it is no longer connected is noticed later."""
        self.nodes.pop(node, None)
        self.listed.add(node)
        self.at.append((self.now + noticed, lambda: self.listed.discard(node)))

    def _answer(self, message: Sent) -> Answer:
        if message.node in self.nodes:
            return self.nodes[message.node](message)
        gone = Error(UNAVAILABLE, "Node Unavailable")
        return None if message.node in self.listed else gone


def named(name: str, step: Callable[[bytes], Answer] | None = None) -> Node:
    """A node with a name, whose steps are answered with the name and the message."""

    def answer(sent: Sent) -> Answer:
        if sent.kind == HELLO:
            return sealed("name", name)
        data = sent.content["bonafed"]["data"]
        assert isinstance(data, bytes)
        return step(data) if step else sealed("data", name.encode() + b" " + data)

    return answer


def site(name: str, folder: Path, opener: OpenParty = open_party) -> Node:
    """A node that runs the real handlers of a site over its folder."""
    config = {CLIENT_ID: name, "site": str(folder)}

    def answer(sent: Sent) -> Answer:
        if sent.kind == HELLO:
            return greet(sent.content, config)
        return take_step(sent.content, config, "a test", "", opener)

    return answer


def transport(grid: Grid, *sites: str, **limits: float) -> FlowerTransport:
    """The transport over such a grid, in the grid's time."""
    return FlowerTransport(
        grid,
        sites,
        Limits(**limits),  # type: ignore[arg-type]
        message=Sent,
        clock=grid.clock,
        sleep=grid.sleep,
    )
