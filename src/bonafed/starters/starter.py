"""A first configuration, commented: for a data set by name, or for tables after a look at their
columns.

That of a private run names columns, and nothing that was read off their values; of a data set by
name, which is public, also what the columns hold.
"""

import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bonafed.config.config import ConfigError, parse_config
from bonafed.config.toml_file import toml_key, toml_line, toml_value
from bonafed.data.profile import names_a_person
from bonafed.data.readers import stem
from bonafed.runs.splits import prepare
from bonafed.solution.thresholds import residual_scale
from bonafed.solution.warnings import RARE
from bonafed.starters import proposals
from bonafed.starters.look import Asked, look

During = Callable[[str], AbstractContextManager[Any]]
SOFTMAX = "a softmax model, which has no Wasserstein balls"
SOMEBODY = "a_client"  # in examples, where no client is known by name
PARTITION = (
    'partition = { by = "dirichlet", clients = 10, alpha = 1.0 }  # whose each row is: "iid",'
    ' "dirichlet", "label"'
)

# ------------------------------------------------------------------ a distributionally robust model

CLIENTS = """\
[clients]                      # the worst client weights
risk = "chi_square"  # near the prior; "mean": no worst case; "simplex": any weights; "lp_ball", ...
radius = 0.05                  # how far from the prior; 0.2 to 0.5 where clients truly differ
prior = "size"  # each row counts alike; "uniform": each client; or a table of weights by client
"""

ROBUST = """\
# Written by `bonafed init`. Run it with `bonafed run {file}`.
# Keys have defaults unless they say otherwise.
title = {title}
seed = 0                       # of the split, of noise, of every random stream

[data]
{source}
scale = "standard"  # of numbers, fitted from sums over the clients: "standard", "minmax" or "none"
test = 0.3                     # share of every client's rows that is held out to judge on; 0: none
shifted = []                   # clients that are never trained on, only judged on
# [data.drift]              # makes the shifted clients' data worse: in units of the scaled features
# scale = 1.1                  # an instrument out of tune: x' = scale x + offset
# noise = 0.2                  # standard deviation of noise on every feature

[problem]
loss = {loss}
regulariser = "l2"             # "none", "l1", "l2" or "elastic_net"
strength = 1e-3
fit_intercept = true           # free of the regulariser and of the adversary
{balance}
[robust]                       # the Wasserstein ball round every client's rows
radius = "auto"                # read off the rows; 0: their own distribution; a table: by client
label_cost = inf               # {label_cost_means}; inf: labels never move
norm = "linf"                  # of a change of the features: "l1", "l2" or "linf"
support = "none"             # or a box the features stay in, such as {{ lower = 0.0, upper = 1.0 }}

{clients}
# [risk]              # the worst part of the losses instead; leave out [robust] and [clients]
# name = "superquantile"       # the mean of the largest; or "extremile", "top_k", "maximum"
# tail = 0.1                   # of the largest 10 %
# on = "together"              # of all clients' rows, where they are; "clients": each client's own

# [[constraint]]  # what the model must keep; leave out [robust] and [clients]; smooth losses
# kind = "neyman_pearson"  # or "demographic_parity", "bounded_group_loss", "sign", ...
# label = {label}
# level = 0.3                  # at every client: a number, or a table with one for each
# on = "clients"               # or "together" (all rows), "server" (rows of data.server)

# [sweep]                      # other values of one key, solved and judged beside the model
# parameter = "robust.radius"  # or "problem.strength", "clients.radius", "constraint.1.level", ...
# values = {{ from = 0.001, to = 1.0, count = 10 }}  # geometric; or a list, such as [0.0, 0.1]
# test = 0.3                   # share of every client's training rows that judges the values

[algorithm]
name = "auto"                # "bundle", "ad_lpmm", "epigraph_admm", "double_loop"; with constraints
                               # "interior_point" or "proximal_al"
tol = 1e-6                     # relative gap at which to stop

[report]
html = true
compare_with = ["erm", "afl"]  # models to train beside it: "erm", "afl", "drfa", "wafl"
"""
# of two classes, and of numbers
LOSSES = (
    '"logistic"              # or "hinge", "smooth_hinge"',
    '"huber"                 # or "absolute", "epsilon_insensitive", "quantile"\n'
    '# over sites give engine.secure_sum = true; or "squared", which has no [robust]',
)

