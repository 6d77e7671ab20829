"""The client operator of the ADMMs: projection onto the epigraph of the worst-case risk.

    C_s(point, height) = argmin { ||v - point||^2 + ratio (pi - height)^2 : pi >= R_s(v) }

(Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*, Algorithm 1, with ratio = 1).
The client answers with the D + 1 numbers (w_s, pi_s), never with its transport multiplier lambda_s
or its rows' losses alpha_i. A point inside the epigraph comes back unchanged. On R^n the projection
uses the structured interior point method of ``papers/drfl/epigraph.py``; on supports, and where
that method stops short of its tolerance, it uses the conic program of the whole client, which is
counted as a fallback.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Each, Form, Streams, record
from bonafed.papers.drfl.epigraph import Curve, Epigraph, lines, project


@record
class Begin:
    """Ask every client for its risk at a first model (zeros where ``w`` is empty)."""

    w: Annotated[Array, Form("D")]
    tells: ClassVar = ext.at_model()


@record
class Begun:
    """The first model and the client's risk R_s there."""

    w: Each  # (n, D)
    pi: Each  # (n,)


@record
class Project:
    """Ask every client for the projection of its (point, height)."""

    point: Annotated[Each, Form("N, D")]
    height: Annotated[Each, Form("N")]
    ratio: float
    tells: ClassVar = ext.at_models(lambda one: [one.upload.w[0]])  # the client's new copy


@record
class Projected:
    """A client's point of its epigraph: pi_s >= R_s(w_s)."""

    w: Each  # (n, D)
    pi: Each  # (n,)
    fallbacks: ext.Sum  # (n,) conic programs solved instead of the structured solver


@record
class Copies:
    """A client's memory: its last copy of the model, for the certificate's consensus."""

    w: Annotated[Array, Form("n, D")]


def begin(
    problem: bf.Problem, memory: Copies | None, ask: Begin, data: Block, rng: Streams
) -> tuple[Copies, Begun]:
    """The pair (w, R_s(w)) at the first model."""
    D = problem.predictor.dimension(data.n_features)
    w = np.tile(ask.w if len(ask.w) else np.zeros(D), (len(data.index), 1))
    return Copies(w), Begun(w, problem.client_risks(w, data))


def begun_claims(problem: bf.Problem) -> ext.Claims:
    """What a client says of its risk at the first model."""
    return {Begun: lambda who, ask, up: ext.of_risk(problem, up.w[0], up.pi)}


def rows_of(data: Block, i: int, draw: tuple[np.random.Generator, float] | None = None) -> Block:
    """Client i of a block by itself, without padding and rows of no weight.

    With ``draw`` it has a random share of its rows.
    """
    kept = np.flatnonzero(data.share[i])
    if draw is not None:
        rng, share = draw
        kept = np.sort(rng.choice(kept, max(1, math.ceil(share * len(kept))), replace=False))
    rows = slice(0, len(kept)) if kept[-1] == len(kept) - 1 else kept  # a slice copies nothing
    X = data.rows(i)[rows]
    X = (X if isinstance(X, np.ndarray) else X.toarray())[None]
    weight = data.share[i : i + 1, rows]
    y, share, index = data.y[i : i + 1, rows], weight / weight.sum(), data.index[i : i + 1]
    return Block(X, y, share, index, data.names[i : i + 1])


def _project(
    problem: bf.Problem, rows: Block, point: Array, height: float, ratio: float
) -> tuple[Array, float, int]:
    radius = float(problem.radii(rows)[0])
    value, gradient, level = (part[0] for part in ext.risk_gradients(problem, point, rows))
    if not (np.isfinite(point).all() and math.isfinite(value) and math.isfinite(height)):
        raise ValueError(
            f"client {rows.names[0]}: the model or its risk is not finite; rescale the features or"
            " lower c."
        )
    if value <= height:
        return point, height, 0
    # projecting onto the cut is exact to rounding here
    if value - height <= 1e-13 * max(1.0, abs(value)):
        nu = (value - height) / (float(gradient @ gradient) + 1 / ratio)
        far = max(height + nu / ratio, value - nu * float(gradient @ gradient))
        return point - nu * gradient, far, 0
    if getattr(problem.over_samples, "support", None) is None:
        epigraph = _epigraph(problem, rows, radius)
        projection = project(epigraph, point, height, ratio, float(value), gradient, float(level))
        if projection.solved:
            return projection.v, projection.pi, 0
    return *_conic(problem, rows, point, height, ratio), 1


