"""NVIDIA FLARE with real processes and TLS on one machine: time a round, memory, and faults.

    python benchmarks/engines/flare.py rounds --sites 3    # time of a round, and where it goes
    python benchmarks/engines/flare.py rounds --sites 10
    python benchmarks/engines/flare.py memory              # over 3,000 rounds
    python benchmarks/engines/flare.py kills               # four faults in one run

Needs ``pip install '.[flare]'``. Daemons of the server and of every site run as in production,
each job is a process of its own at each of them, and at the sites bonafed's own party answers: a
table, a policy, an audit log. ``owners.py`` beside this file has the tables and the algorithms;
messages have 50 KB each way.

- ``rounds``: wall time of a round at the server, user and system time of all of FLARE's processes,
  the wall time of FLARE alone, with sites that send back what they get, and the same run with the
  sites as functions of one process, by what a message costs there.
- ``memory``: memory and threads of each process every 500 rounds.
- ``kills``: a site's job, a site with its daemon, the server's job, and the server with its daemon
  are killed (SIGKILL) one after the other, and a supervisor submits the same job until the run has
  ended. Its model must have the same bits as that of an undisturbed run.

Targets: 15 ms a round with 3 sites and 60 ms with 10, on a machine that does nothing else; memory
and threads of every process at the end at most 1.25 times those after 500 rounds; the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil

HOME = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOME / "src"), str(HOME / "benchmarks"), str(Path(__file__).parent)]

import echoes  # noqa: E402
import measure  # noqa: E402
import owners  # noqa: E402

import bonafed as bf  # noqa: E402
from bonafed.engines.flare import ALLOWED, Supervisor, export_job  # noqa: E402
from bonafed.engines.job import DONE  # noqa: E402
from bonafed.sites.server import SOLUTION  # noqa: E402
from bonafed.sites.trial.flare import HOST, Poc  # noqa: E402
from bonafed.sites.trial.processes import ENDED, Process, tagged  # noqa: E402
from bonafed.sites.trial.processes import started as running  # noqa: E402

LIMITS = {3: 15.0, 10: 60.0}  # milliseconds of a round, by the number of sites
SAMPLE = 500  # rounds between two looks at memory and threads
GROWTH = 1.25  # of memory and threads between round 500 and the last
ROUNDS = {"rounds": 200, "memory": 3000, "kills": 400}
PATIENCE = 20.0  # seconds without a site until its job ends: FLARE takes none back into a job
ECHOES = {"server": "echoes.EchoServer", "site": "echoes.EchoSite"}
KILLS = ("a site's job", "a site and its daemon", "the server's job", "the server and its daemon")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=ROUNDS)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="200, 3,000 of memory, 400 of kills")
    parser.add_argument("--algorithm", choices=owners.ALGORITHMS, help="AFL; FedAvg of memory")
    parser.add_argument("--folder", type=Path, help="for all files, which stay there")
    given = parser.parse_args()
    rounds = given.rounds or ROUNDS[given.what]
    # AFL is at its optimum after some 570 rounds
    algorithm = given.algorithm or ("FedAvg" if given.what == "memory" else "AFL")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HOME / "src"), str(Path(__file__).parent)])
    os.environ["OMP_NUM_THREADS"] = "1"
    print(measure.machine("nvflare"), f"load {os.getloadavg()[0]:.1f}", flush=True)
    targets = measure.Targets()
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sites = owners.make(folder / "owners", given.sites)
        if given.what == "rounds":
            spent = owners.profile(
                owners.make(folder / "here", given.sites), folder, algorithm, rounds
            )
        poc = stack.enter_context(started(folder / "flare", sites))
        if given.what == "kills":
            kills(poc, algorithm, rounds, targets)
        else:
            timed(poc, algorithm, rounds, targets, given.what == "memory")
        if given.what == "rounds":
            print(f"\nFLARE alone, between these runs: {alone(poc):.1f} ms a round", flush=True)
            timed(poc, algorithm, rounds, targets, memory=False)
    if given.what == "rounds":
        columns = ["the same sites as functions of one process", "ms"]
        measure.show("where the time goes", columns, [*spent.items()])
    print(f"load {os.getloadavg()[0]:.1f}")
    targets.finish()


@contextmanager
def started(workspace: Path, sites: dict[str, Path]) -> Iterator[Poc]:
    """A project with these sites, all connected."""
    begun = time.perf_counter()
    classes = (*ALLOWED, *ECHOES.values())
    with running(Poc(workspace, sites, classes=classes)) as poc:
        print(f"{len(sites)} sites, connected after {time.perf_counter() - begun:.1f} s")
        yield poc
    if left := tagged(workspace.absolute()):
        raise RuntimeError(f"{len(left)} processes are left over")


def supervised(
    poc: Poc, name: str, algorithm: str, rounds: int, limit: float = 60.0, patience: float = 600.0
) -> tuple[threading.Thread, Supervisor]:
    """A job, and a supervisor in a thread of its own."""
    begun = time.perf_counter()

    def progress(text: str) -> None:
        print(f"  {time.perf_counter() - begun:6.1f} s  {text}", flush=True)

    folder = export_job(
        poc.workspace / "jobs",
        name,
        owners.job(name, algorithm, rounds, patience),
        len(poc.sites),
        sites=list(poc.sites),
        call_timeout=limit,
    )
    done = poc.runs / name / DONE
    supervisor = Supervisor(folder, poc.connect, done.exists, pause=2.0, progress=progress)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    return thread, supervisor


def alone(poc: Poc) -> float:
    """Median wall milliseconds of a round whose sites send back what they get."""
    folder = export_job(
        poc.workspace / "jobs",
        "echoes",
        {"experiment": "echoes"},
        len(poc.sites),
        sites=list(poc.sites),
        **ECHOES,
    )
    there = poc.runs / "echoes"
    Supervisor(folder, poc.connect, (there / DONE).exists, pause=0.2).run()
    return 1000 * float(np.median(json.loads((there / echoes.TIMES).read_text())))


def timed(
    poc: Poc, algorithm: str, rounds: int, targets: measure.Targets, memory: bool
) -> bf.Solution:
    """Rounds without faults: their time, and what the processes use."""
    name = f"rounds-{time.time():.0f}"
    print(f"\n{name}: {rounds} rounds of {algorithm}, {len(poc.sites)} sites", flush=True)
    before = reached(poc)
    thread, _ = supervised(poc, name, algorithm, rounds)
    awaited(lambda: reached(poc) > before + 10, 180.0)
    first, cpu = reached(poc), used(poc)
    looks: dict[str, list[tuple[float, int]]] = {}
    for at in [*range(SAMPLE, rounds, SAMPLE), rounds]:
        awaited(lambda at=at: reached(poc) >= before + at or not thread.is_alive(), 900.0, 0.2)
        spent = (used(poc) - cpu) / max(reached(poc) - first, 1)
        for role, one in roles(poc) if memory and thread.is_alive() else ():
            with suppress(Exception):  # a process may end meanwhile
                seen = psutil.Process(one.pid)
                look = seen.memory_info().rss / 1e6, seen.num_threads()
                looks.setdefault(role, []).append(look)
                print(f"  round {at}, {role}: {look[0]:.0f} MB, {look[1]} threads", flush=True)
    thread.join()
    solution = result(poc, name)
    steps = 1000 * np.diff([row["time"] for row in solution.history])
    low, middle, high = np.percentile(steps, [10, 50, 90])
    rows = [
        ("median ms a round", middle),
        ("10 % are below", low),
        ("10 % are above", high),
        ("CPU ms a round, all processes", 1000 * spent),
        ("rounds", solution.rounds),
    ]
    measure.show(f"rounds: {name}", ["over FLARE", ""], rows)
    targets.need(solution.rounds >= rounds, f"the run has {rounds} rounds")
    if not memory and (limit := LIMITS.get(len(poc.sites))):
        targets.need(middle <= limit, f"{limit:.0f} ms a round with {len(poc.sites)} sites")
    for role, seen in looks.items():
        for what, begin, last in zip(("memory", "threads"), seen[0], seen[-1], strict=True):
            holds = last <= GROWTH * begin
            targets.need(holds, f"{what} of {role} stay, {begin:.0f} and {last:.0f}")
    compare(poc, solution, algorithm, rounds, targets)
    return solution


def kills(poc: Poc, algorithm: str, rounds: int, targets: measure.Targets) -> None:
    """Four faults in one run, whose model has the bits of an undisturbed run."""
    whole = timed(poc, algorithm, rounds, measure.Targets(), memory=False)
    name = f"kills-{time.time():.0f}"
    print(f"\n{name}: {rounds} rounds with four faults", flush=True)
    start, begun, rows = reached(poc), time.perf_counter(), []
    thread, supervisor = supervised(poc, name, algorithm, rounds, 5.0, PATIENCE)
    for number, what in enumerate(KILLS):
        at = start + 20 + number * rounds // 6
        awaited(lambda at=at: reached(poc) >= at, 300.0)
        hit(poc, what, next(iter(poc.sites)))
        after, began = reached(poc), time.perf_counter()
        awaited(lambda after=after: reached(poc) > after + 10, 300.0)
        seconds = time.perf_counter() - began
        print(f"  killed {what} after {after - start} messages", flush=True)
        rows.append((what, after - start, seconds))
    unfinished = not (poc.runs / name / DONE).exists()
    thread.join()
    columns = ["killed", "messages answered", "seconds until the run went on"]
    measure.show(f"faults: {name}", columns, rows)
    seconds = time.perf_counter() - begun
    print(f"{len(supervisor.ids)} submissions, {seconds:.0f} s in all")
    targets.need(unfinished, "the run went on after the last fault")
    killed = result(poc, name)
    targets.need(killed.rounds == whole.rounds, "both runs have as many rounds")
    targets.need(killed.w.tobytes() == whole.w.tobytes(), "both models have the same bits")


def hit(poc: Poc, what: str, site: str) -> None:
    """Kill processes; a daemon is started again after five seconds."""
    place = HOST if "server" in what else site
    for one, is_daemon in processes_of(poc, place):
        if "daemon" in what or not is_daemon:
            one.kill()
    if "daemon" in what:
        daemon = poc.daemons[place]
        if daemon.running is not None:
            daemon.running.wait(ENDED)
        time.sleep(5.0)
        daemon.start()


def processes_of(poc: Poc, name: str) -> list[tuple[Process, bool]]:
    """The processes of the server or of a site, which name its folder or a file in it, and whether
    each is its daemon.
    """
    kit, running = poc.kits / name, poc.daemons[name].running
    pid = -1 if running is None else running.pid
    there = [(one, [Path(part) for part in one.command]) for one in tagged(poc.workspace)]
    mine = [one for one, parts in there if any(kit in (part, *part.parents) for part in parts)]
    return [(one, one.pid == pid) for one in mine]


def result(poc: Poc, name: str) -> bf.Solution:
    """The solution in the server's folder."""
    return bf.load(poc.runs / name / SOLUTION)


