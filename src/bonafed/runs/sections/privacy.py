"""The guarantee of a private run: its releases, what they cost, and checks that they add up.

Nobody can see afterwards that the noise was drawn and the model made with it. What can be checked
is that the ledger adds up to what is stated, and that it pays for what was sent.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.client_names import ClientName
from bonafed.config.config import Config
from bonafed.privacy.accounting import Release, accounts, total_epsilon
from bonafed.privacy.ledger import Book, Ledger, views
from bonafed.runs import forms, privacy_plan
from bonafed.runs.checks import Check, compared, not_checked, nothing
from bonafed.runs.files import Record, Row, plain
from bonafed.runs.privacy_plan import budget_of, privacy_of, public_of
from bonafed.runs.sections.section import Inputs, Run, Section
from bonafed.solution.outcome import budget_used

Releases: TypeAlias = Mapping[str, Sequence[Any]]  # by client, as in result.json
Spent: TypeAlias = dict[ClientName, tuple[Release, ...]]


class Privacy(Section):
    """Differential privacy: the guarantee, what every client has spent, and what is withheld."""

    name = "privacy"
    keys = forms.needs(forms.GUARANTEE, "privacy") | forms.needs(list[forms.WITHHELD], "withheld")
    public = True
    at_sites = True

    def applies(self, config: Config) -> bool:
        return config.privacy is not None

    def result(self, inputs: Inputs) -> Record:
        """The guarantee and the ledger, as they follow from the configuration and the releases."""
        if inputs.ledger is None or not self.applies(inputs.config):
            return {}
        return stated_of(inputs.config, inputs.ledger, inputs.parts.train.n_features)

    def check_alone(self, run: Run) -> Iterator[Check]:
        """The public part adds up, and the ledger file knows of the run."""
        if not self.applies(run.config):
            return
        yield from _check_ledger(run)
        if run.owner is not None:
            yield from _check_ledger_file(run.owner)

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        """Nothing of it depends on the data."""
        yield from ()


def _rows(releases: Mapping[ClientName, Sequence[Release]]) -> dict[str, list[list[Any]]]:
    """Releases by client, as in result.json."""
    return {str(name): [r.entry for r in each] for name, each in releases.items()}


def stated_of(config: Config, ledger: Ledger, n_features: int) -> Record:
    """What a run states of privacy, of what every client has spent."""
    before = {client: spent for client, spent in _rows(ledger.before).items() if spent}
    made = guarantee(config, n_features, _rows(ledger.releases), before)
    return {"privacy": made, "withheld": withheld(config)}


def withheld(config: Config) -> list[dict[str, str]]:
    """What stays with the owner, and why."""
    return [{"what": what, "why": why} for what, why in privacy_plan.stays(config)]


def views_of(
    config: Config,
    public: privacy_plan.Public,
    algorithm: PrivateMethod,
    releases: Releases,
    before: Releases,
) -> Record:
    """For whom the guarantee holds, and the total of anyone who has the other view."""
    budget, places = budget_of(config), {name: p for p, name in enumerate(public.clients)}
    here: Spent = {client: read_releases(each) for client, each in releases.items()}
    past: Spent = {client: read_releases(each) for client, each in before.items()}
    other: Spent = {}
    for client, each in here.items():
        count, place = sum(release.count for release in each), places[str(client)]
        if seen := algorithm.releases(count, place, budget.other_view):
            other[client] = seen
    ledger = Ledger(budget, here, past, dict.fromkeys(here, 1), "", other=other)
    total = ledger.epsilon_of(budget.other_view)
    return {
        "view": budget.view,
        "missing": budget.missing,
        "text": views(budget, total),
        "total": total,
        "clients": {client: ledger.total_of(client, budget.other_view) for client in here},
    }


def ledger_table(
    config: Config, scales: Mapping[str, float], releases: Releases, before: Releases
) -> list[Record]:
    """One row a client: rows as public, answers, noise, its scale, total epsilon by accountant,
    what is left.
    """
    privacy, rows = privacy_of(config), []
    for client, each in releases.items():
        here, past = read_releases(each), read_releases(before.get(client, ()))
        totals, noise = accounts((*past, *here), privacy.delta), here[-1].noise if here else None
        row = {
            "client": client,
            "rows": privacy.sizes[client],
            "answers": sum(release.count for release in here),
            "noise": noise,
            "scale": None if noise is None else scales[client],
            "epsilon": totals["pld"],
            "before": total_epsilon(past, privacy.delta) if past else 0.0,
            **{key: totals.get(key) for key in ("gaussian", "rdp", "basic")},
            "left": max(privacy.epsilon - float(totals["pld"] or 0.0), 0.0),
        }
        rows.append(row)
    return rows


def read_releases(rows: Sequence[Any]) -> tuple[Release, ...]:
    """The releases of one client in result.json."""
    return tuple(
        Release(str(kind), float(noise), int(count), *map(float, more))
        for kind, noise, count, *more in rows
    )


def guarantee(config: Config, n_features: int, releases: Releases, before: Releases) -> Record:
    """What result.json states of privacy: it follows from the configuration and the releases
    only.
    """
    p, public = privacy_of(config), public_of(config, n_features)
    problem, algorithm = privacy_plan.stated_method(config, public)
    problem = replace(problem, privacy=replace(budget_of(config), book=None))
    # the method with the noise of these releases; the rest of its plan is from public numbers. In
    # the view "sum" the client whose records count most has the noise that was planned
    algorithm, noise = privacy_plan.planned(algorithm, problem, public)
    found = [release.noise for each in releases.values() for release in read_releases(each)]
    noise = replace(noise, multiplier=min(found, default=noise.multiplier))
    algorithm = replace(algorithm, plan=noise)
    scales = dict(zip(public.clients, noise.scale.tolist(), strict=True))
    rows = ledger_table(config, scales, releases, before)
    made = {
        "epsilon": max((row["epsilon"] for row in rows), default=0.0),
        "delta": p.delta,
        "allowed": p.epsilon,
        "adjacency": p.adjacency,
        "book": p.book is not None,
        "protects": privacy_plan.protects(config),
        "public": privacy_plan.made_public(config),
        "rehearsal": privacy_plan.REHEARSAL if p.rehearsal else "",
        "sweep": list(map(float, config.budgets)),
        "mechanism": algorithm.mechanism,
        **{key: getattr(noise, key) for key in ("source", "clip", "bound")},
        "rounds": algorithm.max_rounds,
        "ledger": rows,
        "releases": releases,
        "before": before,
        "views": views_of(config, public, algorithm, releases, before),
    }
    return plain(made)


def client_weights(config: Config) -> dict[str, float]:
    """The weight of every client in the objective, from public sizes."""
    public = public_of(config, 0)
    over = config.problem().over_clients.at(np.array(public.sizes), public.clients)
    return dict(zip(public.clients, over.project(np.zeros(public.n_clients)).tolist(), strict=True))


# ---------------------------------------------------------------------------------------- checks


def _check_ledger(run: Run) -> Iterator[Check]:
    """The public part, from itself only: what was spent, by whom, for how many answers."""
    result, config, stated = run.result, run.config, run.result["privacy"]
    public = public_of(config, len(run.schema.feature_names))
    again = guarantee(config, public.n_features, stated["releases"], stated["before"])
    yield compared("privacy", stated, again)
    if stated["delta"] != again["delta"]:
        yield Check("privacy", False, f"delta is {again['delta']:g} in the configuration")
    text = "that the noise was drawn, the model made with it, and nothing more spent before"
    model = () if run.owner is not None else ("model.safetensors: w",)
    settings = (f"config.toml: {table}" for table in ("algorithm", "engine", "seed"))
    yield not_checked("privacy", text, *model, *settings)
    spent, allowed = again["epsilon"], again["allowed"]
    within = spent <= allowed * (1 + 1e-9)
    text = f"epsilon = {spent:.6g} of {allowed:g} at delta = {again['delta']:g}"
    yield Check("budget", within, text + ": more than is allowed" * (not within))
    answers = {row["answers"] for row in again["ledger"]}
    every = answers | {len(run.history), result["rounds"], stated["rounds"]}
    paid = bool(answers) and len(every) == 1
    for each in stated["releases"].values():
        paid = paid and len(each) == 1 and each[0][0] == stated["mechanism"]
    text = f"{len(run.history)} rounds, and {'not ' * (not paid)}as many answers are paid for"
    yield Check("answers", paid, text)
    yield _check_sweep(config, public, again)
    declared, weights = [*zip(public.clients, public.sizes, strict=True)], client_weights(config)
    same = [(row["client"], row["n"]) for row in result["clients"]] == declared
    same = same and {*stated["releases"]} == {*public.clients}
    for row in result["clients"]:
        same = same and math.isclose(row["weight"], weights[row["client"]])
    text = "as public" if same else "differ from what the configuration declares"
    yield Check("clients", same, text)
    text = "what happened in the rounds, and what was sent"
    kept = ("messages", "clients.bytes_up", "clients.bytes_down")
    yield not_checked("history", text, "history.jsonl", *(f"result.json: {key}" for key in kept))
    ended = budget_used(len(run.history))
    outcome = {"stop": ended.stop.value, "text": ended.text}
    yield compared("outcome", result["outcome"], outcome)
    yield compared("withheld", result["withheld"], withheld(config))


def _check_sweep(config: Config, public: privacy_plan.Public, stated: Row) -> Check:
    """Every run of a sweep that is charged is among what was spent before the model."""
    privacy, missing = privacy_of(config), []
    for epsilon in () if privacy.rehearsal else config.budgets:
        for place, client in enumerate(public.clients):
            release = of_point(config, public, epsilon, place)
            spent = read_releases(stated["before"].get(client, ()))
            if not any(_alike(release, each) for each in spent):
                missing.append(f"the run at epsilon {epsilon:g} of {client}")
    return nothing("charged sweep", missing, "its runs are charged", "not charged")


def of_point(
    config: Config, public: privacy_plan.Public, epsilon: float, client: int | None = None
) -> Release:
    """What a run of the sweep releases of a client, or of the one whose records count most: noise
    as for its epsilon only.
    """
    problem, algorithm = privacy_plan.stated_method(config, public)
    budget = replace(budget_of(config), epsilon=epsilon, book=None)
    method = algorithm.planned(replace(problem, privacy=budget), public)
    (release,) = method.releases(method.max_rounds, client)
    return release


def _alike(due: Release, release: Release) -> bool:
    """Whether a release is as planned; its noise comes from a total, by bisection."""
    same = replace(due, noise=1.0) == replace(release, noise=1.0)
    return same and math.isclose(due.noise, release.noise, rel_tol=1e-4)


def _check_ledger_file(owner: Run) -> Iterator[Check]:
    """Check that the ledger file is not older than the run."""
    privacy, digest = owner.config.privacy, owner.result.get("book")
    if privacy is None:
        return
    name, path = "owner/book", owner.config.folder / (privacy.book or "")
    if not digest or not path.is_file():
        lacks = f"{path.name} is not here" if digest else "the run has no digest of it"
        lacks = lacks if privacy.book else "the configuration names none"
        text = f"whether the ledger file knows of this run: {lacks}"
        yield not_checked(name, text, "owner/result.json: book")
        return
    try:
        known = Book(path).knows(digest)
    except (OSError, ValueError) as error:
        yield Check(name, False, str(error))
        return
    text = "knows of this run" if known else "is older than this run: restore its newest copy"
    yield Check(name, known, text)
