"""Over every carrier: what one run is told counts for another one at the same time, processes of a
site answer one after the other, and no text of an error leaves it.
"""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from border.carriers import CARRIERS, FOREIGN, Call, in_process, transport
from border.test_carriers import solved
from border.test_introductions import answer
from sites.folders import COLUMNS, NAMES, PROBLEM, folder_of, roles, rows_of
from sites.helpers import Clock, Patient
from sites.test_party import introduce

import bonafed as bf
from bonafed.algorithms.federated.bundle.bundle import Evaluate
from bonafed.codec import changed
from bonafed.engines.flower import RefusedError as FlowerRefusedError
from bonafed.engines.network import RefusedError
from bonafed.engines.wire import Link, Refused, RunStarted, SilentError, StartRun, Step, Stepped
from bonafed.problem.metadata import Introduced
from bonafed.problem.parts import Parts, stored
from bonafed.rounds import encode
from bonafed.sites import party
from bonafed.sites.audit import AuditLog
from bonafed.sites.people import Answers
from bonafed.sites.session import Agree, Agreed, agree, method_bytes

HINGE = bf.Problem(bf.Hinge(), over_clients=bf.LpBall(0.2), regulariser=bf.L2(1e-2))
JUMPS = "smooth_losses_only = false"
SECRET = "cell 4711"


def neighbours(row: int = 60) -> list[Evaluate]:
    """Two questions of which the answers of "north" differ by one row."""
    table = rows_of("north")
    X, y = np.column_stack([table[c] for c in COLUMNS]), np.where(table["state"] == "ill", -1, 1)
    jumps = np.sort(y - X[:, 0])  # at which intercepts a row's slope jumps
    ends = [(jumps[k] + jumps[k + 1]) / 2 for k in (row - 1, row)]
    return [Evaluate(np.array([1.0, 0.0, 0.0, b]), stored(Parts(1, 1, 0))) for b in ends]


def begun(call: Call, run: str) -> None:
    """Have "north" agree to an experiment of another server, and begin a run."""
    ask, sender = introduce(HINGE, roles()), f"server of {run}"
    facts = answer(call, ask, sender, run)
    assert isinstance(facts, Introduced)
    others = [changed(facts, client=name) for name in NAMES if name != "north"]
    everyone = tuple(sorted((facts, *others), key=lambda each: each.client))
    assert isinstance(answer(call, Agree(ask, everyone), sender, run), Agreed)
    method = np.frombuffer(method_bytes(bf.Bundle()), np.uint8)
    assert isinstance(answer(call, StartRun(run, method, 0, 0), sender, run), RunStarted)


def told(call: Call, run: str, message: Evaluate) -> Any:
    """What the first message of a run is answered."""
    return answer(call, Step(run, 0, message), f"server of {run}", run)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_answer_of_one_run_counts_for_another(carrier: Any, tmp_path: Path):
    folder, (one, other) = folder_of(tmp_path, "north", JUMPS), neighbours()
    with carrier(folder, "north") as call:
        for run in ("a", "b"):
            begun(call, run)
        first = told(call, "a", one)
        assert isinstance(first, Stepped)
        refused = told(call, "b", other)
        assert isinstance(refused, Refused)
        assert refused.rule == "minimum_people"
        assert encode(told(call, "b", one).upload) == encode(first.upload)  # which is known
        assert encode(told(call, "a", one).upload) == encode(first.upload)


@pytest.mark.parametrize("carrier", FOREIGN)
def test_of_two_neighbouring_questions_at_once_one_is_answered(carrier: Any, tmp_path: Path):
    folder, asked = folder_of(tmp_path, "north", JUMPS), neighbours()
    with carrier(folder, "north") as call, ThreadPoolExecutor(2) as both:
        for run in ("a", "b"):
            begun(call, run)
        answers = [*both.map(partial(told, call), ("a", "b"), asked)]
    assert sorted(type(each).__name__ for each in answers) == ["Refused", "Stepped"]


@pytest.mark.parametrize("carrier", FOREIGN)
def test_beside_another_process_a_site_answers_nothing(
    carrier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, (one, other) = folder_of(tmp_path, "north", JUMPS), neighbours()
    monkeypatch.setattr(party, "BUSY", 0.1)
    with carrier(folder, "north") as late:
        with in_process(folder, "north") as early:
            begun(early, "a")
            with pytest.raises(RuntimeError, match="TimeoutError"):
                begun(late, "b")
            assert isinstance(told(early, "a", one), Stepped)
        begun(late, "b")
        assert told(late, "b", other).rule == "minimum_people"


PLACES = {  # in the code of a site
    "the rows": (party.Party, "_rows"),
    "what it tells of them": (party, "introduced"),
    "an agreement": (party.Party, "_read"),
    "an algorithm": (party.Party, "_algorithm"),
    "the rule of few people": (Answers, "refusal"),
    "the state of a run": (party.Party, "_run"),
    "the log": (AuditLog, "write"),
    "the log's beginning": (AuditLog, "open"),
}


@pytest.mark.parametrize("carrier", FOREIGN)
@pytest.mark.parametrize("place", PLACES)
def test_no_text_of_an_error_leaves_a_site(
    place: str, carrier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    passed = list[str]()
    monkeypatch.setattr("bonafed.engines.wire.time", Clock())

    def fail(*given: Any, **named: Any) -> Any:
        raise ValueError(SECRET)

    def heard(call: Call, sender: str, data: bytes) -> bytes:
        try:
            sent = call(sender, data)
        except Exception as error:
            passed.extend(traceback.format_exception(error))
            raise
        passed.append(sent.decode("latin1"))
        return sent

    with ExitStack() as stack:
        calls = {
            name: partial(heard, stack.enter_context(carrier(folder_of(tmp_path, name), name)))
            for name in NAMES
        }
        monkeypatch.setattr(*PLACES[place], fail)
        way = Patient(transport(calls, carrier=carrier))
        with pytest.raises(Exception, match="site") as error:
            solved(agree(way, "trial", PROBLEM, roles=roles().text()))
    passed += traceback.format_exception(error.value)
    assert "ValueError" in "".join(passed) or isinstance(error.value, RefusedError)
    assert SECRET not in "".join(passed)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_between_two_tries_a_server_waits(carrier: Any):
    def fails(sender: str, data: bytes) -> bytes:
        raise FlowerRefusedError(f"\x1b[2J{'x' * 3_000}")

    way, looks = transport(dict.fromkeys(NAMES, fails), carrier=carrier), count()
    poll = way.poll
    way.poll = lambda timeout=None: (next(looks), poll(timeout))[1]
    with pytest.raises(SilentError) as error:
        Link(way, "trial", NAMES, patience=0.5).ask({0: ["anything"]})
    assert next(looks) < 20
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1_300
