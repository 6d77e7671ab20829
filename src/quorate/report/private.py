"""The reports of a private run: one of the part that travels, and one that stays with the owner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quorate.report import tables
from quorate.report.tables import Table, escaped, number, percent, precise, table

if TYPE_CHECKING:
    from rich.console import Console

    from quorate.runs import Run

TOTALS = {"epsilon": "Epsilon (pld)", "gaussian": "Closed form", "rdp": "RDP", "basic": "Basic composition"}
HEADS = ("client", "n", "loss", "weight", "held_n", "held_loss", "held_accuracy", "held_error", "note")
LOOKED = (
    "Whoever chooses a budget, or any other setting, by these numbers has looked at the rows: that choice is not part "
    "of what was paid for. They are for the owner's judgement of what privacy costs here."
)


def render(run: Run) -> dict[str, str]:
    """The files of a report by name, of the part that travels or of the owner's part."""
    from quorate.report.figures_private import owner_figures, travelling_figures

    drawn = travelling_figures(run.result, run.history) if run.private else owner_figures(run.result, alone(run))
    return {"report.html": page(run, drawn), **{f"figures/{name}.svg": svg + "\n" for name, svg in drawn.items()}}


def page(run: Run, drawn: Mapping[str, str]) -> str:
    """report.html, the figures inlined."""
    from markupsafe import Markup

    from quorate.report.html import templates

    environment = templates()
    result, owner = run.result, not run.private
    shared = {
        "result": result,
        "measures": tables.measures(result),
        "messages": tables.messages(result),
        "versions": tables.versions(result),
        "figures": {name: Markup(svg) for name, svg in drawn.items()},  # texts in them are escaped as they are drawn
        "config": run.config.text(),
    }
    if owner:
        own = {"cost": cost(result), "certificate": certificate(result), "clients": tables.clients(result, HEADS)}
        own |= {"curve": curve(run) if result.get("curve") else None, "curve_words": curve_words(run)}
        return environment.get_template("owner.html.jinja").render(**shared, **own)
    ledgers = {"ledger": ledger(result), "accounts": accounts(result), "withheld": withheld(result)}
    stated = result["privacy"]
    return environment.get_template("private.html.jinja").render(**shared, **ledgers, p=stated, said=promised(result))


# ---------------------------------------------------------------------------------------- words


def promised(result: Mapping[str, Any]) -> list[str]:
    """What is promised to whom, in sentences."""
    p = result["privacy"]
    worst = math.exp(p["epsilon"]) if p["epsilon"] < 700 else math.inf
    paid = ", those of earlier runs on the same rows included," if p["before"] else ""
    alone = "" if p["book"] else " No book is kept: other runs on the same rows, if there are any, would add to this."
    clients = len(p["ledger"])
    return [
        f"Everything in this folder outside owner/ and every message that the {clients} client{'s' * (clients > 1)} "
        f"sent{paid} is ({number(p['epsilon'])}, {p['delta']:g})-differentially private; ({p['allowed']:g}, "
        f"{p['delta']:g}) were allowed. Whatever somebody believed about one row before, seeing all of it "
        f"multiplies the odds by at most "
        f"{number(worst)}, but for a probability of {p['delta']:g}.{alone}",
        p["protects"],
        f"In each of {result['rounds']} rounds every client answered with one sum of gradients, {_clipped(p)}, "
        f"and {p['mechanism'].capitalize()} noise. {_source(p)}",
        "The model, this report and all predictions are made from these noisy answers and public numbers alone, so "
        "that nothing done with them later spends more.",
    ]


def _clipped(p: Mapping[str, Any]) -> str:
    norm = "l1" if p["mechanism"] == "laplace" else "l2"
    said = f"each row's cut to an {norm} norm of {number(p['clip'])}" if p["clip"] != "inf" else "not cut"
    return said if p["bound"] == "inf" else f"{said}, of rows cut to an {norm} norm of {number(p['bound'])}"


def _source(p: Mapping[str, Any]) -> str:
    if p["source"] == "secure":
        return "Each client drew its noise with a key of its own operating system, which nobody else has."
    return "The noise was made from the seed of the configuration: whoever has that can subtract it."


def alone(run: Run) -> float:
    """Epsilon of the model of the run by itself."""
    from quorate.privacy.accounting import Release, total_epsilon

    assert run.config.privacy is not None
    own = [Release(str(kind), float(noise), int(k)) for kind, noise, k in _own(run)]
    return total_epsilon(own, run.config.privacy.delta)


def _own(run: Run) -> list[list[Any]]:
    """The releases of one client in the run itself; ``run`` is the owner's part."""
    from quorate.runs import result_in

    return next(iter(result_in(run.path.parent / "result.json")["privacy"]["releases"].values()))


def cost(result: Mapping[str, Any]) -> list[str]:
    """What privacy cost, beside the same problem without it."""
    said, measures = [], result["evaluation"]["measures"]
    value = result["certificate"]["value"]
    said.append(f"The exact objective of the private model on its training rows is {precise(value)}.")
    for name, other in result["baselines"].items():
        said[0] += f" That of the same problem without privacy ({name.upper()}) is {precise(other['value'])}."
    for name in dict.fromkeys(row["set"] for row in measures):
        own = {row["model"]: row for row in measures if row["set"] == name}
        show, key = (percent, "accuracy") if "accuracy" in own["private"] else (number, "error")
        beside = f", {show(own['ERM'][key])} without privacy" if "ERM" in own else ""
        said.append(f"{name[0].upper()}{name[1:]}: {key} {show(own['private'][key])}{beside}.")
    return said + list(result["evaluation"]["verdict"][1:])


