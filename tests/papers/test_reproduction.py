"""`bonafed reproduce`: what every experiment of every room must state, and how numbers compare."""

from __future__ import annotations

import ast
import contextlib
import io
import math
import re
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

import bonafed as bf
from bonafed.cli import app, main
from bonafed.data import load
from bonafed.papers.reproduction import Row
from bonafed.reproduction import comparison, experiments
from bonafed.reproduction.experiments import Claim, Experiment, Number, Own, Reason

DOCS = Path(__file__).parents[2] / "docs"
ALL = experiments.experiments()
LEAST = 40  # tables and figures of the five papers


def drawn(seed: int, *, offset: float = 1.0) -> list[Row]:
    """A method and a baseline that is lower by the offset, and a method that ends sometimes."""
    rng = np.random.default_rng(seed)
    level, noise = rng.normal(), 0.01 * rng.normal()
    rows = [
        Row("a", "accuracy", "ours", level + offset + noise),
        Row("a", "accuracy", "old", level),
    ]
    rows += [Row("a", "rounds", "ours", 1.0), Row("a", "rounds", "old", 10.0)]
    rows += [Row("a", "curve", "ours", level + k, x=float(k)) for k in range(3)]
    return [*rows, Row("b", "rounds", "old", math.nan if seed % 2 else 4.0)]


