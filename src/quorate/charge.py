"""What a private run costs, planned and written down before the data are touched, and settled when it ends.

The book of ``Budget(book=...)`` takes the whole run in advance. A run that goes on from a checkpoint gives its answers
again with the same noise, so it stands under its old number, which is kept beside the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.privacy.accounting import Release
from quorate.privacy.ledger import Book, Ledger


@dataclass
class Charge:
    """The open account of a run; leaving it without ``ended`` keeps everything charged."""

    algorithm: Any = None
    fed: Any = None
    book: Book | None = None
    number: str = ""
    before: dict[str, tuple[Release, ...]] | None = None
    ledger: Ledger | None = None

    def __enter__(self) -> Charge:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def ended(self, run: Any) -> Any:
        """The run, its cost settled."""
        if hasattr(self.algorithm, "ledger"):
            self.ledger = self.algorithm.ledger(self.fed, run.memories, self.before or {})
            if self.book is not None and self.ledger is not None:
                self.book.close_run(self.number, self.ledger.releases)
        return run


def charged(algorithm: Any, problem: Any, fed: Any, engine: Any, resume: bool) -> tuple[Any, Charge]:
    """The algorithm with its noise planned, and the account of its run.

    Raises
    ------
    BudgetSpentError
        where the run would overspend; nothing was touched
    """
    if not hasattr(algorithm, "planned"):
        return algorithm, Charge()
    budget = problem.privacy
    if budget is None or budget.book is None:
        algorithm = algorithm.planned(problem, fed)
        return algorithm, Charge(algorithm, fed)
    book, checkpoint = Book(budget.book), getattr(engine, "checkpoint", None)
    note = None if checkpoint is None else Path(f"{checkpoint}.account")
    number = note.read_text(encoding="utf-8").strip() if resume and note is not None and note.exists() else ""
    if number:
        book.reopened(number)
    before = book.spent(fed.clients, number)
    most = max(before.values(), key=lambda own: sum(r.count / r.noise**2 for r in own), default=())
    algorithm = algorithm.planned(problem, fed, most)
    if not number:
        number = book.open_run(dict.fromkeys(fed.clients, algorithm.releases(algorithm.max_rounds)), budget)
        if note is not None:
            note.write_text(number, encoding="utf-8")
    return algorithm, Charge(algorithm, fed, book, number, before)
