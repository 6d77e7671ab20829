"""Numbers that are names, and text that no person meant."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import gaierror
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import untidy
from met import met

import bonafed as bf
from bonafed import Federation
from bonafed.client_names import closest
from bonafed.config.config import ConfigError, parse_config
from bonafed.data import load
from bonafed.data.profile import summarise
from bonafed.data.readers import read
from bonafed.data.reading import Reading
from bonafed.data.row_errors import RowError
from bonafed.data.schema import Numeric, Recipe
from bonafed.engines.run_record import Log
from bonafed.runs.splits import prepare
from bonafed.starters.look import Asked
from bonafed.starters.starter import starter

Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]
N = 120
BASE = 1234567890123456000
NFD = unicodedata.normalize("NFD", "Köln")


def table(folder: Path, name: str = "table.csv", sign: str = ",", **changed: Sequence[str]) -> Path:
    columns = {**untidy.people(N), **{key: [*cells] for key, cells in changed.items()}}
    (folder / name).write_text(untidy.text(columns, sign), "utf-8")
    return folder / name


def written(*paths: Path, **asked: object) -> tuple[str, list[str]]:
    """What `init` writes, and what it prints."""
    given = {"client": "site", "target": "sick", **asked}
    return starter(out=paths[0].parent / "q.toml", path=[*map(str, paths)], asked=Asked(**given))  # type: ignore[arg-type]


def kinds(printed: Sequence[str]) -> dict[str, str]:
    """The kind of each column as `init` prints it."""
    rows = [line.split() for line in printed]
    return {row[0]: row[1] for row in rows if len(row) > 1}


def of_three(cell: Callable[[int], str]) -> list[str]:
    """Cells of persons with three rows each."""
    return [cell(k // 3) for k in range(N)]


# ------------------------------------------------------------------------------------- identities

VISITS = np.repeat(np.arange(30), np.random.default_rng(1).integers(2, 7, 30))[:N]
ROOMS = np.random.default_rng(2).permutation(900)[: len(VISITS)] + 100
NAMES: dict[str, tuple[list[str], str]] = {
    "19 digits": (of_three(lambda p: str(BASE + 37 * p)), "person"),
    "20 digits": (of_three(lambda p: str(98765432109876500000 + p)), "person"),
    "19 digits with a point": (of_three(lambda p: f"{BASE + p}.0"), "person"),
    "zeros in front": (of_three(lambda p: f"{p * 37:010d}"), "person"),
    "dashes": (of_three(lambda p: f"{p:03d}-{p % 7}-{p + 100}"), "person"),
    "scientific": (of_three(lambda p: f"1.{23450 + p}E+18"), "person"),
    "ten digits": (of_three(lambda p: str(3000000021 + 7919 * p)), "person"),
    "visits that stand together": ([str(ROOMS[v]) for v in VISITS], "person"),
    "each once": ([str(v) for v in np.random.default_rng(0).permutation(N)], "identifier"),
    "19 digits, each once": ([str(BASE + k * 7 % N) for k in range(N)], "identifier"),
}


@pytest.mark.parametrize("name", NAMES)
@met(
    "A",
    "19-digit patient numbers, three rows each",
    "a number and a feature, or a constant: float64 has several as one",
    "person; every value counted; not a feature, and not in the model",
)
@met(
    "A",
    "20 digits, beyond 64 bits",
    "constant: 1 of 40 values",
    "person",
    "19-digit patient numbers",
)
@met(
    "A",
    "zeros in front, 40 values in 120 rows",
    "a code: 40 features named by patients",
    "person",
    "19-digit patient numbers",
)
@met(
    "A",
    "numbers with dashes",
    "40 categories named by patients",
    "person",
    "19-digit patient numbers",
)
@met("A", "1.23450E+18", "a number and a feature", "person", "19-digit patient numbers")
@met(
    "A",
    "three digits, a patient's rows one below the other",
    "a number and a feature",
    "person",
    "19-digit patient numbers",
)
@met(
    "A",
    "the numbers 0 to 119, shuffled",
    "a number and a feature, of which a check of the run warned",
    "identifier",
    "19-digit patient numbers",
)
def test_no_identity_is_a_feature_and_no_split_parts_a_persons_rows(
    name: str, tmp_path: Path
) -> None:
    cells, kind = NAMES[name]
    cells = [*cells, *cells[:N]][:N]
    text, printed = written(table(tmp_path, zz=cells))
    assert kinds(printed)["zz"] == kind
    assert summarise(np.array(cells, object)).distinct == len({*cells})
    parts = prepare(parse_config(text, folder=tmp_path))
    schema = parts.train.schema
    assert schema is not None
    assert not any("zz" in feature for feature in parts.train.feature_names)
    stored = json.dumps(schema.to_dict())
    assert not any(f'"{cell}"' in stored for cell in cells)
    if kind == "person":
        train, test = (
            {person for part in fed.persons or () for person in part.tolist()}
            for fed in (parts.train, *parts.tests.values())
        )
        assert train
        assert test
        assert not train & test
        assert train | test == {*cells}


@met(
    "A",
    "a second identity, one for each patient",
    "a number and a feature",
    "left out, as of people",
    "19-digit patient numbers",
)
def test_a_second_identity_of_a_person_is_left_out(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        patient=[str(BASE + v) for v in [*VISITS, *VISITS][:N]],
        insured=[str(700000 + v * v) for v in [*VISITS, *VISITS][:N]],
    )
    text, printed = written(path)
    assert kinds(printed)["patient"] == "person"
    assert kinds(printed)["insured"] == "identifier"
    assert "every 'patient' has a separate one" in text


@met(
    "A",
    "a patient's number is missing in some rows",
    "a constant, left out; shorter numbers: a configuration that does not run",
    "these rows count as those of one person",
    "19-digit patient numbers",
)
def test_rows_without_a_person_stay_together(tmp_path: Path) -> None:
    cells = of_three(lambda p: str(BASE + p))
    for r in (4, 50, 99):
        cells[r] = ""
    text, _ = written(table(tmp_path, patient=cells))
    assert 'merge.patient = { "" = "nobody" }' in text
    parts = prepare(parse_config(text, folder=tmp_path))
    of = [{p for q in f.persons or () for p in q} for f in (parts.train, *parts.tests.values())]
    assert sum("nobody" in persons for persons in of) == 1


def frame(**more: object) -> pd.DataFrame:
    known = pd.DataFrame(untidy.people(N)).astype({"age": int, "dose": float})
    return known.assign(**more)


IDS = [BASE + k // 3 for k in range(N)]


@met(
    "A",
    "Federation.from_frame with a column of 19-digit integers",
    "a feature",
    "refused by name: person or exclude",
    "19-digit patient numbers",
)
@met(
    "A",
    "the same, named in Recipe(categorical)",
    "40 features named by patients, in the schema",
    "refused by name",
    "19-digit patient numbers",
)
def test_a_frame_of_long_integers_makes_no_feature() -> None:
    for recipe in (Recipe(), Recipe(categorical=("pid",))):
        with pytest.raises(
            RowError, match="give the column as `person`, or leave it out"
        ) as caught:
            Federation.from_frame(frame(pid=IDS), "site", "sick", schema=recipe)
        assert "'pid'" in str(caught.value)


@pytest.mark.parametrize(
    "column",
    [
        IDS,
        pd.array(IDS, dtype="Int64"),
        pd.Series([10**20 + k // 3 for k in range(N)], dtype=object),
        [str(number) for number in IDS],
        np.array(IDS, dtype=np.uint64) + np.uint64(2**63),
    ],
    ids=["int64", "nullable", "objects", "text", "uint64"],
)
@met(
    "A",
    "person= a column of Python integers beyond 64 bits",
    "all rows are those of one person",
    "40 persons",
    "19-digit patient numbers",
)
def test_persons_of_any_kind_of_column_are_told_apart(column: object) -> None:
    fed = Federation.from_frame(frame(pid=column), "site", "sick", person="pid", schema=Recipe())
    assert fed.persons is not None
    assert len({person for part in fed.persons for person in part.tolist()}) == N // 3


@met(
    "A",
    "person= a column that pandas has made floats",
    "one person of 40, in silence",
    "refused: float64 has rounded the digits",
    "19-digit patient numbers",
)
def test_persons_that_float64_has_rounded_are_refused() -> None:
    rounded = frame(pid=np.array(IDS, float))
    with pytest.raises(RowError, match="last digits float64 has rounded"):
        Federation.from_frame(rounded, "site", "sick", person="pid", schema=Recipe())


# ---------------------------------------------------------------------------------------- amounts


def test_amounts_stay_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    path = table(
        tmp_path,
        income=[str(v) for v in rng.integers(900, 9000, N)],
        platelets=[str(1000 * v) for v in rng.integers(90, 450, N)],
        year=[str(1990 + k % 30) for k in range(N)],
        weight=[f"{v:.1f}" for v in rng.normal(80, 9, N)],
        count=[str(v) for v in rng.poisson(30, N)],
    )
    found = kinds(written(path)[1])
    assert {found[name] for name in ("income", "platelets", "year", "weight", "count")} == {
        "number"
    }


# ------------------------------------------------------------------------------------ open quotes


def opened(first: tuple[int, int], last: tuple[int, int], sign: str = ",") -> str:
    """A table with a quote before a cell, and one after another: (line, column), from 1."""
    lines = untidy.text(untidy.people(N), sign).splitlines()
    for (line, column), form in ((first, '"{}'), (last, '{}"')):
        cells = lines[line - 1].split(sign)
        cells[column - 1] = form.format(cells[column - 1])
        lines[line - 1] = sign.join(cells)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "line", "end"),
    [
        (opened((51, 3), (61, 3)), 51, 61),
        (opened((51, 5), (61, 5)), 51, 61),
        (opened((51, 2), (52, 2), ";"), 51, 52),
        (opened((51, 3), (61, 4)), 51, 61),
        (opened((1, 3), (10, 3)), 1, 10),
    ],
    ids=["same column", "last column", "next line", "another column", "header"],
)
@met(
    "A", "a quote left open swallows ten rows", "nothing: ten rows are gone", "named with its lines"
)
@met(
    "A",
    "the same in the last column",
    "a third class, a softmax model",
    "named with its lines",
    "a quote left open",
)
@met(
    "A",
    "a quote left open in the first line",
    "'there is no column sick', and a list of cells of patients",
    "named with its lines",
    "a quote left open",
)
@met(
    "A",
    "closed in another column",
    "'4 cells where the header has 5'",
    "named as a quote, with its lines",
    "a quote left open",
)
def test_an_open_quote_is_named_with_its_lines(
    text: str, line: int, end: int, bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "table.csv").write_text(text)
    (tmp_path / "q.toml").write_text(
        '[data]\npath = "table.csv"\nclient = "site"\ntarget = "sick"\n[problem]\nloss = "logistic"'
    )
    for command in (("init", "table.csv", "--out", "new.toml"), ("run", "q.toml")):
        assert bonafed(*command) == 2
        said = capsys.readouterr().err
        assert f"that begins on line {line} goes on to line {end}" in said
        assert "Is a quote left open" in said


def test_line_breaks_that_a_person_meant_are_read(tmp_path: Path) -> None:
    remark = [f"aged {k}, well,\nthen\nhome" for k in range(N)]
    whole = read(table(tmp_path, remark=remark))
    assert whole["remark"].tolist() == remark
    assert whole.others == {"with the names of columns": 1, "inside of quotes": 2 * N}


# ---------------------------------------------------------------------------- headers and odd cells


@met(
    "A",
    "a header repeated among the rows",
    "a fourth client, a third class, two columns lost",
    "drop_repeated_header = true; without it a run names the line",
)
@met(
    "A", "the same in capital letters", "one more client and class", "the same", "a header repeated"
)
def test_a_repeated_header_is_neither_client_nor_class(tmp_path: Path) -> None:
    lines = table(tmp_path).read_text("utf-8").splitlines()
    lines.insert(70, lines[0].upper())
    lines.insert(30, lines[0])
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    text, printed = written(tmp_path / "table.csv")
    assert "drop_repeated_header = true  # in 2 lines" in text
    assert printed[0].startswith(f"{N} rows of 3 clients")
    parts = prepare(parse_config(text, folder=tmp_path))
    assert parts.read == N
    assert parts.train.classes is not None
    assert parts.train.classes.tolist() == ["no", "yes"]
    plain = parse_config(text.replace("drop_repeated_header = true", ""), folder=tmp_path)
    with pytest.raises(RowError, match=r"line 31 names the columns again.*data\.drop_repeated"):
        prepare(plain)


@met(
    "A",
    "the same in quotes, with spaces round the names",
    "one more client and class, two columns lost",
    "the same",
    "a header repeated",
)
@met("A", "the same as the last line", "one more client and class", "the same", "a header repeated")
def test_a_header_repeated_in_another_form_is_no_row(tmp_path: Path) -> None:
    lines = table(tmp_path).read_text("utf-8").splitlines()
    quoted = ", ".join(f'" {name} "' for name in lines[0].split(","))
    (tmp_path / "table.csv").write_text("\n".join([*lines, quoted, lines[0]]) + "\n")
    text, printed = written(tmp_path / "table.csv")
    assert "drop_repeated_header = true  # in 2 lines" in text
    assert printed[0].startswith(f"{N} rows of 3 clients")
    assert prepare(parse_config(text, folder=tmp_path)).read == N


@met(
    "A",
    "a line of labels below the names",
    "one more client and class, all numbers lost",
    "header_lines = 2",
    "a header repeated",
)
def test_labels_below_the_names_are_no_row(tmp_path: Path) -> None:
    lines = table(tmp_path).read_text("utf-8").splitlines()
    lines.insert(1, "Site,years,m/f,mg,ill?")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    text, printed = written(tmp_path / "table.csv")
    assert "header_lines = 2" in text
    assert kinds(printed)["dose"] == "number"
    assert prepare(parse_config(text, folder=tmp_path)).read == N
    lines[1] = "north,61,f,2.5,yes"
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(RowError, match="line 2 has numbers, and is to be a line of the header"):
        read(tmp_path / "table.csv", reading=Reading(header_lines=2))


@pytest.mark.parametrize("cell", ["1e400", "inf", "-Infinity", "1E+999", "1e200", "<1e400"])
@met("A", "1e400 in a column of numbers", "limits; the written file does not run", "missing, named")
@met("A", "inf", "mixed, the column left out", "missing, named with its line", "1e400")
@met("A", "1e200, whose square is not a number", "the run refuses it", "missing, named", "1e400")
@met("A", "<1e400", "limits; the column is infinite", "missing, named", "1e400")
def test_cells_that_are_no_numbers_are_named_and_missing(cell: str, tmp_path: Path) -> None:
    doses = untidy.people(N)["dose"]
    doses[3] = cell
    text, printed = written(table(tmp_path, dose=doses))
    assert f"'{cell}' in line 5 of" in " ".join(text.replace("#", " ").split())
    assert kinds(printed)["dose"] == "number"
    parts = prepare(parse_config(text, folder=tmp_path))
    assert all(np.isfinite(X).all() for X in parts.train.X)


@met("A", "inf in Parquet", "the written file does not run", "missing", "1e400")
def test_infinite_numbers_of_a_frame_are_missing(tmp_path: Path) -> None:
    whole = frame()
    whole.loc[3, "dose"] = np.inf
    whole.to_parquet(tmp_path / "t.parquet")
    text, _ = written(tmp_path / "t.parquet")
    assert prepare(parse_config(text, folder=tmp_path)).read == N


@met(
    "A",
    "'see below' in one cell of numbers, 'soon' in one of dates",
    "mixed, both columns left out",
    "the cells are named with their lines and count as missing",
)
@met(
    "A",
    "an odd cell that is a category of another column",
    "mixed, left out",
    "left out still, and named: `missing` holds for every column",
    "'see below'",
)
@met(
    "A",
    "an odd cell in a target of numbers",
    "'text in 1': correct these cells",
    "named with its line, with --missing",
    "'see below'",
)
def test_odd_cells_are_named_with_their_lines(tmp_path: Path) -> None:
    days, doses = untidy.dates(N, "{d}.{m}.{y}"), untidy.people(N)["dose"]
    days[5], doses[9] = "soon", "see below"
    text, printed = written(table(tmp_path, day=days, dose=doses))
    assert 'missing = ["see below", "soon"]' in text
    assert "'soon' in line 7 of" in text
    assert {kinds(printed)[name] for name in ("day", "dose")} == {"date", "number"}
    doses[9] = "f"  # which is a sex as well
    text, printed = written(table(tmp_path, dose=doses))
    assert kinds(printed)["dose"] == "mixed"
    assert "'f' in line 11" in text
    doses[9] = "none yet"
    with pytest.raises(ConfigError, match=r"'none yet' in line 11 .*give --missing"):
        written(table(tmp_path, dose=doses), target="dose")


@met(
    "A",
    "'see below' in a column with decimal commas",
    "mixed, the column left out",
    "named with its line, and missing",
    "'see below'",
)
@met(
    "A",
    "'see below' in 13 of 120 cells of numbers",
    "mixed, left out",
    "left out still, with all cells named: they are too many for slips",
    "'see below'",
)
def test_odd_cells_beside_decimal_commas_and_many_of_them(tmp_path: Path) -> None:
    doses = [cell.replace(".", ",") for cell in untidy.people(N)["dose"]]
    doses[9] = "see below"
    text, printed = written(table(tmp_path, sign=";", dose=doses))
    assert kinds(printed)["dose"] == "number"
    assert "'see below' in line 11 of" in " ".join(text.replace("#", " ").split())
    fed = prepare(parse_config(text, folder=tmp_path)).train
    assert "dose" in fed.feature_names
    for r in range(0, 120, 10):
        doses[r] = "see below"
    text, printed = written(table(tmp_path, sign=";", dose=doses))
    assert kinds(printed)["dose"] == "mixed"
    assert "'see below' in line 2" in text
    assert prepare(parse_config(text, folder=tmp_path)).read == N


# ------------------------------------------------------------------------------------------ names


def places(of_north: Callable[[int], str]) -> list[str]:
    sites = untidy.people(N)["site"]
    return [of_north(k) if s == "north" else s for k, s in enumerate(sites)]


@pytest.mark.parametrize(
    "other",
    [NFD, "Köln\u200b", "\u00a0Köln", "Kö\u00adln", "Köln\ufeff", "K\u2060öln", "Köln\u202f"],
)
@met("A", "'Köln' in two forms of Unicode", "two hospitals", "one")
@met("A", "'Köln' with a zero-width space", "two hospitals", "one", "'Köln' in two forms")
@met(
    "A",
    "'Köln' with a hard space",
    "one in a table, two in `from_arrays`",
    "one",
    "'Köln' in two forms",
)
@met("A", "'Köln' with a soft hyphen", "two hospitals", "one", "'Köln' in two forms")
def test_names_that_look_alike_are_one_client(other: str, tmp_path: Path) -> None:
    path = table(tmp_path, site=places(lambda k: ("Köln", other)[k % 2]))
    text, printed = written(path)
    assert printed[0].startswith(f"{N} rows of 3 clients")
    fed = prepare(parse_config(text, folder=tmp_path)).train
    assert sorted(fed.clients) == ["Köln", "east", "south"]
    said = " ".join(" ".join(printed).split())
    told = (
        r"'site' has 'Köln' in \d+ rows in another form of Unicode, or with signs that nobody sees"
    )
    assert bool(re.search(told, said)) == (other.strip() not in ("Köln", "\u00a0Köln"))
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    assert Federation.from_arrays(X, y, ["Köln", other, "Ulm", other]).clients == ("Köln", "Ulm")


@met(
    "A",
    "a column, a class and a category in two forms, also in the configuration",
    "four classes, and the ward twice",
    "one each",
    "'Köln' in two forms",
)
def test_columns_classes_and_categories_are_read_as_people_see_them(tmp_path: Path) -> None:
    people = untidy.people(N)
    sick = [f"{cell}\u200b" if k % 2 else cell for k, cell in enumerate(people["sick"])]
    ward = [("Köln", NFD)[k % 2] if k % 3 else "Ulm" for k in range(N)]
    form = unicodedata.normalize("NFD", "größe")
    path = table(tmp_path, sick=sick, ward=ward)
    path.write_text(path.read_text("utf-8").replace("dose", form, 1), "utf-8")
    text = (
        '[data]\npath = "table.csv"\nclient = "site"\ntarget = "sick"\n'
        f'features = ["größe", "ward"]\npositive = "yes\u200b"\n'
        f'merge.ward = {{ "{NFD}" = "Ulm" }}\n[problem]\nloss = "logistic"\n'
    )
    parts = prepare(parse_config(text, folder=tmp_path))
    assert parts.train.feature_names == ("größe", "ward=Ulm")
    assert parts.train.classes is not None
    assert parts.train.classes.tolist() == ["no", "yes"]


# ----------------------------------------------------------------------------------- several paths


@met("A", "init de/*.csv without quotes", "'unexpected extra argument'", "one client for each file")
@met(
    "A",
    "three files of a year with the same sites",
    'one client a file; with client = "site" the run refused a client in two files',
    'client = "site"',
    "init de/*.csv",
)
@met("A", "a file given twice", "refused as a client in two", "refused by name", "init de/*.csv")
@met(
    "A",
    "files with sites of their own",
    "one client for each file, by a pattern",
    "the same",
    "init de/*.csv",
)
def test_several_files_are_clients_or_have_a_client_column(tmp_path: Path) -> None:
    people = untidy.people(N)
    years = [tmp_path / f"{y}.csv" for y in (2019, 2020, 2021)]
    for k, path in enumerate(years):
        rows = {name: cells[40 * k : 40 * k + 40] for name, cells in people.items()}
        path.write_text(untidy.text(rows))
    text, printed = written(*years, client=None)
    assert 'client = "site"' in text
    assert printed[0].startswith(f"{N} rows of 3 clients")
    assert prepare(parse_config(text, folder=tmp_path)).read == N
    for k, path in enumerate(years):
        rows = {c: cells[40 * k : 40 * k + 40] for c, cells in people.items() if c != "site"}
        path.write_text(untidy.text({**rows, "site": [f"ward {k}"] * 40}))
    text, printed = written(*years, client=None)
    assert "# one file per client" in text
    assert sorted(prepare(parse_config(text, folder=tmp_path)).train.names) == [
        *("2019", "2020", "2021")
    ]
    with pytest.raises(ValueError, match=r"2019\.csv is given twice: name every file once"):
        written(years[0], *years)


@met("A", 'classes = ["0", "1"] of a column of 0 and 1', "refused: it is 0", "right")
@met("A", "the same with positive = 1", "'none of `classes`'", "right", 'classes = ["0", "1"]')
@met(
    "A",
    'positive = "1" without classes',
    "'must be one of two classes'",
    "right",
    'classes = ["0", "1"]',
)
@met("A", 'classes=["0", "1"] of a frame', "refused", "right", 'classes = ["0", "1"]')
def test_classes_may_be_written_as_text(tmp_path: Path) -> None:
    table(tmp_path, sick=[str(int(k % 3 == 0)) for k in range(N)])
    for more in (
        'classes = ["0", "1"]\npositive = "1"',
        'classes = ["0", "1"]\npositive = 1',
        'positive = "1"',
        "classes = [0, 1]",
    ):
        text = f'[data]\npath = "table.csv"\nclient = "site"\ntarget = "sick"\n{more}\n'
        train = prepare(parse_config(text + '[problem]\nloss = "logistic"', folder=tmp_path)).train
        assert train.classes is not None
        assert train.classes.tolist() == [0, 1]
    zeros = frame(sick=np.arange(N) % 2).drop(columns="sex")
    fed = Federation.from_frame(zeros, "site", "sick", classes=["0", "1"])
    assert fed.classes is not None
    assert fed.classes.tolist() == [0, 1]


@pytest.mark.parametrize(("zero", "one"), [("0.0", "1.0"), ("00", "01"), ("0", "1.00")])
@met(
    "A",
    "a target of 0 and 1, written 0.0 and 1.0 by the pandas of one hospital",
    "a target of numbers with the Huber loss; with --classes four classes",
    "2 classes, 0 and 1",
    'classes = ["0", "1"] of a column of 0 and 1',
)
def test_one_number_in_two_forms_is_one_class(zero: str, one: str, tmp_path: Path) -> None:
    sites = untidy.people(N)["site"]
    forms = {sites[0]: (zero, one)}
    sick = [forms.get(site, ("0", "1"))[k % 3 == 0] for k, site in enumerate(sites)]
    text, _ = written(table(tmp_path, sick=sick))
    assert "# 2 classes: 0 in 80 rows, 1 in 40 rows." in text
    train = prepare(parse_config(text, folder=tmp_path)).train
    assert train.classes is not None
    assert train.classes.tolist() == [0, 1]


@met(
    "A", "a target of one class, in a configuration", "'has 1 values, not two'", "one value, named"
)
@met(
    "A",
    "the same with a loss of several classes",
    "'has 1 values: a loss of classes needs 2 to 1000'",
    "the same",
    "a target of one class",
)
@met("A", "the same at init", "'has one value in all rows'", "as before", "a target of one class")
def test_a_target_of_one_class_says_so(tmp_path: Path) -> None:
    path = table(tmp_path, sick=["yes"] * N)
    for more in ('loss = "logistic"', 'loss = "multinomial"\nmodel = "softmax"'):
        text = f'[data]\npath = "table.csv"\nclient = "site"\ntarget = "sick"\n[problem]\n{more}\n'
        with pytest.raises(ConfigError, match="column 'sick' has one value in all rows, 'yes', so"):
            prepare(parse_config(text, folder=tmp_path))
    with pytest.raises(ConfigError, match="the target 'sick' has one value in all rows"):
        written(path)


# -------------------------------------------------------------------------------- words of errors


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[data]\ntarget = sick\n",
            "line 2 is not TOML: 'target = sick'. Needed: a value: text in",
        ),
        (
            '[data]\ntarget = "sick\n',
            "line 2 is not TOML: 'target = \"sick'. Needed: a closing quote",
        ),
        ('[data]\npath = "C:\\users\\x.csv"\n', "Needed: '/' between the folders of a path"),
        (
            '[data]\npath = "a"\npath = "b"\n',
            "line 3 is not TOML: 'path = \"b\"'. Needed: every key",
        ),
        ("[data\n", "line 1 is not TOML: '[data'. Needed: ']' after the name of a table"),
        ('[data]\ntarget "sick"\n', "Needed: a key, then '=', then a value"),
        ('[data]\nexclude = ["a"\nseed = 1\n', "Needed: a comma or the closing bracket"),
        ("seed = \n", "line 1 is not TOML: 'seed ='. Needed: a value"),
    ],
)
@met("A", "target = sick", "'Invalid value (at line 2, column 10)'", "the line, and what it needs")
@met("A", 'target = "sick', "'Illegal character'", "a closing quote", "target = sick")
@met("A", 'path = "C:\\users"', "'Invalid hex value'", "'/' or single quotes", "target = sick")
@met(
    "A",
    "a key twice",
    "'Cannot overwrite a value'",
    "every key once, with the line",
    "target = sick",
)
def test_a_line_that_is_not_toml_is_shown_with_what_it_needs(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert words in str(caught.value)
    assert "Correct this line" in str(caught.value)


HALF = "a target of 1 and 2 at one hospital, 0 and 1 elsewhere"
GENERAL = "'holds 3 different whole numbers: give --classes': no hospital is named"
NAMED = "the hospital and its recoding are named; with --classes the written file runs"


@met("A", HALF, f"{GENERAL}; with --classes a second question blames the outcome", NAMED)
@met("A", "-1 and 1 at one hospital", GENERAL, f"{NAMED}, with a key that merges", HALF)
@met("A", "0 and 1 at one hospital, 1 and 2 elsewhere", GENERAL, NAMED, HALF)
@pytest.mark.parametrize(
    ("usual", "own", "ways", "key"),
    [
        ("01", ("1", "2"), ", 1 for 0 and 2 for 1", None),
        ("01", ("-1", "1"), "", '# merge.sick = { "-1" = "0" }'),
        ("12", ("0", "1"), ", 0 for 1 and 1 for 2", None),
    ],
)
def test_a_target_that_is_coded_otherwise_names_the_client_and_the_recoding(
    usual: str, own: tuple[str, str], ways: str, key: str | None, tmp_path: Path
) -> None:
    people, rng = untidy.people(N), np.random.default_rng(0)
    sick = (np.array(people["age"], float) > 55) ^ (rng.random(N) < 0.1)
    pairs = ((own if site == "north" else usual) for site in people["site"])
    path = table(tmp_path, sick=[pair[int(one)] for pair, one in zip(pairs, sick, strict=True)])
    asked = f"1 where the others have {', '.join(usual)}: another code{ways}?"
    asked = f"{own[0]}, {own[1]}{asked[1:]}"
    with pytest.raises(ConfigError, match=rf"north has {re.escape(asked)} Then write them alike"):
        written(path)
    text, printed = written(path, classes=True)
    (line,) = (line for line in printed if "question" in line)
    assert line == f"question: sick at north ({asked})"
    assert key is None or key in text
    for source in (text, text.replace(key, key[2:]) if key else text):
        train = prepare(parse_config(source, folder=tmp_path)).train
        assert train.classes is not None
        assert len(train.classes) == 3 - (source != text)


DECIMALS = "decimal commas in one column at one hospital, and points in all others"


@met("A", DECIMALS, "--exclude is proposed for both columns", "for the column with commas")
@met(
    "A",
    "the column with commas is excluded",
    "its commas counted still, and the file was not written",
    "a file that runs",
    DECIMALS,
)
@met(
    "A",
    "--decimal , where a column has points after thousands",
    "a file that does not run",
    "the column is named, with --exclude",
    DECIMALS,
)
def test_advice_on_decimal_signs_is_given_by_column(tmp_path: Path) -> None:
    people = untidy.people(N)
    crea = [f"{0.5 + k % 40 / 20:.2f}" for k in range(N)]
    mixed = places(lambda k: crea[k].replace(".", ","))
    mixed = [m if s == "north" else c for m, c, s in zip(mixed, crea, people["site"], strict=True)]
    path = table(tmp_path, sign=";", crea=mixed, bp=[f"{100 + k % 30}.5" for k in range(N)])
    with pytest.raises(ConfigError, match=r"commas in 'crea' at north .*give --exclude crea$"):
        written(path)
    text, _ = written(path, exclude=["crea"])
    assert prepare(parse_config(text, folder=tmp_path)).read == N
    path = table(
        tmp_path,
        sign=";",
        dose=[f"{k % 9},5" for k in range(N)],
        income=[f"{1 + k % 7}.{100 + k}" for k in range(N)],
    )
    with pytest.raises(ConfigError, match=r"points stand in 'income'.*give --exclude income"):
        written(path, decimal=",")


THOUSANDS = "1.234,50 and 950,00 in a column"


@met("A", THOUSANDS, "'numbers with signs after the thousands': left out", "a number")
@met("A", "1,234.50 and 950.00", "left out", "a number", THOUSANDS)
@met("A", "1.234 beside 1.234,50, which may be either", "left out", "asked", THOUSANDS)
@pytest.mark.parametrize(("sign", "group", "decimal"), [(";", ".", ","), (",", ",", ".")])
def test_a_sign_after_thousands_is_read_where_decimals_tell_it(
    sign: str, group: str, decimal: str, tmp_path: Path
) -> None:
    amounts = [f"{321.25 * (1 + k % 50):,.2f}" for k in range(N)]
    cells = ["".join({",": group, ".": decimal}.get(c, c) for c in cell) for cell in amounts]
    assert any(group in cell for cell in cells)
    assert not all(group in cell for cell in cells)
    doses = [cell.replace(".", decimal) for cell in untidy.people(N)["dose"]]
    path = table(tmp_path, sign=sign, income=cells, dose=doses)
    text, printed = written(path)
    assert kinds(printed)["income"] == "number"
    schema = prepare(parse_config(text, folder=tmp_path)).train.schema
    assert schema is not None
    (income,) = (column for column in schema.columns if column.name == "income")
    assert isinstance(income, Numeric)
    assert 321 < income.mean < 321.25 * 50
    if decimal == ",":
        cells[7] = "1.234"
        with pytest.raises(
            ConfigError, match=r"decimal commas in .*'income' at .* and points in 'income' at"
        ):
            written(table(tmp_path, sign=sign, income=cells, dose=doses))


NO_MALE = "no column 'male'"


@met("A", NO_MALE, "'Did you mean 'age'?'", "the columns are listed, and nothing is suggested")
@met("A", "no column 'died' beside 'age', 'side'", "'Did you mean 'side'?'", "the same", NO_MALE)
@met("A", "no column 'SITE' beside 'site'", "no suggestion", "'Did you mean 'site'?'", NO_MALE)
def test_only_a_name_that_is_close_is_suggested() -> None:
    for name, known, suggested in (
        ("male", ["age", "bp", "sex"], ""),
        ("died", ["age", "side", "sex"], ""),
        ("SITE", ["age", "site"], " Did you mean 'site'?"),
        ("agee", ["age", "site"], " Did you mean 'age'?"),
    ):
        listed = ", ".join(map(repr, known))
        assert closest(name, known) == f"; there are {listed}.{suggested}"


@met("A", "a folder for a configuration", "[Errno 21] Is a directory", "name a file in it")
@met(
    "A",
    "--out in a folder that is not there",
    "(No such file or directory)",
    "correct the path",
    "a folder for a configuration",
)
@met(
    "A",
    "a configuration in Windows-1252",
    "'codec can't decode byte'",
    "its line; save as UTF-8",
    "a folder for a configuration",
)
@met(
    "A",
    "a configuration with a byte-order mark",
    "'Invalid statement'",
    "read",
    "a folder for a configuration",
)
def test_the_system_and_codecs_speak_in_words(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    table(tmp_path)
    (tmp_path / "w.toml").write_bytes('seed = 0\ntitle = "Köln"\n'.encode("cp1252"))
    (tmp_path / "mark.toml").write_bytes("\ufeffseed = 0\n".encode())
    for command, words in (
        (("run", "."), "it is a folder: name a file in it"),
        (("init", "table.csv", "--out", "no/q.toml"), "make it, or give another --out"),
        (("run", "w.toml"), "line 2, is not text in UTF-8: save the file as UTF-8"),
        (("run", "mark.toml"), "[data] is missing"),
        (("run", "gone.toml"), "there is no configuration 'gone.toml'"),
        (("verify", "gone"), "there is no run 'gone'"),
    ):
        assert bonafed(*command) == 2
        said = capsys.readouterr().err
        assert words in said
        assert "Errno" not in said


@met(
    "A",
    "bonafed run examples/fairness.toml without a network",
    "'OpenML answers URLError(gaierror(-2, ...))'",
    "OpenML gives none, the system's reason, and where to put which file",
    "a folder for a configuration",
)
def test_a_network_that_is_not_there_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise URLError(gaierror(-2, "Name or service not known"))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    monkeypatch.delenv("BONAFED_DATA", raising=False)
    with pytest.raises(FileNotFoundError) as caught:
        load.adult()
    said = str(caught.value)
    assert "gives none: Name or service not known. Put uci/adult.data (3,974,305 bytes" in said
    assert "Error" not in said


@met(
    "A",
    "bf.load, Solution.save, Log.save and a checkpoint, of a folder or of a file that is not there",
    "'[Errno 2] No such file or directory'",
    "what is wrong with the path, and what to do",
    "a folder for a configuration",
)
def test_files_that_python_code_names_are_refused_in_words(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    fed = Federation.from_arrays(X, X[:, 0] > 0, np.repeat(["a", "b"], 20))
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    solution = bf.solve(problem, fed)
    folder, lost = tmp_path / "folder", tmp_path / "lost" / "model"
    folder.mkdir()
    for call in (
        lambda: bf.load(lost),
        lambda: solution.save(lost),
        lambda: solution.save(folder),
        lambda: Log.load(lost),
        lambda: bf.solve(problem, fed, engine=bf.InProcess(checkpoint=folder)),
    ):
        with pytest.raises(OSError, match=r"correct the path|name a file in it") as caught:
            call()
        assert "Errno" not in str(caught.value)


# ----------------------------------------- tables as spreadsheets show them, and words of outcomes

CLIENTLESS = "the hospital stands in the first row of each block only, as where cells were merged"
UNKNOWN = "an outcome of Yes, No and Unknown"
ABSENCE = "an outcome of 'No (0)' in 30 rows and 'Yes (1)' in 90"
SUBTOTAL = "a line 'North total' below the rows, with a number for the outcome"
TWO_LINES = "a line Patient,,,Lab,,Outcome above the names"
CLASS = "a class was trained of it, not asked"


def kept(config: str) -> str:
    """[data] of a configuration as one line."""
    return " ".join(config.replace("#", " ").split())


@met("A", CLIENTLESS, "trained on 3 of 120 rows: `drop_missing_client = true`", "refused in words")
@met("A", "the hospital in every third row", "trained on 40 of 120 rows", "the same", CLIENTLESS)
@met("A", "no hospital in 50 of 120 rows", "left out, as is said", "the same", CLIENTLESS)
def test_rows_without_a_client_are_not_dropped_where_they_are_most(tmp_path: Path) -> None:
    sites = untidy.people(N)["site"]
    for keep in (lambda k: k in (0, 40, 80), lambda k: k % 3 == 0):
        path = table(tmp_path, site=[s if keep(k) else "" for k, s in enumerate(sites)])
        with pytest.raises(ConfigError, match=r"'site' is empty in \d+ of 120 rows.*every row"):
            written(path)
    path = table(tmp_path, site=[s if k >= 50 else "" for k, s in enumerate(sites)])
    assert "drop_missing_client = true  # 50 rows have none" in written(path)[0]


@met("A", UNKNOWN, CLASS, "read as missing, with its rows")
@met("A", "ja, nein and unbekannt", CLASS, "the same", UNKNOWN)
@met("A", "pending and lost to follow-up beside yes and no", CLASS, "the same", UNKNOWN)
@met("A", "none, mild and severe", "three classes", "three classes", UNKNOWN)
@met("A", "yes and unknown", "two classes", "two classes", UNKNOWN)
def test_words_for_an_unknown_outcome_are_no_class(tmp_path: Path) -> None:
    for words, others in (
        (("Yes", "No"), ["Unknown"]),
        (("ja", "nein"), ["unbekannt"]),
        (("yes", "no"), ["lost to follow-up", "pending"]),
    ):
        cells = [others[k % len(others)] if k < 6 else words[k % 5 // 3] for k in range(N)]
        config = kept(written(table(tmp_path, sick=cells))[0])
        assert "2 classes: " in config
        assert f"missing = {json.dumps(others)}" in config
        assert f"6 rows have none, {others[0]} in {6 // len(others)}" in config
    for cells in (["none", "mild", "severe"] * 40, ["yes", "unknown", "yes"] * 40):
        config = kept(written(table(tmp_path, sick=cells))[0])
        assert f"{len({*cells})} classes: " in config
        assert "missing =" not in config


@met("A", ABSENCE, "positive = 'No (0)', the rarer class", "positive = 'Yes (1)', and why")
@met("A", "sick and not sick", "positive = 'not sick'", "positive = 'sick'", ABSENCE)
@met("A", "krank and gesund", "positive = 'gesund'", "positive = 'krank'", ABSENCE)
@met("A", "positif and négatif, да and нет", "the negation", "the other one", ABSENCE)
@met("A", "red and blue", "the rarer one", "the rarer one", ABSENCE)
@pytest.mark.parametrize(
    "pair",
    [
        *(("Yes (1)", "No (0)"), ("sick", "not sick"), ("event", "no event"), ("krank", "gesund")),
        *(("positif", "négatif"), ("да", "нет"), ("abnormal", "normal"), ("case", "control")),
        *(("ill", "non-ill"), ("Rezidiv", "kein Rezidiv"), ("blue", "red")),
    ],
)
def test_a_negation_is_not_positive_where_it_is_rarer(tmp_path: Path, pair: Sequence[str]) -> None:
    cells = [pair[k % 4 == 0] for k in range(N)]
    positive = pair[pair == ("blue", "red")]
    assert f'positive = "{positive}"' in written(table(tmp_path, sick=cells))[0]


@met("A", SUBTOTAL, "a client and classes, not asked", "refused by its line")
@met("A", "Average, with all cells filled", "a client", "refused by its line", SUBTOTAL)
@met("A", "Summe Nord below each block", "a client", "refused by its line", SUBTOTAL)
@met("A", "a hospital of the name Sumner", "a client", "a client", SUBTOTAL)
def test_subtotals_are_not_clients(tmp_path: Path) -> None:
    columns = untidy.people(N)
    last = {name: cells[-1] for name, cells in columns.items()}
    for label in ("North total", "Average", "Summe Nord", "Sumner"):
        rows = {name: [*cells, last[name]] for name, cells in columns.items()}
        rows["site"][-1] = label
        (path := tmp_path / "t.csv").write_text(untidy.text(rows, ","), "utf-8")
        if label == "Sumner":
            written(path)
            continue
        with pytest.raises(ConfigError, match=f"'{label}' in line 122 of .*looks like a total"):
            written(path)


@met("A", TWO_LINES, "the names were a row, and three columns never read", "refused by its line")
@met(
    "A",
    "the same with the last cell empty",
    "taken for the names",
    "refused by its line",
    TWO_LINES,
)
@met("A", "an index without a name", "left out", "left out", TWO_LINES)
def test_a_line_above_the_names_is_not_the_names(tmp_path: Path) -> None:
    text = untidy.text(untidy.people(N), ",")
    width = text.partition("\n")[0].count(",") + 1
    path = tmp_path / "t.csv"
    for some in ({0: "Patient", 3: "Lab"}, {k: f"of {k}" for k in range(width - 1)}):
        path.write_text(",".join(some.get(k, "") for k in range(width)) + "\n" + text, "utf-8")
        with pytest.raises(ConfigError, match=f"{len(some)} of {width} columns, and the"):
            written(path)
    lines = text.splitlines()
    indexed = [f"{k or ''},{line}" for k, line in enumerate(lines)]
    path.write_text("\n".join(indexed), "utf-8")
    written(path)
