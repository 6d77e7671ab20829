"""One self-contained HTML file of a run: no network, no script, readable on a phone, in light and in dark.

Every text of a run passes through the template's escaping: names of clients are other people's input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.reached import thinned
from quorate.report import clock, constrained, tables, words
from quorate.report.figures import figures
from quorate.report.figures_clock import INSTEAD as NOT_TIMED
from quorate.report.figures_clock import clock_figures
from quorate.report.figures_constrained import INSTEAD, constrained_figures
from quorate.runs import Run


def render(run: Run) -> dict[str, str]:
    """The files of the report by name: report.html and figures/*.svg."""
    if run.config.privacy is not None:
        from quorate.report.private import render as render_private

        return render_private(run)
    history = thinned(run.history) or run.history  # the rows whose objective is known, where it is not in all
    drawn = figures(run.result, history, prior_of(run), run.tried and run.tried.table)
    if clock.asked(run.result):
        drawn = {name: svg for name, svg in drawn.items() if name not in NOT_TIMED}
        drawn |= clock_figures(run.result, run.history, run.events)
    if constrained.asked(run.result):
        plain = ("weights",) if run.config.clients.risk == "mean" else ()
        drawn = {name: svg for name, svg in drawn.items() if name not in (*INSTEAD, *plain)}
        drawn |= constrained_figures(run.result, run.history, run.traded and run.traded.table)
    return {"report.html": page(run, drawn), **{f"figures/{name}.svg": svg + "\n" for name, svg in drawn.items()}}


def templates() -> Any:
    """The environment of the reports' templates: what is put in is escaped, what is missing is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("quorate.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: tables.printable(value) if type(value) is str else value,  # not Markup
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(run: Run, drawn: dict[str, str]) -> str:
    """report.html, the figures inlined."""
    from markupsafe import Markup

    return (
        templates()
        .get_template("report.html.jinja")
        .render(
            result=run.result,
            summary=words.summary(run.result),
            question=words.question(run.result)
            if run.result["evaluation"]["verdict"]
            else "On rows it was not trained on",
            answer=words.answer(run.result),
            constrained=_constrained(run) if constrained.asked(run.result) else None,
            tables=_tables(run.result) | ({} if run.tried is None else {"path": tables.path(run.tried.table)}),
            choice=[] if run.tried is None else words.choice(run.tried.table, run.result),
            measures=tables.measures(run.result),
            fairness=tables.fairness(run.result),
            spread=clock.spread(run.result),
            clock=_clock(run) if clock.asked(run.result) else None,
            people=tables.people(run.result),
            risk=run.result.get("risk"),
            figures={name: Markup(svg) for name, svg in drawn.items()},  # texts in them are escaped as they are drawn
            config=run.config.text(),
            proven=run.result["certificate"]["bound"] is not None,
        )
    )


def _tables(result: dict[str, Any]) -> dict[str, tables.Table]:
    makers = (tables.certificate, tables.clients, tables.messages, tables.baselines, tables.versions)
    found = {make.__name__: make(result) for make in makers}
    return found | ({"clients": tables.clients(result, constrained.HEADS)} if constrained.asked(result) else {})


def _clock(run: Run) -> dict[str, Any]:
    """What the page says of virtual time."""
    timed = "reached" in run.result
    return {"words": clock.words(run.result, run.config.engine), "pace": clock.pace(run.result) if timed else None}


def _constrained(run: Run) -> dict[str, Any]:
    """What the page says of constraints."""
    rows, traded = run.result["constraints"], run.traded and run.traded.table
    return {
        "impossible": constrained.impossible(run.result),
        "met": sum(row["met"] for row in rows),
        "asked": len(rows),
        "shown": min(len(rows), constrained.MOST),
        "prices": constrained.priced(run.result),
        "table": constrained.constraints(run.result),
        "kept": constrained.kept(run.result),
        "groups": constrained.groups(run.result),
        "levels": traded and constrained.levels(traded),
        "traded": constrained.traded_words(traded) if traded else [],
    }


def prior_of(run: Run) -> Array | None:
    """(N,) the centre of the set of client weights, of pooled rows their owners' shares; None: every mix is allowed."""
    from quorate.problem.risks import resolve_prior

    if "owners" in run.result:
        return np.array([row["share"] for row in run.result["owners"]])
    if not run.config.clients.centred:
        return None
    rows = run.result["clients"]
    sizes = np.array([row["n"] for row in rows], dtype=float)
    return resolve_prior(run.config.clients.prior, sizes, [row["client"] for row in rows])
