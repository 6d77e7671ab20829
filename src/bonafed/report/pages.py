"""The report of a run as HTML, as Markdown and as JSON.

The page is one self-contained file: no network, no script, readable on a phone, in light and in
dark. Every text of a run passes through the template's escaping: names of clients are other
people's input. Figures are SVG text in which lines and letters take the colour of the page
(``currentColor``), so that one file suits light and dark; letters stay text. Equal runs give equal
bytes.

JSON is result.json, and what other files of the run keep. Names in it are whole and exact in every
encoding: what no terminal prints, or an encoding lacks, is escaped.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from bonafed.report.blocks import Chapter, Heading, Items, Plot, Questions, Text, placed, plain
from bonafed.report.canvas import Canvas
from bonafed.report.sections import told
from bonafed.report.tables import Table, escaped, lines
from bonafed.runs.files import to_json
from bonafed.runs.sections.section import Run

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

WIDTH = 4.6  # inches of a figure


# ------------------------------------------------------------------------------------------- HTML


def render(run: Run) -> dict[str, str]:
    """The files of the report by name: report.html and figures/*.svg; of a private run those of one
    part, the public one or the owner's.
    """
    drawn = figures(run)
    svgs = {f"figures/{name}.svg": svg + "\n" for name, svg in drawn.items()}
    return {"report.html": page(run, drawn), **svgs}


def figures(run: Run) -> dict[str, str]:
    """The figures of all sections as SVG, by name."""
    chapters = (chapter for section in told(run) for chapter in section.chapters)
    places = (figure for chapter in chapters for figure in placed(chapter.blocks))
    return {each.name: draw(each.name, each.plot) for each in places if each.plot is not None}


def draw(name: str, plot: Plot) -> str:
    """A figure as SVG, with its own ids and a title for readers that cannot see."""
    canvas = Canvas(72 * WIDTH, 72 * plot.height)
    plot.draw(canvas, *plot.arguments)
    return canvas.svg(name, plot.title)


def page(run: Run, drawn: Mapping[str, str]) -> str:
    """report.html, with the figures inside."""
    from markupsafe import Markup

    sections, template = told(run), _environment().get_template("report.html.jinja")
    return template.render(
        title=run.result["title"],
        leads=[section.lead for section in sections if section.lead],
        facts=[fact for section in sections for fact in section.facts],
        chapters=[chapter for section in sections for chapter in section.chapters],
        # texts in them are escaped as they are drawn
        figures={name: Markup(svg) for name, svg in drawn.items()},
    )


@cache
def _environment() -> "Environment":
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


def _unbroken(cell: str) -> "Markup":
    """A cell in which no line ends between a number and its sign, or inside an interval."""
    from markupsafe import Markup, escape

    text = re.sub(r"(?<=\d)–(?=\d)", "&#8288;–&#8288;", str(escape(lines(cell))))
    return Markup(re.sub(r" (?=%|[kM]?B\b)", "&nbsp;", text))


# --------------------------------------------------------------------------------------- Markdown


def markdown(run: Run) -> str:
    """The sections without figures and without the configuration; of a private run those of one
    part.
    """
    parts = [f"# {escaped(run.result['title'])}"]
    for section in told(run):
        parts += [escaped(section.lead)] * bool(section.lead)
        for chapter in section.chapters:
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


# ------------------------------------------------------------------------------------------- JSON


def as_json(run: Run) -> str:
    """The whole record of the run, in which signs that a terminal does not print are numbers."""
    kept = {"sweep": run.swept and run.swept.table, "config": run.config.model_dump(by_alias=True)}
    text = to_json({**run.result, **kept}, indent=1)
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text) + "\n"


def _escaped(sign: str) -> str:
    """One sign of a JSON string by its numbers."""
    return json.dumps(sign)[1:-1]


def _encoded(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(_escaped, error.object[error.start : error.end])), error.end


codecs.register_error("bonafed.json", _encoded)
