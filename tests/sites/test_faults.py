"""Messages that are lost, repeated or late, sites that die or forget, servers that go on."""

import math
import random
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sites.helpers import Clock, Patient, of_federation, parties
from toy import federation

import bonafed as bf
from bonafed.engines.network import ForgetfulError, Network, RefusedError
from bonafed.engines.wire import (
    Envelope,
    Failed,
    LocalTransport,
    Lost,
    Refused,
    SilentError,
    StartRun,
    Step,
    Stepped,
    Unknown,
)
from bonafed.rounds import Conclude, Stop, decode, encode
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party
from bonafed.sites.server import job_of, serve
from bonafed.sites.session import agree, method_bytes

ROWS = federation((20, 35, 12, 28, 9), 4)
BALL = bf.Problem(
    bf.Hinge(),
    over_samples=bf.WassersteinBall(0.05, 0.5, "l2"),
    over_clients=bf.LpBall(0.2, 2),
    regulariser=bf.L2(1e-2),
)
LIMIT = bf.Problem(
    bf.Logistic(),
    over_samples=bf.Mean(label=-1.0),
    local_constraint=bf.NeymanPearson(1.0, 0.6),
    regulariser=bf.L2(1e-2),
)


class Faulty:
    """Sites whose messages get lost on the way there, on the way back, or are carried out twice."""

    def __init__(self, sites: dict[str, Party], seed: int, share: float) -> None:
        self.sites, self.rng, self.share = sites, random.Random(seed), share

    def calls(self):
        return {name: lambda data, name=name: self.call(name, data) for name in self.sites}

    def call(self, name: str, data: bytes) -> bytes:
        fate = self.rng.random() / self.share
        if fate < 0.25:
            raise ConnectionError("lost on the way to the site")
        answer = self.sites[name].answer("server", data)
        if fate < 0.5:
            raise ConnectionError("lost on the way back")
        if fate < 0.75:
            assert self.sites[name].answer("server", data) == answer  # carried out once
        elif fate < 1:
            return answer[:-3]  # cut short
        return answer


def solved(problem, sites, **options):
    transport = LocalTransport(sites)
    agreement = agree(transport, "experiment", problem, patience=600.0)
    engine = Network(agreement.session, **options.pop("engine", {}))
    return bf.solve(agreement.problem, agreement.metadata, engine=engine, **options)


@pytest.fixture
def quick(monkeypatch):
    """Messages are sent again at once."""
    monkeypatch.setattr("bonafed.engines.wire.SHORTEST", 0.001)
    monkeypatch.setattr("bonafed.engines.wire.LONGEST", 0.01)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Of the server's link, which waits on it in no time."""
    clock = Clock()
    monkeypatch.setattr("bonafed.engines.wire.time", clock)
    return clock


@pytest.mark.parametrize("algorithm", [bf.Bundle(), bf.ADLPMM(max_rounds=4)], ids=["cuts", "ADMM"])
def test_lost_repeated_and_damaged_messages_change_no_bit(algorithm, tmp_path, quick):
    calm = Faulty(parties(ROWS, tmp_path / "calm"), 0, share=1e-9)
    expected = encode(solved(BALL, calm.calls(), algorithm=algorithm).state)
    for seed in range(3):
        faulty = Faulty(parties(ROWS, tmp_path / str(seed)), seed, share=0.3)
        assert encode(solved(BALL, faulty.calls(), algorithm=algorithm).state) == expected, seed


def test_a_site_that_dies_goes_on_from_its_disk(tmp_path, quick):
    whole = solved(LIMIT, Faulty(parties(ROWS, tmp_path / "b"), 0, 1e-9).calls())
    sites = parties(ROWS, tmp_path / "a")
    calls = Faulty(sites, 0, 1e-9).calls()
    count = iter(range(10**6))

    def dying(data: bytes) -> bytes:
        if next(count) % 7 == 3:  # another process opens the same folder
            rows = of_federation(ROWS.restrict("site b1"))
            sites["site b1"] = Party("site b1", rows, tmp_path / "a" / "site b1", Guard(None))
        return sites["site b1"].answer("server", data)

    again = solved(LIMIT, calls | {"site b1": dying}, algorithm=bf.ProximalAL(max_rounds=40))
    other = solved(
        LIMIT,
        Faulty(parties(ROWS, tmp_path / "c"), 0, 1e-9).calls(),
        algorithm=bf.ProximalAL(max_rounds=40),
    )
    assert encode(again.state) == encode(other.state)
    assert whole.outcome.stop is Stop.OPTIMAL


