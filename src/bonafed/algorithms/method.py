"""The base class of the algorithms that ``solve`` runs, and the parts that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from bonafed.algorithms.requirements import Requirements
from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.privacy.moments import Moments
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.plausible import AboutRows
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Ball, GroupL2, regulariser_parts
from bonafed.rounds import Each, record

if TYPE_CHECKING:
    from bonafed.data.federation import Federation
    from bonafed.problem.metadata import Metadata


T = TypeVar("T")


@record
class Concluded:
    """What the clients keep that belongs to the answer; None where an algorithm has none."""

    copies: Each | None = None  # (n, D) of the model
    multipliers: Each | None = None  # (n, p) of the client's own constraints
    changes: Each | None = None  # (n, p) the last changes of the multipliers
    # of the one client that has all rows:
    rows: Each | None = None  # (1, m) the multipliers of the rows
    split: Each | None = None  # (1, m) the points that go with them
    starts: Annotated[Each, Form(infinite=True, nan=True)] | None = (
        None  # (1, k, 4) the starts that were tried
    )


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
    problem: Problem | None

    def answer(self, state: Any, concluded: Concluded | None = None) -> Answer:
        """The answer of a run in this state; parts that the clients keep are in what they
        concluded.
        """
        raise NotImplementedError(f"{type(self).__name__} must define answer(state, concluded)")

    @property
    def _problem(self) -> Problem:
        """The problem; ``ValueError`` before there is one."""
        if self.problem is None:
            raise ValueError(
                f"{type(self).__name__} has no problem yet: run it through bonafed.solve(problem,"
                " federation, ...)."
            )
        return self.problem

    def for_clients(self) -> Method:
        """The method without its problem, which the clients know."""
        return replace(self, problem=None)  # type: ignore[type-var]

    def at_client(self, problem: Problem, data: Metadata) -> Method:
        """The method with the concrete problem; raises where it does not take the problem."""
        self.check_problem(problem, data)
        return replace(self, problem=problem)  # type: ignore[type-var]

    def _value(self, w: Array, risks: Array) -> float:
        """The objective at w, where the clients have these risks."""
        return float(self._problem.over_clients.value(risks)) + self._problem.penalty(w)

    def check_problem(self, problem: Problem, fed: Federation | Metadata | None) -> None:
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
