"""A kind of columns that is added to the table of kinds is everywhere at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from bonafed.config.schema import DataSection, TablesSection, kind_of
from bonafed.data.reading import KINDS, ColumnKind, Reading
from bonafed.runs import forms as run_forms
from bonafed.runs.folder import read_run
from bonafed.sites.site_file import RowsSection, first_site

CLOCK = re.compile(r"(\d\d?):(\d\d)")


def minutes(cells: list[Any], how: object, decimal: str) -> tuple[list[np.ndarray], list[int]]:
    found = [None if cell is None else CLOCK.fullmatch(str(cell)) for cell in cells]
    wrong = [r for r, (cell, m) in enumerate(zip(cells, found, strict=True)) if cell and not m]
    return [np.array([60.0 * int(m[1]) + int(m[2]) if m else np.nan for m in found])], wrong


KIND = ColumnKind(
    key="clocks",
    name="clock",
    shown="clock",
    fits=lambda cell: frozenset([""] if CLOCK.fullmatch(cell) else []),
    columns=lambda name, how: (f"{name} minutes",),
    read=minutes,
    wrong="are no time such as 14:05",
    looks="They look like times: declare the column in `clocks`.",
    why="every cell is a time of day",
)


def models(of: type[BaseModel] = BaseModel) -> Iterator[type[BaseModel]]:
    for model in of.__subclasses__():
        yield model
        yield from models(model)


def rebuild() -> None:
    """Forms hold those of their parts as they were when they were built: the parts come first."""
    for _ in range(3):
        for model in models():
            if model.__module__.startswith("bonafed."):
                model.model_rebuild(force=True)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The table with one more kind; the forms are made of the table once, when they are imported"""
    monkeypatch.setitem(KINDS, KIND.key, KIND)
    stored = run_forms.as_declared(KIND)
    forms = {form: kind_of(KIND) for form in (TablesSection, DataSection, RowsSection)}
    forms |= {run_forms.READING: ((Any, stored), Field(default=None))}
    for form, (kind, default) in forms.items():
        field = FieldInfo.from_annotated_attribute(Any, default)
        field.metadata = [*(kind[1:] if isinstance(kind, tuple) else kind.__metadata__)]
        form.__pydantic_fields__[KIND.key] = field
    rebuild()
    yield
    for form in forms:
        del form.__pydantic_fields__[KIND.key]
    rebuild()


def table(path: Path, rows: int = 90) -> None:
    rng = np.random.default_rng(0)
    lines = ["site,arrived,dose,sick"]
    for k in range(rows):
        minute, dose = int(rng.integers(0, 1440)), rng.normal()
        sick = "yes" if minute / 400 + dose + rng.normal() > 2 else "no"
        lines.append(f"{'abc'[k % 3]},{minute // 60}:{minute % 60:02d},{dose:.3f},{sick}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("added")
def test_a_kind_that_is_added_is_in_init_run_model_prediction_and_report(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(tmp_path / "t.csv")
    assert bonafed("init", "t.csv", "--out", "study.toml") == 0
    assert re.search(r"arrived +clock +0 % +\d+ values +clocks", capsys.readouterr().out)
    assert (
        'clocks = [\n  "arrived",  # every cell is a time of day'
        in (tmp_path / "study.toml").read_text()
    )
    assert bonafed("run", "study.toml", "--out", "runs") == 0
    (folder,) = (tmp_path / "runs").iterdir()
    run = read_run(folder)
    assert run.model["schema"]["reading"] == {"clocks": ["arrived"]}
    assert "arrived minutes" in run.schema.feature_names
    assert "arrived minutes" in (folder / "report.html").read_text()
    table(tmp_path / "new.csv", 9)
    assert bonafed("predict", str(folder), "new.csv", "--out", "p.csv") == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 10
    (tmp_path / "new.csv").write_text("site,arrived,dose,sick\na,noon,1.0,yes\n")
    assert bonafed("predict", str(folder), "new.csv", "--out", "q.csv") == 2
    assert "are no time such as 14:05" in capsys.readouterr().err
    assert json.loads(json.dumps(Reading(kinds={"clocks": ["x"]}).to_dict())) == {"clocks": ["x"]}


@pytest.mark.usefixtures("added")
def test_a_kind_that_is_added_is_in_a_sites_table(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "north").mkdir()
    table(tmp_path / "north" / "rows.csv")
    text = first_site("north", "rows.csv")
    assert "exclude, censored, dates, clocks" in text
    assert "missing" in text
    text = text.replace("[policy]", 'clocks = ["arrived"]\n[policy]')
    (tmp_path / "north" / "site.toml").write_text(text)
    assert bonafed("site", "check", "north") == 0
    assert "'arrived minutes': numbers" in capsys.readouterr().out


@pytest.mark.usefixtures("added")
def test_cells_that_look_like_it_are_told_what_to_declare(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"a,{k / 7:.2f},{'yes' if k % 3 else 'no'}\n" for k in range(20))
    (tmp_path / "t.csv").write_text("site,arrived,sick\n" + rows + "a,14:05,yes\n")
    text = '[data]\npath = "t.csv"\nclient = "site"\ntarget = "sick"\n'
    (tmp_path / "study.toml").write_text(text)
    assert bonafed("run", "study.toml") == 2
    assert "declare the column in data.clocks" in capsys.readouterr().err