# --------------------------- a model for the worst client weights, and one of several classes

WORST = """\
[clients]         # which client weights are allowed; the model is best for the worst of them
risk = "simplex"  # any weights: the worst client; or near a prior, one of these with its keys:
# risk = "cd_norm"  # each weight at most `bounds` from the prior, at most `budget` clients there
# budget = 2.0
# bounds = 0.1  # a number, or one by client: a small one for those you trust less
# risk = "kl_ball"   # also "chi_square", "total_variation", "lp_ball": within `radius` of the prior
# radius = 0.1
# risk = "box"                 # each weight between `lower` and `upper`
# prior = "size"               # "uniform", "size", or a table with one weight per client

[engine]            # time is simulated: state who is slow here; two runs are equal to the bit
kind = "virtual_clock"         # "in_process": all clients at once, without a clock
# stragglers = {{ {client} = 10.0 }}  # factors of some clients' delays
# outages = {{ {client} = [[20.0, 40.0]] }}  # out of reach from, to, in virtual seconds
# crashes = {{ {client} = 90.0 }}  # never answers after that
wait = {{ kind = "first", n = 1 }}  # or "stale" with tau = 10; "adaptive"
# delays = {{ kind = "lognormal", sigma = 0.3, client_sigma = 0.3 }}  # or "constant", "trace"
# max_time = 1000.0            # virtual seconds
"""

ALIKE = f"""\
{CLIENTS}
[engine]            # all clients at once; `bonafed init --agnostic` simulates the time they take
kind = "in_process"
"""

AGNOSTIC = """\
# Written by `bonafed init{option}`. Run it with `bonafed run {file}`; every key has a default.
title = {title}
seed = 0                       # of the split, of the delays, of every random stream

[data]
{source}
scale = "standard"  # of numbers, fitted from sums over the clients: "standard", "minmax" or "none"
test = 0.3                     # share of every client's rows that is held out to judge on; 0: none

[problem]
loss = {loss}
model = {model}
# hidden = [16]                # of "mlp": units of the hidden layers
strength = 1e-3                # of the l2 regulariser
{balance}
{clients}
[algorithm]
name = "auto"                  # "async_bundle"; also "async_dro", "aspire", "afl", "drfa"
tol = {tol}                     # relative gap at which to stop

[report]
html = true
compare_with = ["erm"]         # models to train beside it: "erm", "afl", "drfa"
"""
# of numbers, of two classes, and of several
AGNOSTIC_LOSSES = (
    '"squared"               # or "huber", about which sites answer with engine.secure_sum only',
    '"logistic"              # or another smooth one, such as "smooth_hinge"',
    '"multinomial"           # of several classes',
)
MODELS = (
    '"linear"               # or "mlp", a network',
    '"softmax"              # or "mlp", a network',
)

# ------------------------------------------------------------------------------- a private model

PRIVATE = """\
# Written by `bonafed init --private`.
# See what it would spend: `bonafed run --dry-run {file}`; run it with
# `bonafed run {file}`; every key has a default unless it says otherwise.
title = {title}
seed = 0                       # of which rows are held out; noise has separate keys

[data]
{source}
scale = "none"  # nothing is read off the rows: that would not be charged
test = 0.3      # share of every client's rows that is held out, each row decided by itself; 0: none

# What is possible in each column, from what everybody may know of it and NOT from these rows: put
# numbers and names where a "?" stands; until then the run refuses to begin, and spends nothing.
[data.columns]
{columns}

[problem]
loss = {loss}  # it must be smooth{model}
regulariser = "l2"
strength = 1e-3

[privacy]                      # one total for every single row, whatever is run within it
epsilon = 1.0     # the odds of any belief about a row change by a factor of at most exp(epsilon)
delta = 1e-6                   # but for this probability; well below one over the number of rows
adjacency = "add-remove"       # one row more or less; "replace": one row is another one
# view = "sum"                 # the total is for anyone who sees sums over all clients only
# sizes = {{ a_client = 1000 }}  # rows of every client; left out: they are counted, and public
# book = "book.json"  # the privacy ledger: all runs on these rows stay within epsilon together
{rehearsal}

# [sweep]                      # other totals to train with: each is charged
# parameter = "privacy.epsilon"
# values = [0.25, 0.5]

[evaluation]
public = false            # the rows judged on are private, too: numbers on them stay with the owner

[algorithm]
name = "private_admm"
max_rounds = 100               # the budget is spread over them
# options = {{ clip = 1.0, rho = 0.5, mechanism = "gaussian" }}  # left out: from public numbers

[report]
html = true
# compare_with = ["erm"]       # the same problem without privacy: it stays with the owner
"""
# of numbers, of two classes, and of several
PRIVATE_LOSSES = (
    '"huber"                 # or "squared"',
    '"logistic"              # or "smooth_hinge"',
    AGNOSTIC_LOSSES[2],
)
PUBLIC = "rehearsal = true      # the rows are public: the guarantee is only tried out"


