"""Flower's own processes on one machine: a SuperLink and SuperNodes, or Flower's simulation.

For trying a run out before organisations take part, for tests and for benchmarks. Nothing leaves
the machine: telemetry, the check for updates and the installation of packages are off, and all
ports are of the loopback interface.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import logging
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from bonafed.engines import flower
from bonafed.engines.job import DONE, ERROR
from bonafed.sites.trial.processes import ENDED, Daemon, end_all, environment, free_ports, started
from bonafed.storage import OWN, make_folder, write_whole
from bonafed.text import install, shown

log = logging.getLogger(__name__)

HOST, CONNECTION = "127.0.0.1", "bonafed"
QUIET = {  # nothing may leave the machine
    **dict.fromkeys(("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"), "0"),
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    **dict.fromkeys(("NO_PROXY", "no_proxy"), f"{HOST},localhost"),
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # seconds; 1 by default
}
STARTED = 120.0  # seconds that a process may take to start
ASK = 20.0  # seconds between two questions for the status of a run, each a process of 2 CPU s


@dataclass(eq=False)
class Deployment:
    """A SuperLink and a SuperNode for every site.

    Parameters
    ----------
    sites : the folder of every site, by the site's name
    workspace : where logs, Flower's own files and the server's folders are
    simulated : start no SuperNodes; Flower's simulation (Ray) runs the sites
    tls : encrypt with certificates made for this deployment; SuperNodes have keys, and the
        SuperLink admits no other
    approved : a file with the SHA-256 of the bundles that SuperNodes may run, one a line; else they
        run any app that is submitted
    variables : further ones of all processes
    """

    sites: Mapping[str, Path]
    workspace: Path
    simulated: bool = False
    tls: bool = False
    approved: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workspace = self.workspace.resolve()
        self.server = self.workspace / "server"
        # Flower starts its programs by their bare names
        self._base = environment(self.workspace, **QUIET, **self.variables)
        self._certificates: Certificates | None = None
        self._link: Daemon | None = None
        self._nodes: dict[str, Daemon] = {}
        self._keys: list[Path] = []
        self._port = 0

    # ----------------------------------------------------------------------- starting and ending

    def start(self) -> None:
        """Start the SuperLink, wait for its port, and start the SuperNodes; what a process that was
        killed has left in this workspace ends first.
        """
        end_all(self.workspace)
        make_folder(self.server)
        if self.tls:
            self._certificates = make_certificates(self.workspace / "certificates", HOST)
        ports = free_ports(HOST, 1 + len(self.sites))
        self._port = ports[0]
        # the file in which Flower's command line looks for the SuperLink
        made, address = self._certificates, f"{HOST}:{self._port}"
        safety = {"insecure": True} if made is None else {"root-certificates": str(made.authority)}
        content = {"superlink": {"default": CONNECTION, CONNECTION: {"address": address, **safety}}}
        home = Path(self._environment("command")["FLWR_HOME"])
        write_whole(home / "config.toml", tomli_w.dumps(content).encode())

        command = [program("flower-superlink"), "--host", HOST, "--port", str(self._port)]
        command += ["--disable-runtime-dependency-installation"]
        if self.simulated:
            command += ["--simulation"]
        if made is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-certfile", str(made.server), "--ssl-keyfile", str(made.key)]
            command += ["--ssl-ca-certfile", str(made.authority)]
        if self.tls and not self.simulated:
            command += ["--enable-supernode-auth"]
        variables = self._environment("superlink", BONAFED_SERVER=str(self.server))
        if self.simulated:
            places = [[name, str(folder.resolve())] for name, folder in self.sites.items()]
            variables["BONAFED_SIMULATED_SITES"] = json.dumps(places)
        self._link = Daemon(command, variables, self.workspace / "logs" / "superlink.log")
        self._link.start()
        self._wait_for_link()
        if not self.simulated:
            for port, (name, folder) in zip(ports[1:], self.sites.items(), strict=True):
                self._nodes[name] = self._supernode(name, folder, port)
                self._nodes[name].start()

    def stop(self) -> None:
        """End every process that this deployment has started, also those that lost their parent."""
        daemons = [*self._nodes.values(), *([self._link] if self._link else [])]
        for daemon in daemons:
            daemon.signal(signal.SIGTERM)
        end = time.monotonic() + ENDED
        while time.monotonic() < end and not all(each.ended() for each in daemons):
            time.sleep(0.1)
        for daemon in daemons:
            daemon.signal(signal.SIGKILL)
            if daemon.running is not None:
                daemon.running.wait()
        end_all(self.workspace)

    def kill(self, name: str) -> None:
        """Kill the process group of a site's SuperNode, or of the SuperLink (``""``)."""
        daemon = self._nodes[name] if name else self._link
        if daemon is not None:
            daemon.signal(signal.SIGKILL)

    def revive(self) -> list[str]:
        """Start every process again that has ended; their names, "" for the SuperLink."""
        revived = []
        if self._link is not None and self._link.ended():
            self._link.start()
            self._wait_for_link()
            for public in self._keys:  # a SuperLink without a database has forgotten them
                self._flwr("supernode", "register", str(public), CONNECTION)
            revived.append("")
        for name, process in self._nodes.items():
            if process.ended():
                process.start()
                revived.append(name)
        return revived

    # ---------------------------------------------------------------------------------- the runs

    def run(
        self,
        app: Path,
        *,
        timeout: float | None = None,
        attempts: int = 20,
        watch: Callable[[Deployment], None] | None = None,
    ) -> Path:
        """Run an exported app until its job is done; returns the job's folder on the server.

        A job is done when the server has written ``done`` into its folder. A run whose processes
        died is submitted again, and processes that ended are started again. A run that failed with
        an error of bonafed's raises ``FlowerError`` with its text.

        Parameters
        ----------
        app : the app directory of `export_app`
        timeout : seconds for everything
        attempts : the most runs of the job
        watch : called several times a second while it runs
        """
        job = json.loads((app / flower.JOB).read_text(encoding="utf-8"))["job"]
        folder, last = flower.job_folder(self.server, job), "no run was submitted"
        end = time.monotonic() + (timeout or float("inf"))
        for _ in range(attempts):
            self.revive()
            (folder / ERROR).unlink(missing_ok=True)
            run_id, asked = self.submit(app), time.monotonic()
            log.info("submitted run %s", run_id)
            while not any((folder / name).exists() for name in (DONE, ERROR)):
                if time.monotonic() > end:
                    raise flower.FlowerError(f"{timeout:.0f} s are over: {last}{self._told()}")
                if watch is not None:
                    watch(self)
                if "" in self.revive():
                    last = f"run {run_id} ended with its SuperLink"
                    break
                if time.monotonic() - asked > ASK:
                    asked, (state, last) = time.monotonic(), self.status(run_id)
                    if state == "finished":
                        break
                time.sleep(0.2)
            if (folder / DONE).exists():
                return folder
            if (folder / ERROR).exists():
                raise flower.FlowerError((folder / ERROR).read_text("utf-8", errors="replace"))
            log.warning("the job is not done: %s", last)
        text = f"the job was not done after {attempts} runs: {last}{self._told()}"
        raise flower.FlowerError(text)

    def submit(self, app: Path) -> str:
        """Submit an app; the number of its run."""
        arguments = ["run", str(app), CONNECTION]
        if self.simulated:
            sizes = f"num-supernodes={len(self.sites)} client-resources-num-cpus=1"
            arguments += ["--federation-config", sizes]
        return str(self._flwr(*arguments)["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """The state of a run (pending, starting, running, finished, unknown), and more in words."""
        try:
            (run,) = self._flwr("ls", CONNECTION, "--run-id", run_id)["runs"]
        except flower.FlowerError as error:
            return "unknown", str(error)
        state = str(run["status"])
        return state.split(":")[0], f"run {run_id} is {state}"

    # ------------------------------------------------------------------------------- the details

    def _supernode(self, name: str, folder: Path, port: int) -> Daemon:
        place = f"node-{list(self.sites).index(name) + 1}"  # a name may be no name of a file
        command = [program("flower-supernode"), "--superlink", f"{HOST}:{self._port}"]
        command += ["--host", HOST, "--port", str(port)]
        command += ["--node-config", f"{flower.CLIENT_ID}={_quoted(name)}"]
        if self._certificates is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._certificates.authority)]
        if self.tls and not self.simulated:
            private, public = make_node_key(self.workspace / "certificates" / place)
            self._keys.append(public)
            self._flwr("supernode", "register", str(public), CONNECTION)
            command += ["--auth-supernode-private-key", str(private)]
        variables = self._environment(place, BONAFED_SITE=str(folder.resolve()))
        if self.approved is not None:
            variables = flower.guarded(self.workspace / "guard", self.approved.resolve(), variables)
        return Daemon(command, variables, self.workspace / "logs" / f"{place}.log")

    def _environment(self, place: str, **more: str) -> dict[str, str]:
        home = self.workspace / "flower" / place
        make_folder(home)
        return {**self._base, "FLWR_HOME": str(home), **more}

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        """Call Flower's command line; what it prints as JSON."""
        command = [program("flwr"), *arguments, "--format", "json"]
        how: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, env=self._environment("command"), check=False, **how)
        _, brace, rest = done.stdout.partition("{")
        try:
            answer = json.loads(brace + rest or "{}")
        except json.JSONDecodeError:
            answer = {}
        if done.returncode or not answer.get("success"):
            text = shown(answer.get("error-message") or done.stderr or done.stdout, 1000)
            raise flower.FlowerError(f"flwr {arguments[0]} failed: {text}{self._told()}")
        return answer

    def _wait_for_link(self) -> None:
        end = time.monotonic() + STARTED
        while self._link is not None:
            with suppress(OSError), socket.create_connection((HOST, self._port), 1):
                return
            if self._link.ended() or time.monotonic() > end:
                raise flower.FlowerError(f"the SuperLink did not start{self._told()}")
            time.sleep(0.1)

    def _told(self) -> str:
        """The end of the SuperLink's log, for errors."""
        lines = self._link.told() if self._link else ""
        return f"\nThe log of the SuperLink ends:\n{lines}" if lines else ""


def simulate(
    job: Mapping[str, str],
    sites: Mapping[str, Path],
    workspace: Path,
    *,
    timeout: float | None = None,
    variables: Mapping[str, str] | None = None,
    **how: Any,
) -> Path:
    """Run a job in Flower's simulation; returns the job's folder on the server.

    Parameters
    ----------
    job : what the server is to do
    sites : the folder of every site, by the site's name
    workspace : where everything is kept; a job that was cut short goes on there
    timeout : seconds for everything
    variables : further ones of all processes
    how : limits and apps, as for `export_app`
    """
    bundle = flower.export_app(workspace / "export", job, [*sites], **how)
    made = Deployment(sites, workspace, simulated=True, variables=variables or {})
    with started(made) as deployment:
        return deployment.run(bundle.app, timeout=timeout, attempts=3)


def program(name: str) -> str:
    """The path of a program of Flower's, beside the Python that runs."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        text = f"{name} is not installed beside {sys.executable}: {install('flower')}"
        raise flower.FlowerError(text)
    return path


def _quoted(name: str) -> str:
    """A value of ``--node-config``, which Flower reads as TOML, in either kind of quotes."""
    if '"' not in name and "\\" not in name and name.isprintable():
        return f'"{name}"'
    if "'" not in name and name.isprintable():
        return f"'{name}'"
    needs = "needed is one line without quotes"
    raise flower.FlowerError(f"Flower cannot be given the name {shown(name)}: {needs}")


# Certificates and keys for a Flower deployment on one machine, made when it starts.
#
# Organisations have their own certificates; these are for trying out what encrypted connections
# cost and whether they work.

DAYS = 30


class Certificates(NamedTuple):
    """Files in PEM form: the authority's certificate, the server's certificate and its key."""

    authority: Path
    server: Path
    key: Path


def make_certificates(folder: Path, host: str) -> Certificates:
    """Make an authority and the certificate of a server at an address."""
    from cryptography import x509  # pyright: ignore[reportMissingImports]
    from cryptography.hazmat.primitives import hashes, serialization  # pyright: ignore
    from cryptography.hazmat.primitives.asymmetric import ec  # pyright: ignore

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    ends = begins + datetime.timedelta(days=DAYS)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def signed(subject: str, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> bytes:
        own, issuer = key.public_key(), authority_key.public_key()
        more: x509.ExtensionType
        if is_authority:
            more = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        else:
            address = x509.IPAddress(ipaddress.ip_address(host))
            more = x509.SubjectAlternativeName([address, x509.DNSName("localhost")])
        builder = (
            x509.CertificateBuilder(named("bonafed deployment"), named(subject), own)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), False)
            .add_extension(more, critical=is_authority)
        )
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    make_folder(folder)
    files = Certificates(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    write_whole(files.authority, signed("bonafed deployment", authority_key, True))
    write_whole(files.server, signed(host, server_key, False))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_whole(files.key, server_key.private_bytes(*form, serialization.NoEncryption()), OWN)
    return files


def make_node_key(path: Path) -> tuple[Path, Path]:
    """Make the key of a SuperNode in the form of OpenSSH; the files of both halves."""
    from cryptography.hazmat.primitives import serialization  # pyright: ignore
    from cryptography.hazmat.primitives.asymmetric import ec  # pyright: ignore

    private, public = path, path.with_name(path.name + ".pub")
    if not private.exists():
        make_folder(path.parent)
        key = ec.generate_private_key(ec.SECP384R1())
        of = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
        write_whole(public, key.public_key().public_bytes(*of))
        write_whole(private, key.private_bytes(*form, serialization.NoEncryption()), OWN)
    return private, public
