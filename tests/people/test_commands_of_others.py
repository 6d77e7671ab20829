"""Commands as other tools call them are answered by the one that is meant."""

from __future__ import annotations

import sys

import pytest
from met import met

from bonafed import cli

TRAIN = "bonafed train study.toml"
PLAIN = "\"No such command 'X'. (see bonafed --help)\""


def asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    """The status, and what is said on standard error, or else printed."""
    monkeypatch.setattr(sys, "argv", ["bonafed", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    told = capsys.readouterr()
    return int(left.value.code or 0), told.err or told.out


@met("F", TRAIN, PLAIN, "it asks whether `bonafed run` is meant, and says what that does")
@met("F", "bonafed fit, evaluate", PLAIN, "the same", TRAIN)
@met("F", "bonafed Check, infer, setup", PLAIN, "`verify`, `predict` and `init` are named", TRAIN)
@met("F", "bonafed study.toml", PLAIN, "`bonafed run` is named", TRAIN)
@met(
    "F",
    "bonafed verfy, a slip",
    "right before: \"Did you mean 'verify'?\"",
    "`bonafed verify` is named",
    TRAIN,
)
@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("train", "run"),
        ("fit", "run"),
        ("evaluate", "run"),
        ("Check", "verify"),
        ("infer", "predict"),
        ("setup", "init"),
        ("datasets", "data"),
        ("diff", "compare"),
        ("verfy", "verify"),
        ("study.toml", "run"),
        ("rows.csv", "init"),
        ("log", "site"),
        ("export", "engine"),
    ],
)
def test_the_command_that_is_meant_is_named(
    said: str, meant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = asked(monkeypatch, capsys, said, "more")
    assert status == 2
    assert told.startswith(
        f"bonafed: there is no command {said!r}; did you mean `bonafed {meant}`?"
    )
    assert len(told.splitlines()) == 1


@met("F", "bonafed frobnicate", PLAIN, "all commands are named", TRAIN)
def test_a_word_that_nobody_means_is_answered_by_all_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = asked(monkeypatch, capsys, "frobnicate")
    assert status == 2
    assert told.rstrip().endswith(
        "commands: init, data, reproduce, run, predict, report, verify, compare, site, engine"
    )


def test_what_is_called_as_it_is_called_is_as_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, capsys, "--version")[1].startswith("bonafed ")
    assert "--nothing" in asked(monkeypatch, capsys, "--nothing")[1]
    known = {name for command in cli.MEANT for name in cli.MEANT[command]}
    assert not known & {*cli.MEANT}
