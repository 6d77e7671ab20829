"""PrivateClassifier: its model against other fits, what it spends, what of the rows it keeps,
scikit-learn.
"""

import doctest
import json
import math
import pickle
import re
import traceback
import warnings

import numpy as np
import pandas as pd
import pytest
from private_cases import answer_alike
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import bonafed as bf
from bonafed import PrivateClassifier
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.estimators import private
from bonafed.estimators.rows import MissingGroupsWarning
from bonafed.estimators.scorers import worst_client_accuracy, worst_client_loss
from bonafed.model_selection import WithinClients, cross_validate
from bonafed.privacy.accounting import Release, gaussian_epsilon, total_epsilon
from bonafed.privacy.ledger import Book


@pytest.fixture
def three():
    """300 rows of three classes and two clients."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300, 4))
    y = np.array(["a", "b", "c"])[(X[:, :3] + 0.3 * rng.standard_normal((300, 3))).argmax(1)]
    return X, y, np.where(rng.random(300) < 0.4, "right", "left")


@pytest.fixture(params=["two classes", "three classes"])
def rows(request, clinics, three):
    return clinics if request.param == "two classes" else three


@pytest.fixture
def no_noise(monkeypatch):
    """Secure noise is zero: what is left of a fit is arithmetic."""
    monkeypatch.setattr(noisy_gradient, "add_noise", lambda *given: None)


# the checks give no groups
@pytest.mark.filterwarnings("ignore::bonafed.MissingGroupsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        PrivateClassifier(rounds=40),
        PrivateClassifier(rounds=10, mechanism="laplace", clip=1.0, fit_intercept=False, sizes=300),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_examples():
    assert doctest.testmod(private).attempted > 6
    assert doctest.testmod(private).failed == 0


# ---- the model against other fits


@pytest.mark.usefixtures("no_noise")
def test_without_noise_it_is_logistic_regression(rows):
    X, y, groups = rows
    model = PrivateClassifier(rounds=400, clip=8.0, rho=0.5, regulariser=bf.L2(0.05)).fit(
        X, y, groups=groups
    )
    other = LogisticRegression(C=1 / (len(y) * 0.05), tol=1e-10, max_iter=1000)
    w = np.column_stack([model.coef_, model.intercept_])
    if len(model.classes_) == 2:
        other.fit(X, y)
        assert w == pytest.approx(np.column_stack([other.coef_, other.intercept_]), abs=1e-3)
    else:  # intercepts are regularised, as coefficients of ones
        other.set_params(fit_intercept=False).fit(np.column_stack([X, np.ones(len(y))]), y)
        # a step of the grid is coarser for softmax models
        assert w == pytest.approx(other.coef_, abs=1e-2)


@pytest.mark.usefixtures("no_noise")
def test_sparse_rows_and_rows_in_another_order_give_the_same_model(rows):
    X, y, groups = rows
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    model = PrivateClassifier(rounds=6, bound=2.0, clip=1.0).fit(X, y, groups=groups)
    order = np.random.default_rng(0).permutation(len(y))
    sparse = clone(model).fit(csr_array(X), y, groups=groups)
    for other in (
        sparse,
        clone(model).fit(X[order], y[order], groups=groups[order]),
        clone(model).fit(pd.DataFrame(X), pd.Series(y), groups=pd.Series(groups)),
    ):
        # of several classes dense rows meet a model rounded to 16 bits, and sparse ones its doubles
        near = 1e-4 if len(model.classes_) > 2 and other is sparse else 1e-12
        assert other.coef_ == pytest.approx(model.coef_, rel=1e-9, abs=near)
        assert other.intercept_ == pytest.approx(model.intercept_, rel=1e-9, abs=near)
        assert other.clients_.tolist() == model.clients_.tolist() == sorted(set(groups))
    assert sparse.decision_function(csr_array(X)) == pytest.approx(sparse.decision_function(X))


def test_the_model_is_the_solution_of_the_stated_problem(clinics):
    X, y, groups = clinics
    sizes = {"north": 70, "south": 50, "east": 30, "west": 9}  # west has no rows here
    model = PrivateClassifier(
        2.0, 1e-4, rounds=7, sizes=sizes, average=True, rho=0.3, random_state=4
    )
    model.fit(X, y, groups=groups)
    order = np.argsort(groups, kind="stable")
    fed = bf.Federation.from_arrays(X[order], y[order], groups[order])
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(True),
        over_clients=bf.Mean("size"),
        regulariser=bf.L2(1e-4),
        privacy=bf.Budget(2.0, 1e-4, sizes=sizes),
    )
    algorithm = bf.PrivateADMM(max_rounds=7, rho=0.3, average=True, noise="simulation")
    found = bf.solve(problem, fed, algorithm=algorithm, engine=bf.InProcess("each"), seed=4)
    assert np.append(model.coef_, model.intercept_) == pytest.approx(found.w, rel=1e-9)
    assert model.clients_.tolist() == ["east", "north", "south", "west"]
    assert dict(model.privacy_.sizes) == {name: sizes[name] for name in model.clients_}
    assert (model.n_iter_, len(model.history_)) == (7, 7)


def test_scores_labels_and_probabilities_agree(rows):
    X, y, groups = rows
    model = PrivateClassifier(8.0, 1e-3, rounds=20, random_state=0).fit(X, y, groups=groups)
    scores = X @ model.coef_.T + model.intercept_
    scores = np.column_stack([-scores / 2, scores / 2]) if scores.shape[1] == 1 else scores
    odds = np.exp(scores)
    assert model.predict_proba(X) == pytest.approx(odds / odds.sum(1, keepdims=True), rel=1e-9)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(1)])
    assert model.score(X, y) > 0.75
    assert worst_client_accuracy(model, X, y, groups=groups) <= model.score(X, y)
    truth = odds[np.arange(len(y)), np.searchsorted(model.classes_, y)] / odds.sum(1)
    worst = min(np.log(truth)[groups == name].mean() for name in model.clients_)
    assert worst_client_loss(model, X, y, groups=groups) == pytest.approx(worst)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_rows_beyond_the_bound_are_shortened_and_intercepts_are_not(rows, mechanism):
    X, y, groups = rows
    X = X.copy()
    X[7] = 0.0  # has no length to divide by
    length = np.abs(X).sum(1) if mechanism == "laplace" else np.linalg.norm(X, axis=1)
    short = X * np.minimum(1, 1.5 / np.maximum(length, 1e-9))[:, None]
    assert (length > 1.5).any()
    model = PrivateClassifier(rounds=6, mechanism=mechanism, bound=1.5, clip=0.5, rho=0.5)
    first = clone(model).fit(X, y, groups=groups)
    second = clone(model).set_params(bound=None).fit(short, y, groups=groups)
    assert first.coef_ == pytest.approx(second.coef_, rel=1e-9)
    assert first.intercept_ == pytest.approx(second.intercept_, rel=1e-9)
    loose = clone(model).set_params(bound=None).fit(X, y, groups=groups)
    assert np.abs(loose.coef_ - first.coef_).max() > 1e-3


def test_secure_noise_unless_a_seed_is_given(clinics):
    X, y, groups = clinics
    seeded = [
        PrivateClassifier(rounds=3, random_state=1).fit(X, y, groups=groups) for _ in range(2)
    ]
    np.testing.assert_array_equal(seeded[0].coef_, seeded[1].coef_)
    assert "seed" in seeded[0].privacy_.text
    secure = [
        PrivateClassifier(rounds=3, noise=n, random_state=s)
        for n, s in ((None, None), ("secure", 1))
    ]
    secure = [model.fit(X, y, groups=groups) for model in (*secure, secure[1])]
    assert "seed" not in secure[0].privacy_.text
    coefficients = [model.coef_.copy() for model in (*seeded[:1], *secure[:2])]
    coefficients.append(secure[1].fit(X, y, groups=groups).coef_)
    assert all(
        np.abs(a - b).max() > 1e-6 for i, a in enumerate(coefficients) for b in coefficients[:i]
    )
    assert not PrivateClassifier().__sklearn_tags__().non_deterministic
    assert PrivateClassifier(noise="secure").__sklearn_tags__().non_deterministic


# ---- what is spent


def test_what_is_spent_is_the_stated_total(clinics):
    X, y, groups = clinics
    model = PrivateClassifier(np.float32(0.5), 1e-5, rounds=np.int64(9)).fit(X, y, groups=groups)
    releases = model.privacy_.releases
    assert set(releases) == {"north", "south", "east"}
    for own in releases.values():
        assert gaussian_epsilon(own, 1e-5) == pytest.approx(0.5, rel=1e-3)
        assert sum(r.count for r in own) == 9
    assert 0.49 < model.privacy_.epsilon <= 0.5
    assert {row["client"] for row in model.privacy_.table()} == set(releases)
    assert "0.5, 1e-05" in model.privacy_.text


@pytest.mark.parametrize(("adjacency", "spread"), [("add-remove", 1), ("replace", 2)])
def test_the_noise_is_of_the_size_that_the_budget_asks(clinics, adjacency, spread):
    """On rows of zeros all that a fit without intercept finds is noise: its spread, from the
    accountant alone.
    """
    _, y, groups = clinics
    model = PrivateClassifier(
        rounds=1, clip=2.0, rho=0.7, adjacency=adjacency, sizes=50, regulariser=bf.L2(1e-12)
    )
    drawn = []
    for seed in range(40):
        model.set_params(random_state=seed, fit_intercept=False).fit(
            np.zeros((120, 30)), y, groups=groups
        )
        drawn.append(model.coef_[0])
    (own,) = model.privacy_.releases["north"]
    # clip * weight of a row: a third of the objective, of 50 rows
    each = own.noise * spread * 2.0 / 50 / 3
    # Each client steps by -xi / rho, lambda is xi, and the server averages z - lambda / rho.
    expected = 2 * each / 0.7 / math.sqrt(3)
    assert np.std(drawn) == pytest.approx(expected, rel=0.1)
    assert total_epsilon([Release("gaussian", own.noise)], 1e-6) <= 1.0


def test_every_fit_is_charged_to_the_book(clinics, tmp_path, monkeypatch):
    X, y, groups = clinics
    book = tmp_path / "book.json"
    model = PrivateClassifier(1.0, 1e-6, rounds=4, book=book, spend=0.5)
    spent = []
    for _ in range(3):
        model.fit(X, y, groups=groups)
        spent.append(model.privacy_.epsilon)
        assert model.privacy_.releases["east"][0].noise == pytest.approx(_noise(0.5, 4), rel=1e-3)
    assert spent[0] == pytest.approx(0.5, rel=1e-3)
    assert spent == sorted(spent)
    everything = [
        Release("gaussian", n, c) for run in _runs(book) for _, n, c in run["releases"]["north"]
    ]
    assert len(everything) == 3
    assert spent[-1] == pytest.approx(gaussian_epsilon(everything, 1e-6), rel=1e-3)
    before = model.coef_.copy()

    def touched(*_):
        raise AssertionError("a row was touched")

    with monkeypatch.context() as patch:
        patch.setattr(noisy_gradient.Rows, "gradient", touched)
        with pytest.raises(bf.BudgetSpentError, match=r"to epsilon = 1\.\d+ of 1 .* refused"):
            model.fit(X, y, groups=groups)
    np.testing.assert_array_equal(model.coef_, before)
    assert len(_runs(book)) == 3
    rest = clone(model).set_params(spend=None).fit(X, y, groups=groups)
    assert 0.99 < rest.privacy_.epsilon <= 1.0
    with pytest.raises(bf.BudgetSpentError, match="is spent"):
        rest.fit(X, y, groups=groups)
    clone(rest).fit(X, y, groups=["someone else"] * len(y))  # whose rows are others


def _noise(epsilon, rounds):
    """The multiplier by the closed form of Gaussian noise."""
    low, high = 1.0, 1e4
    for _ in range(60):
        middle = math.sqrt(low * high)
        over = gaussian_epsilon([Release("gaussian", middle, rounds)], 1e-6) > epsilon
        low, high = (middle, high) if over else (low, middle)
    return high


def _runs(book):
    return json.loads(book.read_text())["runs"]


@pytest.mark.parametrize("total", [3.0, 0.85])
def test_a_grid_search_is_charged_fit_by_fit(clinics, tmp_path, total):
    X, y, groups = clinics
    book = tmp_path / "book.json"
    model = PrivateClassifier(total, 1e-6, rounds=3, book=book, spend=0.4, random_state=0)
    search = GridSearchCV(
        model, {"clip": [0.5, 1.0]}, cv=WithinClients(2, by_row=True), error_score="raise"
    )
    with config_context(enable_metadata_routing=True):
        if total > 2:
            search.fit(X, y, groups=groups)
            assert len(_runs(book)) == 5  # two folds of two settings, and the best one on all rows
            assert 0.4 < search.best_estimator_.privacy_.epsilon <= total
            return
        with pytest.raises(bf.BudgetSpentError, match="refused"):
            search.fit(X, y, groups=groups)
        fits = len(_runs(book))
        assert 2 <= fits < 5
        search.set_params(error_score=np.nan)
        with pytest.raises(ValueError, match=r"All the 4 fits failed(.|\n)*BudgetSpentError"):
            search.fit(X, y, groups=groups)
        assert len(_runs(book)) == fits


# ---- what is kept of the rows


@pytest.fixture(params=["secure", "simulation"])
def alike(request, monkeypatch):
    """A fit of which the rows' clipped gradients, all that may be noised, are the same whatever the
    rows are.
    """
    noise = request.param
    answer_alike(monkeypatch)

    def fit(X, y, groups, **settings):
        model = PrivateClassifier(rounds=3, noise=noise, random_state=3, **settings)
        return pickle.dumps(model.fit(X, y, groups=groups))

    return fit


def test_neighbours_that_release_the_same_leave_the_same_bytes(rows, alike):
    # any row makes a smallest
    few = np.concatenate([np.flatnonzero(rows[2] == name)[:20] for name in set(rows[2])])
    few.sort()
    X, y, groups = (part[few] for part in rows)
    classes, sizes = np.unique(y).tolist(), dict.fromkeys(np.unique(groups).tolist(), 80)
    base = alike(X, y, groups, classes=classes, sizes=sizes)
    for gone in (0, 1, 30):  # the first rows are where names appear first
        kept = np.arange(len(y)) != gone
        assert alike(X[kept], y[kept], groups[kept], classes=classes, sizes=sizes) == base
    other, label = X.copy(), y.copy()
    other[5], label[5] = [1e6, -3.0, 0.0, 0.25], next(c for c in classes if c != y[5])
    assert alike(other, label, groups, classes=classes, sizes=sizes) == base
    assert alike(other, np.full(len(y), classes[0]), groups, classes=classes, sizes=sizes) == base
    # replaced rows: true sizes and classes are public
    assert alike(other, label, groups) == alike(X, y, groups)
    assert alike(X, y, groups, classes=classes, sizes=81) != base  # and something is compared
    if len(few) and isinstance(X, np.ndarray):  # the mean of rows with declared ranges as well
        ranged = {"classes": classes, "sizes": sizes, "ranges": (-4, 4)}
        kept = np.arange(len(y)) != 30
        first = alike(X, y, groups, **ranged)
        assert alike(X[kept], y[kept], groups[kept], **ranged) == first
        assert alike(other, label, groups, **ranged) == first


def test_numbers_kept_are_the_model_and_what_the_server_may_see(clinics):
    X, y, groups = clinics
    model = PrivateClassifier(rounds=3).fit(X, y, groups=groups)
    kept = "calibration_ classes_ clients_ coef_ history_ intercept_ loss_ n_features_in_ n_iter_"
    kept += " positive_ privacy_"
    assert {name for name in vars(model) if name.endswith("_")} == set(kept.split())
    assert set(model.history_[0]) == {"round", "bytes_up", "bytes_down", "step", "noise"}
    ranged = clone(model).set_params(ranges=(-9, 9)).fit(X, y, groups=groups)
    more = {name for name in vars(ranged) if name.endswith("_")} - set(kept.split())
    assert more == {"centre_"}
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.privacy_.text == model.privacy_.text


# ---- in scikit-learn


def test_without_groups_there_is_one_owner(clinics):
    X, y, _ = clinics
    with pytest.warns(MissingGroupsWarning, match="one owner, who holds them all, adds the noise"):
        model = PrivateClassifier(rounds=3).fit(X, y)
    assert model.clients_.tolist() == ["all"]


def test_groups_are_routed_through_a_pipeline(clinics):
    X, y, groups = clinics
    scaled = make_pipeline(FunctionTransformer(lambda X: X / 3), PrivateClassifier(rounds=3))
    with config_context(enable_metadata_routing=True):
        scaled.fit(X, y, groups=groups)
    assert scaled[-1].clients_.tolist() == ["east", "north", "south"]
    scores = cross_validate(scaled, X, y, groups=groups, cv=2)
    assert len(scores["test_worst_client_accuracy"]) == 2


def test_a_fit_never_weighs_rows_or_starts_from_another(clinics):
    X, y, groups = clinics
    model = PrivateClassifier(rounds=3)
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(X, y, groups=groups, sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match="warm_start"):
        model.set_params(warm_start=True)
    assert not hasattr(model, "partial_fit")


def test_a_class_that_no_row_has_is_declared(clinics):
    X, y, groups = clinics
    model = PrivateClassifier(5.0, rounds=20, classes=["worse", "fine", "ill"], random_state=0).fit(
        X, y, groups=groups
    )
    assert model.classes_.tolist() == ["fine", "ill", "worse"]
    assert model.predict_proba(X).shape == (120, 3)
    assert (model.predict(X) == "worse").mean() < 0.2
    alone = PrivateClassifier(5.0, rounds=5, classes=[0, 1]).fit(
        X, np.zeros(120, int), groups=groups
    )
    assert alone.classes_.tolist() == [0, 1]
    huge = PrivateClassifier(5.0, rounds=5, random_state=0).fit(
        X, (y == "ill") * 2**62, groups=groups
    )
    assert huge.classes_.tolist() == [0, 2**62]
    assert set(huge.predict(X)) <= {0, 2**62}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epsilon": 0}, "epsilon must be > 0, got 0"),
        ({"epsilon": "1"}, "epsilon must be a number, got '1'"),
        ({"delta": 1.0}, r"delta must be in \(0, 1\), got 1.0"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0: the budget is spread"),
        ({"rounds": 2.5}, "rounds must be a whole number, got 2.5"),
        ({"clip": -1.0}, "clip must be a number > 0, got -1.0"),
        ({"bound": 0.0}, "bound must be a number > 0, got 0.0"),
        ({"mechanism": "uniform"}, "mechanism must be 'gaussian' or 'laplace', got 'uniform'"),
        ({"mechanism": "laplace"}, "give bound=.*or clip="),
        ({"adjacency": "zero-out"}, "adjacency must be 'add-remove' or 'replace', got 'zero-out'"),
        ({"noise": "none"}, "noise must be 'secure', 'simulation' or None, got 'none'"),
        (
            {"sizes": {"north": 60, "east": 20}},
            "sizes has no entry for south: declare every client's rows",
        ),
        ({"sizes": 0}, "sizes must be whole numbers >= 1 and at most .*, got 0"),
        ({"prior": "largest"}, "prior must be 'uniform', 'size', numbers or"),
        ({"spend": 0.5}, "spend=0.5 is a part of what a privacy ledger allows, and there is none"),
        (
            {"spend": 2.0, "book": "b.json"},
            "spend must be > 0 and at most the total of the privacy ledger, epsilon = 1, got 2.0",
        ),
        ({"classes": ["ill", "well"]}, r"there are labels that are not among the declared classes"),
        ({"classes": [0, 1]}, r"labels that are not among"),
        ({"classes": ["ill"]}, "two classes or more, got one class.*declare all"),
        ({"regulariser": bf.MCP(0.1, 3.0)}, "needs a convex regulariser, got MCP"),
    ],
)
def test_what_does_not_fit_is_refused(clinics, settings, said):
    X, y, groups = clinics
    with pytest.raises(ValueError, match=said):
        PrivateClassifier(**settings).fit(X, y, groups=groups)


def test_one_class_and_groups_of_two_types_are_refused(clinics):
    X, y, _ = clinics
    with pytest.raises(
        ValueError, match=r"got one class. Where these rows lack the others, declare all"
    ):
        PrivateClassifier().fit(X, ["ill"] * 120, groups=["a"] * 120)
    with pytest.raises(ValueError, match="groups has 1 both as text and as another type"):
        PrivateClassifier().fit(X, y, groups=[1, "1"] * 60)


@pytest.mark.parametrize("cell", ["Zorblax", 7.654e300])
def test_no_cell_is_in_an_error_of_a_fit(clinics, cell):
    X, y, groups = clinics
    X = X.astype(object)
    X[3, 1] = cell
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    for features in (X, table):
        with pytest.raises(ValueError, match=r"in row \d+") as raised:
            PrivateClassifier(rounds=2).fit(features, y, groups=groups)
        said = "".join(traceback.format_exception(raised.value))
        assert "Zorblax" not in said
        assert "7.65" not in said


def test_one_class_for_all_rows_asked_about_is_warned_of_with_the_cut():
    """3 % of positives: no row has a probability above 1/2."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3))
    score = X[:, 0] + rng.logistic(size=2000)
    y = np.where(score > np.quantile(score, 0.97), "ill", "well")
    model = PrivateClassifier(epsilon=4, random_state=0).fit(X, y, groups=np.arange(2000) % 4)
    with pytest.warns(bf.TrivialModelWarning, match="All 2000 rows get the class 'well'") as said:
        model.score(X, y)
    found = re.search(r"probability of 'ill' is ([\d.e-]+)", str(said[0].message))
    assert found is not None
    cut, p = float(found[1]), model.predict_proba(X)[:, 0]
    assert (p > 0.97 * cut).any()
    assert not (p > 1.05 * cut).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X[:19])  # so few may well be of one class
        signal = PrivateClassifier(epsilon=4, random_state=0)
        signal.fit(X, X[:, 0] > 0, groups=np.arange(2000) % 4).predict(X)
    several = PrivateClassifier(epsilon=0.01, classes=["ill", "well", "unknown"], random_state=0)
    several.fit(X, y, groups=np.arange(2000) % 4)
    alike = np.tile(X[:1], (50, 1))
    with pytest.warns(bf.TrivialModelWarning, match="Raise epsilon"):
        several.predict(alike)


