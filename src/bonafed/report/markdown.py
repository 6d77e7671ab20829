"""The report of a run as Markdown: its sections without figures and without the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bonafed.report.sections import SECTIONS
from bonafed.report.sections.section import Block, Fold, Heading, Items, Questions, Row, Text
from bonafed.report.tables import Table, escaped
from bonafed.runs.run import Run


def markdown(run: Run) -> str:
    """The whole report; of a private run that of one part."""
    parts = [f"# {escaped(run.result['title'])}"]
    for section in SECTIONS:
        if section.applies(run):
            parts += [escaped(section.lead(run))] * bool(section.lead(run))
            for chapter in section.chapters(run):
                if text := [*_texts(chapter.blocks, chapter.title)]:
                    parts += [f"## {escaped(chapter.title)}", *text]
    return "\n\n".join(parts) + "\n"


def _texts(blocks: Sequence[Block], title: str) -> Iterator[str]:
    """The blocks that Markdown can hold; a table that is called as its chapter needs no heading."""
    for block in blocks:
        match block:
            case Table():
                yield from [f"### {escaped(block.title)}"] * (block.title != title)
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
            case Row():
                yield from _texts(block.blocks, title)
            case Fold():
                if text := [*_texts(block.blocks, block.title)]:
                    yield from (f"### {escaped(block.title)}", *text)
