"""Models judged at their sites: what follows from counts is as where all rows are in one place."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import bonafed as bf
from bonafed.engines.network import Network, RefusedError
from bonafed.engines.wire import LocalTransport
from bonafed.measures import figures_of
from bonafed.runs.comparison import evaluate
from bonafed.runs.splits import HELD_OUT
from bonafed.sites.guard import Guard
from bonafed.sites.judging import JudgedRows, added_up, evaluation, judge_at_sites
from bonafed.sites.party import Party
from bonafed.sites.policy import Policy
from bonafed.sites.rows import OwnRows
from bonafed.sites.session import Agreement, agree

SIZES = (40, 65, 30)
KEPT = tuple(figure.key for figure in figures_of() if figure.kept)  # sites tell none of these
# of which nothing, or little, follows from counts of sites
OVER_ALL = (*(figure.key for figure in figures_of() if figure.apart), *KEPT, "small")
PROBLEMS = {
    "two classes": bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2)),
    "several classes": bf.Problem(bf.Multinomial(), regulariser=bf.L2(1e-2)),
    "numbers": bf.Problem(bf.Squared(), regulariser=bf.L2(1e-2)),
}


def rows(kind: str, seed: int) -> bf.Federation:
    """Rows of three clients."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(["east", "north", "south"], SIZES)
    X = rng.normal(size=(len(owner), 3))
    score = X @ [1.0, -1.0, 0.5] + rng.normal(size=len(owner))
    y = {
        "two classes": np.where(score > 0, "yes", "no"),
        "several classes": np.digitize(score, [-0.7, 0.7]).astype(str),
        "numbers": score,
    }[kind]
    classes = None if kind == "numbers" else np.unique(y)
    return bf.Federation.from_arrays(X, y, owner, classes=classes)


def agreed(kind: str, folder: Path, guard: Guard | None = None, held: int = 99) -> Agreement:
    """The agreement of sites that hold out rows."""
    train, test = rows(kind, 0), rows(kind, 1)
    sites = {}
    for name in train.names:
        mine = test.restrict(name)
        few = mine._where([np.arange(int(mine.sizes[0])) < held]) if held else None
        own = OwnRows(train.restrict(name), few, (), ())
        party = Party(
            name, lambda roles, private, own=own: own, folder / name, guard or Guard(None)
        )
        sites[name] = lambda data, party=party: party.answer("server", data)
    return agree(LocalTransport(sites), "judging", PROBLEMS[kind], patience=600.0)


def models_of(kind: str) -> dict[str, np.ndarray]:
    """A model and two that it is compared with."""
    w = bf.solve(PROBLEMS[kind], rows(kind, 0), tol=1e-6).w
    rng = np.random.default_rng(2)
    return {"model": w, "ERM": w + 0.2 * rng.normal(size=len(w)), "AFL": 0.5 * w}


