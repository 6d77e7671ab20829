"""The thresholds are exact: on one side a model has coefficients, on the other it has none."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

import bonafed as bf
from bonafed.data import federation
from bonafed.solution import thresholds
from bonafed.solution import trivial as trivial_model
from bonafed.solution.solve import fit
from bonafed.solution.thresholds import (
    flip_threshold,
    radius_threshold,
    strength_threshold,
    tail_threshold,
)
from bonafed.solution.trivial import best_constant
from bonafed.solvers.conic.builder import Model
from bonafed.solvers.smooth.least_hinge import least_hinge

BELOW, ABOVE = 0.97, 1.05
SHARES = (0.5, 0.3, 0.1, 0.25, 0.4)  # of the rarer class, by table


def table(seed, alike=False):
    """Four clients, 160 rows; ``alike``: both classes are dealt out evenly, so that clients tie."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(160, 4)) * rng.uniform(0.5, 2, 4)
    score = X @ rng.normal(size=4) + 1.5 * rng.normal(size=160)
    y = np.where(score > np.quantile(score, 1 - SHARES[seed]), 1, -1)
    groups = rng.integers(0, 4, 160)
    if alike:
        for label in (-1, 1):
            groups[y == label] = np.arange((y == label).sum()) % 4
    return bf.Federation.from_arrays(X, y, groups, classes=np.array([-1, 1]))


def largest(problem, fed):
    """The largest coefficient of a solution; a bound on it is not asked for."""
    w = fit(problem, fed, tol=1e-9, max_rounds=60).w
    return float(np.abs(problem.predictor.split(w)[0]).max())


def logistic(over_samples, over_clients=None, **parts):
    clients = bf.Mean("size") if over_clients is None else over_clients
    stated = {"loss": bf.Logistic(), "predictor": bf.Linear(fit_intercept=True)} | parts
    return bf.Problem(over_samples=over_samples, over_clients=clients, **stated)


@pytest.mark.parametrize(
    "over", [bf.Simplex(), bf.LpBall(0.3, 2, "size")], ids=["simplex", "lp ball"]
)
@pytest.mark.parametrize("norm", ["l1", "linf"])
@pytest.mark.parametrize("seed", range(5))
def test_from_r_star_on_a_constant_is_optimal(seed, norm, over):
    fed = table(seed, alike=seed == 3)

    def at(radius):
        return logistic(bf.WassersteinBall(radius, norm=norm), over)

    limit = radius_threshold(at(1.0), fed).value
    assert largest(at(BELOW * limit), fed) > 1e-3
    assert largest(at(ABOVE * limit), fed) < 1e-6


@pytest.mark.parametrize("seed", [2])
@pytest.mark.parametrize(
    "parts",
    [
        {"loss": bf.Hinge()},
        {"loss": bf.SmoothHinge()},
        {"regulariser": bf.L1(0.02)},
        {"predictor": bf.Linear(fit_intercept=False)},
    ],
    ids=["hinge", "smooth hinge", "l1", "no intercept"],
)
def test_r_star_is_exact_for_other_losses_and_parts(seed, parts):
    fed = table(seed)

    def at(radius):
        over = bf.Mean("size") if "regulariser" in parts else bf.LpBall(0.3, 2, "size")
        return logistic(bf.WassersteinBall(radius, norm="l2"), over, **parts)

    limit = radius_threshold(at(1.0), fed)
    assert limit.exact
    assert limit.value == 0 or largest(at(BELOW * limit.value), fed) > 1e-3
    assert largest(at(ABOVE * limit.value), fed) < 1e-6


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize(
    "over", [bf.ChiSquareBall(0.05), bf.KLBall(0.3), bf.Superquantile(0.5), bf.Simplex()], ids=repr
)
def test_bounds_that_need_no_program_settle_the_default_radius(over, norm, monkeypatch):
    solved, without = [], 0
    program = thresholds._Stationary._program

    def counted(self, *given):
        solved.append(given)
        return program(self, *given)

    for seed in range(5):
        fed = table(seed, alike=seed == 3)
        stated = logistic(bf.WassersteinBall(1.0, norm=norm), over)
        exact = radius_threshold(stated, fed).value
        bounded = radius_threshold(stated, fed, (0.0, math.inf))
        assert not bounded.exact
        assert exact <= bounded.value * (1 + 1e-7)
        with monkeypatch.context() as patched:
            patched.setattr(thresholds._Stationary, "_program", counted)
            chosen = bf.default_radius(stated, fed)
            without += not solved
            solved.clear()
            patched.setattr(thresholds._Stationary, "between", lambda *_: (0.0, math.inf))
            assert chosen == pytest.approx(bf.default_radius(stated, fed), rel=1e-6)
            solved.clear()
        for share in (0.5, 0.99):  # of r*, which the lower bound never exceeds
            inside = radius_threshold(stated, fed, (exact * (2 - share), math.inf))
            assert inside.value == pytest.approx(exact, rel=1e-6)
    assert without >= 2


