"""The two objects of a run that NVIDIA FLARE builds in its processes: the site and the server.

FLARE knows them by their class paths, which a job names and a site permits. Nothing but these paths
and a time limit comes with a job: the folder of a site is the one in the site's configuration.
"""

from __future__ import annotations

import json
import logging
import platform
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from nvflare.collab import collab  # pyright: ignore[reportMissingImports]
from nvflare.collab.api.exceptions import RunAborted  # pyright: ignore[reportMissingImports]

from bonafed.engines.flare.job import COPIES, ROUNDS
from bonafed.engines.flare.place import filters, quiet, read_job, warning_about, working_folder
from bonafed.engines.flare.transport import (
    Answers,
    FlareTransport,
    JobAbortedError,
    Proxy,
    failure,
)
from bonafed.engines.job import DONE, LEFT, PROGRESS, experiment_of
from bonafed.storage import OWN, write_whole

log = logging.getLogger(__name__)
PATIENCE = 30.0  # seconds in which a site says what runs there
TOLD = 2**18  # bytes about rounds in one answer


class Party(Protocol):
    """The site's side of a run."""

    def answer(self, sender: str, data: bytes) -> bytes: ...

    def close(self) -> None: ...


class Workspace(Protocol):
    """The part of FLARE's ``Workspace`` that is used here."""

    def get_app_config_dir(self, job_id: str) -> str: ...

    def get_site_config_dir(self) -> str: ...

    def get_result_root(self, job_id: str) -> str: ...


class Engine(Protocol):
    """The part of FLARE's ``ServerEngine`` that is used here."""

    def register_app_command(self, topic: str, cmd_func: Callable[..., dict[str, str]]) -> None: ...


class Owner:
    """What both objects of a site have: the data owner's folder, opened once, and a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a call that ran out of time still runs when the next comes
        self._party: Party | None = None

    def open(self, folder: Path, name: str) -> Party:
        """The site's side of the run, which lives as long as the job's process."""
        from bonafed.sites.party import open_party

        return open_party(folder, name)

    def ask(self, local: Path, name: str, sender: str, data: bytes) -> bytes:
        """Answer a message, one at a time."""
        with self._lock:
            try:
                if self._party is None:
                    self._party = self.open(working_folder("site", name, local), name)
                return self._party.answer(sender, data)
            except Exception as error:
                # the text of an error may quote data, and FLARE sends errors and logs elsewhere
                kind = type(error).__name__
                log.warning("%s\n%s", kind, "".join(traceback.format_tb(error.__traceback__)))
                raise RuntimeError(f"{kind} at the site") from None

    def end(self) -> None:
        """Let go of the folder."""
        if self._party is not None:
            self._party.close()


class Site(Owner):
    """The site's object: one published method that takes bytes and returns bytes."""

    @collab.publish
    def answer(self, data: bytes) -> bytes:
        """Answer a message of the server."""
        local = Path(collab.workspace.get_site_config_dir())
        return self.ask(local, collab.site_name, collab.caller, data)  # FLARE proves who calls

    @collab.publish
    def facts(self) -> str:
        """What runs at the site, as JSON: versions, and a warning where filters are configured."""
        quiet()
        workspace, job = collab.workspace, collab.fl_ctx.get_job_id()
        config = Path(workspace.get_app_config_dir(job))
        warning = warning_about(filters(Path(workspace.get_site_config_dir()), config))
        if warning:
            log.warning("%s", warning)
        return json.dumps({"site": collab.site_name, **versions(), "warning": warning})

    @collab.final
    def finish(self) -> None:
        """Let go of the site's folder at the end of the job."""
        self.end()


class Server:
    """The server's object, which runs the algorithm.

    Parameters
    ----------
    timeout
        Seconds that a site has for one answer.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        self.timeout = timeout

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        """The server's side of the run."""
        serve_run(transport, folder, job)

    @collab.main
    def run(self) -> str:
        """Run the job to its end, or go on with it where an earlier job ended."""
        quiet()
        context, number = collab.context, collab.fl_ctx.get_job_id()
        tell_rounds(collab.fl_ctx.get_engine(), collab.workspace, number)
        sites = list(collab.clients)
        for site in sites:
            log.info("%s", _facts(site))
        transport = FlareTransport(sites, timeout=self.timeout, aborted=context.is_aborted)
        try:
            finish_run(transport, self.serve, collab.workspace, number)
        except JobAbortedError as error:
            raise RunAborted(str(error)) from error
        return DONE


def serve_run(transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
    """The server's side of bonafed's runs."""
    from bonafed.sites.server import serve

    serve(transport, folder, job)


def finish_run(
    transport: Answers,
    serve: Callable[[Answers, Path, Mapping[str, str]], None],
    workspace: Workspace,
    number: str,
) -> None:
    """Serve the job of this workspace in the server's folder, and put what it leaves there into the
    result of FLARE's job.
    """
    try:
        job, folder = _job_and_folder(workspace, number)
        try:
            serve(transport, folder, job)
        finally:
            result = Path(workspace.get_result_root(number))
            for name in (name for name in LEFT if (folder / name).exists()):
                write_whole(result / (COPIES + name), (folder / name).read_bytes(), OWN)
    finally:
        transport.close()


def tell_rounds(engine: Engine, workspace: Workspace, number: str) -> None:
    """Let who submitted the job of this workspace ask for its rounds while it runs."""
    file = _job_and_folder(workspace, number)[1] / PROGRESS

    def told(topic: str, asked: object, context: object) -> dict[str, str]:
        """The lines about rounds from a byte on, at most `TOLD` bytes of them."""
        begin = asked.get("from") if isinstance(asked, dict) else None
        if type(begin) is not int or begin < 0 or not file.is_file():
            return {"lines": ""}
        with file.open("rb") as lines:
            lines.seek(begin)
            whole, end, _ = lines.read(TOLD).rpartition(b"\n")
        return {"lines": (whole + end).decode()}

    engine.register_app_command(ROUNDS, told)


def _job_and_folder(workspace: Workspace, number: str) -> tuple[dict[str, str], Path]:
    """The job of a workspace, and the server's folder of its run."""
    job = read_job(Path(workspace.get_app_config_dir(number)))
    local = Path(workspace.get_site_config_dir())
    return job, working_folder("server", "server", local) / experiment_of(job)


def versions() -> dict[str, str]:
    """The software that runs here."""
    return {
        "bonafed": version("bonafed"),
        "nvflare": version("nvflare"),
        "python": platform.python_version(),
    }


def _facts(site: Proxy) -> str:
    try:
        return str(site(timeout=PATIENCE).facts())
    except Exception as error:
        return str(failure(site.name, error))
