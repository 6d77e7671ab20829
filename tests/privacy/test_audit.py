"""The audit leaves true promises standing and refutes false ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from problems import PLAIN, SOFTMAX
from scipy import sparse
from scipy.special import ndtr
from scipy.stats import binom

import bonafed as bf
from bonafed import auditing
from bonafed.papers import dp_iadmm
from bonafed.privacy.budget import Budget

RUNS = 400


def problem_and_data(
    budget: Budget | None, several: bool = False, seed: int = 0
) -> tuple[bf.Problem, bf.Federation]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 6))
    y = (X[:, 0] > 0).astype(int)
    fed = bf.Federation(("a", "b"), (X[:20], X[20:]), (y[:20], y[20:]), classes=[0, 1])
    loss, predictor = (bf.Multinomial(), SOFTMAX) if several else (bf.Logistic(), PLAIN)
    return bf.Problem(loss, predictor, privacy=budget), fed


BUDGET = Budget(1.0, 1e-3, sizes=20)
MECHANISMS = {
    "gaussian": (bf.PrivateADMM(max_rounds=2), BUDGET),
    "one round": (bf.PrivateADMM(max_rounds=1), BUDGET),
    "laplace": (bf.PrivateADMM(max_rounds=2, mechanism="laplace", clip=1.0), BUDGET),
    "prox, within bounds": (bf.PrivateADMM(max_rounds=2, update="prox", bound=1.0), BUDGET),
    "replace": (bf.PrivateADMM(max_rounds=2), replace(BUDGET, adjacency="replace")),
    "sizes not declared": (bf.PrivateADMM(max_rounds=2), Budget(1.0, 1e-3)),
    "output": (bf.OutputPerturbedADMM(max_rounds=2), BUDGET),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_calibrated_mechanism_stands_and_one_with_too_little_noise_falls(name):
    algorithm, budget = MECHANISMS[name]
    problem, fed = problem_and_data(budget)
    fair = bf.audit(problem, fed, algorithm=algorithm, runs=RUNS, seed=1)
    assert fair.claimed == 1.0
    assert fair.epsilon <= 1.0
    assert not fair.broken
    assert "not refuted" in fair.text
    weak = bf.audit(problem, fed, algorithm=algorithm, runs=RUNS, weaken=8.0, seed=1)
    assert weak.epsilon > 1.0
    assert weak.broken
    assert "REFUTED" in weak.text
    assert (weak.gaussian is None) == (name == "laplace")


def test_the_bound_nears_the_truth_where_the_attack_is_the_best_one():
    """One Gaussian answer whose every step is known: at epsilon = 2 the bounds are within reach of
    it, and below.
    """
    problem, fed = problem_and_data(Budget(2.0, 0.05, sizes=20))
    found = bf.audit(problem, fed, algorithm=bf.PrivateADMM(max_rounds=1), runs=4000)
    assert 1.0 < found.epsilon <= 2.0
    assert 1.2 < found.gaussian <= 2.0
    assert found.attack == "projection"


@pytest.mark.parametrize("several", [False, True])
def test_noise_that_follows_the_data_is_refuted(several):
    problem, fed = problem_and_data(None, several)
    unsafe = dp_iadmm.obj_t(0.5, 2, radius=None)
    with pytest.warns(bf.NoPrivacyWarning):
        found = bf.audit(problem, fed, algorithm=unsafe, runs=200, claimed=2 * 0.5)
    assert (found.claimed, found.delta) == (1.0, 0.0)
    assert found.broken
    assert found.epsilon > 2.5


def wide(
    budget: Budget | None,
    d: int,
    clients: int,
    parts: tuple[Any, Any] = (bf.Logistic(), PLAIN),
    adjacency: str = "add-remove",
) -> tuple[bf.Problem, bf.Federation]:
    """Clients of 20 rows with many features."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((clients, 20, d)) / math.sqrt(d)
    y = rng.integers(0, 2, (clients, 20))
    fed = bf.Federation(tuple(map(str, range(clients))), tuple(X), tuple(y), classes=[0, 1])
    budget = budget and replace(budget, adjacency=adjacency)
    return bf.Problem(*parts, privacy=budget), fed


