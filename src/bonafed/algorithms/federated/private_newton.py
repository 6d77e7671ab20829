"""Private Newton steps: a noisy gradient and a noisy curvature matrix from every client and round.

    w^{t+1} = argmin_v  <g^t, v - w^t> + (v - w^t)' A^t (v - w^t) / (2 s_t) + h(v)

g^t = sum_p (a_p sum_i clip(l'(w^t; x_pi, y_pi), C) + xi_p) is the noisy gradient of `PrivateSGD`,
and A^t the mean of all matrices so far, later ones counting more,

    sum_p (a_p sum_i l''(w^t; x_pi, y_pi) x_pi x_pi' + Xi_p),

with eigenvalues raised to what their noise hides. Both are parts of one answer: a row moves the
vector of both, each over its own noise, by at most one over the noise multiplier, so that the
ledger charges one Gaussian release a round. The matrix is the sufficient statistic of Vu, Slavkovic
(2009) and Wang (2018); steps with it are those of Avella-Medina, Bradshaw, Loh (2021).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.private import mechanism as mechanisms
from bonafed.algorithms.federated.private import noisy_gradient as noises
from bonafed.algorithms.federated.private.integer_gradient import (
    MANY,
    STEEP,
    WHOLE,
    IntegerRows,
    product,
)
from bonafed.algorithms.federated.private.mechanism import ClientSizes, Grid, Mechanism, Whole
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.federated.private_sgd import Blur, row_length
from bonafed.algorithms.method import Answer, Concluded, Ids, Next, free_prox
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import Release
from bonafed.privacy.moments import Moments
from bonafed.problem.constraints.constraint import once
from bonafed.problem.losses import Logistic, Poisson, Squared
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.rounds import Round, Sum, record
from bonafed.solvers.smooth.proximal_newton import model_minimum

# of a run for inference: the parts of an answer's budget for gradient, matrix and counts
INFERENCE = 0.6, 0.3, 0.1
FLAT = 1e-10  # eigenvalues below this part of the largest are raised to it, also without noise
EXACTER = 1 + 1e-12  # so that roundings of the three parts' multipliers cost nothing
INFERRED = (Logistic, Poisson, Squared)  # losses that are likelihoods


@record
class Bent:
    """The client's answer to ``Blur``, with the curvature at its model."""

    gradient: Sum  # (1, D) g_p + xi_p
    matrix: Sum  # (1, D (D + 1) / 2) the upper triangle, off the diagonal times the root of two
    # (1, 0), or of a run for inference (1, 1 or 2): squared residuals, rows that are shortened
    counts: Sum


@record
class Late:
    """The answers of the rounds from which intervals are computed."""

    models: Annotated[Array, Form("...")]  # (k, D) where they were taken
    gradients: Annotated[Array, Form("...")]  # (k, D)
    matrix: Annotated[Array, Form("D, D")]  # the sum
    counts: Annotated[Array, Form("...")]  # (1 or 2,) the sum


