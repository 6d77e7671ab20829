"""Messages of a run over Flower: the server's side pushes bytes to sites and collects answers.

Flower knows a site by a node id, which changes when the site's SuperNode is started again. Here a
site is known by the name that its owner gave the SuperNode (``--node-config 'client-id="north"'``):
a short message, ``hello``, asks every node for it. A message whose node was lost waits until a node
of that name is there again, and is pushed there. Whether a site has seen it before is not a concern
here: a site answers a repeated message with the answer that it kept.
"""

import hashlib
import io
import json
import logging
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from bonafed.client_names import repeated
from bonafed.engines.job import PACKAGE, digest_of, experiment_of, package_digest
from bonafed.storage import make_folder, write_whole
from bonafed.text import listed, printable, short, shown

log = logging.getLogger(__name__)

CLIENT_ID = "client-id"  # the key of a SuperNode's configuration that holds the site's name
HELLO, STEP = "query.hello", "query.step"  # Flower's types of the two messages
UNNOTICED = 120.0  # seconds in which Flower notices that a node is dead
LOST = {  # Flower's codes after which the same message is pushed again
    3: "the message is no longer on the SuperLink",
    4: "the answer is no longer on the SuperLink",
    5: "its SuperNode is not connected",
}
FAILED = {
    0: "Flower reports an error of no kind",
    1: "the app could not be loaded; is the same bonafed installed there?",
    2: "the app raised an error",
    6: "a Flower mod refused the message",
    7: "the SuperNode refused the app bundle",
    8: "the app's process ended without an answer",
}


class FlowerError(RuntimeError):
    """Something in a Flower federation has to be put right by a person."""


class SiteError(FlowerError):
    """One site did not answer one message.

    Attributes
    ----------
    site : the name of the site
    code : Flower's number for the kind of error, None where the error is not Flower's
    reason : what Flower or the site wrote about it
    """

    def __init__(self, site: str, code: int | None, reason: str) -> None:
        text = reason if code is None else faulty(code, reason)
        super().__init__(f"site {printable(site)}: {short(printable(text), 2000)}")
        self.site, self.code, self.reason = site, code, reason


def faulty(code: int, reason: str) -> str:
    """What an error of Flower's means, and what Flower wrote about it."""
    text = {**LOST, **FAILED}.get(code, f"Flower's error {code}")
    return f"{text} ({reason})" if reason else text


# the part of Flower's ``Grid`` that carries messages: ``get_node_ids``, ``push_messages`` and
# ``pull_messages``, whose replies have ``metadata.reply_to_message_id``, ``content``,
# ``has_error()`` and an ``error`` of a ``code`` and a ``reason``
Grid = Any
Reply = Any

Envelope = Mapping[str, Mapping[str, bytes | str | int]]
MakeMessage = Callable[[Envelope, int, str, str, float], object]


def flower_message(content: Envelope, node: int, kind: str, group: str, ttl: float) -> object:
    """Make a message of Flower's to a node; ``group`` is shown in the SuperNode's log."""
    from flwr.app import Message  # pyright: ignore[reportMissingImports]

    return Message(records_of(content), node, kind, ttl=ttl, group_id=group)


def records_of(content: Envelope) -> Any:
    """The content of a message as Flower's records."""
    from flwr.app import ConfigRecord, RecordDict  # pyright: ignore[reportMissingImports]

    return RecordDict({name: ConfigRecord(dict(values)) for name, values in content.items()})


@dataclass(frozen=True)
class Limits:
    """How long the server waits, in seconds, and how often it pushes one message.

    Parameters
    ----------
    gather : for all sites to be connected at the start
    lost : for a site to come back; Flower itself notices a loss after a minute
    answer : for one answer of a site that is connected
    look : between two looks at which nodes are connected
    pause : between two questions for answers
    pushes : of one message, each after the first because its node or the message was lost
    """

    gather: float = 600.0
    lost: float = 600.0
    answer: float = 12 * 3600.0
    look: float = 1.0
    pause: float = 0.2
    pushes: int = 6


