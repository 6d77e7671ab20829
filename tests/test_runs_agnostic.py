"""Run folders of the worst mix of clients: on a simulated clock, with several classes, interrupted
and gone on with.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_run

import bonafed as bf
from bonafed.config.config import read_config
from bonafed.runs.files import RunError, plain, sealed
from bonafed.runs.folder import read_run
from bonafed.runs.model_file import predict_table
from bonafed.runs.sections.clock import curves, thinned
from bonafed.runs.sections.section import Run, Silent, Study
from bonafed.runs.splits import prepare
from bonafed.runs.training import LARGEST, OBJECTIVE, ObjectiveTrace, train
from bonafed.runs.verification import passed, verify_run

SOFTMAX = small_run.CLOCK.replace('"logistic"', '"multinomial"\nmodel = "softmax"')
NETWORK = small_run.CLOCK.replace('"logistic"', '"multinomial"\nmodel = "mlp"\nhidden = [3]')
NETWORK = NETWORK.replace("tol = 1e-2", "tol = 0.05\nmax_rounds = 2000")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run on the clock; its data lie two folders above."""
    return small_run.small_run(tmp_path_factory.mktemp("clock"), text=small_run.CLOCK)


def three(text: str, seed: int = 2) -> str:
    """The table with a target of three classes."""
    rng = np.random.default_rng(seed)
    head, *lines = csv.reader(text.splitlines())
    value = [float(row[1]) - float(row[2]) + 0.5 * rng.standard_normal() for row in lines]
    kinds = [("low", "mid", "high")[int(v > 0) + int(v > 1.5)] for v in value]
    return (
        "\n".join(
            ",".join([*row[:3], kind])
            for row, kind in zip([head, *lines], ["sick", *kinds], strict=True)
        )
        + "\n"
    )


# --------------------------------------------------------------------------------------- on a clock


def test_a_run_on_a_clock_verifies_and_says_what_was_reached_when(finished: Run) -> None:
    checks = verify_run(finished.path)
    assert passed(checks)
    assert {"events", "certificate", "baselines"} <= {check.name for check in checks}
    result = finished.result
    problem, parts = finished.config.problem(), prepare(finished.config)
    assert result["certificate"]["relative_gap"] <= 1e-2
    for name, w in (("model", finished.w), ("ERM", finished.baselines["erm"])):
        curve = result["reached"][name]
        # the run's own
        assert curve["objective"][-1] == pytest.approx(problem.objective(w, parts.train), rel=1e-12)
        assert all(np.diff(curve[key]).min() >= 0 for key in ("time", "round", "bytes"))
        concrete, data = problem.at(parts.train)
        risks = [concrete.client_risks(w, data.block(i))[0] for i in range(3)]
        assert curve["largest_risk"][-1] == pytest.approx(max(risks), rel=1e-12)
    clock = result["clock"]
    assert clock["by_client"]["East"] < min(
        clock["by_client"]["North"], clock["by_client"]["South"]
    )
    assert clock["time"] == finished.history[-1]["time"] == result["reached"]["model"]["time"][-1]
    assert (
        sum(row["bytes_up"] + row["bytes_down"] for row in finished.history)
        == result["reached"]["model"]["bytes"][-1]
    )


def test_its_events_repeat_the_run(finished: Run) -> None:
    """Replay from the folder alone gives the same model, bit for bit."""
    fed = prepare(finished.config).train
    arguments = finished.config.solve_arguments()
    again = bf.solve(
        finished.config.problem(), fed, **{**arguments, "engine": bf.Replay(finished.events)}
    )
    np.testing.assert_array_equal(again.w, finished.w)
    assert again.rounds == finished.result["rounds"]


def test_two_runs_are_equal_to_the_byte(finished: Run, tmp_path: Path) -> None:
    again = small_run.small_run(tmp_path, text=small_run.CLOCK)
    for name in ("history.jsonl", "model.safetensors", "events.bft"):
        assert (again.path / name).read_bytes() == (finished.path / name).read_bytes()


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda r: r["clock"].update(answers=r["clock"]["answers"] + 1), "events"),
        (lambda r: r["clock"].update(time=1.0), "events"),
        (lambda r: r["clock"]["by_client"].update(East=99), "events"),
        (lambda r: r["reached"]["model"]["objective"].append(0.1), "events"),
        (lambda r: r.pop("clock"), "events"),
        (lambda r: r.update(rounds=r["rounds"] + 1), "rounds"),
    ],
    ids=["answers", "time", "who", "objective", "no clock", "rounds"],
)
def test_what_is_changed_afterwards_is_found(
    finished: Run, change: Callable[[dict], object], found: str
) -> None:
    file = finished.path / "result.json"
    before = file.read_bytes()
    try:
        result = json.loads(before)
        change(result)
        file.write_text(json.dumps(sealed(finished.path, result)), "utf-8")
        assert found in [check.name for check in verify_run(finished.path) if check.ok is False]
    finally:
        file.write_bytes(before)


