"""Who takes part in a private run: the order of the rows is nobody's business, nor whether a client
has any.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run

from bonafed.config.config import read_config
from bonafed.privacy.ledger import Book
from bonafed.runs.folder import OWNER, read_run
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run

LONE = small_run.PRIVATE.replace("East = 15, North = 14", "West = 1, East = 15, North = 14")
COUNTED = small_run.PRIVATE.replace("sizes = { East = 15, North = 14 }", "")


def travelling(path: Path) -> dict[str, bytes]:
    every = {f.relative_to(path).as_posix(): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    return {name: data for name, data in every.items() if not name.startswith(OWNER)}


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, data: str) -> Any:
    """A finished run whose noise is the same each time, and replaces everything."""
    from bonafed.algorithms.federated.private import noisy_gradient

    drawn = iter(range(10**6))

    def noise(*given: Any) -> None:
        given[-1][:] = 10**12 * (1 + next(drawn) % 7)

    monkeypatch.setattr(noisy_gradient, "add_noise", noise)
    folder.mkdir()
    return small_run.private_run(folder, data=data, text=text)


@pytest.mark.parametrize("prior", ["uniform", "size", "{ West = 0.5, East = 0.25, North = 0.25 }"])
def test_a_client_of_one_row_may_lose_it_and_nobody_sees(tmp_path, monkeypatch, prior) -> None:
    quoted = prior if prior.startswith("{") else f'"{prior}"'
    text = LONE.replace("[privacy]", f"[clients]\nprior = {quoted}\n[privacy]").replace(
        "test = 0.4", "test = 0.05"
    )
    without = small_run.table()
    found = [
        run(tmp_path / n, monkeypatch, text, data)
        for n, data in (("a", without), ("b", without + "West,1,2,no\n"))
    ]
    trained = [
        json.loads((r.path / OWNER / "result.json").read_text("utf-8"))["data"]["train"]
        for r in found
    ]
    assert [sorted(each) for each in trained] == [["East", "North"], ["East", "North", "West"]]
    one, other = (travelling(r.path) for r in found)
    assert one.keys() == other.keys()
    # answers are real, not canned
    for name in one.keys() - {"model.safetensors", "history.jsonl", "result.json"}:
        assert one[name] == other[name], name
    public = [{k: v for k, v in r.result.items() if k not in ("files", "seal")} for r in found]
    assert public[0] == public[1]
    assert [row["client"] for row in public[0]["clients"]] == ["West", "East", "North"]
    # a row moves what noise hides
    assert np.abs(found[0].w - found[1].w).max() <= 1e-9 * np.abs(found[0].w).max()
    for r in found:
        assert passed(verify_run(r.path)), [c for c in verify_run(r.path) if not c.ok]


def test_a_table_without_rows_is_that_of_a_client_without_rows(tmp_path) -> None:
    tables = {"West": "age,dose,sick\n", "East": "age,dose,sick\n1,2,no\n0,1,yes\n1,1,no\n"}
    for name, table in tables.items():
        (tmp_path / f"{name}.csv").write_text(table, "utf-8")
    text = LONE.replace('"clinics.csv"\nclient = "clinic"', '["West.csv", "East.csv"]').replace(
        'shifted = ["South"]', ""
    )
    (tmp_path / "a.toml").write_text(text, "utf-8")
    assert prepare(read_config(tmp_path / "a.toml")).owners.clients == ("East",)


def test_counted_sizes_are_in_the_order_of_the_names(tmp_path, monkeypatch) -> None:
    """Not in that of the clients' first rows, which one record can change."""
    head, *lines = small_run.table().splitlines()
    east = next(k for k, line in enumerate(lines) if '"East"' in line)
    moved = [lines[east], *lines[:east], *lines[east + 1 :]]
    found = [
        run(tmp_path / name, monkeypatch, COUNTED, "\n".join([head, *rows]) + "\n")
        for name, rows in (("a", lines), ("b", moved))
    ]
    configs = [travelling(r.path)["config.toml"] for r in found]
    assert configs[0] == configs[1]
    assert list(found[0].config.privacy.sizes) == ["East", "North"]  # type: ignore[union-attr]
    assert found[0].w.tobytes() == found[1].w.tobytes()


def test_the_owner_checks_that_the_book_is_no_older_copy(tmp_path) -> None:
    text = small_run.PRIVATE.replace("[privacy]", '[privacy]\nbook = "book.json"').replace(
        '["erm"]', "[]"
    )
    small_run.private_run(tmp_path, text=text.replace("epsilon = 3.0", "epsilon = 1.0"))
    files = [tmp_path / "book.json", tmp_path / "book.json.lock"]
    old = [file.read_bytes() for file in files]
    path = small_run.private_run(tmp_path, text=text).path
    owner = read_run(path).owner
    assert owner is not None
    assert Book(files[0]).knows(owner.result["book"])
    assert "book" not in read_run(path).result
    assert passed(verify_run(path))
    for file, data in zip(files, old, strict=True):
        file.write_bytes(data)
    assert [check.name for check in verify_run(path) if check.ok is False] == [f"{OWNER}book"]
    files[0].write_text("{", "utf-8")
    assert [check.name for check in verify_run(path) if check.ok is False] == [f"{OWNER}book"]
