"""The report of a run as Markdown: its sections without figures and without the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from bonafed.report.sections import SECTIONS
from bonafed.report.sections.section import Chapter, Heading, Items, Questions, Text, plain
from bonafed.report.tables import Table, escaped
from bonafed.runs.run import Run


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
