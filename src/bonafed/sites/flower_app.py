"""The two apps of a run over Flower: what a SuperLink starts, and what a SuperNode starts.

The stubs of an exported app call `server_app` and `client_app`. A SuperNode starts a new process
for every message, so whatever a site has to remember is on its disk; its party sees to that. Where
the site's data are is the site's affair: the folder stands in the SuperNode's own configuration
(``--node-config 'client-id="north" site="/data/north"'``) or in the environment (BONAFED_SITE), and
nothing that a run brings can name one.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed.engines import flower
from bonafed.engines.job import ERROR, package_digest
from bonafed.storage import Lock, make_folder, write_whole
from bonafed.text import shown

if TYPE_CHECKING:
    from flwr.app import Context, Message  # pyright: ignore[reportMissingImports]
    from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
    from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

log = logging.getLogger(__name__)

SITE = "site"  # the key of a SuperNode's configuration that names the folder of the site
SITE_VARIABLE = "BONAFED_SITE"  # the same, in the environment of the SuperNode
SERVER_VARIABLE = "BONAFED_SERVER"  # in the environment of the SuperLink: where runs are kept
SIMULATED = "BONAFED_SIMULATED_SITES"  # in a simulation: all sites, as JSON [[name, folder], ...]
LOCK = ".flower.lock"
PATIENCE = 120.0  # seconds that a process waits for one that was left over
Values = Mapping[str, object]


OpenParty = Callable[[Path, str], Any]  # bonafed.sites.party.Party
Serve = Callable[[flower.FlowerTransport, Path, Mapping[str, str]], None]


# ---------------------------------------------------------------------------------------- the site


def client_app(software: str = "", open_party: OpenParty | None = None) -> ClientApp:
    """Make the ClientApp of a site.

    Parameters
    ----------
    software : the digest of the bonafed that the run was made with; any where it is empty
    open_party : what opens the party of the site's folder, bonafed's own by default
    """
    from flwr.app import Message  # pyright: ignore
    from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]

    app = ClientApp()

    def replied(message: Message, envelope: flower.Envelope) -> Message:
        return Message(flower.records_of(envelope), reply_to=message)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return replied(message, greet(message.content, context.node_config, software))

    @app.query("step")
    def step(message: Message, context: Context) -> Message:
        from bonafed.sites import party

        sender = "Flower"  # a run that goes on has another number
        place, opener = context.node_config, open_party or party.open_party
        return replied(message, take_step(message.content, place, sender, software, opener))

    return app


def greet(message: object, config: Values, software: str = "") -> flower.Envelope:
    """Answer the question for the site's name; a refusal is an answer, too."""
    with _refusals() as refused:
        flower.opened(message, "hello", int)
        _check_software(software)
        return flower.sealed("name", place(config)[1])
    return refused[0]


def take_step(
    message: object, config: Values, sender: str, software: str, open_party: OpenParty
) -> flower.Envelope:
    """Hand the bytes of a message to the site's party, one message at a time."""
    with _refusals() as refused:
        data = flower.opened(message, "data", bytes, flower.LARGEST)
        _check_software(software)
        folder, name = place(config)
        with _alone(folder, "the site"), closing(open_party(folder, name)) as party:
            return flower.sealed("data", party.answer(sender, data))
    return refused[0]


def place(config: Values, environment: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """The folder and the name of the site, from the SuperNode's configuration."""
    simulated = environment.get(SIMULATED)
    if simulated and "partition-id" in config:
        name, folder = json.loads(simulated)[int(str(config["partition-id"]))]
        return Path(folder), name
    name, folder = config.get(flower.CLIENT_ID), config.get(SITE) or environment.get(SITE_VARIABLE)
    if not isinstance(name, str) or not name:
        raise flower.RefusedError(
            f"the SuperNode has no name of a site (its {flower.CLIENT_ID} is {shown(name)}):"
            f" start it with --node-config '{flower.CLIENT_ID}=\"NAME\"'"
        )
    if not isinstance(folder, str) or not Path(folder).is_dir():
        raise flower.RefusedError(
            f"the SuperNode of {shown(name)} has no folder of a site: start it with --node-config"
            f' \'{flower.CLIENT_ID}="NAME" {SITE}="FOLDER"\', or set {SITE_VARIABLE}'
        )
    return Path(folder), name


@contextmanager
def _refusals() -> Iterator[list[flower.Envelope]]:
    """Turn what goes wrong into a refusal; an error that nobody expected keeps its text here."""
    refused: list[flower.Envelope] = []
    try:
        yield refused
    except (flower.MalformedError, flower.RefusedError) as error:
        log.warning("refused a message: %s", error)
        refused.append(flower.sealed("refused", str(error)))
    except Exception as error:
        log.exception("a message could not be answered")
        kind = type(error).__name__
        text = f"the site could not answer ({kind}); the log of its SuperNode says more"
        refused.append(flower.sealed("refused", text))


def _check_software(needed: str) -> None:
    if needed and needed != (given := package_digest()):
        text = f"the bonafed that is installed has the digest {given[:16]}, the run was made with"
        raise flower.RefusedError(f"{text} {needed[:16]}: install the wheel of the approval sheet")


# -------------------------------------------------------------------------------------- the server


def server_app(job: Path, software: str = "", serve: Serve | None = None) -> ServerApp:
    """Make the ServerApp of a run.

    Parameters
    ----------
    job : the file of the app that says what to do
    software : the digest of the bonafed that the run was made with; any where it is empty
    serve : what runs the job, bonafed's own by default
    """
    from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

    app = ServerApp()

    @app.main()
    def main(grid: flower.Grid, context: Context) -> None:
        from bonafed.sites import server

        run_job(grid, job, software, serve or server.serve)

    return app


def run_job(
    grid: flower.Grid,
    job: Path,
    software: str,
    serve: Serve,
    *,
    message: flower.MakeMessage = flower.flower_message,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Run a job in its folder on the server; a job that was cut short goes on there."""
    _check_software(software)
    base = environment.get(SERVER_VARIABLE)
    if not base:
        raise flower.FlowerError(
            f"the SuperLink has no folder for runs of bonafed: set {SERVER_VARIABLE} in its"
            " environment and start it again"
        )
    content = json.loads(job.read_text(encoding="utf-8"))
    folder = flower.job_folder(Path(base), content["job"])
    make_folder(folder)
    with _alone(folder, "the server of this job"), _noted(folder / ERROR):
        limits = flower.Limits(**content["limits"])
        carrier = flower.FlowerTransport(grid, content["sites"], limits, message=message)
        with closing(carrier) as transport:
            transport.gather()
            serve(transport, folder, content["job"])


@contextmanager
def _noted(path: Path) -> Iterator[None]:
    """Write down why a run failed, unless it only lost the SuperLink and may be tried again."""
    path.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpcore"):
            write_whole(path, f"{type(error).__name__}: {error}".encode())
        raise


def _alone(folder: Path, who: str) -> AbstractContextManager[None]:
    """Keep out other processes, such as one that a crash left over, while one works in a folder."""
    return Lock(folder / LOCK).alone(f"another process of {who} is at work", PATIENCE)