ONE = Experiment(
    "drfl",
    "figure-2",
    title="A picture",
    where="section 1",
    setting="As it is.",
    program="",
    full={"trials": 12, "offset": 1.0},
    quick={"trials": 2, "offset": 0.5},
    seconds={"full": 1, "quick": 1},
    better={"accuracy": "higher", "rounds": "lower"},
    numbers=(Number("a", "accuracy", "ours", "0.5"), Number("a", "rounds", "old", "12")),
    claims=(Claim("Ours is better.", "accuracy", "ours", ("old",)),),
    own=(Own("old", "ours", "rounds", how="ratio"),),
    why=(Reason("A reason."), Reason("Of no case here.", "c")),
)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a room that has ONE."""
    code = type("Code", (), {"RUN": {"figure-2": staticmethod(drawn)}, "DRAW": {}})
    monkeypatch.setattr(experiments, "_code", lambda _: code)


def run(folder: Path, one: Experiment = ONE, **settings: Any) -> experiments.Result:
    return experiments.reproduce(one, folder, **settings)


@pytest.mark.usefixtures("room")
def test_a_claim_is_decided_by_paired_differences_over_ten_trials(tmp_path: Path):
    result = run(tmp_path)
    ((case, text, said),) = comparison.judged(ONE, result, ONE.claims[0])
    assert (case, said) == ("a", "holds")
    # the levels of trials differ by 1, their differences by 0.01
    assert re.fullmatch(r"ours - old = \+1(\.00\d)? ± 0\.00\d+|ours - old = \+0\.99\d ± .*", text)
    opposite = replace(ONE.claims[0], method="old", than=("ours",))
    assert next(iter(comparison.judged(ONE, result, opposite)))[2] == "the opposite holds"
    few = run(tmp_path / "few", trials=9)
    assert next(iter(comparison.judged(ONE, few, ONE.claims[0])))[2] == "not decided by 9 trials"
    same = run(tmp_path / "same", replace(ONE, full={"trials": 12, "offset": 0.0}))
    said = next(iter(comparison.judged(ONE, same, ONE.claims[0])))[2]
    assert said == "not decided by 12 trials"


def made(*trials: list[Row]) -> experiments.Result:
    """The result of trials with these rows."""
    each = [experiments.Trial(k, 0.0, "2026-01-01", tuple(rows)) for k, rows in enumerate(trials)]
    return experiments.Result(ONE.name, False, {"offset": 1.0}, "0", tuple(each))


def judged(rows: list[Row], claim: Claim, **more: Any) -> list[str]:
    """The judgements of a claim by one trial of these rows."""
    one = replace(ONE, claims=(claim,), **more)
    return [said for *_, said in comparison.judged(one, made(rows), claim)]


def test_one_run_decides_what_is_not_drawn_but_never_a_time():
    rows = [Row("a", name, m, v) for name in ("rounds", "CPU s") for m, v in (("x", 1), ("y", 2))]
    claim = Claim("x needs less.", "rounds", "x", ("y",), by="lower")
    assert judged(rows, claim, deterministic=True) == ["holds"]
    assert judged(rows, claim) == ["not decided by 1 trial"]
    timed = replace(claim, figure="CPU s")
    assert judged(rows, timed, deterministic=True) == ["not decided by 1 trial"]


def test_the_method_that_did_not_get_there_is_named():
    rows = [Row("a", "rounds", m, v) for m, v in (("x", 1), ("y", 2), ("z", math.nan))]
    claim = Claim("x needs less.", "rounds", "x", ("y", "z"), by="lower")
    assert judged(rows, claim, deterministic=True) == ["holds", "z did not get there"]
    assert judged(rows, replace(claim, method="z", than=("x",))) == ["z did not get there"]


@pytest.mark.parametrize(("others", "said"), [(6.0, "holds, in 11"), (4.0, "not decided by 11")])
@pytest.mark.parametrize(
    ("method", "than", "by"), [("whole", "part", "lower"), ("part", "whole", "higher")]
)
def test_a_run_that_did_not_get_there_counts_against_its_method(
    others: float, said: str, method: str, than: str, by: Any
):
    """That it needed fewer rounds in the other trials decides nothing."""
    values = {"whole": 5.0, "part": others}
    rows = [[Row("a", "rounds", m, v + 0.01 * k) for m, v in values.items()] for k in range(12)]
    rows[3][1] = rows[3][1]._replace(value=math.nan)
    claim = Claim("One is better.", "rounds", method, (than,), by=by)
    ((*_, judgement),) = comparison.judged(ONE, made(*rows), claim)
    assert judgement == f"{said} of 12 trials"


def test_a_number_is_not_better_than_a_paper_s_where_some_runs_did_not_get_there():
    number, values = Number("a", "rounds", "old", "12"), np.full(20, 10.0)
    assert comparison.verdict(ONE, made([]), number, values) == "better"
    values[3] = math.nan
    assert comparison.verdict(ONE, made([]), number, values) == "undecided"
    assert comparison.verdict(ONE, made([]), replace(number, value="8"), values) == "worse"


def test_claims_without_a_difference_are_rarely_decided():
    rng, claim = np.random.default_rng(0), Claim("A is better.", "accuracy", "A", ("B",))
    level, noise = rng.normal(size=(400, 10, 1)), rng.normal(size=(400, 10, 2))
    decided = 0
    for values in level + 0.1 * noise:
        rows = [
            [Row("a", "accuracy", m, v) for m, v in zip("AB", two, strict=True)] for two in values
        ]
        ((*_, said),) = comparison.judged(ONE, made(*rows), claim)
        decided += not said.startswith("not decided")
    assert 0.02 <= decided / 400 <= 0.08


def test_a_claim_leaves_out_what_the_paper_does_and_says_where_other_data_stand_in():
    rows = [Row(c, "rounds", m, v) for c in ("a", "b, 2", "c") for m, v in (("x", 1), ("y", 2))]
    claim = Claim("x needs less.", "rounds", "x", ("y",), but=("a",), by="lower")
    said = judged(rows, claim, deterministic=True, other={"b": "other data"})
    assert said == ["holds, in another setting", "holds"]


@pytest.mark.usefixtures("room")
def test_a_number_is_compared_within_the_interval_of_the_trials(tmp_path: Path):
    result, (accuracy, seconds) = run(tmp_path), ONE.numbers

    def said(number: Number, value: str, one: Experiment = ONE, **more: Any) -> str:
        key = (number.case, number.figure, number.method, None)
        return comparison.verdict(one, result, replace(number, value=value), result.values[key])

    mean, half = comparison.interval(result.values["a", "accuracy", "ours", None])
    assert said(accuracy, f"{mean + 0.9 * half:.6f}") == "same"
    assert said(accuracy, f"{mean - half - 0.1:.6f}") == "better"
    assert said(accuracy, f"{mean + half + 0.1:.6f}") == "worse"
    assert said(seconds, "10.5") == "better"  # ours needs less
    assert said(seconds, "9") == "worse"
    assert said(seconds, "10") == "same"
    assert said(seconds, "9", replace(ONE, other={"a": "other data"})) == "other"
    assert said(seconds, "9", replace(ONE, better={})) == "higher"
    fewer = run(tmp_path / "few", trials=3)
    key = ("a", "rounds", "old", None)
    assert comparison.verdict(ONE, fewer, seconds, fewer.values[key]) == "undecided"
    one = replace(ONE, deterministic=True)
    assert comparison.verdict(one, fewer, seconds, fewer.values[key]) == "better"
    timed = replace(seconds, figure=comparison.SECONDS)  # of another machine
    assert comparison.verdict(one, fewer, timed, fewer.values[key]) == "other"
    quick = run(tmp_path, quick=True)
    assert comparison.verdict(ONE, quick, seconds, quick.values[key]) == "other"


@pytest.mark.usefixtures("room")
def test_the_paper_s_method_beside_ours_says_where_it_did_not_get(tmp_path: Path):
    assert comparison.beside(run(tmp_path), ONE.own[0]) == "10 times"
    for old, ours, whose in ((math.nan, 1.0, "the paper's method"), (1.0, math.nan, "ours")):
        lost = [Row("a", "rounds", "ours", ours), Row("a", "rounds", "old", old)]
        said = comparison.beside(made(lost), ONE.own[0])
        assert said == f"1 of 1 runs of {whose} did not get there"


def test_a_lost_run_moves_no_other_case():
    rows = [
        [Row(case, "rounds", "old", v) for case, v in (("a", 1.0), ("b", 100.0))]
        + [Row(case, "rounds", "ours", 1.0) for case in "ab"]
        for _ in range(4)
    ]
    rows[3][1] = rows[3][1]._replace(value=math.nan)
    said = comparison.beside(made(*rows), ONE.own[0])
    assert said is not None
    assert said.startswith("10 times (1 to 100 over 2 cases); 1 of 8 runs")


def test_an_interrupted_run_goes_on_with_its_finished_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []

    def interrupted(seed: int, **settings: Any) -> list[Row]:
        asked.append(seed)
        if seed == 2 and asked.count(2) == 1:
            raise KeyboardInterrupt
        return drawn(seed, **settings)

    code = type("Code", (), {"RUN": {"figure-2": staticmethod(interrupted)}, "DRAW": {}})
    monkeypatch.setattr(experiments, "_code", lambda room: code)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, trials=4)
    result = run(tmp_path, trials=4)
    assert asked == [0, 1, 2, 2, 3]
    assert [trial.seed for trial in result.trials] == [0, 1, 2, 3]
    kept = experiments.read(tmp_path, ONE, quick=False)
    assert kept is not None
    np.testing.assert_equal(kept.values, result.values)
    before = experiments.path_of(tmp_path, ONE, quick=False).read_bytes()
    changed = replace(ONE, full={"trials": 1, "offset": 3.0})  # nothing is mixed, and nothing lost
    with pytest.raises(FileExistsError, match=r"trials with other settings.*another --out"):
        run(tmp_path, changed)
    assert experiments.path_of(tmp_path, ONE, quick=False).read_bytes() == before


@pytest.mark.usefixtures("room")
def test_a_section_shows_paper_and_ours_and_says_what_was_not_run(tmp_path: Path):
    text = comparison.section(ONE, run(tmp_path))
    assert "| a | rounds | 1 | 12 / 10 + |" in text
    assert "*Why*: A reason." in text
    assert "Of no case here" not in text
    assert "(6 of 12 not reached)" in text
    assert "Not run: `bonafed reproduce drfl/figure-2`" in comparison.section(ONE, None)


@pytest.mark.parametrize("part", ["numbers", "claims", "own", "why", None])
def test_a_key_that_nothing_reads_is_refused(part: str | None):
    name = next(each.name for each in ALL.values() if each.numbers and each.claims and each.own)
    stated = {**asdict(ALL[name]), "own": ({"method": "a", "own": "b", "figure": "c"},)}
    form = TypeAdapter(Experiment)
    form.validate_python(stated)
    (stated if part is None else stated[part][0])["typo"] = 1
    with pytest.raises(ValueError, match="typo"):
        form.validate_python(stated)


@pytest.mark.usefixtures("room")
def test_a_section_names_the_commands_that_ran_its_trials(tmp_path: Path):
    for trials, seed in ((3, 0), (12, 20), (2, 5)):
        run(tmp_path, trials=trials, seed=seed)
    kept = experiments.read(tmp_path, ONE, quick=False)
    each = [f"`bonafed reproduce {ONE.name}{m}`" for m in (" --trials 3", " --trials 2 --seed 5")]
    each.append(f"`bonafed reproduce {ONE.name} --seed 20`: full, 17 trials")
    assert ", ".join(each) in comparison.section(ONE, kept)


# ------------------------------------------------------------------------ laws of every experiment


def test_every_table_and_figure_is_stated_and_has_code():
    for room, paper in experiments.papers().items():
        code = experiments._code(room)
        assert set(code.RUN) == set(paper.experiments)
        assert set(code.DRAW) <= set(code.RUN)
    assert tuple(experiments.papers()) == experiments.ROOMS
    assert len(ALL) > LEAST


@pytest.mark.parametrize("name", ALL)
def test_an_experiment_says_what_a_reader_needs(name: str):
    one = ALL[name]
    for text in (one.title, one.where, one.setting):
        assert text
    assert {"full", "quick"} == {*one.seconds}
    assert {*one.quick} == {*one.full}
    assert set(one.data) <= set(load.SOURCES)
    assert one.seconds["quick"] <= 60
    for claim in one.claims:
        assert claim.by or claim.figure in one.better
    for number in one.numbers:
        assert math.isfinite(float(number.value))
    keys = [(number.case, number.figure, number.method) for number in one.numbers]
    assert len(keys) == len(set(keys))
    if one.key.startswith("figure"):
        assert one.draw is not None


@pytest.mark.parametrize("name", ALL)
def test_a_program_has_five_lines_and_runs_where_data_are_made(name: str):
    lines = ALL[name].program.strip().splitlines()
    assert 0 < len(lines) <= 5
    assert max(map(len, lines)) <= 100
    ast.parse(ALL[name].program)
    if not ALL[name].data:
        exec(compile(ALL[name].program, name, "exec"), {"__name__": "program"})


def between(seed: int) -> None:
    """A signal that somebody's code keeps for itself."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def within(seed: int) -> None:
    """A signal at which a solve ends with what it has."""
    fed = bf.Federation(("a",), (np.eye(2),), (np.array([-1.0, 1.0]),))
    problem = bf.Problem(bf.Logistic(), bf.Linear(fit_intercept=False))
    concrete, rows = problem.at(fed)
    watch = [lambda *_: signal.raise_signal(signal.SIGINT)]
    bf.InProcess().run(bf.Bundle(problem=concrete), rows, watch=watch)


