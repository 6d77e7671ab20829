"""AsyncDRO: its step by hand, one default for every set and delay, what stops it."""

from __future__ import annotations

import math
from dataclasses import replace

import client_sets
import numpy as np
import pytest
from problems import PLAIN
from toy import federation

import bonafed as bf
from bonafed.algorithms.federated.async_dro import AsyncDRO, Meet, Met, Visit
from bonafed.algorithms.federated.linearisation import Linearised
from bonafed.engines.delays import First
from bonafed.engines.inprocess import VirtualClock
from bonafed.problem.risks.weight_sets import Simplex
from bonafed.rounds import Round, Stop, rows
from bonafed.solution.plan import configure

FED = federation((20, 35, 12, 28, 9), 4)
PROBLEM = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))
SINGLE = float(np.finfo(np.float32).eps)  # of what the server keeps in single precision
SLOW = {FED.clients[1]: 10.0}
SETS = {
    "mean": bf.Mean(),
    "simplex": bf.Simplex(),
    "lp-ball": bf.LpBall(0.3, 2),
    "superquantile": bf.Superquantile(0.4),
    "box": bf.Box(np.zeros(5), np.full(5, 0.4)),
    "CD-norm": bf.CDNorm(2.0, [0.1, 0.2, 0.3, 0.1, 0.2], "uniform"),
    "ellipsoid": bf.Ellipsoid(np.full(5, 0.2), 0.1, "uniform"),
    "KL": bf.KLBall(0.3, "uniform"),
    "chi-square": bf.ChiSquareBall(0.5, "uniform"),
    "total variation": bf.TotalVariationBall(0.3, "uniform"),
    "Wasserstein": bf.WassersteinOverClients(1.0, "index", "uniform"),
    "polyhedron": bf.Polyhedron(np.eye(5)[:2], [0.3, 0.5]),
    "ranks": bf.Extremile(2.0),
}


def running(**settings):
    concrete, data = PROBLEM.at(FED)
    return configure(AsyncDRO(**settings), concrete, data, None, None, None, None), data


def lines(it, data, w):
    """(b, G) of all clients at w (D,) or (N, D), from the rows."""
    w = np.broadcast_to(w, (data.n_clients, 4))
    cuts = [it.problem.cut(w[i], data.block(i)) for i in range(data.n_clients)]
    G = np.concatenate([cut.gradient for cut in cuts])
    return np.array([cut.base[0] for cut in cuts]) - (G * w).sum(1), G


def start(it, data):
    state, ask = it.server_start(data.n_clients)
    parts = [
        it.on_client[Meet](None, replace(ask.message, prior=np.full(1, 0.2)), data.block(i), None)
        for i in range(5)
    ]
    up = [upload for _, upload in parts]
    names = list(Met.__dataclass_fields__)
    each = {name: np.concatenate([getattr(u, name) for u in up]) for name in names}
    for name in ("plus", "minus", "square"):
        each[name] = each[name].sum(0)
    for name in ("features", "reach", "target"):
        each[name] = each[name].max(0)
    assert all(memory is None for memory, _ in parts)
    return each["curvature"], *it.begin(state, range(5), Met(**each))


