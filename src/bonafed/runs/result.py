"""The content of result.json: what a run states, the form of it, and which of it may leave the
owner of the data.

    config.toml  model.safetensors  history.jsonl  result.json  report.html  figures/      public
    owner/  README.txt  result.json  history.jsonl  baselines.safetensors                withheld
            sweep.json  sweep.safetensors  report.html  figures/

Without a privacy budget a run has one part. With one, its public part is computed from public
numbers and from noisy answers that are charged: two data sets that differ in one record and have
the same answers give the same bytes. All that is exact is withheld, in ``owner/``: objective,
certificate, losses, digests of the data, warnings, comparisons, the model without privacy, the
models of a sweep, and times.

The keys of a section have the form that stands with the section. Whether keys fit each other shows
when they are used.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.problem.metadata import Metadata
from bonafed.runs.baselines import label
from bonafed.runs.checks import Check
from bonafed.runs.comparison import EvaluationForm
from bonafed.runs.files import (
    Count,
    Digest,
    Direction,
    Extended,
    FileName,
    Form,
    NonNegative,
    Number,
    Record,
    Row,
    RunError,
    Share,
    ShortDigest,
    StopName,
    Whole,
    at_least,
    check_form,
    files_in,
    form,
    needs,
    one_of,
    optional,
    parsed,
    perhaps,
    plain,
    rows_in,
    shown,
    text_in,
)
from bonafed.runs.model_file import FORMAT
from bonafed.runs.privacy_plan import privacy_of
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.privacy import client_weights
from bonafed.runs.sections.section import Inputs, Points, Run, Section, Study, bytes_sent
from bonafed.runs.splits import Parts
from bonafed.runs.training import summary
from bonafed.solution.solution import HISTORY, Solution, public_messages


def result_of(
    study: Study, models: Mapping[str, Solution], points: Mapping[str, Points], evaluation: Row
) -> Record:
    """All keys of result.json except the digests of files; ``models`` has the main one first."""
    inputs = inputs_of(study, models, points)
    result = of_models(study.stated, models, study.parts.train, evaluation)
    for section in SECTIONS:
        result |= section.result(inputs) if section.keys else {}
    result |= {"versions": versions(), "data": data_digests(study.parts)}
    ledger = inputs.ledger
    if ledger is not None and ledger.book:
        result["book"] = ledger.book  # what a later copy of the ledger file knows
    return plain(result)


def of_models(
    config: Config, models: Mapping[str, Solution], fed: Federation | Metadata, evaluation: Row
) -> Record:
    """The keys of result.json that every run has of its models, the main one first; ``fed``: the
    rows trained on, or what is known of them.
    """
    solution = next(iter(models.values()))
    proof = solution.certificate  # none of a private run over sites
    return {
        "format": FORMAT,
        "title": titled(config),
        "model": label(solution.problem),
        "problem": config.sentence(),
        "outcome": summary(config, solution, fed),
        "rounds": solution.rounds,
        "seconds": solution.seconds,
        "certificate": proof and proof.numbers(),
        "clients": solution.clients,
        "messages": solution.messages,
        "notes": list(solution.notes),
        **({"tries": solution.tries} if solution.tries else {}),
        "baselines": {name.lower(): _summary(models[name]) for name in [*models][1:]},
        "evaluation": evaluation,
    }


def inputs_of(study: Study, models: Mapping[str, Solution], points: Mapping[str, Points]) -> Inputs:
    """What the sections compute their results from, of models that were just trained."""
    main = next(iter(models.values()))
    return Inputs(
        config=study.stated,
        problem=main.problem,
        parts=study.parts,
        models={name: solution.w for name, solution in models.items()},
        certificate=main.certificate,
        multipliers=main.duals,
        constraints=main.constraints,
        histories={name: solution.history for name, solution in models.items()},
        events=main.log,
        ledger=main.ledger,
        points=points,
    )


def titled(config: Config) -> str:
    """What a run is called."""
    return config.title or config.data.name or "run"


def _summary(solution: Solution) -> Record:
    """What is stated of a baseline."""
    proof = solution.certificate
    return {
        "value": proof.value,
        "bound": proof.bound,
        "gap": proof.gap,
        "stop": solution.outcome.stop.value,
        "rounds": solution.rounds,
    }


def data_digests(parts: Parts) -> dict[str, dict[str, str]]:
    """One digest for each client of the training rows and of every test set, and of the server's
    data.
    """
    sets = {"train": parts.owners.without_server(), **parts.tests}
    if parts.owners.server is not None:
        sets["server"] = parts.owners.server
    return {name: dict(zip(fed.names, fed.digests(), strict=True)) for name, fed in sets.items()}


def versions() -> dict[str, str]:
    """The versions of the software that the numbers depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return {"python": platform.python_version(), **{name: of(name) for name in PACKAGES[1:]}}


