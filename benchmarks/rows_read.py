"""How many rows of sites a server reads, of honest runs and by questions that no algorithm has.

    rows_read.py honest  thirteen problems over three sites: tables of 30, 200 and 2,000 rows a
                         site, heart, breast cancer and adult (heart and adult need the data
                         directory). Target: at most 1 row in 1,000 by every reader.
    rows_read.py asked   servers that follow no algorithm, 1,000 questions each, at one site of the
                         same tables. Target: at most 1 row in 200 by every asker.
    rows_read.py early   how often sites with ten rows a parameter end an honest run of the default
                         method before it is proved. Target: 1 run in 20.
    rows_read.py cost    CPU milliseconds of an answer, of the rule of few people, and of a new
                         process that reads what is kept. Target: 1 ms at 2,000 rows, a tenth of
                         the answer at 1,000,000.
    --only TEXT          what has this in its name, such as "made 200: thresholds" or "hinge"

The sites have the policy that `bonafed site policy` writes. ``tests/border`` has the attacks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import measure
import numpy as np
from bundle_tables import tables

import bonafed as bf
from bonafed.algorithms.federated.bundle.bundle import Evaluate, evaluate
from bonafed.engines.network import RefusedError
from bonafed.problem.parts import Parts, stored
from bonafed.sites.people import Answered, Answers
from bonafed.sites.policy import Policy

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from border import askers, readers

MADE = {30: 2, 200: 10, 2000: 10}  # rows of a site: features
TEN_ROWS = {30: 2, 60: 5, 200: 19, 2000: 19}  # rows of a site: features
RUNS = 10  # of each kind
OFTEN = "logistic", "logistic, mean", "logistic, parity", "squared", "multinomial"
MOST_ROWS = 6000  # of a table


def made() -> Iterator[tuple[str, dict[str, readers.Tables]]]:
    """(name, tables by kind of targets)."""
    for m, d in MADE.items():
        kinds = ("sign", "real", *(["class"] if m >= 200 else []))
        yield (
            f"made {m}",
            {kind: readers.made(m, d if kind != "class" else 3, kind) for kind in kinds},
        )
    for name, X, y in tables():
        if name != "digits":
            yield name, {"sign": shared(X, y)}


def shared(X: np.ndarray, y: np.ndarray) -> readers.Tables:
    """The rows of a table in a random order among three sites, with the first features with many
    values, as many as the policy allows.
    """
    order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    X, y = X[order], (y[order] == y[order].max()).astype(float)
    X = X[:, [len(np.unique(column)) > 10 for column in X.T]]
    X = X[:, : min(X.shape[1], len(y) // 30 - 1)]
    X = (X - X.mean(0)) / X.std(0)
    return {name: (X[k::3], y[k::3]) for k, name in enumerate(readers.NAMES)}


def honest(only: str, targets: measure.Targets) -> None:
    """The readers of honest runs."""
    found = []
    for table, kinds in made():
        for name, (kind, problem) in readers.PROBLEMS.items():
            if kind in kinds and only in f"{table}: {name}":
                found.append([table, name, *read(kinds[kind], kind, problem)])
    measure.show("honest", ["table", "problem", "rows", *readers.READERS, "ended"], found)
    for table, name, rows, *each, _ in found:
        targets.need(max(each) <= rows / 1000, f"{table}, {name}: {max(each)} of {rows} rows")
    firsts = [row[-1].split(", ")[0] for row in found]
    begun = len(firsts) - firsts.count("not begun")
    ends = firsts.count(bf.Stop.REFUSED.value)
    targets.need(ends <= begun / 20, f"{ends} of {begun} first runs that begin end early")


def read(parts: readers.Tables, kind: str, problem: bf.Problem) -> list[object]:
    """The rows that each reader finds after a run and one more with another regulariser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        it, ends = readers.world(Path(place), parts, readers.CLASSES[kind]), list[str]()
        for experiment, strength in (("first", 1e-3), ("second", 1e-2)):
            try:
                again = replace(problem, regulariser=bf.L2(strength))
                ends.append(it.solve(experiment, again).outcome.stop.value)
            except RefusedError:
                ends.append("not begun")
        found = (readers.read_by(it, reader) for reader in readers.READERS)
        return [it.rows, *found, ", ".join(ends)]


