"""Example 4.1, the figures of section 6, and the rounds of Algorithm 1.

The 15 x 10 pairs (rho, kappa) of a cross-validation are fewer models:

Hinge. Let F be the objective on the box, and G the one whose adversary only flips labels, which
follows from rho / kappa. F >= G, and F(w) = G(w) where every multiplier is at least ||w||_*: so a
minimiser of G with such multipliers is one of F, and of every smaller kappa with the same ratio.

Huber on R^n. Let F be the objective with kappa, G that with infinite kappa and A that without
balls. F >= G, and F(w) = G(w) where ||w||_* >= 1 / kappa; F - A is least, and constant, where
||w||_* <= 1 / kappa. So minimisers of G and of A in these regions are minimisers of F.

Pairs without such a proof are solved by themselves.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import bonafed as bf
import bonafed.papers.drfl as drfl
from bonafed.data import corrupt, load, partition
from bonafed.extending import COLOURS, Array
from bonafed.papers.reproduction import Curve, Row, whole

Rows = Iterator[Row]
CLIENTS = ("client 1", "client 2", "client 3")
TRAIN, NOISE, LOOSE = 0.6, 0.5, 1e-3  # share of the rows; sd at client 1; tolerance of the grid

# ------------------------------------------------------------------------------------- Example 4.1

CASES = {
    "apart": ((0.0, 0.5, 1.0), (5.0, 5.5, 6.0)),
    "interleaved": ((0.0, 1.0, 2.0), (0.5, 1.5, 2.5)),
    "alike": ((0.0, 1.0, 2.0), (0.0, 1.0, 2.0)),
}
SHARES, WEIGHT = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]]), 0.4  # p_1 and p_2, q_1
COVERAGE = range(10, 101, 5)  # per cent, the levels of appendix D


def figure_1(seed: int, *, rows: int, repeats: int, volume: int) -> Rows:
    """Radii that hold the true distribution so often, and the volume of those balls."""
    rng = np.random.default_rng(seed)
    for case, atoms in CASES.items():
        q, p = _estimated(rng, rows, repeats)
        fixed_q, fixed_p = _estimated(rng, rows, 1)
        any_q, any_p = rng.random(volume), rng.random((volume, 2, 3))
        any_p /= any_p.sum(-1, keepdims=True)
        for method in ("DRFL", "WAFL"):
            needed = np.sort(_distance(method, atoms, (q, p), (WEIGHT, SHARES)))
            inside = _distance(method, atoms, (any_q, any_p), (fixed_q, fixed_p))
            for level in COVERAGE:
                radius = needed[-(-level * repeats // 100) - 1]
                share = float((inside <= radius).mean())
                yield Row(case, "radius", method, float(radius), x=level)
                yield Row(case, "volume", method, share, x=level)
                if level == 90:
                    yield Row(case, "radius at 90 %", method, float(radius))
                    yield Row(case, "volume at 90 %", method, share)


def _estimated(rng: np.random.Generator, rows: int, n: int) -> tuple[Array, Array]:
    """(n,) shares of client 1 and (n, 2, 3) of the atoms, in samples of the true distribution."""
    first = rng.binomial(rows, WEIGHT, n)
    counts = [rng.multinomial(k, p) for k, p in zip((first, rows - first), SHARES, strict=True)]
    return first / rows, np.stack([c / c.sum(-1, keepdims=True) for c in counts], axis=1)


def _distance(method: str, atoms: Any, one: tuple[Any, Array], two: tuple[Any, Array]) -> Array:
    """(n,) Wasserstein distances of two mixtures, or the larger one of their components."""
    if method == "DRFL":
        gaps = np.diff(np.array(atoms))
        apart = np.abs(np.cumsum(one[1] - two[1], axis=-1)[..., :-1])
        return (apart * gaps).sum(-1).max(-1)
    weights = [np.stack([q, 1 - np.asarray(q)], axis=-1)[..., None] * p for q, p in (one, two)]
    order = np.argsort(np.ravel(atoms))
    off = (weights[0] - weights[1]).reshape(-1, 6)[:, order]
    return (np.abs(np.cumsum(off, axis=-1)[:, :-1]) * np.diff(np.ravel(atoms)[order])).sum(-1)


# --------------------------------------------------------------------------------------- section 6


class Test(NamedTuple):
    """The noise of three panels: the sd of the first, the mean of the second, the third's ratio."""

    sd: float
    mean: float
    ratio: float

    def panels(self, level: float) -> dict[str, tuple[float, float]]:
        """(mean, sd) at a level of noise."""
        pairs = (level, self.sd), (self.mean, level), (self.ratio * level, level)
        return dict(zip(PANELS, pairs, strict=True))


