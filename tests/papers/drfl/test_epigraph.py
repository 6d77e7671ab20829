"""The projection onto a client's epigraph: against Clarabel, against its optimality conditions, and
at the edges.

(v, pi) is the projection of (b, a) exactly when (b - v)'(w - v) + tau (a - pi) (R(w) - pi) <= 0 for
all w: checked with the closed-form risk, which no solver enters.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bonafed.algorithms.federated.linearisation import risk_gradients
from bonafed.data.federation import Federation
from bonafed.papers.drfl import epigraph
from bonafed.papers.drfl import epigraph_projection as epigraph_client
from bonafed.papers.drfl.epigraph_admm import ADLPMM
from bonafed.papers.drfl.epigraph_projection import Copies, Project, rows_of
from bonafed.problem.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    SmoothHinge,
    Squared,
)
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.problem.wasserstein.supports import BoxSupport

LOSSES = [
    Hinge(),
    SmoothHinge(),
    Logistic(),
    Huber(0.7),
    EpsilonInsensitive(0.2),
    Quantile(0.3),
    Absolute(),
]
NORMS = ["l1", "l2", "linf"]


def one_client(loss, ball, intercept=False, seed=0, rows=25, d=4):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, d))
    t = X @ rng.standard_normal(d) + 0.3 + 0.4 * rng.standard_normal(rows)
    y = np.where(t > 0, 1.0, -1.0) if loss.targets == "sign" else t
    # one class alone is legal when declared
    classes = np.array([-1.0, 1.0]) if loss.targets == "sign" else None
    problem, fed = Problem(loss, Linear(intercept), ball).at(
        Federation(("a",), (X,), (y,), classes=classes)
    )
    return problem, fed.block(0)


def projected(problem, block, b, a, tau):
    """(v, pi, fallbacks) of the client's step."""
    ask, copies = Project(b[None], np.array([a]), tau), Copies(b[None])
    step = ADLPMM(problem=problem).onto_epigraph
    up = step(copies, ask, block, lambda i: np.random.default_rng(0))[1]
    return up.w[0], float(up.pi[0]), int(up.fallbacks[0])


def nearest(problem, block, b, a, tau, v, pi, others):
    """Feasible, and no point of the epigraph lies at an acute angle; relative to the distance
    moved.
    """
    risk = problem.client_risks(v, block)[0]
    moved = math.hypot(np.linalg.norm(b - v), math.sqrt(tau) * (pi - a))
    assert pi >= risk - 1e-9 * (1 + abs(risk))
    for w in others:
        angle = (b - v) @ (w - v) + tau * (a - pi) * (problem.client_risks(w, block)[0] - pi)
        # the solver stops at residuals of 1e-10 of the distance, or a gap of 1e-19: sqrt(2e-19) in
        # v
        assert angle <= (1e-7 * moved + 5e-10) * (1 + np.linalg.norm(w - v))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("k", range(len(LOSSES)))
def test_equals_the_conic_program(k, norm):
    """Clarabel's solution of the literal model (itself proved against CVXPY in
    test_central_conic).
    """
    seed = 3 * k + len(norm)
    loss, kappa = LOSSES[k], (0.4, 1.0, math.inf)[seed % 3]
    problem, block = one_client(loss, WassersteinBall(0.1, kappa, norm), bool(seed % 2), seed)
    rng = np.random.default_rng(seed)
    b = rng.standard_normal(4 + seed % 2)
    own = rows_of(block, 0)
    for tau, down in ((1.0, 0.3), (30.0, 0.9), (0.05, 0.02)):
        a = (1 - down) * float(problem.client_risks(b, block)[0])
        v, pi, fallbacks = projected(problem, block, b, a, tau)
        w, height = epigraph_client._conic(problem, own, b, a, tau)
        assert fallbacks == 0
        assert_allclose(v, w, atol=1e-6)
        assert_allclose(pi, height, atol=1e-6)


@given(
    st.sampled_from(LOSSES),
    st.sampled_from(NORMS),
    st.sampled_from([0.0, 0.01, 0.3, 2.0]),
    st.sampled_from([0.1, 1.0, math.inf]),
    st.booleans(),
    st.integers(0, 10**6),
    st.floats(-3, 4),
    st.floats(-6, 0.3),
    st.sampled_from([0.0, 1e-3, 1.0, 5.0]),
)
@settings(deadline=None, max_examples=300)
def test_optimality_conditions_hold(
    loss, norm, radius, kappa, intercept, seed, log_tau, log_down, size
):
    """Any scale of the penalty, the distance and the model; at b = 0 the norms have their kinks."""
    problem, block = one_client(
        loss, WassersteinBall(radius, kappa, norm), intercept, seed, rows=2 + seed % 30
    )
    rng = np.random.default_rng(seed)
    b = size * rng.standard_normal(4 + intercept)
    risk = float(problem.client_risks(b, block)[0])
    a, tau = risk - 10**log_down * (1 + risk), 10**log_tau
    v, pi, _ = projected(problem, block, b, a, tau)
    others = v + np.concatenate(
        [rng.standard_normal((30, len(b))) * 10.0 ** rng.integers(-5, 2, (30, 1)), -v[None]]
    )
    nearest(problem, block, b, a, tau, v, pi, others)


