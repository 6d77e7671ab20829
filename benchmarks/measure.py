"""How every benchmark here measures: CPU seconds, variants alternating in one run, the least of
several repeats.

``python SCRIPT --save`` also writes what the script prints into ``results/SCRIPT.json``, of which
``render.py`` makes README.md.

One thread: run with OMP_NUM_THREADS=1 (set here, before NumPy loads, unless the caller chose
otherwise). CPU time is the process's, so other work on the machine disturbs little. Peak memory is
that of a process of its own.
"""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


HOME, PACKAGE = Path(__file__).resolve().parents[1], "bonafed"
RESULTS = Path(__file__).with_name("results")
SAVE = "--save" in sys.argv
if SAVE:
    sys.argv.remove("--save")
    if "--quick" in sys.argv:
        sys.exit("--quick measures small cases only: give --save without it.")


def at_commit(commit: str, folder: Path, *places: str) -> None:
    """Unpack ``src`` and other places as they stood at a commit, under today's name of the package:
    early commits have another one.
    """
    command = ["git", "-C", str(HOME), "archive", commit, "src", *places]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    [package] = (each for each in (folder / "src").iterdir() if (each / "__init__.py").is_file())
    if package.name == PACKAGE:
        return
    for file in (file for file in folder.rglob("*") if file.is_file()):
        text = file.read_bytes().replace(package.name.encode(), PACKAGE.encode())
        file.write_bytes(text.replace(package.name.upper().encode(), PACKAGE.upper().encode()))
    package.rename(package.with_name(PACKAGE))


@dataclass(frozen=True)
class Timed:
    """Least CPU seconds of a variant, and what its last call returned."""

    seconds: float
    result: Any


def alternate(variants: Mapping[str, Callable[[], Any]], repeats: int = 3) -> dict[str, Timed]:
    """Run all variants in turn, ``repeats`` times over; each keeps its least CPU time."""
    best = {name: Timed(math.inf, None) for name in variants}
    for _ in range(repeats):
        for name, run in variants.items():
            began = time.process_time()
            result = run()
            best[name] = Timed(min(best[name].seconds, time.process_time() - began), result)
    return best


@contextmanager
def stopwatch(owner: Any, name: str, total: dict[str, float]) -> Iterator[None]:
    """Add up the CPU seconds (and count the calls, "<name> calls") spent inside ``owner.name``
    while the block runs.
    """
    function = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            total[name] = total.get(name, 0.0) + time.process_time() - began
            total[f"{name} calls"] = total.get(f"{name} calls", 0) + 1

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, function)


