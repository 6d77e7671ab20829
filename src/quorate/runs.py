"""A run as a folder that proves itself.

    config.toml          what was run, defaults included          result.json     certificate, tables, digests
    model.safetensors    w, and how features are made             history.jsonl   one line a round
    duals.safetensors    what the lower bound is proved from      report.html, figures/*.svg
    baselines.safetensors  the models it is compared with
    path.json, path.safetensors  with [path]: the radii tried, held-out numbers, models
    trade_off.json, trade_off.safetensors  with [trade_off]: the levels tried, models, multipliers
    events.qrt           on a simulated clock: who answered when, for `Replay(Log.load(path))`

A private run keeps what stays with the owner in a folder of its own, see `quorate.private_run`.

A folder is written beside its final name and renamed when complete; an existing run is never overwritten.
`quorate.verify` checks one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array
from quorate.config import Config, read_config
from quorate.radii import FILE, MODELS, Tried
from quorate.rounds import Stop
from quorate.run_files import (
    RunError,
    claim,
    digest,
    load_tensors,
    parsed,
    plain,
    save_arrays,
    seal,
    sealed,
    slug,
    to_json,
    write,
)
from quorate.trade_off import LEVELS, PARTS, PROOFS, Traded

if TYPE_CHECKING:
    from quorate.data.schema import Schema
    from quorate.engines.log import Log
    from quorate.parts import Parts
    from quorate.solution import Solution

FORMAT = 1
KEYS = (  # of result.json
    *("title", "model", "problem", "outcome", "rounds", "certificate", "clients", "messages", "notes", "baselines"),
    *("evaluation", "versions", "data", "files", "seal"),
)
EVENTS = "events.qrt"
DERIVED = ("report.html", "figures/")  # drawn from the rest


@dataclass(frozen=True)
class Run:
    """A run as read from its folder.

    Attributes
    ----------
    result : certificate, outcome, clients, messages, notes, evaluation, versions and digests, as in result.json
    w : (D,) the model; ``model`` says how it predicts: loss, intercept, classes, feature names
    schema : makes features from a table
    duals : the arrays that prove the bound by name, empty without one
    baselines : model by name
    history : one row a round
    tried : the radii tried and their models, None without [path]
    traded : the levels tried, their models and multipliers, None without [trade_off]
    events : on a simulated clock who answered when, None else
    owner : of a private run what stays with the owner, as a run of its own; None where this copy has none
    """

    path: Path
    config: Config
    result: dict[str, Any]
    w: Array
    model: dict[str, Any]
    schema: Schema
    duals: dict[str, Array]
    baselines: dict[str, Array]
    history: list[dict[str, Any]]
    tried: Tried | None = None
    traded: Traded | None = None
    owner: Run | None = None
    events: Log | None = None

    @property
    def private(self) -> bool:
        """Whether it was made within a budget of privacy, and is the part that travels."""
        return "privacy" in self.result


# ---------------------------------------------------------------------------------------- writing


def result_of(
    config: Config, solution: Solution, others: Mapping[str, Solution], parts: Parts, evaluation: Mapping[str, Any]
) -> dict[str, Any]:
    """What result.json holds, digests of the files excepted."""
    from quorate.constrained_trial import of_constraints
    from quorate.rank_trial import of_ranks
    from quorate.reached import of_clock
    from quorate.trial import called, label

    models = {label(solution.problem): solution.w, **{called(name): s.w for name, s in others.items()}}
    proved = (solution.constraints, solution.certificate, solution.duals)
    return plain(
        {
            "format": FORMAT,
            "title": config.title or config.data.name or "run",
            "model": label(solution.problem),
            "problem": config.sentence(),
            "outcome": {"stop": solution.outcome.stop.value, "text": solution.outcome.text},
            "rounds": solution.rounds,
            "seconds": solution.seconds,
            "certificate": solution.certificate.numbers(),
            "clients": solution.clients,
            "messages": solution.messages,
            "notes": list(solution.notes),
            **({"tries": solution.tries} if solution.tries else {}),
            "baselines": {
                name: {
                    "value": s.certificate.value,
                    "bound": s.certificate.bound,
                    "gap": s.certificate.gap,
                    "stop": s.outcome.stop.value,
                    "rounds": s.rounds,
                }
                for name, s in others.items()
            },
            "evaluation": evaluation,
            **of_ranks(config, models, parts.train, parts.owners),
            **of_constraints(solution.problem, models, parts, *proved),
            **of_clock({label(solution.problem): solution, **{called(name): s for name, s in others.items()}}),
            "versions": versions(),
            "data": data_digests(parts),
        }
    )


def data_digests(parts: Parts) -> dict[str, dict[str, str]]:
    """One digest for each client of the training rows and of every test set, and of the server's own data."""
    held = parts.owners.server
    sets = {"train": parts.owners.without_server(), **parts.tests} | ({} if held is None else {"server": held})
    return {name: dict(zip(fed.clients, fed.digests(), strict=True)) for name, fed in sets.items()}


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return {"python": platform.python_version(), **{p: of(p) for p in ("quorate", "numpy", "scipy", "clarabel")}}


