"""AsyncDRO: asynchronous descent on the worst case over client weights, with one stored gradient
for each client.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F = (F_1, ..., F_N)

The server stores for every client j its last linearisation, the line F_j(w) ~ b_j + <g_j, w>.
Whenever clients answer, it replaces their lines and takes one step:

    e_j = L_j ||w - w_j||^2 / 2   the shortfall: line j, made at w_j, is about so far below F_j(w)
    s_j = e_j / (e_j + tau mu / r_j)  the share of the shortfall that is counted,
            r_j = p_j L_j (1 + a_j) eta >= 0.003
    f = b + G w + s e           the risks at w to first order; without s e stale risks diverge
    p = Proj_Q(c + f / mu)                  their worst client weights near a centre c
    c <- c + (p - c) / (1 + p'a)            a_j: the age of line j, in steps
    w <- prox_{eta h}(w - eta (g + sum_j p_j s_j L_j (w - w_j)))  g = G'p,
            1 / eta = sum_j p_j L_j (1 + a_j)

    mu = eta (max_j d_j + sum_{p_j > 0} d_j),
            d_j = ||g_j - g||^2 with the g and p of the step in which line j was replaced

Then it sends w to the clients who answered. L_j is the curvature of F_j between the last two models
at which client j answered. Coefficients, gradients and models count in units of the root mean
squares of what they multiply, unless the regulariser's prox couples coefficients, so that the units
of the columns change nothing. The centre removes the bias of mu. So the user has no step size to
choose: the ages keep the delayed iteration stable, and f changes p by so little that eta times the
curvature which this adds, at most sum_{p_j > 0} d_j / mu, is below one. Where Q has no projection
(a custom set with a maximiser only) c moves towards the worst client weights of f, and p = c.

A line lies below its convex risk, so a model far from w_j looks better to client j than it is. If
that client is the slowest one and has a large weight, the client weights move away from it and back
with every answer, without end. Counting e_j holds w near w_j: with s_j = 1 a step minimises a
majorant. That is slow where lines are accurate. Therefore tau = 3: a shortfall hardly counts if it
would move p little, or if its client has a small share r_j of the step. Once the clients of large
weight have answered 40 times, tau is halved with every third further answer.

No convergence proof is claimed, but the stopping test is a proof: where everything is convex the
lines bound every F_j from below however old they are, so that the minimum of p'(b + G v) + h(v) is
a lower bound. Once it is near, w stands still until every client has answered at it.

The server learns every client's risk and gradient at the models that it was sent, and its curvature
at the first one. It stores N D numbers, the models at which lines were made or that are on their
way, and both once more in single precision. Clients store nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms.federated import linearisation
from bonafed.algorithms.federated.async_dro.stored_gradients import (
    TINY,
    Answers,
    Lines,
    Meet,
    Met,
    Visit,
    answers,
    descend,
    exact,
    first_lines,
    mean_gradient,
    meet,
    no_answers,
    old_lines,
    predict,
    renew,
    step_units,
    with_sent,
)
from bonafed.algorithms.requirements import MEAN_OF_ROWS, SMOOTH, Requirements
from bonafed.arrays import Array
from bonafed.codec import Extended, Form, changed
from bonafed.problem.claims import Claim, Features, Number
from bonafed.problem.conic_form import member
from bonafed.problem.lower_bounds import Surveyed
from bonafed.problem.plausible import Claims, of_risk, of_sizes
from bonafed.problem.problem import Problem
from bonafed.rounds import Done, Round, Stop, record

SOON = 0.5  # of the tolerance: the predicted gap at which w stands still to be judged
LATER = 0.25  # factor of that after a judgement that failed
TRUST = 3.0  # tau: a shortfall of this times mu / r_j is counted by half
# answers of the clients of large weight after which tau falls, and after which it is halved
PATIENCE, HALVED = 40, 3
# of the largest curvature so far, below which the measured curvature does not set the step
FLAT = 1e-6


@record
class AsyncState:
    """The server's state; its arrays are overwritten in place."""

    w: Annotated[Array, Form("D")]
    place: Annotated[Array, Form("D")]  # w in units of its coefficients
    units: Annotated[Array, Form("D")]  # these units
    lines: Lines | None  # in these units
    weights: Annotated[Array, Form("N")]  # p
    centre: Annotated[Array, Form("N")]  # c
    mean: Annotated[Array, Form("D")]  # g, in these units
    predicted: Annotated[Array, Form("N")]  # f
    turn: Annotated[int, Form(rounds=-1)] = 0
    answers: int = 0  # since the gap was predicted last
    cycles: float = 0.0  # answers so far of the clients, averaged by their weights
    eta: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    steepest: float = 0.0  # largest curvature so far
    value: Extended = math.inf  # exact objective of the first model, or of the last one judged
    bound: Extended = -math.inf  # largest lower bound so far
    first: Annotated[float, Form(infinite=True, nan=True)] = (
        math.nan
    )  # length of the first step over eta
    soon: float = SOON  # predicted gap, over the tolerance, at which w stands still
    still: Annotated[int, Form(least=-1)] = -1  # the step since which w stands still, -1: it moves
    seen: Surveyed | None = None


