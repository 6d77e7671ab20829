"""A first configuration, commented: for a data set by name, or for tables after a look at their columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quorate.config import ConfigError

CLIENTS = ("client", "site", "hospital", "clinic", "center", "centre", "bank", "branch", "region", "group", "source")
TARGETS = ("target", "label", "outcome", "diagnosis", "class", "y", "sick", "disease", "default", "response")

MOST = 50  # classes of a text column

TEMPLATE = """\
# Written by `quorate init`. Run it with `quorate run {file}`; every key has a default unless it says otherwise.
title = {title}
seed = 0                       # of the split, of noise, of every random stream

[data]
{source}
scale = "standard"             # of numbers, fitted from sums over the clients: "standard", "minmax" or "none"
test = 0.3                     # share of every client's rows that is held out to judge on; 0: none
shifted = {shifted}                   # clients that are never trained on, only judged on
# [data.drift]                 # makes the shifted clients' data worse: in units of the scaled features
# scale = 1.1                  # an instrument out of tune: x' = scale x + offset
# noise = 0.2                  # standard deviation of noise on every feature

[problem]
loss = {loss}
regulariser = "l2"             # "none", "l1", "l2" or "elastic_net"
strength = 1e-3
intercept = true               # free of the regulariser and of the adversary

[robust]                       # the Wasserstein ball round every client's rows
radius = {radius}                  # 0: their own distribution; "auto": read off the rows; a table: one per client
label_cost = {label_cost}               # {label_cost_means}; inf: labels never move
norm = "l1"                    # of a change of the features: "l1", "l2" or "linf"
support = "none"               # or a box the features stay in, such as {{ lower = 0.0, upper = 1.0 }}

[clients]                      # the worst mix of the clients
risk = "lp_ball"               # "mean" (no worst case), "simplex" (any mix) or "lp_ball" (near the prior)
radius = 0.1                   # how far the mix may be from the prior, in the p-norm
p = 2.0                        # >= 1 or inf
prior = "uniform"              # or "size" (by rows), or a table with one weight per client

# [[constraint]]               # what the model must keep; needs [robust] and [clients] left out, and a smooth loss
# kind = "neyman_pearson"      # mean loss of one class; or "demographic_parity", "bounded_group_loss", "sign", ...
# label = {label}
# level = 0.3                  # at every client: a number, or a table with one for each
# on = "clients"               # or "together" (all rows), "server" (rows of data.server)

# [path]                       # other radii to try on a part of the training rows, shown in the report
# radii = {{ from = 0.001, to = 1.0, count = 10 }}  # geometric; or a list, such as [0.0, 0.01, 0.1]
# client_radii = [0.0, 0.1, 0.3]  # left out: the radius of [clients]
# test = 0.3                   # share of every client's training rows that the points are judged on

[algorithm]
name = "auto"                  # "bundle", "ad_lpmm", "epigraph_admm", "double_loop"; with constraints
                               # "interior_point" or "proximal_al"
tol = 1e-6                     # relative gap at which to stop

