"""Every output, table and picture that README and docs show of a run, made anew.

    python docs/make.py    # pages, README's picture, layers, the benchmarks' page, tutorials

``tests/people/test_front_page.py`` makes them again and compares them with what is committed: words
exactly, numbers up to the digits that machines share. What is shown is a ``text`` block; one that
begins with a name of `TYPED` is a command.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from bonafed.report.blocks import Questions
from bonafed.report.sections import told
from bonafed.reproduction import comparison
from bonafed.reproduction.experiments import results
from bonafed.runs.folder import read_run

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import measure  # noqa: E402
import render  # noqa: E402
from untidy import patients  # noqa: E402

README, PICTURE = ROOT / "README.md", ROOT / "docs" / "report.png"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
TYPED = ("pip ", "flower-supernode ", "ufw ", "docker ", "python3 -m venv ")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
MADE = re.compile(r"(?<=<!-- benchmarks/heart.py -->\n\n).*?(?=\n\n)", re.DOTALL)


def bonafed(folder: Path, *arguments: str) -> str:
    """What the command line prints in a folder."""
    command = [sys.executable, "-m", "bonafed", *arguments]
    known: Any = {"env": {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80"}}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **known)
    if done.returncode:
        raise RuntimeError(f"bonafed {shlex.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


# ------------------------------------------------------------------------------------------- pages


def page(path: Path) -> str:
    """The text of a page with all that it shows as it is now."""
    shown = iter(OUTPUTS.get(path.name, ()))
    before = ""  # the Python blocks so far

    def anew(block: re.Match[str]) -> str:
        nonlocal before
        language, text = block.groups()
        if language == "python":
            before += text
        if language != "text" or text.startswith(TYPED):
            return block[0]
        if (make := next(shown, None)) is None:
            raise ValueError(f"{path.name} shows an output that docs/make.py does not make: {text}")
        return f"```text\n{make(before).rstrip()}\n```"

    whole = BLOCK.sub(anew, path.read_text(encoding="utf-8"))
    if (left := next(shown, None)) is not None:
        raise ValueError(f"docs/make.py makes {left.__name__}, which {path.name} does not show")
    return MADE.sub(lambda _: heart_table(), whole) if path == README else whole


def printed(code: str) -> str:
    """What the Python blocks of a page print."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs", "exec"), {"__name__": "docs"})
    return out.getvalue()


