"""One row moves what a client's answer is made of by no more than the declared sensitivity, and
moves nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from private_cases import BUDGET, LOSSES, ROWS, SIZES, case, planned
from problems import SOFTMAX

from bonafed import NoPrivacyWarning
from bonafed.algorithms.federated import private_admm as private_client
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.mechanism import MEAN_SIZE, Mechanism
from bonafed.algorithms.federated.private.noisy_gradient import Told
from bonafed.algorithms.federated.private_admm import Perturb, PrivateADMM
from bonafed.data.federation import Federation
from bonafed.engines.inprocess import InProcess
from bonafed.papers import dp_iadmm
from bonafed.papers.dp_iadmm.published import OutputPerturbedADMM
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.problem.losses import Multinomial
from bonafed.problem.problem import Problem
from bonafed.solution.solve import solve


def gradient(
    algorithm: Any, problem: Problem, fed: Federation, w: np.ndarray
) -> tuple[np.ndarray, Any]:
    """What every client adds noise to at the model w, as its answer shows it where there is none:
    (N, D); the plan.
    """
    run, data = planned(algorithm, problem, fed)
    silent = replace(run, plan=replace(run.plan, multiplier=0.0))
    found = []
    for i in range(data.n_clients):
        block = data.block(i)
        memory = silent.client_start(block)
        memory = replace(memory, z=w[None].astype(memory.z.dtype))
        curve = 1.0 + (1.0 if run.output else 0.0)
        ask = Perturb(np.zeros_like(w), 1, 1.0, 1.0, 1.0 if run.output else math.inf)
        after, _ = silent.perturb(memory, ask, block, lambda _: np.random.default_rng(0))
        found.append((w if run.output else 0.0) - curve * after.z[0])  # z' = (0 - g [+ w]) / curve
    return np.array(found), run.plan


def moved(one: np.ndarray, other: np.ndarray, mechanism: str) -> np.ndarray:
    """The distance by client, in the mechanism's norm."""
    gap = one - other
    return np.abs(gap).sum(1) if mechanism == "laplace" else np.sqrt((gap**2).sum(1))


OPTIONS = {"clip": {"clip": 0.7}, "bound": {"bound": 1.3}, "both": {"clip": 0.2, "bound": 0.6}}


@settings(max_examples=150, deadline=None)
@given(
    loss=st.sampled_from(sorted(LOSSES)),
    row=st.sampled_from(sorted(ROWS)),
    limit=st.sampled_from(sorted(OPTIONS)),
    mechanism=st.sampled_from(["gaussian", "laplace"]),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e200]),
    thin=st.booleans(),
    seed=st.integers(0, 10**6),
)
@example("exponential", "long", "clip", "gaussian", 1.0, False, 1)
@example("squared", "longer than doubles square", "clip", "laplace", 1e200, False, 2)
@example("multinomial", "longer than doubles square", "clip", "gaussian", 1e300, False, 3)
@example("multinomial", "longer than doubles square", "bound", "laplace", 1e300, True, 3)
def test_one_row_moves_the_sum_by_no_more_than_its_sensitivity(
    loss, row, limit, mechanism, size, thin, seed
):
    options = OPTIONS[limit]
    if limit == "bound" and math.isinf(LOSSES[loss][0].lipschitz):
        options = OPTIONS["both"]
    for adjacency in ("add-remove", "replace"):
        it = case(loss, row, seed, replace(BUDGET, adjacency=adjacency), thin)
        D = it.problem.at(it.fed)[0].predictor.dimension(3)
        w = np.random.default_rng(seed + 1).standard_normal(D) * size
        algorithm = PrivateADMM(max_rounds=3, mechanism=mechanism, **options)
        before, plan = gradient(algorithm, it.problem, it.more, w)
        after, again = gradient(
            algorithm, it.problem, it.fed if adjacency == "add-remove" else it.other, w
        )
        assert np.isfinite(before).all()
        assert np.isfinite(after).all()
        allowed = plan.sensitivity * (1 + 1e-9) + 1e-12 * np.abs(before).sum()
        assert (moved(before, after, mechanism) <= allowed).all()
        assert moved(before, after, mechanism)[1] == 0  # the other client's rows are the same
        np.testing.assert_array_equal(plan.sensitivity, again.sensitivity)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("limit", ["clip", "bound"])
