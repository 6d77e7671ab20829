"""A rule that is added to the table of rules is everywhere at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from sites.folders import PROBLEM, folder_of, roles
from sites.test_violations import opened, solved

from bonafed.config.schema import Count
from bonafed.engines.network import RefusedError
from bonafed.sites.audit import read_log
from bonafed.sites.policy import RULES, Check, Policy, Proposal, Rule, When, rules_table
from bonafed.sites.site_file import SiteFile, first_site, read_site

NAME = "maximum_rows"
TYPE: Any = Count | None


def too_many(policy: Any, run: Proposal) -> Iterator[tuple[str, ...]]:
    most = policy.maximum_rows
    if run.rows is not None and run.rows > most:
        yield f"more than {most} rows", f"Raise {NAME}"


RULE = Rule(
    None,
    "a run has {} rows of this site at most",
    "more rows of the site",
    (Check(When.ROWS, {"rows": "the number of rows"}, too_many),),
    "a run may have all rows",
    "1000",
)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table with one more rule; the policy is made of the table once, when it is imported."""
    fields = Policy.__pydantic_fields__
    monkeypatch.setitem(RULES, NAME, RULE)
    fields[NAME] = FieldInfo.from_annotated_attribute(TYPE, RULE.default)
    for model in (Policy, SiteFile):
        model.model_rebuild(force=True)
    yield
    del fields[NAME]
    for model in (Policy, SiteFile):
        model.model_rebuild(force=True)


@pytest.mark.usefixtures("added")
def test_a_rule_that_is_added_refuses_a_run_and_stands_in_the_log(tmp_path: Path) -> None:
    sites = opened(tmp_path, f"{NAME} = 100")
    with pytest.raises(RefusedError, match="more than 100 rows"):
        solved(sites, PROBLEM, roles())
    entries, faults = read_log(tmp_path / "sites" / "north" / "audit.jsonl")
    assert not faults
    assert [r for entry in entries for r, _ in entry.refused] == [NAME]


@pytest.mark.usefixtures("added")
def test_a_rule_that_is_added_stands_in_check_in_form_and_in_the_page(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path, "north", f"{NAME} = 100")
    assert bonafed("site", "check", "north") == 2
    assert f"{NAME}: more than 100 rows. Raise {NAME}." in capsys.readouterr().err
    assert bonafed("site", "policy", "north") == 0
    assert f"{NAME}: a run has 100 rows of this site at most" in capsys.readouterr().out
    assert f"# {NAME} = 1000" in first_site("north", "rows.csv")
    assert f"| `{NAME}` | more rows of the site |" in rules_table()
    digest = read_site(tmp_path / "north").policy.digest()
    folder_of(tmp_path, "south")
    assert digest != read_site(tmp_path / "south").policy.digest()


def test_the_page_has_the_table_of_rules() -> None:
    page = Path(__file__).parents[2] / "docs" / "engines.md"
    assert rules_table() in page.read_text()
    assert NAME not in rules_table()