def apart(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script of this folder in a process of its own; its last line is JSON. Adds "peak", its
    peak MiB.
    """
    code = (
        f"import json, resource, runpy, sys; sys.argv = {[script, *map(str, arguments)]!r};"
        f" sys.path.insert(0, {str(Path(__file__).parent)!r});"
        f" runpy.run_path({str(Path(__file__).with_name(script))!r}, run_name='__main__');"
        " print(json.dumps({'peak': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{script} {' '.join(map(str, arguments))} failed:\n{done.stderr[-2000:]}"
        )
    *_, told, peak = done.stdout.strip().splitlines()
    return json.loads(told) | json.loads(peak)


@dataclass(frozen=True)
class Forked:
    """What a forked process told, the CPU seconds that it took, and whether it came to its end."""

    told: list[tuple[Any, ...]]
    seconds: float
    ended: bool

    def last(self, name: str) -> Any:
        """The rest of the last tuple that begins with ``name``; None where none does."""
        return next((rest for first, *rest in reversed(self.told) if first == name), None)

    def all(self, name: str) -> list[Any]:
        return [rest for first, *rest in self.told if first == name]


def forked(work: Callable[[Callable[..., None]], None], most: float) -> Forked:
    """Run ``work(tell)`` in a fork of this process, which has its imports and compiled loops, and
    is killed after ``most`` seconds on the wall; it kills itself after the CPU seconds that
    `cut_after` gives it. ``tell("name", ...)`` sends a tuple here.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        receiver.close()
        try:
            work(lambda *words: sender.send(words))
        except Exception as error:  # such as a problem that is refused
            sender.send(("error", f"{type(error).__name__}: {error}"))

    process = context.Process(target=child)
    told: list[tuple[Any, ...]] = []
    before, end = _children(), time.monotonic() + most
    process.start()
    sender.close()
    try:
        while receiver.poll(max(0.0, end - time.monotonic())):
            told.append(receiver.recv())
    except EOFError:
        process.join(max(1.0, end - time.monotonic()))
    finally:
        process.kill()
        process.join()
        receiver.close()
    return Forked(told, _children() - before, process.exitcode == 0)


def cut_after(seconds: float) -> None:
    """Kill this process when it has taken so many CPU seconds more; 0 takes the limit away."""
    signal.setitimer(signal.ITIMER_PROF, seconds)  # whose signal kills where nothing handles it


def _children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def peak() -> float:
    """MiB that this process held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    head, *lines = (f"| {' | '.join(map(_cell, row))} |" for row in (columns, *rows))
    return "\n".join([head, "|---" * len(columns) + "|", *lines])


def show(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; with ``--save`` it replaces the table of this name in the results."""
    print(f"\n{table(columns, rows)}\n", flush=True)
    cells = [[_plain(value) for value in row] for row in rows]
    save("tables", name, {"columns": [*columns], "rows": cells})


def save(kind: Literal["tables", "targets"], name: str, found: Mapping[str, Any]) -> None:
    """With ``--save``: write what was found, when, at which commit and on what machine."""
    if not SAVE:
        return
    script = Path(sys.argv[0])
    path = RESULTS / f"{script.stem}.json"
    start = {"script": script.name, "tables": {}, "targets": {}}
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else start
    now = {"date": time.strftime("%Y-%m-%d"), "commit": commit(), "machine": machine()}
    held[kind][name] = {"measured": now, **found}
    RESULTS.mkdir(exist_ok=True)
    path.write_text(written(held), encoding="utf-8")


def written(held: Mapping[str, Any]) -> str:
    """JSON with each list of plain values, such as a row, on one line."""
    text = json.dumps(held, indent=1, ensure_ascii=False)
    lists = re.compile(r"\[\n\s+([^\[\]{}]*?)\n\s*\]")
    return lists.sub(lambda m: "[" + re.sub(r",\n\s+", ", ", m[1]) + "]", text) + "\n"


def commit() -> str:
    """The commit of the checkout, with "-dirty" where sources or scripts differ from it."""
    git = ["git", "-C", str(HOME)]
    at = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True)
    read = ("src", "tests", "benchmarks/*.py", "benchmarks/*/*.py")
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *read], check=False).returncode
    return at.stdout.decode().strip() + "-dirty" * bool(changed)


def _plain(value: Any) -> Any:
    """A cell as JSON has it: six digits of a number, words for what is not finite."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(f"{value:.6g}")
    return str(value)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def machine(*packages: str) -> str:
    """The machine in general words: cores, Python, versions."""
    known = []
    for name in ("numpy", "scipy", "numba", "clarabel", *packages):
        try:
            known.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            known.append(f"{name} missing")
    threads = os.environ["OMP_NUM_THREADS"]
    return (
        f"{os.cpu_count()} cores, {threads} thread(s) used, Python {platform.python_version()},"
        f" {', '.join(known)}"
    )


@dataclass
class Targets:
    """What must hold; ``finish`` prints the verdicts and exits with 1 when one is missed."""

    verdicts: list[tuple[str, bool]] = field(default_factory=list)

    def need(self, holds: bool, text: str) -> None:
        print(f"{'met   ' if holds else 'MISSED'} {text}", flush=True)
        self.verdicts.append((text, bool(holds)))

    def finish(self) -> None:
        save("targets", " ".join(sys.argv[1:]), {"verdicts": self.verdicts})
        sys.exit(0 if all(met for _, met in self.verdicts) else 1)
