"""Proximal bundle: one cut per client and round, a proven gap every round.

    minimise over w:  max_{q in Q} sum_s q_s R_s(w) + h(w)

A client answers a model w with R_s(w) as a joint cut in w and its transport multiplier l_s: D + 3
numbers, and neither a row nor the loss of a row. The server keeps all cuts; their maximum is a
model of the objective from below. Each round it

    1. minimises the model over a region that provably holds an optimum, which gives a lower bound
       by weak duality;
    2. minimises the model + ||w - centre||^2 / (2 step) for the next trial point; the best point so
       far is the centre. Coordinates count in units of their features' root mean squares, so that
       scaling a feature changes nothing.

This is Kiwiel's proximal bundle method with one cut per client; joint cuts in (w, l) follow the
dual form (4) of Bai, Wong, Qiao, Ho. The level variant projects the centre onto {model <= bound +
0.3 (best - bound)} instead of 2. A metric "hessian" replaces 1/step by sum_s q_s Hess F_s(centre),
which clients send as one sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from quorate.algorithms.federated.linearisation import take_part
from quorate.algorithms.method import (
    Answer,
    Concluded,
    Method,
    at_cap,
    gap_report,
    known,
    proven_optimum,
    start_or_empty,
    within_bounds,
)
from quorate.algorithms.requirements import AFFINE, CONIC, CONVEX_OF_ROWS, PROJECTION, Requirements
from quorate.algorithms.settings import check_choice
from quorate.arrays import Array, Block, Streams
from quorate.codec import Counter, Extended, Form
from quorate.data.federation import Federation
from quorate.problem.conic_form import member, public_shape, sample_radii
from quorate.problem.lower_bounds import (
    Duals,
    Minorant,
    Region,
    Survey,
    Surveyed,
    feasible_duals,
    lower_bound,
    region,
)
from quorate.problem.problem import Problem
from quorate.rounds import Done, Each, Outcome, Round, Stop, Sum, record
from quorate.solvers.conic.bundle_master import Index, Master, Pieces, minimise

# rounds a cut may stay without a multiplier before it is dropped: the master's cost is that of its
# cuts
KEEP = 2


@record
class Evaluate:
    """Ask every client for its cut at ``w``.

    Where there are ``weights`` (N,) also for the curvature of sum_s weights_s F_s.
    """

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")] | None = None


@record
class Evaluated:
    """A client's worst-case risk at w as a cut: radius level + base, and its gradients.

    These are in the model and in the transport multiplier ``level``.
    """

    base: Each
    level: Each
    gradient: Each  # (n, D)
    gradient_level: Each
    curvature: Sum | None = None  # (1, D, D) per block: sum_s weights_s Hess F_s(w)


@record
class Cuts:
    """The cuts that the server stores; arrays have length K, points are referred to by number."""

    owner: Annotated[Index, Form("K", below="N")]  # client
    point: Annotated[Index, Form("K", below="P")]  # row of points
    base: Annotated[Array, Form("K")]
    level: Annotated[Array, Form("K")]
    gradient: Annotated[Array, Form("K, D")]
    gradient_level: Annotated[Array, Form("K")]
    idle: Annotated[Index, Form("K")]  # rounds without a multiplier
    points: Annotated[Array, Form("P, D")]


@record
class BundleState:
    """The server's memory between rounds."""

    trial: Annotated[Array, Form("D")]  # the model being evaluated
    w: Annotated[Array, Form("D")]  # best model so far, the centre
    value: Extended  # its objective
    risks: Annotated[Array, Form("N")]  # its clients' risks
    bound: Extended  # best proven lower bound, -inf before there is one
    step: float
    # the decrease that the model predicts for the trial; NaN where its program was not solved
    predicted: Annotated[float, Form(infinite=True, nan=True)]
    rounds: Annotated[int, Form(rounds=-1)]
    stalled: Counter
    cuts: Cuts
    duals: Duals | None
    curvature: Annotated[Array, Form("D, D")] | None
    seen: Surveyed | None


