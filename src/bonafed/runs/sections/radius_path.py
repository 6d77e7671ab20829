"""Radii tried on the training rows, so that a reader sees what a run's own radii cost and bring.

    for every (theta, rho) of [path]:
            w = argmin of the problem over one part of every client's training rows,
                                        judged on the other part

The model of the run is not changed by it, and its test rows are not touched; features are scaled by
all training rows. The point with the smallest held-out loss of a client is named. It was chosen by
its numbers, so that they flatter it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.arrays import Array
from bonafed.certificates.certify import certify
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.problem import Problem
from bonafed.runs.baselines import proof_arrays, restored, stored
from bonafed.runs.files import Record, Row
from bonafed.runs.form import (
    Count,
    Form,
    NonNegative,
    Number,
    Share,
    StopName,
    Whole,
    at_least,
    optional,
)
from bonafed.runs.outcomes import ended, method_of, stop_of
from bonafed.runs.run import Points
from bonafed.runs.sections.section import Inputs, Progress, Study, TableSection
from bonafed.solution.radius_path import judged, radius_path, trivial


class PointForm(Form):
    """One point of a path."""

    radius: NonNegative
    client_radius: NonNegative | None
    value: Number
    bound: Number | None
    relative_gap: Number | None
    rounds: Whole
    outcome: StopName
    trivial: bool
    loss: Number
    worst_loss: Number
    worst_client: str
    accuracy: Share = optional()
    worst_accuracy: Share = optional()
    mae: NonNegative = optional()
    worst_mae: NonNegative = optional()


class PathForm(Form):
    """path.json."""

    held_out: Annotated[dict[str, Count], at_least(1)]
    best: Whole
    points: Annotated[list[PointForm], at_least(1)]


class RadiusPath(TableSection):
    """Models at other radii than those of the run, beside its model."""

    name = "path"
    files = ("path.json", "path.safetensors")
    table = PathForm

    def applies(self, config: Config) -> bool:
        return config.path is not None

    def train(self, study: Study, progress: Progress) -> Points:
        """Solve and judge every point of [path]."""
        config = study.config
        assert config.path is not None
        local, test = study.parts.train.split(config.path.test, config.seed)
        rows = radius_path(
            config.path_problem(),
            local,
            radii=config.path.radii,
            client_radii=config.path.client_radii,
            test=test,
            watch=lambda row: progress.done(self.name, line(row)),
            **config.solve_arguments(clock=False),
        )
        points = [{k: v for k, v in row.items() if k not in ("w", "duals")} for row in rows]
        proofs = {str(k): proof_arrays(row["duals"]) for k, row in enumerate(rows)}
        models = {"w": np.stack([row["w"] for row in rows])}
        return Points(_table(test, points), stored(models, proofs))

    def result(self, inputs: Inputs) -> Record:
        """The table, computed again from the models and what proves their bounds."""
        config, points = inputs.config, inputs.points[self.name]
        _, proofs = restored(points.arrays)
        assert config.path is not None
        local, test = inputs.parts.train.split(config.path.test, config.seed)
        rows = []
        tried = zip(_grid(config), points.table["points"], points.w, strict=True)
        for k, ((rho, theta), row, w) in enumerate(tried):
            problem = at(config.path_problem(), rho, theta)
            duals = Duals(**proofs[str(k)]) if str(k) in proofs else None
            proof = certify(problem, local, w, duals)
            again = {"radius": rho, "client_radius": theta, "value": proof.value}
            again |= {"bound": proof.bound, "relative_gap": proof.relative_gap}
            method = method_of(config, problem, local, default=Bundle())
            end = ended(config, method, row["outcome"], "", row["rounds"])
            again |= {"outcome": stop_of(end, problem, local, proof)}
            again |= {"trivial": trivial(problem, local, w, proof), **judged(problem, test, w)}
            rows.append(row | again)
        return _table(test, rows)

    def fits(self, table: Row, arrays: Mapping[str, Array]) -> bool:
        return arrays["w"].ndim == 2


def _table(test: Federation, points: list[Record]) -> Record:
    """The content of path.json."""
    sizes = dict(zip(test.names, map(int, test.sizes), strict=True))
    return {"held_out": sizes, "best": best(points), "points": points}


def at(problem: Problem, rho: float, theta: float | None) -> Problem:
    """The problem at other radii."""
    problem = replace(problem, over_samples=replace(problem.over_samples, radius=rho))
    if theta is None:
        return problem
    return replace(problem, over_clients=replace(problem.over_clients, radius=theta))


def _grid(config: Config) -> Iterator[tuple[float, float | None]]:
    assert config.path is not None
    kept = config.clients.get("radius") if config.clients.risk == "lp_ball" else None
    for theta in config.path.client_radii or [kept]:
        yield from ((rho, theta) for rho in config.path.radii)


def best(points: Sequence[Row]) -> int:
    """The point with the smallest held-out mean loss of a client; of those within 1e-6 of it the
    first.
    """
    return equal(points)[0]


def equal(points: Sequence[Row]) -> list[int]:
    """All points whose held-out mean loss of the worst client is the smallest, to 1e-6."""
    least = min(point["worst_loss"] for point in points)
    return [k for k, point in enumerate(points) if point["worst_loss"] <= least + 1e-6 * abs(least)]


def line(row: Row) -> str:
    """A point in one line."""
    theta = "" if row["client_radius"] is None else f", client radius {row['client_radius']:g}"
    text = (
        f"radius {row['radius']:g}{theta}: objective {row['value']:.6f}, {row['rounds']}"
        f" rounds; held-out loss {row['loss']:.4g}, worst client {row['worst_loss']:.4g}"
        f" ({row['worst_client']})"
    )
    if "accuracy" in row:
        text += f", accuracy {row['accuracy']:.1%}, worst {row['worst_accuracy']:.1%}"
    return text


def radii_in_words(config: Config, most: int = 20) -> str:
    """What "auto" became: one radius, or in older runs one by client."""
    radii = config.robust.radius
    if not isinstance(radii, Mapping):
        return f"radius auto: {radii:.3g}"
    named = [f"{client} {radius:.3g}" for client, radius in radii.items()]
    return f"radius auto: {', '.join(named[:most])}{', ...' * (len(named) > most)}"