def test_a_damaged_log_of_events_is_said(finished: Run, tmp_path: Path) -> None:
    import shutil

    there = tmp_path / "run"
    shutil.copytree(finished.path, there)
    (there / "events.bft").write_bytes(b"nothing")
    with pytest.raises(RunError, match="damaged"):
        read_run(there)
    (there / "events.bft").unlink()
    with pytest.raises(RunError, match=r"events\.bft missing"):
        read_run(there)


def test_rows_that_are_not_kept(tmp_path: Path) -> None:
    text = small_run.CLOCK.replace("stragglers", "keep_rows = 7\nstragglers")
    run = small_run.small_run(tmp_path, text=text)
    assert len(run.history) == -(-run.result["rounds"] // 7)
    assert passed(verify_run(run.path))
    half = run.history[-1]["time"] / 2
    capped = small_run.small_run(
        tmp_path, text=text.replace("stragglers", f"max_time = {half}\nstragglers")
    )
    assert capped.result["outcome"]["stop"] == "max_rounds"
    assert passed(verify_run(capped.path))


# -------------------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("after", [3, 8, 13])
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(
    finished: Run, tmp_path: Path, after: int
) -> None:
    """Ends without any last word after some round; the checkpoint is up to 3 rounds older."""
    config = read_config(
        small_run.write_config(
            tmp_path, small_run.CLOCK.replace("stragglers", "every = 4\nstragglers")
        )
    )
    parts = prepare(config)

    class Killed(BaseException):
        pass

    def kill(name: str):
        def see(row: dict, state: object) -> None:
            if row["round"] == after:
                raise Killed

        return see

    progress = Silent()
    progress.watch = kill
    with pytest.raises(Killed):
        train(Study(config, config, parts, tmp_path), progress)
    models = train(Study(config, config, parts, tmp_path, True))
    np.testing.assert_array_equal(models["model"].w, finished.w)
    assert plain(models["model"].history) == finished.history
    assert curves({"ERM": models["ERM"].history}) == {"ERM": finished.result["reached"]["ERM"]}


def test_looks_after_the_checkpoint_are_made_again(tmp_path: Path) -> None:
    """Rounds that were looked at and then lost are forgotten."""
    rng = np.random.default_rng(0)
    fed = bf.Federation(["a", "b"], [rng.standard_normal((5, 2))] * 2, [[1, -1, 1, -1, 1]] * 2)
    problem = bf.Problem(bf.Logistic(), bf.Linear(fit_intercept=False))
    models = rng.standard_normal((40, 2))
    method: Any = SimpleNamespace(answer=lambda w: SimpleNamespace(w=w))

    def watched(first: int, last: int, resume: bool) -> ObjectiveTrace:
        seen = ObjectiveTrace(problem, fed, method, 1, tmp_path / "file", resume)
        for k in range(first, last + 1):
            seen({"round": k}, models[k])
        return seen

    whole = watched(1, 30, False)
    watched(1, 20, False)
    assert watched(12, 30, True).rows == whole.rows
    assert len(whole.rows) < 30
    assert whole.rows[1][OBJECTIVE] == pytest.approx(problem.objective(models[1], fed))


def test_thinned_rows_keep_all_bytes() -> None:
    rows = [
        {"round": k, "bytes_up": k, "bytes_down": 1, "bound": 0.5 if k > 2 else -np.inf}
        for k in range(1, 7)
    ]
    for k in (1, 3, 5):
        rows[k] |= {OBJECTIVE: 1.0 / (k + 1), LARGEST: 1.0}
    found = thinned(rows)
    assert [row["round"] for row in found] == [2, 4, 6]
    assert [row["bytes_up"] for row in found] == [3, 7, 11]
    assert [row["gap"] for row in found] == [None, pytest.approx(-0.25), pytest.approx(1 / 6 - 0.5)]
    assert curves({"m": rows, "none": rows[:1]})["m"]["bytes"] == [5, 14, 27]


# ---------------------------------------------------------------------------------- several classes


@pytest.mark.parametrize("text", [SOFTMAX, NETWORK], ids=["softmax", "network"])
def test_several_classes_from_a_table_to_predictions(tmp_path: Path, text: str) -> None:
    run = small_run.small_run(tmp_path, text=text, data=three(small_run.table(rows=30)))
    assert passed(verify_run(run.path))
    assert (run.result["certificate"]["bound"] is None) == (text is NETWORK)
    parts = prepare(run.config)
    found = predict_table(run.path, tmp_path / "clinics.csv")
    table = list(csv.DictReader((tmp_path / "clinics.csv").read_text().splitlines()))
    best = [
        max(("high", "low", "mid"), key=lambda c: found[f"score_{c}"][k]) for k in range(len(table))
    ]
    assert found["prediction"] == best
    right = np.mean([p == row["sick"] for p, row in zip(found["prediction"], table, strict=True)])
    measures = {row["model"]: row for row in run.result["evaluation"]["measures"]}
    test = parts.tests["held-out rows"]
    assert right > 0.5
    assert measures["model"]["n"] == sum(test.sizes)
    assert 0 <= measures["model"]["worst_accuracy"] <= measures["model"]["accuracy"] <= 1
    # the same accuracy and loss by hand, from the saved model's scores of the held-out rows
    problem = run.config.problem()
    for X, y, row in zip(test.X, test.y, measures["model"]["clients"], strict=True):
        block = bf.Federation(
            ["x"], [X], [np.searchsorted(test.classes, y)], classes=[0, 1, 2]
        ).block(0)
        scores = problem.predictor.forward(run.w, block)[0]
        p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        code = np.searchsorted(test.classes, y)
        assert row["accuracy"] == pytest.approx((scores.argmax(1) == code).mean())
        assert row["loss"] == pytest.approx(-np.log(p[np.arange(len(y)), code]).mean())


def test_two_classes_of_three_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"3 values, not two.*'multinomial'"):
        small_run.small_run(tmp_path, text=small_run.CLOCK, data=three(small_run.table(rows=30)))


