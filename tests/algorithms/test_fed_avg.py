"""FedAvg, FedProx and DRFA: rounds by hand, gradient descent as a special case, false uploads, who
is asked.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from problems import PLAIN, federation

import bonafed as bf
from bonafed.algorithms.comparators import fed_avg
from bonafed.algorithms.comparators.fed_avg import Descended, Walk
from bonafed.arrays import stream
from bonafed.rounds import Algorithm, visibility
from bonafed.solution.plan import configure
from bonafed.solution.solve import fit


def logistic(fed, w):
    """F_i(w) and F_i'(w) of every client, by hand."""
    risks, gradients = [], []
    for X, y in zip(fed.X, fed.y, strict=True):
        margin = y * (X @ w)
        risks.append(np.log1p(np.exp(-margin)).mean())
        gradients.append(-(X * (y / (1 + np.exp(margin)))[:, None]).mean(0))
    return np.array(risks), np.array(gradients)


def walked(fed, i, w, eta, steps, l2, strength=0.0):
    """u_0, ..., u_K of client i, with h = l2/2 ||w||^2."""
    path = [w]
    for _ in range(steps):
        u = path[-1]
        path.append((u - eta * (logistic(fed, u)[1][i] + strength * (u - w))) / (1 + eta * l2))
    return path


def run(algorithm, problem, fed, rounds, engine=None, seed=0):
    concrete, data = problem.at(fed)
    algorithm = configure(algorithm, concrete, data, None, None, rounds, None)
    return algorithm, (engine or bf.InProcess()).run(algorithm, data, seed=seed)


@pytest.mark.parametrize(
    "regulariser", [bf.Zero(), bf.L2(0.3), bf.L1(0.05), bf.Bounds(-0.1, 0.2)], ids=str
)
@pytest.mark.parametrize("over", [bf.Mean(), bf.Mean("size"), bf.Sum()], ids=str)
def test_one_full_step_is_proximal_gradient_descent(regulariser, over):
    fed = federation(0)
    _, found = run(
        bf.FedAvg(1, 0.2),
        bf.Problem(bf.Logistic(), PLAIN, over_clients=over, regulariser=regulariser),
        fed,
        6,
    )
    total = 3.0 if isinstance(over, bf.Sum) else 1.0
    q = over.at(fed.sizes).weights(np.zeros(3)) / total
    w = np.zeros(8)
    for row in found.history[1:]:
        risks, gradients = logistic(fed, w)
        assert_allclose(row["objective"], total * q @ risks + regulariser.value(w), rtol=1e-12)
        w = regulariser.prox(w - 0.2 * q @ gradients, 0.2 / total)
    assert_allclose(found.state.w, w, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_local_steps_by_hand(strength):
    fed = federation(1, 4)
    algorithm = (
        bf.FedProx(strength, local_steps=4, step_size=0.3) if strength else bf.FedAvg(4, 0.3)
    )
    _, found = run(algorithm, bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1)), fed, 3)
    w = np.zeros(8)
    for _ in range(3):
        w = np.mean([walked(fed, i, w, 0.3, 4, 0.1, strength)[-1] for i in range(4)], 0)
    assert_allclose(found.state.w, w, rtol=1e-11)


def test_the_measured_step_is_one_over_the_largest_curvature_met():
    fed = federation(2)
    problem = bf.Problem(bf.Squared(), PLAIN, regulariser=bf.L2(0.1))
    largest = max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X in fed.X)
    algorithm, found = run(bf.FedAvg(3), problem, fed, 20)
    assert 0.3 * largest < found.state.curvature <= largest * (1 + 1e-4)
    assert_allclose(algorithm._step(found.state), 1 / found.state.curvature)
    proximal, found = run(bf.FedProx(2.0), problem, fed, 20)
    assert_allclose(proximal._step(found.state), 1 / (found.state.curvature + 2))


def test_one_step_reaches_the_optimum_and_more_drift_off_it():
    fed = federation(3, 5)
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_clients=bf.Mean("size"), regulariser=bf.L2(1e-2)
    )
    best = bf.solve(problem, fed, tol=1e-10).certificate.value
    values = {}
    for name, algorithm in (
        ("one", bf.FedAvg(1)),
        ("many", bf.FedAvg(20)),
        ("pulled", bf.FedProx(1.0, local_steps=20)),
    ):
        solution = bf.solve(problem, fed, algorithm=algorithm, tol=1e-8, max_rounds=2000)
        proven = solution.certificate.relative_gap <= 1e-8
        assert proven == (name == "one") == (solution.outcome.stop is bf.Stop.OPTIMAL)
        assert proven or "came to rest" in solution.outcome.text
        values[name] = solution.certificate.value - best
        assert solution.certificate.gap is not None
        assert solution.certificate.bound <= best + 1e-9
    assert 0 <= values["one"] + 1e-9 < 1e-8
    assert values["many"] > 100 * abs(values["one"])
    assert values["pulled"] < values["many"]


