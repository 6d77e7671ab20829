"""What a report opens with: what was done and what is guaranteed, and the warnings."""

from __future__ import annotations

from bonafed.report import words
from bonafed.report.sections.quality import SHOWN, first_figures, spoken
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Fact,
    Items,
    ReportSection,
    Text,
    chapter,
    texts,
)
from bonafed.report.tables import Result, merit, own_measures, people, short
from bonafed.runs.run import Run

CLOSE = 0.1  # a relative gap up to this counts as good
NOTES = 2  # warnings that a terminal shows


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
        proven, lied = words.proven(result), words.contradicted(result)
        return [
            *_judged(result),
            Fact(
                f"{certificate['relative_gap']:.1e}" if proven else "none",
                f"proven relative gap, after {result['rounds']} rounds"
                f"{words.CONDITION if lied else ''}",
                "good" if proven and not lied and certificate["relative_gap"] <= CLOSE else "warn",
            ),
            Fact(
                f"{rows:,}",
                f"training rows {'of' if words.pooled(result) else 'at'} {words.clients(n)}",
            ),
        ]

    def chapters(self, run: Run) -> list[Chapter]:
        return [chapter("summary", "In plain words", *texts(words.summary(run.result)))]

    def brief(self, run: Run) -> list[Block]:
        return [*texts(words.done(run.result))]


def _judged(result: Result) -> list[Fact]:
    """How the model does on the first set of new rows, and at its worst client; without such rows
    its objective.
    """
    if not (judged := own_measures(result)):
        return [Fact(f"{result['certificate']['value']:.4g}", "objective")]
    row, (key, show) = judged[0], merit(judged[0])
    called = "mean absolute error" if key == "error" else key
    facts = [Fact(show(row[key]), f"{called} on {row['n']:,} {row['set']}")]
    for figure in first_figures(row):
        if figure.of == "scores":
            text = SHOWN[figure.shown](row[figure.key])
            facts.append(Fact(text, f"{spoken(figure)} on these rows"))
    if len(row["clients"]) > 1:
        worst = short(row[f"worst_{key}_client"], 24)
        facts.append(Fact(show(row[f"worst_{key}"]), f"{called} at the worst client, {worst}"))
    return facts


class Warnings(ReportSection):
    """What a reader has to know before the numbers are used."""

    def applies(self, run: Run) -> bool:
        return bool(run.result["notes"])

    def chapters(self, run: Run) -> list[Chapter]:
        notes = Items(tuple(run.result["notes"]))
        return [chapter("warnings", "Warnings", notes, warning=True)]

    def brief(self, run: Run) -> list[Block]:
        notes = run.result["notes"]
        more = [f"the report has {len(notes) - NOTES} more"] * (len(notes) > NOTES)
        return [Text(f"warning: {note}") for note in [*notes[:NOTES], *more]]
