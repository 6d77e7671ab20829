"""Private gradient descent: the server steps along the sum of the clients' noisy gradients.

    w^{t+1} = prox_{s_t h}( w^t - s_t sum_p (a_p / q sum_i clip(l'(w^t; x_pi, y_pi), C) + xi_p) )

with the noise xi_p of `PrivateADMM` at every client, steps that fall to 0 in a straight line, and
the last model as the answer (Bassily, Smith, Thakurta, *Private empirical risk minimization*, 2014;
Abadi et al., *Deep learning with differential privacy*, 2016). The inner sum is over all rows where
q = 1, else over those that each client takes by secret coins, every row with probability q. The sum
of the steps follows from public numbers: `default_length`. With `quantile` the clip C follows a
noisy count of the rows that are not shortened (Andrew, Thakkar, McMahan, Ramaswamy, *Differentially
private learning with adaptive clipping*, 2021), and the steps follow the clip.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from bonafed.algorithms.federated.private import mechanism as mechanisms
from bonafed.algorithms.federated.private import noisy_gradient as noises
from bonafed.algorithms.federated.private.mechanism import ClientSizes, Mechanism
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.method import Answer, Concluded, Ids, Next
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import Release
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.torch_module import TorchPredictor
from bonafed.problem.problem import Problem
from bonafed.rounds import Round, Sum, record

# standard deviation of the way that noise alone takes a coefficient, for rows of length 1
WAY = 0.9
CLIP = 1 / 3  # default clip over the length of a row
FORGET = 3.0  # the model's first part is worth exp(-3) at the end, where a regulariser shrinks it
MODULE_CLIP = 1.0  # of a torch module, whose gradients no public number bounds
# of the clip's logarithm, in a round in which all rows or none are to be shortened more
RATE = 0.2
FARTHEST = 2.0**64  # factor between the first clip and any later one


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
class Trim:
    """The server's w^t and the clip of this round: answer with the gradient there, a count of the
    rows whose gradients are no longer than the clip, and noise.
    """

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=1)]  # t, from 1
    step: float  # s_t
    clip: float  # C_t


@record
class Trimmed:
    """The client's answer."""

    gradient: Sum  # (1, D) g_p + xi_p
    short: Sum  # (1, 1) a_p / q (rows not shortened - rows shortened), with noise