PANELS = ("mean", "SD", "mean and SD")
METHODS = ("DRFL", "ERM", "DRFA", "AFL", "WAFL")
ALL, HALF = (1.0, 1.0, 1.0), (0.5, 0.5, 1.0)  # of each client's rarer class
Grid = Mapping[str, Sequence[float]]
Models = tuple[Array, Array | float]  # (d, m) coefficients and (m,) intercepts


def _resilience(
    seed: int,
    *,
    test: Test,
    data: Sequence[str],
    folds: int,
    radii: Sequence[float],
    label_costs: Sequence[float],
    thetas: Sequence[float],
    levels: Sequence[float],
    draws: int,
    rarer: Sequence[float] = ALL,
) -> Rows:
    """Train every method on three clients, one of them noisy, and test it under noise."""
    grid = {"radius": radii, "label_cost": label_costs, "client_radius": thetas}
    for name in data:
        fed, X, y, loss = _clients(name, seed, rarer)
        models = []
        for method in METHODS:
            began = time.process_time()
            models.append(_selected(method, fed, loss, grid, folds))
            yield Row(name, "CPU s", method, time.process_time() - began)
        own, intercept = _default(fed, loss)
        W, b = np.column_stack([*models, own]), np.append(np.zeros(len(METHODS)), intercept)
        yield from _tested(name, (W, b), X, y, loss, test, levels, draws, seed)


def _clients(
    name: str, seed: int, rarer: Sequence[float]
) -> tuple[bf.Federation, Array, Array, Any]:
    """Three clients with noise at the first, the rows to test, and the loss."""
    table = getattr(load, name)()
    low, high = table.X.min(0), table.X.max(0)
    X, loss = (
        2 * (table.X - low) / (high - low) - 1,
        drfl.HUBER if name == "abalone" else drfl.HINGE,
    )
    y = np.where(table.y == 1, 1.0, -1.0) if loss.targets == "sign" else np.asarray(table.y, float)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    train, held = np.split(order, [round(TRAIN * len(X))])
    which, kept = partition.iid(len(train), len(CLIENTS), seed), []
    for k, share in enumerate(rarer):
        rows = train[which == k]
        few = rows[y[rows] == min((-1.0, 1.0), key=lambda sign: (y[rows] == sign).sum())]
        kept.append(np.setdiff1d(rows, few[round(share * len(few)) :]))
    groups = np.repeat(CLIENTS, [len(rows) for rows in kept])
    rows = np.concatenate([rng.permutation(rows) for rows in kept])
    fed = bf.Federation.from_arrays(X[rows], y[rows], groups)
    mean = NOISE if name == "breast_cancer_wisconsin" else 0.0
    return (
        corrupt.add_noise(fed, NOISE, mean=mean, seed=seed, clients=CLIENTS[:1]),
        X[held],
        y[held],
        loss,
    )


