"""What every report has: first what a person asks, each question with its answer, and the warnings;
then what was done, the checks of rows and model, and last what the run was made from.
"""

from collections.abc import Callable
from typing import NamedTuple

from bonafed import worst_client
from bonafed.data.differences import KINDS
from bonafed.report import tables, words
from bonafed.report.blocks import Chapter, Code, Fact, Fold, Items, Questions, Section, Text, texts
from bonafed.report.sections import evaluation
from bonafed.report.tables import Record, Result, Table, number, percent
from bonafed.runs.sections.section import Run
from bonafed.text import counted, first_true

TRIVIAL, TRUST = "Is it trivial?", "Can I trust the numbers?"
UNJUDGED = (
    "Nobody knows: the model was judged on no rows that were held out of training. Set data.test,"
    " such as 0.3; where it is set, a warning says why no rows were judged."
)
NOT_COMPARED = (
    "Units, codes, numbers that stand for missing cells, and persons were not compared between the"
    " sites, since no site tells them."
)
CLOSE = 0.1  # a relative gap up to this counts as good
NOTES = 2  # warnings that a terminal shows


def about_trivial(run: Run) -> Section | None:
    """The warning that the model says the same of everybody, or nothing better than that."""
    if not (found := run.result.get("trivial")):
        return None
    blocks, brief = [Text(found["text"], strong=True)], [Text(f"warning: {found['text']}")]
    chapter = Chapter("trivial", "The model is trivial", blocks, warning=True)
    return Section([chapter], [Fact("trivial", found["kind"], "warn")], brief=brief)


def about_differences(run: Run) -> Section | None:
    """The warning that a client seems to write something otherwise than the others."""
    made = run.result.get("checks", ())
    odd = [row for row in made if row["name"] in KINDS and row["passed"] is False]
    if not odd:
        return None
    said = [f"{_where(row)}. {tables.capital(CHECKS[row['name']].advice)}." for row in odd]
    title = "Clients write the same thing in different ways"
    chapter = Chapter("differences", title, [Items(said)], warning=True)
    brief = [Text(f"warning: a check of the rows fails: {text}") for text in said]
    return Section(
        [chapter], [Fact(str(len(odd)), "failed checks of clients", "warn")], brief=brief
    )


def about_questions(run: Run) -> Section | None:
    """The questions that a person asks, in that order; the chapters below say more."""
    if words.public_part(run.result):
        return None
    known = answers(run)
    # that it is trivial a warning says; where lines are few, the comparison is left out first
    brief = [(asked, said) for asked, said in known.items() if asked != TRIVIAL]
    brief.sort(key=lambda pair: pair[0] == words.question(run.result))
    chapter = Chapter("short", "In short", [Questions(known.items())])
    return Section([chapter], brief=[Questions(brief)])


def answers(run: Run) -> dict[str, str]:
    """The answer to every question."""
    result, judged = run.result, bool(tables.own_measures(run.result))
    found = {evaluation.GOOD: evaluation.goodness(run) if judged else UNJUDGED}
    if judged:
        found[evaluation.WHOM] = evaluation.badness(run)
    if "trivial" in result and not words.infeasible(result):
        found[TRIVIAL] = "No: it is better than a constant."
        if (why := result["trivial"]) is not None:
            found[TRIVIAL] = f"Yes: {why['kind']}. The warning above says why, and what to do."
    if judged and (verdicts := words.answer(result)) and not words.private(result):
        found[words.question(result)] = verdicts[0]
    text, gap = NOT_COMPARED * words.at_sites(result), result["certificate"]["relative_gap"]
    text = verdict(result) if "checks" in result else text
    ways = {
        " No model meets all constraints: that is proven.": words.infeasible(result),
        " The guarantee of privacy is in the public part.": words.private(result),
        f" The model is proven to be within {gap or 0.0:.2g} (relative) of the best objective of"
        f" its kind{words.CONDITION * words.contradicted(result)}. {words.whoever(result)}": (
            words.proven(result)
        ),
        " No bound is proven: a better model of this kind may exist."
        f" {words.whoever(result)}": True,
    }
    return found | {TRUST: (text + first_true(ways)).strip()}


