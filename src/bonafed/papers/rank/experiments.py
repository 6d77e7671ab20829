"""The tables and figures of the paper, one function for each.

    minimise over w:  sum_i sigma_i l_[i](-y <w, x>) + mu / 2 ||w||_2^2   or   + mu / 2 ||w||_1

A trial is one seed of the split, of minibatches and of drawn rows. What the paper does not state
is what its printed optima single out: every feature has mean 0 and variance 1 on all rows before
the split, and real data then get a column of ones, whose coefficient is penalised as the others.
(Without it a superquantile of SVMguide is least at w = 0, and the paper prints less.)
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

import bonafed as bf
from bonafed.data import load
from bonafed.extending import Array
from bonafed.papers.rank import PENALTY, dca, lsvrg, rank_admm, sgd, smoothed_rank_admm
from bonafed.papers.rank.stochastic import tuned
from bonafed.papers.reproduction import COLOURS, Curve, Row, whole

TITLES = {"svmguide1": "SVMguide", "advertisements": "AD", "monks_3": "Monks"}
TITLES |= {name: name.capitalize() for name in ("australian", "phoneme", "titanic", "splice")}
SIZES = {"1": (1000, 500), "2": (2000, 1000), "3": (5000, 1000), "4": (10_000, 1000)}  # Table 10
DRAWN = 17  # the seed of these tables, which the paper does not state
RANGES = {  # k and m of Tables 8 (logistic loss) and 9 (hinge loss)
    ("monks_3", "logistic"): (70, 20),
    ("monks_3", "hinge"): (70, 45),
    ("phoneme", "logistic"): (1400, 100),
    ("phoneme", "hinge"): (1400, 410),
    **{("australian", loss): (80, 3) for loss in ("logistic", "hinge")},
    **{("titanic", loss): (500, 10) for loss in ("logistic", "hinge")},
    **{("splice", loss): (450, 50) for loss in ("logistic", "hinge")},
}
RATES = {  # the bold ones of Table 7: LSVRG(NU), LSVRG(U), SGD; None is 1 over the rows
    ("logistic", "l2"): (1e-3, 1e-3, 1e-2),
    ("hinge", "l2"): (1e-3, None, 1e-3),
    ("logistic", "l1"): (1e-3, 1e-3, 1e-2),
    ("hinge", "l1"): (1e-4, 1e-4, 1e-3),
}
LOSSES = {"logistic": bf.Logistic(), "hinge": bf.Hinge()}
BOTH = tuple(LOSSES)
STOCHASTIC = ("LSVRG(NU)", "LSVRG(U)", "SGD")
SLOWER = "ADMM, slower rho"  # grows as Table 6 has it for EHRM
CONVEX = ("ADMM", *STOCHASTIC, "RankADMM", SLOWER)
SMOOTHED = ("ADMM", "sADMM", *STOCHASTIC, "RankADMM", SLOWER)
RANGED = ("ADMM", "DCA", *STOCHASTIC, "RankADMM")
LEVELS = (1e-2, 1e-4, 1e-6)  # of the sub-optimality
LEAST = 1e-8  # where the paper truncates its plots


class Rows(NamedTuple):
    """The rows to train on, of one owner, and those held out."""

    fed: bf.Federation
    X: Array
    y: Array  # -1, +1


class Effort(NamedTuple):
    """How long methods run."""

    epochs: int = 0  # of SGD and LSVRG
    tuning: int = 0  # their epochs at each learning rate of the grid
    inner: int = 0  # of DCA; 0: as the paper has it
    tol: float = 1e-6  # of our method


@dataclass(frozen=True)
class Task:
    """A row of a table: which data, risk, loss and penalty."""

    data: str
    risk: str
    loss: str = "logistic"
    penalty: str = "l2"
    order: Any = "ascending"  # of the ranks of a ranged risk

    @property
    def case(self) -> str:
        return f"{TITLES.get(self.data, self.data)}, {self.loss}"

    @property
    def framework(self) -> str:
        return self.risk if self.risk in PENALTY else "SRM"

    def rows(self, seed: int, most: int = 0) -> Rows:
        """The split of a seed; ``most``: rows to train on, 0 for all."""
        real = self.data in TITLES
        X, y = getattr(load, self.data)()[:2] if real else drawn(self.data, seed)
        half = real and self.risk == "AoRR"
        return split(X, y, seed, 0.5 if half else 0.6, stratified=half, ones=real, most=most)

    def problem(self, fed: bf.Federation) -> bf.Problem:
        """What is minimised over the rows of one owner."""
        n = len(fed.y[0])
        mu = 1e-4 if self.risk == "AoRR" else 1e-2
        k, m = RANGES.get((self.data, self.loss), (int(0.8 * n), int(np.ceil(0.2 * n))))
        risks: dict[str, Any] = {
            "ERM": bf.Mean(),
            "superquantile": bf.Superquantile(tail=0.2),
            "AoRR": bf.RankedRange(k, m, self.order),
            "EHRM": bf.ProspectTheory(gamma=0.61, delta=0.69),
        }
        g = bf.L2(mu) if self.penalty == "l2" else bf.L1(mu / 2)
        linear = bf.Linear(fit_intercept=False)
        return bf.Problem(LOSSES[self.loss], linear, over_samples=risks[self.risk], regulariser=g)

    def method(self, name: str, fed: bf.Federation, effort: Effort) -> Any:
        """A method of the paper as it is printed, or ours."""
        n, d = fed.X[0].shape
        if name == "RankADMM":
            return bf.RankADMM(tol=effort.tol)
        if name == SLOWER:
            slower = bf.ByResidual(1e-5, 1.02, 1.07)
            return replace(rank_admm(), penalty=slower, starts=(bf.Start(slower),))
        if name == "DCA":
            printed = dca(self.loss, self.data if self.data in TITLES else "drawn")
            start = np.random.default_rng(DRAWN).normal(0, 0.01, d)  # 0 is often critical
            return replace(printed, inner=effort.inner or printed.inner, start=start)
        if name not in STOCHASTIC:
            return (rank_admm if name == "ADMM" else smoothed_rank_admm)(self.framework)
        rate = 1 / (n * d) if self.risk == "EHRM" else rate_of(self, name, effort.tuning, n)
        return replace(stochastic(name), learning_rate=rate, max_rounds=effort.epochs)


def drawn(name: str, seed: int) -> tuple[Array, Array]:
    """A table of Table 10, or one of "rows x features" that the seed draws."""
    from sklearn.datasets import make_classification

    n, d = SIZES.get(name) or map(int, name.split(" x "))
    X, y, *_ = make_classification(n, d, random_state=DRAWN if name in SIZES else seed)
    return np.asarray(X), np.asarray(y)


def split(
    X: Array,
    y: Array,
    seed: int,
    train: float,
    *,
    stratified: bool = False,
    ones: bool = False,
    most: int = 0,
) -> Rows:
    """Scale all rows, then divide them."""
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import scale

    X, y = np.asarray(scale(X)), 2.0 * y - 1.0
    X = np.column_stack([X, np.ones(len(X))]) if ones else X
    stratify = y if stratified else None
    parts = train_test_split(X, y, train_size=train, random_state=seed, stratify=stratify)
    first, held, labels, truth = map(np.asarray, parts)
    return Rows(owned(first[: most or None], labels[: most or None]), held, truth)


def owned(X: Array, y: Array) -> bf.Federation:
    """Rows of one owner."""
    return bf.Federation(("all",), (X,), (y,))


def stochastic(name: str) -> Any:
    """SGD or LSVRG with the best rate of the paper's grid."""
    return sgd() if name == "SGD" else lsvrg(uniform=name == "LSVRG(U)")


