"""The value and a proven lower bound of a convex problem, from (problem, data, w, duals) only.

    value = R(F_1(w), ..., F_N(w)) + h(w)  >=  optimum  >=  bound

The duals consist of models and multipliers. Every client evaluates its cuts at those models afresh
and adds them up with its multipliers. The sum is an affine minorant of the objective wherever the
duals came from, and ``bonafed.problem.lower_bounds`` minimises it by weak duality. So a wrong dual
can only weaken the bound, never falsify it.

Where predictions are not affine in w no lower bound is known; `stationarity` says what the
certificate holds then.

Each client keeps its rows. The server receives the client's risk and mean loss at w, and otherwise
only sums over all clients. With a secure sum it receives no more of a client than its risk
(``CertifySums``); what else it needs follows from that.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.certificates.certificate import (
    Certificate,
    Differentiate,
    Differentiated,
    certificate,
    chosen,
    differentiate,
    kkt_residuals,
    outside,
    stationarity,
)
from bonafed.codec import Form
from bonafed.engines.engine import Engine, Run
from bonafed.engines.inprocess import InProcess
from bonafed.privacy.secure_sum.messages import option_of
from bonafed.problem import lower_bounds as proofs
from bonafed.problem import parts as parting
from bonafed.problem import plausible
from bonafed.problem.centring import centred_proof
from bonafed.problem.claims import Claim, Number
from bonafed.problem.conic_form import member, sample_radii
from bonafed.problem.constraints.constraint import Point, Stack, excess
from bonafed.problem.losses import value_and_gradient
from bonafed.problem.metadata import Data, Metadata
from bonafed.problem.plausible import of_combined_sums, of_each_risk, of_survey_sums
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem, checked_model
from bonafed.problem.rank_levels import WithThresholds, has_kinks, is_provable, lifted, row_minorant
from bonafed.problem.regularisers import Ball, Bounds, Zero
from bonafed.problem.wasserstein.ball import Near, worst_case
from bonafed.rounds import Algorithm, Done, Each, Next, Round, Stop, Sum, record

FAR = 1e6  # how many times as large as a model those are that a proof of infeasibility covers


@record
class Certify:
    """Ask for the risk at ``w`` and the combination of the client's cuts at ``points``."""

    w: Annotated[Array, Form("D")]
    points: Annotated[Array, Form("K, D")]
    # (N, K), or (N, K, P) of the parts of every client's risk
    multipliers: Annotated[Each, Form("N, K, ...")]
    # (1, n) multipliers of the one client's rows, see ``Duals``
    rows: Annotated[Each, Form("N, rows")] | None = None
    split: Annotated[Each, Form("N, ...")] | None = None  # (1, n)
    parts: parting.Parted | None = None  # how risks are parted, see ``Duals``
    pair: Annotated[Array, Form("2, D")] | None = None  # see ``Duals``
    barrier: Annotated[Array, Form("1")] | None = None  # the same
    path: Annotated[Array, Form("T, D")] | None = None  # the same
    penalties: Annotated[Array, Form("T")] | None = None
    # of the mean losses, where there is a pair or a path
    weights: Annotated[Each, Form("N")] | None = None
    radii: Annotated[Each, Form("N, J")] | None = None  # see ``Duals``
    # of the constraints' cuts: those of the clients, and of the sums over them
    local: Annotated[Each, Form("N, K, p, Q")] | None = None
    shared: Annotated[Array, Form("K, p_c, Q")] | None = None


@record
class Certified:
    """The client's risk at w, and its combination of cuts."""

    risk: Each  # (n,) F_i(w)
    loss: Each  # (n,) mean loss of its rows at w
    level: Each  # (n,) the transport multiplier at w
    labels: Each  # (n,) transport cost that the worst distribution at w spends on labels or targets
    features: Each  # (n,) and on features
    constant: Sum  # (n,)
    gradient: Sum  # (n, D)
    gradient_level: Each  # (n,)
    spread: Sum  # (n,) what rounding may have added to ``constant``
    size: Sum  # (n, D) and to ``gradient``
    residuals: Each | None = None  # (1, 3) of the optimality conditions, where ``split`` was sent
    # of the constraints at w, as in ``certificates.constrained.Weighed``
    local: Each | None = None  # (n, p)
    limits: Annotated[Each, Form(nan=True)] | None = None  # (n, p)
    shared: Sum | None = None  # (n, p_c)
    shared_limits: Sum | None = None  # (n, p_c)


