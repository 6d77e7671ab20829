"""Private runs: what travels tells nothing that is not paid for, what stays is checked, and no run
overspends.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run

import bonafed as bf
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private_admm import Perturbed
from bonafed.config.config import read_config
from bonafed.privacy.accounting import Release, gaussian_epsilon
from bonafed.report.sections.privacy import guaranteed
from bonafed.runs.files import save_arrays, sealed
from bonafed.runs.folder import OWNER, data_digests, read_run
from bonafed.runs.pipeline import begin, run_study
from bonafed.runs.sections.section import Run
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run
from bonafed.solution.solution import HISTORY

CURVED = small_run.PRIVATE_ADMM.replace(
    "[privacy]", small_run.sweep("privacy.epsilon", 1.0, 1.5) + "[privacy]"
)
COUNTED = small_run.PRIVATE_ADMM.replace(
    "sizes = { East = 15, North = 14 }", 'adjacency = "replace"'
)
PUBLIC = small_run.PRIVATE_ADMM.replace("[privacy]", "[evaluation]\npublic = true\n[privacy]")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a sweep; its data lie two folders above. Its keys of noise are always
    the same, so that no number of it is another's by chance.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_gradient.os, "urandom", lambda n: bytes(k % 251 for k in range(n)))
        folder = tmp_path_factory.mktemp("private")
        return small_run.private_run(folder, draw=True, text=CURVED).path


def files(path: Path) -> dict[str, bytes]:
    """What travels."""
    every = {f.relative_to(path).as_posix(): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    return {name: data for name, data in every.items() if not name.startswith(OWNER)}


def copy(path: Path, folder: Path) -> Path:
    """A copy that may be damaged, its data with it."""
    shutil.copytree(path.parent.parent, folder / "all")
    return folder / "all" / "runs" / path.name


def failed(path: Path) -> list[str]:
    return [check.name for check in verify_run(path) if check.ok is False]


def reseal(path: Path, change: Callable[[dict], object], part: str = "") -> list[str]:
    """Change a result, make its digests right again, and return the checks that fail."""
    result = json.loads((path / part / "result.json").read_text("utf-8"))
    change(result)
    leave = "" if part else OWNER
    (path / part / "result.json").write_text(
        json.dumps(sealed(path / part, result, leave)), "utf-8"
    )
    return failed(path)


# --------------------------------------------------------------------------------------- neighbours


def canned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that do not follow from any row; everything else is as it is."""

    def perturb(self: Any, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        n, D = memory.z.shape
        z = 0.9 * np.tile(ask.w, (n, 1)) + 0.1 * np.cos(
            np.arange(D) + ask.round + data.index[:, None]
        )
        up = Perturbed(z.sum(0, keepdims=True), np.abs(ask.w - z).sum(1), np.full(n, 0.25))
        return replace(memory, z=z, answered=memory.answered + 1), up

    monkeypatch.setattr(bf.PrivateADMM, "perturb", perturb)


def changed(row: str | None) -> str:
    """The table with another row of North, or without it; the others, and their order, are the
    same.
    """
    lines = small_run.table().splitlines()
    return "\n".join([*lines[:4], *([] if row is None else [row]), *lines[5:]]) + "\n"


@pytest.mark.parametrize(
    ("text", "row", "draw"),
    [
        (CURVED, None, True),
        (CURVED, "North,3.5,-8.0,no", False),
        (COUNTED, "North,3.5,-8.0,no", True),
        (COUNTED, "North,-7.25,55.0,yes", False),
        (small_run.PRIVATE_ADMM, "North,,,yes", False),
    ],
)
def test_neighbours_with_the_same_answers_leave_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, row: str | None, draw: bool
) -> None:
    canned(monkeypatch)
    found = []
    for name, data in (("one", None), ("other", changed(row))):
        (tmp_path / name).mkdir()
        found.append(small_run.private_run(tmp_path / name, draw=draw, data=data, text=text).path)
    one, other = map(files, found)
    written = {"config.toml", "result.json", "model.safetensors", *["report.html"] * draw}
    assert one.keys() == other.keys() >= written
    for name, data in one.items():
        assert data == other[name], name
    owners = [json.loads((path / OWNER / "result.json").read_text("utf-8")) for path in found]
    assert owners[0]["certificate"] != owners[1]["certificate"]  # the rows do differ
    assert owners[0]["data"] != owners[1]["data"]


