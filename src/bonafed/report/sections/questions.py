"""What a person asks first, each question with its answer; the chapters below say more."""

from __future__ import annotations

from bonafed.report import words
from bonafed.report.sections.checks import verdict
from bonafed.report.sections.quality import badness, goodness
from bonafed.report.sections.section import Block, Chapter, Questions, ReportSection, chapter
from bonafed.report.tables import Result, own_measures
from bonafed.runs.run import Run

GOOD, WHOM = "How good is the model?", "For whom is it bad?"
TRIVIAL, TRUST = "Is it trivial?", "Can I trust the numbers?"
UNJUDGED = (
    "Nobody knows: the model was judged on no rows that were held out of training. Set data.test,"
    " such as 0.3; where it is set, a warning says why no rows were judged."
)


class Opening(ReportSection):
    """The questions that a person asks, in that order."""

    def applies(self, run: Run) -> bool:
        return not words.public_part(run.result)

    def chapters(self, run: Run) -> list[Chapter]:
        return [chapter("short", "In short", Questions(tuple(answers(run).items())))]

    def brief(self, run: Run) -> list[Block]:
        known = answers(run)
        known.pop(TRIVIAL, None)  # the warning says it
        return [Questions(tuple(known.items()))]


def answers(run: Run) -> dict[str, str]:
    """The answer to every question."""
    result, judged = run.result, bool(own_measures(run.result))
    found = {GOOD: goodness(run) if judged else UNJUDGED}
    if judged:
        found[WHOM] = badness(run)
    found |= {TRIVIAL: text} if (text := _trivial(result)) else {}
    if judged and (verdicts := words.answer(result)) and not words.private(result):
        found[words.question(result)] = verdicts[0]
    found[TRUST] = _trust(result)
    return found


def _trivial(result: Result) -> str:
    """Whether the model says anything; empty where that was not judged."""
    if "trivial" not in result or words.infeasible(result):
        return ""
    if result["trivial"] is None:
        return "No: it is better than a constant."
    return f"Yes: {result['trivial']['kind']}. The warning above says why, and what to do."


def _trust(result: Result) -> str:
    """What the checks say, and what is proven."""
    text = verdict(result) if "checks" in result else ""
    certificate = result["certificate"]
    if words.infeasible(result):
        return f"{text} No model meets all constraints: that is proven."
    if words.private(result):
        return f"{text} The guarantee of privacy is in the public part."
    if words.proven(result):
        text += (
            " The model is proven to be within"
            f" {certificate['relative_gap']:.2g} (relative) of the best objective of its kind"
            f"{words.CONDITION if words.contradicted(result) else ''}."
        )
    else:
        text += " No bound is proven: a better model of this kind may exist."
    return f"{text} {words.whoever(result)}".strip()
