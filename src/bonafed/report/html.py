"""The report of a run as one self-contained HTML file: no network, no script, readable on a phone,
in light and in dark.

Every text of a run passes through the template's escaping: names of clients are other people's
input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from bonafed.report.figures import draw
from bonafed.report.sections import SECTIONS
from bonafed.report.tables import lines
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(run: Run) -> dict[str, str]:
    """The files of the report by name: report.html and figures/*.svg; of a private run those of one
    part, the public one or the owner's.
    """
    drawn = figures(run)
    svgs = {f"figures/{name}.svg": svg + "\n" for name, svg in drawn.items()}
    return {"report.html": page(run, drawn), **svgs}


def figures(run: Run) -> dict[str, str]:
    """The figures of all sections as SVG, by name."""
    sections = (section for section in SECTIONS if section.applies(run))
    plots = (plot for section in sections for plot in section.plots(run).items())
    return {name: draw(name, plot) for name, plot in plots}


def page(run: Run, drawn: Mapping[str, str]) -> str:
    """report.html, with the figures inside."""
    from markupsafe import Markup

    sections = [section for section in SECTIONS if section.applies(run)]
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            title=run.result["title"],
            leads=[lead for section in sections if (lead := section.lead(run))],
            facts=[fact for section in sections for fact in section.facts(run)],
            chapters=[chapter for section in sections for chapter in section.chapters(run)],
            # texts in them are escaped as they are drawn
            figures={name: Markup(svg) for name, svg in drawn.items()},
        )
    )


@cache
def _environment() -> Environment:
    """The environment of the template: what is put in is escaped, what is missing is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("bonafed.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        # not Markup
        finalize=lambda value: lines(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["longest"] = lambda text: max(map(len, text.split()), default=0)
    environment.filters["unbroken"] = _unbroken
    return environment


def _unbroken(cell: str) -> Markup:
    """A cell in which no line ends between a number and its sign, or inside an interval."""
    from markupsafe import Markup, escape

    text = re.sub(r"(?<=\d)–(?=\d)", "&#8288;–&#8288;", str(escape(lines(cell))))
    return Markup(text.replace(" %", "&nbsp;%"))
