"""Linear classifier within a total (epsilon, delta), as a scikit-learn estimator.

    minimise over w, b:  sum_i q_i f_i(w, b) + h(w),
            by gradients of rows that are clipped, added up, and noised

f_i is the mean logistic loss of client i's rows, of as many classes as there are; the method is
`PrivateSGD`, where ranges of the features are declared on `private_rows`. What a fit leaves on the
estimator has been paid for or is public, for a fitted estimator is pickled and travels: no
objective, no certificate, no table of losses, no times.

Rows of a private classifier with declared ranges: centred at a noisy mean, and of length 1.

    z = (x - middle) / half,      row = (z - mu, 0.15 sqrt(d)) / its length

so that all rows count alike where gradients are clipped. The last entry is the intercept's: as it
is divided by the same length, every linear rule in x is one in these rows, and nothing is lost.

mu comes from one answer before all others, the clients' noisy sums of u = (z, k) / its length with
k = sqrt(d) / 2. Their mean is (a, b), and k a / b is a mean of the z in which shorter rows weigh
more. It is charged, see `Centring`; where noise exceeds it, it is shortened to nothing.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, hstack
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets

from bonafed.algorithms.federated.private.mechanism import MEAN_SIZE, ClientSizes
from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.federated.private_admm import PrivateADMM
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.arrays import Array, Features, Label, shape_of
from bonafed.client_names import ByClient, by_position
from bonafed.data.federation import Federation
from bonafed.data.row_errors import RowError, without_values
from bonafed.data.schema import middles, unit_rows
from bonafed.engines.inprocess import InProcess
from bonafed.estimators.base import Classifier, Plan, Seed, chosen, coefficients, seed_of
from bonafed.estimators.rows import (
    Groups,
    Matrix,
    Rows,
    check_rows,
    names_of,
    prior_of,
    rows_of_groups,
    tables,
)
from bonafed.privacy import odometer
from bonafed.privacy.accounting import Release, noise_for, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.privacy.ledger import Ledger
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import Logistic, Loss, Multinomial, Squared
from bonafed.problem.metadata import Data
from bonafed.problem.predictors.affine import Linear, Softmax, with_ones
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.problem.risks.risk import Prior, resolve_prior
from bonafed.problem.risks.weight_sets import Mean
from bonafed.solution.solution import Solution
from bonafed.solution.solve import solve
from bonafed.solution.trivial import TrivialModelWarning
from bonafed.text import warn

FEW = 20  # rows that all get one class, of which that is nothing to be warned of
T = TypeVar("T")
Spent = Mapping[str, tuple[Release, ...]]  # by client


@dataclass(eq=False, repr=False)
class PrivateClassifier(Classifier):
    """Linear classifier of two classes or more that spends at most a total (epsilon, delta) on
    every row.

    Parameters
    ----------
    epsilon, delta : the total that this fit and all others in ``book`` may spend, see `Budget`
    rounds : the budget is spread over them: more rounds mean more noise in each
    clip : the gradient of a row is shortened to this norm, l2 (l1 for Laplace); None: a third of a
        row's length, see `PrivateSGD`
    bound : rows are shortened to this norm, l2 (l1 for Laplace), before anything else; None: not,
        or 1 with ``ranges``
    ranges : (low, high), the ranges of the features as declared to everybody, two numbers or two
        lists of d numbers: rows are scaled by them to -1 to 1, centred at a noisy mean of all rows,
        for which a tenth of the budget is spent in one answer before the rounds, and divided by
        their own length, an intercept's entry included; predictions do the same. There is no mean
        with Laplace noise, sparse rows or without an intercept. None: rows are taken as they are
    mechanism : "gaussian" or "laplace"; Laplace needs ``clip`` or ``bound``
    adjacency : "add-remove": data sets differ by one row more or less; "replace": one row is
        another one
    sizes : rows of every client as declared to everybody, ``{client: rows}`` or one number for all;
        None: the true numbers, which then are public
    book : the privacy ledger file, of all that is spent on these rows: every fit with the same file
        adds to it, before it touches a row
    spend : epsilon of this fit only, with a ledger file whose total is ``epsilon``; None: all that
        is left
    noise : "secure": from keys of the operating system; "simulation": from ``random_state``, for
        experiments. None: "secure" unless ``random_state`` is given
    classes : the labels as declared to everybody, among which a client need not have all; None:
        those of ``y``, which then are public
    positive : the class that figures and reports call positive; None: the last of ``classes_``
    prior : weights of the clients: "size", "uniform", weights that sum to one, or a mapping by name
    regulariser : h of the coefficients; None: none, ``L2(1e-4)`` with ``rho`` or ``average``;
        ``Bounds`` limits them
    fit_intercept : add an intercept. Of two classes without ``ranges`` it is free of h, else it is
        regularised as all coefficients
    rho, average : penalty, and the mean of all models instead of the last: of `PrivateADMM`, which
        is the method where either is given; not with ``ranges``
    view, missing : "answers": the total holds for anyone who sees every client's answers; "sum":
        for anyone who sees only the clients' sums and the model, with less noise, see `Budget`;
        with one client ``missing`` must be 0
    sampling : the probability with which a row takes part in a round, of `PrivateSGD`; None: all do
    repeat : what happens without ``book`` where this process has spent on the same rows before:
        "warn" says how much (`RepeatedRunWarning`), "error" refuses the fit (`BudgetSpentError`)
    random_state : seed of simulated noise; with secure noise it plays no part

    Attributes
    ----------
    classes_ : (C,) the labels, sorted
    coef_, intercept_ : (1, d) and (1,) of two classes, (C, d) and (C,) of more; with ``ranges`` the
        intercept is the coefficient of the last entry of the scaled rows
    centre_ : (d,) the noisy mean around which rows are scaled, with ``ranges``
    clients_ : (N,) names of the clients, sorted
    privacy_ : what was spent: ``privacy_.epsilon``, ``privacy_.text`` in words,
        ``privacy_.table()`` by client
    history_, n_iter_ : one row a round, of released numbers only; the number of rounds, without
        the answer that tells the mean
    loss_ : the loss used: ``Logistic()`` of two classes, ``Multinomial()`` of more

    Notes
    -----
    Public are the clients' names, the names and number of features, the parameters, ``classes`` and
    ``sizes`` (where they are not declared the true ones). All else that ``fit`` leaves is made of
    noised gradients. Objective, certificate and losses of a fit are exact functions of the rows,
    and so are not kept; ``score`` on private rows is one, too, and is for their owner.

    Nothing about the rows is fitted beside the model: scale features by numbers that do not come
    from them, such as the range a measurement can have. A scaler fitted on private rows is not paid
    for. Rows of different scale are clipped, which costs accuracy and no privacy.

    A search over parameters spends at every fit: with ``book`` and ``spend`` each is charged, and
    refused once the total is spent (`BudgetSpentError`); without a file every fit has a separate
    total, and they add up (`RepeatedRunWarning`). Scores by which a search chooses are not paid for
    where they come from private rows. `PrivateSearch` is charged as one procedure, scores included.

    ``fit`` requests ``groups``, so with metadata routing enabled a Pipeline or GridSearchCV passes
    them on. A row's weight would be private, so there is no ``sample_weight``; a fit never starts
    from an earlier one.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, clinic = rng.standard_normal((2000, 3)), np.where(rng.random(2000) < 0.3, "small",
    ...     "large")
    >>> y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(2000) > 0, "ill", "fine")
    >>> model = bf.PrivateClassifier(epsilon=1, delta=1e-6, classes=["fine", "ill"]).fit(X, y,
    ...     groups=clinic)
    >>> 0.99 < model.privacy_.epsilon <= 1
    True
    >>> model.score(X, y) > 0.8
    True
    """

    default_loss: ClassVar[Loss] = Logistic()
    several_classes: ClassVar[bool] = True
    alone: ClassVar[str] = "one owner, who holds them all, adds the noise"
    reports_clients: ClassVar[bool] = False
    # no parameters here, unlike those of the other estimators
    algorithm: ClassVar[Any] = None
    engine: ClassVar[Any] = None
    tol: ClassVar[float | None] = None
    max_rounds: ClassVar[int | None] = None
    warm_start: ClassVar[bool] = False
    privacy_: Ledger = field(init=False)
    centre_: Array = field(init=False)

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    rounds: int = 100
    clip: float | None = None
    bound: float | None = None
    ranges: tuple[ArrayLike, ArrayLike] | None = None
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    adjacency: Literal["add-remove", "replace"] = "add-remove"
    sizes: ByClient[int] | int | None = None
    book: str | os.PathLike[str] | None = None
    spend: float | None = None
    noise: Literal["secure", "simulation"] | None = None
    classes: ArrayLike | None = None
    positive: Label | None = None
    prior: Prior = "size"
    rho: float | Callable[[int], float] | None = None
    average: bool = False
    view: Literal["answers", "sum"] = "answers"
    missing: int = 1
    sampling: float | None = None
    repeat: Literal["warn", "error"] = "warn"
    random_state: Seed = None

    def fit(self, X: Features, y: ArrayLike, *, groups: Groups | None = None) -> Self:
        """Fit to rows, labels and the client of each row.

        Parameters
        ----------
        X : (n, d) array, table or sparse matrix
        y : (n,) labels
        groups : (n,) client of each row, who noises its own gradients; without it all rows are one
            client, and `MissingGroupsWarning` is issued

        Raises
        ------
        BudgetSpentError
            the privacy ledger leaves less than the fit would spend, or ``repeat`` is "error" and an
            earlier run has spent on these rows; nothing was released
        ValueError
            parameters out of range, labels outside ``classes`` or of one class, values that are not
            finite
        """
        budget = self._budget()
        algorithm = self._algorithm(budget)  # raises before a row is looked at
        with without_values(private=True):
            rows = check_rows(self, X, y, groups, None)
            if budget.book is not None or algorithm.noise != "secure":
                return self._fit(rows)
            # the centre's answer and the rounds are of the same rows, and together spend all of it
            with odometer.as_one(tables(rows), (algorithm.alone(budget),), budget):
                return self._fit(rows)

    # ---- parameters, before a row is looked at

    def _budget(self) -> Budget:
        sizes = _plain(self.sizes)
        if isinstance(sizes, Mapping):
            sizes = {name: _plain(n) for name, n in sizes.items()}
        epsilon, delta, missing = _plain(self.epsilon), _plain(self.delta), _plain(self.missing)
        return Budget(
            epsilon, delta, self.adjacency, sizes, self.book, self.view, missing, self.repeat
        )

    def _algorithm(self, budget: Budget) -> PrivateMethod:
        rounds, spend, noise = _plain(self.rounds), _plain(self.spend), self.noise
        if rounds < 1:
            raise ValueError(
                f"rounds must be a whole number >= 1, got {self.rounds!r}: the budget is spread"
                " over it."
            )
        if spend is not None and self.book is None:
            raise ValueError(
                f"spend={spend!r} is a part of what a privacy ledger allows, and there is none:"
                " give book=<a file>, or leave spend out, and the fit spends epsilon."
            )
        fits = isinstance(spend, int | float) and 0 < spend <= budget.epsilon
        if spend is not None and not fits:
            raise ValueError(
                "spend must be > 0 and at most the total of the privacy ledger, epsilon ="
                f" {budget.epsilon:g}, got {spend!r}."
            )
        if noise is None:
            noise = "secure" if self.random_state is None else "simulation"
        common: dict[str, Any] = {"max_rounds": rounds, "mechanism": self.mechanism, "noise": noise}
        common |= {"clip": _plain(self.clip), "bound": self._bound}
        common["share"] = None if spend is None else replace(budget, epsilon=spend, book=None)
        if self.rho is None and not self.average:
            return _SharedSGD(sampling=_plain(self.sampling), **common)
        if self.ranges is None and self.sampling is None and self.view == "answers":
            return _SharedADMM(rho=_plain(self.rho), average=bool(self.average), **common)
        raise ValueError(
            "rho and average are settings of PrivateADMM, and with ranges, sampling or view='sum'"
            " the method is PrivateSGD: leave them out, or leave the others out."
        )

    @property
    def _bound(self) -> float | None:
        """The length to which rows are shortened; rows with declared ranges are of length 1."""
        if self.bound is None and self.ranges is not None and self.mechanism == "gaussian":
            return 1.0
        return _plain(self.bound)

    # ---- the problem

    def _classes(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Store the classes, which may be declared; the position of each label among them, (n,)."""
        check_classification_targets(y)
        values, place = np.unique(y, return_inverse=True)
        self.classes_ = values if self.classes is None else np.unique(np.asarray(self.classes))
        known = {label: k for k, label in enumerate(self.classes_.tolist())}
        if len(known) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of two classes or more, got one class. Where"
                " these rows lack the others, declare all: classes=[...]."
            )
        others = [k for k, label in enumerate(values.tolist()) if label not in known]
        if others:
            raise RowError(
                "y",
                f"there are labels that are not among the declared classes"
                f" {self.classes_.tolist()[:10]}",
                rows=np.flatnonzero(np.isin(place, others)).tolist(),
                do="Declare all classes, or leave these rows out.",
            )
        self._choose_positive()
        return np.array([known[label] for label in values.tolist()], np.intp)[place]

    def _federation(self, rows: Rows) -> Federation:
        """One client per group, sorted by name: the order of their first rows would tell about
        those.
        """
        codes, C = self._classes(rows.y), len(self.classes_)
        rows_of_groups(rows.groups, len(codes))  # raises where one name has two types
        targets, classes = (2 * codes - 1, np.array([-1, 1])) if C == 2 else (codes, np.arange(C))
        self._unit, self._first = self._geometry(rows)
        X = rows.X if self._unit is None else self._unit(rows.X)
        X = self._with_ones(X) if C > 2 and self._beside else X
        return self._sorted(X, targets, rows.groups, classes)

    def _sorted(
        self, X: Matrix, targets: NDArray[Any], groups: Any, classes: NDArray[Any] | None = None
    ) -> Federation:
        fed = Federation.from_arrays(X, targets, groups, classes=classes)
        order = sorted(range(fed.n_clients), key=fed.names.__getitem__)
        return fed._pick([(i, slice(None)) for i in order])

    @property
    def _beside(self) -> bool:
        """Whether the intercept is not an entry of the rows."""
        return bool(self.fit_intercept) and self.ranges is None

    def _geometry(self, rows: Rows) -> "tuple[UnitRows | None, dict[str, tuple[Release, ...]]]":
        """How rows are scaled, and what every client released to know it."""
        if self.ranges is None:
            return None, {}
        d, one = self.n_features_in_, bool(self.fit_intercept)
        unit = UnitRows(*middles(self.ranges, d), np.zeros(d), one)
        self.centre_ = unit.middle
        if not one or self.mechanism != "gaussian" or not isinstance(rows.X, np.ndarray):
            return unit, {}
        # the gradient of (x w - 1)^2 / 2 at w = 0 is -x
        fed = self._sorted(unit.asked(rows.X), np.ones(len(rows.y)), rows.groups)
        budget, over = self._budget(), self._over_clients(fed)
        problem = Problem(Squared(), Linear(False), over_clients=over, privacy=budget)
        shared = self._algorithm(budget)
        assert isinstance(shared, _SharedSGD)
        law: dict[str, Any] = {"noise": shared.noise, "share": shared.share}
        method = Centring(1, clip=1.0, bound=1.0, length=0.5, **law)
        solution = solve(problem, fed, algorithm=method, seed=seed_of(self.random_state))
        assert solution.ledger is not None
        deviation = solution.history[0]["noise"] / MEAN_SIZE["gaussian"]
        unit = unit.centred(solution.w, deviation * math.sqrt(len(solution.ledger.releases)))
        self.centre_ = unit.middle + unit.half * unit.mean
        return unit, {str(name): own for name, own in solution.ledger.releases.items()}

    def _scores(self, X: Matrix) -> Array:
        if self._unit is None:
            return super()._scores(X)
        w = np.hstack([self.coef_, self.intercept_[:, None]]) if self._unit.one else self.coef_
        scores = safe_sparse_dot(self._unit(X), w.T)
        return scores if len(w) > 1 else scores[:, 0]

    def _with_ones(self, X: Matrix) -> Matrix:
        """(n, d + 1): `Softmax` has its intercepts as the coefficients of ones, which no bound may
        shorten.
        """
        if (bound := self._bound) is not None:
            squares = (X**2 if isinstance(X, np.ndarray) else X.multiply(X)).sum(1)
            length = abs(X).sum(1) if self.mechanism == "laplace" else np.sqrt(squares)
            factor = (bound / np.maximum(np.asarray(length).ravel(), bound))[:, None]
            X = X * factor if isinstance(X, np.ndarray) else csr_array(X.multiply(factor))
        return with_ones(X)

    def _problem(self, fed: Federation) -> Problem:
        C, h = len(self.classes_), self.regulariser
        if h is None:  # where steps are long and limited by noise h would shorten the model
            h = Zero() if self.rho is None and not self.average else self._regulariser()
        loss = Logistic() if C == 2 else Multinomial()
        model = Linear(self._beside) if C == 2 else Softmax(C, fit_intercept=False)
        over, budget = self._over_clients(fed), self._budget()
        return Problem(loss, model, over_clients=over, regulariser=h, privacy=budget)

    def _over_clients(self, fed: Federation) -> Mean:
        """The mean with the weights of all who take part: with sizes by name those who are
        declared, rows or none.
        """
        prior, sizes = self.prior, self._budget().sizes
        if not isinstance(prior, Mapping):
            return Mean(prior)
        if not isinstance(sizes, Mapping):
            return Mean(prior_of(prior, fed))
        declared = [*sizes]
        weights = by_position(prior, declared, "prior", all_clients=False, others=True)
        if odd := [str(name) for at, name in enumerate(declared) if at not in weights]:
            raise ValueError(
                f"prior has no weight for {', '.join(odd[:5])}, declared in sizes: give one for"
                " each."
            )
        resolve_prior([_plain(weight) for weight in prior.values()], np.ones(len(prior)))
        total = sum(weights.values())
        if not total > 0:
            raise ValueError("prior has no positive weight for the clients declared in sizes.")
        return Mean({declared[at]: _plain(weight) / total for at, weight in weights.items()})

    def _plan(self, problem: Problem, fed: Federation) -> Plan:
        algorithm = self._algorithm(self._budget())
        if algorithm.bound is not None and isinstance(problem.loss, Multinomial):
            one = float(self._beside)  # of the feature of ones
            laplace = self.mechanism == "laplace"
            bound = algorithm.bound + one if laplace else math.hypot(algorithm.bound, one)
            algorithm = replace(algorithm, bound=bound)
        if self._first:
            shown = self.book is None  # a ledger file has them
            algorithm = replace(algorithm, first=tuple(self._first.items()), shown=shown)
        return Plan(algorithm, InProcess(), fed)

    # ---- the model

    def _keep(self, solution: Solution, fed: Federation, rows: Rows) -> None:
        """Store of the solution only what is paid for: the rest is exact, and times follow the
        rows.
        """
        assert solution.ledger is not None
        declared = self.sizes if isinstance(self.sizes, Mapping) else {}
        names = {str(name): name for name in (*declared, *fed.clients)}
        self.clients_ = names_of([names[str(name)] for name in solution.ledger.sizes])
        self.privacy_, self.n_iter_ = solution.ledger, solution.rounds
        told = [row.items() for row in solution.history]
        self.history_ = [{key: value for key, value in row if key != "seconds"} for row in told]
        self.loss_ = solution.problem.loss
        self.calibration_ = Sigmoid()  # a fitted one would cost a part of the budget
        predictor, one = solution.problem.predictor, bool(self.fit_intercept)
        alike = predictor if isinstance(predictor, Softmax) else Linear(one)
        self.coef_, self.intercept_ = coefficients(solution.w, alike, one)

    def predict(self, X: Features) -> NDArray[Any]:
        """(n,) labels. `TrivialModelWarning` where all of at least 20 rows get one: anyone who asks
        about rows has them, so that nothing is told that must be paid for.
        """
        scores = self._raw(X)
        positions = chosen(scores)
        if len(positions) >= FEW and np.ptp(positions) == 0:
            known, at = self.classes_.tolist(), int(positions[0])
            text = (
                f"All {len(positions)} rows get the class {known[at]!r}: the noise at epsilon"
                f" {self.privacy_.epsilon:.2g} hides the others, or they are rare. Raise epsilon,"
                " or take more rows or fewer features."
            )
            if len(known) == 2:  # up to which cut both are predicted
                most = float(self._probabilities(scores)[:, 1 - at].max())
                text += (
                    f" The highest probability of {known[1 - at]!r} is {most:.3g}: both classes"
                    " are predicted above any smaller one."
                )
            warn(text, TrivialModelWarning)
        return self.classes_[positions]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.noise == "secure"
        return tags