def write_run(
    out: Path,
    config: Config,
    result: dict[str, Any],
    solution: Solution,
    others: Mapping[str, Array],
    parts: Parts,
    *,
    tried: Tried | None = None,
    traded: Traded | None = None,
    render: Callable[[Run], Mapping[str, str]] | None = None,
    today: date | None = None,
) -> Path:
    """Write a run below ``out``; returns its folder, named by date and title.

    ``render`` draws the files of the report (name -> text) from the finished run.
    """
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".writing-", dir=out))
    try:
        _write_files(work, config.at(work), result, solution, others, parts)
        for points, file, models in ((tried, FILE, MODELS), (traded, LEVELS, PROOFS)):
            if points is not None:
                write(work / file, to_json(points.table, indent=1).encode())
                save_arrays(work / models, points.arrays)
        write(work / "result.json", to_json(sealed(work, result), indent=1).encode())
        if render is not None:
            for name, text in render(read_run(work)).items():
                write(work / name, text.encode())
        write(work / "result.json", to_json(sealed(work, result), indent=1).encode())
        return claim(work, out, f"{today or date.today()}-{slug(result['title'])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_files(
    work: Path, config: Config, result: dict[str, Any], solution: Solution, others: Mapping[str, Array], parts: Parts
) -> None:
    write(work / "config.toml", config.text().encode())
    save_model(work, config, solution, parts)
    duals = {} if solution.duals is None else {k: v for k, v in vars(solution.duals).items() if v is not None}
    save_arrays(work / "duals.safetensors", duals)
    save_arrays(work / "baselines.safetensors", others)
    write(work / "history.jsonl", "".join(to_json(row) + "\n" for row in solution.history).encode())
    write(work / "result.json", to_json(result, indent=1).encode())
    if solution.log is not None:
        solution.log.save(work / EVENTS)


def save_model(work: Path, config: Config, solution: Solution, parts: Parts) -> None:
    """w, and in the metadata all that predictions need."""
    fed = parts.train
    model = {
        "format": FORMAT,
        "loss": config.problem_.loss,
        "intercept": config.problem_.intercept,
        "model": config.problem_.model,
        **{key: value for key in ("hidden", "activation") if (value := getattr(config.problem_, key)) is not None},
        **({"ones": True} if config.ones else {}),
        "classes": None if fed.classes is None else plain(fed.classes),
        "feature_names": list(fed.feature_names),
        "schema": None if fed.schema is None else fed.schema.to_dict(),
        **({"infeasible": True} if solution.outcome.stop is Stop.INFEASIBLE else {}),
    }
    save_arrays(work / "model.safetensors", {"w": solution.w}, {"quorate": json.dumps(plain(model))})


def replace_report(run: Run, files: Mapping[str, str]) -> None:
    """Write the report of a run again, and its digests; refuses a run whose result.json was changed."""
    if seal(run.result) != run.result.get("seal"):
        raise RunError(f"{run.path / 'result.json'} was changed after it was written: its seal does not match")
    for name, text in files.items():
        write(run.path / name, text.encode())
    kept = {k: v for k, v in run.result["files"].items() if not k.startswith(DERIVED)}
    new = {**run.result, "files": {**kept, **{name: digest(text.encode()) for name, text in files.items()}}}
    write(run.path / "result.json", to_json({**new, "seal": seal(new)}, indent=1).encode())


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
    needed = ["config.toml", "model.safetensors", "result.json", "history.jsonl"]
    complete(path, needed)
    config = read_config(path / "config.toml")
    w, model, schema = _read_model(path)
    result = result_in(path / "result.json")
    own = path, config, result, w, model, schema
    if config.privacy is not None:
        from quorate.private_run import read_owner

        return Run(*own, {}, {}, _history(path), owner=read_owner(Run(*own, {}, {}, [])))
    complete(path, ["duals.safetensors"])
    return Run(
        *own,
        load_tensors(path / "duals.safetensors")[0],
        load_if_any(path / "baselines.safetensors"),
        _history(path),
        _read_tried(path) if config.path is not None else None,
        Traded(*_points(path, LEVELS, PROOFS, PARTS)) if config.trade_off is not None else None,
        events=_read_events(path) if config.engine.clocked else None,
    )