@pytest.mark.parametrize("strike", [between, within])
@pytest.mark.parametrize("then_fails", [False, True])
def test_a_trial_whose_solve_was_interrupted_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strike: Any, then_fails: bool
):
    asked: list[str] = []

    def stopped(seed: int, **settings: Any) -> Iterator[Row]:
        strike(seed)
        if then_fails:
            raise ValueError("a model of half a solve")
        for row in drawn(seed, **settings):
            asked.append(row.figure)
            yield row

    code = type("Code", (), {"RUN": {"figure-2": staticmethod(stopped)}, "DRAW": {}})
    monkeypatch.setattr(experiments, "_code", lambda _: code)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert experiments.read(tmp_path, ONE, quick=False) is None
    assert len(asked) <= 1  # the rest of the trial is not computed


RUNS = re.compile(r"bf\.InProcess\(.*\)\.run|engine\.run|ext\.fit|bf\.solve")


@pytest.mark.parametrize("room", experiments.ROOMS)
def test_every_run_of_an_experiment_ends_its_trial_where_it_is_interrupted(room: str):
    """Or the trial goes on with the next of its runs, for minutes."""
    for name in ("experiments", "workers", "sets"):
        if not (
            path := Path(experiments.__file__).parents[1] / f"papers/{room}/{name}.py"
        ).exists():
            continue
        for function in ast.parse(path.read_text("utf-8")).body:
            calls = [ast.unparse(c.func) for c in ast.walk(function) if isinstance(c, ast.Call)]
            if any(map(RUNS.fullmatch, calls)):
                assert "whole" in calls, ast.unparse(function)


