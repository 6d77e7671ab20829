"""Tables as people have them pass `init`, `run`, `predict` and `verify` without an edit."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import untidy

from bonafed.config.config import ConfigError, parse_config, read_config
from bonafed.runs.model_file import predict_table
from bonafed.runs.pipeline import begin, opening, run_study
from bonafed.runs.splits import prepare
from bonafed.runs.verification import verify_run
from bonafed.starters.look import Asked
from bonafed.starters.starter import starter

Call = Callable[..., int]
DRAWN = "limits_codes_and_rare_categories"


def flat(text: str) -> str:
    """The text with comments and breaks taken as spaces."""
    return " ".join(text.replace("#", " ").split())


@pytest.mark.parametrize("name", untidy.FILES)
def test_an_untidy_table_passes_without_an_edit(
    name: str, bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = untidy.FILES[name]
    case.make(tmp_path)
    init = ("init", case.path, *case.options, "--out", "q.toml")
    if case.asked:
        assert bonafed(*init) == 2
        said = capsys.readouterr().err
        for part in case.asked:
            assert part in said
        assert not (tmp_path / "q.toml").exists()
    assert bonafed(*init, *case.told) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    written = (tmp_path / "q.toml").read_text("utf-8")
    for part in case.proposed:
        assert flat(part) in flat(written), written
    for part in case.printed:
        assert part in printed, printed
    folder = _run(name, bonafed, tmp_path)
    files = sorted(tmp_path.glob(case.path))
    assert bonafed("predict", folder, files[0], "--out", "p.csv") == 0, capsys.readouterr().err
    rows = [*csv.DictReader((tmp_path / "p.csv").read_text("utf-8").splitlines())]
    assert next(iter(rows[0])) != "seen"  # unique, and a feature: it names no row
    assert len(rows) == (240 if len(files) == 1 else files[0].read_text("utf-8").count("\n") - 1)
    if name == DRAWN:
        assert bonafed("verify", folder) == 0, capsys.readouterr().out
    else:
        assert not [check for check in verify_run(folder) if check.ok is False]


def _run(name: str, bonafed: Call, folder: Path) -> Path:
    """The finished run; of one table as the command line does it, of the others without a report,
    whose figures would take most of the time.
    """
    if name == DRAWN:
        assert bonafed("run", "q.toml", "--quick", "--out", "runs") == 0
    else:
        config = read_config("q.toml").quick()
        config.check()
        run_study(begin(config), Path("runs"))
    (run,) = (folder / "runs").iterdir()
    return run


def test_rows_that_are_left_out_are_counted_and_classes_stay_whole_numbers(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sick = [str(int(cell == "yes")) for cell in untidy.people()["sick"]]
    sick[:20], site = [""] * 20, untidy.people()["site"]
    site[30:33] = [""] * 3
    exported(tmp_path, ",", sick=sick, site=site)
    assert bonafed("init", "table.csv", "--out", "q.toml") == 0
    config = read_config("q.toml").quick()
    study = begin(config)
    assert opening(study)[1:3] == [
        "left out: 3 of 240 rows without a client",
        "left out: 20 of 240 rows without a target",
    ]
    assert opening(study)[-1] == "figures and probabilities are about the class 1"
    run_study(study, Path("runs"))
    (folder,) = (tmp_path / "runs").iterdir()
    check, *_ = json.loads((folder / "result.json").read_text())["checks"]
    assert (check["name"], check["passed"], check["seen"]) == ("left_out", False, 23 / 240)
    assert check["where"][0] == "no client: 3"
    assert bonafed("predict", folder, "table.csv", "--out", "p.csv") == 0
    rows = csv.DictReader((tmp_path / "p.csv").read_text("utf-8").splitlines())
    assert {row["prediction"] for row in rows} == {"0", "1"}


def exported(folder: Path, sign: str = ";", **changed: list[str]) -> None:
    """A table with some columns changed."""
    (folder / "table.csv").write_text(untidy.text(untidy.people() | changed, sign), "utf-8")


def said_of(bonafed: Call, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `init` refuses, or else the configuration that it writes, in one line."""
    status = bonafed("init", *words, "--out", "q.toml", "--force")
    error = capsys.readouterr().err
    return flat(error if status else Path("q.toml").read_text("utf-8"))