def _selected(method: str, fed: bf.Federation, loss: Any, grid: Grid, folds: int) -> Array:
    """The model of a method at the point of its grid with the best score in cross-validation."""
    scores: dict[Any, float] = {}
    alone = method in ("ERM", "DRFA")
    for fold in range(folds * (not alone)):
        picks = [np.arange(len(y)) % folds == fold for y in fed.y]
        train = _rows_of(fed, [~pick for pick in picks])
        rest = _rows_of(fed, picks)
        X, y = np.concatenate(rest.X), np.concatenate(rest.y)
        for point, w in _path(method, train, loss, grid):
            score = _scores(X, y, (w[:, None], 0.0), loss)[0]
            scores[point] = scores.get(point, 0.0) + (score if loss.targets == "sign" else -score)
    best = max(sorted(scores), key=lambda point: round(scores[point], 12)) if scores else ()
    return _fit(_problem(method, loss, best), _seen(method, fed), tol=1e-4)


def _rows_of(fed: bf.Federation, picks: Sequence[Any]) -> bf.Federation:
    X, y = (
        np.concatenate([a[pick] for a, pick in zip(of, picks, strict=True)])
        for of in (fed.X, fed.y)
    )
    return bf.Federation.from_arrays(X, y, np.repeat(fed.clients, [pick.sum() for pick in picks]))


def _seen(method: str, fed: bf.Federation) -> bf.Federation:
    """WAFL is of the mixture."""
    return fed.pooled("size") if method == "WAFL" else fed


def _problem(method: str, loss: Any, point: tuple[float, ...]) -> bf.Problem:
    """At a point (theta, rho, kappa), (theta,) or (rho, kappa) of the grid."""
    if method == "DRFL":
        theta, radius, cost = point
        return drfl.drfl(radius, theta, cost, loss)
    if method == "WAFL":
        return drfl.wafl(*point, loss=loss)
    return {"AFL": drfl.afl, "ERM": drfl.standard, "DRFA": drfl.drfa}[method](*point, loss=loss)


def _fit(problem: bf.Problem, fed: bf.Federation, tol: float = LOOSE) -> Array:
    concrete, data = problem.at(fed)
    return whole(bf.InProcess().run(bf.Bundle(tol=tol, problem=concrete), data)).state.w


def _path(
    method: str, fed: bf.Federation, loss: Any, grid: Grid
) -> Iterator[tuple[tuple[float, ...], Array]]:
    """Every point of a method's grid and its model."""
    fed, thetas = _seen(method, fed), [(theta,) for theta in grid["client_radius"]]
    if method == "AFL":
        yield from ((point, _fit(_problem(method, loss, point), fed)) for point in thetas)
        return
    pairs = [*product(grid["radius"], grid["label_cost"])]
    solve = _flips if loss.targets == "sign" else _moves
    for theta in thetas if method == "DRFL" else [()]:
        problems = {(*theta, *pair): _problem(method, loss, (*theta, *pair)) for pair in pairs}
        yield from solve(problems, fed)


def _flips(
    problems: Mapping[Any, bf.Problem], fed: bf.Federation
) -> Iterator[tuple[tuple[float, ...], Array]]:
    """Models of the hinge loss on the box."""
    inside, known = fed.with_features([np.clip(x, -1, 1) for x in fed.X]), dict[float, Array]()
    least = min(cost for *_, cost in problems)
    for point, problem in problems.items():
        *_, radius, cost = point
        ratio = min(round(radius / cost, 12), 0.5)  # from 1/2 on w = 0 is a minimiser
        if ratio not in known:
            ball = bf.WassersteinBall(ratio * least, least, problem.over_samples.norm)
            known[ratio] = _fit(replace(problem, over_samples=ball), inside)
        w, multipliers = known[ratio], []
        for x, y in zip(inside.X, inside.y, strict=True):
            margins = y * (x @ w)
            gains = np.maximum(1 + margins, 0) - np.maximum(1 - margins, 0)
            multipliers.append(np.sort(gains)[::-1][int(ratio * len(y))] / cost)
        proven = min(multipliers) >= np.abs(w).max() - 1e-9
        yield point, w if proven else _fit(problem, fed)


