"""Private runs across sites: each site charges its own ledger before a noisy answer leaves it."""

from __future__ import annotations

import itertools
import shutil
import stat
from dataclasses import replace

import numpy as np
import pytest
from sites.folders import CLASSES, COLUMNS, NAMES, folder_of, roles, rows_of

import bonafed as bf
from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.data.schema import declared_schema
from bonafed.engines.network import Network, RefusedError, StateLostError
from bonafed.engines.wire import Envelope, LocalTransport, Refused, StartRun, Step, Stepped, Unknown
from bonafed.privacy.accounting import Release, noise_for, total_epsilon
from bonafed.privacy.ledger import Book
from bonafed.rounds import Stop, decode, encode
from bonafed.sites.audit import read_log
from bonafed.sites.party import RunState, open_party
from bonafed.sites.privacy_ledger import LEDGER
from bonafed.sites.session import agree
from bonafed.storage import read_in_turns, write_in_turns

DELTA, T = 1e-5, 6
POLICY = f"maximum_epsilon = 1.0\nmaximum_delta = {DELTA}"
LOOSE = POLICY.replace("1.0", "9.0")
METHOD = bf.PrivateADMM(max_rounds=T)


def problem(epsilon: float = 0.7, **more):
    budget = bf.Budget(epsilon, DELTA, **more)
    return bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-2), privacy=budget)


class Sites:
    """Three sites in this process; ``sent`` is all that went to "north", and ``answered`` back."""

    def __init__(self, place, policies=None):
        self.place, self.sent, self.answered = place, [], []
        for name in NAMES:
            folder_of(place, name, (policies or {}).get(name, POLICY))
        self.parties = {name: open_party(place / name, name) for name in NAMES}
        self.experiments = 0

    def opened_again(self, name="north"):
        """Another process of a site."""
        self.parties[name].close()
        self.parties[name] = open_party(self.place / name, name)

    def call(self, name, data):
        reply = self.parties[name].answer("alliance", data)
        if name == "north":
            self.sent.append(decode(data).body)
            self.answered.append(decode(reply).body)
        return reply

    def agreed(self, stated, name=None):
        self.experiments += name is None
        calls = {n: lambda data, n=n: self.call(n, data) for n in NAMES}
        name = name or f"trial {self.experiments}"
        return agree(LocalTransport(calls), name, stated, roles=roles().text(), patience=600.0)

    def solve(self, stated=None, method=METHOD, name=None, checkpoint=None, **options):
        agreement = self.agreed(stated or problem(), name)
        engine = Network(agreement.session, checkpoint=checkpoint)
        return bf.solve(
            agreement.problem, agreement.metadata, algorithm=method, engine=engine, **options
        )

    def ask(self, body, experiment="trial 1", name="north"):
        reply = self.parties[name].answer("alliance", encode(Envelope(experiment, name, 1, body)))
        return decode(reply).body

    def book(self, name="north"):
        return Book(self.place / name / "state" / LEDGER)

    def epsilon(self, name="north"):
        return total_epsilon(self.book(name).spent((name,))[name], DELTA)

    def log(self, name="north"):
        entries, faults = read_log(self.place / name / "audit.jsonl")
        assert not faults
        return entries

    def state(self, name="north"):
        """The files of the site's runs."""
        files = (self.place / name / "state").glob("*/*")
        beside = ("agreed", "selections")
        return [path for path in files if not {path.name, path.parent.name} & {*beside}]


@pytest.fixture
def sites(tmp_path):
    return Sites(tmp_path / "sites")


@pytest.fixture
def same_keys(monkeypatch):
    monkeypatch.setattr(noisy_gradient.os, "urandom", lambda n: bytes(k % 251 for k in range(n)))


def steps(answers):
    return [body for body in answers if isinstance(body, Stepped)]


# ------------------------------------------------------------------------------ the end of a solve


