"""What stands between a server and a site's rows: the site's policy, asked before anything is
computed, and its log, written before anything leaves.

A run is judged in three steps, each as soon as its facts are there: the problem and the rows when
the site is asked about them, who takes part and how large the model is when it is to agree, the
algorithm when a run begins. Every message of a run is held against the rules of messages.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed.arrays import Block
from bonafed.engines.run_record import Content, contents
from bonafed.engines.secure_summed import Sealed, Work, asked_of, hidden_in
from bonafed.engines.wire import Envelope
from bonafed.problem.constraints.group_means import Group, OnRows, Shared
from bonafed.problem.parts import least_rows, parts_of
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import STEPS, levels
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import CodecError
from bonafed.sites.audit import AuditError, AuditLog
from bonafed.sites.policy import Policy, Proposal, Refusal, When, refused


class RefusedByPolicyError(Exception):
    """The site does not do what it is asked, by these rules; the server is told the first one, or
    another name, ``rule``.
    """

    def __init__(self, refusals: Iterable[Refusal], rule: str = "") -> None:
        self.refusals = tuple(refusals)
        self.rule = rule or self.refusals[0].rule
        super().__init__("; ".join(refusal.text for refusal in self.refusals))


def refuses(rule: str, *words: str, **more: str) -> RefusedByPolicyError:
    """The error for one refusal, see `refused`."""
    return RefusedByPolicyError([refused(rule, *words, **more)])


@dataclass
class Guard:
    """The policy and the log of a site.

    Parameters
    ----------
    policy : its rules; None allows everything, for trials with rows that are public
    log : where every message in and out is written; None writes nothing, for trials
    software : the digest of the installed bonafed, for ``pinned_software``
    """

    policy: Policy | None
    log: AuditLog | None = None
    software: str | None = None

    def judge(self, proposal: Proposal, last: When) -> None:
        """Raise `RefusedByPolicyError` where a proposal breaks a rule of the steps up to this."""
        self.judge_at(proposal, *(step for step in When if step <= last))

    def judge_at(self, proposal: Proposal, *steps: When) -> None:
        """Raise `RefusedByPolicyError` where a proposal breaks a rule of these steps."""
        if self.policy is not None and (refusals := self.policy.refusals(proposal, steps)):
            raise RefusedByPolicyError(refusals)

    def judge_parts(self, message: object, problem: Problem, block: Block) -> None:
        """Raise `RefusedByPolicyError` where a message asks for sums over groups of too few
        rows.
        """
        parts = getattr(message, "parts", None)
        if self.policy is not None and parts is not None and parts_of(parts).groups > 1:
            self.judge_at(Proposal(parts=least_rows(problem, block, parts_of(parts))), When.PARTS)

    def told(self, error: Exception) -> str:
        """What the server is told of an error, whose text may quote rows: that stays in the log."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if self.log is None:
            return text
        self.note(text)
        return f"{type(error).__name__}; the site's log says more"

    def note(self, text: str) -> None:
        """Write down something that is not a message."""
        if self.log is not None:
            with _written():
                self.log.note(text)

    def heard(self, sender: str, envelope: Envelope | None, size: int) -> None:
        """Write down what came in, None where it was not read; the line reaches the disk with the
        answer's.
        """
        self._write("in", sender, envelope, size=size, sync=False)

    def said(self, sender: str, envelope: Envelope, size: int, refusals: Any = ()) -> None:
        """Write down what is about to leave, with the refusals that are the reason of it."""
        self._write("out", sender, envelope, size=size, refusals=refusals)

    def _write(self, way: str, who: str, envelope: Envelope | None, **facts: Any) -> None:
        """Write a line about a message: an algorithm's own, where it carries one."""
        if self.log is None:
            return
        kind = ""
        if envelope is not None:
            body = envelope.body
            kind, fields, masked = _shown(getattr(body, "message", getattr(body, "upload", body)))
            facts |= {"experiment": envelope.experiment, "seq": envelope.number}
            facts |= {"masked": masked, "fields": fields}
        with _written():
            self.log.write(way, who, kind, **facts)


def _shown(message: object) -> tuple[str, dict[str, Content], bool]:
    """The class of a message, what its fields hold, and whether its sums are masked; of one that a
    secure sum carries, those of the algorithm's message in it.
    """
    with suppress(CodecError, ValueError, TypeError, LookupError, AttributeError):
        if isinstance(message, Work):
            asked = asked_of(message)
            return type(asked).__name__, contents(asked), False
        if isinstance(message, Sealed) and (hidden := hidden_in(message)) is not None:
            # whatever is not masked the server reads, whether it needs it or not
            known = contents(hidden.clear)
            clear = {name: held._replace(how="each") for name, held in known.items()}
            sums = {name: Content(math.prod(shape), 0, "sum") for name, _, shape in hidden.fields}
            return type(hidden.clear).__name__, clear | sums, True
    return type(message).__name__, contents(message), False


def averaged(problem: Problem, block: Block) -> Iterator[tuple[str, int]]:
    """Over what the answers of a run average beside all rows, and over how many rows of a site;
    ``problem`` is concrete.

    A group tells of the rows outside it as well, which are all rows without it. Losses that are
    weighed by rank count as many rows as equal weights of the largest weight's size are.
    """
    m, risk = int((block.share > 0).sum()), problem.over_samples
    shared = [one.one for one in problem.constraint.coupled.parts if isinstance(one, Shared)]
    means = [one for one in (*problem.local_constraint.parts, *shared) if isinstance(one, OnRows)]
    groups = [group for each in means for group in each.groups]
    if isinstance(risk, Mean) and risk.code is not None:
        groups.append(Group(risk.code))
    for group in groups:
        inside = int(group.inside(block).sum())
        yield "the rows of a group", inside
        yield "the rows outside a group", m - inside
    if by_rank(risk):
        names = ("rank_weights", "rank_weights_below", "rank_weights_above")
        ranks = [getattr(risk, name) for name in names if hasattr(risk, name)]
        for sizes in (np.abs(weights(m)) for weights in ranks):
            if largest := sizes.max(initial=0.0):
                yield "losses by rank", max(int(sizes.sum() / largest * (1 + 1e-9)), 1)
    if isinstance(problem.over_rows, STEPS):  # as many as a site of average losses has
        tails = levels(problem.over_rows, m).tails
        yield "losses by rank", max(int(m * tails.min(initial=1.0) * (1 + 1e-9)), 1)
    elif problem.over_rows is not None:
        sigma = problem.over_rows.rank_weights(len(getattr(problem.over_rows, "sigma", block.y[0])))
        share = sigma.sum() / (len(sigma) * sigma.max())
        yield "losses by rank", max(int(m * share * (1 + 1e-9)), 1)


@contextmanager
def _written() -> Iterator[None]:
    """Where the log cannot be written, the error says that nothing leaves the site."""
    try:
        yield
    except OSError as error:
        raise AuditError(
            f"the audit log cannot be written ({error}), so that no answer leaves this site:"
            " free its disk, or end the process that holds the log."
        ) from error
