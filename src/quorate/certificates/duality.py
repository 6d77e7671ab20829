"""Primal value and proven lower bound of a convex problem, recomputed from (problem, data, w, duals) alone.

    value = R(F_1(w), ..., F_N(w)) + h(w)  >=  optimum  >=  bound

The duals name models and multipliers. Every client evaluates its own cuts at those models afresh and adds them up with
its multipliers; the sum is an affine minorant of the objective whatever produced the duals, and
``quorate.problem.bounds`` minimises it by weak duality. So a wrong dual can only weaken the bound, never falsify it.

Where predictions are not affine in w nothing bounds the optimum; ``certificates.stationary`` says what is stated then.

Each client keeps its rows. The server receives its risk and mean loss at w, and sums over all clients otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.arrays import Array, Block, Streams
from quorate.certificates.kkt import kkt_residuals
from quorate.certificates.stationary import Differentiate, Differentiated, chosen, differentiate, stationarity
from quorate.problem.bounds import (
    NOTHING,
    Duals,
    Minorant,
    Survey,
    Surveyed,
    feasible_duals,
    lower_bound,
    region,
    survey,
)
from quorate.problem.multipliers import Multipliers
from quorate.problem.predictors import is_affine
from quorate.problem.problem import Problem
from quorate.problem.ranked import is_provable, row_minorant
from quorate.problem.shape import check_affine, member, only_constrained
from quorate.problem.transport import worst_case
from quorate.rounds import Done, Each, Outcome, Round, Stop, Sum, record


@record
class Certify:
    """Ask for the risk at ``w`` and for the client's combination of its cuts at ``points``."""

    w: Array  # (D,)
    points: Array  # (K, D)
    multipliers: Each  # (N, K)
    rows: Each | None = None  # (1, n) multipliers of the one client's rows, see ``Duals``
    split: Each | None = None  # (1, n)


@record
class Certified:
    """The client's risk at w, and its multipliers' combination of cuts."""

    risk: Each  # (n,) F_i(w)
    loss: Each  # (n,) mean loss of its own rows at w
    level: Each  # (n,) the price of moving mass at w
    labels: Each  # (n,) transport cost that the worst distribution at w spends on labels or targets
    features: Each  # (n,) and on features
    constant: Sum  # (n,)
    slope: Sum  # (n, D)
    slope_level: Each  # (n,)
    residuals: Each | None = None  # (1, 3) of the optimality conditions, where ``split`` was sent


@record
class CertificateState:
    """The server's memory during certification."""

    seen: Surveyed | None
    certified: Certified | None
    differentiated: Differentiated | None = None


@dataclass(frozen=True)
class Certificate:
    """What is guaranteed, and the numbers that say so; None where a number does not apply.

    Attributes
    ----------
    value : the stated problem's objective at w, exactly
    bound : a proven lower bound on its optimal value
    gap, relative_gap : value - bound, and that over max(|value|, |bound|, 1e-12)
    weights : (N,) the adversary's weighting q* of the clients, in the set of weightings
    client_risks : (N,) F_i(w)
    client_losses : (N,) mean loss of the client's own rows at w
    client_levels : (N,) the adversary's price of moving mass
    client_labels, client_features : (N,) what its worst distribution spends on labels (targets) and on features
    feasibility : how far w and the weights are outside their sets
    stationarity : Euclidean length of the slope that the duals leave unbalanced; for a model that is not affine, of the
        slope of the weighted risks and the regulariser at w (``certificates.stationary``)
    complementarity : R(F(w)) - <weights, F(w)>, 0 when the weighting is worst for w
    consensus : largest distance of a client's copy from w, where the algorithm keeps copies
    residuals : (3,) for a rank risk that is not convex: how far w, the multipliers of its rows and their rank
        coordinates z are from the three conditions of optimality (``certificates.kkt``); stationarity is the larger of
        the first two, feasibility the third
    constraint_values, server_values, shared_values : with constraints c_i(w) (N, p), NaN where a client has none,
        c_0(w) (p_0,) and the sums over the clients (p_c,). Then feasibility is the largest violation, stationarity the
        Chebyshev distance of 0 from the Lagrangian's subdifferential, complementarity the largest |multiplier * value|
    gradient_scale : Chebyshev norm of the objective's gradient at w = 0: stationarity over it has no unit; for a model
        that is not affine the sum of the lengths of the clients' weighted slopes at w
    infeasible : where the multipliers prove that no model meets all constraints: a positive lower bound on their
        combination of the constraints, over all models
    """

    value: float
    bound: float | None
    gap: float | None
    relative_gap: float | None
    weights: Array
    client_risks: Array
    client_losses: Array
    client_levels: Array
    client_labels: Array
    client_features: Array
    feasibility: float
    stationarity: float | None
    complementarity: float | None
    consensus: float | None = None
    residuals: Array | None = None
    constraint_values: Array | None = None
    server_values: Array | None = None
    shared_values: Array | None = None
    gradient_scale: float | None = None
    infeasible: float | None = None

    def numbers(self) -> dict[str, Any]:
        """All entries as plain Python values, for storage and comparison."""
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}


