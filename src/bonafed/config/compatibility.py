"""What the tables of a configuration ask of each other, beside what `bonafed.solve` asks.

Whether a problem can be stated, and which algorithm takes it, is asked of the classes
(``methods.py``). A rule here is about what only a file has: keys that contradict each other, tables
without an object, and what the pipeline of a run cannot do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from bonafed.config.errors import Refusal
from bonafed.config.privacy_rules import private_rules
from bonafed.config.tables import Tables


def table_rules(config: Tables) -> Iterator[Refusal]:
    """The rules about tables beside each other that a configuration breaks."""
    return chain.from_iterable(rules(config) for rules in RULES)


def _one_place(config: Tables) -> Iterator[Refusal]:
    if not config.problem_.pooled:
        return
    levels = [one.get("level") for one in config.constraint]
    for key, value in {"robust.radius": [config.robust.radius], "constraint.level": levels}.items():
        if any(isinstance(one, dict) for one in value):
            yield Refusal(
                f"{key} has one number per client, and problem.pooled = true makes them one: give"
                " a number"
            )
    for key in ("stragglers", "outages", "crashes"):
        if {*(config.engine.get(key) or ())} - {"pooled"}:
            yield Refusal(
                f"engine.{key} names clients, and problem.pooled = true makes them one: leave it"
                " out, or name 'pooled' only",
                *("engine", key),
            )
    weigh = [name for name in config.report.compare_with if name in ("afl", "drfa", "wafl")]
    if weigh:
        yield Refusal(
            f"report.compare_with has {weigh[0]!r}, which weighs clients, and problem.pooled = true"
            " makes them one: compare with 'erm' only"
        )


def _one_ranking(config: Tables) -> Iterator[Refusal]:
    """What says nothing beside the rows of all clients ranked together."""
    if config.risk.together and "wafl" in config.report.compare_with:
        yield Refusal(
            "report.compare_with has 'wafl', which ranks the rows of all clients in one place, as"
            " risk.on = 'together' does where they are, so that both are one model: leave it out",
            *("report", "compare_with"),
        )


def _tables_of_constraints(config: Tables) -> Iterator[Refusal]:
    """Tables about constraints, and constraints about tables."""
    server = any(one.place == "server" for one in config.constraint)
    if server and config.data.server is None:
        yield Refusal(
            "constraint.on = 'server' needs the server's own rows: give data.server, a table or a"
            " share"
        )
    if not server and config.data.server is not None:
        yield Refusal(
            "data.server are rows for a constraint of on = 'server', and there is none: add one, or"
            " leave it out"
        )
    constrained = config.constraint or config.problem_.label is not None
    if "unconstrained" in config.report.compare_with and not constrained:
        yield Refusal(
            "report.compare_with has 'unconstrained', and there are no constraints to leave out:"
            " use 'erm'"
        )


def _positive(config: Tables) -> Iterator[Refusal]:
    if config.data.positive is not None and config.loss().targets != "sign":
        yield Refusal(
            f"data.positive names one of two classes, and problem.loss = {config.problem_.loss!r}"
            " has none: leave it out",
            *("data", "positive"),
        )


def _sites(config: Tables) -> Iterator[Refusal]:
    """What a run cannot have whose rows stay at sites."""
    if config.data.sites is None:
        return
    if config.sweep is not None:
        yield Refusal(
            "[sweep] needs all rows in one place, and data.sites keep theirs: leave it out, and"
            " carry out a run for each value",
            "sweep",
        )
    if config.robust.radius == "auto":
        yield Refusal(
            "robust.radius = 'auto' is read off the rows, which data.sites keep: give a number",
            *("robust", "radius"),
        )
    if config.risk.together:
        yield Refusal(
            "risk.on = 'together' ranks the rows where they are, but the report of a run reads the"
            " loss of every row, and data.sites keep theirs: leave [risk] out, or solve"
            " Problem(over_rows=...) over the sites in Python",
            *("risk", "on"),
        )
    elif config.problem_.pooled or config.risk.by_rank:
        key = ("problem", "pooled") if config.problem_.pooled else ("risk", "name")
        yield Refusal(
            f"{'.'.join(key)} needs the rows of all clients in one place, and data.sites keep"
            " theirs: leave it out",
            *key,
        )
    if config.engine.clocked:
        yield Refusal(
            "engine.kind = 'virtual_clock' simulates time, and data.sites take their own: leave"
            " [engine] out",
            *("engine", "kind"),
        )
    if "wafl" in config.report.compare_with:
        yield Refusal(
            "report.compare_with has 'wafl', which pools the rows that data.sites keep: leave it"
            " out",
            *("report", "compare_with"),
        )
    if config.loss().targets in ("sign", "class") and config.data.classes is None:
        yield Refusal(
            f"problem.loss = {config.problem_.loss!r} needs data.classes, which no one can read off"
            " rows that data.sites keep: declare them, such as classes = ['no', 'yes']",
            *("data", "classes"),
        )


def _sums(config: Tables) -> Iterator[Refusal]:
    """What a run cannot have whose server reads sums over the clients only."""
    if not config.engine.get("secure_sum") or config.privacy is not None:
        return
    secure = "engine.secure_sum = true has the server read sums over several clients"
    compared = config.report.compare_with
    one = {"wafl": "pools all rows in one place", "drfa": "is of the worst client only"}
    if not config.weighs_clients:
        one["afl"] = "is of the worst client only"
    for name in (name for name in one if name in compared):
        yield Refusal(
            f"report.compare_with has {name!r}, which {one[name]}, and {secure}: leave it out",
            *("report", "compare_with"),
        )
    if config.problem_.pooled:
        text = f"problem.pooled = true makes the clients one, and {secure}: leave one of them out"
        yield Refusal(text, "problem", "pooled")


RULES = (_sites, _sums, private_rules, _positive, _one_place, _one_ranking, _tables_of_constraints)