def test_radii_that_differ_keep_their_proportions():
    fed, rho = table(1), np.array([1.0, 0.2, 0.6, 0.4])
    for over in (bf.Simplex(), bf.Superquantile(0.5, "size")):
        ball = bf.WassersteinBall(3 * rho, norm="l2")
        limit = radius_threshold(logistic(ball, over), fed).value
        for factor, trivial in ((BELOW, False), (ABOVE, True)):
            there = logistic(replace(ball, radius=factor * limit * rho), over)
            assert (largest(there, fed) < 1e-6) is trivial


@pytest.mark.parametrize("loss", [bf.Huber(), bf.Absolute(), bf.Quantile(0.3)], ids=repr)
def test_r_star_of_a_regression_is_exact(loss):
    fed = table(1)
    rng = np.random.default_rng(0)
    reals = [x @ [1.0, 0.0, -0.5, 0.2] + rng.standard_t(3, len(x)) for x in fed.X]
    fed = bf.Federation(fed.clients, fed.X, tuple(reals))

    def at(radius):
        return logistic(bf.WassersteinBall(radius, norm="linf"), bf.Simplex(), loss=loss)

    limit = radius_threshold(at(1.0), fed).value
    assert largest(at(BELOW * limit), fed) > 1e-3
    assert largest(at(ABOVE * limit), fed) < 1e-6


def test_the_strength_of_l1_that_leaves_no_coefficient_is_exact():
    fed = table(0)
    limit = strength_threshold(logistic(bf.Mean(), bf.Simplex(), regulariser=bf.L1(1.0)), fed)
    for factor, trivial in ((BELOW, False), (ABOVE, True)):
        there = logistic(bf.Mean(), bf.Simplex(), regulariser=bf.L1(factor * limit.value))
        assert (largest(there, fed) < 1e-6) is trivial


@pytest.mark.parametrize(
    ("seed", "loss"),
    [*((seed, bf.Logistic()) for seed in range(5)), (2, bf.Hinge()), (2, bf.SmoothHinge())],
)
def test_up_to_tail_star_a_constant_is_optimal(seed, loss):
    fed = table(seed).pooled()
    limit = tail_threshold(logistic(bf.Superquantile(0.2), loss=loss), fed).value
    assert 0 < limit < 1 / ABOVE
    for factor, trivial in ((BELOW, True), (ABOVE, False)):
        there = logistic(bf.Superquantile(factor * limit), loss=loss)
        assert (largest(there, fed) < 1e-6) is trivial


def tail_by_programs(X, y, loss, free):
    """tail* by its definition: T is the least largest weight, n times, with which rows balance."""

    def least_peak(rows, aim):
        rows, aim = np.column_stack([rows, np.ones(len(rows))]), np.append(aim, 1.0)
        equal = {"A_eq": np.column_stack([rows.T, 0 * aim]), "b_eq": aim}
        most = np.column_stack([len(y) * np.eye(len(rows)), -np.ones(len(rows))])
        solved = linprog(np.append(0 * rows[:, 0], 1.0), A_ub=most, b_ub=0 * rows[:, 0], **equal)
        return solved.fun if solved.status == 0 else math.inf

    few = (y > 0) == ((y > 0).mean() <= 0.5)
    if free and (most := 1 / least_peak(X[~few], X[few].mean(0))) >= few.mean() - 1e-12:
        return 1.0 if isinstance(loss, bf.Hinge) else few.mean() + most
    rows = y[:, None] * np.column_stack([X, np.ones((len(y), int(free)))])
    return 1 / least_peak(rows, np.zeros(rows.shape[1]))


