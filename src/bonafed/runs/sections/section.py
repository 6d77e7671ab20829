"""A finished run, and what a section of it is: one feature of a configuration, from its training to
its checks.

A run goes through its sections at every stage: each may train further models, adds its keys to
result.json and its files to the folder, and computes them again when a run is verified. Anyone who
adds a feature writes one section and puts it into `bonafed.runs.sections.all.SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.config.config import Config
from bonafed.data.schema import Schema
from bonafed.engines.engine import Watch
from bonafed.engines.run_record import Log
from bonafed.privacy.budget import Budget
from bonafed.privacy.ledger import Ledger
from bonafed.problem.lower_bounds import Duals, Multipliers
from bonafed.problem.problem import Problem
from bonafed.runs.checks import Check, compared
from bonafed.runs.files import Record, Row, plain
from bonafed.runs.privacy_plan import budget_of, privacy_of
from bonafed.runs.splits import Parts
from bonafed.solution.blame import triviality
from bonafed.solution.trivial import Triviality


def bytes_sent(messages: Sequence[Row], direction: str) -> int:
    """The bytes of all messages "up" (to the server) or "down"."""
    return sum(row["bytes"] for row in messages if row["direction"] == direction)


class Progress(Protocol):
    """Where a run shows how far it is; by default it shows nothing."""

    def read(self, done: int, total: int, /) -> None:
        """So many of all files of the tables are read."""

    def watch(self, model: str) -> Watch:
        """What `solve` calls after each round of a model."""
        return lambda row, state: None

    def done(self, model: str, text: str, /) -> None:
        """A model is trained."""

    def say(self, line: str) -> None:
        """A line to be shown."""


class Silent(Progress):
    """No progress is shown."""


@dataclass(frozen=True)
class Study:
    """The work on one configuration: what is trained, on which rows, and where.

    Attributes
    ----------
    stated : the configuration as the folder of the run will have it
    config : the same with every radius as a number for each client
    work : folder of checkpoints until the run is finished; None keeps none
    resume : whether the work goes on where its checkpoints are
    """

    stated: Config
    config: Config
    parts: Parts
    work: Path | None = None
    resume: bool = False

    @property
    def problem(self) -> Problem:
        """The problem that is solved, within the budget of the work where it is private."""
        problem = self.config.problem()
        return problem if self.config.privacy is None else replace(problem, privacy=self.budget)

    @property
    def budget(self) -> Budget:
        """The privacy budget. The runs of a sweep and the model share one ledger file, in the
        folder of the work where the configuration names none.
        """
        budget, privacy = budget_of(self.config), privacy_of(self.config)
        if budget.book is not None or not self.config.budgets or privacy.rehearsal:
            return budget
        assert self.work is not None, "a sweep of budgets needs a folder for its ledger"
        return replace(budget, book=self.work / "book.json")


@dataclass(frozen=True)
class Inputs:
    """What results are computed from, be it just trained or read from the folder of a run.

    Attributes
    ----------
    problem : with every radius as a number
    models : by name, the main one first
    certificate, multipliers, constraints : what is proved of the main model; with constraints its
        multipliers, and the table of all constraints
    histories : by model; of a run that was read that of the main model only
    events, ledger : of the training itself: who answered when, and what each client has spent
    points : by section, the further models that it trained
    """

    config: Config
    problem: Problem
    parts: Parts
    models: Mapping[str, Array]
    certificate: Certificate
    multipliers: Duals | Multipliers | None = None
    constraints: list[Record] = field(default_factory=list)
    histories: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    events: Log | None = None
    ledger: Ledger | None = None
    points: Mapping[str, Points] = field(default_factory=dict)

    @cached_property
    def trivial(self) -> Triviality | None:
        """Why the main model is no better than a constant, None where it is."""
        w, *_ = self.models.values()
        return triviality(self.problem, self.parts.train, w, self.certificate)

    def compared(self, name: str, stated: object, again: object) -> Check:
        """Stated numbers against those computed again, relative to the objective."""
        return compared(name, stated, plain(again), abs(self.certificate.value))


class Section(Protocol):
    """One feature of a run, such as its constraints or its sweep.

    Attributes
    ----------
    name : of its checks and of its points
    keys : of result.json, each with its form
    files : of the folder
    public : whether these keys and files may leave the owner in a private run, because they follow
        from public numbers and noisy answers
    at_sites : whether a run over sites, whose rows are not here, states it, too
    """

    name: str
    keys: ClassVar[Mapping[str, Any]] = {}
    files: tuple[str, ...] = ()
    public: bool = False
    at_sites: bool = False

    def applies(self, config: Config) -> bool:
        """Whether a run of this configuration has the section."""
        return True

    def is_stated(self, config: Config, public: bool) -> bool:
        """Whether the result.json of a run has the keys; ``public``: that of the public part of a
        private one.
        """
        return self.applies(config) and (config.privacy is None or self.public is public)

    def train(self, study: Study, progress: Progress) -> Points | None:
        """Train further models; None without any. Ctrl-C raises KeyboardInterrupt."""
        return None

    def result(self, inputs: Inputs) -> Record:
        """What the section states, computed from the inputs only: its keys, or its table."""
        ...

    def write(self, folder: Path, points: Points) -> None:
        """Write the files of the section."""

    def read(self, run: Run, thresholds: int = 0) -> Points | None:
        """The points in the folder of a run; None without any. ``thresholds``: how many numbers the
        points of a proof have after a model, see ``problem.thresholds``.

        Raises
        ------
        RunError : a file is missing or damaged
        """
        return None

    def stated(self, run: Run) -> Row:
        """What a finished run states of the section."""
        return {key: run.result[key] for key in self.keys if key in run.result}

    def check_alone(self, run: Run) -> Iterator[Check]:
        """What can be checked without the data."""
        yield from ()

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        """What is stated against what the inputs give again."""
        yield inputs.compared(self.name, self.stated(run), self.result(inputs))


# -------------------------------------------------------------------------------------------- a run


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
