"""The tables [[constraint]] of a configuration: what the model has to keep, at whom, and that in
words.

A constraint on rows is about every client's own rows (on = "clients"), about the rows of all
clients ("together"), or about data of the server ("server"). One on the coefficients alone has no
rows and no such key.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, model_validator

from quorate.config.objects import Objects, known, parameters
from quorate.config.schema import Section, several_radii
from quorate.names import NAMED, load

APART = "for the groups of {column} at most {size} apart ({measure}s)"
PHRASES = {
    "neyman_pearson": "mean loss of class {label} at most {size}",
    "loss_gap": "mean losses of the groups of {column} at most {size} apart",
    "bounded_group_loss": "mean loss of every group of {column} at most {size}",
    "demographic_parity": f"mean predictions {APART}",
    "equalised_odds": f"mean predictions within either class {APART}",
    "sign": "given signs of the coefficients of {signs}",
    "monotone": "coefficients in ascending order: {features}",
    "cost_limit": "cost of the coefficients at most {size}",
    "linear_inequality": "{rows} rows of C w + d <= 0",
    "linear_equality": "{rows} rows of C w + d = 0",
}
WHERE = {
    "clients": "at every client",
    "together": "over all clients together",
    "server": "on the server's data",
}


def _levels(value: Any) -> list[float]:
    """A list of levels, or {from, to, count}: a geometric one."""
    try:
        return several_radii(value)
    except ValueError as error:
        raise ValueError(str(error).replace("radius", "level")) from None


class TradeOffSection(Section):
    """The problem at other levels of one of its constraints."""

    levels: Annotated[Any, PlainValidator(_levels)]
    constraint: Annotated[int, Field(ge=1)] = 1  # which one, in the order of the file


class ConstraintSection(Objects):
    """One thing that the model has to keep."""

    STATES: ClassVar = {"kind": "constraint"}
    KEYS: ClassVar = {"of": "signs"}

    kind: Annotated[str, known("constraint")]
    # None: "clients" where it is on rows
    on: Literal["clients", "together", "server"] | None = None
    # of "together": all rows alike, or a mean over clients
    prior: Literal["rows", "uniform", "size"] | None = None
    # of what the groups' means are; None: the class's default
    measure: Annotated[str, known("measure")] | None = None

    @model_validator(mode="after")
    def _place_and_measure(self) -> ConstraintSection:
        if self.measure is not None and not self._has("measure", self.kind):
            owners = [kind for kind in NAMED["constraint"] if self._has("measure", kind)]
            raise ValueError(
                f"has `measure`, which {self.kind!r} does not take: it belongs to kind ="
                f" {' or '.join(map(repr, owners))}"
            )
        if self.place == "model" and self.on is not None:
            raise ValueError(
                f"has `on`, and {self.kind!r} is about the coefficients alone, the same for all:"
                " leave it out"
            )
        if self.prior is not None and self.on != "together":
            raise ValueError("has `prior`, which weighs the clients: it belongs to on = 'together'")
        if isinstance(self.get("level"), dict) and self.place != "clients":
            raise ValueError(
                f"has a level for each client, and on = {self.on!r} has one limit: give one number"
            )
        return self

    @property
    def place(self) -> str:
        """Whose rows: "clients", "together", "server", or "model" where there are none."""
        of_model = getattr(self.named_class("kind"), "of_model", False)
        return "model" if of_model else self.on or "clients"

    @property
    def adjustable(self) -> str | None:
        """The key of its one limit, a number; None without."""
        return next((key for key in ("level", "limit") if isinstance(self.get(key), float)), None)

    def words(self) -> str:
        """Such as "mean loss of class 1 at most 0.2 at every client"."""
        limit = self.get("limit") if self.get("level") is None else self.get("level")
        phrase = PHRASES.get(self.kind)
        text = (
            self.described("kind")
            if phrase is None
            else phrase.format_map(
                {
                    "size": _size(limit),
                    "measure": self.measure or "score",
                    "signs": ", ".join(self.get("signs") or ()),
                    "features": ", ".join(self.get("features") or ()),
                    "rows": _rows(self.get("C")),
                    "label": self.get("label"),
                    "column": self.get("column"),
                }
            )
        )
        return text + (f" {WHERE[self.place]}" if self.place != "model" else "")

    def build(self, of: str = "kind", **more: Any) -> Any:
        """The constraint, for its slot of the problem."""
        from quorate.problem.constraints.coupled import Coupled

        measure = {} if self.measure is None else {"measure": load("measure", self.measure)()}
        constraint = super().build(of, **measure, **more)
        return Coupled(constraint, self.prior or "rows") if self.place == "together" else constraint

    @staticmethod
    def _has(field: str, kind: str) -> bool:
        return field in parameters(load("constraint", kind))


def _rows(C: Any) -> int:
    """The rows of a matrix; a list of numbers is one row."""
    return len(C) if C and isinstance(C[0], list) else 1


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
    return ({"local_constraint": local} if local else {}) | (
        {"constraint": shared} if shared else {}
    )
