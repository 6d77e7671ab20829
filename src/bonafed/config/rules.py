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
from bonafed.config.sections import EPSILON, PrivacySection, Tables
from bonafed.config.toml_file import ConfigError, Refusal, one_of
from bonafed.names import NAMED, load, short_name
from bonafed.problem.problem import Problem
from bonafed.solution.plan import choose

MOST = 4  # methods that an error names
KEYS = {  # of a slot of the problem or of its setting
    **{"loss": ("problem", "loss"), "predictor": ("problem", "model")},
    **{"regulariser": ("problem", "regulariser"), "constraint": ("problem", "label")},
    **{"over_samples": ("risk", "name"), "over_rows": ("risk", "name")},
    **{"over_clients": ("clients", "risk"), "clients": ("problem", "pooled")},
    **{"engine": ("engine", "kind"), "sums": ("engine", "secure_sum")},
}


def broken_rule(config: Tables) -> Refusal | None:
    """The first rule that the configuration breaks, in words."""
    rules = (*RULES, _conflicts, method_rules, _stopping_rules)
    return next(chain.from_iterable(of(config) for of in rules), None)


def _told(texts: Mapping[str, object]) -> Iterator[Refusal]:
    """A refusal for every text whose condition holds; the condition may be the key that it is
    about, else the text begins with it.
    """
    for text, holds in texts.items():
        if holds:
            yield Refusal(text, *holds) if isinstance(holds, tuple) else Refusal.at(text)


def _conflicts(config: Tables) -> Iterator[Refusal]:
    """Why keys exclude each other, and what to leave out."""
    pooled, private = config.problem_.pooled, config.privacy is not None
    together, weighed = config.risk.together, not pooled and config.weighs_clients
    stated = {
        f"risk.name = {config.risk.name!r}": config.risk.by_rank,
        "robust.radius > 0": config.robust.is_robust,
        "problem.label": config.problem_.label is not None,
    }
    ways = [way for way, is_stated in stated.items() if is_stated]
    on = "risk.on = 'together' ranks the rows of all clients"
    here = f"{on} where they are, and problem.pooled = true has them in one place"
    one = f"{on} in one ranking, and [clients] weighs the clients' own risks"
    texts = {
        f"{' and '.join(ways)} exclude each other: each says how the rows of a client count, so"
        " keep one of them": len(ways) > 1,
        "[privacy] is about clients that keep their rows and declare how many they have, and"
        " problem.pooled = true makes them one: set problem.pooled = false": (
            pooled and private and ("problem", "pooled")
        ),
        "[clients] weighs several clients, and problem.pooled = true makes them one: leave out"
        " [clients], or set problem.pooled = false": pooled and config.weighs_clients,
        f"algorithm.name = {config.algorithm.name!r} spends a privacy budget, which [privacy]"
        " states by epsilon and delta, and there is none: add it, or set"
        " algorithm.name = 'auto'": config.algorithm.is_private and not private,
        f"{on}, and risk.name = 'mean' ranks none: set risk.name to another risk": (
            together and not config.risk.by_rank
        ),
        f"{here}: leave out risk.on": together and pooled,
        f"{one}: leave out risk.on, or leave out [clients]": together and weighed and ("clients",),
        f"{on}, and no method with [privacy] does: leave out risk.on": together and private,
    }
    yield from _told(texts)


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
        stated = isinstance(refusal, Refusal)
        yield refusal if stated else config.algorithm.refusal(str(error))


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
    if reason.slot == "over_rows" and config.risk.together:
        change = 'write risk.on = "clients" with problem.pooled = true, the same risk of all rows'
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


def _one_place(config: Tables) -> Iterator[Refusal]:
    levels = [one.get("level") for one in config.constraint]
    numbers = {"robust.radius": [config.robust.radius], "constraint.level": levels}
    weigh = [name for name in config.report.compare_with if name in ("afl", "drfa", "wafl")]
    texts: dict[str, object] = {
        f"{key} has one number per client, and problem.pooled = true makes them one: give a"
        " number": any(isinstance(one, dict) for one in values)
        for key, values in numbers.items()
    }
    texts |= {
        f"engine.{key} names clients, and problem.pooled = true makes them one: leave it out, or"
        " name 'pooled' only": {*(config.engine.get(key) or ())} - {"pooled"}
        for key in ("stragglers", "outages", "crashes")
    }
    texts |= {
        f"report.compare_with has {name!r}, which weighs clients, and problem.pooled = true makes"
        " them one: compare with 'erm' only": True
        for name in weigh
    }
    return _told(texts if config.problem_.pooled else {})


