"""A class of few rows: what `init` writes, what a run says, and what predictions show."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from met import met
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bonafed import (
    L2,
    Federation,
    Logistic,
    NeymanPearson,
    Problem,
    RareClassWarning,
    RobustClassifier,
    solve,
)
from bonafed.config.config import parse_config
from bonafed.model_selection import cross_validate
from bonafed.runs.splits import prepare
from bonafed.solution.solve import solved
from bonafed.starters.starter import balance, starter


def table(folder: Path, cut: float, seed: int = 0) -> Path:
    """Patients of three hospitals, of whom few are ill where ``cut`` is high."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((600, 2))
    ill = rng.random(600) < 1 / (1 + np.exp(-(1.1 * X[:, 0] - cut)))
    site = rng.choice(["north", "east", "south"], 600)
    with (folder / "patients.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "age", "dose", "ill"])
        for where, x, sick in zip(site, X, ill, strict=True):
            rows.writerow([where, f"{50 + 9.3 * x[0]:.2f}", f"{x[1]:.3f}", "yes" if sick else "no"])
    return folder / "patients.csv"


def written(folder: Path, cut: float, **options: bool) -> str:
    path = str(table(folder, cut))
    return starter(out=folder / "study.toml", path=[path], **options)[0]


@met(
    "E",
    "7 % of the patients are ill; `bonafed init` and `bonafed run`",
    "no class_weight is written; none of the 13 ill who are held out are found",
    'class_weight = "balanced" stands in [problem] with its reason; two thirds are found',
)
def test_a_rare_class_is_weighed_in_the_configuration_that_init_writes(tmp_path):
    text = written(tmp_path, 3.0)
    problem = tomllib.loads(text)["problem"]
    assert problem["class_weight"] == "balanced"
    share = re.search(r'# the class "yes" has (\d\.\d) % of the rows', text)
    assert share is not None
    assert 4 < float(share[1]) < 12
    parts = prepare(parse_config(text, folder=tmp_path)).train
    found = []
    for weight in ("balanced", None):
        stated = Problem(Logistic(), class_weight=weight, regulariser=L2(1e-3))
        w = solve(stated, parts).w
        X, y = parts.pooled().rows(0)
        found.append(float((X @ w[:-1] + w[-1] > 0)[y == "yes"].mean()))
    assert found[0] > 0.5 > 0.1 > found[1]


@met(
    "E",
    "a third of the patients are ill; `bonafed init`",
    "no class_weight",
    "as before",
    "7 % of the patients are ill",
)
@met(
    "E",
    "7 % are ill; `bonafed init --agnostic`, `--private`",
    "no class_weight",
    "class_weight; none with --private, where counts of classes would have to be paid for",
    "7 % of the patients are ill",
)
def test_classes_that_are_not_rare_and_private_runs_have_no_weights(tmp_path):
    assert "class_weight" not in written(tmp_path, 0.7)
    agnostic = written(tmp_path, 3.0, agnostic=True)
    assert tomllib.loads(agnostic)["problem"]["class_weight"] == "balanced"
    parse_config(agnostic, folder=tmp_path)
    assert "class_weight" not in written(tmp_path, 3.0, private=True)


@met(
    "E",
    "three classes of 100, 100 and 20 rows; of 100, 100 and 60",
    "no class_weight",
    "class_weight for the first, below 40 % / 3 of the rows; none for the second",
    "7 % of the patients are ill",
)
@pytest.mark.parametrize(
    ("counts", "weighed"),
    [
        ([100, 100, 20], True),
        ([100, 100, 60], False),
        ([80, 20], False),
        ([81, 19], True),
        ([], False),
        ([7], False),
    ],
)
def test_which_classes_are_rare(counts, weighed):
    assert bool(balance(dict(enumerate(counts)))) == weighed


UNWEIGHED = "a model of 7 % ill, without weights"


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """Features, whether 7 % are ill, and hospitals."""
    file = table(tmp_path_factory.mktemp("rare"), 3.0)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    X = np.array([[float(row["age"]) / 10 - 5, float(row["dose"])] for row in rows])
    X = np.column_stack([3 * X[:, 0], X[:, 1]])
    y, site = (np.array([row[key] for row in rows]) for key in ("ill", "site"))
    return X, y, site


@met(
    "E",
    UNWEIGHED,
    "the note says class_weight='balanced', which is no TOML",
    'class_weight = "balanced" (of Problem and estimators; in a configuration in [problem])',
)
def test_the_note_on_a_rare_class_is_in_words_of_python_and_toml(patients):
    X, y, site = patients
    fed = Federation.from_arrays(X, y, site)
    notes = " ".join(solved(Problem(Logistic(), regulariser=L2(1e-3)), fed).notes)
    assert "The rarer class has" in notes
    said = re.search(r'use (class_weight = "balanced") \(of Problem and estimators', notes)
    assert said is not None
    assert tomllib.loads(said[1]) == {"class_weight": "balanced"}
    weighed = Problem(Logistic(), regulariser=L2(1e-3), class_weight="balanced")
    assert "The rarer class" not in " ".join(solve(weighed, fed).notes)


@met(
    "E",
    "solve(...), RobustClassifier().fit(...), a pipeline, of which 7 % are ill",
    "a note in solution_.notes, which nobody reads",
    "one RareClassWarning at the user's line",
    UNWEIGHED,
)
def test_a_rare_class_that_is_hardly_found_is_warned_of_once(patients):
    X, y, site = patients
    fed = Federation.from_arrays(X, y, site)
    model: Any = RobustClassifier()
    steps = make_pipeline(StandardScaler(), RobustClassifier())
    for call in (
        lambda: solve(Problem(Logistic(), regulariser=L2(1e-3)), fed),
        lambda: model.fit(X, y, groups=site),
        lambda: steps.fit(X, y, robustclassifier__groups=site),
    ):
        with pytest.warns(RareClassWarning, match="The predictions find .* of its rows") as said:
            call()
        assert [one.filename for one in said] == [__file__]


@met(
    "E",
    "7 % ill, class_weight='balanced' or a constraint on the errors of a class",
    "no note, or one that takes the cut for a mistake",
    "no warning: the user has said how many to find",
    UNWEIGHED,
)
def test_who_weighs_or_constrains_the_classes_is_not_warned(patients):
    X, y, site = patients
    model: Any = RobustClassifier(class_weight="balanced")
    model.fit(X, y, groups=site)  # a warning is an error in tests
    problem = Problem(Logistic(), regulariser=L2(1e-2), local_constraint=NeymanPearson("yes", 2.0))
    solve(problem, Federation.from_arrays(X, y, site))


@met(
    "E",
    "7 % ill, GridSearchCV(..., scoring='roc_auc'), cross_validate",
    "no warning",
    "as before: the scores that are asked for judge the fits, and notes keep what was found",
    UNWEIGHED,
)
def test_searches_and_cross_validations_go_without_a_warning(patients):
    X, y, site = patients
    model = RobustClassifier()
    found = cross_validate(model, X, y, groups=site, cv=2, scoring="roc_auc")
    assert found["test_score"].mean() > 0.7
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(model, {"radius": [0.0, 0.01]}, scoring="roc_auc", cv=2)
        search.fit(X, y, groups=site)
    notes = search.best_estimator_.solution_.notes
    assert any("The rarer class has" in note for note in notes)
