"""What has been spent, by client; and the book, a file in which every run on the same data writes what it spends.

A run is written into the book with all the answers it may give before it touches the data; when it ends, what it did
not release is struck out. A run that dies leaves what it may have released. One that goes on from its checkpoint gives
the same answers with the same noise again and is the same run: nothing is spent twice, and nothing in silence.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quorate.privacy.accounting import Release, accounts, total_epsilon
from quorate.privacy.budget import Budget, BudgetSpentError


@dataclass(frozen=True)
class Ledger:
    """What a run has spent, beside what other runs on the same records had.

    Attributes
    ----------
    budget : as stated
    releases : {client: releases of this run}
    before : {client: releases of earlier runs in the budget's book}
    sizes : {client: rows, as public}
    mechanism : in words
    caveat : why there is no guarantee; empty where there is one
    """

    budget: Budget
    releases: Mapping[str, tuple[Release, ...]]
    before: Mapping[str, tuple[Release, ...]]
    sizes: Mapping[str, int]
    mechanism: str
    caveat: str = ""

    @property
    def guarantee(self) -> bool:
        """Whether a total (epsilon, delta) holds."""
        return not self.caveat

    @property
    def epsilon(self) -> float | None:
        """The total for every record: the largest of all clients, whose records differ. None without a guarantee."""
        if self.caveat:
            return None
        return max((self.spent(client) for client in self.releases), default=0.0)

    def spent(self, client: str) -> float:
        """Total epsilon of one client, earlier runs included."""
        return total_epsilon((*self.before.get(client, ()), *self.releases[client]), self.budget.delta)

    def table(self) -> list[dict[str, Any]]:
        """One row a client: public rows, answers, noise multiplier, epsilon by accountant, what is left."""
        rows = []
        for client, own in self.releases.items():
            before = self.before.get(client, ())
            row: dict[str, Any] = {"client": client, "rows": self.sizes[client]}
            row |= {"answers": sum(r.count for r in own), "noise": own[-1].noise if own else None}
            if not self.caveat:
                found = accounts((*before, *own), self.budget.delta)
                row |= {"epsilon": found["pld"], "delta": self.budget.delta, "before": None}
                row["before"] = total_epsilon(before, self.budget.delta) if before else 0.0
                row |= {"gaussian": found["gaussian"], "rdp": found["rdp"], "basic": found["basic"]}
                row["left"] = max(self.budget.epsilon - float(found["pld"] or 0.0), 0.0)
            rows.append(row)
        return rows

    @property
    def text(self) -> str:
        """One sentence for people."""
        if self.caveat:
            return f"No guarantee: {self.caveat}"
        delta = f"{self.budget.delta:g}"
        told = f"({self.epsilon:.4g}, {delta})-differentially private in total, of ({self.budget.epsilon:g}, {delta}) "
        told += f"allowed; adjacency: {WORDS[self.budget.adjacency]}; {self.mechanism}."
        given = "declared" if self.budget.sizes is not None else "their true numbers of rows"
        return f"{told} The clients' sizes are public ({given})."


WORDS = {"add-remove": "one record more or less at a client", "replace": "one record of a client replaced"}


class Book:
    """The file of all runs on the same data.

    A JSON file: ``{"runs": [{"id", "began", "state", "releases": {client: [[mechanism, noise, count], ...]}}]}``;
    ``state`` is "open" until the run has ended. It is written whole and in one step, under a lock.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"no folder {self.path.parent} for the book {self.path.name}: create it first.")

    def runs(self) -> list[dict[str, Any]]:
        """All that is written."""
        if not self.path.exists():
            return []
        try:
            runs = json.loads(self.path.read_text(encoding="utf-8"))["runs"]
            for run in runs:
                _releases(run)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.path.name} is no book of spent budgets ({type(error).__name__}: {error}): what has been spent "
                "is unknown, so nothing may be released. Restore the file."
            ) from error
        return runs

    def spent(self, clients: Sequence[str], without: str = "") -> dict[str, tuple[Release, ...]]:
        """Releases of every client in all runs but one."""
        found: dict[str, tuple[Release, ...]] = dict.fromkeys(clients, ())
        for run in self.runs():
            for client, own in _releases(run).items():
                if client in found and run["id"] != without:
                    found[client] += own
        return found

    def open_run(self, releases: Mapping[str, Sequence[Release]], budget: Budget) -> str:
        """Write down what a run may release, unless that is too much; its id."""
        with self._locked():
            runs, before = self.runs(), self.spent(tuple(releases))
            for client, own in releases.items():
                total = total_epsilon((*before[client], *own), budget.delta)
                if total > budget.epsilon * (1 + 1e-9):
                    raise BudgetSpentError(
                        f"this run would bring client {client} to epsilon = {total:.4g} of {budget.epsilon:g} at delta "
                        f"= {budget.delta:g}: refused, nothing was touched. See {self.path.name} for what was spent."
                    )
            name = secrets.token_hex(8)
            plain = {client: [[r.mechanism, r.noise, r.count] for r in own] for client, own in releases.items()}
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._write([*runs, {"id": name, "began": began, "state": "open", "releases": plain}])
        return name

    def close_run(self, name: str, releases: Mapping[str, Sequence[Release]]) -> None:
        """Strike out what the run did not release."""
        with self._locked():
            plain = {client: [[r.mechanism, r.noise, r.count] for r in own] for client, own in releases.items()}
            runs = [run | {"state": "ended", "releases": plain} if run["id"] == name else run for run in self.runs()]
            self._write(runs)

    def reopened(self, name: str) -> None:
        """A run that goes on: its answers must still stand in the book."""
        if name not in [run["id"] for run in self.runs()]:
            raise ValueError(f"the run to go on with is not in the book {self.path.name}: restore the file.")

    def _write(self, runs: list[dict[str, Any]]) -> None:
        part = self.path.with_name(self.path.name + ".part")
        with open(part, "w", encoding="utf-8") as file:
            json.dump({"runs": runs}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)

    def _locked(self) -> _Lock:
        return _Lock(self.path.with_name(self.path.name + ".lock"))


class _Lock:
    """A file that exists while somebody writes."""

    def __init__(self, path: Path, patience: float = 10.0) -> None:
        self.path, self.patience = path, patience

    def __enter__(self) -> None:
        end = time.monotonic() + self.patience
        while True:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
                return
            except FileExistsError:
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"{self.path.name} has been there for {self.patience:g} s: another run writes into the book, "
                        "or one died doing so; then remove the file."
                    ) from None
                time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)


def _releases(run: Mapping[str, Any]) -> dict[str, tuple[Release, ...]]:
    found = {}
    for client, own in run["releases"].items():
        found[client] = tuple(Release(str(kind), float(noise), int(count)) for kind, noise, count in own)
        if any(r.noise <= 0 or r.count < 0 or r.mechanism not in ("gaussian", "laplace") for r in found[client]):
            raise ValueError(f"releases of {client}")
    return found


def with_releases(ledger: Ledger, releases: Mapping[str, tuple[Release, ...]]) -> Ledger:
    """The ledger of a run that released these."""
    return replace(ledger, releases=dict(releases))
