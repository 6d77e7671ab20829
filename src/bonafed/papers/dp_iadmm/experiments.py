"""Table 1, Figures 1 to 6, Remark 3 and the first point of section 4, beside what each adds up to.

The paper states an epsilon of *one* iteration, with noise scaled by the data at hand, (20): models
of its methods carry no guarantee. ``total`` is what an epsilon would add up to over all rounds if
every iteration kept it, and `PrivateSGD` is run within the same total. All of it is in double
precision. Where the environment names a folder BONAFED_CHECKPOINTS, a run is kept there and goes
on from there when it is asked for again.
"""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import load
from bonafed.extending import Array
from bonafed.papers.dp_iadmm import obj_p, obj_t, out_p, out_p_printed
from bonafed.papers.dp_iadmm.published import DELTA, DEVIATION
from bonafed.papers.reproduction import COLOURS, Curve, Row, whole

CLIENTS, ROWS = 10, 6000  # of MNIST
RIDGE = 1e-6  # beta of r(w) = sum w^2, A.8
MIDDLE = 0.5  # of a pixel's range, which is public
MOST = 1e4  # epsilon of a budget at most; more is no privacy
SAVED = 200  # rounds between two checkpoints
BY = "test error % by epsilon"
ERROR, EARLY = "test error %", "test error % after a tenth of the rounds"
NOISE, GAP, TOTAL = "mean noise", "consensus violation", "total epsilon at delta 1e-6"
FIELDS = {ERROR: "error", NOISE: "noise", GAP: "violation"}
OURS = "PrivateSGD", "PrivateSGD, total epsilon 1"
WORDS: dict[str, Callable[..., Any]] = {
    "ObjT": obj_t,
    "ObjT, constant radius": partial(obj_t, radius="constant"),
    "ObjP": obj_p,
    "OutP": out_p_printed,
    "OutP+": partial(out_p_printed, scale=0.01),
}


def varied(name: str, **changes: float) -> Callable[..., Any]:
    """A method of ``WORDS`` with other settings."""
    return lambda *given: replace(WORDS[name](*given), **changes)


PENALTIES = {
    **{f"rho {rho:g}": varied("OutP", rho=rho) for rho in (0.1, 1.0, 10.0)},
    **{"rho (21)": WORDS["OutP"], "rho (21) / 100": WORDS["OutP+"]},
}
FACTORS = {
    f"{name}, a = {a}": varied(name, scaling=float(a))
    for a in (1, 100, 1000)
    for name in ("ObjT", "ObjP", "OutP")
}
CODED = "OutP, as programmed"
MAIN = "ObjT", "ObjT, constant radius", "ObjP", "OutP"


# ------------------------------------------------------------------------------- data and problem


class Split(NamedTuple):
    """The clients' training rows, and test rows that no client holds."""

    fed: bf.Federation
    X: Array  # (n, d)
    y: NDArray[np.intp]  # (n,)

    def error(self, w: Array) -> float:
        """The share of the test rows that the model w (D,) gets wrong."""
        return float(((self.X @ w.reshape(self.X.shape[1], -1)).argmax(1) != self.y).mean())


def mnist(rows: int = ROWS) -> Split:
    """10 clients with the first ``rows`` of 6,000 images each, in the order of the file, and all
    test images.
    """
    train, test = load.mnist("train"), load.mnist("test")
    each = len(train.y) // CLIENTS
    parts = [slice(each * i, each * i + rows) for i in range(CLIENTS)]
    names = tuple(f"client {i}" for i in range(CLIENTS))
    Xs, ys = tuple(train.X[a] for a in parts), tuple(train.y[a] for a in parts)
    fed = bf.Federation(names, Xs, ys, classes=np.arange(10))
    return Split(fed, test.X, np.asarray(test.y, np.intp))


def femnist(clients: int | None = None) -> Split:
    """The first ``clients`` of 114 writers, by default all, and the test images of all 195."""
    fed, test = load.femnist("train"), load.femnist("test")
    fed = bf.Federation(
        fed.clients[:clients], fed.X[:clients], fed.y[:clients], classes=fed.classes
    )
    return Split(fed, np.concatenate(test.X), np.concatenate(test.y).astype(np.intp))


