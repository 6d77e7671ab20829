"""The page for a person who answers for the data: what left every client, what bounds it, how the
worst client fares, who can learn or alter what, and who can check which number how.

All of it is made from what the run recorded. Where one process read all rows, nothing left anyone,
and the page says so.
"""

from collections.abc import Iterator
from dataclasses import asdict

from bonafed.problem.calibration import Sigmoid
from bonafed.problem.parts import jumping
from bonafed.report import tables, words
from bonafed.report.blocks import Block, Chapter, Fold, Heading, Section, Text, texts
from bonafed.report.sections import evaluation
from bonafed.report.tables import Result, Table, number
from bonafed.runs import border
from bonafed.runs.sections.section import Run
from bonafed.solution.plan import read_with_sums
from bonafed.text import first_true

HEADS = {"message": "Message", "direction": "Direction", "count": "Count", "bytes": "Size"}
ARROWS = {"up": "clients → server", "down": "server → clients"}
WAYS = {"direction": lambda way: ARROWS.get(way, str(way)), "bytes": tables.size}
ANSWERS = (
    *("Answer", "Times", "Size", "Numbers", "Only as sums", "Only the sum over clients is used"),
    "The number of each client is used",
)
ABOUT_BORDER = (
    "The rows stayed at their sites. This table says what passes the border all the same, of sites"
    " with the default policy; whether a site allows more, its owner knows, and no folder."
)
LOOSER = "These sites allow more than the default: {}, so that answers may tell single rows."
UNMASKED = (
    "Without engine.secure_sum a server receives the numbers of each client, and adds them up"
    " itself."
)
MASKED = "Sealed answers are masked, and a server reads sums over the clients."
NO_BUDGET = (
    "No privacy budget was used: nothing bounds what answers, model and report tell about a single"
    " row."
)
UNJUDGED = "How the worst client fares on new rows is not known: no rows were held out."
HISTORY = "what happened in the rounds, what was sent, and how long it took"


def about_governance(run: Run) -> Section:
    """What left each client, what bounds it, and who can check what."""
    result, here = run.result, not words.at_sites(run.result)
    title = "What left each client, and who can check what"
    worst = evaluation.badness(run) if tables.own_measures(result) else UNJUDGED
    said, more = left(result)
    blocks: list[Block] = [Text(f"{said} {more}".strip(), strong=True)]
    blocks += [] if words.pooled(result) and here else [_answers(result), *texts(_seen(run))]
    sent = tables.of_rows("Messages", result["messages"], HEADS, WAYS, ("direction",))
    blocks += [Text(_messages(run)), Fold(sent.title, [sent])]
    blocks += [Heading("Privacy budget"), Text(bounded(run))]
    blocks += [] if words.public_part(result) else [Heading("The worst client"), Text(worst)]
    blocks += [] if here else _border(run)
    rows, heads = checkers(result), ("Who", "Can check", "How")
    blocks.append(tables.table("Who can check what", heads, rows, (0, 1, 2), (0, 1, 2)))
    brief = [Text(f"{said} {bounded(run)}")] * (run.config.privacy is None)
    return Section([Chapter("governance", title, blocks)], brief=brief)


def left(result: Result) -> tuple[str, str]:
    """Whether anything left a client in this run, and what would have left one elsewhere."""
    n = len(tables.people(result))
    if words.at_sites(result):
        return f"The rows stayed at their {n} sites. Only answers to a server left them.", ""
    said = f"Nothing left a client in this run: one process read the rows of {words.clients(n)}."
    if words.pooled(result):
        return said, (
            "The method needs all rows in one place: elsewhere every client would have to hand over"
            " its rows."
        )
    return said, "Below is what would have left them, had each kept its rows."


def _answers(result: Result) -> Table:
    """The answers of the clients by kind: how many numbers of which sort."""
    rows = []
    for row in (row for row in result["messages"] if row["direction"] == "up"):
        named: dict[bool, list[str]] = {True: [], False: []}  # by whether only sums are used
        numbers = {True: 0, False: 0}
        for name, field in row.get("held", {}).items():
            summed, how = field["how"] != "each", field["how"]
            said = border.called(row["message"], name)
            more = " (the largest)" * (how == "max" and not said.startswith("largest"))
            named[summed].append(said + more)
            numbers[summed] += field["numbers"] if how != "parcel" else 0  # sealed bytes
        said = ("; ".join(dict.fromkeys(part)) or tables.NOTHING for part in named.values())
        counts = (sum(numbers.values()), numbers[True])
        cells = (f"{row['count']:,}", tables.size(row["bytes"]), *(f"{n:,}" for n in counts))
        rows.append((row["message"], *cells, *said))
    title = f"What the clients {_sent(result)}, all together"
    return tables.table(title, ANSWERS, rows, (0, 5, 6), (5, 6))


