"""No cell of the table is in anything that a private run prints, or writes outside ``owner/``.

The cells are recognisable: whole numbers of twelve digits, and odd words. They are looked for as
they stand, rounded, scaled as the model's features are, as bytes, and by their leading digits in
every number that is printed.
"""

from __future__ import annotations

import gzip
import re
import struct
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import bonafed as bf
import bonafed.report.terminal as bonafed_terminal
from bonafed.config.config import read_config
from bonafed.data.row_errors import RowError, without_values
from bonafed.data.schema import declared_schema
from bonafed.runs.pipeline import begin

LOW, HIGH = 10**11, 10**12
CLIENTS = ("North", "East")
WORDS = ("zorblax", "quimmet", "vexandir", "plorthic")
DIGITS = 10  # leading digits by which a cell is known in any number
CONFIG = f"""
title = "cells"
[data]
path = "cells.csv"
client = "site"
target = "sick"
classes = ["no", "yes"]
scale = "none"
test = 0.3
[data.columns]
age = {{ min = {LOW}, max = {HIGH} }}
dose = {{ mean = {LOW}, scale = 1e11, missing = 0.0 }}
ward = {{ categories = ["zorblax", "quimmet"] }}
[problem]
loss = "logistic"
strength = 1e-2
[privacy]
epsilon = 3.0
delta = 1e-5
sizes = {{ East = 12, North = 12 }}
book = "book.json"
[sweep]
parameter = "privacy.epsilon"
values = [0.5]
[report]
compare_with = ["erm"]
[algorithm]
max_rounds = 6
"""
REAL = CONFIG.replace('target = "sick"\nclasses = ["no", "yes"]', 'target = "cost"').replace(
    '"logistic"', '"huber"'
)
SWEEP = '[sweep]\nparameter = "privacy.epsilon"\nvalues = [0.5]\n'
HEADER = "site,age,dose,ward,person,cost,sick"
Cells = list[list[str]]


def table() -> Cells:
    """Rows of two clients; nobody declares the persons and their wards."""
    rng = np.random.default_rng(7)
    rows = []
    for client in CLIENTS:
        for k in range(16):
            age, dose, cost = rng.integers(LOW, HIGH, 3).tolist()
            person = "".join(rng.choice([*"bcdfgklmnprstvz"], 9))
            rows.append(
                [client, str(age), str(dose), WORDS[k % 2], person, str(cost), ["no", "yes"][k % 2]]
            )
    return rows


def text_of(rows: Cells) -> str:
    return "\n".join([HEADER, *map(",".join, rows)]) + "\n"


def spoilt(row: int, column: int, cell: str) -> str:
    """The table with another cell."""
    rows = table()
    rows[row][column] = cell
    return text_of(rows)


def written(number: float) -> Iterator[str]:
    """A number in words that printing it would use."""
    yield from (repr(number), f"{number:.6g}", f"{number:.4g}", f"{number:,.0f}", f"{number:.3e}")


def cells_in(said: bytes, more: tuple[str, ...] = ()) -> set[str]:
    """The cells of the table that are in a text or a file."""
    text = said.decode("utf-8", "replace")
    rows = table()
    numbers = [float(cell) for row in rows for cell in (row[1], row[2], row[5])]
    scaled = [(float(row[1]) - LOW) / (HIGH - LOW) for row in rows]
    scaled += [(float(row[2]) - LOW) / 1e11 for row in rows]
    words = [row[4] for row in rows] + [cell for cell in more if cell]
    found = {word for word in words if word in text}
    found |= {repr(x) for x in numbers if any(form in text for form in written(x))}
    found |= {repr(x) for x in numbers + scaled if struct.pack("<d", x) in said}
    digits = {re.sub(r"\D", "", token).lstrip("0") for token in re.findall(r"\d[\d.,_]*", text)}
    leading = {token[:DIGITS] for token in digits if len(token) >= DIGITS}
    stated = {repr(x).replace(".", "").lstrip("0")[:DIGITS]: x for x in numbers + scaled}
    return found | {repr(x) for start, x in stated.items() if start in leading}


