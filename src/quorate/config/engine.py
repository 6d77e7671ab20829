"""The table [engine] of a configuration: how clients are run; on a simulated clock how fast, and
who is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, model_validator

from quorate.config.objects import Objects, known, parameters
from quorate.config.schema import NonNegative, Section, number
from quorate.names import NAMED, load

Whole = Annotated[int, Field(ge=1)]


class DelaysSection(Objects):
    """How long a client takes to answer, in virtual seconds."""

    STATES: ClassVar = {"kind": "delays"}
    KEYS: ClassVar = {"recorded": "path"}  # CSV with the columns client and delay

    kind: Annotated[str, known("delays")] = "lognormal"

    def build(self, of: str = "kind", folder: Path | None = None, **more: Any) -> Any:
        """The model of delays; recorded ones are read from ``folder`` on, and without it not."""
        if (path := self.get("path")) is None:
            return super().build(of, **more)
        return None if folder is None else super().build(of, recorded=str(folder / path), **more)


class WaitSection(Objects):
    """How many answers the server waits for."""

    STATES: ClassVar = {"kind": "waiting"}

    kind: Annotated[str, known("waiting")] = "first"

    def words(self) -> str:
        """Such as "the first 10 answers"."""
        n = self.get("n")
        first = f"the first {n} answers" if n is not None and n > 1 else "the first answer"
        if self.kind == "stale":
            return f"{first}, and for those that would be older than {self.get('tau')} rounds"
        if self.kind == "adaptive":
            return f"everybody while nobody is slow, else for {first}"
        return first if self.kind == "first" else self.described("kind")


def _factors(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or not all(number(v) > 0 for v in value.values()):
        raise ValueError("allowed: a table with a factor > 0 for some clients")
    return {client: float(v) for client, v in value.items()}


def _times(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError("allowed: a table with a time in virtual seconds for some clients")
    return {client: number(v) for client, v in value.items()}


def _spans(value: Any) -> dict[str, list[list[float]]]:
    if not isinstance(value, Mapping):
        raise ValueError(
            "allowed: a table with pairs [from, to] of virtual seconds for some clients"
        )
    for client, spans in value.items():
        if not isinstance(spans, list) or not all(
            isinstance(s, list) and len(s) == 2 for s in spans
        ):
            raise ValueError(
                f"client {client!r} has {spans!r}; allowed: pairs [from, to] of virtual seconds"
            )
    return {client: [[number(a), number(b)] for a, b in spans] for client, spans in value.items()}


class EngineSection(Section):
    """How the clients are run: all in this process, at once or on a simulated clock."""

    kind: Annotated[str, known("engine")] = "in_process"
    mode: Literal["blocks", "each", "bytes"] = "blocks"
    block_size: Whole = 64
    checkpoint: bool = True
    every: Whole | None = None  # rounds between two checkpoints; left out: 1, on a clock 1000
    delays: DelaysSection = Field(default_factory=DelaysSection)
    stragglers: Annotated[Any, PlainValidator(_factors)] = Field(default_factory=dict)
    outages: Annotated[Any, PlainValidator(_spans)] = Field(default_factory=dict)
    crashes: Annotated[Any, PlainValidator(_times)] = Field(default_factory=dict)
    wait: WaitSection = Field(default_factory=WaitSection)
    keep_rows: Whole = 1  # rounds for each row of the history
    max_time: NonNegative | None = None  # virtual seconds

    @model_validator(mode="after")
    def _keys_of_the_engine(self) -> EngineSection:
        takes = {name: {*parameters(load("engine", name))} for name in NAMED["engine"]}
        for key, field in type(self).model_fields.items():
            default = field.get_default(call_default_factory=True)
            if key in takes[self.kind] or getattr(self, key) == default:
                continue
            if owners := [name for name, fields in takes.items() if key in fields]:
                raise ValueError(
                    f"has `{key}`, which kind = {self.kind!r} does not take: use kind ="
                    f" {' or '.join(map(repr, owners))}"
                )
        return self

    @property
    def clocked(self) -> bool:
        """Whether time is simulated."""
        return self.kind == "virtual_clock"

    def plain(self, checkpoint: str | os.PathLike[str] | None) -> Any:
        """All clients at once."""
        from quorate.engines.inprocess import InProcess

        return InProcess(
            self.mode, self.block_size, checkpoint if self.checkpoint else None, self.every or 1
        )

    def build(self, folder: Path, checkpoint: str | os.PathLike[str] | None) -> Any:
        """The engine; raises ``ValueError`` and ``OSError`` for times and files that do not fit."""
        if not self.clocked:
            return self.plain(checkpoint)
        from quorate.engines.virtual_clock import VirtualClock

        return VirtualClock(
            delays=self.delays.build(folder=folder),
            stragglers=self.stragglers,
            outages=self.outages,
            crashes=self.crashes,
            wait=self.wait.build("kind"),
            block_size=self.block_size,
            max_time=self.max_time,
            keep_rows=self.keep_rows,
            checkpoint=checkpoint if self.checkpoint else None,
            every=self.every or 1000,
        )

    def at(self, moved: Callable[[str], str]) -> EngineSection:
        """The same with the path of recorded delays rewritten."""
        if (path := self.delays.get("path")) is None:
            return self
        return self.model_copy(
            update={"delays": self.delays.model_copy(update={"path": moved(path)})}
        )