# ----------------------------------------------------------------------------------------- the form

# whose versions are stated: what numbers and figures depend on
PACKAGES = ("python", "bonafed", "numpy", "scipy", "clarabel", "matplotlib")
Version = Annotated[
    str, StringConstraints(pattern=r"^([0-9][0-9A-Za-z.+!_-]{0,63}|not installed)$")
]


Residuals: Any = Annotated[list[Number], Field(min_length=3, max_length=3)]
# how the run ended
OutcomeForm = form("OutcomeForm", needs(StopName, "stop") | needs(str, "text"))
# a certificate; arrays have an entry for each client
CertificateForm = form(
    "CertificateForm",
    needs(Number, "value", "feasibility"),
    needs(Number | None, "bound", "gap", "relative_gap", "stationarity", "complementarity"),
    needs(Number | None, "consensus", "gradient_scale", "infeasible"),
    needs(list[Number], "weights", "client_risks", "client_losses"),
    needs(list[Extended], "client_levels", "client_labels", "client_features"),
    needs(Residuals | None, "residuals"),
    needs(list[list[Number | None]] | None, "constraint_values"),
    needs(list[Number | None] | None, "server_values", "shared_values"),
)
# a row of the table of clients
ClientForm = form(
    "ClientForm",
    needs(str, "client") | needs(Count, "n"),
    needs(Number, "loss", "worst_loss", "weight") | needs(NonNegative, "radius"),
    needs(Share | None, "flips", "shift"),
    needs(Literal["none", "labels", "features", "both"], "active"),
    needs(Whole, "bytes_up", "bytes_down"),
    perhaps(Number | None, "limit", "measured", "slack", "price"),
)
# what the public part of a private run has of a client
PublicClientForm = form(
    "PublicClientForm",
    needs(str, "client") | needs(Whole, "n", "bytes_up", "bytes_down") | needs(Number, "weight"),
)
# how often one type of message was sent
MessageForm = form(
    "MessageForm",
    needs(str, "message") | needs(Direction, "direction") | needs(Whole, "count", "bytes"),
)
# what is stated of a baseline
BaselineForm = form(
    "BaselineForm",
    needs(Number, "value") | needs(Number | None, "bound", "gap"),
    needs(StopName, "stop") | needs(Whole, "rounds"),
)
# one start of a method with several
TryForm = form(
    "TryForm", needs(Whole, "start", "iterations", "polish") | needs(Number, "objective")
)
# what every result.json has, be it of a whole run or of the public part of a private one
PartForm = form(
    "PartForm",
    needs(int, "format") | needs(str, "title", "model", "problem") | needs(OutcomeForm, "outcome"),
    needs(Whole, "rounds") | needs(list[MessageForm], "messages"),
    needs(EvaluationForm, "evaluation"),
    needs(dict[Annotated[str, one_of(PACKAGES)], Version], "versions"),
    perhaps(Literal[True], "at_sites"),
    needs(dict[FileName, Digest], "files") | needs(Digest, "seal"),
)
# a result.json, without the keys of the sections
RunForm = form(
    "RunForm",
    needs(NonNegative, "seconds") | needs(CertificateForm, "certificate"),
    needs(Annotated[list[ClientForm], at_least(1)], "clients"),
    needs(list[str], "notes") | perhaps(list[TryForm], "tries"),
    needs(dict[str, BaselineForm], "baselines"),
    needs(dict[str, dict[str, ShortDigest]], "data") | perhaps(ShortDigest, "book"),
    base=PartForm,
)
NONE = Field(max_length=0)
# the result.json of the public part of a private run, without the keys of the sections: what was
# computed from the rows exactly is empty
PublicForm = form(
    "PublicForm",
    needs(None, "certificate") | needs(Annotated[list[str], NONE], "notes"),
    needs(Annotated[list[PublicClientForm], at_least(1)], "clients"),
    needs(Annotated[dict[str, BaselineForm], NONE], "baselines"),
    needs(Annotated[dict[str, dict[str, ShortDigest]], NONE], "data"),
    base=PartForm,
)


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
    def _columns_have_names(self) -> "HistoryForm":
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
        if section.keys and here and section.is_stated(config, public):
            part = {key: rest.pop(key) for key in section.keys if key in rest}
            check_form(file, part, _form_of(section))
    check_form(file, rest, PublicForm if public else RunForm)
    return result