@pytest.mark.parametrize("free", [True, False], ids=["intercept", "none"])
@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=repr)
@pytest.mark.parametrize("share", [0.5, 0.3, 0.1, 0.03])
def test_tail_star_and_the_default_tail_are_those_of_the_program(share, loss, free, monkeypatch):
    solved, without = [], 0
    monkeypatch.setattr(thresholds, "least_hinge", lambda Z: solved.append(Z) or least_hinge(Z))
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60 + 90 * (seed % 2), 3)) + 0.3 * (seed % 3)
        score = X @ rng.normal(size=3) + (0.1, 1.0, 3.0, 30.0)[seed % 4] * rng.normal(size=len(X))
        y = np.where(score > np.quantile(score, 1 - share), 1, -1) * (-1) ** (seed // 2 % 2)
        fed = bf.Federation.from_arrays(X, y, np.zeros(len(X)), classes=np.array([-1, 1]))
        stated = logistic(bf.Superquantile(0.5), loss=loss, predictor=bf.Linear(free))
        limit = tail_threshold(stated, fed)
        assert limit.exact
        assert limit.value == pytest.approx(tail_by_programs(X, y, loss, free), abs=1e-7)
        solved.clear()
        chosen = bf.RiskClassifier(loss=loss, fit_intercept=free)._default_risk(fed).tail
        assert chosen == pytest.approx(min(1.0, max(0.5, 2 * limit.value)), abs=1e-7)
        without += not solved
        assert solved or limit.value < 0.25
    assert without >= 2 * free  # a logistic regression was enough, and no program was solved


def test_a_table_too_large_for_a_program_is_asked_whole_where_a_regression_is_enough(monkeypatch):
    monkeypatch.setattr(thresholds, "MOST_NUMBERS", 200)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    for noise, how in ((0.2, "the mean hinge loss"), (2.0, "a linear program over some")):
        y = np.where(X[:, 0] + noise * rng.normal(size=400) > 0, 1, -1)
        fed = bf.Federation.from_arrays(sparse.csr_array(X), y, np.zeros(400))
        found = tail_threshold(logistic(bf.Superquantile(0.5)), fed, 0.25)
        assert found.how.startswith(how)
        assert not found.exact
        assert (found.value < 0.25) is (noise == 0.2)


def test_no_tail_is_too_small_for_classes_that_can_be_separated():
    X = np.array([[-2.0], [-1.0], [1.0], [3.0]])
    fed = bf.Federation.from_arrays(X, np.array([-1, -1, 1, 1]), np.zeros(4, int))
    assert tail_threshold(logistic(bf.Superquantile(0.2)), fed).value == 0


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=repr)
@pytest.mark.parametrize("seed", [0, 2, 4])
def test_the_share_of_flipped_labels_from_which_a_constant_is_optimal_is_exact(seed, loss):
    fed = table(seed).pooled()

    def at(share):
        return logistic(bf.WassersteinBall(0.7 * share, 0.7, "l2"), loss=loss)

    limit = flip_threshold(at(0.1), fed)
    assert limit.exact
    assert 0 < limit.value < 0.5
    assert largest(at(BELOW * limit.value), fed) > 1e-3
    assert largest(at(ABOVE * limit.value), fed) < 1e-6
    assert radius_threshold(at(0.1), fed).value == pytest.approx(0.7 * limit.value)


def test_the_flips_of_several_clients_are_exact_under_fixed_weights():
    fed = table(1)
    limit = flip_threshold(logistic(bf.WassersteinBall(0.1, 1.0)), fed).value
    for factor, trivial in ((BELOW, False), (ABOVE, True)):
        there = logistic(bf.WassersteinBall(factor * limit, 1.0))
        assert (largest(there, fed) < 1e-6) is trivial


def test_the_hinge_has_a_constant_at_every_radius_where_the_rarer_class_lies_within_the_other():
    rng = np.random.default_rng(0)
    y = np.where(np.arange(200) < 10, 1, -1)
    X = rng.normal(size=(200, 3)) + 0.3 * (y[:, None] > 0)
    fed = bf.Federation.from_arrays(X, y, np.zeros(200, int))
    hinge = logistic(bf.Mean(), loss=bf.Hinge())
    assert radius_threshold(hinge, fed).value == pytest.approx(0, abs=1e-7)
    assert largest(hinge, fed) < 1e-6
    assert tail_threshold(logistic(bf.Superquantile(0.5), loss=bf.Hinge()), fed).value == 1
    assert radius_threshold(logistic(bf.Mean()), fed).value > 0.01


