"""Lines of the audit log in words that a data protection officer understands.

Whether a server reads this site's own numbers or only their sum over the sites is not a matter of
the algorithm only: an algorithm may use only the sum, and yet every site's numbers reach the
server, which adds them up. The words say which of the two holds.
"""

from collections.abc import Iterator
from itertools import groupby

from bonafed.sites.audit import BEGUN, TORN, Content, Entry
from bonafed.text import printable

# What the fields of answers hold; those of one class, as "Class.field", come first.
ANSWERS: dict[str, str] = {
    "Blended.curvature": "curvature of the mean loss, times the weight of the site",
    "Blended.gradient": "gradient of the mean loss, times the weight of the site",
    "Blended.loss": "mean loss, times the weight of the site",
    "BegunRanks.longest": "largest number of rows of a site",
    "BegunRanks.rows": "number of rows",
    "Bent.counts": "squared residuals and number of shortened rows, with noise",
    "Bent.gradient": "gradient with noise",
    "Bent.matrix": "curvature matrix with noise",
    "Blurred.gradient": "gradient with noise",
    "Certified.features": "transport cost spent on features",
    "Concluded.changes": "last change of the multipliers",
    "Concluded.copies": "site's copy of the model",
    "Concluded.multipliers": "multipliers of the site's constraints",
    "Concluded.rows": "multipliers of the rows",
    "Concluded.split": "points that go with these multipliers",
    "Concluded.starts": "starts that were tried",
    "Counted.above": "how many rows lose more than each threshold",
    "ExpandedRanks.above": "losses above each threshold, added up",
    "ExpandedRanks.centring": "right side of the step towards the central path",
    "ExpandedRanks.cross": "second derivatives between thresholds and model",
    "ExpandedRanks.gradients": "gradients of the losses times these weights",
    "ExpandedRanks.rate": "second derivatives by the thresholds",
    "ExpandedRanks.shift": "right side of the step",
    "ExpandedRanks.weight": "weights of the rows at each threshold",
    "Gauged.steep": "largest entry of the gradient",
    "Introduced.cells": "weights of its groups of rows",
    "Introduced.columns": "names of further columns",
    "Introduced.features": "names of the features",
    "Introduced.labels": "classes",
    "Introduced.values": "values of the columns that constraints name",
    "JudgedRows.compared": "how two models differ on the rows that the site holds out",
    "JudgedRows.confusion": "counts of these rows by truth and prediction",
    "JudgedRows.figures_of": "which model the figures of each are of",
    "JudgedRows.measures": "AUC, Brier score and log loss, or errors, of these rows",
    "JudgedRows.merged": "whether a class of few predictions is counted as another one",
    "JudgedRows.rows": "number of rows that the site holds out",
    "Looked.total": "losses, added up",
    "Mixture.gradient": "gradients of the losses times the weights of the rows",
    "Mixture.hessian": "second derivatives of the losses times the weights of the rows",
    "Mixture.share": "weight of the site's rows",
    "Mixture.slopes": "sizes of the losses' slopes times the weights of the rows",
    "Mixture.value": "losses times the weights of the rows",
    "Perturbed.gap": "distance of the noised model from the server's",
    "Perturbed.noise": "expected size of the noise, which is public",
    "Perturbed.shifted": "noised model",
    "Ranged.rows": "number of rows",
    "Ranged.width": "number of coefficients",
    "Sealed.parcel": "keys, or shares of keys that no one site can open",
    "Settled.change": "change of the multipliers",
    "Settled.gradient": "largest entry of the gradient",
    "Settled.steep": "squared lengths of the constraints' gradients",
    "Sliced.gradient": "gradients of the losses times the weights of the rows",
    "Sliced.hessian": "second derivatives of the losses times the weights of the rows",
    "Sliced.middles": "gradients of the losses of every group of ranks, added up",
    "Sliced.spread": "products of each loss's gradient with itself, times rates",
    "Sliced.value": "losses times the weights of the rows",
    "SurveyedSums.reach": "square of the largest length of a row",
    "SurveyedSums.target": "square of the largest size of a target",
    "SteppedRows.gradients": "gradients of the losses times the weights of the rows",
    "SteppedRows.share": "weight of the site's rows",
    "SteppedRows.slope": "sizes of the losses' slopes",
    "SteppedRows.slopes": "these sizes times the weights of the rows",
    "SteppedRows.weight": "weights of the rows",
    "Tallied.above": "how many rows lose more than each threshold",
    "Trimmed.gradient": "gradient with noise",
    "Trimmed.short": "count of rows with short gradients, with noise",
    "WeighedAlong.product": "second derivatives along a direction",
    "WeighedRows.above": "losses above each threshold, added up",
    "balance": "gradient of the lower bound",
    "base": "risk without its part for the radius",
    "bite": "constraint values times changes of the multipliers",
    "bound": "proven lower bound",
    "change": "change of the model",
    "constant": "constant of the lower bound",
    "curvature": "curvature of the risk",
    "diagonal": "second derivatives by each coefficient",
    "drift": "difference between the site's copy and the model",
    "excess": "violation of the constraints, relative to their gradients",
    "fallbacks": "how often a slower solver was needed",
    "features": "number of features",
    "finished": "whether the method can go on",
    "gap": "squared length of a residual",
    "gradient": "gradient of the risk",
    "gradient_level": "derivative of the risk by the transport multiplier",
    "hessian": "second derivatives of the risk and the constraints",
    "inner": "inner products of the last steps",
    "labels": "transport cost spent on labels",
    "largest": "largest loss of all sites' rows",
    "length": "length of the gradient",
    "level": "transport multiplier",
    "limits": "limits of the site's constraints",
    "local": "values of the constraints on this site's rows",
    "local_jacobian": "gradients of the constraints on this site's rows",
    "locked": "second derivatives over rows whose gradients change no more",
    "loss": "mean loss",
    "mean_constant": "constant of the lower bound",
    "mean_gradient": "gradient of the lower bound",
    "minus": "share of rows of the smaller class, or mean size of negative targets, up to 1",
    "pi": "bound on the risk",
    "plus": "share of rows of the larger class, or mean of positive targets, up to 1",
    "primal": "squared distance between the site's copy and the model",
    "product": "multipliers times constraint values",
    "push": "constraint gradients times changes of the multipliers",
    "reach": "largest length of a row",
    "residual": "residual of the method",
    "residuals": "residuals of the optimality conditions",
    "risk": "risk",
    "risk_gradient": "gradient of the risk",
    "shared": "part of the constraints over all sites",
    "shared_jacobian": "gradients of the part of the constraints over all sites",
    "shared_limits": "part of the limits over all sites",
    "shifted": "copy of the model, shifted by its multipliers",
    "single": "change of the model",
    "size": "sizes of the terms of the lower bound's gradient",
    "slack": "slack of the constraints over all sites",
    "slack_drift": "change of this slack",
    "smallest": "smallest loss of all sites' rows",
    "snapshot": "model after some of the local steps",
    "spread": "sizes of the terms of the lower bound's constant",
    "square": "mean square of every feature",
    "start": "gradient of the risk at the model 0",
    "steep": "squares of the gradients of the constraints over all sites",
    "steps": "number of iterations",
    "tangent": "weighted risk by its tangent at the site's copy of the model",
    "target": "largest size of a target",
    "terms": "how many terms the lower bound's gradient adds up",
    "unsolved": "accuracy of the site's solver",
    "value": "weighted risk",
    "violation": "violation of the constraints",
    "w": "the site's model",
    "weighted": "losses times these weights",
    "worst": "bound on the risk",
}
QUESTIONS: dict[str, str] = {
    "EvaluateFirst.start": "first model",
    "EvaluateFirst.second_order": "largest number of coefficients for second derivatives",
    "EvaluateAt.second_order": "largest number of coefficients for second derivatives",
    "pair": "models tried before",
    "parts": "numbers of groups of rows and of their least rows",
    "radii": "radii of earlier questions",
    "w": "model",
    "z": "model",
    "weights": "weights of the sites",
    "prior": "weights of the sites",
    "multipliers": "multipliers",
    "points": "models tried before",
}
UNMASKED = "this version sends them to the server unmasked"
READ = {  # of an answer: how a field is combined, and whether it is masked
    ("sum", False): f"of which the algorithm uses only the sum over the sites; {UNMASKED}",
    ("sum", True): "added up with those of the other sites before anybody reads them",
    ("max", False): f"of which the algorithm uses only the largest over the sites; {UNMASKED}",
    ("max", True): "of which nobody reads more than the largest over the sites",
}
ASKED = {  # of a question
    "each": "for this site only",
    "all": "the same for all sites",
    "version": "the same for all sites that are sent this version",
}


