"""The folder that is submitted to FLARE as a job, and what a site lists to accept such a job.

The folder has four files of text: no code, no data and nothing pickled. The classes that FLARE
builds are those of the installed package; every site and the server name them in the list of
permitted classes of their FLARE folder (`ALLOWED`, `allow`), and FLARE refuses all others.

    NAME/meta.json                         which sites take part
    NAME/app/config/config_fed_server.json   the classes of the server
    NAME/app/config/config_fed_client.json   the classes of a site
    NAME/app/config/bonafed_job.toml         the configuration of the run
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w

from bonafed.engines.job import check_name, experiment_of
from bonafed.storage import make_folder, write_whole
from bonafed.text import listed

SERVER, SITE = "bonafed.sites.flare_app.Server", "bonafed.sites.flare_app.Site"
CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
TASK_SERVER, TASK_SITE = (
    "bonafed.sites.flare_tasks.TaskServer",
    "bonafed.sites.flare_tasks.TaskSite",
)
ALLOWED = (CONTROLLER, EXECUTOR, SERVER, SITE)
ALLOWED_TASKS = (TASK_SERVER, TASK_SITE)  # of a job whose messages are tasks
ASK = 0.05  # seconds after which a site asks for its next task again
TASK = "bonafed"  # the name of the tasks
ROUNDS = "bonafed.rounds"  # asks a job that runs for the lines about its rounds
COPIES = "bonafed_"  # begins the names of the server's files in the result of FLARE's job
CONFIG = Path("app", "config")
JOB_FILE = "bonafed_job.toml"
Json = dict[str, object]

PERMISSION = f"""\
Every site and the server permit bonafed's classes, and no code that comes with a job:

1. Install bonafed with its extra flare into the environment that runs the FLARE daemon.
2. In the FLARE folder, copy local/resources.json.default to local/resources.json and set
     "class_allow_list": {json.dumps(list(ALLOWED))}
     "allow_log_streaming": false
   These four classes are enough for bonafed. Keep other entries only where other jobs need them.
   By default FLARE sends the error log of every job from the site to the server.
3. In local/authorization.json (a copy of authorization.json.default) set "byoc": "none" for every
   role: FLARE does not look at the list of classes for a job that brings its own code.
4. Name the folder of the data owner (the one with site.toml) in the file
   local/bonafed_site.toml:    folder = "/path/of/the/folder"
   or in the environment variable BONAFED_SITE of the daemon. At the server the file is
   local/bonafed_server.toml, the variable BONAFED_SERVER, and the folder takes the runs.
5. Set NVFLARE_STREAMING_RETRY_TIMEOUT=2 and NVFLARE_STREAMING_RETRY_WAIT=1 in the environment of
   the daemon; otherwise memory and threads grow with the number of rounds.
