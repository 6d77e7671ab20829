"""Whether a restructured bonafed still computes the same as a revision: runs of both, side by side.

    python benchmarks/golden.py [REV] [--keep DIR] [--only KIND]

Both sides run the same configurations through the command line. Every number, tensor, file, state
of a verification and public signature has to be equal, bit by bit; words may differ and are listed.
The exit status is 1 where something differs that is neither in ``EXCLUDED`` nor in
``CHANGED_ON_PURPOSE``, nor new and in ``ADDED``. A name that is changed on purpose goes into
``RENAMED``; if a key of a configuration is renamed, the old text of a small kind goes into
``golden/NAME.old.toml``.

The kinds are the examples, the files in ``golden/`` (each below ten seconds) and ``commands``. The
side of REV is kept below ``--keep`` and used again. The fairness example needs the adult data in
the folder ``BONAFED_DATA``, else it is skipped, and named.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from golden_read import Found, read
from golden_sides import Case, Side, cases, checkout, exported
from measure import table

BEFORE = "e0938184"  # the last commit before what people met was mended
ROOT = Path(__file__).resolve().parents[1]
NAMES = "public names"  # the kind that compares bonafed.__all__ and signatures
SHOWN = 8  # differences of a kind that are printed; the file has all
WELL = (0,)  # exit statuses of the old side that mean that a case is of use

# Key path on the old side -> on the new side. ``*`` stands for one key or place, and ``**`` for any
# text; stars on the right are filled in order. All that lies below a key goes with it. A whole file
# is renamed by its name alone, and a public name by "bonafed:Name".
RENAMED: dict[str, str] = {
    "config.toml:problem/intercept": "config.toml:problem/fit_intercept",
    "plain.toml:problem/intercept": "plain.toml:problem/fit_intercept",
    "said report.json:config/problem/intercept": "said report.json:config/problem/fit_intercept",
    "result.json:checks/7": "result.json:checks/13",
    "said report.json:checks/7": "said report.json:checks/13",
}

# (kind, pattern of the key path, reason); ``*`` stands for any text, also as a kind.
CHANGED_ON_PURPOSE: tuple[tuple[str, str, str], ...] = (
    ("*", "*:checks/length", "six checks compare the clients with each other"),
    ("public names", "bonafed:Certificate", "it says what is proved where nothing bounds a model"),
    ("public names", "bonafed:Linear", "one name for one thing: fit_intercept"),
    ("public names", "bonafed:Softmax", "one name for one thing: fit_intercept"),
)

# (pattern of the key path, reason); what the old side has not, and only that
ADDED: tuple[tuple[str, str], ...] = (
    ("*:checks/*", "six checks compare the clients with each other"),
    ("*:certificate/nearby", "what is proved where nothing bounds a model"),
    ("*:certificate/separated", "classes that a combination of the features tells apart"),
    ("*:messages/*/held/*", "the governance page counts the numbers that leave a client"),
    ("*:evaluation/measures/*/promise/*", "what holds at every client, with confidence"),
    ("*:evaluation/measures/*/bounds/*", "what holds at every client, with confidence"),
    ("*:evaluation/measures/*/chance", "whether chance explains that a client is worse"),
    ("said predict.csv:cut/*", "the cut stands beside the probability"),
    ("said verify.txt:state *", "the worst client and the checks of clients are verified"),
    ("bonafed:UnprovenWarning", "a model that is not proved is warned of"),
)

# keys that only one side has, or states; where both have a value, it has to be the same
CONFIGURED = ("config.toml:*", "*:config/*")
STATED = "a stored configuration states all fields of the classes that it names, and no others"

MISSING = "not there"

EXCLUDED: tuple[tuple[str, str], ...] = (  # never the same twice; (pattern of the key path, reason)
    ("*result.json:seconds", "the time that a machine took"),
    ("said report.json:seconds", "the time that a machine took"),
    ("*history.jsonl:*/seconds", "the time that a machine took"),
    ("*:versions/*", "versions of Python and of packages"),
    (
        "*:files/*",
        "digests of files that are compared themselves, some of them with times or words",
    ),
    ("*:seal", "digest of a result that has times"),
    ("figures/convergence.svg:text", "of pooled rows drawn against the time that a machine took"),
    ("report.html:text", "has the figures; its words are those of report.md"),
)


@dataclass
class Compared:
    """One kind: how many values were compared, which differ, and whose words differ."""

    kind: str
    count: int = 0
    equal: int = 0
    largest: float = 0.0  # relative difference
    failed: list[str] = field(default_factory=list)
    meant: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    diff: list[str] = field(default_factory=list)
    seconds: tuple[float, float] = (0.0, 0.0)

    def see(self, path: str, old: Any, new: Any, gap: float) -> None:
        """Count a compared value; ``gap`` is its relative difference, 0 where it is equal."""
        size = max(1, getattr(old, "size", 1))
        self.count += size
        if gap == 0.0:
            self.equal += size
            return
        self.largest = max(self.largest, gap)
        said = f"{path}: {_short(old)} -> {_short(new)} (relative difference {gap:.1e})"
        reason = on_purpose(self.kind, path)
        if reason is None and isinstance(old, str) and old == MISSING:
            reason = next((why for keys, why in ADDED if fnmatchcase(path, keys)), None)
        one_sided = any(value is None or str(value) == MISSING for value in (old, new))
        if one_sided and any(fnmatchcase(path, keys) for keys in CONFIGURED):
            reason = STATED
        if reason is None:
            self.failed.append(said)
        else:
            self.meant.append(f"{said}: {reason}")


def _short(value: Any) -> str:
    said = f"array {value.shape}" if isinstance(value, np.ndarray) else str(value)
    return said if len(said) <= 80 else f"{said[:77]}..."


def on_purpose(kind: str, path: str) -> str | None:
    """Why a difference is meant, None where it is not."""
    for of_kind, pattern, reason in CHANGED_ON_PURPOSE:
        if fnmatchcase(kind, of_kind) and fnmatchcase(path, pattern):
            return reason
    return None


def excluded(path: str) -> bool:
    """Whether a key path is never the same twice."""
    return any(fnmatchcase(path, pattern) for pattern, _ in EXCLUDED)


def renamed(path: str) -> str:
    """The key path on the new side of one on the old side."""
    for old, new in RENAMED.items():
        stars = {"**": "(.*)", "*": "([^:/]*)"}
        parts = [stars.get(part, re.escape(part)) for part in re.split(r"(\*\*?)", old)]
        if match := re.fullmatch("".join(parts) + r"(?P<rest>(?:[:/].*)?)", path):
            for star in match.groups()[:-1]:
                new = re.sub(r"\*\*?", lambda _, filled=star: filled, new, count=1)
            return new + match["rest"]
    return path


def gap_between(old: Any, new: Any) -> float:
    """Relative difference of two values: 0 where they are the same, infinite without one."""
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return _between_arrays(old, new)
    number = (int, float)
    if (
        isinstance(old, bool)
        or isinstance(new, bool)
        or not (isinstance(old, number) and isinstance(new, number))
    ):
        return 0.0 if type(old) is type(new) and old == new else math.inf
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    gap = abs(old - new) / max(abs(old), abs(new))
    return gap if math.isfinite(gap) else math.inf


def _between_arrays(old: np.ndarray, new: np.ndarray) -> float:
    """Relative to the largest entry of either."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return math.inf
    if np.array_equal(old, new, equal_nan=old.dtype.kind == "f"):
        return 0.0
    with np.errstate(invalid="ignore"):
        gap = float(np.max(np.abs(old - new)) / max(np.max(np.abs(old)), np.max(np.abs(new))))
    return gap if math.isfinite(gap) else math.inf


