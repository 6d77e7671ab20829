"""The command line: what it prints, writes and returns."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_run

import bonafed.report.terminal as bonafed_terminal
from bonafed.runs.folder import read_run

QUICK = small_run.CONFIG.replace(
    'compare_with = ["afl", "erm"]', 'compare_with = ["erm"]\nhtml = false'
)


Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]


HELP = """
import sys
sys.argv = ["bonafed", "--help"]
from bonafed.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"numpy", "scipy", "numba", "sklearn", "matplotlib", "pydantic", "pandas"}
heavy &= set(sys.modules)
assert not heavy, heavy
"""


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(
        name in done.stdout
        for name in ("init", "run", "predict", "report", "verify", "compare", "data", "site")
    )


def test_from_a_table_to_a_verified_run_and_its_predictions(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "clinics.csv").write_text(small_run.table())
    assert bonafed("init", "clinics.csv", "--out", "q.toml") == 0
    assert bonafed("run", "q.toml", "--out", "runs", "--verbose") == 0
    said = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    for part in (
        "DRFL: ",
        "worst client",
        "ERM",
        "AFL",
        "Certificate",
        "Did robustness help?",
        "report.html",
    ):
        assert part in said
    assert {p.name for p in folder.iterdir()} >= {"report.html", "figures", "result.json"}
    assert bonafed("verify", folder) == 0
    assert capsys.readouterr().out.rstrip().endswith("verified")
    assert bonafed("predict", folder, "clinics.csv", "--out", "p.csv") == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == 72
    assert {row["prediction"] for row in rows} == {"yes", "no"}


def test_rare_categories_are_no_obstacle(bonafed: Call, tmp_path: Path, capsys: Capture) -> None:
    rows = list(csv.reader(small_run.table().splitlines()))

    def ward(row: int) -> str:
        return f"k{row // 2}" if row < 40 else ""

    (tmp_path / "rare.csv").write_text(
        # few enough of one kind to be rare, too many of one kind to be identifiers
        "\n".join(",".join([*r, ward(i) if i else "ward"]) for i, r in enumerate(rows))
    )
    assert bonafed("init", "rare.csv", "--out", "q.toml") == 0
    # held-out rows have categories of their own
    assert bonafed("run", "q.toml", "--quick", "--out", "runs") == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert bonafed("verify", folder) == 0
    assert bonafed("predict", folder, "rare.csv") == 2
    assert "--unknown ignore" in capsys.readouterr().err
    assert bonafed("predict", folder, "rare.csv", "--unknown", "ignore", "--out", "p.csv") == 0


def test_reports_in_three_forms_and_runs_side_by_side(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    run = small_run.small_run(tmp_path, text=QUICK)
    assert bonafed("report", run.path, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["certificate"] == run.result["certificate"]
    assert bonafed("report", run.path, "--format", "md", "--out", "r.md") == 0
    assert (tmp_path / "r.md").read_text().startswith("# clinics")
    assert bonafed("report", run.path) == 0
    assert (run.path / "report.html").is_file()
    assert bonafed("verify", run.path) == 0
    capsys.readouterr()
    other = small_run.small_run(tmp_path, text=QUICK.replace("radius = 0.05", "radius = 0.1"))
    assert bonafed("compare", run.path, other.path, "--format", "md") == 0
    said = capsys.readouterr()
    assert f"{other.result['certificate']['value']:.4g}" in said.out
    assert said.err == ""
    assert bonafed("compare", run.path, other.path) == 0


def test_an_owner_sees_its_most_exposed_rows(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    run = small_run.small_run(tmp_path, text=QUICK)
    before = sorted(run.path.rglob("*"))
    assert bonafed("report", run.path, "--client", "North") == 0
    assert "Rows of North" in capsys.readouterr().out
    assert sorted(run.path.rglob("*")) == before
    assert bonafed("report", run.path, "--client", "Nort") == 2
    assert "no client 'Nort'" in capsys.readouterr().err


def test_rows_that_all_add_alike_are_one_sentence(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    text = QUICK.replace("label_cost = 2.0", "")  # labels never move
    run = small_run.small_run(tmp_path, text=text)
    assert bonafed("report", run.path, "--client", "North") == 0
    said = " ".join(capsys.readouterr().out.split())
    row = next(row for row in run.result["clients"] if row["client"] == "North")
    slope = np.linalg.norm(run.w[:-1], np.inf)  # dual to the 1-norm
    assert said == (
        f"No row of North adds more than others: its worst case {row['worst_loss']:.4g} is its mean"
        f" loss {row['loss']:.4g} plus the radius 0.05 times {slope:.4g}, the most that moving a"
        " row by one adds to its loss."
    )


def test_pooled_rows_of_a_risk_by_rank_from_run_to_predictions(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    small_run.write_config(tmp_path, small_run.TAIL)
    assert bonafed("run", "clinics.toml", "--out", "runs", "--verbose") == 0
    said = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    for part in (
        "superquantile: ",
        "Is the superquantile of new losses lower?",
        "North against all others",
    ):
        assert part in said
    assert bonafed("verify", folder) == 0
    assert bonafed("predict", folder, "clinics.csv", "--out", "p.csv") == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 73
    capsys.readouterr()
    assert bonafed("report", folder, "--format", "md") == 0
    assert "## Fairness on held-out rows: North against all others" in capsys.readouterr().out
    assert bonafed("report", folder, "--client", "North") == 0
    assert "Rows of North that weigh most" in capsys.readouterr().out
    assert bonafed("report", folder, "--client", "Nort") == 2
    assert "no client 'Nort'" in capsys.readouterr().err
    assert bonafed("compare", folder, folder) == 0
    assert "held-out rows: risk" in capsys.readouterr().out


def test_verify_lists_what_nothing_can_check_and_passes_all_the_same(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    run = small_run.small_run(tmp_path, text=QUICK)
    assert bonafed("verify", run.path) == 0
    listed = capsys.readouterr().out.partition("stated and not verified:\n")[2]
    assert "  seconds: " in listed
    assert listed.endswith("\nverified\n")


def test_verify_returns_one_when_something_differs_or_is_absent(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    run = small_run.small_run(tmp_path, text=QUICK)
    (tmp_path / "clinics.csv").rename(tmp_path / "moved.csv")
    assert bonafed("verify", run.path) == 1
    assert "not checked data" in " ".join(capsys.readouterr().out.split())
    assert bonafed("verify", run.path, "--without-data") == 0
    assert bonafed("verify", run.path, "--data", "moved.csv") == 0
    (run.path / "history.jsonl").write_text("{}\n")
    assert bonafed("verify", run.path, "--without-data") == 1
    assert "FAILED" in capsys.readouterr().out


class Interrupt:
    """Ctrl-C after some rounds of one model."""

    def __init__(self, model: str, after: int) -> None:
        self.model, self.after = model, after

    def __call__(self, model: str, row: dict, *rest: object) -> tuple[str, ...]:
        if model == self.model and row["round"] == self.after:
            raise KeyboardInterrupt
        return ("", "", "", "", "", "", "")


@pytest.mark.parametrize(("model", "after"), [("DRFL", 4), ("ERM", 2)])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(
    bonafed: Call,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    after: int,
) -> None:
    whole = small_run.small_run(tmp_path, text=QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(bonafed_terminal, "cells", Interrupt(model, after))
        assert bonafed("run", "clinics.toml", "--out", "out") == 130
    told = capsys.readouterr().err
    assert "bonafed run --resume" in told
    (folder,) = (tmp_path / "out").iterdir()
    assert bonafed("run", *told.split("bonafed run ")[1].split()) == 0
    (done,) = (tmp_path / "out").iterdir()
    resumed = read_run(done)
    assert not folder.exists()
    assert resumed.w.tobytes() == whole.w.tobytes()
    assert resumed.result["certificate"] == whole.result["certificate"]
    assert [row["objective"] for row in resumed.history] == [
        row["objective"] for row in whole.history
    ]
    assert resumed.result["files"]["config.toml"] == whole.result["files"]["config.toml"]


def test_an_interrupted_sweep_is_solved_again_and_auto_radii_are_said(
    bonafed: Call, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = QUICK.replace("radius = 0.05", 'radius = "auto"') + small_run.sweep(
        "robust.radius", 0.01, 0.1
    )
    whole = small_run.small_run(tmp_path, text=text)

    def interrupted(*line: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bonafed.runs.sections.sweep.line", interrupted)
        assert bonafed("run", "clinics.toml", "--out", "out") == 130
    told = capsys.readouterr()
    assert "radius auto: 0.0" in told.out
    assert bonafed("run", *told.err.split("bonafed run ")[1].split(), "--verbose") == 0
    assert "sweep: robust.radius = 0.1:" in (said := capsys.readouterr().out)
    assert "Other values" in said
    (done,) = (tmp_path / "out").iterdir()
    resumed = read_run(done)
    assert resumed.w.tobytes() == whole.w.tobytes()
    assert resumed.swept is not None
    assert whole.swept is not None
    assert resumed.swept.table == whole.swept.table
    assert bonafed("verify", done) == 0
    assert bonafed("report", done, "--client", "North") == 0
    capsys.readouterr()
    assert bonafed("report", done, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["sweep"] == resumed.swept.table


def test_seed_and_quick_reach_the_run_and_its_configuration(bonafed: Call, tmp_path: Path) -> None:
    small_run.write_config(tmp_path, QUICK)
    assert bonafed("run", "clinics.toml", "--seed", 5, "--quick") == 0
    (done,) = (tmp_path / "runs").iterdir()
    config = read_run(done).config
    assert (config.seed, config.algorithm.tol, config.algorithm.max_rounds) == (5, 1e-2, 30)
    assert not (done / "report.html").exists()


WRONG = {
    "no configuration": (["run"], "needs a configuration"),
    "no such file": (
        ["run", "x.toml"],
        "no configuration 'x.toml': correct its path, or write one",
    ),
    "unknown key": (["run", "bad.toml"], "line 2, data.nam: unknown key (did you mean 'name'?)"),
    "no such data set": (["run", "set.toml"], "did you mean 'hospitals'"),
    "unknown option": (["run", "--fast"], "--fast"),
    "unknown command": (["train"], "train"),
    "no interrupted run": (["run", "--resume", "x"], "no interrupted run"),
    "resume with options": (["run", "--resume", "x", "--quick"], "leave out"),
    "no run": (["verify", "x"], "no run 'x'"),
    "one run": (["compare", "x"], "two runs"),
    "no form": (["report", "run", "--format", "pdf"], "html, md or json"),
    "nothing to init": (["init"], "init needs"),
    "init over a file": (["init", "--dataset", "hospitals", "--out", "bad.toml"], "--force"),
    "no table": (["predict", "run", "x.csv"], "x.csv"),
    "no such set": (["data", "hospital"], "did you mean 'hospitals'"),
    "data directory": (["data"], "BONAFED_DATA"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_one_line_and_status_two(
    bonafed: Call, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    arguments, needed = WRONG[case]
    (tmp_path / "bad.toml").write_text('[data]\nnam = "hospitals"\nname = "hospitals"\n')
    (tmp_path / "set.toml").write_text('[data]\nname = "hospital"\n')
    if "run" in arguments[1:]:
        small_run.small_run(tmp_path, text=QUICK).path.rename(tmp_path / "run")
    if case == "data directory":
        monkeypatch.setenv("BONAFED_DATA", "nowhere")
    assert bonafed(*arguments) == 2
    told = capsys.readouterr()
    assert needed in told.err
    assert len(told.err.splitlines()) == 1
    assert "Traceback" not in told.err
    assert not list((tmp_path).glob("runs/*.partial"))


def test_the_command_alone_shows_its_help(bonafed: Call, capsys: Capture) -> None:
    assert bonafed() == 2
    told = capsys.readouterr().err
    assert told.startswith("Usage: ")
    assert "bonafed: " not in told
    assert "predict" in told


def test_a_misspelt_column_is_asked_about_with_one_stop(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a.csv").write_text("clinic,age,sick\nNorth,3,yes\nSouth,4,no\n")
    assert bonafed("init", "a.csv", "--client", "clinc", "--target", "sick") == 2
    assert "Did you mean 'clinic'? The first line" in capsys.readouterr().err


def test_names_of_data_sets(
    bonafed: Call, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BONAFED_DATA", raising=False)
    assert bonafed("data") == 0
    said = capsys.readouterr().out
    assert "hospitals" in said
    assert "BONAFED_DATA" in said
    assert bonafed("data", "hospitals") == 0
    assert "6 clients: Northgate" in capsys.readouterr().out


def test_clients_names_are_no_markup_on_a_terminal(tmp_path: Path) -> None:
    import io

    from rich.console import Console

    from bonafed.report.sections.clients import BRIEF, clients
    from bonafed.report.terminal import drawn

    run = small_run.small_run(
        tmp_path, text=QUICK.replace("South", "[red]x[/red]"), data=small_run.table(clinics=HOSTILE)
    )
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    with bonafed_terminal.Display(console) as live:
        live.watch("DRFL")(
            {"round": 1, "objective": 1.0, "gap": float("inf"), "worst_client": HOSTILE[0]}, None
        )
        live.done("DRFL", "done")
    console.print(drawn(clients(run.result, BRIEF)))
    assert out.getvalue().count(HOSTILE[0]) >= 2
    assert "\x1b[31m" not in out.getvalue()
    assert "\ufffd[31mred " in out.getvalue()


HOSTILE = ("[bold]N[/bold]", "\x1b[31mred\u202e", "[red]x[/red]")


@pytest.mark.parametrize("verbose", [False, True])
def test_plain_lines_come_at_twice_the_time_and_at_the_end_if_asked(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, verbose: bool
) -> None:
    from rich.console import Console

    now = 100.0
    monkeypatch.setattr(bonafed_terminal.time, "monotonic", lambda: now)
    lines = bonafed_terminal.Display(Console(force_terminal=False, width=200), verbose)
    see = lines.watch("M")
    for k in range(1, 34):  # a round a second
        now += 1.0
        see(
            {
                "round": k,
                "objective": 1.0 / k,
                "gap": 0.1,
                "worst_client": "A",
                "bytes_up": 600,
                "bytes_down": 400,
            },
            None,
        )
    lines.done("M", "finished.")
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == [
        *(f"M round {k}" for k in (1, 2) * verbose + (4, 8, 16, 32)),
        *["M"] * verbose,
    ]
    assert "32.0 kB" in said[-1 - verbose]


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m bonafed.cli data | head -c 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_the_command_line_is_imported_is_answered() -> None:
    code = """
import sys
class Pressed:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed())
from bonafed.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "bonafed: interrupted; nothing was kept\n"
