"""Rows of length 1 from public numbers, in schemas, federations and predictions alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import bonafed as bf
from bonafed.data.schema import Schema, declared_schema, middles, unit_rows

X = np.array([[3.0, 4.0], [0.0, 0.0], [1e200, -1e200], [1e-200, 0.0], [-5.0, 12.0]])
UNIT = np.array([[0.6, 0.8], [0, 0], [0.5**0.5, -(0.5**0.5)], [1, 0], [-5 / 13, 12 / 13]])


def test_rows_have_length_one_and_zeros_stay() -> None:
    np.testing.assert_allclose(unit_rows(X), UNIT, rtol=1e-15)
    thin = unit_rows(sparse.csr_array(X))
    np.testing.assert_allclose(thin.toarray(), UNIT, rtol=1e-15)
    assert sparse.issparse(thin)
    moved = unit_rows(2.0 * X[[0, 4]] + [1.0, -1.0], centre=[1.0, -1.0], scale=2.0)
    np.testing.assert_allclose(moved, UNIT[[0, 4]], rtol=1e-15)


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    rows = np.random.default_rng(0).standard_normal((7, 5))
    whole = unit_rows(rows, 0.3, 0.7)
    for i in range(7):
        np.testing.assert_array_equal(unit_rows(rows[i : i + 1], 0.3, 0.7)[0], whole[i])


def test_what_is_refused() -> None:
    for scale in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="scale > 0"):
            unit_rows(X, 0.0, scale)
    with pytest.raises(ValueError, match=r"sparse rows cannot be centred.*\(-1, 1\)"):
        unit_rows(sparse.csr_array(X), 0.5)
    wrong = [(1.0, 0.0), (0.0, np.inf), 3.0, (0.0, 1.0, 2.0), ([0, 0, 0], 1.0), ("a", "b")]
    for ranges in (*wrong, ([0.0, 1.0], [1.0, 1.0])):
        with pytest.raises(ValueError, match=r"ranges must be a pair \(low, high\)"):
            middles(ranges, 2)  # type: ignore[arg-type]


def test_a_declared_schema_makes_unit_rows_of_every_table() -> None:
    declared = {"age": {"min": 20, "max": 80}, "ward": {"categories": ["a", "b"]}}
    schema = declared_schema(["age", "ward"], declared, "ill", unit=True)
    table = {"age": np.array([80.0, 50.0, 35.0]), "ward": np.array(["a", "b", "b"], object)}
    expected = [[0.5**0.5, 0.5**0.5, 0], [0, 0, 1], [-0.5 / 1.25**0.5, 0, 1 / 1.25**0.5]]
    np.testing.assert_allclose(schema.transform(table), expected, rtol=1e-15)
    again = Schema.from_dict(schema.to_dict())
    assert again == schema
    assert again.unit
    assert not schema.fitted  # so that private runs take it
    plain = declared_schema(["age", "ward"], declared, "ill")
    assert "unit" not in plain.to_dict()
    np.testing.assert_allclose(plain.transform(table)[:, 0], [1.0, 0.5, 0.25])


def test_predictions_on_tables_scale_rows_as_the_training_did() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 10, (400, 2))
    y = np.where(rows[:, 0] > rows[:, 1], "ill", "well")
    tables = {
        name: {"u": rows[part, 0], "v": rows[part, 1], "state": y[part]}
        for name, part in {"north": slice(0, 200), "south": slice(200, 400)}.items()
    }
    ranges = {"min": 0, "max": 10}
    schema = declared_schema(
        ["u", "v"], {"u": ranges, "v": ranges}, "state", ["ill", "well"], unit=True
    )
    fed = bf.Federation.from_tables(tables, "state", schema=schema)
    for part in fed.X:
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1.0)
    problem = bf.Problem(bf.Logistic(), bf.Linear(False), privacy=bf.Budget(3.0, 1e-5))
    method = bf.PrivateSGD(max_rounds=20, bound=1.0, noise="simulation")
    solution = bf.solve(problem, fed, algorithm=method)
    by_hand = unit_rows(rows, 5.0, 5.0) @ solution.w
    found = solution.decision_function({"u": rows[:, 0], "v": rows[:, 1]})
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)
    assert np.mean((by_hand > 0) == (y == "well")) > 0.9


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_row_has_the_same_bits_whatever_is_around_it(order):
    X = np.asarray(np.random.default_rng(3).standard_normal((7, 133)), order=order)
    whole = unit_rows(X, 0.1, 3.0)
    for i in range(7):
        alone = np.asarray(X[i : i + 1], order=order)
        assert unit_rows(alone, 0.1, 3.0).tobytes() == whole[i].tobytes()