def early(only: str, targets: measure.Targets) -> None:
    """Honest runs that sites end, with the largest relative gap that was proved of them."""
    found, every, ends = [], 0, 0
    for m, most in TEN_ROWS.items():
        for name in OFTEN:
            kind, problem = readers.PROBLEMS[name]
            d = most if kind != "class" else (most + 1) // 3 - 1
            for heavy in (False, True) if d and only in f"{m}: {name}" else ():
                gaps = [*ended_early(kind, problem, m, d, heavy)]
                found.append([m, d + 1, name, heavy, RUNS, len(gaps), max(gaps, default=0.0)])
                every, ends = every + RUNS, ends + len(gaps)
                print(*found[-1], flush=True)
    titles = ["rows", "parameters", "problem", "heavy tails", "runs", "ended", "largest gap"]
    measure.show("early", titles, found)
    targets.need(ends <= every / 20, f"{ends} of {every} runs end early")


def ended_early(kind: str, problem: bf.Problem, m: int, d: int, heavy: bool) -> Iterator[float]:
    """The relative gaps of the runs that sites end, inf where nothing is proved."""
    for seed in range(RUNS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            parts = readers.made(m, d, kind, seed, heavy)
            solution = readers.world(Path(place), parts, readers.CLASSES[kind]).solve(
                "one", problem
            )
            if solution.outcome.stop is bf.Stop.REFUSED:
                gap = solution.certificate.relative_gap
                yield np.inf if gap is None else gap


def asked(only: str, targets: measure.Targets) -> None:
    """The servers that follow no algorithm."""
    found = []
    for table, kinds in made():
        for name in askers.ASKERS:
            if only in f"{table}: {name}":
                began = time.perf_counter()
                m = len(kinds["sign"][readers.NAMES[0]][0])
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                    it = readers.world(Path(place), kinds["sign"])
                    asker = askers.Asker(it, readers.NAMES[0])
                    rows = len(it.read(asker.site, askers.guesses(asker, name)))
                spent = time.perf_counter() - began
                found.append([table, name, rows, m, askers.MOST - asker.left, spent])
                print(*found[-1], flush=True)
    measure.show("asked", ["table", "asker", "rows read", "of", "questions", "seconds"], found)
    for table, name, rows, m, *_ in found:
        targets.need(rows <= m / 200, f"{table}, {name}: {rows} of {m} rows")


ROWS = 200, 2_000, 200_000, 1_000_000
KEPT = 10, 30, 60
ANSWERS = {  # the gradient and curvature of all rows, or gradients of groups
    "curved": Parts(1, 1, 1),
    "grouped": Parts(10, 10, 0),
    "several rows a person": Parts(1, 1, 1),
}
OPEN = Policy(maximum_models=1_000)


def cost(only: str, targets: measure.Targets) -> None:
    """What the rule costs, by rows and by answers that are kept."""
    found = []
    for m, kind in product(ROWS, ANSWERS):
        if only in f"{m}: {kind}":
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                found += [[m, kind, *each] for each in spent(Path(place), m, kind)]
    measure.show("cost", ["rows", "answers", "kept", "answer ms", "rule ms", "read ms"], found)
    for m, kind, kept, answer, rule, _ in found:
        most = 1.0 if m <= 2_000 else answer / 10
        text = f"{m} rows, {kind}, {kept} kept: {rule:.3g} ms beside {answer:.3g}"
        targets.need(m == 200_000 or rule <= most, text)


def spent(place: Path, m: int, kind: str) -> Iterator[tuple[int, float, float, float]]:
    """(answers kept, CPU milliseconds of an answer, of the rule, of reading what is kept)."""
    rng = np.random.default_rng(0)
    X, way = rng.normal(size=(m, 10)), rng.normal(size=11) / 4
    y = np.where(X @ way[:-1] + rng.normal(size=m) > 0, "yes", "no")
    problem, data = readers.ROBUST.at(bf.Federation.from_arrays({"a": (X, y)}))
    block, memory = data.block(0), None
    people = np.arange(m, dtype=np.uint64) // (3 if kind.startswith("several") else 1)
    answers, parts, times = Answers(place / "kept"), ANSWERS[kind], list[tuple[float, float]]()
    for k in range(max(KEPT) + 1):
        w = way + 0.7**k * rng.normal(size=11) / 4
        ask = Evaluate(w, stored(parts), np.ones(1), None, "hessian" if parts.smooth else "")
        began = time.process_time()
        up = evaluate(problem, ask, block)
        middle = time.process_time()
        answered = Answered(problem, block, ask, up, memory, memory)
        if answers.refusal(OPEN, "run", people, answered) is not None:
            return
        times.append((middle - began, time.process_time() - middle))
        if k in KEPT:
            began = time.process_time()
            Answers(place / "kept")
            read = time.process_time() - began
            yield k, *(1e3 * seconds for seconds in (*map(min, *times[-8:]), read))


PARTS = {"honest": honest, "early": early, "asked": asked, "cost": cost}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    warnings.simplefilter("ignore", bf.TrivialModelWarning)
    verdicts = measure.Targets()
    PARTS[given.part](given.only, verdicts)
    verdicts.finish()
