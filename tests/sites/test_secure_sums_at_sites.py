"""Secure sums over sites: the model of one place, and a server that reads sums alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sites.helpers import agreed
from toy import Toy, federation

import bonafed as bf
from bonafed.codec import CodecError
from bonafed.engines.network import Network
from bonafed.engines.secure_summed import SecureSummed
from bonafed.sites.audit import Content
from bonafed.sites.guard import _shown
from bonafed.sites.session import method_bytes, method_of

ROWS = federation((20, 35, 12, 28, 9), 4)
PROBLEM = bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), regulariser=bf.L2(1e-2))


def test_a_solution_across_sites_is_that_of_one_place(tmp_path):
    here = bf.solve(PROBLEM, ROWS, tol=1e-9, engine=bf.InProcess("each"))
    agreement = agreed(PROBLEM, ROWS, tmp_path)
    there = bf.solve(
        agreement.problem,
        agreement.metadata,
        tol=1e-9,
        engine=Network(agreement.session, secure_sum=True),
    )
    assert here.outcome.stop is there.outcome.stop
    np.testing.assert_allclose(there.w, here.w, atol=1e-4)  # both within tol of the optimum
    assert {"Work", "Open", "Sealed"} <= {row["message"] for row in there.messages}


def test_a_private_run_across_sites_is_charged_as_without(tmp_path):
    budget = bf.Budget(1.0, 1e-6, sizes=20)
    problem = bf.Problem(bf.Logistic(), privacy=budget)
    algorithm = bf.PrivateSGD(max_rounds=4)
    runs = []
    for option in (None, True):
        agreement = agreed(problem, ROWS, tmp_path / str(option))
        engine = Network(agreement.session, secure_sum=option)
        solve = bf.solve
        runs.append(
            solve(agreement.problem, agreement.metadata, algorithm=algorithm, engine=engine)
        )
    assert runs[0].ledger.table() == runs[1].ledger.table()
    assert runs[1].rounds == 4


def test_a_budget_for_whoever_sees_sums_holds_across_sites_with_a_secure_sum_alone(tmp_path):
    problem = bf.Problem(
        bf.Logistic(), over_clients=bf.Mean("size"), privacy=bf.Budget(1.0, 1e-6, view="sum")
    )
    algorithm = bf.PrivateSGD(max_rounds=3)
    agreement = agreed(problem, ROWS, tmp_path / "masked")
    engine = Network(agreement.session, secure_sum=True)
    there = bf.solve(agreement.problem, agreement.metadata, algorithm=algorithm, engine=engine)
    assert (there.rounds, there.ledger.guarantee) == (3, True)
    assert 0.99 < there.ledger.epsilon <= 1 < there.ledger.epsilon_of("answers")
    assert {"Work", "Open", "Sealed"} <= {row["message"] for row in there.messages}
    plain = agreed(problem, ROWS, tmp_path / "plain")
    with pytest.raises(ValueError, match="give the engine a secure sum"):
        bf.solve(plain.problem, plain.metadata, algorithm=algorithm, engine=Network(plain.session))


@dataclass(frozen=True)
class Heard(SecureSummed):
    """Keeps what one client is sent and sends."""

    sent: list[Any] = field(default_factory=list)

    @property
    def on_client(self) -> Any:
        def heard(step: Any) -> Any:
            def stepped(memory: Any, message: Any, *given: Any) -> Any:
                after, upload = step(memory, message, *given)
                self.sent.append((_shown(message), _shown(upload)))
                return after, upload

            return stepped

        return {kind: heard(step) for kind, step in super().on_client.items()}


def test_a_sites_log_says_what_is_masked_and_what_is_not():
    algorithm = Heard(Toy(n_features=4), bf.SecureSum(keys="simulation", fewest=2), 1)
    bf.InProcess("each").run(algorithm, ROWS, seed=1, max_rounds=3)
    asked, answered = algorithm.sent[-1]
    assert (asked[0], answered[0]) == ("ToyAsk", "ToyAnswer")
    assert not asked[2]
    assert answered[2]
    assert answered[1]["gradient"] == Content(4, 0, "sum")
    assert answered[1]["largest"].how == "each"  # which the server reads
    assert [each[1][0] for each in algorithm.sent[:2]] == ["Sealed", "Sealed"]
    assert not algorithm.sent[0][1][2]


def test_what_carries_an_algorithm_travels_with_it():
    algorithm = bf.PrivateSGD(max_rounds=4)
    summed = method_of(method_bytes(SecureSummed(algorithm, bf.SecureSum(), 3)))
    assert isinstance(summed, SecureSummed)
    assert isinstance(summed.inner, bf.PrivateSGD)
    assert (summed.seed, summed.option) == (3, bf.SecureSum())
    with pytest.raises(CodecError):
        method_of(method_bytes(SecureSummed(bf.PrivateSGD(max_rounds=4), "x", 3))[:-1])