def leaks(folder: Path, said: str, more: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Cells by where they are: what was printed, names of files, and all that may leave the
    owner.
    """
    parts = {"printed": said.encode()}
    parts["names"] = "\n".join(p.relative_to(folder).as_posix() for p in folder.rglob("*")).encode()
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        unfinished = ".partial/" in name or "/owner/" in name
        if path.is_file() and not unfinished and not name.startswith("cells."):
            parts[name] = path.read_bytes()
    return {name: cells for name, data in parts.items() if (cells := cells_in(data, more))}


def test_a_private_run_prints_and_hands_out_no_cell(
    bonafed: Callable[..., int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cells.csv").write_text(text_of(table()), "utf-8")
    (tmp_path / "cells.toml").write_text(CONFIG, "utf-8")
    assert cells_in((tmp_path / "cells.csv").read_bytes())  # the search finds what is there
    assert bonafed("run", "cells.toml", "--dry-run") == 0
    calls: list[str] = []

    def interrupted(model: str, *rest: object) -> tuple[str, ...]:
        calls.append(model)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return ("",) * 7

    with monkeypatch.context() as patch:
        patch.setattr(bonafed_terminal, "cells", interrupted)
        assert bonafed("run", "cells.toml", "--out", "runs") == 130
    said = capfd.readouterr()
    assert not leaks(tmp_path, said.out + said.err)
    (work,) = (tmp_path / "runs").iterdir()
    assert bonafed("run", "--resume", work) == 0
    (done,) = (tmp_path / "runs").iterdir()
    assert (done / "owner" / "result.json").is_file()
    assert bonafed("verify", done) in (0, 1)
    assert bonafed("report", done, "--format", "md") == 0
    said = capfd.readouterr()
    assert "rows as public" in said.out
    assert not leaks(tmp_path, said.out + said.err)


BAD = {
    "text among numbers": (spoilt(20, 1, "vexandir"), "column 'age' holds text in line 22 of"),
    "no age": (spoilt(3, 1, "NA"), ""),
    "infinite": (spoilt(3, 1, "1e999"), "column 'age' is infinite in line 5 of"),
    "too large": (spoilt(3, 2, "-7.345e200"), "column 'dose' .* is too large in line 5 of"),
    "unknown category": (spoilt(18, 3, "plorthic"), "column 'ward' .*'zorblax'.* in line 20 of"),
    "unknown class": (spoilt(18, 6, "vexandir"), "the target is none of .*'no', 'yes' in line 20"),
    "no class": (spoilt(18, 6, ""), "column 'sick' is missing in line 20 of"),
    "undeclared client": (spoilt(18, 0, "vexandir"), "not declared in line 20 of"),
    "no client": (spoilt(18, 0, ""), "column 'site': 1 missing entry, in line 20 of"),
    "short row": (text_of(table()) + "East,123456789012\n", "line 34: 2 cells"),
    "lone quote": (spoilt(18, 4, '"vexandir'), "line 20: "),
    "no header": (text_of(table()).split("\n", 1)[1], "there is no column "),
    "a name twice": ("zorblax,zorblax\n1,2\n", "there is no column 'site' "),
    "nul": (spoilt(18, 4, "vex\0andir"), "NUL bytes"),
}
REALS = {
    "text among real targets": (spoilt(20, 5, "vexandir"), "column 'cost' holds text in line 22"),
    "infinite target": (spoilt(20, 5, "inf"), "column 'cost' is missing or infinite in line 22"),
    "large target": (spoilt(20, 5, "-7.345e200"), "column 'cost' .* is too large in line 22"),
}


@pytest.mark.parametrize("name", [*BAD, *REALS])
def test_errors_of_a_private_run_name_the_line_and_no_cell(
    bonafed: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    content, words = (BAD | REALS)[name]
    (tmp_path / "cells.csv").write_text(content, "utf-8")
    more = ("vexandir", "plorthic", "7.345")
    for sized in (True, False):
        stated = REAL if name in REALS else CONFIG
        stated = stated if sized else stated.replace("sizes = { East = 12, North = 12 }", "")
        (tmp_path / "cells.toml").write_text(stated.replace(SWEEP, ""), "utf-8")
        if name == "undeclared client" and not sized:
            continue  # clients are public where none is declared
        assert bonafed("run", "cells.toml", "--out", "runs") == 2 or not words
        said = capfd.readouterr()
        if words:
            assert re.search(words, said.err), said.err
            assert said.err.count("\n") == 1
        assert not leaks(tmp_path, said.out + said.err, more if words else ())
        if not sized:
            assert bonafed("run", "cells.toml", "--dry-run") in (0, 2)
            said = capfd.readouterr()
            assert not leaks(tmp_path, said.out + said.err, more)


@pytest.mark.parametrize("name", ["text among numbers", "undeclared client", "no header"])
def test_a_traceback_of_a_private_run_has_no_cell(tmp_path: Path, name: str) -> None:
    (tmp_path / "cells.csv").write_text(BAD[name][0], "utf-8")
    (tmp_path / "cells.toml").write_text(CONFIG, "utf-8")
    config = read_config(tmp_path / "cells.toml")
    with pytest.raises(RowError) as raised:  # noqa: SIM117
        with without_values(private=True):
            begin(config)
    said = "".join(traceback.format_exception(raised.value))
    assert "RowError" in said
    assert not cells_in(said.encode(), ("vexandir",))


ODD = {
    "text": "vexandir",
    "text like a number": "7.345vexandir",
    "bytes": b"vexandir",
    "too large": 7.345e200,
    "too small": 7.345e-200,
    "negative": -7.345,
    "infinite": float("inf"),
    "none": None,
    "a list": ["vexandir"],
}
PLACES = ("X", "y", "sample_weight", "columns", "persons", "groups")
LOSSES = [bf.Logistic(), bf.Multinomial(), bf.Huber(), bf.Poisson()]


def with_cell(place: str, cell: object) -> dict[str, Any]:
    """Arrays of two clients with one odd cell, among the features in the second column."""
    rng = np.random.default_rng(0)
    whole: dict[str, Any] = {
        "X": rng.normal(size=(8, 2)).astype(object),
        "y": np.array([0.0, 1.0] * 4, object),
        "sample_weight": np.ones(8, object),
        "columns": np.arange(8).astype(object),
        "persons": np.arange(8).astype(object),
        "groups": np.array(["North"] * 4 + ["East"] * 4, object),
    }
    at = (6, 1) if place == "X" else 6
    whole[place][at] = cell
    return {name: np.array(column.tolist(), object) for name, column in whole.items()}


def from_arrays(cells: dict[str, Any]) -> bf.Federation:
    more = {name: cells[name].tolist() for name in ("y", "groups", "sample_weight", "persons")}
    X = np.array(cells["X"].tolist())
    columns = {"ward": cells["columns"]}
    return bf.Federation.from_arrays(X, columns=columns, positive=None, **more)


def from_pairs(cells: dict[str, Any]) -> bf.Federation:
    halves = {"North": slice(4), "East": slice(4, None)}
    pairs = {name: (cells["X"][half], cells["y"][half]) for name, half in halves.items()}
    weights = {name: cells["sample_weight"][half].tolist() for name, half in halves.items()}
    return bf.Federation.from_arrays(pairs, sample_weight=weights)


def from_frame(cells: dict[str, Any]) -> bf.Federation:
    table = {"age": cells["X"][:, 0], "dose": cells["X"][:, 1], "ward": cells["columns"]}
    table |= {name: cells[name] for name in ("y", "groups", "sample_weight", "persons")}
    frame = pandas.DataFrame({name: column.tolist() for name, column in table.items()})
    roles = {"columns": ["ward"], "sample_weight": "sample_weight", "person": "persons"}
    return bf.Federation.from_frame(frame, "groups", "y", features=["age", "dose"], **roles)


def from_codes(cells: dict[str, Any]) -> bf.Federation:
    """A table of codes, with classes and categories that are declared."""
    codes = ["zorblax", "quimmet"]
    ward = np.array(codes * 4, object)
    odd = cells["X"][6, 1]
    y = ward.copy()
    ward[6] = odd if isinstance(odd, str) else ward[6]
    y[6] = cells["y"][6] if isinstance(cells["y"][6], str) else y[6]
    table = {"ward": ward, "y": y}
    schema = declared_schema(["ward"], {"ward": {"categories": codes}}, "y", codes)
    return bf.Federation.from_tables({"North": table}, "y", schema=schema)


MAKERS = [from_arrays, from_pairs, from_frame, from_codes]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", ODD)
def test_a_guest_in_python_is_shown_no_cell(
    make: Callable[[dict[str, Any]], bf.Federation], place: str, odd: str
) -> None:
    """Whether a problem is private is not known when a federation is made for it."""
    budget = bf.Budget(1.0, 1e-5)
    for loss in LOSSES:
        problem = bf.Problem(loss, regulariser=bf.L2(1.0), privacy=budget)
        try:
            problem.at(make(with_cell(place, ODD[odd])))
        except (ValueError, TypeError) as error:
            said = "".join(traceback.format_exception(error))
            named = place == "groups"  # the name of a client is nobody's cell
            assert named or not any(cell in said for cell in ("vexandir", "7.345")), said


def test_a_guest_is_told_where_the_cell_is() -> None:
    with pytest.raises(RowError, match="client 'East': X must hold numbers, got text in column 1"):
        from_pairs(with_cell("X", "vexandir"))
    with pytest.raises(RowError, match=r"column 'dose' holds text in row 2 \(from 0\)"):
        from_frame(with_cell("X", "vexandir"))


def test_an_error_without_privacy_shows_the_cell_of_the_client_that_has_it(
    bonafed: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    open_run = CONFIG[: CONFIG.index("[privacy]")]
    (tmp_path / "cells.toml").write_text(open_run, "utf-8")
    (tmp_path / "cells.csv").write_text(spoilt(20, 1, "vexandir"), "utf-8")
    assert bonafed("run", "cells.toml") == 2
    said = capfd.readouterr().err
    assert "client 'East': column 'age' holds text 'vexandir' in line 22 of" in said
    assert not cells_in(said.encode())  # of others


def test_the_line_of_a_class_too_many_is_named(
    bonafed: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    open_run = CONFIG[: CONFIG.index("[privacy]")].replace('classes = ["no", "yes"]', "")
    (tmp_path / "cells.toml").write_text(open_run, "utf-8")
    (tmp_path / "cells.csv").write_text(spoilt(20, 6, "yess"), "utf-8")
    assert bonafed("run", "cells.toml") == 2
    said = capfd.readouterr().err
    assert "The rarest, 'yess', is that of client 'East' in line 22 of" in said


def test_files_that_cannot_be_read_show_no_bytes_of_theirs(
    bonafed: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = text_of(table()).encode()
    damaged = bytearray(gzip.compress(whole))
    damaged[len(damaged) // 2] ^= 255
    latin = spoilt(18, 4, "vexandir é").encode("latin-1")
    for ending, content in ((".csv.gz", bytes(damaged)), (".csv", latin), (".parquet", whole)):
        (tmp_path / f"cells{ending}").write_bytes(content)
        (tmp_path / "cells.toml").write_text(CONFIG.replace(".csv", ending), "utf-8")
        assert bonafed("run", "cells.toml") == 2
        said = capfd.readouterr()
        assert said.err.count("\n") == 1
        assert not leaks(tmp_path, said.out + said.err, ("vexandir", "0xe9"))
