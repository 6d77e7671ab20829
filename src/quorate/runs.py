"""A run as a folder that proves itself.

    config.toml          what was run, defaults included          result.json     certificate, tables, digests
    model.safetensors    w, and how features are made             history.jsonl   one line a round
    duals.safetensors    what the lower bound is proved from      report.html, figures/*.svg
    baselines.safetensors  the models it is compared with
    path.json, path.safetensors  with [path]: the radii tried, held-out numbers, models
    trade_off.json, trade_off.safetensors  with [trade_off]: the levels tried, models, multipliers

A folder is written beside its final name and renamed when complete; an existing run is never overwritten.
`quorate.verify` checks one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array
from quorate.config import Config, read_config
from quorate.radii import FILE, MODELS, Tried
from quorate.rounds import Stop
from quorate.trade_off import LEVELS, PARTS, PROOFS, Traded

if TYPE_CHECKING:
    from quorate.data.schema import Schema
    from quorate.parts import Parts
    from quorate.solution import Solution

FORMAT = 1
KEYS = (  # of result.json
    *("title", "model", "problem", "outcome", "rounds", "certificate", "clients", "messages", "notes", "baselines"),
    *("evaluation", "versions", "data", "files", "seal"),
)
DERIVED = ("report.html", "figures/")  # drawn from the rest


class RunError(ValueError):
    """A folder that is no run, is incomplete or cannot be read."""


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


# ---------------------------------------------------------------------------------------- writing


def result_of(
    config: Config, solution: Solution, others: Mapping[str, Solution], parts: Parts, evaluation: Mapping[str, Any]
) -> dict[str, Any]:
    """What result.json holds, digests of the files excepted."""
    from quorate.constrained_trial import of_constraints
    from quorate.rank_trial import of_ranks
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
                _write(work / file, _json(points.table, indent=1).encode())
                _save(work / models, points.arrays)
        _seal(work, result)
        if render is not None:
            for name, text in render(read_run(work)).items():
                _write(work / name, text.encode())
        _seal(work, result)
        return _claim(work, out, f"{today or date.today()}-{slug(result['title'])}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_files(
    work: Path, config: Config, result: dict[str, Any], solution: Solution, others: Mapping[str, Array], parts: Parts
) -> None:
    _write(work / "config.toml", config.text().encode())
    fed = parts.train
    model = {
        "format": FORMAT,
        "loss": config.problem_.loss,
        "intercept": config.problem_.intercept,
        "classes": None if fed.classes is None else plain(fed.classes),
        "feature_names": list(fed.feature_names),
        "schema": None if fed.schema is None else fed.schema.to_dict(),
        **({"infeasible": True} if solution.outcome.stop is Stop.INFEASIBLE else {}),
    }
    _save(work / "model.safetensors", {"w": solution.w}, {"quorate": json.dumps(plain(model))})
    duals = {} if solution.duals is None else {k: v for k, v in vars(solution.duals).items() if v is not None}
    _save(work / "duals.safetensors", duals)
    _save(work / "baselines.safetensors", others)
    _write(work / "history.jsonl", "".join(_json(row) + "\n" for row in solution.history).encode())
    _write(work / "result.json", _json(result, indent=1).encode())


def _seal(work: Path, result: Mapping[str, Any]) -> None:
    """Write result.json with digests of all other files and of itself."""
    files = {f.relative_to(work).as_posix(): digest(f.read_bytes()) for f in sorted(work.rglob("*")) if f.is_file()}
    files.pop("result.json", None)
    sealed = {**{k: v for k, v in result.items() if k != "seal"}, "files": files}
    _write(work / "result.json", _json({**sealed, "seal": seal(sealed)}, indent=1).encode())


def seal(result: Mapping[str, Any]) -> str:
    """Digest of everything in result.json but itself."""
    return digest(json.dumps({k: v for k, v in result.items() if k != "seal"}, sort_keys=True).encode())


def _claim(work: Path, out: Path, name: str) -> Path:
    """Rename the finished folder to the first free name; renaming never replaces a folder with files in it."""
    for k in range(1, 10_000):
        path = out / (name if k == 1 else f"{name}-{k}")
        if path.exists():
            continue
        try:
            os.chmod(work, 0o755)
            os.rename(work, path)
        except OSError:
            if not path.exists():
                raise
            continue
        return path
    raise RunError(f"{out} has ten thousand runs called {name}: give another --out")


def slug(title: str) -> str:
    """A title as part of a file name."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in title.lower())
    return "-".join(filter(None, kept.split("-")))[:40] or "run"


