"""The structure of the package, read from its source: the import graph, circles and layers.

Only the standard library is used and nothing of bonafed is imported, so that any version of the
source can be measured. A file is named by its path below the package, as in ``solvers/pava.py``.

What counts as an import: every ``import`` statement, also inside functions and under
``TYPE_CHECKING``. ``from bonafed.data import tables`` is an import of ``data/tables.py``, and a
name that a package's ``__init__`` imports from elsewhere counts as an import of its home.
The public names of ``bonafed`` itself are loaded on first use: ``bonafed/__init__.py`` counts as
importing all of their homes. Inside the package ``import bonafed as bf`` counts as importing the
homes of the names ``bf.X`` that the file uses, and that file itself where ``bf`` is used otherwise.
"""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

PACKAGE = "bonafed"
ROOT = "__init__.py"

# Every layer and the files and folders (with a slash) that it consists of, in order from the left.
LAYERS: dict[str, tuple[str, ...]] = {
    "foundation": (
        *("names.py", "client_names.py", "signals.py", "arrays.py", "codec.py", "storage.py"),
        *("text.py", "drawing.py", "parameters.py", "statements.py"),
    ),
    "solvers": ("solvers/",),
    "rounds": ("rounds.py",),
    "data": ("data/",),
    "privacy": ("privacy/",),
    "problem": ("problem/",),
    "fairness": ("fairness.py",),
    "measures": ("measures.py", "worst_client.py"),
    "algorithms": ("algorithms/",),
    "functional": ("functional.py",),
    "engines": ("engines/",),
    "certificates": ("certificates/",),
    "solution": ("solution/",),
    "estimators": ("estimators/",),
    "extending": ("extending.py",),
    "papers": ("papers/",),
    "reproduction": ("reproduction/",),
    "auditing": ("auditing.py",),
    "model_selection": ("model_selection.py",),
    "config": ("config/",),
    "runs": ("runs/",),
    "report": ("report/",),
    "starters": ("starters/",),
    "sites": ("sites/",),
    "cli": ("cli.py", "__main__.py"),
    "public": (ROOT,),
}

# The layers immediately to the left of each layer. A layer may import these, and all to their left.
LEFT_OF: dict[str, tuple[str, ...]] = {
    "foundation": (),
    "solvers": ("foundation",),
    "rounds": ("foundation",),
    "data": ("foundation",),
    "privacy": ("foundation",),
    "problem": ("solvers", "rounds", "data", "privacy"),
    "fairness": ("data",),
    "measures": ("foundation",),
    "algorithms": ("problem",),
    "functional": ("algorithms",),
    "engines": ("rounds", "privacy"),
    "certificates": ("problem", "engines"),
    "solution": ("algorithms", "certificates", "measures"),
    "estimators": ("solution", "fairness"),
    "extending": ("functional", "solution"),
    "papers": ("extending", "estimators"),
    "reproduction": ("papers",),
    "auditing": ("solution",),
    "model_selection": ("estimators",),
    "config": ("solution",),
    "runs": ("config", "fairness"),
    "report": ("runs",),
    "starters": ("runs",),
    "sites": ("runs",),
    "cli": ("report", "starters", "sites", "reproduction"),
    "public": ("model_selection", "auditing", "papers"),
}

# Inside a layer: files or folders that must not import others of the same layer.
ROOMS = ("aspire", "constrained", "dp_iadmm", "drfl", "rank")  # a room of ``papers/`` each
NEVER: dict[str, tuple[str, ...]] = {
    **{f"papers/{a}/": tuple(f"papers/{b}/" for b in ROOMS if b != a) for a in ROOMS},
    "runs/sections/": ("runs/folder.py", "runs/verification.py", "runs/pipeline.py"),
}


