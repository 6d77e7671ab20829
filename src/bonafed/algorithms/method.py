"""The base class of the algorithms that ``solve`` runs, and the parts that they share."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from bonafed.algorithms.requirements import Requirements
from bonafed.arrays import Array, Block, is_number
from bonafed.codec import Form
from bonafed.privacy.moments import Moments
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.parts import WHOLE, Parts, Sums, curvature_sums, gradient_sums, limit_sums
from bonafed.problem.plausible import AboutRows
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Ball, GroupL2, regulariser_parts
from bonafed.rounds import Done, Each, Round, Stop, record

if TYPE_CHECKING:
    from bonafed.data.federation import Federation
    from bonafed.problem.metadata import Metadata


S = TypeVar("S")
T = TypeVar("T")
Ids = Sequence[int]  # positions of clients
Next = tuple[S, Round | Done]  # the server's next state, and what it asks, or the end


@record
class Concluded:
    """What the clients keep that belongs to the answer; None where an algorithm has none."""

    copies: Each | None = None  # (n, D) of the model
    multipliers: Each | None = None  # (n, p) of the client's own constraints
    changes: Each | None = None  # (n, p) the last changes of the multipliers
    # of the one client that has all rows:
    rows: Each | None = None  # (1, m) the multipliers of the rows
    split: Each | None = None  # (1, m) the points that go with them
    # (1, k, 4) the starts that were tried
    starts: Annotated[Each, Form(infinite=True, nan=True)] | None = None


class Answer(NamedTuple):
    """The answer of an algorithm to a run: the model, and what proves how good it is.

    Attributes
    ----------
    w : (D,) the model
    duals : weights and points that prove a lower bound, or None
    multipliers : of the constraints, where the algorithm takes some
    row_duals : (multipliers, split), (n,) each, of the rows of the one client, which prove a bound
    copies : (N, D) the clients' copies of the model, where they keep some
    tries : one row per start of an algorithm with several starts
    moments : of a private run for inference, what intervals are computed from
    """

    w: Array
    duals: Duals | None = None
    multipliers: Multipliers | None = None
    row_duals: tuple[Array, Array] | None = None
    copies: Array | None = None
    tries: list[dict[str, Any]] | None = None
    moments: Moments | None = None


class Method(AboutRows):
    """The base of an algorithm that ``solve`` can run: an ``Algorithm`` with a problem.

    A subclass is a frozen dataclass with a field ``problem: Problem | None = None``, which
    ``solve`` fills in. Fields ``tol``, ``atol``, ``max_rounds`` and ``start``, where it has them,
    can be set through ``solve``. ``atol`` says that a run which ends as optimal claims a gap of at
    most max(atol, tol |value|); the claim is checked against the certificate.
    """

    requirements: ClassVar[Requirements] = Requirements()
    unstated: ClassVar[tuple[str, ...]] = ("problem",)  # a problem is stated beside its algorithm
    unaware: ClassVar[bool] = False  # whether it never knows the exact objective on its way
    # 0; 1 for a comparator and 2 for a paper's method, which advice names last
    advised: ClassVar[int] = 0
    problem: Problem | None

    @property
    def called(self) -> str:
        """Its name in sentences."""
        return type(self).__name__

    def answer(self, state: Any, concluded: Concluded | None = None) -> Answer:
        """The answer of a run in this state; parts that the clients keep are in what they
        concluded.
        """
        raise NotImplementedError(f"{type(self).__name__} must define answer(state, concluded)")

    def for_clients(self) -> "Method":
        """The method without its problem, which the clients know."""
        return replace(self, problem=None)  # type: ignore[type-var]

    def at_client(self, problem: Problem, data: "Metadata") -> "Method":
        """The method with the concrete problem; raises where it does not take the problem."""
        self.check_problem(problem, data)
        return replace(self, problem=problem)  # type: ignore[type-var]

    def value_at(self, w: Array, risks: Array) -> float:
        """The objective at w, where the clients have these risks."""
        return float(self.concrete.over_clients.value(risks)) + self.concrete.penalty(w)

    def check_problem(self, problem: Problem, fed: "Federation | Metadata | None") -> None:
        """Raise ``ValueError`` where a setting of this algorithm does not go with a problem that
        meets its requirements; ``fed`` is None as long as the data are not read.
        """


def known(value: T | None) -> T:
    """A value of the server's state that is None before the first answers; raises while it is."""
    if value is None:
        raise ValueError("the clients have not answered yet.")
    return value


def start_or_empty(start: Array | None) -> Array:
    """The user's first model, or an empty array where there is none."""
    return np.zeros(0) if start is None else np.asarray(start, float)


def or_default(w: Array, problem: Problem, n_features: int) -> Array:
    """A first model, or the problem's default where it is empty."""
    return w if len(w) else problem.model_start(n_features)


