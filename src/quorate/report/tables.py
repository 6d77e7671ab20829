"""The numbers of a run as tables of text, the same for terminal, HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HEADS = {
    "client": "Client",
    "n": "Rows",
    "share": "Share of rows",
    "loss": "Mean loss",
    "worst_loss": "Worst case",
    "weight": "Weight q*",
    "radius": "Radius",
    "limit": "Limit",
    "measured": "Measured",
    "slack": "Slack",
    "price": "Price",
    "flips": "Label flips",
    "shift": "Feature shift",
    "active": "Adversary",
    "held_n": "Held out",
    "held_loss": "Held-out loss",
    "held_risk": "Held-out risk",
    "held_accuracy": "Held-out accuracy",
    "held_error": "Held-out error",
    "held_selected": "Selected",
    "held_tpr": "True positives",
    "held_fpr": "False positives",
    "bytes_up": "Sent",
    "bytes_down": "Received",
    "note": "Note",
}
SHARES = (
    *("share", "weight", "flips", "shift", "held_accuracy"),
    *("held_selected", "held_tpr", "held_fpr"),
)
SIZES = ("bytes", "bytes_up", "bytes_down")


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; ``numeric`` says which columns to align right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def markdown(self) -> str:
        """As a Markdown table."""
        lines = [self.columns, tuple("--:" if right else ":--" for right in self.numeric), *self.rows]
        return "\n".join("| " + " | ".join(map(escaped, line)) + " |" for line in lines)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = (0,)) -> Table:
    """A table whose columns are numbers but for the positions in ``text``."""
    numeric = tuple(k not in text for k in range(len(columns)))
    cells = tuple(tuple(map(printable, row)) for row in rows)
    return Table(title, tuple(columns), cells, numeric)


def printable(text: str) -> str:
    """Text without terminal codes and signs that turn the reading direction: names of clients may hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def escaped(cell: str) -> str:
    """Text inside a Markdown table: one line, nothing that opens a cell, a tag or a link."""
    cell = printable(cell)
    for sign in "\\|<>[]`*_":
        cell = cell.replace(sign, "\\" + sign)
    return " ".join(cell.split())


def number(value: Any) -> str:
    """A number to four digits; "–" where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share."""
    return "–" if value is None else f"{100 * value:.1f} %"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return "–"
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"


def shown(key: str, value: Any) -> str:
    """A cell by the name of its column."""
    value = 0.0 if key in ("slack", "price") and value is not None and abs(value) < 1e-9 else value
    return percent(value) if key in SHARES else size(value) if key in SIZES else number(value)


BRIEF = ("client", "n", "loss", "worst_loss", "weight", "flips", "held_accuracy", "held_error")  # fits a terminal


