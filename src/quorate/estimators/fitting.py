"""What is fitted: rows into a federation, plain parameters into a problem, a solution into attributes.

    minimise over w, b:  max_{q in Q} sum_s q_s R_s(w, b) + h(w),  Q = {q in simplex: ||q - prior||_p <= client_radius}

with R_s the worst loss in a Wasserstein ball of ``radius`` round the rows of client s (Bai, Wong, Qiao, Ho,
*Distributionally robust federated learning*, (3)); the intercept b is free of every norm.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.problem.losses import Loss
from quorate.problem.predictors import Linear
from quorate.problem.problem import Problem
from quorate.problem.regularisers import L2
from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.risks.risk import resolve_prior
from quorate.problem.wasserstein import WassersteinBall
from quorate.rounds import Stop

DEFAULT_L2 = 1e-4


class MissingGroupsWarning(UserWarning):
    """``fit`` got no ``groups``, so all rows were taken as one client and nothing is robust over clients."""


class TrivialModelWarning(UserWarning):
    """Zero coefficients are optimal: the radii are so large, or the risk looks at so few rows, that no others help."""


@dataclass(frozen=True)
class Rows:
    """Checked input of ``fit``: the rows with a positive weight."""

    X: Any  # (n, d) float64, dense in C order or CSR
    y: NDArray[Any]  # (n,)
    groups: list[Any]
    sample_weight: Array | None  # (n,), > 0
    kept: Any = field(default_factory=lambda: slice(None))  # which of the rows given these are


def check_rows(
    estimator: Any,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    *,
    alone: str = "the model is robust within the pooled rows only",
    **options: Any,
) -> Rows:
    """Validate as scikit-learn does; rows of weight 0 are left out, so that they equal absent rows.

    ``alone`` says what a fit without groups is, ``options`` are of ``validate_data``.
    """
    X, y = arrays(estimator, X, y, **options)
    if groups is None:
        warnings.warn(
            f"fit got no groups, so all rows are one client: {alone}. Pass "
            "groups=<client of each row>. Inside a Pipeline, GridSearchCV or cross_validate groups arrive only after "
            "sklearn.set_config(enable_metadata_routing=True); quorate.model_selection.cross_validate does it for you.",
            MissingGroupsWarning,
            stacklevel=3,
        )
        groups = ["all"] * X.shape[0]
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(f"groups must have shape ({X.shape[0]},), one client per row, got {groups.shape}.")
    groups = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(groups) != X.shape[0]:
        raise ValueError(f"groups must have one entry for each of the {X.shape[0]} rows of X, got {len(groups)}.")
    if sample_weight is None:
        return Rows(X, y, groups, None)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weight > 0)
    if len(kept) == 0:
        raise ValueError("sample_weight is zero for every row: give at least one row a positive weight.")
    return Rows(X[kept], y[kept], [groups[i] for i in kept], weight[kept], kept)


def arrays(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, NDArray[Any]]:
    """X (n, d) float64, dense in C order or CSR, and y (n,), validated as scikit-learn does."""
    checked: Any = validate_data(estimator, X, y, accept_sparse="csr", dtype=np.float64, order="C", **options)
    return checked


def as_given(rows: Rows, y: NDArray[Any], classes: Any = None) -> Federation:
    """One client per group, one row per row; y (n,) are the coded targets."""
    return Federation.from_arrays(rows.X, y, rows.groups, sample_weight=rows.sample_weight, classes=classes)


def merged(fed: Federation) -> Federation:
    """Equal rows of a client as one row of their total weight, in an order that depends on the rows alone.

    So a row of weight 2 and a row given twice lead to the same numbers bit for bit, and so do rows in another order.
    Equal are rows with the same features, target and further columns.
    """
    picks = [_distinct(fed, i) for i in range(fed.n_clients)]
    return Federation(
        fed.clients,
        tuple(x[rows] for x, (rows, _) in zip(fed.X, picks, strict=True)),
        tuple(y[rows] for y, (rows, _) in zip(fed.y, picks, strict=True)),
        sample_weight=tuple(weight for _, weight in picks),
        classes=fed.classes,
        feature_names=fed.feature_names,
        columns={
            name: tuple(part[rows] for part, (rows, _) in zip(parts, picks, strict=True))
            for name, parts in (fed.columns or {}).items()
        },
        server=fed.server,
    )


def _distinct(fed: Federation, i: int) -> tuple[NDArray[np.intp], Array]:
    """One row of client i for all that equal it, and their total weight."""
    X, y = fed.rows(i)
    weight = np.ones(len(y)) if fed.sample_weight is None else fed.sample_weight[i]
    kind = _kinds([y, *[parts[i] for parts in (fed.columns or {}).values()]])
    order, key = by_value(X, kind)
    near = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(kind[order]) == 0))  # neighbours that may be equal rows
    gap = X[order[near]] - X[order[near + 1]]
    equal = near[np.asarray(abs(gap).sum(1)).ravel() == 0]
    first = np.setdiff1d(np.arange(len(y)), equal + 1)
    return order[first], np.add.reduceat(weight[order], first)


def _kinds(parts: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """(n,) numbers that are equal where rows agree in all parts, ascending with the values."""
    code = np.zeros(len(parts[0]), np.intp)
    for part in parts:
        values, own = np.unique(part, return_inverse=True)
        code = np.unique(code * len(values) + own, return_inverse=True)[1]
    return code


def by_value(X: Any, y: NDArray[Any]) -> tuple[NDArray[np.intp], Array]:
    """(order, key), both (n,): an order that depends on the rows alone, and the number of each row that is sorted."""
    key = _key(X)
    return np.lexsort((y, key)), key


def _key(X: Any, rows: int = 4096) -> Array:
    """A projection of every row that depends on its values alone: not on its place, as a BLAS product may."""
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    if not isinstance(X, np.ndarray):
        return np.asarray(X @ direction)
    return np.concatenate([(X[i : i + rows] * direction).sum(1) for i in range(0, len(X), rows)])


def problem_of(estimator: Any, loss: Loss, fed: Federation, label_cost: float) -> Problem:
    """The estimator's parameters as a problem over this federation."""
    given = estimator.over_clients
    clients = LpBall(estimator.client_radius, estimator.client_p, estimator.prior) if given is None else given
    if getattr(clients, "prior", None) is not None:
        clients = replace(clients, prior=prior_of(clients.prior, fed))
    ball = WassersteinBall(0.0, label_cost, estimator.norm, estimator.support, estimator.clip)
    ball = replace(ball, radius=_radius(estimator.radius, ball, loss, fed))
    h = L2(DEFAULT_L2) if estimator.regulariser is None else estimator.regulariser
    return Problem(loss, Linear(bool(estimator.fit_intercept)), ball, clients, h)


