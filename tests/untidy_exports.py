"""Tables as Excel, SAS, REDCap, R, SPSS and databases export them, also in German and French.

Each passes `init`, `run`, `predict` and `verify` without an edit, and each of its lines is
accounted for. ``rows`` are those of patients; all other lines are names of columns, labels, blank,
inside of quotes, or names of columns again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from untidy import Columns, people, text, with_comma

EXPORTS: dict[str, Export] = {}
N = 120
NAMES = {"north": "Köln", "east": "Füssen", "south": "Ulm"}


@dataclass(frozen=True)
class Export:
    """Files, the options of `init`, and what has to stand in the configuration, or must not.

    ``left`` : rows that are left out, with a reason
    """

    make: Callable[[Path], None]
    paths: tuple[str, ...]
    options: tuple[str, ...]
    proposed: tuple[str, ...]
    absent: tuple[str, ...]
    rows: int
    left: int
    encoding: str


def export(
    *paths: str,
    options: Sequence[str] = (),
    proposed: Sequence[str] = (),
    absent: Sequence[str] = (),
    rows: int = N,
    left: int = 0,
    encoding: str = "utf-8",
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Enter a maker of files under its name."""

    def enter(make: Callable[[Path], None]) -> Callable[[Path], None]:
        known = tuple(options), tuple(proposed), tuple(absent)
        EXPORTS[make.__name__] = Export(make, paths or ("table.csv",), *known, rows, left, encoding)
        return make

    return enter


def patients(seed: int = 0, n: int = N, **changed: Sequence[str]) -> Columns:
    """`people` with some columns changed."""
    return {**people(n, seed), **{name: [*cells] for name, cells in changed.items()}}


def write(
    folder: Path,
    columns: Mapping[str, Sequence[str]],
    sign: str = ",",
    encoding: str = "utf-8",
    end: str = "\r\n",
    name: str = "table.csv",
    above: str = "",
    below: str = "",
) -> None:
    whole = above + text(columns, sign, end) + below
    (folder / name).write_bytes(whole.encode(encoding))


def german(columns: Columns) -> Columns:
    """The same with decimal commas, places in German, and ja and nein."""
    return {
        **columns,
        "site": [NAMES[s] for s in columns["site"]],
        "dose": with_comma(columns["dose"]),
        "sick": [{"yes": "ja", "no": "nein"}[s] for s in columns["sick"]],
    }


def dates(seed: int, pattern: str) -> list[str]:
    rng = np.random.default_rng(seed)
    parts = zip(
        rng.integers(1, 29, N), rng.integers(1, 13, N), rng.integers(2015, 2024, N), strict=True
    )
    return [pattern.format(d=d, m=m, y=y) for d, m, y in parts]


def numbers(seed: int, low: float, high: float, n: int = N) -> list[float]:
    return np.random.default_rng(seed).uniform(low, high, n).tolist()


# ------------------------------------------------------------------------------------------- Excel


@export(proposed=['decimal = ","', 'delimiter = ";"', 'positive = "ja"'])
def excel_csv_utf8(folder: Path) -> None:
    write(folder, german(patients()), ";", "utf-8-sig")


@export(proposed=['encoding = "cp1252"'], encoding="cp1252")
def excel_csv_of_windows_with_empty_columns(folder: Path) -> None:
    columns = german(patients(sex=[("w – f", "m €")[k % 2] for k in range(N)]))
    lines = text(columns, ";", "\n").splitlines()
    write_lines(folder, [*(f"{line};;;" for line in lines), ""], "cp1252")


def write_lines(folder: Path, lines: Sequence[str], encoding: str = "utf-8") -> None:
    (folder / "table.csv").write_bytes("\r\n".join(lines).encode(encoding))


@export(proposed=['delimiter = ";"'], encoding="cp1252")
def excel_with_a_line_that_says_the_separator(folder: Path) -> None:
    write(folder, german(patients()), ";", "cp1252", above="sep=;\r\n")