@dataclass(frozen=True)
class _Shared(PrivateMethod):
    """With the noise that keeps ``share``, even where the problem's budget allows less noise; the
    privacy ledger may refuse. ``first`` are the releases of every client in the same fit before,
    and ``shown`` says that no ledger file has them.
    """

    share: Budget | None = None
    first: tuple[tuple[str, tuple[Release, ...]], ...] = ()
    shown: bool = True

    def planned(self, problem: Problem, fed: ClientSizes, spent: Sequence[Release] = ()) -> Self:
        # in the view "sum" the client whose rows count most has the least noise, here and before
        first = min((own for _, own in self.first), key=lambda own: own[0].noise, default=())
        if self.share is None:
            return super().planned(problem, fed, (*spent, *first * self.shown))
        shared = replace(problem, privacy=self.share)
        return replace(super().planned(shared, fed, first), problem=problem)

    def ledger(self, fed: Data, answered: Sequence[int], before: Spent) -> Ledger | None:
        first = dict(self.first) if self.shown else {}
        known = {name: (*before.get(name, ()), *first.get(name, ())) for name in fed.names}
        return super().ledger(fed, answered, known if first else before)


@dataclass(frozen=True)
class _SharedADMM(_Shared, PrivateADMM):
    """`PrivateADMM` with the noise of a share."""