@cache
def rate_of(task: Task, name: str, epochs: int, n: int) -> float:
    """The rate for n rows: the bold one of Table 7, or the best of the grid on one split."""
    if task.data == "advertisements" and task.risk == "superquantile":
        return RATES[task.loss, task.penalty][STOCHASTIC.index(name)] or 1 / n
    fed = task.rows(0, n).fed
    method, _ = tuned(stochastic(name), task.problem(fed), fed, rounds=epochs)
    return method.learning_rate


class Run(NamedTuple):
    """The last model, and after every round the CPU seconds and the least objective so far."""

    w: Array
    seconds: Array
    values: Array


def followed(problem: bf.Problem, fed: bf.Federation, method: Any, limit: float = np.inf) -> Run:
    """A run until it ends or the CPU seconds are spent; no certificate is asked for."""
    concrete, data = problem.at(fed)
    seconds: list[float] = []
    values: list[float] = []
    began = time.process_time()

    def watch(row: dict[str, Any], _: Any) -> None:
        seconds.append(time.process_time() - began)
        values.append(row["objective"])
        if seconds[-1] >= limit:
            raise KeyboardInterrupt  # ends a run after the round

    run = bf.InProcess().run(replace(method, problem=concrete), data, watch=[watch])
    if not seconds or seconds[-1] < limit:
        whole(run)
    return Run(run.state.w, np.array(seconds), np.minimum.accumulate(values))


