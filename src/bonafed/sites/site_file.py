"""What a data owner writes about a site: who it is, where its rows are, and its policy.

A ``site.toml`` has three tables. [site] says what the site is called and where it keeps its things,
[data] where its rows are and how their file is written, [policy] what others may compute on them.
It is read at the site only.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import wrap
from typing import Annotated

from pydantic import Field, PlainValidator, PrivateAttr, model_validator

from bonafed.config.schema import Section, TablesSection, Texts
from bonafed.config.toml_file import ConfigError, text_of, toml_line, toml_value, validated
from bonafed.data.reading import KINDS
from bonafed.sites.audit import AuditLog, head_path
from bonafed.sites.policy import RULES, Policy
from bonafed.sites.signatures import signer
from bonafed.storage import OWN, write_whole
from bonafed.text import printable

NAME, SECRET = "site.toml", "site.secret"
SECRET_BYTES = 32
WIDTH = 100  # characters of a line of the file that is written


def _name(value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= 64 and value == printable(value).strip():
        return value
    raise ValueError("allowed: a name of 1 to 64 printable characters, no space at its ends")


def _path(value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    raise ValueError("allowed: a path, relative to the folder of site.toml")


Place = Annotated[str, PlainValidator(_path)]


class SiteSection(Section):
    """The table [site]: the name of the site and where it keeps what it writes."""

    name: Annotated[str, PlainValidator(_name)]
    state: Place = "state"
    log: Place = "audit.jsonl"
    key: Annotated[str | None, PlainValidator(_path)] = None


class RowsSection(TablesSection):
    """The table [data]: the file of the site's rows, and how it is written."""

    path: Place
    categorical: Texts = Field(default_factory=list)  # columns of numbers that are codes

    @model_validator(mode="after")
    def _can_be_read(self) -> "RowsSection":
        _ = self.reading  # which refuses what no table can be
        return self


class SiteFile(Section):
    """A whole ``site.toml``; relative paths start at its folder."""

    site: SiteSection
    data: RowsSection
    policy: Annotated[Policy, Field(default_factory=Policy)]
    _path: Path = PrivateAttr(default_factory=lambda: Path.cwd() / NAME)

    @property
    def path(self) -> Path:
        """The file itself."""
        return self._path

    @property
    def rows(self) -> Path:
        """The table of the site's rows."""
        return self._path.parent / self.data.path

    @property
    def log(self) -> Path:
        """The audit log."""
        return self._path.parent / self.site.log

    @property
    def state(self) -> Path:
        """The folder of what the site remembers of its runs."""
        return self._path.parent / self.site.state

    @property
    def key(self) -> Path | None:
        """The private key with which the site signs; None where it signs nothing."""
        return None if self.site.key is None else self._path.parent / self.site.key

    @property
    def secret(self) -> Path:
        """The file of numbers that nobody else knows, by which rows are held out and digested."""
        return self._path.parent / SECRET

    def exposed(self) -> list[str]:
        """What other users of this machine could change or read, a sentence for each."""
        faults = []
        if os.name == "posix" and self._path.stat().st_mode & stat.S_IWOTH:
            faults.append(f"{self._path} can be changed by every user: chmod o-w {self._path}")
        for what, file in (("private key", self.key), ("secret", self.secret)):
            if os.name != "posix" or file is None or not file.exists():
                continue
            if file.stat().st_mode & 0o077:
                faults.append(f"the {what} {file} can be read by others: chmod 600 {file}")
        return faults


def site_path(place: Path, *, new: bool = False) -> Path:
    """The site.toml that a path names: itself, or that of a folder; where neither is there, the
    path is that of a file unless it is ``new``.
    """
    if place.is_dir() or (new and place.suffix != ".toml"):
        return place / NAME
    return place


def read_site(place: str | os.PathLike[str]) -> SiteFile:
    """The site whose ``site.toml`` is here, or in this folder.

    Raises
    ------
    ConfigError : there is no such file, it is not TOML, or it has unknown keys or wrong values
    """
    path = site_path(Path(place))
    site, _ = validated(SiteFile, text_of(path, "site", "bonafed site policy"), str(path))
    site._path = path.absolute()
    return site


