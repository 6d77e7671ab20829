"""Proximal bundle: cuts of the clients' risks, one program at the server, a proven gap.

    minimise over w:  max_{q in Q} sum_s q_s R_s(w) + h(w)

A client answers a model w with R_s(w) as joint cuts in w and its transport multiplier l_s, one for
every part of R_s (``bonafed.problem.parts``: groups of rows). The server keeps the cuts; their
maximum is a model of the objective from below. Each round it

    1. minimises the model + ||w - centre||_H^2 / 2 for the next trial point; the best point so far
       is the centre. Coordinates count in units of their features' root mean squares, so that
       scaling a feature changes nothing.
    2. where the model promises little, or was exact at the trial point, minimises it over a region
       that provably holds an optimum: by weak duality its multipliers prove a lower bound.

This is Kiwiel's proximal bundle method; joint cuts in (w, l) follow the dual form (4) of Bai, Wong,
Qiao, Ho. The level variant projects the centre onto {model <= bound + 0.3 (best - bound)} instead
of 1.

Convex constraints are cut by their owners as the risks are, and exact penalties keep their place in
the objective (``server.py``), so that the steps, the model and the bound are those above.

Where all rows are ranked together (``Problem(over_rows=...)``), thresholds are further numbers of
the model, with which the risk is a mean of rows (``problem/rank_levels.py``). ``Quadratic`` clients
are cut as well, but their cuts bound nothing from below: the run ends where cuts promise nothing
more, and its certificate has a bound from the multipliers and the clients' curvatures.

Where the loss is smooth, the mean losses F_s are not a matter for cuts: the model has their
gradients at the centre, H is sum_s q_s Hess F_s(centre), which clients send as one sum, and only
flips of labels are cut. A step is then one of Newton's method, and its multipliers, with the
gradients at the new point, balance up to second order: they prove a bound that needs no program.

With gradient_rounds=R the run begins with R rounds of ``MultiplierMethod`` at most: far from an
optimum, a step of Newton's method brings little for what it costs with many coefficients.

With metric="secant" clients send H until a step promises less than a tenth of the objective; from
then on H follows from the gradients (`secants`), and programs prove the bound.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.bundle import server
from bonafed.algorithms.federated.bundle.server import Evaluated, least
from bonafed.algorithms.federated.linearisation import Linearised, Weighted, take_part, units_of
from bonafed.algorithms.federated.multiplier_method import MultiplierMethod, MultiplierState
from bonafed.algorithms.method import Ids, Next, known
from bonafed.arrays import Array, Block
from bonafed.codec import Counter, Extended, Form
from bonafed.data.federation import Federation
from bonafed.problem import lower_bounds as bounds
from bonafed.problem import parts as parting
from bonafed.problem import plausible as claimed
from bonafed.problem.claims import Claim
from bonafed.problem.client_means import hessians
from bonafed.problem.conic_form import member, public_shape, sample_radii
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.losses import Quadratic
from bonafed.problem.lower_bounds import joined, of_duals
from bonafed.problem.problem import Problem, only_constrained
from bonafed.problem.rank_levels import lifted
from bonafed.problem.regularisers import Ball, Bounds
from bonafed.rounds import Done, Each, Round, Stop, record
from bonafed.solvers.conic.bundle_master import Master, Shape, minimise

# a program for a bound is solved where the model promises less than so many tolerances, where a
# step gains so much of what was promised, since the cuts are then exact there, and now and then
# where it promises less than this share of the objective: before, a bound is hardly one
PROMISE, KEPT, NOW_AND_THEN, CLOSE = 10.0, 0.8, 10, 0.01
LATE = 0.1  # of the objective that a step promises: from there on gradients tell how it bends
LEAST_SHIFT = 1e-3  # of the curvature that is not 0, relative to its mean
LEAST_BEND = 1e-11  # curvature relative to the largest diagonal entry: less counts as none
STALLS = 3  # steps in a row, each further than the last, that promise nothing
HERE = 1500  # numbers of a model up to which clients of this process bring D x D sums by default
MARGIN = 0.5  # of the tolerance: the certificate is charged for rounding, the server's bound is not


@record
class Evaluate:
    """Ask every client for its cuts at ``w``, one for every part of its risk.

    Where there are ``weights`` (N,) also about sum_s weights_s F_s, F_s the mean losses.
    """

    w: Annotated[Array, Form("D")]
    parts: parting.Parted
    weights: Annotated[Each, Form("N")] | None = None
    # for minorants of weights_s F_s by slopes moved from the first model to the second
    pair: Annotated[Array, Form("2, D")] | None = None
    # for which second derivative: "" for none, else "hessian" or "secant"
    bend: str = ""


@record
class BundleState:
    """The server's memory between rounds."""

    trial: Annotated[Array, Form("D")]  # the model being evaluated
    point: Annotated[Array, Form("V")]  # of the last program, where the next begins
    w: Annotated[Array, Form("D")]  # best model so far, the centre
    value: Extended  # its objective, with the penalties of constraints
    risks: Annotated[Array, Form("E")]  # its clients' risks, and the constraints' values
    bound: Extended  # best proven lower bound, -inf before there is one
    step: float
    # the decrease that the model predicts for the trial; NaN where its program was not solved
    predicted: Annotated[float, Form(infinite=True, nan=True)]
    rounds: Annotated[int, Form(rounds=-1)]
    stalled: Counter
    cuts: server.Cuts
    duals: bounds.Duals | None
    seen: bounds.Surveyed | None
    first: MultiplierState | None  # of the rounds of gradients, until cuts are known
    # of Newton's steps: the weights q of the last program, its multipliers of all cuts, the mean
    # losses and their curvature at the centre, and a shift of it
    weights: Annotated[Array, Form("N")]
    multipliers: Annotated[Array, Form("K|0")]
    tangents: server.Tangents | None = None
    curvature: Annotated[Array, Form("D, D")] | None = None
    shift: float = 0.0
    # what the clients' minorants are asked for: the centre, and where its Newton model balances
    pair: Annotated[Array, Form("2, D")] | None = None
    # of the constraints: the units in which they count, and the penalties of their violations
    sizes: Annotated[Array, Form("C")] = field(default_factory=lambda: np.zeros(0))
    penalties: Annotated[Array, Form("C")] = field(default_factory=lambda: np.zeros(0))

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.risks) - len(self.sizes)


