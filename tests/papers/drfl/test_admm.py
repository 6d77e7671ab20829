"""AD-LPMM, the epigraph ADMM and the double loop: steps by hand, and the central conic optimum,
primal and dual.
"""

import dataclasses
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN
from scipy.sparse import csr_array

from bonafed.algorithms.comparators.central_conic import CentralConic
from bonafed.algorithms.federated.linearisation import risk_gradients
from bonafed.data.federation import Federation
from bonafed.engines.inprocess import InProcess
from bonafed.papers.drfl.epigraph_admm import ADLPMM, DoubleLoop, EpigraphADMM, Probed
from bonafed.papers.drfl.epigraph_projection import Begun, Projected, relative
from bonafed.problem.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Quantile, SmoothHinge
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, MCP, Bounds, Zero
from bonafed.problem.risks.weight_sets import LpBall, Mean, Simplex
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.problem.wasserstein.supports import BoxSupport
from bonafed.rounds import Done, Stop, visibility
from bonafed.solution.plan import configure
from bonafed.solution.solve import fit

METHODS = [ADLPMM(), ADLPMM(steps="tight"), EpigraphADMM()]
CASES = [
    (Hinge(), "l1", 2.0, Zero(), False),
    (Huber(1.0), "l2", 1.0, Zero(), True),
    (Logistic(), "linf", math.inf, L2(0.1), False),
    (SmoothHinge(), "l2", 1.5, L1(0.02), True),
    (EpsilonInsensitive(0.1), "l1", 2.0, Bounds(-0.4, 0.4), False),
    (Quantile(0.4), "linf", 2.0, L2(0.05), False),
]


def federation(sign, seed=0, clients=3, rows=12, d=3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (clients * rows, d))
    groups = np.repeat([f"c{i}" for i in range(clients)], rows)
    models = 1.0 + 0.5 * rng.standard_normal((clients, d))
    t = (X * np.repeat(models, rows, 0)).sum(1) + 0.3 * rng.standard_normal(len(X))
    return Federation.from_arrays(X, np.where(t > 0, 1, -1) if sign else t, groups)


def problem_of(loss, norm, p, regulariser, intercept):
    return Problem(
        loss, Linear(intercept), WassersteinBall(0.05, 1.0, norm), LpBall(0.2, p), regulariser
    )


def run(method, problem, fed, mode="blocks", **settings):
    concrete, data = problem.at(fed)
    method = dataclasses.replace(method, problem=concrete, **settings)
    return method, InProcess(mode=mode).run(method, data)