@dataclass(frozen=True)
class _SharedSGD(_Shared, PrivateSGD):
    """`PrivateSGD` with the noise of a share."""


def _plain(value: T) -> T:
    """A number of NumPy's as one of Python's: what ``np.linspace`` makes is a parameter, too."""
    plain: Any = value.item() if isinstance(value, np.generic) else value
    return plain


# Rows of a private classifier with declared ranges: centred at a noisy mean, and of length 1.

SHARE = 0.1  # of the budget, for the mean: of 1 / noise^2, which is what adds up
# the entries beside z, over sqrt(d): beside rows that are not centred yet, and centred ones
BEFORE, AFTER = 0.5, 0.15


@dataclass(frozen=True)
class UnitRows:
    """How rows are made, of public and of charged numbers only.

    Attributes
    ----------
    middle, half : (d,) of the declared ranges
    mean : (d,) of the rows so scaled, noisy; zeros where they are not centred
    one : whether there is an entry for the intercept
    """

    middle: Array
    half: Array
    mean: Array
    one: bool

    def __call__(self, X: Matrix) -> Matrix:
        """(n, d + one) rows of length 1."""
        centre = self.middle + self.half * self.mean
        if not self.one:
            return unit_rows(X, centre, self.half)
        return _with(X, centre, self.half, AFTER)

    def asked(self, X: Matrix) -> Matrix:
        """(n, d + 1) the rows u whose mean tells mu."""
        return _with(X, self.middle, self.half, BEFORE)

    def centred(self, found: Array, noise: float) -> Self:
        """The same around mu, of the noisy mean (d + 1,) of the rows u, with noise of that standard
        deviation in every entry.

        The mean of the last entries is between two public numbers where rows keep the ranges.
        """
        a, b = found[:-1], float(np.clip(found[-1], BEFORE / math.hypot(1, BEFORE), 1.0))
        size = float(a @ a)
        kept = max(0.0, 1 - len(a) * noise**2 / size) if size > 0 else 0.0  # as James and Stein
        return replace(self, mean=np.clip(kept * BEFORE * math.sqrt(len(a)) / b * a, -1.0, 1.0))


