"""What a job is to every engine that carries it: plain texts, one of which names the experiment.

The server keeps a run in a folder of that name, in which `DONE` stands once the run has ended, and
`ERROR` where its last try failed.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from bonafed.text import shown

EXPERIMENT = "experiment"  # the entry of a job that names the server's folder for the run
# what the server leaves in its folder of the run: a line for each round, what came of it, what the
# sites signed, why its last try failed, and the record that it has ended, which comes last
PROGRESS, RESULT, SIGNED = "progress.jsonl", "result.bft", "signed.bft"
ERROR, DONE = "error", "done"
LEFT = PROGRESS, RESULT, SIGNED, ERROR, DONE
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # of experiments, and of jobs and sites


def experiment_of(job: Mapping[str, str]) -> str:
    """The name of the experiment, which becomes the name of a folder: it comes from elsewhere."""
    name = job.get(EXPERIMENT, "")
    check_name("experiment", name)
    return name


def check_name(what: str, name: str) -> None:
    """Raise ``ValueError`` for a name that may be no name of a folder on another machine."""
    if not NAME.fullmatch(name):
        text = f"the name of the {what} is {shown(name)}; letters, digits, _ and - are needed (1 to"
        raise ValueError(f"{text} 63, a letter or a digit first): give another name")


# The bonafed that is installed, as one digest that sites and servers compare.

PACKAGE = Path(__file__).parents[1]  # the folder of bonafed


@cache
def package_digest() -> str:
    """SHA-256 over the names and hashes of all files of the installed bonafed."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file())
    return digest_of((path.relative_to(PACKAGE).as_posix(), path.read_bytes()) for path in files)


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """SHA-256 over the lines ``name hash`` of files, sorted; compiled files are left out."""
    lines = sorted(
        f"{name} {hashlib.sha256(data).hexdigest()}\n"
        for name, data in files
        if "__pycache__" not in name and not name.endswith(".pyc")
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()
