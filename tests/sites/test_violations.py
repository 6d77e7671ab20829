"""What a site's policy forbids is refused at the site, before anything is computed, and logged."""

from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from sites.folders import COLUMNS, NAMES, PROBLEM, folder_of, roles, rows_of

import bonafed as bf
from bonafed.algorithms.federated.bundle.bundle import over_sites
from bonafed.data.schema import declared_schema
from bonafed.engines.network import Network, RefusedError
from bonafed.engines.wire import Envelope, LocalTransport, Lost, Refused, Step
from bonafed.rounds import decode, encode
from bonafed.sites.audit import read_log
from bonafed.sites.introductions import RULE, SENTENCE
from bonafed.sites.party import open_party
from bonafed.sites.policy import RULES
from bonafed.sites.session import Introduce, agree
from bonafed.solution.plan import configure
from bonafed.statements import digest, statement_bytes

FAIR = replace(PROBLEM, over_clients=bf.Mean(), local_constraint=bf.DemographicParity("sex", 0.3))
PRIVATE = replace(PROBLEM, over_clients=bf.Mean())
TOTAL = "maximum_epsilon = 1.0\nmaximum_delta = 1e-6"
DEMAND = """
[[policy.constraint]]
kind = "demographic_parity"
column = "sex"
level = 0.2
"""
WIDE = declared_schema([*COLUMNS, "sex"], {"sex": {"categories": ("f", "m")}}, "state")

# the rule, the policy, and what breaks it: problem, what the columns are for, rows of the site
VIOLATIONS = {
    "too few rows": ("minimum_rows", "", PROBLEM, roles(), 9),
    "too small a level": ("minimum_level_rows", "minimum_level_rows = 100", PROBLEM, roles(), 120),
    "too many held out": ("minimum_rows", "minimum_rows = 100", PROBLEM, roles(test=0.5), 120),
    "forbidden column": (
        "disallowed_columns",
        'disallowed_columns = ["dose"]',
        PROBLEM,
        roles(),
        120,
    ),
    "column not allowed": (
        "allowed_columns",
        'allowed_columns = ["age", "dose", "stay", "state"]',
        PROBLEM,
        replace(roles(), schema=WIDE.to_dict()),
        120,
    ),
    "another problem": (
        "pinned_problems",
        f'pinned_problems = ["{"0" * 40}"]',
        PROBLEM,
        roles(),
        120,
    ),
    "other software": (
        "pinned_software",
        f'pinned_software = ["{"0" * 64}"]',
        PROBLEM,
        roles(),
        120,
    ),
    "other version": ("allowed_versions", 'allowed_versions = ["9.9"]', PROBLEM, roles(), 120),
    "other server": ("allowed_servers", 'allowed_servers = ["friend"]', PROBLEM, roles(), 120),
    "no budget": ("maximum_epsilon", "maximum_epsilon = 1.0", PROBLEM, roles(), 120),
    "too large an epsilon": (
        "maximum_epsilon",
        TOTAL,
        replace(PRIVATE, privacy=bf.Budget(1.01, 1e-7)),
        roles(),
        120,
    ),
    "too large a delta": (
        "maximum_delta",
        TOTAL,
        replace(PRIVATE, privacy=bf.Budget(0.5, 2e-6)),
        roles(),
        120,
    ),
    "an epsilon without a delta": (
        "maximum_epsilon",
        "maximum_epsilon = 1.0",
        replace(PRIVATE, privacy=bf.Budget(0.5, 1e-7)),
        roles(),
        120,
    ),
    "too loose a constraint": ("constraint", DEMAND, FAIR, replace(roles(), columns=("sex",)), 120),
    "too few organisations": (
        "minimum_organizations",
        "minimum_organizations = 4",
        PROBLEM,
        roles(),
        120,
    ),
    "unknown organisations": (
        "minimum_organizations",
        'known_organizations = ["north", "west", "centre"]',
        PROBLEM,
        roles(),
        120,
    ),
    "too large a model": (
        "maximum_parameter_share",
        "maximum_parameter_share = 0.03",
        PROBLEM,
        roles(),
        120,
    ),
    "forbidden algorithm": (
        "allowed_algorithms",
        'allowed_algorithms = ["ad_lpmm"]',
        PROBLEM,
        roles(),
        120,
    ),
    "forbidden message": (
        "allowed_messages",
        'allowed_messages = ["Survey"]',
        PROBLEM,
        roles(),
        120,
    ),
}


