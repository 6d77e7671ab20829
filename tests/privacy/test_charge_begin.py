"""A run that dies before or in its first round: what was charged stands, and nothing is released
twice for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from charged import Killed, Place, T, at

from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.engines import checkpoint
from bonafed.engines.checkpoint import CheckpointError
from bonafed.engines.inprocess import InProcess
from bonafed.privacy.budget import BudgetSpentError
from bonafed.privacy.ledger import Book
from bonafed.solution import privacy_account as charge

FIRST = 7  # writings until clients may answer: note, book, note, keys, checkpoint, book, note


class Machine:
    """Counts what is written for good, dies before or after one writing, and keeps every answer
    that was given.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.written, self.dies = 0, (0, "before")
        self.answers: dict[tuple[str, int], set[bytes]] = {}
        for owner, name in ((charge.Note, "write"), (Book, "_write"), (checkpoint, "save")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))
        real = PrivateADMM.perturb

        def perturb(algorithm: Any, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            memory, up = real(algorithm, memory, ask, data, rng)
            for client, z in zip(data.names, memory.z, strict=True):
                self.answers.setdefault((client, ask.round), set()).add(z.tobytes())
            return memory, up

        patch.setattr(PrivateADMM, "perturb", perturb)

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*given: Any, **more: Any) -> Any:
            self.written += 1
            if (self.written, "before") == self.dies:
                raise Killed
            found = real(*given, **more)
            if (self.written, "after") == self.dies:
                raise Killed
            return found

        return write