def _with(X: Matrix, centre: Array, half: Array, more: float) -> Matrix:
    """The rows (X - centre) / half with one more entry, each divided by its own length."""
    n, d = shape_of(X)
    last = np.full((n, 1), more * math.sqrt(d))
    if not isinstance(X, np.ndarray):
        middle, scale = np.append(centre, 0.0), np.append(half, 1.0)
        return unit_rows(csr_array(hstack([X, last])), middle, scale)
    return unit_rows(np.hstack([np.ascontiguousarray((X - centre) / half), last]))


@dataclass(frozen=True)
class Centring(_SharedSGD):
    """The one answer that tells the mean: its noise takes `SHARE` of what the fit may spend.

    ``share`` is the budget of the fit where that is a part of a ledger's; the fit is refused before
    this answer where the ledger does not pay for all of it.
    """

    def planned(self, problem: Problem, fed: ClientSizes, spent: Sequence[Release] = ()) -> Self:
        method = super().planned(problem, fed, spent)
        plan, budget = method.noise_plan, problem.privacy
        if self.share is not None and budget is not None:
            whole = (*spent, Release(self.mechanism, plan.multiplier))
            if total_epsilon(whole, budget.delta) > budget.epsilon:
                noise_for(budget, 1, self.mechanism, spent)  # which may say that all is spent
                before = total_epsilon(spent, budget.delta)
                raise BudgetSpentError(
                    f"the fit would spend {self.share.epsilon:g}, and {before:.4g} of"
                    f" {budget.epsilon:g} is spent already: nothing was touched. Spend less, or"
                    " state a larger budget."
                )
        return replace(method, plan=replace(plan, multiplier=plan.multiplier / math.sqrt(SHARE)))
