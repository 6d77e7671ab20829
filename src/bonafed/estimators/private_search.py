"""A search over the settings of a private classifier, charged as one procedure.

    K candidates, K random:   settings, drawn uniformly from the given ones
                              a model, fitted to the rows that are not held out, with noise
                              its right answers on the rows held out, with noise
    released:                 the best of them, and nothing of the others

The whole costs less than twice what the best candidate by itself would cost, however many there
were (Liu, Talwar 2019; Papernot, Steinke 2022), where each fit of a grid adds to the bill.

A row trains or is held out by a hash of its own values, so that one record is in one part, and is
protected by the noise of the gradients or by that of the right answers. Both are as private as one
Gaussian release of the same noise, and so is a candidate.
"""

import math
import os
import random
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from bonafed.algorithms.federated.private.mechanism import SMOOTHING
from bonafed.arrays import Array, Features, is_number, shape_of
from bonafed.data.holdout import drawn
from bonafed.estimators.base import Seed, chosen, seed_of
from bonafed.estimators.private import PrivateClassifier, Spent
from bonafed.estimators.rows import Groups, Matrix, Rows, check_rows, rows_of_groups, tables
from bonafed.parameters import checking_methods
from bonafed.privacy import odometer
from bonafed.privacy.accounting import Release, gaussian_epsilon, noise_of_search
from bonafed.privacy.bounds import check_number, drawn_number
from bonafed.privacy.budget import Budget
from bonafed.privacy.discrete_noise import discrete_noise
from bonafed.privacy.ledger import Book, Ledger

# settings of the search or of public facts, the same for all candidates
FIXED = (
    *("epsilon", "delta", "adjacency", "sizes", "book", "spend", "noise", "mechanism", "classes"),
    *("positive", "view", "missing", "sampling", "repeat", "random_state"),
)
Options = Sequence[Mapping[str, Any]]

# its noisy number of right answers, its settings, and the model fitted with them
Candidate = tuple[int, dict[str, Any], PrivateClassifier]
SIMULATED = ", made from the seed: a simulation, as anyone who has the seed can repeat it"
AT_ONCE = 4096  # rows scored at once
SMALL_DELTA = 1e-9  # at which a candidate's noise is stated to `PrivateClassifier`
HASH = 5_327_401  # the seed of the hash, unlike those of folds, which would hold out the same rows


