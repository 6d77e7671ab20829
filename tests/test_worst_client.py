"""What rows promise of new ones at every client: the bounds against scipy, and how often they hold
for models whose true rates are known.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bonafed.measures import SEVERAL, TWO, figures_of
from bonafed.worst_client import (
    Counted,
    chances,
    in_words,
    most,
    most_of_mean,
    once,
    percent,
    promise,
    shown,
    worst_first,
)

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import worst_client as trial

TIMES = 60
ALLOWED = int(stats.binom.ppf(0.999, TIMES, trial.ERROR))  # of as many repetitions


@pytest.mark.parametrize(("k", "n", "delta"), [(0, 10, 0.05), (1, 25, 0.05), (7, 200, 0.001)])
def test_the_bound_of_a_rate_is_that_of_clopper_and_pearson(k: int, n: int, delta: float) -> None:
    assert stats.binom.cdf(k, n, most(k, n, delta)) == pytest.approx(delta)
    assert most(n, n, delta) == 1.0


@pytest.mark.parametrize("kind", trial.KINDS, ids=lambda kind: kind.name)
def test_sentence_and_table_hold_as_often_as_they_say(kind: trial.Kind) -> None:
    found = trial.seen(kind, TIMES)
    for key in trial.FIGURES:
        assert found.sentence[key] * TIMES <= ALLOWED, key
        assert found.table[key] * TIMES <= ALLOWED, key
    assert found.slack < found.bonferroni
    if kind.alike:
        assert found.denied * TIMES <= ALLOWED
    if kind.shuffled:
        assert found.slack <= trial.SLACK


def test_counting_every_row_of_a_person_would_fail() -> None:
    naive = trial.seen(trial.KINDS[-1], TIMES, by_rows=True)
    assert naive.table["accuracy"] * TIMES > ALLOWED


@pytest.mark.parametrize("law", ["beta", "coin", "constant"])
def test_the_bound_of_a_mean_holds(law: str) -> None:
    rng, missed = np.random.default_rng(3), 0
    for _ in range(300):
        x = {
            "beta": lambda: rng.beta(1, 3, 40),
            "coin": lambda: (rng.random(40) < 0.25).astype(float),
            "constant": lambda: np.full(40, 0.25),
        }[law]()
        missed += most_of_mean(x) < 0.25
    assert missed <= stats.binom.ppf(0.999, 300, 0.05)


def test_the_bound_of_a_mean_is_where_bets_reach_their_goal() -> None:
    """The bets one by one, each of what came before it."""
    losses, delta = np.random.default_rng(1).beta(1, 2, 30), 0.1
    m, wealth, best, seen = 1 - most_of_mean(losses, delta), 1.0, 1.0, []
    for x in 1 - losses:
        means = [(0.5 + sum(seen[: k + 1])) / (k + 2) for k in range(len(seen))]
        squares = sum((one - mean) ** 2 for one, mean in zip(seen, means, strict=True))
        variance = (0.25 + squares) / (len(seen) + 1)
        bet = min(np.sqrt(2 * np.log(1 / delta) / (len(losses) * variance)), 0.5 / m)
        wealth *= 1 + bet * (x - m)
        best = max(best, wealth)
        seen.append(x)
    assert best == pytest.approx(1 / delta, rel=1e-4)


def test_the_bound_of_a_mean_narrows_with_rows_and_is_one_without() -> None:
    x = np.random.default_rng(0).beta(1, 4, 4000)
    bounds = [most_of_mean(x[:n]) for n in (0, 10, 100, 1000, 4000)]
    assert bounds[0] == 1.0
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < x.mean() + 0.02


def test_chance_is_that_of_fisher_times_the_clients() -> None:
    wrong, of = np.array([5, 1, 3]), np.array([20, 40, 90])
    for i, p in enumerate(chances(wrong, of)):
        rest = wrong.sum() - wrong[i], (of - wrong).sum() - (of - wrong)[i]
        table = [[wrong[i], of[i] - wrong[i]], rest]
        assert p == pytest.approx(min(1, 3 * stats.fisher_exact(table, "greater")[1]))
    assert chances([0, 0], [10, 10]) == [1.0, 1.0]


def test_one_row_of_each_person_counts_and_all_rows_without_persons() -> None:
    who = np.array(["b", "a", "b", "c", "a", "a"])
    rows = once(6, who)
    assert sorted(who[rows]) == ["a", "b", "c"]
    assert (rows == once(6, who)).all()
    assert sorted(once(6)) == [0, 1, 2, 3, 4, 5]


def test_the_worst_client_is_one_also_where_several_are_alike() -> None:
    rows = [{"n": 50, "r": 0.5}, {"n": 20, "r": 0.5}, {"n": 9, "r": None}, {"n": 9, "r": 0.9}]
    assert [row["n"] for row in worst_first(rows, "r")] == [20, 50, 9]
    assert [row["n"] for row in worst_first(rows, "r", higher=False)] == [9, 20, 50]


def counts(*rows: tuple[int, int]) -> list[Counted]:
    """Of (wrong, all) rows, of which all are of the other class."""
    return [Counted(np.array([[n - k, k], [0, 0]])) for k, n in rows]


def test_the_sentence_is_that_of_the_numbers() -> None:
    clients = [{"client": "Hillcrest", "n": 25}, {"client": "Lakeview", "n": 100}]
    row = promise(TWO, clients, counts((1, 25), (3, 100))) | {"clients": clients}
    assert in_words(row).startswith(
        "With 95 % confidence the model is wrong in at most 18 % of new rows at each of the 2"
        " clients, if they are like its held-out ones. Hillcrest (1 wrong of 25) decides this;"
        " with 8 wrong of 200 it would be 7.6 %, since another client would then decide."
        " Likewise, each by itself: recall at least 0 %"
        " (Hillcrest, 0 of 0)"
    )
    # with 200 rows there, the other client decides: 3 wrong of 100
    assert row["promise"]["figures"]["accuracy"]["then"]["bound"] == 1 - most(3, 100)


def test_a_rounded_bound_still_holds() -> None:
    for share in np.random.default_rng(0).random(500):
        assert float(percent(share)[:-2]) <= 100 * share <= float(percent(share, up=True)[:-2])
    brier = next(figure for figure in figures_of() if figure.key == "brier")
    assert shown(brier, 0.12345) == "0.124"


def test_several_classes_have_the_bounds_of_their_accuracy_and_of_scores_up_to_two() -> None:
    clients: list[dict] = [{"client": "a"}]
    cells, scores = np.diag([10, 20, 30]), np.full(60, 0.4)
    found = promise(SEVERAL, clients, [Counted(cells, scores)], level=0.9)["promise"]
    assert found["figures"].keys() == {"accuracy", "brier"}
    assert found["figures"]["accuracy"]["bound"] == pytest.approx(0.1 ** (1 / 60))
    assert found["figures"]["brier"]["bound"] == 2 * most_of_mean(scores / 2, 1 - 0.9)
    assert "chance" not in clients[0]