@record
class CertifySums:
    """Ask for the risk at ``w`` and the sum of all clients' cuts, as a secure sum can carry it."""

    w: Annotated[Array, Form("D")]
    points: Annotated[Array, Form("K, D")]
    # of all clients: at every point a multiple of weights in Q
    multipliers: Annotated[Array, Form("K, N")]


@record
class CertifiedSums:
    """The client's risk at w, and sums over all clients, as in ``Certified``."""

    risk: Each  # (n,)
    constant: Sum  # (n,)
    gradient: Sum  # (n, D)
    spread: Sum  # (n,)
    size: Sum  # (n, D)


@dataclass(eq=False)
class _Combined:
    """The combination of every client's cuts, and what rounding may have added to it."""

    problem: Problem
    data: Block
    D: int  # numbers of a model
    clients: int = 0  # whose combinations are added up: as many additions more for every term
    sums: tuple[Array, Array] | None = None  # gradient and size, each (n, D); None: zeros

    def __post_init__(self) -> None:
        n = len(self.data.index)
        self.constant, self.gradient_level, self.spread = (np.zeros(n) for _ in range(3))

    @property
    def gradient(self) -> Array:
        """(n, D)."""
        return self._parts[0]

    @property
    def size(self) -> Array:
        """(n, D) what rounding may have added to ``gradient``, or (1, D) to its sum."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[Array, Array]:
        shape = len(self.data.index), self.D
        return (np.zeros(shape), np.zeros(shape)) if self.sums is None else self.sums

    def _grow(self, gradient: Array, size: Array) -> None:
        """Add to both; the first arrays are kept, which may be large."""
        if self.sums is None:
            self.sums = gradient, size
            return
        for total, part in zip(self.sums, (gradient, size), strict=True):
            if len(part) <= len(total):  # one row stands for all clients
                total[: len(part)] += part
            else:
                total += part.sum(0)

    def add(
        self, point: Array, multiplier: Array, parts: parting.Parts, radius: Array | None = None
    ) -> None:
        """Add the cuts at a point by their multipliers, (n,) or (n, P)."""
        if not multiplier.any():
            return
        problem, data, unit = self.problem, self.data, parting.unit_of_sums
        cut = parting.parted_cut(problem, point, data, parts, radius)
        mu = multiplier.reshape(cut.base.shape)  # one of every part, and no more
        slope, fee = np.matmul(mu[:, None], cut.gradient)[:, 0], (mu * cut.gradient_level).sum(1)
        self.constant += (mu * cut.base).sum(1) - slope @ point - fee * cut.level
        self.gradient_level += fee
        of = mu if parting.is_parted(problem) else mu[:, :1]  # the other parts are zero
        mine = parting.of_rows(problem, of, data, parts)
        # root mean squares of the rows' slopes times their multipliers, as their weights count them
        prediction = problem.predictor.forward(point, data)
        losses, slopes = value_and_gradient(problem.loss, prediction, data.y)
        steep = np.abs(slopes).reshape(*data.y.shape, -1).max(-1)
        if problem.radii(data).any():  # a flip turns a slope, and a move in a support is paid for
            moves = problem.over_samples.support is not None
            steep = np.maximum(steep, (2 if moves else 1) * problem.loss.lipschitz)
        weights = problem.row_weights(losses, data)
        heaviest = np.divide(weights, data.share, out=np.zeros_like(weights), where=data.share > 0)
        steep = np.sqrt((weights * (mine * steep) ** 2).sum(1) * heaviest.max(1))
        over_all = parts.smooth and mu[:, 0].any()
        rows = data.y.shape[1] if over_all else parting.rows_of_a_sum(data, parts)
        rows += self.clients
        size = parting.rounding_of_gradients(problem.predictor, data, steep, rows)
        self._grow(slope, size)
        self.spread += unit(rows) * (np.abs(mu * cut.base).sum(1) + np.abs(fee * cut.level))
        # of the gradient, and of the predictions at which the slopes are those
        turned = 1 + max(1.0, unit(len(point)) / unit(rows))
        self.spread[: len(size)] += turned * (size @ np.abs(point))

    def limit(self, stack: Stack, point: Point, multiplier: Array, parts: parting.Parts) -> None:
        """Add the cuts of constraints at a point by their multipliers (n, p, P)."""
        if not multiplier.any():
            return
        value, gradient = parting.parted_limits(stack, point, parts)
        multiplier = multiplier.reshape(value.shape)  # one of every part, and no more
        slope = np.einsum("npq,npqd->nd", multiplier, gradient)
        self.constant += np.einsum("npq,npq->n", multiplier, value) - slope @ point.w
        most, rows = np.abs(multiplier).max(2), parting.rows_of_a_sum(point.block, parts)
        rows += self.clients
        terms, unit = stack.magnitudes(point, most), parting.unit_of_sums
        self._grow(slope, unit(rows) * terms)
        sizes = np.abs(value).sum(2) + np.abs(np.nan_to_num(stack.limits(point.block)))
        self.spread += unit(rows) * (most * sizes).sum(1)
        self.spread += unit(rows + len(point.w)) * (terms @ np.abs(point.w))

    def include(self, mean_losses: parting.Minorants) -> None:
        """Add minorants of the mean losses."""
        self.constant += mean_losses.constant
        self.spread += mean_losses.spread
        self._grow(mean_losses.gradient, mean_losses.size)


@record
class CertificateState:
    """The server's state during certification; ``first`` is what the clients answer about the
    model.
    """

    seen: proofs.Surveyed | None
    first: Certified | None
    differentiated: Differentiated | None = None


@dataclass(frozen=True)
class Certification(plausible.AboutRows):
    """Two rounds with every client: sizes that bound the region of optima, then risks and cuts.

    Where no bound can be proved the rounds ask for risks, then for the gradient of the weighted
    risks; ``weights`` (N,) are its client weights, None the worst ones. ``sums``: the rounds are
    those of a server that reads sums over the clients, and one risk of each.
    """

    w: Array
    duals: proofs.Duals | None = None
    problem: Problem | None = None
    weights: Array | None = None
    sums: bool = False
    clients: int | None = None  # how many take part, where that is known

    stateless: ClassVar[bool] = True
    readable: ClassVar[Mapping[str, str]] = {
        "CertifiedSums.risk": "its mean loss at the final model, with what its Wasserstein ball"
        " adds"
    }

    def for_clients(self) -> "Certification":
        """The rounds only: model and duals come with the messages, and a zero stands for them."""
        return Certification(np.zeros(1), sums=self.sums)

    def at_client(self, problem: Problem, data: Metadata) -> "Certification":
        """The rounds with the clients' problem, with thresholds where all rows are ranked, and the
        number of clients that have agreed on it.
        """
        if self.sums and not parting.has_sums(problem):
            raise ValueError(
                "sums over clients would tell rows of this problem: nothing is answered. Ask for"
                " what Bundle() takes with secure sums."
            )
        return replace(self, problem=lifted(problem), clients=data.n_clients)

    @property
    def on_client(self) -> dict:
        if self.sums:
            sums = self._answering(parting.survey_sums, self.clients)
            return {parting.SurveySums: sums, CertifySums: self._answering(self.certify_sums)}
        steps = {proofs.Survey: proofs.answer_survey, Certify: self.certify}
        steps |= {Differentiate: differentiate}
        return {ask: self._answering(answer) for ask, answer in steps.items()}

    @property
    def on_server(self) -> dict:
        if self.sums:
            return {parting.SurveyedSums: self.ask_sums, CertifiedSums: self.finish_sums}
        return {proofs.Surveyed: self.ask, Certified: self.finish, Differentiated: self.conclude}

    @property
    def claims(self) -> plausible.Claims:
        problem = self.concrete
        if self.sums:
            return {CertifiedSums: lambda who, ask, up: plausible.of_risk(problem, ask.w, up.risk)}
        return {**plausible.surveys(problem), Certified: self._said}

    @property
    def sum_claims(self) -> plausible.SumClaims:
        problem = self.concrete

        def combined(ask: CertifySums, up: CertifiedSums, slack: float) -> Iterator[Claim]:
            yield from of_each_risk(problem, ask.w, up.risk)
            yield from of_combined_sums(problem, ask.w, ask.multipliers.sum(0), up.risk, up, slack)

        return {parting.SurveyedSums: partial(of_survey_sums, problem), CertifiedSums: combined}

    def _said(self, who: int, ask: Certify, up: Certified) -> Iterator[Claim]:
        """What a risk and a combination of cuts claim."""
        problem, w, beside = self.concrete, ask.w, {}
        for name in ("level", "labels", "features", "spread", "size"):
            yield Number(f"a number {name!r}", getattr(up, name))
        yield from plausible.of_certified(problem, who, w, up)
        yield from plausible.of_limits(problem, w, "local", None, up.local)
        yield from plausible.of_limits(problem, w, "shared", None, up.shared)
        most = np.max(ask.multipliers[0].sum(0), initial=0.0)
        weight = float(most if ask.weights is None else max(ask.weights[0], most))
        if ask.local is not None and ask.shared is not None:
            beside["local", len(w)] = ask.local[0].sum(0).mean(1)
            beside["shared", len(w)] = ask.shared.sum(0).mean(1)
        if ask.rows is None:
            yield from plausible.of_combined(problem, w, weight, beside, up)

    def server_start(self, n_clients: int) -> tuple[CertificateState, Round]:
        state = CertificateState(None, None)
        if self.sums:
            return state, Round(parting.SurveySums(member(self.concrete, n_clients)))
        if not is_affine(self.concrete.predictor):
            none = np.zeros((0, len(self.w))), np.zeros((n_clients, 0))
            return state, Round(Certify(self.w, *none))
        return state, Round(proofs.Survey(member(self.concrete, n_clients)))

    def ask(self, state: CertificateState, ids: Sequence[int], seen: proofs.Surveyed) -> Next:
        none = proofs.Duals(np.zeros(len(ids)), np.zeros((0, len(self.w))), np.zeros((0, len(ids))))
        duals = self.duals or none
        own = [None if part is None else part[None] for part in (duals.rows, duals.split)]
        more: dict[str, Array] = {}
        if duals.limits is not None:
            owned = duals.limits.swapaxes(0, 1)
            local, shared, _ = proofs.separated(self.concrete, len(ids), owned)
            more = {"local": local.swapaxes(1, 2).copy(), "shared": shared.swapaxes(0, 1).copy()}
        if duals.pair is not None:
            more |= {"pair": duals.pair, "weights": duals.weights}
        if duals.path is not None:
            more |= {"path": duals.path, "weights": duals.weights}
        of_rows = ("barrier", duals.barrier), ("penalties", duals.penalties)
        more |= {name: array for name, array in of_rows if array is not None}
        if duals.radii is not None:
            more["radii"] = duals.radii.T.copy()
        mine = duals.multipliers.swapaxes(0, 1).copy()
        ask = Certify(self.w, duals.points, mine, *own, parts=duals.parts, **more)
        return replace(state, seen=seen), Round(ask)

    def certify(self, problem: Problem, ask: Certify, data: Block) -> Certified:
        n, parts = len(data.index), parting.parts_of(ask.parts)
        here, prediction = problem.cut(ask.w, data), problem.predictor.forward(ask.w, data)
        combined = _Combined(problem, data, len(ask.w), self.clients or 0)
        for k, point in enumerate(ask.points):
            radius = None if ask.radii is None else ask.radii[:, k]
            combined.add(point, ask.multipliers[:, k], parts, radius)
            if ask.local is not None and ask.shared is not None:
                at, shared = Point(problem, point, data), np.tile(ask.shared[k], (n, 1, 1))
                combined.limit(problem.local_constraint, at, ask.local[:, k], parts)
                combined.limit(problem.constraint.coupled, at, shared, parts)
        if ask.pair is not None and ask.weights is not None:
            moved = ask.pair, ask.weights, data, ask.barrier, self.clients or 0
            combined.include(parting.shifted_minorants(problem, *moved))
        if ask.path is not None and ask.penalties is not None and ask.weights is not None:
            moved = ask.path, ask.penalties, ask.weights, data, self.clients or 0
            combined.include(parting.followed_minorants(problem, *moved))
        constant, gradient = combined.constant, combined.gradient
        residuals = None
        if ask.rows is not None and is_provable(problem):
            proven = row_minorant(problem, ask.rows[0], data)
            constant, gradient = (np.asarray(part)[None] for part in proven)
        elif ask.rows is not None and ask.split is not None:
            residuals = kkt_residuals(problem, ask.w, ask.rows[0], ask.split[0], data)[None]
        radius, loss = problem.radii(data), data.mean(problem.loss.value(prediction, data.y))
        # the transport multiplier, and the costs spent on labels and features
        level, labels, features = (np.zeros(n) for _ in range(3))
        if radius.any():
            near = ask.w, data, problem.loss, problem.predictor, problem.over_samples
            spread = worst_case(Near(*near, radius))
            level, labels, features = spread.level, spread.label_cost, spread.feature_cost
        limits: list[Array] = []
        if problem.constrained:
            at = Point(problem, ask.w, data)
            for stack in (problem.local_constraint, problem.constraint.coupled):
                limits += [stack.values(at), stack.limits(data)]
        worst = here.risks(radius), loss, level, labels, features
        own, sums = (constant, gradient, combined.gradient_level), (combined.spread, combined.size)
        return Certified(*worst, *own, *sums, residuals, *limits)

    def ask_sums(self, state: Any, ids: Sequence[int], up: parting.SurveyedSums) -> Next:
        ask = CertifySums(self.w, np.zeros((0, len(self.w))), np.zeros((0, len(ids))))
        if self.duals is not None:
            ask = CertifySums(self.w, self.duals.points, self.duals.multipliers)
        return replace(state, seen=up.seen), Round(ask)

    def certify_sums(self, problem: Problem, ask: CertifySums, data: Block) -> CertifiedSums:
        combined = _Combined(problem, data, len(ask.w), self.clients or 0)
        total = ask.multipliers.sum()
        for point, weights in zip(ask.points, ask.multipliers, strict=True):
            if not weights.any():
                continue
            whole = weights * float(total) / float(weights.sum())
            parting.check_weights(problem, whole, self.clients)
            combined.add(point, weights[data.index], parting.WHOLE)
        risk, c = problem.client_risks(ask.w, data), combined
        return CertifiedSums(risk, c.constant, c.gradient, c.spread, c.size)

    def finish_sums(self, state: CertificateState, ids: Sequence[int], up: CertifiedSums) -> Next:
        return replace(state, first=self._whole(up)), Done(Stop.OPTIMAL)

    def _whole(self, up: CertifiedSums) -> Certified:
        """The answer with the numbers of every client that follow from its risk: its worst
        distribution moves features, or targets, and flips no labels.
        """
        problem, n = self.concrete, len(up.risk)
        radii, none = sample_radii(problem, n), np.zeros(n)
        level = np.where(radii > 0, parting.least_multiplier(problem, self.w), 0.0)
        moved = np.where(level > 0, radii, 0.0)
        targets = parting.moves_targets(problem, self.w)
        labels, features = (moved, none) if targets else (none, moved)
        loss, own = up.risk - radii * level, (up.constant, up.gradient)
        limits: dict[str, Array] = {}
        if problem.constrained:  # only those of the server, see ``limits_no_rows``
            limits = dict.fromkeys(("local", "limits"), np.zeros((n, 0)))
            limits |= dict.fromkeys(("shared", "shared_limits"), np.zeros(0))
        worst = up.risk, loss, level, labels, features
        return Certified(*worst, *own, none, up.spread, up.size, **limits)

    def finish(self, state: CertificateState, ids: Sequence[int], up: Certified) -> Next:
        state = replace(state, first=up)
        if is_affine(self.concrete.predictor):
            return state, Done(Stop.OPTIMAL)
        return state, Round(Differentiate(self.w, chosen(self.concrete, self.weights, up.risk)))

    def conclude(self, state: CertificateState, ids: Sequence[int], up: Differentiated) -> Next:
        return replace(state, differentiated=up), Done(Stop.UNPROVEN)


def certify_run(
    problem: Problem,
    fed: Data,
    w: Array,
    duals: proofs.Duals | None,
    engine: Engine | None = None,
    copies: Array | None = None,
    infeasible: bool = False,
) -> tuple[Certificate, Run]:
    """``certify_concrete`` of the user's problem and federation."""
    seen, fed, w, duals = centred_proof(problem, fed, np.asarray(w, float), duals)
    copies = copies if seen is None or copies is None else seen.turned(copies)
    return certify_concrete(*problem.at(fed), w, duals, engine, copies, infeasible)


