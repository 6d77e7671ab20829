"""The log in words, which have to be honest about who reads a site's numbers."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import bonafed.algorithms
import bonafed.certificates
import bonafed.papers
import bonafed.problem
import bonafed.sites.judging
from bonafed.codec import FIELDS
from bonafed.engines.run_record import Content
from bonafed.engines.secure_summed import Sealed
from bonafed.problem.metadata import Introduced
from bonafed.rounds import marks
from bonafed.runs import border
from bonafed.sites.audit import Entry
from bonafed.sites.words import in_words

AT = "2026-11-23T10:04:11.123Z"
COMBINED = {"sum", "max", "each"}


def answers() -> dict[str, tuple[str, ...]]:
    """Every class of answers in bonafed, with its fields: an engine combines all of these."""
    for package in (bonafed.algorithms, bonafed.papers, bonafed.certificates, bonafed.problem):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    return {
        cls.__name__: tuple(name for name, _ in marks(cls))
        for cls in FIELDS
        if cls.__module__.startswith("bonafed.") and {how for _, how in marks(cls)} <= COMBINED
    }


def test_every_field_of_every_answer_is_in_words() -> None:
    fields = {(cls, name) for cls, names in answers().items() for name in names}
    fields -= {("Survey", "prior")}  # a question
    assert len(fields) > 80
    said = border.fields("answers")
    unsaid = {f"{c}.{n}" for c, n in fields if f"{c}.{n}" not in said and n not in said}
    assert not unsaid, "say in runs/words.toml what these hold"
    known = {f"{cls}.{name}" for cls, name in fields} | {name for _, name in fields}
    known |= {f"Introduced.{name}" for name in FIELDS[Introduced]}  # told before a run
    known |= {f"Sealed.{name}" for name in FIELDS[Sealed]}  # of a secure sum
    assert not (gone := {*said} - known), gone


def message(way: str, masked: bool = False, **fields: Content) -> str:
    kind = "Evaluated" if way == "out" else "Evaluate"
    entry = Entry(7, AT, "message", way, "alliance", kind, "f3", 4, 1234, masked, fields)
    return in_words(entry)


def test_a_question_in_words() -> None:
    said = message("in", w=Content(31, 0, "all"), weights=Content(1, 0, "each"))
    assert said == (
        "2026-11-23 10:04:11 UTC  received from server alliance: model (31 numbers), the same for"
        " all sites; weights of the sites (1 number), for this site only (Evaluate, message 4,"
        " experiment f3, 1,234 bytes)"
    )


def test_a_server_without_a_name_is_called_so_once() -> None:
    entry = Entry(7, AT, "message", "in", "server", "Evaluate", fields={"w": Content(3, 0, "all")})
    assert "received from the server: model (3 numbers)" in in_words(entry)


def test_what_the_server_reads_of_this_site_is_said() -> None:
    said = message("out", gradient=Content(31, 0, "each"), level=Content(1, 0, "each"))
    assert said.startswith("2026-11-23 10:04:11 UTC  sent to server alliance: ")
    assert (
        "gradient of the risk (31 numbers), transport multiplier (1 number), which the server reads"
        " as this site's numbers (Evaluated, message 4, experiment f3, 1,234 bytes)"
    ) in said


@pytest.mark.parametrize("how", ["sum", "max"])
def test_numbers_that_are_not_masked_are_never_said_to_be_added_up_before_they_are_read(
    how: str,
) -> None:
    said = message("out", gradient=Content(31, 0, how))
    assert "this version sends them to the server unmasked" in said
    assert "before anybody reads them" not in said
    masked = message("out", masked=True, gradient=Content(31, 0, how))
    assert "unmasked" not in masked
    assert "the algorithm uses only" in said
    expected = "added up with those of the other sites before anybody reads them"
    assert (expected in masked) == (how == "sum")


def test_masks_say_nothing_of_what_each_site_sends() -> None:
    said = message("out", masked=True, risk=Content(1, 0, "each"), level=Content(1, 0, "sum"))
    assert "risk (1 number), which the server reads as this site's numbers" in said


def test_refusals_and_what_is_no_message_in_words() -> None:
    refused = Entry(3, AT, "message", "in", "m", "Dump", size=9, refused=(("rows", "rows: few."),))
    assert in_words(refused) == (
        "2026-11-23 10:04:11 UTC  received from server m: no numbers (Dump, 9 bytes). Refused by"
        " rows: few."
    )
    answer = Entry(4, AT, "message", "out", "m", "Refused", refused=(("rows", "rows: few."),))
    assert "sent to server m: a refusal (Refused, 0 bytes). Refused by rows" in in_words(answer)
    assert in_words(Entry(1, AT, "begun", text="north")).endswith("the log of site north begins")
    assert in_words(Entry(2, AT, "note", text="policy 0a")).endswith("UTC  note: policy 0a")
    assert "after a crash: 9 bytes" in in_words(Entry(2, AT, "torn", text="9 bytes"))
    assert "(unreadable, 5 bytes)" in in_words(Entry(2, AT, "message", "in", "m", size=5))


def test_fields_that_nobody_has_words_for_keep_their_name_and_texts_are_counted() -> None:
    said = message("out", my_field=Content(0, 2, "all"))
    assert "my field (2 texts), which the server reads as this site's numbers" in said
    assert "my field (1 number, 1 text), other" in message("in", my_field=Content(1, 1, "other"))


def test_names_that_others_chose_stay_on_one_line() -> None:
    hostile = "\x1b[31m\nx\u202e"
    entry = Entry(2, AT, "message", "in", hostile, hostile, hostile, refused=((hostile, hostile),))
    assert in_words(entry).isprintable()
