"""A small run over FLARE, without an algorithm: sites with memory, and a server that averages.

Every site keeps a vector x and answers a message (k, z) with x <- 0.9 x + 0.1 (z - a), where a is
drawn from its name; the server's z is the mean of the answers. Both sides keep their state on disk,
so that a run that was killed goes on, and a final digest shows whether every step was made exactly
once. FLARE's processes import this file by its name, from a folder of PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from bonafed.engines.flare import Answers
from bonafed.sites.flare_app import Server, Site, TaskServer, TaskSite
from bonafed.storage import Lock, write_whole

LOCK_WAIT = 60.0  # seconds for the process of an earlier job to let go of the folder
TRIES = 6  # how often a message is sent before the job is given up


class CountingParty:
    """The site's side: steps are counted, and a repeated message gets the answer of before."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / "state"
        self.lock = Lock(folder / "lock")
        end = time.monotonic() + LOCK_WAIT
        while not self.lock.take():
            if time.monotonic() > end:
                raise TimeoutError(f"{folder} is in use")
            time.sleep(0.2)
        self.next, self.kept, self.seed = 0, b"", zlib.crc32(name.encode())
        self.experiment = b""
        if self.file.exists():
            stored = self.file.read_bytes()
            self.next, self.experiment = int.from_bytes(stored[:8]), stored[8:24]
            self.kept = stored[24:]

    def answer(self, sender: str, data: bytes) -> bytes:
        experiment, k, persist = data[:16], int.from_bytes(data[16:24]), data[24]
        if sender != "server":
            raise PermissionError(f"{sender} is not the server")
        if experiment != self.experiment:
            self.experiment, self.next, self.kept = experiment, 0, b""
        if k == self.next - 1:
            return self.kept
        if k != self.next:
            raise ValueError(f"state lost: message {k}, needed {self.next}")
        z = np.frombuffer(data[25:])
        x = np.frombuffer(self.kept) if self.kept else np.zeros(z.size)
        target = np.random.default_rng(self.seed).normal(size=z.size)
        self.kept = (0.9 * x + 0.1 * (z - target)).tobytes()
        self.next += 1
        if persist:
            write_whole(self.file, self.next.to_bytes(8) + experiment + self.kept)
        return self.kept

    def close(self) -> None:
        self.lock.free()


class CountingSite(Site):
    """The site's object with the party above."""

    def open(self, folder: Path, name: str) -> CountingParty:
        return CountingParty(folder, name)


class CountingTaskSite(TaskSite):
    """The same where messages are tasks."""

    def open(self, folder: Path, name: str) -> CountingParty:
        return CountingParty(folder, name)


class CountingServer(Server):
    """The server's object with the loop below."""

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        average(transport, folder, job)


class Witness(DXOFilter):
    """A filter of a site that changes nothing and notes every message of a run that it sees."""

    def __init__(self, folder: str) -> None:
        super().__init__(supported_data_kinds=None, data_kinds_to_filter=None)
        self.folder = Path(folder)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        with (self.folder / fl_ctx.get_identity_name()).open("ab") as file:
            file.write(b"." if "message" in dxo.data else b"?")
        return dxo


class CountingTaskServer(TaskServer):
    """The same where messages are tasks."""

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        average(transport, folder, job)


def average(transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
    """Average until the rounds are over; z and the round are on disk after every round."""
    rounds, size = int(job["rounds"]), int(job["size"])
    persist, pause = job.get("persist", "yes") == "yes", float(job.get("pause", "0"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "state"
    k, z = 0, np.zeros(size)
    if file.exists():
        stored = file.read_bytes()
        k, z = int.from_bytes(stored[:8]), np.frombuffer(stored[8:])
    experiment = hashlib.sha256(job["experiment"].encode()).digest()[:16]
    times = []
    while k < rounds:
        begun = time.perf_counter()
        head = experiment + k.to_bytes(8) + bytes([persist])
        z = _mean(_ask(transport, k, head + z.tobytes()))
        k += 1
        if persist:
            write_whole(file, k.to_bytes(8) + z.tobytes())
        times.append(time.perf_counter() - begun)
        (folder / "round").write_text(str(k))
        time.sleep(pause)
    report = {
        "digest": hashlib.sha256(z.tobytes()).hexdigest(),
        "sites": list(transport.ids()),
        "times": times,
    }
    write_whole(folder / "done", json.dumps(report).encode())


def expected(names: list[str], rounds: int, size: int) -> str:
    """The digest of a run without any transport."""
    targets = {n: np.random.default_rng(zlib.crc32(n.encode())).normal(size=size) for n in names}
    z, xs = np.zeros(size), {name: np.zeros(size) for name in sorted(names)}
    for _ in range(rounds):
        xs = {name: 0.9 * x + 0.1 * (z - targets[name]) for name, x in xs.items()}
        z = _mean({name: x.tobytes() for name, x in xs.items()})
    return hashlib.sha256(z.tobytes()).hexdigest()


def _ask(transport: Answers, k: int, message: bytes) -> dict[str, bytes]:
    """The answers of all sites; a message that failed is sent again."""
    answers: dict[str, bytes] = {}
    tries = dict.fromkeys(transport.ids(), 1)
    for client in transport.ids():
        transport.push(client, k, message)
    while len(answers) < len(tries):
        for client, _, answer in transport.poll():
            if isinstance(answer, bytes):
                answers[client] = answer
                continue
            tries[client] += 1
            if tries[client] > TRIES:
                raise RuntimeError(
                    f"{client} is away; the job ends, to be submitted again: {answer}"
                )
            time.sleep(0.5)
            transport.push(client, k, message)
    return answers


def _mean(answers: Mapping[str, bytes]) -> np.ndarray:
    return np.mean([np.frombuffer(answers[name]) for name in sorted(answers)], axis=0)
