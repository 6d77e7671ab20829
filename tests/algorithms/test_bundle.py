"""The bundle against a central conic solver on every valid kind of problem: value, bound, weights
and rounds.
"""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import limit_programs as programs
import numpy as np
import pytest
import scipy.linalg
from problems import CASES, PLAIN, Case, federation
from sklearn.datasets import load_breast_cancer

import bonafed as bf
from bonafed.algorithms.federated.bundle import server

# Clarabel's own tolerance for the reference (1e-9) is two orders below the 1e-6 that is asked of
# the bundle.
NEAR = 1e-6


def test_enough_cases():
    assert len(CASES) >= 60
    assert {c.problem.over_clients.p for c in CASES} == {1.0, 2.0, np.inf, 1.7}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_central_optimum(case: Case):
    solution = bf.solve(case.problem, case.fed)
    central = bf.CentralConic().solve(case.problem, case.fed)
    value = case.problem.objective(solution.w, case.fed)
    assert value == pytest.approx(central.value, rel=NEAR)
    assert solution.certificate.value == pytest.approx(value, rel=1e-12)
    assert solution.outcome.stop is (bf.Stop.OPTIMAL if case.bounded else bf.Stop.UNPROVEN)
    assert solution.rounds <= 45
    concrete, _ = case.problem.at(case.fed)
    assert concrete.over_clients.contains(solution.certificate.weights, 1e-9)
    if case.bounded:
        assert solution.certificate.relative_gap <= NEAR
        assert solution.certificate.bound <= central.value * (1 + 1e-8)
    else:
        assert solution.certificate.bound is None or solution.certificate.bound <= central.value * (
            1 + 1e-8
        )


