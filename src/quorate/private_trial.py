"""A run within a budget of privacy: what it will cost before it starts, its models, and the privacy-utility curve.

The plan follows from public numbers alone: who takes part, how many rows each declares, how many features there are.

Every run of the curve is a run on the same rows. Unless the rows are public (privacy.rehearsal) it is charged: the
runs go one after the other, each within a total E_k that leaves its own noise at that of its epsilon alone,

    E_k = total(before, R_1, ..., R_k),    R_k = T releases with the noise of (epsilon_k, delta),

and the model of the run has what is left of epsilon after all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array
from quorate.config import Config, ConfigError
from quorate.privacy.accounting import Release, accounts, noise_for, total_epsilon
from quorate.privacy.book import Book
from quorate.privacy.budget import Budget, BudgetSpentError
from quorate.privacy.ledger import WORDS

if TYPE_CHECKING:
    from quorate.parts import Parts
    from quorate.progress import Progress
    from quorate.solution import Solution

CURVE = "curve.json"  # of a working folder: the points that are finished


@dataclass(frozen=True)
class Public:
    """What may be known of the data before a private run; it stands in for a federation where noise is planned."""

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
    accounts : total epsilon at delta when the run has ended, by accountant, earlier runs and the curve included
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
    """The run with a number of rows declared for every client: where the file has none, the share to be trained on of
    those that it has, ``rows``.
    """
    assert config.privacy is not None
    given, share = config.privacy.sizes, 1 - config.data.test
    if isinstance(given, Mapping):
        return config
    sizes = {name: max(1, round(share * n)) if given is None else given for name, n in rows.items()}
    sizes = dict(sorted(sizes.items()))  # the order of the clients' first rows would tell about those
    return config._with(privacy=config.privacy.model_copy(update={"sizes": sizes, "counted": given is None}))


def looked_at(config: Config) -> tuple[Config, Public]:
    """The run with its sizes, and what is public; no file is read where sizes and columns are declared by name."""
    assert config.privacy is not None
    data, sizes = config.data, config.privacy.sizes
    columns = data.columns or {name: {} for name in data.features or ()}
    if not (isinstance(sizes, Mapping) and columns):
        from quorate.parts import _named_clients, _read

        found = _read(config)
        tables = {name: table for name, table in found.tables.items() if name not in data.shifted}
        tables = _named_clients(config, tables)
        config = with_sizes(config, {name: len(table[found.target]) for name, table in tables.items()})
        first = next(iter(tables.values()))
        columns = columns or {name: {} for name in first if name != found.target}
        sizes = config.privacy.sizes  # type: ignore[union-attr]
    d = sum(
        len(how["categories"]) if "categories" in how else 1 + how.get("indicator", False) for how in columns.values()
    )
    return config, Public(tuple(sizes), tuple(sizes.values()), d)


def plan(config: Config, public: Public, book: Path | None = None) -> Plan:
    """What the run will cost, from public numbers.

    ``book`` is that of the run where the file names none.

    Raises
    ------
    BudgetSpentError
        where the budget does not pay for all runs; nothing was touched
    """
    from quorate.algorithms.federated.private_client import Perturbed
    from quorate.default import default_algorithm
    from quorate.rounds import encoded_size, rows

    problem, asked, budget = config.problem(), config.solve_arguments(), budget_of(config)
    problem = replace(problem, over_clients=problem.over_clients.at(np.array(public.sizes), public.clients))
    algorithm = asked["algorithm"] or default_algorithm(problem, public)  # type: ignore[arg-type]
    if asked["max_rounds"] is not None:
        algorithm = replace(algorithm, max_rounds=asked["max_rounds"])
    spent = _before(budget if book is None else replace(budget, book=book), public.clients, algorithm)
    points, spent = _curve(config, budget, algorithm, spent)
    try:
        algorithm = algorithm.planned(problem, public, spent)
    except BudgetSpentError as error:
        more = f" privacy.curve takes {total_epsilon(spent, budget.delta):.4g} of it." if points else ""
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
    return max(ways, key=lambda own: noise_for(budget, algorithm.max_rounds, algorithm.mechanism, own), default=())


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
        noise = noise_for(replace(budget, epsilon=epsilon, book=None), algorithm.max_rounds, algorithm.mechanism)
        spent = (*spent, Release(algorithm.mechanism, noise, algorithm.max_rounds))
        found.append((epsilon, total_epsilon(spent, budget.delta)))
    return found, spent


# ---------------------------------------------------------------------------------------- in words


def protects(config: Config) -> str:
    """Who is protected from what."""
    assert config.privacy is not None
    said = (
        f"Protected is every single row that is trained on ({WORDS[config.privacy.adjacency]}): whoever sees all that "
    )
    said += (
        "travels learns almost the same whether or not the row is as it is. Somebody with several rows is protected "
    )
    return said + "less, by the sum over them; rows of one person at several clients add up as well."


def made_public(config: Config) -> list[str]:
    """What the promise is not about: taken to be known, and in the run."""
    assert config.privacy is not None
    data = config.data
    made = "how every feature is made, as declared" if data.columns else "the names of the columns, taken as they are"
    classes = f"the classes {', '.join(map(str, data.classes))}" if data.classes else "the classes of the target"
    sizes = "the names of the clients, and the number of rows declared for each"
    if config.privacy.counted:
        sizes = "the names of the clients, and how many rows each has, counted"
        if config.privacy.adjacency == "add-remove":
            sizes += ": the promise is about a row that counts, or counts for nothing while its place is known"
    found = [
        sizes,
        f"{made}; {classes}" if config.loss_of_classes else made,
        "the configuration, paths of files included; how many rounds there are and how many bytes each takes",
        "the model after every round, noise included, and how far the clients' noisy copies are from it",
    ]
    if data.partition is not None:
        found.append("which row belongs to which invented client")
    if config.evaluation.public:
        found.append("the rows that the model is judged on (evaluation.public)")
    return found


def stays(config: Config) -> list[tuple[str, str]]:
    """What is withheld from what travels, and why."""
    exact = "computed from the rows exactly, and not charged"
    found = [
        ("objective, certificate and the losses of clients", exact),
        ("digests of the data", "whoever guesses the rows could check the guess"),
        ("warnings about the data", exact),
        ("times", "they depend on the rows, and say little"),
        ("messages of the certificate", "it is made at the owner"),
    ]
    if not config.evaluation.public:
        found.append(("numbers on held-out rows, by model and by client", "these rows are private, too"))
    if config.report.compare_with:
        found.append(("the model without privacy, and all comparisons with it", "trained without noise"))
    if config.privacy is not None and config.privacy.curve:
        found.append(("the models of the curve and its numbers", "judged on private rows"))
    return found


def words(config: Config, found: Plan) -> list[str]:
    """The plan of a run, a line each."""
    a, b, public = found.algorithm, found.budget, found.public
    other = {"gaussian": "closed form", "rdp": "rdp", "basic": "basic composition"}
    totals = [f"{said} {found.accounts[key]:.4g}" for key, said in other.items() if found.accounts.get(key) is not None]
    clip = f"clipped to {a.plan.clip:.4g}" if math.isfinite(a.plan.clip) else "not clipped"
    clip += f", of rows shortened to {a.plan.bound:.4g}" if math.isfinite(a.plan.bound) else ""
    rounds, N = a.max_rounds, public.n_clients
    lines = [
        f"rows, as public: {sum(public.sizes):,} of {N} clients; {public.n_features} features",
        f"rounds: {rounds}, each with one noisy answer of every client",
        f"gradients of rows: {clip} ({'l1' if a.mechanism == 'laplace' else 'l2'} norm)",
        f"noise: {a.mechanism} ({a.plan.source}), {a.plan.multiplier:.4g} times the sensitivity",
        *(
            f"  {name}: {n:,} rows, scale {scale:.4g}"
            for name, n, scale in zip(public.clients, public.sizes, found.scale, strict=True)
        ),
        f"total epsilon at delta = {b.delta:g}: {found.accounts['pld']:.4g} of {b.epsilon:g} (pld, which counts; "
        f"{', '.join(totals)}); {b.adjacency}",
    ]
    if found.before:
        lines.append(f"of it spent before this model: {found.before:.4g}, by earlier runs and by the curve")
    if found.curve:
        how = "not charged, the rows are public" if config.privacy and config.privacy.rehearsal else "charged"
        lines.append(f"curve: epsilon = {', '.join(f'{point:g}' for point, _ in found.curve)} ({how})")
    lines.append(
        f"bytes: {found.up:,} up and {found.down:,} down a client and round, {N * rounds * found.up:,} up and "
        f"{N * rounds * found.down:,} down in all"
    )
    lines += [f"public: {said}" for said in made_public(config)]
    lines += [f"stays with the owner: {what} ({why})" for what, why in stays(config)]
    if config.privacy and config.privacy.rehearsal:
        lines.append(REHEARSAL)
    return lines


REHEARSAL = (
    "A rehearsal: the rows are declared public. Noise that is made from the seed can be subtracted by whoever has the "
    "configuration, and runs of a curve are not charged. Nothing is promised to anybody."
)


def dry_run(config: Config) -> list[str]:
    """What a run would do and cost, in lines; no private value is used."""
    if config.privacy is None:
        raise ConfigError("--dry-run says what a run with [privacy] would spend, and there is none: add it, or leave "
                          "--dry-run out")  # fmt: skip
    config, public = looked_at(config)
    return [*words(config, plan(config, public)), "nothing was run"]


# ---------------------------------------------------------------------------------------- the runs


def train_private(
    config: Config,
    parts: Parts,
    work: Path,
    *,
    resume: bool = False,
    show: Progress | None = None,
) -> tuple[dict[str, Solution], list[dict[str, Any]]] | None:
    """The models by name, the private one first, and the points of the curve; None when interrupted.

    ``config`` has its sizes. The curve comes first, since the model has what it leaves.
    """
    from quorate.rounds import Stop
    from quorate.trial import train

    assert config.privacy is not None
    problem, points, budget = config.problem(), [], budget_of(config)
    if config.privacy.curve:
        if budget.book is None and not config.privacy.rehearsal:
            problem = replace(problem, privacy=replace(budget, book=work / "book.json"))
        found = _trained_curve(config, problem, parts, work, resume, show)
        if found is None:
            return None
        points = found
    more: dict[str, Any] = {"folder": work, "resume": resume, "problem": problem}
    if show is not None:
        more |= {"watch": show.watch, "done": lambda m, s: show.done(m, s.outcome.text)}
    models = train(config, parts, **more)
    if any(s.outcome.stop is Stop.INTERRUPTED for s in models.values()):
        return None
    return models, points


def _trained_curve(
    config: Config, problem: Any, parts: Parts, work: Path, resume: bool, show: Progress | None
) -> list[dict[str, Any]] | None:
    from quorate.charge import was_begun
    from quorate.rounds import Stop
    from quorate.solution import solve

    assert config.privacy is not None
    file = work / CURVE
    kept = json.loads(file.read_text("utf-8")) if resume and file.is_file() else {"plan": [], "points": []}
    if not kept["plan"]:
        sizes = config.privacy.sizes
        public = Public(tuple(sizes), tuple(sizes.values()), parts.owners.n_features)
        kept["plan"] = [list(point) for point in plan(config, public, problem.privacy.book).curve]
        file.write_text(json.dumps(kept), "utf-8")
    for k, (epsilon, total) in enumerate(kept["plan"]):
        if k < len(kept["points"]):
            continue
        budget = replace(problem.privacy, epsilon=total, **({"book": None} if config.privacy.rehearsal else {}))
        path, name = work / f"curve-{k}.checkpoint", f"epsilon {epsilon:g}"
        again = resume and was_begun(path)
        arguments: dict[str, Any] = {**config.solve_arguments(path), "seed": config.seed + 1 + k}
        see = () if show is None else (show.watch(name),)
        made = solve(replace(problem, privacy=budget), parts.train, **arguments, watch=see, resume=again)
        if made.outcome.stop is Stop.INTERRUPTED:
            return None
        if show is not None:
            show.done(name, made.outcome.text)
        kept["points"].append(point_of(epsilon, made.ledger, problem, made.w, parts))
        file.write_text(json.dumps(kept), "utf-8")
    return kept["points"]


def point_of(epsilon: float, ledger: Any, problem: Any, w: Array, parts: Parts) -> dict[str, Any]:
    """One point of the curve: what it was run with, and how its model does. For the owner."""
    own = next(iter(ledger.releases.values()))
    alone = total_epsilon(own, ledger.budget.delta)
    return {"epsilon": epsilon, "alone": alone, "noise": own[-1].noise, "w": w.tolist(), **judged(problem, w, parts)}


def judged(problem: Any, w: Array, parts: Parts) -> dict[str, Any]:
    """The exact objective on the training rows, and loss and accuracy (or error) on every other set."""
    from quorate.trial import measure

    found = {name: measure(problem, w, fed) for name, fed in parts.tests.items()}
    keys = ("loss", "accuracy", "error", "worst_loss")
    sets = {name: {key: row[key] for key in keys if key in row} for name, row in found.items()}
    return {"value": problem.objective(w, parts.train), "sets": sets}


def run_private(config: Config, parts: Parts, work: Path, resume: bool, show: Progress | None) -> Path | None:
    """Plan, train, judge and write; the folder of the run, None when interrupted."""
    from quorate.private_run import write_private
    from quorate.trial import evaluate

    config = with_sizes(config, parts.rows)
    found = train_private(config, parts, work, resume=resume, show=show)
    if found is None:
        return None
    models, points = found
    weights = {name: s.w for name, s in models.items()}
    evaluation = evaluate(config.problem(), weights, parts.tests, parts.ranked)
    return write_private(work.parent, config, models, points, parts, evaluation)
