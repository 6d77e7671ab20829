"""The secure sum: a client's half and the server's half, as pure functions.

A client's functions are (state, message) -> (state, answer):

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

The server's functions are (state, answers) -> (state, question):

    enrol                                   once
    begin -> deliver -> unmask -> total     in every round

Whose answers are missing has dropped out; the caller decides how long it waits. At every step t
clients must be left, else the round is over and has told nothing about anybody.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import Form, fingerprint, record
from bonafed.privacy import keystream
from bonafed.privacy.secure_sum import masking, messages
from bonafed.privacy.secure_sum.messages import KEY, NONCE, SHARE, TAG, Array, SecureSumError, Terms

Known = Mapping[int, bytes]  # the public key by which each client is known
Sign = Callable[[bytes], bytes]
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
    terms: Terms, client: int, *, draw: Draw = secrets.token_bytes, sign: Sign | None = None
) -> tuple[Client, messages.Advertised]:
    """Draw a key pair and tell the public key.

    ``sign`` signs it with a key by which others know the client; without, clients take the server's
    word for whose key is whose.
    """
    messages.require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if not 0 <= client < terms.clients:
        raise SecureSumError(f"client {client} is none of the {terms.clients}: number from 0.")
    private = draw(KEY)
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    signature = sign(_signed(terms, client, public)) if sign is not None else b""
    told = messages.Advertised(client, messages.octets(public), messages.octets(signature))
    return Client(terms, client, messages.octets(private)), told


def agree(state: Client, roster: messages.Roster, *, identities: Known | None = None) -> Client:
    """The state with a key for each other client. ``identities`` are the public keys of Ed25519 by
    which the clients are known; with them every key of the roster must be signed.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    _stage(state, "keys", "a roster")
    clients = messages.ascending(roster.clients, tuple(range(state.terms.clients)), "the roster")
    messages.enough(len(clients), state.terms.threshold, "have keys")
    keys = messages.array_of(roster.keys, (len(clients), KEY), np.uint8, "the roster's keys")
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
        _check_signatures(state.terms, clients, roster, identities)
    digest = fingerprint((state.terms, roster.clients, roster.keys))
    roots, ciphers = [], []
    for other, key in zip(clients, keys, strict=True):
        try:
            common = private.exchange(X25519PublicKey.from_public_bytes(key.tobytes()))
        except ValueError as error:  # a point of low order: anybody would know the result
            raise SecureSumError(f"client {other}'s public key is none: refuse it.") from error
        low, high = sorted((state.client, other))
        made = HKDF(SHA256(), 2 * KEY, None, _about(digest, low, high)).derive(common)
        roots.append(made[:KEY])
        ciphers.append(made[KEY:])
    known = {"private": np.zeros(KEY, np.uint8), "clients": clients, "roster": digest}
    known |= {"roots": masking.key_rows(b"".join(roots))}
    known |= {"ciphers": messages.octets(b"".join(ciphers)).reshape(-1, KEY)}
    return replace(state, **known, stage="agreed")


def share(
    state: Client, begin: messages.BeginRound, *, draw: Draw = secrets.token_bytes
) -> tuple[Client, messages.Shares]:
    """Draw this round's two secrets and share them. A round's number must exceed all before."""
    if state.stage == "keys":
        _stage(state, "agreed", "a round")
    _follows(begin.number, state.number)
    assert state.ciphers is not None
    n, t, seed, nonce = len(state.clients), state.terms.threshold, draw(KEY), draw(NONCE)
    width = 2 * masking.LIMBS
    coefficients = masking.elements(seed, 0, t * width).reshape(t, width)
    parts = masking.shares(coefficients, state.terms.clients).astype("<u4")
    about = state.roster, begin.number, state.client
    sealed = [
        _cipher(key.tobytes()).encrypt(nonce, parts[to].tobytes(), _about("share", *about, to))
        for to, key in zip(state.clients, state.ciphers, strict=True)
    ]
    own, wrap = map(masking.as_key, np.split(coefficients[0], 2))
    keys = masking.of_round(state.roots, np.uint64(begin.number)).astype("<u4")
    keys[state.clients.index(state.client)] = 0
    pairs = messages.octets(_cipher(wrap).encrypt(nonce, keys.tobytes(), _about("pairs", *about)))
    boxes = messages.octets(b"".join(sealed)).reshape(n, -1)
    known = {"number": begin.number, "stage": "shared", "own": keystream.key_words(own)}
    shares = messages.Shares(
        state.client, begin.number, messages.octets(nonce), boxes, pairs, _check_of(own)
    )
    return replace(state, **known, senders=(), held=None), shares