def test_the_pages_are_what_the_command_makes_of_the_saved_trials():
    """No number stands there that the command did not print; every experiment was run."""
    found = experiments.results(DOCS)
    assert set(found) == set(ALL)
    for name, text in comparison.pages(found).items():
        assert (DOCS / name).read_text("utf-8") == text, "run: python docs/make.py"
    for name, result in found.items():
        stated = {k: v for k, v in ALL[name].settings(result.quick).items() if k != "trials"}
        assert {k: v for k, v in result.settings.items() if k != "data"} == stated, name
        drawn = DOCS / "reproduction" / f"{name.replace('/', '-')}.svg"
        assert drawn.is_file() == (ALL[name].draw is not None)


def command(*options: str) -> list[str]:
    """What the command says on both streams, line by line."""
    done = CliRunner().invoke(app, ["reproduce", *options], catch_exceptions=False)
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_without_data_what_is_made_runs_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(load.SETTING, raising=False)
    apart = replace(ONE, key="figure-3", data=("heart",))
    code = {"RUN": {"figure-2": staticmethod(drawn), "figure-3": staticmethod(drawn)}, "DRAW": {}}
    monkeypatch.setattr(experiments, "_code", lambda _: type("Code", (), code))
    both = {"drfl/figure-2": ONE, "drfl/figure-3": apart}
    monkeypatch.setattr(experiments, "experiments", lambda: both)
    monkeypatch.setattr(comparison, "experiments", lambda: both)
    lines = command("--all", "--quick", "--out", str(tmp_path))
    (named,) = (line for line in lines if "drfl/figure-3: heart" in line)
    assert load.SETTING in named
    assert "archive.ics.uci.edu" in named
    assert {path.name for path in (tmp_path / "reproduction").glob("*.json")} == {
        "drfl-figure-2.quick.json"
    }