def test_a_private_solve_across_sites_ends_with_its_guarantee_and_no_certificate(
    sites, same_keys, tmp_path
):
    solution = sites.solve()
    assert solution.outcome.stop is Stop.MAX_ROUNDS
    assert solution.outcome.text.startswith(
        f"done after {T} rounds, over which the budget is spread"
    )
    assert solution.rounds == T
    assert solution.certificate is None
    assert 0.69 < solution.ledger.epsilon <= 0.7
    assert solution.ledger.text.startswith("(0.7, 1e-05)-differentially private in total")
    assert [(row["client"], row["n"]) for row in solution.clients] == [(n, 120) for n in NAMES]
    assert solution.ledger.text.split(";")[0] in " ".join(repr(solution).split())
    solution.save(tmp_path / "model")
    kept = bf.load(tmp_path / "model")
    assert kept.w.tobytes() == solution.w.tobytes()
    assert not hasattr(kept, "certificate")
    # the model is that of one place with the same keys of noise
    schema = declared_schema([*COLUMNS], {}, "state", CLASSES)
    fed = bf.Federation.from_tables({n: rows_of(n) for n in NAMES}, "state", schema=schema)
    here = bf.solve(problem(), fed, algorithm=METHOD, engine=bf.InProcess("each"))
    np.testing.assert_allclose(solution.w, here.w, rtol=1e-12, atol=1e-14)
    assert here.ledger.releases == solution.ledger.releases


def test_no_message_of_a_certificate_is_sent(sites):
    sites.solve()
    kinds = {type(body.message).__name__ for body in sites.sent if isinstance(body, Step)}
    assert kinds == {"Perturb", "Conclude"}


# -------------------------------------------------------------------------------- what is charged


def test_a_run_is_charged_in_full_before_its_first_answer(sites, monkeypatch):
    seen = []
    real = bf.PrivateADMM.perturb

    def perturb(*given):
        seen.append(sites.book(given[3].names[0]).runs()[0]["state"])
        return real(*given)

    monkeypatch.setattr(bf.PrivateADMM, "perturb", perturb)
    sites.solve()
    assert seen == ["open"] * 3 * T
    for name in NAMES:
        (run,) = sites.book(name).runs()
        ((kind, _, count),) = run["releases"][name]
        assert (kind, count) == ("gaussian", T)
        assert 0.69 < sites.epsilon(name) <= 0.7
        assert run["about"]["experiment"] == "trial 1"
        assert run["about"]["server"] == "alliance"
        digest = next(b.digest for b in sites.answered if hasattr(b, "digest"))
        assert (run["about"]["rows"] == digest) == (name == "north")
    notes = [entry.text for entry in sites.log() if entry.text.startswith("privacy ledger")]
    assert "is charged: epsilon = 0.7 in total at delta = 1e-05" in notes[0]
    assert notes[1].endswith("may answer")


def test_a_second_run_adds_up_and_is_refused_where_the_sum_is_too_large(tmp_path):
    sites = Sites(tmp_path, dict.fromkeys(NAMES, LOOSE) | {"north": POLICY})
    sites.solve(problem(0.5))
    sites.solve(problem(0.5))
    spent = sites.epsilon()
    assert 0.6 < spent < 1.0
    count = len(steps(sites.answered))
    with pytest.raises(RefusedError) as refused:
        sites.solve(problem(0.9))
    assert refused.value.rule == "maximum_epsilon"
    text = str(refused.value)
    assert f"{spent:.4g} is spent, the run asks for 0.9, and 1 is allowed" in text
    assert len(steps(sites.answered)) == count
    # it was refused when it was agreed to, so that no other site was charged
    assert [len(sites.book(name).runs()) for name in NAMES] == [2, 2, 2]
    last = [entry for entry in sites.log() if entry.way == "out"][-1]
    assert last.refused[0][0] == "maximum_epsilon"
    assert "raise maximum_epsilon in [policy] of site.toml" in last.refused[0][1]
    assert "site.toml" not in text


