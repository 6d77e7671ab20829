"""Work on which a default once fell off a cliff, beside the field's own tools: CPU seconds, the
proof, and the longest silence.

    python benchmarks/cliffs.py [TEXT ...]  # all rows, or those with one of the texts
    python benchmarks/cliffs.py grid [--quick] [TEXT ...]  # shapes, see `cliff_grid.py`
    python benchmarks/cliffs.py distances [TEXT ...]  # usual work; the target is the goal itself

"Reachable" is what the design of the fast paths has seen: a multiple of the rival's CPU, of that of
the first row of the same kind (cost linear in size), or seconds of its machine. Target: at most
twice that; a proven relative gap of 1e-6; nothing silent for more than 5 CPU seconds, where a round
that `watch` sees, or printed text, ends a silence; and all rows in 5 minutes of CPU. Every row is a
fork of this process, which is warm, and has a limit of CPU seconds: one that is cut off has missed.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import bonafed as bf
from bonafed.solution.solve import fit

TIMES, TOL, SILENT, MINUTES = 2.0, 1e-6, 5.0, 5.0
LAM = 1e-3  # of L2, where nothing else is said
L2 = bf.L2(LAM)
PLAIN = bf.Linear(fit_intercept=False)
SCRATCH = tempfile.TemporaryDirectory()  # gone with this process, whose forks may be killed
Watch = Callable[..., None]


@dataclass(frozen=True)
class Work:
    """``ours(watch)`` returns a solution, an estimator or None; ``rival()`` anything."""

    ours: Callable[[Watch], Any]
    rival: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes
    ----------
    name : of the work
    make : of what is measured; ``make(True)`` is a small case that compiles and imports
    rival : its name; "" where there is none
    reachable : in the rival's CPU, or in that of the row named ``base``, or in seconds
    limit : CPU seconds after which the row is cut off
    base : of the name of the row that the cost is compared with
    least : seconds that the rival counts for at least
    proved : whether a gap has to be proved
    """

    name: str
    make: Callable[[bool], Work]
    rival: str
    reachable: float
    limit: float
    base: str = ""
    least: float = 0.0
    proved: bool = True


# -------------------------------------------------------------------------------------------- data


