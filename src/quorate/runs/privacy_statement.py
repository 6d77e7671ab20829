"""What a private run guarantees, what is public of it and what is withheld, in sentences."""

from __future__ import annotations

import math

from quorate.config.config import Config
from quorate.privacy.ledger import WORDS
from quorate.runs.privacy_plan import Plan

REHEARSAL = (
    "A rehearsal: the rows are declared public. Noise that is made from the seed can be subtracted"
    " by whoever has the configuration, and runs of a curve are not charged. Nothing is promised to"
    " anybody."
)


def protects(config: Config) -> str:
    """Who is protected from what."""
    assert config.privacy is not None
    said = (
        f"Protected is every single row that is trained on ({WORDS[config.privacy.adjacency]}):"
        " whoever sees all that "
    )
    said += (
        "travels learns almost the same whether or not the row is as it is. Somebody with several"
        " rows is protected "
    )
    return (
        said + "less, by the sum over them; rows of one person at several clients add up as well."
    )


def made_public(config: Config) -> list[str]:
    """What the promise is not about: taken to be known, and in the run."""
    assert config.privacy is not None
    data = config.data
    made = (
        "how every feature is made, as declared"
        if data.columns
        else "the names of the columns, taken as they are"
    )
    classes = (
        f"the classes {', '.join(map(str, data.classes))}"
        if data.classes
        else "the classes of the target"
    )
    sizes = "the names of the clients, and the number of rows declared for each"
    if config.privacy.counted:
        sizes = "the names of the clients, and how many rows each has, counted"
        if config.privacy.adjacency == "add-remove":
            sizes += (
                ": the promise is about a row that counts, or counts for nothing while its place is"
                " known"
            )
    found = [
        sizes,
        f"{made}; {classes}" if config.loss_of_classes else made,
        (
            "the configuration, paths of files included; how many rounds there are and how many"
            " bytes each takes"
        ),
        (
            "the model after every round, noise included, and how far the clients' noisy copies are"
            " from it"
        ),
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
        found.append(
            ("numbers on held-out rows, by model and by client", "these rows are private, too")
        )
    if config.report.compare_with:
        found.append(
            ("the model without privacy, and all comparisons with it", "trained without noise")
        )
    if config.privacy is not None and config.privacy.curve:
        found.append(("the models of the curve and its numbers", "judged on private rows"))
    return found


def words(config: Config, found: Plan) -> list[str]:
    """The plan of a run, a line each."""
    a, b, public = found.algorithm, found.budget, found.public
    other = {"gaussian": "closed form", "rdp": "rdp", "basic": "basic composition"}
    totals = [
        f"{said} {found.accounts[key]:.4g}"
        for key, said in other.items()
        if found.accounts.get(key) is not None
    ]
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
        (
            f"total epsilon at delta = {b.delta:g}: {found.accounts['pld']:.4g} of {b.epsilon:g}"
            f" (pld, which counts; {', '.join(totals)}); {b.adjacency}"
        ),
    ]
    if found.before:
        lines.append(
            f"of it spent before this model: {found.before:.4g}, by earlier runs and by the curve"
        )
    if found.curve:
        how = (
            "not charged, the rows are public"
            if config.privacy and config.privacy.rehearsal
            else "charged"
        )
        lines.append(
            f"curve: epsilon = {', '.join(f'{point:g}' for point, _ in found.curve)} ({how})"
        )
    lines.append(
        f"bytes: {found.up:,} up and {found.down:,} down a client and round,"
        f" {N * rounds * found.up:,} up and {N * rounds * found.down:,} down in all"
    )
    lines += [f"public: {said}" for said in made_public(config)]
    lines += [f"stays with the owner: {what} ({why})" for what, why in stays(config)]
    if config.privacy and config.privacy.rehearsal:
        lines.append(REHEARSAL)
    return lines
