"""What is done for every client takes time in proportion to the clients: no step looks at all of
them for each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import bonafed as bf
from bonafed.config.config import read_config
from bonafed.data import readers
from bonafed.report.terminal import Display
from bonafed.runs.splits import prepare
from bonafed.solution.tables import client_table, tightest

FEW, MANY = 200, 3200  # sixteen times as many
CONFIG = """
title = "many"
[data]
path = "all.csv"
client = "site"
target = "sick"
test = 0.4
"""


def federation(n: int) -> bf.Federation:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 3, 2)), np.tile([0, 1, 1], (n, 1))
    return bf.Federation(tuple(f"site {k}" for k in range(n)), tuple(X), tuple(y), classes=y[0][:2])


def seconds(act: Callable[[], object]) -> float:
    """Of the processor, not of the clock."""
    start = time.process_time()
    act()
    return time.process_time() - start


def in_proportion(few: Callable[[], object], many: Callable[[], object], times: int) -> bool:
    """Whether the least time of so many more clients is at most three times as much more. What
    else the machine does only adds to a time, so a few tries show a proportion.
    """
    least = [math.inf, math.inf]
    for _ in range(12):
        least = [min(old, seconds(act)) for old, act in zip(least, (few, many), strict=True)]
        if least[1] < 0.05 + 3 * times * least[0]:
            return True
    return False


def table_of_clients(n: int) -> Callable[[], object]:
    fed = federation(n)
    proof = bf.solve(bf.Problem(bf.Logistic(), regulariser=bf.L2(1.0)), fed, max_rounds=1)
    return lambda: client_table(proof.problem, fed, proof.certificate)


def constraints(n: int) -> Callable[[], object]:
    rows = [{"owner": f"site {k}", "slack": float(-k)} for k in range(n)]
    return lambda: tightest(rows)


STEPS: dict[str, Callable[[int], Callable[[], object]]] = {
    "table of clients": table_of_clients,
    "constraints": constraints,
    "restricted": lambda n: (lambda fed: lambda: fed.restrict(fed.clients))(federation(n)),
    "split": lambda n: (lambda fed: lambda: fed.split())(federation(n)),
    "digests": lambda n: federation(n).digests,
    "made": lambda n: lambda: federation(n),
}


@pytest.mark.parametrize("step", STEPS)
def test_time_is_in_proportion_to_the_clients(step: str) -> None:
    assert in_proportion(STEPS[step](FEW), STEPS[step](MANY), MANY // FEW)


def test_many_clients_are_read_in_proportion(tmp_path: Path) -> None:
    def read(n: int) -> Callable[[], object]:
        folder = tmp_path / str(n)
        folder.mkdir()
        rows = [f"site {k},{j},{k % 7},{'yes' if j else 'no'}" for k in range(n) for j in range(3)]
        (folder / "all.csv").write_text("\n".join(["site,a,b,sick", *rows]) + "\n", "utf-8")
        (folder / "many.toml").write_text(CONFIG, "utf-8")
        return lambda: prepare(read_config(folder / "many.toml"))

    assert in_proportion(read(100), read(800), 8)


def test_reading_that_takes_long_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(4):
        (tmp_path / f"{k}.csv").write_text("a,y\n1,0\n2,1\n", "utf-8")
    # seconds at which the reader tells of each file; other threads have another clock
    for times, told in (((0, 0, 0, 0), ""), ((0, 0.5, 1.5, 2), "reading: 2 of 4 files\n")):
        clock = SimpleNamespace(monotonic=lambda: 10.0)
        monkeypatch.setattr("bonafed.report.terminal.time", clock)
        shown, now = Display(Console()), iter(times)
        clock.monotonic = lambda now=now: 10.0 + next(now)
        readers.read_clients(tmp_path, watch=shown.read)
        assert capsys.readouterr().out == told
