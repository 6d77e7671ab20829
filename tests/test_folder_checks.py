"""What verify finds in a folder beside numbers: another schema, another report, and files, names
and keys that no run has.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run
from safetensors import safe_open
from test_runs_constrained import IMPOSSIBLE, WARDS
from typer.testing import CliRunner

from bonafed import cli
from bonafed.config.config import ConfigError, read_config
from bonafed.report.pages import render
from bonafed.runs.files import FormError, RunError, files_in, save_arrays, sealed
from bonafed.runs.folder import OWNER, Render, read_run, replace_report
from bonafed.runs.model_file import predict_table
from bonafed.runs.verification import passed, verify_run

CODES = small_run.CONFIG.replace('target = "sick"', 'target = "sick"\ncategorical = ["ward"]')


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs with their reports; their data lie two folders above."""
    plain, impossible, private = (tmp_path_factory.mktemp(name) for name in "abc")
    return {
        "plain": small_run.small_run(plain, draw=True, data=WARDS, text=CODES).path,
        "impossible": small_run.small_run(impossible, data=WARDS, text=IMPOSSIBLE).path,
        "private": small_run.private_run(private, draw=True).path,
    }


def copy(path: Path, folder: Path) -> Path:
    """A copy that may be damaged, its data with it."""
    shutil.copytree(path.parent.parent, folder / "all")
    return folder / "all" / "runs" / path.name


def reseal(path: Path, part: str = "", **changes: Any) -> list[str]:
    """Change a result, make its digests right again, and return the checks that fail."""
    sealed_again(path, part, **changes)
    return failed(path)


def sealed_again(path: Path, part: str = "", **changes: Any) -> None:
    """Change a result, and make its digests right again."""
    result = json.loads((path / part / "result.json").read_text("utf-8")) | changes
    outside = OWNER if (path / OWNER).is_dir() and not part else ""
    whole = json.dumps(sealed(path / part, result, outside))
    (path / part / "result.json").write_text(whole, "utf-8")


def failed(path: Path, render: Render | None = None) -> list[str]:
    """The checks that fail; ``render`` draws the report again."""
    return [check.name for check in verify_run(path, render=render) if check.ok is False]


def drawn_once(path: Path) -> Render:
    """What draws the report of a run whose other files stay as they are: it is drawn here."""
    run = read_run(path)
    pages = {part.path: render(part) for part in (run, run.owner) if part is not None}
    return lambda part: pages[part.path]


# ---------------------------------------------------------------------------------------- the model


def remade(path: Path, change: Callable[[dict], object]) -> None:
    """Change what the model's file says beside its numbers."""
    file = path / "model.safetensors"
    with safe_open(file, framework="numpy") as stored:
        w, model = stored.get_tensor("w"), json.loads(stored.metadata()["bonafed"])
    change(model)
    save_arrays(file, {"w": w}, {"bonafed": json.dumps(model)})


def swap(model: dict) -> None:
    for place in (model, model["schema"]):
        place["classes"] = place["classes"][::-1]


def rescale(model: dict) -> None:
    column = model["schema"]["columns"][0]
    column.update(centre=3 * column["centre"] + 5, scale=3 * column["scale"] + 5)


def reorder(model: dict) -> None:
    model["schema"]["columns"][:2] = model["schema"]["columns"][1::-1]
    model["feature_names"][:2] = model["feature_names"][1::-1]


def reverse(model: dict) -> None:
    (codes,) = (c for c in model["schema"]["columns"] if c["kind"] == "categorical")
    codes["categories"] = codes["categories"][::-1]
    model["feature_names"][-2:] = model["feature_names"][:-3:-1]


