"""Private inexact ADMM: its rounds by hand, its noise-free limits at the optimum, its modes and
schedules.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import planned
from private_rounds import federation, gradient_by_hand
from problems import PLAIN, SOFTMAX
from scipy import optimize, sparse
from scipy.special import expit

from bonafed.algorithms.federated import private_admm as private_client
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.noisy_gradient import Told
from bonafed.algorithms.federated.private_admm import Penalty, PrivateADMM
from bonafed.data.federation import Federation
from bonafed.engines.inprocess import InProcess
from bonafed.papers.dp_iadmm.published import OutputPerturbedADMM
from bonafed.privacy.budget import Budget
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.problem.losses import Huber, Logistic, Multinomial, Squared
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, Ball, Bounds
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import Stop
from bonafed.solution.solve import solve

BUDGET, KNOWN = Budget(3.0, 1e-3), {"noise": "simulation"}


# ---- rounds by hand


def round_by_hand(
    kind: str,
    run: Any,
    data: Federation,
    ask: Any,
    z: np.ndarray,
    dual: np.ndarray,
    noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(8) or (9) and (4c) of every client, from the formulas of the paper."""
    new, plan = np.empty_like(z), run.plan
    regulariser = run.problem.regulariser
    for p in range(len(z)):
        X, y = data.rows(p)
        g = plan.weight[p] * gradient_by_hand(kind, X, y, z[p], plan)
        g = g + noise[p]
        if run.update == "prox":
            v = (ask.rho * ask.w + dual[p] - g + ask.reach * z[p]) / (ask.rho + ask.reach)
        else:
            v = ask.w + (dual[p] - g) / ask.rho
            if run.radius is not None and run.region == "linf":
                v = z[p] + np.clip(v - z[p], -ask.reach, ask.reach)
            elif run.radius is not None:
                v = z[p] + (v - z[p]) * min(1.0, ask.reach / np.linalg.norm(v - z[p]))
        coefficients = v[: len(v) - (kind == "sign")]
        if isinstance(regulariser, Bounds):
            coefficients[:] = np.clip(coefficients, regulariser.lower, regulariser.upper)
        if isinstance(regulariser, Ball):
            coefficients *= min(1.0, regulariser.radius / np.linalg.norm(coefficients))
        new[p] = v
    return new, dual + ask.rho * (ask.w - new)


VARIANTS = {
    "no radius": {},
    "linf": {"radius": "1/t", "scaling": 0.05},
    "l2": {"radius": "1/t^2", "region": "l2", "scaling": 0.3},
    "prox": {"update": "prox", "scaling": 2.0},
    "laplace": {"mechanism": "laplace", "clip": 0.8, "radius": "constant", "scaling": 0.1},
    "bound": {"bound": 0.9, "radius": "constant", "scaling": 0.1},
    "both, laplace": {"mechanism": "laplace", "bound": 2.0, "clip": 1.0},
    "without privacy": {"privacy": None},
    "without privacy, clipped": {"privacy": None, "clip": 0.7},
    "output": {"output": True},
    "output, laplace": {"output": True, "mechanism": "laplace", "clip": 0.5},
}


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    "regulariser", [L2(0.1), Bounds(-0.02, 0.03), Ball(0.03)], ids=["L2", "box", "ball"]
)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["class", "sign"])
def test_two_rounds_by_hand(kind, variant, regulariser, single):
    options = {"max_rounds": 4, "rho": lambda t: 1.0 + 0.5 * t, "noise": "simulation"} | VARIANTS[
        variant
    ]
    privacy = options.pop("privacy", BUDGET)
    algorithm = (OutputPerturbedADMM if options.pop("output", False) else PrivateADMM)(**options)
    loss, predictor = (Multinomial(), SOFTMAX) if kind == "class" else (Logistic(), Linear(True))
    problem = Problem(
        loss, predictor, over_clients=Mean("size"), regulariser=regulariser, privacy=privacy
    )
    fed = federation(kind)
    run, data = planned(algorithm, problem, fed.single() if single else fed)
    P, D = data.n_clients, run._size
    memories = [run.client_start(data.block(i)) for i in range(P)]
    z, dual = np.zeros((2, P, D))
    state, ask = run.server_start(P)
    for t in (1, 2):
        assert (ask.message.round, ask.message.rho, ask.message.next_rho) == (
            t,
            1 + 0.5 * t,
            1.5 + 0.5 * t,
        )
        streams = [lambda _, p=p, t=t: np.random.default_rng([p, t]) for p in range(P)]
        found = [run.perturb(memories[i], ask.message, data.block(i), streams[i]) for i in range(P)]
        noise = np.zeros((P, D))
        if privacy is not None:
            for p in range(P):
                noise[p] = drawn(run, memories[p], ask.message, streams[p], p)
        z, dual = round_by_hand(kind, run, data, ask.message, z, dual, noise)
        memories = [memory for memory, _ in found]
        # the grid on which gradients are rounded, where answers are private
        close = {"atol": 1e-5} if single else {"atol": 1e-12, "rtol": 1e-12}
        if privacy is not None:
            close = {"atol": 0.02 if run.plan.single else 2e-4}
        np.testing.assert_allclose(np.concatenate([m.z for m in memories]), z, **close)
        np.testing.assert_allclose(np.concatenate([m.dual for m in memories]), dual, **close)
        assert {m.z.dtype for m in memories} == {np.dtype(np.float32 if single else np.float64)}
        shifted = np.concatenate([up.shifted for _, up in found])
        np.testing.assert_allclose(shifted, z - dual / ask.message.next_rho, **close)
        up = replace(found[0][1], shifted=shifted.sum(0), gap=np.float64(0), noise=np.float64(0))
        state, ask = run.aggregate(state, range(P), up)
        w = shifted.sum(0) / P  # (4a): argmin of h(w) + sum_p <lambda_p, w> + rho ||w - z_p||^2 / 2
        own = w[: D - (kind == "sign")]
        if isinstance(regulariser, L2):
            own /= 1 + 0.1 / (P * (1.5 + 0.5 * t))
        elif isinstance(regulariser, Ball):
            own *= min(1.0, 0.03 / np.linalg.norm(own))
        else:
            own[:] = np.clip(own, -0.02, 0.03)
        np.testing.assert_allclose(state.w, w, **close)