def secret_of(site: SiteFile) -> bytes:
    """The secret of a site, which is drawn where there is none yet.

    It stands beside ``site.toml`` and not in the folder of the site's state: a site that has lost
    its state takes part again with the same held-out rows.

    Raises
    ------
    ValueError, OSError : a file that holds no secret, or cannot be read or written
    """
    if not site.secret.exists():
        write_whole(site.secret, os.urandom(SECRET_BYTES), OWN)
    secret = site.secret.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise ValueError(
            f"the secret {site.secret} has {len(secret)} bytes and needs {SECRET_BYTES}: restore"
            " it, or remove it. With another one, other rows are held out."
        )
    return secret


def unready(site: SiteFile) -> Iterator[str]:
    """Why no process of the site could answer a server, whatever its policy, a sentence for each:
    its key, its secret or its log, of which those that a first process makes may be absent.
    """
    log = any(file.exists() for file in (site.log, head_path(site.log)))
    needed: dict[Callable[[], object], bool] = {
        lambda: signer(site.key or site.path): site.key is not None,
        lambda: secret_of(site): site.secret.exists(),
        lambda: AuditLog.open(site.log, site.site.name): log,
    }
    for opened in (opened for opened, there in needed.items() if there):
        try:
            opened()
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            yield str(error)


class WatchedSite:
    """A ``site.toml`` that is read again once its bytes are others; ``site`` is what it says.

    Raises
    ------
    ConfigError, OSError : as of `read_site`
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._path = site_path(Path(place))
        self._bytes = self._path.read_bytes() if self._path.is_file() else b""
        self.site = read_site(self._path)

    def changed(self) -> bool:
        """Whether the file now says something else, which ``site`` then says.

        Raises
        ------
        ConfigError, OSError : it cannot be read now, or has another [site], which holds for as
            long as a process runs
        """
        data = self._path.read_bytes()
        if data == self._bytes:
            return False
        site = read_site(self._path)
        if site.site != self.site.site:
            text = f"{self._path}: [site] is not as it was when this process began: start it again."
            raise ConfigError(text)
        self._bytes, self.site = data, site
        return True


# -------------------------------------------------------------------------------- the first one


SITE = """\
# What this site is, and what it lets others compute on its rows; written by `bonafed site policy`.
# It is read at this site only, before every step, and no server can change it.
# `bonafed site check` holds the rows against it.

[site]
# by this name the other sites and the server know it
name = {name}
# the folder of what the site remembers of its runs; nobody else may read it
state = "state"
# the log of what was asked and answered, see `bonafed site log`
log = "audit.jsonl"
# the private key with which the site signs what it sends, see `bonafed site key`
# key = "site.key"

[data]
# CSV or Parquet, with the names of the columns in the first line
path = {path}
# columns of numbers that are codes, whose values are levels
# categorical = ["ward"]
# how the file is written: also delimiter, decimal, missing, exclude, {kinds}
# encoding = "utf-8"
"""


def first_site(name: str, path: str) -> str:
    """A commented ``site.toml`` with the defaults, for a site of this name and its table."""
    head = SITE.format(name=toml_value(name), path=toml_value(path), kinds=", ".join(KINDS))
    lines = [head, "[policy]"]
    for key, rule in RULES.items():  # with its default, below what it means
        about = rule.stated.removesuffix(": {}").format("N")
        about += f"; where this is not stated, {rule.absent}" if rule.absent else ""
        lines += wrap(about, WIDTH, initial_indent="# ", subsequent_indent="# ")
        lines += [f"# {'; '.join(rule.known)}"] if rule.known else []
        if "\n" in rule.example:
            lines += [f"# {line}" for line in rule.example.splitlines()]
        else:
            stated = f"# {key} = {rule.example}" if rule.example else toml_line(key, rule.default)
            lines.append(stated)
    return "\n".join([*lines, ""])
