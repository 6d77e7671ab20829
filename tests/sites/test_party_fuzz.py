"""A site is sent anything in any order: it answers as declared, after it agreed, into its log."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sites.folders import NAMES, PROBLEM, folder_of, roles

import bonafed as bf
from bonafed.engines.network import Network
from bonafed.engines.wire import (
    Envelope,
    Failed,
    LocalTransport,
    Lost,
    Refused,
    RunStarted,
    StartRun,
    Step,
    Stepped,
    Unknown,
)
from bonafed.problem.metadata import Introduced
from bonafed.rounds import CodecError, decode, encode
from bonafed.sites.audit import MESSAGE, AuditLog, read_log
from bonafed.sites.guard import Guard
from bonafed.sites.party import Party, open_party
from bonafed.sites.policy import Policy
from bonafed.sites.rows import Source, of_site
from bonafed.sites.session import Agree, Agreed, Introduce, agree
from bonafed.sites.site_file import read_site, secret_of
from bonafed.solution.plan import configure

PREFIX = struct.Struct("<4sHxxIQ")  # of the codec: magic, version, bytes of the header, of all
ANSWERS = (Introduced, Agreed, RunStarted, Stepped, Unknown, Lost, Refused, Failed)


@cache
def recorded() -> tuple[Source, bytes, tuple[bytes, ...]]:
    """The rows of a site, its secret, and all that two runs asked it."""
    place, asked = Path(tempfile.mkdtemp()), []
    for name in NAMES:
        folder_of(place, name)
    sites = {name: open_party(place / name, name) for name in NAMES}

    def answer(name: str, data: bytes) -> bytes:
        if name == "north":
            asked.append(data)
        return sites[name].answer("alliance", data)

    calls = {name: lambda data, name=name: answer(name, data) for name in NAMES}
    transport = LocalTransport(calls)
    agreement = agree(transport, "trial", PROBLEM, roles=roles().text(), patience=600.0)
    concrete, data = agreement.problem.at(agreement.metadata)
    for method in (bf.ADLPMM(max_rounds=4), bf.Bundle(max_rounds=4)):
        Network(agreement.session).run(configure(method, concrete, data), data, max_rounds=4)
    site = read_site(place / "north")
    secret = secret_of(site)
    return of_site(site, secret), secret, tuple(asked)


class Site:
    """A site with an empty disk, whose processes may end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.count = AuditLog.open(folder / "audit.jsonl", "north"), 0
        self.restart()

    def restart(self) -> None:
        """Let another process go on."""
        source, secret, _ = recorded()
        guard = Guard(Policy(), self.log)
        self.party = Party("north", source, self.folder / "state", guard, secret=secret)

    def answer(self, data: bytes, sender: str = "alliance") -> Envelope:
        """The answer, which is one of those that are declared."""
        self.count += 1
        reply = decode(self.party.answer(sender, data))
        assert isinstance(reply, Envelope)
        assert isinstance(reply.body, ANSWERS)
        assert reply.site == "north"
        return reply

    def check_log(self) -> None:
        """Every message in and out is in the log, and refusals have their rule."""
        entries, faults = read_log(self.log.path)
        ways = [entry.way for entry in entries if entry.event == MESSAGE]
        assert not faults
        assert ways == ["in", "out"] * self.count
        for entry in entries:
            assert bool(entry.refused) == (entry.kind == "Refused" and entry.way == "out")


def test_the_messages_are_those_of_whole_runs() -> None:
    kinds = {type(decode(data).body) for data in recorded()[2]}
    assert kinds == {Introduce, Agree, StartRun, Step}
    assert len(recorded()[2]) > 12


MOVES = st.sampled_from(["next"] * 6 + ["again", "restart"]) | st.integers(0, 30)


@settings(max_examples=60)
@given(moves=st.lists(MOVES, max_size=30))
def test_valid_messages_in_any_order(moves: list[str | int]) -> None:
    messages = recorded()[2]
    with tempfile.TemporaryDirectory() as folder:
        site, at, agreed, begun = Site(Path(folder)), -1, False, set()
        answered: dict[int, bytes] = {}
        for move in moves:
            if move == "restart":
                site.restart()
                continue
            at = (at + (move == "next") if isinstance(move, str) else move) % len(messages)
            ask, body = decode(messages[at]).body, site.answer(messages[at]).body
            early = ask.run not in begun if isinstance(ask, Step) else isinstance(ask, StartRun)
            if early and not (agreed and isinstance(ask, StartRun)):
                assert isinstance(body, Unknown)
            else:
                assert isinstance(body, Introduced | Agreed | RunStarted | Stepped | Lost)
            agreed |= isinstance(body, Agreed)
            if isinstance(ask, StartRun) and isinstance(body, RunStarted):
                begun.add(ask.run)
            if isinstance(body, Stepped):  # carried out once, and answered alike
                assert answered.setdefault(at, encode(body)) == encode(body)
        site.check_log()


