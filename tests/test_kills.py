"""Runs that are killed by SIGKILL, again and again, and gone on with in fresh processes.

`python tests/killed_runs.py --kills 100` does the same with every example, at random moments.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import small_run
from killed_runs import Ended, Killer, Scenario, Tally

DARK = "[report]\nhtml = false"
CURVED = small_run.PRIVATE.replace("[report]", DARK).replace(
    "[privacy]", small_run.sweep("privacy.epsilon", 1.0) + '[privacy]\nbook = "BOOK"'
)
CHAINS = {
    # each is what one process was about to do, and how often it had come to it
    "private": (
        Scenario("clinics", CURVED, book="../books.json", options=()),
        [
            "os.rename books.json#1",  # the charge
            "os.rename sweep-0.checkpoint#1",  # the keys of noise
            "write#18",  # half of a checkpoint
            "os.rename books.json#2",  # charged again, and not settled yet
            "os.rename private.checkpoint#5",
            "open owner/result.json.tmp#1",
            "os.remove partial/place#1",  # the run is in its place
        ],
    ),
    "constrained": (
        Scenario("clinics", small_run.KEPT.replace("[report]", DARK), options=()),
        ["os.rename sweep.points#1"],
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_run_that_is_killed_again_and_again_is_the_same_run_at_the_same_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bonafed: Callable[..., int], name: str
) -> None:
    scenario, moments = CHAINS[name]
    table = small_run.table()
    scenario.tables["clinics.csv"] = small_run.wards(table) if name == "constrained" else table
    # the keys of noise that all processes draw
    monkeypatch.setattr(os, "urandom", lambda n: bytes(k % 251 for k in range(n)))

    def here(root: Path, folder: Path, command: list[str]) -> Ended:
        monkeypatch.chdir(folder)
        return Ended(bonafed(*command), "", [])

    tally = Tally()
    Killer(scenario, tmp_path, random.Random(0), tally, here).chain(len(moments), moments)
    assert tally.wrong == []
    assert tally.kills == len(moments)
