"""ProximalAL: one round by hand, optima and multipliers of independent solvers, outcomes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
from problems import PLAIN
from scipy.optimize import minimize

import bonafed as bf
from bonafed.algorithms.federated.proximal_al import client as proximal_client
from bonafed.algorithms.federated.proximal_al import proximal_al
from bonafed.algorithms.federated.proximal_al.client import Refine, Settle
from bonafed.engines.inprocess import InProcess
from bonafed.papers.constrained import proximal_al as printed
from bonafed.problem.client_means import hessian_diagonals, hessians
from bonafed.problem.constraints.constraint import Point
from bonafed.rounds import Stop, visibility
from bonafed.solution.plan import configure

MEAN0 = bf.Mean(label=-1.0)
ACTIVE = bf.NeymanPearson(1.0, 0.3)


def federation(
    seed: int = 0, sizes=(20, 35, 12, 28), d: int = 4, server: bool = True, order=None
) -> bf.Federation:
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((m, d)) for m in sizes]
    y = [np.where(x @ np.ones(d) + 0.8 * rng.standard_normal(len(x)) > 0, 1.0, -1.0) for x in X]
    g = [(rng.random(len(v)) < 0.5).astype(int) for v in y]
    X0 = rng.standard_normal((15, d))
    held = (
        (X0, np.where(X0 @ np.ones(d) + 0.5 * rng.standard_normal(15) > 0, 1.0, -1.0))
        if server
        else None
    )
    order = range(len(X)) if order is None else order
    names = [f"site {i}" for i in order]
    return bf.Federation(
        names,
        [X[i] for i in order],
        [y[i] for i in order],
        columns={"g": [g[i] for i in order]},
        server=held,
    )


def central(problem: bf.Problem, fed: bf.Federation):
    """SLSQP on the pooled statement."""
    concrete, data = problem.at(fed)
    glob = concrete.constraint

    def margins(w):
        points = [Point(concrete, w, data.block(i)) for i in range(len(data))]
        own = [-concrete.local_constraint.values(at)[0] for at in points]
        return np.concatenate(
            [
                *own,
                -sum(glob.coupled.values(at)[0] for at in points),
                -glob.held.values(glob.point(concrete, w))[0],
            ]
        )

    start = np.zeros(concrete.predictor.dimension(fed.n_features))
    found = minimize(
        lambda w: problem.objective(w, fed),
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": margins},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return found.fun


# ---- Algorithms 1 and 2 by hand


def test_messages_say_who_sees_what():
    each = {name for name, how in visibility(proximal_client.Refined).items() if how == "each"}
    # no copy, no multiplier, no value of a single client
    assert each == {"slack", "slack_drift", "violation"}
    each = {name for name, how in visibility(proximal_client.Settled).items() if how == "each"}
    assert each == {"change", "slack"}


def by_hand(X, y, q, w, u, lam, mu, anchor, beta, rho, sigma):
    """One client's (19)-(22), with SciPy, the logistic loss and one Neyman-Pearson constraint of
    level 0.3.
    """

    def P(v):
        z = X @ v
        f = np.logaddexp(0, z[y < 0]).mean()
        c = np.logaddexp(0, -z[y > 0]).mean() - 0.3
        df = X[y < 0].T @ (1 / (1 + np.exp(-z[y < 0]))) / (y < 0).sum()
        dc = -X[y > 0].T @ (1 / (1 + np.exp(z[y > 0]))) / (y > 0).sum()
        up = max(mu + beta * c, 0.0)
        value = q * f + (up**2 - mu**2) / (2 * beta) + sigma / 2 * ((v - anchor) ** 2).sum()
        return value, q * df + up * dc + sigma * (v - anchor), c

    def phi(v):
        value, gradient, _ = P(v)
        return value + lam @ (v - w) + rho / 2 * ((v - w) ** 2).sum(), gradient + lam + rho * (
            v - w
        )

    new = minimize(phi, u, jac=True, method="BFGS", options={"gtol": 1e-11}).x
    dual = lam + rho * (new - w)
    residual = np.abs(P(w)[1] + lam - rho * (w - u)).max()
    return new, dual, new + dual / rho, residual, P


def test_two_rounds_and_the_multipliers_are_the_printed_equations():
    fed = federation()
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=MEAN0, local_constraint=ACTIVE)
    concrete, data = problem.at(fed)
    beta, rho, n, w0 = 7.0, 0.4, 4, np.array([0.3, -0.2, 0.1, 0.5])
    # local problems far beyond q^t
    exact = printed(beta=beta, rho=rho, q=None, tol=1e-9)
    it = configure(exact, concrete, data, None, None, None, w0)
    sigma = 1 / ((n + 1) * beta)
    seen = []
    InProcess("each").run(
        it, data, max_rounds=3, watch=[lambda row, state: seen.append((row, state))]
    )
    run = InProcess("each").run(it, data, max_rounds=3)
    own = [(*fed.rows(i), 1 / n) for i in range(n)]
    start = [by_hand(X, y, q, w0, w0, np.zeros(4), 0.0, w0, beta, rho, sigma)[4] for X, y, q in own]
    u, lam = [w0] * n, [-P(w0)[1] for P in start]  # Algorithm 2, line 1
    for k in range(2):
        shifted = [a + b / rho for a, b in zip(u, lam, strict=True)]
        w = (rho * sum(shifted) + sigma * w0) / (n * rho + sigma)  # (18)
        steps = [
            by_hand(X, y, q, w, a, b, 0.0, w0, beta, rho, sigma)
            for (X, y, q), a, b in zip(own, u, lam, strict=True)
        ]
        u, lam = [s[0] for s in steps], [s[1] for s in steps]
        np.testing.assert_allclose(seen[k][1].w, w, rtol=1e-8)  # asked for in the round before
        state = seen[k + 1][1]
        np.testing.assert_allclose(state.shifted, rho * sum(s[2] for s in steps), atol=1e-7)  # (21)
        # (22), (23)
        np.testing.assert_allclose(state.residual, sum(s[3] for s in steps), atol=1e-7)
    loose = configure(printed(beta=beta, rho=rho, q=0.5), concrete, data, None, None, None, w0)
    first = InProcess("each").run(loose, data, max_rounds=2).state
    # eps_1 = q^0 in (23)
    np.testing.assert_allclose(first.residual, 1 + seen[1][1].residual, rtol=1e-12)
    for memory, a, b in zip(run.memories, u, lam, strict=True):
        np.testing.assert_allclose(memory.z[0], a, atol=1e-7)  # (19)
        np.testing.assert_allclose(memory.dual[0], b, atol=1e-7)  # (20)
    ask = Settle(w, np.zeros((n, 0)), None, beta, beta, sigma, np.full(1, rho), True)
    for i, (X, y, q) in enumerate(own):  # Algorithm 1, lines 6-8
        one = replace(ask, slack=np.zeros((1, 0)))
        memory, up = it.on_client[Settle](run.memories[i], one, data.block(i), None)
        mu = max(beta * start[i](w)[2], 0.0)
        np.testing.assert_allclose([memory.multiplier[0, 0], up.change[0]], [mu, mu], rtol=1e-10)
        again = by_hand(X, y, q, w, w, np.zeros(4), mu, w, beta, rho, sigma)[4]
        np.testing.assert_allclose(memory.dual[0], -again(w)[1], rtol=1e-9, atol=1e-12)


def test_the_acceleration_starts_from_the_mixed_points():
    """With weights (a, 1 - a) the multiplier in (19) is that of the mixed points w - lambda /
    rho.
    """
    fed = federation()
    concrete, data = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=MEAN0, local_constraint=ACTIVE
    ).at(fed)
    it = configure(bf.ProximalAL(beta=5.0, rho=0.5), concrete, data, None, None, None, None)
    memory = InProcess("each").run(it, data, max_rounds=3).memories[0]
    w, mix = np.array([0.1, 0.2, -0.1, 0.3]), np.array([-0.3, 1.3])
    ask = Refine(w, np.zeros((1, 0)), None, 5.0, 0.04, np.full(1, 0.5), 1e-11, 0.0, mix)
    new, _ = it.on_client[Refine](memory, ask, data.block(0), None)
    point = mix[0] * memory.points[0, -1] + mix[1] * (w - memory.dual[0] / 0.5)
    plain, _ = it.on_client[Refine](
        replace(memory, dual=(0.5 * (w - point))[None]),
        replace(ask, mix=np.ones(1)),
        data.block(0),
        None,
    )
    np.testing.assert_allclose(new.z, plain.z, atol=1e-10)
    np.testing.assert_allclose(new.dual, plain.dual, atol=1e-10)


# ---- optima of independent solvers

KINDS = {
    "local": bf.Problem(bf.Logistic(), PLAIN, over_samples=MEAN0, local_constraint=ACTIVE),
    "intercept, l2, size": bf.Problem(
        bf.Logistic(), bf.Linear(True), MEAN0, bf.Mean("size"), bf.L2(0.05), local_constraint=ACTIVE
    ),
    "coupled": bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=MEAN0,
        regulariser=bf.L2(0.05),
        constraint=bf.Coupled(bf.NeymanPearson(1.0, 0.15)),
    ),
    "coupled and local": bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=MEAN0,
        regulariser=bf.L2(0.02),
        local_constraint=bf.NeymanPearson(1.0, 0.45),
        constraint=bf.Coupled(bf.NeymanPearson(1.0, 0.3), prior="uniform"),
    ),
    "server": bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=MEAN0,
        regulariser=bf.L2(0.1),
        constraint=bf.NeymanPearson(1.0, 0.15),
    ),
    "affine of the server": bf.Problem(
        bf.Logistic(), PLAIN, constraint=bf.LinearInequality(np.ones((1, 4)), [-0.5])
    ),
}


@pytest.mark.parametrize("problem", KINDS.values(), ids=KINDS.keys())
def test_the_optimum_is_that_of_slsqp(problem):
    fed = federation()
    solution = bf.solve(problem, fed, algorithm=bf.ProximalAL(tol=1e-6), max_rounds=1500)
    assert solution.outcome.stop is Stop.OPTIMAL, solution.outcome.text
    reference = central(problem, fed)
    assert abs(solution.certificate.value - reference) <= 2e-6 * abs(reference)
    assert solution.certificate.feasibility <= 1e-6
    assert solution.certificate.stationarity <= 1e-4 * solution.certificate.gradient_scale


def test_lasso_with_local_and_server_constraints_is_that_of_cvxpy():
    fed = federation()
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        regulariser=bf.L1(0.03),
        local_constraint=bf.NeymanPearson(1.0, 0.4),
        constraint=bf.NeymanPearson(1.0, 0.3),
    )
    solution = bf.solve(problem, fed, algorithm=bf.ProximalAL(tol=1e-6), max_rounds=1500)
    w = cp.Variable(4)

    def mean_loss(X, y):
        return cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / len(y)

    rows = [fed.rows(i) for i in range(4)]
    limits = [mean_loss(X[y > 0], y[y > 0]) <= 0.4 for X, y in rows]
    X0, y0 = fed.server.rows(0)
    limits.append(mean_loss(X0[y0 > 0], y0[y0 > 0]) <= 0.3)
    program = cp.Problem(
        cp.Minimize(sum(mean_loss(X, y) for X, y in rows) / 4 + 0.03 * cp.norm1(w)), limits
    )
    program.solve(solver=cp.CLARABEL)
    assert solution.outcome.stop is Stop.OPTIMAL, solution.outcome.text
    assert abs(solution.certificate.value - program.value) <= 3e-6 * program.value
    np.testing.assert_allclose(solution.w, w.value, atol=1e-4)


def quadratics(d, n, m, seed=0):
    rng = np.random.default_rng(seed)
    A, b = [], []
    for _ in range(n):
        U = np.linalg.qr(rng.standard_normal((d, d)))[0]
        S = (U * rng.uniform(0.5, 1, d)) @ U.T
        A.append((S + S.T) / 2)
        b.append(rng.standard_normal(d))
    C = [rng.standard_normal((m, d)) / np.sqrt(d) for _ in range(n + 1)]
    e = [rng.standard_normal(m) for _ in range(n + 1)]
    return A, b, C, e


LCQP = bf.Problem(
    bf.Quadratic(),
    over_clients=bf.Sum(),
    constraint=bf.LinearEquality(),
    local_constraint=bf.LinearEquality(),
)


@pytest.mark.parametrize(("d", "n", "m"), [(6, 1, 2), (12, 2, 2), (12, 5, 1), (60, 4, 3)])
def test_quadratics_are_those_of_a_dense_kkt_system(d, n, m):
    A, b, C, e = quadratics(d, n, m)
    rows, p = np.concatenate(C), m * (n + 1)
    system = np.block([[sum(A), rows.T], [rows, np.zeros((p, p))]])
    exact = np.linalg.solve(system, -np.concatenate([sum(b), np.concatenate(e)]))
    solution = bf.solve(
        LCQP, bf.Federation.from_quadratics(A, b, C, e), algorithm=bf.ProximalAL(tol=1e-7)
    )
    assert solution.outcome.stop is not Stop.MAX_ROUNDS, solution.outcome.text
    np.testing.assert_allclose(solution.w, exact[:d], atol=1e-6 * np.abs(exact[:d]).max())
    mu = np.concatenate([solution.duals.server, solution.duals.local.ravel()])
    np.testing.assert_allclose(mu, exact[d:], atol=1e-6 * np.abs(exact[d:]).max())


def test_quadratics_by_newton_agree_with_the_cached_inverse():
    """An inequality that never binds leaves the same problem, without the one linear system of all
    rounds.
    """
    A, b, C, e = quadratics(8, 3, 1)
    fed = bf.Federation.from_quadratics(A, b, C, e)
    far = bf.LinearInequality(np.ones((1, 8)), [-1e3])
    both = replace(LCQP, local_constraint=(bf.LinearEquality(), far))
    w = [bf.solve(p, fed, algorithm=bf.ProximalAL(tol=1e-6)).w for p in (LCQP, both)]
    np.testing.assert_allclose(w[0], w[1], atol=1e-6)


@pytest.mark.parametrize("share", [1.0, 1e-3, 1e-6, 1e-9])
def test_single_precision_never_decides_a_stop(share):
    """(22) as sent is at least (22): from single precision, at most 1 % more where (23) can be
    met.
    """
    fed = bf.Federation.from_quadratics(*quadratics(30, 4, 2))
    concrete, data = LCQP.at(fed)
    it = configure(bf.ProximalAL(beta=5.0, rho=0.5), concrete, data, None, None, None, None)
    memory = InProcess("each").run(it, data, max_rounds=4).memories[1]
    w = memory.z[0] + 1e-3 * np.random.default_rng(1).standard_normal(30)
    half = np.full(1, 0.5)
    ask = Refine(w, np.zeros((1, 0)), None, 5.0, 0.04, half, 1e-11, 0.0, np.ones(1))
    merit = proximal_client._merit(concrete, memory, 5.0, 0.04, data.block(1))
    value, gradient, *_ = merit.all(w[None])
    left = gradient + memory.dual - 0.5 * (w - memory.z)
    # nearly stationary though u is far from w
    memory = replace(memory, dual=memory.dual - (1 - share) * left)
    exact = share * np.abs(left).max()
    far, near = (
        it.on_client[Refine](memory, replace(ask, room=room), data.block(1), None)[1]
        for room in (-1.0, 2 * exact)
    )
    floor = 1e-13 * np.abs(gradient).max()
    assert exact - floor <= near.residual[0] <= 1.01 * exact + floor
    assert exact - floor <= far.residual[0] <= exact + 1e-5 * np.abs(left).max()
    # so that both ways of near have been taken
    assert (far.residual[0] > 1.01 * exact) == (share < 1e-3)
    np.testing.assert_allclose([far.value, near.value], [value] * 2, rtol=1e-8)


def test_long_models_use_lbfgs_and_reach_the_same_optimum(monkeypatch):
    problem, fed = KINDS["intercept, l2, size"], federation()
    newton = bf.solve(problem, fed, algorithm=bf.ProximalAL(tol=1e-5))
    monkeypatch.setattr(proximal_client, "NEWTON", 0)
    long = bf.solve(problem, fed, algorithm=bf.ProximalAL(tol=1e-5))
    assert newton.outcome.stop is long.outcome.stop is Stop.OPTIMAL
    assert abs(long.certificate.value - newton.certificate.value) <= 1e-5


# ---- laws


@pytest.mark.parametrize("problem", KINDS.values(), ids=KINDS.keys())
def test_the_bound_of_a_run_is_below_the_optimum_in_every_round(problem):
    """Its charge covers models as near as the present one is large, so also the optimum."""
    fed = federation()
    concrete, data = problem.at(fed)
    method = configure(bf.ProximalAL(tol=1e-6), concrete, data, None, None, 400, None)
    run, best = InProcess().run(method, data), central(problem, fed)
    rows = [row for row in run.history if np.isfinite(row["gap"])]
    assert all(row["objective"] - row["gap"] <= best * (1 + 1e-8) for row in rows)
    assert rows[-1]["gap"] <= 1e-6 * best


def test_curvature_is_the_diagonal_of_the_hessian():
    concrete, data = KINDS["coupled and local"].at(federation())
    block = data.blocks(4)[0]
    at = Point(concrete, np.array([0.3, -0.2, 0.1, 0.5]), block)
    terms = [(concrete.local_constraint, np.full((4, 1), 0.7))]
    whole = hessians(at, np.full(4, 0.25), terms, together=False)
    diagonals = hessian_diagonals(at, np.full(4, 0.25), terms)
    np.testing.assert_allclose(diagonals, np.einsum("ndd->nd", whole), rtol=1e-12)


def test_the_papers_settings_are_those_of_its_section_5_1():
    method = printed()
    assert (method.beta, method.rho, method.s_bar, method.tol) == (300.0, 0.01, 1e-3, 1e-3)
    assert (method.scaled, method.restart, method.memory) == (False, True, 0)


@dataclass(frozen=True)
class Larger:
    """A constraint on rows times a factor."""

    stated: object
    factor: float

    def at(self, problem, data):
        one = self.stated.at(problem, data)
        return replace(
            one, coefficients=one.coefficients * self.factor, level=one.level * self.factor
        )


@pytest.mark.parametrize("base", [2.0, 10.0])
@pytest.mark.parametrize("kind", ["local", "intercept, l2, size", "coupled", "server"])
def test_a_run_does_not_depend_on_the_units_of_columns_and_constraints(kind, base):
    """With factors that are powers of two even the roundings are the same."""
    fed = federation()
    columns, limits, most = base ** np.array([-6.0, 1.0, 4.0, -6.0]), base**9, base**-5
    server = fed.server.rows(0)
    moved = bf.Federation(
        fed.clients,
        [X * columns for X, _ in map(fed.rows, range(4))],
        [y for _, y in map(fed.rows, range(4))],
        server=(server[0] * columns, server[1]),
    )
    problem = replace(KINDS[kind], regulariser=bf.Zero())
    own, whole = problem.local_constraint, problem.constraint
    if isinstance(whole, bf.Coupled):
        whole = replace(whole, constraint=Larger(whole.constraint, most))
    elif whole is not None:
        whole = Larger(whole, most)
    own = own if own is None else Larger(own, limits)
    larger = replace(problem, local_constraint=own, constraint=whole)
    runs = []
    for stated, rows in ((problem, fed), (larger, moved)):
        concrete, data = stated.at(rows)
        method = configure(bf.ProximalAL(), concrete, data, None, None, 300, None)
        runs.append(InProcess().run(method, data))
        assert runs[-1].outcome.stop is Stop.OPTIMAL, runs[-1].outcome.text
    assert [len(run.history) for run in runs] == [len(runs[0].history)] * 2
    rounding = 0.0 if base == 2.0 else 1e-8
    values = [run.history[-1]["objective"] for run in runs]
    np.testing.assert_allclose(values[1], values[0], rtol=rounding)
    np.testing.assert_allclose(runs[1].state.w, runs[0].state.w, rtol=rounding)  # in units


def test_a_limit_is_held_in_its_own_units():
    larger = replace(KINDS["local"], local_constraint=Larger(KINDS["local"].local_constraint, 1e9))
    one, other = (
        bf.solve(problem, federation(), algorithm=bf.ProximalAL())
        for problem in (KINDS["local"], larger)
    )
    assert other.outcome.stop is Stop.OPTIMAL, other.outcome.text
    assert other.certificate.value == pytest.approx(one.certificate.value, rel=1e-6)


def test_permuting_clients_permutes_the_results():
    problem, order = KINDS["local"], [2, 0, 3, 1]
    one, other = (
        bf.solve(problem, federation(order=o), algorithm=bf.ProximalAL(tol=1e-5))
        for o in (None, order)
    )
    np.testing.assert_allclose(other.w, one.w, atol=1e-5)
    np.testing.assert_allclose(other.duals.local, one.duals.local[order], atol=1e-5)


@pytest.mark.parametrize(
    "problem", [KINDS["coupled and local"], KINDS["server"]], ids=["coupled", "server"]
)
def test_engine_modes_end_alike(problem):
    found = [
        bf.solve(problem, federation(), algorithm=bf.ProximalAL(tol=1e-5), engine=InProcess(m))
        for m in ("each", "blocks")
    ]
    through = bf.solve(
        problem, federation(), algorithm=bf.ProximalAL(tol=1e-5), engine=InProcess("bytes")
    )
    np.testing.assert_array_equal(through.w, found[0].w)
    np.testing.assert_allclose(found[1].w, found[0].w, atol=1e-5)


def test_arguments_are_not_mutated():
    start, fed = np.full(4, 0.2), federation()
    digests = fed.digests()
    bf.solve(KINDS["local"], fed, algorithm=bf.ProximalAL(), start=start, max_rounds=30)
    assert start.tolist() == [0.2] * 4
    assert fed.digests() == digests


def test_a_client_without_rows_of_the_class_has_no_constraint():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((25, 3)) for _ in range(2)]
    y = [np.where(X[0] @ np.ones(3) + rng.standard_normal(25) > 0, 1.0, -1.0), np.full(25, -1.0)]
    fed = bf.Federation(["a", "b"], X, y, classes=(-1.0, 1.0))
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=MEAN0,
        regulariser=bf.L2(0.05),
        local_constraint=bf.NeymanPearson(1.0, 0.55),
    )
    solution = bf.solve(problem, fed, algorithm=bf.ProximalAL(tol=1e-6))
    assert solution.outcome.stop is Stop.OPTIMAL
    assert abs(solution.certificate.value - central(problem, fed)) <= 1e-6
    assert solution.duals.local[1, 0] == 0


def test_a_constraint_that_is_met_anyway_has_no_price():
    loose = replace(
        KINDS["local"], over_samples=bf.Mean(), local_constraint=bf.NeymanPearson(1.0, 50.0)
    )
    solution = bf.solve(loose, federation(), algorithm=bf.ProximalAL())
    free = bf.solve(replace(loose, local_constraint=None), federation(), algorithm=bf.ProximalAL())
    assert solution.duals.local.tolist() == [[0.0]] * 4
    np.testing.assert_allclose(solution.w, free.w, atol=1e-4)


# ---- outcomes


def test_contradictory_constraints_are_proved_infeasible_and_named():
    both = (bf.NeymanPearson(1.0, 0.02), bf.NeymanPearson(-1.0, 0.02))
    solution = bf.solve(
        bf.Problem(bf.Logistic(), PLAIN, local_constraint=both),
        federation(),
        algorithm=bf.ProximalAL(),
    )
    assert solution.outcome.stop is Stop.INFEASIBLE, solution.outcome.text
    assert solution.certificate.infeasible > 0
    assert "site" in solution.outcome.text


def test_contradictory_equalities_end_early_with_multipliers_that_prove_it():
    A, b, C, e = quadratics(6, 3, 1)
    C[1], e[1] = C[2].copy(), e[2] + 1.0
    concrete, data = LCQP.at(bf.Federation.from_quadratics(A, b, C, e))
    run = InProcess().run(configure(bf.ProximalAL(), concrete, data, None, None, None, None), data)
    assert run.outcome.stop is Stop.INFEASIBLE
    method = configure(bf.ProximalAL(), concrete, data)
    y = method.answer(run.state, run.concluded).multipliers
    push = sum(y.local[i] @ C[i + 1] for i in range(3)) + y.server @ C[0]
    assert np.abs(push).max() <= 1e-3 * np.abs(y.local).max()


@pytest.mark.parametrize("make", [bf.ProximalAL, printed], ids=["default", "as printed"])
def test_a_cap_is_never_success_and_says_what_is_missing(make):
    solution = bf.solve(KINDS["local"], federation(), algorithm=make(), max_rounds=6)
    assert (solution.outcome.stop, solution.rounds) == (Stop.MAX_ROUNDS, 6)
    assert "Recomputed: violation" in solution.outcome.text
    assert "raise max_rounds" in solution.outcome.text


def test_as_printed_stops_only_where_the_inner_tolerance_was_achieved():
    fed, problem = federation(), KINDS["server"]
    concrete, data = problem.at(fed)
    it = configure(printed(beta=10.0, rho=0.1), concrete, data, None, None, 4000, None)
    run = InProcess().run(it, data)
    assert run.outcome.stop is Stop.OPTIMAL
    inner = [row for row in run.history if row["outer"] > 0]
    assert run.state.residual <= run.state.tau <= it.tol
    taus = sorted({row["tau"] for row in inner if np.isfinite(row["tau"])}, reverse=True)
    np.testing.assert_allclose(taus, [1e-3 / (k + 1) ** 2 for k in range(len(taus))])  # line 2


def test_loss_gaps_end_at_a_kkt_point_without_a_bound():
    problem, fed = (
        bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.LossGap("g", 0.02)),
        federation(),
    )
    solution = bf.solve(problem, fed, algorithm=bf.ProximalAL(tol=1e-4))
    assert solution.outcome.stop is Stop.UNPROVEN
    assert "not convex" in solution.outcome.text
    assert solution.certificate.feasibility <= 1e-4
    assert abs(solution.certificate.value - central(problem, fed)) <= 1e-3


def test_the_default_needs_a_third_of_the_rounds_of_the_printed_settings():
    problem, fed = KINDS["intercept, l2, size"], federation()
    best = central(problem, fed)
    concrete, data = problem.at(fed)

    def rounds(it):
        run = InProcess().run(configure(it, concrete, data, None, None, 600, None), data)
        far = [
            r["round"]
            for r in run.history
            if not (abs(r["objective"] - best) <= 1e-3 * best and r["violation"] <= 1e-3)
        ]
        return max(far) + 1

    assert 3 * rounds(bf.ProximalAL()) <= rounds(printed())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"beta": 0.0}, "beta must be a positive number"),
        ({"rho": -1.0}, "rho must be a positive number"),
        ({"s_bar": float("nan")}, "s_bar must be"),
        ({"q": 1.0}, r"q must be in \(0, 1\)"),
        ({"memory": -1}, "memory must be a whole number"),
        ({"memory": 1.5}, "memory must be a whole number"),
        ({"tol": -1.0}, "tol, atol must be >= 0"),
        ({"max_rounds": 0}, "max_rounds >= 1"),
        ({"start": np.array([np.nan])}, "finite"),
    ],
)
def test_bad_settings_raise(settings, said):
    with pytest.raises(ValueError, match=said):
        bf.ProximalAL(**settings)


def test_losses_that_are_not_smooth_are_refused():
    with pytest.raises(ValueError, match="ProximalAL needs a smooth loss"):
        bf.solve(replace(KINDS["local"], loss=bf.Hinge()), federation(), algorithm=bf.ProximalAL())


def test_without_a_problem_it_says_how_to_run():
    with pytest.raises(ValueError, match=r"bonafed.solve\(problem"):
        proximal_al.ProximalAL().server_start(3)


def test_a_group_lasso_is_that_of_a_conic_solver():
    """Any convex regulariser with a prox will do where the server has no constraint of its own."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(120, 4))
    y = (X[:, 0] - X[:, 1] + rng.normal(size=120) > 0).astype(int)
    fed = bf.Federation.from_arrays(X, y, np.repeat([0, 1, 2], 40))
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=bf.Mean(label=0),
        regulariser=bf.GroupL2(0.02, (0, 0, 1, 1)),
        local_constraint=bf.NeymanPearson(1, 0.6),
    )
    w = cp.Variable(4)
    rows = [(x[t == 0], x[t == 1]) for x, t in map(fed.rows, range(3))]
    losses = sum(cp.sum(cp.logistic(zero @ w)) / len(zero) for zero, _ in rows) / 3
    penalty = 0.02 * np.sqrt(2) * (cp.norm(w[:2]) + cp.norm(w[2:]))
    limits = [cp.sum(cp.logistic(-(one @ w))) / len(one) <= 0.6 for _, one in rows]
    program = cp.Problem(cp.Minimize(losses + penalty), limits)
    program.solve(solver="CLARABEL")
    solution = bf.solve(problem, fed, algorithm=bf.ProximalAL(), tol=1e-6)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    np.testing.assert_allclose(solution.certificate.value, program.value, rtol=1e-5)
    np.testing.assert_allclose(solution.w, w.value, atol=1e-3)
    assert -1e-7 <= solution.certificate.relative_gap <= 1e-5
    with pytest.raises(ValueError, match=r"Zero, L1, L2, ElasticNet and Bounds.*use Bundle"):
        bf.solve(replace(problem, constraint=bf.Sign({"x0": 1})), fed, algorithm=bf.ProximalAL())
