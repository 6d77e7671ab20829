"""What the first run on a machine costs beyond every later one: CPU seconds of `bonafed run`.

Every example runs in a process of its own, first with an empty cache of compiled kernels, then
again with the cache that the first run has left.

    python benchmarks/cold.py [EXAMPLE.toml ...]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import measure

LIMIT = 8.0  # CPU seconds that a cold run may take beyond a warm one
EXAMPLES = Path(__file__).parents[1] / "examples"


def seconds(example: Path, folder: str) -> tuple[float, bool]:
    """CPU seconds of a run, and whether it said that it compiles."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "bonafed", "run", str(example), "--out", f"{folder}/runs"]
    cache = {"NUMBA_CACHE_DIR": f"{folder}/cache", "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(command, env=os.environ | cache, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{example.name}: exit {ran.returncode}\n{ran.stderr}")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = spent.ru_utime + spent.ru_stime - began.ru_utime - began.ru_stime
    return cpu, "compiling numerical kernels" in ran.stderr + ran.stdout


def main(examples: list[Path]) -> None:
    rows, fine = [], True
    for example in examples:
        with tempfile.TemporaryDirectory() as folder:
            (cold, said), (warm, again) = seconds(example, folder), seconds(example, folder)
        more = cold - warm
        rows.append((example.stem, f"{cold:.1f}", f"{warm:.1f}", f"{more:.1f}", said, again))
        fine &= said and not again and more <= LIMIT
    columns = ("example", "cold", "warm", "more", "says that it compiles", "warm says it")
    measure.show("cold", columns, rows)
    if not fine:
        raise SystemExit(f"more than {LIMIT} CPU s, or not said")


if __name__ == "__main__":
    main([*map(Path, sys.argv[1:])] or sorted(EXAMPLES.glob("*.toml")))