@dataclass(frozen=True)
class Bundle(base.Method):
    """The default algorithm for convex problems of few coefficients, or without a smooth loss; for
    those of more coefficients beside a norm of the model, after rounds of gradients.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)); where no bound is
        provable, when the model predicts less than a tenth of that (``Stop.UNPROVEN``, never called
        optimal)
    max_rounds : a cap; a run that meets it is never called optimal
    variant : "proximal" or "level"
    metric : "auto": "hessian" where the loss is smooth, there are no constraints, and models have
        at most 1,500 numbers (500 over sites), else "identity". With "hessian" clients send their
        gradients and one D x D sum a round, and only flips of labels are cut. "secant", which
        "auto" is over sites, asks for as few sums as will do, so that these tell less of single
        rows: near the end second derivatives follow from the change of gradients, and where those
        of rows jump, as Huber's, they begin with the largest
    cuts : how many cuts all clients send in a round, about: one for each of so many groups of rows.
        More cuts need fewer rounds, and are sums of fewer rows
    least_rows : of a group; a client with fewer than twice as many sends one cut of all its rows.
        Sites may need more (``minimum_rows`` of their policy)
    gradient_rounds, gradient_tol : rounds of ``MultiplierMethod``, in which clients send risks and
        gradients only, come first: so many at most, and until they prove this relative gap, or
        ``tol`` where that is larger
    start : first model, zeros by default
    known : cuts of an earlier run (``solution.state.cuts``) on the same data with the same loss,
        label cost, norm and support; they hold for every radius, since a cut is joint in the model
        and the transport multiplier. Those of constraints are cut afresh

    Raises
    ------
    ValueError
        for nonconvex regularisers or risks over samples, metric="hessian" with a loss that has no
        second derivative, and gradient_rounds with a problem that ``MultiplierMethod`` does not
        take

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.Bundle())
    >>> bool(solution.certificate.relative_gap < 1e-5)
    True
    """

    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 300
    variant: Literal["proximal", "level"] = "proximal"
    metric: Literal["auto", "identity", "hessian", "secant"] = "auto"
    cuts: int = 30
    least_rows: int = 10
    gradient_rounds: int = 0
    gradient_tol: float = 0.0
    start: Array | None = None
    known: server.Cuts | None = None
    problem: Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        over_rows=needs.NO_OR_FEW_LEVELS,
        predictor=needs.AFFINE,
        over_samples=needs.CONVEX_OF_ROWS,
        over_clients=needs.PROJECTION,
        regulariser=needs.CONES,
        constraint=needs.CONVEX_CONSTRAINTS,
        with_sums=needs.OF_SUMS,
    )

    def __post_init__(self) -> None:
        base.check_count("cuts", self.cuts)
        base.check_count("least_rows", self.least_rows)
        base.check_count("gradient_rounds", self.gradient_rounds, 0)
        base.check_finite(self, "gradient_tol")

    def check_problem(self, problem: Problem, fed: Federation | None) -> None:
        """Raise ``ValueError`` where metric="hessian" has no second derivatives, or constraints
        that it does not take, and where gradient_rounds are for another problem.
        """
        if self.metric == "hessian" and problem.constrained:
            raise ValueError(
                "metric='hessian' takes no constraints, which are cut, got"
                f" {problem.in_words()}. Use metric='auto', or InteriorPoint()."
            )
        smooth = problem.over_rows is None and parting.has_smooth_part(problem)
        if self.metric == "hessian" and not smooth:
            raise ValueError(
                "metric='hessian' needs a smooth loss of one number whose flips of labels are"
                f" linear, such as Logistic(), got {problem.in_words()}. Use metric='identity'."
            )
        if self.gradient_rounds:
            setting = needs.Setting(1 if fed is None else fed.n_clients)
            refused = MultiplierMethod.requirements.refusal("MultiplierMethod", problem, setting)
            if refused is not None:
                raise ValueError(f"gradient_rounds={self.gradient_rounds}: {refused.text}. Use 0.")

    @cached_property
    def _gradients(self) -> MultiplierMethod:
        """Whose rounds come first."""
        most, tol = min(self.gradient_rounds, self.max_rounds), max(self.gradient_tol, self.tol)
        given: Any = {"start": self.start, "problem": self.problem}
        return MultiplierMethod(tol=tol, atol=self.atol, max_rounds=most, **given)

    @cached_property
    def _lifted(self) -> Problem:
        return lifted(super().concrete)

    @property
    def concrete(self) -> Problem:
        """The problem, with thresholds in the model where all rows are ranked together."""
        return self._lifted

    @property
    def _thresholds(self) -> int:
        """How many last numbers of a model are thresholds."""
        return getattr(self.concrete.predictor, "count", 0)

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        own = {bounds.Survey: take_part, Evaluate: self._answering(evaluate)}
        return self._gradients.on_client | own if self.gradient_rounds else own

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        own = {bounds.Surveyed: self.begin, Evaluated: self.improve}
        first = {Linearised: self.approach, Weighted: self.approach}
        return own | first if self.gradient_rounds else own

    @property
    def claims(self) -> claimed.Claims:
        own = {**claimed.surveys(self.concrete), Evaluated: self._said}
        return {**self._gradients.claims, **own} if self.gradient_rounds else own

    def _said(self, who: int, ask: Evaluate, up: Evaluated) -> Iterator[Claim]:
        """What an answer claims."""
        problem, w = self.concrete, ask.w
        weight = 0.0 if ask.weights is None else float(ask.weights[0])
        yield from claimed.of_cut(problem, who, w, ask.parts, up)
        yield from claimed.of_curvature(problem, w, up.curvature, weight)
        yield from claimed.of_means(problem, weight, up.mean_constant, up.mean_gradient)
        yield from claimed.of_limits(problem, w, "local", ask.parts, up.local, up.local_jacobian)
        yield from claimed.of_limits(problem, w, "shared", ask.parts, up.shared, up.shared_jacobian)

    def server_start(self, n_clients: int) -> tuple[BundleState, Round]:
        w, prior = base.start_or_empty(self.start), member(self.concrete, n_clients)
        w = np.append(w, np.zeros(self._thresholds)) if len(w) else w
        cuts = self.known or server.no_cuts(len(w), n_clients, parting.WHOLE)
        # of the value and the bound nothing is known
        nothing = math.inf, np.zeros(n_clients), -math.inf, 0.0, math.inf, 0, 0
        state = BundleState(w, w, w, *nothing, cuts, None, None, None, prior, np.zeros(0))
        return state, Round(bounds.Survey(prior))

    def begin(self, state: BundleState, ids: Ids, seen: bounds.Surveyed) -> Next[BundleState]:
        D = self.concrete.predictor.dimension(len(seen.square))
        w = base.within_bounds(self.concrete, state.trial if len(state.trial) else np.zeros(D))
        cuts = server.no_cuts(len(w), len(ids), self._parts(len(ids), len(w)))
        if self.known is not None:
            self._check_known(len(ids), len(w))
            mine = self.known.owner < len(ids)  # constraints had units of their own
            count = parting.parts_of(self.known.parts).count(self.concrete)
            cuts = self.known.kept(mine & (self.known.part < count))
        state = replace(state, trial=w, point=w, w=w, seen=seen, cuts=cuts)
        if self.gradient_rounds:
            first, _ = self._gradients.server_start(len(ids))
            first, asking = self._gradients.begin(first, ids, seen)
            return replace(state, first=first), asking
        return state, self._asking(state)

    def approach(
        self, state: BundleState, ids: Ids, up: Linearised | Weighted
    ) -> Next[BundleState]:
        """Take a round of gradients; after the last one go on from their best model and bound."""
        first, asking = self._gradients.improve(known(state.first), ids, up)
        state = replace(state, first=first, rounds=first.rounds)
        if isinstance(asking, Round):
            return state, asking
        same, unproven = self._gradients.tol == self.tol, asking.stop is Stop.UNPROVEN
        ended = self.ends(first.value, first.bound) or (same and unproven)
        if ended or first.rounds >= self.max_rounds:
            return state, asking
        if math.isfinite(first.value):
            w = base.within_bounds(self.concrete, first.w)
            state = replace(state, trial=w, point=w, w=w, weights=first.weights)
            state = replace(state, bound=first.bound, duals=self._gradients.answer(first).duals)
        return state, self._asking(state)

    def improve(self, state: BundleState, ids: Ids, up: Evaluated) -> Next[BundleState]:
        state = replace(state, first=None)
        radii = sample_radii(self.concrete, len(ids))
        state, (values, slopes), risks = self.found(state, up)
        value = self._objective(state, risks, state.trial)
        promised, before = state.predicted, state.value
        state = self._judge(state, value, risks, up, slopes.sum(1))
        level = np.append(up.level, np.zeros(len(values)))
        more = (up.base, values), (up.gradient, slopes), (up.gradient_level, np.zeros_like(values))
        base, gradient, gradient_level = map(np.concatenate, more)
        cut = parting.PartedCut(base, level, gradient, gradient_level)
        cuts = state.cuts.extended(np.arange(len(level)), state.trial[None], radii, cut)
        multipliers = state.multipliers
        if self.concrete.constrained:  # and no step is Newton's
            cuts = cuts.without_repeats()
        elif len(multipliers):
            multipliers = np.pad(multipliers, (0, len(cuts.owner) - len(multipliers)))
        state = replace(state, cuts=cuts, multipliers=multipliers, rounds=state.rounds + 1)
        state = self._bound(state, promised, before - state.value, up)
        if self.ends(state.value, state.bound) and self._violation(state) > server.MET:
            state = self._raised(state, state.risks[state.n_clients :] * state.sizes > server.MET)
        if (nothing := self._nothing_feasible(state)) is not None:
            return nothing
        if (stop := self._stop(state)) is not None:
            return self._near_by(state) if stop is Stop.UNPROVEN else state, Done(stop)
        state = self._next(state)
        if state.stalled >= STALLS and self._boundless(state):
            return self._near_by(state), Done(known(self._stop(state)))
        return state, self._asking(state)

    def gain(self, state: BundleState, up: Evaluated) -> float:
        """By how much the trial is better than the best model."""
        with_units, _, risks = self.found(state, up)
        return state.value - self._objective(with_units, risks, state.trial)

    def report(self, state: BundleState) -> dict:
        if state.first is not None:
            numbers = self._gradients.report(state.first)
            return {k: v for k, v in numbers.items() if k != "outer"} | {"cuts": 0}
        numbers = base.gap_report(state.value, state.bound, state.risks[: state.n_clients])
        # the best thresholds make less of the objective, and no client has a risk
        if self.concrete.over_rows is not None:
            numbers = {"value": state.value, "bound": state.bound, "gap": numbers["gap"]}
        if self.concrete.constrained:
            numbers["violation"] = self._violation(state) if len(state.sizes) else math.inf
        return numbers | {"cuts": len(state.cuts.owner)}

    def answer(self, state: BundleState, concluded: base.Concluded | None = None) -> base.Answer:
        """The model and what proves its bound."""
        if state.first is not None:
            return self._gradients.answer(state.first)
        duals = None if state.duals is None else state.duals.used()
        w = state.w[: len(state.w) - self._thresholds]
        if not only_constrained(self.concrete):
            return base.Answer(w, duals)
        multipliers = None if duals is None else of_duals(self.concrete, duals)
        if multipliers is not None and self._quadratic:  # they are proved with, and not the cuts
            multipliers = replace(multipliers, points=None, risk_cuts=None, limit_cuts=None)
        return base.Answer(w, multipliers=multipliers)

    # -- the server's steps ------------------------------------------------------------------------

    def _asking(self, state: BundleState) -> Round:
        if not parting.parts_of(state.cuts.parts).smooth:
            return Round(Evaluate(state.trial, state.cuts.parts))
        late = state.predicted <= LATE * abs(state.value) and not state.shift
        bend = "" if late and state.curvature is not None else "secant"
        bend = bend if self.metric == "secant" else "hessian"
        return Round(Evaluate(state.trial, state.cuts.parts, state.weights, state.pair, bend))

    def found(
        self, state: BundleState, up: Evaluated
    ) -> tuple[BundleState, tuple[Array, Array], Array]:
        """The cuts of all constraints at the trial, values (C, P) and gradients (C, P, D), in units
        that are those of the first; and the clients' risks there with these values.
        """
        problem, P, D = self.concrete, up.base.shape[1], len(state.trial)
        risks = sample_radii(problem, len(up.base)) * up.level + up.base.sum(1)
        if not problem.constrained:
            return state, (np.zeros((0, P)), np.zeros((0, P, D))), risks
        here = problem.constraint.point(problem, state.trial)
        parts = parting.parts_of(state.cuts.parts)
        held, slope = parting.parted_limits(problem.constraint.held, here, parts)
        own, shared = (up.local, up.local_jacobian), (up.shared, up.shared_jacobian)
        every = zip(own, shared, (held[0], slope[0]), strict=True)
        values, slopes = (
            joined(problem, np.asarray(known(mine)), np.asarray(known(together)), one)
            for mine, together, one in every
        )
        if not len(state.sizes):
            units = self._sizes(state)
            gradient = member(problem, len(risks)) @ up.gradient.sum(1)
            value = self._objective(state, risks, state.trial)
            sums = values.sum(1), slopes.sum(1) / units
            sizes = server.first_sizes(*sums, value, gradient / units)
            state = replace(state, sizes=sizes, penalties=np.full(len(sizes), server.FIRST))
        limits = values / state.sizes[:, None], slopes / state.sizes[:, None, None]
        return state, limits, np.append(risks, limits[0].sum(1))

    def _objective(self, state: BundleState, risks: Array, w: Array) -> float:
        """The objective with the penalties of constraints."""
        whole = server.penalised(self.concrete.over_clients, state.penalties, risks)
        return whole + self.concrete.penalty(w)

    def _near_penalties(self, state: BundleState, multipliers: Array) -> NDArray[np.bool_]:
        """(C,) whether the constraints' multipliers, of those of all cuts, come near penalties."""
        n, first = state.n_clients, state.cuts.part == 0
        sums = np.bincount(state.cuts.owner[first], multipliers[first], len(state.risks))
        return sums[n:] >= server.REACHED * state.penalties

    def _raised(self, state: BundleState, which: NDArray[np.bool_]) -> BundleState:
        """With larger penalties of these constraints."""
        if not which.any():
            return state
        larger = np.minimum(server.GROWS * state.penalties, server.MOST)
        state = replace(state, penalties=np.where(which, larger, state.penalties))
        return replace(state, value=self._objective(state, state.risks, state.w))

    def _nothing_feasible(self, state: BundleState) -> tuple[BundleState, Done] | None:
        """End the run where the cuts prove that no model meets all constraints: where their least
        sum of violations is positive, its multipliers do.
        """
        suspected = (state.penalties >= server.SUSPECTED).any()
        if not suspected or self._violation(state) <= server.MET or state.rounds % server.EVERY:
            return None
        cuts, n, sizes = state.cuts, state.n_clients, self._sizes(state)
        pieces = cuts.pieces(self.concrete)
        limits = pieces.owner >= n
        alone = replace(pieces, offset=np.where(limits, pieces.offset, 0.0))
        alone = replace(alone, gradient=np.where(limits[:, None], pieces.gradient, 0.0))
        alone = replace(alone, gradient_level=np.zeros(len(limits)))
        nothing = {"radius": np.zeros(n), "lipschitz": 0.0, "floor": 0.0, "l1": 0.0, "l2": 0.0}
        nothing["groups"] = None
        shape = replace(self._shape(state), penalties=np.ones(len(state.sizes)), **nothing)
        master = minimise(shape, alone, near=state.w)
        if not master.solved or master.value <= 1e-6 * np.abs(alone.offset).max(initial=0.0):
            return None
        multipliers, pull = np.where(limits, master.multipliers, 0.0), np.zeros(len(sizes))
        bounded = isinstance(self.concrete.regulariser, Ball | Bounds)
        for _ in range(0 if bounded else server.BALANCES):
            left = multipliers @ cuts.gradient
            multipliers = cuts.balanced(multipliers, left, bounds.Pull(pull[:0], pull[:0]), sizes)
        owned = cuts.by_point(multipliers, len(state.risks), pieces.parts)
        prior, limits = member(self.concrete, n), owned[:, n:] / state.sizes[:, None]
        duals = bounds.Duals(prior, cuts.points, owned[:, :n], parts=cuts.parts, limits=limits)
        return replace(state, duals=duals), Done(Stop.INFEASIBLE)

    def _violation(self, state: BundleState) -> float:
        """The largest violation of a constraint at the centre, as it is stated."""
        return float((state.risks[state.n_clients :] * state.sizes).max(initial=0.0))

    def _judge(
        self, state: BundleState, value: float, risks: Array, up: Evaluated, limits: Array
    ) -> BundleState:
        """Take a serious step or a null step; the step length follows the predicted decrease.

        ``limits`` (C, D) are the gradients of the constraints.
        """
        # the second derivative that clients sent, or the last one with the change of the gradients
        H, at = up.curvature, state.tangents
        if H is None and state.curvature is not None and at is not None:
            changed = state.weights @ (up.gradient[:, 0] - at.gradient)
            H = server.secants(state.curvature, (state.trial - at.w)[None], changed[None])
        newer: dict[str, Any] = {"curvature": H}
        if H is not None and parting.parts_of(state.cuts.parts).smooth:
            newer["tangents"] = server.Tangents(state.trial, up.base[:, 0], up.gradient[:, 0])
        serious = replace(state, w=state.trial, value=value, risks=risks, **newer)
        if math.isinf(state.value):  # a step that would undo the value along the first gradient
            # at the model 0 all risks tie: what is the worst weighting hangs on their rounding
            n, sizes = serious.n_clients, self._sizes(state)
            prior, met = member(self.concrete, n), np.where(risks[n:] > 0, state.penalties, 0.0)
            gradient = (prior @ up.gradient.sum(1) + met @ limits) / sizes
            step = server.undoing(value, float(gradient @ gradient))
            return replace(serious, step=float(sizes.max()) if self._quadratic else step)
        gain, predicted = state.value - value, state.predicted
        if gain >= 0.01 * predicted and gain > 0:
            longer = 4.0 if gain >= 0.5 * predicted else 2.0 if gain >= 0.25 * predicted else 1.0
            shift = state.shift / (8 if gain >= 0.5 * predicted else 4)
            shift = shift if shift >= LEAST_SHIFT else 0.0
            stalled = 0 if gain > self._nothing(state) else state.stalled
            return replace(serious, step=state.step * longer, shift=shift, stalled=stalled)
        if abs(gain) <= 1e-13 * abs(state.value):
            # as good within rounding: its curvature and its weights prove more than those before
            return replace(state, **newer)
        step = state.step * (0.6 if -gain > predicted else 1.0)
        # where it bends less, exact flips raise the model at the trial by half of what it promised
        if self._bends(state, value, risks, up) > 0.5 * max(predicted, self._nothing(state)):
            state = replace(state, shift=max(4 * state.shift, LEAST_SHIFT))
        return replace(state, step=step)

    def _bends(self, state: BundleState, value: float, risks: Array, up: Evaluated) -> float:
        """By how much the objective at the trial exceeds what it would be if mean losses were as
        their second-order model says: what new cuts of flips cannot mend, but a shorter step.
        """
        if state.curvature is None or state.tangents is None:
            return -math.inf
        moved = state.trial - state.tangents.w
        with np.errstate(invalid="ignore", over="ignore"):
            means = state.tangents.value + state.tangents.gradient @ moved
            model = self._objective(state, risks - up.base[:, 0] + means, state.trial)
            return value - model - float(moved @ state.curvature @ moved) / 2

    def _bound(
        self, state: BundleState, promised: float, gained: float, up: Evaluated
    ) -> BundleState:
        """Prove a lower bound: by the last step where it was one of Newton's, and by the minimiser
        of the model where an optimum must lie.
        """
        cuts, where = state.cuts, self._region(state)
        state = replace(state, cuts=replace(cuts, idle=cuts.idle + 1))
        if math.isinf(where.size):  # nothing bounds where an optimum lies: nothing can be proved
            return state
        if len(state.multipliers):
            state = self._by_step(state, up, where)
        if self.ends(state.value, state.bound):
            return state
        now_and_then = (
            self.variant == "level"  # which steps by the newest bound
            or (state.rounds % NOW_AND_THEN == 0 and promised <= CLOSE * abs(state.value))
            or state.rounds >= self.max_rounds
        )
        near = promised <= PROMISE * self.tol * abs(state.value)
        near |= math.isfinite(promised) and gained >= KEPT * promised
        steps_prove = len(state.multipliers) > 0 and self.metric != "secant"
        if not (now_and_then or (near and not steps_prove)):
            return state
        numbers = state.point, self._unit(state), self._finest
        master = least(self._shape(state), cuts.pieces(self.concrete), where, *numbers)
        if not master.solved:
            return state
        state = replace(state, cuts=state.cuts.used(master.multipliers))
        if state.tangents is None:
            state = replace(state, point=master.point)
        state = self._raised(state, self._near_penalties(state, master.multipliers))
        given = master.multipliers, state.sizes, where, self._sizes(state)
        for bound, duals in server.proofs(self.concrete, cuts, *given):
            state = self._proved(state, bound, duals)
            if self.ends(state.value, state.bound):
                break
        return state

    def _by_step(self, state: BundleState, up: Evaluated, where: bounds.Region) -> BundleState:
        """Prove a bound by the multipliers of the last step: its flips' cuts, and the mean losses'
        minorants, or their newest gradients where the loss has no conjugate.
        """
        cuts, means = state.cuts, None
        multipliers = state.multipliers.copy()
        if up.mean_constant is not None:
            sums = float(up.mean_constant), np.asarray(known(up.mean_gradient))
            means = server.MeanLosses(known(state.pair), state.weights, *sums)
        else:
            newest = (cuts.part == 0) & (cuts.point == len(cuts.points) - 1)
            multipliers[newest] = state.weights[cuts.owner[newest]]
        if (proof := cuts.proof(self.concrete, multipliers, state.sizes, means)) is None:
            return state
        duals, minorant, _ = proof
        return self._proved(state, bounds.lower_bound(self.concrete, minorant, where)[0], duals)

    def _near_by(self, state: BundleState) -> BundleState:
        """With what proves a bound on the models near by, where nothing bounds all of them."""
        cuts, units, best = state.cuts, self._sizes(state), -math.inf
        if only_constrained(self.concrete) or not state.w.any():
            return state
        where = bounds.nearby(self.concrete, state.w, state.value)
        numbers = state.point, self._unit(state), self._finest
        master = least(self._shape(state), cuts.pieces(self.concrete), where, *numbers)
        given = master.multipliers, state.sizes, where, units
        for bound, duals in server.proofs(self.concrete, cuts, *given) if master.solved else ():
            if bound > best:
                best, state = bound, replace(state, duals=duals)
        return state

    def _proved(self, state: BundleState, bound: float, duals: bounds.Duals) -> BundleState:
        """With the bound, where it is the best."""
        return replace(state, bound=bound, duals=duals) if bound > state.bound else state

    def _progress(self, value: float, bound: float) -> base.Progress:
        bound = 0.0 if value == 0 and not self._quadratic else bound  # no loss is negative
        return base.Progress(value, bound, self.tol, self.atol, least=base.TINY)

    def ends(self, value: float, bound: float, margin: float = MARGIN) -> bool:
        """Whether a run ends with these numbers before its cap: with room for the rounding that its
        certificate is charged for.
        """
        return self._progress(value, bound).within(margin)

    def _stop(self, state: BundleState) -> Stop | None:
        met = self._violation(state) <= server.MET
        progress = replace(self._progress(state.value, state.bound), margin=MARGIN, met=met)
        progress = replace(progress, rounds=state.rounds, cap=self.max_rounds)
        progress = replace(progress, still=state.stalled, patience=STALLS)
        stop = progress.stop
        if stop is not Stop.STALLED or (math.isnan(state.predicted) and not self._quadratic):
            return stop
        if self._quadratic:  # the certificate judges it: by curvatures, which no cut has
            return Stop.OPTIMAL
        # nothing bounds where an optimum lies: that nothing more is promised is no proof
        return Stop.UNPROVEN if math.isinf(state.bound) else Stop.STALLED

    def _next(self, state: BundleState) -> BundleState:
        """The next trial point, and the decrease that the model predicts there."""
        keep = server.KEEP_LIMITED if self.concrete.constrained else server.KEEP
        state, level = replace(state, cuts=state.cuts.kept(state.cuts.idle <= keep)), None
        if self.variant == "level" and math.isfinite(state.bound):
            level = state.bound + 0.3 * (state.value - state.bound)
        state, master, metric = self._solved(state, level)
        if not master.solved:
            # the centre once more, with a shorter step
            state = replace(state, trial=state.w, point=state.w, step=state.step * 0.5, pair=None)
            state = replace(state, predicted=math.nan, multipliers=np.zeros(0))
            shift = max(4 * state.shift, LEAST_SHIFT)
            return replace(state, shift=shift, stalled=state.stalled + 1)
        multipliers, value = master.multipliers, master.value
        if state.tangents is not None:
            state, multipliers, value = self._newton(state, state.tangents, master, metric)
        if self._quadratic:
            proof = state.cuts.proof(self.concrete, multipliers, state.sizes)
            state = replace(state, duals=None if proof is None else proof[0])
        state = replace(state, cuts=state.cuts.used(multipliers))
        predicted = state.value - value if level is None else state.value - level
        # the model is exact near the centre: step further away
        if predicted <= self._nothing(state):
            further = replace(state, step=state.step * 10, stalled=state.stalled + 1)
            further = replace(further, predicted=max(predicted, 0.0))
            if further.stalled < STALLS and self._boundless(state):
                return self._next(further)
            return replace(further, trial=master.w)
        if level is None and predicted <= self.tol * abs(state.value):
            state = replace(state, step=state.step * 3)
        return replace(state, trial=master.w, predicted=predicted)

    def _solved(self, state: BundleState, level: float | None) -> tuple[BundleState, Master, Array]:
        """The minimiser of the model near the centre, and the metric of that.

        It is computed again as finely as can be where the predicted decrease is not larger than the
        accuracy, and with larger penalties where multipliers come near them.
        """
        tangents, units = state.tangents, self._sizes(state)
        pieces = state.cuts.pieces(self.concrete)
        metric = units**2 / state.step  # ||.||^2 / step in the units of the features
        if (H := state.curvature) is not None:
            # where it bends nothing, a thousandth of that of steps without curvature
            shift = state.shift
            more = (1e-8 + shift) * server.mean_bend(H, units) + (1e-3 + shift) / state.step
            metric = server.shifted(H, units, more)
        if tangents is not None:
            pieces = server.with_tangents(pieces, state.cuts.part > 0, tangents)
        accuracy, free = self._accuracy(state), self.concrete.predictor.intercept
        given: dict[str, Any] = {"centre": state.w if tangents is None else tangents.w}
        given |= {"metric": metric, "level": level}
        while True:
            given |= {"offset": self._region(state).offset if free else math.inf}
            given |= {"near": state.point, "unit": self._unit(state), "accuracy": accuracy}
            master = minimise(self._shape(state), pieces, **given)
            if master.solved:
                state = replace(state, point=master.point)
                promised = state.value - master.value
                if self._finest < accuracy and promised <= accuracy * abs(state.value):
                    accuracy = self._finest
                    continue
            most = (state.penalties >= server.MOST).any()
            if tangents is not None or not master.solved or most:
                return state, master, metric
            near = self._near_penalties(state, master.multipliers)
            if not near.any():
                return state, master, metric
            state = self._raised(state, near)

    def _newton(
        self, state: BundleState, tangents: server.Tangents, master: Master, metric: Array
    ) -> tuple[BundleState, Array, float]:
        """After a step of Newton's method: with its client weights and multipliers, the multipliers
        of all cuts, and the value of the second-order model.
        """
        n, moved = state.n_clients, master.w - tangents.w
        multipliers = np.zeros(len(state.cuts.owner))
        multipliers[state.cuts.part > 0] = master.multipliers[:-n]
        weights = self.concrete.over_clients.project(master.multipliers[-n:])
        value = master.value + float(moved @ metric @ moved) / 2
        state = replace(state, multipliers=multipliers, weights=weights)
        proves = state.value - value <= max(CLOSE, PROMISE * self.tol) * abs(state.value)
        pair = self._pair(state, moved) if proves else None
        return replace(state, pair=pair), multipliers, value

    def _boundless(self, state: BundleState) -> bool:
        """Whether nothing bounds where an optimum lies, and steps are those of the risks' cuts
        only: then a model that promises nothing need not be evaluated, and would prove nothing.
        """
        alone = state.tangents is None and not self.concrete.constrained
        return alone and math.isinf(self._region(state).size)

    def _shape(self, state: BundleState) -> Shape:
        return replace(public_shape(self.concrete, state.n_clients), penalties=state.penalties)

    @property
    def _finest(self) -> float:
        """The relative accuracy of a program that the tolerance needs."""
        return 1e-11 if self._quadratic else min(max(1e-3 * self.tol, 1e-11), 1e-9)

    def _accuracy(self, state: BundleState) -> float:
        """Of a trial point, relative: far finer than what the last one promised, and near the end
        of Newton's steps than what this one will.
        """
        promised = state.predicted / max(abs(state.value), 1e-300)
        if math.isnan(promised) or (state.tangents is None and math.isinf(promised)):
            return self._finest
        share, most = 1e-3, 1e-6
        if state.tangents is not None:
            share, most = min(1e-2, 0.1 * promised), 1e-3
        return max(self._finest, min(share * promised, most))

    def _nothing(self, state: BundleState) -> float:
        """A decrease so small that it counts as none.

        It is far below tol, and below rounding where a bound tells when to stop.
        """
        least = 0.01 if self._quadratic else 0.1  # which ends by this alone
        least = least * self.tol if math.isinf(state.bound) else 1e-14
        return least * max(abs(state.value), 1e-12)

    def _sizes(self, state: BundleState) -> Array:
        return units_of(self.concrete, known(state.seen).square)

    def _pair(self, state: BundleState, moved: Array) -> Array | None:
        """The centre, and the model where its gradients, by the curvature only, balance with the
        cuts' multipliers: the step, without what its shift and the accuracy of its program miss.
        """
        if self.metric == "secant" or not parting.has_shifted_slopes(self.concrete):
            return None
        at, H, sizes = known(state.tangents), known(state.curvature), self._sizes(state)
        gradient = state.weights @ at.gradient + H @ moved
        pair = np.stack([at.w, at.w + moved])
        means = server.MeanLosses(pair, state.weights, 0.0, gradient)
        proof = state.cuts.proof(self.concrete, state.multipliers, state.sizes, means)
        left, _ = bounds.unbalanced(self.concrete, known(proof)[1], self._region(state), sizes)
        pair[1] -= _least_squares(H / np.outer(sizes, sizes), left / sizes) / sizes
        return pair

    def _parts(self, n_clients: int, dimension: int) -> parting.Parts:
        """How risks are parted."""
        # constraints are parted where a row has one prediction
        limits = self.concrete.constrained and self.concrete.loss.targets in ("sign", "real")
        if not (parting.is_parted(self.concrete) or limits):
            return parting.WHOLE
        most = server.SECOND_ORDER if self.metric == "secant" else HERE
        small = self.variant == "proximal" and dimension <= most
        second_order = self.metric == "hessian" or (self.metric != "identity" and small)
        parts = server.parts_for(self.concrete, n_clients, self.cuts, self.least_rows)
        # ``Multipliers`` have no minorants of mean losses
        second_order &= not only_constrained(self.concrete)
        return parts if second_order else parts._replace(smooth=0)

    def _unit(self, state: BundleState) -> float:
        """A typical size of the objective, in which programs are solved."""
        if not self._quadratic:
            return max(abs(state.value), 1e-300)
        sizes = self._sizes(state)  # a quadratic objective is 0 at the model 0
        steep = ((state.cuts.gradient / sizes) ** 2).sum(1)[state.cuts.owner < state.n_clients]
        return max(abs(state.value), float(sizes.max() * steep.max(initial=0.0)), 1e-300)

    @property
    def _quadratic(self) -> bool:
        return isinstance(self.concrete.loss, Quadratic)

    def _check_known(self, n_clients: int, dimension: int) -> None:
        """Raise ``ValueError`` unless the known cuts are of such models and clients."""
        cuts = known(self.known)
        numbers, clients = cuts.points.shape[1], cuts.radii.shape[1]
        if numbers != dimension or clients != n_clients:
            raise ValueError(
                f"known holds cuts of models of {numbers} numbers from {clients} clients, needed"
                f" {dimension} numbers and {n_clients} clients: give cuts of a run on these data,"
                " or none."
            )
        if self.concrete.constrained and parting.parts_of(cuts.parts).smooth:
            raise ValueError(
                "known holds cuts of a run by second derivatives, and with constraints whole risks"
                " are cut: give cuts of a run with metric='identity', or none."
            )

    def _region(self, state: BundleState) -> bounds.Region:
        n = len(state.trial) - self.concrete.predictor.intercept
        return bounds.region(self.concrete, state.value, n, state.seen)


