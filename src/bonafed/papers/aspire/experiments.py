"""The tables and figures of the paper: what `bonafed reproduce aspire/...` runs.

All methods have full gradients and start alike. ASPIRE is `bonafed.ASPIRE`, with step sizes from
the first answers: those of Theorem 1 (`papers.aspire.aspire_ease`) are shown once, in Table V.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.aspire import aspire_ease, sets
from bonafed.papers.aspire.workers import (
    CAP,
    LOADED,
    Followed,
    Seen,
    Workers,
    fashion_mnist,
    follow,
    predicted,
    qmnist,
    scma,
)
from bonafed.papers.reproduction import COLOURS, Curve, Row, whole

ENDLESS: dict[str, Any] = {"tol": 0.0, "max_rounds": CAP}
ACCURACY, LOSS, SPREAD = "Acc_w %", "Loss_w", "Std of accuracies %"
MIX, EASE, CP, PER = "Mix_Even", "ASPIRE-EASE", "ASPIRE-CP", "ASPIRE-EASE_per"
SYNCHRONOUS, DRFA, OWN = "ASPIRE-EASE(-)", "DRFA-Prox", "AsyncDRO"
ASPIRE: dict[str, dict[str, Any]] = {
    MIX: {},
    EASE: {},
    PER: {"local_steps": 5},
    CP: {"drop": False},
    SYNCHRONOUS: {"synchronous": True},
}
OTHERS: dict[str, Any] = {
    "FedAvg": bf.FedAvg(**ENDLESS),
    "AFL": bf.AFL(**ENDLESS),
    DRFA: bf.DRFA(strength=0.1, max_rounds=CAP),
    f"{EASE}, Theorem 1": aspire_ease(**ENDLESS),
    OWN: bf.AsyncDRO(**ENDLESS),
    "Bundle": bf.Bundle(tol=1e-4, max_rounds=CAP),
}
EVEN, OURS = (MIX, "FedAvg"), (OWN, "AsyncBundle", "Bundle")
FACTOR, FACTORS = 0.3, (0.1, 0.3, 1.0)  # of ASPIRE's default kappa


def method(workers: Workers, name: str, seed: int, factor: float) -> Any:
    """A method that does not end by itself; ASPIRE with ``factor`` times its default kappa."""
    if name not in ASPIRE:
        return OTHERS[name]
    problem, fed = replace(workers.problem, over_clients=bf.Simplex()).at(workers.fed)
    default: Any = replace(bf.ASPIRE(), problem=problem)
    first = whole(bf.InProcess().run(default, fed, seed=seed, max_rounds=1)).state
    kappa, n = factor * first.steps.kappa, fed.n_clients
    sizes = {"kappa": kappa, "rho2": kappa / 2, "eta_z": 1 / (n * kappa)}
    return bf.ASPIRE(**ENDLESS, **sizes, **ASPIRE[name])


def ran(
    workers: Workers, name: str, robust: Any, seconds: float, seed: int, *,
    factor: float = FACTOR, **more: Any,
) -> Followed:  # fmt: skip
    """A method's run; those of ``EVEN`` weigh all workers alike."""
    over_clients = bf.Mean() if name in EVEN else robust
    chosen = method(workers, name, seed, factor)
    return follow(workers, chosen, over_clients, seconds, seed, **more)


def all_ran(
    workers: Workers, names: Sequence[str], robust: Any, seconds: float, seed: int, **more: Any
) -> dict[str, Followed]:
    """The runs of several methods, ASPIRE with the kappa of ``FACTORS`` whose worst loss ends
    least.
    """
    tried = {by: ran(workers, EASE, robust, seconds, seed, factor=by, **more) for by in FACTORS}
    best = min(tried, key=lambda by: float(tried[by].last.losses.max()))
    runs = {EASE: tried[best]}
    for name in names:
        if name != EASE:
            runs[name] = ran(workers, name, robust, seconds, seed, factor=best, **more)
    return {name: runs[name] for name in names}


