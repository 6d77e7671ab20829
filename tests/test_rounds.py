"""Records, their codec, what types disclose, and how uploads are combined."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import struct
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bonafed import codec
from bonafed.arrays import Array
from bonafed.rounds import (
    CodecError,
    Combiner,
    Done,
    Each,
    Max,
    Outcome,
    Round,
    Stop,
    Sum,
    Version,
    combine,
    copied,
    decode,
    encode,
    encoded_size,
    join,
    members,
    named,
    record,
    rows,
    settled,
    visibility,
)

LAW = settings(deadline=None, max_examples=100)


@record
class Box:
    content: Any


@record
class Ask:
    w: Array
    price: Each
    start: Each | None = None


@record
class Step:
    w: Version
    price: Each
    before: Version | None = None
    scale: float = 1.0


@record
class Answer:
    total: Sum
    most: Max
    own: Each
    maybe: Sum | None = None


def same(a: Any, b: Any) -> bool:
    """Same types, same bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return (
            a.shape == b.shape
            and a.dtype == b.dtype.newbyteorder("=")
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


# ---- records


def test_a_record_is_frozen_and_compares_by_identity():
    box = Box(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        box.content = 2  # pyright: ignore
    assert box != Box(1)


def module(name: str, source: str) -> Any:
    """A module of this name, as if it had been imported from a file."""
    made = types.ModuleType(name)
    source = "from typing import Any\nfrom bonafed.rounds import named, record\n" + source
    exec(compile(source, name, "exec", dont_inherit=True), vars(made))
    return made


@pytest.fixture
def forgets(monkeypatch):
    """The classes that a test defines are unknown after it."""
    monkeypatch.setattr(codec, "_CLASSES", dict(codec._CLASSES))


TWO = """
import enum

@record
class State:
    value: Any

@named
class Why(enum.Enum):
    SO = "so"
"""


def test_two_records_of_one_name_disturb_nobody(forgets):
    # the last two have the stem of a module of bonafed, and of another package
    for names in (("mine", "yours"), ("rounds", "package.rounds")):
        one, other = (module(name, TWO) for name in names)
        for here in (one, other):
            back = decode(encode(here.State((here.State(1), here.Why.SO))))
            assert type(back) is type(back.value[0]) is here.State
            assert back.value[1] is here.Why.SO
    mine = module("rounds", "@record\nclass Outcome:\n    stop: Any\n    text: str")
    assert type(decode(encode(Outcome(Stop.OPTIMAL, "")))) is Outcome
    assert type(decode(encode(mine.Outcome(None, "")))) is mine.Outcome


def test_a_class_is_known_by_its_module_and_name():
    assert codec.home(Outcome) == ".rounds:Outcome"
    assert codec.home(Box) == f"{__name__}:Box"


def test_a_class_is_found_by_its_home_and_by_nothing_else(forgets):
    before = module("before", "@record\nclass Moved:\n    value: Any")
    data = encode(before.Moved(1))
    del codec._CLASSES["before:Moved"]
    module("after", "@record\nclass Moved:\n    value: Any")
    with pytest.raises(CodecError, match="no record class 'before:Moved' here: import the module"):
        decode(data)


def test_a_reloaded_module_takes_its_names_over():
    def load():
        @record
        class Reloaded:
            a: int

        return Reloaded

    old, new = load(), load()
    assert type(decode(encode(old(1)))) is new


def test_visibility_is_read_from_the_types():
    assert visibility(Ask) == {"w": "all", "price": "each", "start": "each"}
    assert visibility(Answer) == {"total": "sum", "most": "max", "own": "each", "maybe": "sum"}
    assert visibility(Step) == {
        "w": "version",
        "price": "each",
        "before": "version",
        "scale": "all",
    }
    with pytest.raises(TypeError, match="int is not a record"):
        visibility(int)


# ---- codec

numbers = hnp.arrays(
    st.sampled_from(
        [np.dtype(code) for code in "?bhilBHILefdFD"] + [np.dtype(">f8"), np.dtype(">i4")]
    ),
    hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4),
)
plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(Stop)
)
scalars = st.one_of(
    st.floats().map(np.float64), st.integers(0, 9).map(np.int32), st.booleans().map(np.bool_)
)
contents = st.recursive(
    st.one_of(plain, scalars, numbers),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=3),
        inner.map(Box),
    ),
    max_leaves=8,
)


