"""FLARE alone: sites that send back the bytes that they get, and a server that times them.

FLARE's processes import this file by its name, from a folder of PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from bonafed.engines.flare import Answers
from bonafed.engines.job import DONE
from bonafed.sites.flare_app import Server, Site
from bonafed.storage import write_whole

BYTES, ROUNDS = 50_000, 200
TIMES = "times.json"


class Echo:
    """The site's side."""

    def answer(self, sender: str, data: bytes) -> bytes:
        return data

    def close(self) -> None:
        """Nothing is held."""


class EchoSite(Site):
    """The site's object with the party above."""

    def open(self, folder: Path, name: str) -> Echo:
        return Echo()


class EchoServer(Server):
    """The server's object, which writes down how long every round took, in seconds."""

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        message, times = os.urandom(BYTES), []
        for number in range(ROUNDS):
            began = time.perf_counter()
            for site in transport.ids():
                transport.push(site, number, message)
            answered = 0
            while answered < len(transport.ids()):
                answered += len(transport.poll())
            times.append(time.perf_counter() - began)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / TIMES, json.dumps(times).encode())
        write_whole(folder / DONE, b"")