CHANGES: dict[str, Callable[[dict], object]] = {
    "classes": swap,
    "scale": rescale,
    "slightly": lambda m: m["schema"]["columns"][0].update(
        mean=m["schema"]["columns"][0]["mean"] + 1e-6
    ),
    "columns": reorder,
    "categories": reverse,
    "loss": lambda m: m.update(loss="logistic"),
    "target": lambda m: m["schema"].update(target="age"),
    "fitted": lambda m: m["schema"].update(fitted=False),
    "infeasible": lambda m: m.update(infeasible=True),
    "unit": lambda m: m["schema"]["columns"][0].update(unit="years"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_schema_or_class_or_loss_is_found_even_resealed(
    runs: dict[str, Path], tmp_path: Path, change: str
) -> None:
    path = copy(runs["plain"], tmp_path)
    remade(path, CHANGES[change])
    predict_table(path, path.parent.parent / "clinics.csv")  # it is a model all the same
    assert "model" in {name.partition(":")[0] for name in reseal(path)}


def test_a_model_that_is_not_recommended_says_so_or_is_found(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = copy(runs["impossible"], tmp_path)
    assert reseal(path) == []
    remade(path, lambda model: model.pop("infeasible"))
    assert "model" in reseal(path)


def test_rows_in_another_order_of_files_give_the_same_schema(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = copy(runs["plain"], tmp_path)
    file = path.parent.parent / "clinics.csv"
    head, *rows = file.read_text("utf-8").splitlines()
    file.write_text("\n".join([head, *sorted(rows, key=lambda row: row[:4])]) + "\n", "utf-8")
    found = {check.name: check.ok for check in verify_run(path)}
    assert found["model"] is True


@pytest.mark.parametrize("change", ["classes", "scale", "columns", "loss"])
def test_a_declared_schema_is_checked_without_the_rows(
    runs: dict[str, Path], tmp_path: Path, change: str
) -> None:
    path = copy(runs["private"], tmp_path)
    shutil.rmtree(path / OWNER)
    (path.parent.parent / "clinics.csv").unlink()
    assert reseal(path) == []
    loss = {"loss": lambda model: model.update(loss="smooth_hinge")}
    remade(path, (CHANGES | loss)[change])
    assert reseal(path)[0].startswith("model")


# --------------------------------------------------------------------------------------- the report


@pytest.mark.parametrize("part", ["", OWNER])
def test_a_forged_report_is_found(runs: dict[str, Path], tmp_path: Path, part: str) -> None:
    path = copy(runs["private"], tmp_path)
    again, page = drawn_once(path), path / part / "report.html"
    assert failed(path, again) == []
    text = page.read_text("utf-8")
    page.write_text(text.replace("</h1>", "</h1><script>alert(1)</script>"), "utf-8")
    sealed_again(path, part)
    assert failed(path, again) == [f"{part}report"]
    page.write_text(text, "utf-8")
    figure = next((path / part / "figures").iterdir())
    figure.write_text(figure.read_text("utf-8").replace("<svg", "<svg ", 1), "utf-8")
    sealed_again(path, part)
    assert failed(path, again) == [f"{part}report"]
    figure.unlink()
    sealed_again(path, part)
    assert failed(path, again) == [f"{part}report"]


def test_a_report_is_missing_unless_the_configuration_asks_for_none(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = copy(runs["plain"], tmp_path)
    (path / "report.html").unlink()
    shutil.rmtree(path / "figures")
    sealed_again(path)
    assert failed(path, render) == ["report"]
    config = path / "config.toml"
    text = config.read_text("utf-8").replace("html = true", "html = false")
    config.write_text(text, "utf-8")
    sealed_again(path)
    assert failed(path, render) == []


def test_figures_drawn_by_other_software_are_not_checked_and_may_do_nothing(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path, page = copy(runs["plain"], tmp_path), "report.html"
    before = json.loads((path / "result.json").read_text("utf-8"))["versions"]
    sealed_again(path, versions=before | {"numpy": "1.0"})
    assert failed(path, render) == ["report"]  # which has the versions in words
    again = drawn_once(path)
    text = again(read_run(path))[page]
    (path / page).write_text(text.replace("</svg>", "<g/></svg>", 1), "utf-8")
    sealed_again(path)
    assert failed(path, again) == []
    (check,) = (c for c in verify_run(path, render=again) if c.name == "report")
    assert (check.ok, check.checkable) == (None, False)
    assert "numpy 1.0" in check.text
    active = ("<script>", "<p onclick='x'>", "<a href='https://x.org'>", "<img src=x>")
    places = [*((more, "<body>") for more in (*active, "words", "<svg></svg>"))]
    for more, place in (*places, *((more, "</svg>") for more in active)):
        (path / page).write_text(text.replace(place, f"{place}{more}", 1), "utf-8")
        sealed_again(path)
        assert failed(path, again) == ["report"]


def test_a_report_drawn_by_another_bonafed_is_not_verified_until_it_is_drawn_again(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path, page = copy(runs["plain"], tmp_path), "report.html"
    before = json.loads((path / "result.json").read_text("utf-8"))["versions"]
    (path / page).write_text((path / page).read_text("utf-8").replace("<p>", "<p>99 % ", 1))
    sealed_again(path, versions=before | {"bonafed": "0.0.1"})
    again = drawn_once(path)
    checks = verify_run(path, render=again)
    (check,) = (c for c in checks if c.name == "report")
    assert (check.ok, check.checkable, passed(checks)) == (None, True, False)
    run = read_run(path)
    replace_report(run, again(run))
    assert passed(verify_run(path, render=again))


def test_a_report_that_is_drawn_again_has_no_figure_of_the_old_one(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = copy(runs["plain"], tmp_path)
    again = drawn_once(path)
    shutil.copy(next((path / "figures").iterdir()), path / "figures" / "old.svg")
    sealed_again(path)
    assert failed(path, again) == ["report"]
    run = read_run(path)
    replace_report(run, again(run))
    assert failed(path, again) == []
    assert not (path / "figures" / "old.svg").exists()


# ------------------------------------------------------------------------------- names, keys, links


@pytest.mark.parametrize("name", ["notes.txt", "figures/run.js", "report.html.js", "owner/x.json"])
@pytest.mark.parametrize("named", [True, False])
def test_a_file_that_no_run_has_is_found(
    runs: dict[str, Path], tmp_path: Path, name: str, named: bool
) -> None:
    path = copy(runs["plain"], tmp_path)
    before = (path / "result.json").read_text("utf-8")
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text("x")
    found = reseal(path)
    if not named:
        (path / "result.json").write_text(before, "utf-8")
        found = failed(path)
    assert "files" in found


def test_a_title_and_versions_that_no_run_has_are_found(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = copy(runs["plain"], tmp_path)
    versions = json.loads((path / "result.json").read_text("utf-8"))["versions"]
    assert "title" in reseal(path, title="Another")
    assert reseal(path, title="clinics", versions=versions | {"numpy": "9.9.9"}) == []
    for odd in ({"malware": "1.0"}, {"numpy": "<b>2</b>"}, {"numpy": "1" * 99}):
        assert reseal(path, versions=versions | odd) == ["form"]
    assert reseal(path, versions=versions, extra=1) == ["form"]


@pytest.mark.parametrize(
    "name", ["../clinics.csv", "/etc/passwd", "a\\b", "figures/../x", "C:x", "."]
)
def test_names_of_files_stay_inside_the_folder(
    runs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    path = copy(runs["plain"], tmp_path)
    result = json.loads((path / "result.json").read_text("utf-8"))
    result["files"][name] = "0" * 64
    (path / "result.json").write_text(json.dumps(result), "utf-8")
    with pytest.raises(RunError, match="a file inside the folder"):
        read_run(path)


@pytest.mark.parametrize("name", ["report.html", "figures", "history.jsonl", "report.html.tmp"])
def test_no_link_is_followed(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    path, elsewhere = copy(runs["plain"], tmp_path), tmp_path / "elsewhere"
    if (path / name).exists():
        shutil.move(path / name, elsewhere)
    else:
        elsewhere.write_text("mine")
    (path / name).symlink_to(elsewhere)
    before = {file: (tmp_path / file).stat().st_mtime_ns for file in _below(elsewhere)}
    for command in (["report"], ["verify"], ["report", "--format", "md"]):
        answer = CliRunner().invoke(cli.app, [*command[:1], str(path), *command[1:]])
        assert isinstance(answer.exception, RunError), answer.output
        assert "symbolic link" in str(answer.exception)
    assert before == {file: (tmp_path / file).stat().st_mtime_ns for file in _below(elsewhere)}
    with pytest.raises(RunError, match="symbolic link"):
        files_in(path)


def test_nobody_is_told_to_remove_links_where_no_run_is(tmp_path: Path) -> None:
    (tmp_path / "sbin").symlink_to(tmp_path)
    with pytest.raises(RunError, match="is not a complete run"):
        read_run(tmp_path)


def _below(place: Path) -> list[Path]:
    return [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"format": 1, "format": 1}', "'format' stands twice"),
        (b'{"format": NaN}', "NaN is not a number"),
        (b'{"format": 1' + b"0" * 5000 + b"}", "5001 digits"),
        (b'{"format": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "lie too deep"),
        (b'{"format": "\xff"}', "not UTF-8 text"),
        (b'{"format": "\\ud800"}', "surrogates not allowed"),
        (b"[]", "expected an object, found list"),
    ],
    ids=["twice", "nan", "digits", "deep", "bytes", "half a letter", "list"],
)
def test_text_that_is_no_record_ends_in_one_line(
    runs: dict[str, Path], tmp_path: Path, text: bytes, words: str
) -> None:
    path = copy(runs["plain"], tmp_path)
    (path / "result.json").write_bytes(text)
    with pytest.raises(RunError, match=words) as caught:
        read_run(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "arrays", "words"),
    [
        ("model", {"w": np.zeros(2)}, "does not fit its schema"),
        ("model", {"w": np.zeros(3), "v": np.zeros(3)}, "nothing else"),
        ("duals", {"weights": np.ones(2)}, "has not the arrays"),
        (
            "duals",
            {"weights": np.ones(2), "points": np.ones((1, 3)), "multipliers": np.ones(2)},
            "shape",
        ),
        ("baselines", {"erm": np.zeros(3)}, "other models"),
        ("baselines", {"erm": np.zeros(4), "afl": np.zeros(5)}, "shape"),
        ("baselines", {"erm": np.zeros(4), "afl": np.zeros(4), "erm/points": np.ones(4)}, "arrays"),
    ],
)
def test_arrays_that_no_run_has_are_refused(
    runs: dict[str, Path], tmp_path: Path, name: str, arrays: dict[str, np.ndarray], words: str
) -> None:
    path = copy(runs["plain"], tmp_path)
    file = path / f"{name}.safetensors"
    with safe_open(file, framework="numpy") as stored:
        metadata = stored.metadata()
    save_arrays(file, arrays, metadata)
    with pytest.raises(FormError, match=words):
        read_run(path)
    whole = file.read_bytes().replace(b'"F64"', b'"I64"')
    file.write_bytes(whole)
    with pytest.raises(RunError, match="int64; needed: float64"):
        read_run(path)


def test_verify_fails_in_one_line_where_predict_and_report_refuse(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    path = copy(runs["plain"], tmp_path)
    reseal(path, rounds="many")
    line = "rounds is 'many'; needed: a whole number"
    answer = CliRunner().invoke(cli.app, ["verify", str(path)])
    assert answer.exit_code == 1
    assert [text for text in answer.output.splitlines() if line in text] == [
        answer.output.splitlines()[0]
    ]
    refused = CliRunner().invoke(cli.app, ["report", str(path), "--format", "md"]).exception
    assert isinstance(refused, FormError)
    assert str(refused) == f"{path / 'result.json'} is damaged: {line}"


def test_a_configuration_that_is_no_toml_ends_in_one_line(tmp_path: Path) -> None:
    for text in ("a = " + "[" * 100_000, "seed = 1" + "0" * 6000):
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(ConfigError, match="is not TOML") as caught:
            read_config(tmp_path / "x.toml")
        assert "\n" not in str(caught.value)


def test_a_file_of_impossible_size_is_not_read(runs: dict[str, Path], tmp_path: Path) -> None:
    path = copy(runs["plain"], tmp_path)
    os.truncate(path / "history.jsonl", 2**40)  # of holes: it takes no room
    with pytest.raises(RunError, match="1,048,576 MiB; needed: at most 512 MiB"):
        read_run(path)
    head = b'{"w":{"dtype":"F64","shape":[99999999999],"data_offsets":[0,799999999992]}}'
    (path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        read_run(path)
    (path / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        read_run(path)


def test_honest_runs_verify_with_what_nothing_can_check_listed(runs: dict[str, Path]) -> None:
    for name in ("plain", "private"):
        checks = verify_run(runs[name], render=render)
        assert passed(checks)
        listed = [check.name for check in checks if not check.checkable]
        assert "versions" in listed
        assert any("bonafed" in check.text for check in checks if check.name == "versions")
