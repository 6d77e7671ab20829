"""The same problem at other privacy budgets: what less or more privacy costs.

The runs of the curve come before the model of the run, which spends what they leave of the budget
(`bonafed.runs.privacy_plan`). Their models and numbers are for the owner of the data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.privacy.accounting import total_epsilon
from bonafed.privacy.ledger import Ledger
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop
from bonafed.runs.checks import Check
from bonafed.runs.evaluation import measure
from bonafed.runs.files import (
    Record,
    Row,
    complete,
    load_arrays,
    parsed,
    save_arrays,
    text_in,
    write,
)
from bonafed.runs.form import (
    Form,
    NonNegative,
    Number,
    Positive,
    Share,
    at_least,
    check_form,
    damaged,
    optional,
)
from bonafed.runs.privacy_plan import plan, privacy_of, public_of
from bonafed.runs.run import Points, Run
from bonafed.runs.sections.privacy import of_point
from bonafed.runs.sections.section import Inputs, Progress, Section, Study
from bonafed.runs.splits import Parts
from bonafed.solution.privacy_account import was_begun
from bonafed.solution.solution import Solution
from bonafed.solution.solve import fit

FINISHED = "curve.json"  # of a working folder: the points that are finished


class JudgedForm(Form):
    """How a point of the curve does on one set of rows."""

    loss: Number
    worst_loss: Number
    accuracy: Share = optional()
    error: NonNegative = optional()


class PointForm(Form):
    """A point of the curve."""

    epsilon: Positive
    alone: NonNegative
    noise: Positive
    value: Number
    sets: dict[str, JudgedForm]


class CurveForm(Form):
    """What a run states of its curve."""

    curve: Annotated[list[PointForm], at_least(1)]


class FinishedPointForm(Form):
    """A point of the curve while the others are trained, with its model."""

    epsilon: Positive
    alone: NonNegative
    noise: Positive
    w: list[Number]


class FinishedForm(Form):
    """The plan of a curve, (epsilon, total) by point, and its points so far."""

    plan: list[Annotated[list[Positive], Field(min_length=2, max_length=2)]]
    points: list[FinishedPointForm]


class PrivacyCurve(Section):
    """Models at other total epsilons, each charged to the same ledger."""

    name = "curve"
    keys = ("curve",)
    form = CurveForm
    files = ("curve.safetensors",)
    first = True

    def applies(self, config: Config) -> bool:
        return config.privacy is not None and bool(config.privacy.curve)

    def train(self, study: Study, progress: Progress) -> Points:
        """Train at every epsilon in turn; those that are in the folder of the work are kept."""
        assert study.work is not None
        config, budget, file = study.config, study.budget, study.work / FINISHED
        stored: Record = {"plan": [], "points": []}
        if study.resume and file.is_file():
            size = len(config.problem().model_start(study.parts.train.n_features))
            stored = _finished(file, privacy_of(config).curve, size)
        if not stored["plan"]:
            public = public_of(config, study.parts.owners.n_features)
            stored["plan"] = [*map(list, plan(config, public, budget.book).curve)]
            write(file, json.dumps(stored).encode())
        for k, (epsilon, total) in enumerate(stored["plan"]):
            if k < len(stored["points"]):
                continue
            solution = _trained(study, k, epsilon, total, progress)
            assert solution.ledger is not None
            stored["points"].append(point_of(epsilon, solution.ledger, solution.w))
            write(file, json.dumps(stored).encode())
        points = stored["points"]
        table = [{key: value for key, value in row.items() if key != "w"} for row in points]
        return Points({"points": table}, {"w": np.array([row["w"] for row in points])})

    def result(self, inputs: Inputs) -> Record:
        """What each point was run with, and how its model does."""
        points = inputs.points.get(self.name)
        if points is None:
            return {}
        problem, parts = inputs.config.problem(), inputs.parts
        rows = zip(points.table["points"], points.w, strict=True)
        return {"curve": [{**row, **judged(problem, w, parts)} for row, w in rows]}

    def write(self, folder: Path, points: Points) -> None:
        save_arrays(folder / self.files[0], points.arrays)

    def read(self, folder: Path, result: Row, thresholds: int = 0) -> Points | None:
        complete(folder, self.files)
        rows, arrays = result["curve"], load_arrays(folder / self.files[0], ("w",))
        if arrays["w"].ndim != 2 or len(arrays["w"]) != len(rows):
            raise damaged(folder / self.files[0], "it does not fit its points")
        return Points({"points": rows}, arrays)

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        if self.name not in run.points:
            return
        yield from super().check(run, inputs)
        config, rows, odd = run.config, run.points[self.name].table["points"], []
        public = public_of(config, inputs.parts.train.n_features)
        if [row["epsilon"] for row in rows] != list(privacy_of(config).curve):
            odd.append("other epsilons than the configuration has")
        for row in rows:
            release = of_point(config, public, row["epsilon"])
            alone = total_epsilon((replace(release, noise=row["noise"]),), privacy_of(config).delta)
            if not math.isclose(release.noise, row["noise"], rel_tol=1e-4):
                odd.append(
                    f"the noise {row['noise']:.6g} is not that of epsilon {row['epsilon']:g}"
                )
            if not math.isclose(alone, row["alone"], rel_tol=1e-9):
                odd.append(f"noise {row['noise']:.6g} by itself makes epsilon {alone:.6g}")
        text = f"differs: {'; '.join(odd[:3])}" if odd else "noise as its epsilons need it"
        yield Check(self.name, not odd, text)


def _finished(file: Path, epsilons: Sequence[float], size: int) -> Record:
    """The plan and the points in the folder of a run that was interrupted, whose models have so
    many numbers.
    """
    stored = parsed(file, text_in(file))
    check_form(file, stored, FinishedForm)
    plan, points = stored["plan"], stored["points"]
    ends = [epsilon for epsilon, _ in plan]
    known = [(row["epsilon"], len(row["w"])) for row in points]
    if ends not in ([], list(epsilons)) or known != [(end, size) for end in ends[: len(points)]]:
        raise damaged(file, "its points are not those of the configuration")
    return stored


def _trained(study: Study, k: int, epsilon: float, total: float, progress: Progress) -> Solution:
    """The k-th run of the curve, within the total that all runs up to it may spend."""
    config, name = study.config, f"epsilon {epsilon:g}"
    assert study.work is not None
    budget = replace(study.budget, epsilon=total)
    budget = replace(budget, book=None) if privacy_of(config).rehearsal else budget
    path = study.work / f"curve-{k}.checkpoint"
    arguments = {**config.solve_arguments(path), "seed": config.seed + 1 + k}
    solution = fit(
        replace(config.problem(), privacy=budget),
        study.parts.train,
        **arguments,
        watch=(progress.watch(name),),
        resume=study.resume and was_begun(path),
    )
    if solution.outcome.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    progress.done(name, solution.outcome.text)
    return solution


def point_of(epsilon: float, ledger: Ledger, w: Array) -> Record:
    """What one point of the curve was run with, and its model. Of clients whose records count for
    less in a sum, the one whose records count most has the noise that is stated.
    """
    releases = min(ledger.releases.values(), key=lambda released: released[-1].noise)
    return {
        "epsilon": epsilon,
        "alone": total_epsilon(releases, ledger.budget.delta),
        "noise": releases[-1].noise,
        "w": w.tolist(),
    }


def judged(problem: Problem, w: Array, parts: Parts) -> Record:
    """The exact objective on the training rows, and loss and accuracy (or error) on every other
    set.
    """
    rows = {name: measure(problem, w, fed) for name, fed in parts.tests.items()}
    keys = ("loss", "accuracy", "error", "worst_loss")
    sets = {name: {key: row[key] for key in keys if key in row} for name, row in rows.items()}
    return {"value": problem.objective(w, parts.train), "sets": sets}
