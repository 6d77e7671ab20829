"""The Flower app of a run as files: a job, two stubs, and a page by which a site approves them.

The app holds only stubs: each fetches its app from the installed bonafed, and the app
refuses to work where that is another bonafed than the one it was made with. Flower packs an app
directory into a bundle (a FAB, a zip archive) when it is submitted. `export_app` packs the same
bytes, with fixed dates and in a fixed order, so that a job has one SHA-256 no matter who packs it.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import tomli_w

from bonafed.engines.flower.transport import CLIENT_ID, FlowerError, Limits
from bonafed.engines.job import experiment_of
from bonafed.engines.software import PACKAGE, digest_of, package_digest
from bonafed.storage import make_folder, write_whole
from bonafed.text import listed, printable

APPS = "bonafed.sites.flower_app"  # the module that the stubs fetch both apps from
JOB, SETTINGS, CLIENT, SERVER = "job.json", "pyproject.toml", "bonafed_site.py", "bonafed_server.py"
FLOWER = ">=1.41,<1.42"
DATE = (2024, 10, 1, 0, 0, 0)  # that Flower writes on every file of a bundle
PUBLISHER, NAME = "bonafed", "bonafed-run"


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
        pins["wheel_sha256"] = _checked_wheel(wheel, pins["package_sha256"])
    files = _files(dict(job), [*sites], limits or Limits(), pins, apps)
    packed = _packed(files)
    sha256 = hashlib.sha256(packed).hexdigest()
    release = pins["version"].replace(".", "-")
    file = folder / f"{PUBLISHER}.{NAME}.{release}.{sha256[:8]}.fab"
    bundle = Bundle(folder / "app", file, folder / "APPROVAL.md", sha256)
    sheet = _sheet(bundle, files, sites, pins, disclosed, wheel, apps)
    _write(bundle.app, files)
    _write(folder, {file.name: packed, bundle.sheet.name: sheet.encode()}, others=True)
    return bundle


def job_folder(base: Path, job: Mapping[str, str]) -> Path:
    """Where the server keeps a job below a folder: every run of the same job goes on there."""
    return base / experiment_of(job)


def _checked_wheel(wheel: Path, needed: str) -> str:
    """SHA-256 of a wheel, which holds the bonafed that runs here."""
    with zipfile.ZipFile(wheel) as archive:
        top = f"{PACKAGE.name}/"
        inside = [name for name in archive.namelist() if name.startswith(top) and name != top]
        given = digest_of((name.removeprefix(top), archive.read(name)) for name in inside)
    if given != needed:
        raise FlowerError(
            f"{wheel} holds another bonafed (digest {given[:16]}) than the one that runs here"
            f" ({needed[:16]}): install that wheel first, or give the wheel that is installed"
        )
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _files(
    job: dict[str, str], sites: list[str], limits: Limits, pins: dict[str, str], apps: str
) -> dict[str, bytes]:
    """The files of the app directory."""
    settings = {
        "project": {
            "name": NAME,
            "version": pins["version"],
            "description": "A run of bonafed; all code is in the installed package.",
            # not bonafed: each site installs it by itself, from what it has checked
            "dependencies": [f"flwr{FLOWER}"],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": PUBLISHER,
                    "components": {
                        "serverapp": f"{SERVER.removesuffix('.py')}:app",
                        "clientapp": f"{CLIENT.removesuffix('.py')}:app",
                    },
                }
            },
            "bonafed": pins,
        },
    }
    content = {"job": job, "limits": asdict(limits), "sites": sites}
    where = f'Path(__file__).with_name("{JOB}")'
    pin = f'"{pins["package_sha256"]}"'
    return {
        SETTINGS: tomli_w.dumps(settings).encode(),
        JOB: (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode(),
        CLIENT: (
            '"""What a site runs: the app of the installed bonafed."""\n\n'
            f"from {apps} import client_app\n\n"
            f"app = client_app({pin})\n"
        ).encode(),
        SERVER: (
            '"""What the server runs: the app of the installed bonafed."""\n\n'
            "from pathlib import Path\n\n"
            f"from {apps} import server_app\n\n"
            f"app = server_app({where}, {pin})\n"
        ).encode(),
    }


def _packed(files: Mapping[str, bytes]) -> bytes:
    """The bundle that Flower makes of these files, bit by bit."""
    order = [SETTINGS, *sorted(set(files) - {SETTINGS})]
    listing = [f"{name},{_sha256(files[name])},{8 * len(files[name])}" for name in order]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in [
            *((name, files[name]) for name in order),
            (".info/CONTENT", "\n".join(listing).encode()),
        ]:
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3  # Windows would write another number
            archive.writestr(entry, data)
    return target.getvalue()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(folder: Path, files: Mapping[str, bytes], others: bool = False) -> None:
    """Write files that are new, or the same as those that are there."""
    make_folder(folder)
    there = {path.name for path in folder.iterdir()}
    changed = [n for n in there & set(files) if (folder / n).read_bytes() != files[n]]
    if wrong := sorted(changed if others else {*changed, *(there - set(files))}):
        raise FlowerError(
            f"{folder} holds other files ({listed(wrong, len(wrong))}): give an empty folder"
        )
    for name, data in files.items():
        if name not in there:
            write_whole(folder / name, data)


def _sheet(
    bundle: Bundle,
    files: Mapping[str, bytes],
    sites: Sequence[str],
    pins: Mapping[str, str],
    disclosed: Sequence[str],
    wheel: Path | None,
    apps: str,
) -> str:
    """The approval sheet: one page for the person who decides what runs at a site."""
    listing = [f"| `{n}` | {len(files[n]):,} | `{_sha256(files[n])}` |" for n in sorted(files)]
    leaves = [f"- {printable(line)}" for line in disclosed] or [
        "- Answers to the server's messages, as far as the site's own `site.toml` permits them:"
        " sums and models, never rows. `bonafed site policy` prints what that is in words."
    ]
    kept = f"{PUBLISHER}.{NAME}.{pins['version']}.{bundle.sha256[:8]}"
    hashed = f"`{pins['wheel_sha256']}`" if wheel is not None else "not given when this was made"
    return "\n".join(
        [
            "# Approval sheet: a Flower app of bonafed",
            "",
            "A request to take part in one federated run. The app holds a job description and two"
            " stubs of three lines each. It holds no data and no other code.",
            "",
            f"- Bundle: `{bundle.file.name}`",
            f"- **SHA-256 of the bundle: `{bundle.sha256}`**",
            f"- Sites: {listed(sites, len(sites), 20)}",
            f"- Software: bonafed {pins['version']}, flwr{FLOWER}",
            f"- SHA-256 of the wheel of bonafed: {hashed}",
            f"- Digest of the installed bonafed: `{pins['package_sha256']}`",
            "",
            "| file | bytes | SHA-256 |",
            "| --- | --- | --- |",
            *listing,
            "",
            "## What runs where",
            f"- At each site, the SuperNode starts `{CLIENT}` for each message. It calls"
            f" `{apps}` of the bonafed that the site has installed, and ends. It reads the folder"
            " that the site itself named, no other; the run cannot name one.",
            f"- On the SuperLink, `{SERVER}` runs the algorithm of `{JOB}` with what sites answer.",
            "- Both refuse to work with a bonafed of another digest.",
            "",
            "## What leaves the site",
            *leaves,
            "- The site's name, and in a refusal its reason. Every message in and out is in the"
            " site's audit log (`bonafed site log`).",
            "",
            "## How to check",
            f"1. `sha256sum {bundle.file.name}` gives the hash above; `flwr build --app app` makes"
            " the same file.",
            "2. `python -c 'from bonafed.engines.software import package_digest as d; print(d())'`"
            " at the site gives the digest above.",
            f'3. Start the SuperNode with `--node-config \'{CLIENT_ID}="NAME" site="FOLDER"\'` and'
            " without `--allow-runtime-dependency-installation`.",
            "4. A SuperNode runs every app that its SuperLink sends, also one that reads the site's"
            " rows. Start it with the environment of `bonafed.engines.flower.guarded`, and it runs"
            " only the bundles whose hashes are in a file of the site's.",
            f"5. What ran is kept below `$FLWR_HOME/apps/{kept}`.",
            "",
        ]
    )
