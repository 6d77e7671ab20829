"""The book: a file in which every run on the same data writes what it spends.

A run is written into the book with all the answers it may give before it touches the data, and as begun before it
answers; when it ends, what it did not release is struck out. A run that dies leaves all that it may have released. One
that goes on from its checkpoint gives the same answers with the same noise again and is the same run: it is charged in
full again until it ends, and never for less than it was before. Nothing is spent twice, and nothing in silence.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorate.privacy.accounting import Release, total_epsilon
from quorate.privacy.budget import ADJACENCY, Budget, BudgetSpentError

Releases = Mapping[str, Sequence[Release]]  # by client
STATES = ("charged", "open", "ended")


class Book:
    """The file of all runs on the same data.

    A JSON file ``{"runs": [{"id", "began", "state", "turn", "adjacency", "planned", "least", "releases"}], "chain"}``,
    the last three {client: [[mechanism, noise, count], ...]}: all that the run may release, what it may have released
    before it went on, and what counts. ``state`` is "charged" until the run may answer, "open" until it has ended;
    ``turn`` counts how often it went on. It is written whole and in one step, under a lock.

    Every writing adds to the chain a digest of the last one and of all runs. The file of the lock has the number of
    runs and the digest, and so has a run that can go on, beside its checkpoint: a book that was changed by hand,
    removed, or put back from a copy is noticed. Book and lock put back together are noticed by whoever has a later
    digest, a run that goes on or ``Ledger.book``, and by nobody else.

    Noise is over the sensitivity of the run's own ``adjacency``. A record replaced moves a sum by at most twice of what
    one more or less does, so that noise m of "add-remove" is m / 2 of "replace", and m of "replace" is 2 m of
    "add-remove". Runs without an adjacency count as "add-remove", the worse of both.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))  # of one file there is one book, whatever links lead to it
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"no folder {self.path.parent} for the book {self.path.name}: create it first.")
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder: give the file of the book.")

    def runs(self) -> list[dict[str, Any]]:
        """All that is written.

        Raises
        ------
        ValueError
            where the book is damaged, or runs are missing from it
        """
        if self.path.exists() and self.path.stat().st_nlink > 1:
            raise ValueError(
                f"{self.path.name} has a second name (a hard link), under which it would become another book: remove "
                "one of the names, so that all runs on these data write into one file."
            )
        return self._read()[0]

    def knows(self, digest: str) -> bool:
        """Whether the book is the one that had this digest, or one that was written later."""
        return digest in self._read()[1]

    def _read(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Runs and chain."""
        least, last = _Lock(self._lock).written()  # first: runs are only ever added
        try:
            found = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {"runs": []}
            runs, chain = found["runs"], found.get("chain", [])
            for run in runs:
                _checked(run)
            if chain and chain[-1] != _link(chain[-2] if len(chain) > 1 else "", runs):
                raise ValueError("it was changed by hand")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.path.name} is no book of spent budgets ({type(error).__name__}: {error}): what has been spent "
                "is unknown, so nothing may be released. Restore the file."
            ) from error
        if len(runs) < least or (last and last not in chain):
            said = f"has {len(runs)} runs, but {least} were written" if len(runs) < least else "is an older copy"
            raise ValueError(
                f"the book {self.path.name} {said}: what has been spent is unknown, so nothing may be released. "
                f"Restore the file. To begin anew, which forgets what was spent, remove {self._lock.name} as well."
            )
        return runs, chain

    def spent(
        self, clients: Sequence[str], without: str = "", adjacency: str = "add-remove"
    ) -> dict[str, tuple[Release, ...]]:
        """Releases of every client in all runs but one, noise as of this adjacency."""
        return _spent(self.runs(), clients, without, adjacency)

    def place(self, name: str) -> int:
        """How many runs were written before this one."""
        runs = self.runs()
        return runs.index(self._one(runs, name))

    def planned(self, name: str) -> dict[str, tuple[Release, ...]]:
        """All that a run may release, as written when it began."""
        return _releases(self._one(self.runs(), name)["planned"])

    def open_run(self, releases: Releases, budget: Budget, name: str = "", state: str = "open") -> str:
        """Write down what a run may release, unless that is too much; its id, ``name`` if given.

        Raises
        ------
        BudgetSpentError
            where it is too much; nothing was written
        """
        with self._locked():
            runs, name = self.runs(), name or new_name()
            self._affordable(runs, releases, budget, name)
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            plan = _plain(releases)
            run = {"id": name, "began": began, "state": state, "turn": 0, "adjacency": budget.adjacency}
            self._write([*runs, run | {"planned": plan, "least": {}, "releases": plan}])
        return name

    def begin_run(self, name: str, keep: Callable[[], None]) -> None:
        """Mark a run that is charged as one that answers, once ``keep`` has put away what makes its answers again.

        Nobody else begins it meanwhile: two with different noise would both release something for one charge.
        """
        with self._locked():
            runs = self.runs()
            if self._one(runs, name)["state"] != "charged":
                raise ValueError(f"run {name} was begun by another process: go on with it by resume=True.")
            keep()
            self._write([run | {"state": "open"} if run["id"] == name else run for run in runs])

    def drop_run(self, name: str) -> bool:
        """Strike out a run that is charged and was never begun, if it is."""
        with self._locked():
            runs = self.runs()
            own = self._one(runs, name)
            if own["state"] != "charged":
                return False
            nothing = {"state": "ended", "releases": {client: [] for client in own["planned"]}}
            self._write([run | nothing if run["id"] == name else run for run in runs])
        return True

    def reopen_run(self, name: str, budget: Budget) -> dict[str, Any]:
        """Charge a run that goes on in full again; what was written of it till now.

        One that was never begun is so charged and stays as it is.

        Raises
        ------
        BudgetSpentError
            where other runs have spent meanwhile what it would need; nothing was written
        ValueError
            where it was begun with another adjacency, of which its noise is
        """
        planned = self.planned(name)
        with self._locked():
            runs = self.runs()
            before = self._one(runs, name)
            if (was := before.get("adjacency", budget.adjacency)) != budget.adjacency:
                raise ValueError(
                    f'the run was begun with adjacency="{was}", got "{budget.adjacency}": resume with what it was '
                    "begun with, or run with resume=False, which is charged as another run."
                )
            self._affordable(runs, planned, budget, name)
            if before["state"] != "charged":
                self._write([_reopened(before) if run["id"] == name else run for run in runs])
        return before

    def restore_run(self, before: Mapping[str, Any]) -> bool:
        """Undo ``reopen_run``, for a run that did not go on; not where another process has written of it since."""
        with self._locked():
            runs = self.runs()
            if self._one(runs, before["id"]) != _reopened(before):
                return False
            self._write([dict(before) if run["id"] == before["id"] else run for run in runs])
        return True

    def close_run(self, name: str, releases: Releases) -> dict[str, tuple[Release, ...]]:
        """Strike out what the run did not release; what is left, never less than it had released before."""
        with self._locked():
            runs = self.runs()
            run = self._one(runs, name)
            least = _releases(run["least"])
            final = {client: _most(least.get(client, ()), own) for client, own in releases.items()}
            ended = run | {"state": "ended", "releases": _plain({**least, **final})}
            self._write([ended if run["id"] == name else run for run in runs])
        return final

    def digest(self) -> str:
        """Of all that was written until now."""
        return next(reversed(self._read()[1]), "")

    def has(self, name: str) -> bool:
        """Whether a run was written."""
        return any(run["id"] == name for run in self.runs())

    def state(self, name: str) -> str:
        """Of a run: "charged", "open" or "ended"."""
        return self._one(self.runs(), name)["state"]

    def _one(self, runs: list[dict[str, Any]], name: str) -> dict[str, Any]:
        for run in runs:
            if run["id"] == name:
                return run
        raise ValueError(f"run {name} is not in the book {self.path.name}: restore the file.")

    def _affordable(self, runs: list[dict[str, Any]], releases: Releases, budget: Budget, name: str) -> None:
        before = _spent(runs, tuple(releases), name, budget.adjacency)
        for client, own in releases.items():
            total = total_epsilon((*before[client], *own), budget.delta)
            if total > budget.epsilon * (1 + 1e-9):
                raise BudgetSpentError(
                    f"this run would bring client {client} to epsilon = {total:.4g} of {budget.epsilon:g} at delta = "
                    f"{budget.delta:g}: refused, nothing was touched. See {self.path.name} for what was spent."
                )

    def _write(self, runs: list[dict[str, Any]]) -> None:
        before = self._read()[1]
        chain = [*before, _link(before[-1] if before else "", runs)]
        text = json.dumps({"runs": runs, "chain": chain}, indent=1, allow_nan=False)
        for run in json.loads(text)["runs"]:
            _checked(run)  # what cannot be read again is not written
        part = self.path.with_name(self.path.name + ".part")
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
        if os.name == "posix":  # elsewhere a folder cannot be synchronised
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._lock.write_text(f"{len(runs)} {chain[-1]}", encoding="utf-8")

    @property
    def _lock(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    def _locked(self) -> _Lock:
        return _Lock(self._lock)


if sys.platform == "win32":
    import msvcrt

    def _take(file: Any) -> None:
        file.seek(1 << 20)  # beyond what is read and written
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(file: Any) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class _Lock:
    """One process writes at a time; the system takes the lock back from one that dies. The file has a number in it."""

    def __init__(self, path: Path, patience: float = 30.0) -> None:
        self.path, self.patience = path, patience

    def __enter__(self) -> None:
        self.file = open(self.path, "a+", encoding="utf-8")
        end = time.monotonic() + self.patience
        try:
            while not self._taken():
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"another run has been writing into the book for {self.patience:g} s (its lock is "
                        f"{self.path.name}): wait for it, or end it."
                    )
                time.sleep(0.01)
        except BaseException:
            self.file.close()
            raise

    def _taken(self) -> bool:
        try:
            _take(self.file)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def written(self) -> tuple[int, str]:
        """The number of runs and the digest in it."""
        try:
            number, _, digest = self.path.read_text(encoding="utf-8").partition(" ")
            return int(number or 0), digest.strip()
        except (FileNotFoundError, ValueError):
            return 0, ""


def new_name() -> str:
    """Of a run."""
    return secrets.token_hex(8)


def _link(before: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """The next digest of a chain."""
    text = json.dumps([before, runs], sort_keys=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checked(run: Mapping[str, Any]) -> None:
    if not isinstance(run["id"], str) or run["state"] not in STATES:
        raise ValueError(f"run {run['id']!r} in state {run['state']!r}")
    if run.get("adjacency", "replace") not in ADJACENCY:
        raise ValueError(f"run {run['id']!r} of adjacency {run['adjacency']!r}")
    for part in ("planned", "least", "releases"):
        _releases(run[part])


def _reopened(before: Mapping[str, Any]) -> dict[str, Any]:
    now = {"state": "open", "turn": before.get("turn", 0) + 1}
    return {**before, **now, "least": before["releases"], "releases": before["planned"]}


def _releases(plain: Mapping[str, Any]) -> dict[str, tuple[Release, ...]]:
    return {client: tuple(_release(*one) for one in own) for client, own in plain.items()}


def _release(mechanism: str, noise: float, count: int) -> Release:
    if type(count) is not int or type(noise) not in (int, float):
        raise TypeError(f"a release of noise {noise!r} and count {count!r}")
    return Release(mechanism, float(noise), count)


def _plain(releases: Releases) -> dict[str, list[list[Any]]]:
    return {client: [[r.mechanism, r.noise, r.count] for r in own] for client, own in releases.items()}


def _spent(
    runs: list[dict[str, Any]], clients: Sequence[str], without: str, adjacency: str
) -> dict[str, tuple[Release, ...]]:
    found: dict[str, tuple[Release, ...]] = dict.fromkeys(clients, ())
    for run in runs:
        times = ADJACENCY[run.get("adjacency", "add-remove")] / ADJACENCY[adjacency]
        for client, own in _releases(run["releases"]).items():
            if client in found and run["id"] != without:
                found[client] += tuple(replace(r, noise=times * r.noise) for r in own)
    return found


def _most(a: Sequence[Release], b: Sequence[Release]) -> tuple[Release, ...]:
    """Of every kind of release the larger count: the smaller one is contained in it."""
    counts: dict[tuple[str, float], int] = {}
    for own in (a, b):
        for r in own:
            key = r.mechanism, r.noise
            counts[key] = max(counts.get(key, 0), r.count)
    return tuple(Release(*key, count) for key, count in counts.items())
