"""Private inexact ADMM: one clipped gradient with noise per client and round, in a total budget.

    minimise over w in W   sum_p f_p(w) + h(w),      f_p(w) = a_p sum_i l(w; x_pi, y_pi)         (1)

Algorithms 1 (``update="prox"``) and 2 (``update="trust"``) of Ryu and Kim, *Differentially Private
Federated Learning via Inexact ADMM*; equation numbers are theirs. As printed they state an epsilon
for one iteration with noise scaled by the data at hand, (20), which is not a guarantee
(docs/private.md; `papers/dp_iadmm`). Here the user states the total, the gradient of every row is
clipped, and the noise follows from both and the number of rounds. Without radius and prox the
method is optimistic gradient descent: lambda_p^{t+1} is the noisy gradient at z_p^t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numba import njit

from bonafed.algorithms import method
from bonafed.algorithms.federated.private import mechanism as mechanisms
from bonafed.algorithms.federated.private import noisy_gradient as noises
from bonafed.algorithms.federated.private.mechanism import FAST, Mechanism
from bonafed.algorithms.federated.private.method import PrivateMethod, number
from bonafed.algorithms.method import Answer, Concluded, Ids, Next
from bonafed.arrays import Array, Block, Streams, writable
from bonafed.codec import Extended, Form
from bonafed.data.federation import Federation
from bonafed.parameters import Checked
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Ball, Bounds
from bonafed.rounds import Conclude, Round, Sum, record
from bonafed.solvers.smooth.newton import lbfgs


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

    rho: Annotated[Any, float | Callable[[int], float] | None] = None
    update: Literal["trust", "prox", "exact"] = "trust"
    radius: Literal["constant", "1/t", "1/t^2"] | None = None
    region: Literal["linf", "l2"] = "linf"
    scaling: float = 1.0
    eta: Annotated[Any, Callable[[int], float] | None] = None
    average: bool = False
    noise: Literal["secure", "simulation"] | None = None
    tol: float = 1e-6
    start: Array | None = None
    problem: Problem | None = None
    plan: Mechanism | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("scaling", *([] if callable(self.rho) else ["rho"]))
        if self.eta is not None and not callable(self.eta):
            raise ValueError(
                f"eta must be a function of t, got {self.eta!r}: for another factor use scaling."
            )
        if not (self.tol == 0 or number(self.tol)):
            raise ValueError(f"tol must be a number >= 0, got {self.tol!r}.")

    # -- before anything runs ----------------------------------------------------------------------

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        """Raise ``ValueError`` where the settings would not keep the problem's budget."""
        private = problem.privacy is not None
        if private and fed is not None:
            mechanisms.check_columns(fed)
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
        return {Perturb: self.perturb, Conclude: method.conclude_copies("z")}

    def client_start(self, data: Block) -> PrivateMemory:
        D = self.concrete.predictor.dimension(data.n_features)
        return start(self.noise_plan, self._start(D), data)

    def perturb(
        self, memory: PrivateMemory, ask: Perturb, data: Block, rng: Streams
    ) -> tuple[PrivateMemory, Perturbed]:
        if self.update == "exact":
            return exact(self.concrete, self.noise_plan, memory, ask, data, self.tol)
        near = PROX if self.update == "prox" else {"linf": LINF, "l2": BALL}[self.region]
        given = self.concrete, self.noise_plan, near, self.noisy_gradients
        return perturb(*given, memory, ask, data, rng)

    def noisy_gradients(
        self, memory: PrivateMemory, ask: Perturb, asked: noises.Question, data: Block, rng: Streams
    ) -> noises.Gradients:
        """The function that gives a client's gradient with noise, and the mean size of the noise;
        a method that keeps no budget may have another.
        """
        return noises.noisy_gradients(self.concrete, self.noise_plan, memory, asked, data, rng)

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Perturbed: self.aggregate}

    def server_start(self, n_clients: int) -> tuple[PrivateState, Round]:
        w = self._start(self._size)
        return PrivateState(w, np.zeros_like(w), 0, 0.0, 0.0, n_clients), self.ask(w, 1)

    def aggregate(self, state: PrivateState, ids: Ids, up: Perturbed) -> Next[PrivateState]:
        """Take step (4a) with h, which returns the next w."""
        t, P = state.round + 1, state.clients
        with np.errstate(all="ignore"):  # a model that is not finite is refused below
            w = self.concrete.prox(up.shifted / P, 1 / (P * self._rho(t + 1)))
            mean = state.mean + (w - state.mean) / t
        state = PrivateState(w, mean, t, float(up.gap), float(up.noise) / P, P)
        return self._after(state, w, t, "a larger rho")

    def ask(self, w: Array, t: int) -> Round:
        return Round(Perturb(w, t, self._rho(t), self._rho(t + 1), self._reach(t)))

    def answer_alike(self, dimension: int) -> Perturbed:
        return Perturbed(shifted=np.zeros((1, dimension)), gap=np.zeros(1), noise=np.zeros(1))

    def public_row(self, message: Perturb) -> dict[str, float]:
        noise = reported(self.noise_plan, message, self.noise_plan.mean_size).mean()
        return {"rho": message.rho, "noise": float(noise)}

    def _reach(self, t: int) -> float:
        """1 / eta^t for "prox", delta^t for "trust"."""
        if self.update == "prox":
            eta = 1 / math.sqrt(t) if self.eta is None else of_round("eta", self.eta, t)
            return 1 / (self.scaling * eta)
        return math.inf if self.radius is None else self.scaling * RADII[self.radius](t)

    def _rho(self, t: int) -> float:
        if self.rho is None:
            return mechanisms.default_rho(self.noise_plan) if self.noise_plan.kind else Penalty()(t)
        if callable(self.rho):
            return of_round("rho", self.rho, t)
        return float(self.rho)

    def report(self, state: PrivateState) -> dict:
        """Numbers to plot, functions of what has been released and paid for."""
        return {"rho": self._rho(max(state.round, 1)), "gap": state.gap, "noise": state.noise}

    def answer(self, state: PrivateState, concluded: Concluded | None = None) -> Answer:
        """The last w, or the mean of all, and the clients' copies of the model, (N, D)."""
        z = method.copies_of(concluded)
        w = state.mean if self.average and state.round else state.w
        return Answer(w, copies=None if z is None else z.astype(float))


