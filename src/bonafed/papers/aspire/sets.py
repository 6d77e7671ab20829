"""Sets of client weights: Tables II and IV, Figures 1 and 2.

The worst weights in a set are computed twice, by the oracles of `bonafed` and as the program that
the paper states for the set, solved by an interior-point method; and once more, for the CD-norm, by
the one sort of p~_j f_j with which the paper solves (18).
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.aspire.workers import CAP, Workers, follow
from bonafed.papers.reproduction import Row, whole

BOX, ELLIPSOID, POLYHEDRON, KL = "box", "ellipsoid", "polyhedron", "KL divergence"
WASSERSTEIN, CD = "Wasserstein-1", "CD-norm"
LINES = 5  # of the polyhedron
LEAST = 0.02  # CPU seconds over which a short computation is repeated


def every_set(n: int, seed: int) -> dict[str, Any]:
    """The six sets for n workers, (17), (22), (24), (26), (28), (30), with an uneven prior."""
    rng = np.random.default_rng([seed, n])
    q, factor = rng.dirichlet(np.full(n, 5.0)), rng.standard_normal((n, n)) / math.sqrt(n)
    D = rng.uniform(0, 1, (LINES, n))
    return {
        BOX: bf.Box(q / 3, np.minimum(3 * q, 1.0)),
        ELLIPSOID: bf.Ellipsoid((factor @ factor.T + np.eye(n)) / n, 0.3, q),
        POLYHEDRON: bf.Polyhedron(D, D @ q + 0.02),
        KL: bf.KLBall(0.3, q),
        WASSERSTEIN: bf.WassersteinOverClients(0.1 * n, "index", q),
        CD: bf.CDNorm(n / 4, q * rng.uniform(0.2, 1.5, n), q),
    }


def parameters(risk: Any) -> int:
    """How many numbers trade robustness for performance, as Table II counts them."""
    match type(risk).__name__:
        case "Box":
            return np.size(risk.lower) + np.size(risk.upper)
        case "Polyhedron":
            return np.size(risk.D) + np.size(risk.c)
        case "CDNorm":
            return np.size(risk.budget)
    return np.size(risk.radius)


def as_program(risk: Any, losses: Array) -> float:
    """The largest p'f over a set, by (18), (23), (25), (27), (29) or (31) as a conic program."""
    n, model = len(losses), ext.Model()
    p = model.variable(n)
    model.linear(p, -losses)
    model.nonneg([(p, 1.0)])
    model.zero([(p, np.ones((1, n))), -1.0])
    match type(risk).__name__:
        case "Box":
            model.nonneg([(p, 1.0), -np.asarray(risk.lower)])
            model.nonneg([(p, -1.0), np.asarray(risk.upper)])
        case "Ellipsoid":
            inverse = np.linalg.inv(np.linalg.cholesky(np.asarray(risk.shape)))
            model.soc([math.sqrt(risk.radius)], [(p, inverse), -inverse @ risk.prior])
        case "Polyhedron":
            model.nonneg([(p, -np.asarray(risk.D)), np.asarray(risk.c)])
        case "KLBall":
            part = model.variable(n)  # >= p log(p / q)
            model.exponential([(part, -1.0)], [(p, 1.0)], [np.asarray(risk.prior)])
            model.nonneg([(part, -np.ones((1, n))), risk.radius])
        case "WassersteinOverClients":
            plan, place = model.variable(n * n), np.arange(n)
            model.nonneg([(plan, 1.0)])
            for i in range(n):
                model.zero([(plan[i * n : (i + 1) * n], np.ones((1, n))), (p[i : i + 1], -1.0)])
                model.zero([(plan[i::n], np.ones((1, n))), -float(risk.prior[i])])
            far = np.abs(np.subtract.outer(place, place)).reshape(1, -1).astype(float)
            model.nonneg([(plan, -far), risk.radius])
        case "CDNorm":
            caps, off = np.asarray(risk.bounds), model.variable(n)
            for sign in (1.0, -1.0):
                model.nonneg([(off, 1.0), (p, -sign), sign * np.asarray(risk.prior)])
            model.nonneg([(off, -1.0), caps])
            model.nonneg([(off, -1 / caps[None]), risk.budget])
    return -model.solve().checked("the worst weights").value


def by_one_sort(risk: Any, losses: Array) -> float:
    """p'f after one sort of p~_j f_j: the largest gain weight from the smallest while the budget
    lasts, each within its bound.
    """
    q, caps, left = np.array(risk.prior), np.asarray(risk.bounds), float(risk.budget)
    order, p = np.argsort(caps * losses, kind="stable"), np.array(risk.prior)
    low, high = 0, len(q) - 1
    give, take = np.minimum(caps, q), np.minimum(caps, 1 - q)
    while low < high and left > 1e-12:
        i, j = order[low], order[high]
        if losses[j] <= losses[i]:
            break
        mass = min(give[i], take[j], left / (1 / caps[i] + 1 / caps[j]))
        p[i], p[j] = p[i] - mass, p[j] + mass
        give[i], take[j] = give[i] - mass, take[j] - mass
        left -= mass / caps[i] + mass / caps[j]
        low, high = low + (give[i] <= 1e-15), high - (take[j] <= 1e-15)
    return float(p @ losses)


def timed(compute: Callable[[], float]) -> tuple[float, float]:
    """What a computation returns, and its CPU seconds."""
    compute()
    began, count, value = time.process_time(), 0, 0.0
    while (spent := time.process_time() - began) < LEAST or count == 0:
        value, count = compute(), count + 1
    return value, spent / count