def same(there: dict, here: dict, without: tuple[str, ...] = ()) -> None:
    """Numbers of the same names and, to rounding, of the same size."""
    for name, value in here.items():
        if name in without or name in ("curves", "asked", "met", "excess", "excess_owner"):
            continue
        if name in ("promise", "bounds"):  # sites tell no score of a row, as a bound on them needs
            figures = value["figures"] if name == "promise" else value
            figures.pop("brier", None)
        if isinstance(value, float):
            assert there[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
        elif isinstance(value, dict) and not isinstance(next(iter(value.values())), dict):
            same(there[name], value)
        elif name != "clients":
            assert there[name] == value, name


@pytest.mark.parametrize("kind", PROBLEMS)
def test_figures_of_sites_are_those_of_one_place(kind, tmp_path):
    models = models_of(kind)
    agreement = agreed(kind, tmp_path)
    engine = Network(agreement.session)
    there = judge_at_sites(agreement.problem, agreement.metadata, models, engine)
    here = evaluate(PROBLEMS[kind], models, {HELD_OUT: rows(kind, 1)})
    for mine, other in zip(there["measures"], here["measures"], strict=True):
        same(mine, other, OVER_ALL)
        assert mine.get("auc") is None
        for client, stated in zip(mine["clients"], other["clients"], strict=True):
            same(client, stated, KEPT)
            assert all(client.get(key) is None for key in KEPT)
    counts = ("better", "worse", "p") if kind == "numbers" else ()  # what is closer, site by site
    for mine, other in zip(there["pairs"], here["pairs"], strict=True):
        same(mine, other, (*counts, "floor") if counts else ())
    if kind != "numbers":
        assert there["verdict"] == here["verdict"]


def test_few_rows_are_not_judged(tmp_path):
    guard = Guard(Policy(maximum_parameter_share=1.0, minimum_rows=10))
    models = models_of("two classes")
    agreement = agreed("two classes", tmp_path, guard, held=10)
    guard.policy = Policy(maximum_parameter_share=1.0, minimum_rows=11)
    engine = Network(agreement.session)
    with pytest.raises(RefusedError, match="minimum_rows"):
        judge_at_sites(agreement.problem, agreement.metadata, models, engine)


def test_a_site_without_held_out_rows_says_so(tmp_path):
    agreement = agreed("two classes", tmp_path, held=0)
    engine = Network(agreement.session)
    with pytest.raises(Exception, match="holds out no rows"):
        judge_at_sites(agreement.problem, agreement.metadata, models_of("two classes"), engine)


GOOD = JudgedRows(
    rows=np.array([20.0]),
    loss=np.array([[0.4]]),
    confusion=np.array([[[[8.0, 2.0], [3.0, 7.0]]]]),
    measures=np.array([[[0.8, 0.2, 0.5]]]),
    compared=np.zeros((1, 0, 7)),
    figures_of=np.zeros((1, 1)),
    merged=np.zeros((1, 1)),
)
ODD = {
    "rows": [np.array([21.0]), np.array([20.5]), np.array([math.nan]), np.array([0.0])],
    "loss": [np.array([[math.inf]]), np.array([[0.4, 0.3]])],
    "confusion": [
        np.array([[[[8.0, 2.0], [3.0, -7.0]]]]),
        np.array([[[[8.5, 1.5], [3.0, 7.0]]]]),
        np.array([[[[8.0, 2.0], [math.nan, 7.0]]]]),
    ],
    "figures_of": [np.array([[1.0]]), np.array([[-2.0]]), np.array([[0.5]]), np.zeros((1, 2))],
    "merged": [np.array([[0.5]]), np.array([[math.nan]]), np.zeros((1, 2))],
    "measures": [np.array([[[1.8, 0.2, 0.5]]]), np.array([[[0.8, -0.2, 0.5]]])],
}


PAIR = (20.0, 3.0, 2.0, 0.01, 1.5, 0.4, 0.7)  # of `Compared`
ODD_PAIRS = [
    (*PAIR[:k], value, *PAIR[k + 1 :])
    for k, value in [
        (0, 2e7),
        (1, 1e9),
        (1, 2.5),
        (1, math.nan),
        (2, -1.0),
        (3, math.inf),
        (4, -1.0),
    ]
]


@pytest.mark.parametrize("pair", ODD_PAIRS)
def test_pairs_that_no_rows_have_are_refused(pair):
    names = ("loss", "confusion", "measures", "merged")
    two = {name: np.repeat(getattr(GOOD, name), 2, 1) for name in names}
    two["figures_of"] = np.array([[0.0, 1.0]])
    good = dataclasses.replace(GOOD, **two, compared=np.array([[PAIR]]))
    assert evaluation(bf.Logistic(), ["east"], ["model", "ERM"], good)["pairs"][0]["better"] == 3
    odd = dataclasses.replace(good, compared=np.array([[pair]]))
    with pytest.raises(ValueError, match="figures that no rows have"):
        evaluation(bf.Logistic(), ["east"], ["model", "ERM"], odd)


def test_several_classes_have_a_brier_score():
    confusion = np.full((1, 1, 3, 3), 2.0)
    odd = dataclasses.replace(
        GOOD,
        rows=np.array([18.0]),
        confusion=confusion,
        measures=np.array([[[0.8, math.nan, 1.0]]]),
    )
    with pytest.raises(ValueError, match="figures that no rows have"):
        evaluation(bf.Multinomial(), ["east"], ["model"], odd)


@pytest.mark.parametrize(
    ("field", "k"), [(f, k) for f, odd in ODD.items() for k in range(len(odd))]
)
def test_figures_that_no_rows_have_are_refused(field, k):
    stated = evaluation(bf.Logistic(), ["east"], ["model"], GOOD)
    assert stated["measures"][0]["accuracy"] == 0.75
    odd = dataclasses.replace(GOOD, **{field: ODD[field][k]})
    with pytest.raises(ValueError, match="east answers with figures that no rows have"):
        evaluation(bf.Logistic(), ["east"], ["model"], odd)


def test_what_sites_promise_and_when_they_do_not(tmp_path):
    models = models_of("two classes")
    agreement = agreed("two classes", tmp_path)
    question = agreement.problem, agreement.metadata, models, Network(agreement.session)
    main, *others = judge_at_sites(*question)["measures"]
    assert main["promise"]["figures"].keys() == {"accuracy", "recall", "precision", "specificity"}
    assert not any("promise" in row or "unstated" in row for row in others)
    # a person may have several rows, of which no site tells how many are of one
    stated = judge_at_sites(*question, people=True)
    assert stated["measures"][0]["unstated"] == "persons"
    again = added_up(agreement.problem, [*models], stated, people=True)
    same(again["measures"][0], stated["measures"][0])
    # figures that are not exactly those of the model
    stated["measures"][0]["clients"][1]["merged"] = True
    again = added_up(agreement.problem, [*models], stated)
    assert again["measures"][0]["unstated"] == "other figures"
