"""A private run in a report: its guarantee and ledger in the public part, and what opens the part
of the owner.
"""

import math

import numpy as np

from bonafed.drawing import BLUE, GREY, ORANGE, column
from bonafed.report import blocks, words
from bonafed.report.blocks import MOST, Block, Fact, Text
from bonafed.report.canvas import INK, LOG, Canvas
from bonafed.report.tables import Record, Result, Rows, Table, number, of_rows, table
from bonafed.runs.sections.section import Run
from bonafed.text import first_true

MOST_SPENT = 3  # clients that a terminal shows
TOTALS = {  # key -> (accountant, what its total is)
    "epsilon": ("Privacy loss distributions (PLD)", "rounded up: the number that counts"),
    "gaussian": ("Closed form", "exact for Gaussian noise: an independent check"),
    "rdp": ("Rényi divergences (RDP)", "never below the truth"),
    "basic": ("Basic composition", "the sum over all answers"),
}
LEDGER = {
    **{"client": "Client", "rows": "Rows, as public", "answers": "Answers", "noise": "Noise"},
    **{"scale": "Scale", "before": "Spent before", "epsilon": "Epsilon in all", "left": "Left"},
}
ABOUT_LEDGER = (
    "Noise is relative to the sensitivity, which is what one row can change; scale is that of the"
    " noise in a client's answer. Clients have different rows, so that the total of all is that of"
    " the client which has spent most."
)
BARS = "Totals do not add up: a bar is what all runs on a client's rows cost together."
ROUNDS = (
    "Above, the expected size of the noise in an answer; below, the sum of the distances of the"
    " clients' noisy copies from the model, or the step of a method whose clients keep none."
)
ABOUT_ROUNDS = (
    "Both follow from public numbers and from answers that are paid for. How near the model is to"
    " the best one would have to be computed from the rows without noise: that number is withheld."
)
OWNER = (
    "Its numbers were computed from the rows exactly, without noise. The privacy budget does not"
    " pay for them, and anyone who sees them learns more than the guarantee allows. The report to"
    " hand on is that of the folder round this one."
)


def about_guarantee(run: Run) -> blocks.Section | None:
    """The public part of a private run: the guarantee, the ledger, and what is withheld."""
    result = run.result
    if not words.public_part(result):
        return None
    privacy, at_sites = result["privacy"], words.at_sites(result)
    rows, n = sum(row["n"] for row in result["clients"]), words.clients(len(result["clients"]))
    exact = "exact numbers stay with the owner of the data"
    exact = "no exact number about a row has left a site" if at_sites else exact
    lead = (
        f"A model trained within a privacy budget, from rows{' that stayed' * at_sites} at {n}."
        f" This report is public and may travel with the model; {exact}."
    )
    spent, mood = f"total epsilon, of {privacy['allowed']:g} allowed", "good"
    chapters, title, rehearsal = [], "The guarantee", privacy["rehearsal"]
    if rehearsal:
        chapters.append(blocks.Chapter("rehearsal", "A rehearsal", [Text(rehearsal)], warning=True))
        title, spent, mood = "What would be guaranteed", f"{spent}, in a rehearsal", "warn"
    facts = [
        Fact(f"{privacy['epsilon']:.4g}", spent, mood),
        Fact(f"{privacy['delta']:g}", "delta"),
        Fact(str(result["rounds"]), "rounds, one answer of each client in each"),
        Fact(f"{rows:,}", f"training rows as public, at {n}"),
    ]
    promises, ended = guaranteed(result), f"{result['problem']} {words.ended(result)}"
    public = blocks.Heading("Taken to be public, and not protected")
    body = [*blocks.texts([*promises, ended]), public, blocks.Items(privacy["public"])]
    chapters.append(blocks.Chapter("guarantee", title, body))
    chapters.append(blocks.Chapter("budget", "Budget by client", _spent(result)))
    if len(run.history) > 1:
        copies = "gap" in run.history[0]
        below = "distance of the clients' copies from the model" if copies else "step"
        title = f"Noise in every answer, and {below}, by round"
        plot = blocks.Plot(title, 4.0, _rounds, (run.history,))
        body = [blocks.Row([blocks.Figure("rounds", ROUNDS, plot), Text(ABOUT_ROUNDS)])]
        chapters.append(blocks.Chapter("rounds", "Rounds", body))
    where = "It is in the folder owner/, which stays where the data are."
    cells = [(row["what"], row["why"]) for row in result["withheld"]]
    title = "What is withheld"
    withheld = table(title, ("What", "Why"), cells, (0, 1), long=(0, 1))
    body = [*blocks.texts([where] * (not at_sites)), withheld]
    chapters.append(blocks.Chapter("withheld", title, body))
    said = [*filter(None, [rehearsal]), ended, promises[0]]
    return blocks.Section(chapters, facts, lead, [ledger(result, MOST_SPENT), *blocks.texts(said)])