def test_nothing_exact_is_written_in_what_travels(finished: Path) -> None:
    run = read_run(finished)
    assert run.owner is not None
    own, text = run.owner.result, b"".join(files(finished).values()).decode("utf-8", "replace")
    exact = [
        own["certificate"]["value"],
        own["baselines"]["erm"]["value"],
        *(point["value"] for point in run.owner.swept.table["points"]),
    ]
    exact += [row[key] for row in own["clients"] for key in ("loss", "worst_loss")]
    exact += [row[key] for row in own["evaluation"]["measures"] for key in ("loss", "worst_loss")]
    exact += [row["seconds"] for row in run.owner.history]
    said = re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    for number in exact:
        assert repr(number) not in text
        shown = rf"(?<![\d.]){re.escape(f'{number:.4g}')}(?!\d)"
        assert number in (0.0, 1.0) or not re.search(shown, said)
    for part in data_digests(prepare(run.config)).values():
        assert not any(digest in text for digest in part.values())
    assert {key for row in run.history for key in row} == {*HISTORY} - {"step", "clip"}
    assert run.result["evaluation"] == {"measures": [], "pairs": [], "verdict": []}
    assert run.result["certificate"] is None
    assert run.result["data"] == {}


# --------------------------------------------------------------------------------- what a run holds


def test_the_ledger_is_that_of_the_releases(finished: Path) -> None:
    run = read_run(finished)
    p = run.result["privacy"]
    assert [row["client"] for row in p["ledger"]] == ["East", "North"]
    for row in p["ledger"]:
        own = [Release(*r) for r in (*p["releases"][row["client"]], *p["before"][row["client"]])]
        assert len(own) == 3  # two of the sweep
        assert row["epsilon"] == pytest.approx(gaussian_epsilon(own, 1e-5), rel=1e-2)
        assert row["epsilon"] <= 3.0
        assert row["left"] == pytest.approx(3.0 - row["epsilon"])
        assert row["answers"] == 8
        assert row["scale"] == pytest.approx(
            row["noise"] * 0.5 / {"East": 15, "North": 14}[row["client"]]
        )
    assert p["epsilon"] == max(row["epsilon"] for row in p["ledger"])
    assert p["epsilon"] > 2.99
    assert [row["what"] for row in run.result["withheld"]][
        -1
    ] == "the models of the sweep and its numbers"


def test_both_parts_verify(finished: Path) -> None:
    checks = verify_run(finished)
    assert passed(checks)
    assert {"privacy", "budget", "public part", f"{OWNER}certificate", f"{OWNER}sweep"} <= {
        c.name for c in checks
    }


def test_what_travels_verifies_alone(finished: Path, tmp_path: Path) -> None:
    path = copy(finished, tmp_path)
    shutil.rmtree(path / OWNER)
    (path.parent.parent / "clinics.csv").unlink()
    assert passed(verify_run(path))
    assert read_run(path).owner is None


def test_without_the_data_the_owners_part_is_not_checked(finished: Path, tmp_path: Path) -> None:
    path = copy(finished, tmp_path)
    (path.parent.parent / "clinics.csv").unlink()
    checks = verify_run(path)
    assert [c.name for c in checks if c.ok is None and c.checkable] == ["data"]
    assert not passed(checks)
    assert passed(checks, without_data=True)


def first(result: dict, key: str) -> Any:
    return result["privacy"][key]["North"]


