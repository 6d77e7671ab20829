"""SGD, LSVRG and DCA: steps by hand, optima by independent solvers, and the published defects as
tests.
"""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from problems import PLAIN
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit

import bonafed as bf
from bonafed.algorithms.pooled.single_client import Advance
from bonafed.arrays import stream
from bonafed.papers.rank.stochastic import (
    DivergedError,
    batch_weights,
    evaluate,
    scalar_form,
    slow_steps,
    tuned,
)
from bonafed.problem.rank_levels import plus_minus
from bonafed.solution.plan import configure

SEED = 3
BOTH = [bf.SGD, bf.LSVRG]


def data(n=40, d=4, seed=0, targets="sign", sparse=False, noise=0.7):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    z = X @ rng.normal(size=d) + noise * rng.normal(size=n)
    y = z if targets == "real" else np.where(z > 0, 1.0, -1.0)
    return bf.Federation(["pooled"], [csr_array(X) if sparse else X], [y])


def rows(fed):
    X, y = fed.rows(0)
    return X, y


def stepped(algorithm, problem, fed, rounds=1):
    """The last memory after some rounds, with the engine's random streams."""
    concrete, fed = problem.at(fed)
    method = replace(algorithm, problem=concrete)
    block = fed.block(0)
    memory = method.client_start(block)
    for turn in range(rounds):
        memory, _ = method.advance(
            memory, Advance(turn), block, lambda p, t=turn: stream(SEED, block.names[p], t)
        )
    return memory


def soft(v, t):
    return np.sign(v) * np.maximum(np.abs(v) - t, 0.0)


# ---- one step is the equation


def test_sgd_on_all_rows_is_one_subgradient_step():
    fed, rate = data(), 0.3
    X, y = rows(fed)
    start = np.array([0.3, -0.2, 0.1, 0.0, 0.5])
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(fit_intercept=True), bf.Extremile(2), regulariser=bf.L1(0.05)
    )
    t = -y * (X @ start[:4] + start[4])
    rank = t.argsort().argsort() + 1.0
    q = (rank / 40) ** 2 - ((rank - 1) / 40) ** 2
    pull = q * -y * expit(t)
    w = np.append(soft(start[:4] - rate * X.T @ pull, rate * 0.05), start[4] - rate * pull.sum())
    for batch in (40, 1000):
        memory = stepped(bf.SGD(rate, batch=batch, start=start), problem, fed)
        np.testing.assert_allclose(memory.w[0], w, rtol=1e-12)
        assert memory.steps == 1


def test_sgd_steps_through_a_permutation_and_leaves_the_rest_out():
    fed, rate = data(), 0.2
    X, y = rows(fed)
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.25), regulariser=bf.L2(0.1)
    )
    order, w = stream(SEED, "pooled", 0).permutation(40), np.zeros(4)
    for at in (order[:16], order[16:32]):  # a quarter of 16 rows: the 4 largest losses
        margin = y[at] * (X[at] @ w)
        if not w.any():  # equal losses share
            q = np.full(16, 1 / 16)
        else:
            q = np.where(margin.argsort().argsort() < 4, 0.25, 0.0)
        w = (w + rate * X[at].T @ (q * y[at] * (margin < 1))) / (1 + rate * 0.1)
    memory = stepped(bf.SGD(rate, batch=16), problem, fed)
    np.testing.assert_allclose(memory.w[0], w, rtol=1e-12)
    assert memory.steps == 2


