"""A small builder of conic programs over Clarabel.

    minimise  q'x + x'Px / 2    subject to    M_k x + c_k in K_k

K is {0}, the nonnegative orthant, {(t, v): t >= ||v||_2}, power cones or exponential cones. A
variable is the array of its positions in x, so indexing selects entries: ``r = model.variable(5)``,
``(r[[0, 0, 3]], 1.0)`` is the vector (r_0, r_0, r_3). Rows are a list of terms and constants that
are added up:

    model.nonneg([(r[k], 1.0), (w, -gradients), -offsets])
            # r_k(j) - <gradients_j, w> - offsets_j >= 0

In a term (index, coefficient) a coefficient with two axes is a matrix applied to the variable, and
may be sparse; otherwise it multiplies elementwise (a variable of length one, and a single row, are
repeated).
Duals: z in K*, with the Lagrangian objective - z'(Mx + c).
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import clarabel as _clarabel
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Array, Curves, Entries, Index

clarabel: Any = _clarabel  # the compiled classes have no types

Rows = Sequence[Any]  # (index, coefficient) terms and constants
# The work of Clarabel in an iteration grows with the sum over rows of their squared entry counts;
# that of the dense method, where they are many, with the cube of the number of variables, by BLAS.
MANY, BLAS = 200, 1 / 60
FILLED = 16  # entries in a column of a matrix, from which on its factor is nearly full
REMEDY = 50  # times Clarabel's work, up to which the dense method makes a coarse solution finer
LARGEST = 3000  # variables of a program that Clarabel fails at, up to which the dense method does
FINEST = 1e-11  # that Clarabel is asked for
P_OF = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


class Status(enum.Enum):
    """How a conic solve ended."""

    SOLVED = "solved"
    ALMOST_SOLVED = "almost solved"  # to Clarabel's reduced accuracy only
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"  # iteration limit, no progress, numerical trouble


STATUS = {"Solved": Status.SOLVED, "AlmostSolved": Status.ALMOST_SOLVED}
STATUS |= dict.fromkeys(("PrimalInfeasible", "AlmostPrimalInfeasible"), Status.INFEASIBLE)
STATUS |= dict.fromkeys(("DualInfeasible", "AlmostDualInfeasible"), Status.UNBOUNDED)


@dataclass(frozen=True)
class ConicSolution:
    """The solution of a conic program: x, the duals z, both objective values and the status.

    ``z[handle]`` holds the duals of the constraint that returned ``handle``. ``error`` is the
    largest of the relative gap and the residuals.
    """

    x: Array
    z: Array
    value: float
    dual_value: float
    status: Status
    iterations: int
    text: str
    error: float

    def checked(self, what: str, almost: bool = True) -> "ConicSolution":
        """The solution itself if it is solved, or ``almost`` solved; else ``ArithmeticError``."""
        if self.status is Status.SOLVED or (almost and self.status is Status.ALMOST_SOLVED):
            return self
        raise ArithmeticError(
            f"{what}: the conic solver ended with {self.text!r} after {self.iterations} iterations."
            " Check the scale of the data (features of very different size?) or relax tol."
        )


@dataclass
class Model:
    """A conic program under construction; the module's docstring defines terms and rows."""

    size: int = 0
    height: int = 0
    offset: float = 0.0
    entries: list[Entries] = field(default_factory=list)
    constants: list[Array] = field(default_factory=list)
    cones: list[Any] = field(default_factory=list)
    costs: list[tuple[Index, Array]] = field(default_factory=list)
    curves: list[tuple[Index, Array]] = field(default_factory=list)
    origins: list[tuple[Index, Array]] = field(default_factory=list)
    likely: Array = field(default_factory=lambda: np.zeros(0))  # multipliers, NaN if not known

    def variable(self, n: int = 1) -> Index:
        """Add n new free variables."""
        self.size += n
        return np.arange(self.size - n, self.size)

    def near(self, index: Index, values: ArrayLike) -> None:
        """Solve for x[index] - values: rounding is then relative to the difference from a point
        that is known to be near.
        """
        self.origins.append((index, np.broadcast_to(np.asarray(values, float), index.shape)))

    # -- objective ---------------------------------------------------------------------------------

    def linear(self, index: Index, q: ArrayLike) -> None:
        """Add <q, x[index]> to the objective."""
        self.costs.append((index, np.broadcast_to(np.asarray(q, float), index.shape)))

    def quadratic(self, index: Index, P: ArrayLike) -> None:
        """Add x[index]' P x[index] / 2 to the objective.

        P is a number, a diagonal, or a symmetric positive semidefinite matrix.
        """
        part = np.asarray(P, float)
        self.curves.append((index, part if part.ndim == 2 else _repeated(part, len(index))))

    # -- constraints -------------------------------------------------------------------------------

    def _add(self, rows: Rows, start: int, stride: int = 1, height: int | None = None) -> int:
        """Write Mx + c into rows start, start + stride, ...; return how many."""
        height = height_of(rows) if height is None else height
        at = start + stride * np.arange(height)
        constant = np.zeros(height)
        for term in rows:
            if isinstance(term, tuple):
                self.entries.append(_entries(at, *term))
            else:
                constant = constant + term
        self.constants.append(constant)
        return height

    def _rows(self, rows: Rows, cone: str) -> slice:
        height = self._add(rows, self.height)
        self.cones.append(getattr(clarabel, cone)(height))
        return self._close(height)

    def _close(self, height: int) -> slice:
        self.height += height
        return slice(self.height - height, self.height)

    def zero(self, rows: Rows) -> slice:
        """Require rows = 0."""
        return self._rows(rows, "ZeroConeT")

    def nonneg(self, rows: Rows) -> slice:
        """Require rows >= 0."""
        return self._rows(rows, "NonnegativeConeT")

    def soc(self, head: Rows, body: Rows) -> slice:
        """Require ``head >= ||body||_2``, one second-order cone."""
        self._add(head, self.height, height=1)
        height = 1 + self._add(body, self.height + 1)
        self.cones.append(clarabel.SecondOrderConeT(height))
        return self._close(height)

    def exponential(self, x: Rows, y: Rows, z: Rows) -> slice:
        """Require ``y_i exp(x_i / y_i) <= z_i`` for every i; duals are rows of three."""
        return self._each((x, y, z), clarabel.ExponentialConeT())

    def power(self, x: Rows, y: Rows, z: Rows, alpha: float) -> slice:
        """Require ``x_i^alpha y_i^(1 - alpha) >= |z_i|`` and x, y >= 0; duals are rows of three."""
        return self._each((x, y, z), clarabel.PowerConeT(alpha))

    def parabola(self, x: Rows, a: Rows) -> slice:
        """Require ``x_i^2 / 2 <= a_i`` for every i; duals are rows of three.

        Each is the cone ||(x_i, a_i - 1/2)|| <= a_i + 1/2.
        """
        return self._each(([*a, 0.5], x, [*a, -0.5]), clarabel.SecondOrderConeT(3))

    def lengths(self, heads: Rows, *parts: Rows) -> slice:
        """Require ``head_i >= ||(row i of every part)||_2`` for every i; so are the duals' rows."""
        return self._each((heads, *parts), clarabel.SecondOrderConeT(1 + len(parts)))

    def positive(self, costs: ArrayLike) -> Index:
        """Add new variables >= 0 with these costs, a number or one for each."""
        index = self.variable(np.size(costs))
        self.linear(index, costs)
        self.nonneg([(index, 1.0)])
        return index

    def _each(self, parts: Sequence[Rows], cone: object) -> slice:
        """A cone for every i, of row i of every part."""
        m = max(height_of(rows) for rows in parts)
        first = len(self.constants)
        for k, rows in enumerate(parts):
            self._add(rows, self.height + k, len(parts), m)
        self.constants[first:] = [np.stack(self.constants[first:], 1).ravel()]
        self.cones += [cone] * m
        return self._close(len(parts) * m)

    # -- shapes that recur -------------------------------------------------------------------------

    def norm_at_most(self, rows: Rows, bound: Rows, p: float) -> None:
        """Require ``||rows||_p <= bound`` (one row) for any p in [1, inf].

        1 < p < inf with p != 2 uses power cones.
        """
        if p == 2:
            self.soc(bound, rows)
            return
        m = height_of(rows)
        if p == math.inf:
            for sign in (1.0, -1.0):
                self.nonneg([*bound, *scaled(rows, sign)])
            return
        part = self.variable(m)  # p = 1: part >= |rows|; else part^(1/p) bound^(1 - 1/p) >= |rows|
        if p == 1:
            for sign in (1.0, -1.0):
                self.nonneg([(part, 1.0), *scaled(rows, sign)])
        else:
            self.power([(part, 1.0)], bound, rows, 1 / p)
        self.nonneg([*bound, (part, -np.ones((1, m)))])

    # -- solving -----------------------------------------------------------------------------------

    def solve(self, tol: float = 1e-9, max_iterations: int = 200) -> ConicSolution:
        """Solve to relative gap and residuals ``tol``; the status says whether it succeeded.

        A failed solve does not raise: read ``status`` or call ``checked``.

        Raises
        ------
        ValueError
            when the data hold NaN or an infinity
        """
        from scipy.sparse import csc_array

        curves, q, entries, c, origin, offset = self._data()
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads, settings.max_iter = False, 1, max_iterations
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        both = (_upper_half(curves), self.size), (entries, self.height)
        P, A = (csc_array((e[2], e[:2]), shape=(height, self.size)) for e, height in both)
        raw = clarabel.DefaultSolver(P, q, -A, c, self.cones, settings).solve()
        value, dual, text = raw.obj_val, raw.obj_val_dual, str(raw.status)
        size = max(1.0, min(abs(value), abs(dual)))
        error = max(abs(value - dual) / size, raw.r_prim, raw.r_dual)
        point, values = (np.array(raw.x) + origin, np.array(raw.z)), (value + offset, dual + offset)
        status = STATUS.get(text, Status.FAILED)
        return ConicSolution(*point, *values, status, raw.iterations, text, error)

    def solve_fast(self, tol: float = 1e-9) -> ConicSolution:
        """``solve`` or ``solve_dense``, whichever is expected to be faster: the second, where there
        are many clients; ``solve_dense`` also where ``solve`` fails, or stays short of ``tol`` and
        the other is not too much work.
        """
        if self.size < MANY:
            return self.solve_dense(tol)
        if (clients := self._clients()) is not None:
            return self.solve_dense(tol, clients)
        row, _, value = _joined(self.entries)
        squares = float((np.bincount(row[value != 0]).astype(float) ** 2).sum())
        # a column of a dense objective is as long as its row of the upper half
        squares += sum((_factored(P) / P.ndim) ** 2 for _, P in self.curves) / self.size
        share = squares / (BLAS * self.size**3)
        if share > 1:
            return self.solve_dense(tol)
        # the last step of the dense method is some hundred times as accurate as what is asked of it
        solution = self.solve(max(tol / 100, min(tol, FINEST)))
        short = solution.status is Status.ALMOST_SOLVED and solution.error > _enough(tol)
        if solution.status is Status.FAILED:
            return self.solve_dense(tol) if self.size <= LARGEST else self.solve(tol)
        return self.solve_dense(tol) if short and REMEDY * share > 1 else solution

    def _orders(self) -> list[slice] | None:
        """The rows of every second-order cone; None where there are cones of other kinds."""
        kinds = clarabel.NonnegativeConeT, clarabel.SecondOrderConeT
        if not all(isinstance(cone, kinds) for cone in self.cones):
            return None
        both = zip(self.cones, np.cumsum([cone.dim for cone in self.cones]).tolist(), strict=True)
        return [slice(end - c.dim, end) for c, end in both if isinstance(c, kinds[1])]

    def _clients(self) -> tuple[Index, Index] | None:
        """Which variables belong to one client each, where most do."""
        from bonafed.solvers.conic.dense import blocks_of

        if (orders := self._orders()) is None:
            return None
        curved = np.concatenate([index for index, _ in self.curves] or [np.zeros(0, np.intp)])
        return blocks_of(_joined(self.entries), self.size, self.height, curved, orders)

    def solve_dense(
        self, tol: float = 1e-9, clients: tuple[Index, Index] | None = None
    ) -> ConicSolution:
        """``solve`` by the interior point for dense programs and those of many ``clients``, where
        the cones are its own and it succeeds.
        """
        if (orders := self._orders()) is None:
            return self.solve(tol)
        # its compiled parts take half a second to load, which most processes do not need
        from bonafed.solvers.conic.dense import solve_dense

        curves, q, entries, c, origin, offset = self._data()
        near = None
        if sum(len(index) for index, _ in self.origins) == self.size:
            near = self.likely if len(self.likely) else np.full(self.height, math.nan)
        solved = solve_dense(curves, q, entries, c, orders, tol, near, clients)
        if solved is None or solved.error > _enough(tol):
            return self.solve(tol)
        x, z = solved.x, solved.z
        curved = float(x @ _pull(curves, x)) / 2
        values = float(q @ x) + curved + offset, -float(c @ z) - curved + offset
        status = Status.SOLVED if solved.error <= tol else Status.ALMOST_SOLVED
        if status is Status.ALMOST_SOLVED and (other := self.solve(tol)).error < solved.error:
            return other  # where one ends just short, rounding decides by how much
        ended = status, solved.iterations, status.value, solved.error
        return ConicSolution(x + origin, z, *values, *ended)

    def _data(self) -> tuple[Curves, Array, Entries, Array, Array, float]:
        """The parts of P and the entries of M, which add up, q and c, the point from which x is
        counted, and the objective there.
        """
        q = np.zeros(self.size)
        for index, cost in self.costs:
            np.add.at(q, index, cost)
        curves, entries = self.curves, _joined(self.entries)
        c, offset = np.concatenate([*self.constants, np.zeros(0)]), self.offset
        origin = np.zeros(self.size)
        for index, values in self.origins:
            origin[index] = values
        if origin.any():
            pull = _pull(curves, origin)
            offset += float(q @ origin + origin @ pull / 2)
            row, col, value = entries
            q, c = q + pull, c + np.bincount(row, value * origin[col], self.height)
        parts = q, entries[2], c, *(P for _, P in curves)
        if not all(np.isfinite(part).all() for part in parts):
            raise ValueError(
                "the conic program holds NaN or infinite numbers: check the data and the penalties."
            )
        return curves, q, entries, c, origin, offset


