"""Who may import whom, what stands in a circle, and what an import may cost.

The graph, the layers and their directions are in ``structure.py``. ``OPEN`` and ``IN_CIRCLE`` list
what still breaks the rules; an entry that is no longer needed fails, so both only get shorter.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from small_run import table
from structure import (
    LAYERS,
    LEFT_OF,
    ROOMS,
    Graph,
    external_packages,
    layers_of,
    loads_by_string,
    public_names,
    read_graph,
    wrong_directions,
)

import bonafed

ROOT = Path(__file__).parent.parent
SOURCE = Path(bonafed.__file__).parent
OPEN: dict[str, str] = {  # "file -> file" that no layer permits, and what opens it
}
IN_CIRCLE: tuple[str, ...] = (  # files that still import each other in a circle
)
TO_COME: set[str] = set()  # places of the layers that are not built yet
BY_STRING = {  # the files that import modules by names made at run time, which no graph shows
    "names.py",  # public names, which the graph reads off the type stub
    "data/files.py",  # the first of three libraries that is installed
    "reproduction/experiments.py",  # the experiments of a room, which no other code may import
}
ALONE = {  # heavy or optional package -> the only files that may import it
    "matplotlib": {"drawing.py"},
    "clarabel": {"solvers/conic/builder.py"},
    "flwr": {"engines/flower.py", "sites/flower_app.py"},
    "nvflare": {"engines/flare.py", "sites/flare_app.py", "sites/trial/flare.py"},
    "torch": {"problem/predictors/torch_module.py"},
}
HEAVY = (  # what takes a user's time to import, or that an install may lack
    *("numpy", "scipy", "scipy.stats", "scipy.optimize", "numba", "sklearn", "matplotlib"),
    *("pandas", "polars", "pyarrow", "clarabel", "cvxpy", "torch", "nvflare", "flwr"),
)
NUMBERS = {"numpy", "scipy", "numba", "clarabel"}  # what every computation may import of them
# what each command may import of them; STEPS are done in turn in one folder
NOTHING = ("import bonafed, bonafed.cli", "--help", "--version", "run --help", "site --help")
STEPS = {
    "init clinics.csv --client clinic --target sick --out clinics.toml": NUMBERS,
    "run clinics.toml --quick --quiet --out runs": NUMBERS,
    "verify RUN": NUMBERS,
    "report RUN --format md": NUMBERS,
    "compare RUN RUN": NUMBERS,
    "predict RUN clinics.csv": NUMBERS,
    "data hospitals": NUMBERS,
}


@cache
def graph() -> Graph:
    """The imports of the package."""
    return read_graph(SOURCE)


def test_every_file_stands_in_exactly_one_layer():
    wrong = {file: layers for file in graph().files if len(layers := layers_of(file)) != 1}
    assert not wrong, "files in no layer or in several; see LAYERS in structure.py"


def test_every_place_of_a_layer_exists():
    missing = {p for places in LAYERS.values() for p in places if not (SOURCE / p).exists()}
    assert missing == TO_COME


def test_layers_stand_in_order():
    order = list(LAYERS)
    assert order == list(LEFT_OF)
    for layer, left in LEFT_OF.items():
        assert all(order.index(other) < order.index(layer) for other in left), layer


def test_directions():
    wrong = dict(text.split(": ", 1) for text in wrong_directions(graph()))
    new = [f"{edge}: {names}" for edge, names in wrong.items() if edge not in OPEN]
    assert not new, "imports that no layer permits:\n" + "\n".join(new)
    assert not (done := set(OPEN) - set(wrong)), f"no longer needed in OPEN: {sorted(done)}"


def test_no_room_of_a_paper_is_imported_from_outside():
    users = {
        f"{file} -> {target}"
        for file, targets in graph().imports.items()
        for target in targets
        if target.count("/") == 2 and target.startswith("papers/")
        if file.split("/")[:2] != target.split("/")[:2]
    }
    assert {user for user in users if not user.startswith("__init__.py ->")} == set()
    assert {path.parent.name for path in SOURCE.glob("papers/*/__init__.py")} == {*ROOMS}


# where an author of a method finds names, as docs/extending.md says
CONTRACT = {"bonafed", "bonafed.extending", "bonafed.functional", "bonafed.data"}
EXPERIMENTS = "bonafed.papers.reproduction"  # what those of a room yield


def test_papers_use_public_names_alone():
    wrong = {
        f"{file}: {module}"
        for file in graph().files
        if file.startswith("papers/")
        for module in modules_of(SOURCE / file)
        if module.split(".")[0] == "bonafed"
        and module not in CONTRACT | {EXPERIMENTS}
        and module.split(".")[:3] != ["bonafed", *file.split("/")[:2]]
    }
    assert not wrong
    used = {name for path in SOURCE.glob("papers/*/*.py") for name in attributes(path, "bf")}
    assert used <= set(bonafed.__all__)


def test_papers_use_no_private_name_of_the_core():
    """Neither by an import nor by inheritance: none is used or overridden."""
    wrong = set()
    for path in sorted(SOURCE.glob("papers/**/*.py")):
        tree = ast.parse(path.read_text())
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom | ast.Import)]
        names = {a.name.split(".")[-1] for n in imports for a in n.names}
        names |= attributes(path, "ext") | attributes(path, "bf")
        wrong |= {f"{module.__name__}: {name}" for name in names if is_private(name)}
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
            own = getattr(module, node.name)
            used = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} | members(own)
            found = {name for base in own.__mro__ if is_core(base) for name in used & members(base)}
            wrong |= {f"{module.__name__}.{node.name}: {n}" for n in found if is_private(n)}
    assert wrong == set()


def test_the_core_advises_no_method_of_a_paper():
    homes = {n: getattr(getattr(bonafed, n), "__module__", "") for n in bonafed.__all__}
    calls = [rf"\b{name}\(" for name, home in homes.items() if home.startswith("bonafed.papers")]
    core = [path for path in SOURCE.rglob("*.py") if "papers" not in path.parts]
    assert calls
    assert not {p.name for p in core if re.search("|".join(calls), p.read_text())}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_core(kind: type) -> bool:
    """Whether a class is one of bonafed outside the papers' rooms."""
    return kind.__module__.startswith("bonafed.") and ".papers." not in kind.__module__