def test_a_second_run_of_one_experiment_is_refused_before_any_answer(sites):
    """That the problem was agreed to before says nothing about what is left."""
    sites.solve(name="one")
    count = len(steps(sites.answered))
    with pytest.raises(RefusedError, match=r"maximum_epsilon.* 0\.7 is spent"):
        sites.solve(name="one")
    assert len(steps(sites.answered)) == count
    assert len(sites.book().runs()) == 1


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [
        *itertools.product((bf.PrivateADMM, bf.PrivateSGD), ("gaussian", "laplace")),
        (bf.PrivateNewton, "gaussian"),
    ],
)
def test_all_that_the_policy_allows_can_be_spent_at_once(sites, mechanism, kind):
    method = kind(max_rounds=T, mechanism=mechanism, clip=1.0)
    sites.solve(problem(1.0), method)
    with pytest.raises(RefusedError, match="maximum_epsilon"):
        sites.solve(problem(0.01), method)


@pytest.mark.parametrize("options", [{"sampling": 0.5}, {"quantile": 0.5, "sampling": 0.9}])
def test_sampled_answers_are_charged_as_such(sites, options):
    solution = sites.solve(method=bf.PrivateSGD(max_rounds=T, **options))
    noise = noise_for(bf.Budget(0.7, DELTA), T, sampling=options["sampling"])
    release = Release("gaussian", noise, T, options["sampling"])
    assert sites.book().spent(("north",))["north"] == (release,)
    assert solution.ledger.releases["north"] == (release,)
    assert 0.69 < sites.epsilon() == solution.ledger.epsilon <= 0.7


def test_other_columns_and_other_rows_count_as_the_same_records(sites):
    """Two choices of rows overlap, so that one person is in both."""
    sites.solve()
    file = sites.place / "north" / "rows.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:-1]) + "\n")
    sites.opened_again()
    with pytest.raises(RefusedError, match=r"maximum_epsilon.* 0\.7 is spent"):
        sites.solve()


def test_a_site_without_a_greatest_epsilon_writes_down_what_is_spent(tmp_path):
    sites = Sites(tmp_path, dict.fromkeys(NAMES, "minimum_people = 1"))
    for _ in range(2):
        sites.solve(problem(3.0))
    assert sites.epsilon() > 4


def test_a_greatest_epsilon_needs_a_delta_at_which_it_holds(tmp_path):
    sites = Sites(tmp_path, {"north": "maximum_epsilon = 1.0"})
    with pytest.raises(RefusedError, match=r"maximum_epsilon.*the policy states no maximum_delta"):
        sites.solve()


# --------------------------------------------------------------------------- once, and never twice


def first(sites, stated=None, method=METHOD):
    """What begins a run at "north", and its first step."""
    sites.solve(stated, method)
    begin = next(body for body in sites.sent if isinstance(body, StartRun))
    step = next(body for body in sites.sent if isinstance(body, Step))
    return begin, step


def test_an_answer_that_is_sent_again_costs_nothing_and_is_the_same(sites):
    answers = []
    real = sites.call

    def twice(name, data):
        one = real(name, data)
        if name == "north" and isinstance(decode(data).body, Step):
            sites.opened_again()
            answers.append((one, real(name, data)))
        return one

    sites.call = twice
    sites.solve()
    assert len(answers) == T + 1
    assert all(one == other for one, other in answers)
    assert len(sites.book().runs()) == 1
    assert 0.69 < sites.epsilon() <= 0.7


