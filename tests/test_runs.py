"""Run folders: what is written comes back, nothing is overwritten, and whatever is changed
afterwards is found.
"""

import json
import math
import re
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.runs.comparison import evaluate, paired, sign_test
from bonafed.runs.evaluation import measure
from bonafed.runs.files import RunError, digest, plain, save_arrays, seal, slug
from bonafed.runs.folder import read_run, replace_report
from bonafed.runs.model_file import predict_table, read_model
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; its data lie two folders above."""
    return small_run.small_run(tmp_path_factory.mktemp("run")).path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged, its data with it."""
    shutil.copytree(finished.parent.parent, tmp_path / "all")
    return tmp_path / "all" / "runs" / finished.name


def reseal(path: Path, result: dict[str, Any] | None = None) -> None:
    """Make all digests right again, as someone who wants to deceive would."""
    result = result or json.loads((path / "result.json").read_text("utf-8"))
    result["files"] = {name: digest((path / name).read_bytes()) for name in result["files"]}
    (path / "result.json").write_text(json.dumps({**result, "seal": seal(result)}), "utf-8")


def failed(path: Path) -> list[str]:
    """The names of the checks that fail."""
    return [check.name for check in verify_run(path) if check.ok is False]


# --------------------------------------------------------------------------------- written and read


def test_an_untouched_run_verifies(finished: Path) -> None:
    checks = verify_run(finished)
    assert passed(checks)
    assert {"certificate", "clients", "data: train", "duals", "evaluation", "baselines"} <= {
        c.name for c in checks
    }


def test_a_run_survives_a_move_with_its_data(copied: Path) -> None:
    assert passed(verify_run(copied))


def test_what_is_written_comes_back_bit_for_bit(finished: Path) -> None:
    run = read_run(finished)
    parts = prepare(run.config)
    assert run.model["feature_names"] == ["age", "dose"]
    assert run.model["classes"] == ["no", "yes"]
    assert run.schema == parts.train.schema
    assert run.config.problem().objective(run.w, parts.train) == run.result["certificate"]["value"]
    assert run.duals["weights"] == pytest.approx(run.result["certificate"]["weights"], rel=1e-12)
    assert len(run.history) == run.result["rounds"]


def test_two_runs_of_a_day_get_two_names_and_nothing_is_left_behind(tmp_path: Path) -> None:
    first, second = (small_run.small_run(tmp_path, text=QUICK).path for _ in range(2))
    assert first.name == f"{date.today()}-clinics"
    assert second.name == first.name + "-2"
    assert sorted(p.name for p in first.parent.iterdir()) == [first.name, second.name]
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


QUICK = small_run.CONFIG.replace("tol = 1e-6", "max_rounds = 3").replace(
    'compare_with = ["afl", "erm"]', ""
)


def test_a_run_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(small_run, "render", broken)
    with pytest.raises(OSError, match="disk full"):
        small_run.small_run(tmp_path, draw=True, text=QUICK)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("title", "name"), [("A/../b C", "a-b-c"), ("é", "run"), ("x" * 99, "x" * 40), ("", "run")]
)
def test_titles_as_file_names(title: str, name: str) -> None:
    assert slug(title) == name


def test_numbers_that_json_lacks() -> None:
    assert plain({"a": np.array([1.0, math.inf, -math.inf, math.nan]), 3: np.float64(2)}) == {
        "a": [1.0, "inf", "-inf", None],
        "3": 2.0,
    }


@pytest.mark.parametrize(
    "name",
    ["config.toml", "model.safetensors", "duals.safetensors", "result.json", "history.jsonl"],
)
def test_an_incomplete_run_is_no_run(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(RunError, match=name):
        read_run(copied)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "duals.safetensors", "result.json", "history.jsonl"]
)
def test_a_file_cut_short_is_said(copied: Path, name: str) -> None:
    (copied / name).write_bytes((copied / name).read_bytes()[:-20])
    with pytest.raises(RunError, match=f"{name}.*damaged"):
        read_run(copied)


def test_a_result_without_its_parts_or_of_another_format_is_said(copied: Path) -> None:
    result = json.loads((copied / "result.json").read_text("utf-8"))
    (copied / "result.json").write_text(json.dumps({**result, "format": 2}))
    with pytest.raises(RunError, match="format 2"):
        read_run(copied)
    (copied / "result.json").write_text(
        json.dumps({k: v for k, v in result.items() if k != "clients"})
    )
    with pytest.raises(RunError, match="clients is missing"):
        read_run(copied)


