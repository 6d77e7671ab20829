"""The content of result.json: what a run states, as plain numbers and words."""

from __future__ import annotations

from collections.abc import Mapping

from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.problem.metadata import Metadata
from bonafed.runs.baselines import label
from bonafed.runs.files import Record, Row, plain
from bonafed.runs.model_file import FORMAT
from bonafed.runs.outcomes import summary
from bonafed.runs.result_form import PACKAGES
from bonafed.runs.run import Points
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.section import Inputs, Study
from bonafed.runs.splits import Parts
from bonafed.solution.solution import Solution


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
