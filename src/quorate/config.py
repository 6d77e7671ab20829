"""A run as a TOML file: what is read, minimised, trained and reported, checked before anything is computed.

Every value is checked against this schema; an error names the line, the key, the value given
and what is allowed. Nothing here imports NumPy: that waits for `Config.problem` and the data.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from quorate.config_clients import ClientsSection
from quorate.config_constraints import ConstraintSection, TradeOffSection, slots
from quorate.config_engine import EngineSection
from quorate.config_errors import said
from quorate.config_privacy import PRIVATE, EvaluationSection, PrivacySection, moved, options
from quorate.config_risks import RiskSection
from quorate.config_rules import CLASSES, broken_rule
from quorate.config_sections import (
    LOSSES,
    AlgorithmSection,
    DataSection,
    Drift,
    PathSection,
    ProblemSection,
    ReportSection,
    RobustSection,
    Section,
)
from quorate.config_words import sentence

if TYPE_CHECKING:
    from quorate.data.federation import Federation
    from quorate.problem.problem import Problem

__all__ = ["Config", "ConfigError", "Drift", "parse_config", "read_config"]
ALGORITHMS = {
    "bundle": "Bundle",
    "ad_lpmm": "ADLPMM",
    "epigraph_admm": "EpigraphADMM",
    "double_loop": "DoubleLoop",
    "rank_admm": "RankADMM",
    "smoothed_rank_admm": "SmoothedRankADMM",
    "sgd": "SGD",
    "lsvrg": "LSVRG",
    "dca": "DCA",
    "interior_point": "InteriorPoint",
    "proximal_al": "ProximalAL",
    "async_dro": "AsyncDRO",
    "aspire": "ASPIRE",
    "multiplier_method": "MultiplierMethod",
    "afl": "AFL",
    "drfa": "DRFA",
    "fed_avg": "FedAvg",
    **PRIVATE,
}


class ConfigError(ValueError):
    """A configuration that cannot be run; the text has one line per problem."""


NO_OPTIONS = (  # set by the run, by keys of [algorithm] itself, or objects that a file cannot hold
    *("problem", "known", "start", "tol", "max_rounds", "penalty", "starts", "smoothing"),
    *("plan", "eta", "sensitivity", "local_epsilon", "aggregate"),
)


class Config(Section):
    """A whole run.

    `problem()` is the `Problem`; `solve_arguments()` are the keyword arguments of `solve`; `federation()` are the rows
    to train on, scaled (see `quorate.parts.prepare` for what is held out).
    """

    title: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    data: DataSection
    problem_: Annotated[ProblemSection, Field(alias="problem")] = ProblemSection()
    risk: RiskSection = RiskSection()
    robust: RobustSection = RobustSection()
    clients: ClientsSection = ClientsSection()
    constraint: Annotated[list[ConstraintSection], Field(default_factory=list)]
    trade_off: TradeOffSection | None = None
    path: PathSection | None = None
    privacy: PrivacySection | None = None
    evaluation: EvaluationSection = EvaluationSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    engine: EngineSection = EngineSection()
    report: ReportSection = ReportSection()
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @model_validator(mode="before")
    @classmethod
    def _mean_under_constraints(cls, raw: Any) -> Any:
        """With constraints or a budget of privacy the clients are averaged unless the file says otherwise."""
        plain = isinstance(raw, dict) and isinstance(raw.get("problem", {}), dict)
        if not plain or not (raw.get("constraint") or "label" in raw.get("problem", {}) or "privacy" in raw):
            return raw
        clients = raw.get("clients", {})
        return raw | {"clients": {"risk": "mean", **clients}} if isinstance(clients, dict) else raw

    @model_validator(mode="after")
    def _tables_go_together(self) -> Config:
        if said := broken_rule(self):
            raise ValueError(said)
        return self

    @property
    def folder(self) -> Path:
        """Relative paths of the file start here."""
        return self._folder

    def problem(self) -> Problem:
        """The problem as stated; with radius = "auto" it needs the rows: ``config.settled(rows).problem()``.

        Raises
        ------
        ConfigError : a combination that has no finite or tractable worst case
        """
        return self._stated(self._over_samples)

    def path_problem(self) -> Problem:
        """The problem whose radii are tried: at the largest one of [path]."""
        assert self.path is not None
        return self._stated(lambda: self._ball(max(self.path.radii)))  # type: ignore[union-attr]

    def check(self) -> None:
        """Raise what `problem` and `path_problem` would, before anything is read."""
        if self.robust.radius == "auto":
            self._with(robust=self.robust.model_copy(update={"radius": 1.0})).problem()
        else:
            self.problem()
        self.solve_arguments()
        if self.path is not None:
            self.path_problem()

    def settled(self, fed: Federation) -> Config:
        """The same run with radius = "auto" as one number for each client of ``fed`` (`quorate.default_radius`)."""
        from quorate.model_selection import default_radius

        r, c = self.robust, self.clients
        if r.radius != "auto":
            return self
        prior = "size" if c.risk == "simplex" else c.prior
        own = {"norm": r.norm, "label_cost": r.label_cost, "loss": self.loss(), "prior": prior, "seed": self.seed}
        radius = dict(zip(fed.clients, default_radius(fed, **own).tolist(), strict=True))
        return self._with(robust=r.model_copy(update={"radius": radius}))

    def _with(self, **sections: Any) -> Config:
        other = self.model_copy(update=sections)
        other._folder = self._folder
        return other

    def _stated(self, over_samples: Callable[[], Any]) -> Problem:
        from quorate.problem.problem import Problem

        try:
            return Problem(
                loss=self.loss(),
                predictor=self._predictor(),
                over_samples=over_samples(),
                over_clients=self._over_clients(),
                regulariser=self._regulariser(),
                privacy=self.privacy and self.privacy.budget(self._folder),
                **slots(self.constraint),
            )
        except (ValueError, TypeError) as error:
            more = ", [[constraint]]" if self.constrained else ""
            raise ConfigError(f"[problem] with [risk], [robust]{more} and [clients]: {error}") from error

    @property
    def constrained(self) -> bool:
        """Whether it is for the methods for constraints: there are some, or one class alone is in the objective."""
        return bool(self.constraint) or self.problem_.label is not None

    @property
    def loss_of_classes(self) -> bool:
        """Whether the target is one of two classes, or of several."""
        return self.problem_.loss in (*CLASSES, "multinomial")

    @property
    def ones(self) -> bool:
        """Whether a feature of ones stands for the intercepts of several classes."""
        return self.problem_.model == "softmax" and self.problem_.intercept

    def loss(self) -> Any:
        """The loss of one row."""
        from quorate.problem import losses

        name, keys = LOSSES[self.problem_.loss]
        given = {key: getattr(self.problem_, key) for key in keys if getattr(self.problem_, key) is not None}
        return getattr(losses, name)(**given)

    def _predictor(self) -> Any:
        from quorate.predict import predictor

        return predictor({**self.problem_.model_dump(), "seed": self.seed})

    def _regulariser(self) -> Any:
        from quorate.problem import regularisers as h

        strength, share = self.problem_.strength, self.problem_.l1_share
        shape = () if self.problem_.shape is None else (self.problem_.shape,)
        return {
            "none": lambda: h.Zero(),
            "l1": lambda: h.L1(strength),
            "l2": lambda: h.L2(strength),
            "elastic_net": lambda: h.ElasticNet(share * strength, (1 - share) * strength),
            "mcp": lambda: h.MCP(strength, *shape),
            "scad": lambda: h.SCAD(strength, *shape),
        }[self.problem_.regulariser]()

    def _over_samples(self) -> Any:
        if self.problem_.label is not None:
            from quorate.problem.risks import Mean

            return Mean(label=self.problem_.label)
        return self.risk.build() if self.robust.radius == 0.0 else self._ball(self.robust.radius)

    def _ball(self, radius: Any) -> Any:
        from quorate.problem.wasserstein import WassersteinBall

        r = self.robust
        if radius == "auto":
            raise ConfigError("radius = 'auto' is read off the training rows: use config.settled(rows).problem()")
        return WassersteinBall(radius, r.label_cost, r.norm, self._support(), r.clip)

    def _support(self) -> Any:
        import quorate as qr

        given = self.robust.support
        return given and (qr.BoxSupport if "lower" in given else qr.PolytopeSupport)(**given)

    def _over_clients(self) -> Any:
        from quorate.problem.risks import Mean

        return Mean() if self.problem_.pooled else self.clients.build()

    def sentence(self) -> str:
        """The problem in words."""
        return sentence(self)

    def solve_arguments(self, checkpoint: str | os.PathLike[str] | None = None, clock: bool = True) -> dict[str, Any]:
        """algorithm, engine, tol, max_rounds and seed, as `quorate.solve` takes them; ``clock``: by [engine] at all."""
        import quorate as qr

        chosen: Any = None
        name = "private_admm" if self.privacy is not None and self.algorithm.name == "auto" else self.algorithm.name
        if name != "auto":
            kind = getattr(qr, ALGORITHMS[name])
            allowed = [f.name for f in dataclasses.fields(kind) if f.name not in NO_OPTIONS]
            for key in self.algorithm.options:
                if key not in allowed:
                    near = difflib.get_close_matches(key, allowed, 1)
                    raise ConfigError(
                        f"algorithm.options.{key} is no option of {name!r}, "
                        f"it takes {', '.join(allowed)}." + (f" Did you mean {near[0]!r}?" if near else "")
                    )
            try:
                given = self.algorithm.options if self.privacy is None else options(self)
                chosen = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
            except (TypeError, ValueError) as error:
                raise ConfigError(f"algorithm.options for {name!r}: {error}") from error
        elif self.algorithm.options:
            raise ConfigError("algorithm.options needs algorithm.name: 'auto' takes no options")
        try:
            engine = self.engine.build(self._folder, checkpoint) if clock else self.engine.plain(checkpoint)
        except (ValueError, OSError) as error:
            raise ConfigError(f"[engine]: {error}") from error
        a = self.algorithm
        return {"algorithm": chosen, "engine": engine, "tol": a.tol, "max_rounds": a.max_rounds, "seed": self.seed}

    def quick(self) -> Config:
        """The same run to a coarse tolerance: relative gap 1e-2, 30 rounds at most."""
        a = self.algorithm
        coarse = {"tol": max(a.tol or 0.0, 1e-2), "max_rounds": min(a.max_rounds or 30, 30)}
        return self._with(algorithm=a.model_copy(update=coarse))

    def federation(self) -> Any:
        """The rows to train on."""
        from quorate.parts import prepare

        return prepare(self).train

    def at(self, folder: Path) -> Config:
        """The same run with its relative paths rewritten to start at ``folder``."""

        def there(path: str) -> str:
            return moved(path, self._folder, folder)

        given, held = self.data.path, self.data.server
        data = {"path": given and [there(path) for path in given]}
        data["server"] = there(held) if isinstance(held, str) else held
        budget = self.privacy and self.privacy.at(there)
        other = self._with(data=self.data.model_copy(update=data), privacy=budget, engine=self.engine.at(there))
        other._folder = folder
        return other

    def reading(self, path: str | os.PathLike[str]) -> Config:
        """The same run on tables that are now at ``path``."""
        return self._with(data=self.data.model_copy(update={"path": [os.path.abspath(path)]}))

    def text(self) -> str:
        """The whole run as TOML, defaults included."""
        import tomli_w

        return tomli_w.dumps(self.model_dump(by_alias=True, exclude_none=True))


# ---------------------------------------------------------------------------------------- reading


def read_config(path: str | os.PathLike[str], **changes: Any) -> Config:
    """The configuration in a TOML file, with top-level keys replaced by ``changes`` that are not None.

    Raises
    ------
    ConfigError : no such file, no TOML, an unknown key, a value of the wrong type or outside its range
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error}") from error
    return parse_config(text, folder=path.absolute().parent, where=str(path), **changes)


def parse_config(text: str, *, folder: Path | None = None, where: str = "config", **changes: Any) -> Config:
    """As `read_config`, from text; relative paths start at ``folder`` (default: the working directory)."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is no TOML: {error}") from error
    raw |= {key: value for key, value in changes.items() if value is not None}
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        lines = [said(dict(e), raw, text, Config) for e in error.errors()]
        raise ConfigError("\n".join(f"{where}, {line}" for line in dict.fromkeys(lines))) from None
    config._folder = folder or Path.cwd()
    return config
