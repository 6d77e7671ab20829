"""Classifiers for the worst client weights, linear or not; clients may answer at different
speeds.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F_j(w) = mean loss of client j's rows

Q is a set of weights of the clients, all of them (``Simplex``) or those near a prior. Mohri, Sivek,
Suresh, *Agnostic federated learning*; Jiao, Yang, Song, *Federated distributionally robust
optimization with non-convex objectives*. Two classes have the logistic loss, several the
multinomial one.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from bonafed.algorithms.federated.async_dro import AsyncDRO
from bonafed.algorithms.federated.multiplier_method import MultiplierMethod
from bonafed.arrays import Array, Features, Label, shape_of
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine
from bonafed.engines.inprocess import Replay, VirtualClock
from bonafed.estimators.base import Classifier, ClassWeight, Plan, coefficients
from bonafed.estimators.rows import Groups, Matrix, Rows, centred, check_rows, merged
from bonafed.problem.losses import Logistic, Loss, Multinomial
from bonafed.problem.predictors.affine import (
    Linear,
    Predictor,
    Softmax,
    outputs_of,
    scores,
    with_ones,
)
from bonafed.problem.problem import Problem
from bonafed.problem.risks.risk import Prior, Risk
from bonafed.problem.risks.weight_sets import ChiSquareBall, Simplex
from bonafed.solution.solution import Solution

# the cap on steps where nothing is convex: so many, or so many for each client
STEPS, VISITS = 10_000, 200
IN_PROCESS = MultiplierMethod(tol=1e-6)  # for convex problems whose set has a projection
FEW = 200  # features up to which a bundle of one score is faster for the worst client


@dataclass(eq=False, repr=False)
class AgnosticClassifier(Classifier):
    """Classifier of two or more classes that is as good as it can be for the worst client weights.

    Parameters
    ----------
    uncertainty : the client weights allowed. ``ChiSquareBall(0.2, prior="size")`` (None) costs
        little where clients are alike; ``Simplex()`` is the worst client only, whatever its size:
        the choice for the worst group, whose held-out accuracy it raises from .59 to .70 on five
        tables with a bad one, while that of all rows falls from .80 to .74; it costs .01 to .15 of
        AUC where that group is tiny or has wrong labels. Others are
        ``CDNorm``, ``Box``, ``KLBall``, ``TotalVariationBall``, ``Ellipsoid``, ``LpBall``,
        ``WassersteinOverClients``, ``Polyhedron``, ``Superquantile`` or a custom set
    positive : the class of two that figures and reports call positive; None: the second of
        ``classes_``
    class_weight : None, "balanced" or a mapping by class, as of `RobustClassifier`
    prior : the centre of that set: "size", "uniform", weights that sum to one, or a mapping by
        client name, which may name absent clients; None: the set's own
    model : "linear" (for several classes one linear score each), "softmax" (the same for two
        classes, too), or a predictor such as ``MLP((16,))`` or ``TorchPredictor(module)``, used as
        it is
    regulariser : h of the coefficients; None is ``L2(1 / n)`` of n rows, as in scikit-learn
    fit_intercept : of "linear" and "softmax". With one score unpenalised; with several the
        intercepts are coefficients of a feature of ones, and penalised as all others
    engine : None: in this process, all clients at once; "virtual": ``VirtualClock()``; or an
        engine, such as ``VirtualClock(stragglers={"mobile": 10.0}, wait=First(2))``
    algorithm : None: ``AsyncDRO()`` for models that are not convex; that of ``solve`` on a virtual
        clock, and for ``Simplex()`` with one score and at most 200 features (``Bundle()``); else
        ``MultiplierMethod()``
    tol : gap relative to the objective at which to stop; None: the algorithm's own (1e-6 in
        process, else 1e-3)
    max_rounds : a cap on the server's steps; None: the algorithm's own, for models that are not
        convex 10,000, or 200 for each client where these are more
    warm_start : start from the last fit's ``w_``
    random_state : seed of delays, and of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the labels, sorted
    w_ : (D,) the model as a flat vector of ``predictor_``
    coef_, intercept_ : of linear models: (1, d) and (1,), with several scores (C, d) and (C,)
    clients_ : (N,) names of the clients, in the order of first appearance
    client_weights_ : (N,) the worst client weights at the model
    positive_ : the class that figures call positive
    client_scores_ : by client name, figures on its training rows, as of `RobustClassifier`; of
        several classes the accuracy
    certificate_ : value, and where the model is convex its proven lower bound and the gap
    history_, n_iter_ : one row a step of the server; their number
    solution_ : the solution of the problem

    Notes
    -----
    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes
    them on. A ``sample_weight`` equals repeating rows. The model is the same whether or not clients
    are slow, up to ``tol``: an asynchronous engine changes the time that it takes.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> X, y = fed.pooled().rows(0)
    >>> hospital = np.repeat(fed.clients, fed.sizes)
    >>> model = bf.AgnosticClassifier().fit(X, y, groups=hospital)
    >>> round(float(model.client_weights_.sum()), 6), model.score(X, y) > 0.9
    (1.0, True)
    """

    default_loss: ClassVar[Loss] = Logistic()
    several_classes: ClassVar[bool] = True
    alone: ClassVar[str] = "no client is worse off than another one"
    w_: Array = field(init=False)
    predictor_: Any = field(init=False)
    _ones = False  # whether the features have a last one of ones

    uncertainty: Risk | None = None
    _: KW_ONLY
    positive: Label | None = None
    class_weight: ClassWeight = None
    prior: Prior | None = None
    model: Literal["linear", "softmax"] | Predictor = "linear"
    engine: Literal["virtual"] | Engine | None = None

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
        y : (n,) labels of two classes or more
        groups : (n,) client of each row; without it all rows are one client, and
            `MissingGroupsWarning` is issued
        sample_weight : (n,) weights >= 0; a row of weight 0 is as good as absent

        Raises
        ------
        ValueError
            labels of one class, values that are not finite, a set, prior, model or engine that does
            not fit
        """
        return self._fit(check_rows(self, X, y, groups, sample_weight))

    # -- the problem
    # ----------------------------------------------------------------------------------------------

    def _federation(self, rows: Rows) -> Federation:
        codes = self._classes(rows.y)
        self.predictor_, self._ones = self._predictor(shape_of(rows.X)[1])
        labels = np.arange(len(self.classes_)) if self._several() else np.array([-1, 1])
        names = [*self._features(), "ones"] if self._ones else self._features()
        return rows.federation(self._extended(rows.X), labels[codes], labels, names)

    def _several(self) -> bool:
        """Whether the model has one score per class."""
        least, most = outputs_of(self.predictor_)
        return most > 1 and (len(self.classes_) > 2 or least > 1)

    def _predictor(self, d: int) -> tuple[Predictor, bool]:
        """The model for these classes, and whether it needs a feature of ones."""
        count = len(self.classes_)
        if isinstance(self.model, str):
            if count == 2 and self.model == "linear":
                return Linear(bool(self.fit_intercept)), False
            return Softmax(count, fit_intercept=False), bool(self.fit_intercept)
        if not hasattr(self.model, "forward"):
            raise TypeError(
                "model must be 'linear', 'softmax' or a predictor such as MLP(), got"
                f" {self.model!r}."
            )
        least, most = outputs_of(self.model)
        if count > 2 and most < 2:
            raise ValueError(
                f"{self.model!r} makes one number a row, and there are {count} classes: use"
                " Softmax()."
            )
        return self.model.sized(d, count if count > 2 or least > 1 else None), False

    def _problem(self, fed: Federation) -> Problem:
        over: Any = ChiSquareBall(0.2, "size") if self.uncertainty is None else self.uncertainty
        if not hasattr(over, "worst"):
            raise TypeError(
                "uncertainty must be a set of weights such as Simplex() or KLBall(0.1), got"
                f" {over!r}."
            )
        if self.prior is not None and not hasattr(over, "prior"):
            raise ValueError(
                f"{over!r} has no prior: leave prior out, or use a ball such as KLBall(0.1)."
            )
        over = centred(over, fed, self.prior)
        loss = Multinomial() if self._several() else Logistic()
        return Problem(loss, self.predictor_, over_clients=over, regulariser=self._regulariser(fed))

    def _plan(self, problem: Problem, fed: Federation) -> Plan:
        algorithm, engine = self.algorithm, self.engine
        engine = VirtualClock() if isinstance(engine, str) else engine
        if algorithm is None and not problem.convex:
            algorithm = AsyncDRO(max_rounds=max(STEPS, VISITS * fed.n_clients))
        elif algorithm is None and hasattr(problem.over_clients, "project"):
            one = isinstance(problem.over_clients, Simplex) and isinstance(self.predictor_, Linear)
            few = one and fed.n_features <= FEW
            algorithm = None if few or isinstance(engine, VirtualClock | Replay) else IN_PROCESS
        return Plan(algorithm, engine, merged(fed))

    def _last_model(self) -> Array | None:
        return getattr(self, "w_", None)

    def _set_model(self, solution: Solution) -> None:
        self.w_, self.predictor_ = solution.w, solution.problem.predictor
        if isinstance(self.predictor_, Linear | Softmax):
            self.coef_, self.intercept_ = coefficients(self.w_, self.predictor_, self._ones)

    def _client_score(self, fed: Federation, i: int) -> dict[str, float | None]:
        scores, y = self.predictor_.forward(self.w_, fed.block(i))[0], fed.rows(i)[1]
        return self._figures(scores, np.searchsorted(np.asarray(fed.classes), y), fed.share(i))

    # -- predictions
    # ----------------------------------------------------------------------------------------------

    def _extended(self, X: Matrix) -> Matrix:
        """X with a feature of ones, where the model has one."""
        return with_ones(X) if self._ones else X

    def _scores(self, X: Matrix) -> Array:
        """(n,), or with several scores (n, C)."""
        return scores(self.predictor_, self.w_, self._extended(X))
