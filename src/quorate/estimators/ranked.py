"""Linear models of a risk that weighs rows by the rank of their loss, as scikit-learn estimators.

    minimise over w, b:  R(l_1(w, b), ..., l_n(w, b)) + h(w),    R(z) = sum_i sigma_i z_[i],    z_[1] <= ... <= z_[n]

Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*, (1), with an intercept b that is free of
h. All rows are one owner's: ranks are among all of them. Groups of rows play no part in the model, only in its report.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.data.rows import grouped
from quorate.estimators.fitting import DEFAULT_L2, TrivialModelWarning, arrays, by_value, solved
from quorate.estimators.linear import LinearModel, RealTargets, TwoClasses
from quorate.fairness import fairness_metrics, group_rates
from quorate.problem.losses import Logistic, Loss, Squared
from quorate.problem.predictors import Linear
from quorate.problem.problem import Problem
from quorate.problem.regularisers import L2
from quorate.problem.risks.mean import Mean
from quorate.problem.risks.ranks import by_rank
from quorate.problem.risks.superquantile import Superquantile
from quorate.rounds import Stop
from quorate.solution import Solution


class _RankLinear(LinearModel):
    """What classifier and regressor have in common: parameters, the fit, the report by group."""

    group_scores_: dict[str, dict[str, Any]]
    risk_weights_: Array
    losses_: Array
    certificate_: Any
    solution_: Solution

    def __init__(
        self,
        risk: Any = None,
        *,
        loss: Loss | None = None,
        regulariser: Any = None,
        fit_intercept: bool = True,
        algorithm: Any = None,
        engine: Any = None,
        tol: float = 1e-6,
        max_rounds: int | None = None,
        warm_start: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.risk = risk
        self.loss = loss
        self.regulariser = regulariser
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.engine = engine
        self.tol = tol
        self.max_rounds = max_rounds
        self.warm_start = warm_start
        self.random_state = random_state

    def _fit(self, X: Any, y: NDArray[Any], parts: Mapping[str, Any], classes: Any = None) -> tuple[Array, Array]:
        """Solve for coded targets y (n,) and store what both kinds have; (w with the intercept last, scores (n,)).

        The rows are solved in an order of their values, so that the model does not depend on the order they come in.
        """
        problem, order = self._problem(), by_value(X, y)[0]
        fed = Federation(("pooled",), (X[order],), (y[order],), classes=classes)
        w = solved(self, problem, fed)
        _warn_if_constant(problem, fed, w, self.solution_, self.tol)
        score = X @ w[:-1] + w[-1]
        self.losses_ = problem.loss.value(score, y.astype(float))
        self.risk_weights_ = np.empty(len(y))
        self.risk_weights_[order] = problem.row_weights(self.losses_[order][None], fed.block(0))[0]
        self.solution_ = _in_order(self.solution_, order)
        self.group_scores_ = {name: _scores(self.losses_[own], self.risk_weights_[own]) for name, own in parts.items()}
        return w, score

    def _problem(self) -> Problem:
        risk = Superquantile(0.2) if self.risk is None else self.risk
        if not isinstance(risk, Mean) and not by_rank(risk):
            raise TypeError(
                f"risk must be Mean() or a risk by rank, such as Superquantile(0.2) or Extremile(2), got {risk!r}. "
                "For Wasserstein balls and risks over clients use the robust estimators."
            )
        h = L2(DEFAULT_L2) if self.regulariser is None else self.regulariser
        return Problem(self._loss(), Linear(bool(self.fit_intercept)), risk, Mean(), h)

    def risk_report(self) -> list[dict[str, Any]]:
        """One row per group, in the order of first appearance; without groups one row, "all". On the training rows.

        group · n : rows · loss : their mean loss · weight : what the risk gives them together at the model (for the
        mean, their share of the rows) · a classifier: positives, selected, tpr, fpr, fnr, accuracy, as in
        `quorate.group_rates`, the second of ``classes_`` being positive · a regressor: mae, their mean absolute error
        """
        check_is_fitted(self)
        return [{"group": name, **scores} for name, scores in self.group_scores_.items()]


class RiskClassifier(TwoClasses, _RankLinear):
    """Linear classifier of two classes that minimises a risk by rank: the worst tail, a ranked range, and so on.

    Parameters
    ----------
    risk : how losses are weighed by their rank. ``Superquantile(tail=0.2)`` (None) is the mean of the worst fifth;
        ``Mean()``, ``Extremile(r)``, ``ExponentialSpectral(rho)``, ``TopK(k)``, ``Maximum()`` and ``Spectral(weights)``
        are convex too; ``RankedRange(k, m)``, ``Median()``, ``ValueAtRisk(level)``, ``HumanAligned(a, b)`` and
        ``ProspectTheory()`` are not
    loss : a loss of the margin: ``Logistic()`` (None), ``Hinge()``, ``SmoothHinge()`` or ``Exponential()``
    regulariser : h of the coefficients; None is ``L2(1e-4)``: small, and enough for a proven lower bound
    fit_intercept : add an intercept, unpenalised
    algorithm, engine, max_rounds : as in `quorate.solve`
    tol : relative gap between value and proven bound at which to stop; of risks that are not convex, as their algorithm
        says
    warm_start : start from the coefficients of the last fit
    random_state : seed of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the two labels, sorted; the second is the positive one
    coef_, intercept_ : (1, d) and (1,)
    risk_weights_ : (n,) the weight that the risk gives each training row at the model, by the rank of its loss; equal
        losses share theirs
    losses_ : (n,) the training rows' losses; ``risk_weights_ @ losses_`` is the risk
    group_scores_ : by group, the rows of `risk_report`
    certificate_ : value, proven lower bound, gap; ``bound`` is None where the risk is not convex
    history_, n_iter_ : one row a round; the number of rounds
    solution_ : the solution of the problem
    loss_ : the loss used

    Notes
    -----
    Every row is one of the ranked, so that there is no ``sample_weight``: repeat rows instead. Rows in another order
    give the same model bit for bit. For risks that a spectrum defines (``Superquantile``, ``Extremile``,
    ``ExponentialSpectral``, ``HumanAligned``) so does, within ``tol``, every row given twice; ``TopK`` and
    ``RankedRange`` count rows, and ``Maximum`` looks at one.

    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes them on. A
    ``ConvergenceWarning`` says that the algorithm stopped before it was done. Where the risk or the regulariser is not
    convex ``certificate_.bound`` is None: the model is the best of several starts, ``certificate_.residuals`` say how
    far it is from stationary, and the warning comes only where it did not settle.

    A small tail looks at the worst rows only. Where no line does better on them than on a coin's toss, zero
    coefficients are the optimum, and `TrivialModelWarning` says so.

    Examples
    --------
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X, clinic = rng.standard_normal((200, 3)), np.where(rng.random(200) < 0.3, "small", "large")
    >>> y = np.where(X[:, 0] + 0.3 * rng.standard_normal(200) > 0, "ill", "fine")
    >>> model = qr.RiskClassifier(qr.Superquantile(tail=0.3)).fit(X, y, groups=clinic)
    >>> bool(model.certificate_.relative_gap <= 1e-6)
    True
    >>> sorted(row["group"] for row in model.risk_report())
    ['large', 'small']
    >>> sorted(model.fairness_report(privileged="large"))
    ['AOD', 'DI', 'EOD', 'FNRD', 'SPD', 'TI']
    """

    default_loss: ClassVar[Any] = Logistic()
    losses_to_use: ClassVar[str] = "Logistic(), Hinge(), SmoothHinge() or Exponential()"

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit to rows and labels.

        Parameters
        ----------
        X : (n, d) array or sparse matrix; `RankADMM` works on a dense copy of at most 2 GiB, `Bundle` keeps it sparse
        y : (n,) labels of two classes
        groups : (n,) such as a sensitive attribute or a client, for `risk_report` and `fairness_report` only

        Raises
        ------
        ValueError
            other than two classes, a loss of residuals, values that are not finite, fewer rows than the risk counts
        TypeError
            a risk that does not rank rows
        """
        X, y = arrays(self, X, y)
        coded, parts = self._code(y), _parts(groups, X.shape[0])
        w, score = self._fit(X, coded, parts, classes=(-1, 1))
        self._set(w)
        names = np.empty(len(coded), object)
        for name, own in parts.items():
            names[own] = name
        for name, rates in group_rates(coded > 0, score > 0, names, positive=True).items():
            self.group_scores_[name] |= {key: value for key, value in asdict(rates).items() if key != "rows"}
        return self

    def fairness_report(self, privileged: Any) -> dict[str, float]:
        """The metrics of `quorate.fairness_metrics` on the training rows: SPD, DI, EOD, AOD, TI, FNRD.

        For other rows call ``quorate.fairness_metrics(y, model.predict(X), group, privileged, model.classes_[1])``.

        Parameters
        ----------
        privileged : name of the privileged group (compared as text); all other rows are the other group

        Raises
        ------
        ValueError
            no such group, or no rows outside it
        """
        check_is_fitted(self)
        if len(self.group_scores_) < 2:
            raise ValueError(
                f"fairness compares two groups or more, and fit got {list(self.group_scores_)} only: pass groups=<the "
                "group of each row> to fit."
            )
        columns = zip(*[_counted(name, scores) for name, scores in self.group_scores_.items()], strict=True)
        truth, chosen, names = (np.concatenate(parts) for parts in columns)
        return fairness_metrics(truth, chosen, names, str(privileged), positive=True)


