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
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from nvflare.collab import collab  # pyright: ignore[reportMissingImports]
from nvflare.collab.api.exceptions import RunAborted  # pyright: ignore[reportMissingImports]

from quorate.engines.flare.job import experiment_of
from quorate.engines.flare.place import filters, quiet, read_job, warning_about, working_folder
from quorate.engines.flare.transport import FlareTransport, JobAbortedError, Proxy, failure
from quorate.storage import write_whole

log = logging.getLogger(__name__)
DONE = "done"  # the server's record that a run has ended
DONE_HERE = "quorate_done"  # its copy in the result of FLARE's job
PATIENCE = 30.0  # seconds in which a site says what runs there


class Party(Protocol):
    """The site's side of a run."""

    def answer(self, sender: str, data: bytes) -> bytes: ...

    def close(self) -> None: ...


class Site:
    """The site's object: one published method that takes bytes and returns bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a call that ran out of time still runs when the next comes
        self._party: Party | None = None

    def open(self, folder: Path, name: str) -> Party:
        """The site's side of the run, which lives as long as the job's process."""
        from quorate.sites.party import open_party

        return open_party(folder, name)

    @collab.publish
    def answer(self, data: bytes) -> bytes:
        """Answer a message of the server."""
        sender, name = collab.caller, collab.site_name  # FLARE proves who calls
        local = Path(collab.workspace.get_site_config_dir())
        with self._lock:
            return self._opened(name, local).answer(sender, data)

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
    def end(self) -> None:
        """Let go of the site's folder."""
        if self._party is not None:
            self._party.close()

    def _opened(self, name: str, local: Path) -> Party:
        if self._party is None:
            try:
                self._party = self.open(working_folder("site", name, local), name)
            except Exception as error:
                # the text of an error may quote data, and FLARE sends errors and logs elsewhere
                kind = type(error).__name__
                log.warning("%s\n%s", kind, "".join(traceback.format_tb(error.__traceback__)))
                raise RuntimeError(f"{kind} when the site opened its folder") from None
        return self._party


class Server:
    """The server's object, which runs the algorithm.

    Parameters
    ----------
    timeout
        Seconds that a site has for one answer.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        self.timeout = timeout

    def serve(self, transport: FlareTransport, folder: Path, job: Mapping[str, str]) -> None:
        """The server's side of the run."""
        from quorate.sites.server import serve

        serve(transport, folder, job)

    @collab.main
    def run(self) -> str:
        """Run the job to its end, or go on with it where an earlier job ended."""
        quiet()
        workspace, context, number = collab.workspace, collab.context, collab.fl_ctx.get_job_id()
        job = read_job(Path(workspace.get_app_config_dir(number)))
        local = Path(workspace.get_site_config_dir())
        folder = working_folder("server", collab.site_name, local) / experiment_of(job)
        sites = list(collab.clients)
        for site in sites:
            log.info("%s", _facts(site))
        transport = FlareTransport(sites, timeout=self.timeout, aborted=context.is_aborted)
        try:
            self.serve(transport, folder, job)
        except JobAbortedError as error:
            raise RunAborted(str(error)) from error
        finally:
            transport.close()
        done = folder / DONE
        if done.exists():
            write_whole(Path(workspace.get_result_root(number)) / DONE_HERE, done.read_bytes())
        return DONE


def versions() -> dict[str, str]:
    """The software that runs here."""
    return {
        "quorate": version("quorate"),
        "nvflare": version("nvflare"),
        "python": platform.python_version(),
    }


def _facts(site: Proxy) -> str:
    try:
        return str(site(timeout=PATIENCE).facts())
    except Exception as error:
        return str(failure(site.name, error))
