"""Constraints in a report: what was asked of whom, what is measured, what it costs, and what holds on other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.report.tables import Table, number, percent, precise, table

MOST = 60  # rows of a table: those with the smallest slack
HEADS = ("client", "n", "loss", "worst_loss", "weight", "limit", "measured", "slack", "price", "held_n", "held_loss")
HEADS += ("held_accuracy", "held_error", "bytes_up", "bytes_down", "note")
BRIEF = ("client", "n", "loss", "limit", "measured", "slack", "price", "held_accuracy", "held_error")


def asked(result: Mapping[str, Any]) -> bool:
    """Whether the run was one with constraints, or with one class in its objective."""
    return "constraints" in result


def impossible(result: Mapping[str, Any]) -> bool:
    """Whether the run proves that no model meets all constraints."""
    return result["outcome"]["stop"] == "infeasible"


# ---------------------------------------------------------------------------------------- words


def summary(result: Mapping[str, Any]) -> list[str]:
    """How far the constraints are met, in sentences."""
    rows = result["constraints"]
    if impossible(result):
        clash = [f"{row['owner']}: {row['constraint']}" for row in rows if row["weight"] > 1e-6]
        return [
            f"The proof combines {'; '.join(clash[:12])}{f' and {len(clash) - 12} more' * (len(clash) > 12)}.",
            f"No model is recommended. The one that is kept in this folder breaks the constraints by "
            f"{number(result['certificate']['feasibility'])} at its worst: look at it to see which limits pull against "
            "each other, and do not use it.",
        ]
    if not rows:
        return ["There are no constraints; one class alone is in the objective."]
    unmet = [row for row in rows if not row["met"]]
    if unmet:
        worst = min(unmet, key=lambda row: row["slack"])
        return [
            f"{len(unmet)} of {len(rows)} constraints are not met on the training rows: the worst is that of "
            f"{worst['owner']} on {worst['constraint']}, {number(worst['measured'])} where {number(worst['limit'])} is "
            "the limit."
        ]
    reached = sum(abs(row["slack"]) <= 1e-6 * max(1.0, abs(row["limit"])) for row in rows)
    largest = precise(result["certificate"]["feasibility"])
    return [
        f"All {len(rows)} constraints are met on the training rows (largest violation {largest}); {reached} of them "
        f"{'is' if reached == 1 else 'are'} reached."
    ]


def priced(result: Mapping[str, Any]) -> list[str]:
    """What relaxing the limits would gain, in sentences."""
    if result["prices"]:
        return list(result["prices"])
    if impossible(result):
        return ["Where nothing is feasible there are no prices: the column says how the proof weighs each constraint."]
    met = all(row["met"] for row in result["constraints"])
    near = met and (result["certificate"]["relative_gap"] or 0.0) <= 1e-3
    if near:
        return ["No limit has a price: relaxing any of them a little does not lower the objective."]
    return ["No prices are stated: the model is not proven near the optimum, and the multipliers may be far off."]


# ---------------------------------------------------------------------------------------- tables


def constraints(result: Mapping[str, Any], most: int = MOST, brief: bool = False) -> Table:
    """Every constraint on the training rows, beside the model without constraints unless ``brief``."""
    rows = tight(result["constraints"], most)
    other = None if brief else _other(result, "training rows")
    beside = {(row["owner"], row["constraint"]): row for row in other["rows"]} if other else {}
    rated = any(row["rate"] is not None for row in rows)
    price = "Weight in the proof" if impossible(result) else "Price"
    heads = ["Owner", "Constraint", "Limit", "Measured", "Slack", price, "Met", *["Rate"] * rated]
    heads += [f"{other['model']}: measured", *[f"{other['model']}: rate"] * rated] if other else []
    cells = []
    for row in rows:
        line = [row["owner"], row["constraint"], *(number(row[k]) for k in ("limit", "measured"))]
        price = percent(row["weight"]) if impossible(result) else _small(row["price"])
        line += [_small(row["slack"]), price, _met(row), *[percent(row["rate"])] * rated]
        if other:
            there = beside.get((row["owner"], row["constraint"]), {})
            line += [number(there.get("measured")), *[percent(there.get("rate"))] * rated]
        cells.append(line)
    return table("Constraints on the training rows", heads, cells, (0, 1, 6))


def kept(result: Mapping[str, Any], most: int = MOST, brief: bool = False) -> list[Table]:
    """The constraints on every other set of rows, beside the model without constraints unless ``brief``."""
    found = []
    for part in result["kept"]:
        if part["set"] == "training rows" or part["model"] != result["model"] or not part["rows"]:
            continue
        rows, other = tight(part["rows"], most), None if brief else _other(result, part["set"])
        beside = {(row["owner"], row["constraint"]): row for row in other["rows"]} if other else {}
        rated = any(row["rate"] is not None for row in rows)
        heads = ["Owner", "Constraint", "Limit", "Measured", "Met", *["Rate"] * rated]
        heads += [f"{other['model']}: measured", *[f"{other['model']}: rate"] * rated] if other else []
        cells = []
        for row in rows:
            line = [row["owner"], row["constraint"], number(row["limit"]), number(row["measured"]), _met(row)]
            line += [percent(row["rate"])] * rated
            if other:
                there = beside.get((row["owner"], row["constraint"]), {})
                line += [number(there.get("measured")), *[percent(there.get("rate"))] * rated]
            cells.append(line)
        found.append(table(f"Constraints on {part['set']}", heads, cells, (0, 1, 4)))
    return found


def tight(rows: Sequence[dict[str, Any]], most: int = MOST) -> list[dict[str, Any]]:
    """The rows with the smallest slack, in their order."""
    keep = sorted(range(len(rows)), key=lambda k: rows[k]["slack"])[:most]
    return [rows[k] for k in sorted(keep)]


def _other(result: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """What the first other model keeps on a set."""
    found = (part for part in result["kept"] if part["set"] == name and part["model"] != result["model"])
    return next(found, None)


def _small(value: float) -> str:
    return number(0.0 if abs(value) < 1e-9 else value)


def _met(row: Mapping[str, Any]) -> str:
    return "yes" if row["met"] else "no"


def groups(result: Mapping[str, Any]) -> list[Table]:
    """How often every group is predicted positive, rightly and wrongly, by set and model."""
    found = []
    for name, column in dict.fromkeys((row["set"], row["column"]) for row in result["groups"]):
        mine = [row for row in result["groups"] if (row["set"], row["column"]) == (name, column)]
        rates = ("selected", "tpr", "fpr", "accuracy")
        cells = [[row["model"], row["group"], number(row["rows"]), *(percent(row[k]) for k in rates)] for row in mine]
        heads = ("Model", column, "Rows", "Predicted positive", "True positives", "False positives", "Accuracy")
        found.append(table(f"Groups of {column} on {name}", heads, cells, (0, 1)))
    return found


def levels(traded: Mapping[str, Any], brief: bool = False) -> Table:
    """The levels that were tried, one row a point; ``brief``: what fits a terminal."""
    heads = {
        "level": "Level",
        "value": "Objective",
        "relative_gap": "Gap",
        "price": "Price",
        "violation": "Violation",
        "rate": "Rate",
        "held_measured": "Held out: measured",
        "held_rate": "Held out: rate",
        "loss": "Held-out loss",
        "accuracy": "Held-out accuracy",
        "error": "Held-out error",
        "rounds": "Rounds",
        "outcome": "Ended",
    }
    points = traded["points"]
    few = ("level", "value", "price", "rate", "held_rate", "accuracy", "outcome")
    keys = [key for key in (few if brief else heads) if any(point.get(key) is not None for point in points)]
    ways: dict[str, Any] = dict.fromkeys(("rate", "held_rate", "accuracy"), percent)
    ways["relative_gap"] = ways["violation"] = lambda value: "–" if value is None else f"{value:.0e}"
    ways["outcome"] = lambda said: said.replace("_", " ")
    cells = [[ways.get(key, number)(point.get(key)) for key in keys] for point in points]
    for row, point in zip(cells, points, strict=True):
        row[0] += " ← this run" * (point["level"] == traded["level"])
    return table("Other levels", [heads[key] for key in keys], cells, (0, keys.index("outcome")))


def traded_words(traded: Mapping[str, Any]) -> list[str]:
    """What the levels show, in sentences."""
    points = sorted(traded["points"], key=lambda point: point["level"])
    lost = [point["level"] for point in points if point["value"] is None]
    said = [
        f"The problem was solved at {len(points)} levels of: {traded['constraint']}. All else stayed as it is. A "
        "price is the slope of the curve: what the objective falls by for each unit that the level is raised, at most."
    ]
    if lost:
        said.append(f"At {', '.join(f'{level:g}' for level in lost)} no model meets all constraints: proved.")
    return said