def replace_report(run: Run, files: Mapping[str, str]) -> None:
    """Write the report of a run again, and its digests; refuses a run whose result.json was changed."""
    if seal(run.result) != run.result.get("seal"):
        raise RunError(f"{run.path / 'result.json'} was changed after it was written: its seal does not match")
    for name, text in files.items():
        _write(run.path / name, text.encode())
    kept = {k: v for k, v in run.result["files"].items() if not k.startswith(DERIVED)}
    new = {**run.result, "files": {**kept, **{name: digest(text.encode()) for name, text in files.items()}}}
    _write(run.path / "result.json", _json({**new, "seal": seal(new)}, indent=1).encode())


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def plain(value: Any) -> Any:
    """As JSON: arrays as lists, infinities as "inf" and "-inf"; not-a-number as None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _write(path: Path, data: bytes) -> None:
    """In one step: either the old file stands or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    beside.write_bytes(data)
    os.replace(beside, path)


def _save(path: Path, arrays: Mapping[str, Array], metadata: dict[str, str] | None = None) -> None:
    from safetensors.numpy import save

    _write(path, save({k: np.ascontiguousarray(v, dtype=np.float64) for k, v in arrays.items()}, metadata))


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
    needed = ["config.toml", "model.safetensors", "duals.safetensors", "result.json", "history.jsonl"]
    if missing := [name for name in needed if not (path / name).is_file()]:
        raise RunError(f"{path} is no complete run: {', '.join(missing)} missing")
    config = read_config(path / "config.toml")
    w, model, schema = _read_model(path)
    result = _parsed(path / "result.json", (path / "result.json").read_text(encoding="utf-8"))
    if result.get("format") != FORMAT:
        raise RunError(f"{path}: the run is of format {result.get('format')!r}, this quorate reads {FORMAT}")
    if lacking := [key for key in KEYS if key not in result]:
        raise RunError(f"{path / 'result.json'} is damaged: {', '.join(lacking)} missing")
    baselines = path / "baselines.safetensors"
    return Run(
        path,
        config,
        result,
        w,
        model,
        schema,
        load_tensors(path / "duals.safetensors")[0],
        load_tensors(baselines)[0] if baselines.is_file() else {},
        [_parsed(path / "history.jsonl", row) for row in (path / "history.jsonl").read_text("utf-8").splitlines()],
        _read_tried(path) if config.path is not None else None,
        Traded(*_points(path, LEVELS, PROOFS, PARTS)) if config.trade_off is not None else None,
    )


def _read_tried(path: Path) -> Tried:
    table, models = _points(path, FILE, MODELS, ("w",))
    if models["w"].ndim != 2 or table.get("best") not in range(len(models["w"])):
        raise RunError(f"{path / FILE} is damaged: it does not fit its models")
    return Tried(table, models["w"])


def _points(path: Path, file: str, models: str, names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The table of the points that were tried, and their arrays by name, one row a point."""
    if missing := [name for name in (file, models) if not (path / name).is_file()]:
        raise RunError(f"{path} is no complete run: {', '.join(missing)} missing")
    table, arrays = _parsed(path / file, (path / file).read_text("utf-8")), load_tensors(path / models)[0]
    points = table.get("points")
    if not isinstance(points, list) or any(name not in arrays or len(arrays[name]) != len(points) for name in names):
        raise RunError(f"{path / file} is damaged: it does not fit its models")
    return table, arrays


def _parsed(path: Path, text: str) -> Any:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged: expected an object, found {type(found).__name__}")
    return found


def load_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and metadata of a safetensors file; no code in it is run.

    Raises
    ------
    RunError : no such file, or a damaged one
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise RunError(f"there is no file {str(path)!r}")
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {error}") from error


def _model(metadata: Mapping[str, str], path: Path) -> tuple[dict[str, Any], Schema]:
    from quorate.data.schema import Schema

    model = _parsed(path, metadata.get("quorate", "{}"))
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
    if w is None or w.shape != (len(schema.feature_names) + model["intercept"],):
        raise RunError(f"{file} is damaged: its model does not fit its schema")
    return w, model, schema
