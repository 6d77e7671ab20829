"""Integer sums of clipped gradients: what a row counts for, exactly, whatever is around it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import LOSSES, planned
from scipy import sparse

from bonafed.algorithms.federated.private import integer_gradient
from bonafed.algorithms.federated.private.integer_gradient import IntegerRows
from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.arrays import Block
from bonafed.data.federation import Federation
from bonafed.privacy.budget import Budget
from bonafed.problem.losses import Logistic, Multinomial, SmoothHinge
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem

# rows, features, classes; tiles of 96, of a vector of columns or more, and more classes than one
SHAPES = {"few": (7, 3, 3), "tile": (96, 5, 10), "two tiles": (101, 40, 17), "wide": (250, 9, 62)}


def table(
    loss: str, shape: str, seed: int = 0, single: bool = False
) -> tuple[Problem, Federation, np.ndarray]:
    """A problem, the rows of one client, and a model that is certain of some of them."""
    rng = np.random.default_rng(seed)
    (m, d, K), (function, predictor) = SHAPES[shape], LOSSES[loss]
    several = isinstance(function, Multinomial)
    X = rng.standard_normal((m, d)) * rng.choice([0.01, 1.0, 30.0], (m, 1))
    classes = list(range(K)) if several else [0, 1]
    real = function.targets == "real"
    y = rng.standard_normal(m) * 3 if real else rng.choice(classes, m)
    fed = Federation(("a",), (X,), (y,), classes=None if real else classes)
    problem = Problem(function, predictor, privacy=Budget(2.0, 1e-4, sizes=9))
    concrete, data = problem.at(fed.single() if single else fed)
    D = concrete.predictor.dimension(d)
    # the exponential loss grows beyond all numbers
    return concrete, data, rng.standard_normal(D) * (0.01 if loss == "exponential" else 1.0)


def plan(problem: Problem, fed: Federation, **options: Any) -> Mechanism:
    return planned(PrivateADMM(max_rounds=3, **{"clip": 0.7} | options), problem, fed)[0].plan


def block(fed: Federation, rows: Any = slice(None), thin: bool = False) -> Block:
    """Those rows of the client, and only those, in that order."""
    whole = fed.block(0)
    X, y = np.asarray(whole.X)[0, rows], whole.y[0, rows]
    share = np.full((1, len(y)), 1 / max(len(y), 1))
    kept = sparse.csr_array(X) if thin else np.ascontiguousarray(X)[None]
    return Block(kept, y[None], share, np.array([0]), ("a",))


def total(problem: Problem, mechanism: Mechanism, data: Block, v: np.ndarray) -> np.ndarray:
    found = IntegerRows.of(problem, mechanism, data, 0).gradient(problem, mechanism, v)
    assert found.dtype == np.int64
    return found


def by_hand(problem: Problem, mechanism: Mechanism, data: Block, v: np.ndarray) -> np.ndarray:
    """The sum of clipped gradients in floating point, one row at a time."""
    order, sums = 1 if mechanism.kind == "laplace" else 2, np.zeros_like(v)
    for x, y in zip(np.asarray(data.X, float)[0], data.y[0], strict=True):
        x = x * min(1.0, mechanism.bound / np.linalg.norm(x, order))
        x = np.append(x, 1.0) if problem.predictor.intercept else x
        p = x @ v.reshape(len(x), -1)
        several = isinstance(problem.loss, Multinomial)
        r = problem.loss.gradient(p if several else p[0], np.asarray(y))
        g = np.outer(x, r).ravel()
        sums += g * min(1.0, mechanism.clip / max(np.linalg.norm(g, order), 1e-300))
    return sums


WAYS = {
    "gaussian": {},
    "laplace": {"mechanism": "laplace"},
    "bound": {"bound": 1.3},
    "bound, laplace": {"bound": 1.3, "mechanism": "laplace"},
    "hardly clipped": {"clip": 100.0},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_the_clipped_gradient_on_a_grid(loss, shape, way):
    for single in (False, True):
        problem, fed, v = table(loss, shape, single=single)
        it = plan(problem, fed, **WAYS[way])
        data = block(fed)
        found = total(problem, it, data, v) * (it.clip / it.steps)
        expected = by_hand(problem, it, data, v)
        # a row's direction and its residuals are rounded by half a step, and shortened to fit
        grid = it.grid(int(np.argmax(it.weight)))
        step = it.clip * grid.direction / it.steps * (2.0 if it.norm == 2 else 3.0)
        direction = 2.0 * it.clip * math.sqrt(fed.n_features) / grid.direction
        assert np.abs(found - expected).max() <= data.y.size * (step + direction)
        typical = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        usual = 0.05 if it.single else 5e-3 if it.kind == "laplace" else 2e-3
        assert typical < usual or way == "hardly clipped"


@pytest.mark.parametrize(
    ("loss", "shape", "thin", "way"),
    # every pair of two of them
    [
        (loss, shape, thin, ("gaussian", "laplace", "bound")[(i + j + thin) % 3])
        for i, loss in enumerate(LOSSES)
        for j, shape in enumerate(SHAPES)
        for thin in (False, True)
    ],
)
def test_a_row_counts_for_the_same_integers_wherever_it_lies(loss, shape, thin, way):
    """The sum of the rows one by one, of a permutation and of two parts are equal to the bit, and
    no row counts for more than the grid's steps.
    """
    problem, fed, v = table(loss, shape, 1, single=shape == "two tiles")
    it, m = plan(problem, fed, **WAYS[way]), SHAPES[shape][0]
    whole = total(problem, it, block(fed, thin=thin), v)
    alone = [total(problem, it, block(fed, [i], thin), v) for i in range(m)]
    assert (sum(alone) == whole).all()
    for row in alone:
        exact = [int(entry) for entry in row]
        if it.kind == "laplace":
            assert sum(map(abs, exact)) <= it.steps
        else:
            assert sum(entry * entry for entry in exact) <= it.steps**2
    order = np.random.default_rng(2).permutation(m)
    assert (total(problem, it, block(fed, order, thin), v) == whole).all()
    parts = [total(problem, it, block(fed, rows, thin), v) for rows in (order[:5], order[5:])]
    assert (parts[0] + parts[1] == whole).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_is_the_product_of_the_rows_numbers_in_64_bits(shape):
    """Of each row u q', of whatever rows, in any number of them."""
    problem, fed, v = table("multinomial", shape, 3, single=True)
    it = plan(problem, fed)
    rows, m = IntegerRows.of(problem, it, block(fed), 0), SHAPES[shape][0]
    assert it.single
    assert rows.U.dtype == np.int16
    U = rows.U[:m].astype(np.int64)
    assert np.abs(U).max() <= rows.grid.direction
    assert ((U**2).sum(1) == rows.size[:m]).all()
    most, each = np.abs(U).argmax(1), np.zeros((m, len(v) // U.shape[1]), np.int64)
    for i in range(m):
        alone = rows.of_rows(np.array([i])).gradient(problem, it, v).reshape(U.shape[1], -1)
        each[i] = alone[most[i]] // U[i, most[i]]
        np.testing.assert_array_equal(alone, np.outer(U[i], each[i]))
    rng = np.random.default_rng(4)
    for count in (0, 1, 15, 16, 97, 1000):
        at = rng.integers(0, m, count)
        found = rows.of_rows(at).gradient(problem, it, v)
        np.testing.assert_array_equal(found, (U[at].T @ each[at]).ravel())


@pytest.mark.parametrize("count", [16_320, 16_321, 40_000])
def test_a_sum_of_more_rows_than_32_bits_hold_is_exact(count):
    """Where every row counts for nearly all its steps in one entry."""
    problem, fed, _ = table("multinomial", "two tiles", single=True)
    data, v = block(fed), np.zeros(problem.predictor.dimension(fed.n_features))
    X = np.zeros((1, count, fed.n_features), np.float32)
    X[0, :, 0] = 1e6
    many = Block(X, np.full((1, count), 5.0), np.full((1, count), 1.0), data.index, data.names)
    one = Block(X[:, :1], np.full((1, 1), 5.0), np.ones((1, 1)), data.index, data.names)
    it = plan(problem, fed)
    alone = total(problem, it, one, v)
    assert 40_000 * int(np.abs(alone).max()) > 2**32
    assert np.abs(alone).max() > 0.9 * it.steps
    np.testing.assert_array_equal(total(problem, it, many, v), count * alone)


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_beyond_all_numbers_count_for_nothing_and_huge_ones_for_the_clip(
    loss, mechanism, thin
):
    problem, fed, v = table(loss, "few")
    it, data = plan(problem, fed, mechanism=mechanism), block(fed)
    plain = total(problem, it, block(fed, thin=thin), v)
    for odd in (np.nan, np.inf, -np.inf, 1.7e308, 1e149, 1e-320, 0.0):
        X = np.asarray(data.X)[0].copy()
        X[2] = [odd, 1e3, -odd]
        changed = replace(data, X=sparse.csr_array(X) if thin else X[None])
        for model in (v, v * 1e300):
            found = total(problem, it, changed, model)
            others = total(problem, it, block(fed, [0, 1, 3, 4, 5, 6], thin), model)
            one = [int(entry) for entry in found - others]
            norm = sum(map(abs, one)) if mechanism == "laplace" else math.hypot(*map(float, one))
            assert norm <= it.steps * (1 + 1e-12)
            if not np.isfinite(odd):
                assert norm == 0
    assert np.abs(plain).max() > 0


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("loss", ["multinomial", "logistic", "smooth hinge"])
def test_the_shortest_and_the_longest_rows_count_for_no_more_than_the_clip(loss, mechanism, thin):
    """Without an intercept, and where a factor that brings them onto the grid is no number."""
    rng = np.random.default_rng(0)
    function = {"multinomial": Multinomial(), "logistic": Logistic(), "smooth hinge": SmoothHinge()}
    predictor = (
        Softmax(fit_intercept=False) if loss == "multinomial" else Linear(fit_intercept=False)
    )
    problem = Problem(function[loss], predictor, privacy=Budget(2.0, 1e-4, sizes=9))
    fed = Federation(("a",), (rng.standard_normal((2, 3)),), (np.array([0, 1]),))
    problem, fed = problem.at(fed)
    it, v = plan(problem, fed, mechanism=mechanism), rng.standard_normal(6)
    for length in (5e-324, 1e-310, 1e-305, 1e-150, 1e20, 1e30, 1e38, 1e41, 1e100, 1e160, 1e307):
        for x in np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [1.0, -1.0, 1.0]]) * length:
            X = sparse.csr_array(x[None]) if thin else x[None, None]
            for y in np.unique(fed.y[0]).astype(float):
                data = Block(X, np.array([[y]]), np.ones((1, 1)), np.array([0]), ("a",))
                for model in (v, v * 1e-160, v * 740 / length if length > 1e-300 else v):
                    model = model[: problem.predictor.dimension(3)]
                    one = [int(entry) for entry in total(problem, it, data, model)]
                    if mechanism == "laplace":
                        assert sum(map(abs, one)) <= it.steps
                    else:
                        assert sum(entry * entry for entry in one) <= it.steps**2