def about_warnings(run: Run) -> Section | None:
    """What a reader has to know before the numbers are used."""
    notes = run.result["notes"]
    items = [*[words.ended(run.result)] * words.unproven(run.result), *notes]
    if not items:
        return None
    more = [f"the report has {len(notes) - NOTES} more"] * (len(notes) > NOTES)
    brief = [Text(f"warning: {note}") for note in [*notes[:NOTES], *more]]
    return Section([Chapter("warnings", "Warnings", [Items(items)], warning=True)], brief=brief)


def about_summary(run: Run) -> Section | None:
    """The run in plain words; a private run opens with its guarantee of privacy instead."""
    if run.config.privacy is not None:
        return None
    result = run.result
    gap, n = result["certificate"]["relative_gap"], words.clients(len(tables.people(result)))
    proven, lied = words.proven(result), words.contradicted(result)
    after = (
        f"proven relative gap, after {counted(result['rounds'], 'round')}{words.CONDITION * lied}"
    )
    mood = "good" if proven and not lied and gap <= CLOSE else "warn"
    rows = sum(row["n"] for row in result["clients"])
    facts = [
        *_judged(result),
        Fact(f"{gap:.1e}" if proven else "none", after, mood),
        Fact(f"{rows:,}", f"training rows {'of' if words.pooled(result) else 'at'} {n}"),
    ]
    chapter = Chapter("summary", "In plain words", texts(words.summary(result)))
    return Section([chapter], facts, words.lead(result), texts(words.done(result)))


def _judged(result: Result) -> list[Fact]:
    """How the model does on the first set of new rows, and at its worst client; without such rows
    its objective.
    """
    if not (judged := tables.own_measures(result)):
        return [Fact(f"{result['certificate']['value']:.4g}", "objective")]
    row, (key, show) = judged[0], tables.merit(judged[0])
    called = "mean absolute error" if key == "error" else key
    facts = [Fact(show(row[key]), f"{called} on {row['n']:,} {row['set']}")]
    for figure in evaluation.first_figures(row):
        if figure.of == "scores":
            text = evaluation.SHOWN[figure.shown](row[figure.key])
            facts.append(Fact(text, f"{figure.spoken} on these rows"))
    if len(row["clients"]) > 1:
        worst = tables.short(row[f"worst_{key}_client"], 24)
        facts.append(Fact(show(row[f"worst_{key}"]), f"{called} at the worst client, {worst}"))
    if "promise" in row:
        first = row["promise"]["figures"]["accuracy"]
        where = "every client" if len(row["clients"]) > 1 else first["client"]
        text = f"wrong at {where} at most, with 95 % confidence"
        facts.append(Fact(worst_client.percent(1 - first["bound"], up=True), text))
    return facts


# ----------------------------------------------------------------------------------------- checks


class Words(NamedTuple):
    """What a check is called, what its number is, how that is written, and what to do."""

    called: str
    measured: str
    written: Callable[[float], str]
    advice: str


CHECKS = {
    "left_out": Words(
        *("Few rows are left out", "rows without a target or a client, at most {}", percent),
        "the model knows nothing of them: ask why it is missing, and whether by chance",
    ),
    "identifier": Words(
        "No identifier among the features",
        *("rows with a value of a column to themselves, below {}", percent),
        "a model learns an identifier by heart: put the column into data.exclude",
    ),
    "copy": Words(
        "No copy of the target among the features",
        *("AUC of one feature, or its correlation with the target, below {}", number),
        "one feature by itself gives the target away: ask whether it is known when the model is"
        " used, or put it into data.exclude",
    ),
    "duplicates": Words(
        "No rows at several clients",
        *("rows that stand at another client, too, at most {}", percent),
        "the same person may be counted twice: remove the copies at one of the clients",
    ),
    "trained_on": Words(
        *("No test rows in training", "test rows that were trained on, at most {}", percent),
        "test figures flatter the model: remove the copies, or name the column of persons as"
        " data.person",
    ),
    "missing_class": Words(
        *("All classes at every client", "clients without a row of some class, at most {}", number),
        "at these clients rates have no meaning, and the model cannot be judged by class",
    ),
    "tiny": Words(
        *("No tiny clients", "rows of the smallest client, at least {}", number),
        "figures of so few rows are chance: read their intervals, or pool these clients",
    ),
    "shift": Words(
        "Clients are alike",
        *("largest standardised difference of means beyond sampling error, at most {}", number),
        "one model may not suit all: compare the figures of these clients with the others'",
    ),
    "labels": Words(
        "The outcome is coded alike at all clients",
        *("clients whose outcomes contradict the others', beyond chance, at most {}", number),
        "ask each of them whether its outcome is coded the other way round: then no figure of this"
        " run can be believed",
    ),
    "units": Words(
        "Every column has one unit",
        *("columns of clients in another unit, at most {}", number),
        "ask these clients for their unit, and convert the column in their tables",
    ),
    "codes": Words(
        "Every column has one code",
        *("columns of clients with another code, at most {}", number),
        "ask what the values mean, and write them alike, by data.merge or in the tables",
    ),
    "sentinel": Words(
        "No number stands for a missing cell",
        *("columns of clients with such a number, at most {}", number),
        "name the number in data.missing, or empty these cells",
    ),
    "persons": Words(
        "No person is at two clients",
        *("clients that share persons with others, at most {}", number),
        "a model may be judged on persons that it was trained on: keep each at one client",
    ),
    "names": Words(
        "No client has two names",
        *("clients whose name is nearly another's, at most {}", number),
        "if they are one, write the name alike, or merge it by data.merge",
    ),
    "trivial": Words(
        "The model is not trivial",
        "better than the best constant; rows that get the commonest prediction, below {}",
        percent,
        "a constant does as well: the warning at the top says which parameter is to blame",
    ),
}
RESULTS = {True: "pass", False: "FAIL", None: "not judged"}


