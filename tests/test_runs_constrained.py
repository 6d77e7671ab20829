"""Runs with constraints: what is kept where, what verify finds, sweeps, and runs that nothing
can satisfy.
"""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_run

import bonafed as bf
from bonafed.config.config import read_config
from bonafed.report.pages import markdown
from bonafed.runs.evaluation import kept
from bonafed.runs.files import digest, save_arrays, seal
from bonafed.runs.folder import read_run
from bonafed.runs.sections.constraints import stated
from bonafed.runs.sections.section import Run, Silent, Study
from bonafed.runs.splits import prepare
from bonafed.runs.training import VIOLATION, ViolationTrace, train
from bonafed.runs.verification import passed, verify_run

LEVELS = small_run.sweep("constraint.2.level", 0.3, 0.5)
WARDS = small_run.wards(small_run.table())
IMPOSSIBLE = small_run.KEPT.replace(
    "[sweep]",
    '[[constraint]]\nkind = "cost_limit"\ncosts = { age = 1.0 }\nlimit = -2.0\n'
    '[[constraint]]\nkind = "sign"\nsigns = { age = 1 }\n[sweep]',
)
SERVER = small_run.KEPT.replace("test = 0.4", "test = 0.4\nserver = 0.25").replace(
    'on = "together"', 'on = "server"'
)
EDIT = Callable[[dict], object]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; its data lie two folders above."""
    return small_run.small_run(
        tmp_path_factory.mktemp("kept"), data=WARDS, text=small_run.KEPT
    ).path


@pytest.fixture(scope="module")
def impossible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run.small_run(tmp_path_factory.mktemp("none"), data=WARDS, text=IMPOSSIBLE).path


def copy(path: Path, folder: Path) -> Path:
    """A copy that may be damaged, its data with it."""
    shutil.copytree(path.parent.parent, folder / "all")
    return folder / "all" / "runs" / path.name


def reseal(path: Path, change: EDIT = lambda result: None) -> list[str]:
    """Change the result, make all digests right again, and return the checks that fail."""
    result = json.loads((path / "result.json").read_text("utf-8"))
    change(result)
    result["files"] = {name: digest((path / name).read_bytes()) for name in result["files"]}
    (path / "result.json").write_text(json.dumps({**result, "seal": seal(result)}), "utf-8")
    return [check.name for check in verify_run(path) if check.ok is False]


# --------------------------------------------------------------------------------- what a run holds


def test_a_run_on_a_clock_that_compares_with_unconstrained_verifies(tmp_path: Path) -> None:
    """Only the model that it is compared with is evaluated beside its rounds."""
    text = small_run.KEPT.replace(LEVELS, "") + '[engine]\nkind = "virtual_clock"\n'
    run = small_run.small_run(tmp_path, data=WARDS, text=text)
    assert run.result["model"] not in run.result["reached"]
    assert passed(verify_run(run.path)), [check for check in verify_run(run.path) if not check.ok]


def test_a_run_keeps_its_constraints_and_verifies(finished: Path) -> None:
    run = read_run(finished)
    assert passed(verify_run(finished))
    assert run.result["outcome"]["stop"] == "optimal"
    assert run.result["model"] == "constrained"
    assert all(row["met"] for row in run.result["constraints"])
    assert [row["owner"] for row in run.result["constraints"]] == [
        "all clients",
        "all clients",
        "North",
        "East",
    ]
    assert run.duals["local"].shape == (2, 1)
    assert run.duals["shared"].shape == (2,)
    prices = {row["owner"]: row["price"] for row in run.result["constraints"][2:]}
    assert prices == {"North": run.duals["local"][0, 0], "East": run.duals["local"][1, 0]}
    assert run.result["clients"][0]["limit"] == 0.4
    assert any("limit of North" in said for said in run.result["prices"])
    assert [len(row[VIOLATION]) for row in run.history] == [2] * run.result["rounds"]


def margins(run: Run, fed: bf.Federation, client: str) -> tuple[np.ndarray, np.ndarray]:
    i = fed.position(client)
    return fed.X[i] @ run.w[:-1] + run.w[-1], np.asarray(fed.y[i] == "yes")


def test_what_is_measured_and_its_rate_are_those_of_the_raw_rows(finished: Path) -> None:
    run, parts = read_run(finished), prepare(read_config(finished / "config.toml"))
    for part in run.result["kept"]:
        if part["model"] != "constrained" or part["set"] == "shifted clients":
            continue
        fed = parts.train if part["set"] == "training rows" else parts.tests[part["set"]]
        rows = {(row["owner"], row["constraint"]): row for row in part["rows"]}
        for client, level in (("North", 0.4), ("East", 0.5)):
            score, sick = margins(run, fed, client)
            row = rows[client, "mean loss of class yes"]
            assert row["measured"] == pytest.approx(np.log1p(np.exp(-score[sick])).mean(), rel=1e-9)
            assert row["rate"] == pytest.approx((score[sick] <= 0).mean())
            assert (row["limit"], row["met"]) == (level, row["measured"] <= level + 1e-6)
        score = np.concatenate([margins(run, fed, c)[0] for c in fed.clients])
        ward = np.concatenate([*fed.columns["ward"]])  # type: ignore[index]
        row = rows["all clients", "score of ward = a over b, all clients together"]
        assert row["measured"] == pytest.approx(
            score[ward == "a"].mean() - score[ward == "b"].mean(), rel=1e-9
        )
        assert row["rate"] == pytest.approx(
            (score[ward == "a"] > 0).mean() - (score[ward == "b"] > 0).mean()
        )
        groups = [
            g
            for g in run.result["groups"]
            if g["set"] == part["set"] and g["model"] == "constrained"
        ]
        assert {g["group"]: g["selected"] for g in groups} == {
            name: pytest.approx((score[ward == name] > 0).mean()) for name in "ab"
        }


def test_levels_by_client_are_asked_of_these_clients_alone(finished: Path) -> None:
    run = read_run(finished)
    (away,) = (
        p["rows"]
        for p in run.result["kept"]
        if p["set"] == "shifted clients" and p["model"] == "constrained"
    )
    assert {row["owner"] for row in away} == {"all clients"}  # South has no level of its own
    parts = prepare(run.config)
    lone = parts.tests["shifted clients"]
    one_ward = lone._with(columns={"ward": (np.full(lone.sizes[0], "a", dtype=object),)})
    assert kept(run.config.problem(), run.w, one_ward) == []  # nor two groups


def test_the_verdict_counts_what_is_met_on_new_rows(finished: Path) -> None:
    run = read_run(finished)
    first = run.result["evaluation"]["measures"][0]
    (rows,) = (
        p["rows"]
        for p in run.result["kept"]
        if p["set"] == "held-out rows" and p["model"] == "constrained"
    )
    assert (first["asked"], first["met"]) == (len(rows), sum(row["met"] for row in rows))
    assert first["excess"] == pytest.approx(max(row["measured"] - row["limit"] for row in rows))
    assert f"meets {first['met']} of {first['asked']}" in run.result["evaluation"]["verdict"][0]
    assert "against unconstrained" in run.result["evaluation"]["verdict"][1]


def test_prices_are_stated_near_an_optimum_only(finished: Path) -> None:
    from dataclasses import replace

    config = read_config(finished / "config.toml")
    found = bf.solve(config.problem(), prepare(config).train, algorithm=bf.InteriorPoint())
    assert stated(found.certificate, found.constraints)
    assert stated(replace(found.certificate, relative_gap=0.1), found.constraints) == []
    assert stated(replace(found.certificate, infeasible=0.1), found.constraints) == []
    unproven = replace(found.certificate, bound=None, gap=None, relative_gap=None)
    assert all("to first order" in said for said in stated(unproven, found.constraints))
    assert stated(replace(unproven, stationarity=0.1), found.constraints) == []
    assert stated(found.certificate, [{**found.constraints[0], "met": False}]) == []


# -------------------------------------------------------------------------------------- a sweep


def test_objectives_fall_with_the_level_and_prices_are_their_gradients(tmp_path: Path) -> None:
    text = small_run.KEPT.replace(
        "values = [0.3, 0.5]", "values = [0.0, 0.199999, 0.2, 0.200001, 0.4]"
    )
    run = small_run.small_run(tmp_path, data=WARDS, text=text)
    assert run.swept is not None
    points = run.swept.table["points"]
    values = [point["value"] for point in points]
    assert values == sorted(values, reverse=True)
    assert points[2]["price"] == pytest.approx((values[1] - values[3]) / 2e-6, rel=1e-3)
    gradient = (values[0] - values[1]) / 0.199999
    # v is convex; at 0 two sides are one
    assert points[1]["price"] - 1e-6 <= gradient <= points[0]["price"] + 1e-6
    assert points[0]["price"] < 10 * gradient
    assert passed(verify_run(run.path))


@pytest.mark.parametrize("array", ["w", "1/shared", "0/local"])
def test_other_models_or_multipliers_of_a_level_are_found(
    finished: Path, tmp_path: Path, array: str
) -> None:
    path = copy(finished, tmp_path)
    run = read_run(path)
    assert run.swept is not None
    save_arrays(
        path / "sweep.safetensors", {**run.swept.arrays, array: run.swept.arrays[array] + 1e-4}
    )
    assert "sweep" in reseal(path)


def test_a_changed_number_of_a_level_is_found(finished: Path, tmp_path: Path) -> None:
    path = copy(finished, tmp_path)
    file = path / "sweep.json"
    table = json.loads(file.read_text("utf-8"))
    table["points"][0]["bound"] *= 1 + 1e-7
    file.write_text(json.dumps(table), "utf-8")
    assert reseal(path) == ["sweep"]


# ------------------------------------------------------------------------------------ tampered with

CHANGES: dict[str, EDIT] = {
    "measured": lambda r: r["constraints"][2].update(measured=0.3),
    "limit": lambda r: r["constraints"][0].update(limit=0.6),
    "met": lambda r: r["constraints"][0].update(met=False),
    "price": lambda r: r["constraints"][2].update(price=0.5),
    "rate": lambda r: r["constraints"][2].update(rate=0.0),
    "sentence": lambda r: r["prices"].clear(),
    "kept": lambda r: r["kept"][0]["rows"][0].update(measured=0.0),
    "held out": lambda r: r["evaluation"]["measures"][0].update(met=4),
    "group": lambda r: r["groups"][0].update(selected=0.5),
    "client": lambda r: r["clients"][0].update(slack=0.1),
    "violation": lambda r: r["certificate"].update(feasibility=-1.0),
    "value of a constraint": lambda r: r["certificate"]["shared_values"].__setitem__(0, -0.5),
    "bound": (
        lambda r: r["certificate"].update(
            bound=r["certificate"]["value"], gap=0.0, relative_gap=0.0
        )
    ),
    "table": lambda r: r.pop("constraints"),
    "end": lambda r: r["outcome"].update(stop="infeasible"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_number_is_found(finished: Path, tmp_path: Path, change: str) -> None:
    path = copy(finished, tmp_path)
    assert reseal(path, CHANGES[change])


@pytest.mark.parametrize("name", ["local", "shared"])
def test_changed_multipliers_are_found(finished: Path, tmp_path: Path, name: str) -> None:
    path = copy(finished, tmp_path)
    run = read_run(path)
    save_arrays(path / "duals.safetensors", {**run.duals, name: run.duals[name] * 0.999 + 1e-5})
    assert {"certificate", "constraints"} <= {*reseal(path)}


def test_changed_groups_levels_and_rows_of_the_server_are_found(tmp_path: Path) -> None:
    run = small_run.small_run(tmp_path, data=WARDS, text=SERVER)
    assert passed(verify_run(run.path))
    assert run.result["data"]["server"].keys() == {"server"}
    assert run.duals["server"].shape == (2,)
    file = run.path.parent.parent / "clinics.csv"
    parts = prepare(run.config)
    swapped = (
        file.read_text("utf-8")
        .replace(",a\n", ",c\n")
        .replace(",b\n", ",a\n")
        .replace(",c\n", ",b\n")
    )
    file.write_text(swapped, "utf-8")
    failed = [check.name for check in verify_run(run.path) if check.ok is False]
    assert {"data: server", "data: train", "data: held-out rows"} <= {*failed}
    file.write_text(WARDS, "utf-8")
    assert prepare(run.config).train.digests() == parts.train.digests()
    config = run.path / "config.toml"
    config.write_text(config.read_text("utf-8").replace("North = 0.4", "North = 0.41"), "utf-8")
    assert {"certificate", "constraints", "clients"} <= {*reseal(run.path)}


# --------------------------------------------------------------------------------- nothing feasible


def test_a_run_that_nothing_satisfies_names_the_conflict_and_verifies(impossible: Path) -> None:
    run = read_run(impossible)
    assert run.result["outcome"]["stop"] == "infeasible"
    assert "In conflict: the server" in run.result["outcome"]["text"]
    # age <= -2 and age >= 0 meet at -1
    assert 0.99 < run.result["certificate"]["infeasible"] <= 1.0 + 1e-9
    assert run.result["certificate"]["bound"] is None
    assert run.result["prices"] == []
    assert run.model["infeasible"] is True
    check = next(row for row in run.result["checks"] if row["name"] == "trivial")
    assert (check["passed"], run.result["trivial"]) == (None, None)
    assert "better than a constant" not in markdown(run)
    assert run.swept is not None
    assert [(p["value"], p["price"], p["outcome"]) for p in run.swept.table["points"]] == [
        (None, None, "infeasible")
    ] * 2
    assert passed(verify_run(impossible))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["outcome"].update(stop="optimal"),
        lambda r: r["outcome"].update(text=r["outcome"]["text"].replace("the server", "North")),
        lambda r: r["certificate"].update(infeasible=2.0),
    ],
)
def test_a_changed_proof_is_found(impossible: Path, tmp_path: Path, change: EDIT) -> None:
    assert reseal(copy(impossible, tmp_path), change)


# --------------------------------------------------------------------------------- the command line


def test_from_a_configuration_to_predictions(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run.write_config(tmp_path, small_run.KEPT, WARDS)
    assert bonafed("run", "clinics.toml", "--out", "runs", "--verbose") == 0
    said = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    for part in (
        "constrained: ",
        "violation",
        "sweep: constraint.2.level = 0.3",
        "Shadow prices",
        "Are the constraints met on new",
    ):
        assert part in said
    assert bonafed("verify", folder) == 0
    assert bonafed("predict", folder, "clinics.csv", "--out", "p.csv") == 0
    rows = csv.DictReader((tmp_path / "p.csv").read_text("utf-8").splitlines())
    assert {row["prediction"] for row in rows} == {"yes", "no"}
    assert "warning" not in capsys.readouterr().err
    assert bonafed("report", folder, "--format", "md") == 0
    text = capsys.readouterr().out
    assert "## Constraints on held-out rows" in text
    assert "## Other values" in text
    assert bonafed("report", folder, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["sweep"]["points"][1]["at"] == 0.5
    assert bonafed("compare", folder, folder) == 0


def test_a_run_that_nothing_satisfies_has_its_own_status_and_warns(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run.write_config(tmp_path, IMPOSSIBLE, WARDS)
    assert bonafed("run", "clinics.toml", "--out", "runs") == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "No model is recommended" in said
    assert "minus the coefficient of age <= 0" in said
    assert "No model meets all constraints" in said
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "report.html").is_file()
    assert "no model is recommended" in (folder / "report.html").read_text("utf-8").lower()
    assert bonafed("verify", folder) == 0
    assert bonafed("predict", folder, "clinics.csv", "--out", "p.csv") == 0
    assert "not recommended" in capsys.readouterr().err


def test_a_run_goes_on_with_its_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config(small_run.write_config(tmp_path, small_run.KEPT, WARDS))
    parts, work = prepare(config), tmp_path / "work"
    work.mkdir()
    whole = train(Study(config, config, parts))["constrained"].history

    def stop(model: str) -> Callable[[dict, object], None]:
        def see(row: dict, state: object) -> None:
            if row["round"] == 4:
                raise KeyboardInterrupt

        return see

    progress = Silent()
    progress.watch = stop
    cut = train(Study(config, config, parts, work), progress)
    assert cut["constrained"].outcome.stop is bf.Stop.INTERRUPTED
    again = train(Study(config, config, parts, work, True))["constrained"].history
    found, expected = ([{**row, "seconds": 0} for row in each] for each in (again, whole))
    assert found == expected


def test_violations_are_traced_where_the_method_knows_them() -> None:
    class State:
        client_violation = np.array([0.5, -1.0, np.nan])

    trace = ViolationTrace()
    trace({"round": 1}, State())
    trace({"round": 2}, object())
    assert trace.rows == {1: {"round": 1, VIOLATION: [0.5, 0.0, None]}}


def test_the_example_cuts_losses_at_every_hospital(tmp_path: Path) -> None:
    config = read_config(Path(__file__).parents[1] / "examples" / "neyman_pearson.toml")
    run = small_run.finish(config, tmp_path)
    assert run.result["certificate"]["relative_gap"] <= 1e-8
    assert all(row["measured"] <= 0.1 + 1e-9 for row in run.result["constraints"])
    free = next(
        p
        for p in run.result["kept"]
        if (p["set"], p["model"]) == ("training rows", "unconstrained")
    )
    assert max(row["measured"] for row in free["rows"]) > 0.3
    assert passed(verify_run(run.path))
