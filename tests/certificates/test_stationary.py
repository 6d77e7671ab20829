"""Certificates of models that are not affine: values, stationarity by hand and at points found by
SciPy; no bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, nnls

import bonafed as bf
from bonafed.algorithms.method import Answer, Method
from bonafed.certificates.duality import certify_run
from bonafed.problem.predictors.mlp import MLP
from bonafed.rounds import Done, Each, Round, Stop, record

SIZES = (20, 35, 12, 28, 9)
D = 4 * 3 + 3 + 3 + 1


def federation():
    """Labels by a product of two features and, with the client, ever more noise."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(m, 4)) for m in SIZES]
    y = [
        np.where(x[:, 0] * x[:, 1] + 0.3 * k * rng.normal(size=len(x)) > 0, 1.0, -1.0)
        for k, x in enumerate(X)
    ]
    return bf.Federation([f"c{i}" for i in range(5)], X, y)


FED = federation()
MEAN = bf.Problem(bf.Logistic(), MLP((3,), seed=1), regulariser=bf.L2(0.02))
WORST = replace(MEAN, over_clients=bf.Simplex())


def risks(problem, w):
    """F_i(w) of every client, from the raw rows."""
    concrete, data = problem.at(FED)
    return np.concatenate([concrete.client_risks(w, data.block(i)) for i in range(5)])


def gradient_of(function, w, h=1e-5):
    """By central differences, (D, ...)."""
    return np.array([(function(w + h * e) - function(w - h * e)) / (2 * h) for e in np.eye(len(w))])


def at_random(seed=0):
    return MEAN.model_start(4) + 0.3 * np.random.default_rng(seed).normal(size=D)


def penalised(w):
    """The gradient of the regulariser: intercepts are free."""
    return 0.02 * w * (np.arange(D) < 15)


@pytest.mark.parametrize(
    "problem", [MEAN, WORST, replace(MEAN, over_clients=bf.LpBall(0.3, 2))], ids=str
)
def test_value_weights_and_stationarity_by_hand(problem):
    w = at_random()
    found = bf.certify(problem, FED, w)
    q = problem.at(FED)[0].over_clients.weights(risks(problem, w))
    gradients = gradient_of(lambda v: risks(problem, v), w)
    assert found.value == pytest.approx(problem.objective(w, FED), rel=1e-12)
    assert_allclose(found.client_risks, risks(problem, w), rtol=1e-12)
    assert_allclose(found.weights, q, atol=1e-9)
    assert found.stationarity == pytest.approx(
        np.linalg.norm(gradients @ q + penalised(w)), rel=1e-6
    )
    assert found.gradient_scale == pytest.approx(
        (q * np.linalg.norm(gradients, axis=0)).sum(), rel=1e-6
    )
    assert (found.bound, found.gap, found.relative_gap) == (None, None, None)
    assert found.complementarity == pytest.approx(0.0, abs=1e-12)
    assert found.feasibility == pytest.approx(0.0, abs=1e-12)


def test_it_is_small_where_scipy_comes_to_rest():
    def both(w):
        return MEAN.objective(w, FED), gradient_of(lambda v: MEAN.objective(v, FED), w, 1e-6)

    found = minimize(
        both, at_random(), jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 500}
    )
    proof = bf.certify(MEAN, FED, found.x)
    assert proof.stationarity < 1e-5 < 1e-2 < bf.certify(MEAN, FED, at_random()).stationarity
    assert proof.bound is None


