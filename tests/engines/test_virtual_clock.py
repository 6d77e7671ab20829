"""Simulated time against schedules worked out by hand: who answers when, who is waited for, who
never comes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from toy import AsyncToy, Toy, federation

from bonafed.engines import InProcess, VirtualClock
from bonafed.engines.delays import CHUNK, Adaptive, Constant, First, LogNormal, Stale, Trace, Trips
from bonafed.rounds import Stop, encode

NAMES = ("site a0", "site b1", "site c2")
A, B, C = NAMES
FED = federation((4, 9, 3))
STEADY = Trace({A: [1.0], B: [2.5], C: [4.0]})  # everybody always takes the same time


def events(run: Any) -> list[tuple[float, tuple[str, ...]]]:
    """For each round its time and the clients that answered, in the order of arrival."""
    starts = [0, *run.log.ends[:-1].tolist()]
    ids = [
        run.log.answered[a:b].tolist() for a, b in zip(starts, run.log.ends.tolist(), strict=True)
    ]
    return [
        (row["time"], tuple(NAMES[i][5] for i in who))
        for row, who in zip(run.history, ids, strict=True)
    ]


def run(rounds: int, **options: Any) -> Any:
    return VirtualClock(**{"delays": STEADY} | options).run(AsyncToy(max_rounds=rounds), FED)


# ---- who answers when


def test_the_first_to_answer_goes_on_alone_and_ties_go_by_message():
    got = run(9)
    assert events(got) == [
        (4.0, ("a", "b", "c")),  # the first round waits for all
        (5.0, ("a",)),
        (6.0, ("a",)),
        (6.5, ("b",)),  # asked at 4
        (7.0, ("a",)),
        (8.0, ("c",)),  # asked at 4, before a was at 7
        (8.0, ("a",)),
        (9.0, ("b",)),  # asked at 6.5, before a was at 8
        (9.0, ("a",)),
    ]
    assert [row["staleness"] for row in got.history] == [0, 0, 0, 2, 1, 4, 1, 3, 1]
    assert [row["answered"] for row in got.history] == [3] + [1] * 8
    assert got.log.times.tolist()[:4] == [1.0, 2.5, 4.0, 5.0]
    assert got.active[3] == (1,)
    assert list(got.active) == [(0, 1, 2), (0,), (0,), (1,), (0,), (2,), (0,), (1,), (0,)]


def test_a_synchronous_algorithm_waits_for_the_slowest_of_those_it_asks():
    got = VirtualClock(STEADY, wait=First(1), stragglers={B: 2.0}).run(Toy(max_rounds=4), FED)
    # every second round asks only a and c
    assert [row["time"] for row in got.history] == [5.0, 10.0, 14.0, 19.0]
    assert events(got)[2] == (14.0, ("a", "c"))


def test_two_at_a_time():
    assert events(run(5, wait=First(2))) == [
        (4.0, ("a", "b", "c")),
        (6.5, ("a", "b")),
        (8.0, ("a", "c")),  # a, asked at 6.5, is back at 7.5
        (9.0, ("b", "a")),  # b from 6.5, a from 8
        (11.5, ("a", "b")),
    ]


def test_nobody_is_older_than_tau():
    free, bound = run(40, wait=First(1)), run(40, wait=Stale(1, 3))
    assert max(row["staleness"] for row in free.history) > 3
    assert max(row["staleness"] for row in bound.history) == 3
    assert events(bound)[:5] == [
        (4.0, ("a", "b", "c")),
        (5.0, ("a",)),
        (6.0, ("a",)),
        (6.5, ("b",)),
        (8.0, ("a", "c")),  # c was asked after round 1: in round 5 it would be older than 3 rounds
    ]
    assert all(len(who) == 3 for _, who in events(run(5, wait=Stale(1, 0))))


def test_adaptive_waits_for_all_until_somebody_is_slow():
    trips = {A: [1.0], B: [1.0], C: [1.0, 1.0, 1.0, 9.0, 1.0]}  # c is slow once
    got = run(9, delays=Trace(trips), wait=Adaptive(1))
    assert events(got)[:6] == [
        (1.0, ("a", "b", "c")),
        (2.0, ("a", "b", "c")),
        (3.0, ("a", "b", "c")),
        (12.0, ("a", "b", "c")),  # that c is slow is known when it answers
        (13.0, ("a",)),  # 9 > 2 x the median of 1, 1, 9
        (13.0, ("b",)),
    ]
    assert events(got)[6:8] == [(13.0, ("c",)), (14.0, ("a", "b", "c"))]
    printed = run(5, delays=Trace(trips), wait=Adaptive(1, as_printed=True))
    assert [len(who) for _, who in events(printed)] == [3, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("rule", "slow"),
    [
        (Adaptive(1), True),  # 4 > 2 x median 1
        (Adaptive(1, factor=5.0), False),
        (Adaptive(1, factor=2.0, centre="mean"), False),  # 4 <= 2 x mean 2
        (Adaptive(1, factor=1.9, centre="mean"), True),
        (Adaptive(1, threshold=4.0), False),
        (Adaptive(1, threshold=3.9), True),
    ],
)
def test_thresholds_of_adaptive(rule, slow):
    got = run(2, delays=Trace({A: [1.0], B: [1.0], C: [4.0]}), wait=rule)
    assert (len(got.active[1]) == 1) is slow


# ---- stragglers, gradients, outages, crashes


def test_delays_grow_with_gradients_and_factors():
    got = run(4, delays=Constant(1.0, per_gradient=0.5), stragglers={B: 2.0, C: 3.0}, wait=First(3))
    # AsyncToy asks for one gradient in rounds 1, 2, 3 and for two in round 4: c takes 3 (1 + 0.5),
    # then 3 (1 + 1)
    assert [row["time"] for row in got.history] == [4.5, 9.0, 13.5, 19.5]


def test_work_pauses_while_a_client_is_out_of_reach():
    away = {A: [(0.5, 10.0)], B: [(4.5, 5.0), (5.5, 6.0)], C: [(3.0, 4.0)]}
    got = run(4, outages=away)
    # a: 0.5 of work, away till 10, 0.5 left; c: 3 of work, one away, one left; b is done at 2.5
    assert sorted(got.log.times[:3].tolist()) == [2.5, 5.0, 10.5]
    late = run(5, outages={B: [(4.5, 5.0), (5.5, 6.0)], A: [(5.0, 100.0)]})
    # from 4: a at 5, when it leaves, is done in time; b works 4-4.5, 5-5.5 and from 6 on 1.5 more
    assert events(late) == [
        (4.0, ("a", "b", "c")),
        (5.0, ("a",)),
        (7.5, ("b",)),
        (8.0, ("c",)),
        (10.0, ("b",)),
    ]


def test_who_crashed_is_not_waited_for_by_those_who_need_not():
    got = run(6, crashes={A: 6.5})
    assert events(got)[1:] == [
        (5.0, ("a",)),
        (6.0, ("a",)),
        (6.5, ("b",)),
        (8.0, ("c",)),
        (9.0, ("b",)),
    ]
    assert got.log.crashed == ((A, 6.5),)
    assert [len(who) for _, who in events(run(6, crashes={A: 6.5}, wait=First(3)))][3:] == [2, 2, 2]


@pytest.mark.parametrize(
    ("options", "rounds", "text"),
    [
        (
            {"crashes": {A: 4.5, B: 5.0, C: 6.0}},
            1,
            rf"stalled at 4 .*the algorithm needs .*\({A}, {B}, {C}\)",
        ),
        (
            {"crashes": {B: 2.0}},
            0,
            rf"stalled at 0 .*the algorithm needs answers of clients that crashed \({B}\)",
        ),
        (
            {"crashes": {C: 5.0}, "wait": Stale(1, 3)},
            4,
            rf"Stale\(n=1, tau=3\) waits for .*\({C}\)",
        ),
    ],
)
def test_a_run_that_waits_for_the_crashed_says_so(options, rounds, text, tmp_path):
    got = run(50, **options)
    assert (got.outcome.stop, got.rounds) == (Stop.STALLED, rounds)
    assert re.search(text, got.outcome.text)
    kept = run(50, **options, checkpoint=tmp_path / "run")
    engine = VirtualClock(STEADY, checkpoint=tmp_path / "run", **options)
    again = engine.run(AsyncToy(max_rounds=50), FED, resume=True)
    assert encode((again.state, again.outcome, tuple(again.history))) == encode(
        (kept.state, kept.outcome, tuple(kept.history))
    )


def test_max_time_ends_before_the_first_round_that_is_later(tmp_path):
    whole = run(20)
    for limit, rounds in ((3.9, 0), (4.0, 1), (6.49, 3), (6.5, 4), (8.0, 7)):
        part = run(20, max_time=limit, checkpoint=tmp_path / "run")
        assert (part.rounds, part.outcome.stop) == (rounds, Stop.MAX_ROUNDS)
        assert part.outcome.text.startswith(
            f"stopped at the engine's max_time = {limit:g} virtual seconds"
        )
        rest = VirtualClock(STEADY, checkpoint=tmp_path / "run").run(
            AsyncToy(max_rounds=20), FED, resume=True
        )
        assert encode((rest.state, rest.log, tuple(rest.history))) == encode(
            (whole.state, whole.log, tuple(whole.history))
        )


# ---- models of delays


def drawn(model: Any, client: str = A, trips: int = 200, seed: int = 0) -> np.ndarray:
    source = Trips(model, seed, (client,), {})
    return np.concatenate([source.next(np.array([0]), 1.0) for _ in range(trips)])


def test_lognormal_delays_have_the_stated_law():
    own = np.concatenate([drawn(LogNormal(0.3, 0.0, 0.0), f"c{i}") for i in range(100)])
    assert abs(np.log(own).mean()) < 4 * 0.3 / math.sqrt(own.size)
    assert abs(np.log(own).std() - 0.3) < 4 * 0.3 / math.sqrt(2 * own.size)
    scales = np.array(
        [drawn(LogNormal(0.0, 0.5, 0.0, unit=3.0), f"c{i}", 1)[0] for i in range(2000)]
    )
    assert abs(np.log(scales / 3.0).mean()) < 4 * 0.5 / math.sqrt(2000)
    assert abs(np.log(scales).std() - 0.5) < 4 * 0.5 / math.sqrt(4000)
    assert np.allclose(
        drawn(LogNormal(0.3, 0.3, 0.1)) - drawn(LogNormal(0.3, 0.3, 0.0)),
        0.1 * drawn(LogNormal(0.0, 0.3, 0.0)),
    )
    assert np.unique(drawn(LogNormal(), trips=5 * CHUNK)).size == 5 * CHUNK


def test_a_trace_is_read_from_names_rows_and_files_and_starts_again(tmp_path):
    assert drawn(Trace({A: [1, 2, 3]}), trips=200).tolist() == ([1.0, 2.0, 3.0] * 67)[:200]
    assert drawn(Trace(np.array([[1.0, 2.0]]), per_gradient=0.5), trips=3).tolist() == [
        1.5,
        2.5,
        1.5,
    ]
    path = tmp_path / "delays.csv"
    path.write_text(f"client,delay\n{A},1\n{B},2.5\n{A},3e0\n{C},4\n", encoding="utf-8")
    got = VirtualClock(Trace(path)).run(AsyncToy(max_rounds=3), FED)
    assert events(got) == [(4.0, ("a", "b", "c")), (6.5, ("b",)), (7.0, ("a",))]


@pytest.mark.parametrize("bad", [[], [-1.0], [math.nan], ["soon"], [[1.0]], [math.inf], None])
def test_a_trace_without_delays_is_refused(bad):
    with pytest.raises(ValueError, match=r"recorded.*(one or more finite delays >= 0|numbers)"):
        Trace({A: bad})


def test_other_traces_are_refused(tmp_path):
    path = tmp_path / "delays.csv"
    path.write_text("name,delay\na,1\n")
    with pytest.raises(
        ValueError, match=r"delays\.csv needs the columns client and delay, got name, delay"
    ):
        Trace(path)
    with pytest.raises(ValueError, match=f"trace has no delays of client {C}"):
        VirtualClock(Trace({A: [1.0], B: [1.0]})).run(AsyncToy(), FED)


# ---- settings


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"stragglers": {"d": 2.0}}, ValueError, "stragglers names 'd', who is not a client"),
        ({"outages": {"d": [(0, 1)]}}, ValueError, "outages names 'd'"),
        ({"crashes": {"d": 1.0}}, ValueError, "crashes names 'd'"),
        ({"stragglers": {A: 0.0}}, ValueError, "must be a finite factor > 0, got 0.0"),
        ({"stragglers": {A: True}}, ValueError, "got True"),
        ({"stragglers": {A: math.nan}}, ValueError, "got nan"),
        ({"crashes": {A: "later"}}, ValueError, "must be a time in virtual seconds, got 'later'"),
        ({"crashes": {A: math.nan}}, ValueError, "must be a time"),
        ({"outages": {A: [(2.0, 1.0)]}}, ValueError, r"pairs \(from, to\) of finite times"),
        (
            {"outages": {A: [(1.0, 3.0), (2.0, 4.0)]}},
            ValueError,
            r"in order and apart, got \(2.0, 4.0\)",
        ),
        (
            {"outages": {A: [(1.0, math.inf)]}},
            ValueError,
            "Who never comes back belongs in crashes",
        ),
        ({"outages": {A: [(1.0, 2.0, 3.0)]}}, ValueError, "must be pairs"),
        ({"outages": {A: 3.0}}, ValueError, "must be pairs"),
        ({"max_time": -1.0}, ValueError, "max_time must be >= 0"),
        ({"max_time": math.nan}, ValueError, "max_time must be >= 0"),
        ({"block_size": 0}, ValueError, "block_size must be a whole number >= 1, got 0"),
        ({"keep_rows": True}, ValueError, "keep_rows must be a whole number >= 1, got True"),
        ({"every": 1.5}, ValueError, "every must be"),
        ({"wait": 10}, TypeError, r"wait must be such as First\(10\), got 10"),
        ({"wait": First}, TypeError, "wait must be a value"),
        ({"delays": 1.0}, TypeError, r"delays must be such as LogNormal\(\), got 1.0"),
    ],
)
def test_settings_are_checked(options, error, text):
    with pytest.raises(error, match=text):
        VirtualClock(**{"delays": STEADY} | options).run(AsyncToy(), FED)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: First(0), "n must be a whole number >= 1, got 0"),
        (lambda: First(2.5), "got 2.5"),  # pyright: ignore
        (lambda: First(math.nan), "n must be"),  # pyright: ignore
        (lambda: First("2"), "got '2'"),  # pyright: ignore
        (lambda: Stale(1, -1), "tau must be a whole number >= 0, got -1"),
        (lambda: Adaptive(factor=0.0), "factor must be > 0, got 0.0"),
        (lambda: Adaptive(threshold=-1.0), "threshold must be > 0"),
        (lambda: Adaptive(centre="mode"), "centre must be 'median' or 'mean'"),
        (lambda: LogNormal(sigma=-0.1), "sigma must be a finite number >= 0"),
        (lambda: LogNormal(unit=math.nan), "unit must be"),
        (lambda: LogNormal(client_sigma="x"), "client_sigma must be"),  # pyright: ignore
        (lambda: Constant(math.inf), "seconds must be a finite number >= 0, got inf"),
        (lambda: Constant(1.0, True), "per_gradient must be a finite number >= 0, got True"),
        (lambda: Trace({}, per_gradient=-1.0), "per_gradient must be"),
    ],
)
def test_rules_and_delays_are_checked(make, text):
    with pytest.raises(ValueError, match=text):
        make()


# ---- one's own rule and delays


@dataclass(frozen=True)
class Waits:
    """The first to answer and the client ``whom``, whenever it is asked."""

    whom: int

    def need(self, view: Any) -> Any:
        flying: Sequence[int] = np.flatnonzero(view.sent >= 0)
        return 1, np.array([i for i in flying if i == self.whom], np.intp)


@dataclass(frozen=True)
class Growing:
    """Every trip takes longer than the one before."""

    per_gradient: float = 0.0

    def scale(self, seed: int, client: str, n: int) -> float:
        return 1.0 + n

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Any:
        return 1.0 + chunk * CHUNK + np.arange(CHUNK)


def test_rules_and_delays_of_ones_own():
    got = run(3, wait=Waits(2))
    assert events(got)[1:] == [(8.0, ("a", "b", "c")), (12.0, ("a", "b", "c"))]
    assert [t for t, _ in events(run(3, delays=Growing(), wait=First(3)))] == [3.0, 9.0, 18.0]


def test_time_is_the_clocks_alone():
    """The same numbers as without a clock, however long the machine takes."""
    one, other = (VirtualClock(LogNormal(unit=unit)).run(Toy(), FED) for unit in (1.0, 1000.0))
    assert encode(one.state) == encode(other.state)
    assert np.isclose(other.history[-1]["time"], 1000.0 * one.history[-1]["time"], rtol=1e-12)
    assert np.allclose(one.state.w, InProcess("each").run(Toy(), FED).state.w, rtol=0, atol=1e-14)
