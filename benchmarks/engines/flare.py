"""NVIDIA FLARE with real processes and TLS on one machine: time a round, memory, and faults.

    python benchmarks/engines/flare.py WORKSPACE               # everything, about 12 minutes
    python benchmarks/engines/flare.py WORKSPACE --only kills  # or: rounds, sites, long

Needs ``pip install quorate[flare]``. Daemons of the server and of every site run as in production;
each job is a process of its own at each of them.

- ``rounds``: 3 sites, 200 rounds of 50 KB each way. Wall time of a round at the server, and the
  user and system time of all of FLARE's processes during the loop.
- ``sites``: the same with 10 sites.
- ``long``: 3,000 rounds with 3 sites; memory and threads of each process every 500 rounds.
- ``kills``: a site's job, a site with its daemon, the server's job, and the server with its daemon
  are killed (SIGKILL) one after the other, and a supervisor submits the same job until the run has
  ended. The result must have the same bits as that of a run in one process without FLARE.

Targets: 15 ms a round with 3 sites and 60 ms with 10, on a machine that does nothing else; memory
and threads of every process at the end at most 1.25 times those after 500 rounds; the same bits.

The run itself is a stand-in (``tests/flare_standin.py``): sites with a state on disk that must be
stepped exactly once. Another run takes its place in ``RUN``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HOME = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOME / "src"), str(HOME / "tests")]

import flare_standin  # noqa: E402  (stands beside the tests that share it)

from quorate.engines.flare import ALLOWED, Poc, Supervisor, export_job  # noqa: E402
from quorate.engines.flare.local import HOST, Process, tagged  # noqa: E402

SIZE = 6250  # numbers of 8 bytes in a message
TARGETS = {3: 15.0, 10: 60.0}  # milliseconds of a round, by the number of sites
SAMPLE = 500  # rounds between two looks at memory and threads
MISSED: list[str] = []
GROWTH = 1.25  # of memory and threads between round 500 and the last
KILLS = ("a site's job", "a site and its daemon", "the server's job", "the server and its daemon")


@dataclass(frozen=True)
class Run:
    """What runs over FLARE, so that an algorithm can take the place of the stand-in."""

    server: str  # class paths
    site: str
    job: Callable[[str, int, Mapping[str, str]], dict[str, str]]  # experiment, rounds, further
    prepare: Callable[[Path, str], None]  # writes what a data owner has into a folder, by name
    reached: Callable[[Path], int]  # the round that the server's folder has reached
    result: Callable[[Path], str]  # the digest of the result in the server's folder
    times: Callable[[Path], list[float]]  # seconds of the rounds of the last job
    without: Callable[[list[str], int], str]  # the digest without FLARE


def standin() -> Run:
    def reached(folder: Path) -> int:
        with suppress(OSError, ValueError):
            return int((folder / "round").read_text())
        return 0

    def record(folder: Path) -> dict:
        return json.loads((folder / "done").read_text())

    return Run(
        server="flare_standin.CountingServer",
        site="flare_standin.CountingSite",
        job=lambda name, rounds, more: {
            **{"experiment": name, "rounds": str(rounds), "size": str(SIZE)},
            **more,
        },
        prepare=lambda folder, name: folder.mkdir(parents=True, exist_ok=True),
        reached=reached,
        result=lambda folder: record(folder)["digest"],
        times=lambda folder: record(folder)["times"],
        without=lambda names, rounds: flare_standin.expected(names, rounds, SIZE),
    )


RUN = standin()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--only", choices=("rounds", "sites", "long", "kills"))
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    stamp = f"{time.time():.0f}"
    if given.only in (None, "rounds", "long", "kills"):
        with started(given.workspace / "three", 3) as poc:
            if given.only in (None, "rounds"):
                timed(poc, f"rounds-{stamp}", 200)
            if given.only in (None, "long"):
                timed(poc, f"long-{stamp}", 3000)
            if given.only in (None, "kills"):
                kills(poc, f"kills-{stamp}", 200)
    if given.only in (None, "sites"):
        with started(given.workspace / "ten", 10) as poc:
            timed(poc, f"sites-{stamp}", 200)
    if MISSED:
        raise SystemExit("missed: " + "; ".join(MISSED))


@contextmanager
def started(workspace: Path, count: int) -> Iterator[Poc]:
    """A project with so many sites, all connected."""
    begun = time.perf_counter()
    owners = {f"site-{i + 1}": workspace / "owners" / f"site-{i + 1}" for i in range(count)}
    for name, folder in owners.items():
        RUN.prepare(folder, name)
    with Poc(workspace, owners, classes=(*ALLOWED, RUN.server, RUN.site)) as poc:
        print(f"\n{count} sites, connected after {time.perf_counter() - begun:.1f} s", flush=True)
        yield poc
        begun = time.perf_counter()
    print(f"stopped in {time.perf_counter() - begun:.1f} s; left over: {len(tagged(workspace))}")


def exported(poc: Poc, name: str, rounds: int, more: Mapping[str, str], limit: float) -> Path:
    return export_job(
        poc.workspace / "jobs",
        name,
        RUN.job(name, rounds, more),
        len(poc.sites),
        sites=list(poc.sites),
        call_timeout=limit,
        server=RUN.server,
        site=RUN.site,
    )


def supervised(
    poc: Poc, job: Path, done: Path, pause: float
) -> tuple[threading.Thread, Supervisor]:
    """A supervisor in a thread of its own."""
    begun = time.perf_counter()

    def progress(text: str) -> None:
        print(f"  {time.perf_counter() - begun:6.1f} s  {text}", flush=True)

    supervisor = Supervisor(job, poc.connect, done.exists, pause=pause, progress=progress)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    return thread, supervisor


def timed(poc: Poc, name: str, rounds: int) -> None:
    """Rounds without faults and without a disk: their time, and what the processes use."""
    print(f"\n{rounds} rounds of {SIZE * 8 / 1000:.0f} KB, {len(poc.sites)} sites")
    job, folder = exported(poc, name, rounds, {"persist": "no"}, 60.0), poc.runs / name
    thread, _ = supervised(poc, job, folder / "done", 2.0)
    awaited(lambda: RUN.reached(folder) > 0, 120.0)
    first, before, load = RUN.reached(folder), used(poc), os.getloadavg()[0]
    print("  | round | process | RSS MB | threads |")
    looks: dict[str, list[tuple[float, int]]] = {}
    spent = 0.0
    for at in [*range(SAMPLE, rounds, SAMPLE), rounds]:
        awaited(lambda at=at: RUN.reached(folder) >= at, 600.0)
        if at == rounds:
            spent = (used(poc) - before) / (at - first)
        for role, one in roles(poc):
            with suppress(Exception):
                look = one.memory_info().rss / 1e6, one.num_threads()
                looks.setdefault(role, []).append(look)
                print(f"  | {at} | {role} | {look[0]:.0f} | {look[1]} |", flush=True)
    thread.join()
    low, middle, high = np.percentile(np.array(RUN.times(folder)[1:]) * 1000, [10, 50, 90])
    print(f"  a round: {middle:.1f} ms (p10 {low:.1f}, p90 {high:.1f}), CPU {spent * 1000:.1f} ms")
    print(f"  load before and after: {load:.1f}, {os.getloadavg()[0]:.1f}")
    if (target := TARGETS.get(len(poc.sites), np.inf)) < middle:
        MISSED.append(f"{len(poc.sites)} sites: {middle:.1f} ms a round, target {target:.0f}")
    for role, seen in looks.items():
        for what, first_look, last in zip(("RSS", "threads"), seen[0], seen[-1], strict=True):
            if last > GROWTH * first_look:
                MISSED.append(f"{role}: {what} from {first_look:.0f} to {last:.0f}")
    compare(poc, folder, rounds)


def kills(poc: Poc, name: str, rounds: int) -> None:
    """Four faults in one run."""
    print(f"\n{rounds} rounds with four faults, {len(poc.sites)} sites")
    more = {"persist": "yes", "pause": "0.05"}
    job, folder = exported(poc, name, rounds, more, 5.0), poc.runs / name
    begun = time.perf_counter()
    thread, supervisor = supervised(poc, job, folder / "done", 2.0)
    site = next(iter(poc.sites))
    for number, what in enumerate(KILLS, 1):
        at = number * rounds // 5
        awaited(lambda at=at: RUN.reached(folder) >= at, 300.0)
        print(f"  killed {what} after round {RUN.reached(folder)}", flush=True)
        hit(poc, what, site)
        began = time.perf_counter()
        awaited(lambda at=at: RUN.reached(folder) > at + 5, 300.0)
        print(f"  goes on after {time.perf_counter() - began:.0f} s", flush=True)
    thread.join()
    print(f"  submissions: {len(supervisor.ids)}, {time.perf_counter() - begun:.0f} s in all")
    compare(poc, folder, rounds)


def hit(poc: Poc, what: str, site: str) -> None:
    """Kill processes; a daemon is started again after five seconds."""
    place = HOST if "server" in what else site
    if "daemon" in what:
        poc.stop_one(place)
        time.sleep(5.0)
        poc.start_one(place)
        return
    for one in poc.jobs(place):
        one.kill()


def compare(poc: Poc, folder: Path, rounds: int) -> None:
    """End with an error unless the result has the bits of a run without FLARE."""
    result, needed = RUN.result(folder), RUN.without(list(poc.sites), rounds)
    short = hashlib.sha256(result.encode()).hexdigest()[:12]
    if result != needed:
        raise SystemExit(f"the result ({result}) differs from that without FLARE ({needed})")
    print(f"  same bits as without FLARE ({short})", flush=True)


def roles(poc: Poc) -> Iterator[tuple[str, Process]]:
    """Processes by what they do: those of the server and of the first site."""
    for name in (HOST, next(iter(poc.sites))):
        for one in poc.daemons(name):
            yield f"{name}, daemon", one
        for one in poc.jobs(name):
            yield f"{name}, job", one


def used(poc: Poc) -> float:
    """User and system seconds of all processes of the project."""
    total = 0.0
    for one in tagged(poc.workspace):
        with suppress(Exception):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def awaited(there: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise TimeoutError(f"did not happen within {seconds:.0f} s")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
