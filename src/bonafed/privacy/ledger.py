"""The privacy ledger of a run: what it has spent, by client.

Anyone who plans a run has seen the results of earlier ones. For Gaussian noise that changes
nothing, since 1 / noise^2 adds up to a fixed total (Smith, Thakurta 2022). With Laplace noise in
the ledger file the accounting assumes that the noise and the number of rounds of later runs did not
depend on what earlier ones released. Likewise the amount that an interrupted run has spent is
proved where the decision to interrupt it did not depend on its answers; the budget always holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bonafed.client_names import ClientName, position
from bonafed.privacy.accounting import Release, accounts, total_epsilon
from bonafed.privacy.budget import VIEWS, Budget


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
        if len(known) < len(totals):
            return None
        return max(known, default=0.0)

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

    def named(self, clients: Iterable[ClientName]) -> Ledger:
        """The same with clients called as the user calls them, whole numbers included."""
        names = {str(name): name for name in clients}
        parts = {
            key: {names.get(str(name), name): value for name, value in getattr(self, key).items()}
            for key in ("releases", "before", "sizes", "other")
        }
        return replace(self, **parts)

    def table(self) -> list[dict[str, Any]]:
        """One row a client: public rows, answers, noise, epsilons, and what is left."""
        rows = []
        for client, releases in self.releases.items():
            before = self.before.get(client, ())
            row: dict[str, Any] = {
                "client": client,
                "rows": self.sizes[client],
                "answers": sum(r.count for r in releases),
                "noise": releases[-1].noise if releases else None,
                "sampling": releases[-1].sampling if releases else None,
            }
            delta = self.budget.delta
            totals = accounts((*before, *releases), delta)
            epsilon = float(totals.pop("pld") or 0.0)
            row |= {"epsilon": epsilon, "delta": delta, "before": total_epsilon(before, delta)}
            row |= totals | {"left": max(self.budget.epsilon - epsilon, 0.0)}
            other = self.budget.other_view
            row[f"epsilon_{other}"] = self.total_of(client, other)
            rows.append(row)
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
        if self.budget.delta * max(self.sizes.values(), default=1) > 1:
            text += (
                f" Caution: delta is above one in the number of rows ({max(self.sizes.values())})."
            )
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
