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

Whether keys fit each other shows when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.problem.metadata import Metadata
from bonafed.runs import forms
from bonafed.runs.baselines import label
from bonafed.runs.checks import Check, nothing
from bonafed.runs.files import Record, Row, RunError, files_in, parsed, plain, rows_in, text_in
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
    main = next(iter(models.values()))
    inputs = Inputs(
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
    result = of_models(study.stated, models, study.parts.train, evaluation)
    for section in SECTIONS:
        result |= section.result(inputs) if section.keys else {}
    result |= {"versions": versions(), "data": data_digests(study.parts)}
    if main.ledger is not None and main.ledger.book:
        result["book"] = main.ledger.book  # what a later copy of the ledger file knows
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

    return {"python": platform.python_version(), **{name: of(name) for name in forms.PACKAGES[1:]}}


def result_in(file: Path, config: Config, public: bool = False) -> Record:
    """The content of a result.json; ``public``: of the public part of a private run.

    Raises
    ------
    RunError : it is not as a run of this configuration has it
    """
    result = parsed(file, text_in(file))
    if result.get("format") != FORMAT:
        stated = forms.shown(result.get("format"))
        raise RunError(f"{file.parent}: the run is of format {stated}, this bonafed reads {FORMAT}")
    rest = {**result}
    for section in SECTIONS:
        here = config.data.sites is None or section.at_sites
        if section.keys and here and section.is_stated(config, public):
            part = {key: rest.pop(key) for key in section.keys if key in rest}
            forms.check_form(file, part, _form_of(section))
    forms.check_form(file, rest, forms.PUBLIC if public else forms.RUN)
    return result


@cache
def _form_of(section: Section) -> type[forms.Form]:
    return forms.form(section.keys)


def history_in(file: Path) -> list[Record]:
    """The rows of a history.jsonl."""
    rows = rows_in(file)
    for k, row in enumerate(rows):
        forms.check_form(file, row, forms.HISTORY, f"line {k + 1}")
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
    messages, weights = public_messages(result["messages"]), client_weights(config)
    sizes = privacy_of(config).sizes  # rows as declared, and the bytes that all send alike
    sent = {f"bytes_{way}": bytes_sent(messages, way) // len(weights) for way in ("up", "down")}
    clients = [{"client": c, "n": sizes[c], "weight": q, **sent} for c, q in weights.items()]
    copied = (*COPIED, *PUBLIC, *(["at_sites"] if config.data.sites is not None else []))
    public = {key: result[key] for key in copied} | NOTHING
    public |= {"clients": clients, "messages": messages}
    return plain({**public, "evaluation": public_evaluation(config, result["evaluation"])})


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
    return nothing(
        "public part", odd, "nothing but what the budget pays for", "does not belong there"
    )
