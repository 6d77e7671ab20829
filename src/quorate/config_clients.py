"""The table [clients] of a configuration: the weights that a mix of the clients may have, in words and as a set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from quorate.config_sections import Exponent, NonNegative, Section, _number, _prior

SETS = {  # name in the file -> (class, the keys of [clients] that it needs, those that it may have)
    "mean": ("Mean", (), ("prior",)),
    "simplex": ("Simplex", (), ()),
    "lp_ball": ("LpBall", (), ("radius", "p", "prior")),
    "cd_norm": ("CDNorm", ("budget", "bounds"), ("prior",)),
    "box": ("Box", ("lower", "upper"), ()),
    "ellipsoid": ("Ellipsoid", ("shape",), ("radius", "prior")),
    "polyhedron": ("Polyhedron", ("D", "c"), ()),
    "kl_ball": ("KLBall", (), ("radius", "prior")),
    "chi_square": ("ChiSquareBall", (), ("radius", "prior")),
    "total_variation": ("TotalVariationBall", (), ("radius", "prior")),
    "wasserstein": ("WassersteinOverClients", (), ("radius", "cost", "prior")),
    "superquantile": ("Superquantile", ("tail",), ("prior",)),
}
SetName = Literal[
    "mean",
    "simplex",
    "lp_ball",
    "cd_norm",
    "box",
    "ellipsoid",
    "polyhedron",
    "kl_ball",
    "chi_square",
    "total_variation",
    "wasserstein",
    "superquantile",
]
DETAILS: dict[str, Callable[[Any], str]] = {  # without the prior
    "simplex": lambda c: "any weights",
    "lp_ball": lambda c: f"weights within {c.radius:g} of the {{prior}}, l{c.p:g} norm",
    "cd_norm": lambda c: (
        f"weights at most {_words(c.bounds)} from the {{prior}}, {c.budget:g} client{'s' * (c.budget != 1)} at that end"
    ),
    "box": lambda c: f"weights between {_words(c.lower)} and {_words(c.upper)}",
    "ellipsoid": lambda c: f"weights in an ellipsoid of squared radius {c.radius:g} round the {{prior}}",
    "polyhedron": lambda c: f"weights p with D p <= c, {len(c.c)} row{'s' * (len(c.c) != 1)}",
    "kl_ball": lambda c: f"weights within a KL divergence of {c.radius:g} from the {{prior}}",
    "chi_square": lambda c: f"weights within a chi-square distance of {c.radius:g} from the {{prior}}",
    "total_variation": lambda c: f"weights within a total variation of {c.radius:g} from the {{prior}}",
    "wasserstein": lambda c: f"weights within a transport cost of {c.radius:g} from the {{prior}}",
    "superquantile": lambda c: f"the {{prior}}'s worst {100 * c.tail:g} %",
}


def _finite(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("allowed: finite numbers")
    return float(value)


def _by_client(value: Any) -> Any:
    """A number >= 0, a list with one for each client, or a table by client name."""
    if isinstance(value, Mapping) and value:
        return {client: _number(v) for client, v in value.items()}
    if isinstance(value, list) and value:
        return [_number(v) for v in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    raise ValueError("allowed: a number >= 0, a list with one for each client, or a table with one for each client")


def _matrix(value: Any) -> Any:
    """Rows of numbers, or one column for each client by its name."""
    rows = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) and row for row in rows):
        raise ValueError("allowed: a list of rows of numbers, or a table with one column for each client")
    found = [[_finite(v) for v in row] for row in rows]
    if len({len(row) for row in found}) > 1:
        raise ValueError("allowed: rows, or columns, of one length")
    return dict(zip(value, found, strict=True)) if isinstance(value, Mapping) else found


def _shape(value: Any) -> Any:
    matrix = isinstance(value, list) and value and isinstance(value[0], list)
    return _matrix(value) if matrix else _by_client(value)


def _cost(value: Any) -> Any:
    if value == "index":
        return value
    if isinstance(value, Mapping) and value:
        return {client: _finite(v) for client, v in value.items()}
    if isinstance(value, list) and value:
        return _matrix(value) if isinstance(value[0], list) else [_finite(v) for v in value]
    raise ValueError("allowed: 'index', positions (a list, or a table by client), or a matrix of costs")


ByClient = Annotated[Any, PlainValidator(lambda value: value if value is None else _by_client(value))]
Shape = Annotated[Any, PlainValidator(lambda value: value if value is None else _shape(value))]
Matrix = Annotated[Any, PlainValidator(lambda value: value if value is None else _matrix(value))]
Vector = Annotated[Any, PlainValidator(lambda value: value if value is None else _matrix([value])[0])]
Cost = Annotated[Any, PlainValidator(lambda value: value if value is None else _cost(value))]


class ClientsSection(Section):
    """The risk over clients."""

    risk: SetName = "lp_ball"
    radius: NonNegative = 0.1
    p: Exponent = 2.0
    prior: Annotated[Any, PlainValidator(_prior)] = "uniform"
    budget: NonNegative | None = None  # of cd_norm: how many clients may be at their bounds
    bounds: ByClient = None  # of cd_norm: how far a weight may be from its prior
    lower: ByClient = None
    upper: ByClient = None
    shape: Shape = None  # of an ellipsoid: one number for each client, or a matrix
    D: Matrix = None
    c: Vector = None
    cost: Cost = None  # of moving weight between clients
    tail: Annotated[float, Field(gt=0, le=1)] | None = None  # share of the worst clients

    @model_validator(mode="after")
    def _own_parameters(self) -> ClientsSection:
        _, needed, more = SETS[self.risk]
        fields = {name: field.default for name, field in type(self).model_fields.items() if name != "risk"}
        given = [key for key, default in fields.items() if getattr(self, key) != default]
        for key in given:
            if key not in (*needed, *more):
                owners = " or ".join(repr(name) for name, (_, own, other) in SETS.items() if key in (*own, *other))
                raise ValueError(f"has `{key}`, which risk = {self.risk!r} does not take: use risk = {owners}")
        if lacking := [key for key in needed if key not in given]:
            raise ValueError(f"needs {' and '.join(f'`{key}`' for key in lacking)} beside risk = {self.risk!r}")
        return self

    @property
    def centred(self) -> bool:
        """Whether the weights are near a prior."""
        return "prior" in (*SETS[self.risk][1], *SETS[self.risk][2])

    def build(self) -> Any:
        """The risk; raises ``ValueError`` for parameters that do not go together."""
        from quorate.problem import risks

        kind, needed, more = SETS[self.risk]
        given = {key: getattr(self, key) for key in (*needed, *more) if getattr(self, key) is not None}
        return getattr(risks, kind)(**given)

    def words(self) -> str:
        """What it is of the clients' losses, such as "the worst mix of the clients (any weights)"."""
        prior = f"{self.prior} prior" if isinstance(self.prior, str) else "given prior"
        if self.risk == "mean":
            return f"the mean over the clients ({prior})"
        return f"the worst mix of the clients ({DETAILS[self.risk](self).format(prior=prior)})"


def _words(value: Any) -> str:
    """One number, or those of several clients."""
    numbers = sorted(
        {*(value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value])}
    )
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"{numbers[0]:g} to {numbers[-1]:g} (by client)"
