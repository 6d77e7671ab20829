"""The figures of a run with constraints: violations by round, and what is met where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quorate.arrays import Array
from quorate.report.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MOST,
    ORANGE,
    RED,
    SAND,
    Plot,
    legend,
    named_rows,
    whole_numbers,
)
from quorate.report.tables import Result, Rows
from quorate.runs.constraint_metrics import TRAINING
from quorate.runs.observers import VIOLATION
from quorate.runs.splits import HELD_OUT

if TYPE_CHECKING:
    from quorate.report.figures import Canvas

VIOLATED = (  # up to, in words, colour
    (1e-6, "met", GREEN),
    (1e-3, "by ≤ 0.001", SAND),
    (1e-1, "≤ 0.1", ORANGE),
    (np.inf, "more", RED),
)


def plots(result: Result, history: Rows, rows: Rows) -> dict[str, Plot]:
    """The figures by name, none without data; ``rows`` are the tightest constraints."""
    drawn: dict[str, Plot] = {}
    names, broken = violations(result, history)
    if len(names) and broken.shape[0] > 1:
        title = "By how much every client violates its constraints after each round"
        drawn["bands"] = Plot(title, _height(names), lambda c: _bands(c, names, broken))
    owners = [*dict.fromkeys(row["owner"] for row in rows)][:MOST]
    if owners:
        title = "How far every owner's tightest constraint is from its limit, by model"
        drawn["kept"] = Plot(title, _height(owners), lambda c: _kept(c, result, owners))
    return drawn


def _height(names: Sequence[str]) -> float:
    return 1.5 + 0.26 * len(names)


def violations(result: Result, history: Rows) -> tuple[list[str], Array]:
    """Names (n,) and violations (rounds, n) of the clients that violate their constraints most over
    the run.
    """
    clients = [row["client"] for row in result["clients"]]
    owners = {row["owner"] for row in result["constraints"]}
    rows = [row.get(VIOLATION) or () for row in history]
    if not owners & {*clients} or any(len(row) != len(clients) for row in rows):
        return [], np.zeros((0, 0))
    broken = np.array([[np.nan if v is None else v for v in row] for row in rows], dtype=float)
    total = np.nansum(np.log10(np.maximum(np.nan_to_num(broken), 1e-9)), 0)
    most = sorted(np.argsort(-total, kind="stable")[:MOST].tolist())
    return [clients[k] for k in most], broken[:, most]


def _bands(canvas: Canvas, names: Sequence[str], broken: Array) -> None:
    """One band a client; neighbouring rounds of one colour are joined."""
    axes = canvas.subplots()
    limits = np.array([most for most, *_ in VIOLATED])
    for y, values in zip(named_rows(axes, names), broken.T, strict=True):
        kind = np.where(np.isfinite(values), np.searchsorted(limits, np.nan_to_num(values)), -1)
        cuts = np.flatnonzero(np.diff(kind)) + 1
        for rounds in np.split(np.arange(len(kind)), cuts):
            k = kind[rounds[0]]
            if k >= 0:
                axes.broken_barh(
                    [(rounds[0] + 0.5, len(rounds))],
                    (y - 0.36, 0.72),
                    color=VIOLATED[k][2],
                    linewidth=0,
                )
    for _, name, colour in VIOLATED:
        axes.barh(0, 0, color=colour, label=name)
    axes.grid(visible=False)
    axes.set_xlim(0.5, len(broken) + 0.5)
    whole_numbers(axes.xaxis)
    axes.set_xlabel("round")
    legend(axes)


def _kept(canvas: Canvas, result: Result, owners: Sequence[str]) -> None:
    """Measured value minus limit of every owner's tightest constraint: dots right of the line are
    violations.
    """
    axes = canvas.subplots()
    places = named_rows(axes, owners)
    marks = {
        (result["model"], TRAINING): (TRAINING, BLUE, "o", 4),
        (result["model"], HELD_OUT): (HELD_OUT, ORANGE, "D", 3),
    }
    others = (part["model"] for part in result["kept"] if part["model"] != result["model"])
    if (first := next(others, None)) is not None:
        marks[first, TRAINING] = (first, GREY, "s", 2)
    for part in result["kept"]:
        over: dict[str, float] = {}
        for row in part["rows"]:
            over[row["owner"]] = max(-row["slack"], over.get(row["owner"], -np.inf))
        dots = [(over[o], y) for o, y in zip(owners, places, strict=True) if o in over]
        mark = marks.get((part["model"], part["set"]))
        if mark is not None and dots:
            name, colour, shape, above = mark
            axes.scatter(
                *np.array(dots).T, s=26, color=colour, marker=shape, label=name, zorder=above
            )
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.set_xlabel("measured − limit (right of the line: violated)")
    legend(axes)
