"""Tables of dictionaries, as they print and as data frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from bonafed import drawing
from bonafed.certificates.certificate import Certificate
from bonafed.text import install, printable, short

if TYPE_CHECKING:
    from bonafed.drawing import Axes


Record: TypeAlias = dict[str, Any]
LIBRARIES = ("pandas", "polars", "pyarrow")
ROWS, COLUMNS, CELL = 10, 11, 12  # that are printed, and characters of a cell
SHOWN = 50  # rows in a notebook


class Table(list[Record]):
    """Rows as dictionaries, which print as a table.

    Examples
    --------
    >>> from bonafed.solution.frames import Table
    >>> Table([{"client": "a", "loss": 0.25}, {"client": 3, "loss": None}])
    client  loss
         a  0.25
         3     –
    """

    def frame(self, backend: str | None = None) -> Any:
        """The rows as a data frame, see `frame`."""
        return frame(self, backend)

    def _cells(self, rows: int, columns: int, most: int) -> list[list[str]]:
        """Heads and rows as text."""
        heads = list(dict.fromkeys(key for row in self for key in row))[:columns]
        return [heads, *([_cell(row.get(key), most) for key in heads] for row in self[:rows])]

    def __repr__(self) -> str:
        lines = self._cells(ROWS, COLUMNS, CELL)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        more = [f"... {len(self):,} rows; .frame() has all"] if len(self) > ROWS else []
        return "\n".join([*text, *more])

    def _repr_html_(self) -> str:
        tags = ["th", *["td"] * SHOWN]
        rows = [
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)
            for tag, line in zip(tags, self._cells(SHOWN, 10**6, 60), strict=False)
        ]
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _cell(value: object, most: int) -> str:
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return short(printable(text), most)


def frame(rows: Sequence[Record], backend: str | None = None) -> Any:
    """The rows as a data frame, one column for each key.

    Parameters
    ----------
    backend : "pandas", "polars" or "pyarrow"; None: the first of them that is installed

    Raises
    ------
    ImportError
        where none is installed, or not the one asked for
    """
    import narwhals as nw

    if backend is not None and backend not in LIBRARIES:
        raise ValueError(f"backend must be one of {', '.join(LIBRARIES)}, got {backend!r}.")
    there = [name for name in ([backend] if backend else LIBRARIES) if find_spec(name)]
    if not there:
        raise ImportError(
            f"a data frame needs {backend or 'pandas, polars or pyarrow'}: {install('frames')}."
            " The same rows are a list of dictionaries in solution.clients and"
            " solution.history."
        )
    library: Any = there[0]
    return nw.from_dict(columns(rows, mixed=library == "pandas"), backend=library).to_native()


def columns(rows: Sequence[Record], mixed: bool) -> dict[str, list[Any]]:
    """The columns by name; None where a row has no value. ``mixed``: whether a column may hold both
    texts and numbers, as the names of clients and "all clients".
    """
    names = dict.fromkeys(key for row in rows for key in row)
    return {name: _column([row.get(name) for row in rows], mixed) for name in names}


def _column(values: list[Any], mixed: bool) -> list[Any]:
    """A column of one type, unless it may be mixed: of texts, where there are texts and others; an
    empty text is a missing value beside numbers.
    """
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) + values.count(None) == len(values):
        return values
    if any(texts):
        return values if mixed else [None if v is None else str(v) for v in values]
    return [None if isinstance(value, str) else value for value in values]


# Pictures of a run: how it converged, its clients, and the worst weights over them.

Kind: TypeAlias = Literal["convergence", "clients", "weights"]
MOST = 20  # clients that are drawn; the table has all
WIDTH, HEIGHT = 4.6, 3.4  # of a panel, in inches
UNJUDGED = "no round of this run was judged"
RESIDUALS = ("residual", "stationarity", "consensus", "primal", "moved")


def plotted(
    kind: Kind | None,
    axes: Axes | Sequence[Axes] | None,
    history: Sequence[Record],
    clients: Sequence[Record],
    certificate: Certificate | None,
    risk: str,
) -> Any:
    """Draw one kind or all; returns the axes. ``risk`` says what a client's risk is."""
    drawings: dict[str, Callable[[Axes], None]] = {
        "convergence": lambda panel: _convergence(panel, history, certificate),
        "clients": lambda panel: _clients(panel, clients, risk),
        "weights": lambda panel: _weights(panel, clients),
    }
    if kind is not None and kind not in drawings:
        raise ValueError(f"kind must be one of {', '.join(drawings)} or None, got {kind!r}.")
    kinds = [*drawings] if kind is None else [kind]
    with drawing.styled():
        given: Any = drawing.new_axes(len(kinds), WIDTH, HEIGHT) if axes is None else axes
        panels: list[Axes] = [given] if hasattr(given, "plot") else [*np.ravel(given)]
        if len(panels) != len(kinds):
            raise ValueError(
                f"axes must be {len(kinds)} for {', '.join(kinds)}, got {len(panels)}: for one give"
                " its kind, such as solution.plot('clients', axes=axes)."
            )
        for name, panel in zip(kinds, panels, strict=True):
            drawings[name](panel)
    return panels if kind is None else panels[0]