def with_start(problem: Problem, start: Array | None, n_features: int) -> Array:
    """The user's first model, or the problem's default where there is none."""
    return problem.model_start(n_features) if start is None else np.array(start, float)


def within_bounds(problem: Problem, w: Array) -> Array:
    """The nearest model within the bounds of the regulariser, or its ball."""
    if isinstance(problem.regulariser, Ball):
        return problem.prox(w, 1.0)
    if isinstance(problem.regulariser, GroupL2):
        return w
    _, _, lower, upper = regulariser_parts(problem.regulariser)
    d, w = np.size(problem.predictor.split(w)[0]), w.copy()
    w[:d] = np.clip(w[:d], lower, upper)
    return w


def free_prox(problem: Problem, v: Array, step: float | Array) -> Array:
    """argmin_w h(w) + sum_j (w - v)_j^2 / (2 step_j) for one step or (D,) steps, with a free
    intercept.
    """
    if not problem.predictor.intercept:
        return problem.regulariser.prox(v, step)
    step = step[:-1] if isinstance(step, np.ndarray) else step
    return np.append(problem.regulariser.prox(v[:-1], step), v[-1])


def worst_client(risks: Array) -> dict[str, float]:
    """The client of the largest risk, and this risk, as numbers to plot; -1 without clients."""
    worst = int(np.argmax(risks)) if len(risks) else -1
    return {"worst_client": worst, "worst_risk": float(risks[worst])}


def conclude_copies(name: str) -> Callable[..., tuple[Any, Concluded]]:
    """A client's last step, which sends its copy of the model: the field ``name`` of its memory."""
    return lambda memory, ask, data, rng: (memory, Concluded(copies=getattr(memory, name)))


def copies_of(concluded: Concluded | None) -> Array | None:
    """The clients' copies of the model, (N, D), where they sent them."""
    return None if concluded is None else concluded.copies


def gap_report(value: float, bound: float, risks: Array) -> dict[str, float]:
    """Objective, bound and gap, and the client of the largest risk, as numbers to plot."""
    return {"objective": value, "bound": bound, "gap": value - bound, **worst_client(risks)}


def settings_of(method: Method) -> dict[str, Any]:
    """The fields of an algorithm, by name."""
    names = [field.name for field in fields(method)]  # type: ignore[arg-type]
    return {name: getattr(method, name) for name in names}


# Checks that the algorithms share: each raises an error that says what a setting must be.


def check_positive(
    method: object, *names: str, remedy: str = "Leave it out for the default."
) -> None:
    """Raise ``ValueError`` unless these settings are finite numbers > 0, or None by default."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value) and 0 < value < math.inf) and not _left_out(method, name):
            raise ValueError(f"{name} must be a positive number, got {value!r}. {remedy}".rstrip())


def check_finite(method: object, *names: str, least: float = 0.0) -> None:
    """Raise ``ValueError`` unless these settings are finite numbers >= ``least``."""
    for name in names:
        value = getattr(method, name)
        if not (is_number(value) and math.isfinite(value) and value >= least):
            bound = f" >= {least:g}" if math.isfinite(least) else ""
            raise ValueError(f"{name} must be a number{bound}, got {value!r}.")


def check_whole(method: object, *names: str, least: int = 1, meaning: str = "") -> None:
    """Raise ``ValueError`` unless these settings are whole numbers >= ``least``, or None by
    default.
    """
    for name in names:
        value = getattr(method, name)
        whole = is_number(value) and math.isfinite(value) and value == int(value)
        if not (whole and value >= least) and not _left_out(method, name):
            raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}{meaning}.")


def _left_out(method: object, name: str) -> bool:
    """Whether a setting is None, as it is by default."""
    return getattr(method, name) is None and getattr(type(method), name) is None


def check_least(method: object, *names: str, least: float = 1, meaning: str = "") -> None:
    """Raise ``ValueError`` unless these settings are numbers >= ``least``."""
    for name in names:
        if not (value := getattr(method, name)) >= least:
            raise ValueError(f"{name} must be >= {least}, got {value!r}{meaning}.")


def check_count(name: str, value: int, least: int = 1) -> None:
    """Raise ``ValueError`` unless a value is an integer >= ``least``."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}.")


def check_share(method: object, name: str, remedy: str) -> None:
    """Raise ``ValueError`` unless a setting is a number in (0, 1], or None by default."""
    value = getattr(method, name)
    if not (is_number(value) and 0 < value <= 1) and not _left_out(method, name):
        raise ValueError(f"{name} must be a share in (0, 1], got {value!r}. {remedy}")


