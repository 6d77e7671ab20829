"""Reference models without a worst case over clients: each client by itself, and their even
mixture.

    only    w_j minimises F_j(w) + h(w): the model of client j, judged by the risks of all clients
    mixture  w minimises sum_i F_i(w) / N + h(w)

"Ind_j" and "Mix_Even" of Jiao, Yang, Song, *Distributed distributionally robust optimization with
non-convex objectives*. The best model of one client is the one whose largest risk over all clients
is least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array


class Options(TypedDict, total=False):
    """Options of ``solve`` that are passed on."""

    tol: float
    max_rounds: int


@dataclass(frozen=True)
class Alone:
    """The model of every client by itself, with its risks on all clients.

    Attributes
    ----------
    solutions : one for each client
    risks : (N, M): risks[j, i] is the risk of client j's model on client i of the federation that
        judges
    best : the client whose model has the least largest risk
    """

    solutions: tuple[bf.Solution, ...]
    risks: Array
    best: int


def clients_alone(
    problem: bf.Problem,
    fed: bf.Federation,
    *,
    judge: bf.Federation | None = None,
    algorithm: ext.Method | None = None,
    **options: Unpack[Options],
) -> Alone:
    """Each client's model from its own rows, judged on all clients.

    Parameters
    ----------
    judge : the federation of the rows to judge by, such as held-out rows; None takes ``fed``
    algorithm : None takes ``MultiplierMethod()`` where it applies, else the default of ``solve``
    options : of ``solve``
    """
    problem = replace(problem, over_clients=bf.Mean())
    if problem.loss.targets != "real":  # one client may lack some of the classes
        fed = fed._with(classes=np.asarray(ext.classes_of(fed)))
    solutions = tuple(
        mixture(_of_client(problem, fed, i), fed.restrict(name), algorithm=algorithm, **options)
        for i, name in enumerate(fed.clients)
    )
    judge = fed if judge is None else judge._with(classes=fed.classes)
    risks = np.array([client_risks(problem, solution.w, judge) for solution in solutions])
    return Alone(solutions, risks, int(np.argmin(risks.max(1))))


def mixture(
    problem: bf.Problem,
    fed: bf.Federation,
    *,
    algorithm: ext.Method | None = None,
    **options: Unpack[Options],
) -> bf.Solution:
    """The model that minimises the mean risk of all clients; parameters as in ``clients_alone``."""
    problem = replace(problem, over_clients=bf.Mean())
    if algorithm is None:
        concrete, _ = problem.at(fed)
        refusal = bf.MultiplierMethod.requirements.refusal("", concrete, ext.Setting(fed.n_clients))
        algorithm = bf.MultiplierMethod() if refusal is None else None
    return ext.fit(problem, fed, algorithm=algorithm, **options)


def client_risks(problem: bf.Problem, w: Array, fed: bf.Federation) -> Array:
    """F_i(w) of every client, (N,)."""
    concrete, fed = problem.at(fed)
    return np.concatenate(
        [concrete.client_risks(np.asarray(w, float), fed.block(i)) for i in range(fed.n_clients)]
    )


def _of_client(problem: bf.Problem, fed: bf.Federation, i: int) -> bf.Problem:
    """The problem of client i by itself, with its radius."""
    ball = problem.at(fed)[0].over_samples
    if not isinstance(ball, bf.WassersteinBall):
        return problem
    radius = float(np.asarray(ball.radius)[i])
    return replace(problem, over_samples=replace(problem.over_samples, radius=radius))