@cache
def written(*options: str) -> tuple[str, str]:
    """What `init` prints of an untidy table of the tests, and the configuration that it writes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        patients(folder)
        said = bonafed(folder, "init", "patients.csv", *options, "--out", "study.toml")
        return said, (folder / "study.toml").read_text(encoding="utf-8")


def init_prints(_: str) -> str:
    """The table that `init` prints; the last line says where the file is."""
    lines = written()[0].splitlines()
    return "\n".join(line.rstrip() for line in lines[:-1])


def init_writes(_: str) -> str:
    """How the rows are read, in the file that `init` writes."""
    text = written()[1]
    (found,) = re.findall(r"^(path = .*?)^scale = ", text, re.MULTILINE | re.DOTALL)
    return found


def init_writes_private(_: str) -> str:
    """What an owner fills in, in the file of a private run."""
    options = ("--client", "site", "--target", "sick", "--private")
    text = written(*options)[1]
    kept = ("classes =", "[data.columns]", "age =", "sex =")
    lines = [line for line in text.splitlines() if line.startswith(kept)]
    return "\n".join(lines).replace("[data.columns]", "\n[data.columns]")


OUTPUTS: dict[str, tuple[Callable[[str], str], ...]] = {
    "init.md": (init_prints, init_writes, init_writes_private),
    "solution.md": (printed,),
}


def heart_table() -> str:
    """What ``benchmarks/heart.py`` saved of the loss, with the columns that README shows."""
    saved = json.loads((measure.RESULTS / "heart.json").read_text(encoding="utf-8"))
    loss = saved["tables"]["log loss"]
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, *values in loss["rows"]]
    return measure.table(["log loss on held-out patients", *loss["columns"][1:]], rows)


# ----------------------------------------------------------------------------------------- picture


@cache
def first_run() -> tuple[str, list[tuple[str, str]], list[tuple[str, str]]]:
    """How the report of README's first command begins: its lead; numbers and their labels; and
    questions with their answers.
    """
    first = next(
        match[2] for match in BLOCK.finditer(README.read_text("utf-8")) if match[1] == "sh"
    )
    (config,) = re.findall(r"bonafed run (\S+)", first)
    with tempfile.TemporaryDirectory() as folder:
        bonafed(Path(folder), "run", str(ROOT / config), "--out", "runs")
        run = read_run(next(Path(folder, "runs").iterdir()))
        sections = told(run)
        facts = [(fact.value, fact.label) for section in sections for fact in section.facts]
        blocks = (b for s in sections for c in s.chapters if c.name == "short" for b in c.blocks)
        (asked,) = [[*block.answers] for block in blocks if isinstance(block, Questions)]
        lead = next(section.lead for section in sections if section.lead)
        return f"{run.result['title']}\n{lead}", facts, asked


def words() -> str:
    """All words of the picture, which it holds as its description."""
    lead, facts, asked = first_run()
    return "\n".join([lead, *(" ".join(pair) for pair in (*facts, *asked))])


def pictured(path: Path = PICTURE) -> str:
    """The words that a picture says it shows."""
    return Image.open(path).text.get("Description", "")  # type: ignore[attr-defined]


def draw(path: Path) -> None:
    """README's picture: the words of the report, set as the report sets them."""
    lead, facts, asked = first_run()
    title, lead = lead.split("\n")
    answers = [(textwrap.wrap(q, 26), textwrap.wrap(said, 98)) for q, said in asked]
    heights = [max(map(len, pair)) * 0.235 + 0.12 for pair in answers]
    width, ink, soft = 11.8, "#1d2126", "#5b636d"
    wide = (width - 0.36 - 0.12 * (len(facts) - 1)) / len(facts)
    labels = [textwrap.wrap(label, int(11.2 * wide)) for _, label in facts]
    short = 1.05 + 0.68 + 0.2 * max(map(len, labels))  # where the second card begins
    height = short + 0.87 + sum(heights)
    figure = Figure(figsize=(width, height), dpi=100, facecolor="#fbfbfa")

    def text(x: float, y: float, said: str, size: float, **more: Any) -> None:
        known = {"color": ink, "va": "top", "family": "DejaVu Sans", "parse_math": False} | more
        figure.text(x / width, 1 - y / height, said, fontsize=size, **known)

    def card(x: float, y: float, wide: float, high: float) -> None:
        corner = (x / width, 1 - (y + high) / height)
        box = FancyBboxPatch(
            corner,
            wide / width,
            high / height,
            "round,pad=0,rounding_size=0.006",
            mutation_aspect=width / height,
            facecolor="white",
            edgecolor="#e1e3e6",
            transform=figure.transFigure,
        )
        figure.add_artist(box)

    text(0.18, 0.22, title, 18, weight="bold")
    text(0.18, 0.66, lead, 11, color=soft)
    for k, ((value, _), label) in enumerate(zip(facts, labels, strict=True)):
        x = 0.18 + k * (wide + 0.12)
        card(x, 1.05, wide, short - 1.23)
        text(x + 0.14, 1.17, value, 14, weight="bold")
        text(x + 0.14, 1.5, "\n".join(label), 9.5, color=soft, linespacing=1.5)
    card(0.18, short, width - 0.36, height - short - 0.18)
    text(0.38, short + 0.16, "In short", 13, weight="bold")
    y = short + 0.58
    for (question, answer), high in zip(answers, heights, strict=True):
        text(0.38, y, "\n".join(question), 11, weight="bold", linespacing=1.45)
        text(3.0, y, "\n".join(answer), 11, linespacing=1.45)
        y += high
    figure.savefig(drawn := io.BytesIO(), format="png")
    described = PngInfo()
    described.add_text("Description", words())
    Image.open(drawn).convert("RGB").quantize(32).save(path, pnginfo=described, optimize=True)


# --------------------------------------------------------------------------------------------- all


def same(now: str, shown: str) -> bool:
    """The same words, and the same numbers but for what machines compute differently."""
    pairs = zip(NUMBER.findall(now), NUMBER.findall(shown), strict=False)
    return NUMBER.sub("0", now) == NUMBER.sub("0", shown) and all(
        abs(float(a) - float(b)) <= max(1e-5, 0.01 * abs(float(b))) for a, b in pairs
    )


def made() -> Iterator[tuple[Path, str]]:
    """Every text that is made, and where it stands."""
    yield from ((path, page(path)) for path in PAGES)
    yield render.PAGE, render.page()
    for name, text in comparison.pages(results(ROOT / "docs")).items():
        yield ROOT / "docs" / name, text


if __name__ == "__main__":
    for place, now in made():
        if not same(now, place.read_text(encoding="utf-8")):
            place.write_text(now, encoding="utf-8")
    if not same(words(), pictured()):
        draw(PICTURE)
    for script in (["benchmarks/structure.py", "--picture"], ["tests/notebooks.py"]):
        subprocess.run([sys.executable, *script], cwd=ROOT, check=True)
