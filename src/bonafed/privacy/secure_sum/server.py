"""The server's half of the secure sum: pure functions (state, answers) -> (state, question).

    enrol                                   once
    begin -> deliver -> unmask -> total     in every round

Whose answers are missing has dropped out; the caller decides how long it waits. At every step t
clients must be left, else the round is over and has told nothing about anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import Form, fingerprint, record
from bonafed.privacy import keystream
from bonafed.privacy.secure_sum import client as told
from bonafed.privacy.secure_sum import masks, shamir


@record
class Server:
    """What the server keeps: who takes part, and the round as far as it has come."""

    terms: told.Terms
    clients: tuple[int, ...]
    roster: str
    number: Annotated[int, Form(least=-1)] = -1
    stage: str = "enrolled"
    shared: tuple[told.Shares, ...] = field(
        default=(), repr=False
    )  # of those that hand in a vector
    holders: tuple[int, ...] = ()  # who has shares of them
    stayed: tuple[int, ...] = ()
    sum: told.Array | None = field(default=None, repr=False)  # (D,) uint64, still masked
    wide: bool = False
    about: told.Array | None = field(default=None, repr=False)  # the bytes that the vectors answer


class _Answer(Protocol):
    @property
    def client(self) -> int: ...


Answer = TypeVar("Answer", bound=_Answer)


def enrol(terms: told.Terms, answers: Sequence[told.Advertised]) -> tuple[Server, told.Roster]:
    """Those whose keys arrived take part."""
    told.require_cryptography()
    found = _by_client(answers, tuple(range(terms.clients)), "keys")
    told.enough(len(found), terms.threshold, "sent keys")
    keys = [
        told.array_of(a.key, (told.KEY,), np.uint8, f"client {a.client}'s key")
        for a in found.values()
    ]
    roster = told.Roster(
        np.array([*found]), np.stack(keys), tuple(a.signature for a in found.values())
    )
    digest = fingerprint((terms, roster.clients, roster.keys))
    return Server(terms, tuple(found), digest), roster


def begin(state: Server, number: int) -> tuple[Server, told.BeginRound]:
    """Open a round, whatever became of the one before; its number must exceed all before."""
    if not state.number < number < 2**63:
        raise told.SecureSumError(
            f"round {number} cannot follow round {state.number}: number rounds upwards, and never"
            " repeat one."
        )
    return Server(state.terms, state.clients, state.roster, number, "begun"), told.BeginRound(
        number
    )


def deliver(
    state: Server,
    answers: Sequence[told.Shares],
    senders: Collection[int] | None = None,
    about: bytes = b"",
) -> tuple[Server, Mapping[int, told.Delivered]]:
    """To each client that shared, what was sealed for it by those that hand in a vector:
    ``senders``, or all that shared. ``about`` is what all are asked.
    """
    found = _round(state, "begun", answers, state.clients, "shares")
    n = len(state.clients)
    for client, a in found.items():
        for value, shape, what in (
            (a.nonce, (told.NONCE,), "nonce"),
            (a.sealed, (n, 2 * told.SHARE + told.TAG), "sealed shares"),
            (a.pairs, (n * told.KEY + told.TAG,), "list of pairwise keys"),
            (a.check, (told.KEY,), "check"),
        ):
            told.array_of(value, shape, np.uint8, f"client {client}'s {what}")
    shared = tuple(a for q, a in found.items() if senders is None or q in senders)
    told.enough(len(shared), state.terms.least, "are in the sum")
    listed = np.array([a.client for a in shared])
    nonces = np.stack([a.nonce for a in shared])
    sealed = np.stack([a.sealed for a in shared], axis=1)  # by the place of the receiver
    known = {"shared": shared, "holders": tuple(found), "about": told.octets(about)}
    return replace(state, stage="delivered", **known), {
        q: told.Delivered(state.number, listed, nonces, sealed[state.clients.index(q)])
        for q in found
    }


def unmask(state: Server, answers: Sequence[told.Masked]) -> tuple[Server, told.Unmask]:
    """Add up the masked vectors; those that are missing have dropped out, and stay out of the sum
    even if they come later.
    """
    senders = tuple(a.client for a in state.shared)
    found = _round(state, "delivered", answers, senders, "vectors", state.terms.least)
    first = next(iter(found.values()))
    total = np.zeros(np.shape(first.vector)[:1], np.uint64)
    for client, a in found.items():
        vector = told.array_of(a.vector, total.shape, np.uint64, f"client {client}'s vector")
        if a.wide is not first.wide or (first.wide and len(vector) % 2):
            raise told.SecureSumError(
                f"client {client}'s words are of other numbers than client {first.client}'s: begin"
                " a new round."
            )
        total = masks.added(total, vector) if first.wide else total + vector
    stayed = tuple(found)
    dropped = np.array([q for q in senders if q not in found], int)
    after = replace(state, stage="unmasking", stayed=stayed, sum=total, wide=first.wide)
    return after, told.Unmask(state.number, np.array(stayed), dropped)


def total(state: Server, answers: Sequence[told.Revealed]) -> tuple[Server, NDArray[np.int64]]:
    """The sum (D,) over those that stayed (``state.stayed``), modulo 2^64 in two's complement, or
    of pairs of words modulo 2^128.

    Raises
    ------
    SecureSumError : fewer than t answers, or shares that do not give the secrets that they are of;
        never a wrong sum
    """
    left = {a.client for a in state.shared} - {*state.stayed}
    holders = tuple(q for q in state.holders if q not in left)
    found = _round(state, "unmasking", answers, holders, "answers to the unmasking")
    assert state.sum is not None
    m, t = len(state.shared), state.terms.threshold
    holders = sorted(found)[:t]
    held = [
        told.array_of(found[q].shares, (m, shamir.LIMBS), np.uint32, f"client {q}'s shares")
        for q in holders
    ]
    points = np.array(holders, np.uint64) + np.uint64(1)
    secrets = shamir.secrets_of(points, np.stack(held).astype(np.uint64))
    result, own, add = state.sum.copy(), [], masks.add_wide if state.wide else masks.add
    stayed, places = {*state.stayed}, [state.clients.index(q) for q in state.stayed]
    for message, secret in zip(state.shared, secrets, strict=True):
        key = shamir.as_key(secret)
        if message.client in stayed:
            if not np.array_equal(told.check_of(key), message.check):
                raise _not_recovered(state, message.client)
            own.append(keystream.key_words(key))
        else:  # what those that stayed added for the pairs with it
            signs = np.sign(np.array(state.stayed) - message.client).astype(np.int8)
            known = np.zeros(0, np.uint8) if state.about is None else state.about
            keys = masks.bound(_pairs(state, message, key)[places], known.tobytes())
            add(result, keys, signs)
    add(result, np.stack(own), np.full(len(own), -1, np.int8))
    after = Server(state.terms, state.clients, state.roster, state.number)
    return replace(after, stayed=state.stayed), result.view(np.int64)


def _pairs(state: Server, message: told.Shares, key: bytes) -> NDArray[np.uint32]:
    """The keys (n, 8) of the pairwise masks that a client left behind."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    about = told.about_pairs(state.roster, state.number, message.client)
    try:
        text = ChaCha20Poly1305(key).decrypt(
            message.nonce.tobytes(), message.pairs.tobytes(), about
        )
    except InvalidTag as error:
        raise _not_recovered(state, message.client) from error
    return masks.key_rows(text)


