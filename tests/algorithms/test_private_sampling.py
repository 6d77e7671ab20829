"""`PrivateSGD` with sampled rows: its rounds by hand, what a row changes, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from private_cases import planned
from private_rounds import federation, gradient_by_hand
from scipy import sparse

from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.integer_gradient import IntegerRows
from bonafed.algorithms.federated.private.noisy_gradient import Question, Told
from bonafed.algorithms.federated.private_sgd import Blur, PrivateSGD
from bonafed.data.federation import Federation
from bonafed.engines.checkpoint import CheckpointError
from bonafed.engines.inprocess import InProcess
from bonafed.privacy.accounting import Release, noise_for, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.privacy.keystream import taken
from bonafed.problem.losses import Logistic, Multinomial
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import Stop
from bonafed.solution.solve import solve

BUDGET, KNOWN, Q = Budget(3.0, 1e-3), {"noise": "simulation"}, 0.4


def problem_of(kind: str, budget: Budget | None = BUDGET) -> Problem:
    loss, predictor = (Multinomial(), Softmax()) if kind == "class" else (Logistic(), Linear(True))
    return Problem(loss, predictor, over_clients=Mean("size"), privacy=budget)


def stream(_: int) -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize("kind", ["class", "sign"])
def test_an_answer_by_hand(kind: str) -> None:
    """The rows whose coins say so, over q, and noise of its own key."""
    run, data = planned(
        PrivateSGD(max_rounds=4, sampling=Q, **KNOWN), problem_of(kind), federation(kind)
    )
    plan, w = run.plan, np.random.default_rng(0).standard_normal(run._size)
    n = sum(data.sizes)
    assert plan.multiplier == noise_for(BUDGET, 4, sampling=Q) < noise_for(BUDGET, 4)
    np.testing.assert_allclose(plan.unit, plan.clip / plan.steps / n / Q)
    counts = []
    for i in range(data.n_clients):
        block = data.block(i)
        memory = run.client_start(block)
        _, up = run.blur(memory, Blur(w, 1, 1.0), block, stream)
        question = Question.of(plan, memory, w[None], Told.of(w, w.dtype), (1,))
        keys = [
            noisy_gradient._key(memory, question, stream, 0, use)
            for use in (b"bonafed noise", b"bonafed rows")
        ]
        X, y = data.rows(i)
        at = taken(keys[1], len(y), Q)
        counts.append(len(at))
        total = plan.weight[i] / Q * gradient_by_hand(kind, X[at], y[at], w, plan)
        total += plan.unit[i] * discrete_noise(plan.kind, plan.noise, keys[0], len(w))
        np.testing.assert_allclose(up.gradient[0], total, atol=3e-3 if plan.single else 3e-4)
        _, again = run.blur(memory, Blur(w, 1, 1.0), block, stream)
        np.testing.assert_array_equal(up.gradient, again.gradient)
    assert 0 < sum(counts) < n


def test_answers_without_noise_are_right_in_the_mean() -> None:
    run, data = planned(
        PrivateSGD(max_rounds=300, sampling=Q, **KNOWN), problem_of("sign"), federation("sign")
    )
    silent = replace(run, plan=replace(run.plan, multiplier=0.0))
    block, w = data.block(1), np.full(run._size, 0.3)
    X, y = data.rows(1)
    memory, found = silent.client_start(block), []
    for t in range(1, 301):
        memory, up = silent.blur(memory, Blur(w, t, 1.0), block, stream)
        found.append(up.gradient[0])
    whole = run.plan.weight[1] * gradient_by_hand("sign", X, y, w, run.plan)
    error = np.std(found, 0) / np.sqrt(300)
    assert (np.abs(np.mean(found, 0) - whole) < 4 * error).all()
    assert (error > 0).all()


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("kind", ["class", "sign"])
def test_a_row_in_a_sample_counts_for_the_same_integers(kind: str, thin: bool) -> None:
    """Of any sample the sum is that of its rows one by one, to the bit."""
    fed = federation(kind, sizes=(203,))
    if thin:
        fed = replace(fed, X=tuple(map(sparse.csr_array, fed.X)))
    run, data = planned(PrivateSGD(max_rounds=4, sampling=Q), problem_of(kind), fed)
    block, w = data.block(0), np.random.default_rng(1).standard_normal(run._size)
    rows = IntegerRows.of(run.problem, run.plan, block, 0)

    def total(at: Any) -> np.ndarray:
        return rows.of_rows(np.array(at, int)).gradient(run.problem, run.plan, w)

    each = np.array([total([i]) for i in range(203)])
    for at in ([], range(203), range(16), [5, 9, 3], np.arange(0, 203, 7), range(100, 201)):
        np.testing.assert_array_equal(total(at), each[list(at)].sum(0))


@pytest.mark.parametrize("kind", ["class", "sign"])
def test_one_row_moves_a_sampled_sum_by_itself_or_not_at_all(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other rows' coins kept, though a row more moves their positions."""
    whole = federation(kind, sizes=(60,))
    place, coins = 23, np.random.default_rng(0).random(60) < Q
    less = replace(whole, X=(np.delete(whole.X[0], place, 0),), y=(np.delete(whole.y[0], place),))
    budget = replace(BUDGET, sizes=60)
    found = {}
    for name, fed, tossed in (
        ("less", less, np.delete(coins, place)),
        ("kept", whole, np.concatenate([coins[:place], [False], coins[place + 1 :]])),
        ("taken", whole, np.concatenate([coins[:place], [True], coins[place + 1 :]])),
    ):
        run, data = planned(PrivateSGD(max_rounds=4, sampling=Q), problem_of(kind, budget), fed)
        silent = replace(run, plan=replace(run.plan, multiplier=0.0))
        monkeypatch.setattr(noisy_gradient, "taken", lambda *_, at=tossed: np.flatnonzero(at))
        block = data.block(0)
        w = np.random.default_rng(1).standard_normal(run._size)
        up = silent.blur(silent.client_start(block), Blur(w, 1, 1.0), block, stream)[1].gradient
        found[name] = up[0]
    np.testing.assert_array_equal(found["less"], found["kept"])
    moved = np.linalg.norm(found["taken"] - found["less"])
    assert 0 < moved <= run.plan.sensitivity[0] * (1 + 1e-9)


