"""Our numbers beside a paper's: intervals, verdicts, and the page that states them.

A trial is one seed. A mean of n trials has the interval +- t sd / sqrt(n), t of Student at 95 %; a
difference of two methods is taken trial by trial. A ranking is decided by at least `LEAST` trials
whose interval excludes zero, or by one run where nothing is drawn.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bonafed.arrays import Array
from bonafed.drawing import plain_decades, svg
from bonafed.papers.reproduction import Curve
from bonafed.reproduction.experiments import (
    Claim,
    Experiment,
    Number,
    Own,
    Result,
    experiments,
    in_turn,
    in_words,
    papers,
    path_of,
    results,
)
from bonafed.storage import write_whole

LEAST = 10  # trials that decide a ranking
LEVEL = 0.95
ROUNDING = 1e-6  # relative, of what is saved
SHOWN = 6  # differences of a claim with one judgement
PAGE = "reproduction.md"
SECONDS = "CPU s"  # of a machine, which is not the paper's
SIZE = (7.2, 3.6)  # inches of a figure
SIGNS = {
    "same": "=",
    "better": "+",
    "worse": "-",
    "higher": ">",
    "lower": "<",
    "undecided": "?",
    "other": "~",
}
TITLE = "# Five papers, reproduced"
INTRODUCTION = f"""\
{TITLE}

Every table and figure of the five papers of this package, run here: what the paper prints, what
its method does, and what ours does. The pages are written by `bonafed reproduce --out docs`; every
section names its command and settings. `bonafed reproduce --list` has the expected times and a
program of at most five lines for each. The variable `BONAFED_DATA` names the folder of the data.

A cell has the paper's number, its printed standard deviation in brackets, a slash, and our mean
over the trials with ± half of its 95 % interval; one trial has no interval. A trial is one seed of
splits, noise and starts; trials on one data set share its rows, so that an interval says nothing of
other data. `full` has the paper's settings but for what stands under *Here* and the trials; `quick`
takes seconds, and says that a program runs, not whether a paper is right. The sign after a pair of
numbers:

| sign | ours is |
| --- | --- |
| `=` | the same, to our interval, the printed digits and the interval of the paper's runs |
| `+` `-` | better, worse |
| `>` `<` | higher, lower, where neither way is better |
| `?` | another number, of fewer than {LEAST} trials or of those that got there: not decided |
| `~` | not to be compared: other data, quick settings, or the time of another machine |

What a paper says **holds**, or **the opposite holds**, where the 95 % interval of the differences,
taken trial by trial, excludes zero in at least {LEAST} trials; that methods are the same, where it
lies within 1 % or the share that is named. Every comparison is judged by itself: of 20 pairs of
methods that are alike about one is said to differ. "2 of 4" counts cases and other methods. "In
another setting": on data that stand in for the paper's. "Not reached" and "did not get there": the
run ended before. A picture shades the interval, and the range of fewer than {LEAST} trials.
"""


BESIDE = """\
"10 times" is the number of the paper's method over ours, a geometric mean over the cases and the
trials in which both got there; "-10" is ours less it, a mean. In brackets stand the least and the
greatest mean of a case.
"""


def interval(values: Array) -> tuple[float, float]:
    """The mean of the trials and half the width of its interval; 0 for one trial."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return float(known[0]) if len(known) else math.nan, 0.0
    mean, half = float(known.mean()), half_width(float(known.std(ddof=1)), len(known))
    return mean, half if half > ROUNDING * abs(mean) else 0.0


def half_width(spread: float, n: int) -> float:
    """Of the interval of a mean of n > 1 trials with this standard deviation."""
    return float(stdtrit(n - 1, 0.5 + LEVEL / 2) * spread / math.sqrt(n))


# --------------------------------------------------------------------------------------- verdicts


def is_other(one: Experiment, result: Result) -> bool:
    """Whether the run has settings that are not the paper's, beside the number of trials."""
    ours = {**result.settings, "data": (), "trials": 0}
    return ours != {**one.full, "data": (), "trials": 0}


