"""Three sites, and the ways on which bytes reach them: in this process, as over FLARE, as over
Flower; each without daemons, by the code that answers a message at a site.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sites.folders import NAMES

from quorate.engines.flower.envelope import answer_in, sealed
from quorate.engines.transport import LocalTransport
from quorate.sites.flower_app import CLIENT_ID, SITE, take_step
from quorate.sites.party import open_party

Call = Callable[[str, bytes], bytes]  # of sender and message


@contextmanager
def in_process(folder: Path, name: str) -> Iterator[Call]:
    """A site of this process."""
    with closing(open_party(folder, name)) as party:
        yield party.answer


@contextmanager
def as_over_flare(folder: Path, name: str) -> Iterator[Call]:
    """The object that FLARE builds at a site, with the site's configuration."""
    from quorate.engines.flare.place import write_setting
    from quorate.sites.flare_app import Owner

    local, owner = folder.parent / f"{name}.local", Owner()
    write_setting(local, "site", folder)
    yield lambda sender, data: owner.ask(local, name, sender, data)
    owner.end()


@contextmanager
def as_over_flower(folder: Path, name: str) -> Iterator[Call]:
    """What a SuperNode calls: another party for every message, and one sender."""
    place = {CLIENT_ID: name, SITE: str(folder)}

    def call(sender: str, data: bytes) -> bytes:
        return answer_in(take_step(sealed("data", data), place, "Flower", "", open_party))

    yield call


needs_flare = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason="needs pip install 'quorate[flare]'"
)
CARRIERS = [
    pytest.param(in_process, id="here"),
    pytest.param(as_over_flare, id="flare", marks=needs_flare),
    pytest.param(as_over_flower, id="flower"),
]


def transport(calls: Mapping[str, Call], sender: str = "alliance") -> LocalTransport:
    """The server's way to the sites, under a name."""
    return LocalTransport({name: lambda data, c=calls[name]: c(sender, data) for name in NAMES})
