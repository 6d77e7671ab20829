"""The privacy ledger of a run, and the file in which all runs on the same data write what they
spend.

Anyone who plans a run has seen the results of earlier ones. For Gaussian noise that changes
nothing, since 1 / noise^2 adds up to a fixed total (Smith, Thakurta 2022). With Laplace noise in
the ledger file the accounting assumes that the noise and the number of rounds of later runs did not
depend on what earlier ones released. Likewise the amount that an interrupted run has spent is
proved where the decision to interrupt it did not depend on its answers; the budget always holds.

A run is written into the file with all the answers it may give before it touches the data, and as
begun before it answers. When it ends, what it did not release is struck out. A run that dies leaves
all that it may have released. A run that resumes from its checkpoint gives the same answers with
the same noise again and is the same run: it is charged in full again until it ends, and never for
less than before. No release is charged twice, and none is omitted.
"""

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bonafed.client_names import ClientName, position
from bonafed.privacy.accounting import Release, accounts, total_epsilon, under
from bonafed.privacy.budget import ADJACENCY, VIEWS, Budget, BudgetSpentError
from bonafed.storage import OWN, Lock, write_whole


@dataclass(frozen=True)
class Ledger:
    """What a run has spent, in addition to earlier runs on the same records.

    Attributes
    ----------
    budget : the user's budget
    releases : {client: releases of this run}
    before : {client: releases of earlier runs in the budget's ledger file}
    sizes : {client: public number of rows}
    mechanism : the mechanism in words
    book : digest of the ledger file once the run was settled, which the file knows from then on:
        ``Book(path).knows(digest)``
    simulated : the noise comes from a seed, which is not secret: there is no guarantee, and
        every total is that of the same run with secure noise
    other : {client: releases of this run as the budget's other view shows them}, empty where they
        are not known

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> ledger = bf.solve(problem, fed, max_rounds=20).ledger
    >>> ledger.releases["north"][0].count, bool(ledger.epsilon <= 1)
    (20, True)
    """

    budget: Budget
    releases: Mapping[ClientName, tuple[Release, ...]]
    before: Mapping[ClientName, tuple[Release, ...]]
    sizes: Mapping[ClientName, int]
    mechanism: str
    book: str = ""
    simulated: bool = False
    other: Mapping[ClientName, tuple[Release, ...]] = field(default_factory=dict)

    @property
    def guarantee(self) -> bool:
        """Whether a total (epsilon, delta) holds."""
        return not self.simulated

    @property
    def epsilon(self) -> float | None:
        """The total for every record in the budget's view, the largest of all clients.

        The clients' records differ, so their totals do not add up.
        """
        return self.epsilon_of(self.budget.view)

    def epsilon_of(self, view: str) -> float | None:
        """The total for anyone who has this view, at the budget's delta; None where it is not
        known.

        "answers" is seeing every answer of every client, "sum" only the sums over all clients and
        the models, knowing the noise of ``budget.missing`` of the others. Where the budget's view
        is "answers", the total of "sum" is that of exact arithmetic: answers of clients with
        different grids have no public unit.
        """
        if view not in VIEWS:
            raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}.")
        totals = [self.total_of(client, view) for client in self.releases]
        known = [total for total in totals if total is not None]
        return max(known, default=0.0) if len(known) == len(totals) else None

    def spent(self, client: ClientName) -> float:
        """The total epsilon of one client in the budget's view, earlier runs included."""
        known = [*self.releases]
        total = self.total_of(known[position(client, known)], self.budget.view)
        assert total is not None, "it is known in the budget's view"
        return total

    def total_of(self, client: ClientName, view: str) -> float | None:
        """The total of a client, called as in ``releases``, for anyone who has this view; None
        where it is not known.
        """
        before, released = self.before.get(client, ()), self.releases[client]
        if view != self.budget.view:
            # whoever sees answers knows the sums, and not the other way round
            if client not in self.other or (before and view == "answers"):
                return None
            count = sum(r.count for r in released)  # with what a run gave before it resumed
            released = tuple(replace(r, count=count) for r in self.other[client])
        return total_epsilon((*before, *released), self.budget.delta)

    def named(self, clients: Iterable[ClientName]) -> "Ledger":
        """The same with clients called as the user calls them, whole numbers included."""
        names = {str(name): name for name in clients}
        parts = {part: getattr(self, part) for part in ("releases", "before", "sizes", "other")}
        called = {
            part: {names.get(str(name), name): value for name, value in of.items()}
            for part, of in parts.items()
        }
        return replace(self, **called)

    def table(self) -> list[dict[str, Any]]:
        """One row a client: public rows, answers, noise, epsilons, and what is left."""
        rows = []
        for client, releases in self.releases.items():
            before, delta = self.before.get(client, ()), self.budget.delta
            last, answers = releases[-1] if releases else None, sum(r.count for r in releases)
            row: dict[str, Any] = {"client": client, "rows": self.sizes[client], "answers": answers}
            row |= {key: getattr(last, key, None) for key in ("noise", "sampling")}
            totals = accounts((*before, *releases), delta)
            epsilon = float(totals.pop("pld") or 0.0)
            row |= {"epsilon": epsilon, "delta": delta, "before": total_epsilon(before, delta)}
            row |= totals | {"left": max(self.budget.epsilon - epsilon, 0.0)}
            other = self.budget.other_view
            rows.append(row | {f"epsilon_{other}": self.total_of(client, other)})
        return rows

    @property
    def text(self) -> str:
        """The ledger as one sentence for people."""
        delta = f"{self.budget.delta:g}"
        text = "No guarantee, but with secure noise the same run would be " * self.simulated + (
            f"({self.epsilon:.4g}, {delta})-differentially private in total, of"
            f" ({self.budget.epsilon:g}, {delta}) allowed; adjacency:"
            f" {WORDS[self.budget.adjacency]}; {self.mechanism}."
        )
        if _searched(self.releases):
            text += OF_SEARCH
        else:
            text += f" {views(self.budget, self.epsilon_of(self.budget.other_view))}"
            text += BEFORE * _searched(self.before)
        public = "sizes as declared"
        if self.budget.sizes is None:
            public = "sizes (their true numbers of rows)"
            if self.budget.adjacency == "add-remove":
                public += ", so that a record less means one counting for nothing"
        if self.budget.delta * (most := max(self.sizes.values(), default=1)) > 1:
            text += f" Caution: delta is above one in the number of rows ({most})."
        return f"{text} Public are the clients' names and {public}, features and classes."


