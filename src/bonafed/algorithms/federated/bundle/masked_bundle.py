"""The bundle method of a server that reads sums over the clients only, and at most their risks.

    minimise over w:  max_{q in Q} sum_s q_s R_s(w) + h(w)

At every model w the server

    1. asks for the risks R_s(w), of which the worst weights q follow: one number a client, and none
       where Q has one member, as that of a mean;
    2. asks with this q, one and the same for all clients, for the sums of q_s F_s(w), of its
       gradients, and of its second derivatives, F_s the mean losses
       (``bonafed.problem.parts``).

The sums are a cut: q is in Q, so that it is below the objective everywhere, and equal to it at w.
So the server runs ``Bundle`` on the one function max_{q in Q} sum_s q_s R_s, as if it were the risk
of one client, near its best model in the metric of sum_s q_s Hess F_s there. Where a step gains
less than half of what it promised, the weights change on the way, and bend the function more than
that: from then on the metric takes over, by updates of BFGS, how the sums' gradients change between
models near it. Cut k has the multiplier mu_k; those of the clients, which prove the bound, are
mu_k q^k_s.

A second q at the same model would tell the clients' gradients apart: with as many as clients,
exactly. Clients keep what they were asked, and refuse.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.federated.bundle.bundle import Bundle, BundleState
from bonafed.algorithms.federated.bundle.server import Evaluated, secants
from bonafed.algorithms.method import Answer, Concluded, Ids, Method, Next, gap_report
from bonafed.algorithms.requirements import OF_SUMS, Requirements
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form, decode, encode
from bonafed.data.federation import Federation
from bonafed.problem import parts, plausible
from bonafed.problem.claims import Claim
from bonafed.problem.client_means import hessians
from bonafed.problem.conic_form import member, sample_radii
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.lower_bounds import Duals, of_duals
from bonafed.problem.metadata import Metadata
from bonafed.problem.parts import SurveyedSums
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.risks.weight_sets import Sum as Added
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Done, Each, Round, Sum, record

TIED = 1e-12  # relative differences of risks that count as none
MISSED = 0.5  # of what a step promised: where it gains less, the metric bends too little


@record
class Compare:
    """Ask every client for its risk at ``w``."""

    w: Annotated[Array, Form("D")]


@record
class Compared:
    """The answer, by which the server weighs the clients."""

    risk: Each  # (n,) R_s(w)


@record
class Blend:
    """Ask for the sum over the clients of weights_s F_s and its derivatives at ``w``."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Array, Form("N")]  # one weighting for all


@record
class Blended:
    """The answer: sums only."""

    loss: Sum  # (n,) weights_s F_s(w)
    gradient: Sum  # (n, D)
    curvature: Sum | None = None  # (1, D, D) of the block, where it has no jumps


@record
class Asked:
    """What a client was asked: the models, and one weighting at each."""

    w: Array  # (n, T, D)
    weights: Array  # (n, T, N)


@record
class MaskedState:
    """The server's memory between rounds."""

    bundle: NDArray[np.uint8]  # the bytes of the state of the bundle, in which N is 1
    risks: Annotated[Array, Form("N")]  # at the best model; zeros where nobody tells them
    newest: Annotated[Array, Form("N")]  # at the trial
    tried: Annotated[Array, Form("T, D")]  # the models of the cuts
    weights: Annotated[Array, Form("T, N")]  # and their weights
    slopes: Annotated[Array, Form("S, D")]  # and their sums' gradients
    missed: bool = False  # whether a step gained less than half of what it promised

    @property
    def of_one(self) -> BundleState:
        """The state of the bundle."""
        return decode(self.bundle.tobytes())

    @property
    def w(self) -> Array:
        """(D,) the best model so far."""
        return self.of_one.w

    @property
    def value(self) -> float:
        """Its objective."""
        return self.of_one.value

    @property
    def bound(self) -> float:
        """The best lower bound that is proved."""
        return self.of_one.bound


