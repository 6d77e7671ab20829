"""Traces beside the history of a solve: the exact objective, and violations by client.

Methods that go on with whoever has answered do not know their objective on the way. An observer who
takes no part, and no time on a simulated clock, computes it from all rows: after the first round,
and whenever the time (of rounds, where none is simulated) has grown by a tenth. For every model it
is the objective of the run's problem, so that models can be compared.

Where the server knows every client's violation of its constraints, that is kept after every round.
Both traces are in a file while the run goes on, so that one that was interrupted has all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from quorate.arrays import Array
    from quorate.data.federation import Federation
    from quorate.problem.problem import Problem
    from quorate.solution.solution import Solution

OBJECTIVE, LARGEST = "exact_objective", "largest_risk"  # of a history row
# of a history row: one number >= 0 a client, in the order of the federation
VIOLATION = "client_violation"
PACE = 1.1  # between two evaluations


class ObjectiveTrace:
    """What `quorate.solve` calls after each round; ``file`` is gone on with where the run is.

    Parameters
    ----------
    problem, fed : by which models are judged
    model : the model in the server's state, empty before there is one
    keep_rows : rounds for each row of the history
    """

    def __init__(
        self,
        problem: Problem,
        fed: Federation,
        model: Callable[[Any], Array],
        keep_rows: int = 1,
        file: Path | None = None,
        resume: bool = False,
    ) -> None:
        self.problem, data = problem.at(fed)
        self.blocks, self.model, self.keep_rows, self.file = data.blocks(), model, keep_rows, file
        self.n = data.n_clients
        self.rows: dict[int, dict[str, float]] = {}
        self.next, self.old = 0.0, resume
        if file is not None and resume and file.is_file():
            self.rows = {
                row["round"]: row for row in map(json.loads, file.read_text("utf-8").splitlines())
            }
        elif file is not None:
            file.unlink(missing_ok=True)

    def __call__(self, row: dict[str, Any], state: Any) -> None:
        """Look, if it is time."""
        if self.old:  # rounds after the checkpoint are made again
            self.rows = {k: kept for k, kept in self.rows.items() if k < row["round"]}
            self.next = max([PACE * kept["when"] for kept in self.rows.values()], default=0.0)
            self.old = False
        when = row.get("time", row["round"])
        if row["round"] % self.keep_rows or when < self.next:
            return
        w = self.model(state)
        if not len(w):
            return
        found = {"round": row["round"], "when": when, **self.judged(w)}
        self.rows[row["round"]], self.next = found, PACE * when
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(found) + "\n")

    def judged(self, w: Array) -> dict[str, float]:
        """Objective and largest risk at w."""
        risks = np.empty(self.n)
        for block in self.blocks:
            risks[block.index] = self.problem.client_risks(w, block)
        return {
            OBJECTIVE: float(self.problem.over_clients.value(risks) + self.problem.penalty(w)),
            LARGEST: float(risks.max()),
        }

    def beside(self, solution: Solution) -> Solution:
        """The solution with them in its history; the last row has the model's."""
        if not solution.history or not len(solution.w):
            return solution
        history = [row | _numbers(self.rows.get(row["round"])) for row in solution.history]
        history[-1] |= self.judged(solution.w)
        return replace(solution, history=history)


def _numbers(found: Mapping[str, float] | None) -> dict[str, float]:
    return {} if found is None else {key: found[key] for key in (OBJECTIVE, LARGEST)}


class ViolationTrace:
    """What `quorate.solve` calls after each round; ``file`` is gone on with where the run is."""

    def __init__(self, file: Path | None = None, resume: bool = False) -> None:
        self.file = file
        self.rows: dict[int, list[float | None]] = {}
        if file is not None and resume and file.is_file():
            self.rows = {
                row["round"]: row[VIOLATION]
                for row in map(json.loads, file.read_text("utf-8").splitlines())
            }
        elif file is not None:
            file.unlink(missing_ok=True)

    def __call__(self, row: dict[str, Any], state: Any) -> None:
        """Keep the round's."""
        found = getattr(state, VIOLATION, getattr(state, "violation", None))
        if not isinstance(found, np.ndarray) or not found.size:
            return
        numbers = [float(v) if np.isfinite(v) else None for v in np.maximum(found, 0.0)]
        self.rows[row["round"]] = numbers
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"round": row["round"], VIOLATION: numbers}) + "\n")

    def beside(self, solution: Solution) -> Solution:
        """The solution with them in its history."""
        if not self.rows:
            return solution
        history = [{**row, VIOLATION: self.rows.get(row["round"])} for row in solution.history]
        return replace(solution, history=history)