OF_SEARCH = (
    " It holds for anyone who sees what the search releases, only the best candidate, and not for"
    " anyone who sees the answers of all candidates while it runs."
)
BEFORE = " Of the searches before this run only the best candidate is seen."


def _searched(releases: Mapping[ClientName, tuple[Release, ...]]) -> bool:
    """Whether a search is among the releases."""
    return any(r.candidates for each in releases.values() for r in each)


def views(budget: Budget, other: float | None) -> str:
    """For whom the total of a budget holds, and what the ``other`` view's total is."""
    known = "that of one client" if budget.missing == 1 else f"those of {budget.missing} clients"
    known = "no client's noise" if not budget.missing else f"no noise but {known}"
    if budget.view == "answers":
        text = "It holds for anyone who sees every answer of every client."
        if other is not None:
            text += (
                " Anyone who sees nothing but the sums over all clients and the models, and knows"
                f" {known}, would in exact arithmetic see epsilon = {other:.4g}."
            )
        return text
    text = (
        "It holds for anyone who sees nothing but the sums over all clients and the models, and"
        f" knows {known}, where one who drops out of a sum counts as known: single answers must be"
        " secret, as in a secure sum."
    )
    if other is not None:
        text += f" Anyone who sees every answer sees epsilon = {other:.4g}."
    return text


WORDS = {
    "add-remove": "one record more or less at a client",
    "replace": "one record of a client replaced",
}


Releases = Mapping[str, Sequence[Release]]  # by client
Run = dict[str, Any]  # its entry in the file
STATES = ("charged", "open", "ended")


