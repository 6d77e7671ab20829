"""Rank-based risks: proven gaps of every convex case, rivals, time to a gap, and best-known figures
of the others.

    objective = R(losses of n rows) + mu / 2 ||w||_2^2  or  + mu / 2 ||w||_1
            data: see ``rank_data``

``rank.py convex``: mean, superquantile, extremile and ESRM, logistic and hinge, l2 and l1, at three
sizes: CPU seconds of a whole solve, its certificate included. Targets: relative gaps of 1e-8 (l2)
and 1e-6 (l1), known optima, four times. ``rank.py baselines``: the least objective that each method
found within ``BUDGET`` CPU seconds, tuning not counted, over the proven bound. Target: none is
below RankADMM's, which runs until its proof. ``rank.py curves``: of the same runs the CPU seconds
at which relative excesses are reached. Target: RankADMM is at 1e-6 before the baselines. ``rank.py
ranges``: ranked ranges, both directions, and prospect theory. Target: 1 % over the least objective
known.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import measure
import numpy as np
import rank_data as data

import bonafed as bf
from bonafed.papers.rank.stochastic import tuned
from bonafed.solution.plan import configure

RISKS = {
    "mean": bf.Mean(),
    "superquantile": bf.Superquantile(tail=0.2),
    "extremile": bf.Extremile(2.0),
    "ESRM": bf.ExponentialSpectral(1.0),
}
LINEAR = bf.Linear(fit_intercept=False)
LOSSES = {"logistic": data.LOGISTIC, "hinge": data.HINGE}
REGULARISERS = {"l2": bf.L2(data.MU), "l1": bf.L1(data.MU / 2)}
TOL = {"l2": 1e-9, "l1": 1e-7}  # asked of the method
GAPS = {"l2": 1e-8, "l1": 1e-6}  # targets
SIZES = {"600 x 500": (1000, 500), "1200 x 1000": (2000, 1000), "6000 x 1000": (10_000, 1000)}
SECONDS = {  # (gap, CPU seconds) targets
    ("600 x 500", "superquantile", "logistic", "l2"): (1e-9, 0.3),
    ("6000 x 1000", "superquantile", "logistic", "l2"): (1e-9, 3.0),
    ("600 x 500", "mean", "hinge", "l1"): (1e-6, 5.0),
    ("600 x 500", "superquantile", "hinge", "l1"): (1e-6, 8.0),
}
RIVALS = {"600 x 500": (1000, 500), "12000 x 20": (20_000, 20)}
BUDGET = 2.0  # CPU seconds of every rival, its tuning not counted
PUBLISHED = bf.Growing(1e-5, 1.2)  # the paper's schedule of rho, with its cap of 300 iterations
LEVELS = (1e-2, 1e-4, 1e-6, 1e-8)
WITHIN = 1.01  # of the least objectives known

Targets = measure.Targets


@cache
def rows_of(n_samples: int, n_features: int) -> data.Rows:
    return data.synthetic(n_samples, n_features)


def problem(risk: str, loss: str, g: str) -> bf.Problem:
    return bf.Problem(LOSSES[loss], LINEAR, over_samples=RISKS[risk], regulariser=REGULARISERS[g])


def solved(stated: bf.Problem, rows: data.Rows, **options: Any) -> tuple[float, bf.Solution]:
    """CPU seconds of a solve from the arrays on, and the solution."""
    began = time.process_time()
    solution = bf.solve(stated, rows.federation(), **options)
    return time.process_time() - began, solution


def warm_up() -> None:
    """Have everything compiled."""
    small = data.synthetic(100, 10)
    for loss in LOSSES:
        for g in REGULARISERS:
            for risk in RISKS:
                solved(problem(risk, loss, g), small, tol=1e-9)
    ranged = bf.Problem(
        data.LOGISTIC, LINEAR, over_samples=bf.RankedRange(50, 5), regulariser=bf.L2(1e-2)
    )
    for algorithm in (None, bf.LSVRG(0.01, max_rounds=2), bf.DCA(inner=5, max_rounds=2)):
        bf.solve(ranged, small.federation(), algorithm=algorithm)


# -------------------------------------------------------------------- convex


def convex(targets: Targets) -> None:
    table = []
    for size, shape in SIZES.items():
        rows = rows_of(*shape)
        for loss in LOSSES:
            for g in REGULARISERS:
                for risk in RISKS:
                    table.append(_case(size, rows, risk, loss, g, targets))
    columns = (
        "rows x features",
        "risk",
        "loss",
        "penalty",
        "CPU s",
        "iterations",
        "proven gap",
        "objective",
    )
    measure.show("convex", columns, table)


def _case(size: str, rows: data.Rows, risk: str, loss: str, g: str, targets: Targets) -> tuple:
    key, stated = (size, risk, loss, g), problem(risk, loss, g)
    repeats = 3 if key in SECONDS else 1
    seconds, solution = min(
        (solved(stated, rows, tol=TOL[g]) for _ in range(repeats)), key=lambda run: run[0]
    )
    proof, name = solution.certificate, f"{size}, {risk}, {loss}, {g}"
    gap = np.inf if proof.relative_gap is None else proof.relative_gap
    targets.need(gap <= GAPS[g], f"{name}: proven gap {gap:.1e} <= {GAPS[g]:g}")
    if key in SECONDS:
        least, limit = SECONDS[key]
        targets.need(
            gap <= least and seconds <= limit,
            f"{name}: {seconds:.2f} <= {limit:g} s, gap <= {least:g}",
        )
    known = (
        data.OPTIMA.get((risk, LOSSES[loss], 2 if g == "l2" else 1))
        if size == "600 x 500"
        else None
    )
    if known is not None:  # printed to ten digits after the point
        off = proof.value - known
        held = -1e-10 <= off <= TOL[g] * known + 1e-10 and (proof.bound or 0) <= known + 1e-10
        targets.need(held, f"{name}: {proof.value:.10f} beside the known {known:.10f}")
    return size, risk, loss, g, seconds, solution.state.steps, gap, f"{proof.value:.10f}"


# -------------------------------------------------------------------- rivals


class Trace(NamedTuple):
    """CPU seconds and least objective so far, after every round."""

    seconds: np.ndarray
    values: np.ndarray


def followed(algorithm: Any, stated: bf.Problem, rows: data.Rows, budget: float) -> Trace:
    """A run until it ends or the budget does; the clock starts with the arrays."""
    seconds, values, began = [], [], time.process_time()
    concrete, fed = stated.at(rows.federation())

    def watch(row: dict[str, Any], state: Any) -> None:
        seconds.append(time.process_time() - began)
        values.append(row["objective"])
        if seconds[-1] >= budget:
            raise KeyboardInterrupt  # ends a run after the round

    bf.InProcess().run(
        configure(algorithm, concrete, fed, None, None, None, None), fed, watch=[watch]
    )
    return Trace(np.array(seconds), np.minimum.accumulate(values))


@cache
def rivals(size: str, risk: str, loss: str, g: str) -> tuple[float, dict[str, Trace]]:
    """A proven bound on the optimum, 1e-10 below it at most where that is reached, and the traces
    of all methods.
    """
    rows, stated = rows_of(*RIVALS[size]), problem(risk, loss, g)
    optimum = solved(stated, rows, tol=1e-10)[1].certificate
    assert optimum.bound is not None, "the bound to compare with is missing"
    methods: dict[str, Any] = {
        "RankADMM": bf.RankADMM(tol=1e-9),
        "SmoothedRankADMM": bf.SmoothedRankADMM(tol=1e-9, max_rounds=10**6),
        "RankADMM, Table 6": bf.RankADMM(
            penalty=PUBLISHED, relaxation=1.0, finish=False, max_rounds=30
        ),
        "SmoothedRankADMM, Table 6": bf.SmoothedRankADMM(
            penalty=PUBLISHED, relaxation=1.0, max_rounds=30
        ),
        "SGD": bf.SGD(max_rounds=10**6),
        "LSVRG, uniform": bf.LSVRG(max_rounds=10**6),
        "LSVRG, not uniform": bf.LSVRG(uniform=False, max_rounds=10**6),
        "DCA": bf.DCA(inner=100, max_rounds=10**6),
    }
    traces = {}
    for name, algorithm in methods.items():
        if hasattr(algorithm, "learning_rate"):
            grid = (1.0, 0.1, 0.01) if name == "DCA" else None
            algorithm = tuned(
                algorithm, stated, rows.federation(), grid, rounds=1 if name == "DCA" else 20
            )[0]
            algorithm = replace(algorithm, tol=0.0)
        traces[name] = followed(
            algorithm, stated, rows, 10 * BUDGET if name == "RankADMM" else BUDGET
        )
    if (risk, loss) == ("mean", "logistic"):
        traces |= _scikit_learn(rows, stated, g)
    return optimum.bound, traces


def _scikit_learn(rows: data.Rows, stated: bf.Problem, g: str) -> dict[str, Trace]:
    """LogisticRegression on the same objective: C = 1 / (n mu) or, with l1, 1 / (n mu / 2)."""
    from sklearn.linear_model import LogisticRegression

    strength, fed, traces = REGULARISERS[g].strength, rows.federation(), {}
    for solver in ("lbfgs", "newton-cholesky") if g == "l2" else ("liblinear", "saga"):
        options = {
            "C": 1 / (len(rows.y) * strength),
            "fit_intercept": False,
            "tol": 1e-10,
            "solver": solver,
        }
        model = LogisticRegression(
            **options, l1_ratio=float(g == "l1"), max_iter=1000, random_state=0
        )
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at its cap of iterations
            model.fit(rows.X, rows.y)
        seconds = time.process_time() - began
        traces[f"scikit-learn, {solver}"] = Trace(
            np.array([seconds]), np.array([stated.objective(model.coef_[0], fed)])
        )
    return traces


def _problems() -> list[tuple[str, str, str, str]]:
    kinds = [
        (risk, loss, g)
        for risk in ("mean", "superquantile")
        for loss in LOSSES
        for g in REGULARISERS
    ]
    return [("600 x 500", *kind) for kind in kinds] + [
        ("12000 x 20", *kind) for kind in kinds if kind[2] == "l2"
    ]


def baselines(targets: Targets) -> None:
    table = []
    for key in _problems():
        bound, traces = rivals(*key)
        for name, trace in traces.items():
            excess = (trace.values[-1] - bound) / bound
            table.append(
                (
                    ", ".join(key),
                    name,
                    trace.seconds[-1],
                    f"{trace.values[-1]:.9f}",
                    f"{excess:.1e}",
                )
            )
        best = min(trace.values[-1] for trace in traces.values())
        ours = traces["RankADMM"].values[-1]
        targets.need(
            ours <= best * (1 + 1e-6),
            f"{', '.join(key)}: RankADMM {ours:.9f}, least of all {best:.9f}",
        )
    measure.show("baselines", ("problem", "method", "CPU s", "objective", "excess"), table)


def curves(targets: Targets) -> None:
    table = []
    for key in _problems():
        bound, traces = rivals(*key)
        times = {name: _reached(trace, bound) for name, trace in traces.items()}
        table += [(", ".join(key), name, *reached) for name, reached in times.items()]
        others = [
            reached[2]
            for name, reached in times.items()
            if name.startswith(("SGD", "LSVRG", "DCA"))
        ]
        soonest = min((t for t in others if t is not None), default=None)
        ours = times["RankADMM"][2]
        met = ours is not None and (soonest is None or ours <= soonest)
        targets.need(
            met, f"{', '.join(key)}: excess {LEVELS[2]:g} after {_s(ours)}, baselines {_s(soonest)}"
        )
    columns = ("problem", "method", *(f"s to {level:g}" for level in LEVELS))
    measure.show("curves", columns, table)


def _reached(trace: Trace, bound: float) -> list[float | None]:
    """CPU seconds at which the excess is first below every level; None where it is not."""
    excess = (trace.values - bound) / bound
    return [
        float(trace.seconds[np.argmax(excess <= level)]) if excess[-1] <= level else None
        for level in LEVELS
    ]


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f} s"


# -------------------------------------------------------------------- ranges


def ranges(targets: Targets) -> None:
    table = []
    for case in data.RANGES:
        rows, loss = data.aorr(case.name), type(case.loss).__name__.lower()
        for order, known in (("ascending", case.ascending), ("descending", case.descending)):
            risk = bf.RankedRange(case.k, case.m, order)
            stated = bf.Problem(
                case.loss, LINEAR, over_samples=risk, regulariser=bf.L2(data.MU_RANGE)
            )
            name = f"{case.name}, {loss}, {case.k}/{case.m}, {order}"
            table.append(_beside_known(name, stated, rows, known, targets))
    human = bf.Problem(
        data.LOGISTIC, LINEAR, over_samples=bf.ProspectTheory(), regulariser=bf.L2(data.MU)
    )
    for name, known in data.HUMAN.items():
        rows = data.synthetic(500, 60) if name == "synthetic" else data.human(name)
        table.append(_beside_known(f"{name}, prospect theory", human, rows, known, targets))
    columns = ("case", "CPU s", "starts", "objective", "over the least known", "residuals")
    measure.show("ranges", columns, table)


def _beside_known(
    name: str, stated: bf.Problem, rows: data.Rows, known: float, targets: Targets
) -> tuple:
    seconds, solution = solved(stated, rows)
    value, residuals = solution.certificate.value, solution.certificate.residuals
    targets.need(value <= WITHIN * known, f"{name}: {value:.7g} <= {WITHIN} x {known:.7g}")
    worst = None if residuals is None else f"{residuals.max():.0e}"
    return name, seconds, len(solution.tries), f"{value:.7g}", f"{value / known:.4f}", worst


PARTS: dict[str, Callable[[Targets], None]] = {
    "convex": convex,
    "baselines": baselines,
    "curves": curves,
    "ranges": ranges,
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"parts are {', '.join(PARTS)}, got {', '.join(unknown)}")
    print(f"rank-based risks; {measure.machine('scikit-learn')}\n")
    targets = Targets()
    warm_up()
    for name in names or PARTS:
        PARTS[name](targets)
    targets.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
