"""The processes of a trial: all that it starts inherit a variable with its workspace, by which they
are found and ended, also those that were started in their own sessions or lost their parent.

Processes are read from ``/proc``: on Linux only.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bonafed.storage import make_folder

TAG = "BONAFED_TRIAL"  # the workspace, in the environment of every process
ENDED = 10.0  # seconds that a process may take to end
TAIL = 2000  # characters of a log that an error quotes


T = TypeVar("T")  # server and sites, which have ``start`` and ``stop``


@contextmanager
def started(trial: T) -> Iterator[T]:
    """Server and sites, which end with the ``with`` block, also where not all can be started."""
    both: Any = trial
    try:
        both.start()
        yield trial
    finally:
        both.stop()


class Process(NamedTuple):
    """A process that runs."""

    pid: int
    command: tuple[str, ...]

    def kill(self) -> None:
        """End it as a power failure does."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)


@dataclass
class Daemon:
    """A process that can be started again, in a separate session."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it writes is added to its log."""
        make_folder(self.log.parent)
        with self.log.open("ab") as sink:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": sink, "stderr": sink}
            streams |= {"env": self.environment, "start_new_session": True}
            self.running = subprocess.Popen[bytes](self.command, **streams)

    def ended(self) -> bool:
        """Whether it does not run."""
        return self.running is None or self.running.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to its session, which outlives it where a child is left."""
        if self.running is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.running.pid, number)

    def told(self) -> str:
        """The end of its log."""
        return tail(self.log)


def tail(log: Path) -> str:
    """The end of a log."""
    return log.read_text(encoding="utf-8", errors="replace")[-TAIL:] if log.exists() else ""


def environment(workspace: Path, **more: str) -> dict[str, str]:
    """The environment of a trial's processes, which find the programs of this Python first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **more, "PATH": path, TAG: str(workspace)}


def tagged(workspace: Path) -> list[Process]:
    """The processes that were started for a workspace, and all that they started."""
    mark, there = f"{TAG}={workspace}".encode(), list[Process]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (path / "environ").read_bytes().split(b"\0"):
                command = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                there.append(Process(int(path.name), tuple(command)))
    return [one for one in there if one.pid != os.getpid()]


def end_all(workspace: Path) -> None:
    """End every process that was started for a workspace, and all that these started meanwhile."""
    end = time.monotonic() + ENDED
    while there := tagged(workspace):
        for one in there:
            one.kill()
        if time.monotonic() > end:
            raise TimeoutError(f"processes cannot be ended: {[one.pid for one in there]}")
        time.sleep(0.05)


def free_ports(host: str, count: int) -> list[int]:
    """Ports of the loopback interface that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
