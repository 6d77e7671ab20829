"""The tables [privacy] and [evaluation] of a configuration: a budget, and what may be shown.

A private run guarantees one total (epsilon, delta) for every record. ``privacy_rules.py`` says what
may stand beside the two tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from bonafed.config.objects import Objects
from bonafed.config.schema import Section
from bonafed.privacy.budget import Budget


class PrivacySection(Objects):
    """One total (epsilon, delta) for every record of the training rows, whatever is run within
    it.
    """

    STATES: ClassVar = {"total": "budget"}
    DEFAULTS: ClassVar = {"sizes": None, "book": None}

    total: ClassVar[str] = "privacy"
    counted: bool = False  # sizes are those of the rows; written by a run
    rehearsal: bool = False  # the rows are public: the guarantee is only tried out

    def budget(self, folder: Path, **changes: object) -> Budget:
        """As the library has it; ``folder`` is where a relative path of the ledger starts."""
        book = {} if self.book is None else {"book": folder / self.book}
        return self.build("total", **book | changes)

    def moved(self, there: Callable[[str], str]) -> PrivacySection:
        """With the path of the ledger rewritten."""
        return self if self.book is None else self.model_copy(update={"book": there(self.book)})


class EvaluationSection(Section):
    """Who may see how the model does on the rows that it is judged on."""

    # the rows judged on are nobody's secret: the model's numbers on them may travel
    public: bool = False
