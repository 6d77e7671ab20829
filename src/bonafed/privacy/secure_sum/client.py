"""A client's half of the secure sum: pure functions (state, message) -> (state, answer).

    advertise -> agree                      once
    share -> mask -> reveal                 in every round; without a vector share -> hold -> reveal

The protocol is that of Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth
(2017), against a server that follows the protocol and wants to know more. Client p sends

    y_p = x_p + S(b_p) + sum over q > p of S(k_pq) - sum over q < p of S(k_pq)      modulo 2^64,

where S is the key stream, k_pq a key that only p and q know and b_p one that only p knows. In the
sum the pairwise masks cancel, where both were asked for the same: the key of S is made of k_pq and
of a digest of the question (``about``), so that a server that asks for different things reads
noise. The clients that stayed then open b_p of those that stayed, and the k_pq of those that
dropped out, whose pairwise masks have nothing to cancel with: never both of one client, so that a
late y_p of one that "dropped out" remains masked by b_p.

**One key agreement, many rounds.** p and q agree on a root K_pq once (X25519), and
k_pq^r = F(K_pq, r) by a pseudorandom function F. What may be opened in round r must tell nothing of
other rounds. In the paper p's private key is shared, and opened when p drops out. With one key for
many rounds that would be wrong even if p never came back: in each earlier round r in which p
stayed, b_p^r was opened, and its key would now give all k_pq^r; so x_p^r = y_p^r minus known masks.
Here neither a private key nor a root is shared ever. In every round p draws two fresh secrets,

    b_p^r   the key of its self mask,
    w_p^r   a key under which it leaves with the server the list (k_pq^r for all q) of this round,

and shares both by Shamir's scheme, each share enciphered for its holder. For one that stayed t
clients open b_p^r and not w_p^r, for one that dropped out w_p^r and not b_p^r. What is opened are
fresh random numbers and values F(K_pq, r) at this r only, from which nothing follows about K_pq
and F(K_pq, r') (that is what pseudorandom means). So a client that dropped out takes part in the
next round again, without new keys.

**Who must not collude.** t - 1 clients' shares say nothing about b and w (Shamir). As 2 t > n and a
client answers one ``Unmask`` per round, even a server that tells clients different lists cannot
open both of one client, unless 2 t - n or more clients help it. It can, of course, leave out all
but its friends and t - 1 others.

A client that is restored from an old copy repeats k_pq^r, and not b_p^r, which is drawn anew: its
two vectors of a round stay masked. ``draw`` must therefore be a source of fresh bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import fingerprint, record
from bonafed.privacy import keystream
from bonafed.privacy.secure_sum import masks, shamir
from bonafed.text import install

Draw = Callable[[int], bytes]  # so many fresh bytes that nobody can guess


@record
class Client:
    """What a client keeps: its keys, and the secrets of the round. All but names is left out of
    its repr.
    """

    terms: Terms
    client: int
    private: Array = field(repr=False)  # (32,); zeros once the keys are agreed on
    clients: tuple[int, ...] = ()
    roster: str = ""  # digest of terms and roster
    roots: Array | None = field(default=None, repr=False)  # (n, 8) uint32, of pairwise masks
    ciphers: Array | None = field(default=None, repr=False)  # (n, 32) uint8
    number: int = -1  # of the round
    stage: str = "keys"  # what was done last
    own: Array | None = field(default=None, repr=False)  # (8,) uint32, the key of the self mask
    senders: tuple[int, ...] = ()
    held: Array | None = field(default=None, repr=False)  # (m, 2, 8): shares of b and of w


def advertise(
    terms: Terms,
    client: int,
    *,
    draw: Draw = secrets.token_bytes,
    sign: Callable[[bytes], bytes] | None = None,
) -> tuple[Client, Advertised]:
    """Draw a key pair and tell the public key.

    ``sign`` signs it with a key by which others know the client; without, clients take the server's
    word for whose key is whose.
    """
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if not 0 <= client < terms.clients:
        raise SecureSumError(f"client {client} is none of the {terms.clients}: number from 0.")
    private = draw(KEY)
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    signature = sign(_signed(terms, client, public)) if sign is not None else b""
    return (
        Client(terms, client, octets(private)),
        Advertised(client, octets(public), octets(signature)),
    )


def agree(
    state: Client, roster: Roster, *, identities: Mapping[int, bytes] | None = None
) -> Client:
    """The state with a key for each other client. ``identities`` are the public keys of Ed25519 by
    which the clients are known; with them every key of the roster must be signed.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    _stage(state, "keys", "a roster")
    clients = ascending(roster.clients, tuple(range(state.terms.clients)), "the roster")
    enough(len(clients), state.terms.threshold, "have keys")
    keys = array_of(roster.keys, (len(clients), KEY), np.uint8, "the roster's keys")
    private = X25519PrivateKey.from_private_bytes(state.private.tobytes())
    if (
        state.client not in clients
        or keys[clients.index(state.client)].tobytes() != private.public_key().public_bytes_raw()
    ):
        raise SecureSumError(
            f"the roster does not have the key that client {state.client} advertised: the server"
            " must pass keys on as they are."
        )
    if identities is not None:
        if len(roster.signatures) != len(clients):
            raise SecureSumError(
                f"the roster has {len(roster.signatures)} signatures of {len(clients)} keys: pass"
                " on all."
            )
        for client, key, signature in zip(clients, keys, roster.signatures, strict=True):
            try:
                known = Ed25519PublicKey.from_public_bytes(identities[client])
                known.verify(signature.tobytes(), _signed(state.terms, client, key.tobytes()))
            except (InvalidSignature, KeyError) as error:
                raise SecureSumError(
                    f"client {client}'s key is not signed by client {client} as it is known here:"
                    " compare its identity by another way than through the server."
                ) from error
    digest = fingerprint((state.terms, roster.clients, roster.keys))
    roots, ciphers = [], []
    for other, key in zip(clients, keys, strict=True):
        try:
            common = private.exchange(X25519PublicKey.from_public_bytes(key.tobytes()))
        except ValueError as error:  # a point of low order: anybody would know the result
            raise SecureSumError(f"client {other}'s public key is none: refuse it.") from error
        low, high = sorted((state.client, other))
        about = f"bonafed secure sum {digest} {low} {high}".encode()
        made = HKDF(SHA256(), 2 * KEY, None, about).derive(common)
        roots.append(made[:KEY])
        ciphers.append(made[KEY:])
    return replace(
        state,
        private=np.zeros(KEY, np.uint8),
        clients=clients,
        roster=digest,
        roots=masks.key_rows(b"".join(roots)),
        ciphers=octets(b"".join(ciphers)).reshape(-1, KEY),
        stage="agreed",
    )


