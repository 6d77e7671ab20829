"""Checkpoints with valid digests and values that no run can have are refused before anything is
resumed.

What is finite, of the right shape and consistent with the rest cannot be told from the truth, and
neither can the reported numbers in the rows of a history.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import numpy as np
import pytest
from fuzz.records import MUTATIONS, at, leaves, put
from typing_extensions import TypeAliasType

from bonafed.codec import FIELDS, Form
from bonafed.engines import CheckpointError, InProcess, VirtualClock
from bonafed.engines.checkpoint import ClientsCheckpoint, Generation, PartedFile
from bonafed.engines.checkpoint_schema import Fields
from bonafed.engines.delays import First
from bonafed.engines.run_record import Log, Sets
from bonafed.rounds import decode, encode
from examples import ALGORITHMS

SOME = (
    "toy",
    "asynchronous toy",
    "bundle",
    "AsyncDRO, many classes",
    "multiplier method",
    "interior point, all together",
    "proximal AL, all together",
    "ASPIRE",
    "private ADMM",
    "LSVRG",
    "rank ADMM",
    "row multipliers, ranked",
)
CASES = 12  # for each of them and each engine
REPORTED = ("round", "seconds", "time", "bytes_up", "bytes_down", "answered", "staleness")


def engine(name: str, path: Any, clock: bool) -> Any:
    if not clock:
        return InProcess(checkpoint=path, every=10**6, block_size=2)
    slow = {ALGORITHMS[name].federation.clients[0]: 10.0}
    return VirtualClock(checkpoint=path, every=10**6, block_size=3, wait=First(2), stragglers=slow)


def run(name: str, path: Any, clock: bool, rounds: int, resume: bool = True) -> Any:
    example = ALGORITHMS[name]
    return engine(name, path, clock).run(
        example.algorithm, example.federation, seed=1, max_rounds=rounds, resume=resume
    )


@cache
def kept(name: str, clock: bool, folder: Any) -> Any:
    """The checkpoint of a run after its second round, decoded."""
    path = folder / f"{name}.{clock}"
    run(name, path, clock, 2, resume=False)
    record = decode(path.read_bytes())
    return PartedFile(path).joined(record) if record.mark else record


def write(path: Any, record: Any) -> None:
    """Write a checkpoint, that of a private run as two files."""
    if isinstance(record.mark, str) and record.mark:
        generation = Generation(record.round, record.memories)
        parted = PartedFile(path)
        parted.clients.write_bytes(encode(ClientsCheckpoint(record.mark, (generation,))))
        record = replace(record, memories=())
    path.write_bytes(encode(record))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


def outside(run: Any) -> tuple[bytes, str]:
    """All of a run but its wall times."""
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in run.history]
    all_else = (run.state, run.outcome, tuple(run.messages), tuple(run.active), run.memories)
    return encode((*all_else, run.exchanged, run.log)), repr(rows)


def form_of(record: Any, path: tuple[Any, ...]) -> Form:
    """The form of the field at the end of a way, or of the tuple that the value stands in."""
    form = Form()
    for k, key in enumerate(path):
        owner = at(record, path[:k])
        if type(owner) in FIELDS:
            hint, form = get_type_hints(type(owner), include_extras=True)[key], Form()
            waiting = [hint]
            while waiting:
                part = waiting.pop()
                waiting += get_args(part) if not isinstance(part, Form) else ()
                form = part if isinstance(part, Form) else form
    return form


def tellable(record: Any, path: tuple[Any, ...], sort: str) -> bool:
    """Whether such a value can be told from a true one."""
    form = form_of(record, path)
    if "history" in path and path[-1] not in REPORTED:
        return False
    if path[-1] == "seconds" and sort == "kind":
        return False  # times of the machine in fewer digits
    if sort == "beyond":
        return bool(form.most or form.below or form.rounds is not None)
    return not (
        (sort == "infinite" and form.infinite)
        or (sort == "nan" and form.nan)
        or (sort == "negative" and form.least < 0)
    )


@pytest.mark.parametrize("clock", [False, True])
@pytest.mark.parametrize("name", SOME)
def test_an_impossible_value_is_refused_or_changes_nothing(name, clock, folder, tmp_path):
    record, path = kept(name, clock, folder), tmp_path / "run"
    write(path, record)
    true = outside(run(name, path, clock, 4))
    rng = np.random.default_rng([SOME.index(name), clock])
    ways, faults = list(leaves(record)), list[str]()
    while len(faults) < CASES:
        way, value = ways[rng.integers(len(ways))]
        sort = list(MUTATIONS)[rng.integers(len(MUTATIONS))]
        new = MUTATIONS[sort](value, rng)
        if new is None or not tellable(record, way, sort):
            continue
        write(path, put(record, way, new))
        faults.append(fault_of(name, path, clock) or "")
        if not faults[-1]:
            assert outside(run(name, path, clock, 4)) == true, f"{way} with {sort} was accepted"
    told = list(filter(None, faults))
    assert len(told) > CASES / 2
    assert all("the checkpoint " in text and "esume" in text for text in told)
    assert not any("\n" in text for text in told)


def fault_of(name: str, path: Any, clock: bool) -> str | None:
    """What is said where a checkpoint is refused; None where it is resumed."""
    try:
        run(name, path, clock, 0)
    except CheckpointError as error:
        return str(error)
    return None


def without(memories: Any) -> Any:
    (ids, memory), *others = memories
    return (ids[:-1], memory), *others


RELATIONS: dict[str, Any] = {
    "other round": lambda kept: {"round": kept.round + 1},
    "no rounds": lambda kept: {"round": 0},
    "negative round": lambda kept: {"round": -1},
    "dropped memory": lambda kept: {"memories": kept.memories[1:]},
    "fewer clients than rows": lambda kept: {"memories": without(kept.memories)},
    "client twice": lambda kept: {"memories": (*kept.memories, kept.memories[0])},
    "unknown client": lambda kept: {
        "memories": tuple((ids + 99, memory) for ids, memory in kept.memories)
    },
    "swapped arrays": lambda kept: {
        "state": replace(kept.state, w=kept.state.gradients, gradients=kept.state.w)
        if hasattr(kept.state, "gradients")
        else replace(kept.state, w=kept.state.loss, loss=kept.state.w)
    },
    "state of another algorithm": lambda kept: {"state": kept.ask},
    "turns of others": lambda kept: {"turns": kept.turns[::-1] + np.arange(len(kept.turns))},
    "traffic doubled": lambda kept: {
        "traffic": tuple((name, way, 2 * n, 2 * size) for name, way, n, size in kept.traffic)
    },
    "unknown message": lambda kept: {"traffic": (("Ask", "down", 0, 0), *kept.traffic)},
    "a shorter history": lambda kept: {
        "history": {key: column[:1] for key, column in kept.history.items()}
    },
    "asked beyond the clients": lambda kept: {"ask": replace(kept.ask, to=(0, 99))},
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("name", "clock"), [("toy", False), ("asynchronous toy", True)])
def test_parts_that_contradict_each_other_are_refused(name, clock, relation, folder, tmp_path):
    record, path = kept(name, clock, folder), tmp_path / "run"
    path.write_bytes(encode(replace(record, **RELATIONS[relation](record))))
    with pytest.raises(CheckpointError, match=r"holds what no run can have: .*resume=False"):
        run(name, path, clock, 4)


@pytest.mark.parametrize("name", ["row multipliers", "row multipliers, ranked"])
def test_units_of_fewer_numbers_than_the_steps_are_refused(name, folder, tmp_path):
    record, path = kept(name, False, folder), tmp_path / "run"
    fewer = replace(record.state, units=record.state.units[:1])
    path.write_bytes(encode(replace(record, state=fewer)))
    with pytest.raises(CheckpointError, match="holds what no run can have: "):
        run(name, path, False, 4)


def of_events(kept: Any, **parts: Any) -> dict[str, Any]:
    return {"events": replace(kept.events, **parts)}


EVENTS: dict[str, Any] = {
    "answers of nobody": lambda kept: of_events(kept, answered=kept.events.answered + 99),
    "times that go back": lambda kept: of_events(kept, times=kept.events.times[::-1]),
    "infinite time": lambda kept: of_events(kept, times=np.full_like(kept.events.times, np.inf)),
    "rounds without answers": lambda kept: of_events(
        kept, ends=np.append(kept.events.ends[:1], kept.events.ends[:-1])
    ),
    "events of another engine": lambda kept: {"events": Sets((np.arange(5),) * 2, np.arange(2))},
    "messages of nobody": lambda kept: {"asked": np.full_like(kept.asked, -1)},
    "messages not there": lambda kept: {"messages": ()},
    "a message of a later round": lambda kept: {
        "messages": tuple((message, 99, size) for message, _, size in kept.messages)
    },
    "bytes of nobody": lambda kept: {"exchanged": kept.exchanged + 1},
    "another clock": lambda kept: {"source": replace(kept.source, time=kept.source.time + 1)},
    "answers before they were asked for": lambda kept: {
        "source": replace(kept.source, due=kept.source.due - 1e6)
    },
    "nobody on the way": lambda kept: {
        "source": replace(kept.source, coming=kept.source.coming[:0])
    },
    "no clock": lambda kept: {"source": 1.0},
}


@pytest.mark.parametrize("part", EVENTS)
def test_events_that_contradict_each_other_are_refused(part, folder, tmp_path):
    record, path = kept("asynchronous toy", True, folder), tmp_path / "run"
    path.write_bytes(encode(replace(record, **EVENTS[part](record))))
    with pytest.raises(CheckpointError, match=r"holds what no run can have: .*resume=False"):
        run("asynchronous toy", path, True, 4)


def test_a_log_with_impossible_answers_is_refused(folder, tmp_path):
    record = kept("asynchronous toy", True, folder)
    log = run("asynchronous toy", folder / "asynchronous toy.True", True, 4).log
    assert len(record.events.ends) < len(log.ends)
    for number, parts in enumerate(
        (
            {"answered": log.answered + 99},
            {"times": -log.times},
            {"times": log.times[:-1]},
            {"ends": log.ends[::-1]},
            {"ends": log.ends[:-1]},
            {"block_size": 0},
            {"clients": "site"},
        )
    ):
        path: Any = tmp_path / f"{number}.bft"
        path.write_bytes(encode(replace(log, **parts)))
        with pytest.raises(ValueError, match=r"the log .* holds what no run can have: "):
            Log.load(path)


@pytest.mark.parametrize("clock", [False, True])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_an_engine_wrote_is_possible_in_every_round(name, clock, tmp_path):
    path, seen = tmp_path / "run", []
    example, made = ALGORITHMS[name], engine(name, path, clock)
    made = replace(made, every=1)

    def resumed(row: Any, state: Any) -> None:
        """The checkpoint of the round before can be resumed."""
        if path.exists() and row["round"] in (2, 3, 5, 8, 12, 20):
            made.run(example.algorithm, example.federation, seed=1, max_rounds=0, resume=True)
            seen.append(row["round"])

    made.run(example.algorithm, example.federation, seed=1, watch=[resumed])
    assert seen


NUMBER = TypeVar("NUMBER", bound=np.generic)
NUMBERS = TypeAliasType("NUMBERS", np.ndarray[Any, np.dtype[NUMBER]], type_params=(NUMBER,))
NAMED = TypeAliasType("NAMED", Annotated[NUMBERS[np.float64], Form("N")])


@pytest.mark.parametrize("hint", [Annotated[NUMBERS[np.float64], Form("N")], NAMED])
@pytest.mark.parametrize("bad", [np.zeros(2), np.zeros(3, np.int64), np.full(3, np.nan), 1.0])
def test_an_array_is_held_to_its_form_under_another_name_of_its_type(hint, bad):
    fields = Fields(n_clients=3, round_=1)
    fields.check(np.zeros(3), hint, "losses")
    with pytest.raises(ValueError, match="losses"):
        fields.check(bad, hint, "losses")
