"""Runs on tables as hospitals hand them out: read, trained on, predicted, verified as declared."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from bonafed.config.config import ConfigError, parse_config, read_config
from bonafed.data.row_errors import RowErrors
from bonafed.report.pages import render
from bonafed.runs.files import RunError, save_arrays
from bonafed.runs.model_file import read_model
from bonafed.runs.pipeline import begin, run_study
from bonafed.runs.privacy_plan import with_public_numbers
from bonafed.runs.splits import prepare

CONFIG = """
title = "untidy"
[data]
path = "untidy.csv"
client = "Klinik"
target = "krank"
encoding = "cp1252"
decimal = ","
missing = ["k.A.", "-999"]
exclude = ["Nr", "leer"]
categorical = ["PLZ"]
dates = { Aufnahme = { order = "dmy", parts = ["month", "days"] } }
censored = ["CRP"]
merge = { Geschlecht = { W = "w", "M " = "m" }, Klinik = { "süd" = "Süd" } }
min_count = 3
positive = "ja"
drop_missing_target = true
drop_missing_client = true
person = "Patient"
test = 0.3
[problem]
loss = "logistic"
strength = 1e-2
[clients]
risk = "mean"
[algorithm]
tol = 1e-3
"""
HEADER = ";Nr;Klinik;Patient;Aufnahme;Größe;CRP;Geschlecht;PLZ;Bemerkung;leer;krank;"


def untidy(seed: int = 0, rows: int = 90) -> str:
    """A table with all that is declared in CONFIG, whose target follows from size and CRP."""
    rng = np.random.default_rng(seed)
    lines = ["", HEADER]
    for k in range(rows):
        size, crp = rng.normal(1.7, 0.1), rng.exponential(8)
        ill = "ja" if crp - 8 + 40 * (size - 1.7) + rng.normal() > 0 else "nein"
        limit = "<1,0" if crp < 1 else ">30" if crp > 30 else f"{crp:.1f}"
        cells = [
            *(str(k), f"A-{k:04}", ["Nord", "Süd", "süd", ""][min(int(rng.integers(10)) % 4, k)]),
            str(int(rng.integers(rows // 2))),
            f"{rng.integers(1, 28)}.{rng.integers(1, 13)}.20{rng.integers(10, 24)}",
            "k.A." if k % 17 == 3 else f"{size:.2f}".replace(".", ","),
            limit.replace(".", ","),
            rng.choice(["w", "W", "m", "M "]),
            rng.choice(["01067", "10115", f"2{k:04}"], p=[0.45, 0.45, 0.1]),
            '"zwei\nZeilen; ""so"""' if k % 9 == 0 else "keine",
            *("", "" if k % 23 == 5 else ill, ""),
        ]
        lines += [";".join(cells), *[""] * (k % 11 == 0)]
    return "\r\n".join([*lines, ";" * 12, ""])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run; its table lies two folders above."""
    folder = tmp_path_factory.mktemp("untidy")
    (folder / "untidy.csv").write_bytes(untidy().encode("cp1252"))
    (folder / "untidy.toml").write_text(CONFIG, "utf-8")
    return run_study(begin(read_config(folder / "untidy.toml")), folder / "runs", render=render)


def test_an_untidy_table_is_read_as_declared(finished: Path) -> None:
    parts = prepare(read_config(finished / "config.toml"))
    fed = parts.train
    assert sorted(fed.clients) == ["Nord", "Süd"]
    assert fed.classes is not None
    assert fed.classes.tolist() == ["nein", "ja"]
    assert fed.feature_names == (
        *("Aufnahme month", "Aufnahme days", "Größe", "CRP", "CRP is censored"),
        *("Geschlecht=m", "Geschlecht=w", "PLZ=01067", "PLZ=10115", "PLZ=other"),
        *("Bemerkung=keine", 'Bemerkung=zwei\nZeilen; "so"'),
    )
    people = [
        {p for part in f.persons or () for p in part.tolist()} for f in (fed, *parts.tests.values())
    ]
    assert people[0]
    assert people[1]
    assert not people[0] & people[1]


def test_a_table_of_the_same_form_is_predicted_and_the_run_verified(
    bonafed: Callable[..., int], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bonafed("verify", finished) == 0, capsys.readouterr()
    capsys.readouterr()
    lines = untidy(3, 20).replace("krank", "andere", 1).replace("01067", "99999")
    new = tmp_path / "new.csv"
    new.write_bytes(b"\xff\xfe" + lines.encode("utf-16-le"))  # a byte-order mark says so
    assert bonafed("predict", finished, new, "--out", tmp_path / "out.csv") == 0, (
        capsys.readouterr().err
    )
    rows = [*csv.DictReader((tmp_path / "out.csv").read_text("utf-8").splitlines())]
    assert len(rows) == 20
    assert {row["prediction"] for row in rows} <= {"ja", "nein"}
    assert {row["positive"] for row in rows} == {"ja"}
    assert [row["Nr"] for row in rows] == [f"A-{k:04}" for k in range(20)]
    good = [(row["prediction"] == "ja") == (float(row["probability"]) > 0.5) for row in rows]
    assert np.mean(good) > 0.8  # a sigmoid may move the cut a little
    _, model, _ = read_model(finished)
    reading = model["schema"]["reading"]
    assert reading["dates"] == {"Aufnahme": {"order": "dmy", "parts": ["month", "days"]}}
    assert reading["missing"] == ["k.A.", "-999"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("encoding", "ascii", "encoding is 'ascii'; needed: one of utf-8, latin-1"),
        ("decimal", ".", "decimal is '.'; needed: ','"),
        ("delimiter", ";;", "delimiter is ';;'; needed: one character"),
        ("dates", {"x": {"order": "dym", "parts": ["year"]}}, "order must be one of"),
        ("dates", {"x": {"order": "dmy", "parts": []}}, "parts must be some of"),
        ("drop_missing_target", False, "drop_missing_target is false"),
        ("tables", ["a"], "tables is unknown"),
    ],
)
def test_a_reading_that_no_run_wrote_is_refused(
    finished: Path, tmp_path: Path, key: str, value: object, words: str
) -> None:
    with safe_open(finished / "model.safetensors", "numpy") as file:
        model, w = json.loads(file.metadata()["bonafed"]), file.get_tensor("w")
    model["schema"]["reading"][key] = value
    save_arrays(tmp_path / "model.safetensors", {"w": w}, {"bonafed": json.dumps(model)})
    with pytest.raises(RunError, match=r"model\.schema\.reading") as caught:
        read_model(tmp_path / "model.safetensors")
    assert words in str(caught.value)


def test_the_problems_of_target_and_columns_are_told_together_in_words_of_the_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "untidy.csv").write_bytes(untidy(rows=180).encode("cp1252"))
    dropped = ("drop_missing_target", "dates", "censored", "min_count", "exclude")
    text = "\n".join(line for line in CONFIG.splitlines() if not line.startswith(dropped))
    config = parse_config(text.replace('decimal = ","', 'decimal = "."'), folder=tmp_path)
    with pytest.raises(RowErrors) as caught:
        prepare(config)
    said = str(caught.value)
    for words in (
        "column 'krank' is missing in line",
        "leave it out by data.exclude, or pool",
        "'leer' has no value at any client. Leave it out by data.exclude",
    ):
        assert words in said
    assert "`" not in said
    assert "Recipe" not in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('exclude = ["y"]', "has 'y' in `exclude` and in `target`"),
        ('exclude = "id"', "data.exclude: got 'id'; allowed: a list"),
        ('exclude = ["a", "a"]', "allowed: every text once"),
        ('encoding = "utf8"', "data.encoding: got 'utf8' .did you mean 'utf-8'"),
        ('delimiter = "ab"', "data.delimiter: got 'ab'; allowed: one character"),
        ('decimal = ";"', "data.decimal: got ';'. Allowed: '.', ','"),
        ('dates = { a = { order = "dym" } }', "order must be one of .*, got 'dym'"),
        ('dates = { a = { order = "dmy", parts = ["hour"] } }', "parts must be some of"),
        ('dates = { a = { order = "dmy" } }\ncensored = ["a"]', "has 'a' in `dates` and in `cens"),
        ('dates = { y = { order = "dmy" } }', "has 'y' in `dates` and in `target`"),
        ("merge = { sex = {} }", "data.merge.sex: got {}; allowed: more entries"),
        ("min_count = 0", "data.min_count: got 0"),
        ('positive = ["a"]', "data.positive: got .'a'.; allowed: text, or"),
        ('positive = "c"\nclasses = ["a", "b"]', "positive = 'c', which is none of `classes`"),
        ('positive = "c"\n[problem]\nloss = "squared"', "data.positive names one of two classes"),
        ("drop_missing_client = true", "has `drop_missing_client` and no `client`"),
        ('person = "y"', "has 'y' in `person` and in `target`"),
    ],
)
def test_a_key_that_cannot_be_is_refused_before_anything_is_read(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config(f'[data]\npath = "none.csv"\ntarget = "y"\n{line}')


def test_keys_of_files_are_refused_for_data_sets_by_name() -> None:
    with pytest.raises(ConfigError, match="has `encoding`, which is for tables by `path`"):
        parse_config('[data]\nname = "hospitals"\nencoding = "latin-1"')
    fewer = prepare(parse_config('[data]\nname = "hospitals"\nexclude = ["mean area"]'))
    assert "mean area" not in fewer.train.feature_names


PRIVATE = """
title = "private"
[data]
path = "untidy.csv"
client = "Klinik"
target = "krank"
classes = ["ja", "nein"]
positive = "ja"
encoding = "cp1252"
decimal = ","
missing = ["k.A."]
dates = { Aufnahme = { order = "dmy", parts = ["month"] } }
censored = ["CRP"]
merge = { Klinik = { "süd" = "Süd" } }
drop_missing_target = true
drop_missing_client = true
person = "Patient"
scale = "none"
[data.columns]
"Größe" = { min = 1.7, max = 2.5, missing = 1.7 }
CRP = { min = 0, max = 40 }
"CRP is censored" = {}
"Aufnahme month" = { min = 1, max = 12 }
[problem]
loss = "logistic"
strength = 1e-2
[privacy]
epsilon = 3.0
delta = 1e-5
sizes = { Nord = 20, "Süd" = 40 }
book = "book.json"
[algorithm]
max_rounds = 3
"""


def test_a_private_run_reads_what_is_declared_and_warns_its_owner_alone(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a column that nobody declared holds what no reader of the others could take
    text = untidy().replace(";keine;", ";\x01-1.5e999,7;")
    (tmp_path / "untidy.csv").write_bytes(text.encode("cp1252"))
    (tmp_path / "untidy.toml").write_text(PRIVATE, "utf-8")
    table = prepare(read_config(tmp_path / "untidy.toml")).owners
    low = sum(int((x[:, 0] < 0).sum()) for x in table.X)
    assert low > 0
    for arguments in (("--dry-run",), ("--out", "runs")):
        assert bonafed("run", "untidy.toml", *arguments) == 0
        said = capsys.readouterr().out
        lines = [line for line in said.splitlines() if "to you only" in line.lower()]
        assert len(lines) == 1
        assert "rows have 'Größe' outside of 1.7 to 2.5" in " ".join(said.split())
        assert int(lines[0].split("rows: ")[1].split()[0]) >= low
    (run,) = (tmp_path / "runs").iterdir()
    public = [file for file in run.rglob("*") if file.is_file() and "owner" not in file.parts]
    assert not [file for file in public if b"to you only" in file.read_bytes()]
    assert bonafed("verify", run) == 0


def test_features_that_are_named_stand_for_what_is_made_of_them(tmp_path: Path) -> None:
    (tmp_path / "untidy.csv").write_bytes(untidy().encode("cp1252"))
    columns = PRIVATE[PRIVATE.index("[data.columns]") : PRIVATE.index("[problem]")]
    named = 'scale = "none"\nfeatures = ["Aufnahme", "CRP"]'
    text = PRIVATE.replace(columns, "").replace('scale = "none"', named)
    made = ("Aufnahme month", "CRP", "CRP is censored")
    private = parse_config(text, folder=tmp_path)
    assert prepare(private).train.feature_names == made
    assert with_public_numbers(private)[1].n_features == 3
    open_ = text.replace(text[text.index("[privacy]") : text.index("[algorithm]")], "")
    assert prepare(parse_config(open_, folder=tmp_path)).train.feature_names == made


def test_a_private_run_refuses_placeholders_and_undeclared_columns_before_it_spends(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "untidy.csv").write_bytes(untidy().encode("cp1252"))
    blank = PRIVATE.replace("min = 0, max = 40", 'min = "?", max = "?"')
    blank = blank.replace("[problem]", 'PLZ = { categories = ["?"] }\n[problem]', 1)
    columns = PRIVATE[PRIVATE.index("[data.columns]") : PRIVATE.index("[problem]")]
    for text, words in (
        (blank, "data.columns: 'CRP', 'PLZ' have '?': write what is possible"),
        (PRIVATE.replace(columns, ""), "[data] needs `columns`"),
        (PRIVATE.replace("person =", "min_count = 9\nperson ="), "[privacy]"),
    ):
        (tmp_path / "untidy.toml").write_text(text, "utf-8")
        for arguments in (("--dry-run",), ()):
            assert bonafed("run", "untidy.toml", *arguments) == 2
            assert words in " ".join(capsys.readouterr().err.split()) or "min_count" in text
    assert not (tmp_path / "book.json").exists()
    assert not (tmp_path / "runs").exists()


def test_a_private_run_names_no_value_in_its_errors(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = untidy().replace(";keine;", ";low;").replace("<1,0", "<verylow")
    text = text.replace(";A-0002;", ";A-0002;").replace("k.A.", "secretsize")
    (tmp_path / "untidy.csv").write_bytes(text.encode("cp1252"))
    (tmp_path / "untidy.toml").write_text(PRIVATE, "utf-8")
    assert bonafed("run", "untidy.toml") == 2
    said = capsys.readouterr().err
    assert "column 'CRP'" in said
    assert "column 'Größe'" in said  # both at once
    assert "verylow" not in said
    assert "secretsize" not in said
    assert not (tmp_path / "book.json").exists()