def mask(
    state: Client,
    delivered: messages.Delivered,
    vector: NDArray[np.int64] | NDArray[np.uint64],
    wide: bool = False,
    about: bytes = b"",
) -> tuple[Client, messages.Masked]:
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
    keys = masking.bound(masking.of_round(state.roots[places], np.uint64(state.number)), about)
    signs = np.sign(np.array(after.senders) - state.client).astype(np.int8)
    total = vector.astype(np.uint64)
    masking.add(total, keys, signs, wide)
    masking.add(total, state.own[None], np.ones(1, np.int8), wide)
    return after, messages.Masked(state.client, state.number, total, wide)


def hold(state: Client, delivered: messages.Delivered) -> Client:
    """Take the shares of a round in which this client hands in no vector."""
    after = _held(state, delivered)
    if state.client in after.senders:
        raise SecureSumError(
            f"client {state.client} is one of those that hand in a vector: it has to."
        )
    return after


def _held(state: Client, delivered: messages.Delivered) -> Client:
    """The state with the opened shares of all that hand in a vector."""
    from cryptography.exceptions import InvalidTag

    _stage(state, "shared", "shares", delivered.number)
    assert state.ciphers is not None
    senders = messages.ascending(delivered.senders, state.clients, "the senders of shares")
    messages.enough(len(senders), state.terms.least, "are in the sum")
    m, sealed_bytes = len(senders), 2 * SHARE + TAG
    nonces = messages.array_of(delivered.nonces, (m, NONCE), np.uint8, "nonces")
    sealed = messages.array_of(delivered.sealed, (m, sealed_bytes), np.uint8, "sealed shares")
    places, held = [state.clients.index(q) for q in senders], []
    for sender, place, nonce, text in zip(senders, places, nonces, sealed, strict=True):
        about = _about("share", state.roster, state.number, sender, state.client)
        try:
            cipher = _cipher(state.ciphers[place].tobytes())
            held.append(cipher.decrypt(nonce.tobytes(), text.tobytes(), about))
        except InvalidTag as error:
            raise SecureSumError(
                f"the shares from client {sender} were not sealed by it for client {state.client}"
                f" in round {state.number}, or were changed since: begin a new round."
            ) from error
    shares = np.frombuffer(b"".join(held), "<u4").astype(np.uint32).reshape(m, 2, -1)
    return replace(state, stage="masked", own=None, senders=senders, held=shares)


def reveal(state: Client, unmask: messages.Unmask) -> tuple[Client, messages.Revealed]:
    """A share of one of the two secrets of every client of the round, and the end of the round."""
    _stage(state, "masked", "an unmasking", unmask.number)
    assert state.held is not None
    stayed = messages.ascending(unmask.stayed, state.senders, "the clients that stayed")
    dropped = messages.ascending(unmask.dropped, state.senders, "the clients that dropped out")
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
    messages.enough(len(stayed), state.terms.least, "stayed")
    which = np.isin(np.array(state.senders), np.array(dropped, int)).astype(int)
    shares = state.held[np.arange(len(which)), which]
    after = replace(state, stage="revealed", senders=(), held=None)
    return after, messages.Revealed(state.client, state.number, shares)


def _about(*what: object) -> bytes:
    """What keys, signatures and ciphertexts are bound to."""
    return " ".join(["bonafed secure sum", *map(str, what)]).encode()


def _check_of(key: bytes) -> Array:
    """A value by which the key of a self mask is known again: words of a stream that masks do not
    use.
    """
    return messages.octets(keystream.words(key, 0, 4, stream=1).astype("<u8").tobytes())


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key)


def _follows(number: int, before: int) -> None:
    if not before < number < 2**63:
        raise SecureSumError(
            f"round {number} cannot follow round {before}: number rounds upwards, and never repeat"
            " one."
        )


def _signed(terms: Terms, client: int, public: bytes) -> bytes:
    return _about("key", fingerprint(terms), client, public.hex())


def _stage(state: Client, needed: str, what: str, number: int | None = None) -> None:
    """Refuse what comes out of turn, or again."""
    if state.stage != needed or (number is not None and number != state.number):
        raise SecureSumError(
            f"client {state.client} was sent {what}"
            + (f" of round {number}" if number is not None else "")
            + f" and stands at {state.stage!r} of round {state.number}: it takes that once, after"
            f" {needed!r}; begin a new round."
        )


