"""What a private run costs: planned and written down before the data are touched, and settled when
the run ends.

The ledger file of ``Budget(book=...)`` is charged for the whole run in advance, in this order, so
that a process may die anywhere:

1. a note of the run's number beside the checkpoint, in ``*.account``;
2. the run in the ledger file, "charged" for all that it may release; the note gets the digest of
   the file;
3. the clients' keys of noise in the checkpoint, before any of them answers;
4. the run in the ledger file as "open": only now clients answer.

A run that died before step 4 has released nothing, so that it starts again, with other keys, for
the charge that stands. One that died later goes on from its checkpoint: it gives its answers again
with the same noise, which is the noise in the ledger file. How a run ends decides how it is
settled:

- it ends, stalls, or Ctrl-C ends it: at the questions that each client was asked, also in a round
  that was begun and not finished, as answers of it may have come;
- a client or a watcher raises: at one round more than were finished; before step 4 at nothing;
- anything else, such as a machine that dies: not at all, everything it might have released stays
  charged.

Answers given again must be equal to the bit, else there would be two of them: a private run goes on
only in the engine, mode and block size, and with the values of schedules, that it began with, and
should on the same machine. Without a ledger file nothing is known of other processes' runs (those
of the same process are counted, `bonafed.privacy.odometer`), nor of what a process that died had
released beyond its checkpoint; the budget holds for the run in any case.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bonafed.algorithms.federated.private.mechanism import everybody
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.data.federation import Federation
from bonafed.engines.checkpoint import CheckpointError
from bonafed.engines.engine import Engine, Run, Watch
from bonafed.privacy import odometer
from bonafed.privacy.accounting import Release
from bonafed.privacy.ledger import Book, Ledger, new_name
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop, members
from bonafed.solution.plan import Plan
from bonafed.storage import OWN, write_whole
from bonafed.text import warn

Releases = dict[str, tuple[Release, ...]]  # by client


@dataclass
class Note:
    """The file beside a checkpoint: the number of the run in the ledger file, and the digest of the
    ledger file when the run last wrote it.
    """

    path: Path
    old: tuple[str, str] | None = None  # what a run before has left

    @classmethod
    def beside(cls, checkpoint: str | os.PathLike[str]) -> "Note":
        return cls(Path(f"{os.fspath(checkpoint)}.account"))

    def read(self) -> tuple[str, str]:
        text = self.path.read_text(encoding="utf-8", errors="replace")  # no ledger has that run
        number, _, digest = text.strip().partition("\n")
        return number, digest

    def write(self, number: str, digest: str = "") -> None:
        write_whole(self.path, f"{number}\n{digest}".encode(), OWN)

    def put_back(self) -> None:
        """Restore it as it was before a run that released nothing."""
        if self.old is None:
            self.path.unlink(missing_ok=True)
        else:
            self.write(*self.old)


def was_begun(checkpoint: str | os.PathLike[str] | None) -> bool:
    """Whether a run with this checkpoint can go on: it has one, or was charged and died before it
    had.
    """
    files = () if checkpoint is None else (Path(checkpoint), Note.beside(checkpoint).path)
    return any(file.is_file() for file in files)


@dataclass
class Charge:
    """The open account of a private run.

    Attributes
    ----------
    fed : all clients who take part
    with_rows : the names of those that have rows
    file : the ledger file, or None without one
    number : of the run in the ledger file
    before : what earlier runs in the ledger file have spent
    old : what the ledger file had about a run that goes on
    begun : whether clients may answer
    rounds : how many are finished
    count : what the process knows of a run without a ledger file
    """

    algorithm: PrivateMethod
    fed: Federation | Metadata
    engine: Engine
    resume: bool
    with_rows: tuple[str, ...]
    file: Book | None = None
    note: Note | None = None
    number: str = ""
    before: Releases | None = None
    old: dict[str, Any] | None = None
    begun: bool = True
    ledger: Ledger | None = None
    rounds: int = 0
    settled: bool = False
    count: odometer.Count | None = None

    def run(self, seed: int, watch: Sequence[Watch]) -> Run:
        """The run, of the clients that have rows."""
        resume, plan = self.resume, self.algorithm.plan

        def keep() -> None:
            self.engine.run(self.algorithm, self.fed, seed=seed, max_rounds=0)

        def see(row: dict[str, Any], state: object) -> None:
            self.rounds = row["round"]

        noisy = plan is not None and plan.kind is not None
        if not self.begun or (noisy and not resume and _checkpoint(self.engine)):
            # the keys of noise are kept, and it is written that clients may answer
            if self.file is None:
                keep()
            else:
                self.file.begin_run(self.number, keep)
                self.write_note()
            self.begun = resume = True  # from what was kept
        watch, run = [see, *watch], self.engine.run
        return self._ended(run(self.algorithm, self.fed, seed=seed, watch=watch, resume=resume))

    def write_note(self) -> None:
        """Write the digest of the ledger file beside the checkpoint."""
        if self.note is not None and self.file is not None:
            self.note.write(self.number, self.file.digest())

    def __enter__(self) -> "Charge":
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self.settled or not isinstance(error, Exception):
            return
        # of a run that goes on all stays counted until it has finished a round
        if self.rounds or not self.resume:
            self._count(max(map(self._most, self.fed.names)))
        if self.file is None:
            return
        if not self.begun:
            # where it cannot be written the run stays charged
            with contextlib.suppress(OSError, ValueError):
                if self.file.drop_run(self.number) and self.note is not None:
                    self.note.put_back()
        elif isinstance(error, CheckpointError) and self.old is not None and not self.rounds:
            self.file.restore_run(self.old)  # it failed before anything ran
        else:
            releases, places = self.algorithm.releases, enumerate(self.fed.names)
            self._settle({name: releases(self._most(name), place) for place, name in places})

    def _most(self, client: str) -> int:
        """The rounds that a client may have answered in a run that failed."""
        entries = () if self.old is None else self.old["releases"].get(client, ())
        known = sum(Release.of_entry(*entry).count for entry in entries)
        answered = max(known, self.rounds + 1) if self.rounds else known + 1
        return min(answered, self.algorithm.max_rounds)

    def _ended(self, run: Run) -> Run:
        """The run, its cost settled at the questions that each client may have answered."""
        asked = run.asked
        # the process before may have been interrupted in the round in which this one goes on
        if self.resume and not self.rounds and run.outcome.stop is Stop.INTERRUPTED:
            asked = run.turns + 1
        asked = np.minimum(asked, self.algorithm.max_rounds).tolist()
        self.ledger = self.algorithm.ledger(self.fed, asked, self.before or {})
        self._count(max(asked))
        if self.file is not None and self.ledger is not None:
            own = {str(name): spent for name, spent in self.ledger.releases.items()}
            releases, digest = self._settle(own)
            self.ledger = replace(self.ledger, releases={**releases}, book=digest)
        self.settled = True
        if self.fed.names == self.with_rows:
            return run
        places = self.fed.positions(self.with_rows)
        return replace(
            run,
            memories=tuple(run.memories[i] for i in places),
            turns=run.turns[places],
            asked=run.asked[places],
            exchanged=run.exchanged[:, places],
            concluded=None if run.concluded is None else members(run.concluded, np.array(places)),
        )

    def _count(self, rounds: int) -> None:
        """What the process knows of the run, after so many rounds."""
        if self.count is not None:
            self.count.releases = self.algorithm.releases(rounds)
            self.count.answers = self.algorithm.releases(rounds, view="answers")

    def _settle(self, releases: Releases) -> tuple[Releases, str]:
        """What stands in the ledger file, and its digest; where it cannot be written all stays
        charged and the run is kept.
        """
        assert self.file is not None
        try:
            final, digest = self.file.close_run(self.number, releases), self.file.digest()
        except (OSError, ValueError) as error:
            warn(
                f"the ledger file {self.file.path.name} could not be settled: {error} All that the"
                " run might have released stays charged, if the file still has the run.",
                RuntimeWarning,
            )
            return releases, ""
        with contextlib.suppress(OSError):  # the digest of before is known as well
            self.write_note()
        return final, digest


def charged(plan: Plan, resume: bool) -> Charge:
    """The account of a private run, with the algorithm whose noise is planned.

    Of the clients that have rows all whose sizes are declared take part.

    Raises
    ------
    BudgetSpentError
        where the run would overspend; nothing was touched
    ValueError
        where the ledger file is damaged, or the run to go on with is not known
    """
    algorithm, problem, fed, engine = plan.method, plan.problem, plan.data, plan.engine
    assert isinstance(algorithm, PrivateMethod)
    with_rows, budget = fed.names, problem.privacy
    problem, fed = problem.at(everybody(problem, fed))
    algorithm = replace(algorithm, problem=problem)
    if budget is None or budget.book is None:
        algorithm = _bound(algorithm.planned(problem, fed), engine)
        count = _counted(algorithm, plan.data, engine, resume)
        return Charge(algorithm, fed, engine, resume, with_rows, count=count)
    file, note = Book(budget.book), _note(engine, resume)
    charge = Charge(algorithm, fed, engine, resume, with_rows, file, note)
    if resume and note is not None:
        charge.number = _to_go_on(file, note, _checkpoint(engine))
    if number := charge.number:
        algorithm = _bound(_as_begun(algorithm, problem, fed, file, number), engine)
        charge.old, charge.begun = file.reopen_run(number, budget), file.state(number) != "charged"
    else:
        ways = {*file.spent(fed.names, adjacency=budget.adjacency).values()}
        needed, number = algorithm.noise_for, new_name()
        most = max(ways, key=lambda way: needed(budget, way))
        algorithm = _bound(algorithm.planned(problem, fed, most), engine)
        # the number is written first beside the checkpoint and then into the ledger file
        if note is not None:
            note.old = note.read() if note.path.exists() else None
            note.write(number)
        try:
            rounds = algorithm.max_rounds
            releases = {c: algorithm.releases(rounds, p) for p, c in enumerate(fed.names)}
            file.open_run(releases, budget, number, "open" if note is None else "charged")
        except Exception:
            if note is not None:
                note.put_back()
            raise
        charge.number, charge.begun = number, note is None
    charge.before = file.spent(fed.names, charge.number, budget.adjacency)
    assert algorithm.plan is not None
    placed = replace(algorithm.plan, place=file.place(charge.number))
    charge.algorithm = replace(algorithm, plan=placed)
    charge.write_note()
    return charge


def _counted(
    algorithm: PrivateMethod, data: Federation | Metadata, engine: Engine, resume: bool
) -> odometer.Count | None:
    """The count of a run with a guarantee, of rows in this process."""
    noise, budget = algorithm.plan, algorithm.problem and algorithm.problem.privacy
    secure = noise is not None and noise.source == "secure"
    if not (secure and budget is not None and isinstance(data, Federation)):
        return None
    kept = "" if (checkpoint := _checkpoint(engine)) is None else os.path.realpath(checkpoint)
    views = (None, "answers")
    releases, answers = (algorithm.releases(algorithm.max_rounds, view=view) for view in views)
    return odometer.counted(data, data.X, releases, budget, answers, kept if resume else "", kept)


def _checkpoint(engine: Engine) -> Path | None:
    path = getattr(engine, "checkpoint", None)
    return None if path is None else Path(path)


def _note(engine: Engine, resume: bool) -> Note | None:
    """Where the number of the run in the ledger file is kept."""
    if (checkpoint := _checkpoint(engine)) is None:
        if resume:
            raise ValueError("resume=True needs a checkpoint: InProcess(checkpoint=PATH)")
        return None
    if not checkpoint.parent.is_dir():
        where = f"no folder {checkpoint.parent} for the checkpoint {checkpoint.name}"
        raise FileNotFoundError(f"{where}: create it first")
    note = Note.beside(checkpoint)
    if resume and not checkpoint.exists() and not note.path.exists():
        text = f"no checkpoint at {checkpoint}: nothing to resume. Begin a new run (resume=False)"
        raise CheckpointError(text)
    if resume and not note.path.exists():
        raise CheckpointError(
            f"{note.path.name} is missing beside the checkpoint: which run of the ledger file it"
            " belongs to is unknown. Restore the file, or begin a new run (resume=False), which is"
            " charged as another."
        )
    return note


def _to_go_on(file: Book, note: Note, checkpoint: Path | None) -> str:
    """The number of the run to go on with; "" where it died before it was charged."""
    number, digest = note.read()
    if not digest and not file.has(number):
        return ""
    if digest and not file.knows(digest):
        raise ValueError(
            f"the ledger file {file.path.name} is older than {note.path.name}, which was written"
            " beside the checkpoint: what has been spent is unknown, so nothing may be released."
            " Restore the newest copy of the ledger file."
        )
    if file.state(number) != "charged" and checkpoint is not None and not checkpoint.exists():
        raise CheckpointError(
            f"no checkpoint at {checkpoint}, though {note.path.name} says that its run was begun:"
            " what it may have released stays charged, and begun again its noise could be another."
            " Restore the checkpoint, or begin a new run (resume=False), which is charged as"
            " another."
        )
    return number


def _as_begun(
    algorithm: PrivateMethod, problem: Problem, fed: Federation | Metadata, file: Book, number: str
) -> PrivateMethod:
    """The algorithm with the noise of its run in the ledger file; refused where other answers were
    planned.
    """
    algorithm, planned = algorithm.planned(problem, fed), file.planned(number)
    single = all(len(plan) == 1 for plan in planned.values())
    if not planned or not single or set(planned) != set(fed.names):
        raise CheckpointError(
            "the run in the ledger file is one of other clients. Resume with what it was begun"
            " with."
        )
    # in the view "sum" the client whose records count most has the noise that was planned
    was = min((plan[0] for plan in planned.values()), key=lambda release: release.noise)
    now = algorithm.releases(algorithm.max_rounds)[0]
    differ = was.sampling != now.sampling
    begun, resumed = (
        f"{r.count} rounds of {r.mechanism} noise" + f" and sampling = {r.sampling}" * differ
        for r in (was, now)
    )
    if begun != resumed:
        raise CheckpointError(
            f"the run was begun with {begun}, got {resumed}: resume with what it was begun with, or"
            " begin a new run (resume=False), which is charged as another."
        )
    assert algorithm.plan is not None
    return replace(algorithm, plan=replace(algorithm.plan, multiplier=was.noise))


def _bound(algorithm: PrivateMethod, engine: Engine) -> PrivateMethod:
    """The plan with the engine and the values of schedules with which it has to stay."""
    plan = algorithm.plan
    if plan is None or plan.kind is None:
        return algorithm
    mode, size = (getattr(engine, name, "") for name in ("mode", "block_size"))
    words = f"{type(engine).__name__} {mode} {size}"
    if schedules := algorithm.schedules():  # a function's name does not say what it gives
        digest = hashlib.blake2b(np.array(schedules).tobytes(), digest_size=16).hexdigest()
        words += f", schedules {digest}"
    return replace(algorithm, plan=replace(plan, engine=words))
