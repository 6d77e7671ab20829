"""The policy of a site: what it refuses, by which rule, and what it tells a server about that."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bonafed as bf
from bonafed.config.toml_file import ConfigError, validated
from bonafed.problem.metadata import Introduced
from bonafed.sites.guard import Guard, RefusedByPolicyError
from bonafed.sites.policy import RULES, Held, LevelCount, Policy, Proposal, When, held_constraints

DIGEST, OTHER = "0a" * 32, "0b" * 32
PARITY = bf.DemographicParity("sex", level=0.1)
STRICT = f"""\
minimum_rows = 20
minimum_level_rows = 5
minimum_organizations = 3
known_organizations = ["north", "east", "south", "west"]
maximum_parameter_share = 0.1
allowed_columns = ["age", "sex", "sick"]
disallowed_columns = ["postcode"]
allowed_algorithms = ["interior_point", "private_admm"]
allowed_messages = ["Expand", "Weigh"]
allowed_servers = ["alliance"]
maximum_epsilon = 2.0
maximum_delta = 1e-6
pinned_problems = ["{DIGEST}"]
pinned_software = ["sha256:{DIGEST.upper()}"]
allowed_versions = ["0.1.0"]
[[constraint]]
kind = "demographic_parity"
on = "clients"
column = "sex"
level = 0.1
"""
TOLD = Introduced(
    *("north", 40, ("age",), (), None, False, 40.0, True, ("sex",)),
    values={"sex": ("f", "m")},
    cells={"sex": ((None, "f", 5.0), (None, "m", 35.0))},
)
GOOD = Proposal(
    server="alliance",
    site="north",
    problem_digest=DIGEST,
    software_digest=DIGEST,
    version="0.1.0",
    algorithm="interior_point",
    messages=("Expand", "Weigh"),
    sites=("north", "east", "south"),
    columns=("age", "sex", "sick"),
    parameters=3,
    rows=40,
    levels=(LevelCount("sex", 12), LevelCount("sick", 9)),
    epsilon=1.0,
    delta=1e-7,
    constraints=(Held("clients", PARITY),),
    held_out=0,
    told=TOLD,
    averaged=(("the rows of a group", 20),),
    jumps="",
    parts=20,
)
VIOLATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a server that may not ask": ({"server": "mallory"}, "allowed_servers"),
    "too few rows": ({"rows": 19, "parameters": 1}, "minimum_rows"),
    "a rare level": ({"levels": (LevelCount("sex", 4),)}, "minimum_level_rows"),
    "a row of its own level": ({"levels": (LevelCount("sex", 1),)}, "minimum_level_rows"),
    "few rows held out": ({"held_out": 3}, "minimum_rows"),
    "the mean over a small group": ({"averaged": (("the rows of a group", 19),)}, "minimum_rows"),
    "sums over small groups": ({"parts": 19}, "minimum_rows"),
    "a small group": (
        {"told": replace(TOLD, cells={"sex": ((None, "f", 4.0),)})},
        "minimum_level_rows",
    ),
    "a group for each of many values": (
        {"told": replace(TOLD, values={"sex": tuple(range(1000))})},
        "minimum_level_rows",
    ),
    "two sites": ({"sites": ("north", "east")}, "minimum_organizations"),
    "one site twice": ({"sites": ("north", "east", "NORTH ")}, "minimum_organizations"),
    "invented sites": ({"sites": ("north", "x", "y", "z")}, "minimum_organizations"),
    "a model too large": ({"parameters": 5}, "maximum_parameter_share"),
    "a column not allowed": ({"columns": ("age", "name")}, "allowed_columns"),
    "an algorithm not allowed": ({"algorithm": "fed_avg"}, "allowed_algorithms"),
    "other people's algorithm": ({"algorithm": "mine:Spy"}, "allowed_algorithms"),
    "a message not allowed": ({"messages": ("Expand", "Dump")}, "allowed_messages"),
    "a problem not approved": ({"problem_digest": OTHER}, "pinned_problems"),
    "the first digits of a digest": ({"problem_digest": DIGEST[:32]}, "pinned_problems"),
    "software not approved": ({"software_digest": OTHER}, "pinned_software"),
    "another version": ({"version": "0.2.0"}, "allowed_versions"),
    "too large an epsilon": ({"epsilon": 2.5}, "maximum_epsilon"),
    "no privacy at all": ({"epsilon": math.inf}, "maximum_epsilon"),
    "an epsilon that is not a number": ({"epsilon": math.nan}, "maximum_epsilon"),
    "too large a delta": ({"delta": 1e-5}, "maximum_delta"),
    "no constraint": ({"constraints": ()}, "constraint"),
    "a looser constraint": (
        {"constraints": (Held("clients", bf.DemographicParity("sex", level=0.2)),)},
        "constraint",
    ),
    "a constraint elsewhere": ({"constraints": (Held("server", PARITY),)}, "constraint"),
}
NEEDED = {  # the facts, and the rules that cannot be judged without them
    "server": ["allowed_servers"],
    "problem_digest": ["pinned_problems"],
    "software_digest": ["pinned_software"],
    "version": ["allowed_versions"],
    "algorithm": ["allowed_algorithms"],
    "messages": ["allowed_messages"],
    "sites": ["minimum_organizations"],
    "columns": ["allowed_columns", "disallowed_columns"],
    "parameters": ["maximum_parameter_share"],
    "rows": ["minimum_rows", "maximum_parameter_share"],
    "levels": ["minimum_level_rows"],
    "epsilon": ["maximum_epsilon"],
    "delta": ["maximum_delta"],
    "constraints": ["constraint"],
    "held_out": ["minimum_rows"],
    "told": ["minimum_level_rows"],
    "averaged": ["minimum_rows"],
    "parts": ["minimum_rows"],
}


def stated(text: str) -> Policy:
    return validated(Policy, text, "policy")[0]


def rules(policy: Policy, proposal: Proposal) -> list[str]:
    return [refusal.rule for refusal in policy.refusals(proposal)]


def test_a_run_that_keeps_every_rule_is_not_refused() -> None:
    assert stated(STRICT).refusals(GOOD) == []
    assert Policy().refusals(GOOD) == []


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_violation_is_refused_by_its_rule_alone(case: str) -> None:
    changes, rule = VIOLATIONS[case]
    refusals = stated(STRICT).refusals(replace(GOOD, **changes))
    assert [refusal.rule for refusal in refusals] == [rule]
    assert refusals[0].text.startswith(f"{rule}: ")
    assert refusals[0].answer.startswith(f"{rule}: ")
    # what makes a rule weaker is never told as the way out
    assert not {"lower", "raise", "remove", "change"} & {*refusals[0].text.split()}


def test_a_column_that_is_kept_back_is_refused_though_no_other_is_listed() -> None:
    policy = stated('disallowed_columns = ["postcode"]\n')
    assert rules(policy, replace(GOOD, columns=("age", "postcode"))) == ["disallowed_columns"]


@pytest.mark.parametrize("fact", NEEDED)
def test_a_rule_that_cannot_be_judged_refuses(fact: str) -> None:
    policy, without = stated(STRICT), replace(GOOD, **{fact: None})
    assert rules(policy, without) == NEEDED[fact]
    assert all("is not known" in refusal.text for refusal in policy.refusals(without))


def test_every_fact_is_needed_by_a_rule_and_every_rule_by_a_fact() -> None:
    assert {*NEEDED} == {field.name for field in fields(Proposal)} - {"site", "jumps"}
    judged = {rule for needed in NEEDED.values() for rule in needed}
    assert judged == {*Policy.model_fields} - {
        "known_organizations",
        "show_levels",
        "one_selection",
        "maximum_introductions",
        "maximum_judgements",
        # about answers, of which no proposal knows
        "minimum_people",
        "maximum_model_length",
        "maximum_models",
        "smooth_losses_only",  # below
    }
    tried = {rule for _, rule in VIOLATIONS.values()} | {"disallowed_columns"}
    assert tried == judged


def test_slopes_that_jump_are_refused_where_no_limited_noise_hides_them() -> None:
    for jumps, broken in (("", []), ("the hinge jumps", ["smooth_losses_only"]), (None, [0])):
        run, answered = replace(GOOD, jumps=jumps), rules(Policy(), replace(GOOD, jumps=jumps))
        assert len(answered) == len(broken)
        assert {*answered} <= {"smooth_losses_only"}
        assert rules(stated("smooth_losses_only = false\n"), run) == []
        assert rules(stated("maximum_epsilon = 2.0\nmaximum_delta = 1e-6\n"), run) == []


def test_what_is_not_stated_needs_no_fact() -> None:
    facts = {"rows": 10, "levels": (), "held_out": 0, "told": TOLD, "averaged": (), "jumps": ""}
    least = Proposal(sites=("a", "b", "c"), parameters=1, parts=10, **facts)
    assert Policy().refusals(least) == []
    defaults = rules(Policy(), Proposal())
    assert {*defaults} == {
        "minimum_organizations",
        "minimum_rows",
        "minimum_level_rows",
        "maximum_parameter_share",
        "smooth_losses_only",
    }


def test_the_defaults_are_those_of_vantage6_and_of_datashield() -> None:
    at_limit = replace(GOOD, rows=10, parameters=1, levels=(LevelCount("sex", 3),))
    assert Policy().refusals(at_limit) == []
    assert rules(Policy(), replace(at_limit, rows=9, parameters=0)) == ["minimum_rows"]
    assert rules(Policy(), replace(at_limit, parameters=2)) == ["maximum_parameter_share"]
    few = replace(at_limit, levels=(LevelCount("sex", 2),))
    assert rules(Policy(), few) == ["minimum_level_rows"]
    assert Policy().refusals(replace(at_limit, levels=(LevelCount("sex", 0),))) == []


@given(
    rows=st.integers(0, 200),
    level=st.integers(0, 60),
    sites=st.integers(0, 6),
    parameters=st.integers(0, 40),
    epsilon=st.floats(0.01, 10),
)
def test_more_rows_more_sites_a_smaller_model_and_less_epsilon_never_add_a_refusal(
    rows: int, level: int, sites: int, parameters: int, epsilon: float
) -> None:
    policy = stated("maximum_epsilon = 1.0\n")
    run = replace(
        GOOD,
        rows=rows,
        levels=(LevelCount("sex", level),),
        sites=tuple(f"site {k}" for k in range(sites)),
        parameters=parameters,
        epsilon=epsilon,
    )
    before = {*rules(policy, run)}
    milder = (
        replace(run, rows=rows + 1),
        replace(run, sites=(*(run.sites or ()), "one more")),
        replace(run, parameters=max(0, parameters - 1)),
        replace(run, epsilon=epsilon / 2),
        replace(run, levels=(LevelCount("sex", level + 1 if level else 0),)),
    )
    for other in milder:
        assert {*rules(policy, other)} <= before


@given(rows=st.integers(1, 10_000), percent=st.integers(1, 100))
def test_a_share_of_the_rows_is_reached_exactly(rows: int, percent: int) -> None:
    policy = stated(f"minimum_rows = 1\nmaximum_parameter_share = {percent / 100}\n")
    most = percent * rows // 100
    run = replace(GOOD, rows=rows, parameters=most)
    assert rules(policy, run) == []
    assert rules(policy, replace(run, parameters=most + 1)) == ["maximum_parameter_share"]


@given(count=st.integers(11, 19), level=st.integers(1, 4), parameters=st.integers(1000, 2000))
def test_what_a_server_is_told_has_no_number_that_was_counted_in_the_rows(
    count: int, level: int, parameters: int
) -> None:
    run = replace(
        GOOD, rows=count, levels=(LevelCount("ward", level, "Köln"),), parameters=parameters
    )
    for refusal in stated(STRICT).refusals(run):
        words = refusal.answer.replace(f"{parameters}", "").split()
        assert not any(c.isdigit() for word in words for c in word)
        assert "ward" not in refusal.answer
        assert "Köln" not in refusal.text + refusal.answer


def test_a_level_is_named_to_the_site_alone_and_where_it_says_so() -> None:
    run = replace(GOOD, levels=(LevelCount("ward", 1, "Köln"),))
    (refusal,) = stated("show_levels = true\n").refusals(run)
    assert "'Köln' with 1 row of this site, and 3 are needed" in refusal.text
    assert "Köln" not in refusal.answer
    (refusal,) = Policy().refusals(run)
    assert "Köln" not in refusal.text


@pytest.mark.parametrize("kind", ["Dump", "", "Expand.", "expand"])
def test_single_messages_are_refused_by_kind(kind: str) -> None:
    guard = Guard(stated(STRICT))
    for allowed in ("Expand", ".algorithms.federated:Expand"):
        guard.judge_at(Proposal(messages=(allowed,)), When.MESSAGE)
    Guard(Policy()).judge_at(Proposal(messages=(kind,)), When.MESSAGE)
    with pytest.raises(RefusedByPolicyError, match=r"^allowed_messages: "):
        guard.judge_at(Proposal(messages=(kind,)), When.MESSAGE)


def test_a_server_is_refused_whatever_it_asks() -> None:
    guard = Guard(stated(STRICT))
    guard.judge_at(Proposal(server="alliance"), When.SERVER)
    Guard(Policy()).judge_at(Proposal(server="mallory"), When.SERVER)
    with pytest.raises(RefusedByPolicyError, match=r"^allowed_servers: "):
        guard.judge_at(Proposal(server="mallory"), When.SERVER)


def test_an_empty_list_allows_nothing() -> None:
    policy = stated("allowed_algorithms = []\nallowed_servers = []\nknown_organizations = []\n")
    found = rules(policy, GOOD)
    assert found == ["allowed_servers", "minimum_organizations", "allowed_algorithms"]


def test_hostile_names_stay_on_one_short_line() -> None:
    run = replace(GOOD, server="\x1b[31m\n" + "x" * 10_000, messages=tuple(map(str, range(9_999))))
    for refusal in stated(STRICT).refusals(run):
        assert refusal.text.isprintable()
        assert len(refusal.text) < 1_500


def test_a_digest_of_the_policy_tells_policies_apart() -> None:
    policy = stated(STRICT)
    assert policy.digest() == stated(STRICT + "\n# a comment\n").digest()
    others = [STRICT.replace(old, new) for old, new in (("20", "21"), ("level = 0.1", "level = 1"))]
    assert len({policy.digest(), Policy().digest(), *(stated(o).digest() for o in others)}) == 4


def test_every_rule_is_in_the_words_of_the_policy() -> None:
    for policy in (Policy(), stated(STRICT)):
        assert [*dict.fromkeys(key for key, _ in policy.words())] == [*Policy.model_fields]
    said = dict(stated(STRICT).words())
    assert said["minimum_rows"].startswith("a run needs 20 rows of this site or more, and")
    assert said["allowed_algorithms"].endswith(": interior_point, private_admm")
    assert "sex at most 0.1 apart" in said["constraint"]
    assert dict(Policy().words())["allowed_columns"] == "every column of the table may be used"


# ------------------------------------------------------------------------ what is written in a file


@pytest.mark.parametrize(
    ("project", "name", "key"),
    [
        (*known.split(" = ")[0].split(": "), key)
        for key, rule in RULES.items()
        for known in rule.known
    ],
)
def test_a_name_that_another_project_has_for_a_rule_is_answered_with_the_one_here(
    project: str, name: str, key: str
) -> None:
    if name == key:
        return
    with pytest.raises(ConfigError, match=f"line 1, .*{project}'s {name} is {key} here"):
        stated(f"{name} = 3\n")


WRONG = {
    "minimum_rows = 0": "greater than or equal to 1",
    "minimum_rows = 10.0": "allowed: an integer",
    "minimum_rows = true": "allowed: an integer",
    "minimum_organisations = 3": "did you mean 'minimum_organizations'",
    "maximum_parameter_share = 0": "greater than 0",
    "maximum_parameter_share = nan": "finite number",
    "maximum_epsilon = inf": "finite number",
    "maximum_delta = 2": "less than or equal to 1",
    'allowed_columns = "age"': "list of texts",
    "allowed_columns = [1]": "list of texts",
    'allowed_servers = [" "]': "none of them empty",
    'allowed_algorithms = ["bundel"]': "did you mean 'bundle'",
    'pinned_problems = ["0a0a"]': "at least 32 hexadecimal digits",
    'pinned_software = ["sha256:0x"]': "at least 32 hexadecimal digits",
    "constraint = 3": "allowed: a list",
    "[[constraint]]": "`kind` is missing",
    '[[constraint]]\nkind = "parity"': "got 'parity'",
    '[[constraint]]\nkind = "loss_gap"\ncolumn = "sex"': "needs `level`",
    '[[constraint]]\nkind = "loss_gap"\ncolumn = "sex"\nlevel = -1.0': "finite and >= 0",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_values_are_told_with_their_line(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        stated(f"{text}\n")
    assert WRONG[text] in str(error.value)
    assert str(error.value).startswith("policy, line ")


# ------------------------------------------------------------------------------------------ demands


def demand(text: str) -> Policy:
    lines = "\n".join(part.strip() for part in text.split(";"))
    return stated(f"[[constraint]]\n{lines}\n")


PARITIES = 'kind = "demographic_parity"; column = "sex"; level = 0.1'
DEMANDS: dict[str, tuple[str, Held, bool]] = {
    "the same": (PARITIES, Held("clients", PARITY), True),
    "stricter": (PARITIES, Held("clients", bf.DemographicParity("sex", 0.05)), True),
    "looser": (PARITIES, Held("clients", bf.DemographicParity("sex", 0.1001)), False),
    "of another column": (PARITIES, Held("clients", bf.DemographicParity("age", 0.0)), False),
    "of another kind": (PARITIES, Held("clients", bf.EqualisedOdds("sex", 0.0)), False),
    "at another place": (PARITIES, Held("together", bf.Coupled(PARITY)), False),
    "its default measure by name": (
        PARITIES,
        Held("clients", bf.DemographicParity("sex", 0.1, bf.Score())),
        True,
    ),
    "of another measure": (
        PARITIES,
        Held("clients", bf.DemographicParity("sex", 0.1, bf.Probability())),
        False,
    ),
    "the level of this site": (
        PARITIES,
        Held("clients", bf.DemographicParity("sex", {"north": 0.1, "east": 0.5})),
        True,
    ),
    "the level of others alone": (
        PARITIES,
        Held("clients", bf.DemographicParity("sex", {"north": 0.2, "east": 0.1})),
        False,
    ),
    "no level of this site": (
        PARITIES,
        Held("clients", bf.DemographicParity("sex", {"east": 0.1})),
        False,
    ),
    "levels by position": (PARITIES, Held("clients", bf.LossGap("sex", [0.1, 0.1])), False),
    "levels by position, all strict": (
        'kind = "loss_gap"; column = "sex"; level = 0.1',
        Held("clients", bf.LossGap("sex", [0.1, 0.05])),
        True,
    ),
    "levels by position, one loose": (
        'kind = "loss_gap"; column = "sex"; level = 0.1',
        Held("clients", bf.LossGap("sex", [0.1, 0.2])),
        False,
    ),
    "together": (
        PARITIES + '; on = "together"',
        Held("together", bf.Coupled(bf.DemographicParity("sex", 0.05))),
        True,
    ),
    "together, of another prior": (
        PARITIES + '; on = "together"',
        Held("together", bf.Coupled(PARITY, prior="uniform")),
        False,
    ),
    "a class": (
        'kind = "neyman_pearson"; label = "sick"; level = 0.3',
        Held("clients", bf.NeymanPearson("sick", 0.2)),
        True,
    ),
    "another class": (
        'kind = "neyman_pearson"; label = "sick"; level = 0.3',
        Held("clients", bf.NeymanPearson("well", 0.2)),
        False,
    ),
    "signs": ('kind = "sign"; signs = { age = 1 }', Held("model", bf.Sign({"age": 1})), True),
    "other signs": (
        'kind = "sign"; signs = { age = 1 }',
        Held("model", bf.Sign({"age": -1})),
        False,
    ),
    "an order": (
        'kind = "monotone"; features = ["a", "b"]',
        Held("model", bf.Monotone(("a", "b"))),
        True,
    ),
    "another order": (
        'kind = "monotone"; features = ["a", "b"]',
        Held("model", bf.Monotone(["b", "a"])),
        False,
    ),
    "a limit": (
        'kind = "cost_limit"; costs = { a = 1.0 }; limit = 2.0',
        Held("model", bf.CostLimit({"a": 1.0}, 1.5)),
        True,
    ),
    "a larger limit": (
        'kind = "cost_limit"; costs = { a = 1.0 }; limit = 2.0',
        Held("model", bf.CostLimit({"a": 1.0}, 2.5)),
        False,
    ),
    "rows": (
        'kind = "linear_inequality"; C = [[1.0, 0.0]]; d = [0.0]',
        Held("model", bf.LinearInequality([[1.0, 0.0]], [0.0])),
        True,
    ),
    "other rows": (
        'kind = "linear_inequality"; C = [[1.0, 0.0]]; d = [0.0]',
        Held("model", bf.LinearInequality([[0.0, 1.0]], [0.0])),
        False,
    ),
}


@pytest.mark.parametrize("case", DEMANDS)
def test_a_demand_is_met_by_the_same_or_by_something_stricter(case: str) -> None:
    text, held, met = DEMANDS[case]
    run = replace(GOOD, constraints=(Held("clients", bf.LossGap("other", 0.0)), held))
    assert rules(demand(text), run) == ([] if met else ["constraint"])


def test_where_the_constraints_of_a_problem_stand() -> None:
    sign, gap = bf.Sign({"age": 1}), bf.LossGap("sex", 0.1)
    problem = bf.Problem(
        bf.Logistic(), local_constraint=(gap, sign), constraint=[bf.Coupled(PARITY), sign, gap]
    )
    held = held_constraints(problem.local_constraint, problem.constraint)
    assert held is not None
    assert [one.place for one in held] == ["clients", "model", "together", "model", "server"]
    assert held_constraints(None, None) == ()
    fed = bf.Federation.from_arrays(
        [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], list("aabb"), columns={"sex": list("fmfm")}
    )
    solved, _ = bf.Problem(bf.Logistic(), local_constraint=gap).at(fed)
    assert held_constraints(solved.local_constraint, solved.constraint) is None
