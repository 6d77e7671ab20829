"""The certificate of a model, for problems with and without constraints."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block
from bonafed.certificates import duality
from bonafed.certificates.certificate import Certificate, certificate, off_regulariser, outside
from bonafed.certificates.row_ranks import RankCertification, SpectrumCertification, certify_ranks
from bonafed.certificates.separation import separated
from bonafed.codec import Form
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.parameters import checking
from bonafed.problem import client_means, plausible, regularisers
from bonafed.problem.centring import centred_proof, far_means
from bonafed.problem.claims import Below, Claim, Number
from bonafed.problem.constraints.constraint import (
    Point,
    Stack,
    added,
    excess,
    magnitudes_of_rows,
    most_added,
)
from bonafed.problem.losses import Quadratic
from bonafed.problem.lower_bounds import (
    NEARBY,
    NOTHING,
    Duals,
    Multipliers,
    as_duals,
    no_multipliers,
    region,
    signed,
    weighting,
    without_dual,
)
from bonafed.problem.metadata import Data
from bonafed.problem.own_functions import check_own, declared
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem, check_affine, checked_model, only_constrained
from bonafed.problem.rank_levels import (
    clipped_gradients,
    has_conjugate,
    lifted,
    loss_conjugate,
    ridge_of,
)
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import Done, Each, Max, Next, Round, Stop, Sum, record
from bonafed.solvers.smooth.stepwise import ConjugateGradients, started, stepped


@checking
def certify(
    problem: Problem,
    fed: Federation,
    w: Array,
    duals: Duals | Multipliers | None = None,
    engine: Engine | None = None,
    copies: Array | None = None,
) -> Certificate:
    """Recompute every guarantee of the model w; see ``certify_run`` for the parameters.

    With constraints ``duals`` are ``Multipliers``, see
    ``certificates.constrained.certify_constrained``.

    Raises
    ------
    ValueError
        w, points or multipliers that are not finite or do not fit the problem; own functions that
        contradict each other

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed)
    >>> proof = bf.certify(problem, fed, solution.w, solution.duals)
    >>> proof.bound <= proof.value, bool(proof.relative_gap < 1e-5)
    (True, True)
    >>> bf.certify(problem, fed, solution.w + 0.1, solution.duals).gap > proof.gap
    True
    """
    check_own(*problem.at(fed))
    return completed(problem, fed, w, _certified(problem, fed, w, duals, engine, copies))


def completed(problem: Problem, fed: Data, w: Array, proof: Certificate) -> Certificate:
    """The certificate with what stands beside the bound: the user's own functions in it, whether
    the classes are separated, what holds near by where there is no bound, and how far columns are
    from 0; ``problem`` and ``fed`` are the user's.
    """
    far = far_means(fed)[1][:-1].max(initial=0.0) if isinstance(fed, Federation) else 0.0
    w, numbers = np.asarray(w, float), (proof.value, proof.client_losses, proof.weights)
    _, fed, w, _ = centred_proof(problem, fed, w, None)
    problem, fed = problem.at(fed)
    more: dict[str, Any] = {"declared": declared(problem)}
    more["offset"] = float(far) if far >= FARTHER and problem.privacy is None else None
    more["separated"] = separated(problem, fed, w, *numbers)
    plain = isinstance(problem.over_samples, Mean) and problem.over_rows is None
    one = isinstance(problem.predictor, Linear) and problem.loss.targets != "class"
    here = isinstance(fed, Federation) and problem.privacy is None and len(w) <= DENSE
    here = here and not without_dual(problem)
    if proof.bound is None and plain and one and here and w.any() and np.isfinite(w).all():
        mu = replace(no_multipliers(problem, fed.n_clients), weights=proof.weights)
        rounds = Weighing(w, mu, problem=problem)
        if rounds.provable and not problem.constrained:
            state = duality.run_all(rounds, fed, None).state
            near = (duality.stated_nearby(proof.value, state.nearby), proof.nearby)
            more["nearby"] = max((each for each in near if each is not None), default=None)
    return replace(proof, **more)


def _certified(
    problem: Problem,
    fed: Federation,
    w: Array,
    duals: Duals | Multipliers | None,
    engine: Engine | None,
    copies: Array | None,
) -> Certificate:
    if problem.over_rows is not None and not problem.constrained:
        if isinstance(duals, Multipliers):
            needed = "ranks over all rows need Duals as duals"
            raise ValueError(f"{needed}, got Multipliers: give none.")
        return certify_ranks(problem, fed, w, duals, engine)[0]
    if only_constrained(problem) or isinstance(duals, Multipliers):
        check_affine(problem, "a certificate of constraints")
        if isinstance(duals, Duals):
            raise ValueError(
                "a problem with constraints needs Multipliers as duals, got Duals: give the"
                " multipliers of the constraints, or none."
            )
        return certify_constrained(problem, fed, w, duals, engine)[0]
    return duality.certify_run(problem, fed, w, duals, engine, copies)[0]


# Certificates of models under constraints, from (problem, data, w, multipliers) only.
#
# A certificate always holds the exact objective, every constraint's value, and the residuals (8) of
# He, Peng, Sun, *Federated learning with convex global and local constraints*: stationarity in the
# Chebyshev norm, violation, complementarity. Where objective and constraints are convex it also has
# a lower bound. For mu >= 0, a_j the weight of row j's loss in f + <mu, c>, any gradients s_j
#
#     f(w) + h(w) + <mu, c(w)>  >=  constant - sum_j a_j l*(s_j) + <b + sum_j a_j s_j x_j, w> + h(w)
#             for every w
#
# by Fenchel's inequality; the right side is minimised in closed form and finite where its gradient
# lies in minus the domain of h*. The gradients of the loss at w leave a remainder r; with the
# Hessian of the Lagrangian, v = -H^+ r, the gradients s_j = l'_j + l''_j x_j'v balance it to second
# order, and a few such rounds balance it to rounding. So the bound needs neither an optimal model
# nor a bound on its size. What rounding leaves is at most 1e-12 of the sizes of the terms that
# cancel, and what it hides in sums of k terms k times the unit roundoff of them. Both are charged
# for all models w with sum_j size_j |w_j| up to ``REACH`` times its value at this model, or up to
# the sum of the constants; the rounding of the constants is charged as well. Multipliers that
# cancel each other only weaken the bound.
#
# With weight 0 on the objective the same minimum, if positive, proves that no model up to ``FAR``
# times as large meets all constraints, since the remainder is charged that far.

ROUNDING = 1e-12  # relative to the terms that cancel
# thresholds below which multipliers are left out of a proof of infeasibility, relative to the
# largest one
NEGLIGIBLE = (1e-9, 1e-5, 1e-2)
BESIDE = 6  # operations on every number beside the sums that are counted, at most
FLOOR = 1e-15  # relative to them: balancing further gains nothing below this
INSIDE = 1 - 1e-6  # of a radius: a model that is not on the edge of a ball
BALANCING = 8  # rounds of balancing at most
DENSE = 500  # coefficients up to which Hessians are matrices; products take their place beyond
FARTHER = 1e3  # standard deviations from 0 to a column that hinders methods
PRODUCTS = 400  # of the Hessian with a direction, at most
# how far the remainder is charged for a bound; for a proof of infeasibility it is ``FAR``: charged
# that far, 1e-13 would be 1e-7 of a bound, above the tolerances of second-order methods
REACH = 1e2


@record
class Weigh:
    """Ask for values and gradients at ``w``, and a minorant of weight * f + <multipliers, c>.

    The gradients of the minorant are shifted by v.
    """

    w: Annotated[Array, Form("D")]
    shift: Annotated[Array, Form("D")]  # v
    prior: Annotated[Each, Form("N")]  # q_i, or 0
    local: Annotated[Each, Form("N, p")]
    shared: Annotated[Array, Form("p_c")]
    first: bool  # whether to send the numbers that do not depend on v as well


@record
class Weighed:
    """A client's part of the certificate."""

    constant: Sum  # (n,) of the minorant
    balance: Sum  # (n, D) its gradient
    size: Sum  # (n, D) at least the sum of the sizes of the terms of ``balance``
    spread: Sum  # (n,) and of those of ``constant``
    terms: Max  # (n,) how many they are
    # (1, D, D) the Hessian of rows whose gradients cannot move any further
    locked: Sum | None
    risk: Each | None  # (n,) f_i(w)
    loss: Each | None  # (n,) mean loss over all rows
    local: Each | None  # (n, p) c_i(w); -1 where it has none
    # (n, p) that are asked, NaN where a client has none
    limits: Annotated[Each, Form(nan=True)] | None
    shared: Sum | None  # (n, p_c)
    shared_limits: Sum | None  # (n, p_c) its parts of them
    gradient: Sum | None  # (n, D) of the Lagrangian without h and the server's part
    start: Sum | None  # (n, D) of f at w = 0
    hessian: Sum | None  # (1, D, D) of the Lagrangian
    diagonal: Sum | None  # (n, D) of it, where there are too many coefficients for a matrix


