"""The checks of rows and model: each finds what is planted, and no more."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run

from bonafed import Federation
from bonafed.data.schema import Recipe
from bonafed.report.sections.opening import checks, verdict
from bonafed.runs.sections import checks as made
from bonafed.runs.splits import Parts
from bonafed.solution.trivial import Triviality

N = 60  # rows of a client
CONSTANT = small_run.MIXED.replace("strength = 1e-2", "strength = 1e-2\n[robust]\nradius = 50.0")
CONSTANT = CONSTANT.replace('[clients]\nrisk = "simplex"', "")


def tables(clients: int = 3, n: int = N) -> dict[str, dict[str, Any]]:
    """Clients that are alike: measurements with digits enough for a value a row, an age in whole
    years, a sex, and a target that only a sum of columns tells.
    """
    rng, by_name = np.random.default_rng(1), {}
    for k in range(clients):
        dose, size = rng.normal(size=(2, n))
        by_name[f"site {k}"] = {
            "dose": dose,
            "size": size,
            "age": rng.integers(20, 80, n).astype(float),
            "sex": rng.choice(["f", "m"], n),
            "sick": np.where(dose + size + rng.normal(size=n) > 0, "yes", "no"),
        }
    return by_name


def federation(by_name: dict[str, dict[str, Any]]) -> Federation:
    return Federation.from_tables(by_name, "sick", schema=Recipe())


def results(fed: Federation, **tests: Federation) -> dict[str, Any]:
    return {check["name"]: check for check in made.of_rows(Parts(fed, tests))}


def failing(by_name: dict[str, dict[str, Any]], **tests: Federation) -> dict[str, list[str]]:
    found = results(federation(by_name), **tests)
    return {name: row["where"] for name, row in found.items() if row["passed"] is False}


def planted(column: str, values: Any) -> dict[str, dict[str, Any]]:
    """The tables with one column more: of an array, or of a function of a client's table."""
    by_name, at = tables(), 0
    for table in by_name.values():
        n = len(table["sick"])
        table[column] = values(table) if callable(values) else values[at : at + n]
        at += n
    return by_name


def test_ordinary_clients_pass_every_check() -> None:
    assert failing(tables()) == {}
    judged = {name for name, row in results(federation(tables())).items() if row["passed"]}
    assert judged == {"identifier", "copy", "duplicates", "missing_class", "tiny", "shift"}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("chart", np.random.default_rng(0).permutation(3 * N) + 1000.0),  # hardly one is left out
        ("admission", 7000.0 + np.cumsum(np.random.default_rng(0).integers(1, 90, 3 * N))),  # grows
        ("patient_id", np.random.default_rng(0).choice(10**7, 3 * N, False) * 1.0),  # by its name
    ],
)
def test_an_identifier_is_found_by_its_order_or_its_name(column: str, values: Any) -> None:
    assert failing(planted(column, values))["identifier"] == [column]


def test_whole_numbers_that_many_rows_share_are_no_identifier() -> None:
    income = np.random.default_rng(0).integers(0, 10**6, 3 * N).astype(float)
    assert failing(planted("income", income)) == {}


def test_a_column_of_names_is_an_identifier() -> None:
    names = [f"n{k}" for k in range(90)]
    by_name = {
        site: {key: values[:30] for key, values in table.items()} | {"name": names[at : at + 30]}
        for (site, table), at in zip(tables().items(), (0, 30, 60), strict=True)
    }
    assert failing(by_name)["identifier"] == ["name"]


def test_a_near_copy_of_the_target_is_found_with_two_classes_several_and_numbers() -> None:
    rng = np.random.default_rng(3)
    code = {"no": 0.0, "yes": 1.0}

    def leak(table: dict[str, Any]) -> Any:
        y = table["sick"]
        numbers = y if y.dtype.kind == "f" else np.array([code.get(v, 2.0) for v in y.tolist()])
        return -7.0 * numbers + rng.normal(scale=0.3, size=len(y))

    by_name = planted("outcome", leak)
    assert failing(by_name) == {"copy": ["outcome"]}
    for table in by_name.values():
        table["sick"] = np.where(table["age"] > 60, "worse", table["sick"])
        table["outcome"] = leak(table)
    assert failing(by_name) == {"copy": ["outcome"]}
    for table in by_name.values():
        table["sick"] = rng.normal(size=N) * 50
        table["outcome"] = leak(table)
    assert failing(by_name) == {"copy": ["outcome"]}


def test_rows_at_two_clients_and_test_rows_in_training_are_found() -> None:
    by_name = tables()
    one, two, three = by_name.values()
    for key in one:
        two[key] = np.concatenate([one[key][:4], two[key][4:]])
    found = results(federation(by_name))["duplicates"]
    assert (found["passed"], found["where"]) == (False, ["site 0", "site 1"])
    assert found["seen"] == pytest.approx(8 / (3 * N))
    fed = federation(tables())
    test = replace(fed.restrict(["site 1"]), clients=("new",))
    assert failing(tables(), held=test) == {"trained_on": ["held"]}
    found = results(fed, held=federation({"site 1": {**three, "dose": three["dose"] + 1}}))
    assert found["trained_on"]["passed"]