def test_a_page_of_somebody_else_is_not_overwritten(tmp_path: Path):
    (tmp_path / comparison.PAGE).write_text("mine")
    with pytest.raises(FileExistsError, match="another page: give another --out"):
        command("drfl/figure-1", "--out", str(tmp_path))
    assert (tmp_path / comparison.PAGE).read_text() == "mine"
    assert not (tmp_path / "reproduction").exists()


def test_what_cannot_be_written_to_is_refused_before_a_run(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="--out needs the name of a folder"):
        command("drfl/figure-1", "--out", str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def swap(old: str, new: str) -> Any:
    return lambda text: text.replace(old, new, 1)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    "damage",
    [
        *(lambda _, text=text: text for text in ("", "{", "[]", "{}", "[" * 100_000)),
        lambda text: text[:-40],
        swap("[[0, ", "[[1, "),  # a seed twice
        swap("[[0, ", '[["0", '),
        swap('"values"', '"more": 1, "values"'),
        swap('"a", "accuracy"', '1, "accuracy"'),
        swap("[[", '[["x", '),
        swap("[null]", '["x"]'),
        swap("10.0", '"10"'),
        swap("10.0, 10.0", "10.0"),
    ],
)
def test_a_damaged_file_of_trials_is_named_and_left(tmp_path: Path, damage: Any):
    run(tmp_path, quick=True)
    path = experiments.path_of(tmp_path, ONE, quick=True)
    text = damage(path.read_text())
    assert text != path.read_text()
    path.write_text(text)
    with pytest.raises(ValueError, match=r"drfl-figure-2.quick.json is damaged.*Put back a copy"):
        run(tmp_path, quick=True)
    with pytest.raises(ValueError, match="is damaged"):  # before hours of something else
        command("drfl/figure-1", "--out", str(tmp_path))
    assert path.read_text() == text


@pytest.mark.usefixtures("room")
def test_trials_of_another_experiment_are_refused(tmp_path: Path):
    run(tmp_path, quick=True)
    for other in (replace(ONE, key="figure-3"), replace(ONE, room="rank")):
        path = experiments.path_of(tmp_path, other, quick=True)
        path.write_bytes(experiments.path_of(tmp_path, ONE, quick=True).read_bytes())
        with pytest.raises(ValueError, match=r"trials of drfl/figure-2 --quick: needed are those"):
            experiments.read(tmp_path, other, quick=True)