@record
class PrivateNewtonState:
    """The server's state: a function of noisy answers only."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=0)]
    matrix: Annotated[Array, Form("D, D")]  # the mean of all rounds, weighted by t
    late: Late | None = None


@dataclass(frozen=True)
class PrivateNewton(PrivateMethod):
    """Newton steps within a privacy budget: few rounds, for models of few features.

    Suited to tables of thousands of rows and tens of features: a noisy D x D matrix of curvature
    replaces most of the rounds that `PrivateSGD` would need. Without a budget these are Newton
    steps.

    Parameters
    ----------
    max_rounds : T; the budget is spread over all of them
    mechanism : "gaussian"
    clip : the gradient of a row is shortened to this norm; None: half the length of a row, see
        ``bound``; with ``inference`` the largest that a row can have
    bound : rows are shortened to this norm first, and count as that long, an intercept's 1 beside
        it: 1 for rows that are scaled to unit length. None: rows are not shortened, and count as
        max(2, 2 sqrt(d) / 7) long, which suits features of order one
    length : s_t = length (1 - (t - 1) / T); None: 2, for ``inference`` 1, and without a budget s_t
        = 1
    inference : also ask for what `private_intervals` needs, for a tenth of every answer's budget,
        and clip nothing: the model is then the mean Newton point of the last two thirds of the
        rounds. Needs ``bound``, no regulariser, and Logistic(); or Poisson() or Squared() with a
        ``clip``; with Squared() declared sizes need an intercept, which counts the rows
    noise : "secure" or "simulation", as of `PrivateADMM`
    start : first model, zeros by default

    Raises
    ------
    BudgetSpentError
        where the budget's ledger leaves nothing, or a client is asked more often than the budget
        pays for
    ValueError
        for losses that are not smooth and convex or have several predictions a row, rows of
        different weights, regularisers that are not convex or do not act entry by entry

    Notes
    -----
    A round sends D + 2 numbers down and D + D (D + 1) / 2 up per client. A matrix takes D^2 / 2
    multiplications a row.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> solution = bf.solve(problem, fed, algorithm=bf.PrivateNewton(bound=2.0))
    >>> solution.rounds, bool(0.9 < solution.ledger.epsilon <= 1)
    (8, True)
    """

    max_rounds: int = 8
    length: float | None = None
    inference: bool = False
    noise: Literal["secure", "simulation"] | None = None
    start: Array | None = None
    problem: Problem | None = None
    plan: Mechanism | None = None
    # a worst case over a ball is a norm of the model, which does not act entry by entry
    requirements: ClassVar[needs.Requirements] = replace(
        PrivateMethod.requirements,
        predictor=needs.LINEAR,
        over_samples=needs.MEAN_OF_ROWS,
        loss=needs.SMOOTH_SCALAR,
        regulariser=needs.SEPARABLE,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("length")
        if self.mechanism != "gaussian":
            raise ValueError(
                f'mechanism must be "gaussian", got {self.mechanism!r}: the l1 norm of a matrix'
                " would need far more noise."
            )
        if not isinstance(self.inference, bool):
            raise ValueError(f"inference must be True or False, got {self.inference!r}.")

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        """Raise ``ValueError`` where the settings would not keep the problem's budget, or give no
        intervals.
        """
        super().check_problem(problem, fed)
        if not self.inference:
            return
        declared = problem.privacy is not None and problem.privacy.sizes is not None
        # Whether the variance of the residuals is known where sizes are declared, as it is by the
        # intercept's curvature, the number of rows
        known = problem.predictor.intercept or not (declared and isinstance(problem.loss, Squared))
        asked = {
            "a budget, Problem(privacy=...)": problem.privacy is not None,
            "a bound on the rows, bound=...": self.bound is not None,
            "no regulariser": isinstance(problem.regulariser, Zero),
            "the loss Logistic(), Poisson() or Squared()": isinstance(problem.loss, INFERRED),
            "an intercept or no declared sizes for Squared()": known,
        }
        if lacking := [need for need, met in asked.items() if not met]:
            raise ValueError(
                f"inference=True needs {' and '.join(lacking)}: intervals hold for the coefficients"
                " of a likelihood that nothing shrinks. Give that, or leave inference out."
            )

    def planned(self, problem: Problem, fed: ClientSizes, spent: Sequence[Release] = ()) -> Self:
        """The method with the noise that keeps all rounds, after ``spent``, within the budget."""
        method = super().planned(problem, fed, spent)
        weight = method.noise_plan.weight
        setting = 'Budget(view="sum")' if method.noise_plan.missing is not None else ""
        setting = "inference=True" if self.inference else setting
        if setting and np.ptp(weight) > 1e-9 * weight.max():
            raise ValueError(
                f"{setting} of PrivateNewton needs rows that count alike at all clients: state"
                ' over_clients=Mean("size").'
            )
        return method

    @property
    def shortens(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self.inference

    @property
    def from_sums(self) -> str:
        return ""  # every model follows from the sums of noisy gradients and matrices

    def quorum(self, asked: int) -> int:
        """Intervals count the rows of all clients, so that none of them may drop out."""
        return asked if self.inference else super().quorum(asked)

    def grid(self, upload_class: type) -> dict[str, float]:
        """The steps in which clients answer in the view "sum"."""
        if upload_class is not Bent or self.noise_plan.missing is None:
            return {}
        names = ("gradient", "matrix", "counts")[: 2 + self.inference]
        return {name: float(self._part(k).unit[0]) for k, name in enumerate(names)}

    def _clip(self, problem: Problem, fed: ClientSizes) -> float:
        if self.inference:
            return math.inf  # the bound is enough
        one = problem.predictor.intercept
        return row_length(self.bound, one, fed.n_features, self.mechanism) / 2

    # -- the parts of an answer --------------------------------------------------------------------

    @property
    def _caps(self) -> "Caps":
        """What one row counts for at most. Losses whose curvature has no bound are taken to bend no
        more than their gradients may be steep.
        """
        loss, plan, clip = self.concrete.loss, self.noise_plan, self.noise_plan.clip
        bound = None if math.isinf(plan.bound) else plan.bound
        row = row_length(bound, self.concrete.predictor.intercept, plan.features, self.mechanism)
        steep = getattr(loss, "steepest_curvature", math.inf)
        curvature = steep if math.isfinite(steep) else clip / row
        square = (clip / row) ** 2 if isinstance(loss, Squared) else None
        return Caps(clip, curvature * row**2, square)

    @property
    def _shares(self) -> tuple[float, float, float]:
        """The parts of an answer's budget for gradient, matrix and counts."""
        return INFERENCE if self.inference else (*shares(self.noise_plan, self._size), 0.0)

    def _part(self, k: int) -> Mechanism:
        """The mechanism of the gradient (0), the matrix (1) or the counts (2): the same noise for
        what each of them moves by, over the root of its share.
        """
        plan, caps = self.noise_plan, self._caps
        counted = math.sqrt(1.0 if caps.square is None else 2.0)
        clip = (caps.gradient, caps.matrix, counted)[k]
        if plan.kind is None:
            return replace(plan, clip=clip)
        multiplier = plan.multiplier * EXACTER / math.sqrt(self._shares[k])
        sensitivity = plan.spread * clip * plan.weight
        return replace(plan, multiplier=multiplier, clip=clip, sensitivity=sensitivity)

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Blur: self.bend, **self.concludes}

    def bend(
        self, memory: noises.NoiseKeys, ask: Blur, data: Block, rng: Streams
    ) -> tuple[noises.NoiseKeys, Bent]:
        """Carry out a round at the clients of a block."""
        problem, plan, caps, n = self.concrete, self.noise_plan, self._caps, len(data.names)
        told = noises.Told.of(ask.w, ask.w.dtype)
        noises.check_question(plan, memory, told.finite)
        w, D = ask.w, len(ask.w)
        parts = [self._part(k) for k in range(2 + self.inference)]
        common = memory, np.broadcast_to(w, (n, D)), told
        asked = [noises.Question.of(one, *common, (ask.round, k)) for k, one in enumerate(parts)]
        noisy = noises.noisy_gradients(problem, parts[0], memory, asked[0], data, rng)

        def add(i: int, sums: list[Array]) -> None:
            sums[0] += noisy(i)[0]
            if plan.kind is None:
                matrix = packed(float_matrix(problem, plan, data, i, w))
                sums[1] += plan.weight[data.index[i]] * matrix
                return
            rows = IntegerRows.of(problem, parts[0], data, i)
            grids = [part.grid(int(data.index[i])) for part in parts]
            totals = [integer_matrix(problem, parts[1].clip, grids[1], rows, w)]
            if self.inference:
                short = shortened_rows(plan, data, i)
                totals.append(integer_counts(problem, grids[2], caps, rows, short, w))
            for k, total in enumerate(totals, 1):
                noised = noises.with_noise(parts[k], memory, asked[k], rng, i, total)
                sums[k] += grids[k].unit * noised

        sums = noises.in_groups(n, data.y.size * entries(D), self._lengths(D), add)
        return noises.answered(memory, asked[0]), Bent(*sums)

    def _lengths(self, D: int) -> tuple[int, int, int]:
        """How many numbers gradient, matrix and counts are."""
        return D, entries(D), (1 + (self._caps.square is not None)) * self.inference

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Bent: self.descend}

    def server_start(self, n_clients: int) -> tuple[PrivateNewtonState, Round]:
        D = self._size
        w = self._start(D)
        return PrivateNewtonState(w, 0, np.zeros((D, D))), self.ask(w, 1)

    def descend(self, state: PrivateNewtonState, ids: Ids, up: Bent) -> Next[PrivateNewtonState]:
        """Take the step of this round."""
        t, D = state.round + 1, self._size
        if not all(np.isfinite(part).all() for part in (up.gradient, up.matrix, up.counts)):
            raise ArithmeticError("an answer is not finite: rescale the features.")
        matrix, gradient = unpacked(up.matrix.reshape(-1), D), up.gradient.reshape(-1)
        late = state.late
        if self.inference and t > self.max_rounds // 3:
            late = _added(late, state.w, gradient, matrix, up.counts.reshape(-1))
        mean = matrix
        if self.noise_plan.kind is not None:
            mean = state.matrix + (matrix - state.matrix) * 2 / (t + 1)
        # the noise of a mean of t matrices weighted by 1, ..., t
        whole = math.sqrt((2 * t + 1) / (1.5 * t * (t + 1)))
        bend = raised(mean, self._hidden(whole)) / self._step(t)
        if isinstance(self.concrete.regulariser, Zero):
            w = state.w - np.linalg.solve(bend, gradient)
        else:
            prox = lambda v, s: free_prox(self.concrete, v, s)  # noqa: E731
            w = model_minimum(gradient, bend, prox, state.w)[0]
        return self._after(PrivateNewtonState(w, t, mean, late), w, t, "a smaller length")

    def ask(self, w: Array, t: int) -> Round:
        return Round(Blur(w, t, self._step(t)))

    def _hidden(self, part: float) -> float:
        """Half the operator norm of the noise in a mean matrix that has so much of one answer's."""
        return part * self._part(1).deviation * math.sqrt(self._size / 2)

    def _step(self, t: int) -> float:
        """s_t; without noise all steps are whole, where ``length`` does not say otherwise."""
        if self.noise_plan.kind is None and self.length is None:
            return 1.0
        length = self.length or (1.0 if self.inference else 2.0)
        return length * (1 - (t - 1) / self.max_rounds)

    # -- what is public ----------------------------------------------------------------------------

    def answer_alike(self, dimension: int) -> Bent:
        return Bent(*(np.zeros((1, size)) for size in self._lengths(dimension)))

    def public_row(self, message: Blur) -> dict[str, float]:
        plan = self._part(0)
        scale = plan.multiplier * float(np.mean(plan.sensitivity))
        return {"step": message.step, "noise": scale * mechanisms.MEAN_SIZE["gaussian"]}

    def report(self, state: PrivateNewtonState) -> dict:
        """Numbers to plot, which are public."""
        return self.public_row(self.ask(state.w, max(state.round, 1)).message)

    def answer(self, state: PrivateNewtonState, concluded: Concluded | None = None) -> Answer:
        """The last w; of a run for inference the mean Newton point, and what tells its errors."""
        if state.late is None:
            return Answer(state.w)
        late = state.late
        k = len(late.models)
        matrix = late.matrix / k
        middle = late.models.mean(0)
        bend = raised(matrix, self._hidden(1 / math.sqrt(k)))
        w = middle - np.linalg.solve(bend, late.gradients.mean(0))
        from_w = late.models - w
        noise = [self._part(i).deviation / math.sqrt(k) for i in range(3)]
        counts, square = late.counts / k, self._caps.square
        moments = Moments(
            matrix=matrix,
            away=w - middle,
            spread=float(np.einsum("kd,de,ke->", from_w, matrix, from_w)) / k,
            square=float(counts[0]) * square if square is not None else math.nan,
            rows=1 / float(self.noise_plan.weight[0]),
            over=float(counts[-1]),
            gradient_noise=noise[0],
            matrix_noise=noise[1],
            square_noise=noise[2] * square if square is not None else 0.0,
            over_noise=noise[2],
        )
        return Answer(w, moments=moments)


