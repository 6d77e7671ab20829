"""PrivateSearch: what it charges and when, what it leaves, and that one record moves one part."""

import json
import math
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import bonafed as bf
from bonafed import PrivateClassifier, PrivateSearch
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.estimators import base, private_search
from bonafed.model_selection import WithinClients
from bonafed.privacy.accounting import total_epsilon
from bonafed.privacy.ledger import Book

SETTINGS = {"clip": [0.5, 1.0], "rounds": [3, 5]}


@pytest.fixture
def rows():
    """900 rows of two classes and three clients."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((900, 3))
    y = np.where(X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(900) > 0, "ill", "well")
    return X, y, rng.choice(["east", "north", "south"], 900)


def search(settings=SETTINGS, estimator=None, **params):
    stated = {"epsilon": 4.0, "delta": 1e-5, "mean_candidates": 3}
    return PrivateSearch(estimator or PrivateClassifier(), settings, **{**stated, **params})


def test_it_releases_one_model_with_its_settings_and_the_total(rows):
    X, y, groups = rows
    found = search().fit(X, y, groups=groups)
    assert set(found.best_params_) == {"clip", "rounds"}
    assert found.best_estimator_.rounds == found.best_params_["rounds"]
    assert found.best_estimator_.n_iter_ == found.best_params_["rounds"]
    ledger = found.privacy_
    assert ledger is found.best_estimator_.privacy_
    assert ledger.guarantee
    assert 3.99 < ledger.epsilon <= 4
    assert ledger.sizes == {name: (groups == name).sum() for name in ("east", "north", "south")}
    for words in (
        "one search",
        "poisson, mean 3",
        "drawn from 4",
        "not for anyone who sees the answers",
    ):
        assert words in ledger.text
    assert "every answer of every client" not in ledger.text
    assert (found.predict(X) == found.best_estimator_.predict(X)).all()
    assert found.predict_proba(X).shape == (900, 2)
    assert found.decision_function(X).shape == (900,)
    assert found.classes_.tolist() == ["ill", "well"]
    assert abs(found.best_score_ - found.score(X, y)) < 0.2


def test_nothing_of_the_losers_is_left(rows, monkeypatch):
    X, y, groups = rows
    chance, made = private_search.random.Random(5), []
    real = PrivateClassifier.fit

    def fit(self, *given, **more):
        made.append(self)
        return real(self, *given, **more)

    monkeypatch.setattr(PrivateClassifier, "fit", fit)
    monkeypatch.setattr(private_search, "drawn_number", lambda *_: 4)
    monkeypatch.setattr(private_search.random, "SystemRandom", lambda: chance)
    found = search().fit(X, y, groups=groups)
    losers = [model for model in made[-4:] if model is not found.best_estimator_]
    assert len(losers) == 3
    kept = pickle.dumps(found) + json.dumps(found.privacy_.table(), default=str).encode()
    for loser in losers:
        assert loser.coef_.tobytes() not in kept
    assert set(vars(found)) - set(found.get_params(deep=False)) == {
        *("best_estimator_", "best_params_", "best_score_", "classes_", "n_features_in_"),
        "privacy_",
    }
    alone = PrivateClassifier(rounds=3).fit(X, y, groups=groups)
    assert set(vars(found.best_estimator_)) == set(vars(alone))
    assert found.best_estimator_.get_params() == {
        **PrivateClassifier(4.0, 1e-5).get_params(),
        **found.best_params_,
    }


def test_it_prefers_settings_that_are_better(rows):
    X, y, groups = rows
    bad, good = bf.Bounds(0.0, 0.0), bf.Bounds(-9.0, 9.0)  # the first has one class for all rows
    one = search({"regulariser": [bad, good]}, PrivateClassifier(rounds=3), mean_candidates=8)
    found = [clone(one).set_params(random_state=k).fit(X, y, groups=groups) for k in range(5)]
    wins = sum(each.best_params_["regulariser"] == good for each in found)
    assert wins >= 4, "one candidate alone finds it in half of all searches"


def test_a_seed_simulates_and_repeats(rows):
    X, y, groups = rows
    first, second = (search(random_state=7).fit(X, y, groups=groups) for _ in range(2))
    assert first.best_params_ == second.best_params_
    assert (first.best_estimator_.coef_ == second.best_estimator_.coef_).all()
    assert first.best_score_ == second.best_score_
    assert not first.privacy_.guarantee
    assert "simulation" in first.privacy_.text
    other = search(random_state=8).fit(X, y, groups=groups)
    assert (other.best_estimator_.coef_ != first.best_estimator_.coef_).any()
    assert first.best_estimator_.random_state is None


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_every_candidate_has_the_noise_that_is_charged(rows, monkeypatch, adjacency):
    X, y, groups = rows
    scored, trained = [], []

    def noise(kind, parameter, key, size):
        scored.append((kind, parameter, len({*key}) > 1, size))
        return np.zeros(size, np.int64)

    def check(model, release):
        trained.append((model.privacy_.releases["east"][0], model.privacy_.budget.adjacency))

    monkeypatch.setattr(private_search, "discrete_noise", noise)
    monkeypatch.setattr(private_search, "_check_noise", check)
    monkeypatch.setattr(private_search, "drawn_number", lambda *_: 5)
    found = search(estimator=PrivateClassifier(adjacency=adjacency)).fit(X, y, groups=groups)
    (release,) = found.privacy_.releases["north"]
    spread = Fraction(1 if adjacency == "add-remove" else 2)
    variance = math.ceil((spread * Fraction(release.noise)) ** 2) + 4
    assert scored == 5 * [("gaussian", variance, True, 1)]
    for one, kind in trained:
        assert kind == adjacency
        # as private as the release, and not needlessly more
        assert 1 <= one.noise / (release.noise * math.sqrt(one.count)) < 1.001


def test_a_candidate_with_less_noise_than_is_charged_is_an_error(rows, monkeypatch):
    X, y, groups = rows
    real = private_search.gaussian_epsilon
    monkeypatch.setattr(private_search, "gaussian_epsilon", lambda *given: 1.01 * real(*given))
    with pytest.raises(ArithmeticError, match="other noise"):
        search().fit(X, y, groups=groups)


# ---- one record


def test_one_record_more_is_in_one_part_and_moves_no_other(rows):
    X, y, groups = rows
    whole = search()._apart(private_search.Rows(X, y, groups.tolist(), None))
    sizes = [len(part.y) for part in whole]
    assert sum(sizes) == 900
    assert sizes[1] == pytest.approx(180, abs=60)
    for i in range(0, 900, 97):
        left = np.arange(900) != i
        less = search()._apart(private_search.Rows(X[left], y[left], groups[left].tolist(), None))
        parts = [
            (
                {
                    (*row, label, who)
                    for row, label, who in zip(p.X.tolist(), p.y, p.groups, strict=True)
                }
            )
            for p in (*whole, *less)
        ]
        gone = [parts[0] - parts[2], parts[1] - parts[3]]
        assert sorted(map(len, gone)) == [0, 1]
        assert parts[2] <= parts[0]
        assert parts[3] <= parts[1]


@pytest.mark.parametrize("ranges", [None, (-4.0, 4.0)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_answer_for_a_row_has_the_same_bits_whatever_stands_beside_it(ranges, kind):
    """Else one record could turn the answers of several rows that lie on the border."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((700, 37)), rng.integers(0, 3, 700)
    model = PrivateClassifier(rounds=2, random_state=0, ranges=ranges, fit_intercept=False)
    model.fit(X, y, groups=["a"] * 700)
    rows = csr_array(X) if kind == "sparse" else X

    def scores(part):
        return private_search._scores(part if ranges is None else model._unit(part), model.coef_)

    whole = scores(rows)
    for start, stop in ((0, 1), (3, 4), (1, 700), (5, 9), (123, 456)):
        part = scores(rows[start:stop])
        assert part.tobytes() == whole[start:stop].tobytes()
    assert (private_search._labels(model, rows) == model.predict(rows)).mean() > 0.99


