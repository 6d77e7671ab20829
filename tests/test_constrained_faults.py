"""What a hostile first user found: each fault once, so that it stays mended."""

from dataclasses import replace

import numpy as np
import pytest

import bonafed as bf

RNG = np.random.default_rng(1)
X = RNG.normal(size=(120, 3))
Y = (X @ [1, -1, 0.5] + RNG.normal(size=120) > 0).astype(int)
GROUP = RNG.choice(["a", "b", "c"], 120)
SEX = RNG.choice(["f", "m"], 120)


def federation(y=Y, **more):
    return bf.Federation.from_arrays(X, y, GROUP, columns={"sex": SEX}, **more)


def problem(**more):
    return bf.Problem(**{"loss": bf.Logistic(), "predictor": bf.Linear(fit_intercept=True)} | more)


@pytest.mark.parametrize(
    "slots",
    [
        {"local_constraint": bf.DemographicParity("sex", 0.1)},
        {
            "constraint": bf.Coupled(bf.DemographicParity("sex", 0.05)),
            "regulariser": bf.Bounds(-3, 3),
        },
    ],
    ids=str,
)
def test_far_models_prove_no_more_than_the_optimum(slots):
    """Saturated rows make the steps that balance gradients as long as the model is far."""
    stated, fed = problem(**slots), federation()
    solution = bf.solve(stated, fed)
    for b in (-300, -40, 20, 32, 35, 50, 290):
        bound = bf.certify(stated, fed, np.array([0.0, 0, 0, b]), solution.duals).bound
        assert bound is None or bound <= solution.certificate.value * (1 + 1e-9)


def test_a_coupled_mean_is_over_the_clients_that_have_it():
    y = np.where(GROUP == "c", 0, Y)
    stated = problem(
        regulariser=bf.L2(0.1), constraint=bf.Coupled(bf.NeymanPearson(1, 0.5), prior="uniform")
    )
    solution = bf.solve(stated, federation(y))
    (row,) = solution.constraints
    assert row["limit"] == pytest.approx(0.5)
    losses = np.log1p(np.exp(-(X @ solution.w[:3] + solution.w[3])))
    own = [losses[(name == GROUP) & (y == 1)].mean() for name in "ab"]
    assert row["measured"] == pytest.approx(np.mean(own), rel=1e-9)
    with pytest.raises(ValueError, match="no client with a weight has rows"):
        problem(constraint=bf.Coupled(bf.NeymanPearson(1, 0.5), prior=[0.0, 0.0, 1.0])).at(
            federation(np.where(federation().clients[2] == GROUP, 0, Y))
        )


def test_a_constraint_on_rows_the_server_does_not_have_is_refused():
    held = federation()
    fed = bf.Federation(
        held.clients,
        held.X,
        held.y,
        classes=held.classes,
        columns=held.columns,
        server=(X[Y == 0], Y[Y == 0]),
    )
    with pytest.raises(ValueError, match="the server has no rows for the mean loss of class 1"):
        bf.solve(problem(constraint=bf.NeymanPearson(1, 0.5)), fed)


def unit_ball(w, rows, y):
    return np.array([w @ w - 1.0]), 2 * w[None]


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("strength", [0.0, 1e-4, 0.02])
def test_own_convex_functions_without_hessian_have_a_bound_as_declared(coupled, strength):
    def slots(own):
        on = {"constraint": bf.Coupled(own, prior="uniform")}
        return {"regulariser": bf.L2(strength)} | (on if coupled else {"local_constraint": own})

    def bend(w, rows, y, multipliers):
        return 2 * multipliers[0] * np.eye(len(w))

    known = bf.Constraint(unit_ball, convex=True, hessian=bend)
    fed, stated = federation(), problem(**slots(bf.Constraint(unit_ball, convex=True)))
    optimum = bf.solve(problem(**slots(known)), fed, algorithm=bf.InteriorPoint())
    assert optimum.certificate.relative_gap < 1e-8
    value, w, multipliers = optimum.certificate.value, optimum.w, optimum.duals
    proof = bf.certify(stated, fed, w, multipliers)
    assert value * (1 - 1e-8) <= proof.bound <= value * (1 + 1e-9)
    assert proof.declared
    for far in (1e-6, 1e-3, 1e-2):  # the gap of a ridge is that of stationarity and slack
        off = bf.certify(stated, fed, (1 - far) * w, multipliers)
        assert off.bound <= value * (1 + 1e-9)
        length, slack = off.stationarity * np.sqrt(len(w)), 3 * off.complementarity
        if strength > 0:
            assert off.gap <= length**2 / (2 * strength) + slack + 1e-9


