"""Runs that are charged to a book, and die: for the tests of the account."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import bonafed as bf
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.engines.inprocess import InProcess
from bonafed.privacy.budget import Budget
from bonafed.privacy.ledger import Book

DELTA, T = 1e-5, 5


def federation(seed: int = 0, names: str = "abc") -> bf.Federation:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(6 + 3 * i, 3)) for i in range(len(names))]
    return bf.Federation(list(names), rows, [np.sign(X[:, 0] + 0.1) for X in rows])


FED = federation()


class Killed(BaseException):
    """A process that dies: nobody has time to settle anything."""


@dataclass
class Place:
    """A folder with a book, and how runs are made there."""

    folder: Path
    epsilon: float = 1.0
    engine: InProcess = field(default_factory=InProcess)
    book: str | None = "book.json"

    def solve(
        self,
        checkpoint: str | None = "run",
        resume: bool = False,
        watch: Any = (),
        fed: Any = FED,
        **options,
    ):
        own = self.folder / self.book if self.book else None
        epsilon = options.pop("epsilon", self.epsilon)
        view, missing = options.pop("view", "answers"), options.pop("missing", 1)
        budget = Budget(
            epsilon,
            DELTA,
            options.pop("adjacency", "add-remove"),
            book=own and str(own),
            view=view,
            missing=missing,
        )
        problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1), privacy=budget)
        path = None if checkpoint is None else self.folder / checkpoint
        engine = replace(options.pop("engine", self.engine), checkpoint=path)
        seed = options.pop("seed", 0)
        method = PrivateADMM if view == "answers" else PrivateSGD
        algorithm = method(**{"max_rounds": T, "noise": "simulation"} | options)
        return bf.solve(
            problem,
            fed,
            algorithm=algorithm,
            engine=engine,
            seed=seed,
            resume=resume,
            watch=[watch] if watch else [],
        )

    @property
    def runs(self) -> list[dict[str, Any]]:
        return Book(self.folder / "book.json").runs()

    def counts(self) -> list[int]:
        """Answers of client a that every run is charged for."""
        return [run["releases"]["a"][0][2] if run["releases"]["a"] else 0 for run in self.runs]


def at(round_: int, error: type[BaseException] = KeyboardInterrupt):
    def see(row: dict[str, Any], state: Any) -> None:
        if row["round"] == round_:
            raise error(f"in round {round_}")

    return see


def forgotten(place: Place) -> None:
    """The first run in the book as if it had told nothing."""
    book = Book(place.folder / "book.json")
    first, *others = book.runs()
    book._write([first | {"releases": {client: [] for client in first["releases"]}}, *others])
