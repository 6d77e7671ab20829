"""How heavy the house is, in numbers: before it was made lighter, the guide, and now.

    python benchmarks/structure.py             # the table, in Markdown
    python benchmarks/structure.py --tests     # also runs the README's tests, for their minutes
    python benchmarks/structure.py --picture   # writes docs/layers.svg, the layers as a picture

All columns are measured by the same code; what stood ``before`` is read from git. Definitions:

- Lines of code are counted after formatting for 100 characters (what fits on a line stands on one,
  in all columns), without blank lines, comments and docstrings, the stub of types included.
  Templates and texts that the code reads (``*.jinja``, ``*.md``, ``*.toml``) count line by line;
  the addresses of data sets do not.
- Lines of imports are all lines of import statements, as a share of the lines of code.
- Two files (or a file and itself) are alike where six or more lines of code follow each other in
  both, with other names, numbers and texts at most. Lines of imports and docstrings do not count,
  nor lines of brackets only, nor six lines of fewer than four shapes (fields, arguments), nor those
  that more than eight places have.
- Words of docs are those of ``docs/*.md`` and ``benchmarks/README.md``.
- The files of a new figure are those of the source that one commit touched which added a figure.
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import re
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME / "tests"), str(HOME / "benchmarks")]

from measure import at_commit  # noqa: E402
from structure import LAYERS, LEFT_OF, PACKAGE, allowed, layer_imports, read_graph  # noqa: E402  (the module stands beside the tests that share it)

BEFORE = "24396d76"  # the last commit before the house was made lighter
NEW_FIGURE = "26e6757b"  # the commit that added the average precision
PICTURE = HOME / "docs" / "layers.svg"
WIDEST = 100  # characters in a line of code
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
RUN, COMMON = 6, 8  # lines that make two places alike; places beyond which they are too common
DISTINCT = 4  # shapes among them: lists of fields and of arguments are alike everywhere

COLUMN, ROW, BOX, TALL, MARGIN = 168, 92, 152, 48, 24  # of the picture
PLACE = {  # the column of every layer; its row follows from the layers that it stands on
    **{"foundation": 1.5, "privacy": 0, "solvers": 1, "rounds": 2, "data": 3, "measures": 4},
    **{"problem": 1, "engines": 2, "fairness": 3, "algorithms": 0.5, "certificates": 1.5},
    **{"functional": 0, "solution": 1, "extending": 0, "papers": 0, "auditing": 1, "estimators": 2},
    "reproduction": 5.5,
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
class File:
    """A file of the source, formatted at one width."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def code(self) -> dict[int, str]:
        """The lines of code by their numbers."""
        outside = set[int]()
        for node in ast.walk(self.tree):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
                outside |= _lines(node.body[0])
        outside |= self.comments
        lines = enumerate(self.text.splitlines(), 1)
        return {k: line for k, line in lines if k not in outside and line.strip()}

    @cached_property
    def imports(self) -> set[int]:
        imports = [n for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        return set[int]().union(*map(_lines, imports))

    @cached_property
    def comments(self) -> set[int]:
        """The lines that a comment has for itself."""
        parts = tokenize.generate_tokens(io.StringIO(self.text).readline)
        found = (p for p in parts if p.type == tokenize.COMMENT)
        return {p.start[0] for p in found if not p.line[: p.start[1]].strip()}

    def shapes(self) -> Iterator[tuple[str, ...]]:
        """Each run of lines, with all names, numbers and texts alike."""
        shape = defaultdict[int, list[str]](list)
        for part in tokenize.generate_tokens(io.StringIO(self.text).readline):
            shape[part.start[0]].append(_shape(part))
        lines = ["".join(shape[k]) for k in self.code if k not in self.imports]
        lines = [line for line in lines if re.search("[a-z0s]", line)]
        runs = zip(*(lines[k:] for k in range(RUN)), strict=False)
        yield from (run for run in runs if len({*run}) >= DISTINCT)


@dataclass(frozen=True)
class House:
    """All that stands in a folder at one time."""

    home: Path

    @cached_property
    def files(self) -> dict[str, File]:
        root = self.home / "src" / PACKAGE
        layout = ["ruff", "format", "--quiet", "--isolated", f"--line-length={WIDEST}"]
        layout += ["--config", "format.skip-magic-trailing-comma = true"]
        subprocess.run([sys.executable, "-m", *layout, str(root)], check=True)
        files = sorted(root.rglob("*.py*"))
        return {path.relative_to(root).as_posix(): File(path.read_text()) for path in files}

    @cached_property
    def lines(self) -> dict[str, int]:
        """Lines of code by folder, and in all."""
        lines = defaultdict[str, int](int)
        code = {file: len(read.code) for file, read in self.files.items()}
        root = self.home / "src" / PACKAGE
        texts = [path for kind in ("jinja", "md", "toml") for path in root.rglob(f"*.{kind}")]
        texts = [path for path in texts if path.name != "printed.toml"]  # the papers' numbers
        for path in texts:
            if (page := path.relative_to(root).as_posix()) != "data/sources.toml":
                code[page] = sum(bool(line.strip()) for line in path.read_text().splitlines())
        for file, count in code.items():
            for place in (file.split("/")[0] + "/" if "/" in file else "(root)", "all"):
                lines[place] += count
        return lines

    def imports(self) -> str:
        count = sum(len(file.imports) for file in self.files.values())
        return f"{count:,} ({count / self.lines['all']:.1%})"

    def comments(self) -> str:
        count = sum(len(file.comments) for file in self.files.values())
        return f"{100 * count / self.lines['all']:.1f}"

    def alike(self) -> int:
        """The pairs of files with like lines."""
        places = defaultdict[tuple[str, ...], list[str]](list)
        for name, file in self.files.items():
            for shape in file.shapes():
                places[shape].append(name)
        pairs = set[tuple[str, str]]()
        for names in places.values():
            if 1 < len(names) <= COMMON:
                pairs |= {(a, b) for k, a in enumerate(names) for b in names[k + 1 :]}
        return len(pairs)

    def tests(self) -> str:
        files = (self.home / "tests").rglob("*.py")
        return f"{sum(len(path.read_text().splitlines()) for path in files):,}"

    def words(self) -> str:
        pages = [*(self.home / "docs").glob("*.md"), self.home / "benchmarks" / "README.md"]
        return f"{sum(len(page.read_text().split()) for page in pages):,}"


MEASURES: tuple[tuple[str, str, Callable[[House], object]], ...] = (
    ("code lines of src", "<= 52,000", lambda house: f"{house.lines['all']:,}"),
    ("import lines", "<= 8 %", House.imports),
    ("own-line comments per 100 code lines", ">= 4", House.comments),
    (f"pairs of files with {RUN} or more like lines", "<= 120", House.alike),
    ("lines of tests", "<= 55,000", House.tests),
    ("words of docs and benchmarks/README", "<= 40,000", House.words),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures how heavy the house is.")
    parser.add_argument("--picture", action="store_true", help="write docs/layers.svg instead")
    parser.add_argument("--tests", action="store_true", help="run the README's tests as well")
    given = parser.parse_args()
    if given.picture:
        PICTURE.write_text(picture(HOME / "src" / PACKAGE), encoding="utf-8")
        return
    places = ("tests", "docs", "benchmarks/README.md")
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as now:
        at_commit(BEFORE, Path(before), *places)
        at_commit("HEAD", Path(now), *places)
        print(report(House(Path(before)), House(Path(now))))
    if given.tests:
        print(f"| README's test command | <= 8 min | {minutes_of_tests():.1f} min |")


def report(before: House, after: House) -> str:
    """The tables in Markdown."""
    lines = ["| | before | guide | after |", "|---|---|---|---|"]
    for what, guide, measure in MEASURES:
        lines.append(f"| {what} | {measure(before)} | {guide} | {measure(after)} |")
    lines.append(f"| source files of a commit with a new figure | | 1-2 | {files_of_a_figure()} |")
    lines += ["", "| folder | code lines before | after |", "|---|---|---|"]
    for place in sorted({*before.lines, *after.lines}, key=lambda place: (place == "all", place)):
        lines.append(f"| {place} | {before.lines[place]:,} | {after.lines[place]:,} |")
    return "\n".join(lines)


def files_of_a_figure() -> int:
    command = ["git", "-C", str(HOME), "show", "--name-only", "--format=", NEW_FIGURE, "--", "src"]
    return len(subprocess.run(command, check=True, capture_output=True).stdout.split())


def minutes_of_tests() -> float:
    """How long the tests of the README's first commands take in this environment."""
    block = (HOME / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    command = block.splitlines()[1].split(" && ", 1)[1]
    began = time.monotonic()
    subprocess.run(command, shell=True, check=True, cwd=HOME, stdout=subprocess.DEVNULL)
    return (time.monotonic() - began) / 60


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _shape(part: tokenize.TokenInfo) -> str:
    if part.type == tokenize.NAME:
        return part.string if keyword.iskeyword(part.string) else "n"
    kinds = {tokenize.NUMBER: "0", tokenize.STRING: "s", tokenize.COMMENT: ""}
    return kinds.get(part.type, part.string.strip())


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


if __name__ == "__main__":
    main()
