"""What README and docs show is what their commands print now: one command makes it all, and these
tests make it again.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from met import met

from bonafed.data import load

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "docs"), str(ROOT / "tests")]

import make  # noqa: E402
from test_docs import not_printed  # noqa: E402

AGAIN = "run: python docs/make.py"
PICTURE = "README's picture of the run below it (27 rounds beside 10 were reported)"


def saved() -> str:
    return (ROOT / "benchmarks" / "results" / "heart.json").read_text(encoding="utf-8")


def section() -> str:
    """README on the four hospitals."""
    text = make.README.read_text(encoding="utf-8")
    return text[text.index("## Four real hospitals") : text.index("## Five capabilities")]


@met(
    "F",
    PICTURE,
    "made by hand of that run, with its 10 rounds; nothing would have compared it",
    "`python docs/make.py` draws it from the run of README's first command; its words are compared",
)
def test_the_picture_is_of_the_run_of_the_first_command() -> None:
    assert make.same(make.words(), make.pictured()), AGAIN


@met(
    "F",
    "a picture of another run is committed",
    "no test failed",
    "the test fails and says what to run",
    relative_of=PICTURE,
)
def test_a_picture_of_another_run_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, facts, asked = make.first_run()
    other = [(value, label.replace("7 rounds", "27 rounds")) for value, label in facts]
    assert other != facts
    with monkeypatch.context() as patched:
        patched.setattr(make, "first_run", lambda: (lead, other, asked))
        make.draw(tmp_path / "other.png")
    assert not make.same(make.words(), make.pictured(tmp_path / "other.png"))


@met(
    "C",
    "docs/solution.md shows what its program prints",
    "18 rounds and a gap of 8e-07, of an earlier version (8 rounds, 6e-10 now); docs/init.md was"
    " right but for its private part",
    "outputs of all pages are made by docs/make.py, and compared",
    relative_of=PICTURE,
)
@pytest.mark.parametrize("path", make.PAGES, ids=lambda path: path.name)
def test_what_a_page_shows_is_what_is_printed(path: Path) -> None:
    assert make.same(make.page(path), path.read_text(encoding="utf-8")), AGAIN


@met(
    "C",
    "somebody writes an output into a page by hand",
    "no test failed",
    "a block of output that docs/make.py does not make is refused, and one that it makes in vain",
    relative_of=PICTURE,
)
def test_an_output_that_nothing_makes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.md"
    path.write_text("# New\n\n```text\naccuracy 99 %\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="does not make: accuracy"):
        make.page(path)
    monkeypatch.setitem(make.OUTPUTS, "new.md", (make.printed,))
    path.write_text("# New\n\n```python\nprint(41 + 1)\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="does not show"):
        make.page(path)
    path.write_text(path.read_text() + "\n```text\n41\n```\n", encoding="utf-8")
    assert make.page(path).endswith("```text\n42\n```\n")


@met(
    "C",
    "docs/private.md says in a comment what its last line prints",
    "the comment said (1, 1e-06), and (0.948, 1e-06) is printed",
    "a comment beside a print has no number: outputs stand in blocks that are made",
    relative_of=PICTURE,
)
@pytest.mark.parametrize("path", make.PAGES, ids=lambda path: path.name)
def test_no_comment_says_what_is_printed(path: Path) -> None:
    blocks = [m[2] for m in make.BLOCK.finditer(path.read_text("utf-8")) if m[1] == "python"]
    lines = [line for text in blocks for line in text.splitlines() if "print(" in line]
    assert not [line for line in lines if re.search(r"\)  # .*\d", line)]


@met(
    "C",
    "a tutorial whose run warns stores where the machine that ran it keeps its files",
    "nothing looked for that; no tutorial warned",
    "a stored warning is its sentence only",
    relative_of=PICTURE,
)
def test_no_tutorial_shows_a_place_of_the_machine_that_ran_it() -> None:
    for path in (ROOT / "docs" / "tutorials").glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        assert "Warning: " not in re.sub(r'"\w+Warning: ', "", text), path.name
        assert "ipykernel_" not in text


@met(
    "F",
    "the flagship run ends 'no difference that these data could show'",
    "six invented hospitals, where nothing was to be gained",
    "four real hospitals; the one served worst gains most, beyond its interval over patients",
)
def test_the_front_page_is_a_case_where_it_matters() -> None:
    (verdicts,) = (each["verdicts"] for each in json.loads(saved())["targets"].values())
    assert len(verdicts) == 3
    assert all(met for _, met in verdicts)
    assert "examples/heart.toml" in make.BLOCK.search(make.README.read_text("utf-8"))[2]


@met(
    "F",
    "every number of README about the four hospitals",
    "README's numbers outside of its table were compared with nothing",
    "each is one that benchmarks/heart.py saved",
    relative_of="the flagship run ends 'no difference that these data could show'",
)
def test_every_number_of_the_front_page_was_measured() -> None:
    said = section().replace("CC BY 4.0", "").replace("`Simplex()`", "")
    assert not not_printed(said, saved())
    assert {*not_printed(said.replace(".495", ".459"), saved())} == {"0.459", ".459"}


@met(
    "F",
    "the claim that every hospital gains (the draft said 'better at all four')",
    "would have stood on the front page: Zurich and Basel, nearly all of whose patients are ill, is"
    " better off by itself",
    "README and docs/deviations.md say so, with both losses",
    relative_of="the flagship run ends 'no difference that these data could show'",
)
def test_the_hospital_that_does_not_gain_is_named() -> None:
    table = json.loads(saved())["tables"]["robust beside"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    own = [row for row in rows if row["method"] == "each its own"]
    worse = [row for row in own if row["lower by"] < -row["± of patients"]]
    assert [row["hospital"] for row in worse] == ["Zurich-Basel"]
    better = [row["hospital"] for row in own if row["lower by"] > row["± of patients"]]
    page = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    [stated] = (line for line in page.splitlines() if "benchmarks/heart.py" in line)
    assert f"beyond the interval only {' and '.join(better)};" in stated
    for row in worse:
        for key in ("its loss", "robust"):
            for text in (section(), stated):
                assert re.search(rf"(?<!\d)\{f'{row[key]:.3f}'[1:]}\b", text)


@met(
    "F",
    "the front page's data on a machine without network",
    "only scikit-learn's breast cancer data were here: real hospitals needed a folder of files",
    "they are in the package, with source, licence, and what was changed",
    relative_of="the flagship run ends 'no difference that these data could show'",
)
def test_the_data_of_the_front_page_are_here_with_their_licence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(load.SETTING, raising=False)
    (here,) = (each for each in load.available() if each.name == "heart_disease")
    assert here.present
    stated = Path(load.__file__).with_name("sources.toml").read_text(encoding="utf-8")
    for text in ("A. Janosi", "10.24432/C52P4X", "CC BY 4.0", "Changed here"):
        assert text in stated
    names = load.heart_disease().feature_names
    assert not any("cholesterol" in name for name in names)
    assert "Cholesterol is left out" in section()
