"""The form of result.json: which keys a run of a configuration states, and what they ask of each
other.

The keys of a section have the form that stands with the section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from bonafed.config.config import Config
from bonafed.problem.risks import resolve_prior
from bonafed.runs.baselines import called
from bonafed.runs.comparison import EvaluationForm
from bonafed.runs.files import Record, Row, RunError, parsed, rows_in, text_in
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
    damaged,
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

    @model_validator(mode="after")
    def _parts_fit(self) -> CertificateForm:
        if len({number is None for number in (self.bound, self.gap, self.relative_gap)}) > 1:
            raise ValueError("bound, gap and relative_gap as numbers, or all three null")
        arrays = (self.weights, self.client_risks, self.client_losses, self.client_levels)
        arrays += (self.client_labels, self.client_features)
        if len({*map(len, arrays)}) > 1:
            raise ValueError("as many weights, risks, losses, levels, labels and features")
        return self


class ClientForm(Form):
    """A row of the table of clients."""

    TOGETHER: ClassVar = (("limit", "measured", "slack", "price"),)

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
    if broken := next(_broken(result, config, public), None):
        raise damaged(file, broken)
    return result


def history_in(file: Path, config: Config, result: Row) -> list[Record]:
    """The rows of a history.jsonl beside a ``result``."""
    rows, before = rows_in(file), 0
    for k, row in enumerate(rows):
        check_form(file, row, HistoryForm, f"line {k + 1}")
        if row["round"] <= before or config.engine.clocked > ("time" in row):
            raise damaged(file, f"line {k + 1} has a round or a time that does not follow")
        if len(row.get("client_violation") or result["clients"]) != len(result["clients"]):
            raise damaged(file, f"line {k + 1} has not one client_violation a client")
        if ("exact_objective" in row) != ("largest_risk" in row):
            raise damaged(file, f"line {k + 1} has one of exact_objective and largest_risk only")
        before = row["round"]
    return rows


def model_called(config: Config) -> str:
    """What the model of a run is called beside the baselines, as `bonafed.runs.baselines.label`."""
    if config.privacy is not None:
        return "private"
    if config.constraint or config.problem_.label is not None:
        return "constrained"
    if config.robust.is_robust:
        return "DRFL"
    return config.risk.name if config.risk.by_rank else "model"


def _broken(result: Row, config: Config, public: bool) -> Iterator[str]:
    """What the keys of a result, each of its form, ask of each other and of the configuration."""
    clients, people = ([row["client"] for row in rows] for rows in _tables(result))
    for names in (clients, people):
        if len({*names}) < len(names):
            yield "clients or owners has a client twice"
    if result["model"] != (name := model_called(config)):
        yield f"model is {shown(result['model'])}; needed: {name!r}"
    if ("at_sites" in result) != (config.data.sites is not None):
        yield "at_sites is there, or missing, against data.sites of the configuration"
    yield from _broken_evaluation(result, config, public)
    if not public:
        yield from _broken_proof(result, config, clients, people)
        yield from _broken_sections(result, config)
    elif {*result["privacy"]["releases"]} != {*clients}:
        yield "privacy.releases has other clients than clients"


def _broken_proof(
    result: Row, config: Config, clients: Sequence[str], people: Sequence[str]
) -> Iterator[str]:
    """The same of what was computed from the rows exactly."""
    weights = result["certificate"]["weights"]
    if len(weights) != len(clients):
        yield f"certificate.weights has {len(weights)} numbers for {len(clients)} clients"
    pooled = config.problem_.pooled and "owners" not in result  # then no table has the owners
    if not pooled and {*result["data"].get("train", ())} != {*people}:
        yield "data.train has other clients than clients"
    if "tries" in result and (not config.risk.by_rank or config.problem().convex):
        yield "tries is there, and the problem of the configuration needs one start"
    if {*result["baselines"]} != {*config.report.compare_with}:
        yield "baselines has others than report.compare_with of the configuration"
    if config.privacy is None and config.clients.centred:
        try:
            sizes = np.array([float(row["n"]) for row in result["clients"]])
            resolve_prior(config.clients.get("prior"), sizes, clients)
        except (ValueError, TypeError) as error:
            yield f"clients does not go with the prior of the configuration: {error}"


def _tables(result: Row) -> tuple[list[Record], list[Record]]:
    """The rows of the clients, and those of the owners where rows are pooled."""
    return result["clients"], result.get("owners") or result["clients"]


def _broken_evaluation(result: Row, config: Config, public: bool) -> Iterator[str]:
    measures, name = result["evaluation"]["measures"], result["model"]
    models = {name, *(() if public else map(called, config.report.compare_with))}
    key = "error" if config.loss().targets == "real" else "accuracy"
    if measures and measures[0]["model"] != name:
        yield f"evaluation.measures begins with another model than {name!r}"
    for row in measures:
        if row["model"] not in models:
            yield f"evaluation.measures has the model {shown(row['model'])}, which this run has not"
        if key not in row or ("risk" in row) != config.risk.by_rank:
            risk = "with" if config.risk.by_rank else "without"
            yield f"evaluation.measures has others than {key}, {risk} a risk"


def _broken_sections(result: Row, config: Config) -> Iterator[str]:
    """The same of what several sections state together."""
    if ("clock" in result) != config.engine.clocked:
        yield f"clock is {'there without' if 'clock' in result else 'missing beside'} a clock"
    if ("together" in result.get("risk", {})) != config.risk.together:
        yield "risk.together is there, or missing, against risk.on of the configuration"
    models = {result["model"], *map(called, config.report.compare_with)}
    traces = result.get("reached", {})
    for key, stated in (("reached", traces), ("losses", result.get("losses", {}))):
        if odd := stated.keys() - models:
            yield f"{key} has the model {shown(odd.pop())}, which this run has not"
    if "clock" in result and any("time" not in trace for trace in traces.values()):
        yield "reached has no time"
    infeasible = result["outcome"]["stop"] == "infeasible"
    if any(("weight" in row) != infeasible for row in result.get("constraints", ())):
        yield "constraints has weights of a proof without one, or none beside it"
