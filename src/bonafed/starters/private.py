"""A first configuration of a private run: it names columns, and nothing that was read off their
values.
"""

from __future__ import annotations

from bonafed.config.toml import toml_key
from bonafed.starters.inspection import Inspected

TEMPLATE = """\
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


PUBLIC = "rehearsal = true      # the rows are public: the guarantee is only tried out"


def private_starter(file: str, data: Inspected) -> str:
    """The text of the configuration, to be written to ``file``; of the columns the kind is looked
    at and nothing else.
    """
    columns = (f"{toml_key(name)} = {how}" for name, how in data.columns.items())
    several = len(data.classes) > 2
    return data.filled(
        TEMPLATE,
        file,
        loss=(
            '"multinomial"           # of several classes'
            if several
            else '"logistic"              # or "smooth_hinge"'
            if data.classes
            else '"huber"                 # or "squared"'
        ),
        model='\nmodel = "softmax"' * several,
        columns="\n".join(columns),
        rehearsal=f"# {PUBLIC}" if data.from_tables else PUBLIC,
    )
