"""One side of a comparison: the sources of a revision, and the folders that its runs leave.

Every command is a process of its own, with the side's ``src`` as its only PYTHONPATH and one
thread. A case is a folder with a configuration, a table, the run that it makes, and in ``said``
what each command printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import at_commit

HERE = Path(__file__).resolve().parent
SMALL = HERE / "golden"
DATA = "BONAFED_DATA"  # names the folder with the files of named data sets
ROWS = 40  # of the table that the models of the hospitals predict
RUN = "{run}"  # stands for the folder of the run in a command
LIMIT = 900  # seconds for one command
DATE = re.compile(r"20\d\d-\d\d-\d\d")
AFTER = {
    "verify.txt": ("verify", RUN),
    "report.md": ("report", RUN, "--format", "md"),
    "report.json": ("report", RUN, "--format", "json"),
}
COMMANDS = {
    **{
        f"{name}-help.txt": (name, "--help")
        for name in ("init", "data", "run", "predict", "report", "verify", "compare")
    },
    "init.txt": (
        *("init", "clinics.csv", "--client", "clinic", "--target", "sick"),
        *("--out", "plain.toml"),
    ),
    "init-private.txt": ("init", "clinics.csv", "--private", "--out", "private.toml"),
    "init-agnostic.txt": ("init", "clinics.csv", "--agnostic", "--out", "agnostic.toml"),
    "hospitals.txt": ("data", "hospitals"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is run: files of the case's folder by name, commands by the file of what they print."""

    name: str
    files: dict[str, str]
    steps: dict[str, tuple[str, ...]]

    def key(self) -> str:
        """Digest of everything that the outcome follows from, the sources excepted."""
        used = [version(name) for name in ("numpy", "scipy", "numba", "clarabel", "scikit-learn")]
        said = [self.name, self.files, self.steps, used, sys.version]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Side:
    """The sources of one revision below ``root``, and the folder in which its cases are kept."""

    root: Path
    folder: Path
    reuse: bool  # whether a finished case is taken as it is

    @property
    def environment(self) -> dict[str, str]:
        """Of every process: these sources, one thread, compiled code that belongs to the sources.

        Numba looks at the file of a function alone. Its cache is therefore named by the contents of
        all files that use it.
        """
        texts = [file.read_text("utf-8") for file in sorted(self.root.glob("src/**/*.py"))]
        compiled = "".join(text for text in texts if "numba" in text)
        cache = self.folder.parent / "numba" / hashlib.sha256(compiled.encode()).hexdigest()[:16]
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
        return {
            **os.environ,
            **dict.fromkeys(threads, "1"),
            "PYTHONPATH": str(self.root / "src"),
            "NUMBA_CACHE_DIR": str(cache),
            "COLUMNS": "300",
        }

    def python(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run this interpreter on the side's sources."""
        call = [sys.executable, *arguments]
        options: dict[str, Any] = {"cwd": folder, "env": self.environment, "timeout": LIMIT}
        return subprocess.run(call, capture_output=True, text=True, check=False, **options)

    def names(self) -> dict[str, Any]:
        """The public names with their signatures, and where the package was found."""
        done = self.python(str(HERE / "golden_names.py"), folder=self.folder)
        if done.returncode:
            sys.exit(f"golden: public names of {self.root} cannot be read:\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout)
        if not Path(found["file"]).is_relative_to(self.root / "src"):
            sys.exit(f"golden: bonafed was imported from {found['file']}, not from {self.root}")
        return found["names"]

    def case(self, case: Case) -> tuple[Path, float]:
        """The folder of a case, run unless it is kept, and the seconds that it took."""
        place = self.folder / case.name
        note = place / "said" / "done.json"
        if self.reuse and note.is_file() and json.loads(note.read_text())["key"] == case.key():
            return place, 0.0
        began = time.perf_counter()
        work = Path(tempfile.mkdtemp(prefix=".case-", dir=self.folder))
        try:
            done = self._run(case, work)
            (work / "said" / "done.json").write_text(json.dumps({"key": case.key(), **done}))
            shutil.rmtree(place, ignore_errors=True)
            work.rename(place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return place, time.perf_counter() - began

    def _run(self, case: Case, work: Path) -> dict[str, Any]:
        """Run the commands of a case; their exit statuses."""
        (work / "said").mkdir()
        for name, text in case.files.items():
            (work / name).write_text(text, encoding="utf-8")
        status = {}
        for name, arguments in case.steps.items():
            run = next((f"runs/{p.name}" for p in sorted(work.glob("runs/20*"))), "no-run")
            given = [run if word == RUN else word for word in arguments]
            done = self.python("-m", "bonafed.cli", *given, folder=work)
            status[name] = done.returncode
            (work / "said" / name).write_text(DATE.sub("DATE", done.stdout), encoding="utf-8")
            if done.stderr:
                (work / "said" / f"{name}.err").write_text(done.stderr, encoding="utf-8")
        return {"status": status}


def exported(repository: Path, rev: str, keep: Path) -> Side:
    """The sources of a revision below ``keep``, exported once."""
    commit = _git(repository, "rev-parse", "--verify", f"{rev}^{{commit}}").decode().strip()
    folder = keep / f"rev-{commit[:12]}"
    root = folder / "tree"
    folder.mkdir(parents=True, exist_ok=True)
    if not root.is_dir():
        work = Path(tempfile.mkdtemp(prefix=".tree-", dir=folder))
        at_commit(commit, work, "examples")
        work.rename(root)
    return Side(root, folder, reuse=True)


def checkout(repository: Path, keep: Path) -> Side:
    """The sources as they are in this checkout; its cases are run again every time."""
    folder = keep / f"new-{repository.name}"
    folder.mkdir(parents=True, exist_ok=True)
    return Side(repository, folder, reuse=False)


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"golden: git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def cases(side: Side, old: bool) -> dict[str, Case | str]:
    """All cases of a side by name; a text instead of a case says why it is left out.

    Each side runs its own ``examples``. The small kinds are the same for both sides, except where
    a key of the configuration was renamed on purpose: then the old side runs ``NAME.old.toml``.
    """
    found: dict[str, Case | str] = {}
    for file in sorted(side.root.glob("examples/*.toml")):
        found[f"example {file.stem}"] = _example(f"example {file.stem}", file.read_text("utf-8"))
    clinics = (SMALL / "clinics.csv").read_text("utf-8")
    for file in sorted(SMALL.glob("*.toml")):
        if not file.name.endswith(".old.toml"):
            before = file.with_name(f"{file.stem}.old.toml")
            text = (before if old and before.is_file() else file).read_text("utf-8")
            found[file.stem] = _case(file.stem, text, {"clinics.csv": clinics})
    found["commands"] = Case("commands", {"clinics.csv": clinics}, COMMANDS)
    return found


def _example(name: str, text: str) -> Case | str:
    data = tomllib.loads(text)["data"].get("name")
    if data == "hospitals":
        return _case(name, text, {"patients.csv": _patients()})
    if not os.environ.get(DATA):
        return f"it needs the files of {data!r}: name their folder by {DATA}"
    return _case(name, text, {})  # no table to predict: its columns are those of the files


def _case(name: str, text: str, tables: dict[str, str]) -> Case:
    steps: dict[str, tuple[str, ...]] = {"run.txt": ("run", "case.toml", "--out", "runs")}
    if "privacy" in tomllib.loads(text):
        steps["dry-run.txt"] = ("run", "--dry-run", "case.toml")
    steps |= AFTER
    if tables:
        steps["predict.csv"] = ("predict", RUN, next(iter(tables)))
    return Case(name, {"case.toml": text, **tables}, steps)


def _patients() -> str:
    """Rows of the patients whom the hospitals share, as a table."""
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    lines = [
        ",".join(data.feature_names),
        *(",".join(map(repr, row)) for row in data.data[:ROWS].tolist()),
    ]
    return "\n".join(lines) + "\n"