class Nodes:
    """Which node is which site, by the nodes' answers to ``hello``.

    Where a second node gives a name, both are asked again: a node that was killed does not answer,
    and two that do are two sites of one name.
    """

    def __init__(self, sites: tuple[str, ...]) -> None:
        self.sites = sites
        self.names: dict[int, str] = {}  # node -> the site that it said it is
        self.foreign: dict[int, str] = {}  # node -> why it is no site of this run
        self.asked: dict[str, int] = {}  # message id -> node that has not answered it
        self.twice: dict[str, set[int]] = {}  # site -> the nodes that gave its name

    def of(self, site: str) -> int | None:
        """The node of a site; None where there is none yet, or two."""
        if site in self.twice:
            return None
        return next((node for node, name in self.names.items() if name == site), None)

    def doubled(self, site: str) -> str:
        """What is wrong where two nodes are one site; nothing otherwise."""
        nodes = self.twice.get(site, set())
        if not nodes or any(node not in self.names for node in nodes):
            return ""
        return (
            f"the nodes {listed(sorted(nodes), len(nodes))} all call themselves"
            f" {shown(site)}; every site needs a separate name: end all but one, or start them"
            f" with other names (--node-config '{CLIENT_ID}=\"NAME\"')"
        )

    def unknown(self, connected: Iterable[int]) -> list[int]:
        """Forget the nodes that are not connected, and list those that are still to be asked."""
        connected = [*connected]
        for node in {*self.names, *self.foreign, *self.asked.values()}.difference(connected):
            self.forget(node)
        known = {*self.names, *self.foreign, *self.asked.values()}
        return [node for node in connected if node not in known]

    def forget(self, node: int) -> None:
        """Take back all that is known about a node; where it is connected, it is asked again."""
        self.names.pop(node, None)
        self.foreign.pop(node, None)
        self.asked = {message: other for message, other in self.asked.items() if other != node}
        for nodes in self.twice.values():
            nodes.discard(node)
        self.twice = {site: nodes for site, nodes in self.twice.items() if len(nodes) > 1}

    def named(self, node: int, name: str) -> None:
        """Note the name that a node gave."""
        if name not in self.sites:
            self.foreign[node] = (
                f"node {node} calls itself {shown(name)}; the sites of this run are"
                f" {listed(self.sites, len(self.sites), 8)}. End that SuperNode, or start it with"
                f" --node-config '{CLIENT_ID}=\"NAME\"'"
            )
        elif name in self.twice:
            self.names[node] = name
            self.twice[name].add(node)
        elif (other := self.of(name)) is None or other == node:
            self.names[node] = name
        else:
            del self.names[other]
            self.twice[name] = {other, node}


@dataclass
class Pending:
    """A message without an answer; ``message_id`` is None while it waits for a node."""

    site: str
    seq: int
    data: bytes
    since: float  # when it was pushed, or when it began to wait
    node: int | None = None
    message_id: str | None = None
    pushes: int = 0
    lost: tuple[int | None, str] = field(default=(None, ""))  # why it waits