SPLITS: dict[str, Callable[[int], Split]] = {"mnist": mnist, "femnist": femnist}


def problem(budget: bf.Budget | None = None) -> bf.Problem:
    """(1) with the loss and the ridge of A.8; every row has the same weight."""
    loss, model, ridge = bf.Multinomial(), bf.Softmax(fit_intercept=False), bf.L2(2 * RIDGE)
    return bf.Problem(loss, model, over_clients=bf.Mean("size"), regulariser=ridge, privacy=budget)


# ----------------------------------------------------------------------------------------- curves


@dataclass(frozen=True)
class Point:
    """The numbers after a round."""

    error: float  # % of the test rows, of w^{t+1}
    violation: float  # sum_p ||w - z_p||_1, A.10
    noise: float  # mean |xi| over clients and entries, as expected


def follow(
    algorithm: ext.Method, split: Split, seed: int, rounds: Iterable[int], name: str = ""
) -> dict[int, Point]:
    """The numbers of one run after some of its rounds; ``name`` is that of its checkpoint."""
    marks, points = set(rounds), dict[int, Point]()
    folder = os.environ.get("BONAFED_CHECKPOINTS")
    file = f"{name}-{seed}".replace(" ", "_").replace("/", "over")
    kept = Path(folder, file) if folder and name else None
    seen = kept and kept.with_name(f"{kept.name}.json")
    if resume := bool(kept and kept.exists()):
        assert seen is not None
        points = {int(t): Point(*given) for t, given in json.loads(seen.read_text()).items()}

    def note(row: Mapping[str, Any], state: Any) -> None:
        if (t := row["round"]) in marks:
            points[t] = Point(100 * split.error(state.w), row["gap"], row["noise"])
        if seen and (t in marks or t == 1):
            told = {t: [p.error, p.violation, p.noise] for t, p in points.items()}
            seen.write_text(json.dumps(told))

    def watch(row: Mapping[str, Any], state: Any) -> None:
        try:
            note(row, state)
        except KeyboardInterrupt:
            note(row, state)  # the round is finished, and the checkpoint has it
            raise

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no guarantee, which ``total`` says
        engine = bf.InProcess(checkpoint=kept, every=SAVED)
        given = {"algorithm": algorithm, "engine": engine, "watch": [watch], "seed": seed}
        whole(ext.fit(problem(), split.fed, resume=resume, **given))
    return {t: points.get(t, Point(*[math.nan] * 3)) for t in sorted(marks)}


def method(name: str, epsilon: float, rounds: int, split: Split) -> Any:
    """A method of the paper with an epsilon of one iteration; infinite epsilon adds no noise."""
    assert split.fed.classes is not None
    data = "mnist" if len(split.fed.classes) == 10 else "femnist"
    if name == CODED:
        sizes = int(split.fed.sizes.max()), split.fed.n_clients
        return out_p(epsilon, rounds, *sizes, data)
    return (WORDS | PENALTIES | FACTORS)[name](epsilon, rounds, data)


def total(name: str, epsilon: float, rounds: int) -> float:
    """The total epsilon at delta = 1e-6 if every iteration kept its epsilon, or for OutP its
    (epsilon, 1e-6).

    ObjT and ObjP as the worst pure mechanism, OutP as Gaussian noise calibrated to the exchange of
    a row, whose sensitivity is twice the largest gradient.
    """
    kind = ("laplace", 1 / epsilon), ("gaussian", DEVIATION / 2 / epsilon)
    return ext.total_epsilon((ext.Release(*kind[name.startswith(("OutP", "rho"))], rounds),), DELTA)