def people(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a client; of pooled rows one for each of their owners."""
    return result.get("owners") or result["clients"]


def clients(result: Mapping[str, Any], heads: Sequence[str] = tuple(HEADS), most: int | None = None) -> Table:
    """One row a client, with how the model does on its held-out rows; ``most`` keeps those of largest worst case."""
    judged = [m for m in result["evaluation"]["measures"] if m["model"] == result["model"]][:1]
    held = {row["client"]: row for m in judged for row in m["clients"]}
    rates = {name: row for m in judged for name, row in m.get("fairness", {}).get("rates", {}).items()}
    rows = [
        row | {f"held_{k}": v for k, v in (held.get(row["client"], {}) | rates.get(row["client"], {})).items()}
        for row in people(result)
    ]
    if most is not None and len(rows) > most:
        rows = sorted(rows, key=lambda row: -row["worst_loss"])[:most]
    keys = [key for key in heads if any(row.get(key) not in (None, "") for row in rows)]
    cells = [[shown(key, row.get(key)) for key in keys] for row in rows]
    text = [k for k, key in enumerate(keys) if key in ("client", "active", "note")]
    named = HEADS | _heads_by_rank(result) | ({"worst_loss": "Objective's loss"} if "constraints" in result else {})
    return table("Clients", [named[key] for key in keys], cells, text)


def _heads_by_rank(result: Mapping[str, Any]) -> dict[str, str]:
    """Headings that say more where losses are weighed by rank."""
    risk = result.get("risk")
    if risk is None:
        return {}
    name = risk["name"].capitalize()
    own = {"worst_loss": name, "held_risk": f"Held-out {risk['name']}"}
    return own | {"weight": "Share of the weight"} if risk["pooled"] else own


KKT = (  # the conditions of optimality of a problem that is not convex
    "distance of the multipliers of the rows from the slopes of the risk",
    "distance of the balancing slope from those of the regulariser",
    "distance of the rank coordinates from those of the model",
)


UNDER_CONSTRAINTS = {
    "feasibility": "largest violation of a constraint",
    "stationarity": "largest entry of the Lagrangian's slope",
    "gradient_scale": "largest entry of the objective's slope at 0, to compare it with",
    "complementarity": "largest product of a price and its slack",
    "infeasible": "proven: every model breaks some constraint by at least this much",
}


def certificate(result: Mapping[str, Any]) -> Table:
    """What is guaranteed, number by number."""
    meaning = {
        "value": "objective of the model",
        "bound": "proven lower bound on the best objective",
        "gap": "objective − bound",
        "relative_gap": "gap relative to the objective",
        "feasibility": "distance of model and weights q* from their sets",
        "complementarity": "how far q* is from the worst weighting for this model",
        "stationarity": "slope left unbalanced by the proof",
        "consensus": "largest distance of a client's copy from the model",
    }
    found = result["certificate"]
    if "owners" in result:  # one client: its weight is 1
        del meaning["complementarity"]
        meaning["feasibility"] = "distance of the model from its set"
    if found["bound"] is None:
        meaning["stationarity"] = "slope left unbalanced"
    if "constraints" in result:
        meaning |= UNDER_CONSTRAINTS
    rows = [
        (key.replace("_", " "), precise(found[key]), text)
        for key, text in meaning.items()
        if found.get(key) is not None
    ]
    rows += [
        (f"KKT residual {k}", precise(value), text)
        for k, (value, text) in enumerate(zip(found.get("residuals") or (), KKT, strict=False), 1)
    ]
    return table("Certificate", ("Number", "Value", "Meaning"), rows, (0, 2))


def precise(value: float) -> str:
    """Nine digits where they mean something: values near zero need three."""
    return f"{value:.9g}" if abs(value) > 1e-3 else f"{value:.3g}"


def messages(result: Mapping[str, Any]) -> Table:
    """What was sent, by message type."""
    arrow = {"up": "clients → server", "down": "server → clients"}
    rows = [
        (
            str(row["message"]),
            arrow.get(row["direction"]) or str(row["direction"]),
            number(row["count"]),
            size(row["bytes"]),
        )
        for row in result["messages"]
    ]
    return table("Messages", ("Message", "Direction", "Count", "Size"), rows, (0, 1))


def measures(result: Mapping[str, Any]) -> list[Table]:
    """Every model on each set of rows that none was trained on."""
    rows = result["evaluation"]["measures"]
    tables = []
    for name in dict.fromkeys(row["set"] for row in rows):
        mine = [row for row in rows if row["set"] == name]
        what = "accuracy" if "accuracy" in mine[0] else "error"
        show = percent if what == "accuracy" else number
        ranked = "risk" in mine[0]
        cells = [
            (
                row["model"].replace("_", " "),
                *([number(row["risk"])] if ranked else []),
                show(row[what]),
                f"{show(row[f'worst_{what}'])} {row[f'worst_{what}_client']}",
                number(row["loss"]),
                *[f"{number(row['worst_loss'])} {row['worst_loss_client']}"] * (not ranked),
            )
            for row in mine
        ]
        head = "Accuracy" if what == "accuracy" else "Mean absolute error"
        risk = [result["risk"]["name"].capitalize()] if ranked else []
        columns = ("Model", *risk, head, "Worst client", "Mean loss", *["Worst client"] * (not ranked))
        tables.append(table(f"{name[0].upper()}{name[1:]} ({mine[0]['n']} rows)", columns, cells))
    return tables


FAIRNESS = ("SPD", "DI", "EOD", "AOD", "FNRD", "TI")


def fairness(result: Mapping[str, Any]) -> list[Table]:
    """The fairness metrics of every model, the largest client against all others, on each set of several clients."""
    rows = [row for row in result["evaluation"]["measures"] if row.get("fairness")]
    tables = []
    for name in dict.fromkeys(row["set"] for row in rows):
        mine = [row for row in rows if row["set"] == name]
        cells = [(row["model"].replace("_", " "), *(number(row["fairness"][key]) for key in FAIRNESS)) for row in mine]
        title = f"Fairness on {name}: {mine[0]['fairness']['privileged']} against all others"
        tables.append(table(title, ("Model", *FAIRNESS), cells))
    return tables


def baselines(result: Mapping[str, Any]) -> Table:
    """The models it is compared with, each with the gap of its own problem."""
    rows = [
        (
            name if name == "unconstrained" else name.upper(),
            number(b["value"]),
            number(b["bound"]),
            number(b["gap"]),
            str(b["rounds"]),
            b["stop"],
        )
        for name, b in result["baselines"].items()
    ]
    return table("Baselines", ("Model", "Own objective", "Bound", "Gap", "Rounds", "Ended"), rows, (0, 5))


def path(tried: Mapping[str, Any]) -> Table:
    """The radii tried, one row a point; the best by the held-out loss of its worst client is marked."""
    points = tried["points"]
    what, show = ("accuracy", percent) if "accuracy" in points[0] else ("mae", number)
    heads = {
        "radius": "Radius",
        "client_radius": "Client radius",
        "worst_loss": "Worst loss",
        "worst_client": "Worst client",
        "loss": "Mean loss",
        f"worst_{what}": "Worst accuracy" if what == "accuracy" else "Worst absolute error",
        what: "Accuracy" if what == "accuracy" else "Mean absolute error",
        "value": "Objective",
        "relative_gap": "Gap",
        "rounds": "Rounds",
        "outcome": "Ended",
    }
    keys = [key for key in heads if any(point[key] is not None for point in points)]
    ways = {f"worst_{what}": show, what: show, "outcome": lambda said: said.replace("_", " ")}
    ways["relative_gap"] = lambda gap: "–" if gap is None else f"{gap:.0e}"
    cells = [[ways.get(key, number)(point[key]) for key in keys] for point in points]
    for k, (row, point) in enumerate(zip(cells, points, strict=True)):
        row[0] += " ← best" * (k == tried["best"])
        row[-1] += ", trivial" * point["trivial"]
    text = [k for k, key in enumerate(keys) if key in ("worst_client", "outcome")]
    return table("Radii tried", [heads[key] for key in keys], cells, (0, *text))


def versions(result: Mapping[str, Any]) -> Table:
    """What the numbers depend on."""
    return table("Versions", ("Part", "Version"), [(k, str(v)) for k, v in result["versions"].items()], (0, 1))


def compared(runs: Mapping[str, Mapping[str, Any]]) -> Table:
    """Several runs side by side, one column each."""
    lines: list[tuple[str, list[str]]] = []

    def line(name: str, of: Any) -> None:
        lines.append((name, [number(of(result)) for result in runs.values()]))

    for key in ("value", "bound", "gap", "relative_gap"):
        line(key.replace("_", " "), lambda r, key=key: (r["certificate"] or {}).get(key))  # None: it did not travel
    if any("privacy" in result for result in runs.values()):
        line("total epsilon", lambda r: r.get("privacy", {}).get("epsilon"))
        line("delta", lambda r: r.get("privacy", {}).get("delta"))
    if any("clock" in result for result in runs.values()):
        line("virtual seconds", lambda r: r.get("clock", {}).get("time"))
        line("answers", lambda r: r.get("clock", {}).get("answers"))
    line("rounds", lambda r: r["rounds"])
    line("ended", lambda r: r["outcome"]["stop"])
    line("worst client's worst-case loss", lambda r: max((row.get("worst_loss") for row in people(r)), key=_or_least))
    for name in dict.fromkeys(m["set"] for r in runs.values() for m in r["evaluation"]["measures"]):
        for key in ("risk", "accuracy", "worst_accuracy", "error", "worst_error", "loss", "worst_loss"):
            values = [_measure(r, name, key) for r in runs.values()]
            if any(v is not None for v in values):
                lines.append(
                    (f"{name}: {key.replace('_', ' ').replace('worst', 'worst client')}", [*map(number, values)])
                )
    return table("Runs", ("", *runs), [(name, *cells) for name, cells in lines])


def _or_least(value: float | None) -> float:
    return -math.inf if value is None else value


def _measure(result: Mapping[str, Any], name: str, key: str) -> Any:
    found = [m for m in result["evaluation"]["measures"] if m["set"] == name and m["model"] == result["model"]]
    return found[0].get(key) if found else None


def exposed(client: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of one client that the adversary makes most of; for their owner."""
    cells = [
        (
            str(row["row"]),
            *(number(row[k]) for k in ("loss", "worst_loss", "added")),
            percent(row["flip"]),
            number(row["moved"]),
        )
        for row in rows
    ]
    heads = ("Row (from 0)", "Loss", "Worst case", "Added to the risk", "Label flipped", "Features moved by")
    return table(f"Rows of {client} that the adversary makes most of", heads, cells, ())


def heaviest(client: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of one client that weigh most by their rank; for their owner."""
    cells = [(str(row["row"]), number(row["loss"]), number(row["weight"])) for row in rows]
    return table(f"Rows of {client} that weigh most", ("Row (from 0)", "Loss", "Weight (mean: 1)"), cells, ())
