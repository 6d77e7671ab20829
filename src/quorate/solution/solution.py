"""What ``solve`` returns: a model, why its run ended, and what is guaranteed about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.engines.event_log import Log
from quorate.privacy.ledger import Ledger
from quorate.problem.calibration import Sigmoid
from quorate.problem.lower_bounds import Duals
from quorate.problem.multipliers import Multipliers
from quorate.problem.problem import Problem
from quorate.rounds import Outcome


@dataclass(frozen=True)
class Solution:
    """A model, why the run ended, and what is guaranteed about it.

    Attributes
    ----------
    problem : as stated
    w : (D,) the model
    duals : what proves the bound, or None
    outcome : ``outcome.stop`` and, in words, ``outcome.text``
    rounds : finished rounds
    history : one row a round
    certificate : recomputed independently of the algorithm
    clients : one row a client
    ledger : of a private run, what every client has spent; None else. Such a run's certificate,
        clients, notes and seconds come from the rows themselves: they are for the owners, and no
        guarantee covers them
    messages : counts and bytes by message type and direction, certification included
    notes : warnings about the problem and the data
    seconds : wall time of the whole solve
    copies : (N, D) clients' copies of the model, where the algorithm keeps them
    state : the server's last state
    tries : for methods with several starts, one row a start
    constraints : one row for every constraint and owner: limit, measured, slack, price (0 if
        infeasible), met
    calibration : makes probabilities of the scores of a classifier of two classes; None of a
        private run, of regression and of several classes. Its sums over clients are not in
        ``messages``
    log : of an asynchronous engine, who answered when; ``Replay(log)`` repeats the run
    """

    problem: Problem
    w: Array
    duals: Duals | Multipliers | None
    outcome: Outcome
    rounds: int
    history: list[dict[str, Any]]
    certificate: Certificate
    clients: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    notes: tuple[str, ...]
    seconds: float
    ledger: Ledger | None = None
    copies: Array | None = None
    state: Any = None
    tries: list[dict[str, Any]] = field(default_factory=list)
    constraints: list[dict[str, Any]] = field(default_factory=list)
    log: Log | None = None
    calibration: Sigmoid | None = None