@dataclass(eq=False)
class FlowerTransport:
    """Carries bytes between the server and the sites over a grid of Flower's.

    Parameters
    ----------
    grid : what Flower hands to a ServerApp
    sites : the names of all sites, in the order of `ids`
    limits : how long the server waits
    message : makes a message of Flower's; for tests without Flower
    clock, sleep : the time in seconds and how to wait; for tests
    """

    grid: Grid
    sites: Sequence[str]
    limits: Limits = Limits()
    message: MakeMessage = flower_message
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.sites, twice = tuple(self.sites), repeated(self.sites)
        if twice or not self.sites:
            given = f"{listed(twice, len(twice))} given twice" if twice else "none given"
            raise FlowerError(f"the sites of a run: {given}; needed: at least one, no name twice")
        self._nodes = Nodes(tuple(self.sites))
        self._pending: list[Pending] = []
        self._ready: list[tuple[str, int, bytes | Exception]] = []
        self._looked = -float("inf")
        self._warned: set[int] = set()

    def ids(self) -> tuple[str, ...]:
        return tuple(self.sites)

    def gather(self) -> None:
        """Wait until every site is connected; raises ``FlowerError`` for a node that is none."""
        end = self.clock() + self.limits.gather
        alone = self.clock()  # when no two nodes were last one site
        while True:
            missing = [site for site in self.sites if self._nodes.of(site) is None]
            doubled = [text for site in self.sites if (text := self._nodes.doubled(site))]
            alone = alone if doubled else self.clock()
            lasting = doubled if self.clock() - alone >= UNNOTICED else []
            if wrong := [*lasting, *self._nodes.foreign.values()]:
                raise FlowerError("; ".join(wrong))
            if not missing:
                return
            if self.clock() >= end:
                why = f"of {len(self.sites)} sites {listed(missing, len(missing), 8)} did not"
                why += f" connect within {self.limits.gather:.0f} s; each has to start its"
                raise FlowerError(f"{why} SuperNode with --node-config '{CLIENT_ID}=\"NAME\"'")
            self._look()
            self._collect()
            self.sleep(self.limits.pause)

    def push(self, client: str, seq: int, message: bytes) -> None:
        if client not in self.sites:
            sites = listed(self.sites, len(self.sites), 8)
            raise ValueError(f"there is no site {client!r}; the sites are {sites}")
        pending = Pending(client, seq, message, self.clock())
        self._pending.append(pending)
        self._send(pending)

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        end = None if timeout is None else self.clock() + timeout
        while True:
            # Look for lost sites, push what waits for them, collect answers, give up what is late
            if any(pending.message_id is None for pending in self._pending):
                self._look()
            self._collect()
            for pending in [each for each in self._pending if each.message_id is None]:
                self._send(pending)
            now = self.clock()
            for pending in [*self._pending]:
                self._judge(pending, now)

            if self._ready or not self._pending:
                ready, self._ready = self._ready, []
                return ready
            left = self.limits.pause if end is None else end - self.clock()
            if left <= 0:
                return []
            self.sleep(min(left, self.limits.pause))

    def close(self) -> None:
        """Wait for nothing any more; answers that are on their way are dropped."""
        self._pending.clear()
        self._ready.clear()

    # ------------------------------------------------------------------------------- one turn

    def _look(self) -> None:
        """Ask every node for its name that is connected and has not been asked."""
        if self.clock() - self._looked < self.limits.look:
            return
        self._looked = self.clock()
        for node in self._nodes.unknown(self.grid.get_node_ids()):
            if ids := self._push(sealed("hello", 1), node, HELLO, "hello", self.limits.lost):
                self._nodes.asked[ids] = node

    def _collect(self) -> None:
        """Pull the answers that are there, of both kinds, and give each to who waits for it."""
        waiting = {each.message_id: each for each in self._pending if each.message_id is not None}
        if not waiting and not self._nodes.asked:
            return
        for reply in self.grid.pull_messages([*waiting, *self._nodes.asked]):
            message_id = reply.metadata.reply_to_message_id
            if message_id in self._nodes.asked:
                self._greeted(self._nodes.asked.pop(message_id), reply)
            elif (pending := waiting.pop(message_id, None)) is not None:
                self._answered(pending, reply)

    def _greeted(self, node: int, reply: Reply) -> None:
        """Note a node's answer to ``hello``."""
        if reply.has_error() and reply.error.code in LOST:
            self._nodes.forget(node)
            return
        try:
            if reply.has_error():
                raise RefusedError(faulty(reply.error.code, reply.error.reason or ""))
            self._nodes.named(node, answered(reply.content, "name", str, LONGEST))
        except (MalformedError, RefusedError) as error:
            text = f"node {node} does not say which site it is: {error}"
            self._nodes.foreign[node] = short(printable(text), 2000)
        if node in self._nodes.foreign and node not in self._warned:
            self._warned.add(node)
            log.warning("%s", self._nodes.foreign[node])

    def _answered(self, pending: Pending, reply: Reply) -> None:
        """Note a site's answer to a step, or that its node or the message was lost."""
        if reply.has_error():
            code, reason = reply.error.code, reply.error.reason or ""
            if code in LOST and pending.pushes < self.limits.pushes:
                return self._lost(pending, code, reason)
            return self._done(pending, SiteError(pending.site, code, reason))
        try:
            self._done(pending, answer_in(reply.content))
        except (MalformedError, RefusedError) as error:
            self._done(pending, SiteError(pending.site, None, str(error)))

    def _send(self, pending: Pending) -> None:
        """Push a message to its site's node, where there is one."""
        node = self._nodes.of(pending.site)
        if node is None:
            return
        kept = self.limits.answer
        message_id = self._push(sealed("data", pending.data), node, STEP, str(pending.seq), kept)
        pending.pushes += 1
        if message_id:
            pending.node, pending.message_id, pending.since = node, message_id, self.clock()
        elif message_id is None and pending.pushes < self.limits.pushes:
            pending.node = node
            self._lost(pending, 5, "the SuperLink took no message for it")
        else:
            size = f"a message of {len(pending.data):,} bytes"
            self._done(pending, SiteError(pending.site, None, f"the SuperLink refused {size}"))

    def _push(self, content: Envelope, node: int, kind: str, group: str, ttl: float) -> str | None:
        """Push one message; its id, None where the node is gone, "" where it is too large."""
        message = self.message(content, node, kind, group, ttl)
        ids = [*self.grid.push_messages([message])]
        return ids[0] if ids else ""

    def _lost(self, pending: Pending, code: int, reason: str) -> None:
        """Let a message wait for a node of its site's name."""
        log.warning("site %s: %s; its message waits", pending.site, LOST[code])
        if pending.node is not None:
            self._nodes.forget(pending.node)
        pending.node = pending.message_id = None
        pending.since, pending.lost = self.clock(), (code, reason)

    def _judge(self, pending: Pending, now: float) -> None:
        """Give up a message that has waited too long, or whose site is two nodes."""
        waits = pending.message_id is None
        limit = self.limits.lost if waits else self.limits.answer
        seen = self._looked > pending.since  # one of two may have ended since the last look
        if waits and seen and (text := self._nodes.doubled(pending.site)):
            self._done(pending, SiteError(pending.site, None, text))
        elif now - pending.since > limit:
            code, reason = pending.lost if waits else (None, "")
            what = "did not connect" if waits else "did not answer"
            text = f"{what} within {limit:.0f} s" + (f" ({reason})" if reason else "")
            self._done(pending, SiteError(pending.site, code, text))

    def _done(self, pending: Pending, result: bytes | Exception) -> None:
        """Report a message, once."""
        self._pending = [other for other in self._pending if other is not pending]
        self._ready.append((pending.site, pending.seq, result))


