"""The columns that the tables of the paper share, and one trial of Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import bonafed as bf
from bonafed.extending import Array
from bonafed.papers.constrained.reference import Reference
from bonafed.papers.constrained.trace import Evaluation, Trace

Row = dict[str, object]


class Printed(NamedTuple):
    """A row of Table 1 or 2: means (and a standard deviation) over the paper's 10 trials."""

    objective: float
    sd: float
    central: float  # objective of cProx-AL
    difference: float  # relative, between the two
    mean: float  # constraint value over the clients
    most: float


@dataclass(frozen=True)
class Trial:
    """One run on one draw of the clients' rows, and an optimum found by other means."""

    fed: bf.Federation
    reference: Reference
    trace: Trace
    end: Evaluation

    @property
    def gap(self) -> float:
        """The relative gap of the objective; it is negative where the model is infeasible."""
        return self.end.objective / self.reference.value - 1


def row(trials: Sequence[Trial], constraint: Callable[[Trial], Array], printed: Printed) -> Row:
    """A row of Table 1 or 2; ``constraint`` gives the clients' values of it, NaN where none."""
    columns: Row = {
        "reference": float(np.mean([trial.reference.value for trial in trials])),
        "relative_difference": max(abs(trial.gap) for trial in trials),
    }
    for name, pick in (("mean", np.nanmean), ("most", np.nanmax)):
        columns[name], columns[f"{name}_sd"] = mean_and_sd(
            float(pick(constraint(t))) for t in trials
        )
    return (
        shared_columns([trial.trace for trial in trials], [trial.end for trial in trials])
        | columns
        | {f"paper_{key}": number for key, number in printed._asdict().items() if key != "central"}
    )


def shared_columns(runs: Sequence[Trace], ends: Sequence[Evaluation]) -> Row:
    """The columns of all tables: objectives, violations and costs of the trials' runs."""
    objective, sd = mean_and_sd(end.objective for end in ends)
    outer = [run.outer for run in runs if run.outer is not None]
    return {
        "trials": len(runs),
        "objective": objective,
        "objective_sd": sd,
        "violation": max(end.violation for end in ends),
        "rounds": float(np.mean([run.rounds for run in runs])),
        "outer": float(np.mean(outer)) if outer else None,
        "floats": float(np.mean([run.floats for run in runs])),
        "stops": sorted({run.stop for run in runs}),
        "comparable": "trend only",
    }


def mean_and_sd(values: Iterable[float]) -> tuple[float, float]:
    """The mean and standard deviation over trials; one trial has deviation 0."""
    trials = np.array(list(values), float)
    return float(trials.mean()), float(trials.std(ddof=1)) if len(trials) > 1 else 0.0
