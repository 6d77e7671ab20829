"""Runs within a budget: whatever ends them, the book never says less than what was released."""

from __future__ import annotations

from dataclasses import replace

import pytest
from charged import DELTA, FED, Killed, Place, T, at, federation, forgotten
from problems import PLAIN

import bonafed as bf
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.engines.engine import ClientError
from bonafed.engines.inprocess import InProcess
from bonafed.privacy.accounting import Release, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError


def test_one_book_under_two_names_is_one_book(place):
    (place.folder / "link.json").symlink_to(place.folder / "book.json")
    replace(place, book="link.json").solve()  # before the book itself is there
    for name in ("book.json", "link.json"):
        with pytest.raises(BudgetSpentError):
            replace(place, book=name).solve()
    assert (place.folder / "link.json").is_symlink()
    (place.folder / "hard.json").hardlink_to(place.folder / "book.json")
    for name in ("book.json", "hard.json"):
        with pytest.raises(ValueError, match="remove one of the names"):
            replace(place, book=name).solve(epsilon=9.0)
    (place.folder / "hard.json").unlink()
    assert place.counts() == [T]


@pytest.mark.parametrize("first", ["add-remove", "replace"])
def test_runs_of_both_adjacencies_in_one_book_count_in_each_as_what_they_are(place, first):
    """Noise is over the sensitivity; of a record replaced that is twice that of one more or
    less.
    """
    second = {"add-remove": "replace", "replace": "add-remove"}[first]
    one = place.solve(checkpoint=None, adjacency=first, epsilon=0.5).ledger.releases["a"][0]
    two = place.solve(checkpoint=None, adjacency=second, epsilon=1.5)
    times = 0.5 if second == "replace" else 2.0
    own = two.ledger.releases["a"]
    assert two.ledger.before["a"] == (replace(one, noise=times * one.noise),)
    assert two.ledger.epsilon == total_epsilon(
        (Release("gaussian", times * one.noise, T), *own), DELTA
    )
    assert 1.48 <= two.ledger.epsilon <= 1.5
    place.solve(adjacency=second, epsilon=9.0, watch=at(1))
    before = place.runs
    with pytest.raises(ValueError, match=f'begun with adjacency="{second}", got "{first}"'):
        place.solve(adjacency=first, epsilon=90.0, resume=True)
    assert place.runs == before


def test_a_repeated_run_costs_again_and_is_refused_before_data_are_touched(place, untouched):
    place.solve()
    before = place.runs
    untouched()
    for options in (
        {},
        {"checkpoint": None},
        {"noise": "secure"},
        {"mechanism": "laplace", "clip": 1.0},
    ):
        with pytest.raises(BudgetSpentError, match="is spent"):
            place.solve(**options)
    assert place.runs == before


def test_a_second_run_has_what_the_first_left_and_other_noise(place, monkeypatch):
    keys = []
    real = noisy_gradient._key
    monkeypatch.setattr(noisy_gradient, "_key", lambda *a: keys.append(real(*a)) or keys[-1])
    first = place.solve(checkpoint=None, watch=at(1))
    second = place.solve(checkpoint=None)
    assert first.ledger.epsilon < second.ledger.epsilon <= 1.0
    assert second.ledger.epsilon >= 0.99
    assert second.ledger.before["a"] == first.ledger.releases["a"]
    assert len(set(keys)) == len(keys) > 1


def test_a_second_run_goes_on_with_the_noise_it_was_begun_with(tmp_path):
    """Also where an earlier one was settled for less in the meantime, so that less noise would do
    now.
    """
    found = []
    for name, stop in (("whole", False), ("parts", True)):
        (tmp_path / name).mkdir()
        place = Place(tmp_path / name)
        place.solve(checkpoint="first", watch=at(2))
        if stop:
            place.solve(watch=at(3))
            forgotten(place)
        found.append(place.solve(resume=stop))
    whole, parts = found
    assert whole.w.tobytes() == parts.w.tobytes()
    assert whole.ledger.releases == parts.ledger.releases
    assert parts.ledger.epsilon < whole.ledger.epsilon <= 1.0


@pytest.mark.parametrize("settings_equal", [True, False])
def test_equal_runs_of_one_book_never_share_noise(place, monkeypatch, settings_equal):
    """Even where the plan comes out the same, because nothing was released before."""
    keys = []
    real = noisy_gradient._key
    monkeypatch.setattr(noisy_gradient, "_key", lambda *a: keys.append(real(*a)) or keys[-1])
    place.solve(checkpoint=None, epsilon=1.0, max_rounds=1)
    forgotten(place)
    place.solve(checkpoint=None, epsilon=1.0, max_rounds=1 if settings_equal else 2)
    assert len(set(keys)) == len(keys) > 1


