"""The bonafed that is installed, as one digest that sites and servers compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]  # the folder of bonafed


@cache
def package_digest() -> str:
    """SHA-256 over the names and hashes of all files of the installed bonafed."""
    return digest_of(
        (path.relative_to(PACKAGE).as_posix(), path.read_bytes())
        for path in PACKAGE.rglob("*")
        if path.is_file()
    )


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """SHA-256 over the lines ``name hash`` of files, sorted; compiled files are left out."""
    lines = sorted(
        f"{name} {hashlib.sha256(data).hexdigest()}\n"
        for name, data in files
        if "__pycache__" not in name and not name.endswith(".pyc")
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()
