"""What a run shows on a terminal: a bar for every model, 30 lines, and what to open next; and what
people type who know other tools.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_run
import typer
from met import met
from rich.console import Console

from bonafed import cli
from bonafed.report import terminal
from bonafed.runs.sections.section import Run

Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run.small_run(tmp_path_factory.mktemp("plain"))


def on_terminal(run: Run, *options: bool) -> list[str]:
    """What a terminal of 80 columns shows of a finished run."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    terminal.show(run, console, *options)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@met(
    "F",
    "a run on a terminal of 80 columns",
    "41 lines, of which the first answer is the 21st",
    "at most 30 lines, those that a page opens with",
)
def test_a_run_fills_at_most_30_lines_of_a_terminal(plain: Run) -> None:
    lines = on_terminal(plain)
    ends = [k for k, line in enumerate(lines) if line.startswith("seal of the run")]
    assert ends
    assert len(lines[: ends[0]]) <= terminal.LINES - terminal.BEFORE - terminal.END + 1
    text = " ".join(" ".join(lines).split())
    assert "How good is the model?" in text
    assert "For whom is it bad?" in text
    assert len(on_terminal(plain, True)) > 60


@met(
    "F",
    "what to open after a first run",
    '"report: PATH"',
    '"open next: PATH", the last line',
    relative_of="a run on a terminal of 80 columns",
)
def test_the_last_line_says_what_to_open_next(plain: Run, tmp_path: Path) -> None:
    drawn = small_run.small_run(tmp_path, draw=True, text=small_run.MIXED)
    assert "".join(on_terminal(drawn)).endswith(f"open next: {drawn.path / 'report.html'}")
    assert "".join(on_terminal(plain)).endswith(f"report: {plain.path}")  # no page was drawn


@met(
    "F",
    "--quiet",
    "No such option",
    "warnings, seal and what to open; errors as ever",
    relative_of="a run on a terminal of 80 columns",
)
def test_quiet_says_where_the_report_is_and_nothing_twice(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    small_run.write_config(tmp_path, small_run.MIXED)
    assert bonafed("run", "clinics.toml", "-q", "-o", "kept") == 0
    lines = capsys.readouterr().out.splitlines()
    (folder,) = (tmp_path / "kept").iterdir()
    said = [line for line in lines if not line.startswith("warning: ")]
    assert [line.split(": ")[0] for line in said] == ["seal of the run", "open next"]
    assert bonafed("verify", folder, "--quiet") == 0
    assert capsys.readouterr().out.strip() == "verified"
    assert bonafed("predict", folder, "clinics.csv", "--output", "p.csv", "-q") == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "p.csv").is_file()
    assert bonafed("run", "clinics.toml", "-q", "-v") == 2
    assert "--verbose and --quiet exclude each other" in capsys.readouterr().err


OVER = "bonafed predict -o FILE where FILE is there"
WRITES = {  # all commands with --out: how they write a file; None for those that write a folder
    "init": ("init", "clinics.csv"),
    "predict": ("predict", "RUN", "clinics.csv"),
    "report": ("report", "RUN"),
    "run": None,
    "reproduce": None,
    "engine export": None,
}


def commands(group: Any, *names: str) -> dict[str, Any]:
    """All commands with their parameters, by what is typed."""
    if not (inner := getattr(group, "commands", {})):
        return {" ".join(names): group}
    return {k: v for name, one in inner.items() for k, v in commands(one, *names, name).items()}


