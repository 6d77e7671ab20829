"""All federated algorithms in one run over an engine, at sites that hold the rows of the examples.

The processes of FLARE and Flower import `flare_examples` and `flower_examples`, which share this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sites.helpers import of_federation
from toy import federation
from wrapped import arrays

from bonafed.data.federation import Federation
from bonafed.engines.delays import First
from bonafed.engines.inprocess import Replay
from bonafed.engines.network import Network
from bonafed.engines.wire import LocalTransport, Transport
from bonafed.rounds import decode, encode
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party
from bonafed.sites.session import agree
from bonafed.storage import make_folder, write_whole

if TYPE_CHECKING:
    from examples import Example

ROUNDS = 3
SITES = tuple(f"site-{k}" for k in range(5))


@cache
def federated() -> dict[str, Example]:
    """The examples of these clients. A site needs none, and to import them takes most of its
    time.
    """
    from examples import ALGORITHMS

    return {
        name: example
        for name, example in ALGORITHMS.items()
        if example.stated is not None and example.federation.n_clients == len(SITES)
    }


def rows() -> Federation:
    """The rows of the examples, under names that every engine allows."""
    fed = federation((20, 35, 12, 28, 9), 4)
    return Federation(SITES, fed.X, fed.y, classes=fed.classes, columns=fed.columns)


def owners(folder: Path) -> dict[str, Path]:
    """An empty folder for every site."""
    places = {name: folder / name for name in SITES}
    for place in places.values():
        place.mkdir(parents=True)
    return places


def open_party(folder: Path, name: str) -> Party:
    """The site's side, with its rows of the examples."""
    return Party(name, of_federation(rows().restrict(name)), folder, Guard(None))


def compile_here(folder: Path) -> None:
    """Serve every example in this process, which compiles what the processes of the sites would
    otherwise compile all at once, each for itself.
    """
    parties = {name: open_party(place, name) for name, place in owners(folder / "owners").items()}
    calls = {name: partial(party.answer, "server") for name, party in parties.items()}
    transport = LocalTransport(calls)
    serve(transport, folder / "server", {"experiment": "examples"})
    transport.close()
    for party in parties.values():
        party.close()


def serve(transport: Transport, folder: Path, job: Mapping[str, str]) -> None:
    """The server's side: one agreement and one run for every example."""
    make_folder(folder)
    for number, (name, example) in enumerate(federated().items()):
        assert example.stated is not None
        problem = example.stated[0]
        agreement = agree(transport, f"{job['experiment']} {name}", problem, patience=60.0)
        concrete, data = agreement.problem.at(agreement.metadata)
        method: Any = replace(example.algorithm, problem=concrete)
        run = Network(agreement.session, First()).run(method, data, seed=3, max_rounds=ROUNDS)
        write_whole(folder / f"{number}.run", encode((run.state, run.log)))
    write_whole(folder / "done", b"all examples")


def check(done: Path) -> None:
    """Hold every run in the server's folder against one in this process."""
    assert len(federated()) > 20
    for number, example in enumerate(federated().values()):
        state, log = decode((done / f"{number}.run").read_bytes())
        assert example.stated is not None
        concrete, data = example.stated[0].at(rows())
        method: Any = replace(example.algorithm, problem=concrete)
        here = Replay(log).run(method, data, max_rounds=ROUNDS)
        # another process may lay out arrays otherwise, and round otherwise
        for mine, theirs in zip(arrays(here.state), arrays(state), strict=True):
            scale = np.abs(mine[np.isfinite(mine)]).max(initial=0.0)
            np.testing.assert_allclose(theirs, mine, rtol=1e-12, atol=1e-12 * scale)
