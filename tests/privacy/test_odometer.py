"""Several private runs without a ledger file on the same rows: they are noticed, added up, and
refused where that is asked for.
"""

import hashlib
import pickle
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import bonafed as bf
from bonafed import Budget, BudgetSpentError, InProcess, PrivateClassifier, RepeatedRunWarning
from bonafed.algorithms.federated import private_admm as private_client
from bonafed.model_selection import WithinClients, cross_validate
from bonafed.privacy import odometer
from bonafed.privacy.accounting import Release, noise_for, total_epsilon

DELTA = 1e-5
pytestmark = pytest.mark.filterwarnings("error::bonafed.privacy.odometer.RepeatedRunWarning")


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(300) > 0, "ill", "well")
    return X, y, rng.choice(["east", "west"], 300)


def federation(table):
    X, y, groups = table
    return bf.Federation.from_arrays(X, y, groups)


def solve(fed, epsilon=1.0, **options):
    budget = Budget(epsilon, DELTA, **options.pop("budget", {}))
    return bf.solve(
        bf.Problem(bf.Logistic(), privacy=budget), fed, max_rounds=options.pop("T", 3), **options
    )


def order(table, seed=1):
    at = np.random.default_rng(seed).permutation(len(table[1]))
    return tuple(part[at] for part in table)


def regrouped(table):
    X, y, groups = table
    return X, y, np.where(np.arange(len(y)) % 3 == 0, "north", groups)


def one_client_changed(table):
    X, y, groups = table
    return np.where((groups == "west")[:, None], X + 1.0, X), y, groups


def sparse(table):
    X, y, groups = table
    return csr_array(X), y, groups


@pytest.mark.parametrize("change", [lambda t: t, order, regrouped, one_client_changed, sparse])
def test_the_same_rows_are_noticed(table, change):
    """All or one client's, in any order, of other clients, dense or sparse."""
    solve(federation(table))
    with pytest.raises(RepeatedRunWarning, match="an earlier private run of this process"):
        solve(federation(change(table)))


def test_other_rows_are_not(table):
    X, y, groups = table
    solve(federation(table))
    for other in (X + 1e-9, X[:, ::-1], X * np.sign(X), np.roll(X, 1, axis=1)):
        solve(federation((np.ascontiguousarray(other), y, groups)))
    solve(federation((X[:-1], y[:-1], np.where(np.arange(299) < 100, "a", "b"))))


def test_tables_of_small_whole_numbers_differ():
    """Their bits are zeros at the end, and hashes that ignore that agree."""
    rng = np.random.default_rng(0)
    found = {odometer._digest(rng.integers(0, 2, (5, 8)).astype(float)) for _ in range(2000)}
    assert len(found) == 2000
    X = rng.integers(0, 2, (50, 8)) * 1.0
    assert odometer._digest(X) == odometer._digest(csr_array(X))
    assert odometer._digest(X) == odometer._digest(np.where(X[::-1] == 0, -0.0, X[::-1]))
    assert odometer._digest(X) != odometer._digest(np.vstack([X, np.zeros((1, 8))]))


def test_the_warning_says_how_much_once_for_each_data_set(table):
    fed = federation(table)
    first = solve(fed)
    with pytest.warns(RepeatedRunWarning) as caught:
        second = solve(fed, 2.0)
    (one,) = caught
    assert one.filename == __file__
    spent = [*first.ledger.releases["east"], *second.ledger.releases["east"]]
    for words in (
        f"spent epsilon = {first.ledger.epsilon:.4g} at delta = 1e-05",
        f"With this run it may be {total_epsilon(spent, DELTA):.4g}, and 2 is stated",
        "book=<a file>",
    ):
        assert words in str(one.message)
    solve(fed)  # the third run: it was told


def test_a_run_is_refused_where_the_total_would_exceed_the_budget(table, monkeypatch):
    fed = federation(table)
    solve(fed, 1.0)
    with pytest.warns(RepeatedRunWarning):
        solve(fed, 1.0)

    def touched(*_):
        raise AssertionError("the rows were touched")

    with monkeypatch.context() as patch:
        patch.setattr(private_client, "perturb", touched)
        with pytest.raises(BudgetSpentError, match=r"2 earlier private runs.*Nothing was released"):
            solve(fed, 1.0, budget={"repeat": "error"})
    spent = [r for digest in odometer._counts.values() for count in digest for r in count.releases]
    assert len(spent) == 3 * 2, "the refused run is not counted"


def test_a_repeat_within_the_budget_is_not_refused(table):
    """A run by itself takes all of its budget; one that takes a part may have company."""
    fed, budget = federation(table), Budget(2.0, DELTA, repeat="error")
    half = (Release("gaussian", noise_for(Budget(1.0, DELTA), 4), 4),)
    odometer.counted(fed, fed.X, half, budget)
    with pytest.warns(RepeatedRunWarning, match=r"it may be 1\.4"):
        odometer.counted(fed, fed.X, half, budget)
    odometer.counted(fed, fed.X, half, budget)
    with pytest.raises(BudgetSpentError):
        odometer.counted(fed, fed.X, half, budget)


