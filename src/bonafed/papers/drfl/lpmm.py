"""AD-LPMM, Algorithm 1 of Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*.

Equation numbers are theirs.

    minimise  qhat't - gamma + theta ||t||_{p*} + h(w)                                           (5)
    subject to  t = z + gamma e + eta,  eta >= 0       dual sigma
                w = w_s                                dual psi_s
                z_s = pi_s >= R_s(w_s)                 dual zeta_s           s = 1, ..., S

A client discloses its copy w_s of the model and pi_s = radius_s lambda_s + mean alpha_i, nothing
else; the server keeps w, t, z, eta, gamma and every dual. Proximal terms make the steps of z and
t, and of eta and gamma, closed; their constants are c' = c'' = 2 S c in the paper, but c' = 2 c and
c'' = (S + 1) c suffice (the largest eigenvalues of the two blocks): ``steps="tight"``. At the end
-sigma = zeta = q*, the adversary's client weights.

This deviates from the paper, which has no regulariser: a convex h enters (6) by its prox.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Form, record
from bonafed.functional import project_lp_unit_ball
from bonafed.papers.drfl.epigraph_projection import (
    Begin,
    Begun,
    ConsensusState,
    EpigraphMethod,
    Project,
    Projected,
    norm,
    relative,
)


@record
class LPMMState(ConsensusState):
    """The server's memory between rounds; names as in the paper."""

    t: Annotated[Array, Form("N")]
    eta: Annotated[Array, Form("N")]
    gamma: float
    sigma: Annotated[Array, Form("N")]
    moved: ext.Extended  # how far t and z moved in the last step, relative to sigma
    primal: ext.Extended = math.inf
    dual: ext.Extended = math.inf

    @property
    def residuals(self) -> tuple[float, float]:
        return self.primal, self.dual


@dataclass(frozen=True)
class ADLPMM(EpigraphMethod):
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

    steps: str = "paper"
    c: float | None = None
    sample: float | None = None
    tol: float = 1e-6
    max_rounds: int = 2000
    start: Array | None = None
    problem: bf.Problem | None = None
    requirements: ClassVar[ext.Requirements] = ext.EPIGRAPH_REQUIREMENTS

    def __post_init__(self) -> None:
        ext.check_choice(self, steps=("paper", "tight"))
        self.check_settings("c")

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Begun: self.begin, Projected: self.improve}

    def server_start(self, n_clients: int) -> tuple[LPMMState, ext.Round]:
        prior, nobody = ext.client_ball(self._problem, n_clients)[0], np.zeros(n_clients)
        start = self._first(prior)
        state = LPMMState(*start, t=nobody, eta=nobody, gamma=0.0, sigma=-prior, moved=math.inf)
        return state, ext.Round(Begin(state.w))

    def begin(self, state: LPMMState, ids: Sequence[int], up: Begun) -> tuple[LPMMState, ext.Round]:
        return self._primal(replace(self._begun(state, up), t=up.pi))

    def improve(
        self, state: LPMMState, ids: Sequence[int], up: Projected
    ) -> tuple[LPMMState, ext.Round | ext.Done]:
        state = self._dual(state, up)
        stop = self._stop(state)
        return (state, ext.Done(stop)) if stop is not None else self._primal(state)

    def _constants(self, n_clients: int) -> tuple[float, float, float]:
        """The constants (c, c', c'')."""
        c = 1 / n_clients if self.c is None else self.c
        return (
            (c, 2 * n_clients * c, 2 * n_clients * c)
            if self.steps == "paper"
            else (c, 2 * c, (n_clients + 1) * c)
        )

    def _primal(self, state: LPMMState) -> tuple[LPMMState, ext.Round]:
        """The server's half of the primal update, and the clients' requests."""
        S = len(state.pi)
        c, c1, c2 = self._constants(S)
        prior, radius, p = ext.client_ball(self._problem, S)
        theta = min(radius, 2.0)  # the whole simplex lies within 2 of any prior, in every norm
        t, z, eta, gamma, sigma = state.t, state.z, state.eta, state.gamma, state.sigma
        w = self._problem.prox((state.copies - state.psi / c).mean(0), 1 / (c * S))  # (6)
        r = t - z - gamma - eta
        new_z = (c * state.pi + c1 * z + state.zeta + sigma + c * r) / (c + c1)  # (7)
        u = t - (prior + sigma + c * r) / c1
        new_t = u - theta / c1 * project_lp_unit_ball(c1 * u / theta, p) if theta > 0 else u  # (8)
        y = sigma / c + new_t - new_z - gamma - eta
        new_eta = np.maximum(eta + c / c2 * y, 0.0)  # (9)
        new_gamma = gamma + c / c2 * (1 / c + float(y.sum()))  # (10)
        moved = c1 * relative(np.concatenate([new_t - t, new_z - z]), norm(sigma))
        state = replace(state, w=w, z=new_z, t=new_t, eta=new_eta, gamma=new_gamma, moved=moved)
        return state, ext.Round(Project(w + state.psi / c, new_z - state.zeta / c, 1.0))

    def _dual(self, state: LPMMState, up: Projected) -> LPMMState:
        """The state after the dual update with the clients' new points, with the residuals."""
        c, _, _ = self._constants(len(up.pi))
        short = state.t - state.z - state.gamma - state.eta
        sigma = state.sigma + c * short
        psi = state.psi + c * (state.w - up.w)
        zeta = state.zeta + c * (up.pi - state.z)
        spread = max(norm(state.z), norm(state.t))
        state, model, height = self._answered(state, up, psi, zeta, c, c)
        return replace(
            state,
            sigma=sigma,
            weights=self._problem.over_clients.project(zeta),
            primal=max(model[0], height[0], relative(short, spread)),
            dual=max(model[1], height[1], state.moved),
        )