def certify_concrete(
    concrete: Problem,
    data: Data,
    w: Array,
    duals: proofs.Duals | None,
    engine: Engine | None = None,
    copies: Array | None = None,
    infeasible: bool = False,
) -> tuple[Certificate, Run]:
    """The certificate and the engine's run of its two rounds.

    Parameters
    ----------
    concrete, data : as ``Problem.at`` returns them: targets of several classes must not be coded
        twice
    w : (D,) the model
    duals : models and multipliers that prove a bound; only the value is recomputed with None, and
        for a custom regulariser without `conjugate` or a custom set of weights without `project`
    engine : where the clients are; by default this process
    copies : (N, D) the clients' copies of the model, where there are any
    infeasible : whether the duals are to prove that no model meets all constraints, instead

    Raises
    ------
    ValueError
        w, points or multipliers that are not finite or do not fit the problem
    """
    w = np.asarray(w, float)
    _check(concrete, data, w, duals)
    if not is_affine(concrete.predictor):
        # the algorithm's client weights, and no bound
        named = None if duals is None else np.asarray(duals.weights, float)
        run = run_all(Certification(w, None, concrete, named, clients=data.n_clients), data, engine)
        plain = conclude(concrete, w, None, None, run.state.first, copies)
        risks, none = plain.client_risks, dict.fromkeys(("bound", "gap", "relative_gap"))
        weights = chosen(concrete, named, risks)
        left, scale = stationarity(concrete, w, run.state.differentiated)
        more = {"weights": weights, "stationarity": left, "gradient_scale": scale}
        far = _distance(concrete, weights) + outside(concrete, concrete.predictor.split(w)[0])
        short = concrete.over_clients.worst(risks).value - float(weights @ risks)
        return replace(plain, **none, **more, feasibility=far, complementarity=short), run
    if duals is not None and infeasible:
        # the multipliers of constraints only, whose sizes sum to one: then their combination of
        # the constraints is at most the largest violation
        limits: Any = proofs.feasible_duals(concrete, duals).limits
        parts = proofs.separated(concrete, len(duals.weights), limits.sum(0).mean(1))
        total = sum(float(np.abs(part).sum()) for part in parts)
        limits = limits / total if total > 0 else limits
        duals = replace(duals, multipliers=np.zeros_like(duals.multipliers), limits=limits)
    elif duals is not None and duals.rows is None:
        duals = None if proofs.without_dual(concrete) else proofs.feasible_duals(concrete, duals)
    sums = with_sums(concrete, duals, engine)
    rounds = Certification(w, duals, concrete, sums=sums, clients=data.n_clients)
    run = run_all(rounds, data, engine)
    ended = run.state.seen, run.state.first, copies
    if duals is None or not infeasible:
        return conclude(concrete, w, duals, *ended), run
    plain, proof = conclude(concrete, w, None, *ended), _broken(concrete, w, duals, ended[1])
    return replace(plain, infeasible=proof if proof > 0 else None), run


