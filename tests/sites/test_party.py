"""A site between its policy, its log and a server: what it refuses, keeps and tells."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites.folders import NAMES, OPEN, PROBLEM, certify, folder_of, roles, rows_of

import bonafed as bf
from bonafed.data.schema import declared_schema
from bonafed.data.tables import Table
from bonafed.engines.network import Network, RefusedError
from bonafed.engines.wire import (
    UNREAD,
    Envelope,
    LocalTransport,
    Lost,
    Refused,
    RunStarted,
    StartRun,
    Step,
)
from bonafed.problem.lower_bounds import Survey
from bonafed.problem.metadata import Asked, Introduced, Metadata, introduced
from bonafed.problem.problem import Problem
from bonafed.rounds import Conclude, decode, encode
from bonafed.sites.audit import AuditError, read_log
from bonafed.sites.introductions import RULE, SENTENCE
from bonafed.sites.judging import judge_at_sites
from bonafed.sites.party import KEPT, Party, open_party, parameters_of
from bonafed.sites.rows import Roles, parted
from bonafed.sites.session import Agree, Agreed, Agreement, Introduce, agree, method_bytes
from bonafed.sites.site_file import read_site
from bonafed.solution.plan import configure
from bonafed.statements import statement_bytes


def opened(place: Path, policy: str = "", rows: int = 120) -> dict[str, Party]:
    """Three sites, of which "north" has a policy of its own."""
    for name in NAMES:
        folder_of(place, name, *((policy, rows) if name == "north" else ()))
    return {name: open_party(place / name, name) for name in NAMES}


def agreed(
    sites: dict[str, Party], problem: Problem = PROBLEM, asked: Roles | None = None
) -> Agreement:
    """The agreement of the sites as they are when they are asked."""
    calls = {name: lambda data, name=name: sites[name].answer("alliance", data) for name in sites}
    text = (asked or roles()).text()
    return agree(LocalTransport(calls), "trial", problem, roles=text, patience=600.0)


def introduce(problem: Problem = PROBLEM, asked: Roles | None = None) -> Introduce:
    """The question for the facts of a site's rows."""
    statement = np.frombuffer(statement_bytes(problem), np.uint8)
    return Introduce(statement, version("bonafed"), (asked or roles()).text())


def ask(party: Party, body: object, experiment: str = "trial", sender: str = "alliance") -> Any:
    """The body of the answer to a question."""
    return decode(party.answer(sender, encode(Envelope(experiment, party.name, 7, body)))).body


def reason(folder: Path) -> str:
    """Why a site refused last, as its own people read it."""
    refused = [entry.refused for entry in read_log(folder / "audit.jsonl")[0] if entry.refused]
    return refused[-1][0][1]


def policy_of(folder: Path, text: str) -> None:
    """Write the policy of a site, whose process may go on."""
    file = folder / "site.toml"
    head = file.read_text().partition("[policy]")[0]
    file.write_text(f"{head}[policy]\n{text}\n")


# --------------------------------------------------------------------------------- its policy now

STRICTER = {
    "minimum_rows": "minimum_rows = 1000",
    "disallowed_columns": 'disallowed_columns = ["dose"]',
    "minimum_organizations": "minimum_organizations = 4",
    "maximum_parameter_share": "maximum_parameter_share = 0.01",
    "allowed_algorithms": 'allowed_algorithms = ["private_admm"]',
    "allowed_messages": 'allowed_messages = ["Survey"]',
    "allowed_servers": 'allowed_servers = ["friend"]',
    "maximum_epsilon": "maximum_epsilon = 0.1",
}


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "another process"])
@pytest.mark.parametrize("rule", STRICTER)
def test_a_policy_that_becomes_stricter_ends_a_run(rule: str, restarts: bool, tmp_path: Path):
    sites = opened(tmp_path)
    agreement = agreed(sites)
    concrete, data = agreement.problem.at(agreement.metadata)
    method, rounds = configure(bf.ADLPMM(max_rounds=12), concrete, data), []

    def watch(row: dict[str, Any], state: object) -> None:
        rounds.append(row["round"])
        if row["round"] == 3:
            policy_of(tmp_path / "north", STRICTER[rule])
            if restarts:
                sites["north"].close()
                sites["north"] = open_party(tmp_path / "north", "north")

    with pytest.raises(RefusedError) as refused:
        Network(agreement.session).run(method, data, watch=[watch])
    assert (refused.value.site, refused.value.rule) == ("north", rule)
    assert rounds[-1] == 3
    entries, faults = read_log(tmp_path / "north" / "audit.jsonl")
    assert not faults
    assert entries[-1].refused[0][0] == rule