@pytest.mark.parametrize("uniform", [True, False])
def test_lsvrg_by_hand(uniform):
    fed, rate, n = data(), 0.2, 40
    X, y = rows(fed)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Extremile(3), regulariser=bf.L2(0.1))
    w = np.zeros(4)
    for turn in range(2):  # the second epoch has new weights and a new checkpoint
        t = -y * (X @ w)
        if turn:
            rank = t.argsort().argsort() + 1.0
            q = (rank / n) ** 3 - ((rank - 1) / n) ** 3
        else:
            q = np.full(n, 1 / n)
        old = -y * expit(t)
        mean, rng = X.T @ (q * old), stream(SEED, "pooled", turn)
        drawn = rng.integers(n, size=5) if uniform else rng.choice(n, size=5, p=q / q.sum())
        for i in drawn:
            new = -y[i] * expit(-y[i] * (X[i] @ w))
            gain = n * q[i] if uniform else q.sum()
            w = (w - rate * (gain * (new - old[i]) * X[i] + mean)) / (1 + rate * 0.1)
    memory = stepped(bf.LSVRG(rate, uniform=uniform, epoch_length=5), problem, fed, 2)
    np.testing.assert_allclose(memory.w[0], w, rtol=1e-11)


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize(
    "risk", [bf.Extremile(2), bf.RankedRange(30, 5), bf.ProspectTheory()], ids=repr
)
def test_lsvrg_steps_are_unbiased(uniform, risk):
    """Over all rows, each with its probability, the mean step is the gradient of the risk with the
    weights fixed.
    """
    concrete, fed = bf.Problem(bf.Logistic(), PLAIN, over_samples=risk).at(data())
    block, n = fed.block(0), 40
    before, w = np.array([0.4, -0.1, 0.0, 0.7]), np.array([-0.5, 0.3, 0.2, 0.1])
    point = evaluate(concrete, before, block)
    q = point.weights[0]
    chance, gain = (np.full(n, 1 / n), n * q) if uniform else (q / q.sum(), np.full(n, q.sum()))
    mean = sum(
        chance[i] * (w - slow_steps(concrete, block, w, np.array([i]), gain[i : i + 1], point, 1.0))
        for i in range(n)
    )
    X, y = rows(fed)
    np.testing.assert_allclose(mean, X.T @ (q * -y * expit(-y * (X @ w))), rtol=1e-10, atol=1e-14)


