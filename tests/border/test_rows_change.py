"""Two questions about nearly the same rows: the difference of the answers is the row that changed.

Another target that differs in one row, and a table that has one row more, are asked about at one
model. No message is unusual, and no answer hangs on few rows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from border.askers import MEAN, Asker, SpentError, by_bundle
from border.readers import NAMES, Wire, World, as_rows, made, unguarded, world

from bonafed.arrays import Array
from bonafed.data.schema import declared_schema
from bonafed.sites.party import open_party
from bonafed.sites.rows import Roles

SITE, ODD = NAMES[0], 7  # whose target is another one


def answered(it: World, first: int = 0) -> Array | None:
    """The gradient at a short model, in experiments numbered from ``first``."""
    asker = Asker(it, SITE, numbers=count(first))
    try:
        return by_bundle(asker, MEAN)(asker.zero + 0.1)
    except SpentError:
        return None


def again(it: World, place: Path, target: str, guarded: bool) -> World:
    """The same sites in another process, asked about this target."""
    for party in it.wire.sites.values():
        party.close()
    columns = [f"x{k}" for k in range(3)]
    schema = declared_schema(columns, {name: {} for name in columns}, target, ("no", "yes"))
    opened = open_party if guarded else unguarded
    sites = {name: opened(place / name, name) for name in NAMES}
    return replace(
        it, wire=Wire(sites), roles=Roles(target, schema.to_dict(), classes=("no", "yes"))
    )


def lines(place: Path) -> list[str]:
    """Those of the site's table."""
    return (place / SITE / "rows.csv").read_text().splitlines()


def two_targets(place: Path, guarded: bool) -> set[int]:
    """What two targets tell."""
    it = world(place, made(60), guarded=guarded)
    head, *rows = lines(place)
    turned = {"no": "yes", "yes": "no"}
    targets = [row.rpartition(",")[2] for row in rows]
    others = [turned[t] if j == ODD else t for j, t in enumerate(targets)]
    table = [f"{head},z", *(f"{row},{t}" for row, t in zip(rows, others, strict=True))]
    (place / SITE / "rows.csv").write_text("\n".join(table))
    one = answered(it)
    other = answered(again(it, place, "z", guarded), 100)
    return set() if one is None or other is None else it.read(SITE, as_rows((one - other)[None]))


def one_row_more(place: Path, guarded: bool) -> set[int]:
    """What a table tells that has one row more than before."""
    tables = made(60)
    it = world(place, tables, guarded=guarded)
    table, m = lines(place), len(tables[SITE][0])
    (place / SITE / "rows.csv").write_text("\n".join(table[:-1]))
    one = answered(it)
    (place / SITE / "rows.csv").write_text("\n".join(table))
    other = answered(again(it, place, "y", guarded), 100)
    if one is None or other is None:
        return set()
    return it.read(SITE, as_rows((m * other - (m - 1) * one)[None]))


@pytest.mark.parametrize("change", [two_targets, one_row_more])
def test_a_row_that_changes_is_not_told(change, tmp_path: Path):
    assert change(tmp_path, True) == set()


@pytest.mark.parametrize(("change", "row"), [(two_targets, ODD), (one_row_more, 59)])
def test_without_a_policy_it_is(change, row: int, tmp_path: Path):
    assert change(tmp_path, False) == {row}
