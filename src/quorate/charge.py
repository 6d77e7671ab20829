"""What a private run costs, planned and written down before the data are touched, and settled when it ends.

The book of ``Budget(book=...)`` takes the whole run in advance. A run that goes on from a checkpoint gives its answers
again with the same noise, so it stands under its old number, which is kept beside the checkpoint, in ``*.account``, and
its noise is the one in the book. How a run ends is how it is settled:

- it ends, or Ctrl-C ends it: at the rounds that were answered;
- a client or a watcher raises: at one round more than were finished;
- anything else, such as a machine that dies: not at all, everything it might have released stays charged.

Answers given again must be equal to the bit, else there would be two of them: a private run goes on only in the engine,
mode and block size, and with the values of schedules, that it began with, and should on the same machine. Without a
book nothing is known of other runs, nor of what a process that died had released beyond its checkpoint; the budget
holds for the run in any case.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quorate.engines.checkpoint import CheckpointError
from quorate.privacy.accounting import Release, noise_for
from quorate.privacy.ledger import Book, Ledger, with_releases


@dataclass
class Charge:
    """The open account of a run."""

    algorithm: Any = None
    fed: Any = None
    book: Book | None = None
    number: str = ""
    before: dict[str, tuple[Release, ...]] | None = None
    old: dict[str, Any] | None = None  # what the book said of a run that goes on
    ledger: Ledger | None = None
    rounds: int = 0  # finished, as far as seen
    settled: bool = False

    def see(self, row: dict[str, Any], state: Any) -> None:
        """Watch the rounds go by."""
        self.rounds = row["round"]

    def __enter__(self) -> Charge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self.book is None or self.settled or not isinstance(error, Exception):
            return
        if isinstance(error, CheckpointError) and self.old is not None and not self.rounds:  # before anything ran
            self.book.restore_run(self.old)
            return
        least = {} if self.old is None else self.old["releases"]
        known = {client: sum(count for *_, count in least.get(client, ())) for client in self.fed.clients}
        most = self.algorithm.max_rounds
        given = {c: min(max(k, self.rounds + 1) if self.rounds else k + 1, most) for c, k in known.items()}
        self._settle({client: self.algorithm.releases(k) for client, k in given.items()})

    def ended(self, run: Any) -> Any:
        """The run, its cost settled."""
        if hasattr(self.algorithm, "ledger"):
            self.ledger = self.algorithm.ledger(self.fed, run.memories, self.before or {})
            if self.book is not None and self.ledger is not None:
                self.ledger = with_releases(self.ledger, self._settle(dict(self.ledger.releases)))
        self.settled = True
        return run

    def _settle(self, releases: dict[str, tuple[Release, ...]]) -> dict[str, tuple[Release, ...]]:
        """What stands in the book; where it cannot be written all stays charged, and the run's result is not lost."""
        assert self.book is not None
        try:
            return self.book.close_run(self.number, releases)
        except (OSError, ValueError) as error:
            told = f"the book {self.book.path.name} could not be settled: {error} All that the run might have released"
            warnings.warn(f"{told} stays charged, if the book still has the run.", RuntimeWarning, stacklevel=4)
            return releases


def charged(algorithm: Any, problem: Any, fed: Any, engine: Any, resume: bool) -> tuple[Any, Charge]:
    """The algorithm with its noise planned, and the account of its run.

    Raises
    ------
    BudgetSpentError
        where the run would overspend; nothing was touched
    ValueError
        where the book is damaged, or the run to go on with is not known
    """
    if not hasattr(algorithm, "planned"):
        return algorithm, Charge()
    budget = problem.privacy
    if budget is None or budget.book is None:
        algorithm = _bound(algorithm.planned(problem, fed), engine)
        return algorithm, Charge(algorithm, fed)
    book, note = Book(budget.book), _note(engine, resume)
    if resume:
        assert note is not None
        number = note.read_text(encoding="utf-8").strip()
        algorithm = _bound(_as_begun(algorithm, problem, fed, book, number), engine, book.place(number))
        old = book.reopen_run(number, budget)
        before = book.spent(fed.clients, number, budget.adjacency)
    else:
        before, old = book.spent(fed.clients, adjacency=budget.adjacency), None
        ways = set(before.values())
        most = max(ways, key=lambda own: noise_for(budget, algorithm.max_rounds, algorithm.mechanism, own))
        algorithm = _bound(algorithm.planned(problem, fed, most), engine)
        number = book.open_run({c: algorithm.releases(algorithm.max_rounds) for c in fed.clients}, budget)
        if note is not None:
            part = note.with_name(note.name + ".part")
            part.write_text(number, encoding="utf-8")
            os.replace(part, note)
        algorithm = replace(algorithm, plan=replace(algorithm.plan, place=book.place(number)))
    return algorithm, Charge(algorithm, fed, book, number, before, old)


def _note(engine: Any, resume: bool) -> Path | None:
    """Where the number of the run in the book is kept."""
    path = getattr(engine, "checkpoint", None)
    if path is None:
        if resume:
            raise ValueError("resume=True needs a checkpoint: InProcess(checkpoint=PATH)")
        return None
    checkpoint = Path(path)
    note = checkpoint.with_name(checkpoint.name + ".account")
    if not checkpoint.parent.is_dir():
        raise FileNotFoundError(f"no folder {checkpoint.parent} for the checkpoint {checkpoint.name}: create it first")
    if resume and not checkpoint.exists() and note.exists():
        raise CheckpointError(
            f"no checkpoint at {checkpoint}, though {note.name} says that its run was begun and charged: it ended "
            "before its first round was written, and what it may have released stays charged: begun again its noise "
            "could be another. Restore the checkpoint, or run with resume=False, which is charged as another run."
        )
    if resume and not checkpoint.exists():
        raise CheckpointError(f"no checkpoint at {checkpoint}: nothing to resume. Run with resume=False")
    if resume and not note.exists():
        raise CheckpointError(
            f"{note.name} is missing beside the checkpoint: which run of the book it belongs to is unknown. Restore "
            "the file, or run with resume=False, which is another run and is charged as one."
        )
    return note


def _as_begun(algorithm: Any, problem: Any, fed: Any, book: Book, number: str) -> Any:
    """The algorithm with the noise that the book says; refused where other answers were planned."""
    algorithm = algorithm.planned(problem, fed)
    planned = book.planned(number)
    plan = next(iter(planned.values()), ())
    if len(plan) != 1 or set(planned) != set(fed.clients):
        raise CheckpointError("the run in the book is one of other clients. Resume with what it was begun with.")
    was, now = plan[0], algorithm.releases(algorithm.max_rounds)[0]
    if (was.mechanism, was.count) != (now.mechanism, now.count):
        raise CheckpointError(
            f"the run was begun with {was.count} rounds of {was.mechanism} noise, got {now.count} of {now.mechanism} "
            "noise: resume with what it was begun with, or run with resume=False, which is charged as another run."
        )
    return replace(algorithm, plan=replace(algorithm.plan, multiplier=was.noise))


def _bound(algorithm: Any, engine: Any, place: int = 0) -> Any:
    """The plan with its place in the book, and the engine and the values of schedules, with which it has to stay."""
    plan = algorithm.plan
    if plan.kind is None:
        return algorithm
    way = f"{type(engine).__name__} {getattr(engine, 'mode', '')} {getattr(engine, 'block_size', '')}"
    if schedules := algorithm.schedules():  # a function's name does not say what it gives
        way += f", schedules {hashlib.blake2b(np.array(schedules).tobytes(), digest_size=16).hexdigest()}"
    return replace(algorithm, plan=replace(plan, place=place, engine=way))
