"""A site that lies is named, or it answers as other rows would; nothing else is ever raised, and
honest answers are never doubted.

What passes is listed here as in `docs/engines.md`, "What a lying site can do".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from liars import LIES, Court, numbers
from sites.folders import NAMES, PROBLEM, folder_of, roles
from sites.helpers import parties
from toy import federation

import bonafed as bf
from bonafed.algorithms.comparators.fed_avg import LocalStepsMethod
from bonafed.algorithms.federated import multiplier_method, row_multipliers
from bonafed.algorithms.federated.linearisation import Linearised, Weighted
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL
from bonafed.algorithms.federated.row_multipliers import Multiplied
from bonafed.codec import changed
from bonafed.data.federation import Federation
from bonafed.engines import ClientError, Run
from bonafed.engines.endings import lies_in
from bonafed.engines.job import DONE, ERROR
from bonafed.engines.network import ImpossibleAnswerError, Network
from bonafed.engines.wire import LocalTransport, Stepped
from bonafed.papers.aspire.aspire import ASPIRE
from bonafed.papers.drfl.epigraph_projection import EpigraphMethod
from bonafed.problem.constraints.group_means import Coupled
from bonafed.problem.metadata import Introduced
from bonafed.rounds import Conclude, Stop, decode, encode
from bonafed.sites.party import open_party
from bonafed.sites.server import job_of, serve
from bonafed.sites.session import agree
from bonafed.solution.plan import plan as plan_of
from bonafed.solution.solution import Solution
from examples import ALGORITHMS, CONSTRAINTS

ROWS = federation((20, 35, 12, 28, 9), 4)
LIAR = ROWS.names[1]
FEDERATED = {
    name: example
    for name, example in ALGORITHMS.items()
    if example.stated is not None and example.federation.n_clients > 1
}
NOISY = tuple(name for name in FEDERATED if name.startswith(("private", "output")))
HELD = tuple(name for name in FEDERATED if name not in NOISY)
LIE = pytest.mark.parametrize("lie", LIES)
NO_NUMBERS = "nan", "inf"

# ---- what passes
OTHER_ROWS = "swapped labels"  # everything is as other rows would answer
NO_SUCH_ROWS = "0"  # as rows would answer none of which is of the class that the risk is about
# methods whose answers are models: where a site's steps led, or a point that it chose
MODELS = (LocalStepsMethod, EpigraphMethod, ProximalAL, ASPIRE)
PASSES = {
    ("interior point", NO_SUCH_ROWS),
    ("interior point, infeasible", NO_SUCH_ROWS),
    # in a coordinate in which the run does not move again
    ("AsyncDRO, many classes", "one coordinate"),
}


def solved(name: str, court: Court) -> Solution:
    """The first rounds of an example, and the certificate."""
    problem, algorithm = FEDERATED[name].stated
    cap = min(getattr(FEDERATED[name].algorithm, "max_rounds", 12), 12)
    return bf.solve(problem, ROWS, algorithm=algorithm, engine=court, max_rounds=cap)


@cache
def honest(name: str) -> tuple[Solution, Mapping[int, Any]]:
    """An honest solution, and what is known of the clients' rows from it."""
    court = Court()
    return solved(name, court), court.told


def named(call: Callable[[], Any]) -> Any:
    """What a call returns; None where it raises an error that names the liar."""
    try:
        return call()
    except ClientError as error:
        cause = error.__cause__
        if not isinstance(cause, ImpossibleAnswerError) or cause.site != LIAR:
            raise
        return None


def largest(proof: bf.Certificate) -> float:
    """What the bound of no proof may exceed: the value, or where the model breaks a constraint the
    honest bound.
    """
    return max(proof.value, -np.inf if proof.bound is None else proof.bound)


@pytest.mark.parametrize("name", FEDERATED)
def test_no_honest_answer_is_doubted(name):
    solution, told = honest(name)
    assert len(told) == ROWS.n_clients
    assert solution.certificate is None or not solution.certificate.failed


@pytest.mark.parametrize("name", HELD)
def test_every_upload_claims_something(name):
    algorithm = FEDERATED[name].algorithm
    assert {*algorithm.on_server} == {*algorithm.claims}


