"""What a run within a privacy budget will cost, what it guarantees, and what its noise may do,
before it starts.

The plan follows from public numbers only: who takes part, how many rows each declares, how many
features there are.

Every run of a sweep of budgets is a run on the same rows. Unless the rows are public
(privacy.rehearsal) it is charged: the runs go one after the other, each within a total E_k that
leaves the noise at that of its epsilon only,

    E_k = total(before, R_1, ..., R_k),    R_k = T releases with the noise of (epsilon_k, delta),

and the model of the run has what is left of epsilon after all of them.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.config.sections import PrivacySection
from bonafed.privacy.accounting import Release, accounts, total_epsilon
from bonafed.privacy.bounds import best_accuracy, information
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.ledger import WORDS, Book, views
from bonafed.problem.problem import Problem
from bonafed.rounds import encoded_size, rows
from bonafed.runs.splits import HELD_OUT, Parts, prepare, read_tables, trained_clients
from bonafed.solution.plan import default_algorithm
from bonafed.text import all_true

Releases: TypeAlias = tuple[Release, ...]
ACCURACY = (  # at the end of a dry run
    "accuracy: not foretold, it depends on the rows; hold that of the run against the share of the"
    " commoner class, and try rehearsal = true on public rows like these"
)


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
        name: max(1, round(share * n)) if counted else privacy.sizes
        for name, n in sorted(rows.items())
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
    widths = (len(c.get("categories", [""])) + c.get("indicator", False) for c in columns.values())
    return config, public_of(config, sum(widths))


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
    totals = accounts((*spent, *algorithm.releases(rounds)), budget.delta)
    up, down = encoded_size(algorithm.answer_alike(D)), encoded_size(asked)
    given = public, algorithm, noise, budget, noise.scale, other
    return Plan(*given, totals, before, tuple(points), up, down)


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
    book = Book(budget.book)
    book.check_view(budget, clients)
    spent = {*book.spent(clients, adjacency=budget.adjacency).values()}
    return max(spent, key=lambda each: algorithm.noise_for(budget, each), default=())


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


# ----------------------------------------------------------------------------------------- in words

REHEARSAL = (
    "A rehearsal: the rows are declared public. Noise that is made from the seed can be subtracted"
    " by anyone who has the configuration, and runs of a sweep are not charged. Nothing is"
    " guaranteed to anybody."
)
TOTALS = {"gaussian": "closed form", "rdp": "rdp", "basic": "basic composition"}


def protects(config: Config) -> str:
    """Who is protected from what."""
    privacy = privacy_of(config)
    seen = "all that travels" if privacy.view == "answers" else "the sums over all clients"
    return (
        f"Protected is every single row that is trained on ({WORDS[privacy.adjacency]}): anyone who"
        f" sees {seen} learns almost the same whether or not the row is as it is. Somebody with"
        " several rows is protected less, by the sum over them; rows of one person at several"
        " clients add up as well."
    )


def made_public(config: Config) -> list[str]:
    """What the guarantee does not cover: what is taken to be known, and is in the run."""
    data, privacy = config.data, privacy_of(config)
    counted = privacy.counted and privacy.adjacency == "add-remove"
    features = "how every feature is made, as declared"
    if not data.columns:
        features = "the names of the columns, taken as they are"
    if config.loss_of_classes:
        named = f" {', '.join(map(str, data.classes))}" if data.classes else " of the target"
        features += f"; the classes{named}"
    public = {
        "the names of the clients, and how many rows each has, counted: the guarantee is about a"
        " row that counts, or counts for nothing while its place is known": counted,
        "the names of the clients, and how many rows each has, counted": (
            privacy.counted and not counted
        ),
        "the names of the clients, and the number of rows declared for each": not privacy.counted,
        features: True,
        "the configuration, paths of files included; how many rounds there are and how many bytes"
        " each takes": True,
        "the model after every round, noise included, and how far the clients' noisy copies are"
        " from it": True,
        "when each client answers, as its server and the engine see it": data.sites is not None,
        "which row belongs to which invented client": data.partition is not None,
        "the rows that the model is judged on (evaluation.public)": config.evaluation.public,
    }
    return all_true(public)


def stays(config: Config) -> list[tuple[str, str]]:
    """What is withheld, and why."""
    if config.data.sites is not None:
        why = "their sites compute none of it for a private run"
        return [("objective, certificate, losses, and digests of the rows", why)]
    exact = "computed from the rows exactly, and not charged"
    withheld = {
        "objective, certificate and the losses of clients": exact,
        "digests of the data": "anyone who guesses the rows could check the guess",
        "warnings about the data": exact,
        "times": "they depend on the rows, and say little",
        "messages of the certificate": "it is made at the owner",
        "numbers on held-out rows, by model and by client": (
            "these rows are private, too" * (not config.evaluation.public)
        ),
        "the model without privacy, and all comparisons with it": (
            "trained without noise" * bool(config.report.compare_with)
        ),
        "the models of the sweep and its numbers": (
            "judged on private rows" * bool(config.budgets)
        ),
    }
    return [(what, why) for what, why in withheld.items() if why]


def words(config: Config, plan: Plan) -> list[str]:
    """The plan of a run, a line each."""
    rehearsal, answers = privacy_of(config).rehearsal, plan.public.n_clients
    answers *= plan.algorithm.max_rounds
    return [
        *_noise(plan),
        *_allowed(plan, bool(config.loss_of_classes)),
        *_spent(plan, rehearsal),
        f"bytes: {plan.up:,} up and {plan.down:,} down a client and round, {answers * plan.up:,} up"
        f" and {answers * plan.down:,} down in all",
        *(f"public: {text}" for text in made_public(config)),
        *(f"stays with the owner: {what} ({why})" for what, why in stays(config)),
        *[REHEARSAL] * rehearsal,
    ]


def _noise(plan: Plan) -> list[str]:
    """Who answers how often, and with how much noise."""
    algorithm, noise, public = plan.algorithm, plan.noise, plan.public
    clip = f"clipped to {noise.clip:.4g}" if math.isfinite(noise.clip) else "not clipped"
    clip += f", of rows shortened to {noise.bound:.4g}" if math.isfinite(noise.bound) else ""
    norm = "l1" if algorithm.mechanism == "laplace" else "l2"
    sizes = zip(public.clients, public.sizes, plan.scale, strict=True)
    sample = f", in which every row takes part with probability {noise.rate:g}" * (noise.rate < 1)
    return [
        f"rows, as public: {sum(public.sizes):,} of {public.n_clients} clients;"
        f" {public.n_features} features",
        f"rounds: {algorithm.max_rounds}, each with one noisy answer of every client{sample}",
        f"gradients of rows: {clip} ({norm} norm)",
        f"noise: {algorithm.mechanism} ({noise.source}), {noise.multiplier:.4g} times the"
        f" sensitivity{' in the sum of all clients' * (noise.missing is not None)}",
        *(f"  {name}: {n:,} rows, scale {scale:.4g}" for name, n, scale in sizes),
    ]


def _allowed(plan: Plan, classes: bool) -> list[str]:
    """How far noise takes the model, and the best accuracy that it allows."""
    noise, public, method = plan.noise, plan.public, plan.algorithm
    nu = noise.deviation / math.sqrt(noise.rounds)
    lines = [
        f"noise of all rounds: {nu:.3g} in every entry of the mean gradient of all rows, of which"
        f" rows that all agree make {noise.clip:.3g}"
    ]
    if isinstance(method, PrivateSGD):
        lines.append(
            f"steps: {method.length_of_way:.4g} in all, so that noise by itself moves a"
            f" coefficient by about {method.length_of_way * nu:.3g}"
        )
    if not classes:
        return lines
    best = []
    for k in sorted({k for k in (1, 10, 100) if k < public.n_features} | {public.n_features}):
        told = information(public.sizes, noise.multiplier, noise.spread, noise.rounds, k)
        best.append(f"{100 * best_accuracy(told, k):.3g} % in {k}")
    lines.append(
        "accuracy at best, if rows point in all of so many directions alike and a plane through the"
        f" middle tells two classes apart without error: {', '.join(best)}; no linear model from"
        " such answers has more on average over these planes"
    )
    return lines


def _spent(plan: Plan, rehearsal: bool) -> list[str]:
    """The total of the run, and what of it others spend before."""
    budget, totals = plan.budget, plan.accounts
    known = {name: totals[key] for key, name in TOTALS.items() if totals.get(key) is not None}
    others = ", ".join(f"{name} {total:.4g}" for name, total in known.items())
    charged = "not charged, the rows are public" if rehearsal else "charged"
    points = ", ".join(f"{point:g}" for point, _ in plan.sweep)
    lines = {
        f"total epsilon at delta = {budget.delta:g}: {totals['pld']:.4g} of {budget.epsilon:g}"
        f" (pld, which counts; {others}); {budget.adjacency}": True,
        views(budget, plan.other): True,
        f"of it spent before this model: {plan.before:.4g}, by earlier runs and by the sweep": (
            plan.before
        ),
        f"sweep: epsilon = {points} ({charged})": plan.sweep,
    }
    return all_true(lines)


# ---------------------------------------------------------------------------------- declared ranges
#
# A row outside is trained on as it is. Many of them say that a declared range is a slip, which
# would waste the budget: so their owner hears of them before anything is spent, in the terminal
# and nowhere else.

OWNER = "to you only, the owner of the rows:"


def told_before(config: Config) -> list[str]:
    """What a dry run tells the owner, where the rows are here and can be read."""
    if config.privacy is None or config.data.path is None:
        return []
    try:
        return told(config, prepare(config))
    except OSError:
        return [f"{OWNER} the rows are not here, so nothing is known of the declared ranges"]
    except ValueError as error:
        return [f"{OWNER} the rows cannot be read yet: {line}" for line in str(error).split("\n")]


def told(config: Config, parts: Parts) -> list[str]:
    """How many rows to train and to judge on lie outside of each declared range."""
    if config.privacy is None or config.data.path is None:
        return []
    ranges = {name: c for name, c in (config.data.columns or {}).items() if "min" in c}
    held = [parts.tests[HELD_OUT]] if HELD_OUT in parts.tests else []
    feds = [parts.owners, *held]
    n = int(sum(fed.sizes.sum() for fed in feds))
    lines = []
    for name, how in ranges.items():
        # the first feature of a column is x' = (x - min) / (max - min), with its rounding
        at = parts.owners.feature_names.index(name)
        x = np.concatenate([X[:, at] for fed in feds for X in fed.X])
        if count := int(((x < -1e-9) | (x > 1 + 1e-9)).sum()):
            lines.append(
                f"{OWNER} {count} of {n} rows have {name!r} outside of {how['min']:g} to"
                f" {how['max']:g}; if that is a slip, correct the range before you spend"
            )
    if ranges and not lines:
        lines.append(f"{OWNER} all {n} rows lie within the declared ranges")
    return lines
