"""What private runs without a ledger file have spent on the same rows, as far as one process knows.

Every run has a separate total, and several on the same rows add up. Who keeps no ledger file is
told so at the second run. Rows are known again by a sum of hashes of the rows' features, one for
each client and one for all, so that neither their order nor, where all are there, their clients
matter. Parts of tables that overlap, such as the training parts of folds, are not recognised.

What a run spends depends on who looks: runs for anyone who sees sums count in full, as answers,
where a later one is for anyone who sees these.

The hash has secret random weights, drawn when the process starts. Neither it nor the counts leave
the memory of the process.
"""

import contextlib
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bonafed.privacy.accounting import Release, total_epsilon, under
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.text import warn

AT_ONCE = 2**17  # numbers hashed at once, which fit in a cache
ODD = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64


class RepeatedRunWarning(UserWarning):
    """A second private run without a ledger file spends on rows of an earlier one: they add up.

    It is shown once for each data set and process, before the run, and only where noise is secure;
    as an error (``warnings.simplefilter("error", bf.RepeatedRunWarning)``) it keeps the run from
    starting.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import bonafed as bf
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = bf.Problem(bf.Logistic(), privacy=bf.Budget(epsilon=1.0, delta=1e-6))
    >>> first = bf.solve(problem, fed, max_rounds=5)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     second = bf.solve(problem, fed, max_rounds=5)
    >>> any(issubclass(w.category, bf.RepeatedRunWarning) for w in caught)
    True
    """


@dataclass
class Count:
    """What one run spends on every record.

    Attributes
    ----------
    budget : it says for which view and adjacency
    releases : of the client whose records count most, in the budget's view
    answers : the same as anyone who sees every answer has them
    """

    budget: Budget
    releases: tuple[Release, ...]
    answers: tuple[Release, ...]

    def within(self, budget: Budget) -> tuple[Release, ...]:
        """The releases, at most, as another budget counts them."""
        known = budget.covered(self.budget.view, self.budget.missing)
        releases = self.releases if known else self.answers
        return under(releases, self.budget.adjacency, budget.adjacency)


# by digest: of a client's rows, or of all
_counts: defaultdict[int, list[Count]] = defaultdict(list)
_warned: set[int] = set()
_resumable: dict[str, Count] = {}  # by checkpoint
_known: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()
_weights: dict[int, NDArray[np.uint64]] = {}  # by number of features
# where the runs of a larger one are put, which is counted as one
_parts: ContextVar[list[Count] | None] = ContextVar("parts", default=None)


def forget() -> None:
    """Forget all runs of this process, as is right where their rows are public."""
    for known in (_counts, _warned, _resumable, _known):
        known.clear()


@contextlib.contextmanager
def in_parts() -> Iterator[list[Count]]:
    """Runs in this context are parts of one that is counted by itself; these parts."""
    parts: list[Count] = []
    token = _parts.set(parts)
    try:
        yield parts
    finally:
        _parts.reset(token)


@contextlib.contextmanager
def as_one(tables: Sequence[Any], releases: tuple[Release, ...], budget: Budget) -> Iterator[None]:
    """The runs in this context count as one on these rows: for ``releases`` before it begins, as
    `counted`, and in the end for what they have spent.
    """
    count = counted(None, tables, releases, budget)
    with in_parts() as parts:
        try:
            yield
        finally:
            count.releases = tuple(r for part in parts for r in part.releases)
            count.answers = tuple(r for part in parts for r in part.answers)


