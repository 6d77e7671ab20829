"""A run as a TOML file: what is read, minimised, trained and reported, checked before anything is
computed.

Every value is checked against this schema; an error names the line, the key, the value given
and what is allowed. Nothing here imports NumPy: that waits for `Config.problem` and the data.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr, ValidationError, model_validator

from quorate.config.compatibility import broken_rule
from quorate.config.constraints import slots
from quorate.config.errors import line_in_words
from quorate.config.privacy_rules import options
from quorate.config.schema import Drift, moved
from quorate.config.statement import sentence
from quorate.config.tables import Tables

if TYPE_CHECKING:
    from quorate.data.federation import Federation
    from quorate.problem.problem import Problem

__all__ = ["Config", "ConfigError", "Drift", "parse_config", "read_config"]


class ConfigError(ValueError):
    """A configuration that cannot be run; the text has one line per problem."""


class Config(Tables):
    """A whole run.

    `problem()` is the `Problem`; `solve_arguments()` are the keyword arguments of `solve`;
    `quorate.runs.splits.prepare` reads the rows, scales them and holds some out.
    """

    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @model_validator(mode="after")
    def _tables_go_together(self) -> Config:
        if broken := broken_rule(self):
            raise ValueError(broken)
        return self

    @property
    def folder(self) -> Path:
        """Relative paths of the file start here."""
        return self._folder

    def problem(self) -> Problem:
        """The problem as stated; with radius = "auto" it needs the rows:
        ``config.settled(rows).problem()``.

        Raises
        ------
        ConfigError : a combination that has no finite or tractable worst case
        """
        return self._stated(self._over_samples)

    def path_problem(self) -> Problem:
        """The problem whose radii are tried: at the largest one of [path]."""
        assert self.path is not None
        return self._stated(lambda: self._ball(max(self.path.radii)))  # type: ignore[union-attr]

    def solvable(self) -> Problem | None:
        """The problem as stated, before the data are read; None where it cannot be stated."""
        read_off = self.robust.radius == "auto"
        config = self._with(robust=self.robust.model_copy(update={"radius": 1.0}))
        try:
            return (config if read_off else self).problem()
        except ConfigError:
            return None

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
        """The same run with radius = "auto" as one number for each client of ``fed``
        (`quorate.default_radius`).
        """
        from quorate.solution.default_radius import default_radius

        r, c = self.robust, self.clients
        if r.radius != "auto":
            return self
        prior = c.get("prior") or "size"
        radii = default_radius(
            fed,
            norm=r.norm,
            label_cost=r.label_cost,
            loss=self.loss(),
            prior=prior,
            seed=self.seed,
        )
        radius = dict(zip(fed.clients, radii.tolist(), strict=True))
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
                predictor=self.predictor(),
                over_samples=over_samples(),
                over_clients=self._over_clients(),
                regulariser=self.regulariser(),
                privacy=self.privacy and self.privacy.budget(self._folder),
                **slots(self.constraint),
            )
        except (ValueError, TypeError) as error:
            more = ", [[constraint]]" if self.constrained else ""
            raise ConfigError(
                f"[problem] with [risk], [robust]{more} and [clients]: {error}"
            ) from error

    def _over_samples(self) -> Any:
        if self.problem_.label is not None:
            from quorate.problem.risks import Mean

            return Mean(label=self.problem_.label)
        return (
            self.risk.build("name") if self.robust.radius == 0.0 else self._ball(self.robust.radius)
        )

    def _ball(self, radius: Any) -> Any:
        from quorate.problem.wasserstein.ball import WassersteinBall

        r = self.robust
        if radius == "auto":
            raise ConfigError(
                "radius = 'auto' is read off the training rows: use config.settled(rows).problem()"
            )
        return WassersteinBall(radius, r.label_cost, r.norm, self._support(), r.clip)

    def _support(self) -> Any:
        from quorate.problem.wasserstein.box_support import BoxSupport
        from quorate.problem.wasserstein.polytope_support import PolytopeSupport

        given = self.robust.support
        return given and (BoxSupport if "lower" in given else PolytopeSupport)(**given)

    def _over_clients(self) -> Any:
        from quorate.problem.risks import Mean

        return Mean() if self.problem_.pooled else self.clients.build("risk")

    def sentence(self) -> str:
        """The problem in words."""
        return sentence(self)

    def solve_arguments(
        self, checkpoint: str | os.PathLike[str] | None = None, clock: bool = True
    ) -> dict[str, Any]:
        """algorithm, engine, tol, max_rounds and seed, as `quorate.solve` takes them; ``clock``: by
        [engine] at all.
        """
        a, algorithm = self.algorithm, None
        private = self.privacy is not None
        name = "private_admm" if private and a.name == "auto" else a.name
        if name != "auto":
            try:
                algorithm = a.build(name, options(self) if private else a.options)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"algorithm.options for {name!r}: {error}") from error
        elif a.options:
            raise ConfigError("algorithm.options needs algorithm.name: 'auto' takes no options")
        try:
            engine = (
                self.engine.build(self._folder, checkpoint)
                if clock
                else self.engine.plain(checkpoint)
            )
        except (ValueError, OSError) as error:
            raise ConfigError(f"[engine]: {error}") from error
        return {
            "algorithm": algorithm,
            "engine": engine,
            "tol": a.tol,
            "max_rounds": a.max_rounds,
            "seed": self.seed,
        }

    def quick(self) -> Config:
        """The same run to a coarse tolerance: relative gap 1e-2, 30 rounds at most."""
        a = self.algorithm
        coarse = {"tol": max(a.tol or 0.0, 1e-2), "max_rounds": min(a.max_rounds or 30, 30)}
        return self._with(algorithm=a.model_copy(update=coarse))

    def at(self, folder: Path) -> Config:
        """The same run with its relative paths rewritten to start at ``folder``."""

        def there(path: str) -> str:
            return moved(path, self._folder, folder)

        paths, held = self.data.path, self.data.server
        data = {"path": paths and [there(path) for path in paths]}
        data["server"] = there(held) if isinstance(held, str) else held
        budget = self.privacy and self.privacy.at(there)
        other = self._with(
            data=self.data.model_copy(update=data), privacy=budget, engine=self.engine.at(there)
        )
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
    """The configuration in a TOML file, with top-level keys replaced by ``changes`` that are not
    None.

    Raises
    ------
    ConfigError : no such file, no TOML, an unknown key, a value of the wrong type or outside its
        range
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error}") from error
    return parse_config(text, folder=path.absolute().parent, where=str(path), **changes)


def parse_config(
    text: str, *, folder: Path | None = None, where: str = "config", **changes: Any
) -> Config:
    """As `read_config`, from text; relative paths start at ``folder`` (default: the working
    directory).
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is no TOML: {error}") from error
    raw |= {key: value for key, value in changes.items() if value is not None}
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        lines = [line_in_words(dict(e), raw, text, Config) for e in error.errors()]
        raise ConfigError("\n".join(f"{where}, {line}" for line in dict.fromkeys(lines))) from None
    config._folder = folder or Path.cwd()
    return config
