"""Sites in this process: each with its own rows and folder, behind a transport."""

from __future__ import annotations

from pathlib import Path

from bonafed.data.federation import Federation
from bonafed.engines.transport import LocalTransport
from bonafed.problem.problem import Problem
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party
from bonafed.sites.rows import of_federation
from bonafed.sites.session import Agreement, agree


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
    return agree(transport, "experiment", problem, server=fed.server, patience=600.0)
