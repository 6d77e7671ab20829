"""Private gradient descent: the server steps along the sum of the clients' noisy gradients.

    w^{t+1} = prox_{s_t h}( w^t - s_t sum_p (a_p / q sum_i clip(l'(w^t; x_pi, y_pi), C) + xi_p) )

with the noise xi_p of `PrivateADMM` at every client, steps that fall to 0 in a straight line, and
the last model as the answer (Bassily, Smith, Thakurta, *Private empirical risk minimization*, 2014;
Abadi et al., *Deep learning with differential privacy*, 2016). The inner sum is over all rows where
q = 1, else over those that each client takes by secret coins, every row with probability q. The sum
of the steps follows from public numbers: `default_length`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from quorate.algorithms.federated.private_admm.float_gradient import precision
from quorate.algorithms.federated.private_admm.mechanism import MEAN_SIZE, Mechanism
from quorate.algorithms.federated.private_admm.noisy_gradient import (
    GROUPS,
    NoiseKeys,
    Question,
    answered,
    check_question,
    each_of,
    new_keys,
    noisy_gradients,
)
from quorate.algorithms.federated.private_admm.private_method import PrivateMethod
from quorate.algorithms.federated.private_admm.settings import (
    ROW_BY_ROW,
    ClientSizes,
    default_clip,
)
from quorate.algorithms.method import Answer, Concluded
from quorate.algorithms.requirements import Requirements
from quorate.arrays import Array, Block, Streams
from quorate.codec import Form
from quorate.data.federation import Federation
from quorate.privacy.accounting import Release
from quorate.problem.metadata import Metadata
from quorate.problem.predictors.torch_module import TorchPredictor
from quorate.problem.problem import Problem
from quorate.rounds import Conclude, Done, Outcome, Round, Stop, Sum, record

# standard deviation of the way that noise alone takes a coefficient, for rows of length 1
WAY = 0.9
CLIP = 1 / 3  # default clip over the length of a row
MODULE_CLIP = 1.0  # of a torch module, whose gradients no public number bounds


@record
class Blur:
    """The server's w^t: answer with the gradient there and noise."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=1)]  # t, from 1
    step: float  # s_t


@record
class Blurred:
    """The client's answer, in the view "sum" whole multiples of one step for all clients."""

    gradient: Sum  # (1, D) g_p + xi_p


