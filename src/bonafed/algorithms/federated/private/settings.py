"""The public numbers of problem and data that plan the noise of a private method, and checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, overload

import numpy as np

from bonafed.algorithms.requirements import (
    EQUAL_ROWS,
    MEAN_OF_ROWS,
    NO_CONSTRAINTS,
    Need,
)
from bonafed.arrays import Array
from bonafed.client_names import ClientName
from bonafed.problem.losses import Loss, Multinomial
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.predictors.torch_module import TorchPredictor
from bonafed.problem.problem import Problem
from bonafed.problem.risks.mean import Mean
from bonafed.problem.wasserstein.norm_penalty import is_norm_penalty

if TYPE_CHECKING:
    from bonafed.algorithms.federated.private.mechanism import Mechanism
    from bonafed.data.federation import Federation

UNMIXED_ROWS = Need(
    "mean, ball without label moves",
    "needs over_samples = Mean(), or WassersteinBall(radius) with a declared radius, no support and"
    " label_cost=inf beside the regulariser Zero() or L2() (its worst case is then a norm of the"
    " model; other risks mix rows, so that one row has no bounded share)",
    lambda problem, setting: MEAN_OF_ROWS.holds(problem, setting) or is_norm_penalty(problem),
)
UNCONSTRAINED = replace(
    NO_CONSTRAINTS,
    words=f"{NO_CONSTRAINTS.words} (their values and multipliers follow from rows; a limit on the"
    " model by itself is a regulariser, Bounds() or Ball())",
)
ROW_BY_ROW = Need(
    "affine, torch module",
    "needs the predictor Linear, Softmax or TorchPredictor",
    lambda problem, setting: (
        is_affine(problem.predictor) or isinstance(problem.predictor, TorchPredictor)
    ),
)
FIXED_WEIGHTS = Need(
    "mean",
    "needs over_clients = Mean (weights that follow the clients' losses would tell about them)",
    lambda problem, setting: isinstance(problem.over_clients, Mean),
)
PUBLIC_WEIGHTS = Need(
    "equal", "takes no sample weights (a weight is private, too)", EQUAL_ROWS.holds
)
SYNCHRONOUS = Need(
    "synchronous, if private",
    "needs an engine that waits for all clients in every private round",
    lambda problem, setting: problem.privacy is None or not setting.asynchronous,
)


def check_columns(fed: Federation | Metadata) -> None:
    """Raise where scales and categories of the features come from private rows."""
    if fed.fitted:
        raise ValueError(
            "the features were made by a schema fitted on rows: its scale and categories tell about"
            " them and are not charged. Declare the columns instead"
            " (bonafed.data.schema.declared_schema); where the rows it was fitted on are"
            " public, say so: dataclasses.replace(fed, schema=fed.schema.public())."
        )


def check_sensitivity(
    clip: float | None, bound: float | None, mechanism: str, loss: Loss, shortens: bool
) -> None:
    """Raise where nothing bounds how far one row moves a client's gradient; ``shortens``: by
    default the method clips gradients of rows with a bound, too.
    """
    if clip is not None:
        return
    if bound is not None and not shortens and not math.isfinite(loss.lipschitz):
        raise ValueError(
            f"{type(loss).__name__} is not Lipschitz, so a bound on the rows does not bound"
            " gradients: give clip=...."
        )
    if bound is None and mechanism == "laplace":
        raise ValueError(
            "Laplace noise needs a declared l1 bound, and the features have none: give bound=..."
            " (on the l1 norm of a row, enforced) or clip=... (on that of a gradient), or use"
            " mechanism='gaussian'."
        )


class ClientSizes(Protocol):
    """The public facts about a federation: its clients, their sizes, the number of features."""

    @property
    def clients(self) -> tuple[ClientName, ...]: ...

    @property
    def sizes(self) -> Iterable[int]: ...

    @property
    def n_clients(self) -> int: ...

    @property
    def n_features(self) -> int: ...


@overload
def everybody(problem: Problem, fed: Federation) -> Federation: ...


@overload
def everybody(problem: Problem, fed: Federation | Metadata) -> Federation | Metadata: ...


def everybody(problem: Problem, fed: Federation | Metadata) -> Federation | Metadata:
    """The federation of all clients whose sizes are declared by name, in that order; of rows that
    are elsewhere those that take part.

    Some of them may have no rows: otherwise a client whose only row comes or goes would take part
    or not. The answers of a client without rows are noise, as those of all others are.
    """
    declared = None if problem.privacy is None else problem.privacy.sizes
    if not isinstance(declared, Mapping) or isinstance(fed, Metadata):
        return fed
    names = tuple(map(str, declared))
    if names == fed.names or set(fed.names) - set(names):
        return fed
    if isinstance(getattr(problem.over_clients, "prior", None), str | Mapping):
        return _with_empty_clients(fed, tuple(declared))
    if len(names) == fed.n_clients:  # the prior is in the order of these clients
        return fed
    odd = next(name for name in names if name not in fed.names)
    raise ValueError(
        f"client {odd!r} is declared in sizes and has no rows: give the prior by name, for all."
    )


def _with_empty_clients(fed: Federation, clients: tuple[ClientName, ...]) -> Federation:
    """The federation of these clients; one without rows has a row of zeros of weight zero."""
    position = {name: i for i, name in enumerate(fed.names)}
    empty = [str(client) not in position for client in clients]
    whole = fed._pick(
        [
            (position.get(str(client), 0), slice(1 if without else None))
            for client, without in zip(clients, empty, strict=True)
        ]
    )
    X, weights = list(whole.X), list(whole.sample_weight or [np.ones(len(t)) for t in whole.y])
    for k in np.flatnonzero(empty):
        X[k], weights[k] = abs(X[k]) * 0, np.zeros(1)
    return whole._with(clients=clients, X=tuple(X), sample_weight=tuple(weights))


def sizes(problem: Problem, fed: ClientSizes) -> tuple[int, ...]:
    """The public number of rows of every client."""
    return (
        tuple(map(int, fed.sizes))
        if problem.privacy is None
        else problem.privacy.sizes_of(fed.clients, fed.sizes)
    )


def row_weights(problem: Problem, fed: ClientSizes) -> Array:
    """a_p of every client: the weight of a row in the objective, from public sizes only."""
    size = np.asarray(sizes(problem, fed), float)
    return problem.over_clients.project(np.zeros(len(size))) / size


def steepest(problem: Problem, mechanism: str, bound: float) -> float:
    """The largest norm of a row's gradient where rows have at most norm ``bound``.

    The norm is l1 for Laplace noise, else l2.
    """
    if math.isinf(bound) or math.isinf(problem.loss.lipschitz) or not is_affine(problem.predictor):
        return math.inf
    one = float(problem.predictor.intercept)
    row = bound + one if mechanism == "laplace" else math.hypot(bound, one)
    several = isinstance(problem.loss, Multinomial)
    return row * (2.0 if several and mechanism == "laplace" else problem.loss.lipschitz)


def default_clip(features: int) -> float:
    """The default clipping norm, for features of order one with many zeros if they are many."""
    return max(1.0, math.sqrt(features) / 7)


LONGEST = 2.0  # length of a step where all gradients have norm clip and agree
# standard deviation that noise may give a row's prediction in the end, for features of order one
WANDER = 2.5


def default_rho(plan: Mechanism) -> float:
    """A default penalty from public numbers only.

    Its steps 1 / (P rho) are as long as the noise of all rounds and LONGEST allow.

    Once most rows are clipped, the length of a step changes the model's length but hardly its
    direction.
    """
    P, d, laplace = len(plan.weight), plan.features, plan.kind == "laplace"
    # the l2 sensitivity of a row
    reach = float(plan.sensitivity.max() / plan.weight.max()) / (math.sqrt(d) if laplace else 1.0)
    return max(reach / LONGEST, plan.deviation * math.sqrt(d * plan.rounds) / WANDER) / P