def _pull(curves: Curves, x: Array) -> Array:
    """P x."""
    out = np.zeros(len(x))
    for index, P in curves:
        np.add.at(out, index, P @ x[index] if P.ndim == 2 else P * x[index])
    return out


def _upper_half(curves: Curves) -> Entries:
    """The entries of P on and above the diagonal, which add up."""
    entries = list[Entries]()
    for index, P in curves:
        row, col = np.triu_indices(len(index)) if P.ndim == 2 else [np.arange(len(index))] * 2
        first, second = index[row], index[col]
        values = P[row, col] if P.ndim == 2 else P
        entries.append((np.minimum(first, second), np.maximum(first, second), values))
    return _joined(entries)


def _enough(tol: float) -> float:
    """The error up to which a program that is not solved to ``tol`` is taken as it is: another
    method would take longer, and is rarely better.
    """
    return max(100 * tol, 1e-8)


def height_of(rows: Rows) -> int:
    """How many rows are written: the largest height or length among the terms and constants."""
    sizes = [1]
    for term in rows:
        if isinstance(term, tuple):
            index, coefficient = term
            shape = coefficient.shape if hasattr(coefficient, "tocoo") else np.shape(coefficient)
            sizes.append(shape[0] if len(shape) == 2 else max(len(index), *shape, 1))
        else:
            sizes.append(np.size(term))
    return max(sizes)