@pytest.mark.usefixtures("room")
def test_trials_that_another_process_saved_meanwhile_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def slow(seed: int, **settings: Any) -> list[Row]:
        if seed == 0:
            run(tmp_path, trials=2, seed=2)
        return drawn(seed, **settings)

    code = type("Code", (), {"RUN": {"figure-2": staticmethod(slow)}, "DRAW": {}})
    monkeypatch.setattr(experiments, "_code", lambda _: code)
    assert [trial.seed for trial in run(tmp_path, trials=2).trials] == [0, 1]
    kept = experiments.read(tmp_path, ONE, quick=False)
    assert kept is not None
    assert [trial.seed for trial in kept.trials] == [0, 1, 2, 3]


@pytest.mark.usefixtures("room")
def test_trials_of_several_versions_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for number, trials in (("1", 2), ("2", 2), ("2", 3), ("3", 3)):
        monkeypatch.setattr(experiments, "version", lambda _, number=number: number)
        result = run(tmp_path, trials=trials)
    assert result.version == "1, 2"


@pytest.mark.usefixtures("room")
def test_saved_settings_decide_what_is_another_setting(tmp_path: Path):
    result = run(tmp_path)
    later = replace(ONE, full={"trials": 12, "offset": 2.0})  # the file is of before
    assert comparison.is_other(later, result)
    ((*_, said),) = comparison.judged(later, result, ONE.claims[0])
    assert said == "holds, at other settings"
    assert not comparison.is_other(replace(ONE, full={"trials": 99, "offset": 1.0}), result)


def failing(seed: int, **settings: Any) -> list[Row]:
    if seed == 1:
        raise KeyError("what no reader understands")
    return drawn(seed, **settings)


def test_a_trial_that_fails_is_named_and_stops_no_other_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = replace(ONE, key="figure-3")
    code = {"RUN": {"figure-2": staticmethod(failing), "figure-3": staticmethod(drawn)}, "DRAW": {}}
    monkeypatch.setattr(experiments, "_code", lambda _: type("Code", (), code))
    both = {one.name: one for one in (ONE, other)}
    monkeypatch.setattr(experiments, "experiments", lambda: both)
    monkeypatch.setattr(comparison, "experiments", lambda: both)
    with pytest.raises(RuntimeError, match=r"figure-2 failed with seed 1: KeyError.*are kept"):
        run(tmp_path)
    with pytest.raises(RuntimeError, match=r"1 of 2 failed.*: drfl/figure-2\."):
        command("--all", "--quick", "--out", str(tmp_path))
    saved = {path.name for path in (tmp_path / "reproduction").glob("*.json")}
    assert saved == {f"drfl-figure-{k}.json" for k in ("2", "2.quick", "3.quick")}
    assert (tmp_path / comparison.PAGE).is_file()


def test_an_interrupted_command_says_where_its_trials_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments, "reproduce", interrupted)
    monkeypatch.setattr(
        "sys.argv", ["bonafed", "reproduce", "drfl/figure-1", "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 128 + signal.SIGINT
    assert "finished trials are in" in capsys.readouterr().err


class Unread(io.StringIO):
    """An output whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_the_pages_are_written_though_nobody_reads_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given = ["drfl/figure-1", "--quick", "--trials", "1", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["bonafed", "reproduce", *given])
    monkeypatch.setattr("sys.stdout", Unread())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert (tmp_path / comparison.PAGE).is_file()


@pytest.mark.parametrize("more", [["--all"], ["drfl/figure-1"], ["--quick"], ["--seed", "2"]])
def test_the_list_takes_no_other_option(more: list[str]):
    with pytest.raises(ValueError, match="leave out NAME"):
        command("--list", *more)


def test_the_list_has_settings_times_and_programs_of_all():
    text = "\n".join(command("--list"))
    for name, one in ALL.items():
        assert f"{name}: {one.title}" in text
        assert one.program.strip().splitlines()[-1] in text
