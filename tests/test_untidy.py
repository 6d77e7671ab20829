"""Tables as people have them pass `init`, `run`, `predict` and `verify` without an edit."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import untidy

Call = Callable[..., int]


def flat(text: str) -> str:
    """The text with comments and breaks taken as spaces."""
    return " ".join(text.replace("#", " ").split())


@pytest.mark.parametrize("name", untidy.FILES)
def test_an_untidy_table_passes_without_an_edit(
    name: str, quorate: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = untidy.FILES[name]
    case.make(tmp_path)
    init = ("init", case.path, *case.options, "--out", "q.toml")
    if case.asked:
        assert quorate(*init) == 2
        said = capsys.readouterr().err
        for part in case.asked:
            assert part in said
        assert not (tmp_path / "q.toml").exists()
    assert quorate(*init, *case.told) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    written = (tmp_path / "q.toml").read_text("utf-8")
    for part in case.proposed:
        assert flat(part) in flat(written), written
    for part in case.printed:
        assert part in printed, printed
    assert quorate("run", "q.toml", "--quick", "--out", "runs") == 0, capsys.readouterr().err
    (folder,) = (tmp_path / "runs").iterdir()
    files = sorted(tmp_path.glob(case.path))
    assert quorate("predict", folder, files[0], "--out", "p.csv") == 0, capsys.readouterr().err
    rows = [*csv.DictReader((tmp_path / "p.csv").read_text("utf-8").splitlines())]
    assert len(rows) == (240 if len(files) == 1 else files[0].read_text("utf-8").count("\n") - 1)
    assert quorate("verify", folder) == 0, capsys.readouterr().out