@cache
def warm_up(risk: str, loss: str, penalty: str) -> None:
    """Have every method compiled, which no clock counts."""
    task = Task("60 x 4", risk, loss, penalty)
    fed = task.rows(0).fed
    methods = [replace(stochastic(name), learning_rate=1e-3, max_rounds=2) for name in STOCHASTIC]
    methods += [task.method(name, fed, Effort(inner=2)) for name in ("ADMM", "sADMM", "RankADMM")]
    methods += [dca()] * (risk == "AoRR")
    for method in methods:
        followed(task.problem(fed), fed, replace(method, max_rounds=2))


# ------------------------------------------------------------------------------------------ tables


def compare(
    risk: str,
    losses: Sequence[str],
    penalty: str,
    names: Sequence[str],
    seed: int,
    *,
    data: Sequence[str] = (),
    made: Sequence[str] = (),
    most: int,
    sets: int = 4,
    **effort: Any,
) -> Iterator[Row]:
    """Objective, accuracy on rows held out, and CPU seconds of every method, on the first sets."""
    for loss, one in product(losses, (*data, *made)[:sets]):
        task = Task(one, risk, loss, penalty)
        rows = task.rows(seed, most)
        for name in names:
            yield from judged(task, rows, name, Effort(**effort))


def judged(task: Task, rows: Rows, name: str, effort: Effort, group: Any = None) -> Iterator[Row]:
    """The rows of one method, with the fairness between a privileged group and the others."""
    warm_up(task.risk, task.loss, task.penalty)
    problem, right = task.problem(rows.fed), rows.y > 0
    run = followed(problem, rows.fed, task.method(name, rows.fed, effort))
    said = rows.X @ run.w > 0
    figures = {"objective": problem.objective(run.w, rows.fed)}
    figures |= {"accuracy": np.mean(said == right), "CPU s": run.seconds[-1]}
    if group is not None:
        figures |= bf.fairness_metrics(right, said, group, privileged=True)
    yield from (Row(task.case, figure, name, value) for figure, value in figures.items())


def ranges(seed: int, *, data: Sequence[str], sets: int, **effort: Any) -> Iterator[Row]:
    """Ranked ranges of the first sets, beside the best constant model, and the risk of Hu and
    others, which has ranks from the largest loss.
    """
    for loss, one in product(BOTH, data[:sets]):
        task = Task(one, "AoRR", loss)
        rows = task.rows(seed)
        for name in ("ADMM", "DCA", "RankADMM"):
            yield from judged(task, rows, name, Effort(**effort))
        b, least = constant(task.problem(rows.fed), rows.fed)
        yield Row(task.case, "objective", "constant model", least)
        yield Row(task.case, "accuracy", "constant model", np.mean((rows.y > 0) == (b > 0)))
        largest = replace(task, order="descending")
        for name in ("ADMM", "DCA", "RankADMM"):
            value = next(judged(largest, rows, name, Effort(**effort))).value
            yield Row(task.case, "objective, ranks from the largest loss", name, value)


def constant(problem: bf.Problem, fed: bf.Federation) -> tuple[float, float]:
    """The best model whose only coefficient is that of the column of ones, and its objective."""
    only = owned(fed.X[0][:, -1:], fed.y[0])

    def value(b: float) -> float:
        return problem.objective(np.array([b]), only)

    ends = ((-20.0, 0.0), (0.0, 20.0))
    found: list[Any] = [minimize_scalar(value, bounds=pair, method="bounded") for pair in ends]
    best = min(found, key=lambda one: one.fun)
    return float(best.x), float(best.fun)


def human(seed: int, *, data: Sequence[str], most: int, **effort: Any) -> Iterator[Row]:
    """The human-aligned risk with the fairness of its models between two groups of people."""
    if not data:
        return
    table, target, recipe = load.adult()
    fed = bf.Federation.from_tables({"all": table}, target, schema=recipe)
    chosen = np.random.default_rng(seed).permutation(len(fed.y[0]))[:most]
    group = np.where(np.asarray(table["race"])[chosen] == "White", 1.0, 0.0)
    X, y = fed.X[0][chosen], np.asarray(fed.y[0][chosen] == ">50K", float)
    rows = split(np.column_stack([X, group]), y, seed, 0.6)
    privileged = rows.X[:, -1] > 0
    task = Task("adult", "EHRM")
    rows = Rows(owned(rows.fed.X[0][:, :-1], rows.fed.y[0]), rows.X[:, :-1], rows.y)
    for name in ("ADMM", *STOCHASTIC, "RankADMM"):
        found = judged(task, rows, name, Effort(**effort), privileged)
        yield from (row._replace(case="Adult") for row in found)


