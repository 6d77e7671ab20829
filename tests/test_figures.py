"""A figure is one row of a table: a row that is added appears wherever figures appear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run
from rich.console import Console
from sites.test_judging import PROBLEMS, agreed, models_of, rows

from bonafed import measures
from bonafed.engines.network import Network
from bonafed.measures import Figure
from bonafed.report import tables
from bonafed.report.pages import markdown
from bonafed.report.sections.evaluation import not_of_all
from bonafed.report.terminal import show
from bonafed.runs.comparison import evaluate
from bonafed.runs.files import plain
from bonafed.runs.folder import read_run
from bonafed.runs.splits import HELD_OUT
from bonafed.runs.verification import verify_run
from bonafed.sites.judging import added_up, judge_at_sites

CLI = Path(__file__).parents[1] / "docs" / "cli.md"


def doubt(truth: Any, p: Any) -> Any:
    """How far a row is from certain."""
    return 1 - abs(2 * p - 1) if p.ndim == 1 else 1 - p.max(1)


def top(truth: Any, score: Any, weight: Any) -> float:
    """Whether the row of the highest score is positive."""
    return float(truth[score.argmax()])


ADDED = (
    Figure(
        *("doubt", "Mean doubt", "losses", doubt, "mean distance from certainty"),
        higher=False,
        place=11,
        beside=True,
    ),
    Figure(
        *("top", "Top row", "scores", top, "whether the top row is of {positive}"),
        place=12,
        kept="it is the class of a single row",
    ),
)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "FIGURES", (*measures.FIGURES, *ADDED))


@pytest.mark.usefixtures("added")
def test_an_added_figure_is_in_run_report_terminal_and_verification(tmp_path: Path) -> None:
    run = small_run.small_run(tmp_path)
    judged = run.result["evaluation"]["measures"][0]
    assert 0 < judged["doubt"] < 1
    assert all(0 < client["doubt"] < 1 for client in judged["clients"])
    console = Console(width=200)
    with console.capture() as kept:
        show(run, console, verbose=True)
    for text in (markdown(run), kept.get()):
        assert "Mean doubt" in text
        assert "Top row" in text
    assert "mean distance from certainty" in markdown(run)
    sides = tables.compared({"one": run.result, "two": run.result}).rows
    assert any(row[0].endswith(": mean doubt") for row in sides)

    assert not [check for check in verify_run(run.path) if check.ok is False]
    file = run.path / "result.json"
    result = json.loads(file.read_text("utf-8"))
    result["evaluation"]["measures"][0]["doubt"] += 0.01
    file.write_text(json.dumps(result), encoding="utf-8")
    assert "evaluation" in [check.name for check in verify_run(run.path) if check.ok is False]
    for value in (1.5, None, "much"):
        result["evaluation"]["measures"][0]["doubt"] = value
        file.write_text(json.dumps(result), encoding="utf-8")
        if value is not None:  # scores of two classes need not have probabilities
            with pytest.raises(ValueError, match="doubt from 0 to 1"):
                read_run(run.path)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("kind", ["two classes", "several classes"])
def test_sites_tell_an_added_mean_and_keep_what_tells_of_rows(kind: str, tmp_path: Path) -> None:
    models, agreement = models_of(kind), agreed(kind, tmp_path)
    engine = Network(agreement.session)
    there = judge_at_sites(agreement.problem, agreement.metadata, models, engine)
    here = evaluate(PROBLEMS[kind], models, {HELD_OUT: rows(kind, 1)})
    for mine, other in zip(there["measures"], here["measures"], strict=True):
        assert mine["doubt"] == pytest.approx(other["doubt"])
        assert mine["top"] is None
        for site, client in zip(mine["clients"], other["clients"], strict=True):
            assert site["doubt"] == pytest.approx(client["doubt"])
            assert site["top"] is None
    again = added_up(PROBLEMS[kind], [*models], plain(there))
    assert plain(again)["measures"] == plain(there)["measures"]
    result = {"at_sites": True, "model": "model", "evaluation": there}
    (said,) = not_of_all(result)
    assert "Top row, which no site tells: it is the class of a single row" in said.text
    assert "AUC, which each site tells of its rows" in said.text
    assert not_of_all({**result, "at_sites": False}) == []


def test_the_docs_have_the_table_of_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measures.documented() in CLI.read_text("utf-8")
    monkeypatch.setattr(measures, "FIGURES", (*measures.FIGURES, *ADDED))
    assert "whether the top row is of the positive class" in measures.documented()


def test_rows_of_the_table_are_complete() -> None:
    known = measures.figures_of()
    assert len({figure.key for figure in known}) == len(known)
    for figure in known:
        assert figure.of != "scores" or figure.apart or figure.kept, figure.key
    assert np.diff(sorted(f.place for f in known if f.place is not None)).min() >= 0
