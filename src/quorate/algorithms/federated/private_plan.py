"""Settings of the private ADMMs: what they must be, and what is public about problem and data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array
from quorate.privacy.accounting import MECHANISMS, MOST_ROUNDS
from quorate.problem.losses import Multinomial
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean
from quorate.problem.shape import check_affine

if TYPE_CHECKING:
    from quorate.algorithms.federated.private_admm import Penalty, PrivateADMM
    from quorate.algorithms.federated.private_client import Mechanism

RADII = {"constant": lambda t: 1.0, "1/t": lambda t: 1 / t, "1/t^2": lambda t: 1 / t**2}


def number(value: Any) -> bool:
    """Whether a value is a finite number > 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return 0 < float(value) < math.inf
    except OverflowError:  # of a whole number or a fraction that no double holds
        return False


def of_round(name: str, schedule: Any, t: int) -> float:
    """The number > 0 that a schedule gives."""
    try:
        value = schedule(t)
    except ArithmeticError as error:
        raise ValueError(f"{name} must be a number > 0, and its function fails in round {t}: {error!r}.") from error
    if not number(value):
        raise ValueError(f"{name} must be a number > 0, got {value!r} in round {t}.")
    return float(value)


def check_penalty(it: Penalty) -> None:
    """Raise on numbers out of range."""
    for name, value in {"c1": it.c1, "period": it.period, "scale": it.scale}.items():
        if not number(value):
            raise ValueError(f"{name} of a Penalty must be a number > 0, got {value!r}.")
    if not (it.c2 == 0 or number(it.c2)):
        raise ValueError(f"c2 of a Penalty must be a number >= 0, got {it.c2!r}.")
    if not (it.epsilon == math.inf or number(it.epsilon)):
        raise ValueError(f"epsilon of a Penalty must be a number > 0, or inf for no noise, got {it.epsilon!r}.")


def check_settings(it: PrivateADMM) -> None:
    """Raise on settings out of range."""
    choices = {
        "mechanism": (it.mechanism, MECHANISMS),
        "update": (it.update, ("trust", "prox", "exact")),
        "radius": (it.radius, (None, *RADII)),
        "region": (it.region, ("linf", "l2")),
        "noise": (it.noise, (None, "secure", "simulation")),
        "sensitivity": (it.sensitivity, ("clip", "published" if it.output else "local-unsafe")),
    }
    for name, (value, known) in choices.items():
        if not isinstance(value, str | None) or value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(str, known))}, got {value!r}.")
    if not (number(it.max_rounds) and it.max_rounds % 1 == 0 and it.max_rounds <= MOST_ROUNDS):
        raise ValueError(
            f"max_rounds must be a whole number >= 1 and at most {MOST_ROUNDS:,}, got {it.max_rounds!r}: the budget "
            "is spread over it."
        )
    object.__setattr__(it, "max_rounds", int(it.max_rounds))  # the same run, whatever type its number had
    if not isinstance(it.average, bool | np.bool_):
        raise ValueError(f"average must be True or False, got {it.average!r}.")
    numbers = {"clip": it.clip, "bound": it.bound, "scaling": it.scaling, "local_epsilon": it.local_epsilon}
    numbers |= {} if callable(it.rho) else {"rho": it.rho}
    for name, value in numbers.items():
        if value is not None and not number(value):
            raise ValueError(f"{name} must be a number > 0, got {value!r}.")
    if it.eta is not None and not callable(it.eta):
        raise ValueError(f"eta must be a function of t, got {it.eta!r}: for another factor use scaling.")
    if not (it.tol == 0 or number(it.tol)):
        raise ValueError(f"tol must be a number >= 0, got {it.tol!r}.")
    if (it.sensitivity != "clip") != (it.local_epsilon is not None):
        raise ValueError(
            f'sensitivity="{it.sensitivity}" and local_epsilon={it.local_epsilon} do not go together: as published '
            "(no guarantee) an epsilon of one iteration is needed; else leave both and state a total: "
            "Problem(privacy=Budget(epsilon, delta))."
        )


