"""Runs with secure sums: what a server reads of one site is what is announced, and no more,
whatever it asks.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites.helpers import agreed, parties
from toy import federation

import bonafed as bf
from bonafed.algorithms.alternatives import RefusedError
from bonafed.algorithms.federated.bundle.masked_bundle import (
    Blend,
    Blended,
    Compare,
    MaskedBundle,
    masked,
)
from bonafed.algorithms.requirements import Setting
from bonafed.certificates.duality import Certification, CertifySums
from bonafed.codec import FIELDS
from bonafed.engines.engine import ClientError
from bonafed.engines.network import ImpossibleAnswerError, Network
from bonafed.engines.secure_summed import Hidden, SecureSummed, Work, _bytes_of, _parted
from bonafed.problem.parts import SurveySums, largest_share, share_allowed
from bonafed.problem.problem import Problem
from bonafed.rounds import Algorithm, decode, marks, unannounced
from bonafed.sites.audit import AuditLog
from bonafed.sites.guard import Guard
from bonafed.solution.plan import configure
from examples import ALGORITHMS

ROWS = federation((20, 35, 12, 28, 9), 4)
THREE = federation((20, 35, 28), 4)
RISKS = {"Mean": bf.Mean(), "LpBall": bf.LpBall(0.2), "KLBall": bf.KLBall(0.1)}
BALLS = {"mean": bf.Mean(), "ball": bf.WassersteinBall(0.05, label_cost=math.inf)}
PAGE = Path(__file__).parents[2] / "docs" / "private.md"
SIMULATED = bf.SecureSum(keys="simulation")
METHODS = {type(e.algorithm).__name__: e.algorithm for e in ALGORITHMS.values() if e.stated}
METHODS |= {"MaskedBundle": MaskedBundle(), "Bundle": bf.Bundle()}


def stated(risk: str = "LpBall", ball: str = "mean", **slots: Any) -> Problem:
    slots = {"over_clients": RISKS[risk], "over_samples": BALLS[ball]} | slots
    return Problem(
        slots.pop("loss", bf.Logistic()), bf.Linear(True), regulariser=bf.L2(1e-2), **slots
    )


# ---- which methods


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_runs_with_secure_sums_sends_sums_and_what_it_announces(name: str):
    """A private one concludes with models that its clients were sent, or made with noise."""
    method = METHODS[name]
    needs = method.requirements
    takes = needs.sums.holds(stated(), Setting(3, secure_sum=True)) or needs.private
    told = [each for each in unannounced(masked(method)) if each != "Concluded"]
    assert not told or not takes
    if needs.with_sums is not None:
        assert not unannounced(masked(method))


@pytest.mark.parametrize("kind", ["one", "rounds of a certificate"])
def test_all_announced_fields_exist_and_are_no_sums(kind: str):
    algorithm: Algorithm = (
        MaskedBundle() if kind == "one" else Certification(np.zeros(1), sums=True)
    )
    found = {f"{c.__name__}.{n}": how for c in algorithm.on_server for n, how in marks(c)}
    assert {found[name] for name in algorithm.readable} == {"each"}
    assert not unannounced(algorithm)


def test_the_page_has_every_message_as_it_is():
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
    ]
    rows = [row for row in rows if len(row) == 3]
    said = {row[0].strip("`"): dict(re.findall(r"(\w+) \((\w+)\)", row[2])) for row in rows}
    for one in (MaskedBundle(), Certification(np.zeros(1), sums=True)):
        for kind in (*one.on_client, *one.on_server):
            assert said[kind.__name__] == dict(marks(kind))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_tells_more_is_refused_and_its_advice_is_taken(name: str):
    method = METHODS[name]
    if not unannounced(masked(method)) or method.requirements.private:
        return
    with pytest.raises(RefusedError) as error:
        bf.solve(stated(), THREE, algorithm=replace(method, problem=None), engine=secure())
    for cls in error.value.advice.methods:
        assert bf.solve(stated(), THREE, algorithm=cls(), engine=secure(), max_rounds=3).rounds


def secure() -> Any:
    return bf.InProcess(secure_sum=SIMULATED)


REFUSED = {
    "hinge": {"loss": bf.Hinge()},
    "smooth hinge": {"loss": bf.SmoothHinge()},
    "simplex": {"over_clients": bf.Simplex()},
    "flips": {"over_samples": bf.WassersteinBall(0.05, label_cost=1.0)},
    "ranks of rows": {"over_samples": bf.Superquantile(0.3)},
    "a constraint": {"local_constraint": bf.NeymanPearson(1.0, 0.4)},
}


@pytest.mark.parametrize("what", REFUSED)
def test_problems_whose_sums_tell_rows_are_refused_and_the_advice_is_taken(what: str):
    problem = replace(stated(), **REFUSED[what])
    with pytest.raises(RefusedError) as error:
        bf.solve(problem, THREE, engine=secure())
    last = error.value.advice.changes[-1]
    assert last.setting.secure_sum or what == "a constraint"  # which no method takes with sums
    engine = secure() if last.setting.secure_sum else None
    assert bf.solve(last.problem, THREE, engine=engine, max_rounds=2).rounds


UNMASKED = {"variant": "level", "metric": "identity", "cuts": 5}


@pytest.mark.parametrize("setting", [*UNMASKED, "known"])
def test_settings_of_a_bundle_that_sums_do_not_give_are_refused(setting: str):
    given = UNMASKED.get(setting)
    if setting == "known":
        given = bf.solve(stated(), THREE, max_rounds=2).state.cuts
    with pytest.raises(ValueError, match=rf"got Bundle\({setting}=.*leave {setting} out"):
        bf.solve(stated(), THREE, algorithm=bf.Bundle(**{setting: given}), engine=secure())
    assert bf.solve(stated(), THREE, engine=secure(), max_rounds=2).rounds


def test_a_bundle_of_one_cut_a_client_and_no_groups_is_what_runs():
    plain = masked(bf.Bundle(tol=1e-4, atol=1e-5, max_rounds=7, start=np.zeros(5)))
    given = masked(bf.Bundle(1e-4, 1e-5, 7, cuts=1, least_rows=20, start=np.zeros(5)))
    assert repr(given) == repr(plain)
    assert plain == MaskedBundle(1e-4, 1e-5, 7, plain.start)


def test_a_path_of_radii_is_that_of_one_place():
    problem, radii = stated("KLBall", "ball"), [0.0, 0.1]
    plain = bf.radius_path(problem, THREE, radii=radii, tol=1e-8)
    found = bf.radius_path(problem, THREE, radii=radii, tol=1e-8, engine=secure())
    for one, other in zip(plain, found, strict=True):
        assert other["value"] == pytest.approx(one["value"], rel=2e-8)


def test_huber_and_squared_residuals_are_taken_and_huber_sends_no_curvature():
    rng = np.random.default_rng(0)
    fed = bf.Federation.from_arrays(
        {f"s{k}": (X := rng.normal(size=(30, 3)), X @ [1.0, 2.0, 0.0]) for k in range(3)}
    )
    for loss in (bf.Huber(0.5), bf.Squared()):
        problem = replace(stated(), loss=loss)
        solution = bf.solve(problem, fed, engine=secure())
        assert solution.outcome.stop is bf.Stop.OPTIMAL
        concrete, coded = problem.at(fed)
        algorithm = configure(bf.Bundle(), concrete, coded, engine=secure())
        ask = Blend(np.zeros(4), np.full(3, 1 / 3))
        memory = algorithm.client_start(coded.block(0))
        up = algorithm.on_client[Blend](memory, ask, coded.block(0), None)[1]
        assert (up.curvature is None) == isinstance(loss, bf.Huber)


@pytest.mark.parametrize(
    "risk", [bf.LpBall(0.6), bf.Superquantile(0.1), bf.Mean([0.9, 0.05, 0.05])]
)
def test_weights_that_leave_one_site_nearly_alone_are_refused(risk: Any):
    with pytest.raises(ValueError, match="of the whole, got"):
        bf.solve(stated(over_clients=risk), THREE, engine=secure())


def test_where_a_share_is_allowed_another_site_has_half_of_its_part():
    rng = np.random.default_rng(0)
    for n in (2, 3, 7):
        shares = rng.dirichlet(np.full(n, 0.2), 2_000)
        fine = shares[shares.max(1) <= share_allowed(n)]
        assert (np.sort(fine, 1)[:, -2] >= 1 / (2 * n)).all()
    concrete, _ = stated("LpBall").at(THREE)
    assert 1 / 3 < largest_share(concrete, 3) < share_allowed(3)


# ---- the same answers


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("ball", BALLS)
def test_model_and_certificate_are_those_of_one_place(risk: str, ball: str):
    problem = stated(risk, ball)
    plain = bf.solve(problem, THREE, tol=1e-9)
    found = bf.solve(problem, THREE, tol=1e-9, engine=secure())
    assert found.outcome.stop is bf.Stop.OPTIMAL
    assert found.certificate.value == pytest.approx(plain.certificate.value, rel=2e-9)
    again = bf.certify(problem, THREE, found.w, found.duals)
    for name in ("value", "bound", "feasibility", "stationarity", "client_risks", "client_losses"):
        expected = pytest.approx(getattr(again, name), rel=1e-9, abs=1e-9)
        assert getattr(found.certificate, name) == expected
    for name in ("client_levels", "client_labels", "client_features", "weights"):
        np.testing.assert_allclose(
            getattr(found.certificate, name), getattr(again, name), rtol=1e-9, atol=1e-12
        )


LIMITS = {
    "a line": bf.LinearInequality(np.ones((1, 5)), -0.2),
    "a line and a plane": (
        bf.LinearInequality(np.eye(5)[:2], [0.1, -0.3]),
        bf.LinearEquality(np.eye(5)[2:3], [0.05]),
    ),
}


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("limits", LIMITS)
def test_constraints_of_the_server_are_met_and_proved_as_in_one_place(risk: str, limits: str):
    problem = stated(risk, "ball", constraint=LIMITS[limits])
    plain = bf.solve(problem, THREE, tol=1e-8)
    found = bf.solve(problem, THREE, tol=1e-8, engine=secure())
    assert found.outcome.stop is bf.Stop.OPTIMAL
    assert all(row["met"] for row in found.constraints)
    assert any(row["price"] > 1e-3 for row in found.constraints)
    assert found.certificate.value == pytest.approx(plain.certificate.value, rel=2e-8)
    again = bf.certify(problem, THREE, found.w, found.duals)
    for name in ("value", "bound", "feasibility", "server_values", "client_risks"):
        expected = pytest.approx(getattr(again, name), rel=1e-9, abs=1e-9)
        assert getattr(found.certificate, name) == expected


def test_limits_that_no_model_meets_are_proved_so_with_masks():
    apart = tuple(bf.LinearInequality(sign * np.ones((1, 5)), 0.2) for sign in (1.0, -1.0))
    found = bf.solve(stated(constraint=apart), THREE, engine=secure())
    assert found.outcome.stop is bf.Stop.INFEASIBLE
    assert found.certificate.infeasible == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize("slot", ["constraint", "local_constraint"])
def test_constraints_on_rows_are_refused_with_what_is_taken(slot: str):
    limit = bf.NeymanPearson(1.0, 0.4)
    limit = bf.Coupled(limit) if slot == "constraint" else limit
    problem = stated(**{slot: limit})
    with pytest.raises(RefusedError, match=r"of the server itself.*without secure_sum takes"):
        bf.solve(problem, THREE, engine=secure())
    concrete, fed = problem.at(THREE)
    with pytest.raises(ValueError, match="would tell rows"):
        Certification(np.zeros(1), sums=True).at_client(concrete, fed)


@pytest.mark.parametrize("risk", RISKS)
def test_masks_cost_no_more_than_half_as_many_models_again(risk: str):
    fed, problem = bf.data.load.hospitals(), stated(risk)
    concrete, coded = problem.at(fed)
    plain = bf.InProcess().run(configure(bf.Bundle(), concrete, coded), coded)
    found = bf.InProcess().run(configure(MaskedBundle(), concrete, coded), coded)
    assert len(found.state.tried) <= 1.5 * plain.state.rounds


# ---- what a server sees


@dataclass(frozen=True)
class Overheard(SecureSummed):
    """Keeps all answers that the server receives, by client."""

    heard: list[Any] = field(default_factory=list)

    @property
    def on_server(self) -> Any:
        ((kind, step),) = super().on_server.items()

        def hear(state: Any, ids: Any, sealed: Any) -> Any:
            self.heard.extend(zip(ids, map(_answer, sealed.parcel), strict=True))
            return step(state, ids, sealed)

        return {kind: hear}


def _answer(row: Any) -> Any:
    return decode(_bytes_of(row))[2]


@pytest.mark.parametrize("risk", RISKS)
def test_what_is_not_masked_are_the_announced_fields_alone(risk: str):
    concrete, fed = stated(risk, "ball").at(ROWS)
    duals = bf.solve(stated(risk, "ball"), ROWS, tol=1e-3, engine=secure()).duals
    algorithm = configure(bf.Bundle(), concrete, fed, engine=secure())
    rounds = Certification(np.ones(5), duals, concrete, sums=True)
    for inner in (algorithm, rounds):
        carried = Overheard(inner, bf.SecureSum(), 1)
        bf.InProcess().run(carried, fed, seed=1)
        hidden = [one for _, one in carried.heard if isinstance(one, Hidden)]
        assert len(hidden) >= 10
        clear, vectors = set(), []
        for one in hidden:
            up = one.clear
            told = {f"{type(up).__name__}.{n}": getattr(up, n) for n in FIELDS[type(up)]}
            clear |= {name for name, value in told.items() if value is not None}
            assert all(np.shape(told[name]) == (1,) for name in inner.readable if name in told)
            vectors.append(one.masked.vector)
        wanted = {*inner.readable} if inner is rounds or risk != "Mean" else set()
        assert clear == wanted
        words = np.concatenate(vectors).view(np.uint8)
        counts = np.bincount(words, minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < 450  # of 255 degrees of freedom


# ---- servers that ask for more


def weighted(weights: Any, w: Any = None) -> Blend:
    return Blend(np.zeros(5) if w is None else w, np.asarray(weights, float))


def client(risk: str = "LpBall") -> tuple[MaskedBundle, Any, Any]:
    concrete, fed = stated(risk).at(THREE)
    algorithm = MaskedBundle().at_client(concrete, fed)
    return algorithm, algorithm.client_start(fed.block(0)), fed.block(0)


@pytest.mark.parametrize(
    "weights",
    [[1, 0, 0], [0.9, 0.05, 0.05], [0.5, 0.5, 0.5], [np.nan, 0, 1], [0.6, 0.6, -0.2], [0.25] * 4],
)
def test_weights_outside_the_set_or_of_one_site_are_refused(weights: list[float]):
    algorithm, memory, block = client()
    with pytest.raises(ValueError, match="nothing was answered"):
        algorithm.on_client[Blend](memory, weighted(weights), block, None)
    with pytest.raises(ValueError, match="nothing was answered"):
        algorithm.on_client[SurveySums](memory, SurveySums(np.array(weights, float)), block, None)
    rounds = Certification(np.zeros(1), sums=True).at_client(algorithm.problem, THREE)
    even = np.full(len(weights), 1 / len(weights))
    ask = CertifySums(np.zeros(5), np.zeros((2, 5)), np.array([even, weights]) / 2)
    with pytest.raises(ValueError, match="nothing was answered"):
        rounds.on_client[CertifySums](None, ask, block, None)


def test_no_clients_can_be_invented_beside_whom_one_has_all_the_weight():
    """Sets of weights by rank are of any number of clients."""
    concrete, fed = stated(over_clients=bf.Extremile(1.2)).at(THREE)
    algorithm, block = MaskedBundle().at_client(concrete, fed), fed.block(0)
    ghosts = np.array([0.0, 0.0, 0.01, *np.full(99, 0.01)])
    with pytest.raises(ValueError, match="of the 3 clients, got 102"):
        algorithm.on_client[Blend](algorithm.client_start(block), weighted(ghosts), block, None)


def test_no_sums_are_told_of_a_problem_whose_sums_tell_rows():
    concrete, fed = stated(loss=bf.Hinge()).at(THREE)
    with pytest.raises(ValueError, match="would tell rows"):
        Certification(np.zeros(1), sums=True).at_client(concrete, fed)


def test_a_dominant_weight_of_a_wide_set_is_refused():
    concrete, fed = stated(over_clients=bf.Simplex()).at(THREE)
    algorithm = replace(MaskedBundle(), problem=concrete)
    with pytest.raises(ValueError, match="nearly all"):
        algorithm.on_client[Blend](
            algorithm.client_start(fed.block(0)), weighted([0.9, 0.05, 0.05]), fed.block(0), None
        )


def test_a_mean_tells_no_risk_of_one_site():
    algorithm, memory, block = client("Mean")
    with pytest.raises(ValueError, match="nothing was answered"):
        algorithm.on_client[Compare](memory, Compare(np.zeros(5)), block, None)


def test_a_second_weighting_at_one_model_is_refused_and_the_same_one_is_answered():
    algorithm, memory, block = client()
    step = algorithm.on_client[Blend]
    memory, first = step(memory, weighted(np.full(3, 1 / 3)), block, None)
    memory, _ = step(memory, weighted([0.4, 0.3, 0.3], np.ones(5)), block, None)
    memory, again = step(memory, weighted(np.full(3, 1 / 3)), block, None)
    np.testing.assert_array_equal(again.gradient, first.gradient)
    with pytest.raises(ValueError, match="second weighting"):
        step(memory, weighted([0.4, 0.3, 0.3]), block, None)
    assert algorithm.on_client[Compare](memory, Compare(np.zeros(5)), block, None)[
        1
    ].risk.shape == (1,)


@dataclass(frozen=True)
class Deceived(SecureSummed):
    """A client that is sent another message than the others, of which it knows nothing."""

    @property
    def on_client(self) -> Any:
        steps = dict(super().on_client)
        step = steps[Work]

        def deceived(memory: Any, ask: Work, data: Any, rng: Any) -> Any:
            message = decode(ask.message.tobytes())
            if isinstance(message, Blend) and int(data.index[0]) == 0:
                other = np.roll(np.array([0.4, 0.3, 0.3]), len(memory.taken))
                ask = replace(ask, message=_parted(replace(message, weights=other), 3)[0])
            return step(memory, ask, data, rng)

        return steps | {Work: deceived}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_server_that_asks_sites_for_different_weights_reads_noise():
    concrete, fed = stated().at(THREE)
    algorithm = configure(bf.Bundle(), concrete, fed, engine=secure())
    sums: list[Any] = []

    @dataclass(frozen=True)
    class Kept(Deceived):
        def _combined(self, hidden: Any, total: Any) -> Any:
            up = super()._combined(hidden, total)
            sums.append(up)
            return up

    for kind in (SecureSummed, Kept):
        try:
            bf.InProcess("each").run(kind(algorithm, SIMULATED, 1), fed, seed=1, max_rounds=9)
        except (ArithmeticError, ValueError, ClientError, ImpossibleAnswerError):
            assert kind is Kept
    noise = [up for up in sums if isinstance(up, Blended)]
    assert noise
    # sums of three mean losses of order one, and here words of 2^62
    assert max(abs(float(noise[0].loss)), float(np.abs(noise[0].gradient).max())) > 1e9


# ---- sites


@pytest.mark.parametrize("risk", RISKS)
def test_sites_give_the_model_of_one_place_and_say_what_is_readable(risk: str, tmp_path: Path):
    problem = stated(risk, "ball")
    here = bf.solve(problem, THREE, tol=1e-8)
    agreement = agreed(problem, THREE, tmp_path)
    engine = Network(agreement.session, secure_sum=True)
    there = bf.solve(agreement.problem, agreement.metadata, tol=1e-8, engine=engine)
    assert there.outcome.stop is bf.Stop.OPTIMAL
    assert there.certificate.value == pytest.approx(here.certificate.value, rel=1e-8)
    assert there.certificate.relative_gap <= 1e-8


@pytest.mark.parametrize(
    "inner", [bf.Bundle(), bf.FedAvg(), bf.AFL(), Certification(np.zeros(1))], ids=repr
)
def test_a_site_runs_nothing_in_the_clear_under_the_name_of_secure_sums(inner: Any, tmp_path: Path):
    """A server states another algorithm than its own library would choose."""
    problem = stated()
    agreement = agreed(problem, THREE, tmp_path)
    inner = replace(inner, problem=agreement.problem)
    carried = SecureSummed(inner, bf.SecureSum(), 1)
    with pytest.raises(Exception, match="secure_sum"):
        Network(agreement.session).run(carried, agreement.metadata, seed=1, max_rounds=4)


def test_the_log_of_a_site_says_what_the_server_reads(tmp_path: Path):
    problem, name = stated(), THREE.names[0]
    members = parties(THREE, tmp_path)
    log = AuditLog.open(tmp_path / "audit.jsonl", name)
    members[name].guard = Guard(None, log)
    from bonafed.engines.wire import LocalTransport
    from bonafed.sites.session import agree

    sites = {
        k: lambda data, party=party: party.answer("server", data) for k, party in members.items()
    }
    agreement = agree(LocalTransport(sites), "experiment", problem, patience=600.0)
    engine = Network(agreement.session, secure_sum=True)
    bf.solve(agreement.problem, agreement.metadata, tol=1e-2, engine=engine)
    text = (tmp_path / "audit.jsonl").read_text()
    assert "beside sums over the sites the server reads Compared.risk: its mean loss" in text
    assert "the server reads CertifiedSums.risk: its mean loss" in text