def complete(path: Path, needed: Sequence[str]) -> None:
    """Raise where a file is missing."""
    if missing := [name for name in needed if not (path / name).is_file()]:
        raise RunError(f"{path} is no complete run: {', '.join(missing)} missing")


def result_in(file: Path) -> dict[str, Any]:
    """A result.json, whole."""
    result = parsed(file, file.read_text(encoding="utf-8"))
    if result.get("format") != FORMAT:
        raise RunError(f"{file.parent}: the run is of format {result.get('format')!r}, this quorate reads {FORMAT}")
    if lacking := [key for key in KEYS if key not in result]:
        raise RunError(f"{file} is damaged: {', '.join(lacking)} missing")
    return result


def _history(path: Path) -> list[dict[str, Any]]:
    file = path / "history.jsonl"
    return [parsed(file, row) for row in file.read_text("utf-8").splitlines()]


def load_if_any(file: Path) -> dict[str, Array]:
    """The arrays of a file, none where there is no such file."""
    return load_tensors(file)[0] if file.is_file() else {}


def _read_events(path: Path) -> Log:
    from quorate.engines.log import Log

    complete(path, (EVENTS,))
    try:
        return Log.load(path / EVENTS)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error


def _read_tried(path: Path) -> Tried:
    table, models = _points(path, FILE, MODELS, ("w",))
    if models["w"].ndim != 2 or table.get("best") not in range(len(models["w"])):
        raise RunError(f"{path / FILE} is damaged: it does not fit its models")
    return Tried(table, models["w"])


def _points(path: Path, file: str, models: str, names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The table of the points that were tried, and their arrays by name, one row a point."""
    complete(path, (file, models))
    table, arrays = parsed(path / file, (path / file).read_text("utf-8")), load_tensors(path / models)[0]
    points = table.get("points")
    if not isinstance(points, list) or any(name not in arrays or len(arrays[name]) != len(points) for name in names):
        raise RunError(f"{path / file} is damaged: it does not fit its models")
    return table, arrays


def _model(metadata: Mapping[str, str], path: Path) -> tuple[dict[str, Any], Schema]:
    from quorate.data.schema import Schema

    model = parsed(path, metadata.get("quorate", "{}"))
    if model.get("format") != FORMAT:
        raise RunError(f"{path}: the model is of format {model.get('format')!r}, this quorate reads {FORMAT}")
    return model, Schema.from_dict(model["schema"])


def read_model(path: str | os.PathLike[str]) -> tuple[Array, dict[str, Any], Schema]:
    """(w, model, schema) of a run's folder or of a model.safetensors file, to predict with."""
    w, model, schema = _read_model(path)
    if not np.isfinite(w).all():
        raise RunError(f"{path} is damaged: its model is not finite")
    return w, model, schema


def _read_model(path: str | os.PathLike[str]) -> tuple[Array, dict[str, Any], Schema]:
    file = Path(path)
    file = file / "model.safetensors" if file.is_dir() else file
    tensors, metadata = load_tensors(file)
    model, schema = _model(metadata, file)
    w = tensors.get("w")
    if w is None or w.shape != (_dimension(model, len(schema.feature_names)),):
        raise RunError(f"{file} is damaged: its model does not fit its schema")
    return w, model, schema


def _dimension(model: Mapping[str, Any], n_features: int) -> int:
    """The size of a saved model."""
    from quorate.predict import predictor

    d, several = n_features + model.get("ones", False), model["loss"] == "multinomial"
    return predictor(model).sized(d, len(model["classes"]) if several else None).dimension(d)