def test_the_best_constant_is_that_of_a_solve_without_features():
    fed = table(2)
    blind = bf.Federation(fed.clients, tuple(0 * x for x in fed.X), fed.y, classes=fed.classes)
    for over in (bf.Simplex(), bf.ChiSquareBall(0.05, "size"), bf.Superquantile(0.5, "size")):
        for ball in (bf.Mean(), bf.WassersteinBall(0.02, 1.0)):
            problem = logistic(ball, over)
            value = bf.solve(problem, blind, tol=1e-9).certificate.value
            assert best_constant(*problem.at(fed)).value == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize(
    ("loss", "most"), [(bf.Hinge(), 15), (bf.Quantile(0.3), 82), (bf.Logistic(), 82)]
)
@pytest.mark.parametrize("over", [bf.Simplex(), bf.LpBall(0.2, 2), bf.Superquantile(0.5, "size")])
def test_the_weights_of_the_best_constant_prove_it(loss, most, over, monkeypatch):
    """At them no other constant has less loss; the hinge loss, which has kinks, needs few."""
    fed, asked = table(1), []
    if loss.targets == "real":
        fed = bf.Federation(fed.clients, fed.X, tuple(x @ np.ones(4) for x in fed.X))
    problem, fed = logistic(bf.WassersteinBall(0.02), over, loss=loss).at(fed)
    risks = trivial_model._risks

    def counted(*arguments):
        asked.append(arguments)
        return risks(*arguments)

    monkeypatch.setattr(trivial_model, "_risks", counted)
    best = best_constant(problem, fed)
    assert len(asked) <= most
    (block,), which = trivial_model.targets_alone(problem, fed)
    which = np.argsort(block.index) if which is None else which
    assert best.weights.sum() == pytest.approx(1.0)
    for b in best.intercept + np.linspace(-2, 2, 41):
        mean = best.weights @ risks(problem, b, block)[0][which]
        assert mean >= best.value - 1e-12 * abs(best.value)


def test_problems_without_thresholds_are_refused():
    fed = table(0)
    with pytest.raises(ValueError, match="thresholds are known"):
        radius_threshold(logistic(bf.Superquantile(0.5)), fed)
    with pytest.raises(ValueError, match="one client"):
        tail_threshold(logistic(bf.Superquantile(0.5)), fed)
    with pytest.raises(ValueError, match="gradient is unbounded"):
        radius_threshold(logistic(bf.Mean(), loss=bf.Exponential()), fed)
    regression = logistic(bf.WassersteinBall(0.1, 1.0), loss=bf.Huber())
    real = bf.Federation(fed.clients, fed.X, tuple(x @ np.ones(4) for x in fed.X))
    assert radius_threshold(regression, real).value == math.inf


def test_programs_over_many_clients_have_a_few_entries_for_each(monkeypatch):
    """A row for every client holds what is its own, and nothing of the others."""
    rng, entries = np.random.default_rng(2), []
    solve = Model.solve_fast

    def counted(self, *args):
        entries.append(sum(len(value) for _, _, value in self.entries))
        return solve(self, *args)

    monkeypatch.setattr(Model, "solve_fast", counted)
    for n in (300, 600):
        X = rng.normal(size=(3 * n, 4))
        fed = bf.Federation.from_arrays(X, np.sign(X[:, 0]), np.repeat(np.arange(n), 3))
        for loss in (bf.Logistic(), bf.Hinge()):
            ball = bf.WassersteinBall(1.0)
            problem = logistic(ball, bf.Superquantile(0.3), loss=loss)
            assert radius_threshold(problem, fed).exact
    assert max(entries) <= 600 * 100


def test_a_default_radius_does_not_depend_on_how_clients_share_a_batch(monkeypatch):
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 9, 40)
    X, weights = rng.normal(size=(sizes.sum(), 3)), rng.random(sizes.sum()) + 0.1
    fed = bf.Federation.from_arrays(
        X, np.sign(X[:, 0]), np.repeat(np.arange(40), sizes), sample_weight=weights
    )
    for norm in ("l1", "l2", "linf"):
        problem = logistic(bf.WassersteinBall(0.0, norm=norm), bf.Mean())
        together = bf.default_radius(problem, fed)
        with monkeypatch.context() as patch:
            patch.setattr(federation, "FEW", 0)
            assert bf.default_radius(problem, fed) == pytest.approx(together, rel=1e-9)
