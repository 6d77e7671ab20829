"""Flower on one machine: the time of a round, and a run whose processes are killed one by one.

    pip install ".[flower]"
    python benchmarks/engines/flower.py [--rounds 10] [--sites 3] [--tls] [--no-kills]

A SuperLink and a SuperNode for each site run as processes on the loopback interface, and at the
sites bonafed's own party answers: a table, a policy, an audit log (``owners.py`` beside this file).
The second run is killed three times, by SIGKILL: a SuperNode, the ServerApp, the SuperLink. Its
model has to have the bits of the first, and both have to be that of a run in one process. CPU
seconds are those of all processes, start included; Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import logging
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOME / "src"), str(HOME / "benchmarks"), str(Path(__file__).parent)]

import measure  # noqa: E402
import numpy as np  # noqa: E402
import owners  # noqa: E402

import bonafed as bf  # noqa: E402
from bonafed.engines.flower import export_app  # noqa: E402
from bonafed.sites.server import SOLUTION  # noqa: E402
from bonafed.sites.trial.flower import Deployment  # noqa: E402
from bonafed.sites.trial.processes import started, tagged  # noqa: E402

ADOPT = 36  # PR_SET_CHILD_SUBREAPER: processes that lost their parent become children of this one
OPENING = 3  # messages before the first of the algorithm: Introduce, Agree, StartRun


@dataclass
class Watched:
    """When the messages of the first site were answered, and what is killed after some of them."""

    kills: list[tuple[int, str]] = field(default_factory=list)
    killed: list[tuple[str, int, float]] = field(default_factory=list)
    answers: list[tuple[int, float]] = field(default_factory=list)

    def __call__(self, deployment: Deployment) -> None:
        done = owners.answered(next(iter(deployment.sites.values())))
        if not self.answers or done > self.answers[-1][0]:
            self.answers.append((done, time.time()))
        if self.kills and done >= self.kills[0][0]:
            what = self.kills.pop(0)[1]
            kill(deployment, what)
            self.killed.append((what, done, time.time()))


def kill(deployment: Deployment, what: str) -> None:
    """Kill a process of Flower's without a warning."""
    if what == "ServerApp":
        for one in tagged(deployment.workspace):
            if "flwr-serverapp" in " ".join(one.command):
                one.kill()
    else:
        deployment.kill("" if what == "SuperLink" else what.removeprefix("SuperNode of "))


@dataclass(frozen=True)
class Result:
    """What one run of the job took."""

    solution: bf.Solution
    start: float  # seconds until the processes stood
    run: float  # seconds from there until the end
    cpu: float
    watched: Watched


def run(given: argparse.Namespace, root: Path, kills: list[tuple[int, str]]) -> Result:
    """Run the job in a deployment of its own."""
    sites = owners.make(root / "sites", given.sites)
    job = owners.job("benchmark", given.algorithm, given.rounds)
    app = export_app(root / "export", job, [*sites]).app
    watched = Watched(kills)
    paths = os.pathsep.join([str(HOME / "src"), os.environ.get("PYTHONPATH", "")])
    cpu, began = children(), time.time()
    variables = {"PYTHONPATH": paths}
    made = Deployment(sites, root / "workspace", tls=given.tls, variables=variables)
    with started(made) as deployment:
        stood = time.time()
        folder = deployment.run(app, timeout=given.timeout, watch=watched)
        ended = time.time()
    reap()
    solution = bf.load(folder / SOLUTION)
    return Result(solution, stood - began, ended - stood, children() - cpu, watched)


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
    """For each kill the longest time between two answers from then until the next kill."""
    times = [*pairwise(when for _, when in watched.answers)]
    whens = [when for *_, when in watched.killed] + [float("inf")]
    return [
        (what, done, max(end - start for start, end in times if when < end <= until))
        for (what, done, when), until in zip(watched.killed, whens[1:], strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--algorithm", choices=owners.ALGORITHMS, default="AFL")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--folder", type=Path, help="a new folder for all logs, which stay there")
    parser.add_argument("--timeout", type=float, default=1800.0)
    given = parser.parse_args()
    logging.basicConfig(level="INFO", format="%(asctime)s %(message)s")
    ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    third = max(1, given.rounds // 4)
    what = ("SuperNode of site-1", "ServerApp", "SuperLink")
    kills = [(OPENING + (k + 1) * third, each) for k, each in enumerate(what)]
    print(measure.machine("flwr", "ray"), f"load {os.getloadavg()[0]:.1f}", flush=True)
    with contextlib.ExitStack() as stack:
        folder = given.folder or stack.enter_context(tempfile.TemporaryDirectory())
        whole = run(given, Path(folder) / "whole", [])
        steps = np.diff([row["time"] for row in whole.solution.history])
        rows = [
            ("seconds until the processes stand", whole.start),
            ("seconds from there to the end, agreement and certificate included", whole.run),
            ("median seconds of a round", float(np.median(steps))),
            ("least", float(steps.min())),
            ("most", float(steps.max())),
            ("CPU seconds, all processes", whole.cpu),
        ]
        measure.show("rounds", [f"{given.rounds} rounds, uninterrupted", ""], rows)
        targets = measure.Targets()
        here = owners.in_one_process(
            owners.make(Path(folder) / "here", given.sites), given.algorithm, given.rounds
        )
        apart = float(np.abs(here.w - whole.solution.w).max() / np.abs(here.w).max())
        targets.need(apart <= 1e-12, f"the model is that of one process, {apart:.1e} apart")
        if not given.no_kills:
            cut = run(given, Path(folder) / "killed", kills)
            columns = ["killed", "messages answered", "seconds of the longest wait then"]
            measure.show("faults", columns, recovery(cut.watched))
            targets.need(len(cut.watched.killed) == len(what), "three processes were killed")
            same = cut.solution.w.tobytes() == whole.solution.w.tobytes()
            targets.need(same, "the killed run ends with the same bits")
    print(f"load {os.getloadavg()[0]:.1f}")
    targets.finish()


if __name__ == "__main__":
    main()