def worst(case: str, method: str, seen: Seen, x: float | None = None) -> Iterator[Row]:
    """The three figures of Table V."""
    yield Row(case, ACCURACY, method, 100 * float(seen.accuracies.min()), x)
    yield Row(case, LOSS, method, float(seen.losses.max()), x)
    yield Row(case, SPREAD, method, 100 * float(seen.accuracies.std()), x)


# ---- Table V: unlike workers


def table_5(
    seed: int, *, data: Sequence[str], rows: int, hidden: Sequence[int], seconds: float
) -> Iterator[Row]:
    """Every method for the same virtual time, nobody slow."""
    names = [MIX, "FedAvg", "AFL", DRFA, EASE, PER, f"{EASE}, Theorem 1", OWN]
    for case in data:
        workers = LOADED[case](seed, rows, tuple(hidden))
        for name, run in all_ran(workers, names, bf.Simplex(), seconds, seed).items():
            yield from worst(case, name, run.last)
            yield Row(case, "CPU s", name, run.seconds)
        if case == "scma":  # one class by itself cannot be learned
            each = [
                ran(replace(workers, fed=workers.fed.restrict(who)), OWN, bf.Mean(), seconds, seed)
                for who in workers.fed.clients
            ]
            best = max((run.last for run in each), key=lambda seen: seen.accuracies.min())
            yield from (row for row in worst(case, "max Ind_j", best) if row.figure != LOSS)


# ---- Table VI: backdoors

PIXELS = (0, 27, 756, 783)  # the corners of an image, nearly always blank
TRIGGERS = {"fashion_mnist": (PIXELS, 1.0, 0), "scma": ((0, 1), 3.0, 1)}  # features, value, target


def table_6(
    seed: int,
    *,
    data: Sequence[str],
    rows: int,
    hidden: Sequence[int],
    seconds: float,
    malicious: int,
    suspicion: float,
) -> Iterator[Row]:
    """Malicious workers put a trigger on rows of others and give them the target's label; the
    prior counts each of them ``suspicion`` times as much as an honest one.
    """
    for case in data:
        honest = LOADED[case](seed, rows, tuple(hidden))
        workers = attacked(honest, case, malicious, seed)
        n = workers.fed.n_clients
        bad = np.arange(n) >= n - malicious
        prior = np.where(bad, suspicion, 1.0)
        prior /= prior.sum()
        caps = prior * np.where(bad, 0.1, 1.0)
        anything = bf.CDNorm(
            2.0, 1.0, prior
        )  # all weights, pulled to the prior where a method pulls
        held, simplex = bf.CDNorm(float(n), caps, prior), bf.Simplex()
        risks = {"Mix_Even": simplex, "FedAvg": simplex, "AFL": simplex, DRFA: anything}
        risks |= {EASE: held, f"{EASE}, no caps": anything, OWN: held, f"{OWN}, no caps": anything}
        for name, risk in risks.items():
            run = ran(workers, name.removesuffix(", no caps"), risk, seconds, seed)
            yield Row(case, "attack success %", name, 100 * success(workers, run.w, case))
            yield Row(case, "clean Acc_w %", name, 100 * float(run.last.accuracies.min()))


def attacked(workers: Workers, case: str, malicious: int, seed: int) -> Workers:
    """The workers and as many malicious ones, whose rows are drawn from all of theirs."""
    rng, fed = np.random.default_rng([seed, 2]), workers.fed
    X, size = np.concatenate(list(fed.X)), int(fed.sizes.mean())
    classes = np.asarray(ext.classes_of(fed))
    target = classes[TRIGGERS[case][2]]
    added = [marked(X[rng.permutation(len(X))[:size]], case) for _ in range(malicious)]
    labels = [np.full(len(part), target) for part in added]
    names = (*fed.clients, *(f"malicious {i}" for i in range(malicious)))
    both = bf.Federation(names, (*fed.X, *added), (*fed.y, *labels), classes=classes)
    return replace(workers, fed=both)


def marked(X: Array, case: str) -> Array:
    """The rows with the trigger on them."""
    places, value, _ = TRIGGERS[case]
    marked = np.array(X, float)
    marked[:, list(places)] = value
    return marked


