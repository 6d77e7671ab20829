"""The table [engine] of a configuration: how clients are run; on a simulated clock how fast, and
who is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from bonafed.config.errors import ConfigError
from bonafed.config.objects import Objects, known
from bonafed.engines.inprocess import InProcess, VirtualClock

PLAIN = "mode", "block_size", "every", "secure_sum"  # keys of the engine in this process


class DelaysSection(Objects):
    """How long a client takes to answer, in virtual seconds."""

    STATES: ClassVar = {"kind": "delays"}
    KEYS: ClassVar = {"recorded": "path"}  # CSV with the columns client and delay

    kind: Annotated[str, known("delays")] = "lognormal"

    def build(self, of: str = "kind", folder: Path | None = None, **more: object) -> Any:
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
        return first if self.kind == "first" else self.phrase("kind")


class EngineSection(Objects):
    """How the clients are run: all in this process, at once or on a simulated clock."""

    STATES: ClassVar = {"kind": "engine"}
    DEFAULTS: ClassVar = {"every": None, "max_time": None}
    OWNED: ClassVar = ("delays", "wait")

    kind: Annotated[str, known("engine")] = "in_process"
    checkpoint: bool = True
    delays: DelaysSection = Field(default_factory=DelaysSection)
    wait: WaitSection = Field(default_factory=WaitSection)

    @property
    def clocked(self) -> bool:
        """Whether time is simulated."""
        return self.kind == "virtual_clock"

    def check_clients(self, n_clients: int) -> None:
        """Raise ``ConfigError`` where more answers are waited for than clients are trained on."""
        n = self.wait.get("n") if self.clocked else None
        if n is not None and n > n_clients:
            raise ConfigError(
                f"engine.wait.n = {n} waits for more answers than there are clients to train on,"
                f" {n_clients}: set engine.wait.n to {n_clients} at most"
            )

    def plain(self, checkpoint: str | os.PathLike[str] | None) -> InProcess:
        """All clients at once."""
        stated = {key: self.get(key) for key in PLAIN if self.get(key)}
        return InProcess(**stated, checkpoint=checkpoint if self.checkpoint else None)

    def engine(
        self, folder: Path, checkpoint: str | os.PathLike[str] | None
    ) -> InProcess | VirtualClock:
        """The engine; raises ``ValueError`` and ``OSError`` for times and files that do not fit."""
        if not self.clocked:
            return self.plain(checkpoint)
        parts = {"delays": self.delays.build(folder=folder), "wait": self.wait.build("kind")}
        kept = checkpoint if self.checkpoint else None
        return self.build("kind", checkpoint=kept, **parts)

    def moved(self, there: Callable[[str], str]) -> EngineSection:
        """The same with the path of recorded delays rewritten."""
        if (path := self.delays.get("path")) is None:
            return self
        delays = self.delays.model_copy(update={"path": there(path)})
        return self.model_copy(update={"delays": delays})
