"""The form of result.json: the keys that a run of a configuration states, their types and ranges.
Whether they fit each other shows when they are used.

The keys of a section have the form that stands with the section.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from bonafed.config.config import Config
from bonafed.runs.comparison import EvaluationForm
from bonafed.runs.files import Record, RunError, parsed, rows_in, text_in
from bonafed.runs.form import (
    Count,
    Digest,
    Direction,
    Extended,
    FileName,
    Form,
    NonNegative,
    Number,
    Share,
    ShortDigest,
    StopName,
    Whole,
    at_least,
    check_form,
    one_of,
    optional,
    shown,
)
from bonafed.runs.model_file import FORMAT
from bonafed.runs.sections.all import SECTIONS

# whose versions are stated: what numbers and figures depend on
PACKAGES = ("python", "bonafed", "numpy", "scipy", "clarabel", "matplotlib")
Version = Annotated[
    str, StringConstraints(pattern=r"^([0-9][0-9A-Za-z.+!_-]{0,63}|not installed)$")
]


class OutcomeForm(Form):
    """How the run ended."""

    stop: StopName
    text: str


class CertificateForm(Form):
    """A certificate; arrays have an entry for each client."""

    value: Number
    bound: Number | None
    gap: Number | None
    relative_gap: Number | None
    weights: list[Number]
    client_risks: list[Number]
    client_losses: list[Number]
    client_levels: list[Extended]
    client_labels: list[Extended]
    client_features: list[Extended]
    feasibility: Number
    stationarity: Number | None
    complementarity: Number | None
    consensus: Number | None
    residuals: Annotated[list[Number], Field(min_length=3, max_length=3)] | None
    constraint_values: list[list[Number | None]] | None
    server_values: list[Number | None] | None
    shared_values: list[Number | None] | None
    gradient_scale: Number | None
    infeasible: Number | None


class ClientForm(Form):
    """A row of the table of clients."""

    client: str
    n: Count
    loss: Number
    worst_loss: Number
    weight: Number
    radius: NonNegative
    flips: Share | None
    shift: Share | None
    active: Literal["none", "labels", "features", "both"]
    bytes_up: Whole
    bytes_down: Whole
    limit: Number | None = optional()
    measured: Number | None = optional()
    slack: Number | None = optional()
    price: Number | None = optional()


class PublicClientForm(Form):
    """What the public part of a private run has of a client."""

    client: str
    n: Whole
    weight: Number
    bytes_up: Whole
    bytes_down: Whole


class MessageForm(Form):
    """How often one type of message was sent."""

    message: str
    direction: Direction
    count: Whole
    bytes: Whole


class BaselineForm(Form):
    """What is stated of a baseline."""

    value: Number
    bound: Number | None
    gap: Number | None
    stop: StopName
    rounds: Whole


class TryForm(Form):
    """One start of a method with several."""

    start: Whole
    objective: Number
    iterations: Whole
    polish: Whole


class PartForm(Form):
    """What every result.json has, be it of a whole run or of the public part of a private one."""

    format: int
    title: str
    model: str
    problem: str
    outcome: OutcomeForm
    rounds: Whole
    messages: list[MessageForm]
    evaluation: EvaluationForm
    versions: dict[Annotated[str, one_of(PACKAGES)], Version]
    at_sites: Literal[True] = optional()
    files: dict[FileName, Digest]
    seal: Digest


class RunForm(PartForm):
    """A result.json, without the keys of the sections."""

    seconds: NonNegative
    certificate: CertificateForm
    clients: Annotated[list[ClientForm], at_least(1)]
    notes: list[str]
    tries: list[TryForm] = optional()
    baselines: dict[str, BaselineForm]
    data: dict[str, dict[str, ShortDigest]]
    book: ShortDigest = optional()


class PublicForm(PartForm):
    """The result.json of the public part of a private run, without the keys of the sections:
    what was computed from the rows exactly is empty.
    """

    certificate: None
    clients: Annotated[list[PublicClientForm], at_least(1)]
    notes: Annotated[list[str], Field(max_length=0)]
    baselines: Annotated[dict[str, BaselineForm], Field(max_length=0)]
    data: Annotated[dict[str, dict[str, ShortDigest]], Field(max_length=0)]


class HistoryForm(Form):
    """A row of the history; beside these columns it has what the method reports."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | bool | Extended | None]

    round: Count
    time: NonNegative = optional()
    seconds: NonNegative = optional()
    bytes_up: Whole
    bytes_down: Whole
    objective: Extended | None = optional()
    exact_objective: Number = optional()
    largest_risk: Number = optional()
    client_violation: list[NonNegative | None] | None = optional()

    @model_validator(mode="after")
    def _columns_have_names(self) -> HistoryForm:
        if odd := [key for key in self.model_extra or () if not re.fullmatch("[a-z_]{1,40}", key)]:
            raise ValueError(f"columns of small letters, not {shown(odd[0])}")
        return self


def result_in(file: Path, config: Config, public: bool = False) -> Record:
    """The content of a result.json; ``public``: of the public part of a private run.

    Raises
    ------
    RunError : it is not as a run of this configuration has it
    """
    result = parsed(file, text_in(file))
    if result.get("format") != FORMAT:
        stated = shown(result.get("format"))
        raise RunError(f"{file.parent}: the run is of format {stated}, this bonafed reads {FORMAT}")
    rest = {**result}
    for section in SECTIONS:
        here = config.data.sites is None or section.at_sites
        if section.form is not None and here and section.is_stated(config, public):
            part = {key: rest.pop(key) for key in section.keys if key in rest}
            check_form(file, part, section.form)
    check_form(file, rest, PublicForm if public else RunForm)
    return result


def history_in(file: Path) -> list[Record]:
    """The rows of a history.jsonl."""
    rows = rows_in(file)
    for k, row in enumerate(rows):
        check_form(file, row, HistoryForm, f"line {k + 1}")
    return rows