def test_points_inside_come_back_as_they_are():
    problem, block = one_client(Hinge(), WassersteinBall(0.1, 1.0))
    b = np.array([0.3, -0.2, 0.1, 0.0])
    risk = float(problem.client_risks(b, block)[0])
    for a in (risk, risk + 1.0):
        v, pi, fallbacks = projected(problem, block, b, a, 2.0)
        assert_allclose(v, b, rtol=0, atol=0)
        assert (pi, fallbacks) == (a, 0)
    # outside by rounding: moved by no more
    v, pi, _ = projected(problem, block, b, risk - 1e-14, 2.0)
    assert_allclose(v, b, atol=1e-13)
    assert pi >= risk - 1e-13


@pytest.mark.parametrize("norm", NORMS)
def test_masses_are_a_distribution_that_explains_the_step(norm):
    """z / nu sums to the rows' shares and spends no more than the radius on flipped labels."""
    problem, block = one_client(Hinge(), WassersteinBall(0.2, 0.5, norm))
    own, b = rows_of(block, 0), np.array([1.0, -1.0, 2.0, 0.5])
    value, gradient, level = (part[0] for part in risk_gradients(problem, b, own))
    shape = epigraph_client._epigraph(problem, own, 0.2)
    found = epigraph.project(shape, b, 0.5 * value, 3.0, value, gradient, level)
    assert found.solved
    assert_allclose(found.mass.sum(0), own.share[0], rtol=1e-8)
    flipped = found.mass[shape.fee < 0].sum()
    assert 0.5 * flipped <= 0.2 * (1 + 1e-6)
    nu = 3.0 * (found.pi - 0.5 * value)
    t = shape.forward(found.v)
    pull = (shape.curve(t)[1] * found.mass).sum(0)
    # nu (radius - flips) times a gradient of ||v||_*: transport of x
    left = b - found.v - nu * shape.backward(pull)
    spent = nu * (0.2 - 0.5 * flipped)
    bound = {"l1": np.abs(left).sum(), "l2": np.linalg.norm(left), "linf": np.abs(left).max()}[norm]
    assert bound <= spent * (1 + 1e-6) + 1e-9


def test_a_solve_that_stops_short_falls_back_and_is_counted(monkeypatch):
    problem, block = one_client(Huber(0.7), WassersteinBall(0.1, 1.0, "l2"))
    b, tau = np.array([1.0, -1.0, 2.0, 0.5]), 2.0
    a = 0.3 * float(problem.client_risks(b, block)[0])
    v, pi, fallbacks = projected(problem, block, b, a, tau)
    monkeypatch.setattr(epigraph, "ITERATIONS", 3)
    w, height, counted = projected(problem, block, b, a, tau)
    assert (fallbacks, counted) == (0, 1)
    assert_allclose(w, v, atol=1e-6)
    assert_allclose(height, pi, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", [Hinge(), Quantile(0.3)])
def test_supports_go_through_the_conic_program(loss, norm):
    problem, block = one_client(
        loss, WassersteinBall(0.2, 0.8, norm, BoxSupport(-1.0, 1.0)), rows=10
    )
    rng = np.random.default_rng(4)
    b = rng.standard_normal(4)
    risk = float(problem.client_risks(b, block)[0])
    v, pi, fallbacks = projected(problem, block, b, 0.4 * risk, 2.0)
    assert fallbacks == 1
    # the conic solver stops at 1e-10 in value, which is 1e-5 in v at worst: compare angles on that
    # scale
    moved = np.linalg.norm(b - v) + pi - 0.4 * risk
    for w in v + rng.standard_normal((20, 4)):
        angle = (b - v) @ (w - v) + 2.0 * (0.4 * risk - pi) * (
            problem.client_risks(w, block)[0] - pi
        )
        assert angle <= 1e-5 * moved * (1 + np.linalg.norm(w - v))


def test_losses_without_a_wasserstein_ball_are_projected_too():
    """The squared loss at radius 0: b - v = nu X'(Xv - y)/N with nu = tau (pi - a)."""
    problem, block = one_client(Squared(), WassersteinBall(0.0))
    b, tau = np.array([1.0, 0.0, -2.0, 0.5]), 0.7
    a = 0.2 * float(problem.client_risks(b, block)[0])
    v, pi, fallbacks = projected(problem, block, b, a, tau)
    assert fallbacks == 0
    X, y = block.X[0], block.y[0]
    assert_allclose(b - v, tau * (pi - a) * X.T @ (X @ v - y) / len(y), atol=1e-8)


def test_sampled_steps_draw_from_the_clients_own_stream():
    problem, block = one_client(Hinge(), WassersteinBall(0.1, 1.0))
    ask, copies = Project(np.ones((1, 4)), np.zeros(1), 1.0), Copies(np.ones((1, 4)))

    def step(seed):
        rng = np.random.default_rng(seed)
        method = ADLPMM(sample=0.5, problem=problem)
        return method.onto_epigraph(copies, ask, block, lambda i: rng)[1].w

    first, again, other = step(1), step(1), step(2)
    assert_allclose(first, again, rtol=0, atol=0)
    assert np.abs(first - other).max() > 1e-6
    part = rows_of(block, 0, (np.random.default_rng(1), 0.5))
    assert part.share.shape == (1, 13)
    assert_allclose(part.share.sum(), 1.0)


def test_errors_name_what_was_given():
    problem, block = one_client(Hinge(), WassersteinBall(0.1, 1.0))
    with pytest.raises(ValueError, match="client a: the model or its risk is not finite"):
        projected(problem, block, np.full(4, np.nan), 0.0, 1.0)
    shape = epigraph_client._epigraph(problem, rows_of(block, 0), 0.1)
    with pytest.raises(ValueError, match="outside the epigraph and tau > 0"):
        epigraph.project(shape, np.zeros(4), 2.0, 1.0, 1.0, np.zeros(4), 0.0)