def test_steps_are_those_of_the_formula_by_hand():
    """Two answers of one client, then one of another: p, c, w, tau and 1 / eta from the module's
    formulas.
    """
    it, data = running()
    curved, state, ask = start(it, data)
    asks = [ask.message] * 5
    units = np.sqrt(np.mean([data.block(i).squares()[0] for i in range(5)], 0))
    b, G = lines(it, data, np.zeros(4))
    G = G / units
    p, c, w, last, gap = np.full(5, 0.2), np.full(5, 0.2), np.zeros(4), np.zeros(5), np.zeros(5)
    at, turn, asked = np.zeros((5, 4)), 0, np.zeros((5, 4))

    far = ((G - G.T @ p) ** 2).sum(1)

    def step(p, c, w, most, cycles):
        age = np.maximum(gap, turn - last)
        eta = min(1 / (p * curved * (1 + age)).sum(), most)
        mu = eta * (far.max() + far[p > 0].sum())
        short = curved * ((w - at) ** 2).sum(1) / 2
        claimed = np.maximum(p * curved * (1 + age) * eta, 3e-3)
        share = short / (short + 3 * 0.5 ** (max(0, cycles - 40) / 3) * mu / claimed)
        f = b + G @ w + share * short
        new = Simplex().project(c + f / mu)
        gradient = G.T @ new + (new * share * curved) @ (w - at)
        w = (w - eta * gradient) / (1 + eta * 1e-2 / units**2)
        return (
            new,
            c + (new - c) / (1 + p @ age),
            w,
            G.T @ new,
            eta * 2**0.2,
            cycles + 1 / (1 + p @ age),
        )

    p, c, w, mean, most, cycles = step(p, c, w, np.inf, 0.0)
    asked[:] = w
    for i in (3, 3, 0):
        turn += 1
        np.testing.assert_allclose(state.w, w / units, rtol=SINGLE)
        asks[i] = rows(asks[i], [i])
        memory, up = it.on_client[Visit](None, asks[i], data.block(i), None)
        assert memory is None
        bi, gi = (part[i] for part in lines(it, data, asked[i] / units))
        gi = gi / units
        np.testing.assert_allclose(up.risk - up.gradient @ (asked[i] / units), [bi], rtol=SINGLE)
        curved[i] = np.linalg.norm(gi - G[i]) / np.linalg.norm(asked[i] - at[i])
        far[i] = ((gi - mean) ** 2).sum()
        b[i], G[i], at[i], gap[i], last[i] = bi, gi, asked[i], turn - last[i] - 1, turn
        state, ask = it.renew(state, (i,), up)
        np.testing.assert_allclose(state.lines.curvature, curved, rtol=1e-6)
        p, c, w, mean, most, cycles = step(p, c, w, most, cycles)
        asked[i] = w
        asks[i] = ask.message
        assert ask.to == (i,)
        assert ask.wait_for == 1
    np.testing.assert_allclose(state.w, w / units, rtol=SINGLE)
    np.testing.assert_allclose(state.weights, p, atol=SINGLE)
    np.testing.assert_allclose(state.centre, c, atol=SINGLE)


def test_the_first_curvature_is_that_along_the_gradient():
    it, data = running()
    _, up = it.on_client[Meet](None, it.server_start(5)[1].message, data.block(0), None)
    block, g = data.block(0), up.gradient[0]
    units = np.sqrt(block.squares()[0])
    X = block.X[0] / units
    H = X.T @ (
        X * (block.share[0] * it.problem.loss.curvature(np.zeros((1, 20)), block.y)[0])[:, None]
    )
    g = g / units
    assert up.curvature[0] == pytest.approx(np.linalg.norm(H @ g) / np.linalg.norm(g), rel=1e-2)


@pytest.mark.parametrize("risk", SETS.values(), ids=SETS.keys())
@pytest.mark.parametrize(
    "engine", [bf.InProcess(), VirtualClock(stragglers=SLOW)], ids=["together", "straggler"]
)
def test_one_default_proves_a_thousandth_for_every_set(risk, engine):
    problem = replace(PROBLEM, over_clients=risk)
    found = bf.solve(problem, FED, algorithm=AsyncDRO(tol=1e-3), engine=engine)
    assert found.outcome.stop is Stop.OPTIMAL, found.outcome.text
    assert found.certificate.relative_gap <= 1e-3 * (1 + 1e-9)
    assert found.rounds < 4000
    best = bf.solve(problem, FED, tol=1e-8).certificate
    assert best.value - 1e-7 <= found.certificate.value <= best.value * (1 + 1e-3) + 1e-7


@pytest.mark.parametrize("first", [1, 3])
def test_small_tolerances_are_reached_too(first):
    engine = VirtualClock(stragglers=SLOW, wait=First(first))
    found = bf.solve(PROBLEM, FED, algorithm=AsyncDRO(tol=1e-7), engine=engine)
    best = bf.solve(PROBLEM, FED, tol=1e-9)
    assert found.certificate.relative_gap <= 1e-7
    np.testing.assert_allclose(found.w, best.w, atol=2e-3)
    assert found.certificate.value - best.certificate.value <= 1e-7


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("factor", [10.0, 50.0])
def test_the_slowest_of_few_clients_may_weigh_the_most(factor, seed):
    """Then weights and model swing with every answer of that client if its line is believed far
    from its model. How often depends on the drawn delays, by a factor of four.
    """
    fed = client_sets.federation(4, seed)
    for name, over_clients in (("simplex", Simplex()), ("superquantile", bf.Superquantile(0.3))):
        runs = [client_sets.late(over_clients, fed, factor, seed + 10 * k) for k in range(3)]
        assert max(map(client_sets.gap, runs)) <= 1e-3, name
        assert np.median([found.rounds for found in runs]) < 8000, name