def _stands_in(one: Experiment, case: str) -> bool:
    """Whether other data stand in: a key is a case, the word that it begins with, or all."""
    return not {"*", case, case.split(",")[0]}.isdisjoint(one.other)


def verdict(one: Experiment, result: Result, number: Number, values: Array) -> str:
    """A key of `SIGNS`."""
    mean, half = interval(values)
    stands_in = is_other(one, result) or _stands_in(one, number.case)
    if stands_in or number.figure.startswith(SECONDS) or not math.isfinite(mean):
        return "other"
    printed, n = Decimal(number.value), int(np.isfinite(values).sum())
    digit = 0.5 * 10.0 ** int(printed.as_tuple().exponent)
    runs = one.runs or one.full.get("trials", 1)
    theirs = half_width(float(number.spread), runs) if number.spread and runs > 1 else 0.0
    off = mean - float(printed)
    if abs(off) <= digit + math.hypot(half, theirs):
        return "same"
    if n < LEAST and not one.deterministic:
        return "undecided"
    way = "higher" if off > 0 else "lower"
    if (better := one.better.get(number.figure)) is None:
        return way
    if way == better and n < len(values):  # without the trials that ended worst
        return "undecided"
    return "better" if way == better else "worse"


def judged(one: Experiment, result: Result, claim: Claim) -> Iterator[tuple[str, str, str]]:
    """(case, difference, judgement) of a claim, for each case and method compared with."""
    table = result.table
    cases = dict.fromkeys(case for case, *_ in table if case not in claim.but)
    for case in cases if claim.case == "*" else [claim.case]:
        other_data = ", in another setting" * _stands_in(one, case)
        quick = "quick" if result.quick else "other"
        setting = f", at {quick} settings" if is_other(one, result) else other_data
        ours = table.get((case, claim.figure, claim.method))
        for other in claim.than:
            theirs = table.get((case, claim.figure, other))
            if ours is None or theirs is None:
                if claim.case != "*":
                    yield case, "", "not run"
                continue
            yield case, *_difference(one, claim, other, ours, theirs, setting)


def _difference(
    one: Experiment, claim: Claim, other: str, ours: Array, theirs: Array, setting: str
) -> tuple[str, str]:
    """A run that did not get there is worse than one that did, by nobody knows how much: it
    decides nothing, and what it contradicts is not decided by the other trials.
    """
    got = np.isfinite(ours), np.isfinite(theirs)
    known, said = got[0] & got[1], f"{claim.method} - {other}"
    n = int(known.sum())
    if n == 0:
        both = claim.method, other
        never = [name for name, each in zip(both, got, strict=True) if not each.any()]
        return said, f"{' and '.join(never or both)} did not get there"
    mean, half = interval(ours[known] - theirs[known])
    text = f"{said} = {mean:+.3g}" + (f" ± {half:.2g}" if half else "")
    least, most = mean - half, mean + half
    if claim.by == "same":
        size = claim.within * float(np.abs(theirs[known]).mean())
        holds, fails = max(-least, most) <= size and known.all(), least > size or most < -size
    else:
        way = claim.by or one.better[claim.figure]
        holds, fails = (least > 0, most < 0) if way == "higher" else (most < 0, least > 0)
        # by trial, whether only ours, and only theirs, ended worst
        worst = (got[1] & ~got[0]).any(), (got[0] & ~got[1]).any()
        for_it, against = worst if one.better.get(claim.figure, way) != way else worst[::-1]
        holds, fails = holds and not against, fails and not for_it
    certain = one.deterministic and not claim.figure.startswith(SECONDS)  # no clock is
    some = "" if known.all() else f" of {len(known)}"
    if (n < LEAST and not certain) or not (holds or fails):
        equal = certain and mean == 0
        return text, "equal" if equal else f"not decided by {n}{some} trial{'s' * (len(known) > 1)}"
    otherwise = "does not hold" if claim.by == "same" else "the opposite holds"
    return text, ("holds" if holds else otherwise) + (some and f", in {n}{some} trials") + setting