def _check_signatures(
    terms: Terms, clients: tuple[int, ...], roster: messages.Roster, identities: Known
) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if (n := len(roster.signatures)) != len(clients):
        raise SecureSumError(f"the roster has {n} signatures of {len(clients)} keys: pass on all.")
    for client, key, signature in zip(clients, roster.keys, roster.signatures, strict=True):
        try:
            known = Ed25519PublicKey.from_public_bytes(identities[client])
            known.verify(signature.tobytes(), _signed(terms, client, key.tobytes()))
        except (InvalidSignature, KeyError) as error:
            raise SecureSumError(
                f"client {client}'s key is not signed by client {client} as it is known here:"
                " compare its identity by another way than through the server."
            ) from error


@record
class Server:
    """What the server keeps: who takes part, and the round as far as it has come."""

    terms: Terms
    clients: tuple[int, ...]
    roster: str
    number: Annotated[int, Form(least=-1)] = -1
    stage: str = "enrolled"
    # of those that hand in a vector
    shared: tuple[messages.Shares, ...] = field(default=(), repr=False)
    holders: tuple[int, ...] = ()  # who has shares of them
    stayed: tuple[int, ...] = ()
    sum: Array | None = field(default=None, repr=False)  # (D,) uint64, still masked
    wide: bool = False
    about: Array | None = field(default=None, repr=False)  # the bytes that the vectors answer


Answer = TypeVar("Answer", messages.Advertised, messages.Shares, messages.Masked, messages.Revealed)
# the steps of a round, and what they take
STEPS = {"begun": "shares", "delivered": "vectors", "unmasking": "answers to the unmasking"}


def enrol(terms: Terms, answers: Sequence[messages.Advertised]) -> tuple[Server, messages.Roster]:
    """Those whose keys arrived take part."""
    messages.require_cryptography()
    found = _by_client(answers, tuple(range(terms.clients)), "keys")
    messages.enough(len(found), terms.threshold, "sent keys")
    each = found.values()
    keys = [messages.array_of(a.key, (KEY,), np.uint8, f"client {a.client}'s key") for a in each]
    roster = messages.Roster(np.array([*found]), np.stack(keys), tuple(a.signature for a in each))
    return Server(terms, tuple(found), fingerprint((terms, roster.clients, roster.keys))), roster


def begin(state: Server, number: int) -> tuple[Server, messages.BeginRound]:
    """Open a round, whatever became of the one before; its number must exceed all before."""
    _follows(number, state.number)
    after = Server(state.terms, state.clients, state.roster, number, "begun")
    return after, messages.BeginRound(number)


def deliver(
    state: Server,
    answers: Sequence[messages.Shares],
    senders: Collection[int] | None = None,
    about: bytes = b"",
) -> tuple[Server, Mapping[int, messages.Delivered]]:
    """To each client that shared, what was sealed for it by those that hand in a vector:
    ``senders``, or all that shared. ``about`` is what all are asked.
    """
    found = _round(state, "begun", answers, state.clients, state.terms.threshold)
    n = len(state.clients)
    for client, a in found.items():
        for value, shape, what in (
            (a.nonce, (NONCE,), "nonce"),
            (a.sealed, (n, 2 * SHARE + TAG), "sealed shares"),
            (a.pairs, (n * KEY + TAG,), "list of pairwise keys"),
            (a.check, (KEY,), "check"),
        ):
            messages.array_of(value, shape, np.uint8, f"client {client}'s {what}")
    shared = tuple(a for q, a in found.items() if senders is None or q in senders)
    messages.enough(len(shared), state.terms.least, "are in the sum")
    listed, nonces = np.array([a.client for a in shared]), np.stack([a.nonce for a in shared])
    sealed = np.stack([a.sealed for a in shared], axis=1)  # by the place of the receiver
    known = {"shared": shared, "holders": tuple(found), "about": messages.octets(about)}
    at = state.clients.index
    sent = {q: messages.Delivered(state.number, listed, nonces, sealed[at(q)]) for q in found}
    return replace(state, stage="delivered", **known), sent