@record
class WeighAlong:
    """Ask for the Hessian of the Lagrangian, without ``locked``, times a direction.

    The other fields are those of ``Weigh``.
    """

    w: Annotated[Array, Form("D")]
    shift: Annotated[Array, Form("D")]
    prior: Annotated[Each, Form("N")]
    local: Annotated[Each, Form("N, p")]
    shared: Annotated[Array, Form("p_c")]
    direction: Annotated[Array, Form("D")]


@record
class WeighedAlong:
    """A client's part of the product."""

    product: Sum  # (n, D)


@record
class WeighingState:
    """The server's state during certification."""

    first: Weighed | None
    shift: Array
    left: float  # the remainder of the gradients, relative to the terms that cancel
    bound: float
    rounds: int
    nearby: float = -math.inf  # the bound on the models near by
    moving: ConjugateGradients | None = None  # on the way to the next shift
    products: int = 0


@dataclass(frozen=True)
class Weighing(plausible.AboutRows):
    """Rounds with every client that evaluate a model and its multipliers and prove a bound."""

    w: Array
    mu: Multipliers
    objective: bool = True  # False: the constraints alone
    bounded: bool = True  # False: numbers at the model alone, in one round
    problem: Problem | None = None

    stateless: ClassVar[bool] = True

    def for_clients(self) -> "Weighing":
        """The rounds only: model and multipliers come with the messages, zeros stand for them."""
        zero = np.zeros(1)
        return Weighing(zero, Multipliers(zero, zero, zero[None]), self.objective, self.bounded)

    @property
    def on_client(self) -> dict:
        return {Weigh: self._answering(self.weigh), WeighAlong: self._answering(self.weigh_along)}

    @property
    def on_server(self) -> dict:
        return {Weighed: self.balance, WeighedAlong: self.move}

    @property
    def claims(self) -> plausible.Claims:
        return {Weighed: self._said}

    def _said(self, who: int, ask: Weigh, up: Weighed) -> Iterator[Claim]:
        """What values and a minorant claim."""
        problem, w, D = self.concrete, ask.w, len(ask.w)
        for what in (up.size, up.spread, up.terms):
            yield Number("a size", what)
        if up.risk is not None and up.loss is not None:
            yield from plausible.of_risk(problem, w, up.risk)
            yield Number("a mean loss", 0.0 if isinstance(problem.loss, Quadratic) else up.loss)
        yield from plausible.of_limits(problem, w, "local", None, up.local)
        yield from plausible.of_limits(problem, w, "shared", None, up.shared)
        yield from plausible.of_lagrangian(problem, w, up.hessian)
        if self.provable and plausible.is_convex(problem):
            of = {("risk", D): ask.prior[0], ("local", D): ask.local[0], ("shared", D): ask.shared}
            constant, size = float(up.constant[0]), float(up.spread[0])
            yield Below(of, constant, up.balance[0], size, ROUNDING)

    def server_start(self, n_clients: int) -> tuple[WeighingState, Round]:
        state = WeighingState(None, np.zeros_like(self.w), math.inf, -math.inf, 0)
        return state, self.question(state, n_clients)

    def question(self, state: Any, n_clients: int) -> Round:
        """What the clients are asked next."""
        prior = weighting(self.concrete, self.mu, n_clients) * self.objective
        asked = self.w, state.shift, prior, self.mu.local, self.mu.shared
        if state.moving is not None:
            return Round(WeighAlong(*asked, state.moving.direction))
        return Round(Weigh(*asked, state.first is None))

    # -- clients -----------------------------------------------------------------------------------

    def weigh(self, problem: Problem, ask: Weigh, data: Block) -> Weighed:
        point = Point(problem, ask.w, data)
        terms, dense = self._terms(ask, data), len(ask.w) <= DENSE
        constant, balance, size, spread, count = minorant(point, ask.prior, terms, ask.shift)
        ended = locked(point, ask.prior, terms, ask.shift) if dense else None
        if not ask.first:
            return Weighed(constant, balance, size, spread, count, ended, *[None] * 10)
        zero = Point(problem, np.zeros_like(ask.w), data)
        pushed = [np.einsum("np,npd->nd", mu, stack.jacobian(point)) for stack, mu in terms]
        risk = loss = client_means.client_values(point)
        if not isinstance(problem.loss, Quadratic):
            loss = data.mean(problem.loss.value(point.prediction, data.y))
        matrix = diagonal = None
        if self.provable and dense:
            matrix = client_means.hessians(point, ask.prior, curved(terms), together=True)
        elif self.provable:
            diagonal = client_means.hessian_diagonals(point, ask.prior, curved(terms))
        sums = constant, balance, size, spread, count, ended
        limits: Any = [
            part for stack, _ in terms for part in (stack.values(point), stack.limits(data))
        ]
        gradient = ask.prior[:, None] * client_means.client_gradients(point) + sum(pushed)
        start = ask.prior[:, None] * client_means.client_gradients(zero)
        rest: Any = (risk, loss, *limits, gradient, start, matrix, diagonal)
        return Weighed(*sums, *rest)

    def weigh_along(self, problem: Problem, ask: WeighAlong, data: Block) -> WeighedAlong:
        point, terms = Point(problem, ask.w, data), self._terms(ask, data)
        return WeighedAlong(hessian_product(point, ask.prior, terms, ask.shift, ask.direction))

    def _terms(self, ask: Weigh | WeighAlong, data: Block) -> list[tuple[Stack, Array]]:
        """The clients' constraints with their multipliers."""
        shared = np.tile(ask.shared, (len(data.names), 1))
        problem = self.concrete
        return [(problem.local_constraint, ask.local), (problem.constraint.coupled, shared)]

    # -- server ------------------------------------------------------------------------------------

    @property
    def provable(self) -> bool:
        """Whether a lower bound is to be proved and can be: all parts are convex and have
        conjugates.
        """
        problem, loss = self.concrete, self.concrete.loss
        known = isinstance(loss, Quadratic) or (loss.smooth and has_conjugate(loss))
        glob, local = problem.constraint, problem.local_constraint
        convex = local.convex and glob.convex
        return self.bounded and known and convex and hasattr(problem.regulariser, "conjugate")

    def balance(self, state: Any, ids: Sequence[int], up: Weighed) -> Next:
        first = state.first or up
        state = replace(state, first=first, rounds=state.rounds + 1)
        done = Done(Stop.OPTIMAL)
        if not self.provable:
            return state, done
        here, terms = self._here()
        constant, gradient, size, spread, count = minorant(here, None, terms, state.shift)
        g, scale = up.balance + gradient[0], up.size + size[0]
        value, unbalanced, length = self._least(g, first)
        left = float((np.abs(unbalanced) / np.maximum(scale, 1e-300)).max(initial=0.0))
        constant = float(up.constant) + float(constant[0]) + value
        spread = float(up.spread) + float(spread[0]) + abs(value)
        # the sums of a client, those over clients, and what is done with every number beside; the
        # constant has products with models as well
        rounding = (float(max(up.terms, count[0])) + len(ids) + BESIDE) * UNIT
        of_constant = rounding + len(g) * UNIT
        # hypot, since squares of a gradient far away may overflow
        loose = math.hypot(*unbalanced) + rounding * math.hypot(*scale)
        if left <= ROUNDING or not self.objective:
            size = np.maximum(np.abs(self.w), np.abs(self.w + state.shift))
            far = max(float(scale @ size), spread) * (REACH if self.objective else duality.FAR)
            bound = constant - (left + rounding) * far - of_constant * spread
        else:
            bound = min(constant - loose * length - of_constant * spread, self._value(first))
        near = constant - loose * NEARBY * math.hypot(*self.w) - of_constant * spread
        aim, free = self._aim(g, unbalanced)
        rest = float((np.abs(aim) / np.maximum(scale, 1e-300)).max(initial=0.0))
        stuck = rest > state.left / 2 if state.left <= ROUNDING else False
        if self.objective and not isinstance(self.concrete.loss, Quadratic):
            bound = max(bound, 0.0)  # losses, and so the objective, are nonnegative
        known = {"bound": max(state.bound, bound), "nearby": max(state.nearby, near)}
        state = replace(state, **known, left=min(rest, state.left))
        if rest <= FLOOR or stuck or state.rounds >= BALANCING:
            return state, done
        if first.diagonal is not None:
            right, diagonal = np.zeros_like(aim), np.zeros_like(aim)
            server = client_means.hessian_diagonals(here, None, curved(terms))[0]
            whole = server + first.diagonal + self._ridge()
            right[free], diagonal[free] = aim[free], np.maximum(whole[free], 0.0)
            moving = started(right, diagonal)
            if moving.ended or state.products >= PRODUCTS:
                return state, done
            state = replace(state, moving=moving)
            return state, self.question(state, len(ids))
        whole = client_means.hessians(here, None, curved(terms), together=True)[0]
        whole = whole + first.hessian - up.locked
        whole[np.diag_indices(len(g))] += self._ridge()
        shift = state.shift.copy()
        shift[free] -= pseudosolve(whole[np.ix_(free, free)], aim[free])
        state = replace(state, shift=shift)
        return state, self.question(state, len(ids))

    def move(self, state: Any, ids: Sequence[int], up: WeighedAlong) -> Next:
        """Go on to the next shift by one product; then ask for the minorant there."""
        here, terms = self._here()
        p = state.moving.direction
        product = up.product + hessian_product(here, None, terms, state.shift, p)[0]
        product = np.where(state.moving.diagonal > 0, product + self._ridge() * p, 0.0)
        state = replace(state, moving=stepped(state.moving, product), products=state.products + 1)
        if state.moving.ended or state.products >= PRODUCTS:
            if not state.moving.x.any():  # nothing balances what is left
                return state, Done(Stop.OPTIMAL)
            state = replace(state, shift=state.shift - state.moving.x, moving=None)
        return state, self.question(state, len(ids))

    def _here(self) -> tuple[Point, list[tuple[Stack, Array]]]:
        """The model on the server's rows, and its constraints with their multipliers."""
        glob = self.concrete.constraint
        return glob.point(self.concrete, self.w), [(glob.held, self.mu.server[None])]

    def _ridge(self) -> Array:
        """(D,) the curvature of the regulariser, on the coefficients that it penalises."""
        return self.objective * ridge_of(self.concrete, self.w)

    def _aim(self, g: Array, unbalanced: Array) -> tuple[Array, NDArray[np.intp]]:
        """The part of the gradient to balance next, and the coefficients that can move for it.

        Beside the unbalanced part this is what h balances at a first-order loss of the bound: where
        w is at no kink and no bound.
        """
        h, coefficients = self.concrete.regulariser, self.concrete.predictor.split(self.w)[0]
        free = np.ones(len(g), bool)
        if isinstance(h, regularisers.Bounds):
            free[: len(coefficients)] = (coefficients > h.lower) & (coefficients < h.upper)
        elif self.objective and isinstance(
            h, regularisers.L1 | regularisers.ElasticNet | regularisers.GroupL2
        ):
            free[: len(coefficients)] = coefficients != 0
        elif (
            isinstance(h, regularisers.Ball)
            and np.linalg.norm(coefficients - h.centre) < INSIDE * h.radius
        ):
            pass  # h is flat around w
        elif len(g) <= DENSE:
            return unbalanced, np.arange(len(g))
        else:  # what h balances moves with it, at no product
            return unbalanced, np.flatnonzero(unbalanced)
        off = -off_regulariser(self.concrete, self.w, -g)
        aim = np.where(unbalanced != 0, unbalanced, np.where(free, off, 0.0))
        return aim, np.flatnonzero(free | (aim != 0))

    def _least(self, g: Array, first: Weighed) -> tuple[float, Array, float]:
        """The minimum of <g, w> + h(w), the part of g that h does not balance, and a length.

        The length bounds that of optimal models.
        """
        problem, h = self.concrete, self.concrete.regulariser
        if not self.objective and not isinstance(h, regularisers.Ball | regularisers.Bounds):
            h = regularisers.Zero()
        penalised, free = problem.predictor.split(g)
        s = in_domain(h, -penalised)
        unbalanced = penalised + s
        if problem.predictor.intercept:
            unbalanced = np.append(unbalanced, free)
        length, free_of_data = math.inf, self.objective and not problem.predictor.intercept
        if free_of_data and not isinstance(problem.loss, Quadratic):
            length = region(problem, self._value(first), len(penalised), None).length
        return -float(h.conjugate(s)), unbalanced, length

    def _value(self, first: Weighed) -> float:
        """The objective at w.

        A bound on the models of at most this value suffices, since all others are above it.
        """
        return float(self.concrete.over_clients.value(first.risk)) + self.concrete.penalty(self.w)


