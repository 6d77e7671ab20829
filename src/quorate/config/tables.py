"""All tables of a configuration together, and what the objects that they state are.

The rules between the tables and the words of a problem read them from here; `Config` adds reading,
writing and solving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from quorate.config.constraints import ConstraintSection, TradeOffSection
from quorate.config.engine import EngineSection
from quorate.config.privacy import EvaluationSection, PrivacySection
from quorate.config.problem import AlgorithmSection, ClientsSection, ProblemSection, RiskSection
from quorate.config.schema import DataSection, PathSection, ReportSection, RobustSection, Section
from quorate.names import NAMED, load

if TYPE_CHECKING:
    from quorate.problem.losses import Loss
    from quorate.problem.predictors.affine import Predictor
    from quorate.problem.problem import Problem
    from quorate.problem.regularisers import Regulariser


def names_with(kind: str, fact: str, value: Any = True) -> list[str]:
    """The short names of one kind whose class has a fact, such as smooth losses."""
    return [name for name in NAMED[kind] if getattr(load(kind, name), fact, None) == value]


class Tables(Section):
    """What a file states, table by table."""

    title: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    data: DataSection
    problem_: Annotated[ProblemSection, Field(alias="problem", default_factory=ProblemSection)]
    risk: Annotated[RiskSection, Field(default_factory=RiskSection)]
    robust: RobustSection = RobustSection()
    clients: Annotated[ClientsSection, Field(default_factory=ClientsSection)]
    constraint: Annotated[list[ConstraintSection], Field(default_factory=list)]
    trade_off: TradeOffSection | None = None
    path: PathSection | None = None
    privacy: PrivacySection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    algorithm: Annotated[AlgorithmSection, Field(default_factory=AlgorithmSection)]
    engine: Annotated[EngineSection, Field(default_factory=EngineSection)]
    report: ReportSection = ReportSection()

    @model_validator(mode="before")
    @classmethod
    def _mean_under_constraints(cls, raw: Any) -> Any:
        """With constraints or a budget of privacy the clients are averaged unless the file says
        otherwise.
        """
        plain = isinstance(raw, dict) and isinstance(raw.get("problem", {}), dict)
        if not plain or not (
            raw.get("constraint") or "label" in raw.get("problem", {}) or "privacy" in raw
        ):
            return raw
        clients = raw.get("clients", {})
        return raw | {"clients": {"risk": "mean", **clients}} if isinstance(clients, dict) else raw

    def solvable(self) -> Problem | None:
        """The problem as stated, before the data are read; None where it cannot be stated."""
        raise NotImplementedError

    def loss(self) -> Loss:
        """The loss of one row."""
        return self.problem_.build("loss")

    def predictor(self) -> Predictor:
        """The model, with the seed of the run where it starts at random."""
        return self.problem_.build("model", seed=self.seed)

    def regulariser(self) -> Regulariser:
        """The regulariser."""
        return self.problem_.build("regulariser")

    @property
    def constrained(self) -> bool:
        """Whether it is for the methods for constraints: there are some, or one class alone is in
        the objective.
        """
        return bool(self.constraint) or self.problem_.label is not None

    @property
    def loss_of_classes(self) -> bool:
        """Whether the target is one of two classes, or of several."""
        return self.loss().targets in ("sign", "class")

    @property
    def ones(self) -> bool:
        """Whether a feature of ones stands for the intercepts of several classes."""
        return self.problem_.model == "softmax" and self.problem_.intercept