LOSSES = [
    bf.Hinge(),
    bf.SmoothHinge(),
    bf.Logistic(),
    bf.Exponential(),
    bf.Squared(),
    bf.Absolute(),
    bf.Huber(0.5),
    bf.EpsilonInsensitive(0.1),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(
    ("regulariser", "intercept"),
    [
        (bf.Zero(), True),
        (bf.L1(0.05), False),
        (bf.ElasticNet(0.02, 0.1), True),
        (bf.Bounds(-0.1, [0.1] * 4), True),
    ],
)
def test_compiled_steps_are_the_plain_ones(loss, regulariser, intercept):
    predictor = bf.Linear(fit_intercept=intercept)
    problem = bf.Problem(loss, predictor, bf.Superquantile(0.4), regulariser=regulariser)
    concrete, fed = problem.at(data(targets=loss.targets))
    block, generator = fed.block(0), np.random.default_rng(1)
    algorithm = bf.LSVRG(0.05, epoch_length=60, problem=concrete)
    start = replace(algorithm.client_start(block), w=generator.normal(size=(1, 4 + intercept)) / 2)
    point = evaluate(concrete, start.w[0], block)
    drawn = np.random.default_rng(5).integers(40, size=60)
    plain = slow_steps(
        concrete, block, start.w[0], drawn, 40 * point.weights[0, drawn], point, 0.05
    )
    assert scalar_form(concrete, 4) is not None
    w, steps = algorithm.epoch(block, replace(start, point=point), np.random.default_rng(5))
    assert steps == 60
    np.testing.assert_allclose(w, plain, rtol=1e-11, atol=1e-14)
    assert np.abs(w - start.w[0]).max() > 1e-3


@pytest.mark.parametrize("regulariser", [bf.MCP(0.02), bf.SCAD(0.02)], ids=repr)
def test_lsvrg_takes_regularisers_without_a_compiled_form(regulariser):
    problem = bf.Problem(
        bf.Quantile(0.3), PLAIN, over_samples=bf.RankedRange(36, 0), regulariser=regulariser
    )
    concrete, _ = problem.at(data(targets="real"))
    assert scalar_form(concrete, 4) is None
    memory = stepped(bf.LSVRG(0.05), problem, data(targets="real"), 5)
    assert memory.value[0] < 0.9 * problem.objective(np.zeros(4), data(targets="real"))


# ---- weights of minibatches


def test_minibatches_integrate_the_spectrum_and_not_the_counts():
    losses = np.arange(10.0)
    cases = [
        (bf.Superquantile(0.25), np.r_[np.zeros(7), 0.5, 1, 1] / 2.5),
        (bf.RankedRange(70, 20), np.r_[0, 0, np.full(5, 0.2), 0, 0, 0]),
        (bf.RankedRange(70, 20, "descending"), np.r_[0, 0, 0, np.full(5, 0.2), 0, 0]),
        (bf.RankedRange(75, 20), np.r_[0, 0, np.full(5, 0.1), 0.05, 0, 0] / 0.55),
        (bf.TopK(5), np.r_[np.zeros(9), 1.0]),
    ]
    for risk, expected in cases:
        np.testing.assert_allclose(
            batch_weights(risk, 100, 10)(losses), expected, rtol=1e-12, atol=1e-15
        )
        np.testing.assert_array_equal(
            batch_weights(risk, 100, 10)(-losses), batch_weights(risk, 100, 10)(losses)[::-1]
        )


@pytest.mark.parametrize(
    "risk",
    [
        bf.Extremile(2.5),
        bf.ExponentialSpectral(2.0),
        bf.HumanAligned(0.4, 0.3),
        bf.ProspectTheory(),
    ],
    ids=repr,
)
def test_minibatch_weights_are_those_of_its_size(risk):
    losses = np.random.default_rng(0).exponential(size=20)
    np.testing.assert_allclose(
        batch_weights(risk, 100, 20)(losses), risk.weights(losses), rtol=1e-10
    )
    np.testing.assert_allclose(
        batch_weights(risk, 20, 20)(losses), risk.weights(losses), rtol=1e-10
    )


def test_equal_losses_share():
    np.testing.assert_allclose(batch_weights(bf.TopK(5), 100, 8)(np.ones(8)), np.full(8, 1 / 8))


# ---- the defects of the published code


@pytest.mark.parametrize(
    "algorithm", [bf.SGD(0.1), bf.LSVRG(0.1, epoch_length=1), bf.DCA(0.1, inner=1)], ids=repr
)
def test_rows_of_the_negative_class_move_the_model(algorithm):
    X, _ = rows(data())
    fed = bf.Federation(["pooled"], [X], [np.zeros(40)], classes=[0, 1])
    memory = stepped(algorithm, bf.Problem(bf.Hinge(), PLAIN), fed)
    # every margin is 0: gradient x
    np.testing.assert_allclose(memory.w[0], -0.1 * X.mean(0), rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm", [bf.SGD(0.1), bf.LSVRG(0.1, epoch_length=1), bf.DCA(0.1, inner=1)], ids=repr
)
def test_the_intercept_is_last_and_free(algorithm):
    X, _ = rows(data())
    fed = bf.Federation(["pooled"], [X], [np.ones(40)], classes=[0, 1])
    problem = bf.Problem(bf.Hinge(), bf.Linear(fit_intercept=True), regulariser=bf.L1(100.0))
    np.testing.assert_allclose(stepped(algorithm, problem, fed).w[0], [0, 0, 0, 0, 0.1], rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm", [bf.SGD(0.1), bf.LSVRG(0.1, epoch_length=7), bf.DCA(0.1, inner=3)], ids=repr
)
def test_sparse_rows_are_the_same_rows(algorithm):
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(fit_intercept=True), bf.Superquantile(0.3), regulariser=bf.L1(0.01)
    )
    dense, sparse = (stepped(algorithm, problem, data(sparse=kind), 2).w for kind in (False, True))
    np.testing.assert_allclose(sparse, dense, rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm", [bf.SGD(0.1), bf.LSVRG(0.1, epoch_length=1), bf.DCA(0.1, inner=1)], ids=repr
)
def test_rows_of_a_mean_may_have_weights(algorithm):
    X, y = rows(data())
    share = np.arange(1.0, 41.0) / np.arange(1.0, 41.0).sum()
    fed = bf.Federation(["pooled"], [X], [y], sample_weight=[share])
    memory = stepped(algorithm, bf.Problem(bf.Logistic(), PLAIN), fed)
    np.testing.assert_allclose(memory.w[0], 0.05 * X.T @ (share * y), rtol=1e-12)


