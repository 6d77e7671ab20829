"""The checks of rows and model, each with its threshold and what was seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bonafed.report.sections.section import Chapter, ReportSection, Text, chapter
from bonafed.report.tables import (
    NAME,
    NOTHING,
    Record,
    Result,
    Table,
    capital,
    number,
    percent,
    short,
    table,
)
from bonafed.runs.run import Run


class Words(NamedTuple):
    """What a check is called, what its number is, how that is written, and what to do."""

    called: str
    measured: str
    written: Callable[[float], str]
    advice: str


CHECKS = {
    "left_out": Words(
        "Few rows are left out",
        "rows without a target or a client, at most {}",
        percent,
        "the model knows nothing of them: ask why it is missing, and whether by chance",
    ),
    "identifier": Words(
        "No identifier among the features",
        "rows with a value of a column to themselves, below {}",
        percent,
        "a model learns an identifier by heart: put the column into data.exclude",
    ),
    "copy": Words(
        "No copy of the target among the features",
        "AUC of one feature, or its correlation with the target, below {}",
        number,
        "one feature by itself gives the target away: ask whether it is known when the model is"
        " used, or put it into data.exclude",
    ),
    "duplicates": Words(
        "No rows at several clients",
        "rows that stand at another client, too, at most {}",
        percent,
        "the same person may be counted twice: remove the copies at one of the clients",
    ),
    "trained_on": Words(
        "No test rows in training",
        "test rows that were trained on, at most {}",
        percent,
        "test figures flatter the model: remove the copies, or name the column of persons as"
        " data.person",
    ),
    "missing_class": Words(
        "All classes at every client",
        "clients without a row of some class, at most {}",
        number,
        "at these clients rates have no meaning, and the model cannot be judged by class",
    ),
    "tiny": Words(
        "No tiny clients",
        "rows of the smallest client, at least {}",
        number,
        "figures of so few rows are chance: read their intervals, or pool these clients",
    ),
    "shift": Words(
        "Clients are alike",
        "largest standardised difference of means beyond sampling error, at most {}",
        number,
        "one model may not suit all: compare the figures of these clients with the others'",
    ),
    "trivial": Words(
        "The model is not trivial",
        "better than the best constant; rows that get the commonest prediction, below {}",
        percent,
        "a constant does as well: the warning at the top says which parameter is to blame",
    ),
}
RESULTS = {True: "pass", False: "FAIL", None: "not judged"}


class Checks(ReportSection):
    """Whether the rows and the model are such that the figures can be believed."""

    def applies(self, run: Run) -> bool:
        return "checks" in run.result

    def chapters(self, run: Run) -> list[Chapter]:
        made = checks(run.result)
        return [
            chapter("checks", "Can I trust the numbers?", Text(verdict(run.result), True), made)
        ]


def failed(result: Result) -> list[Record]:
    """The checks that fail."""
    return [row for row in result["checks"] if row["passed"] is False]


def verdict(result: Result) -> str:
    """How many checks pass, and which fail."""
    judged = [row for row in result["checks"] if row["passed"] is not None]
    unjudged = len(result["checks"]) - len(judged)
    more = f" Not judged: {unjudged}." * (unjudged > 0)
    if not (bad := failed(result)):
        return f"All {len(judged)} checks of the rows and the model pass.{more}"
    names = "; ".join(failure(row) for row in bad)
    verb = "fails" if len(bad) == 1 else "fail"
    return f"{len(bad)} of {len(judged)} checks {verb}. {capital(names)}.{more}"


def failure(row: Record) -> str:
    """What a failed check saw, where, and what to do."""
    check = CHECKS[row["name"]]
    where = f" for {_where(row)}" if row["where"] else ""
    return f"{check.called}: {_seen(row)}{where} ({_threshold(row)}); {check.advice}"


def checks(result: Result) -> Table:
    """Every check with its threshold and what was seen."""
    rows = []
    for row in result["checks"]:
        check = CHECKS[row["name"]]
        at = _where(row) if row["passed"] is False or row["name"] == "left_out" else ""
        rows.append((check.called, RESULTS[row["passed"]], _seen(row), _threshold(row), at))
    heads = ("Check", "Result", "Seen", "Threshold", "Where")
    kept = 5 if any(row[-1] for row in rows) else 4
    cells = [row[:kept] for row in rows]
    return table("Checks of rows and model", heads[:kept], cells, (0, 1, 3, 4), long=(0, 3, 4))


def _seen(row: Record) -> str:
    return NOTHING if row["seen"] is None else CHECKS[row["name"]].written(row["seen"])


def _threshold(row: Record) -> str:
    check = CHECKS[row["name"]]
    return check.measured.format(check.written(row["limit"]))


def _where(row: Record) -> str:
    """The features or clients that a check is about."""
    more = row["count"] - len(row["where"])
    return ", ".join(short(name, NAME) for name in row["where"]) + f" and {more} more" * (more > 0)