def test_every_set_is_solved_at_one_setting():
    """By both methods as they come; stragglers of 10 and 50 times are the benchmark's."""
    fed = client_sets.federation(4)
    for name, over_clients in client_sets.every_set(4):
        factor = 10.0 if name in ("simplex", "KL ball") else 3.0
        exact = client_sets.exact(over_clients, fed)
        late = client_sets.late(over_clients, fed, factor)
        best = exact.certificate.value
        assert exact.certificate.gap <= 1e-8, name
        assert client_sets.gap(late) <= 1e-3, name
        assert late.outcome.stop is bf.Stop.OPTIMAL, name
        assert best - 1e-8 <= late.certificate.value <= best * (1 + 1.1e-3), name


def test_models_are_kept_once_and_only_while_somebody_needs_them():
    it, data = running(tol=0.0)
    seen = []
    clock = VirtualClock(stragglers=SLOW, wait=First(2))
    clock.run(
        it,
        data,
        max_rounds=300,
        watch=[lambda row, s: seen.append((len(s.lines.models), s.lines.users.sum()))],
    )
    assert max(rows for rows, _ in seen) <= 16  # 2 N + 1 at most, doubled from 8
    assert {users for _, users in seen} == {10}


def test_what_lines_say_is_carried_from_model_to_model():
    it, data = running(tol=0.0)
    far = []

    def see(row, state):
        lines = state.lines
        said = lines.level + lines.gradients @ (state.units * state.w - lines.step)
        far.append(np.abs(lines.losses - said).max())

    VirtualClock(stragglers=SLOW).run(it, data, max_rounds=400, watch=[see])
    assert max(far) <= 1e-6
    assert max(far[-20:]) <= 1e-12  # the error vanishes with the steps


def test_a_set_that_only_knows_its_worst_weights():
    class Only:
        """The simplex, by its maximiser."""

        def at(self, sizes, names=None):
            return self

        def value(self, losses):
            return float(np.max(losses))

        def weights(self, losses):
            return (np.arange(len(losses)) == np.argmax(losses)).astype(float)

        def worst(self, losses):
            return Simplex().worst(losses)

    concrete, data = replace(PROBLEM, over_clients=Only()).at(FED)
    it = configure(AsyncDRO(tol=0.0), concrete, data, None, None, 4000, None)
    run = VirtualClock(stragglers=SLOW).run(it, data)
    best = bf.solve(PROBLEM, FED, tol=1e-8).certificate.value
    assert best <= concrete.objective(run.state.w, FED) <= 1.02 * best


def test_many_active_clients_do_not_make_the_weights_swing():
    """At the optimum, w = 0, clients pull in all directions and no weighting is better than
    another.
    """
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((12, 3)) + 1.0 for _ in range(60)]
    y = [np.where(x @ rng.standard_normal(3) > 0, 1.0, -1.0) for x in X]
    y[0], y[1] = np.tile([1.0, -1.0], 6), np.tile([-1.0, 1.0], 6)
    fed = bf.Federation([f"c{i}" for i in range(60)], X, y)
    found = bf.solve(
        PROBLEM,
        fed,
        algorithm=AsyncDRO(tol=1e-4, max_rounds=6000),
        engine=VirtualClock(keep_rows=50),
    )
    assert found.outcome.stop is Stop.OPTIMAL, found.outcome.text


def test_units_do_not_matter():
    """Features 1000 times as large: coefficients a thousandth, the same risks, weights and number
    of steps.
    """
    scaled = bf.Federation(
        FED.clients, [1e3 * FED.rows(i)[0] for i in range(5)], [FED.rows(i)[1] for i in range(5)]
    )
    one = bf.solve(PROBLEM, FED, algorithm=AsyncDRO(), engine=VirtualClock())
    other = bf.solve(
        replace(PROBLEM, regulariser=bf.L2(1e4)),
        scaled,
        algorithm=AsyncDRO(),
        engine=VirtualClock(),
    )
    assert other.rounds == one.rounds
    np.testing.assert_allclose(1e3 * other.w, one.w, rtol=1e-6)


def test_units_of_single_columns_do_not_matter():
    """Also where they lie far apart: the steps are those in units of the columns' sizes."""
    factor = np.array([1e3, 1.0, 1e-3, 1e4])[: FED.rows(0)[0].shape[1]]
    scaled = bf.Federation(
        FED.clients, [FED.rows(i)[0] * factor for i in range(5)], [FED.rows(i)[1] for i in range(5)]
    )
    flat = replace(PROBLEM, regulariser=bf.Zero())
    slow = VirtualClock(stragglers=SLOW)
    one, other = (
        bf.solve(flat, fed, algorithm=AsyncDRO(max_rounds=2000), engine=slow)
        for fed in (FED, scaled)
    )
    assert other.rounds == one.rounds
    np.testing.assert_allclose(factor * other.w, one.w, rtol=1e-6)
    # a ball couples the coefficients: it is one of the scaled ones, and steps have the data's units
    ball = replace(PROBLEM, regulariser=bf.Ball(0.5))
    found = bf.solve(ball, FED, algorithm=AsyncDRO(max_rounds=20_000), engine=slow)
    assert found.outcome.stop is Stop.OPTIMAL, found.outcome.text


