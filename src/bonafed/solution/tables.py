"""Tables of dictionaries, as they print and as data frames; the tables of constraints and of
clients.

The table of constraints has limit, measured value, slack and multiplier of each, owner by owner.
The column ``price`` is the multiplier, a shadow price: where everything is convex, raising the
limit by t lowers the optimal objective by at most price * t, and by that to first order. The table
of clients has losses, weights and worst cases.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation
from bonafed.parameters import checking
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.constraints.constraint import Stack
from bonafed.problem.lower_bounds import Multipliers, owners
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.problem.wasserstein.ball import Near, worst_case
from bonafed.text import install, printable, short

Record: TypeAlias = dict[str, Any]
LIBRARIES = ("pandas", "polars", "pyarrow")
ROWS, COLUMNS, CELL = 10, 11, 12  # that are printed, and characters of a cell
SHOWN = 50  # rows in a notebook


class Table(list[Record]):
    """Rows as dictionaries, which print as a table, and below it ``text``, what they say together.

    Examples
    --------
    >>> from bonafed.solution.tables import Table
    >>> Table([{"client": "a", "loss": 0.25}, {"client": 3, "loss": None}])
    client  loss
         a  0.25
         3     –
    """

    text = ""

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
        padded = [[c.rjust(w) for c, w in zip(line, widths, strict=True)] for line in lines]
        more = [f"... {len(self):,} rows; .frame() has all"] if len(self) > ROWS else []
        said = [self.text] if self.text else []
        return "\n".join([*("  ".join(line).rstrip() for line in padded), *more, *said])

    def _repr_html_(self) -> str:
        html, tag = "", "th"
        for line in self._cells(SHOWN, 10**6, 60):
            html += f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in line)}</tr>"
            tag = "td"
        return f"<table>{html}</table>" + f"<p>{escape(self.text)}</p>" * bool(self.text)


class Records(Sequence[Record]):
    """Rows as dictionaries, made of columns when they are asked for: of very many clients these
    take a tenth of the memory.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        self.columns = {name: _held(column) for name, column in columns.items()}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        values = [column[i] for column in self.columns.values()]
        plain = [value.item() if isinstance(value, np.generic) else value for value in values]
        return dict(zip(self.columns, plain, strict=True))

    def __iter__(self) -> Iterator[Record]:
        for start in range(0, len(self), PAGE):
            page = [column[start : start + PAGE] for column in self.columns.values()]
            page = [part.tolist() if isinstance(part, np.ndarray) else part for part in page]
            for row in zip(*page, strict=True):
                yield dict(zip(self.columns, row, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr([*self])


def _held(column: Sequence[Any] | NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """A column as it is kept: one value where all are equal."""
    if isinstance(column, np.ndarray) and len(column) > 1 and (column == column[0]).all():
        return np.broadcast_to(np.array(column[0], column.dtype), column.shape)
    return column


PAGE = 1024  # rows that are made at a time


def _cell(value: object, most: int) -> str:
    if value is None:
        return "–"
    return short(printable(f"{value:.4g}" if isinstance(value, float) else str(value)), most)


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
            " The same rows are dictionaries in solution.clients and"
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


TIGHTEST = ("limit", "measured", "slack", "price")  # of a row, beside its client

SERVER, TOGETHER = "server", "all clients"
MET = 1e-6  # what a constraint may be exceeded by, relative to limits above 1


class Limits(NamedTuple):
    """The limits that constraints ask, as their owners know them.

    Attributes
    ----------
    local : (N, p) of the clients' own constraints, NaN where a client has none
    shared : (p_c,) of the sums over the clients
    """

    local: Array
    shared: Array


def limits_of(problem: Problem, fed: Federation) -> Limits:
    """The limits of a concrete problem, read off the rows."""
    local, coupled = problem.local_constraint, problem.constraint.coupled
    blocks = [fed.block(i) for i in range(fed.n_clients)]
    each = [local.limits(block) for block in blocks]
    return Limits(np.concatenate(each), np.sum([coupled.limits(b)[0] for b in blocks], 0))


def constraint_table(
    problem: Problem,
    clients: Sequence[ClientName],
    limits: Limits,
    certificate: Certificate,
    mu: Multipliers,
    tol: float = MET,
) -> list[dict[str, Any]]:
    """One row for every constraint and owner: owner, constraint, limit, measured, slack, price,
    met.

    ``problem`` is concrete. ``slack`` is limit - measured, for equalities - |measured
    - limit|; a constraint is ``met`` where its slack is at least - tol max(1, |limit|). Constraints
    that a client does not have are left out.
    """
    shared, local, table = problem.constraint, problem.local_constraint, list[dict[str, Any]]()
    own, server = certificate.constraint_values, certificate.server_values
    together, held, coupled = certificate.shared_values, shared.held, shared.coupled
    assert own is not None
    assert server is not None
    assert together is not None
    if held.size:
        table += constraint_rows(SERVER, held, held.limits(shared.block)[0], server, mu.server, tol)
    if coupled.size:
        table += constraint_rows(TOGETHER, coupled, limits.shared, together, mu.shared, tol)
    for i, name in enumerate(clients if local.size else ()):
        table += constraint_rows(name, local, limits.local[i], own[i], mu.local[i], tol)
    return table


def constraint_rows(
    owner: ClientName,
    stack: Stack,
    limits: Array,
    values: Array,
    multipliers: Array,
    tol: float = MET,
) -> list[dict[str, Any]]:
    """The rows of one owner, for the constraints that it has; all arrays are (p,)."""
    return [
        {
            "owner": owner,
            "constraint": word,
            "limit": float(limit) + 0.0,  # and not -0
            "measured": float(limit + value),
            "slack": -abs(float(value)) if equal else -float(value),
            "price": float(multiplier),
            "met": bool((abs(value) if equal else value) <= tol * max(1.0, abs(limit))),
        }
        for word, equal, limit, value, multiplier in zip(
            stack.words, stack.equality, limits, values, multipliers, strict=True
        )
        if np.isfinite(limit) and np.isfinite(value)
    ]


def tightest(table: list[dict[str, Any]]) -> dict[ClientName, dict[str, Any]]:
    """By owner limit, measured value, slack and multiplier of its constraint with the smallest
    slack.
    """
    least: dict[ClientName, dict[str, Any]] = {}
    for row in table:
        if row["owner"] not in least or row["slack"] < least[row["owner"]]["slack"]:
            least[row["owner"]] = row
    return {owner: {key: row.get(key) for key in TIGHTEST} for owner, row in least.items()}


def out_of_bounds(table: list[dict[str, Any]], certificate: Certificate) -> bool:
    """Whether the model is outside the bounds of the regulariser, which have no row."""
    worst = max([-row["slack"] for row in table], default=0.0)
    return certificate.feasibility - max(worst, 0.0) > MET


def broken(table: list[dict[str, Any]], most: int = 5) -> str:
    """The constraints that are not met, the worst first, in words."""
    words = "{owner} ({constraint}: {measured:.4g}, limit {limit:.4g}, missed by {missed:.2g})"
    table = [row | {"missed": -row["slack"]} for row in table]
    worst = sorted((row for row in table if not row["met"]), key=lambda row: row["slack"])
    return named([words.format(**row) for row in worst], most)


def tiny(table: list[dict[str, Any]], most: int = 3) -> str:
    """The limits above 0 that are smaller than `MET` and hold the model, in words."""
    words = "{owner} ({constraint}: limit {limit:.4g})"
    held = (row for row in table if 0 < row["limit"] <= MET and row["slack"] <= MET)
    return named([words.format(**row) for row in held], most)


def gains(
    table: list[dict[str, Any]], change: float = 0.01, most: int = 5, convex: bool = True
) -> list[str]:
    """What relaxing the limits with the largest multipliers would gain, in words; without
    convexity to first order only.
    """
    gain = "by at most" if convex else "by about"
    rows = sorted(table, key=lambda row: -abs(row["price"]))
    return [
        f"Relaxing the limit of {row['owner']} on {row['constraint']} by {change:g} lowers the"
        f" objective {gain} {abs(row['price']) * change:.3g}."
        for row in rows[:most]
        if abs(row["price"]) * change > 1e-12
    ]


def in_conflict(
    problem: Problem, mu: Multipliers, clients: tuple[ClientName, ...], most: int = 8
) -> str:
    """The owners whose constraints the proof of infeasibility combines."""
    return named(owners(problem, mu, clients), most)


def named(texts: Sequence[object], most: int = 5) -> str:
    """The first of several texts, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(map(str, texts[:most])) + more


def client_table(
    problem: Problem,
    fed: Federation | Metadata,
    certificate: Certificate,
    constraints: list[dict[str, Any]] | None = None,
) -> Records:
    """One row for each client: rows, mean loss, worst-case loss, weight q*, and what the adversary
    spends its radius on; with ``constraints`` (of `constraint_table`) also its tightest one.
    """
    labels, features = certificate.client_labels, certificate.client_features
    spent = labels + features
    some = spent > 0
    flips, shift = np.full((2, fed.n_clients), None, object)
    # what the adversary uses of its radius
    part = flips[some] = labels[some] / spent[some]
    shift[some] = features[some] / spent[some]
    # a part below 1e-6 of its spending counts as none
    active = np.zeros(fed.n_clients, np.intp)
    active[some] = np.where(part > 1 - 1e-6, 1, np.where(part < 1e-6, 2, 3))
    table = {
        "client": fed.clients,
        "n": fed.sizes,
        "loss": certificate.client_losses,
        "worst_loss": certificate.client_risks,
        "weight": certificate.weights,
        "radius": sample_radii(problem, fed.n_clients),
        "flips": flips,
        "shift": shift,
        "active": np.array(["none", "labels", "features", "both"], object)[active],
    }
    if constraints:
        least, none = tightest(constraints), dict[str, Any]()
        of_each = [least.get(name, none) for name in fed.clients]
        table |= {key: [of.get(key) for of in of_each] for key in TIGHTEST}
    return Records(table)


@checking
def exposed_rows(
    problem: Problem, fed: Federation, w: Array, client: str, top: int = 10
) -> list[dict[str, Any]]:
    """The rows whose loss the worst distribution at w raises most. They are about single rows, and
    for their owner's eyes.

    Parameters
    ----------
    problem, fed : as stated; only the named client's rows are read
    w : (D,) the model
    client : its name
    top : how many rows

    Returns
    -------
    list of dict
        row (position within the client), loss, worst_loss, added (to the client's risk), flip
        (probability that its label is flipped) and moved (norm of its mean displacement); empty
        without a Wasserstein ball round this client

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> ball = bf.WassersteinBall(radius=0.1)
    >>> problem = bf.Problem(bf.Hinge(), over_samples=ball, regulariser=bf.L2(0.1))
    >>> w = bf.solve(problem, fed).w
    >>> rows = bf.exposed_rows(problem, fed, w, "Old Mill", top=3)
    >>> len(rows), sorted(rows[0])
    (3, ['added', 'flip', 'loss', 'moved', 'row', 'worst_loss'])
    """
    concrete, data = problem.at(fed)
    block = data.block(fed.position(client))
    radius, ball, w = concrete.radii(block), concrete.over_samples, np.asarray(w, float)
    if not radius.any():
        return []
    worst = worst_case(Near(w, block, concrete.loss, concrete.predictor, ball, radius))
    moved = sum((a.weight[0] * a.feature_cost[0] for a in worst.atoms), np.zeros(block.y.shape[1]))
    return [
        {
            "row": int(r),
            "loss": float(worst.plain[0, r]),
            "worst_loss": float(worst.loss[0, r]),
            "added": float(worst.added[0, r]),
            "flip": float(worst.flips[0, r]),
            "moved": float(moved[r]),
        }
        for r in worst.exposed(0, top)
    ]
