"""The report of a run as one self-contained HTML file (no network, no script, readable on a phone,
in light and in dark), as Markdown, and as JSON.

Every text of a run passes through the template's escaping: names of clients are other people's
input. In JSON they are whole and exact in every encoding: what no terminal prints, or an encoding
lacks, is escaped.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from bonafed.report.sections import SECTIONS
from bonafed.report.sections.section import Chapter, Heading, Items, Questions, Text, draw, plain
from bonafed.report.tables import Table, escaped, lines
from bonafed.runs.files import to_json
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


# ------------------------------------------------------------------------------ Markdown and JSON


def markdown(run: Run) -> str:
    """The whole report; of a private run that of one part."""
    parts = [f"# {escaped(run.result['title'])}"]
    for section in SECTIONS:
        if section.applies(run):
            parts += [escaped(section.lead(run))] * bool(section.lead(run))
            for chapter in section.chapters(run):
                if text := [*_texts(chapter)]:
                    parts += [f"## {escaped(chapter.title)}", *text]
    return "\n\n".join(parts) + "\n"


def _texts(chapter: Chapter) -> Iterator[str]:
    """The blocks of a chapter that Markdown can hold."""
    for block in plain(chapter.blocks, chapter.title):
        match block:
            case Table():
                yield from [f"### {escaped(block.title)}"] * bool(block.title)
                yield block.markdown()
            case Text():
                yield f"**{escaped(block.text)}**" if block.strong else escaped(block.text)
            case Heading():
                yield f"### {escaped(block.text)}"
            case Items():
                yield "\n".join(f"- {escaped(item)}" for item in block.items)
            case Questions():
                pairs = ((escaped(q), escaped(answer)) for q, answer in block.answers)
                yield "\n".join(f"- **{question}** {answer}" for question, answer in pairs)


def as_json(run: Run) -> str:
    """The whole record of the run."""
    record = {**run.result}
    for section in SECTIONS:
        record |= section.record(run)
    return exact(to_json(record, indent=1)) + "\n"


def exact(text: str) -> str:
    """The same JSON, in which signs that a terminal does not print are numbers."""
    return "".join(c if c.isprintable() or c == "\n" else in_numbers(c) for c in text)


def in_numbers(sign: str) -> str:
    """One sign of a JSON string by its numbers."""
    return json.dumps(sign)[1:-1]


def _encoded(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(in_numbers, error.object[error.start : error.end])), error.end


codecs.register_error("bonafed.json", _encoded)