# -- steps
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", ["paper", "tight"])
def test_one_round_of_ad_lpmm_by_hand(steps):
    """Equations (6) to (10), the clients' points, and the dual update, for two clients and numbers
    of no symmetry.
    """
    problem = Problem(Hinge(), PLAIN, WassersteinBall(0.1), LpBall(0.3, 2.0), L2(0.5))
    problem, _ = problem.at(federation(True, clients=2, d=2))
    method = ADLPMM(steps=steps, c=0.8, problem=problem)
    state, _ = method.server_start(2)
    state = dataclasses.replace(
        state,
        w=np.array([9.0, 9.0]),
        t=np.array([0.3, -0.2]),
        z=np.array([0.5, 0.1]),
        eta=np.array([0.4, 0.0]),
        gamma=-0.6,
        copies=np.array([[1.0, 2.0], [3.0, -1.0]]),
        pi=np.array([0.7, 0.9]),
        sigma=np.array([-0.5, -0.45]),
        psi=np.array([[0.2, -0.1], [0.3, 0.5]]),
        zeta=np.array([0.55, 0.4]),
    )
    new, ask = method._primal(state)
    c, q, theta = 0.8, 0.5, 0.3
    c1, c2 = (2 * 2 * c, 2 * 2 * c) if steps == "paper" else (2 * c, 3 * c)
    mean = ((1.0 - 0.2 / c) + (3.0 - 0.3 / c)) / 2, ((2.0 + 0.1 / c) + (-1.0 - 0.5 / c)) / 2
    assert_allclose(new.w, np.array(mean) / (1 + 0.5 / (2 * c)))  # (6) with h = ||w||^2 / 4
    r = [0.3 - 0.5 + 0.6 - 0.4, -0.2 - 0.1 + 0.6 - 0.0]
    z = [
        (c * 0.7 + c1 * 0.5 + 0.55 - 0.5 + c * r[0]) / (c + c1),
        (c * 0.9 + c1 * 0.1 + 0.4 - 0.45 + c * r[1]) / (c + c1),
    ]
    assert_allclose(new.z, z)  # (7)
    u = np.array([0.3 - (q - 0.5 + c * r[0]) / c1, -0.2 - (q - 0.45 + c * r[1]) / c1])
    # (8): block soft threshold for p = 2
    assert_allclose(new.t, u * max(1 - theta / c1 / math.hypot(*u), 0.0))
    y = [-0.5 / c + new.t[0] - z[0] + 0.6 - 0.4, -0.45 / c + new.t[1] - z[1] + 0.6]
    assert_allclose(new.eta, [max(0.4 + c / c2 * y[0], 0), max(c / c2 * y[1], 0)])  # (9)
    assert_allclose(new.gamma, -0.6 + c / c2 * (1 / c + y[0] + y[1]))  # (10)
    assert_allclose(ask.message.point, new.w + state.psi / c)
    assert_allclose(ask.message.height, new.z - state.zeta / c)
    assert ask.message.ratio == 1.0
    up = Projected(np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([0.8, 0.6]), np.zeros(2))
    after = method._dual(new, up)
    assert_allclose(after.sigma, state.sigma + c * (new.t - new.z - new.gamma - new.eta))
    assert_allclose(after.psi, state.psi + c * (new.w - up.w))
    assert_allclose(after.zeta, state.zeta + c * (up.pi - new.z))
    assert_array_equal(after.copies, up.w)


def test_one_round_of_the_epigraph_admm_by_hand():
    problem, _ = Problem(Hinge(), PLAIN, WassersteinBall(0.1), Simplex()).at(
        federation(True, clients=2, d=1)
    )
    method = EpigraphADMM(c_w=0.5, c_z=2.0, relaxation=1.6, problem=problem)
    state, _ = method.server_start(2)
    state, ask = method.begin(state, (0, 1), Begun(np.zeros((2, 1)), np.array([1.0, 0.8])))
    # x = pi + zeta / 2 = (1.25, 1.05); projecting 2 x on the simplex gives (0.7, 0.3)
    assert_allclose(state.weights, [0.7, 0.3])
    assert_allclose(state.z, [0.9, 0.9])
    assert_allclose(ask.message.height, 1.6 * state.z - 0.6 * np.array([1.0, 0.8]) - 0.25)
    assert_allclose(ask.message.point, [[0.0], [0.0]])
    assert ask.message.ratio == 4.0
    after, ask = method.improve(
        state, (0, 1), Projected(np.array([[1.0], [0.5]]), np.array([0.9, 0.7]), np.zeros(2))
    )
    psi = np.array([[0.5 * (0.0 - 1.0)], [0.5 * (0.0 - 0.5)]])
    zeta = 0.5 + 2.0 * (np.array([0.9, 0.7]) - np.array([0.84, 0.96]))
    assert_allclose(after.psi, psi)
    assert_allclose(after.zeta, zeta)
    assert_allclose(after.w, [((1.0 + 1.0) + (0.5 + 0.5)) / 2])


