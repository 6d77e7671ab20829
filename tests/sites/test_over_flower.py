"""Runs over Flower, whose sites are separate processes, are those of one process."""

import importlib.util
import os
from pathlib import Path

import carried_examples
import pytest

import bonafed as bf

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("flwr", "ray")),
    reason="needs pip install '.[flower]'",
)


def test_every_algorithm_makes_the_iterates_of_one_process(tmp_path):
    from bonafed.sites.trial.flower import simulate

    places = [Path(bf.__file__).parents[1], Path(carried_examples.__file__).parent]
    carried_examples.compile_here(tmp_path / "here")
    done = simulate(
        {"experiment": "examples"},
        carried_examples.owners(tmp_path / "owners"),
        tmp_path / "work",
        timeout=900,
        variables={"PYTHONPATH": os.pathsep.join(map(str, places))},
        apps="flower_examples",
    )
    carried_examples.check(done)
