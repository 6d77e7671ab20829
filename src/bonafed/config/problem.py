"""The tables [problem], [risk], [clients] and [algorithm]: what is minimised, and by what."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bonafed.algorithms.federated.private_admm import Penalty
from bonafed.algorithms.method import Method
from bonafed.config.errors import Refusal, near
from bonafed.config.objects import Objects, as_object, as_table, in_file, known, parameters, read
from bonafed.config.schema import Count, Label, NonNegative, Positive, Probability, Section
from bonafed.names import load
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.problem.wasserstein.supports import BoxSupport, PolytopeSupport

# options of the private methods that are functions, or give steps that nobody can compute again
# from public numbers before the run
UNSAFE = ("eta", "quantile")
TYPES = {"rho": float | as_table(Penalty)}  # of options


class ProblemSection(Objects):
    """The loss of one row, the model and its regulariser."""

    STATES: ClassVar = {"loss": "loss", "model": "model", "regulariser": "regulariser"}
    # the number of classes is the data's, the seed is the run's, the centre of a ball is 0, and
    # strength and l1_share stand for the others
    ELSEWHERE: ClassVar = ("classes", "seed", "l1", "l2", "intercepts", "ones", "centre")
    KEYS: ClassVar = {"gamma": "shape", "a": "shape"}  # where mcp and scad are flat

    loss: Annotated[str, known("loss")] = "hinge"
    # only rows of this class are minimised
    label: Label | None = None
    regulariser: Annotated[str, known("regulariser")] = "l2"
    strength: NonNegative = 1e-3
    l1_share: Probability = 0.5
    intercept: bool = True  # of "linear"; of "softmax" a feature of ones
    model: Annotated[str, known("model")] = "linear"
    # "balanced", or the weight of every class: of rows, and so of clients
    class_weight: Literal["balanced"] | dict[str, Positive] | None = None
    # all rows in one place: one client to solve for; whose rows they are stays for the report
    pooled: bool = False

    def build(self, of: str, **more: object) -> Any:
        """As of any table, with the keys that stand for fields of another name."""
        share = self.l1_share
        stated = {
            "strength": self.strength,
            "l1": share * self.strength,
            "l2": (1 - share) * self.strength,
            "intercept": self.intercept,
            "intercepts": False,  # the rows have a feature of ones (`Tables.ones`)
            "ones": self.model == "softmax" and self.intercept,
        }
        fields = parameters(self.named_class(of))
        return super().build(of, **{k: v for k, v in (stated | more).items() if k in fields})


class RobustSection(Objects):
    """The Wasserstein ball round every client's rows."""

    STATES: ClassVar = {"ball": "ball"}
    DEFAULTS: ClassVar = {"radius": 0.0, "support": None}
    TYPES: ClassVar = {
        "norm": Literal["l1", "l2", "linf"],
        "radius": float | Mapping[str, float] | Literal["auto"],  # "auto": read off the rows
        "support": Literal["none"] | as_table(BoxSupport) | as_table(PolytopeSupport),
    }

    ball: ClassVar[str] = "wasserstein"
    # instead of a label cost: the share of every client's labels that can flip at most
    label_flips: Annotated[float | None, Field(ge=0, lt=0.5)] = None

    @model_validator(mode="after")
    def _one_cost_of_labels(self) -> Self:
        if self.label_flips is not None and math.isfinite(self.label_cost):
            raise ValueError("give label_cost or label_flips, not both: either limits flips")
        return self

    @property
    def flip_cost(self) -> float:
        """The label cost, as stated or by ``label_flips``; inf until the radius is known."""
        if self.label_flips is None:
            return self.label_cost
        radius = self.radius
        largest = max(radius.values()) if isinstance(radius, Mapping) else radius
        free = radius == "auto" or not self.label_flips or not largest
        return math.inf if free else largest / self.label_flips

    @property
    def is_robust(self) -> bool:
        """Whether any client has a ball."""
        radius = self.radius
        return any(radius.values()) if isinstance(radius, Mapping) else radius != 0

    def build(self, of: str = "ball", **more: object) -> WassersteinBall:
        """The ball; a radius that is read off the rows is 1 until they are known."""
        known = {"radius": 1.0} if self.radius == "auto" else {}
        support = {"support": None} if self.support == "none" else {}
        cost = {} if self.label_flips is None else {"label_cost": self.flip_cost}
        return super().build(of, **known | support | cost | more)