# ----------------------------------------------------------------------------------- the choice


def starter(
    *,
    out: Path,
    dataset: str | None = None,
    path: Sequence[str] | None = None,
    asked: Asked | None = None,
    private: bool = False,
    agnostic: bool = False,
    during: During = nullcontext,
) -> tuple[str, list[str]]:
    """(the text of a configuration to be written to ``out``, what was seen and proposed in lines).

    ``during`` is opened with a text that says what is done, for each part that may take long.

    Raises
    ------
    ConfigError : columns that do not exist, and all that cannot be guessed safely
    ValueError, OSError : a file that cannot be read
    """
    if dataset is not None:
        data = inspect_dataset(dataset, agnostic)
    else:
        assert path is not None
        data = inspect_tables(path, out, asked or Asked(), private, during)
    classes, about = [*data.classes], [*data.about]
    several, kind = len(classes) > 2, min(len(classes), 3) - 1 if classes else 0
    if several and not private and not agnostic:
        about.append(f"{len(classes)} classes: {SOFTMAX}")
    shown = [*about, *data.asks]
    known = {
        # it stands in comments, which end with their line
        "file": "".join(c if c.isprintable() else "?" for c in out.name),
        "title": toml_value(data.title),
        "source": "".join(f"# {line}\n" for line in about) + data.source,
    }
    if private:
        columns = (f"{toml_key(name)} = {how}" for name, how in data.columns.items())
        known |= {"columns": "\n".join(columns), "model": '\nmodel = "softmax"' * several}
        known |= {"rehearsal": "# " * (dataset is None) + PUBLIC, "loss": PRIVATE_LOSSES[kind]}
        return PRIVATE.format(**known), about
    known["balance"] = balance(data.classes)
    if agnostic or several:
        # if nobody asked for the worst client weights, they are near the sizes, without a clock
        clients, option, tol = ALIKE, "", "1e-6"
        if agnostic:
            clients = WORST.format(client=toml_key(data.client))
            option, tol = " --agnostic", "1e-3"
        known |= {"loss": AGNOSTIC_LOSSES[kind], "model": MODELS[several]}
        return AGNOSTIC.format(**known, clients=clients, option=option, tol=tol), shown
    known |= {"clients": CLIENTS, "loss": LOSSES[not classes]}
    known |= {"label": toml_value(classes[-1] if classes else "a class")}
    cost = "of flipping a label" if classes else "of moving the target by one unit"
    text = ROBUST.format(**known, label_cost_means=cost)
    if not classes:  # the loss is in units of the target
        with during("measuring the residuals of a ridge regression"):
            spread = residual_scale(prepare(parse_config(text, folder=out.parent)).train)
        threshold = f"threshold = {1.35 * spread:.3g}"
        why = "1.35 times the spread of the residuals of a ridge regression"
        text = re.sub(r"(?m)^(loss = .*)$", rf"\1\n{threshold}  # {why}", text, count=1)
    return text, shown


def balance(classes: Mapping[object, int]) -> str:
    """The line that weighs the classes alike, with its reason, where one of them is rare."""
    rows = sum(classes.values())
    if not classes or min(classes.values()) >= RARE * rows * 2 / len(classes):
        return ""
    rarest = min(classes, key=lambda name: classes[name])
    why = (
        f"the class {toml_value(rarest)} has {100 * classes[rarest] / rows:.1f} % of the rows, and"
        " where all rows count alike a model may seldom predict it. So weighed it is predicted more"
        " often, rightly and wrongly; probabilities stay those of the rows as they are"
    )
    lines = textwrap.wrap(why, 78, initial_indent="# ", subsequent_indent="#   ")
    return "\n".join([*lines, toml_line("class_weight", "balanced")]) + "\n"


