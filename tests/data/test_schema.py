import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from bonafed.data.federation import Federation
from bonafed.data.schema import Categorical, Numeric, Recipe, Schema

LAWS = settings(deadline=None, max_examples=40)


def clients(seed=0, sizes=(30, 5, 17)):
    rng = np.random.default_rng(seed)
    return {
        f"c{k}": {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(50 + 9 * k, 3, n)),
            "sex": np.array(rng.choice(["f", "m", None], n), dtype=object),
            "code": rng.integers(1, 4, n),
            "y": rng.integers(0, 2, n),
        }
        for k, n in enumerate(sizes)
    }


@pytest.mark.parametrize(
    ("scaling", "scaler"),
    [("standard", StandardScaler()), ("minmax", MinMaxScaler()), ("none", None)],
)
def test_sums_over_clients_equal_pooled_statistics(scaling, scaler):
    tables = clients()
    recipe = Recipe(scaling=scaling, categorical=("code",), indicators=True)
    schema = Schema.fit(tables, recipe, target="y")
    pooled = {
        key: np.concatenate([t[key] for t in tables.values()]) for key in ("age", "sex", "code")
    }
    X = schema.transform(pooled)
    age = pooled["age"][:, None]
    filled = SimpleImputer().fit_transform(age)
    expected = filled if scaler is None else scaler.fit(age).transform(filled)
    np.testing.assert_allclose(X[:, :1], expected, rtol=1e-12, atol=1e-13)  # sums in another order
    np.testing.assert_array_equal(X[:, 1], np.isnan(pooled["age"]))
    sex = np.where(pooled["sex"] == None, "zz", pooled["sex"])[:, None]  # noqa: E711  # elementwise
    np.testing.assert_array_equal(X[:, 2:5], OneHotEncoder(sparse_output=False).fit_transform(sex))
    np.testing.assert_array_equal(
        X[:, 5:], OneHotEncoder(sparse_output=False).fit_transform(pooled["code"][:, None])
    )
    assert schema.feature_names == (
        "age",
        "age is missing",
        "sex=f",
        "sex=m",
        "sex is missing",
        "code=1",
        "code=2",
        "code=3",
    )
    assert schema.classes == (0, 1)


@LAWS
@given(st.integers(0, 99), st.sampled_from([1e-9, 1.0, 1e9]), st.sampled_from([0.0, 1.0, 1e8]))
def test_the_standard_deviation_is_stable_far_from_zero(seed, scale, offset):
    rng = np.random.default_rng(seed)
    tables = [{"x": scale * (rng.integers(-50, 50, n) / 16 + offset)} for n in (3, 40, 9)]
    (column,) = Schema.fit(tables).columns
    pooled = np.concatenate([t["x"] for t in tables]) / scale - offset
    # x has a relative rounding error of 1e-16 (1 + offset) against a deviation of about 2
    np.testing.assert_allclose(column.scale / scale, pooled.std(), rtol=1e-14 * (10 + offset))
    np.testing.assert_allclose(column.mean / scale, pooled.mean() + offset, rtol=1e-13, atol=1e-14)


@LAWS
@given(st.integers(0, 9999), st.sampled_from(["standard", "minmax", "none"]))
def test_json_round_trip_is_exact(seed, scaling):
    tables = clients(seed)
    for table in tables.values():
        table["age"] *= 10.0 ** (seed % 30 - 15)
    schema = Schema.fit(tables, Recipe(scaling, units={"age": "years"}), target="y")
    back = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert back == schema
    np.testing.assert_array_equal(back.transform(tables["c0"]), schema.transform(tables["c0"]))


def test_constant_columns_become_zeros_not_nan():
    for scaling in ("standard", "minmax"):
        schema = Schema.fit([{"x": np.full(3, 0.1)}, {"x": np.full(4, 0.1)}], Recipe(scaling))
        assert schema.columns[0].scale == 1.0
        np.testing.assert_allclose(schema.transform({"x": np.full(2, 0.1)}), 0, atol=1e-16)


def test_unknown_categories_are_listed_or_zero():
    schema = Schema((Categorical("sex", ("f", "m")), Numeric("age", 50.0, 50.0, 10.0)), "y", (0, 1))
    table = pd.DataFrame({"sex": ["f", "x", None], "age": [60, None, 40], "other": [1, 2, 3]})
    with pytest.raises(
        ValueError, match=r"'sex' holds what .*'f', 'm'.*: 'x', a missing value in rows 1, 2"
    ):
        schema.transform(table)
    assert schema.transform(table, unknown="ignore").tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, -1]]
    with pytest.raises(ValueError, match=r"no column 'age' .* Did you mean 'Age'"):
        schema.transform({"sex": ["f"], "Age": [3.0]})
    with pytest.raises(ValueError, match="unknown must be"):
        schema.transform(table, unknown="drop")
    with pytest.raises(ValueError, match="column 'age' holds text 'old' in row 0"):
        schema.transform({"sex": ["f"], "age": ["old"]})
    with pytest.raises(ValueError, match="'age' is infinite in row 0"):
        schema.transform({"sex": ["f"], "age": [np.inf]})