def beside(result: Result, own: Own) -> str | None:
    """Ours beside the paper's method, in words; None where not both were run."""
    table = result.table
    pairs = {
        case: (values, table[case, figure, own.own])
        for (case, figure, method), values in table.items()
        if (figure, method) == (own.figure, own.method) and (case, figure, own.own) in table
    }
    if not pairs:
        return None
    ratio = own.how == "ratio"
    each = np.array([_behind(theirs, ours, ratio) for theirs, ours in pairs.values()])
    known = each[np.isfinite(each).any(1)]
    lost = np.sum([(~np.isfinite(ends)).sum(-1) for ends in pairs.values()], axis=0)
    lacking = "; ".join(
        f"{n} of {each.size} runs of {whose} did not get there"
        for whose, n in zip(("the paper's method", "ours"), lost, strict=True)
        if n
    )
    if not known.size:
        return lacking or None
    by_case = np.nanmean(known, axis=1)
    low, mean, high = (float(end(by_case)) for end in (np.min, np.mean, np.max))
    if ratio:
        text = f"{math.exp(mean):.3g} times"
        ends = f"{math.exp(low):.3g} to {math.exp(high):.3g}"
    else:
        # a trial is a mean over the cases, of what each is off
        off = (known - by_case[:, None])[:, np.isfinite(known).any(0)]
        half = interval(mean + np.nanmean(off, axis=0))[1]
        text, ends = f"{mean:+.3g}" + f" ± {half:.2g}" * (half > 0), f"{low:+.3g} to {high:+.3g}"
    text += f" ({ends} over {len(known)} cases)" * (len(known) > 1)
    return text + f"; {lacking}" * bool(lacking)


def _behind(theirs: Array, ours: Array, ratio: bool) -> Array:
    """By trial, log(theirs / ours) or ours - theirs; nan where one of them is missing."""
    if not ratio:
        return np.where(np.isfinite(theirs), ours - theirs, np.nan)
    positive = (theirs > 0) & (ours > 0)
    return np.log(np.where(positive, theirs, np.nan) / np.where(positive, ours, np.nan))


# ---------------------------------------------------------------------------------------- figures


def picture(one: Experiment, result: Result) -> str | None:
    """The figure as SVG, on white; None for a table."""
    if one.draw is None:
        return None
    points: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for (case, figure, method, x), values in result.values.items():
        mean, half = interval(values)
        ends = mean - half, mean + half
        # an interval of few is wider than the figure
        if half and np.isfinite(values).sum() < LEAST:
            ends = np.nanmin(values), np.nanmax(values)
        points.setdefault((case, figure, method), []).append(
            (math.nan if x is None else x, mean, *ends)
        )
    tables = {key: np.array(rows) for key, rows in points.items()}
    curves = {key: Curve(*rows[np.argsort(rows[:, 0])].T) for key, rows in tables.items()}
    draw = one.draw

    def fill(canvas: Any) -> None:
        draw(canvas, curves)
        for axis in (axis for axes in canvas.axes for axis in (axes.xaxis, axes.yaxis)):
            if axis.get_scale() == "log":
                plain_decades(axis)

    text = svg(one.name.replace("/", "-"), *SIZE, fill)
    start = text.index(">", text.index("<svg")) + 1
    return f'{text[:start]}<rect width="100%" height="100%" fill="white"/>{text[start:]}'


def check_out(out: Path) -> None:
    """Refuse, before anything runs, a folder that has another file where the page would stand, one
    that cannot be written to, and one with a damaged file of trials.
    """
    path = out / PAGE
    if path.exists() and not path.read_bytes().startswith(TITLE.encode()):
        raise FileExistsError(f"{path} exists, and is another page: give another --out")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: --out needs the name of a folder")
    folder = out / "reproduction"
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written to: give another --out")
    results(out)


def save_page(out: Path) -> Path:
    """Write the pages and the figures of all results in a folder."""
    check_out(out)
    with in_turn(out):
        found = results(out)
        for one in experiments().values():
            if (result := found.get(one.name)) and (drawn := picture(one, result)) is not None:
                write_whole(path_of(out, one, False).with_suffix(".svg"), drawn.encode())
        for name, text in pages(found).items():
            write_whole(out / name, text.encode())
    return out / PAGE