def _sent(result: Result) -> str:
    return "sent" if words.at_sites(result) else "would have sent"


def _seen(run: Run) -> Iterator[str]:
    """How the answers are shared out among the clients, and who reads the numbers of one."""
    sent = {row["client"]: row["bytes_up"] for row in run.result["clients"]}
    least, most = min(sent, key=sent.__getitem__), max(sent, key=sent.__getitem__)
    if sent[least] == sent[most]:
        yield f"Each client {_sent(run.result)} {tables.size(sent[most])} in all."
    else:
        low, high = (
            f"{tables.size(sent[k])} ({tables.short(k, tables.NAME)})" for k in (least, most)
        )
        yield f"A client {_sent(run.result)} from {low} to {high} in all."
    if not run.config.engine.get("secure_sum"):
        yield UNMASKED
    elif run.config.privacy is not None:  # of which only sums are asked
        yield MASKED
    else:
        yield f"{MASKED} {tables.capital(read_with_sums(run.config.stated()))}."


def bounded(run: Run) -> str:
    """The privacy budget of the run, or that there was none."""
    if run.config.privacy is None:
        return NO_BUDGET
    if (privacy := run.result.get("privacy")) is None:
        return (
            "The privacy budget stands in the public part. It does not pay for the numbers of this"
            " part, which were computed from the rows without noise."
        )
    spent, delta = number(privacy["epsilon"]), f"{privacy['delta']:g}"
    said = f"A privacy budget was used: epsilon = {spent} of {privacy['allowed']:g} allowed, at"
    return f"{said} delta = {delta}.{' This is only a rehearsal.' * bool(privacy['rehearsal'])}"


def _border(run: Run) -> list[Block]:
    """Who can learn or alter what, of a run whose rows stayed at their sites."""
    title, masked = "Who can learn or alter what", bool(run.config.engine.get("secure_sum"))
    private, every = run.config.privacy is not None, range(len(border.HEADS))
    jumps = "" if private else jumping(run.config.stated(), masked)
    said = [ABOUT_BORDER, *[LOOSER.format(jumps)] * bool(jumps)]
    rows = [row.cells() for row in border.of_run(masked, private)]
    promises = tables.table(title, border.HEADS, rows, text=every, long=every)
    return [promises, *texts(said)]


def checkers(result: Result) -> list[tuple[str, str, str]]:
    """Who can check what, and by which command."""
    anyone, verify = "Anyone who has this folder", "bonafed verify FOLDER"
    nobody = ("Nobody", HISTORY, "bonafed verify lists every number that it does not check")
    if words.public_part(result):
        spent = "that the stated noise and answers cost no more than the budget"
        own = ("The owner of the data", "all numbers of owner/ from the rows", "bonafed verify")
        sites = words.at_sites(result)
        return [(anyone, spent, verify), *[own] * (not sites), nobody]
    if words.at_sites(result):
        proof = "certificate, baselines and figures of held-out rows, from what the sites signed"
        return [
            ("Anyone who has the sites' public keys", proof, "bonafed verify FOLDER --keys KEYS"),
            ("Each site", "what it was asked and what it answered", "bonafed site log SITE"),
            ("Each site", "its rows against its own policy", "bonafed site check SITE"),
            nobody,
        ]
    proof = "model, certificate, tables and figures, computed again from the rows"
    seal = "that nobody changed its files since, from the seal, which is kept elsewhere"
    folder = (anyone, seal, f"{verify} --without-data")
    return [("Anyone who has the data", proof, verify), folder, nobody]


def _messages(run: Run) -> str:
    """What the messages are about, and what they leave out."""
    result, sigmoid = run.result, run.model.get("calibration")
    radius = ', radius = "auto" and its pilot model' * (run.config.robust.radius == "auto")
    fitted = ", calibrated probabilities" * (sigmoid not in (None, asdict(Sigmoid())))
    ways = {
        "These are the messages of the algorithm; an answer is a function of one clipped sum of"
        " gradients with noise.": words.public_part(result),
        "These include the messages of the certificate, which were exchanged at the owner.": (
            words.private(result)
        ),
        "These went between the method and the one place where all rows are. Multipliers of single"
        " rows belong to the owner of the rows.": words.pooled(result),
        "These are the messages of the algorithm and of its certificate; no message holds a row."
        f" Not counted are sums over each client's rows, for the schema{radius}{fitted}, the check"
        " for a trivial model and figures.": True,
    }
    return first_true(ways)