# ---- optima


def logistic_optimum(fed, strength):
    X, y = rows(fed)

    def objective(w):
        t = -y * (X @ w)
        return np.logaddexp(0, t).mean() + strength / 2 * w @ w, strength * w + X.T @ (
            -y * expit(t)
        ) / len(y)

    return minimize(
        objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-15}
    ).fun


@pytest.mark.parametrize("uniform", [True, False])
def test_lsvrg_reaches_a_proven_optimum_of_the_mean(uniform):
    fed = data(120, 6)
    solution = bf.solve(
        bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1)),
        fed,
        algorithm=bf.LSVRG(0.05, uniform=uniform),
        tol=1e-7,
    )
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(logistic_optimum(fed, 0.1), rel=2e-7)
    assert solution.history[-1]["bound"] <= logistic_optimum(fed, 0.1) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("algorithm", "near"),
    [(bf.SGD(0.05, batch=32), 0.05), (bf.LSVRG(0.003), 0.02), (bf.LSVRG(0.003, False), 0.02)],
)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic()], ids=repr)
@pytest.mark.parametrize("regulariser", [bf.L2(0.1), bf.L1(0.02)], ids=repr)
def test_near_the_optimum_of_the_superquantile(algorithm, near, loss, regulariser):
    """Documented distance: some per cent for SGD (bias of ranks within minibatches), two per cent
    for LSVRG.
    """
    fed = data(120, 6, noise=0.3)
    X, y = rows(fed)
    w, cap = cp.Variable(6), cp.Variable()
    margin = cp.multiply(y, X @ w)
    losses = cp.pos(1 - margin) if isinstance(loss, bf.Hinge) else cp.logistic(-margin)
    h = 0.05 * cp.sum_squares(w) if isinstance(regulariser, bf.L2) else 0.02 * cp.norm1(w)
    optimum = cp.Problem(cp.Minimize(cap + cp.sum(cp.pos(losses - cap)) / (0.3 * 120) + h)).solve(
        cp.CLARABEL
    )
    problem = bf.Problem(loss, PLAIN, over_samples=bf.Superquantile(0.3), regulariser=regulariser)
    concrete, fed = problem.at(fed)
    run = bf.InProcess().run(
        configure(algorithm, concrete, fed, None, None, 600, None), fed, seed=1
    )
    values, bounds = (
        np.array([row[name] for row in run.history]) for name in ("objective", "bound")
    )
    assert (np.diff(values) <= 0).all()  # the best model so far
    assert (np.diff(bounds) >= 0).all()
    assert optimum * (1 - 1e-7) <= values[-1] <= optimum * (1 + near)
    assert bounds.max() <= optimum * (1 + 1e-7)
    if isinstance(regulariser, bf.L2):
        assert bounds[-1] >= 0.9 * optimum
    assert run.state.value == pytest.approx(problem.objective(run.state.w, fed), rel=1e-12)


# ---- difference of convex functions


