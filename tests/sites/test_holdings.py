"""What a site holds, counted at the site."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.data.tables import table_of
from bonafed.sites.policy import Proposal
from bonafed.sites.rows import MISSING, broken, holdings, largest_model, level_counts, read_rows
from bonafed.sites.site_file import SiteFile, read_site

cells = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=40)


def site(folder: Path, policy: str = "", rows: str = "", data: str = "") -> SiteFile:
    head = f'[site]\nname = "north"\n[data]\npath = "rows.csv"\n{data}\n'
    (folder / "site.toml").write_text(f"{head}[policy]\n{policy}\n")
    (folder / "rows.csv").write_text(rows or ROWS)
    return read_site(folder)


ROWS = "age,sex,ward,sick\n" + "".join(
    f"{30 + k},{'fm'[k % 2]},{'abc'[k % 3]},{'01'[k % 5 == 0]}\n" for k in range(30)
)


@given(cells=cells)
def test_the_smallest_level_is_the_one_of_the_fewest_rows_missing_cells_included(
    cells: list[str | None],
) -> None:
    table = table_of({"x": np.array(cells, dtype=object)})
    counts = Counter(MISSING if cell is None else cell for cell in cells)
    (smallest,) = level_counts(table, ["x"], show=True)
    assert smallest.rows == min(counts.values())
    assert counts[str(smallest.level)] == smallest.rows
    assert level_counts(table, ["x"])[0].level is None
    held = holdings(table)
    assert (held.rows, [c.name for c in held.columns]) == (len(cells), ["x"])
    assert held.columns[0].levels == counts


def test_numbers_have_levels_where_they_are_codes_or_two() -> None:
    table = table_of(
        {
            "age": np.arange(6.0),
            "code": np.array([1, 1, 2, 2, 3, 3]),
            "sick": np.array([0, 0, 0, 0, 0, 1]),
            "half": np.array([0.0, 1.0, np.nan, 1.0, 1.0, 0.0]),
            "true": np.array([True, False] * 3),
        }
    )
    found = {one.column: one.rows for one in level_counts(table, table, ["code"])}
    assert found == {"code": 2, "sick": 1, "half": 1, "true": 3}
    words = [column.words() for column in holdings(table, ["code"]).columns]
    assert words[:3] == [
        "'age': numbers",
        "'code': 3 levels, the smallest of 2 rows",
        "'sick': 2 levels, the smallest of 1 row",
    ]


def test_levels_of_a_column_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="no column 'ag'"):
        level_counts(table_of({"age": np.arange(3)}), ["ag"])


def test_rows_that_keep_the_policy_break_nothing(tmp_path: Path) -> None:
    known = site(tmp_path)
    assert broken(known, read_rows(known)) == []


BROKEN = {
    "too few rows": ("minimum_rows = 31", "minimum_rows: 30 rows of this site"),
    "a rare level": ("minimum_level_rows = 7", "column 'sick' has a level with 6 rows"),
    "a named level": (
        "minimum_level_rows = 7\nshow_levels = true",
        "column 'sick' has a level '1' with 6 rows",
    ),
    "a column that is not there": (
        'allowed_columns = ["age", "sx"]',
        "allowed_columns: the table has no column 'sx'. Did you mean 'sex'?",
    ),
    "another": ('disallowed_columns = ["zip"]', "disallowed_columns: the table has no column"),
    "no column at all": ("allowed_columns = []", "no column of the table may be used"),
    "a constraint's": (
        '[[policy.constraint]]\nkind = "loss_gap"\ncolumn = "gender"\nlevel = 0.1',
        "constraint: the table has no column 'gender'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_rows_that_break_the_policy_are_told_by_its_rule(case: str, tmp_path: Path) -> None:
    policy, needed = BROKEN[case]
    known = site(tmp_path, policy)
    (fault,) = broken(known, read_rows(known))
    assert needed in fault


READ = {
    "censored": ("<0.3", "Its cells look like limits of a measurement: declare", "data.censored"),
    "dates": ("2025-06-1{}", "Its cells look like dates: declare their order", "data.dates"),
    "commas": ("1,{}", "look like numbers with a decimal comma: set", "data.decimal"),
    "a text among numbers": ("n.d.", "Correct these cells, list such texts in", "data.missing"),
}


@pytest.mark.parametrize("case", READ)
def test_cells_that_have_to_be_declared_are_told_before_levels_are_merged(
    case: str, tmp_path: Path
) -> None:
    cell, needed, key = READ[case]
    rows = [f'{k},"{cell.format(k) if k < 9 or "{}" in cell else k / 7}"\n' for k in range(30)]
    known = site(tmp_path, rows="age,crp\n" + "".join(rows[: 10 if case == "dates" else 30]))
    (fault,) = broken(known, read_rows(known))
    assert needed in fault
    assert key in fault
    assert "Merge" not in fault


@pytest.mark.parametrize(
    "policy",
    ['allowed_columns = ["age", "sex"]', 'disallowed_columns = ["sick"]', "minimum_level_rows = 6"],
)
def test_a_level_of_a_column_that_nobody_may_use_breaks_nothing(
    policy: str, tmp_path: Path
) -> None:
    least = "" if "level" in policy else "\nminimum_level_rows = 7"
    known = site(tmp_path, policy + least)
    assert broken(known, read_rows(known)) == []


@given(rows=st.integers(0, 100_000), share=st.sampled_from([0.1, 0.07, 0.29, 0.33, 1.0, 2.5]))
def test_the_largest_model_is_the_largest_that_is_not_refused(rows: int, share: float) -> None:
    values = {
        "site": {"name": "a"},
        "data": {"path": "b"},
        "policy": {"minimum_rows": 1, "maximum_parameter_share": share},
    }
    known = SiteFile.model_validate(values)
    most = largest_model(known, rows)

    def is_refused(parameters: int) -> bool:
        run = Proposal(rows=rows, parameters=parameters)
        return "maximum_parameter_share" in {r.rule for r in known.policy.refusals(run)}

    assert not is_refused(most)
    assert is_refused(most + 1)
