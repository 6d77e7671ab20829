"""Aggregation rules against brute force: sorting by hand, all subsets, all pairs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import bonafed as bf
from bonafed.functional import average, bulyan, coordinate_median, krum, trimmed_mean

RULES = {
    "average": average,
    "median": coordinate_median,
    "trimmed": lambda models, weights: trimmed_mean(models, weights, 0.2),
    "krum": lambda models, weights: krum(models, weights, 2, 3),
    "bulyan": lambda models, weights: bulyan(models, weights, 1),
}
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
ROBUST = pytest.mark.parametrize("rule", [*RULES.values()][1:], ids=[*RULES.keys()][1:])


def cases(seed, n=9, D=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), rng.random(n) + 0.1


def krum_scores(models, byzantine):
    n = len(models)
    return [
        sum(
            sorted(float(((models[i] - models[j]) ** 2).sum()) for j in range(n) if j != i)[
                : n - byzantine - 2
            ]
        )
        for i in range(n)
    ]


@EVERY
def test_order_of_clients_does_not_matter_and_rules_move_with_the_models(rule):
    models, weights = cases(0)
    found, before = rule(models, weights), models.copy()
    order = np.random.default_rng(1).permutation(len(models))
    assert_allclose(rule(models[order], weights[order]), found, rtol=1e-12)
    shift = np.array([3.0, -2.0, 0.5, 10.0])
    assert_allclose(rule(2 * models + shift, weights), 2 * found + shift, rtol=1e-10)
    assert_array_equal(models, before)


@EVERY
def test_equal_models_and_one_model(rule):
    w = np.array([1.0, -2.0, 3.0])
    assert_allclose(rule(np.tile(w, (9, 1)), np.full(9, 1 / 9)), w, rtol=1e-14)


def test_average_and_medians_by_numpy():
    models, weights = cases(2)
    assert_allclose(average(models, weights), np.average(models, 0, weights))
    for n in (1, 2, 5, 6, 10):
        models, _ = cases(n, n)
        assert_allclose(
            coordinate_median(models, np.full(n, 1 / n)), np.median(models, 0), rtol=1e-14
        )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1 / 3, 0.45])
def test_weights_count_models_several_times(share):
    rng = np.random.default_rng(3)
    models, counts = rng.normal(size=(6, 3)), rng.integers(1, 5, 6)
    each = np.repeat(models, counts, axis=0)
    assert_allclose(coordinate_median(models, counts.astype(float)), np.median(each, 0), rtol=1e-14)
    # every share here is a whole number of 180 len(each)
    fine = np.sort(np.repeat(each, 180, axis=0), axis=0)
    cut = round(share * len(fine))
    assert_allclose(
        trimmed_mean(models, counts / 7.0, share), fine[cut : len(fine) - cut].mean(0), rtol=1e-12
    )


def test_krum_by_all_pairs():
    for seed in range(20):
        models, weights = cases(seed)
        scores = krum_scores(models, 2)
        assert_allclose(krum(models, weights, 2), models[np.argmin(scores)], rtol=1e-14)
        best = np.argsort(scores)[:3]
        assert_allclose(krum(models, weights, 2, 3), np.average(models[best], 0, weights[best]))


def test_bulyan_by_hand():
    for seed in range(20):
        models, byzantine = cases(seed, 11)[0], 2
        left, chosen = list(range(11)), []
        while len(chosen) < 11 - 2 * byzantine:
            pick = left[int(np.argmin(krum_scores_of(models[left], byzantine)))]
            chosen.append(pick)
            left.remove(pick)
        own = models[sorted(chosen)]
        middle = np.median(own, 0)
        expected = [
            np.mean(sorted(own[:, k], key=lambda v: abs(v - middle[k]))[: 11 - 4 * byzantine])
            for k in range(4)
        ]
        assert_allclose(bulyan(models, np.full(11, 1 / 11), byzantine), expected)


def krum_scores_of(models, byzantine):
    """Of what is left: n falls, and so do the neighbours counted, to one."""
    n, scores = len(models), []
    for i in range(n):
        own = sorted(float(((models[i] - models[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(own[: max(n - byzantine - 2, 1)]))
    return scores


@ROBUST
@pytest.mark.parametrize("false", [1e3, -1e9, 1e300, np.inf, -np.inf, np.nan])
def test_a_false_upload_moves_a_robust_rule_no_further_than_the_honest_models_reach(rule, false):
    models, _ = cases(4)
    models[3] = false
    found, honest = rule(models, np.full(9, 1 / 9)), np.delete(models, 3, 0)
    assert (found >= honest.min(0)).all()
    assert (found <= honest.max(0)).all()


def test_a_false_upload_carries_the_average_away():
    models, weights = cases(4)
    models[3] = 1e9
    assert (np.abs(average(models, weights)) > 1e6).all()
    models[3] = np.nan
    with pytest.raises(ValueError, match="CoordinateMedian"):
        average(models, weights)


def test_more_false_uploads_than_allowed_are_an_error_where_they_show():
    models, weights = cases(5)
    models[:5] = np.inf
    for rule in (
        coordinate_median,
        lambda m, w: trimmed_mean(m, w, 0.1),
        lambda m, w: krum(m, w, 1, 6),
    ):
        with pytest.raises(ValueError, match="not finite"):
            rule(models, weights)


@EVERY
@pytest.mark.parametrize(
    ("models", "weights"),
    [
        (np.zeros(3), np.ones(3)),
        (np.zeros((9, 2)), np.ones(8)),
        (np.zeros((9, 2)), -np.ones(9)),
        (np.zeros((9, 2)), np.zeros(9)),
        (np.zeros((9, 2)), np.full(9, np.nan)),
        (np.zeros((0, 2)), np.ones(0)),
    ],
)
def test_bad_input_is_refused(rule, models, weights):
    with pytest.raises(ValueError, match=r"models|weights"):
        rule(models, weights)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bf.TrimmedMean(0.5),
        lambda: bf.TrimmedMean(-0.1),
        lambda: bf.TrimmedMean(float("nan")),
        lambda: bf.TrimmedMean(True),
        lambda: bf.Krum(-1),
        lambda: bf.Krum(1.5),  # type: ignore[arg-type]
        lambda: bf.Krum(1, 0),
        lambda: bf.Krum(True),
        lambda: bf.Bulyan("1"),  # type: ignore[arg-type]
        lambda: krum(np.zeros((4, 2)), np.ones(4), 1),
        lambda: bulyan(np.zeros((6, 2)), np.ones(6), 1),
    ],
)
def test_settings_out_of_range(make):
    with pytest.raises(ValueError, match=r"must be|needs"):
        make()
