"""Sound files of every kind that the software reads, made once: the fuzzers start from copies."""

from __future__ import annotations

import contextlib
import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import small_run
from toy import AsyncToy, Toy, federation

from bonafed.config.config import read_config
from bonafed.engines import InProcess, VirtualClock
from bonafed.privacy.accounting import Release
from bonafed.privacy.budget import Budget
from bonafed.privacy.ledger import Book
from bonafed.runs.pipeline import begin, run_study
from bonafed.runs.sections.section import Silent
from bonafed.runs.work import Work

RUNS = {
    "plain": small_run.CONFIG,
    "clock": small_run.CLOCK,
    "kept": small_run.KEPT,
    "path": small_run.CONFIG.replace("radius = 0.05", 'radius = "auto"')
    + small_run.sweep("robust.radius", 0.01, 0.1),
    "private": small_run.PRIVATE,
    "charged": small_run.PRIVATE + small_run.sweep("privacy.epsilon", 0.5, 1.0),
}
CONFIGS = {**RUNS, "tail": small_run.TAIL, "ranks": small_run.RANKS, "mixed": small_run.MIXED}
# with checkpoints, the objective's trace and the violations'; with points of a charged sweep
# model and round of the interruption
WORKS = {"clock": ("", 7), "kept": ("unconstrained", 4), "charged": ("epsilon 1", 4)}
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Corpus:
    """The folder of all sound files.

    Attributes
    ----------
    runs : the folders of finished runs, by kind
    works : folders of runs that were interrupted
    """

    folder: Path
    runs: dict[str, Path]
    works: dict[str, Path]

    @property
    def table(self) -> Path:
        return self.folder / "plain" / "clinics.csv"


def make(folder: Path, names: tuple[str, ...] = tuple(RUNS)) -> Corpus:
    """All sound files below a folder."""
    runs, works = {}, {}
    for name in names:
        inside = folder / name
        inside.mkdir(parents=True)
        data = small_run.wards(small_run.table()) if name == "kept" else None
        private = name in ("private", "charged")
        finish = small_run.private_run if private else small_run.small_run
        runs[name] = finish(inside, draw=name == "plain", data=data, text=RUNS[name]).path
        if name in WORKS:
            works[name] = _interrupted(folder / f"{name}-work", RUNS[name], data, WORKS[name])
    _checkpoints(folder)
    ledger_file(folder / "book.json")
    (folder / "delays.csv").write_text(
        "client,delay\n" + "".join(f"site {c}{k},{1 + k}\n" for k, c in enumerate("abcde"))
    )
    packed = folder / "clinics.csv.gz"
    packed.write_bytes(gzip.compress((folder / names[0] / "clinics.csv").read_bytes()))
    return Corpus(folder, runs, works)


class Stopping(Silent):
    """Ctrl-C in a round of a model."""

    def __init__(self, model: str, round_: int) -> None:
        self.model, self.round = model, round_

    def watch(self, model: str) -> Any:
        def stop(row: Any, state: object) -> None:
            if model.startswith(self.model) and row["round"] == self.round:
                raise KeyboardInterrupt

        return stop


def _interrupted(folder: Path, text: str, data: str | None, where: tuple[str, int]) -> Path:
    """The working folder of a run that was interrupted."""
    folder.mkdir()
    config = read_config(small_run.write_config(folder, text, data))
    with (
        contextlib.suppress(KeyboardInterrupt),
        Work.begin(config, folder / "runs", "clinics") as work,
    ):
        study = begin(work.config.moved_to(work.folder.absolute()), work.folder)
        run_study(study, folder / "runs", Stopping(*where))
    return work.folder


def _checkpoints(folder: Path) -> None:
    """Checkpoints of both engines and a log."""
    InProcess(checkpoint=folder / "toy.checkpoint", block_size=2).run(
        Toy(), federation(), max_rounds=3
    )
    clock = VirtualClock(checkpoint=folder / "clock.checkpoint")
    clock.run(AsyncToy(), federation(), max_rounds=5)
    log = VirtualClock().run(AsyncToy(), federation()).log
    assert log is not None
    log.save(folder / "events.bft")


def ledger_file(path: Path) -> None:
    """A ledger file with an ended and an open run."""
    book, budget = Book(path), Budget(3.0, 1e-3)
    plan = {"North": (Release("gaussian", 20.0, 4),), "East": (Release("laplace", 40.0, 2),)}
    book.close_run(book.open_run(plan, budget, "first"), plan)
    book.open_run(plan, budget, "second")


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder or file."""
    if source.is_dir():
        return Path(shutil.copytree(source, target))
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(source, target))


def config_texts() -> dict[str, str]:
    """Sound configurations: those of the small runs and the examples."""
    texts = {path.stem: path.read_text("utf-8") for path in sorted(EXAMPLES.glob("*.toml"))}
    return CONFIGS | texts


__all__ = ["CONFIGS", "RUNS", "Corpus", "config_texts", "copied", "make", "read_config"]
