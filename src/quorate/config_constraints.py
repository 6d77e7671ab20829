"""The tables [[constraint]] of a configuration: what the model has to keep, at whom, and that in words.

A constraint on rows is about every client's own rows (on = "clients"), about the rows of all clients ("together"), or
about data of the server ("server"). One on the coefficients alone has no rows and no such key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from quorate.config_sections import Section, _label, _radii

KINDS = {  # name in the file -> (class, the keys that it needs, those that it may have)
    "neyman_pearson": ("NeymanPearson", ("label", "level"), ()),
    "loss_gap": ("LossGap", ("column", "level"), ()),
    "bounded_group_loss": ("BoundedGroupLoss", ("column", "level"), ()),
    "demographic_parity": ("DemographicParity", ("column", "level"), ("measure",)),
    "equalised_odds": ("EqualisedOdds", ("column", "level"), ("measure",)),
    "sign": ("Sign", ("signs",), ()),
    "monotone": ("Monotone", ("features",), ()),
    "cost_limit": ("CostLimit", ("costs", "limit"), ()),
    "linear_inequality": ("LinearInequality", ("C",), ("d",)),
    "linear_equality": ("LinearEquality", ("C",), ("d",)),
}
KindName = Literal[
    "neyman_pearson",
    "loss_gap",
    "bounded_group_loss",
    "demographic_parity",
    "equalised_odds",
    "sign",
    "monotone",
    "cost_limit",
    "linear_inequality",
    "linear_equality",
]
OF_MODEL = ("sign", "monotone", "cost_limit", "linear_inequality", "linear_equality")
WHERE = {"clients": "at every client", "together": "over all clients together", "server": "on the server's data"}


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("allowed: a finite number")
    return float(value)


def _level(value: Any) -> float | dict[str, float]:
    one = value if isinstance(value, Mapping) else {"": value}
    for client, level in one.items():
        try:
            if _finite(level) < 0 or not one:
                raise ValueError
        except ValueError:
            said = "allowed: a finite number >= 0, or a table with one number per client"
            raise ValueError(f"client {client!r} has {level!r}; {said}" if client else said) from None
    if not one:
        raise ValueError("allowed: a finite number >= 0, or a table with one number per client")
    return {client: float(level) for client, level in value.items()} if isinstance(value, Mapping) else float(value)


def _signs(value: Any) -> Any:
    if value is None or (isinstance(value, Mapping) and value and all(s in (1, -1) for s in value.values())):
        return value
    raise ValueError("allowed: a table of features, each 1 (never falls with it) or -1 (never rises)")


def _costs(value: Any) -> Any:
    if value is None or (isinstance(value, Mapping) and value):
        return value and {name: _finite(cost) for name, cost in value.items()}
    raise ValueError("allowed: a table with a finite cost for each feature")


def _matrix(value: Any) -> Any:
    if value is None:
        return None
    rows = value if isinstance(value, list) and value and all(isinstance(row, list) for row in value) else [value]
    if all(isinstance(row, list) and row and len(row) == len(rows[0]) for row in rows):
        return [[_finite(v) for v in row] for row in rows]
    raise ValueError("allowed: a list of rows, one for each constraint, with a number for each coefficient")


def _levels(value: Any) -> list[float]:
    """A list of levels, or {from, to, count}: a geometric one."""
    try:
        return _radii(value)
    except ValueError as error:
        raise ValueError(str(error).replace("radius", "level")) from None


def _offsets(value: Any) -> Any:
    return value if value is None else [_finite(v) for v in (value if isinstance(value, list) else [value])]


class TradeOffSection(Section):
    """The problem at other levels of one of its constraints."""

    levels: Annotated[Any, PlainValidator(_levels)]
    constraint: Annotated[int, Field(ge=1)] = 1  # which one, in the order of the file


class ConstraintSection(Section):
    """One thing that the model has to keep."""

    kind: KindName
    on: Literal["clients", "together", "server"] | None = None  # None: "clients" where it is on rows
    prior: Literal["rows", "uniform", "size"] | None = None  # of "together": all rows alike, or a mean over clients
    label: Annotated[Any, PlainValidator(_label)] = None  # a class, as in the data
    column: str | None = None  # whose values are the groups
    level: Annotated[Any, PlainValidator(_level)] = None  # of a mean loss or a difference; a table: one per client
    measure: Literal["score", "probability"] | None = None
    signs: Annotated[Any, PlainValidator(_signs)] = None
    features: Annotated[list[str], Field(min_length=2)] | None = None  # the smallest coefficient first
    costs: Annotated[Any, PlainValidator(_costs)] = None
    limit: Annotated[float, BeforeValidator(_finite)] | None = None
    C: Annotated[Any, PlainValidator(_matrix)] = None
    d: Annotated[Any, PlainValidator(_offsets)] = None

    @model_validator(mode="after")
    def _own_parameters(self) -> ConstraintSection:
        _, needed, more = KINDS[self.kind]
        own = [key for key in type(self).model_fields if key not in ("kind", "on", "prior")]
        given = [key for key in own if getattr(self, key) is not None]
        for key in given:
            if key not in (*needed, *more):
                owners = " or ".join(repr(kind) for kind, (_, a, b) in KINDS.items() if key in (*a, *b))
                raise ValueError(f"has `{key}`, which {self.kind!r} does not take: it belongs to kind = {owners}")
        if lacking := [key for key in needed if key not in given]:
            raise ValueError(f"needs {' and '.join(f'`{key}`' for key in lacking)} beside kind = {self.kind!r}")
        if self.kind in OF_MODEL and self.on is not None:
            raise ValueError(
                f"has `on`, and {self.kind!r} is about the coefficients alone, the same for all: leave it out"
            )
        if self.prior is not None and self.on != "together":
            raise ValueError("has `prior`, which weighs the clients: it belongs to on = 'together'")
        if isinstance(self.level, dict) and self.place != "clients":
            raise ValueError(f"has a level for each client, and on = {self.on!r} has one limit: give one number")
        return self

    @property
    def place(self) -> str:
        """Whose rows: "clients", "together", "server", or "model" where there are none."""
        return "model" if self.kind in OF_MODEL else self.on or "clients"

    @property
    def adjustable(self) -> str | None:
        """The key of its one limit, a number; None without."""
        return next((key for key in ("level", "limit") if isinstance(getattr(self, key), float)), None)

    def words(self) -> str:
        """Such as "mean loss of class 1 at most 0.2 at every client"."""
        size = _size(self.limit if self.level is None else self.level)
        of = f"for the groups of {self.column} at most {size} apart ({self.measure or 'score'}s)"
        said = {
            "neyman_pearson": f"mean loss of class {self.label} at most {size}",
            "loss_gap": f"mean losses of the groups of {self.column} at most {size} apart",
            "bounded_group_loss": f"mean loss of every group of {self.column} at most {size}",
            "demographic_parity": f"mean predictions {of}",
            "equalised_odds": f"mean predictions within either class {of}",
            "sign": f"given signs of the coefficients of {', '.join(self.signs or ())}",
            "monotone": f"coefficients in ascending order: {', '.join(self.features or ())}",
            "cost_limit": f"cost of the coefficients at most {size}",
            "linear_inequality": f"{len(self.C or ())} rows of C w + d <= 0",
            "linear_equality": f"{len(self.C or ())} rows of C w + d = 0",
        }[self.kind]
        return said + (f" {WHERE[self.place]}" if self.place != "model" else "")

    def build(self) -> Any:
        """The constraint, for its slot of the problem."""
        import quorate as qr

        name, needed, more = KINDS[self.kind]
        given = {key: getattr(self, key) for key in (*needed, *more) if getattr(self, key) is not None}
        if "measure" in given:
            given["measure"] = {"score": qr.Score, "probability": qr.Probability}[given["measure"]]()
        if "signs" in given:
            given["of"] = given.pop("signs")
        made = getattr(qr, name)(**given)
        return made if self.place != "together" else qr.Coupled(made, self.prior or "rows")


def _size(level: Any) -> str:
    """A limit, or one for each client, in words."""
    limits = sorted({*level.values()}) if isinstance(level, dict) else [level]
    if limits == [None]:
        return ""
    return f"{limits[0]:g}" if len(limits) == 1 else f"{limits[0]:g} to {limits[-1]:g}, by client,"


def slots(constraints: list[ConstraintSection]) -> dict[str, Any]:
    """The slots of the problem that they fill; none where there are no constraints."""
    local = tuple(c.build() for c in constraints if c.place == "clients")
    shared = tuple(c.build() for c in constraints if c.place != "clients")
    return ({"local_constraint": local} if local else {}) | ({"constraint": shared} if shared else {})
