"""What the estimators with all their defaults give on tables of many kinds, beside scikit-learn's
plain models.

    python benchmarks/defaults.py [auc | private | limits | price] [--only NAME]

auc     the held-out AUC (R2 of a regressor) of every estimator on every table, beside
        LogisticRegression() or Ridge(), and whether each constant model was warned about
private the same of PrivateClassifier(), whose total is epsilon = 1, and of the tables made by seed
        again with 4 and 16 times their rows, which pay for its noise
limits  models that a parameter makes constant: the limit that their warning names, and whether
        0.97 and 1.05 of it are on either side
price   what robustness costs on clean rows, and what it gains under five shifts: the log loss of
        the worst client beside that of scikit-learn's model

Tables are made by seed, or come from scikit-learn, and with BONAFED_DATA set from its files.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import measure
import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score

import bonafed as bf
from bonafed.data import load
from bonafed.solution import thresholds

Array = NDArray[np.float64]
TWO, SEVERAL, NUMBERS = "two classes", "several classes", "numbers"  # kinds of tables
CLOSE = 0.03  # a held-out AUC or R2 this far below the plain model's counts as near it


@dataclass(frozen=True)
class Table:
    """Rows of several clients."""

    name: str
    X: Array
    y: NDArray
    groups: NDArray
    kind: str = TWO

    def split(self, seed: int = 0, test: float = 0.4) -> tuple[Table, Table]:
        """60 % of every client's rows to train on, the others to judge on, standardised as the
        rows to train on are.
        """
        rng = np.random.default_rng(seed)
        held = np.zeros(len(self.y), bool)
        for name in np.unique(self.groups):
            rows = rng.permutation(np.flatnonzero(self.groups == name))
            held[rows[: int(test * len(rows))]] = True
        mean, scale = self.X[~held].mean(0), self.X[~held].std(0)
        X = (self.X - mean) / np.where(scale > 0, scale, 1.0)
        return self._of(X, ~held), self._of(X, held)

    def _of(self, X: Array, rows: NDArray[np.bool_]) -> Table:
        return Table(self.name, X[rows], self.y[rows], self.groups[rows], self.kind)


# ---------------------------------------------------------------------------------------- tables


def features(rng: np.random.Generator, n: int, d: int, kind: str) -> Array:
    """(n, d) rows of one kind."""
    X = rng.standard_normal((n, d))
    if kind == "correlated":
        root = np.linalg.cholesky(0.95 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
        return X @ root.T
    if kind == "heavy":
        return rng.standard_t(2.5, (n, d))
    if kind == "indicators":
        return (rng.uniform(0, 1.5, d) < X).astype(float)
    if kind == "copies":
        half = X[:, : d // 2]
        return np.hstack([half, half + 0.01 * X[:, d // 2 : 2 * (d // 2)]])
    if kind == "skewed":
        return np.exp(X)
    return X


def clients(rng: np.random.Generator, n: int, kind: str) -> NDArray[np.intp]:
    """(n,) the client of each row, of unequal sizes."""
    if kind == "tiny":
        sizes = rng.integers(1, 16, n)
        return np.repeat(np.arange(n), sizes)[:n]
    if kind == "one large":
        return np.where(rng.random(n) < 0.85, 0, rng.integers(1, 10, n))
    share = rng.dirichlet(np.full(8, 2.0))
    return rng.choice(8, n, p=share)


def made(
    name: str,
    seed: int,
    n: int = 800,
    d: int = 10,
    rate: float = 0.5,
    signal: float = 2.0,
    flips: float = 0.0,
    X: str = "normal",
    of: str = "unequal",
    truth: str = "linear",
) -> Table:
    """A table of two classes: logistic in the features, ``rate`` of them positive."""
    rng = np.random.default_rng(seed)
    rows, groups = features(rng, n, d, X), clients(rng, n, of)
    w = rng.standard_normal(d) * (rng.random(d) < 0.5 if d < 50 else np.arange(d) < 5)
    w[0] = 1.0
    if truth == "shifted clients":
        rows = rows + rng.standard_normal((groups.max() + 1, d))[groups]
    score = rows @ w
    if truth == "other coefficients":
        own = w + 0.7 * rng.standard_normal((groups.max() + 1, d))
        score = (rows * own[groups]).sum(1)
    elif truth == "squares":
        score = score + 0.5 * (rows[:, 0] ** 2 - 1)
    score = signal * (score - score.mean()) / score.std()
    score = score if truth == "separable" else score + rng.logistic(size=n)
    score = rng.standard_normal(n) if truth == "noise" else score
    y = score > np.quantile(score, 1 - rate)
    y = np.where(rng.random(n) < flips, ~y, y)
    if truth == "one-class clients":
        y = np.where(groups < 2, False, np.where(groups == 2, True, y))
    return Table(name, rows, y.astype(int), groups)


MADE: list[Callable[[], Table]] = [
    partial(made, "balanced", 1),
    partial(made, "60/40", 2, 2000, 20, 0.4, 1.0),
    partial(made, "10 % positives", 3, 2000, 20, 0.1),
    partial(made, "5 % positives", 4, 2000, 10, 0.05),
    partial(made, "2 % positives", 5, 4000, 10, 0.02),
    partial(made, "5 % positives, weak", 6, 1500, 10, 0.05, 1.0),
    partial(made, "10 % of labels flipped", 7, flips=0.1),
    partial(made, "25 % of labels flipped", 8, 1500, flips=0.25),
    partial(made, "correlated", 9, 800, 15, X="correlated"),
    partial(made, "correlated, 10 % positives", 10, 1500, 15, 0.1, X="correlated"),
    partial(made, "heavy tails", 11, X="heavy"),
    partial(made, "skewed features", 12, X="skewed", rate=0.3),
    partial(made, "indicators", 13, 1000, 12, X="indicators"),
    partial(made, "near copies", 14, X="copies"),
    partial(made, "60 features, 500 rows", 15, 500, 60),
    partial(made, "100 features, 5 of use", 16, 800, 100, signal=3.0),
    partial(made, "tiny clients", 17, 600, 8, of="tiny"),
    partial(made, "tiny clients, 15 % positives", 18, 800, 8, 0.15, of="tiny"),
    partial(made, "one large client", 19, 1000, of="one large"),
    partial(made, "one large client, 10 % positives", 20, 1500, 10, 0.1, of="one large"),
    partial(made, "one-class clients", 21, 1000, truth="one-class clients"),
    partial(made, "shifted clients", 22, 1000, truth="shifted clients"),
    partial(made, "other coefficients", 23, 1000, truth="other coefficients"),
    partial(made, "separable", 24, 500, 6, truth="separable"),
    partial(made, "squares left out", 25, 1000, truth="squares"),
    partial(made, "pure noise", 26, 3000, 8, truth="noise"),
]


def along(X: Array, seed: int, n_clients: int = 6) -> NDArray[np.intp]:
    """Clients along the first principal axis of the features, blurred."""
    rng = np.random.default_rng(seed)
    scale = X.std(0)
    Z = (X - X.mean(0)) / np.where(scale > 0, scale, 1.0)
    axis = Z @ np.linalg.svd(Z, full_matrices=False)[2][0]
    blurred = axis + axis.std() * rng.standard_normal(len(X))
    return np.searchsorted(np.quantile(blurred, np.arange(1, n_clients) / n_clients), blurred)


def shipped() -> Iterator[Table]:
    """Tables of two classes that scikit-learn ships."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    yield Table("breast cancer", X, y, along(X, 0))
    rng = np.random.default_rng(1)
    yield Table("breast cancer, clients at random", X, y, rng.integers(0, 12, len(y)))
    X, y = datasets.load_digits(return_X_y=True)
    yield Table("digits, odd or even", X, y % 2, along(X, 2))
    yield Table("digits, 8 or not", X, (y == 8).astype(int), along(X, 3))
    X, y = datasets.load_wine(return_X_y=True)
    yield Table("wine, one class or not", X, (y == 1).astype(int), along(X, 4, 3))