def prior_of(prior: Any, fed: Federation) -> Array:
    """Weights of the clients present. "size" counts sample weights, so that weighing a row equals repeating it."""
    if isinstance(prior, Mapping):
        names = {str(name): float(weight) for name, weight in prior.items()}
        resolve_prior(list(names.values()), np.ones(len(names)))
        missing = [name for name in fed.clients if name not in names]
        total = sum(names.get(name, 0.0) for name in fed.clients)
        if missing or not total > 0:
            raise ValueError(f"prior has no positive weight for the clients {missing or list(fed.clients)}: add them.")
        return np.array([names[name] / total for name in fed.clients])
    mass = fed.sizes.astype(float) if fed.sample_weight is None else np.array([v.sum() for v in fed.sample_weight])
    return resolve_prior(prior, mass, fed.clients)


def _radius(radius: Any, ball: WassersteinBall, loss: Loss, fed: Federation) -> Any:
    """Numbers for "auto"; a mapping may name more clients than are present (folds by client)."""
    if isinstance(radius, str):
        if radius != "auto":
            raise ValueError(f"radius must be numbers, a mapping by client, or 'auto', got {radius!r}.")
        from quorate.model_selection import default_radius

        return default_radius(fed, norm=ball.norm, label_cost=ball.label_cost, loss=loss)
    if isinstance(radius, Mapping):
        names = {str(name): value for name, value in radius.items()}
        return {name: names[name] for name in fed.clients if name in names}
    return radius


def fit_linear(estimator: Any, fed: Federation, loss: Loss, label_cost: float) -> Array:
    """Solve, store what every robust estimator stores, and return w with the intercept last (0 without one)."""
    problem = problem_of(estimator, loss, fed, label_cost)
    ball = problem.at(fed)[0].over_samples
    _warn_if_trivial(loss, ball)
    w = solved(estimator, problem, merged(fed))
    solution = estimator.solution_
    table = [{**row, "n": int(n)} for row, n in zip(solution.clients, fed.sizes, strict=True)]
    estimator.solution_ = replace(solution, clients=table)
    estimator.clients_ = np.array(fed.clients)
    estimator.client_weights_ = np.asarray(solution.certificate.weights)
    estimator.radius_ = ball.radius
    return w


def solved(
    estimator: Any, problem: Problem, fed: Federation, default: Any = None, engine: Any = None, start: Any = None
) -> Array:
    """Solve by the estimator's parameters, store what every estimator stores; w with the intercept last (0 without).

    ``default`` is the algorithm where the estimator names none; None: that of ``solve``. ``engine`` and ``start`` are
    used instead of the estimator's where they are given.
    """
    from quorate.solution import solve

    seed = estimator.random_state
    solution = solve(
        problem,
        fed,
        algorithm=default if estimator.algorithm is None else estimator.algorithm,
        engine=estimator.engine if engine is None else engine,
        tol=estimator.tol,
        max_rounds=estimator.max_rounds,
        seed=int(seed if isinstance(seed, int | np.integer) else check_random_state(seed).randint(2**31)),
        start=_start(estimator, problem, fed) if start is None else start,
    )
    if solution.outcome.stop in (Stop.MAX_ROUNDS, Stop.STALLED):
        warnings.warn(solution.outcome.text, ConvergenceWarning, stacklevel=4)
    estimator.solution_ = solution
    estimator.loss_ = problem.loss
    estimator.certificate_ = solution.certificate
    estimator.history_ = solution.history
    estimator.n_iter_ = solution.rounds
    return solution.w if problem.predictor.intercept else np.append(solution.w, 0.0)


def _start(estimator: Any, problem: Problem, fed: Federation) -> Array | None:
    """The model of the last fit, where ``warm_start`` asks for it and it has the right size."""
    if not estimator.warm_start or not hasattr(estimator, "coef_") or estimator.coef_.size != fed.n_features:
        return None
    w = np.append(estimator.coef_.ravel(), estimator.intercept_)
    return w if problem.predictor.intercept else w[:-1]


def _warn_if_trivial(loss: Loss, ball: WassersteinBall) -> None:
    """radius >= label_cost / 2 for every client lets the adversary flip labels with probability 1/2."""
    if loss.targets == "sign" and (np.asarray(ball.radius) >= ball.label_cost / 2).all():
        warnings.warn(
            f"every radius is >= label_cost / 2 = {ball.label_cost / 2:g}, so the adversary may flip every label with "
            "probability 1/2 and the zero model is optimal. Lower radius or raise label_cost.",
            TrivialModelWarning,
            stacklevel=4,
        )
