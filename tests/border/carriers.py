"""Three sites, and the ways on which bytes reach them: in this process, as over FLARE, as over
Flower; each without daemons, by the code that sends a message at the server, and by that which
answers it at a site.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flower_grid
import pytest
from sites.folders import NAMES

from bonafed.engines.flare import FlareTransport
from bonafed.engines.flower import CLIENT_ID, RefusedError, answer_in, sealed
from bonafed.engines.wire import LocalTransport, Transport
from bonafed.sites.flower_app import SITE, take_step
from bonafed.sites.party import open_party

Call = Callable[[str, bytes], bytes]  # of sender and message
Open = Callable[[Path, str], Any]  # of what answers at a site


@contextmanager
def in_process(folder: Path, name: str, opener: Open = open_party) -> Iterator[Call]:
    """A site of this process."""
    with closing(opener(folder, name)) as party:
        yield party.answer


@contextmanager
def as_over_flare(folder: Path, name: str, opener: Open = open_party) -> Iterator[Call]:
    """The object that FLARE builds at a site, with the site's configuration."""
    from bonafed.engines.flare import write_setting
    from bonafed.sites.flare_app import Owner

    class Opening(Owner):
        def open(self, folder: Path, name: str) -> Any:
            return opener(folder, name)

    local, owner = folder.parent / f"{name}.local", Opening()
    write_setting(local, "site", folder)
    yield lambda sender, data: owner.ask(local, name, sender, data)
    owner.end()


@contextmanager
def as_over_flower(folder: Path, name: str, opener: Open = open_party) -> Iterator[Call]:
    """What a SuperNode calls: another party for every message, and one sender."""
    place = {CLIENT_ID: name, SITE: str(folder)}

    def call(sender: str, data: bytes) -> bytes:
        return answer_in(take_step(sealed("data", data), place, "Flower", "", opener))

    yield call


needs_flare = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason="needs pip install '.[flare]'"
)
FOREIGN = [
    pytest.param(as_over_flare, id="flare", marks=needs_flare),
    pytest.param(as_over_flower, id="flower"),
]
CARRIERS = [pytest.param(in_process, id="here"), *FOREIGN]


def sliced(cases: Iterable[Any], few: Iterable[Any]) -> list[Any]:
    """Pairs of a carrier and a case: all cases in this process, and a few over each other one."""
    return [
        pytest.param(*carrier.values, case, id=f"{case}-{carrier.id}", marks=carrier.marks)
        for carrier in CARRIERS
        for case in (few if carrier in FOREIGN else cases)
    ]


@dataclass(frozen=True)
class Proxy:
    """A site as FLARE shows it to the server."""

    name: str
    answer: Callable[[bytes], bytes]

    def __call__(self, *, timeout: float) -> Any:
        return SimpleNamespace(answer=self.answer)


def _flower(calls: Mapping[str, Callable[[bytes], bytes]]) -> Transport:
    """A grid with a node for every site, which answers at once."""

    def step(data: bytes, call: Callable[[bytes], bytes]) -> Any:
        try:
            return sealed("data", call(data))
        except RefusedError as refused:
            return sealed("refused", str(refused))

    nodes = {
        k: flower_grid.named(name, lambda data, call=call: step(data, call))
        for k, (name, call) in enumerate(calls.items())
    }
    way = flower_grid.transport(flower_grid.Grid(nodes, delay=lambda sent: 0.0), *calls)
    way.gather()
    return way


def transport(
    calls: Mapping[str, Call], sender: str = "alliance", carrier: Any = in_process
) -> Transport:
    """The server's way to the sites, under a name."""
    to = {name: lambda data, c=calls[name]: c(sender, data) for name in NAMES}
    if carrier is as_over_flare:
        return FlareTransport([Proxy(name, call) for name, call in to.items()])
    return _flower(to) if carrier is as_over_flower else LocalTransport(to)