@export(proposed=['encoding = "utf-16"'], encoding="utf-16")
def excel_unicode_text(folder: Path) -> None:
    write(folder, german(patients()), "\t", "utf-16")


@export()
def excel_with_empty_rows_and_cells_that_end_early(folder: Path) -> None:
    lines = text(patients(), ",", "\n").splitlines()
    cut = [f"{line},," if k % 32 < 16 else line for k, line in enumerate(lines)]
    write_lines(folder, [*cut, "", *[",,,,,,"] * 9, "  ,,,, ,,", ""])


@export(proposed=["may be days as a spreadsheet counts them"])
def excel_days_as_numbers(folder: Path) -> None:
    days = np.random.default_rng(1).integers(43_000, 44_500, N)
    write(folder, patients(admission_date=[str(d) for d in days]))


@export(proposed=["#DIV/0!", "#WERT!"])
def excel_with_formulas_that_failed(folder: Path) -> None:
    ratio = [f"{v:.3f}" for v in numbers(2, 0.5, 2)]
    ratio[3], ratio[40], ratio[41] = "#DIV/0!", "#WERT!", "#N/A"
    write(folder, patients(ratio=ratio))


@export(absent=["E+18"])
def excel_identities_in_scientific_form(folder: Path) -> None:
    ids = [f"1,{234500 + 37 * (k // 2)}E+18" for k in range(N)]
    write(folder, german(patients(fall=ids)), ";")


@export()
def excel_with_breaks_and_quotes_in_cells(folder: Path) -> None:
    remark = [f'"seen {k},\n""well"", then\nhome"' for k in range(N)]
    columns = patients()
    lines = text(columns).splitlines()
    rows = [f"{line},{cell}" for line, cell in zip(lines, ["remark", *remark], strict=True)]
    write_lines(folder, [*rows, ""])


# --------------------------------------------------------------------------------------------- SAS


@export(proposed=['".A"', '".B"'])
def sas_with_points_for_missing_cells(folder: Path) -> None:
    columns = patients()
    for k in range(0, N, 7):
        columns["dose"][k] = (".", ".A", ".B")[k % 3]
    columns["age"][5] = "."
    write(folder, {name.upper(): cells for name, cells in columns.items()}, end="\n")


@export(proposed=['order = "dmy"'])
def sas_with_its_dates(folder: Path) -> None:
    days = dates(3, "{d:02d}{m}{y}")
    months = ("JAN", "FEB", "MAR", "APR", "MAY", "DEC")
    days = [f"{day[:2]}{months[int(day[:2]) % 6]}{day[-4:]}" for day in days]
    stamps = [f"{day}:{k % 24:02d}:15:00" for k, day in enumerate(days)]
    write(folder, patients(admitted=days, seen=stamps))


@export()
def sas_with_formats(folder: Path) -> None:
    cost = [f'"${v:,.2f}"' for v in numbers(4, 900, 9000)]
    share = [f"{v:.1f}%" for v in numbers(5, 0, 100)]
    grade = [("1=low", "2=mid", "3=high")[k % 3] for k in range(N)]
    columns = patients(share=share, grade=grade)
    lines = text(columns).splitlines()
    rows = [f"{line},{c}" for line, c in zip(lines, ["cost", *cost], strict=True)]
    write_lines(folder, [*rows, ""])


@export(absent=["merge.sex"])
def sas_with_cells_of_one_length(folder: Path) -> None:
    columns = patients()
    write(folder, {name: [cell.ljust(8) for cell in cells] for name, cells in columns.items()})


# ------------------------------------------------------------------------------------------ REDCap


