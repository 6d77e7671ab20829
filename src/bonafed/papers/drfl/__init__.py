"""Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*.

A word for each method: `ad_lpmm` (Algorithm 1), `double_loop` (what it rejects), `central` (the
program (4)). A word for each objective of section 6 and appendix C, with features in [-1, 1] and
the l1 metric: `drfl`, and the baselines `afl`, `drfa`, `wafl` and `standard`. `estimator` and
`grid` are for a search by cross-validation; `bonafed reproduce --list` names the figures.
"""

from math import inf
from typing import Any

import bonafed as bf

HINGE, HUBER = bf.Hinge(), bf.Huber(1.35)  # SVM and HR
# the grids of section 6.1: of the radii, the cost of a label, and the radius of the weights
RADII = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 2e-6, 2e-5, 2e-4, 2e-3, 2e-2, 5e-6, 5e-4, 5e-2, 5e-1, 1.0)
LABEL_COSTS = tuple(k / 10 for k in range(1, 11))
THETAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def ad_lpmm(**settings: Any) -> bf.ADLPMM:
    """Algorithm 1 with c' = c'' = 2 S c."""
    return bf.ADLPMM(steps="paper", **settings)


def double_loop(**settings: Any) -> bf.DoubleLoop:
    """The plain min-max method, which the paper rejects."""
    return bf.DoubleLoop(**settings)


def central() -> bf.CentralConic:
    """The program (4) as one conic program on pooled rows."""
    return bf.CentralConic()


def drfl(radius: float, theta: float, label_cost: float = inf, loss: Any = HINGE) -> bf.Problem:
    """(4): balls of rows within clients, and a ball of client weights."""
    return _problem(loss, bf.LpBall(theta), _ball(radius, label_cost, loss))


def afl(theta: float, loss: Any = HINGE) -> bf.Problem:
    """Agnostic federated learning: a ball of client weights, C.1."""
    return _problem(loss, bf.LpBall(theta), bf.Mean())


def drfa(loss: Any = HINGE) -> bf.Problem:
    """All client weights, C.2."""
    return _problem(loss, bf.Simplex(), bf.Mean())


def wafl(radius: float, label_cost: float = inf, loss: Any = HINGE) -> bf.Problem:
    """One ball around the mixture, for ``fed.pooled()``."""
    return _problem(loss, bf.Mean(), _ball(radius, label_cost, loss))


def standard(loss: Any = HINGE) -> bf.Problem:
    """The mean over clients of the mean losses, corollaries 6.1 and 6.2."""
    return _problem(loss, bf.Mean("uniform"), bf.Mean())


def estimator(loss: Any = HINGE) -> bf.RobustClassifier | bf.RobustRegressor:
    """`drfl` as an estimator: no intercept, no regulariser, SVM on the box with clipped rows."""
    kind = bf.RobustClassifier if loss.targets == "sign" else bf.RobustRegressor
    ball = _ball(0.0, inf, loss)
    return kind(
        loss,
        norm="l1",
        support=ball.support,
        clip=ball.clip,
        client_p=2.0,
        regulariser=bf.Zero(),
        fit_intercept=False,
    )


def grid(prefix: str = "") -> dict[str, list[float]]:
    """The 900 points of section 6.1 for `estimator`: 15 radii rho, 10 label costs kappa, 6 client
    radii theta.

    ``prefix`` is for a step of a pipeline, such as "robustclassifier__". Points of a classifier
    with radius >= label_cost / 2 have the model 0.
    """
    values = {"radius": RADII, "label_cost": LABEL_COSTS, "client_radius": THETAS}
    return {prefix + name: [*points] for name, points in values.items()}


def _ball(radius: float, label_cost: float, loss: Any) -> bf.WassersteinBall:
    """HR is on all of R^n, SVM on the box."""
    box = bf.BoxSupport(-1.0, 1.0) if loss.targets == "sign" else None
    return bf.WassersteinBall(radius, label_cost, "l1", support=box, clip=box is not None)


def _problem(loss: Any, over_clients: Any, over_samples: Any) -> bf.Problem:
    model = bf.Linear(fit_intercept=False)
    return bf.Problem(loss, model, over_clients=over_clients, over_samples=over_samples)