@pytest.mark.parametrize("scale", [1e-40, 1e-23, 1e30, 1e60])
def test_units_far_from_one_change_no_step(scale):
    """Of the features, or of targets and regulariser: what is kept in single precision is counted
    in other units.
    """
    Xs, ys = zip(*[FED.rows(i) for i in range(5)], strict=True)
    engine, flat = VirtualClock(stragglers=SLOW), replace(PROBLEM, regulariser=bf.Zero())
    runs = [
        bf.solve(
            flat,
            bf.Federation(FED.clients, [s * X for X in Xs], list(ys)),
            algorithm=AsyncDRO(),
            engine=engine,
        )
        for s in (1.0, scale)
    ]
    assert runs[1].rounds == runs[0].rounds
    np.testing.assert_allclose(scale * runs[1].w, runs[0].w, rtol=1e-6, atol=1e-8)
    real = bf.Problem(bf.Squared(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))
    targets = [X[:, 0] + np.sin(5 * X[:, 1]) for X in Xs]
    runs = [
        bf.solve(
            real,
            bf.Federation(FED.clients, list(Xs), [s * t for t in targets]),
            algorithm=AsyncDRO(),
            engine=engine,
        )
        for s in (1.0, scale)
    ]
    assert runs[1].rounds == runs[0].rounds
    np.testing.assert_allclose(runs[1].w / scale, runs[0].w, rtol=1e-6, atol=1e-8)


def test_the_model_stands_still_until_all_have_answered_at_it():
    it, data = running(tol=1e-2)
    seen = []
    run = VirtualClock(stragglers=SLOW).run(
        it, data, watch=[lambda row, s: seen.append((s.still, s.w.copy()))]
    )
    assert run.outcome.stop is Stop.OPTIMAL
    since = seen[-1][0]
    assert since >= 0
    still = [w for at, w in seen if at == since]
    assert len(still) >= 5
    assert all((w == still[0]).all() for w in still)
    b, G = lines(it, data, run.state.w)
    np.testing.assert_allclose(run.state.lines.gradients * run.state.units, G, rtol=1e-12)
    np.testing.assert_allclose(run.state.lines.level, b, rtol=1e-9)


def test_a_cap_is_no_proof_and_nothing_is_proven_without_curvature():
    it, data = running(tol=0.0, max_rounds=20)
    assert VirtualClock().run(it, data).outcome.stop is Stop.MAX_ROUNDS
    flat = bf.solve(
        replace(PROBLEM, regulariser=bf.Zero()),
        FED,
        algorithm=AsyncDRO(tol=1e-3),
        engine=VirtualClock(),
    )
    assert flat.outcome.stop in (Stop.UNPROVEN, Stop.OPTIMAL)
    best = bf.solve(replace(PROBLEM, regulariser=bf.L2(1e-9)), FED, tol=1e-6).certificate.value
    assert flat.certificate.value <= best * (1 + 1e-2)


def test_a_model_that_is_not_convex_is_stationary_at_the_end():
    problem = replace(PROBLEM, predictor=bf.MLP((3,)))
    found = bf.solve(
        problem, FED, algorithm=AsyncDRO(tol=1e-2), engine=VirtualClock(stragglers=SLOW)
    )
    first = problem.objective(problem.at(FED)[0].model_start(4), FED)
    assert found.outcome.stop is Stop.UNPROVEN
    assert found.certificate.bound is None
    assert found.certificate.value < 0.9 * first


@pytest.mark.parametrize("step", [0.0, -1.0, math.inf, math.nan])
def test_settings_out_of_range_are_refused(step):
    with pytest.raises(ValueError, match="step must be"):
        AsyncDRO(step=step)


def test_losses_with_kinks_are_refused_and_bad_steps_noticed():
    with pytest.raises(ValueError, match="needs a smooth loss"):
        bf.solve(replace(PROBLEM, loss=bf.Hinge()), FED, algorithm=AsyncDRO())
    it, data = running()
    _, state, _ = start(it, data)
    bad = Linearised(np.zeros(1), np.full((1, 4), np.inf))
    with pytest.raises(ArithmeticError, match="not finite"):
        it.renew(state, (0,), bad)


