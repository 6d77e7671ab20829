"""A run from its configuration to its folder.

    read the rows -> the model and its baselines -> sections (of a private run before the model)
    -> evaluate -> result -> folder

`bonafed.runs.sections.all` lists the sections, and `bonafed.runs.verification` computes the same
results again. How progress is shown and how a report is drawn is handed in.
"""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from bonafed.arrays import Array
from bonafed.config.config import Config, ConfigError
from bonafed.data.row_errors import without_values
from bonafed.engines.checkpoint import load, save
from bonafed.measures import about
from bonafed.rounds import Stop, record
from bonafed.runs import privacy_plan
from bonafed.runs.comparison import evaluate
from bonafed.runs.folder import Render, result_of, write_run
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.section import Points, Progress, Silent, Study
from bonafed.runs.splits import Parts, prepare
from bonafed.runs.training import train
from bonafed.solution.plan import read_with_sums
from bonafed.solution.solution import Solution


def begin(
    config: Config, work: Path | None = None, resume: bool = False, progress: Progress | None = None
) -> Study:
    """Read the rows, and settle what the configuration leaves to them: radii and sizes."""
    with without_values(config.privacy is not None):
        parts = prepare(config, (progress or Silent()).read)
        config.engine.check_clients(parts.train.n_clients)
        _encodable(parts)
        stated = config if config.privacy is None else privacy_plan.with_sizes(config, parts.rows)
        return Study(stated, stated.settled(parts.train), parts, work, resume)


def _encodable(parts: Parts) -> None:
    """Raise where a name could not be written, such as one from the odd name of a file: before
    anything is spent on a run that cannot be reported.
    """
    for name in sorted({*map(str, parts.owners.clients), *parts.train.feature_names}):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"the name {name!r} of a client or column is not text that can be written: rename"
                " it"
            ) from None


def opening(study: Study) -> list[str]:
    """What is known before training: the clients, and radii that were read off the rows; of a
    private run who takes part as it is declared.
    """
    if study.config.privacy is not None:
        public = privacy_plan.public_of(study.stated, study.parts.train.n_features)
        rows = [f"{name}: {n}" for name, n in zip(public.clients, public.sizes, strict=True)]
        return [
            f"{public.n_clients} clients, {sum(public.sizes)} rows as public, {public.n_features}"
            f" features; rows by client: {', '.join(rows[:6])}{', ...' * (len(rows) > 6)}",
            *about(study.parts.train.classes),
        ]
    settled = study.config is not study.stated
    lost = {what: sum(each.values()) for what, each in study.parts.left_out.items() if each}
    of = f"of {study.parts.read:,} rows without a"
    left = [f"left out: {n:,} {of} {what}" for what, n in lost.items()]
    radii = [radii_in_words(study.config)] if settled else []
    read = [read_with_sums(study.problem)] if study.config.engine.get("secure_sum") else []
    return [str(study.parts.owners), *left, *radii, *read, *about(study.parts.train.classes)]


def radii_in_words(config: Config, most: int = 20) -> str:
    """What "auto" became: one radius, or one by client."""
    radii = config.robust.radius
    if not isinstance(radii, Mapping):
        return f"radius auto: {radii:.3g}"
    named = [f"{client} {radius:.3g}" for client, radius in radii.items()]
    return f"radius auto: {', '.join(named[:most])}{', ...' * (len(named) > most)}"


def trained(study: Study, progress: Progress) -> tuple[dict[str, Solution], dict[str, Points]]:
    """The model and its baselines by name, and the further models of the sections.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; what is finished is in the folder of the work
    """
    private = study.config.privacy is not None  # then further models are charged first
    points = _of_sections(study, progress) if private else {}
    models = train(study, progress)
    if any(solution.outcome.stop is Stop.INTERRUPTED for solution in models.values()):
        raise KeyboardInterrupt
    return models, points if private else _of_sections(study, progress)


@record
class KeptPoints:
    """The points of a finished section in the folder of the work."""

    table: str  # JSON
    arrays: dict[str, Array]


def _of_sections(study: Study, progress: Progress) -> dict[str, Points]:
    """The points of the sections; of one that was finished before as they were kept."""
    config, made = study.config, {}
    kept = study.work if config.engine.checkpoint and config.privacy is None else None
    for section in (section for section in SECTIONS if section.applies(config)):
        file = kept and kept / f"{section.name}.points"
        if file and study.resume and file.is_file():
            found = load(file, KeptPoints)
            made[section.name] = Points(json.loads(found.table), found.arrays)
        elif (points := section.train(study, progress)) is not None:
            made[section.name] = points
            if file:
                save(file, KeptPoints(json.dumps(points.table), points.arrays))
    return made


def run_study(
    study: Study,
    out: Path,
    progress: Progress | None = None,
    render: Render | None = None,
    today: date | None = None,
) -> Path:
    """Train, evaluate and write a run below ``out``; returns its folder.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; `begin` with ``resume`` goes on with what is finished
    """
    with without_values(study.config.privacy is not None):
        models, points = trained(study, progress or Silent())
        weights: Mapping = {name: solution.w for name, solution in models.items()}
        problem, parts = study.config.problem(), study.parts
        sigmoids = {name: solution.calibration for name, solution in models.items()}
        judged = problem, weights, parts.tests, parts.ranked, sigmoids
        evaluation = evaluate(*judged, study.config.judges_choose)
        result = result_of(study, models, points, evaluation)
        written = out, study.stated, parts.train, models, points, result
        return write_run(*written, partial=study.work, render=render, today=today)


def dry_run(config: Config) -> list[str]:
    """What a private run would do and cost, in lines; no private value is used."""
    if config.privacy is None:
        raise ConfigError(
            "--dry-run says what a run with [privacy] would spend, and there is none: add it, or"
            " leave --dry-run out"
        )
    config, public = privacy_plan.with_public_numbers(config)
    planned = privacy_plan.plan(config, public)
    return [*privacy_plan.words(config, planned), privacy_plan.ACCURACY, "nothing was run"]
