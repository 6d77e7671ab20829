"""The best accuracy that noise allows: closed forms, and runs that do not beat it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bonafed as bf
from bonafed.privacy.accounting import noise_for
from bonafed.privacy.bounds import best_accuracy, information

SIZES = (120, 80, 60)


@pytest.mark.parametrize("error", [0.01, 0.2, 0.45])
def test_one_direction_is_a_noisy_bit(error: float) -> None:
    known = math.log(2) + error * math.log(error) + (1 - error) * math.log(1 - error)
    assert best_accuracy(known, 1) == pytest.approx(1 - error, abs=1e-9)
    assert best_accuracy(math.log(2), 1) == 1


@pytest.mark.parametrize("s", [0.3, 2.0, 9.0])
def test_two_directions_have_a_closed_form(s: float) -> None:
    """The density on the circle is exp(-s phi / pi)."""
    total = (1 - math.exp(-s)) / s
    error = 1 / s - 1 / math.expm1(s)
    known = -s * error - math.log(total)
    assert best_accuracy(known, 2) == pytest.approx(1 - error, abs=1e-4)


def test_more_noise_or_more_directions_never_help() -> None:
    def best(noise: float, k: int) -> float:
        return best_accuracy(information(SIZES, noise, 1.0, 10, k), k)

    for k in (1, 2, 5, 40, 1000):
        found = [best(noise, k) for noise in (1e9, 3000.0, 300.0, 60.0, 10.0, 1e-6)]
        assert found == sorted(found)
        assert found[0] == pytest.approx(0.5, abs=1e-3)
        assert found[-1] == pytest.approx(1.0, abs=1e-3)
    across = [best(300.0, k) for k in (1, 2, 5, 40, 1000)]
    assert across == sorted(across, reverse=True)
    assert best_accuracy(information([0, 5], 3.0, 1.0, 1, 2), 2) > 0.5
    assert information([5], 0.0, 1.0, 1, 2) == math.inf
    assert best_accuracy(0.0, 7) == 0.5
    two = information(SIZES, 10.0, 2.0, 10, 5)  # a row that is replaced needs twice the noise
    assert two == pytest.approx(information(SIZES, 20.0, 1.0, 10, 5))


def rows_and_plane(k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    theta, X = rng.standard_normal(k), rng.standard_normal((sum(SIZES), k))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ theta > 0, 1, -1), theta / np.linalg.norm(theta)


@pytest.mark.parametrize(("k", "epsilon"), [(2, 0.02), (6, 0.08), (30, 0.6)])
def test_no_run_beats_it(k: int, epsilon: float) -> None:
    """Mean accuracy over random planes; the share of all rows is exact, by the angle."""
    rounds, rng, found = 3, np.random.default_rng(k), {}
    budget = bf.Budget(epsilon, 1e-5)
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(False), over_clients=bf.Mean("size"), privacy=budget
    )
    methods = {
        "default": bf.PrivateSGD(max_rounds=rounds, bound=1.0, noise="simulation"),
        "ADMM": bf.PrivateADMM(max_rounds=rounds, noise="simulation"),
    }
    for seed in range(16):
        X, y, theta = rows_and_plane(k, rng)
        fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], SIZES))
        for name, method in methods.items():
            w = bf.solve(problem, fed, algorithm=method, seed=seed).w
            angle = math.acos(np.clip(w @ theta / np.linalg.norm(w), -1, 1))
            found.setdefault(name, []).append(1 - angle / math.pi)
    noise = noise_for(budget, rounds)
    best = best_accuracy(information(SIZES, noise, 1.0, rounds, k), k)
    assert 0.55 < best < 0.99  # so that the noise is felt
    for accuracy in found.values():
        mean, error = np.mean(accuracy), np.std(accuracy, ddof=1) / math.sqrt(len(accuracy))
        assert mean <= best + 3 * error
    assert max(map(np.mean, found.values())) > 0.5 + 0.3 * (best - 0.5)  # it is not idle