def _epigraph(problem: bf.Problem, block: Block, radius: float) -> Epigraph:
    """The client's epigraph, with the loss and its copy with flipped label as branches."""
    loss, ball = problem.loss, problem.over_samples
    sign, moves = loss.targets == "sign", isinstance(ball, bf.WassersteinBall)
    kappa, dual = (ball.label_cost, ext.DUAL[ball.norm]) if moves else (math.inf, "l2")
    flips = sign and radius > 0 and math.isfinite(kappa)
    # the label is 1, -1 for the flipped margin, and 0 for the residual
    labels = np.array((1.0, -1.0) if flips else (float(sign),))[:, None]
    fee = np.array([0.0, -kappa] if flips else [0.0])

    def curve(t: Array) -> tuple[Array, Array, Array]:
        t, y = np.broadcast_arrays(t, labels)
        return loss.value(t, y), loss.gradient(t, y), loss.curvature(t, y)

    branches: Curve = curve
    if loss.pieces is not None:
        pieces = [(a, b, 0.0) for a, b in loss.pieces]
        pieces += [(-a, b, -kappa) for a, b in loss.pieces if a and flips]
        gradients, constants, fee = np.array(pieces).T
        branches = lines(gradients, constants)
    floor = 0.0 if sign or radius == 0 else loss.lipschitz / kappa
    scale, shift = (block.y[0], 0.0) if sign else (1.0, block.y[0])
    rows = np.asarray(block.X[0]), scale, shift, block.share[0]
    numbers = radius, loss.lipschitz, dual, floor, problem.predictor.intercept
    return Epigraph(*rows, branches, fee, *numbers)


def _conic(
    problem: bf.Problem, rows: Block, point: Array, height: float, ratio: float
) -> tuple[Array, float]:
    """The projection as a conic program."""
    model = ext.Model()
    v, pi = model.variable(len(point)), model.variable()
    move, rise = model.variable(len(point)), model.variable()
    # the costs are in the moves, since those in (v, pi) would cancel
    model.zero([(v, 1.0), (move, -1.0), -point])
    model.zero([(pi, 1.0), (rise, -1.0), -height])
    model.quadratic(move, 1 / max(1.0, ratio))
    model.quadratic(rise, ratio / max(1.0, ratio))
    ext.client_rows(model, problem, rows, v, pi)
    solution = model.solve(1e-11)
    # "almost solved" may mean few digits, so solve fully to a looser tolerance
    if solution.status is not ext.Status.SOLVED:
        what = f"client {rows.names[0]}: projection onto its epigraph"
        solution = model.solve(1e-9).checked(what)
    w = solution.x[v]
    return w, max(float(problem.client_risks(w, rows)[0]), height)


@record
class ConsensusState:
    """The part of the server's state that both ADMMs on epigraphs have."""

    w: Annotated[Array, Form("D")]
    z: Annotated[Array, Form("N")]
    copies: Annotated[Array, Form("N, D")]  # w_s
    pi: Annotated[Array, Form("N")]
    psi: Annotated[Array, Form("N, D")]
    zeta: Annotated[Array, Form("N")]
    weights: Annotated[Array, Form("N")]  # client weights in Q
    value: ext.Extended  # phi_Q(pi) + h(w): the objective with every risk at the client's copy
    primal: ext.Extended  # relative residuals
    dual: ext.Extended
    fallbacks: int
    rounds: Annotated[int, Form(rounds=-1)]


State = TypeVar("State", bound=ConsensusState)


