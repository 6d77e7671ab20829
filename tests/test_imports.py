"""Who may import whom, and what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import quorate

SOURCE = Path(quorate.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FORBIDDEN = {  # part -> parts it must not import (types under TYPE_CHECKING included, data types excepted)
    "arrays": {"rounds", "codec", "problem", "solvers", "algorithms", "certificates", "engines", "data", "solution"},
    "rounds": {"problem", "solvers", "algorithms", "certificates", "engines", "data", "solution"},
    "solvers": {"problem", "algorithms", "certificates", "engines", "data", "solution", "rounds"},
    "problem": {"algorithms", "certificates", "engines", "solution", "estimators", "report", "cli"},
    "algorithms": {"engines", "solution", "estimators", "report", "cli", "certificates"},
    "certificates": {"algorithms", "solution", "estimators", "report", "cli"},
    "engines": {"problem", "algorithms", "certificates", "solution", "estimators", "report", "cli", "solvers"},
    "data": {"rounds", "problem", "solvers", "algorithms", "certificates", "engines", "solution", "estimators", "cli"},
    "solution": {"estimators", "report", "cli", "config"},
    "estimators": {"report", "cli", "config"},
    "experiments": {"report", "cli"},
    "report": {"cli"},
}
for early in ("arrays", "rounds", "solvers", "problem", "algorithms", "certificates", "engines", "data", "solution"):
    FORBIDDEN[early].add("experiments")
ALONE = {  # heavy or optional package -> the only files that may import it
    "matplotlib": {"report/figures.py"},
    "clarabel": {"solvers/conic.py"},
    "torch": {"problem/constraints/torch_function.py", "problem/predictors_torch.py"},
}
LAZY = ("numpy", "scipy", "numba", "sklearn", "matplotlib", "pandas", "polars", "pyarrow", "clarabel", "torch")


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_directions(path: Path):
    allowed_types = {"quorate.data.federation.Federation", "quorate.data.federation"}
    for name in imported(path) - allowed_types:
        if name.startswith("quorate."):
            target = name.split(".")[1]
            assert target not in FORBIDDEN.get(part(path), set()), f"{part(path)} must not import {name}"


@pytest.mark.parametrize(("package", "files"), ALONE.items())
def test_packages_that_are_imported_in_one_place(package: str, files: set[str]):
    users = {str(p.relative_to(SOURCE)) for p in FILES if any(n.split(".")[0] == package for n in imported(p))}
    assert users <= files


def test_every_public_name_exists():
    for name in quorate.__all__:
        assert getattr(quorate, name) is not None


def test_import_is_lazy():
    code = f"import sys, quorate, quorate.cli; print([m for m in {LAZY!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