def with_sums(problem: Problem, duals: proofs.Duals | None, engine: Engine | None) -> bool:
    """Whether a certificate is computed from sums: where the engine has a secure sum, and the
    problem and the duals can be asked so.
    """
    secure = option_of(getattr(engine, "secure_sum", None)) is not None
    whole = duals is None or (duals.parts is None and duals.radii is None and duals.rows is None)
    return secure and whole and problem.privacy is None and parting.has_sums(problem)


def _broken(problem: Problem, w: Array, duals: proofs.Duals, up: Certified) -> float:
    """A lower bound on the combination of the constraints, over all models up to ``FAR`` times as
    large as this, or as one by which it could change as much as it adds up.
    """
    h, minorant = problem.regulariser, _minorant(problem, duals, up, np.zeros(len(up.risk)))
    # what is charged for rounding is in proportion to sizes; only the model 0 has none
    steep = float(np.linalg.norm(minorant.rounding_gradient))
    far = FAR * max(float(np.linalg.norm(w)), minorant.rounding / steep if steep > 0 else 0.0)
    alone = problem if isinstance(h, Ball | Bounds) else replace(problem, regulariser=Zero())
    return proofs.lower_bound(alone, minorant, proofs.Region(far, far, far, math.inf))[0]


def run_all(rounds: Algorithm, data: Data, engine: Engine | None) -> Run:
    """The rounds of a certificate; raises ``KeyboardInterrupt`` where they are interrupted."""
    run = (engine or InProcess()).run(rounds, data)
    if run.outcome.stop is Stop.INTERRUPTED:  # half a proof proves nothing
        raise KeyboardInterrupt
    if run.outcome.stop is Stop.STALLED:
        raise TimeoutError(f"the certificate: {run.outcome.text}")
    return run


