"""The secure sum: exact with drop-outs, silent about single clients, and strict with messages."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from bonafed.codec import decode, encode
from bonafed.privacy import keystream
from bonafed.privacy.secure_sum import masking
from bonafed.privacy.secure_sum import protocol as at_client
from bonafed.privacy.secure_sum import protocol as at_server
from bonafed.privacy.secure_sum.messages import (
    BeginRound,
    FixedPoint,
    Masked,
    SecureSumError,
    Terms,
    Unmask,
    terms,
)

REFUSED = pytest.raises(SecureSumError)


def fixed(seed: int) -> Callable[[int], bytes]:
    """A source of bytes that follow from a seed."""
    return np.random.default_rng(seed).bytes


class Group:
    """Clients and server of a run, and all that travelled, through the codec."""

    def __init__(self, n: int, threshold: int | None = None, seed: int = 0) -> None:
        self.terms = terms("test", n) if threshold is None else Terms("test", n, threshold)
        self.draws = [fixed(1000 * seed + i) for i in range(n)]
        self.sent: list[Any] = []
        made = [at_client.advertise(self.terms, i, draw=d) for i, d in enumerate(self.draws)]
        self.server, roster = at_server.enrol(self.terms, [self.sends(a) for _, a in made])
        self.clients = {i: at_client.agree(c, self.sends(roster)) for i, (c, _) in enumerate(made)}

    def sends(self, message: Any) -> Any:
        self.sent.append(message)
        return decode(encode(message))

    def step(self, does: Callable[..., Any], who: Collection[int], *given: Any) -> list[Any]:
        answers = []
        for i in sorted(who):
            own = [g[i] if isinstance(g, dict | np.ndarray) else g for g in given]
            more = {"draw": self.draws[i]} if does is at_client.share else {}
            self.clients[i], answer = does(decode(encode(self.clients[i])), *own, **more)
            answers.append(self.sends(answer))
        return answers

    def shared(self, number: int, who: Collection[int]) -> dict[int, Any]:
        self.server, begin = at_server.begin(self.server, number)
        shares = self.step(at_client.share, who, self.sends(begin))
        self.server, delivered = at_server.deliver(self.server, shares)
        return {q: self.sends(d) for q, d in delivered.items()}

    def masked(self, number: int, x: np.ndarray, shared: Collection[int], who: Collection[int]):
        delivered = self.shared(number, shared)
        answers = self.step(at_client.mask, who, delivered, x)
        self.server, unmask = at_server.unmask(self.server, answers)
        return answers, self.sends(unmask)

    def total(
        self, x: np.ndarray, gone: tuple[Collection[int], ...] = ((), (), ()), number: int = 1
    ) -> np.ndarray:
        """The sum; gone are those that do not share, mask, reveal."""
        shared = set(self.clients) - set(gone[0])
        stayed = shared - set(gone[1])
        _, unmask = self.masked(number, x, shared, stayed)
        revealed = self.step(at_client.reveal, stayed - set(gone[2]), unmask)
        self.server, result = at_server.total(decode(encode(self.server)), revealed)
        assert self.server.stayed == tuple(sorted(stayed))
        return result


def vectors(n: int, d: int = 300, seed: int = 0) -> np.ndarray:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    x = np.random.default_rng(seed).integers(low, high, (n, d), endpoint=True)
    x[0, 0], x[-1, 0] = low, -1
    return x


def wrapped(x: np.ndarray) -> list[int]:
    """The column sums modulo 2^64 in two's complement, by Python's integers."""
    return [(sum(map(int, c)) + 2**63) % 2**64 - 2**63 for c in x.T]


# ---- sums


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("d", [1, 256, 3000])
def test_sums_are_exact_in_every_round(n: int, d: int):
    group = Group(n)
    for number in (1, 2, 7):
        x = vectors(n, d, number)
        assert group.total(x, number=number).tolist() == wrapped(x)


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("n", [3, 7, 12])
def test_a_third_may_drop_out_at_any_stage_and_come_back(n: int, stage: int):
    group, x = Group(n), vectors(n)
    left = range(0, 3 * (n // 3), 3)
    gone = tuple(left if s == stage else () for s in range(3))
    in_sum = [i for i in range(n) if stage == 2 or i not in left]
    assert group.total(x, gone).tolist() == wrapped(x[in_sum])
    assert group.total(x, number=2).tolist() == wrapped(x)
    one_more = tuple(range(n // 3 + 1) if s == stage else () for s in range(3))
    with pytest.raises(SecureSumError, match="begin a new round"):
        group.total(x, one_more, 3)
    assert group.total(x, number=4).tolist() == wrapped(x)


@settings(max_examples=40)
@given(st.data())
def test_any_drop_outs_give_the_sum_of_those_that_stayed_or_an_error(data: st.DataObject):
    n = data.draw(st.integers(2, 9))
    t = data.draw(st.integers(n // 2 + 1, n))
    group, x = Group(n, t), vectors(n, 5)
    for number in (1, 2):
        when = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
        gone = tuple([i for i in range(n) if when[i] == s] for s in range(3))
        if n - sum(map(len, gone)) < t:
            with REFUSED:
                group.total(x, gone, number)
        else:
            stayed = [i for i in range(n) if when[i] > 1]
            assert group.total(x, gone, number).tolist() == wrapped(x[stayed])


def test_the_same_bytes_give_the_same_messages():
    runs = [Group(4), Group(4), Group(4, seed=1)]
    for group in runs:
        group.total(vectors(4), ((), (2,), ()))
    one, same, other = ([encode(m) for m in g.sent] for g in runs)
    assert one == same
    assert one != other


def test_fixed_point_numbers():
    form = FixedPoint(2.0**-10, 8.0, 5)
    x = np.random.default_rng(0).uniform(-8, 8, (5, 40))
    found = form.numbers(Group(5).total(np.stack([form.whole(row) for row in x])))
    assert np.abs(found - x.sum(0)).max() <= 5 * form.step / 2 + 1e-12
    for bad in (8.001, -9.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="within the bound"):
            form.whole([0.0, bad])
    largest = FixedPoint(1.0, 2.0**62, 1)
    assert largest.whole([-(2.0**62)])[0] == -(2**62)
    for step, bound, clients in ((1.0, 2.0**62, 2), (0.1, 1.0, 2), (1.0, np.nan, 2), (1.0, 1.0, 0)):
        with pytest.raises(ValueError, match=r"take|declare"):
            FixedPoint(step, bound, clients)


# ---- numbers of 128 bits


def whole_of(words: np.ndarray) -> list[int]:
    """The numbers of pairs of words, by Python's integers."""
    pairs = [int(low) + (int(high) << 64) for low, high in words.reshape(-1, 2)]
    return [number - (number >> 127 << 128) for number in pairs]