@LAW
@given(contents)
def test_round_trip_is_exact(content):
    data = encode(Box(content))
    assert same(native(Box(content)), decode(data))
    assert encoded_size(Box(content)) == len(data)


def native(value: Any) -> Any:
    return codec.mapped(value, lambda a: a.astype(a.dtype.newbyteorder("="), order="C"))


def test_bits_of_special_floats_survive():
    # a nan that is not the usual one
    payload = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\x7f")[0]
    floats = (
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        -math.nan,
        payload,
        5e-324,
        1.7976931348623157e308,
    )
    back = decode(encode(Box((floats, np.array(floats))))).content
    assert [struct.pack("d", x) for x in back[0]] == [struct.pack("d", x) for x in floats]
    assert back[1].tobytes() == np.array(floats).tobytes()


def test_layouts_become_c_order_and_arrays_are_writable_and_own():
    a = np.arange(12.0).reshape(3, 4)
    for view in (a.T, a[:, ::2], np.asfortranarray(a)):
        back = decode(encode(Box(view))).content
        assert np.array_equal(back, view)
        assert all(back.flags[flag] for flag in ("C_CONTIGUOUS", "WRITEABLE", "OWNDATA", "ALIGNED"))
        assert settled(Box(view)).content.flags.c_contiguous
    assert settled(Box(np.float64(1))).content.ndim == 0  # no axis appears


DATA = encode(Box((np.arange(3.0), "text", 1.5, Stop.OPTIMAL)))


@LAW
@given(st.integers(0, len(DATA) * 8 - 1))
def test_any_flipped_bit_is_refused(bit):
    bad = bytearray(DATA)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CodecError):
        decode(bytes(bad))


@pytest.mark.parametrize("length", [0, 3, 19, 25, len(DATA) // 2, len(DATA) - 1])
def test_truncated_bytes_are_refused(length):
    with pytest.raises(CodecError, match=f"{length} bytes"):
        decode(DATA[:length])


@LAW
@given(st.binary(max_size=60))
def test_foreign_bytes_are_refused(data):
    with pytest.raises(CodecError, match="are not a record: they need to start with"):
        decode(data)


def test_a_newer_version_is_refused():
    with pytest.raises(CodecError, match="version 2; this bonafed reads version 1: update"):
        decode(DATA[:4] + struct.pack("<H", 2) + DATA[6:])


def forged(header: Any, arrays: bytes = b"") -> bytes:
    """Bytes with a right digest and any header."""
    text = json.dumps(header).encode()
    size = codec._PREFIX.size + len(text) + len(arrays) + codec._DIGEST
    body = codec._PREFIX.pack(codec._MAGIC, codec._VERSION, len(text), size) + text + arrays
    return body + codec.hashlib.blake2b(body, digest_size=codec._DIGEST).digest()


def test_the_forger_is_right():
    assert decode(
        forged(["r", f"{__name__}:Box", {"content": ["a", "<f8", 1]}], struct.pack("<d", 2.0))
    ).content == [2.0]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (["r", "Nobody", {}], "no record class 'Nobody' here: import the module"),
        (["r", "Stop", {}], "no record class 'Stop' here"),
        (
            ["r", f"{__name__}:Box", {}],
            r"Box has the fields \[\] in the bytes and \['content'\] here",
        ),
        (
            ["r", f"{__name__}:Box", {"content": 1, "more": 2}],
            r"Box has the fields \['content', 'more'\]",
        ),
        (["a", "<f8", 10**9], "no room for an array of shape"),
        (["a", "<f8", -1, -1], "no room"),
        (["a", "|O", 1], "malformed"),
        (["a", "<f8", 0, 10**30], "malformed"),
        (["e", "Box", "x"], "no enumeration 'Box' here: import the module"),
        (["e", ".rounds:Stop", "NO_SUCH"], "malformed"),
        (["x", "zz"], "malformed"),
        (["q"], "malformed"),
        ([], "malformed"),
    ],
)
def test_a_forged_header_is_refused(header, text):
    with pytest.raises(CodecError, match=text):
        decode(forged(header))


