"""Solving end to end: modes, checkpoints, interruption, messages, inputs untouched."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest
from problems import CASES, PLAIN, federation
from toy import Toy

import bonafed as bf
from bonafed.algorithms.method import Answer, Method
from bonafed.problem.risks.risk import Worst
from bonafed.rounds import Algorithm, Done, Each, Outcome, Round, Stop, record
from bonafed.solution.plan import default_algorithm

PROBLEM = bf.Problem(
    bf.Hinge(),
    bf.Linear(fit_intercept=True),
    over_samples=bf.WassersteinBall(0.05, 1.0),
    over_clients=bf.LpBall(0.1),
)


@pytest.fixture(scope="module")
def fed():
    return federation(42, 7, 6, 25)


@pytest.mark.parametrize("case", CASES[::11], ids=lambda c: c.name)
def test_modes_end_with_the_same_certificate(case):
    runs = [
        bf.solve(case.problem, case.fed, engine=bf.InProcess(mode=m))
        for m in ("blocks", "each", "bytes")
    ]
    np.testing.assert_array_equal(runs[1].w, runs[2].w)
    assert runs[1].certificate.numbers() == runs[2].certificate.numbers()
    scale = 2 * 1e-6 * runs[0].certificate.value  # both within the tolerance of the same optimum
    assert runs[0].certificate.value == pytest.approx(runs[1].certificate.value, abs=scale)
    if case.bounded:
        assert runs[0].certificate.bound == pytest.approx(runs[1].certificate.bound, abs=scale)
        assert runs[0].certificate.relative_gap <= 1e-6
        assert runs[1].certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("mode", ["blocks", "each", "bytes"])
def test_resume_equals_no_interruption_bit_for_bit(fed, tmp_path, mode):
    whole = bf.solve(PROBLEM, fed, engine=bf.InProcess(mode=mode))
    engine = bf.InProcess(mode=mode, checkpoint=tmp_path / "run.bft")

    def interrupt(row, state):
        if row["round"] == 5:
            raise KeyboardInterrupt

    first = bf.solve(PROBLEM, fed, engine=engine, watch=[interrupt])
    assert first.outcome.stop is bf.Stop.INTERRUPTED
    assert first.rounds == 5
    again = bf.solve(PROBLEM, fed, engine=engine, resume=True)
    assert again.outcome.stop is bf.Stop.OPTIMAL
    np.testing.assert_array_equal(again.w, whole.w)
    assert again.certificate.numbers() == whole.certificate.numbers()
    timeless = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]
        for run in (again, whole)
    ]
    assert timeless[0] == timeless[1]


def test_control_c_leaves_a_resumable_run(fed, tmp_path):
    engine = bf.InProcess(checkpoint=tmp_path / "run.bft")

    def strike(row, state):
        if row["round"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    solution = bf.solve(PROBLEM, fed, engine=engine, watch=[strike])
    assert solution.outcome.stop is bf.Stop.INTERRUPTED
    assert np.isfinite(solution.certificate.value)  # the best model so far, certified as it stands
    assert bf.solve(PROBLEM, fed, engine=engine, resume=True).outcome.stop is bf.Stop.OPTIMAL


def test_messages_are_counted_by_type(fed):
    solution = bf.solve(PROBLEM, fed)
    table = {(row["message"], row["direction"]): row for row in solution.messages}
    asked = table["Evaluate", "down"]["count"]
    assert asked == fed.n_clients * (solution.rounds - 1)  # the first round is the survey
    assert table["Evaluated", "up"]["count"] == asked
    assert table["Certified", "up"]["count"] == fed.n_clients
    for way in ("up", "down"):
        total = sum(row["bytes"] for row in solution.messages if row["direction"] == way)
        assert sum(row[f"bytes_{way}"] for row in solution.clients) == total
    assert table["Evaluated", "up"]["bytes"] > 8 * asked * (7 + 3)  # D + 3 numbers and a header


def test_progress_names_the_worst_client_and_proves_a_gap(fed):
    rows = []
    solution = bf.solve(PROBLEM, fed, watch=[lambda row, state: rows.append(row)])
    assert rows == solution.history
    last = rows[-1]
    assert last["worst_client"] in fed.clients
    assert last["gap"] == pytest.approx(solution.certificate.gap, rel=1e-3, abs=1e-9)
    bounds = [row["bound"] for row in rows]
    assert bounds == sorted(bounds)


def test_client_table_adds_up(fed):
    solution = bf.solve(PROBLEM, fed)
    table = solution.clients
    assert [row["client"] for row in table] == list(fed.clients)
    assert sum(row["weight"] for row in table) == pytest.approx(1, abs=1e-9)
    assert all(row["worst_loss"] >= row["loss"] - 1e-12 for row in table)
    assert all(
        row["flips"] + row["shift"] == pytest.approx(1) for row in table if row["flips"] is not None
    )


def test_inputs_are_never_mutated(fed):
    arrays = [a for i in range(fed.n_clients) for a in fed.rows(i)]
    before = [a.copy() for a in arrays]
    start = np.zeros(7)
    bf.solve(PROBLEM, fed, start=start)
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(start, 0)


def test_sparse_rows_give_the_dense_answer(fed):
    from scipy.sparse import csr_array

    rows = [fed.rows(i) for i in range(fed.n_clients)]
    sparse = bf.Federation(fed.clients, [csr_array(X) for X, _ in rows], [y for _, y in rows])
    for problem in (
        PROBLEM,
        bf.Problem(
            bf.Huber(), PLAIN, over_samples=bf.WassersteinBall(0.1, 2.0), regulariser=bf.L2(0.1)
        ),
    ):
        dense, thin = bf.solve(problem, fed), bf.solve(problem, sparse)
        assert thin.certificate.relative_gap <= 1e-6
        assert thin.certificate.value == pytest.approx(dense.certificate.value, rel=2e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_the_features_do_not_matter(scale):
    fed = federation(8)
    rows = [fed.rows(i) for i in range(fed.n_clients)]
    scaled = bf.Federation(fed.clients, [X * scale for X, _ in rows], [y for _, y in rows])
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.05, 1.0), over_clients=bf.LpBall(0.1)
    )
    other = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall(0.05 * scale, scale),
        over_clients=bf.LpBall(0.1),
    )
    one, two = bf.solve(problem, fed), bf.solve(other, scaled)
    assert two.certificate.value == pytest.approx(one.certificate.value, rel=2e-6)
    assert two.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        ({"tol": -1.0}, "tol must be"),
        ({"max_rounds": 0}, "max_rounds must be"),
        ({"start": np.zeros(2)}, "start must be"),
    ],
)
def test_wrong_options_are_refused(fed, options, needle):
    with pytest.raises(ValueError, match=needle):
        bf.solve(PROBLEM, fed, **options)


def test_exposed_rows_are_the_clients_own_and_ranked(fed):
    solution = bf.solve(PROBLEM, fed)
    rows = bf.exposed_rows(PROBLEM, fed, solution.w, "c3", top=5)
    assert len(rows) == 5
    added = [row["added"] for row in rows]
    assert added == sorted(added, reverse=True)
    assert added[0] > 0
    assert all(0 <= row["row"] < fed.sizes[3] and 0 <= row["flip"] <= 1 for row in rows)
    assert bf.exposed_rows(bf.Problem(bf.Hinge(), PLAIN), fed, solution.w[:-1], "c3") == []


@pytest.mark.parametrize("cost", [0.2, np.inf])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("loss", [bf.Absolute(), bf.Huber(0.7), bf.Logistic(), bf.Hinge()])
def test_where_no_row_adds_the_worst_case_grows_by_the_steepest_move(fed, loss, norm, cost):
    """As the report says it to the owner: of features, or of targets, which cost more or less."""
    data, w = fed, np.random.default_rng(1).standard_normal(fed.n_features + 1)
    if loss.targets == "real":
        data = bf.Federation(fed.clients, fed.X, tuple(np.asarray(y, float) for y in fed.y))
    problem = bf.Problem(loss, bf.Linear(), over_samples=bf.WassersteinBall(0.05, cost, norm))
    dual = {"l1": np.inf, "l2": 2, "linf": 1}[norm]
    moves = [np.linalg.norm(w[:-1], dual), 1 / cost if loss.targets == "real" else 0.0]
    slope = max(moves) * getattr(loss, "lipschitz", 1.0)
    rows = bf.exposed_rows(problem, data, w, "c3", top=99)
    certificate = bf.certify(problem, data, w)
    grown = (certificate.client_risks - certificate.client_losses)[3] / 0.05
    assert grown >= slope * (1 - 1e-9)
    if cost == np.inf or loss.targets == "real":
        assert not any(row["added"] for row in rows)
    if not any(row["added"] for row in rows):
        assert grown == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize(("label_cost", "active"), [(0.3, "labels"), (np.inf, "features")])
def test_the_table_says_what_the_adversary_does(fed, label_cost, active):
    problem = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall(0.05, label_cost),
        regulariser=bf.L2(1e-2),
    )
    solution = bf.solve(problem, fed)
    assert {row["active"] for row in solution.clients} == {active}
    quiet = [note for note in solution.notes if "Feature robustness is inactive" in note]
    assert bool(quiet) == (active == "labels")


@pytest.mark.parametrize("algorithm", [bf.CentralConic(), "bundle", bf.Bundle])
def test_only_federated_algorithms_are_run(fed, algorithm):
    with pytest.raises(TypeError, match="algorithm must be"):
        bf.solve(PROBLEM, fed, algorithm=algorithm)


class Worst2:
    """An own set without projection: the mean of the two worst clients."""

    def at(self, sizes, names=None):
        return self

    def weights(self, losses):
        q = np.zeros(len(losses))
        q[np.argsort(-np.asarray(losses), kind="stable")[:2]] = 0.5
        return q

    def worst(self, losses):
        q = self.weights(losses)
        return Worst(float(q @ losses), q, float(q @ losses))

    def value(self, losses):
        return self.worst(losses).value


@dataclass(frozen=True)
class OwnToy(Toy, Method):
    """The toy as an algorithm that ``solve`` can run: least squares by gradient steps."""

    problem: bf.Problem | None = None

    def answer(self, state, concluded=None):
        return Answer(state.w)


def test_an_own_set_and_algorithm_get_an_exact_value_and_no_bound():
    fed = federation(4, n_features=3, targets="real")
    problem = bf.Problem(bf.Squared(), PLAIN, over_clients=Worst2())
    solution = bf.solve(problem, fed, algorithm=OwnToy())
    losses = np.sort(solution.certificate.client_losses)
    assert solution.certificate.value == pytest.approx(losses[-2:].mean(), rel=1e-12)
    assert solution.certificate.bound is None
    with pytest.raises(ValueError, match=r"Bundle needs over_clients with `project`.*AsyncDRO"):
        bf.solve(problem, fed, algorithm=bf.Bundle())
    assert type(default_algorithm(*problem.at(fed))) is bf.AsyncDRO


@record
class Hello:
    w: Each


@record
class Hi:
    w: Each


STOPPED = Outcome(Stop.MAX_ROUNDS, "stopped.")


@dataclass(frozen=True)
class Still(Method):
    """One round, and the model that it began with."""

    problem: bf.Problem | None = None
    on_client = property(lambda self: {Hello: lambda memory, ask, data, rng: (memory, Hi(ask.w))})
    on_server = property(lambda self: {Hi: lambda state, ids, up: (state, Done(STOPPED))})

    def server_start(self, n_clients):
        return np.zeros(2), Round(Hello(np.zeros((n_clients, 1))))

    def answer(self, state, concluded=None):
        return Answer(state)


def test_a_method_without_its_parts_is_refused_in_words():
    problem, fed = bf.Problem(bf.Logistic(), PLAIN), federation(4, n_features=3)
    w = np.zeros(PLAIN.dimension(fed.n_features))

    def refused(**parts):
        cls = dataclass(frozen=True)(type("Mine", (Still,), parts))
        with pytest.raises(TypeError) as error:
            bf.solve(problem, fed, algorithm=cls())
        return str(error.value)

    assert refused(answer=lambda self, state, memories=(): w) == (
        "Mine.answer must return Answer(w), got a ndarray."
    )
    assert "Mine must define answer" in refused(answer=Method.answer)
    start = Algorithm.server_start
    assert "Mine, which lacks server_start" in refused(server_start=start)
    for cls in (type("Bare", (Method,), {}), dataclass(frozen=True)(type("Bare", (Method,), {}))):
        with pytest.raises(TypeError, match=r"Bare must be a dataclass with a field for the prob"):
            bf.solve(problem, fed, algorithm=cls())


class OnlyWorst:
    """A set of weights that nothing else is known of."""

    def worst(self, losses):
        raise AssertionError


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"engine": "clock"}, r"engine must be a value such as InProcess\(\).*, got 'clock'"),
        ({"engine": object()}, "engine must be such as"),
        ({"engine": bf.VirtualClock}, "engine must be a value, got the class VirtualClock: write"),
        ({"watch": 3}, "watch must be a list, each a function, got 3"),
        ({"watch": [3]}, "watch must be a list, each a function"),
        ({"watch": print}, "watch must be a list, each a function"),
    ],
)
def test_what_cannot_run_a_problem_is_refused_in_words(settings, text):
    with pytest.raises(TypeError, match=text):
        bf.solve(bf.Problem(bf.Logistic(), PLAIN), federation(4, n_features=3), **settings)


def test_what_cannot_be_a_part_of_a_problem_is_refused_in_words():
    with pytest.raises(TypeError, match="predictor must be an object with `dimension`, got 3"):
        bf.Problem(bf.Logistic(), predictor=3)
    with pytest.raises(TypeError, match="over_clients must be an object with `at`, got"):
        bf.Problem(bf.Logistic(), PLAIN, over_clients=OnlyWorst())
    with pytest.raises(ValueError, match="strength must be a number >= 0, got x"):
        bf.L2("x")


@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_and_objectives_of_all_clients_at_once_are_those_of_each(weighted):
    rng = np.random.default_rng(3)
    sizes = np.r_[1, 2000, rng.integers(1, 9, 60)]
    n = int(sizes.sum())
    X, y, w = rng.normal(size=(n, 3)), rng.integers(0, 2, n), rng.normal(size=4)
    weights = rng.random(n) + 0.1 if weighted else None
    fed = bf.Federation.from_arrays(
        X, y, np.repeat(np.arange(len(sizes)), sizes), sample_weight=weights
    )
    ball = bf.WassersteinBall(0.1, label_cost=2.0)
    problem = bf.Problem(bf.Logistic(), over_samples=ball, over_clients=bf.Superquantile(0.3))
    concrete, data = problem.at(fed)
    scores = X @ w[:-1] + w[-1]
    np.testing.assert_allclose(concrete.predictions(w, data), scores, rtol=1e-13)
    losses = np.logaddexp(0, -scores * np.where(y > 0, 1, -1))
    np.testing.assert_allclose(concrete.row_losses(w, data), losses, rtol=1e-13)
    risks = [concrete.client_risks(w, data.block(i)) for i in range(len(sizes))]
    value = concrete.over_clients.value(np.concatenate(risks))
    assert concrete.objective_here(w, data) == pytest.approx(value, rel=1e-13)


def test_no_step_of_a_solve_goes_over_the_small_clients_one_by_one(monkeypatch):
    rng = np.random.default_rng(4)
    fed = bf.Federation.from_arrays(rng.normal(size=(400, 2)), rng.integers(0, 2, 400), range(400))
    called = []
    block = bf.Federation.block
    monkeypatch.setattr(bf.Federation, "block", lambda *a: called.append(a) or block(*a))
    problem = bf.Problem(
        bf.Logistic(), over_samples=bf.WassersteinBall(0.01), over_clients=bf.LpBall(0.1)
    )
    with pytest.warns(bf.TrivialModelWarning):
        solution = bf.solve(problem, fed)
    assert solution.trivial is not None
    assert len(called) < 100
