"""Tables as they are: what a person declares of them, and what the reader understands by itself."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bonafed as bf
from bonafed.data.readers import read, read_clients
from bonafed.data.reading import Dates, Reading
from bonafed.data.row_errors import RowError, RowErrors
from bonafed.data.schema import Recipe, Schema
from bonafed.data.tables import refined, table_of


def write(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


TEXT = "größe;ort\n1,5;Köln\n2,25;Zürich\n"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "utf-16"])
def test_a_declared_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, TEXT.encode(encoding))
    table = read(path, reading=Reading(encoding=encoding, decimal=","))
    assert table["größe"].tolist() == [1.5, 2.25]
    assert table["ort"].tolist() == ["Köln", "Zürich"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_byte_order_mark_counts_for_more_than_what_is_declared(
    tmp_path: Path, encoding: str
) -> None:
    mark = b"\xfe\xff" if encoding.endswith("be") else b""
    path = write(tmp_path, mark + TEXT.encode(encoding))
    assert [*read(path, reading=Reading(encoding="latin-1"))] == ["größe", "ort"]


def test_another_encoding_is_an_error_that_says_which_key_declares_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"line 1 is not text in UTF-8. Declare another `enc"):
        read(write(tmp_path, TEXT.encode("latin-1")))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_delimiter_is_seen_outside_of_quotes_and_can_be_declared(
    tmp_path: Path, separator: str
) -> None:
    path = write(tmp_path, separator.join(['"a,b;c|d,,;;||"', "x"]) + f"\n1{separator}2\n")
    assert [*read(path)] == ["a,b;c|d,,;;||", "x"]
    odd = write(tmp_path, "a:b;c\n1:2;3\n")
    assert [*read(odd, reading=Reading(delimiter=":"))] == ["a", "b;c"]


def test_what_spreadsheets_add_is_understood(tmp_path: Path) -> None:
    text = '\nsep=;\n"age\nin years";name;;\n\n61;"a\nb";;\n;;;\n48;c;;\n'
    table = read(write(tmp_path, text))
    assert {name: cells.tolist() for name, cells in table.items()} == {
        "age in years": [61, 48],
        "name": ["a\nb", "c"],
    }
    assert table.lines is not None
    assert table.lines.tolist() == [6, 9]
    cut = read(write(tmp_path, "a,b\n1,2,\n3,4,\n"))  # separators at the end of the rows alone
    assert cut["b"].tolist() == [2, 4]


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_columns_without_a_name_are_never_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, f"{name},site,age,ill\n0,a,1,y\n1,a,2,n\n2,b,3,y\n")
    assert [*read(path)] == ["site", "age", "ill"]
    fed = bf.Federation.from_frame(pd.read_csv(path), "site", "ill")
    assert fed.feature_names == ("age",)


def test_columns_of_one_name_are_told_apart_and_none_of_them_has_a_role(tmp_path: Path) -> None:
    path = write(tmp_path, "age,age,age,ill\n1,2,3,y\n4,5,6,n\n")
    assert [*read(path)] == ["age", "age (2)", "age (3)", "ill"]
    with pytest.raises(ValueError, match="there are two columns 'age'"):
        bf.Federation.from_files([path], "age")


def test_excluded_columns_are_left_out_and_a_slip_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "id,note,age,ill\nx,q,1,y\ny,r,2,n\n", "a.csv")
    write(tmp_path, "age,ill,id\n1,y,x\n2,n,z\n", "b.csv")  # another order, a column less
    reading = Reading(exclude=("id", "note"))
    fed = bf.Federation.from_files(tmp_path, "ill", reading=reading)
    assert fed.feature_names == ("age",)
    with pytest.raises(RowError, match=r"there is no column 'ids' \(`exclude`\).*'id'"):
        read_clients(tmp_path, reading=Reading(exclude=("ids", "note")))


@pytest.mark.usefixtures("not_private")
def test_the_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "crp,age,ill\n<1,1,y\n<x,2,n\n", "a.csv")
    write(tmp_path, "crp,age,ill\n2,1,y\n3,2,n\n", "b.csv")
    write(tmp_path, "crp,ill\nlow,y\n3,n\n", "c.csv")
    write(tmp_path, "crp,ill\n2,y\n3,n\n", "d.csv")
    with pytest.raises(RowError) as caught:
        bf.Federation.from_files(tmp_path, "ill", reading=Reading(kinds={"censored": ["crp"]}))
    first, second, third = str(caught.value).split("\n")
    assert "a.csv" in first
    assert "'<x'" in first
    assert "'low' in line 2 of" in second
    assert "d.csv: its columns are not those of" in third


@pytest.mark.parametrize(
    "reading",
    [
        Reading(kinds={"dates": {"admited": Dates("dmy")}}),
        Reading(kinds={"censored": ["admited"]}),
        Reading(merge={"admited": {"a": "b"}}),
    ],
)
@pytest.mark.usefixtures("not_private")
def test_a_slip_in_any_declared_name_is_an_error(tmp_path: Path, reading: Reading) -> None:
    path = write(tmp_path, "site,admitted,ill\ns,1.2.2024,y\ns,1.3.2024,n\n")
    with pytest.raises(RowError, match=r"there is no column 'admited'.*'admitted'"):
        bf.Federation.from_files([path], "ill", client="site", reading=reading)
    with pytest.raises(RowError, match=r"there is no column 'admited'.*'admitted'"):
        bf.Federation.from_frame(pd.read_csv(path), "site", "ill", reading=reading)


def test_a_declared_column_of_a_private_run_is_there_once(tmp_path: Path) -> None:
    path = write(tmp_path, "age,age,ill\n1,2,y\n")
    with pytest.raises(ValueError, match="there are two columns 'age'"):
        read(path, only=["age", "ill"])
    assert [*read(path, only=["ill"])] == ["ill"]


def test_declared_cells_are_missing_in_columns_of_text_and_of_numbers(tmp_path: Path) -> None:
    reading = Reading(missing=("n.a.", "-999", "unknown"))
    path = write(tmp_path, "dose,sex,code\n1.5,f,7\nn.a.,unknown,-999\n-999.0,m,8\n")
    for table in (read(path, reading=reading), refined(table_of(pd.read_csv(path)), reading)):
        np.testing.assert_array_equal(table["dose"], [1.5, np.nan, np.nan])
        np.testing.assert_array_equal(table["code"], [7, np.nan, 8])
        assert table["sex"].tolist() == ["f", None, "m"]


def test_a_decimal_comma_is_read_where_every_cell_is_a_number_with_one(tmp_path: Path) -> None:
    path = write(tmp_path, "a;b;c;d\n1,5;2;x,y;NA\n-2;3;z;,5\n1,5e-3;4;u;?\n")
    table = read(path, reading=Reading(decimal=","))
    assert table["a"].tolist() == [1.5, -2, 0.0015]
    assert table["b"].dtype == np.int64
    np.testing.assert_array_equal(table["d"], [np.nan, 0.5, np.nan])
    assert table["c"].tolist() == ["x,y", "z", "u"]
    frame = pd.read_csv(path, sep=";")
    reading = Reading(decimal=",", missing=("?",))
    assert refined(table_of(frame), reading)["a"].tolist() == [1.5, -2, 0.0015]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (("1,5", "1.5"), "has numbers with a decimal comma, and other cells.*'1.5' in line 3"),
        (("1,5", "low"), "has numbers with a decimal comma, and other cells.*'low' in line 3"),
        (("1.234", "950"), "has a decimal point, where `decimal` is a comma.*in line 2"),
    ],
)
def test_a_column_that_mixes_decimal_signs_is_refused(
    tmp_path: Path, cells: tuple[str, ...], words: str
) -> None:
    path = write(tmp_path, "x;y\n" + "".join(f"{cell};1\n" for cell in cells))
    with pytest.raises(RowError, match=words):
        read(path, reading=Reading(decimal=","))
    assert read(path, ["x"], Reading(decimal=","))["x"].tolist() == [*cells]  # declared as codes


@pytest.mark.parametrize(
    ("order", "cells"),
    [
        ("dmy", ["29.02.2024", "1/3/2023", "05-12-1999 23:59", ""]),
        ("ymd", ["2024-02-29", "20230301", "1999.12.05T23:59:01Z", ""]),
        ("mdy", ["02/29/2024", "3-1-2023", "12.05.1999", ""]),
    ],
)
def test_dates_become_numbers_by_one_declared_order(
    tmp_path: Path, order: str, cells: list[str]
) -> None:
    path = write(tmp_path, "came,x\n" + "".join(f"{cell},1\n" for cell in cells))
    table = read(path, reading=Reading(kinds={"dates": {"came": Dates(order)}}))
    days = [datetime.date(2024, 2, 29), datetime.date(2023, 3, 1), datetime.date(1999, 12, 5)]
    first = datetime.date(2000, 1, 1)
    assert [*table] == ["came year", "came month", "came weekday", "came days", "x"]
    for part, of in {
        "year": lambda day: day.year,
        "month": lambda day: day.month,
        "weekday": lambda day: day.weekday() + 1,
        "days": lambda day: (day - first).days,
    }.items():
        np.testing.assert_array_equal(table[f"came {part}"], [*map(of, days), np.nan])
    frame = pd.DataFrame({"came": [*map(pd.Timestamp, days), pd.NaT], "x": 1})
    made = refined(table_of(frame), Reading(kinds={"dates": {"came": Dates(order)}}))
    np.testing.assert_array_equal(made["came days"], table["came days"])


@pytest.mark.parametrize("cell", ["13.13.2024", "31.02.2024", "2024-01-02", "01.02.24", "soon"])
def test_a_cell_that_is_no_date_in_the_declared_order_is_refused(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, f"came,x\n01.02.2024,1\n{cell},2\n")
    with pytest.raises(RowError, match=f"not a date in the order 'dmy'.*'{cell}' in line 3"):
        read(path, reading=Reading(kinds={"dates": {"came": Dates("dmy")}}))


def test_limits_are_read_as_half_or_whole_and_a_feature_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "crp;x\n<0,5;1\n3,25;2\n> 100;3\nNA;4\n≤1;5\n")
    table = read(path, reading=Reading(decimal=",", kinds={"censored": ["crp"]}))
    np.testing.assert_array_equal(table["crp"], [0.25, 3.25, 100, np.nan, 0.5])
    assert table["crp is censored"].tolist() == [1, 0, 1, 0, 1]
    plain = read(write(tmp_path, "crp\n1\n2\n"), reading=Reading(kinds={"censored": ["crp"]}))
    assert plain["crp is censored"].tolist() == [0, 0]  # a table without limits has the feature
    with pytest.raises(RowError, match=r"not a number \(`decimal` = '.'\) and no limit.*'<0,5'"):
        read(write(tmp_path, "crp;x\n<0,5;1\n2;2\n"), reading=Reading(kinds={"censored": ["crp"]}))


def test_spellings_are_merged_also_of_clients_and_targets(tmp_path: Path) -> None:
    path = write(tmp_path, "site,sex,dose,ill\nNorth ,M,none,Yes\nnorth,male,2,no\nnorth,f,3,no\n")
    reading = Reading(
        merge={
            "site": {"North ": "north"},
            "sex": {"M": "male"},
            "dose": {"none": "0"},
            "ill": {"Yes": "yes"},
        }
    )
    fed = bf.Federation.from_files([path], "ill", client="site", reading=reading, schema=Recipe())
    assert fed.clients == ("north",)
    assert fed.classes is not None
    assert fed.classes.tolist() == ["no", "yes"]
    assert fed.feature_names == ("sex=f", "sex=male", "dose")
    frame = pd.DataFrame({"sex": ["M ", "M", "f"]})  # whose cells nobody stripped
    made = refined(table_of(frame), Reading(merge={"sex": {"M": "male"}}))
    assert made["sex"].tolist() == ["male", "male", "f"]


def test_rows_without_target_or_client_are_left_out_where_that_is_declared(tmp_path: Path) -> None:
    path = write(tmp_path, "site,age,ill\na,1,y\na,2,\n,3,n\nb,4,n\nc,5,\n")
    with pytest.raises(RowError, match="1 missing entry"):
        bf.Federation.from_files([path], "ill", client="site")
    reading = Reading(drop_missing_client=True)
    with pytest.raises(RowError, match="column 'ill' is missing"):
        bf.Federation.from_files([path], "ill", client="site", reading=reading)
    reading = Reading(drop_missing_client=True, drop_missing_target=True)
    for fed in (
        bf.Federation.from_files([path], "ill", client="site", reading=reading),
        bf.Federation.from_frame(pd.read_csv(path), "site", "ill", reading=reading),
    ):
        assert fed.clients == ("a", "b")
        assert fed.sizes.tolist() == [1, 1]


def test_codes_stay_as_they_are_written(tmp_path: Path) -> None:
    write(tmp_path, "zip,icd,ill\n01067,250.10,y\n10115,250.1,n\n", "a.csv")
    write(tmp_path, "zip,icd,ill\n01067,250.10,y\n20095,401,n\n", "b.csv")
    fed = bf.Federation.from_files(tmp_path, "ill", schema=Recipe(categorical=("zip", "icd")))
    assert {"zip=01067", "zip=10115", "icd=250.1", "icd=250.10"} < {*fed.feature_names}
    # pandas writes whole numbers as 1.0 where a cell of the column is missing
    assert read(write(tmp_path, "k,x\n1.0,1\n,2\n12.0,3\n"), ["k"])["k"].tolist() == [
        "1",
        None,
        "12",
    ]


def wards() -> dict[str, dict[str, np.ndarray]]:
    """Two clients; "b" is rare at each and not over both, "d" and "e" are rare over both."""
    north, south = ["a"] * 6 + ["b"] * 2 + ["d"], ["a"] * 5 + ["b"] * 2 + ["e"]
    return {
        name: {"ward": np.array(ward, object), "y": np.arange(len(ward)) % 2}
        for name, ward in (("north", north), ("south", south))
    }


def test_rare_categories_are_pooled_by_counts_over_all_clients() -> None:
    fed = bf.Federation.from_tables(wards(), "y", schema=Recipe(min_count=3))
    assert fed.feature_names == ("ward=a", "ward=b", "ward=other")
    assert [x[:, 2].sum() for x in fed.X] == [1, 1]
    assert [len(x) for x in fed.X] == [9, 8]
    assert fed.schema is not None
    kept = Schema.from_dict(fed.schema.to_dict())
    new = kept.transform({"ward": np.array(["b", "d", "never seen"], object)})
    assert new.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]  # a new one is a rare one
    none = bf.Federation.from_tables(wards(), "y", schema=Recipe(min_count=1))
    assert none.feature_names == ("ward=a", "ward=b", "ward=d", "ward=e")


def test_the_positive_class_is_the_second_one_and_is_kept() -> None:
    X, y = np.arange(8.0)[:, None], np.array(["ill", "well"] * 4)
    fed = bf.Federation.from_arrays(X, y, np.repeat([0, 1], 4), positive="ill")
    for each in (fed, fed.restrict(0), fed.pooled(), fed.split(0.5)[0], fed.with_features(fed.X)):
        assert each.classes is not None
        assert each.classes.tolist() == ["well", "ill"]
    at = bf.Problem(bf.Logistic()).at(fed)
    assert at is not None
    solution = bf.solve(bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)), fed)
    other = bf.solve(
        bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)),
        bf.Federation.from_arrays(X, y, np.repeat([0, 1], 4)),
    )
    np.testing.assert_allclose(solution.w, -other.w, atol=1e-6)
    with pytest.raises(ValueError, match="positive = 'sick' must be one of two classes"):
        bf.Federation.from_arrays(X, y, np.repeat([0, 1], 4), positive="sick")


def people(seed: int = 0) -> bf.Federation:
    """Three clients of 60 rows; persons have one to four rows, some at two clients."""
    rng = np.random.default_rng(seed)
    persons = rng.integers(0, 70, 180)
    y = (rng.random(180) < 0.2).astype(int)
    site = np.repeat(["a", "b", "c"], 60)
    return bf.Federation.from_arrays(rng.normal(size=(180, 2)), y, site, persons=persons)


@pytest.mark.parametrize("seed", range(5))
def test_no_person_is_on_both_sides_of_a_split(seed: int) -> None:
    train, test = people(seed).split(0.3, seed)
    on = [{n for part in fed.persons or () for n in part.tolist()} for fed in (train, test)]
    assert on[0]
    assert on[1]
    assert not on[0] & on[1]
    assert 0.15 < test.sizes.sum() / 180 < 0.45


def test_persons_of_one_client_are_held_out_by_their_share_and_class() -> None:
    persons = np.repeat(np.arange(40), 3)
    y = np.repeat(np.arange(40) % 4 == 0, 3).astype(int)
    fed = bf.Federation.from_arrays(np.zeros((120, 1)), y, np.zeros(120, int), persons=persons)
    _, test = fed.split(0.25, 3)
    assert test.sizes.tolist() == [30]
    assert 6 <= test.y[0].sum() <= 9


@pytest.mark.usefixtures("not_private")
def test_every_problem_of_a_table_is_told_at_once(tmp_path: Path) -> None:
    ids = [f"P{k}" for k in range(101)]
    rows = []
    for k, name in enumerate(ids):
        limit, pressure = ("<1", ">9")[k % 2], "low" if k == 7 else k
        rows.append(f"{name};{k},5;0{k % 9 + 1}.03.2024;{limit};{pressure};;{k % 2}")
    path = write(tmp_path, "\n".join(["id;dose;came;crp;bp;empty;ill", *rows]) + "\n")
    with pytest.raises(RowErrors) as caught:
        bf.Federation.from_files([path], "ill", schema=Recipe(max_categories=1))
    text = str(caught.value)
    for words in (
        "column 'id' has 101 categories, more than 1. It looks like an identifier: leave it out by",
        "column 'dose' has 101 categories, more than 1. They look like numbers with a decimal",
        "column 'came' has 9 categories, more than 1. They look like dates",
        "column 'crp' has 2 categories, more than 1. They look like limits",
        "column 'bp' holds numbers, but also text such as 'low' in line 9",
        "column 'empty' has no value at any client. Leave it out by `exclude`",
    ):
        assert words in text
    assert len(text.splitlines()) == 6
    assert "Recipe" not in text


def test_all_columns_that_are_not_as_declared_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "came;crp;dose\n2024-01-01;low;1,5\n01.02.2024;<3;1.5\n")
    with pytest.raises(RowErrors) as caught:
        read(
            path,
            reading=Reading(
                decimal=",", kinds={"dates": {"came": Dates("dmy")}, "censored": ["crp"]}
            ),
        )
    assert [line.split("column ")[1][:5] for line in str(caught.value).splitlines()] == [
        "'came",
        "'crp'",
        "'dose",
    ]
    hidden = str(caught.value.withheld())
    assert "low" not in hidden
    assert "2024-01-01" not in hidden
    assert "1.5" not in hidden


READING = Reading(
    encoding="cp1252",
    delimiter=";",
    decimal=",",
    missing=("?!",),
    exclude=("id",),
    kinds={"dates": {"came": Dates("mdy", ("days",))}, "censored": ["crp"]},
    merge={"sex": {"M": "m"}},
    drop_missing_target=True,
    drop_missing_client=True,
)


def test_a_reading_survives_the_way_to_json_and_a_schema_reads_by_it() -> None:
    assert Reading.from_dict(READING.to_dict()) == READING
    assert Reading().to_dict() == {}
    rows = {"sex": ["m", "f", "m"], "crp": ["<1", "2,5", "3"], "id": ["a", "b", "c"]}
    rows |= {"came": ["1/2/2024"] * 3, "ill": ["y", "n", "n"], "site": ["s"] * 3}
    fed = bf.Federation.from_frame(
        pd.DataFrame(rows), "site", "ill", reading=READING, schema=Recipe()
    )
    assert fed.schema is not None
    kept = Schema.from_dict(fed.schema.to_dict())
    new = kept.transform({"sex": ["M"], "crp": ["<1"], "came": ["1/2/2024"]})  # no id is needed
    np.testing.assert_allclose(new, fed.X[0][:1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encoding": "ascii"}, "encoding must be one of"),
        ({"decimal": "'"}, "decimal must be"),
        ({"delimiter": "ab"}, "delimiter must be one character"),
    ],
)
def test_a_reading_that_cannot_be_is_refused_when_it_is_made(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        Reading(**options)
    with pytest.raises(ValueError, match="order must be one of"):
        Dates("ydm")
    with pytest.raises(ValueError, match="parts must be some of"):
        Dates("ymd", ("hour",))