@pytest.mark.parametrize("loss", ["logistic", "logistic, intercept", "multinomial"])
def test_the_sensitivity_is_attained(loss, limit, mechanism):
    """No looser than it says: a row with all its weight on one coefficient, badly classified, moves
    the sum so far.
    """
    it = case(loss, "zero", 5)
    run = PrivateADMM(max_rounds=3, mechanism=mechanism, **OPTIONS[limit])
    K = 3 if loss == "multinomial" else 1
    X = [np.vstack([x, [[1e6, 0, 0]]]) if i == 0 else x for i, x in enumerate(it.fed.X)]
    y = [np.append(t, 0) if i == 0 else t for i, t in enumerate(it.fed.y)]
    more = Federation(("a", "b"), tuple(X), tuple(y), classes=it.fed.classes)
    w = np.zeros(3 * K + (loss == "logistic, intercept"))
    w[K - 1] = 1e6  # the last class, or +1, is certain of it
    before, plan = gradient(run, it.problem, it.fed, w)
    after, _ = gradient(run, it.problem, more, w)
    # a row that is no multiple of the grid falls short of it
    assert 0.996 < moved(before, after, mechanism)[0] / plan.sensitivity[0] <= 1 + 1e-12


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_output_perturbation_moves_by_its_sensitivity_over_the_curvature(mechanism):
    for seed in range(10):
        it = case("logistic, intercept", "long", seed)
        run = OutputPerturbedADMM(max_rounds=3, mechanism=mechanism, clip=0.5)
        w = np.random.default_rng(seed).standard_normal(4)
        before, plan = gradient(run, it.problem, it.more, w)
        after, _ = gradient(run, it.problem, it.fed, w)
        assert (moved(before, after, mechanism) <= plan.sensitivity * (1 + 1e-9)).all()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_single_precision_keeps_the_sensitivity(mechanism):
    """Rows that all point one way make the largest sums."""
    rng = np.random.default_rng(0)
    m, d = 4000, 20
    X = np.abs(rng.standard_normal((m + 1, d))) * 50
    y = np.zeros(m + 1, int)
    w = np.tile([-1.0, 0.5, 1.0], d)
    problem = Problem(Multinomial(), SOFTMAX, privacy=Budget(2.0, 1e-4, sizes=m))
    run = PrivateADMM(max_rounds=3, mechanism=mechanism, clip=1.0)
    worst = 0.0
    for gone in (0, 1500, m):
        keep = np.arange(m + 1) != gone
        feds = [
            Federation(("a",), (x,), (t,), classes=[0, 1, 2]).single()
            for x, t in ((X, y), (X[keep], y[keep]))
        ]
        (before, plan), (after, _) = (gradient(run, problem, fed, w) for fed in feds)
        worst = max(worst, float(moved(before, after, mechanism)[0] / plan.sensitivity[0]))
    # answers in single precision are read to the last bit of a sum of 4,000 rows
    assert 0.9 < worst <= 1 + 1e-5


# ---- nothing else moves


@pytest.mark.parametrize("loss", ["logistic", "multinomial", "squared"])
def test_one_row_moves_no_public_number(loss):
    it = case(loss, "long", 3)
    plans = []
    for fed in (it.fed, it.more, it.other):
        run, data = planned(PrivateADMM(max_rounds=5), it.problem, fed)
        plans.append(run.plan)
        assert run._rho(1) == planned(PrivateADMM(max_rounds=5), it.problem, it.fed)[0]._rho(1)
        assert data.clients == ("a", "b")
    for name in Mechanism.__dataclass_fields__:
        for plan in plans[1:]:
            np.testing.assert_array_equal(
                getattr(plan, name), getattr(plans[0], name), err_msg=name
            )


@pytest.mark.parametrize("mode", ["blocks", "bytes"])
def test_one_row_moves_neither_rounds_nor_bytes_nor_anybody_elses_noise(mode):
    it = case("multinomial", "long", 3)
    found = []
    for fed in (it.fed, it.more, it.other):
        run = PrivateADMM(max_rounds=5, noise="simulation")
        s = solve(it.problem, fed, algorithm=run, engine=InProcess(mode), seed=4)
        rows = [{k: v for k, v in row.items() if k not in ("seconds", "gap")} for row in s.history]
        table = [r for r in s.messages if r["message"] in ("Perturb", "Perturbed")]
        found.append((s.rounds, s.outcome.text, rows, table, s.ledger.table(), s.ledger.text))
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            assert mine == theirs


