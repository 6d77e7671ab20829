"""A rule that is added to the table of rules is everywhere at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from sites.folders import PROBLEM, folder_of, roles
from sites.test_violations import opened, solved

from bonafed.engines.network import RefusedError
from bonafed.sites.audit import read_log
from bonafed.sites.policy import RULES, Check, Policy, Proposal, Rule, When
from bonafed.sites.site_file import SiteFile, first_site, read_site

NAME = "maximum_rows"
TYPE: Any = int | None


def too_many(policy: Any, run: Proposal) -> Iterator[tuple[str, ...]]:
    most = policy.maximum_rows
    if run.rows is not None and run.rows > most:
        yield f"more than {most} rows", f"Raise {NAME}"


RULE = Rule(
    None,
    "a run has {} rows of this site at most",
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
    assert f"`{NAME}`" in {*keys()} - {*in_the_page()}  # which has to say what it refuses
    digest = read_site(tmp_path / "north").policy.digest()
    folder_of(tmp_path, "south")
    assert digest != read_site(tmp_path / "south").policy.digest()


def keys() -> list[str]:
    """Every rule with its default, as the page has it."""
    known = {name: rule.default for name, rule in RULES.items() if rule.default is not None}
    told = {name: f"`{name}` ({json.dumps(known[name])})".replace(".0)", ")") for name in known}
    told |= {name: f"`[[policy.{name}]]`" for name, default in known.items() if default == []}
    return [told.get(name, f"`{name}`") for name in RULES]


def in_the_page() -> list[str]:
    """The rules in the table of the page, where several may stand on one line."""
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    table = page.partition("| rule (default) | refuses |\n|---|---|\n")[2].partition("\n\n")[0]
    return [key for line in table.splitlines() for key in line.split(" | ")[0][2:].split(", ")]


def test_the_page_has_all_rules_with_their_defaults_and_no_others() -> None:
    assert sorted(in_the_page()) == sorted(keys())
