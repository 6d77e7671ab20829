"""The documentation site: it is built without warnings, has every public name, and needs no net."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from notebooks import TUTORIALS, printed

from bonafed.names import by_module

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as one command builds it, warnings being errors."""
    folder = tmp_path_factory.mktemp("site")
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_public_name_is_in_the_reference_with_its_example(site: Path) -> None:
    pages = {path.stem: path.read_text("utf-8") for path in (site / "reference").glob("*.html")}
    entries = re.split(r'(?=<h2 id="bonafed\.)', "".join(pages.values()))
    texts = {entry.split('"')[1]: entry for entry in entries if entry.startswith("<h2 id=")}
    places = {f"{module}.{name}" for module, names in by_module().items() for name in names}
    assert not places - texts.keys(), "names on no page of the reference"
    without = {place for place in places if "Examples" not in texts[place]}
    assert not without, "names whose example the reference does not show"


def test_every_page_is_reached_and_none_needs_the_net(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        assert not re.search(r'(?:src|srcset)="?(?:https?:)?//', text), path
        assert not re.search(r"<link[^>]*https?://", text), path
        if path.name != "404.html":
            assert f'href="{path.relative_to(site).as_posix()}"' in home, path


def test_notebooks_are_pages_with_their_outputs(site: Path) -> None:
    for path in TUTORIALS:
        text = html.unescape((site / "tutorials" / f"{path.stem}.html").read_text("utf-8"))
        assert "data:image/png;base64," in text, "a tutorial shows a figure"
        for said in printed(nbformat.read(path, as_version=4)):
            assert said.startswith("<Figure") or said.partition("\n")[0] in text


def test_code_in_tables_has_plain_bars_and_whole_options(site: Path) -> None:
    cells = re.findall("<td>(.*?)</td>", (site / "cli.html").read_text("utf-8"), re.S)
    code = re.findall("<code(.*?)>(.*?)</code>", " ".join(cells))
    assert not [text for _, text in code if "\\|" in text]
    options = [style for style, text in code if re.fullmatch(r"--[\w-]+", text)]
    assert options
    assert all("nowrap" in style for style in options)
