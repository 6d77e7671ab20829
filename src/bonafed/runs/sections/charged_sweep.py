"""The models of a private run at other budgets: each is charged, before the model of the run.

The model spends what they leave of the budget (`bonafed.runs.privacy_plan`). Points that are
finished are kept with their models in the folder of the work, so that none is charged again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.privacy.accounting import total_epsilon
from bonafed.privacy.ledger import Ledger
from bonafed.rounds import Stop
from bonafed.runs.checks import Check
from bonafed.runs.files import Record, Row, parsed, text_in, write
from bonafed.runs.form import Form, NonNegative, Number, Positive, check_form, damaged
from bonafed.runs.privacy_plan import plan, privacy_of, public_of
from bonafed.runs.sections.privacy import of_point
from bonafed.runs.sections.section import Progress, Study
from bonafed.runs.splits import Parts
from bonafed.solution.privacy_account import was_begun
from bonafed.solution.solution import Solution
from bonafed.solution.solve import fit

FINISHED = "sweep.json"  # of a working folder: the points that are finished


class FinishedPointForm(Form):
    """A point while the others are trained, with its model."""

    at: Positive
    alone: NonNegative
    noise: Positive
    w: list[Number]


class FinishedForm(Form):
    """The plan of a sweep, (epsilon, total) by point, and its points so far."""

    plan: list[Annotated[list[Positive], Field(min_length=2, max_length=2)]]
    points: list[FinishedPointForm]


def charged(study: Study, progress: Progress) -> tuple[list[Record], list[Array]]:
    """What every point was run with, and its model; those in the folder of the work are kept."""
    assert study.work is not None
    config, budget, file = study.config, study.budget, study.work / FINISHED
    stored: Record = {"plan": [], "points": []}
    if study.resume and file.is_file():
        size = len(config.problem().model_start(study.parts.train.n_features))
        stored = _finished(file, config.budgets, size)
    if not stored["plan"]:
        public = public_of(config, study.parts.owners.n_features)
        stored["plan"] = [*map(list, plan(config, public, budget.book).sweep)]
        write(file, json.dumps(stored).encode())
    for k, (epsilon, total) in enumerate(stored["plan"]):
        if k < len(stored["points"]):
            continue
        solution = _trained(study, k, epsilon, total, progress)
        assert solution.ledger is not None
        stored["points"].append(point_of(epsilon, solution.ledger, solution.w))
        write(file, json.dumps(stored).encode())
    rows = [{key: v for key, v in row.items() if key != "w"} for row in stored["points"]]
    return rows, [np.array(row["w"]) for row in stored["points"]]


def _finished(file: Path, epsilons: Sequence[float], size: int) -> Record:
    """The plan and the points in the folder of a run that was interrupted, whose models have so
    many numbers.
    """
    stored = parsed(file, text_in(file))
    check_form(file, stored, FinishedForm)
    plan, points = stored["plan"], stored["points"]
    ends = [epsilon for epsilon, _ in plan]
    known = [(row["at"], len(row["w"])) for row in points]
    if ends not in ([], list(epsilons)) or known != [(end, size) for end in ends[: len(points)]]:
        raise damaged(file, "its points are not those of the configuration")
    return stored


def _trained(study: Study, k: int, epsilon: float, total: float, progress: Progress) -> Solution:
    """The k-th run of the sweep, within the total that all runs up to it may spend."""
    config, name = study.config, f"epsilon {epsilon:g}"
    assert study.work is not None
    budget = replace(study.budget, epsilon=total)
    budget = replace(budget, book=None) if privacy_of(config).rehearsal else budget
    path = study.work / f"sweep-{k}.checkpoint"
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
    """What one point was run with, and its model. Of clients whose records count for less in a sum,
    the one whose records count most has the noise that is stated.
    """
    releases = min(ledger.releases.values(), key=lambda released: released[-1].noise)
    return {
        "at": epsilon,
        "alone": total_epsilon(releases, ledger.budget.delta),
        "noise": releases[-1].noise,
        "w": w.tolist(),
    }


def check_noise(config: Config, parts: Parts, points: Sequence[Row]) -> Check:
    """The noise of every point against its budget."""
    public, odd = public_of(config, parts.train.n_features), []
    for row in points:
        release = of_point(config, public, row["at"])
        alone = total_epsilon((replace(release, noise=row["noise"]),), privacy_of(config).delta)
        if not math.isclose(release.noise, row["noise"], rel_tol=1e-4):
            odd.append(f"the noise {row['noise']:.6g} is not that of epsilon {row['at']:g}")
        if not math.isclose(alone, row["alone"], rel_tol=1e-9):
            odd.append(f"noise {row['noise']:.6g} by itself makes epsilon {alone:.6g}")
    text = f"differs: {'; '.join(odd[:3])}" if odd else "noise as its epsilons need it"
    return Check("sweep", not odd, text)
