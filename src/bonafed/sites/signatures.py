"""Signatures of sites: what a site sends can be proved to be its answer to one question.

A site has a key pair of Ed25519. The private key stays in a file that only its owner can read; the
public key is a line of text, which the site hands to anyone who is to check its answers, by another
way than through the server.

A signed answer is an `Envelope` with two more fields: ``asked``, the digest of the question and of
everything else that the answer depends on and the server chose, and ``signature``, over the bytes
of the envelope that has everything but the signature. So nobody can use it as the answer of another
site, in another experiment, to another question, or with another body.

Signatures need the package cryptography: ``pip install '.[sign]'``.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bonafed.codec import CodecError, decode, encode
from bonafed.storage import OWN, make_folder, write_whole
from bonafed.text import install, shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from bonafed.engines.wire import Envelope

Sign = Callable[[bytes], bytes]  # the signature of the bytes, by the key of a site
KIND, ENDING = "bonafed-ed25519", ".pub"
INSTALL = install("sign")


class SignatureError(ValueError):
    """An answer that its site did not sign, or that was changed since."""


# -------------------------------------------------------------------------------------------- keys


def make_key(path: Path) -> None:
    """Make a private key in a new file that nobody else can read.

    Raises
    ------
    FileExistsError : there is one; what it signed could not be checked with another one
    """
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if path.exists():
        raise FileExistsError(f"there is a file {str(path)!r} already: name another one.")
    key = Ed25519PrivateKey.generate()
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    text = key.private_bytes(*form, serialization.NoEncryption())
    make_folder(path.parent)
    write_whole(path, text, OWN)


def signer(path: Path) -> Sign:
    """What signs with the private key in a file.

    Raises
    ------
    FileNotFoundError, ValueError : no file, or one that holds no key of this kind
    """
    return _private(path).sign


def public_line(path: Path, site: str) -> str:
    """The public key of a private one as a line for people: its kind, the key, whose it is."""
    key = base64.b64encode(_private(path).public_key().public_bytes_raw()).decode()
    return f"{KIND} {key} {site}"


def _private(path: Path) -> "Ed25519PrivateKey":
    """The private key in a file."""
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError as error:
        text = f"there is no private key {str(path)!r}: make one with `bonafed site key`."
        raise FileNotFoundError(text) from error
    except (ValueError, TypeError) as error:  # a TypeError for one that has a password
        raise ValueError(f"{str(path)!r} holds no private key without a password.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{str(path)!r} holds a {type(key).__name__}, and not one of Ed25519.")
    return key


def read_keys(folder: Path) -> dict[str, bytes]:
    """The public keys in the .pub files of a folder, a line in each, by site.

    Raises
    ------
    ValueError : no such files, lines that are not a public key, or two keys of one site
    """
    keys: dict[str, bytes] = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        parts = path.read_text(encoding="utf-8", errors="replace").strip().split(" ", 2)
        try:
            kind, text, site = parts
            key = base64.b64decode(text, validate=True)
        except ValueError:
            kind, key, site = "", b"", ""
        if kind != KIND or len(key) != 32 or not site.isprintable():
            raise ValueError(
                f"{str(path)!r} holds no public key of a site: it needs one line, {KIND}, the key"
                " and the name of the site, as `bonafed site key` prints it."
            )
        if site in keys:
            raise ValueError(f"{folder} has two public keys of the site {site!r}: remove one.")
        keys[site] = key
    if not keys:
        do = "save there what every site's `bonafed site key` prints, each in a file such as"
        raise ValueError(f"{folder} has no public key: {do} north{ENDING}.")
    return keys


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise ImportError(f"signatures need the package cryptography: {INSTALL}")


# ----------------------------------------------------------------------------------------- answers


def asked(question: bytes, *known: bytes) -> str:
    """The digest of a question as it arrived, and of what its site was told before that its answer
    depends on: `known` are digests.
    """
    return hashlib.sha256(b"".join([hashlib.sha256(question).digest(), *known])).hexdigest()


def signed(reply: "Envelope", digest: str, sign: Sign) -> "Envelope":
    """The answer with its signature; ``digest`` is that of what was ``asked``."""
    reply = replace(reply, asked=digest, signature=None)
    return replace(reply, signature=np.frombuffer(sign(encode(reply)), np.uint8))


def opened(data: bytes, key: bytes) -> "Envelope":
    """The answer in these bytes, which the site with this public key signed.

    Raises
    ------
    SignatureError : bytes that were changed, or that somebody else signed, or nobody
    """
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from bonafed.engines.wire import Envelope

    try:
        reply = decode(data)
    except CodecError as error:
        raise SignatureError(f"its bytes were changed ({error})") from error
    if not isinstance(reply, Envelope):
        raise SignatureError(f"a {type(reply).__name__} is not an answer of a site")
    if not isinstance(reply.signature, np.ndarray) or reply.signature.dtype != np.uint8:
        raise SignatureError("it has no signature")
    if encode(reply) != data:
        raise SignatureError("its bytes are not as a site writes them")
    try:
        content = encode(replace(reply, signature=None))
        Ed25519PublicKey.from_public_bytes(key).verify(reply.signature.tobytes(), content)
    except InvalidSignature as error:
        text = f"it was changed, or {shown(reply.site)} signed it with another key than its own"
        raise SignatureError(text) from error
    return reply
