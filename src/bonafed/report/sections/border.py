"""Who can learn or alter what, of a run whose rows stayed at their sites."""

from __future__ import annotations

from bonafed.problem.slopes import jumping
from bonafed.report import words
from bonafed.report.sections.section import Chapter, ReportSection, Text, chapter
from bonafed.report.tables import table
from bonafed.runs.border import HEADS, of_run
from bonafed.runs.run import Run

ABOUT = (
    "The rows stayed at their sites. This table says what passes the border all the same, of sites"
    " with the default policy; whether a site allows more, its owner knows, and no folder."
)
LOOSER = "These sites allow more than the default: {}, so that answers may tell single rows."


class Border(ReportSection):
    """The promises of a run over sites."""

    def applies(self, run: Run) -> bool:
        return words.at_sites(run.result)

    def chapters(self, run: Run) -> list[Chapter]:
        masked = bool(run.config.engine.get("secure_sum"))
        private = run.config.privacy is not None
        rows = [row.cells() for row in of_run(masked, private)]
        jumps = "" if private else jumping(run.config.problem(), masked)
        looser = [Text(LOOSER.format(jumps))] if jumps else []
        every = range(len(HEADS))
        about = table("Who can learn or alter what", HEADS, rows, text=every, long=every)
        return [chapter("border", "Who can learn or alter what", Text(ABOUT), *looser, about)]
