"""Tables as people have them: every file has a fault of its own, and is made by code from a seed.

Each of them has to pass `init`, `run`, `predict` and `verify` without an edit. ``proposed`` are
lines that the configuration then has, ``asked`` what `init` asks first, and ``told`` the options
that answer it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SITES = ("north", "east", "south")
Columns = dict[str, list[str]]
FILES: dict[str, Untidy] = {}


@dataclass(frozen=True)
class Untidy:
    """A file, or several.

    Attributes
    ----------
    path : of the tables, as it is given to `init`
    options : of `init`, from the start
    proposed : texts that stand in the configuration
    printed : texts that `init` prints
    asked, told : what `init` asks, if it does, and the options that answer it
    rows : that `predict` predicts
    """

    make: Callable[[Path], None]
    path: str
    options: tuple[str, ...]
    proposed: tuple[str, ...]
    printed: tuple[str, ...]
    asked: tuple[str, ...]
    told: tuple[str, ...]


def untidy(
    path: str = "table.csv",
    *options: str,
    proposed: Sequence[str] = (),
    printed: Sequence[str] = (),
    asked: Sequence[str] = (),
    told: Sequence[str] = (),
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Enter a maker of files under its name."""

    def enter(make: Callable[[Path], None]) -> Callable[[Path], None]:
        FILES[make.__name__] = Untidy(
            make, path, options, tuple(proposed), tuple(printed), tuple(asked), tuple(told)
        )
        return make

    return enter


def people(n: int = 240, seed: int = 0) -> Columns:
    """Patients of three sites: the older and the higher the dose, the more often sick."""
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(18, 91, n), rng.gamma(2.0, 1.5, n).round(2)
    sex = rng.choice(["f", "m"], n)
    chance = 1 / (1 + np.exp(-((age - 70) / 12 + (dose - 3) / 1.5)))
    return {
        "site": rng.choice(SITES, n, p=(0.5, 0.3, 0.2)).tolist(),
        "age": [str(v) for v in age],
        "sex": sex.tolist(),
        "dose": [f"{v:.2f}" for v in dose],
        "sick": np.where(rng.random(n) < chance, "yes", "no").tolist(),
    }


def text(columns: Mapping[str, Sequence[str]], sign: str = ",", end: str = "\n") -> str:
    """The columns as CSV; a cell with the sign or a line break in it is in quotes."""

    def cell(value: str) -> str:
        return f'"{value}"' if sign in value or "\n" in value else value

    rows = zip(*columns.values(), strict=True)
    lines = [columns.keys(), *rows]
    return "".join(sign.join(map(cell, line)) + end for line in lines)


def write(folder: Path, columns: Columns, sign: str = ",", encoding: str = "utf-8") -> None:
    (folder / "table.csv").write_bytes(text(columns, sign).encode(encoding))


def with_comma(cells: Sequence[str]) -> list[str]:
    return [cell.replace(".", ",") for cell in cells]


def before(columns: Columns, **more: list[str]) -> Columns:
    """The columns with others in front of them."""
    return {**more, **columns}


def dates(n: int, pattern: str, seed: int = 1, days: int = 28) -> list[str]:
    rng = np.random.default_rng(seed)
    parts = zip(rng.integers(1, days + 1, n), rng.integers(1, 13, n), strict=True)
    years = rng.integers(2015, 2024, n).tolist()
    whole = zip(parts, years, strict=True)
    return [pattern.format(d=int(d), m=int(m), y=y) for (d, m), y in whole]


# ------------------------------------------------------------------------------- how it is written


@untidy(proposed=['delimiter = ";"', 'decimal = ","', 'positive = "yes"'])
def semicolons_and_decimal_commas(folder: Path) -> None:
    columns = people()
    columns["dose"] = with_comma(columns["dose"])
    write(folder, columns, ";")


@untidy(proposed=['delimiter = "\\t"', 'encoding = "latin-1"'])
def tabs_in_latin_1(folder: Path) -> None:
    columns = people()
    columns["site"] = [{"north": "Köln", "east": "Füssen"}.get(s, s) for s in columns["site"]]
    write(folder, columns, "\t", "latin-1")


@untidy(proposed=['encoding = "cp1252"', "Windows-1252"])
def signs_of_windows(folder: Path) -> None:
    columns = people()
    columns["sex"] = [{"f": "f – “w”", "m": "m €"}[s] for s in columns["sex"]]
    write(folder, columns, ";", "cp1252")


@untidy(proposed=['target = "sick"'])
def a_byte_order_mark(folder: Path) -> None:
    data = codecs.BOM_UTF8 + text(people(), ",", "\r\n").encode()
    (folder / "table.csv").write_bytes(data)


