"""Certificates and keys for a Flower deployment on one machine, made when it starts.

Organisations have their own certificates; these are for trying out what encrypted connections
cost and whether they work.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from bonafed.storage import OWN, make_folder, write_whole

DAYS = 30


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form: the authority's certificate, the server's certificate and its key."""

    authority: Path
    server: Path
    key: Path


def make_certificates(folder: Path, host: str) -> Certificates:
    """Make an authority and the certificate of a server at an address."""
    from cryptography import x509  # pyright: ignore[reportMissingImports]
    from cryptography.hazmat.primitives import (  # pyright: ignore[reportMissingImports]
        hashes,
        serialization,
    )
    from cryptography.hazmat.primitives.asymmetric import (  # pyright: ignore[reportMissingImports]
        ec,
    )

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    ends = begins + datetime.timedelta(days=DAYS)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def signed(subject: str, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("bonafed deployment"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                False,
            )
        )
        if is_authority:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            address = x509.IPAddress(ipaddress.ip_address(host))
            names = x509.SubjectAlternativeName([address, x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(authority_key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    make_folder(folder)
    files = Certificates(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    write_whole(files.authority, signed("bonafed deployment", authority_key, True))
    write_whole(files.server, signed(host, server_key, False))
    key = server_key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_whole(files.key, key, OWN)
    return files


def make_node_key(path: Path) -> tuple[Path, Path]:
    """Make the key of a SuperNode in the form of OpenSSH; the files of both halves."""
    from cryptography.hazmat.primitives import (  # pyright: ignore[reportMissingImports]
        serialization,
    )
    from cryptography.hazmat.primitives.asymmetric import (  # pyright: ignore[reportMissingImports]
        ec,
    )

    private, public = path, path.with_name(path.name + ".pub")
    if not private.exists():
        make_folder(path.parent)
        key = ec.generate_private_key(ec.SECP384R1())
        half = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        whole = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        write_whole(public, half)
        write_whole(private, whole, OWN)
    return private, public