def _spent(result: Result) -> list[Block]:
    """What every client has spent of its budget, and the total by every accountant."""
    spent = result["privacy"]["ledger"]
    rows = sorted(spent, key=lambda row: -row["epsilon"])[:MOST]
    title, height = "What every client has spent of its budget, and what is left", 0.26 * len(rows)
    plot = blocks.Plot(title, 1.3 + height, _budget, (rows, result["privacy"]))
    figure = blocks.Figure("budget", BARS, plot)
    cells = []
    for key, (name, meaning) in TOTALS.items():
        totals = [row[key] for row in spent if row[key] is not None]
        if totals:  # the largest of all clients
            cells.append((name, number(max(totals)), meaning))
    heads = ("Accountant", "Epsilon", "Meaning")
    accounts = table("Total by accountant", heads, cells, (0, 2), long=(0, 2))
    body: list[Block] = [Text(ABOUT_LEDGER), blocks.Row([figure, accounts]), ledger(result)]
    if len(result["clients"]) > MOST:
        body.append(Text(f"The figure shows the {MOST} clients that have spent most.", soft=True))
    return body


def about_owners_part(run: Run) -> blocks.Section | None:
    """What opens the part that stays with the owner: that it stays there."""
    if words.public_part(run.result) or not words.private(run.result):
        return None
    title = "This page stays with the owner of the data"
    lead = "The part of a private run that stays with the owner of the data."
    return blocks.Section([blocks.Chapter("owner", title, [Text(OWNER)], warning=True)], lead=lead)


# ------------------------------------------------------------------------------------------ words


def guaranteed(result: Result) -> list[str]:
    """What is guaranteed to whom."""
    privacy, at_sites = result["privacy"], words.at_sites(result)
    epsilon, delta, views = privacy["epsilon"], privacy["delta"], privacy["views"]
    odds = math.exp(epsilon) if epsilon < 700 else math.inf
    paid = ", those of earlier runs on the same rows included," if privacy["before"] else ""
    others = {
        " This is what this run spends. Each client has charged it in its own privacy ledger,"
        " together with all other runs on its rows, whose total only the client knows.": at_sites,
        " No privacy ledger is kept: other runs on the same rows, if there are any, would add to"
        " this.": not privacy["book"],
    }
    where, n = " outside owner/" * (not at_sites), words.clients(len(privacy["ledger"]))
    sent = f"every {'sum of what' if views['view'] == 'sum' else 'message that'} the {n} sent"
    (_, _, _, *sampling) = next(iter(privacy["releases"].values()))[0]
    sampled = [  # a round is of a share of the rows
        f" Each row took part in a round with probability {rate:g}, by a secret coin of its"
        " client's."
        for rate in sampling
    ]
    sources = {
        "Each client drew its noise with a key of its own operating system, which nobody else"
        " has.": privacy["source"] == "secure",
        "The noise was made from the seed of the configuration: anyone who has that can subtract"
        " it.": True,
    }
    verb, start = "is", "Everything in this folder"
    if privacy["rehearsal"]:
        verb, start = "would be", "With noise that only its owner knows, everything in this folder"
    return [
        f"{start}{where} and {sent}{paid} {verb} ({number(epsilon)},"
        f" {delta:g})-differentially private; ({privacy['allowed']:g}, {delta:g}) was allowed."
        f" Whatever can be seen in it {verb}, with any one row among the data, at most"
        f" {number(odds)} times as probable as without that row, plus {delta:g}."
        f"{first_true(others)}",
        *filter(None, [views["text"]]),
        privacy["protects"],
        f"In each of {result['rounds']} rounds every client answered with one sum of gradients,"
        f" {_clipped(privacy)}, and {privacy['mechanism'].capitalize()} "
        f" noise.{''.join(sampled)} {first_true(sources)}",
        "The model, this report and all predictions are made from these noisy answers and public"
        " numbers only, so that nothing done with them later spends more.",
    ]


