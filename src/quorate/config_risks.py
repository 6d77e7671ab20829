"""The table [risk] of a configuration: how the losses of the rows become one number, and that number in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from quorate.config_sections import Section

RISKS = {  # name in the file -> (class, the keys of [risk] that it needs, those that it may have)
    "mean": ("Mean", (), ()),
    "superquantile": ("Superquantile", ("tail",), ()),
    "extremile": ("Extremile", ("r",), ()),
    "exponential_spectral": ("ExponentialSpectral", ("rho",), ()),
    "maximum": ("Maximum", (), ()),
    "top_k": ("TopK", ("k",), ()),
    "ranked_range": ("RankedRange", ("k", "m"), ("order",)),
    "median": ("Median", (), ()),
    "value_at_risk": ("ValueAtRisk", ("level",), ()),
    "human_aligned": ("HumanAligned", ("a", "b"), ()),
    "prospect_theory": ("ProspectTheory", (), ("gamma", "delta", "reference")),
}
RiskName = Literal[
    "mean",
    "superquantile",
    "extremile",
    "exponential_spectral",
    "maximum",
    "top_k",
    "ranked_range",
    "median",
    "value_at_risk",
    "human_aligned",
    "prospect_theory",
]
CONVEX = ("mean", "superquantile", "extremile", "exponential_spectral", "maximum", "top_k")
DETAILS: dict[str, Callable[[Any], str]] = {
    "superquantile": lambda r: f"mean of the largest {100 * r.tail:g} %",
    "extremile": lambda r: f"r = {r.r:g}",
    "exponential_spectral": lambda r: f"rho = {r.rho:g}",
    "top_k": lambda r: f"mean of the {r.k} largest",
    "ranked_range": lambda r: f"mean of ranks {r.m + 1} to {r.k}, counted from the {_first(r.order)}",
    "value_at_risk": lambda r: f"{r.level:g} quantile",
    "human_aligned": lambda r: f"a = {r.a:g}, b = {r.b:g}",
}

Finite = Annotated[float, Field(allow_inf_nan=False)]
Curvature = Annotated[float, Field(ge=0.28, le=1)]
Part = Annotated[float, Field(gt=0, le=1)]


class RiskSection(Section):
    """The risk over the losses of rows: within every client, or with `problem.pooled` over all rows."""

    name: RiskName = "mean"
    tail: Part | None = None  # share of the largest losses
    r: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    rho: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    k: Annotated[int, Field(ge=1)] | None = None
    m: Annotated[int, Field(ge=0)] | None = None
    order: Literal["ascending", "descending"] | None = None  # of the ranks k and m
    level: Part | None = None  # share of losses that are not exceeded
    a: Finite | None = None
    b: Finite | None = None
    gamma: Curvature | None = None
    delta: Curvature | None = None
    reference: Finite | None = None  # in units of the loss

    @model_validator(mode="after")
    def _own_parameters(self) -> RiskSection:
        _, needed, more = RISKS[self.name]
        given = [key for key in type(self).model_fields if key != "name" and getattr(self, key) is not None]
        for key in given:
            if key not in (*needed, *more):
                owners = " or ".join(repr(name) for name, (_, own, other) in RISKS.items() if key in (*own, *other))
                raise ValueError(f"has `{key}`, which {self.name!r} does not take: it belongs to name = {owners}")
        if lacking := [key for key in needed if key not in given]:
            raise ValueError(f"needs {' and '.join(f'`{key}`' for key in lacking)} beside name = {self.name!r}")
        if self.k is not None and self.m is not None and self.m >= self.k:
            raise ValueError(f"has m = {self.m} and k = {self.k}: the losses of ranks m + 1 to k count, so m < k")
        return self

    @property
    def by_rank(self) -> bool:
        """Whether losses are weighed by their rank at all."""
        return self.name != "mean"

    @property
    def convex(self) -> bool:
        """Whether larger losses never weigh less."""
        return self.name in CONVEX

    @property
    def title(self) -> str:
        """The name as text."""
        return self.name.replace("_", " ")

    def words(self) -> str:
        """What it is of the losses, such as "superquantile (mean of the largest 20 %)"."""
        return f"{self.title} ({DETAILS[self.name](self)})" if self.name in DETAILS else self.title

    def build(self) -> Any:
        """The risk; raises ``ValueError`` for parameters that do not go together."""
        from quorate.problem import risks

        kind, needed, more = RISKS[self.name]
        given = {key: getattr(self, key) for key in (*needed, *more) if getattr(self, key) is not None}
        return getattr(risks, kind)(**given)


def _first(order: str | None) -> str:
    return "largest" if order == "descending" else "smallest"
