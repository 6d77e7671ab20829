"""The verdict claims what chance does not explain and a person would care about, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from problems import PLAIN

import bonafed as bf
from bonafed.arrays import Array
from bonafed.runs.comparison import (
    FLOOR_OF_LOSS,
    FLOOR_OF_ROWS,
    effects,
    evaluate,
    sign_test,
    smallest_share,
    verdict,
)
from bonafed.runs.evaluation import Judged, measure
from bonafed.runs.files import Record

LOSS = bf.Logistic()
NOTHING = "No difference that these data could show. "


def judged(score: Array, y: Array) -> Judged:
    """Rows with these scores and targets -1 and 1."""
    return Judged(LOSS.value(score, y), (score * y > 0).astype(float), y, score)


def compared(scores: Mapping[str, Array], y: Array, sets: int = 1) -> list[str]:
    """The verdict over models given by their scores on the rows of every set."""
    main, *others = scores
    parts, tests = np.array_split(np.arange(len(y)), sets), 2 * len(others) * sets
    measures: list[Record] = []
    pairs: list[Record] = []
    for k, rows in enumerate(parts):
        of = {model: judged(score[rows], y[rows]) for model, score in scores.items()}
        for model, row in of.items():
            numbers = {"n": len(rows), "loss": row.loss.mean(), "accuracy": row.merit.mean()}
            numbers |= {"worst_accuracy": numbers["accuracy"]}
            measures.append({"set": f"set {k}", "model": model, **numbers})
        for model in others:
            names = {"set": f"set {k}", "model": main, "other": model}
            pairs.append({**names, **effects(LOSS, of[main], of[model], tests)})
    return verdict(measures, pairs)


def rows(n: int, seed: int) -> tuple[Array, Array]:
    """Scores and targets that follow them."""
    rng = np.random.default_rng(seed)
    score = 2 * rng.normal(size=n)
    return score, np.where(rng.random(n) < 1 / (1 + np.exp(-score)), 1.0, -1.0)


# ---------------------------------------------------------------------------------- what is claimed


def test_an_effect_of_twice_the_floor_is_claimed_in_rows() -> None:
    score, y = rows(20_000, 0)
    right = np.flatnonzero(score * y > 0)[: round(2 * FLOOR_OF_ROWS * len(y))]
    worse = score.copy()
    worse[right] *= -1
    assert compared({"new": score, "old": worse}, y)[0].startswith(
        "Yes. New was compared with old on rows"
    )
    assert compared({"new": worse, "old": score}, y)[0].startswith("No, it hurt. ")
    # half of the floor is no effect, however certain
    half = score.copy()
    half[right[: len(right) // 4]] *= -1
    assert sign_test(len(right) // 4, 0) < 1e-9
    assert compared({"new": score, "old": half}, y)[0].startswith(NOTHING)


def test_an_effect_of_twice_the_floor_is_claimed_in_loss() -> None:
    score, y = rows(5_000, 1)
    fit = judged(score, y).loss.mean()
    factor = 1.0
    while judged(factor * score, y).loss.mean() < (1 + 2 * FLOOR_OF_LOSS) * fit:
        factor += 0.01  # the same classes, with too large scores
    headline = compared({"new": score, "old": factor * score}, y)[0]
    assert headline.startswith("Only in part: its mean loss is lower. ")
    assert "How often it is right is not measurably different; its mean loss is lower" in headline
    headline = compared({"new": factor * score, "old": score}, y)[0]
    assert headline.startswith("No, its mean loss is higher. ")


def test_a_difference_below_the_floor_is_not_claimed_however_certain() -> None:
    score, y = rows(5_000, 2)
    # every row loses a third of a percent more
    pair = effects(LOSS, judged(score, y), judged(score, y)._replace(loss=_more(score, y, 0.003)))
    assert pair["less"] > 5 * pair["margin"]
    measures = [
        {"set": "s", "model": m, "n": 5000, "loss": 0.4, "accuracy": 0.8, "worst_accuracy": 0.8}
        for m in ("new", "old")
    ]
    said = verdict(measures, [{"set": "s", "model": "new", "other": "old", **pair}])
    assert said[0].startswith(NOTHING)
    assert "no difference that these data could show (-0.00" in said[1]


def _more(score: Array, y: Array, share: float) -> Array:
    loss = judged(score, y).loss
    return loss + share * loss.mean()


# ------------------------------------------------------------------------------ what is not claimed


@pytest.mark.parametrize("kind", ["alike", "noise"])
def test_without_effect_at_most_one_run_in_twenty_claims_one(kind: str) -> None:
    """Two hundred runs of two other models on three sets: models of equal merit that err on
    different rows, or that differ by noise in every score.
    """
    claims = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        _, y = rows(450, seed)
        if kind == "alike":
            scores = [np.where(rng.random(450) < 0.8, y, -y) for _ in range(3)]
        else:
            signal = y + rng.normal(size=450)
            scores = [signal + 0.3 * rng.normal(size=450) for _ in range(3)]
        models = dict(zip(["new", "one", "two"], scores, strict=True))
        claims += not compared(models, y, sets=3)[0].startswith(NOTHING)
    assert claims <= 10


def models_of(kind: str) -> tuple[bf.Problem, bf.Federation, Array]:
    """A problem of each kind of verdict, with rows and a model."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3))
    y = np.where(X[:, 0] + rng.normal(size=300) > 0, 1, -1)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 100))
    problem = {
        "robust": bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.1)),
        "radius 0": bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.0)),
        "rank": bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.5)),
        "constrained": bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.NeymanPearson(1, 0.9)),
    }[kind]
    return problem, fed, np.array([1.0, 0.2, -0.1])