@dataclass(frozen=True)
class Certification:
    """Two rounds with every client: sizes that bound the region of optima, then risks and cuts.

    Without a bound to prove: risks, then the slope of the weighted ones; ``weights`` (N,), or None: the worst.
    """

    w: Array
    duals: Duals | None = None
    problem: Problem | None = None
    weights: Array | None = None

    @property
    def on_client(self) -> dict:
        return {Survey: self.take_part, Certify: self.certify, Differentiate: self.differentiate}

    @property
    def on_server(self) -> dict:
        return {Surveyed: self.ask, Certified: self.finish, Differentiated: self.conclude}

    def client_start(self, data: Block) -> None:
        return None

    def server_start(self, n_clients: int) -> tuple[CertificateState, Round]:
        state = CertificateState(None, None)
        if not is_affine(self._problem.predictor):
            return state, Round(Certify(self.w, np.zeros((0, len(self.w))), np.zeros((n_clients, 0))))
        return state, Round(Survey(member(self._problem, n_clients)))

    def take_part(self, memory: None, ask: Survey, data: Block, rng: Streams) -> tuple[None, Surveyed]:
        return memory, survey(data, ask.prior)

    def ask(self, state: CertificateState, ids: Sequence[int], seen: Surveyed) -> tuple[CertificateState, Round]:
        none = Duals(np.zeros(len(ids)), np.zeros((0, len(self.w))), np.zeros((0, len(ids))))
        duals = self.duals or none
        own = [None if part is None else part[None] for part in (duals.rows, duals.split)]
        return replace(state, seen=seen), Round(Certify(self.w, duals.points, duals.multipliers.T.copy(), *own))

    def certify(self, memory: None, ask: Certify, data: Block, rng: Streams) -> tuple[None, Certified]:
        problem, n = self._problem, len(data.index)
        here = problem.cut(ask.w, data)
        prediction = problem.predictor.forward(ask.w, data)
        constant, slope, slope_level = np.zeros(n), np.zeros((n, len(ask.w))), np.zeros(n)
        for point, multiplier in zip(ask.points, ask.multipliers.T, strict=True):
            if not multiplier.any():
                continue
            cut = problem.cut(point, data)
            constant += multiplier * (cut.base - cut.slope @ point - cut.slope_level * cut.level)
            slope += multiplier[:, None] * cut.slope
            slope_level += multiplier * cut.slope_level
        residuals = None
        if ask.rows is not None and is_provable(problem):
            constant, slope = (np.asarray(part)[None] for part in row_minorant(problem, ask.rows[0], data))
        elif ask.rows is not None and ask.split is not None:
            residuals = kkt_residuals(problem, ask.w, ask.rows[0], ask.split[0], data)[None]
        risk = problem.radii(data) * here.level + here.base
        loss = data.mean(problem.loss.value(prediction, data.y))
        labels, features = self._spent(ask.w, data)
        return memory, Certified(risk, loss, here.level, labels, features, constant, slope, slope_level, residuals)

    def _spent(self, w: Array, data: Block) -> tuple[Array, Array]:
        problem, radius = self._problem, self._problem.radii(data)
        if not radius.any():
            return np.zeros(len(radius)), np.zeros(len(radius))
        worst = worst_case(w, data, problem.loss, problem.predictor, problem.over_samples, radius)
        return worst.label_cost, worst.feature_cost

    def finish(
        self, state: CertificateState, ids: Sequence[int], up: Certified
    ) -> tuple[CertificateState, Round | Done]:
        state = replace(state, certified=up)
        if is_affine(self._problem.predictor):
            return state, Done(Outcome(Stop.OPTIMAL, "certified."))
        return state, Round(Differentiate(self.w, chosen(self._problem, self.weights, up.risk)))

    def differentiate(self, memory: None, ask: Differentiate, data: Block, rng: Streams) -> tuple[None, Differentiated]:
        return memory, differentiate(self._problem, ask, data)

    def conclude(
        self, state: CertificateState, ids: Sequence[int], up: Differentiated
    ) -> tuple[CertificateState, Done]:
        return replace(state, differentiated=up), Done(Outcome(Stop.UNPROVEN, "measured."))

    def report(self, state: CertificateState) -> dict:
        return {}

    @property
    def _problem(self) -> Problem:
        if self.problem is None:
            raise ValueError("Certification needs problem=; use certify(problem, federation, w, duals).")
        return self.problem


