"""A run as a folder that proves itself.

    config.toml     what was run, defaults included     result.json     certificate, tables, digests
    model.safetensors    w, and how features are made             history.jsonl   one line a round
    duals.safetensors    what the lower bound is proved from      report.html, figures/*.svg
    baselines.safetensors  the models it is compared with, and what proves their bounds
    path.json, path.safetensors  with [path]: the radii tried, held-out numbers, models
    trade_off.json, trade_off.safetensors  with [trade_off]: the levels tried, models, multipliers
    events.qrt           on a simulated clock: who answered when, for `Replay(Log.load(path))`

A private run keeps what is withheld in a folder of its own, see `quorate.runs.disclosure`.

A folder is written elsewhere on the same file system and renamed when complete; an existing run is
never overwritten. `quorate.runs.verification` checks one.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from quorate.config.config import read_config
from quorate.engines.event_log import Log
from quorate.runs.baselines import proof_arrays, restored, stored
from quorate.runs.disclosure import OWNER, README, exact_folder, parts_of, public_history
from quorate.runs.files import (
    CLAIMED,
    FINISHED,
    Record,
    Row,
    RunError,
    claim,
    complete,
    digest,
    lines,
    load_if_any,
    rows_in,
    save_arrays,
    seal,
    sealed,
    slug,
    to_json,
    write,
)
from quorate.runs.model_file import save_model, stored_model
from quorate.runs.result import result_in
from quorate.runs.run import Points, Run
from quorate.runs.sections.all import SECTIONS
from quorate.runs.sections.section import Study
from quorate.solution.solution import Solution
from quorate.storage import OWN_FOLDER

EVENTS = "events.qrt"
DERIVED = ("report.html", "figures/")  # drawn from the rest
Render = Callable[[Run], Mapping[str, str]]


# ---------------------------------------------------------------------------------------- writing


def write_run(
    out: Path,
    study: Study,
    models: Mapping[str, Solution],
    points: Mapping[str, Points],
    result: Record,
    *,
    render: Render | None = None,
    today: date | None = None,
) -> Path:
    """Write a run below ``out``; returns its folder, named by date and title.

    ``render`` draws the files of the report (name -> text) of every part of the finished run.
    """
    out.mkdir(parents=True, exist_ok=True)
    work = out / f".writing-{secrets.token_hex(4)}" if study.work is None else study.work / FINISHED
    shutil.rmtree(work, ignore_errors=True)  # of a process that died
    work.mkdir()
    try:
        _write_public(work, out, study, next(iter(models.values())))
        _write_exact(work, study, models, points)
        whole = _seal(work, study, result)
        if render is not None:
            run = read_run(work)
            for part in filter(None, (run, run.owner)):
                for name, text in render(part).items():
                    write(part.path / name, text.encode())
            whole = _seal(work, study, result)
        if study.work is not None:  # by it a finished run is known whose process died
            write(study.work / CLAIMED, whole.encode())
        return claim(work, out, f"{today or date.today()}-{slug(result['title'])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_public(work: Path, out: Path, study: Study, solution: Solution) -> None:
    """Write what every run shows: its configuration, its model, and of a private run the history of
    its noisy answers.
    """
    there = study.stated.moved_to(out / "run")  # its paths start where the folder will be
    write(work / "config.toml", there.text().encode())
    save_model(work / "model.safetensors", study.stated, solution, study.parts.train)
    if study.stated.privacy is not None:
        write(work / "history.jsonl", lines(public_history(solution.history)))
        (work / OWNER).mkdir(mode=OWN_FOLDER)
        write(work / OWNER / "README.txt", README.encode())


def _write_exact(
    work: Path, study: Study, models: Mapping[str, Solution], points: Mapping[str, Points]
) -> None:
    """Write what was computed from the rows exactly."""
    folder, (main, *names) = exact_folder(study.stated, work), models
    solution, private = models[main], study.stated.privacy is not None
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


def _seal(work: Path, study: Study, result: Row) -> str:
    """Write the result.json of every part, each with the digests of the files beside it; returns
    the seal of the run's own.
    """
    seals = {}
    for folder, part in parts_of(study.stated, result).items():
        outside = "" if folder or study.stated.privacy is None else OWNER
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
    for name, text in files.items():
        write(run.path / name, text.encode())
    kept = {k: v for k, v in run.result["files"].items() if not k.startswith(DERIVED)}
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
        raise RunError(f"there is no run {str(path)!r}: give the folder that `quorate run` printed")
    complete(path, ["config.toml", "model.safetensors", "result.json", "history.jsonl"])
    config = read_config(path / "config.toml")
    w, model, schema = stored_model(path)
    result, history = result_in(path / "result.json"), rows_in(path / "history.jsonl")
    run = Run(path, config, result, w, model, schema, history)
    if config.privacy is None:
        complete(path, ["duals.safetensors"])
        return _with_exact(run)
    owner = path / OWNER
    if not owner.is_dir():
        return run
    complete(owner, ["result.json", "history.jsonl"])
    result, history = result_in(owner / "result.json"), rows_in(owner / "history.jsonl")
    return replace(run, owner=_with_exact(replace(run, path=owner, result=result, history=history)))


def _with_exact(run: Run) -> Run:
    """The run, or its owner's part, with what was computed from the rows exactly."""
    used = [section for section in SECTIONS if section.applies(run.config)]
    points = {section.name: section.read(run.path, run.result) for section in used}
    baselines, proofs = restored(load_if_any(run.path / "baselines.safetensors"))
    return replace(
        run,
        duals=load_if_any(run.path / "duals.safetensors"),
        baselines=baselines,
        proofs=proofs,
        points={name: each for name, each in points.items() if each is not None},
        events=_read_events(run.path) if run.config.engine.clocked else None,
    )


def _read_events(path: Path) -> Log:
    complete(path, (EVENTS,))
    try:
        return Log.load(path / EVENTS)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
