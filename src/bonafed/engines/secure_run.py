"""A run whose sums are carried securely, told as a run of the algorithm itself.

The engine runs the protocol (`bonafed.engines.secure_summed`). What it returns is in the
algorithm's own terms: its state, its rounds, the clients that were in each sum. Messages and bytes
are those of the protocol.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from bonafed.engines.batching import Known
from bonafed.engines.endings import advice, ended
from bonafed.engines.engine import Engine, Run
from bonafed.engines.run_record import SetRecorder
from bonafed.engines.secure_summed import Earlier, SecureSummed, SumState
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.rounds import Algorithm, Stop, decode

BEFORE = 2  # rounds of the engine for keys and the first shares, before a round takes two
TAKES = 2
SUMS = -1  # in the place of a site


def secure_run(engine: Any, option: SecureSum, algorithm: Algorithm, fed: Known, how: Any) -> Run:
    """Run an algorithm with secure sums on an engine; ``how`` are all parameters of its ``run``.

    ``max_rounds`` are rounds of the algorithm. Where clients drop out, the engine may need some of
    its rounds to have others come back, and then ends as many rounds earlier.
    """
    max_rounds, watch, rows = how["max_rounds"], how["watch"], _Rows()
    cap = max_rounds and BEFORE + TAKES * max_rounds

    def see(row: dict[str, Any], state: SumState) -> None:
        """Show the algorithm's rounds to those who watch it."""
        if (made := rows.next(row)) is not None:
            for each in watch:
                each(made, state.of_algorithm()[0])

    watching = [see] if watch else []
    every_row = {} if engine.keep_rows == 1 else {"keep_rows": 1}
    # what the answers in all runs of an experiment over sites say, by site, and of their sums
    told: dict[int, Any] = getattr(getattr(engine, "session", None), "told", {})
    plain: Engine = replace(engine, secure_sum=None, **every_row)
    carried = SecureSummed(algorithm, option, how["seed"], Earlier(told.get(SUMS)))
    how = {**how, "watch": watching, "max_rounds": cap}
    run = plain.run(carried, fed, **how)
    told[SUMS] = decode(run.state.told.tobytes())
    return _of_algorithm(run, cap, max_rounds, engine)


class _Rows:
    """Turns the rows of the engine's rounds into one for each round of the algorithm."""

    def __init__(self) -> None:
        self.sums, self.since = 0, list[dict[str, Any]]()

    def next(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """The row of the algorithm's round that ends with this one, if one does."""
        self.since.append(row)
        if row["sums"] == self.sums:
            return None
        self.sums, parts, self.since = row["sums"], self.since, []
        made = {key: value for key, value in row.items() if key not in ("sums", "summed", "report")}
        for key in ("seconds", "bytes_up", "bytes_down"):
            if key in row:
                made[key] = sum(part[key] for part in parts)
        if "answered" in row:
            made["answered"] = row["summed"]
        return {**made, "round": self.sums, **json.loads(row["report"])}


def _of_algorithm(run: Run, cap: int | None, max_rounds: int | None, engine: Any) -> Run:
    """The run in the algorithm's terms."""
    state: SumState = run.state
    rows = _Rows()
    history = [made for row in run.history if (made := rows.next(row)) is not None]
    last = len(history)
    history = [row for k, row in enumerate(history, 1) if k % engine.keep_rows == 0 or k == last]
    outcome, present = run.outcome, np.unpackbits(state.present, axis=1, count=len(run.turns))
    turns = present.sum(0, dtype=np.int64)
    if outcome.stop is Stop.MAX_ROUNDS and outcome.text and run.rounds == cap:
        # the engine has ended it, for the algorithm says no words
        outcome = ended(outcome.stop, "max_rounds", max_rounds, advice(engine))
    events = SetRecorder()
    for each in present:
        events.add(np.flatnonzero(each), np.zeros(0))
    memories = tuple(None if each is None else each.own for each in run.memories)
    asked = turns + state.in_open_sum(run.asked > run.turns)
    told = {
        "outcome": outcome,
        "history": history,
        "rounds": state.rounds,
        "events": events.stored(),
    }
    told |= {"memories": memories, "turns": turns, "asked": asked}
    return replace(run, state=state.of_algorithm()[0], **told)
