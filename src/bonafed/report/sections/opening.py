"""What a report opens with: what a person asks first, each question with its answer; what was done
and what is guaranteed; warnings; and the checks of rows and model with what was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bonafed.report import words
from bonafed.report.sections.evaluation import SHOWN, badness, first_figures, goodness, spoken
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Fact,
    Items,
    Questions,
    ReportSection,
    Text,
    chapter,
    texts,
)
from bonafed.report.tables import (
    NAME,
    NOTHING,
    Record,
    Result,
    Table,
    capital,
    merit,
    number,
    own_measures,
    people,
    percent,
    short,
    table,
)
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


# -------------------------------------------------------------------------- summary and warnings

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


# ----------------------------------------------------------------------------------------- checks


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