[report]
html = true
compare_with = ["erm", "afl"]  # models to train beside it: "erm", "afl", "drfa", "wafl"
"""


PARTITION = (
    'partition = { by = "dirichlet", clients = 10, alpha = 1.0 }  # whose each row is: "iid", "dirichlet", "label"'
)


def starter(
    *,
    out: Path,
    dataset: str | None = None,
    path: str | None = None,
    client: str | None = None,
    target: str | None = None,
    private: bool = False,
    agnostic: bool = False,
) -> tuple[str, list[str]]:
    """(the text of a configuration to be written to ``out``, what was guessed in words).

    Raises
    ------
    ConfigError : columns that do not exist or cannot be guessed
    ValueError, OSError : a file that cannot be read
    """
    said: list[str] = []
    shifted: list[str] = []
    if dataset is not None:
        from quorate.parts import dataset as load

        found = load(dataset)
        source, title = _line("name", dataset), dataset
        classes = [] if found.classes is None else found.classes.tolist()
        classes = classes if agnostic or found.two_classes else []
        if not found.owned:
            source += "\n" + PARTITION
    else:
        assert path is not None
        source, classes = _inspected(path, out, client, target, said, agnostic)
        title = Path(path).name.split(".")[0].strip("*") or Path(path).absolute().parent.name or "run"
    binary = bool(classes)
    if private:
        from quorate.starter_private import private_starter

        columns = dict(next(iter(found.tables.values()))) if dataset is not None else _columns(path or "", source)
        left_out = {found.target} if dataset is not None else set()
        return private_starter(out.name, _value(title), source, columns, left_out, classes, dataset is None), said
    if agnostic:
        from quorate.starter_agnostic import agnostic_starter

        someone = next(iter(found.tables)) if dataset is not None and found.owned else "a_client"
        return agnostic_starter(out.name, _value(title), source, classes, someone), said
    text = TEMPLATE.format(
        file=out.name,
        title=_value(title),
        source=source,
        shifted=_value(shifted),
        loss='"hinge"                 # or "smooth_hinge", "logistic"'
        if binary
        else '"huber"                 # or "absolute", "epsilon_insensitive", "quantile"',
        label=_value(classes[-1] if binary else "a class"),
        radius=0.05,
        label_cost=1.0 if binary else "inf",
        label_cost_means="of flipping a label" if binary else "of moving the target by one unit",
    )
    return text, said


def _inspected(
    path: str, out: Path, client: str | None, target: str | None, said: list[str], several: bool
) -> tuple[str, list[Any]]:
    """The keys of [data] for tables, and the classes of the target: of two, or where ``several`` text of up to 50."""
    from quorate.data import tables

    files = tables._paths(path)
    first = tables.read(files[0])
    for name in filter(None, (client, target)):
        tables.has_column(first, name, "given")
    target = target or _guess_target(first, client, said)
    if client is None and len(files) == 1:
        client = _guess_client(first, target, said)
    y = np.concatenate([tables.read(f)[target] for f in files])
    values = np.unique(y[[v is not None for v in y]])
    classes = len(values) == 2 or (several and y.dtype.kind == "O" and 2 < len(values) <= MOST)
    if y.dtype.kind == "O" and not classes:
        raise ConfigError(
            f"column {target!r} holds text of {len(values)} kinds: give --target, a column of two classes"
            + f", or --agnostic for several (up to {MOST})" * (not several)
        )
    kept = path if os.path.isabs(path) else os.path.relpath(path, out.parent).replace(os.sep, "/")
    lines = [_line("path", kept)]
    lines += [_line("client", client)] if client is not None else ["# one file per client, named by the file"]
    return "\n".join([*lines, _line("target", target)]), values.tolist() if classes else []


def _columns(path: str, source: str) -> dict[str, Any]:
    """The columns of the first table that are neither its target nor its clients."""
    import tomllib

    from quorate.data import tables

    named = tomllib.loads(source)
    found = tables.read(tables._paths(path)[0])
    return {name: column for name, column in found.items() if name not in (named["target"], named.get("client"))}


def _guess_target(table: Mapping[str, Any], client: str | None, said: list[str]) -> str:
    names = [name for name in table if name != client]
    found = _named(names, TARGETS) or names[-1]
    said.append(f"target = {found!r} (guessed; give --target to choose)")
    return found


def _guess_client(table: Mapping[str, Any], target: str, said: list[str]) -> str:
    names = [name for name in table if name != target]
    text = [n for n in names if table[n].dtype.kind == "O" and 2 <= len({*table[n]}) <= max(2, len(table[n]) // 5)]
    found = _named(names, CLIENTS) or next(iter(text), None)
    if found is None:
        raise ConfigError(f"no column looks like the client of each row: give --client. Columns: {', '.join(table)}")
    said.append(f"client = {found!r} (guessed; give --client to choose)")
    return found


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The column with one of the known names, alone or as a part of its name."""
    parts = {name: name.lower().replace("-", "_").replace(" ", "_").split("_") for name in names}
    alone = [name for word in known for name in names if name.lower() == word]
    return next(iter([*alone, *(name for word in known for name in names if word in parts[name])]), None)


def _line(key: str, value: Any) -> str:
    return f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    import tomli_w

    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip()
