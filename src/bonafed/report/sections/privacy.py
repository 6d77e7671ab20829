"""What left the owners of the rows, and what pays for it: the guarantee and the ledger of a private
run, what opens the part of its owner, the messages of every run, and who can learn what at sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from bonafed.drawing import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    column,
    legend,
    named_rows,
    plain_decades,
    whole_numbers,
)
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.slopes import jumping
from bonafed.report import words
from bonafed.report.sections.section import (
    MOST,
    Block,
    Chapter,
    Code,
    Fact,
    Figure,
    Fold,
    Heading,
    Items,
    Plot,
    ReportSection,
    Row,
    Text,
    chapter,
    texts,
)
from bonafed.report.tables import Record, Result, Rows, Table, number, of_rows, size, table
from bonafed.runs.baselines import called
from bonafed.runs.border import HEADS, of_run
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.drawing import Canvas


MOST_SPENT = 3  # clients that a terminal shows
TOTALS = {  # key -> (accountant, what its total is)
    "epsilon": ("Privacy loss distributions (PLD)", "rounded up: the number that counts"),
    "gaussian": ("Closed form", "exact for Gaussian noise: an independent check"),
    "rdp": ("Rényi divergences (RDP)", "never below the truth"),
    "basic": ("Basic composition", "the sum over all answers"),
}
LEDGER = {
    "client": "Client",
    "rows": "Rows, as public",
    "answers": "Answers",
    "noise": "Noise",
    "scale": "Scale",
    "before": "Spent before",
    "epsilon": "Epsilon in all",
    "left": "Left",
}
ABOUT_LEDGER = (
    "Noise is relative to the sensitivity, which is what one row can change; scale is that of the"
    " noise in a client's answer. Clients have different rows, so that the total of all is that of"
    " the client which has spent most."
)
BARS = Figure(
    "budget", "Totals do not add up: a bar is what all runs on a client's rows cost together."
)
ROUNDS = Figure(
    "rounds",
    "Above, the expected size of the noise in an answer; below, the sum of the distances of the"
    " clients' noisy copies from the model, or the step of a method whose clients keep none.",
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


class Guarantee(ReportSection):
    """The public part of a private run: the guarantee, the ledger, and what is withheld."""

    def applies(self, run: Run) -> bool:
        return words.public_part(run.result)

    def lead(self, run: Run) -> str:
        clients = words.clients(len(run.result["clients"]))
        exact = "exact numbers stay with the owner of the data"
        if words.at_sites(run.result):
            exact = "no exact number about a row has left a site"
        return (
            f"A model trained within a privacy budget, from data that stayed with {clients}. This"
            f" report is public and may travel with the model; {exact}."
        )

    def facts(self, run: Run) -> list[Fact]:
        result, privacy = run.result, run.result["privacy"]
        rows, n = sum(row["n"] for row in result["clients"]), len(result["clients"])
        spent = f"total epsilon, of {privacy['allowed']:g} allowed"
        spent += ", in a rehearsal" * bool(privacy["rehearsal"])
        mood = "warn" if privacy["rehearsal"] else "good"
        return [
            Fact(f"{privacy['epsilon']:.4g}", spent, mood),
            Fact(f"{privacy['delta']:g}", "delta"),
            Fact(str(result["rounds"]), "rounds, one answer of each client in each"),
            Fact(f"{rows:,}", f"training rows as public, at {words.clients(n)}"),
        ]

    def plots(self, run: Run) -> Mapping[str, Plot]:
        privacy, history = run.result["privacy"], run.history
        rows = sorted(privacy["ledger"], key=lambda row: -row["epsilon"])[:MOST]
        title, height = "What every client has spent of its budget, and what is left", len(rows)
        drawn = {"budget": Plot(title, 1.3 + 0.26 * height, _budget, (rows, privacy))}
        if len(history) > 1:
            copies = "gap" in history[0]
            below = "distance of the clients' copies from the model" if copies else "step"
            title = f"Noise in every answer, and {below}"
            drawn["rounds"] = Plot(f"{title}, by round", 4.0, _rounds, (history,))
        return drawn

    def chapters(self, run: Run) -> list[Chapter]:
        result, privacy = run.result, run.result["privacy"]
        chapters, title = [], "The guarantee"
        if rehearsal := privacy["rehearsal"]:
            chapters.append(chapter("rehearsal", "A rehearsal", Text(rehearsal), warning=True))
            title = "What would be guaranteed"
        sentences = [*guaranteed(result), f"{result['problem']} {words.ended(result)}"]
        public = Heading("Taken to be public, and not protected"), Items(tuple(privacy["public"]))
        chapters.append(chapter("guarantee", title, *texts(sentences), *public))
        blocks = [Text(ABOUT_LEDGER), Row((BARS, accounts(result))), ledger(result)]
        if len(result["clients"]) > MOST:
            shown = f"The figure shows the {MOST} clients that have spent most."
            blocks.append(Text(shown, soft=True))
        chapters.append(chapter("budget", "Budget by client", *blocks))
        if len(run.history) > 1:
            chapters.append(chapter("rounds", "Rounds", Row((ROUNDS, Text(ABOUT_ROUNDS)))))
        where = [Text("It is in the folder owner/, which stays where the data are.")]
        where = [] if words.at_sites(result) else where
        chapters.append(chapter("withheld", "What is withheld", *where, withheld(result)))
        return chapters

    def brief(self, run: Run) -> list[Block]:
        result = run.result
        rehearsal = filter(None, [result["privacy"]["rehearsal"]])
        said = [*rehearsal, f"{result['problem']} {words.ended(result)}", guaranteed(result)[0]]
        return [ledger(result, MOST_SPENT), *texts(said)]


class OwnersPart(ReportSection):
    """What opens the part that stays with the owner: that it stays there."""

    def applies(self, run: Run) -> bool:
        return words.private(run.result) and not words.public_part(run.result)

    def lead(self, run: Run) -> str:
        return "The part of a private run that stays with the owner of the data."

    def chapters(self, run: Run) -> list[Chapter]:
        title = "This page stays with the owner of the data"
        return [chapter("owner", title, Text(OWNER), warning=True)]


# ------------------------------------------------------------------------------------------ words


def guaranteed(result: Result) -> list[str]:
    """What is guaranteed to whom."""
    privacy = result["privacy"]
    epsilon, delta = privacy["epsilon"], privacy["delta"]
    odds = math.exp(epsilon) if epsilon < 700 else math.inf
    paid = ", those of earlier runs on the same rows included," if privacy["before"] else ""
    alone = (
        " No privacy ledger is kept: other runs on the same rows, if there are any, would add to"
        " this."
    )
    sites = (
        " This is what this run spends. Each client has charged it in its own privacy ledger,"
        " together with all other runs on its rows, whose total only the client knows."
    )
    where, others = " outside owner/", "" if privacy["book"] else alone
    if words.at_sites(result):
        where, others = "", sites
    views = privacy["views"]
    sent = f"every message that the {words.clients(len(privacy['ledger']))} sent"
    if views["view"] == "sum":
        sent = f"every sum of what the {words.clients(len(privacy['ledger']))} sent"
    return [
        (
            f"Everything in this folder{where} and {sent}{paid} is ({number(epsilon)},"
            f" {delta:g})-differentially private; ({privacy['allowed']:g}, {delta:g}) was allowed."
            " Whatever somebody believed about one row before, seeing all of it multiplies the odds"
            f" by at most {number(odds)}, except with probability {delta:g}."
            f"{others}"
        ),
        *filter(None, [views["text"]]),
        privacy["protects"],
        (
            f"In each of {result['rounds']} rounds every client answered with one sum of gradients,"
            f" {_clipped(privacy)}, and {privacy['mechanism'].capitalize()} noise."
            f"{_sampled(privacy)}"
            f" {_source(privacy)}"
        ),
        (
            "The model, this report and all predictions are made from these noisy answers and"
            " public numbers only, so that nothing done with them later spends more."
        ),
    ]


def _clipped(privacy: Record) -> str:
    norm = "l1" if privacy["mechanism"] == "laplace" else "l2"
    rows = "not clipped"
    if privacy["clip"] != "inf":
        rows = f"each row's clipped to an {norm} norm of {number(privacy['clip'])}"
    if privacy["bound"] == "inf":
        return rows
    return f"{rows}, of rows clipped to an {norm} norm of {number(privacy['bound'])}"


def _sampled(privacy: Record) -> str:
    """What share of the rows a round is of; nothing where it is of all."""
    _, _, _, *sampling = next(iter(privacy["releases"].values()))[0]
    if not sampling:
        return ""
    return (
        f" Each row took part in a round with probability {sampling[0]:g}, by a secret coin of its"
        " client's."
    )


def _source(privacy: Record) -> str:
    if privacy["source"] == "secure":
        return (
            "Each client drew its noise with a key of its own operating system, which nobody else"
            " has."
        )
    return (
        "The noise was made from the seed of the configuration: anyone who has that can subtract"
        " it."
    )


# ----------------------------------------------------------------------------------------- tables


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


def accounts(result: Result) -> Table:
    """The total by every accountant, the largest of all clients."""
    cells = []
    for key, (name, meaning) in TOTALS.items():
        totals = [row[key] for row in result["privacy"]["ledger"] if row[key] is not None]
        if totals:
            cells.append((name, number(max(totals)), meaning))
    heads = ("Accountant", "Epsilon", "Meaning")
    return table("Total by accountant", heads, cells, (0, 2), long=(0, 2))


def withheld(result: Result) -> Table:
    """What stays with the owner, and why."""
    cells = [(row["what"], row["why"]) for row in result["withheld"]]
    return table("What is withheld", ("What", "Why"), cells, (0, 1), long=(0, 1))


# ---------------------------------------------------------------------------------------- figures


def _budget(canvas: Canvas, rows: Rows, privacy: Record) -> None:
    """Draw two bars a client: the total of earlier runs, and that with this run; totals do not add
    up, so the bars lie on each other.
    """
    axes = canvas.subplots()
    places = named_rows(axes, [row["client"] for row in rows])
    axes.barh(places, [row["epsilon"] for row in rows], 0.6, color=BLUE, label="with this run")
    if any(row["before"] for row in rows):
        axes.barh(places, [row["before"] for row in rows], 0.6, color=GREY, label="before it")
    axes.axvline(privacy["allowed"], color=INK, linewidth=1.2, label="allowed")
    axes.set_xlabel("total epsilon")
    legend(axes, 3)


def _rounds(canvas: Canvas, history: Rows) -> None:
    panels = canvas.subplots(2, sharex=True)
    x = column(history, "round")
    second = ("step", BLUE, "step") if "step" in history[0] else ("gap", BLUE, "distance")
    lines = (("noise", ORANGE, "noise"), second)
    for axes, (key, colour, name) in zip(panels, lines, strict=True):
        y = column(history, key)
        y = np.where(y > 0, y, np.nan)
        axes.plot(x, y, color=colour)
        axes.set_ylabel(name)
        if np.isfinite(y).any() and np.nanmax(y) > 5 * np.nanmin(y):
            axes.set_yscale("log")
            plain_decades(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
    panels[1].set_xlabel("round")
    whole_numbers(panels[1].xaxis)


# ------------------------------------------------------- messages, and what the run is made from

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