def test_a_policy_that_stays_as_strict_disturbs_no_run(tmp_path: Path):
    def run(place: Path, change: bool) -> bytes:
        sites = opened(place)
        agreement = agreed(sites)
        concrete, data = agreement.problem.at(agreement.metadata)

        def watch(row: dict[str, Any], state: object) -> None:
            if row["round"] in (2, 5) and change:
                policy_of(place / "north", f"minimum_rows = {row['round']}")

        method = configure(bf.ADLPMM(max_rounds=8), concrete, data)
        return encode(Network(agreement.session).run(method, data, watch=[watch]).state)

    assert run(tmp_path / "a", True) == run(tmp_path / "b", False)
    notes = [e.text for e in read_log(tmp_path / "a" / "north" / "audit.jsonl")[0] if not e.way]
    assert sum("site.toml has changed" in note for note in notes) == 2


BROKEN = {
    "no TOML": "[policy",
    "an unknown rule": '[site]\nname = "north"\n[data]\npath = "rows.csv"\n[policy]\nmin = 1',
    "another name": '[site]\nname = "east"\n[data]\npath = "rows.csv"',
    "no file": None,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_refuses_everything_until_it_is_repaired(text: str | None, tmp_path: Path):
    party = opened(tmp_path)["north"]
    file = tmp_path / "north" / "site.toml"
    before = file.read_bytes()
    assert isinstance(ask(party, introduce()), Introduced)
    file.unlink() if text is None else file.write_text(text)
    reply = decode(party.answer("alliance", encode(Envelope("trial", "north", 7, introduce()))))
    assert isinstance(reply.body, Refused)
    assert reply.body.rule == "site.toml"
    assert "Ask its owner" in reply.body.text
    assert str(tmp_path) not in reply.body.text
    (refused,) = read_log(tmp_path / "north" / "audit.jsonl")[0][-1].refused
    assert refused[1].startswith("site.toml: nothing is allowed until it can be read: ")
    file.write_bytes(before)
    assert isinstance(ask(party, introduce()), Introduced)


def test_a_site_that_refuses_before_it_reads_is_named_at_the_server(tmp_path: Path):
    sites = opened(tmp_path)
    (tmp_path / "north" / "site.toml").write_text("[policy")
    with pytest.raises(RefusedError, match=r"site north refuses .*site\.toml"):
        agreed(sites)


# ------------------------------------------------------------------------------------- its log


def test_nothing_leaves_a_site_whose_log_cannot_be_written(tmp_path: Path, monkeypatch):
    party = opened(tmp_path)["north"]

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bonafed.sites.audit.append", full)
        with pytest.raises(AuditError, match=r"No space left .* no answer leaves this site"):
            ask(party, introduce())
    assert isinstance(ask(party, introduce()), Introduced)


# --------------------------------------------------------------------------------- what it keeps


def start(name: str, method: Any, turn: int = 0) -> StartRun:
    """The question that begins a run."""
    return StartRun(name, np.frombuffer(method_bytes(method), np.uint8), 0, turn)


def test_a_site_keeps_so_many_experiments_at_most(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("bonafed.sites.party.MOST_EXPERIMENTS", 3)
    sites = opened(tmp_path)
    party, (opening,) = sites["north"], agreed(sites).session.opening(0)
    for name in ("second", "third"):
        assert isinstance(ask(party, opening, name), Agreed)
    refused = ask(party, opening, "fourth")
    assert isinstance(refused, Refused)
    assert refused.rule == "experiments"
    assert "keeps 3, and at most 3 are kept" in refused.text
    assert isinstance(ask(party, opening, "second"), Agreed)  # one that it keeps already


def test_a_site_keeps_so_many_runs_at_most_and_forgets_those_without_a_memory(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("bonafed.sites.party.MOST_RUNS", 6)
    sites = opened(tmp_path)
    agreement, party = agreed(sites), sites["north"]
    concrete, data = agreement.problem.at(agreement.metadata)
    kept = configure(bf.ADLPMM(max_rounds=4), concrete, data)
    assert isinstance(ask(party, start("kept", kept)), RunStarted)
    for k in range(20):
        assert isinstance(ask(party, start(f"cuts {k}", bf.Bundle())), RunStarted)
    assert ask(party, start("kept", kept)) is not None
    folder = party._file("trial", "agreed").parent
    assert len([*folder.iterdir()]) <= 7  # with the agreement
    for k in range(6):
        last = ask(party, start(f"kept {k}", kept))
    assert isinstance(last, Refused)
    assert last.rule == "runs"
    assert "6 of this experiment, and at most 6" in last.text
    assert isinstance(ask(party, start("kept", kept)), RunStarted)


def test_a_process_has_few_experiments_and_runs_in_memory(tmp_path: Path):
    sites = opened(tmp_path)
    party, agreement = sites["north"], agreed(sites)
    (opening,) = agreement.session.opening(0)
    concrete, data = agreement.problem.at(agreement.metadata)
    method = configure(bf.ADLPMM(max_rounds=4), concrete, data)
    for k in range(3 * KEPT):
        assert isinstance(ask(party, opening, f"e{k}"), Agreed)
        assert isinstance(ask(party, start(f"r{k}", method)), RunStarted)
    assert len(party.known) == len(party.runs) == KEPT
    # what it has forgotten goes on from its disk
    step = Step("r0", 1, Conclude())
    assert ask(party, step).turn == 0
    assert isinstance(ask(party, step), Lost)


def test_nothing_of_a_server_that_may_not_ask_is_decoded(tmp_path: Path, monkeypatch):
    party = opened(tmp_path, 'allowed_servers = ["alliance"]')["north"]
    question = encode(Envelope("trial", "north", 7, introduce()))

    def read(*args: object, **options: object) -> None:
        raise AssertionError("it was decoded")

    with monkeypatch.context() as patch:
        patch.setattr("bonafed.sites.party.codec.decode", read)
        answer = party.answer("mallory", question)
    reply = decode(answer)
    assert (reply.number, reply.body.rule) == (UNREAD, "allowed_servers")
    heard, said = read_log(tmp_path / "north" / "audit.jsonl")[0][-2:]
    assert (heard.who, heard.kind, heard.size) == ("mallory", "", len(question))
    assert said.refused[0][0] == "allowed_servers"


def test_the_header_of_a_message_is_bounded_before_it_is_read(tmp_path: Path, monkeypatch):
    party = opened(tmp_path)["north"]
    envelope = Envelope("trial", "north", 7, replace(introduce(), roles="x" * 2**16))
    monkeypatch.setattr("bonafed.sites.party.LARGEST_HEADER", 2**15)
    with monkeypatch.context() as patch:
        patch.setattr("bonafed.codec.json.loads", None)  # it is not called
        answer = party.answer("alliance", encode(envelope))
    refused = decode(answer).body
    assert refused.rule == "message"
    assert "at most 32768 are read" in refused.text


def nested(levels: int) -> tuple[Any, ...]:
    """A tuple in a tuple in a tuple ..."""
    value: tuple[Any, ...] = ()
    for _ in range(levels):
        value = (value,)
    return value


ODD = {
    "deep": Step("r", 0, Survey(nested(60))),  # pyright: ignore[reportArgumentType]
    "a turn that is not a number": Step("r", "0", Conclude()),  # pyright: ignore[reportArgumentType]
    "a turn beyond 64 bits": Step("r", 2**63, Conclude()),
    "a run without a name": Step(None, 0, Conclude()),  # pyright: ignore[reportArgumentType]
    "a message that is no record": Step("r", 0, 1.0),
    "floats for a statement": replace(introduce(), problem=np.ones(3)),
    "agreement to nothing": Agree(None, ()),  # pyright: ignore[reportArgumentType]
    "introductions of nobody": Agree(introduce(), (1,)),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_what_is_no_question_is_refused_before_it_is_looked_into(body: Any, tmp_path: Path):
    refused = ask(opened(tmp_path)["north"], body)
    assert isinstance(refused, Refused)
    assert refused.rule == "message"


class Counted(str):
    """A label that counts how often it is compared."""

    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.count += 1
        return str.__eq__(self, other)


def test_what_other_sites_tell_is_read_in_as_many_steps_as_it_has_parts():
    n, one = (
        400,
        introduced(
            Asked(True, (), ("",)),
            bf.Federation.from_arrays([[0.0], [1.0]], ["a", "b"], ["north", "north"]),
        ),
    )
    labels = [f"{k:04}" for k in range(n)]
    cells: Any = {"": tuple((Counted(label), None, 1.0) for label in labels)}
    data = Metadata((replace(one, cells=cells),), classes=np.array(labels))
    Counted.count = 0
    assert data.class_masses().tolist() == [[1.0] * n]
    assert Counted.count <= 4 * n


# ------------------------------------------------------------------------------- what it tells


OTHERS = {
    "other columns": roles(columns={"age": {}, "dose": {}}),
    "held-out rows": roles(test=0.2),
    "another seed": replace(roles(), seed=4),
    "a person": replace(roles(), person="sex"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_a_site_answers_for_one_selection_of_a_target(other: Roles, tmp_path: Path):
    party, mild = opened(tmp_path)["north"], replace(PROBLEM, regulariser=bf.L2(2e-2))
    assert isinstance(ask(party, introduce()), Introduced)
    for problem, experiment, sender in (
        (PROBLEM, "trial", "alliance"),
        (mild, "another", "alliance"),
        (PROBLEM, "trial", "its accomplice"),
    ):
        refused = ask(party, introduce(problem, other), experiment, sender)
        assert isinstance(refused, Refused)
        assert refused.rule == "one_selection"
        assert str(tmp_path) not in refused.text
    (told,) = read_log(tmp_path / "north" / "audit.jsonl")[0][-1].refused
    assert isinstance(ask(party, introduce(mild)), Introduced)
    party.close()
    party = open_party(tmp_path / "north", "north")
    assert ask(party, introduce(PROBLEM, other)).rule == "one_selection"
    files = told[1].partition("Remove ")[2].partition(" to allow")[0]
    for file in files.split(" and "):
        Path(file).unlink()
    assert isinstance(ask(party, introduce(PROBLEM, other)), Introduced)
    assert ask(party, introduce()).rule == "one_selection"


ALSO = {  # choices for another target, after one that holds out a third of the rows
    "the same rows": (0.3, 3, None, True),
    "no rows": (0.0, 3, None, False),
    "one row more": (0.3 + 1 / 120, 3, None, False),
    "another seed": (0.3, 4, None, False),
    "a person": (0.3, 3, "age", False),
}


@pytest.mark.parametrize(("test", "seed", "person", "answers"), ALSO.values(), ids=ALSO.keys())
def test_a_site_holds_out_the_same_rows_for_all_targets(
    test: float, seed: int, person: str | None, answers: bool, tmp_path: Path
):
    party = opened(tmp_path)["north"]
    schema = declared_schema(["stay"], {"stay": {}}, "dose")
    other = Roles("dose", schema.to_dict(), test=test, seed=seed, person=person)
    least_squares = bf.Problem(bf.Huber(), regulariser=bf.L2(1e-2))
    assert isinstance(ask(party, introduce(PROBLEM, roles(test=0.3))), Introduced)
    answer = ask(party, introduce(least_squares, other), "another")
    if not answers:
        assert (answer.rule, answer.text.count(str(tmp_path))) == ("one_selection", 0)
        return
    assert isinstance(answer, Introduced)
    of_state, of_dose = (party.source(asked.text(), False) for asked in (roles(test=0.3), other))
    for mine, theirs in ((of_state.train, of_dose.train), (of_state.test, of_dose.test)):
        assert mine is not None
        assert theirs is not None
        assert np.array_equal(mine.X[0][:, 1], theirs.y[0])
    assert 10 < len(of_dose.train.y[0]) < 110


def test_a_number_with_a_fraction_moves_no_other_row_between_training_and_judging():
    whole, fraction = np.arange(200), np.arange(200.0)
    fraction[0] = 0.5
    held = []
    for numbers in (whole, fraction):
        fed = bf.Federation.from_arrays(numbers[:, None], numbers, ["north"] * 200)
        test = parted(fed, Table(number=numbers), 0.3, seed=5)[1]
        assert test is not None
        held.append({*test.y[0].tolist()} - {0.0, 0.5})
    assert held[0] == held[1]


def test_a_refused_selection_binds_no_site_and_its_owner_may_allow_several(tmp_path: Path):
    party = opened(tmp_path, "minimum_rows = 100")["north"]
    assert ask(party, introduce(PROBLEM, roles(test=0.5))).text == SENTENCE
    assert reason(tmp_path / "north").startswith("minimum_rows: ")
    assert isinstance(ask(party, introduce()), Introduced)
    policy_of(tmp_path / "north", "one_selection = false")
    assert isinstance(ask(party, introduce(PROBLEM, roles(test=0.5))), Introduced)


def test_a_server_does_not_choose_the_rows_that_are_held_out(tmp_path: Path):
    """Two sites of the same rows hold out others, by their secrets; each the same ones always."""
    asked, held = roles(test=0.5), []
    for place in ("a", "b"):
        folder_of(tmp_path / place, "north")
        for _ in range(2):
            with closing(open_party(tmp_path / place / "north", "north")) as party:
                rows = party._rows(asked.text())
                assert rows.test is not None
                held.append(rows.test.X[0])
    assert np.array_equal(held[0], held[1])
    assert np.array_equal(held[2], held[3])
    assert not np.array_equal(held[0], held[2])
    assert abs(len(held[0]) - 60) < 25


SHAPES = {  # problems, and how many parameters their models of three features have
    "linear": (PROBLEM, 4),
    "a network": (replace(PROBLEM, over_clients=bf.Mean(), predictor=bf.MLP(hidden=(2,))), 11),
    "several classes": (bf.Problem(bf.Multinomial(), regulariser=bf.L2(1e-2)), 8),
}


@pytest.mark.parametrize(("problem", "parameters"), SHAPES.values(), ids=SHAPES.keys())
def test_who_asks_for_too_many_parameters_may_ask_for_fewer_columns(
    problem: Problem, parameters: int, tmp_path: Path
):
    party, few = opened(tmp_path)["north"], roles(columns={"age": {}})
    assert parameters_of(problem, ask(party, introduce(problem))) == parameters
    shutil.rmtree(tmp_path / "north" / "state" / "selections")
    policy_of(tmp_path / "north", f"maximum_parameter_share = {(parameters - 0.5) / 120}")
    refused = ask(party, introduce(problem))
    assert (type(refused), refused.text) == (Refused, SENTENCE)
    told = reason(tmp_path / "north")
    assert told.startswith("maximum_parameter_share: ")
    assert f"has {parameters} parameters" in told
    assert isinstance(ask(party, introduce(problem, few)), Introduced)
    assert ask(party, introduce(problem, roles(columns={"stay": {}}))).rule == "one_selection"


def test_parameters_that_depend_on_classes_elsewhere_are_judged_when_all_sites_are_known():
    """A site of one class does not know how many there are."""
    fed = bf.Federation.from_arrays([[0.0], [1.0]], ["a", "a"], ["north", "north"])
    facts = introduced(Asked(True, (), ()), fed)
    problem = bf.Problem(bf.Multinomial(), regulariser=bf.L2(1e-2))
    assert parameters_of(problem, facts) is None
    assert parameters_of(PROBLEM, facts) == 2


def test_a_site_holds_out_no_rows_or_enough(tmp_path: Path):
    sites, asked = opened(tmp_path), roles(test=0.3)
    test = sites["north"]._rows(asked.text()).test
    assert test is not None
    held = int(test.sizes[0])
    policy_of(tmp_path / "north", f"minimum_rows = {held + 1}")
    with pytest.raises(RefusedError, match=SENTENCE) as refused:
        agreed(sites, PROBLEM, asked)
    assert (refused.value.site, refused.value.rule) == ("north", RULE)
    told = reason(tmp_path / "north")
    assert f"{held} rows of this site would be held out, and {held + 1} are needed" in told
    policy_of(tmp_path / "north", f"minimum_rows = {held}")
    assert agreed(sites, PROBLEM, asked).digest
    # none held out are enough
    (tmp_path / "none").mkdir()
    assert agreed(opened(tmp_path / "none"), PROBLEM, roles()).digest


def test_levels_of_too_few_held_out_rows_are_not_judged(tmp_path: Path):
    """The classes of the rows that are judged on are counted, not of those that are trained on."""
    for party in opened(tmp_path).values():
        party.close()
    sites, asked = {}, roles(test=0.3)
    for name in NAMES:
        (tmp_path / name / "site.secret").write_bytes(bytes(32))  # the same rows every time
        sites[name] = open_party(tmp_path / name, name)
    test = sites["north"]._rows(asked.text()).test
    assert test is not None
    least = min(Counter(test.y[0].tolist()).values())
    models = {"model": np.array([1.0, -1.0, 0.0, 0.0])}
    for rows in (least, least + 1):
        policy_of(tmp_path / "north", f"minimum_level_rows = {rows}")
        agreement = agreed(sites, PROBLEM, asked)
        certify(agreement, models.values())
        question = (agreement.problem, agreement.metadata, models, Network(agreement.session))
        if rows == least:
            judged = judge_at_sites(*question)["measures"][0]
            assert test.y[0].size in [row["n"] for row in judged["clients"]]
            continue
        with pytest.raises(RefusedError) as refused:
            judge_at_sites(*question)
        assert (refused.value.site, refused.value.rule) == ("north", "minimum_level_rows")


def test_judgements_are_stopped_by_their_message_as_the_policy_says(tmp_path: Path):
    sites, asked = opened(tmp_path), roles(test=0.3)
    policy_of(tmp_path / "north", 'allowed_algorithms = ["bundle"]')
    agreement = agreed(sites, PROBLEM, asked)
    models = {"model": np.array([1.0, -1.0, 0.0, 0.0])}
    certify(agreement, models.values())
    question = (agreement.problem, agreement.metadata, models, Network(agreement.session))
    assert len(judge_at_sites(*question)["measures"][0]["clients"]) == 3
    policy = read_site(tmp_path / "north").policy
    words = dict(policy.words())["allowed_algorithms"]
    assert words.startswith("only these algorithms may run, beside certificates and judgements")
    assert "allowed_messages can stop: bundle" in words
    policy_of(tmp_path / "north", 'allowed_messages = ["Survey", "Evaluate", "Certify"]')
    with pytest.raises(RefusedError) as refused:
        judge_at_sites(*question)
    assert (refused.value.site, refused.value.rule) == ("north", "allowed_messages")


def test_the_digest_of_rows_is_stable_and_nobody_else_can_compute_it(tmp_path: Path):
    digests = []
    for place in ("a", "b"):
        folder_of(tmp_path / place, "north")
        for _ in range(2):
            with closing(open_party(tmp_path / place / "north", "north")) as party:
                digests.append(ask(party, introduce()).digest)
                plain = party._rows(roles().text()).train.digests()[0]
    assert digests[0] == digests[1]
    assert digests[2] == digests[3]
    assert len({*digests, plain}) == 3


def test_a_site_that_has_lost_its_state_and_not_its_secret_takes_part_again(tmp_path: Path):
    sites = opened(tmp_path)
    (opening,) = agreed(sites).session.opening(0)
    for lost, answer in (("state", Agreed), ("secret", Refused)):
        sites["north"].close()
        shutil.rmtree(tmp_path / "north" / "state")
        if lost == "secret":
            (tmp_path / "north" / "site.secret").unlink()
        sites["north"] = open_party(tmp_path / "north", "north")
        assert isinstance(ask(sites["north"], opening), answer)


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_nobody_else_can_read_the_secret_and_a_damaged_one_is_none(tmp_path: Path):
    folder_of(tmp_path, "north")
    open_party(tmp_path / "north", "north").close()
    secret = tmp_path / "north" / "site.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert read_site(tmp_path / "north").exposed() == []
    secret.chmod(0o644)
    assert "secret can be read by others" in read_site(tmp_path / "north").exposed()[0]
    secret.write_bytes(b"")
    with pytest.raises(ValueError, match="has 0 bytes and needs 32"):
        open_party(tmp_path / "north", "north")


def agreed_with(place: Path, least: int, problem: Problem, asked: Roles | None = None) -> Agreement:
    """The agreement of sites all of which need so many rows."""
    sites = opened(place)
    for name in NAMES:
        policy_of(place / name, f"minimum_rows = {least}\n{OPEN}")
    return agreed(sites, problem, asked)


def over_rows(risk: Any) -> Problem:
    """Of the losses of all sites' rows together."""
    return bf.Problem(bf.Logistic(), over_rows=risk, regulariser=bf.L2(1e-2))


FEW = {  # and how many of 120 rows that is
    "the largest loss": (replace(PROBLEM, over_samples=bf.Superquantile(1 / 120)), 1),
    "a tenth of the losses": (replace(PROBLEM, over_samples=bf.Superquantile(0.1)), 12),
    "a tenth of all sites' losses": (over_rows(bf.Superquantile(0.1)), 12),
    # the largest of 120 losses weighs 1 - (1 - 1/120)^4, which is 1 / 30.4
    "the worst of four losses": (over_rows(bf.Extremile(4.0)), 30),
}


@pytest.mark.parametrize(("problem", "rows"), FEW.values(), ids=FEW.keys())
def test_losses_by_rank_need_as_many_rows_as_a_run(problem: Problem, rows: int, tmp_path: Path):
    assert agreed_with(tmp_path / "enough", rows, problem).digest
    with pytest.raises(RefusedError, match=SENTENCE) as refused:
        agreed_with(tmp_path / "too few", rows + 1, problem)
    told = reason(tmp_path / "too few" / refused.value.site)
    assert told.startswith("minimum_rows: the run averages over losses by rank")


def test_cuts_of_groups_need_as_many_rows_as_a_run(tmp_path: Path):
    """10 groups of 12 rows at each of the three sites."""
    for least, fits in ((12, True), (13, False)):
        place = tmp_path / str(least)
        agreement = agreed_with(place, least, replace(PROBLEM, loss=bf.Hinge()))
        concrete, data = agreement.problem.at(agreement.metadata)
        method = configure(bf.Bundle(max_rounds=3), concrete, data)
        if fits:
            assert Network(agreement.session).run(method, data).state.rounds == 3
            continue
        with pytest.raises(RefusedError, match="groups of fewer rows than this site") as refused:
            Network(agreement.session).run(method, data)
        assert refused.value.rule == "minimum_rows"
        whole = configure(bf.Bundle(max_rounds=3, cuts=1), concrete, data)
        assert Network(agreement.session).run(whole, data).state.rounds == 3


def cells_of(name: str) -> list[int]:
    """How many rows of a site every class has in every group."""
    table = rows_of(name)
    return [*Counter(zip(table["state"].tolist(), table["sex"].tolist(), strict=True)).values()]


def classes_of(name: str) -> list[int]:
    """How many rows of a site every class has."""
    return [*Counter(rows_of(name)["state"].tolist()).values()]


ODDS, MEAN = bf.EqualisedOdds("sex", 0.3), replace(PROBLEM, over_clients=bf.Mean())
GROUPS = {
    "a group of a constraint": (replace(MEAN, local_constraint=ODDS), cells_of),
    "a group over all sites": (replace(MEAN, constraint=bf.Coupled(ODDS)), cells_of),
    "a class": (replace(MEAN, local_constraint=bf.NeymanPearson("ill", 0.6)), classes_of),
    "the class of the loss": (replace(MEAN, over_samples=bf.Mean(label="well")), classes_of),
}


@pytest.mark.parametrize(("problem", "counted"), GROUPS.values(), ids=GROUPS.keys())
def test_a_group_whose_mean_is_told_needs_as_many_rows_as_a_run(
    problem: Problem, counted: Callable[[str], list[int]], tmp_path: Path
):
    asked = replace(roles(), columns=("sex",))
    least = min(min(counted(name)) for name in NAMES)
    assert agreed_with(tmp_path / "enough", least, problem, asked).digest
    with pytest.raises(RefusedError, match=SENTENCE) as refused:
        agreed_with(tmp_path / "too few", least + 1, problem, asked)
    told = reason(tmp_path / "too few" / refused.value.site)
    assert told.startswith("minimum_rows: the run averages over the rows")
