"""Two-block ADMM on the epigraphs of the clients' worst-case risks.

    minimise  phi_Q(z) + h(w)  subject to  w_s = w  (dual psi_s),  pi_s = z_s  (dual zeta_s),
            pi_s >= R_s(w_s)

phi_Q(z) = max_{q in Q} <q, z> for any convex set Q of weights with a projection, which covers every
risk over clients that is convex, monotone and positively homogeneous. Compared with Algorithm 1 of
Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*, the variables t, eta and gamma
are gone (the step of z is a projection onto Q, by Moreau's identity), the two constraints have
separate penalties, and the iteration is over-relaxed. The client's step is the same projection, in
a scaled norm. At the end zeta = q*.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Each, Form, Streams, record
from bonafed.functional import project_lp_unit_ball
from bonafed.papers.drfl import epigraph_projection as projection

# rounds in which the penalties may change, so that the iteration converges afterwards
BALANCED = 200
EVERY = 5


@record
class EpigraphState(projection.ConsensusState):
    """The server's memory between rounds."""

    c_w: float = 1.0
    c_z: float = 1.0
    # primal and dual residuals of w_s = w, and of pi_s = z_s
    model: tuple[ext.Extended, ext.Extended] = (math.inf, math.inf)
    height: tuple[ext.Extended, ext.Extended] = (math.inf, math.inf)


@dataclass(frozen=True)
class EpigraphADMM(projection.EpigraphMethod):
    """The method to choose where an ADMM is wanted: several times fewer rounds than Algorithm 1.

    Also called ``RiskADMM``: of the risk over clients it needs no more than the projection onto its
    weights, so that a superquantile over clients of Wasserstein balls inside clients is solved as
    an lp-ball is.

    Parameters
    ----------
    c_w, c_z : first penalties of w_s = w and pi_s = z_s; default 1/S, and 10/S over the largest
        risk at the first model
    relaxation : in [1, 2); 1 is plain ADMM
    balance : adapt the penalties to the residuals, every 5 rounds of the first 200
    sample : share of its rows that a client draws afresh for each step; None: all rows. With a
        sample the method comes near a solution but does not converge
    tol : stop when the relative primal and dual residuals are below
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for settings out of range and nonconvex regularisers

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_clients=bf.LpBall(0.1), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed, algorithm=bf.EpigraphADMM(), max_rounds=10)
    >>> bool(solution.certificate.relative_gap < 1e-1)
    True
    """

    c_w: float | None = None
    c_z: float | None = None
    relaxation: float = 1.6
    balance: bool = True
    sample: float | None = None
    tol: float = 1e-6
    max_rounds: int = 1000
    start: Array | None = None
    problem: bf.Problem | None = None
    requirements: ClassVar = replace(ext.EPIGRAPH_REQUIREMENTS, over_clients=ext.PROJECTION)

    def __post_init__(self) -> None:
        if not 1 <= self.relaxation < 2:
            raise ValueError(
                f"relaxation must be in [1, 2), got {self.relaxation}: beyond it ADMM diverges."
            )
        self.check_settings("c_w", "c_z")

    # -- server ------------------------------------------------------------------------------------

    def server_start(self, n_clients: int) -> tuple[EpigraphState, ext.Round]:
        state = EpigraphState(*self._first(ext.member(self.concrete, n_clients)))
        return state, ext.Round(projection.Begin(state.w))

    def begin(
        self, state: EpigraphState, ids: ext.Ids, up: projection.Begun
    ) -> tuple[EpigraphState, ext.Round]:
        S, largest = len(up.pi), float(np.abs(up.pi).max())
        c_w = 1 / S if self.c_w is None else self.c_w
        c_z = 10 / (S * (largest if largest > 0 else 1.0)) if self.c_z is None else self.c_z
        return self._primal(replace(self._begun(state, up), c_w=c_w, c_z=c_z))

    def _primal(self, state: EpigraphState) -> tuple[EpigraphState, ext.Round]:
        """w and z in closed form, and the clients' requests."""
        c_w, c_z, S = state.c_w, state.c_z, len(state.pi)
        # each penalty is balanced by the root of primal over dual residual
        if self.balance and state.rounds % EVERY == 0 and 0 < state.rounds <= BALANCED:
            c_w, c_z = c_w * _factor(state.model), c_z * _factor(state.height)
        w = self.concrete.prox((state.copies - state.psi / c_w).mean(0), 1 / (c_w * S))
        x = state.pi + state.zeta / c_z
        weights = self.concrete.over_clients.project(c_z * x)
        z = x - weights / c_z  # prox of phi_Q
        state = replace(state, c_w=c_w, c_z=c_z, w=w, z=z, weights=weights)
        relaxed_w, relaxed_z = self._relaxed(state)
        heights = relaxed_z - state.zeta / c_z
        return state, ext.Round(projection.Project(relaxed_w + state.psi / c_w, heights, c_z / c_w))

    def _relaxed(self, state: EpigraphState) -> tuple[Array, Array]:
        a = self.relaxation
        return a * state.w + (1 - a) * state.copies, a * state.z + (1 - a) * state.pi

    def _dual(self, state: EpigraphState, up: projection.Projected) -> EpigraphState:
        """The state after the dual update with the clients' new points, with the residuals."""
        relaxed_w, relaxed_z = self._relaxed(state)
        psi = state.psi + state.c_w * (relaxed_w - up.w)
        zeta = state.zeta + state.c_z * (up.pi - relaxed_z)
        state, model, height = self._answered(state, up, psi, zeta, state.c_w, state.c_z)
        return replace(state, model=model, height=height)