@dataclass(frozen=True)
class Graph:
    """The import graph of a package: ``imports[a][b]`` are the names that file a imports from b."""

    files: tuple[str, ...]
    imports: Mapping[str, Mapping[str, tuple[str, ...]]]

    @cached_property
    def circles(self) -> list[tuple[str, ...]]:
        """Sets of files that import each other in a circle, the largest first."""
        found = [part for part in _components(self.files, self.imports) if len(part) > 1]
        return sorted(found, key=lambda part: (-len(part), part))

    def without(self, files: set[str]) -> Graph:
        """The graph without some files."""
        kept = tuple(file for file in self.files if file not in files)
        edges = {a: {b: n for b, n in self.imports[a].items() if b not in files} for a in kept}
        return Graph(kept, edges)

    def shortest_circle(self, files: tuple[str, ...]) -> list[str]:
        """One shortest way round a circle, starting and ending at the same file."""
        ways = [way for file in files if (way := self._way_round(file, set(files)))]
        return min(ways, key=len)

    def told(self, circle: tuple[str, ...]) -> str:
        """The circle in words: its files, and the names that tie a shortest way round."""
        way = self.shortest_circle(circle)
        ties = [f"  {a} imports {', '.join(self.imports[a][b])} from {b}" for a, b in pairwise(way)]
        return "\n".join([f"{len(circle)} files in a circle: {', '.join(circle)}", *ties])

    def _way_round(self, start: str, inside: set[str]) -> list[str]:
        before: dict[str, str] = {}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for to in sorted(inside & set(self.imports[here])):
                if to == start:
                    way = [start, here]
                    while way[-1] != start:
                        way.append(before[way[-1]])
                    return way[::-1]
                if to not in before:
                    before[to] = here
                    queue.append(to)
        return []