def drawn(run: Any, memory: Any, ask: Any, streams: Any, p: int) -> np.ndarray:
    """A client's simulated noise."""
    plan = run.plan
    question = private_client.question(plan, memory, ask, Told.of(ask.w, memory.z.dtype))
    key = noisy_gradient._key(memory, question, streams, 0)
    return plan.unit[p] * discrete_noise(plan.kind, plan.noise, key, run._size)


# ---- the same numbers in every way


@pytest.mark.parametrize(
    "options", [{}, {"update": "prox"}, {"radius": "constant", "scaling": 0.01, "region": "l2"}]
)
def test_the_compiled_pass_equals_the_general_one(options):
    """Sparse rows take the general one, in double precision: where a residual is half way between
    two steps of the grid it may round to the other.
    """
    fed = federation()
    thin = Federation(
        fed.clients, tuple(sparse.csr_array(x) for x in fed.X), fed.y, classes=[0, 1, 2]
    )
    problem = Problem(Multinomial(), SOFTMAX, regulariser=L1(1e-3), privacy=BUDGET)
    runs = [
        solve(problem, each, algorithm=PrivateADMM(12, **options, **KNOWN), seed=3)
        for each in (fed, thin)
    ]
    np.testing.assert_allclose(runs[1].w, runs[0].w, atol=1e-3)
    np.testing.assert_allclose(runs[1].copies, runs[0].copies, atol=1e-3)


ENGINES = (("each", 1), ("bytes", 1), ("blocks", 2), ("blocks", 64))


@pytest.mark.parametrize("kind", ["class", "sign"])
def test_modes_agree(kind):
    loss, predictor = (Multinomial(), SOFTMAX) if kind == "class" else (Logistic(), Linear(True))
    problem = Problem(loss, predictor, privacy=BUDGET)
    engines = [
        InProcess(mode, block_size=size)
        for mode, size in (("each", 1), ("bytes", 1), ("blocks", 2), ("blocks", 64))
    ]
    runs = [
        solve(problem, federation(kind), algorithm=PrivateADMM(20, **KNOWN), engine=e, seed=2)
        for e in engines
    ]
    np.testing.assert_array_equal(runs[1].w, runs[0].w)
    for run in runs[2:]:
        np.testing.assert_allclose(run.w, runs[0].w, rtol=1e-9, atol=1e-11)
    assert {run.rounds for run in runs} == {20}


