"""Choosing radii and judging models client by client.

`WithinClients` splits the rows of every client, so that each client is in every fold;
`cross_validate` routes the clients to the splitter, to ``fit`` and to the scorers. `PrivateSearch`
chooses settings of a private classifier, charged as one procedure. `radius_path` solves a problem
along its radii, and `default_radius` computes a radius from the data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context, model_selection
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import get_scorer_names
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import _num_samples

from bonafed.arrays import Features, is_number, stream
from bonafed.data.holdout import draw, drawn, shared
from bonafed.data.validation import grouped
from bonafed.estimators.private import PrivateClassifier
from bonafed.estimators.private_search import PrivateSearch
from bonafed.estimators.rows import Groups
from bonafed.estimators.scorers import tail_loss, worst_client_accuracy, worst_client_loss
from bonafed.solution.solve import radius_path
from bonafed.solution.thresholds import default_radius

Scorer = Callable[..., float]
OF_CLIENTS: dict[str, Scorer] = {
    "worst_client_accuracy": worst_client_accuracy,
    "worst_client_loss": worst_client_loss,
    "tail_loss": tail_loss,
}

__all__ = ["PrivateSearch", "WithinClients", "cross_validate", "default_radius", "radius_path"]


@dataclass(eq=False, repr=False)
class WithinClients(BaseCrossValidator):
    """K folds inside every client: each client is in every training set, and in every test set if
    its rows suffice.

    A client's rows are dealt to the folds in turn, class by class unless y holds real numbers; a
    client with fewer rows than folds is in as many test sets as it has rows, a client with one row
    in none. Where ``persons`` are given, persons are dealt and not rows: all rows of one are in the
    same test set, also those at other clients.

    Parameters
    ----------
    n_splits : number of folds, >= 2
    shuffle : deal in random order, or else in turn
    random_state : seed of ``shuffle`` and ``by_row``, an integer; streams are the clients' own: a
        new client moves nobody else's rows
    by_row : each row's fold follows from its own values, its target and the seed only (with
        ``persons`` from its person's name), so that a row more or less moves no other row. So it
        has to be for private models: dealt folds would differ in many rows where the data differ in
        one, and what the fits spend would say nothing. Equal rows are in one fold, also those of
        several clients; folds are of about equal size and not dealt by class, and a client may be
        without rows in a training set. ``cross_validate`` does it for `PrivateClassifier` by itself
    """

    # scikit-learn's protocol
    __metadata_request__split = {"groups": True, "persons": True}  # noqa: RUF012

    n_splits: int = 5
    _: KW_ONLY
    shuffle: bool = True
    random_state: int = 0
    by_row: bool = False

    def __post_init__(self) -> None:
        if self.n_splits < 2:
            why = "one fold leaves nothing to train on."
            raise ValueError(f"n_splits must be >= 2, got {self.n_splits}: {why}")

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """``n_splits``."""
        return self.n_splits

    def split(
        self,
        X: Features,
        y: ArrayLike | None = None,
        groups: Groups | None = None,
        persons: ArrayLike | None = None,
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """(train, test) row numbers of every fold; ``groups`` (n,) says which client has each row,
        ``persons`` (n,) whose it is.
        """
        who = None if persons is None else np.asarray(persons).astype(str)
        n = _num_samples(X)
        fold = self._by_row(X, n, y, who) if self.by_row else self._folds(n, y, groups, who)
        for k in range(self.n_splits):
            if not (fold == k).any():
                text = f"fold {k} of {self.n_splits} would test no row, the clients have too few"
                raise ValueError(f"{text}: lower n_splits.")
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)

    def _by_row(
        self, X: Features, n: int, y: ArrayLike | None, who: NDArray[Any] | None
    ) -> NDArray[np.intp]:
        """(n,) the fold in which each row is tested, from that row only."""
        if who is not None:
            return np.array([int(draw(p, self.random_state) * self.n_splits) for p in who], np.intp)
        # dtypes may follow other rows: a number is the same as a whole number and as a double
        target = np.zeros(n) if y is None else np.asarray(y)
        target = target.astype(float) if target.dtype.kind in "biuf" else target
        rows: Any = X if hasattr(X, "tocsr") else np.asarray(X)
        if rows.dtype.kind not in "biuf":
            cells = np.asarray(rows, object).tolist()
            texts = [[float(c) if is_number(c) else c for c in row] for row in cells]
            joined = zip(texts, target.tolist(), strict=True)
            target, rows = np.array([repr(each) for each in joined]), np.zeros((n, 0))
        numbers = drawn(rows, target, self.random_state)
        return np.array([number * self.n_splits >> 64 for number in numbers], np.intp)

    def _folds(
        self, n: int, y: ArrayLike | None, groups: Groups | None, who: NDArray[Any] | None
    ) -> NDArray[np.intp]:
        """(n,) the fold in which each row is tested; -1 for none."""
        if groups is None:
            do = "for rows of one client use KFold."
            raise ValueError(f"WithinClients needs groups, the client of each row; {do}")
        names, picks = grouped(groups, n)
        values, code = np.unique(np.zeros(n) if y is None else np.asarray(y), return_inverse=True)
        if np.asarray(y).dtype.kind == "f" and np.size(values) > 2:
            code = np.zeros(n, int)  # numbers are dealt at random
        fold = np.full(n, -1)
        for i, (name, pick) in enumerate(zip(names, picks, strict=True)):
            rows, first, person = np.arange(n)[pick], i, None
            dealt = rows
            if who is not None:  # one row of each person is dealt
                _, at, person = np.unique(who[rows], return_index=True, return_inverse=True)
                dealt = ones = rows[at]
            if self.shuffle:
                rng = stream(self.random_state, name, 0)
                dealt, first = rng.permutation(dealt), int(rng.integers(self.n_splits))
            dealt = dealt[np.argsort(code[dealt], kind="stable")]
            if len(dealt) > 1:
                fold[dealt] = (first + np.arange(len(dealt))) % self.n_splits
            if person is not None:
                fold[rows] = fold[ones[person]]
        if who is not None:
            for one in sorted(shared([who[pick] for pick in picks])):
                fold[who == one] = int(draw(one, self.random_state) * self.n_splits)
        return fold


def cross_validate(
    estimator: BaseEstimator,
    X: Features,
    y: ArrayLike,
    *,
    groups: Groups,
    by: Literal["rows", "client"] = "rows",
    cv: int | BaseCrossValidator = 5,
    scoring: str | Scorer | Sequence[str] | Mapping[str, str | Scorer] | None = None,
    sample_weight: ArrayLike | None = None,
    persons: ArrayLike | None = None,
    **options: object,
) -> dict[str, Any]:
    """scikit-learn's ``cross_validate`` with the clients routed to splitter, ``fit`` and scorers.

    Parameters
    ----------
    estimator : an estimator, pipeline or search whose ``fit`` requests groups, such as
        `RobustClassifier`
    groups : (n,) the client of each row
    by : "rows": every client in every fold (`WithinClients`, of a `PrivateClassifier` with
        ``by_row``), how well each client is served;
        "client": whole clients are held out (``GroupKFold``), how well a new client would be
    cv : number of folds, or a splitter (then ``by`` is not used)
    scoring : as in scikit-learn, also "worst_client_accuracy", "worst_client_loss", "tail_loss";
        None is accuracy and worst_client_accuracy (or r2), and worst_client_loss. scikit-learn's
        own searches take the scorers: ``scoring=bf.worst_client_accuracy``
    sample_weight : (n,), passed to what requests it
    persons : (n,) whose each row is: a person is in one test set, with all rows (by="rows")
    options : return_train_score, return_estimator, n_jobs, error_score, ... as in scikit-learn

    Returns
    -------
    dict : fit_time, score_time and test_... as (n_splits,) arrays
    """
    if by not in ("rows", "client"):
        can = "'rows' (split every client) or 'client' (hold out whole ones)"
        raise ValueError(f"by must be {can}, got {by!r}.")
    if isinstance(cv, int | np.integer):
        parts = (estimator, *estimator.get_params(deep=True).values())
        private = any(isinstance(part, PrivateClassifier) for part in parts)
        within = WithinClients(int(cv), by_row=private)
        cv = within if by == "rows" else model_selection.GroupKFold(int(cv))
    if scoring is None:
        overall = {"accuracy": "accuracy", "worst_client_accuracy": worst_client_accuracy}
        scoring = overall if is_classifier(estimator) else {"r2": "r2"}
        scoring |= {"worst_client_loss": worst_client_loss}
    if not isinstance(scoring, str | Mapping) and not callable(scoring):
        scoring = {name: name for name in scoring}
    if isinstance(scoring, Mapping):
        scoring = {name: _scorer(one) for name, one in scoring.items()}
    given = {"groups": groups, "sample_weight": sample_weight, "persons": persons}
    params = {name: value for name, value in given.items() if value is not None}
    settings: dict[str, Any] = {**options, "scoring": _scorer(scoring), "cv": cv, "params": params}
    with config_context(enable_metadata_routing=True):
        return model_selection.cross_validate(estimator, X, y, **settings)


def _scorer(stated: Any) -> Any:
    """The scorer of a name that scikit-learn does not know; anything else as it is."""
    if not isinstance(stated, str) or stated in (known := get_scorer_names()):
        return stated
    if stated not in OF_CLIENTS:
        near = get_close_matches(stated, [*OF_CLIENTS, *known], 3)
        did = f" Did you mean {' or '.join(map(repr, near))}?" * bool(near)
        raise ValueError(
            f"scoring has no score {stated!r}: {', '.join(OF_CLIENTS)}, or one of"
            f" scikit-learn's.{did}"
        )
    return OF_CLIENTS[stated]
