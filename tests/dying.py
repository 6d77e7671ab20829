"""The command line in a process that ends by SIGKILL at an exact moment.

    python dying.py ROOT K COMMAND...          K: a number, or WHAT PATH#NUMBER

A moment is anything that changes a file below ROOT (a folder made, a file opened to be written,
half of its bytes written, synchronised, renamed, removed), or a table that is opened to be read.
The process dies just before moment K (from 1), or before the one of this number that does this to a
file whose path ends so; with K = 0 it lives, and with -K Ctrl-C comes then.
ROOT/moments has the moments so far, one a line; ROOT/answers every answer of a client in a private
run: place in the ledger, client, round, digest. Keys of noise are the same in every process, so
that runs can be compared.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Any

ROOT = os.path.realpath(sys.argv[1])
WHAT, _, NUMBER = sys.argv[2].rpartition("#")
LAST = int(NUMBER)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
TABLES = (".csv", ".csv.gz", ".data.gz")
count, real_write, real_fsync = 0, os.write, os.fsync
moments = os.open(os.path.join(ROOT, "moments"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
answers = os.open(os.path.join(ROOT, "answers"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def moment(what: str, path: object) -> bool:
    """Count a moment and note it; whether it is the last one."""
    global count
    name = os.path.relpath(os.fsdecode(path), ROOT) if isinstance(path, str | bytes) else path
    line, (kind, _, end) = f"{what} {name}", WHAT.partition(" ")
    meant = line.startswith(kind) and line.endswith(end)
    count += meant
    real_write(moments, f"{line}\n".encode())
    return meant and count == abs(LAST)


def die() -> None:
    """End as if the machine had, or be interrupted."""
    os.kill(os.getpid(), signal.SIGKILL if LAST > 0 else signal.SIGINT)


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    """See what Python is about to do."""
    if event == "open":
        path, _, flags = arguments
        if not isinstance(path, str | bytes):
            return
        text = os.fsdecode(path)
        if flags & WRITES and inside(path):
            if moment("open", text):
                die()
        elif text.endswith(TABLES) and moment("read", text):
            die()
    elif event in CHANGES:
        path = arguments[1] if event == "os.rename" else arguments[0]
        within = isinstance(arguments[-1], int) and arguments[-1] >= 0  # of an open folder
        if not within and not (isinstance(path, str | bytes | os.PathLike) and inside(path)):
            return
        if moment(event, os.fspath(path)):
            die()


def inside(path: Any) -> bool:
    """Whether a path is below ROOT."""
    return os.path.realpath(os.fsdecode(path)).startswith(ROOT)


def write(file: int, data: Any) -> int:
    """Write half of the bytes in the last moment."""
    if moment("write", file):
        real_write(file, bytes(data)[: len(data) // 2])
        die()
    return real_write(file, data)


def fsync(file: int) -> None:
    """Die before what was written is safe."""
    if moment("fsync", file):
        die()
    real_fsync(file)


def main() -> None:
    """Run the command under the hooks."""
    from bonafed import cli
    from bonafed.algorithms.federated.private import noisy_gradient
    from bonafed.algorithms.federated.private_admm import PrivateADMM

    def perturb(algorithm: Any, memory: Any, ask: Any, data: Any, rng: Any) -> Any:
        memory, up = real_perturb(algorithm, memory, ask, data, rng)
        place = getattr(algorithm.plan, "place", 0)
        for client, z in zip(data.names, memory.z, strict=True):
            digest = hashlib.blake2b(z.tobytes(), digest_size=8).hexdigest()
            real_write(
                answers, f"{place} {client.replace(' ', '_')} {ask.round} {digest}\n".encode()
            )
        return memory, up

    method: Any = PrivateADMM
    real_perturb, method.perturb = method.perturb, perturb
    noisy_gradient.os.urandom = lambda n: bytes(k % 251 for k in range(n))
    sys.argv = ["bonafed", *sys.argv[3:]]
    os.write, os.fsync = write, fsync
    sys.addaudithook(hook)
    cli.main()


if __name__ == "__main__":
    main()