def success(workers: Workers, w: Array, case: str) -> float:
    """The share of held-out rows of other classes that the trigger turns into the target."""
    test = workers.test
    assert test is not None
    classes = np.asarray(ext.classes_of(test))
    target = classes[TRIGGERS[case][2]]
    X, y = np.concatenate(list(test.X)), np.concatenate(list(test.y))
    other = y != target
    rows = bf.Federation(("test",), (marked(X[other], case),), (y[other],), classes=classes)
    return float((predicted(workers.problem, w, rows)[0] == target).mean())


# ---- Figure 5: waiting for all or for one


def figure_5(
    seed: int, *, data: Sequence[str], rows: int, end: float, late: Sequence[float], points: int
) -> Iterator[Row]:
    """Three workers with trips of ten seconds; the third is away nine tenths of some time."""
    workers = fashion_mnist(seed, rows, ())
    who = workers.fed.names[2]
    away = [(at, at + 90.0) for at in np.arange(late[0], late[1], 100.0).tolist()]
    clock: dict[str, Any] = {"delays": bf.LogNormal(0.1, 0.0, 0.0, 10.0), "outages": {who: away}}
    rules = {
        "ASPIRE-ADP": (EASE, bf.Adaptive(1, centre="mean")),
        "ASPIRE-ADP, (36) as printed": (EASE, bf.Adaptive(1, centre="mean", as_printed=True)),
        "ASPIRE-EASE, S = 1": (EASE, bf.First(1)),
        "ASPIRE-EASE, S = N": (EASE, bf.First(3)),
        OWN: (OWN, bf.First(1)),
    }
    runs = {
        name: ran(workers, method, bf.Simplex(), end, seed, wait=wait, points=points, **clock)
        for name, (method, wait) in rules.items()
    }
    for name, run in runs.items():
        before = Seen(0.0, 0, 0, 0, math.nan, *[np.zeros(0)] * 3)
        for last, seen in zip([before, *run.points], run.points[:-1], strict=False):
            at = math.ceil(seen.time / (end / points)) * end / points
            active = (seen.answers - last.answers) / max(seen.rounds - last.rounds, 1)
            yield Row("S", "active workers", name, active, at)
            yield Row("fashion_mnist", LOSS, name, float(seen.losses.max()), at)
    yield from arrivals("fashion_mnist", runs, 3)


# ---- Figures 6 and 7: Gamma


def gamma(
    seed: int, *, data: Sequence[str], rows: int, hidden: Sequence[int], seconds: float,
    budgets: Sequence[float],
) -> Iterator[Row]:  # fmt: skip
    """The worst worker over budgets, as shares of N; each weight at most 1/N from 1/N."""
    for case in data:
        workers = LOADED[case](seed, rows, tuple(hidden))
        n = workers.fed.n_clients
        for name, share in ((name, share) for name in (EASE, OWN) for share in budgets):
            run = ran(workers, name, bf.CDNorm(share * n, 1 / n), seconds, seed)
            yield from worst(case, name, run.last, share)
            if share in (0, 1):
                yield from worst(case, f"{name}, Gamma = {'N' if share else 0}", run.last)


# ---- Figures 8 to 11: time and planes


def convergence(
    seed: int, *, data: Sequence[str], rows: int, hidden: Sequence[int], seconds: float,
    factor: float, points: int, bundle_answers: int,
) -> Iterator[Row]:  # fmt: skip
    """The worst worker against virtual time, one worker slow by a factor."""
    names = ["AFL", DRFA, CP, SYNCHRONOUS, EASE, OWN]
    for case in data:
        workers = LOADED[case](seed, rows, tuple(hidden)).stragglers(1, factor, seed)
        runs = all_ran(workers, names, bf.Simplex(), seconds, seed, points=points)
        yield from shown(case, runs, workers, seconds, points)
        if case == "scma":  # convex, and few coefficients
            linear = scma(seed, rows, ()).stragglers(1, factor, seed)
            runs = all_ran(linear, [*names, "Bundle"], bf.Simplex(), seconds, seed, points=points)
            bundle = bf.AsyncBundle(tol=1e-4, max_rounds=bundle_answers)
            runs["AsyncBundle"] = follow(linear, bundle, bf.Simplex(), seconds, seed, points=points)
            yield from shown(f"{case}, softmax", runs, linear, seconds, points)