class EpigraphMethod(ext.Method):
    """The base of both ADMMs on epigraphs: the clients' steps, the residuals and the answer."""

    advised: ClassVar[int] = 2
    sample: float | None
    tol: float
    max_rounds: int
    start: Array | None
    begin: Callable[..., tuple[Any, ext.Round]]
    # the two halves of an iteration, at the server
    _primal: Callable[..., tuple[Any, ext.Round]]
    _dual: Callable[..., Any]

    def check_settings(self, *penalties: str) -> None:
        """Raise ``ValueError`` for settings out of range."""
        ext.check_positive(self, *penalties)
        ext.check_end(self, "tol")
        ext.check_share(self, "sample", "For all rows use None.")

    @property
    def on_client(self) -> dict:
        start, conclude = self.client_step(begin), ext.conclude_copies("w")
        return {Begin: start, Project: self.onto_epigraph, ext.Conclude: conclude}

    def onto_epigraph(
        self, memory: Copies, ask: Project, data: Block, rng: Streams
    ) -> tuple[Copies, Projected]:
        """The projections of the block's clients, each on a random share ``sample`` of its rows.

        With None they use all rows.
        """
        found = []
        for i, point in enumerate(ask.point):
            rows = rows_of(data, i, None if self.sample is None else (rng(i), self.sample))
            found.append(_project(self.concrete, rows, point, float(ask.height[i]), ask.ratio))
        w, pi, fallbacks = (np.array(part, float) for part in zip(*found, strict=True))
        return Copies(w), Projected(w, pi, fallbacks)

    @property
    def on_server(self) -> dict:
        return {Begun: self.begin, Projected: self.improve}

    @property
    def claims(self) -> ext.Claims:
        return {**begun_claims(self.concrete), Projected: self._projected}

    def _projected(self, who: int, ask: Project, up: Projected) -> Iterator[ext.Claim]:
        """What a point of the epigraph claims: pi >= R(w), unless it is that of some rows."""
        yield ext.Number("a height", up.pi, scale=np.abs(up.pi).sum() + np.abs(up.w).sum())
        if self.sample is None and ext.is_convex(self.concrete):
            yield ext.Height(("risk", up.w.shape[1]), "height", up.w[0], float(up.pi[0]))

    def improve(self, state: Any, ids: ext.Ids, up: Projected) -> ext.Next[Any]:
        """The dual update, and the end or the next primal one."""
        state = self._dual(state, up)
        if max(state.primal, state.dual) <= self.tol:
            return state, ext.Done(bf.Stop.OPTIMAL)
        if state.rounds >= self.max_rounds:
            return state, ext.Done(bf.Stop.MAX_ROUNDS)
        return self._primal(state)

    def report(self, state: ConsensusState) -> dict[str, float]:
        """``objective`` is phi_Q(pi) + h(w), the risks being those at the clients' copies."""
        numbers = {"objective": state.value, "primal": state.primal, "dual": state.dual}
        return {**numbers, **ext.worst_client(state.pi), "fallbacks": state.fallbacks}

    def answer(self, state: ConsensusState, concluded: ext.Concluded | None = None) -> ext.Answer:
        """The model and the clients' copies of it, (S, D); its bound is not proved here."""
        return ext.Answer(state.w, copies=ext.copies_of(concluded))

    def _first(self, weights: Array) -> tuple[Any, ...]:
        """The fields of ``ConsensusState`` before the first answers."""
        nobody, none = np.zeros(len(weights)), np.zeros((len(weights), 0))
        w = ext.start_or_empty(self.start)
        return w, nobody, none, nobody, none, weights, weights, math.inf, math.inf, math.inf, 0, 0

    def _begun(self, state: State, up: Begun) -> State:
        """The state at the first model."""
        return replace(state, w=up.w[0], z=up.pi, copies=up.w, pi=up.pi, psi=np.zeros_like(up.w))

    def _answered(
        self, state: State, up: Projected, psi: Array, zeta: Array, c_w: float, c_z: float
    ) -> tuple[State, tuple[float, float], tuple[float, float]]:
        """The state with the clients' new points, and the relative (primal, dual) residuals of
        w = w_s and of z = pi, whose penalties are c_w and c_z.

        Near w = 0 the model has no size to compare with: there it is value / ||psi|| (and value /
        ||w_s|| for psi).
        """
        value, gap = self.value_at(state.w, up.pi), up.pi - state.z
        pull, size = norm(psi), norm(up.w)
        wide = max(size, math.sqrt(len(up.w)) * norm(state.w))
        moves, rises = c_w * (up.w - state.copies), c_z * (up.pi - state.pi)
        near, far = (abs(value) / part if part else 0.0 for part in (pull, size))
        model = relative(state.w - up.w, wide, near), relative(moves, pull, far)
        height = relative(gap, norm(up.pi), norm(up.pi - gap)), relative(rises, norm(zeta))
        state = replace(state, fallbacks=state.fallbacks + int(up.fallbacks.sum()))
        state = replace(state, rounds=state.rounds + 1, copies=up.w, pi=up.pi, psi=psi, zeta=zeta)
        primal, dual = max(model[0], height[0]), max(model[1], height[1])
        return replace(state, value=value, primal=primal, dual=dual), model, height


def norm(v: Array) -> float:
    """The norm ||v||_2 of all entries."""
    return float(np.linalg.norm(v))


def relative(residual: Array, *scales: float) -> float:
    """The norm of a residual over the largest scale, inf where that is nothing beside it."""
    size, scale = norm(residual), max(scales)
    if scale > 1e-100 * size:
        return size / scale
    return math.inf if size > 0 else 0.0