def _added(late: Late | None, w: Array, gradient: Array, matrix: Array, counts: Array) -> Late:
    """The answers with those of another round."""
    if late is None:
        return Late(w[None], gradient[None], matrix, counts)
    models, gradients = np.vstack([late.models, w]), np.vstack([late.gradients, gradient])
    return Late(models, gradients, late.matrix + matrix, late.counts + counts)


def raised(matrix: Array, least: float) -> Array:
    """The matrix with its eigenvalues raised to ``least``, and to what is left of rounding."""
    values, vectors = np.linalg.eigh(matrix)
    least = max(least, FLAT * float(np.abs(values).max(initial=0.0)), 1e-300)
    return (vectors * np.maximum(values, least)) @ vectors.T


def shares(plan: Mechanism, dimension: int) -> tuple[float, float]:
    """The parts of an answer's budget for gradient and matrix, from public numbers.

    With the part b for the matrix the gradient's noise has 1 / (1 - b) of its variance, and the
    matrix errs by `matrix_error` / b = kappa / b. An error e of the matrix adds about e^2 to the
    error of the model. So (1 + kappa / b) / (1 - b) is least, at b = sqrt(kappa^2 + kappa) - kappa.
    """
    one = plan.multiplier * plan.spread * math.sqrt(float((plan.weight**2).sum()) / plan.rounds)
    kappa = matrix_error(one, dimension)
    b = 1 / (1 + math.sqrt(1 + 1 / kappa)) if kappa > 0 else 0.5
    return 1 - b, b


