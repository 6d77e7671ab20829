"""The tables [privacy] and [evaluation] of a configuration: a budget, and what may be shown.

A private run promises one total (epsilon, delta) for every record. ``privacy_rules.py`` says what
may stand beside the two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from quorate.config.schema import Positive, Section


def _sizes(value: Any) -> Any:
    for one in value.values() if isinstance(value, Mapping) and value else [value]:
        if one is not None and (isinstance(one, bool) or not isinstance(one, int) or one < 1):
            raise ValueError(
                "allowed: a whole number of rows >= 1, or a table with one for each client"
            )
    return dict(value) if isinstance(value, Mapping) else value


class PrivacySection(Section):
    """One total (epsilon, delta) for every record of the training rows, whatever is run within
    it.
    """

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)]
    adjacency: Literal["add-remove", "replace"] = "add-remove"
    # rows of every client, declared; None: counted, and public
    sizes: Annotated[Any, PlainValidator(_sizes)] = None
    counted: bool = False  # sizes are those of the rows; written by a run
    book: str | None = None  # file in which all runs on these rows write what they spend
    rehearsal: bool = False  # the rows are public: what is promised is only tried out
    curve: Annotated[list[Positive], Field(default_factory=list)]  # other totals to train with

    @model_validator(mode="after")
    def _each_once(self) -> PrivacySection:
        if len({*self.curve}) < len(self.curve):
            raise ValueError("has the same epsilon twice in `curve`: allowed is every one once")
        return self

    def budget(self, folder: Path, **changes: Any) -> Any:
        """As the library has it; ``folder`` is where a relative path of the book starts."""
        from quorate.privacy.budget import Budget

        book = None if self.book is None else folder / self.book
        stated = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "sizes": self.sizes,
        }
        return Budget(**{**stated, "book": book, **changes})

    def at(self, moved: Callable[[str], str]) -> PrivacySection:
        """With the path of the book rewritten."""
        return self if self.book is None else self.model_copy(update={"book": moved(self.book)})


class EvaluationSection(Section):
    """Who may see how the model does on the rows that it is judged on."""

    # the rows judged on are nobody's secret: the model's numbers on them may travel
    public: bool = False