def _beside_others(config: Tables) -> Iterator[Refusal]:
    """Tables about constraints, constraints about tables, and what says nothing beside others."""
    data, compared, loss = config.data, config.report.compare_with, config.problem_.loss
    server = any(one.place == "server" for one in config.constraint)
    constrained = config.constraint or config.problem_.label is not None
    texts = {
        f"data.positive names one of two classes, and problem.loss = {loss!r} has none: leave it"
        " out": data.positive is not None and config.loss().targets != "sign",
        "report.compare_with has 'wafl', which ranks the rows of all clients in one place, as"
        " risk.on = 'together' does where they are, so that both are one model: leave it out": (
            config.risk.together and "wafl" in compared
        ),
        "constraint.on = 'server' needs the server's own rows: give data.server, a table or a"
        " share": server and data.server is None,
        "data.server are rows for a constraint of on = 'server', and there is none: add one, or"
        " leave it out": not server and data.server is not None,
        "report.compare_with has 'unconstrained', and there are no constraints to leave out: use"
        " 'erm'": "unconstrained" in compared and not constrained,
    }
    return _told(texts)


def _sites(config: Tables) -> Iterator[Refusal]:
    """What a run cannot have whose rows stay at sites."""
    pooled, loss = config.problem_.pooled, config.problem_.loss
    key = ("problem", "pooled") if pooled else ("risk", "name")
    of_classes = config.loss().targets in ("sign", "class")
    texts = {
        "[sweep] needs all rows in one place, and data.sites keep theirs: leave it out, and carry"
        " out a run for each value": config.sweep is not None,
        "robust.radius = 'auto' is read off the rows, which data.sites keep: give a number": (
            config.robust.radius == "auto"
        ),
        "risk.on = 'together' ranks the rows where they are, but the report of a run reads the loss"
        " of every row, and data.sites keep theirs: leave [risk] out, or solve"
        " Problem(over_rows=...) over the sites in Python": config.risk.together,
        f"{'.'.join(key)} needs the rows of all clients in one place, and data.sites keep theirs:"
        " leave it out": not config.risk.together and (pooled or config.risk.by_rank),
        "engine.kind = 'virtual_clock' simulates time, and data.sites take their own: leave"
        " [engine] out": config.engine.clocked,
        "report.compare_with has 'wafl', which pools the rows that data.sites keep: leave it"
        " out": "wafl" in config.report.compare_with,
        f"problem.loss = {loss!r} needs data.classes, which no one can read off rows that"
        " data.sites keep: declare them, such as classes = ['no', 'yes']": (
            of_classes and config.data.classes is None and ("data", "classes")
        ),
    }
    return _told(texts if config.data.sites is not None else {})


def _sums(config: Tables) -> Iterator[Refusal]:
    """What a run cannot have whose server reads sums over the clients only."""
    if not config.engine.get("secure_sum") or config.privacy is not None:
        return iter(())
    secure = "engine.secure_sum = true has the server read sums over several clients"
    one = {"wafl": "pools all rows in one place", "drfa": "is of the worst client only"}
    if not config.weighs_clients:
        one["afl"] = "is of the worst client only"
    texts = {
        f"report.compare_with has {name!r}, which {what}, and {secure}: leave it out": (
            name in config.report.compare_with
        )
        for name, what in one.items()
    }
    pooled = f"problem.pooled = true makes the clients one, and {secure}: leave one of them out"
    return _told(texts | {pooled: config.problem_.pooled})


# --------------------------------------------------------------------------------- beside [privacy]


def private_rules(config: Tables) -> Iterator[Refusal]:
    """The rules about privacy that a configuration breaks."""
    if config.privacy is not None:
        yield from _rows(config, config.privacy)
        yield from _beside(config, config.privacy)
        yield from _at_sites(config, config.data.sites, config.privacy)
    elif config.evaluation.public:
        yield Refusal.at(
            "evaluation.public says what of a private run may travel, and there is no [privacy]:"
            " leave it out"
        )


