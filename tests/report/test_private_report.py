"""The reports of a private run: what each says, harmless whatever clients are called, and seen in a
browser.
"""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_run
from report.browser import cut, needs_browser
from report.test_report import FETCHING, HOSTILE, SVG, Page, read

from bonafed.drawing import label
from bonafed.report import tables, words
from bonafed.report.pages import markdown, render
from bonafed.report.sections import privacy, sweep
from bonafed.runs.folder import Run
from bonafed.runs.verification import passed, verify_run

SIZES = "sizes = { East = 15, North = 14 }"
TEXT = (
    small_run.PRIVATE_ADMM.replace('title = "clinics"', 'title = "<b>T</b> & clinics"')
    .replace('"South"', '"Sud"')
    .replace(SIZES, "")
    .replace(
        "[privacy]",
        small_run.sweep("privacy.epsilon", 1.0, 1.5) + "[evaluation]\npublic = true\n[privacy]",
    )
)
REHEARSED = small_run.PRIVATE_ADMM.replace("[privacy]", "[privacy]\nrehearsal = true").replace(
    '["erm"]', "[]"
)


@pytest.fixture(scope="module")
def travels(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Clients with names that want to be tags, tables, formulas and links."""
    data = small_run.table(clinics=(*HOSTILE, "Sud"))
    return small_run.private_run(
        tmp_path_factory.mktemp("private"), draw=True, data=data, text=TEXT
    )


@pytest.fixture(scope="module")
def stays(travels: Run) -> Run:
    assert travels.owner is not None
    return travels.owner


def text_of(run: Run) -> str:
    return " ".join(" ".join(read(run).texts).split())


def drawn(run: Run) -> dict[str, set[str | None]]:
    """Letters of every figure, by name."""
    found = {}
    for file in sorted((run.path / "figures").iterdir()):
        root = ET.parse(file).getroot()
        assert root[0].tag == SVG + "title"
        found[file.stem] = {t.text for t in root.iter(SVG + "text")}
    return found


# ------------------------------------------------------------------------------------ what they say


def test_what_travels_states_the_guarantee_the_budget_and_what_is_withheld(travels: Run) -> None:
    text, p = text_of(travels), travels.result["privacy"]
    for said in (*privacy.guaranteed(travels.result), *p["public"]):
        assert " ".join(tables.printable(said).split()) in text
    assert f"at most {np.exp(p['epsilon']):.4g} times as probable as without that row, plus" in text
    assert "No privacy ledger is kept" in text
    for row in travels.result["withheld"]:
        assert row["what"] in text
    for row in p["ledger"]:
        assert {f"{row['noise']:.4g}", f"{row['scale']:.4g}", f"{row['epsilon']:.4g}"} <= {
            *text.split()
        }
    assert f"{max(row['rdp'] for row in p['ledger']):.4g}" in text
    accuracy = travels.result["evaluation"]["measures"][0]["accuracy"]
    assert f"{100 * accuracy:.1f} %" in text
    assert "ERM" not in text.replace("compare_with", "")
    assert "A rehearsal" not in text


def test_the_figures_of_what_travels(travels: Run) -> None:
    found = drawn(travels)
    assert found.keys() == {"budget", "rounds", "evaluation", "coefficients", "roc", "calibration"}
    assert {
        "total epsilon",
        "with this run",
        "before it",
        "allowed",
        *map(label, HOSTILE[:2]),
    } <= found["budget"]
    assert {"noise", "distance", "round"} <= found["rounds"]


def test_the_owner_sees_what_privacy_cost(stays: Run) -> None:
    text, found = text_of(stays), drawn(stays)
    assert "This page stays with the owner of the data" in text
    for said in (*words.cost(stays.result), *sweep.words(stays)):
        assert " ".join(tables.printable(said).split()) in text
    assert f"{stays.result['certificate']['value']:.9g}" in text
    for point in stays.swept.table["points"]:
        assert f"{point['value']:.4g}" in text
    assert "← this run" in text
    assert found.keys() == {
        "sweep_value",
        "sweep_loss",
        "sweep_judged",
        "evaluation",
        "roc",
        "calibration",
    }
    assert {"privacy.epsilon", "accuracy in %", "held-out rows", "shifted clients"} <= found[
        "sweep_judged"
    ]


def test_a_rehearsal_guarantees_nothing(tmp_path: Path) -> None:
    run = small_run.private_run(tmp_path, draw=True, text=REHEARSED)
    text = text_of(run)
    assert "Nothing is guaranteed to anybody." in text
    assert "What would be guaranteed" in text
    # in one breath with "nothing is guaranteed" nothing is called private
    assert re.search(r"\bwould be \([\d.e+-]+, [\d.e+-]+\)-differentially private", text)
    assert not re.search(r"\bis \([\d.e+-]+, [\d.e+-]+\)-differentially private", text)
    assert "anyone who has that can subtract it" in text
    assert "evaluation" not in drawn(run)
    assert run.owner is not None
    assert "without privacy" not in words.cost(run.owner.result)[0]
    assert not list((run.owner.path / "figures").glob("sweep*"))


KINDS = {  # of problems -> (the configuration, what the axis of its sweep is)
    "numbers": (
        small_run.PRIVATE_ADMM.replace('"sick"\nclasses = ["no", "yes"]', '"dose"')
        .replace("dose = { mean = 0.0, scale = 1.5 }\n", "")
        .replace('"logistic"', '"squared"'),
        "mean absolute error",
    ),
    "nothing held out": (
        small_run.PRIVATE_ADMM.replace("test = 0.4", "test = 0.0").replace("shifted", "# shifted"),
        "objective",
    ),
    "categories": (
        small_run.PRIVATE_ADMM.replace("age = {", "ward = { categories = ['a', 'b'] }\nage = {"),
        "accuracy in %",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_runs_of_other_kinds_have_both_reports(tmp_path: Path, kind: str) -> None:
    text, axis = KINDS[kind]
    text = text.replace("[privacy]", small_run.sweep("privacy.epsilon", 1.0) + "[privacy]").replace(
        "North = 14 }", "North = 14, South = 9 }"
    )
    text = text if kind == "nothing held out" else text.replace(", South = 9", "")
    data = small_run.wards(small_run.table()) if kind == "categories" else None
    run = small_run.private_run(tmp_path, draw=True, text=text, data=data)
    assert run.owner is not None
    figures = drawn(run.owner)
    assert axis in figures.get("sweep_judged", figures["sweep_value"])
    assert passed(verify_run(run.path))


def test_epsilon_of_the_model_alone_is_between_those_of_the_sweep_and_the_total(
    travels: Run, stays: Run
) -> None:
    own = sweep.alone(stays)
    before = travels.result["privacy"]["ledger"][0]["before"]
    # totals of several runs do not add up
    assert own < travels.result["privacy"]["epsilon"] < own + before


# --------------------------------------------------------------------------- harmless, and the same


def test_nothing_is_fetched_and_names_are_text(travels: Run, stays: Run) -> None:
    for run in (travels, stays):
        found, raw = read(run), (run.path / "report.html").read_text("utf-8")
        assert not FETCHING & {tag for tag, _ in found.tags}
        for _, attributes in found.tags:
            assert not any(name.startswith("on") for name in attributes)
            for name in ("href", "xlink:href", "src", "action"):
                assert (attributes.get(name) or "#").startswith("#")
        assert "default-src 'none'" in raw
        assert not re.search(r"url\((?!#)", raw)
        assert "<b>T<" not in raw
        text = "".join(found.texts)
        assert HOSTILE[0] in text
        assert not {"\u202e", "\x07"} & set(text)
        ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
        assert len(ids) == len(set(ids))


def test_the_same_run_gives_the_same_bytes(travels: Run, stays: Run) -> None:
    for run in (travels, stays):
        for name, made in render(run).items():
            assert (run.path / name).read_text("utf-8") == made


def test_markdown_is_of_what_travels_and_keeps_names_inside_their_cells(travels: Run) -> None:
    text = markdown(travels)
    for title in (
        "The guarantee",
        "Ledger",
        "Total by accountant",
        "What is withheld",
        "Taken to be public",
    ):
        assert f"## {title}" in text
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("| ")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) <= 1
    assert "<script" not in text.replace("\\<script", "")
    assert "ERM" not in text


def test_many_clients_are_drawn_from_those_that_have_spent_most(travels: Run) -> None:
    row = travels.result["privacy"]["ledger"][0]
    many = [{**row, "client": f"c{k}", "epsilon": k / 100} for k in range(100)]
    clients = [{**travels.result["clients"][0], "client": f"c{k}"} for k in range(100)]
    result = {
        **travels.result,
        "clients": clients,
        "privacy": {**travels.result["privacy"], "ledger": many},
    }
    made = render(replace(travels, result=result))
    letters = {t.text for t in ET.fromstring(made["figures/budget.svg"]).iter(SVG + "text")}
    assert "c99" in letters
    assert "c59" not in letters
    assert "The figure shows the 40 clients" in " ".join(Page(made["report.html"]).texts)


# ------------------------------------------------------------------------------------- in a browser


@needs_browser
@pytest.mark.parametrize("kind", ["travels", "stays"])
def test_nothing_is_cut_on_a_screen_a_phone_or_paper(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = request.getfixturevalue(kind)
    assert cut((run.path / "report.html").read_text("utf-8"), tmp_path) == []
