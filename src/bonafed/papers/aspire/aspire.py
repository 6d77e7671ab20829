"""ASPIRE-EASE: asynchronous gradient projection for the worst client weights, with cutting planes.

    minimise over w:  max_{p in P} sum_j p_j f_j(w) + h(w)                                  (3), (4)

    L_p = h + sum_l lambda_l (p_l'f(w) - h) + sum_j phi_j'(z - w_j) + kappa / 2 sum_j ||z - w_j||^2
    (9)

Jiao, Yang, Song, *Federated distributionally robust optimization with non-convex objectives:
algorithm and analysis*; equation numbers are theirs. Worker j stores a copy w_j of the model and
phi_j; the master stores z, h, a number lambda_l for each cutting plane p_l in P, and every worker's
w_j and phi_j. It goes on with the workers who have answered: how many, and how old answers may be,
is a setting of the engine (S, tau, ASPIRE-ADP).

This version corrects five points: (12) has -phi_j where -w_j is printed; c_1 = c_2 = 0 replaces
schedules that stall; steps scale with the number of workers; the oracle is exact; planes are added
as long as it finds one. The master handles the regulariser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Each, Form, Streams, record

# The master's half of ASPIRE-EASE: one iteration, and the measurement of its progress.
#
#     z      <- P(z - eta_z (sum_j phi_j + kappa sum_j (z - w_j)))  (13)
#     h      <- P(h - eta_h (1 - sum_l lambda_l))  (14)
#     lambda <- P(lambda + rho_1 (p_l'f - h - c_1 lambda_l))  (15)
#     phi_j  <- P(phi_j + rho_2 (z - w_j - c_2 phi_j)),    j in Q  (16)
#     A      <- A and p = argmax_P p'f where p'f > max_l p_l'f,
#               without those whose lambda is 0                                           (18)-(21)
#
# A plane is stored as its vertex p_l = pbar + a_l: pbar cancels everywhere. The master stores every
# worker's w_j and phi_j, so that an answer changes two rows and two sums, whatever N; about every N
# answers the sums are computed anew and the stationarity gap is measured. The arrays of the state
# are overwritten.

Index = NDArray[np.intp]


@record
class Measured:
    """The distance of the iterates from a stationary point, as measured last."""

    stationarity: ext.Extended  # ||grad G||^2, (32); the workers' parts as of their last trips
    oracle: ext.Extended  # max_P p'f - max_l p_l'f
    consensus: ext.Extended  # root mean square of ||z - w_j||
    # max_P p'f + the regulariser at z: the objective with every loss at the worker's copy
    value: ext.Extended
    # the largest of: the parts of the gap for w and z relative to the first gradients, that for h,
    # max_P p'f - p*'f (p* = sum lambda_l p_l normalised) and the consensus, relative to their sizes
    residual: ext.Extended
    answers: int  # received by then


NOTHING = Measured(*[math.inf] * 5, answers=0)


@record
class ASPIREState:
    """The state of the master."""

    z: Annotated[Array, Form("D")]
    h: float
    weights: Annotated[Array, Form("K")]  # lambda
    before: Annotated[Array, Form("K")]  # lambda one iteration ago
    planes: Annotated[Array, Form("K, N")]  # p_l, each in P
    copies: Annotated[Array, Form("N, D")]  # w_j
    dual: Annotated[Array, Form("N, D")]  # phi_j
    total: Annotated[Array, Form("D")]  # sum_j w_j
    pull: Annotated[Array, Form("D")]  # sum_j phi_j
    loss: Annotated[Array, Form("N")]  # f_j(w_j)
    gap: Annotated[Array, Form("N")]  # each worker's part of (32)
    # the number of answers of all workers at each worker's last one
    last: Annotated[Array, Form("N")]
    age: Annotated[Array, Form("N")]  # the same between its last two
    steps: Steps | None = None
    rounds: Annotated[int, Form(rounds=-1)] = 0  # t
    answers: int = 0
    checked: int = 0  # answers when the planes were checked last
    added: ext.Counter = 0
    dropped: ext.Counter = 0
    bits: int = 0  # by Theorem 2
    measured: Measured = NOTHING


def received(state: ASPIREState, ids: Index, up: Approached) -> ASPIREState:
    """The state with these answers in their workers' rows."""
    copies, loss = ext.writable(state.copies), ext.writable(state.loss)
    gap, total = ext.writable(state.gap), ext.writable(state.total)
    last, age, answers = ext.writable(state.last), ext.writable(state.age), state.answers + len(ids)
    total += (up.w - copies[ids]).sum(0)
    copies[ids], loss[ids], gap[ids] = up.w, up.loss, up.gap
    age[ids], last[ids] = answers - last[ids], answers
    state = replace(state, copies=copies, loss=loss, gap=gap, total=total)
    return replace(state, last=last, age=age, answers=answers)


