"""What a run had reached when: the exact objective and the largest risk of a client, looked at now and then.

Methods that go on with whoever has answered do not know their objective on the way. An observer who takes no part, and
no time on a simulated clock, computes it from all rows: after the first round, and whenever the time (of rounds, where
none is simulated) has grown by a tenth. For every model it is the objective of the run's own problem, so that models
can be compared. Kept in a file while the run goes on, so that one that was interrupted has all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from quorate.arrays import Array
    from quorate.data.federation import Federation
    from quorate.problem.problem import Problem
    from quorate.solution import Solution

OBJECTIVE, LARGEST = "exact_objective", "largest_risk"  # of a history row
PACE = 1.1  # between two looks


class Reached:
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
            self.rows = {row["round"]: row for row in map(json.loads, file.read_text("utf-8").splitlines())}
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


def thinned(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows that were looked at, with the objective found there, and the bytes and seconds since the one before."""
    rows, since = [], {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
    for row in history:
        since = {key: total + row.get(key, 0) for key, total in since.items()}
        if row.get(OBJECTIVE) is None:
            continue
        bound = row.get("bound")
        gap = row[OBJECTIVE] - bound if isinstance(bound, int | float) and np.isfinite(bound) else None
        rows.append({**row, **since, "objective": row[OBJECTIVE], "gap": gap})
        since = dict.fromkeys(since, 0)
    return rows


def curves(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, list[float]]]:
    """By model: round, time where it is simulated, bytes so far, objective and largest risk at every look."""
    found = {}
    for name, history in histories.items():
        rows = thinned(history)
        if not rows:
            continue
        sent = np.cumsum([row["bytes_up"] + row["bytes_down"] for row in rows])
        found[name] = {
            "round": [row["round"] for row in rows],
            **({"time": [row["time"] for row in rows]} if "time" in rows[0] else {}),
            "bytes": sent.tolist(),
            "objective": [row[OBJECTIVE] for row in rows],
            "largest_risk": [row[LARGEST] for row in rows],
        }
    return found


def of_clock(solutions: Mapping[str, Solution]) -> dict[str, Any]:
    """What result.json says of what was reached when; of a simulated clock also who answered how often."""
    main = next(iter(solutions.values()))
    found: dict[str, Any] = {}
    if reached := curves({name: solution.history for name, solution in solutions.items()}):
        found["reached"] = reached
    if main.log is not None:
        found["clock"] = summary(main.log)
    return found


def summary(log: Any) -> dict[str, Any]:
    """Of a log of events: the time it ends, answers in all and by client, and who crashed when."""
    counts = np.bincount(log.answered, minlength=len(log.clients))
    return {
        "time": float(log.times.max()) if len(log.times) else 0.0,
        "answers": len(log.answered),
        "by_client": dict(zip(log.clients, counts.tolist(), strict=True)),
        "crashed": dict(log.crashed),
    }