def _titled(axes: Axes, title: str, lines: int = 1) -> None:
    """A title with room for a legend of so many lines below it."""
    axes.set_title(title, loc="left", pad=8 + 15 * lines, fontweight="bold", fontsize=10.5)


def _convergence(axes: Axes, history: Sequence[Record], certificate: Certificate | None) -> None:
    """The gap of every round on a logarithmic axis; where no round has one, how far the run was
    from rest, or its objective.
    """
    rounds = drawing.column(history, "round")
    gap = drawing.column(history, "gap")
    bound = None if certificate is None else certificate.bound
    if not (gap > 0).any() and bound is not None:
        gap = drawing.objectives(history) - bound
    residuals = {name: drawing.column(history, name) for name in RESIDUALS}
    some = [name for name, values in residuals.items() if (values > 0).any()]
    noisy = certificate is None and bool(np.isfinite(drawing.column(history, "noise")).any())
    _titled(axes, "Noise" if noisy else "Convergence")
    if noisy:
        axes.plot(
            rounds,
            drawing.column(history, "noise"),
            color=drawing.GREEN,
            marker="o",
            markersize=2.5,
        )
        axes.set_ylabel("scale of the noise")
    elif (gap > 0).any():
        drawing.line_above_zero(axes, rounds, gap, "gap to the lower bound")
        proved = None if certificate is None else certificate.gap
        if proved is not None and proved > 0:
            axes.axhline(
                proved, color=drawing.GREY, linestyle="--", label=f"proved at the end: {proved:.1e}"
            )
            drawing.legend(axes)
    elif some:
        drawing.line_above_zero(axes, rounds, residuals[some[0]], some[0])
    elif not np.isfinite(drawing.objectives(history)).any():
        axes.text(0.5, 0.5, UNJUDGED, transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
    else:
        axes.plot(
            rounds, drawing.objectives(history), color=drawing.BLUE, marker="o", markersize=2.5
        )
        axes.set_ylabel("objective")
    axes.set_xlabel("round")
    drawing.whole_numbers(axes.xaxis)


def _largest(clients: Sequence[Record], key: str) -> tuple[list[Record], str]:
    """The clients that are drawn, and which they are: all in their order, or those with the largest
    values.
    """
    rows = [row for row in clients if row.get(key) is not None]
    if len(rows) <= MOST:
        return rows, ""
    largest = sorted(rows, key=lambda row: -row[key])[:MOST]
    return largest, f" ({MOST} of {len(rows):,}, the largest)"


def _clients(axes: Axes, clients: Sequence[Record], risk: str) -> None:
    """Mean loss of every client, and its risk where that is another number; of a private solution
    that was read from a file the public rows.
    """
    known = any("worst_loss" in row for row in clients)
    rows, which = _largest(clients, "worst_loss" if known else "n")
    places = drawing.named_rows(axes, [str(row["client"]) for row in rows])
    _titled(axes, f"Clients{which}")
    if not known:
        axes.barh(places, [row["n"] for row in rows], 0.5, color=drawing.BLUE)
        axes.set_xlabel("rows as declared")
        return
    bars = [("loss", "mean loss", drawing.BLUE)]
    loss, worst = (drawing.column(rows, key) for key in ("loss", "worst_loss"))
    if not np.allclose(loss, worst, rtol=1e-9):
        bars.append(("worst_loss", risk, drawing.ORANGE))
    height = 0.68 / len(bars)
    for k, (key, name, colour) in enumerate(bars):
        above = (len(bars) - 1 - 2 * k) * height / 2
        axes.barh(places + above, [row[key] for row in rows], height, color=colour, label=name)
    axes.set_xlabel("loss")
    _titled(axes, f"Clients{which}", drawing.legend(axes))


def _weights(axes: Axes, clients: Sequence[Record]) -> None:
    """The weight of every client in the risk over clients at the model."""
    rows, which = _largest(clients, "weight")
    places = drawing.named_rows(axes, [str(row["client"]) for row in rows])
    _titled(axes, f"Client weights{which}")
    axes.barh(places, [100 * row["weight"] for row in rows], 0.5, color=drawing.PURPLE)
    axes.set_xlabel("weight in %")
    if not rows:
        axes.text(0.5, 0.5, "for the owners only", ha="center", transform=axes.transAxes)
