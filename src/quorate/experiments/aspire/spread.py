"""How well each method serves the client it serves worst: losses and accuracies by client, over seeds.

Every method is run on the virtual clock for the same time, with a straggler; "alone" is the best single client's own
model (max_j Ind_j), "mixture" that of all clients in equal parts, both as good as they get. Without a bound (a model
that is not affine in w) this compares what runs found, no optima.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.baselines import client_risks, clients_alone, mixture
from quorate.data.federation import Federation
from quorate.experiments.aspire.backdoor import predicted
from quorate.experiments.aspire.race import Entrant, configured
from quorate.experiments.aspire.setups import SetUp
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean

NUMBERS = ("worst_loss", "mean_loss", "worst_accuracy", "mean_accuracy", "deviation")


@dataclass(frozen=True, eq=False)
class Spread:
    """One model, client by client."""

    losses: Array  # (N,) on training rows
    accuracies: Array  # (N,) on rows kept back

    @property
    def worst_loss(self) -> float:
        """The largest of a client."""
        return float(self.losses.max())

    @property
    def mean_loss(self) -> float:
        """Over clients."""
        return float(self.losses.mean())

    @property
    def worst_accuracy(self) -> float:
        """The least of a client."""
        return float(self.accuracies.min())

    @property
    def mean_accuracy(self) -> float:
        """Over clients."""
        return float(self.accuracies.mean())

    @property
    def deviation(self) -> float:
        """Standard deviation of the accuracies over clients."""
        return float(self.accuracies.std())


def spread(problem: Problem, w: Array, fed: Federation, test: Federation) -> Spread:
    """Losses on the rows of ``fed``, accuracies on those of ``test``, whose clients are the same."""
    concrete, rows = problem.at(test)
    truth = [np.asarray(rows.rows(i)[1]) for i in range(rows.n_clients)]
    hits = [(a == b).mean() for a, b in zip(predicted(concrete, w, rows), truth, strict=True)]
    return Spread(client_risks(replace(problem, over_clients=Mean()), w, fed), np.array(hits, float))


def timed(setup: SetUp, entrant: Entrant, seconds: float, seed: int = 0) -> Array:
    """The model that a method has after so many virtual seconds."""
    stated, fed = setup.problem.at(setup.fed)
    algorithm = configured(entrant, stated, fed)
    clock = setup.clock(entrant.wait, max_time=seconds, keep_rows=10**9)
    return algorithm.answer(clock.run(algorithm, fed, seed=seed).state)[0]


def compared(
    setup: SetUp, test: Federation, entrants: Mapping[str, Entrant], seconds: float, seed: int = 0, **options: Any
) -> dict[str, Spread]:
    """Every method's model, and the two baselines'; ``options`` of ``solve`` are for these, such as max_rounds."""
    problem, fed = setup.problem, setup.fed
    own = clients_alone(problem, fed, **options)
    models = {"alone, best": own.solutions[own.best].w, "mixture": mixture(problem, fed, **options).w}
    models |= {name: timed(setup, each, seconds, seed) for name, each in entrants.items()}
    return {name: spread(problem, w, fed, test) for name, w in models.items()}


def over_seeds(runs: Sequence[Mapping[str, Spread]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and standard deviation over seeds of every number, by method."""
    found = {}
    for name in runs[0]:
        values = {number: [getattr(run[name], number) for run in runs] for number in NUMBERS}
        found[name] = {number: (float(np.mean(v)), float(np.std(v))) for number, v in values.items()}
    return found
