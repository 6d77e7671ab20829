"""The reader of imports on a small package, and the picture of the layers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from structure import public_names, read_graph

import bonafed

HOME = Path(__file__).resolve().parent.parent


def package(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py" if name != "init" else root / "__init__.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import bonafed.low", {"low.py": ("bonafed.low",)}),
        ("from bonafed import low", {"low.py": ("low",)}),
        ("from bonafed.low import A, B", {"low.py": ("A", "B")}),
        ("from .low import A", {"low.py": ("A",)}),
        ("from bonafed.parts import one", {"parts/one.py": ("one",)}),
        ("from bonafed.parts import One", {"parts/one.py": ("One",)}),
        ("from bonafed.parts import here", {"parts/__init__.py": ("here",)}),
        ("import bonafed as bf", {}),
        ("import bonafed as bf\nx = getattr(bf, 'A')", {"__init__.py": ("bonafed",)}),
        ("def f():\n    from bonafed.low import A", {"low.py": ("A",)}),
        ("if TYPE_CHECKING:\n    from bonafed.low import A", {"low.py": ("A",)}),
        ("import_module('bonafed.low')", {"low.py": ("import_module",)}),
        ("import numpy, json", {}),
    ],
)
def test_imports_of_a_file(tmp_path: Path, text: str, imports: dict[str, tuple[str, ...]]):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from bonafed.parts.one import One\nhere = 1")
    root = package(tmp_path, init="", low="A = B = 1", parts__one="One = 1", high=text)
    assert read_graph(root).imports["high.py"] == imports


def test_public_names_are_imports_of_the_package(tmp_path: Path):
    low, high = "import bonafed as bf\nprint(bf)", "import bonafed as bf\nx = bf.A"
    root = package(tmp_path, init='HOME = {"bonafed.low": ("A",)}', low=low, high=high)
    assert public_names(root) == {"A": "bonafed.low"}
    assert read_graph(root).imports["high.py"] == {"low.py": ("A",)}
    assert read_graph(root).circles == [("__init__.py", "low.py")]
    (root / "__init__.pyi").write_text("from .low import A as A")
    (root / "__init__.py").write_text("")
    assert public_names(root) == {"A": "bonafed.low"}
    assert read_graph(root).circles == [("__init__.py", "low.py")]


def test_circles_are_told_by_their_shortest_way_round(tmp_path: Path):
    more = {"c": "from bonafed.a import A", "d": "from bonafed.a import A"}
    a = "from bonafed.b import B\nA = 1"
    graph = read_graph(package(tmp_path, init="", a=a, b="from bonafed.c import C", **more))
    assert graph.circles == [("a.py", "b.py", "c.py")]
    assert graph.told(graph.circles[0]).splitlines() == [
        "3 files in a circle: a.py, b.py, c.py",
        "  a.py imports B from b.py",
        "  b.py imports C from c.py",
        "  c.py imports A from a.py",
    ]


def test_the_picture_of_the_layers_is_up_to_date():
    picture = benchmark().picture(Path(bonafed.__file__).parent)
    committed = (HOME / "docs" / "layers.svg").read_text(encoding="utf-8")
    assert committed == picture, "run: python benchmarks/structure.py --picture"


def test_no_line_of_the_source_is_longer_than_100_characters_comments_for_linters_included():
    files = sorted(Path(bonafed.__file__).parent.rglob("*.py"))
    long = {
        f"{file.name}:{number}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    }
    assert not long


def test_no_private_method_hides_one_of_a_base_that_takes_other_parameters():
    """Else the base calls the other one, as two changes that meet in a merge may bring about."""
    trees = map(ast.parse, map(Path.read_text, Path(bonafed.__file__).parent.rglob("*.py")))
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    classes = {node.name: node for node in nodes}
    hidden = [
        f"{node.name}.{name} hides that of {base}"
        for node in nodes
        for base in ancestors(node, classes)
        for name, taken in private(classes[base]).items()
        if private(node).get(name, taken) != taken
    ]
    assert not hidden


def ancestors(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """The names of the classes of the package from which one inherits."""
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        if name in classes and name != node.name:
            yield name
            yield from ancestors(classes[name], classes)


def private(node: ast.ClassDef) -> dict[str, list[str]]:
    """The parameters of each private method that a class defines."""
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    hidden = [part for part in methods if part.name[0] == "_" and part.name[1] != "_"]
    return {part.name: [one.arg for one in part.args.args] for part in hidden}


def benchmark() -> ModuleType:
    """The command that measures the source, which is no part of the package."""
    spec = spec_from_file_location("measure_structure", HOME / "benchmarks" / "structure.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
