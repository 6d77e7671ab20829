"""The one way in which all estimators are fitted, and how a fitted model scores and predicts.

    rows -> federation -> problem -> solution -> fitted attributes

A class states its problem (`FederatedModel._problem`); each other step has a default here, and a
class replaces the steps in which its problem differs.

score = X w + b     predict = classes_[1] where score > 0     P(classes_[1]) = 1 / (1 + exp(-score))
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from bonafed.algorithms.method import Method
from bonafed.arrays import Array, Features, Index
from bonafed.certificates.certificate import Certificate
from bonafed.client_names import ClientName
from bonafed.data.assembly import without_column
from bonafed.data.federation import Federation
from bonafed.data.tables import column_names
from bonafed.engines.engine import Engine
from bonafed.estimators.rows import FORM, Matrix, Rows, in_words, merged, names_of
from bonafed.measures import TWO, classification, figures_of
from bonafed.parameters import Parameters, check_names, checking, checking_methods, parameters
from bonafed.problem.calibration import Sigmoid, calibrated
from bonafed.problem.losses import Loss, has_log_link
from bonafed.problem.metadata import Balance, class_counts, class_factors, masses, weighted
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2, Regulariser
from bonafed.solution.outcome import UnprovenWarning
from bonafed.solution.solution import Solution
from bonafed.solution.solve import solved, warn_of
from bonafed.worst_client import worst_first

DEFAULT_L2 = 1e-4
ClassWeight = Balance | None
Seed = int | np.random.RandomState | None


class UnprovenModelWarning(UnprovenWarning, ConvergenceWarning):
    """What an estimator warns with."""


class Plan(NamedTuple):
    """How a problem is solved: algorithm and engine (None: as `bonafed.solve`), and the rows."""

    algorithm: Method | None
    engine: Engine | None
    fed: Federation


@checking_methods
@dataclass(eq=False, repr=False)
class FederatedModel(BaseEstimator):
    """An estimator that minimises a risk over the rows of several clients."""

    targets: ClassVar[str]  # "sign" or "real", as in the losses
    default_loss: ClassVar[Loss]
    losses_to_use: ClassVar[str]
    reports_clients: ClassVar[bool] = True
    report_keys: ClassVar[tuple[str, ...] | None] = None  # of the client table; None: all
    # what a fit without groups is
    alone: ClassVar[str] = "the model is robust within the pooled rows only"

    def __new__(cls, *args: Any, **given: Any) -> Self:
        check_names(cls.__name__, given, parameters(cls))
        return super().__new__(cls)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        checking_methods(cls)

    # scikit-learn's protocol: groups are always requested
    __metadata_request__fit = {"groups": True}  # noqa: RUF012

    n_features_in_: int = field(init=False)
    coef_: Array = field(init=False)
    intercept_: Any = field(init=False)
    loss_: Loss = field(init=False)
    solution_: Solution = field(init=False)
    certificate_: Certificate = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)
    n_iter_: int = field(init=False)
    clients_: NDArray[Any] = field(init=False)
    client_weights_: Array = field(init=False)
    client_scores_: dict[ClientName, dict[str, float | None]] = field(init=False)
    loss: ClassVar[Loss | None] = None

    _: KW_ONLY
    regulariser: Regulariser | None = None
    fit_intercept: bool = True
    algorithm: Method | None = None
    engine: Any = None
    tol: float | None = None
    max_rounds: int | None = None
    warm_start: bool = False
    random_state: Seed = 0

    # -- the steps of a fit

    def _fit(self, rows: Rows) -> Self:
        """Fit to checked rows."""
        fed = self._federation(rows)
        counted = self._weighted(fed)
        solution = self._solution(self._problem(counted), counted)
        self._keep(solution, fed, rows)
        warn_of(solution, UnprovenModelWarning)
        return self

    def _federation(self, rows: Rows) -> Federation:
        """One client per group, with targets as the loss needs them."""
        targets, classes = self._targets(rows.y)
        return rows.federation(rows.X, targets, classes, self._features())

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Coded targets (n,), and the codes of the classes where there are classes."""
        raise NotImplementedError

    def _weighted(self, fed: Federation) -> Federation:
        """The federation with the weights that rows have in the problem."""
        return fed

    @abstractmethod
    def _problem(self, fed: Federation) -> Problem:
        """The problem that the parameters state over this federation."""

    def _plan(self, problem: Problem, fed: Federation) -> Plan:
        return Plan(self.algorithm, self.engine, merged(fed))

    def _solution(self, problem: Problem, fed: Federation) -> Solution:
        (algorithm, engine, data), start = self._plan(problem, fed), None
        if self.warm_start and (last := self._last_model()) is not None:
            start = last if last.shape == (problem.predictor.dimension(fed.n_features),) else None
        ends: dict[str, Any] = {"tol": self.tol, "max_rounds": self.max_rounds, "start": start}
        ends["seed"] = seed_of(self.random_state)
        return solved(problem, data, algorithm=algorithm, engine=engine, **ends)

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        """Store the fitted attributes."""
        table = [{**row, "n": int(n)} for row, n in zip(solution.clients, fed.sizes, strict=True)]
        self.solution_ = replace(solution, clients=table)
        self.loss_ = solution.problem.loss
        self.certificate_ = solution.certificate
        self.history_, self.n_iter_ = solution.history, solution.rounds
        self._set_model(solution)
        if self.reports_clients:
            self.clients_ = names_of(fed.clients)
            self.client_weights_ = np.asarray(solution.certificate.weights)
            scores = [self._client_score(fed, i) for i in range(fed.n_clients)]
            self.client_scores_ = dict(zip(fed.clients, scores, strict=True))

    def _set_model(self, solution: Solution) -> None:
        self.coef_, self.intercept_ = coefficients(solution.w, solution.problem.predictor)

    def _client_score(self, fed: Federation, i: int) -> dict[str, float | None]:
        """How well the model predicts the training rows of client i."""
        raise NotImplementedError

    # -- parts of a problem

    def _loss(self) -> Loss:
        """The loss; raises ``ValueError`` unless it takes the estimator's kind of targets."""
        loss = self.default_loss if self.loss is None else self.loss
        if getattr(loss, "targets", None) != self.targets or has_log_link(loss):
            kind = "margin" if self.targets == "sign" else "residual"
            text = f"{type(self).__name__} needs a loss of the {kind}, got {loss!r}."
            raise ValueError(f"{text} Use {self.losses_to_use}.")
        return loss

    def _linear(self) -> Linear:
        return Linear(bool(self.fit_intercept))

    def _regulariser(self, fed: Federation | None = None) -> Regulariser:
        """The stated one; None is as strong as scikit-learn's, 1 / n, where rows are given."""
        if self.regulariser is not None:
            return self.regulariser
        return L2(DEFAULT_L2 if fed is None else 1 / float(masses(fed).sum()))

    def _features(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else names.tolist()

    def _last_model(self) -> Array | None:
        if not hasattr(self, "coef_"):
            return None
        w = np.append(self.coef_.ravel(), self.intercept_)
        return w if self.fit_intercept else w[:-1]

    # -- predictions and reports

    def _raw(self, X: Features) -> Array:
        """Scores (n,), or (n, C) of a model with one score per class."""
        check_is_fitted(self)
        table: Any = X
        clients = getattr(self, "groups_column_", None)
        if clients is not None and clients in (column_names(X) or ()):
            table, _ = without_column(X, clients, "groups")
        with in_words(table):
            rows: Any = validate_data(self, table, reset=False, **FORM)
        return self._scores(rows)

    def _scores(self, X: Matrix) -> Array:
        if np.ndim(self.coef_) == 2 and len(self.coef_) > 1:
            return safe_sparse_dot(X, self.coef_.T) + self.intercept_
        return safe_sparse_dot(X, np.ravel(self.coef_)) + float(np.ravel(self.intercept_)[0])

    @available_if(lambda self: self.reports_clients)
    @checking
    def client_report(self) -> list[dict[str, Any]]:
        """One row per client: the columns of ``solution_.clients``, the scores of the model on the
        client's training rows, and whether it is the worst client by these. What holds of new rows
        ``solution_.evaluate(test).text`` says.
        """
        check_is_fitted(self)
        rows = [
            {key: row[key] for key in self.report_keys or row if key in row}
            | self.client_scores_[row["client"]]
            for row in self.solution_.clients
        ]
        key = "accuracy" if "accuracy" in rows[0] else "mae"
        worst = worst_first(rows, key, key == "accuracy")[0]["client"]
        return [{**row, "worst": row["client"] == worst} for row in rows]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``risk__tail=0.3`` puts another value of the risk in its place.

        Risks, losses and regularisers are values, so that one which several estimators share stays
        as it is.
        """
        names = dict.fromkeys(key.partition("__")[0] for key in params)
        check_names(type(self).__name__, names, parameters(type(self)))
        plain: dict[str, Any] = {}
        for key, value in params.items():
            name, _, field = key.partition("__")
            part = plain.get(name, getattr(self, name, None))
            if field and isinstance(part, Parameters):
                plain[name] = part.set_params(**{field: value})
            else:
                plain[key] = value
        return super().set_params(**plain)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class Classifier(ClassifierMixin, FederatedModel):
    """Labels by the sign of the score, or by the largest of several scores."""

    targets: ClassVar[str] = "sign"
    several_classes: ClassVar[bool] = False
    use_for_several: ClassVar[str] = "AgnosticClassifier()"
    class_weight: Any = None
    positive: Any = None
    classes_: NDArray[Any]
    positive_: Any
    calibration_: Sigmoid

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        self.calibration_ = solution.calibration or Sigmoid()  # without one: the loss's own
        if self.class_weight is not None and solution.calibration is not None:
            # to the rows as they are: weights of the classes are no part of their probabilities
            fitted = calibrated(solution.problem, fed, solution.w, always=True)
            self.calibration_ = fitted or Sigmoid()
        super()._keep(solution, fed, rows)

    def _weighted(self, fed: Federation) -> Federation:
        """Every row times the weight of its class, from sums of counts over the clients."""
        if self.class_weight is None:
            return fed
        values, names = np.asarray(fed.classes), self.classes_.tolist()
        factors = class_factors(self.class_weight, names, class_counts(fed, values))
        return weighted(fed, values, factors)

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        return 2 * self._classes(y) - 1, np.array([-1, 1])

    def _classes(self, y: NDArray[Any]) -> Index:
        """Store the classes; the position of each label among them, (n,)."""
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 2 and not self.several_classes:
            kind = type_of_target(y, input_name="y")
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
                f" For several classes use {self.use_for_several}."
            )
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of two classes, got one class:"
                f" {self.classes_.tolist()[0]!r}. One client or group may hold a single class, but"
                " all rows together must hold two."
            )
        self._choose_positive()
        return codes

    def _choose_positive(self) -> None:
        """Store which class figures, constraints and reports call positive."""
        known = self.classes_.tolist()
        if self.positive is not None and self.positive not in known:
            raise ValueError(f"positive={self.positive!r} is not one of the classes {known[:10]}.")
        self.positive_ = known[-1] if self.positive is None else self.positive

    def _client_score(self, fed: Federation, i: int) -> dict[str, float | None]:
        X, y = fed.rows(i)
        codes = np.searchsorted(np.asarray(fed.classes), y)
        return self._figures(self._scores(X), codes, fed.share(i))

    def _figures(self, scores: Array, codes: Index, share: Array) -> dict[str, float | None]:
        """How well rows of these scores and classes are told apart; None where rows do not say."""
        if len(self.classes_) > 2:
            return {"accuracy": float(share @ (chosen(scores) == codes))}
        second = self.positive_ == self.classes_.tolist()[1]
        probability = self._probabilities(scores)[:, int(second)]
        score = scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
        positive, score = codes == int(second), score if second else -score
        weight = None if np.ptp(share) == 0 else share * len(share)
        found: dict[str, Any] = {**classification(positive, score, probability, weight)}
        return {each.key: found[each.key] for each in figures_of(TWO) if each.place is not None}

    def decision_function(self, X: Features) -> Array:
        """Of two classes (n,): above 0 means ``classes_[1]``. Of several (n, C): the largest score
        is predicted.
        """
        scores = self._raw(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1:] == (2,) else scores

    def predict(self, X: Features) -> NDArray[Any]:
        """(n,) labels."""
        positions = chosen(self._raw(X))  # first, since it checks that the model is fitted
        return self.classes_[positions]

    def predict_proba(self, X: Features) -> Array:
        """(n, C) probabilities of ``classes_``.

        Of two classes by ``calibration_``, a sigmoid of the score. It is the logistic function
        itself where the scores are log odds already: with the logistic loss, all rows of a client
        counted alike, no label flips and no constraints. Else (hinge losses, risks by rank,
        constraints) it is fitted to the training rows, and where these refute that its probability
        at score 0 is 1/2 (``calibration_.offset`` is not 0) rows with a score near 0 are predicted
        as the less probable class, as with scikit-learn's ``SVC``. Weights of the clients and
        private noise are not corrected for: calibrate on other rows (scikit-learn's
        ``CalibratedClassifierCV``) where that matters.
        """
        return self._probabilities(self._raw(X))

    def _probabilities(self, scores: Array) -> Array:
        return self.calibration_.both(scores) if scores.ndim == 1 else softmax(scores, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.several_classes
        return tags


class Regressor(RegressorMixin, FederatedModel):
    """The score is the prediction."""

    targets: ClassVar[str] = "real"

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        return np.asarray(y, float), None

    def _set_model(self, solution: Solution) -> None:
        super()._set_model(solution)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])

    def _client_score(self, fed: Federation, i: int) -> dict[str, float | None]:
        X, y = fed.rows(i)
        return {"mae": float(fed.share(i) @ np.abs(self._scores(X) - y))}

    def predict(self, X: Features) -> Array:
        """(n,) predictions."""
        return self._raw(X)


def coefficients(w: Array, predictor: Linear | Softmax, ones: bool = False) -> tuple[Array, Array]:
    """(coef, intercept) of shapes (k, d) and (k,): k = 1 score, or one score per class.

    ``ones``: the intercepts of `Softmax` are the coefficients of a last feature of ones.
    """
    if isinstance(predictor, Softmax):
        matrix = w.reshape(-1, predictor.classes or 1).T
        d = matrix.shape[1] - ones
        coef, intercept = matrix[:, :d], matrix[:, d:].sum(1)
        return np.ascontiguousarray(coef), intercept
    return (w[None, :-1], w[-1:]) if predictor.intercept else (w[None], np.zeros(1))


def chosen(scores: Array) -> Index:
    """(n,) positions of the predicted classes, from scores (n,) or (n, C)."""
    return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(1)


def seed_of(seed: Seed) -> int:
    """The seed, or one that a generator draws."""
    whole = isinstance(seed, int | np.integer)
    return int(seed if whole else check_random_state(seed).randint(2**31))
