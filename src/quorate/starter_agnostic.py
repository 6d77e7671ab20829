"""A first configuration of a model for the worst mix of the clients, trained on a simulated clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TEMPLATE = """\
# Written by `quorate init --agnostic`. Run it with `quorate run {file}`; every key has a default.
title = {title}
seed = 0                       # of the split, of the delays, of every random stream

[data]
{source}
scale = "standard"             # of numbers, fitted from sums over the clients: "standard", "minmax" or "none"
test = 0.3                     # share of every client's rows that is held out to judge on; 0: none

[problem]
loss = {loss}
model = {model}
# hidden = [16]                # of "mlp": units of the hidden layers
strength = 1e-3                # of the l2 regulariser

[clients]                      # which mixes of the clients count; the model is best for the worst of them
risk = "simplex"               # any mix, that is the worst client; or near a prior, one of these with its keys:
# risk = "cd_norm"             # each weight at most `bounds` from the prior, at most `budget` clients at that end
# budget = 2.0
# bounds = 0.1                 # a number, or a table with one for each client: a small one for those you trust less
# risk = "kl_ball"             # also "chi_square", "total_variation", "lp_ball": within `radius` of the prior
# radius = 0.1
# risk = "box"                 # each weight between `lower` and `upper`
# prior = "size"               # "uniform", "size", or a table with one weight per client

[engine]                       # time is simulated: who is slow is said here, and two runs are equal to the bit
kind = "virtual_clock"         # "in_process": all clients at once, without a clock
# stragglers = {{ {client} = 10.0 }}  # factors of some clients' delays
# outages = {{ {client} = [[20.0, 40.0]] }}  # out of reach from, to, in virtual seconds
# crashes = {{ {client} = 90.0 }}  # never answers after that
wait = {{ kind = "first", n = 1 }}  # go on with the first n answers; "stale" with tau = 10: none older; "adaptive"
# delays = {{ kind = "lognormal", sigma = 0.3, client_sigma = 0.3 }}  # or "constant", or "trace" with a path
# max_time = 1000.0            # virtual seconds

[algorithm]
name = "auto"                  # "async_dro"; also "aspire", "afl", "drfa", "multiplier_method"
tol = 1e-3                     # relative gap at which to stop

[report]
html = true
compare_with = ["erm"]         # models to train beside it: "erm", "afl", "drfa"
"""


def agnostic_starter(file: str, title: str, source: str, classes: Sequence[Any], client: str) -> str:
    """The text of a configuration; ``client`` is a name for the examples in comments."""
    from quorate.starter_private import _key

    losses = (
        '"huber"                 # or "squared"',
        '"logistic"              # or another smooth one, such as "smooth_hinge"',
        '"multinomial"           # of several classes',
    )
    models = '"linear"               # or "mlp", a network', '"softmax"              # or "mlp", a network'
    return TEMPLATE.format(
        file=file,
        title=title,
        source=source,
        loss=losses[min(len(classes), 3) - 1 if classes else 0],
        model=models[len(classes) > 2],
        client=_key(client),
    )
