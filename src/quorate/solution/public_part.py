"""What of a private run may leave the owners of the data: numbers that are public, and answers with
noise, which the budget pays for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.privacy.ledger import Ledger
from quorate.rounds import Outcome, Stop
from quorate.solution.outcome import budget_used

# columns of the history that follow from public numbers and noisy answers
HISTORY = ("round", "rho", "step", "gap", "noise", "bytes_up", "bytes_down")
# of private rounds, and their directions
MESSAGES = {"Perturb": "down", "Perturbed": "up", "Blur": "down", "Blurred": "up"}


def public_history(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of every round that may leave the owner."""
    return [{key: row[key] for key in HISTORY if key in row} for row in rows]


def public_messages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages of the rounds, without those of the certificate."""
    return [{**row} for row in rows if row["message"] in MESSAGES]


def public_clients(rows: Sequence[Mapping[str, Any]], ledger: Ledger) -> list[dict[str, Any]]:
    """The clients and their public numbers of rows."""
    return [{"client": row["client"], "n": ledger.sizes[row["client"]]} for row in rows]


def public_outcome(outcome: Outcome, rounds: int) -> Outcome:
    """Why the run ended, in words that take nothing from the certificate."""
    if outcome.stop is Stop.MAX_ROUNDS:
        return budget_used(rounds)
    return Outcome(outcome.stop, f"{outcome.stop.value} after {rounds} rounds.")