def test_a_network_of_two_classes(tmp_path: Path) -> None:
    text = small_run.MIXED.replace('"logistic"', '"logistic"\nmodel = "mlp"\nhidden = [3]').replace(
        "1e-2", "5e-2"
    )
    run = small_run.small_run(tmp_path, text=text)
    assert passed(verify_run(run.path))
    found = predict_table(run.path, tmp_path / "clinics.csv")
    assert found["prediction"] == ["yes" if s > 0 else "no" for s in found["score"]]
    assert run.result["reached"]["model"]["objective"][-1] == run.result["certificate"]["value"]
    assert "clock" not in run.result


# ---------------------------------------------------------------------------- from the command line


def test_from_init_to_a_verified_report(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clinics.csv").write_text(three(small_run.table(rows=30)))
    assert bonafed("init", "clinics.csv", "--agnostic", "--target", "sick", "--out", "q.toml") == 0
    assert bonafed("run", "q.toml", "--out", "runs", "--verbose") == 0
    said = capsys.readouterr().out
    for part in (
        "virtual s\n",
        "Virtual time",
        "Over the 3 clients of held-out rows",
        "virtual seconds: ",
    ):
        assert part in said
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "figures" / "reached.svg").is_file()
    assert bonafed("verify", folder) == 0
    assert bonafed("report", folder) == 0
    assert bonafed("report", folder, "--format", "md") == 0
    assert bonafed("predict", folder, "clinics.csv", "--out", "p.csv") == 0
    assert set((tmp_path / "p.csv").read_text().splitlines()[0].split(",")) == {
        "row",
        "client",
        "prediction",
        *(f"{kind}_{name}" for kind in ("probability", "score") for name in ("high", "low", "mid")),
    }
    capsys.readouterr()
    assert bonafed("compare", folder, folder) == 0
    assert "virtual seconds" in capsys.readouterr().out


def test_what_init_offers_is_valid_where_it_is_used(
    bonafed: Callable[..., int], tmp_path: Path
) -> None:
    for arguments in (["--dataset", "hospitals"], ["clinics.csv"]):
        (tmp_path / "clinics.csv").write_text(small_run.table())
        assert bonafed("init", *arguments, "--agnostic", "--out", "q.toml", "--force") == 0
        text = (tmp_path / "q.toml").read_text()
        for one, other in (
            ('risk = "simplex"', '# risk = "simplex"'),
            ('# risk = "cd_norm"', 'risk = "cd_norm"'),
            ("# budget", "budget"),
            ("# bounds", "bounds"),
            ("# prior", "prior"),
            ("# stragglers", "stragglers"),
            ("# outages", "outages"),
            ("# crashes", "crashes"),
            ("# delays", "delays"),
            ("# max_time", "max_time"),
        ):
            assert one in text
            text = text.replace(one, other, 1)
        (tmp_path / "all.toml").write_text(text)
        config = read_config(tmp_path / "all.toml")
        config.check()
        assert config.engine.crashes
        assert config.clients.build("risk") is not None
    assert (
        bonafed("init", "--dataset", "hospitals", "--agnostic", "--private", "--out", "x.toml") == 2
    )
