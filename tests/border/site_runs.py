"""Finished runs over sites, as the command line leaves them: folder, signed answers
and the sites' public keys.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from border.carriers import in_process, transport
from sites.folders import NAMES, WIDE, folder_of

from bonafed.config.config import parse_config
from bonafed.rounds import decode
from bonafed.runs.work import Work
from bonafed.sites import run as runs
from bonafed.sites.server import RESULT, serve
from bonafed.sites.signatures import make_key, public_line


@dataclass(frozen=True)
class SiteRun:
    """The folder of a finished run, and that of the public keys."""

    path: Path
    keys: Path


def sites_in(place: Path, policy: str = "") -> Path:
    """Sites that sign, below a folder; returns that of their public keys."""
    keys = place / "keys"
    keys.mkdir(parents=True)
    for name in NAMES:
        folder = folder_of(place / "sites", name, f"{policy}\n{WIDE}")
        file = folder / "site.toml"
        file.write_text(file.read_text().replace("[data]", 'key = "site.key"\n\n[data]'))
        make_key(folder / "site.key")
        (keys / f"{name}.pub").write_text(public_line(folder / "site.key", name) + "\n")
        (folder / "site.secret").write_bytes(bytes(32))
        (folder / "site.secret").chmod(0o600)
    return keys


def finished(place: Path, text: str, policy: str = "", carrier: Any = in_process) -> SiteRun:
    """The run of a configuration over a carrier, with all that is left of it."""
    keys, config = sites_in(place, policy), parse_config(text)
    with ExitStack() as stack:
        calls = {name: stack.enter_context(carrier(place / "sites" / name, name)) for name in NAMES}
        work = Work.begin(config, place / "runs", "trial")
        server = work.folder / "engine" / "server"
        job = runs.job_of_config(work.config, "trial", "flare-sim")
        serve(transport(calls, "server", carrier), server, job)
    result = decode((server / RESULT).read_bytes())
    solutions = dict(runs._solutions(result, work.folder))
    path = runs._written(work, result, solutions, None, None)
    runs.keep_signed(work.folder, path)
    work.lock.free()
    return SiteRun(path, keys)