def test_one_cycle_of_the_double_loop_by_hand():
    problem, _ = Problem(Hinge(), PLAIN, WassersteinBall(0.0), Simplex()).at(
        federation(True, clients=2, d=1)
    )
    method = DoubleLoop(inner=1, step=0.5, ascent=0.1, problem=problem)
    state, _ = method.server_start(2)
    state, ask = method.begin(state, (0, 1), Begun(np.zeros((2, 1)), np.array([1.0, 1.0])))
    assert_allclose(ask.message.weights, [0.5, 0.5])
    state, ask = method.improve(state, (0, 1), Probed(np.array([1.0, 1.0]), np.array([-2.0])))
    assert_allclose(ask.message.w, [0.5])  # 0 - 0.5 / |gradient| gradient
    state, ask = method.improve(state, (0, 1), Probed(np.array([0.4, 0.8]), np.array([-1.0])))
    assert_allclose(state.value, 0.8)  # exact: the largest of the risks at the point
    assert_allclose(ask.message.weights, [0.5 - 0.1 / math.sqrt(2), 0.5 + 0.1 / math.sqrt(2)])
    assert_allclose(ask.message.w, [0.5])


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("loss", [Hinge(), Logistic(), Huber(1.0)])
def test_gradients_of_the_risk_are_subgradients(loss, norm):
    problem, fed = problem_of(loss, norm, 2.0, Zero(), True).at(federation(loss.targets == "sign"))
    block, rng = fed.blocks()[0], np.random.default_rng(1)
    for w in rng.standard_normal((5, 4)):
        value, gradient, _ = risk_gradients(problem, w, block)
        for v in w + rng.standard_normal((5, 4)) * [[1e-4], [1e-2], [1], [10], [100]]:
            assert (
                problem.client_risks(v, block)
                >= value + gradient @ (v - w) - 1e-12 * (1 + np.abs(value))
            ).all()


# -- solutions
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "method"),
    # both methods with every ball of weights and regulariser, one of them with every loss and norm
    [
        *((CASES[0], method) for method in METHODS),
        *((case, method) for case in CASES[1:5] for method in METHODS[1:]),
        (CASES[5], EpigraphADMM()),
    ],
    ids=lambda value: (
        type(value[0] if isinstance(value, tuple) else value).__name__ + getattr(value, "steps", "")
    ),
)
def test_converges_to_the_central_optimum_primal_and_dual(case, method):
    problem = problem_of(*case)
    fed = federation(case[0].targets == "sign")
    central = CentralConic().solve(problem, fed)
    done, result = run(method, problem, fed, tol=5e-6)
    assert result.outcome.stop is Stop.OPTIMAL, result.outcome.text
    w, _ = done.answer(result.state)[:2]
    if isinstance(case[3], Bounds):
        assert (np.abs(w) <= 0.4).all()
    assert problem.objective(w, fed) <= central.value * (1 + 1e-5) + 1e-7
    assert_allclose(result.state.value, central.value, rtol=1e-5)
    # q* is unique here: the fourth digit of the weights is the sixth of the value
    assert problem.over_clients.at(fed.sizes).contains(result.state.weights, 1e-9)
    assert_allclose(result.state.zeta, central.weights, atol=2e-4)
    if isinstance(done, ADLPMM):
        assert_allclose(-result.state.sigma, central.weights, atol=2e-4)
    if isinstance(case[3], Zero):  # stationarity in w: the sum of psi is minus the gradient of h
        assert_allclose(result.state.psi.sum(0), 0.0, atol=1e-5)
    copies = done.answer(result.state, result.concluded).copies
    assert_allclose(copies, np.tile(w, (fed.n_clients, 1)), atol=1e-4)


@pytest.mark.parametrize("over", [Simplex(), Mean("size")])
@pytest.mark.parametrize(
    "method", [ADLPMM(steps="tight"), EpigraphADMM()], ids=["tight", "epigraph"]
)
def test_radius_zero_solves_agnostic_and_plain_learning(method, over):
    problem, fed = (
        Problem(Huber(1.0), PLAIN, WassersteinBall(0.0), over),
        federation(False, clients=2),
    )
    central = CentralConic().solve(problem, fed)
    done, result = run(method, problem, fed)
    assert result.outcome.stop is Stop.OPTIMAL
    assert_allclose(problem.objective(done.answer(result.state)[0], fed), central.value, rtol=1e-6)