def on_disk() -> Iterator[Table]:
    """Tables of two classes in the data directory, where it is set."""
    here = {each.name for each in load.available() if each.present}
    for k, name in enumerate(("breast_cancer_wisconsin", "phoneme", "titanic", "heart")):
        if name in here:
            X, y, _ = getattr(load, name)()
            rows = np.random.default_rng(k).permutation(len(y))[:3000]
            yield Table(f"{name} (data directory)", X[rows], y[rows], along(X[rows], k))


def two_classes() -> Iterator[Table]:
    """All tables of two classes."""
    for make in MADE:
        yield make()
    yield from shipped()
    yield from on_disk()


def three_classes() -> Iterator[Table]:
    """Tables of several classes."""
    rng = np.random.default_rng(100)
    for spread in (1.0, 2.0):
        centres = rng.standard_normal((3, 6)) * 1.5
        y = rng.choice(3, 900, p=[0.5, 0.35, 0.15])
        X = centres[y] + spread * rng.standard_normal((900, 6))
        yield Table(f"three blobs, spread {spread:g}", X, y, clients(rng, 900, "unequal"), SEVERAL)
    y = rng.choice(3, 900)
    X = rng.standard_t(3, (900, 8)) + 1.2 * np.eye(3, 8)[y]
    yield Table("three classes, tiny clients", X, y, clients(rng, 900, "tiny"), SEVERAL)
    for name in ("iris", "wine", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield Table(name, X, y, along(X, 5, 4), SEVERAL)


def line(
    name: str,
    seed: int,
    n: int = 600,
    d: int = 10,
    noise: str = "normal",
    unit: float = 1.0,
    X: str = "normal",
    of: str = "unequal",
    signal: float = 1.5,
) -> Table:
    """A table of numbers: a line in the features, and noise of spread 1."""
    rng = np.random.default_rng(seed)
    rows, groups = features(rng, n, d, X), clients(rng, n, of)
    w = rng.standard_normal(d) * (rng.random(d) < 0.5 if d < 50 else np.arange(d) < 5)
    w[0] = 1.0
    score = rows @ w
    off = {
        "normal": lambda: rng.standard_normal(n),
        "heavy": lambda: rng.standard_t(2.5, n),
        "skewed": lambda: rng.exponential(size=n) - 1,
        "scale of clients": lambda: rng.standard_normal(n) * rng.uniform(0.3, 2, 60)[groups % 60],
    }[noise]()
    return Table(
        name, rows, unit * (signal * (score - score.mean()) / score.std() + off), groups, NUMBERS
    )


LINES: list[Callable[[], Table]] = [
    partial(line, "a line", 40),
    partial(line, "a line, y in thousands", 41, unit=1000.0),
    partial(line, "a line, y in thousandths", 42, unit=1e-3),
    partial(line, "heavy noise", 43, noise="heavy"),
    partial(line, "skewed noise", 44, noise="skewed"),
    partial(line, "noise by client", 45, noise="scale of clients"),
    partial(line, "correlated", 46, 600, 15, X="correlated"),
    partial(line, "heavy features", 47, X="heavy"),
    partial(line, "indicators", 48, X="indicators"),
    partial(line, "near copies", 49, X="copies"),
    partial(line, "60 features", 50, 400, 60),
    partial(line, "100 features, 5 of use", 51, 600, 100),
    partial(line, "tiny clients", 52, of="tiny"),
    partial(line, "one large client", 53, of="one large"),
    partial(line, "weak signal", 54, 1500, signal=0.5),
    partial(line, "pure noise", 55, 2000, signal=0.0),
]


def numbers() -> Iterator[Table]:
    """Tables of a number to predict."""
    for make in LINES:
        yield make()
        name, seed, *rest = make.args
        yield line(f"{name}, again", seed + 100, *rest, **make.keywords)
    X, y = datasets.load_diabetes(return_X_y=True)
    yield Table("diabetes", X, y, along(X, 6), NUMBERS)
    X, y = datasets.make_friedman1(800, noise=1.0, random_state=0)
    yield Table("friedman 1", X, y, along(X, 7), NUMBERS)
    X, y = datasets.make_friedman2(600, noise=50.0, random_state=0)
    yield Table("friedman 2", X, y, along(X, 8), NUMBERS)
    if any(each.name == "abalone" and each.present for each in load.available()):
        X, y, _ = load.abalone()
        yield Table("abalone (data directory)", X[:2500], y[:2500], along(X[:2500], 9), NUMBERS)


# ------------------------------------------------------------------------- beside plain models


def plain_model(table: Table) -> LogisticRegression | Ridge:
    """scikit-learn's model with all its defaults, fitted."""
    model = Ridge() if table.kind == NUMBERS else LogisticRegression(max_iter=2000)
    return model.fit(table.X, table.y)


def merit(model: object, test: Table) -> float:
    """The held-out AUC of a classifier (one class against each other), or the R2."""
    if test.kind == NUMBERS:
        return float(r2_score(test.y, model.predict(test.X)))
    p = model.predict_proba(test.X)
    if test.kind == SEVERAL:
        return float(roc_auc_score(test.y, p, multi_class="ovo", labels=model.classes_))
    return float(roc_auc_score(test.y, p[:, 1]))


ESTIMATORS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "RobustClassifier": (bf.RobustClassifier, (TWO,)),
    "AgnosticClassifier": (bf.AgnosticClassifier, (TWO, SEVERAL)),
    "ConstrainedClassifier": (bf.ConstrainedClassifier, (TWO,)),
    "RiskClassifier": (bf.RiskClassifier, (TWO,)),
    "RobustRegressor": (bf.RobustRegressor, (NUMBERS,)),
    "RiskRegressor": (bf.RiskRegressor, (NUMBERS,)),
}
TABLES = {TWO: two_classes, SEVERAL: three_classes, NUMBERS: numbers}