def bounds_reached(state: ASPIREState, steps: Steps) -> list[str]:
    """Which of alpha_1 to alpha_4 and the floor of h hold iterates back."""
    reach, top, cap, pull = (np.asarray(steps.bounds) * (1 - 1e-9)).tolist()
    active = {
        "alpha_1": (max(np.abs(state.z).max(), np.abs(state.copies).max()) >= reach),
        "alpha_2": state.h >= top,
        "alpha_3": bool((state.weights >= cap).any()),
        "alpha_4": bool((np.abs(state.dual) >= pull).any()),
        "floor": (state.h <= steps.floor and float(state.weights.sum()) < 0.99),
    }
    return [name for name, holds in active.items() if holds]


def mixture(problem: bf.Problem, state: ASPIREState) -> Array:
    """p* = sum_l lambda_l p_l, normalised: it lies in P, as every p_l does."""
    total = float(state.weights.sum())
    if total > 0:
        return (state.weights / total) @ state.planes
    return np.asarray(problem.over_clients.weights(state.loss), float)


# The step sizes and bounds of ASPIRE-EASE: the user's, chosen from the first answers, or by the
# schedules of its theory.
#
#     kappa = 3 L / N,  eta_z = 1 / (N kappa),  rho_2 = kappa / 2
#     eta_w = 1 / (kappa + omega_j L_j),  rho_1 = share slow wide / (|A| f),  eta_h = share f / 2
#
# L is the mean curvature and f the mean loss at the first model. kappa, 1 / eta_w and rho_2 are of
# the size 1/N because omega_j is: everything else makes progress of the size 1/N. With
# share = |Q| / N, N answers count alike, one by one or together. |A| planes push
# sum_l lambda_l together, so each moves |A| times less; wide = 0.2 / spread within [1, 2], as
# planes that differ little (spread: mean ||p_l - p||^2) change little. The paper bounds rho_1 by
# 1/tau; here slow = (6 / age)^(3/2) within [1/32, 1], where age is the longest time between two
# answers of one worker, counted in answers of all workers over N: without it lambda runs ahead of a
# worker who cannot follow.
#
# Theorem 1 and Setting 2: c = nu / (rho (t + 1)^(1/6)), and one eta for w, z and h. As printed
# (nu = 1) its two conditions on rho exclude each other for every L > 0; rho = 2 (1 - nu) / L with
# nu < 1 meets both.

GAMMA = 2.0  # gamma of Theorem 1, its least value
# right in experiments with one worker up to 50 times slower than the others
AGE, POWER, LEAST = 6.0, 1.5, 1 / 32
NARROW = 0.2  # spread of planes below which they may move faster
WIDE = 1000.0  # times the distance (loss / curvature)^(1/2), within which a model lies


@record
class Steps:
    """The step sizes and bounds of a run, which are chosen once, from the first answers."""

    workers: Annotated[int, Form(most="N")]  # N
    kappa: float
    rho1: float  # per N answers and plane, unless it is the user's
    rho2: float
    eta_w: float | None  # None: each worker's own
    eta_z: float
    eta_h: float  # per N answers, unless it is the user's
    bounds: tuple[float, ...]  # alpha_1 to alpha_4: of |w|, |z|; of h; of lambda; of |phi|
    floor: float  # of h
    smooth: float  # L of Assumption 1
    loss: float  # mean |f_j| at the first model
    gradient: float  # ||omega_j f_j'|| over all workers there
    length: float  # (loss / curvature)^(1/2): the size of a step that matters


@dataclass(frozen=True)
class Now:
    """The step sizes of one iteration."""

    eta_w: float | None
    eta_z: float
    eta_h: float
    rho1: float
    rho2: float
    c1: float
    c2: float


