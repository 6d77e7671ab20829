"""Any sequence of runs: the book never says less than what was released, and the budget holds."""

from __future__ import annotations

import math
import re
import shutil
from typing import Any

from charged import DELTA, FED, Killed, Place
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bonafed.privacy.accounting import Release, total_epsilon
from bonafed.privacy.budget import BudgetSpentError
from bonafed.privacy.ledger import Book

# -- any sequence
# --------------------------------------------------------------------------------------------------

ANSWERS: dict[str, Any] = {"view": "answers"}
SUMS: dict[str, Any] = {"view": "sum", "missing": 1}
ends = st.sampled_from(["done", "done", "stop 1", "stop 3", "raise 2", "kill 1", "kill 4"])
step = st.one_of(
    st.tuples(
        st.just("new"),
        st.sampled_from(["x", "y", None]),
        ends,
        st.sampled_from([1.0, 1.0, 1.5]),
        st.booleans(),
        st.sampled_from([ANSWERS, ANSWERS, SUMS, SUMS, {**SUMS, "missing": 2}]),
    ),
    st.tuples(
        st.just("go on"), st.sampled_from(["x", "x", "y"]), ends, st.sampled_from(["last", "old"])
    ),
)


@given(st.lists(step, min_size=2, max_size=7))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_sequence_of_runs_spends_more_than_the_book_says_or_the_budget_allows(
    tmp_path_factory, steps
):
    place = Place(tmp_path_factory.mktemp("runs"))
    truth: dict[str, int] = {}  # run: rounds that were ever answered
    begun: dict[str | None, tuple[float, bool, dict[str, Any]]] = {}

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
                epsilon, secure, seen = rest
                begun[name] = epsilon, secure, seen
                options = {
                    "checkpoint": name,
                    "epsilon": epsilon,
                    "noise": "secure" if secure else "simulation",
                }
            else:
                if rest == ["old"] and (place.folder / f"{name}.old").exists():
                    shutil.copy(place.folder / f"{name}.old", place.folder / name)
                    shutil.copy(
                        place.folder / f"{name}.old.account", place.folder / f"{name}.account"
                    )
                epsilon, secure, seen = begun.get(name, (1.0, False, ANSWERS))
                options = {
                    "checkpoint": name,
                    "epsilon": epsilon,
                    "noise": "secure" if secure else "simulation",
                }
                options["resume"] = True
            found = place.solve(watch=watch(end, name), **options, **seen)
            assert found.ledger.epsilon <= options["epsilon"] * (1 + 1e-9)
        except (Killed, RuntimeError, BudgetSpentError):  # CheckpointError is a RuntimeError
            pass
        except ValueError as error:
            if not re.search("has a run charged in the view|was begun with the view", str(error)):
                raise
        if not (place.folder / "book.json").exists():
            assert not truth
            continue
        released: dict[str, list[Release]] = {client: [] for client in FED.clients}
        for run in place.runs:
            for client in FED.clients:
                mechanism, noise, most = run["planned"][client][0]
                charged = sum(count for *_, count in run["releases"][client])
                assert truth.get(run["id"], 0) <= charged <= most
                released[client].append(Release(mechanism, noise, truth.get(run["id"], 0)))
        book = Book(place.folder / "book.json").spent(FED.clients)
        allowed = max([1.0, *(one[3] for one in steps if one[0] == "new")])
        for client in FED.clients:
            assert total_epsilon(released[client], DELTA) <= allowed * (1 + 1e-9)
            assert total_epsilon(book[client], DELTA) <= allowed * (1 + 1e-9)
        # after a run that was charged for sums no answer is seen, nor by more who collude
        charged = [run for run in place.runs if any(run["releases"].values())]
        missing = [run["missing"] if "view" in run else math.inf for run in charged]
        assert missing == sorted(missing, reverse=True)
