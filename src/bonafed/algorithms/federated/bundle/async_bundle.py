"""Asynchronous bundle: cuts of those that have answered, one program at the server, a proven gap.

    minimise over w:  max_{q in Q} sum_s q_s R_s(w) + h(w)

A client answers a model with cuts of its risk R_s there, as those of ``bundle.py``. A cut is below
its convex risk for ever, however old it is, and so is 0, since no loss is negative: that is the cut
of a client that has not answered yet. Whenever clients answer, the server adds their cuts,

    1. minimises the model + ||w - centre||_H^2 / 2, where the last minimiser is the centre, and
       sends the new one to those who have answered;
    2. once in N answers, minimises the model over a region that provably holds an optimum: weak
       duality proves a lower bound;
    3. stands still, where an answered model is predicted to be within the tolerance of the bound,
       at the oldest such model, until all clients have answered it. Then its value is known, and
       the gap is proven; else the next model has to look better.

Where the loss is smooth, the model of a client's mean loss is its second-order expansion at the
client's last answer, and H is the sum of q_s times its second derivatives; only flips of labels
are cut. So a step is one of Newton's method, on the newest that is known of everyone.

A model that is later seen to be far above the best one that was answered is given up for that. No
published method is followed; step 1 is Kiwiel's proximal bundle, and a model given up a null step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.bundle import server
from bonafed.algorithms.federated.bundle.server import least
from bonafed.algorithms.federated.linearisation import units_of
from bonafed.algorithms.method import Answer, Concluded, Ids, Next, known
from bonafed.arrays import Array, Block, norm
from bonafed.codec import Counter, Extended, Form
from bonafed.problem import lower_bounds as bounds
from bonafed.problem import parts as parting
from bonafed.problem.claims import Claim
from bonafed.problem.client_means import row_shares
from bonafed.problem.conic_form import member, public_shape, sample_radii
from bonafed.problem.plausible import Claims, of_curvature, of_cut, of_sizes
from bonafed.problem.problem import Problem
from bonafed.rounds import Done, Each, Max, Round, Stop, Sum, Version, record
from bonafed.solvers.conic.bundle_master import Index, Master, Pieces, minimise

SOON = 0.5  # of the tolerance: the predicted gap at which the server stands still
LATER = 0.25  # factor of that after a judgement that failed
JUDGED = 12  # failed judgements after which no progress is seen
NOTHING = 0.01  # of the predicted gap: a promise so small that it is worth no step
LONGER = 100.0  # step, over that which would undo the value at the first model
MOST_CURVATURES = 20_000_000  # numbers of all clients' second derivatives at the server
NEVER = -1
HEIGHTS, SLOPES = ("base", "level"), ("gradient", "gradient_level")  # of a cut


@record
class EvaluateFirst:
    """Ask a client for its first cuts, those at ``start`` or at the problem's first model, and for
    the sizes of its rows, weighted by ``prior`` (N,).

    Models of more than ``second_order`` numbers have no curvature in the answers.
    """

    prior: Annotated[Each, Form("N")]
    start: Annotated[Array, Form("D")] | None
    parts: parting.Parted
    second_order: int


@record
class EvaluateAt:
    """Ask a client for its cuts at ``w``."""

    w: Annotated[Version, Form("D")]
    parts: parting.Parted
    second_order: int


@record
class EvaluatedAt:
    """A client's risk at the model that it was asked for, as a cut of every part: radius level +
    sum_p base_p and the gradients, as in ``Evaluated``; and its sizes, 0 after the first answer.
    """

    base: Each  # (n, P)
    level: Each  # (n,)
    gradient: Each  # (n, P, D)
    gradient_level: Each  # (n, P)
    plus: Sum
    minus: Sum
    reach: Max
    target: Max
    square: Sum  # (n, d)
    curvature: Each | None = None  # (n, D, D) of the client's mean loss


@record
class AsyncBundleState:
    """The server's memory between answers."""

    w: Annotated[Array, Form("D")]  # the newest model, or the one that is judged
    cuts: server.Cuts
    # by client: the model of its last message, the turn in which that was made, the same of the
    # last answer
    sent: Annotated[Array, Form("N, D")]
    asked: Annotated[NDArray[np.int64], Form("N")]
    answered: Annotated[NDArray[np.int64], Form("N", least=NEVER)]
    weights: Annotated[Array, Form("N")]  # q of the last step
    first: Annotated[Array, Form("E")]  # (N,) risks at the first model, as far as they are known
    seen: bounds.Surveyed | None = None
    curvature: Annotated[Array, Form("N, D, D")] | None = None
    turn: Annotated[int, Form(rounds=0)] = 0
    fresh: int = 0  # answers since the last bound
    step: Annotated[float, Form(nan=True)] = math.nan
    shift: float = 1e-3  # of the curvature
    promised: float = 0.0  # the decrease that the last step promised
    bound: Extended = -math.inf
    duals: bounds.Duals | None = None
    judged: Annotated[Array, Form("D")] | None = None
    value: Extended = math.inf  # of the model judged best
    made: int = 0  # the turn in which w was
    standing: bool = False  # still at w, which looks good enough
    failed: Counter = 0  # judgements
    # the best, as the cuts predict, of the models that clients have answered
    best: Annotated[Array, Form("D")] | None = None
    # of the last program, where the next begins
    point: Annotated[Array, Form("V")] = field(default_factory=lambda: np.zeros(0))

    @property
    def known(self) -> NDArray[np.bool_]:
        """(N,) who has answered."""
        return self.answered > NEVER