STRICT = Budget(1.0, 1e-6, sizes=20)


def test_one_run_measures_the_noise_of_a_calibrated_gaussian():
    problem, fed = wide(STRICT, 1000, 5)
    algorithm = bf.PrivateADMM(max_rounds=1)
    options = {"algorithm": algorithm, "canaries": 5000}
    fair = [bf.audit(problem, fed, **options, seed=seed) for seed in range(20)]
    assert all((each.runs, each.canaries, each.claimed) == (1, 5000, 1.0) for each in fair)
    assert not any(each.broken for each in fair)
    assert np.median([each.epsilon for each in fair]) > 0.25
    assert 0.5 <= np.median([each.gaussian for each in fair]) <= 1.0
    # in truth a guess is right with probability Phi(mu / 2); one in twenty bounds may be too large
    plan = algorithm.planned(*problem.at(fed)).plan
    assert plan is not None
    right = np.mean([(each.hits + 1 - each.alarms) / 2 for each in fair])
    deviation = 0.5 / math.sqrt(20 * 5000)
    assert abs(right - ndtr(0.5 / plan.multiplier)) < 4 * deviation
    assert binom.sf(sum(each.gaussian > 1 for each in fair) - 1, 20, 0.05) > 1e-3
    halved = [bf.audit(problem, fed, **options, weaken=2.0, seed=seed) for seed in range(10)]
    assert sum(each.suspect for each in halved) >= 9
    text = next(each for each in halved if each.suspect and not each.broken).text
    assert "5000 canaries in 1 run" in text
    assert "not refuted as it stands, but REFUTED if its noise is Gaussian" in text


@pytest.mark.parametrize(
    ("algorithm", "budget"),
    [
        (bf.PrivateADMM(max_rounds=1), STRICT),
        (bf.PrivateADMM(max_rounds=4), replace(STRICT, delta=1e-3)),
        (bf.OutputPerturbedADMM(max_rounds=2), replace(STRICT, adjacency="replace")),
    ],
)
def test_a_calibrated_mechanism_is_refuted_as_rarely_as_promised(algorithm, budget):
    """A refutation in at most one run of twenty, by the exact test of a binomial number; and the
    attack is strong enough that it could be more."""
    runs = 150
    problem, fed = wide(budget, 60, 2)
    found = [
        bf.audit(problem, fed, algorithm=algorithm, canaries=120, seed=seed) for seed in range(runs)
    ]
    for wrong in (sum(a.broken for a in found), sum(a.suspect for a in found)):
        assert binom.sf(wrong - 1, runs, 0.05) > 1e-3
    weak = [
        bf.audit(problem, fed, algorithm=algorithm, canaries=120, weaken=4.0, seed=seed)
        for seed in range(20)
    ]
    assert sum(a.suspect for a in weak) >= 15


@pytest.mark.parametrize("name", MECHANISMS)
def test_many_canaries_in_every_mechanism(name):
    algorithm, budget = MECHANISMS[name]
    problem, fed = wide(budget, 200, 2, adjacency=budget.adjacency)
    fair = bf.audit(problem, fed, algorithm=algorithm, canaries=2000, seed=1)
    assert fair.runs == 5
    assert not fair.broken
    assert "not refuted" in fair.text
    assert (fair.gaussian is None) == (name == "laplace")
    weak = bf.audit(problem, fed, algorithm=algorithm, canaries=2000, weaken=8.0, seed=1)
    assert weak.broken
    assert "REFUTED" in weak.text


