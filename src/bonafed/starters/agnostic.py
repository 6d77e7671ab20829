"""A first configuration of a model for the worst client weights, trained on a simulated clock."""

from __future__ import annotations

from bonafed.config.toml import toml_key
from bonafed.starters.inspection import Inspected
from bonafed.starters.robust import CLIENTS

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

TEMPLATE = """\
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

{clients}
[algorithm]
name = "auto"                  # "async_bundle"; also "async_dro", "aspire", "afl", "drfa"
tol = {tol}                     # relative gap at which to stop

[report]
html = true
compare_with = ["erm"]         # models to train beside it: "erm", "afl", "drfa"
"""


LOSSES = (
    '"squared"               # or "huber", about which sites answer with engine.secure_sum only',
    '"logistic"              # or another smooth one, such as "smooth_hinge"',
    '"multinomial"           # of several classes',
)
MODELS = (
    '"linear"               # or "mlp", a network',
    '"softmax"              # or "mlp", a network',
)


def agnostic_starter(file: str, data: Inspected, asked: bool = True) -> str:
    """The text of the configuration, to be written to ``file``; if nobody ``asked`` for the worst
    client weights, they are near the sizes, and no clock is simulated.
    """
    classes = data.classes
    return data.filled(
        TEMPLATE,
        file,
        loss=LOSSES[min(len(classes), 3) - 1 if classes else 0],
        model=MODELS[len(classes) > 2],
        clients=WORST.format(client=toml_key(data.client)) if asked else ALIKE,
        option=" --agnostic" if asked else "",
        tol="1e-3" if asked else "1e-6",
    )
