"""Linear models of a risk that weighs rows by the rank of their loss, as scikit-learn estimators.

    minimise over w, b:  R(l_1(w, b), ..., l_n(w, b)) + h(w),  R(z) = sum_i sigma_i z_[i],
            z_[1] <= ... <= z_[n]

Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*, (1), with an intercept
b that is free of h. All rows are one owner's: ranks are among all of them. Groups of rows play no
part in the model, only in its report.
"""

from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from bonafed.arrays import Array, Features, Label
from bonafed.data.federation import Federation
from bonafed.estimators.base import Classifier, FederatedModel, Plan, Regressor
from bonafed.estimators.rows import Groups, Rows, arrays, by_value, named_groups, rows_of_groups
from bonafed.fairness import fairness_metrics, group_rates
from bonafed.problem.losses import Logistic, Loss, Squared
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import Risk
from bonafed.problem.risks.weight_sets import Mean, Superquantile
from bonafed.solution.solution import Solution
from bonafed.solution.thresholds import tail_threshold

TAIL, ABOVE = 0.5, 2.0  # the default tail, and how many times the largest trivial one at least


@dataclass(eq=False, repr=False)
class _RankModel(FederatedModel):
    """The parameters of a problem with a risk by rank over the pooled rows, and that problem."""

    reports_clients: ClassVar[bool] = False
    group_scores_: dict[str, dict[str, Any]] = field(init=False)
    risk_weights_: Array = field(init=False)
    losses_: Array = field(init=False)

    risk: Risk | None = None
    _: KW_ONLY
    loss: Loss | None = None
    tol: float | None = 1e-6

    def fit(self, X: Features, y: ArrayLike, *, groups: Groups | None = None) -> Self:
        """Fit to rows and labels or targets; without groups all rows are in the group "all".

        Parameters
        ----------
        X : (n, d) array or sparse matrix; `RankADMM` works on a dense copy of at most 2 GiB,
            `Bundle` keeps it sparse
        y : (n,) labels of two classes; of a regression targets
        groups : (n,) such as a sensitive attribute or a client, for `risk_report` and
            `fairness_report` only

        Raises
        ------
        ValueError
            other than two classes, a loss of the other kind, values that are not finite, fewer
            rows than the risk counts
        TypeError
            a risk that does not rank rows
        """
        X, groups = named_groups(self, X, groups)
        rows, targets = arrays(self, X, y)
        names = ["all"] * len(targets) if groups is None else groups
        rows_of_groups(names, len(targets))  # raises where they do not fit
        return self._fit(Rows(rows, targets, names, None))

    def _federation(self, rows: Rows) -> Federation:
        """The rows as one client, in an order of their values, so that the model does not depend on
        the order of the rows in the table; the column "row" says which row each is.
        """
        targets, classes = self._targets(rows.y)
        order = by_value(rows.X, targets)[0]
        given: dict[str, Any] = {"classes": classes, "columns": {"row": (order,)}}
        given["feature_names"] = tuple(self._features())
        return Federation(("pooled",), (rows.X[order],), (targets[order],), **given)

    def _problem(self, fed: Federation) -> Problem:
        risk = self._default_risk(fed) if self.risk is None else self.risk
        if not isinstance(risk, Mean) and not by_rank(risk):
            raise TypeError(
                "risk must be Mean() or a risk by rank, such as Superquantile(0.2) or"
                f" Extremile(2), got {risk!r}. For Wasserstein balls and risks over clients use the"
                " robust estimators."
            )
        return Problem(self._loss(), self._linear(), risk, Mean(), self._regulariser(fed))

    def _default_risk(self, fed: Federation) -> Superquantile:
        """The mean of the larger losses: of half of them, where that is not a trivial model."""
        return Superquantile(TAIL)

    def _plan(self, problem: Problem, fed: Federation) -> Plan:
        return Plan(self.algorithm, self.engine, fed)

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        super()._keep(solution, fed, rows)
        problem, order = solution.problem, (fed.columns or {})["row"][0]
        back = np.argsort(order)
        self.losses_ = problem.loss.value(self._scores(rows.X), fed.y[0][back].astype(float))
        self.risk_weights_ = np.empty(len(rows.y))
        self.risk_weights_[order] = problem.row_weights(self.losses_[order][None], fed.block(0))[0]
        if (duals := self.solution_.duals) is not None:  # by row, in the caller's order
            stated = {name: getattr(duals, name) for name in ("rows", "split")}
            moved = {name: part[back] for name, part in stated.items() if part is not None}
            self.solution_ = replace(self.solution_, duals=replace(duals, **moved))
        self.group_scores_ = {
            name: {
                "n": len(self.losses_[picked]),
                "loss": float(self.losses_[picked].mean()),
                "weight": float(self.risk_weights_[picked].sum()),
            }
            for name, picked in rows_of_groups(rows.groups, len(rows.y)).items()
        }

    def risk_report(self) -> list[dict[str, Any]]:
        """One row per group, in the order of first appearance; without groups one row, "all". On
        the training rows.

        group · n : rows · loss : their mean loss · weight : what the risk gives them together at
        the model (for the mean, their share of the rows) · a classifier: positives, selected, tpr,
        fpr, fnr, accuracy, as in `bonafed.group_rates`, of ``positive_`` ·
        a regressor: mae, their mean absolute error
        """
        check_is_fitted(self)
        return [{"group": name, **scores} for name, scores in self.group_scores_.items()]