@untidy(proposed=['encoding = "utf-16"', "byte-order mark"])
def saved_as_unicode_text_by_a_spreadsheet(folder: Path) -> None:
    (folder / "table.csv").write_bytes(text(people(), "\t", "\r\n").encode("utf-16"))


@untidy(proposed=['"remark",  # nearly unique text'])
def quoted_line_breaks(folder: Path) -> None:
    columns = people()
    ages = columns["age"]
    columns["remark"] = [f"aged {a},\nseen {k}\n\ntwice" for k, a in enumerate(ages)]
    write(folder, columns)


# ------------------------------------------------------------------------------------ what it holds


@untidy(
    proposed=[
        '"case_id",  # so named, and nearly unique',
        '"email",  # so named, and nearly unique',
        'whole numbers that rise from row to row: 240 values in 240 cells "number_of_row",',
        "exclude = [",
    ],
    printed=["never read: it has no name"],
)
def identifiers_and_an_unnamed_index(folder: Path) -> None:
    columns, n = people(), 240
    rng = np.random.default_rng(2)
    more = {
        "": [str(k) for k in range(n)],
        "case_id": [str(v) for v in rng.permutation(10**6)[:n]],
        "number_of_row": [str(7 * k) for k in range(n)],
        "email": [f"{v:x}@example.org" for v in rng.integers(0, 2**40, n).tolist()],
    }
    write(folder, before(columns, **more))


@untidy(
    proposed=[
        'dates.admitted = { order = "dmy" }',
        'dates.born = { order = "mdy" }',
        'fits all of its dates; the time of day is not read dates.seen = { order = "ymd" }',
        '"died_on",  # named as an outcome',
    ]
)
def dates_in_three_orders(folder: Path) -> None:
    columns, n = people(), 240
    columns["admitted"] = dates(n, "{d}.{m}.{y}")
    columns["born"] = dates(n, "{m:02d}/{d:02d}/{y}", 2)
    days = dates(n, "{y}-{m:02d}-{d:02d}", 3)
    columns["seen"] = [f"{day} {k // 60:02d}:{k % 60:02d}" for k, day in enumerate(days)]
    columns["died_on"] = dates(n, "{y}-{m:02d}-{d:02d}", 4)
    write(folder, columns)


@untidy(
    "sites/*.csv",
    "--target",
    "sick",
    proposed=['"admitted",  # as asked'],
    asked=["'admitted'", "no one order", "mdy at north", "dmy at south", "--exclude admitted"],
    told=["--exclude", "admitted"],
)
def dates_in_two_orders_between_clients(folder: Path) -> None:
    columns, n = people(), 240
    columns["admitted"] = dates(n, "{d:02d}/{m:02d}/{y}")
    american = dates(n, "{m:02d}/{d:02d}/{y}")
    (folder / "sites").mkdir()
    for site in SITES:
        rows = [r for r in range(n) if columns["site"][r] == site]
        part = {name: [cells[r] for r in rows] for name, cells in columns.items()}
        if site == "north":
            part["admitted"] = [american[r] for r in rows]
        del part["site"]
        order = sorted(part) if site == "east" else [*part]  # columns may stand in another order
        (folder / "sites" / f"{site}.csv").write_text(text({c: part[c] for c in order}))


@untidy(
    proposed=['dates.admitted = { order = "mdy" }'],
    asked=["--dates admitted=dmy or --dates admitted=mdy", "--decimal", "'cost'"],
    told=["--dates", "admitted=mdy", "--decimal", "."],
)
def dates_and_thousands_that_may_be_either(folder: Path) -> None:
    columns, n = people(), 240
    columns["admitted"] = dates(n, "{d:02d}/{m:02d}/{y}", days=12)
    columns["cost"] = [f"{k % 9 + 1},{(k * 37) % 1000:03d}" for k in range(n)]
    write(folder, columns)


@untidy(
    proposed=[
        "drop_missing_target = true  # 9 rows have none",
        "drop_missing_client = true  # 6 rows have none",
        'missing = ["-", "k.A."]',
        "-999",
    ]
)
def missing_targets_clients_and_cells(folder: Path) -> None:
    columns = people()
    for name, cell, rows in (
        ("sick", "", range(0, 36, 4)),
        ("site", "", (1, 2, 3, 5, 6, 7)),
        ("dose", "-", range(10, 30)),
        ("sex", "k.A.", range(40, 60)),
        ("age", "-999", range(70, 75)),
    ):
        for r in rows:
            columns[name][r] = cell
    write(folder, columns)


