"""The table [sweep] of a configuration: other values of one key, beside the value of the run.

A key is given by its dotted name in the file, such as "robust.radius"; constraints are counted from
1, as in "constraint.2.level". At every value the run must be one that could be stated by itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator

from bonafed.config.errors import ConfigError
from bonafed.config.schema import Section, Share

TABLES = ("problem", "risk", "robust", "clients", "constraint")  # of keys that may be changed
EPSILON = "privacy.epsilon"
MOST = 1000  # values: each is a run
JUDGED = 0.3  # share of the training rows that judges, where a sweep is made to choose a value


def _number(value: object) -> float:
    """A finite number >= 0; whole ones stay whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("allowed: a finite number >= 0")
    if not 0 <= value < math.inf:
        raise ValueError("allowed: a finite number >= 0")
    return value


def several(value: object) -> list[float]:
    """A list of numbers, or {from, to, count}: a geometric one, rounded to four digits between its
    ends.
    """
    if isinstance(value, Mapping) and {*value} == {"from", "to", "count"}:
        first, last, count = _number(value["from"]), _number(value["to"]), value["count"]
        if type(count) is int and 2 <= count <= MOST and 0 < first < last:
            ratio = last / first
            inner = [f"{first * ratio ** (k / (count - 1)):.4g}" for k in range(1, count - 1)]
            value = [float(first), *map(float, inner), float(last)]
    if not isinstance(value, list) or not 0 < len(value) <= MOST:
        raise ValueError(
            f"allowed: a list of at most {MOST:,} numbers >= 0, or {{ from = a, to = b, count = n"
            f" }} with 0 < a < b and n from 2 to {MOST:,}"
        )
    numbers = [_number(one) for one in value]
    if len({*numbers}) < len(numbers):
        raise ValueError("allowed: every value once")
    return numbers


def _name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "constraint" and len(parts) == 3 and parts[1].isdigit() and int(parts[1]):
        return name
    if name == EPSILON or (len(parts) == 2 and parts[0] in TABLES[:-1] and parts[1]):
        return name
    raise ValueError(
        f"allowed: a key of {', '.join(TABLES[:-1])} by its dotted name, such as 'robust.radius',"
        f" 'constraint.1.level' or {EPSILON!r}"
    )


class SweepSection(Section):
    """Other values of one key, at each of which the problem is solved and judged."""

    parameter: Annotated[str, AfterValidator(_name)]
    values: Annotated[list[float], PlainValidator(several)]
    # share of every client's training rows that judges the models, which are trained on the rest;
    # 0: they are trained on all, and the rows judge that judge the run; None: by the key
    test: Share | None = None

    @property
    def constraint(self) -> tuple[int, str] | None:
        """The position of the constraint whose key is changed, from 0, and the key."""
        table, *rest = self.parameter.split(".")
        return (int(rest[0]) - 1, rest[1]) if table == "constraint" else None

    @property
    def held(self) -> float:
        """The share of the training rows that judges."""
        prices = self.constraint is not None or self.parameter == EPSILON
        return self.test if self.test is not None else 0.0 if prices else JUDGED

    def placed(self, raw: Mapping[str, Any], value: float) -> dict[str, Any]:
        """The tables of a run with another value of the key."""
        table: Any = (raw := copy.deepcopy({**raw}))
        *way, key = self.parameter.split(".")
        for part in way:
            try:
                table = table[int(part) - 1 if part.isdigit() else part]
            except LookupError:
                raise ConfigError(f"there is no such table as {'.'.join(way)!r}") from None
        table[key] = value
        return raw

    def own(self, raw: Mapping[str, Any]) -> float | None:
        """The value of the run itself; None where that is not one number."""
        value: Any = raw
        for part in self.parameter.split("."):
            if isinstance(value, list):
                value = value[int(part) - 1]
            else:
                value = value.get(part) if isinstance(value, Mapping) else None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return value if plain and math.isfinite(value) else None
