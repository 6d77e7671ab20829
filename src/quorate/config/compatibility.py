"""What the tables of a configuration ask of each other, beside what `quorate.solve` asks.

Whether a problem can be stated, and which algorithm takes it, is asked of the classes
(``methods.py``). A rule here is about what only a file has: keys that contradict each other or fill
one slot twice, tables without an object, and what the pipeline of a run cannot do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from quorate.config.errors import Refusal
from quorate.config.methods import method_rules
from quorate.config.privacy_rules import private_rules
from quorate.config.tables import Tables


def broken_rule(config: Tables) -> Refusal | None:
    """The first rule that the configuration breaks, in words."""
    return next(chain.from_iterable(rules(config) for rules in RULES), None)


def _one_slot(config: Tables) -> Iterator[Refusal]:
    """Each client's risk over its rows is stated once."""
    ways = {
        f"risk.name = {config.risk.name!r}": ("risk.name = 'mean'", config.risk.by_rank),
        "robust.radius > 0": ("robust.radius = 0", config.robust.is_robust),
        "problem.label": ("no problem.label", config.problem_.label is not None),
    }
    stated = {way: without for way, (without, is_stated) in ways.items() if is_stated}
    if len(stated) > 1:
        yield Refusal(
            f"{' and '.join(stated)} exclude each other: each says how the rows of a client count."
            f" Set {' or '.join(reversed(stated.values()))}"
        )


def _path(config: Tables) -> Iterator[Refusal]:
    path = config.path
    if path is None:
        return
    if config.constrained:
        yield Refusal(
            "[[constraint]] or problem.label and [path] exclude each other: for other levels of a"
            " constraint use [trade_off]"
        )
    risk = f"risk.name = {config.risk.name!r}"
    if config.risk.by_rank or config.problem_.pooled:
        why = risk if config.risk.by_rank else "problem.pooled = true"
        yield Refusal(
            f"[path] tries radii of Wasserstein balls round the clients' rows, and {why} has none:"
            " leave [path] out"
        )
    if path.client_radii is not None and config.clients.risk != "lp_ball":
        yield Refusal(
            f"path.client_radii need clients.risk = 'lp_ball', got {config.clients.risk!r}: it has"
            " no radius"
        )


def _one_place(config: Tables) -> Iterator[Refusal]:
    if not config.problem_.pooled:
        return
    if config.weighs_clients:
        yield Refusal(
            "[clients] weighs several clients, and problem.pooled = true makes them one: leave"
            " [clients] out"
        )
    levels = [one.get("level") for one in config.constraint]
    for key, value in {"robust.radius": [config.robust.radius], "constraint.level": levels}.items():
        if any(isinstance(one, dict) for one in value):
            yield Refusal(
                f"{key} has one number per client, and problem.pooled = true makes them one: give"
                " a number"
            )
    weigh = [name for name in config.report.compare_with if name in ("afl", "drfa", "wafl")]
    if weigh:
        yield Refusal(
            f"report.compare_with has {weigh[0]!r}, which weighs clients, and problem.pooled = true"
            " makes them one: compare with 'erm' alone"
        )


def _tables_of_constraints(config: Tables) -> Iterator[Refusal]:
    """Tables about constraints, and constraints about tables."""
    server = any(one.place == "server" for one in config.constraint)
    if config.trade_off is not None and not config.constraint:
        yield Refusal(
            "[trade_off] tries levels of a constraint, and there is none: add [[constraint]]"
        )
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


def _trade_off(config: Tables) -> Iterator[Refusal]:
    if config.trade_off is None:
        return
    k, n = config.trade_off.constraint, len(config.constraint)
    if k > n:
        yield Refusal(
            f"trade_off.constraint = {k}, and there {'is' if n == 1 else 'are'} {n}: count from 1"
        )
    elif config.constraint[k - 1].adjustable is None:
        yield Refusal(
            f"trade_off.constraint = {k} has no one `level` or `limit` to change: name another, or"
            " give a number"
        )


RULES = (
    private_rules,
    _one_slot,
    _path,
    _one_place,
    _tables_of_constraints,
    _trade_off,
    method_rules,
)
