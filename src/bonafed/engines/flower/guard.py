"""A guard for a site: its SuperNode runs the app bundles that the site approved, and no others.

By itself a SuperNode runs every app that its SuperLink sends, with its own rights: such an app
could read the site's rows and pass by ``site.toml``. Flower's check of signatures serves its own
hub only. For every message a SuperNode starts the program ``flwr-clientapp`` by its bare name; the
guard is a program of that name which comes first on the SuperNode's PATH. It compares the SHA-256
of the bundle with a file of the site's before Flower unpacks it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bonafed.storage import make_folder, write_whole

PROGRAM = "flwr-clientapp"


class NotApprovedError(RuntimeError):
    """A bundle that the site has not approved."""


def guarded(folder: Path, approved: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a SuperNode has to be started so that the guard stands before it.

    Parameters
    ----------
    folder : where the guard's program is written; nobody else may write there
    approved : the file of the site's with one SHA-256 a line, read again for every message; what
        follows a # is a remark
    environment : the one to change, such as ``os.environ``
    """
    make_folder(folder)
    program = (
        f"#!{sys.executable}\n"
        f"from bonafed.engines.flower.guard import main\n\n"
        f"main({str(approved.absolute())!r})\n"
    )
    write_whole(folder / PROGRAM, program.encode(), 0o755)
    path = os.pathsep.join([str(folder.absolute()), environment.get("PATH", "")])
    return {**environment, "PATH": path}


def main(approved: str) -> None:
    """Be Flower's program, behind the guard."""
    from flwr.supernode.cli.flwr_clientapp import (  # pyright: ignore[reportMissingImports]
        flwr_clientapp,
    )

    stand_before(Path(approved))
    flwr_clientapp()


def stand_before(approved: Path) -> None:
    """Check every bundle before Flower unpacks it in this process."""
    from flwr.supernode.runtime import (  # pyright: ignore[reportMissingImports]
        run_clientapp as flower,
    )

    # another Flower, which has no such function, ends here with an error and runs nothing
    install = flower.install_from_fab

    def checked(bundle: bytes, *given: Any, **more: Any) -> Path:
        check_approved(bundle, approved)
        return install(bundle, *given, **more)

    flower.install_from_fab = checked


def check_approved(bundle: bytes, approved: Path) -> None:
    """Raise ``NotApprovedError`` for a bundle whose SHA-256 is not in the file."""
    lines = approved.read_text(encoding="utf-8").splitlines()
    known = {line.partition("#")[0].strip().lower() for line in lines}
    given = hashlib.sha256(bundle).hexdigest()
    if given not in known:
        raise NotApprovedError(f"the bundle {given} is not approved at this site")