def test_points_after_thousands_are_asked_for(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = untidy.people()
    whole = [cell.partition(".")[0] for cell in columns["dose"]]
    costs = [f"{k % 9 + 1}.{(k * 37) % 1000:03d}" for k in range(240)]
    exported(tmp_path, dose=whole, cost=costs)
    said = said_of(bonafed, capsys, "table.csv")
    assert "the points in 'cost' may be decimal or stand after thousands" in said
    assert "give --decimal . if they are decimal, else give --exclude cost" in said
    for answer in (("--decimal", "."), ("--exclude", "cost")):
        assert 'target = "sick"' in said_of(bonafed, capsys, "table.csv", *answer)
    exported(tmp_path, cost=costs)  # the points of another column are decimal
    assert 'target = "sick"' in said_of(bonafed, capsys, "table.csv")


def test_clients_that_write_one_column_with_points_and_commas_are_named(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = untidy.people()
    commas = untidy.with_comma(columns["dose"])
    rows = zip(columns["site"], columns["dose"], commas, strict=True)
    exported(tmp_path, dose=[point if site == "east" else comma for site, point, comma in rows])
    said = said_of(bonafed, capsys, "table.csv")
    assert "decimal commas in 'dose' at " in said
    assert "and decimal points in 'dose' at east: write one of them" in said


def test_the_few_plain_numbers_of_a_column_do_not_make_it_a_feature(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = untidy.people()
    costs = [f"{k + 1}'234,50" for k in range(240)]
    for k, cell in (("yes", "610,5"), ("no", "909,5")):  # they do not overlap between the classes
        costs[columns["sick"].index(k)] = cell
    exported(tmp_path, dose=untidy.with_comma(columns["dose"]), cost=costs)
    said = said_of(bonafed, capsys, "table.csv")
    assert 'which are text here: 238 of 240 "cost",' in said


def test_text_that_is_no_category_is_left_out(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    exported(
        tmp_path,
        ",",
        base=[f"{v:.1f}".replace("-", "−") for v in rng.normal(0, 2, 240)],  # no hyphen
        cost=[f"{k % 9 + 1} {(k * 37) % 1000:03d}" for k in range(240)],
        room=[f"room {k % 60}" for k in range(240)],
    )
    said = said_of(bonafed, capsys, "table.csv")
    assert '"room", text of which no value stands in 10 rows: 60 values in 240 cells' in said
    for name, n in (("base", "1"), ("cost", "240 of 240")):
        assert re.search(f'signs after the thousands, which are text here: {n}[^"]* "{name}"', said)


def test_the_rare_categories_of_a_small_table_are_pooled(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {name: cells[:90] for name, cells in untidy.people().items()}
    columns["ward"] = ["a", "b", *["c", "d", "e"] * 29, "a"]
    untidy.write(tmp_path, columns)
    assert "min_count = 3 rarer categories are one: in 'ward'" in said_of(
        bonafed, capsys, "table.csv"
    )


def test_names_that_differ_by_case_and_empty_files_are_told(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def upper(site: str, part: untidy.Columns) -> untidy.Columns:
        return {name.upper() if site == "south" else name: c for name, c in part.items()}

    untidy.by_site(tmp_path, upper)
    init = ("sites/*.csv", "--target", "sick")
    said = said_of(bonafed, capsys, *init)
    assert "differ by case or spaces only: write every name in one way" in said
    (tmp_path / "sites" / "south.csv").write_text("age,sex,dose,sick\n")
    assert "has a header but no rows: fill it, or leave the file out" in said_of(
        bonafed, capsys, *init
    )


def test_totals_and_notes_below_the_rows_are_no_clients(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untidy.write(tmp_path, untidy.people())
    table = (tmp_path / "table.csv").read_text("utf-8")
    below = "Total:,57.1,,721.2,78\n\nSource: the ward's system,,,,\n"
    (tmp_path / "table.csv").write_text(table + below, "utf-8")
    for more in ((), ("--private",)):
        said = said_of(bonafed, capsys, "table.csv", *more)
        assert "table.csv, line 242: it looks like a total below the rows" in said
        assert "table.csv, line 244: it looks like a note below the rows" in said
        assert "Source" not in said
    (tmp_path / "table.csv").write_text(table + "practice,61,,,yes\nnorth,,,,\n", "utf-8")
    assert "4 clients of 1 to " in said_of(bonafed, capsys, "table.csv")


def test_clients_by_one_number_days_of_a_spreadsheet_and_encodings_are_told(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = untidy.people()
    site = [str(untidy.SITES.index(cell)) for cell in columns["site"]]
    for k in (5, 80):
        site[k] += ".0"
    days = [str(42_000 + (k * 37) % 900) for k in range(240)]
    exported(tmp_path, ",", site=site, admission_date=days, sick=[*"FT"] * 120)
    said = said_of(bonafed, capsys, "table.csv")
    assert "Question: 2.0 (the same as 2, but for the form of a number?) If so, take:" in said
    assert "'admission_date' may be days as a spreadsheet counts them" in said
    assert 'positive = "T"' in said
    for name, encoding in (("a", "latin-1"), ("b", "utf-8"), ("c", "latin-1")):
        text = untidy.text(columns | {"ward": ["Köln", "Ulm"] * 120})
        (tmp_path / f"{name}.csv").write_text(text, encoding)
    said = said_of(bonafed, capsys, "[abc].csv", "--target", "sick")
    assert "encodings (a.csv, c.csv: latin-1; b.csv: utf-8): save them in one" in said


def test_a_number_that_may_stand_for_a_missing_target_is_asked_for(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = untidy.people()
    sick = [str(int(cell == "yes")) for cell in columns["sick"]]
    ages = [*columns["age"]]
    for k in range(0, 40, 4):
        sick[k] = ages[k] = "-999"
    exported(tmp_path, ",", sick=sick, age=ages)
    assert "and --missing -999 if that stands for a missing cell" in said_of(
        bonafed, capsys, "table.csv"
    )
    of_age = ("table.csv", "--target", "age")
    assert "'age' has -999, which looks like a missing cell: give --missing -999" in said_of(
        bonafed, capsys, *of_age
    )
    private = said_of(bonafed, capsys, *of_age, "--private")
    assert "'age' has a number, which looks like a missing cell: give --missing X" in private
    assert "999" not in private
    for words in (("table.csv",), of_age):
        said = said_of(bonafed, capsys, *words, "--missing", "-999")
        assert 'missing = ["-999"] they stand' in said
        assert "drop_missing_target = true 10 rows have none" in said


def test_a_title_above_the_names_is_told(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = untidy.text(untidy.people(), ";")
    (tmp_path / "table.csv").write_text(
        "Export" + ";" * text.split("\n")[0].count(";") + "\n" + text
    )
    said = said_of(bonafed, capsys, "table.csv")
    assert "table.csv: its first line names one of " in said
    assert "delete the lines above the names" in said


def test_the_positive_class_is_no_absence_and_reads_as_the_target(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    often = [str(int(k % 3 > 0)) for k in range(240)]
    exported(tmp_path, sick=often)
    assert "positive = 1 0, the other one, says that something is absent" in said_of(
        bonafed, capsys, "table.csv"
    )
    columns = untidy.people()
    exported(
        tmp_path,
        dose=untidy.with_comma(columns["dose"]),
        sick=["1,5" if cell == "1" else "0,5" for cell in often],
    )
    assert "positive = 0.5 the rarer class" in said_of(bonafed, capsys, "table.csv")
    read_config("q.toml").check()


def test_a_byte_order_mark_tells_the_encoding_of_its_file(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = untidy.people()
    columns["ward"] = [("Köln", "Ulm")[k % 2] for k in range(240)]
    del columns["site"]
    for name, encoding in (("a", "utf-16"), ("b", "latin-1"), ("c", "utf-8-sig")):
        (tmp_path / f"{name}.csv").write_text(untidy.text(columns), encoding)
    said = said_of(bonafed, capsys, "*.csv", "--target", "sick")
    assert 'encoding = "latin-1" it is not UTF-8' in said
    assert "3 clients of 240 to 240 rows" in said


# ------------------------------------------------------------------------------------- the law


QUESTIONS = re.compile(
    r"decimal commas in|the target .*: (correct|give)|the points in|the dates in"
)


@pytest.mark.parametrize("start", range(0, 300, 25))
def test_whatever_init_writes_is_read_without_an_edit(start: int, tmp_path: Path) -> None:
    asked = 0
    for seed in range(start, start + 25):
        written = written_by_chance(tmp_path, seed)
        asked += written is None
        if written is not None:
            prepare(parse_config(written, folder=tmp_path))
    assert asked < 10


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_whatever_init_writes_runs_and_predicts_without_an_edit(seed: int, tmp_path: Path) -> None:
    written = written_by_chance(tmp_path, seed)
    if written is None:
        return
    config = parse_config(written, folder=tmp_path).quick()
    run = run_study(begin(config), tmp_path / "runs")
    assert not [check for check in verify_run(run) if check.ok is False]
    rows = sum(prepare(config).rows.values())
    assert len(predict_table(run, tmp_path / "table.csv", "ignore")["prediction"]) >= rows


def written_by_chance(folder: Path, seed: int) -> str | None:
    """What `init` writes about a file by chance; None where it asks."""
    untidy.by_chance(folder, seed)
    asked = Asked("site", "sick")
    try:
        return starter(out=folder / "q.toml", path=[str(folder / "table.csv")], asked=asked)[0]
    except ConfigError as error:
        if re.match(QUESTIONS, str(error)):
            return None
        raise


# -------------------------------------------------------------------------------- private runs


def secret_tables(folder: Path) -> set[str]:
    """Patients of three sites in a file each; the cells that nobody outside may see."""
    columns, n = untidy.people(), 240
    malignant = [{"yes": "malignant", "no": "benign"}[cell] for cell in columns.pop("sick")]
    columns |= {
        "patient_id": [f"P{k // 2:04d}" for k in range(n)],
        "born": untidy.dates(n, "1950-{m:02d}-{d:02d}"),
        "town": [("Köln", "köln", "Ulm")[k % 3] for k in range(n)],
        "crp": [f"<{k % 3 + 1},5" if k % 9 == 0 else f"{k % 40},25" for k in range(n)],
        "died": [("never", "early")[k % 5 == 0] for k in range(n)],
        "finding": malignant,
    }
    columns["dose"] = untidy.with_comma(columns["dose"])
    sites = columns.pop("site")
    (folder / "sites").mkdir()
    for site in untidy.SITES:
        part = {
            c: [v for v, s in zip(v_, sites, strict=True) if s == site] for c, v_ in columns.items()
        }
        (folder / "sites" / f"{site}.csv").write_text(untidy.text(part, ";"), "utf-8")
    return {cell for cells in columns.values() for cell in cells if len(cell) > 2}


def test_a_private_start_names_no_value_and_spends_nothing(
    bonafed: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = secret_tables(tmp_path)

    def said() -> str:
        text = "\n".join(capsys.readouterr())
        assert not secrets & {*re.findall(r"[\w.,<-]+", text)}, text
        assert not any(secret in text for secret in secrets), text
        return text

    init = ("init", "sites/*.csv", "--private", "--target", "finding", "--out", "q.toml")
    assert bonafed(*init) == 0
    assert "person" in said()
    written = (tmp_path / "q.toml").read_text("utf-8")
    assert not any(secret in written for secret in secrets)
    declared = tomllib.loads(written)["data"]
    assert declared["classes"] == ["?", "?"]
    assert {*declared["columns"]} == {"age", "sex", "dose", "town", "crp", "crp is censored"}
    for command in (("run", "q.toml"), ("run", "--dry-run", "q.toml")):
        assert bonafed(*command) == 2
        text = said()
        assert "'age', 'sex', 'dose', 'town', 'crp' have '?'" in text
        assert "Nothing was read or spent" in text
    assert {path.name for path in tmp_path.iterdir()} == {"sites", "q.toml"}
    for old, new in (
        ('["?", "?"]', '["benign", "malignant"]'),
        ('age = { min = "?", max = "?" }', "age = { min = 0, max = 110 }"),
        ('dose = { min = "?", max = "?" }', "dose = { min = 0, max = 30 }"),
        ('crp = { min = "?", max = "?" }', "crp = { min = 0, max = 200 }"),
        ('sex = { categories = ["?"] }', 'sex = { categories = ["f", "m"] }'),
        ('town = { categories = ["?"] }', 'town = { categories = ["Köln", "Ulm"] }'),
    ):
        assert old in written
        written = written.replace(old, new)
    secrets -= {"benign", "malignant", "Köln", "Ulm"}  # they are declared
    (tmp_path / "q.toml").write_text(written, "utf-8")
    assert bonafed("run", "q.toml") == 2  # a town is not declared, and no message names it
    assert "'town'" in said()
    written = written.replace('["Köln", "Ulm"]', '["Köln", "Ulm", "köln"]')
    for old, new in (("max_rounds = 100", "max_rounds = 5"), ("html = true", "html = false")):
        written = written.replace(old, new)
    (tmp_path / "q.toml").write_text(written, "utf-8")
    secrets -= {"köln"}
    assert bonafed("run", "q.toml") == 0, said()
    (folder,) = (tmp_path / "runs").iterdir()
    assert bonafed("verify", folder) == 0