def stop_at(t):
    def see(row, state):
        if row["round"] == t:
            raise KeyboardInterrupt

    return see


def test_replaced_records_count_as_what_they_are(table):
    fed = federation(table)
    one = solve(fed).ledger.releases["east"][0]
    with pytest.warns(RepeatedRunWarning) as caught:
        solve(fed, budget={"adjacency": "replace"})
    twice = total_epsilon([replace(one, noise=one.noise / 2)], DELTA)
    assert f"spent epsilon = {twice:.4g}" in str(caught[0].message)


def test_runs_without_a_guarantee_or_with_a_ledger_file_do_not_count(table, tmp_path):
    fed = federation(table)
    book = {"book": tmp_path / "book.json"}
    for _ in range(2):
        solve(fed, algorithm=bf.PrivateADMM(noise="simulation"))
        bf.solve(bf.Problem(bf.Logistic()), fed, max_rounds=2)
        solve(fed, 3.0, budget=book, watch=[stop_at(1)])
    solve(fed)
    solve(fed, algorithm=bf.PrivateADMM(noise="simulation"))


def test_a_run_that_goes_on_is_no_other_run(table, tmp_path):
    fed, engine = federation(table), InProcess(checkpoint=tmp_path / "run.bft")
    first = solve(fed, engine=engine, watch=[stop_at(1)])
    assert [one.releases[0].count for one in odometer._counts[max(odometer._counts)]] == [1]
    last = solve(fed, engine=engine, resume=True)
    assert (first.rounds, last.rounds) == (1, 3)
    assert {len(counts) for counts in odometer._counts.values()} == {1}
    assert [one.releases[0].count for one in odometer._counts[max(odometer._counts)]] == [3]
    with pytest.raises(RepeatedRunWarning):
        solve(fed, engine=engine)


def test_a_run_that_fails_counts_for_what_it_may_have_released(table):
    fed = federation(table)

    def fail(row, state):
        raise RuntimeError("the watcher fails")

    with pytest.raises(RuntimeError):
        solve(fed, T=50, watch=[fail])
    assert {c.releases[0].count for each in odometer._counts.values() for c in each} == {2}


def test_fits_and_searches_are_noticed(table):
    X, y, groups = table
    PrivateClassifier(rounds=2).fit(X, y, groups=groups)
    with pytest.warns(RepeatedRunWarning) as caught:
        PrivateClassifier(rounds=2, clip=0.5).fit(X, y, groups=groups)
    assert len(caught) == 1
    odometer.forget()
    search = bf.PrivateSearch(PrivateClassifier(rounds=2), {"clip": [1.0, 2.0]}, epsilon=2.0)
    search.set_params(mean_candidates=4).fit(X, y, groups=groups)  # its candidates are one run
    assert {len(counts) for counts in odometer._counts.values()} == {1}
    with pytest.raises(RepeatedRunWarning, match="spent epsilon = 2 at"):
        PrivateClassifier(rounds=2).fit(X, y, groups=groups)
    odometer.forget()
    folds = WithinClients(2, by_row=True)
    cross_validate(PrivateClassifier(rounds=2), X, y, groups=groups, cv=folds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_validate(PrivateClassifier(rounds=2), X, y, groups=groups, cv=folds)
    assert sum(w.category is RepeatedRunWarning for w in caught) == 2, "one for each training part"


def test_a_fit_is_one_run_of_the_rows_that_it_was_given(table):
    """With the answer that tells the centre, and whatever declared ranges make of the rows."""
    X, y, groups = table
    fits = [
        PrivateClassifier(1.0, DELTA, rounds=2, ranges=ranges).fit
        for ranges in ((-4, 4), (-4, 4.001), None)
    ]
    spent = [*released(fits[0](X, y, groups=groups))]
    for fit in fits[1:]:
        with pytest.warns(RepeatedRunWarning) as caught:
            model = fit(*order((X, y, groups))[:2], groups=order(table)[2])
        (one,) = caught
        assert one.filename == __file__
        before, spent = total_epsilon(spent, DELTA), [*spent, *released(model)]
        assert f"spent epsilon = {before:.4g} at" in str(one.message)
        assert f"may be {total_epsilon(spent, DELTA):.4g}, and 1 is" in str(one.message)
        odometer._warned.clear()
    assert {len(counts) for counts in odometer._counts.values()} == {3}
    with pytest.raises(RepeatedRunWarning, match="3 earlier private runs"):
        solve(federation(table))
    # other rows that scaling makes alike
    PrivateClassifier(rounds=2, ranges=(-8, 8)).fit(2 * X, y, groups=groups)


def released(model):
    """What a fit without a ledger file has released of a client's rows."""
    return (*model.privacy_.before.get("east", ()), *model.privacy_.releases["east"])


def test_a_fit_is_refused_before_it_releases_anything(table, monkeypatch):
    X, y, groups = table
    model = PrivateClassifier(1.0, DELTA, rounds=2, ranges=(-4, 4), repeat="error")
    with pytest.raises(ValueError, match="not among the declared classes"):
        PrivateClassifier(classes=["well", "dead"]).fit(X, y, groups=groups)
    model.fit(X, y, groups=groups)  # the one before has spent nothing
    with monkeypatch.context() as patch:
        patch.setattr(private_client, "perturb", None)
        with pytest.raises(BudgetSpentError, match=r"may be 1\.4.*Nothing was released"):
            model.fit(X, y, groups=groups)
        model.set_params(random_state=0)
    model.fit(X, y, groups=groups)  # simulated noise
    assert {len(counts) for counts in odometer._counts.values()} == {2}
    search = bf.PrivateSearch(model.set_params(random_state=None), {"clip": [1.0]}, delta=DELTA)
    with pytest.raises(BudgetSpentError, match="Nothing was released"):
        search.fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="settings has repeat"):
        search.set_params(settings={"repeat": ["warn"]}).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="repeat must be"):
        model.set_params(repeat="never").fit(X, y, groups=groups)