@pytest.mark.parametrize(
    "loss",
    [bf.Hinge(), bf.Huber(0.5), bf.Logistic(), bf.Quantile(0.3)],
    ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize(("norm", "p"), [("l1", 2.0), ("l2", np.inf)])
def test_many_clients_need_few_rounds(loss, norm, p):
    fed = federation(7, 200, 13, 30, loss.targets)
    problem = bf.Problem(
        loss,
        PLAIN,
        over_samples=bf.WassersteinBall(0.05, 1.0, norm),
        over_clients=bf.LpBall(0.1, p),
    )
    solution = bf.solve(problem, fed)
    assert solution.certificate.relative_gap <= NEAR
    assert solution.rounds <= 15


@pytest.mark.parametrize("clients", [1, 3, 10])
@pytest.mark.parametrize(("loss", "most"), [(bf.Hinge(), 35), (bf.Logistic(), 25)])
def test_correlated_columns_need_few_rounds_however_few_the_clients(loss, most, clients):
    """One cut a client took 38 rounds of ten clients, and more than 300 of one."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    parts = [slice(k, None, clients) for k in range(clients)]
    fed = bf.Federation(
        [f"c{k}" for k in range(clients)], [X[k] for k in parts], [y[k] for k in parts]
    )
    problem = bf.Problem(
        loss, over_samples=bf.WassersteinBall(1e-3, 1.0), over_clients=bf.LpBall(0.1)
    )
    solution = bf.solve(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.relative_gap <= NEAR
    assert solution.rounds <= most
    # the proof is at most three rounds behind the model
    value = solution.certificate.value * (1 + NEAR)
    first = next(row["round"] for row in solution.history if row["objective"] <= value)
    assert solution.rounds - first <= 3


@pytest.mark.parametrize(
    "options", [{"variant": "level"}, {"metric": "identity"}, {"metric": "secant"}], ids=str
)
def test_variants_reach_the_same_optimum(options):
    fed = federation(3)
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(fit_intercept=True),
        over_samples=bf.WassersteinBall(0.05, 5.0),
        over_clients=bf.LpBall(0.1),
        regulariser=bf.L2(1e-2),
    )
    plain, other = bf.solve(problem, fed), bf.solve(problem, fed, algorithm=bf.Bundle(**options))
    assert other.outcome.stop is bf.Stop.OPTIMAL
    assert other.certificate.relative_gap <= NEAR
    assert other.certificate.value == pytest.approx(plain.certificate.value, rel=NEAR)
    if options == {"metric": "identity"}:  # of a smooth loss, Newton's steps need fewer rounds
        assert other.rounds > plain.rounds


def test_the_cap_is_never_called_optimal():
    solution = bf.solve(CASES[0].problem, CASES[0].fed, max_rounds=3)
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert "raise max_rounds" in solution.outcome.text


def test_the_cap_without_a_bound_says_what_is_left():
    solution = bf.solve(
        bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.LpBall(0.1)), federation(18), max_rounds=3
    )
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert "no bound is proved" in solution.outcome.text
    assert "nan" not in solution.outcome.text


def test_a_flat_start_is_solved():
    fed = bf.Federation(["a"], [np.ones((2, 2))], [np.array([1, -1])])
    solution = bf.solve(bf.Problem(bf.Logistic(), PLAIN), fed, algorithm=bf.Bundle())
    assert solution.outcome.stop is bf.Stop.UNPROVEN  # nothing bounds where an optimum lies
    assert solution.certificate.value == pytest.approx(np.log(2), rel=1e-12)
    # multipliers of the rows balance exactly: nothing has to
    by_rows = bf.solve(bf.Problem(bf.Logistic(), PLAIN), fed)
    assert by_rows.outcome.stop is bf.Stop.OPTIMAL
    assert 0 <= by_rows.certificate.gap <= 1e-14
    fit = bf.solve(
        bf.Problem(bf.EpsilonInsensitive(1.0), PLAIN),
        bf.Federation(["a"], [np.ones((1, 1))], [np.array([0.5])]),
    )
    assert fit.certificate.value == 0


def test_programs_that_cannot_be_solved_are_never_called_optimal():
    fed = federation(5, targets="sign")
    problem = bf.Problem(
        bf.Hinge(),
        bf.Linear(fit_intercept=True),
        bf.WassersteinBall(1e9),
        bf.LpBall(0.1),
        regulariser=bf.L2(1e-3),
    )
    known = min(
        problem.objective(np.array([*np.zeros(fed.n_features), b]), fed) for b in (-1.0, 0.0, 1.0)
    )
    solution = bf.solve(problem, fed)
    optimal = solution.outcome.stop is bf.Stop.OPTIMAL
    assert not optimal or solution.certificate.value <= known * (1 + NEAR)
    if solution.certificate.bound is None:
        assert "not solved" in " ".join(solution.notes)


def test_cuts_of_another_radius_are_a_warm_start():
    fed, ball = federation(5), bf.LpBall(0.1)
    near = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.05, 1.0), over_clients=ball
    )
    far = replace(near, over_samples=bf.WassersteinBall(0.06, 1.0), over_clients=bf.LpBall(0.15))
    first, cold = bf.solve(near, fed), bf.solve(far, fed)
    warm = bf.solve(far, fed, algorithm=bf.Bundle(known=first.state.cuts), start=first.w)
    assert warm.rounds < cold.rounds
    assert warm.certificate.relative_gap <= NEAR  # recomputed from the data, whatever the cuts were
    assert warm.certificate.value == pytest.approx(cold.certificate.value, rel=2 * NEAR)


@pytest.mark.parametrize("over_samples", [bf.WassersteinBall(0.0, 1.0), bf.Mean()])
def test_cuts_with_flipped_labels_keep_their_price_at_radius_zero(over_samples):
    """At a price of 0 they would lie above the mean loss: a wrong model would pass for the best."""
    fed, h = federation(5), bf.L2(1e-3)
    near = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall(0.1, 0.5),
        over_clients=bf.LpBall(0.1),
        regulariser=h,
    )
    plain = replace(near, over_samples=over_samples)
    first = bf.solve(near, fed)
    warm = bf.solve(plain, fed, algorithm=bf.Bundle(known=first.state.cuts), start=first.w)
    assert warm.certificate.relative_gap <= NEAR
    assert warm.certificate.value == pytest.approx(
        bf.solve(plain, fed).certificate.value, rel=2 * NEAR
    )


# -- special cases: the baselines are values of the same sentence
# ------------------------------------------------------


def _optimum(problem: bf.Problem, fed: bf.Federation) -> float:
    solution = bf.solve(problem, fed)
    assert solution.certificate.relative_gap <= NEAR
    return solution.certificate.value


BASE = bf.Problem(
    bf.Hinge(), bf.Linear(fit_intercept=True), over_clients=bf.LpBall(0.1), regulariser=bf.L2(1e-2)
)


def test_radius_zero_is_agnostic_learning():
    fed = federation(11)
    afl = _optimum(BASE, fed)
    assert _optimum(replace(BASE, over_samples=bf.WassersteinBall(0.0, 1.0)), fed) == pytest.approx(
        afl, rel=2e-6
    )


def test_radius_zero_and_the_whole_simplex_is_drfa():
    fed = federation(12)
    drfa = _optimum(replace(BASE, over_clients=bf.Simplex()), fed)
    whole = replace(
        BASE, over_samples=bf.WassersteinBall(0.0, 1.0), over_clients=bf.LpBall(2.0, np.inf)
    )
    assert _optimum(whole, fed) == pytest.approx(drfa, rel=2e-6)


def test_all_radii_zero_is_empirical_risk():
    fed = federation(13)
    erm = _optimum(replace(BASE, over_clients=bf.Mean("size")), fed)
    none = replace(
        BASE, over_samples=bf.WassersteinBall(0.0, 1.0), over_clients=bf.LpBall(0.0, 2, "size")
    )
    assert _optimum(none, fed) == pytest.approx(erm, rel=2e-6)


def test_one_ball_round_the_mixture_is_wafl():
    fed = federation(14)
    ball = bf.WassersteinBall(0.05, 1.0)
    mixed = _optimum(replace(BASE, over_samples=ball), fed.pooled("uniform"))
    central = bf.CentralConic().solve(replace(BASE, over_samples=ball), fed.pooled("uniform"))
    assert mixed == pytest.approx(central.value, rel=NEAR)
    # the mixture of one ball round every client lies inside the ball of the same radius round the
    # mixture
    every = _optimum(replace(BASE, over_samples=ball, over_clients=bf.Mean()), fed)
    assert every <= mixed * (1 + 2e-6)


def test_label_cost_infinity_is_the_limit():
    fed = federation(15)
    problem = replace(BASE, over_samples=bf.WassersteinBall(0.05, np.inf))
    far = replace(BASE, over_samples=bf.WassersteinBall(0.05, 1e6))
    assert _optimum(problem, fed) == pytest.approx(_optimum(far, fed), rel=2e-6)


def test_trivial_region_is_solved_and_said():
    fed = federation(16)
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.3, 0.5), over_clients=bf.LpBall(0.1)
    )
    solution = bf.solve(problem, fed)
    assert solution.certificate.value == pytest.approx(
        problem.objective(np.zeros(8), fed), rel=NEAR
    )
    assert solution.trivial is not None
    assert solution.trivial.parameter == "label_cost"


@pytest.mark.parametrize("start", [None, np.full(8, -3.0)], ids=["zeros", "far"])
def test_a_start_outside_the_bounds_is_moved_inside(start):
    fed = federation(17)
    problem = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall(0.05, 1.0),
        over_clients=bf.LpBall(0.1),
        regulariser=bf.Bounds(0.2, 1.0),
    )
    solution = bf.solve(problem, fed, start=start)
    assert solution.certificate.value == pytest.approx(
        bf.CentralConic().solve(problem, fed).value, rel=NEAR
    )
    assert solution.certificate.relative_gap <= NEAR
    assert solution.w.min() >= 0.2
    assert solution.w.max() <= 1.0


def test_separable_rows_reach_zero_and_say_so():
    X = np.array([[1.0], [2.0], [-1.0], [-2.0]])
    fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), ["a", "b", "a", "b"])
    solution = bf.solve(bf.Problem(bf.Hinge(), PLAIN), fed)
    assert solution.certificate.value == 0
    assert solution.certificate.bound == 0
    assert solution.outcome.stop is bf.Stop.OPTIMAL


@pytest.mark.parametrize("regulariser", [bf.Zero(), bf.L2(1e-3)], ids=["zero", "l2"])
def test_features_of_very_different_size(regulariser):
    """Distances are measured in units of the features: no scaling is asked of the user."""
    sizes = np.array([1e-4, 1e-2, 1.0, 1e2, 1e4, 1.0, 1.0, 1.0])
    plain = federation(19)
    rows = [plain.rows(i) for i in range(3)]
    mixed = bf.Federation(plain.clients, [X * sizes for X, _ in rows], [y for _, y in rows])
    ball = bf.WassersteinBall(0.05, np.inf)
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=ball, over_clients=bf.LpBall(0.1), regulariser=regulariser
    )
    solution = bf.solve(problem, mixed)
    central = bf.CentralConic().solve(problem, mixed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.relative_gap <= NEAR
    assert solution.certificate.value == pytest.approx(central.value, rel=2 * NEAR)


def test_without_a_bound_nothing_is_called_optimal():
    """Logistic without regulariser or radius: the cuts may promise nothing more although a far
    model is better.
    """
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3)) * np.array([1e5, 1.0, 1e-5])
    fed = bf.Federation.from_arrays(X, rng.integers(0, 2, 60), np.repeat(["a", "b"], 30))
    solution = bf.solve(bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex()), fed)
    assert solution.certificate.bound is None
    assert solution.outcome.stop is bf.Stop.UNPROVEN
    assert "add a regulariser" in solution.outcome.text


def test_cuts_of_other_data_are_found_out():
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.WassersteinBall(0.05, 1.0), over_clients=bf.LpBall(0.1)
    )
    foreign = bf.Bundle(known=bf.solve(problem, federation(5)).state.cuts)
    solution = bf.solve(problem, federation(6), algorithm=foreign)
    assert solution.outcome.stop is bf.Stop.UNPROVEN
    assert "Solve without them" in solution.outcome.text
    assert solution.certificate.relative_gap > NEAR
    for other in (federation(6, n_features=5), federation(6, n_clients=2)):
        with pytest.raises(ValueError, match="give cuts of a run on these data"):
            bf.solve(problem, other, algorithm=foreign)


@pytest.mark.parametrize(
    "h",
    [bf.GroupL2(0.05, (0, 0, 1)), bf.Ball(0.5), bf.Ball(0.5, np.array([0.2, -0.3, 0.1]))],
    ids=["groups", "ball", "ball elsewhere"],
)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic(), bf.Absolute()], ids=str)
@pytest.mark.parametrize("norm", [None, "l1", "l2", "linf"])
def test_lengths_of_groups_and_balls_are_cones_of_the_program(h, loss, norm):
    rows = programs.clients(loss)
    over = bf.Mean() if norm is None else bf.WassersteinBall(0.05, 0.5, norm)
    problem = bf.Problem(loss, over_samples=over, regulariser=h)
    fed = programs.federation(rows)
    solution = bf.solve(problem, fed, algorithm=bf.Bundle())
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.certificate.feasibility < 1e-15
    program = programs.Program(problem.at(fed)[0], rows)
    cost, w = sum(program.risk(i) for i in range(3)) / 3, program.x[:3]
    if isinstance(h, bf.Ball):
        program.wanted.append(cp.norm(w - h.centre * np.ones(3), 2) <= h.radius)
    else:
        cost += h.strength * (np.sqrt(2) * cp.norm(w[:2], 2) + cp.abs(w[2]))
    expected = programs.solved(cost, program.wanted)
    assert solution.certificate.value == pytest.approx(expected, rel=2e-6)
    assert solution.certificate.bound <= expected * (1 + 1e-8)


def test_no_further_decrease_is_said_only_where_a_program_could_show_one():
    """The last but one step promised so much that its program was solved coarsely."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(300) < 30, 1, -1)
    X = rng.normal(size=(300, 3)) + 0.6 * (y[:, None] > 0)
    fed = bf.Federation.from_arrays(X, y, np.arange(300) % 3)
    problem = bf.Problem(bf.Hinge(), bf.Linear(fit_intercept=True))
    with pytest.warns(bf.TrivialModelWarning):
        solution = bf.solve(problem, fed, algorithm=bf.Bundle(tol=1e-8))
    assert problem.objective(solution.w, fed) <= 0.2 * (1 + 1e-8)  # that of the constant -1


@pytest.mark.parametrize("seed", [0, 2, 3, 90])
def test_clients_that_the_model_leaves_out_end_no_run(seed: int) -> None:
    """A client whose mean loss bends most may have weight 0 at every trial: no new cut says so,
    and the steps have to become shorter.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 12, 12)
    group = np.repeat(np.arange(12), sizes)
    X = rng.normal(size=(len(group), 3))
    y = X @ rng.normal(size=3) + 0.5 * rng.normal(size=len(group)) + rng.normal(size=12)[group]
    fed = bf.Federation.from_arrays(X, y, group)
    problem = bf.Problem(
        bf.Huber(0.5),
        over_samples=bf.WassersteinBall(0.05, 2.0, "linf"),
        over_clients=bf.Simplex(),
        regulariser=bf.L1(0.02),
    )
    solution = bf.solve(problem, fed)
    central = bf.CentralConic().solve(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.rounds <= 45
    assert problem.objective(solution.w, fed) == pytest.approx(central.value, rel=NEAR)


def test_multipliers_of_many_clients_are_balanced_by_those_that_have_some(monkeypatch):
    """Equations are between live cuts: no client without one has a column."""
    widths, lstsq = [], scipy.linalg.lstsq

    def noted(a, *more, **how):
        widths.append(len(a))
        return lstsq(a, *more, **how)

    monkeypatch.setattr(scipy.linalg, "lstsq", noted)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    y = np.sign(X @ [1.0, -1.0, 0.5] + rng.normal(size=4000))
    fed = bf.Federation.from_arrays(X, y, np.repeat(np.arange(1000), 4))
    ball = bf.WassersteinBall(0.01)
    problem = bf.Problem(bf.Hinge(), over_samples=ball, over_clients=bf.LpBall(0.1))
    solution = bf.solve(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert widths
    assert max(widths) <= 2 * server.MOST_BALANCED
