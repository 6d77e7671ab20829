"""The privacy ledger of a site: what all experiments together have spent of its records.

A file in the folder of the site's state, of the same form as the ledger file of a run in one
process (`bonafed.privacy.ledger.Book`). A private run is charged for all of its answers before
its keys of noise are kept, and begins only where the total over everything that the site ever
answered stays within ``maximum_epsilon`` at ``maximum_delta`` of its policy. So it is charged once:
an answer that is sent again costs nothing, and a run whose keys are lost is refused, since other
noise would be a second release.

All runs count, whichever rows and columns they use: the records of two choices of rows overlap. An
entry says which rows its run used, by their digest. The audit log notes every charge with the
digest of the ledger, so that a ledger that is removed, or restored from an older copy, is noticed.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from bonafed.algorithms.federated.private.method import PrivateMethod
from bonafed.algorithms.federated.private.noisy_gradient import NoiseKeys
from bonafed.engines.checkpoint import without_key
from bonafed.engines.secure_summed import SecureSummed, opens_no_more
from bonafed.privacy.accounting import MECHANISMS, Release, noise_for, total_epsilon
from bonafed.privacy.budget import LARGEST, Budget, BudgetSpentError
from bonafed.privacy.ledger import Book
from bonafed.problem.problem import Problem
from bonafed.rounds import Algorithm
from bonafed.sites.guard import Guard, RefusedByPolicyError, refuses
from bonafed.sites.policy import FILE
from bonafed.text import short

Releases = tuple[Release, ...]
LEDGER = "ledger.json"
RULE = "maximum_epsilon"
NOTED = "privacy ledger"  # how a note of a charge begins
NAME = 80  # characters of a name in the ledger


class PrivateRun(NamedTuple):
    """Which run is charged.

    Attributes
    ----------
    server, experiment, run : the names by which it is known
    method : the digest of the algorithm's statement, on which its noise depends
    rows : the digest of the rows that it uses
    """

    server: str
    experiment: str
    run: str
    method: str
    rows: str

    @property
    def number(self) -> str:
        """The number of the run in the ledger."""
        return hashlib.sha256(json.dumps(self[:4]).encode()).hexdigest()[:32]

    @property
    def about(self) -> dict[str, str]:
        """What people know it by."""
        names = {"server": self.server, "experiment": self.experiment, "rows": self.rows}
        return {key: short(name, NAME) for key, name in names.items()}


class SiteLedger:
    """What a site has spent of its records, and whether another run is within its policy.

    Parameters
    ----------
    folder : of the site's state, where the ledger stands
    site : its name
    guard : the policy that limits the total, and the log; without a policy nothing is charged
    """

    def __init__(self, folder: Path, site: str, guard: Guard) -> None:
        self.folder, self.site, self.guard = folder, site, guard
        self.answering: set[str] = set()  # runs that may answer, as this process knows

    @property
    def book(self) -> Book:
        """The ledger file."""
        return Book(self.folder / LEDGER)

    # ---- what it allows

    def check_policy(self) -> None:
        """Raise where the policy has a greatest epsilon, and no delta at which totals are added."""
        policy = self.guard.policy
        if policy is None or policy.maximum_epsilon is None or policy.maximum_delta is not None:
            return
        text = "the policy states no maximum_delta, at which the ledger adds up what runs spend"
        raise refuses(RULE, text, f"State it in {FILE}, such as 1e-6")

    def check_noise(self, algorithm: object, problem: Problem) -> None:
        """Raise for noise that others could subtract."""
        if self.guard.policy is None or not isinstance(algorithm, PrivateMethod):
            return
        if problem.privacy is not None and algorithm.noise == "simulation":
            text = 'noise="simulation" is made from the seed, and anyone who has the seed can'
            ask = 'Ask for noise="secure", which every site draws itself.'
            raise refuses("noise", f"{text} subtract it. {ask}")

    def check_budget(self, budget: Budget) -> None:
        """Raise where a run with this budget cannot be within the policy, beside all before it."""
        if (limit := self._limit(budget)) is None:
            return
        spent, alone = self._spent(budget.adjacency), Budget(budget.epsilon, budget.delta)
        each = [Release(kind, noise_for(alone, 1, kind)) for kind in MECHANISMS]
        totals = [total_epsilon((*spent, one), limit.delta) for one in each]
        if min(totals) > limit.epsilon * (1 + 1e-6):
            raise self._overspent(spent, (each[totals.index(min(totals))],), limit)

    def begin(self, algorithm: Algorithm, run: PrivateRun, keep: Callable[[], None]) -> None:
        """Let a run begin, ``keep`` storing its keys of noise; a private one is charged in full
        before, unless it is charged already.

        Raises
        ------
        RefusedByPolicyError
            where it would overspend, or has begun before and its keys are lost; ``keep`` was not
            called
        """
        if not self._charges(algorithm):
            keep()
            return
        book = self._trusted()
        if not book.has(run.number):
            releases = algorithm.releases(algorithm.max_rounds)
            budget = algorithm.problem and algorithm.problem.privacy
            assert budget is not None, "an algorithm without a budget has no releases"
            limit = self._limit(budget) or replace(budget, epsilon=LARGEST, sizes=None, book=None)
            try:
                book.check_view(limit, (self.site,))
            except ValueError as error:
                raise refuses(RULE, f"{error}") from None
            spent = self._spent(budget.adjacency)
            total = total_epsilon((*spent, *releases), limit.delta)
            try:
                book.open_run({self.site: releases}, limit, run.number, "charged", run.about)
            except BudgetSpentError:
                raise self._overspent(spent, releases, limit) from None
            what = f"epsilon = {total:.4g} in total at delta = {limit.delta:g}"
            self._note(f"run {run.number} is charged: {what}")
        elif book.state(run.number) != "charged":
            text = "this run has begun at this site before, and its keys of noise are lost: with"
            text += " others its answers would be a second release. Begin a new run, which is"
            raise refuses(RULE, f"{text} charged as another.")
        book.begin_run(run.number, keep)
        self._answers(run.number)

    def check_answer(self, algorithm: Algorithm, run: PrivateRun) -> None:
        """Raise before an answer of a private run that the ledger has not; one that died while it
        began is marked as begun.
        """
        if not self._charges(algorithm) or run.number in self.answering:
            return
        book = self._trusted()
        if not book.has(run.number):
            text = "the privacy ledger of this site has no such run. Begin a new run, which is"
            raise refuses(RULE, f"{text} charged.")
        if book.state(run.number) == "charged":
            book.begin_run(run.number, lambda: None)
        self._answers(run.number)

    def _charges(self, algorithm: Algorithm) -> TypeGuard[PrivateMethod]:
        """Whether the answers of an algorithm have noise, and the site a policy."""
        noisy = isinstance(algorithm, PrivateMethod) and algorithm.releases(1)
        return bool(noisy) and self.guard.policy is not None

    # ---- the file

    def _answers(self, number: str) -> None:
        """Note that a run may answer."""
        self.answering.add(number)
        self._note(f"run {number} may answer")

    def _limit(self, budget: Budget) -> Budget | None:
        """The greatest total, as a budget of the adjacency in which a run counts."""
        policy = self.guard.policy
        if policy is None or policy.maximum_epsilon is None:
            return None
        delta = budget.delta if policy.maximum_delta is None else policy.maximum_delta
        most = min(policy.maximum_epsilon, LARGEST)
        return replace(budget, epsilon=most, delta=delta, sizes=None, book=None)

    def _spent(self, adjacency: str) -> tuple[Release, ...]:
        return self._trusted().spent((self.site,), adjacency=adjacency)[self.site]

    def _overspent(self, spent: Releases, asked: Releases, limit: Budget) -> RefusedByPolicyError:
        each = (*spent, *asked), spent, asked
        total, before, alone = (total_epsilon(one, limit.delta) for one in each)
        text = f"the run would bring this site to epsilon = {total:.4g} at delta = {limit.delta:g}:"
        text += f" {before:.4g} is spent, the run asks for {alone:.4g}, and {limit.epsilon:g} is"
        text += " allowed"
        do = f"See {LEDGER} in the folder of the site's state, or raise {RULE} in {FILE}."
        return refuses(RULE, text, do)

    def _trusted(self) -> Book:
        """The ledger file, where it is the one that was written last."""
        book, log = self.book, self.guard.log
        noted = "" if log is None else _noted(log.path)
        if noted and not book.knows(noted):
            do = f"Restore {book.path.name} and its lock file. To begin anew, which forgets what"
            do += " was spent, move both and the audit log away, and keep them."
            text = "the privacy ledger is gone, or an older copy, so that what is spent is unknown."
            raise refuses(RULE, text, do)
        return book

    def _note(self, text: str) -> None:
        """Write into the audit log what the ledger holds now."""
        self.guard.note(f"{NOTED} {self.book.digest()}: {text}")


def without_keys(algorithm: Algorithm, *memories: Any) -> list[Any]:
    """The memories of a run, without the keys of its noise once all its answers are given: none
    needs them any more.
    """
    if isinstance(algorithm, SecureSummed):
        last, inner = memories[0], algorithm.inner
        bare = without_keys(inner, *(None if m is None else m.own for m in memories))
        kept = [m and replace(m, own=own) for m, own in zip(memories, bare, strict=True)]
        # the last answers are opened: the keys of its masks are no longer needed either
        over = bare[0] is not last.own and opens_no_more(last)
        return [m and without_key(m) for m in kept] if over else kept
    last = memories[0]
    rounds = algorithm.max_rounds if isinstance(algorithm, PrivateMethod) else 0
    if not isinstance(last, NoiseKeys) or (last.answered < rounds).any():
        return [*memories]
    return [without_key(memory) for memory in memories]


def _noted(log: Path) -> str:
    """The digest of the ledger in the last note about it; empty where there is none."""
    found, begin = "", f"{NOTED} "
    with log.open("rb") as lines:
        for line in lines:
            if begin.encode() in line and b'"event":"note"' in line and line.endswith(b"}\n"):
                text = json.loads(line).get("text", "")
                found = text.split()[2].rstrip(":") if text.startswith(begin) else found
    return found