# ------------------------------------------------------------------------------------ tampered with


@pytest.mark.parametrize(
    "name",
    [
        "config.toml",
        "model.safetensors",
        "duals.safetensors",
        "baselines.safetensors",
        "history.jsonl",
    ],
)
def test_a_changed_byte_is_found(copied: Path, name: str) -> None:
    data = bytearray((copied / name).read_bytes())
    if name.endswith("safetensors"):
        data[-1] ^= 1  # the sign or exponent of the last number
    else:
        data[data.index(b"1")] = ord(b"2")
    (copied / name).write_bytes(bytes(data))
    assert {name, "form"} & {*failed(copied)}


def test_a_changed_result_is_found(copied: Path) -> None:
    file = copied / "result.json"
    file.write_text(file.read_text("utf-8").replace('"rounds": ', '"rounds":  '), "utf-8")
    assert failed(copied) == []  # white space carries nothing
    file.write_text(file.read_text("utf-8").replace('"rounds":  ', '"rounds": 1'), "utf-8")
    assert "result.json" in failed(copied)


def test_without_digests_a_run_does_not_verify(copied: Path) -> None:
    result = json.loads((copied / "result.json").read_text("utf-8"))
    result["files"] = {}
    (copied / "result.json").write_text(json.dumps({**result, "seal": seal(result)}), "utf-8")
    assert failed(copied) == ["result.json", "files"]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all numbers."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


COMPUTED = ("certificate", "clients", "evaluation")
LISTED = ("bytes_up", "bytes_down")  # what was sent is not verified, see `bonafed verify`


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_number_changed_is_found_even_when_all_digests_were_made_right(
    finished: Path, data: st.DataObject
) -> None:
    original = (finished / "result.json").read_text("utf-8")
    result = json.loads(original)
    *path, last = data.draw(
        st.sampled_from(
            [p for key in COMPUTED for p in leaves(result[key], (key,)) if p[-1] not in LISTED]
        )
    )
    place = result
    for key in path:
        place = place[key]
    place[last] += data.draw(st.sampled_from([1e-6, -1e-6, 1, -1])) * max(1, abs(place[last]))
    try:
        reseal(finished, result)
        assert failed(finished)
    finally:
        (finished / "result.json").write_text(original, "utf-8")


@pytest.mark.parametrize("key", ["value", "gap", "bound", "relative_gap"])
def test_a_better_looking_certificate_is_found(copied: Path, key: str) -> None:
    result = json.loads((copied / "result.json").read_text("utf-8"))
    result["certificate"][key] *= 0.999999
    reseal(copied, result)
    assert {"certificate", "guarantee"} & set(failed(copied))


@pytest.mark.parametrize("name", ["model", "duals", "baselines"])
def test_another_model_or_proof_is_found_even_resealed(copied: Path, name: str) -> None:
    from safetensors import safe_open

    with safe_open(copied / f"{name}.safetensors", framework="numpy") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    key = {"model": "w", "duals": "multipliers", "baselines": "erm"}[name]
    arrays[key] = arrays[key] * (1 + 1e-5) + 1e-6
    save_arrays(copied / f"{name}.safetensors", arrays, metadata)
    reseal(copied)
    assert failed(copied)