@checking_methods
@dataclass(eq=False, repr=False)
class PrivateSearch(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """The best settings of a `PrivateClassifier` and its model, for one total (epsilon, delta).

    A random number of candidates with random settings are fitted with noise and judged with noise;
    the best is released and nothing else is. So the number of settings costs nothing, and a search
    needs about twice the noise of one fit.

    Parameters
    ----------
    estimator : a `PrivateClassifier` with Gaussian noise; its adjacency, sizes, classes and
        repeat are those of the search, its epsilon, delta, book, spend and random_state are not
        used
    settings : names and lists of values as for scikit-learn's ``GridSearchCV``, or a list of such;
        every candidate draws one combination. They may not follow from the rows
    epsilon, delta : the total that the search and all other runs in ``book`` may spend
    mean_candidates : how many candidates there are on average, above 1 and at most 1000; the more,
        the more noise each of them needs
    number : the law of their number: "poisson", "geometric" (less noise for means above about 20)
        or "logarithmic" (less noise, and often a single candidate)
    validation : the share of every client's rows that judge and do not train
    book : the privacy ledger file, to which the search is charged before it touches a row
    spend : epsilon of this search only, with a ledger file whose total is ``epsilon``; None: all
        that is left
    random_state : seed of a simulation of everything random, for experiments. None: all is drawn
        from the operating system, as the guarantee needs

    Attributes
    ----------
    best_params_ : the settings of the best candidate
    best_estimator_ : its model, fitted to the rows that were not held out. A clone of it has the
        epsilon of the whole search
    best_score_ : its noisy number of right answers over the number of rows held out that is
        expected from public sizes; the best of several, so rather too high
    privacy_ : what the whole search spent: ``privacy_.epsilon``, ``privacy_.text`` in words
    classes_, n_features_in_ : those of ``best_estimator_``

    Notes
    -----
    The total is that of what the search leaves: the attributes above. The number of candidates and
    all but the best are kept nowhere. Anyone who sees the clients' answers while the process runs
    sees those of all candidates, against which this total says nothing; nor does it cover the time
    the search takes, which tells about their number: where that matters, do not show it.

    A search that fails or is interrupted has spent its charge, and leaves nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, clinic = rng.standard_normal((6000, 3)), np.where(rng.random(6000) < 0.3, "b", "a")
    >>> y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(6000) > 0, "ill", "fine")
    >>> search = bf.PrivateSearch(
    ...     bf.PrivateClassifier(classes=["fine", "ill"]),
    ...     {"clip": [0.3, 1.0], "rounds": [10, 40]},
    ...     epsilon=2.0,
    ...     delta=1e-6,
    ...     mean_candidates=3,
    ... )
    >>> search = search.fit(X, y, groups=clinic)
    >>> sorted(search.best_params_), 1.99 < search.privacy_.epsilon <= 2
    (['clip', 'rounds'], True)
    >>> search.score(X, y) > 0.8
    True
    """

    # scikit-learn's protocol: groups are always requested
    __metadata_request__fit: ClassVar = {"groups": True}
    alone: ClassVar[str] = PrivateClassifier.alone
    best_params_: dict[str, Any] = field(init=False)
    best_estimator_: PrivateClassifier = field(init=False)
    best_score_: float = field(init=False)
    privacy_: Ledger = field(init=False)

    estimator: PrivateClassifier
    settings: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-6
    mean_candidates: float = 10
    number: str = "poisson"
    validation: float = 0.2
    book: str | os.PathLike[str] | None = None
    spend: float | None = None
    random_state: Seed = None

    def fit(self, X: Features, y: ArrayLike, *, groups: Groups | None = None) -> Self:
        """Search with rows, labels and the client of each row, as in `PrivateClassifier.fit`.

        Raises
        ------
        BudgetSpentError
            the privacy ledger leaves less than the search would spend; no row was touched
        ValueError
            parameters out of range, settings that no candidate can have, labels outside ``classes``
        """
        options = self._options()  # raises before a row is looked at
        rows = check_rows(self, X, y, groups, None)
        base = self._base(rows)
        budget, names = self._budget(base), [str(name) for name in vars(base)["sizes"]]
        book = None if self.book is None else Book(self.book)
        before: Spent = {} if book is None else book.spent(names, adjacency=budget.adjacency)
        release = self._release(budget, before)
        self._tried(base, options, rows)
        train, held = self._apart(rows)
        releases = dict.fromkeys(names, (release,))
        if book is None and self.random_state is None:
            odometer.counted(None, tables(rows), (release,), budget)
        number = "" if book is None else book.open_run(releases, budget)
        try:
            with odometer.in_parts():
                best = self._best(base, options, release, train, held)
        finally:  # whatever was seen of it meanwhile, all of it is paid for
            if book is not None:
                book.close_run(number, releases)
        digest = "" if book is None else book.digest()
        # what is paid for: the best candidate, as if only it had been fitted
        sizes: Any = base.sizes
        public = {str(name): int(n) for name, n in sizes.items()}
        simulated = self.random_state is not None
        ledger = Ledger(
            budget=budget if self.estimator.sizes is not None else replace(budget, sizes=None),
            releases=dict.fromkeys(sorted(public), (release,)),
            before={**before},
            sizes=dict(sorted(public.items())),
            mechanism=self._words(release) + simulated * SIMULATED,
            book=digest,
            simulated=simulated,
        )
        right, option, model = best
        given = self.estimator.get_params(deep=False) | option
        model.set_params(**given | {"epsilon": self.epsilon, "delta": self.delta})
        model.privacy_ = self.privacy_ = ledger.named(sizes)
        if (features := getattr(self, "feature_names_in_", None)) is not None:
            vars(model)["feature_names_in_"] = features
        self.best_estimator_, self.best_params_ = model, option
        self.best_score_ = right / (float(self.validation) * sum(public.values()))
        self.classes_ = model.classes_
        return self

    # ---- before a row is looked at

    def _options(self) -> Options:
        """The settings among which candidates draw; raises where a parameter is out of range."""
        estimator, share = self.estimator, self.validation
        if type(estimator) is not PrivateClassifier or estimator.mechanism != "gaussian":
            raise ValueError(
                'estimator must be a PrivateClassifier with mechanism="gaussian", got'
                f" {estimator!r}: of others it is not proved what the best of several costs."
            )
        if estimator.view != "answers" or estimator.sampling is not None:
            raise ValueError(
                'estimator must have view="answers" and no sampling, got'
                f" view={estimator.view!r}, sampling={estimator.sampling!r}: a candidate's cost is"
                " proved for answers of all rows. Leave both out."
            )
        check_number(self.number, self.mean_candidates)
        if not (is_number(share) and 0 < share < 1):
            raise ValueError(
                f"validation must be a share above 0 and below 1, got {share!r}: these rows judge"
                " the candidates, and the others train them."
            )
        options: list[dict[str, Any]] = [*ParameterGrid(self.settings)]  # type: ignore[arg-type]
        if fixed := sorted({name for option in options for name in option}.intersection(FIXED)):
            raise ValueError(
                f"settings has {', '.join(fixed)}, in which candidates cannot differ: give them to"
                " PrivateSearch or to its estimator."
            )
        for option in options:
            one = _like(estimator, **option, book=None, spend=None)
            one._algorithm(one._budget())
        return options

    def _budget(self, base: PrivateClassifier) -> Budget:
        stated = {name: getattr(self, name) for name in ("epsilon", "delta", "book", "spend")}
        whole = _like(base, **stated)
        budget = whole._budget()
        whole._algorithm(budget)  # checks spend
        return budget

    def _base(self, rows: Rows) -> PrivateClassifier:
        """The estimator with what is public: the classes, and the rows of every client."""
        base = _like(self.estimator)
        if base.classes is None:
            base.set_params(classes=np.unique(rows.y))
        base._classes(rows.y)  # raises where labels are outside the declared ones
        rows_of_groups(rows.groups, len(rows.y))  # raises where one name has two types
        sizes: Any = base.sizes
        if not isinstance(sizes, Mapping):
            true = sorted(Counter[Any](rows.groups).items(), key=str)
            sizes = {name: n if sizes is None else sizes for name, n in true}
        return base.set_params(sizes={**sizes})

    def _release(self, budget: Budget, before: Spent) -> Release:
        """The search as the ledger has it, with the noise that keeps the budget."""
        mean, law = float(self.mean_candidates), self.number
        if self.spend is not None:
            own = replace(budget, epsilon=self.spend, book=None)
            return Release(law, noise_of_search(own, law, mean), candidates=mean)
        noise = max(noise_of_search(budget, law, mean, way) for way in {*before.values()} or {()})
        return Release(law, noise, candidates=mean)

    def _tried(self, base: PrivateClassifier, options: Options, rows: Rows) -> None:
        """Fit each of the settings to one made-up row of each class, so that whatever they lack is
        found before anything is charged.
        """
        classes = np.unique(np.asarray(base.classes))
        made_up = np.zeros((len(classes), shape_of(rows.X)[1]))
        who = [next(iter(rows.groups))] * len(classes)
        with warnings.catch_warnings(action="ignore"):
            for option in options:
                one = _like(base, **option, epsilon=1.0, delta=0.1, book=None, spend=None)
                one.set_params(rounds=1, noise=None, random_state=0)
                one.fit(made_up, classes, groups=who)

    def _apart(self, rows: Rows) -> tuple[Rows, Rows]:
        """The rows that train, and those held out, each by a hash of its own values."""
        y = rows.y.astype(float) if rows.y.dtype.kind in "biuf" else rows.y
        limit = float(self.validation) * 2**64
        X: Any = rows.X
        held = np.array([number < limit for number in drawn(X, y, HASH)], bool)
        if held.all() or not held.any():
            raise ValueError(
                f"of {len(held)} rows {held.sum()} would judge and the others train: give more"
                " rows, or another validation."
            )
        who = np.fromiter(rows.groups, object, len(held))
        first, second = (Rows(rows.X[k], rows.y[k], who[k].tolist(), None) for k in (~held, held))
        return first, second

    # ---- the search

    def _best(
        self, base: PrivateClassifier, options: Options, release: Release, train: Rows, held: Rows
    ) -> Candidate:
        """The best of a random number of candidates."""
        seed = self.random_state
        chance: random.Random = random.SystemRandom()  # the operating system's numbers
        if seed is not None:
            chance = random.Random(seed_of(seed))
        sizes: Any = base.sizes
        share = 1 - float(self.validation)
        variance = math.ceil((Fraction(release.noise) * Fraction(base._budget().spread)) ** 2)
        # as a release of this noise at a smaller delta, where the formula loses no digit
        small = min(float(self.delta), SMALL_DELTA)
        epsilon = gaussian_epsilon([Release("gaussian", release.noise)], small)
        best = None
        for _ in range(drawn_number(self.number, float(self.mean_candidates), chance.randrange)):
            option = options[chance.randrange(len(options))]
            public = {name: max(round(share * n), 1) for name, n in sizes.items()}
            own_seed = None if seed is None else chance.randrange(2**31)
            own = {**option, "epsilon": epsilon, "delta": small, "sizes": public}
            model = _like(base, **own, book=None, spend=None, random_state=own_seed)
            # no warning of a candidate is shown: it would tell about one that is not released
            with warnings.catch_warnings(action="ignore"):
                model.fit(train.X, train.y, groups=train.groups)
            _check_noise(model, release)
            noise = discrete_noise("gaussian", variance + SMOOTHING, chance.randbytes(32), 1)[0]
            right = int((_labels(model, held.X) == held.y).sum()) + int(noise)
            if best is None or right > best[0]:
                best = right, dict(option), model
        assert best is not None, "there is at least one candidate"
        return best

    def _words(self, release: Release) -> str:
        """How the search is private."""
        count = len(ParameterGrid(self.settings))  # type: ignore[arg-type]
        return (
            f"one search: the best of a random number of candidates ({release.mechanism}, mean"
            f" {release.candidates:g}), each with settings drawn from {count}"
            f" and as private as one Gaussian release with noise of {release.noise:.4g} times the"
            " sensitivity, judged by a noisy number of right answers; only the best is released"
        )

    # ---- the best model

    def predict(self, X: Features) -> NDArray[Any]:
        """(n,) labels of the best model."""
        return self._fitted().predict(X)

    def predict_proba(self, X: Features) -> Array:
        """(n, C) probabilities of the best model, as of `PrivateClassifier`."""
        return self._fitted().predict_proba(X)

    def decision_function(self, X: Features) -> Array:
        """Scores of the best model, as of `PrivateClassifier`."""
        return self._fitted().decision_function(X)

    def _fitted(self) -> PrivateClassifier:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def _like(estimator: PrivateClassifier, **params: Any) -> PrivateClassifier:
    """A fresh estimator with the same parameters but for some."""
    fresh: Any = clone(estimator)
    return fresh.set_params(**params)


def _check_noise(model: PrivateClassifier, release: Release) -> None:
    """Raise where a candidate ended early, or had less noise than was charged."""
    if model.n_iter_ < model.rounds:
        raise KeyboardInterrupt("a candidate was interrupted: the search has spent its charge")
    ledger = model.privacy_
    for name, released in ledger.releases.items():
        known = (*ledger.before.get(name, ()), *released)
        spent = sum(one.count / one.noise**2 for one in known)
        plain = all(one == Release("gaussian", one.noise, one.count) for one in known)
        if not plain or spent > (1 + 1e-9) / release.noise**2:
            raise ArithmeticError("a candidate has other noise than the search was charged for")


def _labels(model: PrivateClassifier, X: Matrix) -> NDArray[Any]:
    """(n,) predictions, each from its own row only to the last bit: in a product of matrices a
    row's digits may depend on how many others there are, and one record could turn several answers.
    """
    unit, w = model._unit, model.coef_
    if unit is not None and unit.one:
        w = np.hstack([w, model.intercept_[:, None]])
    parts = [X[i : i + AT_ONCE] for i in range(0, shape_of(X)[0], AT_ONCE)]
    scores = np.concatenate([_scores(part if unit is None else unit(part), w) for part in parts])
    scores = scores + model.intercept_ if unit is None else scores
    return model.classes_[chosen(scores[:, 0] if scores.shape[1] == 1 else scores)]


def _scores(X: Matrix, coef: Array) -> Array:
    """(n, k) X coef^T."""
    if isinstance(X, np.ndarray):
        return np.column_stack([(X * row).sum(1) for row in coef])
    return np.column_stack([np.asarray(X @ row) for row in coef])
