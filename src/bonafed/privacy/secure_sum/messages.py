"""What clients and server of a secure sum tell each other.

Every message is a record: engines can carry it. Keys and ciphertexts are arrays of bytes (uint8);
lists of clients are ascending. What a message has of a secret (a share) is left out of its repr.
"""

from __future__ import annotations

from dataclasses import field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import record
from bonafed.text import install

Array = NDArray[Any]  # of the dtype that the field says; bytes without one
TAG = 16  # bytes by which a ciphertext grows
KEY, NONCE, SHARE = 32, 12, 32  # bytes; a share is shamir.LIMBS numbers of 32 bits


class SecureSumError(ValueError):
    """A message that the protocol does not allow; anyone who refuses it has told nothing."""


def require_cryptography() -> None:
    """Refuse to begin where the package for key agreement and ciphers is not installed."""
    if find_spec("cryptography") is None:
        raise ImportError(f"a secure sum needs the package cryptography: {install('sign')}")


def octets(data: bytes) -> Array:
    """Bytes as an array, as records hold them."""
    return np.frombuffer(data, np.uint8).copy()


@record
class Terms:
    """What all agree on before: the name of the run, how many clients, how many can open a round.

    ``threshold`` t is more than half of the clients: two groups of t then share a client, and each
    client opens a round once. Up to t - 1 clients together with the server learn nothing beyond the
    sum over the others; every round needs t clients until its end. ``fewest`` is the least number
    of clients over which a sum may be opened, t where it is None: with fewer, the others hold
    shares and hand in no vector.
    """

    run: str
    clients: int
    threshold: int
    fewest: int | None = None

    @property
    def least(self) -> int:
        """The least number of clients over which a sum may be opened."""
        return self.threshold if self.fewest is None else self.fewest

    def __post_init__(self) -> None:
        if self.fewest is not None and not 2 <= self.fewest <= self.clients:
            raise ValueError(
                f"fewest must be in 2..{self.clients}, got {self.fewest}: a sum over one client is"
                " its own numbers."
            )
        low = self.clients // 2 + 1
        if not 2 <= self.clients < 2**20 or not low <= self.threshold <= self.clients:
            raise ValueError(
                "a secure sum needs 2 to 2**20 - 1 clients and a threshold of more than half of"
                f" them; got {self.clients} clients and a threshold of {self.threshold}: take"
                f" {max(2, self.clients - self.clients // 3)}, which lets a third drop out."
            )


def terms(run: str, clients: int) -> Terms:
    """The terms under which a third of the clients, rounded down, may drop out of any round."""
    return Terms(run, clients, clients - clients // 3)


@record
class Advertised:
    """Up, once: a client's public key, and its signature (empty where clients do not sign)."""

    client: int
    key: Array
    signature: Array


@record
class Roster:
    """Down, once: the public keys of all clients that take part."""

    clients: Array  # (n,)
    keys: Array  # (n, 32)
    signatures: tuple[Array, ...]


@record
class BeginRound:
    """Down: round ``number`` begins."""

    number: int


@record
class Shares:
    """Up: a client's shares of its secrets of the round, each for the eyes of one client, and the
    keys of its pairwise masks of this round, which t clients together can open.
    """

    client: int
    number: int
    nonce: Array  # (12,)
    sealed: Array  # (n, 80): to every client of the roster, itself included
    pairs: Array  # (32 n + 16,)
    check: Array  # (32,): a value of the self mask's key that tells whether that was recovered


@record
class Delivered:
    """Down: the shares for one client of all that take part in the round."""

    number: int
    senders: Array  # (m,)
    nonces: Array  # (m, 12)
    sealed: Array  # (m, 80)


@record
class Masked:
    """Up: a client's vector under its masks, uniform for anyone who does not know them."""

    client: int
    number: int
    vector: Array  # (D,) uint64
    wide: bool = False  # whether pairs of words are one number each


@record
class Unmask:
    """Down: whose vectors arrived, and whose did not."""

    number: int
    stayed: Array
    dropped: Array


@record
class Revealed:
    """Up: a share of the self mask of each that stayed, and of the key to the pairwise masks of
    each that dropped out, in the order of the clients of the round.
    """

    client: int
    number: int
    shares: Array = field(repr=False)  # (m, 8) uint32


def array_of(
    value: object, shape: tuple[int, ...], dtype: type[np.generic], what: str
) -> NDArray[Any]:
    """The array, if it has this form."""
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != dtype:
        given = (
            f"{value.dtype} of shape {value.shape}"
            if isinstance(value, np.ndarray)
            else type(value).__name__
        )
        raise SecureSumError(
            f"{what} must be {np.dtype(dtype)} of shape {shape}, got {given}: send it again."
        )
    return value


def ascending(value: object, known: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The clients in an array, ascending and all among the known ones."""
    given = value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else None
    if given is None or any(type(i) is not int for i in given) or given != sorted({*given}):
        raise SecureSumError(
            f"{what} must be an ascending array of distinct clients, got {given}: repeat no client."
        )
    if strange := sorted({*given} - {*known}):
        raise SecureSumError(
            f"{what} holds the clients {strange}, which do not take part: take of {len(known)}"
            " known clients only."
        )
    return tuple(given)


def enough(present: int, needed: int, what: str) -> None:
    """Refuse fewer clients than are needed."""
    if present < needed:
        raise SecureSumError(
            f"{present} clients {what} and {needed} are needed: begin a new round."
        )