def test_sparse_rows_plain_means_and_row_weights():
    """CSR clients, over_samples=Mean() and rows of weight zero: the same step as dense rows without
    them.
    """
    fed = federation(True, clients=2)
    weights = [np.where(np.arange(12) % 3 == 0, 0.0, 1.0) for _ in range(2)]
    X, y = zip(*(fed.rows(i) for i in range(2)), strict=True)
    sparse = Federation(fed.clients, [csr_array(x) for x in X], y, sample_weight=weights)
    kept = Federation(
        fed.clients,
        [x[w > 0] for x, w in zip(X, weights, strict=True)],
        [t[weights[0] > 0] for t in y],
    )
    problem = Problem(Logistic(), Linear(True), Mean(), LpBall(0.2), L2(0.1))
    runs = [run(EpigraphADMM(), problem, data)[1] for data in (sparse, kept)]
    assert_allclose(runs[0].state.w, runs[1].state.w, atol=1e-6)
    assert_allclose(runs[1].state.value, CentralConic().solve(problem, kept).value, rtol=1e-6)


def test_supports_are_solved_and_every_conic_program_counted():
    ball = WassersteinBall(0.2, 0.6, "l1", BoxSupport(-1.0, 1.0))
    problem, fed = (Problem(Hinge(), PLAIN, ball, LpBall(0.2)), federation(True, clients=2, rows=8))
    central = CentralConic().solve(problem, fed)
    done, result = run(EpigraphADMM(), problem, fed, tol=1e-5)
    assert result.outcome.stop is Stop.OPTIMAL
    assert_allclose(problem.objective(done.answer(result.state)[0], fed), central.value, rtol=1e-4)
    assert 0 < result.state.fallbacks <= 2 * result.state.rounds
    assert done.report(result.state)["fallbacks"] == result.state.fallbacks


def test_sampled_steps_come_near_but_never_claim_to_converge():
    """Half of the rows per step: the iterate hovers around the optimum, within the sampling error
    of the risks.
    """
    problem, fed = problem_of(Logistic(), "l2", 2.0, L2(0.1), False), federation(True, rows=40)
    central = CentralConic().solve(problem, fed)
    done, result = run(EpigraphADMM(sample=0.5), problem, fed, max_rounds=60)
    assert result.outcome.stop is Stop.MAX_ROUNDS
    value = problem.objective(done.answer(result.state)[0], fed)
    assert 1e-9 < value / central.value - 1 < 0.05
    _, again = run(EpigraphADMM(sample=0.5), problem, fed, max_rounds=60)
    assert_array_equal(again.state.w, result.state.w)


def test_the_double_loop_comes_near_and_never_claims_to_be_optimal():
    problem, fed = problem_of(Hinge(), "l1", 2.0, Zero(), False), federation(True)
    central = CentralConic().solve(problem, fed)
    done, result = run(DoubleLoop(), problem, fed, max_rounds=1500)
    w, _ = done.answer(result.state)[:2]
    assert result.outcome.stop in (Stop.MAX_ROUNDS, Stop.STALLED)
    assert_allclose(result.state.value, problem.objective(w, fed), rtol=1e-12)
    assert central.bound * (1 - 1e-9) <= result.state.value <= central.value * 1.01
    assert problem.over_clients.at(fed.sizes).contains(result.state.weights, 1e-9)


