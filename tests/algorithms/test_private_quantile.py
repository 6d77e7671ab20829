"""`PrivateSGD` whose clip follows a private quantile: its rounds by hand, what a row moves, what it
costs, and where it helps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import planned
from private_rounds import federation
from scipy import sparse
from scipy.special import expit, softmax

from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.integer_gradient import IntegerRows
from bonafed.algorithms.federated.private.mechanism import COUNT, COUNTED, GRADIENT, SMOOTHING
from bonafed.algorithms.federated.private.noisy_gradient import Question, Told
from bonafed.algorithms.federated.private_sgd import PrivateSGD, Trim, Trimmed
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import Release, noise_for, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.problem.losses import Logistic, Multinomial
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.solution.solve import solve

BUDGET, KNOWN = Budget(3.0, 1e-3), {"noise": "simulation"}


def problem_of(kind: str, budget: Budget | None = BUDGET) -> Problem:
    loss, predictor = (Multinomial(), Softmax()) if kind == "class" else (Logistic(), Linear(True))
    return Problem(loss, predictor, over_clients=Mean("size"), privacy=budget)


def stream(_: int) -> np.random.Generator:
    return np.random.default_rng(3)


def norms(kind: str, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of the rows' gradients before they are shortened, by hand."""
    if kind == "class":
        r = softmax(X @ w.reshape(X.shape[1], -1), axis=1) - np.eye(3)[y.astype(int)]
        return np.linalg.norm(X, axis=1) * np.linalg.norm(r, axis=1)
    one = np.hypot(np.linalg.norm(X, axis=1), 1)
    return one * expit(-y * (X @ w[:-1] + w[-1]))


def test_gradient_and_count_are_one_release_of_the_planned_noise() -> None:
    assert 1 / GRADIENT**2 + 1 / COUNT**2 == 1
    for adjacency in ("add-remove", "replace"):
        budget = replace(BUDGET, adjacency=adjacency)
        run, _ = planned(
            PrivateSGD(max_rounds=5, quantile=0.5), problem_of("sign", budget), federation("sign")
        )
        plan = run.plan
        assert plan.multiplier == noise_for(budget, 5)
        gradient = (plan.noise - SMOOTHING) ** 0.5 / (plan.spread * plan.steps)
        count = (plan.count_noise - SMOOTHING) ** 0.5 / (plan.spread * COUNTED)
        together = (gradient**-2 + count**-2) ** -0.5
        assert plan.multiplier <= together <= plan.multiplier * (1 + 1e-5)
        assert plan.own == pytest.approx(gradient)


