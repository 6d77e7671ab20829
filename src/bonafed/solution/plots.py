"""Pictures of a run: how it converged, its clients, and the worst weights over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from bonafed import drawing as draw
from bonafed.certificates.certificate import Certificate
from bonafed.solution.tables import Record

Kind: TypeAlias = Literal["convergence", "clients", "weights"]
MOST = 20  # clients that are drawn; the table has all
WIDTH, HEIGHT = 4.6, 3.4  # of a panel, in inches
UNJUDGED = "no round of this run was judged"
RESIDUALS = ("residual", "stationarity", "consensus", "primal", "moved")


def plotted(
    kind: Kind | None,
    axes: draw.Axes | Sequence[draw.Axes] | None,
    history: Sequence[Record],
    clients: Sequence[Record],
    certificate: Certificate | None,
    risk: str,
) -> Any:
    """Draw one kind or all; returns the axes. ``risk`` says what a client's risk is."""
    drawings: dict[str, Callable[[draw.Axes], None]] = {
        "convergence": lambda panel: _convergence(panel, history, certificate),
        "clients": lambda panel: _clients(panel, clients, risk),
        "weights": lambda panel: _weights(panel, clients),
    }
    kinds = [*drawings] if kind is None else [kind]
    with draw.styled():
        given: Any = draw.new_axes(len(kinds), WIDTH, HEIGHT) if axes is None else axes
        panels: list[draw.Axes] = [given] if hasattr(given, "plot") else [*np.ravel(given)]
        if len(panels) != len(kinds):
            raise ValueError(
                f"axes must be {len(kinds)} for {', '.join(kinds)}, got {len(panels)}: for one give"
                " its kind, such as solution.plot('clients', axes=axes)."
            )
        for name, panel in zip(kinds, panels, strict=True):
            drawings[name](panel)
    return panels if kind is None else panels[0]


def _titled(axes: draw.Axes, title: str, lines: int = 1) -> None:
    """A title with room for a legend of so many lines below it."""
    axes.set_title(title, loc="left", pad=8 + 15 * lines, fontweight="bold", fontsize=10.5)


def _convergence(axes: draw.Axes, history: Sequence[Record], proof: Certificate | None) -> None:
    """The gap of every round on a logarithmic axis; where no round has one, how far the run was
    from rest, or its objective.
    """
    rounds, gap, noise = (draw.column(history, key) for key in ("round", "gap", "noise"))
    bound = None if proof is None else proof.bound
    if not (gap > 0).any() and bound is not None:
        gap = draw.objectives(history) - bound
    residuals = {name: draw.column(history, name) for name in RESIDUALS}
    some = [name for name, values in residuals.items() if (values > 0).any()]
    noisy = proof is None and bool(np.isfinite(noise).any())
    _titled(axes, "Noise" if noisy else "Convergence")
    if noisy:
        axes.plot(rounds, noise, color=draw.GREEN, marker="o", markersize=2.5)
        axes.set_ylabel("scale of the noise")
    elif (gap > 0).any():
        draw.line_above_zero(axes, rounds, gap, "gap to the lower bound")
        proved = None if proof is None else proof.gap
        if proved is not None and proved > 0:
            label = f"proved at the end: {proved:.1e}"
            axes.axhline(proved, color=draw.GREY, linestyle="--", label=label)
            draw.legend(axes)
    elif some:
        draw.line_above_zero(axes, rounds, residuals[some[0]], some[0])
    elif not np.isfinite(draw.objectives(history)).any():
        axes.text(0.5, 0.5, UNJUDGED, transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
    else:
        axes.plot(rounds, draw.objectives(history), color=draw.BLUE, marker="o", markersize=2.5)
        axes.set_ylabel("objective")
    axes.set_xlabel("round")
    draw.whole_numbers(axes.xaxis)


def _largest(clients: Sequence[Record], key: str) -> tuple[list[Record], str]:
    """The clients that are drawn, and which they are: all in their order, or those with the largest
    values.
    """
    rows = [row for row in clients if row.get(key) is not None]
    if len(rows) <= MOST:
        return rows, ""
    largest = sorted(rows, key=lambda row: -row[key])[:MOST]
    return largest, f" ({MOST} of {len(rows):,}, the largest)"


def _clients(axes: draw.Axes, clients: Sequence[Record], risk: str) -> None:
    """Mean loss of every client, and its risk where that is another number; of a private solution
    that was read from a file the public rows.
    """
    known = any("worst_loss" in row for row in clients)
    rows, which = _largest(clients, "worst_loss" if known else "n")
    places = draw.named_rows(axes, [str(row["client"]) for row in rows])
    _titled(axes, f"Clients{which}")
    if not known:
        axes.barh(places, [row["n"] for row in rows], 0.5, color=draw.BLUE)
        axes.set_xlabel("rows as declared")
        return
    bars = [("loss", "mean loss", draw.BLUE)]
    loss, worst = (draw.column(rows, key) for key in ("loss", "worst_loss"))
    if not np.allclose(loss, worst, rtol=1e-9):
        bars.append(("worst_loss", risk, draw.ORANGE))
    height = 0.68 / len(bars)
    for k, (key, name, colour) in enumerate(bars):
        above = (len(bars) - 1 - 2 * k) * height / 2
        axes.barh(places + above, [row[key] for row in rows], height, color=colour, label=name)
    axes.set_xlabel("loss")
    _titled(axes, f"Clients{which}", draw.legend(axes))


def _weights(axes: draw.Axes, clients: Sequence[Record]) -> None:
    """The weight of every client in the risk over clients at the model."""
    rows, which = _largest(clients, "weight")
    places = draw.named_rows(axes, [str(row["client"]) for row in rows])
    _titled(axes, f"Client weights{which}")
    axes.barh(places, [100 * row["weight"] for row in rows], 0.5, color=draw.PURPLE)
    axes.set_xlabel("weight in %")
    if not rows:
        axes.text(0.5, 0.5, "for the owners only", ha="center", transform=axes.transAxes)
