"""Radii tried on the training rows: what is solved and judged, what a run keeps of it, and what
verify finds.
"""

import io
import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_run
from rich.console import Console

from bonafed import default_radius, model_selection
from bonafed.config.config import Config, parse_config, read_config
from bonafed.report.markdown import markdown
from bonafed.report.sections import radius_path
from bonafed.report.terminal import show
from bonafed.runs.files import RunError, digest, plain, seal
from bonafed.runs.folder import read_run
from bonafed.runs.pipeline import begin
from bonafed.runs.sections.radius_path import RadiusPath, best, equal
from bonafed.runs.sections.section import Silent
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run

PATH = (
    "[path]\nradii = { from = 0.01, to = 0.4, count = 3 }\nclient_radii = [0.0, 0.3]\ntest = 0.4\n"
)
QUICK = small_run.CONFIG.replace('compare_with = ["afl", "erm"]', "html = false").replace(
    "tol = 1e-6", "tol = 1e-3"
)
AUTO = QUICK.replace("radius = 0.05", 'radius = "auto"')


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.small_run(tmp_path_factory.mktemp("path"), text=AUTO + PATH, draw=True).path


class Told(Silent):
    """Progress that keeps the lines."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def done(self, model: str, text: str, /) -> None:
        self.lines.append(f"{model}: {text}")


def config_of(text: str, folder: Path) -> Config:
    return read_config(small_run.write_config(folder, text))


def test_the_path_is_solved_and_judged_on_training_rows_alone(tmp_path: Path) -> None:
    config, lines = config_of(QUICK + PATH, tmp_path), []
    train = prepare(config).train
    found = RadiusPath().train(begin(config), Told(lines))
    own, held = train.split(0.4, config.seed)
    assert found.table["held_out"] == dict(zip(held.clients, held.sizes, strict=True))
    points = found.table["points"]
    assert [(p["client_radius"], p["radius"]) for p in points] == [
        (t, r) for t in (0.0, 0.3) for r in (0.01, 0.06325, 0.4)
    ]
    by_hand = model_selection.radius_path(
        config.path_problem(),
        own,
        radii=[0.01, 0.06325, 0.4],
        client_radii=[0.0, 0.3],
        test=held,
        tol=1e-3,
    )
    for point, w, row in zip(points, found.w, by_hand, strict=True):
        np.testing.assert_array_equal(w, row.pop("w"))
        del row["duals"]
        assert point == row
        assert point["relative_gap"] <= 1e-3
    assert points[found.table["best"]]["worst_loss"] == min(p["worst_loss"] for p in points)
    assert len(lines) == 6
    assert lines[1].startswith("path: radius 0.06325, client radius 0: objective ")


def test_equal_points_are_said_and_the_first_is_named() -> None:
    losses = [0.5, 0.3, 0.3 * (1 - 1e-12), 0.4]
    points = [{"worst_loss": loss} for loss in losses]
    assert (best(points), equal(points)) == (1, [1, 2])


@pytest.mark.parametrize("after", range(16, 24))
def test_ctrl_c_ends_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """In a round or in the proof of a point: the path does not go on to the next point, and says
    nothing half done.
    """
    from bonafed.problem.losses import Hinge

    config, calls = config_of(QUICK + PATH, tmp_path), iter(range(1000))
    study, gradient = begin(config), Hinge.gradient

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == after:
            raise KeyboardInterrupt
        return gradient(*arguments)

    lines: list[str] = []
    monkeypatch.setattr(Hinge, "gradient", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RadiusPath().train(study, Told(lines))
    # in a proof: what stands at the model is computed without its bound at every client
    assert next(calls) - after - 1 in (0, 2 * len(study.parts.train.clients))
    assert len(lines) < 6


# ---------------------------------------------------------------------------------- radius = "auto"


def test_auto_is_the_default_radius_of_the_training_rows(finished: Path) -> None:
    run = read_run(finished)
    train = prepare(run.config).train
    radius = default_radius(run.config.stated(), train)
    assert {row["radius"] for row in run.result["clients"]} == {radius}
    assert run.config.robust.radius == "auto"  # what was asked for stays readable
    assert "read off" in run.result["problem"]
    problem = run.config.settled(train).problem()
    assert problem.objective(run.w, train) == run.result["certificate"]["value"]
    with pytest.raises(ValueError, match="settled"):
        run.config.problem()


def test_weights_of_classes_and_shares_of_flips_run_and_verify(tmp_path: Path) -> None:
    text = AUTO.replace("label_cost = 2.0", 'label_flips = 0.01\nnorm = "linf"').replace(
        "[robust]", '[problem]\nloss = "logistic"\nclass_weight = { yes = 3.0 }\n[robust]'
    )
    text = text.replace("radius = 0.2", 'radius = 0.2\nprior = "size"')
    run = small_run.small_run(tmp_path, text=text)
    assert passed(verify_run(run.path))
    train = prepare(run.config).train
    problem = run.config.settled(train).problem()
    ball = problem.over_samples
    assert ball.radius / ball.label_cost == pytest.approx(0.01)
    assert dict(problem.class_weight) == {"yes": 3.0}
    assert "weight of its class" in run.result["problem"]
    assert "at most 0.01 of a client's labels flip" in run.result["problem"]
    shares = [float((y == "yes").mean()) for y in train.y]
    mass = [n * (1 + 2 * p) for n, p in zip(train.sizes, shares, strict=True)]
    prior = problem.at(train)[0].over_clients.prior
    assert prior == pytest.approx(np.array(mass) / sum(mass))
    with pytest.raises(ValueError, match="not both"):
        config_of(text.replace("label_flips", "label_cost = 1.0\nlabel_flips"), tmp_path)


def test_numbers_settle_to_themselves(tmp_path: Path) -> None:
    config = config_of(QUICK, tmp_path)
    assert config.settled(prepare(config).train) is config


def test_what_cannot_be_solved_is_said_before_anything_is_read() -> None:
    data = '[data]\nname = "hospitals"\n'
    parse_config(data + '[robust]\nradius = "auto"').check()
    with pytest.raises(ValueError, match="Lipschitz"):
        parse_config(data + '[problem]\nloss = "squared"\n[robust]\nradius = "auto"').check()
    with pytest.raises(ValueError, match="Lipschitz"):
        parse_config(data + '[problem]\nloss = "squared"\n[path]\nradii = [0.0, 0.1]').check()
    parse_config(data + '[problem]\nloss = "squared"\n[path]\nradii = [0.0]').check()


# ---------------------------------------------------------------------------------------- in a run


def test_a_run_keeps_its_path_and_verifies(finished: Path) -> None:
    run = read_run(finished)
    assert run.tried is not None
    assert run.tried.w.shape == (6, 3)
    assert {"path.json", "path.safetensors"} <= run.result["files"].keys()
    checks = verify_run(finished)
    assert passed(checks)
    assert "path" in {check.name for check in checks}
    checked = next(check for check in checks if check.name == "path")
    assert checked.text == "as stated"
    inputs: Any = SimpleNamespace(config=run.config, parts=prepare(run.config), points=run.points)
    assert plain(RadiusPath().result(inputs)) == run.tried.table  # to the last bit


@pytest.mark.parametrize(
    "change", ["best", "value", "worst_loss", "accuracy", "worst_client", "radius", "held_out", "w"]
)
def test_a_better_looking_path_is_found_even_resealed(finished: Path, change: str) -> None:
    saved = {
        name: (finished / name).read_bytes()
        for name in ("path.json", "path.safetensors", "result.json")
    }
    table = json.loads(saved["path.json"])
    first = table["points"][0]
    if change == "best":
        table["best"] = (table["best"] + 1) % 6
    elif change == "held_out":
        table["held_out"]["North"] += 1
    elif change == "worst_client":
        first[change] = "East" if first[change] == "North" else "North"
    elif change != "w":
        first[change] += 1e-6
    try:
        (finished / "path.json").write_text(json.dumps(table))
        if change == "w":
            data = bytearray(saved["path.safetensors"])
            data[-3] ^= 1
            (finished / "path.safetensors").write_bytes(data)
        result = json.loads(saved["result.json"])
        # and by its digest
        assert {check.name for check in verify_run(finished) if check.ok is False} >= {"path"}
        result["files"] = {name: digest((finished / name).read_bytes()) for name in result["files"]}
        (finished / "result.json").write_text(json.dumps({**result, "seal": seal(result)}))
        assert [check.name for check in verify_run(finished) if check.ok is False] == ["path"]
    finally:
        for name, data in saved.items():
            (finished / name).write_bytes(data)


def test_a_path_that_is_absent_or_damaged_is_said(finished: Path) -> None:
    file = finished / "path.json"
    saved = file.read_bytes()
    try:
        for text, said in (("{", "damaged"), ('{"points": [], "best": 0}', "held_out is missing")):
            file.write_text(text)
            with pytest.raises(RunError, match=said):
                read_run(finished)
        file.unlink()
        with pytest.raises(RunError, match=r"path\.json missing"):
            read_run(finished)
    finally:
        file.write_bytes(saved)


# ---------------------------------------------------------------------------------------- shown


def test_the_best_point_is_named_with_what_it_is_worth(finished: Path) -> None:
    run = read_run(finished)
    assert run.tried is not None
    found, told = run.tried.table, radius_path.choice(run.tried.table, run.result)
    point = found["points"][found["best"]]
    assert (
        f"radius {point['radius']:.4g} and client radius {point['client_radius']:.4g} " in told[0]
    )
    assert f"{point['worst_loss']:.4g} at {point['worst_client']}" in told[0]
    assert "This choice was made" in told[1]
    assert f"on {sum(found['held_out'].values())} rows" in told[1]
    out = io.StringIO()
    show(run, Console(file=out, width=150), verbose=True)
    html = (finished / "report.html").read_text("utf-8")
    for shown in (out.getvalue(), markdown(run), html):
        assert "Radii tried" in shown
        assert "flatter it" in " ".join(shown.split())
    assert {"path_loss.svg", "path_judged.svg", "path_value.svg"} <= {
        p.name for p in (finished / "figures").iterdir()
    }
    assert radius_path.path(found).rows[found["best"]][0].endswith("best")


def test_the_end_of_a_path_and_equal_points_are_said(finished: Path) -> None:
    run = read_run(finished)
    assert run.tried is not None
    points = run.tried.table["points"]

    def told(losses: list[float], radii: list[float]) -> str:
        made = [
            {**points[0], "worst_loss": a, "radius": r} for a, r in zip(losses, radii, strict=True)
        ]
        return radius_path.choice(
            {**run.tried.table, "points": made, "best": best(made)}, run.result
        )[0]  # type: ignore[union-attr]

    assert "wider path" in told([3.0, 2.0, 1.0], [0.1, 0.2, 0.3])
    assert "wider path" in told([1.0, 2.0, 3.0], [0.1, 0.2, 0.3])
    assert "wider path" not in told([1.0, 2.0, 3.0], [0.0, 0.2, 0.3])  # nothing lies below zero
    assert "wider path" not in told([2.0, 1.0, 3.0], [0.1, 0.2, 0.3])
    assert "1 other point does" in told([2.0, 1.0, 1.0], [0.1, 0.2, 0.3])


def test_the_package_holds_its_template_and_says_it_is_typed() -> None:
    assert "<!doctype html>" in files("bonafed.report").joinpath(
        "templates/report.html.jinja"
    ).read_text("utf-8")
    assert files("bonafed").joinpath("py.typed").is_file()
