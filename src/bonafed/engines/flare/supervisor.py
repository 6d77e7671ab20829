"""Watching over a run: the job is submitted again until the server's record says that it ended.

FLARE restarts nothing. A site's process that dies ends the job, a server that dies forgets it, and
a job that did its work can still end as abnormal. Server and sites keep their state on disk under
the name of the experiment, so the same job, submitted again, goes on where the last one ended; and
nothing but the server's own record ``done`` says that the run is complete.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast

from bonafed.engines.flare.job import COPIES, ROUNDS
from bonafed.engines.flare.place import require_flare
from bonafed.engines.job import LEFT, PROGRESS
from bonafed.storage import OWN, make_folder, write_whole
from bonafed.text import printable, short

FINISHED = "FINISHED:"  # the start of every status of a job that FLARE will not run any more
PERMANENT = {  # errors of a session that the same job meets again
    *("AuthenticationError", "AuthorizationError", "ConfigError"),
    *("InvalidArgumentError", "InvalidJobDefinition", "SubmitTokenConflict"),
}


class NotFinishedError(RuntimeError):
    """A run did not end within what it was given; it can go on."""


class ServerFacts(Protocol):
    """What FLARE says about its server."""

    start_time: float


class SystemFacts(Protocol):
    """What FLARE says about server and sites."""

    server_info: ServerFacts


class Session(Protocol):
    """The part of FLARE's ``Session`` that is used here."""

    def submit_job(self, job_definition_path: str, submit_token: str | None = None) -> str: ...

    def get_job_status(self, job_id: str) -> str | None: ...

    def abort_job(self, job_id: str) -> object: ...

    def get_system_info(self) -> SystemFacts: ...

    def do_app_command(self, job_id: str, topic: str, cmd_data: object) -> dict[str, object]: ...

    def download_job_result(self, job_id: str, destination: str | None = None) -> str: ...

    def close(self) -> object: ...


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
    from nvflare.fuel.flare_api.flare_api import (  # pyright: ignore[reportMissingImports]
        new_secure_session,
    )

    session = new_secure_session(user, str(kit), timeout=timeout, auto_login_max_tries=1)
    return cast(Session, session)


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
        with suppress(Exception):
            session = self.connect()
            try:
                for job in self.ids[-1:]:
                    session.abort_job(job)
            finally:
                session.close()

    def _step(self) -> None:
        if self._session is None:
            self._session = self.connect()
        begun = self._session.get_system_info().server_info.start_time
        if self._lost is not None:
            self._lost = None
            self.progress("the FLARE server answers again")
        if self._running and begun != self._begun:
            # the status of its jobs stays RUNNING for ever, and their sites' processes live on
            self.progress("the FLARE server was started anew and has forgotten the job")
            with suppress(Exception):
                self._session.abort_job(self.ids[-1])
            self._running = False
        if not self._running:
            self._submit(self._session, begun)
            return
        status = str(self._session.get_job_status(self.ids[-1]))
        if status != self._status:
            self._status = status
            self.progress(f"job {self.ids[-1]}: {status}")
        if self.fetch is not None and not status.startswith(FINISHED):
            with suppress(Exception):  # such as a job that has not begun, or one that just ended
                _follow(self._session, self.ids[-1], self.fetch)
        if status.startswith(FINISHED):
            if self.fetch is not None:
                _fetch(self._session, self.ids[-1], self.fetch)
            self._running = False

    def _submit(self, session: Session, begun: float) -> None:
        if len(self.ids) >= self.most:
            raise NotFinishedError(
                f"the job was submitted {len(self.ids)} times, its last status is {self._status}, "
                f"and the server's record of the end is not there: read the log of the job "
                f"{self.ids[-1]} at the server, then start again to go on"
            )
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
                f"the FLARE server has not answered for {away:.0f} s ({text}): start it, then "
                f"start again to go on"
            ) from error

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()


def _follow(session: Session, job: str, folder: Path) -> None:
    """Copy the lines about the rounds of a running job that are not there yet."""
    make_folder(folder)
    with (folder / PROGRESS).open("ab") as lines:
        told = session.do_app_command(job, ROUNDS, {"from": lines.tell()})
        lines.write(str(told.get("lines", "")).encode())


def _fetch(session: Session, job: str, folder: Path) -> None:
    """Download the result of a job; what the server left, where it is in it, to a fixed place."""
    make_folder(folder)
    there = Path(session.download_job_result(job, str(folder)))
    for name in LEFT:
        for record in there.rglob(COPIES + name):
            write_whole(folder / name, record.read_bytes(), OWN)