@pytest.mark.parametrize(
    "algorithm",
    [bf.Bundle(), bf.ADLPMM(tol=1e-3, max_rounds=25), bf.EpigraphADMM(tol=1e-3, max_rounds=25)],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_a_site_whose_disk_is_lost_takes_part_again(algorithm, tmp_path, quick):
    sites = parties(ROWS, tmp_path)
    calls = Faulty(sites, 0, 1e-9).calls()
    count = iter(range(10**6))

    def forgetful(data: bytes) -> bytes:
        if next(count) == 9:
            shutil.rmtree(tmp_path / "site b1")
            rows = of_federation(ROWS.restrict("site b1"))
            sites["site b1"] = Party("site b1", rows, tmp_path / "site b1", Guard(None))
        return sites["site b1"].answer("server", data)

    solution = solved(BALL, calls | {"site b1": forgetful}, algorithm=algorithm)
    best = bf.solve(BALL, ROWS).certificate
    assert solution.certificate.value <= best.value * 1.02
    # whoever keeps nothing between two messages has lost nothing
    told = any("lost what it keeps" in note for note in solution.notes)
    assert told is not type(algorithm).stateless


def test_a_site_whose_disk_is_lost_before_it_concludes_takes_part_again(tmp_path, quick):
    sites, lost = parties(ROWS, tmp_path), []
    calls = Faulty(sites, 0, 1e-9).calls()

    def forgetful(data: bytes) -> bytes:
        body = decode(data).body
        if not lost and isinstance(body, Step) and isinstance(body.message, Conclude):
            lost.append(True)
            shutil.rmtree(tmp_path / "site b1")
            rows = of_federation(ROWS.restrict("site b1"))
            sites["site b1"] = Party("site b1", rows, tmp_path / "site b1", Guard(None))
        return sites["site b1"].answer("server", data)

    method = bf.ADLPMM(max_rounds=8)
    solution = solved(BALL, calls | {"site b1": forgetful}, algorithm=method)
    assert lost
    assert any("site b1 lost what it keeps" in note for note in solution.notes)


@pytest.mark.parametrize("late", [False, True], ids=["every step", "the conclusion"])
def test_a_site_that_always_forgets_is_named(late, tmp_path, quick):
    calls = Faulty(parties(ROWS, tmp_path), 0, 1e-9).calls()
    inner, asked = calls["site b1"], []

    def forgets(data: bytes) -> bytes:
        envelope = decode(data)
        if isinstance(envelope.body, Step):
            concludes = isinstance(envelope.body.message, Conclude)
            if concludes or not late:
                asked.append(envelope.number)
                return encode(replace(envelope, body=Unknown("run")))
        return inner(data)

    with pytest.raises(ForgetfulError, match="site b1") as error:
        solved(BALL, calls | {"site b1": forgets}, algorithm=bf.ADLPMM(max_rounds=8))
    assert error.value.site == "site b1"
    assert len(asked) <= 4


def test_a_server_that_dies_goes_on_from_its_checkpoint(tmp_path, quick):
    calm = Faulty(parties(ROWS, tmp_path / "b"), 0, 1e-9)
    whole = solved(LIMIT, calm.calls(), algorithm=bf.ProximalAL(max_rounds=24))

    class DeathError(Exception):
        """Of the server."""

    sites, file = Faulty(parties(ROWS, tmp_path / "a"), 0, 1e-9).calls(), tmp_path / "server"
    for dies in (5, 6, 20, None):

        def watch(row, state, dies=dies):
            if row["round"] == dies:
                raise DeathError

        options = {"engine": {"checkpoint": file}, "resume": file.exists(), "watch": [watch]}
        method = bf.ProximalAL(max_rounds=24)
        if dies is None:
            solution = solved(LIMIT, sites, algorithm=method, **options)
        else:
            with pytest.raises(DeathError):
                solved(LIMIT, sites, algorithm=method, **options)
    assert encode(solution.state) == encode(whole.state)


def test_a_silent_site_stalls_a_run_that_goes_on_later(tmp_path, clock):
    sites, silent = Faulty(parties(ROWS, tmp_path / "a"), 0, 1e-9).calls(), [False]
    inner = sites["site c2"]

    def sleepy(data: bytes) -> bytes:
        if silent[0]:
            raise ConnectionError("no route to the site")
        return inner(data)

    def hush(row, state):
        silent[0] = row["round"] >= 4

    transport = Patient(LocalTransport(sites | {"site c2": sleepy}))
    agreement = agree(transport, "experiment", BALL, patience=600.0)
    engine = Network(agreement.session, checkpoint=tmp_path / "server")
    concrete, data = agreement.problem.at(agreement.metadata)
    method = replace(bf.Bundle(), problem=concrete)
    run = engine.run(method, data, watch=[hush])
    assert run.outcome.stop is Stop.STALLED
    assert "site c2" in run.outcome.text
    assert run.rounds == 4
    assert clock.now >= 600.0
    silent[0] = False
    again = engine.run(method, data, resume=True)
    assert again.outcome.stop is Stop.OPTIMAL


def test_a_site_that_never_answers_is_named(tmp_path, clock):
    sites = Faulty(parties(ROWS, tmp_path), 0, 1e-9).calls()

    def away(data: bytes) -> bytes:
        raise ConnectionError("nobody there")

    with pytest.raises(SilentError, match=r"site d3 .*nobody there"):
        agree(Patient(LocalTransport(sites | {"site d3": away})), "e", BALL, patience=600.0)
    assert 600.0 <= clock.now < 601.0


def asked(party: Party, body, experiment="experiment", site=None, sender="server"):
    envelope = Envelope(experiment, site or party.name, 7, body)
    return decode(party.answer(sender, encode(envelope))).body


def test_a_repeated_turn_is_answered_alike_and_another_one_is_not_carried_out(tmp_path):
    sites = parties(ROWS, tmp_path)
    transport = LocalTransport({n: lambda d, p=p: p.answer("server", d) for n, p in sites.items()})
    agreement = agree(transport, "experiment", BALL, patience=600.0)
    concrete, data = agreement.problem.at(agreement.metadata)
    Network(agreement.session).run(replace(bf.ADLPMM(), problem=concrete), data, max_rounds=3)
    party = sites["site a0"]
    ((_, name), run), *_ = party.runs.items()
    before = run.state
    message = decode(encode(before.answer))  # no message at all
    assert isinstance(asked(party, Step(name, -1, message)), Refused)
    for turn in (0, before.turn + 1, 10**6):
        assert isinstance(asked(party, Step(name, turn, message)), Lost)
    answer = asked(party, Step(name, before.turn, message))
    assert isinstance(answer, Failed)
    assert party.runs["experiment", name].state is before
    assert not isinstance(answer, Stepped)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"QRM\x89" + b"\0" * 60], ids=repr)