def in_words(entry: Entry) -> str:
    """A line of the log as one sentence, such as "2026-11-23 10:04:11 UTC  received from server
    alliance: model (31 numbers), the same for all sites".
    """
    when = f"{entry.at[:19].replace('T', ' ')} UTC  "
    if entry.event == BEGUN:
        return printable(f"{when}the log of site {entry.text} begins")
    if entry.event == TORN:
        return printable(f"{when}after a crash: {entry.text}")
    if not entry.way:
        return printable(f"{when}note: {entry.text}")
    way = "received from" if entry.way == "in" else "sent to"
    refused = "; ".join(text for _, text in entry.refused)
    what = "; ".join(_groups(entry)) or (
        "a refusal" if refused and entry.way == "out" else "no numbers"
    )
    more = f". Refused by {refused}" if refused else ""
    return printable(f"{when}{way} server {entry.who}: {what} ({_details(entry)}){more}")


def _groups(entry: Entry) -> Iterator[str]:
    """The fields of a message, those together that are seen alike."""
    ordered = sorted(entry.fields.items(), key=lambda item: item[1].how)
    for how, fields in groupby(ordered, key=lambda item: item[1].how):
        names = ", ".join(f"{_field(entry, name)} ({_count(held)})" for name, held in fields)
        if entry.way == "in":
            yield f"{names}, {ASKED.get(how, how)}"
        else:
            seen = READ.get((how, entry.masked), "which the server reads as this site's numbers")
            yield f"{names}, {seen}"


def _field(entry: Entry, name: str) -> str:
    known = QUESTIONS if entry.way == "in" else ANSWERS
    return known.get(f"{entry.kind}.{name}") or known.get(name) or name.replace("_", " ")


def _count(held: Content) -> str:
    counts = ((held.numbers, "number"), (held.texts, "text"))
    return ", ".join(f"{n:,} {word}{'s' * (n != 1)}" for n, word in counts if n)


def _details(entry: Entry) -> str:
    """The kind of a message, its place and its size."""
    parts = [entry.kind or "unreadable"]
    if entry.seq is not None:
        parts.append(f"message {entry.seq}")
    if entry.experiment:
        parts.append(f"experiment {entry.experiment}")
    return ", ".join([*parts, f"{entry.size:,} bytes"])