# tables as they come: raw units, targets far from 0, separable and exactly linear ones
SCALES = {"large": 1e6, "small": 1e-6, "mixed": np.array([1e6, 1.0, 1e-6]), "no": 0.0}
SIGNS = bf.Logistic(), bf.Hinge(), bf.SmoothHinge(), bf.Exponential()
REALS = bf.Squared(), bf.Absolute(), bf.Huber(), bf.Quantile(0.2), bf.EpsilonInsensitive()
BALLS = (
    bf.Mean(),
    bf.WassersteinBall(0.3, 0.5, "l1"),
    bf.WassersteinBall(0.3, np.inf, "l2"),
    bf.WassersteinBall(0.3, 0.5, "linf"),
)
EXTREMES = [
    *((loss, bf.Mean(), kind) for loss in SIGNS for kind in ("noisy", "separable", "weighted")),
    *((loss, bf.Mean(), kind) for loss in REALS for kind in ("far", "linear")),
    *((loss, ball, "noisy") for loss in SIGNS[:2] for ball in BALLS[1:]),
    *((loss, ball, "far") for loss in REALS[2:4] for ball in BALLS[1:]),
    (bf.Poisson(), bf.Mean(), "counts"),
    (bf.Multinomial(), bf.Mean(), "classes"),
]


def table(kind: str, scale: Any) -> Federation:
    """Rows of three clients, the smallest of one row."""
    rng, sizes = np.random.default_rng(1), (20, 35, 1)
    X = [rng.normal(size=(n, 3)) + 0.3 for n in sizes]
    score = [x @ [1.0, -1.0, 0.5] for x in X]
    noisy = [s + rng.normal(size=len(s)) for s in score]
    y = {
        "separable": [np.where(s > 0, 1.0, -1.0) for s in score],
        "linear": [10 * s + 1e6 for s in score],
        "far": [10 * s + 1e6 for s in noisy],
        "counts": [np.exp(np.clip(s, -2, 3)).round() for s in noisy],
        "classes": [np.digitize(s, [-0.5, 0.5]) for s in noisy],
    }.get(kind, [np.where(s > 0, 1.0, -1.0) for s in noisy])
    weights = [rng.uniform(0.1, 3.0, n) for n in sizes] if kind == "weighted" else None
    classes = {"classes": (0, 1, 2), "noisy": (-1.0, 1.0), "weighted": (-1.0, 1.0)}
    known = {"classes": classes.get(kind, (-1.0, 1.0) if kind == "separable" else None)}
    return Federation(["a", "b", "c"], [x * scale for x in X], y, sample_weight=weights, **known)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("loss", "ball", "kind"), EXTREMES)
def test_no_answer_of_odd_tables_is_doubted(loss, ball, kind, scale):
    problem = bf.Problem(loss, over_samples=ball, regulariser=bf.L2(1e-3))
    solution = bf.solve(problem, table(kind, SCALES[scale]), engine=Court(), max_rounds=8)
    assert not solution.certificate.failed


PAIRS = (bf.MultiplierMethod(metric="hessian"), bf.RowMultiplierMethod(metric="hessian"))
KINKED = (bf.Hinge, bf.Absolute, bf.Quantile, bf.EpsilonInsensitive)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("loss", "kind"), [(x, k) for x, b, k in EXTREMES if b == bf.Mean()])
def test_no_metric_of_odd_tables_is_doubted(loss, kind, scale, monkeypatch):
    monkeypatch.setattr(multiplier_method, "PATIENT", 2)
    problem = bf.Problem(loss, regulariser=bf.L2(1e-3))
    algorithm = PAIRS[isinstance(loss, KINKED)]
    rows = table(kind, SCALES[scale])
    solution = bf.solve(problem, rows, algorithm=algorithm, engine=Court(), max_rounds=12)
    assert not solution.certificate.failed


