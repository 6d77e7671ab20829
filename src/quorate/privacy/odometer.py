"""What private runs without a ledger file have spent on the same rows, as far as one process knows.

Every run has a total of its own, and several on the same rows add up. Who keeps no ledger file is
told so at the second run. Rows are known again by a sum of hashes of the rows' features, one for
each client and one for all, so that neither their order nor, where all are there, their clients
matter. Parts of tables that overlap, such as the training parts of folds, are not recognised.

The hash has secret random weights, drawn when the process starts. Neither it nor the counts leave
the memory of the process.
"""

from __future__ import annotations

import contextlib
import secrets
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from quorate.privacy.accounting import Release, total_epsilon
from quorate.privacy.budget import ADJACENCY, Budget, BudgetSpentError

AT_ONCE = 2**17  # numbers hashed at once, which fit in a cache
ODD = np.uint64(0x9E3779B97F4A7C15)  # of splitmix64


class RepeatedRunWarning(UserWarning):
    """A second private run without a ledger file spends on rows of an earlier one: they add up.

    It is shown once for each data set and process, before the run, and only where noise is secure;
    as an error (``warnings.simplefilter("error", qr.RepeatedRunWarning)``) it keeps the run from
    starting.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import quorate as qr
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = qr.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> problem = qr.Problem(qr.Logistic(), privacy=qr.Budget(epsilon=1.0, delta=1e-6))
    >>> first = qr.solve(problem, fed, max_rounds=5)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     second = qr.solve(problem, fed, max_rounds=5)
    >>> any(issubclass(w.category, qr.RepeatedRunWarning) for w in caught)
    True
    """


@dataclass
class Count:
    """What one run spends on every record."""

    adjacency: str
    releases: tuple[Release, ...]

    def under(self, adjacency: str) -> tuple[Release, ...]:
        """The releases with noise over the sensitivity under another adjacency."""
        times = ADJACENCY[self.adjacency] / ADJACENCY[adjacency]
        return tuple(replace(r, noise=times * r.noise) for r in self.releases)


# by digest: of a client's rows, or of all
_counts: defaultdict[int, list[Count]] = defaultdict(list)
_warned: set[int] = set()
_resumable: dict[str, Count] = {}  # by checkpoint
_known: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()
_weights: dict[int, NDArray[np.uint64]] = {}  # by number of features
_aside: ContextVar[bool] = ContextVar("aside", default=False)


def forget() -> None:
    """Forget all runs of this process, as is right where their rows are nobody's secret."""
    for known in (_counts, _warned, _resumable, _known):
        known.clear()


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Runs in this context are parts of one that has been counted."""
    token = _aside.set(True)
    try:
        yield
    finally:
        _aside.reset(token)


def counted(
    data: Any,
    tables: Sequence[Any],
    releases: tuple[Release, ...],
    budget: Budget,
    resumed: str = "",
    kept: str = "",
) -> Count | None:
    """Count a run before it releases anything; None for a part of one that has been counted.

    Parameters
    ----------
    data : whose rows these are; the digests are kept as long as it is
    tables : (m, d) features of every client's rows
    releases : at most, on every record
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
    if _aside.get():
        return None
    digests = _digests(data, tables)
    count = _resumable.get(resumed) if resumed else None
    if count is not None:
        count.releases = releases
        return count
    earlier = _earlier(digests)
    if earlier:
        spent = [release for count in earlier for release in count.under(budget.adjacency)]
        _told(spent, releases, budget, len(earlier), digests[-1])
    count = Count(budget.adjacency, releases)
    for digest in {*digests}:
        _counts[digest].append(count)
    if kept:
        _resumable[kept] = count
    return count


def _earlier(digests: tuple[int, ...]) -> list[Count]:
    """The counts of the client on whose rows most runs have spent."""
    whole = _counts.get(digests[-1], [])
    each = [
        [*whole, *(one for one in _counts.get(digest, []) if not any(one is w for w in whole))]
        for digest in digests
    ]
    return max(each, key=len)


def _told(
    spent: Sequence[Release],
    releases: tuple[Release, ...],
    budget: Budget,
    runs: int,
    digest: int,
) -> None:
    """Warn of, or refuse, a run on rows of earlier ones."""
    before = total_epsilon(spent, budget.delta)
    total = total_epsilon((*spent, *releases), budget.delta)
    many = "an earlier private run" if runs == 1 else f"{runs} earlier private runs"
    text = (
        f"{many} of this process without a ledger file spent epsilon = {before:.4g} at delta ="
        f" {budget.delta:g} on the same rows. With this run it may be {total:.4g}, and"
        f" {budget.epsilon:g} is stated for it alone."
    )
    if budget.repeat == "error" and total > budget.epsilon * (1 + 1e-9):
        raise BudgetSpentError(
            f"{text} Nothing was released. To spend part of a budget in each of several runs, give"
            " all of them one ledger file, book=<a file>; a larger budget is a decision of whoever"
            " owns the data."
        )
    if digest not in _warned:
        _warned.add(digest)
        warnings.warn(
            f"{text} Give all runs on these rows one ledger file, book=<a file>, which keeps their"
            ' total within one budget, or try things out with noise="simulation".',
            RepeatedRunWarning,
            stacklevel=8,  # who called `solve`
        )


# ---- known rows


def _digests(data: Any, tables: Sequence[Any]) -> tuple[int, ...]:
    """One of every client's rows, and that of all rows, the last."""
    if data not in _known:
        each = [_digest(X) for X in tables]
        _known[data] = (*each, sum(each) % 2**64)
    return _known[data]


def _digest(X: Any) -> int:
    """The sum of the rows' hashes, which no order of rows changes."""
    n, d = X.shape
    if d not in _weights:
        words = np.frombuffer(secrets.token_bytes(8 * d + 8), np.uint64)
        _weights[d] = words | np.uint64(1)
    step, total = max(AT_ONCE // max(d, 1), 1), 0
    for start in range(0, n, step):
        rows = _hashes(X[start : start + step], _weights[d][:d])
        total += int(rows.sum(dtype=np.uint64))
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