def test_pairs_of_words_are_numbers_and_add_up_with_carries():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.normal(size=200) * 10.0 ** rng.integers(-25, 17, 200), [0.5, -0.5, -0.0]]
    )
    words = masking.of_numbers(x, 10)
    exact = [round(Fraction(float(v)) * 2**63) for v in x]
    assert whole_of(words) == exact
    np.testing.assert_allclose(masking.numbers(words), x, rtol=2**-52, atol=2.0**-64)
    assert whole_of(masking.added(words, words[::-1].copy())) == [
        (a + b + 2**127) % 2**128 - 2**127
        for a, b in zip(exact, whole_of(words[::-1].copy()), strict=True)
    ]
    assert whole_of(masking.of_whole(np.array([-1, 0, 5, -(2**63)]))) == [-1, 0, 5, -(2**63)]
    for bad in (np.nan, np.inf, -(2.0**60)):
        with pytest.raises(ValueError, match="within the bound"):
            masking.of_numbers([bad], 10)


@pytest.mark.parametrize("gone", [(), (1, 4)])
def test_sums_of_wide_numbers_are_exact_with_drop_outs(gone: tuple[int, ...]):
    group = Group(7)
    x = np.random.default_rng(1).integers(0, 2**64, (7, 6000), np.uint64)
    delivered = group.shared(1, range(7))
    stayed = [i for i in range(7) if i not in gone]
    answers = group.step(at_client.mask, stayed, delivered, x, True)
    group.server, unmask = at_server.unmask(group.server, answers)
    group.server, total = at_server.total(
        group.server, group.step(at_client.reveal, stayed, group.sends(unmask))
    )
    of_each = [whole_of(x[i]) for i in stayed]
    expected = [(sum(each) + 2**127) % 2**128 - 2**127 for each in zip(*of_each, strict=True)]
    assert whole_of(total.view(np.uint64)) == expected
    for answer in answers:
        counts = np.bincount(answer.vector.view(np.uint8), minlength=256)
        assert chi2.isf(1e-6, 255) > ((counts - counts.mean()) ** 2 / counts.mean()).sum()