@dataclass(frozen=True)
class Inspected:
    """What is known of the data.

    Attributes
    ----------
    source : the keys of the configuration's [data]
    classes : the classes of the target and the rows of each, none of a number
    columns : of the features, how a private run is to declare them
    client : the name of a client for examples
    about : what was seen and is proposed, in lines
    asks : what to ask clients before a run, in lines
    """

    title: str
    source: str
    classes: Mapping[object, int]
    columns: Mapping[str, str]
    client: str = SOMEBODY
    about: Sequence[str] = ()
    asks: Sequence[str] = ()


def inspect_dataset(name: str, several: bool) -> Inspected:
    """A data set by name; without ``several`` only two classes count as classes."""
    from bonafed.runs.splits import dataset

    data = dataset(name)
    tables = data.tables
    names = [key for key in next(iter(tables.values())) if key != data.target]
    person = next(filter(names_a_person, names), None)
    found = np.concatenate([table[data.target] for table in tables.values()])
    known = [] if data.classes is None else data.classes.tolist()
    classes = {name: int((found == name).sum()) for name in known}
    return Inspected(
        title=name,
        source="\n".join(
            [
                toml_line("name", name),
                *([] if person is None else [toml_line("person", person)]),
                *([] if data.owned else [PARTITION]),
            ]
        ),
        classes=classes if several or data.two_classes else {},
        columns={
            key: _of_public([table[key] for table in tables.values()])
            for key in names
            if key != person
        },
        client=next(iter(tables)) if data.owned else SOMEBODY,
    )


def _of_public(parts: Sequence[np.ndarray]) -> str:
    """What a private run declares of a column that everybody may see: what it holds."""
    if any(part.dtype.kind == "O" for part in parts):
        found = {str(cell) for part in parts for cell in part.tolist() if cell is not None}
        return f"{{ categories = {toml_value(sorted(found))} }}"
    numbers = np.concatenate(parts).astype(np.float64)
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    gaps = f", missing = {float(np.nanmedian(numbers))!r}" if np.isnan(numbers).any() else ""
    return f"{{ min = {low!r}, max = {max(high, np.nextafter(low, np.inf))!r}{gaps} }}"


def inspect_tables(
    path: Sequence[str], out: Path, asked: Asked, private: bool, during: During = nullcontext
) -> Inspected:
    """The user's tables; what is not asked for is guessed where that is safe.

    Raises
    ------
    ConfigError : what cannot be guessed safely, all at once, with the options to give
    """
    with during("reading the tables"):
        seen = look(path, asked)
    with during(f"looking at {len(seen.names):,} columns"):
        problems = seen.problems(private)
        lines = [] if problems else proposals.lines_of(seen, private)
    if problems:
        raise ConfigError("\n".join(problems))
    if not proposals.used(seen):
        text = "\n".join(proposals.drawn(lines))
        raise ConfigError(f"no column is left for the features:\n{text}")
    # as seen from the configuration
    seen_from = [
        one if os.path.isabs(one) else os.path.relpath(one, out.parent).replace(os.sep, "/")
        for one in path
    ]
    where = seen_from[0] if len(path) == 1 else seen_from
    keys = proposals.private_keys(seen) if private else proposals.data_keys(seen)
    source = f"{toml_line('path', where)}\n{keys}"
    with during("comparing the clients"):
        odd = [] if private else proposals.questions(seen, source, out.parent)
    # the name of a file, or of the folder of many
    first = Path(path[0])
    title = stem(first).strip("*") if len(path) == 1 else first.absolute().parent.name
    title = title or first.absolute().parent.name or "run"
    return Inspected(
        title=title,
        source="\n".join([source, *proposals.asked(seen, odd)]),
        classes=dict(zip(seen.values_of_classes, seen.classes.values(), strict=True)),
        columns=proposals.declared(seen),
        about=[*proposals.summary(seen, private), *proposals.drawn(lines, 78)],
        asks=[f"question: {one}" for one in odd],
    )