def certify(
    problem: Problem, fed: Any, w: Array, duals: Any = None, engine: Any = None, copies: Array | None = None
) -> Certificate:
    """Recompute every guarantee of the model w; see ``certify_run`` for the parameters.

    With constraints ``duals`` are ``Multipliers``, see ``certificates.constrained.certify_constrained``.

    Raises
    ------
    ValueError
        w, points or multipliers that are not finite or do not fit the problem
    """
    if only_constrained(problem) or isinstance(duals, Multipliers):
        check_affine(problem, "a certificate of constraints")
        from quorate.certificates.constrained import certify_constrained

        return certify_constrained(problem, fed, w, duals, engine)[0]
    return certify_run(problem, fed, w, duals, engine, copies)[0]


def certify_run(
    problem: Problem, fed: Any, w: Array, duals: Duals | None, engine: Any = None, copies: Array | None = None
) -> tuple[Certificate, Any]:
    """The certificate and the engine's run of its two rounds.

    Parameters
    ----------
    problem, fed : as stated by the user
    w : (D,) the model
    duals : models and multipliers that prove a bound, or None: then only the value is stated
    engine : where the clients are; by default this process
    copies : (N, D) the clients' own copies of the model, where there are any

    Raises
    ------
    ValueError
        w, points or multipliers that are not finite or do not fit the problem
    """
    w = np.asarray(w, float)
    concrete, data = problem.at(fed)
    _check(concrete, data, w, duals)
    if not is_affine(concrete.predictor):
        own = None if duals is None else np.asarray(duals.weights, float)
        run = _run(Certification(w, None, concrete, own), data, engine)
        return measured(concrete, w, own, run.state, copies), run
    if duals is not None and duals.rows is None:
        duals = feasible_duals(concrete, duals.points, np.maximum(duals.multipliers, 0.0))
    run = _run(Certification(w, duals, concrete), data, engine)
    return conclude(concrete, w, duals, run.state.seen, run.state.certified, copies), run


def _run(certification: Certification, data: Any, engine: Any) -> Any:
    if engine is None:
        from quorate.engines.inprocess import InProcess

        engine = InProcess()
    run = engine.run(certification, data)
    if run.outcome.stop is Stop.INTERRUPTED:  # half a proof is none
        raise KeyboardInterrupt
    return run