def test_rows_that_are_alike_by_chance_are_not_called_copies() -> None:
    by_name = {
        name: {"age": table["age"], "size": np.rint(20 * table["size"]), "sick": table["sick"]}
        for name, table in tables(clients=4, n=300).items()
    }
    fed = federation(by_name)
    found = results(fed.restrict([*by_name][:3]), held=fed.restrict(["site 3"]))
    for name in ("duplicates", "trained_on"):
        assert found[name]["seen"] > 0.01
        assert found[name]["passed"] is None
    # and two hundred copies among them are found
    one, two, *_ = by_name.values()
    for key in one:
        two[key] = np.concatenate([one[key][:200], two[key][200:]])
    assert {"site 0", "site 1"} <= {*failing(by_name)["duplicates"]}


def test_rows_of_few_values_are_not_judged_by_their_copies() -> None:
    by_name = {
        name: {"sex": table["sex"], "age": table["age"] // 20, "sick": table["sick"]}
        for name, table in tables().items()
    }
    found = results(federation(by_name))
    assert found["duplicates"]["seen"] > 0.5
    assert found["duplicates"]["passed"] is None


def test_digests_of_rows_need_a_key_that_no_two_comparisons_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: list[bytes] = []
    whole = hashlib.blake2b

    def listening(data: bytes, *, key: bytes, digest_size: int) -> Any:
        keys.append(key)
        return whole(data, key=key, digest_size=digest_size)

    monkeypatch.setattr(made.hashlib, "blake2b", listening)
    fed = federation(tables())
    first, second = (json.dumps(results(fed), sort_keys=True) for _ in range(2))
    assert first == second  # what is kept does not depend on the key
    assert len({*keys}) == 2
    assert min(map(len, keys)) >= 32


def test_a_client_without_a_class_and_a_tiny_client_are_found() -> None:
    by_name = tables()
    by_name["site 1"] = {
        k: v[by_name["site 1"]["sick"] == "no"] for k, v in by_name["site 1"].items()
    }
    by_name["site 2"] = {k: v[:19] for k, v in by_name["site 2"].items()}
    found = failing(by_name)
    assert found["missing_class"] == ["site 1"]
    assert found["tiny"] == ["site 2"]


def test_a_shift_is_found_and_the_chance_of_small_clients_is_none() -> None:
    by_name = tables()
    by_name["site 2"]["dose"] = by_name["site 2"]["dose"] + 3.0
    assert failing(by_name)["shift"] == ["site 2"]
    rng = np.random.default_rng(0)
    small = {f"c{k}": {"x": rng.normal(size=4), "sick": ["a", "b"] * 2} for k in range(60)}
    apart = [abs(np.mean(table["x"])) for table in small.values()]
    assert max(apart) > made.SHIFT
    assert "shift" not in failing(small)


def test_a_report_says_what_was_seen_where_and_what_to_do() -> None:
    by_name = tables()
    by_name["site 2"] = {k: v[:19] for k, v in by_name["site 2"].items()}
    result = {"checks": [*results(federation(by_name)).values()]}
    said = verdict(result)
    assert said.startswith(
        "1 of 6 checks fails. No tiny clients: 19 for site 2 (rows of the smallest client, at least"
        " 20); figures of so few"
    )
    row = next(row for row in checks(result).rows if row[0] == "No tiny clients")
    assert row == (
        "No tiny clients",
        "FAIL",
        "19",
        "rows of the smallest client, at least 20",
        "site 2",
    )
    assert verdict({"checks": [row for row in result["checks"] if row["name"] != "tiny"]}) == (
        'All 5 checks of the rows and the model pass. Not judged: "No test rows in training".'
    )


def test_a_model_that_is_no_better_than_a_constant_fails_the_check(tmp_path: Path) -> None:
    for name, config in (("constant", CONSTANT), ("model", small_run.MIXED)):
        (tmp_path / name).mkdir()
        result = small_run.small_run(tmp_path / name, text=config).result
        row = next(row for row in result["checks"] if row["name"] == "trivial")
        assert row["passed"] == (result["trivial"] is None) == (name == "model")


def test_the_check_is_the_record_of_the_run_and_no_second_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the search finds, and also of a model that predicts two classes or one."""
    found = Triviality("worse than the constant", "radius", 1.0, 0.5, "why")
    for folder, text, answer in (("a", small_run.MIXED, found), ("b", CONSTANT, None)):
        asked = []
        search = lambda *args, answer=answer, asked=asked: asked.append(1) or answer  # noqa: E731
        monkeypatch.setattr("bonafed.runs.sections.section.triviality", search)
        (tmp_path / folder).mkdir()
        result = small_run.small_run(tmp_path / folder, text=text).result
        row = next(row for row in result["checks"] if row["name"] == "trivial")
        assert len(asked) == 1
        assert row["passed"] == (result["trivial"] is None) == (answer is None)
        monkeypatch.undo()