def curve_words(run: Run) -> list[str]:
    """How the points of the curve were made."""
    privacy = run.config.privacy
    if privacy is None or not privacy.curve:
        return []
    charged = "Each is a run of its own, charged before this one."
    charged = "The rows are declared public, so that the runs are not charged." if privacy.rehearsal else charged
    return [f"The same problem at other budgets. {charged} {LOOKED}"]


# ---------------------------------------------------------------------------------------- tables


def ledger(result: Mapping[str, Any]) -> Table:
    """What every client has spent."""
    rows = result["privacy"]["ledger"]
    heads = {"client": "Client", "rows": "Rows, as public", "answers": "Answers", "noise": "Noise", "scale": "Scale"}
    heads |= {"before": "Spent before"} if any(row["before"] for row in rows) else {}
    heads |= {"epsilon": "Epsilon in all", "left": "Left"}
    return table("Ledger", tuple(heads.values()), [[_cell(key, row[key]) for key in heads] for row in rows])


def accounts(result: Mapping[str, Any]) -> Table:
    """The total by every accountant, the largest of all clients."""
    rows = result["privacy"]["ledger"]
    found = {key: max((row[key] for row in rows if row[key] is not None), default=None) for key in TOTALS}
    meaning = {
        "epsilon": "privacy loss distributions, rounded up: the number that counts",
        "gaussian": "exact for Gaussian noise: an independent check",
        "rdp": "Renyi divergences: never below the truth",
        "basic": "the sum over all answers",
    }
    cells = [(TOTALS[key], _cell(key, found[key]), meaning[key]) for key in TOTALS if found[key] is not None]
    return table("Total by accountant", ("Accountant", "Epsilon", "Meaning"), cells, (0, 2))


def withheld(result: Mapping[str, Any]) -> Table:
    """What stays with the owner."""
    return table("Withheld", ("What", "Why"), [(row["what"], row["why"]) for row in result["withheld"]], (0, 1))


def certificate(result: Mapping[str, Any]) -> Table:
    """The exact numbers at the model."""
    return tables.certificate(result)


def curve(run: Run) -> Table:
    """One row for every budget, the run's own among them."""
    points, measures = run.result["curve"], run.result["evaluation"]["measures"]
    own = {row["set"]: row for row in measures if row["model"] == "private"}
    mine = {"epsilon": alone(run), "noise": _own(run)[0][1], "value": run.result["certificate"]["value"], "sets": own}
    sets = list(own)
    key = next((k for k in ("accuracy", "error") if any(k in row for row in own.values())), "loss")
    show = percent if key == "accuracy" else number
    heads = ["Epsilon alone", "Noise", "Objective", *(f"{key.capitalize()}, {name}" for name in sets)]
    rows = []
    for point in sorted([*points, mine], key=lambda point: point["epsilon"]):
        name = number(point["epsilon"]) + " ← this run" * (point is mine)
        rows.append(
            [name, number(point["noise"]), number(point["value"]), *(show(point["sets"][s][key]) for s in sets)]
        )
    return table("Other budgets", heads, rows)


def _cell(key: str, value: Any) -> str:
    return number(0.0 if key in ("left", "before") and value < 1e-3 else value)  # less than a thousandth is nothing


# ---------------------------------------------------------------------------------------- elsewhere


def show(run: Run, console: Console) -> None:
    """On the owner's terminal: the promise, the budget, what privacy cost, where both reports are."""
    from quorate.report.terminal import MOST, drawn, say

    spent, owner = ledger(run.result), run.owner
    few = Table(spent.title, spent.columns, spent.rows[:MOST], spent.numeric)
    for each in (few, accounts(run.result)):
        console.print()
        console.print(drawn(each))
    console.print()
    for said in [*filter(None, [run.result["privacy"]["rehearsal"]]), *promised(run.result)]:
        say(said, console)
    if owner is not None:
        console.print("\nFor the owner alone", style="bold")
        for each in tables.measures(owner.result):
            console.print(drawn(each))
        if owner.result.get("curve"):
            console.print(drawn(curve(owner)))
        for said in cost(owner.result):
            say(said, console)
        for note in owner.result["notes"]:
            say(f"warning: {note}", console)
    for name, part in (("travels", run), ("stays", owner)):
        if part is not None:
            file = part.path / "report.html"
            shown = file if file.is_file() else part.path
            console.print(f"{name}: {shown}", markup=False, highlight=False, soft_wrap=True)


def markdown(run: Run) -> str:
    """The report of the part that travels, as Markdown."""
    result = run.result
    parts = [f"# {escaped(result['title'])}", "## The promise", *map(escaped, promised(result))]
    parts += [escaped(result["privacy"]["rehearsal"])] * bool(result["privacy"]["rehearsal"])
    parts += [f"## {escaped('Taken to be public')}", "\n".join(f"- {escaped(s)}" for s in result["privacy"]["public"])]
    each = [ledger(result), accounts(result), *tables.measures(result), withheld(result), tables.messages(result)]
    for one in [*each, tables.versions(result)]:
        parts += [f"## {escaped(one.title)}", one.markdown()]
    return "\n\n".join(parts) + "\n"
