"""What one client writes otherwise than the others: `init` asks about it, a check of the run fails
and names column and client; and ordinary hospitals are left in peace.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ordinary
import pytest
import small_run
from met import met
from rich.console import Console

from bonafed import Federation
from bonafed.cli import app
from bonafed.config.config import ConfigError, parse_config, read_config
from bonafed.data import differences
from bonafed.data.schema import Recipe
from bonafed.report.terminal import show
from bonafed.runs.sections.checks import between_clients
from bonafed.runs.splits import HELD_OUT, Parts, prepare
from bonafed.runs.verification import passed, verify_run
from bonafed.sites import judging

SEED = 8  # of tables in which something is wrong
SILENT = "nothing was asked, and no check failed of it"
SHIFTED = "nothing was asked, and a check named the client, but neither column nor cause"
OTHER_WORDS = "outcome yes/no at four hospitals and pos/neg at one"
ASKED = "init and a check name column and client"


def failing(
    tables: ordinary.Tables, target: str = "sick", person: str | None = None
) -> dict[str, list[str]]:
    """The checks that fail, and where, on rows of which some are held out."""
    codes = [name for name in ("sex", "smoker") if name in next(iter(tables.values()))]
    if person is None:
        tables = {c: {k: v for k, v in t.items() if k != "patient"} for c, t in tables.items()}
    recipe = Recipe(categorical=tuple(codes))
    fed = Federation.from_tables(tables, target, schema=recipe, person=person)
    train, held = fed.split(0.3, seed=1)
    found = between_clients(Parts(train, {HELD_OUT: held}))
    return {kind: [*map(str, each)] for kind, each in found.items() if each}


# ------------------------------------------------------------------------------- ordinary tables


@pytest.mark.parametrize("rows", [240, 1200])
def test_no_check_fails_on_thirty_ordinary_tables(rows: int) -> None:
    for seed in range(30):
        assert failing(ordinary.ordinary(seed, rows, 4 + seed % 3)) == {}, seed


def test_no_check_fails_on_shared_out_cancers() -> None:
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    at = np.random.default_rng(0).integers(0, 6, len(data.data))
    names = [*map(str, data.feature_names)]
    tables: ordinary.Tables = {
        f"h{i}": {**dict(zip(names, data.data[at == i].T, strict=True))}
        | {"sick": data.target[at == i].astype(str)}
        for i in range(6)
    }
    assert failing(tables) == {}
    tables["h2"]["sick"] = np.where(tables["h2"]["sick"] == "1", "0", "1")
    assert [*failing(tables)] == ["labels"]


# ------------------------------------------------------------------------ one thing that is wrong

of_columns = {
    "µmol/l": ("creatinine in µmol/l at one of five hospitals", SHIFTED, ""),
    "pounds": ("weight in pounds at one hospital", SHIFTED, "creatinine in µmol/l"),
    "cm": ("height in cm at one hospital, in m at the others", SHIFTED, "creatinine in µmol/l"),
    "fahrenheit": ("temperature in °F at one hospital", SHIFTED, "creatinine in µmol/l"),
    "kPa": ("blood pressure in kPa at one hospital", SHIFTED, "creatinine in µmol/l"),
    "sex 0/1": ("sex as 0 and 1 at one hospital, as f and m at the others", SHIFTED, ""),
    "sex words": ("sex as female and male at one hospital", SHIFTED, "sex as 0 and 1"),
    "smoker 1/2": (
        "smoker as 1 and 2 at one hospital, 0 and 1 elsewhere",
        SHIFTED,
        "sex as 0 and 1",
    ),
    "stage 0-3": ("stages 0 to 3 at one hospital, 1 to 4 elsewhere", SILENT, "sex as 0 and 1"),
    "age 999": ("age 999 in every sixth row of one hospital", "init named no client", ""),
    "age -9": ("age -9 at one hospital", SILENT, "age 999"),
    "age 99": ("age 99 at one hospital", SILENT, "age 999"),
    "crp 9999": ("CRP 9999 at one hospital", "init named no client", "age 999"),
    "pressure 0": ("pressure 0 at one hospital", SILENT, "age 999"),
    "stage 9": ("stage 9 beside stages 1 to 4", SILENT, "age 999"),
}


POS = "outcome yes/no at four hospitals and pos/neg at one"


def every(test: Any) -> Any:
    for example, before, relative_of in of_columns.values():
        test = met("B", example, before, ASKED, relative_of)(test)
    return test


@every
@met("B", OTHER_WORDS, "4 classes, not asked; a check named all five", ASKED)
@pytest.mark.parametrize("what", [*of_columns, "pos/neg"])
@pytest.mark.parametrize("rows", [240, 1200])
@pytest.mark.parametrize("small", [False, True])
def test_a_check_names_column_and_client(what: str, rows: int, small: bool) -> None:
    tables, client = ordinary.spoilt(SEED, what, rows, small)
    kind, column, _ = ordinary.SPOILT[what]
    assert [where.split(" (")[0] for where in failing(tables).pop(kind)] == [
        f"{column} at {client}"
    ]


@met("B", "the outcome coded the other way round at one hospital", SILENT, ASKED)
@met("B", "the same at the smallest one, of 35 rows", SILENT, ASKED, "the outcome coded")
@met("B", "a score of three grades, written upside down at one", SILENT, ASKED, "the outcome coded")
@met("B", "a number to predict, with its sign changed at one", SILENT, ASKED, "the outcome coded")
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("rows", [240, 1200])
@pytest.mark.parametrize("grades", [2, 3, 0])
def test_a_check_names_the_client_whose_outcome_is_turned(
    small: bool, rows: int, grades: int
) -> None:
    tables = ordinary.ordinary(SEED, rows)
    client = ordinary.sites_of(tables)[small]
    rng = np.random.default_rng(1)
    for name, table in tables.items():
        n = len(table["age"])
        y = table["age"] / 8 + np.log(table["creatinine"]) * 3 + rng.normal(size=n)
        y = (y - np.median(y)) * (-1 if name == client else 1)
        names = np.array(["low", "medium", "high"])
        table["sick"] = {
            0: y,
            2: np.where(y > 0, "yes", "no"),
            3: names[np.searchsorted(np.quantile(y, [1 / 3, 2 / 3]), y)],
        }[grades]
    found = failing(tables)
    assert [where.split(" (")[0] for where in found.pop("labels")] == [f"sick at {client}"]
    assert found == {}


@met(
    "B",
    "two of four hospitals code the outcome the other way round",
    SILENT,
    ASKED,
    "the outcome coded",
)
def test_a_tie_names_all() -> None:
    tables = ordinary.ordinary(SEED, 600, 4)
    for name in [*tables][:2]:
        tables[name]["sick"] = np.where(tables[name]["sick"] == "yes", "no", "yes")
    assert len(failing(tables)["labels"]) >= 2


@met("B", "two units at half of the hospitals each", SILENT, ASKED, "creatinine in µmol/l")
@met("B", "height in cm in every third row of one", SHIFTED, ASKED, "creatinine in µmol/l")
def test_units_at_half_of_the_clients_or_in_some_rows() -> None:
    tables = ordinary.ordinary(SEED, 600, 6)
    for name in [*tables][:3]:
        tables[name]["creatinine"] = tables[name]["creatinine"] * 88.4
    found = failing(tables)["units"]
    assert len(found) == 3
    assert all("creatinine" in where for where in found)
    tables = ordinary.ordinary(SEED, 600, 6)
    name = ordinary.sites_of(tables)[0]
    height = tables[name]["height"]
    tables[name]["height"] = np.where(np.arange(len(height)) % 3 == 0, 100 * height, height)
    assert failing(tables)["units"][0].startswith(f"height at {name} (")


BLAMED = "the outcome of that hospital was blamed, and the column was not named"
TURNED = "the column and the client are named, and the outcome is not blamed"
TURNS: dict[str, Callable[[Any], Any]] = {
    "sex": lambda cells: np.array([{"f": "m", "m": "f"}.get(c, c) for c in cells.tolist()]),
    "age": lambda cells: 106 - cells,
    "smoker": lambda cells: 1 - cells,
    "stage": lambda cells: 5 - cells,
}


def telling(column: str, strength: float, others: float, rows: int = 1200) -> ordinary.Tables:
    """Ordinary tables whose outcome follows from one column, and from pressure and creatinine."""
    tables, rng = ordinary.ordinary(SEED, rows), np.random.default_rng(SEED)
    for table in tables.values():
        x = (table[column] == "m").astype(float) if column == "sex" else table[column] * 1.0
        z = np.stack([(table["pressure"] - 130) / 18, np.log(table["creatinine"]) / 0.35])
        y = strength * (x - x.mean()) / (x.std() or 1.0) + others * z.sum(0)
        y += rng.logistic(size=len(y))
        table["sick"] = np.where(y > np.median(y), "yes", "no")
    return tables


SEX = "sex = 1 - sex at one of five hospitals, where sex matters most"


@met("B", SEX, BLAMED, TURNED)
@met("B", "age counted backwards at one hospital", BLAMED, TURNED, SEX)
@met("B", "smoker = 1 - smoker at one hospital, where smoking matters less", SILENT, TURNED, SEX)
@met("B", "stages 1 to 4 written upside down at the smallest hospital", SILENT, TURNED, SEX)
@pytest.mark.parametrize(
    ("column", "strength", "small"),
    [("sex", 3.0, 0), ("age", 3.0, 0), ("smoker", 1.0, 0), ("stage", 1.5, 1)],
)
def test_a_column_that_is_turned_is_named_and_the_outcome_is_not(
    column: str, strength: float, small: int
) -> None:
    tables = telling(column, strength, 1.0)
    assert failing(tables) == {}
    client = ordinary.sites_of(tables)[small]
    tables[client][column] = TURNS[column](tables[client][column])
    (where,) = failing(tables).pop("codes")
    assert where.startswith(f"{column} at {client} (it goes with sick the other way round ")
    assert where.endswith("than at the others: is it coded so?)")
    assert "labels" not in failing(tables)


@met(
    "B",
    "the same where no other column tells anything",
    "the outcome was blamed, with certainty",
    "both are named, since either would explain it",
    SEX,
)
def test_where_column_and_outcome_explain_it_alike_both_are_named() -> None:
    tables = telling("age", 2.0, 0.0, 600)
    client = ordinary.sites_of(tables)[0]
    tables[client]["age"] = TURNS["age"](tables[client]["age"])
    (where,) = failing(tables)["labels"]
    assert where.startswith(
        f"sick at {client} (a model of the other clients ranks its rows the wro"
    )
    assert where.endswith("; age the other way round would explain it as well)")


@met("B", "the year of birth for the age at one hospital", "'33 times': cm for feet?", ASKED, SEX)
@pytest.mark.parametrize("rows", [240, 1200])
def test_a_year_of_birth_is_no_other_unit_of_an_age(rows: int) -> None:
    tables = telling("age", 3.0, 1.0, rows)
    client = ordinary.sites_of(tables)[0]
    tables[client]["age"] = 2024 - tables[client]["age"]
    found = failing(tables)
    assert [*found] == ["units"]
    assert found["units"][0].startswith(f"age at {client} (")
    assert found["units"][0].endswith("times the others': years of birth for ages?)")


ONE = "a number to predict that is 5 in all rows of one hospital"


@met("B", ONE, "'9.8 times the others': mm for cm?'", "asked whether it means missing")
@met("B", "a column of measurements that is 0 in all rows of one", SHIFTED, "the same", ONE)
@met("B", "a column with one value at most hospitals", "silent", "silent", ONE)
def test_one_value_in_all_rows_of_a_client_is_asked_about_and_is_no_unit() -> None:
    rng = np.random.default_rng(0)
    parts = {c: rng.random(40) for c in "abcd"}
    for value in (5.0, 0.0):
        (found,) = differences.of_numbers("y", {**parts, "a": np.full(40, value)})
        assert (found.kind, found.client) == ("sentinel", "a")
        assert found.why == f"{value:g} in all of its 40 rows: does it mean missing?"
    most = {c: np.full(40, 5.0 + k) for k, c in enumerate("abc")}
    assert all(f.kind != "sentinel" for f in differences.of_numbers("y", {**parts, **most}))


# --------------------------------------------------------------------------- persons and names


@met("B", "four persons who are patients of two hospitals", SILENT, ASKED)
@met(
    "B",
    "every hospital counts its patients 1, 2, 3, ...",
    "rightly silent",
    "silent",
    "four persons",
)
@met("B", "ids of six digits, of which chance makes some alike", "silent", "silent", "four persons")
@met("B", "19 digits, four of them at two hospitals", SILENT, ASKED, "four persons")
def test_persons_at_two_clients_are_found_and_numbers_of_a_counter_are_not() -> None:
    tables = ordinary.ordinary(SEED, 240)
    assert "persons" not in failing(tables, person="patient")
    first, second, *_ = tables.values()
    second["patient"][:4] = first["patient"][:4]
    found = failing(tables, person="patient")["persons"]
    assert [where.split(" (")[0] for where in found] == [
        f"persons at {name}" for name in [*tables][:2]
    ]
    counted = {c: [*map(str, range(1, 40 + 20 * k))] for k, c in enumerate("abc")}
    assert differences.of_persons("id", counted) == []
    assert differences.of_persons("id", {c: [f"P{n}" for n in i] for c, i in counted.items()}) == []
    rng = np.random.default_rng(0)
    chance = {c: [*map(str, rng.integers(10**5, 10**6, 900))] for c in "abcd"}
    assert differences.of_persons("id", chance) == []
    long = {c: [str(10**18 + int(n)) for n in rng.integers(0, 10**17, 60)] for c in "abc"}
    long["a"][:4] = long["b"][:4]
    assert [one.client for one in differences.of_persons("id", long)] == ["a", "b"]


MOST = "30 of the 40 patients of a small hospital are those of a large one"
COUNTED = "silent: so many ids were taken for row numbers"


@met("B", MOST, COUNTED, ASKED)
@met("B", "the same where the ids are 1, 2, 3, ...", COUNTED, ASKED, MOST)
@met("B", "rows that are sorted by age, and numbered at every hospital", "silent", "silent", MOST)
@met("B", "sex in turn by the number of the row", "silent", "silent", MOST)
def test_persons_are_named_where_most_are_shared_and_their_other_cells_agree() -> None:
    rng = np.random.default_rng(0)

    def cells(n: int) -> Any:
        return np.stack([rng.integers(0, 2, n), rng.integers(20, 90, n), rng.random(n)], 1)

    large, small = cells(200), cells(40)
    small[:30, :2] = large[:30, :2]  # sex and year of birth; the third is measured anew
    for ids in ([f"P{n}" for n in rng.permutation(10**6)[:200]], [*map(str, range(1, 201))]):
        parts = {"a": ids, "b": [*ids[:30], *(f"Q{n}" for n in range(10))]}
        found = differences.of_persons("id", parts, {"a": large, "b": small})
        assert [(one.client, one.why.split()[0]) for one in found] == [("a", "30"), ("b", "30")]
        assert differences.of_persons("id", parts, {"a": cells(200), "b": small}) == []
        assert differences.of_persons("id", parts) == []
    for k, change in ((1, np.sort), (0, lambda column: np.arange(len(column)) % 2)):
        sites = {"a": cells(200), "b": cells(150)}
        for table in sites.values():
            table[:, k] = change(table[:, k])
        rows = {c: [*map(str, range(len(table)))] for c, table in sites.items()}
        assert differences.of_persons("id", rows, sites) == []


@met("B", "12 of 1,200 numbers of one register are at two hospitals", "silent", ASKED, MOST)
@met(
    "B",
    "numbers of each hospital that chance makes alike in a narrow range",
    "silent",
    "silent",
    MOST,
)
def test_numbers_of_one_register_are_persons() -> None:
    rng = np.random.default_rng(0)
    register = [*map(str, 100_000 + rng.permutation(1200))]
    parts = {c: register[300 * k : 300 * k + 300] for k, c in enumerate("abcd")}
    parts["b"][:12] = parts["a"][:12]
    assert [one.client for one in differences.of_persons("pid", parts)] == ["a", "b"]
    drawn = {c: [*map(str, 100_000 + rng.permutation(1200)[:300])] for c in "abcd"}
    assert differences.of_persons("pid", drawn) == []


def test_init_names_persons_of_whom_a_small_hospital_has_most(init: Any) -> None:
    tables = ordinary.ordinary(SEED, 240)
    large, small = sorted(tables, key=lambda name: -len(tables[name]["age"]))[::4]
    n = 2 * len(tables[small]["age"]) // 3
    for column in ("patient", "sex", "age", "height"):
        tables[small][column][:n] = tables[large][column][:n]
    _, said = init(tables)
    assert f"question: patient at {small} ({n} of its {len(tables[small]['age'])} persons" in said


@met("B", "St. Mary's and St Mary's are two hospitals", SILENT, ASKED)
@met("B", "Köln and Koeln", SILENT, ASKED, "St. Mary's")
@met("B", "Köln in two Unicode forms", SILENT, ASKED, "St. Mary's")
@met("B", "Hillcrest and Hilcrest", SILENT, ASKED, "St. Mary's")
@met("B", "site-1 and Site 01", SILENT, ASKED, "St. Mary's")
@pytest.mark.parametrize(
    "pair",
    [
        ("St. Mary's", "St Mary’s"),
        ("Saint Mary", "St. Mary"),
        ("Köln", "Koeln"),
        ("Köln", "Ko\u0308ln"),
        ("Kö\u200bln", "KÖLN "),
        ("Hillcrest", "Hilcrest"),
        ("site-1", "Site 01"),
    ],
)
def test_one_client_of_two_names_is_found(pair: tuple[str, str]) -> None:
    (found,) = differences.of_names([*pair, "Bern"])
    assert (found.client, found.instead) == (pair[1], {pair[1]: pair[0]})


GIESSEN = "Gießen and Giessen"
MERGED = "merged without a question, since 'they differ by case or spaces only'"
REASON = "asked, with the true reason"


@met("A", GIESSEN, MERGED, REASON)
@met("A", "Zürich and Zuerich", "asked without a reason", REASON, GIESSEN)
@met("A", "Ulm (Nord) and Ulm Nord", "two hospitals, not asked", REASON, GIESSEN)
@met("A", "Mount Sinai and Mt. Sinai", "two hospitals, not asked", REASON, GIESSEN)
@met("A", "Aachen with a Cyrillic A", "two hospitals, not asked", REASON, GIESSEN)
@met("A", "clients 1 and 1.0", "merged as 1.0, without a question", REASON, GIESSEN)
@pytest.mark.parametrize(
    ("pair", "differs"),
    [
        (("Gießen", "Giessen"), "ß and ss"),
        (("Zürich", "Zuerich"), "accents or dots and an e for two dots"),
        (("Ulm (Nord)", "Ulm Nord"), "signs or spaces"),
        (("Mount Sinai", "Mt Sinai"), "an abbreviation"),
        (("Saint Anna", "Sankt Anna"), "an abbreviation"),
        (("Aachen", "\u0410achen"), "letters of two alphabets that look alike"),
        (("1", "1.0"), "the form of a number"),
        (("ULM", "ulm"), "capitals"),
    ],
)
def test_names_that_may_be_one_are_asked_about_with_the_reason(
    pair: tuple[str, str], differs: str, init: Any, tmp_path: Path
) -> None:
    tables = dict(zip([*pair, "Bern"], ordinary.ordinary(SEED, 240, 4).values(), strict=False))
    text, said = init(tables)
    if differs == "capitals":
        assert "}  # they differ by case or spaces only" in text
        return
    plain = " ".join(text.replace("#", " ").split())
    assert f"{pair[1]} (the same as {pair[0]}, but for {differs}?) If so, take:" in plain
    assert f"question: {pair[1]} (the same as" in said
    key = f'merge.hospital = {{ "{pair[1]}" = "{pair[0]}" }}'
    for source, names in ((text, {*pair, "Bern"}), (text.replace(f"# {key}", key), {pair[0]})):
        fed = prepare(parse_config(source, folder=tmp_path)).train
        assert {*map(str, fed.names)} == names | {"Bern"}


def test_clients_of_names_that_differ_are_two() -> None:
    names = ["Site 1", "Site 10", "Site 1.0", "1", "-1", "A", "AA", "AAA", "A+", "A-", "B", "a b 2"]
    names += ["Ward 1 2", "Ward 12", "North", "South", "North East", "East North", "x1", "x11"]
    assert differences.of_names(names) == []


# ------------------------------------------------------------------------- what is left in peace


@pytest.mark.parametrize(
    "parts",
    [
        {"a": "111222", "b": "333444", "c": "555666"},  # wards of each client
        {"a": "000111", "b": "000000", "c": "010101"},
        {"a": "GHGHGH", "b": "GHGHGH", "c": "SSSSSS"},  # another maker of devices
        {"a": "fmfmfm", "b": "fmfmfo", "c": "ffffff"},
    ],
)
def test_values_that_may_be_other_things_are_no_other_code(parts: dict[str, str]) -> None:
    counts = {client: Counter(values * 4) for client, values in parts.items()}
    assert differences.of_codes("x", counts) == []


def test_a_tail_the_top_of_a_scale_and_zeros_of_all_are_no_missing_cells() -> None:
    rng = np.random.default_rng(0)
    for values in (
        np.rint(rng.pareto(1.5, (4, 200)) * 5),
        np.repeat([[9996.0, 9997.0, 9998.0, 9999.0]], 4, 0).repeat(5, 1),
        np.minimum(np.rint(rng.normal(97, 2, (4, 200))), 99.0),
        np.minimum(rng.poisson(6, (4, 200)), 9).astype(float),
        np.where(rng.random((4, 200)) < 0.4, 0.0, rng.uniform(50, 80, (4, 200))),
        rng.normal(0, 6, (4, 200)).round(),
    ):
        assert differences.of_numbers("x", dict(zip("abcd", values, strict=True))) == []


# ------------------------------------------------------------------------------------------- init


def written(folder: Path, tables: ordinary.Tables) -> Path:
    """The tables as one file with a column of hospitals."""
    first = next(iter(tables.values()))
    lines = [",".join(["hospital", *first])]
    for name, table in tables.items():
        cells = (
            [f"{v:g}" if isinstance(v, float) else v for v in c.tolist()] for c in table.values()
        )
        lines += [",".join([name, *row]) for row in zip(*cells, strict=True)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "t.csv"


@pytest.fixture
def init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """The configuration that ``init`` writes, and what it prints."""

    def made(tables: ordinary.Tables, *options: str) -> tuple[str, str]:
        monkeypatch.chdir(tmp_path)
        written(tmp_path, tables)
        app(["init", "t.csv", "--out", "t.toml", "--force", *options], standalone_mode=False)
        text = (tmp_path / "t.toml").read_text(encoding="utf-8")
        parse_config(text, folder=tmp_path)
        return text, capsys.readouterr().out

    return made


def test_init_asks_about_each_with_a_key_that_answers(init: Any, tmp_path: Path) -> None:
    tables = ordinary.ordinary(SEED, 240)
    assert "uestion" not in "".join(init(tables))
    first, second, third, fourth, fifth = tables
    for name, what in ((first, "µmol/l"), (second, "sex 0/1"), (third, "age 99")):
        ordinary.SPOILT[what][2](tables[name], np.random.default_rng(0))
    tables[fourth]["smoker"] = tables[fourth]["smoker"] + 1
    tables[second]["patient"][:4] = tables[first]["patient"][:4]
    ordinary.SPOILT["labels swapped"][2](tables[fifth], None)
    tables["St Anna"] = {k: v[:12] for k, v in tables[fourth].items()}
    tables[fourth] = {k: v[12:] for k, v in tables[fourth].items()}
    text, said = init(tables)
    plain = " ".join(text.replace("#", " ").split())
    for asked in (
        f"creatinine at {first}",
        f"sex at {second} (0, 1 where the others have f, m",
        f"age at {third} (99 in",
        f"smoker at {fourth} (1, 2 where the others have 0, 1: another code, 1 for 0 and 2 for 1?)",
        f"patient at {first} (",
        f"sick at {fifth} (a model of the other clients ranks its rows the wrong way",
        "St Anna (the same as St. Anna, but for signs or spaces?)",
    ):
        assert f"Question: {asked}" in plain
        assert f"question: {asked}" in said
    keys = [line[2:] for line in text.splitlines() if line.startswith(("# merge", "# missing"))]
    assert sorted(keys) == ['merge.hospital = { "St Anna" = "St. Anna" }', 'missing = ["99"]']
    answered = text
    for key in keys:
        answered = answered.replace(f"# {key}", key)
    found = between_clients(prepare(parse_config(answered, folder=tmp_path)))
    assert {kind for kind, each in found.items() if each} == {"units", "codes", "labels"}
    # whether 0 is f only the client knows
    assert {one.column for one in found["codes"] or ()} == {"smoker", "sex"}


@met("B", "outcome yes/no at four hospitals and true/false at one", "merged", "as before", POS)
@met(
    "B",
    "outcome yes/no at four hospitals and dead/alive at one",
    "4 classes, not asked",
    ASKED,
    POS,
)
@met("B", "outcome yes/no at four hospitals and A/B at one", "not asked", ASKED, POS)
@pytest.mark.parametrize(
    ("usual", "own", "merged"),
    [
        (("yes", "no"), ("true", "false"), True),
        (("yes", "no"), ("dead", "alive"), False),
        (("yes", "no"), ("A", "B"), False),
    ],
)
def test_an_outcome_of_other_words_at_one_client_is_merged_or_asked_about(
    usual: tuple[str, str], own: tuple[str, str], merged: bool, init: Any, tmp_path: Path
) -> None:
    tables = ordinary.ordinary(SEED, 240)
    client = ordinary.sites_of(tables)[0]
    for name, table in tables.items():
        table["sick"] = np.where(table["sick"] == "yes", *(own if name == client else usual))
    text, said = init(tables)
    if not merged:
        assert f"question: sick at {client} ({', '.join(sorted(own))} where the others" in said
        assert "ranks its rows" not in said
    classes = prepare(parse_config(text, folder=tmp_path)).train.classes
    assert classes is not None
    assert len(classes) == (2 if merged else 4)


@met(
    "B",
    "outcome 1/0 at four hospitals and positive/negative at one",
    "'text in 36 rows: correct these cells', by their lines; no hospital was named",
    "the hospital and both codes are named as well",
    POS,
)
def test_an_outcome_of_words_at_one_client_and_numbers_elsewhere_names_it(init: Any) -> None:
    tables = ordinary.ordinary(SEED, 240)
    client = ordinary.sites_of(tables)[0]
    for name, table in tables.items():
        codes = ("positive", "negative") if name == client else ("1", "0")
        table["sick"] = np.where(table["sick"] == "yes", *codes)
    with pytest.raises(ConfigError) as caught:
        init(tables)
    asked = f"{client} has negative, positive where the others have 0, 1: another code? Then write"
    assert asked in str(caught.value)


def test_init_asks_whether_pos_is_yes_and_its_key_makes_two_classes(init: Any) -> None:
    text, _ = init(ordinary.spoilt(SEED, "pos/neg")[0])
    assert '# merge.sick = { "neg" = "no", "pos" = "yes" }' in text or (
        '# merge.sick = { "pos" = "yes", "neg" = "no" }' in text
    )


@met("B", "codes beside spellings that are merged already", SHIFTED, ASKED, "sex as 0 and 1")
def test_a_key_that_is_proposed_goes_on_from_the_one_that_is_written(
    init: Any, tmp_path: Path
) -> None:
    tables, _ = ordinary.spoilt(SEED, "sex words")
    largest = max(tables, key=lambda name: len(tables[name]["sex"]))
    tables[largest]["sex"] = np.where(tables[largest]["sex"] == "f", "F", tables[largest]["sex"])
    text, _ = init(tables)
    (written,) = (line for line in text.splitlines() if line.startswith("merge.sex"))
    (key,) = (line[2:] for line in text.splitlines() if line.startswith("# merge.sex"))
    assert "take instead of the line" in " ".join(text.replace("#", " ").split())
    found = between_clients(prepare(parse_config(text.replace(written, key), folder=tmp_path)))
    assert found["codes"] == []


@met("B", "sex as M and W at one hospital, M and F elsewhere", SILENT, ASKED, "sex as 0 and 1")
@met("B", "sex as m and w at one hospital, M and F elsewhere", SILENT, ASKED, "sex as 0 and 1")
@met("B", "sex as F and H at one hospital, F and M elsewhere", SHIFTED, ASKED, "sex as 0 and 1")
@pytest.mark.parametrize(("f", "m", "key"), [("w", "m", "w"), ("W", "M", "W"), ("F", "H", "H")])
def test_a_code_that_shares_a_letter_is_asked_about(init: Any, f: str, m: str, key: str) -> None:
    tables = ordinary.ordinary(SEED, 240)
    for k, columns in enumerate(tables.values()):
        letters = (f, m) if k == 1 else ("F", "M")
        columns["sex"] = np.where(columns["sex"] == "f", *letters)
    text, said = init(tables)
    assert f"question: sex at {list(tables)[1]} (" in said
    assert f'"{key}" = "{"M" if key == "H" else "F"}"' in text


def test_init_of_a_private_run_asks_nothing_about_cells(init: Any) -> None:
    tables = ordinary.spoilt(SEED, "µmol/l")[0]
    assert "uestion" not in "".join(init(tables, "--private"))


# ---------------------------------------------------------------------------------------- the run


def test_a_run_whose_check_fails_says_so_before_its_figures(tmp_path: Path) -> None:
    head, *lines = small_run.table(rows=60).splitlines()
    turned = [
        line.replace("yes", "?").replace("no", "yes").replace("?", "no") if "East" in line else line
        for line in lines
    ]
    config = small_run.write_config(tmp_path, small_run.MIXED, "\n".join([head, *turned]) + "\n")
    run = small_run.finish(read_config(config), tmp_path / "runs", draw=True)
    row = next(row for row in run.result["checks"] if row["name"] == "labels")
    assert row["passed"] is False
    assert row["where"][0].startswith("sick at East (")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert page.index("sick at East") < page.index("How good is the model?")
    printed = io.StringIO()
    show(run, Console(file=printed, width=200))
    assert "warning: a check of the rows fails: sick at East (" in printed.getvalue()
    assert passed(verify_run(run.path))


def test_a_private_run_reads_no_more_of_its_rows(tmp_path: Path) -> None:
    run = small_run.private_run(tmp_path)
    assert run.owner is not None
    names = {row["name"] for row in run.owner.result["checks"]}
    assert names.isdisjoint(differences.KINDS)


def test_a_run_over_sites_says_what_turned_figures_mean() -> None:
    site: dict[str, Any] = {"client": "North", "n": 60, "positives": 30, "auc": 0.8}
    row = {"clients": [site, {**site, "client": "East", "auc": 0.25}]}
    assert judging.contrary(row)[0].startswith(
        "The model ranks the held-out rows the wrong way, beyond chance, at East (AUC 0.25): ask"
    )
    for other in ({"auc": 0.45}, {"auc": None}, {"positives": 60}, {"n": 8, "positives": 2}):
        assert judging.contrary({"clients": [site, {**site, "auc": 0.3, **other}]}) == []


@met(
    "B",
    "Kreatinin, créatinine, glycémie, Blutzucker, Harnstoff in another unit",
    "'cm for m, or percent and shares?' of Kreatinin",
    "the unit of what the column measures, in the languages of its name",
    "creatinine in µmol/l",
)
@pytest.mark.parametrize(
    ("column", "factor", "unit"),
    [
        ("Kreatinin", 88.4, "µmol/l for mg/dl of creatinine"),
        ("Créatinine", 1 / 88.4, "mg/dl of creatinine for µmol/l"),
        ("glycémie", 18.02, "mg/dl for mmol/l of glucose"),
        ("Blutzucker", 18.02, "mg/dl for mmol/l of glucose"),
        ("Harnstoff", 2.8, "mg/dl for mmol/l of urea nitrogen"),
    ],
)
def test_units_are_named_in_the_language_of_the_column(
    column: str, factor: float, unit: str
) -> None:
    rng = np.random.default_rng(0)
    values = {name: np.exp(rng.normal(0, 0.2, 60)) for name in ("Bonn", "Ulm", "Trier")}
    values["Ulm"] *= factor
    (found,) = differences.of_numbers(column, values)
    assert found.client == "Ulm"
    assert found.why.endswith(f": {unit}?")


@met(
    "B",
    "a column that hardly varies, whose median differs by .05 % at one hospital",
    "'South (1 times the others')'",
    "both medians",
    "creatinine in µmol/l",
)
def test_medians_are_said_where_their_ratio_says_nothing() -> None:
    rng = np.random.default_rng(0)
    days = {c: 20230100.0 + rng.integers(1, 29, 60) for c in ("Bonn", "Ulm", "Trier")}
    days["Ulm"] += 10_000
    (found,) = differences.of_numbers("admitted", days)
    assert found.client == "Ulm"
    assert "times" not in found.why
    assert "median 202401" in found.why
    assert "where the others have 202301" in found.why