CHANGES: dict[str, tuple[Callable[[dict], object], str]] = {
    "epsilon": (lambda r: r["privacy"].update(epsilon=2.0), "privacy"),
    "ledger": (lambda r: r["privacy"]["ledger"][0].update(epsilon=0.5), "privacy"),
    "scale": (lambda r: r["privacy"]["ledger"][1].update(scale=0.5), "privacy"),
    "adjacency": (lambda r: r["privacy"].update(adjacency="replace"), "privacy"),
    "public": (lambda r: r["privacy"]["public"].pop(), "privacy"),
    "rehearsal": (lambda r: r["privacy"].update(rehearsal="yes"), "privacy"),
    "noise": (lambda r: first(r, "releases")[0].__setitem__(1, 0.5), "budget"),
    "answers": (lambda r: first(r, "releases")[0].__setitem__(2, 4), "answers"),
    "client": (lambda r: r["privacy"]["releases"].pop("North"), "privacy"),
    "rows": (lambda r: r["clients"][0].update(n=16), "clients"),
    "weight": (lambda r: r["clients"][0].update(weight=0.7), "clients"),
    "problem": (lambda r: r.update(problem="Anything."), "problem"),
    "withheld": (lambda r: r["withheld"].pop(0), "withheld"),
    "certificate": (lambda r: r.update(certificate={"value": 0.5}), "form"),
    "digests": (lambda r: r.update(data={"train": {"North": "0"}}), "form"),
    "note": (lambda r: r.update(notes=["A row is odd."]), "form"),
    "accuracy": (lambda r: r["evaluation"]["measures"].append({"loss": 0.5}), "form"),
    "more": (lambda r: r.update(seconds=0.5), "form"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_guarantee_is_found_without_the_data(
    finished: Path, tmp_path: Path, change: str
) -> None:
    path = copy(finished, tmp_path)
    shutil.rmtree(path / OWNER)
    assert CHANGES[change][1] in reseal(path, CHANGES[change][0])


def test_a_larger_budget_than_the_stated_one_is_found(finished: Path, tmp_path: Path) -> None:
    path = copy(finished, tmp_path)
    config = path / "config.toml"
    config.write_text(config.read_text("utf-8").replace("epsilon = 3.0", "epsilon = 2.5"), "utf-8")
    assert {"privacy", "budget"} <= {*reseal(path, lambda result: None)}


def test_files_and_columns_that_do_not_belong_there_are_found(
    finished: Path, tmp_path: Path
) -> None:
    path = copy(finished, tmp_path)
    shutil.copy(path / OWNER / "history.jsonl", path / "history.jsonl")
    assert "public part" in reseal(path, lambda result: None)
    shutil.rmtree(path.parent.parent)
    path = copy(finished, tmp_path)
    shutil.copy(path / OWNER / "baselines.safetensors", path / "baselines.safetensors")
    assert "public part" in reseal(path, lambda result: None)


OWN: dict[str, tuple[Callable[[dict], object], str]] = {
    "value": (lambda r: r["certificate"].update(value=0.1), "certificate"),
    "client": (lambda r: r["clients"][0].update(loss=0.1), "clients"),
    "accuracy": (lambda r: r["evaluation"]["measures"][0].update(accuracy=0.99), "evaluation"),
    "erm": (lambda r: r["baselines"]["erm"].update(value=0.1), "baselines"),
    "digest": (lambda r: r["data"]["train"].update(North="0" * 32), "data: train"),
}


@pytest.mark.parametrize("change", OWN)
def test_a_changed_number_of_the_owner_is_found(
    finished: Path, tmp_path: Path, change: str
) -> None:
    found = reseal(copy(finished, tmp_path), OWN[change][0], OWNER)
    assert f"{OWNER}{OWN[change][1]}" in found


def test_another_model_is_found_by_the_owner_and_other_models_of_the_sweep(
    finished: Path, tmp_path: Path
) -> None:
    path = copy(finished, tmp_path)
    run = read_run(path)
    assert run.owner is not None
    save_arrays(path / OWNER / "sweep.safetensors", {"w": run.owner.points["sweep"].w + 0.01})
    assert f"{OWNER}sweep" in reseal(path, lambda result: None, OWNER)
    raw = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(raw[:-8] + np.float64(0.5).tobytes())
    assert f"{OWNER}certificate" in reseal(path, lambda result: None)


# --------------------------------------------------------------------------------- rows to judge on


def test_public_rows_may_be_told_of_and_no_other_model_is(tmp_path: Path) -> None:
    run = small_run.private_run(tmp_path, text=PUBLIC)
    assert run.owner is not None
    measures = run.result["evaluation"]["measures"]
    assert [(row["set"], row["model"]) for row in measures] == [
        ("held-out rows", "private"),
        ("shifted clients", "private"),
    ]
    assert {row["model"] for row in run.owner.result["evaluation"]["measures"]} == {
        "private",
        "ERM",
    }
    assert any("evaluation.public" in said for said in run.result["privacy"]["public"])
    assert passed(verify_run(run.path))
    assert "evaluation" in reseal(
        run.path, lambda r: r["evaluation"]["measures"][0].update(accuracy=1.0)
    )


def test_accuracy_is_that_of_the_raw_rows(tmp_path: Path) -> None:
    run = small_run.private_run(tmp_path, text=PUBLIC)
    (row,) = (r for r in run.result["evaluation"]["measures"] if r["set"] == "shifted clients")
    rows = [
        line.split(",") for line in small_run.table().splitlines() if line.startswith('"South"')
    ]
    assert rows
    age, dose = (np.array([float(cells[k]) for cells in rows]) for k in (1, 2))
    score = run.w[0] * (age + 3) / 7 + run.w[1] * dose / 1.5 + run.w[2]
    assert row["accuracy"] == pytest.approx(
        np.mean((score > 0) == np.array([cells[3] == "yes" for cells in rows]))
    )


# ---------------------------------------------------------------------------------------- noise


def weights(tmp_path: Path, name: str, text: str) -> np.ndarray:
    (tmp_path / name).mkdir()
    return small_run.private_run(tmp_path / name, text=text).w


def test_the_seed_does_not_make_the_noise(tmp_path: Path) -> None:
    assert not np.array_equal(*(weights(tmp_path, name, small_run.PRIVATE_ADMM) for name in "ab"))
    rehearsed = small_run.PRIVATE_ADMM.replace("[privacy]", "[privacy]\nrehearsal = true")
    np.testing.assert_array_equal(*(weights(tmp_path, name, rehearsed) for name in "cd"))


@pytest.mark.parametrize(
    "options",
    [
        'mechanism = "laplace", clip = 1.0',
        'update = "prox"',
        "bound = 1.0",
        'radius = "1/t", region = "l2"',
        "average = true, rho = 2.0",
    ],
)
@pytest.mark.parametrize("name", ["private_admm", "output_perturbed_admm"])
def test_every_option_leaves_a_run_that_verifies(tmp_path: Path, name: str, options: str) -> None:
    if name == "output_perturbed_admm" and "radius" in options:
        options = 'update = "prox", scaling = 2.0'
    _verifies(tmp_path, name, options)


@pytest.mark.parametrize(
    "options", ["length = 2.0", 'mechanism = "laplace", bound = 1.0', "sampling = 0.5"]
)
def test_gradient_descent_leaves_a_run_that_verifies(tmp_path: Path, options: str) -> None:
    run = _verifies(tmp_path, "private_sgd", options)
    assert {"step", "noise"} <= {*run.history[0]}
    assert "gap" not in run.history[0]
    assert {row["message"] for row in run.result["messages"]} == {"Blur", "Blurred"}
    if "sampling" in options:
        releases = run.result["privacy"]["releases"].values()
        assert {each[0][3] for each in releases} == {0.5}
        words = " ".join(guaranteed(run.result))
        assert "took part in a round with probability 0.5, by a secret coin" in words


@pytest.mark.parametrize("name", ["auto", "private_sgd"])
def test_a_run_for_whoever_sees_sums_states_both_views(tmp_path: Path, name: str) -> None:
    text = small_run.PRIVATE.replace("[privacy]", '[privacy]\nview = "sum"\nmissing = 0')
    if name != "auto":
        text = f'{text}name = "{name}"\n'
    run = small_run.private_run(tmp_path, text=text.replace('compare_with = ["erm"]', ""))
    privacy = run.result["privacy"]
    assert privacy["epsilon"] == pytest.approx(3.0, rel=1e-2)
    views = privacy["views"]
    assert (views["view"], views["missing"]) == ("sum", 0)
    assert views["total"] == max(views["clients"].values()) > 3.5
    assert f"{views['total']:.4g}" in views["text"]
    assert passed(verify_run(run.path))
    guarantee = "\n".join(guaranteed(run.result))
    assert "every sum of what the 2 clients sent" in guarantee
    assert views["text"] in guarantee
    path = copy(run.path, tmp_path)  # as if every client had added the whole noise
    assert "form" in reseal(path, lambda result: result["privacy"].pop("views"))


def test_a_sweep_for_whoever_sees_sums_is_verified(tmp_path: Path) -> None:
    """The clients' records count unlike, and its noise is that of those which count most."""
    text = small_run.PRIVATE.replace("[privacy]", '[privacy]\nview = "sum"') + small_run.sweep(
        "privacy.epsilon", 1.0
    )
    run = small_run.private_run(tmp_path, text=text.replace('compare_with = ["erm"]', ""))
    assert len({tuple(each[0]) for each in run.result["privacy"]["releases"].values()}) == 2
    assert passed(verify_run(run.path))


def _verifies(tmp_path: Path, name: str, options: str) -> Run:
    text = small_run.PRIVATE.replace('compare_with = ["erm"]', "")
    text += f'name = "{name}"\noptions = {{ {options} }}\n'
    run = small_run.private_run(tmp_path, text=text)
    assert run.result["privacy"]["epsilon"] == pytest.approx(3.0, rel=1e-2)
    assert passed(verify_run(run.path))
    return run


# --------------------------------------------------------------------------------- the command line


def test_from_a_configuration_to_predictions(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run.write_config(tmp_path, CURVED)
    assert bonafed("run", "clinics.toml", "--out", "runs", "--verbose") == 0
    said = " ".join(capsys.readouterr().out.split())
    (folder,) = (tmp_path / "runs").iterdir()  # no working folder is left
    assert (folder / OWNER).stat().st_mode & 0o077 == 0
    for part in (
        "private: ",
        "differentially private",
        "stays with the owner of the data",
        "Other values",
        "stays with the owner:",
    ):
        assert part in said
    assert bonafed("verify", folder) == 0
    assert bonafed("predict", folder, "clinics.csv", "--out", "p.csv") == 0
    reports = [folder / part / "report.html" for part in ("", OWNER)]
    before = [file.read_bytes() for file in reports]
    assert bonafed("report", folder) == 0
    assert [file.read_bytes() for file in reports] == before
    capsys.readouterr()
    assert bonafed("report", folder, "--format", "md") == 0
    text = capsys.readouterr().out
    assert "## Ledger" in text
    assert "ERM" not in text
    assert bonafed("report", folder, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["privacy"]["allowed"] == 3.0
    assert bonafed("compare", folder, folder) == 0
    assert "total epsilon" in capsys.readouterr().out
    shutil.rmtree(folder / OWNER)
    assert bonafed("verify", folder) == 0
    assert bonafed("report", folder) == 0


def test_a_run_without_its_parts_is_said_to_be_one(finished: Path, tmp_path: Path) -> None:
    path = copy(finished, tmp_path)
    (path / OWNER / "history.jsonl").unlink()
    with pytest.raises(ValueError, match=r"owner is not a complete run: history.jsonl missing"):
        read_run(path)


def test_the_example_is_a_rehearsal_that_verifies(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "examples" / "private.toml").read_text("utf-8")
    (tmp_path / "private.toml").write_text(
        text.replace("[report]", "[report]\nhtml = false"), "utf-8"
    )
    config = read_config(tmp_path / "private.toml")
    work = tmp_path / "runs" / "private.partial"
    work.mkdir(parents=True)
    path = run_study(begin(config, work), tmp_path / "runs")
    run: Run = read_run(path)
    assert run.result["privacy"]["epsilon"] <= 4.0
    assert all(row["accuracy"] > 0.8 for row in run.result["evaluation"]["measures"])
    assert passed(verify_run(path))
