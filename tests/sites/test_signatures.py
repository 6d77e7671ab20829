"""Signed answers: what a server, a site or a disk changes is noticed, and the site is named."""

from __future__ import annotations

import hashlib
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.records import leaves, put
from sites.folders import NAMES as CLINICS
from sites.folders import PROBLEM, folder_of, roles
from sites.helpers import of_federation
from sites.test_solve_across import PROBLEMS
from toy import federation

import bonafed as bf
from bonafed.certificates import certify
from bonafed.certificates.certify import Weigh, WeighAlong, Weighing
from bonafed.certificates.duality import Certified, Certify
from bonafed.codec import CodecError
from bonafed.data.federation import Federation
from bonafed.engines.network import Network, Sites
from bonafed.engines.wire import (
    Envelope,
    Failed,
    Link,
    LocalTransport,
    Refused,
    StartRun,
    Step,
    Stepped,
    Unknown,
)
from bonafed.problem import lower_bounds
from bonafed.problem.lower_bounds import Survey
from bonafed.rounds import Round, decode, encode, rows
from bonafed.runs.checks import passed
from bonafed.runs.files import plain
from bonafed.sites import signatures
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party, open_party
from bonafed.sites.policy import Policy
from bonafed.sites.server import SIGNED, SOLUTION, job_of, serve
from bonafed.sites.session import Agree, Agreement, Introduce, agree, method_bytes, method_of
from bonafed.sites.signatures import (
    Sign,
    SignatureError,
    make_key,
    opened,
    public_line,
    read_keys,
    signed,
    signer,
)
from bonafed.sites.signed_answers import (
    MAIN,
    SignedAnswers,
    SignedFile,
    Verified,
    apart,
    together,
    verify_signed,
)
from bonafed.sites.site_file import read_site
from bonafed.statements import statement_bytes

Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]
Answer = Callable[[bytes], bytes]

ROWS = federation((20, 35, 12, 28), 4)
NAMES = ROWS.names
CUTS, LIMIT = PROBLEMS["ball and lp-ball"], PROBLEMS["constraint"]
OTHERS = {
    "no bound": bf.Problem(bf.Logistic(), bf.MLP((2,)), regulariser=bf.L2(1e-2)),
    "ranks of all rows": bf.Problem(
        bf.Logistic(), over_rows=bf.Superquantile(0.3), regulariser=bf.L2(1e-2)
    ),
    "ranks of all rows, by cuts": bf.Problem(
        bf.Hinge(), over_rows=bf.Superquantile(0.3), regulariser=bf.L2(1e-2)
    ),
    "infeasible": replace(
        LIMIT,
        local_constraint=(
            bf.LinearInequality([[1.0, 0.0, 0.0, 0.0, 0.0]], [-1.0]),
            bf.LinearInequality([[-1.0, 0.0, 0.0, 0.0, 0.0]], [-1.0]),
        ),
    ),
}


@dataclass(frozen=True)
class Signers:
    """The private keys of sites, and the folder of their public ones."""

    folder: Path
    sign: dict[str, Sign]

    @property
    def keys(self) -> dict[str, bytes]:
        return read_keys(self.folder)


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> Signers:
    folder, sign = tmp_path_factory.mktemp("keys"), {}
    for name in NAMES:
        make_key(folder / name)
        (folder / f"{name}.pub").write_text(public_line(folder / name, name) + "\n")
        sign[name] = signer(folder / name)
    return Signers(folder, sign)


@dataclass
class Experiment:
    """Sites that sign, their agreement with a server, and the answers that it keeps."""

    parties: dict[str, Party]
    kept: SignedAnswers
    agreement: Agreement

    @classmethod
    def of(
        cls,
        problem: bf.Problem,
        sign: Mapping[str, Sign | None],
        folder: Path,
        rows: Federation = ROWS,
        lie: Callable[[str, Any], Any] = lambda site, body: body,
        name: str = "experiment",
    ) -> Experiment:
        """``lie`` changes what a site is asked, behind the back of what is kept."""
        parties = {
            site: Party(
                site,
                of_federation(rows.restrict(client).without_server()),
                folder / site,
                Guard(None),
                sign=sign[site],
            )
            for site, client in zip(rows.names, rows.clients, strict=True)
        }

        def answer(site: str) -> Answer:
            def changed(data: bytes) -> bytes:
                asked = decode(data)
                other = replace(asked, body=lie(site, asked.body))
                return parties[site].answer("server", encode(other))

            return changed

        kept, sites = SignedAnswers(), {site: answer(site) for site in parties}
        agreement = agree(
            LocalTransport(sites), name, problem, server=rows.server, patience=600.0, keep=kept.keep
        )
        return cls(parties, kept, agreement)

    def solve(self, **options: Any) -> Result:
        engine = Network(self.agreement.session)
        solution = bf.solve(
            self.agreement.problem, self.agreement.metadata, engine=engine, **options
        )
        return Result(self.agreement.problem, solution, self.kept.file())


