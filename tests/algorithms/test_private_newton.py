"""Private Newton steps: a round by hand, what one row moves, their noise-free limit, and what they
cost.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from private_cases import planned
from private_rounds import federation, gradient_by_hand
from problems import PLAIN
from scipy import sparse
from scipy.special import expit

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.integer_gradient import IntegerRows
from bonafed.algorithms.federated.private.noisy_gradient import Question, Told
from bonafed.algorithms.federated.private_newton import (
    PrivateNewton,
    integer_counts,
    integer_matrix,
    packed,
    raised,
    shares,
    shortened_rows,
    unpacked,
)
from bonafed.algorithms.federated.private_sgd import Blur, PrivateSGD
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import Release, noise_for
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.problem.losses import (
    Exponential,
    Huber,
    Logistic,
    Multinomial,
    Poisson,
    SmoothHinge,
    Squared,
)
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, Bounds, Zero
from bonafed.problem.risks.weight_sets import Mean
from bonafed.solution.solve import fit, solve

BUDGET, KNOWN = Budget(3.0, 1e-3), {"noise": "simulation"}


def problem_of(loss: Any = None, budget: Budget | None = BUDGET, **more: Any) -> Problem:
    loss = Logistic() if loss is None else loss
    return Problem(loss, Linear(True), over_clients=Mean("size"), privacy=budget, **more)


def stream(_: int) -> np.random.Generator:
    return np.random.default_rng(3)


# ---- rounds by hand


def test_a_round_by_hand() -> None:
    """Gradient and matrix of every client, each with its own noise, and the step of the server."""
    problem = problem_of(regulariser=L2(0.1))
    run, data = planned(
        PrivateNewton(max_rounds=4, bound=1.5, **KNOWN), problem, federation("sign")
    )
    P, D = data.n_clients, run._size
    state, ask = run.server_start(P)
    w = np.full(D, 0.3)
    ask = Blur(w, 1, ask.message.step)
    parts = [run._part(k) for k in range(2)]
    gradient, matrix, ups = np.zeros(D), np.zeros((D, D)), []
    for p in range(P):
        block = data.block(p)
        memory = run.client_start(block)
        new, up = run.bend(memory, ask, block, stream)
        assert new.answered.tolist() == [1]
        ups.append(up)
        X, y = data.rows(p)
        gradient += run.plan.weight[p] * gradient_by_hand("sign", X, y, w, run.plan)
        X = np.asarray(X) * np.minimum(1, 1.5 / np.linalg.norm(X, axis=1))[:, None]
        X = np.column_stack([X, np.ones(len(X))])
        share = expit(X @ w)
        matrix += run.plan.weight[p] * (X.T * (share * (1 - share))) @ X
        keys = [
            noisy_gradient._key(
                memory, Question.of(part, memory, w[None], Told.of(w, float), (1, k)), stream, 0
            )
            for k, part in enumerate(parts)
        ]
        assert keys[0] != keys[1]
        noise = [
            part.unit[p] * discrete_noise("gaussian", part.noise, key, size)
            for part, key, size in zip(parts, keys, (D, D * (D + 1) // 2), strict=True)
        ]
        gradient += noise[0]
        matrix += unpacked(noise[1], D)
    up = replace(
        ups[0], gradient=sum(up.gradient for up in ups), matrix=sum(up.matrix for up in ups)
    )
    np.testing.assert_allclose(up.gradient[0], gradient, atol=1e-3)
    np.testing.assert_allclose(unpacked(up.matrix[0], D), matrix, atol=1e-5)
    state, ask = run.descend(replace(state, w=w), range(P), up)
    least = parts[1].deviation * math.sqrt(D / 2)
    bend = raised(unpacked(up.matrix[0], D), least) / 2
    # the optimum of the model with the ridge on all but the intercept
    ridge = 0.1 * np.diag([1.0] * (D - 1) + [0.0])
    best = np.linalg.solve(bend + ridge, bend @ w - up.gradient[0])
    np.testing.assert_allclose(state.w, best, rtol=1e-9)
    assert ask.message.step == pytest.approx(2 * 3 / 4)


def test_a_symmetric_matrix_is_its_upper_triangle_with_the_same_norm() -> None:
    A = np.random.default_rng(0).normal(size=(5, 5))
    A = A + A.T
    np.testing.assert_allclose(np.linalg.norm(packed(A)), np.linalg.norm(A))
    np.testing.assert_allclose(unpacked(packed(A), 5), A)


# ---- what one row moves


LOSSES = {
    "logistic": (Logistic(), "sign"),
    "smooth hinge": (SmoothHinge(), "sign"),
    "exponential": (Exponential(), "sign"),
    "squared": (Squared(), "real"),
    "huber": (Huber(0.5), "real"),
    "poisson": (Poisson(), "real"),
}


@pytest.mark.parametrize("far", [1.0, 1e3, 1e98, 1e-98])
@pytest.mark.parametrize("name", LOSSES)
def test_a_row_moves_every_part_by_its_bound_at_most(name: str, far: float) -> None:
    """In integers, for rows and models of every length; an answer has nothing else of the rows."""
    loss, kind = LOSSES[name]
    fed = federation(kind, sizes=(40,))
    y = np.rint(np.abs(fed.y[0])) if name == "poisson" else fed.y[0]
    fed = replace(fed, X=(fed.X[0] * far,), y=(y,))
    for options in ({"clip": 0.4}, {"clip": 2.0, "bound": 1.3}):
        inference = "bound" in options and name in ("squared", "poisson")
        method = PrivateNewton(inference=inference, **KNOWN, **options)
        run, data = planned(method, problem_of(loss), fed)
        parts = [run._part(k) for k in range(2 + inference)]
        grids = [part.grid(0) for part in parts]
        whole = IntegerRows.of(run.problem, parts[0], data.block(0), 0)
        short = shortened_rows(run.plan, data.block(0), 0)
        for w in (np.zeros(run._size), np.full(run._size, 3.0), np.full(run._size, 1e200)):
            total = np.zeros(run._size * (run._size + 1) // 2, np.int64)
            for i in range(40):
                one = replace(
                    whole,
                    U=np.repeat(whole.U[i : i + 1], 16, 0),
                    y=np.repeat(whole.y[i : i + 1], 16),
                    length=np.where(np.arange(16) == 0, whole.length[i], 0.0),
                    size=np.repeat(whole.size[i : i + 1], 16),
                )
                v = integer_matrix(run.problem, parts[1].clip, grids[1], one, w)
                total += v
                assert sum(int(k) ** 2 for k in v) <= parts[1].steps ** 2
                if inference:
                    c = integer_counts(run.problem, grids[2], run._caps, one, short[[i] * 16], w)
                    assert sum(int(k) ** 2 for k in c) <= parts[2].steps ** 2
            # the sum of rows that are looked at one by one, to the bit
            both = integer_matrix(run.problem, parts[1].clip, grids[1], whole, w)
            np.testing.assert_array_equal(both, total)


def test_rows_whose_curvature_alone_is_shortened_are_counted() -> None:
    """Counts that are as expected have no gradient, and bend as much as they are large."""
    fed = federation("real", sizes=(40,))
    method = PrivateNewton(inference=True, clip=2.0, bound=1.3, **KNOWN)
    for rate, share in ((1.0, 0), (20.0, 1)):
        counts = replace(fed, y=(np.full(40, rate),))
        run, data = planned(method, problem_of(Poisson()), counts)
        part, block = run._part(2), data.block(0)
        rows = IntegerRows.of(run.problem, run._part(0), block, 0)
        w = np.append(np.zeros(run._size - 1), math.log(rate))
        none = np.zeros(len(rows.y), bool)
        over = integer_counts(run.problem, part.grid(0), run._caps, rows, none, w)
        assert over.tolist() == [40 * share * part.steps]


def test_no_loss_bends_more_than_it_says() -> None:
    at = np.linspace(-5, 5, 2001)
    for loss, _ in LOSSES.values():
        most = loss.curvature(at, np.ones_like(at)).max()
        assert most <= loss.steepest_curvature
        assert math.isinf(loss.steepest_curvature) or most == loss.steepest_curvature


def test_the_parts_of_an_answer_are_one_release_of_the_planned_noise() -> None:
    """1 / noise^2 of the parts adds up to that of the plan, and never to more."""
    for inference in (False, True):
        problem = problem_of(budget=Budget(0.7, 1e-6))
        method = PrivateNewton(inference=inference, bound=1.0, **KNOWN)
        run, _ = planned(method, problem, federation("sign"))
        parts = [run._part(k).multiplier for k in range(2 + inference)]
        total = sum(1 / m**2 for m in parts)
        one = 1 / run.plan.multiplier**2
        assert one * (1 - 1e-11) <= total <= one
        for k, m in enumerate(parts):  # and the noise that is drawn has at least as much
            part = run._part(k)
            assert part.noise >= (Fraction(m) * part.steps) ** 2


def test_dense_and_sparse_rows_have_the_same_answer() -> None:
    fed = federation("sign")
    thin = replace(fed, X=tuple(sparse.csr_array(x) for x in fed.X))
    method = PrivateNewton(max_rounds=3, bound=1.0, **KNOWN)
    w, other = (fit(problem_of(), each, algorithm=method).w for each in (fed, thin))
    np.testing.assert_array_equal(w, other)


# ---- shares of the budget


def test_the_matrix_gets_the_part_at_which_the_stated_error_is_least() -> None:
    run, _ = planned(PrivateNewton(bound=1.0, **KNOWN), problem_of(), federation("sign"))
    plan, D = run.plan, run._size
    gradient, matrix = shares(plan, D)
    assert gradient + matrix == pytest.approx(1.0, rel=1e-12)
    nu = noise_for(BUDGET, 8) / math.sqrt(8) * math.sqrt((plan.weight**2).sum())
    kappa = 2 * D * (D * nu) ** 2
    b = np.linspace(1e-3, 0.999, 20_000)
    assert matrix == pytest.approx(b[((1 + kappa / b) / (1 - b)).argmin()], abs=1e-3)


# ---- without noise


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("sign", Problem(Logistic(), Linear(True), regulariser=L2(1e-2))),
        ("real", Problem(Squared(), Linear(True))),
        ("real", Problem(Squared(), Linear(True), regulariser=L1(0.05))),
        ("sign", Problem(Logistic(), PLAIN, regulariser=Bounds(-0.1, 0.2))),
    ],
    ids=["logistic", "least squares", "lasso", "within bounds"],
)
def test_without_noise_eight_rounds_end_at_the_optimum(kind: str, problem: Problem) -> None:
    fed = federation(kind)
    s = solve(problem, fed, algorithm=PrivateNewton())
    assert s.ledger is None
    best = solve(problem, fed, algorithm=Bundle(tol=1e-10, max_rounds=2000)).certificate.value
    assert s.certificate.value - best <= 1e-9


# ---- with noise


def table(kind: str, n: int, seed: int) -> tuple[Federation, np.ndarray]:
    """Correlated features, rows of length 1, three clients."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) * [1.0, 1.0, 1.0, 0.3, 0.3, 0.3] @ rng.normal(size=(6, 6))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    score = X @ [4.0, -4.0, 3.0, 0.0, 2.0, -3.0]
    noise = rng.logistic(size=n) if kind == "sign" else 0.2 * rng.normal(size=n)
    y = np.where(score + noise > 0, 1, -1) if kind == "sign" else score / 10 + noise
    return Federation.from_arrays(X, y, rng.integers(0, 3, n)), X


