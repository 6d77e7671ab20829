"""Private inexact ADMM: one clipped gradient with noise per client and round, in a total budget.

    minimise over w in W   sum_p f_p(w) + h(w),      f_p(w) = a_p sum_i l(w; x_pi, y_pi)         (1)

Algorithms 1 (``update="prox"``) and 2 (``update="trust"``) of Ryu and Kim, *Differentially private
federated learning via inexact ADMM*; equation numbers are theirs. As printed they state an epsilon
for one iteration with noise scaled by the data at hand, (20), which is not a guarantee
(docs/private.md; `papers/dp_iadmm`). Here the user states the total, the gradient of every row is
clipped, and the noise follows from both and the number of rounds. Without radius and prox the
method is optimistic gradient descent: lambda_p^{t+1} is the noisy gradient at z_p^t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.federated.private.noisy_gradient import Question, noisy_gradients
from bonafed.algorithms.federated.private.settings import (
    check_columns,
    default_rho,
)
from bonafed.algorithms.federated.private_admm import client, steps
from bonafed.algorithms.federated.private_admm.client import Perturb, Perturbed, PrivateMemory
from bonafed.algorithms.federated.private_admm.penalty import (
    RADII,
    Penalty,
    number,
    of_round,
)
from bonafed.algorithms.method import Answer, Concluded, conclude_copies, copies_of
from bonafed.algorithms.settings import check_choice
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.data.federation import Federation
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.rounds import Conclude, Done, Round, Stop, record


@record
class PrivateState:
    """The server's state: functions of noisy answers only."""

    w: Annotated[Array, Form("D")]
    mean: Annotated[Array, Form("D")]  # of all w after the first
    round: Annotated[int, Form(rounds=0)]
    gap: float  # sum_p ||w - z_p||_1
    noise: float  # mean |xi| over clients and entries
    clients: Annotated[int, Form(most="N")]