# ---- rows


def test_slices_of_random_orders_use_every_row_once_a_pass():
    rng = np.random.default_rng(0)
    rows = np.array([3, 5, 7, 8, 11, 20])
    orders = fed_avg._orders(rng, rows, 2, 7)
    assert orders.shape == (7, 2)
    assert_array_equal(np.sort(orders[:3].ravel()), rows)
    assert_array_equal(np.sort(orders[3:6].ravel()), rows)
    assert not np.array_equal(orders[:3], orders[3:6])


def test_batches_of_all_rows_are_full_steps_and_of_some_are_unbiased():
    fed = federation(4)
    thin = bf.Federation(fed.clients, [sp.csr_array(x) for x in fed.X], fed.y)
    problem = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1))
    for rows in (fed, thin):
        _, full = run(bf.FedAvg(3, 0.2), problem, rows, 4)
        _, same = run(bf.FedAvg(3, 0.2, batch=1000), problem, rows, 4)
        assert_allclose(same.state.w, full.state.w, rtol=1e-11)
    for seed in range(5):  # batches of sparse rows are of the same rows
        few = [run(bf.FedAvg(1, 0.2, batch=4), problem, rows, 1, seed=seed) for rows in (fed, thin)]
        assert_allclose(few[0][1].state.w, few[1][1].state.w, rtol=1e-11)
    _, first = run(bf.FedAvg(1, 0.2), problem, fed, 1)
    some = [run(bf.FedAvg(1, 0.2, batch=4), problem, fed, 1, seed=s)[1].state.w for s in range(300)]
    error = np.std(some, 0) / np.sqrt(300)
    assert (error > 0).all()
    assert (np.abs(np.mean(some, 0) - first.state.w) < 5 * error).all()


def test_epochs_count_passes_over_the_rows():
    fed = bf.Federation(
        ["a", "b"],
        [np.ones((4, 1)), np.ones((7, 1))],
        [np.ones(4), np.ones(7)],
        classes=(-1.0, 1.0),
    )
    problem = bf.Problem(bf.Squared(), PLAIN)
    _, found = run(bf.FedAvg(2, 0.1, batch=2, epochs=True), problem, fed, 1)
    # every row pulls alike: 4 and 8 steps towards 1
    ends = [1 - 0.9 ** (2 * 2), 1 - 0.9 ** (2 * 4)]
    assert_allclose(found.state.w, [np.mean(ends)], rtol=1e-12)


def test_rank_risks_are_refused_with_batches():
    fed, problem = (
        federation(5),
        bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.3)),
    )
    with pytest.raises(ValueError, match="batch=None"):
        bf.solve(problem, fed, algorithm=bf.FedAvg(batch=5))
    with pytest.raises(ValueError, match="batch=None"):
        bf.solve(problem, fed, algorithm=bf.DRFA(batch=5))
    best = bf.solve(problem, fed).certificate.value
    assert run(bf.FedAvg(1), problem, fed, 100)[1].state.value < 1.02 * best


# ---- clients


def test_participation_draws_clients_and_averages_those():
    fed = federation(6, 10)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Mean("size"))
    _, found = run(bf.FedAvg(1, 0.2, participation=0.3), problem, fed, 40)
    assert [len(ids) for ids in found.active[1:]] == [3] * 40
    assert len(set(found.active[1:])) > 20
    assert set().union(*found.active[1:]) == set(range(10))
    w, q = np.zeros(8), fed.sizes / fed.sizes.sum()
    for ids in found.active[1:]:
        ids = list(ids)
        w = w - 0.2 * q[ids] @ logistic(fed, w)[1][ids] / q[ids].sum()
    assert_allclose(found.state.w, w, rtol=1e-10)
    assert run(bf.FedAvg(1, 0.2, participation=0.3), problem, fed, 40)[1].active == found.active
    assert (
        run(bf.FedAvg(1, 0.2, participation=0.3, seed=1), problem, fed, 40)[1].active
        != found.active
    )


