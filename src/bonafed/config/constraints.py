"""The tables [[constraint]] of a configuration: what the model has to keep, at whom, and that in
words.

A constraint on rows is about every client's own rows (on = "clients"), about the rows of all
clients ("together"), or about data of the server ("server"). One on the coefficients by themselves
has no rows and no such key.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from bonafed.config.objects import Objects, known
from bonafed.names import load

WHERE = {
    "clients": "at every client",
    "together": "over all clients together",
    "server": "on the server's data",
}


class ConstraintSection(Objects):
    """One thing that the model has to keep."""

    STATES: ClassVar = {"kind": "constraint"}
    KEYS: ClassVar = {"of": "signs"}
    OWNED: ClassVar = ("measure",)

    kind: Annotated[str, known("constraint")]
    # None: "clients" where it is on rows
    on: Literal["clients", "together", "server"] | None = None
    # of "together": all rows alike, or a mean over clients
    prior: Literal["rows", "uniform", "size"] | None = None
    # of what the groups' means are; None: the class's default
    measure: Annotated[str, known("measure")] | None = None

    @model_validator(mode="after")
    def _place(self) -> ConstraintSection:
        if self.place == "model" and self.on is not None:
            raise ValueError(
                f"has `on`, and {self.kind!r} is about the coefficients only, the same for all:"
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

    def words(self) -> str:
        """Such as "mean loss of class 1 at most 0.2 at every client"."""
        return self.phrase("kind") + (f" {WHERE[self.place]}" if self.place != "model" else "")

    def build(self, of: str = "kind", **more: object) -> Any:
        """The constraint, for its slot of the problem."""
        measure = {} if self.measure is None else {"measure": load("measure", self.measure)()}
        constraint = super().build(of, **measure, **more)
        if self.place != "together":
            return constraint
        from bonafed.problem.constraints.coupled import Coupled

        return Coupled(constraint, self.prior or "rows")


def slots(constraints: list[ConstraintSection]) -> dict[str, Any]:
    """The slots of the problem that they fill; none where there are no constraints."""
    local = tuple(c.build() for c in constraints if c.place == "clients")
    shared = tuple(c.build() for c in constraints if c.place != "clients")
    return ({"local_constraint": local} if local else {}) | (
        {"constraint": shared} if shared else {}
    )
