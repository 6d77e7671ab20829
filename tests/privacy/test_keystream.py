"""The key stream against the RFC's vectors and another implementation; what a key may be."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from bonafed.privacy.keystream import BATCH, BLOCK, key_words, words

KEY = bytes(range(32))


def place(counter: int, nonce: bytes) -> tuple[int, int]:
    """The first word and the stream that have the RFC's counter (32 bits) and nonce (96 bits)."""
    state = counter.to_bytes(4, "little") + nonce
    first, stream = (int.from_bytes(state[i : i + 8], "little") for i in (0, 8))
    return BLOCK * first, stream


def octets(values: np.ndarray) -> bytes:
    return values.astype("<u8").tobytes()


@pytest.mark.parametrize(
    ("key", "nonce", "counter", "block"),
    [
        (  # section 2.3.2
            KEY,
            "000000090000004a00000000",
            1,
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
        ),
        (  # appendix A.1, test vectors 1 to 5
            bytes(32),
            "000000000000000000000000",
            0,
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
        ),
        (
            bytes(32),
            "000000000000000000000000",
            1,
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
            "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
        ),
        (
            bytes(31) + b"\1",
            "000000000000000000000000",
            1,
            "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
            "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
        ),
        (
            b"\0\xff" + bytes(30),
            "000000000000000000000000",
            2,
            "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
            "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
        ),
        (
            bytes(32),
            "000000000000000000000002",
            0,
            "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
            "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
        ),
    ],
)
def test_the_vectors_of_rfc_8439(key, nonce, counter, block):
    first, stream = place(counter, bytes.fromhex(nonce))
    assert octets(words(key, first, BLOCK, stream)).hex() == block


@pytest.mark.parametrize("first", [0, 1, 7, 8, 250, 256, 1003])
@pytest.mark.parametrize("count", [0, 1, 8, BATCH - 1, BATCH, 3 * BATCH + 5])
@pytest.mark.parametrize("stream", [0, 1, 2**40 + 3, 2**64 - 1])
def test_any_words_are_those_of_another_implementation(first, count, stream):
    nonce = bytes(8) + stream.to_bytes(8, "little")
    cipher = Cipher(algorithms.ChaCha20(KEY, nonce), None).encryptor()
    stored = cipher.update(bytes(8 * (first + count)))
    assert octets(words(KEY, first, count, stream)) == stored[8 * first :]


def test_the_counter_goes_on_beyond_32_bits():
    over = 2**32 - 3  # within one batch of blocks
    made = words(KEY, BLOCK * over, 6 * BLOCK)
    for i in range(6):
        nonce = (over + i).to_bytes(8, "little") + bytes(8)
        alone = Cipher(algorithms.ChaCha20(KEY, nonce), None).encryptor().update(bytes(64))
        assert octets(made[BLOCK * i : BLOCK * (i + 1)]) == alone


def test_what_is_no_key_is_refused_and_no_message_shows_it():
    for wrong in ("k" * 32, bytearray(32), np.zeros(32, np.uint8), None, 7):
        with pytest.raises(TypeError, match=r"must be 32 bytes, got .*secrets.token_bytes"):
            key_words(wrong)
    for wrong in (b"", b"kept" * 4, b"kept" * 16, b"k" * 31):
        with pytest.raises(ValueError, match=f"32 bytes, got {len(wrong)}") as error:
            words(wrong, 0, 1)
        assert "kept" not in str(error.value)


def test_places_that_no_stream_has_are_refused():
    for first, stream in [(-1, 0), (2**67, 0), (0, -1), (0, 2**64)]:
        with pytest.raises(OverflowError):
            words(KEY, first, 1, stream)
