"""The classes of `carried_examples` that FLARE builds.

FLARE's processes import this file by its name, from a folder of PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from carried_examples import open_party, serve

from bonafed.engines.flare import Answers
from bonafed.sites.flare_app import Server, Site
from bonafed.sites.party import Party


class ExampleSite(Site):
    """The site's object."""

    def open(self, folder: Path, name: str) -> Party:
        return open_party(folder, name)


class ExampleServer(Server):
    """The server's object: one agreement and one run for every example."""

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        serve(transport, folder, job)
