"""A table of 40,000 rows and 60 columns from `init` to `verify`: CPU seconds of each.

python benchmarks/large_table.py [--rows 40000] [--columns 60]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import measure
import untidy


def measured(folder: Path, *command: str) -> tuple[float, int]:
    """(CPU seconds, status) of one call of the command line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [sys.executable, "-m", "bonafed", *command]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--columns", type=int, default=60)
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        untidy.large(folder, asked.rows, asked.columns)
        size = (folder / "table.csv").stat().st_size / 1e6
        print(f"{asked.rows:,} x {asked.columns}, {size:.1f} MB\n")
        rows = []
        for command in (
            ("init", "table.csv", "--out", "q.toml"),
            ("run", "q.toml", "--out", "runs"),
            ("predict", "{run}", "table.csv", "--out", "p.csv"),
            ("verify", "{run}"),
        ):
            run = next(iter((folder / "runs").glob("*table")), folder)
            seconds, status = measured(folder, *(c.format(run=run) for c in command))
            rows.append((command[0], seconds, status))
            print(*rows[-1], sep=" | ", flush=True)
        measure.show("commands", ("command", "CPU s", "status"), rows)


if __name__ == "__main__":
    main()