def evaluate(problem: Problem, ask: Evaluate, data: Block) -> Evaluated:
    """The answer of every client of the block."""
    parts, at = parting.parts_of(ask.parts), Point(problem, ask.w, data)
    cut = parting.parted_cut(problem, ask.w, data, parts)
    answer = Evaluated(cut.base, cut.level, cut.gradient, cut.gradient_level)
    if ask.weights is not None and ask.bend:
        bend = hessians(at, ask.weights, (), together=True, evenly=ask.bend == "secant")
        answer = replace(answer, curvature=bend)
    if problem.constrained:
        local, local_jacobian = parting.parted_limits(problem.local_constraint, at, parts)
        shared, shared_jacobian = parting.parted_limits(problem.constraint.coupled, at, parts)
        answer = replace(answer, local=local, local_jacobian=local_jacobian)
        answer = replace(answer, shared=shared, shared_jacobian=shared_jacobian)
    if ask.weights is None or ask.pair is None:
        return answer
    of = parting.shifted_minorants(problem, ask.pair, ask.weights, data)
    return replace(answer, mean_constant=of.constant, mean_gradient=of.gradient)


def over_sites(method: base.Method) -> base.Method:
    """The method that runs in place of another where clients are sites."""
    if isinstance(method, Bundle) and method.metric == "auto":
        return replace(method, metric="secant")
    return method


def _least_squares(H: Array, left: Array) -> Array:
    """The shortest x with H x = left to least squares, H positive semidefinite: along axes where H
    hardly bends, none of it is found.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    shifted = H.copy()
    shifted.ravel()[:: len(H) + 1] += LEAST_BEND * H.diagonal().max(initial=0.0)
    try:
        factor = cho_factor(shifted, lower=True, overwrite_a=True)
    except LinAlgError:
        return np.asarray(np.linalg.lstsq(H, left, rcond=LEAST_BEND)[0], float)
    x = cho_solve(factor, left)
    for _ in range(4):  # each takes the shift away along axes that bend more
        x += cho_solve(factor, left - H @ x)
    return x