# Penalties and step sizes of the private ADMMs as functions of the round.


@dataclass(frozen=True)
class Penalty(Checked):
    """rho^t = scale min(1e9, c1 1.2^floor(t / period) + c2 / epsilon), (21) of the paper.

    ``epsilon`` is that of one iteration; inf means no noise.

    OutP with ``scale=0.01`` is the paper's OutP+.

    Examples
    --------
    >>> import bonafed as bf
    >>> rho = bf.Penalty(c1=2.0, c2=5.0, period=10.0)
    >>> [round(rho(t), 3) for t in (0, 10, 20)]
    [2.0, 2.4, 2.88]
    """

    c1: float = 2.0
    c2: float = 5.0
    period: float = 1e4
    epsilon: float = math.inf
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name, value in {"c1": self.c1, "period": self.period, "scale": self.scale}.items():
            if not number(value):
                raise ValueError(f"{name} of a Penalty must be a number > 0, got {value!r}.")
        if not (self.c2 == 0 or number(self.c2)):
            raise ValueError(f"c2 of a Penalty must be a number >= 0, got {self.c2!r}.")
        if not (self.epsilon == math.inf or number(self.epsilon)):
            raise ValueError(
                "epsilon of a Penalty must be a number > 0, or inf for no noise, got"
                f" {self.epsilon!r}."
            )

    def __call__(self, t: int) -> float:
        times = 1.2 ** min(math.floor(min(t / self.period, 1e4)), 3000)  # no overflow
        return self.scale * min(1e9, self.c1 * times + self.c2 / self.epsilon)


RADII = {"constant": lambda t: 1.0, "1/t": lambda t: 1 / t, "1/t^2": lambda t: 1 / t**2}


def of_round(name: str, schedule: Callable[[int], object], t: int) -> float:
    """The value of a schedule in round t, which must be a number > 0."""
    try:
        value = schedule(t)
    except ArithmeticError as error:
        raise ValueError(
            f"{name} must be a number > 0, and its function fails in round {t}: {error!r}."
        ) from error
    if number(value):
        return float(value)
    raise ValueError(f"{name} must be a number > 0, got {value!r} in round {t}.")