def test_the_order_of_the_clients_moves_rounding_alone():
    fed, problem = (
        federation(),
        Problem(Multinomial(), SOFTMAX, over_clients=Mean("size"), privacy=BUDGET),
    )
    order = [2, 0, 3, 1]
    turned = Federation(
        *(tuple(part[i] for i in order) for part in (fed.clients, fed.X, fed.y)), classes=[0, 1, 2]
    )
    one, other = (
        solve(problem, each, algorithm=PrivateADMM(15, **KNOWN), seed=1) for each in (fed, turned)
    )
    np.testing.assert_allclose(other.w, one.w, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(other.copies, one.copies[order], rtol=1e-10, atol=1e-12)
    assert list(other.ledger.releases) == sorted(turned.clients)


def test_what_is_kept_of_the_last_model_is_that_of_this_one():
    """Also where the same array has changed since, in another precision, and without a number."""
    v = np.random.default_rng(0).standard_normal(40)

    def check(given: np.ndarray, precision: type) -> None:
        told = Told.of(given, precision)
        np.testing.assert_array_equal(told.model, given.astype(precision))
        assert told.model.dtype == precision
        assert told.finite == np.isfinite(given).all()
        assert told.digest == hashlib.sha256(given.astype(precision).tobytes()).digest()

    for given in (v, v, v[::2], v[:20]):
        for precision in (float, np.float32, np.float32):
            check(given, precision)
    for entry, value in ((0, 9.0), (39, 8.0), (39, np.nextafter(8.0, 9)), (3, np.nan), (3, np.inf)):
        v[entry] = value
        check(v, np.float32)
        check(v, float)


def test_seeds_and_clients_have_their_own_noise():
    fed, problem = federation(), Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    runs = [
        solve(problem, fed, algorithm=PrivateADMM(3, **KNOWN), seed=seed).w for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).min() > 0
    secret = [
        solve(problem, fed, algorithm=PrivateADMM(max_rounds=3, noise="secure"), seed=0).w
        for _ in range(2)
    ]
    assert np.abs(secret[0] - secret[1]).min() > 0


@pytest.mark.parametrize("noise", ["simulation", "secure"])
def test_resume_is_bitwise(noise, tmp_path):
    """Of secure noise too: its key lies in the clients' part of the checkpoint, so that a repeated
    round gives its answer again.
    """
    fed, problem = (
        federation(),
        Problem(Multinomial(), SOFTMAX, regulariser=L2(1e-2), privacy=BUDGET),
    )
    engine = InProcess(checkpoint=tmp_path / "run")
    algorithm = PrivateADMM(max_rounds=9, noise=noise, average=True)
    seen = []

    def stop(row: Any, state: Any) -> None:
        seen.append(state.w)
        if row["round"] == 4:
            raise KeyboardInterrupt

    part = solve(problem, fed, algorithm=algorithm, engine=engine, watch=[stop])
    assert (part.outcome.stop, part.rounds) == (Stop.INTERRUPTED, 4)
    assert part.ledger.releases["site 0"][0].count == 4
    files = [tmp_path / name for name in ("run", "run.clients")]
    kept = [file.read_bytes() for file in files]
    whole = solve(problem, fed, algorithm=algorithm, engine=engine, resume=True)
    for file, data in zip(files, kept, strict=True):
        file.write_bytes(data)
    again = solve(problem, fed, algorithm=algorithm, engine=engine, resume=True)
    np.testing.assert_array_equal(again.w, whole.w)
    np.testing.assert_array_equal(again.copies, whole.copies)
    assert whole.ledger.releases["site 0"][0].count == 9
    if noise == "simulation":
        np.testing.assert_array_equal(solve(problem, fed, algorithm=algorithm).w, whole.w)


def test_arguments_stay_as_they_were():
    fed, start = federation(), np.arange(15.0) / 100
    before, kept = fed.digests(), start.copy()
    start.flags.writeable = False
    for x in (*fed.X, *fed.y):
        x.flags.writeable = False
    problem = Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    solve(problem, fed, algorithm=PrivateADMM(max_rounds=3, start=start))
    assert fed.digests() == before
    np.testing.assert_array_equal(start, kept)


# ---- without noise: the optimum


def optimum(problem: Problem, fed: Federation) -> np.ndarray:
    """Of smooth problems, by BFGS on the objective restated here."""
    sizes = fed.sizes / fed.sizes.sum()

    def value(w: np.ndarray) -> float:
        several = problem.loss.targets == "class"
        own = w if several else w[:5]
        total = problem.regulariser.strength / 2 * float(own @ own)
        for share, X, y in zip(sizes, fed.X, fed.y, strict=True):
            if several:
                p = X @ w.reshape(5, 3)
                total += share * np.mean(np.log(np.exp(p).sum(1)) - p[np.arange(len(y)), y])
                continue
            p = X @ w[:5] + (w[5] if problem.predictor.intercept else 0.0)
            if problem.loss.targets == "sign":
                total += share * np.mean(np.log1p(np.exp(-y * p)))
            else:
                u, h = np.abs(p - y), getattr(problem.loss, "threshold", math.inf)
                total += share * np.mean(
                    np.where(u <= h, u * u / 2, h * (u - (h if h < math.inf else 0.0) / 2))
                )
        return float(total)

    D = problem.at(fed)[0].predictor.dimension(5)
    return optimize.minimize(
        value, np.zeros(D), method="BFGS", jac="3-point", options={"gtol": 1e-9}
    ).x


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the reference's last line searches
@pytest.mark.parametrize(
    "options", [{}, {"update": "prox", "scaling": 100.0}, {"update": "exact", "tol": 1e-10}]
)
@pytest.mark.parametrize(
    ("kind", "loss", "predictor"),
    [
        ("sign", Logistic(), Linear(True)),
        ("class", Multinomial(), SOFTMAX),
        ("real", Huber(0.7), Linear(True)),
        ("real", Squared(), PLAIN),
    ],
)
def test_without_noise_it_ends_at_the_optimum(kind, loss, predictor, options):
    fed = federation(kind, 1)
    problem = Problem(loss, predictor, over_clients=Mean("size"), regulariser=L2(0.05))
    rounds, rho = (150, 0.2) if "tol" in options else (600, 1.5) if kind == "real" else (400, 0.5)
    s = solve(problem, fed, algorithm=PrivateADMM(max_rounds=rounds, rho=rho, **options))
    expected = optimum(problem, fed)
    np.testing.assert_allclose(s.w, expected, atol=1e-6)
    assert np.abs(s.copies - s.w).max() < 1e-5
    assert s.outcome.stop is Stop.MAX_ROUNDS


def test_the_mean_of_all_models_converges_more_slowly_but_does():
    fed, problem = federation("sign", 1), Problem(Logistic(), PLAIN, regulariser=L2(0.05))
    states = []
    s = solve(
        problem,
        fed,
        algorithm=PrivateADMM(max_rounds=400, rho=0.5, average=True),
        watch=[lambda row, state: states.append(state.w)],
    )
    np.testing.assert_allclose(s.w, np.mean(states, 0), atol=1e-12)
    assert np.abs(s.w - states[-1]).max() > 1e-4


def test_start_is_the_first_model_of_server_and_clients():
    fed, problem = federation("sign"), Problem(Logistic(), Linear(True))
    start = np.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])
    run, data = planned(PrivateADMM(start=start), problem, fed)
    np.testing.assert_array_equal(run.client_start(data.block(1)).z, start[None])
    _, first = run.server_start(4)
    np.testing.assert_array_equal(first.message.w, start)
    by_argument = solve(problem, fed, algorithm=PrivateADMM(max_rounds=3), start=start).w
    np.testing.assert_array_equal(
        solve(problem, fed, algorithm=PrivateADMM(max_rounds=3, start=start)).w, by_argument
    )
    assert (
        np.abs(by_argument - solve(problem, fed, algorithm=PrivateADMM(max_rounds=3)).w).max() > 0.1
    )


