"""The apps of `carried_examples` that Flower starts: the stubs of an exported app name this module.

Flower's processes import this file by its name, from a folder of PYTHONPATH.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from carried_examples import open_party, serve

from bonafed.sites import flower_app

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp


def client_app(software: str = "") -> ClientApp:
    return flower_app.client_app(software, open_party)


def server_app(job: Path, software: str = "") -> ServerApp:
    return flower_app.server_app(job, software, serve)
