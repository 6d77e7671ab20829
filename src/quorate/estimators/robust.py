"""Distributionally robust linear models over several clients, as scikit-learn estimators.

    minimise over w, b:  max_{q in Q} sum_s q_s R_s(w, b) + h(w)

R_s(w, b) is the worst expected loss over all distributions within ``radius`` (a Wasserstein
distance) of the rows of client s, Q the client weights within ``client_radius`` of
``prior``. Bai, Wong, Qiao, Ho, *Distributionally robust federated learning: an ADMM algorithm*,
(3); here an intercept b is added, free of every norm.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from quorate.algorithms.method import Method
from quorate.arrays import Array, Features
from quorate.data.federation import Federation
from quorate.engines.engine import Engine
from quorate.estimators.base import (
    Classifier,
    FederatedModel,
    Regressor,
    Seed,
    TrivialModelWarning,
)
from quorate.estimators.rows import Groups, Rows, centred, check_rows, present
from quorate.problem.losses import Hinge, Huber, Loss
from quorate.problem.problem import Problem
from quorate.problem.regularisers import Regulariser
from quorate.problem.risks.inputs import PerClient
from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.risks.risk import Prior, Risk
from quorate.problem.wasserstein.ball import Support, WassersteinBall
from quorate.solution.default_radius import default_radius
from quorate.solution.solution import Solution


class _RobustModel(FederatedModel):
    """The parameters of a problem with a Wasserstein ball per client, and that problem."""

    default_label_cost: ClassVar[float]
    prior: Prior
    radius_: Array

    def __init__(
        self,
        loss: Loss | None = None,
        *,
        radius: PerClient | Literal["auto"] = 0.05,
        label_cost: float | None = None,
        norm: str = "l1",
        support: Support | None = None,
        clip: bool = False,
        client_radius: float = 0.1,
        client_p: float = 2.0,
        prior: Prior = "size",
        over_clients: Risk | None = None,
        regulariser: Regulariser | None = None,
        fit_intercept: bool = True,
        algorithm: Method | None = None,
        engine: Engine | None = None,
        tol: float = 1e-6,
        max_rounds: int | None = None,
        warm_start: bool = False,
        random_state: Seed = 0,
    ) -> None:
        self.loss = loss
        self.radius = radius
        self.label_cost = label_cost
        self.norm = norm
        self.support = support
        self.clip = clip
        self.client_radius = client_radius
        self.client_p = client_p
        self.prior = prior
        self.over_clients = over_clients
        self.regulariser = regulariser
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.engine = engine
        self.tol = tol
        self.max_rounds = max_rounds
        self.warm_start = warm_start
        self.random_state = random_state

    def _problem(self, fed: Federation) -> Problem:
        clients = self.over_clients
        if clients is None:
            clients = LpBall(self.client_radius, self.client_p, self.prior)
        cost = self.default_label_cost if self.label_cost is None else self.label_cost
        ball = WassersteinBall(0.0, cost, self.norm, self.support, self.clip)
        ball = replace(ball, radius=self._radius(ball, fed))
        over = centred(clients, fed)
        return Problem(self._loss(), self._linear(), ball, over, self._regulariser())

    def _radius(self, ball: WassersteinBall, fed: Federation) -> PerClient:
        """The radius as stated, or by client where it is "auto" or a mapping by client name."""
        if not isinstance(self.radius, str):
            return present(self.radius, fed, "radius")
        if self.radius != "auto":
            raise ValueError(
                f"radius must be numbers, a mapping by client, or 'auto', got {self.radius!r}."
            )
        return default_radius(fed, norm=ball.norm, label_cost=ball.label_cost, loss=self._loss())

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        super()._keep(solution, fed, rows)
        ball = solution.problem.at(fed)[0].over_samples
        self.radius_ = ball.radius
        if self.targets == "sign" and (ball.radius >= ball.label_cost / 2).all():
            warnings.warn(
                f"every radius is >= label_cost / 2 = {ball.label_cost / 2:g}, so the adversary may"
                " flip every label with probability 1/2 and the zero model is optimal. Lower radius"
                " or raise label_cost.",
                TrivialModelWarning,
                stacklevel=4,
            )


class RobustClassifier(Classifier, _RobustModel):
    """Linear classifier of two classes, robust to errors in every client's rows and to the client
    weights.

    Parameters
    ----------
    loss : a loss of the margin: ``Hinge()`` (None), ``SmoothHinge()`` or ``Logistic()``
    radius : Wasserstein radius of every client's ball: a number >= 0, one per client (in the order
        of their first appearance), a mapping by client name, or "auto"
        (`quorate.model_selection.default_radius`)
    label_cost : in (0, inf], cost of flipping a label, in units of ``norm``; None is 1. At most
        radius / label_cost of a client's labels can flip; from 1/2 on the zero model is optimal
        (`TrivialModelWarning`)
    norm : "l1", "l2" or "linf", the norm of a move of the features
    support : None (features may move anywhere), ``BoxSupport(lower, upper)`` or
        ``PolytopeSupport(C, d)``
    clip : move rows outside the support to its nearest point instead of refusing them
    client_radius : >= 0, how far the clients' weights may be from ``prior`` in the norm
        ``client_p``; 0: fixed weights
    client_p : in [1, inf]
    prior : "size", "uniform", weights that sum to one, or a mapping by client name
    over_clients : a risk over clients such as ``Simplex()``, instead of the ball of the three
        parameters above
    regulariser : h of the coefficients; None is ``L2(1e-4)``: small, and enough for a proven lower
        bound at any radius
    fit_intercept : add an intercept, unpenalised and outside every norm
    algorithm, engine, max_rounds : as in `quorate.solve`
    tol : relative gap between value and proven bound at which to stop
    warm_start : start from the coefficients of the last fit
    random_state : seed of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the two labels, sorted; the second is the positive one
    coef_, intercept_ : (1, d) and (1,)
    clients_ : (N,) names of the clients, in the order of first appearance
    client_weights_ : (N,) the worst client weights at the model
    client_scores_ : by client name, the accuracy on its training rows
    radius_ : (N,) the radii used
    certificate_ : value, proven lower bound, gap
    history_, n_iter_ : one row a round; the number of rounds
    solution_ : the solution of the problem, with ``notes`` on clients and radii

    Notes
    -----
    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes
    them on. Clients with one class are allowed. A ``sample_weight`` equals repeating rows (but see
    `default_radius`). Scale the features: ``radius`` is in their units.

    Examples
    --------
    >>> model = RobustClassifier(radius=0.02, client_radius=0.2).fit(X, y, groups=hospital)  #
    doctest: +SKIP
    """

    default_loss: ClassVar[Loss] = Hinge()
    losses_to_use: ClassVar[str] = "Hinge(), SmoothHinge() or Logistic()"
    default_label_cost: ClassVar[float] = 1.0

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        *,
        groups: Groups | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to rows, labels and the client of each row.

        Parameters
        ----------
        X : (n, d) array or sparse matrix
        y : (n,) labels of two classes
        groups : (n,) client of each row; without it all rows are one client, and
            `MissingGroupsWarning` is issued
        sample_weight : (n,) weights >= 0; a row of weight 0 is as good as absent

        Raises
        ------
        ValueError
            other than two classes, a loss of residuals, values that are not finite, radii or priors
            that do not fit
        """
        return self._fit(check_rows(self, X, y, groups, sample_weight))


class RobustRegressor(Regressor, _RobustModel):
    """Linear regression, robust to errors in every client's rows and to the client weights.

    Parameters and attributes are those of `RobustClassifier`, except:

    Parameters
    ----------
    loss : a Lipschitz loss of the residual, in units of y: ``Huber()`` (None),
        ``EpsilonInsensitive()``, ``Absolute()``, ``Quantile()``; ``Squared()`` with radius=0 only
    label_cost : in (0, inf], cost of moving a target by one unit, in units of ``norm``; None is
        inf (targets stay). With a finite one the radius plays no part until ||coef_||_* exceeds 1 /
        label_cost (the dual norm)

    Attributes
    ----------
    coef_, intercept_ : (d,) and a number
    client_scores_ : by client name, the mean absolute error on its training rows
    """

    default_loss: ClassVar[Loss] = Huber()
    losses_to_use: ClassVar[str] = "Huber(), EpsilonInsensitive() or Quantile()"
    default_label_cost: ClassVar[float] = np.inf

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        *,
        groups: Groups | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to rows, targets (n,) and the client of each row; otherwise as
        `RobustClassifier.fit`.
        """
        return self._fit(check_rows(self, X, y, groups, sample_weight, y_numeric=True))