def measured(
    problem: Problem, w: Array, own: Array | None, state: CertificateState, copies: Array | None = None
) -> Certificate:
    """The certificate of a model that no bound can be proved for; ``own`` (N,): the algorithm's weighting, or None."""
    assert state.certified is not None
    assert state.differentiated is not None
    plain = conclude(problem, w, None, None, state.certified, copies)
    weights = chosen(problem, own, plain.client_risks)
    left, scale = stationarity(problem, w, state.differentiated)
    return replace(
        plain,
        bound=None,
        gap=None,
        relative_gap=None,
        weights=weights,
        stationarity=left,
        gradient_scale=scale,
        feasibility=_distance(problem, weights) + outside(problem, problem.predictor.split(w)[0]),
        complementarity=problem.over_clients.worst(plain.client_risks).value - float(weights @ plain.client_risks),
    )


def conclude(
    problem: Problem, w: Array, duals: Duals | None, seen: Surveyed | None, up: Certified, copies: Array | None = None
) -> Certificate:
    """The certificate from what the clients answered; pure arithmetic."""
    worst = problem.over_clients.worst(up.risk)
    coefficients = problem.predictor.split(w)[0]
    value = worst.value + problem.penalty(w)
    weights = worst.weights if duals is None else duals.weights
    bound, stationarity = (0.0 if value <= NOTHING else None), None  # losses are nonnegative
    feasibility = _distance(problem, weights) + outside(problem, coefficients)
    if duals is not None and up.residuals is None and math.isfinite(value):
        minorant = Minorant(float(up.constant), up.slope, up.slope_level, weights)
        proven, stationarity = lower_bound(problem, minorant, region(problem, value, len(coefficients), seen))
        bound = proven if math.isfinite(proven) else bound
    residuals = None if up.residuals is None else up.residuals[0]
    if residuals is not None:
        stationarity, feasibility = float(residuals[:2].max()), feasibility + float(residuals[2])
    gap = None if bound is None else value - bound
    return Certificate(
        value=value,
        bound=bound,
        gap=gap,
        relative_gap=None if gap is None or bound is None else gap / max(abs(value), abs(bound), 1e-12),
        weights=weights,
        client_risks=up.risk,
        client_losses=up.loss,
        client_levels=up.level,
        client_labels=up.labels,
        client_features=up.features,
        feasibility=feasibility,
        stationarity=stationarity,
        complementarity=None if duals is None else worst.value - float(weights @ up.risk),
        consensus=None if copies is None else float(np.abs(copies - w).max()),
        residuals=residuals,
    )


def _distance(problem: Problem, weights: Array) -> float:
    if not hasattr(problem.over_clients, "project"):  # an own set with a maximiser alone: its own weights
        return 0.0
    return float(np.abs(problem.over_clients.project(weights) - weights).max())


def outside(problem: Problem, coefficients: Array) -> float:
    """How far the coefficients are outside the regulariser's domain."""
    inside = (
        problem.regulariser.prox(coefficients, 1e-300)
        if math.isinf(float(problem.regulariser.value(coefficients)))
        else coefficients
    )
    return float(np.abs(inside - coefficients).max(initial=0.0))


def _check(problem: Problem, fed: Any, w: Array, duals: Duals | None) -> None:
    D = problem.predictor.dimension(fed.n_features)
    if w.shape != (D,) or not np.isfinite(w).all():
        raise ValueError(f"w must be {D} finite numbers for this problem and these data, got shape {w.shape}.")
    if duals is None:
        return
    K = len(duals.points)
    shapes = (("points", duals.points, (K, D)), ("multipliers", duals.multipliers, (K, fed.n_clients)))
    if not is_affine(problem.predictor):
        shapes = (("weights", np.asarray(duals.weights), (fed.n_clients,)),)
    for name, array, shape in shapes:
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(f"duals.{name} must be finite with shape {shape}, got {array.shape}.")
    for name, array in (("rows", duals.rows), ("split", duals.split)):
        if array is not None and (fed.n_clients != 1 or array.shape != (fed.sizes[0],) or not np.isfinite(array).all()):
            raise ValueError(
                f"duals.{name} must be finite, one number for each row of the only client, got shape {array.shape} for "
                f"{fed.n_clients} clients of {[int(n) for n in fed.sizes[:3]]} rows."
            )