def labelled(n: int, d: int, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Independent normal columns, and labels of a linear rule with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    w = rng.normal(size=d) / np.sqrt(d) * 3
    y = np.where(X @ w + rng.normal(size=n) > 0, 1, -1)
    return X + offset if offset else X, y


def correlated(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns with a common part; labels, and real targets with heavy tails."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(n, 1))
    score = X @ (rng.normal(size=d) / np.sqrt(d))
    labels = np.where(score + rng.normal(size=n) > 0, 1.0, -1.0)
    return X, labels, score + rng.standard_t(3, size=n)


def thin(n: int, d: int) -> tuple[Any, np.ndarray]:
    """Sparse rows of about 20 entries, at most 2 % of the columns."""
    rng = np.random.default_rng(0)
    X = sparse.random(n, d, density=min(0.02, 20 / d), random_state=0, format="csr")
    return X, np.where(X @ rng.normal(size=d) + 0.1 * rng.normal(size=n) > 0, 1, -1)


def shared(X: Any, y: np.ndarray, clients: int) -> bf.Federation:
    return bf.Federation.from_arrays(X, y, np.arange(len(y)) % clients)


def write_wide(path: Path, n: int, d: int) -> None:
    """A table of numbers with a site and an outcome."""
    rng = np.random.default_rng(0)
    X, site = rng.normal(size=(n, d)), rng.integers(0, 4, n)
    sick = np.where(X[:, 0] + rng.normal(size=n) > 0, "yes", "no")
    lines = [",".join([*(f"x{k}" for k in range(d)), "site", "sick"])]
    for row, where, label in zip(X, site, sick, strict=True):
        lines.append(",".join([*(f"{v:.4f}" for v in row), f"site {where}", label]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------ rivals


def lbfgs(X: Any, y: np.ndarray, lam: float = LAM) -> Callable[[], Any]:
    return lambda: LogisticRegression(C=1 / (lam * len(y)), max_iter=1000).fit(X, y)


def quant_reg(X: np.ndarray, y: np.ndarray, level: float) -> np.ndarray:
    """Quantile regression as QuantReg of statsmodels does it: weighted least squares again and
    again.
    """
    w, weighted = np.zeros(X.shape[1]), X
    for _ in range(1000):
        before, w = w, np.linalg.pinv(weighted.T @ X) @ (weighted.T @ y)
        if np.abs(w - before).max() <= 1.5e-5:  # the value is then within 1e-6 of the optimum
            break
        residual = y - X @ w
        size = np.maximum(np.abs(residual), 1e-6)
        weighted = X / (size * np.where(residual < 0, level, 1 - level))[:, None]
    return w


# -------------------------------------------------------------------------------------------- rows


def default(problem: bf.Problem, fed: bf.Federation, **settings: Any) -> Callable[[Watch], Any]:
    return lambda watch: bf.solve(problem, fed, watch=[watch], **settings)


def risk_classifier(small: bool) -> Work:
    rng = np.random.default_rng(0)
    n = 500 if small else 20_000
    X = rng.normal(size=(n, 20))
    y = np.where(X @ rng.normal(size=20) + rng.normal(size=n) > 0, 1, -1)
    return Work(lambda watch: bf.RiskClassifier().fit(X, y), lambda: LogisticRegression().fit(X, y))


def ridge_logistic(n: int, d: int, data: Callable[[int, int], Any]) -> Callable[[bool], Work]:
    def make(small: bool) -> Work:
        X, y = data(300, 20) if small else data(n, d)
        problem = bf.Problem(bf.Logistic(), regulariser=L2)
        return Work(default(problem, shared(X, y, 10)), lbfgs(X, y))

    return make


def drfl(clients: int, rows: int, d: int) -> Callable[[bool], Work]:
    def make(small: bool) -> Work:
        n = 10 if small else clients
        fed = shared(*labelled(n * rows, 10 if small else d), n)
        ball, weights = bf.WassersteinBall(0.01), bf.LpBall(0.1)
        problem = bf.Problem(bf.Logistic(), over_clients=weights, over_samples=ball)
        return Work(default(problem, fed))

    return make


def hinge(small: bool) -> Work:
    X, y, _ = correlated(*((300, 10) if small else (20_000, 200)))
    problem = bf.Problem(bf.Hinge(), PLAIN, regulariser=L2)
    rival = LinearSVC(C=1 / (LAM * len(y)), loss="hinge", fit_intercept=False, max_iter=20_000)
    return Work(default(problem, shared(X, y, 1)), lambda: rival.fit(X, y))


def quantile(small: bool) -> Work:
    X, _, y = correlated(*((300, 10) if small else (20_000, 200)))
    problem = bf.Problem(bf.Quantile(0.9), PLAIN, regulariser=L2)
    return Work(default(problem, shared(X, y, 1)), lambda: quant_reg(X, y, 0.9))


def superquantile(small: bool) -> Work:
    fed = shared(*labelled(1000 if small else 200_000, 20), 1)
    tail = bf.Superquantile(0.05)
    pooled = bf.Problem(bf.Logistic(), over_samples=tail, regulariser=L2)
    ranked = bf.Problem(bf.Logistic(), over_rows=tail, regulariser=L2)
    method = bf.RankInteriorPoint()
    return Work(default(pooled, fed), lambda: bf.solve(ranked, fed, algorithm=method))


def offset(by: float) -> Callable[[bool], Work]:
    def make(small: bool) -> Work:
        fed = shared(*labelled(300 if small else 2000, 10, 0.0 if small else by), 10)
        problem = bf.Problem(bf.Logistic(), regulariser=L2)
        method = bf.InteriorPoint()
        return Work(default(problem, fed), lambda: bf.solve(problem, fed, algorithm=method))

    return make


def ranked_range(small: bool) -> Work:
    n, d = (300, 5) if small else (20_000, 50)
    X, _ = labelled(n, d)  # hardly of any use for these labels, so that the model is trivial
    y = np.where(0.01 * X.sum(1) + np.random.default_rng(1).normal(size=n) > 0, 1, -1)
    fed = shared(X, y, 1)
    risk = bf.RankedRange(9 * n // 10, n // 10, order="ascending")
    problem = bf.Problem(bf.Logistic(), over_samples=risk, regulariser=L2)
    return Work(default(problem, fed, max_rounds=2), lambda: fit(problem, fed, max_rounds=2))


def init(small: bool) -> Work:
    from bonafed.cli import app

    folder = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    write_wide(folder / "table.csv", *((60, 5) if small else (400, 5000)))
    command = ["init", str(folder / "table.csv"), "--out", str(folder / "run.toml")]

    def ours(watch: Watch) -> None:
        class Told(io.StringIO):
            def write(self, text: str) -> int:
                watch()
                return len(text)

        (folder / "run.toml").unlink(missing_ok=True)
        with contextlib.redirect_stdout(Told()), contextlib.redirect_stderr(Told()):
            app(command, standalone_mode=False)
        assert (folder / "run.toml").is_file()

    return Work(ours)


ROWS = (
    Row("RiskClassifier(), 20,000 x 20", risk_classifier, "LogisticRegression()", 37.0, 12),
    *(
        Row(f"logistic, 20,000 x {d:,}", ridge_logistic(20_000, d, labelled), "lbfgs", 1.8, limit)
        for d, limit in ((500, 6), (1000, 6), (2000, 10))
    ),
    *(
        Row(name, ridge_logistic(2000, d, thin), "lbfgs, .017 s at least", 1.0, 3, least=0.017)
        for name, d in ((f"logistic, sparse, 2,000 x {d:,}", d) for d in (500, 1000, 20_000))
    ),
    Row("DRFL, 10 clients, d = 50", drfl(10, 200, 50), "", 0.47, 4),
    *(
        Row(f"DRFL, 10 clients, d = {d:,}", drfl(10, 200, d), "", d / 50, limit, "d = 50")
        for d, limit in ((200, 4), (500, 5), (1000, 8))
    ),
    Row("hinge, 20,000 x 200", hinge, "LIBLINEAR", 1.97 / 3.5, 15),
    Row("quantile .9, 20,000 x 200", quantile, "QuantReg's steps", 1.77 / 5.0, 15),
    Row("superquantile .05, 200,000 x 20, pooled", superquantile, "RankInteriorPoint", 1.0, 15),
    *(
        Row(f"offset of {by:.0e}, 2,000 x 10", offset(by), "InteriorPoint", 1.0, 4)
        for by in (1e5, 1e6)
    ),
    Row("DRFL, 1,000 clients of 10 rows", drfl(1000, 10, 10), "", 1.0, 5),
    Row("DRFL, 3,000 clients of 10 rows", drfl(3000, 10, 10), "", 3.0, 8, "1,000 clients of 10"),
    Row("DRFL, 1,000 clients of a row", drfl(1000, 1, 10), "", 1.0, 6),
    Row("DRFL, 10,000 clients of a row", drfl(10_000, 1, 10), "", 5.0, 12),
    Row("RankedRange, 20,000 x 50, 2 rounds", ranked_range, "its fit", 1.0, 8, proved=False),
    Row("bonafed init, 400 x 5,000", init, "", 10.0, 22, proved=False),
    Row("DRFL, 100,000 clients of a row", drfl(100_000, 1, 10), "", 60.0, 125),
)


# ------------------------------------------------------------------------------------- usual work


def ridge(small: bool) -> Work:
    X, _, y = correlated(*((300, 10) if small else (20_000, 200)))
    problem = bf.Problem(bf.Squared(), regulariser=L2)
    rival = Ridge(LAM * len(y), solver="cholesky")
    return Work(default(problem, shared(X, y, 10)), lambda: rival.fit(X, y))


def huber(small: bool) -> Work:
    X, _, y = correlated(*((300, 10) if small else (20_000, 200)))
    loss = bf.Huber(1.0)

    def whole(w: np.ndarray) -> tuple[float, np.ndarray]:
        residual = X @ w - y
        slope = np.clip(residual, -1.0, 1.0)
        value = float((slope * residual - slope**2 / 2).mean() + LAM / 2 * (w @ w))
        return value, slope @ X / len(y) + LAM * w

    rival = {"jac": True, "method": "L-BFGS-B", "options": {"ftol": 1e-12, "gtol": 1e-7}}
    problem = bf.Problem(loss, PLAIN, regulariser=L2)
    fed = shared(X, y, 10)
    return Work(default(problem, fed), lambda: minimize(whole, np.zeros(X.shape[1]), **rival))


def lasso(small: bool) -> Work:
    X, y = labelled(300, 10) if small else labelled(20_000, 200)
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L1(LAM))
    rival = LogisticRegression(
        C=1 / (LAM * len(y)), l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0
    )
    return Work(default(problem, shared(X, y, 10)), lambda: rival.fit(X, y))


def floor_of_drfl(small: bool) -> Work:
    """The rival reads the rows as often as seven rounds do, and does nothing else."""
    n, d = (300, 10) if small else (100_000, 20)
    X, y = labelled(n, d)
    problem = bf.Problem(
        bf.Logistic(), over_clients=bf.LpBall(0.1), over_samples=bf.WassersteinBall(0.01)
    )

    def rival() -> None:
        w = np.zeros(d)
        for _ in range(7):
            margin = y * (X @ w)
            np.logaddexp(0.0, -margin).mean()
            w = w + 0.1 * ((y / (1 + np.exp(margin))) @ X) / n

    return Work(default(problem, shared(X, y, 10)), rival)


def small_fit(estimator: Callable[[], Any]) -> Callable[[bool], Work]:
    def make(small: bool) -> Work:
        X, y = labelled(1000, 10)
        return Work(lambda watch: estimator().fit(X, y), lambda: LogisticRegression().fit(X, y))

    return make


DISTANCES = (
    *(
        Row(f"logistic, {n:,} x {d}", ridge_logistic(n, d, labelled), "lbfgs", 1.3, 20)
        for n, d in ((20_000, 200), (200_000, 50))
    ),
    Row("squared, 20,000 x 200", ridge, "Ridge, Cholesky", 1.5, 10),
    Row("Huber, 20,000 x 200", huber, "SciPy's L-BFGS", 1.0, 10),
    Row("logistic, L1, 20,000 x 200", lasso, "LIBLINEAR", 1.0, 20),
    Row("DRFL, 100,000 x 20", floor_of_drfl, "seven rounds' products", 3.0, 10),
    *(
        Row(f"{kind.__name__}(), 1,000 x 10", small_fit(kind), "LogisticRegression()", 8.0, 20)
        for kind in (bf.RobustClassifier, bf.RiskClassifier)
    ),
    Row(
        "PrivateClassifier(), 1,000 x 10",
        small_fit(lambda: bf.PrivateClassifier(random_state=0)),
        "LogisticRegression()",
        8.0,
        20,
        proved=False,
    ),
)


# ---------------------------------------------------------------------------------------- measured


@dataclass(frozen=True)
class Found:
    """Of one row: CPU seconds of both, the proof, and the longest silence in CPU seconds."""

    ours: float | None  # None where it was cut off
    rival: float | None
    gap: float | None
    outcome: str
    silent: float


def run_of(row: Row, left: float) -> Callable[[Callable[..., None]], None]:
    """What the fork of a row does: its rival and ours in turn, three times where these are short,
    and within the CPU seconds that are left to all rows.
    """

    def run(tell: Callable[..., None]) -> None:
        measure.cut_after(max(left, 0.01))
        warm = row.make(True)
        if warm.rival:
            warm.rival()
        warm.ours(lambda *_: None)
        work = row.make(False)
        measure.cut_after(max(min(row.limit, left - time.process_time()), 0.01))
        began = time.process_time()
        for _ in range(3):
            if work.rival:
                tell("rival", *clocked(work.rival)[:1])
            tell_run(tell, work.ours)
            if time.process_time() - began > 3:
                break

    return run


def tell_run(tell: Callable[..., None], work: Callable[[Watch], Any]) -> None:
    """Tell when a run begins, when it is not silent, and what it took and proved; `found_in`
    reads it.
    """
    last = 0.0

    def watch(*_: Any) -> None:
        nonlocal last
        if (now := time.process_time()) > last + 0.05:  # few messages
            last = now
            tell("seen", now)

    tell("began", time.process_time())
    seconds, result = clocked(lambda: work(watch))
    proof = getattr(result, "certificate", getattr(result, "certificate_", None))
    outcome = getattr(result, "outcome", getattr(result, "outcome_", None))
    stop = getattr(getattr(outcome, "stop", None), "value", "ended")
    tell("ours", seconds, proof and proof.relative_gap, stop, time.process_time())


def clocked(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def found_in(forked: measure.Forked) -> Found:
    """What the fork of a row told."""
    rivals = [seconds for (seconds,) in forked.all("rival")]
    rival = min(rivals, default=None)
    if not (ours := forked.all("ours")):
        times = [told[-1] for told in forked.told if told[0] in ("began", "seen")]
        silent = max(np.diff([*times, forked.seconds]), default=0.0) if times else 0.0
        return Found(None, rival, None, (forked.last("error") or ["cut off"])[0], float(silent))
    silences, times = list[float](), list[float]()
    for name, *rest in forked.told:
        times = [rest[0]] if name == "began" else [*times, rest[-1]]
        if name == "ours":
            silences.append(float(np.diff(times).max()))
    seconds, gap, outcome, _ = min(ours)
    return Found(seconds, rival, gap, outcome, min(silences))


def main(texts: list[str], rows: tuple[Row, ...] = ROWS, times: float = TIMES) -> None:
    warnings.simplefilter("ignore")
    print(f"{measure.machine('scikit-learn')}\n", flush=True)
    fed = shared(*labelled(300, 5), 10)
    bf.solve(bf.Problem(bf.Logistic(), regulariser=L2), fed)  # imports, for all rows
    named = [row for row in rows if not texts or any(text in row.name for text in texts)]
    bases = [row.base for row in named if row.base]
    chosen = [row for row in rows if row in named or any(base in row.name for base in bases)]
    left, end = 60 * MINUTES, time.monotonic() + 180 * MINUTES  # of CPU; on the wall
    seconds, lines, targets = dict[str, float | None](), [], measure.Targets()
    for row in chosen:
        forked = measure.forked(run_of(row, left), max(1.0, end - time.monotonic()))
        left -= forked.seconds
        found = found_in(forked)
        seconds[row.name] = found.ours
        # what the cost is a multiple of; a base that is not there misses
        if row.base:
            base = next((s for name, s in seconds.items() if row.base in name), None)
        else:
            rival = None if found.rival is None else max(found.rival, row.least)
            base = rival if row.rival else 1.0
        ratio = found.ours / base if found.ours is not None and base else None
        proved = not row.proved or (found.gap is not None and found.gap <= TOL)
        of = row.rival or (f"of {row.base}" if row.base else "seconds")
        proof = found.gap, found.outcome, found.silent
        lines.append((row.name, found.ours, of, found.rival, ratio, row.reachable, *proof))
        print(measure.table(COLUMNS, lines[-1:]).splitlines()[-1], flush=True)
        shown = "not within its limit" if ratio is None else f"{ratio:.3g} times"
        if not row.rival and not row.base and found.ours is not None:
            shown = f"{found.ours:.3g} s"
        silent = "" if found.silent <= SILENT else f", silent for {found.silent:.2g} s"
        targets.need(
            ratio is not None
            and ratio <= times * row.reachable
            and proved
            and found.silent <= SILENT,
            f"{row.name}: {shown}, at most {times * row.reachable:.3g}"
            f"{'' if proved else f', {found.outcome}'}{silent}",
        )
    measure.show("cliffs" if rows is ROWS else "distances", COLUMNS, lines)
    spent = 60 * MINUTES - left
    targets.need(left >= 0, f"all rows in {spent:.0f} CPU s, at most {60 * MINUTES:.0f}")
    targets.finish()


COLUMNS = (
    "work",
    "CPU s",
    "beside",
    "its CPU s",
    "times",
    "reachable",
    "gap",
    "outcome",
    "silent s",
)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["grid"]:
        import cliff_grid

        cliff_grid.main("--quick" in arguments, [a for a in arguments[1:] if a != "--quick"])
    elif arguments[:1] == ["distances"]:
        main(arguments[1:], DISTANCES, times=1.0)
    else:
        main(arguments)