@dataclass(frozen=True)
class Result:
    """A solution across sites, and the file of the signed answers that its certificate stands on.

    ``verify`` takes what a server would claim in place of what it should.
    """

    problem: bf.Problem
    solution: bf.Solution
    data: bytes

    @property
    def numbers(self) -> dict[str, Any]:
        return self.solution.certificate.numbers()

    @property
    def file(self) -> SignedFile:
        return SignedFile.of(self.data)

    def verify(self, keys: Mapping[str, bytes], **claims: Any) -> Verified:
        claimed = {
            "data": self.data,
            "problem": self.problem,
            "w": self.solution.w,
            "duals": self.solution.duals,
            "numbers": self.numbers,
        }
        infeasible = self.solution.outcome.stop is bf.Stop.INFEASIBLE
        return verify_signed(**claimed | {"keys": keys, "infeasible": infeasible} | claims)

    def with_answer(self, k: int, i: int, answer: bytes) -> bytes:
        """The file with another answer of a site."""
        file = self.file
        answers = [list(of_round) for of_round in file.answers]
        answers[k][i] = answer
        return SignedFile(file.head, answers).data()


@pytest.fixture(scope="module")
def cuts(signers: Signers, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Experiment.of(CUTS, signers.sign, tmp_path_factory.mktemp("cuts")).solve()


@pytest.fixture(scope="module")
def limit(signers: Signers, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Experiment.of(LIMIT, signers.sign, tmp_path_factory.mktemp("limit")).solve()


def named(verified: Verified) -> set[str]:
    """The sites that differ; whatever differs must fail the verification."""
    assert not passed(verified.checks)
    assert verified.certificate is None or not verified.checks[-1].ok
    sites = [check for check in verified.checks if check.name.startswith("site ")]
    return {check.name.removeprefix("site ") for check in sites if check.ok is False}


def text_of(verified: Verified, name: str) -> str:
    (check,) = (check for check in verified.checks if check.name == name)
    assert check.ok is False
    return check.text


# ---- what holds


@pytest.mark.parametrize(
    "problem", [*PROBLEMS.values(), *OTHERS.values()], ids=[*PROBLEMS, *OTHERS]
)
def test_a_certificate_follows_from_what_the_sites_signed(
    problem: bf.Problem, signers: Signers, tmp_path: Path
) -> None:
    experiment = Experiment.of(problem, signers.sign, tmp_path)
    result = experiment.solve(max_rounds=60)
    verified = result.verify(signers.keys)
    assert passed(verified.checks), verified.checks
    assert [check.name for check in verified.checks] == [
        *(f"site {name}" for name in NAMES),
        "signed certificate",
    ]
    assert experiment.kept.signers == NAMES
    assert verified.certificate is not None
    again = verified.certificate.numbers() | {"consensus": result.numbers["consensus"]}
    assert plain(again) == plain(result.numbers)  # bit for bit on the same machine
    assert verified.metadata is not None
    assert verified.metadata.digests() == ROWS.digests()
    assert verified.metadata.sizes.tolist() == ROWS.sizes.tolist()
    assert (result.solution.outcome.stop is bf.Stop.INFEASIBLE) == (
        verified.certificate.infeasible is not None
    )
    # any other objective is noticed, even the least one
    worse = result.numbers | {"value": result.numbers["value"] * (1 + 1e-6)}
    assert not passed(result.verify(signers.keys, numbers=worse).checks)


def test_a_certificate_of_the_ranks_of_one_site_follows_from_its_answers(
    signers: Signers, tmp_path: Path
) -> None:
    problem = bf.Problem(bf.Squared(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1))
    one = ROWS.restrict(ROWS.clients[0])
    result = Experiment.of(problem, signers.sign, tmp_path, one).solve()
    keys = {NAMES[0]: signers.keys[NAMES[0]]}
    verified = result.verify(keys)
    assert passed(verified.checks), verified.checks
    duals = result.solution.duals
    assert duals.rows is not None
    other = replace(duals, rows=duals.rows * (1 + 1e-12))
    assert "Certify.rows" in text_of(result.verify(keys, duals=other), "signed certificate")


def test_a_job_leaves_the_answers_that_its_certificate_stands_on(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    policy = "maximum_parameter_share = 1.0"
    places = {name: folder_of(tmp_path, name, policy) for name in CLINICS}
    for name, place in places.items():
        file = place / "site.toml"
        file.write_text(file.read_text().replace("[site]", '[site]\nkey = "secret/site.key"'))
        capsys.readouterr()
        assert bonafed("site", "key", name) == 0
        (tmp_path / f"{name}.pub").write_text(capsys.readouterr().out)
    parties = {name: open_party(place, name) for name, place in places.items()}
    transport = LocalTransport(
        {name: lambda data, name=name: parties[name].answer("s", data) for name in parties}
    )
    serve(transport, tmp_path / "out", job_of("trial", PROBLEM, roles=roles(), patience=600.0))
    solution = bf.load(tmp_path / "out" / SOLUTION)
    file = tmp_path / "out" / SIGNED
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # every site's numbers are in it
    parts = apart(file.read_bytes())
    assert [*parts] == [MAIN]
    result = Result(PROBLEM, solution, parts[MAIN])
    keys = read_keys(tmp_path)
    assert passed(result.verify(keys, roles=roles().text()).checks)
    assert named(result.verify(keys, roles=roles(test=0.2).text())) == {*CLINICS}
    assert (
        read_site(places["east"]).policy.digest()
        in result.verify(keys, roles=roles().text()).checks[CLINICS.index("east")].text
    )


def test_the_digest_of_the_policy_is_signed(signers: Signers, tmp_path: Path) -> None:
    experiment = Experiment.of(CUTS, signers.sign, tmp_path)
    policy = Policy(maximum_parameter_share=1.0, minimum_people=1, smooth_losses_only=False)
    experiment.parties[NAMES[0]].guard.policy = policy
    body = experiment.kept.agree
    question = encode(Envelope("experiment", NAMES[0], 99, body))
    answer = experiment.parties[NAMES[0]].answer("server", question)
    experiment.kept.keep(decode(question), answer)
    first, second, *_ = experiment.solve().verify(signers.keys).checks
    assert policy.digest() in first.text
    assert "policy none" in second.text


# ---- bytes


def test_a_changed_byte_is_noticed_and_the_site_is_named(cuts: Result, signers: Signers) -> None:
    head = len(cuts.data) - sum(len(answer) for each in cuts.file.answers for answer in each)
    ends = np.cumsum([head, *(len(answer) for each in cuts.file.answers for answer in each)])
    for position in range(0, len(cuts.data), 37):
        data = bytearray(cuts.data)
        data[position] ^= 1 << (position % 8)
        verified = cuts.verify(signers.keys, data=bytes(data))
        if position < head:
            assert named(verified) == set()
            assert "cannot be read" in text_of(verified, "signed answers")
        else:
            k = int(np.searchsorted(ends, position, "right")) - 1
            assert named(verified) == {NAMES[k % len(NAMES)]}


def test_a_file_that_is_cut_or_longer_is_refused(cuts: Result, signers: Signers) -> None:
    for data in (b"", cuts.data[:7], cuts.data[:500], cuts.data[:-1], cuts.data + b"\0"):
        verified = cuts.verify(signers.keys, data=data)
        assert not passed(verified.checks)
        assert "cannot be read" in text_of(verified, "signed answers")


def test_a_head_of_any_values_is_refused_and_never_an_error(cuts: Result, signers: Signers) -> None:
    file = cuts.file
    start = b"".join(answer for each in file.answers for answer in each)
    for path, value in leaves(file.head):
        for other in (None, "x", -1, 2**40, 0.5, True, np.zeros((1, 2)), ("x",), {"x": 1}):
            if type(other) is type(value) and np.array_equal(other, value):
                continue
            head = encode(put(file.head, path, other))
            data = len(head).to_bytes(8, "big") + head + start
            assert not passed(cuts.verify(signers.keys, data=data).checks), (path, other)


# ---- a server that lies


def test_a_site_that_is_left_out_is_named(signers: Signers, tmp_path: Path) -> None:
    few = ROWS.restrict(ROWS.clients[:3])
    result = Experiment.of(CUTS, signers.sign, tmp_path, few).solve()
    verified = result.verify(signers.keys)
    assert named(verified) == {NAMES[3]}
    assert "takes part 0 times" in text_of(verified, f"site {NAMES[3]}")
    kept = {name: key for name, key in signers.keys.items() if name != NAMES[3]}
    assert passed(result.verify(kept).checks)


def test_an_invented_site_is_named(cuts: Result, signers: Signers) -> None:
    known = {name: key for name, key in signers.keys.items() if name != NAMES[1]}
    verified = cuts.verify(known)
    assert named(verified) == {NAMES[1]}
    assert "not among those given" in text_of(verified, f"site {NAMES[1]}")


def test_a_site_cannot_be_left_out_of_the_file_alone(cuts: Result, signers: Signers) -> None:
    file = cuts.file
    head = replace(file.head, sites=NAMES[:3])
    data = SignedFile(head, [of_round[:3] for of_round in file.answers]).data()
    assert named(cuts.verify(signers.keys, data=data)) == {NAMES[3]}
    known = {name: signers.keys[name] for name in NAMES[:3]}
    assert named(cuts.verify(known, data=data)) == {*NAMES[:3]}  # they agreed with a fourth


def test_an_answer_by_another_key_or_without_one_is_named(signers: Signers, tmp_path: Path) -> None:
    other = {**signers.sign, NAMES[2]: signers.sign[NAMES[0]]}
    result = Experiment.of(CUTS, other, tmp_path / "other").solve()
    verified = result.verify(signers.keys)
    assert named(verified) == {NAMES[2]}
    assert "another key" in text_of(verified, f"site {NAMES[2]}")
    nobody = Experiment.of(CUTS, {**signers.sign, NAMES[2]: None}, tmp_path / "none")
    assert NAMES[2] not in nobody.kept.signers
    verified = nobody.solve().verify(signers.keys)
    assert named(verified) == {NAMES[2]}
    assert "no signature" in text_of(verified, f"site {NAMES[2]}")


@pytest.mark.parametrize("k", range(4))
def test_no_answer_stands_for_another_one(
    k: int, cuts: Result, signers: Signers, tmp_path: Path
) -> None:
    again = Experiment.of(CUTS, signers.sign, tmp_path / "same").solve()
    other = Experiment.of(CUTS, signers.sign, tmp_path / "other", name="other").solve()
    assert passed(again.verify(signers.keys).checks)
    cases = {
        "of another round": cuts.file.answers[(k + 1) % 4][1],
        "of another site": cuts.file.answers[k][2],
        "of another experiment": other.file.answers[k][1],
    }
    if k >= 2:  # in another run, of the same name of an experiment
        cases["of another run"] = again.file.answers[k][1]
    for answer in cases.values():
        assert named(cuts.verify(signers.keys, data=cuts.with_answer(k, 1, answer))) == {NAMES[1]}
    data = cuts.with_answer(k, 1, cases["of another experiment"])
    told = text_of(cuts.verify(signers.keys, data=data), f"site {NAMES[1]}")
    assert "in the experiment 'other'" in told


def test_an_answer_at_another_model_in_the_same_experiment_is_named(
    signers: Signers, tmp_path: Path
) -> None:
    experiment = Experiment.of(CUTS, signers.sign, tmp_path)
    first, second = experiment.solve(max_rounds=3), experiment.solve()
    assert passed(first.verify(signers.keys).checks)
    assert passed(second.verify(signers.keys).checks)
    # rounds: what it told, its agreement, two of the first certificate, two of the second
    assert len(second.file.answers) == 6
    old = second.file.answers[3][0]
    assert named(second.verify(signers.keys, data=second.with_answer(5, 0, old))) == {NAMES[0]}


def test_a_model_or_duals_that_the_sites_were_not_asked_about_are_noticed(
    cuts: Result, limit: Result, signers: Signers
) -> None:
    w, duals, mu = cuts.solution.w, cuts.solution.duals, limit.solution.duals
    more = duals.multipliers.copy()
    more[np.unravel_index(np.argmax(more), more.shape)] *= 1 + 1e-6
    claims = [
        (cuts, {"w": w + 1e-12}, "w"),
        (cuts, {"w": w[:-1]}, "shape"),
        (cuts, {"w": np.full_like(w, np.nan)}, "finite"),
        (cuts, {"duals": replace(duals, points=duals.points * (1 - 1e-12))}, "points"),
        (cuts, {"duals": replace(duals, multipliers=more)}, "multipliers"),
        (cuts, {"duals": None}, "points"),
        (limit, {"w": limit.solution.w * (1 + 1e-12)}, "Weigh.w"),
        (limit, {"duals": replace(mu, local=mu.local * (1 + 1e-6))}, "Weigh.local"),
        (limit, {"infeasible": True}, "Weigh"),
    ]
    for result, claim, part in claims:
        verified = result.verify(signers.keys, **claim)
        assert named(verified) == set()
        assert part in text_of(verified, "signed certificate")


def test_two_certificates_cannot_be_mixed(signers: Signers, tmp_path: Path) -> None:
    experiment = Experiment.of(CUTS, signers.sign, tmp_path)
    first, second = experiment.solve(max_rounds=4), experiment.solve()
    for claims in (
        {"w": first.solution.w},
        {"duals": first.solution.duals},
        {"numbers": first.numbers},
        {"w": first.solution.w, "duals": first.solution.duals},
        {"w": first.solution.w, "numbers": first.numbers},
    ):
        verified = second.verify(signers.keys, **claims)
        assert named(verified) == set()
        text_of(verified, "signed certificate")


def test_every_number_that_a_server_states_otherwise_is_noticed(
    cuts: Result, limit: Result, signers: Signers
) -> None:
    for result in (cuts, limit):
        for name, value in result.numbers.items():
            if value is None or name == "consensus":
                continue
            other = np.array(value, float)
            other = other + 1e-3 * np.maximum(np.abs(other), 1.0)
            verified = result.verify(signers.keys, numbers=result.numbers | {name: other.tolist()})
            if not np.isnan(other).all():
                assert name in text_of(verified, "signed certificate")
                assert named(verified) == set()
    weights = np.roll(cuts.solution.duals.weights, 1)
    assert not np.allclose(weights, cuts.solution.duals.weights)
    claimed = replace(cuts.solution.duals, weights=weights)
    assert "duals" in text_of(cuts.verify(signers.keys, duals=claimed), "signed certificate")


def test_another_problem_or_other_columns_are_noticed_at_every_site(
    cuts: Result, signers: Signers
) -> None:
    for claim in ({"problem": replace(CUTS, regulariser=bf.L2(1e-3))}, {"roles": "{}"}):
        verified = cuts.verify(signers.keys, **claim)
        assert named(verified) == {*NAMES}
        assert "another question" in text_of(verified, f"site {NAMES[0]}")
        assert verified.checks[-1].ok is None


def test_a_site_that_was_told_otherwise_of_the_others_is_named(
    signers: Signers, tmp_path: Path
) -> None:
    def lie(site: str, body: Any) -> Any:
        if site != NAMES[3] or not isinstance(body, Agree):
            return body
        first, *others = body.introductions
        return replace(body, introductions=(replace(first, rows=5000, weight=5e3), *others))

    result = Experiment.of(LIMIT, signers.sign, tmp_path, lie=lie).solve()
    verified = result.verify(signers.keys)
    assert named(verified) == {NAMES[3]}
    assert "what the sites told" in text_of(verified, f"site {NAMES[3]}")


def test_a_site_that_was_asked_about_another_model_is_named(
    signers: Signers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # such a server holds no answer against earlier ones
    monkeypatch.setattr(Sites, "hold", lambda *answer: None)

    def lie(site: str, body: Any) -> Any:
        ask = body.message if isinstance(body, Step) else None
        if site == NAMES[0] and isinstance(ask, Certify):
            return replace(body, message=replace(ask, w=2 * ask.w))
        return body

    result = Experiment.of(CUTS, signers.sign, tmp_path, lie=lie).solve()
    verified = result.verify(signers.keys)
    assert named(verified) == {NAMES[0]}
    assert "Certify in round 2" in text_of(verified, f"site {NAMES[0]}")


def test_all_sites_that_differ_are_named(cuts: Result, signers: Signers) -> None:
    data = cuts.with_answer(3, 0, cuts.file.answers[3][1])
    mixed = replace(cuts, data=data)
    data = mixed.with_answer(2, 2, b"nothing")
    assert named(cuts.verify(signers.keys, data=data)) == {NAMES[0], NAMES[2]}


def test_a_server_that_shifts_gradients_as_it_likes_proves_no_more(
    limit: Result, signers: Signers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Weighing.question

    def ask(self: Weighing, state: Any, n_clients: int) -> Round:
        round_ = honest(self, state, n_clients)
        assert isinstance(round_.message, Weigh)
        return Round(replace(round_.message, shift=round_.message.shift + 0.3))

    with monkeypatch.context() as patch:
        patch.setattr(Weighing, "question", ask)
        lied = Experiment.of(LIMIT, signers.sign, tmp_path).solve()
    shifts, balance = [], Weighing.balance

    def noted(self: Weighing, state: Any, *given: Any) -> Any:
        shifts.append(state.shift)
        return balance(self, state, *given)

    monkeypatch.setattr(Weighing, "balance", noted)
    verified = lied.verify(signers.keys, numbers=limit.numbers)
    (run,) = lied.file.head.runs
    assert encode(tuple(shifts)) == encode(tuple(each.shift for each in run.messages))
    assert verified.certificate is not None
    assert verified.certificate.bound is not None
    # the least value lies between bound and value of the honest certificate
    assert verified.certificate.bound < limit.numbers["bound"] - 1e-3
    text_of(verified, "signed certificate")


def test_products_with_hessians_are_part_of_no_bound(
    limit: Result, signers: Signers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certify, "DENSE", 1)
    result = Experiment.of(LIMIT, signers.sign, tmp_path).solve()
    (run,) = result.file.head.runs
    assert {type(message) for message in run.messages} == {Weigh, WeighAlong}
    verified = result.verify(signers.keys)
    assert passed(verified.checks)
    assert verified.certificate is not None
    assert verified.certificate.bound == pytest.approx(limit.numbers["bound"], rel=1e-8)


def test_other_rounding_on_another_machine_is_no_fault(
    cuts: Result, limit: Result, signers: Signers, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved, scaled = certify.pseudosolve, lower_bounds.feasible_duals

    def rescaled(by: float) -> Callable[..., bf.Duals]:
        def other(*given: Any) -> bf.Duals:
            duals = scaled(*given)
            return replace(duals, multipliers=duals.multipliers * (1 + by))

        return other

    monkeypatch.setattr(certify, "pseudosolve", lambda *given: solved(*given) * (1 + 1e-4))
    assert passed(limit.verify(signers.keys).checks)
    monkeypatch.setattr(certify, "FLOOR", 0.0)  # it asks for one more round than there was
    assert passed(limit.verify(signers.keys).checks)
    monkeypatch.setattr(lower_bounds, "feasible_duals", rescaled(1e-12))
    assert passed(cuts.verify(signers.keys).checks)
    monkeypatch.setattr(lower_bounds, "feasible_duals", rescaled(1e-8))
    assert named(cuts.verify(signers.keys)) == set()


def test_a_model_whose_bound_another_method_proved_follows_from_the_answers(
    signers: Signers, tmp_path: Path
) -> None:
    experiment = Experiment.of(CUTS, signers.sign, tmp_path)
    result = experiment.solve(algorithm=bf.ADLPMM(max_rounds=30))
    assert passed(result.verify(signers.keys).checks)
    assert len(result.file.answers) == 4  # and those of other rounds are not kept


def test_several_files_of_signed_answers_travel_as_one() -> None:
    files = {"model": b"one", "erm": b"", "held out": b"three"}
    assert apart(together(files)) == files
    for odd in (b"", b"text", encode("text"), together(files)[:-1]):
        with pytest.raises(CodecError):
            apart(odd)


def test_a_certificate_that_was_cut_short_is_left_out(signers: Signers, tmp_path: Path) -> None:
    experiment = Experiment.of(CUTS, signers.sign, tmp_path)
    (run,) = experiment.solve().file.head.runs
    party, kept = experiment.parties[NAMES[0]], experiment.kept
    for body in (StartRun("half", run.method, 0, 0), Step("half", 0, rows(run.messages[0], [0]))):
        ask = Envelope("experiment", NAMES[0], 99, body)
        kept.keep(ask, party.answer("server", encode(ask)))
    result = experiment.solve()
    assert len(result.file.answers) == 6
    assert passed(result.verify(signers.keys).checks)


def test_the_rounds_have_to_be_those_of_the_certificate(
    limit: Result, signers: Signers, tmp_path: Path
) -> None:
    other = Weighing(limit.solution.w, limit.solution.duals, objective=False)
    method = np.frombuffer(method_bytes(other), np.uint8)

    def lie(site: str, body: Any) -> Any:
        proves = isinstance(body, StartRun) and isinstance(
            method_of(body.method.tobytes()), Weighing
        )
        return replace(body, method=method) if proves else body

    result = Experiment.of(LIMIT, signers.sign, tmp_path, lie=lie).solve()
    assert named(result.verify(signers.keys)) == {*NAMES}
    file = result.file
    (run,) = file.head.runs
    head = replace(file.head, runs=(replace(run, method=method),))
    verified = result.verify(signers.keys, data=SignedFile(head, file.answers).data())
    assert named(verified) == set()
    assert "no such certificate" in text_of(verified, "signed certificate")


def test_an_experiment_is_agreed_once(signers: Signers, tmp_path: Path) -> None:
    experiment = Experiment.of(CUTS, signers.sign, tmp_path)
    name, body = NAMES[0], experiment.kept.agree
    assert body is not None
    own, other, *rest = body.introductions
    false = replace(body, introductions=(own, replace(other, rows=7), *rest))
    party = experiment.parties[name]
    for renewed in (party, Party(name, party.source, party.folder, party.guard, party.sign)):
        for ask, refused in ((body, False), (false, True), (body, False)):
            reply = decode(renewed.answer("server", encode(Envelope("experiment", name, 1, ask))))
            assert isinstance(reply.body, Refused) == refused
    elsewhere = decode(party.answer("server", encode(Envelope("another", name, 1, false))))
    assert not isinstance(elsewhere.body, Refused)


def test_an_answer_under_another_agreement_is_named(signers: Signers, tmp_path: Path) -> None:
    """A site whose disk was lost agrees anew, and what it answered before proves nothing."""
    name = NAMES[3]

    def lie(site: str, body: Any) -> Any:
        if site != name or not isinstance(body, Agree):
            return body
        first, *others = body.introductions
        return replace(body, introductions=(replace(first, rows=5000, weight=5e3), *others))

    experiment = Experiment.of(LIMIT, signers.sign, tmp_path, lie=lie)
    result = experiment.solve()
    source = experiment.parties[name].source
    renewed = Party(name, source, tmp_path / "renewed", Guard(None), signers.sign[name])
    question = encode(Envelope("experiment", name, 2, experiment.kept.agree))
    data = result.with_answer(1, 3, renewed.answer("server", question))
    verified = result.verify(signers.keys, data=data)
    assert named(verified) == {name}
    assert "Weigh in round 1" in text_of(verified, f"site {name}")


def test_the_algorithm_of_a_run_is_part_of_what_is_signed(
    cuts: Result, signers: Signers, tmp_path: Path
) -> None:
    digests, (certificate,) = set(), cuts.file.head.runs
    for k, method in enumerate((method_bytes(bf.Bundle()), certificate.method.tobytes())):
        party = Experiment.of(CUTS, signers.sign, tmp_path / str(k)).parties[NAMES[0]]
        begin = StartRun("run", np.frombuffer(method, np.uint8), 0, 0)
        party.answer("server", encode(Envelope("experiment", NAMES[0], 6, begin)))
        ask = Step("run", 0, rows(certificate.messages[0], [0]))
        reply = decode(party.answer("server", encode(Envelope("experiment", NAMES[0], 7, ask))))
        assert isinstance(reply.body, Stepped)
        digests.add(reply.asked)
    assert len(digests) == 2


# ---- a site that lies


@pytest.mark.parametrize("change", ["nan", "shape", "kind", "nothing", "refusal"])
def test_what_a_site_signs_is_never_an_error(change: str, cuts: Result, signers: Signers) -> None:
    answer = decode(cuts.file.answers[3][1])
    upload = answer.body.upload
    assert isinstance(upload, Certified)
    others = {
        "nan": replace(upload, risk=upload.risk * np.nan),
        "shape": replace(upload, gradient=upload.gradient[:, :-1]),
        "kind": replace(upload, loss=None),
        "nothing": None,
        "refusal": None,
    }
    body = Failed("no") if change == "refusal" else replace(answer.body, upload=others[change])
    forged = signed(replace(answer, body=body), answer.asked, signers.sign[NAMES[1]])
    verified = cuts.verify(signers.keys, data=cuts.with_answer(3, 1, encode(forged)))
    assert named(verified) == ({NAMES[1]} if change == "refusal" else set())


def test_a_site_cannot_tell_of_rows_of_another_one(
    cuts: Result, signers: Signers, tmp_path: Path
) -> None:
    answer = decode(cuts.file.answers[0][1])
    forged = replace(answer, body=replace(answer.body, client=NAMES[2]))
    forged = signed(forged, answer.asked, signers.sign[NAMES[1]])
    data = cuts.with_answer(0, 1, encode(forged))
    assert named(cuts.verify(signers.keys, data=data)) == {NAMES[1]}

    class Liar(Party):
        def _answer(self, sender: str, experiment: str, body: object) -> Any:
            told: Any = super()._answer(sender, experiment, body)
            return replace(told, client="elsewhere") if isinstance(body, Introduce) else told

    rows = of_federation(ROWS.restrict(ROWS.clients[0]))
    liar = Liar(NAMES[0], rows, tmp_path, Guard(None))
    transport = LocalTransport({NAMES[0]: lambda data: liar.answer("server", data)})
    with pytest.raises(ValueError, match="introduces itself by another name"):
        agree(transport, "experiment", CUTS, patience=600.0)


def test_a_server_cannot_have_its_signature_echoed(tmp_path: Path) -> None:
    rows = of_federation(ROWS.restrict(ROWS.clients[0]))
    party = Party(NAMES[0], rows, tmp_path, Guard(None))
    body = Step("run", 0, Survey(np.ones(1)))
    ask = Envelope("experiment", NAMES[0], 1, body, "asked", np.ones(64, np.uint8))
    reply = decode(party.answer("server", encode(ask)))
    assert isinstance(reply.body, Unknown)
    assert (reply.asked, reply.signature) == ("", None)


def test_an_answer_written_in_another_form_is_none(cuts: Result, signers: Signers) -> None:
    answer = cuts.file.answers[2][1]
    body = answer[:-16].replace(b'["r",', b'["r", ', 1)
    prefix = struct.Struct("<4sHxxIQ")  # of the codec
    magic, version, header, total = prefix.unpack_from(body)
    body = prefix.pack(magic, version, header + 1, total + 1) + body[prefix.size :]
    body += hashlib.blake2b(body, digest_size=16).digest()
    assert encode(decode(body)) == answer
    verified = cuts.verify(signers.keys, data=cuts.with_answer(2, 1, body))
    assert named(verified) == {NAMES[1]}


def test_what_a_site_refuses_is_not_kept(tmp_path: Path) -> None:
    rows = of_federation(ROWS.restrict(ROWS.clients[0]))
    party = Party(NAMES[0], rows, tmp_path, Guard(None))
    transport = LocalTransport({NAMES[0]: lambda data: party.answer("server", data)})
    kept = []
    link = Link(transport, "e", (NAMES[0],), 20.0, lambda asked, answer: kept.append(asked.body))
    ask = Step("run", 0, Survey(np.ones(1)))
    assert isinstance(link.ask({0: [ask]})[0], Unknown)
    assert not kept
    ask = Introduce(np.frombuffer(statement_bytes(CUTS), np.uint8), "")
    link.ask({0: [ask]})
    assert kept == [ask]


# ---- keys


def test_a_key_signs_and_its_line_checks(tmp_path: Path) -> None:
    make_key(tmp_path / "keys" / "north.key")
    path = tmp_path / "keys" / "north.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    line = public_line(path, "St. Mary, north")
    assert line.startswith("bonafed-ed25519 ")
    assert line.endswith(" St. Mary, north")
    (tmp_path / "mary.pub").write_text(line + "\n")
    (key,) = read_keys(tmp_path).values()
    reply = signed(Envelope("e", "St. Mary, north", 3, None), "digest", signer(path))
    assert opened(encode(reply), key).asked == "digest"
    for other in (
        replace(reply, experiment="f"),
        replace(reply, number=4),
        replace(reply, body=1),
        replace(reply, asked="other"),
        replace(reply, signature=reply.signature[:-1]),
        replace(reply, signature=None),
        replace(reply, signature="no array"),
    ):
        with pytest.raises(SignatureError):
            opened(encode(other), key)
    with pytest.raises(SignatureError, match="not an answer of a site"):
        opened(encode(("nothing",)), key)
    with pytest.raises(FileExistsError, match="already"):
        make_key(path)


def test_files_that_hold_no_key_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(ValueError, match=r"x\.pem.* holds no private key"):
        signer(tmp_path / "x.pem")
    with pytest.raises(FileNotFoundError, match="bonafed site key"):
        signer(tmp_path / "absent")
    with pytest.raises(ValueError, match="has no public key"):
        read_keys(tmp_path)
    for text in ("", "bonafed-ed25519", "bonafed-ed25519 AAAA north", "ssh-ed25519 AAAA north"):
        (tmp_path / "x.pub").write_text(text)
        with pytest.raises(ValueError, match=r"x\.pub.* holds no public key"):
            read_keys(tmp_path)
    make_key(tmp_path / "key")
    for name in ("x.pub", "y.pub"):
        (tmp_path / name).write_text(public_line(tmp_path / "key", "north"))
    with pytest.raises(ValueError, match="two public keys of the site 'north'"):
        read_keys(tmp_path)


def test_a_key_of_another_kind_or_with_a_password_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    pem, pkcs = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"secret")
    unlocked = serialization.NoEncryption()
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, pkcs, unlocked)
    secret = ed25519.Ed25519PrivateKey.generate().private_bytes(pem, pkcs, locked)
    for text, words in ((other, "not one of Ed25519"), (secret, "without a password")):
        (tmp_path / "key").write_bytes(text)
        with pytest.raises(ValueError, match=words):
            signer(tmp_path / "key")


def test_without_the_package_it_is_said_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "find_spec", lambda name: None)
    for call in (lambda: make_key(tmp_path / "key"), lambda: opened(b"", bytes(32))):
        with pytest.raises(ImportError, match=r"pip install '\.\[sign\]'"):
            call()


def test_the_command_makes_a_key_once_and_the_site_signs_with_it(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    assert bonafed("site", "policy", "north") == 0
    capsys.readouterr()
    assert bonafed("site", "key", "north") == 2
    assert 'write key = "site.key"' in capsys.readouterr().err
    file = tmp_path / "north" / "site.toml"
    file.write_text(file.read_text().replace('# key = "site.key"', 'key = "site.key"'))
    (tmp_path / "north" / "rows.csv").write_text("age,sick\n31,no\n44,yes\n")
    with pytest.raises(FileNotFoundError, match="bonafed site key"):
        open_party(tmp_path / "north", "north")
    assert bonafed("site", "key", "north") == 0
    line, told = capsys.readouterr()
    assert "wrote the private key" in told
    assert bonafed("site", "key", "north") == 0
    assert capsys.readouterr() == (line, "")
    (tmp_path / "north.pub").write_text(line)
    party = open_party(tmp_path / "north", "north")
    ask = encode(Envelope("experiment", "north", 1, None))
    reply = opened(party.answer("server", ask), read_keys(tmp_path)["north"])
    assert reply.asked == signatures.asked(ask)
