"""A finished run, as it is read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.data.schema import Schema
from bonafed.engines.run_record import Log
from bonafed.runs.files import Record


@dataclass(frozen=True)
class Points:
    """The further models of a section of a run, one for each point that it tries.

    ``table`` has a row of numbers for each under "points", ``arrays`` its arrays, a row a point.
    """

    table: Record
    arrays: dict[str, Array]

    @property
    def w(self) -> Array:
        """(P, D) the models."""
        return self.arrays["w"]


@dataclass(frozen=True)
class Run:
    """A finished run: the model, what was measured, and what its lower bound is proved from.

    Attributes
    ----------
    result : certificate, outcome, clients, messages, notes, evaluation, versions and digests, as in
        result.json
    w : (D,) the model; ``model`` says how it predicts: loss, intercept, classes, feature names
    schema : makes features from a table
    duals : the arrays that prove the bound by name, empty without one
    baselines : model by name
    proofs : by the name of a baseline the arrays that prove its bound
    history : one row a round
    points : by the name of a section, the further models that it trained
    owner : of a private run the part that is withheld and stays with the owner, as a run of the
        same model; None where this copy has none
    events : on a simulated clock who answered when, None else
    """

    path: Path
    config: Config
    result: Record
    w: Array
    model: Record
    schema: Schema
    history: list[Record]
    duals: dict[str, Array] = field(default_factory=dict)
    baselines: dict[str, Array] = field(default_factory=dict)
    proofs: dict[str, dict[str, Array]] = field(default_factory=dict)
    points: Mapping[str, Points] = field(default_factory=dict)
    owner: Run | None = None
    events: Log | None = None

    @property
    def private(self) -> bool:
        """Whether this is the public part of a run within a privacy budget."""
        return "privacy" in self.result

    @property
    def exact(self) -> Run | None:
        """The part with numbers that were computed from the rows exactly: the run, or its owner's
        part, None where that is not here.
        """
        return self.owner if self.private else self

    @property
    def swept(self) -> Points | None:
        """The values tried and their models, None without [sweep]."""
        return self.points.get("sweep")
