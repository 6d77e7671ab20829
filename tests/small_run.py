"""A small run on tables of three clinics, for the tests of configurations, runs, reports and the
command line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bonafed.config.config import Config, read_config
from bonafed.report.pages import render
from bonafed.runs.folder import read_run
from bonafed.runs.pipeline import begin, run_study
from bonafed.runs.run import Run

CLINICS = ("North", "East", "South")
CONFIG = """
title = "clinics"
[data]
path = "clinics.csv"
client = "clinic"
target = "sick"
test = 0.4
shifted = ["South"]
drift = { scale = 1.2, noise = 0.2 }
[robust]
radius = 0.05
label_cost = 2.0
[clients]
radius = 0.2
[algorithm]
tol = 1e-6
[report]
compare_with = ["afl", "erm"]
"""
TAIL = (  # a risk by rank over pooled rows
    CONFIG.replace("radius = 0.05\nlabel_cost = 2.0", "")
    .replace("[clients]\nradius = 0.2", '[risk]\nname = "superquantile"\ntail = 0.6')
    .replace("[robust]", '[problem]\nloss = "logistic"\nstrength = 1e-2\npooled = true')
    .replace('"afl", "erm"', '"erm"')
)
RANKS = TAIL.replace("pooled = true", "")  # the same risk inside every client
# and over all rows, which stay where they are
TOGETHER = RANKS.replace("tail = 0.6", 'tail = 0.6\non = "together"')
MIXED = """
title = "clinics"
[data]
path = "clinics.csv"
client = "clinic"
target = "sick"
test = 0.4
[problem]
loss = "logistic"
strength = 1e-2
[clients]
risk = "simplex"
[algorithm]
name = "auto"
tol = 1e-2
"""
CLOCK = (
    MIXED
    + """
[engine]
kind = "virtual_clock"
stragglers = { East = 10.0 }
[report]
compare_with = ["erm"]
"""
)  # the same on a simulated clock
KEPT = """
title = "clinics"
[data]
path = "clinics.csv"
client = "clinic"
target = "sick"
groups = ["ward"]
test = 0.4
shifted = ["South"]
[problem]
loss = "logistic"
label = "no"
strength = 1e-2
[algorithm]
name = "interior_point"
[[constraint]]  # at every client
kind = "neyman_pearson"
label = "yes"
level = { North = 0.4, East = 0.5 }
[[constraint]]  # over all clients together
kind = "demographic_parity"
column = "ward"
level = 0.5
on = "together"
[sweep]
parameter = "constraint.2.level"
values = [0.3, 0.5]
[report]
compare_with = ["unconstrained"]
"""


def wards(text: str, seed: int = 1) -> str:
    """The table with one more column, "ward", of two values."""
    rng = np.random.default_rng(seed)
    head, *lines = text.splitlines()
    return (
        "\n".join([f"{head},ward", *(f"{line},{'ab'[rng.random() < 0.5]}" for line in lines)])
        + "\n"
    )


def table(seed: int = 0, rows: int = 24, clinics: tuple[str, ...] = CLINICS) -> str:
    """CSV with the columns clinic, age, dose, sick."""
    rng = np.random.default_rng(seed)
    lines = ["clinic,age,dose,sick"]
    for k, clinic in enumerate(clinics):
        X = rng.normal(size=(rows, 2)) + np.array([k, 0])
        sick = X @ [1.0, -1.0] + 0.5 * rng.normal(size=rows) > k
        quoted = '"' + clinic.replace('"', '""') + '"'
        lines += [
            f"{quoted},{x[0]:.6f},{x[1]:.6f},{'yes' if s else 'no'}"
            for x, s in zip(X, sick, strict=True)
        ]
    return "\n".join(lines) + "\n"


def write_config(folder: Path, text: str = CONFIG, data: str | None = None) -> Path:
    """clinics.csv and clinics.toml in a folder; the path of the latter."""
    (folder / "clinics.csv").write_text(data or table(), encoding="utf-8")
    (folder / "clinics.toml").write_text(text, encoding="utf-8")
    return folder / "clinics.toml"


def finish(config: Config, out: Path, draw: bool = False) -> Run:
    """Train, evaluate, write."""
    return read_run(run_study(begin(config), out, render=render if draw else None))


def small_run(folder: Path, draw: bool = False, data: str | None = None, text: str = CONFIG) -> Run:
    """A finished run below ``folder``."""
    return finish(read_config(write_config(folder, text, data)), folder / "runs", draw)


PRIVATE = """
title = "clinics"
[data]
path = "clinics.csv"
client = "clinic"
target = "sick"
classes = ["no", "yes"]
scale = "none"
test = 0.4
shifted = ["South"]
[data.columns]
age = { min = -3, max = 4 }
dose = { mean = 0.0, scale = 1.5 }
[problem]
loss = "logistic"
strength = 1e-2
[privacy]
epsilon = 3.0
delta = 1e-5
sizes = { East = 15, North = 14 }
[report]
compare_with = ["erm"]
[algorithm]
max_rounds = 8
"""
PRIVATE_ADMM = PRIVATE.replace("[algorithm]", '[algorithm]\nname = "private_admm"')


def sweep(parameter: str, *values: float, test: float | None = None) -> str:
    """The table [sweep] of other values of a key."""
    judged = "" if test is None else f"test = {test}\n"
    return f'[sweep]\nparameter = "{parameter}"\nvalues = {[*values]}\n{judged}'


def private_run(
    folder: Path, draw: bool = False, data: str | None = None, text: str = PRIVATE_ADMM
) -> Run:
    """A finished private run below ``folder``."""
    config, out = read_config(write_config(folder, text, data)), folder / "runs"
    work = out / "clinics.partial"
    work.mkdir(parents=True, exist_ok=True)
    drawn = render if draw else None
    return read_run(run_study(begin(config, work), out, render=drawn))
