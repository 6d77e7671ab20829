"""What of a private run may leave the owners of the data: numbers that are public, and answers with
noise, which the budget pays for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bonafed.privacy.ledger import Ledger

# columns of the history that follow from public numbers and noisy answers
HISTORY = ("round", "rho", "step", "clip", "gap", "noise", "bytes_up", "bytes_down")
# of private rounds, and their directions
MESSAGES = {
    "Bent": "up",
    "Perturb": "down",
    "Perturbed": "up",
    "Blur": "down",
    "Blurred": "up",
    "Trim": "down",
    "Trimmed": "up",
}
# what a solution has and its public part has not, and where it comes from
WITHHELD = {
    "duals": "they are computed from the rows without noise",
    "certificate": "it is computed from the rows without noise",
    "notes": "they tell of the rows",
    "seconds": "times follow the rows",
    "copies": "they are the clients' own",
    "state": "it is kept where the run was",
    "tries": "they tell of the rows",
    "constraints": "they are measured on the rows without noise",
    "log": "who answered when follows the rows",
    "trivial": "it is judged on the rows without noise",
}


class Withheld:
    """Stands for an attribute that a public part lacks: the error says why."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, part: object, kind: type | None = None) -> Any:
        if part is None:
            return self
        raise AttributeError(
            f"the public part of a private solution has no {self.name}: {WITHHELD[self.name]}, and"
            " the privacy budget does not pay for that. The rows' owners have it, in the process in"
            f" which solve(...) ran: solution.{self.name}. Files and pickles have the public part"
            " only."
        )

    def __set__(self, part: object, value: object) -> None:
        """Nothing is kept."""


def public_history(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of every round that may leave the owner."""
    return [{key: row[key] for key in HISTORY if key in row} for row in rows]


def public_messages(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages of the rounds, without those of the certificate."""
    return [{**row} for row in rows if row["message"] in MESSAGES]


def public_clients(ledger: Ledger) -> list[dict[str, Any]]:
    """The clients, sorted by name, and their public numbers of rows: all that take part, with rows
    or without.
    """
    return [{"client": client, "n": n} for client, n in ledger.sizes.items()]
