"""What the fuzzers found, as small cases: refused in words, and not with an error of Python."""

from __future__ import annotations

import gzip
import json

import pytest
import small_run
from fuzz.corpus import ledger_file
from fuzz.laws import judged

from bonafed.data.readers import read
from bonafed.privacy.ledger import Book
from bonafed.runs import forms
from bonafed.runs.files import sealed, to_json
from bonafed.runs.sections.sweep import _finished
from bonafed.runs.training import Trace
from bonafed.runs.verification import verify_run
from bonafed.solution.privacy_account import Note


def refused(call) -> str:
    """What is said; a failure where that is not in our words."""
    verdict = judged(call)
    assert verdict.name == "refused", verdict
    return verdict.text


def test_a_ledger_of_deep_lists(tmp_path):
    ledger_file(tmp_path / "book.json")
    (tmp_path / "book.json").write_text("[" * 100_000)
    assert "not a ledger" in refused(Book(tmp_path / "book.json").runs)


def test_a_ledger_whose_chain_is_no_list(tmp_path):
    ledger_file(tmp_path / "book.json")
    (tmp_path / "book.json").write_text('{"runs": [], "chain": 0}')
    assert "not lists" in refused(Book(tmp_path / "book.json").runs)


def test_an_archive_that_is_no_text_and_damaged_behind(tmp_path):
    packed = gzip.compress(b"clinic,age\n\xff,1\n" * 20_000)
    (tmp_path / "t.csv.gz").write_bytes(packed[: len(packed) // 2])
    assert "t.csv.gz" in refused(lambda: read(tmp_path / "t.csv.gz"))


@pytest.mark.parametrize("change", ["renamed", "dropped"])
def test_a_row_of_the_history_without_a_column(change, tmp_path):
    folder = small_run.small_run(tmp_path, text=small_run.CONFIG).path
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    value = rows[4].pop("objective")
    rows[4] |= {"\n": value} if change == "renamed" else {}
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(to_json(sealed(folder, result), indent=1))
    odd = [check for check in verify_run(folder) if check.ok is False]
    assert [check.name for check in odd] == ["form"] * (change == "renamed")
    listed = [check.name for check in verify_run(folder) if check.ok is None]
    assert change == "renamed" or "history" in listed  # what happened in the rounds is not verified


@pytest.mark.parametrize(
    "content",
    [
        b"\xca",
        b'{"plan": [',
        b'{"plan": [[0.5, 0.6]], "points": [{"at": 0.5}]}',
        b'{"plan": [[0.5, 0.6]], "points": []}',
        b'{"plan": [[0.5, 0.6], [1.0, 1.2]], "points": [{"at": 0.5, "alone": 0.4,'
        b' "noise": 9.0, "w": [1.0]}]}',
        b'{"plan": [[0.5, -0.6], [1.0, 1.2]], "points": []}',
    ],
)
def test_finished_points_of_a_sweep_that_are_damaged(content, tmp_path):
    (tmp_path / "sweep.json").write_bytes(content)
    assert "sweep.json" in refused(lambda: _finished(tmp_path / "sweep.json", [0.5, 1.0], 3))


def test_finished_points_of_a_sweep_are_read(tmp_path):
    point = {"at": 0.5, "alone": 0.4, "noise": 9.0, "w": [1.0, 2.0, 3.0]}
    stored = {"plan": [[0.5, 0.6], [1.0, 1.2]], "points": [point]}
    (tmp_path / "sweep.json").write_text(json.dumps(stored))
    assert _finished(tmp_path / "sweep.json", [0.5, 1.0], 3) == stored


class Objective(Trace):
    form = forms.OBJECTIVE


class Violations(Trace):
    form = forms.VIOLATION


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Objective, '{"round": 1, "exact_objective": 0.5, "largest_risk": 0.6}'),
        (Objective, '{"when": 1, "exact_objective": 0.5, "largest_risk": 0.6}'),
        (Objective, "[]"),
        (Violations, '{"round": 1, "client_violation": [-0.5]}'),
        (Violations, '{"round": "1", "client_violation": []}'),
    ],
)
def test_traces_with_impossible_rows(kind, line, tmp_path):
    (tmp_path / "model.reached").write_text(line + "\n")
    assert "model.reached" in refused(lambda: kind(tmp_path / "model.reached", True))


def test_the_number_of_a_run_that_is_no_text(tmp_path):
    (tmp_path / "model.checkpoint.account").write_bytes(b"\xb6\xff\n")
    number, digest = Note.beside(tmp_path / "model.checkpoint").read()
    assert (set(number), digest) == ({"�"}, "")