def test_second_derivatives_beside_a_long_step_of_the_centre_are_not_doubted(monkeypatch):
    """Such a step may lead out of the set, to weights below 0."""
    monkeypatch.setattr(multiplier_method, "PATIENT", 3)
    rng, owner = np.random.default_rng(0), np.arange(300) % 5
    X = rng.normal(size=(300, 6)) + 5 * rng.normal(size=(300, 2)) @ rng.normal(size=(2, 6))
    noisy = X @ rng.normal(size=6) + rng.normal(size=300) * (1 + owner)
    rows = bf.Federation.from_arrays(X, np.where(noisy > 0, 1.0, -1.0), owner)
    risk = {"over_clients": bf.ChiSquareBall(2.0), "regulariser": bf.L2(1e-4)}
    algorithm = replace(PAIRS[0], mu=1.0, tol=1e-6)
    solution = bf.solve(
        bf.Problem(bf.Logistic(), **risk), rows, algorithm=algorithm, engine=Court()
    )
    assert solution.outcome.stop is Stop.OPTIMAL


def test_margins_that_their_weights_add_up_below_zero_are_not_doubted():
    problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(0.1))
    solution = bf.solve(problem, ROWS, algorithm=bf.RowMultiplierMethod(), engine=Court())
    assert solution.outcome.stop is Stop.OPTIMAL


class OwnLoss(bf.SmoothHinge):
    """A loss that does not say how much it bends at most, and is straight far away."""

    steepest_curvature = property()  # which raises AttributeError


@pytest.mark.parametrize("algorithm", [bf.Bundle(), bf.AsyncBundle(), PAIRS[0]], ids=repr)
def test_curvature_of_a_loss_that_states_none_is_not_doubted(algorithm, monkeypatch):
    monkeypatch.setattr(multiplier_method, "PATIENT", 3)
    problem = bf.Problem(OwnLoss(), regulariser=bf.L2(1e-3))
    solution = bf.solve(problem, table("noisy", 30.0), algorithm=algorithm, engine=Court())
    assert solution.outcome.stop is Stop.OPTIMAL


METRICS = {
    "large": lambda matrix: 1e6 * (matrix + 1e-3 * np.eye(len(matrix[0]))),
    "negative": lambda matrix: -matrix - 1e-3 * np.eye(len(matrix[0])),
    "one direction": lambda matrix: matrix + np.eye(len(matrix[0]))[0],
    "no number": lambda matrix: np.full_like(matrix, np.nan),
    "another shape": lambda matrix: matrix[:, :-1, :-1],
}


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=repr)
@pytest.mark.parametrize("metric", METRICS)
def test_who_lies_about_a_metric_is_named(metric, loss, monkeypatch):
    def lie(message: Any, upload: Any, swapped: Any) -> Any:
        matrix = getattr(upload, "curvature", None)
        return upload if matrix is None else changed(upload, curvature=METRICS[metric](matrix))

    monkeypatch.setattr(multiplier_method, "PATIENT", 2)
    monkeypatch.setattr(row_multipliers, "PATIENT", 2)
    problem, court = bf.Problem(loss, regulariser=bf.L2(1e-3)), Court(lie=lie)
    algorithm = PAIRS[not loss.smooth]
    assert named(lambda: bf.solve(problem, ROWS, algorithm=algorithm, engine=court)) is None


@pytest.mark.parametrize("risk", [bf.Mean(), bf.Simplex()], ids=repr)
def test_who_answers_with_another_kind_of_gradients_is_named(risk):
    def lie(message: Any, upload: Any, swapped: Any) -> Any:
        if isinstance(upload, Linearised):
            return Weighted(upload.risk, upload.gradient)
        return Linearised(upload.risk, upload.gradient) if isinstance(upload, Weighted) else upload

    problem = bf.Problem(bf.Logistic(), over_clients=risk, regulariser=bf.L2(1e-3))
    asked = partial(bf.solve, problem, ROWS, algorithm=PAIRS[0], engine=Court(lie=lie))
    assert named(asked) is None


@pytest.mark.parametrize(
    ("loss", "h", "algorithm"),
    [
        (bf.Logistic(), bf.L1(1e-2), bf.MultiplierMethod()),
        (bf.Logistic(), bf.L2(1e-2), bf.MultiplierMethod()),
        (bf.Hinge(), bf.L2(1e-2), bf.RowMultiplierMethod()),
    ],
    ids=repr,
)
def test_a_matrix_that_was_not_asked_for_is_impossible(loss, h, algorithm):
    def lie(message: Any, upload: Any, swapped: Any) -> Any:
        if not isinstance(upload, Weighted | Multiplied):
            return upload
        D = np.shape(upload.gradient if isinstance(upload, Weighted) else upload.gradients)[-1]
        return changed(upload, curvature=np.eye(D)[None])

    problem, court = bf.Problem(loss, regulariser=h), Court(lie=lie)
    asked = partial(bf.solve, problem, ROWS, algorithm=algorithm, engine=court)
    assert named(asked) is None


