"""What clients get without a worst case over them: each one alone, and all of them in equal parts.

    alone     w_j minimises F_j(w) + h(w):  client j's own model, judged by the risks of all clients
    mixture   w minimises sum_i F_i(w) / N + h(w)

"Ind_j" and "Mix_Even" of Jiao, Yang, Song, *Distributed distributionally robust optimization with non-convex
objectives*. The best model of one client is the one whose largest risk over all clients is least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.algorithms.federated.multiplier_method import MultiplierMethod
from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean
from quorate.problem.targets import classes_of
from quorate.problem.wasserstein import WassersteinBall
from quorate.solution import Solution, solve


@dataclass(frozen=True)
class Alone:
    """Every client's own model.

    Attributes
    ----------
    solutions : one for each client
    risks : (N, M): risks[j, i] is the risk of client j's model on client i of the federation that judges
    best : the client whose model has the least largest risk
    """

    solutions: tuple[Solution, ...]
    risks: Array
    best: int


def clients_alone(
    problem: Problem, fed: Federation, *, judge: Federation | None = None, algorithm: Any = None, **options: Any
) -> Alone:
    """Each client's model from its own rows, judged on all clients.

    Parameters
    ----------
    judge : the federation whose clients judge, such as held-out rows; None: ``fed``
    algorithm : None: ``MultiplierMethod()`` where it can be used, else the default of ``solve``
    options : of ``solve``, such as tol and seed
    """
    problem, fed = replace(problem, over_clients=Mean()), _with_classes(problem, fed)
    own = [(_of_client(problem, fed, i), fed.restrict([name])) for i, name in enumerate(fed.clients)]
    solutions = tuple(solve(p, rows, algorithm=algorithm or _usual(p, rows), **options) for p, rows in own)
    judge = fed if judge is None else judge._with(classes=fed.classes)
    risks = np.array([client_risks(problem, solution.w, judge) for solution in solutions])
    return Alone(solutions, risks, int(np.argmin(risks.max(1))))


def mixture(problem: Problem, fed: Federation, *, algorithm: Any = None, **options: Any) -> Solution:
    """The model of all clients in equal parts; parameters as in ``clients_alone``."""
    problem = replace(problem, over_clients=Mean())
    return solve(problem, fed, algorithm=algorithm or _usual(problem, fed), **options)


def client_risks(problem: Problem, w: Array, fed: Federation) -> Array:
    """F_i(w) of every client, (N,)."""
    concrete, fed = problem.at(fed)
    return np.concatenate([concrete.client_risks(np.asarray(w, float), fed.block(i)) for i in range(fed.n_clients)])


def _with_classes(problem: Problem, fed: Federation) -> Federation:
    """The federation with the classes of all clients declared: one client may not have them all."""
    return fed if problem.loss.targets == "real" else fed._with(classes=np.asarray(classes_of(fed)))


def _of_client(problem: Problem, fed: Federation, i: int) -> Problem:
    """The problem of client i alone: its own radius."""
    ball = problem.at(fed)[0].over_samples
    if not isinstance(ball, WassersteinBall):
        return problem
    return replace(problem, over_samples=replace(problem.over_samples, radius=float(np.asarray(ball.radius)[i])))


def _usual(problem: Problem, fed: Federation) -> Any:
    try:
        MultiplierMethod().admit(*problem.at(fed))
    except ValueError:
        return None
    return MultiplierMethod()