@dataclass(frozen=True)
class Bundle(Method):
    """The default algorithm for convex problems.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)); where no bound is
        provable, when the model predicts less than a tenth of that (``Stop.UNPROVEN``, never called
        optimal)
    max_rounds : a cap; a run that meets it is never called optimal
    variant : "proximal" or "level"
    metric : "identity" or "hessian" (smooth losses; clients also send one D x D sum a round)
    start : first model, zeros by default
    known : cuts of an earlier run (``solution.state.cuts``) on the same data with the same loss,
        label cost, norm and support; they hold for every radius, since a cut is joint in the model
        and the transport multiplier

    Raises
    ------
    ValueError
        for nonconvex regularisers or risks over samples, and metric="hessian" with a loss that has
        no second derivative

    Examples
    --------
    >>> import quorate as qr
    >>> from quorate.data import load
    >>> fed = load.hospitals()
    >>> problem = qr.Problem(qr.Logistic(), regulariser=qr.L2(0.1))
    >>> solution = qr.solve(problem, fed, algorithm=qr.Bundle())
    >>> bool(solution.certificate.relative_gap < 1e-5)
    True
    """

    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 300
    variant: str = "proximal"
    metric: str = "identity"
    start: Array | None = None
    known: Cuts | None = None
    problem: Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[Requirements] = Requirements(
        predictor=AFFINE, over_samples=CONVEX_OF_ROWS, over_clients=PROJECTION, regulariser=CONIC
    )

    def __post_init__(self) -> None:
        check_choice(self, variant=("proximal", "level"), metric=("identity", "hessian"))

    def check_problem(self, problem: Problem, fed: Federation | None) -> None:
        """Raise ``ValueError`` where metric="hessian" has no second derivatives."""
        if self.metric == "hessian" and not (
            problem.loss.smooth and hasattr(problem.predictor, "gram")
        ):
            raise ValueError(
                "metric='hessian' needs a smooth loss of one number, got"
                f" {type(problem.loss).__name__}. Use metric='identity'."
            )

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Survey: take_part, Evaluate: self.evaluate}

    def evaluate(
        self, memory: None, ask: Evaluate, data: Block, rng: Streams
    ) -> tuple[None, Evaluated]:
        cut = self._problem.cut(ask.w, data)
        curvature = None
        if ask.weights is not None:
            prediction = self._problem.predictor.forward(ask.w, data)
            share = self._problem.row_weights(self._problem.loss.value(prediction, data.y), data)
            bend = ask.weights[:, None] * share * self._problem.loss.curvature(prediction, data.y)
            curvature = self._problem.predictor.gram(bend, data)[None]
        return memory, Evaluated(cut.base, cut.level, cut.gradient, cut.gradient_level, curvature)

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Surveyed: self.begin, Evaluated: self.improve}

    def server_start(self, n_clients: int) -> tuple[BundleState, Round]:
        w = start_or_empty(self.start)
        nowhere = np.zeros(n_clients)
        cuts = self.known or no_cuts(len(w))
        state = BundleState(
            w, w, math.inf, nowhere, -math.inf, 0.0, 0.0, 0, 0, cuts, None, None, None
        )
        return state, Round(Survey(member(self._problem, n_clients)))

    def begin(
        self, state: BundleState, ids: Sequence[int], seen: Surveyed
    ) -> tuple[BundleState, Round]:
        w = (
            state.trial
            if len(state.trial)
            else np.zeros(self._problem.predictor.dimension(len(seen.square)))
        )
        w = within_bounds(self._problem, w)
        if self.known is not None and (
            self.known.points.shape[1:] != w.shape or max(self.known.owner) >= len(ids)
        ):
            raise ValueError(
                f"known holds cuts of models of {self.known.points.shape[1]} numbers from"
                f" {max(self.known.owner) + 1} clients, needed {len(w)} numbers and {len(ids)}"
                " clients: give cuts of a run on these data, or none."
            )
        state = replace(state, trial=w, w=w, seen=seen, cuts=self.known or no_cuts(len(w)))
        return state, Round(Evaluate(w, self._weights(state)))

    def improve(
        self, state: BundleState, ids: Sequence[int], up: Evaluated
    ) -> tuple[BundleState, Round | Done]:
        risks = sample_radii(self._problem, len(ids)) * up.level + up.base
        worst = self._problem.over_clients.worst(risks)
        value = worst.value + self._problem.penalty(state.trial)
        state = self._judge(state, value, risks, up)
        state = replace(state, cuts=_extend(state.cuts, state.trial, up), rounds=state.rounds + 1)
        state = self._bound(state)
        outcome = self._outcome(state)
        if outcome is not None:
            return state, Done(outcome)
        state = self._next(state)
        return state, Round(Evaluate(state.trial, self._weights(state)))

    @property
    def exact(self) -> tuple[str, ...]:
        return ("objective", "worst_risk")

    def report(self, state: BundleState) -> dict:
        numbers = gap_report(state.value, state.bound, state.risks)
        return numbers | {"cuts": len(state.cuts.owner)}

    def answer(self, state: BundleState, concluded: Concluded | None = None) -> Answer:
        """The model and what proves its bound."""
        if state.duals is None:
            return Answer(state.w)
        used = state.duals.multipliers.max(1) > 0
        points, multipliers = state.duals.points[used], state.duals.multipliers[used]
        return Answer(state.w, replace(state.duals, points=points, multipliers=multipliers))

    # -- the server's steps ------------------------------------------------------------------------

    def _judge(self, state: BundleState, value: float, risks: Array, up: Evaluated) -> BundleState:
        """Take a serious step or a null step; the step length follows the predicted decrease."""
        if math.isinf(state.value):  # a step that would undo the value along the first gradient
            gradient = self._problem.over_clients.weights(risks) @ up.gradient / self._sizes(state)
            size = float(gradient @ gradient)
            step = value / size if min(value, size) > 1e-100 else 1.0  # flat: any length will do
            return replace(state, value=value, risks=risks, step=step, curvature=up.curvature)
        gain, predicted = state.value - value, state.predicted
        if gain >= 0.01 * predicted and gain > 0:
            step = state.step * (2.5 if gain >= 0.5 * predicted else 1.0)
            stalled = 0 if gain > self._nothing(state) else state.stalled
            state = replace(state, w=state.trial, value=value, risks=risks, step=step)
            return replace(state, curvature=up.curvature, stalled=stalled)
        return replace(state, step=state.step * (0.6 if -gain > predicted else 1.0))

    def _bound(self, state: BundleState) -> BundleState:
        """Minimise the model where an optimum must lie; its multipliers prove a lower bound."""
        cuts, where, n = state.cuts, self._region(state), len(state.risks)
        # nothing bounds where an optimum lies: no program could prove anything
        if math.isinf(where.size):
            return replace(state, cuts=replace(cuts, idle=cuts.idle + 1))
        shape = public_shape(self._problem, n)
        master = minimise(
            shape, _pieces(cuts), size=where.size, offset=where.offset, unit=_unit(state)
        )
        proof = self._minorant(cuts, master, n) if master.solved else None
        if proof is None:
            return state
        duals, minorant = proof
        bound, _ = lower_bound(self._problem, minorant, where)
        state = replace(state, cuts=_used(replace(cuts, idle=cuts.idle + 1), master))
        return replace(state, bound=bound, duals=duals) if bound > state.bound else state

    def _minorant(
        self, cuts: Cuts, master: Master, n_clients: int
    ) -> tuple[Duals, Minorant] | None:
        multipliers = np.zeros((len(cuts.points), n_clients))
        multipliers[cuts.point, cuts.owner] = master.multipliers
        if not multipliers.sum() > 0:
            return None
        duals = feasible_duals(self._problem, cuts.points, multipliers)
        mu, pieces = duals.multipliers[cuts.point, cuts.owner], _pieces(cuts)
        level = np.bincount(cuts.owner, mu * cuts.gradient_level, n_clients).astype(float)
        return duals, Minorant(float(mu @ pieces.offset), mu @ cuts.gradient, level, duals.weights)

    def _outcome(self, state: BundleState) -> Outcome | None:
        done = f"{state.rounds + 1} rounds"  # those of cuts, and the first, which asks for sizes
        if state.value == 0:
            return Outcome(Stop.OPTIMAL, f"objective 0 after {done}, and no loss is negative.")
        gap, scale = state.value - state.bound, max(abs(state.value), abs(state.bound))
        if math.isfinite(scale) and gap <= max(self.atol, self.tol * max(scale, 1e-12)):
            return proven_optimum(state.value, state.bound, done, self.tol)
        if state.rounds >= self.max_rounds:
            if math.isinf(state.bound):
                how = (
                    "no bound is provable, and the cuts still predict a decrease of"
                    f" {state.predicted:.2e}"
                )
            else:
                how = f"proven gap {gap:.2e}, relative {gap / scale:.2e} > tol {self.tol:g}"
            return Outcome(
                Stop.MAX_ROUNDS,
                f"{at_cap(self.max_rounds, state.rounds + 1)}; {how}: raise max_rounds or tol.",
            )
        if state.stalled >= 3:
            if math.isnan(state.predicted):
                return Outcome(
                    Stop.STALLED,
                    "the server's programs could not be solved, and nothing is claimed: rescale the"
                    " features, or state radii and strengths of the size of the data.",
                )
            if math.isinf(state.bound):
                return Outcome(
                    Stop.UNPROVEN,
                    f"the cuts predict no further decrease after {done}, but nothing"
                    " bounds where an optimum lies, so none is proven: add a regulariser such as"
                    " L2(1e-3) for a proven gap.",
                )
            return Outcome(
                Stop.STALLED,
                f"no progress within rounding at proven gap {gap:.2e}, relative {gap / scale:.2e}:"
                " accept it with atol or tol, or bring the features to similar sizes.",
            )
        return None

    def _next(self, state: BundleState) -> BundleState:
        """The next trial point, and the decrease that the model predicts there."""
        state = replace(state, cuts=_prune(state.cuts))
        offset = self._region(state).offset
        metric = self._sizes(state) ** 2 / state.step  # ||.||^2 / step in the units of the features
        if state.curvature is not None:
            metric = _positive(state.curvature)
        level = None
        if self.variant == "level" and math.isfinite(state.bound):
            level = state.bound + 0.3 * (state.value - state.bound)
        # the accuracy of a trial point; bounds come from ``_bound``
        accuracy = min(max(1e-3 * self.tol, 1e-11), 1e-9)
        options = {
            "metric": metric,
            "level": level,
            "offset": offset,
            "unit": _unit(state),
            "accuracy": accuracy,
        }
        master = minimise(
            public_shape(self._problem, len(state.risks)),
            _pieces(state.cuts),
            centre=state.w,
            **options,
        )
        if not master.solved:
            return replace(
                state,
                trial=state.w,
                predicted=math.nan,
                step=state.step * 0.5,
                stalled=state.stalled + 1,
            )
        state = replace(state, cuts=_used(state.cuts, master))
        predicted = state.value - master.value if level is None else state.value - level
        # the model is exact near the centre: step further away
        if predicted <= self._nothing(state):
            further = replace(state, step=state.step * 10, stalled=state.stalled + 1)
            return replace(further, trial=master.w, predicted=max(predicted, 0.0))
        if level is None and predicted <= self.tol * abs(state.value):
            state = replace(state, step=state.step * 3)
        return replace(state, trial=master.w, predicted=predicted)

    def _nothing(self, state: BundleState) -> float:
        """A decrease so small that it counts as none.

        It is far below tol, and below rounding where a bound tells when to stop.
        """
        return (0.1 * self.tol if math.isinf(state.bound) else 1e-14) * max(abs(state.value), 1e-12)

    def _sizes(self, state: BundleState) -> Array:
        """The units of distances: the root mean square of every feature, 1 for the intercept."""
        sizes = np.sqrt(known(state.seen).square)
        largest = sizes.max(initial=0.0)
        sizes = np.maximum(sizes, 1e-9 * largest) if largest > 0 else np.ones_like(sizes)
        return self._problem.predictor.units(sizes)

    def _weights(self, state: BundleState) -> Array | None:
        if self.metric == "identity":
            return None
        return self._problem.over_clients.weights(state.risks)

    def _region(self, state: BundleState) -> Region:
        n = len(state.trial) - self._problem.predictor.intercept
        return region(self._problem, state.value, n, state.seen)