@pytest.mark.parametrize("case", CONSTRAINTS.values(), ids=CONSTRAINTS.keys())
def test_no_answer_about_constraints_is_doubted(case):
    together = isinstance(case.stated, Coupled)
    slot = {"constraint" if together else "local_constraint": case.stated}
    problem = replace(case.problem, regulariser=bf.L2(1e-2), **slot)
    solution = bf.solve(problem, case.fed, engine=Court(), max_rounds=6)
    assert not solution.certificate.failed


@LIE
@pytest.mark.parametrize("name", HELD)
def test_a_liar_is_named_or_answers_as_other_rows_would(name, lie):
    lying = named(lambda: solved(name, Court(lie=LIES[lie]())))
    if lying is None:
        return
    models = isinstance(FEDERATED[name].stated[1], MODELS)
    assert models or lie == OTHER_ROWS or (name, lie) in PASSES
    assert models or lie in (OTHER_ROWS, NO_SUCH_ROWS) or lying.outcome.stop is not Stop.OPTIMAL
    proof = lying.certificate
    assert proof.failed or (proof.value >= 0 and (proof.bound or 0.0) >= 0)
    if lie not in (OTHER_ROWS, NO_SUCH_ROWS) and not proof.failed and proof.bound is not None:
        assert proof.bound <= largest(honest(name)[0].certificate) * (1 + 1e-6)


@pytest.mark.parametrize("lie", NO_NUMBERS)
@pytest.mark.parametrize("name", NOISY)
def test_noisy_answers_are_finite(name, lie):
    assert named(lambda: solved(name, Court(lie=LIES[lie]()))) is None


@LIE
@pytest.mark.parametrize("name", HELD)
def test_who_lies_to_certificates_alone_is_named_or_weakens_the_bound(name, lie):
    solution, told = honest(name)
    court = Court(lie=LIES[lie](), told=dict(told))
    problem, true = FEDERATED[name].stated[0], solution.certificate
    proof = named(lambda: bf.certify(problem, ROWS, solution.w, solution.duals, engine=court))
    if proof is not None and lie != OTHER_ROWS:
        models = isinstance(FEDERATED[name].stated[1], MODELS)
        assert models or np.isclose(proof.value, true.value, rtol=1e-9)
        assert proof.bound is None or proof.bound <= largest(true) * (1 + 1e-9)
    if proof is not None and lie == OTHER_ROWS:  # of a model that was never evaluated before
        assert isinstance(FEDERATED[name].stated[1], MODELS)


# ---- over messages ------------------------------------------------------------------------------


def telling(answer: Callable[[bytes], bytes], lie: Callable[[Any], Any]) -> Any:
    """A site whose answers to the messages of algorithms are changed on their way."""

    def answered(data: bytes) -> bytes:
        reply = decode(answer(data))
        if isinstance(reply.body, Stepped):
            told = changed(reply.body, upload=lie(reply.body.upload))
            reply = changed(reply, body=told)
        return encode(reply)

    return answered


def sites(rows: Federation, place: Any, lie: Callable[[Any], Any]) -> LocalTransport:
    """Sites in this process, of which client 1 lies."""
    answers = {
        name: lambda data, party=party: party.answer("server", data)
        for name, party in parties(rows, place).items()
    }
    return LocalTransport(answers | {LIAR: telling(answers[LIAR], lie)})


def on_every_number(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], Any]:
    """A lie that changes every number."""
    return lambda upload: changed(upload, **{k: change(v) for k, v in numbers(upload).items()})


