"""Runs that are killed again and again, each time by SIGKILL in a fresh process, and gone on with.

    python tests/killed_runs.py --kills 100 --seed 0      # every example of examples/

A scenario is a configuration in a folder of its own. It is run once without interruption. Then it
is run, killed and resumed until it is finished, and has to be the same run: every file equal, but
for seconds and for what is drawn from them. After every kill the ledger file is held against all
answers that any process gave: none is uncharged, and no client gives two answers to one question.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked
from safetensors.numpy import load_file

from bonafed.privacy.ledger import Book

HOME = Path(__file__).resolve().parents[1]
EXAMPLES = HOME / "examples"
# of result.json: what differs between two runs that do the same, or follows from such a number
TIMES = ("seconds", "seal", "book", "files")


@dataclass
class Scenario:
    """A configuration, and where it is run: ``tables`` are files beside it, ``book`` is its ledger
    file, ``out`` where runs go, as the command line has it.
    """

    name: str
    text: str
    tables: dict[str, str] = field(default_factory=dict)
    book: str | None = None
    out: str = "runs"
    options: tuple[str, ...] = ("--quick",)

    def written(self, root: Path) -> Path:
        """The scenario in a folder ``root/study``, in which commands are given."""
        study = root / "study"
        study.mkdir(parents=True)
        for name, text in self.tables.items():
            (study / name).write_text(text)
        text = self.text.replace("BOOK", (self.book or "").replace("STUDY", str(study)))
        (study / "study.toml").write_text(text)
        return study

    def begin(self, study: Path) -> list[str]:
        """The command that starts the run."""
        return ["run", "study.toml", "--out", self.out.replace("STUDY", str(study)), *self.options]


@dataclass
class Ended:
    """How a process ended: its status (-9 where it was killed), what it said, its moments."""

    status: int
    said: str
    moments: list[str]


def process(
    root: Path, folder: Path, command: list[str], last: int | str = 0, after: float = 0
) -> Ended:
    """The command in a fresh process, which dies at moment ``last``, or ``after`` so many
    seconds.
    """
    output = root / "said"
    child = forked.begin(
        HOME / "tests" / "dying.py", str(root), str(last), *command, output=output, folder=folder
    )
    child.join(after or 300)
    if child.is_alive():
        child.kill()
        child.join()
    status, said = child.exitcode, output.read_text()
    assert status is not None
    child.close()
    file = root / "moments"
    moments = file.read_text().splitlines() if file.is_file() else []
    return Ended(status, said, moments)


# ------------------------------------------------------------------------------------- comparisons


def partial(study: Path, out: Path) -> Path | None:
    """The folder of the run that is not finished."""
    return next(iter(sorted(out.glob("*.partial"))), None)


def finished(out: Path) -> list[Path]:
    """The folders of finished runs."""
    return sorted(path.parent for path in out.glob("*/result.json"))


def timeless(value: Any) -> Any:
    """The value without what depends on the time."""
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def content(run: Path) -> dict[str, Any]:
    """All files of a run as they can be compared; of drawings and reports only that they exist."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.is_dir() or path.suffix in (".html", ".svg"):
            found[name] = "there"
        elif path.suffix == ".json":
            found[name] = timeless(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            found[name] = [timeless(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.suffix == ".safetensors":
            arrays = load_file(path)
            found[name] = {key: (a.shape, a.tobytes()) for key, a in arrays.items()}
        elif path.suffix == ".toml":
            lines = path.read_text().splitlines()
            found[name] = [line for line in lines if not line.startswith(("book", "path"))]
        else:
            found[name] = path.read_bytes()
    return found


def same(one: Path, other: Path) -> list[str]:
    """The files in which two runs differ."""
    a, b = content(one), content(other)
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def entries(book: Path) -> list[tuple[str, Any]]:
    """State and releases of every run in a ledger file."""
    return [(run["state"], run["releases"]) for run in Book(book).runs()] if book.exists() else []


def under_charged(book: Path, answers: Path) -> list[str]:
    """Answers that were given and are not charged, and questions that were answered in two ways."""
    given: dict[tuple[int, str, int], set[str]] = {}
    for line in answers.read_text().splitlines():
        place, client, round_, digest = line.split(" ")
        given.setdefault((int(place), client, int(round_)), set()).add(digest)
    wrong = [f"{key} answered in {len(ways)} ways" for key, ways in given.items() if len(ways) > 1]
    charged = {
        (place, client.replace(" ", "_")): sum(count for *_, count in releases)
        for place, (_, by_client) in enumerate(entries(book))
        for client, releases in by_client.items()
    }
    return wrong + [
        f"{(place, client, round_)} is not charged"
        for place, client, round_ in given
        if charged.get((place, client), 0) < round_
    ]


# ---------------------------------------------------------------------------------------- scenarios


def example(name: str, **changes: str) -> str:
    """An example without drawings, with some of its text replaced."""
    text = (EXAMPLES / f"{name}.toml").read_text().replace("[report]", "[report]\nhtml = false")
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def charged_example() -> str:
    """The private example as if its rows were private, and all of its runs in one ledger file."""
    text = example("private").replace("rehearsal = true ", 'book = "BOOK" ')
    return text.replace("values = [1, 2, 8]", "values = [1, 2]").replace("= 50", "= 12")


def scenarios() -> Iterator[Scenario]:
    """Every example, the private one also with a ledger file at a relative and an absolute path,
    and one with a sweep of radii.
    """
    for path in sorted(EXAMPLES.glob("*.toml")):
        yield Scenario(path.stem, example(path.stem))
    text = charged_example()
    yield Scenario("private-relative", text, book="books.json")
    yield Scenario("private-absolute", text, book="STUDY/../books.json", out="STUDY/../runs")
    radii = '[sweep]\nparameter = "robust.radius"\nvalues = [0.01, 0.1]\n[report]'
    yield Scenario("hospitals-sweep", example("hospitals").replace("[report]", radii))


@dataclass
class Tally:
    """What was counted over all kills."""

    kills: int = 0
    runs: int = 0
    nothing_kept: int = 0
    at: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Killer:
    """One scenario, killed at moments that ``rng`` chooses; ``start`` runs it without a kill."""

    def __init__(
        self,
        scenario: Scenario,
        root: Path,
        rng: random.Random,
        tally: Tally,
        start: Callable[[Path, Path, list[str]], Ended] = process,
    ) -> None:
        self.scenario, self.root, self.rng, self.tally = scenario, root, rng, tally
        study = scenario.written(root / "whole")
        began = time.monotonic()
        whole = start(root / "whole", study, scenario.begin(study))
        self.seconds, self.moments = time.monotonic() - began, whole.moments
        if whole.status not in (0, 3):
            raise RuntimeError(f"{scenario.name}: {whole.said}")
        self.status = whole.status
        (self.whole,) = finished(self.out(study))
        self.book = entries(self.ledger(study)) if scenario.book else []

    def out(self, study: Path) -> Path:
        """Where finished runs are."""
        return study / self.scenario.out.replace("STUDY", str(study))

    def ledger(self, study: Path) -> Path:
        """Where the ledger file is."""
        return study / (self.scenario.book or "").replace("STUDY", str(study))

    def chain(self, most: int, chosen: list[str] | None = None) -> None:
        """One run that is killed up to ``most`` times, or at the ``chosen`` moments of its
        processes, and then finished.
        """
        root = self.root / f"run-{self.tally.runs}"
        study = self.scenario.written(root)
        self.tally.runs += 1
        command, folder = self.scenario.begin(study), study
        for k in range(most):
            last, after = self.when(k, chosen)
            ended = process(root, folder, command, last, after)
            self.judge(root, study, ended)
            if ended.status != -signal.SIGKILL:
                break
            self.tally.kills += 1
            self.tally.at[label(ended.moments[-1]) if last and ended.moments else "time"] += 1
            if partial(study, self.out(study)) is None and finished(self.out(study)):
                ended.status = self.status  # it was only printing
                break
            command, folder = self.resumed(study)
        else:
            ended = process(root, folder, command)
        while ended.status == 2 and "nothing was kept" in ended.said:
            if finished(self.out(study)):  # killed when all was done
                ended.status = self.status
                break
            self.tally.nothing_kept += 1
            ended = process(root, study, self.scenario.begin(study))
        self.judge(root, study, ended)
        self.end(root, study, ended)
        shutil.rmtree(root)

    def when(self, k: int, chosen: list[str] | None) -> tuple[int | str, float]:
        """The moment at which the k-th process dies, or the seconds after which it does."""
        if chosen is not None:
            return chosen[k], 0.0
        if self.rng.random() < 0.15:
            return 0, self.seconds * self.rng.uniform(0.1, 0.9)
        return self.rng.randint(1, max(2, len(self.moments) // (1 if k == 0 else 2))), 0.0

    def resumed(self, study: Path) -> tuple[list[str], Path]:
        """The command that goes on, given in another folder, by a relative or an absolute path."""
        work = partial(study, self.out(study))
        if work is None:
            return self.scenario.begin(study), study
        folder = self.rng.choice([study, study.parent, Path("/")])
        absolute = folder == Path("/") or self.rng.random() < 0.5
        return ["run", "--resume", str(work) if absolute else os.path.relpath(work, folder)], folder

    def judge(self, root: Path, study: Path, ended: Ended) -> None:
        """What has to hold after every process."""
        if ended.status not in (0, 3, -signal.SIGKILL) and "nothing was kept" not in ended.said:
            self.fault(ended, f"ended with status {ended.status}")
        if "Traceback" in ended.said:
            self.fault(ended, "has a traceback")
        if self.scenario.book and (root / "answers").exists():
            for wrong in under_charged(self.ledger(study), root / "answers"):
                self.fault(ended, wrong)

    def end(self, root: Path, study: Path, ended: Ended) -> None:
        """What has to hold of a run that is finished."""
        out = self.out(study)
        if ended.status != self.status or len(finished(out)) != 1:
            self.fault(ended, f"status {ended.status}, finished: {finished(out)}")
            return
        for name in same(self.whole, finished(out)[0]):
            self.fault(ended, f"{name} differs")
        if litter := [p.name for p in out.iterdir() if p != finished(out)[0]]:
            self.fault(ended, f"left {litter}")
        if self.scenario.book and entries(self.ledger(study)) != self.book:
            self.fault(ended, "another ledger")

    def fault(self, ended: Ended, text: str) -> None:
        """Note what is wrong."""
        last = ended.moments[-1] if ended.moments else "the start"
        said = ended.said.strip().splitlines()[-1:]
        self.tally.wrong.append(f"{self.scenario.name}: {text} (after {last}; said {said})")


def label(moment: str) -> str:
    """What a moment is of: what is done, and to which kind of file."""
    what, _, path = moment.partition(" ")
    name = Path(path).name
    return f"{what} {name}" if not name.isdigit() else what


def main() -> None:
    """Kill runs of all scenarios, and say what was seen."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="scenarios whose name begins so")
    given = parser.parse_args()
    chosen = [s for s in scenarios() if s.name.startswith(given.only)]
    tally, each = Tally(), -(-given.kills // len(chosen))
    for number, scenario in enumerate(chosen):
        rng, before = random.Random(f"{given.seed} {scenario.name}"), tally.kills
        with tempfile.TemporaryDirectory() as folder:
            killer = Killer(scenario, Path(os.path.realpath(folder)), rng, tally)
            while tally.kills - before < each:
                killer.chain(min(4, each - (tally.kills - before)))
        print(
            f"{number + 1}/{len(chosen)} {scenario.name}: {tally.kills - before} kills over"
            f" {len(killer.moments)} moments, {killer.seconds:.1f} s without one;"
            f" {len(tally.wrong)} faults so far",
            flush=True,
        )
    print(
        f"{tally.kills} kills in {tally.runs} runs, {tally.nothing_kept} of which had kept nothing"
        f" and said so; {len(tally.wrong)} faults"
    )
    for wrong in tally.wrong:
        print(f"  {wrong}")
    for moment, count in sorted(tally.at.items()):
        print(f"    {count:>3} at {moment}")
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