def source_files(root: Path) -> tuple[str, ...]:
    """All Python files below the folder of the package, as paths with forward slashes."""
    return tuple(sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py")))


def read_graph(root: Path) -> Graph:
    """The import graph of the package whose ``__init__.py`` stands in ``root``."""
    reader = _Reader(root)
    imports: dict[str, dict[str, tuple[str, ...]]] = {}
    for file in reader.files:
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for target, name in reader.imports_of(file):
            if target != file:
                found[target][name] = None
        imports[file] = {target: tuple(names) for target, names in sorted(found.items())}
    return Graph(reader.files, imports)


def public_names(root: Path) -> dict[str, str]:
    """The names that ``bonafed`` offers, each with the module that it is loaded from.

    They are read from ``__init__.pyi`` where there is one, otherwise from the tables of strings
    in ``__init__.py`` (module to names).
    """
    stub = root / "__init__.pyi"
    if stub.exists():
        return typed_names(root)
    names: dict[str, str] = {}
    for node in ast.walk(ast.parse((root / ROOT).read_text())):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and str(key.value).startswith(PACKAGE + "."):
                    names |= {name: str(key.value) for name in strings(value)}
    return names


def typed_names(root: Path) -> dict[str, str]:
    """The public names that a type checker sees, from ``__init__.pyi`` or ``TYPE_CHECKING``."""
    stub = root / "__init__.pyi"
    tree = ast.parse((stub if stub.exists() else root / ROOT).read_text())
    return {
        alias.asname or alias.name: absolute(node, ROOT)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and absolute(node, ROOT).startswith(PACKAGE + ".")
        for alias in node.names
    }


def strings(node: ast.AST) -> list[str]:
    """All string constants inside a piece of syntax."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [part.value for part in parts if isinstance(part.value, str)]


def absolute(node: ast.ImportFrom, file: str) -> str:
    """The full name of the module of a ``from … import``, relative or not."""
    if not node.level:
        return node.module or ""
    package = [PACKAGE, *file.split("/")[:-1]]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


@cache
def importing(path: Path) -> tuple[ast.AST, ...]:
    """The ``import`` statements of a file, and its calls that import by a string."""
    return tuple(
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and _is_import_module(node))
    )


def external_packages(path: Path) -> set[str]:
    """The top-level packages that a file imports anywhere."""
    names: set[str] = set()
    for node in importing(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.split(".")[0])
    return names


def loads_by_string(path: Path) -> bool:
    """Whether a file imports modules whose names are made at run time, which no graph shows."""
    return any(isinstance(n, ast.Call) and _constant(n) is None for n in importing(path))


def layers_of(file: str) -> list[str]:
    """All layers that claim a file; a sound table has exactly one."""
    return [
        layer
        for layer, places in LAYERS.items()
        if any(_stands_in(file, place) for place in places)
    ]


def allowed(layer: str) -> set[str]:
    """The layers that a layer may import: all to its left, and itself."""
    return {layer}.union(*(allowed(left) for left in LEFT_OF[layer]))


def wrong_directions(graph: Graph) -> list[str]:
    """Every import that no layer permits, as ``from -> to: names``."""
    wrong = []
    for file, targets in graph.imports.items():
        for target, names in targets.items():
            if _forbidden(file, target):
                wrong.append(f"{file} -> {target}: {', '.join(names)}")
    return wrong


def layer_imports(graph: Graph) -> dict[str, set[str]]:
    """The layers that each layer really imports, itself left out."""
    found: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for file, targets in graph.imports.items():
        for target in targets:
            for here in layers_of(file):
                found[here] |= {there for there in layers_of(target) if there != here}
    return found


def _forbidden(file: str, target: str) -> bool:
    here, there = layers_of(file), layers_of(target)
    if not (here and there) or there[0] not in allowed(here[0]):
        return True
    return any(
        _stands_in(file, place) and any(_stands_in(target, other) for other in others)
        for place, others in NEVER.items()
    )


def _stands_in(file: str, place: str) -> bool:
    return file.startswith(place) if place.endswith("/") else file == place


@dataclass
class _Reader:
    """Reads the imports of every file and resolves them to files."""

    root: Path
    files: tuple[str, ...] = field(init=False)

    def __post_init__(self):
        self.files = source_files(self.root)
        self._known = set(self.files)
        self._given: dict[str, dict[str, tuple[str, str]]] = {}
        self._public = public_names(self.root)

    def imports_of(self, file: str) -> Iterator[tuple[str, str]]:
        """The files that a file imports, each with the name that is imported."""
        for node in importing(self.root / file):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == PACKAGE:
                        yield from self._used(file, alias.asname or PACKAGE)
                    elif target := self._file(alias.name):
                        yield target, alias.name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if target := self._home(absolute(node, file), alias.name):
                        yield target, alias.name
            elif isinstance(node, ast.Call) and (target := self._by_string(node)):
                yield target, "import_module"
        if file == ROOT:
            for name, module in self._public.items():
                if target := self._home(module, name):
                    yield target, name

    def _used(self, file: str, bf: str) -> Iterator[tuple[str, str]]:
        """The homes of the public names that a file uses as ``bf.X``."""
        tree = ast.parse((self.root / file).read_text())
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == bf]
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.value in names]
        for name in (use.attr for use in uses):
            yield self._home(PACKAGE, name) or ROOT, name
        if len(names) > len(uses):
            yield ROOT, PACKAGE

    def _file(self, module: str) -> str | None:
        """The file of a module of the package, None of any other."""
        parts = module.split(".")
        if parts[0] != PACKAGE:
            return None
        path = "/".join(parts[1:])
        places = (f"{path}.py", f"{path}/{ROOT}") if path else (ROOT,)
        return next((place for place in places if place in self._known), None)

    def _home(self, module: str, name: str) -> str | None:
        """The file that ``from module import name`` reads the name from."""
        if submodule := self._file(f"{module}.{name}"):
            return submodule
        file = self._file(module)
        if file == ROOT and name in self._public:
            return self._home(self._public[name], name)
        if file is None or file == ROOT or not file.endswith(ROOT):
            return file
        passed_on = self._passed_on(file).get(name)
        return (self._home(*passed_on) if passed_on else None) or file

    def _passed_on(self, file: str) -> dict[str, tuple[str, str]]:
        """The names that an ``__init__.py`` imports, each with its module and its name there."""
        if file not in self._given:
            self._given[file] = {
                alias.asname or alias.name: (absolute(node, file), alias.name)
                for node in importing(self.root / file)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
        return self._given[file]

    def _by_string(self, call: ast.Call) -> str | None:
        """The file that ``import_module("bonafed.…")`` names."""
        module = _constant(call)
        return None if module is None else self._file(module)


def _is_import_module(call: ast.Call) -> bool:
    of = call.func
    name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    return name in ("import_module", "__import__")


def _constant(call: ast.Call) -> str | None:
    """The first argument of a call where it is a string that is written out."""
    first = call.args[0] if call.args else None
    text = first.value if isinstance(first, ast.Constant) else None
    return text if isinstance(text, str) else None


def _components(
    files: tuple[str, ...], edges: Mapping[str, Mapping[str, object]]
) -> list[tuple[str, ...]]:
    """Strongly connected components, by the algorithm of Tarjan."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    inside: set[str] = set()
    found: list[tuple[str, ...]] = []

    def visit(file: str) -> None:
        index[file] = low[file] = len(index)
        stack.append(file)
        inside.add(file)
        for to in edges[file]:
            if to not in index:
                visit(to)
            if to in inside:
                low[file] = min(low[file], low[to])
        if low[file] == index[file]:
            at = stack.index(file)
            found.append(tuple(sorted(stack[at:])))
            inside.difference_update(stack[at:])
            del stack[at:]

    for file in files:
        if file not in index:
            visit(file)
    return found
