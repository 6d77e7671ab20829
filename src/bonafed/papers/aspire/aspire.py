"""ASPIRE-EASE: asynchronous gradient projection for the worst client weights, with cutting planes.

    minimise over w:  max_{p in P} sum_j p_j f_j(w) + h(w)                                  (3), (4)

    L_p = h + sum_l lambda_l (p_l'f(w) - h) + sum_j phi_j'(z - w_j) + kappa / 2 sum_j ||z - w_j||^2
    (9)

Jiao, Yang, Song, *Federated distributionally robust optimization with non-convex objectives:
algorithm and analysis*; equation numbers are theirs. Worker j stores a copy w_j of the model and
phi_j (``client.py``); the master stores z, h, a number lambda_l for each cutting plane p_l in P,
and every worker's w_j and phi_j (``server.py``). It goes on with the workers who have answered: how
many, and how old answers may be, is a setting of the engine (S, tau, ASPIRE-ADP).

This version corrects five points: (12) has -phi_j where -w_j is printed; c_1 = c_2 = 0 replaces
schedules that stall; steps scale with the number of workers; the oracle is exact; planes are added
as long as it finds one. The master handles the regulariser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.aspire import server

CUT = 1e-6  # by how much, relative, the worst vertex must exceed all planes to become one


@dataclass(frozen=True)
class ASPIRE(server.StepSettings, ext.Method):
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
        chosen from the first losses, gradients and curvatures (``step_sizes.py``). ``smooth`` is L
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
    requirements: ClassVar[ext.Requirements] = ext.Requirements(
        over_samples=ext.MEAN_OF_ROWS, loss=ext.SMOOTH
    )

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def on_client(self) -> dict:
        steps = self._at_client(server.approach, self.local_steps, self.reuse)
        return {
            server.Gauge: self._at_client(server.gauge),
            server.Approach: steps,
            ext.Conclude: ext.conclude_copies("u"),
        }

    def gradients(self, message: object) -> float:
        """The number of gradients of its rows that a worker computes to answer."""
        return 1.0 + server.POWERS if isinstance(message, server.Gauge) else float(self.local_steps)

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {server.Gauged: self.begin, server.Approached: self.iterate}

    @property
    def claims(self) -> ext.Claims:
        return {server.Gauged: self._gauged, server.Approached: self._said}

    def _gauged(self, who: int, ask: server.Gauge, up: server.Gauged) -> Iterator[ext.Claim]:
        """What a first answer claims."""
        yield ext.Features(up.features)
        w = ext.or_default(ask.w, self._problem, int(up.features[0]))
        yield from ext.of_risk(self._problem, w, up.loss)
        yield ext.Number("a largest entry of a slope", up.steep, 0.0, up.length)
        yield ext.Number("a curvature", up.curvature)

    def _said(self, who: int, ask: server.Approach, up: server.Approached) -> Iterator[ext.Claim]:
        """What an answer claims."""
        yield from ext.of_risk(self._problem, up.w[0], up.loss)
        yield ext.Number("a square of a residual", up.gap)

    def server_start(self, n_clients: int) -> tuple[server.ASPIREState, ext.Round]:
        z = ext.start_or_empty(self.start)
        none, nobody, some = np.zeros(0), np.zeros(n_clients), np.zeros((n_clients, 0))
        state = server.ASPIREState(
            z,
            0.0,
            none,
            none,
            np.zeros((0, n_clients)),
            nobody,
            some,
            some,
            none,
            none,
            nobody,
            nobody,
            nobody,
            nobody,
            None,
            0,
            0,
            0,
            0,
            0,
            0,
            server.NOTHING,
        )
        return state, ext.Round(server.Gauge(z))

    def begin(
        self, state: server.ASPIREState, ids: Sequence[int], up: server.Gauged
    ) -> tuple[server.ASPIREState, ext.Round]:
        """Begin with one plane of weight 1, a member of P, without which no loss would move w_j."""
        n, problem = len(ids), self._problem
        z = ext.or_default(state.z, problem, int(up.features))
        plane = ext.member(problem, n)
        copies = np.tile(z, (n, 1))
        state = replace(
            state,
            z=z,
            h=max(float(up.loss.mean()), self.floor),
            weights=np.ones(1),
            before=np.ones(1),
            planes=plane[None],
            omega=plane,
            copies=copies,
            dual=np.zeros_like(copies),
            total=copies.sum(0),
            pull=np.zeros_like(z),
            loss=up.loss.copy(),
            gap=(plane * up.length) ** 2,  # before its first answer: where it stands
            last=np.zeros(n),
            age=np.zeros(n),
            steps=server.chosen(self, up, plane, z),
        )
        return state, self._round(state, ids, self._now(state, n), everybody=True)

    def iterate(
        self, state: server.ASPIREState, ids: Sequence[int], up: server.Approached
    ) -> tuple[server.ASPIREState, ext.Round | ext.Done]:
        """Carry out one iteration of Algorithm 1 at the master."""
        who, steps, problem = np.asarray(ids, np.intp), ext.known(state.steps), self._problem
        state = server.received(state, who, up)
        now = self._now(state, len(who))
        state = server.moved(problem, state, who, now, steps)
        n, planes, size = len(state.copies), len(state.weights), len(state.z)
        state = replace(state, rounds=state.rounds + 1)
        bits = 32 * len(who) * (2 * size + 1 + planes)  # Theorem 2
        if self._due(state, n):
            within = state.rounds <= self.until
            state = server.checked(
                problem, state, self.drop and within, within or self.resume, self.max_planes, CUT
            )
            bits += 32 * n**2 * len(state.weights) if within else 0  # Theorem 2, for the planes
        state = replace(state, omega=state.weights @ state.planes, bits=state.bits + bits)
        if state.answers - state.measured.answers >= n or self._last(state):
            state = server.refreshed(problem, state, now, steps)
        if (stop := self._stop(state)) is not None:
            return state, ext.Done(stop)
        return state, self._round(state, ids, now)

    def report(self, state: server.ASPIREState) -> dict:
        """``objective`` evaluates every worker at its own copy until all agree, and is as old as
        the last measurement.

        ``bits`` are those of Theorem 2, in which lambda and planes are sent; the engine counts what
        is really sent.
        """
        seen = state.measured
        return {
            "objective": seen.value,
            "stationarity": seen.stationarity,
            "residual": seen.residual,
            "oracle_gap": seen.oracle,
            "consensus": seen.consensus,
            "planes": len(state.weights),
            "bits": state.bits,
        }

    def answer(
        self, state: server.ASPIREState, concluded: ext.Concluded | None = None
    ) -> ext.Answer:
        """z, the duals of p* = sum_l lambda_l p_l, normalised, which prove a bound for convex
        problems and else measure how far z is from stationary, and the workers' copies (N, D).
        """
        copies = ext.copies_of(concluded)
        if not len(state.z) or state.steps is None:
            return ext.Answer(state.z, copies=copies)
        duals = ext.duals_at(self._problem, state.z, server.mixture(self._problem, state))
        return ext.Answer(state.z, duals, copies=copies)

    # -- the server's steps ------------------------------------------------------------------------

    def _now(self, state: server.ASPIREState, answered: int) -> server.Now:
        share = answered / len(state.copies)
        return server.steps_at(
            self, ext.known(state.steps), state.rounds, state.planes, share, server.longest(state)
        )

    def _due(self, state: server.ASPIREState, n: int) -> bool:
        """Whether the planes are to be checked after this iteration."""
        if self.every is not None:
            return state.rounds % self.every == 0
        return state.answers - state.checked >= 2 * n

    def _round(
        self,
        state: server.ASPIREState,
        ids: Sequence[int],
        before: server.Now,
        everybody: bool = False,
    ) -> ext.Round:
        """Send z and omega_j to the workers who answered; to all at first, and in synchronous
        rounds.
        """
        n, steps = len(state.copies), ext.known(state.steps)
        now = self._now(state, len(ids))
        message = server.Approach(
            z=state.z,
            omega=state.omega,
            step=None if now.eta_w is None else np.full(n, now.eta_w),
            fade=np.full(n, before.c2) if before.c2 else None,
            kappa=steps.kappa,
            rho=now.rho2,
            reach=steps.bounds[0],
            pull=steps.bounds[3],
        )
        to = None if everybody or self.synchronous else tuple(ids)
        return ext.Round(message, to, None if self.synchronous else 1)

    def _last(self, state: server.ASPIREState) -> bool:
        return state.rounds >= self.max_rounds

    def _stop(self, state: server.ASPIREState) -> bf.Stop | None:
        seen, fresh = state.measured, state.measured.answers == state.answers
        finite = math.isfinite(seen.value) and math.isfinite(seen.residual)
        if fresh and not finite:
            return bf.Stop.STALLED
        small = seen.residual <= self.tol / 2 or (  # half, since the parts of the gap add up
            seen.stationarity <= self.atol and seen.oracle <= self.atol
        )
        if not (fresh and small):
            return bf.Stop.MAX_ROUNDS if self._last(state) else None
        held_back = server.bounds_reached(state, ext.known(state.steps))
        return bf.Stop.OPTIMAL if self._problem.convex and not held_back else bf.Stop.UNPROVEN


def check_settings(method: ASPIRE) -> None:
    """Raise on settings out of range."""
    positive = ("kappa", "rho1", "rho2", "eta_w", "eta_z", "eta_h", "smooth")
    ext.check_positive(method, *positive, remedy="Leave it out for one chosen from the data.")
    ext.check_finite(method, "c1", "c2", "tol", "atol")
    ext.check_finite(method, "floor", least=-math.inf)
    ext.check_whole(method, "local_steps", "every", "max_planes", "max_rounds")
    ext.check_flags(method, "drop", "synchronous", "resume", "reuse", "theory")
    if not (ext.is_number(method.until) and method.until >= 0):
        raise ValueError(
            f"until must be a number of iterations >= 0, got {method.until!r}. For no end leave it"
            " out."
        )
    if not (ext.is_number(method.nu) and 0 < method.nu < 1):
        raise ValueError(
            f"nu must be in (0, 1), got {method.nu!r}: with the paper's 1 no rho meets Theorem 1."
        )
    _check_bounds(method.bounds, method.floor)


def _check_bounds(bounds: tuple[float | None, ...], floor: float) -> None:
    """Raise on bounds of the iterates out of range."""
    fits = isinstance(bounds, tuple) and len(bounds) == 4
    if not fits or not all(b is None or (ext.is_number(b) and b > 0) for b in bounds):
        raise ValueError(
            "bounds must be (alpha_1, alpha_2, alpha_3, alpha_4), each > 0 or None, got"
            f" {bounds!r}: of the model, of h, of lambda and of phi."
        )
    if floor >= (bounds[1] or math.inf):
        raise ValueError(f"floor must be below alpha_2, got {floor} and {bounds[1]}.")
