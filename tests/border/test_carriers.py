"""The rules of the border hold however bytes reach a site: in this process, over FLARE, over
Flower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from border.carriers import CARRIERS, Call, in_process, sliced, transport
from border.test_liars import NO_NUMBERS, OTHER_ROWS
from liars import LIES, open_liar
from sites.folders import NAMES, OPEN, PROBLEM, folder_of, roles

import bonafed as bf
from bonafed.algorithms.federated.bundle.masked_bundle import MaskedBundle
from bonafed.certificates.duality import Certification
from bonafed.codec import changed
from bonafed.engines import ClientError
from bonafed.engines.endings import ONE_OF, ImpossibleAnswerError
from bonafed.engines.network import Network, RefusedError
from bonafed.engines.secure_summed import hidden_in
from bonafed.engines.wire import Failed, Lost, Refused, RunStarted, Stepped, Unknown
from bonafed.problem.metadata import Introduced
from bonafed.rounds import FIELDS, Stop, decode, encode
from bonafed.sites.party import open_party
from bonafed.sites.session import Agreed, Agreement, agree

CARRIER = pytest.mark.parametrize("carrier", CARRIERS)
Opened = Callable[..., dict[str, Call]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens the sites of a carrier, once more where they are there already; some by others than
    `open_party`.
    """
    with ExitStack() as stack:

        def calls(carrier: Any, policy: str = "", **openers: Any) -> dict[str, Call]:
            stack.pop_all().close()
            for name in NAMES:
                if not (tmp_path / name).exists():
                    folder_of(tmp_path, name, policy)
            return {
                name: stack.enter_context(
                    carrier(tmp_path / name, name, openers.get(name, open_party))
                )
                for name in NAMES
            }

        yield calls


def agreed(
    carrier: Any, calls: dict[str, Call], experiment: str = "trial", problem: Any = PROBLEM
) -> Agreement:
    way = transport(calls, carrier=carrier)
    return agree(way, experiment, problem, roles=roles().text())


def solved(agreement: Agreement, masked: bool = False, **how: Any) -> bf.Solution:
    engine = Network(agreement.session, secure_sum=masked or None)
    return bf.solve(agreement.problem, agreement.metadata, engine=engine, **how)


@CARRIER
def test_a_long_model_and_a_row_more_are_answered_nowhere(carrier: Any, opened: Opened, tmp_path):
    first = solved(agreed(carrier, opened(carrier)))
    assert first.outcome.stop is Stop.OPTIMAL
    long = solved(agreed(carrier, opened(carrier)), start=1e7 * first.w)
    assert long.outcome.stop is Stop.REFUSED
    assert "maximum_model_length" in long.outcome.text
    with (tmp_path / "east" / "rows.csv").open("a") as table:
        table.write("0.5,1.0,2.0,ill,f\n")
    with pytest.raises(RefusedError, match="minimum_people"):
        solved(agreed(carrier, opened(carrier), "another"), start=first.w)


def lied_to(
    carrier: Any, opened: Opened, lie: str, problem: Any = PROBLEM, **how: Any
) -> bf.Solution | None:
    """What a run ends with where "north" lies; None where an error or the outcome names it, or one
    of the sites.
    """
    told = LIES[lie]()
    calls = opened(carrier, OPEN, north=lambda *where: open_liar(*where, told))
    try:
        solution = solved(agreed(carrier, calls, problem=problem), **how)
    except (ImpossibleAnswerError, ClientError) as error:
        if "north" not in str(error) and ONE_OF not in str(error):
            raise
        return None
    impossible = solution.outcome.stop is Stop.IMPOSSIBLE
    named = "north" in solution.outcome.text or ONE_OF in solution.outcome.text
    assert named or not impossible
    return None if impossible else solution


@CARRIER
@pytest.mark.parametrize("lie", LIES)
def test_a_liar_is_named_everywhere_or_answers_as_other_rows_would(
    lie: str, carrier: Any, opened: Opened
):
    solution = lied_to(carrier, opened, lie)
    assert (solution is None) == (lie != OTHER_ROWS)
    assert solution is None or solution.certificate.value > 0


IN_THE_CLEAR = "sign", "1000", "half", "0", *NO_NUMBERS, "1e200"  # lies about a site's mean loss


@pytest.mark.parametrize(("carrier", "lie"), sliced(LIES, ["half"]))
def test_under_masks_a_liar_is_named_by_what_is_in_the_clear_and_never_optimal(
    carrier: Any, lie: str, opened: Opened
):
    """It is called optimal where it answers as other rows would."""
    solution = lied_to(carrier, opened, lie, masked=True, tol=1e-3, max_rounds=15)
    assert solution is None or lie not in IN_THE_CLEAR
    if solution is not None:
        assert (solution.outcome.stop is Stop.OPTIMAL) == (lie == OTHER_ROWS)


