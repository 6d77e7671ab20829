"""Runs over NVIDIA FLARE: the job's folder and what a site lists to accept it, what a site has on
its disk, watching over a run, and the messages as calls or as tasks.

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
import logging
import math
import os
import queue
import shutil
import threading
import time
import tomllib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import tomli_w

from bonafed.engines.job import LEFT, PROGRESS, check_name, experiment_of
from bonafed.storage import OWN, make_folder, write_whole
from bonafed.text import install, listed, printable, short, shown

if TYPE_CHECKING:
    from nvflare.apis import controller_spec  # pyright: ignore[reportMissingImports]
    from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]
    from nvflare.apis.impl.controller import Controller  # pyright: ignore[reportMissingImports]
    from nvflare.apis.shareable import Shareable  # pyright: ignore[reportMissingImports]


APP = "bonafed.sites.flare_app."
SERVER, SITE = f"{APP}Server", f"{APP}Site"
CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
TASK_SERVER, TASK_SITE = f"{APP}TaskServer", f"{APP}TaskSite"
ALLOWED = (CONTROLLER, EXECUTOR, SERVER, SITE)
ALLOWED_TASKS = (TASK_SERVER, TASK_SITE)  # of a job whose messages are tasks
ASK = 0.05  # seconds after which a site asks for its next task again
TASK = "bonafed"  # the name of the tasks
ROUNDS = "bonafed.rounds"  # asks a job that runs for the lines about its rounds
COPIES = "bonafed_"  # begins the names of the server's files in the result of FLARE's job
CONFIG = Path("app", "config")
JOB_FILE = "bonafed_job.toml"
Json = dict[str, object]


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
    meta: Json = {"name": name, "resource_spec": {}, "min_clients": min_clients}
    meta["deploy_map"] = {"app": ["@ALL"] if sites is None else ["server", *sites]}
    if sites is not None:
        meta["mandatory_clients"] = list(sites)
    timeout: Json = {"timeout": call_timeout}
    if tasks:
        workflow: Json = {"id": "server", "path": server or TASK_SERVER, "args": timeout}
        executor: Json = {"tasks": [TASK], "executor": {"path": site or TASK_SITE, "args": {}}}
        at_server = {"server": {"task_request_interval": ASK}, **_app("workflows", workflow)}
        at_site = _app("executors", executor)
    else:
        count = max(100, len(sites or ()), min_clients)  # each site has one call at a time
        calls = {"max_inbound_call_threads": count, "max_outbound_call_threads": count}
        common = {"collab_obj_ids": [], "props": {}, **calls}
        args = {"server_obj_id": "_server", "sync_task_timeout": start_timeout, **common}
        workflow = {"id": "controller", "path": CONTROLLER, "args": args}
        executor = {"path": EXECUTOR, "args": {"client_obj_id": "_client", **common}}
        of_server: Json = {"id": "_server", "path": server or SERVER, "args": timeout}
        of_site: Json = {"id": "_client", "path": site or SITE, "args": {}}
        at_server = _app("workflows", workflow, of_server)
        at_site = _app("executors", {"tasks": ["*"], "executor": executor}, of_site)
    files = {
        Path("meta.json"): _json(meta),
        CONFIG / "config_fed_server.json": _json(at_server),
        CONFIG / "config_fed_client.json": _json(at_site),
        CONFIG / JOB_FILE: written(job).encode(),
    }
    # a folder that holds anything else would send it to every site
    place = folder / name
    there = {path.relative_to(place) for path in place.rglob("*") if not path.is_dir()}
    if more := sorted(path.as_posix() for path in there - set(files)):
        raise FileExistsError(
            f"{place} holds {listed(more, len(more))}, which is not part of a job: remove the"
            " folder or give another name"
        )
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


def _app(role: str, worker: Json, *components: Json) -> Json:
    head: Json = {"format_version": 2, role: [worker], "components": list(components)}
    return {**head, "task_data_filters": [], "task_result_filters": []}


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


# What a FLARE site or server has on its own disk: the folder to work in, filters, loggers.
#
# Nothing of it comes with a job. FLARE hands a job's process the folder ``local`` of its site,
# whose files the site's administrator writes.

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


# the file of the ``local`` folder that names the folder to work in, and the environment variable
SETTING: dict[Role, str] = {"site": "bonafed_site.toml", "server": "bonafed_server.toml"}
VARIABLE: dict[Role, str] = {"site": "BONAFED_SITE", "server": "BONAFED_SERVER"}


def write_setting(local: Path, role: Role, folder: Path | Mapping[str, Path]) -> Path:
    """Name the folder to work in, or for the simulator one folder for each site."""
    several = isinstance(folder, Mapping)
    paths = {name: str(path.absolute()) for name, path in folder.items()} if several else {}
    named = paths if several else str(folder.absolute())
    target = local / SETTING[role]
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
    if given := environment.get(VARIABLE[role]):
        return Path(given)
    file = local / SETTING[role]
    if not file.exists():
        raise FileNotFoundError(
            f'{role} {name} does not know its folder: write folder = "/the/path" into {file}, or '
            f"set {VARIABLE[role]} in the environment of the FLARE daemon"
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
    known = one if isinstance(one, dict) else {}
    return shown(known.get("name") or known.get("path") or one, 60)


# Watching over a run: the job is submitted again until the server's record says that it ended.
#
# FLARE restarts nothing. A site's process that dies ends the job, a server that dies forgets it,
# and a job that did its work can still end as abnormal. Server and sites keep their state on disk
# under the name of the experiment, so the same job, submitted again, goes on where the last one
# ended; and nothing but the server's own record ``done`` says that the run is complete.

FINISHED = "FINISHED:"  # the start of every status of a job that FLARE will not run any more
PERMANENT = {  # errors of a session that the same job meets again
    *("AuthenticationError", "AuthorizationError", "ConfigError"),
    *("InvalidArgumentError", "InvalidJobDefinition", "SubmitTokenConflict"),
}


class NotFinishedError(RuntimeError):
    """A run did not end within what it was given; it can go on."""


# FLARE's ``Session``, of which ``submit_job``, ``get_job_status``, ``abort_job``,
# ``get_system_info``, ``do_app_command``, ``download_job_result`` and ``close`` are used
Session = Any


def connect(kit: Path, user: str, timeout: float = 30.0) -> Session:
    """Log in at a FLARE server.

    Parameters
    ----------
    kit
        The folder of the user, which has the folder ``startup``.
    user
        The user's name, an address of mail.
    timeout
        Seconds for connecting; FLARE's 10 are too few where the machine is busy.
    """
    require_flare()
    from nvflare.fuel.flare_api.flare_api import new_secure_session  # pyright: ignore

    return new_secure_session(user, str(kit), timeout=timeout, auto_login_max_tries=1)


@dataclass
class Supervisor:
    """Submits a job and submits it again until the server's record says that the run ended.

    Parameters
    ----------
    job
        The folder that `export_job` wrote.
    connect
        Logs in, such as ``lambda: connect(kit, user)``. One session is held, and a new one opened
        only when it was lost.
    done
        Whether the server's record is there, such as ``(folder / "done").exists``.
    pause
        Seconds between two looks.
    most
        How often the job is submitted at most.
    patience
        Seconds for which the server may be unreachable without a break.
    progress
        Is called with one line of text when something changed.
    fetch
        Where the server's folder is on another machine: a folder of this one, into which the
        results of finished jobs are downloaded, such as the record of the end, ``fetch / "done"``.
        While a job runs, the lines about its rounds are copied there.
    """

    job: Path
    connect: Callable[[], Session]
    done: Callable[[], bool]
    pause: float = 5.0
    most: int = 20
    patience: float = 3600.0
    progress: Callable[[str], None] = print
    fetch: Path | None = None
    ids: list[str] = field(default_factory=list)  # FLARE's names of the jobs, one per submission

    def __post_init__(self) -> None:
        self._session: Session | None = None
        self._token = ""  # of a submission whose answer has not come
        self._running = False  # whether the last of the jobs may still run
        self._begun = 0.0  # when the server that has the job was started
        self._status = ""
        self._lost: float | None = None  # since when the server is unreachable

    def run(self) -> int:
        """Watch until the run has ended; returns how often the job was submitted.

        Raises
        ------
        NotFinishedError
            The job ended too often without the record, or the server stayed unreachable.
        """
        try:
            while not self.done():
                try:
                    self._step()
                except Exception as error:
                    self._failed(error)
                if not self.done():
                    time.sleep(self.pause)
            self.progress("the run has ended")
            return len(self.ids)
        finally:
            self._close()

    def abort(self) -> None:
        """End the job that may still run; the same job, submitted again, goes on."""
        with suppress(Exception), closing(self.connect()) as session:
            for job in self.ids[-1:]:
                session.abort_job(job)

    def _step(self) -> None:
        session = self._session = self._session or self.connect()
        begun = session.get_system_info().server_info.start_time
        if self._lost is not None:
            self._lost = None
            self.progress("the FLARE server answers again")
        if self._running and begun != self._begun:
            # the status of its jobs stays RUNNING for ever, and their sites' processes live on
            self.progress("the FLARE server was started anew and has forgotten the job")
            with suppress(Exception):
                session.abort_job(self.ids[-1])
            self._running = False
        if not self._running:
            self._submit(session, begun)
            return
        status = str(session.get_job_status(self.ids[-1]))
        if status != self._status:
            self._status = status
            self.progress(f"job {self.ids[-1]}: {status}")
        if self.fetch is not None and not status.startswith(FINISHED):
            with suppress(Exception):  # such as a job that has not begun, or one that just ended
                make_folder(self.fetch)
                with (self.fetch / PROGRESS).open("ab") as lines:  # about rounds, not there yet
                    told = session.do_app_command(self.ids[-1], ROUNDS, {"from": lines.tell()})
                    lines.write(str(told.get("lines", "")).encode())
        if status.startswith(FINISHED):
            if self.fetch is not None:  # what the server left goes to a fixed place
                make_folder(self.fetch)
                there = session.download_job_result(self.ids[-1], str(self.fetch))
                for name in LEFT:
                    for record in Path(there).rglob(COPIES + name):
                        write_whole(self.fetch / name, record.read_bytes(), OWN)
            self._running = False

    def _submit(self, session: Session, begun: float) -> None:
        if len(self.ids) >= self.most:
            text = f"the job was submitted {len(self.ids)} times, its last status is"
            text += f" {self._status}, and the server's record of the end is not there: read the"
            text += f" log of the job {self.ids[-1]} at the server, then start again to go on"
            raise NotFinishedError(text)
        self._token = self._token or uuid.uuid4().hex
        with TemporaryDirectory() as place:  # FLARE writes signatures into what it submits
            copy = shutil.copytree(self.job, Path(place) / self.job.name)
            job = session.submit_job(str(copy), submit_token=self._token)
        self._token = ""
        self.ids.append(job)
        self._begun, self._status, self._running = begun, "", True
        self.progress(f"submitted as job {job} (submission {len(self.ids)})")

    def _failed(self, error: Exception) -> None:
        """A command failed: end the run where it would fail again, else wait for the server."""
        if isinstance(error, NotFinishedError) or type(error).__name__ in PERMANENT:
            raise error
        if type(error).__name__ == "JobNotFound":
            self._running = False
            return
        self._close()
        text = short(printable(f"{type(error).__name__}: {error}"), 300)
        if self._lost is None:
            self._lost = time.monotonic()
            self.progress(f"the FLARE server does not answer ({text})")
        elif (away := time.monotonic() - self._lost) > self.patience:
            raise NotFinishedError(
                f"the FLARE server has not answered for {away:.0f} s ({text}): start it, then"
                " start again to go on"
            ) from error

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()


# The server's side of a run over NVIDIA FLARE: messages to the sites and their answers, as bytes.
#
# FLARE's Collab API calls a method of the object that lives at a site, and the call waits for the
# answer. So that several sites work at once and the server takes answers in the order in which they
# come, every site has a separate thread here, which makes one call after the other. The threads
# live as long as the run: their number does not grow with the rounds.
#
# Nothing of ``nvflare`` is imported: a proxy is anything that is called as FLARE's are.

Aborted = Callable[[], bool]
Entry = tuple[str, int, bytes | Exception]  # site, number of the message, what came of it
LOOK = 1.0  # seconds between two looks at whether the job was aborted
LONGEST = 1000  # characters of what a site reports about a failure
WAIT = 2.0  # seconds for which closing waits for threads that are between two calls


# a site as the server sees it, FLARE's ``Proxy``: it has a ``name``, and called with a ``timeout``
# the site's methods
Proxy = Any


class SiteError(Exception):
    """A call to a site failed: it did not answer in time, or raised an error.

    Attributes
    ----------
    site
        The name of the site.
    cause
        The type of the error at the site; ``TimeoutError`` where no answer came in time.
    text
        What FLARE reports, shortened.
    """

    def __init__(self, site: str, cause: str, text: str) -> None:
        super().__init__(site, cause, text)
        self.site, self.cause, self.text = site, cause, text

    def __str__(self) -> str:
        return f"site {self.site} did not answer ({self.cause}): {self.text}"


class JobAbortedError(Exception):
    """FLARE ends the job, so that no site can be asked any more."""


class Answers:
    """What the sites answer, in the order in which it comes, for a thread that waits for it.

    Parameters
    ----------
    names
        The names of the sites.
    aborted
        Whether FLARE ends the job. ``push`` and ``poll`` then raise `JobAbortedError`.
    """

    def __init__(self, names: Iterable[str], aborted: Aborted) -> None:
        self._names = tuple(sorted(names))
        if len(set(self._names)) < len(self._names):
            raise ValueError("two sites have the same name: give every site a separate name")
        self._aborted = aborted
        self._waiting = 0  # messages that were neither answered nor reported as failed
        self._answers: queue.SimpleQueue[Entry] = queue.SimpleQueue()

    def ids(self) -> tuple[str, ...]:
        """The names of the sites in alphabetical order."""
        return self._names

    def push(self, client: str, seq: int, message: bytes) -> None:
        """Send a message; returns at once."""
        self._check()
        self._send(client, seq, message)
        self._waiting += 1

    def poll(self, timeout: float | None = None) -> list[Entry]:
        """Wait for an answer or a failure, and return all that are there.

        An empty list says that the time is over, or that nothing is awaited.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while self._waiting:
            self._check()
            left = LOOK if end is None else min(LOOK, end - time.monotonic())
            try:
                there = [self._answers.get(timeout=max(left, 0.0))]
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    break
                continue
            while not self._answers.empty():
                there.append(self._answers.get())
            self._waiting -= len(there)
            if any(isinstance(answer, Exception) for _, _, answer in there):
                self._check()  # a job that is aborted fails every call
            return there
        return []

    def close(self) -> None:
        """Let go of what sends the messages."""

    def _send(self, client: str, seq: int, message: bytes) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        if self._aborted():
            raise JobAbortedError("FLARE ends the job: submit it again to go on")


