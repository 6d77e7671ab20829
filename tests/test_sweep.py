"""Other values of a key: what is solved and judged, what a run keeps of it, and what verify finds;
and a radius that is read off the rows.
"""

import io
import json
import tomllib
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_run
from rich.console import Console

from bonafed import default_radius, solve
from bonafed.config.config import Config, parse_config, read_config
from bonafed.config.sections import several
from bonafed.report.pages import markdown
from bonafed.report.sections import sweep
from bonafed.report.terminal import show
from bonafed.runs.evaluation import measure
from bonafed.runs.files import RunError, digest, plain, seal
from bonafed.runs.folder import read_run
from bonafed.runs.pipeline import begin
from bonafed.runs.sections.section import Silent
from bonafed.runs.sections.sweep import JUDGES, Sweep, equal
from bonafed.runs.splits import prepare
from bonafed.runs.verification import passed, verify_run

RADII = small_run.sweep("robust.radius", 0.01, 0.06, 0.4, test=0.4)
QUICK = small_run.CONFIG.replace('compare_with = ["afl", "erm"]', "html = false").replace(
    "tol = 1e-6", "tol = 1e-3"
)
AUTO = QUICK.replace("radius = 0.05", 'radius = "auto"')


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.small_run(tmp_path_factory.mktemp("path"), text=AUTO + RADII, draw=True).path