def test_who_only_holds_shares_is_in_no_sum_and_helps_to_open_it():
    group = Group(7)
    group.terms = Terms("test", 7, 5, fewest=2)
    made = [at_client.advertise(group.terms, i) for i in range(7)]
    group.server, roster = at_server.enrol(group.terms, [a for _, a in made])
    group.clients = {i: at_client.agree(c, roster) for i, (c, _) in enumerate(made)}
    x = vectors(7)
    group.server, begin = at_server.begin(group.server, 1)
    shares = group.step(at_client.share, range(7), begin)
    group.server, delivered = at_server.deliver(group.server, shares, (1, 4, 5))
    with pytest.raises(SecureSumError, match="itself"):
        at_client.mask(group.clients[0], delivered[0], x[0])
    with pytest.raises(SecureSumError, match="it has to"):
        at_client.hold(group.clients[1], delivered[1])
    for i in (0, 2, 3, 6):
        group.clients[i] = at_client.hold(group.clients[i], delivered[i])
    answers = group.step(at_client.mask, (1, 4), delivered, x)
    group.server, unmask = at_server.unmask(group.server, answers)  # client 5 drops out
    revealed = group.step(at_client.reveal, (0, 1, 2, 4, 6), unmask)
    assert at_server.total(group.server, revealed)[1].tolist() == wrapped(x[[1, 4]])


# ---- what the server sees


def test_masked_vectors_look_uniform_and_tell_nothing_of_the_vector():
    for value in (0, -1):
        x = np.full((3, 40_000), value)
        answers, _ = Group(3).masked(1, x, range(3), range(3))
        for a in answers:
            counts = np.bincount(a.vector.view(np.uint8), minlength=256)
            expected = counts.sum() / 256
            assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255)


def test_all_masked_vectors_of_two_inputs_with_equal_sums_are_equally_likely():
    """The masks of three clients modulo 3, all seeds: pairwise ones, and self masks once opened."""
    seen = []
    for x in ((0, 1, 2), (2, 2, 2)):
        views = []
        for k01, k02, k12 in itertools.product(range(3), repeat=3):
            total = np.array(x)
            for (p, q), k in {(0, 1): k01, (0, 2): k02, (1, 2): k12}.items():
                total[p] += k * np.sign(q - p)  # the rule of at_client.mask and at_server.total
                total[q] += k * np.sign(p - q)
            views.append(tuple(total % 3))
        seen.append(sorted(views))
    assert seen[0] == seen[1]
    assert len({v[:2] for v in seen[0]}) == 9  # any two of them: uniform on all pairs


def test_opened_self_masks_leave_pairwise_ones_that_are_uniform_and_cancel():
    """What the code sends follows that rule: less the self masks, vectors are still uniform, and
    their changes under other inputs with the same sum are those of the inputs.
    """
    x = np.zeros((3, 40_000), np.int64)
    moved = x + np.array([[5], [-7], [2]])
    opened = []
    for vector in (x, moved):
        group = Group(3)
        delivered = group.shared(1, range(3))
        own = [group.clients[i].own for i in range(3)]
        rows = np.stack([a.vector for a in group.step(at_client.mask, range(3), delivered, vector)])
        for row, key in zip(rows, own, strict=True):
            masking.add(row, key[None], np.array([-1], np.int8))
        opened.append(rows)
    assert not opened[0].sum(0).any()
    assert np.array_equal((opened[1] - opened[0]).view(np.int64), moved)
    for row in opened[0]:
        counts = np.bincount(row.view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255)


