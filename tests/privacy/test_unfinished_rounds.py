"""A private run that ends within a round is charged for it: some may have answered already.

The answers that leave the sites are counted at the transport, and the ledger never states fewer.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from charged import FED, Place, T, at, federation
from sites.helpers import parties

import bonafed as bf
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.algorithms.federated.private_sgd import Blur
from bonafed.engines import loop
from bonafed.engines.engine import ClientError
from bonafed.engines.inprocess import VirtualClock
from bonafed.engines.loop import Interrupts
from bonafed.engines.network import Network
from bonafed.engines.secure_summed import Open, SecureSummed, Work
from bonafed.engines.wire import LocalTransport, SilentError, Step, Stepped
from bonafed.privacy import odometer
from bonafed.privacy.ledger import Book
from bonafed.rounds import Conclude, Stop, decode
from bonafed.sites.session import agree

ROUNDS, NAMES, PATIENCE = 3, FED.names, 120.0
SIZES = dict.fromkeys(NAMES, 10)


def answers(solution: bf.Solution) -> dict[str, int]:
    """How many answers of each client the ledger has."""
    assert solution.ledger is not None
    return {str(c): sum(r.count for r in own) for c, own in solution.ledger.releases.items()}


def counts(solution: bf.Solution) -> set[int]:
    return {*answers(solution).values()}


@dataclass
class Sites:
    """Sites whose answers are counted; ``ends`` is where the run ends: a site is asked this, as so
    many times before, when all others have answered.
    """

    folder: Path
    secure: bool = False
    book: Path | None = None
    how: str = "stall"
    ends: tuple[str, type, int] | None = None
    gave: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in NAMES})
    answered: set[tuple[str, int]] = field(default_factory=set)
    open: list[Interrupts] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parties = parties(FED, self.folder)
        budget = bf.Budget(1.0, 1e-6, sizes=SIZES)
        problem = bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), privacy=budget)
        calls = {name: lambda data, name=name: self.call(name, data) for name in NAMES}
        self.agreement = agree(LocalTransport(calls), "experiment", problem, patience=PATIENCE)
        self.link = self.agreement.session.link
        self.inner, self.link.take = self.link.take, self.take  # type: ignore[method-assign]

    def take(self, timeout: float) -> list[tuple[int, Any]]:
        taken = self.inner(timeout)
        if any(isinstance(body, SilentError) for _, body in taken):
            self.link.patience = PATIENCE  # it comes back
        return taken

    def call(self, name: str, data: bytes) -> bytes:
        body = decode(data).body
        if isinstance(body, Step) and self._ends(name, body):
            others = {(other, body.turn) for other in NAMES if other != name}
            until = time.monotonic() + PATIENCE
            while not others <= self.answered and time.monotonic() < until:
                time.sleep(0.001)
            self.ends = None
            if self.how == "stall":
                self.link.patience = 0.0
            else:
                self.open[-1].pending = True
            raise ConnectionError("no route")
        reply = self.parties[name].answer("server", data)
        if isinstance(body, Step) and isinstance(decode(reply).body, Stepped):
            self._count(name, body)
        return reply

    def _ends(self, name: str, step: Step) -> bool:
        if self.ends is None or (name, type(step.message)) != self.ends[:2]:
            return False
        before = sum(1 for other, turn in self.answered if other == name and turn < step.turn)
        # keys and shares come before the first sum, and every round takes two questions
        return (max(before - 2, 0) // 2 if self.secure else before) == self.ends[2]

    def _count(self, name: str, step: Step) -> None:
        self.answered.add((name, step.turn))
        if isinstance(step.message, Work):
            self.gave[name].add(step.message.turn)
        elif not self.secure and not isinstance(step.message, Conclude):
            self.gave[name].add(step.turn)

    def solve(self, checkpoint: str | None = None, **options: Any) -> bf.Solution:
        stated = self.agreement.problem
        assert stated.privacy is not None
        stated = replace(stated, privacy=replace(stated.privacy, book=self.book))
        path = None if checkpoint is None else self.folder / checkpoint
        engine = Network(self.agreement.session, checkpoint=path, secure_sum=self.secure or None)
        algorithm, data = bf.PrivateSGD(max_rounds=ROUNDS), self.agreement.metadata
        return bf.solve(stated, data, algorithm=algorithm, engine=engine, **options)

    def charged(self, solution: bf.Solution) -> set[int]:
        """How many answers are charged, which is not less than any site gave."""
        told = answers(solution)
        assert all(told[name] >= len(self.gave[name]) for name in NAMES)
        if self.book is not None:
            (run,) = Book(self.book).runs()
            assert {c: sum(r[2] for r in own) for c, own in run["releases"].items()} == told
        return set(told.values())


@pytest.fixture
def interrupts(monkeypatch):
    """Those of the runs, to press Ctrl-C."""
    made: list[Interrupts] = []

    class Known(Interrupts):
        def __init__(self, always: bool) -> None:
            super().__init__(always)
            made.append(self)

    monkeypatch.setattr(loop, "Interrupts", Known)
    return made


KINDS = {"plain": Blur, "masked": Work, "opened": Open}


@pytest.mark.parametrize("how", ["stall", "interrupt"])
@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_round_that_was_begun_at_sites_is_charged(tmp_path, interrupts, what, how, round_):
    for site, book in itertools.product(NAMES, (None, "book.json")):
        folder = tmp_path / f"{site} {book}"
        sites = Sites(folder, what != "plain", book and tmp_path / f"{site}.json", how)
        sites.open, sites.ends = interrupts, (site, KINDS[what], round_)
        solution = sites.solve()
        end = Stop.STALLED if how == "stall" else Stop.INTERRUPTED
        assert (solution.outcome.stop, solution.rounds) == (end, round_)
        assert max(map(len, sites.gave.values())) == round_ + 1
        assert sites.charged(solution) == {round_ + 1}


@pytest.mark.parametrize("how", ["stall", "interrupt"])
@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("book", ["book.json", None])
def test_a_question_that_is_asked_again_is_charged_once(tmp_path, interrupts, what, how, book):
    sites = Sites(tmp_path / "sites", what != "plain", book and tmp_path / book, how)
    sites.open = interrupts
    for site, round_ in ((NAMES[0], 1), (NAMES[1], 1), (NAMES[2], 2)):
        sites.ends = site, KINDS[what], round_
        part = sites.solve("server", resume=site != NAMES[0])
        assert (part.rounds, sites.charged(part)) == (round_, {round_ + 1})
    whole = sites.solve("server", resume=True)
    assert (whole.rounds, sites.charged(whole)) == (ROUNDS, {ROUNDS})
    assert {len(turns) for turns in sites.gave.values()} == {ROUNDS}


def interrupted_in(monkeypatch, owner: Any, step: str, call: int) -> None:
    """Ctrl-C in a function, when it has been called so many times before."""
    real, calls = getattr(owner, step), itertools.count()

    def stepped(*given: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(owner, step, stepped)


@pytest.mark.parametrize("book", ["book.json", None])
@pytest.mark.parametrize("call", range(3 * 2))
def test_in_one_process_a_round_that_was_begun_is_charged(tmp_path, monkeypatch, book, call):
    place, finished = Place(tmp_path, book=book), call // 3
    with monkeypatch.context() as patched:
        interrupted_in(patched, PrivateADMM, "perturb", call)
        part = place.solve()
    assert (part.outcome.stop, part.rounds) == (Stop.INTERRUPTED, finished)
    assert counts(part) == {finished + 1}
    with monkeypatch.context() as patched:  # again before anybody is asked
        interrupted_in(patched, loop.Loop, "_round", 0)
        again = place.solve(resume=True)
    assert (again.rounds, counts(again)) == (finished, {finished + 1})
    assert counts(place.solve(resume=True)) == {T}
    if book:
        assert place.counts() == [T]


@pytest.mark.parametrize(("step", "call"), [*itertools.product(("_work", "_open"), (0, 2, 4))])
@pytest.mark.parametrize("engine", [bf.InProcess, VirtualClock])
def test_a_secure_sum_that_was_begun_is_charged(tmp_path, monkeypatch, engine, step, call):
    place = Place(tmp_path, engine=engine(secure_sum=True))
    with monkeypatch.context() as patched:
        interrupted_in(patched, SecureSummed, step, call)
        part = place.solve(view="sum")
    assert (part.rounds, place.counts()) == (call // 3, [call // 3 + 1])
    assert counts(part) == {call // 3 + 1}
    assert counts(place.solve(view="sum", resume=True)) == {T}


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_no_opened_sum_is_missing_in_a_ledger(tmp_path, monkeypatch, missing):
    """Clients that crash on a simulated clock stall the run in any of its messages."""
    names, opened = "abcdef", {}
    fed, real = federation(0, names), SecureSummed._open

    def opening(self, memory, ask, *given):
        for i in ask.stayed.tolist() if self.inner.private else ():  # not of a certificate
            opened.setdefault(names[i], set()).add(ask.number)
        return real(self, memory, ask, *given)

    monkeypatch.setattr(SecureSummed, "_open", opening)
    stalled = 0
    for when in np.arange(2.5, 12, 0.75):
        opened.clear()
        crashes = dict.fromkeys(names[: missing + 1], float(when))
        engine: Any = VirtualClock(secure_sum=True, crashes=crashes, wait=bf.First(1))
        place = Place(tmp_path, engine=engine, book=None)
        options = {"view": "sum", "missing": missing, "fed": fed, "noise": "simulation"}
        solution = place.solve(checkpoint=None, **options)
        told = answers(solution)
        stalled += solution.outcome.stop is Stop.STALLED
        assert all(told[name] >= len(rounds) for name, rounds in opened.items())
        assert max(told.values()) <= min(solution.rounds + 1, T)
    assert stalled


@pytest.mark.parametrize("ends", [{"crashes": {"c": 7.0}}, {"max_time": 7.0}])
def test_on_a_simulated_clock_a_round_that_was_begun_is_charged(tmp_path, ends):
    engine: Any = VirtualClock(secure_sum=True, **ends)
    part = Place(tmp_path, engine=engine).solve(view="sum")
    assert 0 < part.rounds < T
    assert counts(part) == {part.rounds + 1}


def test_a_run_that_goes_on_and_fails_at_once_counts_in_full_in_its_process(tmp_path, monkeypatch):
    odometer.forget()
    place = Place(tmp_path, book=None)
    place.solve(noise="secure", watch=at(3))
    monkeypatch.setattr(PrivateADMM, "perturb", lambda *_: 1 / 0)
    with pytest.raises(ClientError):
        place.solve(noise="secure", resume=True)
    spent = {c.releases[0].count for each in odometer._counts.values() for c in each}
    assert spent == {T}
    odometer.forget()