@dataclass(frozen=True)
class PrivateADMM(PrivateMethod):
    """Private ADMM: models within a privacy budget, ``Problem(privacy=Budget(epsilon, delta))``.

    Without a budget this is the noise-free limit.

    Parameters
    ----------
    max_rounds : T; the budget is spread over all of them, so that more rounds mean more noise in
        each
    mechanism : "gaussian" or "laplace"
    clip : the gradient of a row is shortened to this norm (l2; l1 for Laplace); None: max(1,
        sqrt(d) / 7) for Gaussian noise and features of order one; for Laplace noise ``clip`` or
        ``bound`` must be declared
    bound : rows are shortened to this norm first; with a Lipschitz loss that by itself bounds
        the gradients. None: not
    rho : penalty of consensus, a number or a function of t such as ``Penalty()``; None: from clip
        and noise, which are public (``settings.default_rho``); without noise ``Penalty()``
    update : "trust": step (9), "prox": step (8); "exact": (4b), without privacy only
    radius : of "trust", "constant", "1/t" or "1/t^2", times ``scaling``; None: no region
    region : norm of the trust region, "linf" or "l2"
    scaling : of the radius or of eta^t
    eta : a function of t, of "prox"; None: 1 / sqrt(t)
    average : return the mean of all w, about which the theory speaks, not the last
    noise : "secure": from a key of each client, drawn from its operating system. "simulation": a
        fast counter, keyed by seed, client and round, for experiments that can be repeated; anyone
        who knows the seed, or has another run with it, can subtract it. None: "secure" where the
        problem states a budget, else "simulation"
    start : first model, zeros by default

    Raises
    ------
    BudgetSpentError
        where the budget's ledger leaves nothing, or a client is asked more often than the budget
        pays for
    ValueError
        for losses that are not smooth and convex, rows of different weights, regularisers that are
        not convex

    Notes
    -----
    The server handles h; ``Bounds`` and ``Ball`` are W, onto which the clients project their
    copies last. A round sends D + 4 numbers down and D + 2 up per client.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> solution = bf.solve(problem, fed, algorithm=bf.PrivateADMM(max_rounds=20))
    >>> bool(0.9 < solution.ledger.epsilon <= 1)
    True
    """

    rho: Any = None
    update: str = "trust"
    radius: str | None = None
    region: str = "linf"
    scaling: float = 1.0
    eta: Any = None
    average: bool = False
    noise: str | None = None
    tol: float = 1e-6
    start: Array | None = None
    problem: Problem | None = None
    plan: Mechanism | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(
            self,
            update=("trust", "prox", "exact"),
            radius=(None, *RADII),
            region=("linf", "l2"),
        )
        self._check_positive("scaling", *([] if callable(self.rho) else ["rho"]))
        if self.eta is not None and not callable(self.eta):
            raise ValueError(
                f"eta must be a function of t, got {self.eta!r}: for another factor use scaling."
            )
        if not (self.tol == 0 or number(self.tol)):
            raise ValueError(f"tol must be a number >= 0, got {self.tol!r}.")
        if not isinstance(self.average, bool | np.bool_):
            raise ValueError(f"average must be True or False, got {self.average!r}.")

    # -- before anything runs ----------------------------------------------------------------------

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        """Raise ``ValueError`` where the settings would not keep the problem's budget."""
        private = problem.privacy is not None
        if private and fed is not None:
            check_columns(fed)
        if self.update == "exact" and private:
            raise ValueError(
                'update="exact" has no bounded sensitivity: use it without privacy, or "prox" or'
                ' "trust".'
            )
        super().check_problem(problem, fed)

    @property
    def from_sums(self) -> str:
        return (
            "each client takes its gradients at a copy of the model that follows from its own"
            " answers, which the sums do not tell, and sends its distance from the model."
        )

    def schedules(self) -> list[float]:
        T = self.max_rounds
        values = [self._rho(t) for t in range(1, T + 2)] if callable(self.rho) else []
        return values + ([self._reach(t) for t in range(1, T + 1)] if callable(self.eta) else [])

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Perturb: self.perturb, Conclude: conclude_copies("z")}

    def client_start(self, data: Block) -> PrivateMemory:
        D = self._problem.predictor.dimension(data.n_features)
        return client.start(self._plan, self._start(D), data)

    def perturb(
        self, memory: PrivateMemory, ask: Perturb, data: Block, rng: Streams
    ) -> tuple[PrivateMemory, Perturbed]:
        if self.update == "exact":
            return client.exact(self._problem, self._plan, memory, ask, data, self.tol)
        given = self._problem, self._plan, self._near, self.noisy_gradients
        return client.perturb(*given, memory, ask, data, rng)

    def noisy_gradients(
        self, memory: PrivateMemory, ask: Perturb, asked: Question, data: Block, rng: Streams
    ) -> Callable[[int], tuple[Array, float]]:
        """The function that gives a client's gradient with noise, and the mean size of the noise;
        a method that keeps no budget may have another.
        """
        return noisy_gradients(self._problem, self._plan, memory, asked, data, rng)

    @property
    def _near(self) -> int:
        if self.update == "prox":
            return steps.PROX
        return {"linf": steps.LINF, "l2": steps.BALL}[self.region]

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Perturbed: self.aggregate}

    def server_start(self, n_clients: int) -> tuple[PrivateState, Round]:
        w = self._start(self._size)
        return PrivateState(w, np.zeros_like(w), 0, 0.0, 0.0, n_clients), self.ask(w, 1)

    def aggregate(
        self, state: PrivateState, ids: Sequence[int], up: Perturbed
    ) -> tuple[PrivateState, Round | Done]:
        """Take step (4a) with h, which returns the next w."""
        t, P = state.round + 1, state.clients
        with np.errstate(all="ignore"):  # a model that is not finite is refused below
            w = self._problem.prox(up.shifted / P, 1 / (P * self._rho(t + 1)))
        if not np.isfinite(w).all():
            raise ArithmeticError(
                "the model is not finite any more: rescale the features, or give a larger rho."
            )
        mean = state.mean + (w - state.mean) / t
        state = PrivateState(w, mean, t, float(up.gap), float(up.noise) / P, P)
        if t >= self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        return state, self.ask(w, t + 1)

    def ask(self, w: Array, t: int) -> Round:
        return Round(Perturb(w, t, self._rho(t), self._rho(t + 1), self._reach(t)))

    def answer_alike(self, dimension: int) -> Perturbed:
        return Perturbed(shifted=np.zeros((1, dimension)), gap=np.zeros(1), noise=np.zeros(1))

    def public_row(self, message: Perturb) -> dict[str, float]:
        noise = client.reported(self._plan, message, self._plan.mean_size).mean()
        return {"rho": message.rho, "noise": float(noise)}

    def _reach(self, t: int) -> float:
        """1 / eta^t for "prox", delta^t for "trust"."""
        if self.update == "prox":
            return 1 / (
                self.scaling
                * (1 / math.sqrt(t) if self.eta is None else of_round("eta", self.eta, t))
            )
        return math.inf if self.radius is None else self.scaling * RADII[self.radius](t)

    def _rho(self, t: int) -> float:
        if self.rho is None:
            return default_rho(self._plan) if self._plan.kind else Penalty()(t)
        if callable(self.rho):
            return of_round("rho", self.rho, t)
        return float(self.rho)

    def report(self, state: PrivateState) -> dict:
        """Numbers to plot, functions of what has been released and paid for."""
        return {"rho": self._rho(max(state.round, 1)), "gap": state.gap, "noise": state.noise}

    def answer(self, state: PrivateState, concluded: Concluded | None = None) -> Answer:
        """The last w, or the mean of all, and the clients' copies of the model, (N, D)."""
        z = copies_of(concluded)
        w = state.mean if self.average and state.round else state.w
        return Answer(w, copies=None if z is None else z.astype(float))
