"""Runs over NVIDIA FLARE, each site a process of its own, are those of one process."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wrapped import arrays

import quorate as qr
from quorate.engines.replay import Replay
from quorate.rounds import decode

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
    from flare_examples import FEDERATED, ROUNDS, SITES, rows

    from quorate.engines.flare import simulate

    owners = {name: tmp_path / "owners" / name for name in SITES}
    for folder in owners.values():
        folder.mkdir(parents=True)
    done = simulate(
        {"experiment": "examples"},
        owners,
        tmp_path / "work",
        time_limit=400,
        server="flare_examples.ExampleServer",
        site="flare_examples.ExampleSite",
    )
    assert len(FEDERATED) > 20
    for number, example in enumerate(FEDERATED.values()):
        state, log = decode((done / f"{number}.run").read_bytes())
        concrete, data = example.stated[0].at(rows())
        method = replace(example.algorithm, problem=concrete)
        here = Replay(log).run(method, data, max_rounds=ROUNDS)
        # another process may lay out arrays otherwise, and round otherwise
        for mine, theirs in zip(arrays(here.state), arrays(state), strict=True):
            scale = np.abs(mine[np.isfinite(mine)]).max(initial=0.0)
            np.testing.assert_allclose(theirs, mine, rtol=1e-12, atol=1e-12 * scale)
