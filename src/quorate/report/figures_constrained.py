"""The figures of a run with constraints: rounds, feasibility bands, what is kept, the trade-off over a level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.bands import KEY
from quorate.report.constrained import tight
from quorate.report.figures import BLUE, GREEN, GREY, INK, MOST, ORANGE, PURPLE, column, draw, label, plain_decades
from quorate.report.figures import legend as legend_above

INSTEAD = ("convergence", "traffic", "clients", "adversary")  # of other runs, and not drawn of these
BROKEN = (
    (1e-6, "met", GREEN),
    (1e-3, "by ≤ 0.001", "#e0b252"),
    (1e-1, "≤ 0.1", ORANGE),
    (np.inf, "more", "#b0413e"),
)


def constrained_figures(
    result: Mapping[str, Any], history: Sequence[Mapping[str, Any]], traded: Mapping[str, Any] | None
) -> dict[str, str]:
    """SVG by name; a figure without data is left out."""
    found: dict[str, tuple[str, float, Callable[[Any], None]]] = {}
    if len(history) > 1:
        said = "Objective by round, and below it how far constraints are broken and what is left unbalanced"
        found["rounds"] = (said, 4.4, lambda f: _rounds(f, history, result["certificate"]["bound"]))
    names, broken = bands(result, history)
    if len(names) and broken.shape[0] > 1:
        said = "By how much every client's own constraints are broken after each round"
        found["bands"] = (said, 1.5 + 0.26 * len(names), lambda f: _bands(f, names, broken))
    owners = [*dict.fromkeys(row["owner"] for row in tight(result["constraints"], MOST))]
    if owners:
        said = "How far every owner's tightest constraint is from its limit, by model"
        found["kept"] = (said, 1.5 + 0.26 * len(owners), lambda f: _kept(f, result, owners))
    if traded is not None and sum(point["value"] is not None for point in traded["points"]) > 1:
        said = "Objective and rates by the level of the constraint"
        tall = 4.4 if _rated(traded) else 2.8
        found["trade_off"] = (said, tall, lambda f: _trade_off(f, traded))
    return {name: draw(name, said, height, plot) for name, (said, height, plot) in found.items()}


# ---------------------------------------------------------------------------------------- rounds


def _rounds(figure: Any, history: Sequence[Mapping[str, Any]], bound: float | None) -> None:
    top, below = figure.subplots(2, sharex=True)
    x = column(history, "round")
    top.plot(x, column(history, "objective"), color=BLUE, label="objective")
    if bound is not None:
        top.axhline(bound, color=ORANGE, linewidth=1.2, label="proven bound")
    top.legend(loc="best")
    top.set_ylabel("objective")
    for key, name, colour in (("violation", "largest violation", PURPLE), ("residual", "residual", GREEN)):
        y = column(history, key)
        y = np.where(y > 1e-16, y, np.nan)
        if np.isfinite(y).any():
            below.plot(x, y, color=colour, marker="o", markersize=2.5, label=name)
            below.set_yscale("log")
    if below.get_yscale() == "log":
        plain_decades(below.yaxis)
        below.legend(loc="best")
    below.set_ylabel("violation, residual")
    below.set_xlabel("round")


def bands(result: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> tuple[list[str], Array]:
    """Names (n,) and violations (rounds, n) of the clients that break their constraints most over the run."""
    clients = [row["client"] for row in result["clients"]]
    own = {row["owner"] for row in result["constraints"]}
    rows = [row.get(KEY) for row in history]
    if not own & {*clients} or any(row is None or len(row) != len(clients) for row in rows):
        return [], np.zeros((0, 0))
    broken = np.array([[np.nan if v is None else v for v in row] for row in rows], dtype=float)  # type: ignore[union-attr]
    total = np.nansum(np.log10(np.maximum(np.nan_to_num(broken), 1e-9)), 0)
    most = sorted(np.argsort(-total, kind="stable")[:MOST].tolist())
    return [clients[k] for k in most], broken[:, most]


def _bands(figure: Any, names: Sequence[str], broken: Array) -> None:
    """One band a client, neighbouring rounds of one colour joined."""
    axes = figure.subplots()
    at = np.arange(len(names))[::-1].astype(float)
    edges = np.array([top for top, *_ in BROKEN])
    for y, values in zip(at, broken.T, strict=True):
        kind = np.where(np.isfinite(values), np.searchsorted(edges, np.nan_to_num(values)), -1)
        cuts = np.flatnonzero(np.diff(kind)) + 1
        for rounds in np.split(np.arange(len(kind)), cuts):
            k = kind[rounds[0]]
            if k >= 0:
                axes.broken_barh([(rounds[0] + 0.5, len(rounds))], (y - 0.36, 0.72), color=BROKEN[k][2], linewidth=0)
    for _, name, colour in BROKEN:
        axes.barh(0, 0, color=colour, label=name)
    axes.set_yticks(at, [label(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(0.5, len(broken) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("round")
    legend_above(axes, 2)


# ---------------------------------------------------------------------------------------- what is kept


def _kept(figure: Any, result: Mapping[str, Any], owners: Sequence[str]) -> None:
    """Measured minus limit of every owner's tightest constraint: dots right of the line are broken."""
    axes = figure.subplots()
    at = np.arange(len(owners))[::-1].astype(float)
    marks = {
        (result["model"], "training rows"): ("training rows", BLUE, "o", 4),
        (result["model"], "held-out rows"): ("held-out rows", ORANGE, "D", 3),
    }
    first = next((part["model"] for part in result["kept"] if part["model"] != result["model"]), None)
    marks |= {} if first is None else {(first, "training rows"): (first, GREY, "s", 2)}
    for part in result["kept"]:
        over = {owner: [-row["slack"] for row in part["rows"] if row["owner"] == owner] for owner in owners}
        there = [(max(over[owner]), y) for owner, y in zip(owners, at, strict=True) if over[owner]]
        if (mark := marks.get((part["model"], part["set"]))) is not None and there:
            name, colour, marker, above = mark
            axes.scatter(*np.array(there).T, s=26, color=colour, marker=marker, label=name, zorder=above)
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.set_yticks(at, [label(owner) for owner in owners])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(owners) - 0.4)
    axes.set_xlabel("measured − limit (right of the line: broken)")
    legend_above(axes, 2)


