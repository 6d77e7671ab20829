"""The default on a grid of shapes, beside every other method of the package that takes the problem.

    python benchmarks/cliffs.py grid [--quick] [TEXT ...]  # such as "hinge", "x 500", "sparse"

Every method is a fork of one process that holds the data, has the same tolerance, and counts the
mean of its runs, which are many where they are short. Those made for papers and those advised last
run where the default takes less than half a second. A method is cut off when it can no longer be
1.5 times faster than the default. Targets, for each loss: all
shapes proved within their limit; the default at most 1.5 times the best method; its cost at most
linear in rows, in coefficients beyond 500 and in clients beyond 1,000 (from a shape to the next
1.15 times the ratio of sizes); and at most 3 times the data in memory, the data counted, where they
are 16 MiB or more. ``--quick`` leaves out the largest shapes.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import measure
import numpy as np
from cliffs import L2, TOL, Found, found_in, tell_run
from scipy import sparse

import bonafed as bf
from bonafed.algorithms.alternatives import taking
from bonafed.algorithms.method import settings_of
from bonafed.solution.plan import default_algorithm, setting_of

TIMES, GROWTH, MEMORY = 1.5, 1.15, 3.0
LIMIT, MINUTES = 8.0, 10.0  # CPU seconds of a default; CPU minutes of all
LARGE, SHORT = 16.0, 0.5  # MiB of data whose memory counts; seconds where all methods run
# a run is repeated until it has taken so many seconds in all, the clock's ticks being 4 ms; once
# where it is long
RUNS, ENOUGH, LONG = 25, 0.2, 1.0
CUT = 0.02  # seconds beyond its due after which a method is cut off


@dataclass(frozen=True)
class Shape:
    rows: int
    columns: int
    clients: int = 10
    sparse: bool = False

    def __str__(self) -> str:
        kind = " sparse" * self.sparse
        return f"{self.rows:,} x {self.columns:,}{kind}, {self.clients:,} clients"


@dataclass(frozen=True)
class Chain:
    """Shapes that grow in one number, and from where on its growth is held to be linear."""

    axis: str
    least: int
    shapes: tuple[Shape, ...]

    def steps(self) -> Iterator[tuple[Shape, Shape, float]]:
        """Shape, next shape, ratio of sizes."""
        for one, two in pairwise(self.shapes):
            if getattr(one, self.axis) >= self.least:
                yield one, two, getattr(two, self.axis) / getattr(one, self.axis)


CHAINS = (
    Chain("rows", 1, tuple(Shape(n, 20) for n in (1000, 10_000, 100_000, 1_000_000))),
    Chain("columns", 500, tuple(Shape(2000, d) for d in (100, 500, 1000, 2000))),
    Chain("columns", 500, tuple(Shape(2000, d, 10, True) for d in (500, 1000, 5000, 20_000))),
    Chain("clients", 1000, tuple(Shape(2 * N, 10, N) for N in (1000, 10_000, 100_000))),
    Chain("clients", 1000, (Shape(10_000, 20, 1), Shape(10_000, 20, 100))),
)
LOSSES: dict[str, dict[str, Any]] = {
    "logistic": {"loss": bf.Logistic(), "regulariser": L2},
    "squared": {"loss": bf.Squared(), "regulariser": L2},
    "hinge": {"loss": bf.Hinge(), "regulariser": L2},
    "quantile": {"loss": bf.Quantile(0.9), "regulariser": L2},
    "Wasserstein": {
        "loss": bf.Logistic(),
        "over_clients": bf.LpBall(0.1),
        "over_samples": bf.WassersteinBall(0.01),
    },
    "superquantile": {"loss": bf.Logistic(), "over_rows": bf.Superquantile(0.1), "regulariser": L2},
}


def problem_of(loss: str, clients: int) -> bf.Problem:
    slots = dict(LOSSES[loss])
    if clients == 1 and "over_rows" in slots:  # as a user of pooled rows states it
        slots["over_samples"] = slots.pop("over_rows")
    return bf.Problem(**slots)


def data_of(loss: str, shape: Shape) -> bf.Federation:
    """Rows in the clients' order, so that the federation holds them once."""
    rng = np.random.default_rng(0)
    n, d = shape.rows, shape.columns
    if shape.sparse:
        X = sparse.random(n, d, min(0.02, 20 / d), "csr", random_state=0)
    else:
        X = rng.standard_normal((n, d))
    score = X @ (rng.normal(size=d) * 3 / math.sqrt(d))
    if LOSSES[loss]["loss"].targets == "real":
        y = score + rng.standard_t(3, size=n)
    else:
        y = np.where(score + rng.normal(size=n) > 0, 1.0, -1.0)
    names = np.array([f"client {k}" for k in range(shape.clients)], object)
    cuts = n * np.arange(shape.clients + 1) // shape.clients
    return bf.Federation.from_arrays(X, y, np.repeat(names, np.diff(cuts)))


