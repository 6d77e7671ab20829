"""What a FLARE site or server has on its own disk: the folder to work in, filters, loggers.

Nothing of it comes with a job. FLARE hands a job's process the folder ``local`` of its site, whose
files the site's administrator writes.
"""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import tomli_w

from bonafed.engines.flare.job import JOB_FILE
from bonafed.storage import make_folder, write_whole
from bonafed.text import install, shown

Role = Literal["site", "server"]
FILTERS = ("task_data_filters", "task_result_filters")
# FLARE logs each of these at every call, and prints the whole interface of both sides
NOISY = ("nvflare.collab", "nvflare.fuel.f3", "nvflare.private.fed.client.communicator")
INSTALL = install("flare")
NEEDED = "2.9"


def require_flare() -> None:
    """Raise an error that says what to install where FLARE is missing or of another version."""
    try:
        there = version("nvflare")
    except PackageNotFoundError:
        there = "not installed"
    if not there.startswith(f"{NEEDED}."):
        raise ImportError(f"nvflare is {there}; {NEEDED} is needed: {INSTALL}")


def setting(role: Role) -> str:
    """The file of the ``local`` folder that names the folder to work in."""
    return f"bonafed_{role}.toml"


def variable(role: Role) -> str:
    """The environment variable that names the folder to work in."""
    return f"BONAFED_{role.upper()}"


def write_setting(local: Path, role: Role, folder: Path | Mapping[str, Path]) -> Path:
    """Name the folder to work in, or for the simulator one folder for each site."""
    if isinstance(folder, Mapping):
        named: object = {name: str(path.absolute()) for name, path in folder.items()}
    else:
        named = str(folder.absolute())
    target = local / setting(role)
    make_folder(local)
    write_whole(target, tomli_w.dumps({"folder": named}).encode())
    return target


def working_folder(
    role: Role, name: str, local: Path, environment: Mapping[str, str] = os.environ
) -> Path:
    """The folder that the site or the server was configured with, never one that a job names.

    The environment variable comes first, then the file of the ``local`` folder. In the simulator
    all sites have one such file, with a folder for each name.
    """
    if given := environment.get(variable(role)):
        return Path(given)
    file = local / setting(role)
    if not file.exists():
        raise FileNotFoundError(
            f'{role} {name} does not know its folder: write folder = "/the/path" into {file}, or '
            f"set {variable(role)} in the environment of the FLARE daemon"
        )
    folder = tomllib.loads(file.read_text(encoding="utf-8")).get("folder")
    if isinstance(folder, dict):
        folder = folder.get(name)
    if not isinstance(folder, str):
        raise ValueError(
            f"{file} names {shown(folder)} as the folder of {role} {name}; a path is needed: "
            f'write folder = "/the/path"'
        )
    return Path(folder)


def read_job(config: Path) -> dict[str, str]:
    """The job that was exported, read from the folder of its configuration at the server."""
    job = tomllib.loads((config / JOB_FILE).read_text(encoding="utf-8"))
    if wrong := [key for key, value in job.items() if not isinstance(value, str)]:
        raise TypeError(f"{JOB_FILE} has an entry that is not text: {', '.join(sorted(wrong))}")
    return job


def filters(local: Path, config: Path) -> list[str]:
    """The filters that FLARE is told to apply at a site, by its privacy scopes and by the job.

    FLARE applies filters to tasks. A run of bonafed passes no task but calls, which no filter sees.
    """
    named = []
    scopes = _read(local / "privacy.json").get("scopes", [])
    for scope in scopes if isinstance(scopes, list) else []:
        for kind in FILTERS if isinstance(scope, dict) else ():
            for one in scope.get(kind) or []:
                named.append(f"{_named(one)} (privacy scope {scope.get('name', '?')}, {kind})")
    job = _read(config / "config_fed_client.json")
    for kind in FILTERS:
        for entry in job.get(kind) or []:
            for one in entry.get("filters", []) if isinstance(entry, dict) else []:
                named.append(f"{_named(one)} (job, {kind})")
    return named


def warning_about(named: list[str]) -> str:
    """What a site with filters must know, or nothing."""
    if not named:
        return ""
    return (
        "FLARE's filters are NOT in force in this run: FLARE applies them to tasks, and this run "
        "passes its messages as Collab calls, which no filter sees. Configured here: "
        f"{'; '.join(named)}. The site's policy (site.toml) is what is enforced."
    )


def quiet(level: int = logging.WARNING) -> None:
    """Turn down the loggers that write several lines at every call."""
    for name in NOISY:
        logging.getLogger(name).setLevel(level)


def _read(path: Path) -> dict:
    """A JSON object; nothing where there is no file or no object in it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _named(one: object) -> str:
    if not isinstance(one, dict):
        return shown(one, 60)
    return shown(one.get("name") or one.get("path") or one, 60)