def counted(
    data: Any,
    tables: Sequence[Any],
    releases: tuple[Release, ...],
    budget: Budget,
    answers: tuple[Release, ...] | None = None,
    resumed: str = "",
    kept: str = "",
) -> Count:
    """Count a run before it releases anything; a part of a larger run is left to that.

    Parameters
    ----------
    data : whose rows these are; the digests are kept as long as it is. None: they are not kept
    tables : (m, d) features of every client's rows
    releases : at most, on every record
    answers : the same for anyone who sees every answer; None: no others
    resumed : the checkpoint of the run that goes on, which is no other run
    kept : the checkpoint from which this run can go on

    Raises
    ------
    BudgetSpentError
        where the budget asks for it and the total would exceed it

    Warns
    -----
    RepeatedRunWarning
        for rows on which an earlier run has spent, once for each data set
    """
    count = Count(budget, releases, releases if answers is None else answers)
    if (parts := _parts.get()) is not None:
        parts.append(count)
        return count
    digests = _digests(data, tables)
    if resumed and (known := _resumable.get(resumed)) is not None:
        known.releases, known.answers = count.releases, count.answers
        return known
    if earlier := _earlier(digests, budget):
        spent = [*chain(*earlier)]
        before = total_epsilon(spent, budget.delta)
        total = total_epsilon((*spent, *releases), budget.delta)
        many = f"{len(earlier)} earlier private runs"
        text = (
            f"{many if len(earlier) > 1 else 'an earlier private run'} of this process without a"
            f" ledger file spent epsilon = {before:.4g} at delta = {budget.delta:g} on the same"
            f" rows. With this run it may be {total:.4g}, and {budget.epsilon:g} is stated for it"
            " only."
        )
        if budget.repeat == "error" and total > budget.epsilon * (1 + 1e-9):
            raise BudgetSpentError(
                f"{text} Nothing was released. To spend part of a budget in each of several runs,"
                " give all of them one ledger file, book=<a file>. The owner of the data decides"
                " on a larger budget."
            )
        if digests[-1] not in _warned:
            _warned.add(digests[-1])
            warn(
                f"{text} Give all runs on these rows one ledger file, book=<a file>, which keeps"
                ' their total within one budget, or try things out with noise="simulation".',
                RepeatedRunWarning,
            )
    for digest in {*digests}:
        _counts[digest].append(count)
    if kept:
        _resumable[kept] = count
    return count


def _earlier(digests: tuple[int, ...], budget: Budget) -> list[tuple[Release, ...]]:
    """The releases of every earlier run on the rows of the client on which most was spent."""
    whole = _counts.get(digests[-1], [])
    ways = set()
    for digest in digests:
        own = [one for one in _counts.get(digest, []) if not any(one is w for w in whole)]
        ways.add(tuple(spent for one in (*whole, *own) if (spent := one.within(budget))))
    known = filter(None, ways)
    return [*max(known, key=lambda way: total_epsilon(chain(*way), budget.delta), default=())]


# ---- known rows


def _digests(data: Any, tables: Sequence[Any]) -> tuple[int, ...]:
    """One of every client's rows, and that of all rows, the last."""
    if data is not None and data in _known:
        return _known[data]
    each = [_digest(X) for X in tables]
    digests = (*each, sum(each) % 2**64)
    if data is not None:
        _known[data] = digests
    return digests


def _digest(X: Any) -> int:
    """The sum of the rows' hashes, which no order of rows changes."""
    n, d = X.shape
    if d not in _weights:
        _weights[d] = np.frombuffer(secrets.token_bytes(8 * d + 8), np.uint64) | np.uint64(1)
    step, total = max(AT_ONCE // max(d, 1), 1), 0
    for start in range(0, n, step):
        total += int(_hashes(X[start : start + step], _weights[d][:d]).sum(dtype=np.uint64))
    return (total + n * int(_weights[d][d])) % 2**64


def _hashes(X: Any, weights: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """(m,) hashes of rows, the same for dense and sparse ones: a 0 adds nothing."""
    if isinstance(X, np.ndarray):
        sums = (_words(X) * weights).sum(axis=1, dtype=np.uint64)
    else:
        table = X.tocsr()
        parts = _words(table.data) * weights[table.indices]
        until = np.concatenate([np.zeros(1, np.uint64), parts.cumsum(dtype=np.uint64)])
        sums = until[table.indptr[1:]] - until[table.indptr[:-1]]
    sums ^= sums >> np.uint64(32)
    sums *= ODD
    return sums ^ (sums >> np.uint64(29))


def _words(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The bits of numbers, mixed: those of round numbers are zeros at the end."""
    words = (np.ascontiguousarray(values, np.float64) + 0.0).view(np.uint64)  # -0 is 0
    return words ^ (words >> np.uint64(32))
