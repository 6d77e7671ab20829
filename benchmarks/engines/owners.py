"""Owners of data for the benchmarks of engines: folders with a table and a policy, and a job.

Every site has few rows of many features, so that messages are as large as wanted and a step at a
site takes next to no time. No site would allow that by default: each ``site.toml`` here permits
more parameters than rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import bonafed as bf
from bonafed.algorithms.method import Method
from bonafed.data.schema import declared_schema
from bonafed.engines.network import Network
from bonafed.engines.wire import LocalTransport
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party, open_party
from bonafed.sites.rows import Roles
from bonafed.sites.server import job_of
from bonafed.sites.session import agree
from bonafed.solution.plan import configure

FEATURES, ROWS = 6250, 16
TARGET, CLASSES = "state", ("ill", "well")
PROBLEM = bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2))
ALGORITHMS: dict[str, Callable[[int], Method]] = {
    "AFL": lambda rounds: bf.AFL(max_rounds=rounds, tol=0.0),  # sites keep a state
    "FedAvg": lambda rounds: bf.FedAvg(max_rounds=rounds, tol=0.0),  # they keep none
}


CLOCKED = (
    (Party, "answer", "a message at its site"),
    (Party, "_stepped", "of it the step, and the state written"),
    (Party, "_keep", "of that the state written"),
    (Guard, "heard", "of it the question in the log"),
    (Guard, "said", "of it the answer in the log, on the disk"),
)


def table(number: int, features: int) -> dict[str, np.ndarray]:
    """The table of a site."""
    rng = np.random.default_rng(number)
    X = rng.normal(scale=features**-0.5, size=(ROWS, features)).round(4)
    state = np.where(X[:, 0] + rng.normal(scale=0.02, size=ROWS) > 0, *CLASSES)
    return dict(zip(_names(features), X.T, strict=True)) | {TARGET: state}


def make(folder: Path, count: int, features: int = FEATURES) -> dict[str, Path]:
    """The folders of so many sites, by their names."""
    sites = {f"site-{k + 1}": folder / f"site-{k + 1}" for k in range(count)}
    for number, (name, place) in enumerate(sites.items()):
        place.mkdir(parents=True, exist_ok=True)
        columns = table(number, features)
        rows = zip(*[each.tolist() for each in columns.values()], strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        (place / "rows.csv").write_text("\n".join(lines) + "\n")
        (place / "site.toml").write_text(
            f'[site]\nname = "{name}"\n\n[data]\npath = "rows.csv"\n\n'
            "[policy]\nmaximum_parameter_share = 1000\n"
        )
    return sites


def job(
    experiment: str, algorithm: str, rounds: int, patience: float = 600.0, features: int = FEATURES
) -> dict[str, str]:
    """The job of a run of so many rounds."""
    method = ALGORITHMS[algorithm](rounds)
    return job_of(experiment, PROBLEM, method, roles(features), patience, seed=0)


def roles(features: int) -> Roles:
    """What the columns of the tables are for."""
    return Roles(TARGET, _schema(features).to_dict(), classes=CLASSES)


def in_one_process(
    sites: Mapping[str, Path], algorithm: str, rounds: int, features: int = FEATURES
) -> bf.Solution:
    """The run of a job without an engine that carries messages."""
    tables = {name: table(number, features) for number, name in enumerate(sites)}
    fed = bf.Federation.from_tables(tables, TARGET, schema=_schema(features))
    return bf.solve(
        PROBLEM, fed, algorithm=ALGORITHMS[algorithm](rounds), engine=bf.InProcess("each")
    )


def profile(
    sites: Mapping[str, Path], folder: Path, algorithm: str, rounds: int, features: int = FEATURES
) -> dict[str, float]:
    """Median wall milliseconds of a round whose sites are functions of this process, and the mean
    of what a message costs at its site, by what it is spent on.
    """
    spent: dict[str, float] = {}
    with ExitStack() as stack:
        for owner, name, what in CLOCKED:
            stack.enter_context(clocked(owner, name, what, spent))
        parties = {
            name: stack.enter_context(closing(open_party(place, name)))
            for name, place in sites.items()
        }
        carrier = LocalTransport({name: partial(p.answer, "here") for name, p in parties.items()})
        stack.enter_context(closing(carrier))
        agreement = agree(carrier, "here", PROBLEM, roles=roles(features).text())
        concrete, data = agreement.problem.at(agreement.metadata)
        method = configure(ALGORITHMS[algorithm](rounds), concrete, data)
        spent.clear()
        run = Network(agreement.session, checkpoint=folder / "here.checkpoint").run(
            method, data, max_rounds=rounds
        )
    times = np.diff([row["time"] for row in run.history])
    messages = rounds * len(sites)
    each = {what: 1000 * seconds / messages for what, seconds in spent.items()}
    return {"a round": 1000 * float(np.median(times)), **each}


@contextmanager
def clocked(owner: type, name: str, what: str, spent: dict[str, float]) -> Iterator[None]:
    """Add up the wall seconds inside a method."""
    method = getattr(owner, name)

    def timed(*given: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*given, **more)
        finally:
            spent[what] = spent.get(what, 0.0) + time.perf_counter() - began

    with mock.patch.object(owner, name, timed):
        yield


def answered(site: Path) -> int:
    """How many messages a site has answered, by its log."""
    log = site / "audit.jsonl"
    return log.read_bytes().count(b'"way":"out"') if log.exists() else 0


def _names(features: int) -> list[str]:
    return [f"x{j}" for j in range(features)]


def _schema(features: int) -> Any:
    return declared_schema(_names(features), {}, TARGET, CLASSES)