@untidy(proposed=["Fewer than 20 rows are at 'practice 1'", "Only one class is at"])
def clients_of_one_row(folder: Path) -> None:
    columns = people()
    for k in range(8):
        columns["site"][k * 3] = f"practice {k + 1}"
    write(folder, columns)


@untidy(
    proposed=[
        'censored = [\n  "crp",  # numbers and limits such as <1: ',
        'categorical = [\n  "plz",',
        "min_count = 10  # rarer categories are one: in 'icd'",
        'decimal = ","',
    ]
)
def limits_codes_and_rare_categories(folder: Path) -> None:
    columns, n = people(), 240
    rng = np.random.default_rng(5)
    crp = rng.gamma(1.0, 4.0, n)
    columns["crp"] = ["<0,5" if v < 0.5 else ">15" if v > 15 else f"{v:.1f}" for v in crp]
    columns["crp"] = with_comma(columns["crp"])
    columns["dose"] = with_comma(columns["dose"])
    often = rng.choice(["A10.1", "I10", "C34.9"], n).tolist()
    columns["icd"] = [f"B{k:02d}" if k < 40 else code for k, code in enumerate(often)]
    columns["plz"] = rng.choice(["01067", "50667", "80331"], n).tolist()
    write(folder, columns, ";")


@untidy(
    proposed=[
        'merge.sex = { "F" = "f", "M" = "m" }',
        'merge.site = { "NORTH" = "north" }',
        'merge.sick = { "Yes" = "yes" }',
    ]
)
def variants_by_case(folder: Path) -> None:
    columns = people()
    for k in range(0, 60, 5):
        columns["sex"][k] = columns["sex"][k].upper()
        columns["site"][k] = columns["site"][k].replace("north", "NORTH")
        columns["sick"][k] = columns["sick"][k].replace("yes", "Yes")
    write(folder, columns)


@untidy(proposed=['person = "patient_id"', "no split parts a person's rows"])
def several_rows_of_a_person(folder: Path) -> None:
    columns = people()
    columns["patient_id"] = [f"P{k // 3:04d}" for k in range(240)]
    write(folder, columns)


@untidy(
    proposed=[
        "\"age (2)\",  # another column 'age'",
        '"empty",  # no cell has a value',
        '"country",  # one value in all rows',
        '"status",  # it tells the target: 100.0 % of each class',
        '"site_code",',
        "'site_code' has one value at every client",
    ]
)
def duplicate_empty_and_telling_columns(folder: Path) -> None:
    columns, n = people(), 240
    columns |= {
        "years": columns["age"],
        "empty": [""] * n,
        "country": ["DE"] * n,
        "status": [{"yes": "S", "no": "H"}[s] for s in columns["sick"]],
        "site_code": [{"north": "1", "east": "2", "south": "3"}[s] for s in columns["site"]],
    }
    lines = text(columns).splitlines()
    twice = [f"{line},{age}" for line, age in zip(lines, ["age", *columns["age"]], strict=True)]
    (folder / "table.csv").write_text("\n".join(twice) + "\n")


@untidy("table.csv", "--target", "stage", proposed=['loss = "multinomial"'], printed=["3 classes"])
def three_classes(folder: Path) -> None:
    columns = people()
    rng = np.random.default_rng(3)
    score = np.array(columns["age"], float) / 20 + rng.normal(0, 1, 240)
    columns["stage"] = np.array(["low", "mid", "high"])[np.digitize(score, (2.2, 3.2))].tolist()
    del columns["sick"]
    write(folder, columns)


@untidy(
    "table.csv",
    "--client",
    "site",
    "--target",
    "days",
    proposed=[
        'loss = "huber"',
        "threshold = ",
        'decimal = ","',
        '"days_again",  # it has the target\'s numbers',
    ],
)
def numbers_to_predict(folder: Path) -> None:
    columns = people()
    rng = np.random.default_rng(4)
    days = np.array(columns["age"], float) / 7 + rng.gamma(2.0, 2.0, 240)
    columns["days"] = with_comma([f"{v:.1f}" for v in days])
    columns["days_again"] = with_comma([f"{24 * v:.0f},0" for v in days])
    columns["dose"] = with_comma(columns["dose"])
    del columns["sick"]
    write(folder, columns, ";")


