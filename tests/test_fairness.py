import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from bonafed.fairness import (
    average_odds_difference,
    disparate_impact,
    equal_opportunity_difference,
    fairness_metrics,
    false_negative_rate_difference,
    group_rates,
    statistical_parity_difference,
    theil_index,
)

BY_NAME = {
    "SPD": statistical_parity_difference,
    "DI": disparate_impact,
    "EOD": equal_opportunity_difference,
    "AOD": average_odds_difference,
    "FNRD": false_negative_rate_difference,
}

# group m: truth ++-- predicted +-+- ; group f: truth +++-- predicted +---+
TRUTH = np.array([1, 1, 0, 0, 1, 1, 1, 0, 0])
CHOSEN = np.array([1, 0, 1, 0, 1, 0, 0, 0, 1])
GROUP = np.array(["m"] * 4 + ["f"] * 5)


def rows(n=200, seed=0):
    """Random rows on which every metric is defined."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    truth = (rng.random(n) < 0.3 + 0.2 * group).astype(int)
    chosen = np.where(rng.random(n) < 0.25 + 0.1 * (group == 1), 1 - truth, truth)
    return truth, chosen, group


def by_confusion_matrix(truth, chosen, group, privileged, positive):
    """The same metrics from scikit-learn's counts, one group after the other."""

    def rates(pick):
        y, p = truth[pick] == positive, chosen[pick] == positive
        tn, fp, fn, tp = confusion_matrix(y, p, labels=[False, True]).ravel().tolist()
        return (tp + fp) / (tn + fp + fn + tp), tp / (tp + fn), fp / (fp + tn), fn / (tp + fn)

    (s, t, f, m), (s0, t0, f0, m0) = rates(group != privileged), rates(group == privileged)
    tn, fp, fn, tp = (
        confusion_matrix(truth == positive, chosen == positive, labels=[False, True])
        .ravel()
        .tolist()
    )
    n = tn + fp + fn + tp
    # benefits: 1 where right, 2 at a false positive, 0 at a false negative
    mu = (tn + tp + 2 * fp) / n
    theil = ((tn + tp) / mu * math.log(1 / mu) + 2 * fp / mu * math.log(2 / mu)) / n
    return {
        "SPD": s - s0,
        "DI": s / s0,
        "EOD": t - t0,
        "AOD": ((f - f0) + (t - t0)) / 2,
        "TI": theil,
        "FNRD": m - m0,
    }


def test_by_hand():
    found = fairness_metrics(TRUTH, CHOSEN, GROUP, privileged="m")
    assert found["SPD"] == pytest.approx(2 / 5 - 2 / 4)
    assert found["DI"] == pytest.approx(0.8)
    assert found["EOD"] == pytest.approx(1 / 3 - 1 / 2)
    assert found["AOD"] == pytest.approx(((1 / 2 - 1 / 2) + (1 / 3 - 1 / 2)) / 2)
    assert found["FNRD"] == pytest.approx(2 / 3 - 1 / 2)
    # benefits 1 0 2 1 1 0 0 1 2: mean 8/9; four times 1, twice 2
    assert found["TI"] == pytest.approx(
        (4 * 9 / 8 * math.log(9 / 8) + 2 * 9 / 4 * math.log(9 / 4)) / 9
    )


def test_rates_by_hand():
    rates = group_rates(TRUTH, CHOSEN, GROUP)
    assert list(rates) == ["f", "m"]
    f = rates["f"]
    assert (f.rows, f.positives) == (5, 3)
    assert [f.selected, f.tpr, f.fpr, f.fnr, f.accuracy] == pytest.approx(
        [2 / 5, 1 / 3, 1 / 2, 2 / 3, 2 / 5]
    )
    only = group_rates([1, 0], [1, 1], ["a", "b"])
    assert math.isnan(only["a"].fpr)
    assert math.isnan(only["b"].tpr)
    assert math.isnan(only["b"].fnr)
    assert (only["a"].tpr, only["b"].fpr) == (1.0, 1.0)