def _moves(
    problems: Mapping[Any, bf.Problem], fed: bf.Federation
) -> Iterator[tuple[tuple[float, ...], Array]]:
    """Models of the Huber loss on all of R^n."""
    free, known = None, dict[float, Array]()
    for point, problem in problems.items():
        *_, radius, cost = point
        if free is None:
            free = _fit(replace(problem, over_samples=bf.Mean()), fed)
        if radius not in known:
            ball = replace(problem.over_samples, label_cost=np.inf)
            known[radius] = _fit(replace(problem, over_samples=ball), fed)
        w = known[radius]
        if np.abs(w).max() < 1 / cost:
            w = free if np.abs(free).max() <= 1 / cost else _fit(problem, fed)
        yield point, w


def _default(fed: bf.Federation, loss: Any) -> tuple[Array, float]:
    """Coefficients and intercept of the package's estimator with its defaults."""
    kind = bf.RobustClassifier if loss.targets == "sign" else bf.RobustRegressor
    groups = np.repeat(fed.clients, fed.sizes)
    model = kind().fit(np.concatenate(fed.X), np.concatenate(fed.y), groups=groups)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def _scores(X: Array, y: Array, models: Models, loss: Any) -> Array:
    """(m,) accuracy, or the mean squared error, of the models."""
    W, b = models
    predicted = X @ W + b
    if loss.targets == "sign":
        return ((predicted > 0) == (y > 0)[..., None]).mean(-2)
    return ((predicted - y[..., None]) ** 2).mean(-2)