@dataclass(frozen=True)
class Judged:
    """One estimator on one table of so many rows to train on: its figure, the plain model's, and
    whether it is constant.
    """

    estimator: str
    table: str
    rows: int
    plain: float
    ours: float
    constant: bool
    warned: bool

    @property
    def near(self) -> bool:
        return self.ours >= self.plain - CLOSE


def judged(name: str, table: Table, seed: int = 0) -> Judged:
    """Fit with all defaults, and judge on the rows held out."""
    train, test = table.split(seed)
    private = partial(bf.PrivateClassifier, random_state=0)  # noise that can be repeated
    make = ESTIMATORS[name][0] if name in ESTIMATORS else private
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make().fit(train.X, train.y, groups=train.groups)
        constant = len(np.unique(model.predict(test.X))) == 1
    warned = any(issubclass(each.category, bf.TrivialModelWarning) for each in caught)
    plain, ours = merit(plain_model(train), test), merit(model, test)
    return Judged(name, table.name, len(train.y), plain, ours, constant, warned)


def shown(rows: list[Judged], title: str) -> bool:
    """Print how an estimator does on these tables; whether it meets the target."""
    for row in rows:
        more = "" if row.near else "  further than .03 below"
        more += "  constant" * row.constant + ", warned" * (row.constant and row.warned)
        print(
            f"{row.estimator:22s} {row.table:36s} {row.rows:6d} rows  plain {row.plain:6.3f}"
            f"  ours {row.ours:6.3f}{more}"
        )
    near, silent = sum(r.near for r in rows), sum(r.constant and not r.warned for r in rows)
    good = near >= len(rows) * 29 / 30 and silent == 0
    columns = ("estimator", "table", "rows", "plain", "ours", "constant", "warned")
    cells = [(r.estimator, r.table, r.rows, r.plain, r.ours, r.constant, r.warned) for r in rows]
    measure.show(title, columns, cells)
    print(f"{title}: {near} of {len(rows)} tables within .03, {silent} constants in silence")
    print(f"  target of 29 in 30 and no constant in silence: {'met' if good else 'MISSED'}")
    return good


