"""All tables of a configuration together, and the problem, the method and the engine that they
state.
"""

import math
import os
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

from bonafed.algorithms.method import Method
from bonafed.config import sections
from bonafed.config.objects import in_words
from bonafed.config.schema import DataSection, ReportSection, Section
from bonafed.config.toml_file import ConfigError, Refusal
from bonafed.names import NAMED, load
from bonafed.problem.losses import Loss
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean


@cache
def names_with(kind: str, fact: str, value: Hashable = True) -> list[str]:
    """The short names of one kind whose class has a fact, such as smooth losses."""
    return [name for name in NAMED[kind] if getattr(load(kind, name), fact, None) == value]


class Tables(Section):
    """What a file states, table by table."""

    title: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    data: DataSection
    problem_: Annotated[
        sections.ProblemSection, Field(alias="problem", default_factory=sections.ProblemSection)
    ]
    risk: Annotated[sections.RiskSection, Field(default_factory=sections.RiskSection)]
    robust: Annotated[sections.RobustSection, Field(default_factory=sections.RobustSection)]
    clients: Annotated[sections.ClientsSection, Field(default_factory=sections.ClientsSection)]
    constraint: Annotated[list[sections.ConstraintSection], Field(default_factory=list)]
    sweep: sections.SweepSection | None = None
    privacy: sections.PrivacySection | None = None
    evaluation: sections.EvaluationSection = sections.EvaluationSection()
    algorithm: Annotated[
        sections.AlgorithmSection, Field(default_factory=sections.AlgorithmSection)
    ]
    engine: Annotated[sections.EngineSection, Field(default_factory=sections.EngineSection)]
    report: ReportSection = ReportSection()
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _trace: str = PrivateAttr("[engine]")  # where the file says which delays were recorded

    @model_validator(mode="before")
    @classmethod
    def _mean_of_clients(cls, raw: object) -> object:
        """With constraints or a privacy budget, or where all rows are ranked together, the clients
        are averaged unless the file says otherwise.
        """
        if not isinstance(raw, dict):
            return raw
        problem, risk, clients = (raw.get(key, {}) for key in ("problem", "risk", "clients"))
        one_class = isinstance(problem, dict) and "label" in problem
        together = isinstance(risk, dict) and risk.get("on") == "together"
        mean = raw.get("constraint") or one_class or together or "privacy" in raw
        if isinstance(clients, dict) and mean:
            return raw | {"clients": {"risk": "mean", **clients}}
        return raw

    @property
    def folder(self) -> Path:
        """Relative paths of the file start here."""
        return self._folder

    def loss(self) -> Loss:
        """The loss of one row."""
        return self.problem_.build("loss")

    @property
    def constrained(self) -> bool:
        """Whether the run has multipliers: there are constraints, only one class is in the
        objective, or the method that the file names returns some.
        """
        name = self.algorithm.name
        named = name != "auto" and load("algorithm", name).requirements.constrained
        return bool(self.constraint) or self.problem_.label is not None or named

    @property
    def weighs_clients(self) -> bool:
        """Whether [clients] states more than a mean."""
        return self.clients not in (sections.ClientsSection(), sections.ClientsSection(risk="mean"))

    @property
    def logged(self) -> bool:
        """Whether the run has a log of who answered when, which a private one does not show."""
        return self.engine.clocked or (self.data.sites is not None and self.privacy is None)

    @property
    def labels(self) -> list[str | float]:
        """The classes that the objective and the constraints name."""
        labels = [self.problem_.label, *(one.get("label") for one in self.constraint)]
        return [label for label in labels if label is not None]

    @property
    def loss_of_classes(self) -> bool:
        """Whether the target is one of two classes, or of several."""
        return self.loss().targets in ("sign", "class")

    @property
    def budgets(self) -> list[float]:
        """The other totals epsilon that a private run tries."""
        return [] if self.privacy is None or self.sweep is None else self.sweep.values

    @property
    def ones(self) -> bool:
        """Whether a feature of ones stands for the intercepts of several classes."""
        return self.problem_.model == "softmax" and self.problem_.intercept

    # ------------------------------------------------------------------------- what is stated

    def problem(self) -> Problem:
        """The problem as stated; with radius = "auto" it needs the rows:
        ``config.settled(rows).problem()``.

        Raises
        ------
        ConfigError : a combination that has no finite or tractable worst case
        """
        if self.robust.radius == "auto":
            raise ConfigError(
                "radius = 'auto' is read off the training rows: use config.settled(rows).problem()"
            )
        return self.stated()

    def stated(self) -> Problem:
        """The problem before the data are read: a radius that is read off the rows is 1."""
        if self.labels and self.loss().targets != "sign":
            loss, others = self.problem_.loss, ", ".join(names_with("loss", "targets", "sign"))
            raise ConfigError(
                f"`label` needs two classes, and problem.loss = {loss!r} has none: leave it out, or"
                f" use one of {others}"
            )
        together = self.risk.together
        if self.problem_.label is not None:
            over_samples = Mean(label=self.problem_.label)
        elif self.robust.radius != 0:
            over_samples = self.robust.build()
        else:
            over_samples = Mean() if together else self.risk.build("name")
        one_ranking = together or self.problem_.pooled
        try:
            return Problem(
                loss=self.loss(),
                predictor=self.problem_.build("model", seed=self.seed),
                over_samples=over_samples,
                over_clients=Mean() if one_ranking else self.clients.build("risk"),
                over_rows=self.risk.build("name") if together else None,
                regulariser=self.problem_.build("regulariser"),
                privacy=self.privacy and self.privacy.budget(self._folder),
                class_weight=self.problem_.class_weight,
                **sections.slots(self.constraint),
            )
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from error

    def method(self) -> Method | None:
        """The algorithm with its options; None where the problem decides.

        Raises
        ------
        ValueError : an option that it does not take, with its key
        """
        a, noise = self.algorithm, {}
        if self.privacy is not None:  # noise that nobody else can make again
            noise = {"noise": "simulation" if self.privacy.rehearsal else "secure"}
        if a.name == "auto" and self.privacy is None:
            if a.options:
                text = "algorithm.options needs algorithm.name: 'auto' takes no options"
                raise ValueError(Refusal(text, "algorithm", "options"))
            return None
        name = "private_sgd" if a.name == "auto" else a.name
        return a.build(name, **(noise if name in names_with("algorithm", "private") else {}))

    def solve_arguments(
        self, checkpoint: str | os.PathLike[str] | None = None, clock: bool = True
    ) -> dict[str, Any]:
        """algorithm, engine, tol, max_rounds and seed, as `bonafed.solve` takes them; ``clock``: by
        [engine] at all.
        """
        a, method = self.algorithm, self.method()
        try:
            engine = self.engine.engine(self._folder, checkpoint, clock)
        except (ValueError, OSError) as error:
            raise ConfigError(f"{self._trace}: {error}") from error
        stopping = {"tol": a.tol, "max_rounds": a.max_rounds}
        return {"algorithm": method, "engine": engine, **stopping, "seed": self.seed}