@pytest.mark.parametrize("kind", ["class", "sign"])
@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_two_rounds_by_hand(kind: str, sampling: float) -> None:
    run, data = planned(
        PrivateSGD(max_rounds=4, quantile=0.7, sampling=sampling, **KNOWN),
        problem_of(kind),
        federation(kind),
    )
    plan, w, clip = run.plan, np.zeros(run._size), run.plan.clip
    memories = [run.client_start(data.block(i)) for i in range(data.n_clients)]
    state, ask = run.server_start(data.n_clients)
    for t in (1, 2):
        message = ask.message
        assert (message.round, message.clip) == (t, pytest.approx(clip))
        assert message.step == pytest.approx(run._step(t) * (plan.clip / clip) ** 2)
        gradients, shares = np.zeros(len(w)), 0.0
        for i in range(data.n_clients):
            here = plan.at(message.clip)
            question = Question.of(here, memories[i], w[None], Told.of(w, w.dtype), (t,))
            noise, count, rows = (
                noisy_gradient._key(memories[i], question, stream, 0, use)
                for use in (b"bonafed noise", b"bonafed count", b"bonafed rows")
            )
            X, y = data.rows(i)
            at = noisy_gradient.taken(rows, len(y), sampling)
            net = int(np.where(norms(kind, X[at], y[at], w) <= message.clip, 1, -1).sum())
            drawn = int(discrete_noise("gaussian", plan.count_noise, count, 1)[0])
            shares += plan.weight[i] / sampling * (net + drawn / COUNTED)
            silent = IntegerRows.of(run.problem, here, data.block(i), 0).of_rows(at)
            total = silent.gradient(run.problem, here, w)
            total = total + discrete_noise("gaussian", here.noise, noise, len(w))
            gradients += here.unit[i] * total
        found = [
            run.blur(memories[i], message, data.block(i), stream) for i in range(data.n_clients)
        ]
        memories = [memory for memory, _ in found]
        up = Trimmed(
            np.concatenate([up.gradient for _, up in found]).sum(0),
            np.concatenate([up.short for _, up in found]).sum(0),
        )
        np.testing.assert_allclose(up.gradient, gradients, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(up.short, shares, rtol=1e-12)
        state, ask = run.descend(state, range(data.n_clients), up)
        w = w - message.step * gradients
        np.testing.assert_allclose(state.w, w, rtol=1e-12, atol=1e-12)
        w = state.w
        clip *= math.exp(-0.2 * (min(max((1 + shares) / 2, 0.0), 1.0) - 0.7))
        assert state.clip == pytest.approx(clip)


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("kind", ["class", "sign"])
def test_a_row_moves_the_count_by_one_wherever_it_lies(kind: str, thin: bool) -> None:
    fed = federation(kind, sizes=(203,))
    run, data = planned(PrivateSGD(quantile=0.5), problem_of(kind), fed)
    X = np.array(data.rows(0)[0])
    X[5], X[70], X[111, 0], X[112, 1] = 0.0, 1e160, np.nan, np.inf
    block = replace(data.block(0), X=sparse.csr_array(X) if thin else X[None])
    rows = IntegerRows.of(run.problem, run.plan, block, 0)
    w = np.random.default_rng(1).standard_normal(run._size)

    def more(at: Any) -> int:
        return rows.of_rows(np.array(at, int)).counted(run.problem, run.plan, w)[1]

    each = np.array([more([i]) for i in range(203)])
    assert {*each} == {-1, 0, 1}
    assert set(each[[5, 70, 111, 112]]) <= {-1, 0, 1}
    for at in ([], range(203), [5, 9, 3], np.arange(0, 203, 7), range(100, 201)):
        assert more(at) == each[list(at)].sum()
    plain = [i for i in range(203) if i not in (5, 70, 111, 112)]
    by_hand = norms(kind, X[plain], data.rows(0)[1][plain], w) <= run.plan.clip
    assert np.mean(np.where(by_hand, 1, -1) == each[plain]) > 0.99  # but for rounding


def test_a_clip_of_a_round_scales_its_grid_and_nothing_else() -> None:
    run, data = planned(
        PrivateSGD(max_rounds=3, quantile=0.5), problem_of("sign"), federation("sign")
    )
    block, w = data.block(1), np.full(run._size, 0.2)
    memory = run.client_start(block)
    for clip in (run.plan.clip, 0.01, 50.0):
        _, up = run.blur(memory, Trim(w, 1, 1.0, clip), block, stream)
        unit = run.plan.weight[1] * clip / run.plan.steps
        np.testing.assert_allclose(up.gradient[0] / unit, np.rint(up.gradient[0] / unit), atol=1e-3)
        short = up.short[0] / run.plan.count_unit[1]
        np.testing.assert_allclose(short, np.rint(short), atol=1e-6)
    for clip in (0.0, -1.0, math.nan, math.inf, 1e30, 1e-30):
        with pytest.raises(ValueError, match="not of finite numbers > 0: nothing was released"):
            run.blur(memory, Trim(w, 1, 1.0, clip), block, stream)
    for t in (1, 2, 3):
        memory, _ = run.blur(memory, Trim(w, t, 1.0, 1.0), block, stream)
    with pytest.raises(BudgetSpentError, match="pays for 3 answers"):
        run.blur(memory, Trim(w, 4, 1.0, 1.0), block, stream)


def table(scale: float) -> Federation:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6))
    y = np.where(X @ [2.0, -1.0, 1.0, 0.0, 0.0, 0.5] + rng.standard_normal(3000) > 0, 1, -1)
    return Federation.from_arrays(scale * X, y, np.repeat(["a", "b", "c"], 1000))


def test_the_clip_finds_the_quantile_and_helps_rows_that_are_far_too_short() -> None:
    plain = Problem(Logistic(), Linear(False), over_clients=Mean("size"), privacy=Budget(1, 1e-6))
    right = {}
    for scale in (1.0, 1e-3):
        fed = table(scale)
        X, y = np.concatenate(fed.X), np.concatenate(fed.y)
        for quantile in (None, 0.5):
            method = PrivateSGD(max_rounds=80, quantile=quantile, **KNOWN)
            s = solve(plain, fed, algorithm=method, seed=1)
            right[scale, quantile] = (np.sign(X @ s.w) == y).mean()
        clips = [row["clip"] for row in s.history]
        assert clips[0] != clips[-1]
        assert "gradient and count of short ones together" in s.ledger.text
        release = Release("gaussian", noise_for(Budget(1, 1e-6), 80), 80)
        assert s.ledger.releases["a"] == (release,)
        assert s.ledger.epsilon == total_epsilon([release], 1e-6)
        assert [row["clip"] for row in s.public().history] == clips
    assert right[1.0, None] > 0.85
    assert right[1e-3, None] < 0.75 < 0.83 < right[1e-3, 0.5]


def test_settings_that_do_not_go_together_are_refused() -> None:
    for share in (0.0, -0.5, math.nan, "half"):
        with pytest.raises(ValueError, match="quantile must be a number > 0"):
            PrivateSGD(quantile=share)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="quantile must be a share of rows below 1"):
        PrivateSGD(quantile=1.0)
    with pytest.raises(ValueError, match="quantile needs Gaussian noise"):
        PrivateSGD(quantile=0.5, mechanism="laplace")
    with pytest.raises(ValueError, match=r"quantile = 0\.5 needs a budget"):
        solve(problem_of("sign", None), federation("sign"), algorithm=PrivateSGD(quantile=0.5))
