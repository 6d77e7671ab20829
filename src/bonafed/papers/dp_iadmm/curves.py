"""Test error, consensus violation and noise by round, as in the paper's Figures 1 and 2.

The paper states an epsilon of *one* iteration, with noise scaled by the data at hand, (20).
``published`` runs that for comparison; its models carry no guarantee. ``total`` states one
(epsilon, delta) of all rounds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.papers.dp_iadmm import obj_p, obj_t, out_p, out_p_plus
from bonafed.papers.dp_iadmm.data import Split

DELTA = 1e-6
METHODS = ("ObjT", "ObjT 1/t", "ObjT 1/t^2", "ObjP", "OutP", "OutP+")
EPSILONS = (0.05, 0.1, 1.0, math.inf)  # of one iteration
# Of w^k in the published code without noise: accuracy, and the consensus violation of the round
# that starts from it.
DIGITS = {3: (0.6983, 9.8617e-2), 5: (0.7245, 7.0325e-2), 7: (0.7416, 5.6596e-2)}


@dataclass(frozen=True)
class Evaluation:
    """The numbers after a round."""

    round: int
    error: float  # of w^{t+1} on the test rows
    violation: float  # sum_p ||w^t - z_p||_1 / P, as the published code has it
    noise: float  # mean |xi| expected, over clients


@dataclass(frozen=True)
class Curve:
    """The numbers of one run, by round."""

    points: tuple[Evaluation, ...]
    epsilon: float | None  # the total in the privacy ledger; None without a guarantee


def problem(epsilon: float | None = None) -> bf.Problem:
    """Softmax regression in which every row has the same weight."""
    budget = None if epsilon is None else bf.Budget(epsilon, DELTA)
    return bf.Problem(
        bf.Multinomial(), bf.Softmax(intercepts=False), over_clients=bf.Mean("size"), privacy=budget
    )


def follow(
    algorithm: ext.Method,
    problem: bf.Problem,
    split: Split,
    seed: int = 0,
    every: Iterable[int] | None = None,
) -> Curve:
    """Run an algorithm and evaluate its models after the rounds ``every`` (all by default)."""
    points, rounds = [], None if every is None else set(every)

    def watch(row: dict[str, Any], state: Any) -> None:
        if rounds is None or row["round"] in rounds:
            violation = row["gap"] / split.fed.n_clients
            error = split.error(state.w)
            points.append(Evaluation(row["round"], error, violation, row["noise"]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ``Curve.epsilon`` says where there is no guarantee
        solution = ext.fit(problem, split.fed, algorithm=algorithm, watch=[watch], seed=seed)
    return Curve(tuple(points), solution.ledger and solution.ledger.epsilon)


def noise_free(split: Split, rounds: int = 7) -> Curve:
    """ObjT without noise, whose digits are those of the published code (``DIGITS``)."""
    return follow(bf.PrivateADMM(max_rounds=rounds, rho=bf.Penalty()), problem(), split)


def total(
    split: Split,
    epsilon: float,
    rounds: int,
    seeds: Sequence[int] = range(3),
    every: Iterable[int] | None = None,
    **settings: object,
) -> list[Curve]:
    """Runs of ``PrivateADMM`` within a total (epsilon, 1e-6), with its defaults or ``settings``.

    By default models are evaluated at the end only.
    """
    algorithm = replace(bf.PrivateADMM(max_rounds=rounds, noise="simulation"), **settings)
    return [follow(algorithm, problem(epsilon), split, seed, every or [rounds]) for seed in seeds]


def method(name: str, epsilon: float, rounds: int, split: Split) -> bf.PrivateADMM:
    """A method of the paper with an epsilon of one iteration; infinite epsilon adds no noise."""
    if name.startswith("OutP"):
        sizes = int(split.fed.sizes.max()), split.fed.n_clients
        return (out_p_plus if name == "OutP+" else out_p)(epsilon, rounds, *sizes)
    if name == "ObjP":
        return obj_p(epsilon, rounds)
    radius = "constant" if name == "ObjT" else name.removeprefix("ObjT ")
    return obj_t(epsilon, rounds, radius=radius)


def published(
    split: Split, name: str, epsilon: float, rounds: int, seeds: Sequence[int] = range(3)
) -> list[Curve]:
    """A curve of the paper, which has no guarantee whatever its epsilon."""
    many = seeds if math.isfinite(epsilon) else seeds[:1]
    return [follow(method(name, epsilon, rounds, split), problem(), split, seed) for seed in many]


def bands(curves: Sequence[Curve]) -> list[dict[str, float]]:
    """The mean and the 20 % and 80 % quantiles of the numbers over runs, by round."""
    rows = []
    for points in zip(*(curve.points for curve in curves), strict=True):
        row: dict[str, float] = {"round": points[0].round}
        for name in ("error", "violation", "noise"):
            values = [getattr(point, name) for point in points]
            row[name] = float(np.mean(values))
            row[f"{name}_20"], row[f"{name}_80"] = map(float, np.quantile(values, [0.2, 0.8]))
        rows.append(row)
    return rows


def errors(curves: Sequence[Curve]) -> list[float]:
    """The test error at the end of every run."""
    return [curve.points[-1].error for curve in curves]