RiskADMM = EpigraphADMM  # one iteration for every such risk
"""The name of `EpigraphADMM` by what it takes: every risk with a projection.

Examples
--------
>>> import bonafed as bf
>>> from bonafed.data import load
>>> fed = load.hospitals()
>>> problem = bf.Problem(
...     bf.Logistic(), over_clients=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
... )
>>> solution = bf.solve(problem, fed, algorithm=bf.RiskADMM(), max_rounds=10)
>>> bool(solution.certificate.relative_gap < 1e-2)
True
"""


def _factor(pair: tuple[float, float]) -> float:
    """Sqrt(primal / dual) within [0.2, 5], 1 where the ratio is near 1."""
    primal, dual = pair
    if not (primal > 0 and dual > 0) or (math.isinf(primal) and math.isinf(dual)):
        return 1.0
    root = min(max(math.sqrt(primal / dual), 0.2), 5.0)
    return root if max(root, 1 / root) > 1.5 else 1.0


# AD-LPMM, Algorithm 1 of Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*.
#
# Equation numbers are theirs.
#
#     minimise  qhat't - gamma + theta ||t||_{p*} + h(w)  (5)
#     subject to  t = z + gamma e + eta,  eta >= 0       dual sigma
#                 w = w_s                                dual psi_s
#                 z_s = pi_s >= R_s(w_s)                 dual zeta_s           s = 1, ..., S
#
# A client discloses its copy w_s of the model and pi_s = radius_s lambda_s + mean alpha_i, nothing
# else; the server keeps w, t, z, eta, gamma and every dual. Proximal terms make the steps of z and
# t, and of eta and gamma, closed; their constants are c' = c'' = 2 S c in the paper, but c' = 2 c
# and c'' = (S + 1) c suffice (the largest eigenvalues of the two blocks): ``steps="tight"``. At the
# end -sigma = zeta = q*, the adversary's client weights.
#
# This deviates from the paper, which has no regulariser: a convex h enters (6) by its prox.


@record
class LPMMState(projection.ConsensusState):
    """The server's memory between rounds; names as in the paper."""

    t: Annotated[Array, Form("N")]
    eta: Annotated[Array, Form("N")]
    gamma: float
    sigma: Annotated[Array, Form("N")]
    moved: ext.Extended  # how far t and z moved in the last step, relative to sigma


