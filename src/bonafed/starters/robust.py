"""A first configuration of a distributionally robust model."""

from __future__ import annotations

from bonafed.config.toml import toml_value
from bonafed.starters.inspection import Inspected

CLIENTS = """\
[clients]                      # the worst client weights
risk = "chi_square"  # near the prior; "mean": no worst case; "simplex": any weights; "lp_ball", ...
radius = 0.05                  # how far from the prior; 0.2 to 0.5 where clients truly differ
prior = "size"                 # by rows; or "uniform", or a table with one weight per client
"""

TEMPLATE = """\
# Written by `bonafed init`. Run it with `bonafed run {file}`.
# Keys have defaults unless they say otherwise.
title = {title}
seed = 0                       # of the split, of noise, of every random stream

[data]
{source}
scale = "standard"  # of numbers, fitted from sums over the clients: "standard", "minmax" or "none"
test = 0.3                     # share of every client's rows that is held out to judge on; 0: none
shifted = {shifted}                   # clients that are never trained on, only judged on
# [data.drift]              # makes the shifted clients' data worse: in units of the scaled features
# scale = 1.1                  # an instrument out of tune: x' = scale x + offset
# noise = 0.2                  # standard deviation of noise on every feature

[problem]
loss = {loss}
regulariser = "l2"             # "none", "l1", "l2" or "elastic_net"
strength = 1e-3
intercept = true               # free of the regulariser and of the adversary

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


def robust_starter(file: str, data: Inspected) -> str:
    """The text of the configuration, to be written to ``file``."""
    classes = data.classes
    return data.filled(
        TEMPLATE,
        file,
        shifted=toml_value([]),
        clients=CLIENTS,
        loss=(
            '"logistic"              # or "hinge", "smooth_hinge"'
            if classes
            else '"huber"                 # or "absolute", "epsilon_insensitive", "quantile"\n'
            '# over sites give engine.secure_sum = true; or "squared", which has no [robust]'
        ),
        label=toml_value(classes[-1] if classes else "a class"),
        label_cost_means="of flipping a label" if classes else "of moving the target by one unit",
    )