@pytest.mark.parametrize("kind", ["robust", "radius 0", "rank", "constrained"])
@pytest.mark.parametrize("noise", [0.0, 4e-12])
def test_models_that_agree_to_rounding_claim_nothing(kind: str, noise: float) -> None:
    problem, fed, w = models_of(kind)
    models = {"new": w + noise, "ERM": w, "ERM again": w - noise}
    found = evaluate(problem, models, {"held-out rows": fed, "others": fed})
    headline, *sentences = found["verdict"]
    if kind == "constrained":
        assert "ERM and ERM again meet as many." in headline
    else:
        assert headline.startswith(NOTHING)
        assert "The models agree to rounding." in headline
    assert not any(word in headline for word in ("hurt", "lower.", "higher.", "The other"))
    claims = ("helped", "hurt", "lower", "higher", "What it costs")
    assert not any(word in sentence for sentence in sentences for word in claims)


def test_models_that_agree_to_rounding_at_the_border_of_the_classes_claim_nothing() -> None:
    """A constant score of 0 up to rounding puts every row into one class or the other."""
    fed = models_of("robust")[1]
    problem = bf.Problem(bf.Hinge(), bf.Linear(fit_intercept=True))
    models = {"new": np.array([0, 0, 0, 4e-12]), "ERM": np.array([0, 0, 0, -4e-12])}
    accuracies = [measure(problem, w, fed)["accuracy"] for w in models.values()]
    assert abs(accuracies[0] - accuracies[1]) > 2 * FLOOR_OF_ROWS
    assert evaluate(problem, models, {"held-out rows": fed})["verdict"][0].startswith(NOTHING)


def test_regressions_that_agree_to_rounding_claim_nothing_whatever_the_unit() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    for unit, shift in ((1.0, 0.0), (1e-3, 0.0), (1.0, 300.0)):
        y = unit * (X[:, 0] + 0.5 * rng.normal(size=200)) + shift
        fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b"], 100))
        problem = bf.Problem(bf.Squared(), bf.Linear(fit_intercept=True))
        w = np.array([unit, 0.0, shift])
        for noise, claims in ((1e-12 * (unit + shift), False), (0.3 * unit, True)):
            models = {"new": w, "ERM": w + np.array([noise, 0.0, 0.0])}
            said = evaluate(problem, models, {"held-out rows": fed})["verdict"][0]
            assert said.startswith(NOTHING) is not claims, said


# -------------------------------------------------------------------------- what could have shown


