"""A server that has models judged which it chose so that their figures tell of single people.

It follows no algorithm: it agrees to experiments as every server does, has its models certified
where sites ask for that, and reads whatever comes back. What is asserted is what it learns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import carried_examples
import numpy as np
import pytest
from border.carriers import CARRIERS, Call, in_process, transport
from sites.folders import CLASSES, NAMES, PROBLEM, WIDE, certify, folder_of, roles
from sites.test_solve_across import PROBLEMS

import bonafed as bf
from bonafed.arrays import Array
from bonafed.data.schema import declared_schema
from bonafed.engines.engine import ClientError
from bonafed.engines.network import Network, RefusedError
from bonafed.engines.wire import LocalTransport
from bonafed.problem.problem import Problem
from bonafed.runs.files import Record
from bonafed.sites.guard import Guard
from bonafed.sites.judging import judge_at_sites
from bonafed.sites.party import Party
from bonafed.sites.policy import Policy
from bonafed.sites.rows import OwnRows, Roles, of_site
from bonafed.sites.session import agree
from bonafed.sites.site_file import read_site, secret_of

SEEN = roles(test=0.3)
FAR = 1000.0  # the last column of a row that is unlike all others
OUTLIER = f"0.1,0.0,{FAR},ill,f\n"
Carrier = Callable[[Path, str], Any]


def folders(place: Path, more: str = "", policy: str = "") -> None:
    """Three sites whose held-out rows are the same every time; "north" has some rows ``more``, of
    which the last one is held out.
    """
    for name in NAMES:
        folder_of(place, name, f"{policy}\n{WIDE}")
    with (place / "north" / "rows.csv").open("a") as rows:
        rows.write(more)
    for k in range(256):
        for name in NAMES:
            (place / name / "site.secret").write_bytes(bytes([k] * 32))
            (place / name / "site.secret").chmod(0o600)
        if not more or (held_out(place)[0] == rows_in(more)[-1]).all(1).any():
            return


def rows_in(text: str) -> Array:
    """The features of rows of a table."""
    return np.array([row.split(",")[:3] for row in text.splitlines()], float)


class Server:
    """The attacker; ``north`` is the site that it is after."""

    def __init__(self, place: Path, carrier: Carrier, roles_text: str = SEEN.text()) -> None:
        self.place, self.carrier, self.roles = place, carrier, roles_text
        self.experiment, self.name, self.problem = "trial", "alliance", PROBLEM
        self.open = ExitStack()
        self.calls: dict[str, Call] = {}
        self.restart()

    def restart(self) -> None:
        """Other processes of all sites."""
        self.open.close()
        self.open = ExitStack()
        for name in NAMES:
            self.calls[name] = self.open.enter_context(self.carrier(self.place / name, name))

    def judged(self, *models: Array, certified: bool = True) -> Record:
        """What "north" tells of models, as a run states it."""
        way = transport(self.calls, self.name)
        agreement = agree(way, self.experiment, self.problem, roles=self.roles)
        if certified:
            certify(agreement, models)
        named = {f"w{k}": w for k, w in enumerate(models)}
        stated = judge_at_sites(
            agreement.problem, agreement.metadata, named, Network(agreement.session)
        )
        north = NAMES.index("north")
        figures = [row["clients"][north] for row in stated["measures"]]
        return {"figures": figures, "pairs": stated["pairs"]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes the attacker of a carrier."""
    with ExitStack() as stack:

        def made(carrier: Carrier = in_process, **options: Any) -> Server:
            folders(tmp_path, **options)
            one = Server(tmp_path, carrier)
            stack.callback(lambda: one.open.close())
            return one

        yield made


def held_out(place: Path, asked: Roles = SEEN) -> tuple[Array, np.ndarray]:
    """The rows that "north" holds out, as an attacker knows some people beside their classes."""
    site = read_site(place / "north")
    test = of_site(site, secret_of(site))(asked.text()).test
    assert test is not None
    return test.X[0], test.y[0]


def told_class(two: list[Record]) -> str | None:
    """The class of the one row in which two models' decisions differ; None where nothing tells."""
    one, other = (each["confusion"] for each in two)
    change = [abs(other[cell] - one[cell]) for cell in ("tp", "fn", "fp", "tn")]
    return {(1, 1, 0, 0): "well", (0, 0, 1, 1): "ill"}.get(tuple(change))


