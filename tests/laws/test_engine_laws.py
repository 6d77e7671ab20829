"""What every engine mode owes every algorithm in ``examples.ALGORITHMS``."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from wrapped import Disturbed, Guarded, Watched, arrays, everything

from bonafed.engines import ClientError, InProcess, Run
from bonafed.engines.inprocess import MODES
from bonafed.rounds import Stop, combine, join, rows
from examples import ALGORITHMS, Example

MODE = pytest.mark.parametrize("mode", MODES)
SOON = 4  # rounds, where what follows an interruption shows as well as in hundreds
EXAMPLE = pytest.mark.parametrize("example", ALGORITHMS.values(), ids=ALGORITHMS.keys())
# a server that overwrites its state or not, clients with a memory of their own or without
EVERYWHERE = ("toy", "asynchronous toy", "AsyncDRO", "AFL", "ASPIRE", "proximal AL, as printed")


def in_turn(name: str, mode: str) -> int:
    """0, 1 or 2, another one for each mode of an example and for each example in a mode."""
    return (list(ALGORITHMS).index(name) + MODES.index(mode)) % len(MODES)


# What modes owe to interruptions and failures is seen with a few examples in every mode, and what
# examples owe to them with every example in one mode.
SHARED = pytest.mark.parametrize(
    ("example", "mode"),
    [
        pytest.param(example, mode, id=f"{mode}-{name}")
        for mode in MODES
        for name, example in ALGORITHMS.items()
        if name in EVERYWHERE or in_turn(name, mode) == 0
    ],
)


def blocked(mode: str, **options: Any) -> InProcess:
    """Blocks of two, so that there are several and their clients are not in order."""
    return InProcess(mode, block_size=2, **options)


@cache
def whole_run(example: Example, mode: str, max_rounds: int | None = None) -> Run:
    """The run that nothing interrupts; several laws compare with it."""
    return blocked(mode).run(example.algorithm, example.federation, seed=1, max_rounds=max_rounds)


# ---- the same numbers in every mode


def close(one: Any, other: Any) -> None:
    """Every array agrees to 1e-12 of its largest entry; padding of rows in the other does not
    count.
    """
    for a, b in zip(arrays(one), arrays(other), strict=True):
        b = b[tuple(map(slice, a.shape))]
        scale = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12 * scale)


@EXAMPLE
def test_one_client_step_on_the_same_message_agrees_in_blocks(example):
    watched = Watched(example.algorithm)
    InProcess("each").run(watched, example.federation, max_rounds=4)
    compared = 0
    for ask, steps in zip(watched.asked, watched.steps, strict=True):
        for block in example.federation.blocks(3):
            chosen = [p for p, i in enumerate(block.index.tolist()) if i in steps]
            if not chosen:
                continue
            part = block.part(np.array(chosen))
            alone = [steps[i] for i in part.index.tolist()]
            memory = join([before for before, *_ in alone])
            step = example.algorithm.on_client[type(ask.message)]
            streams = [rng for *_, rng in alone]
            new, upload = step(
                memory,
                rows(ask.message, part.index),
                part,
                lambda p, streams=streams: streams[p](0),
            )
            close(join([after for _, after, *_ in alone]), new)
            parts = [([i], steps[i][2]) for i in part.index.tolist()]
            close(combine(type(upload), parts), combine(type(upload), [(part.index, upload)]))
            compared += len(chosen)
    assert compared >= example.federation.n_clients


@EXAMPLE
def test_one_by_one_and_through_bytes_are_bitwise_equal(example):
    assert everything(whole_run(example, "each")) == everything(whole_run(example, "bytes"))


@EXAMPLE
def test_a_blocked_run_ends_where_one_by_one_ends(example):
    each = whole_run(example, "each")
    expected = example.answer(each.state)
    scale = np.abs(expected).max()
    together = InProcess("blocks").run(example.algorithm, example.federation, seed=1)
    for blocks in (whole_run(example, "blocks"), together):  # of two clients, and one of all
        assert each.outcome.stop is blocks.outcome.stop
        np.testing.assert_allclose(
            example.answer(blocks.state), expected, rtol=0, atol=example.tolerance * scale
        )


# ---- resume


@pytest.mark.parametrize("name", ALGORITHMS)
@MODE
def test_resume_equals_no_interruption_bit_for_bit(name, mode, tmp_path):
    example = ALGORITHMS[name]
    whole = whole_run(example, mode)
    # early or late, either in every mode and with every example; after the first round: the tests
    # below
    stop = whole.rounds - 1 if in_turn(name, mode) == 0 else 2
    engine = blocked(mode, checkpoint=tmp_path / f"{stop}.run")
    part = engine.run(example.algorithm, example.federation, seed=1, max_rounds=stop)
    assert (part.rounds, part.outcome.stop) == (stop, Stop.MAX_ROUNDS)
    resumed = engine.run(example.algorithm, example.federation, seed=1, resume=True)
    assert everything(resumed) == everything(whole)
    # of a finished run
    again = engine.run(example.algorithm, example.federation, seed=1, resume=True)
    assert everything(again) == everything(whole)


@pytest.mark.parametrize(
    ("example", "where", "mode"),
    [
        # in "report" clients and server have made their steps of a round that is then dropped
        pytest.param(example, where, mode, id=f"{mode}-{where}-{name}")
        for mode in MODES
        for name, example in ALGORITHMS.items()
        for where in ("client", "server", "report", "watch")
        if name in EVERYWHERE or (where == "report" and in_turn(name, mode) == 0)
    ],
)
def test_ctrl_c_keeps_the_last_finished_round(example, mode, where, tmp_path):
    whole = whole_run(example, mode, max_rounds=SOON)
    engine, algorithm = (
        blocked(mode, checkpoint=tmp_path / "run", every=100),
        Disturbed(example.algorithm, where),
    )
    run = engine.run(algorithm, example.federation, seed=1, watch=[algorithm.watch])
    assert (run.outcome.stop, run.rounds, len(run.history), len(run.active)) == (
        Stop.INTERRUPTED,
        1,
        1,
        1,
    )
    assert "interrupted after round 1; the last finished round is in" in run.outcome.text
    assert run.outcome.text.endswith("resume=True")
    algorithm.healthy = True
    resumed = engine.run(algorithm, example.federation, seed=1, max_rounds=SOON, resume=True)
    assert everything(resumed) == everything(whole)


# ---- failures


@SHARED
def test_a_failing_client_is_named_and_the_run_can_go_on(example, mode, tmp_path):
    whole = whole_run(example, mode, max_rounds=SOON)
    engine, algorithm = blocked(mode, checkpoint=tmp_path / "run"), Disturbed(example.algorithm)
    algorithm.error = ZeroDivisionError("no rows with label 1.")
    algorithm.name = example.federation.clients[whole.active[1][-1]]
    with pytest.raises(
        ClientError, match=r"failed in round 2: ZeroDivisionError: no rows with label 1\. Mend or"
    ) as caught:
        engine.run(algorithm, example.federation, seed=1, watch=[algorithm.watch])
    assert (caught.value.clients, caught.value.round) == ((algorithm.name,), 2)
    assert f"client {algorithm.name} " in str(caught.value)
    algorithm.healthy = True
    resumed = engine.run(algorithm, example.federation, seed=1, max_rounds=SOON, resume=True)
    assert everything(resumed) == everything(whole)


# ---- purity


@SHARED
def test_a_rerun_mutates_no_input_and_is_the_same_bit_for_bit(example, mode):
    data = example.federation.digests()
    assert everything(
        blocked(mode).run(Guarded(example.algorithm), example.federation, seed=1)
    ) == everything(whole_run(example, mode))
    assert example.federation.digests() == data
