"""The table of who can learn or alter what is written once: in the code, which all places show."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sites.folders import folder_of
from typer.testing import CliRunner

from bonafed.config.config import parse_config
from bonafed.report.blocks import Text
from bonafed.report.sections.governance import _border
from bonafed.runs.border import CURIOUS, LAWLESS, MASKED, PRIVATE, READER, TABLE, markdown, of_run
from bonafed.sites.commands import site

ROOT = Path(__file__).parents[2]


def test_the_page_of_security_states_the_table():
    assert markdown() in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_a_run_is_told_what_is_about_it():
    assert [row for row in TABLE if row in of_run(False, False)] == of_run(False, False)
    assert CURIOUS in of_run(False, False)
    assert {MASKED, LAWLESS} < {*of_run(True, False)}
    assert CURIOUS not in of_run(True, False)
    assert of_run(True, True)[0] is PRIVATE
    assert all(READER in of_run(*each) for each in [(False, False), (True, False), (True, True)])


def test_a_site_is_told_what_concerns_it(tmp_path: Path):
    told = CliRunner().invoke(site, ["check", str(folder_of(tmp_path, "east"))])
    assert told.exit_code == 0
    for row in TABLE:
        who, *_, remains = row.cells()
        assert (who in told.output) is row.at_site
        assert (remains in told.output) is row.at_site


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_report_says_where_sites_must_have_allowed_more(loss: str):
    config = parse_config(
        '[data]\nsites = ["a", "b", "c"]\ntarget = "t"\nclasses = ["n", "y"]\nscale = "none"\n'
        f'[data.columns]\nx = {{}}\n[problem]\nloss = "{loss}"\n'
    )
    run: Any = SimpleNamespace(config=config, result={"at_sites": True})
    texts = [block.text for block in _border(run) if isinstance(block, Text)]
    assert any("allow more than the default" in text for text in texts) is (loss == "hinge")
