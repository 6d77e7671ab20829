"""A site's log: one line a turn, short enough for a screen, with totals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from met import met

from bonafed.engines.run_record import Content
from bonafed.sites.audit import AuditLog, Entry
from bonafed.sites.words import WIDEST, in_words, totals, turn_in_words, turns

AT = "2026-11-23T10:04:11.123Z"
FIELDS = {"gradient": Content(31, 0, "each"), "curvature": Content(961, 0, "sum")}
LONG = "a server whose name somebody chose " * 5


def turn(way: str, kind: str, seq: int | None = 4, **facts: object) -> Entry:
    known = {"experiment": "f3", "seq": seq, "size": 1234, "who": "server"}
    return Entry(7, AT, "message", way, kind=kind, **{**known, **facts})  # type: ignore[arg-type]


def said(*entries: Entry) -> list[str]:
    lines = [turn_in_words(each) for each in turns(entries)]
    assert all(len(line) <= WIDEST == 120 for line in lines)
    return lines


@met(
    "F",
    "a turn in a site's log",
    "two lines, of 92 and 300 characters",
    "one line of at most 120 with totals; `--long` for the rest",
)
def test_a_turn_is_one_line_with_totals() -> None:
    asked, got = turn("in", "Evaluate"), turn("out", "Evaluated", fields=FIELDS)
    assert said(asked, got) == [
        "2026-11-23 10:04:11 UTC  the server asked Evaluate, got Evaluated: 992 numbers (961 only"
        " as sums), 1,234 bytes"
    ]
    assert len(in_words(got)) > WIDEST


@met(
    "F",
    "turns of two experiments that interleave",
    "a line for every message",
    "every answer stands with its question",
    relative_of="a turn in a site's log",
)
def test_answers_stand_with_their_own_questions() -> None:
    one, two = ({"experiment": name} for name in ("one", "two"))
    entries = [
        *(turn("in", "Evaluate", **one), turn("in", "Survey", **two)),
        *(turn("out", "Surveyed", **two), turn("out", "Evaluated", **one)),
    ]
    assert [[e.kind for e in each] for each in turns(entries)] == [
        ["Evaluate", "Evaluated"],
        ["Survey", "Surveyed"],
    ]


@met(
    "F",
    "a refusal, a question without an answer, and bytes that nobody can read",
    "lines of any length",
    "one short line each that names the rule",
    relative_of="a turn in a site's log",
)
def test_refusals_and_what_was_not_answered_are_lines_too() -> None:
    refused = turn(
        "out", "Refused", refused=(("minimum_rows", "minimum_rows: " + "few rows " * 40),)
    )
    assert "Evaluate, refused: minimum_rows: few" in said(turn("in", "Evaluate"), refused)[0]
    assert said(turn("in", "Evaluate"))[0].endswith("asked Evaluate, no answer left")
    odd = said(turn("in", "", None), turn("out", "Failed", None))
    assert odd[0].endswith("asked what nobody can read, got Failed: no numbers, 1,234 bytes")


@met(
    "F",
    "names of 200 characters that a server chose",
    "lines as long as the names",
    "at most 120 characters",
    relative_of="a turn in a site's log",
)
def test_names_that_others_chose_do_not_make_a_line_longer() -> None:
    said(
        turn("in", "K" * 200, who=LONG, refused=[("r" * 200, "t")]),
        turn("out", "K" * 200, who=LONG, fields=FIELDS, masked=True),
        Entry(2, AT, "note", text="n" * 2000),
        Entry(1, AT, "begun", text=LONG),
    )


@met(
    "F",
    "answers under a secure sum",
    "every field says in words that it is masked",
    "how many of the numbers are masked",
    relative_of="a turn in a site's log",
)
def test_totals_say_what_is_masked() -> None:
    both = [turn("out", "E", fields=FIELDS, masked=True), turn("out", "E", fields=FIELDS)]
    assert totals(both) == "1,984 numbers (1,922 only as sums, 961 masked), 2,468 bytes"
    assert totals([]) == "no numbers, 0 bytes"


def test_the_command_says_both_and_the_totals_of_all(
    bonafed: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl", "north")
    for seq in range(3):
        log.write("in", "server", "Evaluate", seq=seq, size=9)
        log.write("out", "server", "Evaluated", seq=seq, size=99, fields=FIELDS)
    assert bonafed("site", "log", log.path) == 0
    short = capsys.readouterr().out.splitlines()
    assert len(short) == 1 + 3 + 2
    assert max(map(len, short)) <= WIDEST
    assert short[-2].startswith("answers that left: 3 (0 refusals); in all 2,976 numbers (2,883")
    assert bonafed("site", "log", log.path, "--long") == 0
    long = capsys.readouterr().out
    assert len(long.splitlines()) == 1 + 6 + 2
    assert "gradient of the risk (31 numbers)" in long