def _positive(H: Array) -> Array:
    """The curvature with a shift that makes its eigenvalues positive."""
    return H + 1e-4 * max(1.0, float(np.trace(H)) / len(H)) * np.eye(len(H))


def _unit(state: BundleState) -> float:
    return max(abs(state.value), 1e-300)


def _pieces(cuts: Cuts) -> Pieces:
    at = np.einsum("kd,kd->k", cuts.gradient, cuts.points[cuts.point])
    return Pieces(
        cuts.owner,
        cuts.base - at - cuts.gradient_level * cuts.level,
        cuts.gradient,
        cuts.gradient_level,
    )


def no_cuts(dimension: int) -> Cuts:
    """The empty bundle."""
    none, empty, flat = np.zeros(0, np.intp), np.zeros(0), np.zeros((0, dimension))
    return Cuts(none, none, empty, empty, flat, empty, none, flat)


def _extend(cuts: Cuts, w: Array, up: Evaluated) -> Cuts:
    """All cuts and the clients' new ones at w."""
    n = len(up.base)
    new = {
        "owner": np.arange(n),
        "point": np.full(n, len(cuts.points)),
        "base": up.base,
        "level": up.level,
        "gradient": up.gradient,
        "gradient_level": up.gradient_level,
        "idle": np.zeros(n, np.intp),
        "points": w[None],
    }
    return Cuts(**{k: np.concatenate([getattr(cuts, k), part]) for k, part in new.items()})


def _used(cuts: Cuts, master: Master) -> Cuts:
    """Cuts that carry a multiplier are not idle."""
    return replace(
        cuts,
        idle=np.where(
            master.multipliers > 1e-5 * master.multipliers.max(initial=0.0), 0, cuts.idle
        ),
    )


def _prune(cuts: Cuts) -> Cuts:
    """Drop the cuts that no multiplier has needed for long."""
    keep = cuts.idle <= KEEP
    if keep.all():
        return cuts
    rows = {
        f: getattr(cuts, f)[keep]
        for f in ("owner", "base", "level", "gradient", "gradient_level", "idle")
    }
    used, point = np.unique(cuts.point[keep], return_inverse=True)
    return Cuts(**rows, point=point, points=cuts.points[used])
