"""``README.md`` of this folder, from the results that the scripts saved.

    python benchmarks/render.py

A section says what a script asks; every measured figure below it stands in ``results/SCRIPT.json``,
which ``python benchmarks/SCRIPT.py --save`` writes.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import RESULTS, table

PAGE = Path(__file__).with_name("README.md")

TOP = """\
# Benchmarks

    pip install ".[benchmarks]"
    OMP_NUM_THREADS=1 python benchmarks/rivals.py [--quick] [--save]

Each script prints tables and targets, and exits with 1 when a target is missed. Figures are CPU
seconds of one thread: variants alternate in one run, and each keeps its least
time (`measure.py`). Trust ratios and rounds more than seconds: the machine is shared. `--quick` is
for small cases.

`--save` writes all rows, date, commit and machine into `results/`; `python benchmarks/render.py`
makes this page of some of them. Results with a `note` were copied from an older page. Some data
need the folder `BONAFED_DATA`.

`golden.py` compares two revisions bit by bit, and `structure.py` how the source is built.
"""


@dataclass(frozen=True)
class Shown:
    """A table of the results: rows with one of these texts in them, and columns; else all."""

    table: str
    rows: tuple[str, ...] = ("",)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A script of this folder: its question, its target, and the tables that the page shows."""

    script: str
    title: str
    question: str
    target: str = ""
    tables: tuple[Shown, ...] = ()


