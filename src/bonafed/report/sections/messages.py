"""What was sent, what the run was compared with, and what it was made from."""

from __future__ import annotations

from dataclasses import asdict

from bonafed.problem.calibration import Sigmoid
from bonafed.report import words
from bonafed.report.sections.section import Block, Chapter, Code, Fold, ReportSection, Text, chapter
from bonafed.report.tables import Record, Result, Table, of_rows, size, table
from bonafed.runs.baselines import called
from bonafed.runs.run import Run

ARROWS = {"up": "clients → server", "down": "server → clients"}
SENT = {"message": "Message", "direction": "Direction", "count": "Count", "bytes": "Size"}
BASELINES = {
    "model": "Model",
    "value": "Objective of its problem",
    "bound": "Bound",
    "gap": "Gap",
    "rounds": "Rounds",
    "stop": "Ended",
}


class Messages(ReportSection):
    """The messages of the algorithm, and the models it is compared with."""

    def chapters(self, run: Run) -> list[Chapter]:
        result = run.result
        blocks: list[Block] = [Text(_about(run)), messages(result)]
        if result["baselines"] and not words.private(result):
            blocks.append(baselines(result))
        return [chapter("messages", "Messages", *blocks)]


def _about(run: Run) -> str:
    result = run.result
    if words.public_part(result):
        return (
            "These are the messages of the algorithm; an answer is a function of one clipped sum of"
            " gradients with noise."
        )
    if words.private(result):
        return "These include the messages of the certificate, which were exchanged at the owner."
    if words.pooled(result):
        return (
            "These went between the method and the one place where all rows are. Multipliers of"
            " single rows belong to the owner of the rows."
        )
    radius = ', radius = "auto" and its pilot model' * (run.config.robust.radius == "auto")
    sigmoid = run.model.get("calibration")
    fitted = ", calibrated probabilities" * (sigmoid not in (None, asdict(Sigmoid())))
    return (
        "These are the messages of the algorithm and of its certificate; no message holds a row."
        f" Not counted are sums over each client's rows, for the schema{radius}{fitted}, the check"
        " for a trivial model and figures."
    )


def messages(result: Result) -> Table:
    """What was sent, by type of message."""
    ways = {"direction": lambda way: ARROWS.get(way, str(way)), "bytes": size}
    return of_rows("Messages", result["messages"], SENT, ways, ("direction",))


def baselines(result: Result) -> Table:
    """The models that the run is compared with, each with the gap of its own problem."""
    rows = [{**row, "model": called(name)} for name, row in result["baselines"].items()]
    return of_rows("Baselines", rows, BASELINES, {"rounds": str}, ("stop",))


class Configuration(ReportSection):
    """The configuration of the run, and the versions that its numbers depend on."""

    def chapters(self, run: Run) -> list[Chapter]:
        blocks = (
            Fold("config.toml, defaults included", (Code(run.config.text()),)),
            Fold("Versions", (versions(run.result),)),
        )
        return [chapter("config", "Configuration and versions", *blocks)]

    def record(self, run: Run) -> Record:
        return {"config": run.config.model_dump(by_alias=True)}


def versions(result: Result) -> Table:
    """What the numbers depend on."""
    rows = [(part, str(version)) for part, version in result["versions"].items()]
    return table("Versions", ("Part", "Version"), rows, (0, 1))