def mebibytes(fed: bf.Federation) -> float:
    parts = (
        part
        for X, y in zip(fed.X, fed.y, strict=True)
        for part in ((X.data, X.indices, X.indptr, y) if sparse.issparse(X) else (X, y))
    )
    return sum(part.nbytes for part in parts) / 2**20


# ------------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Cell:
    """What one loss gave on one shape."""

    default: str
    found: Found
    best: str | None  # of the other methods
    seconds: float | None
    data: float  # MiB
    memory: float | None  # times the data

    @property
    def times(self) -> float | None:
        """The default's CPU in that of the best; infinite where it did not end but another did."""
        ours = math.inf if self.found.ours is None or not proved(self.found) else self.found.ours
        return None if self.seconds is None else ours / self.seconds


def proved(found: Found) -> bool:
    return found.gap is not None and found.gap <= TOL


def cell(loss: str, shape: Shape, every: bool) -> Callable[[Callable[..., None]], None]:
    """What the process of a cell does: it holds the data, and forks for every method."""

    def run(tell: Callable[..., None]) -> None:
        tiny = data_of(loss, Shape(120, 5, min(shape.clients, 4), shape.sparse))
        small, problem = problem_of(loss, tiny.n_clients), problem_of(loss, shape.clients)
        bf.solve(small, tiny)
        before, fed = measure.peak(), data_of(loss, shape)

        def measured(problems: tuple[bf.Problem, bf.Problem], most: float, **how: Any) -> Found:
            how = {"tol": TOL} | how

            def work(tell: Callable[..., None]) -> None:
                measure.cut_after(60)
                bf.solve(problems[0], tiny, **how)
                began = time.process_time()
                for run in range(RUNS):
                    if run > 1 and time.process_time() - began > ENOUGH:
                        break
                    measure.cut_after(most)
                    tell_run(tell, lambda watch: bf.solve(problems[1], fed, watch=[watch], **how))
                    if time.process_time() - began > LONG:
                        break
                tell("peak", max(0.0, measure.peak() - before))

            forked = measure.forked(work, 60 + 20 * most)
            nonlocal peak
            peak = (forked.last("peak") or [None])[0]
            found, seconds = found_in(forked), [run[0] for run in forked.all("ours")]
            return replace(found, ours=sum(seconds) / len(seconds)) if seconds else found

        peak: float | None = None
        concrete, coded = problem.at(fed)
        default = type(default_algorithm(concrete, coded)).__name__
        found = measured((small, problem), LIMIT)
        tell("default", default, found, mebibytes(fed), peak)
        seconds = found.ours if proved(found) and found.ours is not None else LIMIT
        others: dict[str, Any] = {
            cls.__name__: cls()
            for cls in taking(concrete, setting_of(coded))
            if not cls.requirements.private and cls.__name__ != default
            if cls.advised == 0 or (every and seconds < SHORT)
        }
        for name, method in others.items():
            how: dict[str, Any] = {"algorithm": method}
            how |= {} if "tol" in settings_of(method) else {"tol": None}
            tell("other", name, measured((small, problem), CUT + seconds / TIMES, **how))
        if shape.clients == 1 and loss == "superquantile":  # the same problem, stated otherwise
            over_rows = bf.Problem(**LOSSES[loss])
            other = measured((over_rows, over_rows), CUT + seconds / TIMES)
            tell("other", "over_rows", other)

    return run


def read(forked: measure.Forked) -> Cell | None:
    if (told := forked.last("default")) is None:
        return None
    default, found, data, peak = told
    others = [(one.ours, name) for name, one in forked.all("other") if proved(one)]
    seconds, best = min(others, default=(None, None))
    return Cell(default, found, best, seconds, data, peak and peak / data)