@pytest.mark.parametrize("noise", ["secure", "simulation"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("k", range(1, FIRST + 4))
@pytest.mark.parametrize("every", [1, 3])
def test_wherever_a_run_dies_it_goes_on_for_the_same_charge(
    place, monkeypatch, k, when, noise, every
):
    """No question gets two answers, which would be two releases for one charge."""
    machine = Machine(monkeypatch)
    machine.dies = k, when
    engine = InProcess(every=every)
    with pytest.raises(Killed):
        place.solve(noise=noise, engine=engine)
    assert (not machine.answers) == (k <= FIRST)
    began = charge.was_begun(place.folder / "run")
    assert began == ((k, when) != (1, "before"))
    found = place.solve(resume=began, noise=noise, engine=engine)
    assert found.rounds == T
    assert place.counts() == [T]
    assert found.ledger.epsilon <= 1.0
    assert len(machine.answers) == 3 * T
    assert all(len(answers) == 1 for answers in machine.answers.values())


def test_the_writings_are_in_that_order(place, monkeypatch):
    states = []
    real = PrivateADMM.perturb

    def perturb(*given: Any) -> Any:
        states.append((place.runs[0]["state"], (place.folder / "run").is_file()))
        return real(*given)

    monkeypatch.setattr(PrivateADMM, "perturb", perturb)
    machine = Machine(monkeypatch)
    place.solve(watch=at(1))
    assert states == 3 * [("open", True)]  # of each client
    assert machine.written == FIRST + 4  # round 1 in both files, what it came to in book and note


def test_a_run_that_never_began_has_other_keys_when_it_goes_on(place, monkeypatch):
    """Those of the first attempt have noised nothing; were they lost with it, nothing was told."""
    machine = Machine(monkeypatch)
    machine.dies = 6, "before"  # the keys are in their file, and the book does not say so yet
    with pytest.raises(Killed):
        place.solve(noise="secure")
    first = (place.folder / "run.clients").read_bytes()
    assert [run["state"] for run in place.runs] == ["charged"]
    place.solve(noise="secure", resume=True, watch=at(1))
    assert (place.folder / "run.clients").read_bytes() != first
    assert place.counts() == [1]


def test_two_who_begin_the_same_run_are_not_both_let_on(place, monkeypatch):
    machine = Machine(monkeypatch)
    machine.dies = 4, "before"
    with pytest.raises(Killed):
        place.solve(noise="secure")
    real, other = Book.begin_run, []

    def begin(book: Any, name: str, keep: Any) -> None:
        if not other:
            other.append(1)
            place.solve(noise="secure", resume=True)
        real(book, name, keep)

    monkeypatch.setattr(Book, "begin_run", begin)
    with pytest.raises(ValueError, match="begun by another process"):
        place.solve(noise="secure", resume=True)
    assert place.counts() == [T]
    assert all(len(answers) == 1 for answers in machine.answers.values())


def test_a_checkpoint_that_was_there_and_is_gone_is_asked_for(place, untouched):
    place.solve(watch=at(1))
    (place.folder / "run").unlink()
    untouched()
    with pytest.raises(
        CheckpointError,
        match=r"run\.account says that its run was begun: what it may have released",
    ):
        place.solve(resume=True)
    assert place.counts() == [1]


def test_a_run_that_fails_before_it_begins_costs_nothing_and_leaves_the_note_that_was_there(
    place, monkeypatch
):
    place.solve(watch=at(2), epsilon=0.5)
    note = (place.folder / "run.account").read_text()
    with monkeypatch.context() as broken:
        broken.setattr(PrivateADMM, "client_start", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            place.solve()
    assert (place.folder / "run.account").read_text() == note
    assert place.counts() == [2, 0]
    with pytest.raises(BudgetSpentError):
        place.solve(epsilon=1e-3)
    assert (place.folder / "run.account").read_text() == note
    assert place.solve(resume=True, epsilon=0.5).rounds == T
    assert place.counts()[0] == T


@pytest.mark.parametrize("mode", ["blocks", "each", "bytes"])
def test_without_a_book_the_keys_are_kept_first_as_well(tmp_path, monkeypatch, mode):
    place, engine = Place(tmp_path, book=None), InProcess(mode, every=4)
    machine = Machine(monkeypatch)
    machine.dies = 3, "before"  # round 4, of which nothing is in the file
    with pytest.raises(Killed):
        place.solve(noise="secure", engine=engine)
    assert {round_ for _, round_ in machine.answers} == {1, 2, 3, 4}
    place.solve(noise="secure", engine=engine, resume=True)
    assert all(len(answers) == 1 for answers in machine.answers.values())


# -- books put back from a copy
# ---------------------------------------------------------------------------------------


def test_a_copy_with_as_many_runs_is_noticed(place, untouched):
    """The copy says that the run told of two rounds; meanwhile it has told of all."""
    place.solve(watch=at(2))
    shutil.copy(place.folder / "book.json", place.folder / "copy.json")
    place.solve(resume=True)
    newest = (place.folder / "book.json").read_bytes()
    shutil.copy(place.folder / "copy.json", place.folder / "book.json")
    untouched()
    for resume in (False, True):
        with pytest.raises(ValueError, match="is an older copy"):
            place.solve(epsilon=9.0, resume=resume)
    (place.folder / "book.json").write_bytes(newest)
    assert place.counts() == [T]


def test_book_and_lock_put_back_together_are_noticed_by_whoever_has_a_later_digest(
    place, untouched
):
    first = place.solve(watch=at(2))
    files = ["book.json", "book.json.lock"]
    for name in files:
        shutil.copy(place.folder / name, place.folder / f"{name}.copy")
    last = place.solve(resume=True, watch=at(3))
    book = Book(place.folder / "book.json")
    assert book.knows(first.ledger.book)
    assert book.knows(last.ledger.book)
    for name in files:
        shutil.copy(place.folder / f"{name}.copy", place.folder / name)
    assert book.knows(first.ledger.book)
    assert not book.knows(last.ledger.book)
    untouched()
    with pytest.raises(ValueError, match=r"book\.json is older than run\.account"):
        place.solve(resume=True)


def test_a_book_changed_by_hand_is_refused(place):
    place.solve(watch=at(2))
    text = (place.folder / "book.json").read_text()
    (place.folder / "book.json").write_text(text.replace('"ended"', '"open"'))
    with pytest.raises(ValueError, match="it was changed by hand"):
        place.solve(epsilon=9.0)