@dataclass(frozen=True)
class AsyncDRO(base.Method):
    """The default asynchronous algorithm, for any smooth model, with nothing to tune and without
    rounds that wait for stragglers.

    On an engine in which all clients answer at once (``InProcess``) it is synchronous gradient
    descent on the model and proximal ascent on the client weights.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)); where nothing
        proves a bound, when the step has become so much shorter than the first one
        (``Stop.UNPROVEN``)
    max_rounds : a cap on the server's steps; a run that meets it is never called optimal
    step : factor of the step size; 1 is stable as long as ages and curvatures are right
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for losses that are not smooth, settings out of range

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.AsyncDRO(), max_rounds=500)
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    tol: float = 1e-3
    atol: float = 0.0
    max_rounds: int = 1_000_000
    step: float = 1.0
    start: Array | None = None
    problem: Problem | None = None
    unaware: ClassVar[bool] = True
    requirements: ClassVar[Requirements] = Requirements(over_samples=MEAN_OF_ROWS, loss=SMOOTH)
    mutates_state: ClassVar[bool] = True
    stateless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        base.check_positive(self, "step", remedy="The default is 1.")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Meet: self._at_client(meet), Visit: self._at_client(linearisation.linearise)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Met: self.begin, linearisation.Linearised: self.renew}

    @property
    def claims(self) -> Claims:
        return {Met: self._met, **linearisation.linear(self._problem)}

    def _met(self, who: int, ask: Meet, up: Met) -> Iterator[Claim]:
        """What a first answer claims."""
        problem, d = self._problem, up.square.shape[1]
        w = problem.model_start(d) if ask.w is None else ask.w
        yield of_sizes(problem, float(ask.prior[0]), up)
        yield from of_risk(problem, w, up.risk, up.gradient)
        yield Number("a curvature", up.curvature)
        yield Features(np.append(up.features, d))

    def server_start(self, n_clients: int) -> tuple[AsyncState, Round]:
        none, prior = np.zeros(0), member(self._problem, n_clients)
        state = AsyncState(none, none, none, None, prior, prior, none, none)
        start = None if self.start is None else np.asarray(self.start, float)
        return state, Round(Meet(prior, start))

    def begin(
        self, state: AsyncState, ids: Sequence[int], up: Met
    ) -> tuple[AsyncState, Round | Done]:
        """Store the first lines, of all clients, and take a step."""
        problem = self._problem
        w = base.with_start(problem, self.start, int(up.features))
        value, units = self._value(w, up.risk), step_units(problem, up.square)
        up = replace(up, gradient=up.gradient / units)
        mean = state.weights @ up.gradient
        seen = Surveyed(up.plus, up.minus, up.reach, up.target, up.square)
        place = units * w
        state = replace(state, w=w, place=place, units=units, lines=first_lines(up, place, mean))
        state = replace(state, mean=mean, value=value, seen=seen)
        state = self._stepped(state, 0, 0, no_answers(len(w)), len(ids))
        return self._ask(state, ids)

    def renew(
        self, state: AsyncState, ids: Sequence[int], up: linearisation.Linearised
    ) -> tuple[AsyncState, Round | Done]:
        """Replace the lines of the clients who answered, and take a step."""
        turn, new = state.turn + 1, answers(ids, up)
        count = state.answers + len(ids)
        if state.still >= 0 or turn >= self.max_rounds:
            renew(base.known(state.lines), new, state.units, state.place, state.mean, turn)
            state = replace(state, turn=turn, answers=count)
            return self._judged(state, ids) if state.still >= 0 else (state, Done(Stop.MAX_ROUNDS))
        return self._ask(self._near(self._stepped(state, turn, count, new, len(ids))), ids, new[0])

    def _stepped(
        self, state: AsyncState, turn: int, answered: int, new: Answers, fresh: int
    ) -> AsyncState:
        """The state after a step with these answers; ``fresh`` lines are new."""
        risk, lines = self._problem.over_clients, base.known(state.lines)
        here = state.units, state.place
        # where losses saturate, curvatures vanish, and no line is accurate so far away
        longer = 2.0 ** (fresh / len(state.weights))
        most = state.eta * longer if turn else self._longest(state)
        sizes = float(self.step), max(FLAT * state.steepest, TINY), most, _trust(state.cycles)
        f, force, shifted, numbers = predict(
            lines, new, *here, state.mean, state.weights, state.centre, turn, sizes
        )
        curve, age, eta, mu, loss = numbers
        if not math.isfinite(curve + loss):
            raise ArithmeticError(
                "a client's answer is not finite: rescale the features, or give AsyncDRO(step=0.1)."
            )
        pace = 1.0 / (1.0 + age)
        if not hasattr(risk, "project"):
            p = state.centre + pace * (risk.weights(f) - state.centre)
            centre, mean, *to = descend(lines, *here, p, force, eta, p, 0.0)
        else:
            p = risk.project(shifted) if mu > 0 else state.weights
            centre, mean, *to = descend(lines, *here, p, force, eta, state.centre, pace)
        w = self._problem.prox(*to)
        place = state.units * w
        np.subtract(place, state.place, out=lines.step)
        first = state.first if state.turn else float(np.linalg.norm(lines.step)) / eta
        return changed(
            state,
            w=w,
            place=place,
            weights=p,
            centre=centre,
            mean=mean,
            predicted=f,
            turn=turn,
            answers=answered,
            cycles=state.cycles + pace,
            eta=eta,
            steepest=max(state.steepest, curve),
            first=first,
        )

    def _longest(self, state: AsyncState) -> float:
        """The longest first step, where a loss may be measured as linear, such as Huber's far from
        its targets: ||g||^2 <= 2 L F wherever F >= 0, so that no right curvature L is less.
        """
        value = float(state.weights @ base.known(state.lines).losses)
        square = float(state.mean @ state.mean)
        return 2.0 * self.step * value / square if min(value, square) > 1e-100 else 1.0

    def _near(self, state: AsyncState) -> AsyncState:
        """Once in N answers, let w stand still if the lines predict that the end is near."""
        if state.answers < len(state.weights):
            return state
        state = replace(state, answers=0, bound=max(state.bound, self._bound(state, state.value)))
        return (
            replace(state, still=state.turn)
            if self._ended(state, self._lines(state), state.soon)
            else state
        )

    def _judged(self, state: AsyncState, ids: Sequence[int]) -> tuple[AsyncState, Round | Done]:
        """Let w stand still until every line was made at it, since then the risks are exact; a
        client whose line was waits for the others.
        """
        if len(old := old_lines(base.known(state.lines), state.still)):
            if state.turn >= self.max_rounds:
                return state, Done(Stop.MAX_ROUNDS)
            return self._ask(state, sorted(set(old.tolist()).intersection(ids)))
        state = replace(state, mean=mean_gradient(base.known(state.lines), state.weights))
        risks = self._lines(state)
        value = self._value(state.w, risks)
        bound = self._bound(state, value)  # from lines at one model, as a certificate can repeat it
        if self._ended(replace(state, bound=bound), risks, 1.0):
            state = replace(state, value=value, bound=bound, predicted=risks)
            return state, Done(Stop.OPTIMAL if math.isfinite(value - bound) else Stop.UNPROVEN)
        state = replace(state, value=value, bound=max(state.bound, bound), predicted=risks)
        if state.turn >= self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        state = replace(state, still=-1, soon=LATER * state.soon)
        state = self._stepped(state, state.turn, 0, no_answers(len(state.w)), len(ids))
        return self._ask(state, range(len(risks)))

    def _lines(self, state: AsyncState) -> Array:
        """b + G w."""
        return exact(base.known(state.lines), state.place)

    def _bound(self, state: AsyncState, value: float) -> float:
        """The lower bound that the lines prove: they are below the risks, however old they are."""
        risk, gradient = float(state.weights @ self._lines(state)), state.units * state.mean
        return linearisation.bound_at(
            self._problem, state.w, value, risk, gradient, state.weights, state.seen
        )

    def _ended(self, state: AsyncState, risks: Array, share: float) -> bool:
        """Whether w is optimal to ``share`` of the tolerance if its risks are these."""
        value = self._value(state.w, risks)
        # old lines may predict less than any model can have, which is not the end
        if math.isfinite(state.bound):
            return abs(value - state.bound) <= share * self._allowed(value, state.bound)
        lag = value - self._problem.penalty(state.w) - float(state.weights @ risks)
        return (
            lag <= share * self._allowed(value, value)
            and self._length(state) <= share * self.tol * state.first
        )

    def _allowed(self, value: float, bound: float) -> float:
        return base.Progress(value, bound, self.tol, self.atol).allowed()

    def _length(self, state: AsyncState) -> float:
        """The length of the next step over eta, which is 0 at a stationary point."""
        to, units = state.place - state.eta * state.mean, state.units
        moved = self._problem.prox(to / units, state.eta / units**2) - state.w
        return float(np.linalg.norm(units * moved)) / state.eta

    def _ask(
        self, state: AsyncState, ids: Sequence[int], to: NDArray[np.intp] | None = None
    ) -> tuple[AsyncState, Round]:
        """Send w to these clients; ``to`` is the same as an array, where there is one."""
        to = np.array(ids, np.intp) if to is None else to
        lines = with_sent(base.known(state.lines), to, state.place, state.turn)
        state = state if lines is state.lines else replace(state, lines=lines)
        return state, Round(Visit(state.w), tuple(ids), 1)

    def report(self, state: AsyncState) -> dict:
        """``predicted`` is the weighted sum of the risks that the lines predict, with h; it is not
        the objective.
        """
        return {
            "predicted": float(state.weights @ state.predicted) + self._problem.penalty(state.w),
            **base.worst_client(state.predicted),
            "bound": state.bound,
            "step_size": state.eta,
        }

    def answer(self, state: AsyncState, concluded: base.Concluded | None = None) -> base.Answer:
        return base.Answer(state.w, linearisation.duals_at(self._problem, state.w, state.weights))


def _trust(cycles: float) -> float:
    """The factor tau after so many answers of the clients of large weight."""
    return TRUST * 2.0 ** (-max(0.0, cycles - PATIENCE) / HALVED)