class Told(Silent):
    """Progress that keeps the lines."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def done(self, model: str, text: str, /) -> None:
        self.lines.append(f"{model}: {text}")


def config_of(text: str, folder: Path) -> Config:
    return read_config(small_run.write_config(folder, text))


def test_values_are_solved_and_judged_on_training_rows_alone(tmp_path: Path) -> None:
    config, lines = config_of(QUICK + RADII, tmp_path), []
    train = prepare(config).train
    found = Sweep().train(begin(config), Told(lines))
    own, held = train.split(0.4, config.seed)
    assert found.table["held_out"] == dict(zip(held.clients, held.sizes, strict=True))
    assert (found.table["parameter"], found.table["own"]) == ("robust.radius", 0.05)
    for value, point, w in zip((0.01, 0.06, 0.4), found.table["points"], found.w, strict=True):
        there = config_of(QUICK.replace("0.05", str(value)), tmp_path)
        alone = solve(there.problem(), own, tol=1e-3)
        np.testing.assert_array_equal(w, alone.w)
        assert (point["at"], point["rounds"]) == (value, alone.rounds)
        assert point["value"] == alone.certificate.value
        assert point["relative_gap"] <= 1e-3
        judged = measure(there.problem(), w, held)
        judged["worst_client"] = judged["worst_loss_client"]
        assert point["sets"][JUDGES] == {key: judged[key] for key in point["sets"][JUDGES]}
    losses = [point["sets"][JUDGES]["worst_loss"] for point in found.table["points"]]
    assert losses[found.table["best"]] == min(losses)
    assert len(lines) == 3
    assert lines[1].startswith("sweep: robust.radius = 0.06: objective ")


def test_without_a_share_that_judges_the_point_at_the_runs_own_value_is_its_model(
    tmp_path: Path,
) -> None:
    text = QUICK + small_run.sweep("problem.strength", 1e-3, 0.1, test=0.0)
    run = small_run.small_run(tmp_path, text=text)
    assert run.swept is not None
    assert run.swept.w[0].tobytes() == run.w.tobytes()
    first, measures = run.swept.table["points"][0], run.result["evaluation"]["measures"]
    assert [*first["sets"]] == [row["set"] for row in measures]
    for row in measures:
        assert first["sets"][row["set"]]["loss"] == row["loss"]
    assert not {"best", "held_out"} & {*run.swept.table}
    assert passed(verify_run(run.path))


@pytest.mark.parametrize(
    ("text", "parameter", "values"),
    [
        (small_run.TOGETHER, "risk.tail", (0.3, 0.6)),
        (small_run.TAIL, "risk.tail", (0.3, 0.6)),
        (
            QUICK.replace("radius = 0.2", 'risk = "mean"')
            + '[[constraint]]\nkind = "sign"\nsigns = { age = 1 }\n',
            "robust.radius",
            (0.0, 0.1),
        ),
        (small_run.CLOCK, "problem.strength", (0.01, 0.1)),
        (QUICK, "clients.radius", (0.0, 0.3)),
        (QUICK.replace("radius = 0.05", 'radius = "auto"'), "robust.label_cost", (0.5, 2)),
    ],
)
def test_a_run_of_any_kind_is_swept_and_verifies(
    tmp_path: Path, text: str, parameter: str, values: tuple[float, ...]
) -> None:
    run = small_run.small_run(tmp_path, text=text + small_run.sweep(parameter, *values))
    assert run.swept is not None
    assert [point["at"] for point in run.swept.table["points"]] == [*values]
    checks = verify_run(run.path)
    assert passed(checks)
    assert next(check.text for check in checks if check.name == "sweep") == "as stated"


def test_equal_points_are_said_and_the_first_is_named() -> None:
    losses = [0.5, 0.3, 0.3 * (1 - 1e-12), 0.4]
    assert equal([{"sets": {JUDGES: {"worst_loss": loss}}} for loss in losses]) == [1, 2]


@pytest.mark.parametrize("after", range(16, 24))
def test_ctrl_c_ends_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """In a round or in the proof of a point: the sweep does not go on to the next point, and says
    nothing half done.
    """
    from bonafed.problem.losses import Hinge

    config, calls = config_of(QUICK + RADII, tmp_path), iter(range(1000))
    study, gradient = begin(config), Hinge.gradient

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == after:
            raise KeyboardInterrupt
        return gradient(*arguments)

    lines: list[str] = []
    monkeypatch.setattr(Hinge, "gradient", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Sweep().train(study, Told(lines))
    # in a proof: what stands at the model is computed without its bound at every client
    assert next(calls) - after - 1 in (0, 2 * len(study.parts.train.clients))
    assert len(lines) < 3


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


# ---------------------------------------------------------------------------------------- in a run


def test_a_run_keeps_its_sweep_and_verifies(finished: Path) -> None:
    run = read_run(finished)
    assert run.swept is not None
    assert run.swept.w.shape == (3, 3)
    assert {"sweep.json", "sweep.safetensors"} <= run.result["files"].keys()
    checks = verify_run(finished)
    assert passed(checks)
    assert "sweep" in {check.name for check in checks}
    checked = next(check for check in checks if check.name == "sweep")
    assert checked.text == "as stated"
    inputs: Any = SimpleNamespace(config=run.config, parts=prepare(run.config), points=run.points)
    assert plain(Sweep().result(inputs)) == run.swept.table  # to the last bit


@pytest.mark.parametrize(
    "change",
    ["best", "value", "worst_loss", "accuracy", "worst_client", "at", "held_out", "own", "w"],
)
def test_a_better_looking_sweep_is_found_even_resealed(finished: Path, change: str) -> None:
    saved = {
        name: (finished / name).read_bytes()
        for name in ("sweep.json", "sweep.safetensors", "result.json")
    }
    table = json.loads(saved["sweep.json"])
    first = table["points"][0]
    judged = first["sets"][JUDGES]
    if change == "best":
        table["best"] = (table["best"] + 1) % 3
    elif change == "held_out":
        table["held_out"]["North"] += 1
    elif change == "own":
        table["own"] += 1e-6
    elif change == "worst_client":
        judged[change] = "East" if judged[change] == "North" else "North"
    elif change in judged:
        judged[change] += 1e-6
    elif change != "w":
        first[change] += 1e-6
    try:
        (finished / "sweep.json").write_text(json.dumps(table))
        if change == "w":
            data = bytearray(saved["sweep.safetensors"])
            data[-3] ^= 1
            (finished / "sweep.safetensors").write_bytes(data)
        result = json.loads(saved["result.json"])
        # and by its digest
        assert {check.name for check in verify_run(finished) if check.ok is False} >= {"sweep"}
        result["files"] = {name: digest((finished / name).read_bytes()) for name in result["files"]}
        (finished / "result.json").write_text(json.dumps({**result, "seal": seal(result)}))
        assert [check.name for check in verify_run(finished) if check.ok is False] == ["sweep"]
    finally:
        for name, data in saved.items():
            (finished / name).write_bytes(data)


def test_a_sweep_that_is_absent_or_damaged_is_said(finished: Path) -> None:
    file = finished / "sweep.json"
    saved = file.read_bytes()
    try:
        for text, said in (("{", "damaged"), ('{"points": [], "best": 0}', "parameter is missing")):
            file.write_text(text)
            with pytest.raises(RunError, match=said):
                read_run(finished)
        file.unlink()
        with pytest.raises(RunError, match=r"sweep\.json missing"):
            read_run(finished)
    finally:
        file.write_bytes(saved)


# ---------------------------------------------------------------------------------------- shown


def test_the_best_point_is_named_with_what_it_is_worth(finished: Path) -> None:
    run = read_run(finished)
    assert run.swept is not None
    found, told = run.swept.table, sweep.choice(run.swept.table)
    point = found["points"][found["best"]]
    judged = point["sets"][JUDGES]
    assert told[0].startswith(f"At {point['at']:.4g} the largest of the clients' held-out")
    assert f"{judged['worst_loss']:.4g}, at {judged['worst_client']}" in told[0]
    assert "This choice was made" in told[1]
    assert f"on {sum(found['held_out'].values())} rows" in told[1]
    out = io.StringIO()
    show(run, Console(file=out, width=150), verbose=True)
    html = (finished / "report.html").read_text("utf-8")
    for shown in (out.getvalue(), markdown(run), html):
        assert "Other values" in shown
        assert "flatter it" in " ".join(shown.split())
    assert {"sweep_loss.svg", "sweep_judged.svg", "sweep_value.svg"} <= {
        p.name for p in (finished / "figures").iterdir()
    }
    assert sweep.tried(run)[0].rows[found["best"]][0].endswith("best")


def test_the_end_of_a_sweep_and_equal_points_are_said(finished: Path) -> None:
    run = read_run(finished)
    assert run.swept is not None
    point = run.swept.table["points"][0]

    def told(losses: list[float], values: list[float]) -> str:
        made = []
        for loss, value in zip(losses, values, strict=True):
            judged = {**point["sets"][JUDGES], "worst_loss": loss}
            made.append({**point, "at": value, "sets": {JUDGES: judged}})
        return sweep.choice({**run.swept.table, "points": made, "best": equal(made)[0]})[0]  # type: ignore[union-attr]

    assert "wider sweep" in told([3.0, 2.0, 1.0], [0.1, 0.2, 0.3])
    assert "wider sweep" in told([1.0, 2.0, 3.0], [0.1, 0.2, 0.3])
    assert "wider sweep" not in told([1.0, 2.0, 3.0], [0.0, 0.2, 0.3])  # nothing lies below zero
    assert "wider sweep" not in told([2.0, 1.0, 3.0], [0.1, 0.2, 0.3])
    assert "1 other point does" in told([2.0, 1.0, 1.0], [0.1, 0.2, 0.3])


def test_the_package_holds_its_template_and_says_it_is_typed() -> None:
    assert "<!doctype html>" in files("bonafed.report").joinpath(
        "templates/report.html.jinja"
    ).read_text("utf-8")
    assert files("bonafed").joinpath("py.typed").is_file()


@pytest.mark.parametrize("values", ["{ from = 1, to = 2, count = 100000000 }", str([0.1] * 1001)])
def test_more_values_than_anybody_waits_for_are_refused_at_once(values: str) -> None:
    with pytest.raises(ValueError, match="at most 1,000 numbers"):
        several(tomllib.loads(f"values = {values}")["values"])