# ---- the ledger file


def test_it_is_charged_as_one_run_and_a_second_one_is_refused(rows, tmp_path):
    X, y, groups = rows
    book = tmp_path / "book.json"
    found = search(book=book).fit(X, y, groups=groups)
    (run,) = Book(book).runs()
    assert run["state"] == "ended"
    assert set(run["releases"]) == {"east", "north", "south"}
    ((law, _, count, _, mean),) = run["releases"]["east"]
    assert (law, count, mean) == ("poisson", 1, 3.0)
    assert Book(book).knows(found.privacy_.book)
    written = book.read_text()
    for more in (search(book=book), PrivateClassifier(4.0, 1e-5, rounds=3, book=book)):
        with pytest.raises(bf.BudgetSpentError):
            more.fit(X, y, groups=groups)
    assert book.read_text() == written


def test_searches_and_fits_share_a_ledger_file(rows, tmp_path):
    X, y, groups = rows
    book = tmp_path / "book.json"
    first = search(book=book, spend=2.0).fit(X, y, groups=groups)
    assert 1.99 < first.privacy_.epsilon <= 2
    PrivateClassifier(4.0, 1e-5, rounds=3, book=book, spend=1.5).fit(X, y, groups=groups)
    last = search(book=book).fit(X, y, groups=groups)
    spent = Book(book).spent(["east"])["east"]
    assert len(spent) == 3
    assert 3.99 < last.privacy_.epsilon <= 4
    assert total_epsilon(spent, 1e-5) == pytest.approx(last.privacy_.epsilon)
    fit = PrivateClassifier(4.1, 1e-5, rounds=3, book=book).fit(X, y, groups=groups)
    for words in ("every answer of every client", "Of the searches before this run"):
        assert words in fit.privacy_.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_search_that_breaks_off_has_spent_its_charge(rows, tmp_path, monkeypatch, error):
    X, y, groups = rows
    real, calls = private_search._labels, []

    def labels(model, X):
        calls.append(1)
        if len(calls) == 2:
            raise error
        return real(model, X)

    monkeypatch.setattr(private_search, "_labels", labels)
    monkeypatch.setattr(private_search, "drawn_number", lambda *_: 3)
    one = search(book=tmp_path / "book.json")
    with pytest.raises(error):
        one.fit(X, y, groups=groups)
    assert not hasattr(one, "best_estimator_")
    spent = Book(tmp_path / "book.json").spent(["east"])["east"]
    assert 3.99 < total_epsilon(spent, 1e-5) <= 4