@pytest.mark.parametrize(
    ("first", "second", "as_answers"),
    [
        (("sum", 1), ("answers", 1), True),
        (("sum", 1), ("sum", 2), True),
        (("sum", 2), ("sum", 1), False),
        (("answers", 1), ("sum", 2), False),
    ],
)
def test_runs_in_other_views_never_count_for_less(table, first, second, as_answers):
    """For whoever sees answers, or knows more clients' noise, sums count as answers."""
    X, y, _ = table
    fed = bf.Federation.from_arrays(X, y, np.arange(300) % 3)
    views = [dict(zip(("view", "missing"), view, strict=True)) for view in (first, second)]
    ledger = solve(fed, budget=views[0]).ledger
    with pytest.warns(RepeatedRunWarning) as caught:
        solve(fed, budget=views[1])
    spent = ledger.epsilon_of("answers" if as_answers else first[0])
    assert spent > 1.4 or not as_answers
    assert f"spent epsilon = {spent:.4g} at" in str(caught[0].message)


def test_the_most_of_all_clients_counts(table):
    """Two cheap runs on the rows of one client are less than a dear one on those of another."""
    X, y, groups = table
    east = groups == "east"
    for epsilon in (0.1, 0.1001):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RepeatedRunWarning)
            solve(federation((X[east], y[east], groups[east])), epsilon)
    dear = solve(federation((X[~east], y[~east], groups[~east])), 3.0).ledger
    with pytest.warns(RepeatedRunWarning, match=f"spent epsilon = {dear.epsilon:.4g} at"):
        solve(federation(table))


def test_sampling_saves_nothing_where_records_are_replaced(table):
    fed, sampled = federation(table), bf.PrivateSGD(sampling=0.1, max_rounds=3)
    (one,) = solve(fed, T=None, algorithm=sampled).ledger.releases["east"]
    with pytest.warns(RepeatedRunWarning) as caught:
        solve(fed, budget={"adjacency": "replace"})
    total = total_epsilon([one.replacing(0.5)], DELTA)
    assert f"spent epsilon = {total:.4g} at" in str(caught[0].message)


def test_rows_are_hashed_once_and_nothing_of_it_is_kept_with_them(table, monkeypatch):
    fed, calls = federation(table), []
    real = odometer._digest
    monkeypatch.setattr(odometer, "_digest", lambda X: calls.append(1) or real(X))
    assert fed.sizes.sum() == 300  # which are kept
    before = len(pickle.dumps(fed))
    solution = solve(fed)
    with pytest.warns(RepeatedRunWarning):
        solve(fed)
    assert len(calls) == 2, "one for each client"
    assert len(pickle.dumps(fed)) == before
    digest = str(max(odometer._counts))
    assert digest not in repr(solution.ledger) + str(vars(solution.public()))


def test_rows_cost_little():
    """Little more than one pass over their bytes."""
    X = np.random.default_rng(0).standard_normal((20_000, 100))

    def seconds(call):
        began = time.process_time()
        call()
        return time.process_time() - began

    def little():
        one_pass = seconds(lambda: hashlib.sha256(X).digest())
        return seconds(lambda: odometer._digest(X)) < 10 * one_pass

    # what else the machine does only adds to a time: one try of many shows it
    assert any(little() for _ in range(20))


def test_repeat_is_one_of_two():
    with pytest.raises(ValueError, match="repeat must be"):
        Budget(1.0, DELTA, repeat="never")