def opened(tmp_path, policy="", rows=120):
    """Three sites, of which "north" has a policy of its own."""
    place = tmp_path / "sites"
    for name in NAMES:
        folder_of(place, name, *((policy, rows) if name == "north" else ()))
    return {name: open_party(place / name, name) for name in NAMES}


def solved(sites, problem, asked):
    calls = {n: lambda d, p=p: p.answer("alliance", d) for n, p in sites.items()}
    agreement = agree(LocalTransport(calls), "trial", problem, roles=asked.text(), patience=600.0)
    engine = Network(agreement.session)
    return bf.solve(agreement.problem, agreement.metadata, engine=engine)


@pytest.mark.parametrize(
    ("rule", "policy", "problem", "asked", "rows"), VIOLATIONS.values(), ids=VIOLATIONS.keys()
)
def test_a_violation_is_refused_at_the_site_and_logged(
    rule, policy, problem, asked, rows, tmp_path
):
    sites = opened(tmp_path, policy, rows)
    with pytest.raises(RefusedError) as refused:
        solved(sites, problem, asked)
    of_rows = RULES[rule].of_rows
    told = RULE if of_rows else rule
    assert (refused.value.site, refused.value.rule) == ("north", told)
    assert (SENTENCE in str(refused.value)) == of_rows
    entries, faults = read_log(tmp_path / "sites" / "north" / "audit.jsonl")
    assert not faults
    assert next(r for entry in entries for r, _ in entry.refused) == rule
    # nothing but the refusal left the site after it
    last = [entry for entry in entries if entry.way == "out"][-1]
    assert last.kind == "Refused"


def test_what_no_policy_forbids_is_solved_as_in_one_place(tmp_path):
    solution = solved(opened(tmp_path), PROBLEM, roles())
    tables = {name: rows_of(name) for name in NAMES}
    schema = declared_schema([*COLUMNS], {}, "state", ("ill", "well"))
    fed = bf.Federation.from_tables(tables, "state", schema=schema)
    here = bf.solve(PROBLEM, fed, algorithm=over_sites(bf.Bundle()), engine=bf.InProcess("each"))
    np.testing.assert_allclose(solution.w, here.w, rtol=1e-12, atol=1e-14)
    assert solution.predict(fed.X[0])[:3].tolist() == here.predict(fed.X[0])[:3].tolist()


def asked(party, body, number=1):
    reply = party.answer("alliance", encode(Envelope("trial", party.name, number, body)))
    return decode(reply).body


def test_a_server_that_lies_about_its_problem_is_refused_by_the_pinned_digest(tmp_path):
    pin = digest(PROBLEM)
    sites = opened(tmp_path, f'pinned_problems = ["{pin}"]')
    assert solved(sites, PROBLEM, roles()).outcome.stop is bf.Stop.OPTIMAL
    lie = replace(PROBLEM, regulariser=bf.L2(1e-9))
    ask = Introduce(
        np.frombuffer(statement_bytes(lie), np.uint8), version("bonafed"), roles().text()
    )
    answer = asked(sites["north"], ask)
    assert isinstance(answer, Refused)
    assert answer.rule == "pinned_problems"


def test_a_replayed_message_is_carried_out_once(tmp_path):
    sites = opened(tmp_path)
    calls = {n: lambda d, p=p: p.answer("alliance", d) for n, p in sites.items()}
    agreement = agree(LocalTransport(calls), "trial", PROBLEM, roles=roles().text(), patience=600.0)
    concrete, data = agreement.problem.at(agreement.metadata)
    method = configure(bf.ADLPMM(max_rounds=4), concrete, data)
    sent = []
    north = sites["north"].answer
    sites["north"].answer = lambda who, d: (sent.append(d), north(who, d))[1]  # type: ignore
    Network(agreement.session).run(method, data)
    steps = [data for data in sent if isinstance(decode(data).body, Step)]
    kept = [run.state for run in sites["north"].runs.values()]
    for data in steps[:-2]:
        assert isinstance(decode(north("alliance", data)).body, Lost)
    assert [run.state for run in sites["north"].runs.values()] == kept
