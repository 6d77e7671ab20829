"""A run as a TOML file: what is read, minimised, trained and reported, checked before anything is
computed.

Every value is checked against this schema, and the whole as `bonafed.solve` would check it; an
error names the line, the key, the value there and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from glob import glob
from pathlib import Path

from pydantic import model_validator

from bonafed.config.rules import broken_rule, settings_taken
from bonafed.config.schema import BLANK, Drift, moved
from bonafed.config.sections import Tables, sentence
from bonafed.config.toml_file import ConfigError, Refusal, checked, line_of, text_of, validated
from bonafed.data.federation import Federation
from bonafed.solution.thresholds import default_radius
from bonafed.text import all_true

__all__ = ["Config", "ConfigError", "Drift", "parse_config", "read_config"]


class Config(Tables):
    """A whole run.

    `problem()` is the `Problem`; `solve_arguments()` are the keyword arguments of `solve`;
    `bonafed.runs.splits.prepare` reads the rows, scales them and holds some out.
    """

    @model_validator(mode="after")
    def _tables_go_together(self) -> Config:
        if broken := broken_rule(self):
            raise ValueError(broken)
        for value in self.sweep.values if self.sweep else ():
            try:
                if self.at(value).stated().predictor != self.stated().predictor:
                    raise ConfigError("models of another size cannot be compared in one run")
            except ConfigError as error:
                key = self.sweep.parameter if self.sweep else ""
                text = f"{key} = {value!r} cannot be run: {str(error).splitlines()[0]}"
                raise ValueError(Refusal(text, "sweep", "values")) from None
        return self

    def check(self) -> None:
        """Raise what cannot be built, such as a clock of delays in a file that is not there, and
        what is left to declare.
        """
        if text := self.unfilled():
            raise ConfigError(text)
        self.solve_arguments()

    def unfilled(self) -> str:
        """Which columns are not declared yet, as a sentence; empty if all are."""
        names = self.data.blanks
        shown, verb = ", ".join(map(repr, names)), "has" if len(names) == 1 else "have"
        blanks = {
            "data.classes: '?' stands for the values that the target can have": (
                BLANK in (self.data.classes or ())
            ),
            f"data.columns: {shown} {verb} '?': write what is possible, from what you know of the"
            " columns and not from these rows, such as age = { min = 0, max = 110 } or ward = {"
            " categories = ['a', 'b'] }, or leave a column out": names,
        }
        texts = all_true(blanks)
        return f"{'. '.join(texts)}. Nothing was read or spent" if texts else ""

    def settled(self, fed: Federation) -> Config:
        """The same run with radius = "auto" as a number (`bonafed.default_radius`)."""
        r = self.robust
        if r.radius != "auto":
            return self
        radius = default_radius(self.stated(), fed)
        return self._with(robust=r.model_copy(update={"radius": radius}))

    def _with(self, **sections: object) -> Config:
        other = self.model_copy(update=sections)
        other._folder, other._trace = self._folder, self._trace
        return other

    def sentence(self) -> str:
        """The problem in words."""
        return sentence(self)

    def at(self, value: float) -> Config:
        """The run with another value of the key of [sweep], and without that table.

        Raises
        ------
        ConfigError : with this value it is none that could be stated
        """
        assert self.sweep is not None
        tables = self.model_dump(by_alias=True, exclude_none=True, exclude={"sweep"})
        there = checked(Config, self.sweep.placed(tables, value))
        there._folder, there._trace = self._folder, self._trace
        return there

    def quick(self) -> Config:
        """The same run to a coarse tolerance, where its algorithm takes one: relative gap 1e-2, 30
        rounds at most.
        """
        a = self.algorithm
        coarse = {"tol": max(a.tol or 0.0, 1e-2), "max_rounds": min(a.max_rounds or 30, 30)}
        update = {key: coarse[key] for key in coarse.keys() & settings_taken(self)}
        return self._with(algorithm=a.model_copy(update=update))

    def moved_to(self, folder: Path) -> Config:
        """The same run with its relative paths rewritten to start at ``folder``."""
        other = self._with_paths(lambda path: moved(path, self._folder, folder))
        other._folder = folder
        return other

    def found_from(self, old: Path) -> Config:
        """The run after its folder was moved from ``old``: relative paths at which nothing is now
        start there, where something is; the same object where there is none.
        """
        lost = []

        def there(path: str) -> str:
            before = os.path.normpath(old / path)
            if glob(str(self._folder / path)) or not glob(before):
                return path
            lost.append(path)
            return before

        other = self._with_paths(there)
        return other if lost else self

    def _with_paths(self, there: Callable[[str], str]) -> Config:
        """The same run with other paths."""
        data, privacy, delays = self.data, self.privacy, self.engine.delays
        server = there(data.server) if isinstance(data.server, str) else data.server
        paths = {"path": data.path and [there(path) for path in data.path], "server": server}
        if privacy is not None and privacy.book is not None:
            privacy = privacy.model_copy(update={"book": there(privacy.book)})
        if (recorded := delays.get("path")) is not None:
            delays = delays.model_copy(update={"path": there(recorded)})
        engine = self.engine.model_copy(update={"delays": delays})
        return self._with(data=data.model_copy(update=paths), privacy=privacy, engine=engine)

    def reading(self, path: str | os.PathLike[str]) -> Config:
        """The same run on tables that are now at ``path``."""
        return self._with(data=self.data.model_copy(update={"path": [os.path.abspath(path)]}))

    def text(self) -> str:
        """The whole run as TOML, defaults included."""
        import tomli_w

        return tomli_w.dumps(self.model_dump(by_alias=True, exclude_none=True))


# ---------------------------------------------------------------------------------------- reading


def read_config(path: str | os.PathLike[str], **changes: object) -> Config:
    """The configuration in a TOML file, with top-level keys replaced by ``changes`` that are not
    None.

    Raises
    ------
    ConfigError : no such file, no TOML, an unknown key, a value of the wrong type or outside its
        range
    """
    path = Path(path)
    text = text_of(path, "configuration", "bonafed init")
    return parse_config(text, folder=path.absolute().parent, where=str(path), **changes)


def parse_config(
    text: str, *, folder: Path | None = None, where: str = "config", **changes: object
) -> Config:
    """As `read_config`, from text; relative paths start at ``folder`` (default: the working
    directory).
    """
    config, raw = validated(Config, text, where, **changes)
    config._folder = folder or Path.cwd()
    delays = raw.get("engine", {}).get("delays", ())
    if "path" in delays:
        line = line_of(text, ("engine", "delays", "path"))
        config._trace = f"{where}, line {line}, engine.delays.path"
    return config
