"""What a private run guarantees, what is public of it and what is withheld, in sentences."""

from __future__ import annotations

import math

from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.config.config import Config
from bonafed.privacy.bounds import best_accuracy, information
from bonafed.privacy.ledger import WORDS, views
from bonafed.runs.privacy_plan import Plan, privacy_of

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
        "Protected is every single row that is trained on"
        f" ({WORDS[privacy.adjacency]}): anyone who sees {seen} learns almost the"
        " same whether or not the row is as it is. Somebody with several rows is protected less, by"
        " the sum over them; rows of one person at several clients add up as well."
    )


def made_public(config: Config) -> list[str]:
    """What the guarantee does not cover: what is taken to be known, and is in the run."""
    data, privacy = config.data, privacy_of(config)
    sizes = "the names of the clients, and the number of rows declared for each"
    if privacy.counted:
        sizes = "the names of the clients, and how many rows each has, counted"
        if privacy.adjacency == "add-remove":
            sizes += (
                ": the guarantee is about a row that counts, or counts for nothing while its place"
                " is known"
            )
    features = "the names of the columns, taken as they are"
    if data.columns:
        features = "how every feature is made, as declared"
    if config.loss_of_classes:
        named = f" {', '.join(map(str, data.classes))}" if data.classes else " of the target"
        features += f"; the classes{named}"
    public = [
        sizes,
        features,
        "the configuration, paths of files included; how many rounds there are and how many bytes"
        " each takes",
        "the model after every round, noise included, and how far the clients' noisy copies are"
        " from it",
    ]
    if data.sites is not None:
        public.append("when each client answers, as its server and the engine see it")
    if data.partition is not None:
        public.append("which row belongs to which invented client")
    if config.evaluation.public:
        public.append("the rows that the model is judged on (evaluation.public)")
    return public


def stays(config: Config) -> list[tuple[str, str]]:
    """What is withheld, and why."""
    if config.data.sites is not None:
        why = "their sites compute none of it for a private run"
        return [("objective, certificate, losses, and digests of the rows", why)]
    exact = "computed from the rows exactly, and not charged"
    withheld = [
        ("objective, certificate and the losses of clients", exact),
        ("digests of the data", "anyone who guesses the rows could check the guess"),
        ("warnings about the data", exact),
        ("times", "they depend on the rows, and say little"),
        ("messages of the certificate", "it is made at the owner"),
    ]
    if not config.evaluation.public:
        private = "these rows are private, too"
        withheld.append(("numbers on held-out rows, by model and by client", private))
    if config.report.compare_with:
        model = "the model without privacy, and all comparisons with it"
        withheld.append((model, "trained without noise"))
    if config.budgets:
        withheld.append(("the models of the sweep and its numbers", "judged on private rows"))
    return withheld


def words(config: Config, plan: Plan) -> list[str]:
    """The plan of a run, a line each."""
    rehearsal = privacy_of(config).rehearsal
    return [
        *_noise(plan),
        *_allowed(plan, bool(config.loss_of_classes)),
        *_spent(plan, rehearsal),
        _traffic(plan),
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
    sample = ""
    if noise.rate < 1:
        sample = f", in which every row takes part with probability {noise.rate:g}"
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
    others = [
        f"{name} {totals[key]:.4g}" for key, name in TOTALS.items() if totals.get(key) is not None
    ]
    lines = [
        f"total epsilon at delta = {budget.delta:g}: {totals['pld']:.4g} of {budget.epsilon:g}"
        f" (pld, which counts; {', '.join(others)}); {budget.adjacency}"
    ]
    lines.append(views(budget, plan.other))
    if plan.before:
        lines.append(
            f"of it spent before this model: {plan.before:.4g}, by earlier runs and by the sweep"
        )
    if plan.sweep:
        charged = "not charged, the rows are public" if rehearsal else "charged"
        points = ", ".join(f"{point:g}" for point, _ in plan.sweep)
        lines.append(f"sweep: epsilon = {points} ({charged})")
    return lines


def _traffic(plan: Plan) -> str:
    answers = plan.public.n_clients * plan.algorithm.max_rounds
    return (
        f"bytes: {plan.up:,} up and {plan.down:,} down a client and round, {answers * plan.up:,} up"
        f" and {answers * plan.down:,} down in all"
    )
