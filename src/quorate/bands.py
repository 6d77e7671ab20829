"""Every client's violation after every round, beside the history, for methods whose server knows it.

Kept in a file while a run goes on, so that one that was interrupted has them all.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from quorate.solution import Solution

KEY = "client_violation"  # of a history row: one number >= 0 a client, in the order of the federation


class Bands:
    """What `quorate.solve` calls after each round; ``file`` is gone on with where the run is."""

    def __init__(self, file: Path | None = None, resume: bool = False) -> None:
        self.file = file
        self.rows: dict[int, list[float | None]] = {}
        if file is not None and resume and file.is_file():
            self.rows = {row["round"]: row[KEY] for row in map(json.loads, file.read_text("utf-8").splitlines())}
        elif file is not None:
            file.unlink(missing_ok=True)

    def __call__(self, row: dict[str, Any], state: Any) -> None:
        """Keep the round's."""
        found = getattr(state, KEY, getattr(state, "violation", None))
        if not isinstance(found, np.ndarray) or not found.size:
            return
        numbers = [float(v) if np.isfinite(v) else None for v in np.maximum(found, 0.0)]
        self.rows[row["round"]] = numbers
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"round": row["round"], KEY: numbers}) + "\n")

    def beside(self, solution: Solution) -> Solution:
        """The solution with them in its history."""
        if not self.rows:
            return solution
        history = [{**row, KEY: self.rows.get(row["round"])} for row in solution.history]
        return replace(solution, history=history)
