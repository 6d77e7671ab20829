"""The time of a run: the objective at each evaluation, and who answered how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import model_validator

from bonafed.config.config import Config
from bonafed.engines.event_log import Log
from bonafed.runs.baselines import BASELINES, called
from bonafed.runs.checks import Check, compared, not_checked
from bonafed.runs.constraint_metrics import asked
from bonafed.runs.files import Record, Row, plain
from bonafed.runs.form import Count, Form, NonNegative, Number, Whole, at_least, optional
from bonafed.runs.observers import LARGEST, OBJECTIVE, ObjectiveTrace
from bonafed.runs.run import Run
from bonafed.runs.sections.section import Inputs, Section
from bonafed.runs.traffic import CUTS, odd_events


class TraceForm(Form):
    """The objective of one model at every evaluation, see `curves`."""

    round: Annotated[list[Count], at_least(1)]
    time: list[NonNegative] = optional()
    bytes: list[Whole]
    objective: list[Number]
    largest_risk: list[NonNegative]

    @model_validator(mode="after")
    def _columns_are_alike(self) -> TraceForm:
        columns = {len(value) for value in vars(self).values() if value is not None}
        if len(columns) > 1:
            raise ValueError("columns of one length")
        return self


class SummaryForm(Form):
    """The events of a clock, see `summary`."""

    time: NonNegative
    answers: Whole
    by_client: Annotated[dict[str, Whole], at_least(1)]
    crashed: dict[str, NonNegative]


class ClockForm(Form):
    """What a run states of its time."""

    reached: Annotated[dict[str, TraceForm], at_least(1)] = optional()
    clock: SummaryForm = optional()


class Clock(Section):
    """A simulated clock, and methods whose objective is evaluated beside their rounds."""

    name = "events"
    keys = ("reached", "clock")
    form = ClockForm
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

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        """The events add up to the rounds and the answers, and the last evaluation was at the
        model.
        """
        result, log = run.result, run.events
        yield from _check_traces(run, inputs)
        if log is None and "clock" not in result:
            return
        if log is None or "clock" not in result:
            yield Check("events", False, "the log of events, or what is stated of it, is missing")
            return
        named = {"clients": [*log.clients], "seed": log.seed}
        again = {"clock": plain(summary(log)), "rounds": len(log.ends), **named}
        train = {"clients": [*inputs.parts.train.names], "seed": run.config.seed}
        stated = {"clock": result["clock"], "rounds": result["rounds"], **train}
        yield compared("events", stated, again)
        odd = [*odd_events(run.history, log), *_odd_clock(run.config, log)]
        text = f"differ: {'; '.join(odd[:3])}" if odd else "the history has their times and answers"
        yield Check("events", not odd, text)
        text = "staleness, and that the delays were drawn as [engine] says"
        places = (f"history.jsonl: {key}" for key in ("staleness", "time"))
        yield not_checked("events", text, *places, "result.json: clock", *self.files)


def _check_traces(run: Run, inputs: Inputs) -> Iterator[Check]:
    """The objective trace of the run is in its history; those of the baselines end at their models,
    and lie above the bound.
    """
    stated = run.result.get("reached", {})
    main, again = run.result["model"], plain(curves(inputs.histories))
    yield compared("reached", {k: v for k, v in stated.items() if k == main}, again)
    if not stated:
        return
    proof, odd = inputs.certificate, [f"{name} is missing" for name in _untraced(run, inputs)]
    judge = ObjectiveTrace(inputs.problem, inputs.parts.train, lambda state: np.zeros(0))
    slack = CUTS * max(abs(proof.value), 1e-12)
    # a model that need not meet the constraints may be better
    bound = None if run.config.constrained else proof.bound
    for name, trace in stated.items():
        for key in {"round", "time", "bytes"} & trace.keys():
            if any(a > b for a, b in pairwise(trace[key])):
                odd.append(f"{name}: {key} falls")
        if len({*map(len, trace.values())}) > 1:
            odd.append(f"{name}: its columns differ in length")
        if bound is not None and min(trace["objective"]) < bound - slack:
            odd.append(f"{name}: an objective is below the proven bound")
        last = {OBJECTIVE: trace["objective"][-1], LARGEST: trace["largest_risk"][-1]}
        if not inputs.compared("", last, judge.judged(inputs.models[name])).ok:
            odd.append(f"{name}: the last evaluation is not that of its model")
        rounds = run.result["baselines"].get(name.lower(), run.result)["rounds"]
        if trace["round"][-1] > rounds:
            odd.append(f"{name}: more rounds than it had")
    text = f"differ: {'; '.join(odd[:3])}" if odd else "end at the models, and above the bound"
    yield Check("reached", not odd, text)
    if stated.keys() - {main}:
        text = "what baselines had reached before their last evaluation, and when: no log is kept"
        others = (name for name in stated if name != main)
        yield not_checked("reached", text, *(f"result.json: reached.{name}" for name in others))


def _untraced(run: Run, inputs: Inputs) -> Iterator[str]:
    """The baselines that ran on the clock, and have no trace."""
    fed = inputs.parts.train
    for name in run.config.report.compare_with if "clock" in run.result else ():
        problem, data = BASELINES[name](inputs.problem, fed)
        if data.clients == fed.clients and not asked(problem):
            yield from {called(name)} - run.result["reached"].keys()


def _odd_clock(config: Config, log: Log) -> Iterator[str]:
    """What a log has otherwise than [engine] allows."""
    end, most = summary(log)["time"], config.engine.get("max_time")
    if most is not None and end > most:
        yield f"it ends at {end:.6g} seconds, after max_time = {most:g}"
    crashes = {str(name): at for name, at in (config.engine.get("crashes") or {}).items()}
    if dict(log.crashed) != {name: at for name, at in crashes.items() if at <= end}:
        yield "others crashed than [engine] says"
    for name, at in crashes.items():
        answered = log.times[log.answered == log.clients.index(name)]
        if answered.max(initial=0.0) > at:
            yield f"{name} answers after it crashed"


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