def test_a_run_on_own_functions_without_hessian_states_a_bound_as_declared():
    own, h = bf.Constraint(unit_ball, convex=True), bf.L2(0.02)
    solution = bf.solve(problem(local_constraint=own, regulariser=h), federation(), max_rounds=60)
    assert solution.certificate.bound is not None
    assert "as declared" in solution.outcome.text
    assert solution.w @ solution.w == pytest.approx(1.0, abs=0.1)


def test_own_functions_can_be_checkpointed(tmp_path):
    file = tmp_path / "run.bft"
    stated, fed = problem(local_constraint=bf.Constraint(unit_ball, convex=True)), federation()
    first = bf.solve(stated, fed, engine=bf.InProcess(checkpoint=file), max_rounds=20)
    again = bf.solve(stated, fed, engine=bf.InProcess(checkpoint=file), max_rounds=20, resume=True)
    np.testing.assert_array_equal(first.w, again.w)


def test_descriptions_of_text_do_not_depend_on_the_process():
    from bonafed.engines.checkpoint import describe

    one, other = (np.array(["ill", "well"], dtype=object) for _ in range(2))
    assert describe(one) == describe(other) != describe(np.array(["ill", "ill"], dtype=object))


def test_rounds_are_whole():
    with pytest.raises(ValueError, match="whole number"):
        bf.solve(problem(local_constraint=bf.NeymanPearson(1, 0.5)), federation(), max_rounds=1.5)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda p, f: bf.solve(f, p), r"problem must be .*, got Federation"),
        (lambda p, f: bf.solve(p, f, tol="a"), "tol must be a number or None, got 'a'"),
        (
            lambda p, f: bf.solve(p, f, max_rounds="3"),
            "max_rounds must be a whole number .* got '3'",
        ),
        (lambda p, f: bf.ProximalAL(beta="3"), "beta must be a positive number, got '3'"),
        (
            lambda p, f: bf.InteriorPoint(tol=True),
            "tol, atol must be >= 0 and max_rounds >= 1, got True",
        ),
        (
            lambda p, f: bf.solve(problem(local_constraint=bf.NeymanPearson(1, "0.5")), f),
            "mapping by name, got '0.5'",
        ),
        (
            lambda p, f: bf.solve(problem(local_constraint=bf.NeymanPearson(1, True)), f),
            "mapping by name, got True",
        ),
        (
            lambda p, f: bf.solve(problem(local_constraint=bf.Monotone(None)), f),
            "features must be a list, each a text, got None",
        ),
        (
            lambda p, f: bf.solve(problem(local_constraint=bf.CostLimit({"x0": "a"}, 1)), f),
            "finite costs by feature",
        ),
    ],
)
def test_wrong_types_are_named(run, text):
    with pytest.raises((TypeError, ValueError), match=text):
        run(problem(local_constraint=bf.NeymanPearson(1, 0.5)), federation())


@pytest.mark.parametrize("stop", ["optimal", "max_rounds"])
def test_a_value_below_the_bound_is_no_optimum(stop):
    """A model that breaks a constraint by less than its tolerance, of an objective of that size."""
    from bonafed.rounds import Stop
    from bonafed.solution.outcome import Ended
    from bonafed.solution.outcome import stated as outcome_of

    stated = problem(local_constraint=bf.NeymanPearson(1, 0.5))
    solution = bf.solve(stated, federation())
    concrete, data = stated.at(federation())
    odd = replace(
        solution.certificate, value=0.0, bound=5e-8, gap=-5e-8, relative_gap=-1.0, feasibility=5e-8
    )
    ended = Ended(Stop(stop), 9, bf.InteriorPoint())
    outcome = outcome_of(ended, concrete, odd, data.clients, solution.duals, solution.constraints)
    assert outcome.stop is (Stop.UNPROVEN if stop == "optimal" else Stop.MAX_ROUNDS)
    assert "5.0e-08 below the bound" in outcome.text
    assert "breaks constraints by up to 5.0e-08" in outcome.text
    assert "within tol" not in outcome.text
