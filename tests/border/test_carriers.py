"""The rules of the border hold however bytes reach a site: in this process, over FLARE, over
Flower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from border.carriers import CARRIERS, Call, transport
from border.test_liars import on_every_number, telling
from sites.folders import NAMES, OPEN, PROBLEM, folder_of, roles

import quorate as qr
from quorate.engines.network import ImpossibleAnswerError, Network, RefusedError
from quorate.rounds import Stop
from quorate.sites.session import Agreement, agree

CARRIER = pytest.mark.parametrize("carrier", CARRIERS)
Opened = Callable[..., dict[str, Call]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens the sites of a carrier, once more where they are there already."""
    with ExitStack() as stack:

        def calls(carrier: Any, policy: str = "") -> dict[str, Call]:
            stack.pop_all().close()
            for name in NAMES:
                if not (tmp_path / name).exists():
                    folder_of(tmp_path, name, policy)
            return {name: stack.enter_context(carrier(tmp_path / name, name)) for name in NAMES}

        yield calls


def agreed(calls: dict[str, Call], experiment: str = "trial", problem: Any = PROBLEM) -> Agreement:
    return agree(transport(calls), experiment, problem, roles=roles().text(), patience=20.0)


def solved(agreement: Agreement, masked: bool = False, **how: Any) -> qr.Solution:
    engine = Network(agreement.session, secure_sum=masked or None)
    return qr.solve(agreement.problem, agreement.metadata, engine=engine, **how)


@CARRIER
def test_a_long_model_and_a_row_more_are_answered_nowhere(carrier: Any, opened: Opened, tmp_path):
    first = solved(agreed(opened(carrier)))
    assert first.outcome.stop is Stop.OPTIMAL
    long = solved(agreed(opened(carrier)), start=1e7 * first.w)
    assert long.outcome.stop is Stop.REFUSED
    assert "maximum_model_length" in long.outcome.text
    with (tmp_path / "east" / "rows.csv").open("a") as table:
        table.write("0.5,1.0,2.0,ill,f\n")
    with pytest.raises(RefusedError, match="minimum_people"):
        solved(agreed(opened(carrier), "another"), start=first.w)


@CARRIER
def test_a_liar_is_named_everywhere(carrier: Any, opened: Opened):
    calls, turned = opened(carrier, OPEN), on_every_number(np.negative)
    honest = calls["north"]
    calls["north"] = lambda sender, data: telling(lambda each: honest(sender, each), turned)(data)
    with pytest.raises(ImpossibleAnswerError) as lie:
        solved(agreed(calls))
    assert lie.value.site == "north"


@CARRIER
def test_masks_carry_the_same_model_everywhere(carrier: Any, opened: Opened):
    masked = solved(agreed(opened(carrier)), masked=True)
    assert masked.outcome.stop is Stop.OPTIMAL
    clear = solved(agreed(opened(carrier), "clear"))
    assert masked.certificate.bound <= clear.certificate.value
    assert clear.certificate.bound <= masked.certificate.value
    hinge = qr.Problem(qr.Hinge(), over_clients=qr.Mean(), regulariser=qr.L2(1e-2))
    with pytest.raises((RefusedError, ValueError), match="Logistic"):
        solved(agreed(opened(carrier), "hinge", hinge), masked=True)
