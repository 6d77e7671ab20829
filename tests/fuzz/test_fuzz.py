"""A seeded sample of the fuzzers' cases, a sixth of it without --full.

`python -m tests.fuzz --cases 20000` runs many more.
"""

from __future__ import annotations

import pytest
from fuzz import cases, corpus
from fuzz.laws import judged

COUNTS = {
    "configuration": 200,
    "table": 200,
    "run folder": 150,
    "model": 150,
    "checkpoint": 250,
    "log": 150,
    "ledger": 250,
    "trace": 120,
    "data set": 30,
    "work folder": 4,
    "site file": 200,
    "audit log": 300,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return corpus.make(tmp_path_factory.mktemp("fuzz") / "corpus", ("plain", "clock", "private"))


@pytest.mark.parametrize("kind", COUNTS)
def test_every_file_is_taken_or_refused_in_words(
    kind, drawn_seed, made, tmp_path, monkeypatch, pytestconfig
):
    monkeypatch.chdir(tmp_path)
    names = set()
    for number in range(COUNTS[kind] if pytestconfig.option.full else -(-COUNTS[kind] // 6)):
        _, verdict = cases.case(made, tmp_path / str(number), drawn_seed, number, kind)
        assert not verdict.broken, (
            f"seed {drawn_seed}, case {number}: {verdict.name}: {verdict.text}"
        )
        names.add(verdict.name)
    assert "refused" in names or kind == "work folder"


def test_the_laws_tell_words_from_accidents():
    def endless() -> None:
        while True:
            pass

    def of_python() -> None:
        raise ValueError("not raised by bonafed")

    assert judged(lambda: {}["key"]).name == "traceback"
    assert judged(lambda: int("x")).name == "not in our words"
    assert judged(of_python).name == "not in our words"
    assert judged(lambda: "3 numbers changed").name == "changed number"
    assert judged(lambda: cases.command("predict", "nowhere", "none.csv")).name == "refused"
    assert judged(lambda: cases.command("nothing")).name == "refused"
    assert judged(lambda: None).name == "accepted"
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr("fuzz.laws.LIMIT", 0.05)
        assert judged(endless).name == "hang"
