"""Patients who happen to look alike, and the configuration of a data set that names patients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from met import met

import bonafed as bf
from bonafed.config.config import parse_config
from bonafed.data import load
from bonafed.runs.sections.checks import of_rows
from bonafed.runs.splits import Parts, dataset, prepare
from bonafed.starters.starter import starter

HEART = "[data]\nname = 'heart_disease'\nperson = 'patient'\ntest = 0.4\n"


def trained_on(parts: Parts) -> Any:
    (found,) = (check for check in of_rows(parts) if check["name"] == "trained_on")
    return found


@pytest.fixture(scope="module")
def split() -> Parts:
    return prepare(parse_config(HEART))


@met(
    "C",
    "patients of whom four cells of eight are missing, told apart by data.person",
    "rows of two patients that are equal by chance are counted as copies: .3 to .8 % of those held"
    " out, where 1 % fails a check that asks for data.person",
    "the check passes: with persons known, a copy is a row of the same person",
)
def test_equal_rows_of_two_persons_are_no_copies(split: Parts) -> None:
    assert trained_on(split)["passed"]
    assert trained_on(split)["seen"] == 0


@met(
    "C",
    "the same patients without data.person",
    "the check failed and said how to mend it",
    "as before",
    relative_of="patients of whom four cells of eight are missing, told apart by data.person",
)
def test_without_persons_equal_rows_are_copies() -> None:
    text = HEART.replace("person", "exclude").replace("'patient'", "['patient']")
    assert not trained_on(prepare(parse_config(text)))["passed"]


@met(
    "C",
    "a patient's row both among the rows trained on and the rows judged on",
    "the check failed",
    "as before: the person is the same",
    relative_of="patients of whom four cells of eight are missing, told apart by data.person",
)
def test_a_copy_of_a_person_is_still_found(split: Parts) -> None:
    test = replace(split.train, clients=tuple(f"new {name}" for name in split.train.clients))
    found = trained_on(replace(split, tests={"again": test}))
    assert (found["passed"], found["seen"]) == (False, 1.0)


@met(
    "C",
    "rows to judge on whose persons nobody knows, trained rows whose persons are known",
    "the check failed where rows were equal",
    "as before: rows are compared without their persons",
    relative_of="patients of whom four cells of eight are missing, told apart by data.person",
)
def test_rows_of_unknown_persons_are_compared_by_their_cells(split: Parts) -> None:
    test = replace(split.train, persons=None)
    assert not trained_on(replace(split, tests={"again": test}))["passed"]


@met(
    "C",
    "rows of a patient at two hospitals under two names",
    "'No rows at several clients' failed",
    "as before: names of persons may differ between hospitals, so that cells are compared",
    relative_of="patients of whom four cells of eight are missing, told apart by data.person",
)
def test_rows_at_two_hospitals_are_found_under_other_names(split: Parts) -> None:
    fed = split.train
    parts = [(fed.X[0], fed.y[0]), (fed.X[0], fed.y[0]), (fed.X[1], fed.y[1])]
    copied = bf.Federation.from_arrays(
        np.concatenate([X for X, _ in parts]),
        np.concatenate([y for _, y in parts]),
        np.repeat(["a", "b", "c"], [len(y) for _, y in parts]),
        persons=np.arange(sum(len(y) for _, y in parts)),
    )
    (found,) = (c for c in of_rows(replace(split, train=copied)) if c["name"] == "duplicates")
    assert (found["passed"], found["where"]) == (False, ["a", "b"])


INIT = "bonafed init --dataset of a data set with a column of patients and gaps"


@met(
    "A",
    "init --dataset of a data set without patients, whose rows have owners",
    "no person was named",
    "as before, and it runs",
    INIT,
)
@met(
    "A",
    "init --dataset of a data set without patients and owners",
    "no person was named, and a partition was",
    "as before, and it runs",
    INIT,
)
@pytest.mark.parametrize("name", ["hospitals", "breast_cancer"])
def test_what_init_writes_of_a_data_set_without_patients_runs(tmp_path: Path, name: str) -> None:
    text, _ = starter(out=tmp_path / "h.toml", dataset=name)
    parts = prepare(parse_config(text))
    assert parts.train.persons is None
    assert ("partition = " in text) == (name == "breast_cancer")
    assert "person" not in text


@met(
    "A",
    "init --dataset --private of the patients",
    "would have declared the patients' numbers as categories",
    "no number of a patient is in the file, and each gap has a value that is declared",
    INIT,
)
def test_a_private_file_of_the_patients_names_none_and_declares_their_gaps(tmp_path: Path) -> None:
    text, _ = starter(out=tmp_path / "h.toml", dataset="heart_disease", private=True)
    tables = dataset("heart_disease").tables.values()
    patients = {str(p) for table in tables for p in table["patient"].tolist()}
    assert not any(f'"{patient}"' in text for patient in patients)
    assert 'person = "patient"' in text
    numbers = [name for name, cells in next(iter(tables)).items() if cells.dtype.kind == "f"]
    gaps = [name for name in numbers if any(np.isnan(table[name]).any() for table in tables)]
    declared = {line.split(" = ")[0]: line for line in text.splitlines() if " min = " in line}
    assert gaps
    assert all(", missing = " in declared[name] for name in gaps)


@met(
    "A",
    INIT,
    "would have made the patients' numbers a feature of 918 categories, which `run` refuses (there"
    " was no such data set)",
    "names it as data.person, and declares what stands for a gap",
)
@pytest.mark.parametrize("more", [{}, {"private": True}, {"agnostic": True}])
def test_what_init_writes_of_the_heart_patients_runs(tmp_path: Path, more: dict[str, bool]) -> None:
    text, _ = starter(out=tmp_path / "h.toml", dataset="heart_disease", **more)
    parts = prepare(parse_config(text))
    assert parts.train.persons is not None
    assert not any("patient" in name for name in parts.train.feature_names)
    assert {*parts.train.clients} == {*load.heart_disease().clients}
