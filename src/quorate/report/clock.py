"""What a report says of a run on a simulated clock, and of the spread of a model over the clients: words and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quorate.report.tables import Table, number, percent, size, table

FEW = 3  # clients named as the slowest


def asked(result: Mapping[str, Any]) -> bool:
    """Whether time was simulated."""
    return "clock" in result


def words(result: Mapping[str, Any], engine: Any) -> list[str]:
    """What time passed, who answered how often, and what that means. ``engine`` is the table of the configuration."""
    clock = result["clock"]
    slow = sorted(clock["by_client"].items(), key=lambda item: item[1])
    often = max(clock["by_client"].values())
    said = [
        f"The run took {number(clock['time'])} virtual seconds: {result['rounds']:,} steps of the server, from "
        f"{clock['answers']:,} answers. Its methods for answers that come at different times wait for "
        f"{engine.wait.words()}; others for everybody. Virtual time passes on a simulated clock only: it compares "
        "methods on the same delays, and says nothing about the seconds of a machine.",
    ]
    if slow[0][1] < often:
        named = ", ".join(f"{name} {count:,}" for name, count in slow[:FEW] if count < often)
        said.append(f"Least often answered: {named} times, against {often:,} for the quickest client.")
    if clock["crashed"]:
        gone = ", ".join(f"{name} at {number(time)}" for name, time in clock["crashed"].items())
        said.append(f"Never answered again: {gone} virtual seconds. Their last answers still count.")
    return said


def pace(result: Mapping[str, Any]) -> Table:
    """Every model: when it was done, with how many bytes, and when its worst client's loss came near its last one."""
    rows = []
    for name, curve in result["reached"].items():
        last = curve["largest_risk"][-1]
        near = next(k for k in range(len(curve["round"])) if max(curve["largest_risk"][k:]) <= 1.01 * last)
        rows.append(
            (
                name.replace("_", " "),
                number(curve["time"][-1]),
                f"{curve['round'][-1]:,}",
                size(curve["bytes"][-1]),
                number(last),
                number(curve["time"][near]),
            )
        )
    heads = ("Model", "Virtual time", "Steps", "Sent", "Worst client's loss", "Within 1 % of that from")
    return table("Virtual time", heads, rows)


def spread(result: Mapping[str, Any]) -> list[Table]:
    """How every model does over the clients of each set of several: worst, mean, standard deviation."""
    measures = [row for row in result["evaluation"]["measures"] if len(row["clients"]) > 1]
    if "risk" in result or "constraints" in result:
        return []
    found = []
    for name in dict.fromkeys(row["set"] for row in measures):
        mine = [row for row in measures if row["set"] == name]
        what, show = ("accuracy", percent) if "accuracy" in mine[0] else ("error", number)
        cells = []
        for row in mine:
            rates, losses = ([client[key] for client in row["clients"]] for key in (what, "loss"))
            worst = min(rates) if what == "accuracy" else max(rates)
            cells.append(
                (
                    row["model"].replace("_", " "),
                    *(show(v) for v in (worst, _mean(rates), deviation(rates))),
                    *(number(v) for v in (max(losses), _mean(losses), deviation(losses))),
                )
            )
        head = "accuracy" if what == "accuracy" else "error"
        columns = (f"Worst {head}", f"Mean {head}", "Deviation", "Worst loss", "Mean loss", "Deviation")
        found.append(table(f"Over the {len(mine[0]['clients'])} clients of {name}", ("Model", *columns), cells))
    return found


def deviation(values: Sequence[float]) -> float:
    """The standard deviation over clients, each counted once: of them all, not of a sample."""
    middle = _mean(values)
    return math.sqrt(_mean([(v - middle) ** 2 for v in values]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
