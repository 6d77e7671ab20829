"""Sites in this process: each with its own rows and folder, behind a transport."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bonafed.data.federation import Federation
from bonafed.engines.wire import LocalTransport, Transport
from bonafed.problem.problem import Problem
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party
from bonafed.sites.policy import LevelCount
from bonafed.sites.rows import OwnRows, Source
from bonafed.sites.session import Agreement, agree


@dataclass
class Clock:
    """A clock that moves only while somebody sleeps, for `bonafed.engines.wire.time`."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Patient:
    """A transport by which a server waits for what is on its way, however slow the machine is: by
    a `Clock` answers and failures take no time, and only pauses between two tries do.
    """

    inner: Transport
    on_their_way: int = 0

    def ids(self) -> tuple[str, ...]:
        return self.inner.ids()

    def push(self, client: str, seq: int, message: bytes) -> None:
        self.on_their_way += 1
        self.inner.push(client, seq, message)

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        arrived = self.inner.poll() if self.on_their_way else []
        self.on_their_way -= len(arrived)
        return arrived

    def close(self) -> None:
        self.inner.close()


def of_federation(fed: Federation) -> Source:
    """The rows of a federation of one client, whatever the server says about columns."""
    columns = fed.columns or {}
    levels = {name: Counter(parts[0].tolist()) for name, parts in columns.items()}
    if fed.classes is not None:
        levels["the target"] = Counter(fed.y[0].tolist())
    counts = [LevelCount(name, min(each.values(), default=0)) for name, each in levels.items()]
    rows = OwnRows(fed, None, (*fed.feature_names, *columns), tuple(counts))
    return lambda text, private: rows


def parties(fed: Federation, folder: Path) -> dict[str, Party]:
    """A party for every client of a federation."""
    return {
        name: Party(
            name, of_federation(fed.restrict(client).without_server()), folder / name, Guard(None)
        )
        for name, client in zip(fed.names, fed.clients, strict=True)
    }


def agreed(problem: Problem, fed: Federation, folder: Path) -> Agreement:
    """The agreement of sites that hold the rows of a federation."""
    sites = {
        name: lambda data, party=party: party.answer("server", data)
        for name, party in parties(fed, folder).items()
    }
    transport = LocalTransport(sites)
    return agree(transport, "experiment", problem, server=fed.server, patience=600.0)