@record
class PrivateSGDState:
    """The server's state: a function of noisy answers only."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=0)]
    clip: float | None = None  # C of the next round, where it moves


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
    sampling : q, the probability with which a row takes part in a round; None: all rows do. A round
        of a sample costs as much less computing, and one answer needs less noise, since nobody
        knows whose rows are in it; the whole run is about as accurate as one of all rows. It needs
        Gaussian noise and a budget of one record more or less
    quantile : the share of rows whose gradients are not to be shortened, such as 0.5. In every
        round the clip then moves towards it, by a noisy count for which the gradient has 2.5 % more
        noise. It suits rows that may be far shorter than of order one, and costs accuracy on others
        (docs/private.md). ``clip`` and ``length`` are those of the first round. None: the clip
        stays

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
    A round sends D + 2 numbers down and D up per client. The default steps are shorter under a
    strongly convex h, such as ``L2(0.1)``, whose prox shortens the model in every round.

    A ``TorchPredictor`` has a pass for every single row, so that no row's gradient depends on the
    rows beside it; it counts as 2 ``clip`` long in the rule of the steps, and is worth a search for
    ``clip`` and ``length`` on public data.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> solution = bf.solve(problem, fed, algorithm=bf.PrivateSGD(max_rounds=20))
    >>> bool(0.9 < solution.ledger.epsilon <= 1)
    True
    """

    length: float | None = None
    noise: Literal["secure", "simulation"] | None = None
    start: Array | None = None
    problem: Problem | None = None
    plan: Mechanism | None = None
    sampling: float | None = None
    quantile: float | None = None
    requirements: ClassVar = replace(PrivateMethod.requirements, predictor=mechanisms.ROW_BY_ROW)
    shortens = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("length", "sampling", "quantile")
        Release(self.mechanism, 1.0, 1, self.rate)  # which says what is wrong with it
        if not self.counts:
            return
        if not (self.quantile or 0) < 1:
            raise ValueError(f"quantile must be a share of rows below 1, got {self.quantile!r}.")
        if self.mechanism != "gaussian":
            raise ValueError(
                f"quantile needs Gaussian noise, got mechanism={self.mechanism!r}: count and"
                " gradient are accounted for together with it only."
            )

    @property
    def rate(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1.0 if self.sampling is None else float(self.sampling)

    @property
    def counts(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.quantile is not None

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        super().check_problem(problem, fed)
        if problem.privacy is None and self.rate < 1:
            raise ValueError(
                f"sampling = {self.rate:g} needs a budget, whose secret keys decide which rows"
                " take part: state Problem(privacy=Budget(...)), or leave"
                " sampling out."
            )
        if problem.privacy is None and self.counts:
            raise ValueError(
                f"quantile = {self.quantile} needs a budget: state Problem(privacy=Budget(...)), or"
                " a clip."
            )
        if problem.privacy is not None and problem.privacy.view == "sum" and self.counts:
            raise ValueError(
                f'quantile = {self.quantile} has no view "sum": its clip moves, and clients who add'
                ' up answer in one step that stays. Give a clip, or take Budget(view="answers").'
            )

    def _clip(self, problem: Problem, fed: ClientSizes) -> float:
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
        return {Trim if self.counts else Blur: self.blur, **self.concludes}

    def blur(
        self, memory: noises.NoiseKeys, ask: Blur | Trim, data: Block, rng: Streams
    ) -> tuple[noises.NoiseKeys, Blurred | Trimmed]:
        """Carry out a round at the clients of a block, maybe with a separate clip."""
        plan, told, near = self.noise_plan, noises.Told.of(ask.w, noises.precision(data)), True
        if isinstance(ask, Trim):
            away = ask.clip / plan.clip
            near = math.isfinite(away) and 1 / FARTHEST <= away <= FARTHEST
            plan = plan.at(ask.clip) if near else plan
        noises.check_question(plan, memory, near and told.finite)
        n, D = len(data.names), len(ask.w)
        models = np.broadcast_to(told.model, (n, D))
        asked = noises.Question.of(plan, memory, models, told, (ask.round,))
        noisy = noises.noisy_gradients(self.concrete, plan, memory, asked, data, rng)

        def add(i: int, sums: list[Array]) -> None:
            sums[0] += noisy(i)[0]

        # with the sum of the counts at the end
        [total] = noises.in_groups(n, data.y.size * D, [D + self.counts], add)
        upload = Trimmed(total[:, :-1], total[:, -1:]) if self.counts else Blurred(total)
        return noises.answered(memory, asked), upload

    @property
    def from_sums(self) -> str:
        return ""  # every model follows from the sums of noisy gradients at the models before

    def grid(self, upload_class: type) -> Mapping[str, float]:
        """The step in which all clients answer in the view "sum"."""
        step = None if self.plan is None else self.plan.common
        return {} if step is None or upload_class is not Blurred else {"gradient": step}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Trimmed if self.counts else Blurred: self.descend}

    def server_start(self, n_clients: int) -> tuple[PrivateSGDState, Round]:
        w = self._start(self._size)
        return PrivateSGDState(w, 0, self.noise_plan.clip if self.counts else None), self.ask(w, 1)

    def descend(
        self, state: PrivateSGDState, ids: Ids, up: Blurred | Trimmed
    ) -> Next[PrivateSGDState]:
        """Take the step of this round, and move the clip towards the quantile."""
        t = state.round + 1
        step = self._step(t, state.clip)
        with np.errstate(all="ignore"):  # a model that is not finite is refused below
            w = self.concrete.prox(state.w - step * up.gradient, step)
        clip = None
        if isinstance(up, Trimmed):
            clip = self._clip_after(self.noise_plan.clip if state.clip is None else state.clip, up)
        return self._after(PrivateSGDState(w, t, clip), w, t, "a smaller length", clip)

    def _clip_after(self, clip: float, up: Trimmed) -> float:
        """The clip of the next round: shorter where more rows than the quantile are not shortened.

        Counts are of the sizes as declared, and noisy: the share may lie beyond 0 and 1.
        """
        share, first = (1 + float(up.short.sum())) / 2, self.noise_plan.clip
        moved = RATE * (min(max(share, 0.0), 1.0) - (self.quantile or 0.0))
        moved_to = min(max(clip * math.exp(-moved), first / FARTHEST), first * FARTHEST)
        # coarser than the rounding of sums, whose order engines choose: noise follows from the clip
        return float(np.float32(moved_to))

    def ask(self, w: Array, t: int, clip: float | None = None) -> Round:
        clip = self.noise_plan.clip if clip is None else clip
        step = self._step(t, clip)
        return Round(Trim(w, t, step, clip) if self.counts else Blur(w, t, step))

    def _step(self, t: int, clip: float | None = None) -> float:
        """s_t = 2 tau / T (1 - (t - 1) / T); the sum over all rounds is tau (1 + 1 / T).

        The noise is in proportion to the clip, and so is the length of a row as far as the clip
        tells it: tau nu row stays the same where tau is in proportion to 1 / clip^2.
        """
        T = self.max_rounds
        ratio = self.noise_plan.clip / clip if self.counts and clip is not None else 1.0
        return 2 * self.length_of_way / T * (1 - (t - 1) / T) * ratio**2

    @property
    def length_of_way(self) -> float:
        """tau, as stated or from the plan."""
        if self.length is not None:
            return self.length
        plan, predictor = self.noise_plan, self.concrete.predictor
        if isinstance(predictor, TorchPredictor):
            row = 2 * (self.clip or MODULE_CLIP)
        else:
            row = row_length(self.bound, predictor.intercept, plan.features, self.mechanism)
        return default_length(plan, row, self.concrete.regulariser.strong_convexity)

    # -- what is public ----------------------------------------------------------------------------

    def answer_alike(self, dimension: int) -> Blurred | Trimmed:
        gradient = np.zeros((1, dimension))
        return Trimmed(gradient, np.zeros((1, 1))) if self.counts else Blurred(gradient)

    def public_row(self, message: Blur | Trim) -> dict[str, float]:
        plan = self.noise_plan.at(message.clip) if isinstance(message, Trim) else self.noise_plan
        row = {"step": message.step, "noise": float(np.mean(plan.mean_size))}
        return row | ({"clip": message.clip} if isinstance(message, Trim) else {})

    def report(self, state: PrivateSGDState) -> dict:
        """Numbers to plot, which are public; step and clip are those of the next round's clip."""
        return self.public_row(self.ask(state.w, max(state.round, 1), state.clip).message)

    def answer(self, state: PrivateSGDState, concluded: Concluded | None = None) -> Answer:
        """The last w."""
        return Answer(state.w)


def row_length(bound: float | None, intercept: bool, features: int, mechanism: str) -> float:
    """How long a row counts, from public numbers: its bound, or as features of order one with many
    zeros if they are many have it.
    """
    if bound is None:
        return 2 * mechanisms.default_clip(features)
    return bound + intercept if mechanism == "laplace" else math.hypot(bound, intercept)


def default_length(plan: Mechanism, row: float, bend: float = 0.0) -> float:
    """tau, the sum of the steps, for rows of this length:

        tau nu row = 0.9,     nu = sd of a coordinate of the noise of the mean of all T answers,

    so that noise by itself moves a coefficient by about 0.9 / row by the end, whatever T, the
    number of features and the budget are. Without noise T / row^2: first steps of twice that are
    stable for losses whose curvature is at most one.

    It is at most 4 T^2 / row^2, so that at least the last step, 2 tau / T^2, is stable for a
    logistic loss, whose curvature is at most row^2 / 4, and with a regulariser of strong convexity
    ``bend`` at most 3 / bend: longer steps would forget in each round what the rounds before told.
    """
    nu, T = plan.deviation / math.sqrt(plan.rounds), plan.rounds
    tau = min(WAY / (nu * row), 4 * (T / row) ** 2) if nu > 0 else T / row**2
    return min(tau, FORGET / bend) if bend > 0 else tau