# ---- schedules


def test_penalty_is_21():
    for epsilon in (0.05, 1.0, math.inf):
        rho = Penalty(epsilon=epsilon)
        for t in (1, 9_999, 10_000, 19_999, 20_000, 123_456):
            assert rho(t) == min(1e9, 2 * 1.2 ** (t // 10_000) + 5 / epsilon)
    assert Penalty()(2_000_000) == 1e9
    assert Penalty(1.0, 3.0, 10, 2.0)(25) == 1.2**2 + 1.5
    assert Penalty(epsilon=1.0, scale=0.01)(1) == pytest.approx(0.07)


@pytest.mark.parametrize("scaling", [1.0, 0.01])
@pytest.mark.parametrize(
    ("radius", "power"), [("constant", 0), ("1/t", 1), ("1/t^2", 2), (None, None)]
)
@pytest.mark.parametrize("region", ["linf", "l2"])
def test_no_step_is_longer_than_its_radius(radius, power, region, scaling):
    fed, problem = federation(), Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    run, data = planned(
        PrivateADMM(max_rounds=6, rho=0.05, radius=radius, region=region, scaling=scaling),
        problem,
        fed,
    )
    block, (_, ask) = data.block(0), run.server_start(4)
    memory = run.client_start(block)
    longest = []
    for t in range(1, 7):
        ask = run.ask(ask.message.w, t)
        expected = math.inf if power is None else scaling / t**power
        assert ask.message.reach == pytest.approx(expected)
        after, _ = run.perturb(memory, ask.message, block, lambda _, t=t: np.random.default_rng(t))
        gap = np.abs(after.z - memory.z)
        size = float(gap.max() if region == "linf" else np.linalg.norm(gap))
        assert size <= expected * (1 + 1e-9)
        longest.append(size / expected if power is not None else size)
        memory = after
    assert max(longest) == pytest.approx(1.0) if power is not None else max(longest) > 1  # it binds


def test_eta_is_one_over_the_root_of_t_times_the_scaling():
    run, _ = planned(
        PrivateADMM(update="prox", scaling=10.0), Problem(Logistic(), PLAIN), federation("sign")
    )
    assert [run.ask(np.zeros(5), t).message.reach for t in (1, 4, 25)] == pytest.approx(
        [0.1, 0.2, 0.5]
    )
    own, _ = planned(
        PrivateADMM(update="prox", eta=lambda t: 2.0 * t),
        Problem(Logistic(), PLAIN),
        federation("sign"),
    )
    assert own.ask(np.zeros(5), 4).message.reach == pytest.approx(1 / 8)


def test_without_radius_and_prox_it_is_optimistic_gradient_descent():
    """lambda_p^{t+1} = gradient at z_p^t, and w^{t+2} = w^{t+1} - (2 ghat^t - ghat^{t-1}) / rho
    (docs/private.md).
    """
    fed, rho = federation("sign", 2), 0.7
    problem = Problem(Logistic(), PLAIN)
    run, data = planned(PrivateADMM(max_rounds=8, rho=rho), problem, fed)
    state, ask = run.server_start(4)
    memories = [run.client_start(data.block(i)) for i in range(4)]
    hats, models = [np.zeros(5)], [ask.message.w]
    for _ in range(6):
        at = [m.z[0] for m in memories]
        found = [
            run.perturb(memories[i], ask.message, data.block(i), np.random.default_rng)
            for i in range(4)
        ]
        memories = [memory for memory, _ in found]
        g = [
            (X * (-y * expit(-y * (X @ z)))[:, None]).mean(0) / 4
            for X, y, z in zip(data.X, data.y, at, strict=True)
        ]
        np.testing.assert_allclose(np.concatenate([m.dual for m in memories]), g, atol=1e-14)
        hats.append(np.mean(g, 0))
        up = replace(found[0][1], shifted=sum(up.shifted[0] for _, up in found), gap=0.0, noise=0.0)
        state, ask = run.aggregate(state, range(4), up)
        models.append(state.w)
        np.testing.assert_allclose(
            models[-1], models[-2] - (2 * hats[-1] - hats[-2]) / rho, atol=1e-14
        )


# ---- what it says


def test_history_holds_functions_of_released_numbers():
    fed, problem = federation(), Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    s = solve(problem, fed, algorithm=PrivateADMM(max_rounds=5))
    assert set(s.history[0]) == {
        "round",
        "seconds",
        "bytes_up",
        "bytes_down",
        "rho",
        "gap",
        "noise",
    }
    assert s.history[-1]["gap"] == pytest.approx(np.abs(s.copies - s.state.w).sum(), rel=0.9)
    assert len({row["noise"] for row in s.history}) == 1


def test_a_model_that_overflows_is_named():
    problem = Problem(Squared(), PLAIN)
    with pytest.raises(ArithmeticError, match="the model is not finite any more"):
        solve(problem, federation("real"), algorithm=PrivateADMM(max_rounds=3000, rho=1e-3))
