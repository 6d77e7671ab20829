"""A profile of columns, and the kinds that follow from it."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bonafed.data.files import delimiter_and_header, encoding_of
from bonafed.data.profile import (
    kind_of,
    link,
    names_a_person,
    names_an_identifier,
    summarise,
    variants,
)
from bonafed.data.tables import stacked


def column(*cells: object) -> np.ndarray:
    """Cells of text as the reader has them."""
    whole = np.empty(len(cells), dtype=object)
    whole[:] = cells
    return whole


def told(name: str, cells: Sequence[object]) -> str:
    return kind_of(name, summarise(column(*cells))).name


MANY = 60


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("x", ["1", "2.5", None] * 20, "number"),
        ("x", ["1,5", "2", None] * 20, "comma"),
        ("x", ["1.5", "2,5"] * 20, "comma"),
        ("x", ["<0,5", "2,5", "3"] * 20, "censored"),
        ("x", ["-", "2.5", "3"] * 20, "number"),
        ("x", ["31.12.2020", "1.2.2021"] * 20, "date"),
        ("x", ["2020-12-31 08:15", "2021-02-01"] * 20, "date"),
        ("x", ["01/02/2020", "03/04/2020"] * 20, "asked"),
        ("x", ["31/12/2020", "12/31/2020"] * 20, "asked"),
        ("x", ["31/12/2020", "soon"] * 20, "category"),
        ("x", ["30/02/2020", "31/04/2020"] * 20, "category"),
        ("x", ["a", "b", None] * 20, "category"),
        ("x", ["a"] * 20 + [None], "constant"),
        ("x", [None, None], "empty"),
        ("x", [f"{k}.5" for k in range(MANY)] + ["inf"], "mixed"),
        ("x", [f"n{k}" for k in range(MANY)], "identifier"),
        ("x", [str(3 * k) for k in range(MANY)], "identifier"),
        ("x", [str(k * 37 % 61) for k in range(MANY)], "identifier"),
        ("x", [str(k * k % 977) for k in range(MANY)], "number"),
        ("x", [str(k / 7) for k in range(MANY)], "number"),
        ("Unnamed: 0", [str(k) for k in range(5)], "index"),
        ("patient_id", [str(k * 37 % 61) for k in range(MANY)], "identifier"),
        ("PatientID", [str(k * 37 % 61 // 2) for k in range(MANY)], "person"),
        ("ward_id", [str(k % 4) for k in range(MANY)], "code"),
        ("zip", ["1067", "50667"] * 20, "code"),
        ("x", ["01067", "50667"] * 20, "code"),
        ("x", ["A10.1", "I10", "C34.91"] * 20, "code"),
        ("x", ["#DIV/0!", "2.5", "#WERT!", "3"] * 20, "number"),
        ("x", [f"{k % 30} y" for k in range(MANY)], "mixed"),
        ("x", [f"{k}%" for k in range(MANY)], "mixed"),
        ("x", [f"{k + 1},234.50" for k in range(MANY)], "number"),
        ("x", [f"{k + 1}.234,50" for k in range(MANY)], "comma"),
        ("x", [f"{k % 12}b" for k in range(MANY)], "category"),
        ("x", [f"Mr {chr(65 + k % 25)}." for k in range(MANY)], "text"),
        ("x", ["5 mg", "10 mg"] * 20, "category"),
        ("Fallnummer", [str(k * 37 % 61) for k in range(MANY)], "identifier"),
        ("x", [f"{k % 25}.{k}" for k in range(MANY)] + ["see below"], "mixed"),
        ("x", [f"word {k % 101}" for k in range(505)], "text"),
        ("x", [f"w{k}" if k % 3 else "usual" for k in range(303)], "text"),
        ("x", [f"w{k}" if k % 9 == 0 else f"c{k % 3}" for k in range(1800)], "category"),
    ],
)
def test_the_kind_of_a_column(name: str, cells: list[object], kind: str) -> None:
    assert told(name, cells) == kind


def test_parts_of_a_column_are_one_column_whatever_they_were_read_as() -> None:
    parts = [column("1", "2.5", None), np.array([3, 4]), np.array([0.5, np.nan])]
    assert stacked(parts).tolist() == ["1", "2.5", None, "3", "4", "0.5", None]
    assert stacked(parts[1:]).dtype == float
    assert summarise(stacked(parts)).numbers == 5


def test_values_are_counted_exactly_however_many() -> None:
    many = summarise(np.arange(5_000.0))
    assert (many.distinct, many.counts) == (5_000, None)
    assert summarise(column(*(f"v{k % 3_000}" for k in range(5_000)))).distinct == 3_000


def test_a_date_fits_one_order_at_all_clients_or_it_is_asked() -> None:
    day, month = ("25/12/2020", "24/12/2020"), ("12/25/2020", "12/24/2020")
    either = ("01/02/2020", "02/03/2020")
    for cells, orders in (
        (day + either, {"dmy"}),
        (either + either, {"dmy", "mdy"}),
        (day + month, set()),
    ):
        assert summarise(column(*cells)).fits["dates"] == orders


@pytest.mark.parametrize(
    ("cells", "copies"),
    [
        ([("S" if k % 3 else "H") for k in range(90)], True),
        ([str(k % 3 and 1) for k in range(90)], True),
        ([("S" if k % 3 or k < 9 else "H") for k in range(90)], False),
        ([None if k % 3 else "2020-01-01" for k in range(90)], True),
        ([f"v{k}" for k in range(90)], False),
        ([str(k % 2) for k in range(90)], False),
    ],
)
def test_a_near_copy_of_the_target_tells_its_classes(cells: list[str], copies: bool) -> None:
    target = ["yes" if k % 3 else "no" for k in range(90)]
    assert (link(column(*cells), target).told() >= 0.98) is copies


def test_numbers_that_copy_or_part_the_target() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(1e6, 1.0, 80)
    y = [f"{(v - 1e6) * 3:.4f}" for v in x]
    assert link(x, y, (1e6, 0.0)).correlation() > 0.9999
    noise = link(rng.normal(size=80), y, (0.0, 0.0))
    assert abs(noise.correlation()) < 0.5
    target = ["yes" if v > 1e6 else "no" for v in x]
    assert link(x, target).apart()
    assert not link(np.r_[x[:-1], x.max() + 1], ["no" if v > 1e6 else "yes" for v in x]).apart()


def test_variants_differ_by_case_and_spaces_alone() -> None:
    counts = {"north": 9, "North": 2, "NORTH  WING": 1, "north wing": 5, "nort": 1}
    assert variants(counts) == {"North": "north", "NORTH  WING": "north wing"}


def test_tokens_are_values_again_where_they_are_not_accepted() -> None:
    known = summarise(column("unknown", "f", "m", "-"))
    assert known.absent == 2
    kept = known.with_tokens(["-"])
    assert (kept.absent, kept.present, kept.distinct) == (1, 3, 3)
    assert kept.counts == {"unknown": 1, "f": 1, "m": 1}


def test_names_of_people_and_identifiers() -> None:
    for name in ("patient", "patient_id", "PatientID", "patientid", "subject no", "MRN"):
        assert names_a_person(name), name
    for name in ("patient_age", "number_of_patients", "idle", "client_name_length"):
        assert not names_a_person(name), name
    assert names_an_identifier("record_id")
    assert names_an_identifier("sampleKey")
    assert not names_an_identifier("number")
    assert not names_an_identifier("id_verified")


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"a,b\n1,2\n", "ascii"),
        ("a,ö\n1,2\n".encode(), "utf-8"),
        ("a,ö\n1,2\n".encode("latin-1"), "latin-1"),
        ("a,ö €\n1,2\n".encode("cp1252"), "cp1252"),
        (codecs.BOM_UTF8 + b"a,b\n", "utf-8"),
        ("a,b\n".encode("utf-16"), "utf-16"),
        (b"a" * 2**20 + "ö".encode() + b"a" * 2**20 + "ö".encode("latin-1"), "latin-1"),
    ],
)
def test_the_encoding_of_a_file(data: bytes, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    assert encoding_of(tmp_path / "a.csv")[0] == encoding
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data))
    assert encoding_of(tmp_path / "a.csv.gz")[0] == encoding


@pytest.mark.parametrize(
    ("lines", "sign"),
    [
        (["a,b", "1,2"], ","),
        (["a;b", "1,5;2,5"], ";"),
        (["a\tb,c", "1\t2"], "\t"),
        (['"a;x",b', "1,2"], ","),
        (["sep=|", "a|b"], "|"),
        (["a", "1"], ","),
        (["", "a;b;c", '1;"x', ',y";2'], ";"),
    ],
)
def test_what_stands_between_cells(lines: list[str], sign: str) -> None:
    assert delimiter_and_header([f"{line}\n" for line in lines])[0] == sign
