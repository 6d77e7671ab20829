"""A run whose model is trivial says so first, wherever it is read, and verifies."""

import io
import json
import re

import pytest
import small_run
from rich.console import Console

from bonafed.report.pages import as_json, figures, markdown, page
from bonafed.report.terminal import show
from bonafed.runs.verification import passed, verify_run

TEXT = re.sub(r"radius = 0\.\d+", "radius = 5.0", small_run.CONFIG, count=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run.small_run(tmp_path_factory.mktemp("trivial"), text=TEXT)


def test_report_terminal_markdown_and_json_say_it_first(run):
    why = run.result["trivial"]
    assert why["kind"] == "coefficients are zero"
    assert why["parameter"] in ("radius", "label_cost")
    chapters = re.findall("^## (.*)$", markdown(run), re.MULTILINE)
    assert chapters[0] == "The model is trivial"
    titles = re.findall("<h2[^>]*>(.*?)</h2>", page(run, figures(run)))
    assert titles[0] == "The model is trivial"
    out = io.StringIO()
    show(run, Console(file=out, width=10_000))
    said = [line for line in out.getvalue().splitlines() if line.strip()]
    conclusions = [line for line in said if not line.startswith(("seal", "report", "bonafed"))]
    assert (
        conclusions[-1] == f"warning: {why['text']}"
    )  # a terminal ends with what a page opens with
    assert json.loads(as_json(run))["trivial"] == why


def test_verification_finds_the_same(run):
    assert passed(verify_run(run.path))


def test_an_ordinary_run_says_nothing(tmp_path):
    ordinary = small_run.small_run(tmp_path, text=small_run.MIXED)
    assert ordinary.result["trivial"] is None
    assert "The model is trivial" not in markdown(ordinary)


def test_the_public_part_of_a_private_run_has_nothing_of_it(tmp_path):
    private = small_run.private_run(tmp_path)
    assert "trivial" not in private.result
    assert "trivial" in private.owner.result