def test_bytes_beyond_the_arrays_are_refused():
    with pytest.raises(CodecError, match="do not fill it"):
        decode(forged(["t"], b"more"))


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (np.array([None]), "dtype object"),
        (np.array(["a"]), "dtype <U1"),
        (np.array(0, dtype="M8[s]"), "dtype datetime64"),
        (np.zeros(1, np.longdouble), "up to 64 bits"),
        ([1], "a list cannot travel. Records hold arrays"),
        ({1: 2}, "a dict cannot travel"),
        ({1}, "a set cannot travel"),
        (np.ma.masked_array([1.0], [True]), "a MaskedArray cannot travel"),
        (Colour.RED, "a Colour cannot travel"),
        (lambda: 0, "cannot travel"),
    ],
)
def test_what_cannot_travel_is_named(content, text):
    with pytest.raises(CodecError, match=r"Box\.content: .*" + text):
        encode(Box(content))


def test_an_enumeration_travels_once_named():
    named(Colour)
    try:
        assert decode(encode(Box(Colour.RED))).content is Colour.RED
    finally:
        del codec._CLASSES[codec._HOMES.pop(Colour)]


def test_rounds_own_records_travel():
    ask = decode(encode(Round(Ask(np.zeros(2), np.ones(3)), to=(0, 2), wait_for=1)))
    assert (ask.to, ask.wait_for, type(ask.message)) == ((0, 2), 1, Ask)
    assert decode(encode(Done(Stop.STALLED))).outcome.stop is Stop.STALLED


# ---- messages and uploads


def test_rows_picks_each_fields_and_shares_the_rest():
    ask = Ask(np.arange(2.0), np.arange(10.0).reshape(5, 2))
    got = rows(ask, [3, 1])
    assert got.price.tolist() == [[6, 7], [2, 3]]
    assert got.w is ask.w
    assert got.start is None
    box = Box(1)
    assert rows(box, [0]) is box


def test_rows_gives_every_client_its_version():
    ask = Step(np.arange(3.0), np.arange(5.0), None, 2.0)
    got = rows(ask, [3, 1])
    assert got.w.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert (got.price.tolist(), got.before, got.scale) == ([3, 1], None, 2.0)
    with pytest.raises(ValueError, match="read-only"):
        got.w[0, 0] = 1.0
    alone = decode(encode(rows(ask, [4])))
    assert (alone.w.tolist(), alone.price.tolist()) == ([[0, 1, 2]], [4])


def test_a_version_seen_by_many_travels_whole():
    got = rows(Step(np.arange(3.0), np.arange(5.0)), [3, 1])
    back = decode(encode(got))
    assert np.array_equal(back.w, got.w)
    assert (back.w.flags.c_contiguous, back.w.flags.writeable) == (True, True)
    assert encoded_size(got) == len(encode(got))


def test_copied_shares_nothing():
    box = Box((np.arange(6.0).reshape(2, 3).T, {"k": np.zeros(2)}, 1))
    twin = copied(box)
    assert encode(twin) == encode(box)
    twin.content[0][:] = twin.content[1]["k"][:] = 7.0
    assert (box.content[0].max(), box.content[1]["k"].max()) == (5.0, 0.0)
    assert twin.content[0].flags.c_contiguous


def answers(ids: Any, rng: np.random.Generator) -> Answer:
    n = len(ids)
    return Answer(rng.standard_normal((n, 3)), rng.standard_normal(n), rng.standard_normal((n, 2)))


@LAW
@given(st.permutations(range(7)), st.integers(0, 2**32 - 1))
def test_arrival_order_does_not_change_a_bit(arrival, seed):
    rng = np.random.default_rng(seed)
    parts = [((i,), answers((i,), rng)) for i in range(7)]
    assert encode(combine(Answer, [parts[k] for k in arrival])) == encode(combine(Answer, parts))