# The client's step (8) or (9) of the private ADMM and its multipliers (4c), compiled.
#
# Equation numbers are those of Ryu and Kim.

PROX, LINF, BALL = 0, 1, 2  # what keeps z^{t+1} near z^t


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
# Of more than 15 branches, because splitting it could change the compiler's vector sums.
def towards(w, z, dual, gradient, rho, near, reach, lower, upper, new):
    """Write z^{t+1} of step (8) or (9) of one client to ``new``; ``gradient`` is f_p' + xi_p.

    It adds no noise to z^{t+1}.

    near : PROX, where reach is 1 / eta; LINF or BALL, where it is the radius delta of (6b)
    lower, upper : the set W, or without entries
    """
    number = z.dtype.type
    pull = number(reach if near == PROX else 0.0)
    penalty, radius = number(rho), number(reach)
    over = number(1.0) / (penalty + pull)
    for j in range(len(w)):
        new[j] = (penalty * w[j] + dual[j] - number(gradient[j])) * over
    if pull > 0:
        for j in range(len(w)):
            new[j] += over * pull * z[j]
    if near == LINF and reach < np.inf:
        for j in range(len(w)):
            a, b = z[j] - radius, z[j] + radius
            v = a if new[j] < a else new[j]
            new[j] = b if v > b else v
    if near == BALL and reach < np.inf:
        size = 0.0
        for j in range(len(w)):
            size += (new[j] - z[j]) ** 2
        shorter = number(reach / math.sqrt(size) if size > reach * reach else 1.0)
        for j in range(len(w)):
            new[j] = z[j] + shorter * (new[j] - z[j])
    for j in range(len(lower)):
        v = lower[j] if new[j] < lower[j] else new[j]
        new[j] = upper[j] if v > upper[j] else v


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def update_multipliers(w, z, dual, rho, next_rho, new_dual, to):
    """Write (4c) into ``new_dual`` and add z^{t+1} - lambda^{t+1} / rho^{t+1} to ``to``.

    Returns sum |w - z^{t+1}|.
    """
    penalty, over = w.dtype.type(rho), 1.0 / next_rho
    gap = 0.0
    for j in range(len(w)):
        away = w[j] - z[j]
        multiplier = dual[j] + penalty * away
        new_dual[j] = multiplier
        gap += abs(away)
        to[j] += z[j] - over * multiplier
    return gap


# The client half of the private ADMM: its messages, its memory, and one round.
#
#     z_p^{t+1} = argmin_{z in W}  <f_p'(z_p^t) + xi_p - lambda_p, z> + rho ||w - z||^2 / 2
#                                  + near(z, z_p^t)                                       (8), (9)
#     lambda_p^{t+1} = lambda_p^t + rho (w - z_p^{t+1})                                       (4c)
#
# Equation numbers are those of Ryu and Kim. f_p(z) = a_p sum_i l(z; x_pi, y_pi) with public a_p. A
# sum over all clients of functions of z_p^{t+1} is all that leaves a client, and
# z_p^{t+1} depends on the data through one clipped gradient with noise.


@record
class Perturb:
    """The server's w^{t+1}: answer with z_p^{t+1} and lambda_p^{t+1}."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=1)]  # t, from 1
    rho: float
    next_rho: float  # of the next round
    reach: Extended  # 1 / eta^t or delta^t


@record
class Perturbed:
    """The client's answer: functions of the noisy z_p^{t+1} only."""

    shifted: Sum  # (1, D) sum of z_p - lambda_p / rho
    gap: Sum  # (n,) ||w - z_p||_1
    # (n,) E |xi|, which is public; the mean of |xi| itself would reveal xi beside z_p
    noise: Sum


@record
class PrivateMemory(noises.NoiseKeys):
    """The memory of a client."""

    z: Annotated[Array, Form("n, D")]
    dual: Annotated[Array, Form("n, D")]  # lambda_p


def start(mechanism: Mechanism, w: Array, data: Block) -> PrivateMemory:
    """The first memory: z_p^1 = w^1 and lambda_p^1 = 0."""
    n = len(data.names)
    z = np.tile(w, (n, 1)).astype(noises.precision(data))
    return PrivateMemory(*noises.new_keys(mechanism, n), z, np.zeros_like(z))


