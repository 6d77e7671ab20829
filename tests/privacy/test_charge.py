"""Runs within a budget: whatever ends them, however they go on, the book never says less than what was released."""

from __future__ import annotations

import functools
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quorate as qr
from quorate import cli
from quorate.algorithms.federated import private_client
from quorate.algorithms.federated.private_admm import PrivateADMM
from quorate.engines.checkpoint import CheckpointError, describe
from quorate.engines.inprocess import ClientError, InProcess
from quorate.privacy.accounting import Release, total_epsilon
from quorate.privacy.book import Book
from quorate.privacy.budget import Budget, BudgetSpentError
from quorate.rounds import Stop

DELTA, T = 1e-5, 5


def federation(seed: int = 0, names: str = "abc") -> qr.Federation:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(6 + 3 * i, 3)) for i in range(len(names))]
    return qr.Federation(list(names), rows, [np.sign(X[:, 0] + 0.1) for X in rows])


FED = federation()


class Killed(BaseException):
    """A process that dies: nobody has time to settle anything."""


@dataclass
class Place:
    """A folder with a book, and how runs are made there."""

    folder: Path
    epsilon: float = 1.0
    engine: InProcess = field(default_factory=InProcess)
    book: str | None = "book.json"

    def solve(self, checkpoint: str | None = "run", resume: bool = False, watch: Any = (), fed: Any = FED, **options):
        own = self.folder / self.book if self.book else None
        epsilon = options.pop("epsilon", self.epsilon)
        budget = Budget(epsilon, DELTA, options.pop("adjacency", "add-remove"), book=own and str(own))
        problem = qr.Problem(qr.Logistic(), regulariser=qr.L2(0.1), privacy=budget)
        path = None if checkpoint is None else self.folder / checkpoint
        engine = replace(options.pop("engine", self.engine), checkpoint=path)
        seed = options.pop("seed", 0)
        algorithm = PrivateADMM(**{"max_rounds": T, "noise": "simulation"} | options)
        return qr.solve(
            problem, fed, algorithm=algorithm, engine=engine, seed=seed, resume=resume, watch=[watch] if watch else []
        )

    @property
    def runs(self) -> list[dict[str, Any]]:
        return Book(self.folder / "book.json").runs()

    def counts(self) -> list[int]:
        """Answers of client a that every run is charged for."""
        return [run["releases"]["a"][0][2] if run["releases"]["a"] else 0 for run in self.runs]


def at(round_: int, error: type[BaseException] = KeyboardInterrupt):
    def see(row: dict[str, Any], state: Any) -> None:
        if row["round"] == round_:
            raise error(f"in round {round_}")

    return see


def forgotten(place: Place) -> None:
    """The first run in the book as if it had told nothing."""
    book = Book(place.folder / "book.json")
    first, *others = book.runs()
    book._write([first | {"releases": {client: [] for client in first["releases"]}}, *others])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch):
    """From the call on, every function of a client fails."""

    def now() -> None:
        def touched(*_: object) -> None:
            raise AssertionError("the data were touched")

        for name in ("client_start", "perturb"):
            monkeypatch.setattr(PrivateADMM, name, touched)
        monkeypatch.setattr(private_client, "perturb", touched)

    return now


# -- a run that goes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["simulation", "secure"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("book", ["book.json", None])
def test_a_run_that_goes_on_is_the_same_run_at_the_same_cost(tmp_path, noise, mechanism, book, monkeypatch):
    monkeypatch.setattr(private_client.os, "urandom", lambda n: bytes(k % 251 for k in range(n)))
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
    real = private_client.os.urandom
    monkeypatch.setattr(private_client.os, "urandom", lambda n: drawn.append(n) or real(n))
    place.solve(watch=at(2), noise="secure")
    assert sum(drawn) == 3 * 32
    place.solve(resume=True, noise="secure")
    assert sum(drawn) == 3 * 32


def test_an_old_checkpoint_gives_the_old_answers_and_strikes_nothing_out(place):
    def copy(row, state):
        if row["round"] == 3:  # round 2 is in the file
            shutil.copy(place.folder / "run", place.folder / "old")
        if row["round"] == 4:
            raise KeyboardInterrupt

    seen = {}
    place.solve(watch=copy, noise="secure")
    assert place.counts() == [4]
    later = place.solve(resume=True, noise="secure")
    shutil.copy(place.folder / "old", place.folder / "run")
    part = place.solve(resume=True, noise="secure", watch=at(3))
    assert part.rounds == 3
    assert place.counts() == [T]  # what was released stays charged
    assert {r.count for own in part.ledger.releases.values() for r in own} == {T}
    shutil.copy(place.folder / "old", place.folder / "run")
    again = place.solve(resume=True, noise="secure", watch=lambda row, state: seen.setdefault(row["round"], state.w))
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
    for options in ({"max_rounds": T + 1}, {"epsilon": 4.0}, {"clip": 7.0}, {"mechanism": "laplace", "clip": 1.0}):
        with pytest.raises(CheckpointError, match="checkpoint is of"):
            place.solve(resume=True, **options)