def _check(problem: Problem, fed: Data, w: Array, mu: Multipliers, like: Multipliers) -> None:
    checked_model(w, problem.predictor.dimension(fed.n_features))
    for name in ("server", "shared", "local"):
        part, needed = getattr(mu, name), getattr(like, name)
        if part.shape != needed.shape or not np.isfinite(part).all():
            raise ValueError(
                f"multipliers.{name} must be finite with shape {needed.shape}, got {part.shape}."
            )
    if mu.weights is not None and (
        mu.weights.shape != (fed.n_clients,) or not np.isfinite(mu.weights).all()
    ):
        raise ValueError(
            f"multipliers.weights must be {fed.n_clients} finite numbers, got shape"
            f" {mu.weights.shape}."
        )


def certify_constrained(
    problem: Problem,
    fed: Data,
    w: Array,
    mu: Multipliers | None,
    engine: Engine | None = None,
    infeasible: bool = False,
    bounded: bool = True,
) -> tuple[Certificate, list[Any]]:
    """The certificate of a model under constraints, and the engine's runs.

    Parameters
    ----------
    problem, fed : the user's
    w : (D,) the model
    mu : multipliers, or None: zeros
    infeasible : also try to prove by mu that no model meets all constraints
    bounded : False: prove nothing, and compute what stands at the model

    Raises
    ------
    ValueError
        w or multipliers that are not finite or do not fit the problem
    """
    _, fed, w, mu = centred_proof(problem, fed, np.asarray(w, float), mu)
    concrete, data = problem.at(fed)
    none = no_multipliers(concrete, fed.n_clients)
    mu = none if mu is None else mu
    _check(concrete, data, w, mu, none)
    mu = signed(concrete, mu)
    if concrete.over_rows is not None:
        # by cuts in model and thresholds: at the best of these a mean is the risk over all rows
        rounds = RankCertification(w, np.asarray(data.sizes, float), concrete, bounded=False)
        ranks = duality.run_all(rounds, data, engine)
        there, duals = np.append(w, ranks.state.high), as_duals(mu) if bounded else None
        whole = lifted(concrete)
        proof, run = duality.certify_concrete(whole, data, there, duals, engine, None, infeasible)
        weights, loss = ranks.state.weights, ranks.state.looked.loss
        weights = proof.weights if weights is None else weights
        return replace(proof, weights=weights, client_risks=loss, client_losses=loss), [run, ranks]
    # cuts say nothing of the curvature of Quadratic, and only that bounds it from below
    by_cuts = mu.points is not None and not isinstance(concrete.loss, Quadratic)
    by_cuts |= duality.with_sums(concrete, None, engine)
    if by_cuts or not isinstance(concrete.over_samples, Mean):
        cuts = as_duals(mu) if bounded else None
        proof, run = duality.certify_concrete(concrete, data, w, cuts, engine, None, infeasible)
        return proof, [run]
    here = Weighing(w, none if infeasible else mu, True, bounded, concrete)
    runs = [duality.run_all(here, data, engine)]
    proof = None
    if infeasible and bounded:
        sizes = [mu.server, mu.shared, mu.local]
        largest = max(float(np.abs(part).max(initial=0.0)) for part in sizes)
        # Multipliers whose sizes sum to one: then their combination of the constraints is at most
        # the largest violation. Those below ``least`` of the largest are left out: where the large
        # ones have no curvature nothing balances them.
        for least in NEGLIGIBLE:
            parts = [np.where(np.abs(part) > least * largest, part, 0.0) for part in sizes]
            total = sum(float(np.abs(part).sum()) for part in parts)
            scaled = mu if total == 0 else Multipliers(*(part / total for part in parts))
            runs.append(duality.run_all(Weighing(w, scaled, False, True, concrete), data, engine))
            proof = max(proof or -math.inf, runs[-1].state.bound)
            if proof > 0:
                break
    return conclude_constrained(concrete, w, none if infeasible else mu, runs[0].state, proof), runs


