"""Radii tried on the training rows, so that a reader sees what a run's own radii cost and bring.

    for every (theta, rho) of [path]:   w = argmin of the problem over one part of every client's training rows,
                                        judged on the other part

The model of the run is not changed by it, and its test rows are not touched; features are scaled by all training rows.
The point with the smallest held-out loss of a client is named. It was looked at, so its own numbers flatter it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array
from quorate.config import Config

if TYPE_CHECKING:
    from quorate.data.federation import Federation
    from quorate.problem.problem import Problem

FILE, MODELS = "path.json", "path.safetensors"


@dataclass(frozen=True)
class Tried:
    """The table as in path.json, and the model of each of its points, (P, D)."""

    table: dict[str, Any]
    w: Array

    @property
    def arrays(self) -> dict[str, Array]:
        """As in path.safetensors."""
        return {"w": self.w}


def tried(config: Config, train: Federation, say: Callable[[str], None] = lambda line: None) -> Tried:
    """Solve and judge every point of [path]; Ctrl-C raises KeyboardInterrupt.

    ``say`` is called with one line for each point as it is found.
    """
    from quorate.model_selection import radius_path

    path, problem = config.path, config.path_problem()
    assert path is not None
    own, held = train.split(path.test, config.seed)
    options = {
        "radii": path.radii,
        "client_radii": path.client_radii,
        "test": held,
        **config.solve_arguments(clock=False),
    }
    rows = radius_path(problem, own, **options, watch=lambda row: say(line(row)))
    points = [{k: v for k, v in row.items() if k != "w"} for row in rows]
    return Tried(
        {"held_out": _sizes(held), "best": best(points), "points": points}, np.stack([row["w"] for row in rows])
    )


def recomputed(config: Config, train: Federation, table: Mapping[str, Any], w: Array) -> dict[str, Any]:
    """The table computed again from the models ``w``; their proofs are not kept, so bounds are as stated."""
    from quorate.model_selection import judged, trivial

    assert config.path is not None
    own, held = train.split(config.path.test, config.seed)
    points = []
    for (rho, theta), row, each in zip(_grid(config), table["points"], w, strict=True):
        problem = at(config.path_problem(), rho, theta)
        value, bound = problem.objective(each, own), row["bound"]
        gap = None if bound is None else (value - bound) / max(abs(value), abs(bound), 1e-12)
        found = {"radius": rho, "client_radius": theta, "value": value, "relative_gap": gap}
        points.append({**row, **found, "trivial": trivial(problem, own), **judged(problem, held, each)})
    return {"held_out": _sizes(held), "best": best(points), "points": points}


def at(problem: Problem, rho: float, theta: float | None) -> Problem:
    """The problem at other radii."""
    ball: Any = replace(problem.over_samples, radius=rho)  # type: ignore[type-var]
    over: Any = problem.over_clients
    return replace(problem, over_samples=ball, over_clients=over if theta is None else replace(over, radius=theta))


def _grid(config: Config) -> Iterator[tuple[float, float | None]]:
    assert config.path is not None
    kept = config.clients.radius if config.clients.risk == "lp_ball" else None
    for theta in config.path.client_radii or [kept]:
        yield from ((rho, theta) for rho in config.path.radii)


def _sizes(held: Federation) -> dict[str, int]:
    return dict(zip(held.clients, map(int, held.sizes), strict=True))


def best(points: list[dict[str, Any]]) -> int:
    """The point with the smallest held-out mean loss of a client; of those within 1e-6 of it the first."""
    return equal(points)[0]


def equal(points: list[dict[str, Any]]) -> list[int]:
    """All points whose held-out mean loss of the worst client is the smallest, to 1e-6."""
    least = min(point["worst_loss"] for point in points)
    return [k for k, point in enumerate(points) if point["worst_loss"] <= least + 1e-6 * abs(least)]


def line(row: Mapping[str, Any]) -> str:
    """A point in one line."""
    theta = "" if row["client_radius"] is None else f", client radius {row['client_radius']:g}"
    said = (
        f"path: radius {row['radius']:g}{theta}: objective {row['value']:.6f}, {row['rounds']} rounds; held-out loss "
    )
    said += f"{row['loss']:.4g}, worst client {row['worst_loss']:.4g} ({row['worst_client']})"
    return said + (f", accuracy {row['accuracy']:.1%}, worst {row['worst_accuracy']:.1%}" if "accuracy" in row else "")


def said_radius(config: Config, most: int = 20) -> str:
    """The radii that "auto" became, by client."""
    radii = config.robust.radius
    named = [f"{client} {radius:.3g}" for client, radius in radii.items()]
    return f"radius auto: {', '.join(named[:most])}{', ...' * (len(named) > most)}"
