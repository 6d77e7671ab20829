"""How many rows a server reads: of honest runs none, by questions of its own at most one in 200.

Without a policy the same attacks read rows: else they would prove nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from border.askers import ASKERS, RANKED, attack, by_message
from border.readers import CLASSES, PROBLEMS, READERS, ROBUST, World, made, read_by, world

import bonafed as bf
from bonafed.engines.network import RefusedError
from bonafed.names import NAMED, of_place
from bonafed.problem.problem import Problem

AGAIN = {  # further runs about the same rows
    "a model to start at": {"start": [0.3, -0.2, 0.1, 0.0]},
    "another method": {"algorithm": bf.AFL(max_rounds=15)},
}


def told(place: Path, name: str) -> World:
    """What a server has after honest runs of a problem."""
    targets, problem = PROBLEMS[name]
    it = world(place, made(130 if targets == "class" else 60, 3, targets), CLASSES[targets])
    runs = {"first": {}} | (AGAIN if name == "logistic" else {})
    for experiment, settings in runs.items():
        with suppress(RefusedError):  # a site that answers nothing tells nothing
            it.solve(experiment, problem, **settings)
    return it


@pytest.mark.parametrize("name", PROBLEMS)
def test_honest_runs_tell_no_row(name: str, tmp_path: Path):
    it = told(tmp_path, name)
    assert {reader: read_by(it, reader) for reader in READERS} == dict.fromkeys(READERS, 0)


SIZES = {"spans of curvatures": (220, 21, 340)}  # rows, features and questions
HARMLESS = "groups of rows", "steep models"  # on sites so small


def asked(place: Path, asker: str, guarded: bool) -> float:
    """The share of a site's rows that an asker reads."""
    rows, features, questions = SIZES.get(asker, (60, 3, 250))
    it = world(place, made(rows, features), guarded=guarded)
    return len(attack(it, asker, questions=questions)) / rows


@pytest.mark.parametrize("asker", ASKERS)
def test_a_server_that_follows_no_algorithm_reads_hardly_any_row(asker: str, tmp_path: Path):
    assert asked(tmp_path, asker, guarded=True) <= 1 / 200


@pytest.mark.parametrize("asker", [a for a in ASKERS if a not in HARMLESS])
def test_without_a_policy_it_reads_rows(asker: str, tmp_path: Path):
    assert asked(tmp_path, asker, guarded=False) > 0


# methods over several clients that add no noise, and the problems that they take
METHODS = {
    name: of_place(place)
    for name, place in NAMED["algorithm"].items()
    if "pooled" not in place
    and "private" not in place
    and name not in ("smoothed_rank_admm", "output_perturbed_admm")
}
POOLED = "sgd", "lsvrg", "dca"
FREE = bf.L2(1e-8)  # so that local steps do not shrink what is read
TAKEN = [
    replace(problem, regulariser=FREE)
    for problem in (ROBUST, replace(ROBUST, over_clients=bf.Mean()), RANKED)
] + [
    Problem(bf.Logistic(), over_rows=bf.Superquantile(0.5), regulariser=FREE),
    Problem(bf.Hinge(), regulariser=FREE),
]
OF_MODELS = "ad_lpmm", "epigraph_admm", "aspire", "proximal_al"  # answers are models, no sums


def read_by_messages(place: Path, method: str, guarded: bool) -> int:
    """How many rows long models in the messages of a method tell, after an honest run of it; 0
    where the sites refuse the method with every problem that it takes.
    """
    kind, refused = METHODS[method], False
    it = world(place, made(60), guarded=guarded)
    for k, problem in enumerate(TAKEN):
        try:
            it.solve(f"honest {k}", problem, algorithm=kind(max_rounds=4))
        except RefusedError:
            refused = True
        except ValueError:
            continue
        else:
            return len(by_message(it, kind, problem))
    assert refused, f"no problem for {method}"
    return 0


@pytest.mark.parametrize("method", [each for each in METHODS if each not in POOLED])
def test_long_models_in_the_messages_of_no_method_tell_rows(method: str, tmp_path: Path):
    assert read_by_messages(tmp_path, method, guarded=True) == 0


@pytest.mark.parametrize("method", [m for m in METHODS if m not in (*POOLED, *OF_MODELS)])
def test_without_a_policy_they_do(method: str, tmp_path: Path):
    assert read_by_messages(tmp_path, method, guarded=False) > 0