@LAW
@given(st.permutations(range(7)), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_blocks_combine_to_sum_max_and_rows_in_the_order_of_ids(order, cut, seed):
    whole = answers(range(7), np.random.default_rng(seed))
    parts = [(ids, members(whole, np.array(ids))) for ids in (order[:cut], order[cut:])]
    got = combine(Answer, parts)
    np.testing.assert_allclose(
        got.total, whole.total.sum(0), rtol=0, atol=1e-14 * np.abs(whole.total).sum()
    )
    assert got.most == whole.most.max()
    assert np.array_equal(got.own, whole.own)
    assert got.maybe is None


def test_a_block_may_sum_for_itself():
    block, alone = (
        answers((0, 1, 2), np.random.default_rng(0)),
        answers((3,), np.random.default_rng(1)),
    )
    summed = dataclasses.replace(
        block, total=block.total.sum(0, keepdims=True), most=block.most.max(keepdims=True)
    )
    a, b = (combine(Answer, [((0, 1, 2), part), ((3,), alone)]) for part in (block, summed))
    assert encode(a) == encode(b)


def test_booleans_and_integers_are_counted():
    part = Answer(np.array([True, True]), np.array([2, 5]), np.zeros(2))
    got = combine(Answer, [((0, 1), part)])
    assert (got.total, got.most) == (2, 5)


def test_a_nan_is_not_lost_in_a_maximum():
    part = Answer(np.zeros(2), np.array([1.0, np.nan]), np.zeros(2))
    assert np.isnan(combine(Answer, [((0, 1), part)]).most)


def good(**changes: Any) -> Answer:
    return dataclasses.replace(Answer(np.zeros((2, 3)), np.zeros(2), np.zeros((2, 2))), **changes)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            [((0, 1), good(total=np.zeros((3, 3))))],
            r"Answer\.total needs a leading axis of the 2 client\(s\).*\(3, 3\)",
        ),
        ([((0, 1), good(own=np.zeros((1, 2))))], r"Answer\.own needs a leading axis of the 2"),
        ([((0, 1), good(most=np.array(1.0)))], r"Answer\.most needs.*shape \(\)"),
        ([((0, 1), good(most=1.0))], r"Answer\.most needs.*got float"),
        (
            [((0, 1), good()), ((2, 3), good(total=np.zeros((2, 1))))],
            r"Answer\.total is .*1\) at client 2 and",
        ),
        (
            [((0, 1), good()), ((2, 3), good(total=np.zeros((2, 3), int)))],
            r"Answer\.total is .*int64",
        ),
        (
            [((0, 1), good()), ((2, 3), good(maybe=np.zeros(2)))],
            r"Answer\.maybe is .* None at the clients before",
        ),
        (
            [((0, 1), good()), ((1, 2), good())],
            r"answers once in a round, got answers of \[0, 1, 1, 2\]",
        ),
        ([], "answers once in a round"),
    ],
)
def test_uploads_that_do_not_fit_are_refused(parts, text):
    with pytest.raises(ValueError, match=text):
        combine(Answer, parts)


def test_an_upload_must_say_who_sees_it_and_be_of_one_class():
    with pytest.raises(TypeError, match=r"Ask\.w does not say who sees it"):
        Combiner(Ask)
    with pytest.raises(TypeError, match=r"Step\.w does not say who sees it"):
        Combiner(Step)
    fold = Combiner(Answer)
    fold.add((0, 1), good())
    with pytest.raises(TypeError, match="clients answered with Box and with Answer"):
        fold.add((2,), Box(1))


def test_combining_does_not_touch_the_uploads():
    rng = np.random.default_rng(0)
    parts = [((i,), answers((i,), rng)) for i in range(3)]
    before = [encode(part) for _, part in parts]
    combine(Answer, parts)
    assert [encode(part) for _, part in parts] == before


# ---- memories


@LAW
@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_join_undoes_members(n, seed):
    a = np.random.default_rng(seed).standard_normal((n, 2))
    memory = Box((a, {"k": Box(a[:, 0])}, 3, None))
    assert encode(join([members(memory, slice(i, i + 1)) for i in range(n)])) == encode(memory)


@pytest.mark.parametrize("others", [Box(2), Box(None), Box((1,)), Box(np.zeros(1))])
def test_join_refuses_memories_that_differ(others):
    with pytest.raises(ValueError, match="memories"):
        join([Box(1), others])


@pytest.mark.parametrize("length", ["-1", "-9"])
def test_a_length_below_zero_is_refused_also_with_a_right_digest(length):
    whole = encode(np.arange(10.0))
    forged = whole[:-16].replace(b'"<f8",10', b'"<f8",' + length.encode())
    assert forged != whole[:-16]
    with pytest.raises(CodecError, match="no room for an array"):
        decode(forged + hashlib.blake2b(forged, digest_size=16).digest())
