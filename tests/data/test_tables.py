import gzip
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bonafed.data import readers, tables
from bonafed.data.federation import Federation
from bonafed.data.schema import Recipe

COLUMNS = {
    "site": ["b", "b", "a", "a"],
    "age": [50, 61, 47, 38],
    "dose": [0.1, 0.25, 3e-7, 4.0],
    "sick": [1, 0, 0, 1],
}


def frames():
    return [
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        pa.table(COLUMNS),
        {k: np.array(v) for k, v in COLUMNS.items()},
    ]


@pytest.mark.parametrize("frame", frames(), ids=["pandas", "polars", "arrow", "mapping"])
def test_frames_give_the_same_federation(frame):
    fed = Federation.from_frame(frame, client="site", target="sick")
    plain = Federation.from_arrays(
        np.column_stack([COLUMNS["age"], COLUMNS["dose"]]), COLUMNS["sick"], COLUMNS["site"]
    )
    assert fed.clients == ("b", "a")
    assert fed.feature_names == ("age", "dose")
    assert fed.classes.tolist() == [0, 1]
    assert fed.digests() == plain.digests()


@pytest.mark.parametrize("frame", frames()[:3], ids=["pandas", "polars", "arrow"])
def test_frames_of_numbers_are_arrays(frame):
    X = frame[["age", "dose"]] if not isinstance(frame, pa.Table) else frame.select(["age", "dose"])
    fed = Federation.from_arrays(X, frame["sick"], frame["site"])
    assert fed.feature_names == ("age", "dose")
    assert fed.X[1].tolist() == [[47, 3e-7], [38, 4.0]]


def test_further_columns_and_weights_are_no_features():
    frame = pd.DataFrame({**COLUMNS, "sex": ["f", "m", "f", "f"], "weight": [1, 3, 1, 1]})
    fed = Federation.from_frame(frame, "site", "sick", columns=["sex"], sample_weight="weight")
    assert fed.feature_names == ("age", "dose")
    assert fed.columns["sex"][0].tolist() == ["f", "m"]
    assert fed.share(0).tolist() == [0.25, 0.75]
    assert Federation.from_frame(frame, "site", "sick", features=["dose"]).n_features == 1


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_one_file_per_client(tmp_path):
    write(tmp_path / "b.csv", "age,sick\n50,yes\n61,no\n")
    write(tmp_path / "a.csv", "sick;age\nno;47.5\n")  # other order, other separator
    fed = Federation.from_files(str(tmp_path / "*.csv"), target="sick")
    assert fed.clients == ("a", "b")
    assert fed.X[0].tolist() == [[47.5]]
    assert fed.classes.tolist() == ["no", "yes"]
    assert Federation.from_files([tmp_path / "b.csv", tmp_path / "a.csv"], "sick").clients == (
        "b",
        "a",
    )
    assert Federation.from_files(tmp_path, "sick").digests() == fed.digests()


def test_one_file_with_a_client_column(tmp_path):
    path = write(tmp_path / "all.csv", '"site",age,sick\n007,50,1\n7,61,0\n007,47,0\n')
    fed = Federation.from_files(path, "sick", client="site")
    assert fed.clients == ("007", "7")
    assert fed.sizes.tolist() == [2, 1]


def test_csv_columns_are_typed_alike_everywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "CHUNK", 2)  # text appears only in the second chunk
    body = (
        'i,f,t,late,gap,u,big\n1,1.5,a,1,,1_0,1\n-2,2,"b, c",01,NA,2,2\n 3'
        " ,1e-3,?,x,7,3,99999999999999999999\n"
    )
    table = readers.read(write(tmp_path / "t.csv", body))
    assert table["i"].tolist() == [1, -2, 3]
    assert table["i"].dtype == np.int64
    assert table["f"].tolist() == [1.5, 2, 1e-3]
    assert table["t"].tolist() == ["a", "b, c", None]
    assert table["late"].tolist() == ["1", "01", "x"]
    np.testing.assert_array_equal(table["gap"], [np.nan, np.nan, 7])
    assert table["u"].tolist() == ["1_0", "2", "3"]
    assert table["big"].tolist() == ["1", "2", "9" * 20]  # float64 has not all of them
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write(body)
    assert readers.read(tmp_path / "t.csv.gz")["late"].tolist() == ["1", "01", "x"]


