"""The form of a message over Flower: one record named ``bonafed`` with one value.

    server -> site    {"bonafed": {"hello": 1}}          what is your name?
    site -> server    {"bonafed": {"name": "north"}}
    server -> site    {"bonafed": {"data": bytes}}       a step
    site -> server    {"bonafed": {"data": bytes}}       its answer
    site -> server    {"bonafed": {"refused": "why"}}    where the message is not of this form

What the bytes mean is not an affair of Flower's: bonafed's codec makes and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from bonafed.text import listed, shown

T = TypeVar("T", bytes, str, int)

RECORD = "bonafed"
LARGEST = 1 << 30  # bytes of one message; Flower's own limit is 2 GiB
LONGEST = 4000  # characters of a name or a reason

Envelope = Mapping[str, Mapping[str, bytes | str | int]]


class MalformedError(ValueError):
    """A message that has not the form of this page."""


class RefusedError(RuntimeError):
    """The site's adapter refused a message before its party saw it; the text says why."""


def sealed(value: str, content: bytes | str | int) -> Envelope:
    """A message with one value, such as ``sealed("data", b"...")``."""
    return {RECORD: {value: content}}


def opened(message: object, value: str, kind: type[T], largest: int = LARGEST) -> T:
    """The value of that name; raises ``MalformedError`` where the message is anything else."""
    name, content = _only(_only(message, "message")[1], "record")
    if name != value:
        raise MalformedError(f"the value of a message is called {shown(name)}; needed: {value!r}")
    if type(content) is not kind:
        given = type(content).__name__
        raise MalformedError(f"{value!r} of a message is of type {given}; needed: {kind.__name__}")
    if isinstance(content, bytes | str) and len(content) > largest:
        raise MalformedError(f"a message of {len(content):,} bytes; allowed are {largest:,}")
    return content


def answer_in(message: object, largest: int = LARGEST) -> bytes:
    """The bytes of a site's answer; raises ``RefusedError`` where it sent none, and why."""
    _check_refused(message)
    return opened(message, "data", bytes, largest)


def name_in(message: object) -> str:
    """The name that a site gave; raises ``RefusedError`` where it gave none, and why."""
    _check_refused(message)
    return opened(message, "name", str, LONGEST)


def _check_refused(message: object) -> None:
    values = message.get(RECORD) if isinstance(message, Mapping) else None
    if isinstance(values, Mapping) and "refused" in values:
        raise RefusedError(opened(message, "refused", str, LONGEST))


def _only(message: object, what: str) -> tuple[str, Any]:
    """The one entry of a mapping; that of a whole message is called as it has to be."""
    if not isinstance(message, Mapping):
        raise MalformedError(f"a {what} is {shown(message, 60)}; needed: a mapping with one entry")
    if len(message) != 1:
        names = listed(message, len(message)) or "none"
        raise MalformedError(f"a {what} has {len(message)} entries ({names}); needed: one")
    ((name, content),) = message.items()
    if what == "message" and name != RECORD:
        raise MalformedError(f"the record of a message is called {shown(name)}; needed: {RECORD!r}")
    return name, content