def conclude_constrained(
    problem: Problem, w: Array, mu: Multipliers, state: WeighingState, proof: float | None
) -> Certificate:
    """The certificate from the clients' answers, by arithmetic only."""
    up, glob = state.first, problem.constraint
    assert up is not None
    # the first answers bring all of these
    known: list[Any] = [up.risk, up.loss, up.local, up.shared, up.limits, up.start]
    risk, loss, values, shared, limits, start = known
    weights = weighting(problem, mu, len(risk))
    value = problem.over_clients.value(risk) + problem.penalty(w)
    here = glob.point(problem, w)
    held = glob.held.values(here)[0]
    gradient = up.gradient + mu.server @ glob.held.jacobian(here)[0]
    bound = state.bound if math.isfinite(state.bound) and proof is None else None
    unproved = bound is None and proof is None
    if unproved and value <= NOTHING and not isinstance(problem.loss, Quadratic):
        bound = 0.0  # losses are nonnegative
    local = np.where(np.isnan(limits), np.nan, values)
    # how far the client weights are from the worst ones
    short = np.atleast_1d(problem.over_clients.value(risk) - weights @ risk)
    products = [short, mu.local * np.nan_to_num(local), mu.shared * shared, mu.server * held]
    parts = ((problem.local_constraint, values), (glob.coupled, shared), (glob.held, held))
    far = max(excess(stack, part) for stack, part in parts)
    numbers = value, bound, weights, risk, loss
    return certificate(
        *numbers,
        nearby=duality.stated_nearby(value, state.nearby) if unproved and bound is None else None,
        feasibility=far + outside(problem, problem.predictor.split(w)[0]),
        stationarity=float(np.abs(off_regulariser(problem, w, -gradient)).max(initial=0.0)),
        complementarity=max(float(np.abs(part).max(initial=0.0)) for part in products),
        constraint_values=local,
        server_values=held,
        shared_values=shared,
        gradient_scale=float(np.abs(start).max(initial=0.0)),
        infeasible=proof if proof is not None and proof > 0 else None,
    )