def _entries(at: Index, index: Index, coefficient: Any) -> tuple[Index, Index, Array]:
    if hasattr(coefficient, "tocoo"):
        cells = coefficient.tocoo()
        return at[cells.row], index[cells.col], cells.data
    values = np.asarray(coefficient, float)
    if values.ndim == 2:
        shape = len(at), len(index)
        if values.shape not in (shape, (1, shape[1])):
            raise ValueError(f"a term's matrix has shape {values.shape}, needed {shape}.")
        values = np.broadcast_to(values, shape).ravel()
        return np.repeat(at, shape[1]), np.tile(index, shape[0]), values
    return at, _repeated(index, len(at)), _repeated(values, len(at))


def _repeated(values: NDArray[Any], height: int) -> NDArray[Any]:
    """As many values as rows, of one for all or one for each."""
    # ``np.broadcast_to`` takes ten times as long, and programs have many small terms
    if values.shape == (height,):
        return values
    return values.repeat(height) if values.size == 1 else np.broadcast_to(values, (height,))


def scaled(rows: Rows, factor: float | Array) -> list[Any]:
    """Rows times a number, or row by row times a column (m, 1) where every term is a matrix."""
    times = lambda t: factor * np.asarray(t)  # noqa: E731
    return [(t[0], times(t[1])) if isinstance(t, tuple) else times(t) for t in rows]


def _factored(P: Array) -> int:
    """About how many entries the Cholesky factor of a matrix, or of a diagonal, has twice."""
    entries = int(np.count_nonzero(P))
    return P.size if P.ndim == 2 and entries > FILLED * len(P) else entries


def _joined(parts: list[Entries]) -> Entries:
    if not parts:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    row, col, value = zip(*parts, strict=True)
    return np.concatenate(row), np.concatenate(col), np.concatenate(value)