def test_at_a_min_max_point_the_weighting_of_the_duals_shows_it_and_a_worst_one_does_not():
    """Several clients tie: the epigraph form by SLSQP, its multipliers by nonnegative least
    squares.
    """
    concrete, data = WORST.at(FED)
    (block,) = data.blocks()
    place = np.argsort(block.index)

    def cut(w):
        found = concrete.cut(w, block)
        return found.base[place], found.gradient[place]

    start = np.append(at_random(), 2.0)
    found = minimize(
        lambda v: v[-1] + concrete.penalty(v[:-1]),
        start,
        jac=lambda v: np.append(penalised(v[:-1]), 1.0),
        constraints={
            "type": "ineq",
            "fun": lambda v: v[-1] - cut(v[:-1])[0],
            "jac": lambda v: np.hstack([-cut(v[:-1])[1], np.ones((5, 1))]),
        },
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    w = found.x[:-1]
    losses, gradients = cut(w)
    tied = losses > losses.max() - 1e-6
    assert tied.sum() >= 2
    rows = np.vstack([gradients[tied].T, 1e3 * np.ones(tied.sum())])  # sum to one, nearly
    q = np.zeros(5)
    q[tied] = nnls(rows, np.append(-penalised(w), 1e3))[0]
    q /= q.sum()
    known = bf.certify(WORST, FED, w, bf.Duals(q, w[None], q[None]))
    blind = bf.certify(WORST, FED, w)
    assert known.stationarity < 1e-5
    assert abs(known.complementarity) < 1e-6
    assert blind.stationarity > 1e-2
    assert_allclose(known.weights, q, atol=1e-12)
    # a weighting that is not the multipliers': one of the two residuals tells
    other = np.full(5, 0.2)
    wrong = bf.certify(WORST, FED, w, bf.Duals(other, w[None], other[None]))
    assert wrong.complementarity == pytest.approx(losses.max() - losses.mean(), rel=1e-9)
    assert max(wrong.complementarity, wrong.stationarity) > 1e-2


def test_weights_outside_the_set_are_moved_into_it():
    w, q = at_random(), np.array([2.0, 0.0, 0.0, -1.0, 0.0])
    found = bf.certify(WORST, FED, w, bf.Duals(q, w[None], q[None]))
    assert_allclose(found.weights, [1.0, 0, 0, 0, 0], atol=1e-12)
    assert found.feasibility < 1e-12


@pytest.mark.parametrize(
    ("h", "off"),
    [
        (
            bf.L1(0.5),
            lambda g, w: np.where(w == 0, np.maximum(np.abs(g) - 0.5, 0), g + 0.5 * np.sign(w)),
        ),
        (
            bf.Bounds(-0.1, 0.1),
            lambda g, w: np.where(np.abs(w) < 0.1, g, np.maximum(g * np.sign(w), 0)),
        ),
    ],
    ids=["L1", "Bounds"],
)
def test_regularisers_that_are_not_smooth(h, off):
    """The distance of the weighted gradient from minus the subdifferential, entry by entry;
    intercepts take none.
    """
    problem = replace(MEAN, regulariser=h)
    w = at_random()
    w[:15] = h.prox(w[:15], 0.3)
    g = gradient_of(lambda v: risks(problem, v).mean(), w)
    expected = np.append(off(g[:15], w[:15]), g[15:])
    assert (w[:15] == 0).any() or (np.abs(w[:15]) == 0.1).any()
    assert bf.certify(problem, FED, w).stationarity == pytest.approx(
        np.linalg.norm(expected), rel=1e-6
    )


def test_a_model_outside_the_domain_is_not_feasible():
    problem = replace(MEAN, regulariser=bf.Bounds(-0.1, 0.1))
    w = np.full(D, 0.5)
    found = bf.certify(problem, FED, w)
    assert found.value == np.inf
    assert found.feasibility == pytest.approx(0.4)


def test_no_bound_even_where_losses_vanish():
    """0 is a bound then, but none is claimed that was not asked of the model."""
    fed = bf.Federation(["a"], [np.ones((2, 4))], [np.zeros(2)])
    problem = bf.Problem(bf.Squared(), MLP((3,)))
    found = bf.certify(problem, fed, np.zeros(D))
    assert (found.value, found.bound, found.stationarity) == (0.0, None, 0.0)


@pytest.mark.parametrize(
    "q", [np.full(4, 0.25), np.array([0.2, 0.2, 0.2, 0.2, np.nan]), np.full((1, 5), 0.2)], ids=str
)
def test_weights_that_do_not_fit_are_refused(q):
    w = at_random()
    with pytest.raises(ValueError, match=r"duals.weights must be finite with shape \(5,\)"):
        bf.certify(WORST, FED, w, bf.Duals(q, w[None], np.full((1, 5), 0.2)))


def test_every_mode_gives_the_same_and_two_rounds_say_it():
    w = at_random()
    runs = [
        certify_run(WORST, FED, w, None, bf.InProcess(mode)) for mode in ("blocks", "each", "bytes")
    ]
    for proof, run in runs:
        assert proof.stationarity == pytest.approx(runs[0][0].stationarity, rel=1e-12)
        assert run.rounds == 2
        assert {row["message"] for row in run.messages} == {
            "Certify",
            "Certified",
            "Differentiate",
            "Differentiated",
        }


# ---- solve


@record
class Push:
    w: Any  # (D,)


@record
class Pushed:
    gradient: Each  # (N, D)


@record
class PushState:
    w: Any
    rounds: int


@dataclass(frozen=True)
class Descent(Method):
    """Gradient steps on the mean, which calls itself optimal."""

    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 5
    claim: Stop = Stop.OPTIMAL
    problem: bf.Problem | None = None

    @property
    def on_client(self):
        return {
            Push: lambda memory, ask, data, rng: (
                memory,
                Pushed(self.problem.cut(ask.w, data).gradient),
            )
        }

    @property
    def on_server(self):
        return {Pushed: self.step}

    def client_start(self, data):
        return None

    def server_start(self, n_clients):
        w = self.problem.model_start(4)
        return PushState(w, 0), Round(Push(w))

    def step(self, state, ids, up):
        w = state.w - 0.5 * (up.gradient.mean(0) + penalised(state.w))
        state = PushState(w, state.rounds + 1)
        done = state.rounds >= self.max_rounds
        return state, Done(self.claim) if done else Round(Push(w))

    def report(self, state):
        return {}

    def answer(self, state, concluded=None):
        return Answer(state.w)


@pytest.mark.parametrize("stop", [Stop.OPTIMAL, Stop.MAX_ROUNDS, Stop.STALLED])
def test_a_run_is_never_called_optimal(stop):
    solution = bf.solve(MEAN, FED, algorithm=Descent(claim=stop), max_rounds=100)
    assert solution.outcome.stop is (Stop.UNPROVEN if stop is Stop.OPTIMAL else stop)
    for words in (
        "stationarity",
        "complementarity 0.0",
        "MLP is not convex in its parameters",
        "no bound",
    ):
        assert words in solution.outcome.text
    proof = solution.certificate
    assert proof.bound is None
    assert proof.value == pytest.approx(MEAN.objective(solution.w, FED), rel=1e-12)
    assert proof.value < MEAN.objective(MEAN.model_start(4), FED)
    assert f"{proof.stationarity:.1e}" in solution.outcome.text
    assert any("MLP is not convex" in note for note in solution.notes)
    assert [row["client"] for row in solution.clients] == list(FED.clients)
    assert [row["loss"] for row in solution.clients] == pytest.approx(list(risks(MEAN, solution.w)))


CONVEX = [
    bf.Bundle(),
    bf.ADLPMM(),
    bf.EpigraphADMM(),
    bf.DoubleLoop(),
    bf.InteriorPoint(),
    bf.ProximalAL(),
    bf.PrivateADMM(rho=1.0),
    bf.OutputPerturbedADMM(rho=1.0),
]
POOLED = [bf.RankADMM(), bf.SmoothedRankADMM(), bf.DCA()]


@pytest.mark.parametrize("algorithm", [*CONVEX, *POOLED], ids=lambda it: type(it).__name__)
def test_convex_methods_refuse_and_name_what_works(algorithm):
    fed = FED.pooled() if algorithm in POOLED else FED
    with pytest.raises(
        (ValueError, TypeError),
        match=r"MLP.*AsyncDRO\(\), MultiplierMethod\(\), AFL\(\) or FedAvg\(\)",
    ):
        bf.solve(MEAN, fed, algorithm=algorithm)


@pytest.mark.parametrize(
    "reference", [bf.CentralConic(), bf.CentralisedAL()], ids=lambda it: type(it).__name__
)
def test_references_refuse_and_name_what_works(reference):
    with pytest.raises((ValueError, TypeError), match=r"MLP.*AsyncDRO\(\)"):
        reference.solve(MEAN, FED)


def test_privacy_is_refused():
    with pytest.raises(
        ValueError, match=r"PrivateSGD needs the predictor Linear, Softmax or TorchPredictor"
    ):
        bf.solve(replace(MEAN, privacy=bf.Budget(1.0, 1e-5)), FED)


@pytest.mark.parametrize(
    "algorithm", [bf.SGD(0.2, batch=8), bf.LSVRG(0.005)], ids=lambda it: type(it).__name__
)
@pytest.mark.parametrize(
    "risk", [bf.Mean(), bf.Superquantile(0.5), bf.RankedRange(90, 10)], ids=str
)
def test_stochastic_methods_on_pooled_rows_take_it(algorithm, risk):
    """From the model's own start, as at zero every hidden unit stays like all others; never a
    bound.
    """
    problem = replace(MEAN, over_samples=risk)
    solution = bf.solve(problem, FED.pooled(), algorithm=algorithm, max_rounds=15)
    start = problem.objective(problem.model_start(4), FED.pooled())
    assert solution.certificate.value < start - 0.02
    assert solution.certificate.bound is None
    assert solution.outcome.stop is Stop.MAX_ROUNDS
    assert np.ptp(np.abs(solution.w[:12].reshape(3, 4)), axis=0).max() > 0.1