def test_codes_read_as_floats_are_the_same_codes():
    schema = Schema.fit([{"code": np.array([1, 2, 2])}], Recipe(categorical=("code",)))
    assert schema.transform({"code": np.array([2.0, np.nan])}, unknown="ignore").tolist() == [
        [0, 1],
        [0, 0],
    ]


@pytest.mark.parametrize(
    ("tables", "options", "text"),
    [
        (
            [{"x": np.array(["1", "old", "3"], object)}],
            {},
            r"holds numbers, but also text such as 'old' in row 1",
        ),
        (
            [{"x": np.array(["a"], object)}, {"x": np.ones(1)}],
            {},
            "numbers at some clients, text at others",
        ),
        ([{"x": np.array([np.nan])}], {}, "no value at any client"),
        ([{"x": np.array([np.inf])}], {}, "client '0': column 'x' is infinite in row 0"),
        ([{"x": np.ones(1)}, {"z": np.ones(1)}], {}, "client '1': .* it lacks column 'x'"),
        ([{"x": np.array(list("abcd"), object)}], {"max_categories": 3}, "4 categories, more than"),
        ([{"x": np.ones(1)}], {"categorical": ("xx",)}, "no column 'xx'"),
        ([{"x": np.ones(1)}], {"scaling": "robust"}, "scaling must be one of"),
        (
            [{"x": np.array([1e200, 1.0])}],
            {},
            r"column 'x' .* absolute value that is too large \(1e\+200\) in row 0",
        ),
    ],
)
def test_tables_that_cannot_be_fitted_are_refused(tables, options, text):
    with pytest.raises(ValueError, match=text):
        Schema.fit(tables, Recipe(**options))


def test_mixed_columns_may_be_declared():
    tables = [{"x": np.array(["10", "E11"], object)}, {"x": np.array([7])}]
    assert Schema.fit(tables, Recipe(categorical=("x",))).columns[0].categories == (
        "10",
        "7",
        "E11",
    )


@pytest.mark.parametrize("data", [{}, {"version": 2}, {"version": 1, "columns": [{"kind": "odd"}]}])
def test_foreign_dictionaries_are_refused(data):
    with pytest.raises(ValueError, match="schema"):
        Schema.from_dict(data)


def test_a_federation_keeps_its_schema():
    fed = Federation.from_tables(clients(), "y", schema=Recipe())
    again = Federation.from_tables(clients(), "y", schema=Schema.from_dict(fed.schema.to_dict()))
    assert fed.feature_names == fed.schema.feature_names
    assert fed.digests() == again.digests()
    assert fed.split()[1].schema is fed.schema
    means = np.concatenate([x[:, 0] for x in fed.X])
    assert abs(means.mean()) < 1e-12  # imputed and standardised


def test_the_target_is_no_feature_and_one_feature_is_needed():
    for features, text in ((["age", "y"], "'y' is the target"), ([], "no column is left")):
        with pytest.raises(ValueError, match=text):
            Schema.fit(clients(), Recipe(), features=features, target="y")


@pytest.mark.usefixtures("not_private")
def test_categories_never_fitted_are_zeros_where_asked():
    schema = Schema.fit([{"x": np.array(["a", "b"], object), "y": np.array([0, 1])}], target="y")
    new = {"site": {"x": np.array(["c", "b"], object), "y": np.array([0, 1])}}
    with pytest.raises(ValueError, match=r"holds what is none of its categories .*: 'c' in row 0"):
        Federation.from_tables(new, "y", schema=schema)
    assert Federation.from_tables(new, "y", schema=schema, unknown="ignore").X[0].tolist() == [
        [0, 0],
        [0, 1],
    ]


def test_numbers_that_a_frame_keeps_as_text_are_told() -> None:
    frame = pd.DataFrame(
        {"site": ["a", "b"] * 3, "dose": ["1", "2"] * 3, "ill": ["y", "n", "n"] * 2}
    )
    with pytest.raises(ValueError, match="column 'dose' holds numbers that are kept as text"):
        Federation.from_frame(frame, "site", "ill", schema=Recipe())
