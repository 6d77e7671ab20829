"""What a report opens with: what was done and what is guaranteed, and the warnings."""

from __future__ import annotations

from quorate.report import words
from quorate.report.sections.section import (
    Block,
    Chapter,
    Fact,
    Heading,
    Items,
    ReportSection,
    Text,
    chapter,
    texts,
)
from quorate.report.tables import people, spaced
from quorate.runs.run import Run

CLOSE = 0.1  # a relative gap up to this counts as good


class Summary(ReportSection):
    """The run in plain words; a private run opens with its guarantee of privacy instead."""

    def applies(self, run: Run) -> bool:
        return run.config.privacy is None

    def lead(self, run: Run) -> str:
        return words.lead(run.result)

    def facts(self, run: Run) -> list[Fact]:
        result = run.result
        certificate, n = result["certificate"], len(people(result))
        rows = sum(row["n"] for row in result["clients"])
        proven = words.proven(result)
        return [
            Fact(f"{certificate['value']:.4g}", _objective(run)),
            Fact(
                f"{certificate['relative_gap']:.1e}" if proven else "none",
                "proven relative gap",
                "good" if proven and certificate["relative_gap"] <= CLOSE else "warn",
            ),
            Fact(str(result["rounds"]), f"rounds, ended {spaced(result['outcome']['stop'])}"),
            Fact(
                str(rows),
                f"training rows {'of' if words.pooled(result) else 'at'} {words.clients(n)}",
            ),
        ]

    def chapters(self, run: Run) -> list[Chapter]:
        return [chapter("summary", "In plain words", *texts(words.summary(run.result)))]

    def brief(self, run: Run, columns: int) -> list[Block]:
        return [Heading("In plain words"), *texts(words.summary(run.result))]


def _objective(run: Run) -> str:
    """What the objective is one of."""
    result = run.result
    if words.constrained(result):
        return "objective" + " of a model that is not recommended" * words.infeasible(result)
    return "objective" if "risk" in result else "objective, worst cases included"


class Warnings(ReportSection):
    """What a reader has to know before the numbers are used."""

    def applies(self, run: Run) -> bool:
        return bool(run.result["notes"])

    def chapters(self, run: Run) -> list[Chapter]:
        notes = Items(tuple(run.result["notes"]))
        return [chapter("warnings", "Warnings", notes, warning=True)]

    def brief(self, run: Run, columns: int) -> list[Block]:
        return [Text(f"warning: {note}") for note in run.result["notes"]]
