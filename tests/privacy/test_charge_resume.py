"""A run that goes on is the same run: same answers, same cost, or it is refused."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from charged import Place, T, at, federation

from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.engines.checkpoint import Checkpoint, CheckpointError, describe, load
from bonafed.engines.inprocess import InProcess
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.rounds import Stop


@pytest.mark.parametrize("noise", ["simulation", "secure"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("book", ["book.json", None])
def test_a_run_that_goes_on_is_the_same_run_at_the_same_cost(
    tmp_path, noise, mechanism, book, monkeypatch
):
    monkeypatch.setattr(noisy_gradient.os, "urandom", lambda n: bytes(k % 251 for k in range(n)))
    found = []
    for name, ends in (("one", []), ("many", [1, 2, 4])):
        (tmp_path / name).mkdir()
        place, resume = Place(tmp_path / name, book=book), False
        for end in ends:
            options = {"noise": noise, "mechanism": mechanism, "clip": 1.0}
            part = place.solve(watch=at(end), resume=resume, **options)
            assert part.outcome.stop is Stop.INTERRUPTED
            assert {r.count for own in part.ledger.releases.values() for r in own} == {end}
            if book:
                assert place.counts() == [end]
            resume = True
        found.append(place.solve(resume=resume, noise=noise, mechanism=mechanism, clip=1.0))
        if book:
            assert place.counts() == [T]
            assert [run["state"] for run in place.runs] == ["ended"]
    one, many = found
    assert one.w.tobytes() == many.w.tobytes()
    assert np.asarray(one.copies).tobytes() == np.asarray(many.copies).tobytes()
    assert one.ledger.releases == many.ledger.releases
    assert 0.99 <= many.ledger.epsilon <= 1.0


def test_secure_noise_comes_from_the_checkpoint_and_is_drawn_once(place, monkeypatch):
    drawn = []
    real = noisy_gradient.os.urandom
    monkeypatch.setattr(noisy_gradient.os, "urandom", lambda n: drawn.append(n) or real(n))
    place.solve(watch=at(2), noise="secure")
    assert sum(drawn) == 3 * 32
    place.solve(resume=True, noise="secure")
    assert sum(drawn) == 3 * 32


def test_an_old_checkpoint_gives_the_old_answers_and_strikes_nothing_out(place):
    def copied(one, other):
        for ending in ("", ".clients"):
            shutil.copy(place.folder / f"{one}{ending}", place.folder / f"{other}{ending}")

    def copy(row, state):
        if row["round"] == 3:  # round 2 is in the file
            copied("run", "old")
        if row["round"] == 4:
            raise KeyboardInterrupt

    seen = {}
    place.solve(watch=copy, noise="secure")
    assert place.counts() == [4]
    later = place.solve(resume=True, noise="secure")
    copied("old", "run")
    part = place.solve(resume=True, noise="secure", watch=at(3))
    assert part.rounds == 3
    assert place.counts() == [T]  # what was released stays charged
    assert {r.count for own in part.ledger.releases.values() for r in own} == {T}
    copied("old", "run")
    again = place.solve(
        resume=True, noise="secure", watch=lambda row, state: seen.setdefault(row["round"], state.w)
    )
    assert sorted(seen) == [3, 4, 5]
    assert again.w.tobytes() == later.w.tobytes()


@pytest.mark.parametrize("book", ["book.json", None])
def test_answers_given_again_must_be_equal_to_the_bit(tmp_path, book, untouched):
    place = Place(tmp_path, book=book)
    place.solve(watch=at(2))
    before = place.runs if book else None
    untouched()
    for other in (InProcess(mode="each"), InProcess(block_size=1)):
        with pytest.raises(CheckpointError, match="engine"):
            place.solve(resume=True, engine=other)
    if book:
        assert place.runs == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_rounds": T + 1}, "begun with 5 rounds of gaussian noise, got 6"),
        ({"max_rounds": T - 1}, "begun with 5 rounds of gaussian noise, got 4"),
        ({"mechanism": "laplace", "clip": 1.0}, "of laplace"),
        ({"clip": 7.0}, "checkpoint"),
        ({"epsilon": 4.0}, "checkpoint"),
        ({"epsilon": 0.5}, "would bring client a to epsilon = 1"),
        ({"seed": 1}, "seed"),
        ({"noise": "secure"}, "checkpoint"),
        ({"fed": federation(1)}, "data of"),
        ({"fed": federation(0, "abd")}, "other clients"),
    ],
)
def test_going_on_with_something_else_is_refused_and_costs_nothing(place, untouched, options, told):
    place.solve(watch=at(2))
    before = place.runs
    untouched()
    with pytest.raises((CheckpointError, BudgetSpentError), match=told):
        place.solve(resume=True, **options)
    assert place.runs == before


def test_without_a_book_a_run_goes_on_only_as_it_was_begun(tmp_path, untouched):
    place = Place(tmp_path, book=None)
    place.solve(watch=at(2))
    untouched()
    for options in (
        {"max_rounds": T + 1},
        {"epsilon": 4.0},
        {"clip": 7.0},
        {"mechanism": "laplace", "clip": 1.0},
    ):
        with pytest.raises(CheckpointError, match="checkpoint is of"):
            place.solve(resume=True, **options)


@pytest.mark.parametrize("lost", ["run.account", "run", "run.clients", "book.json", "both books"])
def test_what_is_needed_to_go_on_and_missing_is_asked_for(place, untouched, lost):
    place.solve(watch=at(2))
    files = ["book.json", "book.json.lock"] if lost == "both books" else [lost]
    for name in files:
        (place.folder / name).rename(place.folder / f"{name}.gone")
    untouched()
    with pytest.raises((CheckpointError, ValueError), match=r"missing|no checkpoint|[Rr]estore"):
        place.solve(resume=True)
    for name in files:
        (place.folder / f"{name}.gone").replace(place.folder / name)
    assert place.counts() == [2]


def test_an_account_of_another_run_does_not_open_a_checkpoint(place):
    """Died between the note of a new run and its first checkpoint: the checkpoint beside is of the
    run before.
    """
    place.solve(watch=at(2), epsilon=0.5)
    old = (place.folder / "run").read_bytes()
    place.solve(watch=at(1))
    (place.folder / "run").write_bytes(old)
    with pytest.raises(CheckpointError, match="checkpoint is of"):
        place.solve(resume=True)
    with pytest.raises((CheckpointError, BudgetSpentError)):
        place.solve(resume=True, epsilon=0.5)


def test_going_on_without_a_checkpoint_opens_no_account(place, untouched):
    untouched()
    with pytest.raises(ValueError, match="needs a checkpoint"):
        place.solve(checkpoint=None, resume=True)
    with pytest.raises(FileNotFoundError, match="create it first"):
        place.solve(checkpoint="nowhere/run")
    assert not (place.folder / "book.json").exists()


def test_a_refused_attempt_undoes_nothing_of_another_process_that_went_on_meanwhile(
    place, monkeypatch
):
    place.solve(watch=at(2))
    real, done = InProcess.run, []

    def run(self, *given, **options):
        if not done:
            done.append(1)
            place.solve(resume=True)
        return real(self, *given, **options)

    monkeypatch.setattr(InProcess, "run", run)
    with pytest.raises(CheckpointError, match="seed"):
        place.solve(resume=True, seed=1)
    assert place.counts() == [T]


def test_an_error_of_checkpoints_after_a_round_is_no_refusal(place):
    place.solve(watch=at(1))
    with pytest.raises(CheckpointError, match="in round 3"):
        place.solve(resume=True, watch=at(3, CheckpointError))
    assert place.counts() == [4]


@pytest.mark.parametrize("most", [3.0, np.int64(3), np.float64(3)])
def test_a_number_of_rounds_of_any_type_is_written_as_one_number(place, most):
    place.solve(max_rounds=most, watch=at(2))
    assert place.counts() == [2]
    assert place.solve(max_rounds=3, resume=True).rounds == 3
    assert place.counts() == [3]


def constant(value: float, t: int) -> float:
    return value


@pytest.mark.parametrize("book", ["book.json", None])
@pytest.mark.parametrize("setting", ["rho", "eta"])
@pytest.mark.parametrize(
    "make", [lambda c: functools.partial(constant, c), lambda c: lambda t: c if t >= T else 1.0]
)
def test_functions_of_the_round_are_known_by_what_they_give(
    tmp_path, setting, make, book, untouched
):
    """The next question follows from them: another one with the same noise would tell what the
    noise hides.
    """
    place, more = Place(tmp_path, book=book), {"update": "prox"} if setting == "eta" else {}
    place.solve(watch=at(2), **more, **{setting: make(1.0)})
    place.solve(watch=at(3), resume=True, **more, **{setting: make(1.0)})
    before = place.runs if book else None
    untouched()
    with pytest.raises(CheckpointError, match=r"the checkpoint is of .*(schedules|constant, )"):
        place.solve(resume=True, **more, **{setting: make(1 + 1e-9)})
    assert before is None or place.runs == before


def test_a_function_that_fails_in_a_later_round_is_refused_before_anything_is_charged(
    place, untouched
):
    untouched()
    with pytest.raises(ValueError, match="got nan in round 6"):
        place.solve(rho=lambda t: 1.0 if t <= T else np.nan)
    assert not (place.folder / "book.json").exists()


def test_partial_functions_are_described_by_what_is_in_them_and_paths_are_all_alike():
    assert describe(functools.partial(constant, 1.0)) != describe(functools.partial(constant, 2.0))
    assert describe(Path("a") / "b") == describe(Path("/c")) != describe("a path")
    assert describe(Budget(1.0, 1e-5, book="a")) == describe(Budget(1.0, 1e-5, book="/c/b"))
    assert describe(Budget(1.0, 1e-5, book="a")) != describe(Budget(1.0, 1e-5))


def test_where_the_ledger_file_lies_is_no_part_of_a_run(place, tmp_path, monkeypatch):
    whole = place.solve(checkpoint="whole")
    for file in ("book.json", "book.json.lock"):
        (place.folder / file).unlink()
    place.solve(watch=at(2))
    part = load(place.folder / "run", Checkpoint)
    assert str(tmp_path) not in part.algorithm
    assert "book=a path" in part.algorithm
    (tmp_path / "new").mkdir()
    for name in ("book.json", "book.json.lock", "run", "run.clients", "run.account"):
        (place.folder / name).rename(tmp_path / "new" / name)
    monkeypatch.chdir(tmp_path / "new")
    moved = replace(place, folder=Path())
    assert moved.solve(resume=True).w.tobytes() == whole.w.tobytes()
    assert moved.counts() == [T]
    with pytest.raises(CheckpointError, match="checkpoint is of"):
        replace(moved, book=None).solve(resume=True)
