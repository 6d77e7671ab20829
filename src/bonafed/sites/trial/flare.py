"""FLARE on one machine: its simulator, and real daemons that speak TLS over the loopback device.

The simulator runs the server and one process for each site; it is for trials. `Poc` provisions a
FLARE project with a separate certificate authority and starts the server and every site as in
production, each in a separate process.
"""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from bonafed.engines import flare
from bonafed.engines.flare import connect
from bonafed.engines.job import DONE, EXPERIMENT
from bonafed.sites.trial import processes
from bonafed.text import listed

log = logging.getLogger(__name__)
STREAMS = {"NVFLARE_STREAMING_RETRY_TIMEOUT": "2", "NVFLARE_STREAMING_RETRY_WAIT": "1"}
HOST, USER, PROJECT = "localhost", "admin@bonafed.local", "bonafed"
SIMULATOR = "nvflare.private.fed.app.simulator.simulator"
START = 120.0  # seconds for server and sites to be connected


def simulate(
    job: Mapping[str, str],
    sites: Mapping[str, Path],
    workspace: Path,
    *,
    time_limit: float | None = None,
    **how: Any,
) -> Path:
    """Run a job on this machine with FLARE's simulator, one process for each site.

    Parameters
    ----------
    job
        The run as plain texts, as for `export_job`.
    sites
        The folder of each site by name.
    workspace
        A folder for FLARE's files, the log and the server's folder; its path has no spaces.
    time_limit
        Seconds for the whole run.
    how
        Further parameters of `export_job`.

    Returns
    -------
    Path
        The server's folder of the experiment.

    Raises
    ------
    NotFinishedError
        The server's record of the end is not there. The same call goes on with the run.
    """
    flare.require_flare()
    workspace = _usable(workspace)
    place, names = workspace / "job", list(sites)
    folder = flare.export_job(place, "simulation", job, len(sites), sites=names, **how)
    local = workspace / "flare" / "local"  # the simulator gives every participant a copy
    local.mkdir(parents=True, exist_ok=True)
    own = [how[name] for name in ("server", "site") if how.get(name)]
    classes = [*flare.ALLOWED, *flare.ALLOWED_TASKS, *own]
    permitted = {"format_version": 2, "class_allow_list": classes}
    (local / "resources.json").write_text(json.dumps(permitted))
    flare.write_setting(local, "site", sites)
    flare.write_setting(local, "server", workspace / "server")
    command = [sys.executable, "-m", SIMULATOR, str(folder), "-w", str(workspace / "flare")]
    command += ["-c", ",".join(sites), "-t", str(len(sites)), "-m", str(max(100, len(sites)))]
    output = workspace / "simulator.log"
    try:
        with output.open("ab") as sink:
            streams: Any = {"stdout": sink, "stderr": sink, "stdin": subprocess.DEVNULL}
            streams |= {"env": _environment(workspace), "start_new_session": True}
            subprocess.run(command, timeout=time_limit, check=False, **streams)
    except subprocess.TimeoutExpired:
        log.warning("the simulator was ended after %s s", time_limit)
    finally:
        processes.end_all(workspace)
    run = workspace / "server" / job[EXPERIMENT]
    if not (run / DONE).exists():
        raise flare.NotFinishedError(
            f"the simulator ended without the server's record {run / DONE}: read {output}, which"
            f" ends in\n{processes.tail(output)}"
        )
    return run