# ---------------------------------------------------------------------------------------- over a level


def _rated(traded: Mapping[str, Any]) -> bool:
    return any(point.get("rate") is not None for point in traded["points"])


def _trade_off(figure: Any, traded: Mapping[str, Any]) -> None:
    """Above the optimal objective, its slopes by the prices; below the rates. Crosses where nothing is feasible."""
    rated = _rated(traded)
    panels = figure.subplots(2, sharex=True) if rated else [figure.subplots()]
    points = sorted(traded["points"], key=lambda point: point["level"])
    x = np.array([point["level"] for point in points])
    y = np.array([np.nan if point["value"] is None else point["value"] for point in points])
    top = panels[0]
    top.plot(x, y, color=BLUE, marker="o", markersize=4, label="objective")
    near = 0.4 * np.diff(x, prepend=-np.inf, append=np.inf)  # as far as the neighbours allow
    for k, (point, level, value) in enumerate(zip(points, x, y, strict=True)):
        if np.isfinite(value):
            width = min(near[k], near[k + 1], 0.06 * float(np.ptp(x)))
            way = np.array([-width, width])
            name = "slope by the price" if k == int(np.flatnonzero(np.isfinite(y))[-1]) else None
            top.plot(level + way, value - point["price"] * way, color=ORANGE, linewidth=1.4, label=name, zorder=3)
    lost = x[~np.isfinite(y)]
    if len(lost):
        top.scatter(lost, np.full(len(lost), np.nanmin(y)), marker="x", color="#b0413e", s=36, label="nothing feasible")
    top.set_ylabel("objective")
    if rated:
        for key, name, colour in (("rate", "training rows", BLUE), ("held_rate", "held-out rows", ORANGE)):
            rate = np.array([point.get(key) if point.get(key) is not None else np.nan for point in points], dtype=float)
            rate = np.where(np.isfinite(y), 100 * rate, np.nan)
            if np.isfinite(rate).any():
                panels[1].plot(x, rate, color=colour, marker="o", markersize=3.5, label=name)
        panels[1].set_ylabel("largest rate in %")
        legend_above(panels[1], 2)
    for axes in panels:
        axes.axvline(traded["level"], color=GREY, linewidth=1)
    panels[-1].set_xlabel("level (grey line: this run)")
    legend_above(top, 2)