def chosen(settings: ASPIRE, up: Gauged, omega: Array, w: Array) -> Steps:
    """The settings' step sizes and bounds; where these are None, ones from the first losses,
    gradients and curvatures.
    """
    n = len(up.loss)
    loss = max(float(np.abs(up.loss).mean()), 1e-300)
    bend = max(float(up.curvature.mean()), 1e-12 * float((up.length**2).mean()) / loss, 1e-300)
    length = math.sqrt(loss / bend)
    kappa = settings.kappa or 3 * bend / n
    gradient = float(np.sqrt(((omega * up.length) ** 2).sum()))
    # L of Assumption 1 at the first model: the norms of the blocks of the second derivative of L_p
    within = (n + 1) * kappa + float((omega * up.curvature).max())
    smooth = settings.smooth or within + gradient + 1 + math.sqrt(n + 1)
    rho = 2 * (1 - settings.nu) / smooth if settings.theory else None
    reach = float(np.abs(w).max(initial=0.0)) + WIDE * length
    alphas = reach, 10 * float(np.abs(up.loss).max()), 2.0, 10 * float(up.steep.max())
    pairs = zip(alphas, settings.bounds, strict=True)
    bounds = tuple(max(a, 1e-300) if b is None else b for a, b in pairs)
    rho1, rho2 = settings.rho1 or rho or 1 / loss, settings.rho2 or rho or kappa / 2
    etas = settings.eta_w, settings.eta_z or 1 / (n * kappa), settings.eta_h or loss / 2
    sizes = smooth, loss, gradient, length
    return Steps(n, kappa, rho1, rho2, *etas, bounds, settings.floor, *sizes)


def steps_at(method: ASPIRE, steps: Steps, t: int, planes: Array, share: float, age: float) -> Now:
    """The step sizes of iteration t with these planes (K, N); the module explains ``age`` and
    ``share``.
    """
    if method.theory:
        return _by_theory(method, steps, t, len(planes))
    rho1 = steps.rho1
    if method.rho1 is None:
        slow = min(1.0, max((AGE / max(age, 1.0)) ** POWER, LEAST))
        spread = float(((planes - planes.mean(0)) ** 2).sum()) / len(planes)
        rho1 *= share * slow * min(2.0, max(NARROW / max(spread, 1e-300), 1.0)) / len(planes)
    eta_h = steps.eta_h * (share if method.eta_h is None else 1.0)
    return Now(steps.eta_w, steps.eta_z, eta_h, rho1, steps.rho2, method.c1, method.c2)


def _by_theory(settings: ASPIRE, steps: Steps, t: int, planes: int) -> Now:
    """Theorem 1 with the schedules of Setting 2, repaired by nu < 1; the settings c_1 and c_2 are
    their lower ends.
    """
    n, rho1, rho2, L = steps.workers, steps.rho1, steps.rho2, steps.smooth
    fade = settings.nu / (t + 1) ** (1 / 6)
    c1, c2 = max(fade / rho1, settings.c1), max(fade / rho2, settings.c2)
    low1, low2, most = c1, c2, planes
    # the constant step after T1: M planes, and the lower ends of c_1 and c_2 where there are any
    if t >= settings.until:
        most = settings.max_planes or planes
        low1, low2 = settings.c1 or c1, settings.c2 or c2
    tail = 8 * GAMMA * L**2 * (most / (rho1 * low1**2) + n / (rho2 * low2**2))
    eta = 2 / (L + (rho1 * most + rho2 * n) * L**2 + tail)  # Theorem 1
    etas = settings.eta_w or eta, settings.eta_z or eta, settings.eta_h or eta
    return Now(*etas, rho1, rho2, c1, c2)


# The worker's half of ASPIRE-EASE: the messages, answers and memory of worker j.
#
#     phi_j <- P(phi_j + rho_2 (z - w_j - c_2 phi_j))  (16)
#     w_j  <- P(w_j - alpha_w (omega_j f_j'(w_j) - phi_j + kappa (w_j - z)))  (11),  (12)
#
# Jiao, Yang, Song, *Federated distributionally robust optimization with non-convex objectives:
# algorithm and analysis*; equation numbers are theirs. All that a worker needs of the cutting
# planes is omega_j = sum_l lambda_l p_lj, one number: neither lambda nor the planes are sent. The
# gradient at the new w_j is kept for the next trip, so the loss there is free.
#
# What leaves a worker: its w_j, its loss f_j(w_j), and the size of its part of the stationarity gap
# (32).

