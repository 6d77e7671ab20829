"""Classifiers for the worst mix of the clients, linear or not, trained while clients answer at different speeds.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F_j(w) = mean loss of client j's rows

Q is a set of weights of the clients, all of them (``Simplex``) or those near a prior. Mohri, Sivek, Suresh, *Agnostic
federated learning*; Jiao, Yang, Song, *Distributed distributionally robust optimization with non-convex objectives*.
Two classes have the logistic loss, several the multinomial one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.algorithms.federated.async_dro import AsyncDRO
from quorate.algorithms.federated.multiplier_method import MultiplierMethod
from quorate.arrays import Array, Block
from quorate.engines.replay import Replay
from quorate.engines.virtual_clock import VirtualClock
from quorate.estimators.fitting import DEFAULT_L2, as_given, check_rows, merged, prior_of, solved
from quorate.problem.losses import Logistic, Multinomial
from quorate.problem.predictors import Linear, Softmax, outputs_of
from quorate.problem.problem import Problem
from quorate.problem.regularisers import L2
from quorate.problem.risks.simplex import Simplex

STEPS, VISITS = 10_000, 200  # the cap on steps where nothing is convex: so many, or so many for each client
IN_PROCESS = MultiplierMethod(tol=1e-6)  # for convex problems whose set has a projection


class AgnosticClassifier(ClassifierMixin, BaseEstimator):
    """Classifier of two or more classes whose worst mix of the clients is as good as it can be.

    Parameters
    ----------
    uncertainty : the weights that a mix may have: ``Simplex()`` (None, the worst client), ``CDNorm``, ``Box``,
        ``KLBall``, ``ChiSquareBall``, ``TotalVariationBall``, ``Ellipsoid``, ``LpBall``, ``WassersteinOverClients``,
        ``Polyhedron``, ``Superquantile`` or an own set
    prior : the centre of that set: "size", "uniform", weights that sum to one, or a mapping by client name, which may
        name absent clients; None: the set's own
    model : "linear" (for several classes one linear score each), "softmax" (the same for two classes, too), or a
        predictor such as ``MLP((16,))`` or ``TorchPredictor(module)``, used as it is
    regulariser : h of the coefficients; None is ``L2(1e-4)``
    fit_intercept : of "linear" and "softmax". With one score unpenalised; with several the intercepts are coefficients
        of a feature of ones, and penalised as all others
    engine : None: in this process, all clients at once; "virtual": ``VirtualClock()``; or an engine, such as
        ``VirtualClock(stragglers={"mobile": 10.0}, wait=First(2))``
    algorithm : None: ``AsyncDRO()`` on a virtual clock and for models that are not convex, else ``MultiplierMethod()``
    tol : gap relative to the objective at which to stop; None: the algorithm's own (1e-6 in process, else 1e-3)
    max_rounds : a cap on the server's steps; None: the algorithm's own, for models that are not convex 10,000, or 200
        for each client where these are more
    warm_start : start from the last fit's ``w_``
    random_state : seed of delays, and of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the labels, sorted
    w_ : (D,) the model as a flat vector of ``predictor_``
    coef_, intercept_ : of linear models: (1, d) and (1,), with several scores (C, d) and (C,)
    clients_ : (N,) names of the clients, in the order of first appearance
    client_weights_ : (N,) the worst weighting of the clients at the model
    client_scores_ : by client name, the accuracy on its training rows
    certificate_ : value, and where the model is convex its proven lower bound and the gap
    history_, n_iter_ : one row a step of the server; their number
    solution_ : the solution of the problem

    Notes
    -----
    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes them on. A
    ``sample_weight`` equals repeating rows. The model is the same whether or not clients are slow, up to ``tol``: an
    asynchronous engine changes the time that it takes.

    Examples
    --------
    >>> model = AgnosticClassifier(engine="virtual").fit(X, y, groups=site)  # doctest: +SKIP
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's protocol: groups are always requested
    classes_: NDArray[Any]
    w_: Array
    predictor_: Any
    solution_: Any
    client_scores_: dict[str, dict[str, float]]
    _ones: bool

    def __init__(
        self,
        uncertainty: Any = None,
        *,
        prior: Any = None,
        model: Any = "linear",
        regulariser: Any = None,
        fit_intercept: bool = True,
        engine: Any = None,
        algorithm: Any = None,
        tol: float | None = None,
        max_rounds: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.uncertainty = uncertainty
        self.prior = prior
        self.model = model
        self.regulariser = regulariser
        self.fit_intercept = fit_intercept
        self.engine = engine
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows, labels and the client of each row.

        Parameters
        ----------
        X : (n, d) array or sparse matrix
        y : (n,) labels of two classes or more
        groups : (n,) client of each row; without it all rows are one client, and `MissingGroupsWarning` is issued
        sample_weight : (n,) weights >= 0; a row of weight 0 is as good as absent

        Raises
        ------
        ValueError
            labels of one class, values that are not finite, a set, prior, model or engine that does not fit
        """
        alone = "no client is worse off than another one"
        rows = check_rows(self, X, y, groups, sample_weight, alone=alone)
        check_classification_targets(rows.y)
        self.classes_, code = np.unique(rows.y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of two classes, got one class: {self.classes_[:1].tolist()[0]!r}. "
                "One client may hold a single class, but all rows together must hold two."
            )
        predictor, self._ones = self._predictor(rows.X.shape[1])
        several = outputs_of(predictor)[1] > 1 and (len(self.classes_) > 2 or outputs_of(predictor)[0] > 1)
        labels = np.arange(len(self.classes_)) if several else np.array([-1, 1])
        fed = as_given(replace(rows, X=self._extended(rows.X)), labels[code], classes=labels)
        problem = self._problem(predictor, several, fed)
        self._solve(problem, fed)
        self._tell(rows.X, code, rows.groups, rows.sample_weight, fed)
        return self

    # -- the problem ----------------------------------------------------------------------------------------------

    def _predictor(self, d: int) -> tuple[Any, bool]:
        """The model for these classes, and whether it needs a feature of ones."""
        count = len(self.classes_)
        if isinstance(self.model, str):
            if self.model not in ("linear", "softmax"):
                raise ValueError(f"model must be 'linear', 'softmax' or a predictor, got {self.model!r}: try MLP().")
            if count == 2 and self.model == "linear":
                return Linear(bool(self.fit_intercept)), False
            return Softmax(count), bool(self.fit_intercept)
        if isinstance(self.model, type) or not hasattr(self.model, "forward"):
            raise TypeError(f"model must be 'linear', 'softmax' or a predictor such as MLP(), got {self.model!r}.")
        least, most = outputs_of(self.model)
        if count > 2 and most < 2:
            raise ValueError(f"{self.model!r} makes one number a row, and there are {count} classes: use Softmax().")
        return self.model.sized(d, count if count > 2 or least > 1 else None), False

    def _problem(self, predictor: Any, several: bool, fed: Any) -> Problem:
        over: Any = Simplex() if self.uncertainty is None else self.uncertainty
        if not hasattr(over, "worst") or isinstance(over, type):
            raise TypeError(f"uncertainty must be a set of weights such as Simplex() or KLBall(0.1), got {over!r}.")
        if self.prior is not None and not hasattr(over, "prior"):
            raise ValueError(f"{over!r} has no prior: leave prior out, or use a ball such as KLBall(0.1).")
        if getattr(over, "prior", None) is not None:
            over = replace(over, prior=prior_of(over.prior if self.prior is None else self.prior, fed))
        h = L2(DEFAULT_L2) if self.regulariser is None else self.regulariser
        loss: Any = Multinomial() if several else Logistic()
        return Problem(loss, predictor, over_clients=over, regulariser=h)

    def _solve(self, problem: Problem, fed: Any) -> None:
        engine = self._engine()
        default = None if problem.convex else AsyncDRO(max_rounds=max(STEPS, VISITS * fed.n_clients))
        if (
            problem.convex
            and hasattr(problem.over_clients, "project")
            and not isinstance(engine, VirtualClock | Replay)
        ):
            default = IN_PROCESS
        last = getattr(self, "w_", None) if self.warm_start else None
        fits = last is not None and last.shape == (problem.predictor.dimension(fed.n_features),)
        solved(self, problem, merged(fed), default, engine, last if fits else None)

    def _engine(self) -> Any:
        if not isinstance(self.engine, str):
            return self.engine
        if self.engine != "virtual":
            raise ValueError(
                f"engine must be None, 'virtual' or an engine such as VirtualClock(), got {self.engine!r}."
            )
        return VirtualClock()

    def _tell(self, X: Any, code: NDArray[np.intp], groups: list[Any], weight: Array | None, fed: Any) -> None:
        """Store what is known of the model and of the clients."""
        solution = self.solution_
        self.w_, self.predictor_ = solution.w, solution.problem.predictor
        if isinstance(self.predictor_, Linear):
            coefficients, intercept = self.predictor_.split(self.w_)
            self.coef_, self.intercept_ = coefficients[None], np.atleast_1d(np.asarray(intercept, float))
        elif isinstance(self.predictor_, Softmax):
            matrix = self.w_.reshape(-1, len(self.classes_)).T
            cut = matrix.shape[1] - self._ones
            self.coef_, self.intercept_ = matrix[:, :cut], matrix[:, cut:].sum(1)
        self.solution_ = replace(
            solution, clients=[{**row, "n": int(n)} for row, n in zip(solution.clients, fed.sizes, strict=True)]
        )
        self.clients_ = np.array(fed.clients)
        self.client_weights_ = np.asarray(solution.certificate.weights)
        right, owner = self._chosen(self._scores(X)) == code, np.array([str(group) for group in groups])
        share = np.ones(len(code)) if weight is None else weight
        self.client_scores_ = {
            name: {"accuracy": float(np.average(right[owner == name], weights=share[owner == name]))}
            for name in fed.clients
        }

    # -- predictions ----------------------------------------------------------------------------------------------

    def _extended(self, X: Any) -> Any:
        """X with a feature of ones, where the model has one."""
        if not self._ones:
            return X
        ones = np.ones((X.shape[0], 1))
        return np.hstack([X, ones]) if isinstance(X, np.ndarray) else hstack([csr_array(X), ones], format="csr")

    def _scores(self, X: Any) -> Array:
        """(n,), or with several scores (n, C)."""
        X = self._extended(X)
        m, rows = X.shape[0], X[None] if isinstance(X, np.ndarray) else X
        block = Block(rows, np.zeros((1, m)), np.full((1, m), 1 / m), np.array([0]), ("",))
        return self.predictor_.forward(self.w_, block)[0]

    def _chosen(self, scores: Array) -> NDArray[np.intp]:
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(1)

    def _raw(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._scores(X)

    def decision_function(self, X: Any) -> Array:
        """Of two classes (n,): above 0 means ``classes_[1]``. Of several (n, C): the largest score is predicted."""
        scores = self._raw(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1:] == (2,) else scores

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels."""
        chosen = self._chosen(self._raw(X))
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> Array:
        """(n, C) probabilities of ``classes_``, calibrated for the worst mix ``client_weights_`` if for any."""
        scores = self._raw(X)
        return np.column_stack([expit(-scores), expit(scores)]) if scores.ndim == 1 else softmax(scores, axis=1)

    def client_report(self) -> list[dict[str, Any]]:
        """One row per client: n, loss, weight and so on as in ``solution_.clients``, and the accuracy on its rows."""
        check_is_fitted(self)
        return [{**row, **self.client_scores_[str(row["client"])]} for row in self.solution_.clients]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