# ----------------------------------------------------------------------------------------- in words


def sentence(config: Tables) -> str:
    """What is minimised: risk over clients, risk over rows, regulariser."""
    h, losses = config.problem_, _over_rows(config)
    one = h.pooled or config.risk.together
    over = losses if one else f"{config.clients.words()} of {losses}"
    text = f"Minimised over {h.phrase('model')}: {over}"
    if h.class_weight is not None:
        text += ", every row counted by the weight of its class"
    if h.regulariser == "ball":
        text += f", over models at most {h.radius:g} long"
    elif h.regulariser != "none":
        text += f", plus {h.regulariser} regularisation of strength {h.strength:g}"
    if config.constraint:
        text += f", subject to: {'; '.join(one.words() for one in config.constraint)}"
    return f"{text}."


def _over_rows(config: Tables) -> str:
    """The risk over the losses of rows."""
    risk, h, ball = config.risk, config.problem_, config.robust
    loss, pooled = h.loss.replace("_", " "), " of all rows, pooled" * h.pooled
    if risk.together:
        return f"the {risk.words()} of the {loss} losses of all clients' rows, ranked together"
    whose, of = ("the", "the") if h.pooled else ("each client's", "its")
    if risk.by_rank:
        return f"{whose} {risk.words()} of {of} {loss} losses{pooled}"
    if not ball.is_robust:
        label = "" if h.label is None else f" of its rows of class {h.label}"
        return f"{whose} mean {loss} loss{label}{pooled}"
    return f"{whose} worst mean {loss} loss{pooled} ({_near(config)})"


def _near(config: Tables) -> str:
    """The Wasserstein ball."""
    ball = config.robust
    near = f"within Wasserstein distance {in_words(ball.radius)} of its rows"
    if ball.radius == "auto":
        near = 'near its rows, the Wasserstein distance read off them ("auto")'
    what, fixed = "flipping a label", "labels never flip"
    if not config.loss_of_classes:
        what, fixed = "moving a target by one", "targets never move"
    target = fixed if math.isinf(ball.label_cost) else f"{what} costs {ball.label_cost:g}"
    if ball.label_flips is not None:
        target = f"at most {ball.label_flips:.3g} of a client's labels flip"
    support = "" if ball.support in (None, "none") else ", features stay in the support"
    return f"{near}, {ball.norm} norm on the features, {target}{support}"
