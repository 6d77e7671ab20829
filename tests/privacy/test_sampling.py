"""Poisson sampling: the coins, and totals of sampled answers against brute force on whole numbers
and against dp-accounting on fine grids.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from bonafed.privacy import keystream
from bonafed.privacy.accounting import (
    KINDS,
    Release,
    accounts,
    gaussian_epsilon,
    noise_for,
    total_epsilon,
)
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.keystream import taken
from bonafed.privacy.ledger import Book

KEYS = [bytes([k]) * 32 for k in range(200)]


# ---- coins


def test_a_row_is_taken_where_its_word_is_below_the_probability(monkeypatch):
    q = 0.3
    least = math.floor(q * 2**64)
    word = np.array([0, least - 1, least, 2**64 - 1], np.uint64)
    monkeypatch.setattr(keystream, "words", lambda key, first, count: word[:count])
    assert keystream.taken(b"", 4, q).tolist() == [0, 1]
    assert keystream.taken(b"", 4, 1.0).tolist() == [0, 1, 2, 3]
    assert keystream.taken(b"", 4, 2.0**-64).tolist() == [0]


@pytest.mark.parametrize("q", [0.02, 0.5, 0.9])
def test_coins_are_independent_of_each_other_and_of_how_many_rows_there_are(q):
    coins = np.zeros((len(KEYS), 300))
    for k, key in enumerate(KEYS):
        coins[k, taken(key, 300, q)] = 1
        assert [i for i in taken(key, 300, q) if i < 47] == taken(key, 47, q).tolist()
    sd = math.sqrt(q * (1 - q))
    assert abs(coins.mean() - q) < 4 * sd / math.sqrt(coins.size)
    seldom = 4.5 * sd / math.sqrt(len(KEYS))
    assert np.abs(coins.mean(0) - q).max() < seldom + 0.02  # of a row
    assert abs(coins.sum(1).var() / (300 * sd * sd) - 1) < 0.5  # of a sample's size
    beside = np.corrcoef(coins[:, :-1].ravel(), coins[:, 1:].ravel())[0, 1]
    assert abs(beside) < 4 / math.sqrt(coins.size)


# ---- totals


def brute(sigma: float, move: int, q: float, rounds: int, delta: float) -> float:
    """epsilon of discrete Gaussian answers of which a row moves each with probability q: the
    losses of all answers enumerated, the worse of a row more and a row less.
    """
    n = np.arange(-math.ceil(14 * sigma), math.ceil(14 * sigma) + move + 1)
    one = np.exp(-(n**2) / (2 * sigma**2))
    other = np.exp(-((n - move) ** 2) / (2 * sigma**2))
    whole = one.sum()
    P, Q = ((1 - q) * one + q * other) / whole, one / whole
    worst = 0.0
    for a, b in ((P, Q), (Q, P)):
        loss, share = np.log(a / b), a
        sums = functools.reduce(np.add.outer, [loss] * rounds).ravel()
        shares = functools.reduce(np.multiply.outer, [share] * rounds).ravel()
        low, high = 0.0, float(sums.max())
        for _ in range(40):
            middle = (low + high) / 2
            over = float((shares * np.maximum(-np.expm1(middle - sums), 0)).sum()) > delta
            low, high = (middle, high) if over else (low, middle)
        worst = max(worst, low)
    return worst


@pytest.mark.parametrize(
    ("sigma", "move", "q", "rounds"),
    [
        (5, 1, 0.1, 1),
        (5, 5, 0.1, 2),
        (5, 9, 0.5, 2),
        (12, 12, 0.01, 2),
        (20, 30, 0.9, 1),
        (7, 6, 0.2, 2),
    ],
)
def test_the_total_is_never_below_brute_force_on_the_discrete_gaussian(sigma, move, q, rounds):
    for delta in (1e-3, 1e-6):
        truth = brute(sigma, move, q, rounds, delta)
        noise = math.sqrt(sigma**2 - 4) / move  # what a variance of sigma^2 is planned for
        found = total_epsilon([Release("gaussian", noise, rounds, q)], delta)
        lost = brute(math.sqrt(sigma**2 - 4), move, q, rounds, delta) / truth if truth else 1.0
        assert truth <= found <= 1.01 * lost * truth + 1e-4


def reference(releases: Sequence[Release], delta: float, grid: float) -> float:
    parts = [
        pld.from_gaussian_mechanism(
            r.noise, value_discretization_interval=grid, sampling_prob=r.sampling
        ).self_compose(r.count)
        for r in releases
    ]
    return functools.reduce(lambda a, b: a.compose(b), parts).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(
    ("noise", "count", "q", "grid"),
    [(9.5, 500, 0.1, 2e-4), (1.5, 300, 0.02, 3e-4), (0.8, 5, 0.01, 2e-3), (50, 200, 0.6, 1e-4)],
)
def test_the_total_is_that_of_a_finer_grid(noise, count, q, grid):
    release = Release("gaussian", noise, count, q)
    truth, found = reference([release], 1e-6, grid), total_epsilon([release], 1e-6)
    assert truth * (1 - 1e-4) <= found <= 1.005 * truth
    whole = total_epsilon([replace(release, sampling=1.0)], 1e-6)
    assert found < whole
    assert gaussian_epsilon([release], 1e-6) is None
    totals = accounts([release], 1e-6)
    assert totals["rdp"] is not None
    assert found <= totals["rdp"]


def test_sampling_of_nearly_all_rows_costs_nearly_as_much_as_of_all():
    for noise, count in ((4.0, 3), (20.0, 60)):
        whole = total_epsilon([Release("gaussian", noise, count)], 1e-6)
        most = total_epsilon([Release("gaussian", noise, count, 1 - 1e-9)], 1e-6)
        assert most == pytest.approx(whole, rel=5e-3)


def test_sampled_answers_add_up_with_others():
    sampled, whole = Release("gaussian", 2.0, 20, 0.2), Release("gaussian", 10.0, 3)
    pure, delta = Release("laplace", 20.0, 4), 1e-5
    together = total_epsilon([sampled, whole], delta)
    assert reference([sampled, whole], delta, 2e-3) * 0.998 <= together
    assert together <= 1.01 * reference([sampled, whole], delta, 2e-3)
    everything = total_epsilon([pure, whole, sampled], delta)
    assert together < everything <= together + 4 / 20.0 + 1e-6
    halves = [replace(sampled, count=k) for k in (7, 13)]
    assert total_epsilon([halves[1], whole, pure, halves[0]], delta) == everything


def test_many_kinds_are_counted_as_fewer_and_never_as_less():
    kinds = [Release("gaussian", 20 + k, 30, 0.3 - 0.001 * k) for k in range(KINDS + 6)]
    found, truth = total_epsilon(kinds, 1e-6), reference(kinds, 1e-6, 1e-3)
    assert truth <= found <= 1.05 * truth
    assert total_epsilon(kinds[:KINDS], 1e-6) <= found
    far = [Release("gaussian", 10.0**k, 1, 0.5**k) for k in range(1, 80)]
    alone = total_epsilon([replace(r, sampling=1.0) for r in far], 1e-6)
    assert 0 < total_epsilon(far, 1e-6) <= alone * 1.001


@pytest.mark.parametrize(
    ("epsilon", "rounds", "q", "spent"),
    [
        (1.0, 500, 0.1, ()),
        (8.0, 10, 0.01, ()),
        (0.3, 40, 0.5, ()),
        (1.0, 50, 0.2, (Release("gaussian", 60.0, 100), Release("laplace", 50.0, 3))),
        (1.0, 50, 1.0, (Release("gaussian", 6.0, 100, 0.1),)),
    ],
)
def test_the_noise_keeps_the_budget_and_hardly_wastes(epsilon, rounds, q, spent):
    noise = noise_for(Budget(epsilon, 1e-6), rounds, "gaussian", spent, q)
    total = total_epsilon([*spent, Release("gaussian", noise, rounds, q)], 1e-6)
    assert 0.99 * epsilon <= total <= epsilon
    if q < 1:
        assert noise < noise_for(Budget(epsilon, 1e-6), rounds, "gaussian", spent)


def test_a_spent_budget_has_no_noise():
    spent = [Release("gaussian", 3.0, 100, 0.1)]
    budget = Budget(total_epsilon(spent, 1e-6), 1e-6)
    for q in (1.0, 0.1):
        with pytest.raises(BudgetSpentError, match="is spent"):
            noise_for(budget, 10, "gaussian", spent, q)


def test_what_is_not_accounted_for_is_refused():
    for bad in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="sampling must be > 0 and at most 1"):
            Release("gaussian", 1.0, 1, bad)
    with pytest.raises(ValueError, match="must be 1 for laplace noise"):
        Release("laplace", 1.0, 1, 0.5)
    with pytest.raises(ValueError, match=r"sampling = 0\.5 needs adjacency='add-remove'"):
        noise_for(Budget(1.0, 1e-6, "replace"), 5, sampling=0.5)


def test_a_row_in_anothers_place_counts_as_if_all_rows_took_part():
    """Brute force over two rows, each with a coin of the same place: never more than that."""
    sigma, move, q = 9.0, 6, 0.3
    n = np.arange(-150, 151)
    law = {m: np.exp(-((n - m) ** 2) / (2 * sigma**2)) for m in (0, move, -move)}
    law = {m: p / p.sum() for m, p in law.items()}
    one, other = ((1 - q) * law[0] + q * law[m] for m in (move, -move))
    bound = Release("gaussian", math.sqrt(sigma**2 - 4) / move, 1, q).replacing(0.5)
    assert bound.sampling == 1
    for delta in (1e-2, 1e-4):
        epsilon = total_epsilon([bound], delta)
        assert np.maximum(one - math.exp(epsilon) * other, 0).sum() <= delta


# ---- the ledger file


def test_the_ledger_file_keeps_the_sampling_and_reads_files_without(tmp_path: Path):
    budget, book = Budget(5.0, 1e-6), Book(tmp_path / "ledger.json")
    sampled, whole = Release("gaussian", 4.0, 50, 0.1), Release("gaussian", 40.0, 50)
    first = book.open_run({"a": (sampled,)}, budget)
    second = book.open_run({"a": (whole,)}, budget)
    stored = json.loads(book.path.read_text())["runs"]
    assert stored[0]["planned"] == {"a": [["gaussian", 4.0, 50, 0.1]]}
    assert stored[1]["planned"] == {"a": [["gaussian", 40.0, 50]]}  # as it always was
    assert book.spent(["a"])["a"] == (sampled, whole)
    halves = [replace(sampled, noise=2.0, sampling=1.0), replace(whole, noise=20.0)]
    assert [*book.spent(["a"], adjacency="replace")["a"]] == halves
    book.reopen_run(first, budget)
    part = replace(sampled, count=20)
    assert book.close_run(first, {"a": (part,)})["a"] == (sampled,)
    assert book.close_run(second, {"a": (replace(whole, count=3),)})["a"][0].count == 3


def test_a_sampling_that_is_none_makes_a_ledger_file_unreadable(tmp_path: Path):
    for odd in ("0.5", True, 0.0, 2.0, None):
        path = tmp_path / "ledger.json"
        entries = {"a": [["gaussian", 4.0, 50, odd]]}
        run = {"id": "x", "state": "open", "planned": entries, "least": {}, "releases": entries}
        path.write_text(json.dumps({"runs": [run]}))
        with pytest.raises(ValueError, match="is not a ledger of spent budgets"):
            Book(path).runs()


def test_a_budget_in_the_ledger_file_is_kept_by_runs_of_both_kinds(tmp_path: Path):
    budget, book = Budget(1.0, 1e-6), Book(tmp_path / "ledger.json")
    noise = noise_for(Budget(0.6, 1e-6), 30, sampling=0.2)
    book.open_run({"a": (Release("gaussian", noise, 30, 0.2),)}, budget)
    with pytest.raises(BudgetSpentError, match="would bring client a to epsilon"):
        book.open_run({"a": (Release("gaussian", noise, 300, 0.2),)}, budget)
    more = noise_for(budget, 30, "gaussian", book.spent(["a"])["a"])
    book.open_run({"a": (Release("gaussian", more, 30),)}, budget)
    assert 0.99 < total_epsilon(book.spent(["a"])["a"], 1e-6) <= 1