class Book:
    """The privacy ledger file of all runs on the same data.

    A JSON file ``{"runs": [{"id", "began", "state", "turn", "adjacency", "planned", "least",
    "releases"}], "chain"}``, the last three {client: [[mechanism, noise, count], ...]}, with the
    probability of a row as a fourth entry where rows are sampled, and of a search 1 and the mean
    number of candidates: all that the run may release, what it may have released before it resumed,
    and what counts. ``state`` is
    "charged" until the run may answer and "open" until it has ended; ``turn`` counts how often it
    resumed. A run in the view "sum" has that "view" and "missing". A run may have "about", texts by
    which people know it. The file is written whole and in one step, under a lock. Nobody but its
    owner may read it, unless the owner lets them.

    Every writing adds to the chain a digest of the previous digest and of all runs. The lock file
    holds the number of runs and the digest, and so does a run that can resume, beside its
    checkpoint. So a file that was changed by hand, removed, or restored from a copy is detected. If
    file and lock are restored together, only a holder of a later digest detects it: a run that
    resumes, or ``Ledger.book``.

    Noise is relative to the sensitivity under the run's ``adjacency``. Replacing a record moves a
    sum by at most twice as much as adding or removing one, so noise m under "add-remove" is m / 2
    under "replace", and m under "replace" is 2 m under "add-remove". Runs without an adjacency
    count as "add-remove", the worse of both. What sampling saves is proved under "add-remove", so
    under "replace" such runs count as if all rows had taken part.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> book = bf.Book(Path(mkdtemp()) / "ledger.json")
    >>> budget = bf.Budget(epsilon=1.0, delta=1e-6, book=book.path)
    >>> solution = bf.solve(bf.Problem(bf.Logistic(), privacy=budget), fed, max_rounds=5)
    >>> book.path.exists()
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # links to one file lead to one ledger
        self.path = Path(os.path.realpath(path))
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"no folder {self.path.parent} for the ledger file {self.path.name}: create it"
                " first."
            )
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder: give the path of the ledger file.")

    def runs(self) -> list[Run]:
        """All runs in the file.

        Raises
        ------
        ValueError
            where the file is damaged, or runs are missing from it
        """
        if self.path.exists() and self.path.stat().st_nlink > 1:
            raise ValueError(
                f"{self.path.name} has a second name (a hard link), under which it would become"
                " another ledger file: remove one of the names, so that all runs on these data"
                " write into one file."
            )
        return self._read()[0]

    def knows(self, digest: str) -> bool:
        """Whether this is the file that had this digest, or a later state of it."""
        return digest in self._read()[1]

    def _read(self) -> tuple[list[Run], list[str]]:
        """The runs and the chain of digests."""
        least, last = self._written()  # read first, since runs are only ever added
        try:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else '{"runs": []}'
            content = json.loads(text)
            runs, chain = content["runs"], content.get("chain", [])
            if not (isinstance(runs, list) and isinstance(chain, list)):
                raise ValueError("its runs and its chain are not lists")
            for run in runs:
                _checked(run)
            if chain and chain[-1] != _link(chain[-2] if len(chain) > 1 else "", runs):
                raise ValueError("it was changed by hand")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{self.path.name} is not a ledger of spent budgets ({type(error).__name__}:"
                f" {error}): what has been spent is unknown, so nothing may be released. Restore"
                " the file."
            ) from error
        if len(runs) < least or (last and last not in chain):
            fault = f"has {len(runs)} runs, but {least} were written"
            fault = fault if len(runs) < least else "is an older copy"
            raise ValueError(
                f"the ledger file {self.path.name} {fault}: what has been spent is unknown, so"
                " nothing may be released. Restore the file. To begin anew, which forgets what was"
                f" spent, remove {self._lock.path.name} as well."
            )
        return runs, chain

    def spent(
        self, clients: Sequence[str], without: str = "", adjacency: str = "add-remove"
    ) -> dict[str, tuple[Release, ...]]:
        """The releases of every client in all runs but one, with noise under this adjacency."""
        spent: dict[str, tuple[Release, ...]] = dict.fromkeys(clients, ())
        for run in self.runs():
            stated = run.get("adjacency", "add-remove")
            for client, released in _releases(run["releases"]).items():
                if client in spent and run["id"] != without:
                    spent[client] += under(released, stated, adjacency)
        return spent

    def place(self, name: str) -> int:
        """How many runs stand before this one."""
        runs = self.runs()
        return runs.index(self._one(runs, name))

    def planned(self, name: str) -> dict[str, tuple[Release, ...]]:
        """All that a run may release, as it was written when the run began."""
        return _releases(self._one(self.runs(), name)["planned"])

    def open_run(
        self,
        releases: Releases,
        budget: Budget,
        name: str = "",
        state: str = "open",
        about: Mapping[str, str] | None = None,
    ) -> str:
        """Write what a run may release, unless that is too much; returns its id (``name``).

        Raises
        ------
        BudgetSpentError
            where it is too much; nothing was written
        """
        with self._alone():
            runs, name = self.runs(), name or new_name()
            self._affordable(releases, budget, name)
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            plan = _plain(releases)
            run: Run = {"id": name, "began": began, "state": state, "turn": 0}
            run |= {"adjacency": budget.adjacency, "planned": plan, "least": {}, "releases": plan}
            if budget.view == "sum":
                run |= {"view": budget.view, "missing": budget.missing}
            self._write([*runs, run | ({"about": {**about}} if about else {})])
        return name

    def begin_run(self, name: str, keep: Callable[[], None]) -> None:
        """Mark a charged run as one that answers, once ``keep`` has stored its noise.

        The lock keeps other processes from beginning it meanwhile: two runs with different noise
        would release something twice for one charge.
        """

        def begun(run: Run) -> Run:
            if run["state"] != "charged":
                raise ValueError(
                    f"run {name} was begun by another process: resume it with resume=True."
                )
            keep()
            return run | {"state": "open"}

        self._rewrite(name, begun)

    def drop_run(self, name: str) -> bool:
        """Strike out a run that was charged and never begun; returns whether it was such a run."""

        def dropped(run: Run) -> Run | None:
            nothing = {"state": "ended", "releases": {client: [] for client in run["planned"]}}
            return run | nothing if run["state"] == "charged" else None

        return self._rewrite(name, dropped)

    def _rewrite(self, name: str, change: Callable[[Run], Mapping[str, Any] | None]) -> bool:
        """Write what a change makes of the entry of a run; returns whether it makes anything."""
        with self._alone():
            runs = self.runs()
            entry = change(self._one(runs, name))
            if entry is not None:
                self._write([entry if run["id"] == name else run for run in runs])
        return entry is not None

    def reopen_run(self, name: str, budget: Budget) -> Run:
        """Charge a run that resumes in full again; returns its entry of before.

        A run that was never begun is charged in full already and stays as it is.

        Raises
        ------
        BudgetSpentError
            where other runs have meanwhile spent what it would need; nothing was written
        ValueError
            where it was begun with another adjacency, to which its noise belongs
        """
        planned, before = self.planned(name), Run()

        def again(run: Run) -> Run | None:
            before.update(run)
            if (was := before.get("adjacency", budget.adjacency)) != budget.adjacency:
                raise ValueError(
                    f'the run was begun with adjacency="{was}", got "{budget.adjacency}": resume'
                    " with the same adjacency, or begin a new run (resume=False), which is"
                    " charged as another."
                )
            seen = _view(before)
            if seen != (budget.view, budget.missing if budget.view == "sum" else 0):
                raise ValueError(
                    f'the run was begun with the view "{seen[0]}" and missing={seen[1]}: resume'
                    " with the same, or begin a new run (resume=False), which is charged as"
                    " another."
                )
            self._affordable(planned, budget, name)
            return None if run["state"] == "charged" else _reopened(run)

        self._rewrite(name, again)
        return before

    def restore_run(self, before: Mapping[str, Any]) -> bool:
        """Undo ``reopen_run`` for a run that did not resume; returns whether it was undone.

        It is not where another process has changed the run's entry since.
        """
        again = _reopened(before)
        return self._rewrite(before["id"], lambda run: before if run == again else None)

    def close_run(self, name: str, releases: Releases) -> dict[str, tuple[Release, ...]]:
        """Strike out what the run did not release; returns the rest.

        That is never less than it had released before.
        """
        final: dict[str, tuple[Release, ...]] = {}

        def ended(run: Run) -> Run:
            least = _releases(run["least"])
            final.update({c: _most(least.get(c, ()), given) for c, given in releases.items()})
            return run | {"state": "ended", "releases": _plain({**least, **final})}

        self._rewrite(name, ended)
        return final

    def digest(self) -> str:
        """The digest of all that was written until now."""
        return next(reversed(self._read()[1]), "")

    def has(self, name: str) -> bool:
        """Whether the file has a run of this id."""
        return name in (run["id"] for run in self.runs())

    def state(self, name: str) -> str:
        """The state of a run: "charged", "open" or "ended"."""
        return self._one(self.runs(), name)["state"]

    def _one(self, runs: list[Run], name: str) -> Run:
        for run in (run for run in runs if run["id"] == name):
            return run
        raise ValueError(f"run {name} is not in the ledger file {self.path.name}: restore it.")

    def _affordable(self, releases: Releases, budget: Budget, name: str) -> None:
        self.check_view(budget, tuple(releases), name)
        before = self.spent(tuple(releases), name, budget.adjacency)
        for client, planned in releases.items():
            total = total_epsilon((*before[client], *planned), budget.delta)
            if total > budget.epsilon * (1 + 1e-9):
                raise BudgetSpentError(
                    f"this run would bring client {client} to epsilon = {total:.4g} of"
                    f" {budget.epsilon:g} at delta = {budget.delta:g}: refused, nothing was"
                    f" touched. See {self.path.name} for what was spent."
                )

    def check_view(self, budget: Budget, clients: Sequence[str], without: str = "") -> None:
        """Raise where runs but one of these clients were charged for less than the budget's view.

        Anyone who sees answers sees the sums as well, so that a run in the view "answers" counts in
        full for a budget of the view "sum". A run in the view "sum" says nothing of answers, nor of
        more missing clients than it was planned for.
        """
        for run in self.runs():
            view, missing = _view(run)
            spent = any(run["releases"].get(client) for client in clients)
            if spent and not budget.covered(view, missing) and run["id"] != without:
                asked = f'the view "{budget.view}"'
                asked += f" and missing={budget.missing}" if budget.view == "sum" else ""
                raise ValueError(
                    f'{self.path.name} has a run charged in the view "sum" with'
                    f" missing={missing}, and the budget has {asked}, in which its cost is not"
                    " known. Take the view and missing of that run, or another ledger file: its"
                    " guarantee is then beside that of this one."
                )

    def _write(self, runs: Sequence[Mapping[str, Any]]) -> None:
        before = self._read()[1]
        chain = [*before, _link(before[-1] if before else "", runs)]
        text = json.dumps({"runs": runs, "chain": chain}, indent=1, allow_nan=False)
        for run in json.loads(text)["runs"]:
            _checked(run)  # write only what can be read again
        mode = self.path.stat().st_mode & 0o777 if self.path.exists() else OWN
        write_whole(self.path, text.encode(), mode)
        self._lock.write(f"{len(runs)} {chain[-1]}")

    @property
    def _lock(self) -> Lock:
        """The lock of all who write; its file holds the number of runs and the digest."""
        return Lock(self.path.with_name(self.path.name + ".lock"))

    def _written(self) -> tuple[int, str]:
        """The number of runs and the digest in the lock file."""
        number, _, digest = self._lock.text().partition(" ")
        try:
            return int(number or 0), digest.strip()
        except ValueError:
            return 0, ""

    def _alone(self, patience: float = 30.0) -> contextlib.AbstractContextManager[None]:
        """Wait until no other process writes, and keep the others waiting meanwhile."""
        return self._lock.alone("another run has been writing into the ledger", patience)


def new_name() -> str:
    """A fresh random id of a run."""
    return secrets.token_hex(8)


def _link(before: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """The next digest of the chain."""
    text = json.dumps([before, runs], sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _view(run: Mapping[str, Any]) -> tuple[str, int]:
    """The view that a run was charged in, and how many clients' noise may be missing there."""
    return run.get("view", "answers"), run.get("missing", 0)