class Poc:
    """A FLARE project on this machine: daemons of the server and of every site, with TLS.

    Parameters
    ----------
    workspace
        The folder of the project; its path has no spaces. A project that was provisioned there is
        used again.
    sites
        The folder of each site by name.
    classes
        The classes that server and sites permit in a job, and no others.

    Examples
    --------
    ::

        with started(Poc(workspace, {"site-1": one, "site-2": two})) as poc:
            folder = export_job(workspace, "run", job, 2)
            done = poc.runs / job["experiment"] / "done"
            Supervisor(folder, poc.connect, done.exists).run()
    """

    def __init__(
        self, workspace: Path, sites: Mapping[str, Path], *, classes: Sequence[str] = flare.ALLOWED
    ) -> None:
        flare.require_flare()
        self.workspace = _usable(workspace)
        self.runs = self.workspace / "server"  # where the server keeps its experiments
        self.sites, self.classes = dict(sites), classes
        self.names = (HOST, *self.sites)  # the server, then the sites
        # FLARE's folders of these, and of the user
        self.kits = self.workspace / PROJECT / "prod_00"
        self.daemons: dict[str, processes.Daemon] = {}

    def provision(self) -> None:
        """Make certificates and folders, unless they are there."""
        if not self.kits.exists():
            _provision(self.workspace, tuple(self.sites))
        if missing := [name for name in self.names if not (self.kits / name).exists()]:
            text = f"the project of {self.workspace} was made without"
            raise ValueError(f"{text} {listed(missing, len(missing))}: give another workspace")
        for name in self.names:
            local = self.kits / name / "local"
            flare.allow(local, self.classes, only=True)
            if name == HOST:
                from nvflare.lighter.utils import update_storage_locations  # pyright: ignore

                # FLARE's default is one folder of the machine
                update_storage_locations(str(local), str(self.workspace), "resources.json")
                flare.write_setting(local, "server", self.runs)
            else:
                flare.write_setting(local, "site", self.sites[name])

    def start(self) -> None:
        """Start all daemons and wait until every site is connected."""
        self.provision()
        for name in self.names:
            kit = self.kits / name
            # without FLARE's loop, which restarts daemons
            command = ["bash", str(kit / "startup" / "sub_start.sh"), "--once"]
            daemon = processes.Daemon(command, _environment(self.workspace), kit / "console.log")
            self.daemons[name] = daemon
            daemon.start()
        self.wait()

    def stop(self) -> None:
        """End every process of this workspace."""
        processes.end_all(self.workspace)
        for daemon in self.daemons.values():
            if daemon.running:
                daemon.running.wait(processes.ENDED)
        self.daemons.clear()

    def connect(self) -> flare.Session:
        """Log in as the user who may submit jobs."""
        return connect(self.kits / USER, USER)

    def wait(self, seconds: float = START) -> None:
        """Wait until the server answers and every site is connected to it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for name, daemon in self.daemons.items():
                if daemon.ended():
                    text = f"the daemon of {name} ended; its log ends in\n{daemon.told()}"
                    raise flare.NotFinishedError(text)
            with suppress(Exception), closing(self.connect()) as session:
                there = getattr(session.get_system_info(), "client_info", ())
                if {client.name for client in there} >= set(self.sites):
                    return
            time.sleep(1.0)
        raise flare.NotFinishedError(
            f"server and sites were not connected within {seconds:.0f} s: read console.log in"
            f" the folders of {self.kits}"
        )


def _environment(workspace: Path) -> dict[str, str]:
    """The environment of FLARE's processes, with nothing of the user's settings."""
    made = processes.environment(workspace, **STREAMS)
    return {k: v for k, v in made.items() if k not in flare.VARIABLE.values()}


def _provision(workspace: Path, sites: tuple[str, ...]) -> None:
    """Let FLARE make the project: certificates, start scripts, folders."""
    from nvflare.lighter.constants import CtxKey, ProvisionMode  # pyright: ignore
    from nvflare.lighter.prov_utils import prepare_builders  # pyright: ignore[reportMissingImports]
    from nvflare.lighter.provision import prepare_project  # pyright: ignore[reportMissingImports]
    from nvflare.lighter.provisioner import Provisioner  # pyright: ignore[reportMissingImports]

    builder, (port,) = "nvflare.lighter.impl.", processes.free_ports(HOST, 1)
    template = {"template_file": ["master_template.yml"]}
    # the messages of its default, http, take a tenth longer; both have TLS
    scheme = {"config_folder": "config", "scheme": "tcp"}
    project = {
        "api_version": 3,
        "name": PROJECT,
        "description": "bonafed on one machine",
        "participants": [
            {"name": HOST, "type": "server", "org": "bonafed", "fed_learn_port": port},
            *({"name": name, "type": "client", "org": "bonafed"} for name in sites),
            {"name": USER, "type": "admin", "org": "bonafed", "role": "project_admin"},
        ],
        "builders": [
            {"path": f"{builder}workspace.WorkspaceBuilder", "args": template},
            {"path": f"{builder}static_file.StaticFileBuilder", "args": scheme},
            {"path": f"{builder}cert.CertBuilder"},
            {"path": f"{builder}signature.SignatureBuilder"},
        ],
    }
    provisioner = Provisioner(str(workspace), prepare_builders(project))
    context = provisioner.provision(prepare_project(project), ProvisionMode.POC, log)
    if context.get(CtxKey.BUILD_ERROR):
        raise RuntimeError(f"FLARE could not provision: {'; '.join(context.get_errors())}")


def _usable(workspace: Path) -> Path:
    workspace = workspace.absolute()
    if any(c.isspace() for c in str(workspace)):
        raise ValueError(
            f"the workspace {workspace} has a space in its path, and FLARE's start commands need"
            " one without: give another folder"
        )
    workspace.mkdir(parents=True, exist_ok=True)
    return workspace