class FlareTransport(Answers):
    """Carries bytes between the server and the sites over FLARE's Collab API.

    Parameters
    ----------
    proxies
        One for each site, such as ``collab.clients``. They are read once, in this thread.
    timeout
        Seconds that a site has for an answer.
    aborted
        Whether FLARE ends the job, such as ``collab.context.is_aborted``. ``push`` and ``poll``
        then raise `JobAbortedError`.

    Notes
    -----
    A second message to a site is sent when the first was answered or has failed. FLARE lets a call
    that ran out of time go on at the site, where a lock keeps the next one waiting, and drops the
    late answer.
    """

    def __init__(
        self, proxies: Iterable[Proxy], *, timeout: float = 60.0, aborted: Aborted = lambda: False
    ) -> None:
        sites = list(proxies)
        super().__init__((site.name for site in sites), aborted)
        self._timeout = timeout
        self._asked: dict[str, queue.SimpleQueue[tuple[int, bytes] | None]] = {}
        self._threads: list[threading.Thread] = []
        for site in sites:
            self._asked[site.name] = queue.SimpleQueue()
            named = f"to {site.name}"
            thread = threading.Thread(target=self._serve, args=(site,), name=named, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End the threads; one whose call is under way ends when the call does."""
        for asked in self._asked.values():
            asked.put(None)
        end = time.monotonic() + WAIT
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))

    def _send(self, client: str, seq: int, message: bytes) -> None:
        self._asked[client].put((seq, message))

    def _serve(self, site: Proxy) -> None:
        """Make one call after the other to a site, in a separate thread."""
        asked = self._asked[site.name]
        while (item := asked.get()) is not None:
            seq, message = item
            self._answers.put((site.name, seq, self._call(site, message)))

    def _call(self, site: Proxy, message: bytes) -> bytes | Exception:
        try:
            answer = site(timeout=self._timeout).answer(message)
        except Exception as error:
            return failure(site.name, error)
        if not isinstance(answer, bytes):
            return SiteError(site.name, "TypeError", f"the answer is not bytes: {type(answer)}")
        return answer


def failure(site: str, error: Exception) -> SiteError:
    """The failure of a call: FLARE's errors name the type of the error at the site."""
    cause = str(getattr(error, "cause_type", type(error).__name__))
    return SiteError(site, short(printable(cause), 80), short(printable(str(error)), LONGEST))


# The same messages as FLARE's tasks, on which a site's filters and privacy scopes act.
#
# Calls of the Collab API pass by the filters of a site; tasks do not. A message is a separate task
# for one site, and FLARE applies the filters to the task at the server and at the site and to the
# result in both places. A site asks for its next task again and again, which takes longer than a
# call.
#
# The bytes stand in a data exchange object of kind ``APP_DEFINED``. A filter for model weights
# leaves it alone, because it acts on other kinds; one for every kind sees the bytes. A filter that
# changes them makes the message invalid, and it is refused.

MESSAGE = "message"  # the entry of the data exchange object


class FilteredError(ValueError):
    """What came is not a message: a filter took it out, or the sender is another program."""


class TaskTransport(Answers):
    """Carries bytes between the server and the sites as FLARE's tasks.

    Parameters
    ----------
    controller
        The controller of the job, which hands tasks out.
    context
        FLARE's context of the controller.
    names
        The names of the sites.
    timeout
        Seconds that a site has for an answer, rounded up: FLARE counts whole seconds.
    aborted
        Whether FLARE ends the job.
    """

    def __init__(
        self,
        controller: Controller,
        context: FLContext,
        names: Iterable[str],
        *,
        timeout: float,
        aborted: Aborted,
    ) -> None:
        super().__init__(names, aborted)
        self._controller, self._context = controller, context
        self._timeout = math.ceil(timeout)

    def _send(self, client: str, seq: int, message: bytes) -> None:
        from nvflare.apis.controller_spec import Task  # pyright: ignore[reportMissingImports]

        once = threading.Lock()  # FLARE reports an answer and then the end of its task

        def report(answer: bytes | Exception) -> None:
            if once.acquire(blocking=False):
                self._answers.put((client, seq, answer))

        def received(client_task: controller_spec.ClientTask, fl_ctx: FLContext) -> None:
            report(_answer(client, client_task.result))

        def ended(task: controller_spec.Task, fl_ctx: FLContext) -> None:
            status = str(getattr(task.completion_status, "value", task.completion_status))
            kind = "TimeoutError" if status == "timeout" else "RuntimeError"
            report(SiteError(client, kind, f"the task ended without an answer: {status}"))

        ends: Any = {"result_received_cb": received, "task_done_cb": ended}
        task = Task(name=TASK, data=packed(message), timeout=self._timeout, **ends)
        self._controller.send(task, self._context, targets=[client])


def packed(message: bytes) -> Shareable:
    """Bytes as FLARE carries them in a task."""
    from nvflare.apis.dxo import DXO, DataKind  # pyright: ignore[reportMissingImports]

    return DXO(DataKind.APP_DEFINED, data={MESSAGE: message}).to_shareable()


def unpacked(shareable: Shareable) -> bytes:
    """The bytes of a task or of its result."""
    from nvflare.apis.dxo import from_shareable  # pyright: ignore[reportMissingImports]

    try:
        message = from_shareable(shareable).data[MESSAGE]
    except (KeyError, TypeError, ValueError) as error:
        raise FilteredError("no message came; a filter may have taken it out") from error
    if not isinstance(message, bytes):
        raise FilteredError(f"the message is not bytes but {type(message)}; a filter changed it")
    return message


def _answer(client: str, result: Shareable | None) -> bytes | Exception:
    if result is None:
        return SiteError(client, "FilteredError", "no result came; a filter may have taken it out")
    code = str(result.get_return_code())
    if code != "OK":
        return SiteError(client, code, "the site could not answer, or a filter refused it")
    try:
        return unpacked(result)
    except FilteredError as error:
        return SiteError(client, type(error).__name__, str(error))
