"""The algorithm of `quorate.solve` where none is named."""

from __future__ import annotations

from typing import Any

import numpy as np

from quorate.algorithms.federated.async_dro import AsyncDRO
from quorate.algorithms.federated.bundle import Bundle
from quorate.algorithms.federated.interior_point import InteriorPoint
from quorate.algorithms.pooled.rank_admm import RankADMM
from quorate.data.federation import Federation
from quorate.engines.replay import Replay
from quorate.engines.virtual_clock import VirtualClock
from quorate.problem.predictors import Linear, is_affine
from quorate.problem.problem import Problem
from quorate.problem.ranked import has_rank_coordinate
from quorate.problem.risks.mean import Mean
from quorate.problem.risks.ranks import by_rank
from quorate.problem.shape import only_constrained

SMALL = 500  # coefficients up to which second-order steps are the default


def default_algorithm(problem: Problem, fed: Federation, engine: Any = None) -> Any:
    """``InteriorPoint`` or, where it cannot be used, ``ProximalAL`` with constraints; else ``AsyncDRO`` or ``Bundle``.

    ``RankADMM`` is for the rows of one client under a mean or a risk by rank; ``AsyncDRO`` for smooth losses where the
    problem is not convex or the engine lets clients answer at different times.
    """
    if problem.privacy is not None:
        from quorate.algorithms.federated.private_admm import PrivateADMM

        return PrivateADMM()
    if only_constrained(problem):
        from quorate.algorithms.federated.proximal_al import ProximalAL

        second = second_order(problem, fed) and problem.predictor.dimension(fed.n_features) <= SMALL
        return InteriorPoint() if second else ProximalAL()
    if fed.n_clients == 1 and (isinstance(problem.over_samples, Mean) or by_rank(problem.over_samples)):
        alike = float(np.ptp(fed.share(0))) <= 1e-12 and isinstance(problem.predictor, Linear)
        same = all(problem.over_clients.value(np.array([v])) == v for v in (1.0, 2.0))
        if alike and same and has_rank_coordinate(problem.loss):
            return RankADMM()
    smooth = problem.loss.smooth and isinstance(problem.over_samples, Mean)
    if smooth and (not problem.convex or isinstance(engine, VirtualClock | Replay)):
        return AsyncDRO()
    if not is_affine(problem.predictor):
        raise ValueError(
            f"for {problem.predictor!r} the default algorithm needs a smooth loss such as Logistic() or Multinomial() "
            f"and over_samples = Mean(), got {problem.loss!r} and {problem.over_samples!r}. AFL() takes any loss; on "
            "one client SGD() and LSVRG() do, too."
        )
    return Bundle()


def second_order(problem: Problem, fed: Federation) -> bool:
    """Whether ``InteriorPoint`` takes a concrete problem: it has second derivatives, h is linear or quadratic."""
    try:
        InteriorPoint().admit(problem, fed)
    except ValueError:
        return False
    return True