# ------------------------------------------------------------------------------------------ pages


def pages(found: Mapping[str, Result]) -> dict[str, str]:
    """The pages of some results: the first one, and one for each paper."""
    texts = {PAGE: _first(found)}
    for paper in papers().values():
        ours = paper.experiments.values()
        cited = f"{paper.authors}. {paper.source}. [All papers, and what the signs say](../{PAGE})"
        parts = [f"# {paper.title}\n\n{cited}\n"]
        parts += [section(one, found.get(one.name)) for one in ours]
        texts[_page(paper.room)] = "\n".join(parts)
    return texts


def _page(room: str) -> str:
    return f"reproduction/{room.replace('_', '-')}.md"


def _first(found: Mapping[str, Result]) -> str:
    """What is run and what it came to, claim by claim, and the papers' methods beside ours."""
    rows, claims, behind = [], [], []
    for one in experiments().values():
        link, result = f"[{one.name}]({_page(one.room)}#{one.key})", found.get(one.name)
        if result is None:
            rows.append((link, one.title, "not run", ""))
            continue
        rows.append((link, one.title, _extent(one, result), _counted(one, result)))
        for claim in one.claims:
            said = Counter(what for *_, what in judged(one, result, claim))
            many = len(said) > 1
            counts = (f"{what}{f' ({n} of {said.total()})' * many}" for what, n in said.items())
            claims.append((link, claim.says, "; ".join(counts)))
        for own in one.own:
            if (text := beside(result, own)) is not None:
                run = _extent(one, result).rpartition(",")[0]
                behind.append((link, run, own.method, own.own, own.figure, text))
    return "\n".join(
        (
            INTRODUCTION,
            "## Tables and figures\n",
            _table(("", "what it shows", "run", "numbers of the paper"), rows),
            "## What the papers say\n",
            _table(("", "the paper says", "here"), claims),
            "## The papers' methods beside ours\n",
            BESIDE,
            _table(("", "run", "the paper's", "ours", "figure", "by"), behind),
        )
    )


def _extent(one: Experiment, result: Result) -> str:
    n = len(result.trials)
    runs = "one run" if one.deterministic and n == 1 else f"{n} trial{'s' * (n > 1)}"
    return f"{'quick' if result.quick else 'full'}, {runs}, {result.seconds:.3g} CPU s"


def _counted(one: Experiment, result: Result) -> str:
    """How many numbers of the paper have which sign."""
    table = result.table
    keyed = [(number, (number.case, number.figure, number.method)) for number in one.numbers]
    signs = [verdict(one, result, n, table[key]) for n, key in keyed if key in table]
    counts = [f"{signs.count(kind)} {sign}" for kind, sign in SIGNS.items() if kind in signs]
    lacking = len(keyed) - len(signs)
    return ", ".join([*counts, *[f"{lacking} not run"] * (lacking > 0)])


