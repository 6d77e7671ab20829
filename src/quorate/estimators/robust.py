"""Distributionally robust linear models over several clients, as scikit-learn estimators.

    minimise over w, b:  max_{q in Q} sum_s q_s R_s(w, b) + h(w)

R_s(w, b) is the worst expected loss over all distributions within ``radius`` (a Wasserstein distance) of the rows of
client s, Q the weightings of the clients within ``client_radius`` of ``prior``. Bai, Wong, Qiao, Ho, *Distributionally
robust federated learning: an ADMM algorithm*, (3); here an intercept b is added, free of every norm.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quorate.estimators.fitting import as_given, check_rows, fit_linear
from quorate.estimators.linear import LinearModel, RealTargets, TwoClasses
from quorate.problem.losses import Hinge, Huber, Loss


class _RobustLinear(LinearModel):
    """What classifier and regressor have in common: parameters, the client table."""

    client_scores_: dict[str, dict[str, float]]
    solution_: Any

    def __init__(
        self,
        loss: Loss | None = None,
        *,
        radius: Any = 0.05,
        label_cost: float | None = None,
        norm: str = "l1",
        support: Any = None,
        clip: bool = False,
        client_radius: float = 0.1,
        client_p: float = 2.0,
        prior: Any = "size",
        over_clients: Any = None,
        regulariser: Any = None,
        fit_intercept: bool = True,
        algorithm: Any = None,
        engine: Any = None,
        tol: float = 1e-6,
        max_rounds: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
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

    def client_report(self) -> list[dict[str, Any]]:
        """One row per client: n, loss, worst_loss, weight, flips, shift, active, and the score on its training rows.

        The score is the accuracy of a classifier, the mean absolute error of a regressor.
        """
        check_is_fitted(self)
        return [{**row, **self.client_scores_[str(row["client"])]} for row in self.solution_.clients]


class RobustClassifier(TwoClasses, _RobustLinear):
    """Linear classifier of two classes, robust to errors in every client's rows and to the mix of the clients.

    Parameters
    ----------
    loss : a loss of the margin: ``Hinge()`` (None), ``SmoothHinge()`` or ``Logistic()``
    radius : Wasserstein radius of every client's ball: a number >= 0, one per client (in the order of their first
        appearance), a mapping by client name, or "auto" (`quorate.model_selection.default_radius`)
    label_cost : in (0, inf], price of flipping a label, in units of ``norm``; None is 1. At most radius / label_cost of
        a client's labels can flip; from 1/2 on the zero model is optimal (`TrivialModelWarning`)
    norm : "l1", "l2" or "linf", the norm of a move of the features
    support : None (features may move anywhere), ``BoxSupport(lower, upper)`` or ``PolytopeSupport(C, d)``
    clip : move rows outside the support to its nearest point instead of refusing them
    client_radius : >= 0, how far the clients' weights may be from ``prior`` in the norm ``client_p``; 0: a fixed mix
    client_p : in [1, inf]
    prior : "size", "uniform", weights that sum to one, or a mapping by client name
    over_clients : a risk over clients such as ``Simplex()``, instead of the ball given by the three parameters above
    regulariser : h of the coefficients; None is ``L2(1e-4)``: small, and enough for a proven lower bound at any radius
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
    client_weights_ : (N,) the worst weighting of the clients at the model
    client_scores_ : by client name, the accuracy on its training rows
    radius_ : (N,) the radii used
    certificate_ : value, proven lower bound, gap
    history_, n_iter_ : one row a round; the number of rounds
    solution_ : the solution of the problem, with ``notes`` on clients and radii

    Notes
    -----
    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes them on. Clients
    with one class are allowed. A ``sample_weight`` equals repeating rows (but see `default_radius`). Scale the
    features: ``radius`` is in their units.

    Examples
    --------
    >>> model = RobustClassifier(radius=0.02, client_radius=0.2).fit(X, y, groups=hospital)  # doctest: +SKIP
    """

    default_loss: ClassVar[Any] = Hinge()
    losses_to_use: ClassVar[str] = "Hinge(), SmoothHinge() or Logistic()"

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows, labels and the client of each row.

        Parameters
        ----------
        X : (n, d) array or sparse matrix
        y : (n,) labels of two classes
        groups : (n,) client of each row; without it all rows are one client, and `MissingGroupsWarning` is issued
        sample_weight : (n,) weights >= 0; a row of weight 0 is as good as absent

        Raises
        ------
        ValueError
            other than two classes, a loss of residuals, values that are not finite, radii or priors that do not fit
        """
        loss = self._loss()
        rows = check_rows(self, X, y, groups, sample_weight)
        fed = as_given(rows, self._code(rows.y), classes=(-1, 1))
        w = fit_linear(self, fed, loss, 1.0 if self.label_cost is None else self.label_cost)
        self._set(w)
        right = {
            name: (x @ w[:-1] + w[-1] > 0) == (t > 0) for name, x, t in zip(fed.clients, fed.X, fed.y, strict=True)
        }
        self.client_scores_ = {name: {"accuracy": float(fed.share(i) @ r)} for i, (name, r) in enumerate(right.items())}
        return self


class RobustRegressor(RealTargets, _RobustLinear):
    """Linear regression, robust to errors in every client's rows and to the mix of the clients.

    Parameters and attributes are those of `RobustClassifier`, except:

    Parameters
    ----------
    loss : a Lipschitz loss of the residual, in units of y: ``Huber()`` (None), ``EpsilonInsensitive()``,
        ``Absolute()``, ``Quantile()``; ``Squared()`` with radius=0 only
    label_cost : in (0, inf], price of moving a target by one unit, in units of ``norm``; None is inf (targets stay).
        With a finite one the radius plays no part until ||coef_||_* exceeds 1 / label_cost (the dual norm)

    Attributes
    ----------
    coef_, intercept_ : (d,) and a number
    client_scores_ : by client name, the mean absolute error on its training rows
    """

    default_loss: ClassVar[Any] = Huber()
    losses_to_use: ClassVar[str] = "Huber(), EpsilonInsensitive() or Quantile()"

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows, targets (n,) and the client of each row; otherwise as `RobustClassifier.fit`."""
        loss = self._loss()
        rows = check_rows(self, X, y, groups, sample_weight, y_numeric=True)
        fed = as_given(rows, np.asarray(rows.y, float))
        w = fit_linear(self, fed, loss, np.inf if self.label_cost is None else self.label_cost)
        self._set(w)
        off = {name: np.abs(x @ w[:-1] + w[-1] - t) for name, x, t in zip(fed.clients, fed.X, fed.y, strict=True)}
        self.client_scores_ = {name: {"mae": float(fed.share(i) @ u)} for i, (name, u) in enumerate(off.items())}
        return self
