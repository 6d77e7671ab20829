"""What a private run costs, planned and written down before the data are touched, and settled when
it ends.

The book of ``Budget(book=...)`` takes the whole run in advance, in this order, so that a process
may die anywhere:

1. a note of the run's number beside the checkpoint, in ``*.account``;
2. the run in the book, "charged" for all that it may release; the note gets the book's digest;
3. the clients' keys of noise in the checkpoint, before any of them answers;
4. the run in the book as "open": only now clients answer.

A run that died before 4 has released nothing, so that it goes on from its start, with other keys,
for the charge that stands. One that died later goes on from its checkpoint: it gives its answers
again with the same noise, and its noise is the one in the book. How a run ends is how it is
settled:

- it ends, or Ctrl-C ends it: at the rounds that were answered;
- a client or a watcher raises: at one round more than were finished; before 4 at nothing;
- anything else, such as a machine that dies: not at all, everything it might have released stays
  charged.

Answers given again must be equal to the bit, else there would be two of them: a private run goes on
only in the engine, mode and block size, and with the values of schedules, that it began with, and
should on the same machine. Without a book nothing is known of other runs, nor of what a process
that died had released beyond its checkpoint; the budget holds for the run in any case.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quorate.algorithms.federated.private_admm.private_admm import PrivateADMM
from quorate.algorithms.federated.private_admm.settings import everybody
from quorate.engines.checkpoint import CheckpointError
from quorate.privacy.accounting import Release, noise_for
from quorate.privacy.ledger import Ledger, with_releases
from quorate.privacy.ledger_file import Book, new_name


@dataclass
class Note:
    """The file beside a checkpoint: the number of the run in the book, and the book's digest when
    it last wrote.
    """

    path: Path
    old: tuple[str, str] | None = None  # what a run before has left

    @classmethod
    def beside(cls, checkpoint: str | os.PathLike[str]) -> Note:
        path = Path(checkpoint)
        return cls(path.with_name(path.name + ".account"))

    def read(self) -> tuple[str, str]:
        number, _, digest = self.path.read_text(encoding="utf-8").strip().partition("\n")
        return number, digest

    def write(self, number: str, digest: str = "") -> None:
        part = self.path.with_name(self.path.name + ".part")
        with open(part, "w", encoding="utf-8") as file:
            file.write(f"{number}\n{digest}")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)

    def put_back(self) -> None:
        """As it was before a run that released nothing."""
        if self.old is None:
            self.path.unlink(missing_ok=True)
        else:
            self.write(*self.old)


def was_begun(checkpoint: str | os.PathLike[str] | None) -> bool:
    """Whether a run with this checkpoint can go on: it has one, or was charged and died before it
    had.
    """
    return checkpoint is not None and (
        Path(checkpoint).is_file() or Note.beside(checkpoint).path.is_file()
    )


@dataclass
class Charge:
    """The open account of a run."""

    algorithm: Any
    fed: Any  # all who take part
    engine: Any
    resume: bool
    given: tuple[str, ...]  # the clients that have rows
    book: Book | None = None
    note: Note | None = None
    number: str = ""
    before: dict[str, tuple[Release, ...]] | None = None
    old: dict[str, Any] | None = None  # what the book said of a run that goes on
    begun: bool = True  # clients may answer
    ledger: Ledger | None = None
    rounds: int = 0  # finished, as far as seen
    settled: bool = False

    def run(self, seed: int, watch: Sequence[Any]) -> Any:
        """The run; of the clients that have rows."""
        resume = self.resume
        plan = self.algorithm.plan if isinstance(self.algorithm, PrivateADMM) else None
        noisy = plan is not None and plan.kind is not None
        if not self.begun or (noisy and not resume and _checkpoint(self.engine)):
            resume = self._begin(seed)
        run = self.engine.run(
            self.algorithm, self.fed, seed=seed, watch=[self._see, *watch], resume=resume
        )
        return self._ended(run)

    def _begin(self, seed: int) -> bool:
        """Keep the keys of noise, and say that clients may answer; whether the run can start from
        what was kept.
        """
        kept = False

        def keep() -> None:
            nonlocal kept
            start = self.engine.run(self.algorithm, self.fed, seed=seed, max_rounds=0)
            kept = all(memory is not None for memory in start.memories)
            # an engine that starts clients later: what it wrote could go on with other keys
            if not kept:
                Path(self.engine.checkpoint).unlink(missing_ok=True)

        if self.book is None:
            keep()
        else:
            self.book.begin_run(self.number, keep)
            self._noted()
        self.begun = True
        return kept

    def _see(self, row: dict[str, Any], state: Any) -> None:
        self.rounds = row["round"]

    def _noted(self) -> None:
        if self.note is not None and self.book is not None:
            self.note.write(self.number, self.book.digest())

    def __enter__(self) -> Charge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if self.book is None or self.settled or not isinstance(error, Exception):
            return
        if not self.begun:
            # where it cannot be written the run stays charged
            with contextlib.suppress(OSError, ValueError):
                if self.book.drop_run(self.number) and self.note is not None:
                    self.note.put_back()
            return
        # before anything ran
        if isinstance(error, CheckpointError) and self.old is not None and not self.rounds:
            self.book.restore_run(self.old)
            return
        least = {} if self.old is None else self.old["releases"]
        known = {
            client: sum(count for *_, count in least.get(client, ())) for client in self.fed.names
        }
        most = self.algorithm.max_rounds
        given = {
            c: min(max(k, self.rounds + 1) if self.rounds else k + 1, most)
            for c, k in known.items()
        }
        self._settle({client: self.algorithm.releases(k) for client, k in given.items()})

    def _ended(self, run: Any) -> Any:
        """The run, its cost settled."""
        if isinstance(self.algorithm, PrivateADMM):
            self.ledger = self.algorithm.ledger(self.fed, run.memories, self.before or {})
            if self.book is not None and self.ledger is not None:
                self.ledger = with_releases(self.ledger, *self._settle(dict(self.ledger.releases)))
        self.settled = True
        if self.fed.names == self.given:
            return run
        own = [self.fed.position(name) for name in self.given]
        bytes_ = run.by_client(self.fed.n_clients)[:, own]
        return replace(run, memories=tuple(run.memories[i] for i in own), exchanged=bytes_)

    def _settle(
        self, releases: dict[str, tuple[Release, ...]]
    ) -> tuple[dict[str, tuple[Release, ...]], str]:
        """What stands in the book, and its digest; where it cannot be written all stays charged and
        the run is kept.
        """
        assert self.book is not None
        try:
            final = self.book.close_run(self.number, releases)
            self._noted()
            return final, self.book.digest()
        except (OSError, ValueError) as error:
            told = (
                f"the book {self.book.path.name} could not be settled: {error} All that the run"
                " might have released"
            )
            warnings.warn(
                f"{told} stays charged, if the book still has the run.",
                RuntimeWarning,
                stacklevel=5,
            )
            return releases, ""


def charged(
    algorithm: Any, problem: Any, fed: Any, data: Any, engine: Any, resume: bool
) -> tuple[Any, Charge]:
    """The algorithm with its noise planned, and the account of its run.

    Parameters
    ----------
    problem, fed : as given, the clients that have rows; all whose sizes are declared take part
    data : the rows as a concrete problem has them, for algorithms that cost nothing

    Raises
    ------
    BudgetSpentError
        where the run would overspend; nothing was touched
    ValueError
        where the book is damaged, or the run to go on with is not known
    """
    if not isinstance(algorithm, PrivateADMM):
        return algorithm, Charge(algorithm, data, engine, resume, fed.names)
    given, budget = fed.names, problem.privacy
    problem, fed = problem.at(everybody(problem, fed))
    algorithm = replace(algorithm, problem=problem)
    if budget is None or budget.book is None:
        algorithm = _bound(algorithm.planned(problem, fed), engine)
        return algorithm, Charge(algorithm, fed, engine, resume, given)
    book, note = Book(budget.book), _note(engine, resume)
    number = _to_go_on(book, note, _checkpoint(engine)) if resume and note is not None else ""
    charge = Charge(algorithm, fed, engine, resume, given, book, note, number)
    if number:
        algorithm = _bound(
            _as_begun(algorithm, problem, fed, book, number), engine, book.place(number)
        )
        charge.old, charge.begun = book.reopen_run(number, budget), book.state(number) != "charged"
    else:
        ways = {*book.spent(fed.names, adjacency=budget.adjacency).values()}
        most = max(
            ways, key=lambda own: noise_for(budget, algorithm.max_rounds, algorithm.mechanism, own)
        )
        algorithm = _bound(algorithm.planned(problem, fed, most), engine)
        charge.number, charge.begun = _opened(algorithm, fed, book, budget, note), note is None
        algorithm = replace(
            algorithm, plan=replace(algorithm.plan, place=book.place(charge.number))
        )
    charge.before = book.spent(fed.names, charge.number, budget.adjacency)
    charge.algorithm = algorithm
    charge._noted()
    return algorithm, charge


def _opened(algorithm: Any, fed: Any, book: Book, budget: Any, note: Note | None) -> str:
    """The number of the run, noted first and then written into the book."""
    number = new_name()
    if note is not None:
        note.old = note.read() if note.path.exists() else None
        note.write(number)
    try:
        releases = {c: algorithm.releases(algorithm.max_rounds) for c in fed.names}
        return book.open_run(releases, budget, number, "open" if note is None else "charged")
    except Exception:
        if note is not None:
            note.put_back()
        raise


def _checkpoint(engine: Any) -> Path | None:
    path = getattr(engine, "checkpoint", None)
    return None if path is None else Path(path)


def _note(engine: Any, resume: bool) -> Note | None:
    """Where the number of the run in the book is kept."""
    checkpoint = _checkpoint(engine)
    if checkpoint is None:
        if resume:
            raise ValueError("resume=True needs a checkpoint: InProcess(checkpoint=PATH)")
        return None
    if not checkpoint.parent.is_dir():
        raise FileNotFoundError(
            f"no folder {checkpoint.parent} for the checkpoint {checkpoint.name}: create it first"
        )
    note = Note.beside(checkpoint)
    if resume and not checkpoint.exists() and not note.path.exists():
        raise CheckpointError(
            f"no checkpoint at {checkpoint}: nothing to resume. Run with resume=False"
        )
    if resume and not note.path.exists():
        raise CheckpointError(
            f"{note.path.name} is missing beside the checkpoint: which run of the book it belongs"
            " to is unknown. Restore the file, or run with resume=False, which is another run and"
            " is charged as one."
        )
    return note


def _to_go_on(book: Book, note: Note, checkpoint: Path | None) -> str:
    """The number of the run to go on with; "" where it died before it was charged."""
    number, digest = note.read()
    if not digest and not book.has(number):
        return ""
    if digest and not book.knows(digest):
        raise ValueError(
            f"the book {book.path.name} is older than {note.path.name}, which was written beside"
            " the checkpoint: what has been spent is unknown, so nothing may be released. Restore"
            " the newest copy of the book."
        )
    if book.state(number) != "charged" and checkpoint is not None and not checkpoint.exists():
        raise CheckpointError(
            f"no checkpoint at {checkpoint}, though {note.path.name} says that its run was begun:"
            " what it may have released stays charged, and begun again its noise could be another."
            " Restore the checkpoint, or run with resume=False, which is charged as another run."
        )
    return number


def _as_begun(algorithm: Any, problem: Any, fed: Any, book: Book, number: str) -> Any:
    """The algorithm with the noise that the book says; refused where other answers were planned."""
    algorithm = algorithm.planned(problem, fed)
    planned = book.planned(number)
    plan = next(iter(planned.values()), ())
    if len(plan) != 1 or set(planned) != set(fed.names):
        raise CheckpointError(
            "the run in the book is one of other clients. Resume with what it was begun with."
        )
    was, now = plan[0], algorithm.releases(algorithm.max_rounds)[0]
    if (was.mechanism, was.count) != (now.mechanism, now.count):
        raise CheckpointError(
            f"the run was begun with {was.count} rounds of {was.mechanism} noise, got {now.count}"
            f" of {now.mechanism} noise: resume with what it was begun with, or run with"
            " resume=False, which is charged as another run."
        )
    return replace(algorithm, plan=replace(algorithm.plan, multiplier=was.noise))


def _bound(algorithm: Any, engine: Any, place: int = 0) -> Any:
    """The plan with its place in the book, and the engine and the values of schedules, with which
    it has to stay.
    """
    plan = algorithm.plan
    if plan.kind is None:
        return algorithm
    way = (
        f"{type(engine).__name__} {getattr(engine, 'mode', '')} {getattr(engine, 'block_size', '')}"
    )
    if schedules := algorithm.schedules():  # a function's name does not say what it gives
        way += (
            ", schedules"
            f" {hashlib.blake2b(np.array(schedules).tobytes(), digest_size=16).hexdigest()}"
        )
    return replace(algorithm, plan=replace(plan, place=place, engine=way))
