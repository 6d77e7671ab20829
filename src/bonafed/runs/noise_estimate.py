"""What the noise of a private run does to accuracy by itself, before anything is spent: an estimate
from public numbers.

Rows are invented: as many for every client as are declared, every feature drawn from its declared
range or categories, independently and evenly, and the target on the two sides of a random
hyperplane through the middle, without any error. A perfect model has accuracy 1 there. The planned
method is run on them with the planned noise, several times, and judged on further such rows. It
is an estimate and no bound: real targets have their own errors, which cost more, while classes
that lie far apart cost less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.engines.inprocess import InProcess
from bonafed.problem.predictors.affine import scores
from bonafed.runs.privacy_plan import Plan, stated_method

DRAWS = 10  # tables that are invented
FRESH = 2000  # rows to judge on
MOST = 4e9  # numbers that are read for it


def noise_alone(config: Config, plan: Plan) -> list[str]:
    """The estimate in words; nothing where there are no two classes or no declared columns."""
    declared = config.data.columns
    if not declared or config.loss().targets != "sign" or config.problem_.model != "linear":
        return []
    public = plan.public
    rounds = plan.algorithm.max_rounds
    if sum(public.sizes) * public.n_features * rounds * DRAWS > MOST:
        return ["accuracy that this noise would leave: not estimated, the table is too large"]
    found = np.array([_accuracies(config, plan, declared, seed) for seed in range(DRAWS)])
    noisy, exact = found.mean(axis=0)
    return [
        f"estimate from public numbers, {DRAWS} draws: on invented rows of these sizes and ranges,"
        " whose classes a hyperplane separates without error, the accuracy with this noise is"
        f" {noisy:.2f} on average ({found[:, 0].min():.2f} to {found[:, 0].max():.2f}), and"
        f" {exact:.2f} in as many rounds without noise; rows of the real world have errors of their"
        " own"
    ]


def _accuracies(
    config: Config, plan: Plan, declared: Mapping[str, Mapping[str, Any]], seed: int
) -> tuple[float, float]:
    """The accuracies of the planned method on an invented table, with and without its noise."""
    public, rng = plan.public, np.random.default_rng(seed)
    whose = np.repeat(np.arange(public.n_clients), public.sizes)
    n = len(whose)
    X = _rows(declared, n + FRESH, rng)
    centred = X - X.mean(axis=0)
    y = (centred @ (rng.normal(size=X.shape[1]) / np.maximum(X.std(axis=0), 1e-9)) > 0).astype(int)
    names = [public.clients[k] for k in whose]
    fed = Federation.from_arrays(X[:n], y[:n], names, classes=[0, 1])
    problem, _ = stated_method(config, public)
    problem = replace(problem, privacy=problem.privacy and replace(problem.privacy, book=None))
    concrete, data = problem.at(fed)

    def accuracy(factor: float) -> float:
        noise = replace(plan.noise, source="simulation", multiplier=factor * plan.noise.multiplier)
        method = replace(plan.algorithm, problem=concrete, noise="simulation", plan=noise)
        run = InProcess().run(method, data, seed=seed)
        w = method.answer(run.state, run.concluded).w
        return float(((scores(concrete.predictor, w, X[n:]) > 0) == y[n:]).mean())

    return accuracy(1.0), accuracy(1e-9)


def _rows(declared: Mapping[str, Mapping[str, Any]], n: int, rng: np.random.Generator) -> Array:
    """(n, d) features as declared: in [0, 1] for a range, normal for mean and scale and for what is
    taken as it is, one of the categories; a tenth of the cells missing where that is a feature.
    """
    features = []
    for how in declared.values():
        if "categories" in how:
            drawn = rng.integers(len(how["categories"]), size=n)
            features += [*np.eye(len(how["categories"]))[drawn].T]
            continue
        features.append(rng.random(n) if "min" in how else rng.normal(size=n))
        if how.get("indicator", False):
            features.append((rng.random(n) < 0.1).astype(float))
    return np.column_stack(features)