def test_what_the_server_sees():
    assert visibility(Descended)["change"] == "sum"
    fed, problem = federation(7, 5), bf.Problem(bf.Logistic(), PLAIN)
    up = {}
    for name, rule in (("sum", bf.Average()), ("each", bf.CoordinateMedian())):
        algorithm, _ = run(bf.FedAvg(1, 0.1, aggregate=rule), problem, fed, 1)
        ask = fed_avg.Descend(np.zeros(8), np.full(5, 0.2), 0.1, 1.0, 0)
        up[name] = algorithm.on_client[fed_avg.Descend](
            None, ask, problem.at(fed)[1].blocks(5)[0], lambda i: None
        )[1]
    assert up["sum"].single is None
    assert up["sum"].change.shape == (1, 8)
    assert up["each"].change is None
    assert up["each"].single.shape == (5, 8)


class Attacked(Algorithm):
    """The algorithm with one client whose uploaded change is replaced."""

    def __init__(self, inner, client, false):
        self.inner, self.client, self.false = inner, client, false

    @property
    def on_client(self):
        return dict(self.inner.on_client) | {fed_avg.Descend: self.descend}

    @property
    def on_server(self):
        return self.inner.on_server

    def server_start(self, n_clients):
        return self.inner.server_start(n_clients)

    def descend(self, memory, ask, data, rng):
        memory, up = self.inner.on_client[fed_avg.Descend](memory, ask, data, rng)
        own = data.index == self.client
        if up.single is not None:
            return memory, replace(up, single=np.where(own[:, None], self.false, up.single))
        if not own.any():
            return memory, up
        # honest part lost in it
        return memory, replace(up, change=up.change + ask.weights[own] * self.false)


@pytest.mark.parametrize("false", [1e6, -1e9, np.nan], ids=str)
def test_a_false_client_breaks_the_average_but_no_robust_rule(false):
    rng, D = np.random.default_rng(8), 5
    X = [rng.normal(size=(60, D)) for _ in range(9)]
    y = [np.where(x @ np.ones(D) + 0.5 * rng.normal(size=60) > 0, 1.0, -1.0) for x in X]
    fed = bf.Federation([f"c{i}" for i in range(9)], X, y)
    honest = fed.restrict([f"c{i}" for i in range(9) if i != 4])
    problem = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.05))
    best = bf.solve(problem, honest, tol=1e-8).certificate.value
    concrete, data = problem.at(fed)

    def attacked(rule):
        algorithm = configure(
            bf.FedAvg(2, 1.0, aggregate=rule), concrete, data, None, None, 60, None
        )
        return bf.InProcess("each").run(Attacked(algorithm, 4, false), data).state.w

    for rule in (
        bf.CoordinateMedian(),
        bf.TrimmedMean(0.15),
        bf.Krum(1),
        bf.Krum(1, 4),
        bf.Bulyan(1),
    ):
        assert problem.objective(attacked(rule), honest) < best + 0.05
    if np.isnan(false):
        with np.errstate(all="ignore"):
            concrete_outcome = bf.InProcess("each").run(
                Attacked(
                    configure(bf.FedAvg(2, 1.0), concrete, data, None, None, 60, None), 4, false
                ),
                data,
            )
        assert concrete_outcome.outcome.stop is bf.Stop.STALLED
        assert not np.isfinite(concrete_outcome.state.w).all()
    else:
        assert problem.objective(attacked(bf.Average()), honest) > 10 * best


# ---- DRFA


def test_an_iteration_of_drfa_by_hand():
    fed, eta, gamma, K = federation(9), 0.3, 0.2, 3
    for strength in (0.0, 0.5):
        algorithm = bf.DRFA(K, eta, gamma, strength=strength, seed=4)
        problem = bf.Problem(
            bf.Logistic(), PLAIN, over_clients=bf.LpBall(0.3, 2), regulariser=bf.L2(0.2)
        )
        _, found = run(algorithm, problem, fed, 4)
        w, p, prior = np.zeros(8), np.full(3, 1 / 3), np.full(3, 1 / 3)
        for turn in range(2):
            t = stream(4, "server", 3 * turn + 1).integers(1, K + 1)
            paths = [walked(fed, i, w, eta, K, 0.2) for i in range(3)]
            v = p @ [path[t] for path in paths]
            w = p @ [path[-1] for path in paths]
            pulled = p + K * gamma * (logistic(fed, v)[0] - strength * (0 - prior))
            p = bf.LpBall(0.3, 2).at(np.ones(3)).project(pulled / (1 + strength * K * gamma))
        assert_allclose(found.state.w, w, rtol=1e-11)
        assert_allclose(found.state.weights, p, rtol=1e-11)
        assert found.rounds == 5  # one more, for the step size


