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


@pytest.mark.parametrize(
    ("asked", "shown"), [([], ["auc", "price"]), (["auc"], ["auc"]), (["price"], ["price"])]
)
def test_the_script_shows_what_is_asked(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], shown: list[str]
) -> None:
    seen: list[str] = []

    def show_auc(only: str) -> bool:
        seen.append("auc")
        return True

    monkeypatch.setattr(defaults, "show_auc", show_auc)
    monkeypatch.setattr(defaults, "show_price", lambda only: seen.append("price"))
    monkeypatch.setattr(sys, "argv", ["defaults.py", *asked])
    assert defaults.main() == 0
    assert seen == shown