# -- engines and settings
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [ADLPMM(sample=0.7), EpigraphADMM(), DoubleLoop(inner=2)])
def test_every_mode_gives_the_same_numbers(method):
    problem, fed = problem_of(Hinge(), "l2", 2.0, L2(0.1), False), federation(True)
    runs = [
        run(method, problem, fed, mode, max_rounds=8, tol=0.0)[1].state
        for mode in ("each", "bytes", "blocks")
    ]
    assert_array_equal(runs[0].w, runs[1].w)
    # eight tolerance-stopped solves of 1e-10
    assert_allclose(runs[0].w, runs[2].w, rtol=0, atol=1e-9)


def test_clients_send_their_point_of_the_epigraph_and_nothing_of_their_rows():
    assert visibility(Projected) == {"w": "each", "pi": "each", "fallbacks": "sum"}
    assert visibility(Begun) == {"w": "each", "pi": "each"}
    assert visibility(Probed) == {"risk": "each", "gradient": "sum"}


def test_at_the_cap_the_outcome_says_so_and_what_to_do():
    problem, fed = problem_of(Hinge(), "l1", 2.0, Zero(), False), federation(True)
    for method in (ADLPMM(max_rounds=3), EpigraphADMM(max_rounds=3), DoubleLoop(max_rounds=3)):
        outcome = fit(problem, fed, algorithm=method).outcome
        assert outcome.stop is Stop.MAX_ROUNDS
        assert "max_rounds = 3" in outcome.text
        assert "raise max_rounds" in outcome.text


def test_the_first_model_is_the_start():
    problem, fed = problem_of(Huber(1.0), "l2", 2.0, L2(0.1), False), federation(False)
    start = np.array([0.5, 1.0, -1.0])
    for method in METHODS:
        _, result = run(method, problem, fed, start=start, max_rounds=1)
        free = run(method, problem, fed, max_rounds=1)[1]
        # the first server step: the prox of h alone
        assert np.abs(result.state.w - start / (1 + 0.1)).max() < 1e-9
        assert_allclose(free.state.w, 0.0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ADLPMM(steps="fast"), "steps must be"),
        (lambda: ADLPMM(c=0.0), "c must be a positive number"),
        (lambda: ADLPMM(sample=1.5), "sample must be a share"),
        (lambda: EpigraphADMM(relaxation=2.0), "relaxation must be in"),
        (lambda: EpigraphADMM(c_w=-1.0), "c_w must be a positive number"),
        (lambda: EpigraphADMM(max_rounds=0), "max_rounds >= 1"),
        (lambda: DoubleLoop(inner=0), "inner must be >= 1"),
        (lambda: ADLPMM().server_start(2), "has no problem yet"),
    ],
)
def test_settings_out_of_range(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_nonconvex_regularisers_are_refused():
    problem, data = Problem(Hinge(), PLAIN, regulariser=MCP(0.1)).at(federation(True))
    for method in (ADLPMM, EpigraphADMM, DoubleLoop):
        with pytest.raises(ValueError, match="convex regulariser"):
            configure(method(), problem, data)


def test_a_round_ends_with_a_request_or_an_outcome():
    """The server stops at the first round whose residuals meet the tolerance: here any."""
    problem, _ = problem_of(Hinge(), "l1", 2.0, Zero(), False).at(federation(True))
    method = EpigraphADMM(tol=1e9, problem=problem)
    state, _ = method.server_start(3)
    state, _ = method.begin(state, (0, 1, 2), Begun(np.zeros((3, 3)), np.ones(3)))
    state, done = method.improve(
        state, (0, 1, 2), Projected(np.ones((3, 3)), np.ones(3), np.zeros(3))
    )
    assert isinstance(done, Done)
    assert done.outcome.stop is Stop.OPTIMAL
    assert method.answer(state).copies is None


def test_a_residual_beside_nothing_is_infinite_and_no_huge_number():
    """A run with such a number could not be stored."""
    assert relative(np.array([3.0, 4.0]), 0.0, 0.0) == math.inf
    assert relative(np.array([3.0, 4.0]), 0.0, 10.0) == 0.5
    assert relative(np.zeros(2), 0.0) == 0.0
