"""What the tables of a configuration ask of each other, and what `bonafed.solve` asks of what they
state.

Whether a problem can be stated, and which algorithm takes it, is asked of the classes, by the
`Requirements` of the methods. A refusal names the methods that take the problem as it stands in the
file; where there are none, the key that has to change. The other rules are about what only a file
has: keys that contradict each other, tables without an object, what the pipeline of a run cannot
do, and what may stand beside [privacy]: whatever is read off the rows and leaves their owners
breaks the guarantee of a private run, so that scaling, categories and classes are declared there.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from bonafed.algorithms.alternatives import RefusedError, check_requirements
from bonafed.algorithms.federated.bundle.masked_bundle import masked
from bonafed.algorithms.method import Method, settings_of
from bonafed.algorithms.requirements import Setting
from bonafed.config.sections import EPSILON, PrivacySection
from bonafed.config.tables import Tables
from bonafed.config.toml_file import ConfigError, Refusal, one_of
from bonafed.names import NAMED, load, short_name
from bonafed.problem.problem import Problem
from bonafed.solution.plan import choose

MOST = 4  # methods that an error names
KEYS = {  # of a slot of the problem or of its setting
    "loss": ("problem", "loss"),
    "predictor": ("problem", "model"),
    "regulariser": ("problem", "regulariser"),
    "over_samples": ("risk", "name"),
    "over_rows": ("risk", "name"),
    "over_clients": ("clients", "risk"),
    "clients": ("problem", "pooled"),
    "engine": ("engine", "kind"),
    "sums": ("engine", "secure_sum"),
    "constraint": ("problem", "label"),
}


def broken_rule(config: Tables) -> Refusal | None:
    """The first rule that the configuration breaks, in words."""
    rules = (table_rules, _conflicts, method_rules, _stopping_rules)
    return next(chain.from_iterable(of(config) for of in rules), None)


def _conflicts(config: Tables) -> Iterator[Refusal]:
    """Why keys exclude each other, and what to leave out."""
    stated = {
        f"risk.name = {config.risk.name!r}": config.risk.by_rank,
        "robust.radius > 0": config.robust.is_robust,
        "problem.label": config.problem_.label is not None,
    }
    ways = [way for way, is_stated in stated.items() if is_stated]
    if len(ways) > 1:
        yield Refusal(
            f"{' and '.join(ways)} exclude each other: each says how the rows of a client count, so"
            " keep one of them"
        )
    if config.problem_.pooled and config.privacy is not None:
        yield Refusal(
            "[privacy] is about clients that keep their rows and declare how many they have, and"
            " problem.pooled = true makes them one: set problem.pooled = false",
            *("problem", "pooled"),
        )
    if config.problem_.pooled and config.weighs_clients:
        yield Refusal.at(
            "[clients] weighs several clients, and problem.pooled = true makes them one: leave out"
            " [clients], or set problem.pooled = false"
        )
    if config.algorithm.is_private and config.privacy is None:
        yield Refusal.at(
            f"algorithm.name = {config.algorithm.name!r} spends a privacy budget, which [privacy]"
            " states by epsilon and delta, and there is none: add it, or set"
            " algorithm.name = 'auto'"
        )
    if config.risk.together:
        yield from _of_ranks(config)


def _of_ranks(config: Tables) -> Iterator[Refusal]:
    """Why the rows of all clients cannot be ranked together."""
    on, key = "risk.on = 'together' ranks the rows of all clients", ("risk", "on")
    if not config.risk.by_rank:
        text = f"{on}, and risk.name = 'mean' ranks none: set risk.name to another risk"
        yield Refusal(text, *key)
    if config.problem_.pooled:
        text = f"{on} where they are, and problem.pooled = true has them in one place"
        yield Refusal(f"{text}: leave out risk.on", *key)
    elif config.weighs_clients:
        text = f"{on} in one ranking, and [clients] weighs the clients' own risks"
        yield Refusal(f"{text}: leave out risk.on, or leave out [clients]", "clients")
    if config.privacy is not None:
        yield Refusal(f"{on}, and no method with [privacy] does: leave out risk.on", *key)


def method_rules(config: Tables) -> Iterator[Refusal]:
    """Why `solve` refuses the problem or the method, and which methods take the problem."""
    tables = [config]
    if config.privacy is not None:  # the options of a method that is refused are no matter
        bare = config.algorithm.model_copy(update={"options": {}})
        tables = [config.model_copy(update={"algorithm": bare}), config]
    try:
        for problem, method, setting in map(_solved, tables):
            chosen = method or choose(problem, setting)
            check_requirements(chosen, problem, setting)
            (masked(chosen) if setting.secure_sum else chosen).check_problem(problem, None)
    except RefusedError as error:
        yield _refused(config, error)
    except ConfigError as error:
        yield Refusal(str(error), "problem")
    except ValueError as error:
        refusal = error.args[0]
        plain = not isinstance(refusal, Refusal)
        yield config.algorithm.refusal(str(error)) if plain else refusal


def settings_taken(config: Tables) -> dict[str, object]:
    """The settings of the method that runs."""
    problem, method, setting = _solved(config)
    return settings_of(method or choose(problem, setting))


def _stopping_rules(config: Tables) -> Iterator[Refusal]:
    for key in {"tol", "max_rounds"} - {*settings_taken(config)}:
        if getattr(config.algorithm, key) is not None:
            text = f"{config.algorithm.name!r} takes no {key}: leave it out"
            yield Refusal(text, "algorithm", key)


def _solved(config: Tables) -> tuple[Problem, Method | None, Setting]:
    """What a run solves, by which method (None: the default), and in which setting."""
    n_clients, secure = 1 if config.problem_.pooled else 2, bool(config.engine.get("secure_sum"))
    setting = Setting(n_clients, True, config.engine.clocked, secure)
    return config.stated(), config.method(), setting


def _refused(config: Tables, error: RefusedError) -> Refusal:
    """Why a method is refused, and which others take the problem."""
    reason = error.reason
    names = {load("algorithm", name).__name__: name for name in NAMED["algorithm"]}
    name, (place, value) = names[reason.method], _key(config, reason.slot)
    named = config.algorithm.name == name
    why = f"{'algorithm.name = ' * named}{name!r} {reason.need.words}, got {value}"
    others = [short_name("algorithm", cls) or "" for cls in error.advice.methods[:MOST]]
    change = f"no method does: change {value.split()[0]}"
    advice = f"use {one_of(others, ' or ')}" if others else change
    by_name = (named and config.privacy is None) or reason.slot == "privacy"
    refusal = Refusal(f"{why}: {advice}", *(("algorithm", "name") if by_name else place))
    refusal.methods = tuple(others)
    return refusal


def _key(config: Tables, slot: str) -> tuple[tuple[str | int, ...], str]:
    """Where a configuration fills a slot of the problem, and with what."""
    if slot == "over_samples" and config.robust.is_robust:
        return ("robust", "radius"), "robust.radius > 0"
    if slot == "constraint" and config.constraint:
        return ("constraint", 0), "[[constraint]]"
    if slot == "privacy":
        return ("privacy",), "[privacy]"
    table, field = KEYS[slot]
    value = getattr(config, "problem_" if table == "problem" else table).get(field)
    text = f"{table}.{field} = {'false' if value is False else repr(value)}"
    if slot == "over_rows":
        text += f" {'with' if config.risk.together else 'without'} risk.on = 'together'"
    return (table, field), text


# ------------------------------------------------------------------------- tables beside each other


def table_rules(config: Tables) -> Iterator[Refusal]:
    """The rules about tables beside each other that a configuration breaks."""
    return chain.from_iterable(rules(config) for rules in RULES)


def _one_place(config: Tables) -> Iterator[Refusal]:
    if not config.problem_.pooled:
        return
    levels = [one.get("level") for one in config.constraint]
    for key, value in {"robust.radius": [config.robust.radius], "constraint.level": levels}.items():
        if any(isinstance(one, dict) for one in value):
            yield Refusal(
                f"{key} has one number per client, and problem.pooled = true makes them one: give"
                " a number"
            )
    for key in ("stragglers", "outages", "crashes"):
        if {*(config.engine.get(key) or ())} - {"pooled"}:
            yield Refusal.at(
                f"engine.{key} names clients, and problem.pooled = true makes them one: leave it"
                " out, or name 'pooled' only"
            )
    weigh = [name for name in config.report.compare_with if name in ("afl", "drfa", "wafl")]
    if weigh:
        yield Refusal(
            f"report.compare_with has {weigh[0]!r}, which weighs clients, and problem.pooled = true"
            " makes them one: compare with 'erm' only"
        )


def _one_ranking(config: Tables) -> Iterator[Refusal]:
    """What says nothing beside the rows of all clients ranked together."""
    if config.risk.together and "wafl" in config.report.compare_with:
        yield Refusal.at(
            "report.compare_with has 'wafl', which ranks the rows of all clients in one place, as"
            " risk.on = 'together' does where they are, so that both are one model: leave it out"
        )


def _tables_of_constraints(config: Tables) -> Iterator[Refusal]:
    """Tables about constraints, and constraints about tables."""
    server = any(one.place == "server" for one in config.constraint)
    if server and config.data.server is None:
        yield Refusal(
            "constraint.on = 'server' needs the server's own rows: give data.server, a table or a"
            " share"
        )
    if not server and config.data.server is not None:
        yield Refusal(
            "data.server are rows for a constraint of on = 'server', and there is none: add one, or"
            " leave it out"
        )
    constrained = config.constraint or config.problem_.label is not None
    if "unconstrained" in config.report.compare_with and not constrained:
        yield Refusal(
            "report.compare_with has 'unconstrained', and there are no constraints to leave out:"
            " use 'erm'"
        )


def _positive(config: Tables) -> Iterator[Refusal]:
    if config.data.positive is not None and config.loss().targets != "sign":
        yield Refusal.at(
            f"data.positive names one of two classes, and problem.loss = {config.problem_.loss!r}"
            " has none: leave it out"
        )


def _sites(config: Tables) -> Iterator[Refusal]:
    """What a run cannot have whose rows stay at sites."""
    if config.data.sites is None:
        return
    if config.sweep is not None:
        yield Refusal.at(
            "[sweep] needs all rows in one place, and data.sites keep theirs: leave it out, and"
            " carry out a run for each value"
        )
    if config.robust.radius == "auto":
        yield Refusal.at(
            "robust.radius = 'auto' is read off the rows, which data.sites keep: give a number"
        )
    if config.risk.together:
        yield Refusal.at(
            "risk.on = 'together' ranks the rows where they are, but the report of a run reads the"
            " loss of every row, and data.sites keep theirs: leave [risk] out, or solve"
            " Problem(over_rows=...) over the sites in Python"
        )
    elif config.problem_.pooled or config.risk.by_rank:
        key = ("problem", "pooled") if config.problem_.pooled else ("risk", "name")
        yield Refusal(
            f"{'.'.join(key)} needs the rows of all clients in one place, and data.sites keep"
            " theirs: leave it out",
            *key,
        )
    if config.engine.clocked:
        yield Refusal.at(
            "engine.kind = 'virtual_clock' simulates time, and data.sites take their own: leave"
            " [engine] out"
        )
    if "wafl" in config.report.compare_with:
        yield Refusal.at(
            "report.compare_with has 'wafl', which pools the rows that data.sites keep: leave it"
            " out"
        )
    if config.loss().targets in ("sign", "class") and config.data.classes is None:
        yield Refusal(
            f"problem.loss = {config.problem_.loss!r} needs data.classes, which no one can read off"
            " rows that data.sites keep: declare them, such as classes = ['no', 'yes']",
            *("data", "classes"),
        )


def _sums(config: Tables) -> Iterator[Refusal]:
    """What a run cannot have whose server reads sums over the clients only."""
    if not config.engine.get("secure_sum") or config.privacy is not None:
        return
    secure = "engine.secure_sum = true has the server read sums over several clients"
    compared = config.report.compare_with
    one = {"wafl": "pools all rows in one place", "drfa": "is of the worst client only"}
    if not config.weighs_clients:
        one["afl"] = "is of the worst client only"
    for name in (name for name in one if name in compared):
        yield Refusal.at(
            f"report.compare_with has {name!r}, which {one[name]}, and {secure}: leave it out"
        )
    if config.problem_.pooled:
        text = f"problem.pooled = true makes the clients one, and {secure}: leave one of them out"
        yield Refusal(text, "problem", "pooled")


# --------------------------------------------------------------------------------- beside [privacy]


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
        yield Refusal.at(
            "evaluation.public says what of a private run may travel, and there is no [privacy]:"
            " leave it out"
        )


def _rows(config: Tables, privacy: PrivacySection) -> Iterator[Refusal]:
    """What is read off the rows."""
    data = config.data
    if data.scale != "none":
        yield Refusal.at(
            f"data.scale = {data.scale!r} is read off the rows, and would tell about them without"
            " being charged: set data.scale = 'none', and declare what is known of each column"
            " under [data.columns], such as age = { min = 0, max = 100 }"
        )
    if data.categorical or data.indicators:
        key = "categorical" if data.categorical else "indicators"
        yield Refusal.at(
            f"data.{key} has categories or missing values of the rows: declare them under"
            " [data.columns], such as ward = { categories = ['a', 'b'] }"
        )
    if data.path is not None and not (data.columns or data.features or privacy.rehearsal):
        yield Refusal(
            "[data] needs `columns` (or `features`, columns of numbers) under [privacy]: no other"
            " column is read. Declare what is possible of each, such as"
            " age = { min = 0, max = 100 }",
            *("data", "path"),
        )
    if data.min_count is not None:
        yield Refusal.at(
            "data.min_count pools categories by how often the rows have them: declare the"
            " categories under [data.columns]"
        )
    if data.path is not None and data.classes is None and config.loss_of_classes:
        yield Refusal(
            "[data] needs `classes` under [privacy], the values that the target can have, such as"
            " classes = ['no', 'yes']: those in the rows would tell about them",
            *("data", "target"),
        )
    if data.server is not None or data.groups:
        key = "server" if data.server is not None else "groups"
        yield Refusal.at(f"data.{key} is for constraints, which [privacy] excludes: leave it out")
    if data.partition is not None and not privacy.rehearsal:
        yield Refusal.at(
            "data.partition deals out rows after a look at all of them, so that one record moves"
            " others: it is for public data; say so by privacy.rehearsal = true"
        )


def _beside(config: Tables, privacy: PrivacySection) -> Iterator[Refusal]:
    """Tables and keys that a private run has no use for, or that would break its guarantee."""
    if config.robust.radius == "auto":
        yield Refusal.at(
            "robust.radius = 'auto' is read off the rows, and would tell about them without being"
            " charged: give a number"
        )
    if config.sweep is not None and config.sweep.parameter != EPSILON:
        yield Refusal.at(
            f"sweep.parameter = {config.sweep.parameter!r}, and with [privacy] every further model"
            f" is charged, so that only other budgets are tried: set it to {EPSILON!r}, or leave"
            " [sweep] out"
        )
    if other := [name for name in config.report.compare_with if name != "erm"]:
        yield Refusal.at(
            f"report.compare_with has {other[0]!r}; beside a private model there is 'erm' only,"
            " the same problem without privacy, whose numbers stay with the owner"
        )
    if config.algorithm.options.get("noise") == "simulation" and not privacy.rehearsal:
        yield Refusal.at(
            "algorithm.options.noise = 'simulation' is made from the seed, which travels with the"
            " run, so that anybody could subtract it: use 'secure', or privacy.rehearsal = true"
            " where the rows are public"
        )
    if config.sweep is not None and config.sweep.held:
        yield Refusal.at(
            "sweep.test holds training rows out, and with [privacy] their numbers are declared:"
            " leave it out, so that the rows held out by data.test judge"
        )
    if config.budgets and not privacy.rehearsal and max(config.budgets) >= privacy.epsilon:
        yield Refusal.at(
            f"sweep.values has {max(config.budgets):g}: every run is charged, and all together with"
            f" this one must stay within epsilon = {privacy.epsilon:g}. Use smaller ones, or"
            " privacy.rehearsal = true where the rows are public"
        )


def _at_sites(config: Tables, sites: list[str], privacy: PrivacySection) -> Iterator[Refusal]:
    """What a private run cannot have whose rows stay at sites: whatever its server would be told
    beside the noisy answers.
    """
    named = {*privacy.sizes} if isinstance(privacy.sizes, Mapping) else {*sites}
    if privacy.sizes is None or named != {*sites}:
        yield Refusal.at(
            "privacy.sizes is needed beside data.sites, since a site that is asked for a private"
            " run does not tell how many rows it has: declare the rows to train on, one number for"
            f" all sites or one for each of {', '.join(sites)}"
        )
    if privacy.book is not None:
        yield Refusal.at(
            "privacy.book is the ledger of one owner, and each of data.sites charges a ledger of"
            " its own: leave it out"
        )
    if privacy.rehearsal:
        yield Refusal.at(
            "privacy.rehearsal is for public rows in one place, and data.sites draw noise that"
            " nobody else can make: leave it out"
        )
    if config.report.compare_with:
        yield Refusal.at(
            f"report.compare_with has {config.report.compare_with[0]!r}, which would be trained"
            " without noise by a server that is told no exact number: leave it out"
        )
    if config.data.test or config.evaluation.public:
        yield Refusal.at(
            "data.test holds rows out to judge the model on, and sites tell no exact number about"
            " them in a private run: set data.test = 0 and leave [evaluation] out; every owner can"
            " judge the model at home by `bonafed predict`"
        )


RULES = (_sites, _sums, private_rules, _positive, _one_place, _one_ranking, _tables_of_constraints)