@dataclass(frozen=True)
class MaskedBundle(Method):
    """What ``Bundle`` is where the engine has a secure sum.

    Parameters
    ----------
    tol, atol, max_rounds, start : as of ``Bundle``; ``max_rounds`` counts models

    Raises
    ------
    ValueError
        where the set of weights, or the mean's prior, gives one client nearly all the weight
    """

    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 300
    start: Array | None = None
    problem: Problem | None = None
    clients: int | None = None  # how many a client knows to take part
    unstated: ClassVar[tuple[str, ...]] = ("problem", "clients")
    readable: ClassVar[Mapping[str, str]] = {
        "Compared.risk": "its mean loss at every model that is tried, with what its Wasserstein"
        " ball adds (not asked for where the risk over clients is a mean)"
    }
    requirements: ClassVar[Requirements] = OF_SUMS

    @classmethod
    def of(cls, bundle: Bundle) -> "MaskedBundle":
        """With the settings of a bundle that both have: ``cuts`` is 1, whatever ``least_rows`` are.

        Raises
        ------
        ValueError
            for a variant, metric, known cuts, or a number of cuts, which sums do not give
        """
        check_settings(bundle)
        return cls(bundle.tol, bundle.atol, bundle.max_rounds, bundle.start, bundle.problem)

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        """Raise ``ValueError`` where one client may get nearly all the weight."""
        if fed is None:
            return
        n = fed.n_clients
        most, allowed = parts.largest_share(problem, n), parts.share_allowed(n)
        if n < 2 or most > allowed * (1 + 1e-9):
            raise ValueError(
                f"a secure sum over {n} clients needs a set of weights that gives none of them more"
                f" than {allowed:.3g} of the whole, got {most:.3g} in {problem.over_clients!r}: the"
                " sum would be the answer of one. Use a smaller radius, over_clients=Mean(), or an"
                " engine without secure_sum."
            )

    # -- clients -----------------------------------------------------------------------------------

    def at_client(self, problem: Problem, data: Metadata) -> "MaskedBundle":
        """With the concrete problem, and the number of clients that have agreed on it."""
        self.check_problem(problem, data)
        return replace(self, problem=problem, clients=data.n_clients)

    def client_start(self, data: Block) -> Asked:
        n = len(data.names)
        return Asked(np.zeros((n, 0, 0)), np.zeros((n, 0, 0)))

    @property
    def on_client(self) -> dict:
        survey = self._answering(parts.survey_sums, self.clients)
        return {parts.SurveySums: survey, Compare: self._answering(compare), Blend: self.blend}

    def blend(self, memory: Asked, ask: Blend, data: Block, rng: Streams) -> tuple[Asked, Blended]:
        problem, weights = self.concrete, ask.weights[data.index]
        parts.check_weights(problem, ask.weights, self.clients)
        memory = _with(memory, ask)
        cut, bend = problem.cut(ask.w, data), None
        if parts.sends_curvature(problem, len(ask.w)):
            bend = hessians(Point(problem, ask.w, data), weights, (), together=True)
        return memory, Blended(weights * cut.base, weights[:, None] * cut.gradient, bend)

    # -- server ------------------------------------------------------------------------------------

    @property
    def claims(self) -> plausible.Claims:
        return {Compared: lambda who, ask, up: plausible.of_risk(self.concrete, ask.w, up.risk)}

    @property
    def sum_claims(self) -> plausible.SumClaims:
        problem = self.concrete

        def blended(ask: Blend, up: Blended, slack: float) -> Iterator[Claim]:
            sums = up.loss, up.gradient, up.curvature
            return plausible.of_weighted_sum(problem, ask.w, ask.weights, *sums, slack)

        return {
            SurveyedSums: partial(plausible.of_survey_sums, problem),
            Compared: lambda ask, up, slack: plausible.of_each_risk(problem, ask.w, up.risk),
            Blended: blended,
        }

    @property
    def on_server(self) -> dict:
        return {SurveyedSums: self.begin, Compared: self.weigh, Blended: self.improve}

    def server_start(self, n_clients: int) -> tuple[MaskedState, Round]:
        prior = member(self.concrete, n_clients)
        none, nothing = np.zeros((0, 0)), np.zeros(n_clients)
        state, _ = self._of_one.server_start(1)
        state = MaskedState(_kept(state), nothing, nothing, none, np.zeros((0, n_clients)), none)
        return state, Round(parts.SurveySums(prior))

    def begin(self, state: MaskedState, ids: Ids, up: SurveyedSums) -> Next[MaskedState]:
        bundle, _ = self._of_one.begin(state.of_one, [0], up.seen)
        none = np.zeros((0, len(bundle.trial)))
        return self._asking(replace(state, tried=none, slopes=none), bundle)

    def weigh(self, state: MaskedState, ids: Ids, up: Compared) -> tuple[MaskedState, Round]:
        return self._blending(replace(state, newest=up.risk), state.of_one.trial)

    def improve(self, state: MaskedState, ids: Ids, up: Blended) -> Next[MaskedState]:
        before, w = state.of_one, state.tried[-1]
        state = replace(state, slopes=np.vstack([state.slopes, up.gradient]))
        level, bend = parts.least_multiplier(self.concrete, w), up.curvature
        # what is missing to the largest radius where the clients have these weights
        radius = float(state.weights[-1] @ sample_radii(self.concrete, len(state.newest)))
        fee = radius - self._radius if radius < (1 - 1e-12) * self._radius else 0.0
        base, rise = np.array([[float(up.loss) + fee * level]]), np.array([[fee]])
        cut = Evaluated(base, np.array([level]), up.gradient[None, None], rise)
        if self.concrete.constrained:  # the server adds its own
            none, slopes = np.zeros((0, 1)), np.zeros((0, 1, len(w)))
            cut = replace(cut, local=none[None], local_jacobian=slopes[None])
            cut = replace(cut, shared=none, shared_jacobian=slopes)
        if before.rounds and not self._of_one.gain(before, cut) >= MISSED * before.predicted:
            state = replace(state, missed=True)
        if bend is not None and state.missed:
            bend = secants(bend, w - state.tried[:-1], up.gradient - state.slopes[:-1])
        bundle, ask = self._of_one.improve(before, [0], replace(cut, curvature=bend))
        if np.array_equal(bundle.w, w):
            state = replace(state, risks=state.newest)
        if isinstance(ask, Done):
            return replace(state, bundle=_kept(bundle)), ask
        return self._asking(state, bundle)

    def report(self, state: MaskedState) -> dict:
        bundle = state.of_one
        numbers = gap_report(bundle.value, bundle.bound, state.risks)
        if _alike(self.concrete):
            numbers = {name: numbers[name] for name in ("objective", "bound", "gap")}
        if self.concrete.constrained:
            numbers["violation"] = self._of_one.report(bundle)["violation"]
        return numbers | {"cuts": len(bundle.cuts.owner)}

    def answer(self, state: MaskedState, concluded: Concluded | None = None) -> Answer:
        """The model, and the multipliers mu_k q^k_s that prove its bound."""
        bundle = state.of_one
        if bundle.duals is None:
            return Answer(bundle.w)
        of_one = bundle.duals.used()
        points, multipliers = of_one.points, of_one.multipliers
        at = [int((state.tried == point).all(1).argmax()) for point in points]
        each = multipliers.reshape(len(points), 1) * state.weights[at]
        duals = Duals(each.sum(0), points, each, limits=of_one.limits)
        if self.concrete.constrained:
            return Answer(bundle.w, multipliers=of_duals(self.concrete, duals))
        return Answer(bundle.w, duals)

    # -- the server's steps ------------------------------------------------------------------------

    def _asking(self, state: MaskedState, bundle: BundleState) -> tuple[MaskedState, Round]:
        state = replace(state, bundle=_kept(bundle))
        if _alike(self.concrete):
            return self._blending(state, bundle.trial)
        return state, Round(Compare(bundle.trial))

    def _blending(self, state: MaskedState, w: Array) -> tuple[MaskedState, Round]:
        """Ask with the worst weights at the trial; where the risks tie, as at the model 0, with the
        prior: which weights are the worst would hang on rounding.
        """
        risks, n = state.newest, len(state.newest)
        tied = _alike(self.concrete) or float(np.ptp(risks)) <= TIED * float(np.abs(risks).max())
        q = member(self.concrete, n) if tied else self.concrete.over_clients.weights(risks)
        tried, weights = np.vstack([state.tried, w]), np.vstack([state.weights, q])
        return replace(state, tried=tried, weights=weights), Round(Blend(w, q))

    @cached_property
    def _radius(self) -> float:
        """The largest radius that the weights make of those of the clients."""
        ball = self.concrete.over_samples
        radii = np.asarray(ball.radius) if isinstance(ball, WassersteinBall) else None
        return 0.0 if radii is None else float(self.concrete.over_clients.value(radii))

    @cached_property
    def _of_one(self) -> Bundle:
        """The bundle whose one client has the risk max_{q in Q} sum_s q_s R_s."""
        problem, ball = self.concrete, self.concrete.over_samples
        if isinstance(ball, WassersteinBall):
            ball = replace(ball, radius=np.array([self._radius]))
        one = replace(problem, over_clients=Mean(np.ones(1)), over_samples=ball)
        settings = self.tol, self.atol, self.max_rounds, "proximal", "identity", 1, 1
        return Bundle(*settings, start=self.start, problem=one)


