"""The worst client, answered: what people read of new rows at every client, and when nothing is
said.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_run
from met import met
from problems import PLAIN
from rich.console import Console

import bonafed as bf
from bonafed import worst_client
from bonafed.measures import clopper_pearson
from bonafed.report.sections.clients import clients as table_of_clients
from bonafed.report.sections.evaluation import badness, by_client, goodness, measures
from bonafed.report.sections.opening import about_summary
from bonafed.report.terminal import show
from bonafed.runs.comparison import evaluate, verdict
from bonafed.runs.files import plain
from bonafed.runs.sections.checks import between_clients
from bonafed.runs.sections.section import Run
from bonafed.runs.splits import Parts
from bonafed.runs.verification import verify_run
from bonafed.worst_client import chances, most

SENTENCE = "With 95 % confidence the model is wrong in at most "
W = np.array([-1.0, 0.0])  # says the first class where the first feature is above 0


def rows(right: dict[str, tuple[int, int]], persons: int = 0) -> bf.Federation:
    """Clients with (right, all) rows under `W`; ``persons``: rows of each, which are alike."""
    X, y, of, who = [], [], [], []
    for name, (k, n) in right.items():
        truth = np.arange(n) % 2 == 0
        truth = np.repeat(truth[:: persons or 1], persons or 1)[:n]
        said = np.where(np.arange(n) < k, truth, ~truth)
        X += [[-1.0 if yes else 1.0, 0.0] for yes in said]
        y += ["yes" if yes else "no" for yes in truth]
        of += [name] * n
        who += [f"{name} {i // (persons or 1)}" for i in range(n)]
    whose = who if persons else None
    return bf.Federation.from_arrays(np.array(X), y, of, classes=["no", "yes"], persons=whose)


def told(fed: bf.Federation, problem: bf.Problem | None = None, **how: Any) -> Any:
    """A run of which the parts that are read here are the evaluation and its model."""
    problem = problem or bf.Problem(bf.Logistic(), PLAIN)
    found = plain(evaluate(problem, {"m": W}, {"held-out rows": fed}, **how))
    classes = None if fed.classes is None else [str(c) for c in fed.classes]
    people = [{"client": c, "n": 9, "loss": 0.1, "worst_loss": 0.2, "weight": 1} for c in fed.names]
    result = {"model": "m", "evaluation": found, "clients": people, "outcome": {"stop": "optimal"}}
    return SimpleNamespace(result=result, model={"classes": classes})


def said_by_verify(run: Run) -> str:
    checks = [check for check in verify_run(run.path) if check.name == "worst client"]
    assert checks[0].ok
    return checks[0].text


FOUR = {"Hillcrest": (24, 25), "Northgate": (95, 100), "Old Mill": (97, 100), "Lakeview": (98, 100)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run.small_run(
        tmp_path_factory.mktemp("worst"), draw=True, data=small_run.table(rows=60)
    )


@met(
    "D",
    "a run with held-out rows: what can be said of new ones at every client?",
    "one exact interval for each client, and no sentence about all of them",
    "the bound at every client, the client that decides it and what more rows would show, in the"
    " summary on the terminal, in the report and in `bonafed verify`, which computes it again",
)
def test_a_run_says_what_holds_at_every_client(run: Run) -> None:
    judged = run.result["evaluation"]["measures"][0]
    wrong = [(c["n"] - c["confusion"]["tp"] - c["confusion"]["tn"], c) for c in judged["clients"]]
    largest, first = max((most(k, c["n"]), c["client"]) for k, c in wrong)
    at_every = judged["promise"]["figures"]["accuracy"]
    assert at_every["bound"] == pytest.approx(1 - largest)
    assert at_every["client"] == first
    line = 1 - 0.95 ** (1 / len(wrong))
    for k, client in wrong:
        assert client["bounds"]["accuracy"] == pytest.approx(1 - most(k, client["n"], line))
    out = io.StringIO()
    show(run, Console(file=out, width=100))
    sentence = badness(run)[badness(run).index(SENTENCE) :]
    page = (run.path / "report.html").read_text(encoding="utf-8").replace("&nbsp;", " ")
    assert all(sentence in " ".join(text.split()) for text in (out.getvalue(), page))
    assert said_by_verify(run) == sentence


@met(
    "D",
    "1 wrong of 25 rows at the smallest hospital, 5 of 100 at another",
    "'the 95 % interval at Northgate is 88.7 to 98.4': nothing about Hillcrest",
    "at most 18 % at every client; Hillcrest (1 wrong of 25) decides this; with 8 wrong of 200 it"
    " would be 11 %, since another client would then decide",
    "a run with held-out rows",
)
def test_the_client_that_decides_is_named_with_its_counts() -> None:
    text = badness(told(rows(FOUR)))
    said = "18 % of new rows at each of the 4 clients, if they are like its held-out ones"
    assert SENTENCE + said in text
    assert (
        "Hillcrest (1 wrong of 25) decides this; with 8 wrong of 200 it would be 11 %, since"
        in text
    )


@met(
    "D",
    "one client has the largest share of wrong rows, and another one decides the bound",
    "'worst at Northgate ... Hillcrest decides this': two worst clients, without a word why",
    "a larger share is wrong at Northgate, but more is known of it than of Hillcrest",
)
@met(
    "D",
    "the client with the largest share decides, or all are alike",
    "one client was named",
    "the same: nothing is added where there is nothing to explain",
    "one client has the largest share",
)
@met(
    "D",
    "a person with all the wrong rows of a client, of whom one row counts",
    "two clients were named, without a word why",
    "of all rows a larger share is wrong at the other one",
    "one client has the largest share",
)
def test_why_another_client_decides_than_the_worst_is_said() -> None:
    text = badness(told(rows(FOUR)))
    assert "It does worst at Northgate, with accuracy 95.0" in text
    assert (
        " A larger share is wrong at Northgate, but more is known of it, so that less is left open"
        " there than at Hillcrest."
    ) in text
    for right in ({"a": (20, 25), "b": (95, 100)}, {"a": (9, 10), "b": (9, 10)}):
        assert "larger share" not in badness(told(rows(right)))
    people = [{"client": "a", "accuracy": 0.7, "n": 90, "people": 3}]
    people += [{"client": "b", "accuracy": 0.8, "n": 40, "people": 4}]
    said = worst_client._other_worst(people, {"client": "b", "of": 4})
    assert said == " Of all rows a larger share is wrong at a."


@met(
    "D",
    "one client only",
    "'There is one client, so that nobody can be served worse than another'",
    "the same sentence with the client's name in the place of 'every client'",
    "a run with held-out rows",
)
def test_one_client_is_called_by_its_name() -> None:
    text = badness(told(rows({"Hillcrest": (24, 25)})))
    assert "of new rows at Hillcrest, if they are like its held-out ones" in text


@met(
    "D",
    "a regression: how large are errors at every client?",
    "nothing, and not that nothing can be said",
    "no bound is stated, since errors of numbers have no known largest value",
    "a run with held-out rows",
)
def test_a_regression_has_no_bound_and_says_why() -> None:
    rng = np.random.default_rng(0)
    fed = bf.Federation.from_arrays(rng.normal(size=(60, 2)), rng.normal(size=60), ["a", "b"] * 30)
    text = badness(told(fed, bf.Problem(bf.Squared(), PLAIN)))
    assert "No bound for every client is stated: errors of numbers have no known largest" in text
    assert "Whether chance explains the difference is not tested." in text


@met(
    "D",
    "`solution.evaluate(fed, confidence=.99)`",
    "TypeError: unexpected keyword argument",
    "the sentence below the table, bounds that hold in all lines at once as columns",
    "a run with held-out rows",
)
def test_evaluate_takes_a_confidence_and_says_what_holds() -> None:
    fed = rows(FOUR)
    solution = bf.solve(bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1)), fed)
    table = solution.evaluate(fed, confidence=0.99)
    assert table.text.startswith("With 99 % confidence the model is wrong in at most ")
    assert "which had no part in training or in a choice" in table.text
    assert table.text in repr(table)
    assert table.text in table._repr_html_()
    small = table[0]
    k, line = small["fp"] + small["fn"], 1 - 0.99 ** (1 / 4)
    assert small["accuracy_at_least"] == pytest.approx(1 - most(k, 25, line))
    assert "accuracy_at_least" not in table[-1]
    for wrong in (95, 0.0, 1.0, "0.95", None, True):
        with pytest.raises(ValueError, match=r"confidence must (lie between 0 and 1|be a number)"):
            solution.evaluate(fed, confidence=wrong)  # type: ignore[arg-type]
    weighted = bf.Federation.from_arrays(
        np.concatenate(fed.X),
        np.concatenate(fed.y),
        np.repeat(fed.names, fed.sizes),
        sample_weight=np.full(325, 2.0),
    )
    assert "the rows have weights" in solution.evaluate(weighted).text


PERSONS = small_run.CONFIG.replace('target = "sick"', 'target = "sick"\nperson = "patient"')


def with_patients(text: str, each: int) -> str:
    """The table with every row ``each`` times, those of one patient."""
    head, *lines = text.splitlines()
    rows = [f"{line},p{i}" for i, line in enumerate(lines) for _ in range(each)]
    return "\n".join([f"{head},patient", *rows]) + "\n"


@met(
    "D",
    "five rows of each patient, with `data.person`",
    "all rows are counted: intervals from 5 times as many independent rows as there are; a bound"
    " made of them misses in a fifth of all runs",
    "one row of each patient counts, drawn by a seed, and the sentence is about persons",
)
def test_of_five_rows_of_a_patient_one_counts(tmp_path: Path) -> None:
    data = with_patients(small_run.table(rows=40), 5)
    run = small_run.small_run(tmp_path, data=data, text=PERSONS)
    judged = run.result["evaluation"]["measures"][0]
    assert judged["promise"]["people"] is True
    for client in judged["clients"]:
        assert client["n"] == 5 * client["people"]
    # the rows of a patient are alike here, so that those that count have the same rate
    first = judged["promise"]["figures"]["accuracy"]
    client = next(c for c in judged["clients"] if c["client"] == first["client"])
    assert first["of"] == client["people"]
    assert 1 - first["wrong"] / first["of"] == pytest.approx(client["accuracy"])
    assert "of new persons (one row of each counts) at each of the 2 clients" in badness(run)
    assert "of new persons" in said_by_verify(run)


@met(
    "D",
    "a federation with `persons` in Python: `solution.evaluate(test)`",
    "every row is counted",
    "one row of each person counts",
    "five rows of each patient",
)
def test_evaluate_counts_persons_once() -> None:
    fed = rows({"a": (40, 50), "b": (45, 50)}, persons=5)
    solution = bf.solve(bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1)), fed)
    table = solution.evaluate(fed)
    assert "of new persons (one row of each counts) at each of the 2 clients" in table.text
    for row, people in zip(table, (10, 10, 20), strict=True):  # whose five rows are alike
        right = round(people * row["accuracy"])
        found = row["accuracy_low"], row["accuracy_high"]
        assert found == pytest.approx(clopper_pearson(right, people))
    assert table[0]["accuracy_at_least"] <= 1 - most(0, 10, 1 - 0.95**0.5)


@met(
    "D",
    "patients with 1 to 40 rows",
    "the patient with 40 rows counts 40 times in the interval",
    "every patient counts once",
    "five rows of each patient",
)
def test_a_patient_with_many_rows_counts_once() -> None:
    n = [1, 1, 1, 1, 1, 40]
    X = np.repeat([[-1.0, 0.0]], sum(n), 0)
    y = np.repeat(["yes", "yes", "yes", "yes", "yes", "no"], n)  # the model says yes
    who = np.repeat([f"p{i}" for i in range(6)], n)
    known = {"classes": ["no", "yes"], "persons": who}
    judged = told(bf.Federation.from_arrays(X, y, ["a"] * sum(n), **known))
    assert "of new persons (one row of each counts) at a, if" in badness(judged)
    once = {"classes": ["no", "yes"], "persons": np.arange(45)}
    alone = told(bf.Federation.from_arrays(X, y, ["a"] * sum(n), **once))
    assert "of new persons at a, if they are like" in badness(alone)
    first = judged.result["evaluation"]["measures"][0]["promise"]["figures"]["accuracy"]
    assert (first["wrong"], first["of"]) == (1, 6)


def of_patients(seed: int, patients: int = 40, each: int = 10) -> bf.Federation:
    """Patients with rows that are nearly alike, whose outcome follows two features equally."""
    rng = np.random.default_rng(seed)
    of, who = rng.normal(size=(patients, 2)), np.repeat(np.arange(patients), each)
    ill = of.sum(1) + rng.normal(size=patients) > 0
    X = of[who] + 0.1 * rng.normal(size=(patients * each, 2))
    y = np.where(ill, "yes", "no")[who]
    at = np.where(who < patients // 2, "a", "b")
    return bf.Federation.from_arrays(X, y, at, classes=["no", "yes"], persons=who)


@met(
    "D",
    "two equally good models compared on ten rows of each of 40 patients",
    "of 200 such runs 116 claim that one of the two is better",
    "one row of each patient is compared: 4 of 200 claim it",
    "five rows of each patient",
)
def test_two_models_are_compared_on_one_row_of_each_person() -> None:
    problem, claims = bf.Problem(bf.Logistic(), PLAIN), 0
    models = {"new": np.array([1.0, 0.2]), "old": np.array([0.2, 1.0])}
    for seed in range(200):
        found = evaluate(problem, models, {"held-out rows": of_patients(seed)})
        claims += not found["verdict"][0].startswith("No difference that these data could show.")
    assert claims <= 10
    headline, sentence = found["verdict"]
    assert "(held-out rows). One row of each person is compared. The smallest" in headline
    assert "on held-out rows (400 rows; one row of each of 40 persons is compared): " in sentence
    assert "corrected for 2 tests, one row of each person)" in sentence
    assert found["pairs"][0]["people"] == 40
    assert found["pairs"][0]["better"] + found["pairs"][0]["worse"] <= 40


@met(
    "D",
    "a superquantile compared on ten rows of each patient",
    "its interval is drawn from 400 rows: half as wide or less",
    "it is drawn from one row of each of 40 patients",
    "five rows of each patient",
)
def test_a_risk_by_rank_is_compared_on_one_row_of_each_person() -> None:
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.5))
    models, fed = {"new": np.array([1.0, 0.2]), "old": np.array([0.2, 1.0])}, of_patients(3)
    one = evaluate(problem, models, {"held-out rows": fed})
    rows = evaluate(problem, models, {"held-out rows": fed._with(persons=None)})
    assert one["pairs"][0]["risk_margin"] > 2 * rows["pairs"][0]["risk_margin"]


@met(
    "D",
    "a run over sites with `data.person`",
    "'Yes': the tests count rows, and nothing says so",
    "'Not tested: a person may have several rows', with what would hold otherwise",
    "five rows of each patient",
)
def test_what_sites_count_is_not_tested_where_persons_have_several_rows() -> None:
    pair = {"set": "held-out rows", "model": "DRFL", "other": "ERM", "better": 9, "worse": 1}
    pair |= {"p": 0.01, "less": 0.3, "margin": 0.1, "tests": 2, "floor": 0.005}
    row = {"set": "held-out rows", "n": 20, "loss": 0.5, "accuracy": 0.8, "worst_accuracy": 0.7}
    measures = [{**row, "model": name} for name in ("DRFL", "ERM")]
    known, (headline, sentence) = verdict(measures, [pair]), verdict(measures, [pair], True)
    assert headline.startswith("Not tested: a person may have several rows, which are not")
    assert headline.endswith(f"the answer would be: {known[0]}")
    assert "(20 rows; tests take every row for another person's)" in sentence
    judged = {"set": "rows", "n": 20, "accuracy": 0.8, "interval": {"accuracy": [0.6, 0.9]}}
    result = {"evaluation": {"measures": [judged | {"model": "m"}]}, "model": "m"}
    run: Any = SimpleNamespace(result=result, model={"classes": ["no", "yes"]})
    assert goodness(run).endswith("(95 % interval 60.0 to 90.0).")
    judged["unstated"] = "persons"
    result["evaluation"]["measures"] = [judged | {"model": "m"}]
    assert goodness(run).endswith("they are too narrow where persons have several.")


@met(
    "D",
    "a site of 2 patients with 30 rows each, ranked the wrong way",
    "a check fails: 60 rows are more than chance explains",
    "two patients show nothing",
    "five rows of each patient",
)
def test_codes_are_not_doubted_for_the_rows_of_two_persons() -> None:
    fed = of_patients(0, 60)
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    who = np.concatenate(fed.persons or ())
    one, other = (np.flatnonzero(y == label)[0] for label in ("no", "yes"))
    # the features of one patient of each class, with the other's outcome
    X = np.concatenate([X, np.repeat(X[[other, one]], 30, 0)])
    y = np.concatenate([y, np.repeat(["no", "yes"], 30)])
    of = np.repeat(["a", "b", "c"], [300, 300, 60])
    whose = np.concatenate([who, np.repeat([100, 101], 30)])
    fed = bf.Federation.from_arrays(X, y, of, classes=["no", "yes"], persons=whose)
    assert not between_clients(Parts(fed, {}))["labels"]
    assert between_clients(Parts(fed._with(persons=None), {}))["labels"]


@met(
    "D",
    "a configuration without `data.person`",
    "nothing says that rows are taken to be independent",
    "`verify` lists it among what it cannot check",
    "five rows of each patient",
)
def test_verify_says_that_independence_is_not_checked(run: Run) -> None:
    texts = [check.text for check in verify_run(run.path) if check.name == "worst client"]
    assert any("that held-out rows are independent" in text for text in texts)


@met(
    "D",
    "[sweep] with test = 0: the held-out rows judge the values, too",
    "figures and intervals as if nothing had been chosen by these rows; only beside the sweep's"
    " table 'a value that is chosen by them needs new rows'",
    "no bound is stated, and why; `verify` computes from the configuration that these rows looked",
)
def test_rows_that_judge_a_sweep_promise_nothing(tmp_path: Path) -> None:
    text = small_run.CONFIG + small_run.sweep("clients.radius", 0.1, 0.2, test=0.0)
    run = small_run.small_run(tmp_path, text=text)
    judged = run.result["evaluation"]["measures"][0]
    assert judged["unstated"] == "chosen"
    assert "promise" not in judged
    assert "No bound for every client is stated: these rows also judged the values of" in badness(
        run
    )
    assert "these rows also judged" in said_by_verify(run)


@met(
    "D",
    "[sweep] with test = 0.3: training rows judge the values",
    "right before: the table says that the choice was made on training rows",
    "the bound is stated, since held-out rows judged once",
    "[sweep] with test = 0",
)
def test_rows_that_judge_once_after_a_sweep_promise(tmp_path: Path) -> None:
    text = small_run.CONFIG + small_run.sweep("clients.radius", 0.1, 0.2, test=0.3)
    run = small_run.small_run(tmp_path, text=text)
    assert SENTENCE in badness(run)


@met(
    "D",
    "the prices of a constraint, for which held-out rows judge by default",
    "figures as if nothing had been chosen",
    "no bound is stated",
    "[sweep] with test = 0",
)
def test_prices_of_a_constraint_promise_nothing(tmp_path: Path) -> None:
    data = small_run.wards(small_run.table(rows=40))
    run = small_run.small_run(tmp_path, data=data, text=small_run.KEPT)
    rows = [row for row in run.result["evaluation"]["measures"] if row["model"] == "constrained"]
    rows = rows or run.result["evaluation"]["measures"]
    assert rows[0]["unstated"] == "chosen"


@met(
    "D",
    "the models that a run is compared with, judged on the same rows",
    "intervals for the model of the run only",
    "the bound for the model of the run only: one that is chosen by this comparison has none",
    "[sweep] with test = 0",
)
def test_only_the_model_of_the_run_has_a_bound(run: Run) -> None:
    measured = run.result["evaluation"]["measures"]
    assert {row["model"] for row in measured if "promise" in row} == {run.result["model"]}


@met(
    "C",
    "100 alike clients of 200 rows, 90 % right",
    "'The 95 % interval at X excludes the rate of all rows' in 86 % of runs (47 % with 30 clients,"
    " 16 % with 10)",
    "chance is denied in at most 5 % of runs, by exact tests corrected for the number of clients",
)
@pytest.mark.parametrize("n", [10, 30, 100])
def test_alike_clients_are_not_called_different(n: int) -> None:
    rng, denied, before = np.random.default_rng(n), 0, 0
    for _ in range(40):
        right = rng.binomial(200, 0.9, n).tolist()
        denied += min(chances(200 - np.array(right), np.full(n, 200))) < 0.05
        low, high = clopper_pearson(min(right), 200)
        before += not low <= sum(right) / (200 * n) <= high
    assert denied <= 6 <= before + 6 * (n == 10)  # of 40: .999 of the law of one in twenty
    fed = rows({f"c{i}": (k, 200) for i, k in enumerate(right)})
    assert ("Chance may explain the difference" in badness(told(fed))) is (
        min(chances(200 - np.array(right), np.full(n, 200))) >= 0.05
    )


@met(
    "C",
    "one client of 20 alike ones is truly worse",
    "'excludes', as of most runs without any difference",
    "'Chance does not explain the errors at' it",
    "100 alike clients",
)
def test_a_client_that_is_worse_is_named() -> None:
    right = {f"c{i}": (92, 100) for i in range(19)} | {"Hillcrest": (60, 100)}
    text = badness(told(rows(right)))
    assert "Chance does not explain the errors at Hillcrest (exact tests against all other" in text
    assert "may" not in text


@met(
    "C",
    "the worst client has 3 rows, and another one is truly worse than all others",
    "only the worst of the larger ones was tested",
    "both are named: what chance may explain, and what it does not",
    "100 alike clients",
)
def test_chance_at_the_worst_and_none_at_another() -> None:
    right = {"tiny": (1, 3), "Hillcrest": (60, 100), "a": (95, 100), "b": (95, 100)}
    text = badness(told(rows(right)))
    assert text.startswith("It does worst at tiny, with accuracy 33.3 % on 3 rows, and ")
    assert "Chance does not explain the errors at Hillcrest" in text
    assert "At tiny it may." in text


@met(
    "C",
    "all clients are alike to the row",
    "right before: 'It does equally well at'",
    "the same",
    "100 alike clients",
)
def test_equal_clients_are_called_equal() -> None:
    assert badness(told(rows({"a": (9, 10), "b": (9, 10)}))).startswith("It does equally well at 2")


@met(
    "C",
    "a small client is the worst: 77.8 % on 9 rows, beside 83.3 % on 30",
    "the card says 77.8 % at the small one, the text 83.3 % at the other: two worst clients",
    "card, text, terminal and every table name the small one, and one bound holds there too",
)
def test_one_report_has_one_worst_client() -> None:
    run = told(rows({"Big": (25, 30), "Good": (28, 30), "Small": (7, 9)}))
    judged = run.result["evaluation"]["measures"][0]
    assert judged["worst_accuracy_client"] == "Small"
    text = badness(run)
    assert text.startswith("It does worst at Small, with accuracy 77.8 % on 9 rows, and best at ")
    # one bound of the error, which holds at the small one as well
    assert len(re.findall("wrong in at most", text)) == 1
    assert "at least" not in text.partition("Likewise")[0]
    run.result["risk"] = {"name": "mean"}
    assert by_client(run)[0].rows[0][0] == "Small (small)"
    rows_of = {row[0]: row for row in measures(run)[0].rows}
    assert "Small" in rows_of["Accuracy, worst client"]


@met(
    "C",
    "clients with the same accuracy, of which one has fewer rows",
    "the first one in the order of the table",
    "the one with fewer rows, of which less is known, everywhere",
    "a small client is the worst",
)
def test_of_equal_clients_that_of_fewer_rows_is_the_worst() -> None:
    run = told(rows({"Big": (80, 100), "Less": (16, 20), "Good": (29, 30)}))
    assert run.result["evaluation"]["measures"][0]["worst_accuracy_client"] == "Less"
    assert badness(run).startswith("It does worst at Less")


@met(
    "C",
    "the summary on a terminal has three clients, and the worst on held-out rows is the fourth",
    "the table has the three with the largest worst case in training, under a title that does not"
    " say so, and leaves the worst one on held-out rows out",
    "the title says that it is about training, and the worst on held-out rows is in it",
    "a small client is the worst",
)
def test_the_table_of_a_terminal_has_the_worst_client() -> None:
    run = told(rows({"a": (9, 10), "b": (9, 10), "c": (9, 10), "d": (5, 10)}))
    table = table_of_clients(run.result, ("client", "n", "held_accuracy"), 3)
    assert [row[0] for row in table.rows] == ["a", "b", "c", "d"]
    assert table.title.endswith("worst case in training, and the worst on held-out rows")


@met(
    "C",
    "the cards that open a report: 'accuracy at the worst client'",
    "right before in number; the text named another client",
    "the same client as in the text, and a card with what holds at every client",
    "a small client is the worst",
)
def test_the_card_names_the_client_of_the_text(run: Run) -> None:
    section = about_summary(run)
    assert section is not None
    judged = run.result["evaluation"]["measures"][0]
    cards = {fact.label: fact.value for fact in section.facts}
    worst = judged["worst_accuracy_client"]
    assert f"accuracy at the worst client, {worst}" in cards
    assert f"It does worst at {worst}" in badness(run) or "equally well" in badness(run)
    assert "wrong at every client at most, with 95 % confidence" in cards
