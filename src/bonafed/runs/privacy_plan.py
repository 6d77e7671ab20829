"""What a run within a privacy budget will cost, before it starts.

The plan follows from public numbers only: who takes part, how many rows each declares, how many
features there are.

Every run of a sweep of budgets is a run on the same rows. Unless the rows are public
(privacy.rehearsal) it is charged: the runs go one after the other, each within a total E_k that
leaves the noise at that of its epsilon only,

    E_k = total(before, R_1, ..., R_k),    R_k = T releases with the noise of (epsilon_k, delta),

and the model of the run has what is left of epsilon after all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.config.privacy import PrivacySection
from bonafed.privacy.accounting import Release, accounts, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.ledger import Book
from bonafed.problem.problem import Problem
from bonafed.rounds import encoded_size, rows
from bonafed.runs.datasets import read_tables
from bonafed.runs.splits import trained_clients
from bonafed.solution.plan import default_algorithm

Releases: TypeAlias = tuple[Release, ...]


@dataclass(frozen=True)
class Public:
    """The public numbers about the data of a private run, which stand in for a federation where
    noise is planned.
    """

    clients: tuple[str, ...]
    sizes: tuple[int, ...]
    n_features: int

    @property
    def n_clients(self) -> int:
        return len(self.clients)


@dataclass(frozen=True)
class Plan:
    """What a private run will do and cost.

    Attributes
    ----------
    public : who takes part, rows as public, features
    algorithm, noise : the method, and its noise as planned
    scale : (N,) the scale of each client's noise, in the units of its share of the gradient
    other : total epsilon of anyone who has the other view than the budget's; None where not known
    accounts : total epsilon at delta when the run has ended, by accountant, earlier runs and the
        sweep included
    before : total epsilon that is spent before this model, the sweep included
    sweep : (epsilon only, total E_k at which it is run) of every run of the sweep
    up, down : bytes of one client in one round
    """

    public: Public
    algorithm: PrivateMethod
    noise: Mechanism
    budget: Budget
    scale: Array
    other: float | None
    accounts: Mapping[str, float | None]
    before: float
    sweep: tuple[tuple[float, float], ...]
    up: int
    down: int


def privacy_of(config: Config) -> PrivacySection:
    """The [privacy] of a private run."""
    assert config.privacy is not None
    return config.privacy


def with_sizes(config: Config, rows: Mapping[str, int]) -> Config:
    """The run with a number of rows declared for every client: where the file has none, the share
    to be trained on of those that it has, ``rows``.
    """
    privacy, share = privacy_of(config), 1 - config.data.test
    if isinstance(privacy.sizes, Mapping):
        return config
    counted = privacy.sizes is None
    # sorted, since the order of the clients' first rows would disclose something about them
    sizes = {
        name: max(1, round(share * rows[name])) if counted else privacy.sizes
        for name in sorted(rows)
    }
    return config._with(privacy=privacy.model_copy(update={"sizes": sizes, "counted": counted}))


def stated_sizes(config: Config) -> Config:
    """A run over sites with a number of rows for each of them by name; any other as it is."""
    sites = config.data.sites
    if sites is None or config.privacy is None:
        return config
    return with_sizes(config, dict.fromkeys(sites, 0))  # which declare their sizes


def with_public_numbers(config: Config) -> tuple[Config, Public]:
    """The run with its sizes, and what is public; no file is read where sizes and columns are
    declared by name.
    """
    data = config.data
    config = stated_sizes(config)
    columns = data.columns or {name: {} for name in data.reading.made(data.features or ())}
    if not (isinstance(privacy_of(config).sizes, Mapping) and columns):
        source = read_tables(config)
        tables = trained_clients(config, source)
        rows = {name: len(table[source.target]) for name, table in tables.items()}
        config, first = with_sizes(config, rows), next(iter(tables.values()))
        columns = columns or {name: {} for name in first if name != source.target}
    d = sum(
        len(how["categories"]) if "categories" in how else 1 + how.get("indicator", False)
        for how in columns.values()
    )
    return config, public_of(config, d)


def plan(config: Config, public: Public, book: str | os.PathLike[str] | None = None) -> Plan:
    """What the run will cost, from public numbers.

    ``book`` is the ledger file of the run where the configuration names none.

    Raises
    ------
    BudgetSpentError
        where the budget does not pay for all runs; nothing was charged
    """
    problem, algorithm = stated_method(config, public)
    budget = budget_of(config)
    ledger = budget if book is None else replace(budget, book=book)
    points, spent = _sweep(config, budget, algorithm, _before(ledger, public.clients, algorithm))
    before = total_epsilon(spent, budget.delta)
    try:
        algorithm, noise = planned(algorithm, problem, public, spent)
    except BudgetSpentError as error:
        more = f" [sweep] takes {before:.4g} of it." if points else ""
        raise BudgetSpentError(f"{error}{more}") from error
    rounds, other = algorithm.max_rounds, None
    seen = algorithm.releases(rounds, view=budget.other_view)
    if seen and (budget.view == "answers" or not spent):
        other = total_epsilon((*spent, *seen), budget.delta)
    D = problem.predictor.dimension(public.n_features)
    asked = rows(algorithm.ask(np.zeros(D), 1).message, (0,))
    return Plan(
        public=public,
        algorithm=algorithm,
        noise=noise,
        budget=budget,
        scale=noise.scale,
        other=other,
        accounts=accounts((*spent, *algorithm.releases(rounds)), budget.delta),
        before=before,
        sweep=tuple(points),
        up=encoded_size(algorithm.answer_alike(D)),
        down=encoded_size(asked),
    )


def planned(
    algorithm: PrivateMethod, problem: Problem, public: Public, spent: Releases = ()
) -> tuple[PrivateMethod, Mechanism]:
    """The method with its noise planned, and the noise."""
    algorithm = algorithm.planned(problem, public, spent)
    assert algorithm.plan is not None
    return algorithm, algorithm.plan


def budget_of(config: Config) -> Budget:
    """The budget as the library has it."""
    return privacy_of(config).budget(config.folder)


def _before(budget: Budget, clients: tuple[str, ...], algorithm: PrivateMethod) -> Releases:
    """The releases in the ledger file of the client that has least left."""
    if budget.book is None:
        return ()

    Book(budget.book).check_view(budget, clients)
    by_client = Book(budget.book).spent(clients, adjacency=budget.adjacency)
    return max(
        {*by_client.values()}, key=lambda spent: algorithm.noise_for(budget, spent), default=()
    )


def _sweep(
    config: Config, budget: Budget, algorithm: PrivateMethod, spent: Releases
) -> tuple[list[tuple[float, float]], Releases]:
    """(epsilon only, E_k) of every run of the sweep, and what is spent after them."""
    points, privacy = [], privacy_of(config)
    for epsilon in config.budgets:
        if privacy.rehearsal:
            points.append((epsilon, epsilon))
            continue
        spent = (*spent, algorithm.alone(replace(budget, epsilon=epsilon, book=None)))
        points.append((epsilon, total_epsilon(spent, budget.delta)))
    return points, spent


def public_of(config: Config, n_features: int) -> Public:
    """What is public of a run whose sizes are in its configuration."""
    sizes = privacy_of(config).sizes
    return Public(tuple(sizes), tuple(sizes.values()), n_features)


def stated_method(config: Config, public: Public) -> tuple[Problem, PrivateMethod]:
    """The problem for the clients as they are declared, and its method without a plan."""
    problem, arguments = config.problem(), config.solve_arguments()
    over = problem.over_clients.at(np.array(public.sizes), public.clients)
    problem = replace(problem, over_clients=over)
    fed: Any = public  # of which sizes and clients are used
    algorithm = arguments["algorithm"] or default_algorithm(problem, fed)
    assert isinstance(algorithm, PrivateMethod)
    rounds = arguments["max_rounds"]
    return problem, algorithm if rounds is None else replace(algorithm, max_rounds=rounds)