def test_fewer_than_t_shares_do_not_unmask():
    n, t = 7, 5
    group = Group(n, t)
    delivered = group.shared(1, range(n))
    own = group.clients[0].own
    group.step(at_client.mask, range(n), delivered, vectors(n, 10))
    held = np.stack([group.clients[i].held[0, 0] for i in range(1, n)]).astype(np.uint64)
    points = np.arange(2, n + 1, dtype=np.uint64)

    def found(count: int) -> np.ndarray:
        secret = masking.secrets_of(points[:count], held[:count, None])[0]
        return keystream.key_words(masking.as_key(secret))

    assert np.array_equal(found(t), own)
    for count in range(1, t):
        assert not np.array_equal(found(count), own)
    # any secret is possible: some polynomial of degree t - 1 has it and all shares of t - 1
    for guess in (0, 1, 12345):
        known = np.concatenate([held[: t - 1, :1], np.full((1, 1), guess, np.uint64)])
        at = np.append(points[: t - 1], np.uint64(0))
        value = sum(  # Lagrange at the next holder
            int(known[i, 0])
            * np.prod([(7 - int(at[j])) for j in range(t) if j != i], dtype=object)
            * pow(
                int(np.prod([int(at[i]) - int(at[j]) for j in range(t) if j != i], dtype=object)),
                -1,
                masking.PRIME,
            )
            for i in range(t)
        )
        more = np.append(known[: t - 1, 0], np.uint64(value % masking.PRIME)).reshape(t, 1, 1)
        again = masking.secrets_of(np.append(points[: t - 1], np.uint64(7)), more)
        assert again.ravel().tolist() == [guess]


def test_what_is_opened_in_a_round_is_not_that_of_another(monkeypatch: pytest.MonkeyPatch):
    """A client that stayed in round 1 drops out in round 2: what opens then is of round 2 alone."""
    group, x = Group(4, 3), vectors(4, 50)
    root = group.clients[0].roots
    group.masked(1, x, range(4), range(4))
    own = group.clients[0]
    assert own.own is None  # forgotten as soon as it has masked
    keys = [masking.of_round(root, np.uint64(r)) for r in (1, 2)]
    _, unmask = group.masked(2, x, range(4), (1, 2, 3))
    opened = []
    taken = masking.key_rows
    monkeypatch.setattr(
        masking, "key_rows", lambda *given: opened.append(taken(*given)) or opened[-1]
    )
    at_server.total(group.server, group.step(at_client.reveal, (1, 2, 3), unmask))
    assert len(opened) == 1  # of client 0 alone
    assert np.array_equal(opened[0][1:], keys[1][1:])
    assert not opened[0][0].any()
    assert not np.isin(opened[0][1:], np.concatenate([keys[0], root])).any()


def test_no_secret_stands_in_a_repr():
    group = Group(3)
    group.total(vectors(3), ((), (1,), ()))
    group.shared(2, range(3))
    for thing in (*group.clients.values(), group.server, *group.sent):
        text = repr(thing)
        for name in ("private", "roots", "ciphers", "own", "held", "shares"):
            assert f"{name}=" not in text


# ---- refusals


def change(array: np.ndarray, at: int = -1) -> np.ndarray:
    other = array.copy()
    other.flat[at] ^= 1
    return other


def test_a_client_refuses_shares_that_are_not_as_sealed():
    group, x = Group(3), vectors(3, 4)
    good = group.shared(1, range(3))[0]
    own, v = group.clients[0], x[0]
    for bad in (
        replace(good, sealed=change(good.sealed)),
        replace(good, nonces=change(good.nonces)),
        replace(good, sealed=good.sealed[[0, 2, 1]], nonces=good.nonces[[0, 2, 1]]),  # of another
        replace(good, number=2),
        replace(good, senders=np.array([0, 1, 1])),
        replace(good, senders=np.array([0, 1, 7])),
        replace(good, senders=good.senders[1:], nonces=good.nonces[1:], sealed=good.sealed[1:]),
        replace(good, senders=good.senders[:1], nonces=good.nonces[:1], sealed=good.sealed[:1]),
        replace(good, sealed=good.sealed[:, :-1]),
        group.shared(2, range(3))[1],
    ):
        with REFUSED:
            at_client.mask(own, bad, v)
    with pytest.raises(SecureSumError, match="one axis"):
        at_client.mask(own, good, v.reshape(2, 2))
    with pytest.raises(TypeError, match="FixedPoint"):
        at_client.mask(own, good, v.astype(float))
    masked, _ = at_client.mask(own, good, v)
    with REFUSED:
        at_client.mask(masked, good, v)