def share(
    state: Client, begin: BeginRound, *, draw: Draw = secrets.token_bytes
) -> tuple[Client, Shares]:
    """Draw this round's two secrets and share them. A round's number must exceed all before."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    if state.stage == "keys":
        _stage(state, "agreed", "a round")
    if not state.number < begin.number < 2**63:
        raise SecureSumError(
            f"round {begin.number} cannot follow round {state.number}: number rounds upwards, and"
            " never repeat one."
        )
    assert state.ciphers is not None
    n, seed, nonce = len(state.clients), draw(KEY), draw(NONCE)
    coefficients = shamir.elements(seed, 0, state.terms.threshold * 2 * shamir.LIMBS).reshape(
        state.terms.threshold, 2 * shamir.LIMBS
    )
    parts = shamir.shares(coefficients, state.terms.clients).astype("<u4")
    sealed = [
        ChaCha20Poly1305(key.tobytes()).encrypt(
            nonce, parts[other].tobytes(), _about(state.roster, begin.number, state.client, other)
        )
        for other, key in zip(state.clients, state.ciphers, strict=True)
    ]
    own = shamir.as_key(coefficients[0, : shamir.LIMBS])
    wrap = shamir.as_key(coefficients[0, shamir.LIMBS :])
    keys = masks.of_round(state.roots, np.uint64(begin.number)).astype("<u4")
    keys[state.clients.index(state.client)] = 0
    pairs = ChaCha20Poly1305(wrap).encrypt(
        nonce, keys.tobytes(), about_pairs(state.roster, begin.number, state.client)
    )
    after = replace(
        state,
        number=begin.number,
        stage="shared",
        own=keystream.key_words(own),
        senders=(),
        held=None,
    )
    return after, Shares(
        state.client,
        begin.number,
        octets(nonce),
        octets(b"".join(sealed)).reshape(n, -1),
        octets(pairs),
        check_of(own),
    )


def mask(
    state: Client,
    delivered: Delivered,
    vector: NDArray[np.int64] | NDArray[np.uint64],
    wide: bool = False,
    about: bytes = b"",
) -> tuple[Client, Masked]:
    """Mask the vector (D,) of int64, in two's complement, or uint64; all vectors of a round are
    equally long, and ``wide`` in all or none: pairs of words are then numbers of 128 bits, which
    are added up modulo 2^128. ``about`` is what the vector answers: it has to be the same for all.
    """
    if not isinstance(vector, np.ndarray) or vector.dtype not in (np.int64, np.uint64):
        kind = getattr(vector, "dtype", type(vector).__name__)
        raise TypeError(
            f"a vector must be of int64 or uint64, got {kind}: FixedPoint makes whole numbers."
        )
    if vector.ndim != 1:
        raise SecureSumError(f"a vector has one axis, got the shape {vector.shape}: flatten it.")
    if wide and len(vector) % 2:
        raise SecureSumError(f"numbers are pairs of words, got {len(vector)} words: pair them.")
    after = _held(state, delivered)
    if state.client not in after.senders:
        raise SecureSumError(
            f"the shares of client {state.client} itself are missing: it must be left out of the"
            " round, or have its own."
        )
    assert state.roots is not None
    assert state.own is not None
    places = [state.clients.index(q) for q in after.senders]
    keys = masks.bound(masks.of_round(state.roots[places], np.uint64(state.number)), about)
    signs = np.sign(np.array(after.senders) - state.client).astype(np.int8)
    total = vector.astype(np.uint64)
    add = masks.add_wide if wide else masks.add
    add(total, keys, signs)
    add(total, state.own[None], np.ones(1, np.int8))
    return after, Masked(state.client, state.number, total, wide)


def hold(state: Client, delivered: Delivered) -> Client:
    """Take the shares of a round in which this client hands in no vector."""
    after = _held(state, delivered)
    if state.client in after.senders:
        raise SecureSumError(
            f"client {state.client} is one of those that hand in a vector: it has to."
        )
    return after


def _held(state: Client, delivered: Delivered) -> Client:
    """The state with the opened shares of all that hand in a vector."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    _stage(state, "shared", "shares", delivered.number)
    assert state.ciphers is not None
    senders = ascending(delivered.senders, state.clients, "the senders of shares")
    enough(len(senders), state.terms.least, "are in the sum")
    m, sealed_bytes = len(senders), 2 * SHARE + TAG
    nonces = array_of(delivered.nonces, (m, NONCE), np.uint8, "nonces")
    sealed = array_of(delivered.sealed, (m, sealed_bytes), np.uint8, "sealed shares")
    places, held = [state.clients.index(q) for q in senders], []
    for sender, place, nonce, text in zip(senders, places, nonces, sealed, strict=True):
        about = _about(state.roster, state.number, sender, state.client)
        try:
            cipher = ChaCha20Poly1305(state.ciphers[place].tobytes())
            held.append(cipher.decrypt(nonce.tobytes(), text.tobytes(), about))
        except InvalidTag as error:
            raise SecureSumError(
                f"the shares from client {sender} were not sealed by it for client {state.client}"
                f" in round {state.number}, or were changed since: begin a new round."
            ) from error
    return replace(
        state,
        stage="masked",
        own=None,
        senders=senders,
        held=np.frombuffer(b"".join(held), "<u4").astype(np.uint32).reshape(m, 2, -1),
    )