def matrix_error(nu: float, dimension: int) -> float:
    """kappa = 2 D (D nu)^2: how far the mean matrix of a run errs from noise, squared and relative
    to its mean eigenvalue were all rows as long and as steep as they may be.

    ``nu`` is the standard deviation of an entry, were the whole budget the matrix's, over the bound
    on a row's matrix.
    """
    return 2 * dimension * (dimension * nu) ** 2


# A client's curvature matrix in integers, and what private intervals need beside it.
#
# A row's matrix is c x x', c the second derivative of its loss. Its numbers
#
#     v = (S x_j^2 c,  sqrt(2) S x_j x_k c, j < k),     ||v||_2 = S c ||x||^2,
#
# are rounded to integers, whose norm is then checked in integers to be at most ``steps``: rounding
# is inside the sensitivity, as that of gradients is (`integer_gradient`). The root of two makes the
# l2 norm of the upper triangle that of the whole matrix. Rows whose matrix is longer are shortened.
# A row's numbers depend on that row and the model only.

ROOT = math.sqrt(2.0)
LONG = 1 + 1e-9  # rows of the bound's length, but for rounding, are not shortened


def entries(dimension: int) -> int:
    """How many numbers a symmetric matrix has."""
    return dimension * (dimension + 1) // 2


def unpacked(numbers: Array, dimension: int) -> Array:
    """The symmetric matrix (D, D) of its upper triangle, whose entries off the diagonal stand times
    the root of two.
    """
    upper = np.zeros((dimension, dimension))
    upper[np.triu_indices(dimension)] = numbers
    diagonal = np.diag(np.diag(upper))
    return diagonal + (upper - diagonal + (upper - diagonal).T) / ROOT


