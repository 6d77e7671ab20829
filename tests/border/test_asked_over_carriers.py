"""A server that follows no algorithm is told the same over every carrier, byte by byte: in one
process, over FLARE and over Flower. So what holds of its questions in one process
(`test_rows_read`) holds over each. A process that begins anew obeys what earlier ones have kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from border.askers import ASKERS, attack
from border.carriers import FOREIGN
from border.readers import NAMES, made, world
from border.test_rows_read import SIZES

from bonafed.engines.wire import Stepped
from bonafed.rounds import decode

SITE, QUESTIONS = NAMES[0], 24
Tape = list[tuple[bytes, bytes]]  # questions and answers
Taped = Callable[[str], tuple[Path, Tape]]


@pytest.fixture(scope="module")
def taped(tmp_path_factory: pytest.TempPathFactory) -> Taped:
    """What passes between an asker and a site of this process, and its folder as it was before."""
    known: dict[str, tuple[Path, Tape]] = {}

    def tape_of(asker: str) -> tuple[Path, Tape]:
        if asker in known:
            return known[asker]
        place, tape = tmp_path_factory.mktemp("asked"), []
        it = world(place / "here", made(*SIZES.get(asker, (60, 3))[:2]))
        shutil.copytree(place / "here" / SITE, place / SITE)
        party = it.wire.sites[SITE]

        def answer(sender: str, data: bytes) -> bytes:
            tape.append((data, party.answer(sender, data)))
            return tape[-1][1]

        it.wire.sites = {SITE: SimpleNamespace(answer=answer)}
        assert attack(it, asker, questions=QUESTIONS) == set()
        return known.setdefault(asker, (place / SITE, tape))

    return tape_of


def kept(folder: Path) -> bytes:
    """The slopes of all answers that a site has given."""
    file = folder / "state" / "selections" / "answers"
    return file.read_bytes() if file.exists() else b""


@pytest.mark.parametrize("carrier", FOREIGN)
@pytest.mark.parametrize("asker", ASKERS)
def test_every_question_is_answered_as_in_one_process(
    asker: str, carrier: Any, taped: Taped, tmp_path: Path
):
    before, tape = taped(asker)
    folder, half = shutil.copytree(before, tmp_path / SITE), len(tape) // 2
    for part in (tape[:half], tape[half:]):
        with carrier(folder, SITE) as call:  # another process
            assert [call("alliance", asked) for asked, _ in part] == [told for _, told in part]
    known = kept(folder)
    with carrier(folder, SITE) as call:  # asked again, nothing else is told
        for asked, told in tape[::6]:
            again = call("alliance", asked)
            assert again == told or not isinstance(decode(again).body, Stepped)
    assert kept(folder) == known
