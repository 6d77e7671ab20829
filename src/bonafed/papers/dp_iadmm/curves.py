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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import load
from bonafed.extending import Array
from bonafed.papers.dp_iadmm import obj_p, obj_t, out_p, out_p_plus

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
    loss, model = bf.Multinomial(), bf.Softmax(fit_intercept=False)
    return bf.Problem(loss, model, over_clients=bf.Mean("size"), privacy=budget)


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
            points.append(Evaluation(row["round"], split.error(state.w), violation, row["noise"]))

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


# The data sets of the paper's section 4, and generated ones of the same shapes.
#
# MNIST: 10 clients with 6,000 images each, in the order of the file. FEMNIST: the public part of
# the sample, 114 of its 195 training writers. Pixels in [0, 1]. ``shaped`` makes rows of any sizes,
# a fifth of the entries not zero; ``ragged`` are sizes like those of all 195 writers.

CLIENTS, ROWS = 10, 6000
# clients, rows in all, their mean, standard deviation and largest number
FEMNIST = (195, 36_708, 188.0, 89.0, 550)


class Split(NamedTuple):
    """The clients' training rows, and test rows that no client holds."""

    fed: bf.Federation
    X: Array  # (n, d)
    y: NDArray[np.intp]  # (n,)

    def error(self, w: Array) -> float:
        """The share of the test rows that the model w (D,) gets wrong."""
        return float(((self.X @ w.reshape(self.X.shape[1], -1)).argmax(1) != self.y).mean())


def mnist(rows: int = ROWS, single: bool = True) -> Split:
    """The first ``rows`` of every client's images, and all 10,000 test images."""
    train, test = load.mnist("train"), load.mnist("test")
    parts = [slice(ROWS * i, ROWS * i + rows) for i in range(CLIENTS)]
    names = tuple(f"client {i}" for i in range(CLIENTS))
    Xs, ys = tuple(train.X[a] for a in parts), tuple(train.y[a] for a in parts)
    fed = bf.Federation(names, Xs, ys, classes=np.arange(10))
    return Split(fed.single() if single else fed, test.X, np.asarray(test.y, np.intp))


def femnist() -> Split:
    """114 writers, single precision, and the test images of all 195."""
    test = load.femnist("test")
    X, y = np.concatenate(test.X), np.concatenate(test.y).astype(np.intp)
    return Split(load.femnist("train").single(), X, y)


def shaped(
    sizes: NDArray[np.int64], features: int = 784, classes: int = 10, seed: int = 0
) -> bf.Federation:
    """Generated images: labels of a linear rule, single precision where ``.single()`` is called."""
    rng = np.random.default_rng(seed)
    rule, Xs, ys = rng.normal(size=(features, classes)), [], []
    for m in sizes:
        X = rng.random((m, features)) * (rng.random((m, features)) < 0.2)
        Xs.append(X)
        ys.append((X @ rule + rng.gumbel(size=(m, classes))).argmax(1))
    names = tuple(f"client {i}" for i in range(len(sizes)))
    return bf.Federation(names, tuple(Xs), tuple(ys), classes=np.arange(classes))


def ragged(seed: int = 0) -> NDArray[np.int64]:
    """Sizes like those of FEMNIST's clients: the same number, sum, mean and largest size.

    Their deviation is about the same.
    """
    clients, rows, mean, sd, most = FEMNIST
    spread = np.log1p((sd / mean) ** 2)
    middle, rng = np.log(mean) - spread / 2, np.random.default_rng(seed)
    drawn = rng.lognormal(middle, np.sqrt(spread), clients)
    sizes = np.clip(drawn, 18, most).astype(np.int64)
    sizes[sizes.argmax()] = most
    others = np.flatnonzero(sizes < most)
    while (off := rows - int(sizes.sum())) != 0:
        at = others[: abs(off)]
        sizes[at] = np.clip(sizes[at] + np.sign(off), 18, most - 1)
    return sizes
