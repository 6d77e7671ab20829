"""What the documentation site has beside the Markdown of this folder.

``mkdocs.yml`` names this file. Before the pages are read it adds: a reference page for each kind of
public name, from ``bonafed/names.py``; every notebook of ``tutorials/`` as a page, with the outputs
that are stored in it; the pages at the root of the repository, and the benchmarks' results. Links
between files of the repository become links between pages.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from griffe import Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from bonafed.names import NAMED, PUBLIC

ROOT = Path(__file__).parents[1]
# pages that stand outside docs/, by their path in the repository
OUTSIDE = {
    "README.md": "readme.md",
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
TITLE = re.compile(r"\w+\n---")
ENTRY = re.compile(r"^((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*) : (?=\S)", re.MULTILINE)
LINK = re.compile(r"(\]\()([^)#\s]+)")
CODE = re.compile(r"`[^`]*`")
WORD = re.compile(r"<code>([^<\s]{1,26})</code>")  # one word, short enough for a phone


def reference() -> dict[str, dict[str, list[str]]]:
    """The pages of the reference: a title, and the public names on the page.

    Every name, ``module.name``, has its short names in a configuration ("kind: short name"). A
    folder of the package is a page, and so is a module of several names in ``problem/``.
    """
    short: dict[str, list[str]] = defaultdict(list)
    for kind, names in NAMED.items():
        for name, place in names.items():
            short[place].append(f"{kind}: {name}")
    short |= {place: [] for place in PUBLIC}
    modules = Counter(place.partition(":")[0] for place in short)
    pages: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for place, kinds in short.items():
        module = place.partition(":")[0]
        _, folder, *inner = module.split(".")
        if folder == "problem" and (len(inner) > 1 or modules[module] > 1):
            folder = inner[0]
        pages[folder.capitalize()][place.replace(":", ".")] = kinds
    return dict(sorted(pages.items()))


def reference_page(title: str, names: Iterable[str]) -> str:
    """A page of the reference as Markdown; mkdocstrings puts the docstrings in."""
    return "\n\n".join([f"# {title}", *(f"::: {name}" for name in names)]) + "\n"


def notebook(path: Path) -> str:
    """A notebook with its stored outputs, as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                png = "".join(data["image/png"]).replace("\n", "")
                parts.append(
                    f'<img alt="figure of the cell above" src="data:image/png;base64,{png}">'
                )
            elif shown := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and put them in the navigation."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    files.append(File.generated(config, "CITATION.cff", content=citation))
    made = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in OUTSIDE.items()}
    nav: dict[str, list[Any]] = {"reference": [], "tutorials": []}
    for title, names in reference().items():
        page = f"reference/{title.lower()}.md"
        made[page] = reference_page(title, names)
        nav["reference"].append(page)
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        name = f"tutorials/{path.stem}.md"
        made[name] = notebook(path)
        nav["tutorials"].append(name)
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        made[f"results/{path.name}"] = path.read_text(encoding="utf-8")
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for entry in config.nav or []:
        for title, below in entry.items():
            entry[title] = nav.get(below, below) if isinstance(below, str) else below
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links of a page between files of the repository, as links between pages."""
    site = page.file.src_uri
    of_site = {page: path for path, page in OUTSIDE.items()}
    here = posixpath.dirname(of_site.get(site, f"docs/{site}"))

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[2]))
        there = OUTSIDE.get(target, target.removeprefix("docs/").removeprefix("benchmarks/"))
        if target not in OUTSIDE and not target.startswith(("docs/", "benchmarks/results/")):
            return match[0]
        if there.endswith(".ipynb"):
            there = there.removesuffix(".ipynb") + ".md"
        return match[1] + posixpath.relpath(there, posixpath.dirname(site) or ".")

    lines = LINK.sub(moved, markdown).split("\n")
    return "\n".join(_piped(line) if line.startswith("|") else line for line in lines)


def _piped(row: str) -> str:
    """A row of a table with plain bars in its code, where GitHub needs a backslash."""
    return CODE.sub(lambda code: code[0].replace("\\|", "|"), row)


def on_page_content(page_html: str, **_: Any) -> str:
    """Short words of code stay whole: no option is broken at its hyphens."""
    return WORD.sub(r'<code style="white-space: nowrap">\1</code>', page_html)


class Described(Extension):
    """Reads docstrings as they are written here.

    A parameter reads ``name : what it is``, where NumPy's have a type, and a paragraph after the
    parameters is about all of them.
    """

    def __init__(self) -> None:
        self.short = {name: kinds for page in reference().values() for name, kinds in page.items()}

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Put descriptions and paragraphs where the reference looks for them."""
        if not obj.docstring:
            return
        inside, blocks = False, []
        for block in inspect.cleandoc(obj.docstring.value).split("\n\n"):
            if TITLE.match(block):
                inside = block.startswith(("Parameters", "Attributes"))
            elif inside and not ENTRY.match(block) and not block.startswith(" "):
                inside, block = False, f"Notes\n-----\n{block}"
            blocks.append(ENTRY.sub(r"\1\n    ", block) if inside else block)
        if kinds := self.short.get(obj.path):
            blocks.insert(1, f"In a configuration: {', '.join(f'`{kind}`' for kind in kinds)}.")
        obj.docstring.value = "\n\n".join(blocks)