def check_problem(it: PrivateADMM, problem: Problem, fed: Any) -> None:
    """Raise where gradients of rows cannot be bounded, or what the mechanism says would not hold."""
    name, loss = type(it).__name__, type(problem.loss).__name__
    check_affine(problem, name)
    if not problem.loss.smooth or problem.loss.targets == "quadratic":
        raise ValueError(
            f"{name} needs a smooth loss of rows, got {loss}: use Logistic, Multinomial, SmoothHinge, Huber or Squared."
        )
    if not isinstance(problem.over_samples, Mean) or problem.over_samples.label is not None:
        raise ValueError(f"{name} needs over_samples=Mean(): other risks mix rows, so that one row has no share.")
    if not isinstance(problem.over_clients, Mean):
        raise ValueError(
            f"{name} needs over_clients=Mean(...), got {problem.over_clients!r}: weights that follow the "
            "clients' losses would tell about them."
        )
    if getattr(problem.regulariser, "weak_convexity", 0.0) > 0:
        raise ValueError(f"{name} needs a convex regulariser, got {problem.regulariser!r}.")
    if problem.constrained:
        raise ValueError(f"{name} takes no constraints; Bounds as a regulariser is W.")
    _check_start(it.start, problem.predictor.dimension(fed.n_features))
    for i, client in enumerate(fed.clients):
        if np.ptp(fed.share(i)) > 1e-12:
            raise ValueError(
                f"the rows of client {client} have different weights: a weight is private, too. Leave "
                "sample_weight out."
            )
    private = problem.privacy is not None
    if private and getattr(fed.schema, "fitted", False):
        raise ValueError(
            "the features were made by a schema fitted on rows: its scale and categories tell about them and are not "
            "charged. Declare the columns instead (quorate.data.declared.declared_schema); where the rows it was "
            "fitted on are public, say so: dataclasses.replace(fed, schema=fed.schema.public())."
        )
    if it.update == "exact" and (private or it.sensitivity != "clip"):
        raise ValueError('update="exact" has no bounded sensitivity: use it without privacy, or "prox" or "trust".')
    if private and it.sensitivity != "clip":
        raise ValueError(f'sensitivity="{it.sensitivity}" keeps no budget: leave privacy out of the problem, or clip.')
    if private and it.bound is not None and it.clip is None and not math.isfinite(problem.loss.lipschitz):
        raise ValueError(f"{loss} is not Lipschitz, so a bound on the rows does not bound gradients: give clip=....")
    if private and it.mechanism == "laplace" and it.clip is None and it.bound is None:
        raise ValueError(
            "Laplace noise needs a declared l1 bound, and the features have none: give bound=... (on the l1 norm of a "
            "row, enforced) or clip=... (on that of a gradient), or use mechanism='gaussian'."
        )


def everybody(problem: Problem, fed: Any) -> Any:
    """The federation of all clients whose sizes are declared by name, in that order; some may have no rows.

    A client whose only row comes or goes would else be there or not. Its answers are noise, as all others' are.
    """
    sizes = None if problem.privacy is None else problem.privacy.sizes
    if not isinstance(sizes, Mapping) or tuple(sizes) == fed.clients or any(name not in sizes for name in fed.clients):
        return fed
    prior = getattr(problem.over_clients, "prior", None)
    if not isinstance(prior, str | Mapping):  # in the order of the clients given
        if len(sizes) == fed.n_clients:
            return fed
        odd = next(name for name in sizes if name not in fed.clients)
        raise ValueError(f"client {odd!r} is declared in sizes and has no rows: give the prior by name, for all.")
    at = {name: i for i, name in enumerate(fed.clients)}
    made = fed._pick([(at.get(name, 0), slice(None if name in at else 1)) for name in sizes])
    given = [np.ones(len(t)) for t in made.y] if made.sample_weight is None else made.sample_weight
    X, weight = list(made.X), list(given)
    for k, name in enumerate(sizes):
        if name not in at:  # a row of zeros that counts for nothing
            X[k], weight[k] = abs(X[k]) * 0, np.zeros(1)
    return made._with(clients=tuple(sizes), X=tuple(X), sample_weight=tuple(weight))


def _check_start(start: Any, D: int) -> None:
    given = None if start is None else np.asarray(start)
    if given is not None and (given.shape != (D,) or given.dtype.kind not in "fiu" or not np.isfinite(given).all()):
        raise ValueError(f"start must be {D} finite numbers, got {given.dtype} of shape {given.shape}.")


def sizes(problem: Problem, fed: Any) -> tuple[int, ...]:
    """The public number of rows of every client."""
    return tuple(map(int, fed.sizes)) if problem.privacy is None else problem.privacy.sizes_of(fed.clients, fed.sizes)


def row_weights(problem: Problem, fed: Any) -> Array:
    """a_p of every client: the weight of a row in the objective, from public sizes alone."""
    size = np.asarray(sizes(problem, fed), float)
    return problem.over_clients.project(np.zeros(len(size))) / size


def steepest(problem: Problem, mechanism: str, bound: float) -> float:
    """The largest norm of a row's gradient where rows have at most norm ``bound``: l1 for Laplace, else l2."""
    if math.isinf(bound) or math.isinf(problem.loss.lipschitz):
        return math.inf
    one = float(problem.predictor.intercept)
    row = bound + one if mechanism == "laplace" else math.hypot(bound, one)
    several = isinstance(problem.loss, Multinomial)
    return row * (2.0 if several and mechanism == "laplace" else problem.loss.lipschitz)


def default_clip(features: int) -> float:
    """For features of order one, and many zeros among them where there are many."""
    return max(1.0, math.sqrt(features) / 7)


LONGEST = 2.0  # a step's length where all gradients are of norm clip and agree
WANDER = 2.5  # standard deviation that noise may give to a row's prediction by the end, for features of order one


def default_rho(plan: Mechanism) -> float:
    """A penalty from public numbers alone: steps 1 / (P rho) as long as the noise of all rounds allows, and LONGEST.

    Once most rows are clipped the length of a step changes the model's length, hardly its direction.
    """
    P, d, laplace = len(plan.weight), plan.features, plan.kind == "laplace"
    reach = float(plan.sensitivity.max() / plan.weight.max()) / (math.sqrt(d) if laplace else 1.0)  # of a row, l2
    noise = plan.multiplier * math.sqrt(float((plan.sensitivity**2).sum())) * (math.sqrt(2.0) if laplace else 1.0)
    return max(reach / LONGEST, noise * math.sqrt(d * plan.rounds) / WANDER) / P
