"""The client's half of AsyncDRO: its risk and its gradient at a model, and a first curvature.

    L_j = ||(g - g') / u|| / ||u (w - w')||

at the first model w and a probe w' a short way down the gradient. The units u of the coefficients
are the root mean squares of what they multiply, here in the client's own rows.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from bonafed.algorithms.federated.linearisation import risk_gradients, units_of
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.problem.lower_bounds import survey
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import separable
from bonafed.rounds import Each, Max, Sum, Version, record

NUDGE = 1e-3  # share of its loss by which a client's first, probing step would lower it


@record
class Meet:
    """The first message: ask for risk, gradient and curvature at ``w``, or at the default start."""

    prior: Annotated[Each, Form("N")]
    w: Annotated[Version, Form("D")] | None


@record
class Met:
    """The client's first line and curvature, and its part of the survey that bounds where an
    optimum lies.
    """

    risk: Each  # (n,) F_j(w)
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
    """Ask for the client's risk and gradient at ``w``, which are `Linearised`."""

    w: Annotated[Version, Form("D")]


def step_units(problem: Problem, square: Array) -> Array:
    """The units (..., D) in which steps are measured: `units_of`, and 1 where the regulariser's
    prox takes no step for each coefficient.
    """
    units = units_of(problem, square)
    return units if separable(problem.regulariser) else np.ones_like(units)


def meet(problem: Problem, memory: None, ask: Meet, data: Block, rng: Streams) -> tuple[None, Met]:
    """The first line, with L_j along the gradient, which takes a second gradient."""
    shape = len(data.index), problem.predictor.dimension(data.n_features)
    w = np.broadcast_to(problem.model_start(data.n_features) if ask.w is None else ask.w, shape)
    risk, gradient, _ = risk_gradients(problem, w, data)
    units = step_units(problem, data.squares())
    square = ((gradient / units) ** 2).sum(1)
    length = np.divide(NUDGE * risk, square, out=np.zeros_like(risk), where=square > 0)[:, None]
    nudged = w - length * gradient / units**2
    moved = np.linalg.norm(units * (nudged - w), axis=1)
    change = np.linalg.norm((risk_gradients(problem, nudged, data)[1] - gradient) / units, axis=1)
    curvature = np.divide(change, moved, out=np.zeros_like(risk), where=moved > 0)
    seen, features = survey(data, ask.prior), np.full(len(risk), float(data.n_features))
    more = seen.plus, seen.minus, seen.reach, seen.target, seen.square
    return memory, Met(risk, gradient, curvature, features, *more)
