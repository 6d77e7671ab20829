"""The master problem of bundle methods, solved again and again from where it ended."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quorate.solvers.conic.bundle_master import Pieces, Shape, minimise
from quorate.solvers.conic.curved_weight_sets import Elliptic


def test_what_nothing_bounds_does_not_drift_from_program_to_program() -> None:
    """A transport multiplier that costs what its cuts gain by it is free upwards."""
    rng, radius = np.random.default_rng(0), np.full(2, 0.1)
    pieces = Pieces(
        owner=np.repeat([0, 1], 3),
        part=np.zeros(6, np.intp),
        offset=np.ones(6),
        gradient=rng.normal(size=(6, 3)),
        gradient_level=np.full(6, -0.1),
        parts=1,
    )
    shape = Shape(
        n_clients=2,
        radius=radius,
        lipschitz=1.0,
        floor=0.0,
        dual="linf",
        own_multipliers=True,
        weighting=Elliptic(np.full(2, 0.5), np.ones(2), 0.1),
        l1=0.0,
        l2=0.1,
        lower=-math.inf,
        upper=math.inf,
        intercept=0,
    )
    first = minimise(shape, pieces, centre=np.zeros(3), metric=1.0, accuracy=1e-9)
    last = first
    for _ in range(60):
        last = minimise(
            shape, pieces, centre=np.zeros(3), near=last.point, metric=1.0, accuracy=1e-9
        )
    assert last.value == pytest.approx(first.value, rel=1e-8)
    assert np.abs(last.point).max() <= 1e3
