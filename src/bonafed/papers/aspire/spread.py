"""How well each method serves its worst client: losses and accuracies by client, over seeds.

Every method runs on the virtual clock for the same time, with a straggler. "alone" is the best
model of a single client (max_j Ind_j), "mixture" the model of all clients in equal parts, both
solved to the end. Where no bound is proved (a model that is not affine in w) this compares the
results of runs, not optima.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Unpack

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.aspire.race import Entrant, configured
from bonafed.papers.aspire.reference_models import Options, client_risks, clients_alone, mixture
from bonafed.papers.aspire.setups import SetUp

NUMBERS = ("worst_loss", "mean_loss", "worst_accuracy", "mean_accuracy", "deviation")


@dataclass(frozen=True, eq=False)
class Spread:
    """The losses and accuracies of one model by client."""

    losses: Array  # (N,) on training rows
    accuracies: Array  # (N,) on held-out rows

    @property
    def worst_loss(self) -> float:
        """The largest loss of a client."""
        return float(self.losses.max())

    @property
    def mean_loss(self) -> float:
        """The mean loss over clients."""
        return float(self.losses.mean())

    @property
    def worst_accuracy(self) -> float:
        """The least accuracy of a client."""
        return float(self.accuracies.min())

    @property
    def mean_accuracy(self) -> float:
        """The mean accuracy over clients."""
        return float(self.accuracies.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation of the accuracies over clients."""
        return float(self.accuracies.std())


def spread(problem: bf.Problem, w: Array, fed: bf.Federation, test: bf.Federation) -> Spread:
    """The losses on the rows of ``fed`` and the accuracies on those of ``test``, by client.

    Both have the same clients.
    """
    concrete, test = problem.at(test)
    hits = [
        (ext.scores(concrete.predictor, w, X).argmax(-1) == y).mean()
        for X, y in zip(test.X, test.y, strict=True)
    ]
    return Spread(client_risks(replace(problem, over_clients=bf.Mean()), w, fed), np.array(hits))


def timed(setup: SetUp, entrant: Entrant, seconds: float, seed: int = 0) -> Array:
    """The model that a method has after so many virtual seconds."""
    stated, fed = setup.problem.at(setup.fed)
    algorithm = configured(entrant, stated, fed)
    clock = setup.clock(entrant.wait, max_time=seconds)
    return algorithm.answer(clock.run(algorithm, fed, seed=seed).state)[0]


def compared(
    setup: SetUp,
    test: bf.Federation,
    entrants: Mapping[str, Entrant],
    seconds: float,
    seed: int = 0,
    **options: Unpack[Options],
) -> dict[str, Spread]:
    """Every method's model, and the two baselines'.

    ``options`` are those of ``solve`` for the baselines.
    """
    problem, fed = setup.problem, setup.fed
    alone = clients_alone(problem, fed, **options)
    models = {
        "alone, best": alone.solutions[alone.best].w,
        "mixture": mixture(problem, fed, **options).w,
    }
    models |= {name: timed(setup, each, seconds, seed) for name, each in entrants.items()}
    return {name: spread(problem, w, fed, test) for name, w in models.items()}


def over_seeds(runs: Sequence[Mapping[str, Spread]]) -> dict[str, dict[str, tuple[float, float]]]:
    """The mean and standard deviation over seeds of every number, by method."""
    table: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in runs[0]}
    for name, number in product(table, NUMBERS):
        values = [getattr(run[name], number) for run in runs]
        table[name][number] = float(np.mean(values)), float(np.std(values))
    return table