@pytest.mark.parametrize("lost", ["run.account", "run", "book.json", "both books"])
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
    """Died between the note of a new run and its first checkpoint: the checkpoint beside is of the run before."""
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


def test_a_refused_attempt_undoes_nothing_of_another_process_that_went_on_meanwhile(place, monkeypatch):
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


def test_a_run_that_was_charged_but_has_no_checkpoint_is_told_so_and_keeps_its_note(place, monkeypatch, untouched):
    with monkeypatch.context() as dying:
        dying.setattr(InProcess, "run", lambda *_, **__: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            place.solve()
    assert place.counts() == [T]
    untouched()
    with pytest.raises(CheckpointError, match=r"run\.account says that its run was begun and charged"):
        place.solve(resume=True)
    assert (place.folder / "run.account").read_text() == place.runs[0]["id"]


@pytest.mark.parametrize(("file", "kept"), [("m.checkpoint.account", True), ("m.checkpoint", True), ("m", False)])
def test_the_command_keeps_the_note_of_what_was_charged(tmp_path, monkeypatch, file, kept):
    work = tmp_path / "m.partial"
    work.mkdir()
    (work / file).touch()

    def spent(*_: object) -> None:
        raise BudgetSpentError("spent")

    monkeypatch.setattr(cli, "_settings", lambda *_: (None, work))
    monkeypatch.setattr(cli, "_trained", spent)
    with pytest.raises(BudgetSpentError):
        cli.run(dry=False, resume=None)
    assert work.exists() is kept


def constant(value: float, t: int) -> float:
    return value


@pytest.mark.parametrize("book", ["book.json", None])
@pytest.mark.parametrize("setting", ["rho", "eta"])
@pytest.mark.parametrize("make", [lambda c: functools.partial(constant, c), lambda c: lambda t: c if t >= T else 1.0])
def test_functions_of_the_round_are_known_by_what_they_give(tmp_path, setting, make, book, untouched):
    """The next question follows from them: another one with the same noise would tell what the noise hides."""
    place, more = Place(tmp_path, book=book), {"update": "prox"} if setting == "eta" else {}
    place.solve(watch=at(2), **more, **{setting: make(1.0)})
    place.solve(watch=at(3), resume=True, **more, **{setting: make(1.0)})
    before = place.runs if book else None
    untouched()
    with pytest.raises(CheckpointError, match=r"the checkpoint is of .*(schedules|constant, )"):
        place.solve(resume=True, **more, **{setting: make(1 + 1e-9)})
    assert before is None or place.runs == before


def test_a_function_that_fails_in_a_later_round_is_refused_before_anything_is_charged(place, untouched):
    untouched()
    with pytest.raises(ValueError, match="got nan in round 6"):
        place.solve(rho=lambda t: 1.0 if t <= T else np.nan)
    assert not (place.folder / "book.json").exists()


def test_partial_functions_and_paths_are_described_by_what_is_in_them():
    assert describe(functools.partial(constant, 1.0)) != describe(functools.partial(constant, 2.0))
    assert describe(Path("a") / "b") != describe(Path("a") / "c")
    assert describe(Path("a")) == describe("a")


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
    """Noise is over the sensitivity; of a record replaced that is twice that of one more or less."""
    second = {"add-remove": "replace", "replace": "add-remove"}[first]
    one = place.solve(checkpoint=None, adjacency=first, epsilon=0.5).ledger.releases["a"][0]
    two = place.solve(checkpoint=None, adjacency=second, epsilon=1.5)
    times = 0.5 if second == "replace" else 2.0
    own = two.ledger.releases["a"]
    assert two.ledger.before["a"] == (replace(one, noise=times * one.noise),)
    assert two.ledger.epsilon == total_epsilon((Release("gaussian", times * one.noise, T), *own), DELTA)
    assert 1.48 <= two.ledger.epsilon <= 1.5
    place.solve(adjacency=second, epsilon=9.0, watch=at(1))
    before = place.runs
    with pytest.raises(ValueError, match=f'begun with adjacency="{second}", got "{first}"'):
        place.solve(adjacency=first, epsilon=90.0, resume=True)
    assert place.runs == before


# -- runs that end otherwise ------------------------------------------------------------------------------------------


def test_a_repeated_run_costs_again_and_is_refused_before_data_are_touched(place, untouched):
    place.solve()
    before = place.runs
    untouched()
    for options in ({}, {"checkpoint": None}, {"noise": "secure"}, {"mechanism": "laplace", "clip": 1.0}):
        with pytest.raises(BudgetSpentError, match="is spent"):
            place.solve(**options)
    assert place.runs == before


def test_a_second_run_has_what_the_first_left_and_other_noise(place, monkeypatch):
    keys = []
    real = private_client._keys
    monkeypatch.setattr(private_client, "_keys", lambda *a: keys.append(real(*a)) or keys[-1])
    first = place.solve(checkpoint=None, watch=at(1))
    second = place.solve(checkpoint=None)
    assert first.ledger.epsilon < second.ledger.epsilon <= 1.0
    assert second.ledger.epsilon >= 0.99
    assert second.ledger.before["a"] == first.ledger.releases["a"]
    flat = np.concatenate([np.ravel(key) for key in keys])
    assert len(np.unique(flat)) == len(flat)


def test_a_second_run_goes_on_with_the_noise_it_was_begun_with(tmp_path):
    """Also where an earlier one was settled for less in the meantime, so that less noise would do now."""
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
    real = private_client._keys
    monkeypatch.setattr(private_client, "_keys", lambda *a: keys.append(real(*a)) or keys[-1])
    place.solve(checkpoint=None, epsilon=1.0, max_rounds=1)
    forgotten(place)
    place.solve(checkpoint=None, epsilon=1.0, max_rounds=1 if settings_equal else 2)
    flat = np.concatenate([np.ravel(key) for key in keys])
    assert len(np.unique(flat)) == len(flat)


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
    place.solve(fed=federation(0, "bc"), checkpoint=None, mechanism="laplace", clip=1.0, watch=at(1), epsilon=1.5)
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
    with pytest.raises(ValueError, match="no book of spent budgets"):
        place.solve()


def test_a_client_never_answers_more_often_than_was_paid_for(place, tmp_path):
    """A server that asks on is refused by the client's own memory."""
    problem = qr.Problem(qr.Logistic(), privacy=Budget(1.0, DELTA))
    algorithm = replace(PrivateADMM(max_rounds=2), problem=problem).planned(problem, FED)
    greedy = replace(algorithm, max_rounds=9)  # the plan still pays for 2
    with pytest.raises(ClientError, match="another one would overspend") as error:
        InProcess(checkpoint=tmp_path / "greedy").run(greedy, FED)
    assert error.value.round == 3
    with pytest.raises(ClientError, match="another one would overspend"):
        InProcess(checkpoint=tmp_path / "greedy").run(greedy, FED, resume=True)


# -- any sequence -----------------------------------------------------------------------------------------------------

ends = st.sampled_from(["done", "done", "stop 1", "stop 3", "raise 2", "kill 1", "kill 4"])
step = st.one_of(
    st.tuples(st.just("new"), st.sampled_from(["x", "y", None]), ends, st.sampled_from([1.0, 1.0, 1.5]), st.booleans()),
    st.tuples(st.just("go on"), st.sampled_from(["x", "x", "y"]), ends, st.sampled_from(["last", "old"])),
)


@given(st.lists(step, min_size=2, max_size=7))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_sequence_of_runs_spends_more_than_the_book_says_or_the_budget_allows(tmp_path_factory, steps):
    place = Place(tmp_path_factory.mktemp("runs"))
    truth: dict[str, int] = {}  # run: rounds that were ever answered
    begun: dict[str | None, tuple[float, bool]] = {}

    def watch(end: str, name: str | None):
        def see(row: dict[str, Any], state: Any) -> None:
            note = place.folder / f"{name}.account"
            run = note.read_text() if name else place.runs[-1]["id"]
            truth[run] = max(truth.get(run, 0), row["round"])
            if name and row["round"] == 3:  # which holds round 2
                shutil.copy(place.folder / name, place.folder / f"{name}.old")
                shutil.copy(note, place.folder / f"{name}.old.account")
            kind, _, k = end.partition(" ")
            if k and row["round"] == int(k):
                raise {"stop": KeyboardInterrupt, "raise": RuntimeError, "kill": Killed}[kind]

        return see

    for kind, name, end, *rest in steps:
        try:
            if kind == "new":
                epsilon, secure = rest
                begun[name] = epsilon, secure
                options = {"checkpoint": name, "epsilon": epsilon, "noise": "secure" if secure else "simulation"}
            else:
                if rest == ["old"] and (place.folder / f"{name}.old").exists():
                    shutil.copy(place.folder / f"{name}.old", place.folder / name)
                    shutil.copy(place.folder / f"{name}.old.account", place.folder / f"{name}.account")
                epsilon, secure = begun.get(name, (1.0, False))
                options = {"checkpoint": name, "epsilon": epsilon, "noise": "secure" if secure else "simulation"}
                options["resume"] = True
            found = place.solve(watch=watch(end, name), **options)
            assert found.ledger.epsilon <= options["epsilon"] * (1 + 1e-9)
        except (Killed, RuntimeError, BudgetSpentError):  # CheckpointError is a RuntimeError
            pass
        if not (place.folder / "book.json").exists():
            assert not truth
            continue
        released: dict[str, list[Release]] = {client: [] for client in FED.clients}
        for run in place.runs:
            for client in FED.clients:
                (mechanism, noise, most) = run["planned"][client][0]
                charged = sum(count for *_, count in run["releases"][client])
                assert truth.get(run["id"], 0) <= charged <= most
                released[client].append(Release(mechanism, noise, truth.get(run["id"], 0)))
        book = Book(place.folder / "book.json").spent(FED.clients)
        allowed = max([1.0, *(one[3] for one in steps if one[0] == "new")])
        for client in FED.clients:
            assert total_epsilon(released[client], DELTA) <= allowed * (1 + 1e-9)
            assert total_epsilon(book[client], DELTA) <= allowed * (1 + 1e-9)
