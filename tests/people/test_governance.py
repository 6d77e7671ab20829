"""What left each client, what bounds it, and who can check what: every report says it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import small_run
from met import met

from bonafed.report.pages import as_json, markdown, page
from bonafed.report.sections import governance
from bonafed.report.tables import Table, escaped
from bonafed.runs.sections.section import Run

MASKED = '[robust]\nradius = "auto"\n[engine]\nsecure_sum = true\n'
STAYED = "data that stayed with 3 clients"
HERE = "Nothing left a client in this run: one process read the rows of 3 clients."


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run.small_run(tmp_path_factory.mktemp("plain"), text=small_run.MIXED)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run.private_run(tmp_path_factory.mktemp("private"))


def answers(run: Run) -> Table:
    (chapter,) = governance.about_governance(run).chapters
    (table,) = [b for b in chapter.blocks if isinstance(b, Table) and b.columns[0] == "Answer"]
    return table


@met("C", "one CSV of three clinics", f'"{STAYED}"', f'"{HERE}"')
@met("F", "one CSV of three clinics", "no word on a privacy budget", '"No privacy budget was used"')
def test_one_process_that_read_one_table_says_that_nothing_left_anyone(plain: Run) -> None:
    for text in (markdown(plain), page(plain, {})):
        assert HERE in text
        assert "had each kept its rows" in text
        assert "stayed with" not in text
        assert "No privacy budget was used" in text


@met(
    "F",
    "which numbers would leave a client, and which of them are sums",
    "message classes and bytes",
    "numbers by answer, those that are used only as sums, and what they are",
    relative_of="one CSV of three clinics",
)
def test_the_numbers_of_the_answers_are_those_that_were_recorded(plain: Run) -> None:
    table = answers(plain)
    sent = {row["message"]: row for row in plain.result["messages"] if row["direction"] == "up"}
    assert {row[0] for row in table.rows} == {*sent}
    for name, times, _, numbers, sums, *_ in table.rows:
        held = sent[name]["held"].values()
        assert times == f"{sent[name]['count']:,}"
        assert numbers == f"{sum(field['numbers'] for field in held):,}"
        assert sums == f"{sum(f['numbers'] for f in held if f['how'] != 'each'):,}"
    # a gradient has an entry a coefficient, from every client in every answer
    evaluated = sent["Evaluated"]
    assert evaluated["held"]["gradient"]["numbers"] == evaluated["count"] * len(plain.w)
    assert 8 * sum(field["numbers"] for field in evaluated["held"].values()) < evaluated["bytes"]


@met(
    "F",
    "a run with a privacy budget",
    "budget and border stand in other chapters",
    "the same page names the epsilon that was spent, and of which",
    relative_of="one CSV of three clinics",
)
def test_a_private_run_names_its_budget_and_its_owners_part_says_where_it_is(private: Run) -> None:
    spent = private.result["privacy"]
    said = governance.bounded(private)
    assert f"epsilon = {spent['epsilon']:.4g} of {spent['allowed']:g} allowed" in said
    assert said in markdown(private)
    assert private.owner is not None
    assert "No privacy budget" not in markdown(private) + markdown(private.owner)
    assert "stands in the public part" in markdown(private.owner)
    assert governance.bounded(private) in page(private, {})


@met(
    "F",
    "a method that needs all rows in one place",
    '"pooled rows of 3 clients", and messages "between the method and the one place"',
    "elsewhere every client would have to hand over its rows, and no table of sums is shown",
    relative_of="one CSV of three clinics",
)
def test_pooled_rows_would_have_to_be_handed_over(tmp_path: Path) -> None:
    run = small_run.small_run(tmp_path, text=small_run.TAIL)
    (chapter,) = governance.about_governance(run).chapters
    assert "every client would have to hand over its rows" in markdown(run)
    assert not [b for b in chapter.blocks if isinstance(b, Table) and b.columns[0] == "Answer"]


@met(
    "F",
    "who can check what, of rows here, at sites and of a private run",
    "one sentence: anyone who has the data",
    "a table: who, what, and the command",
    relative_of="one CSV of three clinics",
)
def test_who_can_check_follows_from_where_the_rows_are(plain: Run, private: Run) -> None:
    there = governance.checkers(plain.result | {"at_sites": True})
    assert ["--keys" in how for *_, how in there] == [True, False, False, False]
    assert {"Each site", "Nobody"} <= {who for who, *_ in there}
    here = governance.checkers(plain.result)
    assert here[0][0] == "Anyone who has the data"
    assert [who for who, *_ in governance.checkers(private.result)][1] == "The owner of the data"
    at_sites = replace(plain, result=plain.result | {"at_sites": True})
    assert governance.left(at_sites.result)[0].startswith("The rows stayed at their 3 sites.")
    assert "Who can learn or alter what" in markdown(at_sites)
    assert escaped(governance.UNMASKED) in markdown(at_sites)


def test_json_has_the_numbers_too(plain: Run) -> None:
    messages = json.loads(as_json(plain))["messages"]
    assert all(row["held"] for row in messages if row["direction"] == "up")
    assert not any("held" in row for row in messages if row["direction"] == "down")


@met(
    "F",
    "a run with masked sums",
    "nothing on what the server reads of one client all the same",
    "its mean loss at every model is named, beside sealed answers",
    relative_of="one CSV of three clinics",
)
def test_masked_sums_say_what_a_server_reads_of_one_client(tmp_path: Path) -> None:
    text = small_run.MIXED.replace('"simplex"', '"lp_ball"\nradius = 0.2')
    run = small_run.small_run(tmp_path, text=text + MASKED)
    assert [row[0] for row in answers(run).rows] == ["Sealed"]
    said = markdown(run)
    assert governance.MASKED in said
    assert "its mean loss at every model that is tried" in said
    assert escaped(governance.UNMASKED) not in said


def test_clients_that_answer_at_different_times_sent_different_amounts(tmp_path: Path) -> None:
    run = small_run.small_run(tmp_path, text=small_run.CLOCK)
    sent = {row["bytes_up"] for row in run.result["clients"]}
    said = [
        line for line in markdown(run).splitlines() if "would have sent" in line and "#" not in line
    ]
    form = "A client would have sent from " if len(sent) > 1 else "Each client would have sent "
    assert len(said) == 1
    assert said[0].startswith(form)