def compare(kind: str, old: Found, new: Found) -> Compared:
    """Everything that two sides left of one case."""
    done = Compared(kind)
    before = {renamed(path): value for path, value in old.values.items()}
    for path in (p for p in dict.fromkeys([*before, *new.values]) if not excluded(p)):
        a, b = before.get(path, MISSING), new.values.get(path, MISSING)
        done.see(path, a, b, gap_between(a, b))
    files = {renamed(name) for name in old.files}
    for name in sorted(files | new.files):
        a, b = ("there" if name in side else MISSING for side in (files, new.files))
        done.see(f"file {name}", a, b, gap_between(a, b))
    said = {renamed(path): text for path, text in old.words.items()}
    for path in (p for p in dict.fromkeys([*said, *new.words]) if not excluded(p)):
        _compare_words(done, path, said.get(path), new.words.get(path))
    return done


def _compare_words(done: Compared, path: str, old: str | None, new: str | None) -> None:
    if old == new:
        return
    done.words.append(path)
    before, after = ([] if text is None else text.splitlines() for text in (old, new))
    head = f"{done.kind}: {path}"
    done.diff += difflib.unified_diff(before, after, f"old {head}", f"new {head}", lineterm="", n=1)


def compare_names(old: Side, new: Side) -> Compared:
    """Public names and signatures have to be the same; those of methods are words."""
    sides = []
    for side in (old, new):
        found, names = Found(), side.names()
        found.values = {f"bonafed:{name}": said["signature"] for name, said in names.items()}
        for name, said in names.items():
            found.words |= {f"bonafed:{name}/{key}": text for key, text in said["methods"].items()}
        sides.append(found)
    return compare(NAMES, *sides)


