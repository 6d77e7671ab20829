"""Private gradient descent: its rounds by hand, its noise-free limit at the optimum, its steps from
public numbers, and what it costs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import planned
from private_rounds import federation, gradient_by_hand
from problems import PLAIN, SOFTMAX
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.noisy_gradient import Question, Told
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.algorithms.federated.private_sgd import Blur, PrivateSGD
from bonafed.privacy.accounting import Release, noise_for, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.problem.losses import Huber, Logistic, Multinomial, Squared
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, Ball, Bounds
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import Stop
from bonafed.solution.solve import solve

BUDGET, KNOWN = Budget(3.0, 1e-3), {"noise": "simulation"}


def problem_of(kind: str, budget: Budget | None = BUDGET, **more: Any) -> Problem:
    loss, predictor = (Multinomial(), SOFTMAX) if kind == "class" else (Logistic(), Linear(True))
    return Problem(loss, predictor, over_clients=Mean("size"), privacy=budget, **more)


# ---- rounds by hand

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "clip": {"clip": 0.3, "length": 5.0},
    "bound": {"bound": 1.0},
    "laplace": {"mechanism": "laplace", "bound": 2.0},
    "without privacy": {"privacy": None, "clip": 0.4, "length": 5.0},
}


@pytest.mark.parametrize(
    "regulariser", [L2(0.1), Bounds(-0.02, 0.03), Ball(0.03)], ids=["L2", "box", "ball"]
)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["class", "sign"])
def test_two_rounds_by_hand(kind: str, variant: str, regulariser: Any) -> None:
    options = {"max_rounds": 4, **KNOWN} | VARIANTS[variant]
    privacy = options.pop("privacy", BUDGET)
    problem = problem_of(kind, privacy, regulariser=regulariser)
    run, data = planned(PrivateSGD(**options), problem, federation(kind))
    P, D, plan = data.n_clients, run._size, run.plan
    memories = [run.client_start(data.block(i)) for i in range(P)]
    state, ask = run.server_start(P)
    w = np.zeros(D)
    tau = options.get("length") or run._step(1) * 2
    for t in (1, 2):
        streams = [lambda _, p=p, t=t: np.random.default_rng([p, t]) for p in range(P)]
        np.testing.assert_array_equal(ask.message.w, state.w)
        assert ask.message.round == t
        assert ask.message.step == pytest.approx(tau / 2 * (1 - (t - 1) / 4))
        found = [run.blur(memories[p], ask.message, data.block(p), streams[p]) for p in range(P)]
        total = np.zeros(D)
        for p in range(P):
            X, y = data.rows(p)
            total += plan.weight[p] * gradient_by_hand(kind, X, y, w, plan)
            if privacy is not None:
                question = Question.of(plan, memories[p], w[None], Told.of(w, w.dtype), (t,))
                key = noisy_gradient._key(memories[p], question, streams[p], 0)
                total += plan.unit[p] * discrete_noise(plan.kind, plan.noise, key, D)
        memories = [memory for memory, _ in found]
        assert {float(memory.answered[0]) for memory in memories} == {t}
        up = np.concatenate([up.gradient for _, up in found]).sum(0)
        # the grid on which gradients are rounded, where answers are private
        close = {"atol": 1e-3 if plan.single else 1e-4} if privacy else {"atol": 1e-13}
        np.testing.assert_allclose(up, total, **close)
        step, w = ask.message.step, w - ask.message.step * up
        own = w[: D - (kind == "sign")]
        if isinstance(regulariser, L2):
            own /= 1 + 0.1 * step
        elif isinstance(regulariser, Ball):
            own *= min(1.0, 0.03 / np.linalg.norm(own))
        else:
            own[:] = np.clip(own, -0.02, 0.03)
        state, ask = run.descend(state, range(P), replace(found[0][1], gradient=up))
        np.testing.assert_allclose(state.w, w, rtol=1e-12, atol=1e-12)
        w = state.w


# ---- without noise


@pytest.mark.parametrize(
    ("kind", "problem", "most"),
    [
        ("sign", Problem(Logistic(), Linear(True), regulariser=L2(0.1)), 1e-8),
        ("class", Problem(Multinomial(), SOFTMAX, regulariser=L2(0.1)), 1e-8),
        ("real", Problem(Huber(1.0), PLAIN, over_clients=Mean("uniform")), 1e-8),
        ("real", Problem(Squared(), Linear(True), regulariser=L1(0.05)), 1e-6),
        ("sign", Problem(Logistic(), PLAIN, regulariser=Bounds(-0.1, 0.2)), 1e-8),
    ],
    ids=["logistic", "multinomial", "huber", "lasso", "within bounds"],
)
def test_without_noise_it_ends_at_the_optimum(kind: str, problem: Problem, most: float) -> None:
    fed = federation(kind)
    s = solve(problem, fed, algorithm=PrivateSGD(max_rounds=600, length=240.0))
    assert s.ledger is None
    assert s.outcome.stop is Stop.MAX_ROUNDS
    best = solve(problem, fed, algorithm=Bundle(tol=1e-10, max_rounds=2000)).certificate.value
    assert s.certificate.value - best <= most


def test_without_noise_it_is_sklearns_logistic_regression() -> None:
    fed = federation("sign", sizes=(60, 90, 50))
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    s = solve(
        Problem(Logistic(), Linear(True), over_clients=Mean("size"), regulariser=L2(0.1)),
        fed,
        algorithm=PrivateSGD(max_rounds=400, length=400.0),
    )
    theirs = LogisticRegression(C=1 / (0.1 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(s.w, [*theirs.coef_[0], *theirs.intercept_], atol=1e-5)


def test_without_noise_clipped_descent_ends_where_bfgs_does() -> None:
    """Clipped logistic gradients are those of another convex function: linear beyond the clip."""
    fed, clip = federation("sign", d=2), 0.6
    s = solve(
        Problem(Logistic(), PLAIN, over_clients=Mean("size"), regulariser=L2(0.05)),
        fed,
        algorithm=PrivateSGD(max_rounds=500, length=500.0, clip=clip),
    )
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    norm = np.linalg.norm(X, axis=1)

    def value(w: np.ndarray) -> float:
        margin, most = y * (X @ w), np.minimum(clip / norm, 1 - 1e-12)
        kink = np.log(1 / most - 1)  # where 1 / (1 + exp(margin)) = clip / norm
        smooth = np.logaddexp(0, -np.maximum(margin, kink))
        return float((smooth + most * np.maximum(kink - margin, 0)).mean() + 0.025 * w @ w)

    best = optimize.minimize(value, np.zeros(2), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(s.w, best.x, atol=1e-4)


# ---- steps and clip from public numbers


@pytest.mark.parametrize(
    ("kind", "options", "row"),
    [
        ("class", {"bound": 1.0}, 1.0),
        ("sign", {"bound": 1.0}, math.sqrt(2)),  # an intercept's 1 is a part of the row
        ("class", {}, 2.0),  # five features of order one
        ("sign", {"mechanism": "laplace", "bound": 1.0}, 2.0),
    ],
)
@pytest.mark.parametrize("rounds", [7, 70])
def test_noise_alone_moves_a_coefficient_by_as_much(
    kind: str, options: dict[str, Any], row: float, rounds: int
) -> None:
    """tau nu row = 0.9, whatever T, budget and sizes are."""
    lengths = []
    for budget in (BUDGET, Budget(0.5, 1e-6, adjacency="replace")):
        run, data = planned(
            PrivateSGD(max_rounds=rounds, **KNOWN, **options),
            problem_of(kind, budget),
            federation(kind),
        )
        n, P = sum(data.sizes), data.n_clients
        mechanism = options.get("mechanism", "gaussian")
        one = noise_for(budget, rounds, mechanism) * budget.spread * run.plan.clip / n
        sd = one * math.sqrt(P) * (math.sqrt(2) if mechanism == "laplace" else 1)
        steps = [run._step(t) for t in range(1, rounds + 1)]
        lengths.append(sum(steps) / (1 + 1 / rounds) * sd / math.sqrt(rounds) * row)
        assert run.plan.clip == pytest.approx(row / 3)
        falls = np.diff([*steps, 0.0])
        np.testing.assert_allclose(falls, falls[0])  # in a straight line to 0
    np.testing.assert_allclose(lengths, 0.9)


def test_steps_and_noise_look_at_no_row() -> None:
    fed, other = federation("sign", 0), federation("sign", 9)
    other = replace(other, X=tuple(1e3 * x for x in other.X))
    mine, theirs = (
        planned(PrivateSGD(max_rounds=5), problem_of("sign"), each)[0] for each in (fed, other)
    )
    assert [mine._step(t) for t in range(1, 6)] == [theirs._step(t) for t in range(1, 6)]
    assert (mine.plan.multiplier, mine.plan.clip) == (theirs.plan.multiplier, theirs.plan.clip)
    np.testing.assert_array_equal(mine.plan.sensitivity, theirs.plan.sensitivity)


def test_rows_in_other_units_give_the_same_predictions() -> None:
    """Rows and their bound a thousand times as long: coefficients a thousandth as long."""
    fed = federation("class", sizes=(400, 300))
    far = replace(fed, X=tuple(1024.0 * x for x in fed.X))
    w, small = (
        solve(
            problem_of("class"),
            each,
            algorithm=PrivateSGD(max_rounds=20, bound=bound, length=None, **KNOWN),
            seed=1,
        ).w
        for each, bound in ((fed, 2.0), (far, 2048.0))
    )
    # the noise has the key of other settings; what remains is that of 20 rounds
    assert np.abs(1024 * small - w).max() < 10 * 0.9 / 2
    assert 0.3 < np.linalg.norm(1024 * small) / np.linalg.norm(w) < 3


# ---- what it costs


@pytest.mark.parametrize("options", [{}, {"mechanism": "laplace", "bound": 1.0}])
def test_it_costs_what_the_accountant_says(options: dict[str, Any]) -> None:
    problem, fed = problem_of("sign"), federation("sign")
    mine, admm = (
        solve(problem, fed, algorithm=method(max_rounds=6, **options)).ledger
        for method in (PrivateSGD, PrivateADMM)
    )
    assert mine is not None
    assert admm is not None
    mechanism = options.get("mechanism", "gaussian")
    noise = noise_for(BUDGET, 6, mechanism)
    assert mine.releases == {c: (Release(mechanism, noise, 6),) for c in sorted(fed.names)}
    assert mine.epsilon == total_epsilon([Release(mechanism, noise, 6)], 1e-3) <= 3
    assert (mine.releases, mine.epsilon) == (admm.releases, admm.epsilon)


def test_a_client_refuses_what_is_not_paid_for() -> None:
    run, data = planned(PrivateSGD(max_rounds=2), problem_of("sign"), federation("sign"))
    block, memory = data.block(0), run.client_start(data.block(0))
    stream = lambda _: np.random.default_rng(0)  # noqa: E731
    w = np.zeros(run._size)
    with pytest.raises(ValueError, match="not of finite numbers > 0: nothing was released"):
        run.blur(memory, Blur(w + np.nan, 1, 1.0), block, stream)
    first, up = run.blur(memory, Blur(w, 1, 1.0), block, stream)
    _, again = run.blur(memory, Blur(w, 1, 1.0), block, stream)
    np.testing.assert_array_equal(up.gradient, again.gradient)  # a round may be repeated
    _, other = run.blur(memory, Blur(w + 1e-9, 1, 1.0), block, stream)
    assert np.abs(up.gradient - other.gradient).min() > 0  # with fresh noise for another question
    second, _ = run.blur(first, Blur(w, 2, 1.0), block, stream)
    with pytest.raises(BudgetSpentError, match="pays for 2 answers"):
        run.blur(second, Blur(w, 3, 1.0), block, stream)


def test_answers_are_on_the_grid() -> None:
    run, data = planned(PrivateSGD(max_rounds=2), problem_of("sign"), federation("sign"))
    block = data.block(2)
    w = np.ones(run._size)
    memory, stream = run.client_start(block), lambda _: np.random.default_rng(0)
    _, up = run.blur(memory, Blur(w, 1, 1.0), block, stream)
    unit = run.plan.unit[2]
    np.testing.assert_array_equal(up.gradient[0], np.rint(up.gradient[0] / unit) * unit)


def test_settings_out_of_range_are_refused() -> None:
    for name, value in (("length", 0.0), ("clip", -1.0), ("bound", math.nan)):
        with pytest.raises(ValueError, match=f"{name} must be a number > 0"):
            PrivateSGD(**{name: value})
    with pytest.raises(ValueError, match="max_rounds must be a whole number"):
        PrivateSGD(max_rounds=0)
    unplanned = PrivateSGD(problem=problem_of("sign"))
    with pytest.raises(ValueError, match="PrivateSGD has no noise planned yet"):
        unplanned.server_start(3)
    with pytest.raises(ValueError, match="Laplace noise needs a declared l1 bound"):
        solve(problem_of("sign"), federation("sign"), algorithm=PrivateSGD(mechanism="laplace"))
    with pytest.raises(ArithmeticError, match="not finite any more"):
        solve(
            Problem(Squared(), PLAIN),
            federation("real"),
            algorithm=PrivateSGD(max_rounds=3000, length=1e7),
        )
