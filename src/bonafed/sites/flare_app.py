"""The two objects of a run that NVIDIA FLARE builds in its processes: the site and the server.

FLARE knows them by their class paths, which a job names and a site permits. Nothing but these paths
and a time limit comes with a job: the folder of a site is the one in the site's configuration.
"""

import json
import logging
import platform
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType  # pyright: ignore[reportMissingImports]
from nvflare.apis.executor import Executor  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_constant import ReturnCode  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]
from nvflare.apis.impl.controller import Controller  # pyright: ignore[reportMissingImports]
from nvflare.apis.shareable import Shareable, make_reply  # pyright: ignore[reportMissingImports]
from nvflare.apis.signal import Signal  # pyright: ignore[reportMissingImports]
from nvflare.collab import collab  # pyright: ignore[reportMissingImports]
from nvflare.collab.api.exceptions import RunAborted  # pyright: ignore[reportMissingImports]

from bonafed.engines import flare
from bonafed.engines.job import DONE, LEFT, PROGRESS, experiment_of
from bonafed.storage import OWN, write_whole

log = logging.getLogger(__name__)
PATIENCE = 30.0  # seconds in which a site says what runs there
TOLD = 2**18  # bytes about rounds in one answer


# FLARE's ``Workspace``, of which ``get_app_config_dir``, ``get_site_config_dir`` and
# ``get_result_root`` are used, and its ``ServerEngine``, of which ``register_app_command`` is
Workspace = Any
Engine = Any


class Owner:
    """What both objects of a site have: the data owner's folder, opened once, and a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a call that ran out of time still runs when the next comes
        self._party: Any = None  # of bonafed.sites.party, once it is open

    def open(self, folder: Path, name: str) -> Any:
        """The site's side of the run, which lives as long as the job's process."""
        from bonafed.sites.party import open_party

        return open_party(folder, name)

    def ask(self, local: Path, name: str, sender: str, data: bytes) -> bytes:
        """Answer a message, one at a time."""
        with self._lock:
            try:
                if self._party is None:
                    self._party = self.open(flare.working_folder("site", name, local), name)
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
        flare.quiet()
        workspace, job = collab.workspace, collab.fl_ctx.get_job_id()
        config = Path(workspace.get_app_config_dir(job))
        warning = flare.warning_about(flare.filters(Path(workspace.get_site_config_dir()), config))
        if warning:
            log.warning("%s", warning)
        return json.dumps({"site": collab.site_name, **versions(), "warning": warning})

    @collab.final
    def finish(self) -> None:
        """Let go of the site's folder at the end of the job."""
        self.end()


class Serving:
    """What both objects of a server have: the server's side of bonafed's runs."""

    def serve(self, transport: flare.Answers, folder: Path, job: Mapping[str, str]) -> None:
        """The server's side of the run."""
        from bonafed.sites.server import serve

        serve(transport, folder, job)


class Server(Serving):
    """The server's object, which runs the algorithm.

    Parameters
    ----------
    timeout
        Seconds that a site has for one answer.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        self.timeout = timeout

    @collab.main
    def run(self) -> str:
        """Run the job to its end, or go on with it where an earlier job ended."""
        flare.quiet()
        context, number = collab.context, collab.fl_ctx.get_job_id()
        tell_rounds(collab.fl_ctx.get_engine(), collab.workspace, number)
        sites = list(collab.clients)
        for site in sites:
            try:
                log.info("%s", site(timeout=PATIENCE).facts())
            except Exception as error:
                log.info("%s", flare.failure(site.name, error))
        transport = flare.FlareTransport(sites, timeout=self.timeout, aborted=context.is_aborted)
        try:
            finish_run(transport, self.serve, collab.workspace, number)
        except flare.JobAbortedError as error:
            raise RunAborted(str(error)) from error
        return DONE


def finish_run(
    transport: flare.Answers,
    serve: Callable[[flare.Answers, Path, Mapping[str, str]], None],
    workspace: Workspace,
    number: str,
) -> None:
    """Serve the job of this workspace in the server's folder, and put what it leaves there into the
    result of FLARE's job.
    """
    with closing(transport):
        job, folder = _job_and_folder(workspace, number)
        try:
            serve(transport, folder, job)
        finally:
            result = Path(workspace.get_result_root(number))
            for name in (name for name in LEFT if (folder / name).exists()):
                write_whole(result / (flare.COPIES + name), (folder / name).read_bytes(), OWN)


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

    engine.register_app_command(flare.ROUNDS, told)


def _job_and_folder(workspace: Workspace, number: str) -> tuple[dict[str, str], Path]:
    """The job of a workspace, and the server's folder of its run."""
    job = flare.read_job(Path(workspace.get_app_config_dir(number)))
    local = Path(workspace.get_site_config_dir())
    return job, flare.working_folder("server", "server", local) / experiment_of(job)


def versions() -> dict[str, str]:
    """The software that runs here."""
    packages = {name: version(name) for name in ("bonafed", "nvflare")}
    return {**packages, "python": platform.python_version()}


# The site and the server where messages are FLARE's tasks, on which a site's filters act.
#
# A job is exported with these classes for sites that demand FLARE's filters and privacy scopes:
# ``export_job(..., tasks=True)``. It is slower than calls.

SENDER = "server"  # only the server hands out tasks


class TaskSite(Executor, Owner):
    """The site's object: it answers one task after the other."""

    def __init__(self) -> None:
        Executor.__init__(self)
        Owner.__init__(self)

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Answer a message of the server."""
        flare.quiet()
        if task_name != flare.TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            data = flare.unpacked(shareable)
        except flare.FilteredError as error:
            log.warning("%s", error)
            return make_reply(ReturnCode.BAD_TASK_DATA)
        local = Path(fl_ctx.get_workspace().get_site_config_dir())
        return flare.packed(self.ask(local, str(fl_ctx.get_identity_name()), SENDER, data))

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Let go of the site's folder at the end of the job."""
        if event_type == EventType.END_RUN:
            self.end()


class TaskServer(Serving, Controller):
    """The server's object, which runs the algorithm.

    Parameters
    ----------
    timeout
        Seconds that a site has for one answer.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__()
        self.timeout = timeout

    def start_controller(self, fl_ctx: FLContext) -> None:
        """FLARE calls this before the run."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job to its end, or go on with it where an earlier job ended."""
        flare.quiet()
        engine = fl_ctx.get_engine()
        names = [client.name for client in engine.get_clients()] if engine is not None else []
        how: Any = {"timeout": self.timeout, "aborted": lambda: bool(abort_signal.triggered)}
        transport = flare.TaskTransport(self, fl_ctx, names, **how)
        try:
            finish_run(transport, self.serve, fl_ctx.get_workspace(), str(fl_ctx.get_job_id()))
        except flare.JobAbortedError as error:
            log.info("%s", error)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """FLARE calls this after the run."""