def _not_recovered(state: Server, client: int) -> told.SecureSumError:
    return told.SecureSumError(
        f"the shares that were revealed in round {state.number} do not give the secret of client"
        f" {client}: one of them, or what that client left, was changed; begin a new round."
    )


def _by_client(answers: Sequence[Answer], known: tuple[int, ...], what: str) -> dict[int, Answer]:
    """Answers by client, ascending; one of each, of known clients only."""
    given = [a.client for a in answers]
    if strange := sorted({*given} - {*known}):
        raise told.SecureSumError(
            f"{what} came from the clients {strange}, which do not take part: leave them out."
        )
    if len({*given}) < len(given):
        raise told.SecureSumError(
            f"{what} came twice from one client, of {sorted(given)}: take one."
        )
    return {a.client: a for a in sorted(answers, key=lambda a: a.client)}


def _round(
    state: Server,
    stage: str,
    answers: Sequence[Answer],
    known: tuple[int, ...],
    what: str,
    needed: int | None = None,
) -> dict[int, Answer]:
    """The answers of this step by client; so many are needed, t where nothing is said."""
    if state.stage != stage:
        raise told.SecureSumError(
            f"{what} are taken once, after {stage!r}, and the server stands at {state.stage!r} of"
            f" round {state.number}: begin a new round."
        )
    found = _by_client(answers, known, what)
    if other := [q for q, a in found.items() if getattr(a, "number", None) != state.number]:
        raise told.SecureSumError(
            f"{what} of the clients {other} are of another round than {state.number}: leave them"
            " out."
        )
    needed = state.terms.threshold if needed is None else needed
    told.enough(len(found), needed, f"sent {what}")
    return found