def compare(
    poc: Poc, there: bf.Solution, algorithm: str, rounds: int, targets: measure.Targets
) -> None:
    """Hold the model against that of a run in one process, whose sums may be rounded otherwise."""
    here = owners.in_one_process(poc.sites, algorithm, rounds)
    apart = float(np.abs(here.w - there.w).max() / np.abs(here.w).max())
    targets.need(apart <= 1e-12, f"the model is that of one process, {apart:.1e} apart")


def reached(poc: Poc) -> int:
    """How many messages the first site has answered, of all runs."""
    return owners.answered(next(iter(poc.sites.values())))


def roles(poc: Poc) -> Iterator[tuple[str, Process]]:
    """Processes by what they do: those of the server and of the first site."""
    for name in (HOST, next(iter(poc.sites))):
        for one, is_daemon in processes_of(poc, name):
            yield f"{name}, {'daemon' if is_daemon else 'job'}", one


def used(poc: Poc) -> float:
    """User and system seconds of all processes of the project."""
    total = 0.0
    for one in tagged(poc.workspace):
        with suppress(Exception):  # a process may end meanwhile
            times = psutil.Process(one.pid).cpu_times()
            total += times.user + times.system
    return total


def awaited(there: Callable[[], bool], seconds: float, pause: float = 0.02) -> None:
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise TimeoutError(f"did not happen within {seconds:.0f} s")
        time.sleep(pause)


if __name__ == "__main__":
    main()
