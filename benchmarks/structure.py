"""How the source is built, in numbers: before the rebuilding, the goal, and now.

    python benchmarks/structure.py             # the table, in Markdown
    python benchmarks/structure.py --picture   # writes docs/layers.svg, the layers as a picture

Both columns are measured by the same code; the source of ``before`` is read from git. Definitions:

- A hook is a name asked of an expression called ``algorithm`` or ``method`` by ``hasattr``, or by
  ``getattr`` with a default.
- A list of names is a value written out at the level of a module outside ``names.py`` and
  ``__init__.py`` (tuple, list, set, dict or ``Literal``) with two or more strings that are names of
  public classes of ``problem/``, ``algorithms/`` and ``papers/``, as the class or as the
  configuration spells it. Words that mean something else as well, as the norm ``l1``, do not count.
- A parameter is typed Any where its annotation is ``Any`` or a union with ``Any``; the share is of
  all annotated parameters.
- Branches are counted as by McCabe: one, and one more for every ``if``, ``for``, ``while``,
  ``except``, ``assert`` and conditional expression, for each ``for`` and ``if`` of a comprehension,
  and for ``and`` and ``or`` one less than their parts. Functions inside a function count with it.
- Lines over 100 characters are counted among all lines that are not blank, without comments to
  the linter or the type checker at their end.
- Lines of source depend on how wide a line may be (120 characters before, 100 after). Lines of
  code are counted after both sources are formatted for 100 characters, without blank lines,
  comments and docstrings; templates of pages count as code. Pieces of syntax are the nodes of the
  syntax tree (a name, a number, a call, a statement); they do not count templates.
  Words are those of docstrings and comments. A loss in two files is shown by
  ``tests/test_new_loss.py``.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME / "tests"), str(HOME / "benchmarks")]

from measure import at_commit  # noqa: E402
from structure import (  # noqa: E402  (the module stands beside the tests that share it)
    LAYERS,
    LEFT_OF,
    PACKAGE,
    ROOT,
    allowed,
    layer_imports,
    public_names,
    read_graph,
    source_files,
    strings,
    typed_names,
)

BEFORE = "1e90e0f"  # the last commit before the rebuilding
PICTURE = HOME / "docs" / "layers.svg"
WIDEST = 100  # characters in a line of code
TO_LINTER = re.compile(r" *# (noqa|type: ignore|pyright: ignore).*")
BRANCHES = 15  # in one function
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OTHER_MEANING = {"l1", "l2", "penalty", "problem", "smoothing", "start"}  # norms and parameters

COLUMN, ROW, BOX, TALL, MARGIN = 168, 92, 152, 48, 24  # of the picture
PLACE = {  # the column of every layer; its row follows from the layers that it stands on
    **{"foundation": 1.5, "privacy": 0, "solvers": 1, "rounds": 2, "data": 3, "measures": 4},
    **{"problem": 1, "engines": 2, "fairness": 3, "algorithms": 0.5, "certificates": 1.5},
    **{"functional": 0, "solution": 1, "extending": 0, "papers": 0, "auditing": 1, "estimators": 2},
    **{"model_selection": 2, "config": 4, "runs": 3.5, "public": 1},
    **{"report": 2.5, "starters": 3.5, "sites": 4.5, "cli": 3.5},
}
STYLE = """
text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1b1f24 }
.name { font-weight: 600 } .places { font: 11px ui-monospace, monospace; fill: #57606a }
.page { fill: #ffffff } .box { fill: #eef4fb; stroke: #4b76a8 }
.arrow { fill: none; stroke: #8b95a1; stroke-width: 1.2 } .tip { fill: #8b95a1 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .places { fill: #9aa7b4 } .page { fill: #0d1117 }
.box { fill: #16263a; stroke: #6f9fd8 } .arrow { stroke: #6e7a87 } .tip { fill: #6e7a87 } }
"""


@dataclass(frozen=True)
class Source:
    """The parsed source of the package at one time."""

    root: Path
    trees: dict[str, ast.Module]
    texts: dict[str, str]

    @classmethod
    def read(cls, root: Path) -> Source:
        texts = {file: (root / file).read_text() for file in source_files(root)}
        return cls(root, {file: ast.parse(text) for file, text in texts.items()}, texts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures how the source is built.")
    parser.add_argument("--picture", action="store_true", help="write docs/layers.svg instead")
    if parser.parse_args().picture:
        PICTURE.write_text(picture(HOME / "src" / PACKAGE), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        at_commit(BEFORE, Path(folder))
        before = Source.read(Path(folder) / "src" / PACKAGE)
        print(report(before, Source.read(HOME / "src" / PACKAGE)))


def report(before: Source, after: Source) -> str:
    """The tables in Markdown."""
    lines = ["| | before | goal | after |", "|---|---|---|---|"]
    for what, goal, measure in MEASURES:
        lines.append(f"| {what} | {measure(before)} | {goal} | {measure(after)} |")
    lines.append("| source files to touch for a new margin loss | >= 9 | 2 | 2 |")
    for heading, listing in LISTINGS:
        found = listing(after)
        lines += ["", f"{heading}: {len(found) or 'none'}", *(f"- {each}" for each in found)]
    sizes = [_sizes(source) for source in (before, after)]
    heads = "| folder | lines | of code | pieces of syntax | words of docstrings and comments |"
    lines += ["", heads, "|---|---|---|---|---|"]
    for place in sorted({*sizes[0], *sizes[1]}, key=lambda place: (place == "all", place)):
        old, new = (table.get(place, (0, 0, 0, 0)) for table in sizes)
        cells = (f"{was:,} -> {now:,}" for was, now in zip(old, new, strict=True))
        lines.append(f"| {place} | {' | '.join(cells)} |")
    return "\n".join(lines)


def modules_at_root(source: Source) -> int:
    return sum("/" not in file for file in source.trees)


def circles(source: Source) -> str:
    sizes = [len(circle) for circle in read_graph(source.root).circles]
    return f"{len(sizes)}, the largest of {sizes[0]} files" if sizes else "0"


def hooks(source: Source) -> list[str]:
    """The hooks asked of an algorithm, each with the places that ask."""
    asked: dict[str, list[str]] = {}
    for file, tree in source.trees.items():
        for node in ast.walk(tree):
            if name := _asked(node):
                asked.setdefault(name, []).append(f"{file}:{getattr(node, 'lineno', 0)}")
    return [f"`{name}`: {', '.join(places)}" for name, places in sorted(asked.items())]


def lists_of_names(source: Source) -> list[str]:
    """The module-level values that write out names of public classes."""
    known = {
        _plain(name)
        for name, module in public_names(source.root).items()
        if module.split(".")[1] in ("problem", "algorithms", "papers") and name[0].isupper()
    } - OTHER_MEANING
    found = []
    for file, tree in source.trees.items():
        if file == "names.py" or file.endswith(ROOT):
            continue
        for name, value in _written_out(tree):
            names = {_plain(text) for text in strings(value)} & known
            if len(names) > 1:
                found.append(f"`{name}` in {file}: {', '.join(sorted(names))}")
    return found


def typed(source: Source) -> str:
    public = {name for name in public_names(source.root) if not name.startswith("_")}
    return f"{len(public & set(typed_names(source.root)))} of {len(public)}"


def typed_any(source: Source) -> str:
    hints = [hint for tree in source.trees.values() for hint in _annotations(tree)]
    loose = sum(any(_is_any(part) for part in _union(hint)) for hint in hints)
    return f"{loose / len(hints):.1%} ({loose} of {len(hints)})"


def wide_lines(source: Source) -> str:
    lines = [line for text in source.texts.values() for line in text.splitlines() if line.strip()]
    wide = sum(len(TO_LINTER.sub("", line)) > WIDEST for line in lines)
    return f"{wide / len(lines):.1%} ({wide})"


def branching(source: Source) -> list[str]:
    """The functions with too many branches, the most branching first."""
    found = []
    for file, tree in source.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = 1 + sum(_branches(part) for part in ast.walk(node))
                if count > BRANCHES:
                    found.append((-count, f"`{node.name}` in {file}: {count}"))
    return [text for _, text in sorted(found)]


Measure = Callable[[Source], object]
MEASURES: tuple[tuple[str, str, Measure], ...] = (
    ("modules at the root of the package", "<= 12", modules_at_root),
    ("circles of imports (lazy and typing-only ones count)", "0", circles),
    ("undeclared hooks asked of an algorithm", "0", lambda source: len(hooks(source))),
    ("lists of names that restate classes", "0", lambda source: len(lists_of_names(source))),
    ("public names typed for mypy and pyright", "all", typed),
    ("parameters typed `Any`", "<= 3 %", typed_any),
    (f"lines over {WIDEST} characters", "0", wide_lines),
    (
        f"functions with more than {BRANCHES} branches",
        "<= 5",
        lambda source: len(branching(source)),
    ),
)
LISTINGS: tuple[tuple[str, Callable[[Source], list[str]]], ...] = (
    ("Hooks asked of an algorithm", hooks),
    ("Lists of names", lists_of_names),
    (f"Functions of more than {BRANCHES} branches", branching),
)


def picture(root: Path) -> str:
    """The layers as a plain SVG: a box for each, its files and folders, and who imports whom.

    An arrow is left out where others lead the same way. Nothing in it depends on the length of a
    file, so that it changes only with the layers and their imports.
    """
    imports = layer_imports(read_graph(root))
    deepest = max(map(_depth, LAYERS))
    wide = 2 * MARGIN + round(max(PLACE.values()) * COLUMN) + BOX
    high = 2 * MARGIN + deepest * ROW + TALL
    at = {  # the upper left corner of every box
        layer: (MARGIN + PLACE[layer] * COLUMN, MARGIN + (deepest - _depth(layer)) * ROW)
        for layer in LAYERS
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">',
        "<title>The layers of bonafed: each imports only from the rows below it</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect class="page" width="{wide}" height="{high}"/>',
    ]
    for layer in LAYERS:
        for other in sorted(_directly(layer, imports)):
            lines.append(_arrow(at[layer], at[other]))
    for layer, places in LAYERS.items():
        lines += _box(at[layer], layer, "  ".join(places))
    return "\n".join([*lines, "</svg>", ""])


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the bottom of one box to the top of another."""
    x, y, to_x, to_y = start[0] + BOX / 2, start[1] + TALL, end[0] + BOX / 2, end[1]
    bend = ROW - TALL
    return (
        f'<path class="arrow" marker-end="url(#tip)" d="M{x:g} {y:g} '
        f'C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}"/>'
    )


def _box(corner: tuple[float, float], name: str, places: str) -> list[str]:
    x, y = corner
    return [
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{BOX}" height="{TALL}" rx="6"/>',
        f'<text class="name" x="{x + BOX / 2:g}" y="{y + 20:g}">{name}</text>',
        f'<text class="places" x="{x + BOX / 2:g}" y="{y + 37:g}">{places}</text>',
    ]


def _depth(layer: str) -> int:
    """How many layers stand below a layer, one on another."""
    return max((1 + _depth(left) for left in LEFT_OF[layer]), default=0)


def _directly(layer: str, imports: Mapping[str, set[str]]) -> set[str]:
    """The layers that a layer imports and that none of the others which it imports leads to."""
    below = {other for other in imports[layer] if other in allowed(layer)}
    return {other for other in below if not any(other in _all_below(b, imports) for b in below)}


def _all_below(layer: str, imports: Mapping[str, set[str]]) -> set[str]:
    direct = {other for other in imports[layer] if other in allowed(layer)}
    return direct.union(*(_all_below(other, imports) for other in direct))


def _asked(node: ast.AST) -> str | None:
    """The hook that a call asks of an algorithm, None of any other syntax."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return None
    if (node.func.id, len(node.args)) not in (("hasattr", 2), ("getattr", 3)):
        return None
    of, name = node.args[:2]
    word = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    if word not in ("algorithm", "method") or not isinstance(name, ast.Constant):
        return None
    return str(name.value)


def _plain(name: str) -> str:
    """A name as the class and the configuration both reduce to: LpBall and lp_ball to lpball."""
    return name.replace("_", "").lower()


def _written_out(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id != "__all__":
            yield target.id, value


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            every = [*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg]
            yield from (one.annotation for one in every if one and one.annotation)


def _union(hint: ast.expr) -> list[ast.expr]:
    if isinstance(hint, ast.BinOp) and isinstance(hint.op, ast.BitOr):
        return [*_union(hint.left), *_union(hint.right)]
    return [hint]


def _is_any(hint: ast.expr) -> bool:
    return (isinstance(hint, ast.Name) and hint.id == "Any") or (
        isinstance(hint, ast.Attribute) and hint.attr == "Any"
    )


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    one = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.Assert, ast.AsyncFor)
    return int(isinstance(node, one))


def _sizes(source: Source) -> dict[str, tuple[int, int, int, int]]:
    """By folder and in all: lines, lines of code at one width, pieces of syntax, and words."""
    sums: dict[str, tuple[int, int, int, int]] = {}
    code = _lines_of_code(source.root)
    for file, text in source.texts.items():
        tree = source.trees[file]
        pieces = sum(not isinstance(node, ast.expr_context) for node in ast.walk(tree))
        _add(sums, file, (len(text.splitlines()), code[file], pieces, _words(tree, text)))
    for path in source.root.rglob("*.jinja"):
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        _add(sums, path.relative_to(source.root).as_posix(), (len(lines), len(lines), 0, 0))
    return sums


def _add(
    sums: dict[str, tuple[int, int, int, int]], file: str, sizes: tuple[int, int, int, int]
) -> None:
    for place in (file.split("/")[0] + "/" if "/" in file else "(root)", "all"):
        a, b, c, d = sums.get(place, (0, 0, 0, 0))
        sums[place] = (a + sizes[0], b + sizes[1], c + sizes[2], d + sizes[3])


def _lines_of_code(root: Path) -> dict[str, int]:
    """The lines that are neither blank nor comment nor docstring, after formatting at one width."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(root, Path(folder) / PACKAGE)
        layout = ["ruff", "format", "--quiet", "--isolated", f"--line-length={WIDEST}", str(copy)]
        subprocess.run([sys.executable, "-m", *layout], check=True)
        return {file: _code(copy / file) for file in source_files(copy)}


def _code(path: Path) -> int:
    text, outside = path.read_text(), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            said = node.body[0]
            outside |= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(k not in outside and line.strip()[:1] not in ("", "#") for k, line in lines)


def _words(tree: ast.Module, text: str) -> int:
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    texts += [
        part.string.lstrip("# ")
        for part in tokenize.generate_tokens(io.StringIO(text).readline)
        if part.type == tokenize.COMMENT
    ]
    return sum(len(text.split()) for text in texts if text)


if __name__ == "__main__":
    main()