def conclude(
    problem: Problem,
    w: Array,
    duals: proofs.Duals | None,
    seen: proofs.Surveyed | None,
    up: Certified,
    copies: Array | None = None,
) -> Certificate:
    """The certificate from the clients' answers, by arithmetic only."""
    worst, coefficients = problem.over_clients.worst(up.risk), problem.predictor.split(w)[0]
    value = worst.value + problem.penalty(w)
    weights = worst.weights if duals is None else duals.weights
    bound, stationarity = (0.0 if value <= proofs.NOTHING else None), None  # losses are nonnegative
    nearby = None
    feasibility = _distance(problem, weights) + outside(problem, coefficients)
    limits, complementarity = {}, None if duals is None else worst.value - float(weights @ up.risk)
    if problem.constrained:
        limits, short = _limits(problem, w, duals, up)
        # NaN where a client does not have a constraint
        feasibility += max(excess(stack, np.nan_to_num(part)) for stack, part in limits.values())
        complementarity = None if complementarity is None else max(complementarity, short)
    if duals is not None and up.residuals is None and math.isfinite(value):
        minorant = _minorant(problem, duals, up, weights)
        where = proofs.region(problem, value, len(coefficients), seen)
        proven, stationarity = proofs.lower_bound(problem, minorant, where)
        # a model that meets the constraints is as good, or this value is below the optimum
        proven = min(proven, value) if problem.constrained else proven
        bound = proven if math.isfinite(proven) else bound
        if bound is None and np.any(w) and not isinstance(problem.predictor, WithThresholds):
            near = proofs.nearby(problem, w, value)
            nearby = stated_nearby(value, proofs.lower_bound(problem, minorant, near)[0])
    residuals = None if up.residuals is None else up.residuals[0]
    values = {name: array for name, (_, array) in limits.items()}
    if residuals is not None:
        stationarity, feasibility = float(residuals[:2].max()), feasibility + float(residuals[2])
    costs = {"client_levels": up.level, "client_labels": up.labels, "client_features": up.features}
    numbers = {
        **{name: part for name, part in costs.items() if part.any()},
        **{"feasibility": feasibility, "stationarity": stationarity, "residuals": residuals},
        "complementarity": complementarity,
        "nearby": nearby,
        "consensus": None if copies is None else float(np.abs(copies - w).max()),
    }
    return certificate(value, bound, weights, up.risk, up.loss, **numbers, **values)


