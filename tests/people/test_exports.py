"""Exports of Excel, SAS, REDCap, R and data bases pass every command without an edit."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import untidy_exports as exports

Call = Callable[..., int]


def flat(text: str) -> str:
    """The text with comments and breaks taken as spaces."""
    return " ".join(text.replace("#", " ").split())


@pytest.mark.parametrize("name", exports.EXPORTS)
def test_an_export_is_looked_at_and_each_of_its_lines_is_accounted_for(
    name: str, bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = exports.EXPORTS[name]
    case.make(tmp_path)
    status = bonafed("init", *case.paths, *case.options, "--out", "q.toml")
    said = capsys.readouterr()
    assert status == 0, said.err
    written = (tmp_path / "q.toml").read_text("utf-8")
    for part in case.proposed:
        assert flat(part) in flat(written), written
    for part in case.absent:
        assert part not in written, written
    printed = " ".join(said.out.split())
    found = re.search(r"([\d,]+) lines: ([\d,]+) begin a row((?:, \d+ [a-z ]+?)+) column ", printed)
    assert found is not None, printed
    others = sum(int(n) for n in re.findall(r", (\d+) ", found[3]))
    files = [(tmp_path / path).read_bytes().decode(case.encoding) for path in case.paths]
    assert int(found[2]) == case.rows
    assert int(found[1]) == case.rows + others == sum(len(file.splitlines()) for file in files)


@pytest.mark.parametrize("name", exports.EXPORTS)
def test_an_export_is_run_predicted_and_verified_without_an_edit(
    name: str, bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = exports.EXPORTS[name]
    case.make(tmp_path)
    assert bonafed("init", *case.paths, *case.options, "--out", "q.toml") == 0
    assert bonafed("run", "q.toml", "--quick", "--out", "runs") == 0, capsys.readouterr().err
    said = " ".join(capsys.readouterr().out.split())
    assert f"left out: {case.left} of {case.rows} rows" in said or not case.left, said
    (run,) = (tmp_path / "runs").iterdir()
    assert bonafed("verify", run) == 0, capsys.readouterr().out
    for k, path in enumerate(case.paths):
        assert bonafed("predict", run, path, "--out", f"p{k}.csv") == 0, capsys.readouterr().err
    files = [(tmp_path / f"p{k}.csv").read_text("utf-8") for k, _ in enumerate(case.paths)]
    assert sum(len([*csv.DictReader(file.splitlines())]) for file in files) == case.rows
