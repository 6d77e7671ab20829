"""What a report says first where the model is no better than a constant."""

from __future__ import annotations

from bonafed.report.sections.section import Block, Chapter, Fact, ReportSection, Text, chapter
from bonafed.runs.run import Run


class Trivial(ReportSection):
    """The warning that the model says the same of everybody, or nothing better than that."""

    def applies(self, run: Run) -> bool:
        return bool(run.result.get("trivial"))

    def facts(self, run: Run) -> list[Fact]:
        return [Fact("trivial", run.result["trivial"]["kind"], "warn")]

    def chapters(self, run: Run) -> list[Chapter]:
        text = Text(self._text(run), strong=True)
        return [chapter("trivial", "The model is trivial", text, warning=True)]

    def brief(self, run: Run) -> list[Block]:
        return [Text(f"warning: {self._text(run)}")]

    def _text(self, run: Run) -> str:
        return str(run.result["trivial"]["text"])