def compare_case(old: tuple[Side, Case], new: tuple[Side, Case]) -> Compared:
    """Run one case on both sides and compare."""
    (was, first), (now, second) = old, new
    before, spent = was.case(first)
    found = read(before)
    bad = {k: v for k, v in found.values.items() if k.startswith("status:") and v not in WELL}
    if bad:
        sys.exit(f"golden: {first.name} fails on the old side: {bad}, see {before / 'said'}")
    after, took = now.case(second)
    done = compare(first.name, found, read(after))
    done.seconds = (spent, took)
    return done


def compare_all(old: Side, new: Side, only: list[str]) -> tuple[list[Compared], list[str]]:
    """All kinds that both sides have, one after the other, and in words what was left out."""
    first, second = cases(old, True), cases(new, False)
    done, left = [], []
    if not only or NAMES in only:
        done.append(compare_names(old, new))
    for kind in (k for k in dict.fromkeys([*first, *second]) if not only or k in only):
        a, b = first.get(kind), second.get(kind)
        if a is None:
            left.append(f"{kind}: the old side has no such example")
        elif b is None:
            gone = Compared(kind)
            gone.see("example", "there", MISSING, math.inf)
            done.append(gone)
        elif isinstance(a, str) or isinstance(b, str):
            left.append(f"{kind}: {a if isinstance(a, str) else b}")
        else:
            done.append(compare_case((old, a), (new, b)))
            _progress(done[-1])
    return done, left


def _progress(done: Compared) -> None:
    old, new = done.seconds
    print(f"{done.kind}: {old:.0f} s old, {new:.0f} s new", file=sys.stderr, flush=True)


def report(done: list[Compared], left: list[str], folder: Path) -> bool:
    """Print the table and the differences, write all to files; whether everything is equal."""
    columns = (
        "kind",
        "numbers compared",
        "equal",
        "largest relative difference",
        "words that differ",
    )
    rows = [(d.kind, d.count, d.equal, d.largest, len(d.words)) for d in done]
    print(table(columns, rows), "\n")
    for said in left:
        print(f"SKIPPED {said}")
    for one in done:
        for title, lines in (("DIFFERS", one.failed), ("meant", one.meant)):
            for line in lines[:SHOWN]:
                print(f"{title} {one.kind}: {line}")
            if len(lines) > SHOWN:
                print(f"{title} {one.kind}: and {len(lines) - SHOWN:,} more")
    numbers = [f"{one.kind}: {line}" for one in done for line in (*one.failed, *one.meant)]
    words = [line for one in done for line in one.diff]
    for name, lines in (("numbers.txt", numbers), ("words.diff", words)):
        (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
        if lines:
            print(f"see {folder / name}")
    return not any(one.failed for one in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "rev", nargs="?", default=BEFORE, help=f"revision to compare with ({BEFORE})"
    )
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "bonafed-golden"))
    parser.add_argument("--only", action="append", default=[], help="a kind; may be repeated")
    given = parser.parse_args()
    keep = given.keep.resolve()
    old, new = exported(ROOT, given.rev, keep), checkout(ROOT, keep)
    began = time.perf_counter()
    done, left = compare_all(old, new, given.only)
    if not done:
        sys.exit(f"golden: nothing was compared: there is no kind {', '.join(given.only)}")
    same = report(done, left, new.folder)
    verdict = "the same" if same else "NOT the same"
    print(f"{verdict} as {given.rev}, {time.perf_counter() - began:.0f} s")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
