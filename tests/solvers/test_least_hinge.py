"""The least mean hinge loss lies between its bounds, which are close."""

import numpy as np
import pytest
from scipy.optimize import linprog

from bonafed.solvers.smooth.least_hinge import NEAR, least_hinge

KINDS = (
    "normal",
    "whole numbers",
    "units",
    "rare ones",
    "equal columns",
    "equal rows",
    "offsets",
    "heavy tails",
)


def table(seed):
    """Rows y_i (x_i, 1) of one of the kinds, of two classes that are more or less mixed."""
    rng, kind = np.random.default_rng(seed), KINDS[seed % len(KINDS)]
    n, d = int(rng.choice([1, 2, 5, 10, 30, 80, 200])), int(rng.choice([0, 1, 2, 5, 8, 40]))
    X = rng.normal(size=(n, d))
    if kind == "whole numbers":
        X = rng.integers(0, 3, (n, d)).astype(float)
    elif kind == "units":
        X *= 10.0 ** rng.integers(-8, 9, d)
    elif kind == "rare ones":
        X = (X > 1).astype(float)
    elif kind == "equal columns":
        X[:, d // 2 :] = X[:, : d - d // 2] * rng.integers(0, 2)
    elif kind == "equal rows":
        X = np.repeat(X[: (n + 1) // 2], 2, 0)[:n]
    elif kind == "offsets":
        X += 1e4
    elif kind == "heavy tails":
        X = np.exp(2 * X)
    score = X / (np.abs(X).max(0) + 1e-300) @ rng.normal(size=d)
    score = score + rng.choice([0.01, 0.3, 3.0]) * rng.normal(size=n)
    y = np.where(score > np.quantile(score, rng.choice([0.5, 0.8, 0.95])), 1.0, -1.0)
    return y[:, None] * np.column_stack([X, np.ones((n, int(rng.random() < 0.7)))])


def by_a_program(Z):
    """The largest mean a with 0 <= a <= 1 and sum_i a_i z_i = 0."""
    Z = Z / np.maximum(np.abs(Z).max(0), 1e-300)
    equal = {"A_eq": Z.T, "b_eq": np.zeros(Z.shape[1])} if Z.shape[1] else {}
    return -linprog(-np.ones(len(Z)) / len(Z), bounds=(0, 1), **equal).fun


@pytest.mark.parametrize("part", range(8))
def test_the_bounds_enclose_what_a_linear_program_finds_and_are_close(part):
    for seed in range(part, 480, 8):
        Z = table(seed)
        upper, lower = least_hinge(Z)
        assert 0 <= lower <= upper + 1e-15 <= 1 + 1e-12, seed
        assert upper - lower <= NEAR, seed
        assert by_a_program(Z) == pytest.approx(upper, abs=1e-6 if part == 7 else 1e-8), seed


def test_separated_classes_have_none_and_a_sum_of_rows_of_zero_has_all():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    assert least_hinge(np.sign(X[:, :1]) * X)[1] == 0.0
    upper, lower = least_hinge(np.concatenate([X, -X]))
    assert lower == pytest.approx(1.0, abs=NEAR)
    assert upper == 1.0


def test_an_upper_bound_that_is_enough_ends_the_search():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 3)) + 0.3
    upper, lower = least_hinge(Z)
    some, below = least_hinge(Z, 1.2 * upper)
    assert upper < some < 1.2 * upper
    assert below < lower - NEAR


def test_of_a_hard_table_both_are_bounds_all_the_same():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        Z = rng.standard_cauchy((100, 4)) ** 3
        upper, lower = least_hinge(Z)
        assert lower <= upper
        value = by_a_program(Z)  # of which HiGHS is sure to 1e-3 here
        assert lower - 1e-3 <= value <= upper + 1e-3