def test_it_needs_fewer_rounds_than_gradient_descent() -> None:
    """On correlated features, 8 rounds have a lower loss than 8 and 60 rounds of PrivateSGD."""
    fed, _ = table("sign", 3000, 0)
    problem = problem_of(budget=Budget(2.0, 1e-6), regulariser=L2(1e-4))
    methods = (
        PrivateNewton(bound=1.0, **KNOWN),
        *(PrivateSGD(T, bound=1.0, **KNOWN) for T in (8, 60)),
    )
    mean = [
        np.mean([fit(problem, fed, algorithm=method, seed=s).certificate.value for s in range(3)])
        for method in methods
    ]
    assert mean[0] < min(mean[1:])


def test_it_costs_what_gradient_descent_of_as_many_rounds_does() -> None:
    fed = federation("sign")
    mine, theirs = (
        solve(problem_of(), fed, algorithm=method(max_rounds=5)).ledger
        for method in (PrivateNewton, PrivateSGD)
    )
    assert mine is not None
    assert theirs is not None
    noise = noise_for(BUDGET, 5)
    assert mine.releases == {c: (Release("gaussian", noise, 5),) for c in sorted(fed.names)}
    assert (mine.epsilon, mine.text) == (theirs.epsilon, theirs.text)


def test_a_client_refuses_what_is_not_paid_for() -> None:
    run, data = planned(PrivateNewton(max_rounds=1), problem_of(), federation("sign"))
    block = data.block(0)
    memory, w = run.client_start(block), np.zeros(run._size)
    with pytest.raises(ValueError, match="not of finite numbers > 0: nothing was released"):
        run.bend(memory, Blur(w + np.nan, 1, 1.0), block, stream)
    first, up = run.bend(memory, Blur(w, 1, 1.0), block, stream)
    _, again = run.bend(memory, Blur(w, 1, 1.0), block, stream)
    np.testing.assert_array_equal(up.matrix, again.matrix)  # a round may be repeated
    _, other = run.bend(memory, Blur(w + 1e-9, 1, 1.0), block, stream)
    assert np.abs(up.matrix - other.matrix).min() > 0  # with fresh noise for another question
    with pytest.raises(BudgetSpentError, match="pays for 1 answers"):
        run.bend(first, Blur(w, 2, 1.0), block, stream)