def test_a_candidate_that_is_interrupted_ends_the_search(rows, monkeypatch):
    X, y, groups = rows

    def unfinished(solution, category):
        warnings.warn("unfinished", category, stacklevel=2)

    monkeypatch.setattr(base, "warn_of", unfinished)

    def interrupted(model, release):
        model.n_iter_ = model.rounds - 1
        return real(model, release)

    real = private_search._check_noise
    monkeypatch.setattr(private_search, "_check_noise", interrupted)
    with pytest.raises(KeyboardInterrupt, match="spent its charge"):
        search().fit(X, y, groups=groups)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"estimator": bf.RobustClassifier()}, "such as PrivateClassifier"),
        ({"estimator": PrivateClassifier(mechanism="laplace", clip=1.0)}, "mechanism"),
        ({"settings": {"epsilon": [1.0, 2.0]}}, "cannot differ"),
        ({"settings": {"sampling": [0.1, 0.5]}}, "cannot differ"),
        ({"estimator": PrivateClassifier(view="sum")}, "Leave both out"),
        ({"estimator": PrivateClassifier(sampling=0.5)}, "Leave both out"),
        ({"settings": {"clip": [1.0], "sizes": [5]}}, "sizes, in which candidates cannot"),
        ({"settings": {"clip": [1.0, -1.0]}}, "clip must be"),
        ({"settings": {"rho": [1.0], "ranges": [(-1, 1)]}}, "rho and average"),
        ({"settings": {"regulariser": [bf.L2(0.1), 3]}}, "regulariser"),
        ({"settings": {"nothing": [1]}}, "nothing"),
        ({"settings": {"clip": 1.0}}, "clip"),
        ({"mean_candidates": 1}, "above 1"),
        ({"mean_candidates": 1e4}, "at most 1000"),
        ({"mean_candidates": "ten"}, "must be a number"),
        ({"number": "uniform"}, "poisson, geometric, logarithmic"),
        ({"validation": 1.0}, "below 1"),
        ({"validation": 1e-9}, "would judge"),
        ({"spend": 5.0}, "spend"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"estimator": PrivateClassifier(classes=["ill", "fine"])}, "declared classes"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_charged(
    rows, tmp_path, change, text
):
    X, y, groups = rows
    book = tmp_path / "book.json"
    with pytest.raises((ValueError, TypeError), match=text):
        search(**{"book": book, **change}).fit(X, y, groups=groups)
    assert not book.exists()


# ---- rows of other kinds, scikit-learn


def test_declared_sizes_count_and_clients_without_rows_take_part(rows, monkeypatch):
    X, y, groups = rows
    monkeypatch.setattr(noisy_gradient, "add_noise", lambda *given: None)
    sizes = {"east": 310, "north": 300, "south": 290, "west": 40}
    found = search(estimator=PrivateClassifier(sizes=sizes)).fit(X, y, groups=groups)
    assert found.privacy_.sizes == sizes
    assert found.best_estimator_.clients_.tolist() == sorted(sizes)
    assert found.best_estimator_.sizes == sizes
    assert "sizes as declared" in found.privacy_.text


def test_three_classes_sparse_rows_and_no_groups(rows):
    X, _, _ = rows
    y = X.argmax(1)
    sparse = csr_array(np.where(np.abs(X) > 0.3, X, 0.0))
    with pytest.warns(bf.MissingGroupsWarning):
        found = search({"clip": [0.5, 1.0]}, PrivateClassifier(rounds=4)).fit(sparse, y)
    assert found.predict(sparse).shape == (900,)
    assert found.score(sparse, y) > 0.5


def test_it_is_an_estimator_of_scikit_learn_with_other_parts_than_folds_by_row(rows):
    X, y, groups = rows
    one = search(random_state=0)
    with pytest.raises(NotFittedError):
        one.predict(X)
    assert clone(one).get_params()["settings"] == SETTINGS
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            one, X, y, cv=WithinClients(2, by_row=True), params={"groups": groups}
        )
    assert scores.min() > 0.7


def test_rows_of_declared_ranges_are_centred_within_a_candidates_noise(rows):
    X, y, groups = rows
    X, estimator = X + 3, PrivateClassifier(ranges=(-2.0, 8.0), rounds=4)
    one = search({"clip": [0.2, 0.4]}, estimator, epsilon=8.0, random_state=0)
    found = one.fit(X, y, groups=groups)
    model = found.best_estimator_
    assert model.centre_.any()
    assert 7.99 < found.privacy_.epsilon <= 8
    assert (private_search._labels(model, X) == model.predict(X)).mean() > 0.99