@record
class PrivateSGDState:
    """The server's state: a function of noisy answers alone."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=0)]


@dataclass(frozen=True)
class PrivateSGD(PrivateMethod):
    """Private gradient descent: models within ``Problem(privacy=Budget(epsilon, delta))``.

    Without a budget this is gradient descent.

    Parameters
    ----------
    max_rounds : T; the budget is spread over all of them, so that more rounds mean more noise in
        each
    mechanism : "gaussian" or "laplace"
    clip : the gradient of a row is shortened to this norm (l2; l1 for Laplace); None: a third of
        the length of a row, see ``bound``, and 1 for a ``TorchPredictor``; for Laplace noise
        ``clip`` or ``bound`` must be declared
    bound : rows are shortened to this norm first, and count as that long, an intercept's 1 beside
        it: 1 for rows that are scaled to unit length. None: rows are not shortened, and count as
        max(2, 2 sqrt(d) / 7) long, which suits features of order one
    length : the sum of all steps; None: from the noise, which is public (`default_length`); without
        a budget T over the squared length of a row
    noise : "secure" or "simulation", as of `PrivateADMM`
    start : first model; None: zeros, or the module's own parameters, which must be public
    sampling : q, the probability with which a row takes part in a round. Below 1 a round costs as
        much less computing, and one answer needs less noise, since nobody knows whose rows are in
        it; the whole run is about as accurate as one of all rows. It needs Gaussian noise and a
        budget of one record more or less

    Raises
    ------
    BudgetSpentError
        where the budget's ledger leaves nothing, or a client is asked more often than the budget
        pays for
    ValueError
        for sampling with Laplace noise, or where a record takes another's place, for losses that
        are not smooth and convex, rows of different weights, regularisers that are
        not convex

    Notes
    -----
    A round sends D + 2 numbers down and D up per client. The steps suit an h that hardly bends,
    such as ``L2(1e-4)``; a strong one shortens the model in every round by its prox.

    A ``TorchPredictor`` has a pass for every single row, so that no row's gradient depends on the
    rows beside it; it counts as 2 ``clip`` long in the rule of the steps, and is worth a search for
    ``clip`` and ``length`` on public data.

    Examples
    --------
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = qr.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = qr.Problem(qr.Logistic(), privacy=qr.Budget(epsilon=1.0, delta=1e-6))
    >>> solution = qr.solve(problem, fed, algorithm=qr.PrivateSGD(max_rounds=20))
    >>> bool(0.9 < solution.ledger.epsilon <= 1)
    True
    """

    length: float | None = None
    noise: str | None = None
    start: Array | None = None
    problem: Problem | None = None
    plan: Mechanism | None = None
    sampling: float = 1.0
    requirements: ClassVar[Requirements] = replace(PrivateMethod.requirements, predictor=ROW_BY_ROW)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("length", "sampling")
        Release(self.mechanism, 1.0, 1, self.sampling)  # which says what is wrong with it

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        super().check_problem(problem, fed)
        if problem.privacy is None and self.sampling < 1:
            raise ValueError(
                f"sampling = {self.sampling:g} needs a budget, whose secret keys decide which rows"
                " take part: state Problem(privacy=Budget(...)), or sampling=1."
            )

    def _clip(self, problem: Problem, fed: ClientSizes) -> float:
        if self.clip is not None:
            return self.clip
        if isinstance(problem.predictor, TorchPredictor):
            return MODULE_CLIP
        one = problem.predictor.intercept
        return CLIP * row_length(self.bound, one, fed.n_features, self.mechanism)

    def _check_model(self, problem: Problem) -> None:
        module = problem.predictor
        if not isinstance(module, TorchPredictor):
            super()._check_model(problem)
            return
        if self.bound is not None:
            raise ValueError(
                "bound shortens the rows of linear models, and bounds no gradient of a module: give"
                " clip=... instead."
            )
        module.check_rows_apart()

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Blur: self.blur, Conclude: lambda memory, ask, data, rng: (memory, Concluded())}

    def client_start(self, data: Block) -> NoiseKeys:
        return NoiseKeys(*new_keys(self._plan, len(data.names)))

    def blur(
        self, memory: NoiseKeys, ask: Blur, data: Block, rng: Streams
    ) -> tuple[NoiseKeys, Blurred]:
        """Carry out a round at the clients of a block."""
        problem, mechanism, n = self._problem, self._plan, len(data.names)
        check_question(mechanism, memory, 1.0, bool(np.isfinite(ask.w).all()))
        w = ask.w.astype(precision(data))
        models = np.broadcast_to(w, (n, len(w)))
        question = Question.of(mechanism, memory, models, ask.w, (ask.round,))
        noisy = noisy_gradients(problem, mechanism, memory, question, data, rng)
        sums = np.zeros((min(n, GROUPS), len(w)))

        def serve(group: int) -> None:
            for i in range(group, n, GROUPS):
                sums[group] += noisy(i)[0]

        each_of(serve, len(sums), data.y.size * len(w))
        return answered(memory, question), Blurred(sums.sum(0, keepdims=True))

    @property
    def from_sums(self) -> str:
        return ""  # every model follows from the sums of noisy gradients at the models before

    def grid(self, upload_class: type) -> Mapping[str, float]:
        step = None if self.plan is None else self.plan.common
        return {} if step is None or upload_class is not Blurred else {"gradient": step}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Blurred: self.descend}

    def server_start(self, n_clients: int) -> tuple[PrivateSGDState, Round]:
        w = self._start(self._size)
        return PrivateSGDState(w, 0), self.ask(w, 1)

    def descend(
        self, state: PrivateSGDState, ids: Sequence[int], up: Blurred
    ) -> tuple[PrivateSGDState, Round | Done]:
        """Take the step of this round."""
        t = state.round + 1
        step = self._step(t)
        with np.errstate(all="ignore"):  # a model that is not finite is refused below
            w = self._problem.prox(state.w - step * up.gradient, step)
        if not np.isfinite(w).all():
            raise ArithmeticError(
                "the model is not finite any more: rescale the features, or give a smaller length."
            )
        state = PrivateSGDState(w, t)
        if t >= self.max_rounds:
            return state, Done(Outcome(Stop.MAX_ROUNDS, self._ended(t)))
        return state, self.ask(w, t + 1)

    def ask(self, w: Array, t: int) -> Round:
        return Round(Blur(w, t, self._step(t)))

    def _step(self, t: int) -> float:
        """s_t = 2 tau / T (1 - (t - 1) / T); the sum over all rounds is tau (1 + 1 / T)."""
        T = self.max_rounds
        return 2 * self.length_of_way / T * (1 - (t - 1) / T)

    @property
    def length_of_way(self) -> float:
        """tau, as stated or from the plan."""
        if self.length is not None:
            return self.length
        plan, predictor = self._plan, self._problem.predictor
        if isinstance(predictor, TorchPredictor):
            row = 2 * (self.clip or MODULE_CLIP)
        else:
            row = row_length(self.bound, predictor.intercept, plan.features, self.mechanism)
        return default_length(plan, row)

    # -- what is public ----------------------------------------------------------------------------

    def answer_alike(self, dimension: int) -> Blurred:
        return Blurred(np.zeros((1, dimension)))

    def public_row(self, message: Blur) -> dict[str, float]:
        plan = self._plan
        scale = float(np.mean(plan.scale))
        return {"step": message.step, "noise": scale * MEAN_SIZE[plan.kind or "gaussian"]}

    def report(self, state: PrivateSGDState) -> dict:
        """Numbers to plot, which are public."""
        return self.public_row(self.ask(state.w, max(state.round, 1)).message)

    def answer(self, state: PrivateSGDState, concluded: Concluded | None = None) -> Answer:
        """The last w."""
        return Answer(state.w)


def row_length(bound: float | None, intercept: bool, features: int, mechanism: str) -> float:
    """How long a row counts, from public numbers: its bound, or as features of order one with many
    zeros if they are many have it.
    """
    if bound is None:
        return 2 * default_clip(features)
    return bound + intercept if mechanism == "laplace" else math.hypot(bound, intercept)


def default_length(plan: Mechanism, row: float) -> float:
    """tau, the sum of the steps, for rows of this length:

        tau nu row = 0.9,     nu = sd of a coordinate of the noise of the mean of all T answers,

    so that noise alone moves a coefficient by about 0.9 / row by the end, whatever T, the number of
    features and the budget are. Without noise T / row^2: first steps of twice that are stable for
    losses whose curvature is at most one.
    """
    nu = plan.deviation / math.sqrt(plan.rounds)
    return WAY / (nu * row) if nu > 0 else plan.rounds / row**2