# Affine minorants of convex Lagrangians, by Fenchel's inequality row by row.

UNIT = float(np.finfo(float).eps) / 2  # the relative error of one operation


class AffineMinorant(NamedTuple):
    """constant + <gradient, w> for each of n clients, as it was computed.

    A sum of k terms is off by at most k UNIT times the sum of their sizes, up to second order, and
    a product of k numbers by k UNIT times its size.
    """

    constant: Array  # (n,)
    gradient: Array  # (n, D)
    size: Array  # (n, D) at least the sizes of the terms of the gradient
    spread: Array  # (n,) and of those of the constant
    terms: Array  # (n,) how many terms an entry of the gradient has at most


def minorant(
    point: Point, prior: Array | None, terms: Sequence[Any], shift: Array
) -> AffineMinorant:
    """An affine minorant of sum_i prior_i f_i + <multipliers, c> for every client.

    The gradients of the row losses are those at w, shifted along the linear map of ``shift`` and
    clipped to their domain.
    """
    problem, block = point.problem, point.block
    n, D = point.models.shape
    rows: Array | None = None
    gradients, constants = np.zeros((n, D)), np.zeros(n)
    size, spread, count = np.zeros((n, D)), np.zeros(n), np.zeros(n)
    # the point of tangency of all parts but the row losses, and those without second derivatives,
    # whose gradients at another point nobody knows before
    moved = Point(problem, point.w + shift, block) if shift.any() else point
    for constraints, multipliers in terms:
        kinds = zip((moved, point), constraints.by_curvature(multipliers), strict=True)
        for at, (part, mine) in kinds:
            row, gradient, constant = part.split(at, mine)
            rows = added(rows, row)
            gradients, constants = gradients + gradient, constants + constant
        each, weight = constraints.values(point), np.abs(multipliers)
        size, count = size + constraints.magnitudes(point, weight), count + constraints.size
        limits = np.abs(np.nan_to_num(constraints.limits(block)))
        spread = spread + (weight * (np.abs(each) + limits)).sum(1)
    spread = spread + (size * np.maximum(np.abs(point.models), np.abs(moved.models))).sum(1)
    loss, y = problem.loss, block.y
    if isinstance(loss, Quadratic):
        if prior is not None:
            gradients = gradients + prior[:, None] * client_means.client_gradients(moved)
            constants = constants - prior * (moved.models * moved.prediction).sum(1) / 2
            sizes = np.abs(moved.models)[:, :, None]
            products = np.matmul(np.abs(np.asarray(block.X)), sizes)[:, :, 0]
            size = size + prior[:, None] * (products + np.abs(y))
            spread = spread + prior * (np.abs(moved.models) * products).sum(1)
        return AffineMinorant(constants, gradients, size, spread, count)
    if prior is not None:
        rows = added(rows, prior[:, None] * client_means.row_shares(problem, block))
    if rows is not None and loss.smooth and has_conjugate(loss):
        change = loss.curvature(point.prediction, y) * problem.predictor.forward(shift, block)
        gradient = clipped_gradients(loss, loss.gradient(point.prediction, y) + change, y)
        conjugate = np.where(rows > 0, loss_conjugate(loss, gradient, y), 0.0)
        constants = constants - (rows * conjugate).sum(1)
        gradients = gradients + problem.predictor.backward(point.w, rows * gradient, block)
        size = size + magnitudes_of_rows(point, rows, gradient)
        spread, count = spread + most_added(np.abs(rows), conjugate), count + (rows != 0).sum(1)
    return AffineMinorant(constants, gradients, size, spread, count)