def reveal(state: Client, unmask: Unmask) -> tuple[Client, Revealed]:
    """A share of one of the two secrets of every client of the round, and the end of the round."""
    _stage(state, "masked", "an unmasking", unmask.number)
    assert state.held is not None
    stayed = ascending(unmask.stayed, state.senders, "the clients that stayed")
    dropped = ascending(unmask.dropped, state.senders, "the clients that dropped out")
    if both := sorted({*stayed} & {*dropped}):
        raise SecureSumError(
            f"both secrets of the clients {both} are asked for, which would unmask them: a client"
            " has stayed or has dropped out."
        )
    if missing := sorted({*state.senders} - {*stayed} - {*dropped}):
        raise SecureSumError(
            f"the clients {missing} have neither stayed nor dropped out: name each client of the"
            " round once."
        )
    if state.client in state.senders and state.client not in stayed:
        raise SecureSumError(
            f"client {state.client} handed in its vector and is said to have dropped out: name only"
            " clients that have dropped out."
        )
    enough(len(stayed), state.terms.least, "stayed")
    which = np.isin(np.array(state.senders), np.array(dropped, int)).astype(int)
    shares = state.held[np.arange(len(which)), which]
    after = replace(state, stage="revealed", senders=(), held=None)
    return after, Revealed(state.client, state.number, shares)


def about_pairs(roster: str, number: int, client: int) -> bytes:
    """What the list of pairwise keys of a client and round is bound to."""
    return f"bonafed secure sum pairs {roster} {number} {client}".encode()


def check_of(key: bytes) -> Array:
    """A value by which the key of a self mask is known again: words of a stream that masks do not
    use.
    """
    return octets(keystream.words(key, 0, 4, stream=1).astype("<u8").tobytes())


def _about(roster: str, number: int, sender: int, to: int) -> bytes:
    return f"bonafed secure sum share {roster} {number} {sender} {to}".encode()


def _signed(terms: Terms, client: int, public: bytes) -> bytes:
    return f"bonafed secure sum key {fingerprint(terms)} {client} {public.hex()}".encode()


def _stage(state: Client, needed: str, what: str, number: int | None = None) -> None:
    """Refuse what comes out of turn, or again."""
    if state.stage != needed or (number is not None and number != state.number):
        raise SecureSumError(
            f"client {state.client} was sent {what}"
            + (f" of round {number}" if number is not None else "")
            + f" and stands at {state.stage!r} of round {state.number}: it takes that once, after"
            f" {needed!r}; begin a new round."
        )


# What clients and server of a secure sum tell each other.
#
# Every message is a record: engines can carry it. Keys and ciphertexts are arrays of bytes (uint8);
# lists of clients are ascending. What a message has of a secret (a share) is left out of its repr.

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
