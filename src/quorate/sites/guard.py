"""What stands between a server and a site's rows: the site's policy, asked before anything is
computed, and its log, written before anything leaves.

A run is judged in three steps, each as soon as its facts are there: the problem and the rows when
the site is asked about them, who takes part and how large the model is when it is to agree, the
algorithm when a run begins. Every message of a run is held against the rules of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quorate.engines.wire import Envelope, Step
from quorate.problem.metadata import Introduced
from quorate.sites.audit import AuditLog, contents
from quorate.sites.policy import Policy, Proposal, Refusal

# the rules that are judged before any row is read, when a site is asked about its rows, when it
# agrees, and when a run begins
OF_PROBLEM = (
    *("allowed_servers", "allowed_versions", "pinned_software", "pinned_problems"),
    *("allowed_columns", "disallowed_columns"),
    *("maximum_epsilon", "maximum_delta", "constraint"),
)
OF_ROWS = (*OF_PROBLEM, "minimum_rows", "minimum_level_rows")
OF_AGREEMENT = (*OF_ROWS, "minimum_organizations", "maximum_parameter_share")
GROUPS = 20  # that a column makes at most
OF_RUN = (*OF_AGREEMENT, "allowed_algorithms", "allowed_messages")


class RefusedByPolicyError(Exception):
    """The site does not do what it is asked, by these rules."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("; ".join(refusal.text for refusal in self.refusals))


@dataclass
class Guard:
    """The policy and the log of a site.

    Parameters
    ----------
    policy : its rules; None allows everything, for trials
    log : where every message in and out is written; None writes nothing, for trials
    software : the digest of the installed quorate, for ``pinned_software``
    """

    policy: Policy | None = None
    log: AuditLog | None = None
    software: str | None = None

    def judge(self, proposal: Proposal, rules: tuple[str, ...]) -> None:
        """Raise `RefusedByPolicyError` where a proposal breaks one of these rules."""
        if self.policy is not None:
            broken = self.policy.refusals(proposal)
            if refusals := [refusal for refusal in broken if refusal.rule in rules]:
                raise RefusedByPolicyError(refusals)

    def judge_groups(self, facts: Introduced) -> None:
        """Raise `RefusedByPolicyError` where what the site would tell of its groups of rows is
        about too few rows, or about a column of too many values.
        """
        if self.policy is None:
            return
        rule, least = "minimum_level_rows", self.policy.minimum_level_rows
        for name, values in facts.values.items():
            if len(values) > GROUPS:
                text = f"{rule}: column {name!r} makes more than {GROUPS} groups of rows."
                raise RefusedByPolicyError([Refusal(rule, text, text)])
        for name, cells in facts.cells.items():
            if any(weight < least for *_, weight in cells):
                text = f"{rule}: a group of {name or 'the target'!r} has too few rows at this site."
                raise RefusedByPolicyError([Refusal(rule, text, text)])

    def judge_message(self, sender: str, body: object) -> None:
        """Raise `RefusedByPolicyError` for a sender or a message of a run that is not allowed."""
        if self.policy is None:
            return
        kind = type(body.message if isinstance(body, Step) else body).__name__
        refusal = self.policy.refuse_message(kind, sender)
        if refusal and (isinstance(body, Step) or refusal.rule != "allowed_messages"):
            raise RefusedByPolicyError([refusal])

    def told(self, error: Exception) -> str:
        """What the server is told of an error, whose text may quote rows: that stays in the log."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if self.log is None:
            return text
        self.log.note(text)
        return f"{type(error).__name__}; the site's log says more"

    def heard(self, sender: str, envelope: Envelope | None, size: int) -> None:
        """Write down what came in; the line reaches the disk with the answer's."""
        if self.log is not None:
            body, about = _held(envelope)
            kind = "" if body is None else type(body).__name__
            fields = {} if body is None else contents(body)
            self.log.write("in", sender, kind, size=size, fields=fields, sync=False, **about)

    def said(
        self, sender: str, envelope: Envelope, size: int, refusals: Iterable[Refusal] = ()
    ) -> None:
        """Write down what is about to leave."""
        if self.log is not None:
            body, about = _held(envelope)
            about |= {"fields": contents(body), "refusals": refusals}
            self.log.write("out", sender, type(body).__name__, size=size, **about)


def _held(envelope: Envelope | None) -> tuple[object, dict]:
    """What a message holds, an algorithm's own where there is one, and what it belongs to."""
    if envelope is None:
        return None, {}
    body = envelope.body
    inside = getattr(body, "message", getattr(body, "upload", body))
    return inside, {"experiment": envelope.experiment, "seq": envelope.number}