# The form of a message over Flower: one record named ``bonafed`` with one value.
#
#     server -> site    {"bonafed": {"hello": 1}}          what is your name?
#     site -> server    {"bonafed": {"name": "north"}}
#     server -> site    {"bonafed": {"data": bytes}}       a step
#     site -> server    {"bonafed": {"data": bytes}}       its answer
#     site -> server    {"bonafed": {"refused": "why"}}    where the message is not of this form
#
# What the bytes mean is not an affair of Flower's: bonafed's codec makes and checks them.

T = TypeVar("T", bytes, str, int)

RECORD = "bonafed"
LARGEST = 1 << 30  # bytes of one message; Flower's own limit is 2 GiB
LONGEST = 4000  # characters of a name or a reason


class MalformedError(ValueError):
    """A message that has not the form of this page."""


class RefusedError(RuntimeError):
    """The site's adapter refused a message before its party saw it; the text says why."""


def sealed(value: str, content: bytes | str | int) -> Envelope:
    """A message with one value, such as ``sealed("data", b"...")``."""
    return {RECORD: {value: content}}


def opened(message: object, value: str, kind: type[T], largest: int = LARGEST) -> T:
    """The value of that name; raises ``MalformedError`` where the message is anything else."""
    content: Any = message
    for what, part, needed in (("message", "record", RECORD), ("record", "value", value)):
        if not isinstance(content, Mapping):
            given = f"a {what} is {shown(content, 60)}"
            raise MalformedError(f"{given}; needed: a mapping with one entry")
        if len(content) != 1:
            names = listed(content, len(content)) or "none"
            raise MalformedError(f"a {what} has {len(content)} entries ({names}); needed: one")
        ((name, content),) = content.items()
        if name != needed:
            given = f"the {part} of a message is called {shown(name)}"
            raise MalformedError(f"{given}; needed: {needed!r}")
    if type(content) is not kind:
        given = type(content).__name__
        raise MalformedError(f"{value!r} of a message is of type {given}; needed: {kind.__name__}")
    if isinstance(content, bytes | str) and len(content) > largest:
        raise MalformedError(f"a message of {len(content):,} bytes; allowed are {largest:,}")
    return content