def shown(
    case: str, runs: Mapping[str, Followed], workers: Workers, seconds: float, points: int
) -> Iterator[Row]:
    """The curves of all runs and when each is near."""
    for name, run in runs.items():
        for at, seen in on_grid(run, seconds, points):
            yield from worst(case, name, seen, at)
    yield from arrivals(case, runs, len(ext.classes_of(workers.fed)))


def on_grid(run: Followed, seconds: float, points: int) -> Iterator[tuple[float, Seen]]:
    """The last evaluation at every point of a grid of times."""
    for at in (np.arange(1, points + 1) * seconds / points).tolist():
        known = [seen for seen in run.points if seen.time <= at]
        if known:
            yield at, known[-1]


WAYS = {"half": 0.5, "nine tenths": 0.9}


def arrivals(case: str, runs: Mapping[str, Followed], classes: int) -> Iterator[Row]:
    """When each method's worst loss has come half, and nine tenths, of the way from that of
    guessing to the least that a method of the paper reached; and what it has at the end.
    """
    guess = math.log(classes)
    theirs = (run for name, run in runs.items() if name not in OURS)
    least = min(float(seen.losses.max()) for run in theirs for seen in run.points)
    for name, run in runs.items():
        for way, share in WAYS.items():
            level = guess - share * (guess - least)
            at = next((seen for seen in run.points if seen.losses.max() <= level), None)
            yield Row(case, f"virtual s, {way}", name, math.nan if at is None else at.time)
            yield Row(case, f"iterations, {way}", name, math.nan if at is None else at.rounds)
            yield Row(case, f"answers, {way}", name, math.nan if at is None else at.answers)
        yield Row(case, f"{LOSS} at the end", name, float(run.last.losses.max()))
        yield Row(case, f"{ACCURACY} at the end", name, 100 * float(run.last.accuracies.min()))
        yield Row(case, "CPU s", name, run.seconds)


def planes(
    seed: int, *, data: Sequence[str], rows: int, hidden: Sequence[int], seconds: float,
    factor: float, points: int,
) -> Iterator[Row]:  # fmt: skip
    """The number of cutting planes over iterations, EASE and CP; CD-norm with Gamma = N / 2."""
    for case in data:
        workers = LOADED[case](seed, rows, tuple(hidden))
        late, n = workers.stragglers(1, factor, seed), workers.fed.n_clients
        robust = bf.CDNorm(n / 2, np.linspace(0.5, 1.0, n) / n)
        for name in (CP, EASE, OWN):
            run = ran(late, name, robust, seconds, seed, points=points)
            if name != OWN:
                for k, seen in enumerate(run.points[:-1]):
                    yield Row(case, "planes", name, seen.planes, float(k + 1) / points)
                yield Row(case, "planes at the end", name, run.last.planes)
            yield Row(case, f"{LOSS} at the end", name, float(run.last.losses.max()))
            yield Row(case, "CPU s", name, run.seconds)


# ---- Figure 12: a thousand workers


