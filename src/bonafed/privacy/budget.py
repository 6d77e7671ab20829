"""The privacy budget: one total (epsilon, delta) for every record, whatever runs within it."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from bonafed.arrays import is_number
from bonafed.client_names import ByClient, ClientName, by_position, closest
from bonafed.parameters import Checked

# how far one record moves a sum of vectors of length 1
ADJACENCY = {"add-remove": 1.0, "replace": 2.0}

# who is to learn no more than (epsilon, delta)
VIEWS = ("answers", "sum")

LARGEST = 1e4  # epsilon
MOST = 2**53  # rows; doubles cannot count further


class BudgetSpentError(ValueError):
    """A run or a round would spend more than the budget allows. Nothing was released.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (1000, 3)), rng.integers(0, 2, 1000)
    >>> fed = bf.Federation.from_arrays(X, y, rng.choice(["north", "east"], 1000))
    >>> budget = bf.Budget(epsilon=1.0, delta=1e-6, book=Path(mkdtemp()) / "ledger.json")
    >>> problem = bf.Problem(bf.Logistic(), privacy=budget)
    >>> first = bf.solve(problem, fed, max_rounds=5)
    >>> try:
    ...     bf.solve(problem, fed, max_rounds=5)
    ... except bf.BudgetSpentError:
    ...     print("everything is spent")
    everything is spent
    """


@dataclass(frozen=True)
class Budget(Checked):
    """The total privacy budget (epsilon, delta) of every record.

    For two data sets that differ in one record and any set S of what may leave the clients

        P(S | one) <= exp(epsilon) P(S | other) + delta.

    Records of different clients are different records, so every client has the whole budget
    (parallel composition); a person with records at several clients adds theirs up. Clients are
    identified by their names.

    The guarantee holds for the numbers that a computer sends: gradients and noise are integers
    (docs/private-proofs.md, "Computer arithmetic"). It does not cover choices made outside the runs
    after a look at the data (of rows, of scaling, of epsilon).

    Parameters
    ----------
    epsilon : > 0, at most 1e4; 1 is a strong guarantee, above 10 is hardly one
    delta : in (0, 1), well below one over the number of records
    adjacency : "add-remove", where the data sets differ by one record more or less, or "replace",
        where one record is another one
    sizes : the declared, public number of rows of every client ({client: rows}, or one number for
        all). They weigh the clients and scale the noise, and need not be true; a client declared by
        name takes part even without rows. None declares the true sizes, which then are public;
        "add-remove" is then about a record that counts or counts for nothing while its place is
        known
    book : the privacy ledger file, in which all runs on these data write what they spend before
        they touch the data; a relative path starts at the working directory. With None the
        guarantee holds for each run by itself, and several runs add up
    view : for whom the guarantee holds. "answers": anyone who sees every answer of every client,
        also the server; each client adds the whole noise. "sum": anyone who sees the sums over all
        clients and the models that follow from them, where a secure sum keeps single answers
        secret; each of N clients adds its share, of variance sigma^2 / (N - ``missing``)
    missing : of how many clients the noise may be known to the viewer (because they collude with
        it) or be absent from a sum (because they drop out). Every client sees the models and knows
        its own noise, so that 0 is a guarantee against outsiders only
    repeat : what happens without ``book`` where this process has spent on the same rows before:
        "warn" says how much (`RepeatedRunWarning`), "error" refuses a run with which the total
        would exceed epsilon (`BudgetSpentError`). A run by itself takes all of epsilon, so that
        none may follow it

    Raises
    ------
    ValueError
        for numbers out of range

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.Budget(epsilon=1.0, delta=1e-6).adjacency
    'add-remove'
    """

    epsilon: float
    delta: float
    adjacency: Literal["add-remove", "replace"] = "add-remove"
    sizes: ByClient[int] | int | None = None
    book: str | os.PathLike[str] | None = None
    view: Literal["answers", "sum"] = "answers"
    missing: int = 1
    repeat: Literal["warn", "error"] = "warn"
    # every owner has a file of their own
    unstated: ClassVar[tuple[str, ...]] = ("book", "repeat")

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if not _finite(value):
                raise ValueError(f"{name} must be a finite number, got {value!r}.")
            object.__setattr__(self, name, float(value))
        if self.epsilon <= 0:
            raise ValueError(
                f"epsilon must be > 0, got {self.epsilon}: the noise grows as 1 / epsilon. For no"
                " privacy leave privacy out of the Problem."
            )
        if self.epsilon > LARGEST:
            raise ValueError(
                f"epsilon must be at most {LARGEST:g}, got {self.epsilon:g}: that is not a"
                " guarantee, and its noise would be lost in rounding. For no privacy leave privacy"
                " out of the Problem."
            )
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta must be in (0, 1), got {self.delta}: it is the probability with which the"
                " guarantee of epsilon may fail, such as 1e-6."
            )
        if not (_finite(self.missing) and 0 <= self.missing <= MOST and self.missing % 1 == 0):
            raise ValueError(
                f"missing must be a whole number >= 0, got {self.missing!r}: of so many clients"
                " the noise may be known or absent. Give 1, or more where clients may collude."
            )
        object.__setattr__(self, "missing", int(self.missing))
        if self.book is not None:
            if not os.fspath(self.book):
                raise ValueError(f"book must be the path of a file, got {self.book!r}.")
            # once, whatever the working directory is later
            object.__setattr__(self, "book", Path(os.path.abspath(self.book)))
        own = self.sizes
        stated = own.values() if isinstance(own, Mapping) else [1 if own is None else own]
        if not all(_finite(n) and 1 <= n <= MOST and float(n).is_integer() for n in stated):
            raise ValueError(f"sizes must be whole numbers >= 1 and at most {MOST:g}, got {own!r}.")

    @property
    def spread(self) -> float:
        """How far one record moves a sum of vectors of length 1."""
        return ADJACENCY[self.adjacency]

    @property
    def other_view(self) -> str:
        """The view for which the guarantee is not."""
        return VIEWS[1 - VIEWS.index(self.view)]

    def covered(self, view: str, missing: int) -> bool:
        """Whether what is charged in a view, with so many missing, holds in that of this budget."""
        return view == "answers" or (self.view == "sum" and self.missing <= missing)

    def noised(self, clients: int) -> int:
        """How many clients' noise hides a record from anyone who sees the sums only.

        In the view "answers" it is at least the client's own.

        Raises
        ------
        ValueError
            where the view is "sum" and none is left
        """
        if self.view == "sum" and self.missing >= clients:
            raise ValueError(
                f"missing={self.missing} leaves no noise in a sum over {clients} client(s): missing"
                " must be less than the number of clients. Give a smaller one, more clients, or"
                ' view="answers", where each client adds the whole noise.'
            )
        return max(clients - self.missing, 1)

    def sizes_of(self, clients: tuple[ClientName, ...], true: Iterable[int]) -> tuple[int, ...]:
        """The public number of rows of every client: as declared, or else the ``true`` ones."""
        if self.sizes is None:
            return tuple(int(n) for n in true)
        if not isinstance(self.sizes, Mapping):
            return (int(self.sizes),) * len(clients)
        declared = by_position(self.sizes, clients, "sizes", all_clients=False, others=True)
        if missing := [str(name) for at, name in enumerate(clients) if at not in declared]:
            text = f"sizes has no entry for {', '.join(missing[:5])}: declare every client's rows."
            texts = {str(name) for name in clients}
            if others := [name for name in self.sizes if str(name) not in texts]:
                text += f" It names {others[0]!r}, who has no rows{closest(others[0], clients)}"
            raise ValueError(text)
        return tuple(int(n) for n in declared.values())


def _finite(value: object) -> bool:
    """Whether a value is a finite real number, neither text nor True."""
    try:
        return is_number(value) and math.isfinite(float(value))  # type: ignore[arg-type]
    except OverflowError:  # a whole number or a fraction that no double holds
        return False