def main(quick: bool, texts: list[str]) -> None:
    warnings.simplefilter("ignore")
    print(f"{measure.machine()}\n", flush=True)
    targets, left = measure.Targets(), 60 * MINUTES
    cells: dict[tuple[str, Shape], Cell | None] = {}
    bf.solve(problem_of("logistic", 4), data_of("logistic", Shape(120, 5, 4)))  # imports
    lines, growths = [], []
    chains = [
        Chain(chain.axis, chain.least, chain.shapes[: -1 if quick and len(chain.shapes) > 2 else 9])
        for chain in CHAINS
    ]
    shapes = dict.fromkeys(shape for chain in chains for shape in chain.shapes)
    for shape in shapes:
        for loss in LOSSES:
            if texts and not any(text in f"{loss}, {shape}" for text in texts):
                continue
            forked = measure.Forked([], 0.0, False)
            if left > 0:
                forked = measure.forked(cell(loss, shape, not quick), 900.0)
            left -= forked.seconds
            cells[loss, shape] = found = read(forked)
            error = (forked.last("error") or ["not run"])[0]
            lines.append((loss, str(shape), *(line(found) if found else (None,) * 9)))
            shown = measure.table(COLUMNS, lines[-1:]).splitlines()[-1]
            print(shown, "" if found else error, flush=True)
    measure.show("grid", COLUMNS, lines)
    for loss in LOSSES:
        for chain in chains:
            for one, two, sizes in chain.steps():
                if not {(loss, one), (loss, two)} <= {*cells}:
                    continue
                times = growth(cells[loss, one], cells[loss, two])
                kind = " sparse" * one.sparse
                power = math.log(times) / math.log(sizes) if 0 < times < math.inf else None
                growths.append((loss, chain.axis + kind, *_sizes(chain, one, two), times, power))
        of = {shape: found for (name, shape), found in cells.items() if name == loss}
        if of:
            judge(targets, loss, of, growths)
    measure.show("growth", ("loss", "in", "from", "to", "CPU, times", "exponent"), growths)
    targets.finish()


def _sizes(chain: Chain, one: Shape, two: Shape) -> tuple[int, int]:
    return getattr(one, chain.axis), getattr(two, chain.axis)


def growth(one: Cell | None, two: Cell | None) -> float:
    """The CPU of the second shape in that of the first; infinite where either is not proved."""
    if one is None or two is None or not (proved(one.found) and proved(two.found)):
        return math.inf
    return (two.found.ours or math.inf) / (one.found.ours or math.inf)


COLUMNS = ("loss", "shape", "default", "CPU s", "best other", "its CPU s", "times", "gap", "end")
COLUMNS += ("silent s", "memory / data")


def line(cell: Cell) -> tuple:
    found = cell.found
    proof = found.gap, found.outcome, found.silent
    return cell.default, found.ours, cell.best, cell.seconds, cell.times, *proof, cell.memory


def judge(
    targets: measure.Targets, loss: str, cells: dict[Shape, Cell | None], growths: list[tuple]
) -> None:
    """The four targets of a loss."""
    open_ = [str(shape) for shape, one in cells.items() if one is None or not proved(one.found)]
    shown = f": not {'; '.join(open_)}" if open_ else ""
    targets.need(not open_, f"{loss}: {len(cells) - len(open_)} of {len(cells)} shapes{shown}")
    times = [(one.times, str(shape)) for shape, one in cells.items() if one and one.times]
    worst = max(times, default=(0.0, "none"))
    targets.need(worst[0] <= TIMES, f"{loss}: {worst[0]:.3g} times the best method, {worst[1]}")
    steps = [(row[4] / (row[3] / row[2]), row) for row in growths if row[0] == loss]
    fast, (_, axis, low, high, *_) = max(steps, default=(0.0, (loss, "rows", 0, 0)))
    targets.need(fast <= GROWTH, f"{loss}: {fast:.3g} times linear in {axis}, {low:,} to {high:,}")
    held = [
        (one.memory, str(shape))
        for shape, one in cells.items()
        if one and one.memory and one.data >= LARGE
    ]
    most = max(held, default=(0.0, "none"))
    targets.need(most[0] <= MEMORY, f"{loss}: {most[0]:.3g} times the data in memory, {most[1]}")