SECTIONS = (
    Section(
        "rivals.py",
        "Beside rivals",
        "CPU beside dro's GroupDRO and a conic program in CVXPY that has all rows.",
        "20 times less than GroupDRO; 2 and 6 times less than CVXPY with 10 and 50 clients;"
        " objective equal or better",
        (Shown("rivals", ("groups", "bonafed |", "CVXPY"), ("problem", "method", "CPU s")),),
    ),
    Section(
        "cliffs.py",
        "Cliffs",
        "Work that once took hundreds of times the CPU of others' tools. `grid` prints the default"
        " beside every method of the package, and saves nothing.",
        "twice what was seen reachable; 1e-6 proved; 5 s of silence",
    ),
    Section(
        "defaults.py",
        "Defaults",
        "Every estimator with all its defaults beside scikit-learn's plain models; log loss minus"
        " that of `LogisticRegression()`, all rows and worst client.",
        "AUC or R2 within .03 on 29 of 30 tables; no constant model without a warning; limits that"
        " warnings name hold",
        (
            Shown("price and gain", columns=("estimator", "within .03", "clean", "feature noise")),
            Shown("private"),
        ),
    ),
    Section(
        "heart.py",
        "Four real hospitals",
        "The robust model beside each hospital's own, and rows pooled.",
        "the worst gains most, beyond its interval",
    ),
    Section(
        "worst_group.py",
        "The worst group",
        "Its held-out accuracy on five tables.",
        "fairlearn's at least, at a tenth of its CPU",
        (Shown("models", ("five | AgnosticClassifier(S", "five | f"), ("model", "worst group")),),
    ),
    Section(
        "side_by_side.py",
        "Beside a revision",
        "CPU beside a revision, case by case in turn.",
        "at most 1.05 times the CPU before",
    ),
    Section(
        "sets.py",
        "Worst cases over sets",
        "The worst weighting of N clients over every uncertainty set, beside HiGHS; CPU ms of a"
        " polyhedron asked again.",
        "at N = 100,000: box 10 ms, CD-norm 150 ms, Wasserstein on a line 60 ms; a polyhedron asked"
        " again 5 times faster than `linprog`",
        (Shown("walk", ("worst | 1000 | 0.01 |",), ("N", "steps", "cold", "warm", "linprog")),),
    ),
    Section(
        "oracle.py",
        "Oracle",
        "One worst-case risk and its cut at (5000, 500); the floor is two matrix-vector products"
        " and a sort.",
        "at most twice the floor",
        (Shown("cuts", ("Hinge | l1 | 0.5", "Logistic | l2 | 0.5")),),
    ),
    Section(
        "overhead.py",
        "Where the CPU goes",
        "1,000 clients of about 30 rows: CPU ms per client and round.",
        "engine at most 0.2 ms",
        (Shown("overhead", columns=("mode", "all", "engine")),),
    ),
    Section(
        "triviality.py",
        "The check for trivial models",
        "CPU of the check beside the fit.",
        "a tenth of the fit, or of 60 ms",
    ),
    Section(
        "memory.py",
        "Memory",
        "Peak MiB of 1,000 clients with a million rows.",
        "beyond the data at most 3 times the data; the server's state small",
    ),
    Section(
        "loading.py",
        "Loading",
        "Seconds and memory until the rows of many clients are ready.",
        "10,000 rows of 1,000 clients in 2 s, of 10,000 in 10 s",
    ),
    Section(
        "large_table.py",
        "A table as it is",
        "40,000 rows and 60 columns from `init` to `verify` without an edit.",
        "every status 0",
        (Shown("commands", ("init", "run", "verify")),),
    ),
    Section(
        "cold.py",
        "The first run on a machine",
        "CPU seconds of the first run, which compiles kernels, and of a later one.",
        "at most 8 CPU s more, said in a line",
        (Shown("cold", ("hospitals",)),),
    ),
    Section(
        "outputs.py",
        "Outputs",
        "Every command in every encoding, on every kind of stream and terminal.",
        "each ends well or says in a line why not",
    ),
    Section(
        "drfl.py",
        "Rounds",
        "First round within a relative tolerance, and CPU seconds.",
        "the default proves 1e-6 in 45 rounds, in 15 with 200 clients",
        (
            Shown(
                "rounds",
                (
                    "Hinge S=3 n=13 | bundle (d",
                    "Hinge S=10 n=13 | bundle (d",
                    "Hinge S=200 n=13 | bundle (d",
                ),
                ("case", "0.01", "0.0001", "1e-06", "CPU s"),
            ),
        ),
    ),
    Section(
        "bundle_tables.py",
        "Rounds of the bundle",
        "Rounds of `Bundle` to a proven 1e-6 on four ordinary tables with 1, 3 and 10 clients.",
        "hinge at most 35 rounds, 30 in the median; logistic 25 and 15; 0.1 CPU s a round of the"
        " server with 100 clients",
        (Shown("rounds", ("S = 1, 3, 10", "raw")),),
    ),
    Section(
        "zstep.py", "Proximal step of a rank risk", "CPU ms of one proximal step beside a sort."
    ),
    Section(
        "rank.py",
        "Risks by rank",
        "Proven gaps and ranges; seconds of a whole solve with its certificate.",
        "gaps of 1e-8 (l2) and 1e-6 (l1); least objectives within 1 % of the least known",
        (
            Shown(
                "convex",
                ("6000 x 1000 | logistic",),
                ("rows x features", "penalty", "mean", "superquantile"),
            ),
        ),
    ),
    Section(
        "rank_rows.py",
        "Ranks over all rows",
        "Superquantiles and other spectra of the rows of ten clients, without pooling.",
        "1e-9 proved in 40 rounds, within 1e-8 of the pooled optimum",
        (
            Shown(
                "rounds",
                ("adult | 4000 | superquantile 0.1", "adult | 4000 | ex"),
                ("risk", "rounds", "proven gap"),
            ),
        ),
    ),
    Section(
        "constrained.py",
        "Constraints",
        "Rounds, numbers sent and CPU beside SciPy, a dense solve and fairlearn.",
        "40 rounds to a proved 1e-6, the same rounds in all units, 0.15 ms a client and round",
        (
            Shown(
                "neyman: pooled solvers",
                ("adult-a, n = 20 |", "monks-1, n = 20 |"),
                ("case", "InteriorPoint", "SLSQP", "trust-constr"),
            ),
            Shown("units", ("n = 5, folds 0, features",), ("case", "0.001", "rounds", "gap")),
        ),
    ),
    Section(
        "private.py",
        "Private models",
        "Private ADMM: CPU of a round, errors within totals on MNIST and FEMNIST.",
        "0.05 CPU s a round at MNIST's shape, 0.14 at FEMNIST's; errors of 13.0, 11.0 and 13.5 %",
        (
            Shown("speed", ("single | gaussian",), ("shape", "CPU s a round", "plain NumPy")),
            Shown("mnist", ("defaults",), ("total", "rounds", "test error %, mean of three seeds")),
        ),
    ),
    Section(
        "private_defaults.py",
        "Private defaults",
        "Private models by defaults that look at no rows, beside no privacy and the central DP-SGD"
        " and AdaSSP; test error %.",
        "breast cancer and the generated table within 1.5 points of no privacy at epsilon 2;"
        " MNIST 10.4 % after 100 rounds",
        (
            Shown(
                "tables",
                ("breast cancer | 569 × 30 | 2", "2,500 × 8 | 2"),
                ("table", "no privacy %", "ours %", "DP-SGD, central %", "AdaSSP, central %"),
            ),
            Shown("images", columns=("rounds", "each answer %", "sums, none missing %")),
        ),
    ),
    Section(
        "private_modules.py",
        "Private modules",
        "A private torch network beside a private line on a checkerboard; bits of a row's gradient"
        " in batches.",
        tables=(Shown("networks"),),
    ),
    Section(
        "private_descent.py",
        "Private gradient descent",
        "MNIST within (1, 1e-6), in both views, and with samples of rows; test error %.",
        "each answer seen: 10.4 % after 100 rounds, 10.3 % after 300; sums seen: 9.0 and 8.8 %",
        (
            Shown(
                "mnist",
                ("answers", "sum | 0"),
                ("view", "rounds", "test error %, mean of three seeds"),
            ),
        ),
    ),
    Section(
        "private_clips.py",
        "Private clips",
        "Clips from public geometry and by a private quantile, rows in several units.",
        "where rows are a hundredth as long as supposed, 5 points fewer errors by the quantile",
        (Shown("clips", ("hundredth",)),),
    ),
    Section(
        "private_newton.py",
        "Private Newton steps",
        "Newton steps beside private gradient descent and AdaSSP; test error %.",
        "in 8 rounds at most .3 points more errors than the better rival",
        (
            Shown(
                "errors",
                ("569 x 30", "independent"),
                ("table", "epsilon", "PrivateNewton, 8 rounds", "PrivateSGD, 8 rounds", "AdaSSP"),
            ),
        ),
    ),
    Section(
        "private_intervals.py",
        "Private intervals",
        "Coverage of 95 % intervals, ten models.",
        "93 to 97 %",
        (
            Shown(
                "intervals",
                ("logistic, 3 features, epsilon 1", "linear, 3 features, epsilon 1"),
                ("model", "coverage %", "without noise %"),
            ),
        ),
    ),
    Section("worst_client.py", "The worst client", "How often promises fail.", "8.1 % at most"),
    Section(
        "private_search.py",
        "A private search",
        "Noise of a candidate over that of one fit within the same total.",
        tables=(Shown("noise", ("(1, 1e-06) | 10",)),),
    ),
    Section(
        "secure_sum.py",
        "Secure sum",
        "A round of 7,840 numbers: CPU ms and kB.",
        tables=(
            Shown(
                "secure sum", columns=("clients", "set-up ms", "mask ms", "round kB up", "server s")
            ),
        ),
    ),
    Section(
        "attacks.py",
        "Attacks on private answers",
        "What low bits, rounded sums, the order of rows and last digits show of a private record.",
        "no lower bound of epsilon at 95 % above the stated 1",
        (
            Shown(
                "attacks",
                ("low bits, logistic", "order of the same", "single precision"),
                ("attack", "epsilon at least: doubles", "whole numbers"),
            ),
        ),
    ),
    Section(
        "audit.py",
        "Audits with many canaries",
        "What an audit shows of a stated epsilon of 1, by mechanism and canaries.",
        "median 0.5 from one run if the noise is Gaussian; halved noise noticed in 9 of 10 runs",
        (
            Shown(
                "audit",
                ("1 round | 5000 |",),
                ("answers", "epsilon at least", "if Gaussian", "halved noise"),
            ),
        ),
    ),
    Section(
        "rows_read.py",
        "Rows that a server reads",
        "Rows of sites read from honest runs and by 1,000 questions of its choice; honest runs that"
        " sites end early; the price of the rule of few people.",
        "1 row in 1,000 of honest runs, 1 in 200 by questions; 1 run in 20 ends early; 1 ms at"
        " 2,000 rows, a tenth of the answer at 1,000,000",
    ),
    Section(
        "aspire.py",
        "Asynchronous min-max",
        "Virtual seconds of a proof on ordinary tables, `AsyncBundle` / `Bundle` / `AsyncDRO`;"
        " events a CPU second; every set. The paper's experiments: `bonafed reproduce --list`.",
        "where one is slow, AsyncBundle no later than Bundle; 25,000 events at S = 10; gaps of 1e-8"
        " and 1e-3 for every set",
        (
            Shown(
                "tables", ("heart",), ("table", "raw, 10x", "raw, nobody slow", "standardised, 10x")
            ),
        ),
    ),
    Section(
        "engines/flare.py",
        "NVIDIA FLARE",
        "Real processes and TLS: time of a round beside FLARE without bonafed, memory, faults.",
        "15 ms with 3 sites and 60 ms with 10; memory flat over 3,000 rounds; the same bits",
        (Shown("rounds", ("round of",)),),
    ),
    Section(
        "engines/flower.py",
        "Flower",
        "Seconds of a round over Flower's processes; a run whose SuperNode, ServerApp and SuperLink"
        " are killed.",
        "the killed run ends with the bits of the other one",
        (Shown("faults"),),
    ),
)