def check_end(method: object, *tolerances: str) -> None:
    """Raise ``ValueError`` unless these tolerances are numbers >= 0 and ``max_rounds`` is >= 1."""
    numbers = [getattr(method, name) for name in (*tolerances, "max_rounds")]
    fine = all(is_number(number) and number >= 0 for number in numbers)
    if not fine or numbers[-1] < 1:
        raise ValueError(
            f"{', '.join(tolerances)} must be >= 0 and max_rounds >= 1, got"
            f" {', '.join(map(repr, numbers))}."
        )


def check_model(w: Array, remedy: str) -> None:
    """Raise ``ArithmeticError`` unless a model is of finite numbers."""
    if not np.isfinite(w).all():
        raise ArithmeticError(
            f"the model is not finite any more: rescale the features, or give {remedy}."
        )


# When a run ends:  value - bound <= max(atol, tol max(|value|, |bound|)),  at its cap, or where
# nothing has got better for long.

TINY = 1e-12  # size of an objective that counts as 0, where none can be expected to be smaller


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    value, bound : of the best model, and the best that is proved; inf and -inf before there is any
    tol, atol : of the method
    rounds, cap : as the method counts them
    still, patience : steps in a row without progress, and how many of them are enough
    margin : of ``tol``, with which a run ends before that: certificates are charged for rounding
    met : whether the model meets all limits
    least : size of the objective, below which ``tol`` is relative to this
    unknown : the size of the objective before a value or a bound is known
    """

    value: float
    bound: float
    tol: float
    atol: float = 0.0
    rounds: int = 0
    cap: float = math.inf
    still: int = 0
    patience: float = math.inf
    margin: float = 1.0
    met: bool = True
    least: float = 0.0
    unknown: float = 0.0

    def allowed(self, margin: float = 1.0) -> float:
        """The gap that the tolerance allows."""
        sizes = [abs(x) for x in (self.value, self.bound) if math.isfinite(x)]
        size = max(*sizes, self.least, self.unknown * (not sizes))
        return max(self.atol, margin * self.tol * size)

    def within(self, margin: float = 1.0) -> bool:
        """Whether the gap is proved to be as small as the tolerance asks."""
        gap = self.value - self.bound
        return self.met and math.isfinite(gap) and gap <= self.allowed(margin)

    @property
    def stop(self) -> Stop | None:
        """Why the run ends now; None where it goes on."""
        capped, rests = self.rounds >= self.cap, self.still >= self.patience
        if self.within(1.0 if capped or rests else self.margin):
            return Stop.OPTIMAL
        if capped:
            return Stop.MAX_ROUNDS
        return Stop.STALLED if rests else None


def unless_capped(state: S, ask: Round, rounds: int, cap: int) -> Next[S]:
    """The next request, or the end of a run at its cap."""
    return state, ask if rounds < cap else Done(Stop.MAX_ROUNDS)


# What an answer tells of a site's rows: the slopes of the rows in every sum that leaves, and the
# models at which these were asked for.
#
# A message class may say it of its answers in ``tells``, a function of `Answered`.

SLOPES, SQUARES = "slopes", "squares"  # of x_j, and of x_j x_j'


class Told(NamedTuple):
    """A part of an answer.

    Attributes
    ----------
    kind : `SLOPES` or `SQUARES`
    sums : over rows
    models : (K, D) at which they were asked for
    """

    kind: str
    sums: list[Sums]
    models: Array


class Answered(NamedTuple):
    """A message with the site's answer to it, and what the site keeps of the run.

    Attributes
    ----------
    problem : concrete
    block : the rows that the answer is about
    ask, upload : the message and the answer, which is None where it is masked
    before, memory : before and after the message
    """

    problem: Problem
    block: Block
    ask: Any
    upload: Any
    before: Any
    memory: Any


def at(
    one: Answered, w: Array, parts: Parts = WHOLE, curved: bool = False, limits: bool = True
) -> Iterator[Told]:
    """Value and gradient at a model, in parts, and the curvature there."""
    problem, block, w = one.problem, one.block, model_of(one, w)
    sums = gradient_sums(problem, w, block, parts)
    if limits:
        sums += [each for stack in limit_sums(problem, w, block, parts) for each in stack]
    yield Told(SLOPES, sums, w[None])
    if curved:
        yield Told(SQUARES, curvature_sums(problem, w, block), w[None])


def model_of(one: Answered, w: Array) -> Array:
    """A model, or the one where the problem's methods begin."""
    D = one.problem.predictor.dimension(one.block.n_features)
    return w if len(w) else within_bounds(one.problem, np.zeros(D))


Telling = Callable[[Answered], Iterator[Told]]


def at_model(curved: bool = False, each: bool = False) -> Telling:
    """Of a message about its model ``w``; ``each``: every client has a row of it."""
    return lambda one: at(one, one.ask.w[0] if each else one.ask.w, curved=curved)


def at_models(models: Callable[[Answered], Iterable[Array]]) -> Telling:
    """Of a message whose answer tells what the rows say at some models."""
    return lambda one: (told for w in models(one) for told in at(one, w))
