"""What has been spent, by client.

Whoever plans a run has seen the results of earlier ones. For Gaussian noise that changes nothing, since 1 / noise^2
adds up to a fixed total (Smith, Thakurta 2022); with Laplace noise in the book it is assumed that the noise and the
number of rounds of later runs did not follow from what earlier ones released. Likewise what an interrupted run has
spent so far is proved where the decision to interrupt it did not follow from its answers; the budget holds always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quorate.privacy.accounting import Release, accounts, total_epsilon
from quorate.privacy.budget import Budget


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
    book : digest of the book once the run was settled, which it knows from then on: ``Book(path).knows(digest)``
    """

    budget: Budget
    releases: Mapping[str, tuple[Release, ...]]
    before: Mapping[str, tuple[Release, ...]]
    sizes: Mapping[str, int]
    mechanism: str
    caveat: str = ""
    book: str = ""

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
        given = "sizes as declared"
        if self.budget.sizes is None:
            given = "sizes (their true numbers of rows)"
            if self.budget.adjacency == "add-remove":
                given += ", so that a record less means one counting for nothing"
        if self.budget.delta * max(self.sizes.values(), default=1) > 1:
            told += f" Caution: delta is above one in the number of rows ({max(self.sizes.values())})."
        return f"{told} Public are the clients' names and {given}, features and classes."


WORDS = {"add-remove": "one record more or less at a client", "replace": "one record of a client replaced"}


def with_releases(ledger: Ledger, releases: Mapping[str, tuple[Release, ...]], book: str = "") -> Ledger:
    """The ledger of a run that released these, and after which its book has this digest."""
    return replace(ledger, releases=dict(releases), book=book)