def _tested(
    name: str,
    models: Models,
    X: Array,
    y: Array,
    loss: Any,
    test: Test,
    levels: Sequence[float],
    draws: int,
    seed: int,
) -> Rows:
    """Scores at every level of noise, with the same draws for every method and level."""
    drawn = np.random.default_rng((seed, 1)).normal(size=(draws, *X.shape))
    metric = "accuracy" if loss.targets == "sign" else "MSE"
    methods = (*METHODS, "RobustClassifier" if metric == "accuracy" else "RobustRegressor")
    yield from _rows(name, f"{metric}, no noise", methods, _scores(X, y, models, loss))
    found: dict[str, list[Array]] = {panel: [] for panel in PANELS}
    for level in levels:
        for panel, (mean, sd) in test.panels(level).items():
            found[panel].append(_scores(X + mean + sd * drawn, y, models, loss).mean(0))
            yield from _rows(name, f"{metric} by {panel}", methods, found[panel][-1], level)
    for panel, values in found.items():
        yield from _rows(name, f"{metric}, {panel}", methods, np.mean(values, axis=0))
    high = [values[len(levels) // 2 :] for values in found.values()]
    yield from _rows(name, f"{metric}, high noise", methods, np.mean(high, axis=(0, 1)))


def _rows(
    name: str, figure: str, methods: Iterable[str], values: Array, x: float | None = None
) -> Rows:
    for method, value in zip(methods, values, strict=True):
        yield Row(name, figure, method, float(value), x)


figure_2 = partial(_resilience, test=Test(sd=0.5, mean=0.0, ratio=0.5))
figure_3 = partial(_resilience, test=Test(sd=2.0, mean=0.0, ratio=2.0))
figure_4 = partial(_resilience, test=Test(sd=0.4, mean=0.1, ratio=2.0), rarer=HALF)
figure_5 = partial(_resilience, test=Test(sd=0.1, mean=0.5, ratio=0.5), rarer=HALF)


# ------------------------------------------------------------------------------------- Algorithm 1


class _Enough(Exception):  # noqa: N818  not an error
    """The last gap is met."""


def algorithm_1(
    seed: int,
    *,
    data: Sequence[str],
    radius: float,
    label_cost: float,
    theta: float,
    gaps: Sequence[float],
    seconds: float,
) -> Rows:
    """Rounds and CPU seconds until the model is within a relative gap of the best one."""
    methods = {
        "AD-LPMM": drfl.ad_lpmm(tol=0.0, max_rounds=10**6),
        "double loop": drfl.double_loop(tol=0.0, max_rounds=10**6),
        "EpigraphADMM": bf.EpigraphADMM(tol=0.0, max_rounds=10**6),
        "Bundle": bf.Bundle(tol=min(gaps) / 10),
    }
    for name in data:
        fed, _, _, loss = _clients(name, seed, ALL)
        problem = drfl.drfl(radius, theta, label_cost, loss)
        best = problem.objective(_fit(problem, fed, 1e-9), fed)
        for method, algorithm in methods.items():
            met = _met(problem, fed, algorithm, best, sorted(gaps, reverse=True), seconds)
            for gap, (rounds, spent) in met.items():
                yield Row(name, f"rounds to {gap:g}", method, rounds)
                yield Row(name, f"CPU s to {gap:g}", method, spent)


def _met(
    problem: bf.Problem,
    fed: bf.Federation,
    algorithm: Any,
    best: float,
    gaps: Sequence[float],
    seconds: float,
) -> dict[float, tuple[float, float]]:
    """The round and the seconds at which each gap was first met; nan where it was not."""
    concrete, rows = problem.at(fed)
    algorithm, clock = replace(algorithm, problem=concrete), time.process_time
    met = dict.fromkeys(gaps, (np.nan, np.nan))
    spent, resumed = 0.0, clock()

    def watch(row: Mapping[str, Any], state: Any) -> None:
        """The objective is evaluated outside the time."""
        nonlocal spent, resumed
        spent += clock() - resumed
        w = algorithm.answer(state)[0]
        gap = problem.objective(w, fed) / best - 1 if len(w) else np.inf
        for level in gaps:
            if np.isnan(met[level][0]) and gap <= level:
                met[level] = float(row["round"]), spent
        resumed = clock()
        if not np.isnan(met[gaps[-1]][0]) or spent > seconds:
            raise _Enough

    with suppress(_Enough):
        whole(bf.InProcess().run(algorithm, rows, watch=[watch]))
    return met


# ----------------------------------------------------------------------------------------- figures


def _draw(figure: Any, rows: Mapping[tuple[str, str, str], Curve], panels: Sequence[Any]) -> None:
    """A picture for each (case, figure, title, label of x)."""
    across = 3
    axes = np.ravel(figure.subplots(len(panels) // across, across))
    for axis, (case, what, title, label) in zip(axes, panels, strict=True):
        curves = {key[2]: curve for key, curve in rows.items() if key[:2] == (case, what)}
        for (method, curve), colour in zip(curves.items(), COLOURS, strict=False):
            axis.plot(curve.x, curve.mean, color=colour, label=method, lw=1.2)
            axis.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
        axis.set_title(title, fontsize=8)
        axis.set_xlabel(label, fontsize=7)
        axis.tick_params(labelsize=7)
    lines = {
        label: line
        for a in axes
        for line, label in zip(*a.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=6, fontsize=7, frameon=False
    )


def draw_figure_1(figure: Any, rows: Mapping[tuple[str, str, str], Curve]) -> None:
    """Radius and volume by the share of samples whose ball holds the true distribution."""
    label = "per cent of samples covered"
    what = product(("radius", "volume"), CASES)
    _draw(figure, rows, [(case, name, f"{name}, atoms {case}", label) for name, case in what])


def draw_resilience(figure: Any, rows: Mapping[tuple[str, str, str], Curve]) -> None:
    """Score by the level of noise."""
    shown = dict.fromkeys((case, what) for case, what, _ in rows if " by " in what)
    title = {"breast_cancer_wisconsin": "breast cancer"}
    panels = [
        (case, what, f"{title.get(case, case)}: {metric}", f"{panel} of the noise")
        for case, what in shown
        for metric, panel in [what.split(" by ")]
    ]
    _draw(figure, rows, panels)


RUN = {
    "figure-1": figure_1,
    "figure-2": figure_2,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "algorithm-1": algorithm_1,
}
DRAW = {"figure-1": draw_figure_1} | {f"figure-{k}": draw_resilience for k in range(2, 6)}
