"""A model that is no better than a constant comes with a warning that names what is to blame."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

import bonafed as bf
from bonafed.solution import blame
from bonafed.solution import solve as solving
from bonafed.solution.solve import fit

AFFINE = bf.Linear(fit_intercept=True)
ROWS, FEATURES = 300, 5


def rows(seed=0, rarer=0.4, n=ROWS, d=FEATURES, signal=1.0):
    """Features, labels of two classes and clients."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = signal * X @ rng.normal(size=d) + rng.logistic(size=n)
    return X, np.where(score > np.quantile(score, 1 - rarer), "yes", "no"), rng.integers(0, 5, n)


def table(seed=0, **options):
    return bf.Federation.from_arrays(*rows(seed, **options))


def logistic(**parts):
    return bf.Problem(**({"loss": bf.Logistic(), "predictor": AFFINE} | parts))


def solved(problem, fed):
    """The solution of a problem, and what it warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        solution = bf.solve(problem, fed, tol=1e-8)
    return solution, [w for w in said if w.category is bf.TrivialModelWarning]


def trivial(problem, fed):
    """The record of a trivial model, which was warned of once."""
    solution, said = solved(problem, fed)
    assert [str(w.message) for w in said] == [solution.trivial.text]
    return solution.trivial


@pytest.mark.parametrize("seed", range(10))
def test_ordinary_tables_get_no_warning(seed):
    rng = np.random.default_rng(100 + seed)
    rarer, n, d = rng.uniform(0.2, 0.5), int(rng.integers(150, 400)), int(rng.integers(2, 8))
    fed = table(seed, rarer=rarer, n=n, d=d, signal=rng.uniform(0.5, 2))
    ball = bf.WassersteinBall(0.01, norm="linf")
    problems = [
        logistic(),
        logistic(over_samples=ball, over_clients=bf.ChiSquareBall(0.05, "size")),
        logistic(over_clients=bf.Simplex(), regulariser=bf.L2(1e-3)),
    ]
    for problem in problems[seed % 2 :]:
        solution, said = solved(problem, fed)
        assert not said
        assert solution.trivial is None


def test_a_rare_class_under_the_old_defaults_of_the_robust_classifier_is_said():
    """Hinge, radius .05, label cost 1, 10 % positives: one class for everybody, and why."""
    fed = table(1, rarer=0.1)
    ball = bf.WassersteinBall(0.05, label_cost=1.0)
    problem = logistic(loss=bf.Hinge(), over_samples=ball, over_clients=bf.LpBall(0.1, 2, "size"))
    why = trivial(problem, fed)
    assert why.kind == "coefficients are zero"
    assert why.parameter in ("radius", "label_cost")
    assert why.threshold is None or f"{why.threshold:.3g}" in why.text


def at_radius(radius):
    return logistic(over_samples=bf.WassersteinBall(radius, norm="l2"), over_clients=bf.Simplex())


def at_tail(tail):
    return logistic(over_samples=bf.Superquantile(tail))


def at_strength(strength):
    return logistic(regulariser=bf.L1(strength))


def at_radius_of_rows(radius):
    return logistic(over_samples=bf.WassersteinBall(radius, norm="linf"))


def at_label_cost(cost):
    return logistic(over_samples=bf.WassersteinBall(0.1, label_cost=cost, norm="l2"))


@pytest.mark.parametrize(
    ("at", "value", "parameter"), [(at_radius, 5.0, "radius"), (at_strength, 2.0, "strength")]
)
def test_the_threshold_named_is_where_a_model_begins(at, value, parameter):
    fed = table(2)
    why = trivial(at(value), fed)
    assert (why.parameter, why.value) == (parameter, value)
    assert f"{why.threshold:.3g}" in why.text
    there = solved(at(0.97 * why.threshold), fed)[0].trivial
    assert there is None or there.kind != "coefficients are zero"
    assert trivial(at(1.05 * why.threshold), fed).kind == "coefficients are zero"


@pytest.mark.parametrize(
    ("at", "value", "parameter"), [(at_tail, 0.05, "tail"), (at_label_cost, 0.25, "label_cost")]
)
def test_thresholds_that_take_a_program_over_rows_are_not_computed_beside_a_fit(
    at, value, parameter
):
    why = trivial(at(value), table(2).pooled())
    assert (why.parameter, why.value, why.threshold) == (parameter, value, None)


def at_l2(strength):
    return logistic(regulariser=bf.L2(strength))


@pytest.mark.parametrize(
    ("at", "value", "parameter"), [(at_l2, 10.0, "strength"), (at_radius_of_rows, 0.1, "radius")]
)
def test_no_problem_is_solved_to_find_the_parameter(at, value, parameter, monkeypatch):
    fed = table(2, rarer=0.25)
    solution = fit(at(value), fed)
    monkeypatch.setattr(bf.InProcess, "run", None)
    monkeypatch.setattr(solving, "fit", None)
    why = blame.triviality(at(value), fed, solution.w, solution.certificate)
    assert (why.parameter, why.threshold) == (parameter, None)


def test_nothing_is_said_where_the_plain_model_was_not_found(monkeypatch):
    fed, problem = table(2, rarer=0.25), at_l2(10.0)
    solution = fit(problem, fed)
    monkeypatch.setattr(blame, "STEPS", 1)
    why = blame.triviality(problem, fed, solution.w, solution.certificate)
    assert why.parameter is None
    assert "was not found" in why.text


def test_a_large_table_is_asked_by_a_sample_that_the_text_names():
    fed = table(2, rarer=0.25, n=5_000, d=21)
    solution = fit(at_l2(10.0), fed)
    why = blame.triviality(at_l2(10.0), fed, solution.w, solution.certificate)
    rows = int(number(why.text.replace(",", ""), "found on "))
    assert rows * 21 == pytest.approx(blame.SMALL, rel=0.05)
    assert f"found on {rows:,} of the {fed.sizes.sum():,} rows" in why.text


def number(text, before):
    """The number in a text after some words."""
    return float(re.search(re.escape(before) + r"([\d.e-]+\d)", text)[1])


@pytest.mark.parametrize("rarer", [0.4, 0.1])
def test_the_radius_advised_is_a_number_at_which_there_is_a_model(rarer):
    fed = table(2, rarer=rarer, signal=2.0)
    why = trivial(at_radius(5.0), fed)
    auto = bf.default_radius(at_radius(5.0), fed)
    assert "radius='auto'" in why.text
    below = number(why.text, "or one below ")
    assert auto < below < why.threshold
    for radius in (auto, below):
        there = solved(at_radius(radius), fed)[0].trivial
        assert there is None or there.kind != "coefficients are zero"


def test_a_rare_class_is_not_blamed_on_the_radius_alone():
    """The default radius leaves scores that tell the classes apart, and none above 1/2."""
    fed = table(5, rarer=0.15, signal=0.5)
    ball = bf.WassersteinBall("auto", norm="linf")
    why = trivial(logistic(over_samples=ball), fed)
    assert (why.kind, why.parameter) == ("one class predicted", "radius")
    assert "'auto'" not in why.text  # that is what it had
    assert "Use a smaller radius." in why.text  # 0.3 r* is larger than this one
    assert 'above a probability of 0.15, or use class_weight = "balanced"' in why.text


def test_a_strength_is_advised_by_number():
    fed = table(2)
    why = trivial(at_tail(0.05), fed.pooled())
    everywhere = trivial(logistic(over_rows=bf.Superquantile(0.05)), fed)
    assert everywhere.text.partition(": ")[2] == why.text.partition(": ")[2]
    why = trivial(at_strength(2.0), fed)
    assert number(why.text, "Use a strength below ") == pytest.approx(0.3 * why.threshold, rel=0.06)


def test_a_radius_just_below_r_star_still_predicts_one_class_and_says_so():
    fed = table(3, rarer=0.2)
    limit = trivial(at_radius(5.0), fed).threshold
    why = trivial(at_radius(0.95 * limit), fed)
    assert why.kind in ("one class predicted", "no better than a constant in its own objective")
    assert why.parameter == "radius"
    assert number(why.text, "or one below ") < 0.95 * limit
    auto = bf.default_radius(at_radius(1.0), fed)
    assert "radius='auto'" in why.text
    assert solved(at_radius(auto), fed)[0].trivial is None


def test_the_hinge_with_a_rare_class_is_to_blame_at_radius_0():
    rng = np.random.default_rng(0)
    y = np.where(np.arange(300) < 30, 1, -1)
    X = rng.normal(size=(300, 3)) + 0.6 * (y[:, None] > 0)
    fed = bf.Federation.from_arrays(X, y, np.arange(300) % 3)
    why = trivial(logistic(loss=bf.Hinge()), fed)
    assert why.kind == "no better than a constant in its own objective"
    assert (why.parameter, why.value) == ("loss", "Hinge")
    assert "loss=Logistic()" in why.text


def test_a_rare_class_that_no_model_predicts_is_the_cuts_fault():
    fed = table(4, rarer=0.03, signal=0.2)
    why = trivial(logistic(), fed)
    assert (why.kind, why.parameter) == ("one class predicted", "cut")
    assert "above a probability of 0.03" in why.text
    p = bf.solve(logistic(), fed).predict_proba(np.concatenate(fed.X))[:, 1]
    assert (p > 0.97 * why.threshold).any()
    assert not (p > 1.05 * why.threshold).any()
    assert 'class_weight = "balanced"' in why.text


def test_parity_on_scores_of_many_small_clients_is_to_blame():
    """Equal mean scores at thirty clients leave hardly a direction: nearly all are selected."""
    rng = np.random.default_rng(5)
    X, y, _ = rows(5, n=600, d=6, rarer=0.4, signal=1.0)
    y = np.where(y == "no", "yes", "no")  # three in five are positive
    sex = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    columns = {"sex": sex}
    fed = bf.Federation.from_arrays(X, y, np.arange(600) % 20, columns=columns)
    parity = bf.DemographicParity("sex", 0.01)
    why = trivial(logistic(local_constraint=parity, regulariser=bf.L2(1e-4)), fed)
    assert why.parameter == "constraint"
    assert "DemographicParity" in why.text
    assert "Probability()" in why.text


def test_a_regression_that_predicts_one_number_is_said():
    X = rows()[0]
    y = X @ np.arange(1.0, 1 + FEATURES) + np.random.default_rng(0).normal(size=ROWS)
    fed = bf.Federation.from_arrays(X, y, np.arange(ROWS) % 3)
    problem = logistic(loss=bf.Huber(), over_samples=bf.WassersteinBall(50.0, norm="linf"))
    why = trivial(problem, fed)
    assert (why.kind, why.parameter) == ("coefficients are zero", "radius")
    assert 0 < why.threshold < 50
    ordinary = replace(problem, over_samples=bf.WassersteinBall(0.1, norm="linf"))
    assert solved(ordinary, fed)[0].trivial is None


@pytest.mark.parametrize("loss", [bf.Squared(), bf.Exponential()], ids=str)
def test_a_loss_with_an_unbounded_gradient_is_not_to_blame_for_a_penalty(loss):
    """No Wasserstein radius goes with it, so no formula for that says what a constant is."""
    X = np.random.default_rng(0).standard_normal((60, 3))
    y = X[:, 0] if loss.targets == "real" else np.sign(X[:, 0] + X[:, 1] / 3)
    fed = bf.Federation.from_arrays(X, y, np.arange(60) % 3)
    with pytest.warns(bf.TrivialModelWarning):
        found = bf.solve(bf.Problem(loss, regulariser=bf.L1(50.0)), fed).trivial
    assert found.parameter == "strength"
    assert "loss" not in found.text


def test_several_classes_and_networks_are_judged_by_what_they_predict():
    X = rows()[0]
    y = np.array(["a", "b", "c"])[np.random.default_rng(0).choice(3, ROWS, p=[0.8, 0.1, 0.1])]
    fed = bf.Federation.from_arrays(0.1 * X, y, np.arange(ROWS) % 3)
    softmax = bf.Problem(bf.Multinomial(), bf.Softmax(), regulariser=bf.L2(10.0))
    assert trivial(softmax, fed).kind == "one class predicted"
    network = bf.Problem(bf.Logistic(), bf.MLP((2,)), regulariser=bf.L2(50.0))
    with warnings.catch_warnings(record=True):
        solution = bf.solve(network, table(1, rarer=0.2), max_rounds=20)
    assert solution.trivial is not None
    assert solution.trivial.kind == "one class predicted"


def test_a_model_on_a_support_is_judged_too():
    """A loss has to have linear pieces there, so that the logistic one is not tried."""
    X, y, groups = rows(1)
    fed = bf.Federation.from_arrays(1 / (1 + np.exp(-X)), y, groups)
    ball = bf.WassersteinBall(0.9, 1.0, "l2", bf.BoxSupport(0.0, 1.0))
    assert trivial(logistic(loss=bf.Hinge(), over_samples=ball), fed).parameter in (
        "radius",
        "label_cost",
    )


def test_a_private_solution_warns_of_nothing_and_saves_nothing_of_it(tmp_path):
    fed = table(1, rarer=0.1)
    sizes = dict(zip(fed.clients, fed.sizes.tolist(), strict=True))
    budget = bf.Budget(epsilon=1.0, delta=1e-5, sizes=sizes)
    problem = logistic(regulariser=bf.L2(50.0), privacy=budget, predictor=bf.Linear())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        solution = bf.solve(problem, fed, algorithm=bf.PrivateADMM(max_rounds=3))
    assert not [w for w in said if w.category is bf.TrivialModelWarning]
    assert solution.trivial is not None  # for the owner
    assert solution.trivial.text not in repr(solution)
    solution.save(tmp_path / "solution.bft")
    with pytest.raises(AttributeError, match="has no trivial: it is judged on the rows"):
        _ = bf.load(tmp_path / "solution.bft").trivial


def test_what_is_asked_of_steps_to_other_models_is_not_judged():
    problem, fed = at_radius(5.0), table(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(problem, fed).trivial is None
        bf.radius_path(problem, fed, radii=[5.0])


def test_a_solution_says_it_first_and_keeps_it(tmp_path):
    solution, said = solved(at_radius(5.0), table(2))
    assert len(said) == 1
    assert repr(solution).splitlines()[1].split()[0].startswith("warning")
    assert len(repr(solution)) <= 2000
    solution.save(tmp_path / "solution.bft")
    assert bf.load(tmp_path / "solution.bft").trivial == solution.trivial


def test_an_estimator_warns_once():
    X, y, groups = rows(2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        bf.RobustClassifier(loss=bf.Logistic(), radius=5.0, label_cost=np.inf).fit(
            X, y, groups=groups
        )
    assert len([w for w in said if w.category is bf.TrivialModelWarning]) == 1


def test_a_radius_read_off_the_rows_is_judged_as_the_number_that_it_is():
    ball = bf.WassersteinBall("auto", norm="linf")
    solution, said = solved(logistic(over_samples=ball), table(2))
    assert not said
    assert solution.problem.over_samples.radius > 0