WRONG: dict[str, Callable[[Any], Any]] = {
    "sign": on_every_number(lambda v: -v),
    "1000": on_every_number(lambda v: 1000.0 * v),
    "0": on_every_number(np.zeros_like),
    "nan": on_every_number(lambda v: np.full_like(v, np.nan)),
    "1e200": on_every_number(lambda v: 1e200 * v),
    "another upload": lambda upload: Conclude(),
    "more clients": on_every_number(lambda v: np.concatenate([v, v])),
    "another shape": on_every_number(lambda v: np.stack([v, v], 1)),
    "no fields": lambda upload: changed(upload, **dict.fromkeys(numbers(upload))),
}
PROBLEM_HERE = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))
METHODS = (None, bf.AFL(), bf.DRFA(), bf.InteriorPoint(), bf.MultiplierMethod(), bf.ASPIRE())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("wrong", WRONG)
def test_the_server_names_the_site(method, wrong, tmp_path):
    with pytest.raises(ImpossibleAnswerError, match=LIAR) as caught:
        over_sites(tmp_path, WRONG[wrong], method, max_rounds=4)
    assert caught.value.site == LIAR


class Late:
    """A site that lies from its ``first`` answer on, as often as it is said, and was honest."""

    def __init__(self, lie: Callable[[Any], Any], first: int, times: float = math.inf) -> None:
        self.lie, self.first, self.times, self.answers = lie, first, times, 0

    def __call__(self, upload: Any) -> Any:
        self.answers += 1
        lies = self.first <= self.answers < self.first + self.times
        return self.lie(upload) if lies else upload


class InTurn:
    """Sites that answer one after the other, in the order in which they are asked."""

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.sites, self.asked = sites, deque[tuple[str, int, bytes]]()

    def ids(self) -> tuple[str, ...]:
        return tuple(self.sites)

    def push(self, client: str, seq: int, message: bytes) -> None:
        self.asked.append((client, seq, message))

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        client, seq, message = self.asked.popleft()
        return [(client, seq, self.sites[client](message))]

    def close(self) -> None:
        pass


def over_sites(place: Any, lie: Callable[[Any], Any], method: Any, **how: Any) -> Solution:
    """A solution over sites of which one lies; ``how``: of ``solve``, and the engine's ``wait``."""
    transport = InTurn(sites(ROWS, place, lie).sites)
    agreement = agree(transport, "trial", PROBLEM_HERE, patience=600.0)
    engine = Network(agreement.session, how.pop("wait", None))
    return bf.solve(agreement.problem, agreement.metadata, algorithm=method, engine=engine, **how)


@pytest.mark.parametrize("times", [1, math.inf])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_late_lie_leaves_the_model_from_before(method, times, tmp_path):
    lying = over_sites(tmp_path / "late", Late(WRONG["sign"], 5, times), method, max_rounds=12)
    assert lying.outcome.stop is Stop.IMPOSSIBLE
    assert lying.outcome.text.startswith(f"the site {LIAR} answered ")
    assert f"if all other answers of {LIAR}, which rows could give, are true" in lying.outcome.text
    assert "optimal" not in lying.outcome.text
    honest = over_sites(tmp_path / "honest", lambda upload: upload, method, max_rounds=12)
    assert [*map(untimed, lying.history)] == [*map(untimed, honest.history[: lying.rounds])]
    assert (lying.certificate.bound is None) is (times > 1)
    if method is None:  # what the run had reached stands in the words, or is proved again
        objective = honest.history[lying.rounds - 1]["objective"]
        told = f"objective was {objective:.9g}" in lying.outcome.text
        assert told if times > 1 else lying.certificate.value == pytest.approx(objective, rel=1e-9)