def test_the_ledger_survives_the_loss_of_the_runs_and_the_run_does_not_begin_again(sites):
    begin, step = first(sites)
    shutil.rmtree(sites.state()[0].parent)
    sites.opened_again()
    sites.agreed(problem(0.01), "trial 2")
    with pytest.raises(RefusedError, match=r"0\.7 is spent"):
        sites.agreed(problem(), "trial 1")
    # where only the run is lost, it is not begun with other keys
    other = Sites(sites.place.parent / "others")
    begin, step = first(other)
    other.state()[0].unlink()
    other.opened_again()
    refused = other.ask(begin)
    assert isinstance(refused, Refused)
    assert "its keys of noise are lost" in refused.text
    assert not other.state()
    assert isinstance(other.ask(step), Unknown)


@pytest.mark.parametrize("when", ["charged", "kept", "marked"])
def test_a_site_that_dies_while_a_run_begins_is_charged_once(sites, monkeypatch, when):
    class DeathError(BaseException):
        """Of the site's process."""

    died, real_call = [], sites.call
    real = getattr(Book, name := "open_run" if when == "charged" else "begin_run")

    def dying(book, first, *more):
        if book.path.parent.parent.name != "north" or died:
            return real(book, first, *more)
        if when == "kept":  # the keys are on the disk, and the ledger does not say so
            more[0]()
        else:
            real(book, first, *more)
        died.append(when)
        raise DeathError

    def call(name, data):
        try:
            return real_call(name, data)
        except DeathError:
            sites.opened_again()
            raise ConnectionError from None

    monkeypatch.setattr(Book, name, dying)
    sites.call = call
    assert sites.solve().rounds == T
    assert died
    (run,) = sites.book().runs()
    assert run["state"] == "open"
    assert 0.69 < sites.epsilon() <= 0.7


@pytest.mark.parametrize("lost", [(LEDGER,), (LEDGER, f"{LEDGER}.lock"), "copy"])
def test_a_ledger_that_is_gone_or_older_is_noticed_by_the_log(sites, lost):
    state = sites.place / "north" / "state"
    sites.solve(problem(0.3))
    old = {name: (state / name).read_bytes() for name in (LEDGER, f"{LEDGER}.lock")}
    sites.solve(problem(0.3))
    for name in old if lost == "copy" else lost:
        (state / name).unlink()
        if lost == "copy":
            (state / name).write_bytes(old[name])
    sites.opened_again()
    count = len(steps(sites.answered))
    with pytest.raises((RefusedError, ValueError), match=r"maximum_epsilon|cannot take part"):
        sites.solve(problem(0.3))
    assert len(steps(sites.answered)) == count
    text = " ".join(f"{e.text} {e.refused}" for e in sites.log()[-4:])
    assert "Restore" in text


def test_a_run_that_the_ledger_does_not_know_is_not_answered(sites):
    """A run that was begun before there was a ledger, or whose ledger was begun anew."""
    sites.solve()
    state = sites.place / "north" / "state"
    step = [body for body in sites.sent if isinstance(body, Step)][-2]
    run = sites.state()[0]
    kept = decode(read_in_turns(run) or b"")
    assert isinstance(kept, RunState)
    memory = replace(kept.before, answered=kept.before.answered * 0)
    begun = encode(replace(kept, turn=0, memory=memory, asked="", answer=None))
    write_in_turns(run, 0, begun, anew=True)
    for name in (LEDGER, f"{LEDGER}.lock"):
        (state / name).unlink()
    sites.parties["north"].close()
    (sites.place / "north" / "audit.jsonl").rename(sites.place / "north" / "old")
    (sites.place / "north" / "audit.jsonl.head").unlink()
    sites.parties["north"] = open_party(sites.place / "north", "north")
    answer = sites.ask(replace(step, turn=0))
    assert isinstance(answer, Refused)
    assert "has no such run" in answer.text


# ------------------------------------------------------------------------------------ noise, keys