@met(
    "F",
    OVER,
    "the file is overwritten, without a question",
    "FILE exists: give another --out, or --force to overwrite it",
)
@met("F", "bonafed report -o FILE where FILE is there", "overwritten", "the same", OVER)
@met(
    "F",
    "bonafed predict MODEL TABLE -o TABLE",
    "the table is lost: predictions stand in its place",
    "refused, as any file that is there",
    OVER,
)
@met(
    "F",
    "bonafed predict MODEL TABLE -o -q, the name forgotten",
    "a file that is called -q",
    "it needs a name, got '-q', which reads as an option",
    OVER,
)
def test_no_command_overwrites_what_is_there(
    plain: Run, bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    known = commands(typer.main.get_command(cli.app))
    out = {name for name, one in known.items() if any("--out" in p.opts for p in one.params)}
    assert out == set(WRITES)
    small_run.write_config(tmp_path, small_run.MIXED)
    rows = (tmp_path / "clinics.csv").read_text("utf-8")
    (tmp_path / "new").write_text("old", "utf-8")
    for name in out:
        assert bonafed(*name.split(), "--out", "-q", "x", "y") == 2
        assert "it needs a name, got '-q', which reads as an option" in capsys.readouterr().err
        if (how := WRITES[name]) is None:
            continue
        words = [str(plain.path) if word == "RUN" else word for word in how]
        for file in ("new", "clinics.csv"):
            assert bonafed(*words, "--out", file) == 2
            assert f"{file} exists: give another --out, or --force" in capsys.readouterr().err
        assert bonafed(*words, "--out", "no/new") == 2
        assert "make it, or give another --out" in capsys.readouterr().err
        assert bonafed(*words, "--out", ".") == 2
        assert "is a folder: --out needs the name of a file" in capsys.readouterr().err
        assert (tmp_path / "new").read_text("utf-8") == "old"
        assert (tmp_path / "clinics.csv").read_text("utf-8") == rows
        assert bonafed(*words, "--out", "new", "--force") == 0
        assert (tmp_path / "new").read_text("utf-8") != "old"
        (tmp_path / "new").write_text("old", "utf-8")


@met(
    "F",
    "bonafed predict MODEL TABLE -o, and nothing after it",
    '"(see bonafed --help)", where no command\'s options are',
    '"(see bonafed predict --help)"',
    OVER,
)
def test_an_option_without_its_value_names_the_help_of_its_command(
    bonafed: Call, capsys: Capture
) -> None:
    for command in ("predict m t -o", "report -o", "init -o", "run --seed", "engine export c -o"):
        words = command.split()
        assert bonafed(*words) == 2
        option, name = words[-1], "engine export" if "engine" in command else words[0]
        said = f"bonafed: Option '{option}' requires an argument. (see bonafed {name} --help)\n"
        assert capsys.readouterr().err == said


@met(
    "F",
    "progress on a terminal",
    "a table of numbers, in which nobody sees how far a model is",
    "a bar for every model: of its rounds, or of the gap that is left",
)
@met(
    "F",
    "a gap that grows on its way, or is none or nan",
    "a table of numbers, of which each replaces the last",
    "the bar never goes back, and stays where nothing is known",
    relative_of="progress on a terminal",
)
@met(
    "F",
    "a method that proves no bound before its end",
    "gap -, and nobody sees how far it is",
    "a bar of its rounds, 4 of 10",
    relative_of="progress on a terminal",
)
def test_a_bar_goes_from_the_first_gap_to_the_tolerance() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    shown = terminal.Display(console, stopping=(1e-6, 100))
    see, reached = shown.watch("M"), []
    for k, gap in enumerate((1.0, 1e-3, 1e-2, 1e-6), 1):
        see({"round": k, "objective": 0.5, "gap": gap}, None)
        reached.append(shown.bars["M"].completed)
    assert reached == [0.01, 0.5, 0.5, 1.0]  # never backwards
    rounds = terminal.Display(console, stopping=(None, 10))
    see = rounds.watch("N")  # a method that proves no bound on its way
    see({"round": 4, "objective": 0.5, "gap": float("inf")}, None)
    assert rounds.bars["N"].completed == 0.4
    rounds.done("N", "finished")
    assert rounds.bars["N"].completed == 1.0
    odd = terminal.Display(console)
    odd.watch("O")({"round": 1, "gap": None, "objective": float("nan")}, None)
    assert odd.on
    assert odd.bars["O"].completed == 0.0


@met(
    "F",
    "an option that a command has not",
    '"(see bonafed --help)", where the options are not',
    "the help of the command itself",
    relative_of="a run on a terminal of 80 columns",
)
@met(
    "F",
    "bonafed verify of the folder with all runs",
    '"not a complete run", and four files that are missing',
    "one of its runs is named",
    relative_of="a run on a terminal of 80 columns",
)
def test_errors_of_usage_name_what_to_do(
    bonafed: Call, tmp_path: Path, capsys: Capture, plain: Run
) -> None:
    assert bonafed("run", "clinics.toml", "--epochs", "3") == 2
    assert "(see bonafed run --help)" in capsys.readouterr().err
    assert bonafed("site", "log", "--all") == 2
    assert "(see bonafed site log --help)" in capsys.readouterr().err
    assert bonafed("--lots") == 2
    assert "(see bonafed --help)" in capsys.readouterr().err
    assert bonafed("verify", plain.path.parent) == 2
    assert f"is a folder of runs: give one, such as {plain.path}" in capsys.readouterr().err


@met(
    "F",
    "progress in a log, which is no terminal",
    "a line after some seconds, then at twice the time",
    "as before: lines, and no signs of a bar",
    relative_of="progress on a terminal",
)
def test_a_log_has_lines_and_no_bar(capsys: Capture) -> None:
    shown = terminal.Display(Console(force_terminal=False, width=200), verbose=True)
    shown.watch("M")({"round": 1, "objective": 0.5, "gap": 0.1}, None)
    said = capsys.readouterr().out
    assert said.startswith("M round 1: objective 0.500000, gap 1.0e-01")
    assert "━" not in said
