"""The tables [problem], [risk], [clients] and [algorithm]: what is minimised, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, model_validator

from quorate.config.errors import near
from quorate.config.objects import Objects, known, parameters, read, statable, words
from quorate.config.schema import NonNegative, Positive, Probability, Section, label_of_a_class
from quorate.names import NAMED, load

# options of the private methods that are functions, or scale noise without a guarantee
UNSAFE = ("eta", "local_epsilon", "sensitivity")


class ProblemSection(Objects):
    """The loss of one row, the model and its regulariser."""

    STATES: ClassVar = {"loss": "loss", "model": "model", "regulariser": "regulariser"}
    # the number of classes is the data's, the seed is the run's, and strength, l1_share and shape
    # stand for the others
    ELSEWHERE: ClassVar = ("classes", "seed", "l1", "l2", "gamma", "a")

    loss: Annotated[str, known("loss")] = "hinge"
    label: Annotated[Any, PlainValidator(label_of_a_class)] = None  # only its rows are minimised
    regulariser: Annotated[str, known("regulariser")] = "l2"
    strength: NonNegative = 1e-3
    l1_share: Probability = 0.5
    # gamma of mcp, a of scad: where the penalty is flat
    shape: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    intercept: bool = True  # of "linear"; of "softmax" a feature of ones
    model: Annotated[str, known("model")] = "linear"
    # all rows in one place: one client to solve for; whose rows they are stays for the report
    pooled: bool = False

    @model_validator(mode="after")
    def _shape_of_the_penalty(self) -> ProblemSection:
        if self.shape is None or {"gamma", "a"} & {*self._fields("regulariser")}:
            return self
        kinds = {name: parameters(load("regulariser", name)) for name in NAMED["regulariser"]}
        owners = [name for name, fields in kinds.items() if {"gamma", "a"} & {*fields}]
        raise ValueError(
            f"has `shape`, which {self.regulariser!r} does not take: it belongs to"
            f" {' or '.join(map(repr, owners))}"
        )

    def build(self, of: str, **more: Any) -> Any:
        """As of any table, with the keys that stand for fields of another name."""
        share = self.l1_share
        stated = {
            "strength": self.strength,
            "l1": share * self.strength,
            "l2": (1 - share) * self.strength,
            "gamma": self.shape,
            "a": self.shape,
            "intercept": self.intercept,
        }
        own = {key: value for key, value in (stated | more).items() if key in self._fields(of)}
        try:
            return super().build(of, **{k: v for k, v in own.items() if v is not None})
        except ValueError as error:
            if of != "regulariser" or self.shape is None:
                raise
            raise ValueError(f"with shape = {self.shape:g}: {error}") from error

    def _fields(self, of: str) -> dict[str, Any]:
        return parameters(self.named_class(of))


RANKS = {  # of the losses of rows, by the keys of [risk]
    "superquantile": "mean of the largest {share:g} %",
    "extremile": "r = {r:g}",
    "exponential_spectral": "rho = {rho:g}",
    "top_k": "mean of the {k} largest",
    "ranked_range": "mean of ranks {first} to {k}, counted from the {end}",
    "value_at_risk": "{level:g} quantile",
    "human_aligned": "a = {a:g}, b = {b:g}",
}


class RiskSection(Objects):
    """The risk over the losses of rows: within every client, or with `problem.pooled` over all."""

    STATES: ClassVar = {"name": "risk over samples"}
    ELSEWHERE: ClassVar = ("prior", "label", "code")  # rows have no prior; the label is [problem]'s

    name: Annotated[str, known("risk over samples")] = "mean"

    @property
    def by_rank(self) -> bool:
        """Whether losses are weighed by their rank at all."""
        return self.name != "mean"

    @property
    def convex(self) -> bool:
        """Whether larger losses never weigh less."""
        return getattr(self.named_class("name"), "convex", True)

    @property
    def title(self) -> str:
        """The name as text."""
        return self.name.replace("_", " ")

    def words(self) -> str:
        """What it is of the losses, such as "superquantile (mean of the largest 20 %)"."""
        if self.name not in RANKS:
            return self.described("name")
        more = {
            "share": 100 * (self.get("tail") or 0.0),
            "first": (self.get("m") or 0) + 1,
            "end": "largest" if self.get("order") == "descending" else "smallest",
        }
        return f"{self.title} ({RANKS[self.name].format_map({**self.model_dump(), **more})})"


SETS = {  # of the weights of the clients, by the keys of [clients]
    "simplex": "any weights",
    "lp_ball": "weights within {radius:g} of the {prior}, l{p:g} norm",
    "cd_norm": "weights at most {bounds} from the {prior}, {budget:g} {clients} at that end",
    "box": "weights between {lower} and {upper}",
    "ellipsoid": "weights in an ellipsoid of squared radius {radius:g} round the {prior}",
    "polyhedron": "weights p with D p <= c, {rows}",
    "kl_ball": "weights within a KL divergence of {radius:g} from the {prior}",
    "chi_square": "weights within a chi-square distance of {radius:g} from the {prior}",
    "total_variation": "weights within a total variation of {radius:g} from the {prior}",
    "wasserstein": "weights within a transport cost of {radius:g} from the {prior}",
    "superquantile": "the {prior}'s worst {share:g} %",
}


class ClientsSection(Objects):
    """The risk over clients."""

    STATES: ClassVar = {"risk": "risk over clients"}
    ELSEWHERE: ClassVar = ("label", "code")
    DEFAULTS: ClassVar = {"radius": 0.1}
    WRITTEN: ClassVar = ("radius", "p", "prior")

    risk: Annotated[str, known("risk over clients")] = "lp_ball"

    @property
    def centred(self) -> bool:
        """Whether the weights are near a prior."""
        return "prior" in self.parameters()

    def words(self) -> str:
        """What it is of the clients' losses, such as "the worst mix of the clients (any
        weights)".
        """
        given = self.get("prior")
        prior = f"{given} prior" if isinstance(given, str) else "given prior"
        if self.risk == "mean":
            return f"the mean over the clients ({prior})"
        if self.risk not in SETS:
            return f"the worst mix of the clients ({self.described('risk')})"
        rows = len(self.get("c") or ())
        more = {
            "prior": prior,
            "share": 100 * (self.get("tail") or 0.0),
            "rows": f"{rows} row{'s' * (rows != 1)}",
            "clients": f"client{'s' * (self.get('budget') != 1)}",
            **{key: _range(self.get(key)) for key in ("bounds", "lower", "upper")},
        }
        text = SETS[self.risk].format_map({**self.model_dump(), **more})
        return f"the worst mix of the clients ({text})"


def _range(value: Any) -> str:
    """One number, or those of several clients."""
    several = [*value.values()] if isinstance(value, Mapping) else value
    numbers = sorted({*(several if isinstance(several, list) else [several or 0.0])})
    first, last = numbers[0], numbers[-1]
    return f"{first:g}" if len(numbers) == 1 else f"{first:g} to {last:g} (by client)"


class AlgorithmSection(Section):
    """How it is solved, and when to stop."""

    name: Annotated[str, known("algorithm", "auto")] = "auto"
    tol: Positive | None = None
    max_rounds: Annotated[int, Field(ge=1)] | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Whether it names a method that adds noise for privacy."""
        return self.name != "auto" and getattr(load("algorithm", self.name), "private", False)

    def build(self, name: str, options: Mapping[str, Any]) -> Any:
        """The algorithm of a name with its options, some of which may be objects already."""
        cls = load("algorithm", name)
        allowed = {
            field: p
            for field, p in parameters(cls).items()
            if statable(p.type) and field not in (*type(self).model_fields, *UNSAFE)
        }
        given = {}
        for key, value in options.items():
            if key not in allowed:
                raise ValueError(
                    f"algorithm.options.{key} is no option of {name!r}, it takes"
                    f" {', '.join(allowed)}.{near(key, [*allowed], ' Did you mean {!r}?')}"
                )
            try:
                given[key] = read(allowed[key].type, value)
            except ValueError:
                allows = words(allowed[key].type)
                raise ValueError(
                    f"algorithm.options.{key} of {name!r}: got {value!r}; allowed: {allows}"
                ) from None
        return cls(**given)
