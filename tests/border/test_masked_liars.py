"""A site that lies before its answers are masked: nobody can say which one it was, and the sum is
one that no rows have, or that other rows would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from border.test_liars import LIAR, ROWS, Late, table
from border.test_masked_runs import RISKS, SIMULATED, secure, stated
from liars import LIES
from sites.helpers import agreed

import bonafed as bf
from bonafed.algorithms.federated.bundle.masked_bundle import Blend, Compare, MaskedBundle
from bonafed.certificates.duality import Certification, CertifySums
from bonafed.engines import ClientError
from bonafed.engines.network import ImpossibleAnswerError, Network
from bonafed.problem.parts import SurveySums

# by name, the messages that a site answers with a lie
WHERE: dict[str, dict[type, tuple[type, ...]]] = {
    "always": {
        MaskedBundle: (SurveySums, Compare, Blend),
        Certification: (SurveySums, CertifySums),
    },
    "models": {MaskedBundle: (Compare, Blend)},
    "sums": {MaskedBundle: (Blend,)},
    "certificate": {Certification: (CertifySums,)},
}
OTHER_ROWS = "swapped labels"
# a certificate asks for sums once, and so an earlier answer is the right one
PASSES = {("stale", "certificate")}
NOT_CARRIED = "nan", "inf", "1e200"  # the site's own software masks no such numbers
LYING = [(lie, where) for lie in LIES for where in WHERE if lie not in NOT_CARRIED]


def lie_at(patch: pytest.MonkeyPatch, where: str, lie: Any) -> None:
    """Have one site lie in its answers to these messages."""

    def lying(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(memory: Any, ask: Any, data: Any, rng: Any) -> Any:
            after, up = step(memory, ask, data, rng)
            if data.names[0] != LIAR:
                return after, up
            others = replace(data, y=-data.y)
            return after, lie(ask, up, lambda: step(memory, ask, others, rng)[1])

        return stepped

    def steps_of(honest: Callable[[Any], dict[type, Any]], asks: tuple[type, ...]) -> property:
        return property(
            lambda self: {
                ask: lying(step) if ask in asks else step for ask, step in honest(self).items()
            }
        )

    for cls, asks in WHERE[where].items():
        patch.setattr(cls, "on_client", steps_of(cls.on_client.fget, asks))


@dataclass(frozen=True)
class OneServer(bf.InProcess):
    """Clients of this process, and a server that remembers the sums of earlier runs."""

    secure_sum: Any = SIMULATED
    session: Any = field(default_factory=lambda: SimpleNamespace(told={}))


@pytest.mark.parametrize(("risk", "ball"), [("Mean", "mean"), ("LpBall", "ball")])
@pytest.mark.parametrize(("lie", "where"), LYING)
def test_a_sum_is_held_against_what_rows_can_be(risk, ball, lie, where, monkeypatch):
    lie_at(monkeypatch, where, LIES[lie]())
    try:
        solution = bf.solve(stated(risk, ball), ROWS, engine=OneServer(), max_rounds=12)
    except ImpossibleAnswerError:
        return
    if "ImpossibleAnswerError" in solution.certificate.failed:
        return
    assert lie == OTHER_ROWS or (lie, where) in PASSES
    assert (solution.certificate.bound or 0.0) <= solution.certificate.value * (1 + 1e-9)


@pytest.mark.parametrize("lie", NOT_CARRIED)
def test_numbers_that_are_not_finite_are_masked_by_nobody(lie, monkeypatch):
    lie_at(monkeypatch, "sums", LIES[lie]())
    with pytest.raises(ClientError, match="cannot be added up securely"):
        bf.solve(stated(), ROWS, engine=secure())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", [None, 2.0**-20])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 0.0])
@pytest.mark.parametrize(("loss", "kind"), [(bf.Logistic(), "separable"), (bf.Huber(), "far")])
def test_no_sum_of_odd_tables_is_doubted(loss, kind, scale, step):
    problem = bf.Problem(loss, over_clients=RISKS["LpBall"], regulariser=bf.L2(1e-3))
    engine = bf.InProcess(secure_sum=replace(SIMULATED, step=step))
    solution = bf.solve(problem, table(kind, scale), engine=engine, max_rounds=6)
    assert not solution.certificate.failed


@pytest.mark.parametrize("times", [1, math.inf])
def test_over_sites_an_impossible_sum_ends_the_run_with_what_was_before(
    times, tmp_path, monkeypatch
):
    late = Late(lambda up: replace(up, gradient=-up.gradient), 3, times)
    lie_at(monkeypatch, "sums", lambda ask, up, swapped: late(up))
    agreement = agreed(stated(), ROWS, tmp_path)
    engine = Network(agreement.session, secure_sum=True)
    solution = bf.solve(agreement.problem, agreement.metadata, engine=engine)
    assert solution.outcome.stop is bf.Stop.IMPOSSIBLE
    assert solution.outcome.text.startswith("one of the sites answered ")
    assert "if all other answers of the sites, which rows could give, are true" in (
        solution.outcome.text
    )
    assert np.any(solution.w)
    if times == 1:
        assert solution.certificate.value >= 0