def _alike(problem: Problem) -> bool:
    """Whether there is one weighting only, whatever the risks are."""
    return isinstance(problem.over_clients, Mean | Added)


def compare(problem: Problem, ask: Compare, data: Block) -> Compared:
    """The risks of the clients of the block."""
    if _alike(problem):
        raise ValueError(
            "a mean over clients needs no client's own risk: nothing was answered. Ask for the sum."
        )
    return Compared(problem.client_risks(ask.w, data))


def check_settings(bundle: Bundle) -> None:
    """Raise ``ValueError`` where a bundle has a setting that none has whose answers are sums."""
    plain = Bundle()
    other = {
        "variant": bundle.variant != plain.variant,
        "metric": bundle.metric != plain.metric,
        "cuts": bundle.cuts not in (1, plain.cuts),
        "gradient_rounds": bundle.gradient_rounds > 0,
        "known": bundle.known is not None,
    }
    if given := [name for name, is_given in other.items() if is_given]:
        raise ValueError(
            "with secure sums a bundle takes proximal steps by one cut a model, which is the sum"
            f" over all clients, got Bundle({', '.join(f'{name}=...' for name in given)}): leave"
            f" {', '.join(given)} out, or use an engine without secure_sum."
        )


def masked(method: Method) -> Method:
    """The method that runs in place of another where the engine has a secure sum.

    Raises
    ------
    ValueError
        where that has no setting of the other
    """
    return MaskedBundle.of(method) if type(method) is Bundle else method


def _kept(bundle: BundleState) -> NDArray[np.uint8]:
    return np.frombuffer(encode(bundle), np.uint8).copy()


def _with(memory: Asked, ask: Blend) -> Asked:
    """What a client was asked, with a model more.

    Raises
    ------
    ValueError
        where it was asked at this model with other weights
    """
    n, before = len(memory.w), memory.w.shape[1]
    if before:
        same = (memory.w == ask.w).all(2)
        if (same & (memory.weights != ask.weights).any(2)).any():
            raise ValueError(
                "a second weighting at one model would tell the clients' gradients apart: nothing"
                " was answered. Ask once at each model."
            )
        if same.any():
            return memory
    w, weights = (np.tile(each, (n, 1, 1)) for each in (ask.w, ask.weights))
    if not before:
        return Asked(w, weights)
    return Asked(np.hstack([memory.w, w]), np.hstack([memory.weights, weights]))