def packed(matrix: Array) -> Array:
    """The inverse of `unpacked`."""
    scaled = ROOT * matrix
    np.fill_diagonal(scaled, np.diag(matrix))
    return scaled[np.triu_indices(len(matrix))]


class Caps(NamedTuple):
    """The public bounds on what one row counts for.

    Attributes
    ----------
    gradient : its norm
    matrix : c ||x||^2
    square : of its squared residual; None where none are counted
    """

    gradient: float
    matrix: float
    square: float | None


def integer_matrix(problem: Problem, cap: float, grid: Grid, rows: IntegerRows, v: Array) -> Whole:
    """The sum of the rows' curvature matrices at the model v, (D (D + 1) / 2,) in steps of a grid
    where the cap on a row's matrix is ``grid.steps``.
    """
    total = np.zeros(entries(rows.U.shape[1]), np.int64)
    for here, U, S in _tiles(rows, v):
        with np.errstate(all="ignore"):  # whatever rows and model are, no row counts for more
            c = np.asarray(problem.loss.curvature(S, rows.y[here]), float)
            c = np.clip(np.nan_to_num(c, nan=0.0, posinf=STEEP, neginf=0.0), 0.0, STEEP)
            most = np.minimum(c * rows.length[here] ** 2 / cap, 1.0)
            factor = np.where(rows.length[here] > 0, most * grid.steps / rows.size[here], 0.0)
        _add_matrices(U, factor, grid.steps, total)
    return grid.held(total)