def answer_in(message: object, largest: int = LARGEST) -> bytes:
    """The bytes of a site's answer."""
    return answered(message, "data", bytes, largest)


def answered(message: object, value: str, kind: type[T], largest: int) -> T:
    """The value that a site gave; raises ``RefusedError`` where it gave none, and why."""
    values = message.get(RECORD) if isinstance(message, Mapping) else None
    if isinstance(values, Mapping) and "refused" in values:
        raise RefusedError(opened(message, "refused", str, LONGEST))
    return opened(message, value, kind, largest)


# The Flower app of a run as files: a job, two stubs, and a page by which a site approves them.
#
# The app holds only stubs: each fetches its app from the installed bonafed, and the app refuses to
# work where that is another bonafed than the one it was made with. Flower packs an app directory
# into a bundle (a FAB, a zip archive) when it is submitted. `export_app` packs the same bytes, with
# fixed dates and in a fixed order, so that a job has one SHA-256 no matter who packs it.

APPS = "bonafed.sites.flower_app"  # the module that the stubs fetch both apps from
JOB, SETTINGS, CLIENT, SERVER = "job.json", "pyproject.toml", "bonafed_site.py", "bonafed_server.py"
FLOWER = ">=1.41,<1.42"
DATE = (2024, 10, 1, 0, 0, 0)  # that Flower writes on every file of a bundle
PUBLISHER, NAME = "bonafed", "bonafed-run"
STUB = '''"""What {who} runs: the app of the installed bonafed."""

{before}from {apps} import {app}

app = {app}({given})
'''


@dataclass(frozen=True)
class Bundle:
    """A Flower app that was written.

    Attributes
    ----------
    app : the app directory, for ``flwr run``
    file : the bundle that Flower makes of it
    sheet : the approval sheet
    sha256 : of the bundle
    """

    app: Path
    file: Path
    sheet: Path
    sha256: str