@pytest.mark.parametrize(
    "parts",
    [(bf.Squared(), PLAIN), (bf.Multinomial(), SOFTMAX), (bf.Logistic(), bf.Linear())],
    ids=["squared", "multinomial", "intercept"],
)
def test_many_canaries_with_other_losses_and_an_intercept(parts):
    problem, fed = wide(STRICT, 300, 2, parts)
    algorithm = bf.PrivateADMM(max_rounds=3)
    fair = bf.audit(problem, fed, algorithm=algorithm, canaries=3000, seed=1)
    weak = bf.audit(problem, fed, algorithm=algorithm, canaries=3000, weaken=2.0, seed=1)
    assert not fair.suspect
    assert weak.suspect


def test_canaries_of_one_client_or_of_all_whatever_holds_the_rows():
    problem, fed = problem_and_data(replace(STRICT, adjacency="replace"))
    thin = bf.Federation(fed.clients, tuple(map(sparse.csr_array, fed.X)), fed.y, classes=[0, 1])
    options = {"algorithm": bf.PrivateADMM(max_rounds=2, clip=1.0), "canaries": 61}
    one, other = (bf.audit(problem, each, **options) for each in (fed, thin))
    assert one == other
    assert (one.runs, one.canaries) == (6, 61)  # of two clients with six features
    alone = bf.audit(problem, fed, **options, client="b")
    assert alone.runs == 11
    assert bf.audit(problem, fed, **options, seed=1) != one
    secure = replace(options["algorithm"], noise="secure")
    assert bf.audit(problem, fed, algorithm=secure, canaries=61).canaries == 61


def test_what_follows_the_data_is_for_one_canary_in_many_runs():
    """Canaries of one length hide each other from an attack on noise that follows the longest row,
    as ``audit`` says; one alone is found (above).
    """
    problem, fed = wide(None, 200, 2)
    unsafe = dp_iadmm.obj_t(0.5, 2, radius=None)
    with pytest.warns(bf.NoPrivacyWarning):
        found = bf.audit(problem, fed, algorithm=unsafe, canaries=2000, claimed=1.0)
    assert not found.broken
    with pytest.warns(bf.NoPrivacyWarning):
        assert bf.audit(problem, fed, algorithm=unsafe, runs=200, claimed=1.0).broken


@dataclass(frozen=True)
class TellsNoise(bf.PrivateADMM):
    """Sends the mean size of the noise that was drawn, as this library did for a day."""

    def perturb(self, memory: Any, ask: Any, data: Any, rng: Any) -> tuple[Any, Any]:
        after, up = super().perturb(memory, ask, data, rng)
        silent = replace(self, plan=replace(self.noise_plan, multiplier=0.0))
        without = (
            super(TellsNoise, silent).perturb(memory, ask, data, rng)[0].z
            if self.noise_plan.multiplier
            else after.z
        )
        return after, replace(up, noise=np.abs((after.z - without) * ask.rho).mean(1))


def test_the_size_of_the_drawn_noise_gives_the_canary_away():
    problem, fed = problem_and_data(BUDGET)
    found = bf.audit(problem, fed, algorithm=TellsNoise(max_rounds=1), runs=200)
    assert found.attack == "reported size"
    assert found.broken


def test_any_client_any_canary_any_rows():
    problem, fed = problem_and_data(Budget(1.0, 1e-3, adjacency="replace"))
    thin = bf.Federation(fed.clients, tuple(map(sparse.csr_array, fed.X)), fed.y, classes=[0, 1])
    row, label = np.array([0.0, 9, 0, 0, 0, 0]), 1
    options = {"client": "b", "canary": (row, label), "instead": (row, 0), "runs": 60}
    algorithm = bf.PrivateADMM(max_rounds=2, clip=1.0)
    one, other = (bf.audit(problem, each, algorithm=algorithm, **options) for each in (fed, thin))
    assert (one.hits, one.alarms) == (other.hits, other.alarms)
    again = bf.audit(problem, fed, algorithm=algorithm, **options)
    assert again == one
    assert bf.audit(problem, fed, algorithm=algorithm, **options, seed=1) != one
    real = bf.Problem(bf.Squared(), PLAIN, privacy=BUDGET)
    numbers = bf.Federation(fed.clients, fed.X, tuple(x[:, 0] for x in fed.X))
    assert bf.audit(real, numbers, algorithm=algorithm, runs=60).epsilon <= 1.0
    secret = bf.PrivateADMM(max_rounds=2, noise="secure")
    assert (
        bf.audit(replace(real, privacy=BUDGET), numbers, algorithm=secret, runs=60).epsilon <= 1.0
    )


