"""What may stand beside [privacy] in a configuration.

Whatever is read off the rows and leaves their owners breaks the guarantee of a private run. So
scaling, categories and classes are declared, and tables that look at the rows are refused. Which
problems and options keep the guarantee is asked of the private methods (``methods.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bonafed.config.errors import Refusal
from bonafed.config.privacy import PrivacySection
from bonafed.config.sweep import EPSILON
from bonafed.config.tables import Tables


def private_rules(config: Tables) -> Iterator[Refusal]:
    """The rules about privacy that a configuration breaks."""
    if config.privacy is None:
        yield from _without(config)
        return
    yield from _rows(config, config.privacy)
    yield from _beside(config, config.privacy)
    if config.data.sites is not None:
        yield from _at_sites(config, config.data.sites, config.privacy)


def _without(config: Tables) -> Iterator[Refusal]:
    if config.evaluation.public:
        yield Refusal(
            "evaluation.public says what of a private run may travel, and there is no [privacy]:"
            " leave it out",
            *("evaluation", "public"),
        )


def _rows(config: Tables, privacy: PrivacySection) -> Iterator[Refusal]:
    """What is read off the rows."""
    data = config.data
    if data.scale != "none":
        yield Refusal(
            f"data.scale = {data.scale!r} is read off the rows, and would tell about them without"
            " being charged: set data.scale = 'none', and declare what is known of each column"
            " under [data.columns], such as age = { min = 0, max = 100 }",
            *("data", "scale"),
        )
    if data.categorical or data.indicators:
        key = "categorical" if data.categorical else "indicators"
        yield Refusal(
            f"data.{key} has categories or missing values of the rows: declare them under"
            " [data.columns], such as ward = { categories = ['a', 'b'] }",
            *("data", key),
        )
    if data.path is not None and not (data.columns or data.features or privacy.rehearsal):
        yield Refusal(
            "[data] needs `columns` (or `features`, columns of numbers) under [privacy]: no other"
            " column is read. Declare what is possible of each, such as"
            " age = { min = 0, max = 100 }",
            *("data", "path"),
        )
    if data.min_count is not None:
        yield Refusal(
            "data.min_count pools categories by how often the rows have them: declare the"
            " categories under [data.columns]",
            *("data", "min_count"),
        )
    if data.path is not None and data.classes is None and config.loss_of_classes:
        yield Refusal(
            "[data] needs `classes` under [privacy], the values that the target can have, such as"
            " classes = ['no', 'yes']: those in the rows would tell about them",
            *("data", "target"),
        )
    if data.server is not None or data.groups:
        key = "server" if data.server is not None else "groups"
        yield Refusal(
            f"data.{key} is for constraints, which [privacy] excludes: leave it out", "data", key
        )
    if data.partition is not None and not privacy.rehearsal:
        yield Refusal(
            "data.partition deals out rows after a look at all of them, so that one record moves"
            " others: it is for public data; say so by privacy.rehearsal = true",
            *("data", "partition"),
        )


def _beside(config: Tables, privacy: PrivacySection) -> Iterator[Refusal]:
    """Tables and keys that a private run has no use for, or that would break its guarantee."""
    if config.robust.radius == "auto":
        yield Refusal(
            "robust.radius = 'auto' is read off the rows, and would tell about them without being"
            " charged: give a number",
            *("robust", "radius"),
        )
    if config.sweep is not None and config.sweep.parameter != EPSILON:
        yield Refusal(
            f"sweep.parameter = {config.sweep.parameter!r}, and with [privacy] every further model"
            f" is charged, so that only other budgets are tried: set it to {EPSILON!r}, or leave"
            " [sweep] out",
            *("sweep", "parameter"),
        )
    if other := [name for name in config.report.compare_with if name != "erm"]:
        yield Refusal(
            f"report.compare_with has {other[0]!r}; beside a private model there is 'erm' only,"
            " the same problem without privacy, whose numbers stay with the owner",
            *("report", "compare_with"),
        )
    if config.algorithm.options.get("noise") == "simulation" and not privacy.rehearsal:
        yield Refusal(
            "algorithm.options.noise = 'simulation' is made from the seed, which travels with the"
            " run, so that anybody could subtract it: use 'secure', or privacy.rehearsal = true"
            " where the rows are public",
            *("algorithm", "options", "noise"),
        )
    if config.sweep is not None and config.sweep.held:
        yield Refusal(
            "sweep.test holds training rows out, and with [privacy] their numbers are declared:"
            " leave it out, so that the rows held out by data.test judge",
            *("sweep", "test"),
        )
    if config.budgets and not privacy.rehearsal and max(config.budgets) >= privacy.epsilon:
        yield Refusal(
            f"sweep.values has {max(config.budgets):g}: every run is charged, and all together with"
            f" this one must stay within epsilon = {privacy.epsilon:g}. Use smaller ones, or"
            " privacy.rehearsal = true where the rows are public",
            *("sweep", "values"),
        )


def _at_sites(config: Tables, sites: list[str], privacy: PrivacySection) -> Iterator[Refusal]:
    """What a private run cannot have whose rows stay at sites: whatever its server would be told
    beside the noisy answers.
    """
    named = {*privacy.sizes} if isinstance(privacy.sizes, Mapping) else {*sites}
    if privacy.sizes is None or named != {*sites}:
        yield Refusal(
            "privacy.sizes is needed beside data.sites, since a site that is asked for a private"
            " run does not tell how many rows it has: declare the rows to train on, one number for"
            f" all sites or one for each of {', '.join(sites)}",
            *("privacy", "sizes"),
        )
    if privacy.book is not None:
        yield Refusal(
            "privacy.book is the ledger of one owner, and each of data.sites charges a ledger of"
            " its own: leave it out",
            *("privacy", "book"),
        )
    if privacy.rehearsal:
        yield Refusal(
            "privacy.rehearsal is for public rows in one place, and data.sites draw noise that"
            " nobody else can make: leave it out",
            *("privacy", "rehearsal"),
        )
    if config.report.compare_with:
        yield Refusal(
            f"report.compare_with has {config.report.compare_with[0]!r}, which would be trained"
            " without noise by a server that is told no exact number: leave it out",
            *("report", "compare_with"),
        )
    if config.data.test or config.evaluation.public:
        yield Refusal(
            "data.test holds rows out to judge the model on, and sites tell no exact number about"
            " them in a private run: set data.test = 0 and leave [evaluation] out; every owner can"
            " judge the model at home by `bonafed predict`",
            *("data", "test"),
        )
