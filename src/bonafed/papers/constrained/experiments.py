"""Tables 1, 2 and 4 and Figures 1 and 2, beside optima found by other means.

    (30)  minimise  mean over clients of the mean loss of class 0  subject to
                  every client's mean loss of class 1 <= 0.2
    (32)  minimise  mean over clients of the mean loss  subject to
                  |mean loss of one group - of the other| <= 0.1, at every client and at the server

A trial draws a start on the unit sphere and, where there are several clients, their rows. All
models are measured by ``optima`` and ``lcqp``, which share no code with the methods.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.constrained import TOL, centralised_al, data, lcqp, optima, proximal_al
from bonafed.papers.reproduction import COLOURS, Curve, Row, whole

RISK, GAP = 0.2, 0.1  # r of (30) and of (32)
PROGRAMMED = 0.1  # rho of section 5.2 in the authors' code
STARTS = 4  # of the reference where constraints are not convex
SHAPES = ((100, 1), (300, 3), (500, 5))  # (d, m) of Table 4
OURS, CENTRAL, SECOND = "Algorithm 1", "cProx-AL", "Algorithm 1, rho = 0.1"
WARM = "Algorithm 1, from cProx-AL's multipliers"  # as the authors' program of section E.2
OBJECTIVE, BROKEN = "objective", "feasibility violation"
Measures = dict[str, float]


def neyman_pearson(level: float = RISK) -> bf.Problem:
    """The problem (30), with the loss of class 1 bounded."""
    return bf.Problem(
        bf.Logistic(),
        bf.Linear(fit_intercept=False),  # every encoding has a column of ones
        over_samples=bf.Mean(label=0),
        local_constraint=bf.NeymanPearson(1, level),
    )


def fairness(level: float = GAP) -> bf.Problem:
    """The problem (32)."""
    gap, model = bf.LossGap("group", level), bf.Linear(fit_intercept=False)
    return bf.Problem(bf.Logistic(), model, constraint=gap, local_constraint=gap)


def split(name: str, n_clients: int, seed: int = 0, every: int = 1) -> bf.Federation:
    """A data set of Table 3, with equal shares of both classes at every client."""
    encode = ext.entry(data.DATA, name, "data set")
    found = data.adult(every) if encode is data.adult else encode()
    return data.federation(found, data.stratified(found.y, n_clients, seed))


def _start(d: int, seed: int) -> Array:
    return lcqp.on_sphere(d, ext.stream(seed, "start", 0))


# -- tables ----------------------------------------------------------------------------------------


def table_1(
    seed: int,
    *,
    data: Sequence[str],
    clients: Sequence[int],
    max_rounds: Mapping[str, int],
    every: int,
) -> Iterator[Row]:
    """Neyman-Pearson classification; ``max_rounds`` by data set."""
    for name, n, fed in _splits(data, clients, seed, every):
        program = optima.neyman_pearson(fed, RISK)
        measure = _measure(program, "loss of class 1", program.constrained)
        optimum = optima.solve(program).value
        methods = {
            OURS: proximal_al("5.1", max_rounds=max_rounds[name]),
            "ProximalAL": bf.ProximalAL(max_rounds=max_rounds[name]),
            "InteriorPoint": bf.InteriorPoint(),
        }
        methods = {CENTRAL: centralised_al("5.1"), **methods}
        start = _start(fed.n_features, seed)
        found = _compared(neyman_pearson(), fed, start, methods, measure)
        yield from _rows(f"{name}, n = {n}", found, optimum)


def table_2(
    seed: int, *, data: Sequence[str], clients: Sequence[int], max_rounds: int, every: int
) -> Iterator[Row]:
    """Classification with fairness constraints, which are not convex."""
    for n in clients:
        fed, program = _with_server(n, seed, every)
        measure = _measure(program, "loss disparity", _disparities(program))
        methods = {
            CENTRAL: centralised_al("5.2"),
            OURS: proximal_al("5.2", max_rounds=max_rounds),
            SECOND: proximal_al("5.2", max_rounds=max_rounds, rho=PROGRAMMED),
            "InteriorPoint": bf.InteriorPoint(),
        }
        d, models = fed.n_features, {}
        found = _compared(fairness(), fed, _start(d, seed), methods, measure, models)
        drawn = [_start(d, 1000 * (seed + 1) + k) for k in range(STARTS - 2)]
        best = optima.best(program, [None, *drawn, models["InteriorPoint"]])
        yield from _rows(f"n = {n}", found, best.value)


def table_4(
    seed: int, *, shapes: Sequence[int], clients: Sequence[int], max_rounds: int
) -> Iterator[Row]:
    """Quadratic programs: one instance of each size, whose start a trial draws."""
    for n in clients:
        for d, m in (shape for shape in SHAPES if shape[0] in shapes):
            fed = lcqp.lcqp(d, n, m, seed=0)
            C, offsets = lcqp.rows_of(fed)

            def measure(w: Array, fed: Any = fed, C: Array = C, d: Array = offsets) -> Measures:
                return {OBJECTIVE: lcqp.value(fed, w), BROKEN: float(np.abs(C @ w + d).max())}

            methods: dict[str, Any] = {
                CENTRAL: centralised_al("E.2"),
                OURS: proximal_al("E.2", max_rounds=max_rounds),
                "ProximalAL": bf.ProximalAL(max_rounds=max_rounds),
                "InteriorPoint": bf.InteriorPoint(),
            }
            start, best = _start(d, seed), lcqp.value(fed, lcqp.exact(fed)[0])
            found = _compared(lcqp.LCQP, fed, start, methods, measure)
            ended = replace(methods[CENTRAL], start=start).solve(lcqp.LCQP, fed)
            moved = lcqp.with_multipliers(fed, ended.multipliers)
            found |= _compared(lcqp.LCQP, moved, start, {WARM: methods[OURS]}, measure)
            yield from _rows(f"n = {n}, d = {d}", found, best)


def _splits(
    here: Sequence[str], clients: Sequence[int], seed: int, every: int
) -> Iterator[tuple[str, int, bf.Federation]]:
    for name, encode in data.DATA.items():
        for n in clients if encode.__name__ in here else ():
            yield name, n, split(name, n, seed, every)


def _with_server(n: int, seed: int, every: int) -> tuple[bf.Federation, optima.WeightedLosses]:
    fed = data.with_server(data.adult(every), n, seed)
    return fed, optima.loss_gaps(fed, GAP)


def _disparities(program: optima.WeightedLosses) -> Callable[[Array], Array]:
    """|difference of the groups' losses| of the clients and, last, of the server."""
    return lambda w: np.abs(program.constrained(w)[: len(program.B) // 2])


def _measure(
    program: optima.WeightedLosses, what: str, bounded: Callable[[Array], Array]
) -> Callable[[Array], Measures]:
    def measure(w: Array) -> Measures:
        values = bounded(w)
        of_owners = {f"mean {what}": float(values.mean()), f"largest {what}": float(values.max())}
        return {OBJECTIVE: program.value(w), **of_owners, BROKEN: program.violation(w)}

    return measure


def _compared(
    problem: bf.Problem,
    fed: bf.Federation,
    start: Array,
    methods: Mapping[str, Any],
    measure: Callable[[Array], Measures],
    models: dict[str, Array] | None = None,
) -> dict[str, Measures]:
    """Measures and costs of every method from one start; ``models`` receives the models.

    A run that the cap ended says nothing of how far a method's answer breaks a constraint.
    """
    found = {}
    for name, algorithm in methods.items():
        began, costs, unended = time.process_time(), dict[str, float](), False
        if name == CENTRAL:
            ended = replace(algorithm, start=start).solve(problem, fed)
            costs["outer iterations"] = float(ended.outer)
        else:
            ended = whole(ext.fit(problem, fed, algorithm=algorithm, start=start))
            if "outer" in ended.history[-1]:
                costs["outer iterations"] = float(ended.history[-1]["outer"])
            unended = ended.outcome.stop in {bf.Stop.MAX_ROUNDS, bf.Stop.STALLED}
            costs["rounds"] = math.nan if unended else float(ended.rounds)
            sent = sum(message["bytes"] for message in ended.messages) / 8 / fed.n_clients
            costs["numbers of a client"] = sent
        found[name] = {**measure(ended.w), **costs, "CPU s": time.process_time() - began}
        if unended:
            found[name][BROKEN] = math.nan
        if models is not None:
            models[name] = ended.w
    return found


def _rows(case: str, found: dict[str, Measures], optimum: float) -> Iterator[Row]:
    central = found[CENTRAL][OBJECTIVE]
    for name, measures in found.items():
        reached = measures[OBJECTIVE]
        off = {"distance to the optimum": abs(reached / optimum - 1)}
        if name.startswith(OURS):
            off["relative difference"] = abs(reached - central) / abs(central)
        for figure, value in (measures | off).items():
            yield Row(case, figure, name, value)
    yield Row(case, OBJECTIVE, "optimum", optimum)
    yield Row(case, BROKEN, "eps_2", TOL)


# -- figures ---------------------------------------------------------------------------------------


def figure_1(
    seed: int, *, data: Sequence[str], clients: int, max_rounds: int, every: int
) -> Iterator[Row]:
    """The clients' losses of both classes after every outer iteration."""
    for name, _, fed in _splits(data, [clients], seed, every):
        program, method = (
            optima.neyman_pearson(fed, RISK),
            proximal_al("5.1", max_rounds=max_rounds),
        )
        models = _by_outer(neyman_pearson(), fed, method, _start(fed.n_features, seed))
        yield from _bands(name, OURS, models, program, program.constrained)
        best = optima.solve(program).value
        yield from (Row(name, "objective, mean", "optimum", best, float(k)) for k in (0, 1))


def figure_2(
    seed: int, *, data: Sequence[str], clients: int, max_rounds: int, every: int
) -> Iterator[Row]:
    """The clients' losses and disparities, and the server's, after every outer iteration."""
    fed, program = _with_server(clients, seed, every)
    disparities, start = _disparities(program), _start(fed.n_features, seed)
    for name, changed in ((OURS, {}), (SECOND, {"rho": PROGRAMMED})):
        method = proximal_al("5.2", max_rounds=max_rounds, **changed)
        models = _by_outer(fairness(), fed, method, start)
        yield from _bands("adult-b", name, models, program, lambda w: disparities(w)[:-1])
        for k, w in enumerate(models):
            yield Row("adult-b", "server", name, float(disparities(w)[-1]), float(k))
    best = optima.best(program, [None, start]).value
    yield from (Row("adult-b", "objective, mean", "optimum", best, float(k)) for k in (0, 1))


def _by_outer(
    problem: bf.Problem, fed: bf.Federation, algorithm: bf.ProximalAL, start: Array
) -> list[Array]:
    """The models w^0, w^1, ... of Algorithm 1."""
    method, models = replace(algorithm, problem=problem.at(fed)[0]), [start]

    def watch(row: Mapping[str, Any], state: Any) -> None:
        if row["outer"] == len(models):
            models.append(method.answer(state)[0])

    whole(ext.fit(problem, fed, algorithm=algorithm, start=start, watch=[watch]))
    return models


def _bands(
    case: str,
    method: str,
    models: Sequence[Array],
    program: optima.WeightedLosses,
    bounded: Callable[[Array], Array],
) -> Iterator[Row]:
    """Mean, least and largest over the clients."""
    for k, w in enumerate(models):
        for what, values in ((OBJECTIVE, program.risks(w)), ("feasibility", bounded(w))):
            for which, number in (("mean", np.mean), ("least", np.min), ("largest", np.max)):
                yield Row(case, f"{what}, {which}", method, float(number(values)), float(k))
    last = {"outer iterations": len(models) - 1.0, BROKEN: program.violation(models[-1])}
    for figure, value in (last | {OBJECTIVE: program.value(models[-1])}).items():
        yield Row(case, figure, method, value)


def draw_figure_1(figure: Any, rows: Mapping[tuple[str, str, str], Curve]) -> None:
    """A panel for each data set."""
    cases = list(dict.fromkeys(case for case, *_ in rows))
    axes = figure.subplots(1, len(cases), squeeze=False)[0]
    for at, case in zip(axes, cases, strict=True):
        _draw(at, rows, case, OURS, RISK)
        at.set_title(case)
    _legend(figure, axes[0])


def draw_figure_2(figure: Any, rows: Mapping[tuple[str, str, str], Curve]) -> None:
    """A panel for rho as printed and one for rho as programmed."""
    axes = figure.subplots(1, 2)
    for at, method in zip(axes, (OURS, SECOND), strict=True):
        _draw(at, rows, "adult-b", method, GAP)
        server = rows["adult-b", "server", method]
        at.plot(server.x, server.mean, "-.", color=COLOURS[0], marker=".", label="server")
        at.set_title(method)
    _legend(figure, axes[0])


def _draw(
    at: Any, rows: Mapping[tuple[str, str, str], Curve], case: str, method: str, level: float
) -> None:
    mean = rows[case, f"{OBJECTIVE}, mean", method]
    at.set_xlim(-0.2, max(1.0, mean.x[-1]) + 0.2)
    for what, colour in ((OBJECTIVE, COLOURS[0]), ("feasibility", COLOURS[1])):
        mean, least, largest = (
            rows[case, f"{what}, {which}", method] for which in ("mean", "least", "largest")
        )
        at.plot(mean.x, mean.mean, color=colour, marker=".", label=what)
        at.fill_between(mean.x, least.mean, largest.mean, color=colour, alpha=0.2, linewidth=0)
    best = rows[case, "objective, mean", "optimum"].mean[0]
    at.axhline(best, color=COLOURS[0], linestyle=":", label="optimum")
    at.axhline(level, color="black", linestyle="--", label="threshold")
    at.xaxis.get_major_locator().set_params(integer=True)
    at.set_xlabel("outer iteration")


def _legend(figure: Any, at: Any) -> None:
    figure.legend(*at.get_legend_handles_labels(), loc="outside lower center", ncols=5)


RUN = {
    "table-1": table_1,
    "table-2": table_2,
    "table-4": table_4,
    "figure-1": figure_1,
    "figure-2": figure_2,
}
DRAW = {"figure-1": draw_figure_1, "figure-2": draw_figure_2}
