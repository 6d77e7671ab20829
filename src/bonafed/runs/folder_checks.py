"""Checks of what a folder holds beside the numbers of a run: its files, its title, how its model
makes features and predictions, and its report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from bonafed.data.schema import declared_schema
from bonafed.data.validation import ordered
from bonafed.problem.calibration import calibrated
from bonafed.runs.checks import Check, compared, not_checked
from bonafed.runs.disclosure import OWNER, README
from bonafed.runs.files import Record, Row, files_in, text_in
from bonafed.runs.folder import EVENTS, Render, is_drawn
from bonafed.runs.model_file import described, model_of
from bonafed.runs.result import titled, versions
from bonafed.runs.run import Run
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.splits import Parts

DRAWN_BY = ("bonafed", "numpy", "matplotlib")  # what the bytes of a report depend on
TITLED = ("config.toml: title", "config.toml: data.name")
ACTIVE = {"script", "iframe", "object", "embed", "foreignobject", "link", "base", "form", "img"}
LINKS = {"href", "xlink:href", "src", "srcset", "action", "formaction", "data"}


def parts_in(run: Run) -> Iterator[tuple[str, Run]]:
    """The parts of a run that are here, each with what its checks are called after."""
    yield "", run
    if run.owner is not None:
        yield OWNER, run.owner


def check_names(run: Run) -> Iterator[Check]:
    """Every part has the files of such a run only, and is called as the configuration says."""
    for where, part in parts_in(run):
        found = {*_files_of(run, part)}
        odd = sorted(found - {*part.result["files"]})
        odd += sorted(name for name in found - {*odd} - _known(run, part) if not is_drawn(name))
        odd += sorted(_empty(part.path))
        text = f"unknown: {', '.join(map(ascii, odd[:5]))}" if odd else f"{len(found)} known files"
        yield Check(f"{where}files", not odd, text)
        at_sites = run.config.data.sites is not None
        stated = [part.result["title"], "at_sites" in part.result]
        yield compared(f"{where}title", stated, [titled(run.config), at_sites])
        text = "its words are those of the person who ran it"
        yield not_checked(f"{where}title", text, f"{where}result.json: title", *TITLED)
        yield from _check_text(run, part, where)
        stated = ", ".join(f"{name} {number}" for name, number in part.result["versions"].items())
        yield not_checked(
            f"{where}versions", f"that it was {stated}", f"{where}result.json: versions"
        )
        if "tries" in part.result:
            alike = run.config.risk.by_rank and not run.config.problem().convex
            yield Check(f"{where}tries", alike, "are those of a problem that is not convex")
            text = "the starts of the method are not repeated"
            yield not_checked(f"{where}tries", text, f"{where}result.json: tries")


def _check_text(run: Run, part: Run, where: str) -> Iterator[Check]:
    """The texts of a part say what a run writes in them, and nothing beside it."""
    name, again = ("config.toml", run.config.text()) if part is run else ("README.txt", README)
    file = part.path / name
    if not file.is_file() or text_in(file) != again:
        yield Check(f"{where}{name}", False, "has another text than a run writes into it")


def _files_of(run: Run, part: Run) -> list[str]:
    """The files of one part, but for its result.json."""
    inside = OWNER if run.private and part is run else ""
    return [name for name in files_in(part.path, inside) if name != "result.json"]


def _empty(folder: Path) -> set[str]:
    """The folders of a part without a file; their names say something, but for that of figures that
    are no longer drawn.
    """
    paths = [path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())]
    return {path.relative_to(folder).as_posix() for path in paths if path.name != "figures"}


def _known(run: Run, part: Run) -> set[str]:
    """The files that a part may have beside what is drawn."""
    names = {"history.jsonl"}
    names |= {"config.toml", "model.safetensors"} if part is run else {"README.txt"}
    if part is not run.exact:
        return names
    names |= {EVENTS} if run.config.logged else set()
    used = (section.files for section in SECTIONS if section.applies(run.config))
    names |= set() if run.private else {"duals.safetensors"}
    return names.union({"baselines.safetensors"}, *used)


# ---------------------------------------------------------------------------------------- the model


def check_model(run: Run, parts: Parts) -> Iterator[Check]:
    """How features are made, classes predicted and probabilities computed, from the configuration,
    the rows and the numbers of the model.
    """
    infeasible = run.result["outcome"]["stop"] == "infeasible"
    problem = run.config.settled(parts.train).problem()
    sigmoid = calibrated(problem, parts.train, run.w)
    yield from _compared_model(run.model, model_of(run.config, parts.train, infeasible, sigmoid))


def check_declared_model(run: Run) -> Iterator[Check]:
    """The same where the configuration declares all of it, without the rows."""
    data, named = run.config.data, run.config.loss().targets != "real"
    if run.exact is not None and data.sites is None:
        return
    if data.columns is None or (named and data.classes is None) or data.target is None:
        text = "its columns or classes are not declared in config.toml"
        yield not_checked("model", text, "model.safetensors: bonafed")
        return
    known = None if data.classes is None else np.array(data.classes)
    classes = ordered(known, data.positive)
    schema = declared_schema([*data.columns], data.columns, data.target, classes)
    names = [*schema.feature_names, *["1"] * run.config.ones]
    infeasible = run.result["outcome"]["stop"] == "infeasible"
    again = described(run.config, classes, names, schema.to_dict(), infeasible)
    yield from _compared_model(run.model, again)


def _compared_model(stated: Row, again: Record) -> Iterator[Check]:
    """The metadata of a model against what they are; every column relative to its own size."""
    (rest, columns), (rest_again, columns_again) = map(_without_columns, (stated, again))
    checks = [compared("model", rest, rest_again)]
    for one, other in zip(columns, columns_again, strict=False):
        sizes = [abs(other.get(key, 0.0)) for key in ("mean", "centre", "scale")]
        checks.append(compared(f"model: {other['name']}", one, other, floor=max(sizes)))
    checks.append(compared("model", len(columns), len(columns_again)))
    yield next((check for check in checks if not check.ok), checks[0])


def _without_columns(model: Row) -> tuple[Record, list[Record]]:
    """The metadata of a model without the columns of its schema, and these."""
    schema: Record = {**(model["schema"] or {})}
    columns = schema.pop("columns", [])
    return {**model, "schema": schema}, columns


# --------------------------------------------------------------------------------------- the report


def check_report(run: Run, render: Render | None) -> Iterator[Check]:
    """The report of every part, drawn again from the rest of the folder by ``render``."""
    for where, part in parts_in(run):
        stored = {name: part.path / name for name in _files_of(run, part) if is_drawn(name)}
        if render is None:
            drawn = [*(f"{where}{name}" for name in stored), "config.toml: report"]
            yield not_checked(f"{where}report", "nothing to draw it with was given", *drawn)
        elif not stored:
            asked = run.config.report.html
            text = "is missing" if asked else "none, as the configuration says"
            yield Check(f"{where}report", not asked, text)
        else:
            texts = {name: file.read_bytes() for name, file in stored.items()}
            yield _compared_report(where, part.result["versions"], texts, render(part))


def _compared_report(
    where: str, stated: Mapping[str, str], stored: Mapping[str, bytes], drawn: Mapping[str, str]
) -> Check:
    """A report against the same drawn again; where the software is not the same, only that it
    does nothing when it is opened.
    """
    name, keys = f"{where}report", dict.fromkeys((*stored, *drawn))
    odd = [key for key in keys if stored.get(key) != drawn.get(key, "").encode()]
    if not odd:
        return Check(name, True, f"drawn again: {len(stored)} equal files")
    here = versions()
    same = {part: stated.get(part) == here[part] for part in DRAWN_BY}
    pages = {key: data.decode(errors="replace") for key, data in stored.items()}
    wrong = [key for key, page in pages.items() if _is_active(page)]
    if same["bonafed"]:  # then what its words and numbers are drawn with is the same
        wrong += [key for key in keys if _words(pages.get(key)) != _words(drawn.get(key))]
    if wrong or all(same.values()):
        text = f"is not drawn from this folder: {', '.join((wrong or odd)[:5])}"
        return Check(name, False, f"{text}. `bonafed report` draws it again")
    other = ", ".join(f"{part} {stated.get(part, 'unknown')}" for part in DRAWN_BY)
    text = f"drawn with {other}, and not again; `bonafed report` draws it with what is here"
    if not same["bonafed"]:
        return Check(name, None, text)
    return not_checked(name, f"its figures are {text}", f"{where}figures", f"{where}report.html")


def _words(page: str | None) -> str | None:
    """A page without its figures, which depend on the version of matplotlib."""
    return page and re.sub(r"<svg\b.*?</svg>", "<svg>", page, flags=re.DOTALL)


class _Reader(HTMLParser):
    """Looks for what acts when a page is opened, or loads from elsewhere."""

    active = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.active |= tag in ACTIVE
        for key, value in attrs:
            self.active |= key.startswith("on") or (
                key in LINKS and not (value or "").startswith("#")
            )


def _is_active(page: str) -> bool:
    """Whether a page of HTML or SVG does more than show itself."""
    reader = _Reader()
    reader.feed(page)
    return reader.active or "@import" in page or "url(" in page.replace("url(#", "")
