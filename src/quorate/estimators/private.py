"""Linear classifier within a total (epsilon, delta), as a scikit-learn estimator.

    minimise over w, b:  sum_i q_i f_i(w, b) + h(w),   by gradients of rows that are clipped, added up, and noised

f_i is the mean logistic loss of client i's rows, of as many classes as there are; `PrivateADMM` is the method. What a
fit leaves on the estimator has been paid for or is public, for a fitted estimator is pickled and travels: no objective,
no certificate, no table of losses, no times.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.algorithms.federated.private_admm import PrivateADMM
from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.data.rows import grouped
from quorate.engines.inprocess import InProcess
from quorate.estimators.fitting import DEFAULT_L2, Rows, check_rows, prior_of
from quorate.estimators.linear import LinearModel
from quorate.privacy.accounting import Release
from quorate.privacy.budget import Budget
from quorate.privacy.ledger import Ledger
from quorate.problem.losses import Logistic, Multinomial
from quorate.problem.predictors import Linear, Softmax
from quorate.problem.problem import Problem
from quorate.problem.regularisers import L2
from quorate.problem.risks.mean import Mean
from quorate.problem.risks.risk import resolve_prior
from quorate.rounds import Stop


class PrivateClassifier(ClassifierMixin, LinearModel):
    """Linear classifier of two classes or more that spends at most a total (epsilon, delta) on every row.

    Parameters
    ----------
    epsilon, delta : the total that this fit and all others in ``book`` may spend, see `Budget`
    rounds : the budget is spread over them: more rounds mean more noise in each
    clip : the gradient of a row is shortened to this norm, l2 (l1 for Laplace); None: a default for features of order
        one, see `PrivateADMM`
    bound : rows are shortened to this norm, l2 (l1 for Laplace), before anything else; None: not
    mechanism : "gaussian" or "laplace"; Laplace needs ``clip`` or ``bound``
    adjacency : "add-remove": data sets differ by one row more or less; "replace": one row is another one
    sizes : rows of every client as declared to everybody, ``{client: rows}`` or one number for all; None: the true
        numbers, which then are public
    book : file of all that is spent on these rows: every fit with the same book adds to it, before it touches a row
    spend : epsilon of this fit alone, with a ``book`` whose total is ``epsilon``; None: all that is left
    noise : "secure": from keys of the operating system; "simulation": from ``random_state``, for experiments. None:
        "secure" unless ``random_state`` is given
    classes : the labels as declared to everybody, among which a client need not have all; None: those of ``y``, which
        then are public
    prior : weights of the clients: "size", "uniform", weights that sum to one, or a mapping by name
    regulariser : h of the coefficients; None is ``L2(1e-4)``; ``Bounds`` limits them
    fit_intercept : add an intercept. Of two classes it is free of h, of more it is regularised as all coefficients
    rho, average : of `PrivateADMM`: penalty, None is its default; the mean of all models instead of the last
    random_state : seed of simulated noise; with secure noise it plays no part

    Attributes
    ----------
    classes_ : (C,) the labels, sorted
    coef_, intercept_ : (1, d) and (1,) of two classes, (C, d) and (C,) of more
    clients_ : (N,) names of the clients, sorted
    privacy_ : what was spent: ``privacy_.epsilon``, ``privacy_.text`` in words, ``privacy_.table()`` by client
    history_, n_iter_ : one row a round, of released numbers alone; the number of rounds
    loss_ : the loss used: ``Logistic()`` of two classes, ``Multinomial()`` of more

    Notes
    -----
    Public are the clients' names, the names and number of features, the parameters, ``classes`` and ``sizes`` (where
    they are not declared the true ones). All else that ``fit`` leaves is made of noised gradients. Objective,
    certificate and losses of a fit are exact functions of the rows, and so are not kept; ``score`` on private rows is
    one, too, and is for their owner.

    Nothing about the rows is fitted beside the model: scale features by numbers that do not come from them, such as
    the range a measurement can have. A scaler fitted on private rows is not paid for. Rows of different scale are
    clipped, which costs accuracy and no privacy.

    A search over parameters spends at every fit: with ``book`` and ``spend`` each is charged, and refused once the
    total is reached (`BudgetSpentError`); without a book every fit has a total of its own, and they add up. Scores by
    which a search chooses are not paid for where they come from private rows.

    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes them on. A row's
    weight would be private, so there is no ``sample_weight``; a fit never starts from an earlier one.

    Examples
    --------
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X, clinic = rng.standard_normal((2000, 3)), np.where(rng.random(2000) < 0.3, "small", "large")
    >>> y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(2000) > 0, "ill", "fine")
    >>> model = qr.PrivateClassifier(epsilon=1, delta=1e-6, classes=["fine", "ill"]).fit(X, y, groups=clinic)
    >>> 0.99 < model.privacy_.epsilon <= 1
    True
    >>> model.score(X, y) > 0.8
    True
    """

    classes_: NDArray[Any]
    clients_: NDArray[Any]
    privacy_: Ledger
    history_: list[dict[str, Any]]
    n_iter_: int

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        rounds: int = 100,
        clip: float | None = None,
        bound: float | None = None,
        mechanism: str = "gaussian",
        adjacency: str = "add-remove",
        sizes: Any = None,
        book: Any = None,
        spend: float | None = None,
        noise: str | None = None,
        classes: Any = None,
        prior: Any = "size",
        regulariser: Any = None,
        fit_intercept: bool = True,
        rho: Any = None,
        average: bool = False,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rounds = rounds
        self.clip = clip
        self.bound = bound
        self.mechanism = mechanism
        self.adjacency = adjacency
        self.sizes = sizes
        self.book = book
        self.spend = spend
        self.noise = noise
        self.classes = classes
        self.prior = prior
        self.regulariser = regulariser
        self.fit_intercept = fit_intercept
        self.rho = rho
        self.average = average
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Fit to rows, labels and the client of each row.

        Parameters
        ----------
        X : (n, d) array, table or sparse matrix
        y : (n,) labels
        groups : (n,) client of each row, who noises its own gradients; without it all rows are one client, and
            `MissingGroupsWarning` is issued

        Raises
        ------
        BudgetSpentError
            the book leaves less than the fit would spend; no row was touched
        ValueError
            parameters out of range, labels outside ``classes`` or of one class, values that are not finite
        """
        budget = self._budget()
        algorithm = self._algorithm(budget)
        rows = check_rows(self, X, y, groups, None, alone="one owner, who holds them all, adds the noise")
        classes, codes = self._coded(rows.y)
        solution = self._solved(self._federation(rows, codes, len(classes)), budget, algorithm, len(classes))
        # Of the solution only what is paid for: the rest is exact, and times follow the rows.
        self.classes_, self.clients_ = classes, np.array(list(solution.ledger.sizes))
        self.privacy_, self.n_iter_ = solution.ledger, solution.rounds
        self.history_ = [{key: value for key, value in row.items() if key != "seconds"} for row in solution.history]
        self.loss_ = solution.problem.loss
        self._set(solution.w, len(classes))
        if solution.outcome.stop is Stop.INTERRUPTED:
            warnings.warn(solution.outcome.text, ConvergenceWarning, stacklevel=2)
        return self

    # ---- parameters, before a row is looked at

    def _budget(self) -> Budget:
        sizes = _plain(self.sizes)
        if isinstance(sizes, Mapping):
            sizes = {str(name): _plain(n) for name, n in sizes.items()}
        return Budget(_plain(self.epsilon), _plain(self.delta), self.adjacency, sizes, self.book)

    def _algorithm(self, budget: Budget) -> PrivateADMM:
        rounds, spend, noise = _plain(self.rounds), _plain(self.spend), self.noise
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ValueError(f"rounds must be a whole number >= 1, got {self.rounds!r}: the budget is spread over it.")
        if spend is not None and self.book is None:
            raise ValueError(
                f"spend={spend!r} is a part of what a book allows, and there is none: give book=<a file>, or leave "
                "spend out, and the fit spends epsilon."
            )
        if spend is not None and not (isinstance(spend, int | float) and 0 < spend <= budget.epsilon):
            raise ValueError(
                f"spend must be > 0 and at most the total of the book, epsilon = {budget.epsilon:g}, got {spend!r}."
            )
        for name, value in (("average", self.average), ("fit_intercept", self.fit_intercept)):
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {value!r}.")
        if noise is None:
            noise = "secure" if self.random_state is None else "simulation"
        return _Share(
            max_rounds=rounds,
            mechanism=self.mechanism,
            clip=_plain(self.clip),
            bound=_plain(self.bound),
            rho=_plain(self.rho),
            average=bool(self.average),
            noise=noise,
            share=None if spend is None else replace(budget, epsilon=spend, book=None),
        )

    # ---- the problem

    def _coded(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The classes, sorted, and the place of every label among them (n,)."""
        check_classification_targets(y)
        values, place = np.unique(y, return_inverse=True)
        classes = values if self.classes is None else np.unique(np.asarray(self.classes))
        known = {label: k for k, label in enumerate(classes.tolist())}
        if len(known) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of two classes or more, got one class: {classes.tolist()}. Where "
                "these rows lack the others, declare all: classes=[...]."
            )
        others = [label for label in values.tolist() if label not in known]
        if others:
            raise ValueError(
                f"y has the labels {others[:5]}, which are not among the declared classes {classes.tolist()[:10]}: "
                "declare all, or leave these rows out."
            )
        return classes, np.array([known[label] for label in values.tolist()], np.intp)[place]

    def _federation(self, rows: Rows, codes: NDArray[np.intp], C: int) -> Federation:
        """One client per group, sorted by name: the order of their first rows would tell about those."""
        names, picks = grouped(rows.groups, len(codes))
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(
                f"groups has {', '.join(twice)} both as text and as another type: give all entries one type."
            )
        order = sorted(range(len(names)), key=names.__getitem__)
        X = self._with_ones(rows.X) if C > 2 and self.fit_intercept else rows.X
        targets, classes = (2 * codes - 1, np.array([-1, 1])) if C == 2 else (codes, np.arange(C))
        return Federation(
            tuple(names[k] for k in order),
            tuple(X[picks[k]] for k in order),
            tuple(targets[picks[k]] for k in order),
            classes=classes,
        )

    def _with_ones(self, X: Any) -> Any:
        """(n, d + 1): `Softmax` has its intercepts as the coefficients of ones, which no bound may shorten."""
        if self.bound is not None:
            length = np.asarray(abs(X).sum(1) if self.mechanism == "laplace" else np.sqrt(_squares(X))).ravel()
            factor = float(self.bound) / np.maximum(length, float(self.bound))
            X = X * factor[:, None] if isinstance(X, np.ndarray) else csr_array(X.multiply(factor[:, None]))
        ones = np.ones((X.shape[0], 1))
        return np.hstack([X, ones]) if isinstance(X, np.ndarray) else hstack([X, ones], "csr")

    def _solved(self, fed: Federation, budget: Budget, algorithm: PrivateADMM, C: int) -> Any:
        from quorate.solution import solve

        prior = self._prior(fed, budget) if isinstance(self.prior, Mapping) else self.prior
        h = L2(DEFAULT_L2) if self.regulariser is None else self.regulariser
        loss: Any = Logistic() if C == 2 else Multinomial()
        predictor = Linear(bool(self.fit_intercept)) if C == 2 else Softmax(C)
        if algorithm.bound is not None and C > 2 and self.fit_intercept:
            longer = algorithm.bound + 1 if self.mechanism == "laplace" else math.hypot(algorithm.bound, 1)
            algorithm = replace(algorithm, bound=longer)
        seed = self.random_state
        return solve(
            Problem(loss, predictor, Mean(), Mean(prior), h, privacy=budget),
            fed,
            algorithm=algorithm,
            engine=InProcess("blocks" if budget.sizes is None else "each"),  # sums in blocks follow the true sizes
            seed=int(seed if isinstance(seed, int | np.integer) else check_random_state(seed).randint(2**31)),
        )

    def _prior(self, fed: Federation, budget: Budget) -> Any:
        """Weights of all who take part: with sizes by name those who are declared, rows or none."""
        if not isinstance(budget.sizes, Mapping):
            return prior_of(self.prior, fed)
        names = {str(name): _plain(weight) for name, weight in self.prior.items()}
        if odd := [name for name in budget.sizes if name not in names]:
            raise ValueError(f"prior has no weight for {', '.join(odd[:5])}, declared in sizes: give one for each.")
        resolve_prior(list(names.values()), np.ones(len(names)))
        total = sum(names[name] for name in budget.sizes)
        if not total > 0:
            raise ValueError("prior has no positive weight for the clients declared in sizes.")
        return {name: names[name] / total for name in budget.sizes}

    # ---- the model

    def _set(self, w: Array, C: int) -> None:
        if C == 2:
            self.coef_, self.intercept_ = (w[None, :-1], w[-1:]) if self.fit_intercept else (w[None], np.zeros(1))
            return
        matrix = w.reshape(-1, C).T
        parts = (matrix[:, :-1], matrix[:, -1]) if self.fit_intercept else (matrix, np.zeros(C))
        self.coef_, self.intercept_ = (np.ascontiguousarray(part) for part in parts)

    def decision_function(self, X: Any) -> Array:
        """(n,) scores of two classes, above 0 means ``classes_[1]``; (n, C) of more."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        scores = safe_sparse_dot(X, self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) labels."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]

    def predict_proba(self, X: Any) -> Array:
        """(n, C) probabilities of ``classes_``. Clipping draws them towards each other."""
        scores = self.decision_function(X)
        return np.column_stack([expit(-scores), expit(scores)]) if scores.ndim == 1 else softmax(scores, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise == "secure"
        return tags


@dataclass(frozen=True)
class _Share(PrivateADMM):
    """With the noise that keeps ``share``, even where the problem's budget allows less noise; the book may refuse."""

    share: Budget | None = None

    def planned(self, problem: Problem, fed: Any, spent: Sequence[Release] = ()) -> PrivateADMM:
        if self.share is None:
            return super().planned(problem, fed, spent)
        return replace(super().planned(replace(problem, privacy=self.share), fed), problem=problem)


def _plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's: what ``np.linspace`` makes is a parameter, too."""
    return value.item() if isinstance(value, np.generic) else value


def _squares(X: Any) -> Any:
    return (X**2 if isinstance(X, np.ndarray) else X.multiply(X)).sum(1)