def test_the_ledger_says_what_is_public_when_sizes_are_not_declared():
    """With sizes=None the weights follow n_p: then the promise is about a row's content, not about
    its presence.
    """
    it = case("logistic", "ordinary", 3, Budget(2.0, 1e-4))
    for fed, sizes in ((it.fed, SIZES), (it.more, (8, 4))):
        run, _ = planned(PrivateADMM(max_rounds=5, clip=1.0), it.problem, fed)
        np.testing.assert_allclose(run.plan.sensitivity, 0.5 / np.array(sizes))
    text = solve(it.problem, it.fed, max_rounds=3).ledger.text
    assert "sizes (their true numbers of rows)" in text
    assert "counting for nothing" in text
    assert (
        "counting for nothing"
        not in solve(replace(it.problem, privacy=BUDGET), it.fed, max_rounds=3).ledger.text
    )


def test_classes_are_declared_or_the_ledger_says_that_they_are_public():
    """The only row of a class must not decide how long the model is."""
    X, y = np.random.default_rng(0).standard_normal((9, 2)), np.array([0, 1] * 4 + [2])
    problem = Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    declared = [Federation(("a",), (X[:k],), (y[:k],), classes=[0, 1, 2]) for k in (8, 9)]
    assert [len(solve(problem, fed, max_rounds=2).w) for fed in declared] == [6, 6]
    assert "classes" in solve(problem, declared[0], max_rounds=2).ledger.text


# ---- what leaves a client is a function of the noisy gradient


@pytest.mark.parametrize(
    "algorithm", [PrivateADMM(max_rounds=9), OutputPerturbedADMM(max_rounds=9)]
)
def test_the_size_of_the_noise_that_was_drawn_does_not_leave(algorithm):
    """Beside z_p the mean of |xi| would tell two data sets apart for certain; the public
    expectation is sent.
    """
    it = case("multinomial", "ordinary", 1)
    run, data = planned(algorithm, it.problem, it.fed)
    block = data.block(0)
    ask = Perturb(np.zeros(9), 1, 2.0, 2.0, 3.0)
    sent = {
        float(
            run.perturb(
                run.client_start(block), ask, block, lambda _, k=k: np.random.default_rng(k)
            )[1].noise[0]
        )
        for k in range(5)
    }
    public = (
        run.plan.multiplier
        * run.plan.sensitivity[0]
        * MEAN_SIZE["gaussian"]
        / (5.0 if run.output else 1.0)
    )
    assert len(sent) == 1
    assert sent.pop() == pytest.approx(public, rel=1e-12)


@pytest.mark.parametrize("loss", ["logistic, intercept", "multinomial"])
@pytest.mark.parametrize("thin", [False, True])
def test_the_answer_follows_from_the_noisy_gradient_alone(loss, thin):
    """Recomputed by somebody who has w, the past and the noisy gradient, but no rows."""
    it = case(loss, "long", 2, thin=thin)
    run, data = planned(PrivateADMM(max_rounds=9, clip=1.0, noise="simulation"), it.problem, it.fed)
    block, D = data.block(0), run._size
    rng = np.random.default_rng(0)
    z, dual, w = rng.standard_normal((3, D))
    memory = replace(run.client_start(block), z=z[None], dual=dual[None])
    after, up = run.perturb(
        memory, Perturb(w, 1, 2.0, 3.0, 0.4), block, lambda _: np.random.default_rng(7)
    )
    noisy = _noisy_gradient(run, block, z, 2.0, 0.4)
    new = np.clip((2.0 * w + dual - noisy) / 2.0, z - 0.4, z + 0.4)
    np.testing.assert_allclose(after.z[0], new, atol=1e-12)
    np.testing.assert_allclose(up.shifted[0], new - (dual + 2.0 * (w - new)) / 3.0, atol=1e-12)
    np.testing.assert_allclose(up.gap, np.abs(w - new).sum(), atol=1e-12)