def question(plan: Mechanism, memory: PrivateMemory, ask: Perturb, told: Any) -> noises.Question:
    """What a request asks of the gradients and of their noise."""
    return noises.Question.of(plan, memory, memory.z, told, (ask.round, ask.rho, ask.reach))


def perturb(
    problem: Problem,
    mechanism: Mechanism,
    near: int,
    gradients: Callable[..., noises.Gradients],
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    rng: Streams,
) -> tuple[PrivateMemory, Perturbed]:
    """Carry out a round at the clients of a block: step (8) or (9), and (4c).

    ``gradients`` makes of (memory, message, question, data, rng) the function that gives the noisy
    gradient of a client, and the mean size of its noise.
    """
    told = noises.Told.of(ask.w, memory.z.dtype)
    finite = told.finite and 0 < ask.rho < np.inf and ask.reach > 0
    noises.check_question(mechanism, memory, finite)
    n, w = len(data.names), told.model
    asked = question(mechanism, memory, ask, told)
    noisy = gradients(memory, ask, asked, data, rng)
    region = near, ask.reach, *_box(problem, w)
    z, old = writable(memory.z), writable(memory.dual)
    new, dual, gap, size = np.empty_like(z), np.empty_like(old), np.empty(n), np.empty(n)

    def add(i: int, sums: list[Array]) -> None:
        gradient, size[i] = noisy(i)
        gradient = gradient.astype(float, copy=False)  # what the step is compiled for
        towards(w, z[i], old[i], gradient, ask.rho, *region, new[i])
        if isinstance(problem.regulariser, Ball):  # the set W; an intercept is free
            coefficients = problem.predictor.split(new[i])[0]
            coefficients[:] = problem.regulariser.prox(coefficients.astype(float), 1.0)
        moved = w, new[i], old[i], ask.rho, ask.next_rho, dual[i], sums[0]
        gap[i] = update_multipliers(*moved)

    [shifted] = noises.in_groups(n, data.y.size * len(w), [len(w)], add)
    upload = Perturbed(shifted, gap, reported(mechanism, ask, size))
    return noises.answered(memory, asked, z=new, dual=dual), upload


def reported(mechanism: Mechanism, ask: Perturb, size: Array) -> Array:
    """Mean sizes of the noise of gradients, or of z_p where that is what the method speaks of."""
    return size / (ask.rho + ask.reach if mechanism.output else 1.0)


def _box(problem: Problem, w: Array) -> tuple[Array, Array]:
    """The set W as bounds (D,), none for an intercept; without entries where W is the space."""
    if not isinstance(problem.regulariser, Bounds):
        return w[:0], w[:0]
    lower, upper = np.full_like(w, -np.inf), np.full_like(w, np.inf)
    problem.predictor.split(lower)[0][:] = problem.regulariser.lower
    problem.predictor.split(upper)[0][:] = problem.regulariser.upper
    return lower, upper


def exact(
    problem: Problem, plan: Mechanism, memory: PrivateMemory, ask: Perturb, data: Block, tol: float
) -> tuple[PrivateMemory, Perturbed]:
    """One round with (4b) to a tolerance instead of (8), which is possible only without privacy."""
    rows, weight = noises.Rows.of(problem, plan, data), plan.weight[data.index]

    def phi(v: Array) -> tuple[Array, Array]:
        pairs = [rows.value_and_gradient(problem, v[i], data, i) for i in range(len(v))]
        away = v - ask.w
        value = weight * np.array([value for value, _ in pairs]) - (memory.dual * v).sum(1)
        slopes = np.stack([gradient for _, gradient in pairs])
        gradient = weight[:, None] * slopes - memory.dual + ask.rho * away
        return value + ask.rho / 2 * (away**2).sum(1), gradient

    new = lbfgs(phi, memory.z, tol).v
    dual = memory.dual + ask.rho * (ask.w - new)  # (4c)
    gap = np.abs(ask.w - new).sum(1)
    with np.errstate(all="ignore"):  # the server reports what is not finite
        shifted = (new - dual / ask.next_rho).sum(0, keepdims=True, dtype=float)
    upload = Perturbed(shifted, gap, np.zeros(len(gap)))
    return replace(memory, z=new, dual=dual, answered=memory.answered + 1), upload
