"""The time of a run: the objective at each evaluation, and who answered how often."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np

from bonafed.config.config import Config
from bonafed.engines.run_record import Log
from bonafed.runs import forms
from bonafed.runs.checks import Check, not_checked
from bonafed.runs.files import Record, Row
from bonafed.runs.sections.section import Inputs, Run, Section
from bonafed.runs.training import LARGEST, OBJECTIVE


class Clock(Section):
    """A simulated clock, and methods whose objective is evaluated beside their rounds."""

    name = "events"
    keys = forms.perhaps(Annotated[dict[str, forms.TRACE], forms.at_least(1)], "reached")
    keys |= forms.perhaps(forms.CLOCK, "clock")
    files = ("events.bft",)

    def applies(self, config: Config) -> bool:
        return config.engine.clocked

    def is_stated(self, config: Config, public: bool) -> bool:
        """Whether there may be evaluations beside the rounds: some methods have them without a
        clock.
        """
        return not public

    def result(self, inputs: Inputs) -> Record:
        """The objective trace of every model; of a simulated clock also who answered how often."""
        result: Record = {}
        if traces := curves(inputs.histories):
            result["reached"] = traces
        if inputs.events is not None:
            result["clock"] = summary(inputs.events)
        return result

    def stated(self, run: Run) -> Row:
        """What is stated, but for the traces of baselines, whose histories are not kept."""
        stated, main = {**super().stated(run)}, run.result["model"]
        reached = stated.pop("reached", {})
        return stated | ({"reached": {main: reached[main]}} if main in reached else {})

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        """What is stated is that of the history and of the log of events, which are listed."""
        yield from super().check(run, inputs)
        text = "what was reached when, and who answered when: only training shows it again"
        places = (f"result.json: {key}" for key in self.keys)
        yield not_checked(self.name, text, *places, *self.files)


def thinned(history: Sequence[Row]) -> list[Record]:
    """The rows with an evaluation, each with the objective there, and the bytes and seconds since
    the one before.
    """
    rows, since = [], {"bytes_up": 0, "bytes_down": 0, "seconds": 0.0}
    for row in history:
        since = {key: total + row.get(key, 0) for key, total in since.items()}
        if row.get(OBJECTIVE) is None:
            continue
        bound, value = row.get("bound"), row[OBJECTIVE]
        known = isinstance(bound, int | float) and np.isfinite(bound)
        rows.append({**row, **since, "objective": value, "gap": value - bound if known else None})
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
    counts = np.bincount(log.answered, minlength=len(log.clients)).tolist()
    time, n = float(log.times.max(initial=0.0)), len(log.answered)
    by_client = dict(zip(log.clients, counts, strict=True))
    return {"time": time, "answers": n, "by_client": by_client, "crashed": dict(log.crashed)}
