"""Weights of an own risk by rank are checked before anything is proved with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from problems import PLAIN

import bonafed as bf
from bonafed.problem.risks.ranks import ConvexByRank

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
FED = bf.Federation(["a"], [X], [np.where(X[:, 0] + RNG.normal(size=40) > 0, 1, -1)])


@dataclass(frozen=True)
class Own(ConvexByRank):
    weights_of: Any

    def rank_weights(self, n: int) -> np.ndarray:
        return self.weights_of(n)


@pytest.mark.parametrize(
    ("weights_of", "named"),
    [
        (lambda n: np.linspace(-1, 3, n) / n, ">= 0"),
        (lambda n: np.arange(n, 0, -1.0) / (n * (n + 1) / 2), "fall somewhere"),
        (lambda n: np.arange(n) * 1.0, "sum to 780"),
        (lambda n: np.ones(n + 1) / (n + 1), "have shape"),
        (lambda n: np.full(n, np.nan), "not all finite"),
    ],
)
@pytest.mark.parametrize("method", [bf.Bundle(), bf.RankADMM()])
def test_wrong_weights_are_refused_before_anything_runs(weights_of, named, method):
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=Own(weights_of), regulariser=bf.L2(1e-2)
    )
    with pytest.raises(ValueError, match=named):
        bf.solve(problem, FED, algorithm=method)


def test_they_are_refused_over_clients_too():
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_clients=Own(lambda n: np.full(n, 2.0)), regulariser=bf.L2(1e-2)
    )
    with pytest.raises(ValueError, match="sum to 2"):
        bf.solve(problem, FED)


def test_right_ones_are_taken():
    own = Own(lambda n: np.diff(np.linspace(0, 1, n + 1) ** 2))
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=own, regulariser=bf.L2(1e-2))
    assert bf.solve(problem, FED).outcome.stop is bf.Stop.OPTIMAL


@pytest.mark.parametrize(("factor", "start"), [(0.5, 1e-5), (1.2, -1.0)])
def test_penalties_that_fall_or_are_negative_are_refused(factor, start):
    with pytest.raises(ValueError, match="Growing"):
        bf.Growing(start, factor)
