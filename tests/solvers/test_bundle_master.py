"""The master problem of bundle methods, solved again and again from where it ended."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quorate.solvers.conic.bundle_master import Pieces, Shape, minimise
from quorate.solvers.conic.curved_weight_sets import Elliptic


@pytest.mark.parametrize("below", [None, 0.01])
def test_what_nothing_bounds_does_not_drift_from_program_to_program(below: float | None) -> None:
    """A transport multiplier that costs what its cuts gain by it is free upwards, in the minimiser
    and in a projection on a level alike.
    """
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
    near = {"centre": np.zeros(3), "metric": 1.0, "accuracy": 1e-9}
    first = minimise(shape, pieces, **near)
    if below is not None:
        near["level"] = first.value - below * abs(first.value) / 10
        first = minimise(shape, pieces, **near)
    last = first
    for _ in range(60):
        last = minimise(shape, pieces, near=last.point, **near)
    assert last.value == pytest.approx(first.value, rel=1e-8)
    assert np.abs(last.point).max() <= 1e3