def test_bytes_that_are_no_message_are_refused(data, tmp_path):
    party = next(iter(parties(ROWS, tmp_path).values()))
    body = decode(party.answer("server", data)).body
    assert isinstance(body, Refused)
    assert body.rule == "message"


def test_a_message_for_another_site_and_a_record_that_is_no_question_are_refused(tmp_path):
    party = next(iter(parties(ROWS, tmp_path).values()))
    for body, site in ((Failed("x"), None), (Step("r", 0, Failed("x")), "site b1")):
        assert isinstance(asked(party, body, site=site), Refused)


def test_a_server_that_dies_after_a_run_has_begun_again_goes_on(tmp_path, quick):
    sites = parties(ROWS, tmp_path / "a")
    calls, count = Faulty(sites, 0, 1e-9).calls(), iter(range(10**6))

    def forgetful(data: bytes) -> bytes:
        if next(count) == 9:
            shutil.rmtree(tmp_path / "a" / "site b1")
            rows = of_federation(ROWS.restrict("site b1"))
            sites["site b1"] = Party("site b1", rows, tmp_path / "a" / "site b1", Guard(None))
        return sites["site b1"].answer("server", data)

    class DeathError(Exception):
        """Of the server."""

    rounds = [0]

    def watch(row, state):
        rounds[0] += 1
        if rounds[0] == 8:
            raise DeathError

    file, method = tmp_path / "server", bf.ADLPMM(max_rounds=12)
    calls |= {"site b1": forgetful}
    options = {"engine": {"checkpoint": file}, "algorithm": method, "watch": [watch]}
    with pytest.raises(DeathError):
        solved(BALL, calls, **options)
    assert (tmp_path / "server.start").exists()
    solution = solved(BALL, calls, resume=True, **options)
    assert solution.rounds == 13
    assert not solution.notes or "lost" not in solution.notes[0]


