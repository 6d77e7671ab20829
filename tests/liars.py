"""Clients whose answers are held, one by one, against what rows can be, and clients that lie: for
the laws of liars.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from wrapped import Wrapped

from bonafed.codec import changed
from bonafed.engines import InProcess, Run
from bonafed.engines.network import ImpossibleAnswerError
from bonafed.engines.secure_summed import SecureSummed
from bonafed.problem.metadata import Asked, Metadata, introduced
from bonafed.problem.plausible import introduced_as
from bonafed.rounds import visibility
from bonafed.sites.party import Party, open_party

SLOPES = ("gradient", "gradients", "change", "single", "balance", "risk_gradient", "mean_gradient")
CERTIFICATES = "bonafed.certificates"


def numbers(upload: Any) -> dict[str, np.ndarray]:
    """The fields of an upload that hold numbers."""
    values = {name: getattr(upload, name) for name in visibility(type(upload))}
    return {k: v for k, v in values.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}


def every(change: Callable[[np.ndarray], np.ndarray], names: tuple[str, ...] = ()) -> Any:
    """A lie that changes every number of an upload, or those of some fields."""

    def lie(message: Any, upload: Any, swapped: Any) -> Any:
        chosen = {k: v for k, v in numbers(upload).items() if not names or k in names}
        return changed(upload, **{k: change(v) for k, v in chosen.items()})

    return lie


def first_coordinate(slope: np.ndarray) -> np.ndarray:
    """With another sign of the first coordinate."""
    turned = slope.copy()
    turned[..., 0] *= -1.0
    return turned


class Stale:
    """Answers what it should have answered to the last message whose answer has the same form."""

    def __init__(self) -> None:
        self.last: dict[Any, Any] = {}

    def __call__(self, message: Any, upload: Any, swapped: Any) -> Any:
        kind = type(upload), *[(name, v.shape) for name, v in numbers(upload).items()]
        before = self.last.get(kind, upload)
        self.last[kind] = upload
        return before


def slopes_of_swapped(message: Any, upload: Any, swapped: Any) -> Any:
    """Its own values, and the slopes of rows with other labels."""
    other = swapped()
    return changed(upload, **{k: v for k, v in numbers(other).items() if k in SLOPES})


LIES: dict[str, Callable[[], Any]] = {
    "sign": lambda: every(lambda v: -v),
    "1000": lambda: every(lambda v: 1000.0 * v),
    "half": lambda: every(lambda v: 0.5 * v),
    "0": lambda: every(np.zeros_like),
    "nan": lambda: every(lambda v: np.full_like(v, np.nan)),
    "inf": lambda: every(lambda v: np.full_like(v, np.inf)),
    "1e200": lambda: every(lambda v: 1e200 * v),
    "stale": Stale,
    "slopes of swapped labels": lambda: slopes_of_swapped,
    "slopes turned": lambda: every(lambda v: -v, SLOPES),
    "one coordinate": lambda: every(first_coordinate, SLOPES),
    "swapped labels": lambda: lambda message, upload, swapped: swapped(),
}


def lying(step: Any, lie: Any) -> Any:
    """A client's step whose upload is a lie; None: it is honest."""

    def stepped(memory: Any, message: Any, data: Any, rng: Any) -> Any:
        after, upload = step(memory, message, data, rng)
        if lie is not None:
            classes = data.y.min() >= 0.0 and data.y.max() <= 1.0
            others = replace(data, y=1.0 - data.y if classes else -data.y)
            upload = lie(message, upload, lambda: step(memory, message, others, rng)[1])
        return after, upload

    return stepped


@dataclass
class Liar(Wrapped):
    """An algorithm at a site that lies."""

    lie: Any = None

    def around_client(self, step: Any) -> Any:
        return lying(step, self.lie)


def open_liar(folder: Path, name: str, lie: Any) -> Party:
    """A site whose answers to the messages of algorithms are lies, also in masked sums."""
    party = open_party(folder, name)
    honest = party._algorithm

    def algorithm(method: Any, known: Any) -> Any:
        told = honest(method, known)
        if isinstance(told, SecureSummed):
            return replace(told, inner=Liar(told.inner, lie))
        return Liar(told, lie)

    party._algorithm = algorithm
    return party


@dataclass
class Heard(Wrapped):
    """An algorithm whose uploads are held against what rows can be before they are combined."""

    told: dict[int, Any] = field(default_factory=dict)
    lie: Any = None
    liar: int = 1

    def around_client(self, step: Any) -> Any:
        def stepped(memory: Any, message: Any, data: Any, rng: Any) -> Any:
            (i,), lie = data.index.tolist(), self.lie if data.index[0] == self.liar else None
            after, upload = lying(step, lie)(memory, message, data, rng)
            self.told[i], words = self.inner.doubts(self.told.get(i), i, message, upload)
            if words:
                raise ImpossibleAnswerError(data.names[0], type(message), words)
            return after, upload

        return stepped


@dataclass(frozen=True)
class Court(InProcess):
    """Clients of this process, one after the other, whose answers are held against what rows can
    be; client 1 tells a lie, with ``late`` to certificates alone.
    """

    block_size: int = 1
    lie: Any = None
    late: bool = False
    told: dict[int, Any] = field(default_factory=dict)

    def run(self, algorithm: Any, federation: Any, **how: Any) -> Run:
        if not self.told:
            parts = [introduced(Asked(), federation, i) for i in range(federation.n_clients)]
            self.told.update(introduced_as(Metadata.of(parts)))
        honest = self.late and not type(algorithm).__module__.startswith(CERTIFICATES)
        heard = Heard(algorithm, self.told, None if honest else self.lie)
        return InProcess(block_size=1).run(heard, federation, **how)

    def beside_run(self) -> Court:
        return self