@untidy(
    "table.csv",
    proposed=[
        '"ward",  # text of more than 100 values: 120 values in 240 cells',
        "'glucose' has numbers or dates, but 'see below' in line 2 of table.csv",
        'missing = ["12 mg", "error", "see below"]',
        "Few whole numbers",
        'categorical = ["grade"]',
        'categorical = [ "stage",  # text, and in some cells numbers',
    ],
)
def text_of_many_values_and_mixed_cells(folder: Path) -> None:
    columns, n = people(), 240
    rng = np.random.default_rng(6)
    columns["ward"] = [f"{'abc'[k % 3]} corridor {k % 120}" for k in range(n)]
    columns["glucose"] = [f"{v:.1f}" for v in rng.normal(90, 10, n)]
    for k, cell in enumerate(("see below", "error", "12 mg")):
        columns["glucose"][50 * k] = cell
    columns["grade"] = [str(v) for v in rng.integers(1, 5, n)]
    columns["stage"] = [("1", "2", "x")[k % 3] for k in range(n)]
    write(folder, columns)


@untidy(
    "table.csv",
    "--target",
    "sick",
    proposed=[
        'positive = "J"',
        "spellings of one answer",
        '"nein" = "N"',
        '"0" = "N"',
        '"ja" = "J"',
        '"1" = "J"',
        'merge.smoker = { "T" = "true", "F" = "false" }',
    ],
)
def answers_in_several_languages(folder: Path) -> None:
    columns = people()
    written = {"north": ("N", "J"), "east": ("nein", "ja"), "south": ("0", "1")}
    rows = zip(columns["site"], columns["sick"], strict=True)
    columns["sick"] = [written[site][sick == "yes"] for site, sick in rows]
    columns["smoker"] = [("true", "false", "true", "false", "T", "F")[k % 6] for k in range(240)]
    write(folder, columns)


@untidy("table.csv", "--target", "age", "--numbers", proposed=['loss = "huber"'])
def whole_numbers_to_predict(folder: Path) -> None:
    write(folder, people())


def by_site(folder: Path, change: Callable[[str, Columns], Columns]) -> None:
    """A file for every site, changed."""
    columns = people()
    (folder / "sites").mkdir()
    for site in SITES:
        rows = [r for r in range(240) if columns["site"][r] == site]
        part = {c: [cells[r] for r in rows] for c, cells in columns.items() if c != "site"}
        (folder / "sites" / f"{site}.csv").write_text(text(change(site, part)))


@untidy("sites/*.csv", "--target", "sick", proposed=['"bed",  # not in north.csv and 1 more'])
def a_column_that_one_site_alone_has(folder: Path) -> None:
    by_site(folder, lambda site, part: part | ({"bed": part["sex"]} if site == "east" else {}))


@untidy(
    "table.parquet", proposed=['dates.seen = { order = "ymd" }', "positive = 1", "7 rows have none"]
)
def parquet_of_dates_truths_and_numbers_as_text(folder: Path) -> None:
    import pandas as pd

    table = pd.DataFrame(people())
    table["age"] = table["age"].astype(float)
    table["seen"] = pd.to_datetime(dates(240, "{y}-{m:02d}-{d:02d}"))
    table["site"] = table["site"].astype("category")
    table["sick"] = (table["sick"] == "yes").astype("boolean")
    table.loc[3:9, "sick"] = table.loc[12:20, "age"] = None
    table.to_parquet(folder / "table.parquet")


def patients(folder: Path) -> None:
    """The table of docs/init.md."""
    columns, n = people(), 240
    rng = np.random.default_rng(5)
    crp = rng.gamma(1.0, 4.0, n)
    sites = {"north": "Köln", "east": "Füssen", "south": "Ulm"}
    table = {
        "site": ["" if k in range(0, 21, 3) else sites[s] for k, s in enumerate(columns["site"])],
        "patient_id": [f"P{k // 3:04d}" for k in range(n)],
        "admitted": dates(n, "{d}.{m}.{y}"),
        "age": columns["age"],
        "crp": with_comma(["<0,5" if v < 0.5 else f"{v:.1f}" for v in crp]),
        "sex": [v.upper() if k % 9 == 0 else v for k, v in enumerate(columns["sex"])],
        "plz": rng.choice(["01067", "50667", "80331"], n).tolist(),
        "email": [f"{v:x}@example.org" for v in rng.integers(0, 2**40, n).tolist()],
        "sick": columns["sick"],
    }
    (folder / "patients.csv").write_bytes(text(table, ";").encode("latin-1"))


def large(folder: Path, n: int = 40_000, d: int = 60) -> None:
    """Numbers, categories and an identifier of 40,000 rows in 60 columns."""
    rng = np.random.default_rng(7)
    columns = people(n, 7)
    columns = {"record_id": [f"R{k:06d}" for k in rng.permutation(n)], **columns}
    for k in range(d - len(columns) - 10):
        columns[f"x{k}"] = [f"{v:.4g}" for v in rng.normal(k, 1 + k, n)]
    for k in range(d - len(columns)):
        columns[f"c{k}"] = rng.choice([f"v{j}" for j in range(3 + k)], n).tolist()
    write(folder, columns)


