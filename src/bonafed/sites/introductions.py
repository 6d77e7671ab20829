"""What a site says before it has agreed to anything: that it takes part, or one sentence.

A server may ask with any problem and any columns. Why a site takes no part may depend on single
rows: a category that one row has, a group of two. So whatever the reason is, where it depends on
rows the server is told the same sentence, and the reason stands in the site's log. Each question
still tells whether the site takes part, so that they are counted: those that hold the rows against
something else than all before. Of a private problem not even that depends on single cells
(`bonafed.sites.rows`).
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bonafed.problem.metadata import Introduced
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import decode, encode
from bonafed.sites.audit import AuditError
from bonafed.sites.guard import Guard, RefusedByPolicyError, refuses
from bonafed.sites.policy import RULES, Refusal
from bonafed.statements import statement_bytes
from bonafed.storage import OWN, make_folder, write_whole

RULE = "rows"  # by which the server knows a refusal that depends on rows
SENTENCE = "this site cannot take part; its owner finds the reason by `bonafed site log`"


@dataclass(frozen=True)
class Introductions:
    """The questions that a site has answered before it agreed, kept in ``folder``."""

    folder: Path
    guard: Guard

    def count(self, mark: str) -> None:
        """Count a question; raise `RefusedByPolicyError` for one too many. One that was asked
        before is none.
        """
        policy, file = self.guard.policy, self.folder / "introduced"
        if policy is None:
            return
        kept = decode(file.read_bytes()) if file.exists() else ()  # digests of questions
        if mark in kept:
            return
        if len(kept) >= policy.maximum_introductions:
            text = f"the site has answered {policy.maximum_introductions} questions about its rows,"
            text += " each with another problem or other columns"
            do = f"Remove {file} to begin the count anew, or raise maximum_introductions"
            raise refuses("maximum_introductions", text, do, ask="Ask its owner")
        make_folder(self.folder)
        write_whole(file, encode((*kept, mark)), OWN)

    @contextmanager
    def one_sentence(self) -> Iterator[None]:
        """Tell the server one sentence, whatever about the rows is the reason; nothing is kept from
        it in a trial, whose site has no log.
        """
        try:
            yield
        except AuditError:
            raise
        except RefusedByPolicyError as refused:
            first = refused.refusals[0]
            if self.guard.log is None or not (first.rule in RULES and RULES[first.rule].of_rows):
                raise
            told = [replace(each, answer=SENTENCE) for each in refused.refusals]
            raise RefusedByPolicyError(told, RULE) from None
        except Exception as error:
            if self.guard.log is None:
                raise
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise RefusedByPolicyError([Refusal(RULE, text, SENTENCE)]) from None


def held_against(problem: Problem, roles: str, others: Sequence[Introduced] = ()) -> str:
    """The digest of all that a site's rows are held against in an introduction, or in an agreement
    with other sites. No row is held against a regulariser, a weight of clients or a budget.
    """
    bare = problem
    with suppress(ValueError, TypeError):  # of a problem that needs one of these
        bare = replace(problem, regulariser=Zero(), over_clients=Mean(), privacy=None)
    private = b"private" * (problem.privacy is not None)
    parts = [statement_bytes(bare), private, roles.encode(), *(encode(each) for each in others)]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def check_declared(problem: Problem, roles: str, classes: Sequence[object] | None) -> None:
    """Raise `RefusedByPolicyError` where a server would have the classes of a table read off its
    rows, or exact counts and values of groups for a private problem.
    """
    asked = problem.asked()
    if problem.privacy is not None and (asked.columns or asked.counted):
        raise refuses("declared", "values and counts of groups are told to no private problem.")
    if roles and asked.classes and classes is None:
        raise refuses("declared", "the classes of the target are not read off rows. State them.")
