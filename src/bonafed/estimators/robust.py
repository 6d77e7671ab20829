"""Distributionally robust linear models over several clients, as scikit-learn estimators.

    minimise over w, b:  max_{q in Q} sum_s q_s R_s(w, b) + h(w)

R_s(w, b) is the worst expected loss over all distributions within ``radius`` (a Wasserstein
distance) of the rows of client s, Q the client weights within ``client_radius`` of
``prior``. Bai, Wong, Qiao, Ho, *Distributionally robust federated learning: an ADMM algorithm*,
(3); here an intercept b is added, free of every norm.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array, Features, Label, is_number
from bonafed.data.federation import Federation
from bonafed.estimators.base import Classifier, ClassWeight, FederatedModel, Regressor
from bonafed.estimators.rows import Groups, Rows, centred, check_rows, merged, present
from bonafed.problem.losses import Hinge, Huber, Logistic, Loss
from bonafed.problem.problem import Problem
from bonafed.problem.risks.risk import PerClient, Prior, Risk
from bonafed.problem.risks.weight_sets import ChiSquareBall, LpBall
from bonafed.problem.wasserstein.ball import Support, WassersteinBall
from bonafed.solution.solution import Solution
from bonafed.solution.thresholds import default_radius, residual_scale


@dataclass(eq=False, repr=False)
class _RobustModel(FederatedModel):
    """The parameters of a problem with a Wasserstein ball per client, and that problem."""

    label_flips: ClassVar[float | None] = None
    radius_: Array = field(init=False)

    loss: Loss | None = None
    _: KW_ONLY
    radius: PerClient | Literal["auto"] = "auto"
    label_cost: float = np.inf
    norm: Literal["l1", "l2", "linf"] = "linf"
    support: Support | None = None
    clip: bool = False
    client_radius: float = 0.05
    client_p: float | None = None
    prior: Prior = "size"
    over_clients: Risk | None = None
    tol: float | None = 1e-6

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        *,
        groups: Groups | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to rows, labels or targets, and the client of each row.

        Parameters
        ----------
        X : (n, d) array or sparse matrix
        y : (n,) labels of two classes; of a regression targets
        groups : (n,) client of each row; without it all rows are one client, and
            `MissingGroupsWarning` is issued
        sample_weight : (n,) weights >= 0; a row of weight 0 is as good as absent

        Raises
        ------
        ValueError
            other than two classes, a loss of the other kind, values that are not finite, radii or
            priors that do not fit
        """
        return self._fit(check_rows(self, X, y, groups, sample_weight))

    def _problem(self, fed: Federation) -> Problem:
        radius, p = self.client_radius, self.client_p
        if not is_number(radius) or not radius >= 0:
            raise ValueError(
                f"client_radius must be a number >= 0, got {radius!r}: 0 fixes the clients' weights"
                " at prior; for all weights use over_clients=Simplex()."
            )
        clients = self.over_clients
        if clients is None:
            clients = ChiSquareBall(radius, self.prior)
            clients = clients if p is None else LpBall(radius, p, self.prior)
        ball = WassersteinBall(0.0, self.label_cost, self.norm, self.support, self.clip)
        over = centred(clients, fed)
        problem = Problem(self._loss_for(fed), self._linear(), ball, over, self._regulariser())
        if not isinstance(self.radius, str):
            radius = present(self.radius, fed, "radius")
        else:
            radius = default_radius(problem, merged(fed))
        ball = replace(ball, radius=radius)
        if (share := self.label_flips) is not None:
            if not is_number(share) or not 0 <= share < 0.5 or not np.isinf(self.label_cost):
                raise ValueError(
                    f"label_flips must be a share in [0, 1/2), and label_cost then stays inf, got"
                    f" label_flips={share!r} and label_cost={self.label_cost!r}."
                )
            largest = max(ball.radii())  # at which the share of labels can flip at most
            if share > 0 and largest > 0:
                ball = replace(ball, label_cost=largest / share)
        return replace(problem, over_samples=ball)

    def _loss_for(self, fed: Federation) -> Loss:
        """The loss; one that depends on the rows where none is stated."""
        return self._loss()

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        super()._keep(solution, fed, rows)
        self.radius_ = solution.problem.at(fed)[0].over_samples.radius