@pytest.mark.parametrize("name", ["model", "duals"])
def test_numbers_that_are_not_finite_are_found(copied: Path, name: str) -> None:
    from safetensors import safe_open

    with safe_open(copied / f"{name}.safetensors", framework="numpy") as file:
        arrays = {key: np.full_like(file.get_tensor(key), np.nan) for key in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    save_arrays(copied / f"{name}.safetensors", arrays, metadata)
    reseal(copied)
    assert "finite" in failed(copied)


def test_another_problem_is_found_even_resealed(copied: Path) -> None:
    config = copied / "config.toml"
    config.write_text(
        config.read_text("utf-8").replace("label_cost = 2.0", "label_cost = 1.9"), "utf-8"
    )
    reseal(copied)
    assert {"certificate", "clients"} <= set(failed(copied))


def test_other_data_are_found_and_named(copied: Path) -> None:
    file = copied.parent.parent / "clinics.csv"
    file.write_text(
        re.sub('^("North",.*?)[.]', r"\g<1>.1", file.read_text("utf-8"), flags=re.M), "utf-8"
    )
    found = {check.name: check for check in verify_run(copied)}
    assert found["data: train"].ok is False
    assert "North" in found["data: train"].text


def test_without_the_data_it_says_so_and_does_not_pass(copied: Path) -> None:
    (copied.parent.parent / "clinics.csv").unlink()
    checks = verify_run(copied)
    assert [c.name for c in checks if c.ok is None and c.checkable] == ["data"]
    assert not passed(checks)
    assert passed(checks, without_data=True)


def test_a_loose_but_honest_gap_is_no_failure(tmp_path: Path) -> None:
    run = small_run.small_run(
        tmp_path, text=small_run.CONFIG.replace("tol = 1e-6", "max_rounds = 6")
    )
    assert run.result["outcome"]["stop"] == "max_rounds"
    assert run.result["certificate"]["relative_gap"] > 1e-6
    assert passed(verify_run(run.path))


def test_a_report_is_not_blessed_over_a_changed_result(copied: Path) -> None:
    run = read_run(copied)
    replace_report(run, {"report.html": "new"})
    assert failed(copied) == []
    run = read_run(copied)
    run.result["rounds"] = 1
    with pytest.raises(RunError, match="seal"):
        replace_report(run, {"report.html": "newer"})


# ---------------------------------------------------------------------- predictions and comparisons


def test_predictions_of_the_training_table_have_the_stated_accuracy(finished: Path) -> None:
    run = read_run(finished)
    table = finished.parent.parent / "clinics.csv"
    columns = predict_table(finished, table)
    lines = [line.split(",") for line in table.read_text("utf-8").splitlines()[1:]]
    south = [
        p == line[3]
        for p, line in zip(columns["prediction"], lines, strict=True)
        if line[0] == '"South"'
    ]
    stated = next(m for m in run.result["evaluation"]["measures"] if m["set"] == "shifted clients")
    assert np.mean(south) == stated["accuracy"]
    assert columns == predict_table(finished / "model.safetensors", table)


def test_a_table_without_a_column_is_refused(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("age\n1\n")
    with pytest.raises(ValueError, match="no column 'dose'"):
        predict_table(finished, tmp_path / "x.csv")


def test_a_model_that_does_not_fit_its_schema_is_refused(copied: Path) -> None:
    w, model, _ = read_model(copied)
    save_arrays(copied / "model.safetensors", {"w": w[:-1]}, {"bonafed": json.dumps(model)})
    with pytest.raises(RunError, match="does not fit"):
        read_model(copied)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (3, 3), (7, 1), (0, 9), (40, 20)])
def test_the_sign_test_is_scipys(a: int, b: int) -> None:
    from scipy.stats import binomtest

    assert sign_test(a, b) == pytest.approx(binomtest(a, a + b).pvalue if a + b else 1.0, rel=1e-12)


def test_pairs_are_antisymmetric_and_a_model_is_no_better_than_itself(finished: Path) -> None:
    run = read_run(finished)
    problem, parts = run.config.problem(), prepare(run.config)
    fed = parts.tests["held-out rows"]
    one, two = paired(problem, run.w, -run.w, fed), paired(problem, -run.w, run.w, fed)
    assert (one["better"], one["worse"], one["p"]) == (two["worse"], two["better"], two["p"])
    assert one["less"] == pytest.approx(-two["less"], rel=1e-12)
    said = evaluate(problem, {"A": run.w, "B": run.w}, parts.tests)["verdict"][0]
    assert said.startswith("No difference that these data could show. ")
    assert evaluate(problem, {"A": run.w, "B": -run.w}, parts.tests)["verdict"][0].startswith("Yes")
    assert evaluate(problem, {"A": -run.w, "B": run.w}, parts.tests)["verdict"][0].startswith(
        "No, it hurt"
    )


def test_measures_agree_with_a_computation_by_hand(finished: Path) -> None:
    run = read_run(finished)
    fed = prepare(run.config).tests["held-out rows"]
    found = measure(run.config.problem(), run.w, fed)
    margins = [
        np.where(y == "yes", 1, -1) * (X @ run.w[:2] + run.w[2])
        for X, y in zip(fed.X, fed.y, strict=True)
    ]
    assert found["accuracy"] == np.mean(np.concatenate(margins) > 0)
    assert found["worst_loss"] == pytest.approx(
        max(np.maximum(0, 1 - m).mean() for m in margins), rel=1e-12
    )
