"""The time of a run: the objective at each evaluation, and who answered how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from quorate.config.config import Config
from quorate.engines.event_log import Log
from quorate.runs.checks import Check, compared
from quorate.runs.files import Record, Row, plain
from quorate.runs.observers import LARGEST, OBJECTIVE
from quorate.runs.run import Run
from quorate.runs.sections.section import Inputs, Section


class Clock(Section):
    """A simulated clock, and methods whose objective is evaluated beside their rounds."""

    name = "events"
    keys = ("reached", "clock")
    files = ("events.qrt",)

    def applies(self, config: Config) -> bool:
        return config.engine.clocked

    def result(self, inputs: Inputs) -> Record:
        """The objective trace of every model; of a simulated clock also who answered how often."""
        result: Record = {}
        if traces := curves(inputs.histories):
            result["reached"] = traces
        if inputs.events is not None:
            result["clock"] = summary(inputs.events)
        return result

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        """The events add up to the rounds and the answers, and the last evaluation was at the
        model.
        """
        result, log = run.result, run.events
        if log is None and "clock" not in result:
            return
        if log is None or "clock" not in result:
            yield Check("events", False, "the log of events, or what is stated of it, is missing")
            return
        value = plain(inputs.certificate.value)
        last = value
        if curves(inputs.histories):  # the main model may have no evaluations beside its rounds
            last = result["reached"][result["model"]]["objective"][-1]
        again = {"clock": plain(summary(log)), "rounds": len(log.ends), "value": last}
        stated = {"clock": result["clock"], "rounds": result["rounds"], "value": value}
        if run.config.engine.keep_rows == 1:
            again["answered"] = len(log.answered)
            stated["answered"] = sum(row["answered"] for row in run.history)
        yield compared("events", stated, again)


def thinned(history: Sequence[Row]) -> list[Record]:
    """The rows with an evaluation, each with the objective there, and the bytes and seconds since
    the one before.
    """
    rows, since = [], {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
    for row in history:
        since = {key: total + row.get(key, 0) for key, total in since.items()}
        if row.get(OBJECTIVE) is None:
            continue
        bound, gap = row.get("bound"), None
        if isinstance(bound, int | float) and np.isfinite(bound):
            gap = row[OBJECTIVE] - bound
        rows.append({**row, **since, "objective": row[OBJECTIVE], "gap": gap})
        since = dict.fromkeys(since, 0)
    return rows


def curves(histories: Mapping[str, Sequence[Row]]) -> dict[str, dict[str, list[float]]]:
    """By model: round, time where it is simulated, bytes so far, objective and largest risk at
    every evaluation.
    """
    traces = {}
    for name, history in histories.items():
        rows = thinned(history)
        if not rows:
            continue
        sent = np.cumsum([row["bytes_up"] + row["bytes_down"] for row in rows])
        traces[name] = {
            "round": [row["round"] for row in rows],
            **({"time": [row["time"] for row in rows]} if "time" in rows[0] else {}),
            "bytes": sent.tolist(),
            "objective": [row[OBJECTIVE] for row in rows],
            "largest_risk": [row[LARGEST] for row in rows],
        }
    return traces


def summary(log: Log) -> Record:
    """When a log of events ends, how many answers it has in all and by client, who crashed when."""
    counts = np.bincount(log.answered, minlength=len(log.clients))
    return {
        "time": float(log.times.max()) if len(log.times) else 0.0,
        "answers": len(log.answered),
        "by_client": dict(zip(log.clients, counts.tolist(), strict=True)),
        "crashed": dict(log.crashed),
    }