def about_checks(run: Run) -> Section | None:
    """Whether the rows and the model are such that the figures can be believed."""
    if "checks" not in run.result:
        return None
    made = [Text(verdict(run.result), strong=True), checks(run.result)]
    return Section([Chapter("checks", TRUST, made)])


def verdict(result: Result) -> str:
    """How many checks pass, and which fail: what they saw, where, and what to do."""
    judged = [row for row in result["checks"] if row["passed"] is not None]
    others = [
        f'"{CHECKS[row["name"]].called}"' for row in result["checks"] if row["passed"] is None
    ]
    more = f" Not judged: {', '.join(others)}." * bool(others)
    failures = []
    for row in (row for row in judged if not row["passed"]):
        check, where = CHECKS[row["name"]], f" for {_where(row)}" if row["where"] else ""
        seen = f"{_seen(row)}{where} ({_threshold(row)})"
        failures.append(f"{check.called}: {seen}; {check.advice}")
    if not failures:
        return f"All {len(judged)} checks of the rows and the model pass.{more}"
    verb = "fails" if len(failures) == 1 else "fail"
    names = tables.capital("; ".join(failures))
    return f"{len(failures)} of {len(judged)} checks {verb}. {names}.{more}"


def checks(result: Result) -> Table:
    """Every check with its threshold and what was seen."""
    heads = ("Check", "Result", "Seen", "Threshold", "Where")
    rows = []
    for row in result["checks"]:
        at = _where(row) if row["passed"] is False or row["name"] == "left_out" else ""
        cells = (RESULTS[row["passed"]], _seen(row), _threshold(row), at)
        rows.append(dict(zip(heads, (CHECKS[row["name"]].called, *cells), strict=True)))
    shown, long = tables.filled({head: head for head in heads}, rows), ("Check", *heads[3:])
    return tables.of_rows("Checks of rows and model", rows, shown, {}, (heads[1], *long), long)


def _seen(row: Record) -> str:
    return tables.NOTHING if row["seen"] is None else CHECKS[row["name"]].written(row["seen"])


def _threshold(row: Record) -> str:
    check = CHECKS[row["name"]]
    return check.measured.format(check.written(row["limit"]))


def _where(row: Record) -> str:
    """The features or clients that a check is about."""
    more = row["count"] - len(row["where"])
    most = tables.WORD if row["name"] in KINDS else tables.NAME
    names = ", ".join(tables.short(name, most) for name in row["where"])
    return names + f" and {more} more" * (more > 0)


def about_configuration(run: Run) -> Section:
    """The configuration of the run, and the versions that its numbers depend on."""
    rows = [(part, str(version)) for part, version in run.result["versions"].items()]
    versions = tables.table("Versions", ("Part", "Version"), rows, (0, 1))
    text = Fold("config.toml, defaults included", [Code(run.config.text())])
    blocks = [text, Fold("Versions", [versions])]
    return Section([Chapter("config", "Configuration and versions", blocks)])
