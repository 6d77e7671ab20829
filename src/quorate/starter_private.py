"""A first configuration of a private run. It names columns, and nothing that was read off their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TEMPLATE = """\
# Written by `quorate init --private`. See what it would spend with `quorate run --dry-run {file}`, then run it with
# `quorate run {file}`; every key has a default unless it says otherwise.
title = {title}
seed = 0                       # of which rows are held out; noise has keys of its own

[data]
{source}
{classes}scale = "none"                 # nothing is read off the rows: that would tell about them without being charged
test = 0.3                     # share of every client's rows that is held out, each row decided by itself; 0: none

[data.columns]                 # what is possible, from what you know of the columns, NOT from these rows
{columns}

[problem]
loss = {loss}  # it must be smooth
regulariser = "l2"
strength = 1e-3

[privacy]                      # one total for every single row, whatever is run within it
epsilon = 1.0                  # the odds of anything said about a row change by a factor of at most exp(epsilon)
delta = 1e-6                   # but for this probability; well below one over the number of rows
adjacency = "add-remove"       # one row more or less; "replace": one row is another one
# sizes = {{ a_client = 1000 }}  # rows of every client, declared; left out: they are counted, and public
# book = "book.json"           # all runs on these rows write into it what they spend, and together stay within epsilon
# curve = [0.25, 0.5]          # other totals to train with: each is charged, and stays with the owner
{rehearsal}

[evaluation]
public = false                 # the rows judged on are private, too: numbers on them stay with the owner

[algorithm]
name = "private_admm"
max_rounds = 100               # the budget is spread over them
# options = {{ clip = 1.0, rho = 0.5, mechanism = "gaussian" }}  # left out: from public numbers

[report]
html = true
# compare_with = ["erm"]       # the same problem without privacy: it stays with the owner
"""


def private_starter(
    file: str,
    title: str,
    source: str,
    columns: Mapping[str, Any],
    left_out: set[str],
    classes: Sequence[Any],
    from_tables: bool,
) -> str:
    """The text of a configuration; of ``columns``, those of one table, the kind is looked at and nothing else."""
    from quorate.starter import _value

    lines = [_declared(_key(name), column) for name, column in columns.items() if name not in left_out]
    public = "rehearsal = true               # the rows are public: what is promised is only tried out"
    named = (
        f"classes = [{', '.join(map(_value, classes))}]         # the two values that the target can have: check them\n"
    )
    return TEMPLATE.format(
        file=file,
        title=title,
        source=source,
        loss='"logistic"              # or "smooth_hinge"' if classes else '"huber"                 # or "squared"',
        classes=named if from_tables and classes else "",
        columns="\n".join(lines),
        rehearsal=f"# {public}" if from_tables else public,
    )


def _declared(key: str, column: Any) -> str:
    if column.dtype.kind == "O":
        return f'{key} = {{ categories = ["?"] }}  # every one that is possible'
    return f"{key} = {{ min = 0.0, max = 1.0 }}"


def _key(name: str) -> str:
    import tomli_w

    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")
