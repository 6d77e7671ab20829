"""The site and the server where messages are FLARE's tasks, on which a site's filters act.

A job is exported with these classes for sites that demand FLARE's filters and privacy scopes:
``export_job(..., tasks=True)``. It is slower than calls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from nvflare.apis.event_type import EventType  # pyright: ignore[reportMissingImports]
from nvflare.apis.executor import Executor  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_constant import ReturnCode  # pyright: ignore[reportMissingImports]
from nvflare.apis.fl_context import FLContext  # pyright: ignore[reportMissingImports]
from nvflare.apis.impl.controller import Controller  # pyright: ignore[reportMissingImports]
from nvflare.apis.shareable import Shareable, make_reply  # pyright: ignore[reportMissingImports]
from nvflare.apis.signal import Signal  # pyright: ignore[reportMissingImports]

from bonafed.engines.flare.job import TASK
from bonafed.engines.flare.place import quiet
from bonafed.engines.flare.tasks import FilteredError, TaskTransport, packed, unpacked
from bonafed.engines.flare.transport import Answers, JobAbortedError
from bonafed.sites.flare_app import Owner, finish_run, serve_run

log = logging.getLogger(__name__)
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
        quiet()
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            data = unpacked(shareable)
        except FilteredError as error:
            log.warning("%s", error)
            return make_reply(ReturnCode.BAD_TASK_DATA)
        local = Path(fl_ctx.get_workspace().get_site_config_dir())
        return packed(self.ask(local, str(fl_ctx.get_identity_name()), SENDER, data))

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Let go of the site's folder at the end of the job."""
        if event_type == EventType.END_RUN:
            self.end()


class TaskServer(Controller):
    """The server's object, which runs the algorithm.

    Parameters
    ----------
    timeout
        Seconds that a site has for one answer.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__()
        self.timeout = timeout

    def serve(self, transport: Answers, folder: Path, job: Mapping[str, str]) -> None:
        """The server's side of the run."""
        serve_run(transport, folder, job)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """FLARE calls this before the run."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job to its end, or go on with it where an earlier job ended."""
        quiet()
        engine = fl_ctx.get_engine()
        transport = TaskTransport(
            self,
            fl_ctx,
            [client.name for client in engine.get_clients()] if engine is not None else [],
            timeout=self.timeout,
            aborted=lambda: bool(abort_signal.triggered),
        )
        try:
            finish_run(transport, self.serve, fl_ctx.get_workspace(), str(fl_ctx.get_job_id()))
        except JobAbortedError as error:
            log.info("%s", error)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """FLARE calls this after the run."""
