"""Laws over the sections of a report: page, terminal, Markdown and JSON have what they offer."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_run
from rich.console import Console

from bonafed.config.config import read_config
from bonafed.report.blocks import Block, Figure, Fold, Row, Text
from bonafed.report.pages import as_json, figures, markdown, page
from bonafed.report.sections import SECTIONS, told
from bonafed.report.sections.clients import coefficients
from bonafed.report.sections.opening import checks
from bonafed.report.tables import Table, escaped
from bonafed.report.terminal import show
from bonafed.runs.folder import Run
from bonafed.runs.splits import prepare
from bonafed.solution.solve import solve

PATH = small_run.sweep("robust.radius", 0.02, 0.3)
TEXTS = {
    "sweep": small_run.CONFIG + PATH,
    "ranks": small_run.TAIL,
    "constraints": small_run.KEPT,
    "clock": small_run.CLOCK,
}
PRIVATE = small_run.PRIVATE + small_run.sweep("privacy.epsilon", 1.0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One run of every kind."""
    wards = small_run.wards(small_run.table())
    made = {
        name: small_run.small_run(
            tmp_path_factory.mktemp("run"), text=text, data=wards if "ward" in text else None
        )
        for name, text in TEXTS.items()
    }
    private = small_run.private_run(tmp_path_factory.mktemp("private"), text=PRIVATE)
    assert private.owner is not None
    return made | {"public part": private, "owner's part": private.owner}


KINDS = (*TEXTS, "public part", "owner's part")


def leaves(blocks: Sequence[Block]) -> Iterator[Block]:
    """All blocks, those inside others too."""
    for block in blocks:
        if isinstance(block, Row | Fold):
            yield from leaves(block.blocks)
        else:
            yield block


