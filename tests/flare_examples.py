"""All federated algorithms in one run over FLARE, at sites that hold the rows of the examples.

FLARE's processes import this file by its name, from a folder of PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toy import federation

from examples import ALGORITHMS, Example
from quorate.data.federation import Federation
from quorate.engines.flare.transport import Answers
from quorate.engines.network import Network
from quorate.engines.waiting import First
from quorate.rounds import encode
from quorate.sites.flare_app import Server, Site
from quorate.sites.guard import Guard
from quorate.sites.party import Party
from quorate.sites.rows import of_federation
from quorate.sites.session import agree
from quorate.storage import make_folder, write_whole

ROUNDS = 6
SITES = tuple(f"site-{k}" for k in range(5))
FEDERATED: dict[str, Example] = {
    name: example
    for name, example in ALGORITHMS.items()
    if example.stated is not None and example.federation.n_clients == len(SITES)
}


def rows() -> Federation:
    """The rows of the examples, under names that FLARE allows."""
    fed = federation((20, 35, 12, 28, 9), 4)
    return Federation(SITES, fed.X, fed.y, classes=fed.classes, columns=fed.columns)


class ExampleSite(Site):
    """The site's object."""

    def open(self, folder: Path, name: str) -> Party:
        return Party(name, of_federation(rows().restrict(name)), folder, Guard(None))


class ExampleServer(Server):
    """The server's object: one agreement and one run for every example."""

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        make_folder(folder)
        for number, (name, example) in enumerate(FEDERATED.items()):
            assert example.stated is not None
            problem = example.stated[0]
            agreement = agree(transport, f"{job['experiment']} {name}", problem, patience=60.0)
            concrete, data = agreement.problem.at(agreement.metadata)
            method: Any = replace(example.algorithm, problem=concrete)
            run = Network(agreement.session, First()).run(method, data, seed=3, max_rounds=ROUNDS)
            write_whole(folder / f"{number}.run", encode((run.state, run.log)))
        write_whole(folder / "done", b"all examples")
