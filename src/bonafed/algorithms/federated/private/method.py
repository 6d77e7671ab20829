"""What all methods with noisy answers share: their budget, the plan of their noise, their ledger.

The user states the total (epsilon, delta); the gradient of every row is clipped, and the noise of
an answer follows from both and the number of rounds. What a method asks its clients for, and makes
of their answers, is its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeGuard

import numpy as np

from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.private import mechanism as mechanisms
from bonafed.algorithms.federated.private.integer_gradient import in_single_precision
from bonafed.algorithms.federated.private.mechanism import ClientSizes, Mechanism
from bonafed.algorithms.federated.private.noisy_gradient import NoiseKeys, new_keys
from bonafed.algorithms.method import Concluded, Method, Next, S, check_model
from bonafed.arrays import Array, Block
from bonafed.data.federation import Federation
from bonafed.privacy.accounting import MOST_ROUNDS, Release, noise_for
from bonafed.privacy.budget import Budget
from bonafed.privacy.ledger import Ledger
from bonafed.problem.conic_form import without_ball
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.rounds import Conclude, Done, Round, Stop

SOURCES = {
    "secure": ", made from keys that the clients drew",
    "simulation": (
        ", made from the seed: a simulation, as anyone who has the seed, or two runs of it, can"
        " subtract it"
    ),
}


@dataclass(frozen=True)
class PrivateMethod(Method):
    """The base of the methods that keep a budget; `PrivateADMM` says what the parameters are."""

    max_rounds: int = 100
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    clip: float | None = None
    bound: float | None = None
    if TYPE_CHECKING:  # fields of the subclasses, after their own: checkpoints state them in order
        noise: Literal["secure", "simulation"] | None = None
        start: Array | None = None
        problem: Problem | None = None
        plan: Mechanism | None = None
    private: ClassVar[bool] = True
    output: ClassVar[bool] = False  # noise on the local model, not on the gradient
    rate = 1.0  # the probability with which a row takes part in a round
    # whether gradients of rows with a bound are clipped by default
    shortens = False
    counts = False  # whether answers also count the rows whose gradients are not shortened
    # a client keeps nothing that belongs to the answer
    concludes: ClassVar[dict] = {Conclude: lambda memory, ask, data, rng: (memory, Concluded())}
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        privacy=needs.KEEPS_PRIVACY,
        constraint=mechanisms.UNCONSTRAINED,
        predictor=needs.AFFINE,
        over_samples=mechanisms.UNMIXED_ROWS,
        over_clients=mechanisms.FIXED_WEIGHTS,
        loss=needs.SMOOTH,
        regulariser=needs.CONVEX_PROX,
        rows=mechanisms.PUBLIC_WEIGHTS,
        engine=mechanisms.SYNCHRONOUS,
    )

    def __post_init__(self) -> None:
        T = self.max_rounds
        if not (number(T) and T % 1 == 0 and T <= MOST_ROUNDS):
            raise ValueError(
                f"max_rounds must be a whole number >= 1 and at most {MOST_ROUNDS:,}, got {T!r}:"
                " the budget is spread over it."
            )
        # runs are equal whatever the type of this number
        object.__setattr__(self, "max_rounds", int(T))
        self._check_positive("clip", "bound")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not number(value):
                raise ValueError(f"{name} must be a number > 0, got {value!r}.")

    # -- what a method adds ------------------------------------------------------------------------

    def ask(self, w: Array, t: int) -> Round:
        """The request of round t."""
        raise NotImplementedError

    def answer_alike(self, dimension: int) -> Any:
        """An answer of zeros, as large as every client's."""
        raise NotImplementedError

    def public_row(self, message: Any) -> dict[str, float]:
        """What the history says of a round with this request, as far as that is public."""
        raise NotImplementedError

    @property
    def from_sums(self) -> str:
        """Why the models tell more than the sums of the clients' noisy gradients; empty where they
        follow from these, as the view "sum" needs.
        """
        return "nobody has shown that its models tell no more than sums of noisy gradients do."

    def quorum(self, asked: int) -> int:
        """As many as the budget's view "sum" needs: the noise of at most ``missing`` clients may be
        absent from a sum or known to a viewer, who may be a client and then knows its own.
        """
        missing = self.noise_plan.missing
        return asked if missing is None else asked - max(missing - 1, 0)

    def schedules(self) -> list[float]:
        """The values of the functions of t in all rounds; empty where there are none."""
        return []

    # -- what is alike -----------------------------------------------------------------------------

    def client_start(self, data: Block) -> Any:
        return NoiseKeys(*new_keys(self.noise_plan, len(data.names)))

    def _after(self, state: S, w: Array, t: int, remedy: str, *more: Any) -> Next[S]:
        """The state after round t, in which the model is w, and the request of the next round."""
        check_model(w, remedy)
        return state, self.ask(w, t + 1, *more) if t < self.max_rounds else Done(Stop.MAX_ROUNDS)

    # -- before anything runs ----------------------------------------------------------------------

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
        """Raise ``ValueError`` where the settings would not keep the problem's budget."""
        if problem.privacy is None:
            return
        if fed is not None:
            mechanisms.check_columns(fed)
        if problem.privacy.view == "sum":
            self._check_sums(problem.privacy, fed)
        # the noise follows from what one row can change: a clip, or a bound and the loss's slope
        loss, unclipped = problem.loss, self.clip is None and not self.shortens
        if unclipped and self.bound is not None and not math.isfinite(loss.lipschitz):
            raise ValueError(
                f"{type(loss).__name__} is not Lipschitz, so a bound on the rows does not bound"
                " gradients: give clip=...."
            )
        if self.clip is None and self.bound is None and self.mechanism == "laplace":
            raise ValueError(
                "Laplace noise needs a declared l1 bound, and the features have none: give"
                " bound=... (on the l1 norm of a row, enforced) or clip=... (on that of a"
                " gradient), or use mechanism='gaussian'."
            )
        self._check_model(problem)

    def _check_model(self, problem: Problem) -> None:
        """Raise ``ValueError`` for a model of which no gradient of a row is known to be bounded."""
        if type(problem.predictor) not in (Linear, Softmax):
            raise ValueError(
                f"a model of {type(self).__name__} is Linear() or Softmax(), got"
                f" {problem.predictor!r}: of other models no gradient of a row is known to be"
                " bounded. Take one of the two, a TorchPredictor with PrivateSGD(clip=...), or"
                " leave privacy out of the problem."
            )

    def _check_sums(self, budget: Budget, fed: Federation | Metadata | None) -> None:
        """Raise where no guarantee is known for anyone who sees the sums only."""
        if self.from_sums:
            raise ValueError(
                f'{type(self).__name__} keeps no budget of the view "sum": {self.from_sums} Take'
                ' PrivateSGD(), or Budget(view="answers").'
            )
        if self.mechanism != "gaussian":
            raise ValueError(
                f'mechanism="{self.mechanism}" has no view "sum": a sum of Laplace noises is none,'
                ' and what it gives is not known. Take mechanism="gaussian", or'
                ' view="answers".'
            )
        if fed is not None:
            budget.noised(fed.n_clients)

    def planned(self, problem: Problem, fed: ClientSizes, spent: Sequence[Release] = ()) -> Self:
        """The method with the noise that keeps all rounds, after ``spent``, within the budget."""
        budget, weight = problem.privacy, mechanisms.row_weights(problem, fed)
        if budget is not None:
            budget.noised(fed.n_clients)  # all take part, also those without rows
        problem = without_ball(problem, weight * np.asarray(mechanisms.sizes(problem, fed), float))
        bound = math.inf if self.bound is None else float(self.bound)
        if budget is None:
            kind, multiplier, clip = None, 0.0, self.clip or math.inf
            sensitivity = np.zeros(fed.n_clients)
        else:
            kind = self.mechanism
            clip = self._clip(problem, fed) if self.clip is None else self.clip
            clip = min(clip, mechanisms.steepest(problem, kind, bound))
            multiplier = self.noise_for(budget, spent)
            sensitivity = budget.spread * clip * weight / self.rate
        source = self.noise or ("simulation" if budget is None else "secure")
        noise = kind, multiplier, clip, bound, sensitivity, weight, self.max_rounds, source
        single = in_single_precision(problem, self.mechanism, fed.n_features)
        spread = 1.0 if budget is None else budget.spread
        more = self.output, fed.n_features, spread, single
        missing = budget.missing if budget is not None and budget.view == "sum" else None
        sampling, counts = self.rate if self.rate < 1 else None, self.counts or None
        plan = Mechanism(*noise, *more, missing=missing, sampling=sampling, counts=counts)
        return replace(self, problem=problem, plan=plan)

    def noise_for(self, budget: Budget, spent: Sequence[Release] = ()) -> float:
        """The noise multiplier that keeps all rounds, after ``spent``, within a budget."""
        return noise_for(budget, self.max_rounds, self.mechanism, spent, self.rate)

    def alone(self, budget: Budget) -> Release:
        """All answers of a run that has a budget for itself."""
        return Release(self.mechanism, self.noise_for(budget), self.max_rounds, self.rate)

    def _clip(self, problem: Problem, fed: ClientSizes) -> float:
        """The default norm to which a row's gradient is shortened; inf where the rows' bound is
        enough.
        """
        return math.inf if self.bound is not None else mechanisms.default_clip(fed.n_features)

    def at_client(self, problem: Problem, data: Metadata) -> Self:
        """The method with the noise that the server told, where it is as much as the budget needs;
        all else of the plan is the client's own.
        """
        self.check_problem(problem, data)
        told, planned = self.noise_plan, replace(self, plan=None).planned(problem, data)
        if told.multiplier < planned.noise_plan.multiplier * (1 - 1e-12):
            raise ValueError(
                f"the server plans noise of {told.multiplier:.6g} times the sensitivity, and the"
                f" budget needs {planned.noise_plan.multiplier:.6g}: nothing was released. State"
                " the same budget and rounds at the server."
            )
        public = {"multiplier": told.multiplier, "place": told.place, "engine": told.engine}
        return replace(planned, plan=replace(planned.noise_plan, **public))

    # -- what it has cost --------------------------------------------------------------------------

    def releases(
        self, rounds: int, client: int | None = None, view: str | None = None
    ) -> tuple[Release, ...]:
        """The releases of a client after ``rounds`` answers, in the budget's view or another one.

        Without the place of a ``client`` it is the one whose records count most. In another view
        there are none where they are not known.
        """
        plan, budget = self.noise_plan, self.concrete.privacy
        if plan.kind is None or not rounds:
            return ()
        place = int(np.argmax(plan.weight)) if client is None else client
        stated = "answers" if plan.missing is None else "sum"
        missing, view = 0 if budget is None else budget.missing, view or stated
        if view != stated and view == "sum" and self.from_sums:
            return ()
        released = plan.release(view, place, rounds, missing)
        return () if released is None else (released,)

    def ledger(
        self,
        fed: Federation | Metadata,
        answered: Sequence[int],
        before: Mapping[str, tuple[Release, ...]],
    ) -> Ledger | None:
        """The privacy ledger: what every client released in so many answers."""
        problem, plan = self.concrete, self.noise_plan
        budget = problem.privacy
        if budget is None:
            return None
        counts = [*enumerate(zip(fed.names, answered, strict=True))]
        spent = {name: self.releases(k, p) for p, (name, k) in counts}
        seen = {name: self.releases(k, p, budget.other_view) for p, (name, k) in counts}
        public = dict(zip(fed.names, mechanisms.sizes(problem, fed), strict=True))
        where = "each of" if plan.missing is None else "the clients' sum in each of"
        words = (
            f"{plan.kind} noise of {plan.multiplier:.4g} times the sensitivity in {where}"
            f" {max(answered)} rounds"
        )
        if plan.rate < 1:
            words += f", in which every row takes part with probability {plan.rate:g}"
        words += ", gradient and count of short ones together" * bool(plan.counts)
        words += SOURCES[plan.source]
        # sorted, because the order of their first rows would reveal something about those rows
        names: list[Any] = sorted(fed.names)
        mine, sizes = {c: spent[c] for c in names}, {c: public[c] for c in names}
        other = {c: seen[c] for c in names if seen.get(c) or (c in seen and not spent[c])}
        simulated = plan.source == "simulation"
        return Ledger(budget, mine, {**before}, sizes, words, simulated=simulated, other=other)

    def _start(self, D: int) -> Array:
        if self.start is not None:
            return np.asarray(self.start, float)
        own = getattr(self.concrete.predictor, "start", None)
        return np.zeros(D) if own is None else own(self.noise_plan.features)

    @property
    def _size(self) -> int:
        return self.concrete.predictor.dimension(self.noise_plan.features)

    @property
    def noise_plan(self) -> Mechanism:
        """The plan of the noise; ``ValueError`` before there is one."""
        if self.plan is None:
            raise ValueError(
                f"{type(self).__name__} has no noise planned yet: run it through"
                " bonafed.solve(problem, ...)."
            )
        return self.plan


def number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number > 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return 0 < float(value) < math.inf
    except OverflowError:  # a whole number or a fraction that no double holds
        return False
