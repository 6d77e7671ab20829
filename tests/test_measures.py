"""The figures are those of scikit-learn, their intervals cover, and what is undefined is None."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from scipy.stats import binom
from sklearn import metrics

from bonafed import measures
from bonafed.arrays import Array
from bonafed.measures import (
    auc,
    classification,
    clopper_pearson,
    curves,
    regression,
    several_classes,
    small,
)


def rows(n: int = 200, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Truth, scores with ties, probabilities and weights."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n) < 0.2).astype(float)
    score = np.round(rng.normal(size=n) + truth, 1)
    return truth, score, 1 / (1 + np.exp(-score)), rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_have_the_figures_of_scikit_learn(weighted: bool) -> None:
    truth, score, p, weight = rows()
    w = weight if weighted else None
    chosen, figures = score > 0, classification(truth, score, p, w)
    expected = {
        "accuracy": metrics.accuracy_score(truth, chosen, sample_weight=w),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, chosen, sample_weight=w),
        "recall": metrics.recall_score(truth, chosen, sample_weight=w),
        "precision": metrics.precision_score(truth, chosen, sample_weight=w),
        "specificity": metrics.recall_score(truth, chosen, pos_label=0, sample_weight=w),
        "auc": metrics.roc_auc_score(truth, score, sample_weight=w),
        "average_precision": metrics.average_precision_score(truth, score, sample_weight=w),
        "brier": metrics.brier_score_loss(truth, p, sample_weight=w),
        "log_loss": metrics.log_loss(truth, p, sample_weight=w),
    }
    assert {key: figures[key] for key in expected} == pytest.approx(expected, rel=1e-12)
    (tn, fp), (fn, tp) = metrics.confusion_matrix(truth, chosen, sample_weight=w)
    assert figures["confusion"] == {"tp": tp, "fp": fp, "fn": fn, "tn": tn}
    assert (figures["n"], figures["positives"]) == (200, truth.sum())
    assert ("interval" in figures) is not weighted


@pytest.mark.parametrize("weighted", [False, True])
def test_several_classes_have_the_figures_of_scikit_learn(weighted: bool) -> None:
    rng = np.random.default_rng(1)
    codes, p = rng.integers(0, 3, 150), rng.dirichlet(np.ones(3), 150)
    w = rng.integers(1, 4, 150).astype(float) if weighted else None
    chosen, figures = p.argmax(1), several_classes(codes, p, w)
    precision, recall, _, _ = metrics.precision_recall_fscore_support(
        codes, chosen, sample_weight=w
    )
    expected = {
        "accuracy": metrics.accuracy_score(codes, chosen, sample_weight=w),
        "balanced_accuracy": metrics.balanced_accuracy_score(codes, chosen, sample_weight=w),
        "auc": np.mean(
            [metrics.roc_auc_score(codes == c, p[:, c], sample_weight=w) for c in range(3)]
        ),
        "log_loss": metrics.log_loss(codes, p, sample_weight=w),
    }
    assert {key: figures[key] for key in expected} == pytest.approx(expected, rel=1e-12)
    assert figures["recalls"] == pytest.approx(np.asarray(recall))
    assert figures["precisions"] == pytest.approx(np.asarray(precision))
    confusion = metrics.confusion_matrix(codes, chosen, sample_weight=w)
    assert figures["confusion"] == confusion.tolist()
    assert figures["counts"] == np.bincount(codes).tolist()


@pytest.mark.parametrize("weighted", [False, True])
def test_regression_has_the_figures_of_scikit_learn(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    y, prediction, weight = rng.normal(size=(3, 80))
    w = np.abs(weight) if weighted else None
    figures = regression(y, prediction, w)
    assert figures["mae"] == pytest.approx(
        metrics.mean_absolute_error(y, prediction, sample_weight=w)
    )
    squared = metrics.mean_squared_error(y, prediction, sample_weight=w)
    assert figures["rmse"] == pytest.approx(np.sqrt(squared))
    assert figures["r2"] == pytest.approx(metrics.r2_score(y, prediction, sample_weight=w))


def test_a_figure_that_the_rows_do_not_define_is_none() -> None:
    one_class = classification([0, 0], [-1.0, -2.0], [0.2, 0.1])
    undefined = {key for key, value in one_class.items() if value is None}
    assert undefined == {"balanced_accuracy", "recall", "precision", "auc", "average_precision"}
    no_probability = classification([0, 1], [-1.0, 1.0])
    assert no_probability["brier"] is no_probability["log_loss"] is None
    assert regression([2.0, 2.0], [1.0, 2.0])["r2"] is None
    three = several_classes([0, 0], [[0.9, 0.1, 0.0]] * 2)
    assert three["balanced_accuracy"] is three["auc"] is None
    assert three["recalls"] == [1.0, None, None]


def test_scores_that_rounding_alone_parts_are_ties() -> None:
    truth, score, *_ = rows()
    noise = 1e-14 * np.random.default_rng(0).normal(size=len(truth))
    assert auc(truth, -0.3 + noise) == 0.5
    assert auc(truth, score + noise) == auc(truth, score)
    assert auc(truth, score + 1e6) == pytest.approx(auc(truth, score))


@pytest.mark.parametrize("n", [1, 5, 20, 100])
def test_intervals_of_rates_cover_every_true_rate_in_95_of_100_samples(n: int) -> None:
    """By the sum over all samples, at rates on both sides of every end of an interval."""
    intervals = np.array([clopper_pearson(k, n) for k in range(n + 1)])
    ends = np.unique(intervals)
    rates = np.concatenate([np.linspace(0.001, 0.999, 200), ends - 1e-9, ends + 1e-9])
    for rate in rates[(rates > 0) & (rates < 1)]:
        inside = (intervals[:, 0] <= rate) & (rate <= intervals[:, 1])
        assert binom.pmf(np.arange(n + 1)[inside], n, rate).sum() >= 0.95 - 1e-12


def test_the_intervals_of_a_model_are_those_of_its_counts() -> None:
    truth, score, *_ = rows()
    figures = classification(truth, score)
    cells, interval = figures["confusion"], figures.get("interval", {})
    assert interval["recall"] == clopper_pearson(int(cells["tp"]), int(truth.sum()))
    assert interval["accuracy"] == clopper_pearson(int(cells["tp"] + cells["tn"]), len(truth))
    low, high = interval["precision"]
    assert figures["precision"] is not None
    assert low < figures["precision"] < high


def test_the_roc_curve_has_the_area_and_at_most_101_points() -> None:
    truth, score, p, _ = rows(5000, seed=3)
    score = score + 1e-4 * np.arange(5000)  # no ties
    drawn = curves(truth, score, p)
    points = np.array(drawn["roc"])
    assert len(points) == 101
    assert points[[0, -1]].tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert (np.diff(points, axis=0) >= 0).all()
    assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(auc(truth, score), abs=0.002)
    # a curve of few corners keeps them all
    drawn = curves(np.arange(40) >= 20, np.arange(40.0), points=5)
    assert drawn["roc"] == [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    assert curves([1, 1], [0.1, 0.2]) == {"roc": [], "reliability": []}


def test_the_reliability_curve_has_every_row_once() -> None:
    truth, score, p, _ = rows(500, seed=4)
    cells = np.array(curves(truth, score, p)["reliability"])
    assert len(cells) == 10
    assert cells[:, 2].sum() == 500
    assert (np.diff(cells[:, 0]) > 0).all()
    assert cells[:, 1] @ cells[:, 2] == pytest.approx(truth.sum())
    assert curves(truth, score, np.full(500, 0.2))["reliability"] == [
        [pytest.approx(0.2), pytest.approx(truth.mean()), 500]
    ]


def test_few_rows_or_few_of_a_class_are_small() -> None:
    truth = np.repeat([0, 1], [15, 5])
    assert not small(classification(truth, truth - 0.5))
    assert small(classification(truth[:-1], truth[:-1] - 0.5))
    assert not small(regression(np.arange(10.0), np.zeros(10)))
    assert small(regression(np.arange(9.0), np.zeros(9)))
    assert small(several_classes([0] * 9 + [1] * 9, np.full((18, 3), 1 / 3)))


def test_the_examples_run() -> None:
    assert doctest.testmod(measures).failed == 0
