"""The ledger adds up; the book is never wrong by less, whoever writes, dies, or damages it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bonafed.privacy import ledger as module
from bonafed.privacy.accounting import Release, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.ledger import Book, Ledger

BUDGET = Budget(1.0, 1e-5)
FEW, MANY = Release("gaussian", 20.0, 5), Release("gaussian", 20.0, 10)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book.json")


def plan(release: Release, clients: str = "ab") -> dict[str, tuple[Release, ...]]:
    return dict.fromkeys(clients, (release,))


# -- ledger
# --------------------------------------------------------------------------------------------------


def test_a_ledger_adds_up_by_client_and_takes_the_largest():
    own = {"a": (FEW,), "b": (MANY,), "c": ()}
    before = {"a": (MANY, Release("laplace", 9.0, 2))}
    found = Ledger(BUDGET, own, before, {"a": 3, "b": 4, "c": 5}, "noise")
    assert found.guarantee
    assert found.spent("a") == total_epsilon((MANY, Release("laplace", 9.0, 2), FEW), 1e-5)
    assert found.spent("b") == total_epsilon((MANY,), 1e-5)
    assert found.spent("c") == 0.0
    # clients have different records: the largest, not the sum
    assert found.epsilon == found.spent("a")
    rows = {row["client"]: row for row in found.table()}
    assert rows["a"]["answers"] == 5
    assert rows["a"]["before"] == total_epsilon(before["a"], 1e-5)
    assert rows["b"]["before"] == 0.0
    assert rows["b"]["left"] == pytest.approx(1.0 - found.spent("b"))
    assert rows["b"]["gaussian"] == pytest.approx(rows["b"]["epsilon"], rel=0.01)
    assert rows["b"]["rdp"] >= rows["b"]["epsilon"]
    assert rows["c"]["noise"] is None
    assert f"({found.epsilon:.4g}, 1e-05)" in found.text
    more = replace(found, releases={**own, "c": (MANY, FEW)})
    assert more.spent("c") == total_epsilon((Release("gaussian", 20.0, 15),), 1e-5)


# -- book
# --------------------------------------------------------------------------------------------------


def test_a_run_is_charged_in_full_then_struck_out_and_never_below_what_it_was(book):
    run = book.open_run(plan(MANY), BUDGET)
    assert book.spent("ab") == plan(MANY)
    assert book.close_run(run, plan(FEW)) == plan(FEW)
    assert book.spent("ab") == plan(FEW)
    before = book.reopen_run(run, BUDGET)
    assert book.spent("ab") == plan(MANY)
    book.restore_run(before)
    assert book.spent("ab") == plan(FEW)
    book.reopen_run(run, BUDGET)
    assert book.close_run(run, plan(Release("gaussian", 20.0, 2))) == plan(FEW)
    assert book.spent("abz") == plan(FEW) | {"z": ()}
    book.reopen_run(run, BUDGET)
    book.reopen_run(run, BUDGET)  # it died in between
    assert book.close_run(run, plan(FEW)) == plan(MANY)
    assert book.planned(run) == plan(MANY)
    assert book.place(run) == 0


def test_what_is_too_much_is_not_written(book):
    run = book.open_run(plan(MANY), BUDGET)
    book.close_run(run, plan(FEW))
    left = book.open_run(plan(Release("gaussian", 10.0, 5), "b"), BUDGET)
    text = book.path.read_bytes()
    with pytest.raises(
        BudgetSpentError, match=r"client b to epsilon = 1\.\d+ of 1 at delta = 1e-05"
    ):
        book.open_run(plan(Release("laplace", 3.0, 2), "b"), BUDGET)
    tight = Budget(total_epsilon((FEW, Release("gaussian", 10.0, 5)), 1e-5), 1e-5)
    with pytest.raises(BudgetSpentError):
        book.reopen_run(run, tight)
    assert book.path.read_bytes() == text
    book.reopen_run(left, tight)
    assert book.open_run(plan(MANY, "z"), tight) != left


def test_a_run_counts_in_the_view_it_was_charged_for_and_in_those_that_see_less(book):
    sums = replace(BUDGET, view="sum", missing=2)
    answers = book.open_run(plan(FEW), BUDGET)  # whoever sees answers sees sums as well
    run = book.open_run(plan(FEW), sums)
    assert (book.runs()[1]["view"], book.runs()[1]["missing"]) == ("sum", 2)
    book.check_view(sums, "ab")
    book.check_view(replace(sums, missing=1), "ab")
    book.check_view(BUDGET, "z")  # who has spent nothing there
    text = book.path.read_bytes()
    for other in (BUDGET, replace(sums, missing=3)):
        with pytest.raises(ValueError, match=r'run charged in the view "sum" with missing=2'):
            book.open_run(plan(FEW), other)
        with pytest.raises(ValueError, match=r'begun with the view "sum" and missing=2'):
            book.reopen_run(run, other)
    with pytest.raises(ValueError, match=r'begun with the view "answers"'):
        book.reopen_run(answers, sums)
    with pytest.raises(ValueError, match="in which its cost is not known"):
        book.reopen_run(answers, BUDGET)  # for which the other run's answers are too many
    assert book.path.read_bytes() == text
    book.close_run(run, {"a": (), "b": ()})
    book.reopen_run(answers, BUDGET)
    damaged = json.loads(text)
    damaged["runs"][1]["missing"] = -1
    damaged.pop("chain")
    book.path.write_text(json.dumps(damaged))
    book._lock.path.unlink()
    with pytest.raises(ValueError, match="of the view 'sum' and missing -1"):
        book.runs()


ACTIONS = st.tuples(
    st.sampled_from(["open", "close", "reopen", "restore"]),
    st.integers(0, 3),
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from([10.0, 20.0, 40.0]),
    st.integers(1, 12),
    st.sampled_from([0.7, 1.0, 2.0]),
    st.sampled_from(["a", "b", "ab"]),
)


@given(st.lists(ACTIONS, min_size=3, max_size=15))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_sequence_of_entries_goes_over_a_budget_or_under_the_truth(tmp_path_factory, actions):
    book, runs, told, old = Book(tmp_path_factory.mktemp("books") / "book.json"), [], {}, {}
    for kind, which, mechanism, noise, count, epsilon, clients in actions:
        budget = Budget(epsilon, 1e-5)
        run = runs[which % len(runs)] if runs else None
        try:
            if kind == "open":
                runs.append(book.open_run(plan(Release(mechanism, noise, count), clients), budget))
                told[runs[-1]] = 0
            elif run is not None and kind == "reopen":
                old[run] = book.reopen_run(run, budget)
            elif run is not None and kind == "restore" and run in old:
                book.restore_run(old.pop(run))
                continue
            elif run is not None and kind == "close":
                most = book.planned(run)
                k = min(count, next(iter(most.values()))[0].count)
                if book.runs()[runs.index(run)]["state"] == "open":
                    told[run] = max(told[run], k)
                    old.pop(run, None)
                    book.close_run(
                        run, {c: (Release(r[0].mechanism, r[0].noise, k),) for c, r in most.items()}
                    )
                continue
            else:
                continue
        except BudgetSpentError:
            continue
        spent = book.spent("ab")
        own = runs[-1] if kind == "open" else run
        assert own is not None
        for client in book.planned(own):
            assert total_epsilon(spent[client], 1e-5) <= epsilon * (1 + 1e-9)
        for name, k in told.items():
            for client, releases in book.planned(name).items():
                entry = book.runs()[runs.index(name)]["releases"][client]
                assert k <= entry[0][2] <= releases[0].count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"runs": 3}',
        '{"runs": [3]}',
        '{"runs": [{"id": "x"}]}',
        b"\xff\xfe\x00",
        *(
            json.dumps(
                {
                    "runs": [
                        {
                            "id": "x",
                            "state": state,
                            "planned": {},
                            "least": {},
                            "releases": {"a": [one]},
                        }
                    ]
                }
            )
            for state, one in [
                ("open", ["gaussian", 1.0]),
                ("open", ["gaussian", 0.0, 1]),
                ("open", ["gaussian", -1.0, 1]),
                ("open", ["gaussian", float("nan"), 1]),
                ("open", ["gaussian", "1.0", 1]),
                ("open", ["gaussian", 1.0, -1]),
                ("open", ["gaussian", 1.0, 1.5]),
                ("open", ["gaussian", 1.0, True]),
                ("open", ["sampled", 1.0, 1]),
                ("gone", ["gaussian", 1.0, 1]),
            ]
        ),
    ],
)
def test_a_damaged_book_lets_nothing_through_and_is_left_alone(book, text):
    data = text if isinstance(text, bytes) else text.encode()
    book.path.write_bytes(data)
    for attempt in (
        lambda: book.open_run(plan(FEW), BUDGET),
        lambda: book.spent("a"),
        lambda: book.close_run("x", plan(FEW)),
    ):
        with pytest.raises(ValueError, match="not a ledger of spent budgets"):
            attempt()
    assert book.path.read_bytes() == data


def test_a_removed_book_or_an_old_copy_is_noticed(book):
    book.open_run(plan(FEW), BUDGET)
    old = book.path.read_bytes()
    book.open_run(plan(FEW), BUDGET)
    new = book.path.read_bytes()
    book.path.write_bytes(old)
    with pytest.raises(ValueError, match="has 1 runs, but 2 were written"):
        book.open_run(plan(FEW), BUDGET)
    book.path.unlink()
    with pytest.raises(ValueError, match="has 0 runs, but 2 were written"):
        book.spent("a")
    book.path.write_bytes(new)
    assert len(book.spent("a")["a"]) == 2


def test_a_run_of_unknown_adjacency_counts_as_the_worse_one(book):
    old = {
        "id": "x",
        "state": "ended",
        "planned": {},
        "least": {},
        "releases": {"a": [["gaussian", 20.0, 5]]},
    }
    book.path.write_text(json.dumps({"runs": [old]}))
    assert book.spent("a") == {"a": (FEW,)}  # not 40
    assert book.spent("a", adjacency="replace") == {"a": (Release("gaussian", 10.0, 5),)}  # not 20
    book.path.write_text(json.dumps({"runs": [old | {"adjacency": "other"}]}))
    with pytest.raises(ValueError, match="of adjacency 'other'"):
        book.spent("a")


def test_what_could_not_be_read_again_is_not_written(book):
    book.open_run(plan(FEW), BUDGET)
    text = book.path.read_bytes()
    for count in (2.0, True):
        with pytest.raises(TypeError, match="a release of noise"):
            book._write(
                [*book.runs(), book.runs()[0] | {"releases": {"a": [["gaussian", 1.0, count]]}}]
            )
    with pytest.raises(ValueError, match="not JSON compliant"):
        book.open_run(plan(Release("gaussian", float("inf"), 1)), BUDGET)
    assert book.path.read_bytes() == text


def test_a_book_needs_a_folder_and_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="create it first"):
        Book(tmp_path / "nowhere" / "book.json")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Book(tmp_path)


def test_a_write_that_dies_leaves_the_book_as_it_was(book, monkeypatch):
    book.open_run(plan(FEW), BUDGET)
    before = book.path.read_bytes()
    for name in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(module.os, name, lambda *_: (_ for _ in ()).throw(OSError("no space")))
            with pytest.raises(OSError, match="no space"):
                book.open_run(plan(FEW), BUDGET)
        assert book.path.read_bytes() == before
    book.open_run(plan(FEW), BUDGET)  # and no lock was left behind
    assert len(book.runs()) == 2


def test_a_lock_that_is_held_is_waited_for_and_then_reported(book):
    with book._alone():
        busy = book._alone(patience=0.05)
        with pytest.raises(TimeoutError, match="another run has been writing"), busy:
            pass
    with book._alone(patience=0.05):
        pass


WRITER = """
import sys
from bonafed.privacy.accounting import Release
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.ledger import Book
book, own = Book(sys.argv[1]), (Release("gaussian", 20.0, 1),)
opened = 0
for _ in range(12):
    try:
        name = book.open_run({"a": own}, Budget(0.5, 1e-5))
    except BudgetSpentError:
        continue
    opened += 1
    if opened % 3 == 0:
        book.close_run(name, {"a": ()})