def stated_nearby(value: float, bound: float) -> float | None:
    """A bound on the models near by, where it says more than that losses are nonnegative."""
    return min(bound, value) if math.isfinite(bound) and bound > 0 else None


def _limits(
    problem: Problem, w: Array, duals: proofs.Duals | None, up: Certified
) -> tuple[dict[str, tuple[Stack, Array]], float]:
    """The constraints with their values at w, and the largest |multiplier * value|."""
    glob, n = problem.constraint, len(up.risk)
    asked, measured = np.asarray(up.limits, float), np.asarray(up.local, float)
    local = np.where(np.isnan(asked), np.nan, measured)
    held = glob.held.values(glob.point(problem, w))[0]
    limits = {
        "constraint_values": (problem.local_constraint, local),
        "server_values": (glob.held, held),
        "shared_values": (glob.coupled, np.asarray(up.shared)),
    }
    if duals is None or duals.limits is None:
        return limits, 0.0
    mu = proofs.separated(problem, n, duals.limits.sum(0).mean(1))
    values = np.nan_to_num(local), np.asarray(up.shared), held
    products = [np.abs(m * v).max(initial=0.0) for m, v in zip(mu, values, strict=True)]
    return limits, float(max(products))


def _minorant(problem: Problem, duals: proofs.Duals, up: Certified, q: Array) -> proofs.Minorant:
    """The clients' minorant with the cuts of the server's own constraints."""
    glob = problem.constraint
    own = _Combined(problem, glob.block, up.gradient.shape[-1])
    if duals.limits is not None:
        held = proofs.separated(problem, len(q), duals.limits.swapaxes(0, 1))[2]
        for point, multiplier in zip(duals.points, held.swapaxes(0, 1), strict=True):
            here = glob.point(problem, point)
            own.limit(glob.held, here, multiplier[None], parting.parts_of(duals.parts))
    constant, spread = float(up.constant) + float(own.constant[0]), float(up.spread)
    gradient, rounding = up.gradient + own.gradient[0], spread + float(own.spread[0])
    size = up.size + own.size[0]
    return proofs.Minorant(constant, gradient, up.gradient_level, q, rounding, size)


