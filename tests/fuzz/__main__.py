"""Many mutated inputs, each in a process with limits on time and memory.

python -m tests.fuzz --cases 20000 --seed 0 [--kind table] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz import cases, corpus, laws

MEMORY = 8 << 30  # bytes of addresses that a case may take; compiled kernels need most of them


def work(made: corpus.Corpus, numbers: list[int], seed: int, kind: str, out: Connection) -> None:
    """Carry out these cases; the verdict of each is sent."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    home = Path(tempfile.mkdtemp(prefix="fuzz-"))
    os.chdir(home)
    for number in numbers:
        out.send((number, None, None))
        folder = home / str(number)
        known, verdict = cases.case(made, folder, seed, number, kind)
        out.send((number, known, verdict))
        if not verdict.broken:
            shutil.rmtree(folder, ignore_errors=True)
    out.send(None)


def supervised(
    made: corpus.Corpus, count: int, seed: int, kind: str, keep: Path, first: int
) -> collections.Counter[tuple[str, str]]:
    """All cases; a process that dies or hangs is a failure of its case, and another one goes on."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    slowest, left, began = (0.0, ""), list(range(first, first + count)), time.monotonic()
    while left:
        here, there = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=work, args=(made, left, seed, kind, there))
        process.start()
        there.close()
        current = left[0]
        while True:
            try:
                got = here.recv() if here.poll(6 * laws.LIMIT) else ("hang",)
            except EOFError:
                got = ("died",)
            if got is None:
                left = []
                break
            if len(got) == 1:  # no handler in the process could end it
                process.kill()
                counts["unknown", got[0]] += 1
                print(f"FAILED case {current}: {got[0]}", flush=True)
                left = left[left.index(current) + 1 :]
                break
            current, known, verdict = got
            if verdict is None:
                continue
            counts[known, verdict.name] += 1
            slowest = max(slowest, (verdict.seconds, f"case {current} ({known})"))
            if verdict.broken:
                print(
                    f"FAILED case {current} ({known}): {verdict.name}: {verdict.text}", flush=True
                )
                for source in Path(tempfile.gettempdir()).glob(f"fuzz-*/{current}"):
                    shutil.copytree(source, keep / str(current), dirs_exist_ok=True)
                    shutil.rmtree(source)
        process.join()
    print(f"slowest: {slowest[0]:.2f} s, {slowest[1]}; {time.monotonic() - began:.0f} s in all")
    return counts


def main() -> int:
    """The number of failures, as a status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--kind", default="", choices=["", *cases.KINDS])
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = corpus.make(Path(folder) / "corpus")
        counts = supervised(made, given.cases, given.seed, given.kind, given.keep, given.first)
    names = sorted({name for _, name in counts})
    print(f"{'kind':<16}" + "".join(f"{name:>18}" for name in names))
    for kind in (*cases.KINDS, "unknown"):
        row = [counts[kind, name] for name in names]
        if any(row):
            print(f"{kind:<16}" + "".join(f"{number:>18,}" for number in row))
    failures = sum(n for (_, name), n in counts.items() if name not in ("accepted", "refused"))
    print(f"{sum(counts.values()):,} cases, {failures} failures")
    return min(failures, 1)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main())