def blocks_of(run: Run) -> list[Block]:
    chapters = [chapter for section in told(run) for chapter in section.chapters]
    return [block for chapter in chapters for block in leaves(chapter.blocks)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_has_one_place_and_every_chapter_one_anchor(
    kind: str, runs: dict[str, Run]
) -> None:
    run = runs[kind]
    places = [block for block in blocks_of(run) if isinstance(block, Figure)]
    assert len(places) == len({figure.name for figure in places})
    assert figures(run).keys() == {figure.name for figure in places if figure.plot is not None}
    sections = told(run)
    names = [chapter.name for section in sections for chapter in section.chapters]
    assert len(names) == len(set(names))
    assert sum(bool(section.lead) for section in sections) == 1  # one section opens it


@pytest.mark.parametrize("kind", KINDS)
def test_page_and_markdown_have_every_table_and_paragraph(kind: str, runs: dict[str, Run]) -> None:
    run = runs[kind]
    text, html = markdown(run), page(run, {})
    for block in blocks_of(run):
        if isinstance(block, Table):
            assert block.markdown() in text
            assert f'aria-label="{block.title}"' in html.replace("&#39;", "'")
        elif isinstance(block, Text):
            assert escaped(block.text) in text


@pytest.mark.parametrize("kind", KINDS)
def test_json_has_the_result_and_what_other_files_keep(kind: str, runs: dict[str, Run]) -> None:
    run = runs[kind]
    record = json.loads(as_json(run))
    assert record.items() >= run.result.items()
    assert set(record) - set(run.result) == {"config", "sweep"}
    assert (record["sweep"] is None) == (run.swept is None)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_the_terminal_ends_with_where_the_report_is(kind: str, runs: dict[str, Run]) -> None:
    out = io.StringIO()
    show(runs[kind], Console(file=out, width=150))
    last = out.getvalue().strip().splitlines()[-1]
    assert str((runs[kind].owner or runs[kind]).path) in last


def test_what_is_exact_is_in_no_section_of_the_public_part(runs: dict[str, Run]) -> None:
    public, owner = runs["public part"], runs["owner's part"]
    names = {about.__name__.removeprefix("about_") for about in SECTIONS if about(public)}
    assert names == {"guarantee", "coefficients", "governance", "configuration"}
    value = f"{owner.result['certificate']['value']:.9g}"
    assert value in markdown(owner)
    assert value not in markdown(public) + page(public, figures(public)) + as_json(public)


def test_sections_of_a_plain_run(tmp_path: Path) -> None:
    run = small_run.small_run(tmp_path, text=small_run.MIXED)
    names = [about.__name__.removeprefix("about_") for about in SECTIONS if about(run)]
    asked = ["questions", "quality", "evaluation", "checks", "coefficients", "summary"]
    proof = ["certificate", "clients", "governance", "configuration"]
    assert [name for name in names if name != "warnings"] == [*asked, *proof]


def test_units_are_read_off_names_and_rounding_is_no_coefficient(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["clinic,age (years),CRP [mg/l],height,same,sick"]
    for k in range(90):
        age, crp = rng.normal(50, 10), rng.exponential(20)
        sick = "yes" if age + crp + rng.normal(0, 9) > 70 else "no"
        lines.append(f"{small_run.CLINICS[k % 3]},{age:.3f},{crp:.3f},{rng.normal():.3f},1,{sick}")
    run = small_run.small_run(tmp_path, data="\n".join(lines) + "\n", text=small_run.MIXED)
    (table,) = [b for b in blocks_of(run) if isinstance(b, Table) and b.title == "Coefficients"]
    units = {row[0]: row[table.columns.index("Unit")] for row in table.rows}
    known = {"age (years)": "years", "CRP [mg/l]": "mg/l", "height": "–", "same": "–"}
    assert units == known
    w = np.array(run.w)
    w[list(run.schema.feature_names).index("same")] = 1e-13  # as rounding leaves it
    rounded = {row.feature: row for row in coefficients(replace(run, w=w))}
    assert rounded["same"].scaled == rounded["same"].plain == 0.0
    assert all(rounded[name].scaled for name in known if name != "same")


def test_a_column_of_nothing_is_left_out(tmp_path: Path) -> None:
    text = small_run.MIXED.replace("test = 0.4", 'test = 0.4\nfeatures = ["age"]')
    run = small_run.small_run(tmp_path, text=text)
    (table,) = [b for b in blocks_of(run) if isinstance(b, Table) and b.title == "Coefficients"]
    assert table.columns == ("Feature", "Scaled", "Per unit", "Units in one scaled")
    row = {"name": "tiny", "passed": True, "seen": 38, "limit": 20, "where": [], "count": 0}
    passed, failed = [row], [row, row | {"passed": False, "where": ["North"], "count": 1}]
    assert checks(run.result | {"checks": passed}).columns[-1] == "Threshold"
    told = checks(run.result | {"checks": failed})
    assert (told.columns[-1], [row[-1] for row in told.rows]) == ("Where", ["", "North"])


def test_a_report_starts_with_what_a_person_asks(runs: dict[str, Run]) -> None:
    asked = [
        "How good is the model?",
        "For whom is it bad?",
        "Is it trivial?",
        "Did robustness help?",
        "Can I trust the numbers?",
    ]
    text = markdown(runs["sweep"])
    short = text[text.index("## In short") : text.index("## How good")]
    places = [short.index(f"**{question}**") for question in asked]
    assert places == sorted(places)
    chapters = re.findall("^## (.*)$", text, re.M)
    assert [c for c in chapters if c in asked] == [q for q in asked if q != "Is it trivial?"]
    assert chapters.index("Can I trust the numbers?") < chapters.index("Certificate")


def test_a_run_without_new_rows_says_that_nobody_knows(tmp_path: Path) -> None:
    text = small_run.MIXED.replace("test = 0.4", "test = 0.0")
    run = small_run.small_run(tmp_path, text=text)
    assert "**How good is the model?** Nobody knows" in markdown(run)


def test_all_numbers_of_rounds_are_one_number(runs: dict[str, Run]) -> None:
    run = runs["sweep"]
    parts = prepare(run.config)
    solution = solve(run.config.settled(parts.train).problem(), parts.train, tol=1e-6)
    rounds = run.result["rounds"]
    assert solution.rounds == len(run.history) == rounds
    whole = f"{solution.outcome.text} {markdown(run)}"
    said = re.findall(r"(?:after|took part in) (\d+) rounds", whole)
    assert len(said) >= 3
    assert {*said} == {str(rounds)}


def test_what_no_message_counts_is_said(runs: dict[str, Run], tmp_path: Path) -> None:
    """The sums behind radius = "auto" and a fitted sigmoid, of the runs that have them."""
    read = small_run.small_run(
        tmp_path,
        text=small_run.CONFIG.replace("radius = 0.05\nlabel_cost = 2.0", 'radius = "auto"').replace(
            "[robust]", '[problem]\nloss = "logistic"\n[robust]'
        ),
    )
    plain = small_run.small_run(tmp_path, text=small_run.MIXED)
    for run, radius, fitted in (
        (read, True, False),
        (runs["sweep"], False, True),
        (plain, False, False),
    ):
        (said,) = re.findall(r"Not counted are sums .*", markdown(run))
        assert ('radius = "auto"' in said) == radius
        assert ("calibrated probabilities" in said) == fitted


@pytest.mark.parametrize("name", ["hospitals", "neyman_pearson", "tail"])
def test_a_shipped_example_warns_of_nothing_and_passes_every_check(
    tmp_path: Path, name: str
) -> None:
    text = (Path(__file__).parents[2] / "examples" / f"{name}.toml").read_text("utf-8")
    text = text.partition("[sweep]")[0].partition("[report]")[0]  # models beside the run's
    (tmp_path / "example.toml").write_text(text, "utf-8")
    result = small_run.finish(read_config(tmp_path / "example.toml"), tmp_path).result
    assert result["notes"] == []
    assert [row["name"] for row in result["checks"] if row["passed"] is False] == []