def _noisy_gradient(run: Any, block: Any, z: np.ndarray, rho: float, reach: float) -> np.ndarray:
    """The same with the same key, read off an answer without a radius."""
    memory = replace(run.client_start(block), z=z[None])
    ask = Perturb(np.zeros(len(z)), 1, rho, rho, reach)
    wide = replace(run, region="linf")
    numbers = ask.round, ask.rho, ask.reach, 1.0
    about = noisy_gradient._about(run.plan, numbers)
    found = {}
    original = noisy_gradient._about
    noisy_gradient._about = lambda *_: about  # the radius is part of what the noise is for
    try:
        after, _ = wide.perturb(
            memory, replace(ask, reach=math.inf), block, lambda _: np.random.default_rng(7)
        )
        found["g"] = -rho * after.z[0]
    finally:
        noisy_gradient._about = original
    return found["g"]


def test_a_server_cannot_ask_with_odd_numbers_nor_for_more_answers():
    it = case("logistic", "ordinary", 1)
    run, data = planned(PrivateADMM(max_rounds=2), it.problem, it.fed)
    block = data.block(0)
    ask = Perturb(np.zeros(3), 1, 2.0, 2.0, math.inf)
    for odd in (
        {"w": np.array([0.0, math.nan, 1.0])},
        {"rho": 0.0},
        {"rho": math.inf},
        {"reach": math.nan},
    ):
        with pytest.raises(ValueError, match="the server's question is not of finite numbers > 0"):
            run.perturb(
                run.client_start(block),
                replace(ask, **odd),
                block,
                lambda _: np.random.default_rng(0),
            )
    memory = run.client_start(block)
    for _ in range(2):
        memory, _ = run.perturb(memory, ask, block, lambda _: np.random.default_rng(0))
    with pytest.raises(BudgetSpentError, match="pays for 2 answers"):
        run.perturb(memory, ask, block, lambda _: np.random.default_rng(0))


@pytest.mark.parametrize("noise", ["simulation", "secure"])
def test_runs_of_other_settings_do_not_share_noise(noise):
    """With the same seed, or the same secret, their difference would be free of noise."""
    it = case("logistic", "ordinary", 1)
    plain = {"max_rounds": 5, "clip": 1.0, "noise": noise}
    keys = []
    for options in ({}, {"rho": 3.0}, {"max_rounds": 6}, {"clip": 0.5}, {"bound": 2.0}):
        run, data = planned(PrivateADMM(**plain | options), it.problem, it.fed)
        memory, (_, first) = run.client_start(data.block(0)), run.server_start(2)
        secret = np.frombuffer(bytes(range(32)), np.uint8)[None, : memory.secret.shape[1]]
        memory, ask = replace(memory, secret=secret), first.message
        keys.append(key(run, memory, ask))
        assert key(run, memory, ask) == keys[-1]
        if noise == "secure":
            asked = replace(ask, w=ask.w + 1e-9)
            keys.append(key(run, memory, asked))
            later = run.perturb(memory, asked, data.block(0), _stream)[0]
            keys.append(key(run, later, ask))  # the same question after another one
            keys.append(key(run, replace(memory, secret=secret[:, ::-1]), ask))
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}


def key(run: Any, memory: Any, ask: Perturb) -> bytes:
    """The key of the noise with which a client answers."""
    question = private_client.question(run.plan, memory, ask, Told.of(ask.w, memory.z.dtype))
    return noisy_gradient._key(memory, question, _stream, 0)


def _stream(_: int) -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("kind", ["simulation", "secure"])
def test_noise_of_clients_and_rounds_is_independent_and_of_the_declared_scale(kind):
    """16 rounds of 2 clients with 600 coefficients: deviations, correlations and tails as of the
    declared Gaussian.
    """
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 200)), np.tile([0, 1, 2], 4)
    fed = Federation(("a", "b"), (X[:6], X[6:]), (y[:6], y[6:]), classes=[0, 1, 2])
    problem = Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    run, data = planned(PrivateADMM(max_rounds=16, noise=kind, rho=1.0), problem, fed)
    drawn = []
    for i in range(2):
        block = data.block(i)
        fresh = run.client_start(block)
        for t in range(16):
            ask = Perturb(np.zeros(600), t + 1, 1.0, 1.0, math.inf)
            seeds = lambda _, t=t, i=i: np.random.default_rng([t, i])  # noqa: E731
            noisy = -run.perturb(fresh, ask, block, seeds)[0].z[0]
            silent = (
                replace(run, plan=replace(run.plan, multiplier=0.0))
                .perturb(fresh, ask, block, seeds)[0]
                .z[0]
            )
            drawn.append((noisy + silent) / (run.plan.multiplier * run.plan.sensitivity[i]))
    drawn = np.array(drawn)
    n = drawn.size
    assert abs(drawn.mean()) < 5 / math.sqrt(n)
    assert abs(drawn.std() - 1) < 5 / math.sqrt(2 * n)
    correlation = np.corrcoef(drawn) - np.eye(32)
    assert np.abs(correlation).max() < 5.5 / math.sqrt(600)
    assert abs((np.abs(drawn) > 1.96).mean() - 0.05) < 5 * math.sqrt(0.05 * 0.95 / n)