def test_samples_are_secret_and_of_each_round() -> None:
    """Other clients, rounds and keys have other samples; a round touches its sample alone."""
    seen: list[int] = []
    gradient = IntegerRows.gradient

    def spied(self: IntegerRows, *args: Any) -> np.ndarray:
        seen.append(len(self.y))
        return gradient(self, *args)

    fed = federation("sign", sizes=(3000, 3000))
    run, data = planned(PrivateSGD(max_rounds=9, sampling=0.1), problem_of("sign"), fed)
    w, patch = np.zeros(run._size), pytest.MonkeyPatch()
    samples = []

    def kept(key: bytes, rows: int, q: float) -> np.ndarray:
        samples.append(tuple(taken(key, rows, q)))
        return taken(key, rows, q)

    with patch.context() as p:
        p.setattr(IntegerRows, "gradient", spied)
        p.setattr(noisy_gradient, "taken", kept)
        for i in (0, 1, 0):  # the last is a client that draws its keys anew
            memory = run.client_start(data.block(i))
            for t in (1, 2):
                memory, _ = run.blur(memory, Blur(w, t, 1.0), data.block(i), stream)
    assert len({*samples}) == 6
    assert all(230 < m < 380 for m in seen)


def test_a_run_costs_what_the_accountant_says_and_says_so() -> None:
    fed = federation("sign")
    s = solve(problem_of("sign"), fed, algorithm=PrivateSGD(max_rounds=6, sampling=Q))
    release = Release("gaussian", noise_for(BUDGET, 6, sampling=Q), 6, Q)
    assert s.ledger is not None
    assert s.ledger.releases == dict.fromkeys(sorted(fed.names), (release,))
    assert s.ledger.guarantee
    assert 2.97 < s.ledger.epsilon == total_epsilon([release], 1e-3) <= 3
    assert "in which every row takes part with probability 0.4" in s.ledger.text
    row = s.ledger.table()[0]
    assert (row["sampling"], row["gaussian"]) == (Q, None)
    assert row["epsilon"] <= row["rdp"]


def test_a_sampled_run_is_about_as_accurate_as_one_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    y = np.where(X @ [2.0, -1.0, 0.0] + 0.5 * rng.standard_normal(4000) > 0, 1, -1)
    fed = Federation.from_arrays(X, y, np.repeat(["a", "b"], 2000))
    problem = problem_of("sign", Budget(2.0, 1e-5))
    found = []
    for q in (1.0, 0.1):
        method = PrivateSGD(max_rounds=60, bound=2.0, sampling=q, **KNOWN)
        runs = [solve(problem, fed, algorithm=method, seed=seed).w for seed in range(4)]
        found.append(np.mean([(np.sign(X @ w[:3] + w[3]) == y).mean() for w in runs]))
    assert found[0] > 0.85
    assert abs(found[0] - found[1]) < 0.02


def test_a_run_goes_on_with_the_same_samples_for_one_charge(tmp_path: Path) -> None:
    fed, budget = federation("sign"), replace(BUDGET, book=tmp_path / "book.json")
    method = PrivateSGD(max_rounds=6, sampling=Q, **KNOWN)

    def run(name: str, ledger: Budget, **more: Any) -> Any:
        engine = InProcess(checkpoint=tmp_path / name)
        return solve(problem_of("sign", ledger), fed, algorithm=method, engine=engine, **more)

    def stop(row: dict[str, Any], state: object) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt

    alone = run("alone", replace(budget, book=tmp_path / "other.json"))
    first = run("cut", budget, watch=[stop])
    assert first.outcome.stop is Stop.INTERRUPTED
    assert first.ledger.releases["site 0"][0].count == 3
    other = replace(method, sampling=0.5)
    with pytest.raises(CheckpointError, match=r"sampling = 0\.4, got .* sampling = 0\.5"):
        solve(
            problem_of("sign", budget),
            fed,
            algorithm=other,
            engine=InProcess(checkpoint=tmp_path / "cut"),
            resume=True,
        )
    whole = run("cut", budget, resume=True)
    np.testing.assert_array_equal(whole.w, alone.w)
    assert whole.ledger.releases == alone.ledger.releases
    with pytest.raises(BudgetSpentError):
        run("third", budget)


def test_what_sampling_does_not_go_with_is_refused() -> None:
    fed = federation("sign")
    for q in (0.0, -1.0, np.nan, "half"):
        with pytest.raises(ValueError, match="sampling must be a number > 0"):
            PrivateSGD(sampling=q)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sampling must be > 0 and at most 1"):
        PrivateSGD(sampling=1.5)
    with pytest.raises(ValueError, match="must be 1 for laplace noise"):
        PrivateSGD(sampling=0.5, mechanism="laplace")
    with pytest.raises(ValueError, match=r"sampling = 0\.4 needs adjacency='add-remove'"):
        solve(
            problem_of("sign", replace(BUDGET, adjacency="replace")),
            fed,
            algorithm=PrivateSGD(sampling=Q),
        )
    with pytest.raises(ValueError, match=r"sampling = 0\.4 needs a budget"):
        solve(problem_of("sign", None), fed, algorithm=PrivateSGD(sampling=Q))
