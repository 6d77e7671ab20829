"""How well each method serves its worst client: losses and accuracies by client, over seeds.

Every method runs on the virtual clock for the same time, with a straggler. "alone" is the best
model of a single client (max_j Ind_j), "mixture" the model of all clients in equal parts, both
solved to the end. Where no bound is proved (a model that is not affine in w) this compares the
results of runs, not optima.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.experiments.aspire.backdoor import predicted
from quorate.experiments.aspire.race import Entrant, configured
from quorate.experiments.aspire.setups import SetUp
from quorate.experiments.reference_models import client_risks, clients_alone, mixture
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean

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


def spread(problem: Problem, w: Array, fed: Federation, test: Federation) -> Spread:
    """The losses on the rows of ``fed`` and the accuracies on those of ``test``, by client.

    Both have the same clients.
    """
    concrete, rows = problem.at(test)
    truth = [np.asarray(rows.rows(i)[1]) for i in range(rows.n_clients)]
    hits = [(a == b).mean() for a, b in zip(predicted(concrete, w, rows), truth, strict=True)]
    return Spread(
        client_risks(replace(problem, over_clients=Mean()), w, fed), np.array(hits, float)
    )


def timed(setup: SetUp, entrant: Entrant, seconds: float, seed: int = 0) -> Array:
    """The model that a method has after so many virtual seconds."""
    stated, fed = setup.problem.at(setup.fed)
    algorithm = configured(entrant, stated, fed)
    clock = setup.clock(entrant.wait, max_time=seconds, keep_rows=10**9)
    return algorithm.answer(clock.run(algorithm, fed, seed=seed).state)[0]


def compared(
    setup: SetUp,
    test: Federation,
    entrants: Mapping[str, Entrant],
    seconds: float,
    seed: int = 0,
    **options: Any,
) -> dict[str, Spread]:
    """Every method's model, and the two baselines'.

    ``options`` are those of ``solve`` for the baselines, such as max_rounds.
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
    table = {}
    for name in runs[0]:
        values = {number: [getattr(run[name], number) for run in runs] for number in NUMBERS}
        table[name] = {
            number: (float(np.mean(v)), float(np.std(v))) for number, v in values.items()
        }
    return table
