"""The figures of a run are those of its predictions, and the report shows those asked for first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import small_run
from problems import PLAIN
from rich.console import Console
from scipy.special import expit
from sklearn import metrics

import bonafed as bf
from bonafed.measures import clopper_pearson, small
from bonafed.problem.calibration import calibrated
from bonafed.problem.losses import Loss
from bonafed.problem.predictors.affine import scores
from bonafed.report import tables
from bonafed.report.blocks import placed
from bonafed.report.canvas import Canvas
from bonafed.report.sections.evaluation import about_evaluation, about_quality, by_client, measures
from bonafed.report.tables import Table, own_measures
from bonafed.report.terminal import drawn
from bonafed.runs.comparison import evaluate
from bonafed.runs.evaluation import judge
from bonafed.runs.files import plain
from bonafed.runs.sections.section import Run
from bonafed.runs.splits import Parts, prepare
from bonafed.worst_client import percent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    table = small_run.table(rows=60)
    return small_run.small_run(tmp_path_factory.mktemp("judged"), data=table)


@pytest.fixture(scope="module")
def parts(run: Run) -> Parts:
    return prepare(run.config)


def with_evaluation(run: Run, models: dict[str, Any], problem: bf.Problem, fed: Any) -> Run:
    """The run with the evaluation of other models of another problem."""
    found = plain(evaluate(problem, models, {"held-out rows": fed}))
    result = {**run.result, "model": next(iter(models)), "evaluation": found}
    classes = None if fed.classes is None else [str(c) for c in fed.classes]
    return replace(run, result=result, model={**run.model, "classes": classes})


def cells(table: Table) -> dict[str, dict[str, str]]:
    """The text of a table by row and column."""
    heads = table.columns[1:]
    return {row[0]: dict(zip(heads, row[1:], strict=True)) for row in table.rows}


def test_the_figures_of_a_run_are_those_of_its_predictions(run: Run, parts: Parts) -> None:
    fed, judged = parts.tests["held-out rows"], run.result["evaluation"]["measures"][0]
    problem = run.config.settled(parts.train).problem()
    sigmoid = calibrated(problem, parts.train, run.w)
    assert sigmoid is not None
    for record, part in [
        (judged, fed.pooled()),
        *((row, fed.restrict([row["client"]])) for row in judged["clients"]),
    ]:
        score = scores(problem.predictor, run.w, part.X[0])
        truth = part.y[0] == "yes"
        assert record["auc"] == pytest.approx(metrics.roc_auc_score(truth, score))
        assert record["recall"] == pytest.approx(metrics.recall_score(truth, score > 0))
        p = sigmoid.probability(score)
        assert record["log_loss"] == pytest.approx(metrics.log_loss(truth, p))
        right = int(((score > 0) == truth).sum())
        assert record["interval"]["accuracy"] == [*clopper_pearson(right, len(truth))]
        assert record["positives"] == truth.sum()
        assert record["small"] is small(record)
        assert ("curves" in record) is (record is judged or not record["small"])
    others = [row for row in run.result["evaluation"]["measures"] if row["model"] != "DRFL"]
    assert not any("curves" in row for row in others)


def test_a_table_of_a_set_starts_with_what_people_ask_for(run: Run) -> None:
    first = measures(run)[0]
    assert first.title.startswith("Held-out rows (48 rows: ")
    assert first.title.endswith(" yes)")
    assert first.columns == ("Figure", "DRFL", "95 % interval", "Worst client", "AFL", "ERM")
    shown = cells(first)
    assert [*shown][:5] == [
        "AUC",
        "Balanced accuracy",
        "Recall of yes",
        "Precision of yes",
        "Accuracy",
    ]
    judged = run.result["evaluation"]["measures"][0]
    low, high = judged["interval"]["recall"]
    assert shown["Recall of yes"]["95 % interval"] == f"{100 * low:.1f}–{100 * high:.1f} %"
    worst = min(judged["clients"], key=lambda row: row["auc"])
    assert shown["AUC"]["Worst client"] == f"{worst['auc']:.4g} {worst['client']}"
    console = Console(width=80)
    with console.capture() as kept:
        console.print(drawn(first))
    lines = kept.get().splitlines()
    assert len(lines) == 2 + len(first.rows)  # nothing wraps
    assert all(len(line.rstrip()) <= 80 for line in lines)


def test_runs_side_by_side_have_the_area_and_claim_nothing(run: Run) -> None:
    rows = {row[0]: row[1:] for row in tables.compared({"one": run.result, "two": run.result}).rows}
    auc = run.result["evaluation"]["measures"][0]["auc"]
    assert rows["held-out rows: AUC"] == (f"{auc:.4g}",) * 2
    assert "held-out rows: balanced accuracy" in rows


def test_every_client_has_its_figures_and_what_they_are_at_least(run: Run) -> None:
    client = run.result["evaluation"]["measures"][0]["clients"][0]
    shown = cells(by_client(run)[0])[client["client"]]
    recall = f"{100 * client['recall']:.1f} % (≥ {percent(client['bounds']['recall'])})"
    assert shown["Recall of yes"] == recall


def test_a_small_client_is_marked_and_names_no_worst_figure(run: Run) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 2))
    y = np.where(X[:, 0] > 0, "ill", "well")
    y[60:] = np.where(X[60:, 0] > 0, "well", "ill")  # the model is wrong at the client of 4 rows
    fed = bf.Federation.from_arrays(X, y, ["a"] * 30 + ["b"] * 30 + ["tiny"] * 4)
    problem = bf.Problem(bf.Logistic(), PLAIN)
    told = with_evaluation(run, {"model": np.array([-3.0, 0.1])}, problem, fed)
    shown = cells(measures(told)[0])
    assert "tiny" not in shown["AUC"]["Worst client"]
    assert shown["Accuracy, worst client"]["Worst client"] == "tiny"
    assert {*cells(by_client(told)[0])} == {"a", "b", "tiny (small)"}
    section = about_evaluation(told)
    assert section is not None
    (chapter,) = section.chapters
    assert any("mostly chance: tiny." in getattr(block, "text", "") for block in chapter.blocks)


def test_a_regression_has_its_errors_and_r2(run: Run) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    fed = bf.Federation.from_arrays(X, y, ["a"] * 30 + ["b"] * 30)
    models = {"model": np.array([1.0, 0.0]), "ERM": np.array([0.9, 0.0])}
    told = with_evaluation(run, models, bf.Problem(bf.Huber(1.0), PLAIN), fed)
    shown = cells(measures(told)[0])
    r2 = metrics.r2_score(y, X[:, 0])
    assert shown["R²"]["model"] == f"{r2:.4g}"
    assert {"Mean absolute error", "Root mean squared error"} <= {*shown}
    assert "95 % interval" not in shown["R²"]


def test_several_classes_have_one_area_and_no_recall(run: Run) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(90, 2))
    y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    fed = bf.Federation.from_arrays(X, y, ["a"] * 45 + ["b"] * 45)
    problem = bf.Problem(bf.Multinomial(), bf.Softmax(classes=3, fit_intercept=False))
    told = with_evaluation(run, {"model": rng.normal(size=6)}, problem, fed)
    (table,) = measures(told)
    assert {"AUC", "Balanced accuracy", "Accuracy", "Log loss"} <= {*cells(table)}
    assert not any("Recall" in name for name in cells(table))
    counts = told.result["evaluation"]["measures"][0]["counts"]
    assert table.title.endswith(f"90 rows: {counts[0]} high, {counts[1]} low, {counts[2]} mid)")


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Multinomial()], ids=["one score", "two"])
def test_figures_are_about_the_class_that_is_called_positive(loss: Loss) -> None:
    """Also where it sorts first."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 1))
    y = np.where(X[:, 0] + rng.normal(size=80) > 0.8, "ill", "well")
    fed = bf.Federation.from_arrays(X, y, ["a"] * 40 + ["b"] * 40, positive="ill")
    several = loss.targets == "class"
    predictor = bf.Softmax(classes=2, fit_intercept=False) if several else PLAIN
    w = np.array([-1.0, 1.0]) if several else np.array([2.0])
    judged = judge(bf.Problem(loss, predictor), w, fed)
    assert judged["positives"] == (y == "ill").sum()
    assert judged["recall"] == pytest.approx((X[y == "ill", 0] > 0).mean())
    assert judged["log_loss"] == pytest.approx(metrics.log_loss(y == "ill", expit(2 * X[:, 0])))


def test_roc_and_calibration_are_drawn_over_all_rows_and_by_client(run: Run) -> None:
    clients = [row["client"] for row in own_measures(run.result)[0]["clients"]]
    section = about_quality(run)
    assert section is not None
    drawn = [figure.plot for figure in placed(section.chapters[0].blocks) if figure.plot]
    assert len(drawn) == 2
    for plot in drawn:
        canvas = Canvas(300, 200)
        plot.draw(canvas, *plot.arguments)
        assert [mark.label for mark in canvas.axes[0].entries] == [*clients, "all rows"]
