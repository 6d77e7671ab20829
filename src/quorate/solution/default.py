"""The algorithm of `quorate.solve` where none is named: the first that takes the problem."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quorate.algorithms.alternatives import check_requirements, taking
from quorate.algorithms.comparators.multiplier_method import MultiplierMethod
from quorate.algorithms.federated.async_dro.async_dro import AsyncDRO
from quorate.algorithms.federated.bundle import Bundle
from quorate.algorithms.federated.interior_point.interior_point import InteriorPoint
from quorate.algorithms.federated.private_sgd import PrivateSGD
from quorate.algorithms.federated.proximal_al.proximal_al import ProximalAL
from quorate.algorithms.method import Method
from quorate.algorithms.pooled.rank.rank_admm import RankADMM
from quorate.algorithms.requirements import Setting
from quorate.data.federation import Federation
from quorate.engines.engine import Engine
from quorate.problem.metadata import Metadata
from quorate.problem.problem import Problem
from quorate.problem.requirements import only_constrained
from quorate.solution.configure import setting_of

SMALL = 500  # coefficients up to which second-order steps are the default


def default_algorithm(
    problem: Problem, fed: Federation | Metadata, engine: Engine | None = None
) -> Method:
    """The first algorithm, in the order of ``preferred``, whose requirements the problem meets.

    Raises
    ------
    RefusedError
        where no algorithm of quorate takes the problem
    """
    setting, D = setting_of(fed, engine), problem.predictor.dimension(fed.n_features)
    schema = getattr(fed, "schema", None)
    return choose(problem, setting, D, schema is not None and schema.unit)


def choose(
    problem: Problem, setting: Setting, dimension: int = 1, unit_rows: bool = False
) -> Method:
    """The same for a problem of D = ``dimension`` coefficients in a setting."""
    first = None
    for algorithm in preferred(problem, setting, dimension, unit_rows):
        first = first or algorithm
        name = type(algorithm).__name__
        if algorithm.requirements.refusal(name, problem, setting) is None:
            return algorithm
    if others := taking(problem, setting):
        return others[0]()
    assert first is not None
    check_requirements(first, problem, setting)
    raise AssertionError("an algorithm that takes the problem was passed over")


def preferred(
    problem: Problem, setting: Setting, dimension: int, unit_rows: bool = False
) -> Iterator[Method]:
    """The algorithms that prove most, or come to the end soonest, on problems of a kind.

    ``PrivateSGD`` keeps a privacy budget, and knows the rows' length where the schema of the
    features makes it 1. With constraints it is ``InteriorPoint`` up to 500
    coefficients and ``ProximalAL`` beyond. ``RankADMM`` is for the rows of one client. ``AsyncDRO``
    comes first where nothing can be proved, or answers come at different times; ``Bundle`` proves a
    gap for convex problems, and ``MultiplierMethod`` takes smooth ones with any convex regulariser.
    """
    if problem.privacy is not None:
        yield PrivateSGD(bound=1.0 if unit_rows else None)
        return
    if only_constrained(problem):
        methods: list[Method] = [InteriorPoint(), ProximalAL()]
        yield from methods if dimension <= SMALL else methods[::-1]
        return
    if setting.n_clients == 1 and _is_identity(problem):
        yield RankADMM()
    if setting.asynchronous or not problem.convex:
        yield AsyncDRO()
    yield from (Bundle(), MultiplierMethod(), AsyncDRO())


def _is_identity(problem: Problem) -> bool:
    """Whether the risk over clients of one client is that client's own."""
    risk = problem.over_clients
    return all(risk.value(np.array([value])) == value for value in (1.0, 2.0))


def second_order(problem: Problem, fed: Federation) -> bool:
    """Whether ``InteriorPoint`` takes a concrete problem."""
    requirements = InteriorPoint.requirements
    return requirements.refusal("InteriorPoint", problem, setting_of(fed)) is None
