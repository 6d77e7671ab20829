"""A run in small for the Flower adapter: parties that count and add, and a server that asks them.

It stands in for ``bonafed.sites.party`` and ``bonafed.sites.server``: a party keeps its state, the
number of its last message and the answer to it on its disk, as the real one does. An exported app
names this module as its ``apps``.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed.engines.flower import FlowerError, FlowerTransport
from bonafed.sites import flower_app
from bonafed.storage import make_folder, write_whole

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

Vector = NDArray[np.float64]
HEAD = struct.Struct("<qq")  # the number of the message, and of the site's steps in an answer


class Party:
    """A site that takes a step towards its number, and towards what the server sends."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder = name, folder / "state"
        self.target = float((folder / "number.txt").read_text())
        make_folder(self.folder)

    def answer(self, sender: str, data: bytes) -> bytes:
        seq = HEAD.unpack_from(data)[0]
        sent = np.frombuffer(data, dtype="<f8", offset=HEAD.size)
        last, steps, answer = self._state()
        if seq == last:
            return answer
        if seq != last + 1:
            raise RuntimeError(f"state lost: message {seq} after {last}")
        x = np.frombuffer(answer, dtype="<f8", offset=HEAD.size) if answer else np.zeros_like(sent)
        x = x + 0.3 * (self.target - x) + 0.1 * np.sin(sent - x)
        answer = HEAD.pack(seq, steps + 1) + x.astype("<f8").tobytes()
        write_whole(self.folder / "state", HEAD.pack(seq, steps + 1) + answer)
        return answer

    def close(self) -> None:
        pass

    def _state(self) -> tuple[int, int, bytes]:
        path = self.folder / "state"
        if not path.exists():
            return -1, 0, b""
        data = path.read_bytes()
        last, steps = HEAD.unpack_from(data)
        return last, steps, data[HEAD.size :]


def open_party(folder: Path, name: str) -> Party:
    return Party(folder, name)


def serve(transport: FlowerTransport, folder: Path, job: Mapping[str, str]) -> None:
    """Average what the sites send, for the rounds of the job; go on where the folder ends."""
    rounds, size = int(job["rounds"]), int(job["size"])
    sites, kept = transport.ids(), folder / "rounds.json"
    done, average = 0, np.zeros(size)
    if kept.exists():
        done = json.loads(kept.read_text())["rounds"]
        average = np.load(folder / f"average-{done}.npy")
    note(folder / "began", f"{os.getpid()}")
    for k in range(done, rounds):
        answers: dict[str, Vector] = {}
        message = HEAD.pack(k, 0) + average.tobytes()
        for site in sites:
            transport.push(site, k, message)
        while len(answers) < len(sites):
            for site, seq, answer in transport.poll():
                if isinstance(answer, Exception):
                    note(folder / "failures", f"{k} {answer}")
                    if "state lost" in str(answer):
                        raise answer
                    transport.push(site, seq, message)
                    continue
                number, steps = HEAD.unpack_from(answer)
                if (number, steps) != (k, k + 1):
                    raise FlowerError(f"{site} answered {number} in {steps} steps, not {k}")
                answers[site] = np.frombuffer(answer, dtype="<f8", offset=HEAD.size)
        average = sum((answers[site] for site in sites), np.zeros(size)) / len(sites)
        with (folder / f"average-{k + 1}.npy").open("wb") as file:
            np.save(file, average)
        write_whole(kept, json.dumps({"rounds": k + 1}).encode())
        (folder / f"average-{k}.npy").unlink(missing_ok=True)
        note(folder / "ends", f"{time.time()}")
    write_whole(folder / "done", average.tobytes())


def note(path: Path, line: str) -> None:
    """Add a line to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def client_app(software: str) -> ClientApp:
    return flower_app.client_app(software, open_party)


def server_app(job: Path, software: str) -> ServerApp:
    return flower_app.server_app(job, software, serve)


def make_sites(folder: Path, names: list[str]) -> dict[str, Path]:
    """Folders of sites, each with its number."""
    sites = {name: folder / f"site-{k}" for k, name in enumerate(names)}
    for k, each in enumerate(sites.values()):
        each.mkdir(parents=True)
        (each / "number.txt").write_text(
            f"{np.sin(k + 1.0)!r}".removeprefix("np.float64(").rstrip(")")
        )
    return sites