def show_auc(only: str) -> bool:
    """Print every estimator on every table it takes; whether all targets are met."""
    met = True
    for name, (_, kinds) in ESTIMATORS.items():
        if only in name:
            rows = [judged(name, table) for kind in kinds for table in TABLES[kind]()]
            met &= shown(rows, name)
    return met


# ------------------------------------------------------------------------------- within a budget

PRIVATE = "PrivateClassifier"
TIMES = (1, 4, 16)  # as many rows as a table made by seed has by itself
ENDS = (0, 500, 1000, 2000, 5000, 10_000, 100_000)  # of intervals of rows


def larger(make: partial[Table], times: int) -> Table:
    """A table made by seed with so many times its rows."""
    name, seed, *rest = make.args
    options = dict(make.keywords)
    n = rest.pop(0) if rest else options.pop("n", 800)
    return made(name, seed, times * n, *rest, **options)


def show_private(only: str) -> bool:
    """Print `PrivateClassifier` on all tables, and on those made by seed with more rows; whether
    the target is met where these have the most.
    """
    if only not in PRIVATE:
        return True
    rows = [judged(PRIVATE, table) for kind in (TWO, SEVERAL) for table in TABLES[kind]()]
    met = shown(rows, f"{PRIVATE} on all tables")
    for times in TIMES[1:]:
        more = [judged(PRIVATE, larger(make, times)) for make in MADE]
        met = shown(more, f"{PRIVATE} on the tables made by seed, with {times} times their rows")
        rows += more
    for low, high in pairwise(ENDS):
        some = [row for row in rows if low <= row.rows < high]
        near = sum(row.near for row in some)
        print(f"{PRIVATE} on tables of {low} to {high} rows: {near} of {len(some)} within .03")
    return met


# ------------------------------------------------------------------------- limits of constants

BELOW, ABOVE = 0.97, 1.05  # of a limit that a warning names
LEAST = 10  # tables for each kind of limit