# power iterations, one gradient each, that measure the curvature of f_j at the first model
POWERS = 4


@record
class Gauge:
    """The first message: the model where the run starts; empty for the default start."""

    w: Annotated[Array, Form("D")]
    tells: ClassVar = ext.at_model()


@record
class Gauged:
    """The worker's sizes at the first model, from which the step sizes are chosen."""

    loss: Each  # (n,) f_j
    length: Each  # (n,) ||f_j'||
    steep: Each  # (n,) largest entry of |f_j'|
    curvature: Each  # (n,) largest eigenvalue of f_j'', by power iterations
    features: ext.Max  # (n,) how many


@record
class Approach:
    """The message to worker j after its last answer; ``z`` and omega_j are as old as that."""

    z: Annotated[ext.Version, Form("D")]
    omega: Annotated[Each, Form("N")]  # sum_l lambda_l p_lj
    # (N,) alpha_w of (11); None: 1 / (kappa + omega_j L_j), L_j the largest curvature seen
    step: Annotated[Each, Form("N")] | None
    fade: Annotated[Each, Form("N")] | None  # c_2 of (16); None: 0
    kappa: float
    rho: float  # rho_2
    reach: float  # alpha_1
    pull: float  # alpha_4
    # a step by the gradient at the last copy, and the loss at the new one
    tells: ClassVar = ext.at_models(lambda one: [one.before.u[0], one.memory.u[0]])


@record
class Approached:
    """A worker's answer."""

    w: Each  # (n, D)
    loss: Each  # (n,) f_j(w_j)
    gap: Each  # (n,) squared norm of its part of (32), at the model it set out from


@record
class ASPIREMemory:
    """The memory of a worker."""

    u: Annotated[Array, Form("n, D")]  # w_j
    dual: Annotated[Array, Form("n, D")]  # phi_j
    loss: Annotated[Array, Form("n")]  # f_j(w_j)
    gradient: Annotated[Array, Form("n, D")]  # f_j'(w_j)
    curvature: Annotated[Array, Form("n")]  # L_j


def ascended(dual: Array, z: Array, w: Array, rho: float, fade: Array | float, cap: float) -> Array:
    """phi_j after (16); server and worker both compute it, so that it is never sent."""
    return np.clip(dual + rho * (z - w - fade * dual), -cap, cap)


CUT = 1e-6  # by how much, relative, the worst vertex must exceed all planes to become one