@pytest.mark.parametrize(
    "risk",
    [
        bf.Extremile(2),
        bf.RankedRange(7, 2),
        bf.RankedRange(7, 2, "descending"),
        bf.Median(),
        bf.HumanAligned(0.4, 0.3),
        bf.Spectral([0.3, 0.0, 0.1, 0.2, 0.0, 0.1, 0.1, 0.0, 0.1, 0.1]),
    ],
    ids=repr,
)
def test_rank_weights_are_a_difference_of_nondecreasing_ones(risk):
    sigma = risk.rank_weights(10)
    plus, minus = plus_minus(sigma)
    np.testing.assert_allclose(plus - minus, sigma, atol=1e-15)
    for part in (plus, minus):
        assert part.min() >= 0
        assert np.diff(part).min() >= -1e-15
    # as small as can be: at every step one of the two stays
    np.testing.assert_allclose(np.diff(plus) * np.diff(minus), 0, atol=1e-15)
    assert risk.convex == (not minus.any())


def test_dca_step_by_hand():
    fed, rate = data(10), 0.3
    X, y = rows(fed)
    start = np.array([0.3, -0.2, 0.1, 0.0])
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=bf.RankedRange(7, 2), regulariser=bf.L2(0.1)
    )
    t = -y * (X @ start)
    rank = t.argsort().argsort()  # 0 is the smallest
    gradients = X * (-y * expit(t))[:, None]
    # plus: 1/5 from the third smallest on; minus: 1/5 from the eighth on
    v = gradients[rank >= 7].sum(0) / 5
    w = (start - rate * (gradients[rank >= 2].sum(0) / 5 - v)) / (1 + rate * 0.1)
    memory = stepped(bf.DCA(rate, inner=1, start=start), problem, fed)
    np.testing.assert_allclose(memory.w[0], w, rtol=1e-12)


def test_dca_on_a_convex_risk_is_subgradient_descent():
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Extremile(2), regulariser=bf.L2(0.1))
    dca = stepped(bf.DCA(0.05, inner=8), problem, data(), 1)
    sgd = stepped(bf.SGD(0.05, batch=40), problem, data(), 8)
    np.testing.assert_allclose(dca.w, sgd.w, rtol=1e-10)
    assert dca.bound > 0


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_dca_never_rises_and_ends_at_a_critical_point(order):
    """Critical in the sense of the method: at its end the linearised convex program cannot be
    improved.
    """
    fed = data(40, 3)
    X, y = rows(fed)
    risk = bf.RankedRange(30, 8, order)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=risk, regulariser=bf.L2(0.1))
    start = np.array([1.0, -1.0, 0.5])
    solution = bf.solve(problem, fed, algorithm=bf.DCA(0.1, inner=400, max_rounds=60, start=start))
    values = np.array([row["objective"] for row in solution.history])
    assert (np.diff(values) <= 0).all()
    assert values[-1] < problem.objective(start, fed)
    assert solution.certificate.bound is None
    assert solution.history[-1]["bound"] == -np.inf
    plus, minus = plus_minus(risk.rank_weights(40))
    t = -y * (X @ solution.w)
    order_of, w, cap = np.argsort(t), cp.Variable(3), 0.0
    v = X[order_of].T @ (minus * (-y * expit(t))[order_of])
    losses, drops = cp.logistic(-cp.multiply(y, X @ w)), np.diff(plus, prepend=0.0)
    for at in np.flatnonzero(drops > 1e-12):
        cap = cap + drops[at] * cp.sum_largest(losses, 40 - int(at))
    best = cp.Problem(cp.Minimize(cap + 0.05 * cp.sum_squares(w) - v @ w)).solve(cp.CLARABEL)
    here = np.sort(np.logaddexp(0, t)) @ plus + 0.05 * solution.w @ solution.w - v @ solution.w
    assert best * (1 - 1e-7) <= here <= best + 1e-3 * abs(best)


# ---- learning rates


def test_tuned_tries_the_papers_grid_and_keeps_the_best():
    fed = data(200, 5)
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.2), regulariser=bf.L2(0.01)
    )
    for algorithm in (bf.SGD(), bf.LSVRG()):
        chosen, table = tuned(algorithm, problem, fed, rounds=5, seed=2)
        assert [row["learning_rate"] for row in table] == [1e-2, 1e-3, 1e-4, 1 / 200, 1 / 1000]
        best = min(table, key=lambda row: row["objective"])
        assert chosen == replace(algorithm, learning_rate=best["learning_rate"])
        run = bf.InProcess().run(
            configure(chosen, *problem.at(fed), None, None, 5, None), problem.at(fed)[1], seed=2
        )
        assert run.state.value == best["objective"]


