"""A server that asks sites to take part only to learn of their rows, and never agrees to anything.

It asks with one schema after the other and reads every answer. What is asserted is that answers of
sites that differ in one row differ in one bit at most, that such questions are few, and that of a
private problem not even that bit depends on a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from border.carriers import CARRIERS, Call, in_process, sliced, transport
from sites.folders import CLASSES, COLUMNS, NAMES, folder_of
from sites.test_party import introduce, policy_of

import bonafed as bf
from bonafed.data.schema import declared_schema
from bonafed.engines.network import Network
from bonafed.engines.wire import Envelope, Refused
from bonafed.problem.metadata import Introduced
from bonafed.problem.problem import Problem
from bonafed.rounds import decode, encode
from bonafed.sites.audit import read_log
from bonafed.sites.introductions import RULE, SENTENCE
from bonafed.sites.policy import Policy
from bonafed.sites.rows import Roles
from bonafed.sites.session import Agree, Introduce, agree

PLAIN = bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2))
BUDGET = bf.Budget(0.7, 1e-5, sizes=dict.fromkeys(NAMES, 100))
PRIVATE = replace(PLAIN, privacy=BUDGET)
CODES = ("A10", "A11", "C34")
Carrier = Callable[[Path, str], Any]


def hospital(folder: Path, codes: list[str], ill: str = "ill") -> Path:
    """A site whose rows have a column of codes, over and over the same three and then ``codes``."""
    folder_of(folder.parent, folder.name, m=120 + len(codes))
    lines = (folder / "rows.csv").read_text().splitlines()
    of = [CODES[k % 3] for k in range(120)] + codes
    rows = [f"{line},{code}" for line, code in zip(lines[1:], of, strict=True)]
    rows[-1] = rows[-1].replace("ill", ill)
    (folder / "rows.csv").write_text("\n".join([f"{lines[0]},code", *rows]) + "\n")
    (folder / "site.secret").write_bytes(bytes(32))
    (folder / "site.secret").chmod(0o600)
    return folder


def asked(features: dict[str, dict[str, Any]], target: str = "state", **more: Any) -> Roles:
    """What the columns are for."""
    classes = more.pop("classes", CLASSES)
    schema = declared_schema([*features], features, target, classes)
    return Roles(target, schema.to_dict(), classes=classes, seed=3, **more)


def coded(*categories: str) -> dict[str, dict[str, Any]]:
    return {"age": {}, "code": {"categories": list(categories)}}


QUESTIONS: dict[str, Roles] = {
    "a schema without the code": asked(coded(*CODES)),
    "a schema of the code": asked(coded("B20")),
    "a schema with the code": asked(coded(*CODES, "B20")),
    "the code as a number": asked({"age": {}, "code": {}}),
    "the code as the target": asked({"age": {}}, "code", classes=CODES),
    "the code or none as the target": asked({"age": {}}, "code", classes=("B20", "none")),
    "the code as a group": asked({"age": {}}, columns=("code",)),
    "the code as a person": asked({"age": {}}, person="code"),
    "classes without one": asked({"age": {}}, classes=("ill", "gone")),
    "a target of numbers": asked({"age": {}}, "dose", classes=None),
    "a scale of no size": asked({"age": {"mean": 0.0, "scale": 1e-103}}),
}


def answer(call: Call, body: object, sender: str = "alliance", experiment: str = "trial") -> Any:
    """The body of the answer of "north"."""
    return decode(call(sender, encode(Envelope(experiment, "north", 7, body)))).body


def told(
    place: Path,
    codes: list[str],
    problem: Problem,
    roles: Roles,
    ill: str = "ill",
    carrier: Carrier = in_process,
) -> Any:
    """What a site with these codes tells before anything is agreed."""
    folder = hospital(place / "north", codes, ill)
    with carrier(folder, "north") as call:
        return answer(call, introduce(problem, roles))


@pytest.mark.parametrize("roles", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize(("carrier", "codes"), sliced([1, 2, 5, 0], [1]))
def test_a_site_says_yes_or_one_sentence(
    roles: Roles, carrier: Carrier, codes: int, tmp_path: Path
):
    said = told(tmp_path, ["B20"] * codes, PLAIN, roles, carrier=carrier)
    if isinstance(said, Introduced):
        assert (said.values, said.cells) == ({}, {})
        assert said.labels == roles.classes
        return
    assert isinstance(said, Refused)
    if roles.classes is None:  # which no site reads off its rows
        assert said.rule == "declared"
        return
    assert (said.rule, said.text) == (RULE, SENTENCE)
    entries, _ = read_log(tmp_path / "north" / "audit.jsonl")
    ((_, reason),) = entries[-1].refused[:1]
    assert reason != SENTENCE


def bare(said: Any) -> Any:
    """An answer without what nobody can hold a guess against."""
    return encode(replace(said, digest="") if isinstance(said, Introduced) else said)


FOUR = (
    "a schema of the code",
    "the code as a number",
    "the code as the target",
    "classes without one",
)


@pytest.mark.parametrize(("carrier", "question"), sliced(QUESTIONS, FOUR))
def test_of_a_private_problem_no_answer_depends_on_a_cell(
    carrier: Carrier, question: str, tmp_path: Path
):
    roles = QUESTIONS[question]
    ways = [["A10"], ["B20"], ["1e999"], ["7"], [""]]
    asked = partial(told, problem=PRIVATE, roles=roles, carrier=carrier)
    said = [asked(tmp_path / str(k), way) for k, way in enumerate(ways)]
    said.append(asked(tmp_path / "state", ["A10"], ill="dead"))
    said.append(asked(tmp_path / "gone", ["A10"], ill=""))
    if roles.person is None:  # whose cells have to be there, as nobody's rows are told apart else
        assert len({bare(one) for one in said}) == 1
    for one in said:
        if isinstance(one, Introduced):
            assert (one.rows, one.weight, one.values, one.cells) == (100, 100.0, {}, {})


def test_a_private_problem_without_sizes_tells_the_rows_of_the_table_whatever_is_asked(
    tmp_path: Path,
):
    """Else counts of any class were counts of rows with a code."""
    undeclared = replace(PLAIN, privacy=bf.Budget(0.7, 1e-5))
    for k, classes in enumerate([CODES, ("A10", "A11"), ("A10", "B20"), ("A10", "none")]):
        roles = asked({"age": {}}, "code", classes=classes)
        one = told(
            tmp_path / str(k), ["B20", "B20"], replace(undeclared, loss=bf.Logistic()), roles
        )
        assert (one.rows, one.weight) == (122, 122.0)


def test_a_private_problem_is_told_no_groups_and_no_classes_of_rows(tmp_path: Path):
    grouped = replace(PRIVATE, local_constraint=bf.EqualisedOdds("code", 0.3))
    roles = asked({"age": {}}, columns=("code",))
    assert told(tmp_path / "a", ["B20"], grouped, roles).rule == "declared"
    unknown = replace(asked({"age": {}}, "code"), classes=None)
    assert told(tmp_path / "b", ["B20"], PRIVATE, unknown).rule == "declared"


def question(k: int) -> Introduce:
    """One of many, each with another code."""
    return introduce(PLAIN, asked(coded(*CODES, f"B{k}")))


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_thousand_questions_get_so_many_answers_as_the_policy_says(
    carrier: Carrier, tmp_path: Path
):
    folder, most = hospital(tmp_path / "north", ["B20"]), 5
    policy_of(folder, f"maximum_introductions = {most}\none_selection = false")
    answers = []
    for k in range(9):
        with carrier(folder, "north") as call:  # another process each time
            sender, experiment = f"alliance {k}", f"trial {k}"
            answers.append(answer(call, question(k), sender, experiment))
            again = answer(call, question(0), sender, "any")  # costs nothing
            assert bare(again) == bare(answers[0])
    rules = [one.rule for one in answers]
    assert rules == [RULE] * most + ["maximum_introductions"] * (9 - most)
    assert Policy().maximum_introductions == 100


def test_what_holds_no_row_against_anything_new_is_no_question(tmp_path: Path):
    folder = hospital(tmp_path / "north", [])
    policy_of(folder, "maximum_introductions = 1")
    roles = asked(coded(*CODES))
    with in_process(folder, "north") as call:
        for k in range(1, 5):
            problem = replace(PLAIN, regulariser=bf.L2(k), over_clients=bf.LpBall(0.1 * k, 2))
            assert isinstance(answer(call, introduce(problem, roles)), Introduced)
        other = replace(PLAIN, loss=bf.Hinge())
        assert answer(call, introduce(other, roles)).rule == "maximum_introductions"


def test_agreements_with_invented_sites_are_counted_as_well(tmp_path: Path):
    """What other sites tell is held against the rows, and a server may invent it."""
    folder = hospital(tmp_path / "north", [])
    policy_of(folder, "maximum_introductions = 4\nminimum_organizations = 1")
    ask = introduce(PLAIN, asked(coded(*CODES)))
    with in_process(folder, "north") as call:
        facts = answer(call, ask)
        rules = []
        for k in range(6):
            other = replace(facts, client="invented", labels=(f"class {k}", "ill"))
            said = answer(call, Agree(ask, (facts, other)), experiment=f"trial {k}")
            rules.append(said.rule)
    assert rules == [RULE] * 3 + ["maximum_introductions"] * 3


def test_a_private_solve_goes_through_where_cells_are_not_as_declared(tmp_path: Path):
    """Unknown codes are zeros, and rows of no declared class are left out."""
    for name in NAMES:
        hospital(tmp_path / name, ["B20", "B21"], ill="dead")
        policy_of(tmp_path / name, "maximum_epsilon = 1.0\nmaximum_delta = 1e-5")
    roles = asked({name: {} for name in COLUMNS[:2]} | coded(*CODES))
    with ExitStack() as stack:
        calls = {name: stack.enter_context(in_process(tmp_path / name, name)) for name in NAMES}
        agreement = agree(transport(calls), "trial", PRIVATE, roles=roles.text())
        solution = bf.solve(
            agreement.problem,
            agreement.metadata,
            algorithm=bf.PrivateADMM(max_rounds=3),
            engine=Network(agreement.session),
        )
    assert [row["n"] for row in solution.clients] == [100] * 3
    assert np.isfinite(solution.w).all()


def test_who_runs_a_site_reads_what_the_server_is_not_told(tmp_path: Path):
    folder = hospital(tmp_path / "north", ["B20"])
    with in_process(folder, "north") as call:
        said = answer(call, introduce(PLAIN, asked(coded(*CODES))))
    assert "bonafed site log" in said.text
    assert "'B20'" in str(read_log(folder / "audit.jsonl")[0][-1].refused)