class RiskRegressor(RealTargets, _RankLinear):
    """Linear regression that minimises a risk by rank of the losses of the residuals.

    Parameters, attributes and notes are those of `RiskClassifier`, except:

    Parameters
    ----------
    loss : a loss of the residual, in units of y: ``Squared()`` (None), ``Huber()``, ``Absolute()``,
        ``EpsilonInsensitive()``; ``Quantile()`` with a convex risk

    Attributes
    ----------
    coef_, intercept_ : (d,) and a number

    Examples
    --------
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = X @ [1.0, 2.0, 0.0] + 0.1 * rng.standard_normal(200)
    >>> model = qr.RiskRegressor(qr.Extremile(3)).fit(X, y)
    >>> model.coef_.round(1) + 0.0
    array([1., 2., 0.])
    """

    default_loss: ClassVar[Any] = Squared()
    losses_to_use: ClassVar[str] = "Squared(), Huber(), Absolute(), EpsilonInsensitive() or Quantile()"

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit to rows and targets (n,); otherwise as `RiskClassifier.fit`."""
        X, y = arrays(self, X, y, y_numeric=True)
        parts = _parts(groups, X.shape[0])
        w, score = self._fit(X, np.asarray(y, float), parts)
        self._set(w)
        for name, own in parts.items():
            self.group_scores_[name]["mae"] = float(np.abs(score - y)[own].mean())
        return self


def _parts(groups: Any, n: int) -> dict[str, Any]:
    """The rows of every group, by its name; without groups all rows are "all"."""
    names, picks = grouped(["all"] * n if groups is None else groups, n)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"groups has {', '.join(twice)} both as text and as another type: give all entries one type.")
    return dict(zip(names, picks, strict=True))


def _in_order(solution: Solution, order: NDArray[np.intp]) -> Solution:
    """The solution of the rows as given, from that of the rows in this order: where duals are by row, they move."""
    back, duals = np.argsort(order), solution.duals
    if duals is None:
        return solution
    moved = {name: part[back] for name in ("rows", "split") if (part := getattr(duals, name)) is not None}
    return replace(solution, duals=replace(duals, **moved))


def _scores(losses: Array, weights: Array) -> dict[str, Any]:
    """What every report says of a group."""
    return {"n": len(losses), "loss": float(losses.mean()), "weight": float(weights.sum())}


def _counted(name: str, scores: Mapping[str, Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(truth, predicted, name) of as many rows as the group has, with its rates: all that fairness metrics look at."""
    n, positives = scores["n"], scores["positives"]
    hits = round(scores["tpr"] * positives) if positives else 0
    false = round(scores["fpr"] * (n - positives)) if n > positives else 0
    row = np.arange(n)
    truth = row < positives
    return truth, np.where(truth, row < hits, row - positives < false), np.full(n, name)


def _warn_if_constant(problem: Problem, fed: Federation, w: Array, solution: Solution, tol: float) -> None:
    """Say so where zero coefficients, with the intercept found, are as good as the model of a finished solve."""
    constant = np.append(np.zeros(len(w) - 1), w[-1] if problem.predictor.intercept else [])
    value, done = solution.certificate.value, solution.outcome.stop in (Stop.OPTIMAL, Stop.UNPROVEN)
    if done and problem.objective(constant, fed) <= value + tol * abs(value):
        warnings.warn(
            f"the best model found is a constant: with zero coefficients {problem.over_samples!r} of the losses, plus "
            "regulariser, is as small. Let the risk look at more rows (a larger tail, or Mean()), or regularise less.",
            TrivialModelWarning,
            stacklevel=4,
        )