def integer_counts(
    problem: Problem, grid: Grid, caps: Caps, rows: IntegerRows, short: NDArray[np.bool_], v: Array
) -> Whole:
    """The rows that some bound shortens, and before it, where squares are counted, the sum of the
    squared residuals, in steps of the grid.
    """
    squares = caps.square is not None
    whole = math.isqrt(grid.steps**2 // (1 + squares))
    total = np.zeros(1 + squares, np.int64)
    for here, _, S in _tiles(rows, v):
        length, y = rows.length[here], rows.y[here]
        with np.errstate(all="ignore"):
            r = np.abs(np.asarray(problem.loss.gradient(S, y), float))
            r = np.clip(np.nan_to_num(r, nan=STEEP, posinf=STEEP), 0.0, STEEP)
            c = np.nan_to_num(problem.loss.curvature(S, y), nan=0.0, posinf=STEEP)
            over = short[here] | (r * length > caps.gradient * LONG)
            over |= c * length**2 > caps.matrix * LONG
            if caps.square is not None:
                over |= r * r > caps.square
                square = np.rint(np.minimum(r * r / caps.square, 1.0) * whole)
                total[0] += np.where(length > 0, square, 0.0).astype(np.int64).sum()
        total[-1] += whole * int((over & (length > 0)).sum())
    return grid.held(total)


def shortened_rows(mechanism: Mechanism, data: Block, i: int) -> NDArray[np.bool_]:
    """Which rows of client i are longer than the bound, as long as those of `IntegerRows`."""

    def made() -> NDArray[np.bool_]:
        m = int((data.share[i] > 0).sum())
        X = np.asarray(data.X)[i, :m] if isinstance(data.X, np.ndarray) else data.X[:m].toarray()
        with np.errstate(all="ignore"):
            long = ~(np.linalg.norm(np.asarray(X, float), axis=1) <= mechanism.bound * LONG)
        return np.append(long, np.zeros(-m % WHOLE, bool))

    return once(data, ("shortened rows", i, mechanism.bound), made)


def float_matrix(problem: Problem, mechanism: Mechanism, data: Block, i: int, v: Array) -> Array:
    """The sum of client i's curvature matrices (D, D), without noise and grid."""
    rows = noises.Rows.of(problem, mechanism, data)
    m = int(rows.count[i])
    X = np.asarray(data.X)[i, :m] if isinstance(data.X, np.ndarray) else data.X[:m].toarray()
    X = np.asarray(X, float) * rows.factor[i, :m, None]
    X = np.column_stack([X, np.ones(m)]) if problem.predictor.intercept else X
    c = np.asarray(problem.loss.curvature(X @ v, data.y[i, :m]), float)
    return (X * c[:, None]).T @ X


def _tiles(rows: IntegerRows, v: Array) -> Iterator[tuple[slice, Array, Array]]:
    """(which rows, their directions, their predictions) of all rows, a part at a time."""
    m, D = rows.U.shape
    count = max(1, MANY // (D * WHOLE)) * WHOLE
    Z = np.asarray(v, float).reshape(D, 1)
    for first in range(0, m, count):
        here = slice(first, min(first + count, m))
        U = rows.U[here] if isinstance(rows.U, np.ndarray) else rows.U[here].toarray()
        U = np.ascontiguousarray(U, float)
        with np.errstate(all="ignore"):
            S = product(U, Z)[:, 0] * (rows.length[here] / rows.grid.direction)
        yield here, U, S


@njit(cache=True, nogil=True, error_model="numpy")
def _add_matrices(U, factor, steps, total):
    """Add to total the integer upper triangles of factor[i] U[i]' U[i]."""
    m, D = U.shape
    row, limit = np.empty(len(total)), np.int64(steps) * np.int64(steps)
    for i in range(m):
        f, at, square = factor[i], 0, np.int64(0)
        if not f > 0:
            continue
        for j in range(D):
            for k in range(j, D):
                entry = f * U[i, j] * U[i, k]
                entry = np.rint(entry if j == k else entry * ROOT)
                row[at] = entry
                square += np.int64(entry) * np.int64(entry)
                at += 1
        while square > limit:
            shrink = 0.999999 * math.sqrt(limit / np.float64(square))
            square = np.int64(0)
            for at in range(len(row)):
                row[at] = np.trunc(row[at] * shrink)
                square += np.int64(row[at]) * np.int64(row[at])
        for at in range(len(row)):
            total[at] += np.int64(row[at])
