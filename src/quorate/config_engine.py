"""The table [engine] of a configuration: how clients are run; on a simulated clock how fast, and who is waited for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from quorate.config_sections import NonNegative, Positive, Section, _number

Whole = Annotated[int, Field(ge=1)]
KINDS = {"lognormal": ("sigma", "client_sigma", "unit"), "constant": ("seconds",), "trace": ("path",)}
RULES = {"first": (), "stale": ("tau",), "adaptive": ("factor", "centre", "threshold", "as_printed")}


def _given(section: Section, *but: str) -> dict[str, Any]:
    """The keys that have a value."""
    found = {name: getattr(section, name) for name in type(section).model_fields if name not in but}
    return {name: value for name, value in found.items() if value is not None}


def _only(section: Any, own: Mapping[str, tuple[str, ...]], shared: tuple[str, ...], kind: str) -> None:
    """Raise for a key of another kind."""
    chosen = getattr(section, kind)
    for key in _given(section, kind):
        if key not in (*own[chosen], *shared):
            owner = next(name for name, keys in own.items() if key in keys)
            raise ValueError(f"has `{key}`, which {kind} = {chosen!r} does not take: it belongs to {owner!r}")


class DelaysSection(Section):
    """How long a client takes to answer, in virtual seconds."""

    kind: Literal["lognormal", "constant", "trace"] = "lognormal"
    sigma: NonNegative | None = None  # spread of one client's trips
    client_sigma: NonNegative | None = None  # spread between clients
    unit: Positive | None = None
    seconds: NonNegative | None = None
    path: str | None = None  # CSV with the columns client and delay
    per_gradient: NonNegative | None = None  # what a gradient adds to a trip

    @model_validator(mode="after")
    def _own_parameters(self) -> DelaysSection:
        _only(self, KINDS, ("per_gradient",), "kind")
        if self.kind == "trace" and self.path is None:
            raise ValueError("needs `path`, a CSV with the columns client and delay, beside kind = 'trace'")
        return self

    def build(self, folder: Path) -> Any:
        """The model of delays."""
        from quorate.engines.delays import Constant, LogNormal, Trace

        given = _given(self, "kind", "path")
        if self.kind == "trace":
            return Trace(str(folder / str(self.path)), **given)
        return (LogNormal if self.kind == "lognormal" else Constant)(**given)


class WaitSection(Section):
    """How many answers the server waits for."""

    kind: Literal["first", "stale", "adaptive"] = "first"
    n: Whole = 1
    tau: Annotated[int, Field(ge=0)] | None = None  # rounds by which no answer is older
    factor: Positive | None = None
    centre: Literal["median", "mean"] | None = None
    threshold: Positive | None = None  # virtual seconds
    as_printed: bool | None = None

    @model_validator(mode="after")
    def _own_parameters(self) -> WaitSection:
        _only(self, RULES, ("n",), "kind")
        return self

    def build(self) -> Any:
        """The rule."""
        from quorate.engines.activation import Adaptive, First, Stale

        return {"first": First, "stale": Stale, "adaptive": Adaptive}[self.kind](**_given(self, "kind"))

    def words(self) -> str:
        """Such as "the first 10 answers"."""
        first = f"the first {self.n} answers" if self.n > 1 else "the first answer"
        if self.kind == "stale":
            return f"{first}, and for those that would be older than {10 if self.tau is None else self.tau} rounds"
        return first if self.kind == "first" else f"everybody while nobody is slow, else for {first}"


def _factors(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or not all(_number(v) > 0 for v in value.values()):
        raise ValueError("allowed: a table with a factor > 0 for some clients")
    return {client: float(v) for client, v in value.items()}


def _times(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError("allowed: a table with a time in virtual seconds for some clients")
    return {client: _number(v) for client, v in value.items()}


def _spans(value: Any) -> dict[str, list[list[float]]]:
    if not isinstance(value, Mapping):
        raise ValueError("allowed: a table with pairs [from, to] of virtual seconds for some clients")
    for client, spans in value.items():
        if not isinstance(spans, list) or not all(isinstance(s, list) and len(s) == 2 for s in spans):
            raise ValueError(f"client {client!r} has {spans!r}; allowed: pairs [from, to] of virtual seconds")
    return {client: [[_number(a), _number(b)] for a, b in spans] for client, spans in value.items()}


class EngineSection(Section):
    """How the clients are run: all in this process, at once or on a simulated clock."""

    kind: Literal["in_process", "virtual_clock"] = "in_process"
    mode: Literal["blocks", "each", "bytes"] = "blocks"
    block_size: Whole = 64
    checkpoint: bool = True
    every: Whole | None = None  # rounds between two checkpoints; left out: 1, on a clock 1000
    delays: DelaysSection = DelaysSection()
    stragglers: Annotated[Any, PlainValidator(_factors)] = Field(default_factory=dict)
    outages: Annotated[Any, PlainValidator(_spans)] = Field(default_factory=dict)
    crashes: Annotated[Any, PlainValidator(_times)] = Field(default_factory=dict)
    wait: WaitSection = WaitSection()
    keep_rows: Whole = 1  # rounds for each row of the history
    max_time: NonNegative | None = None  # virtual seconds

    @model_validator(mode="after")
    def _own_parameters(self) -> EngineSection:
        of_clock = ("delays", "stragglers", "outages", "crashes", "wait", "keep_rows", "max_time")
        odd = of_clock if self.kind == "in_process" else ("mode",)
        for key in odd:
            default = type(self).model_fields[key].get_default(call_default_factory=True)
            if getattr(self, key) != default:
                other = "virtual_clock" if self.kind == "in_process" else "in_process"
                raise ValueError(f"has `{key}`, which kind = {self.kind!r} does not take: use kind = {other!r}")
        return self

    @property
    def clocked(self) -> bool:
        """Whether time is simulated."""
        return self.kind == "virtual_clock"

    def plain(self, checkpoint: str | os.PathLike[str] | None) -> Any:
        """All clients at once."""
        from quorate.engines.inprocess import InProcess

        return InProcess(self.mode, self.block_size, checkpoint if self.checkpoint else None, self.every or 1)

    def build(self, folder: Path, checkpoint: str | os.PathLike[str] | None) -> Any:
        """The engine; raises ``ValueError`` and ``OSError`` for times and files that do not fit."""
        if not self.clocked:
            return self.plain(checkpoint)
        from quorate.engines.virtual_clock import VirtualClock

        return VirtualClock(
            delays=self.delays.build(folder),
            stragglers=self.stragglers,
            outages=self.outages,
            crashes=self.crashes,
            wait=self.wait.build(),
            block_size=self.block_size,
            max_time=self.max_time,
            keep_rows=self.keep_rows,
            checkpoint=checkpoint if self.checkpoint else None,
            every=self.every or 1000,
        )

    def at(self, moved: Any) -> EngineSection:
        """The same with the path of recorded delays rewritten."""
        if self.delays.path is None:
            return self
        return self.model_copy(update={"delays": self.delays.model_copy(update={"path": moved(self.delays.path)})})
