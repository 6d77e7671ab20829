"""One unit in the last place of what clients send changes no model of a bundle run, so that a run
can be computed again on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import quorate as qr
from quorate.algorithms.federated.bundle.masked_bundle import MaskedBundle
from quorate.codec import mapped
from quorate.rounds import Algorithm
from quorate.solution.configure import configure

RUNS = {"logistic": (qr.Logistic(), qr.Bundle()), "hinge": (qr.Hinge(), qr.Bundle())}
RUNS["masked"] = qr.Logistic(), MaskedBundle()
# how far apart models may be, relative; a program over an exponential cone, as that of a KLBall is,
# is solved to so much less
RISKS = {"LpBall": (qr.LpBall(0.2), 1e-8), "Simplex": (qr.Simplex(), 1e-8)}
RISKS |= {"KLBall": (qr.KLBall(0.2), 1e-4), "Mean": (qr.Mean(), 1e-8)}


@dataclass(frozen=True)
class Nudged(Algorithm):
    """An algorithm, each number of whose answers is changed by one unit in its last place or not,
    and that keeps its models.
    """

    inner: Any
    draw: np.random.Generator | None
    models: list[Any] = field(default_factory=list)

    @property
    def on_client(self) -> Any:
        def nudged(step: Any) -> Any:
            def stepped(*given: Any) -> Any:
                memory, upload = step(*given)
                return memory, mapped(upload, self._other)

            return stepped

        return {kind: nudged(step) for kind, step in self.inner.on_client.items()}

    def _other(self, array: Any) -> Any:
        if self.draw is None or array.dtype != float:
            return array
        towards = array + self.draw.choice([-1.0, 0.0, 1.0], array.shape) * np.abs(array)
        return np.nextafter(array, towards)

    @property
    def on_server(self) -> Any:
        masked = isinstance(self.inner, MaskedBundle)

        def kept(step: Any) -> Any:
            def stepped(state: Any, ids: Any, up: Any) -> Any:
                after, ask = step(state, ids, up)
                self.models.append(after.of_one.trial if masked else after.trial)
                return after, ask

            return stepped

        return {kind: kept(step) for kind, step in self.inner.on_server.items()}

    def client_start(self, data: Any) -> Any:
        return self.inner.client_start(data)

    def server_start(self, n_clients: int) -> Any:
        return self.inner.server_start(n_clients)


def federation(seed: int) -> qr.Federation:
    rng, rows = np.random.default_rng(seed), {}
    for k, n in enumerate((40, 55, 30)):
        X = rng.normal(size=(n, 4)) + 0.3 * k
        far = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=n)
        rows[f"s{k}"] = X, np.where(far > 0, "b", "a")
    return qr.Federation.from_arrays(rows)


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_ulp_of_the_answers_changes_no_model(kind: str, risk: str, seed: int):
    (over, apart), (loss, method) = RISKS[risk], RUNS[kind]
    if kind == "masked" and risk == "Simplex":
        return  # which hides nobody, and is refused
    problem = qr.Problem(
        loss, qr.Linear(intercept=True), over_clients=over, regulariser=qr.L2(1e-2)
    )
    concrete, fed = problem.at(federation(seed))
    algorithm = configure(method, concrete, fed)
    plain, nudged = Nudged(algorithm, None), Nudged(algorithm, np.random.default_rng(seed))
    for one in (plain, nudged):
        qr.InProcess("each").run(one, fed)
    assert len(plain.models) == len(nudged.models) > 3
    for one, other in zip(plain.models, nudged.models, strict=True):
        assert np.abs(one - other).max() <= apart * np.abs(one).max(initial=0.0)
