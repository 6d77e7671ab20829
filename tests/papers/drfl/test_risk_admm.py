"""RiskADMM: any convex monotone risk over clients, Wasserstein balls inside clients, beside the
conic reference.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import PLAIN
from toy import federation

import bonafed as bf
from bonafed.rounds import Stop

FED = federation((9, 14, 6), 3)
BALL = bf.WassersteinBall(0.05, 0.5, "l2")
RISKS = {
    "superquantile": bf.Superquantile(0.4),
    "KL": bf.KLBall(0.3, "uniform"),
    "ranks": bf.Extremile(2.0),
}


@pytest.mark.parametrize("risk", RISKS.values(), ids=RISKS.keys())
def test_risks_over_clients_with_balls_inside_them(risk):
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=BALL, over_clients=risk, regulariser=bf.L2(1e-2)
    )
    found = bf.solve(problem, FED, algorithm=bf.RiskADMM(), tol=1e-4, max_rounds=400)
    best = bf.solve(problem, FED, tol=1e-8)
    assert found.outcome.stop is Stop.OPTIMAL, found.outcome.text
    assert found.certificate.value == pytest.approx(best.certificate.value, rel=1e-4)
    assert found.certificate.bound <= best.certificate.value * (1 + 1e-9)
    np.testing.assert_allclose(found.w, best.w, atol=2e-2)
    assert risk.at(FED.sizes, FED.clients).contains(found.state.weights, 1e-7)


def test_a_set_without_a_projection_is_refused():
    class Only:
        """Knows its maximiser alone."""

        def at(self, sizes, names=None):
            return self

        def value(self, losses):
            return float(np.max(losses))

        def weights(self, losses):
            return (np.arange(len(losses)) == np.argmax(losses)).astype(float)

        def worst(self, losses):
            return bf.Simplex().worst(losses)

    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=BALL, over_clients=bf.Simplex(), regulariser=bf.L2(1e-2)
    )
    with pytest.raises(ValueError, match="with `project`"):
        bf.solve(replace(problem, over_clients=Only()), FED, algorithm=bf.RiskADMM())