@pytest.mark.parametrize(("single", "n"), [(0, 50), (7, 300), (120, 900), (2000, 10_000)])
@pytest.mark.parametrize("tests", [1, 12])
def test_the_smallest_share_that_could_show_is_the_smallest_that_does(
    single: int, n: int, tests: int
) -> None:
    level = 0.05 / tests
    share = smallest_share(single, n, level)
    net = round(share * n)
    d = max(single, net)
    assert share >= FLOOR_OF_ROWS
    if share > FLOOR_OF_ROWS:
        assert sign_test((d + net) // 2, (d - net) // 2) < level
        assert sign_test((d + net) // 2 - 1, (d - net) // 2 + 1) >= level or d == net
        assert d > net or d == single or sign_test(d - 1, 0) >= level


def test_nothing_shown_comes_with_what_could_have_been() -> None:
    score, y = rows(400, 3)
    headline = compared({"new": score, "old": score}, y)[0]
    # seven rows under one model alone have a sign test below .05 / 2
    assert "would have shown is 1.8 points of accuracy or 1.0 % of the mean loss. " in headline
    several = compared({"new": score, "old": score, "older": np.flip(score)}, y)[0]
    assert not several.startswith(NOTHING)


# --------------------------------------------------------------------------------------- in words


def numbers(better: int, p: float, less: float, count: int) -> tuple[list[Any], list[Any]]:
    """Measures and pairs of one model with ``count`` others."""
    others = [f"other {k}" for k in range(count)]
    row = {"set": "held-out rows", "n": 20, "loss": 0.5, "accuracy": 0.8, "worst_accuracy": 0.7}
    measures = [{**row, "model": name} for name in ("DRFL", *others)]
    pair = {"set": "held-out rows", "model": "DRFL", "better": better, "worse": 1, "p": p}
    more = {"less": less, "margin": 0.1, "tests": 2 * count, "floor": 0.005}
    return measures, [{**pair, **more, "other": name} for name in others]


@pytest.mark.parametrize(
    ("better", "p", "less", "answer", "said"),
    [
        (9, 0.01, 0.3, "Yes. ", "It is right more often; its mean loss is lower (better)."),
        (9, 0.01, 0.0, "Yes. ", "its mean loss is not measurably different."),
        (0, 0.01, -0.3, "No, it hurt. ", "less often; its mean loss is higher (worse)."),
        (9, 0.01, -0.3, "It depends. ", "more often; its mean loss is h"),
        (
            2,
            0.90,
            0.3,
            "Only in part: its mean loss is lower. ",
            "How often it is right is not measu",
        ),
        (2, 0.90, 0.0, NOTHING, "shown is 35.0 points of accuracy or 20.0 % of the mean loss."),
    ],
)
def test_one_comparison_is_described(
    better: int, p: float, less: float, answer: str, said: str
) -> None:
    headline = verdict(*numbers(better, p, less, 1))[0]
    assert headline.startswith(answer)
    assert said in headline
    assert "other" not in headline.replace("other 0", "")


def test_several_are_counted_and_the_others_named_where_there_are_some() -> None:
    measures, pairs = numbers(9, 0.01, 0.3, 2)
    headline = verdict(measures, pairs)[0]
    assert headline.startswith("Yes. ")
    assert "The other" not in headline
    assert "chance does not explain it (corrected for 4 tests) and it is above 0.5 %" in headline
    pairs[1] |= {"p": 0.9, "less": 0.0}
    headline = verdict(measures, pairs)[0]
    assert headline.startswith("Yes, in part. ")
    assert "The other comparison shows no difference that these data could show." in headline


def test_no_comparison_of_accuracy_is_no_yes() -> None:
    """The verdict over six comparisons, of which none shows more rows right and three a lower loss,
    names the loss.
    """
    measures, pairs = numbers(2, 0.9, 0.3, 6)
    for pair in pairs[3:]:
        pair["less"] = 0.0
    headline = verdict(measures, pairs)[0]
    assert headline.startswith("Only in part: its mean loss is lower. ")
    assert "How often it is right is not measurably different; its mean loss is lower" in headline
    assert "lower (better) in 3 of 6 comparisons. The other 3 comparisons show no" in headline
