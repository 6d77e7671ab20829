"""The client's half of AsyncDRO: the line of its risk at a model, and the curvature on the way.

    F_j(v) ~ b_j + <g_j, v>,  g_j = F_j'(w),  b_j = F_j(w) - <g_j, w>,
            L_j = ||(g_j - g_j') / u|| / ||u (w - w')||

A client stores the last model w' that it was sent, and its gradient there. The units u of the
coefficients are the root mean squares of what they multiply: at the first message those of its own
rows, then those of all clients, which the server sends once.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from quorate.algorithms.federated.epigraph_projection import risk_gradients
from quorate.algorithms.federated.linearisation import units_of
from quorate.arrays import Array, Block, Streams, compact
from quorate.codec import Form
from quorate.problem.lower_bounds import survey
from quorate.problem.problem import Problem
from quorate.problem.regularisers import separable
from quorate.rounds import Each, Max, Sum, Version, record

NUDGE = 1e-3  # share of its loss by which a client's first, probing step would lower it


@record
class Meet:
    """The first message: ask for risk, gradient and curvature at ``w``, or at the default start."""

    prior: Each  # (N,)
    w: Version | None  # (D,)


@record
class Met:
    """The client's first line and curvature, and its part of the survey that bounds where an
    optimum lies.
    """

    risk: Each  # (n,) F_j(w)
    level: Each  # (n,) b_j = F_j(w) - <g_j, w>
    gradient: Each  # (n, D) g_j
    curvature: Each  # (n,) L_j
    features: Max  # (n,) their number
    plus: Sum  # these five as in ``Surveyed``
    minus: Sum
    reach: Max
    target: Max
    square: Sum


@record
class Visit:
    """Ask for the client's line at ``w``; with the units of all coefficients the first time."""

    w: Annotated[Version, Form("D")]
    units: Annotated[Version, Form("D")] | None = None


@record
class Visited:
    """The client's line, and the curvature of its risk between the last model it was sent and this
    one.
    """

    level: Each  # (n,)
    gradient: Each  # (n, D)
    curvature: Each  # (n,)


@record
class LastVisit:
    """The client's memory: the last model it was sent, with its gradient and curvature there, and
    the units of the coefficients.
    """

    w: Annotated[Array, Form("n, D")]
    gradient: Annotated[Array, Form("n, D")]
    curvature: Annotated[Array, Form("n")]
    units: Annotated[Array, Form("n, D")]


def step_units(problem: Problem, square: Array) -> Array:
    """The units (D,) in which steps are measured: `units_of`, and 1 where the regulariser's prox
    takes no step for each coefficient.
    """
    units = units_of(problem, square)
    return units if separable(problem.regulariser) else np.ones_like(units)


def meet(
    problem: Problem, memory: LastVisit | None, ask: Meet, data: Block, rng: Streams
) -> tuple[LastVisit, Met]:
    """The first line, with L_j along the gradient, which takes a second gradient."""
    shape = len(data.index), problem.predictor.dimension(data.n_features)
    w = np.broadcast_to(
        problem.model_start(data.n_features) if ask.w is None else ask.w, shape
    ).copy()
    risk, gradient, _ = risk_gradients(problem, w, data)
    units = np.stack([step_units(problem, square) for square in data.squares()])
    square = ((gradient / units) ** 2).sum(1)
    length = np.divide(NUDGE * risk, square, out=np.zeros_like(risk), where=square > 0)[:, None]
    nudged = w - length * gradient / units**2
    there, none = risk_gradients(problem, nudged, data)[1], np.zeros_like(risk)
    level, curvature = _line(risk, gradient, w, there, nudged, units, none)
    seen, features = survey(data, ask.prior), np.full(len(risk), float(data.n_features))
    more = seen.plus, seen.minus, seen.reach, seen.target, seen.square
    return LastVisit(w, gradient, curvature, units), Met(
        risk, level, gradient, curvature, features, *more
    )


def visit(
    problem: Problem, memory: LastVisit, ask: Visit, data: Block, rng: Streams
) -> tuple[LastVisit, Visited]:
    """The line at ``ask.w``, and the curvature on the way there."""
    w, (risk, gradient, _) = np.ascontiguousarray(ask.w), risk_gradients(problem, ask.w, data)
    units = memory.units if ask.units is None else np.ascontiguousarray(ask.units)
    last = memory.gradient, memory.w, units, memory.curvature
    level, curvature = _line(risk, gradient, w, *last)
    return LastVisit(w, gradient, curvature, units), Visited(level, gradient, curvature)


def _line(*numbers: Array) -> tuple[Array, Array]:
    from quorate.solvers.kernels.curvature import lines_and_curvatures

    return lines_and_curvatures(*[compact(each) for each in numbers])