def curved(terms: Sequence[tuple[Stack, Array]]) -> list[tuple[Stack, Array]]:
    """The constraints with second derivatives, with their multipliers."""
    return [constraints.by_curvature(multipliers)[0] for constraints, multipliers in terms]


def locked(point: Point, prior: Array, terms: Sequence[Any], shift: Array) -> Array:
    """The Hessian, (1, D, D), of the rows whose gradients reached the end of their domain.

    The shift led them there; it is their part of the Hessian of the Lagrangian.
    """
    rows = _locked_rows(point, prior, terms, shift)
    if rows is None:
        return np.zeros((1, point.w.shape[-1], point.w.shape[-1]))
    return point.problem.predictor.gram(rows, point.block)[None]


def _locked_rows(point: Point, prior: Array, terms: Sequence[Any], shift: Array) -> Array | None:
    """The curvature (n, m) of those rows; None: zero."""
    problem, block = point.problem, point.block
    if isinstance(problem.loss, Quadratic) or not shift.any() or not has_conjugate(problem.loss):
        return None
    loss, y = problem.loss, block.y
    rows: Array | None = prior[:, None] * client_means.row_shares(problem, block)
    for constraints, multipliers in terms:
        rows = added(rows, constraints.split(point, multipliers)[0])
    assert rows is not None
    curvature = loss.curvature(point.prediction, y)
    change = curvature * problem.predictor.forward(shift, block)
    gradient = loss.gradient(point.prediction, y) + change
    return rows * curvature * (clipped_gradients(loss, gradient, y) != gradient)


