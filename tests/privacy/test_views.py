"""The two views of a guarantee: of whoever sees every answer, and of whoever sees the clients' sums
alone, whichever clients collude with it or drop out.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from private_cases import LOSSES, ROWS, case, planned
from private_rounds import federation
from problems import PLAIN

import bonafed as bf
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private.integer_gradient import IntegerRows
from bonafed.algorithms.federated.private.mechanism import LEAST, SMOOTHING, Mechanism
from bonafed.algorithms.federated.private.noisy_gradient import Question, Told
from bonafed.algorithms.federated.private_sgd import Blur, Blurred, PrivateSGD
from bonafed.data.federation import Federation
from bonafed.engines.inprocess import InProcess
from bonafed.engines.network import Network
from bonafed.privacy.accounting import Release, total_epsilon
from bonafed.privacy.budget import Budget
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.privacy.ledger import Ledger
from bonafed.problem.losses import Logistic
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.solution import plan as plans
from bonafed.solution.plan import configure, needs_secure_sum
from bonafed.solution.solution import packed, unpacked

SUMS = Budget(1.0, 1e-6, view="sum")


def clients(n: int, rows: int = 12) -> Federation:
    """Clients of ``rows``, 2 ``rows``, ... rows each."""
    rng = np.random.default_rng(n)
    X = [rng.standard_normal((rows * (k + 1), 3)) for k in range(n)]
    names = [f"client {k}" for k in range(n)]
    return Federation(names, X, [np.sign(x[:, 0] + 0.1) for x in X])


def plan_of(n: int, budget: Budget, prior: Any = "size", rounds: int = 5) -> Mechanism:
    problem = Problem(Logistic(), PLAIN, over_clients=Mean(prior), privacy=budget)
    return planned(PrivateSGD(max_rounds=rounds), problem, clients(n))[0].plan


# ---- what the budget may be


@pytest.mark.parametrize("bad", ["", "sums", None, 1, ["sum"]])
def test_an_unknown_view_is_refused(bad):
    with pytest.raises(ValueError, match="view must be 'answers' or 'sum'"):
        Budget(1.0, 1e-6, view=bad)


@pytest.mark.parametrize("bad", [-1, 0.5, math.nan, math.inf, True, "1", None])
def test_missing_clients_are_counted(bad):
    with pytest.raises(ValueError, match="missing must be a whole number >= 0"):
        Budget(1.0, 1e-6, view="sum", missing=bad)


def test_some_noise_is_left_in_every_sum():
    assert [replace(SUMS, missing=k).noised(3) for k in (0, np.int64(1), 2.0)] == [3, 2, 1]
    assert replace(SUMS, view="answers", missing=5).noised(3) == 1
    problem = Problem(Logistic(), PLAIN, privacy=replace(SUMS, missing=3))
    with pytest.raises(ValueError, match="missing=3 leaves no noise in a sum over 3 client"):
        bf.solve(problem, clients(3))
    with pytest.raises(ValueError, match="missing=1 leaves no noise in a sum over 1 client"):
        bf.solve(replace(problem, privacy=SUMS), clients(1))


@pytest.mark.parametrize("method", [bf.PrivateADMM, bf.OutputPerturbedADMM])
def test_methods_whose_models_do_not_follow_from_sums_are_refused(method):
    problem = Problem(Logistic(), PLAIN, privacy=SUMS)
    with pytest.raises(ValueError, match=r'no budget of the view "sum": .*copy.* PrivateSGD\(\)'):
        bf.solve(problem, clients(3), algorithm=method())


def test_laplace_noise_has_no_sum():
    problem = Problem(Logistic(), PLAIN, privacy=SUMS)
    laplace = PrivateSGD(mechanism="laplace", bound=1.0)
    with pytest.raises(ValueError, match='mechanism="laplace" has no view "sum"'):
        bf.solve(problem, clients(3), algorithm=laplace)
    answers = replace(problem, privacy=replace(SUMS, view="answers"))
    ledger = bf.solve(answers, clients(3), algorithm=replace(laplace, max_rounds=2)).ledger
    assert ledger.epsilon_of("sum") is None
    assert ledger.epsilon_of("answers") == ledger.epsilon
    assert "sums" not in ledger.text


def test_the_default_method_is_one_whose_models_follow_from_sums():
    problem = Problem(Logistic(), PLAIN, privacy=SUMS)
    assert type(plans.plan(problem, clients(2)).method) is PrivateSGD


def test_a_server_that_sees_answers_is_refused():
    problem = Problem(Logistic(), PLAIN, privacy=SUMS)
    concrete, data = problem.at(clients(2))
    network = object.__new__(Network)
    object.__setattr__(network, "wait", None)
    assert needs_secure_sum(problem)
    assert not needs_secure_sum(replace(problem, privacy=None))
    for none in (None, False):
        object.__setattr__(network, "secure_sum", none)
        with pytest.raises(ValueError, match="the server of Network sees each"):
            configure(PrivateSGD(), concrete, data, engine=network)
    object.__setattr__(network, "secure_sum", True)
    configure(PrivateSGD(), concrete, data, engine=network)


# ---- the noise of a sum


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 12),
    missing=st.integers(0, 11),
    epsilon=st.sampled_from([0.01, 1.0, 3e3]),
    delta=st.sampled_from([1e-3, 1e-8]),
    adjacency=st.sampled_from(["add-remove", "replace"]),
    rounds=st.sampled_from([1, 1000]),
    prior=st.sampled_from(["size", "uniform"]),
    gone=st.integers(0, 2**12 - 1),
)
def test_whoever_colludes_or_drops_out_the_noise_that_is_left_keeps_the_budget(
    n, missing, epsilon, delta, adjacency, rounds, prior, gone
):
    missing = min(missing, n - 1)
    budget = Budget(epsilon, delta, adjacency, view="sum", missing=missing)
    plan = plan_of(n, budget, prior, rounds)
    assert plan.noise >= LEAST
    left = [k for k in range(n) if not gone >> k & 1]
    left = left if len(left) >= n - missing else list(range(missing, n))
    variance = len(left) * plan.noise
    for client in left:  # a record of a client that answers, and tells nobody its noise
        move = budget.spread * plan.grid(client).steps
        assert move * plan.unit[client] <= plan.sensitivity[client] * (1 + 1e-12)
        truth = Release("gaussian", math.sqrt(variance - SMOOTHING) / move, rounds)
        stated = plan.release("sum", client, rounds)
        assert stated.noise <= truth.noise * (1 + 1e-12)
        assert stated.noise >= plan.multiplier
    # and not much more than it needs: of whoever counts most
    least = min(plan.release("sum", k, rounds).noise for k in range(n))
    assert least == plan.multiplier
    assert total_epsilon([Release("gaussian", least, rounds)], delta) <= epsilon
    most = budget.spread * max(plan.grid(k).steps for k in range(n))
    needed = (least * most) ** 2 * (1 + 1e-12) + 5
    assert (n - missing) * (plan.noise - 1) < needed or plan.noise == LEAST


def test_all_clients_answer_in_one_public_step_that_is_a_power_of_two():
    for prior in ("size", "uniform"):
        plan = plan_of(5, SUMS, prior)
        (step,) = {*plan.unit.tolist()}
        assert math.frexp(step)[0] == 0.5
        steps = [plan.grid(k).steps for k in range(5)]
        exact = plan.weight * plan.clip / step
        np.testing.assert_array_equal(steps, np.floor(exact))
        assert plan.steps / 2 < max(steps) <= plan.steps
        assert plan.common == step
    answers = plan_of(5, replace(SUMS, view="answers"))
    assert answers.common is None
    run = replace(PrivateSGD(), plan=plan)
    assert run.grid(Blurred) == {"gradient": step}
    assert run.grid(Blur) == replace(run, plan=answers).grid(Blurred) == {}
    assert bf.Bundle().grid(Blurred) == {}


@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from(sorted(LOSSES)),
    row=st.sampled_from(sorted(ROWS)),
    size=st.sampled_from([0.0, 1.0, 1e3, 1e200]),
    prior=st.sampled_from(["size", "uniform", (0.999, 0.001), (0.0, 1.0)]),
    thin=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_one_row_moves_the_sum_by_no_more_than_its_clients_steps(
    loss, row, size, prior, thin, seed
):
    for adjacency in ("add-remove", "replace"):
        budget = Budget(2.0, 1e-4, adjacency, sizes={"a": 6, "b": 900}, view="sum")
        it = case(loss, row, seed, budget, thin)
        found = []
        for fed in (it.more, it.fed if adjacency == "add-remove" else it.other):
            problem = replace(it.problem, over_clients=Mean(prior))
            run, data = planned(PrivateSGD(max_rounds=3, clip=0.7), problem, fed)
            v = np.random.default_rng(seed + 1).standard_normal(run._size) * size
            rows = IntegerRows.of(problem, run.plan, data.block(0), 0)
            found.append(rows.gradient(run.problem, run.plan, v))
        moved = [int(a) - int(b) for a, b in zip(*found, strict=True)]
        allowed = int(budget.spread) * run.plan.grid(0).steps
        assert sum(entry * entry for entry in moved) <= allowed**2


def test_sums_of_answers_are_exact_and_have_all_clients_noise():
    """In any order, and in any split into groups, the sum is the step times one whole number."""
    fed = federation("class", sizes=(40, 7, 90, 21))
    problem = Problem(bf.Multinomial(), bf.Softmax(), over_clients=Mean("uniform"), privacy=SUMS)
    run, data = planned(PrivateSGD(max_rounds=2, noise="simulation"), problem, fed)
    plan, w = run.plan, np.linspace(-1, 1, run._size)
    answers, whole, noise = [], np.zeros(run._size, np.int64), np.zeros(run._size, np.int64)
    for i in range(data.n_clients):
        block, stream = data.block(i), lambda _, i=i: np.random.default_rng(i)
        memory = run.client_start(block)
        answers.append(run.blur(memory, Blur(w, 1, 1.0), block, stream)[1].gradient[0])
        question = Question.of(plan, memory, w[None], Told.of(w, w.dtype), (1,))
        key = noisy_gradient._key(memory, question, stream, 0)
        drawn = discrete_noise("gaussian", plan.noise, key, run._size)
        whole += IntegerRows.of(problem, plan, block, 0).gradient(run.problem, plan, w) + drawn
        noise += drawn
    for order in itertools.permutations(range(4)):
        total = np.zeros(run._size)
        for i in order:
            total += answers[i]
        np.testing.assert_array_equal(total, whole * plan.common)
    (block,) = data.blocks()
    streams = [np.random.default_rng(i) for i in block.index]
    _, up = run.blur(run.client_start(block), Blur(w, 1, 1.0), block, lambda i: streams[i])
    np.testing.assert_array_equal(up.gradient[0], whole * plan.common)
    sd = noise.std() / math.sqrt(4 * plan.noise)
    assert abs(sd - 1) < 4 / math.sqrt(2 * run._size)
    assert plan.deviation == pytest.approx(plan.common * math.sqrt(4 * plan.noise))
    np.testing.assert_allclose(plan.scale, plan.common * math.sqrt(plan.noise))


def test_no_bit_of_a_model_tells_how_answers_were_grouped():
    fed = federation("class", sizes=(40, 7, 90, 21))
    problem = Problem(bf.Multinomial(), bf.Softmax(), over_clients=Mean("uniform"), privacy=SUMS)
    method = PrivateSGD(max_rounds=3, noise="simulation")
    models = [
        bf.solve(problem, fed, algorithm=method, engine=InProcess(block_size=size)).w
        for size in (1, 2, 64)
    ]
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


def test_sums_of_huge_clients_are_held_to_what_doubles_add_exactly():
    plan = plan_of(3, SUMS)
    plan = replace(plan, weight=np.array([1.0, 1.0, 1.0]))
    grid = plan.grid(0)
    assert 3 * grid.most <= 2**51
    one = IntegerRows(np.ones((16, 1)), np.ones(16), np.ones(16), np.ones(16, int), grid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IntegerRows, "_summed", lambda *_: (np.array([2**60, -(2**60), 5]), 0))
        problem = Problem(Logistic(), PLAIN)
        np.testing.assert_array_equal(
            one.gradient(problem, plan, np.zeros(1)), [grid.most, -grid.most, 5]
        )


# ---- the ledger


def test_the_ledger_states_what_either_view_shows():
    n, fed = 10, clients(10)
    sizes = dict.fromkeys(fed.names, 20)  # so that all count alike
    found = {}
    for view, missing in itertools.product(("answers", "sum"), (0, 1, 4)):
        budget = Budget(1.0, 1e-6, sizes=sizes, view=view, missing=missing)
        problem = Problem(Logistic(), PLAIN, privacy=budget)
        ledger = bf.solve(problem, fed, algorithm=PrivateSGD(max_rounds=3)).ledger
        m = ledger.releases["client 0"][0].noise
        factor = math.sqrt(n - missing) if view == "answers" else 1 / math.sqrt(n - missing)
        expected = total_epsilon([Release("gaussian", factor * m, 3)], 1e-6)
        other = ledger.epsilon_of(budget.other_view)
        found[view, missing] = other
        assert other == pytest.approx(expected, rel=1e-6)
        assert ledger.epsilon == ledger.epsilon_of(view) <= 1
        assert f"{other:.4g}" in ledger.text
        row = ledger.table()[0]
        assert row["epsilon"] == ledger.epsilon
        assert row[f"epsilon_{budget.other_view}"] == other
    assert found["answers", 0] == pytest.approx(0.2912, abs=1e-3)  # .29, as the plan says
    assert found["sum", 0] > found["sum", 4] > 1 > found["answers", 4] > found["answers", 0]


def test_clients_that_count_for_less_spend_less():
    sizes = {name: 50 * (k + 1) for k, name in enumerate(clients(4).names)}
    budget = Budget(1.0, 1e-6, sizes=sizes, view="sum")
    problem = Problem(Logistic(), PLAIN, over_clients=Mean("uniform"), privacy=budget)
    ledger = bf.solve(problem, clients(4), algorithm=PrivateSGD(max_rounds=3)).ledger
    spent = [ledger.spent(f"client {k}") for k in range(4)]
    assert spent == sorted(spent, reverse=True)
    noise = [ledger.releases[f"client {k}"][0].noise for k in range(4)]
    np.testing.assert_allclose(noise, noise[0] * np.arange(1, 5), rtol=1e-6)


def test_what_is_not_known_of_the_other_view_is_not_stated():
    own, before = {"a": (Release("gaussian", 9.0, 2),)}, {"a": (Release("gaussian", 9.0, 1),)}
    seen = {"a": (Release("gaussian", 3.0, 2),)}
    facts: Any = (own, before, {"a": 5}, "noise")
    ledger = Ledger(Budget(1, 1e-6, view="sum"), *facts, other=seen)
    assert ledger.epsilon_of("answers") is None  # of sums before, whose answers nobody knows
    turned = Ledger(Budget(1, 1e-6), *facts, other={"a": (Release("gaussian", 27.0, 1),)})
    both = (*before["a"], Release("gaussian", 27.0, 2))  # as many as it gave in all
    assert turned.epsilon_of("sum") == total_epsilon(both, 1e-6)
    assert replace(turned, other={}).epsilon_of("sum") is None
    with pytest.raises(ValueError, match="view must be one of answers, sum, got 'all'"):
        ledger.epsilon_of("all")
    called = replace(turned, other={"1": seen["a"]}, releases={"1": own["a"]}).named([1])
    assert [*called.other] == [1]


def test_a_ledger_is_stored_with_both_views(tmp_path):
    problem = Problem(Logistic(), PLAIN, privacy=SUMS)
    solution = bf.solve(problem, clients(3), algorithm=PrivateSGD(max_rounds=2))
    solution.save(tmp_path / "it.bf")
    again = bf.load(tmp_path / "it.bf").ledger
    assert again.table() == solution.ledger.table()
    assert again.text == solution.ledger.text
    _, place, kept = packed(again)
    del kept["budget"][2]["view"]
    with pytest.raises(ValueError, match="Budget has the fields"):
        unpacked(("object", place, kept))


# ---- clients that drop out of sums


@pytest.mark.parametrize("method", [PrivateSGD, bf.PrivateNewton])
def test_a_run_goes_on_without_as_many_clients_as_may_drop_out(method):
    """One of six is lost where two may be missing: one drops out, and one knows its own noise."""
    fed, T = clients(6), 8
    budget = replace(SUMS, missing=2)
    problem = Problem(Logistic(), PLAIN, over_clients=Mean("size"), privacy=budget)
    run = method(max_rounds=T, bound=1.0, noise="simulation")
    clock = bf.VirtualClock(crashes={"client 1": 9.0}, wait=bf.First(5), secure_sum=True)
    solution = bf.solve(problem, fed, algorithm=run, engine=clock)
    assert solution.rounds == T
    released = {c: sum(r.count for r in of) for c, of in solution.ledger.releases.items()}
    lost = released.pop("client 1")
    assert 0 < lost < T
    assert lost < min(released.values()) <= max(released.values()) == T  # or late once
    assert solution.ledger.epsilon <= budget.epsilon
    step, _ = planned(method(max_rounds=T, bound=1.0), problem, fed)
    assert (step.quorum(6), step.quorum(3)) == (5, 2)


def test_a_run_ends_where_more_clients_drop_out_than_the_budget_allows():
    problem = Problem(Logistic(), PLAIN, privacy=SUMS)  # one may be missing: each viewer itself
    clock = bf.VirtualClock(crashes={"client 1": 9.0}, wait=bf.First(5), secure_sum=True)
    run = PrivateSGD(max_rounds=8, noise="simulation")
    solution = bf.solve(problem, clients(6), algorithm=run, engine=clock)
    assert solution.outcome.stop is bf.Stop.STALLED
    assert "client 1" in solution.outcome.text
    assert 0 < solution.rounds < 8