def untimed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a history, as it is whenever answers come."""
    return {key: value for key, value in row.items() if key not in ("seconds", "time")}


@pytest.mark.parametrize("method", [bf.AsyncDRO(), bf.AsyncBundle(tol=1e-9)], ids=["dro", "bundle"])
def test_an_asynchronous_run_goes_on_without_the_liar(method, tmp_path):
    lie = Late(WRONG["sign"], 3)
    solution = over_sites(tmp_path, lie, method, wait=bf.First(3), max_rounds=15)
    assert solution.outcome.stop is Stop.IMPOSSIBLE
    assert f"the site {LIAR} answered " in solution.outcome.text
    assert "went on without the site" in solution.outcome.text
    assert solution.rounds > lie.first
    assert [name for name, _ in solution.log.crashed] == [LIAR]
    again = bf.solve(
        PROBLEM_HERE, ROWS, algorithm=method, engine=bf.Replay(solution.log), max_rounds=15
    )
    np.testing.assert_allclose(again.w, solution.w, atol=1e-9)


def served(place: Any, method: Any, *rounds: int) -> Run:
    """The run of a server that was ended and begun again after so many rounds, each time without
    what it knew; one site halves its numbers from the 6th answer on.
    """
    place.mkdir()
    lie = Late(on_every_number(lambda v: 0.5 * v), 6)  # as rows could answer that nobody asked yet
    transport, ended = InTurn(sites(ROWS, place, lie).sites), None
    for cap in rounds:
        agreement = agree(transport, "trial", PROBLEM_HERE, patience=600.0)
        engine = Network(agreement.session, checkpoint=place / "server.checkpoint")
        plan = plan_of(PROBLEM_HERE, agreement.metadata, algorithm=method, engine=engine)
        resume = ended is not None
        ended = engine.run(plan.method, plan.data, max_rounds=cap, resume=resume)
    assert ended is not None
    return ended


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_server_that_begins_again_holds_answers_against_those_of_before(method, tmp_path):
    whole, again = (
        served(tmp_path / str(len(rounds)), method, *rounds) for rounds in ([12], [3, 5, 12])
    )
    assert again.outcome.stop is whole.outcome.stop
    assert again.rounds == whole.rounds
    assert lies_in(again.outcome.text) == lies_in(whole.outcome.text)
    if method is None:
        assert again.outcome.stop is Stop.IMPOSSIBLE


def test_who_lies_to_the_certificate_leaves_the_model_without_a_bound(tmp_path):
    honest = over_sites(tmp_path / "honest", lambda upload: upload, None)
    late = Late(WRONG["sign"], honest.rounds + 1)
    lying = over_sites(tmp_path / "late", late, None)
    np.testing.assert_array_equal(lying.w, honest.w)
    assert lying.outcome.stop is Stop.UNPROVEN
    assert lying.certificate.bound is None
    assert LIAR in lying.outcome.text


def test_the_record_of_a_job_names_the_site(tmp_path):
    folders = {name: folder_of(tmp_path / "sites", name) for name in NAMES}
    opened = {name: open_party(folder, name) for name, folder in folders.items()}
    answers = {n: lambda data, p=party: p.answer("server", data) for n, party in opened.items()}
    answers[NAMES[1]] = telling(answers[NAMES[1]], WRONG["sign"])
    job = job_of("trial", PROBLEM, roles=roles(), patience=600.0)
    with pytest.raises(ImpossibleAnswerError, match=NAMES[1]):
        serve(LocalTransport(answers), tmp_path / "server", job)
    assert not (tmp_path / "server" / DONE).exists()
    assert NAMES[1] in (tmp_path / "server" / ERROR).read_text()


def introduced(place: Any, **changes: Any) -> LocalTransport:
    """Sites of which client 1 introduces itself with other facts."""
    honest = sites(ROWS, place, lambda upload: upload)
    answer = honest.sites[LIAR]

    def answered(data: bytes) -> bytes:
        reply = decode(answer(data))
        if isinstance(reply.body, Introduced):
            reply = changed(reply, body=changed(reply.body, **changes))
        return encode(reply)

    return LocalTransport({**honest.sites, LIAR: answered})


FACTS: dict[str, dict[str, Any]] = {
    "no rows": {"rows": 0},
    "rows below zero": {"rows": -3},
    "half a row": {"rows": 2.5},
    "no weight": {"weight": 0.0},
    "a weight that is not a number": {"weight": float("nan")},
    "an infinite weight": {"weight": float("inf")},
    "equal weights that do not add up": {"alike": True, "weight": 1e300},
    "an infinite class": {"labels": (-1.0, float("inf"))},
    "a group that weighs less than nothing": {"cells": {"": ((1.0, None, -4.0),)}},
    "groups that weigh more than all rows": {"cells": {"": ((1.0, None, 1e6),)}},
}


@pytest.mark.parametrize("fact", FACTS)
def test_an_introduction_that_no_rows_make_names_the_site(fact, tmp_path):
    with pytest.raises(ImpossibleAnswerError, match=LIAR):
        agree(introduced(tmp_path, **FACTS[fact]), "trial", PROBLEM_HERE, patience=600.0)
