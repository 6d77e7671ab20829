"""Flower on one machine: the time of a round, and a run whose processes are killed one by one.

    pip install "quorate[flower]"
    python benchmarks/engines/flower.py [--rounds 10] [--size 6250] [--sites 3] [--tls]

A SuperLink and a SuperNode for each site run as processes on the loopback interface. Parties that
add and count (``tests/flower_stand_in.py``) keep their state on disk, as quorate's own do. The
second run is killed three times, by SIGKILL: a SuperNode, the ServerApp, the SuperLink. It has to
end with the bits of the first. CPU seconds are those of all processes, start included; Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import logging
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

HOME = Path(__file__).parents[2]
sys.path[:0] = [str(HOME / "benchmarks"), str(HOME / "tests")]

import flower_stand_in  # noqa: E402  (it stands with the tests, which share it)
import measure  # noqa: E402

from quorate.engines.flower import Deployment, export_app, job_folder  # noqa: E402

ADOPT = 36  # PR_SET_CHILD_SUBREAPER: processes that lost their parent become children of this one


@dataclass
class Watched:
    """The rounds of a run as they end, and what is killed after some of them."""

    folder: Path
    kills: list[tuple[int, str]] = field(default_factory=list)
    killed: list[tuple[str, int, float]] = field(default_factory=list)

    def ends(self) -> list[float]:
        """When each round was over, by the server's clock."""
        return [float(line) for line in (self.folder / "ends").read_text().splitlines()]

    def __call__(self, deployment: Deployment) -> None:
        kept = self.folder / "rounds.json"
        done = json.loads(kept.read_text())["rounds"] if kept.exists() else 0
        if self.kills and done >= self.kills[0][0]:
            what = self.kills.pop(0)[1]
            kill(deployment, what)
            self.killed.append((what, done, time.time()))


def kill(deployment: Deployment, what: str) -> None:
    """Kill a process of Flower's without a warning."""
    if what == "ServerApp":
        for pid, command in deployment.processes():
            if "flwr-serverapp" in command:
                os.kill(pid, signal.SIGKILL)
    else:
        deployment.kill("" if what == "SuperLink" else what.removeprefix("SuperNode of "))


@dataclass(frozen=True)
class Result:
    """What one run of the job took."""

    final: bytes
    start: float  # seconds until the processes stood
    first: float  # seconds from there until the first round was over
    rounds: list[float]  # seconds of each later round
    cpu: float
    watched: Watched
    servers: int  # how often the server was started


def run(given: argparse.Namespace, root: Path, kills: list[tuple[int, str]]) -> Result:
    """Run the job in a deployment of its own."""
    names = [f"site {k + 1}" for k in range(given.sites)]
    sites = flower_stand_in.make_sites(root / "sites", names)
    job = {"experiment": "benchmark", "rounds": str(given.rounds), "size": str(given.size)}
    app = export_app(root / "export", job, names, apps="flower_stand_in").app
    watched = Watched(job_folder(root / "workspace" / "server", job), kills)
    paths = os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")])
    cpu, began = children(), time.time()
    with Deployment(
        sites, root / "workspace", tls=given.tls, environment={"PYTHONPATH": paths}
    ) as deployment:
        stood = time.time()
        folder = deployment.run(app, timeout=given.timeout, watch=watched)
    reap()
    ends = watched.ends()
    return Result(
        (folder / "done").read_bytes(),
        stood - began,
        ends[0] - stood,
        [later - earlier for earlier, later in pairwise(ends)],
        children() - cpu,
        watched,
        len((folder / "began").read_text().splitlines()),
    )


def children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap() -> None:
    """Wait for the processes that lost their parent, so that their CPU time is counted."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def recovery(watched: Watched) -> list[tuple[str, int, float]]:
    """For each kill the longest round that was over between it and the next kill."""
    rounds = [*pairwise(watched.ends())]
    whens = [when for *_, when in watched.killed] + [float("inf")]
    return [
        (what, done, max(end - start for start, end in rounds if when < end <= until))
        for (what, done, when), until in zip(watched.killed, whens[1:], strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    number: Callable[[str], int] = int
    parser.add_argument("--rounds", type=number, default=10)
    parser.add_argument("--size", type=number, default=6250, help="numbers in a message")
    parser.add_argument("--sites", type=number, default=3)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--folder", type=Path, help="a new folder for all logs, which stay there")
    parser.add_argument("--timeout", type=float, default=1200.0)
    given = parser.parse_args()
    logging.basicConfig(level="INFO", format="%(asctime)s %(message)s")
    ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    third = max(1, given.rounds // 4)
    kills = [(third, "SuperNode of site 1"), (2 * third, "ServerApp"), (3 * third, "SuperLink")]
    print(measure.machine("flwr", "ray"), f"load {os.getloadavg()[0]:.1f}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = given.folder or stack.enter_context(tempfile.TemporaryDirectory())
        whole = run(given, Path(folder) / "whole", [])
        rows = [
            ("seconds until the processes stand", whole.start),
            ("seconds from there to the end of round 1", whole.first),
            ("median seconds of a later round", statistics.median(whole.rounds)),
            ("least", min(whole.rounds)),
            ("most", max(whole.rounds)),
            ("CPU seconds, all processes, a round", whole.cpu / given.rounds),
        ]
        print(measure.table(["uninterrupted", ""], rows), flush=True)
        targets = measure.Targets()
        targets.need(whole.servers == 1, "an uninterrupted run starts its server once")
        if not given.no_kills:
            cut = run(given, Path(folder) / "killed", kills)
            columns = ["killed", "after round", "seconds of the longest round then"]
            print(measure.table(columns, recovery(cut.watched)), flush=True)
            print(f"the server was started {cut.servers} times")
            targets.need(len(cut.watched.killed) == 3, "three processes were killed")
            targets.need(cut.final == whole.final, "the killed run ends with the same bits")
    print(f"load {os.getloadavg()[0]:.1f}")
    targets.finish()


if __name__ == "__main__":
    main()