def test_csv_numbers_survive_exactly(tmp_path):
    x = np.random.default_rng(0).normal(size=300) * 10.0 ** np.random.default_rng(1).integers(
        -300, 300, 300
    )
    path = write(tmp_path / "x.csv", "x\n" + "\n".join(map(repr, x.tolist())) + "\n")
    np.testing.assert_array_equal(readers.read(path)["x"], x)


def test_parquet(tmp_path):
    pq.write_table(pa.table(COLUMNS), tmp_path / "all.parquet")
    fed = Federation.from_files(tmp_path / "all.parquet", "sick", client="site")
    assert fed.digests() == Federation.from_frame(pd.DataFrame(COLUMNS), "site", "sick").digests()
    write(tmp_path / "bad.parquet", "no parquet")
    with pytest.raises(ValueError, match=r"bad.parquet: this is not a readable Parquet file"):
        readers.read(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"a,b\n", "has a header but no rows"),
        (b"a,b\n1,2\n3\n", "line 3: 1 cell where the header has 2"),
        (b"a,b\n1,2\n3,4,5\n", "line 3: 3 cells"),
        (b"a,b\n\xff\xfe,2\n", "not a readable CSV file"),
        (b'a,b\n"1,2\n', "not a readable CSV file"),
    ],
)
def test_unreadable_csv_is_refused(tmp_path, content, text):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=text):
        readers.read(tmp_path / "t.csv")


def test_a_damaged_archive_is_refused(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 99)[:-9])
    with pytest.raises(ValueError, match="is a damaged archive"):
        readers.read(tmp_path / "t.csv.gz")


@pytest.mark.usefixtures("not_private")
def test_files_that_do_not_fit_together_are_refused(tmp_path):
    write(tmp_path / "a.csv", "age,sick\n50,1\n")
    write(tmp_path / "b.csv", "Age,sick\n50,1\n")
    with pytest.raises(
        ValueError,
        match=r"b.csv: .* not those of .*a.csv: it lacks column 'age' and has further column 'Age'",
    ):
        Federation.from_files(tmp_path, "sick")
    with pytest.raises(
        ValueError,
        match=r"no column 'sik' \(the target\); there are 'age', 'sick'. Did you mean 'sick'",
    ):
        Federation.from_files(tmp_path / "a.csv", "sik")
    with pytest.raises(ValueError, match=r"no column 'site' \(the client of each row\)"):
        Federation.from_files(tmp_path / "a.csv", "sick", client="site")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        Federation.from_files(str(tmp_path / "*.tsv"), "sick")
    with pytest.raises(FileNotFoundError, match="no file"):
        Federation.from_files(tmp_path / "c.csv", "sick")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "a.csv", "age,sick\n50,1\n")
    with pytest.raises(ValueError, match=r"a.csv: it has a client that is in .*a.csv as well, 'a'"):
        Federation.from_files([tmp_path / "a.csv", tmp_path / "sub" / "a.csv"], "sick")