def export_app(
    folder: Path,
    job: Mapping[str, str],
    sites: Sequence[str],
    *,
    wheel: Path | None = None,
    limits: Limits | None = None,
    disclosed: Sequence[str] = (),
    apps: str = APPS,
) -> Bundle:
    """Write the Flower app of a job, its bundle and its approval sheet.

    Parameters
    ----------
    folder : where; files that are there already have to be the same
    job : what ``bonafed.sites.server.serve`` is given; ``job["experiment"]`` names the server's
        folder for it, and the same job goes on there when it is submitted again
    sites : the names of the sites, in the order that the server keeps
    wheel : the file of the bonafed that sites install; its hash is put on the sheet. It has to hold
        the same files as the bonafed that runs here
    limits : how long the server waits
    disclosed : lines on what the run's messages tell the server, for the sheet
    apps : the module with ``client_app`` and ``server_app``
    """
    job_folder(folder, job)
    pins = {"version": version("bonafed"), "package_sha256": package_digest()}
    if wheel is not None:
        # SHA-256 of a wheel, which holds the bonafed that runs here
        needed = pins["package_sha256"]
        with zipfile.ZipFile(wheel) as archive:
            top = f"{PACKAGE.name}/"
            inside = [name for name in archive.namelist() if name.startswith(top) and name != top]
            given = digest_of((name.removeprefix(top), archive.read(name)) for name in inside)
        if given != needed:
            raise FlowerError(
                f"{wheel} holds another bonafed (digest {given[:16]}) than the one that runs"
                f" here ({needed[:16]}): install that wheel first, or give the wheel that is"
                " installed"
            )
        pins["wheel_sha256"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    files = _files(dict(job), [*sites], limits or Limits(), pins, apps)
    # the bundle that Flower makes of these files, bit by bit
    order = [SETTINGS, *sorted(set(files) - {SETTINGS})]
    listing = [f"{name},{_sha256(files[name])},{8 * len(files[name])}" for name in order]
    target, content = io.BytesIO(), "\n".join(listing).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in [*((n, files[n]) for n in order), (".info/CONTENT", content)]:
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3  # Windows would write another number
            archive.writestr(entry, data)
    packed = target.getvalue()
    sha256 = _sha256(packed)
    release = pins["version"].replace(".", "-")
    file = folder / f"{PUBLISHER}.{NAME}.{release}.{sha256[:8]}.fab"
    bundle = Bundle(folder / "app", file, folder / "APPROVAL.md", sha256)
    sheet = _sheet(bundle, files, sites, pins, disclosed, apps)
    _write(bundle.app, files)
    _write(folder, {file.name: packed, bundle.sheet.name: sheet.encode()}, others=True)
    return bundle


def job_folder(base: Path, job: Mapping[str, str]) -> Path:
    """Where the server keeps a job below a folder: every run of the same job goes on there."""
    return base / experiment_of(job)


def _files(
    job: dict[str, str], sites: list[str], limits: Limits, pins: dict[str, str], apps: str
) -> dict[str, bytes]:
    """The files of the app directory."""
    about = "A run of bonafed; all code is in the installed package."
    project: dict[str, object] = {"name": NAME, "version": pins["version"], "description": about}
    # not bonafed: each site installs it by itself, from what it has checked
    project["dependencies"] = [f"flwr{FLOWER}"]
    stubs = {"serverapp": SERVER, "clientapp": CLIENT}
    components = {name: f"{file.removesuffix('.py')}:app" for name, file in stubs.items()}
    app = {"publisher": PUBLISHER, "components": components}
    settings = {"project": project, "tool": {"flwr": {"app": app}, "bonafed": pins}}
    content = {"job": job, "limits": asdict(limits), "sites": sites}
    pin, path = f'"{pins["package_sha256"]}"', "from pathlib import Path\n\n"
    at = f'Path(__file__).with_name("{JOB}"), {pin}'
    texts = {
        SETTINGS: tomli_w.dumps(settings),
        JOB: json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True) + "\n",
        CLIENT: STUB.format(who="a site", before="", apps=apps, app="client_app", given=pin),
        SERVER: STUB.format(who="the server", before=path, apps=apps, app="server_app", given=at),
    }
    return {name: text.encode() for name, text in texts.items()}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(folder: Path, files: Mapping[str, bytes], others: bool = False) -> None:
    """Write files that are new, or the same as those that are there."""
    make_folder(folder)
    there = {path.name for path in folder.iterdir()}
    changed = [n for n in there & set(files) if (folder / n).read_bytes() != files[n]]
    if wrong := sorted(changed if others else {*changed, *(there - set(files))}):
        text = f"{folder} holds other files ({listed(wrong, len(wrong))}): give an empty folder"
        raise FlowerError(text)
    for name, data in files.items():
        if name not in there:
            write_whole(folder / name, data)


