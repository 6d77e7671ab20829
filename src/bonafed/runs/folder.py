"""A run as a folder that proves itself.

    config.toml     what was run, defaults included     result.json     certificate, tables, digests
    model.safetensors    w, and how features are made             history.jsonl   one line a round
    duals.safetensors    what the lower bound is proved from      report.html, figures/*.svg
    baselines.safetensors  the models it is compared with, and what proves their bounds
    sweep.json, sweep.safetensors  with [sweep]: the values tried, their numbers, models and proofs
    events.bft           on a simulated clock and over sites: who answered when, for
                         `Replay(Log.load(path))`

A private run keeps what is withheld in a separate folder, see `bonafed.runs.result`.

A folder is written elsewhere on the same file system and renamed when complete; an existing run is
never overwritten. `bonafed.runs.verification` checks one.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from bonafed.arrays import Array
from bonafed.config.config import Config, read_config
from bonafed.engines.run_record import Log
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.rank_levels import few_levels, levels
from bonafed.runs.baselines import check_proof, proof_arrays, restored, stored
from bonafed.runs.files import (
    CLAIMED,
    FINISHED,
    Record,
    Row,
    RunError,
    claim,
    complete,
    damaged,
    digest,
    files_in,
    lines,
    load_arrays,
    save_arrays,
    seal,
    sealed,
    slug,
    to_json,
    write,
)
from bonafed.runs.model_file import Described, save_model, stored_model
from bonafed.runs.result import OWNER, README, exact_folder, history_in, parts_of, result_in
from bonafed.runs.sections.all import SECTIONS
from bonafed.runs.sections.section import Points, Run
from bonafed.solution.solution import Solution, public_history
from bonafed.storage import OWN_FOLDER

EVENTS = "events.bft"
Render = Callable[[Run], Mapping[str, str]]


def is_drawn(name: str) -> bool:
    """Whether a file is part of the report, which is drawn from the rest."""
    return name == "report.html" or re.fullmatch(r"figures/[a-z_]+\.svg", name) is not None


# ---------------------------------------------------------------------------------------- writing


def write_run(
    out: Path,
    stated: Config,
    described: Described,
    models: Mapping[str, Solution],
    points: Mapping[str, Points],
    result: Record,
    *,
    partial: Path | None = None,
    render: Render | None = None,
    today: date | None = None,
) -> Path:
    """Write a run below ``out``; returns its folder, named by date and title.

    Parameters
    ----------
    stated : the configuration as the folder will have it
    described : the features and classes of the rows trained on, such as these rows
    models : by name, the main one first
    points : the further models of sections
    result : the content of result.json
    partial : the folder that the work was done in
    render : draws the files of the report (name -> text) of every part of the finished run
    """
    out.mkdir(parents=True, exist_ok=True)
    work = out / f".writing-{secrets.token_hex(4)}" if partial is None else partial / FINISHED
    shutil.rmtree(work, ignore_errors=True)  # of a process that died
    work.mkdir()
    try:
        _write_public(work, out, stated, described, next(iter(models.values())))
        _write_exact(work, stated, models, points)
        whole = _seal(work, stated, result)
        if render is not None:
            run = read_run(work)
            for part in filter(None, (run, run.owner)):
                for name, text in render(part).items():
                    write(part.path / name, text.encode())
            whole = _seal(work, stated, result)
        if partial is not None:  # by it a finished run is known whose process died
            write(partial / CLAIMED, whole.encode())
        return claim(work, out, f"{today or date.today()}-{slug(result['title'])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_public(
    work: Path, out: Path, stated: Config, described: Described, solution: Solution
) -> None:
    """Write what every run shows: its configuration, its model, and of a private run the history of
    its noisy answers.
    """
    there = stated.moved_to(out / "run")  # its paths start where the folder will be
    write(work / "config.toml", there.text().encode())
    save_model(work / "model.safetensors", stated, solution, described)
    if stated.privacy is not None:
        write(work / "history.jsonl", lines(public_history(solution.history)))
        if (owner := exact_folder(stated, work)) is not None:
            owner.mkdir(mode=OWN_FOLDER)
            write(owner / "README.txt", README.encode())


def _write_exact(
    work: Path, stated: Config, models: Mapping[str, Solution], points: Mapping[str, Points]
) -> None:
    """Write what was computed from the rows exactly."""
    folder, (main, *names) = exact_folder(stated, work), models
    if folder is None:
        return
    solution, private = models[main], stated.privacy is not None
    write(folder / "history.jsonl", lines(solution.history))
    if names or not private:
        weights = {name.lower(): models[name].w for name in names}
        proofs = {name.lower(): proof_arrays(models[name].duals) for name in names}
        save_arrays(folder / "baselines.safetensors", stored(weights, proofs))
    if not private:
        duals = {} if solution.duals is None else vars(solution.duals)
        proof = {name: array for name, array in duals.items() if array is not None}
        save_arrays(folder / "duals.safetensors", proof)
    if solution.log is not None:
        solution.log.save(folder / EVENTS)
    for section in SECTIONS:
        if section.name in points:
            section.write(folder, points[section.name])


def _seal(work: Path, stated: Config, result: Row) -> str:
    """Write the result.json of every part, each with the digests of the files beside it; returns
    the seal of the run's own.
    """
    seals = {}
    for folder, part in parts_of(stated, result).items():
        outside = "" if folder or stated.privacy is None else OWNER
        whole = sealed(work / folder, part, outside)
        write(work / folder / "result.json", to_json(whole, indent=1).encode())
        seals[folder] = whole["seal"]
    return seals[""]


def replace_report(run: Run, files: Mapping[str, str]) -> None:
    """Write the report of a run again, and its digests; refuses a run whose result.json was
    changed.
    """
    if seal(run.result) != run.result.get("seal"):
        raise RunError(
            f"{run.path / 'result.json'} was changed after it was written: its seal does not match"
        )
    stale = [k for k in run.result["files"] if is_drawn(k) and k not in files]
    for name in stale:  # a figure that is no longer drawn
        (run.path / name).unlink(missing_ok=True)
    for name, text in files.items():
        write(run.path / name, text.encode())
    kept = {k: v for k, v in run.result["files"].items() if not is_drawn(k)}
    drawn = {name: digest(text.encode()) for name, text in files.items()}
    result = {**run.result, "files": {**kept, **drawn}}
    text = to_json({**result, "seal": seal(result)}, indent=1)
    write(run.path / "result.json", text.encode())


# ---------------------------------------------------------------------------------------- reading


def read_run(path: str | os.PathLike[str]) -> Run:
    """A run from its folder.

    Raises
    ------
    RunError : no such folder, a missing file, or one that is damaged
    """
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"there is no run {str(path)!r}: give the folder that `bonafed run` printed")
    complete(path, ["config.toml", "model.safetensors", "result.json", "history.jsonl"])
    files_in(path)  # raises where one is a link; only in a run: nobody removes links elsewhere
    config = read_config(path / "config.toml")
    w, model, schema = stored_model(path)
    run = _read_part(Run(path, config, {}, w, model, schema, []))
    if not run.private:
        return _with_exact(run)
    owner = path / OWNER
    if not owner.is_dir():
        return run
    if exact_folder(config, path) is None:
        raise damaged(path, f"it has {OWNER}, and a private run over sites has none")
    complete(owner, ["result.json", "history.jsonl"])
    return replace(run, owner=_with_exact(_read_part(run, owner)))


def _read_part(run: Run, owner: Path | None = None) -> Run:
    """The run with result and history of its folder, or of the owner's part of it."""
    path, config = owner or run.path, run.config
    public = owner is None and config.privacy is not None
    result = result_in(path / "result.json", config, public)
    history = history_in(path / "history.jsonl")
    return replace(run, path=path, result=result, history=history)


