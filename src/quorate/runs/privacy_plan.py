"""What a run within a privacy budget will cost, before it starts.

The plan follows from public numbers alone: who takes part, how many rows each declares, how many
features there are.

Every run of a privacy curve is a run on the same rows. Unless the rows are public
(privacy.rehearsal) it is charged: the runs go one after the other, each within a total E_k that
leaves the noise at that of its epsilon alone,

    E_k = total(before, R_1, ..., R_k),    R_k = T releases with the noise of (epsilon_k, delta),

and the model of the run has what is left of epsilon after all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.algorithms.federated.private_admm.client import Perturbed
from quorate.arrays import Array
from quorate.config.config import Config
from quorate.privacy.accounting import Release, accounts, noise_for, total_epsilon
from quorate.privacy.budget import Budget, BudgetSpentError
from quorate.privacy.ledger_file import Book
from quorate.problem.problem import Problem
from quorate.rounds import encoded_size, rows
from quorate.runs.datasets import read_tables
from quorate.runs.splits import named_clients
from quorate.solution.default import default_algorithm


@dataclass(frozen=True)
class Public:
    """What may be known of the data before a private run; it stands in for a federation where noise
    is planned.
    """

    clients: tuple[str, ...]
    sizes: tuple[int, ...]
    n_features: int

    @property
    def n_clients(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Plan:
    """What a run will do and cost.

    Attributes
    ----------
    public : who takes part, rows as public, features
    algorithm : with its noise planned
    scale : (N,) of each client's noise, in the units of its share of the gradient
    accounts : total epsilon at delta when the run has ended, by accountant, earlier runs and the
        curve included
    before : total epsilon that is spent before, the curve included
    curve : (epsilon alone, total E_k at which it is run) of every run of the curve
    up, down : bytes of one client in one round
    """

    public: Public
    algorithm: Any
    budget: Budget
    scale: Array
    accounts: Mapping[str, float | None]
    before: float
    curve: tuple[tuple[float, float], ...]
    up: int
    down: int


def with_sizes(config: Config, rows: Mapping[str, int]) -> Config:
    """The run with a number of rows declared for every client: where the file has none, the share
    to be trained on of those that it has, ``rows``.
    """
    assert config.privacy is not None
    given, share = config.privacy.sizes, 1 - config.data.test
    if isinstance(given, Mapping):
        return config
    sizes = {name: max(1, round(share * n)) if given is None else given for name, n in rows.items()}
    # the order of the clients' first rows would tell about those
    sizes = dict(sorted(sizes.items()))
    return config._with(
        privacy=config.privacy.model_copy(update={"sizes": sizes, "counted": given is None})
    )


def looked_at(config: Config) -> tuple[Config, Public]:
    """The run with its sizes, and what is public; no file is read where sizes and columns are
    declared by name.
    """
    assert config.privacy is not None
    data, sizes = config.data, config.privacy.sizes
    columns = data.columns or {name: {} for name in data.features or ()}
    if not (isinstance(sizes, Mapping) and columns):
        found = read_tables(config)
        tables = {name: table for name, table in found.tables.items() if name not in data.shifted}
        tables = named_clients(config, tables)
        config = with_sizes(
            config, {name: len(table[found.target]) for name, table in tables.items()}
        )
        first = next(iter(tables.values()))
        columns = columns or {name: {} for name in first if name != found.target}
        sizes = config.privacy.sizes  # type: ignore[union-attr]
    d = sum(
        len(how["categories"]) if "categories" in how else 1 + how.get("indicator", False)
        for how in columns.values()
    )
    return config, Public(tuple(sizes), tuple(sizes.values()), d)


def plan(config: Config, public: Public, book: str | os.PathLike[str] | None = None) -> Plan:
    """What the run will cost, from public numbers.

    ``book`` is that of the run where the file names none.

    Raises
    ------
    BudgetSpentError
        where the budget does not pay for all runs; nothing was touched
    """
    problem, algorithm = stated_method(config, public)
    budget = budget_of(config)
    spent = _before(
        budget if book is None else replace(budget, book=book), public.clients, algorithm
    )
    points, spent = _curve(config, budget, algorithm, spent)
    try:
        algorithm = algorithm.planned(problem, public, spent)
    except BudgetSpentError as error:
        more = (
            f" privacy.curve takes {total_epsilon(spent, budget.delta):.4g} of it."
            if points
            else ""
        )
        raise BudgetSpentError(f"{error}{more}") from error
    D = problem.predictor.dimension(public.n_features)
    _, ask = algorithm.server_start(public.n_clients)
    up = encoded_size(Perturbed(shifted=np.zeros((1, D)), gap=np.zeros(1), noise=np.zeros(1)))
    return Plan(
        public=public,
        algorithm=algorithm,
        budget=budget,
        scale=algorithm.plan.multiplier * np.asarray(algorithm.plan.sensitivity),
        accounts=accounts((*spent, *algorithm.releases(algorithm.max_rounds)), budget.delta),
        before=total_epsilon(spent, budget.delta),
        curve=tuple(points),
        up=up,
        down=encoded_size(rows(ask.message, (0,))),
    )


def budget_of(config: Config) -> Budget:
    """The budget as the library has it."""
    assert config.privacy is not None
    return config.privacy.budget(config.folder)


def _before(budget: Budget, clients: tuple[str, ...], algorithm: Any) -> tuple[Release, ...]:
    """What the book has of the client that has least left."""
    if budget.book is None:
        return ()
    ways = {*Book(budget.book).spent(clients, adjacency=budget.adjacency).values()}
    return max(
        ways,
        key=lambda own: noise_for(budget, algorithm.max_rounds, algorithm.mechanism, own),
        default=(),
    )


def _curve(
    config: Config, budget: Budget, algorithm: Any, spent: tuple[Release, ...]
) -> tuple[list[tuple[float, float]], tuple[Release, ...]]:
    """(epsilon alone, E_k) of every run of the curve, and what is spent after them."""
    assert config.privacy is not None
    found = []
    for epsilon in config.privacy.curve:
        if config.privacy.rehearsal:
            found.append((epsilon, epsilon))
            continue
        noise = noise_for(
            replace(budget, epsilon=epsilon, book=None), algorithm.max_rounds, algorithm.mechanism
        )
        spent = (*spent, Release(algorithm.mechanism, noise, algorithm.max_rounds))
        found.append((epsilon, total_epsilon(spent, budget.delta)))
    return found, spent


def public_of(config: Config, n_features: int) -> Public:
    """What is public of a run whose sizes are in its configuration."""
    assert config.privacy is not None
    sizes = config.privacy.sizes
    return Public(tuple(sizes), tuple(sizes.values()), n_features)


def stated_method(config: Config, public: Public) -> tuple[Problem, Any]:
    """The problem for the clients as they are declared, and its method without a plan."""
    problem, arguments = config.problem(), config.solve_arguments()
    over = problem.over_clients.at(np.array(public.sizes), public.clients)
    problem = replace(problem, over_clients=over)
    algorithm: Any = arguments["algorithm"] or default_algorithm(problem, public)  # type: ignore[arg-type]
    rounds = arguments["max_rounds"]
    return problem, algorithm if rounds is None else replace(algorithm, max_rounds=rounds)
