"""The algorithm of `bonafed.solve` where none is named: the first that takes the problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from bonafed.algorithms.alternatives import check_requirements, taking
from bonafed.algorithms.federated.async_dro import AsyncDRO
from bonafed.algorithms.federated.bundle.async_bundle import AsyncBundle
from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.interior_point import InteriorPoint
from bonafed.algorithms.federated.multiplier_method import MultiplierMethod
from bonafed.algorithms.federated.private_newton import PrivateNewton, matrix_error
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL
from bonafed.algorithms.federated.rank_rows import RankBundle, RankInteriorPoint
from bonafed.algorithms.method import Method
from bonafed.algorithms.pooled.rank_admm import RankADMM
from bonafed.algorithms.requirements import Setting
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.privacy.accounting import noise_for
from bonafed.problem.metadata import Metadata
from bonafed.problem.problem import Problem
from bonafed.problem.requirements import only_constrained
from bonafed.solution.configure import setting_of

READABLE = 0.5  # the error of a matrix, `matrix_error`, up to which Newton steps are the default
SMALL = 500  # coefficients up to which second-order steps are the default
FEW = 100  # clients up to which the server solves a program for every answer by default


def default_algorithm(
    problem: Problem, fed: Federation | Metadata, engine: Engine | None = None
) -> Method:
    """The first algorithm, in the order of ``preferred``, whose requirements the problem meets.

    Raises
    ------
    RefusedError
        where no algorithm of bonafed takes the problem
    """
    setting, D = setting_of(fed, engine), problem.predictor.dimension(fed.n_features)
    if problem.privacy is not None:
        return choose(problem, setting, methods=private_methods(problem, fed, setting, D))
    return choose(problem, setting, D)


def choose(
    problem: Problem,
    setting: Setting,
    dimension: int = 1,
    methods: Iterable[Method] | None = None,
) -> Method:
    """The same for a problem of D = ``dimension`` coefficients in a setting, among ``methods`` if
    they are given.
    """
    first = None
    for algorithm in methods or preferred(problem, setting, dimension):
        if first is None or (setting.secure_sum and first.requirements.with_sums is None):
            first = algorithm  # what is refused in words: with secure sums a method that has them
        name = type(algorithm).__name__
        if algorithm.requirements.refusal(name, problem, setting) is None:
            return algorithm
    if others := taking(problem, setting):
        return others[0]()
    assert first is not None
    check_requirements(first, problem, setting)
    raise AssertionError("an algorithm that takes the problem was passed over")


def preferred(problem: Problem, setting: Setting, dimension: int) -> Iterator[Method]:
    """The algorithms that prove most, or come to the end soonest, on problems of a kind.

    ``PrivateSGD`` keeps a privacy budget. With constraints it is ``InteriorPoint`` up to 500
    coefficients, ``Bundle`` for what else is convex, and first ``ProximalAL`` beyond.
    ``RankInteriorPoint`` ranks the rows of all clients, ``Bundle`` where there are constraints,
    ``RankADMM`` those of one client. ``Bundle`` proves a gap for convex problems, and so does
    ``AsyncBundle`` where answers come at different times, for up to 500 coefficients and 100
    clients. ``AsyncDRO`` is for more, and where nothing can be proved; ``MultiplierMethod`` takes
    smooth problems with any convex regulariser.
    """
    if problem.privacy is not None:
        yield PrivateSGD()
        return
    if only_constrained(problem):
        if problem.over_rows is not None:
            yield Bundle()
        if dimension > SMALL:
            yield ProximalAL()
        yield from (InteriorPoint(), Bundle(), ProximalAL())
        return
    if problem.over_rows is not None:
        yield from (RankInteriorPoint(), RankBundle())
    if setting.n_clients == 1 and _is_identity(problem):
        yield RankADMM()
    few = dimension <= SMALL and setting.n_clients <= FEW
    if setting.asynchronous and problem.convex and few:
        yield AsyncBundle()
    if setting.asynchronous or not problem.convex:
        yield AsyncDRO()
    yield from (Bundle(), MultiplierMethod(), AsyncDRO())


def private_methods(
    problem: Problem, fed: Federation | Metadata, setting: Setting, dimension: int
) -> Iterator[Method]:
    """The methods for a problem with a budget, from public numbers only (docs/private.md,
    "Gradient descent").

    Where the schema makes rows of length 1, ``PrivateSGD`` knows it. Where noise also leaves the
    matrix of curvature readable, eight rounds of ``PrivateNewton`` are as accurate as its hundred.
    """
    budget, schema, newton = problem.privacy, getattr(fed, "schema", None), PrivateNewton(bound=1.0)
    unit_rows = schema is not None and schema.unit
    takes = newton.requirements.refusal("PrivateNewton", problem, setting) is None
    if takes and unit_rows and budget is not None and budget.view == "answers":
        # of all who are declared: else somebody's only row would tell by which method it is fitted
        declared = budget.sizes if isinstance(budget.sizes, Mapping) else None
        sizes = [*declared.values()] if declared else budget.sizes_of(fed.clients, fed.sizes)
        noise = noise_for(budget, 1) * budget.spread * len(sizes) ** 0.5 / sum(sizes)
        if matrix_error(noise, dimension) <= READABLE:
            yield newton
    yield PrivateSGD(bound=1.0 if unit_rows else None)


def _is_identity(problem: Problem) -> bool:
    """Whether the risk over clients of one client is that client's own."""
    risk = problem.over_clients
    return all(risk.value(np.array([value])) == value for value in (1.0, 2.0))


def second_order(problem: Problem, fed: Federation) -> bool:
    """Whether ``InteriorPoint`` takes a concrete problem."""
    requirements = InteriorPoint.requirements
    return requirements.refusal("InteriorPoint", problem, setting_of(fed)) is None