def sealed(header: bytes, arrays: bytes) -> bytes:
    """A message as the codec writes it, of any header."""
    body = PREFIX.pack(b"QRM\x89", 1, len(header), PREFIX.size + len(header) + len(arrays) + 16)
    body += header + arrays
    return body + hashlib.blake2b(body, digest_size=16).digest()


def nested(levels: int) -> list[Any]:
    """A tuple in a tuple in a tuple ..., as the codec describes it."""
    return ["t", nested(levels - 1)] if levels else ["t"]


PIECES = [None, True, -1, 0, 1, 3, 10**39, 0.5, 1e300, "", "\ud800", "north", "trial", "z" * 300]
PIECES += [[], {}, ["t"], nested(20), nested(60), {"a": 1}, ["x", "7ff8000000000000"]]
PIECES += [["a", "<f8", 0], ["a", "|u1", 0], ["a", "<f8", 1], ["s", "<f8"], ["t", 1, "a"]]


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """All that a header holds: containers, and the keys of their parts."""
    if isinstance(tree, dict | list):
        for key in [*tree] if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from places(tree[key])


def mutated(message: bytes, changes: list[tuple[int, object]]) -> bytes:
    """A message with other parts, sealed again: of its header, or of the statement that it holds;
    bytes name another part, which is put there.
    """
    length = PREFIX.unpack_from(message)[2]
    header, arrays = (
        message[PREFIX.size : PREFIX.size + length],
        message[PREFIX.size + length : -16],
    )
    tree = json.loads(header)
    for at, piece in changes:
        if arrays.startswith(b"QRM\x89") and at % 3 == 0:
            before, arrays = len(arrays), mutated(arrays, [(at // 3, piece)])
            for within, key in places(tree):
                if isinstance(within, list) and "|u1" in within and within[key] == before:
                    within[key] = len(arrays)
            continue
        parts = [*places(tree)]
        within, key = parts[at % len(parts)]
        if isinstance(piece, bytes):  # the same part of another place
            other, there = parts[int.from_bytes(piece, "little") % len(parts)]
            piece = other[there]
        within[key] = copy.deepcopy(piece)
    return sealed(json.dumps(tree).encode(), arrays)


CHANGE = st.tuples(st.integers(0, 9_999), st.sampled_from(PIECES) | st.binary(max_size=2))


@settings(max_examples=150)
@given(
    place=st.integers(0, 10**6),
    changes=st.lists(CHANGE, min_size=1, max_size=2),
    known=st.booleans(),
)
def test_messages_with_other_parts(place: int, changes: Any, known: bool) -> None:
    messages = recorded()[2]
    data = mutated(messages[place % len(messages)], changes)
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        for message in messages[:4] if known else ():
            site.answer(message)
        body = site.answer(data).body
        if not known:
            assert not isinstance(body, Stepped | RunStarted | Lost)
        # the next question is answered as if this one had not been
        assert isinstance(site.answer(messages[0]).body, Introduced | Refused)
        site.check_log()


@settings(max_examples=60)
@given(
    place=st.integers(0, 10**6), at=st.integers(0, 9_999), piece=st.binary(min_size=1, max_size=3)
)
def test_messages_of_damaged_bytes(place: int, at: int, piece: bytes) -> None:
    message = recorded()[2][place % len(recorded()[2])]
    at %= len(message)
    data = message[:at] + piece + message[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        body = site.answer(data).body
        assert data == message or (isinstance(body, Refused) and body.rule == "message")
        site.check_log()


@settings(max_examples=100)
@given(data=st.binary(max_size=200), sender=st.text(max_size=20))
def test_any_bytes_from_anybody(data: bytes, sender: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        body = site.answer(data, sender).body
        assert isinstance(body, Refused)
        assert body.rule == "message"
        site.check_log()


SCALARS = {
    "header of numbers": b"[1]",
    "no JSON": b"{",
    "an array without room": b'["a","<f8",1000000000000]',
}


@pytest.mark.parametrize("header", SCALARS.values(), ids=SCALARS.keys())
def test_headers_that_are_none(header: bytes) -> None:
    with pytest.raises(CodecError):
        decode(sealed(header, b""))
    with tempfile.TemporaryDirectory() as folder:
        assert isinstance(Site(Path(folder)).answer(sealed(header, b"")).body, Refused)