class RiskSection(Objects):
    """The risk over the losses of rows: within every client, with `on` = "together" over the rows
    of all clients, which stay where they are, or with `problem.pooled` over all in one place.
    """

    STATES: ClassVar = {"name": "risk over samples"}
    ELSEWHERE: ClassVar = ("prior", "label", "code")  # rows have no prior; the label is [problem]'s

    name: Annotated[str, known("risk over samples")] = "mean"
    # whose rows are ranked among each other; None: "clients", each client's own
    on: Literal["clients", "together"] | None = None

    @property
    def together(self) -> bool:
        """Whether the rows of all clients are ranked together."""
        return self.on == "together"

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
        phrase = self.phrase("name")
        return f"{self.title} ({phrase})" if hasattr(self.named_class("name"), "phrase") else phrase


class ClientsSection(Objects):
    """The risk over clients."""

    STATES: ClassVar = {"risk": "risk over clients"}
    ELSEWHERE: ClassVar = ("label", "code")
    DEFAULTS: ClassVar = {"radius": 0.1}

    risk: Annotated[str, known("risk over clients")] = "lp_ball"

    @property
    def centred(self) -> bool:
        """Whether the weights are near a prior."""
        return "prior" in self.parameters()

    def build(self, of: str = "risk", **more: object) -> Any:
        """The risk; raises ``ValueError`` for weights that no clients can have."""
        risk = super().build(of, **more)
        prior = getattr(risk, "prior", "size")
        if not isinstance(prior, str):
            weights = prior.values() if isinstance(prior, Mapping) else prior
            if not all(0 <= weight < math.inf for weight in weights):
                raise ValueError(f"prior allows finite numbers >= 0, got {prior!r}")
        return risk

    def words(self) -> str:
        """What it is of the clients' losses, such as "the worst weighted mean over the clients
        (any weights)".
        """
        prior = f"{self.prior if isinstance(self.get('prior'), str) else 'given'} prior"
        if self.risk == "mean":
            return f"the mean over the clients ({prior})"
        phrase = self.phrase("risk")
        more = f", {prior}" if self.centred and prior not in phrase else ""
        return f"the worst weighted mean over the clients ({phrase}{more})"


class AlgorithmSection(Section):
    """How it is solved, and when to stop."""

    name: Annotated[str, known("algorithm", "auto")] = "auto"
    tol: Positive | None = None
    max_rounds: Count | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Whether it names a method that adds noise for privacy."""
        return self.name != "auto" and getattr(load("algorithm", self.name), "private", False)

    def build(self, name: str, **defaults: object) -> Method:
        """The algorithm of a name with its options; ``defaults`` are those that are not stated.

        Raises
        ------
        ValueError : an unknown option, or a value that the algorithm refuses, with its key
        """
        cls = load("algorithm", name)
        values = {key: self._option(name, key, value) for key, value in self.options.items()}
        try:
            return cls(**defaults | values)
        except (TypeError, ValueError) as error:
            raise ValueError(self.refusal(str(error))) from error

    def _option(self, name: str, key: str, value: object) -> object:
        """The value of one option as the algorithm takes it."""
        types = {
            field: TYPES.get(field, p.type)
            for field, p in parameters(load("algorithm", name)).items()
            if field not in type(self).model_fields
        }
        allowed = {
            field: kind
            for field, kind in types.items()
            if field not in UNSAFE and in_file(kind) is not None
        }
        if key not in allowed:
            hint = near(key, [*allowed], " Did you mean {!r}?")
            text = f"{name!r} has no such option, it takes {', '.join(allowed)}.{hint}"
            if key in types and key in UNSAFE:
                text = "a function or a clip that moves: leave it out"
            raise ValueError(self.refusal(text, key))
        try:
            return as_object(allowed[key], read(allowed[key], value))
        except ValueError as error:
            raise ValueError(self.refusal(str(error), key)) from None

    def refusal(self, text: str, key: str = "") -> Refusal:
        """What is wrong with an option, such as the first one that the text names."""
        named = [key] if key else [k for k in re.findall(r"\w+", text) if k in self.options]
        return Refusal(text, "algorithm", "options", *named[:1])
