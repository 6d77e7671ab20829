"""Configurations with ``engine.secure_sum``: what they are refused for, what to do, and a run that
is verified.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bonafed.config.config import Config, read_config
from bonafed.config.toml_file import ConfigError
from bonafed.runs.folder import read_run
from bonafed.runs.pipeline import begin, opening, run_study
from bonafed.runs.verification import passed, verify_run

PLAIN = """
title = "sums"
[data]
path = "s*.csv"
target = "y"
positive = "yes"
[problem]
loss = "logistic"
regulariser = "l2"
strength = 0.01
[clients]
risk = "lp_ball"
radius = 0.2
[engine]
secure_sum = true
[report]
html = false
compare_with = ["erm"]
"""
BALL = 'risk = "lp_ball"\nradius = 0.2'


def stated(path: Path, old: str = "", new: str = "") -> Config:
    """The configuration with other words, beside tables of three sites."""
    assert old in PLAIN
    rng = np.random.default_rng(0)
    for k in range(3):
        X = rng.normal(size=(40, 2)) + 0.3 * k
        far = X @ [1.0, -1.0] + 0.5 * rng.normal(size=40)
        lines = [
            f"{a:.4f},{b:.4f},{'yes' if m > 0 else 'no'}" for (a, b), m in zip(X, far, strict=True)
        ]
        (path / f"s{k}.csv").write_text("\n".join(["a,b,y", *lines]))
    (path / "run.toml").write_text(PLAIN.replace(old, new, 1) if old else PLAIN)
    return read_config(path / "run.toml")


REFUSED = {
    "hinge": ('"logistic"', '"hinge"', "problem.loss = 'hinge'"),
    "simplex": (BALL, 'risk = "simplex"', "clients.risk = 'simplex'"),
    "flips": ("[engine]", "[robust]\nradius = 0.05\nlabel_cost = 1.0\n[engine]", "robust.radius"),
    "method": ("[engine]", '[algorithm]\nname = "ad_lpmm"\n[engine]', "secure_sum"),
    "level steps": (
        "[engine]",
        '[algorithm]\nname = "bundle"\noptions = { variant = "level" }\n[engine]',
        r"options\.variant",
    ),
    "limit on rows": (
        "[engine]",
        '[[constraint]]\nkind = "neyman_pearson"\nlabel = "yes"\nlevel = 0.4\n[engine]',
        "of the server itself",
    ),
    "drfa": ('["erm"]', '["drfa"]', "compare_with"),
    "pooled": (f"strength = 0.01\n[clients]\n{BALL}", "strength = 0.01\npooled = true", "pooled"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_tells_of_single_clients_is_refused_before_rows_are_read(what: str, tmp_path: Path):
    old, new, key = REFUSED[what]
    with pytest.raises(ConfigError, match=key):
        stated(tmp_path, old, new)


@pytest.mark.parametrize("risk", ["lp_ball", "mean"])
def test_a_run_says_what_is_readable_and_is_verified(risk: str, tmp_path: Path):
    old, new = (BALL, 'risk = "mean"') if risk == "mean" else ("", "")
    study = begin(stated(tmp_path, old, new))
    said = [line for line in opening(study) if "secure sums" in line]
    assert len(said) == 1
    assert ("at every model" in said[0]) == (risk == "lp_ball")
    assert "at the final model" in said[0]
    folder = run_study(study, tmp_path / "out")
    messages = {row["message"] for row in read_run(folder).result["messages"]}
    assert messages == {"Enrol", "Enter", "Work", "Open", "Sealed"}
    assert passed(verify_run(folder))


def test_a_run_with_a_limit_on_the_model_meets_it_and_is_verified(tmp_path: Path):
    limit = '[[constraint]]\nkind = "monotone"\nfeatures = ["a", "b"]\n'
    study = begin(stated(tmp_path, "[engine]", limit + "[engine]"))
    folder = run_study(study, tmp_path / "out")
    (row,) = read_run(folder).result["constraints"]
    assert row["met"]
    assert row["price"] > 0.01
    assert passed(verify_run(folder))