def _distance(problem: Problem, weights: Array) -> float:
    # a custom set may have only a maximiser, whose weights are in the set
    if not hasattr(problem.over_clients, "project"):
        return 0.0
    return float(np.abs(problem.over_clients.project(weights) - weights).max())


def _check(problem: Problem, fed: Data, w: Array, duals: proofs.Duals | None) -> None:
    D = len(checked_model(w, problem.predictor.dimension(fed.n_features)))
    if duals is None:
        return
    shapes, affine = duals.shapes(fed.n_clients, D), is_affine(problem.predictor)
    shifted = parting.has_shifted_slopes(problem) and parting.parts_of(duals.parts).smooth
    if duals.barrier is not None and (
        duals.pair is None
        or not has_kinks(problem)
        or np.shape(duals.barrier) != (1,)
        or not duals.barrier[0] > 0
    ):
        raise ValueError(
            "duals.barrier must be one number > 0 beside a pair, for means of a loss with linear"
            f" pieces, got {duals.barrier!r} for {problem.in_words()}."
        )
    if duals.path is not None or duals.penalties is not None:
        duals.steps(D, 0 if has_kinks(problem) else None)
    if duals.pair is not None and duals.barrier is None and not shifted:
        raise ValueError(
            "duals.pair is for risks whose mean losses are a separate part, got"
            f" parts={duals.parts!r} and {problem.in_words()}."
        )
    if duals.parts is not None and affine:
        count = parting.parts_of(duals.parts).count(problem)
        shapes["multipliers"] = (len(duals.points), fed.n_clients, count)
    if affine and not duals.by_rows:  # weights follow from the multipliers
        del shapes["weights"]
    for name, shape in shapes.items() if affine else [("weights", shapes["weights"])]:
        if getattr(duals, name) is None:
            continue
        array = np.asarray(getattr(duals, name))
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(f"duals.{name} must be finite with shape {shape}, got {array.shape}.")
    for name, array in (("rows", duals.rows), ("split", duals.split)):
        if array is not None and (
            fed.n_clients != 1 or array.shape != (fed.sizes[0],) or not np.isfinite(array).all()
        ):
            raise ValueError(
                f"duals.{name} must be finite, one number for each row of the only client, got"
                f" shape {array.shape} for {fed.n_clients} clients of"
                f" {[int(n) for n in fed.sizes[:3]]} rows."
            )