"""


def export_job(
    folder: Path,
    name: str,
    job: Mapping[str, str],
    min_clients: int,
    *,
    sites: Sequence[str] | None = None,
    call_timeout: float = 60.0,
    start_timeout: float = 60.0,
    tasks: bool = False,
    server: str | None = None,
    site: str | None = None,
) -> Path:
    """Write the folder that is submitted to FLARE; two exports of a job are equal byte by byte.

    Parameters
    ----------
    folder
        Where the job's folder is written.
    name
        The name of the job and of its folder.
    job
        The run as plain texts. ``job["experiment"]`` names the server's folder for it: the same
        job, submitted again, goes on with the same run.
    min_clients
        The number of sites that must be connected for the job to start.
    sites
        The sites that take part, all of which must be connected; every connected site by default.
    call_timeout
        Seconds that a site has for one answer.
    start_timeout
        Seconds that the sites have to say that they are ready.
    tasks
        Pass messages as tasks, on which the filters of the sites act, instead of as calls, on
        which they do not. It is slower; sites and server permit `ALLOWED_TASKS`.
    server, site
        The classes of both sides, for tests and measurements.

    Returns
    -------
    Path
        ``folder / name``.
    """
    check_name("job", name)
    for each in sites or ():
        check_name("site", each)
    experiment_of(job)
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": min_clients,
        "deploy_map": {"app": ["@ALL"] if sites is None else ["server", *sites]},
        **({} if sites is None else {"mandatory_clients": list(sites)}),
    }
    make = _with_tasks if tasks else _with_calls
    count = max(100, len(sites or ()), min_clients)  # each site has one call at a time
    at_server, at_site = make(server, site, call_timeout, start_timeout, count)
    files = {
        Path("meta.json"): _json(meta),
        CONFIG / "config_fed_server.json": _json(at_server),
        CONFIG / "config_fed_client.json": _json(at_site),
        CONFIG / JOB_FILE: written(job).encode(),
    }
    _refuse_others(folder / name, set(files))
    make_folder(folder / name / CONFIG)
    for path, data in files.items():
        write_whole(folder / name / path, data)
    return folder / name


def written(job: Mapping[str, str]) -> str:
    """A job as TOML, with its texts on their own lines where that keeps every character."""
    lines = not any("\r" in text for text in job.values())
    return tomli_w.dumps(dict(sorted(job.items())), multiline_strings=lines)


def allow(local: Path, classes: Sequence[str] = ALLOWED, only: bool = False) -> Path:
    """Permit classes in the ``local`` folder of a site or of the server; error logs stay there.

    Parameters
    ----------
    local
        The folder ``local`` of the FLARE folder.
    classes
        The classes to permit, by default those that bonafed's jobs use.
    only
        Permit these classes and no others, instead of adding them to the list.

    Returns
    -------
    Path
        ``resources.json``, which FLARE reads instead of ``resources.json.default``.
    """
    target = local / "resources.json"
    source = target if target.exists() else local / "resources.json.default"
    resources = json.loads(source.read_text(encoding="utf-8"))
    before = [] if only else resources.get("class_allow_list", [])
    resources["class_allow_list"] = [*before, *(one for one in classes if one not in before)]
    resources["allow_log_streaming"] = False  # else FLARE sends the site's error log to the server
    write_whole(target, _json(resources))
    return target


def _with_calls(
    server: str | None, site: str | None, call_timeout: float, start_timeout: float, count: int
) -> tuple[Json, Json]:
    """What FLARE builds at the server and at a site where messages are calls."""
    common = {
        "collab_obj_ids": [],
        "props": {},
        "max_inbound_call_threads": count,
        "max_outbound_call_threads": count,
    }
    controller = {"server_obj_id": "_server", "sync_task_timeout": start_timeout, **common}
    workflow = {"id": "controller", "path": CONTROLLER, "args": controller}
    executor = {"path": EXECUTOR, "args": {"client_obj_id": "_client", **common}}
    of_server = {"id": "_server", "path": server or SERVER, "args": {"timeout": call_timeout}}
    of_site = {"id": "_client", "path": site or SITE, "args": {}}
    return (
        _app("workflows", workflow, of_server),
        _app("executors", {"tasks": ["*"], "executor": executor}, of_site),
    )


def _with_tasks(
    server: str | None, site: str | None, call_timeout: float, start_timeout: float, count: int
) -> tuple[Json, Json]:
    """What FLARE builds at the server and at a site where messages are tasks."""
    workflow = {"id": "server", "path": server or TASK_SERVER, "args": {"timeout": call_timeout}}
    executor = {"tasks": [TASK], "executor": {"path": site or TASK_SITE, "args": {}}}
    at_server = {"server": {"task_request_interval": ASK}, **_app("workflows", workflow)}
    return at_server, _app("executors", executor)


def _app(role: str, worker: Json, *components: Json) -> Json:
    return {
        "format_version": 2,
        role: [worker],
        "components": list(components),
        "task_data_filters": [],
        "task_result_filters": [],
    }


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _refuse_others(folder: Path, expected: set[Path]) -> None:
    """A folder that holds anything else would send it to every site."""
    there = {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}
    if more := sorted(path.as_posix() for path in there - expected):
        raise FileExistsError(
            f"{folder} holds {listed(more, len(more))}, which is not part of a job: remove the "
            f"folder or give another name"
        )