@pytest.mark.usefixtures("not_private")
def test_cells_that_are_no_numbers_are_named(tmp_path):
    write(tmp_path / "a.csv", "age,sick\n50,1\n")
    write(tmp_path / "b.csv", "age,sick\n50,1\nold,0\n")
    with pytest.raises(
        ValueError, match=r"client 'b': column 'age' holds text 'old' in line 3 of .*b.csv"
    ):
        Federation.from_files(tmp_path, "sick")
    write(tmp_path / "b.csv", "age,sick\n50,1\n,0\n")
    with pytest.raises(
        ValueError,
        match=r"client 'b': X has 1 value that is missing .* column 'age', in line 3 of .*b.csv",
    ):
        Federation.from_files(tmp_path, "sick")
    write(tmp_path / "b.csv", "age,sick\n50,1\n3,\n")
    with pytest.raises(
        ValueError, match=r"client 'b': column 'sick' is missing or infinite in line 3 of .*b.csv"
    ):
        Federation.from_files(tmp_path, "sick")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_missing_values_of_every_library(make):
    table = tables.table_of(
        make({"n": [1, None, 3], "t": ["x", None, "z"], "b": [True, None, False]})
    )
    np.testing.assert_array_equal(table["n"], [1, np.nan, 3])
    assert table["t"].tolist() == ["x", None, "z"]
    np.testing.assert_array_equal(table["b"], [1, np.nan, 0])
    with pytest.raises(ValueError, match="column 's': 1 missing entry, in row 1"):
        Federation.from_frame(make({"s": ["a", None], "x": [1, 2], "y": [1, 2]}), "s", "y")


def test_other_types_are_refused():
    days = pd.DataFrame(
        {"day": pd.to_datetime(["2020-01-01", "2020-01-02"]), "y": [0, 1], "s": ["a", "b"]}
    )
    with pytest.raises(ValueError, match="column 'day' holds Timestamp"):
        Federation.from_frame(days, "s", "y")
    with pytest.raises(ValueError, match="column 'day' holds Timestamp"):
        Federation.from_frame(days, "s", "y", schema=Recipe())
    with pytest.raises(ValueError, match="expected a pandas, polars or Arrow table"):
        tables.table_of(3)
    with pytest.raises(
        ValueError, match="no column is left for the features: the table has columns 'day', 'y'"
    ):
        Federation.from_frame(days, "s", "y", columns=["day"])
    with pytest.raises(ValueError, match="'y' is the target and cannot be a feature"):
        Federation.from_frame(days, "s", "y", features=["y"])


def test_split_tables_holds_out_the_rows_that_a_split_federation_does():
    rng = np.random.default_rng(0)
    whole = {
        c: {"x": rng.normal(size=n), "y": rng.integers(0, 2, n)}
        for c, n in (("a", 30), ("b", 7), ("c", 1))
    }
    pairs = zip(
        tables.split(whole, "y", 0.3, 5),
        Federation.from_tables(whole, "y").split(0.3, 5),
        strict=True,
    )
    for part, fed in pairs:
        assert Federation.from_tables(part, "y").digests() == fed.digests()


def test_csv_needs_no_table_library_and_importing_loads_none(tmp_path):
    write(tmp_path / "a.csv", "age,sick\n50,yes\n61,no\n")
    program = f"""
import sys
heavy = ("pandas", "polars", "pyarrow", "narwhals", "sklearn", "scipy")
from bonafed.data import corrupt, federation, load, partition, schema, tables
assert not [name for name in heavy if name in sys.modules]
sys.modules.update(dict.fromkeys(heavy))  # importing any of them fails from here on
fed = federation.Federation.from_files({str(tmp_path)!r}, "sick", schema=schema.Recipe())
assert fed.split(0.5)[0].blocks and fed.pooled().n_clients == 1
print(fed.X[0][:, 0].tolist())
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("[-1.0, 1.0]\n", "")


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array])
def test_groups_of_every_library(make):
    fed = Federation.from_arrays(np.eye(3), make([1, 0, 1]), make(["b", "a", "b"]))
    assert fed.clients == ("b", "a")
    assert fed.y[0].tolist() == [1, 1]
    with pytest.raises(ValueError, match="groups: 1 missing entry, in row 1"):
        Federation.from_arrays(np.eye(3), [1, 0, 1], make(["b", None, "b"]))