def table_2(seed: int, *, clients: int, instances: int) -> Iterator[Row]:
    """Formulation, flexibility and cost of every set; and how often one sort is right."""
    rng = np.random.default_rng(seed)
    for name, risk in every_set(clients, seed).items():
        losses = rng.exponential(size=clients)
        yield Row(name, "parameters", "as printed", parameters(risk))
        program, slow = timed(lambda r=risk, f=losses: as_program(r, f))
        exact, fast = timed(lambda r=risk, f=losses: r.worst(f).value)
        yield Row(name, "CPU s", "interior point", slow)
        yield Row(name, "CPU s", "exact oracle", fast)
        yield Row(name, "largest p'f", "interior point", program)
        yield Row(name, "largest p'f", "exact oracle", exact)
    for case, equal in ((CD, False), (f"{CD}, equal bounds", True)):
        lost = []
        for k in range(instances):
            risk, f = every_set(clients, 1000 * seed + k)[CD], rng.exponential(size=clients)
            risk = replace(risk, bounds=np.full(clients, 1 / clients)) if equal else risk
            exact, mean = risk.worst(f).value, float(risk.prior @ f)
            lost.append((exact - by_one_sort(risk, f)) / max(exact - mean, 1e-300))
        share, median = float(np.mean(np.array(lost) <= 1e-9)), float(np.median(lost))
        yield Row(case, "share of optimal answers", "one sort", share)
        yield Row(case, "share of optimal answers", "exact oracle", 1.0)
        yield Row(case, "median share of the gain that is lost", "one sort", median)


# ---- Figures 1 and 2


def operations(n: Array, m: int, tol: float) -> dict[str, Array]:
    """The paper's numbers of operations with n workers, Table II, as its figures draw them: all
    constants one, m inequalities.
    """
    log, sort, plan = math.log(1 / tol), n * np.log(n), n + n**2

    def linear(n: Array) -> Array:
        return (m + n) ** 1.5 * n**2 * log

    return {
        BOX: sort,
        ELLIPSOID: math.sqrt(m + 1) * n * (n**2 + m + m * n**2) * log,
        POLYHEDRON: linear(n),
        KL: n**3.5 * log,
        WASSERSTEIN: linear(plan),
        CD: sort,
    }


def complexity(
    seed: int, *, tol: float, inequalities: Sequence[int], sizes: Sequence[int]
) -> Iterator[Row]:
    """The curves as printed, and the CPU seconds of the oracles at the same sizes."""
    n, last = np.asarray(sizes, float), "largest N"
    for m in inequalities:
        for name, counts in operations(n, m, tol).items():
            for size, count in zip(sizes, counts.tolist(), strict=True):
                yield Row(f"m = {m}", "operations", name, count, float(size))
            yield Row(f"m = {m}, {last}", "operations", name, float(counts[-1]))
    rng = np.random.default_rng(seed)
    for size in sizes:
        losses = rng.exponential(size=size)
        for name, risk in every_set(size, seed).items():
            spent = timed(lambda r=risk, f=losses: r.worst(f).value)[1]
            yield Row("oracles of bonafed", "CPU s", name, spent, float(size))
            if size == sizes[-1]:
                yield Row(f"oracles of bonafed, {last}", "CPU s", name, spent)


# ---- Table IV


def made(clients: int, seed: int) -> bf.Federation:
    """Clients who label six normal features by rules that differ a little."""
    rng, d = np.random.default_rng(seed), 6
    base, Xs, ys = rng.standard_normal(d), [], []
    for _ in range(clients):
        X = rng.standard_normal((40, d)) + 0.5 * rng.standard_normal(d)
        score = X @ (base + 0.2 * rng.standard_normal(d)) + 0.5 * rng.standard_normal(40)
        Xs.append(X)
        ys.append(np.where(score > 0, 1, -1))
    names = tuple(f"worker {i}" for i in range(clients))
    return bf.Federation(names, tuple(Xs), tuple(ys), classes=np.array([-1, 1]))


def table_4(seed: int, *, clients: int, seconds: float, gap: float) -> Iterator[Row]:
    """ASPIRE-EASE over every set on made data: the CPU seconds of a run, the part of them that the
    worst weights take, and when each method is near the optimum.
    """
    endless: dict[str, Any] = {"tol": 0.0, "max_rounds": CAP}
    methods = {"ASPIRE-EASE": bf.ASPIRE(**endless), "AsyncDRO": bf.AsyncDRO(**endless)}
    methods |= {"AsyncBundle": bf.AsyncBundle(tol=gap), "Bundle": bf.Bundle(tol=gap)}
    fed = made(clients, seed)
    for name, risk in every_set(clients, seed).items():
        stated = bf.Problem(bf.Logistic(), over_clients=risk, regulariser=bf.L2(0.01))
        level = whole(ext.fit(stated, fed, tol=gap / 10)).certificate.value * (1 + gap)
        workers = Workers(stated, fed, slow={"worker 3": 10.0})
        for label, method in methods.items():
            follow(workers, method, risk, 1.0, seed, points=1)  # imports and kernels, not timed
            run = follow(workers, method, risk, seconds, seed, points=2000)
            yield Row(name, "CPU s", label, run.seconds)
            at = next((each for each in run.points if each.value <= level), None)
            yield Row(name, "virtual s to the gap", label, math.nan if at is None else at.time)
            yield Row(name, "answers to the gap", label, math.nan if at is None else at.answers)
            if label == "ASPIRE-EASE":
                losses = run.points[-1].losses
                worst = timed(lambda r=risk, f=losses: r.worst(f).value)[1]
                checks = run.points[-1].answers / (2 * clients)
                share = checks * worst / run.seconds
                yield Row(name, "share of the worst weights in CPU", label, share)