def test_keys_stand_in_the_runs_own_file_until_the_last_answer_and_nowhere_else(sites, tmp_path):
    keys, drawn = [], noisy_gradient.os.urandom

    def urandom(n):
        keys.append(drawn(n))
        return keys[-1]

    wrong, found = [], []

    def watch(row, state):
        states = [path for name in NAMES for path in sites.state(name)]
        for path in tmp_path.rglob("*"):
            held = path.is_file() and any(key in path.read_bytes() for key in keys)
            if held and path not in states:
                wrong.append(path)
            elif held:
                found.append(path)
                assert stat.S_IMODE(path.stat().st_mode) == 0o600

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noisy_gradient.os, "urandom", urandom)
        solution = sites.solve(watch=[watch], checkpoint=tmp_path / "server")
    assert solution.rounds == T
    assert sum(len(key) == 32 for key in keys) == 3
    assert wrong == []
    assert len(found) == 3 * (T - 1)  # not after the last round
    assert not any(key in encode(body) for key in keys for body in (*sites.answered, *sites.sent))


def test_the_keys_that_a_runs_file_held_before_are_overwritten(sites, tmp_path):
    witness = tmp_path / "witness"

    def watch(row, state):
        if row["round"] == 2:  # a second name of the file shows what is left of it on the disk
            witness.hardlink_to(sites.state()[0])
            assert decode(read_in_turns(witness) or b"").memory.secret.any()

    sites.solve(watch=[watch])
    assert not any(witness.read_bytes())


@pytest.mark.parametrize(
    ("method", "stated", "told"),
    [
        (bf.PrivateADMM(max_rounds=T, noise="simulation"), problem(), 'noise="simulation"'),
        (bf.PrivateSGD(max_rounds=T, noise="simulation"), problem(), 'noise="simulation"'),
    ],
    ids=["simulation", "simulation of SGD"],
)
def test_noise_that_others_can_subtract_is_refused(tmp_path, method, stated, told):
    policies = dict.fromkeys(NAMES, "") if stated.privacy is None else None
    sites = Sites(tmp_path, policies)
    with pytest.raises(RefusedError) as refused:
        sites.solve(stated, method)
    assert refused.value.rule == "noise"
    assert told in str(refused.value)
    assert not steps(sites.answered)
    assert not sites.book().path.exists() or not sites.book().runs()


def test_answers_are_not_given_for_sums_that_are_no_secret(sites, monkeypatch):
    """Neither server nor site takes the share of the noise of a sum for enough without one."""
    stated, method = problem(view="sum"), bf.PrivateSGD(max_rounds=T)
    with pytest.raises(ValueError, match="the server of Network sees each"):
        sites.solve(stated, method)
    monkeypatch.setattr("bonafed.solution.plan.needs_secure_sum", lambda problem: False)
    with pytest.raises(RefusedError, match="this site answers without a secure sum"):
        sites.solve(stated, method)
    assert not steps(sites.answered)
    assert not sites.book().path.exists()


def test_a_server_that_goes_on_gets_the_same_run_for_one_charge(sites, same_keys, tmp_path):
    whole = Sites(tmp_path / "whole").solve()

    class DeathError(Exception):
        """Of the server."""

    def watch(row, state):
        if row["round"] == 3:
            raise DeathError

    file = tmp_path / "server"
    with pytest.raises(DeathError):
        sites.solve(name="one", checkpoint=file, watch=[watch])
    again = sites.solve(name="one", checkpoint=file, resume=True)
    assert again.w.tobytes() == whole.w.tobytes()
    assert len(sites.book().runs()) == 1


def test_a_site_that_loses_its_run_ends_the_solve_and_stays_charged(sites):
    count = []
    real = sites.call

    def forgetful(name, data):
        if name == "north" and isinstance(decode(data).body, Step):
            count.append(1)
            if len(count) == 3:
                sites.state()[0].unlink()
                sites.opened_again()
        return real(name, data)

    sites.call = forgetful
    with pytest.raises((RefusedError, StateLostError), match=r"keys of noise are lost|has lost"):
        sites.solve()
    assert 0.69 < sites.epsilon() <= 0.7
