"""Engines that carry sums securely: the numbers of a plain run, and a server that sees no more."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from toy import Toy, ToyAnswer, ToyAsk, federation
from wrapped import everything

import bonafed as bf
from bonafed.data import load
from bonafed.engines import ClientError, InProcess
from bonafed.engines.secure_summed import Enrol, Hidden, SecureSummed, SumState, _bytes_of
from bonafed.privacy.secure_sum.messages import SecureSumError
from bonafed.rounds import (
    Done,
    Each,
    Max,
    Round,
    Stop,
    Sum,
    combine,
    decode,
    record,
    rows,
    visibility,
)
from examples import ALGORITHMS, Example

SEVEN = federation((4, 9, 1, 6, 3, 5, 7))
SUMS = bf.SecureSum(keys="simulation", fewest=2)
SUMMED = {
    name: example
    for name, example in ALGORITHMS.items()
    if any("sum" in visibility(kind).values() for kind in example.algorithm.on_server)
    and example.federation.n_clients > 1
    and not isinstance(example.algorithm, SecureSummed)
}


@dataclass(frozen=True)
class Voting(Toy):
    """Toy that asks everybody and takes the sum over two thirds of the clients."""

    max_rounds: int = 8

    def quorum(self, asked: int) -> int:
        return asked - asked // 3

    def average(self, state: Any, ids: Any, got: ToyAnswer) -> Any:
        state, ask = super().average(state, ids, got)
        return state, ask if isinstance(ask, Done) else Round(ask.message)


@dataclass(frozen=True)
class Whole(Voting):
    """Voting whose clients answer with multiples of 2^-20 that follow from the model alone."""

    def grid(self, upload_class: type) -> dict[str, float]:
        return {"gradient": 2.0**-20}

    def descend(self, memory: Any, ask: ToyAsk, data: Any, rng: Any) -> Any:
        still = replace(memory, momentum=0 * memory.momentum)
        memory, answer = super().descend(still, ask, data, lambda _: np.random.default_rng(0))
        return memory, replace(answer, gradient=np.rint(answer.gradient * 2**20) / 2**20)


# ---- the numbers of a plain run


@pytest.mark.parametrize("example", SUMMED.values(), ids=SUMMED.keys())
def test_every_algorithm_gives_what_it_gives_without(example: Example):
    """Numbers travel to 2^-63: two runs differ as runs do whose sums are in another order."""
    plain, secure = (
        InProcess("each", secure_sum=option).run(example.algorithm, example.federation, seed=1)
        for option in (None, SUMS)
    )
    expected, found = example.answer(plain.state), example.answer(secure.state)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=max(example.tolerance, 1e-11) * scale)
    assert (plain.outcome.stop, plain.rounds) == (secure.outcome.stop, secure.rounds)
    assert plain.turns.tolist() == secure.turns.tolist()
    assert plain.active == secure.active
    same = [[set(row) for row in run.history] for run in (plain, secure)]
    assert same[0] == same[1]


@record
class Kinds:
    real: Sum
    single: Sum
    whole: Sum
    truth: Sum
    none: Sum | None
    table: Sum
    largest: Max
    own: Each


@dataclass(frozen=True)
class Sends(Toy):
    """One round, whose answer has fields of every kind."""

    def kinds(self, memory: Any, ask: ToyAsk, data: Any, rng: Any) -> Any:
        n = len(data.names)
        draw = np.random.default_rng(data.index[0]).normal(size=(n, 2, 3))
        answer = Kinds(
            draw[:, 0, 0],
            draw[:, 0].astype(np.float32),
            np.array([7 - 3 * data.index[0]]),
            draw[:, 0] > 0,
            None,
            draw,
            draw[:, 1, 1],
            draw[:, 1, 2],
        )
        return memory, answer

    @property
    def on_client(self) -> Any:
        return {ToyAsk: self.kinds}

    @property
    def on_server(self) -> Any:
        return {Kinds: lambda state, ids, got: (got, Done(Stop.OPTIMAL))}

    def report(self, state: Any) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("step", [None, 2.0**-30])
def test_fields_of_every_kind_come_as_without(step):
    plain, secure = (
        InProcess("each", secure_sum=option).run(Sends(), SEVEN).state
        for option in (None, bf.SecureSum(step=step))
    )
    assert secure.none is None
    for name in ("whole", "truth", "largest", "own"):
        np.testing.assert_array_equal(getattr(secure, name), getattr(plain, name))
    for name in ("real", "single", "table"):
        found, expected = getattr(secure, name), getattr(plain, name)
        assert (found.dtype, np.shape(found)) == (expected.dtype, np.shape(expected))
        atol = (1e-15 if step is None else 7 * step / 2) if name != "single" else 1e-6
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_whole_multiples_of_a_public_step_keep_every_bit():
    plain, secure = (
        InProcess("each", secure_sum=option).run(Whole(), SEVEN, seed=3) for option in (None, True)
    )
    nothing = {"messages": [], "history": [], "exchanged": np.zeros((2, 7))}
    assert everything(replace(plain, **nothing)) == everything(replace(secure, **nothing))


def test_every_engine_carries_it(tmp_path):
    first = InProcess(secure_sum=SUMS).run(Toy(), SEVEN, seed=1)
    clock = bf.VirtualClock(secure_sum=SUMS, block_size=3, keep_rows=4)
    second = clock.run(Toy(), SEVEN, seed=1)
    again = bf.Replay(second.log, secure_sum=SUMS).run(Toy(), SEVEN)
    for run in (second, again):
        assert (run.state.w == first.state.w).all()
        assert run.active == first.active
    assert [row["round"] for row in second.history] == [4, 6]
    assert [row["answered"] for row in again.history] == [7, 7, 4, 7, 4, 7][: len(again.history)]
    file = tmp_path / "max_rounds = 8"  # as many as three of the algorithm take
    kept = InProcess(secure_sum=SUMS, checkpoint=file)
    part = kept.run(Toy(), SEVEN, seed=1, max_rounds=3)
    assert (part.rounds, part.outcome.text.split(";")[0]) == (
        3,
        "stopped at the engine's max_rounds = 3",
    )
    assert str(file) in part.outcome.text
    assert (kept.run(Toy(), SEVEN, seed=1, resume=True).state.w == first.state.w).all()
    seen: list[tuple[int, float]] = []
    InProcess(secure_sum=SUMS).run(
        Toy(), SEVEN, seed=1, watch=[lambda row, state: seen.append((row["round"], state.w[0]))]
    )
    assert [number for number, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[-1][1] == first.state.w[0]


# ---- who drops out


def check_sums(run: Any, rounds: int) -> None:
    """The last state follows from the sums over those that the run says were in them."""
    algorithm = Whole(max_rounds=rounds)
    state, ask = algorithm.server_start(7)
    for ids in run.active:
        parts = []
        for i in ids:
            block = SEVEN.block(i)
            memory = algorithm.client_start(block)
            parts.append(([i], algorithm.descend(memory, rows(ask.message, [i]), block, None)[1]))
        state, ask = algorithm.average(state, ids, combine(ToyAnswer, parts))
    np.testing.assert_array_equal(run.state.w, state.w)


def test_a_third_may_drop_out_and_the_sums_are_those_of_the_others():
    away = {SEVEN.clients[1]: 9.0, SEVEN.clients[2]: 14.0}
    for n in (5, 7):
        clock = bf.VirtualClock(crashes=away, wait=bf.First(n), secure_sum=SUMS)
        run = clock.run(Whole(), SEVEN, seed=1)
        assert run.rounds == 8
        assert all(len(ids) >= 5 for ids in run.active)
        assert {*run.active[-1]} <= {0, 3, 4, 5, 6}
        assert run.turns.tolist() == [sum(i in ids for ids in run.active) for i in range(7)]
        check_sums(run, 8)


def test_who_was_away_takes_part_again():
    away = {SEVEN.clients[1]: [(9.0, 16.0)]}
    clock = bf.VirtualClock(outages=away, wait=bf.First(6), secure_sum=SUMS)
    run = clock.run(Whole(max_rounds=20), SEVEN, seed=1)
    times = [row["time"] for row in run.history]
    there = [time for time, ids in zip(times, run.active, strict=True) if 1 in ids]
    assert any(time > 16 for time in there)
    assert not any(11 < time < 16 for time in there)
    assert any(11 < time < 16 for time in times)
    assert run.memories[1].seen[0] < 20
    check_sums(run, 20)


def test_an_algorithm_that_needs_all_ends_with_the_reason_when_one_is_lost():
    clock = bf.VirtualClock(crashes={SEVEN.clients[1]: 9.0}, secure_sum=SUMS)
    run = clock.run(Toy(), SEVEN, seed=1)
    assert run.outcome.stop is Stop.STALLED
    assert SEVEN.clients[1] in run.outcome.text
    more = dict.fromkeys(SEVEN.clients[1:4], 9.0)
    lost = bf.VirtualClock(crashes=more, wait=bf.First(7), secure_sum=SUMS).run(Whole(), SEVEN)
    assert lost.outcome.stop is Stop.STALLED  # four of seven open nothing


# ---- what the server sees


@dataclass(frozen=True)
class Overheard(SecureSummed):
    """Keeps all parcels that the server receives, and its states."""

    heard: list[Any] = field(default_factory=list)
    states: list[SumState] = field(default_factory=list)

    @property
    def on_server(self) -> Any:
        steps = dict(super().on_server)

        def step(state: Any, ids: Any, sealed: Any) -> Any:
            for row in sealed.parcel:
                self.heard.append(decode(_bytes_of(row)))
            after = next(iter(steps.values()))(state, ids, sealed)
            self.states.append(after[0])
            return after

        return dict.fromkeys(steps, step)


@dataclass(frozen=True)
class Constant(Voting):
    """Every client answers with the same number many times."""

    number: float = 0.0

    def descend(self, memory: Any, ask: ToyAsk, data: Any, rng: Any) -> Any:
        memory, answer = super().descend(memory, ask, data, rng)
        return memory, replace(answer, gradient=np.full((1, 20_000), self.number))

    def average(self, state: Any, ids: Any, got: ToyAnswer) -> Any:
        assert (got.gradient == len(ids) * self.number).all()
        return super().average(state, ids, replace(got, gradient=got.gradient[:3]))


@pytest.mark.parametrize("number", [0.0, -1.0])
def test_all_that_the_server_gets_is_uniform_whatever_was_handed_in(number):
    away = {SEVEN.clients[1]: 9.0}
    inner = Constant(max_rounds=4, number=number)
    algorithm = Overheard(inner, bf.SecureSum(), 0)
    run = bf.VirtualClock(crashes=away, wait=bf.First(6)).run(algorithm, SEVEN, seed=1)
    assert run.state.rounds == 4
    vectors = [a.masked.vector for *_, a in algorithm.heard if isinstance(a, Hidden)]
    assert len(vectors) >= 4 * 5  # one client crashes, and First(6) may leave one more out
    for vector in vectors:
        counts = np.bincount(vector[:20_000].view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255)
    assert len({vector.tobytes() for vector in vectors}) == len(vectors)
    for state in algorithm.states:
        assert all(h.masked.vector.size == 0 for _, h in state.hidden)


# ---- solutions


def test_solutions_come_out_as_without():
    fed = load.hospitals()
    problem = bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), regulariser=bf.L2(0.1))
    plain = bf.solve(problem, fed, tol=1e-9)
    engine = InProcess(secure_sum=True)
    secure = bf.solve(problem, fed, tol=1e-9, engine=engine)
    np.testing.assert_allclose(secure.w, plain.w, atol=1e-4)  # both within tol of the optimum
    assert secure.outcome.stop is plain.outcome.stop
    assert secure.certificate.relative_gap < 1e-9
    kinds = {row["message"] for row in secure.messages}
    assert {"Enrol", "Enter", "Work", "Open", "Sealed"} <= kinds
    assert not {"Evaluate", "Evaluated"} & kinds
    same = [row["n"] for row in secure.clients] == [row["n"] for row in plain.clients]
    assert same


def test_private_runs_are_charged_alike(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 3)), rng.integers(0, 2, 300)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 100))
    budget = bf.Budget(1.0, 1e-6, sizes=100)
    problem = bf.Problem(bf.Logistic(), privacy=budget)
    for method in (bf.PrivateSGD, bf.PrivateADMM):
        algorithm = method(max_rounds=5, noise="simulation")
        runs = [
            bf.solve(
                replace(problem, privacy=replace(budget, book=tmp_path / f"{k}{method.__name__}")),
                fed,
                algorithm=algorithm,
                engine=InProcess(secure_sum=k, checkpoint=tmp_path / f"run {k}"),
                seed=4,
            )
            for k in (False, True)
        ]
        np.testing.assert_allclose(runs[1].w, runs[0].w, rtol=0, atol=1e-6)
        assert runs[0].ledger.table() == runs[1].ledger.table()
        assert runs[1].rounds == 5


# ---- refusals


def test_what_cannot_be_added_up_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch):
    small = InProcess(secure_sum=bf.SecureSum(step=2.0**-20, bound=1e-3))
    with pytest.raises(ClientError, match=r"ToyAnswer\.gradient cannot be added up.*larger"):
        small.run(Toy(), SEVEN)
    with pytest.raises(SecureSumError, match=r"SecureSum\(fewest=4\)"):
        InProcess(secure_sum=True).run(Toy(), SEVEN)
    with pytest.raises(ValueError, match="leave secure_sum out"):
        InProcess(secure_sum=True).run(Toy(), federation((4,)))
    with pytest.raises(TypeError, match="SecureSum"):
        InProcess(secure_sum="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="power of two"):
        bf.SecureSum(step=0.1)
    with pytest.raises(ValueError, match="keys"):
        bf.SecureSum(keys="seed")
    with pytest.raises(ValueError, match="fewest"):
        InProcess(secure_sum=bf.SecureSum(fewest=1)).run(Toy(), SEVEN)
    monkeypatch.setattr("bonafed.privacy.secure_sum.messages.find_spec", lambda name: None)
    with pytest.raises(ClientError, match=r"\.\[sign\]"):
        InProcess(secure_sum=True).run(Voting(), SEVEN)


def test_only_an_engine_that_goes_on_alone_is_asynchronous():
    assert bf.VirtualClock().asynchronous
    assert not bf.VirtualClock(secure_sum=True).asynchronous
    assert bf.VirtualClock(secure_sum=True).beside_run().secure_sum is True


@pytest.mark.parametrize(("private", "least"), [(False, 5), (True, 6)])
def test_no_key_is_told_for_sums_over_fewer_clients_than_agreed(private, least):
    """Of seven clients five hold a sum open; of a private one no more than one may be missing."""

    class Inner(Voting):
        def quorum(self, asked: int) -> int:
            return asked - 1

    Inner.private = private
    algorithm = SecureSummed(Inner(), replace(SUMS, fewest=None), 0)
    block = SEVEN.block(0)
    memory = algorithm.client_start(block)
    enrol = algorithm.on_client[Enrol]
    for fewest in range(2, 8):
        terms = replace(algorithm.option.terms(7), fewest=fewest)
        if fewest >= least:
            enrol(memory, Enrol(terms), block, lambda _: np.random.default_rng(0))
            continue
        with pytest.raises(SecureSumError, match="nothing was sent"):
            enrol(memory, Enrol(terms), block, lambda _: np.random.default_rng(0))