@dataclass(eq=False, repr=False)
class RobustClassifier(_RobustModel, Classifier):
    """Linear classifier of two classes, robust to errors in every client's rows and to the client
    weights.

    Parameters
    ----------
    loss : a loss of the margin: ``Logistic()`` (None), ``SmoothHinge()`` or ``Hinge()``, which is
        the default on a ``support``, where the others have no worst case. With the hinge a constant
        is optimal, at any radius, where the rarer class lies inside the other one
    positive : the class that figures and reports call positive; None: the second of ``classes_``
    class_weight : None, "balanced" (as in scikit-learn, n / (2 n_c), from counts over all clients)
        or a mapping by class. Rows count by the weight of their class, and clients by theirs;
        ``predict_proba`` stays calibrated to the rows as they are
    radius : Wasserstein radius of every client's ball: "auto" (`default_radius`, from the noise in
        the rows), a number >= 0, one per client (in the order of their first appearance), or a
        mapping by client name
    label_cost : in (0, inf], cost of flipping a label, in units of ``norm``. At most
        radius / label_cost of a client's labels can flip
    label_flips : instead of a label cost, the share of every client's labels that can flip at most
        (0.005 costs nothing on clean labels, 0.05 makes some models constant)
    norm : "linf", "l1" or "l2", the norm of a move of the features. With "linf" small coefficients
        become 0, with "l1" all become alike
    support : None (features may move anywhere), ``BoxSupport(lower, upper)`` or
        ``PolytopeSupport(C, d)``
    clip : move rows outside the support to its nearest point instead of refusing them
    client_radius : >= 0, how far the clients' weights may be from ``prior``: the radius of
        ``ChiSquareBall``, or with ``client_p`` of ``LpBall``; 0: fixed weights. At 0.05 a client of
        one row in 700 has at most 1 % of the weight
    client_p : None, or in [1, inf]
    prior : "size", "uniform", weights that sum to one, or a mapping by client name. With "uniform"
        one row of a tiny client counts as much as all of a large one
    over_clients : a risk over clients such as ``Simplex()``, instead of the ball of the three
        parameters above
    regulariser : h of the coefficients; None is ``L2(1e-4)``: small, and enough for a proven lower
        bound at any radius
    fit_intercept : add an intercept, unpenalised and outside every norm
    algorithm, engine, max_rounds : as in `bonafed.solve`
    tol : relative gap between value and proven bound at which to stop
    warm_start : start from the coefficients of the last fit
    random_state : seed of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the two labels, sorted; scores above 0 mean the second
    positive_ : the class that figures call positive
    coef_, intercept_ : (1, d) and (1,)
    clients_ : (N,) names of the clients, in the order of first appearance
    client_weights_ : (N,) the worst client weights at the model
    client_scores_ : by client name, on its training rows: accuracy, balanced accuracy, recall and
        precision of the positive class, AUC, log loss; None where the rows do not say
    radius_ : (N,) the radii used
    calibration_ : makes the probabilities of ``predict_proba``
    certificate_ : value, proven lower bound, gap
    history_, n_iter_ : one row a round; the number of rounds
    solution_ : the solution of the problem, with ``notes`` on clients and radii

    Notes
    -----
    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes
    them on. Clients with one class are allowed. A ``sample_weight`` equals repeating rows.
    Scale the features: ``radius`` is in their units. For the worst group take
    ``AgnosticClassifier(Simplex())``: with its defaults this model stays near the mean of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> X, y = fed.pooled().rows(0)
    >>> hospital = np.repeat(fed.clients, fed.sizes)
    >>> model = bf.RobustClassifier().fit(X, y, groups=hospital)
    >>> model.score(X, y) > 0.9, bool(model.certificate_.relative_gap < 1e-5)
    (True, True)
    """

    default_loss: ClassVar[Loss] = Logistic()
    losses_to_use: ClassVar[str] = "Hinge(), SmoothHinge() or Logistic()"
    use_for_several: ClassVar[str] = (
        "AgnosticClassifier(), or one RobustClassifier for each class by scikit-learn's"
        " OneVsRestClassifier"
    )

    def _loss_for(self, fed: Federation) -> Loss:
        return Hinge() if self.loss is None and self.support is not None else self._loss()

    _: KW_ONLY
    positive: Label | None = None
    class_weight: ClassWeight = None
    label_flips: float | None = None


@dataclass(eq=False, repr=False)
class RobustRegressor(_RobustModel, Regressor):
    """Linear regression, robust to errors in every client's rows and to the client weights.

    Parameters and attributes are those of `RobustClassifier`, except:

    Parameters
    ----------
    loss : a Lipschitz loss of the residual, in units of y: ``Huber(1.35 s)`` (None; s is the spread
        of the residuals of a ridge regression, 1.4826 times their median size, so that the model
        follows the unit of y), ``EpsilonInsensitive()``, ``Absolute()``, ``Quantile()``;
        ``Squared()`` with radius=0 only
    label_cost : in (0, inf], cost of moving a target by one unit, in units of ``norm``; inf:
        targets stay. With a finite one the radius plays no part until ||coef_||_* exceeds
        1 / label_cost (the dual norm)

    Attributes
    ----------
    coef_, intercept_ : (d,) and a number
    client_scores_ : by client name, the mean absolute error on its training rows

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> clinic = np.where(np.arange(442) < 300, "north", "east")
    >>> model = bf.RobustRegressor().fit(X / X.std(0), y, groups=clinic)
    >>> model.coef_.shape, bool(model.certificate_.relative_gap < 1e-5)
    ((10,), True)
    """

    default_loss: ClassVar[Loss] = Huber()
    losses_to_use: ClassVar[str] = "Huber(), EpsilonInsensitive() or Quantile()"

    def _loss_for(self, fed: Federation) -> Loss:
        return self._loss() if self.loss is not None else Huber(1.35 * residual_scale(merged(fed)))