@pytest.mark.parametrize("end", [1, 3])
def test_a_run_that_fails_is_charged_one_round_more_than_it_finished(place, end):
    with pytest.raises(RuntimeError, match="in round"):
        place.solve(watch=at(end, RuntimeError))
    assert place.counts() == [end + 1]
    done = place.solve(resume=True)
    assert place.counts() == [T]
    assert done.ledger.epsilon <= 1.0


def test_a_client_that_fails_at_once_is_charged_one_round(place, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(PrivateADMM, "perturb", lambda *_: 1 / 0)
        with pytest.raises(ClientError, match="ZeroDivisionError"):
            place.solve()
        assert place.counts() == [1]
        with pytest.raises(ClientError):
            place.solve(resume=True)
        assert place.counts() == [2]
    assert place.solve(resume=True).rounds == T
    assert place.counts() == [T]


@pytest.mark.parametrize("end", [1, 3])
def test_a_run_that_dies_stays_charged_and_goes_on_for_nothing(place, end, untouched):
    with pytest.raises(Killed):
        place.solve(watch=at(end, Killed))
    assert place.counts() == [T]
    assert [run["state"] for run in place.runs] == ["open"]
    part = place.solve(resume=True, watch=at(end + 1))
    assert place.counts() == [T]  # how far the dead process came is unknown
    assert {r.count for own in part.ledger.releases.values() for r in own} == {T}
    place.solve(resume=True)
    assert place.counts() == [T]
    untouched()
    with pytest.raises(BudgetSpentError):
        place.solve()


def test_a_run_cannot_go_on_when_another_has_spent_what_it_left(place, untouched):
    place.solve(watch=at(2))
    place.solve(checkpoint="other")
    before = place.runs
    untouched()
    with pytest.raises(BudgetSpentError, match="would bring client a"):
        place.solve(resume=True)
    assert place.runs == before


def test_runs_that_go_on_at_the_same_time_are_charged_in_full(place, untouched):
    """While one goes on, the other sees all that it may still release."""
    place.solve(watch=at(1))
    refused = []

    def other(row, state):
        if row["round"] == 3:
            assert place.counts() == [T]
            with pytest.raises(BudgetSpentError):
                place.solve(checkpoint=None)
            refused.append(1)

    place.solve(resume=True, watch=other)
    assert refused == [1]


def test_a_larger_budget_counts_what_was_spent_under_the_smaller(place):
    place.solve(epsilon=0.5)
    found = place.solve(epsilon=1.5, checkpoint="other")
    assert 1.48 <= found.ledger.epsilon <= 1.5
    with pytest.raises(BudgetSpentError):
        place.solve(epsilon=1.0)
    row = found.ledger.table()[0]
    assert row["before"] == pytest.approx(0.5, rel=0.01)
    assert row["left"] == pytest.approx(0.0, abs=0.02)


def test_clients_with_different_pasts_all_stay_within_the_budget(place):
    place.solve(fed=federation(0, "ab"), checkpoint=None, watch=at(3))
    place.solve(
        fed=federation(0, "bc"),
        checkpoint=None,
        mechanism="laplace",
        clip=1.0,
        watch=at(1),
        epsilon=1.5,
    )
    last = place.solve(checkpoint=None, epsilon=2.0)
    spent = {client: last.ledger.spent(client) for client in "abc"}
    assert max(spent.values()) == spent["b"] <= 2.0
    assert spent["b"] >= 1.98
    assert min(spent["a"], spent["c"]) > 0.5


def test_a_book_that_breaks_during_a_run_is_left_alone_and_the_model_is_kept(place):
    def breaks(row, state):
        if row["round"] == 2:
            (place.folder / "book.json").write_text("{")

    with pytest.warns(RuntimeWarning, match="could not be settled"):
        found = place.solve(watch=breaks)
    assert found.rounds == T
    assert (place.folder / "book.json").read_text() == "{"
    with pytest.raises(ValueError, match="not a ledger of spent budgets"):
        place.solve()


def test_a_client_never_answers_more_often_than_was_paid_for(place, tmp_path):
    """A server that asks on is refused by the client's own memory."""
    problem = bf.Problem(bf.Logistic(), PLAIN, privacy=Budget(1.0, DELTA))
    algorithm = replace(PrivateADMM(max_rounds=2), problem=problem).planned(problem, FED)
    greedy = replace(algorithm, max_rounds=9)  # the plan still pays for 2
    with pytest.raises(ClientError, match="another one would overspend") as error:
        InProcess(checkpoint=tmp_path / "greedy").run(greedy, FED)
    assert error.value.round == 3
    with pytest.raises(ClientError, match="another one would overspend"):
        InProcess(checkpoint=tmp_path / "greedy").run(greedy, FED, resume=True)