def test_an_experiment_is_agreed_to_once_and_with_one_server(tmp_path):
    sites = parties(ROWS, tmp_path)
    calls = Faulty(sites, 0, 1e-9).calls()
    agree(LocalTransport(calls), "experiment", BALL)
    with pytest.raises(RefusedError, match="another experiment of the name"):
        agree(LocalTransport(calls), "experiment", LIMIT)
    agree(LocalTransport(calls), "experiment", BALL)  # the same again


def test_a_method_for_one_owner_is_not_begun_at_one_of_several(tmp_path):
    calls = Faulty(parties(ROWS, tmp_path), 0, 1e-9).calls()
    problem = bf.Problem(bf.Logistic(), over_samples=bf.Superquantile(0.2), regulariser=bf.L2(1e-2))
    agreement = agree(LocalTransport(calls), "experiment", problem)
    concrete, data = agreement.problem.at(agreement.metadata)
    method = replace(bf.RankADMM(), problem=concrete)
    with pytest.raises(ValueError, match="all rows in one place"):
        Network(agreement.session).run(method, data)
    rows = of_federation(ROWS.restrict("site a0"))
    party = Party("site a0", rows, tmp_path / "site a0", Guard(None))
    ask = StartRun("r", np.frombuffer(method_bytes(method), np.uint8), 0, 0)
    assert isinstance(asked(party, ask), Failed)


@pytest.mark.parametrize("algorithm", [None, bf.ADLPMM(max_rounds=12)], ids=["bundle", "ad_lpmm"])
def test_a_job_whose_site_stays_away_is_no_finished_one(algorithm, tmp_path, clock):
    sites = parties(ROWS, tmp_path)
    calls = {name: partial(site.answer, "server") for name, site in sites.items()}
    away = {"from": math.inf, "asked": 0}
    name, there = "site b1", calls["site b1"]

    def call(data: bytes) -> bytes:
        away["asked"] += isinstance(decode(data).body, Step)
        if away["asked"] == 4:
            away["from"] = min(away["from"], clock.now)
        if 0 <= clock.now - away["from"] < 90.0:  # and back soon after
            raise ConnectionError("away")
        return there(data)

    job = job_of("stays", BALL, algorithm, patience=60.0)
    server = tmp_path / "server"
    with pytest.raises(SilentError, match=name):
        serve(Patient(LocalTransport({**calls, name: call})), server, job)
    assert not (server / "done").exists()
    serve(LocalTransport(calls), server, job)
    serve(LocalTransport(calls), tmp_path / "again", job_of("undisturbed", BALL, algorithm))
    here, there = (bf.load(place / "solution.bf") for place in (server, tmp_path / "again"))
    np.testing.assert_array_equal(here.w, there.w)