def _clipped(privacy: Record) -> str:
    norm = "l1" if privacy["mechanism"] == "laplace" else "l2"
    rows = "not clipped"
    if privacy["clip"] != "inf":
        rows = f"each row's clipped to an {norm} norm of {number(privacy['clip'])}"
    if privacy["bound"] == "inf":
        return rows
    return f"{rows}, of rows clipped to an {norm} norm of {number(privacy['bound'])}"


def ledger(result: Result, most: int | None = None) -> Table:
    """What every client has spent; ``most`` keeps those that have spent most."""
    rows, heads = result["privacy"]["ledger"], {**LEDGER}
    title = "Ledger"
    if most is not None and len(rows) > most:
        title = f"Ledger: the {most} of {len(rows)} clients that have spent most"
        rows = sorted(rows, key=lambda row: -row["epsilon"])[:most]
    views = result["privacy"]["views"]
    if views["total"] is not None:
        other = "sum" if views["view"] == "answers" else "answers"
        rows = [row | {"other": views["clients"][row["client"]]} for row in rows]
        heads = heads | {"other": f'In the view "{other}"'}
    if not any(row["before"] for row in rows):
        del heads["before"]
    return of_rows(title, rows, heads, {"left": _thousandths, "before": _thousandths})


def _thousandths(value: float) -> str:
    """A number, 0 where it is less than a thousandth."""
    return number(0.0 if value < 1e-3 else value)


# ---------------------------------------------------------------------------------------- figures


def _budget(canvas: Canvas, rows: Rows, privacy: Record) -> None:
    """Draw two bars a client: the total of earlier runs, and that with this run; totals do not add
    up, so the bars lie on each other.
    """
    axes = canvas.one()
    places = axes.named_rows([row["client"] for row in rows])
    axes.barh(places, [row["epsilon"] for row in rows], 0.6, color=BLUE, label="with this run")
    if any(row["before"] for row in rows):
        axes.barh(places, [row["before"] for row in rows], 0.6, color=GREY, label="before it")
    axes.axvline(privacy["allowed"], color=INK, linewidth=1.2, label="allowed")
    axes.name(x="total epsilon")
    axes.legend(3)


def _rounds(canvas: Canvas, history: Rows) -> None:
    panels, x = canvas.two(), column(history, "round")
    second = ("step", BLUE, "step") if "step" in history[0] else ("gap", BLUE, "distance")
    for axes, (key, colour, name) in zip(panels, (("noise", ORANGE, "noise"), second), strict=True):
        y = column(history, key)
        y = np.where(y > 0, y, np.nan)
        axes.plot(x, y, color=colour)
        axes.name(x="round", y=name)
        if np.isfinite(y).any() and np.nanmax(y) > 5 * np.nanmin(y):
            axes.yaxis.kind = LOG
        else:
            axes.yaxis.low = 0.0
        axes.xaxis.whole = True