def _sheet(
    bundle: Bundle,
    files: Mapping[str, bytes],
    sites: Sequence[str],
    pins: Mapping[str, str],
    disclosed: Sequence[str],
    apps: str,
) -> str:
    """The approval sheet: one page for the person who decides what runs at a site."""
    listing = [f"| `{n}` | {len(files[n]):,} | `{_sha256(files[n])}` |" for n in sorted(files)]
    leaves = [f"- {printable(line)}" for line in disclosed] or [
        "- Answers to the server's messages, as far as the site's own `site.toml` permits them:"
        " sums and models, never rows. `bonafed site policy` prints what that is in words."
    ]
    wheel = pins.get("wheel_sha256")
    hashed = f"`{wheel}`" if wheel else "not given when this was made"
    kept = f"{PUBLISHER}.{NAME}.{pins['version']}.{bundle.sha256[:8]}"
    facts = {"bundle": bundle, "pins": pins, "hashed": hashed, "kept": kept, "apps": apps}
    facts |= {"FLOWER": FLOWER, "CLIENT": CLIENT, "SERVER": SERVER, "JOB": JOB}
    facts |= {"CLIENT_ID": CLIENT_ID, "sites": listed(sites, len(sites), 20)}
    lines = {"listing": "\n".join(listing), "leaves": "\n".join(leaves)}
    return Path(__file__).with_name("approval.md").read_text("utf-8").format(**facts, **lines)


# A guard for a site: its SuperNode runs the app bundles that the site approved, and no others.
#
# By itself a SuperNode runs every app that its SuperLink sends, with its own rights: such an app
# could read the site's rows and pass by ``site.toml``. Flower's check of signatures serves its own
# hub only. For every message a SuperNode starts the program ``flwr-clientapp`` by its bare name;
# the guard is a program of that name which comes first on the SuperNode's PATH. It compares the
# SHA-256 of the bundle with a file of the site's before Flower unpacks it.

PROGRAM = "flwr-clientapp"


class NotApprovedError(RuntimeError):
    """A bundle that the site has not approved."""


def guarded(folder: Path, approved: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a SuperNode has to be started so that the guard stands before it.

    Parameters
    ----------
    folder : where the guard's program is written; nobody else may write there
    approved : the file of the site's with one SHA-256 a line, read again for every message; what
        follows a # is a remark
    environment : the one to change, such as ``os.environ``
    """
    make_folder(folder)
    program = f"#!{sys.executable}\nfrom bonafed.engines.flower import main\n\n"
    program += f"main({str(approved.absolute())!r})\n"
    write_whole(folder / PROGRAM, program.encode(), 0o755)
    path = os.pathsep.join([str(folder.absolute()), environment.get("PATH", "")])
    return {**environment, "PATH": path}


def main(approved: str) -> None:
    """Be Flower's program, behind the guard."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp  # pyright: ignore

    stand_before(Path(approved))
    flwr_clientapp()


def stand_before(approved: Path) -> None:
    """Check every bundle before Flower unpacks it in this process."""
    from flwr.supernode.runtime import run_clientapp as flower  # pyright: ignore

    # another Flower, which has no such function, ends here with an error and runs nothing
    install = flower.install_from_fab

    def checked(bundle: bytes, *given: Any, **more: Any) -> Path:
        check_approved(bundle, approved)
        return install(bundle, *given, **more)

    flower.install_from_fab = checked


def check_approved(bundle: bytes, approved: Path) -> None:
    """Raise ``NotApprovedError`` for a bundle whose SHA-256 is not in the file."""
    lines = approved.read_text(encoding="utf-8").splitlines()
    known = {line.partition("#")[0].strip().lower() for line in lines}
    given = hashlib.sha256(bundle).hexdigest()
    if given not in known:
        raise NotApprovedError(f"the bundle {given} is not approved at this site")
