"""Linear classifier of two classes under constraints on every client's rows, as a scikit-learn
estimator.

    minimise over w, b:  R(f_1(w, b), ..., f_N(w, b)) + h(w)  subject to  c_0(w, b) <= 0,
            c_i(w, b) <= 0 for all i

f_i is the mean loss of client i's rows, or of its rows of one class; R their weighted mean, or a
risk. He, Peng, Sun, *Federated learning with convex global and local constraints*, (5) with a mean
or sum as R; with one class in f_i and the other in c_i it is Neyman-Pearson classification, (30).
The intercept b is free of h.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _num_samples

from bonafed.algorithms.federated.interior_point import InteriorPoint
from bonafed.arrays import Features, Label
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation
from bonafed.estimators.base import Classifier, ClassWeight, Plan
from bonafed.estimators.rows import (
    Columns,
    Groups,
    Rows,
    arrays,
    centred,
    check_rows,
    columns_of,
    merged,
    named,
    present,
)
from bonafed.problem.constraints import group_means
from bonafed.problem.constraints.constraint import Slot, Stated, several
from bonafed.problem.constraints.custom import FunctionConstraint
from bonafed.problem.constraints.group_means import Coupled, Shared
from bonafed.problem.constraints.linear import OnModel
from bonafed.problem.losses import Logistic, Loss
from bonafed.problem.lower_bounds import Multipliers, no_multipliers, owners
from bonafed.problem.problem import Problem
from bonafed.problem.risks.risk import Prior, Risk
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import Outcome, Stop
from bonafed.solution.plan import SMALL, second_order
from bonafed.solution.solution import Solution
from bonafed.solution.tables import gains

Parity = group_means.DemographicParity | group_means.EqualisedOdds
# (X0, y0), or (X0, y0, columns)
ServerRows = tuple[Features, ArrayLike] | tuple[Features, ArrayLike, Columns]


class InfeasibleProblemError(ValueError):
    """No model meets all constraints, which is proved. The text names the owners whose limits are
    in conflict.

    Attributes
    ----------
    owners : names of the clients in conflict, beside them "all clients together" and "the server"
        where they are
    model : a fitted copy of the estimator: the model that breaks its constraints least. Its
        ``constraints_`` say which and by how much

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> X, y = np.array([[0.0], [0.0]]), np.array(["no", "yes"])
    >>> limits = [bf.NeymanPearson("no", 0.1), bf.NeymanPearson("yes", 0.1)]
    >>> model = bf.ConstrainedClassifier(local_constraint=limits)
    >>> try:
    ...     model.fit(X, y, groups=["a", "a"])
    ... except bf.InfeasibleProblemError as error:
    ...     print(error.owners)
    ('a',)
    """

    def __init__(
        self,
        text: str,
        owners: tuple[ClientName, ...] = (),
        model: "ConstrainedClassifier | None" = None,
    ) -> None:
        super().__init__(text)
        self.owners = owners
        self.model = model


@dataclass(eq=False, repr=False)
class ConstrainedClassifier(Classifier):
    """Linear classifier of two classes that keeps bounds on every client's rows, or proves that no
    model can.

    Parameters
    ----------
    loss : a loss of the margin: ``Logistic()`` (None), ``SmoothHinge()``, ``Exponential()``
    positive : the class that figures and reports call positive; None: the second of ``classes_``
    class_weight : None, "balanced" or a mapping by class, as of `RobustClassifier`; constraints
        read the weights of rows, too
    constraint : None, one or a tuple: on all clients together (``Coupled(...)``, and without
        ``fit(server=...)`` also ``DemographicParity`` and ``EqualisedOdds``), on the model only
        (``Sign``, ``Monotone``, ``CostLimit``, ``LinearInequality``), or on the rows of
        ``fit(server=...)``. Parity is of mean probabilities unless its ``measure`` says otherwise:
        equal mean scores can be had by selecting nearly everybody
    local_constraint : None, one or a tuple, on every client's own rows: ``NeymanPearson(label,
        level)``, ``LossGap(column, level)``, ``BoundedGroupLoss``, ``DemographicParity``,
        ``EqualisedOdds``, ``Constraint``. A level by client name may name more clients than are
        present
    objective_label : the class whose rows are the only ones in the objective, as in Neyman-Pearson
        classification; None: all rows. ``prior`` weighs clients all the same; one without such rows
        adds 0
    prior : weights of the clients in the objective: "size", "uniform", weights that sum to one, or
        a mapping by name
    over_clients : a risk over the clients' losses, such as ``Simplex()`` (the worst client's),
        ``LpBall(radius)``, ``Superquantile(tail)`` or ``Sum()``, instead of their mean by ``prior``
    regulariser : h of the coefficients; None is ``L2(1 / n)`` of n rows, as in scikit-learn
    fit_intercept : add an intercept, unpenalised. With it a model has one coefficient more: C of
        ``LinearInequality`` and a ``Constraint``'s w end with it
    algorithm, engine : as in `bonafed.solve`; None is `InteriorPoint` up to 500 coefficients where
        all has second derivatives, else the default of `bonafed.solve`
    tol, max_rounds : of the algorithm; None: its own
    warm_start : start from the coefficients of the last fit
    random_state : seed of algorithms that draw random numbers

    Attributes
    ----------
    classes_ : the two labels, sorted; scores above 0 mean the second
    positive_ : the class that figures and reports call positive
    coef_, intercept_ : (1, d) and (1,)
    clients_ : (N,) names of the clients, in the order of first appearance
    client_weights_ : (N,) their weights in the objective; under a risk the worst ones, at the model
    constraints_ : one dict for every constraint and owner: owner, constraint, limit, measured,
        slack, price, met
    multipliers_ : ``server``, ``shared``, ``local`` (N, p), in the scale of the objective
    prices_ : in words, what relaxing the dearest limits would gain
    outcome_ : why the run ended, ``outcome_.text`` in words
    certificate_ : value, proven lower bound, gap (None where not convex), violation, KKT residuals
    history_, n_iter_ : one row a round; the number of rounds
    solution_ : the solution of the problem
    loss_ : the loss used

    Notes
    -----
    A level bounds a mean of the loss (or of scores), not an error rate: `client_report` has both
    side by side. For other rows ``bonafed.group_rates(y, model.predict(X), groups,
    model.positive_)`` has every client's ``fnr`` and ``fpr``, and `WorstClassError` is a scorer.

    ``fit`` never returns a model that breaks its constraints silently. Where no model meets them,
    and this is proved, it raises `InfeasibleProblemError`; a ``ConvergenceWarning`` says that the
    run stopped before it was done, or that the result is not proved where it could be. For
    constraints that are not convex (``LossGap``) the model meets the conditions of optimality,
    ``certificate_.bound`` is None, and there is no warning.

    ``fit`` requests ``groups`` and ``sensitive_features``, so with metadata routing enabled a
    Pipeline or GridSearchCV passes them on. A ``sample_weight`` equals repeating rows; a
    ``Constraint`` of one's own does not see it, and it is refused beside one. Features that
    constraints name are those of the table ``fit`` gets, after a Pipeline's steps.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, clinic = rng.standard_normal((200, 3)), np.where(rng.random(200) < 0.3, "small", "large")
    >>> y = np.where(X[:, 0] + 0.5 * rng.standard_normal(200) > 0, "ill", "fine")
    >>> model = bf.ConstrainedClassifier(objective_label="fine",
    ...     local_constraint=bf.NeymanPearson("ill", 0.2))
    >>> [row["met"] for row in model.fit(X, y, groups=clinic).constraints_]
    [True, True]
    >>> bool(max(row["measured"] for row in model.constraints_) <= 0.2 + 1e-6)
    True
    >>> bool(model.certificate_.relative_gap <= 1e-6)
    True
    """

    default_loss: ClassVar[Loss] = Logistic()
    alone: ClassVar[str] = "local constraints hold for the pooled rows only"
    losses_to_use: ClassVar[str] = "Logistic(), SmoothHinge() or Exponential()"
    report_keys: ClassVar = ("client", "n", "loss", "weight", "limit", "measured", "slack", "price")
    # scikit-learn's protocol
    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012
    outcome_: Outcome = field(init=False)
    multipliers_: Multipliers = field(init=False)
    constraints_: list[dict[str, Any]] = field(init=False)
    prices_: list[str] = field(init=False)

    loss: Loss | None = None
    _: KW_ONLY
    positive: Label | None = None
    class_weight: ClassWeight = None
    constraint: Slot = None
    local_constraint: Slot = None
    objective_label: Label | None = None
    prior: Prior = "size"
    over_clients: Risk | None = None

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        *,
        groups: Groups | None = None,
        sensitive_features: Columns | None = None,
        sample_weight: ArrayLike | None = None,
        server: ServerRows | None = None,
    ) -> Self:
        """Fit to rows, labels and the client of each row.

        Parameters
        ----------
        X : (n, d) array, table or sparse matrix
        y : (n,) labels of two classes
        groups : (n,) client of each row; without it all rows are one client, and
            `MissingGroupsWarning` is issued
        sensitive_features : the columns that constraints name: a table, a mapping of (n,) arrays by
            name, a named Series, or one (n,) array where they name one column. In cross-validation
            give a table or an array: a mapping is not split
        sample_weight : (n,) weights >= 0; a row of weight 0 is as good as absent
        server : ``(X0, y0)`` or ``(X0, y0, columns)``, rows that the server holds, for
            ``constraint``; features as in X

        Raises
        ------
        InfeasibleProblemError
            no model meets all constraints; the estimator is then not fitted
        ValueError
            other than two classes, a loss of residuals, values that are not finite, constraints or
            priors that do not fit the data
        TypeError
            constraints that are none
        """
        rows = check_rows(self, X, y, groups, sample_weight)
        together, held = self._slot(server is not None)
        names = named([*together, *several(self.local_constraint, "local_constraint")])
        columns = columns_of(sensitive_features, names, _num_samples(X), self._features())
        rows = replace(rows, columns={name: c[rows.kept] for name, c in columns.items()})
        return self._fit(replace(rows, server=self._server(server, named(held))))

    def _slot(self, server: bool) -> tuple[list[Coupled], list[Stated]]:
        """What ``constraint`` holds: of all clients together; of the server's rows or the model
        only. Where the server has none, parity is of all clients together.
        """
        parts: list[Stated] = [*several(self.constraint, "constraint")]
        if not server:
            parts = [Coupled(part) if isinstance(part, Parity) else part for part in parts]
        together = [part for part in parts if isinstance(part, Coupled)]
        return together, [part for part in parts if not isinstance(part, Coupled)]

    def _federation(self, rows: Rows) -> Federation:
        """One client per group, with the labels of the data, which constraints name."""
        self._classes(rows.y)
        return rows.federation(rows.X, rows.y, np.asarray(self.classes_.tolist()), self._features())

    def _server(self, server: ServerRows | None, names: list[str]) -> Federation | None:
        if server is None:
            return None
        X, y = arrays(self, server[0], server[1], reset=False)
        given, features = server[2] if len(server) == 3 else None, self._features()
        columns = columns_of(given, names, len(y), features).items()
        own = {name: (column,) for name, column in columns}
        return Federation(("server",), (X,), (y,), columns=own, feature_names=tuple(features))

    def _problem(self, fed: Federation) -> Problem:
        clients = Mean(self.prior) if self.over_clients is None else self.over_clients
        together, held = self._slot(fed.server is not None)
        own = fed if fed.server is None else fed.server
        local = several(self.local_constraint, "local_constraint")
        shared = (*(_present(part, fed) for part in together), *(_present(p, own) for p in held))
        return Problem(
            self._loss(),
            self._linear(),
            Mean(label=self.objective_label),
            centred(clients, fed),
            self._regulariser(fed),
            constraint=shared,
            local_constraint=tuple(_present(part, fed) for part in local),
        )

    def _plan(self, problem: Problem, fed: Federation) -> Plan:
        concrete, _ = problem.at(fed)
        small = concrete.predictor.dimension(fed.n_features) <= SMALL
        default = InteriorPoint() if small and second_order(concrete, fed) else None
        algorithm = default if self.algorithm is None else self.algorithm
        return Plan(algorithm, self.engine, _compact(concrete, fed))

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        """Store the fitted attributes; raise where no model meets the constraints."""
        super()._keep(solution, fed, rows)
        problem, duals = solution.problem.at(fed)[0], solution.duals
        self.outcome_, self.constraints_ = solution.outcome, solution.constraints
        known = isinstance(duals, Multipliers)
        self.multipliers_ = duals if known else no_multipliers(problem, fed.n_clients)
        convex = problem.local_constraint.convex and problem.constraint.convex
        # then the multipliers are no shadow prices
        proof = solution.outcome.stop is Stop.INFEASIBLE
        self.prices_ = [] if proof else gains(solution.constraints, convex=convex)
        if proof:
            who, model = owners(problem, self.multipliers_, fed.clients), copy.copy(self)
            for name in [*vars(self)]:  # the model is taken off the estimator
                if name.endswith("_") and not name.startswith("_"):
                    delattr(self, name)
            raise InfeasibleProblemError(model.outcome_.text, tuple(who), model)

    def _client_score(self, fed: Federation, i: int) -> dict[str, float | None]:
        """accuracy, selected, fnr, fpr of client i's rows, by their weights; NaN over no row."""
        X, y = fed.rows(i)
        truth = y == self.positive_
        selected = (self._scores(X) > 0) == (self.positive_ == self.classes_.tolist()[1])
        weight = np.ones(len(y)) if fed.sample_weight is None else fed.sample_weight[i]

        def mean(hit: NDArray[np.bool_], inside: NDArray[np.bool_]) -> float:
            if not inside.any():
                return math.nan
            return float(np.average(hit[inside], weights=weight[inside]))

        everyone = np.ones(len(y), bool)
        return {
            "accuracy": mean(selected == truth, everyone),
            "selected": mean(selected, everyone),
            "fnr": mean(~selected, truth),
            "fpr": mean(selected, ~truth),
        }