def test_a_long_row_that_is_badly_classified_attains_the_clip():
    problem, fed, v = table("multinomial", "wide")
    X = np.asarray(fed.block(0).X)[0, :1] * 1e6
    data = Block(X[None], np.array([[0.0]]), np.ones((1, 1)), np.array([0]), ("a",))
    certain = v.reshape(9, 62).copy()
    certain[:, 5] = X[0]  # of another class
    for options, least in (({}, 0.99), ({"mechanism": "laplace"}, 0.999)):
        it = plan(problem, fed, **options)
        found = total(problem, it, data, certain.ravel()).astype(float)
        norm = np.abs(found).sum() if it.kind == "laplace" else np.linalg.norm(found)
        assert least < norm / it.steps <= 1


def test_no_rows_are_a_sum_of_zero():
    for loss in LOSSES:
        problem, fed, v = table(loss, "few")
        for thin in (False, True):
            nothing = total(problem, plan(problem, fed), block(fed, slice(0), thin), v)
            assert nothing.tolist() == [0] * len(v)


def test_many_features_keep_the_finer_grid():
    """Directions of so many features would round to zero on the coarse one."""
    rng = np.random.default_rng(0)
    problem = Problem(
        Multinomial(), Softmax(fit_intercept=False), privacy=Budget(2.0, 1e-4, sizes=9)
    )
    steps = []
    for d in (4096, 4097):
        fed = Federation(("a",), (rng.choice([-1.0, 1.0], (4, d)),), (np.array([0, 1, 1, 0]),))
        concrete, data = problem.at(fed)
        it = plan(concrete, data)
        steps.append(it.steps)
        found = total(concrete, it, block(data), np.zeros(2 * d)) * (it.clip / it.steps)
        expected = by_hand(concrete, it, block(data), np.zeros(2 * d))
        assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    assert steps == [2**17, 2**28]


@pytest.mark.parametrize("d", [1, 2, 7, 784])
def test_the_model_is_rounded_class_by_class(d):
    """The pairs that predictions multiply: within half a step of the largest entry over 2^15 - 1,
    zeros of tiny classes, and no number for a class that has none.
    """
    rng = np.random.default_rng(d)
    Z = rng.standard_normal((d, 6)).astype(np.float32) * np.float32([1, 1e6, 1e-40, 0, 1, 1])
    Z[d // 2, 4], Z[0, 5] = np.inf, np.nan
    W = np.zeros(((d + 1) // 2, 16), np.int32)
    unit = integer_gradient._rounded_model(Z, W)
    numbers = W.view(np.int16).reshape(len(W), 16, 2).transpose(0, 2, 1).reshape(-1, 16)
    assert np.isnan(unit[4:]).all()
    for k in range(4):
        off = max(0.51 * abs(Z[:, k]).max() / (2**15 - 1), 1e-30)
        np.testing.assert_allclose(numbers[:d, k] * unit[k], Z[:, k], rtol=1e-6, atol=off)
    assert not numbers[d:].any()
    assert not numbers[:, 6:].any()