def test_settings_out_of_range_are_refused() -> None:
    fed = federation("sign")
    with pytest.raises(ValueError, match='mechanism must be "gaussian"'):
        PrivateNewton(mechanism="laplace")
    with pytest.raises(ValueError, match="length must be a number > 0"):
        PrivateNewton(length=0.0)
    with pytest.raises(ValueError, match="inference must be True or False"):
        PrivateNewton(inference=1)  # type: ignore[arg-type]
    for problem, method, words in (
        (problem_of(), PrivateNewton(inference=True), "a bound on the rows"),
        (problem_of(budget=None), PrivateNewton(inference=True, bound=1.0), "needs a budget"),
        (
            problem_of(regulariser=L2(1.0)),
            PrivateNewton(inference=True, bound=1.0),
            "needs no regulariser",
        ),
        (problem_of(SmoothHinge()), PrivateNewton(inference=True, bound=1.0), "the loss Logistic"),
    ):
        with pytest.raises(ValueError, match=words):
            solve(problem, fed, algorithm=method)
    counts = replace(fed, y=tuple(np.abs(y) for y in fed.y))
    with pytest.raises(ValueError, match=r"Poisson is not Lipschitz, .* give clip="):
        solve(problem_of(Poisson()), counts, algorithm=PrivateNewton(inference=True, bound=1.0))
    several = Problem(Multinomial(), Softmax(3), over_clients=Mean("size"), privacy=BUDGET)
    with pytest.raises(ValueError, match="predictor Linear"):
        solve(several, federation("class"), algorithm=PrivateNewton())
    assert isinstance(problem_of().regulariser, Zero)