@dataclass(frozen=True)
class Limit:
    """A parameter that makes models constant.

    ``first`` is an estimator that is constant, ``at`` makes one at a value of the parameter, after
    the first was fitted; ``falls``: whether small values make it constant.
    """

    parameter: str
    kind: str
    first: Callable[[], object]
    at: Callable[[object, float], object]
    falls: bool = False


LIMITS = {
    "radius of RobustClassifier": Limit(
        "radius",
        TWO,
        lambda: bf.RobustClassifier(radius=5.0),
        lambda _, radius: bf.RobustClassifier(radius=radius),
    ),
    "radius of RobustRegressor": Limit(
        "radius",
        NUMBERS,
        lambda: bf.RobustRegressor(radius=50.0),
        lambda _, radius: bf.RobustRegressor(radius=radius),
    ),
    "tail of RiskClassifier": Limit(
        "tail",
        TWO,
        lambda: bf.RiskClassifier(bf.Superquantile(0.01)),
        lambda _, tail: bf.RiskClassifier(bf.Superquantile(min(tail, 1.0))),
        falls=True,
    ),
    "L1 strength of AgnosticClassifier": Limit(
        "strength",
        TWO,
        lambda: bf.AgnosticClassifier(regulariser=bf.L1(5.0)),
        lambda _, strength: bf.AgnosticClassifier(regulariser=bf.L1(strength)),
    ),
    "label flips of RobustClassifier": Limit(
        "label_cost",
        TWO,
        # where the clients' weights are not fixed no number is named
        lambda: bf.RobustClassifier(label_flips=0.45, client_radius=0),
        lambda first, cost: bf.RobustClassifier(
            radius=max(first.radius_), label_cost=cost, client_radius=0
        ),
        falls=True,
    ),
}


@dataclass(frozen=True)
class Held:
    """A limit on a table, as the warning names it; whether no model is better than a constant on
    the side where it says so, and whether there is one on the other.
    """

    table: str
    limit: float
    constant: bool
    model: bool

    @property
    def good(self) -> bool:
        return self.constant and self.model


def fitted(model: object, table: Table) -> object:
    """The model without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(table.X, table.y, groups=table.groups)


def is_constant(model: object) -> bool:
    """Whether no coefficients are better than a constant in the model's own objective."""
    found = model.solution_.trivial
    at_cut = ("one class predicted", "balanced accuracy at chance")
    return found is not None and found.kind not in at_cut


def has_scores(model: object) -> bool:
    """Whether some coefficient is not 0."""
    return bool(np.abs(model.coef_).max() > 1e-6)


def held(limit: Limit, table: Table) -> Held | None:
    """The limit on a table; None where it is not this parameter that makes the model constant."""
    train = table.split()[0]
    first = fitted(limit.first(), train)
    named = first.solution_.trivial
    if not is_constant(first) or named.parameter != limit.parameter:
        return None
    if (value := named.threshold or by_program(first, train)) is None:
        return None
    factors = (BELOW, ABOVE) if limit.falls else (ABOVE, BELOW)
    inside, outside = (fitted(limit.at(first, each * value), train) for each in factors)
    return Held(table.name, value, is_constant(inside), has_scores(outside))


def by_program(model: object, train: Table) -> float | None:
    """The limit that no warning names, since its program over rows takes longer than the fit."""
    problem = model.solution_.problem
    fed = bf.Federation.from_arrays(train.X, train.y, train.groups)
    if model.solution_.trivial.parameter == "tail":
        found = thresholds.tail_threshold(problem, fed.pooled())
        return found.value if found.exact else None
    found = thresholds.flip_threshold(problem, fed)
    return max(model.radius_) / found.value if found.exact and found.value > 0 else None


def show_limits(only: str) -> bool:
    """Print what holds of every kind of limit; whether each does on ten tables or more."""
    met = True
    for name, limit in LIMITS.items():
        if only not in name:
            continue
        rows = [row for table in TABLES[limit.kind]() if (row := held(limit, table)) is not None]
        for row in rows:
            side = "up to" if limit.falls else "from"
            more = "" if row.good else "  NOT as named"
            print(f"{name:34s} {row.table:36s} constant {side} {row.limit:.4g}{more}")
        good = sum(row.good for row in rows)
        columns = ("table", "limit", "holds")
        measure.show(f"limits: {name}", columns, [(r.table, r.limit, r.good) for r in rows])
        met &= good == len(rows) >= LEAST
        print(
            f"{name}: a constant at {BELOW if limit.falls else ABOVE} of the limit, and none at"
            f" {ABOVE if limit.falls else BELOW}, on {good} of {len(rows)} tables"
        )
    return met


