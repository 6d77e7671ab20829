"""Traces beside the history of a solve: the exact objective, and violations by client.

Methods that wait for some answers only do not know their objective on the way. An observer who
takes no part, and no time on a simulated clock, computes it from all rows: after the first
round, and whenever the time (of rounds, where none is simulated) has grown by a tenth. For every
model it is the objective of the run's problem, so that models can be compared.

Where the server knows every client's violation of its constraints, that is kept after every round.
Both traces are in a file while the run goes on, so that an interrupted run that is resumed has all
of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.problem.problem import Problem
from bonafed.runs.files import Record, parsed, write
from bonafed.runs.form import Count, Form, NonNegative, Number, check_form
from bonafed.solution.solution import Solution
from bonafed.storage import named_errors

OBJECTIVE, LARGEST = "exact_objective", "largest_risk"  # of a history row
# of a history row: one number >= 0 a client, in the order of the federation
VIOLATION = "client_violation"
PACE = 1.1  # between two evaluations


class Trace:
    """Numbers by round, which are kept in ``file``, too; with ``resume`` those in it are read."""

    form: ClassVar[type[Form]]

    def __init__(self, file: Path | None = None, resume: bool = False) -> None:
        self.file = file
        self.rows: dict[int, Record] = {}
        if file is None:
            return
        if resume and file.is_file():
            whole, _, _ = file.read_bytes().rpartition(b"\n")  # the last line may be half written
            rows = [parsed(file, line) for line in whole.decode(errors="replace").splitlines()]
            for row in rows:
                check_form(file, row, self.form)
            self.rows = {row["round"]: row for row in rows}
        write(file, b"".join(map(_line, self.rows.values())))

    def keep(self, row: Record) -> None:
        """Add the numbers of a round."""
        self.rows[row["round"]] = row
        if self.file is not None:
            with named_errors(self.file), self.file.open("ab") as out:
                out.write(_line(row))


def _line(row: Record) -> bytes:
    return json.dumps(row).encode() + b"\n"


class ObjectiveForm(Form):
    """The objective after a round, and when that was."""

    round: Count
    when: NonNegative
    exact_objective: Number
    largest_risk: Number


class ViolationForm(Form):
    """Every client's violation after a round."""

    round: Count
    client_violation: list[NonNegative | None]


class ObjectiveTrace(Trace):
    """The exact objective and the largest risk of a client by round; `bonafed.solve` calls it after
    each round.

    Parameters
    ----------
    problem, fed : by which models are judged
    model : the model in the server's state, empty before there is one
    keep_rows : rounds for each row of the history
    """

    form = ObjectiveForm

    def __init__(
        self,
        problem: Problem,
        fed: Federation,
        model: Callable[[object], Array],
        keep_rows: int = 1,
        file: Path | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__(file, resume)
        self.problem, self.data = problem.at(fed)
        self.blocks, self.model, self.keep_rows = self.data.blocks(), model, keep_rows
        self.n = self.data.n_clients
        self.next, self.resumed = 0.0, resume

    def __call__(self, row: Record, state: object) -> None:
        """Evaluate the model, if it is time."""
        if self.resumed:  # rounds after the checkpoint are computed again
            self.rows = {k: kept for k, kept in self.rows.items() if k < row["round"]}
            self.next = max([PACE * kept["when"] for kept in self.rows.values()], default=0.0)
            self.resumed = False
        when = row.get("time", row["round"])
        if row["round"] % self.keep_rows or when < self.next:
            return
        w = self.model(state)
        if len(w):
            self.keep({"round": row["round"], "when": when, **self.judged(w)})
            self.next = PACE * when

    def judged(self, w: Array) -> dict[str, float]:
        """Objective and largest risk at w."""
        risks = np.empty(self.n)
        for block in self.blocks:
            risks[block.index] = self.problem.client_risks(w, block)
        risk = self.problem.over_clients.value(risks)
        if self.problem.over_rows is not None:
            risk = self.problem.over_rows.value(self.problem.row_losses(w, self.data))
        return {OBJECTIVE: float(risk + self.problem.penalty(w)), LARGEST: float(risks.max())}

    def beside(self, solution: Solution) -> Solution:
        """The solution with both in its history; the last row has those of the model."""
        if not solution.history or not len(solution.w):
            return solution
        history = []
        for row in solution.history:
            kept = self.rows.get(row["round"], {})
            history.append(row | {key: kept[key] for key in (OBJECTIVE, LARGEST) if kept})
        history[-1] |= self.judged(solution.w)
        return replace(solution, history=history)


class ViolationTrace(Trace):
    """Every client's violation of its constraints by round; `bonafed.solve` calls it after each
    round.
    """

    form = ViolationForm

    def __call__(self, row: Record, state: object) -> None:
        """Keep the violations of the round, where the server knows them."""
        violation = getattr(state, VIOLATION, getattr(state, "violation", None))
        if not isinstance(violation, np.ndarray) or not violation.size:
            return
        numbers = [float(v) if np.isfinite(v) else None for v in np.maximum(violation, 0.0)]
        self.keep({"round": row["round"], VIOLATION: numbers})

    def beside(self, solution: Solution) -> Solution:
        """The solution with the violations in its history."""
        if not self.rows:
            return solution
        history = [
            {**row, VIOLATION: self.rows.get(row["round"], {}).get(VIOLATION)}
            for row in solution.history
        ]
        return replace(solution, history=history)