@pytest.mark.parametrize("positive", [1, 0])
@pytest.mark.parametrize("privileged", [0, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_against_counts_of_scikit_learn(seed, privileged, positive):
    data = rows(seed=seed)
    expected = by_confusion_matrix(*data, privileged, positive)
    assert fairness_metrics(*data, privileged, positive) == pytest.approx(
        expected, abs=1e-14, rel=1e-12
    )
    for name, metric in BY_NAME.items():
        assert metric(*data, privileged, positive) == pytest.approx(
            expected[name], abs=1e-14, rel=1e-12
        )
    assert theil_index(*data[:2], positive) == pytest.approx(expected["TI"], abs=1e-14, rel=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=2, max_size=30))
@settings(deadline=None, max_examples=100)
def test_laws(triples):
    truth, chosen, group = (np.array(column) for column in zip(*triples, strict=True))
    if group.all() or not group.any() or not (truth | chosen).any():
        return
    found = fairness_metrics(truth, chosen, group, privileged=True, positive=True)
    swapped = fairness_metrics(truth, chosen, group, privileged=False, positive=True)
    for name in ("SPD", "EOD", "AOD", "FNRD"):
        assert swapped[name] == pytest.approx(-found[name], nan_ok=True)
        assert math.isnan(found[name]) or -1 <= found[name] <= 1
    assert swapped["TI"] == pytest.approx(found["TI"], nan_ok=True)
    assert math.isnan(found["TI"]) or found["TI"] >= -1e-15
    if 0 < found["DI"] < math.inf:
        assert swapped["DI"] == pytest.approx(1 / found["DI"])
    elif not math.isnan(found["DI"]):
        assert {swapped["DI"], found["DI"]} == {0, math.inf}
    assert found["FNRD"] == pytest.approx(-found["EOD"], nan_ok=True)
    twice = fairness_metrics(*(np.repeat(v, 2)[::-1] for v in (truth, chosen, group)), True, True)
    assert twice == pytest.approx(found, nan_ok=True, abs=1e-14)


def test_order_and_copies_of_rows_do_not_matter():
    data = rows()
    found = fairness_metrics(*data, privileged=1)
    order = np.random.default_rng(1).permutation(len(data[0]))
    assert fairness_metrics(*(v[order] for v in data), privileged=1) == pytest.approx(
        found, abs=1e-14
    )
    assert fairness_metrics(*(np.tile(v, 3) for v in data), privileged=1) == pytest.approx(
        found, abs=1e-14
    )


def test_a_perfect_predictor():
    truth, _, group = rows()
    found = fairness_metrics(truth, truth, group, privileged=0)
    assert [found[name] for name in ("EOD", "AOD", "FNRD", "TI")] == [0, 0, 0, 0]
    base = truth[group != 0].mean(), truth[group == 0].mean()
    # base rates differ, and so must a perfect predictor
    assert found["SPD"] == pytest.approx(base[0] - base[1])
    assert found["DI"] == pytest.approx(base[0] / base[1])


def test_any_labels_and_containers():
    expected = fairness_metrics(TRUTH, CHOSEN, GROUP, "m")
    words = np.array(["no", "yes"])
    frame = pd.DataFrame({"y": words[TRUTH], "p": words[CHOSEN], "g": GROUP})
    assert fairness_metrics(frame.y, frame.p, frame.g, "m", positive="yes") == expected
    assert (
        fairness_metrics(list(2 * TRUTH - 1), list(2.0 * CHOSEN - 1), list(GROUP), "m") == expected
    )
    assert fairness_metrics(TRUTH == 1, CHOSEN == 1, GROUP == "m", True, positive=True) == expected
    before = TRUTH.copy(), CHOSEN.copy(), GROUP.copy()
    fairness_metrics(TRUTH, CHOSEN, GROUP, "m")
    for was, is_ in zip(before, (TRUTH, CHOSEN, GROUP), strict=True):
        np.testing.assert_array_equal(was, is_)


def test_a_metric_that_is_not_defined_is_nan_among_all_and_an_error_alone():
    group = np.array(["a", "a", "b", "b"])
    no_positives = (np.array([0, 0, 1, 0]), np.array([0, 1, 1, 0]), group)
    found = fairness_metrics(*no_positives, privileged="b")
    assert [name for name, value in found.items() if math.isnan(value)] == ["EOD", "AOD", "FNRD"]
    assert (found["SPD"], found["DI"]) == (0, 1)
    for metric in (
        equal_opportunity_difference,
        average_odds_difference,
        false_negative_rate_difference,
    ):
        with pytest.raises(
            ValueError, match=r"got no row with the label 1 in the unprivileged group \(2 rows\)"
        ):
            metric(*no_positives, privileged="b")
    no_negatives = (np.array([1, 1, 1, 0]), np.array([0, 1, 1, 0]), group)
    with pytest.raises(ValueError, match="got only rows with the label 1 in the privileged group"):
        average_odds_difference(*no_negatives, privileged="a")
    assert equal_opportunity_difference(*no_negatives, privileged="a") == 0.5
    nobody = (np.array([1, 1, 1, 0]), np.zeros(4, int), group)
    assert math.isnan(fairness_metrics(*nobody, privileged="a")["DI"])
    with pytest.raises(
        ValueError, match=r"disparate impact got no row that is predicted 1 .* 0 / 0"
    ):
        disparate_impact(*nobody, privileged="a")
    assert disparate_impact(nobody[0], [0, 0, 1, 0], group, privileged="a") == math.inf
    assert disparate_impact(nobody[0], [1, 0, 0, 0], group, privileged="a") == 0.0
    with pytest.raises(ValueError, match="Theil index got benefits that are all 0"):
        theil_index([1, 1], [0, 0])


def test_arguments_are_checked():
    y, p, g = TRUTH, CHOSEN, GROUP
    for call, text in (
        (lambda: fairness_metrics(y, p, g, "x"), r"no rows have group == 'x'.*'f', 'm'"),
        (lambda: fairness_metrics(y, p, ["m"] * 9, "m"), "all rows have group == 'm'"),
        (lambda: fairness_metrics(y, p, g, ["m"]), r"privileged must be .* a text .*, got \['m'\]"),
        (
            lambda: fairness_metrics(y, p, g, "m", positive="yes"),
            r"positive is 'yes', and .* labels 0, 1",
        ),
        (lambda: fairness_metrics(y, p + 1, g, "m"), "have 3 different labels"),
        (lambda: fairness_metrics(y, p.astype(str), g, "m"), "have 4 different labels"),
        (
            lambda: fairness_metrics(y, p[:-1], g, "m"),
            r"y_pred must have shape \(9,\) like y_true, got \(8,\)",
        ),
        (lambda: fairness_metrics(y, p, g[:-1], "m"), r"group must have shape \(9,\)"),
        (lambda: group_rates(y[:, None], p, g), r"y_true must have shape \(rows,\), got \(9, 1\)"),
        (lambda: theil_index([], []), "has no rows"),
        (lambda: theil_index([1.0, np.nan], [1, 0]), "y_true is missing in row 1"),
        (lambda: group_rates([1, 0], [1, 0], ["a", None]), "group is missing in row 1"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