@dataclass(frozen=True)
class AsyncBundle(base.Method):
    """The default algorithm for convex problems of few clients on engines whose clients answer at
    different times.

    It waits for nobody but to judge a model that it holds for optimal. Each client's gradients, and
    for smooth losses its D x D second derivatives, reach the server only and not as sums.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)); where no bound is
        provable, when all clients have answered a model from which a step promises a hundredth of
        half of that (``Stop.UNPROVEN``)
    max_rounds : a cap on the server's steps; a run that meets it is never called optimal
    cuts, least_rows : as of ``Bundle``
    keep : for how many answers of every client a cut is kept without a multiplier
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for risks over samples that are not convex, constraints, and settings out of range

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> clock = bf.VirtualClock(stragglers={"Old Mill": 10.0})
    >>> solution = bf.solve(problem, fed, algorithm=bf.AsyncBundle(), engine=clock)
    >>> bool(solution.certificate.relative_gap < 1e-3)
    True
    """

    tol: float = 1e-3
    atol: float = 0.0
    max_rounds: int = 1_000_000
    cuts: int = 30
    least_rows: int = 10
    keep: int = 30
    start: Array | None = None
    problem: Problem | None = None
    stateless: ClassVar[bool] = True
    mutates_state: ClassVar[bool] = True
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        predictor=needs.AFFINE,
        over_samples=needs.CONVEX_OF_ROWS,
        over_clients=needs.PROJECTION,
        regulariser=needs.CONES,
    )

    def __post_init__(self) -> None:
        for name in ("cuts", "least_rows", "keep"):
            base.check_count(name, getattr(self, name))

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {ask: self._answering(evaluate) for ask in (EvaluateFirst, EvaluateAt)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {EvaluatedAt: self.renew}

    @property
    def claims(self) -> Claims:
        return {EvaluatedAt: self._said}

    def _said(self, who: int, ask: EvaluateFirst | EvaluateAt, up: EvaluatedAt) -> Iterator[Claim]:
        """What an answer claims."""
        problem, D = self.concrete, up.gradient.shape[-1]
        if isinstance(ask, EvaluateFirst):
            yield of_sizes(problem, float(ask.prior[0]), up)
        w = _model(problem, ask, up.square.shape[1])
        parts = parting.stored(_parts(parting.parts_of(ask.parts), D, ask.second_order))
        yield from of_cut(problem, who, w, parts, up)
        yield from of_curvature(problem, w, up.curvature, 1.0)

    def server_start(self, n_clients: int) -> tuple[AsyncBundleState, Round]:
        prior, parts = member(self.concrete, n_clients), parting.WHOLE
        if parting.is_parted(self.concrete):  # where models have few numbers
            parts = server.parts_for(self.concrete, n_clients, self.cuts, self.least_rows)
        start = None if self.start is None else np.asarray(self.start, float)
        nobody, zeros = np.full(n_clients, NEVER), np.zeros(n_clients)
        empty, cuts = np.zeros((n_clients, 0)), server.no_cuts(0, n_clients, parts)
        state = AsyncBundleState(empty[0], cuts, empty, nobody + 1, nobody, prior, zeros)
        ask = EvaluateFirst(prior, start, parting.stored(parts), _second_order(n_clients))
        return state, Round(ask, None, 1)

    def renew(self, state: AsyncBundleState, ids: Ids, up: EvaluatedAt) -> Next[AsyncBundleState]:
        """Add the cuts of those who have answered; then judge, stand still, or step."""
        who = np.asarray(ids, np.int64)
        if not (np.isfinite(up.base).all() and np.isfinite(up.gradient).all()):
            raise ArithmeticError(
                "a client's answer is not finite: rescale the features, or give a start nearer to"
                " the optimum."
            )
        if not len(state.w):
            state = self._opened(state, up)
        state = self._extended(state, who, up)
        if state.fresh >= len(state.answered):
            state = self._bounded(state)
        state = self._held(state, who)
        if (state.answered == state.made).all():
            return self._judged(state, len(who))
        if state.turn >= self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        if not state.standing:
            state = self._stepped(self._retracted(state, who), len(who))
        return self._asking(state)

    def report(self, state: AsyncBundleState) -> dict:
        """``predicted`` is the objective at the newest model as the cuts predict it."""
        cuts = float(len(state.cuts.owner))
        if not len(state.w):
            return {"predicted": math.nan, "bound": -math.inf, "cuts": cuts}
        risks = self._predicted(state, state.w)
        value = self.value_at(state.w, risks)
        return {"predicted": value, **base.worst_client(risks), "bound": state.bound, "cuts": cuts}

    def answer(self, state: AsyncBundleState, concluded: Concluded | None = None) -> Answer:
        """The best, by its prediction, of the models that clients have answered."""
        if not len(state.w):
            return Answer(state.w)
        models = [*self._at(state), *([] if state.judged is None else [state.judged])]
        values = [self.value_at(w, self._predicted(state, w)) for w in models]
        return Answer(models[int(np.argmin(values))].copy(), state.duals)

    # -- the server's steps ------------------------------------------------------------------------

    def _asking(self, state: AsyncBundleState) -> tuple[AsyncBundleState, Round]:
        """Send the model to all who wait and have not answered it."""
        to = (state.answered == state.asked) & (state.answered != state.made)
        state.sent[to] = state.w
        state.asked[to] = state.made
        ask = EvaluateAt(state.w, state.cuts.parts, _second_order(len(to)))
        return state, Round(ask, tuple(np.flatnonzero(to).tolist()), 1)

    def _opened(self, state: AsyncBundleState, up: EvaluatedAt) -> AsyncBundleState:
        """The state once the numbers of features and coefficients are known."""
        n, problem, D = len(state.answered), self.concrete, up.gradient.shape[2]
        w = _first_model(problem, self.start, len(up.square))
        parts = _parts(parting.parts_of(state.cuts.parts), D, _second_order(n))
        curvature = np.zeros((n, D, D)) if parts.smooth else None
        state = replace(state, w=w, point=w, cuts=server.no_cuts(D, n, parts))
        state = replace(state, sent=np.tile(w, (n, 1)), curvature=curvature)
        return replace(state, first=sample_radii(problem, n) * self._least_levels(n, w))

    def _extended(self, state: AsyncBundleState, who: Index, up: EvaluatedAt) -> AsyncBundleState:
        """With the cuts, sizes and curvatures of those who have answered."""
        radii, seen = sample_radii(self.concrete, len(state.answered)), state.seen
        new = bounds.Surveyed(up.plus, up.minus, up.reach, up.target, up.square)
        first = ~state.known[who]
        if first.any():
            state.first[who[first]] = (radii[who] * up.level + up.base.sum(1))[first]
        if state.curvature is not None:
            state = replace(state, shift=self._shift(state, who, up))
            known(state.curvature)[who] = known(up.curvature)
        else:
            state = replace(state, step=self._step(state, who, up))
        state.answered[who] = state.asked[who]
        cut = parting.PartedCut(up.base, up.level, up.gradient, up.gradient_level)
        cuts = state.cuts.extended(who, state.sent[who], radii, cut)
        state = replace(state, turn=state.turn + 1, fresh=state.fresh + len(who))
        state = replace(state, seen=new if seen is None else seen.and_of(new), cuts=cuts)
        if math.isfinite(state.step):
            return state
        # many times the step that would undo the value along the gradient of those who answered
        # first: a model with the cuts of all bounds steps by itself
        weights = state.weights * state.known
        each = weights[state.cuts.owner] / max(weights.sum(), 1e-300)
        mean = each @ state.cuts.gradient / self._units(state)
        step = server.undoing(self._first_value(state), float(mean @ mean), LONGER)
        return replace(state, step=step)

    def _shift(self, state: AsyncBundleState, who: Index, up: EvaluatedAt) -> float:
        """The shift of the curvature: larger where mean losses exceed their second-order models by
        more than these bend.
        """
        old = state.known[who]
        who, base = who[old], up.base[old, 0]
        if not len(who):
            return state.shift
        last = state.cuts.newest[who, 0]
        moved = state.sent[who] - self._at(state, who)
        bend = np.einsum("nd,nde,ne->n", moved, known(state.curvature)[who], moved) / 2
        off = base - (state.cuts.base[last] + (state.cuts.gradient[last] * moved).sum(1) + bend)
        above, bent = (float(state.weights[who] @ v) for v in (off, bend))
        if abs(above) > bent and above > 1e-2 * self._progress(state).allowed():
            return max(4 * state.shift, 1e-2)
        return state.shift / 2

    def _step(self, state: AsyncBundleState, who: Index, up: EvaluatedAt) -> float:
        """The step: longer where the cuts have predicted the risks at the last models well, as far
        as those who answer count, and shorter where they have missed more than was promised.
        """
        old = state.known[who]
        risks = sample_radii(self.concrete, len(state.answered))[who] * up.level + up.base.sum(1)
        share, above = float(state.weights[who[old]].sum()), 0.0
        for i, risk in zip(who[old], risks[old], strict=True):
            above += state.weights[i] * (risk - self._predicted(state, state.sent[i])[i])
        if above <= 0.5 * share * state.promised:
            return state.step * 4.0**share
        return state.step * (0.6**share if above > 2 * share * state.promised else 1.0)

    def _held(self, state: AsyncBundleState, who: Index) -> AsyncBundleState:
        """Stand still at the oldest model of those just answered that looks good enough, or go on
        standing where that is older.
        """
        for i in who[np.argsort(state.answered[who], kind="stable")]:
            if state.standing and state.answered[i] >= state.made:
                break
            w = self._at(state, who=np.array([i]))[0]
            value = self.value_at(w, self._predicted(state, w))
            if value - state.bound <= self._close_enough(state, value):
                return replace(state, w=w.copy(), made=int(state.answered[i]), standing=True)
        return state

    def _judged(self, state: AsyncBundleState, fresh: int) -> Next[AsyncBundleState]:
        """End the run, where all have answered one model and its gap is within the tolerance."""
        radii, newest = sample_radii(self.concrete, len(state.answered)), state.cuts.newest
        risks = radii * state.cuts.level[newest[:, 0]] + state.cuts.base[newest].sum(1)
        value = self.value_at(state.w, risks)
        if value < state.value:
            state = replace(state, value=value, judged=state.w.copy())
        if state.fresh:
            state = self._bounded(state)
        if self._progress(state).within():
            return state, Done(Stop.OPTIMAL)
        standing, at = state.standing, replace(state, standing=False)
        state = self._stepped(at, fresh, move=True)
        nothing = state.promised <= NOTHING * self._close_enough(state, value)
        if math.isinf(state.bound) and nothing:
            return at, Done(Stop.UNPROVEN)
        if standing or nothing:  # else all have answered a model that was not held for optimal
            state = replace(state, failed=state.failed + 1)
        stop = self._progress(state).stop
        if stop is None and state.made == at.made:  # a program of the server was not solved
            stop = Stop.STALLED
        return self._asking(state) if stop is None else (at, Done(stop))

    def _bounded(self, state: AsyncBundleState) -> AsyncBundleState:
        """Prove a lower bound by the minimiser of the model where an optimum must lie."""
        problem, n, where = self.concrete, len(state.answered), self._region(state)
        state = replace(state, fresh=0)
        if math.isinf(where.size):
            return state
        pieces, cuts = self._pieces(state), state.cuts
        numbers = state.point, self._unit(state), 1e-9
        master = least(public_shape(problem, n), pieces, where, *numbers)
        if not master.solved:
            return state
        multipliers = master.multipliers[: len(cuts.owner)]
        state = replace(state, point=master.point, cuts=cuts.used(multipliers))
        given = multipliers, np.zeros(0), where, self._units(state)
        for bound, duals in server.proofs(problem, cuts, *given):
            if bound > state.bound:
                state = replace(state, bound=bound, duals=duals.used())
        return state

    def _stepped(self, state: AsyncBundleState, fresh: int, move: bool = False) -> AsyncBundleState:
        """The state after a step from the last model, where so many cuts are new.

        Where a step promises nothing without those who are late, the model stays as it is, unless
        it is to ``move`` whatever is promised.
        """
        master, weights, multipliers = self._program(state)
        if not master.solved:
            shift = max(4 * state.shift, 1e-2)
            return replace(state, point=state.w, shift=shift, step=state.step / 2)
        here = self.value_at(state.w, self._predicted(state, state.w))
        promised, nothing = here - master.value, NOTHING * self._close_enough(state, here)
        # without the cuts that had no multiplier for long, but for the newest of every client
        cuts = replace(state.cuts, idle=state.cuts.idle + 1).used(multipliers)
        keep = cuts.idle <= self.keep * max(1.0, len(state.answered) / fresh)
        keep[cuts.newest[cuts.newest > NEVER]] = True
        state = replace(state, cuts=cuts.kept(keep), weights=weights, promised=promised)
        state = replace(state, point=master.point)
        return replace(state, w=master.w, made=state.turn) if move or promised > nothing else state

    def _retracted(self, state: AsyncBundleState, who: Index) -> AsyncBundleState:
        """Take back what was too long a step, and shorten the next: the newest model gives way to
        the best that was answered where it is predicted to be further above that than that is above
        the bound. Second-order models know nothing of a loss whose slope changes further away.
        """
        models = [*self._at(state, who), *([] if state.best is None else [state.best])]
        values = [self.value_at(w, self._predicted(state, w)) for w in models]
        least, best = min(values), models[int(np.argmin(values))].copy()
        room = max(least - max(state.bound, 0.0), self._close_enough(state, least))
        if self.value_at(state.w, self._predicted(state, state.w)) <= least + room:
            return replace(state, best=best)
        shift, step = max(4 * state.shift, 1e-2), state.step / 2
        return replace(state, best=best, w=best, made=state.turn, shift=shift, step=step)

    def _program(self, state: AsyncBundleState) -> tuple[Master, Array, Array]:
        """The minimum of the model near the newest model of all clients, with the client weights
        (N,) and the multipliers (K,) of the cuts that it leads to.
        """
        problem, pieces, units = self.concrete, self._pieces(state), self._units(state)
        flips, n, K = pieces.part > 0, len(state.answered), len(state.cuts.owner)
        if state.curvature is None:
            metric = units**2 / state.step  # ||.||^2 / step in the units of the features
        else:
            metric, tangents = self._newton(state, units)
            pieces = server.with_tangents(pieces, flips, tangents)
        near: dict[str, Any] = {"centre": state.w, "near": state.point, "metric": metric}
        near |= {"offset": self._region(state).offset, "unit": self._unit(state), "accuracy": 1e-9}
        master = minimise(public_shape(problem, n), pieces, **near)
        if not master.solved:
            return master, state.weights, np.zeros(K)
        multipliers = master.multipliers
        weights = np.bincount(pieces.owner, multipliers * (pieces.part == 0), n)
        weights = problem.over_clients.project(weights)
        if state.curvature is not None:  # those of the mean losses, the last ones, are no cuts
            every = np.zeros(len(flips))
            every[flips] = multipliers[: flips.sum()]
            multipliers = every
        return master, weights, multipliers[:K]

    def _newton(self, state: AsyncBundleState, units: Array) -> tuple[Array, server.Tangents]:
        """The curvature of the weighted mean losses, and their values and gradients as they are to
        second order at the newest model; 0 of those who have not answered.
        """
        n, some, H = len(state.answered), state.known, known(state.curvature)
        value, slope = np.zeros(n), np.zeros((n, len(state.w)))
        last, moved = state.cuts.newest[:, 0], state.w - self._at(state)
        mine = np.flatnonzero(last > NEVER)
        bent = np.einsum("nde,ne->nd", H[mine], moved)
        slope[mine] = state.cuts.gradient[last[mine]] + bent
        value[mine] = state.cuts.base[last[mine]] + (moved * (slope[mine] - bent / 2)).sum(1)
        metric = np.einsum("n,nde->de", state.weights * some, H)
        more = (1e-8 + state.shift) * (server.mean_bend(metric, units) + 1 / state.step)
        return server.shifted(metric, units, more), server.Tangents(state.w, value, slope)

    # -- what the cuts say -------------------------------------------------------------------------

    def _at(self, state: AsyncBundleState, who: Index | None = None) -> Array:
        """The models of the last answers, (n, D), of these clients or all who have answered."""
        last = state.cuts.newest[:, 0]
        last = last[last > NEVER] if who is None else last[who]
        return state.cuts.points[state.cuts.point[last]]

    def _least_levels(self, n: int, w: Array) -> Array:
        """(N,) the least transport multipliers at a model."""
        shape = public_shape(self.concrete, n)
        size = float(norm(self.concrete.predictor.split(w)[0], shape.dual))
        return np.full(n, max(shape.floor, shape.lipschitz * size))

    def _predicted(self, state: AsyncBundleState, w: Array) -> Array:
        """(N,) the clients' risks at a model as their cuts, and second-order models, predict."""
        n, cuts, last = len(state.answered), state.cuts, state.cuts.newest
        mine = np.flatnonzero(last[:, 0] > NEVER)
        level = self._least_levels(n, w)
        level[mine] = np.maximum(level[mine], cuts.level[last[mine, 0]])
        heights = cuts.offset + cuts.gradient @ w + cuts.gradient_level * level[cuts.owner]
        parts = np.zeros((n, last.shape[1]))
        np.maximum.at(parts, (cuts.owner, cuts.part), heights)
        if state.curvature is not None:
            moved = w - self._at(state)
            bend = np.einsum("nd,nde,ne->n", moved, state.curvature[mine], moved) / 2
            newest = last[mine, 0]
            value = cuts.base[newest] + (cuts.gradient[newest] * moved).sum(1) + bend
            parts[mine, 0] = np.maximum(parts[mine, 0], value)
        return sample_radii(self.concrete, n) * level + parts.sum(1)

    def _pieces(self, state: AsyncBundleState) -> Pieces:
        """For the server's program, with 0 for who has not answered."""
        pieces, missing = state.cuts.pieces(self.concrete), np.flatnonzero(~state.known)
        owner, part = np.repeat(missing, pieces.parts), np.arange(pieces.parts)
        zeros = np.zeros((len(owner), len(state.w)))
        more = owner, np.tile(part, len(missing)), np.zeros(len(owner)), zeros
        return server.with_pieces(pieces, slice(None), *more)

    def _first_value(self, state: AsyncBundleState) -> float:
        """The objective at the first model, as far as it is known."""
        w = _first_model(self.concrete, self.start, len(known(state.seen).square))
        return self.value_at(w, state.first)

    def _region(self, state: AsyncBundleState) -> bounds.Region:
        """Where an optimum lies of the problem in which nobody who is unknown has a loss; what is
        below its value is below that of the problem.
        """
        value = min(state.value, self._first_value(state))
        return bounds.region(self.concrete, value, len(known(state.seen).square), state.seen)

    def _units(self, state: AsyncBundleState) -> Array:
        return units_of(self.concrete, known(state.seen).square)

    def _unit(self, state: AsyncBundleState) -> float:
        return max(abs(self._first_value(state)), 1e-300)

    def _progress(self, state: AsyncBundleState, value: float = math.inf) -> base.Progress:
        """Beside such a value, where that is less than the best."""
        value = min(value, state.value)
        least = 0.0 if value == 0 else state.bound  # no loss is negative
        counts = state.turn, self.max_rounds, state.failed, JUDGED
        return base.Progress(value, least, self.tol, self.atol, *counts, unknown=1.0)

    def _close_enough(self, state: AsyncBundleState, value: float) -> float:
        """The gap up to which a model looks good enough."""
        return SOON * LATER**state.failed * self._progress(state, value).allowed()


def evaluate(problem: Problem, ask: EvaluateFirst | EvaluateAt, data: Block) -> EvaluatedAt:
    """The cuts of every client of the block, each at its own model."""
    at, no = _model(problem, ask, data.n_features), np.zeros(len(data.index))
    models = np.ascontiguousarray(np.broadcast_to(at, (len(no), at.shape[-1])))
    seen = bounds.Surveyed(no, no, no, no, np.zeros((len(no), data.n_features)))
    if isinstance(ask, EvaluateFirst):
        seen = bounds.survey(data, ask.prior)
    parts = _parts(parting.parts_of(ask.parts), models.shape[1], ask.second_order)
    cuts, curvature = [], []
    for i, w in enumerate(models):
        one = data.part(np.array([i]))
        cuts.append(parting.parted_cut(problem, w, one, parts))
        if parts.smooth:
            prediction = problem.predictor.forward(w, one)
            bend = row_shares(problem, one) * problem.loss.curvature(prediction, one.y)
            curvature.append(problem.predictor.gram(bend, one))
    base, level = (np.concatenate([getattr(cut, name) for cut in cuts]) for name in HEIGHTS)
    slope, rise = (np.concatenate([getattr(cut, name) for cut in cuts]) for name in SLOPES)
    sizes = seen.plus, seen.minus, seen.reach, seen.target, seen.square
    bends = np.array(curvature) if parts.smooth else None
    return EvaluatedAt(base, level, slope, rise, *sizes, bends)


def _model(problem: Problem, ask: EvaluateFirst | EvaluateAt, n_features: int) -> Array:
    """(D,) the first model, or (n, D) those that clients were sent."""
    return _first_model(problem, ask.start, n_features) if isinstance(ask, EvaluateFirst) else ask.w


def _first_model(problem: Problem, start: Array | None, n_features: int) -> Array:
    return base.within_bounds(problem, base.with_start(problem, start, n_features))


def _second_order(n_clients: int) -> int:
    """The most numbers of a model for which so many clients send second derivatives."""
    return min(server.SECOND_ORDER, math.isqrt(MOST_CURVATURES // n_clients))


def _parts(parts: parting.Parts, dimension: int, second_order: int) -> parting.Parts:
    """How risks are parted where models have so many numbers."""
    return parts if dimension <= second_order else parts._replace(smooth=0)
