"""Distributionally robust federated averaging: local steps on sampled clients, then ascent.

    minimise over w:  max { p'F(w) : p in Q } + h(w)

    m clients drawn with probabilities p (with repetition) take K local steps from w
            (``local_steps``)
    w <- their mean (with K = 1: its prox),
            v <- the mean of their models after step t, drawn from 1, ..., K
    m clients drawn uniformly report F_i(v);     f_i = N/m F_i(v) for these, 0 for the others
    p <- argmax over Q of  K gamma f'p - strength K gamma/2 ||p - prior||^2 - ||p - p_old||^2/2
       = Proj_Q( (p_old + K gamma (f + strength prior)) / (1 + strength K gamma) )

Deng, Kamani, Mahdavi, *Distributionally robust federated averaging*: DRFA with strength = 0,
DRFA-Prox with a concave regulariser of the weights otherwise, here the squared distance from the
prior. An iteration takes two rounds. This version also takes any Q with a projection, and h;
without ``participation`` all clients take part, weighted by p instead of drawn.

With K > 1 the local steps drift, the more the less alike the clients are; then K = 1 is the better
choice. Published codes differ from this one in floors of p and in a falling gamma.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Each, Form, Streams, record


@record
class Judge:
    """Ask for the risk at ``w``."""

    w: Annotated[Array, Form("D")]


@record
class Judged:
    """The answer F_i(w), on ``batch`` rows where there is a batch."""

    risk: Each  # (n,)


@record
class DRFAState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    mean: Annotated[Array, Form("D")]  # average of the models so far
    snapshot: Annotated[Array, Form("D|0")]  # v
    weights: Annotated[Array, Form("N")]  # p
    prior: Annotated[Array, Form("N")]
    risks: Annotated[Array, Form("N")]  # as last reported
    curvature: float  # largest of a client so far
    steep: float  # largest squared gradient of a client at the start
    turns: ext.Counter  # iterations, of two rounds each


@dataclass(frozen=True)
class DRFA(ext.LocalStepsMethod):
    """Local steps with the worst client weights: a baseline.

    Parameters
    ----------
    local_steps : K
    step_size : eta; None: 1 / the largest curvature that a client has measured so far
    weight_step : gamma; None: from eta and the longest gradient, as in ``AFL``, over K squared
    batch : rows of a local step and of a report of risks, drawn anew; None: all rows
    participation : m / N; None: all clients, weighted by p
    strength : of the pull of the weights to the prior (DRFA-Prox)
    average : answer with the average of all models instead of the last one
    seed : of the server's draws
    max_rounds : a cap on rounds, two for an iteration; there is no other end
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for settings out of range, and sets without a projection

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.DRFA(max_rounds=50))
    >>> bool(solution.certificate.value < np.log(2))
    True
    """

    local_steps: int = 5
    step_size: float | None = None
    weight_step: float | None = None
    batch: int | None = None
    participation: float | None = None
    strength: float = 0.0
    average: bool = False
    seed: int = 0
    max_rounds: int = 1000
    start: Array | None = None
    problem: bf.Problem | None = None
    requirements: ClassVar[ext.Requirements] = ext.Requirements(over_clients=ext.MIXTURE)
    advised: ClassVar[int] = 2

    def __post_init__(self) -> None:
        self.check_settings()
        ext.check_positive(self, "weight_step", remedy="Leave it out for a measured one.")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        steps = self.client_step(ext.descend, self._walk)
        return {ext.Scout: self.client_step(ext.scout), ext.Descend: steps, Judge: self.judge}

    def judge(self, memory: None, ask: Judge, data: Block, rng: Streams) -> tuple[None, Judged]:
        rows = data if self.batch is None else ext.first_rows(data, rng, self.batch)
        return memory, Judged(self.concrete.client_risks(ask.w, rows))

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {ext.Scouted: self.begin, ext.Descended: self.averaged, Judged: self.weigh}

    @property
    def claims(self) -> ext.Claims:
        return {**ext.scouted(), ext.Descended: self.walk_claims, Judged: self._judged}

    def _judged(self, who: int, ask: Judge, up: Judged) -> Iterator[ext.Claim]:
        """What a risk at a snapshot claims."""
        if self.batch is None:
            yield from ext.of_risk(self.concrete, ask.w, up.risk)
        else:
            yield ext.Number("a mean loss", up.risk)

    def server_start(self, n_clients: int) -> tuple[DRFAState, ext.Round]:
        w, prior = ext.start_or_empty(self.start), ext.member(self.concrete, n_clients)
        state = DRFAState(w, w, w, prior, prior, np.zeros(n_clients), 0.0, 0.0, 0)
        return state, ext.Round(ext.Scout(w))

    def begin(self, state: DRFAState, ids: ext.Ids, up: ext.Scouted) -> tuple[DRFAState, ext.Round]:
        w = ext.or_default(state.w, self.concrete, int(up.features))
        state = replace(state, curvature=float(up.curvature), steep=float(up.steep))
        state = replace(state, w=w, mean=np.zeros_like(w))
        return state, self._descend(state)

    def averaged(self, state: DRFAState, ids: ext.Ids, up: ext.Descended) -> ext.Next[DRFAState]:
        if up.change is None or up.snapshot is None:
            raise ValueError("the clients sent no sums of their changes.")
        w, snapshot = state.w + up.change, state.w + up.snapshot
        if not np.isfinite(w).all():
            return replace(state, w=w), ext.Done(bf.Stop.STALLED)
        if self._walk.single:
            w = snapshot = self.concrete.prox(w, self._eta(state))
        curvature, n, to = max(state.curvature, float(up.curvature)), len(state.weights), None
        if self.participation is not None:
            to = ext.drawn(self.seed, 3 * state.turns + 2, n, self.n_asked(n))
        mean = state.mean + (w - state.mean) / (state.turns + 1)
        state = replace(state, w=w, mean=mean, snapshot=snapshot, curvature=curvature)
        return state, ext.Round(Judge(snapshot), to)

    def weigh(self, state: DRFAState, ids: ext.Ids, up: Judged) -> ext.Next[DRFAState]:
        n, risks, f = len(state.weights), state.risks.copy(), np.zeros(len(state.weights))
        risks[list(ids)] = up.risk
        f[list(ids)] = n / len(ids) * up.risk
        pull = self.strength
        # gamma: near the fastest choice, see ``AFL``
        length = self._eta(state) * max(state.steep, 1e-300) * self.local_steps**2
        far = self.local_steps * (self.weight_step or ext.COUPLING / length)
        state = replace(state, risks=risks, turns=state.turns + 1)
        if not np.isfinite(risks).all():
            return state, ext.Done(bf.Stop.STALLED)
        pulled = (state.weights + far * (f + pull * state.prior)) / (1 + pull * far)
        state = replace(state, weights=self.concrete.over_clients.project(pulled))
        return ext.unless_capped(state, self._descend(state), 2 * state.turns, self.max_rounds)

    def report(self, state: DRFAState) -> dict:
        """Risks are those last reported, at snapshots."""
        value, worst = math.inf, int(np.argmax(state.risks)) if state.turns else -1
        if state.turns and np.isfinite(state.risks).all():
            value = float(self.concrete.over_clients.worst(state.risks).value)
            value += self.concrete.penalty(state.snapshot)
        return {"objective": value, "worst_client": worst, "worst_risk": float(state.risks[worst])}

    def answer(self, state: DRFAState, concluded: ext.Concluded | None = None) -> ext.Answer:
        """The last model or the average, and its weighted gradients, which prove a bound."""
        w = state.mean if self.average and state.turns else state.w
        return ext.Answer(w, ext.duals_at(self.concrete, w, state.weights))

    # -- the server's steps ------------------------------------------------------------------------

    @property
    def _walk(self) -> ext.Walk:
        return ext.Walk(self.local_steps, self.batch)

    def _eta(self, state: DRFAState) -> float:
        return self.step_size or ext.measured_step(self.concrete, state.curvature, state.turns)

    def _draw(self, state: DRFAState, what: int) -> np.random.Generator:
        return ext.stream(self.seed, "server", 3 * state.turns + what)

    def _descend(self, state: DRFAState) -> ext.Round:
        n, weights, to = len(state.weights), state.weights, None
        if self.participation is not None:
            chosen = self._draw(state, 0).choice(n, self.n_asked(n), p=weights / weights.sum())
            weights = np.bincount(chosen, minlength=n) / len(chosen)
            to = tuple(np.flatnonzero(weights).tolist())
        snapshot = int(self._draw(state, 1).integers(1, self.local_steps + 1))
        return ext.Round(ext.Descend(state.w, weights, self._eta(state), 1.0, snapshot), to)