@dataclass(eq=False, repr=False)
class RiskClassifier(_RankModel, Classifier):
    """Linear classifier of two classes that minimises a risk by rank: the worst tail, a ranked
    range, and so on.

    Parameters
    ----------
    risk : how losses are weighed by their rank. None is ``Superquantile(tail)``, the mean of the
        worst half, or of more where a constant would be optimal for half of the rows
        (``solution_.problem.over_samples`` says which): twice the largest such tail. ``Mean()``,
        ``Extremile(r)``, ``ExponentialSpectral(rho)``, ``TopK(k)``, ``Maximum()`` and
        ``Spectral(weights)`` are convex too; ``RankedRange(k, m)``, ``Median()``,
        ``ValueAtRisk(level)``, ``HumanAligned(a, b)`` and ``ProspectTheory()`` are not
    positive : the class that figures and reports call positive; None: the second of ``classes_``
    loss : a loss of the margin: ``Logistic()`` (None), ``Hinge()``, ``SmoothHinge()`` or
        ``Exponential()``
    regulariser : h of the coefficients; None is ``L2(1 / n)`` of n rows, as in scikit-learn
    fit_intercept : add an intercept, unpenalised
    algorithm, engine, max_rounds : as in `bonafed.solve`
    tol : relative gap between value and proven bound at which to stop; of risks that are not
        convex, as their algorithm says
    warm_start : start from the coefficients of the last fit
    random_state : seed of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the two labels, sorted; scores above 0 mean the second
    positive_ : the class that figures call positive
    coef_, intercept_ : (1, d) and (1,)
    risk_weights_ : (n,) the weight that the risk gives each training row at the model, by the rank
        of its loss; equal losses share theirs
    losses_ : (n,) the training rows' losses; ``risk_weights_ @ losses_`` is the risk
    group_scores_ : by group, the rows of `risk_report`
    certificate_ : value, proven lower bound, gap; ``bound`` is None where the risk is not convex
    history_, n_iter_ : one row a round; the number of rounds
    solution_ : the solution of the problem
    loss_ : the loss used

    Notes
    -----
    Every row is one of the ranked, so that there is no ``sample_weight`` and no ``class_weight``:
    repeat rows instead. Rows in another order give the same model bit for bit. For risks that a
    spectrum defines (``Superquantile``, ``Extremile``, ``ExponentialSpectral``, ``HumanAligned``)
    so does, within ``tol`` and with a stated regulariser, every row given twice; ``TopK`` and
    ``RankedRange`` count rows, and ``Maximum`` counts one.

    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes
    them on. A ``ConvergenceWarning`` says that the algorithm stopped before it was done. Where the
    risk or the regulariser is not convex ``certificate_.bound`` is None: the model is the best of
    several starts, ``certificate_.residuals`` say how far it is from stationary, and the warning
    comes only where it did not settle.

    A small tail counts the worst rows only. Where no line does better on them than on a coin's
    toss, zero coefficients are the optimum, and `TrivialModelWarning` says so.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, clinic = rng.standard_normal((200, 3)), np.where(rng.random(200) < 0.3, "small", "large")
    >>> y = np.where(X[:, 0] + 0.3 * rng.standard_normal(200) > 0, "ill", "fine")
    >>> model = bf.RiskClassifier(bf.Superquantile(tail=0.3)).fit(X, y, groups=clinic)
    >>> bool(model.certificate_.relative_gap <= 1e-6)
    True
    >>> sorted(row["group"] for row in model.risk_report())
    ['large', 'small']
    >>> sorted(model.fairness_report(privileged="large"))
    ['AOD', 'DI', 'EOD', 'FNRD', 'SPD', 'TI']
    """

    default_loss: ClassVar[Loss] = Logistic()
    losses_to_use: ClassVar[str] = "Logistic(), Hinge(), SmoothHinge() or Exponential()"

    _: KW_ONLY
    positive: Label | None = None

    def _default_risk(self, fed: Federation) -> Superquantile:
        """Half of the losses, or twice the largest tail at which a constant is optimal."""
        problem = Problem(self._loss(), self._linear(), Superquantile(TAIL))
        largest = tail_threshold(problem, fed, TAIL / ABOVE).value
        return Superquantile(min(1.0, max(TAIL, ABOVE * largest)))

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        super()._keep(solution, fed, rows)
        names = np.empty(len(rows.y), object)
        for name, picked in rows_of_groups(rows.groups, len(rows.y)).items():
            names[picked] = name
        second = self.positive_ == self.classes_.tolist()[1]
        truth, selected = rows.y == self.positive_, (self._scores(rows.X) > 0) == second
        for name, rates in group_rates(truth, selected, names, positive=True).items():
            self.group_scores_[name] |= {k: v for k, v in asdict(rates).items() if k != "rows"}

    def fairness_report(self, privileged: Label) -> dict[str, float]:
        """The metrics of `bonafed.fairness_metrics` on the training rows: SPD, DI, EOD, AOD, TI,
        FNRD.

        For other rows call ``bonafed.fairness_metrics(y, model.predict(X), group, privileged,
        model.positive_)``.

        Parameters
        ----------
        privileged : name of the privileged group (compared as text); all other rows are the other
            group

        Raises
        ------
        ValueError
            no such group, or no rows outside it
        """
        check_is_fitted(self)
        if len(self.group_scores_) < 2:
            raise ValueError(
                f"fairness compares two groups or more, and fit got {list(self.group_scores_)}"
                " only: pass groups=<the group of each row> to fit."
            )
        columns = []  # as many rows as a group has, with its rates: all that metrics look at
        for name, scores in self.group_scores_.items():
            n, positives = scores["n"], scores["positives"]
            hits = round(scores["tpr"] * positives) if positives else 0
            false = round(scores["fpr"] * (n - positives)) if n > positives else 0
            row = np.arange(n)
            real = row < positives
            columns.append((real, np.where(real, row < hits, row - positives < false), [name] * n))
        truth, chosen, names = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return fairness_metrics(truth, chosen, names, str(privileged), positive=True)


@dataclass(eq=False, repr=False)
class RiskRegressor(_RankModel, Regressor):
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
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = X @ [1.0, 2.0, 0.0] + 0.1 * rng.standard_normal(200)
    >>> model = bf.RiskRegressor(bf.Extremile(3)).fit(X, y)
    >>> model.coef_.round(1) + 0.0
    array([1., 2., 0.])
    """

    default_loss: ClassVar[Loss] = Squared()
    losses_to_use: ClassVar = "Squared(), Huber(), Absolute(), EpsilonInsensitive() or Quantile()"

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        super()._keep(solution, fed, rows)
        off = np.abs(self._scores(rows.X) - rows.y)
        for name, picked in rows_of_groups(rows.groups, len(rows.y)).items():
            self.group_scores_[name]["mae"] = float(off[picked].mean())