def section(one: Experiment, result: Result | None) -> str:
    """What one table or figure printed, here and in the paper."""
    heading = one.key.replace("-", " ").capitalize()
    parts = [f"## {heading}", f"{one.title} ({one.where}). {one.setting}"]
    if one.here:
        parts.append(f"*Here*: {one.here}")
    for name, texts in (("In place of", one.other), ("Not to be had", one.absent)):
        parts += [
            f"*{name}* {'all cases' if case == '*' else case}: {text}"
            for case, text in texts.items()
        ]
    borrowed = dict.fromkeys((n.method, n.where) for n in one.numbers if n.where)
    parts += [f"*The paper's number beside* {method}: {where}" for method, where in borrowed]
    if result is None:
        return "\n\n".join([*parts, f"Not run: `bonafed reproduce {one.name}`.\n"])
    parts += [_how(one, result), _cells(one, result)]
    rows = [(claim.says, _found(one, result, claim)) for claim in one.claims]
    parts.append(_table(("the paper says", "here"), rows) if rows else "")
    for own in one.own:
        if (text := beside(result, own)) is not None:
            ours = f"our {own.own}"
            pair = (
                f"{own.method} over {ours}" if own.how == "ratio" else f"{ours} less {own.method}"
            )
            parts.append(f"{own.figure}, {pair}: {text}.")
    cases = {case for case, *_ in result.values}
    parts += [
        f"*Why*{f' ({reason.case})' * (reason.case != '*')}: {reason.text}"
        for reason in one.why
        if reason.case in {"*", *cases}
    ]
    if one.draw is not None:
        parts.append(f"![{one.title}]({one.room}-{one.key}.svg)")
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _found(one: Experiment, result: Result, claim: Claim) -> str:
    """The judgements of a claim, each with the differences behind it."""
    said: dict[str, list[str]] = {}
    for case, text, what in judged(one, result, claim):
        said.setdefault(what, []).append(f"{case}: {text}" if text else case)
    parts = []
    for what, texts in said.items():
        more = f"; {len(texts) - SHOWN} more" * (len(texts) > SHOWN)
        parts.append(f"**{what}** ({'; '.join(texts[:SHOWN])}{more})")
    return "; ".join(parts)


def _how(one: Experiment, result: Result) -> str:
    settings = in_words({k: v for k, v in result.settings.items() if k != "data"})
    data = ", ".join(result.settings.get("data", ())) or "made data"
    last = max(trial.date for trial in result.trials)
    count, commands = one.settings(result.quick).get("trials", 1), []
    numbered = enumerate(trial.seed for trial in result.trials)
    for _, group in groupby(numbered, lambda pair: pair[1] - pair[0]):  # seeds in a row
        seeds = [seed for _, seed in group]
        command = f"bonafed reproduce {one.name}" + " --quick" * result.quick
        command += f" --trials {len(seeds)}" * (len(seeds) != count)
        commands.append(f"`{command}{f' --seed {seeds[0]}' * (seeds[0] > 0)}`")
    return (
        f"{', '.join(commands)}: {_extent(one, result)}, {last}, version {result.version}. "
        f"Settings: {settings or 'none'}; {data}."
    )


def _cells(one: Experiment, result: Result) -> str:
    """The table: a row for each case and figure, a column for each method."""
    table = result.table
    printed = {(n.case, n.figure, n.method): n for n in one.numbers}
    keys = [*table, *(key for key in printed if key not in table)]
    # other figures stand in the file of the trials
    named = {each.figure for each in (*one.numbers, *one.claims, *one.own)}
    rows = dict.fromkeys(key[:2] for key in keys if key[1] in named or not named)
    methods = [*dict.fromkeys(key[2] for key in keys if key[:2] in rows)]
    lines = []
    for case, figure in rows:
        cells = []
        for method in methods:
            number, values = printed.get((case, figure, method)), table.get((case, figure, method))
            cells.append(_cell(one, result, number, values))
        lines.append((case, figure, *cells))
    return _table(("case", "figure", *methods), lines) if lines else ""


def _cell(one: Experiment, result: Result, number: Number | None, values: Array | None) -> str:
    if values is None:
        return "" if number is None else f"{_printed(number)} / not run"
    mean, half = interval(values)
    text = _shown(mean) if math.isfinite(mean) else "not reached"
    if half:
        text += f" ± {half:.2g}"
    if math.isfinite(mean) and (lost := int((~np.isfinite(values)).sum())):
        text += f" ({lost} of {len(values)} not reached)"
    if number is None:
        return text
    return f"{_printed(number)} / {text} {SIGNS[verdict(one, result, number, values)]}"


def _printed(number: Number) -> str:
    return number.value if number.spread is None else f"{number.value} ({number.spread})"


def _shown(value: float) -> str:
    """Four digits, and whole numbers as such."""
    whole = 1000 <= abs(value) < 1e6 or (value == round(value) and abs(value) < 1e6)
    return f"{value:.0f}" if whole else f"{value:.4g}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
