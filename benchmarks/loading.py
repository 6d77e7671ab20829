"""Seconds and memory until the rows of many clients are ready to be trained on.

    python benchmarks/loading.py [--against FOLDER]

Every client has a file of its own, or a column of one file names it. Each figure is the least of
three processes, which write nothing; FOLDER is another checkout, whose figures are taken in turn.
Memory is what reading, splitting and scaling add at their peak, in units of the federation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import measure
import numpy as np

HERE = Path(__file__).resolve().parent.parent
SIZES = ((1000, 10_000, 8), (10_000, 10_000, 8), (100, 200_000, 20))  # clients, rows, features
CONFIG = 'title = "many"\nseed = 1\n[data]\n{source}\ntarget = "sick"\ntest = 0.3\n'
SOURCES = {"files": 'path = "sites/*.csv"', "column": 'path = "all.csv"\nclient = "site"'}


def written(folder: Path, clients: int, rows: int, features: int) -> None:
    """Tables of numbers, one text column and a target, by file and as one file."""
    rng = np.random.default_rng(0)
    owner = np.sort(np.concatenate([np.arange(clients), rng.integers(0, clients, rows - clients)]))
    X, sex = rng.normal(size=(rows, features)).round(4), rng.choice(["f", "m"], rows)
    sick = np.where(X[:, 0] + rng.normal(size=rows) > 0, "yes", "no")
    head = ",".join([*(f"v{j}" for j in range(features)), "sex", "sick"])
    lines = [
        f"{','.join(map(str, x))},{s},{y}"
        for x, s, y in zip(X.tolist(), sex.tolist(), sick.tolist(), strict=True)
    ]
    ends = np.searchsorted(owner, np.arange(clients + 1)).tolist()
    (folder / "sites").mkdir()
    for c, (start, end) in enumerate(pairwise(ends)):
        text = "\n".join([head, *lines[start:end]])
        (folder / "sites" / f"site{c:05d}.csv").write_text(f"{text}\n", "utf-8")
    joined = [f"site{c:05d},{line}" for c, line in zip(owner.tolist(), lines, strict=True)]
    (folder / "all.csv").write_text("\n".join([f"site,{head}", *joined]) + "\n", "utf-8")
    for name, source in SOURCES.items():
        (folder / f"{name}.toml").write_text(CONFIG.format(source=source), "utf-8")


def child(config: Path) -> None:
    """Prepare the rows in this process, and print what that took."""
    from bonafed.config.config import read_config
    from bonafed.data.federation import Federation
    from bonafed.runs.splits import prepare

    Federation.from_tables({"warm": {"x": np.zeros(2), "y": np.arange(2)}}, "y")
    before, start = _peak(), time.process_time()
    parts = prepare(read_config(config))
    seconds = time.process_time() - start
    every = [parts.train, *parts.tests.values()]
    size = sum(x.nbytes for fed in every for x in fed.X)
    digest = [d for fed in every for d in fed.digests()]
    print(
        json.dumps(
            {"seconds": seconds, "copies": (_peak() - before) / size, "digest": hash(tuple(digest))}
        )
    )


def _peak() -> int:
    """Peak bytes of this process; those of `getrusage` begin with its parent's (Linux)."""
    known = Path("/proc/self/status").read_text("utf-8")
    return 1024 * int(next(line for line in known.splitlines() if "VmHWM" in line).split()[1])


def apart(source: Path, config: Path) -> dict[str, float]:
    """The figures of a process of its own."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(source / "src"), str(HERE / "benchmarks")]),
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, __file__, "--child", str(config)]
    return json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--against", type=Path)
    options.add_argument("--child", type=Path)
    given = options.parse_args()
    if given.child is not None:
        return child(given.child)
    print(f"{measure.machine()}; CPU seconds, and peak memory in federations\n")
    sources = {"this": HERE} | ({"other": given.against} if given.against else {})
    rows, targets = [], measure.Targets()
    for clients, n, features in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            written(Path(folder), clients, n, features)
            for kind in SOURCES:
                tried: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
                for _ in range(3):
                    for name, source in sources.items():
                        tried[name].append(apart(source, Path(folder) / f"{kind}.toml"))
                best = {
                    name: min(each, key=lambda one: one["seconds"]) for name, each in tried.items()
                }
                figures = [f for one in best.values() for f in (one["seconds"], one["copies"])]
                rows.append((clients, n, kind, *figures))
                same = len({one["digest"] for one in best.values()}) == 1
                targets.need(same, f"{clients:,} clients by {kind}: the same bits everywhere")
                limit = 2.0 if clients == 1000 else 10.0
                if n == 10_000:
                    what = f"{clients:,} clients by {kind} in {figures[0]:.2f} s, under {limit:g} s"
                    targets.need(figures[0] < limit, what)
    heads = [f"{name} {what}" for name in sources for what in ("seconds", "memory")]
    measure.show("loading", ("clients", "rows", "clients by", *heads), rows)
    targets.finish()


if __name__ == "__main__":
    main()