@pytest.mark.parametrize("kind", BOTH)
def test_the_first_round_tries_the_grid(kind):
    fed = data(100, 5)
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.2), regulariser=bf.L2(0.01)
    )
    concrete, fed = problem.at(fed)
    own = configure(
        kind(grid=(1e-4, 1e-1, 1e-3), trial_epochs=3), concrete, fed, None, None, 4, None
    )
    run = bf.InProcess().run(own, fed, seed=1)
    assert run.memories[0].rate == 0.1
    epoch = {bf.SGD: 1, bf.LSVRG: 100}[kind]
    assert run.history[0]["iterations"] == 9 * epoch
    assert run.history[-1]["iterations"] == 12 * epoch


@pytest.mark.parametrize("kind", [*BOTH, bf.DCA])
def test_divergence_is_said_never_kept(kind):
    X, y = rows(data(targets="real"))
    far = bf.Federation(["pooled"], [1e3 * X], [y])
    problem = bf.Problem(bf.Squared(), PLAIN)
    few = {"inner": 200} if kind is bf.DCA else {"max_rounds": 50}
    with pytest.raises(bf.engines.ClientError, match=r"diverges at learning rate 0\.1"):
        bf.solve(problem, far, algorithm=kind(0.1, **few))
    _, table = tuned(kind(**few), problem, far, grid=(10.0, 1e-9), rounds=30)
    assert table[0]["objective"] == np.inf
    assert table[1]["objective"] < problem.objective(np.zeros(4), far)
    with pytest.raises(
        DivergedError, match=r"diverges at every learning rate tried \(10, 1\).*unit size"
    ):
        tuned(kind(**few), problem, far, grid=(10.0, 1.0), rounds=30)
    if kind is not bf.DCA:
        with pytest.raises(bf.engines.ClientError, match=r"diverges at every learning rate tried"):
            bf.solve(problem, far, algorithm=kind(grid=(10.0, 1.0), trial_epochs=30))


# ---- refusals


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: bf.SGD(0.0), "positive"),
        (lambda: bf.SGD(grid=(0.1, -1.0)), "positive"),
        (lambda: bf.SGD(batch=0), "batch must be >= 1"),
        (lambda: bf.LSVRG(epoch_length=0), "epoch_length must be >= 1"),
        (lambda: bf.LSVRG(max_rounds=0), "max_rounds must be >= 1"),
        (lambda: bf.DCA(0.0), "positive"),
        (lambda: bf.DCA(inner=0), "inner must be >= 1"),
    ],
)
def test_impossible_settings_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize("kind", [*BOTH, bf.DCA])
def test_problems_they_do_not_solve_are_refused(kind):
    with pytest.raises(ValueError, match=r"WassersteinBall.*[Uu]se Bundle\(\)"):
        bf.solve(
            bf.Problem(bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.1)),
            data(),
            algorithm=kind(),
        )
    two = bf.Federation(["a", "b"], [rows(data())[0]] * 2, [rows(data())[1]] * 2)
    with pytest.raises(ValueError, match=r"all rows in one place, got 2 clients: use fed\.pooled"):
        bf.solve(bf.Problem(bf.Hinge(), PLAIN), two, algorithm=kind())
    with pytest.raises(ValueError, match="has no problem yet"):
        kind().client_start(data().block(0))


def test_dca_refuses_weights_that_change_at_a_reference():
    with pytest.raises(
        ValueError, match="a risk with one sequence of rank weights, got ProspectTheory"
    ):
        bf.solve(
            bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.ProspectTheory()),
            data(),
            algorithm=bf.DCA(),
        )