@cache
def _form_of(section: Section) -> type[Form]:
    return form("SectionForm", section.keys)


def history_in(file: Path) -> list[Record]:
    """The rows of a history.jsonl."""
    rows = rows_in(file)
    for k, row in enumerate(rows):
        check_form(file, row, HistoryForm, f"line {k + 1}")
    return rows


# ----------------------------------------------------------------------------------- what is public

OWNER = "owner/"  # where the rows are at sites, a run has no such part
FILES = ("config.toml", "model.safetensors", "history.jsonl", "result.json", "report.html")
COPIED = ("format", "title", "model", "problem", "outcome", "rounds", "versions")
NOTHING = {"certificate": None, "notes": [], "baselines": {}, "data": {}}
PUBLIC = tuple(key for section in SECTIONS if section.public for key in section.keys)
README = """\
This folder stays with the owner of the data.

Its numbers were computed from the rows exactly, without noise, and are not part of what the
privacy budget pays for: objective, certificate, losses and accuracies of clients, digests of the
data, warnings, comparisons, the model without privacy. The folder round it may travel; hand that
one on without this one.
"""


def exact_folder(config: Config, folder: Path) -> Path | None:
    """Where a run keeps what was computed from the rows exactly; None where that is nowhere, as the
    rows of a private run are at sites.
    """
    if config.privacy is None:
        return folder
    return folder / OWNER if config.data.sites is None else None


def parts_of(config: Config, result: Row) -> dict[str, Record]:
    """The result of a run as its parts may have it, by the folder of each part."""
    if config.privacy is None:
        return {"": {**result}}
    public = {"": public_result(config, result)}
    if config.data.sites is not None:
        return public
    return {OWNER: {key: value for key, value in result.items() if key not in PUBLIC}} | public


def public_result(config: Config, result: Row) -> Record:
    """The result.json that may leave the owner, digests of the files excepted."""
    messages = public_messages(result["messages"])
    copied = (*COPIED, *PUBLIC, *(["at_sites"] if config.data.sites is not None else []))
    public = {key: result[key] for key in copied} | NOTHING
    public |= {"clients": public_clients(config, messages), "messages": messages}
    return plain({**public, "evaluation": public_evaluation(config, result["evaluation"])})


def public_clients(config: Config, messages: Sequence[Row]) -> list[Record]:
    """One row a client: rows as declared, weight, and the bytes that every client sends alike."""
    sizes, weights = privacy_of(config).sizes, client_weights(config)
    ways = ("up", "down")
    each = {f"bytes_{way}": bytes_sent(messages, way) // len(weights) for way in ways}
    return [
        {"client": name, "n": sizes[name], "weight": weight, **each}
        for name, weight in weights.items()
    ]


def public_evaluation(config: Config, evaluation: Row) -> Record:
    """The numbers of the private model only, and only on rows that are declared public."""
    public = config.evaluation.public
    measures = [row for row in evaluation["measures"] if public and row["model"] == "private"]
    return {"measures": measures, "pairs": [], "verdict": []}


def check_public(run: Run) -> Check:
    """The public part has no file, key or column that a private run does not hand out."""
    files = (name for name in files_in(run.path, OWNER) if not name.startswith("figures/"))
    odd = [name for name in files if name not in FILES]
    # `read_run` has refused unknown keys
    hidden, evaluation = not run.config.evaluation.public, run.result["evaluation"]
    odd += ["result.json: evaluation"] * (hidden and any(evaluation.values()))
    columns = dict.fromkeys(key for row in run.history for key in row)
    odd += [f"history.jsonl: {key}" for key in columns if key not in HISTORY]
    text = "nothing but what the budget pays for"
    if odd:
        text = f"does not belong there: {', '.join(odd[:5])}"
    return Check("public part", not odd, text)