def test_drfa_asks_by_weight_to_step_and_uniformly_to_judge():
    fed = federation(10, 8)
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_clients=bf.Superquantile(0.5, [0.3, 0.3, 0.2, 0.2, 0, 0, 0, 0])
    )
    _, found = run(bf.DRFA(1, 0.1, 1e-6, participation=0.5), problem, fed, 600)
    steps, judged = found.active[1::2], found.active[2::2]
    assert set().union(*steps) == {0, 1, 2, 3}
    assert set().union(*judged) == set(range(8))
    assert {len(ids) for ids in judged} == {4}
    share = np.mean([0 in ids for ids in steps])
    assert abs(share - (1 - 0.7**4)) < 0.12  # 300 draws of four


def test_drfa_with_one_step_comes_near_the_worst_case_optimum():
    fed = federation(11, 4)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))
    best = bf.solve(problem, fed, tol=1e-8).certificate
    solution = bf.solve(problem, fed, algorithm=bf.DRFA(1), max_rounds=1500)
    assert 0 <= solution.certificate.value - best.value + 1e-8 < 3e-3 * best.value
    assert_allclose(solution.certificate.weights, best.weights, atol=0.02)
    mean = bf.solve(problem, fed, algorithm=bf.DRFA(1, average=True), max_rounds=1500)
    assert mean.certificate.value < best.value * 1.05
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS


# ---- input


@pytest.mark.parametrize(
    "settings",
    [
        {"local_steps": 0},
        {"local_steps": 1.5},
        {"local_steps": True},
        {"step_size": 0.0},
        {"step_size": float("nan")},
        {"step_size": "0.1"},
        {"step_size": True},
        {"batch": 0},
        {"participation": 0.0},
        {"participation": 1.1},
        {"participation": float("nan")},
        {"strength": -1.0},
        {"strength": float("inf")},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", [bf.FedAvg, bf.DRFA])
def test_settings_out_of_range(method, settings):
    with pytest.raises(ValueError, match="must be"):
        method(**settings)


def test_other_settings_out_of_range():
    for weight_step in (0.0, -1.0, float("nan"), "1"):
        with pytest.raises(ValueError, match="weight_step must be"):
            bf.DRFA(weight_step=weight_step)
    for rule in ("median", bf.CoordinateMedian, None):
        with pytest.raises(TypeError, match="aggregate must be a "):
            bf.FedAvg(aggregate=rule)
    with pytest.raises(ValueError, match=r"Krum\(byzantine=1.*needs 5 models"):
        bf.solve(
            bf.Problem(bf.Logistic(), PLAIN),
            federation(0),
            algorithm=bf.FedAvg(aggregate=bf.Krum(1)),
        )


def test_fed_avg_names_what_takes_a_worst_case_and_drfa_what_it_takes():
    fed = federation(0)
    with pytest.raises(ValueError, match=r"over_clients = Mean or Sum.*use Bundle\(\)"):
        bf.solve(
            bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex()), fed, algorithm=bf.FedAvg()
        )
    with pytest.raises(ValueError, match="sum to one"):
        bf.solve(bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Sum()), fed, algorithm=bf.DRFA())


def test_a_step_that_diverges_is_said():
    problem = bf.Problem(bf.Squared(), PLAIN, regulariser=bf.L2(1e-3))
    with np.errstate(all="ignore"):
        for algorithm in (bf.FedAvg(5, 1e8), bf.DRFA(5, 1e8)):
            fed = federation(0, targets="real")
            solution = fit(problem, fed, algorithm=algorithm, max_rounds=400)
            assert solution.outcome.stop is bf.Stop.STALLED
            assert "step_size" in solution.outcome.text


def test_bounds_hold_whatever_the_number_of_steps():
    fed = federation(12, 5)
    problem = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.Bounds(-0.05, 0.1))
    for steps in (1, 7):
        w = run(bf.FedAvg(steps), problem, fed, 60)[1].state.w
        assert -0.05 <= w.min() < -0.04
        assert 0.09 < w.max() <= 0.1


def test_one_pass_in_one_step_is_the_servers_prox():
    assert Walk(1, None).single
    assert Walk(1, None, epochs=True).single
    assert Walk(1, 5).single
    assert not Walk(1, 5, epochs=True).single
    assert not Walk(2, None).single
