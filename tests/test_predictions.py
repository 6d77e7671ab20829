"""What `bonafed predict` writes: which row, whose, the class, its probability and the class that it
is the probability of.
"""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import small_run
from scipy.special import expit

from bonafed.runs.files import save_arrays
from bonafed.runs.model_file import as_csv, predict_table, read_model

TEXT = small_run.MIXED.replace("tol = 1e-2", "tol = 1e-2\nmax_rounds = 3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.small_run(tmp_path_factory.mktemp("run"), text=TEXT).path


def rows(folder: Path, table: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(predict_table(folder, table)))))


def with_column(name: str, cells: list[str], place: Path, before: bool = True) -> Path:
    """The training table with one column more."""
    lines = small_run.table(rows=4).splitlines()
    cells = [name, *cells]
    pairs = [
        f"{c},{line}" if before else f"{line},{c}" for c, line in zip(cells, lines, strict=True)
    ]
    (place / "new.csv").write_text("\n".join(pairs) + "\n", "utf-8")
    return place / "new.csv"


def test_row_client_class_probability_and_the_name_of_the_class(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(small_run.table(rows=4), "utf-8")
    found = rows(folder, tmp_path / "new.csv")
    head = ["row", "client", "prediction", "probability", "positive", "cut", "score"]
    assert [*found[0]] == head
    assert [row["row"] for row in found] == [str(k) for k in range(1, 13)]
    assert [row["client"] for row in found[::4]] == ["North", "East", "South"]
    for row in found:
        assert row["positive"] == "yes"
        assert float(row["probability"]) == pytest.approx(expit(float(row["score"])))
        assert (row["prediction"] == "yes") == (float(row["probability"]) > 0.5)


def test_an_identifier_stands_in_place_of_the_row_as_it_is_in_the_table(
    folder: Path, tmp_path: Path
) -> None:
    keys = [f"{k:03d}" for k in range(7, 19)]
    for before in (True, False):
        found = rows(folder, with_column("patient", keys, tmp_path, before))
        assert [row["patient"] for row in found] == keys
        assert "row" not in found[0]


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("ward", ["a", "b"] * 6),  # not a value a row
        ("weight", [f"{k}.5" for k in range(12)]),  # a measurement
        ("patient", [*map(str, range(11)), ""]),  # one is missing
        ("score", [*map(str, range(12))]),  # called as a column of ours
        ("cost", [f"1.{k:03d} EUR" for k in range(12)]),  # amounts
        ("paid", [f"{(7 * k) % 12 + 300}" for k in range(12)]),
        ("seen", [f"2024-01-{k:02d}" for k in range(1, 13)]),  # dates
        ("remark", [f"asleep for {k} h" for k in range(12)]),
    ],
)
def test_a_column_that_does_not_tell_rows_apart_is_no_identifier(
    folder: Path, tmp_path: Path, name: str, cells: list[str]
) -> None:
    assert rows(folder, with_column(name, cells, tmp_path))[0]["row"] == "1"


def test_the_column_that_is_named_as_an_identifier_comes_first(
    folder: Path, tmp_path: Path
) -> None:
    with_column("tube", [f"T{k}" for k in range(12)], tmp_path)
    table = tmp_path / "new.csv"
    lines = table.read_text("utf-8").splitlines()
    keyed = [f"{line},{k}" for line, k in zip(lines, ["case_id", *range(40, 28, -1)], strict=True)]
    assert "T3" in rows(folder, table)[3].values()
    table.write_text("\n".join(keyed) + "\n", "utf-8")
    assert rows(folder, table)[3]["case_id"] == "37"


def test_an_identifier_that_a_spreadsheet_would_run_is_harmless(
    folder: Path, tmp_path: Path
) -> None:
    keys = [f"=1+{k}" for k in range(12)]
    found = rows(folder, with_column("patient", keys, tmp_path))
    assert [row["patient"] for row in found] == [f"'{key}" for key in keys]


@pytest.mark.parametrize("key", ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b"])
def test_whatever_a_cell_holds_it_stays_one_cell(key: str) -> None:
    text = as_csv({"key": [key], "prediction": ["yes"]})
    assert [*csv.reader(io.StringIO(text, newline=""))] == [["key", "prediction"], [key, "yes"]]


def test_a_calibrated_model_uses_its_sigmoid_and_one_without_has_no_probability(
    tmp_path: Path,
) -> None:
    hinge = TEXT.replace('"logistic"', '"hinge"')
    run = small_run.small_run(tmp_path, text=hinge)
    w, model, _ = read_model(run.path)
    slope, offset = model["calibration"]["slope"], model["calibration"]["offset"]
    columns = predict_table(run.path, tmp_path / "clinics.csv")
    again = expit(slope * np.array(columns["score"]) + offset)
    assert columns["probability"] == pytest.approx(again)
    del model["calibration"]
    bare = tmp_path / "bare.safetensors"
    save_arrays(bare, {"w": w}, {"bonafed": json.dumps(model)})
    assert [*predict_table(bare, tmp_path / "clinics.csv")] == [
        "row",
        "client",
        "prediction",
        "score",
    ]


def test_three_classes_have_a_probability_each(tmp_path: Path) -> None:
    data = small_run.table().replace(",no\n", ",maybe\n", 30)
    run = small_run.small_run(
        tmp_path, text=TEXT.replace('"logistic"', '"multinomial"\nmodel = "softmax"'), data=data
    )
    columns = predict_table(run.path, tmp_path / "clinics.csv")
    names = ["maybe", "no", "yes"]
    chances = np.array([columns[f"probability_{name}"] for name in names])
    assert chances.sum(0) == pytest.approx(np.ones(chances.shape[1]))
    assert columns["prediction"] == [names[k] for k in chances.argmax(0)]
