"""Runs over NVIDIA FLARE, each site a process of its own, are those of one process."""

import importlib.util
import os
from pathlib import Path

import carried_examples
import pytest

import bonafed as bf

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason="needs pip install '.[flare]'"
)


@pytest.fixture
def importable(monkeypatch):
    """FLARE's processes have bonafed and the tests on their path."""
    places = [Path(bf.__file__).parents[1], Path(__file__).parents[1]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
    monkeypatch.delenv("BONAFED_SITE", raising=False)


def test_every_algorithm_makes_the_iterates_of_one_process(tmp_path, importable):
    from bonafed.sites.trial.flare import simulate

    carried_examples.compile_here(tmp_path / "here")
    done = simulate(
        {"experiment": "examples"},
        carried_examples.owners(tmp_path / "owners"),
        tmp_path / "work",
        time_limit=400,
        server="flare_examples.ExampleServer",
        site="flare_examples.ExampleSite",
    )
    carried_examples.check(done)
