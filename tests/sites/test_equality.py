"""Runs across sites are those of one process, bit for bit."""

from dataclasses import replace

import pytest
from sites.helpers import agreed
from toy import federation

from bonafed.engines.delays import Constant, First
from bonafed.engines.inprocess import Replay, VirtualClock
from bonafed.engines.network import Network
from bonafed.rounds import encode
from examples import ALGORITHMS

FEDERATED = {name: example for name, example in ALGORITHMS.items() if example.stated is not None}


@pytest.mark.parametrize("example", FEDERATED.values(), ids=FEDERATED.keys())
def test_iterates_across_sites_are_those_one_by_one(example, tmp_path):
    problem, _ = example.stated
    rows = federation((20, 35, 12, 28, 9), 4)
    rows = rows.pooled() if example.federation.n_clients == 1 else rows
    agreement = agreed(problem, rows, tmp_path)
    concrete, data = problem.at(agreement.metadata)
    method = replace(example.algorithm, problem=concrete)
    clock = VirtualClock(Constant(), block_size=1)
    alone = clock.run(example.algorithm, example.federation, seed=3, max_rounds=20)
    run = Network(agreement.session, First()).run(method, data, seed=3, max_rounds=20)
    again = Replay(run.log).run(example.algorithm, example.federation, max_rounds=20)
    assert encode((run.state, run.concluded)) == encode((again.state, again.concluded))
    if all(len(ids) == rows.n_clients for ids in run.active):
        assert encode((run.state, run.concluded)) == encode((alone.state, alone.concluded))