@dataclass(frozen=True)
class ADLPMM(projection.EpigraphMethod):
    """The paper's method: one projection per client and round.

    Parameters
    ----------
    steps : "paper" (c' = c'' = 2 S c) or "tight" (c' = 2 c, c'' = (S + 1) c)
    c : penalty of the augmented Lagrangian, default 1/S; right for losses, features and models of
        order one
    sample : share of its rows that a client draws afresh for each step; None: all rows. With a
        sample the method comes near a solution but does not converge (section 5 of the paper)
    tol : stop when the relative primal and dual residuals are below
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for settings out of range and nonconvex regularisers

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_clients=bf.LpBall(0.1), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed, algorithm=bf.ADLPMM(), max_rounds=20)
    >>> bool(solution.certificate.relative_gap < 1e-1)
    True
    """

    steps: Literal["paper", "tight"] = "paper"
    c: float | None = None
    sample: float | None = None
    tol: float = 1e-6
    max_rounds: int = 2000
    start: Array | None = None
    problem: bf.Problem | None = None
    requirements: ClassVar[ext.Requirements] = ext.EPIGRAPH_REQUIREMENTS

    def __post_init__(self) -> None:
        self.check_settings("c")

    # -- server ------------------------------------------------------------------------------------

    def server_start(self, n_clients: int) -> tuple[LPMMState, ext.Round]:
        prior, nobody = ext.client_ball(self.concrete, n_clients)[0], np.zeros(n_clients)
        start = self._first(prior)
        state = LPMMState(*start, t=nobody, eta=nobody, gamma=0.0, sigma=-prior, moved=math.inf)
        return state, ext.Round(projection.Begin(state.w))

    def begin(
        self, state: LPMMState, ids: ext.Ids, up: projection.Begun
    ) -> tuple[LPMMState, ext.Round]:
        return self._primal(replace(self._begun(state, up), t=up.pi))

    def _constants(self, n_clients: int) -> tuple[float, float, float]:
        """The constants (c, c', c'')."""
        c = 1 / n_clients if self.c is None else self.c
        if self.steps == "paper":
            return c, 2 * n_clients * c, 2 * n_clients * c
        return c, 2 * c, (n_clients + 1) * c

    def _primal(self, state: LPMMState) -> tuple[LPMMState, ext.Round]:
        """The server's half of the primal update, and the clients' requests."""
        S = len(state.pi)
        c, c1, c2 = self._constants(S)
        prior, radius, p = ext.client_ball(self.concrete, S)
        theta = min(radius, 2.0)  # the whole simplex lies within 2 of any prior, in every norm
        t, z, eta, gamma, sigma = state.t, state.z, state.eta, state.gamma, state.sigma
        w = self.concrete.prox((state.copies - state.psi / c).mean(0), 1 / (c * S))  # (6)
        r = t - z - gamma - eta
        new_z = (c * state.pi + c1 * z + state.zeta + sigma + c * r) / (c + c1)  # (7)
        u = t - (prior + sigma + c * r) / c1
        new_t = u - theta / c1 * project_lp_unit_ball(c1 * u / theta, p) if theta > 0 else u  # (8)
        y = sigma / c + new_t - new_z - gamma - eta
        new_eta = np.maximum(eta + c / c2 * y, 0.0)  # (9)
        new_gamma = gamma + c / c2 * (1 / c + float(y.sum()))  # (10)
        step = np.concatenate([new_t - t, new_z - z])
        moved = c1 * projection.relative(step, projection.norm(sigma))
        state = replace(state, w=w, z=new_z, t=new_t, eta=new_eta, gamma=new_gamma, moved=moved)
        return state, ext.Round(projection.Project(w + state.psi / c, new_z - state.zeta / c, 1.0))

    def _dual(self, state: LPMMState, up: projection.Projected) -> LPMMState:
        """The state after the dual update with the clients' new points, with the residuals."""
        c, _, _ = self._constants(len(up.pi))
        short = state.t - state.z - state.gamma - state.eta
        sigma = state.sigma + c * short
        psi = state.psi + c * (state.w - up.w)
        zeta = state.zeta + c * (up.pi - state.z)
        spread = max(projection.norm(state.z), projection.norm(state.t))
        state, _, _ = self._answered(state, up, psi, zeta, c, c)
        weights = self.concrete.over_clients.project(zeta)
        primal = max(state.primal, projection.relative(short, spread))
        dual = max(state.dual, state.moved)
        return replace(state, sigma=sigma, weights=weights, primal=primal, dual=dual)


# The plain min-max method: projected ascent on client weights around minimisation over models.
#
#     maximise over q in Q:  g(q),    g(q) = minimise over w:  sum_s q_s R_s(w) + h(w)
#
# By Danskin's theorem the risks at a minimiser w(q) are a supergradient of g. The inner problem is
# solved roughly, by proximal subgradient steps from the last model; both loops take steps ~ 1 /
# sqrt(sum of squared gradients), which needs no knowledge of the problem. Bai, Wong, Qiao, Ho,
# *Distributionally robust federated learning*, name this alternative and reject it; it serves as an
# ablation and takes hundreds of rounds to three digits.
#
# The server sees every client's risk R_s(w), and only the weighted sum of the gradients.