def unmask(state: Server, answers: Sequence[messages.Masked]) -> tuple[Server, messages.Unmask]:
    """Add up the masked vectors; those that are missing have dropped out, and stay out of the sum
    even if they come later.
    """
    senders = tuple(a.client for a in state.shared)
    found = _round(state, "delivered", answers, senders, state.terms.least)
    first = next(iter(found.values()))
    total = np.zeros(np.shape(first.vector)[:1], np.uint64)
    for client, a in found.items():
        vector = messages.array_of(a.vector, total.shape, np.uint64, f"client {client}'s vector")
        if a.wide is not first.wide or (first.wide and len(vector) % 2):
            raise SecureSumError(
                f"client {client}'s words are of other numbers than client {first.client}'s: begin"
                " a new round."
            )
        total = masking.added(total, vector) if first.wide else total + vector
    stayed = tuple(found)
    dropped = np.array([q for q in senders if q not in found], int)
    after = replace(state, stage="unmasking", stayed=stayed, sum=total, wide=first.wide)
    return after, messages.Unmask(state.number, np.array(stayed), dropped)


def total(state: Server, answers: Sequence[messages.Revealed]) -> tuple[Server, NDArray[np.int64]]:
    """The sum (D,) over those that stayed (``state.stayed``), modulo 2^64 in two's complement, or
    of pairs of words modulo 2^128.

    Raises
    ------
    SecureSumError : fewer than t answers, or shares that do not give the secrets that they are of;
        never a wrong sum
    """
    from cryptography.exceptions import InvalidTag

    left = {a.client for a in state.shared} - {*state.stayed}
    holders = tuple(q for q in state.holders if q not in left)
    m, t = len(state.shared), state.terms.threshold
    found = _round(state, "unmasking", answers, holders, t)
    assert state.sum is not None
    holders, form = sorted(found)[:t], (m, masking.LIMBS)
    held = [
        messages.array_of(found[q].shares, form, np.uint32, f"client {q}'s shares") for q in holders
    ]
    points = np.array(holders, np.uint64) + np.uint64(1)
    secrets = masking.secrets_of(points, np.stack(held).astype(np.uint64))
    result, own = state.sum.copy(), []
    stayed, places = {*state.stayed}, [state.clients.index(q) for q in state.stayed]
    for message, secret in zip(state.shared, secrets, strict=True):
        key = masking.as_key(secret)
        if message.client in stayed:
            if not np.array_equal(_check_of(key), message.check):
                raise _not_recovered(state, message.client)
            own.append(keystream.key_words(key))
        else:  # what those that stayed added for the pairs with it
            signs = np.sign(np.array(state.stayed) - message.client).astype(np.int8)
            about = _about("pairs", state.roster, state.number, message.client)
            try:
                text = _cipher(key).decrypt(message.nonce.tobytes(), message.pairs.tobytes(), about)
            except InvalidTag as error:
                raise _not_recovered(state, message.client) from error
            asked = np.zeros(0, np.uint8) if state.about is None else state.about
            keys = masking.bound(masking.key_rows(text)[places], asked.tobytes())
            masking.add(result, keys, signs, state.wide)
    masking.add(result, np.stack(own), np.full(len(own), -1, np.int8), state.wide)
    after = Server(state.terms, state.clients, state.roster, state.number)
    return replace(after, stayed=state.stayed), result.view(np.int64)


def _not_recovered(state: Server, client: int) -> SecureSumError:
    return SecureSumError(
        f"the shares that were revealed in round {state.number} do not give the secret of client"
        f" {client}: one of them, or what that client left, was changed; begin a new round."
    )


def _by_client(answers: Sequence[Answer], known: tuple[int, ...], what: str) -> dict[int, Answer]:
    """Answers by client, ascending; one of each, of known clients only."""
    given = [a.client for a in answers]
    if strange := sorted({*given} - {*known}):
        raise SecureSumError(
            f"{what} came from the clients {strange}, which do not take part: leave them out."
        )
    if len({*given}) < len(given):
        raise SecureSumError(f"{what} came twice from one client, of {sorted(given)}: take one.")
    return {a.client: a for a in sorted(answers, key=lambda a: a.client)}


def _round(
    state: Server, stage: str, answers: Sequence[Answer], known: tuple[int, ...], needed: int
) -> dict[int, Answer]:
    """The answers of this step by client; so many are needed."""
    what = STEPS[stage]
    if state.stage != stage:
        raise SecureSumError(
            f"{what} are taken once, after {stage!r}, and the server stands at {state.stage!r} of"
            f" round {state.number}: begin a new round."
        )
    found = _by_client(answers, known, what)
    if other := [q for q, a in found.items() if getattr(a, "number", None) != state.number]:
        raise SecureSumError(
            f"{what} of the clients {other} are of another round than {state.number}: leave them"
            " out."
        )
    messages.enough(len(found), needed, f"sent {what}")
    return found