# ------------------------------------------------------------------------------- files by chance

ODD_CELLS = ("", "NA", "-", "n/a", "1e400", "inf", "-Infinity", "1E+999", "see below", "?", "1e200")
ODD_CELLS += ("9007199254740993", "<0.5", "12 mg", "yes", "\u200b", "0", "-999", " ", "nan", "x,y")
ODD_NAMES = ("größe", "gro\u0308ße", "a b", "ID", "x.y", "x=1", "patient_id", "Datum", "k'", "ÿ")
ODD_NAMES += ("age (2)", "1", "%", "status is missing", "sick later", "other", "café\u200b", "no")


def by_chance(folder: Path, seed: int) -> tuple[str, ...]:
    """A file with columns, cells and signs drawn from a seed; the options of `init`."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(25, 200))
    sign = str(rng.choice([",", ";", "\t", "|"], p=(0.4, 0.4, 0.1, 0.1)))
    comma = sign != "," and rng.random() < 0.5
    base = people(n, seed)
    columns = {"site": base["site"]}
    for k in range(int(rng.integers(2, 7))):
        name = str(rng.choice(ODD_NAMES)) if rng.random() < 0.4 else f"c{k}"
        columns[name] = drawn_column(rng, n, comma)
    columns |= {"age": base["age"], "sick": base["sick"]}
    if rng.random() < 0.2:
        columns["sick"] = [{"yes": "1", "no": "0"}[v] for v in columns["sick"]]
    if rng.random() < 0.2:
        columns["sick"] = [
            cell.upper() if k % 5 == 0 else cell for k, cell in enumerate(columns["sick"])
        ]
    for name in ("sick", "site"):
        if rng.random() < 0.2:
            for r in rng.integers(0, n, 3):
                columns[name][r] = str(rng.choice(["", "NA", "\u200b"]))
    lines = text(columns, sign).replace("\u2028", " ").split("\n")[:-1]
    if rng.random() < 0.2:
        lines.insert(int(rng.integers(2, n)), lines[0])
    for _ in range(int(rng.integers(0, 3))):
        lines.insert(int(rng.integers(1, n)), str(rng.choice(["", sign * len(columns), "  "])))
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "utf-16"], p=(0.7, 0.2, 0.1)))
    end = str(rng.choice(["\n", "\r\n"]))
    (folder / "table.csv").write_bytes((end.join(lines) + end).encode(encoding))
    return ("--client", "site", "--target", "sick")


def drawn_column(rng: np.random.Generator, n: int, comma: bool) -> list[str]:
    """The cells of a column: amounts, names, codes, dates or words, some of them odd."""
    each = int(rng.integers(1, 6))
    person = np.sort(rng.integers(0, max(2, n // each), n)) if rng.random() < 0.5 else None
    key = rng.permutation(n) if person is None else person
    start = int(rng.choice([1, 1000, 10**9, 10**15, 1234567890123456700]))
    amounts = rng.gamma(2.0, float(rng.choice([1.0, 1e-3, 1e6, 1e-120, 1e90])), n)
    whole = rng.integers(0, int(rng.choice([2, 5, 100, 10**7])), n)
    day = rng.integers(1, int(rng.choice([12, 28])), n)
    ways: Sequence[Callable[[int], str]] = (
        lambda k: f"{amounts[k]:.4g}".replace(".", "," if comma else "."),
        lambda k: str(whole[k]),
        lambda k: str(start + key[k]),
        lambda k: f"{key[k]:08d}",
        lambda k: f"P-{key[k]:04d}",
        lambda k: f"{day[k]:02d}.{1 + k % 12:02d}.20{10 + k % 12}",
        lambda k: f"{1 + k % 12:02d}/{day[k] + 12:02d}/2020",
        lambda k: ("red", "Red", "blue", "green")[whole[k] % 4],
        lambda k: f"word {key[k]}",
        lambda k: ("1", "0", "ja", "nein")[whole[k] % 4],
        lambda k: "",
        lambda k: "same",
        lambda k: f"{start + key[k]:.4E}",
    )
    cells = [*map(ways[int(rng.integers(len(ways)))], range(n))]
    if rng.random() < 0.5:
        for r in rng.integers(0, n, int(rng.integers(1, max(2, n // int(rng.choice([3, 20])))))):
            cells[r] = str(rng.choice(ODD_CELLS[: int(rng.integers(1, len(ODD_CELLS) + 1))]))
    return cells
