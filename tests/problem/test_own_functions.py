"""Own functions are held against themselves before a run: a forgotten term is named with its
client and constraint, and right functions pass, kinks and all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from constrained_programs import clients
from problems import PLAIN

import bonafed as bf
from bonafed.problem.own_functions import check_own

FED = clients(seed=1, sizes=(9, 7, 8))


def checked(problem, fed=FED):
    check_own(*problem.at(fed))


def limited(function, **settings):
    constraint = bf.Constraint(function, **settings)
    return bf.Problem(bf.Logistic(), PLAIN, local_constraint=constraint, regulariser=bf.L2(0.1))


def quadratic(w, X, y, scale=1.0):
    """|X w|^2 / m + w_1 <= 1, with a coefficient of its gradient at choice."""
    gradient = 2 * X.T @ (X @ w) / len(y)
    gradient[0] += scale
    return np.array([(X @ w) @ (X @ w) / len(y) + w[0] - 1]), gradient[None]


def bend(w, X, y, mu, scale=2.0):
    return scale * mu[0] * X.T @ X / len(y)


def hinges(w, X, y):
    """Piecewise linear, with the kinks of every row; |w|_1; and a largest entry."""
    active = (y * (X @ w) < 1).astype(float)
    k = np.abs(w).argmax()
    values = [np.maximum(0, 1 - y * (X @ w)).mean() - 1, np.abs(w).sum() - 9, abs(w[k]) - 3]
    return np.array(values), np.stack(
        [-X.T @ (y * active) / len(y), np.sign(w), np.sign(w[k]) * np.eye(len(w))[k]]
    )


RIGHT = {
    "quadratic": limited(quadratic, convex=True, hessian=bend),
    "kinks": limited(hinges, size=3, convex=True),
    "single precision": limited(
        lambda w, X, y: tuple(np.float32(part) for part in quadratic(np.float32(w), X, y)),
        convex=True,
    ),
    "not everywhere": limited(
        lambda w, X, y: (np.array([np.log(w[0])]), np.eye(len(w))[:1] / w[0])
    ),
    "not convex": limited(lambda w, X, y: (np.array([-w @ w]), -2 * w[None])),
    "set": bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.OwnSet(bf.Superquantile(0.5).weights)),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_right_functions_pass_in_all_units(name, scale):
    for seed in range(3):
        fed = clients(seed=seed, sizes=(9, 7, 8))
        checked(RIGHT[name], bf.Federation(fed.clients, [scale * x for x in fed.X], fed.y))


WRONG = {
    "jacobian": (
        limited(lambda w, X, y: quadratic(w, X, y, 0.9), convex=True),
        "client 'clinic 0': the Jacobian of custom constraint 1 is not the derivative of its value"
        ": .*Mend the function",
    ),
    "hessian": (
        limited(quadratic, hessian=lambda w, X, y, mu: bend(w, X, y, mu, 1.9)),
        "client 'clinic 0': the hessian of custom constraint 1",
    ),
    "convexity": (
        limited(lambda w, X, y: (np.array([-w @ w]), -2 * w[None]), convex=True),
        "custom constraint 1 is declared convex=True and is not convex",
    ),
    "saddle": (
        limited(
            lambda w, X, y: (
                np.array([50 * w[:3] @ w[:3] - w[3] ** 2]),
                w[None] * [100, 100, 100, -2],
            ),
            convex=True,
            hessian=lambda w, X, y, mu: mu[0] * np.diag([100.0, 100, 100, -2]),
        ),
        "is not convex",
    ),
    "equality": (
        limited(lambda w, X, y: (np.array([w @ w - 1]), 2 * w[None]), convex=True, equality=True),
        "is not affine, as an equality must be",
    ),
    "set": (
        bf.Problem(
            bf.Logistic(), PLAIN, over_clients=bf.OwnSet(lambda z: np.eye(len(z))[z.argmin()])
        ),
        "worst weights for some losses give",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_functions_are_named(name):
    problem, text = WRONG[name]
    with pytest.raises(ValueError, match=text):
        bf.solve(problem, FED)


def test_the_server_and_coupled_constraints_are_checked_too():
    wrong = bf.Constraint(lambda w, X, y: quadratic(w, X, y, 0.9), convex=True)
    fed = bf.Federation(FED.clients, FED.X, FED.y, server=(FED.X[0], FED.y[0]))
    for slot, data, text in (
        (wrong, fed, "the server's constraint: the Jacobian"),
        (bf.Coupled(wrong, "uniform"), FED, "custom constraint 1, all clients together"),
    ):
        with pytest.raises(ValueError, match=text):
            checked(bf.Problem(bf.Logistic(), PLAIN, constraint=slot), data)
    problem = bf.Problem(bf.Logistic(), PLAIN, constraint=wrong)
    with pytest.raises(ValueError, match="the Jacobian"):
        bf.certify(problem, fed, np.zeros(4))


def test_one_wrong_client_is_found():
    def odd(w, X, y):
        value, jacobian = quadratic(w, X, y)
        return value, jacobian * (0.99 if len(y) == 7 else 1.0)

    with pytest.raises(ValueError, match="client 'clinic 1': the Jacobian"):
        checked(limited(odd))


@dataclass(frozen=True)
class Own:
    """log cosh of the residual, with faults."""

    slope: float = 1.0
    bow: float = 1.0
    lipschitz: float = 1.0
    floor: tuple[float, float] = (1.0, 0.7)
    pieces = None
    targets = "real"
    smooth = True

    def value(self, prediction, y):
        u = np.abs(prediction - y)
        return u + np.log1p(np.exp(-2 * u)) - np.log(2)

    def gradient(self, prediction, y):
        return self.slope * np.tanh(prediction - y)

    def curvature(self, prediction, y):
        return self.bow * self.slope * (1 - np.tanh(prediction - y) ** 2)


@dataclass(frozen=True)
class OwnRidge:
    """strength |w|^2 / 2, with faults."""

    strength: float = 0.1
    step: float = 1.0
    shrink: float = 1.0
    reach: float = 1.0
    weak_convexity = 0.0
    strong_convexity: float = 0.1

    def value(self, w):
        return self.strength / 2 * float(w @ w)

    def prox(self, v, step):
        return v / (1 + self.step * step * self.strength)

    def conjugate(self, v):
        return self.shrink * float(v @ v) / self.strength / 2

    def domain_radius(self, level, size):
        return self.reach * float(np.sqrt(2 * max(level, 0) / self.strength))


REAL = clients(seed=2, sizes=(9, 7), real=True)
FAULTS = [
    (Own(slope=0.9), None, "client 'clinic 0': the loss Own has a gradient that is not"),
    (Own(bow=0.9), None, "has a curvature that is not"),
    (Own(lipschitz=0.5), None, "steeper than its lipschitz"),
    (Own(floor=(1.0, 0.1)), None, "below its floor"),
    (Own(), OwnRidge(step=0.5), "regulariser OwnRidge has a prox"),
    (Own(), OwnRidge(shrink=0.9), "has a conjugate that is smaller"),
    (Own(), OwnRidge(reach=0.9), "has a domain_radius"),
    (Own(), OwnRidge(strong_convexity=0.2), "is less convex"),
]


@pytest.mark.parametrize(("loss", "h", "text"), FAULTS)
def test_faults_of_losses_and_regularisers(loss, h, text):
    right = bf.Problem(Own(), PLAIN, regulariser=OwnRidge())
    checked(right, REAL)
    with pytest.raises(ValueError, match=text):
        checked(replace(right, loss=loss, regulariser=h or bf.Zero()), REAL)


def test_what_is_only_declared_is_never_called_proved():
    solution = bf.solve(RIGHT["quadratic"], FED)
    text = solution.outcome.text
    assert solution.outcome.stop.value == "optimal"
    assert "custom constraint 1" in text
    assert "as declared" in solution.certificate.in_words()
    own = bf.solve(bf.Problem(Own(), PLAIN, regulariser=bf.L2(0.1)), REAL)
    assert "the loss Own" in own.outcome.text
    for words in (text, own.outcome.text):
        assert "prove" not in words.lower()
    known = bf.solve(bf.Problem(bf.Huber(1.0), PLAIN, regulariser=bf.L2(0.1)), REAL)
    assert "declared" not in known.outcome.text + known.certificate.in_words()