# ---- declared ranges


def shifted(n=900):
    rng = np.random.default_rng(3)
    low, high = np.array([0.0, 100.0, -3.0]), np.array([10.0, 300.0, 3.0])
    X = rng.uniform(low + 0.6 * (high - low), high, (n, 3))
    z = (X - (low + high) / 2) / ((high - low) / 2)
    return X, z, (low, high), z @ [1.0, -1.0, 0.5]


def test_ranges_scale_rows_in_fit_and_in_predictions():
    X, z, ranges, rule = shifted()
    for y in (np.where(rule > 0.35, "a", "b"), np.digitize(rule, [0.0, 0.6])):
        settings = {"rounds": 30, "epsilon": 4, "delta": 1e-5, "random_state": 0}
        mine = bf.PrivateClassifier(ranges=ranges, **settings).fit(X, y, groups=GROUPS_3)
        theirs = bf.PrivateClassifier(ranges=(-1, 1), **settings).fit(z, y, groups=GROUPS_3)
        np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-3)
        centre, half = np.array(mine.centre_), np.ptp(ranges, axis=0) / 2
        rows = np.column_stack([(X - centre) / half, np.full(len(X), 0.15 * 3**0.5)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        scores = rows @ np.column_stack([mine.coef_, mine.intercept_]).T
        found = mine.decision_function(X).reshape(len(X), -1)
        np.testing.assert_allclose(found, scores, atol=1e-12)
        assert mine.score(X, y) > 0.8
        assert {*mine.history_[0]} >= {"step", "noise"}
        assert 3.9 < mine.privacy_.epsilon <= 4


@pytest.mark.usefixtures("no_noise")
def test_without_noise_the_centre_is_the_weighted_mean():
    X, z, ranges, rule = shifted()
    model = bf.PrivateClassifier(ranges=ranges, rounds=2, epsilon=1e4, delta=0.5)
    model.fit(X, rule > 0.3, groups=GROUPS_3)
    weight = 1 / np.sqrt((z**2).sum(1) + 3 / 4)
    mean = (weight[:, None] * z).sum(0) / weight.sum()
    low, high = ranges
    np.testing.assert_allclose(
        (model.centre_ - (low + high) / 2) / ((high - low) / 2), mean, rtol=1e-3
    )


def test_much_noise_leaves_the_centre_in_the_middle():
    X, _, ranges, rule = shifted(30)
    model = bf.PrivateClassifier(0.01, ranges=ranges, rounds=1, random_state=0)
    model.fit(X, rule > 0.3, groups=GROUPS_3[::30])
    np.testing.assert_array_equal(model.centre_, np.mean(ranges, axis=0))


def test_the_centre_is_charged(tmp_path):
    """Its noise and that of the rounds come to the total, with a ledger file and without."""
    X, _, ranges, rule = shifted()
    fit = (X, rule > 0.3, GROUPS_3)
    settings = {"ranges": ranges, "rounds": 5, "delta": 1e-5, "random_state": 0}

    def fitted(**more):
        model = bf.PrivateClassifier(**settings, **more)
        return model.fit(*fit[:2], groups=fit[2])

    alone = fitted(epsilon=2.0).privacy_
    before, own = alone.before["x"], alone.releases["x"]
    assert [r.count for r in (*before, *own)] == [1, 5]
    assert 1.99 < total_epsilon((*before, *own), 1e-5) == alone.epsilon <= 2
    share = before[0].noise ** -2 / (before[0].noise ** -2 + 5 * own[0].noise ** -2)
    assert share == pytest.approx(0.1, rel=1e-2)
    book = tmp_path / "book.json"
    first = fitted(epsilon=2.0, book=book, spend=1.0).privacy_
    assert 0.99 < first.epsilon <= 1
    assert len(_runs(book)) == 2
    with pytest.raises(bf.BudgetSpentError, match="nothing was touched"):
        fitted(epsilon=2.0, book=book, spend=1.9)
    assert len(_runs(book)) == 2  # the mean was not released either
    rest = fitted(epsilon=2.0, book=book)
    assert 1.99 < rest.privacy_.epsilon <= 2
    with pytest.raises(bf.BudgetSpentError, match="is spent"):
        fitted(epsilon=2.0, book=book)
    assert len(_runs(book)) == 4


def test_whoever_sees_sums_alone_needs_less_noise():
    X, _, ranges, rule = shifted()
    settings = {"ranges": ranges, "rounds": 5, "delta": 1e-5, "epsilon": 2.0, "random_state": 0}
    answers, sums = (
        bf.PrivateClassifier(**settings, view=view, missing=1).fit(X, rule > 0.3, groups=GROUPS_3)
        for view in ("answers", "sum")
    )
    for model in (answers, sums):
        ledger = model.privacy_
        assert 1.99 < ledger.epsilon <= 2
        assert ledger.budget.view == model.view
    # the centre's answer and the rounds' are of one view; two of three clients' noise is enough
    ratio = sums.history_[0]["noise"] / answers.history_[0]["noise"]
    assert ratio == pytest.approx(1 / math.sqrt(2), rel=1e-3)
    assert answers.privacy_.epsilon_of("sum") < 2
    assert sums.privacy_.epsilon_of("answers") is None  # that of the centre's answer is not kept
    with pytest.raises(ValueError, match="view='sum' the method is PrivateSGD"):
        bf.PrivateClassifier(view="sum", rho=1.0).fit(X, rule > 0.3, groups=GROUPS_3)


@pytest.mark.parametrize("spend", [None, 0.5])
def test_in_sums_the_client_whose_rows_count_most_pays_most(tmp_path, spend):
    X, _, ranges, rule = shifted()
    groups = np.repeat(["x", "y"], [860, 40])  # alike in the objective: rows of y count for more
    model = bf.PrivateClassifier(
        ranges=ranges, rounds=4, view="sum", missing=0, prior="uniform", spend=spend
    )
    model.set_params(book=None if spend is None else tmp_path / "book.json")
    ledger = model.fit(X, rule > 0.3, groups=groups).privacy_
    if spend is None:
        spent = {name: (*ledger.before[name], *ledger.releases[name]) for name in "xy"}
    else:
        spent = Book(tmp_path / "book.json").spent(["x", "y"])
    (centre, rounds), (more_centre, more_rounds) = spent["y"], spent["x"]
    assert more_centre.noise / centre.noise == pytest.approx(860 / 40, rel=1e-3)
    assert more_rounds.noise / rounds.noise == pytest.approx(860 / 40, rel=1e-3)
    total = 1.0 if spend is None else spend
    assert 0.99 * total < total_epsilon(spent["y"], 1e-6) == ledger.epsilon <= total


def test_a_sample_of_rows_in_every_round():
    X, _, ranges, rule = shifted()
    model = bf.PrivateClassifier(4.0, 1e-5, ranges=ranges, rounds=30, sampling=0.3, random_state=0)
    model.fit(X, rule > 0.3, groups=GROUPS_3)
    assert {r.sampling for r in model.privacy_.releases["x"]} == {0.3}
    assert 3.9 < model.privacy_.epsilon <= 4
    assert model.score(X, rule > 0.3) > 0.8


def test_rows_that_cannot_be_centred_are_scaled_alone():
    X, z, _, rule = shifted()
    y = rule > 0.3
    settings = {"ranges": (-1, 1), "rounds": 5, "random_state": 0, "epsilon": 4}
    for more in ({"mechanism": "laplace", "bound": 2.0}, {"fit_intercept": False}):
        model = bf.PrivateClassifier(**settings, **more).fit(z, y, groups=GROUPS_3)
        np.testing.assert_array_equal(model.centre_, np.zeros(3))
        assert model.privacy_.before.get("x", ()) == ()
        assert model.coef_.shape == (1, 3)
    thin = bf.PrivateClassifier(**settings).fit(csr_array(z), y, groups=GROUPS_3)
    found = thin.decision_function(csr_array(z))
    np.testing.assert_allclose(found, thin.decision_function(z), atol=1e-12)
    assert len(X) == len(found)


def test_ranges_take_gradient_descent_and_its_settings_alone():
    rows, y = np.eye(3).repeat(20, 0), np.tile([0, 1], 30)
    for more in ({"rho": 1.0}, {"average": True}):
        for chosen in ({"ranges": (0, 1)}, {"sampling": 0.5}):
            with pytest.raises(ValueError, match="with ranges, sampling or view='sum' the"):
                bf.PrivateClassifier(**chosen, **more).fit(rows, y, groups=y)
    with pytest.raises(ValueError, match="ranges must be a pair"):
        bf.PrivateClassifier(ranges=(1, 0)).fit(rows, y, groups=y)


GROUPS_3 = np.repeat(["x", "y", "z"], 300)