@record
class Probe:
    """Ask for the risks at ``w`` and the gradient of their sum with these ``weights``."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")]
    tells: ClassVar = ext.at_model()


@record
class Probed:
    """A client's risk, and its part of sum_s weights_s R_s's gradient."""

    risk: Each  # (n,)
    gradient: ext.Sum  # (n, D)


@record
class LoopState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # best model so far
    value: ext.Extended  # its objective, exact
    risks: Annotated[Array, Form("N")]  # its clients' risks
    point: Annotated[Array, Form("D")]  # the inner iterate
    total: Annotated[Array, Form("D")]  # sum of the inner iterates of this outer step
    weights: Annotated[Array, Form("N")]  # q
    steepness: float  # sum of squared gradients
    spread: float  # sum of squared supergradients
    rounds: Annotated[int, Form(rounds=-1)]
    since: ext.Counter  # rounds since the best model improved by tol


@dataclass(frozen=True)
class DoubleLoop(ext.Method):
    """Projected ascent on the client weights, ``inner`` proximal subgradient steps for each.

    Parameters
    ----------
    inner : model steps for each step of the weights
    step : size of the model's first step, in units of the model
    ascent : size of the first step of the weights; they live in the simplex
    tol : stop as stalled when the best objective has not improved by tol (relative) in 50 ascent
        steps
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Notes
    -----
    The model returned is the best one seen, with its exact objective; nothing is proved about it
    here.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.DoubleLoop())
    >>> bool(solution.certificate.relative_gap < 1e-3)
    True
    """

    inner: int = 10
    step: float = 1.0
    ascent: float = 0.2
    tol: float = 1e-6
    max_rounds: int = 5000
    start: Array | None = None
    problem: bf.Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[ext.Requirements] = ext.EPIGRAPH_REQUIREMENTS
    advised: ClassVar[int] = 2

    def __post_init__(self) -> None:
        ext.check_least(self, "inner", meaning=": it is the number of model steps per ascent step")
        ext.check_positive(self, "step", "ascent")
        ext.check_end(self, "tol")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {projection.Begin: self.client_step(projection.begin), Probe: self.probe}

    def probe(self, memory: None, ask: Probe, data: Block, rng: Streams) -> tuple[None, Probed]:
        risk, gradient, _ = ext.risk_gradients(self.concrete, ask.w, data)
        return None, Probed(risk, ask.weights[:, None] * gradient)

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {projection.Begun: self.begin, Probed: self.improve}

    @property
    def claims(self) -> ext.Claims:
        return {**projection.begun_claims(self.concrete), Probed: self._probed}

    def _probed(self, who: int, ask: Probe, up: Probed) -> Iterator[ext.Claim]:
        weight = float(ask.weights[0])
        return ext.of_weighted(self.concrete, ask.w, up.risk, up.gradient, weight)

    def server_start(self, n_clients: int) -> tuple[LoopState, ext.Round]:
        w, nobody = ext.start_or_empty(self.start), np.zeros(n_clients)
        q = ext.client_ball(self.concrete, n_clients)[0]
        state = LoopState(w, math.inf, nobody, w, w, q, 0.0, 0.0, 0, 0)
        return state, ext.Round(projection.Begin(w))

    def begin(
        self, state: LoopState, ids: ext.Ids, up: projection.Begun
    ) -> tuple[LoopState, ext.Round]:
        w = up.w[0]
        state = replace(state, w=w, value=self.value_at(w, up.pi), risks=up.pi)
        state = replace(state, point=w, total=np.zeros_like(w))
        return state, ext.Round(Probe(w, state.weights))

    def improve(self, state: LoopState, ids: ext.Ids, up: Probed) -> ext.Next[LoopState]:
        value, problem = self.value_at(state.point, up.risk), self.concrete
        much = value < state.value - self.tol * abs(state.value)
        since, rounds = 0 if much else state.since + 1, state.rounds + 1
        if value < state.value:
            state = replace(state, w=state.point, value=value, risks=up.risk)
        state = replace(state, rounds=rounds, since=since)
        if rounds >= self.max_rounds:
            return state, ext.Done(bf.Stop.MAX_ROUNDS)
        if since > 50 * (self.inner + 1):
            return state, ext.Done(bf.Stop.STALLED)
        # the point was the mean of the inner iterates, w(q) roughly: one projected step of the
        # weights along the risks there
        if rounds % (self.inner + 1) == 0:
            pull = up.risk - up.risk.mean()
            spread = state.spread + float(pull @ pull)
            q = state.weights + (self.ascent / math.sqrt(spread) * pull if spread > 0 else 0.0)
            state = replace(state, weights=problem.over_clients.project(q), spread=spread)
            state = replace(state, total=np.zeros_like(state.total))
        else:
            # One proximal subgradient step of the model
            steepness = state.steepness + float(up.gradient @ up.gradient)
            step = self.step / math.sqrt(steepness) if steepness > 0 else 0.0
            w = problem.prox(state.point - step * up.gradient, step) if step > 0 else state.point
            state = replace(state, point=w, total=state.total + w, steepness=steepness)
        if rounds % (self.inner + 1) == self.inner:
            state = replace(state, point=state.total / self.inner)
        return state, ext.Round(Probe(state.point, state.weights))

    def report(self, state: LoopState) -> dict:
        """``objective`` is exact, at the best model so far."""
        return {"objective": state.value, **ext.worst_client(state.risks)}

    def answer(self, state: LoopState, concluded: ext.Concluded | None = None) -> ext.Answer:
        """The best model of the run."""
        return ext.Answer(state.w)