print(opened)
"""


def test_processes_that_write_at_once_lose_nothing_and_stay_within_the_budget(book):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", WRITER, str(book.path)]
    writers = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment, text=True)
        for _ in range(3)
    ]
    opened = [int(writer.communicate(timeout=900)[0]) for writer in writers]
    assert all(writer.returncode == 0 for writer in writers)
    runs = book.runs()
    assert len(runs) == sum(opened) == len({run["id"] for run in runs})
    assert [run["state"] for run in runs].count("ended") == sum(k // 3 for k in opened)
    own = Release("gaussian", 20.0, 1)
    spent = book.spent("a")["a"]
    assert total_epsilon(spent, 1e-5) <= 0.5
    # the budget was fought for, and used
    assert total_epsilon((*spent, own, own, own, own), 1e-5) > 0.5


def test_a_process_killed_with_the_lock_in_hand_stops_nobody(book):
    code = (
        "import os, sys; from bonafed.privacy import ledger as book;"
        " book.Lock(book.Path(sys.argv[1])).take(); "
    )
    code += "os._exit(9)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(book._lock.path)],
        env=environment,
        check=False,
        timeout=900,
    )
    assert done.returncode == 9
    book.open_run(plan(FEW), BUDGET)
    assert len(book.runs()) == 1