@dataclass(frozen=True)
class ASPIRE(ext.Method):
    """The method of the paper, corrected, for smooth losses, convex or not, and any set of client
    weights.

    ``ASPIRE(drop=False)`` is ASPIRE-CP, ``ASPIRE(synchronous=True)`` ASPIRE-EASE(-),
    ``ASPIRE(local_steps=5)`` ASPIRE-EASE_per; ASPIRE-ADP is the engine
    ``VirtualClock(wait=Adaptive(...))``.

    Parameters
    ----------
    drop : whether planes without weight are dropped (EASE) or all are kept (CP)
    synchronous : wait for all answers
    local_steps : steps (11) between two contacts
    every : iterations between two checks of the planes, the paper's k; None: 2 N answers
    until : the paper's T1. From then on planes are only added, where the oracle finds one
        (``resume``), or stay as they are
    max_planes : M of Setting 1; then a new plane replaces the one with the least weight
    reuse : send the loss at the model where a worker's trip began, as if every step needed a pass
        over the rows for its loss only
    theory : the schedules of Theorem 1 and Setting 2 with ``nu`` < 1; they are valid and stall
    nu : c rho (t + 1)^(1/6) in these schedules; the paper's 1 leaves no rho
    kappa, rho1, rho2, eta_w, eta_z, eta_h, smooth : positive numbers, used as they are; None:
        chosen from the first losses, gradients and curvatures (`chosen`). ``smooth`` is L
        of the schedules
    c1, c2 : the regularisation of the multipliers (10); with ``theory`` their lower ends
    bounds : alpha_1 to alpha_4; None: far from the iterates. `bounds_reached` of a state names
        those that hold iterates back; a run then does not end as optimal
    floor : the lower end of h, for custom losses that can be negative
    tol : stop when all parts of the stationarity gap and the oracle's gap, relative to their
        scales, are below
    atol : or when the gap itself, ||grad G||^2 of (32), and the oracle's gap are below
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, by default that of the problem

    Raises
    ------
    ValueError, TypeError
        for settings out of range; by ``bonafed.solve`` for losses that are not smooth and samples
        that are not averaged

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.ASPIRE(), max_rounds=100)
    >>> bool(solution.certificate.value < np.log(2))  # better than zeros
    True
    """

    drop: bool = True
    synchronous: bool = False
    local_steps: int = 1
    every: int | None = None
    until: float = math.inf
    resume: bool = True
    max_planes: int | None = None
    reuse: bool = False
    theory: bool = False
    nu: float = 0.95
    kappa: float | None = None
    rho1: float | None = None
    rho2: float | None = None
    eta_w: float | None = None
    eta_z: float | None = None
    eta_h: float | None = None
    smooth: float | None = None
    c1: float = 0.0
    c2: float = 0.0
    bounds: tuple[float | None, ...] = (None, None, None, None)
    floor: float = 0.0
    tol: float = 1e-3
    atol: float = 0.0
    max_rounds: int = 20_000
    start: Array | None = None
    problem: bf.Problem | None = None

    mutates_state: ClassVar[bool] = True
    unaware: ClassVar[bool] = True
    requirements: ClassVar = ext.Requirements(over_samples=ext.MEAN_OF_ROWS, loss=ext.SMOOTH)
    advised: ClassVar[int] = 2

    def __post_init__(self) -> None:
        positive = ("kappa", "rho1", "rho2", "eta_w", "eta_z", "eta_h", "smooth")
        ext.check_positive(self, *positive, remedy="Leave it out for one chosen from the data.")
        ext.check_finite(self, "c1", "c2", "tol", "atol")
        ext.check_finite(self, "floor", least=-math.inf)
        ext.check_whole(self, "local_steps", "every", "max_planes", "max_rounds")
        if not (ext.is_number(self.until) and self.until >= 0):
            raise ValueError(
                f"until must be a number of iterations >= 0, got {self.until!r}. For no end leave"
                " it out."
            )
        if not (ext.is_number(self.nu) and 0 < self.nu < 1):
            raise ValueError(
                f"nu must be in (0, 1), got {self.nu!r}: with the paper's 1 no rho meets Theorem 1."
            )
        bounds, floor = self.bounds, self.floor
        fits = isinstance(bounds, tuple) and len(bounds) == 4
        if not fits or not all(b is None or (ext.is_number(b) and b > 0) for b in bounds):
            raise ValueError(
                "bounds must be (alpha_1, alpha_2, alpha_3, alpha_4), each > 0 or None, got"
                f" {bounds!r}: of the model, of h, of lambda and of phi."
            )
        if floor >= (bounds[1] or math.inf):
            raise ValueError(f"floor must be below alpha_2, got {floor} and {bounds[1]}.")

    # -- workers -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        conclude = ext.conclude_copies("u")
        return {Gauge: self.gauge, Approach: self.approach, ext.Conclude: conclude}

    def gauge(
        self, memory: None, ask: Gauge, data: Block, rng: Streams
    ) -> tuple[ASPIREMemory, Gauged]:
        """Losses, gradients and curvatures at the first model, of every worker of the block."""
        problem, n = self.concrete, len(data.index)
        u = np.tile(ext.or_default(ask.w, problem, data.n_features), (n, 1))
        cut = problem.cut(u, data)
        loss, gradient = cut.base, cut.gradient
        length = np.sqrt((gradient**2).sum(1))
        # the largest eigenvalue of f_j'' by power iterations on differences of gradients
        some = np.where(length > 0, length, 1.0)
        far = np.where((length > 0) & (np.abs(loss) > 0), np.abs(loss) / some, 1.0)
        reach, curvature = 1e-4 * far[:, None], np.zeros(n)
        along = np.where(length[:, None] > 0, gradient, 1.0)
        for _ in range(POWERS):
            along = along / np.maximum(np.sqrt((along**2).sum(1)), 1e-300)[:, None]
            along = (problem.cut(u + reach * along, data).gradient - gradient) / reach
            curvature = np.sqrt((along**2).sum(1))
        steep, features = np.abs(gradient).max(1, initial=0.0), np.full(n, float(data.n_features))
        started = ASPIREMemory(u, np.zeros_like(u), loss, gradient, curvature)
        return started, Gauged(loss, length, steep, curvature, features)

    def approach(
        self, memory: ASPIREMemory, ask: Approach, data: Block, rng: Streams
    ) -> tuple[ASPIREMemory, Approached]:
        """One trip: (16) with the z of the message, then ``local_steps`` steps (11).

        With ``reuse`` the loss that is sent is the one where the last step began. L_j grows where
        the gradient changed faster than it predicts.
        """
        z, u, loss, old, curvature = ask.z, memory.u, memory.loss, memory.gradient, memory.curvature
        fade = 0.0 if ask.fade is None else ask.fade[:, None]
        dual = ascended(memory.dual, z, u, ask.rho, fade, ask.pull)  # (16)
        gap, before = np.zeros(len(data.index)), loss
        for turn in range(self.local_steps):
            local = 1 / (ask.kappa + ask.omega * curvature)
            step = (local if ask.step is None else ask.step)[:, None]
            # (12), but -phi_j: it is printed as -w_j
            gradient = ask.omega[:, None] * old - dual + ask.kappa * (u - z)
            new = np.clip(u - step * gradient, -ask.reach, ask.reach)  # (11)
            if turn == 0:
                gap = (((u - new) / step) ** 2).sum(1)  # (32), first line
            cut, moved = self.concrete.cut(new, data), np.sqrt(((new - u) ** 2).sum(1))
            turned, seen = np.sqrt(((cut.gradient - old) ** 2).sum(1)), np.zeros_like(moved)
            far = moved > 1e-9 * np.sqrt((new**2).sum(1))
            curvature = np.maximum(curvature, np.divide(turned, moved, out=seen, where=far))
            u, before, loss, old = new, loss, cut.base, cut.gradient
        up = Approached(u, before if self.reuse else loss, gap)
        return ASPIREMemory(u, dual, loss, old, curvature), up

    def gradients(self, message: object) -> float:
        """The number of gradients of its rows that a worker computes to answer."""
        return 1.0 + POWERS if isinstance(message, Gauge) else float(self.local_steps)

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Gauged: self.begin, Approached: self.iterate}

    @property
    def claims(self) -> ext.Claims:
        return {Gauged: self._gauged, Approached: self._said}

    def _gauged(self, who: int, ask: Gauge, up: Gauged) -> Iterator[ext.Claim]:
        """What a first answer claims."""
        yield ext.Features(up.features)
        w = ext.or_default(ask.w, self.concrete, int(up.features[0]))
        yield from ext.of_risk(self.concrete, w, up.loss)
        yield ext.Number("a largest entry of a slope", up.steep, 0.0, up.length)
        yield ext.Number("a curvature", up.curvature)

    def _said(self, who: int, ask: Approach, up: Approached) -> Iterator[ext.Claim]:
        """What an answer claims."""
        yield from ext.of_risk(self.concrete, up.w[0], up.loss)
        yield ext.Number("a square of a residual", up.gap)

    def server_start(self, n_clients: int) -> tuple[ASPIREState, ext.Round]:
        z, none, nobody = ext.start_or_empty(self.start), np.zeros(0), np.zeros(n_clients)
        some, sums = np.zeros((n_clients, 0)), (none, none)
        workers = nobody, nobody, nobody, nobody
        state = ASPIREState(z, 0.0, *sums, some.T, some, some, *sums, *workers)
        return state, ext.Round(Gauge(z))

    def begin(self, state: ASPIREState, ids: ext.Ids, up: Gauged) -> tuple[ASPIREState, ext.Round]:
        """Begin with one plane of weight 1, a member of P, without which no loss would move w_j."""
        n, problem, one = len(ids), self.concrete, np.ones(1)
        z, plane = ext.or_default(state.z, problem, int(up.features)), ext.member(problem, n)
        copies, h = np.tile(z, (n, 1)), max(float(up.loss.mean()), self.floor)
        sums = np.zeros_like(copies), copies.sum(0), np.zeros_like(z)
        # before its first answer a worker's gap is where it stands
        workers = up.loss.copy(), (plane * up.length) ** 2, np.zeros(n), np.zeros(n)
        steps = chosen(self, up, plane, z)
        state = ASPIREState(z, h, one, one, plane[None], copies, *sums, *workers, steps)
        return state, self._round(state, ids, self._now(state, n), everybody=True)

    def iterate(self, state: ASPIREState, ids: ext.Ids, up: Approached) -> ext.Next[ASPIREState]:
        """Carry out one iteration of Algorithm 1 at the master."""
        who = np.asarray(ids, np.intp)
        state = received(state, who, up)
        now = self._now(state, len(who))
        state = self.moved(state, who, now)
        n, planes, size = len(state.copies), len(state.weights), len(state.z)
        state = replace(state, rounds=state.rounds + 1)
        bits = 32 * len(who) * (2 * size + 1 + planes)  # Theorem 2
        due = state.answers - state.checked >= 2 * n
        if due if self.every is None else state.rounds % self.every == 0:
            state = self.checked(state)
            if state.rounds <= self.until:
                bits += 32 * n**2 * len(state.weights)  # Theorem 2, for the planes
        state = replace(state, bits=state.bits + bits)
        if state.answers - state.measured.answers >= n or state.rounds >= self.max_rounds:
            state = self.refreshed(state, now)
        if (stop := self._stop(state)) is not None:
            return state, ext.Done(stop)
        return state, self._round(state, ids, now)

    def report(self, state: ASPIREState) -> dict:
        """``objective`` evaluates every worker at its own copy until all agree, and is as old as
        the last measurement.

        ``bits`` are those of Theorem 2, in which lambda and planes are sent; the engine counts what
        is really sent.
        """
        seen = state.measured
        told = {"objective": seen.value, "stationarity": seen.stationarity}
        told |= {"residual": seen.residual, "oracle_gap": seen.oracle, "consensus": seen.consensus}
        return told | {"planes": len(state.weights), "bits": state.bits}

    def answer(self, state: ASPIREState, concluded: ext.Concluded | None = None) -> ext.Answer:
        """z, the duals of p* = sum_l lambda_l p_l, normalised, which prove a bound for convex
        problems and else measure how far z is from stationary, and the workers' copies (N, D).
        """
        copies = ext.copies_of(concluded)
        if not len(state.z) or state.steps is None:
            return ext.Answer(state.z, copies=copies)
        duals = ext.duals_at(self.concrete, state.z, mixture(self.concrete, state))
        return ext.Answer(state.z, duals, copies=copies)

    # -- the server's steps ------------------------------------------------------------------------

    def _now(self, state: ASPIREState, answered: int) -> Now:
        share, steps = answered / len(state.copies), ext.known(state.steps)
        # the longest time between two answers of one worker, or since its last one
        age = float(np.maximum(state.age, state.answers - state.last).max()) / len(state.age)
        return steps_at(self, steps, state.rounds, state.planes, share, age)

    def _ahead(self, state: ASPIREState, now: Now) -> tuple[Array, float]:
        """z and h after their steps (13) and (14)."""
        steps = ext.known(state.steps)
        # the derivative of L_p in z
        slope = state.pull + steps.kappa * (len(state.copies) * state.z - state.total)
        z = self.concrete.prox(state.z - now.eta_z * slope, now.eta_z)
        z = np.clip(z, -steps.bounds[0], steps.bounds[0])  # (13)
        h = state.h - now.eta_h * (1 - float(state.weights.sum()))  # (14)
        return z, min(max(h, steps.floor), steps.bounds[1])

    def moved(self, state: ASPIREState, ids: Index, now: Now) -> ASPIREState:
        """The state after (13) to (16), each with the result of the one before."""
        _, _, cap, pull = ext.known(state.steps).bounds
        z, h = self._ahead(state, now)
        rise = state.planes @ state.loss - h - now.c1 * state.weights
        weights = np.clip(state.weights + now.rho1 * rise, 0.0, cap)  # (15)
        dual, sums = ext.writable(state.dual), ext.writable(state.pull)
        old = dual[ids]
        new = ascended(old, z, state.copies[ids], now.rho2, now.c2, pull)  # (16)
        dual[ids] = new
        sums += (new - old).sum(0)
        return replace(state, z=z, h=h, weights=weights, before=state.weights, dual=dual, pull=sums)

    def checked(self, state: ASPIREState) -> ASPIREState:
        """The planes after (18) to (21): the worst vertex is added where no plane is as high,
        planes without weight are dropped.
        """
        within, most, left = state.rounds <= self.until, self.max_planes, 0.0
        worst = np.asarray(self.concrete.over_clients.weights(state.loss), float)  # (18)
        heights = state.planes @ state.loss
        highest = heights.max() + CUT * abs(heights.max())
        added = int((within or self.resume) and float(worst @ state.loss) > highest)  # (19)
        keep = np.ones(len(heights), bool)
        if self.drop and within:
            keep = (state.weights > 0) | (state.before > 0)  # (21)
            if not added and not keep.any():  # never the last one
                keep[heights.argmax()] = True
        # Setting 1: the plane of least weight makes room, and its weight goes to the new one
        if added and most is not None and keep.sum() >= most:
            least = np.flatnonzero(keep)[state.weights[keep].argmin()]
            keep[least], left = False, float(state.weights[least])
        planes = np.concatenate([state.planes[keep], worst[None][:added]])  # (20)
        old = state.weights[keep], state.before[keep]
        weights, before = (np.append(part, [left] * added) for part in old)
        state = replace(state, planes=planes, weights=weights, before=before, checked=state.answers)
        dropped = state.dropped + int((~keep).sum())
        return replace(state, added=state.added + added, dropped=dropped)

    def refreshed(self, state: ASPIREState, now: Now) -> ASPIREState:
        """The state with its sums computed anew and the gap (32) measured: that of L_p itself,
        without c_1 and c_2.
        """
        problem, steps = self.concrete, ext.known(state.steps)
        state = replace(state, total=state.copies.sum(0), pull=state.dual.sum(0))
        _, _, cap, pull = steps.bounds
        risk = float(problem.over_clients.value(state.loss))
        heights, apart = state.planes @ state.loss, state.z - state.copies
        z, h = self._ahead(state, now)
        weights = np.clip(state.weights + now.rho1 * (heights - state.h), 0.0, cap)
        dual = np.clip(state.dual + now.rho2 * apart, -pull, pull)
        of_w, of_z = float(state.gap.sum()), float((((state.z - z) / now.eta_z) ** 2).sum())
        of_h = abs(state.h - h) / now.eta_h
        of_weights = (weights - state.weights) / now.rho1
        of_dual = float((((dual - state.dual) / now.rho2) ** 2).sum())
        whole = of_w + of_z + of_h**2 + float(of_weights @ of_weights) + of_dual  # (32)
        value = risk + problem.penalty(state.z)
        consensus = math.sqrt(float((apart**2).sum()) / len(apart))
        scale, size = max(abs(value), 1e-12), max(float(np.linalg.norm(state.z)), steps.length)
        gradient = math.sqrt(of_w + of_z) / max(steps.gradient, 1e-300)
        oracle = max(risk - float(heights.max()), 0.0)
        short = max(risk - float(mixture(problem, state) @ state.loss), oracle) / scale
        worst = max(gradient, of_h, short, consensus / size)
        measured = Measured(whole, oracle, consensus, value, worst, state.answers)
        return replace(state, measured=measured)

    def _round(
        self, state: ASPIREState, ids: ext.Ids, before: Now, everybody: bool = False
    ) -> ext.Round:
        """Send z and omega_j to the workers who answered; to all at first, and in synchronous
        rounds.
        """
        n, steps = len(state.copies), ext.known(state.steps)
        now = self._now(state, len(ids))
        step = None if now.eta_w is None else np.full(n, now.eta_w)
        fade = np.full(n, before.c2) if before.c2 else None
        numbers = steps.kappa, now.rho2, steps.bounds[0], steps.bounds[3]
        message = Approach(state.z, state.weights @ state.planes, step, fade, *numbers)
        to = None if everybody or self.synchronous else tuple(ids)
        return ext.Round(message, to, None if self.synchronous else 1)

    def _stop(self, state: ASPIREState) -> bf.Stop | None:
        seen, fresh = state.measured, state.measured.answers == state.answers
        finite = math.isfinite(seen.value) and math.isfinite(seen.residual)
        if fresh and not finite:
            return bf.Stop.STALLED
        small = seen.stationarity <= self.atol and seen.oracle <= self.atol
        small = small or seen.residual <= self.tol / 2  # half, since the parts of the gap add up
        if not (fresh and small):
            return bf.Stop.MAX_ROUNDS if state.rounds >= self.max_rounds else None
        held_back = bounds_reached(state, ext.known(state.steps))
        return bf.Stop.OPTIMAL if self.concrete.convex and not held_back else bf.Stop.UNPROVEN