def _present(part: Stated, fed: Federation) -> Stated:
    """A constraint for the clients present (folds by client); "size" of a weighted row is its
    weight.
    """
    if isinstance(part, Coupled):
        by_rows = isinstance(part.prior, str) and part.prior == "rows"
        weights: Any = part.prior if by_rows else centred(part, fed).prior
        return replace(part, constraint=_present(part.constraint, fed), prior=weights)
    stated: Any = part
    if isinstance(part, Parity) and part.measure is None:
        stated = replace(part, measure=group_means.Probability())
    if not isinstance(getattr(part, "level", None), Mapping):
        return stated
    return replace(stated, level=present(stated.level, fed, "level"))


def _compact(concrete: Problem, fed: Federation) -> Federation:
    """Equal rows merged, where every constraint reads a row's weight."""
    stacked = *concrete.local_constraint.parts, *concrete.constraint.coupled.parts
    parts = [part.one if isinstance(part, Shared) else part for part in stacked]
    if all(isinstance(part, group_means.OnRows | OnModel) for part in parts):
        return merged(fed)
    uneven = any(np.ptp(fed.share(i)) > 1e-12 * fed.share(i).max() for i in range(fed.n_clients))
    if uneven and any(isinstance(part, FunctionConstraint) for part in parts):
        raise ValueError(
            "sample_weight is not for a Constraint by a function of one's own, which sees rows"
            " without weights: repeat rows, or leave sample_weight out."
        )
    return fed