def ours(split: Split, epsilon: float, rounds: int, seed: int) -> tuple[float, float]:
    """The test error in % of `PrivateSGD` within (epsilon, 1e-6), and its ledger's epsilon; pixels
    are centred at the middle of their range, rows scaled to length 1.
    """
    fed = replace(split.fed, X=tuple(ext.unit_rows(X, MIDDLE) for X in split.fed.X))
    budget = bf.Budget(epsilon, DELTA)
    algorithm = bf.PrivateSGD(max_rounds=rounds, bound=1.0, noise="simulation")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the noise is simulated
        solution = whole(ext.fit(problem(budget), fed, algorithm=algorithm, seed=seed))
    assert solution.ledger is not None
    scaled = split._replace(X=ext.unit_rows(split.X, MIDDLE))
    return 100 * scaled.error(solution.w), float(solution.ledger.epsilon or 0)


def case_of(data: str, epsilon: float) -> str:
    """The case of a data set with this epsilon."""
    noise = f"epsilon {epsilon:g}" if math.isfinite(epsilon) else "no noise"
    return f"{data.upper()}, {noise}"


def curves(
    split: Split,
    case: str,
    seed: int,
    name: str,
    epsilon: float,
    rounds: int,
    fields: Sequence[str],
) -> Iterator[Row]:
    """A method's curves, their last points, and what its epsilon adds up to."""
    tenth = max(rounds // 10, 1)
    marks = {tenth, rounds, *np.geomspace(1, rounds, 40).astype(int).tolist()}
    label = f"{case}-{name}-{rounds}-{split.fed.sizes.sum()}"
    points = follow(method(name, epsilon, rounds, split), split, seed, marks, label)
    for field in fields:
        for t in points:
            yield Row(case, field, name, getattr(points[t], FIELDS[field]), float(t))
        yield Row(case, field, name, getattr(points[rounds], FIELDS[field]))
    yield Row(case, EARLY, name, points[tenth].error)
    if math.isfinite(epsilon):
        yield Row(case, TOTAL, name, total(name, epsilon, rounds))


def beside(
    split: Split, case: str, seed: int, epsilon: float, rounds: int, own_rounds: int
) -> Iterator[Row]:
    """Our own method within the total of ObjT, or 10,000 at most, and within 1."""
    for name, allowed in zip(OURS, (min(total("ObjT", epsilon, rounds), MOST), 1.0), strict=True):
        error, spent = ours(split, allowed, own_rounds, seed)
        yield Row(case, ERROR, name, error)
        yield Row(case, TOTAL, name, spent)


# ------------------------------------------------------------------------------------ experiments


def table_1(seed: int, *, data: Sequence[str]) -> Iterator[Row]:
    """The sizes of the data sets."""
    for name in data:
        fed = SPLITS[name]().fed  # type: ignore[call-arg]
        sizes = np.asarray(fed.sizes)
        told = {
            "rows": sizes.sum(),
            "features": fed.X[0].shape[1],
            "classes": len(fed.classes),
            "agents": len(sizes),
            "rows of an agent, mean": sizes.mean(),
            "rows of an agent, deviation": sizes.std(),
        }
        for figure, value in told.items():
            yield Row(name.upper(), figure, "data", float(value))


def rounds_figure(
    seed: int,
    *,
    data: Sequence[str],
    size: Mapping[str, int],
    rounds: int,
    epsilons: Sequence[float],
    own_rounds: int = 0,
    methods: Sequence[str] = (*MAIN, CODED),
    fields: Sequence[str] = (ERROR, NOISE),
) -> Iterator[Row]:
    """Curves by round of the methods for each data set and epsilon; ``size``: rows of a client of
    MNIST, clients of FEMNIST.
    """
    for name in data:
        split = SPLITS[name](size[name])
        for epsilon in epsilons:
            case = case_of(name, epsilon)
            for each in methods:
                yield from curves(split, case, seed, each, epsilon, rounds, fields)
            if own_rounds and math.isfinite(epsilon):
                yield from beside(split, case, seed, epsilon, rounds, own_rounds)


def figure_2(seed: int, *, data: Sequence[str], **settings: Any) -> Iterator[Row]:
    """The last points again, by epsilon."""
    later: list[Row] = []
    for row in rounds_figure(seed, data=data, fields=(ERROR,), methods=MAIN, **settings):
        if row.x is not None:
            continue
        yield row
        name, _, epsilon = row.case.partition(", epsilon ")
        if row.figure == ERROR and epsilon and row.method not in OURS:
            later.append(Row(name, ERROR, row.method, row.value, float(epsilon)))
            later.append(Row(f"{name}, {row.method}", BY, f"epsilon {epsilon}", row.value))
    yield from later


def figure_5(seed: int, *, rounds: int, **settings: Any) -> Iterator[Row]:
    """Violation and error, and the violation at the end beside that after a tenth."""
    methods, later = (*MAIN, "OutP+"), list[Row]()
    for row in rounds_figure(seed, rounds=rounds, methods=methods, fields=(ERROR, GAP), **settings):
        yield row
        if row.figure == GAP and row.x in (max(rounds // 10, 1), rounds):
            when = "at the end" if row.x == rounds else "after a tenth of the rounds"
            later.append(Row(f"{row.method}, {row.case.partition(', ')[2]}", GAP, when, row.value))
    yield from later


def point(seed: int, *, methods: Sequence[str], **settings: Any) -> Iterator[Row]:
    """The last points of some methods."""
    rows = rounds_figure(seed, methods=methods, fields=(ERROR, GAP), **settings)
    return (row for row in rows if row.x is None)


RUN: dict[str, Callable[..., Iterable[Row]]] = {
    "table-1": table_1,
    "section-4": point,
    "figure-1": rounds_figure,
    "figure-2": figure_2,
    "figure-3": partial(rounds_figure, methods=MAIN, fields=(ERROR,)),
    "figure-4": partial(rounds_figure, methods=tuple(PENALTIES), fields=(ERROR,)),
    "figure-5": figure_5,
    "figure-6": partial(rounds_figure, methods=tuple(FACTORS), fields=(ERROR,)),
    "remark-3": point,
}


# ---------------------------------------------------------------------------------------- figures

Curves = Mapping[tuple[str, str, str], Curve]
Panel = tuple[str, str]  # of its row, of its column


def drawn(
    figure: Any, curves: Curves, place: Callable[[str, str, str], Panel] | None = None
) -> None:
    """Panels of curves; ``place`` gives the row and the column of (case, figure, method)."""
    panels: dict[Panel, dict[str, Curve]] = {}
    for key, curve in curves.items():
        if len(curve.x) > 1:
            panel = (key[1], key[0]) if place is None else place(*key)
            panels.setdefault(panel, {})[key[2].partition(", a =")[0]] = curve
    rows, columns = (list(dict.fromkeys(panel[k] for panel in panels)) for k in (0, 1))
    methods = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    figure.set_size_inches(7.2, 0.8 + 2.0 * len(rows))
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col", sharey="row")
    for (row, column), named in panels.items():
        at = axes[rows.index(row), columns.index(column)]
        for name, curve in named.items():
            known = np.isfinite(curve.x)
            x, colour = curve.x[known], COLOURS[methods.index(name)]
            at.plot(x, curve.mean[known], color=colour, label=name)
            at.fill_between(x, curve.low[known], curve.high[known], color=colour, alpha=0.2, lw=0)
        at.set_xscale("log")
        at.set_yscale("log" if row in (NOISE, GAP) else "linear")
    for k, row in enumerate(rows):
        axes[k, 0].set_ylabel(row)
    for k, column in enumerate(columns):
        axes[0, k].set_title(column, fontsize="medium")
        axes[-1, k].set_xlabel("round" if "epsilon" in column else "epsilon of one iteration")
    lines = {line.get_label(): line for one in axes.flat for line in one.get_lines()}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=3)


def by_data(case: str, field: str, method: str) -> Panel:
    """A row for each data set, a column for each epsilon."""
    data, _, epsilon = case.partition(", ")
    return f"{data}: {field}", epsilon


def by_factor(case: str, field: str, method: str) -> Panel:
    """A row for each a, a column for each epsilon."""
    return f"{field}, a ={method.partition(', a =')[2]}", case


DRAW: dict[str, Callable[[Any, Curves], None]] = {
    **{f"figure-{k}": drawn for k in (1, 2, 3, 5)},
    "figure-4": partial(drawn, place=by_data),
    "figure-6": partial(drawn, place=by_factor),
}