def _scale_of_noise(algorithm: Any, problem: Problem, fed: Federation) -> float:
    """The standard deviation in what client a releases in a first round, over 60 seeds."""
    run, data = planned(algorithm, problem, fed)
    block, (_, first) = data.block(0), run.server_start(2)
    ask = replace(first.message, rho=1.0, next_rho=1.0)
    answers = [
        run.perturb(run.client_start(block), ask, block, lambda _, k=k: np.random.default_rng(k))[
            0
        ].z[0]
        for k in range(60)
    ]
    return float(np.std(answers, 0).mean())


def test_the_scale_of_the_noise_does_not_follow_a_row():
    it = case("multinomial", "long", 1)
    for fed in (it.more, it.other):
        run = PrivateADMM(max_rounds=3, noise="simulation")
        scales = [_scale_of_noise(run, it.problem, each) for each in (it.fed, fed)]
        assert scales[1] == pytest.approx(scales[0], rel=1e-9)  # of the same 60 keys


def test_as_published_it_does_and_that_is_said_loudly():
    it = case("multinomial", "long", 1, None)
    unsafe = dp_iadmm.obj_t(1.0, 3, radius=None)
    with pytest.warns(NoPrivacyWarning, match="NO privacy: the noise depends on the data at hand"):
        scales = [_scale_of_noise(unsafe, it.problem, each) for each in (it.fed, it.more)]
    assert scales[1] > 1e6 * scales[0]
    with pytest.warns(NoPrivacyWarning) as caught:
        s = solve(it.problem, it.fed, algorithm=unsafe)
    assert caught[0].filename == __file__
    assert s.ledger is None
    with pytest.warns(NoPrivacyWarning, match="NO privacy"):
        published = solve(it.problem, it.fed, algorithm=dp_iadmm.out_p(1.0, 3, 5, 2))
    assert published.ledger is None
    with pytest.raises(ValueError, match="keeps no budget"):
        solve(case("multinomial", "long", 1).problem, it.fed, algorithm=unsafe)


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
@pytest.mark.parametrize("algorithm", [PrivateADMM, OutputPerturbedADMM])
def test_an_answer_is_a_function_of_an_integer(loss, algorithm):
    """Whatever the rows and the model are, and in single precision: nothing below the grid tells
    which gradient it was.
    """
    for row in ROWS:
        it = case(loss, row, 4)
        for fed in (it.fed, it.fed.single()):
            run, data = planned(algorithm(max_rounds=3, rho=1.0), it.problem, fed)
            block, rng = data.block(0), np.random.default_rng(1)
            fresh = run.client_start(block)
            z = (rng.standard_normal(run._size) * 3).astype(fresh.z.dtype)[None]
            ask = Perturb(np.zeros(run._size), 1, 1.0, 1.0, 1e-300)
            if not run.output:
                ask = replace(ask, reach=math.inf)
            sent = -run.perturb(replace(fresh, z=z), ask, block, _stream)[0].z[0].astype(float)
            grid = sent / run.plan.unit[0]
            close = 1e-6 if fresh.z.dtype == np.float32 else 1e-14
            assert np.abs(grid - np.rint(grid)).max() <= close * np.abs(grid).max()
            again = np.rint(grid) * run.plan.unit[0]
            assert (again.astype(fresh.z.dtype) == sent.astype(fresh.z.dtype)).all()


def test_noise_that_drowns_everything_is_refused():
    it = case("logistic", "ordinary", 4)
    run, _ = planned(PrivateADMM(max_rounds=3), it.problem, it.fed)
    steps = [replace(run.plan, multiplier=m).steps for m in (1.0, 2.0**10, 2.0**11, 2.0**28)]
    assert steps == [2**28, 2**28, 2**27, 2**10]
    with pytest.raises(ValueError, match="state a larger epsilon, or fewer rounds"):
        _ = replace(run.plan, multiplier=2.0**28 * 1.01).steps
