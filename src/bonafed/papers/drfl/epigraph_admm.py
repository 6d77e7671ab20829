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

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, record
from bonafed.papers.drfl.epigraph_projection import (
    Begin,
    Begun,
    ConsensusState,
    EpigraphMethod,
    Project,
    Projected,
)

# rounds in which the penalties may change, so that the iteration converges afterwards
BALANCED = 200
EVERY = 5


@record
class EpigraphState(ConsensusState):
    """The server's memory between rounds."""

    c_w: float = 1.0
    c_z: float = 1.0
    model: tuple[ext.Extended, ext.Extended] = (
        math.inf,
        math.inf,
    )  # primal and dual residuals of w_s = w
    height: tuple[ext.Extended, ext.Extended] = (math.inf, math.inf)  # and of pi_s = z_s

    @property
    def residuals(self) -> tuple[float, float]:
        return max(self.model[0], self.height[0]), max(self.model[1], self.height[1])


@dataclass(frozen=True)
class EpigraphADMM(EpigraphMethod):
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
    requirements: ClassVar[ext.Requirements] = replace(
        ext.EPIGRAPH_REQUIREMENTS, over_clients=ext.PROJECTION
    )

    def __post_init__(self) -> None:
        if not 1 <= self.relaxation < 2:
            raise ValueError(
                f"relaxation must be in [1, 2), got {self.relaxation}: beyond it ADMM diverges."
            )
        self.check_settings("c_w", "c_z")

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Begun: self.begin, Projected: self.improve}

    def server_start(self, n_clients: int) -> tuple[EpigraphState, ext.Round]:
        state = EpigraphState(*self._first(ext.member(self._problem, n_clients)))
        return state, ext.Round(Begin(state.w))

    def begin(
        self, state: EpigraphState, ids: Sequence[int], up: Begun
    ) -> tuple[EpigraphState, ext.Round]:
        S, largest = len(up.pi), float(np.abs(up.pi).max())
        c_w = 1 / S if self.c_w is None else self.c_w
        c_z = 10 / (S * (largest if largest > 0 else 1.0)) if self.c_z is None else self.c_z
        return self._primal(replace(self._begun(state, up), c_w=c_w, c_z=c_z))

    def improve(
        self, state: EpigraphState, ids: Sequence[int], up: Projected
    ) -> tuple[EpigraphState, ext.Round | ext.Done]:
        state = self._dual(state, up)
        stop = self._stop(state)
        if stop is not None:
            return state, ext.Done(stop)
        return self._primal(self._balanced(state))

    def _primal(self, state: EpigraphState) -> tuple[EpigraphState, ext.Round]:
        """w and z in closed form, and the clients' requests."""
        c_w, c_z, S = state.c_w, state.c_z, len(state.pi)
        w = self._problem.prox((state.copies - state.psi / c_w).mean(0), 1 / (c_w * S))
        x = state.pi + state.zeta / c_z
        weights = self._problem.over_clients.project(c_z * x)
        state = replace(state, w=w, z=x - weights / c_z, weights=weights)  # prox of phi_Q
        relaxed_w, relaxed_z = self._relaxed(state)
        return state, ext.Round(
            Project(relaxed_w + state.psi / c_w, relaxed_z - state.zeta / c_z, c_z / c_w)
        )

    def _relaxed(self, state: EpigraphState) -> tuple[Array, Array]:
        a = self.relaxation
        return a * state.w + (1 - a) * state.copies, a * state.z + (1 - a) * state.pi

    def _dual(self, state: EpigraphState, up: Projected) -> EpigraphState:
        """The state after the dual update with the clients' new points, with the residuals."""
        relaxed_w, relaxed_z = self._relaxed(state)
        psi = state.psi + state.c_w * (relaxed_w - up.w)
        zeta = state.zeta + state.c_z * (up.pi - relaxed_z)
        state, model, height = self._answered(state, up, psi, zeta, state.c_w, state.c_z)
        return replace(state, model=model, height=height)

    def _balanced(self, state: EpigraphState) -> EpigraphState:
        """The state with each penalty balanced by the root of primal over dual residual."""
        if not self.balance or state.rounds % EVERY or state.rounds > BALANCED:
            return state
        return replace(
            state, c_w=state.c_w * _factor(state.model), c_z=state.c_z * _factor(state.height)
        )


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