@pytest.mark.parametrize(
    ("hit", "alarm", "delta"),
    [(0.5, 0.5, 0.0), (0.6, 0.3, 0.0), (0.95, 0.9, 0.01), (0.3, 0.02, 0.1), (0.02, 0.01, 0.0)],
)
def test_the_bounds_hold_as_often_as_they_say(hit, alarm, delta):
    """Exactly, over all counts that n answers with these rates can give."""
    n, confidence = 40, 0.9
    truth = max(
        math.log(max(hit - delta, 1e-300) / alarm),
        math.log(max(1 - alarm - delta, 1e-300) / (1 - hit)),
        0.0,
    )
    counts, wrong = np.arange(n + 1), 0.0
    claim = auditing._Claim(1.0, delta, confidence)
    for hits in counts:
        bound = auditing._bounds(np.full(n + 1, hits), counts, n, claim)
        wrong += binom.pmf(hits, n, hit) * float(
            binom.pmf(counts, n, alarm) @ (bound > truth + 1e-12)
        )
    assert wrong <= 1 - confidence
    exact = claim._replace(delta=0.0)
    clear = auditing._bounds(np.array([n]), np.array([0]), n, exact)
    assert 0 < clear[0] < math.log(n)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"runs": 5}, "runs must be a whole number >= 20, got 5"),
        ({"runs": True}, "runs must be a whole number or None, got True"),
        ({"runs": "9"}, "runs must be a whole number or None"),
        ({"weaken": 0.0}, "weaken must be a number > 0"),
        ({"weaken": math.nan}, "weaken must be a number, got nan"),
        ({"confidence": 1.0}, r"confidence must lie in \[0.5, 1\)"),
        ({"runs": 20.5}, "runs must be a whole number"),
        ({"claimed": math.nan}, "claimed must be a number or None, got nan"),
        ({"claimed": -1}, "claimed must be a number > 0, got -1"),
        ({"claimed": "x"}, "claimed must be a number or None, got 'x'"),
        ({"claimed": True}, "claimed must be a number or None, got True"),
        ({"confidence": "x"}, r"confidence must be a number"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"canaries": 5}, "canaries must be a whole number >= 20, got 5"),
        ({"canaries": 99, "runs": 99}, "canary, instead and runs are about one record"),
        ({"canaries": 99, "canary": (np.zeros(6), 0)}, "leave either out"),
        ({"canaries": 99, "client": "c"}, "there is no client 'c'"),
        ({"canary": 5}, "canary must be .* got 5"),
        ({"client": "c"}, "there is no client 'c'"),
        ({"canary": (np.zeros(2), 0)}, "a record is .* 6 finite features"),
        ({"canary": (np.full(6, math.nan), 0)}, "a record is .* 6 finite features"),
        ({"canary": (np.zeros(6), 7)}, "targets outside|labels"),
        ({"algorithm": bf.PrivateSGD()}, "PrivateSGD has no attack here: audit PrivateADMM"),
        ({"algorithm": bf.Bundle()}, "Bundle adds no noise: there is no guarantee to refute"),
    ],
)
def test_arguments_that_are_refused(options, text):
    problem, fed = problem_and_data(BUDGET)
    with pytest.raises(ValueError, match=text):
        bf.audit(problem, fed, **options)


def test_without_noise_there_is_nothing_to_audit():
    problem, fed = problem_and_data(None)
    with pytest.raises(ValueError, match="without noise there is nothing to audit"):
        bf.audit(problem, fed)