# ------------------------------------------------------------------------- price and gain

SHIFTS = ("clean", "feature noise", "mean shift", "label noise", "scale drift", "other mixture")
ROWS = 10  # a client with fewer held-out rows is not the worst one by chance


def shifted(kind: str, train: Table, test: Table, seed: int) -> tuple[Table, Table]:
    """The rows to train on and to judge on, one pair for each kind of shift.

    Labels are wrong at the largest client while training, for 20 % of its rows. All else happens
    afterwards: noise of spread 1/2, means moved by 1/2 in random directions, scales of the features
    multiplied by 0.5 to 2, and rows drawn so that all clients have as many.
    """
    rng = np.random.default_rng(seed)
    X, y, d = test.X, train.y, test.X.shape[1]
    if kind == "feature noise":
        X = X + 0.5 * rng.standard_normal(X.shape)
    elif kind == "mean shift":
        X = X + 0.5 * rng.choice([-1.0, 1.0], d)
    elif kind == "scale drift":
        X = X * 2.0 ** rng.uniform(-1, 1, d)
    elif kind == "label noise":
        names, sizes = np.unique(train.groups, return_counts=True)
        wrong = (train.groups == names[sizes.argmax()]) & (rng.random(len(y)) < 0.2)
        y = np.where(wrong, 1 - y, y)
    elif kind == "other mixture":
        names = [c for c in np.unique(test.groups) if (test.groups == c).sum() >= ROWS]
        picks = [rng.choice(np.flatnonzero(test.groups == c), 200) for c in names]
        rows = np.concatenate(picks) if picks else np.arange(len(X))
        return train, Table(test.name, X[rows], test.y[rows], test.groups[rows])
    return (Table(train.name, train.X, y, train.groups), Table(test.name, X, test.y, test.groups))


def losses(model: object, test: Table) -> tuple[float, float]:
    """The mean log loss, and that of the worst client of at least ten rows."""
    p = np.clip(model.predict_proba(test.X)[:, 1], 1e-12, 1 - 1e-12)
    each = -np.where(test.y > 0, np.log(p), np.log(1 - p))
    names, sizes = np.unique(test.groups, return_counts=True)
    by_client = [each[test.groups == c].mean() for c in names[sizes >= ROWS]]
    return float(each.mean()), float(max(by_client, default=each.mean()))


def prices(name: str, tables: Iterable[Table], seeds: tuple[int, ...] = (0, 1)) -> dict[str, Array]:
    """By shift, (n, 2): log loss minus the plain model's, in the mean and of the worst client."""
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in SHIFTS}
    for table in tables:
        for seed in seeds:
            parts = table.split(seed)
            fitted: dict[bool, tuple[object, object]] = {}
            for kind in SHIFTS:
                train, test = shifted(kind, *parts, seed)
                noisy = kind == "label noise"
                if noisy not in fitted:
                    ours = ESTIMATORS[name][0]().fit(train.X, train.y, groups=train.groups)
                    fitted[noisy] = ours, plain_model(train)
                ours, plain = (losses(model, test) for model in fitted[noisy])
                found[kind].append((ours[0] - plain[0], ours[1] - plain[1]))
    return {kind: np.array(rows) for kind, rows in found.items()}


def show_price(only: str) -> bool:
    """Print what robustness costs and gains, in log loss; minus is better than scikit-learn."""
    print("log loss minus that of LogisticRegression(), mean over tables +- standard error")
    for name, (_, kinds) in ESTIMATORS.items():
        if TWO not in kinds or only not in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = prices(name, two_classes())
        cells = []
        for kind, rows in table.items():
            mean, error = rows.mean(0), rows.std(0, ddof=1) / np.sqrt(len(rows))
            cells.append((kind, *(f"{m:+.3f} ({e:.3f})" for m, e in zip(mean, error, strict=True))))
        measure.show(f"price: {name}", ("shift", "all rows", "worst client"), cells)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"auc": show_auc, "private": show_private, "limits": show_limits, "price": show_price}
    parser.add_argument("what", nargs="?", choices=[*parts, "all"], default="all")
    parser.add_argument("--only", default="", help="estimators or limits with this in their name")
    asked = parser.parse_args()
    met = [show(asked.only) for name, show in parts.items() if asked.what in (name, "all")]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
