"""The suite of tables of ``benchmarks/defaults.py``: its parts hold together, and a few of its
tables are judged here; the script judges all.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import defaults  # type: ignore[import-not-found]

FEW = {
    defaults.TWO: ("10 % positives", "tiny clients, 15 % positives"),
    defaults.SEVERAL: ("iris",),
    defaults.NUMBERS: ("a line, y in thousands", "heavy noise"),
}


@pytest.fixture(scope="module")
def tables() -> dict[str, list[defaults.Table]]:
    return {kind: list(make()) for kind, make in defaults.TABLES.items()}


def test_there_are_thirty_tables_of_two_classes_and_thirty_of_numbers(tables) -> None:
    for kind in (defaults.TWO, defaults.NUMBERS):
        assert len(tables[kind]) >= 30
        assert len({table.name for table in tables[kind]}) == len(tables[kind])
    rates = [min(t.y.mean(), 1 - t.y.mean()) for t in tables[defaults.TWO]]
    assert min(rates) <= 0.02
    assert max(rates) > 0.45
    smallest = [np.unique(t.groups, return_counts=True)[1].min() for t in tables[defaults.TWO]]
    assert min(smallest) == 1
    lone = next(t for t in tables[defaults.TWO] if t.name == "one-class clients")
    assert sum(np.ptp(lone.y[lone.groups == c]) == 0 for c in np.unique(lone.groups)) >= 3


@pytest.mark.parametrize("name", defaults.ESTIMATORS)
def test_defaults_are_near_the_plain_model(tables, name: str) -> None:
    for kind in defaults.ESTIMATORS[name][1]:
        for table in tables[kind]:
            if table.name in FEW[kind]:
                row = defaults.judged(name, table)
                assert row.near, row
                assert not row.constant


def test_robust_models_cost_nothing_on_clean_rows_and_gain_under_noise(tables) -> None:
    """One table at which the script's means over all tables can be seen."""
    table = next(t for t in tables[defaults.TWO] if t.name == "60 features, 500 rows")
    prices = defaults.prices("RobustClassifier", [table], seeds=(0,))
    assert list(prices) == list(defaults.SHIFTS)
    clean, noise = prices["clean"][0], prices["feature noise"][0]
    assert clean[0] < 0
    assert noise[0] < clean[0] < 0  # minus is better than scikit-learn's model


def test_a_private_model_is_near_where_rows_pay_for_its_noise() -> None:
    few, many = (defaults.larger(defaults.MADE[0], times) for times in (1, 16))
    assert len(many.y) == 16 * len(few.y) == 16 * 800
    rows = [private(table) for table in (few, many)]
    assert rows[1].near
    assert rows[0].plain - rows[0].ours > 5 * abs(rows[1].plain - rows[1].ours)


def test_a_private_model_of_one_class_is_no_constant_in_silence(tables) -> None:
    table = next(t for t in tables[defaults.TWO] if t.name == "5 % positives, weak")
    row = private(table)
    assert row.constant
    assert row.warned


def private(table: defaults.Table) -> defaults.Judged:
    return defaults.judged(defaults.PRIVATE, table)


@pytest.mark.parametrize("name", defaults.LIMITS)
def test_limits_hold_on_either_side(tables, name: str) -> None:
    """On the smallest table that has the limit; the script does so on ten tables or more."""
    limit = defaults.LIMITS[name]
    smallest = sorted(tables[limit.kind], key=lambda table: len(table.y))
    row = next(row for table in smallest if (row := defaults.held(limit, table)) is not None)
    assert row.good, row


PARTS = ["auc", "private", "limits", "price"]


@pytest.mark.parametrize("asked", [[], *([part] for part in PARTS)])
@pytest.mark.parametrize("missed", [None, "limits"])
def test_the_script_shows_what_is_asked(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], missed: str | None
) -> None:
    seen: list[str] = []
    for part in PARTS:

        def show(only: str, part: str = part) -> bool:
            seen.append(part)
            return part != missed

        monkeypatch.setattr(defaults, f"show_{part}", show)
    monkeypatch.setattr(sys, "argv", ["defaults.py", *asked])
    assert defaults.main() == int(missed in (asked or PARTS))
    assert seen == (asked or PARTS)