@pytest.mark.parametrize("lie", ["sign", "1000", "half", "0"])
def test_a_masked_run_of_a_mean_ends_where_its_sums_are_of_no_rows(lie: str, opened: Opened):
    """Nothing is in the clear before the certificate."""
    mean = replace(PROBLEM, over_clients=bf.Mean())
    assert lied_to(in_process, opened, lie, mean, masked=True) is None


LONG = "\x1b[2J" + 10_000 * "x" + "\nanother line"
ODD: dict[str, tuple[type, Callable[[Any], Any]]] = {  # what stands in the place of an answer
    "a long refusal": (Stepped, lambda body: Refused("minimum_people", LONG)),
    "a refusal of no rule": (Introduced, lambda body: Refused(("a", 1), None)),
    "a long failure": (Stepped, lambda body: Failed(LONG)),
    "a failure without words": (Agreed, lambda body: Failed(np.zeros(3))),
    "a turn that is a text": (Stepped, lambda body: Lost("a", "b")),
    "nothing known": (RunStarted, lambda body: Unknown(LONG)),
    "another turn": (Stepped, lambda body: changed(body, turn=99)),
    "no upload": (Stepped, lambda body: changed(body, upload=None)),
    "another problem": (Agreed, lambda body: changed(body, problem=LONG)),
    "a problem that is a number": (Agreed, lambda body: changed(body, problem=3)),
    "classes that are a number": (Introduced, lambda body: changed(body, labels=5)),
    "classes that are arrays": (Introduced, lambda body: changed(body, labels=(np.ones(2), 1))),
    "features that are numbers": (Introduced, lambda body: changed(body, features=(1, 2, 3))),
    "rows that are a text": (Introduced, lambda body: changed(body, rows="many")),
    "rows without end": (Introduced, lambda body: changed(body, rows=10**400)),
    "a weight that is a text": (Introduced, lambda body: changed(body, weight="a")),
    "another name": (Introduced, lambda body: changed(body, client=LONG)),
    "a number": (object, lambda body: 5),
}


@pytest.mark.parametrize(("carrier", "odd"), sliced(ODD, ["a long failure", "rows without end"]))
def test_odd_answers_end_in_one_line_that_names_the_site(carrier: Any, odd: str, opened: Opened):
    kind, change = ODD[odd]
    calls = opened(carrier)
    honest = calls["north"]

    def answer(sender: str, data: bytes) -> bytes:
        reply = decode(honest(sender, data))
        of_kind = isinstance(reply.body, kind)
        return encode(changed(reply, body=change(reply.body)) if of_kind else reply)

    with pytest.raises((RuntimeError, ValueError, TypeError), match="north") as error:
        solved(agreed(carrier, calls | {"north": answer}), max_rounds=2)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2_000


def heard(call: Call, told: list[Any]) -> Call:
    """The same site, whose answers are listed."""

    def called(sender: str, data: bytes) -> bytes:
        sent = call(sender, data)
        told.append(decode(sent).body)
        return sent

    return called


@CARRIER
def test_masks_carry_the_same_model_everywhere_and_nothing_unannounced(
    carrier: Any, opened: Opened
):
    told: list[Any] = []
    calls = {name: heard(call, told) for name, call in opened(carrier).items()}
    masked = solved(agreed(carrier, calls), masked=True)
    assert masked.outcome.stop is Stop.OPTIMAL
    hidden = [hidden_in(each.upload) for each in told if isinstance(each, Stepped)]
    clear = [one.clear for one in hidden if one is not None]
    fields = {
        f"{type(up).__name__}.{name}": np.shape(value)
        for up in clear
        for name in FIELDS[type(up)]
        if (value := getattr(up, name)) is not None
    }
    announced = {**MaskedBundle.readable, **Certification(np.zeros(1), sums=True).readable}
    assert fields == dict.fromkeys(announced, (1,))
    assert {type(each) for each in told} == {Introduced, Agreed, RunStarted, Stepped}
    plain = solved(agreed(carrier, opened(carrier), "clear"))
    assert masked.certificate.bound <= plain.certificate.value
    assert plain.certificate.bound <= masked.certificate.value
    hinge = bf.Problem(bf.Hinge(), over_clients=bf.Mean(), regulariser=bf.L2(1e-2))
    with pytest.raises((RefusedError, ValueError), match="Logistic"):
        solved(agreed(carrier, opened(carrier), "hinge", hinge), masked=True)