def test_the_outcome_of_the_first_message_needs_no_size_of_the_model():
    it, _ = running()
    _, ask = it.server_start(5)
    assert isinstance(ask, Round)
    assert ask.message.w is None


@pytest.mark.parametrize(
    "given", [{"tol": -1}, {"tol": "x"}, {"max_rounds": 0}, {"max_rounds": 2.5}, {"atol": math.nan}]
)
def test_stops_out_of_range_are_refused_whoever_states_them(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be"):
        bf.solve(PROBLEM, FED, algorithm=AsyncDRO(**given))


def test_a_client_that_never_answers_at_all_is_named():
    with pytest.raises(RuntimeError, match=f"crashed.*{FED.clients[2]}"):
        bf.solve(
            PROBLEM, FED, algorithm=AsyncDRO(), engine=VirtualClock(crashes={FED.clients[2]: 0.0})
        )


def test_a_client_who_crashed_is_named_when_the_model_is_to_be_judged():
    it, data = running(tol=0.5)
    run = VirtualClock(crashes={FED.clients[1]: 3.0}).run(it, data, max_rounds=600)
    assert run.state.still >= 0
    assert run.outcome.stop is Stop.STALLED
    assert FED.clients[1] in run.outcome.text


def test_nobody_answers_twice_at_a_model_that_is_judged():
    it, data = running(tol=0.5)
    run = VirtualClock(outages={FED.clients[1]: [(3.0, 1e9)]}).run(it, data, max_rounds=600)
    assert run.outcome.stop is Stop.OPTIMAL
    assert run.history[-1]["time"] > 1e9
    assert run.rounds < 100


def test_a_cap_ends_the_wait_for_the_others():
    it, data = running(tol=0.5)
    free = VirtualClock(stragglers={FED.clients[1]: 1e3}).run(it, data)
    # after the model stands still
    first = next(k for k, row in enumerate(free.history, 1) if row["time"] > 100)
    capped = VirtualClock(stragglers={FED.clients[1]: 1e3}).run(
        replace(it, max_rounds=first - 1), data
    )
    assert capped.outcome.stop is Stop.MAX_ROUNDS
    assert capped.rounds < free.rounds


def test_steps_do_not_leap_where_losses_saturate():
    """Two features of unlike size, hardly a regulariser: curvatures seen between two models all but
    vanish.
    """
    rng = np.random.default_rng(0)
    z = rng.normal(size=40)
    y, X = (
        np.where(z + 0.3 * rng.normal(size=40) > 0, 1.0, -1.0),
        np.stack([rng.normal(size=40), 1e-2 * z], 1),
    )
    fed = bf.Federation.from_arrays(X, y, np.repeat([f"c{i}" for i in range(4)], 10))
    problem = replace(PROBLEM, regulariser=bf.L2(1e-11))
    values = [
        bf.solve(problem, fed, algorithm=AsyncDRO(max_rounds=k)).certificate.value
        for k in (20, 500, 1500)
    ]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("far", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("clients", [1, 3])
def test_a_loss_that_is_linear_where_the_run_begins_has_a_step(far, clients):
    """Its curvature is measured as 0 there; ||g||^2 / (2 F) is no more than a right one."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((24, 2)) + 1.0
    y = far * (3.0 + X[:, 0]) + rng.standard_normal(24)
    fed = bf.Federation.from_arrays(X, y, np.arange(24) % clients)
    problem = bf.Problem(bf.Huber(0.7), regulariser=bf.L2(1e-3))
    solution = bf.solve(problem, fed, algorithm=AsyncDRO(), max_rounds=20000)
    assert solution.outcome.stop is Stop.OPTIMAL, solution.outcome.text


@pytest.mark.parametrize("h", [bf.L2(0.1), bf.L1(0.1), bf.Bounds(-1, 1), bf.SCAD(0.1)], ids=str)
@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Exponential(), bf.SmoothHinge()], ids=str)
def test_features_of_zeros_leave_the_model_as_it_is(loss, h):
    y = np.resize([-1.0, 1.0], 12)
    fed = bf.Federation.from_arrays(np.zeros((12, 2)), y, np.arange(12) // 6)
    problem = bf.Problem(loss, PLAIN, over_clients=bf.Simplex(), regulariser=h)
    solution = bf.solve(problem, fed, algorithm=AsyncDRO(), max_rounds=50)
    assert solution.outcome.stop in (Stop.OPTIMAL, Stop.UNPROVEN), solution.outcome.text
    assert solution.w.tolist() == [0.0, 0.0]