def _rows(config: Tables, privacy: PrivacySection) -> Iterator[Refusal]:
    """What is read off the rows."""
    data, path = config.data, config.data.path is not None
    read = "categorical" if data.categorical else "indicators"
    extra = "server" if data.server is not None else "groups"
    texts = {
        f"data.scale = {data.scale!r} is read off the rows, and would tell about them without being"
        " charged: set data.scale = 'none', and declare what is known of each column under"
        " [data.columns], such as age = { min = 0, max = 100 }": data.scale != "none",
        f"data.{read} has categories or missing values of the rows: declare them under"
        " [data.columns], such as ward = { categories = ['a', 'b'] }": (
            data.categorical or data.indicators
        ),
        "[data] needs `columns` (or `features`, columns of numbers) under [privacy]: no other"
        " column is read. Declare what is possible of each, such as age = { min = 0, max = 100 }": (
            path and not (data.columns or data.features or privacy.rehearsal) and ("data", "path")
        ),
        "data.min_count pools categories by how often the rows have them: declare the categories"
        " under [data.columns]": data.min_count is not None,
        "[data] needs `classes` under [privacy], the values that the target can have, such as"
        " classes = ['no', 'yes']: those in the rows would tell about them": (
            path and data.classes is None and config.loss_of_classes and ("data", "target")
        ),
        f"data.{extra} is for constraints, which [privacy] excludes: leave it out": (
            data.server is not None or data.groups
        ),
        "data.partition deals out rows after a look at all of them, so that one record moves"
        " others: it is for public data; say so by privacy.rehearsal = true": (
            data.partition is not None and not privacy.rehearsal
        ),
    }
    return _told(texts)


def _beside(config: Tables, privacy: PrivacySection) -> Iterator[Refusal]:
    """Tables and keys that a private run has no use for, or that would break its guarantee."""
    sweep, charged = config.sweep, not privacy.rehearsal
    parameter, most = sweep and sweep.parameter, max(config.budgets, default=0.0)
    other = next((name for name in config.report.compare_with if name != "erm"), None)
    texts = {
        "robust.radius = 'auto' is read off the rows, and would tell about them without being"
        " charged: give a number": config.robust.radius == "auto",
        f"sweep.parameter = {parameter!r}, and with [privacy] every further model is charged, so"
        f" that only other budgets are tried: set it to {EPSILON!r}, or leave [sweep] out": (
            sweep is not None and parameter != EPSILON
        ),
        f"report.compare_with has {other!r}; beside a private model there is 'erm' only, the same"
        " problem without privacy, whose numbers stay with the owner": other,
        "algorithm.options.noise = 'simulation' is made from the seed, which travels with the run,"
        " so that anybody could subtract it: use 'secure', or privacy.rehearsal = true where the"
        " rows are public": charged and config.algorithm.options.get("noise") == "simulation",
        "sweep.test holds training rows out, and with [privacy] their numbers are declared: leave"
        " it out, so that the rows held out by data.test judge": sweep is not None and sweep.held,
        f"sweep.values has {most:g}: every run is charged, and all together with this one must stay"
        f" within epsilon = {privacy.epsilon:g}. Use smaller ones, or privacy.rehearsal = true"
        " where the rows are public": charged and config.budgets and most >= privacy.epsilon,
    }
    return _told(texts)


def _at_sites(
    config: Tables, sites: list[str] | None, privacy: PrivacySection
) -> Iterator[Refusal]:
    """What a private run cannot have whose rows stay at sites: whatever its server would be told
    beside the noisy answers.
    """
    if sites is None:
        return iter(())
    named = {*privacy.sizes} if isinstance(privacy.sizes, Mapping) else {*sites}
    compared = next(iter(config.report.compare_with), None)
    texts = {
        "privacy.sizes is needed beside data.sites, since a site that is asked for a private run"
        " does not tell how many rows it has: declare the rows to train on, one number for all"
        f" sites or one for each of {', '.join(sites)}": (
            privacy.sizes is None or named != {*sites}
        ),
        "privacy.book is the ledger of one owner, and each of data.sites charges a ledger of its"
        " own: leave it out": privacy.book is not None,
        "privacy.rehearsal is for public rows in one place, and data.sites draw noise that nobody"
        " else can make: leave it out": privacy.rehearsal,
        f"report.compare_with has {compared!r}, which would be trained without noise by a server"
        " that is told no exact number: leave it out": compared,
        "data.test holds rows out to judge the model on, and sites tell no exact number about them"
        " in a private run: set data.test = 0 and leave [evaluation] out; every owner can judge the"
        " model at home by `bonafed predict`": config.data.test or config.evaluation.public,
    }
    return _told(texts)


RULES = (_sites, _sums, private_rules, _one_place, _beside_others)
