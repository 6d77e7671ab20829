"""Sites in this process: each with its own rows and folder, behind a transport."""

from __future__ import annotations

from pathlib import Path

from quorate.data.federation import Federation
from quorate.engines.transport import LocalTransport
from quorate.problem.problem import Problem
from quorate.sites.guard import Guard
from quorate.sites.party import Party
from quorate.sites.rows import of_federation
from quorate.sites.session import Agreement, agree


def parties(fed: Federation, folder: Path) -> dict[str, Party]:
    """A party for every client of a federation."""
    return {
        name: Party(
            name,
            of_federation(fed.restrict(client).without_server()),
            folder / name,
            Guard(None),
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
    return agree(transport, "experiment", problem, server=fed.server, patience=20.0)
