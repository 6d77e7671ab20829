"""What a refusal advises is accepted where it is followed, and what nobody meant is remarked on."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from met import met
from sklearn.linear_model import LogisticRegression

import bonafed as bf
from bonafed.algorithms.alternatives import RefusedError, check_requirements, known_methods
from bonafed.algorithms.requirements import Setting
from bonafed.names import NAMED, load

RANGES: dict[str, Any] = {
    "RankedRange": bf.RankedRange(20, 5),
    "ValueAtRisk": bf.ValueAtRisk(0.9),
    "Median": bf.Median(),
    "HumanAligned": bf.HumanAligned(0.5, 0.5),
}


def federation(classes: int = 2) -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(60), np.linspace(-0.5, 0.5, classes - 1))
    return bf.Federation.from_arrays(X, y, np.repeat(["north", "east", "south"], 20))


@met(
    "E",
    "over_rows=RankedRange(20, 5) over three clients",
    "use over_samples=RankedRange(...), which AFL() takes: another risk, unproven at a cap",
    "use over_samples=RankedRange(...) on fed.pooled(), the same risk there: RankADMM()",
)
@met(
    "E",
    "over_rows=ValueAtRisk(.9), Median(), HumanAligned(.5, .5)",
    "the same advice",
    "the same risk on pooled rows",
    "over_rows=RankedRange(20, 5)",
)
@met(
    "E",
    "over_rows=RankedRange(20, 5) with RankADMM() over three clients, or with the default over one",
    "use over_samples=RankedRange(...), which AFL() takes; then over_rows=Superquantile(0.1)",
    "over_samples=RankedRange(...), the same risk on pooled rows or for the one client",
    "over_rows=RankedRange(20, 5)",
)
@pytest.mark.parametrize("risk", RANGES.values(), ids=RANGES)
def test_a_risk_of_all_rows_is_advised_where_it_is_the_same(risk):
    fed, h = federation(), bf.L2(0.1)
    problem = bf.Problem(bf.Logistic(), over_rows=risk, regulariser=h)
    with pytest.raises(RefusedError, match=r"on fed\.pooled\(\), the same risk there.*RankADMM"):
        bf.solve(problem, fed)
    with pytest.raises(RefusedError, match=r"on fed\.pooled\(\), the same risk there.*RankADMM"):
        bf.solve(problem, fed, algorithm=bf.RankADMM())
    with pytest.raises(RefusedError, match=r"in place of over_rows, the same risk there.*RankADMM"):
        bf.solve(problem, fed.pooled())
    same = bf.Problem(bf.Logistic(), over_samples=risk, regulariser=h)
    for w in np.random.default_rng(1).standard_normal((3, 3)):
        assert same.objective(w, fed.pooled()) == pytest.approx(problem.objective(w, fed), rel=1e-9)
    solution = bf.solve(same, fed.pooled(), algorithm=bf.RankADMM(), max_rounds=3)
    assert np.isfinite(solution.w).all()


@met(
    "E",
    "over_rows=ValueAtRisk(.9) on pooled rows",
    "use over_rows=Superquantile(0.1), which RankInteriorPoint() takes: another risk",
    "use over_samples=ValueAtRisk(...) in place of over_rows, the same risk there: RankADMM()",
)
@met(
    "E",
    "over_rows=Extremile(2) with a hinge, on pooled rows",
    "use loss=Logistic(), which RankBundle() takes: another problem",
    "the same risk in over_samples, which Bundle() takes",
    "over_rows=ValueAtRisk(.9) on pooled rows",
)
@met(
    "E",
    "over_rows=RankedRange(20, 5) beside a limit",
    "use over_samples=RankedRange(...) ... and over_samples=Mean(): two values of one slot",
    "no constraint and the same risk, or another risk, which is called so",
    "over_rows=ValueAtRisk(.9) on pooled rows",
)
def test_a_risk_of_all_rows_of_one_client_is_advised_where_it_is_the_same():
    one = federation().pooled()
    extremile = bf.Problem(bf.Hinge(), over_rows=bf.Extremile(2))
    for problem in (bf.Problem(bf.Logistic(), over_rows=bf.ValueAtRisk(0.9)), extremile):
        with pytest.raises(RefusedError, match="the same risk there") as caught:
            bf.solve(problem, one)
        assert "fed.pooled()" not in str(caught.value)
        assert "Logistic()" not in str(caught.value)
    limit = bf.NeymanPearson(1, 0.7)
    for risk, data in itertools.product(RANGES.values(), (one, federation())):
        for loss in (bf.Logistic(), bf.Hinge()):
            problem = bf.Problem(loss, over_rows=risk, local_constraint=limit)
            with pytest.raises(RefusedError) as caught:
                bf.solve(problem, data)
            text = str(caught.value)
            assert text.count("over_samples=") + text.count("over_rows=") <= 1
            assert "the same risk" in text or "(another risk)" in text


def problems() -> dict[str, tuple[bf.Problem, int]]:
    """Problems of every slot, each with its number of classes."""
    h: Any = bf.L2(0.1)
    parts: dict[str, dict[str, Any]] = {
        "plain": {},
        "worst": {"over_clients": bf.Simplex()},
        "tail of rows": {"over_rows": bf.Superquantile(0.2)},
        "range of rows": {"over_rows": bf.RankedRange(20, 5)},
        "ranks": {"over_samples": bf.Median()},
        "ball": {"over_samples": bf.WassersteinBall(0.1)},
        "flips": {"over_samples": bf.WassersteinBall(0.1, 1.0)},
        "constraint": {"local_constraint": bf.NeymanPearson(1, 0.4)},
        "budget": {"privacy": bf.Budget(1.0, 1e-6)},
        "budget and worst": {"privacy": bf.Budget(1.0, 1e-6), "over_clients": bf.Simplex()},
    }
    losses = {"hinge": bf.Hinge(), "logistic": bf.Logistic()}
    found: dict[str, tuple[bf.Problem, int]] = {}
    for (name, loss), (what, more) in itertools.product(losses.items(), parts.items()):
        try:
            made = bf.Problem(loss, **more, regulariser=bf.MCP(0.1) if what == "plain" else h)
        except (ValueError, TypeError):
            continue  # refused when it is stated
        found[f"{name}, {what}"] = made, 2
    found["network"] = bf.Problem(bf.Logistic(), bf.MLP((2,)), regulariser=h), 2
    found["three classes"] = bf.Problem(bf.Multinomial(), regulariser=h), 3
    return found


PROBLEMS = problems()


@met(
    "E",
    "20 problems, each given to every method that refuses it, at 3 clients and on a clock",
    "one advice in a slot meant another risk",
    "every method that an advice names takes the problem, with its changes where it names some",
    "over_rows=RankedRange(20, 5)",
)
def test_the_advice_of_every_refusal_is_accepted_when_it_is_followed():
    advised = 0
    settings = [Setting(3), Setting(3, asynchronous=True), Setting(3, secure_sum=True)]
    for (name, (problem, _)), setting in itertools.product(PROBLEMS.items(), settings):
        for method in known_methods():
            try:
                check_requirements(method(), problem, setting)
            except RefusedError as error:
                advice = error.advice
            else:
                continue
            for other in advice.methods:
                check_requirements(other(), problem, setting)
                assert other.__name__ in bf.__all__
                advised += 1
            if advice.by is not None:
                last = advice.changes[-1]
                check_requirements(advice.by(), last.problem, last.setting)
                advised += 1
            if advice.methods and advice.changes:
                last = advice.changes[-1]
                check_requirements(method(), last.problem, last.setting)
            assert advice.methods or advice.by or "no algorithm" in advice.text, name
    assert advised > 500


def test_the_names_that_errors_of_a_problem_give_exist():
    for kind in ("loss", "regulariser", "risk over clients", "algorithm"):
        for name in NAMED[kind]:
            assert load(kind, name).__name__ in bf.__all__


@met(
    "E",
    "two columns of a data frame with one name, given to from_arrays, from_frame, fit, predict",
    "DuplicateError of a library; from fit and predict 'there is text where numbers are needed'",
    "columns need names that differ, got 'a' more than once: rename or drop one of each.",
)
@met(
    "E",
    "a second column named as the one of groups",
    "DuplicateError of a library",
    "the same words",
    "two columns of a data frame with one name",
)
@met(
    "E",
    "two columns 'a' and 'a ', 'é' in two Unicode forms, 1 and '1'",
    "two columns; or, since names are normalised, one of the two in silence",
    "the same words",
    "two columns of a data frame with one name",
)
@met(
    "E",
    "solution.score and predict_proba of a table with a column twice",
    "DuplicateError of a library: Expected unique column names",
    "the same words",
    "two columns of a data frame with one name",
)
def test_two_columns_of_one_name_are_refused_by_it():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, groups = rng.standard_normal((40, 3)), np.repeat(["n", "s"], 20)
    y = np.where(X[:, 0] > 0, "b", "a")
    twice = pd.DataFrame(X, columns=["a", "a", "b"])
    site = pd.DataFrame({"a": X[:, 0], "site": groups, "y": y})
    site.columns = ["site", "site", "y"]
    model = bf.RobustClassifier().fit(X, y, groups=groups)
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    solution = bf.solve(
        bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)),
        bf.Federation.from_arrays(named, y, groups),
    )
    alike: list[Any] = [
        pd.DataFrame(X[:, :2], columns=names).assign(y=y, site=groups)
        for names in (["a", "a "], ["a", "a\u200b"], ["a\u0301", "\xe1"], [1, "1"])
    ]
    for table in alike:
        with pytest.raises(ValueError, match=r"differ, got '(a|\xe1|1)' more than once"):
            bf.Federation.from_frame(table, "site", "y")
        with pytest.raises(ValueError, match="names that differ"):
            bf.Federation.from_tables({"n": {c: table[c].to_numpy() for c in table}}, "y")
    for call in (
        lambda: solution.score(twice.assign(y=y), "y"),
        lambda: solution.predict_proba(twice),
        lambda: bf.Federation.from_arrays(twice, y, groups),
        lambda: bf.Federation.from_frame(twice.assign(y=y, site=groups), "site", "y"),
        lambda: bf.Federation.from_frame(site, "site", "y"),
        lambda: bf.RobustClassifier().fit(twice, y, groups=groups),
        lambda: bf.RiskClassifier().fit(twice, y, groups=groups),
        lambda: model.predict(twice),
    ):
        with pytest.raises(ValueError, match=r"names that differ, got .(a|site). more"):
            call()


@met(
    "E",
    "Budget(1, delta=0.1) for 60 rows",
    "nothing is said",
    "a note: to publish one row drawn by chance would keep such a budget",
)
@met(
    "E",
    "the same with declared sizes, of which 60 rows are 20 clients' three",
    "nothing is said",
    "the note counts the declared rows",
    "Budget(1, delta=0.1) for 60 rows",
)
@met(
    "E",
    "Budget(1, delta=1/60) for 60 rows, delta=1/61",
    "nothing is said",
    "the note for the first, none for the second",
    "Budget(1, delta=0.1) for 60 rows",
)
@met(
    "E",
    "Budget(1, delta=0.02, sizes={...}) that declares 30 rows of each of three clients",
    "nothing is said",
    "the note counts 90 rows; sizes by name are added up",
    "Budget(1, delta=0.1) for 60 rows",
)
@pytest.mark.parametrize(
    ("delta", "sizes", "said"),
    [
        *(
            (0.1, None, "1 / 60"),
            (1 / 60, None, "1 / 60"),
            (1 / 61, None, ""),
            (0.02, 30, "1 / 90"),
        ),
        (0.02, {"north": 10, "east": 30, "south": 50}, "1 / 90"),
    ],
)
def test_a_delta_above_one_over_the_rows_is_remarked_on(delta, sizes, said):
    budget = bf.Budget(1.0, delta, sizes=sizes)
    problem = bf.Problem(bf.Logistic(), privacy=budget, regulariser=bf.L2(0.1))
    solution = bf.solve(problem, federation(), algorithm=bf.PrivateADMM(), max_rounds=2)
    notes = [note for note in solution.notes if note.startswith("delta = ")]
    assert len(notes) == bool(said)
    assert said in "".join(notes)


@met(
    "E",
    "Problem(Logistic()) of clients of 10 and 50 rows beside LogisticRegression on pooled rows",
    "another model, and no word of the uniform prior",
    'the docstrings say that each client counts alike, and that Mean("size") is the other one',
)
@met(
    "E",
    "Squared() and Multinomial() of clients of 10 and 50 rows",
    "another model than of pooled rows, and no word of the uniform prior",
    'the same docstrings hold for them: Mean("size") gives the model of the pooled rows',
    "Problem(Logistic()) of clients",
)
@met(
    "E",
    "Problem(Logistic()) of two clients of 30 rows",
    "the model of the pooled rows",
    "the same: clients of one size count like their rows",
    "Problem(Logistic()) of clients",
)
@met(
    "E",
    'ChiSquareBall(0, "size") of clients of 10 and 50 rows',
    "the model of the pooled rows",
    "the same: a ball of radius 0 is its prior",
    "Problem(Logistic()) of clients",
)
def test_clients_count_alike_or_by_size_under_every_loss():
    rng, h, few = np.random.default_rng(0), bf.L2(1 / 60), np.repeat(["few", "many"], [10, 50])
    X = rng.standard_normal((60, 2))
    score = X[:, 0] + 0.5 * rng.standard_normal(60)
    two, three = (score > 0).astype(int), np.digitize(score, [-0.5, 0.5])
    cases: list[tuple[Any, Any, Any, Any, bool]] = [
        (bf.Squared(), score, few, bf.Mean(), False),
        (bf.Squared(), score, few, bf.Mean("size"), True),
        (bf.Multinomial(), three, few, bf.Mean(), False),
        (bf.Multinomial(), three, few, bf.Mean("size"), True),
        (bf.Logistic(), two, np.repeat(["a", "b"], 30), bf.Mean(), True),
        (bf.Logistic(), two, few, bf.ChiSquareBall(0.0, "size"), True),
    ]
    for loss, y, groups, risk, alike in cases:
        predictor = bf.Softmax() if loss == bf.Multinomial() else bf.Linear()
        fed = bf.Federation.from_arrays(X, y, groups)
        pooled = bf.solve(bf.Problem(loss, predictor, regulariser=h), fed.pooled(), tol=1e-9)
        problem = bf.Problem(loss, predictor, over_clients=risk, regulariser=h)
        found = bf.solve(problem, fed, tol=1e-9)
        assert (np.abs(found.w - pooled.w).max() < 2e-3) == alike


def test_the_uniform_prior_is_said_and_size_is_the_fit_to_pooled_rows():
    X, y = federation().pooled().rows(0)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["few", "many"], [10, 50]))
    h = bf.L2(1 / 60)
    pooled = LogisticRegression(tol=1e-10, max_iter=1000).fit(X, y)
    by_rows = bf.solve(bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), regulariser=h), fed)
    alike = bf.solve(bf.Problem(bf.Logistic(), regulariser=h), fed)
    assert by_rows.w[:2] == pytest.approx(pooled.coef_[0], abs=1e-3)
    assert alike.w[:2] != pytest.approx(pooled.coef_[0], abs=1e-2)
    for cls in (bf.Problem, bf.Mean):
        text = " ".join((cls.__doc__ or "").split())
        assert "counts alike" in text
        assert "maximum likelihood" in text