def _with_exact(run: Run) -> Run:
    """The run, or its owner's part, with what was computed from the rows exactly."""
    path, config, size = run.path, run.config, len(run.w)
    thresholds = _thresholds(run)
    baselines, proofs = _read_baselines(run, thresholds)
    duals = {}
    if config.privacy is None:
        complete(path, ["duals.safetensors"])
        duals = load_arrays(path / "duals.safetensors")
        of = Multipliers if config.constrained else Duals
        numbers, file = size + thresholds, path / "duals.safetensors"
        check_proof(file, duals, numbers, of, len(run.result["clients"]))
    used = [section for section in SECTIONS if section.applies(config)]
    points = {section.name: section.read(run, thresholds) for section in used}
    points = {name: each for name, each in points.items() if each is not None}
    models = {f"its baseline {name}": array.shape for name, array in baselines.items()}
    models |= {f"a model of its {name}": each.w.shape[1:] for name, each in points.items()}
    if odd := [name for name, shape in models.items() if shape != (size,)]:
        raise damaged(path, f"{odd[0]} has the shape {models[odd[0]]}; needed: {size} numbers")
    events = _read_events(path, run) if config.logged else None
    exact = replace(run, duals=duals, baselines=baselines, proofs=proofs)
    return replace(exact, points=points, events=events)


def _thresholds(run: Run) -> int:
    """How many thresholds the points of a proof have after the model: where the rows of all clients
    are ranked together.
    """
    risk = run.config.problem().over_rows if run.config.risk.together else None
    if not few_levels(risk):
        return 0
    return len(levels(risk, sum(row["n"] for row in run.result["clients"])).shares)


def _read_baselines(
    run: Run, thresholds: int
) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """The models that the run is compared with, and what proves their bounds."""
    names, file = run.config.report.compare_with, run.path / "baselines.safetensors"
    if run.config.privacy is not None and not names:
        return {}, {}
    complete(run.path, [file.name])
    models, proofs = restored(load_arrays(file))
    if {*models} != {*names} or not {*proofs} <= {*names}:
        raise damaged(file, "it has other models than report.compare_with of the configuration")
    for name, proof in proofs.items():
        alike = name == "unconstrained"  # which ranks as the model does
        check_proof(file, proof, len(run.w) + alike * thresholds)
    return models, proofs


def _read_events(path: Path, run: Run) -> Log:
    complete(path, (EVENTS,))
    try:
        log = Log.load(path / EVENTS)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if [*log.clients] != [row["client"] for row in run.result["clients"]]:
        raise damaged(path / EVENTS, "it has other clients than result.json")
    return log