def redcap() -> Columns:
    columns = patients()
    return {
        "record_id": [str(101 + k // 2) for k in range(N)],
        "redcap_event_name": [("baseline_arm_1", "visit_1_arm_1")[k % 2] for k in range(N)],
        "redcap_repeat_instrument": [("", "labs")[k % 2] for k in range(N)],
        "redcap_repeat_instance": [("", "1")[k % 2] for k in range(N)],
        "redcap_data_access_group": columns["site"],
        "age": columns["age"],
        "race___1": [str(int(k % 3 == 0)) for k in range(N)],
        "race___2": [str(int(k % 4 == 0)) for k in range(N)],
        "dose": columns["dose"],
        "labs_complete": [str(k % 3) for k in range(N)],
        "sick": [{"yes": "1", "no": "0"}[s] for s in columns["sick"]],
    }


GROUP = ("--client", "redcap_data_access_group", "--target", "sick")


@export(options=GROUP, proposed=['person = "record_id"', "positive = 1"])
def redcap_raw(folder: Path) -> None:
    write(folder, redcap(), end="\n")


@export(options=("--client", "Data Access Group", "--target", "Sick?"), proposed=["Record ID"])
def redcap_with_labels(folder: Path) -> None:
    raw = redcap()
    labels = {
        "record_id": "Record ID",
        "redcap_event_name": "Event Name",
        "redcap_repeat_instrument": "Repeat Instrument",
        "redcap_repeat_instance": "Repeat Instance",
        "redcap_data_access_group": "Data Access Group",
        "age": "Age, in years",
        "race___1": "Race (choice=A, or B)",
        "race___2": "Race (choice=C)",
        "dose": "Dose",
        "labs_complete": "Complete?",
        "sick": "Sick?",
    }
    for name in ("race___1", "race___2"):
        raw[name] = [{"1": "Checked", "0": "Unchecked"}[v] for v in raw[name]]
    raw["sick"] = [{"1": "Yes", "0": "No"}[v] for v in raw["sick"]]
    write(folder, {labels[name]: cells for name, cells in raw.items()}, end="\n")


@export(options=GROUP, proposed=["header_lines = 2"])
def redcap_with_labels_below_the_names(folder: Path) -> None:
    raw = redcap()
    labels = "Record,Event,Instrument,Instance,Group,Age,A,B,mg,Done,?"
    lines = text(raw, ",", "\n").splitlines()
    write_lines(folder, [lines[0], labels, *lines[1:], ""])


@export(options=GROUP, proposed=["drop_repeated_header = true"])
def redcap_exports_one_below_the_other(folder: Path) -> None:
    lines = text(redcap(), ",", "\n").splitlines()
    write_lines(folder, [*lines[:41], lines[0], *lines[41:80], lines[0], *lines[80:], ""])


@export(options=GROUP)
def redcap_with_codes_for_missing_cells(folder: Path) -> None:
    raw = redcap()
    for k in range(0, N, 9):
        raw["dose"][k], raw["age"][k] = "UNK", ("NASK", "-999")[k % 2]
    write(folder, raw, end="\n")


# ------------------------------------------------------------------------------ German and French


@export(proposed=['decimal = ","', 'dates.aufnahme = { order = "dmy" }', 'positive = "ja"'])
def german_numbers_with_points_after_thousands(folder: Path) -> None:
    cost = [f"{v:,.1f}".translate(str.maketrans(",.", ".,")) for v in numbers(7, 700, 9000)]
    days = dates(6, "{d:02d}.{m:02d}.{y}")
    write(folder, german(patients(kosten=cost, aufnahme=days)), ";", "utf-8-sig")


@export(absent=["\u0308", "\u200b"])
def german_names_in_two_forms_of_unicode(folder: Path) -> None:
    columns = german(patients())
    both = [(unicodedata.normalize("NFD", s), f"\u00a0{s}\u200b") for s in columns["site"]]
    places = [pair[k % 3 == 0] for k, pair in enumerate(both)]
    write(folder, {**columns, "site": places, "Größe\u00ad": columns["age"]}, ";")


@export(proposed=["k.A.", "unbekannt"], left=6)
def german_words_for_missing_cells(folder: Path) -> None:
    columns = german(patients())
    for k in range(0, N, 11):
        columns["dose"][k], columns["age"][k] = "k.A.", ("unbekannt", "-")[k % 2]
    for k in range(6):
        columns["sick"][20 * k] = "k.A."
    write(folder, columns, ";")


@export(proposed=['positive = "oui"'])
def french_numbers_with_narrow_spaces(folder: Path) -> None:
    cost = [f"{v:,.1f}".replace(",", "\u202f").replace(".", ",") for v in numbers(8, 700, 9000)]
    columns = patients(sick=[{"yes": "oui", "no": "non"}[s] for s in patients()["sick"]])
    columns |= {"dose": with_comma(columns["dose"]), "coût": cost}
    write(folder, columns, ";")


@export(proposed=['order = "dmy"', 'encoding = "latin-1"'], encoding="latin-1")
def french_windows_with_hard_spaces_and_dates(folder: Path) -> None:
    cost = [f"{v:,.1f}".replace(",", "\u00a0").replace(".", ",") for v in numbers(8, 700, 9000)]
    days = dates(9, "{d:02d}/{m:02d}/{y}")
    columns = patients(entrée=days, coût=cost)
    columns["dose"] = with_comma(columns["dose"])
    write(folder, columns, ";", "latin-1")


# ------------------------------------------------------------------- R, SPSS, pandas, data bases


@export(proposed=["whole numbers with more digits"], absent=["9876543210987"])
def a_data_base_with_long_identities(folder: Path) -> None:
    ids = [str(9876543210987654300 + k // 3) for k in range(N)]
    for k in (4, 50, 99):
        ids[k] = "NULL"
    write(folder, patients(zz=ids), end="\n")


@export()
def r_with_names_of_rows(folder: Path) -> None:
    columns = patients()
    columns["smoker"] = [("TRUE", "FALSE", "NA")[k % 3] for k in range(N)]
    lines = text(columns, ",", "\n").splitlines()
    named = ['""', *(f'"{k}"' for k in range(1, N + 1))]
    write_lines(folder, [f"{n},{line}" for n, line in zip(named, lines, strict=True)] + [""])


@export()
def pandas_with_whole_numbers_as_decimals(folder: Path) -> None:
    columns = patients()
    columns["age"] = [f"{a}.0" if k % 9 else "" for k, a in enumerate(columns["age"])]
    columns["patient"] = [f"{1000 + k // 2}.0" for k in range(N)]
    columns = {"Unnamed: 0": [str(k) for k in range(N)], **columns}
    write(folder, columns, end="\n")


@export(proposed=["1e400"])
def a_program_with_numbers_that_are_none(folder: Path) -> None:
    columns = patients()
    columns["dose"][3:8] = ["1e400", "inf", "-Infinity", "1E+999", "NaN"]
    write(folder, columns, end="\n")


@export("de/köln.csv", "de/ulm.csv", "de/füssen.csv", options=("--target", "sick"))
def one_file_per_hospital(folder: Path) -> None:
    columns = patients()
    (folder / "de").mkdir()
    for k, (site, name) in enumerate(NAMES.items()):
        rows = [r for r in range(N) if columns["site"][r] == site]
        part = {c: [cells[r] for r in rows] for c, cells in columns.items() if c != "site"}
        order = sorted(part) if k else [*part]
        encoding = "utf-8-sig" if k else "utf-8"
        write(folder, {c: part[c] for c in order}, name=f"de/{name.lower()}.csv", encoding=encoding)


@export(
    "2019.csv", "2020.csv", "2021.csv", options=("--target", "sick"), proposed=['client = "site"']
)
def one_file_per_year(folder: Path) -> None:
    columns = patients()
    for k in range(3):
        part = {c: cells[k * N // 3 : (k + 1) * N // 3] for c, cells in columns.items()}
        write(folder, part, name=f"{2019 + k}.csv")