def around(x: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Two models that decide about a person in both ways, and differ by 2e-6 in one number."""
    w = np.append(rng.normal(size=len(x)), 0.0)
    w[-1] = -w[:-1] @ x
    step = np.zeros_like(w)
    step[-1] = 1e-6
    return w + step, w - step


@pytest.mark.parametrize("carrier", CARRIERS)
def test_two_models_that_differ_by_little_tell_nobodys_class(server, carrier: Carrier):
    attacker = server(carrier)
    X, y = held_out(attacker.place)
    victims, rng = range(11), np.random.default_rng(0)
    pairs = [around(X[v], rng) for v in victims]
    read = []
    for k in range(0, 11, 4):  # four pairs a question, three questions
        models = [w for pair in pairs[k : k + 4] for w in pair]
        figures = attacker.judged(*models)["figures"]
        read += [told_class(figures[2 * j : 2 * j + 2]) for j in range(len(models) // 2)]
    right = [told == y[v] for v, told in zip(victims, read, strict=True) if told is not None]
    assert len(read) == 11
    assert not right


def restarted(attacker: Server) -> None:
    attacker.restart()


def another_experiment(attacker: Server) -> None:
    attacker.experiment = "another"


def another_server(attacker: Server) -> None:
    attacker.name, attacker.experiment = "an accomplice", "that of an accomplice"


def another_problem(attacker: Server) -> None:
    attacker.experiment, attacker.problem = "another", bf.Problem(bf.Hinge(), regulariser=bf.L2(1))


def two_columns(attacker: Server) -> None:
    """A loss of several classes, whose models have a number a class and feature."""
    attacker.experiment = "another"
    attacker.problem = bf.Problem(bf.Multinomial(), regulariser=bf.L2(1e-2))


BETWEEN = [restarted, another_experiment, another_server, another_problem, two_columns]


@pytest.mark.parametrize("between", BETWEEN)
def test_what_was_told_is_remembered_for_the_rows(server, between: Callable[[Server], None]):
    attacker = server(policy="maximum_parameter_share = 0.2")
    X, _ = held_out(attacker.place)
    one, other = around(X[3], np.random.default_rng(0))
    (first,) = attacker.judged(one)["figures"]
    between(attacker)
    if between is two_columns:  # of two classes, half the score each
        feature = np.append(other[:3], other[3]) / 2
        other = np.stack([-feature, feature], axis=1).ravel()
    (second,) = attacker.judged(other)["figures"]
    assert told_class([first, second]) is None
    assert second["figures_of"] == "a model that was judged earlier"


def test_a_model_of_no_agreed_run_is_not_judged(server):
    attacker = server()
    w = np.array([1.0, -1.0, 0.0, 0.0])
    with pytest.raises(RefusedError, match="agreed_runs"):
        attacker.judged(w, certified=False)
    attacker.judged(w)
    with pytest.raises(RefusedError, match="agreed_runs"):
        attacker.judged(w + 1e-9, certified=False)
    attacker.name, attacker.experiment = "another", "another"
    with pytest.raises(RefusedError, match="agreed_runs"):
        attacker.judged(w, certified=False)
    attacker.restart()
    attacker.judged(w)


def test_questions_are_few_and_the_same_one_is_free(server):
    attacker = server()
    models = [np.append(w, 0.0) for w in np.random.default_rng(0).normal(size=(4, 3))]
    for k, w in enumerate(models):
        attacker.restart()
        if k < 3:
            assert attacker.judged(w) == attacker.judged(w)
            continue
        for change in (another_experiment, another_server):
            change(attacker)
            with pytest.raises(RefusedError, match="maximum_judgements"):
                attacker.judged(w)


def test_a_loss_that_one_row_decides_tells_nobodys_class(server):
    """No decision differs; the losses differ by what one row far away contributes."""
    attacker = server(more=OUTLIER)
    assert (held_out(attacker.place)[0][:, 2] == FAR).sum() == 1
    one = np.array([0.0, 0.0, 0.0, 3.0])
    other = one + np.array([0.0, 0.0, 1e-4, 0.0])
    first, second = attacker.judged(one, other)["figures"]
    assert second["loss"] == first["loss"]
    assert second["figures_of"] == "w0"


def test_a_model_that_gives_a_class_to_one_row_does_not_tell_that_rows_class(server):
    attacker = server(more=OUTLIER)
    (told,) = attacker.judged(np.array([0.0, 0.0, 1.0, -FAR / 2]))["figures"]
    assert told["confusion"]["tp"] == told["confusion"]["fp"] == 0
    assert told["merged"]


def test_an_order_that_two_rows_decide_does_not_tell_their_classes(server):
    """Two people change places by score; the AUC moves where their classes differ."""
    attacker = server()
    X, _ = held_out(attacker.place)
    rng, pairs = np.random.default_rng(2), list[Array]()
    for _ in range(4):
        w, d = rng.normal(size=(2, 3))
        start, step = np.argsort(X @ w), 1.0
        while (moved := (np.argsort(X @ (w + step * d)) != start).sum()) != 2:
            step *= 0.5 if moved > 2 else 1.5
        pairs += [np.append(v, 30.0) for v in (w, w + step * d)]
    areas = [each["auc"] for each in attacker.judged(*pairs)["figures"]]
    assert areas[::2] == areas[1::2]


def test_four_models_that_differ_for_many_do_not_tell_of_one_together(server):
    """Two steps over the same groups of people, one of which takes in one more."""
    rng, more = np.random.default_rng(3), ""
    for k in range(120):
        x = np.eye(3)[k % 3] * 100 + rng.normal(size=3).round(3)
        more += ",".join(map(str, [*x, CLASSES[k % 2], "f"])) + "\n"
    attacker = server(more=f"{more}0.0,0.0,50.0,well,f\n")
    models = np.array([[1, -1, -1, -55], [1, 1, -1, -55], [1, 1, 1, -55], [1, -1, 1, -45]], float)
    figures = attacker.judged(*models)["figures"]
    assert [each.get("figures_of") for each in figures] == [None, None, None, "w0"]
    first, second, third, fourth = (each["confusion"]["tp"] for each in figures)
    assert second - first >= 5  # what is not told of one person is told of groups
    assert third - second >= 5
    assert fourth == first


def numbers(place: Path) -> tuple[Problem, Roles]:
    """A loss of numbers, and what the columns are for."""
    declared = {"age": {}, "dose": {}}
    schema = declared_schema([*declared], declared, "stay")
    return bf.Problem(bf.Huber(), regulariser=bf.L2(1e-2)), Roles(
        "stay", schema.to_dict(), test=0.3, seed=3
    )


def test_which_of_two_predictions_is_closer_tells_no_number(server):
    """The middle of two predictions that moves past one row's number, and past no other."""
    attacker = server()
    attacker.problem, asked = numbers(attacker.place)
    attacker.roles = asked.text()
    base = np.array([0.0, 0.0, -0.8])
    others = [base + np.array([0.0, 0.0, 1.0 + 0.02 * k]) for k in range(7)]
    pairs = attacker.judged(base, *others)["pairs"]
    counts = [(pair["better"], pair["worse"]) for pair in pairs]
    steps = np.abs(np.diff([better for better, _ in counts]))
    assert ((steps == 0) | (steps >= 10)).all()


def test_rows_that_join_or_leave_are_not_told_by_a_model_that_is_judged_again(server):
    attacker = server()
    w = np.array([1.0, -1.0, 0.0, 0.0])
    attacker.judged(w)
    with (attacker.place / "north" / "rows.csv").open("a") as rows:
        rows.writelines(f"{9 + k / 8},0.5,0.25,well,f\n" for k in range(8))
    assert (held_out(attacker.place)[0][:, 0] >= 9).any()
    attacker.restart()
    attacker.experiment = "another"
    with pytest.raises((RefusedError, ClientError), match="minimum_rows"):
        attacker.judged(w)


def test_models_that_differ_for_many_have_figures_of_their_own(server):
    """Nothing is withheld from a server that follows the algorithm."""
    attacker = server()
    models = [np.array([1.0, -1.0, 0.0, 0.0]), np.array([-1.0, -1.0, 0.5, 0.0])]
    figures = attacker.judged(*models)["figures"]
    assert not any(key in each for each in figures for key in ("figures_of", "merged"))
    assert figures[0]["loss"] != figures[1]["loss"]


LOOSE = Policy(
    minimum_rows=1,
    minimum_level_rows=1,
    maximum_parameter_share=9.0,
    minimum_people=1,
    maximum_models=100_000,
    maximum_model_length=1e30,
    smooth_losses_only=False,
)
BY_RANK = {
    "ranks of all rows": bf.Problem(
        bf.Logistic(), over_rows=bf.Superquantile(0.3), regulariser=bf.L2(1e-2)
    ),
    "a spectrum of all rows": bf.Problem(
        bf.Logistic(), over_rows=bf.Extremile(2.0), regulariser=bf.L2(1e-2)
    ),
    "a network": bf.Problem(bf.Logistic(), predictor=bf.MLP(hidden=(2,)), regulariser=bf.L2(1e-2)),
}


def judged_after(problem: Problem, folder: Path, method: Any = None, **options: Any) -> int:
    """Of how many sites there are figures after an honest run."""
    sites = {}
    for name in carried_examples.SITES:
        rows = carried_examples.rows().restrict(name)
        source = partial(lambda own, text, private: own, OwnRows(rows, rows, (), ()))
        party = Party(name, source, folder / name, Guard(LOOSE))
        sites[name] = lambda data, party=party: party.answer("alliance", data)
    agreement = agree(LocalTransport(sites), "trial", problem)
    problem, data = agreement.problem, agreement.metadata
    engine = Network(agreement.session, stalls=False, **options)
    solution = bf.solve(problem, data, algorithm=method, engine=engine, max_rounds=3)
    stated = judge_at_sites(problem, data, {"model": solution.w}, engine)
    return len(stated["measures"][0]["clients"])


@pytest.mark.parametrize("problem", (PROBLEMS | BY_RANK).values(), ids=PROBLEMS | BY_RANK)
def test_the_model_of_an_honest_run_is_judged(problem: Problem, tmp_path: Path):
    assert judged_after(problem, tmp_path) == len(carried_examples.SITES)


METHODS = {
    name: example.stated
    for name, example in carried_examples.federated().items()
    if example.stated is not None and example.stated[0].privacy is None
}


@pytest.mark.parametrize("stated", METHODS.values(), ids=METHODS)
def test_the_model_of_every_method_is_judged(stated: tuple[Problem, Any], tmp_path: Path):
    assert judged_after(stated[0], tmp_path, stated[1]) == len(carried_examples.SITES)


def test_masked_runs_are_judged_as_well(tmp_path: Path):
    summed = judged_after(PROBLEMS["class weights"], tmp_path, secure_sum=True)
    assert summed == len(carried_examples.SITES)
