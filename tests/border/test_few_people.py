"""Nothing that leaves a site, and no difference of two answers, hangs on only a few people."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from border import readers
from sites.folders import NAMES, OPEN, PROBLEM, folder_of, roles

import bonafed as bf
from bonafed.algorithms.method import Method
from bonafed.algorithms.pooled.single_client import Advance
from bonafed.certificates.certify import Weigh, Weighing
from bonafed.engines.network import Network, RefusedError
from bonafed.engines.wire import LocalTransport
from bonafed.problem.lower_bounds import no_multipliers, rounded_up
from bonafed.problem.parts import Sums
from bonafed.rounds import Stop
from bonafed.sites.party import Party, open_party
from bonafed.sites.people import SLOPES, Answered, Answers, telling, told_by, unjudged
from bonafed.sites.policy import Policy
from bonafed.sites.session import Agreement, agree
from bonafed.sites.spans import Slopes, Span, fewest
from examples import ALGORITHMS

TRAILS = {  # the methods whose local steps nothing describes, and those of ranked rows
    *(
        "FedAvg",
        "FedProx",
        "DRFA",
        "ProximalAL",
        "RankBundle",
        "RankInteriorPoint",
        "KinkInteriorPoint",
        "RowMultiplierMethod",
    )
}


def opened(place: Path, policy: str = "", m: int = 120) -> dict[str, Party]:
    return {name: open_party(folder_of(place, name, policy, m), name) for name in NAMES}


def agreed(sites: dict[str, Party], experiment: str = "trial", problem: Any = PROBLEM) -> Agreement:
    calls = {name: partial(site.answer, "server") for name, site in sites.items()}
    text = roles().text()
    return agree(LocalTransport(calls), experiment, problem, roles=text, patience=600.0)


def solved(agreement: Agreement, **how: Any) -> bf.Solution:
    return bf.solve(agreement.problem, agreement.metadata, engine=Network(agreement.session), **how)


# ----------------------------------------------------------------------------------- the numbers


def one(rows: Any, group: Any = None) -> Slopes:
    return Slopes(SLOPES, np.array(rows, float), None if group is None else np.array(group))


def test_as_many_people_as_equal_slopes_and_one_where_one_is_all():
    assert fewest(one([2.0] * 7), None, None) == pytest.approx(7)
    assert fewest(one([0.0, 0.0, -3.0]), None, None) == 1.0
    assert fewest(one([0.0, 0.0]), None, None) == np.inf
    assert fewest(one([[3.0, 4.0], [5.0, 0.0]]), None, None) == pytest.approx(2)


def test_rows_of_a_person_count_once():
    assert fewest(one([1.0] * 6), None, np.array([0, 0, 0, 1, 1, 1])) == pytest.approx(2)


def test_every_group_and_all_groups_together_are_sums():
    a = one([1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1])
    assert fewest(a, None, None) == pytest.approx(2)
    # the groups differ in one row: their difference at one model is that row
    before, after = one([1] * 6, [0, 0, 0, 0, 1, 1]), one([1] * 6, [0, 0, 0, 1, 1, 1])
    assert fewest(after, before, None) == pytest.approx(1)


def test_the_share_of_a_person_in_any_combination():
    rng = np.random.default_rng(0)
    told, span = rng.normal(size=(12, 5)), Span(12)
    span.add([*told.T, told @ rng.normal(size=5)])  # the last is a combination
    assert span.count == 5
    shares = np.diag(told @ np.linalg.pinv(told))
    np.testing.assert_allclose(span.share, shares, atol=1e-12)
    whose, basis = np.repeat(np.arange(4), 3), span.basis[:5]  # people of three rows
    blocks = [np.linalg.norm(basis[:, whose == p], 2) ** 2 for p in range(4)]
    assert span.largest(whose) == pytest.approx(max(blocks))
    assert span.largest(whose, 0.999) == 0.999


def test_what_differs_by_rounding_differs_by_nothing():
    slopes = np.linspace(-1, 1, 9)
    assert fewest(one(slopes), one(slopes * (1 + 1e-16)), None) == np.inf
    moved = slopes.copy()
    moved[4] += 1e-9
    assert fewest(one(moved), one(slopes), None) == 1.0


# ------------------------------------------------------------------------------------ the methods


FEDERATED = {
    name: example.algorithm
    for name, example in ALGORITHMS.items()
    if isinstance(example.algorithm, Method) and not example.algorithm.requirements.private
}


@pytest.mark.parametrize("name", FEDERATED)
def test_a_site_knows_what_a_method_tells_or_refuses_it(name: str):
    """A new method is refused until `TOLD` or its messages say what its answers tell."""
    method = FEDERATED[name]
    known = unjudged(Policy(), method, PROBLEM) is None
    assert known <= all(telling(kind) is not None for kind in method.on_client)
    assert unjudged(Policy(minimum_people=1), method, PROBLEM) is None
    partly = getattr(method, "sample", None) or getattr(method, "local_steps", 1) > 1
    if not known and not partly and Advance not in method.on_client:  # which is for one client
        assert type(method).__name__ in TRAILS


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Answered]:
    """What sites were about to answer."""
    told: list[Answered] = []
    judged = Answers.refusal

    def refusal(self: Answers, policy: Any, experiment: str, people: Any, answered: Any) -> Any:
        told.append(answered)
        return judged(self, policy, experiment, people, answered)

    monkeypatch.setattr(Answers, "refusal", refusal)
    return told


def added_up(answered: Answered, sums: Sums) -> np.ndarray:
    """The gradients (G, D) that these slopes make."""
    rows = np.asarray(answered.block.X)[0]
    rows = np.column_stack([rows, np.ones(len(rows))])
    group = np.zeros(len(rows), int) if sums.group is None else sums.group
    return np.stack([sums.rows[group == g] @ rows[group == g] for g in range(group.max() + 1)])


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=["smooth", "in groups"])
def test_the_slopes_are_those_of_the_numbers_that_leave(
    loss: Any, heard: list[Answered], tmp_path: Path
):
    problem = bf.Problem(
        loss,
        over_samples=bf.WassersteinBall(0.05, label_cost=1.0),
        over_clients=bf.LpBall(0.2),
        regulariser=bf.L2(1e-2),
    )
    solved(agreed(opened(tmp_path, OPEN), problem=problem), max_rounds=4)
    compared = set()
    for answered in heard:
        told, up = told_by(answered), answered.upload
        if type(answered.ask).__name__ == "Evaluate":
            each = np.concatenate([added_up(answered, s) for s in told[0].sums])
            np.testing.assert_allclose(each, up.gradient[0, : len(each)], atol=1e-12)
            assert not up.gradient[0, len(each) :].any()
        elif type(answered.ask).__name__ == "Certify":
            (combined,) = told[-1].sums
            np.testing.assert_allclose(added_up(answered, combined), up.gradient, atol=1e-12)
        else:
            continue
        compared.add(type(answered.ask))
    assert len(compared) == 2


def test_the_largest_row_is_told_to_a_power_of_two():
    numbers = np.array([0.0, 3.0, 4.0, 4.1, 1e-300, 1e300])
    up = rounded_up(numbers)
    assert (up >= numbers).all()
    np.testing.assert_array_equal(up[:4], [0.0, 4.0, 4.0, 8.0])
    assert (np.frexp(up[up > 0])[0] == 0.5).all()


def test_the_rows_that_a_shift_has_locked_are_those_of_the_answer():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    fed = bf.Federation.from_arrays({"a": (X, np.where(X[:, 0] > 0, "ill", "well"))})
    concrete, data = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1)).at(fed)
    block, w, shift = data.block(0), np.array([0.1, 0.0, 0.0]), np.array([3.0, 1.0, 0.0])
    rounds = Weighing(w, no_multipliers(concrete, 1), problem=concrete)
    ask = Weigh(w, shift, np.ones(1), np.zeros((1, 0)), np.zeros(0), False)
    up: Any = rounds.weigh(concrete, ask, block)
    told = told_by(Answered(concrete, block, ask, up, None, None))
    locked, Z = told[-1].sums[0].rows, np.column_stack([np.asarray(block.X)[0], np.ones(40)])
    assert 0 < (locked > 0).sum() < 40
    np.testing.assert_allclose((Z.T * locked) @ Z, up.locked[0], atol=1e-12)
    np.testing.assert_array_equal(told[-1].models, [w, w + shift])


# -------------------------------------------------------------------------------------- the rule


def test_an_honest_run_ends_as_if_there_were_no_rule(tmp_path: Path):
    ruled = solved(agreed(opened(tmp_path / "ruled")))
    free = solved(agreed(opened(tmp_path / "free", OPEN)))
    assert ruled.outcome.stop is Stop.OPTIMAL
    np.testing.assert_array_equal(ruled.w, free.w)
    assert ruled.certificate.numbers() == free.certificate.numbers()


@pytest.mark.parametrize(
    ("problem", "what"),
    [
        (bf.Problem(bf.Hinge()), "slope of the loss Hinge"),
        (bf.Problem(bf.SmoothHinge()), "0 for all but few rows"),
        (bf.Problem(bf.Logistic(), over_samples=bf.Superquantile(0.5)), "rank of its loss"),
        (
            bf.Problem(bf.Logistic(), over_samples=bf.WassersteinBall(0.1, label_cost=1.0)),
            "flips labels",
        ),
    ],
    ids=["loss", "flat", "ranks", "flips"],
)
def test_no_slope_that_jumps(problem: Any, what: str, tmp_path: Path):
    with pytest.raises(RefusedError, match=what) as refused:
        agreed(opened(tmp_path), problem=problem)
    assert refused.value.rule == "smooth_losses_only"


def test_slopes_with_ends_are_answered_under_masks(tmp_path: Path):
    """Between two ends slopes of Huber's loss are linear: combinations leave the rows that passed
    an end.
    """
    huber = bf.Problem(bf.Huber(9.0), over_clients=bf.LpBall(0.2), regulariser=bf.L2(1e-2))
    sites = readers.world(tmp_path, readers.made(60, 2, "real"), None)
    with pytest.raises(RefusedError, match="second derivative") as refused:
        sites.solve("one", huber)
    assert refused.value.rule == "smooth_losses_only"
    assert sites.solve("two", huber, masked=True).outcome.stop is Stop.OPTIMAL


def test_ranks_of_all_rows_are_judged_by_nothing(tmp_path: Path):
    ranked = bf.Problem(bf.Logistic(), over_rows=bf.Superquantile(0.5), regulariser=bf.L2(1e-2))
    with pytest.raises(RefusedError) as refused:
        solved(agreed(opened(tmp_path, "smooth_losses_only = false"), problem=ranked))
    assert refused.value.rule == "minimum_people"


def test_a_budget_that_a_server_chooses_opens_nothing(tmp_path: Path):
    budget = bf.Budget(1e4, 0.1, sizes=120)
    private = bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2), privacy=budget)
    with pytest.raises(RefusedError) as refused:
        solved(agreed(opened(tmp_path), problem=private))
    assert refused.value.rule == "minimum_people"
    assert "maximum_epsilon" in str(refused.value)


def test_hinge_where_it_is_allowed_ends_where_two_answers_differ_by_few(tmp_path: Path):
    sites = opened(tmp_path, "smooth_losses_only = false")
    solution = solved(agreed(sites, problem=bf.Problem(bf.Hinge(), regulariser=bf.L2(1e-2))))
    assert solution.outcome.stop is Stop.REFUSED
    assert "minimum_people" in solution.outcome.text
    assert solution.certificate.value > 0


@pytest.mark.parametrize(
    "rule", ["maximum_models = 2", "maximum_models = 3", "maximum_model_length = 1"]
)
def test_a_refusal_ends_a_run_with_what_is_proved(rule: str, tmp_path: Path):
    solution = solved(agreed(opened(tmp_path, rule)))
    assert solution.outcome.stop is Stop.REFUSED
    assert rule.partition(" ")[0] in solution.outcome.text
    gap = solution.certificate.gap
    if gap is None:
        assert "No bound is proved" in solution.outcome.text
        return
    assert f"proven relative gap {solution.certificate.relative_gap:.2e}" in solution.outcome.text
    best = solved(agreed(opened(tmp_path / "free", OPEN)))
    assert solution.certificate.bound <= best.certificate.value


def test_models_are_counted_over_runs_and_processes(tmp_path: Path):
    sites = opened(tmp_path, "maximum_models = 9")
    assert solved(agreed(sites)).outcome.stop is Stop.OPTIMAL
    for site in sites.values():
        site.close()
    again = {name: open_party(tmp_path / name, name) for name in NAMES}
    agreement = agreed(again)
    assert solved(agreement).outcome.stop is Stop.OPTIMAL  # the same models
    other = solved(agreement, start=np.array([0.3, 0.1, -0.2, 0.1]))
    assert other.outcome.stop is Stop.REFUSED


def test_a_row_more_is_read_off_no_two_answers(tmp_path: Path):
    """The same question before and after a patient came, in an experiment for each."""
    sites = opened(tmp_path)
    first = solved(agreed(sites))
    for site in sites.values():
        site.close()
    with (tmp_path / "east" / "rows.csv").open("a") as table:
        table.write("0.5,1.0,2.0,ill,f\n")
    again = {name: open_party(tmp_path / name, name) for name in NAMES}
    with pytest.raises(RuntimeError, match=r"east .* hangs on fewer than 3 people"):
        solved(agreed(again, "another"), start=first.w)


def test_a_kept_answer_that_was_cut_off_has_never_left(tmp_path: Path):
    sites = opened(tmp_path)
    solved(agreed(sites))
    file = sites["east"].answers.file
    whole = Answers(file.parent).told
    data = file.read_bytes()
    file.write_bytes(data + (1000).to_bytes(8, "little") + b"half of it")
    slopes = sites["east"].answers.slopes
    numbers = slopes.read_bytes()
    slopes.write_bytes(numbers + b"half of it")
    again = Answers(file.parent).told
    np.testing.assert_array_equal([one.rows for one in again], [one.rows for one in whole])
    assert file.read_bytes() == data
    assert slopes.read_bytes() == numbers


@pytest.mark.parametrize("together", [False, True])
def test_cuts_of_constraints_are_certified(together: bool, tmp_path: Path):
    """Also where one owner has none of them, and of constraints that are about no rows."""
    miss, still = bf.NeymanPearson("ill", 0.6), bf.LinearInequality(np.eye(4)[:1], np.ones(1))
    limits: Any = {"local_constraint": [miss, still]}
    if together:
        limits = {"constraint": [bf.Coupled(miss), still]}
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2), **limits)
    one_cut = bf.Bundle(metric="identity", cuts=1, tol=1e-3)
    solution = solved(agreed(opened(tmp_path), problem=problem), algorithm=one_cut)
    assert not solution.certificate.failed
    assert solution.certificate.bound is not None