def _checked(run: Mapping[str, Any]) -> None:
    if not isinstance(run["id"], str) or run["state"] not in STATES:
        raise ValueError(f"run {run['id']!r} in state {run['state']!r}")
    if run.get("adjacency", "replace") not in ADJACENCY:
        raise ValueError(f"run {run['id']!r} of adjacency {run['adjacency']!r}")
    view, missing = _view(run)
    if view not in VIEWS or type(missing) is not int or missing < 0:
        raise ValueError(f"run {run['id']!r} of the view {view!r} and missing {missing!r}")
    for part in ("planned", "least", "releases"):
        _releases(run[part])


def _reopened(before: Mapping[str, Any]) -> Run:
    begun = {"state": "open", "turn": before.get("turn", 0) + 1}
    return {**before, **begun, "least": before["releases"], "releases": before["planned"]}


def _releases(plain: Mapping[str, Any]) -> dict[str, tuple[Release, ...]]:
    return {key: tuple(Release.of_entry(*one) for one in each) for key, each in plain.items()}


def _plain(releases: Releases) -> dict[str, list[list[Any]]]:
    return {client: [r.entry for r in released] for client, released in releases.items()}


def _most(a: Sequence[Release], b: Sequence[Release]) -> tuple[Release, ...]:
    """The larger count of every kind of release: it contains the smaller one."""
    most: dict[Release, Release] = {}
    for r in (*a, *b):
        kind = replace(r, count=0)
        most[kind] = max(most.get(kind, kind), r, key=lambda r: r.count)
    return tuple(most.values())
