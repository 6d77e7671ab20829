"""What the numbers of a run mean, in sentences; and the whole report as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quorate.radii import equal
from quorate.report import clock, constrained
from quorate.report.tables import (
    baselines,
    certificate,
    clients,
    escaped,
    fairness,
    measures,
    messages,
    number,
    path,
    people,
    percent,
    precise,
    versions,
)


def question(result: Mapping[str, Any]) -> str:
    """What the comparison with baselines answers."""
    risk = result.get("risk")
    if constrained.asked(result):
        return "Are the constraints kept on new rows?" if result["constraints"] else "Is it better on new rows?"
    if risk is None or risk["name"] == "mean":
        return "Did robustness help?"
    return f"Is the {risk['name']} of new losses lower?"


def summary(result: Mapping[str, Any]) -> list[str]:
    """What was done, what is guaranteed and how it was checked."""
    rows = sum(row["n"] for row in result["clients"])
    n, found = len(people(result)), result["certificate"]
    took = f"{n} client{'s' * (n > 1)} with {rows:,} rows took part in {result['rounds']} rounds."
    if "owners" in result:
        took = f"{rows:,} rows of {n} client{'s' * (n > 1)}, pooled, were fitted in {result['rounds']} rounds."
    said = [f"{took} {_ended(result)}", result["problem"]]
    said += constrained.summary(result) if constrained.asked(result) else [_protects(result)]
    if constrained.asked(result) and constrained.impossible(result):
        return said
    if found["bound"] is None:
        said.append(f"The objective of the model is {number(found['value'])}; {_unproven(result)}")
    else:
        said.append(
            f"The objective of the model is {precise(found['value'])}. It is proven that no model of this kind has one "
            f"below {precise(found['bound'])}: this one is within {found['relative_gap']:.2g} (relative) of the best."
        )
    duals = "multipliers" if constrained.asked(result) else "dual weights"
    said.append(
        f"These numbers were computed after the run from data, model and {duals} alone, without the algorithm; "
        "quorate verify computes them again from this folder."
    )
    return said


def _unproven(result: Mapping[str, Any]) -> str:
    """Why there is no bound, and what there is."""
    residuals = result["certificate"].get("residuals")
    if constrained.asked(result):
        return (
            "no lower bound is proven, and a better model may exist. The certificate says how far this one is from the "
            "conditions of optimality."
        )
    if not residuals:
        return "no lower bound is proven, see the warnings."
    return (
        "the problem is not convex, so no lower bound can be proven, and a better model may exist. What is checked is "
        f"how far this one is from the three conditions of optimality: {', '.join(map(precise, residuals))} (KKT "
        "residuals)."
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ended(result: Mapping[str, Any]) -> str:
    text = result["outcome"]["text"].strip()
    return _upper(text) + ("" if text.endswith(".") else ".")


def _protects(result: Mapping[str, Any]) -> str:
    """The robust part of the objective as a promise."""
    found, risk = result["certificate"], result.get("risk")
    worst = sum(q * r for q, r in zip(found["weights"], found["client_risks"], strict=True))
    worst += found["complementarity"] or 0.0
    if risk is not None:
        if risk["pooled"]:
            return f"The {risk['words']} of the training losses is {number(worst)}."
        return (
            "Whatever the mix of clients within the stated set, the mean by it of their own risks, each the "
            f"{risk['words']} of a client's training losses, is at most {number(worst)}."
        )
    radii = {row["radius"] for row in result["clients"]}
    balls = (
        ""
        if radii == {0.0}
        else (
            " and whatever each client's data become within Wasserstein distance "
            + (number(max(radii)) if len(radii) == 1 else f"{number(min(radii))} to {number(max(radii))}, by client,")
            + " of its training rows"
        )
    )
    return f"Whatever the mix of clients within the stated set{balls}, the expected loss is at most {number(worst)}."


def choice(tried: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """Which point did best, and what that is worth."""
    points, held, found = tried["points"], tried["held_out"], tried["points"][tried["best"]]
    theta = "" if found["client_radius"] is None else f" and client radius {number(found['client_radius'])}"
    what = f", accuracy {percent(found['accuracy'])}" if "accuracy" in found else ""
    radii, ties = sorted({point["radius"] for point in points}), len(equal(points)) - 1
    end = not ties and len(radii) > 2 and (found["radius"] == radii[-1] or found["radius"] == radii[0] > 0)
    own = sorted({row["radius"] for row in result["clients"]})
    mine = number(own[0]) if len(own) == 1 else f"{number(own[0])} to {number(own[-1])}, by client"
    return [
        f"Of {len(points)} points, radius {number(found['radius'])}{theta} had the smallest held-out loss of a client: "
        f"{number(found['worst_loss'])} at {found['worst_client']} (all rows: {number(found['loss'])}{what})."
        + f" {ties} other point{' does' if ties == 1 else 's do'} as well: the first is named." * (ties > 0)
        + " It lies at the end of the radii tried: a wider path may find better." * end,
        f"This was looked at, on {sum(held.values())} rows held out of the training rows ({min(held.values())} at the "
        f"smallest client): its own numbers flatter it, and differences between neighbours may be chance. The model of "
        f"this run was trained with the radius of its configuration, {mine}. To use another, set it there, and judge "
        f"the new run by its test rows, which the path has not seen.",
    ]


def answer(result: Mapping[str, Any]) -> list[str]:
    """The verdict; of a run that nothing can satisfy that it is about a model nobody should use."""
    verdict = list(result["evaluation"]["verdict"])
    if verdict and constrained.asked(result) and constrained.impossible(result):
        verdict[0] = (
            f"No model is recommended; what follows is about the one that breaks the constraints least. {verdict[0]}"
        )
    return verdict


def markdown(
    result: Mapping[str, Any], tried: Mapping[str, Any] | None = None, traded: Mapping[str, Any] | None = None
) -> str:
    """The whole report as Markdown."""
    notes = [f"- {escaped(note)}" for note in result["notes"]] or ["None."]
    verdict = [escaped(v) for v in answer(result)]
    parts = [f"# {escaped(result['title'])}", *summary(result)]
    parts += [f"## {question(result)}", *verdict] * bool(verdict)
    parts += ["## Warnings", "\n".join(notes)]
    asked = constrained.asked(result)
    own = clients(result, constrained.HEADS) if asked else clients(result)
    tables = [certificate(result), own, *measures(result), *fairness(result), messages(result)]
    tables += [versions(result)]
    tables[3:3] = [baselines(result)] * bool(result["baselines"])
    if asked:
        parts += ["## Prices", *map(escaped, constrained.priced(result))]
        tables[1:1] = [constrained.constraints(result), *constrained.kept(result), *constrained.groups(result)]
    if clock.asked(result):
        tables[1:1] = [clock.pace(result)] if "reached" in result else []
    tables += clock.spread(result)
    for each in tables:
        parts += [f"## {escaped(each.title)}", each.markdown()]
    if tried is not None:
        parts += ["## Radii tried", *map(escaped, choice(tried, result)), path(tried).markdown()]
    if traded is not None:
        parts += [
            "## Other levels",
            *map(escaped, constrained.traded_words(traded)),
            constrained.levels(traded).markdown(),
        ]
    return "\n\n".join(parts) + "\n"