def rates(seed: int, *, data: Sequence[str], epochs: int, most: int = 0) -> Iterator[Row]:
    """The objective at every learning rate of the grid."""
    for penalty, loss, one in product(("l2", "l1"), BOTH, data):
        task = Task(one, "superquantile", loss, penalty)
        fed = task.rows(seed, most).fed
        labels = ("0.01", "0.001", "0.0001", "1/N", "1/(N d)")
        for name in STOCHASTIC:
            table = tuned(stochastic(name), task.problem(fed), fed, rounds=epochs)[1]
            for label, row in zip(labels, table, strict=True):
                yield Row(f"{loss}, {penalty}, rate {label}", "objective", name, row["objective"])


# ----------------------------------------------------------------------------------------- figures


def paths(
    risk: str,
    loss: str,
    penalties: Sequence[str],
    seed: int,
    *,
    made: Sequence[str],
    limit: float,
    tuning: int,
    points: int = 25,
) -> Iterator[Row]:
    """The sub-optimality of every method by CPU seconds, on one axis for all trials."""
    times = np.geomspace(limit / 200, limit, points)
    for penalty, one in product(penalties, made):
        task = Task(one, risk, loss, penalty)
        warm_up(risk, loss, penalty)
        rows, case = task.rows(seed), f"{one}, {penalty}"
        problem, runs = task.problem(rows.fed), {}
        for name in SMOOTHED:
            method = task.method(name, rows.fed, Effort(10**6, tuning, tol=1e-9))
            runs[name] = followed(problem, rows.fed, method, limit)
        optimum = min(run.values[-1] for run in runs.values())
        for name, run in runs.items():
            off = np.maximum(run.values - optimum, LEAST)
            for x in times[times >= run.seconds[0]].tolist():
                last = np.searchsorted(run.seconds, x, side="right") - 1
                yield Row(case, "sub-optimality", name, off[last], x=x)
            yield Row(case, "least sub-optimality", name, off[-1])
            for level in LEVELS:
                met = run.seconds[off <= level]
                yield Row(case, f"CPU s to {level:g}", name, met[0] if len(met) else np.nan)


def draw(figure: Any, rows: Mapping[tuple[str, str, str], Curve]) -> None:
    """One panel for each table and penalty."""
    curves = {key: curve for key, curve in rows.items() if key[1] == "sub-optimality"}
    cases = [*dict.fromkeys(case for case, *_ in curves)]
    wide = min(len(cases), 4)
    grid = figure.subplots(-(-len(cases) // wide), wide, squeeze=False, sharey=True)
    for at, (case, panel) in enumerate(zip(cases, grid.flat, strict=False)):
        for name, colour in zip(SMOOTHED, COLOURS, strict=False):
            if (curve := curves.get((case, "sub-optimality", name))) is not None:
                style = "--" if name == "sADMM" else "-"  # it lies on ADMM
                panel.loglog(curve.x, curve.mean, style, color=colour, label=name, linewidth=1)
        panel.set_title(case, fontsize=8)
        panel.tick_params(labelsize=6)
        if at % wide == 0:
            panel.set_ylabel("sub-optimality", fontsize=7)
        if at >= len(cases) - wide:
            panel.set_xlabel("CPU s", fontsize=7)
    grid[0, 0].legend(fontsize=5)


RUN: dict[str, Callable[..., Iterable[Row]]] = {
    "table-1": partial(compare, "superquantile", BOTH, "l2", CONVEX),
    "table-2": partial(compare, "superquantile", BOTH, "l1", SMOOTHED),
    "table-3": human,
    "table-4": ranges,
    "table-7": rates,
    "table-11": partial(compare, "ERM", BOTH, "l2", CONVEX),
    "table-12": partial(compare, "ERM", ("logistic",), "l1", SMOOTHED),
    "table-13": partial(compare, "ERM", ("hinge",), "l1", SMOOTHED),
    "table-14": partial(compare, "AoRR", ("logistic",), "l2", RANGED),
    "table-15": partial(compare, "AoRR", ("hinge",), "l2", RANGED),
    "figure-1": partial(paths, "ERM", "logistic", ("l2", "l1")),
    "figure-2": partial(paths, "superquantile", "hinge", ("l2", "l1")),
    "figure-3": partial(paths, "ERM", "logistic", ("l1",)),
}
DRAW = dict.fromkeys(("figure-1", "figure-2", "figure-3"), draw)