def hessian_product(
    point: Point, prior: Array | None, terms: Sequence[Any], shift: Array, direction: Array
) -> Array:
    """The Hessian of a client's part of the Lagrangian, without the rows of `locked`, times a
    direction, (n, D).
    """
    problem, block = point.problem, point.block
    rows, matrices = client_means.curvatures(point, prior, curved(terms))
    total = np.zeros(point.models.shape)
    if rows is not None:
        ended = None if prior is None else _locked_rows(point, prior, terms, shift)
        rows = rows if ended is None else rows - ended
        along = problem.predictor.forward(direction, block)
        total = problem.predictor.backward(point.w, rows * along, block)
    return total if matrices is None else total + matrices @ direction


def in_domain(h: regularisers.SupportsConjugate, s: Array) -> Array:
    """A point of the domain of h* near s."""
    if math.isfinite(h.conjugate(s)):
        return s
    if isinstance(h, regularisers.Bounds):
        return h.pushes(s)
    # by Moreau's identity this is the prox of h*, and where h* is an indicator the projection
    s = s - h.prox(s, 1.0)
    # rounding may leave it just outside
    inner = ((1 - shrink) * s for shrink in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-10))
    return next((near for near in inner if math.isfinite(h.conjugate(near))), s)


def pseudosolve(matrix: Array, right: Array) -> Array:
    """The pseudoinverse of a positive semidefinite matrix times a vector.

    It is taken in units of the root of the diagonal.
    """
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        return np.zeros_like(right)
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    units = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2 * np.outer(units, units))
    keep = values > 1e-14 * max(float(values[-1]), 1e-300)
    return units * (vectors[:, keep] @ ((vectors[:, keep].T @ (units * right)) / values[keep]))


# the rounds in which certificates are computed, and what they are told, as sites know them
ROUNDS = (duality.Certification, RankCertification, SpectrumCertification, Weighing, Multipliers)