def figure_12(
    seed: int, *, data: Sequence[str], workers: int, rows: int, slow: int, seconds: float,
    points: int, first: int,
) -> Iterator[Row]:  # fmt: skip
    """Test loss and accuracy against virtual time, asynchronous and not."""
    made = qmnist(seed, workers, rows, slow)
    assert made.test is not None
    half = bf.CDNorm(workers / 2, 1 / workers)
    runs = {
        EASE: ran(made, EASE, half, seconds, seed, points=points, wait=bf.First(first)),
        SYNCHRONOUS: ran(made, SYNCHRONOUS, half, seconds, seed, points=points),
        OWN: ran(made, OWN, half, seconds, seed, points=points, wait=bf.First(first)),
    }
    for name, run in runs.items():
        for at, seen in on_grid(run, seconds, points):
            yield Row("qmnist", "test accuracy %", name, 100 * float(seen.accuracies[0]), at)
            yield Row("qmnist", "test loss", name, float(seen.held[0]), at)
        yield Row("qmnist", "test accuracy % at the end", name, 100 * float(run.last.accuracies[0]))
        yield Row("qmnist", "test loss at the end", name, float(run.last.held[0]))
        half_right = (seen.time for seen in run.points if seen.accuracies[0] >= 0.5)
        yield Row("qmnist", "virtual s to 50 %", name, next(half_right, math.nan))
        yield Row("qmnist", "CPU s", name, run.seconds)


RUN = {
    "table-2": sets.table_2,
    "table-4": sets.table_4,
    "table-5": table_5,
    "table-6": table_6,
    "figure-1": sets.complexity,
    "figure-2": sets.complexity,
    "figure-5": figure_5,
    "figure-6": gamma,
    "figure-7": gamma,
    "figure-8": convergence,
    "figure-9": convergence,
    "figure-10": planes,
    "figure-11": planes,
    "figure-12": figure_12,
}


# ---- pictures


def drawn(
    canvas: Any, rows: Mapping[tuple[str, str, str], Curve], *, panels: Sequence[tuple[str, str]],
    across: str, scale: str = "linear",
) -> None:  # fmt: skip
    """Curves over ``across``, a panel for each (case, figure) that was run; bands are intervals."""
    here = [panel for panel in panels if any(key[:2] == panel for key in rows)]
    names = dict.fromkeys(key[2] for key in rows if key[:2] in here)
    colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}
    axes = np.ravel(canvas.subplots(1, max(len(here), 1)))
    for axis, panel in zip(axes, here, strict=False):
        for name in names:
            points = rows.get((*panel, name))
            if points is None or not np.isfinite(points.x).any():
                continue
            dash = "-" if list(names).index(name) < len(COLOURS) else "--"
            axis.plot(points.x, points.mean, dash, color=colours[name], label=name, lw=1.4)
            axis.fill_between(points.x, points.low, points.high, color=colours[name], alpha=0.15)
        axis.set(xlabel=across, ylabel=panel[1], title=panel[0], xscale=scale, yscale=scale)
        means = np.concatenate([line.get_ydata() for line in axis.lines])
        if scale == "linear" and np.isfinite(means).any():  # ranges may be far wider
            low, high = np.nanmin(means), np.nanmax(means)
            axis.set_ylim(low - 0.1 * (high - low) - 1e-3, high + 0.1 * (high - low) + 1e-3)
    max(axes, key=lambda axis: len(axis.lines)).legend(fontsize=7)


SETS = [(f"m = {m}", "operations") for m in (1, 5)] + [("oracles of bonafed", "CPU s")]
COMPLEXITY = partial(drawn, panels=SETS, across="workers", scale="log")
SECONDS = "virtual seconds"
GAMMA = partial(
    drawn, panels=[(case, name) for case in LOADED for name in (ACCURACY, LOSS)], across="Gamma / N"
)
TIMES = partial(
    drawn, panels=[(case, ACCURACY) for case in (*LOADED, "scma, softmax")], across=SECONDS
)
PLANES = partial(
    drawn, panels=[(case, "planes") for case in LOADED], across="share of the virtual time"
)
DRAW = {
    "figure-1": COMPLEXITY,
    "figure-2": COMPLEXITY,
    "figure-5": partial(
        drawn, panels=[("S", "active workers"), ("fashion_mnist", LOSS)], across=SECONDS
    ),
    "figure-6": GAMMA,
    "figure-7": GAMMA,
    "figure-8": TIMES,
    "figure-9": TIMES,
    "figure-10": PLANES,
    "figure-11": PLANES,
    "figure-12": partial(
        drawn, panels=[("qmnist", "test loss"), ("qmnist", "test accuracy %")], across=SECONDS
    ),
}