def test_a_client_opens_one_secret_of_each_once():
    group, x = Group(4, 3), vectors(4, 4)
    _, good = group.masked(1, x, range(4), (0, 1, 2))
    own = group.clients[0]

    def asked(stayed: list[int], dropped: list[int], number: int = 1) -> Unmask:
        return Unmask(number, np.array(stayed, int), np.array(dropped, int))

    with pytest.raises(SecureSumError, match="both secrets"):
        at_client.reveal(own, asked([0, 1, 2], [2, 3]))
    for bad in (
        asked([0, 1, 2], []),
        asked([0, 1], [2, 3]),
        asked([1, 2, 3], [0]),
        asked([0, 1, 2, 5], [3]),
        asked([0, 2, 1], [3]),
        asked([0, 1, 2], [3], 2),
    ):
        with REFUSED:
            at_client.reveal(own, bad)
    after, _ = at_client.reveal(own, good)
    with REFUSED:
        at_client.reveal(after, good)
    with REFUSED:
        at_client.share(after, BeginRound(1))


def test_the_server_refuses_what_does_not_fit():
    group, x = Group(4, 3), vectors(4, 4)
    answers, unmask = group.masked(1, x, range(4), (0, 1, 2))
    revealed = group.step(at_client.reveal, (0, 1, 2), unmask)
    ready = group.server
    for bad in (
        revealed[:2],
        [*revealed[:2], revealed[0]],
        [*revealed[:2], replace(revealed[2], client=3)],
        [*revealed[:2], replace(revealed[2], number=2)],
        [*revealed[:2], replace(revealed[2], shares=change(revealed[2].shares))],
        [*revealed[:2], replace(revealed[2], shares=change(revealed[2].shares, 0))],
        [replace(revealed[0], shares=revealed[1].shares), *revealed[1:]],
        [*revealed[:2], replace(revealed[2], shares=revealed[2].shares[:3])],
    ):
        with REFUSED:
            at_server.total(ready, bad)
    done, total = at_server.total(ready, revealed)
    assert total.tolist() == wrapped(x[:3])
    for late in ((done, revealed), (at_server.begin(done, 2)[0], revealed)):
        with REFUSED:
            at_server.total(*late)
    with REFUSED:
        at_server.begin(done, 1)
    group.shared(2, range(4))
    vector = np.zeros(4, np.uint64)
    good = [Masked(i, 2, vector) for i in range(4)]
    for bad in (answers, [*good[:3], Masked(3, 2, vector[:3])], [*good[:3], Masked(9, 2, vector)]):
        with REFUSED:
            at_server.unmask(group.server, bad)


def test_keys_that_are_not_those_of_the_clients_are_refused():
    agreed = terms("test", 3)
    names = [Ed25519PrivateKey.from_private_bytes(bytes([i + 1] * 32)) for i in range(3)]
    identities = {i: name.public_key().public_bytes_raw() for i, name in enumerate(names)}
    made = [at_client.advertise(agreed, i, sign=names[i].sign) for i in range(3)]
    _, roster = at_server.enrol(agreed, [a for _, a in made])
    own = made[0][0]
    state = at_client.agree(own, roster, identities=identities)
    with REFUSED:  # once
        at_client.agree(state, roster)
    unsigned = replace(roster, signatures=(*roster.signatures[:2], np.zeros(0, np.uint8)))
    swapped = replace(roster, signatures=roster.signatures[::-1])
    for bad in (unsigned, swapped, replace(roster, signatures=())):
        with REFUSED:
            at_client.agree(own, bad, identities=identities)
    with REFUSED:  # client 1 under the name of client 2
        at_client.agree(own, roster, identities={**identities, 2: identities[1]})
    no_point = roster.keys.copy()
    no_point[2] = 0
    for keys in (no_point, roster.keys[::-1].copy(), roster.keys[:, :31]):
        with REFUSED:
            at_client.agree(own, replace(roster, keys=keys))
    with REFUSED:
        at_client.advertise(agreed, 3)
    for clients, threshold in ((1, 1), (4, 2), (4, 5)):
        with pytest.raises(ValueError, match="more than half"):
            Terms("test", clients, threshold)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr("bonafed.privacy.secure_sum.messages.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"\.\[sign\]"):
        at_client.advertise(terms("test", 3), 0)


def test_numbers_of_the_field_are_below_its_prime():
    p = masking.PRIME
    numbers = {0: 0, 1: 1, p - 1: p - 1, p: 0, p + 1: 1, 2 * p: 0, p * p: 0, 2**62: 2**62 % p}
    for x, reduced in numbers.items():
        assert int(masking._reduced(np.uint64(x))) == reduced