def members(kind: type) -> set[str]:
    """What a class defines, but for marks that Python leaves on every abstract class."""
    marks = {"_abc_impl", "_is_protocol", "_is_runtime_protocol"}
    return {*vars(kind), *kind.__annotations__} - marks


def test_the_page_on_extending_names_the_whole_contract():
    page = (ROOT / "docs" / "extending.md").read_text()
    assert {name for name in contract_names() if f"`{name}`" not in page} == set()


def contract_names() -> set[str]:
    """The names of ``bonafed.extending``."""
    tree = ast.parse((SOURCE / "extending.py").read_text())
    return {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}


def attributes(path: Path, module: str) -> set[str]:
    """The names X that a file uses as ``module.X``."""
    uses = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)]
    return {n.attr for n in uses if isinstance(n.value, ast.Name) and n.value.id == module}


def modules_of(path: Path) -> set[str]:
    """The modules that a file imports, or from which it imports names."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return named | {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}


def test_no_circles():
    in_circle = {file for circle in graph().circles for file in circle}
    new = [graph().told(circle) for circle in graph().circles if set(circle) - set(IN_CIRCLE)]
    assert not new, "\n".join(new)
    done = set(IN_CIRCLE) - in_circle
    assert not done, f"no longer needed in IN_CIRCLE: {sorted(done)}"


@pytest.mark.parametrize(("package", "files"), ALONE.items())
def test_packages_that_are_imported_in_one_place(package: str, files: set[str]):
    users = {file for file in graph().files if package in external_packages(SOURCE / file)}
    assert users == files


def test_who_imports_by_string():
    assert {file for file in graph().files if loads_by_string(SOURCE / file)} == BY_STRING


def test_every_public_name_exists():
    assert set(public_names(SOURCE)) <= set(bonafed.__all__)
    for name in bonafed.__all__:
        assert getattr(bonafed, name) is not None


@pytest.mark.parametrize("command", NOTHING)
def test_import_and_help_are_lazy(tmp_path: Path, command: str):
    assert imported(command, tmp_path) == set()


def test_no_command_imports_what_it_does_not_use(tmp_path: Path):
    (tmp_path / "clinics.csv").write_text(table())
    for step, may in STEPS.items():
        command = step.replace("RUN", next((str(p) for p in tmp_path.glob("runs/*")), ""))
        assert imported(command, tmp_path) <= may, step


def test_an_estimator_imports_no_more_than_its_base_class(tmp_path: Path):
    base = imported("import sklearn.base", tmp_path)
    ours = imported("from bonafed import RobustClassifier", tmp_path)
    assert ours - base <= {"numba", "clarabel"}


def imported(what: str, folder: Path) -> set[str]:
    """What a new process has imported of HEAVY at its end, after a command or lines of Python."""
    code = what if what.startswith(("import", "from")) else f"sys.argv[1:] = {what.split()}; main()"
    lines = ("import atexit, sys", "from bonafed.__main__ import main", LAST, code)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return {*ast.literal_eval(done.stdout.splitlines()[-1])}


LAST = f"atexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules]))"