def page() -> str:
    """The whole page."""
    return "\n".join([TOP, *(section(each) for each in SECTIONS)])


def section(asked: Section) -> str:
    """One script: question, target, verdicts, tables."""
    path = RESULTS / f"{Path(asked.script).stem}.json"
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    target = f"Target: {asked.target}." if asked.target else ""
    text = " ".join(filter(None, (asked.question, target, verdict(held, path.name))))
    head = f"## {asked.title} (`{Path(asked.script).name}`)\n{textwrap.fill(text, 100)}"
    tables = [shown((held or {})["tables"], each, asked.script) for each in asked.tables]
    return "\n\n".join([head, *tables]) + "\n"


def verdict(held: Mapping[str, Any] | None, name: str) -> str:
    """Where all rows stand, when the newest were measured, and which targets were missed."""
    if held is None:
        return "No result is saved."
    found = [*held["targets"].values(), *held["tables"].values()]
    last = max((each["measured"] for each in found), key=lambda one: one["date"])
    verdicts = [one for each in held["targets"].values() for one in each["verdicts"]]
    missed = [text for text, met in verdicts if not met]
    said = f" **Missed**: {'; '.join(missed)}." if missed else " All met." if verdicts else ""
    return f"[All rows](results/{name}), {last['date']}.{said}"


def shown(tables: Mapping[str, Any], asked: Shown, script: str) -> str:
    """The rows and columns that the page shows of a table."""
    held = tables[asked.table]
    columns = asked.columns or held["columns"]
    if absent := [column for column in columns if column not in held["columns"]]:
        raise SystemExit(
            f"render.py shows the column {absent[0]!r} of {asked.table!r} ({script}), which the"
            f" saved table lacks: it has {', '.join(held['columns'])}."
        )
    places = [held["columns"].index(column) for column in columns]
    rows = [[row[k] for k in places] for row in held["rows"] if _asked(row, asked.rows)]
    return table(columns, rows)


def _asked(row: Sequence[Any], texts: Sequence[str]) -> bool:
    line = " | ".join(map(str, row))
    return any(text in line for text in texts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
