"""Runs over NVIDIA FLARE, each site a process of its own, are those of one process."""

import importlib.util
import os
from pathlib import Path

import carried_examples
import numpy as np
import pytest
from sites.folders import NAMES, PROBLEM, folder_of, roles, rows_of

import quorate as qr
from quorate.data.declared_schema import declared_schema
from quorate.sites.audit import read_log
from quorate.sites.server import job_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nvflare") is None, reason="needs pip install 'quorate[flare]'"
)


@pytest.fixture
def importable(monkeypatch):
    """FLARE's processes have quorate and the tests on their path."""
    places = [Path(qr.__file__).parents[1], Path(__file__).parents[1]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
    monkeypatch.delenv("QUORATE_SITE", raising=False)


def test_every_algorithm_makes_the_iterates_of_one_process(tmp_path, importable):
    from quorate.engines.flare import simulate

    done = simulate(
        {"experiment": "examples"},
        carried_examples.owners(tmp_path / "owners"),
        tmp_path / "work",
        time_limit=400,
        server="flare_examples.ExampleServer",
        site="flare_examples.ExampleSite",
    )
    carried_examples.check(done)


def test_three_owners_with_tables_and_policies(tmp_path, importable):
    from quorate.engines.flare import simulate

    sites = {name: folder_of(tmp_path / "owners", name) for name in NAMES}
    job = job_of("trial", PROBLEM, roles=roles(), seed=0)
    done = simulate(job, sites, tmp_path / "work", time_limit=300)
    there = qr.load(done / "solution.qr")
    schema = declared_schema([*("age", "dose", "stay")], {}, "state", ("ill", "well"))
    fed = qr.Federation.from_tables({n: rows_of(n) for n in NAMES}, "state", schema=schema)
    here = qr.solve(PROBLEM, fed, engine=qr.InProcess("each"))
    np.testing.assert_allclose(there.w, here.w, rtol=1e-12, atol=1e-14)
    assert there.outcome.stop is qr.Stop.OPTIMAL
    for folder in sites.values():
        entries, faults = read_log(folder / "audit.jsonl")
        assert not faults
        assert {"Introduce", "Evaluate"} <= {entry.kind for entry in entries if entry.way == "in"}
